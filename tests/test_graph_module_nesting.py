"""GraphModules that hold GraphModules that hold GraphModules: as deep as memory goes, and no deeper than calls do."""

import copy
import operator

import pytest
import torch
from torch import fx

import fastexport
from fastexport import Graph, GraphModule, Operator
from helpers import names

DEPTHS = [1_100]
COND = Operator("torch.ops.higher_order.cond")


def leaf(function=operator.neg, values=None):
    g = Graph()
    g.output(g.call_function(function, (g.placeholder("x"), *map(g.get_attr, values or ()))))
    return GraphModule(values or {}, g)


def around(module, op="call_module", path="s"):
    """A module that calls one, or has it as both branches of a cond."""
    g = Graph()
    x = g.placeholder("x")
    if op == "call_module":
        g.output(g.call_module(path, (x,)))
    else:
        branch = g.get_attr(path)
        g.output(g.call_function(COND, (x, branch, branch, (x,))))
    return GraphModule({path: module}, g)


def chain(depth, op="call_module", path="s", inner=None):
    inner = leaf() if inner is None else inner
    for _ in range(depth):
        inner = around(inner, op, path)
    return inner


@pytest.fixture(params=["call_module", "get_attr"])
def op(request):
    return request.param


@pytest.mark.parametrize("depth", DEPTHS)
def test_diff(depth, op):
    found = fastexport.diff(chain(depth, op), chain(depth, op, inner=leaf(operator.pos)))
    (path,) = found.graphs
    assert path == ".".join("s" * depth) and found.changed[0].kinds == ("target", "name")
    assert not fastexport.diff(chain(depth, op), chain(depth, op))
    assert fastexport.diff(chain(depth, op), chain(depth - 1, op)).removed_graphs == [path]


@pytest.mark.parametrize("depth", DEPTHS)
def test_diff_of_subgraphs(depth):
    def graphs(function):
        g = leaf(function).graph
        for _ in range(depth):
            outer = around(None, "get_attr").graph
            outer.subgraphs = {"s": g}
            g = outer
        return copy.copy(g)

    (path,) = fastexport.diff(graphs(operator.neg), graphs(operator.pos)).graphs
    assert path == ".".join("s" * depth)


def test_diff_of_modules_that_are_held_twice():
    """Each pair is compared once, and not as often as there are ways to it."""
    first, second = leaf(), leaf()
    for _ in range(60):
        pairs = []
        for module in (first, second):
            g = Graph()
            g.output(g.call_module("b", (g.call_module("a", (g.placeholder("x"),)),)))
            pairs.append(GraphModule({"a": module, "b": module}, g))
        first, second = pairs
    assert not fastexport.diff(first, second)


def test_diff_tells_each_place_of_a_difference():
    def twice(module):
        g = Graph()
        g.output(g.call_module("b", (g.call_module("a", (g.placeholder("x"),)),)))
        return GraphModule({"a": module, "b": module}, g)

    found = fastexport.diff(twice(around(leaf())), twice(around(leaf(operator.pos))))
    assert list(found.graphs) == ["a.s", "b.s"]


def test_diff_of_modules_of_torch_and_ours_in_a_circle():
    def circle():
        module = around(fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU())))
        node = next(iter(module.s.graph.find_nodes(op="call_module")))
        node.target = "back"
        module.s.__dict__["back"] = module
        return module

    assert not fastexport.diff(circle(), circle())


@pytest.mark.parametrize("depth", DEPTHS)
def test_text(depth, op):
    text = chain(depth, op).print_readable(print_output=False)
    lines = [line.strip() for line in text.split("\n")]
    assert lines.count("class s(torch.nn.Module):") == depth
    assert text.rstrip().endswith("    " * depth + "        return neg")


