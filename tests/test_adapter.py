"""Passes written for torch.fx: on a Graph as they are, and through apply_fx_pass those that ask for torch's classes.

And the other way round: edits through a native graph, done to torch's.
"""

import copy
import io
import operator
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.optimization import fuse, remove_dropout
from torch.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes
from torch.fx.passes.dialect.common.cse_pass import CSEPass, get_CSE_banned_ops
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.infra.pass_base import PassBase
from torch.fx.passes.infra.pass_base import PassResult as TorchResult
from torch.fx.passes.infra.pass_manager import PassManager
from torch.fx.passes.operator_support import OperatorSupport, create_op_support
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_utils import split_by_tags
from torch.fx.passes.tools_common import legalize_graph, stable_topological_sort

import fastexport
from fastexport import Graph, apply_fx_pass
from fastexport._adapter import native_edit
from fx_graphs import exported_cond
from helpers import names, structure


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 3, 1)
        self.norm = torch.nn.BatchNorm1d(3)
        self.drop = torch.nn.Dropout()
        self.scale = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, x):
        y = self.norm(self.conv(x))
        a = torch.relu(y) + 1
        b = torch.relu(y) + 1
        first, second = torch.split(self.drop(a) * b * self.scale, [1, 2], 1)
        return first + 0, second.mean()


def traced():
    torch.manual_seed(0)
    return torch.fx.symbolic_trace(Model().eval())


X = torch.arange(12.0).reshape(1, 3, 4)


def run(graph):
    """What a graph computes."""
    module = graph.to_fx(graph.owning_module)
    module.graph.lint()
    return module(X)


def assert_close(got, want):
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(got, want, strict=True))


# ---- passes as people write them, unchanged


def replace_relu(gm):
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in (torch.relu, torch.nn.functional.relu):
            with gm.graph.inserting_after(node):
                new = gm.graph.call_function(torch.nn.functional.relu6, node.args, node.kwargs)
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)
    return gm


def drop_add_zero(gm):
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is operator.add and node.args[1] == 0:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)


def merge_equal_calls(gm):
    seen = {}
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        key = (node.target, node.args, tuple(node.kwargs.items()))
        if key in seen:
            node.replace_all_uses_with(seen[key])
            gm.graph.erase_node(node)
        else:
            seen[key] = node


def tag_users(gm):
    for number, node in enumerate(gm.graph.nodes):
        node.meta["order"] = number
        node.meta["fed_by"] = [operand.name for operand in node.all_input_nodes]


def log_calls(gm):
    for node in gm.graph.find_nodes(op="call_module"):
        with gm.graph.inserting_before(node.next):
            gm.graph.call_method("size", (node,))


def skip_dropout(gm):
    for node in gm.graph.nodes:
        if node.op == "call_module" and node.target == "drop":
            node.users  # noqa: B018
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)


def move_up(gm):
    """Puts each call right after the last of its operands."""
    for node in list(gm.graph.nodes):
        if node.op.startswith("call") and node.all_input_nodes:
            max(node.all_input_nodes).append(node)


def add_input(gm):
    first = next(iter(gm.graph.nodes))
    with gm.graph.inserting_after(first):
        new = gm.graph.placeholder("unused", default_value=None)
    new.type = torch.Tensor


PASSES = [replace_relu, drop_add_zero, merge_equal_calls, tag_users, log_calls, skip_dropout, move_up, add_input]


@pytest.mark.parametrize("torch_pass", PASSES, ids=lambda function: function.__name__)
@pytest.mark.parametrize("way", ["unchanged", "adapter", "in place"])
def test_a_pass_does_the_same_everywhere(torch_pass, way):
    want = traced()
    torch_pass(want)
    module = traced()
    graph = fastexport.from_fx(module)
    kept = {node.name: node for node in graph.nodes}
    if way == "unchanged":
        torch_pass(SimpleNamespace(graph=graph))
    elif way == "adapter":
        result = apply_fx_pass(graph, torch_pass)
        assert result.modified and result.name == torch_pass.__name__
        assert result.removed == [name for name, node in kept.items() if node._erased]
        assert result.added == [name for name in names(graph) if name not in kept]
    else:
        nodes = {node.name: node for node in module.graph.nodes}
        with native_edit(module) as graph:
            torch_pass(SimpleNamespace(graph=graph))
        assert all(node is nodes[node.name] for node in module.graph.nodes if node.name in nodes)
        module.graph.lint()
        kept = {}
        graph = module.graph
    assert structure(graph) == structure(want.graph)
    assert all(node is kept[node.name] for node in graph.nodes if node.name in kept)
    if way == "in place":
        module.recompile()
        assert_close(module(X), want(X))
    else:
        assert_close(run(graph), want(X))


