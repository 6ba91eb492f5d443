"""The objects behind fastexport.load at their edges: lifetime, threads, subgraphs, copies, weights that changed."""

import array
import copy
import gc
import gzip
import io
import os
import pickle
import sys
import threading
import weakref

import pytest

import fastexport
from fastexport import _core
from pt2_files import sample


def load(name, **options):
    return fastexport.load(sample(name), **options)


def saved(ep):
    file = io.BytesIO()
    fastexport.save(ep, file)
    return file.getvalue()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def floats(*values):
    return array.array("f", values)


# ---- lifetime


@pytest.mark.parametrize("touch", [repr, str, lambda ep: dict(ep.state_dict), copy.deepcopy, saved])
def test_a_program_goes_with_its_last_reference(touch):
    gc.collect()
    gc.disable()
    try:
        ep = load("shared_weights")
        touch(ep)
        seen = weakref.ref(ep)
        del ep
        assert seen() is None
    finally:
        gc.enable()


def test_parts_outlive_the_program():
    ep = load("cond_")
    graph, state, inner = ep.graph, ep.state_dict, ep.graph.subgraphs["true_graph_0"]
    values = [t.tobytes() for t in state.values()]
    del ep
    gc.collect()
    assert [t.tobytes() for t in state.values()] == values
    assert [str(n.meta["val"]) for n in graph.nodes if n.op == "placeholder"]
    assert [str(n.meta["val"]) for n in inner.nodes if n.op == "placeholder"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts the entries of /proc")
def test_no_descriptor_is_left_open(tmp_path):
    text = tmp_path / "text.pt2"
    text.write_text("no archive")
    before = descriptors()
    for path, limits in ((sample("linear"), {"nodes": 1}), (sample("linear"), {"entries": -1}), (text, None)):
        with pytest.raises((ValueError, OverflowError)):
            fastexport.load(path, limits=limits)
        with open(path, "rb") as file, pytest.raises((ValueError, OverflowError)):
            fastexport.load(file, limits=limits)
    with pytest.raises(fastexport.FormatError):
        fastexport.load(tmp_path)
    assert descriptors() == before
    ep = load("linear")
    assert descriptors() == before + 1
    del ep
    assert descriptors() == before


def test_what_is_no_source_of_an_archive():
    for source in (True, None, "text", 1.5):
        with pytest.raises(TypeError):
            _core.Archive(source)
    for source in (-1, 2**40):
        with pytest.raises(ValueError, match="descriptor"):
            _core.Archive(source)


def test_files_whose_bytes_are_not_those_of_their_descriptor(tmp_path):
    packed = tmp_path / "m.pt2.gz"
    packed.write_bytes(gzip.compress(sample("linear").read_bytes()))
    with gzip.open(packed) as file:
        assert fastexport.load(file).graph == load("linear").graph
    with open(tmp_path / "behind.pt2", "w+b") as file:
        file.write(b"head" + sample("linear").read_bytes())
        file.seek(4)
        assert fastexport.load(file).graph == load("linear").graph


def test_parts_of_a_buffer():
    assert bytes(_core.Storage(b"abc", 3)) == b""
    for offset, length in ((-1, None), (-(2**63), None), (4, None), (0, 4), (0, -1), (2**63 - 1, 2**63 - 1)):
        with pytest.raises(ValueError, match="within"):
            _core.Storage(b"abc", offset, length)


# ---- graphs of a program


def test_subgraphs_that_change_places_are_saved_so():
    ep = load("cond_")
    inner = ep.graph.subgraphs
    ep.graph.subgraphs = {"true_graph_0": inner["false_graph_0"], "false_graph_0": inner["true_graph_0"]}
    assert not ep._program.is_unchanged(ep.graph)
    again = fastexport.load(saved(ep))
    assert str(again.graph.subgraphs["true_graph_0"]) == str(inner["false_graph_0"])
    assert str(again.graph.subgraphs["false_graph_0"]) == str(inner["true_graph_0"])


def test_a_subgraph_of_another_file():
    ep, other = load("cond_"), load("cond_")
    inner = other.graph.subgraphs["true_graph_0"]
    ep.graph.subgraphs = {**ep.graph.subgraphs, "true_graph_0": inner}
    ep.verify()
    again = fastexport.load(saved(ep)).graph.subgraphs["true_graph_0"]
    assert str(again) == str(inner)
    for old, new in zip(inner.nodes, again.nodes, strict=True):
        assert dict(new.meta) == dict(old.meta)


def test_what_counts_as_unchanged():
    ep = load("cond_")
    assert ep._program.is_unchanged(ep.graph)
    inner = ep.graph.subgraphs
    ep.graph.subgraphs = dict(reversed(inner.items()))
    assert ep._program.is_unchanged(ep.graph)
    for other in (None, {}, {**inner, "more": inner["true_graph_0"]}, dict.fromkeys(inner), {"true_graph_0": 1}):
        ep.graph.subgraphs = other
        assert not ep._program.is_unchanged(ep.graph), other
    ep.graph.subgraphs = inner
    assert not ep._program.is_unchanged(inner["true_graph_0"])
    assert not load("cond_")._program.is_unchanged(ep.graph)
    next(iter(inner["true_graph_0"].nodes)).name = "renamed"
    assert not ep._program.is_unchanged(ep.graph)
    with pytest.raises(TypeError):
        ep._program.is_unchanged(None)


@pytest.mark.parametrize("limits", [None, {"graph_depth": 0}])
def test_a_graph_that_is_its_own_subgraph(limits):
    ep = load("cond_", limits=limits)
    ep.verify()
    ep.graph.subgraphs = {"true_graph_0": ep.graph, "false_graph_0": ep.graph}
    assert not ep._program.is_unchanged(ep.graph)
    with pytest.raises(ValueError, match="subgraph of itself"):
        ep.verify()


def test_graphs_are_built_once():
    ep = load("linear")
    with pytest.raises(RuntimeError, match="already"):
        ep._program.build(fastexport.Graph)
    archive = _core.Archive(sample("linear").read_bytes())
    full = fastexport.Graph()
    full.placeholder("x")
    for make in (lambda: full, lambda: None, lambda: ep.graph):
        with pytest.raises((TypeError, ValueError)):
            _core.Program(archive).build(make)
    with pytest.raises(ZeroDivisionError):
        _core.Program(archive).build(lambda: 1 / 0)


def values(graph):
    return {node.name: str(node.meta.get("val")) for node in graph.nodes}


def drop_first_result(ep):
    first, second = ep.graph.node("getitem"), ep.graph.node("getitem_1")
    ep.graph.output_node().replace_input_with(first, second)
    ep.graph.erase_node(first)


def insert_behind_producer(ep):
    producer = ep.graph.node("topk")
    with ep.graph.inserting_after(producer):
        ep.graph.call_function("torch.ops.aten.relu.default", (producer.args[0],))


@pytest.mark.parametrize("edit", [drop_first_result, insert_behind_producer])
def test_values_of_several_results_survive_edits_and_copies(edit):
    ep = load("multi_out")
    edit(ep)
    twins = [copy.deepcopy(ep).graph, copy.deepcopy(copy.deepcopy(ep)).graph, copy.copy(ep.graph)]
    want = values(ep.graph)
    assert want["topk"] == values(load("multi_out").graph)["topk"]
    for twin in twins:
        assert values(twin) == want


def test_copies_of_the_module():
    module = load("cond_").graph_module
    twin = copy.copy(module)
    assert twin.graph is module.graph
    assert twin.true_graph_0.graph is module.true_graph_0.graph
    with pytest.raises(AttributeError, match="true_graph_0"):
        _ = twin.nothing


# ---- weights


def test_verify_looks_at_new_weights():
    ep = load("linear")
    ep.state_dict["fc.bias"] = floats(1, 2, 3)
    assert not [fault for fault in ep.verify(all=True) if fault.is_error]
    ep.state_dict["fc.bias"] = floats(1, 2)
    with pytest.raises(fastexport.VerifyError, match=r"node p_fc_bias: the new value of 'fc.bias' has the shape \[2\]"):
        ep.verify()
    ep.state_dict["fc.bias"] = array.array("d", [1, 2, 3])
    with pytest.raises(fastexport.VerifyError, match="float64"):
        ep.verify()
    del ep.state_dict["fc.bias"]
    with pytest.raises(fastexport.VerifyError, match="deleted"):
        ep.verify()
    ep.graph.node("linear").args = ep.graph.node("linear").args[:2]
    ep.graph.erase_node(ep.graph.node("p_fc_bias"))
    ep.verify()


def test_a_weight_and_what_the_graph_says_of_it_change_together():
    ep = load("buffer_mutation")
    name = ep.graph_signature.buffers[0]
    node = next(spec.arg.name for spec in ep.graph_signature.input_specs if spec.target == name)
    old = ep.state_dict[name]
    meta = ep.graph.node(node).meta["val"]
    double = fastexport.DType("float64")
    ep.state_dict[name] = _core.Tensor(_core.Storage(bytes(8 * old.numel)), double, old.shape)
    ep.graph.node(node).meta["val"] = meta.replace(dtype=double)
    assert not [fault for fault in ep.verify(all=True) if fault.kind == "payload" and fault.is_error]


def test_an_opaque_value_of_another_file():
    source = load("hand_custom_obj")
    value = next(v for v in source.constants.values() if not isinstance(v, fastexport.Tensor))
    for name in ("linear", "hand_custom_obj"):
        ep = load(name)
        ep.constants["other"] = value
        ep.constants["again"] = value
        again = fastexport.load(saved(ep), verify=False)
        for key in ("other", "again"):
            assert again.constants[key].tobytes() == value.tobytes()
            assert again.constants[key].kind == value.kind
        assert list(again.constants) == [*load(name).constants, "other", "again"]


def test_names_that_no_top_folder_can_have(tmp_path):
    for name in ("a\\b.pt2", "a\nb.pt2", "c:d.pt2", "a\x7fb.pt2", "a\u200bb.pt2", "ä b.pt2", ".pt2"):
        path = tmp_path / name
        load("linear").save(path)
        assert fastexport.load(path).graph == load("linear").graph, name
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.pt2")
    load("linear").save(path)
    assert fastexport.load(path)._program.archive.root == "archive"


# ---- threads


def in_threads(work, count=8):
    """What each of some threads gives; they start together."""
    results, barrier = [], threading.Barrier(count)

    def run():
        barrier.wait()
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_all_threads_get_the_same_tensors():
    for name in ("shared_weights", "conv_bn_train"):
        ep = load(name)
        found = in_threads(lambda: tuple(ep.state_dict.values()))  # noqa: B023
        assert len({tuple(map(id, tensors)) for tensors in found}) == 1
        assert len({id(t.storage) for tensors in found for t in tensors}) == len({id(t.storage) for t in found[0]})


def test_copies_of_one_program_in_many_threads():
    ep = load("conv_bn_train")
    want = saved(ep)

    def work():
        twin = copy.deepcopy(ep)
        assert not [fault for fault in twin.verify(all=True) if fault.is_error]
        assert pickle.loads(pickle.dumps(twin)).graph == twin.graph
        return saved(twin) == want

    assert in_threads(work) == [True] * 8


# ---- memory that runs out

_testcapi = pytest.importorskip("_testcapi")


def outcomes(work):
    """Run it with the n-th and all later allocations failing, until nothing fails: each time MemoryError, or done."""
    for n in range(1, 5000):
        try:
            _testcapi.set_nomemory(n)
            result = work()
        except MemoryError:
            continue
        finally:
            _testcapi.remove_mem_hooks()
        return n, result
    raise AssertionError("it never gets through")


WORK = {
    "read": ("linear", lambda data, ep: _core.Program(_core.Archive(data))),
    "verify": ("linear", lambda data, ep: ep._program.verify(ep.graph, True)),
    "write": ("linear", lambda data, ep: ep._program.write(ep.graph)),
    "is_unchanged": ("cond_", lambda data, ep: ep._program.is_unchanged(ep.graph)),
    "payloads": ("linear", lambda data, ep: ep._program.payloads(False)),
    "json": ("linear", lambda data, ep: ep._program.json("model", "graph_module")),
    "ranges": ("dynamic", lambda data, ep: ep._program.ranges()),
    "entries": ("linear", lambda data, ep: ep._program.archive.entries()),
    "signature": ("linear", lambda data, ep: ep.graph._signature()),
    "copy": ("linear", lambda data, ep: ep.graph._copy(True)),
}


@pytest.mark.parametrize("what", WORK)
def test_every_allocation_may_fail(what):
    name, work = WORK[what]
    data = sample(name).read_bytes()
    ep = fastexport.load(data)
    want = str(ep.graph)  # that of the program would read all meta
    n, _ = outcomes(lambda: work(data, ep))
    assert n > 1
    assert str(ep.graph) == want


# ---- the contract of the class, as torch's


class Layered:
    """Made when it is asked for: torch is imported only by tests that need it."""

    def __new__(cls):
        import torch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(3, 2)
                self.register_buffer("seen", torch.zeros(()))
                self.register_buffer("scratch", torch.ones(2), persistent=False)

            def forward(self, x, *, scale=2):
                self.seen.add_(1)
                return torch.nn.functional.silu(self.fc(x)) * scale + self.scratch

        return torch.export.export(Model(), (torch.ones(4, 3),), {"scale": 3})


@pytest.fixture(scope="module")
def exported():
    pytest.importorskip("torch")
    return Layered()


@pytest.fixture(params=["torch", "file"])
def program(request, exported):
    import torch

    if request.param == "torch":
        return fastexport.from_export(exported)
    file = io.BytesIO()
    torch.export.save(exported, file)
    return fastexport.load(file.getvalue())


def properties(cls):
    return {name for base in cls.__mro__ for name, member in vars(base).items() if isinstance(member, property)}


def test_all_that_torchs_class_has(exported):
    theirs = properties(type(exported))
    assert theirs <= properties(fastexport.ExportedProgram)
    methods = {name for name, member in vars(type(exported)).items() if callable(member) and not name.startswith("_")}
    assert methods <= set(dir(fastexport.ExportedProgram))


def test_attributes_are_read_only(program, exported):
    for name in sorted(properties(type(exported)) | {"guards", "new", "_graph"}):
        if name == "example_inputs" and program._program.json("model") is None:
            continue  # torch lets this one be set
        with pytest.raises(RuntimeError, match=name):
            setattr(program, name, None)
        with pytest.raises(RuntimeError, match=name):
            delattr(program, name)


def test_programs_are_not_called(program, exported):
    for one in (program, exported):
        with pytest.raises(RuntimeError, match=r"module\(\)"):
            one(1, x=2)


def test_parameters_and_buffers(program, exported):
    import torch

    for method in ("named_parameters", "named_buffers"):
        ours, theirs = dict(getattr(program, method)()), dict(getattr(exported, method)())
        assert list(ours) == list(theirs)
        for name, value in theirs.items():
            mine = ours[name] if isinstance(ours[name], torch.Tensor) else ours[name].torch()
            assert type(mine) is type(value)
            assert torch.equal(mine, value)
    assert [id(value) for value in program.parameters()] == [id(value) for _, value in program.named_parameters()]
    assert [id(value) for value in program.buffers()] == [id(value) for _, value in program.named_buffers()]
    assert program.tensor_constants.keys() == exported.tensor_constants.keys()


def test_call_spec_and_verifier(program, exported):
    assert str(program.call_spec.in_spec) == str(exported.call_spec.in_spec)
    assert str(program.call_spec.out_spec) == str(exported.call_spec.out_spec)
    assert program.call_spec._fields == exported.call_spec._fields
    assert program.verifier == program.verifiers[0]
    assert program.dialect == exported.dialect
    assert program.graph_module.graph is program.graph
    assert program.validate() is None


def test_text_is_torchs(program, exported):
    assert str(program) == str(exported)


def test_module_runs(program, exported):
    import torch

    x = torch.arange(12.0).reshape(4, 3)
    assert torch.equal(program.module()(x, scale=3), exported.module()(x, scale=3))
    with pytest.raises(NotImplementedError):
        program.module().train()


def test_decompositions_with_a_table(program, exported):
    import torch

    assert program.dialect == "TRAINING"
    x = torch.arange(12.0).reshape(4, 3)
    want = exported.module()(x, scale=3)
    for table in (None, {}, {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}):
        decomposed = program.run_decompositions(table)
        assert decomposed.dialect == "ATEN"
        calls = [str(node.target) for node in decomposed.graph.nodes if node.op == "call_function"]
        assert any("sigmoid" in call for call in calls) == (table is None or bool(table))
        assert list(decomposed.graph_signature.buffers_to_mutate.values()) == ["seen"]
        assert torch.allclose(decomposed.module()(x, scale=3), want)
        decomposed.verify()


def test_updates(exported):
    import torch

    program = fastexport.from_export(exported)
    module = copy.deepcopy(exported.graph_module)
    signature = program.graph_signature
    old = next(node for node in module.graph.nodes if node.target is torch.ops.aten.silu.default)
    with module.graph.inserting_after(old):
        new = module.graph.call_function(torch.ops.aten.relu.default, old.args)
    new.meta = old.meta
    with module._set_replace_hook(signature.get_replace_hook()):
        old.replace_all_uses_with(new)
    module.graph.erase_node(old)
    updated = program._update(module, signature)
    assert isinstance(updated, type(program))
    assert updated.graph != program.graph
    assert updated.graph_signature == signature
    twice = {name: value * 2 for name, value in exported.state_dict.items()}
    with pytest.raises(Exception, match="Parameter"):
        program._update(module, signature, state_dict=twice)
    twice.update((name, torch.nn.Parameter(twice[name])) for name in exported.graph_signature.parameters)
    updated = program._update(module, exported.graph_signature, state_dict=twice)
    x = torch.ones(4, 3)
    weight, bias = twice["fc.weight"], twice["fc.bias"]
    assert torch.allclose(updated.module()(x, scale=3), torch.relu(x @ weight.T + bias) * 3 + 1)


def test_the_constructors_order():
    """What is repeated is gone before the verifiers see the program, and these come last."""
    torch = pytest.importorskip("torch")
    from torch._export import verifier as torch_verifier

    seen = []

    class Watching(torch_verifier.TrainingIRVerifier):
        dialect = "WATCHING"

        def check_additional(self, module):
            seen.append((type(module.graph._codegen).__name__, [node.name for node in module.graph.nodes]))

    class Chunks(torch.nn.Module):
        def forward(self, x):
            one, two = x.chunk(2)
            return one + two

    plain = torch.export.export(Chunks(), (torch.ones(4),))
    program = fastexport.from_export(plain)._update(plain.graph_module, plain.graph_signature, verifiers=[Watching])
    first = next(node for node in program.graph.nodes if "getitem" in node.name)
    with program.graph.inserting_after(first):
        again = program.graph.call_function(first.target, first.args)
    again.meta = dict(first.meta)
    user = next(iter(first.users))
    user.replace_input_with(first, again)
    seen.clear()
    made = program.to_torch()
    assert made.verifiers == [Watching]
    assert seen[0][0] == "CodeGen"
    assert again.name not in seen[0][1]
    assert first.name in seen[0][1]


def test_copies_are_apart(program):
    twin = copy.deepcopy(program)
    assert twin.graph == program.graph
    twin.rename_input("x", "data")
    twin.graph.node("silu").name = "other"
    assert program.graph_signature.user_inputs[0] == "x"
    assert program.graph.node("silu").name == "silu"
    program.verify()
    twin.verify()