def test_text_is_torchs(capsys):
    """Modules of torch below ours, and those below them, called or not."""
    inner = fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    theirs = fx.GraphModule({"s": inner}, around(inner).graph.to_fx())
    theirs.spare = fx.symbolic_trace(torch.nn.Sequential(torch.nn.Tanh()))
    theirs.again = inner
    whole = fx.GraphModule({"s": theirs}, around(theirs).graph.to_fx())
    for options in ({}, {"colored": True}, {"include_stride": True, "include_device": True}, {"expanded_def": True}):
        assert around(theirs).print_readable(False, **options) == whole.print_readable(False, **options)
    ours = around(around(inner))
    ours.s.again = inner
    theirs.__delattr__("spare")
    assert ours.print_readable(False) == whole.print_readable(False)
    ours.s.again = ours
    with pytest.raises(RecursionError, match="the module 'again' is below itself"):
        ours.print_readable(False)


@pytest.mark.parametrize("depth", DEPTHS)
def test_copies(depth, op):
    module = chain(depth, op)
    module.s.training = False
    twin = copy.deepcopy(module)
    count = 0
    for (path, one), (_, other) in zip(module.named_modules(), twin.named_modules(), strict=True):
        assert one is not other and one.graph is not other.graph and other.graph.owning_module is other
        assert one.training is other.training is (path != "s")
        count += 1
    assert count == depth + 1 and fastexport.deepcopy(module).graph == module.graph
    assert copy.copy(module).s is module.s


def test_copies_of_what_is_held_twice_or_holds_itself():
    inner = around(leaf(), path="a.b")
    module = around(around(inner))
    module.other, inner.first = inner, leaf()
    inner.first.back = module
    twin = copy.deepcopy(module)
    assert twin.other is twin.s.s is not inner and twin.other.first.back is twin

    class Mine(GraphModule):
        def __deepcopy__(self, memo):
            return self

    module = around(Mine({}, leaf().graph))
    assert copy.deepcopy(module).s is module.s


@pytest.mark.parametrize("depth", DEPTHS)
def test_modules_and_tensors(depth, op):
    weight, buffer = torch.nn.Parameter(torch.ones(1)), torch.ones(1)
    module = chain(depth, op, inner=leaf(operator.add, {"w": weight, "b": buffer}))
    path = ".".join("s" * depth)
    assert [name for name, _ in module.named_parameters()] == [f"{path}.w"]
    assert list(module.buffers()) == [buffer] and module.state_dict().keys() == {f"{path}.w", f"{path}.b"}
    assert not any(each.training for each in module.eval().modules())
    assert all(each.training for each in module.train().modules())
    assert sum(1 for _ in module.modules()) == depth + 1
    spare = around(module, op)
    spare.unused = chain(depth, op)
    spare.delete_all_unused_submodules()
    assert not hasattr(spare, "unused")


def test_modules_and_tensors_below_modules_of_torch():
    """A path of two parts leads through a module of torch, which does not know what we put there."""
    weight = torch.nn.Parameter(torch.ones(1))
    module = chain(3, path="a.b", inner=leaf(operator.add, {"w": weight}))
    assert isinstance(module.a, torch.nn.Module)
    assert list(module.named_parameters("top.")) == [("top.a.b.a.b.a.b.w", weight)]
    assert not module.eval().a.training and not module.a.b.a.b.training
    assert module.train().a.b.a.training and module.a.b.a.b.a.b.training


