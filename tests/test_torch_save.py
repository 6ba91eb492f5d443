"""Saving programs of torch: the file is what torch.export.save writes, or none is written."""

import io
import json
import logging
import math
import operator
import os
import pickle
import threading
import tracemalloc
import zipfile

import pytest
import torch
from torch._export.verifier import SpecViolationError

import export_kinds
import fastexport
import pt2_torch
from export_kinds import KINDS, NOT_LOADED, NOT_SAVED, exported
from fastexport import _torch_save, _torch_serializer

aten = torch.ops.aten

SAVED = sorted(set(KINDS) - NOT_SAVED - NOT_LOADED)


pytestmark = pytest.mark.usefixtures("quiet")


def entries(data):
    """Name below the top folder -> bytes, in order."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def by_torch(program, **options):
    file = io.BytesIO()
    torch.export.save(program, file, **options)
    return file.getvalue()


def by_us(program, **options):
    file = io.BytesIO()
    fastexport.save(program, file, **options)
    return file.getvalue()


def assert_same_file(program, **options):
    ours, theirs = entries(by_us(program, **options)), entries(by_torch(program, **options))
    assert list(ours) == list(theirs)
    for name, data in theirs.items():
        assert ours[name] == data, name


def load(data):
    return pt2_torch.load(io.BytesIO(data))


def export(forward, *args, **options):
    return export_kinds.export(lambda self, *args: forward(*args), *args, **options)


def model_of(data):
    return json.loads(entries(data)["models/model.json"])


# ---- the same file


@pytest.mark.parametrize("name", SAVED)
def test_every_kind_is_saved_as_torch_does_it(name):
    assert_same_file(exported(name))


def test_a_transformer():
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, attn_implementation="sdpa",
    )  # fmt: skip

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = BertModel(config).eval()

        def forward(self, words):
            return self.bert(words, use_cache=False).last_hidden_state

    program = torch.export.export(Hidden(), (torch.arange(8).reshape(1, 8),))
    assert_same_file(program)
    assert_same_file(program.run_decompositions())


def test_a_quantized_model():
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16, 5))
    args = (export_kinds.values(1, 3, 4, 4),)
    prepared = prepare_pt2e(torch.export.export(model.eval(), args).module(), quantizer)
    prepared(*args)
    assert_same_file(torch.export.export(convert_pt2e(prepared), args))


def test_sizes_and_what_stands_for_them():
    rows, columns = torch.export.Dim("rows", max=40), torch.export.Dim("columns", max=30)

    def forward(x, y):
        together = torch.cat([x, y])
        return together.t().contiguous().flatten(), together.shape[0] * 2 + 1, x.shape[1] / 3, x[1:].numel() + 4

    shapes = ({0: 2 * rows, 1: columns}, {0: rows, 1: columns})
    program = export(forward, torch.ones(6, 5), torch.ones(3, 5), dynamic_shapes=(shapes,))
    assert_same_file(program)


def test_operands_of_several_kinds():
    """A list with symbolic sizes among tensors; also when the file is edited."""
    rows = torch.export.Dim("rows", max=50)

    def forward(x, y):
        n = x.shape[0]
        return torch.cond(x.sum() > 0, lambda a, b: a + b.shape[0] * 2 + n, lambda a, b: b - n, (x, y))

    program = export(forward, torch.ones(4), torch.ones(4), dynamic_shapes=(({0: rows}, {0: rows}),))
    (cond,) = (node for node in program.graph.nodes if "cond" in str(node.target))
    assert {type(node.meta["val"]) for node in cond.args[3]} == {
        torch.SymInt,
        type(program.graph.find_nodes(op="placeholder")[0].meta["val"]),
    }
    assert_same_file(program)
    ep = fastexport.load(by_us(program))
    ep.graph.node("cond").name = "other"
    args = torch.arange(5.0), torch.ones(5)
    assert torch.equal(load(by_us(ep)).module()(*args), program.module()(*args))


def test_options():
    program = exported("linear")
    assert_same_file(program, extra_files={"notes/a.txt": "märchen", "b": ""}, pickle_protocol=4)
    assert entries(by_us(program, extra_files={"b": b"\xff"}))["extra/b"] == b"\xff"
    versions = model_of(by_us(program, opset_version={"mine": 3}))["opset_version"]
    assert versions == {"mine": 3, "aten": torch._C._get_max_operator_version()}
    assert model_of(by_us(program, opset_version={"aten": 1}))["opset_version"] == {"aten": 1}


def test_metadata():
    program = export(lambda x: torch.relu(x + 1), torch.ones(2))
    add, relu = (node for node in program.graph.nodes if node.op == "call_function")
    add.meta["custom"] = {"é": [1, None, math.inf], "quote": 'a"b\\'}
    add.meta["stack_trace"] = "a\nline \U0001f600"
    add.meta["nn_module_stack"] = {"k": ("a[1,2]", "t(x)")}
    add.meta["source_fn_stack"] = [("f", torch.add), ("g", aten.add.Tensor), ("h", "text"), ("i", torch.nn.Linear)]
    relu.meta["from_node"] = [torch.fx.traceback.NodeSource(add, "a_pass"), "not one"]
    relu.meta["nn_module_stack"], relu.meta["custom"], relu.meta["torch_fn"] = {}, {}, ()
    program.graph_module.meta["custom"] = {"of": "the graph"}
    assert_same_file(program)
    relu.meta["from_node"] = None
    assert_same_file(program)


def test_metadata_that_is_shared_is_not_mixed_up():
    """What compares equal may differ in text."""
    program = export(lambda x: (x + 1) * 2 - 3, torch.ones(2))
    stacks = [{"k": ("", "a")}, {"k": ("", "b")}, {"j": ("", "a")}]
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    for node, stack in zip(calls, stacks, strict=True):
        node.meta["nn_module_stack"] = stack
    for node, number in zip(calls, (1, True, 1.0), strict=True):
        node.meta["custom"] = {"n": number}
    assert_same_file(program)


def test_custom_operators():
    program = torch.export.export(_Custom(), (torch.ones(3), torch.ones(3)))
    assert_same_file(program)
    names = [
        given["name"] for node in model_of(by_us(program))["graph_module"]["graph"]["nodes"] for given in node["inputs"]
    ]
    assert {"xs", "flags", "x", "n"} <= set(names)


class _Custom(torch.nn.Module):
    """Calls the operators that pt2_torch defines, with lists that nothing but the schema tells the kind of."""

    def forward(self, x, y):
        first, _ = torch.ops.fxsample.pair([x, y], [], None)
        whole, parts, total = torch.ops.fxsample.mix(first, 2)
        return torch.ops.fxsample.twice(parts[1], k=3, tag="é"), whole + total


def test_repeated_getitems_are_one():
    program = export(lambda x: torch.topk(x, 2)[0] * 2, torch.arange(4.0))
    (mul,) = program.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    first = mul.args[0]
    with program.graph.inserting_before(mul):
        again = program.graph.call_function(operator.getitem, first.args)
    again.meta = dict(first.meta)
    mul.args = (first, again)
    assert_same_file(program)
    assert load(by_us(program)).module()(torch.arange(4.0)).tolist() == [9.0, 4.0]


def test_getitems_that_take_nothing(tmp_path):
    """torch leaves them out, which is right as long as nobody uses them."""
    program = export(lambda x: torch.topk(x, 2)[0] * 2, torch.arange(4.0))
    (mul,) = program.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    with program.graph.inserting_before(mul):
        past = program.graph.call_function(operator.getitem, (mul.args[0].args[0], 7))
    past.meta = dict(mul.meta)
    assert_same_file(program)
    mul.args = (past, 2)
    assert "'topk'" in refused(program, tmp_path)


def test_results_that_nobody_takes():
    program = torch.export.export(_Custom(), (torch.ones(3), torch.ones(3)))
    program.graph.eliminate_dead_code()
    assert not [node for node in program.graph.nodes if node.target is operator.getitem and not node.users]
    assert_same_file(program)


# ---- weights


class _Held(torch.nn.Module):
    def __init__(self, **buffers):
        super().__init__()
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x):
        return x + sum(buffer.sum() for buffer in self.buffers())


def held(**buffers):
    return torch.export.export(_Held(**buffers), (torch.ones(2),))


def test_views_and_strides():
    base = export_kinds.values(24)
    transposed = export_kinds.values(4, 3).t()
    program = held(
        a=base[2:6], b=base[4:12].view(2, 4), c=transposed, d=transposed[1:], e=torch.empty(0, 3), f=torch.tensor(3.0),
        g=base.view(torch.int32)[3:5], h=torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),
    )  # fmt: skip
    assert_same_file(program)
    got = load(by_us(program)).state_dict
    assert all(torch.equal(got[name], value) for name, value in program.state_dict.items())


def test_whole_storages_are_written():
    """Also what no weight sees: torch warns, and so do we."""
    base = export_kinds.values(24)
    program = held(a=base[2:6], b=base[1:3])
    with pytest.warns(UserWarning, match="No complete tensor"):
        data = by_us(program)
    weight = entries(data)["data/weights/weight_0"]
    assert weight == bytes(base.untyped_storage()) == entries(by_torch(program))["data/weights/weight_0"]


def test_tensors_without_data():
    assert_same_file(torch.export.export(torch.nn.Linear(3, 2, device="meta"), (torch.ones(2, 3, device="meta"),)))
    with torch._subclasses.fake_tensor.FakeTensorMode():
        module, x = torch.nn.Linear(3, 2), torch.ones(2, 3)
    fake = torch.export.export(module, (x,))
    file = io.BytesIO()
    with pytest.raises(fastexport.VerifyError, match="'weight' is a fake tensor"):
        fastexport.save(fake, file)
    assert file.getvalue() == b""
    fastexport.save(fake, file, verify=False)
    assert entries(file.getvalue()) == entries(by_torch(fake))


def test_dtypes():
    kinds = [torch.bfloat16, torch.float8_e5m2, torch.complex64, torch.uint16, torch.bool, torch.int8]
    program = export(lambda x: x + 1, torch.ones(2))
    program.state_dict.update({str(kind): torch.ones(3).to(kind) for kind in kinds})
    ours, theirs = (
        json.loads(entries(save(program))["data/weights/model_weights_config.json"]) for save in (by_us, by_torch)
    )
    assert ours == theirs


def test_peak_of_memory():
    """Weights are written from their own memory."""
    program = torch.export.export(torch.nn.Linear(2048, 2048), (torch.ones(1, 2048),))
    by_us(exported("linear"))
    tracemalloc.start()
    try:
        fastexport.save(program, _Nowhere())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20  # of 16 MiB of weights


class _Nowhere:
    def write(self, data):
        return len(data)


# ---- what is refused


def broken(edit):
    """A program that an edit has broken."""
    program = export(lambda x: torch.relu(x) + 1, torch.ones(2))
    edit(program)
    return program


def _unknown_value(program):
    list(program.graph.nodes)[1].meta["val"] = object()


def _operator_that_is_none(program):
    list(program.graph.nodes)[1].target = print


def _parameter_that_is_missing(program):
    program.graph_signature.input_specs[0].kind = torch.export.graph_signature.InputKind.PARAMETER
    program.graph_signature.input_specs[0].target = "nowhere"


def _output_of_other_name(program):
    program.graph_signature.output_specs[0].arg.name = "relu"


def _input_without_spec(program):
    program.graph_signature.input_specs.clear()


@pytest.mark.parametrize(
    "edit",
    [
        _unknown_value,
        _operator_that_is_none,
        _parameter_that_is_missing,
        _output_of_other_name,
        _input_without_spec,
    ],
)
def test_what_the_verifier_refuses(edit, tmp_path):
    program = broken(edit)
    path = tmp_path / "m.pt2"
    path.write_bytes(b"before")
    with pytest.raises(Exception) as theirs:
        by_torch(program)
    with pytest.raises(type(theirs.value)) as ours:
        fastexport.save(program, path)
    assert isinstance(ours.value, SpecViolationError)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def refused(program, tmp_path, kind=fastexport.FormatError):
    path = tmp_path / "m.pt2"
    path.write_bytes(b"before")
    with pytest.raises(kind) as caught:
        fastexport.save(program, path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sym_rounding", ("round", "has no name in a .pt2 file")),
        ("sym_bool_result", ("node gt", "symbolic bool", "return a tensor")),
        ("text_result", ("output", "can't be an output")),
        ("opaque_value", ("setting", "no word for")),
    ],
)
def test_what_torch_could_not_load(name, words, tmp_path):
    message = refused(exported(name), tmp_path)
    assert all(word in message for word in words)


def test_sums_of_sizes_are_saved():
    program = exported("sym_sum")
    again = load(by_us(program))
    export_kinds.assert_same_results(export_kinds.run(again), export_kinds.run(program))
    assert len(again.range_constraints) == len(program.range_constraints)


@pytest.mark.parametrize("name", ["linear", "sym_arithmetic", "mapped", "own_lists", "arguments_written"])
def test_exactly_what_torch_saves(name):
    theirs = entries(by_torch(exported(name)))
    for entry, data in _torch_save.records(exported(name), exact=True):
        assert bytes(data) == theirs[entry]


def test_exactly_what_torch_refuses():
    with pytest.raises(fastexport.FormatError, match="sym_sum"):
        _torch_save.records(exported("sym_sum"), exact=True)


def test_roundings_that_torch_can_look_up_are_saved():
    rows = torch.export.Dim("rows", min=2, max=64)

    def forward(x):
        return x.new_ones(math.floor(x.shape[0] / 2) + math.ceil(x.shape[0] / 3))

    program = export(forward, torch.ones(7), dynamic_shapes=(({0: rows},),))
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    if targets.isdisjoint({math.floor, math.ceil}):
        pytest.skip("torch has folded them")
    again = load(by_us(program))
    for count in (5, 7, 12):
        assert torch.equal(again.module()(torch.ones(count)), program.module()(torch.ones(count)))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("custom", {"f": print}, ("relu", "custom", "not JSON serializable")),
        ("custom", {(1, 2): 3}, ("relu", "custom")),
        ("nn_module_stack", {"a": ("b", torch.nn.Linear)}, ("relu", "nn_module_stack")),
        ("nn_module_stack", {"a": "b"}, ("relu", "nn_module_stack")),
        ("torch_fn", (1, 2), ("relu",)),
        ("stack_trace", 5, ("relu",)),
        ("from_node", 5, ("relu",)),
    ],
)
def test_metadata_that_no_text_can_hold(key, value, words, tmp_path):
    program = export(lambda x: torch.relu(x), torch.ones(2))
    (relu,) = program.graph.find_nodes(op="call_function", target=aten.relu.default)
    relu.meta[key] = value
    with pytest.raises((RuntimeError, AttributeError)):
        by_torch(program)
    message = refused(program, tmp_path)
    assert all(word in message for word in words)


class _Hostile:
    """Raises wherever it is touched."""

    def __getattribute__(self, name):
        raise ZeroDivisionError(name)

    def __hash__(self):
        raise ZeroDivisionError("hash")

    def __eq__(self, other):
        raise ZeroDivisionError("eq")


@pytest.mark.parametrize(
    "key", ["stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node"]
)
def test_hostile_metadata(key, tmp_path):
    program = export(lambda x: torch.relu(x), torch.ones(2))
    (relu,) = program.graph.find_nodes(op="call_function", target=aten.relu.default)
    for value in (_Hostile(), [_Hostile()], {"a": _Hostile()}, ((_Hostile(), 1),), {print: ("", _Hostile())}):
        relu.meta[key] = value
        try:
            by_us(program)
        except (fastexport.FormatError, ZeroDivisionError):
            pass


def test_numbers_beyond_64_bits(tmp_path):
    program = export(lambda x, n: x + 1, torch.ones(2), 2**70)
    assert "64 bits" in refused(program, tmp_path)


def test_states_that_hold_something_else(tmp_path):
    program = export(lambda x: x + 1, torch.ones(2))
    program.state_dict["extra"] = 5
    refused(program, tmp_path, AssertionError)
    program = export(lambda x: x + 1, torch.ones(2))
    program.constants["extra"] = print
    assert "Unsupported constant type" in refused(program, tmp_path, RuntimeError)


# ---- arguments and files


def test_types():
    program = exported("linear")
    for wrong in (None, 5, torch.nn.Linear(1, 1), program.graph_module, program.graph):
        with pytest.raises(TypeError, match="must be an instance of 'ExportedProgram'.*got"):
            fastexport.save(wrong, io.BytesIO())
    for wrong in (None, 5, [], object()):
        with pytest.raises(TypeError, match="path or a binary file"):
            fastexport.save(program, wrong)
    for options in ({"extra_files": []}, {"extra_files": {1: "a"}}, {"extra_files": {"a": 1}}, {"opset_version": 5},
                    {"opset_version": {"a": "b"}}, {"opset_version": {5: 5}}, {"pickle_protocol": "2"}):  # fmt: skip
        with pytest.raises(TypeError):
            by_us(program, **options)
    with pytest.raises(fastexport.FormatError):
        by_us(program, extra_files={"../a": "x"})


def test_names_of_files(tmp_path, caplog):
    logging.disable(logging.NOTSET)
    program = exported("linear")
    fastexport.save(program, tmp_path / "a.pt2")
    fastexport.save(program, str(tmp_path / "a.pt2"))
    by_us(program)
    assert "Expect archive file" not in caplog.text
    fastexport.save(program, tmp_path / "b.zip")
    assert "Expect archive file to be a file ending in .pt2" in caplog.text
    for name, root in (("a.pt2", "a/"), ("b.zip", "b/")):
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert all(entry.startswith(root) for entry in archive.namelist())
    torch.export.load(tmp_path / "a.pt2")


def test_paths_that_there_can_not_be(tmp_path):
    program = exported("linear")
    for path in ("\ud800", "a\0b", tmp_path, tmp_path / "missing" / "a.pt2"):
        with pytest.raises((OSError, ValueError)):
            fastexport.save(program, path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="of names that are bytes")
def test_paths_that_are_no_text(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff.pt2")
    fastexport.save(exported("linear"), os.fsdecode(path))
    with open(path, "rb") as file:
        assert entries(file.read()) == entries(by_us(exported("linear")))


class _Slow(io.RawIOBase):
    """Takes a few bytes at a time."""

    def __init__(self, most=None):
        self.data = bytearray()
        self.most = most

    def writable(self):
        return True

    def write(self, data):
        if self.most is not None and len(self.data) >= self.most:
            raise OSError(28, "No space left on device")
        taken = bytes(data[:1000])
        self.data += taken
        return len(taken)


def test_files():
    program = exported("linear")
    slow = _Slow()
    fastexport.save(program, slow)
    assert entries(bytes(slow.data)) == entries(by_us(program))
    file = io.BytesIO()
    fastexport.save(program, file)
    assert file.tell() == 0  # as torch leaves it
    with pytest.raises(OSError, match="No space left"):
        fastexport.save(program, _Slow(2000))
    file.close()
    with pytest.raises(ValueError, match="closed"):
        fastexport.save(program, file)


def test_saving_changes_nothing():
    program = exported("buffers_written")
    before = str(program), [dict(node.meta) for node in program.graph.nodes]
    by_us(program)
    after = str(program), [dict(node.meta) for node in program.graph.nodes]
    assert before[0] == after[0]
    for old, new in zip(before[1], after[1], strict=True):
        assert list(old) == list(new) and all(new[key] is value for key, value in old.items())


def test_threads():
    program = exported("choice")
    want, results = entries(by_us(program)), []

    def save():
        results.append(entries(by_us(program)))

    threads = [threading.Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [want] * 6


def test_torch_does_it_where_it_is_another(monkeypatch, tmp_path):
    """On a torch that writes its files in another way, and for what a backend has put into a program."""
    program = exported("linear")
    monkeypatch.setattr(_torch_serializer, "SAVES", False)
    assert entries(by_us(program, extra_files={"a": "b"})) == entries(by_torch(program, extra_files={"a": "b"}))
    fastexport.save(program, tmp_path / "m.pt2")
    with pytest.raises(RuntimeError):
        fastexport.save(exported("sym_rounding"), tmp_path / "m.pt2")
    assert entries((tmp_path / "m.pt2").read_bytes()) == entries(by_us(program))


# ---- edited programs


def native():
    return fastexport.from_export(export(lambda x: torch.relu(x.sin()) + 1, torch.ones(2, 3)))


def assert_saved_as_by_torch(ep, *args):
    data = by_us(ep)
    assert entries(data) == entries(by_torch(ep.to_torch()))
    assert torch.equal(load(data).module()(*args), ep.to_torch().module()(*args))
    return load(data)


def test_programs_that_came_from_torch():
    assert_saved_as_by_torch(native(), torch.ones(2, 3))
    ep = native()
    file = io.BytesIO()
    ep.save(file)
    assert file.getvalue() == by_us(ep)


def test_erased_and_renamed():
    ep = native()
    relu = ep.graph.node("relu")
    relu.replace_all_uses_with(relu.args[0])
    ep.graph.erase_node(relu)
    ep.graph.node("sin").name = "other"
    again = assert_saved_as_by_torch(ep, torch.ones(2, 3))
    assert [node.name for node in again.graph.nodes] == ["args_0", "other", "add", "output"]


@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_new_nodes(kind):
    ep = native()
    relu = ep.graph.node("relu")
    with ep.graph.inserting_after(relu):
        new = ep.graph.call_function(aten.neg.default, (relu,))
    relu.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    new.meta["val"] = fastexport.TensorMeta(fastexport.DType("float32"), (2, 3)) if kind == "ours" else relu.meta["val"]
    again = assert_saved_as_by_torch(ep, torch.ones(2, 3))
    assert "neg" in [node.name.split("_")[0] for node in again.graph.nodes]


def test_new_nodes_without_a_value(tmp_path):
    ep = native()
    relu = ep.graph.node("relu")
    with ep.graph.inserting_after(relu):
        new = ep.graph.call_function(aten.neg.default, (relu,))
    relu.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    message = refused(ep, tmp_path, Exception)
    assert new.name in message


def test_pickle():
    ep = native()
    again = pickle.loads(pickle.dumps(ep))
    assert str(again.graph) == str(ep.graph)
    assert torch.equal(again.module()(torch.ones(2, 3)), ep.module()(torch.ones(2, 3)))


# ---- what C asks of Python

DOCUMENT = '{"graph_module": {"graph": {}, "signature": {"input_specs": [], "output_specs": []}}}'
ONE = '{"as_tensor": {"dtype": 7}}'


def write_new(graph, *, document=DOCUMENT, encode=None, describe=None):
    return fastexport._core.Program.write_new(
        graph, document, encode or (lambda name, meta, is_input: (ONE, "{}")), describe or _torch_serializer.describe
    )


def test_words_of_the_right_form():
    model = json.loads(write_new(native().graph))
    assert [node["name"] for node in model["graph_module"]["graph"]["nodes"]] == ["sin", "relu", "add"]


@pytest.mark.parametrize(
    "texts",
    [None, 5, (), (ONE,), (ONE, "{}", "{}"), (5, "{}"), (ONE, 5), (ONE, None), [ONE, "{}"], ("{", "{}"), ("5", "{}"),
     ('{"as_what": 1}', "{}"), ("\0", "{}"), ("\ud800", "{}"), ('{"as_list": [{"as_list": [{"as_list": []}]}]}', "{}"),
     (None, "{}")],
)  # fmt: skip
def test_texts_of_a_wrong_form(texts):
    with pytest.raises((TypeError, ValueError)):
        write_new(native().graph, encode=lambda name, meta, is_input: texts)


@pytest.mark.parametrize(
    "words",
    [5, (), (5,), (5, 0), (99, 0, "a"), (-1, 0, "a"), (2**40, 0, "a"), (5, 0, 5), (5, 0, "a", 5), (5, 0, "\ud800")],
)
def test_descriptions_of_a_wrong_form(words):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        write_new(native().graph, describe=lambda value: words)


@pytest.mark.parametrize("schema", ["", ">", "T", ">>>", "Tself", "[[[[", "Tself Tself>T", "x*=! ", " ", "T>", "?>?"])
def test_schemas_of_a_wrong_form(schema):
    """Whatever they say, nothing is read that is not there."""
    try:
        data = write_new(native().graph, describe=lambda value: (5, 0, "torch.ops.a.b.c", schema))
    except ValueError as error:
        assert "node " in str(error)
    else:
        assert len(json.loads(data)["graph_module"]["graph"]["nodes"]) == 3


@pytest.mark.parametrize("document", ["", "{", "[]", "5", "null", "{}", '{"graph_module": 5}', '{"graph_module": []}'])
def test_documents_of_a_wrong_form(document):
    try:
        assert isinstance(write_new(native().graph, document=document), bytes)
    except ValueError as error:
        assert str(error)


def test_exceptions_come_through():
    def fail(*args):
        raise ZeroDivisionError

    for options in ({"encode": fail}, {"describe": fail}):
        with pytest.raises(ZeroDivisionError):
            write_new(native().graph, **options)
    for wrong in (None, 5, "graph"):
        with pytest.raises(TypeError):
            write_new(wrong)


@pytest.mark.parametrize("which", ["encode", "describe"])
def test_graphs_that_change_meanwhile(which):
    graph = native().graph

    def encode(name, meta, is_input):
        if which == "encode":
            graph.node("sin").replace_all_uses_with(graph.node("relu"), delete_user_cb=lambda user: user.op == "output")
            graph.call_function(torch.neg, (graph.node("sin"),))
        return ONE, "{}"

    def describe(value):
        if which == "describe":
            graph.call_function(print, (graph.node("sin"), object()))
        return _torch_serializer.describe(value)

    with pytest.raises(fastexport.FastExportError, match="changed"):
        write_new(graph, encode=encode, describe=describe)


def test_a_graph_in_itself():
    graph = native().graph
    graph.subgraphs = {"inner": graph}
    with pytest.raises(ValueError, match="subgraph of itself"):
        write_new(graph)
