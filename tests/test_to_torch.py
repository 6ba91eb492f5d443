"""Programs read from files become torch's: what torch.export.load makes of the same file."""

import copy
import importlib
import io
import json
import logging
import os
import re
import sys
import zipfile

import pytest
import torch

import fastexport
import pt2_torch
from fastexport import _torch_export
from fastexport.acceleration import _deferred
from pt2_files import ALL, HOSTILE, label, sample
from torch_programs import assert_same_programs, environment, graph_modules

OPAQUE = {"hand_custom_obj"}


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def trusted(path):
    return path.stem in OPAQUE


def reload(ep):
    """What torch.export.load makes of a program once it is saved."""
    file = io.BytesIO()
    ep.save(file)
    file.seek(0)
    return pt2_torch.load(file)


@pytest.mark.parametrize("path", ALL, ids=label)
def test_equals_what_torch_loads(path):
    want = pt2_torch.load(path)
    got = fastexport.load(path).to_torch(example_inputs=True, pickles=trusted(path))
    assert_same_programs(got, want)
    assert (got.example_inputs is None) == (want.example_inputs is None)
    if want.example_inputs is not None:
        outputs = pt2_torch.flat_outputs(got, got.example_inputs)
        expected = pt2_torch.flat_outputs(want, want.example_inputs)
        assert len(outputs) == len(expected)
        assert all(map(pt2_torch.same, outputs, expected))


@pytest.mark.parametrize("path", ALL, ids=label)
def test_meta_that_was_looked_at_is_the_same(path):
    ep = fastexport.load(path)

    def look(graph):
        for node in graph.nodes:
            dict(node.meta)
        for inner in (graph.subgraphs or {}).values():
            look(inner)

    look(ep.graph)
    want = pt2_torch.load(path)
    assert_same_programs(ep.to_torch(pickles=trusted(path)), want, sharing=False)


def tensor_facts(tensor):
    """What a user can see of a fake tensor beyond `torch_programs.value_facts`."""
    storage = tensor.untyped_storage()
    return (
        tensor.is_leaf,
        tensor._version,
        tensor.is_inference(),
        str(torch._C._dispatch_keys(tensor)),
        str(storage.nbytes()),
        storage.device,
        storage.resizable(),
        {name: value for name, value in vars(tensor).items() if name != "fake_mode"},
    )


def tensors(program):
    """The fake tensors of all nodes, those of subgraphs too."""
    for module in graph_modules(program).values():
        for node in module.graph.nodes:
            for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
                if isinstance(value, torch.Tensor):
                    yield value