def test_train_asks_each_module_of_torch_once():
    told = []

    class Told(torch.nn.Sequential):
        def train(self, mode=True):
            told.append(mode)
            return super().train(mode)

    frozen = Told(Told())
    frozen[0].train = lambda mode=True: told.append("inner")
    told.clear()
    around(frozen).eval()
    assert told == [False, "inner"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_to_fx(depth, op):
    module = chain(depth, op)
    module.s.eval()
    module.s.meta["k"] = 1
    made = module.to_fx()
    assert made.training and not made.s.training and made.s.meta == {"k": 1}
    for _ in range(depth):
        assert type(made).__mro__[1] is fx.GraphModule and len(made.graph.nodes) >= 3
        made = made.s
    assert str(made.graph) == str(module.get_submodule(".".join("s" * depth)).graph)


def test_to_fx_keeps_modules_as_they_are():
    """What is shared stays shared, what holds itself does so, and a user's own modules stay in their mode."""
    dropout = torch.nn.Dropout().eval()
    module = around(around(dropout))
    made = module.to_fx()
    assert made.training and made.s.training and made.s.s is dropout and not dropout.training
    inner = leaf(operator.add, {"w": torch.ones(1)})
    g = Graph()
    g.output((g.call_module("s", (g.placeholder("x"),)), g.get_attr("s.w")))
    made = GraphModule({"s": inner, "s.w": inner.w}, g).to_fx()
    assert torch.equal(made(1)[0], torch.tensor([2.0])) and made(1)[1] is made.s.w is inner.w
    module = around(leaf())
    module.__dict__["s"] = module
    made = module.to_fx()
    assert made.s is made


@pytest.mark.parametrize("depth", DEPTHS)
def test_modules_of_subgraphs(depth):
    g = leaf().graph
    for _ in range(depth):
        outer = around(None, "get_attr").graph
        outer.subgraphs = {"s": g}
        g = outer
    for module in (GraphModule({}, copy.copy(g)), GraphModule.of_program(g, {}, {})):
        inner = module.get_submodule(".".join("s" * depth))
        assert isinstance(inner, GraphModule) and len(inner.graph.nodes) == 3
    again = GraphModule(module, copy.copy(g), "Other")
    assert again.get_submodule(".".join("s" * depth)) is not inner and again._class_name == "Other"
    g.subgraphs["s"].subgraphs["t"] = g
    with pytest.raises(RecursionError, match="a graph is among its own subgraphs"):
        GraphModule({}, g)
    assert GraphModule.of_program(g, {}, {}).s.t.s.t is not None
    del g.subgraphs["s"].subgraphs["t"]


def test_children_are_told_once():
    module = around(leaf())
    module.again = module.s
    assert [name for name, _ in module.named_children()] == ["s"]


def deep_in(module, depth):
    return module.get_submodule(".".join("s" * depth)).graph


def with_twice(depth, op):
    """A chain whose innermost graph computes the same twice, and something for nothing."""
    module = chain(depth, op)
    g = deep_in(module, depth)
    neg, output = g.node("neg"), g.output_node()
    with g.inserting_before(output):
        again = g.call_function(operator.neg, neg.args)
        g.call_function(operator.pos, neg.args)
        output.args = (g.call_function(operator.add, (neg, again)),)
    return module


@pytest.mark.parametrize("op", ["call_module", "get_attr"])
@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("eliminate_dead_code", ["pos"]),
        ("eliminate_common_subexpressions", ["neg_1"]),
        ("eliminate_getitems", []),
        ("fold_constants", []),
        ("remove_noops", []),
        ("sort_topologically", []),
        ("trim_interfaces", []),
    ],
)
def test_passes(name, gone, op):
    depth = 1_100
    module = with_twice(depth, op)
    result = getattr(fastexport, name)(module)
    assert result.removed == [f"{'/'.join('s' * depth)}/{node}" for node in gone]
    assert bool(result) is bool(gone) and not getattr(fastexport, name)(module)


def test_dead_code_in_graphs_in_several_places():
    """What a graph leads to is looked at once, and not from each graph above it, nor by each way."""
    dead = leaf()
    with dead.graph.inserting_before(dead.graph.output_node()):
        dead.graph.call_function(operator.pos, (dead.graph.node("x"),))
    module = dead
    for _ in range(60):
        g = Graph()
        x = g.placeholder("x")
        g.call_module("b", (x,))
        g.output(g.call_module("a", (x,)))
        module = GraphModule({"a": module, "b": module}, g)
    found = fastexport.eliminate_dead_code(module, explain=True)
    assert len(found.removed) == 61 and not dead.graph.find_nodes(op="call_function", target=operator.pos)
    assert len(found.reasons) == 60 * 4 + 4