# ---- torch's own passes, unchanged


def test_passes_of_torch_that_ask_for_no_class():
    module = traced()
    graph = fastexport.from_fx(module)
    modules = dict(module.named_modules())
    kinds = OperatorSupport({"torch.relu": None, "torch.nn.modules.conv.Conv1d": None})
    supported = [node.name for node in graph.nodes if kinds.is_node_supported(modules, node)]
    assert supported == [node.name for node in module.graph.nodes if kinds.is_node_supported(modules, node)]
    assert {"conv", "relu", "relu_1"} <= set(supported)

    calls = create_op_support(lambda modules, node: node.op == "call_function")
    holder = SimpleNamespace(graph=graph, named_modules=module.named_modules)
    found, want = (CapabilityBasedPartitioner(gm, calls).propose_partitions() for gm in (holder, module))
    assert [sorted(names(part.nodes)) for part in found] == [sorted(names(part.nodes)) for part in want]

    graph.node("split").type = tuple[int, str, float]
    annotate_getitem_nodes(graph)
    assert [graph.node(name).type for name in ("getitem", "getitem_1")] == [int, str]


class ToTanh(PassBase):
    def call(self, graph_module):
        found = graph_module.graph.find_nodes(op="call_function", target=torch.relu)
        for node in found:
            node.target = torch.tanh
        return TorchResult(graph_module, bool(found))


def test_pass_managers_of_torch():
    graph = fastexport.from_fx(traced())
    result = PassManager([ToTanh()])(SimpleNamespace(graph=graph))
    assert result.modified and graph.node("relu").target is torch.tanh


# ---- torch's own passes, through the adapter


def shape_prop(gm):
    ShapeProp(gm).propagate(X)


