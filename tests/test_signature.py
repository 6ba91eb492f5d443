"""Signatures: torch's for programs of every kind, and in step with every edit, so that torch's verifier passes."""

import copy
import io
import subprocess
import sys
import types
from collections.abc import Mapping

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import nn
from torch.export import graph_signature as torch_signature
from torch.export.experimental import _export_forward_backward

import export_kinds
import fastexport
import pt2_torch
from fastexport import (
    ConstantArgument,
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
    TokenArgument,
)
from pt2_files import sample

PROPERTIES = [
    name
    for name, member in vars(torch_signature.ExportGraphSignature).items()
    if isinstance(member, property) and name != "backward_signature"
]
KINDS = [
    "image_training_decomposed",
    "sym_results",
    "sym_input",
    "buffers_written_decomposed",
    "arguments_written_decomposed",
    "parameter_written",
    "effects",
    "constants",
    "script_object",
    "scalars",
    "mixed_results",
    "text_result",
]
every_kind = pytest.mark.parametrize("name", KINDS)


def written(program):
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return file


def program_of(exported, way):
    """A torch program here, as it is or through a file."""
    return fastexport.from_export(exported) if way == "torch" else fastexport.load(written(exported).getvalue())


def assert_same(ours, theirs):
    assert str(ours) == str(theirs)
    for name in PROPERTIES:
        one, other = getattr(ours, name), getattr(theirs, name)
        assert type(one) is type(other), name
        assert (list(one.items()) == list(other.items())) if isinstance(one, Mapping) else (one == other), name
    one, other = ours.backward_signature, theirs.backward_signature
    assert (one and vars(one)) == (other and vars(other))
    for spec, like in zip(
        [*ours.input_specs, *ours.output_specs], [*theirs.input_specs, *theirs.output_specs], strict=True
    ):
        assert (spec.kind.name, spec.kind.value, spec.target) == (like.kind.name, like.kind.value, like.target)
        assert type(spec.arg).__name__ == type(like.arg).__name__
        assert str(spec) == str(like)
        assert repr(spec.arg) == repr(like.arg)


# ---- the same as torch's


def test_kinds_and_properties_are_torchs():
    for ours, theirs in ((InputKind, torch_signature.InputKind), (OutputKind, torch_signature.OutputKind)):
        assert {kind.name: kind.value for kind in ours} == {kind.name: kind.value for kind in theirs}
    assert set(PROPERTIES) <= {name for name, member in vars(ExportGraphSignature).items() if type(member) is property}


@every_kind
def test_signature_of_every_kind(name):
    program = export_kinds.exported(name)
    ours = fastexport.from_export(program).graph_signature
    assert_same(ours, program.graph_signature)
    assert ours == fastexport.from_export(program).graph_signature


def test_signature_of_a_joint_graph():
    module = export_kinds.module_of(
        lambda self, x, y: nn.functional.cross_entropy(self.layer(x), y), layer=nn.Linear(3, 2)
    )
    exported = torch.export.export(module, (torch.ones(2, 3), torch.tensor([0, 1])))
    program = _export_forward_backward(exported)
    ours = fastexport.from_export(program).graph_signature
    assert_same(ours, program.graph_signature)
    assert ours.backward_signature is not None


@every_kind
def test_signature_of_every_file(name):
    if name in export_kinds.NOT_LOADED:
        pytest.skip("torch can't load its file")
    file = written(export_kinds.exported(name))
    assert_same(fastexport.load(file.getvalue()).graph_signature, pt2_torch.load(file).graph_signature)


def both(make):
    """A signature that a function makes with the classes of fastexport, and with those of torch."""
    return make(fastexport), make(types.SimpleNamespace(**vars(torch_signature)))