def without_addresses(value):
    return re.sub("0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize("path", ALL, ids=label)
def test_text_is_torchs(path):
    want = str(pt2_torch.load(path))
    if "auto_functionalized" in path.name:  # torch prints an operator that it doesn't know as a str
        want = want.replace("'torch.ops.fxsample.addto.default'", "torch.ops.fxsample.addto.default")
    assert str(fastexport.load(path)) == want


@pytest.mark.parametrize("path", ALL, ids=label)
def test_fake_tensors_and_symbols_are_those_of_torch(path):
    want = pt2_torch.load(path)
    got = fastexport.load(path).to_torch(pickles=trusted(path))
    pairs = list(zip(tensors(got), tensors(want), strict=True))
    for ours, theirs in pairs:
        assert tensor_facts(ours) == tensor_facts(theirs)
        assert ours.fake_mode is pairs[0][0].fake_mode
    if environment(want) is not None:
        # all but texts of the stacks on which it was made, and a number of an object
        ours, theirs = ({**vars(environment(each)), "_expr_sym_node_id": None} for each in (got, want))
        assert list(ours) == list(theirs)
        for name, value in ours.items():
            assert without_addresses(value) == without_addresses(theirs[name]), name


def test_tensors_of_symbolic_sizes_have_memory_of_their_own():
    program = fastexport.load(sample("dynamic")).to_torch()
    alike = {}
    for tensor in tensors(program):
        if any(isinstance(size, torch.SymInt) for size in tensor.shape):
            alike.setdefault((str(tensor.shape), tensor.dtype), []).append(tensor)
    first, second, *_ = max(alike.values(), key=len)
    assert first.untyped_storage()._cdata != second.untyped_storage()._cdata
    with first.fake_mode:
        assert (first + second).shape == first.shape
        first.add_(1)
    assert (first._version, second._version) == (1, 0)


def test_get_attr_of_a_subgraph_has_the_metadata_of_its_call():
    ep = fastexport.load(sample("cond_"))
    nodes = {node.name: node for node in ep.graph.nodes}
    assert nodes["true_graph_0"].meta == {key: nodes["cond"].meta[key] for key in nodes["true_graph_0"].meta} != {}
    nodes["true_graph_0"].meta["custom"] = {"a": 1}
    assert "custom" not in nodes["cond"].meta
    assert "custom" in copy.deepcopy(ep).graph.node("true_graph_0").meta


def test_program_stays_as_it_was():
    path = sample("dynamic")
    ep = fastexport.load(path)
    before, after = io.BytesIO(), io.BytesIO()
    ep.save(before)
    first, second = ep.to_torch(), ep.to_torch()
    ep.save(after)
    assert before.getvalue() == after.getvalue()
    assert_same_programs(first, second)
    assert environment(first) is not environment(second)


def test_code_is_made_when_it_is_looked_at():
    program = fastexport.load(sample("linear")).to_torch()
    assert _deferred.is_pending(program.graph_module)
    assert "def forward" in program.graph_module.code
    assert not _deferred.is_pending(program.graph_module)


def test_dynamic_shapes_run():
    path = sample("dynamic")
    program = fastexport.load(path).to_torch(example_inputs=True)
    args, kwargs = program.example_inputs
    module, want = program.module(), pt2_torch.load(path).module()
    for rows in (2, 5, 7):
        larger = copy.deepcopy(args)
        larger = torch.utils._pytree.tree_map(
            lambda x, rows=rows: x.repeat(rows, *[1] * (x.dim() - 1))[: rows * 2] if x.dim() else x, larger
        )
        try:
            expected = want(*larger, **kwargs)
        except Exception as error:
            with pytest.raises(type(error)):
                module(*larger, **kwargs)
        else:
            results = zip(*map(torch.utils._pytree.tree_leaves, (module(*larger, **kwargs), expected)), strict=True)
            assert all(pt2_torch.same(a, b) for a, b in results)


def test_module_and_decompositions():
    ep = fastexport.load(sample("conv_bn_train"))
    want = pt2_torch.load(sample("conv_bn_train")).run_decompositions()
    got = ep.run_decompositions()
    assert str(got) == str(got.to_torch()) == str(want)
    assert isinstance(fastexport.load(sample("linear")).module(), torch.fx.GraphModule)


# ---- weights


def test_weights_are_copies_with_their_ties():
    ep = fastexport.load(sample("shared_weights"))
    program = ep.to_torch()
    name, tensor = next(iter(program.state_dict.items()))
    with torch.no_grad():
        tensor.zero_()
    assert any(ep.state_dict[name].tobytes())


def test_weights_without_a_copy():
    ep = fastexport.load(sample("linear"))
    one, two = ep.to_torch(copy=False), ep.to_torch(copy=False)
    assert {k: v.data_ptr() for k, v in one.state_dict.items()} == {k: v.data_ptr() for k, v in two.state_dict.items()}
    assert all(isinstance(value, torch.nn.Parameter) for value in one.state_dict.values())
    assert_same_programs(one, pt2_torch.load(sample("linear")))


def test_assigned_weights_arrive():
    ep = fastexport.load(sample("linear"))
    ep.state_dict["fc.weight"] = torch.full((3, 4), 2.0)
    program = ep.to_torch()
    assert isinstance(program.state_dict["fc.weight"], torch.nn.Parameter)
    assert program.state_dict["fc.weight"].eq(2).all()


def test_example_inputs_only_when_asked():
    ep = fastexport.load(sample("linear"))
    assert ep.to_torch().example_inputs is None
    args, kwargs = ep.to_torch(example_inputs=True).example_inputs
    assert [arg.shape for arg in args] == [arg.shape for arg in pt2_torch.load(sample("linear")).example_inputs[0]]
    assert kwargs == {}


# ---- edited programs


def test_renamed_input():
    ep = fastexport.load(sample("linear"))
    next(node for node in ep.graph.nodes if node.name == "x").name = "data"
    program = ep.to_torch()
    assert program.graph_signature.user_inputs == ("data",)
    node = next(node for node in program.graph.nodes if node.name == "data")
    assert node.target == "data"
    assert program.module()(torch.zeros(2, 4)).shape == (2, 3)


def other_output(ep):
    node = ep.graph.output_node()
    ((result,),) = node.args
    with ep.graph.inserting_before(node):
        new = ep.graph.call_function("torch.ops.aten.relu.default", (result,))
    new.meta["val"] = result.meta["val"]
    node.args = ((new,),)


def with_dtype(ep):
    node = ep.graph.output_node()
    ((result,),) = node.args
    with ep.graph.inserting_before(node):
        new = ep.graph.call_function(
            "torch.ops.aten._to_copy.default", (result,), {"dtype": fastexport.DType("float64")}
        )
    new.meta["val"] = result.meta["val"].replace(dtype="float64")
    node.args = ((new,),)


@pytest.mark.parametrize("edit", [other_output, with_dtype])
def test_edited_program_is_what_torch_loads_when_it_is_saved(edit):
    ep = fastexport.load(sample("linear"))
    edit(ep)
    got, want = ep.to_torch(example_inputs=True), reload(ep)
    assert str(got.graph) == str(want.graph)
    assert repr(got.graph_signature) == repr(want.graph_signature)
    assert repr(got.module_call_graph) == repr(want.module_call_graph)
    (output,) = pt2_torch.flat_outputs(got, got.example_inputs)
    (expected,) = pt2_torch.flat_outputs(want, got.example_inputs)
    assert pt2_torch.same(output, expected)


def test_inputs_and_outputs_added_and_removed():
    ep = fastexport.load(sample("linear"))
    new = ep.add_input("more", fastexport.TensorMeta("float32", (2, 3)))
    ((result,),) = ep.graph.output_node().args
    with ep.graph.inserting_before(ep.graph.output_node()):
        total = ep.graph.call_function("torch.ops.aten.add.Tensor", (result, new))
    total.meta["val"] = result.meta["val"]
    ep.graph.output_node().args = ((total,),)
    program = ep.to_torch(example_inputs=True)
    assert program.example_inputs is None
    (x,), _ = fastexport.load(sample("linear")).to_torch(example_inputs=True).example_inputs
    want = fastexport.load(sample("linear")).module()(x)
    assert torch.equal(program.module()(x, torch.full_like(want, 2.0)), want + 2)


def test_module_call_graph_follows_names():
    ep = fastexport.load(sample("module_signature"))
    want = pt2_torch.load(sample("module_signature")).module_call_graph
    names = {arg.name for entry in want if entry.signature for arg in entry.signature.inputs if arg.name}
    assert names
    for name in names:
        ep.graph.node(name).name = f"my_{name}"
    got = ep.to_torch().module_call_graph
    for entry, old in zip(got, want, strict=True):
        if entry.signature:
            assert [arg.name for arg in entry.signature.inputs] == [f"my_{arg.name}" for arg in old.signature.inputs]


def test_copy_of_a_program_converts_too():
    path = sample("multi_out")
    ep = copy.deepcopy(fastexport.load(path))
    assert_same_programs(ep.to_torch(), pt2_torch.load(path))


def test_erased_getitems_leave_the_values_of_their_producer():
    ep = fastexport.load(sample("multi_out"))
    gone = [node for node in ep.graph.nodes if node.name.startswith("getitem") and not node.users]
    assert gone
    for node in gone:
        ep.graph.erase_node(node)
    program = ep.to_torch()
    want = {node.name: node for node in pt2_torch.load(sample("multi_out")).graph.nodes}
    for node in program.graph.nodes:
        if isinstance(node.meta["val"], tuple) and node.op != "output":
            assert len(node.meta["val"]) == len(want[node.name].meta["val"])


def test_broken_program_is_refused():
    ep = fastexport.load(sample("linear"))
    next(node for node in ep.graph.nodes if node.op == "call_function").meta["val"] = None
    node = ep.graph.output_node()
    node.args = ((),)
    with pytest.raises(fastexport.VerifyError):
        ep.to_torch()


def test_unknown_operator_names_the_node():
    ep = fastexport.load(sample("linear"))
    node = next(node for node in ep.graph.nodes if node.op == "call_function")
    node.target = "torch.ops.nobody.ever.default"
    with pytest.raises(ValueError, match=r"node '\w+': torch .* has no torch.ops.nobody.ever.default"):
        ep.to_torch()


# ---- what a file may not have torch do


def changed(tmp_path, name, change):
    """A sample with another document."""
    target = tmp_path / f"{name}.pt2"
    with zipfile.ZipFile(sample(name)) as source, zipfile.ZipFile(target, "w") as made:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith("models/model.json"):
                document = json.loads(data)
                change(document)
                data = json.dumps(document).encode()
            made.writestr(info, data)
    return target


def test_guard_of_another_form(tmp_path):
    code = "__import__('os').mkdir('RAN_CODE') or True"
    path = changed(tmp_path, "linear", lambda document: document.update(guards_code=[code]))
    with pytest.raises(ValueError, match="torch would run this: .*mkdir"):
        fastexport.load(path).to_torch()


def test_guard_is_handed_over(tmp_path):
    guard = "L['x'].size()[0] <= 100"
    path = changed(tmp_path, "linear", lambda document: document.update(guards_code=[guard]))
    assert fastexport.load(path).to_torch()._guards_code == [guard]


LEAF = {"type": None, "context": None, "children_spec": []}


def enum_spec(fqn):
    context = json.dumps([{"__enum__": True, "fqn": fqn, "name": "A"}])
    return json.dumps([1, {"type": "builtins.dict", "context": context, "children_spec": [LEAF]}])


def test_tree_spec_that_imports(tmp_path, monkeypatch):
    (tmp_path / "made_by_test.py").write_text(
        "import enum, pathlib\npathlib.Path('RAN_CODE').touch()\nclass Colour(enum.Enum):\n    A = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    name = "made_by_test:Colour"

    def change(document):
        document["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = enum_spec(name)

    ep = fastexport.load(changed(tmp_path, "linear", change))
    with pytest.raises(ValueError, match=name):
        ep.to_torch()
    assert not os.path.exists("RAN_CODE")
    try:
        program = ep.to_torch(allow=[name])
        assert os.path.exists("RAN_CODE")
        assert program.call_spec.out_spec.num_leaves == 1
    finally:
        sys.modules.pop("made_by_test", None)


CODE = "__import__('os').mkdir('RAN_CODE')"


def in_function_line(document):
    signature = document["graph_module"]["module_call_graph"][0]["signature"]
    signature["forward_arg_names"] = [f"x):\n    pass\n{CODE}\ndef other(self, x"]


def in_keywords_of_inputs(document):
    signature = document["graph_module"]["module_call_graph"][0]["signature"]
    protocol, spec = json.loads(signature["in_spec"])
    keywords = {"type": "builtins.dict", "context": json.dumps([f"x=({CODE}),**more"]), "children_spec": [LEAF]}
    spec["children_spec"] = [{**spec["children_spec"][0], "children_spec": []}, keywords]
    signature["in_spec"] = json.dumps([protocol, spec])


def in_keyword_of_call(document):
    (call,) = [node for node in document["graph_module"]["graph"]["nodes"] if node["target"].endswith(".cond")]
    call["inputs"][0].update(name=f"pred=({CODE}),z", kind=2)


@pytest.mark.parametrize(
    ("name", "change"),
    [("linear", in_function_line), ("linear", in_keywords_of_inputs), ("cond_", in_keyword_of_call)],
)
@pytest.mark.parametrize("fast", [True, False])
def test_names_that_torch_writes_into_code(tmp_path, monkeypatch, name, change, fast):
    path = changed(tmp_path, name, change)
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(_torch_export, "FAST", fast and _torch_export.FAST)
    with pytest.raises((ValueError, fastexport.FormatError), match="RAN_CODE|in code"):
        fastexport.load(path).to_torch().module()
    assert os.listdir(folder) == []


@pytest.mark.parametrize("value", [fastexport.SymInt(CODE, 2), (fastexport.SymFloat(CODE),)])
def test_expression_that_an_edit_set(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    ep = fastexport.load(sample("linear"))
    next(node for node in ep.graph.nodes if node.op == "call_function").meta["val"] = value
    with pytest.raises(fastexport.VerifyError) as refused:
        ep.to_torch()
    assert any("expression" in fault.message for fault in refused.value.faults)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("attribute", ["name", "target"])
def test_name_that_an_edit_set(tmp_path, monkeypatch, attribute):
    monkeypatch.chdir(tmp_path)
    ep = fastexport.load(sample("linear"))
    setattr(ep.graph.node("x"), attribute, f"x={CODE}")
    with pytest.raises((ValueError, fastexport.VerifyError), match="RAN_CODE"):
        ep.to_torch().module()
    assert os.listdir(tmp_path) == []


def hostile_files():
    cases = json.loads((HOSTILE / "expected.json").read_text())
    return [name for name, case in cases.items() if case["outcome"] != "error" or case.get("also_ok")]


@pytest.mark.parametrize("name", hostile_files())
def test_hostile_file_runs_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        fastexport.load(HOSTILE / f"{name}.pt2", verify=False).to_torch()
    except (fastexport.FastExportError, ValueError, AssertionError, torch._export.verifier.SpecViolationError):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda given: given.reverse(), "missing, or not where it stands"),
        (lambda given: given.append({"name": "w", "arg": {"as_int": 1}, "kind": 2}), "'w' is not in the schema"),
        (lambda given: given.pop(0), "'input' is missing"),
    ],
)
def test_arguments_that_torch_would_take_otherwise_are_told_of(tmp_path, change, words):
    path = changed(tmp_path, "linear", lambda document: change(document["graph_module"]["graph"]["nodes"][0]["inputs"]))
    faults = fastexport.load(path, verify=False).faults
    assert any(words in fault.message and not fault.is_error for fault in faults)
    assert not fastexport.load(sample("linear")).faults


@pytest.mark.parametrize("name", ["E17_weight_pickle_code", "E18_opaque_code", "E16_sample_inputs_code"])
def test_pickles_only_for_who_trusts_the_file(name, tmp_path, monkeypatch):
    path = HOSTILE / f"{name}.pt2"
    if not path.exists():
        pytest.skip("there is no such file")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match="pickle|weights_only|Weights only"):
        fastexport.load(path).to_torch(example_inputs=True)
    assert os.listdir(tmp_path) == []


def test_unregistered_dialect(tmp_path):
    path = changed(tmp_path, "linear", lambda document: document.update(verifiers=["NOBODYS"]))
    with pytest.raises(ValueError, match="NOBODYS"):
        fastexport.load(path).to_torch()


# ---- a torch that is not known


@pytest.mark.parametrize("name", ["linear", "dynamic", "cond_", "buffer_mutation"])
def test_through_the_public_api(monkeypatch, name):
    monkeypatch.setattr(_torch_export, "FAST", False)
    got = fastexport.load(sample(name)).to_torch()
    assert got.example_inputs is None
    assert_same_programs(got, pt2_torch.load(sample(name)))


def test_this_torch_is_known():
    assert _torch_export.FAST == torch.__version__.startswith("2.13")