@pytest.mark.parametrize(
    "torch_pass",
    [
        shape_prop,
        CSEPass(banned_ops=get_CSE_banned_ops()),
        legalize_graph,
        stable_topological_sort,
        remove_dropout,
        fuse,
        lambda gm: torch.fx.Transformer(gm).transform(),
        lambda gm: torch.fx.replace_pattern(gm, lambda x: torch.relu(x) + 1, lambda x: torch.tanh(x)),
        ToTanh(),
        PassManager([ToTanh()]),
        lambda gm: gm.delete_all_unused_submodules(),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_passes_of_torch(torch_pass):
    assert isinstance(traced(), torch.fx.GraphModule)
    want = traced()
    outcome = torch_pass(want)
    outcome = getattr(outcome, "graph_module", outcome)
    want = outcome if isinstance(outcome, torch.fx.GraphModule) else want
    graph = fastexport.from_fx(traced())
    apply_fx_pass(graph, torch_pass)
    assert [n[:6] for n in structure(graph)] == [n[:6] for n in structure(want.graph)]
    assert [n[8].keys() for n in structure(graph)] == [n[8].keys() for n in structure(want.graph)]
    want.recompile()
    assert_close(run(graph), want(X))


def test_nodes_that_were_left_alone_stay():
    graph = fastexport.from_fx(traced())
    before = list(graph.nodes)
    assert not apply_fx_pass(graph, lambda gm: None)
    assert list(graph.nodes) == before
    result = apply_fx_pass(graph, shape_prop, name="shapes")
    assert result and result.name == "shapes" and not result.added and not result.removed
    assert list(graph.nodes) == before
    assert graph.node("conv").meta["tensor_meta"].shape == (1, 3, 4)
    apply_fx_pass(graph, legalize_graph)  # it makes all nodes anew, in another order
    assert list(graph.nodes) != before and set(graph.nodes) == set(before)


def test_a_pass_that_takes_a_graph():
    graph = fastexport.from_fx(traced())
    with graph.inserting_before(graph.output_node()):
        graph.call_function(torch.neg, (graph.node("relu"),))
    seen = []

    def run_pass(inner):
        seen.append(type(inner))
        inner.eliminate_dead_code()

    assert apply_fx_pass(graph, run_pass, takes="graph").removed == ["neg"]
    bare = Graph()
    bare.output(bare.placeholder("x"))
    assert apply_fx_pass(bare, lambda inner: inner.lint(), takes="graph").modified is False
    assert seen == [torch.fx.Graph]


def test_submodules_that_a_pass_makes():
    gm = traced()
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.tag = "first" if node.name in ("conv", "norm") else "second"
    graph = fastexport.from_fx(gm)

    def split(module):
        for node in module.graph.nodes:
            if node.op not in ("placeholder", "output"):
                node.tag = "first" if node.name in ("conv", "norm") else "second"
        return split_by_tags(module, ["first", "second"])

    want = traced()(X)
    assert apply_fx_pass(graph, split).modified
    assert sorted(graph.subgraphs) == ["first", "second"]
    assert_close(run(graph), want)


def test_subgraphs():
    program, *_ = exported_cond()
    graph = fastexport.from_fx(program.graph_module)
    sub = graph.subgraphs["true_graph_0"]

    def negate(gm):
        inner = gm.true_graph_0.graph
        node = next(node for node in inner.nodes if node.op == "call_function")
        with inner.inserting_after(node):
            new = inner.call_function(torch.ops.aten.neg.default, (node,))
        node.replace_all_uses_with(new, lambda user: user is not new)

    result = apply_fx_pass(graph, negate)
    assert result.modified and result.added == ["true_graph_0/neg_default"]
    assert graph.subgraphs["true_graph_0"] is sub and "neg_default" in names(sub)


def test_errors():
    graph = fastexport.from_fx(traced())
    before = structure(graph)

    def fails(gm):
        replace_relu(gm)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        apply_fx_pass(graph, fails)
    assert structure(graph) == before
    with pytest.raises(TypeError, match="fastexport Graph"):
        apply_fx_pass(traced(), fails)
    with pytest.raises(ValueError, match="'module' or 'graph'"):
        apply_fx_pass(graph, fails, takes="program")


# ---- programs


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.relu(self.fc(x))


def to_sigmoid(gm):
    assert isinstance(gm, torch.fx.GraphModule)
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
        with gm.graph.inserting_after(node):
            new = gm.graph.call_function(torch.ops.aten.sigmoid.default, node.args)
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)


def test_programs_follow():
    theirs = torch.export.export(Linear(), (torch.ones(2, 3),))
    file = io.BytesIO()
    torch.export.save(theirs, file)
    x = torch.randn(2, 3)
    want = torch.sigmoid(theirs.state_dict["fc.weight"] @ x.T + theirs.state_dict["fc.bias"][:, None]).T
    for program in (fastexport.from_export(theirs), fastexport.load(file.getvalue())):
        assert apply_fx_pass(program, to_sigmoid).added == ["sigmoid_default"]
        assert program.graph_signature.user_outputs == ("sigmoid_default",)
        assert program.verify() == []
        assert program.graph.node("sigmoid_default").target == "torch.ops.aten.sigmoid.default" or (
            program.graph.node("sigmoid_default").target is torch.ops.aten.sigmoid.default
        )
        assert torch.allclose(program.to_torch().module()(x), want, atol=1e-6)


# ---- native edits of torch's graphs


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["new", "erase", "args", "replace", "move", "name", "meta", "type", "target"]),
        st.integers(0, 50),
        st.integers(0, 50),
    ),
    max_size=20,
)