def one_of_each(m):
    inputs = [
        m.InputSpec(m.InputKind.TOKEN, m.TokenArgument("token"), None),
        m.InputSpec(m.InputKind.PARAMETER, m.TensorArgument("p_w"), "w"),
        m.InputSpec(m.InputKind.BUFFER, m.TensorArgument("b_b"), "b", persistent=True),
        m.InputSpec(m.InputKind.BUFFER, m.TensorArgument("b_n"), "n", persistent=False),
        m.InputSpec(m.InputKind.CONSTANT_TENSOR, m.TensorArgument("c"), "k"),
        m.InputSpec(m.InputKind.CUSTOM_OBJ, m.CustomObjArgument("obj", "cls"), "o"),
        m.InputSpec(m.InputKind.USER_INPUT, m.TensorArgument("x"), None),
        m.InputSpec(m.InputKind.USER_INPUT, m.SymIntArgument("n"), None),
        m.InputSpec(m.InputKind.USER_INPUT, m.SymFloatArgument("f"), None),
        m.InputSpec(m.InputKind.USER_INPUT, m.SymBoolArgument("t"), None),
        m.InputSpec(m.InputKind.USER_INPUT, m.ConstantArgument("flag", True), None),
        m.InputSpec(m.InputKind.USER_INPUT, m.CustomObjArgument("given", "cls"), None),
    ]
    outputs = [
        m.OutputSpec(m.OutputKind.TOKEN, m.TokenArgument("token_1"), None),
        m.OutputSpec(m.OutputKind.BUFFER_MUTATION, m.TensorArgument("add"), "b"),
        m.OutputSpec(m.OutputKind.PARAMETER_MUTATION, m.TensorArgument("sub"), "w"),
        m.OutputSpec(m.OutputKind.USER_INPUT_MUTATION, m.TensorArgument("mul"), "x"),
        m.OutputSpec(m.OutputKind.LOSS_OUTPUT, m.TensorArgument("loss"), None),
        m.OutputSpec(m.OutputKind.GRADIENT_TO_PARAMETER, m.TensorArgument("g"), "w"),
        m.OutputSpec(m.OutputKind.GRADIENT_TO_USER_INPUT, m.TensorArgument("h"), "x"),
        m.OutputSpec(m.OutputKind.USER_OUTPUT, m.SymIntArgument("n"), None),
        m.OutputSpec(m.OutputKind.USER_OUTPUT, m.ConstantArgument("", None), None),
        m.OutputSpec(m.OutputKind.USER_OUTPUT, m.CustomObjArgument("given", "cls"), None),
    ]
    return m.ExportGraphSignature(inputs, outputs)


def test_one_of_each():
    ours, theirs = both(one_of_each)
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", ["x", "token", "token_1", "n", "flag", "obj", "given", "add", "nobody", ""])
def test_replace_all_uses(name):
    ours, theirs = both(one_of_each)
    for signature in (ours, theirs):
        signature.replace_all_uses(name, "other")
    assert_same(ours, theirs)
    for wrong in ((1, "x"), ("x", None)):
        with pytest.raises(TypeError):
            ours.replace_all_uses(*wrong)


def test_tokens_of_a_user():
    def make(m):
        return m.ExportGraphSignature(
            [m.InputSpec(m.InputKind.USER_INPUT, m.TokenArgument("t"), None)],
            [m.OutputSpec(m.OutputKind.USER_OUTPUT, m.TokenArgument("t"), None)],
        )

    for signature in both(make):
        for name in ("user_inputs", "user_outputs"):
            with pytest.raises(RuntimeError):
                getattr(signature, name)


def test_mappings_cannot_be_changed():
    signature, _ = both(one_of_each)
    with pytest.raises(TypeError):
        signature.inputs_to_parameters["p_w"] = "other"