def test_what_graphs_do_is_asked_anew_at_each_pass():
    module = chain(3)
    inner = deep_in(module, 3)
    for each in list(module.modules())[:-1]:
        with each.graph.inserting_before(each.graph.output_node()):
            each.graph.call_module("s", (each.graph.node("x"),), {}).name = "again"
    with inner.inserting_before(inner.output_node()):
        write = inner.call_method("add_", (inner.node("x"), 1))
    assert not fastexport.eliminate_dead_code(module)
    inner.erase_node(write)
    assert fastexport.eliminate_dead_code(module).removed == ["again", "s/again", "s/s/again"]


def test_more_passes():
    depth = 1_100
    module = with_twice(depth, "call_module")
    log = fastexport.run_passes(module, ["eliminate_getitems", lambda graph: None], check=True)
    assert not any(log)
    node = deep_in(module, depth).node("neg_1")
    node.append(node.all_input_nodes[0])
    with pytest.raises(fastexport.LintError, match="uses 'x' before"):
        fastexport.run_passes(module, ["eliminate_getitems"], check=True)
    assert fastexport.sort_topologically(module)
    found = fastexport.replace_pattern(module, lambda x: -x, lambda x: abs(x), recurse=True)
    assert len(found) == 2 and {"abs_1", "abs_2"} <= set(names(deep_in(module, depth)))
    assert fastexport.fold_constants(with_twice(200, "call_module")).removed == []  # looks at all below each graph
    assert fastexport.inline(module).removed == ["s"]
    assert [node.op for node in module.graph.nodes][:2] == ["placeholder", "call_function"]


def test_reasons_and_names_of_nested_graphs():
    module = with_twice(2, "call_module")
    found = fastexport.eliminate_dead_code(module, explain=True)
    assert found.removed == ["s/s/pos"] and found.reasons["s/s/pos"].startswith("removed")
    assert found.reasons["s/s"].startswith("kept") and found.reasons["s/s/neg"].startswith("kept")
    node = deep_in(module, 2).node("neg_1")
    node.append(node.all_input_nodes[0])
    with pytest.raises(fastexport.PassError, match=r"s\.s"):
        fastexport.run_passes(with_twice(2, "call_module"), [break_inner], check=True)


def break_inner(graph):
    inner = deep_in(graph.owning_module, 2)
    inner.node("neg").append(inner.node("x"))


@pytest.mark.parametrize("depth", DEPTHS)
def test_modules_of_torch(depth, op):
    weight = torch.nn.Parameter(torch.ones(1))
    theirs, other = (chain(depth, op, inner=leaf(operator.add, {"w": weight * factor})).to_fx() for factor in (1, 2))
    g = fastexport.from_fx(theirs)
    assert str(g) == str(theirs.graph)
    path = ".".join("s" * depth)
    assert fastexport.diff(theirs, other).weights == [f"~ {path}.w: other values"]
    assert not fastexport.diff(theirs, theirs)
    ours = GraphModule(theirs, g)
    assert ours.get_submodule(path).graph.owning_module is ours.get_submodule(path)


def test_weights_of_modules_of_torch_that_stand_in_several_places():
    inner, g = torch.nn.Linear(1, 1), fx.Graph()
    g.output(g.call_module("b", (g.call_module("a", (g.placeholder("x"),)),)))
    module, other = fx.GraphModule({"a": inner, "b": inner}, g), fx.GraphModule({"a": inner, "b": torch.nn.ReLU()}, g)
    assert fastexport.diff(module, other).weights == ["- b.weight: float32[1, 1]", "- b.bias: float32[1]"]
    module.back = torch.nn.Sequential(torch.nn.Sequential())
    module.back[0].back = module.back
    with pytest.raises(RecursionError, match="below itself"):
        fastexport.diff(module, other)