def do(graph, steps):
    """Edits by their numbers, which mean the same on a graph of torch and of ours; the order stays right."""
    for kind, first, second in steps:
        nodes = list(graph.nodes)
        calls = [node for node in nodes if node.op == "call_function"]
        if not calls:
            return
        node = calls[first % len(calls)]
        before = [other for other in nodes if other < node]
        other = before[second % len(before)]
        if kind == "new":
            with graph.inserting_before(node):
                graph.call_function(operator.sub, (other, [second, {"k": other}]), {"slice": slice(other, None)})
        elif kind == "erase" and not node.users:
            graph.erase_node(node)
        elif kind == "args":
            node.args = (other, second)
        elif kind == "replace":
            node.replace_all_uses_with(other)
        elif kind == "move":
            last = max(node.all_input_nodes, default=before[0])
            if last.op != "output":
                last.append(node)
        elif kind == "name":
            taken = {other.name for other in nodes}
            if f"name_{second}" not in taken:
                node.name = f"name_{second}"
        elif kind == "meta":
            node.meta["val"] = second
        elif kind == "type":
            node.type = int if second % 2 else None
        elif kind == "target":
            node.target = operator.mul if second % 2 else operator.and_


def small(kind):
    graph = kind()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    for place in range(6):
        values.append(graph.call_function(operator.add, (values[-1], values[place // 2])))
    graph.output((values[-1], values[3]))
    return graph


@given(STEPS)
@settings(max_examples=80)
def test_edits_through_a_native_graph_are_edits_of_the_graph(steps):
    graph, want = small(torch.fx.Graph), small(torch.fx.Graph)
    nodes = list(graph.nodes)
    with native_edit(graph) as native:
        do(native, steps)
        left = structure(native)
    do(want, steps)
    assert structure(graph) == left
    assert [n[:6] for n in structure(graph)] == [n[:6] for n in structure(want)]
    graph.lint()
    for node in nodes:
        assert node._erased == (node not in set(graph.nodes))


def test_an_edit_that_fails_changes_nothing():
    module = traced()
    before, code = structure(module.graph), module.code

    def wrong(graph):
        graph.node("relu").target = "torch.ops.aten.no_such_operator.default"

    with pytest.raises(KeyError, match="mine"), native_edit(module) as graph:
        replace_relu(SimpleNamespace(graph=graph))
        raise KeyError("mine")
    with pytest.raises(ValueError, match="no subgraph|no module"), native_edit(module.graph) as graph:
        module.graph.owning_module = None
        graph.subgraphs = {"new": Graph()}
    assert structure(module.graph) == before and module.code == code
    with pytest.raises(TypeError), native_edit(3):
        pass


def test_a_subgraph_that_an_edit_adds_and_one_that_it_changes():
    program, *_ = exported_cond()
    module = program.graph_module
    spare = Graph()
    spare.output(spare.placeholder("x"))
    with native_edit(module) as graph:
        graph.subgraphs["spare"] = spare
        inner = graph.subgraphs["false_graph_0"]
        node = next(node for node in inner.nodes if node.op == "call_function")
        node.target = torch.ops.aten.abs.default
    assert names(module.spare.graph) == ["x", "output"]
    assert "abs" in module.false_graph_0.code


def test_a_torch_program():
    theirs = torch.export.export(Linear(), (torch.ones(2, 3),))
    file = io.BytesIO()
    with native_edit(theirs) as program:
        assert isinstance(program, fastexport.ExportedProgram)
        to_sigmoid_native(program.graph)
    assert theirs.graph_signature.user_outputs == ("sigmoid_default",)
    theirs.validate()
    torch.export.save(theirs, file)
    again = torch.export.load(io.BytesIO(file.getvalue()))
    x = torch.randn(2, 3)
    assert torch.equal(again.module()(x), theirs.module()(x))


def to_sigmoid_native(graph):
    node = graph.node("relu")
    with graph.inserting_before(node):
        new = graph.call_function("torch.ops.aten.sigmoid.default", node.args)
    new.meta["val"] = fastexport.TensorMeta("float32", (2, 3))
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def test_meta_that_is_shared_stays_shared():
    module = traced()
    node = next(node for node in module.graph.nodes if node.name == "relu")
    node.meta["mine"] = kept = [1]
    with native_edit(module) as graph:
        graph.node("relu").meta["other"] = 2
    assert node.meta["mine"] is kept and node.meta["other"] == 2
    copied = copy.deepcopy(module)
    with native_edit(copied) as graph:
        del graph.node("relu").meta["mine"]
    assert "mine" not in next(node for node in copied.graph.nodes if node.name == "relu").meta


def test_graphs_of_our_own_modules():
    module = fastexport.GraphModule(traced(), fastexport.from_fx(traced()))
    graph, x = module.graph, X
    want = traced()
    replace_relu(want)
    want.recompile()

    def with_scale(gm):
        replace_relu(gm)
        gm.register_buffer("damping", torch.tensor([0.5]))
        out = gm.graph.output_node()
        first, second = out.args[0]
        with gm.graph.inserting_before(out):
            half = gm.graph.call_function(torch.mul, (first, gm.graph.get_attr("damping")))
        out.args = ((half, second),)

    assert apply_fx_pass(graph, with_scale).added == ["relu6", "relu6_1", "damping", "mul_2"]
    assert graph.owning_module is module
    module.recompile()
    first, second = want(x)
    assert_close(module(x), (first * 0.5, second))


def test_sources_that_a_recording_noted_are_left_alone():
    graph = fastexport.from_fx(traced())
    with graph.recording("mine"):
        replace_relu(SimpleNamespace(graph=graph))
    before = graph.node("relu6").meta["from_node"]
    assert type(before[0]) is fastexport.NodeSource
    assert not apply_fx_pass(graph, lambda gm: None)
    assert apply_fx_pass(graph, tag_users)
    assert graph.node("relu6").meta["from_node"] is before and graph.node("relu6").meta["fed_by"] == ["norm"]


class Pytree(torch.nn.Module):
    def forward(self, pair):
        return {"sum": pair[0] + pair[1]}


@pytest.mark.parametrize("way", ["adapter", "in place"])
def test_how_arguments_are_taken_follows(way):
    """A pass that adds an input to a graph of trees makes it one of plain inputs."""
    module = torch.export.export(Pytree(), ((torch.ones(2), torch.ones(2)),)).module()

    def flatten(gm):
        gm.graph.set_codegen(torch.fx.CodeGen())
        out = gm.graph.output_node()
        out.args = (out.args[0][0],)

    if way == "adapter":
        graph = fastexport.from_fx(module)
        assert apply_fx_pass(graph, flatten).modified
        made = graph.to_fx(module)
    else:
        with native_edit(module) as graph:
            graph.extras = {name: value for name, value in graph.extras.items() if name != "_codegen"}
            out = graph.output_node()
            out.args = (out.args[0][0],)
        made = module
    assert "tree_flatten" not in made.code and "def forward(self, pair_0, pair_1)" in made.code


def test_a_subgraph_in_the_place_of_another():
    program, *_ = exported_cond()
    module = program.graph_module
    other = Graph()
    other.output(other.placeholder("y"))
    with native_edit(module) as graph:
        graph.subgraphs = {**graph.subgraphs, "true_graph_0": other}
    assert names(module.true_graph_0.graph) == ["y", "output"]


def test_nodes_that_stand_before_what_they_use_go_too():
    """Among the nodes that a pass takes out of a graph that was not in order, users may stand first."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(operator.neg, (x,))
    b = graph.call_function(operator.neg, (a,))
    a.prepend(b)
    graph.output(x)
    results = fastexport.run_passes(graph, ["sort_topologically", "eliminate_dead_code"])
    assert sorted(results[-1].removed) == ["neg", "neg_1"]
    assert names(graph) == ["x", "output"] and not x.users.keys() - {graph.output_node()}
    graph.lint()


def test_a_new_subgraph_takes_no_hooks_of_the_module_around_it():
    module = traced()
    module.meta["mine"] = 1
    module.register_forward_hook(lambda *_: None)
    spare = Graph(owning_module=module)
    spare.output(spare.placeholder("x"))
    with native_edit(module) as graph:
        graph.subgraphs = {"spare": spare}
    assert isinstance(module.spare, torch.fx.GraphModule)
    assert not module.spare._forward_hooks and module.spare.meta == {}
    assert module._forward_hooks and module.meta["mine"] == 1


def noting(module):
    """Hooks of a torch module, and what they were told."""
    told = []
    module._register_create_node_hook(lambda node: told.append(("create", node.name, str(node.args))))
    module._register_erase_node_hook(lambda node: told.append(("erase", node.name, str(node.args))))
    module._register_replace_node_hook(
        lambda old, new, user: told.append(("replace", old.name, new, user.name, str(user.args)))
    )
    return told


def to_relu6(graph):
    """relu -> relu6, by calls that torch has, too; and what nothing uses goes, with what it alone used."""
    call = graph.call_function
    for node in list(graph.nodes):
        if node.target is torch.relu:
            with graph.inserting_after(node):
                six = call(torch.nn.functional.relu6, node.args)
            with graph.inserting_after(six):
                new = call(torch.neg, (six,))
            node.replace_all_uses_with(new)
            graph.erase_node(node)
    for node in reversed(list(graph.nodes)):
        if node.target in (torch.abs, torch.exp):
            graph.erase_node(node)


def with_relu():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    graph.call_function(torch.abs, (graph.call_function(torch.exp, (x,)),))
    z = graph.call_function(torch.add, (y, y))
    w = graph.call_function(torch.relu, (graph.call_function(torch.mul, (z, y)),))
    graph.output((w, z))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_hooks_hear_of_edits_as_of_torchs_own_calls():
    ours, theirs = with_relu(), with_relu()
    heard, expected = noting(ours), noting(theirs)
    to_relu6(theirs.graph)
    with native_edit(ours) as native:
        to_relu6(native)
    assert str(ours.graph) == str(theirs.graph)
    assert len(expected) == 11 and sorted(heard) == sorted(expected)
    by_kind = [[note for note in notes if note[0] == "replace"] for notes in (heard, expected)]
    assert by_kind[0] == by_kind[1]


def test_hooks_hear_nothing_of_what_is_no_replacement():
    module = with_relu()
    heard = noting(module)
    with native_edit(module) as native:
        native.node("mul").args = (native.node("x"), native.node("add"))
        with native.inserting_after(native.node("x")):
            made = native.call_function(torch.neg, (native.node("x"),))
        native.node("relu").replace_all_uses_with(made, delete_user_cb=lambda user: False)
    assert heard == [("create", "neg", "(x,)")]


def test_hooks_hear_of_what_came_after_what_came_first():
    module = with_relu()
    heard = noting(module)
    with native_edit(module) as native:
        for name in ("cos", "sin"):
            old = list(native.nodes)[1] if name == "cos" else native.node("cos")
            with native.inserting_before(old):
                new = native.call_function(getattr(torch, name), old.args)
            old.replace_all_uses_with(new)
            native.erase_node(old)
    assert [note for note in heard if note[0] == "replace"] == [
        ("replace", "relu", "sin", "add", "(relu, relu)"),
        ("replace", "relu", "sin", "mul", "(add, relu)"),
    ]
    assert [note[:2] for note in heard if note[0] != "replace"] == [("create", "sin"), ("erase", "relu")]


def test_hooks_hear_of_our_passes():
    module = with_relu()
    heard = noting(module)
    fastexport.outline(module, [module.graph.find_nodes(op="call_function", target=torch.add)[0]], "sum")
    fastexport.inline(module)
    assert [note[:4] for note in heard if note[0] == "replace"] == [
        ("replace", "add", "sum_1", "mul"),
        ("replace", "add", "sum_1", "output"),
        ("replace", "sum_1", "add_1", "mul"),
        ("replace", "sum_1", "add_1", "output"),
    ]


def test_nodes_in_a_circle_that_go_together():
    module = with_relu()
    with native_edit(module) as native:
        exp, absolute = native.node("exp"), native.node("abs_1")
        exp.args = (absolute,)
    heard = noting(module)
    with native_edit(module) as native:
        native.node("exp").args = ()
        for name in ("abs_1", "exp"):
            native.erase_node(native.node(name))
    assert [note[:2] for note in heard] == [("erase", "abs_1"), ("erase", "exp")]
    module.graph.lint()


def test_a_pass_that_leaves_equal_names():
    """Torch's graphs can have them, ours can't: it is refused before anything is changed."""
    g = fastexport.from_fx(torch.fx.symbolic_trace(lambda x: torch.relu(torch.neg(x)) + 1))
    before, nodes = str(g), list(g.nodes)

    def rename(module):
        for node in module.graph.nodes:
            node.name = "z"

    with pytest.raises(ValueError, match="several nodes of the name 'z'"):
        apply_fx_pass(g, rename)
    assert str(g) == before and list(g.nodes) == nodes