@pytest.mark.parametrize("replace_inputs", [False, True])
def test_replace_hook_of_torch(replace_inputs):
    """Our signature, as the hook of a torch module, says what torch's says."""
    program = export_kinds.exported("buffers_written_decomposed")
    ours, theirs = fastexport.from_export(program).graph_signature, copy.deepcopy(program.graph_signature)
    for signature in (ours, theirs):
        module = copy.deepcopy(program.graph_module)
        with module._set_replace_hook(signature.get_replace_hook(replace_inputs=replace_inputs)):
            results = [result for result in module.graph.output_node().args[0] if isinstance(result, torch.fx.Node)]
            for old in [*results, *module.graph.find_nodes(op="placeholder")]:
                with module.graph.inserting_after(old):
                    new = module.graph.call_function(torch.ops.aten.clone.default, (old,))
                old.replace_all_uses_with(new, delete_user_cb=lambda user, new=new: user is not new)
    assert_same(ours, theirs)
    assert str(ours) != str(program.graph_signature)


# ---- edits


class Everything(nn.Module):
    """Inputs of many kinds, updates, constants, preserved modules and results of several kinds."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.unused = nn.Parameter(torch.tensor([3.0]))
        self.twin = self.weight
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("steps", torch.zeros(()), persistent=False)
        self.table = torch.tensor([0.5, 0.25])

    def forward(self, x, flag, *, y, text="t"):
        self.seen.add_(x.sum(0))
        self.steps.add_(1)
        y.mul_(2)
        left, right = self.inner(x * self.twin)
        return {"sum": left + self.table + y, "rows": x.shape[0], "right": [right, flag]}


class Inner(nn.Module):
    def forward(self, x):
        return x.sin(), x.cos()


_everything = []


def everything():
    """A program of `Everything`, of which nobody may change anything."""
    if not _everything:
        rows = torch.export.Dim("rows", min=2, max=64)
        program = torch.export.export(
            Everything(),
            (torch.ones(3, 2), True),
            {"y": torch.full((2,), 2.0), "text": "t"},
            dynamic_shapes={"x": {0: rows}, "flag": None, "y": None, "text": None},
            preserve_module_call_signature=("inner",),
        )
        _everything.append(program.run_decompositions({}))
    return _everything[0]


def results(program, *, flag=True):
    """What it gives, and what it leaves in its second argument and its buffers."""
    module = program.module(check_guards=False)
    x, y = torch.arange(8.0).reshape(4, 2), torch.tensor([1.0, 3.0])
    values = torch.utils._pytree.tree_leaves(module(x, flag, y=y, text="t"))
    return [*values, y, module.seen.clone(), module.steps.clone()]


@pytest.fixture(params=["torch", "file"])
def ep(request):
    return program_of(everything(), request.param)


def assert_in_step(ep, want=None):
    """torch's verifier passes it, it computes the same, and so does what comes out of a file of it."""
    ep.verify()
    program = ep.to_torch()
    assert_same(ep.graph_signature, program.graph_signature)
    file = io.BytesIO()
    ep.save(file)
    file.seek(0)
    again = fastexport.load(file.getvalue())
    assert str(again.graph_signature) == str(ep.graph_signature)
    assert calls(again) == calls(ep) == calls(program)
    want = want or results(copy.deepcopy(everything()))
    for made in (program, pt2_torch.load(file)):
        got = results(copy.deepcopy(made))
        assert len(got) == len(want)
        assert all(map(pt2_torch.same, got, want))


def calls(program):
    """The names in the module call graph."""
    signatures = [entry.signature for entry in program.module_call_graph if entry.signature is not None]
    return [[arg.name for arg in (*signature.inputs, *signature.outputs)] for signature in signatures]


def test_nothing_done(ep):
    assert_in_step(ep)


def test_every_name_changed(ep):
    old = {node.name: f"n{number}_{node.name}" for number, node in enumerate(ep.graph.nodes) if node.op != "output"}
    before, named = ep.graph_signature, calls(ep)
    for node in ep.graph.nodes:
        if node.op != "output":
            node.name = old[node.name]
    after = ep.graph_signature
    assert after.inputs_to_parameters == {old[name]: target for name, target in before.inputs_to_parameters.items()}
    assert after.user_inputs_to_mutate == {
        old[name]: old[target] for name, target in before.user_inputs_to_mutate.items()
    }
    assert [spec.arg.name for spec in after.input_specs] == [old[spec.arg.name] for spec in before.input_specs]
    assert calls(ep) == [[old[name] if name else name for name in names] for names in named]
    assert all(node.target == node.name for node in ep.graph.find_nodes(op="placeholder"))
    assert_in_step(ep)


def test_names_swapped(ep):
    one, other = (ep.graph.node(name) for name in ("sin", "cos"))
    one.name, other.name, one.name = "between", "sin", "cos"
    assert ["mul_1", "cos", "sin"] in [[names[0], *names[-2:]] for names in calls(ep) if names] or calls(ep)
    assert_in_step(ep)


def behind(node, target="torch.ops.aten.clone.default"):
    """A node behind another, which takes its place for all others."""
    with node.graph.inserting_after(node):
        new = node.graph.call_function(target, (node,))
    new.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    return new


def test_every_result_replaced(ep):
    """By nodes that then use what they replace."""
    (returned,) = ep.graph.output_node().args
    tensors = [node for node in returned if hasattr(node, "meta") and hasattr(node.meta["val"], "shape")]
    new = {node.name: behind(node).name for node in tensors}
    signature = ep.graph_signature
    names = [spec.arg.name for spec in signature.output_specs]
    assert set(new.values()) <= set(names)
    assert not set(new) & set(names)
    assert {*signature.buffers_to_mutate, *signature.user_inputs_to_mutate} <= set(new.values())
    assert_in_step(ep)


def again(node):
    """A node that does the same, in the place of another, which goes."""
    with node.graph.inserting_before(node):
        new = node.graph.call_function(node.target, node.args, node.kwargs)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)
    return new


def test_every_call_replaced(ep):
    named = calls(ep)
    new = {node.name: again(node).name for node in list(ep.graph.nodes) if node.op == "call_function"}
    assert calls(ep) == [[new.get(name, name) for name in names] for names in named]
    assert calls(ep) != named
    assert_in_step(ep)
    twice = {node.name: again(node).name for node in list(ep.graph.nodes) if node.op == "call_function"}
    assert calls(ep) == [[twice.get(new.get(name, name), name) for name in names] for names in named]
    assert_in_step(copy.deepcopy(ep))


def test_names_of_the_file_that_others_bear_now(ep):
    """A node replaced by one of the file, whose name has changed."""
    sin = ep.graph.node("sin")
    sin.name = "sine"
    again(sin).name = "fresh"
    (names,) = [names for names in calls(ep) if names]
    assert "fresh" in names
    assert "sine" not in names
    assert_in_step(ep)


def test_the_class_of_a_result_follows_its_value(ep):
    output = ep.graph.output_node()
    (returned,) = output.args
    position, size = next((i, r) for i, r in enumerate(returned) if getattr(r, "name", "").startswith("sym_size"))
    tensor = ep.graph.node("cos")
    swapped = [tensor if i == position else r for i, r in enumerate(returned)]
    output.args = (tuple(swapped),)
    assert ep.graph_signature.output_specs[position].arg == TensorArgument("cos")
    program = ep.to_torch()
    assert isinstance(program.graph_signature.output_specs[position].arg, torch_signature.TensorArgument)
    output.args = (returned,)
    assert ep.graph_signature.output_specs[position].arg == SymIntArgument(size.name)
    assert_in_step(ep)
    output.args = (tuple(7 if r is size else r for r in returned),)
    assert ep.graph_signature.output_specs[position].arg == ConstantArgument("", 7)
    assert [value for value in results(ep.to_torch()) if type(value) is int] == [7]


def test_a_constant_that_becomes_a_node(ep):
    output = ep.graph.output_node()
    (returned,) = output.args
    position = returned.index(True)
    output.args = (tuple(ep.graph.node("cos") if i == position else r for i, r in enumerate(returned)),)
    assert ep.graph_signature.output_specs[position].arg == TensorArgument("cos")
    ep.verify()
    assert ep.to_torch().graph_signature.user_outputs[-1] == "cos"


def test_an_input_that_is_no_tensor(ep):
    symbol = fastexport.SymInt("Symbol('s5', positive=True, integer=True)", 4)
    assert ep.add_input("size", symbol).name == "size"
    spec = next(spec for spec in ep.graph_signature.input_specs if spec.arg.name == "size")
    assert spec.arg == SymIntArgument("size")


def test_unused_weights_go(ep):
    gone = ep.remove_unused_inputs()
    assert "p_unused" in gone
    assert "unused" not in ep.state_dict
    assert "weight" in ep.state_dict or "twin" in ep.state_dict
    assert_in_step(ep)
    assert "unused" not in ep.to_torch().state_dict
    assert ep.remove_unused_inputs() == []


def test_renamed_arguments(ep):
    ep.rename_input("x", "data")
    ep.rename_input("y", "more")
    ep.rename_input("flag", "yes")
    assert list(ep.graph_signature.user_inputs_to_mutate.values()) == ["more"]
    program = ep.to_torch()
    x, y = torch.arange(8.0).reshape(4, 2), torch.tensor([1.0, 3.0])
    module = copy.deepcopy(program).module(check_guards=False)
    got = torch.utils._pytree.tree_leaves(module(x, True, more=y, text="t"))
    want = results(copy.deepcopy(everything()))
    assert all(map(pt2_torch.same, got, want))
    with pytest.raises(ValueError, match="taken"):
        ep.rename_input("data", "more")
    with pytest.raises(ValueError, match="no input 'x'"):
        ep.rename_input("x", "z")


def test_guards_and_examples_of_a_renamed_argument(ep):
    ep.rename_input("x", "data")
    program = ep.to_torch(**({} if hasattr(ep, "_source") else {"example_inputs": True}))
    assert program.example_inputs is not None
    module = copy.deepcopy(program).module()
    y = torch.tensor([1.0, 3.0])
    assert module(torch.ones(4, 2), True, y=y.clone(), text="t")["rows"] == 4
    with pytest.raises(AssertionError, match="Guard failed"):
        module(torch.ones(65, 2), True, y=y.clone(), text="t")


def test_a_keyword_that_is_there_already(ep):
    before = str(ep), ep.call_spec
    with pytest.raises(ValueError, match="'text' already|taken"):
        ep.rename_input("y", "text")
    assert (str(ep), ep.call_spec) == before


def test_dead_code_and_getitems(ep):
    ep.eliminate_dead_code()
    ep.eliminate_getitems()
    assert_in_step(ep)


def test_repeated_getitems_in_a_call():
    """The kept one stands where the removed one was, in the signature and in the calls of modules."""
    ep = fastexport.load(sample("multi_out"))
    first = ep.graph.node("getitem")
    twin = again(first)
    with ep.graph.inserting_before(ep.graph.output_node()):
        other = ep.graph.call_function(twin.target, twin.args)
    other.meta = dict(twin.meta)
    output = ep.graph.output_node()
    output.replace_input_with(twin, other)
    assert ep.eliminate_getitems().replaced == {other.name: twin.name}
    assert twin.name in ep.graph_signature.user_outputs
    ep.to_torch()


STEPS = st.lists(
    st.tuples(st.sampled_from(["rename", "again", "behind", "reuse", "copy", "unlift", "dead"]), st.integers(0, 999)),
    max_size=12,
)


@hypothesis.given(steps=STEPS, way=st.sampled_from(["torch", "file"]))
@hypothesis.settings(max_examples=25, deadline=None)
def test_any_edits(steps, way):
    ep = program_of(everything(), way)
    for number, (step, which) in enumerate(steps):
        nodes = [node for node in ep.graph.nodes if node.op != "output"]
        called = [node for node in nodes if node.op == "call_function"]
        node, call = nodes[which % len(nodes)], called[which % len(called)]
        if step == "rename":
            node.name = f"renamed_{number}"
        elif step == "again":
            again(call)
        elif step == "behind" and hasattr(call.meta["val"], "shape"):
            behind(call)
        elif step == "reuse":
            (returned,) = ep.graph.output_node().args
            ep.graph.output_node().args = (list(returned) if which % 2 else tuple(returned),)
        elif step == "copy":
            ep = copy.deepcopy(ep)
        elif step == "unlift":
            ep.unlift_constants()
            ep.lift_constants()
        elif step == "dead":
            ep.eliminate_dead_code()
    assert_in_step(ep)


# ---- bad arguments


def test_specs_of_the_wrong_kind():
    for make in (lambda: InputSpec(InputKind.USER_INPUT, "x", None), lambda: OutputSpec(OutputKind.TOKEN, 1, None)):
        with pytest.raises(TypeError):
            make()
    with pytest.raises(ValueError, match="persistent"):
        InputSpec(InputKind.BUFFER, TensorArgument("b"), "b")
    two = [OutputSpec(OutputKind.LOSS_OUTPUT, TensorArgument(name), None) for name in "ab"]
    with pytest.raises(ValueError, match="a, b"):
        _ = ExportGraphSignature([], two).backward_signature
    assert TokenArgument("a") != TensorArgument("a")
    assert CustomObjArgument("a", "b") == CustomObjArgument("a", "b", None)


@pytest.mark.parametrize("flags", [b"", b"\0", b"\1" * 30, "x", None, bytearray(2)])
def test_erase_inputs_all_or_nothing(flags):
    ep = program_of(everything(), "file")
    before = str(ep)
    with pytest.raises((TypeError, ValueError)):
        ep.graph._erase_inputs(flags)
    used = bytes(len(ep.graph_signature.input_specs) - 1) + b"\1"
    first = b"\1" + bytes(len(used) - 1)
    for wrong in (used, first, b"\1" * len(used)):
        node = ep.graph.find_nodes(op="placeholder")[wrong.index(1)]
        if node.users or wrong == b"\1" * len(used):
            with pytest.raises(RuntimeError, match="used"):
                ep.graph._erase_inputs(wrong)
    assert str(ep) == before


def test_called_names():
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    graph.output((y,))
    graph._set_signature([], [], ["x", "relu", "nobody", "x"])
    assert graph._called() == {"x": "x", "relu": "relu"}
    graph._set_signature([], [])
    assert graph._called() == {"x": "x", "relu": "relu"}
    for wrong in ((), ("x",), [1], None):
        with pytest.raises(TypeError):
            graph._set_signature([], [], wrong)
    again(y).name = "new"
    assert copy.deepcopy(graph)._called() == graph._called() == {"x": "x", "relu": "new"}
    graph.output_node().args = ((x,),)
    graph.erase_node(graph.node("new"))
    assert graph._called()["relu"] is None
    assert copy.deepcopy(copy.deepcopy(graph))._called() == graph._called()
    graph._set_signature([], [], [])
    assert graph._called() == fastexport.Graph()._called() == {}


OUT_OF_MEMORY = """
import _testcapi
import fastexport

def make():
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    graph.placeholder("unused")
    graph.output((graph.call_function("torch.ops.aten.relu.default", (x,)),))
    graph._set_signature([(0, name, None, None, None, False, -1) for name in ("x", "unused")], [], ["x"])
    return graph

def state(graph):
    return str(graph), graph._signature(), graph._called()

calls = [
    lambda graph: graph._called(),
    lambda graph: graph._set_signature([], [], ["x", "relu_default", "unused"] * 5),
    lambda graph: graph._erase_inputs(b"\\0\\1"),
    lambda graph: setattr(graph.node("x"), "name", "another"),
]
for call in calls:
    failures = 0
    while True:
        graph = make()
        before, node = state(graph), graph.node("x")
        _testcapi.set_nomemory(failures, failures + 1)
        try:
            call(graph)
        except MemoryError:
            _testcapi.remove_mem_hooks()
            failures += 1
            assert state(graph) == before
            continue
        finally:
            _testcapi.remove_mem_hooks()
        break
    state(graph)
    print(failures)
"""


def test_without_memory_nothing_is_changed():
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 4
