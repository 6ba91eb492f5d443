"""Graphs split, outlined and inlined: text as torch's where it has the same, results bit for bit as before."""

import copy
import operator
import random

import pytest
import torch
from torch import fx, nn
from torch.fx.passes.split_module import split_module
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

import fastexport
from fastexport import LintError, fuse, inline, outline, split
from fx_graphs import aten


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3, 4))
        self.linear = nn.Linear(4, 5)
        self.register_buffer("shift", torch.rand(5))

    def forward(self, x, y):
        z = self.linear(x + self.scale).clamp(min=0.0, max=1.0)
        w = self.linear(y).clamp(min=0.0, max=1.0) + self.shift
        return z + w, {"z": z}


torch.manual_seed(0)
NET = Net().eval()
INPUTS = torch.rand(3, 4), torch.rand(3, 4)
PARTS = {"add": 0, "linear": 1, "clamp": 2, "linear_1": 0, "clamp_1": 1, "add_1": 1, "add_2": 2}


def same(found, expected):
    return torch.equal(found[0], expected[0]) and torch.equal(found[1]["z"], expected[1]["z"])


def named(graph, names):
    return [node for node in graph.nodes if node.name in names.split()]


def random_module(seed, size):
    """A torch GraphModule of pure calls, and names of its calls."""
    rng = random.Random(seed)
    graph = fx.Graph()
    made = [graph.placeholder("x"), graph.placeholder("y"), graph.get_attr("w")]
    for _ in range(size):
        made.append(
            graph.call_function(rng.choice([torch.add, torch.mul, torch.sub]), tuple(rng.choices(made[-5:], k=2)))
        )
    graph.output([made[-1], made[size // 2]])
    root = nn.Module()
    root.w = nn.Parameter(torch.rand(3))
    return fx.GraphModule(root, graph)


# ---- split


def test_split_as_torch():
    module = fx.symbolic_trace(NET)
    parts = {**PARTS, "add_2": 3}
    found = split(module, lambda node: parts[node.name])
    expected = split_module(copy.deepcopy(module), NET, lambda node: parts[node.name], keep_original_node_name=True)
    assert sorted(dict(found.result.named_children())) == sorted(dict(expected.named_children()))
    for name in found.partitions:
        assert str(getattr(found.result, name).graph) == str(getattr(expected, name).graph)
    assert same(found.result(*INPUTS), NET(*INPUTS))
    assert found.partitions["submod_0"] == ["add", "linear_1"]
    assert found.keys == {f"submod_{i}": i for i in range(4)}
    found.result.graph.lint()
    assert found.result.submod_1.linear is module.linear


def test_split_leaves_the_source_alone():
    module = fastexport.symbolic_trace(NET)
    before = str(module.graph)
    found = split(module, lambda node: PARTS[node.name], partition_affix="a", tuple_return=True)
    assert str(module.graph) == before and not module.graph.subgraphs and module.graph.owning_module is module
    assert sorted(found.result.graph.subgraphs) == ["submod_a_0", "submod_a_1", "submod_a_2"]
    assert same(found.result(*INPUTS), NET(*INPUTS))
    assert same(found.result.to_fx()(*INPUTS), NET(*INPUTS))
    found.result.to_fx().graph.lint()


def test_split_of_random_graphs():
    for seed in range(25):
        module = random_module(seed, 24)
        rng = random.Random(seed)
        cuts = sorted(rng.sample(range(24), 3))
        calls = [node.name for node in module.graph.nodes if node.op == "call_function"]
        part = {name: sum(i >= cut for cut in cuts) for i, name in enumerate(calls)}
        found = split(module, lambda node, part=part: part[node.name] if part[node.name] != 2 else None).result
        x, y = torch.rand(3), torch.rand(3)
        assert all(map(torch.equal, found(x, y), module(x, y)))
        assert len(found.graph.nodes) < len(module.graph.nodes) or seed
        inline(found)
        assert all(map(torch.equal, found(x, y), module(x, y)))
        assert sum(node.op == "call_function" for node in found.graph.nodes) >= 24
        assert not [node for node in found.graph.nodes if node.op == "call_module"]


def test_split_refuses_circles():
    module = fx.symbolic_trace(NET)
    parts = {"add": 0, "linear": 1, "clamp": 0}
    with pytest.raises(
        LintError,
        match=r"'submod_\d', 'submod_\d' .* (linear uses add|clamp uses linear); (linear uses add|clamp uses linear)",
    ):
        split(module, lambda node: parts.get(node.name))
    graph = fastexport.from_fx(module)
    with pytest.raises(ValueError, match="same text"):
        split(graph, lambda node: {"add": 1, "clamp": "1"}.get(node.name))
    with pytest.raises(TypeError):
        split(3, lambda node: 0)


def test_split_nothing():
    graph = fastexport.from_fx(fx.symbolic_trace(NET))
    found = split(graph, lambda node: None)
    assert str(found.result) == str(graph)
    assert found.result is not graph
    assert found.partitions == {}


# ---- fuse, outline


@pytest.mark.parametrize("always_return_tuple", [False, True])
def test_fuse_as_torch(always_return_tuple):
    groups = ["add linear", "linear_1 clamp_1 add_1"]
    ours = fx.symbolic_trace(NET)
    expected = copy.deepcopy(ours)
    partitions = [dict.fromkeys(named(expected.graph, names)) for names in groups]
    fuse_by_partitions(expected, partitions, always_return_tuple=always_return_tuple)
    result = fuse(
        ours, [named(ours.graph, names) for names in groups], always_return_tuple=always_return_tuple, policy="torch"
    )
    assert str(ours.graph) == str(expected.graph)
    for name in ("fused_0", "fused_1"):
        fastexport.sort_topologically(getattr(expected, name))  # torch makes inputs where they are first used
        assert str(getattr(ours, name).graph) == str(getattr(expected, name).graph)
    assert same(ours(*INPUTS), NET(*INPUTS))
    assert result.modified and result.removed == ["add", "linear", "linear_1", "clamp_1", "add_1"]
    assert [name for name in result.added if name.startswith("fused")] == ["fused_0", "fused_1"]
    kept = [node.name for node in ours.graph.nodes]
    assert set(result.added) <= set(kept) and not set(result.removed) & set(kept)


@pytest.mark.parametrize("policy", ["safe", "torch"])
def test_fuse_random_groups_as_torch(policy):
    """Groups that torch takes one by one; what it refuses is refused."""
    fused = 0
    for seed in range(40):
        module = random_module(seed, 14)
        rng = random.Random(seed)
        calls = [node.name for node in module.graph.nodes if node.op == "call_function"]
        at = rng.randrange(10)
        names = " ".join(rng.sample(calls[at : at + 5], 3))
        native, expected = fastexport.from_fx(module), copy.deepcopy(module)
        before = str(native)
        try:
            fuse_by_partitions(expected, [dict.fromkeys(named(expected.graph, names))])
        except AssertionError:
            with pytest.raises(LintError, match="circle"):
                fuse(native, [named(native, names)], policy=policy)
            assert str(native) == before and not native.subgraphs
            continue
        fuse(native, [named(native, names)], policy=policy)
        fuse(module, [named(module.graph, names)], policy=policy)
        assert str(native) == str(module.graph)
        assert policy == "safe" or str(native) == str(expected.graph)
        fastexport.sort_topologically(expected.fused_0)
        assert str(native.subgraphs["fused_0"]) == str(expected.fused_0.graph)
        x, y = torch.rand(3), torch.rand(3)
        assert all(map(torch.equal, native.to_fx(expected)(x, y), expected(x, y)))
        assert not native.lint(all=True)
        fused += 1
    assert 5 < fused < 40


def test_a_write_is_not_moved_over():
    """torch's own fusion computes the second neg too early."""
    for policy, refused in (("safe", True), ("torch", False)):
        graph = fastexport.Graph()
        x = graph.placeholder("x")
        first = graph.call_function(aten.neg.default, (x,))
        graph.call_function(aten.add_.Tensor, (x, 1))
        second = graph.call_function(aten.neg.default, (x,))
        graph.output((first, second))
        if refused:
            with pytest.raises(LintError, match=r"add__tensor must stay before neg_default_1 because of an effect"):
                outline(graph, [first, second], policy=policy)
        else:
            assert outline(graph, [first, second], policy=policy)


def test_readers_of_a_moved_call_stay_before_writes():
    """The call goes behind its last member; a reader of the first that stood before a write must not fall behind it."""
    graph = fastexport.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(aten.neg.default, (y,), name="a")
    reader = graph.call_function(aten.add.Tensor, (a, x), name="reader")
    b = graph.call_function(aten.abs.default, (y,), name="b")
    graph.call_function(aten.add_.Tensor, (x, 1), name="write")
    graph.output((reader, b))
    module = graph.to_fx(nn.Module())
    expected = module(torch.ones(2), torch.ones(2))
    outline(graph, [a, b])
    assert [node.name for node in graph.nodes].index("reader") < [node.name for node in graph.nodes].index("write")
    assert all(map(torch.equal, graph.to_fx(nn.Module())(torch.ones(2), torch.ones(2)), expected))


def test_meta_and_sources():
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = "value of x"
    a = graph.call_function(operator.neg, (x,), name="a")
    a.meta.update(val="value of a", custom={"tag": [1]})
    b = graph.call_function(operator.pos, (a,), name="b")
    graph.output((a, b))
    outline(graph, [a, b])
    call, first, second = graph.node("outlined"), graph.node("getitem"), graph.node("getitem_1")
    assert call.meta["val"] == ("value of a", None)
    assert first.meta["val"] == "value of a" and first.meta["custom"] == {"tag": [1]}
    assert [source.name for source in first.meta["from_node"]] == ["a"]
    assert [source.name for source in second.meta["from_node"]] == ["b"]
    sub = graph.subgraphs["outlined"]
    assert sub.node("x").meta["val"] == "value of x"
    assert sub.node("a").meta["custom"] == {"tag": [1]}
    sub.node("a").meta["custom"]["tag"].append(2)
    assert first.meta["custom"] == {"tag": [1]}


def test_outline_refuses():
    module = fx.symbolic_trace(NET)
    graph = fastexport.from_fx(module)
    add, x = graph.node("add"), graph.node("x")
    before = str(graph)
    for nodes, name in (([], "n"), ([x], "n"), ([graph.output_node()], "n"), ([add], "linear"), ([3], "n")):
        with pytest.raises((ValueError, TypeError)):
            outline(graph, nodes, name)
    with pytest.raises(ValueError, match="two groups"):
        fuse(graph, [[add], [add]])
    with pytest.raises(ValueError):
        outline(graph, [fastexport.from_fx(module).node("add")])
    with pytest.raises(ValueError, match="no node of the graph"):
        outline(module, [fx.symbolic_trace(NET).graph.output_node()])
    assert str(graph) == before
    outline(graph, [add, add])
    assert [node.name for node in graph.subgraphs["outlined"].nodes] == ["x", "scale", "add", "output"]
    assert not fuse(graph, [])


def test_outline_of_a_module_of_ours():
    module = fastexport.symbolic_trace(NET)
    outline(module, named(module.graph, "linear clamp"), "first")
    assert module.first.linear is NET.linear
    assert same(module(*INPUTS), NET(*INPUTS))
    assert inline(module)
    assert same(module(*INPUTS), NET(*INPUTS))


def test_program_signature_follows():
    program = torch.export.export(NET, INPUTS)
    ours = fastexport.from_export(program)
    nodes = [node for node in ours.graph.nodes if node.op == "call_function"]
    outline(ours, nodes, "all")
    returned = [item.name for item in ours.graph.output_node().all_input_nodes]
    assert [spec.arg.name for spec in ours.graph_signature.output_specs] == returned
    assert all(name.startswith("getitem") for name in returned)
    inline(ours)
    expected = [item.name for item in ours.graph.output_node().all_input_nodes]
    assert [spec.arg.name for spec in ours.graph_signature.output_specs] == expected
    assert same(ours.module()(*INPUTS), NET(*INPUTS))


# ---- inline


def test_inline_nested_modules():
    class Leafless(fx.Tracer):
        def is_leaf_module(self, module, path):
            return True

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = fx.symbolic_trace(NET)
            self.relu = nn.ReLU()

        def forward(self, x, y):
            first, rest = self.inner(x, y=y)
            return self.relu(first), rest

    outer = Outer()
    graph = Leafless().trace(_Unpacked(outer))
    module = fx.GraphModule(_Unpacked(outer), graph)
    expected = module(*INPUTS)
    assert inline(module, lambda path: path == "nothing").modified is False
    result = inline(module)
    assert result.modified and result.removed == ["outer_inner"]
    assert {node.target for node in module.graph.nodes if node.op == "call_module"} == {
        "outer.inner.linear",
        "outer.relu",
    }
    assert same(module(*INPUTS), expected)
    module.graph.lint()


class _Unpacked(nn.Module):
    def __init__(self, outer):
        super().__init__()
        self.outer = outer

    def forward(self, x, y):
        out = self.outer.inner(x, y=y)
        return self.outer.relu(out[0]), out[1]


def called(sub, *args, **kwargs):
    graph = fastexport.Graph()
    graph.placeholder("a")
    graph.output(graph.create_node("call_module", "sub", args, kwargs))
    graph.subgraphs = {"sub": sub}
    return graph


def sub_of(result=None, default=()):
    sub = fastexport.Graph()
    x = sub.placeholder("x")
    y = sub.placeholder("y", default_value=default[0]) if default else sub.placeholder("y")
    sub.output(result(sub, x, y) if result else sub.call_function(operator.add, (x, y)))
    return sub


def test_inline_arguments():
    for args, kwargs, want in (((1, 2), {}, (1, 2)), ((1,), {"y": 2}, (1, 2)), ((), {"y": 1, "x": 2}, (2, 1))):
        graph = called(sub_of(), *args, **kwargs)
        assert inline(graph).removed == ["sub"]
        assert graph.node("add").args == want
        assert graph.subgraphs is None
    graph = called(sub_of(default=(7,)), 1)
    inline(graph)
    assert graph.node("add").args == (1, 7)
    for args, kwargs in (((1,), {}), ((1, 2, 3), {}), ((1, 2), {"z": 3}), ((1, 2), {"x": 3})):
        graph = called(sub_of(), *args, **kwargs)
        before = str(graph)
        with pytest.raises(TypeError, match="sub"):
            inline(graph)
        assert str(graph) == before


def test_inline_results():
    graph = called(sub_of(lambda sub, x, y: (x, [y, 3])), 1, 2)
    inline(graph)
    assert graph.output_node().args == ((1, [2, 3]),)
    sub = sub_of(lambda sub, x, y: {"k": x, "n": sub.call_function(operator.neg, (y,))})
    graph = fastexport.Graph()
    a = graph.placeholder("a")
    call = graph.create_node("call_module", "sub", (a, a))
    items = [graph.call_function(operator.getitem, (call, key)) for key in ("k", "n")]
    graph.output((items[0], items[1], call))
    graph.subgraphs = {"sub": sub}
    inline(graph)
    neg = graph.node("neg")
    assert graph.output_node().args == ((a, neg, {"k": a, "n": neg}),)
    assert not graph.lint(all=True)


def test_inline_leaves_what_it_cannot():
    sub = fastexport.Graph()
    sub.output(sub.placeholder("*args"))
    graph = called(sub, 1, 2)
    result = inline(graph)
    assert not result and "any number" in result.reasons["sub"]
    empty = called(fastexport.Graph())
    assert "no output" in inline(empty).reasons["sub"]


def test_inline_refuses_recursion():
    sub = fastexport.Graph()
    x = sub.placeholder("x")
    sub.output(sub.create_node("call_module", "sub", (x,)))
    sub.subgraphs = {"sub": sub}
    graph = called(sub, 1)
    with pytest.raises(ValueError, match="calls itself"):
        inline(graph)


def test_no_match_is_fast_and_changes_nothing():
    module = random_module(0, 50)
    graph = fastexport.from_fx(module)
    version = graph._version
    assert not inline(graph)
    assert graph._version == version


# ---- trimming


def trimmed_module(kind=tuple):
    sub = fx.Graph()
    a, b, c = (sub.placeholder(name) for name in "abc")
    one = sub.call_function(torch.neg, (a,))
    two = sub.call_function(torch.add, (one, b))
    sub.output(kind([one, two, sub.call_function(torch.abs, (c,))]))
    root = nn.Module()
    root.sub = fx.GraphModule(nn.Module(), sub)
    graph = fx.Graph()
    x, y, z = (graph.placeholder(name) for name in "xyz")
    first = graph.call_module("sub", (x, y, z))
    second = graph.call_module("sub", (y,), {"c": x, "b": z})
    items = [graph.call_function(operator.getitem, (call, key)) for call, key in ((first, 0), (second, -1), (first, 2))]
    graph.output(items)
    return fx.GraphModule(root, graph)


@pytest.mark.parametrize("kind", [tuple, list])
def test_trim_interfaces(kind):
    module = trimmed_module(kind)
    native = fastexport.from_fx(module)
    inputs = torch.rand(2), torch.rand(2), torch.rand(2)
    expected = module(*inputs)
    for g in (module, native):
        result = fastexport.trim_interfaces(g)
        assert result.removed == ["sub/add", "sub/b"]
        assert not fastexport.trim_interfaces(g)
    assert str(module.graph) == str(native)
    assert str(module.sub.graph) == str(native.subgraphs["sub"])
    assert all(map(torch.equal, module(*inputs), expected))
    assert [node.kwargs for node in native.find_nodes(op="call_module")] == [{}, {"c": native.node("x")}]


def test_trim_keeps_conventions():
    module = trimmed_module()
    native = fastexport.from_fx(module)
    native.output_node().args = ((native.node("sub"), native.node("sub_1")),)
    before = str(native.subgraphs["sub"])
    assert not fastexport.trim_interfaces(native)
    assert str(native.subgraphs["sub"]) == before
    graph = fastexport.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(y)
    assert not fastexport.trim_interfaces(graph)
    assert fastexport.trim_interfaces(graph, inputs=True).removed == ["x"]
    assert x._erased


class TestBadInput:
    def test_a_graph_that_is_not_in_order(self):
        graph = fastexport.Graph()
        first = graph.call_function(abs, (graph.placeholder("x"),))
        second = graph.call_function(abs, (first,))
        graph.output(second)
        first.args = (second,)
        for job in (lambda: split(graph, lambda node: 0), lambda: outline(graph, [first])):
            with pytest.raises(LintError, match="before it is"):
                job()

    @pytest.mark.parametrize("key", ["a\n'", '"', "\\"])
    def test_names_that_no_code_can_have(self, key):
        with pytest.raises(ValueError, match="can't be the name of a subgraph"):
            split(fx.symbolic_trace(lambda x: x + 1), lambda node: key)

    def test_partitions_that_are_none(self):
        graph = fastexport.from_fx(fx.symbolic_trace(lambda x: x + 1))
        for partitions in (3, [3]):
            with pytest.raises(TypeError, match=r"^(a group of )?partitions is a list of (nodes|groups of nodes), not"):
                fuse(graph, partitions)


# ---- higher-order operators


def branch():
    """-x * y, as a tuple."""
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output((graph.call_function(torch.mul, (graph.call_function(torch.neg, (x,)), y)),))
    return torch.fx.GraphModule({}, graph)


def running(name, *before, path="body"):
    """A module that gives a graph to a higher-order operator, with what goes before the arguments."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    held = graph.get_attr(path)
    args = [held if arg is branch else arg for arg in before]
    call = graph.call_function(getattr(torch.ops.higher_order, name), (*args, x, x))
    graph.output(graph.call_function(operator.getitem, (call, 0)))
    return torch.fx.GraphModule({path: branch()}, graph)


RUNNERS = {"wrap": (branch,), "invoke_subgraph": (branch, "an identifier")}


@pytest.mark.parametrize("path", ["body", "inner.body"])
@pytest.mark.parametrize("kind", ["torch", "ours"])
@pytest.mark.parametrize("name", RUNNERS)
def test_inline_of_operators_that_just_run_a_graph(name, kind, path):
    module = running(name, *RUNNERS[name], path=path)
    expected = module(torch.ones(2)) if name == "wrap" else -torch.ones(2)
    graph = module if kind == "torch" else fastexport.from_fx(module)
    result = inline(graph)
    assert result.removed == [name, path.replace(".", "_")]
    assert result.added == ["neg", "mul"] and result.reasons == {}
    made = graph if kind == "torch" else graph.to_fx(module)
    assert [node.op for node in made.graph.nodes] == ["placeholder", "call_function", "call_function", "output"]
    assert torch.equal(made(torch.ones(2)), expected)
    assert not inline(graph)


def test_inline_of_operators_of_a_file():
    sub = fastexport.Graph()
    x = sub.placeholder("x")
    sub.output((sub.call_function("torch.ops.aten.neg.default", (x,)),))
    graph = fastexport.Graph()
    x, held = graph.placeholder("x"), graph.get_attr("body")
    calls = [graph.call_function("torch.ops.higher_order.invoke_subgraph", (held, "id", x)) for _ in range(2)]
    graph.output(tuple(graph.call_function(operator.getitem, (call, 0)) for call in calls))
    graph.subgraphs = {"body": sub}
    assert inline(graph).added == ["neg_default", "neg_default_1"]
    assert [node.op for node in graph.nodes] == ["placeholder", "call_function", "call_function", "output"]
    assert graph.subgraphs is None and not graph.lint(all=True)


@pytest.mark.parametrize(
    ("name", "before", "why"),
    [
        (
            "wrap_with_set_grad_enabled",
            (False, branch),
            "sets whether gradients are recorded, and restores",
        ),
        ("wrap_with_autocast", ("cpu", None, False, True, branch), "sets how types are chosen"),
        ("cond", (True, branch, branch), "does more than run a graph"),
        ("wrap", (1, branch), "does more than run a graph"),
    ],
)
def test_inline_leaves_other_operators(name, before, why):
    module = running(name, *before)
    text = str(module.graph)
    result = inline(module)
    assert not result and str(module.graph) == text
    (reason,) = result.reasons.values()
    assert reason.startswith(f"kept: {name} {why}")


def test_inline_in_what_was_inlined():
    outer = running("wrap", branch)
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_module("outer", (x,)))
    module = torch.fx.GraphModule({"outer": outer}, graph)
    expected = module(torch.ones(2))
    assert inline(module, recurse=False).removed == ["outer"]
    assert [str(node.target) for node in graph.nodes] == ["x", "outer.body", "wrap", str(operator.getitem), "output"]
    assert inline(module).removed == ["wrap", "body"]
    assert torch.equal(module(torch.ones(2)), expected)


def test_inline_of_a_call_that_does_not_fit():
    module = running("wrap", branch, 1)
    text = str(module.graph)
    with pytest.raises(TypeError, match="gives 3 arguments to 'body', which takes 2"):
        inline(module)
    assert str(module.graph) == text


@pytest.mark.parametrize("recurse", [False, True])
@pytest.mark.parametrize("kind", ["torch", "ours"])
def test_inline_in_graphs_that_stay(kind, recurse):
    outer = running("wrap_with_set_grad_enabled", False, branch)
    held = outer.body.graph
    outer.body.deep = branch()
    with held.inserting_before(held.output_node()):
        (mul,) = held.output_node().args[0]
        called = held.call_module("deep", (mul, mul))
    held.output_node().args = (called,)
    outer.body.recompile()
    expected = outer(torch.ones(2))
    graph = outer if kind == "torch" else fastexport.from_fx(outer)
    result = inline(graph, recurse=recurse)
    assert result.removed == (["body/deep"] if recurse else [])
    assert result.added == (["body/neg_1", "body/mul_1"] if recurse else [])
    assert list(result.reasons) == ["wrap_with_set_grad_enabled"]
    made = graph if kind == "torch" else graph.to_fx(outer)
    assert torch.equal(made(torch.ones(2)), expected)
    assert bool(made.body.graph.find_nodes(op="call_module", target="deep")) is not recurse


def test_parts_get_names_beside_those_that_are_there():
    """torch.export calls the graph of a block without gradients submod_1."""

    class Model(torch.nn.Module):
        def forward(self, x):
            with torch.no_grad():
                y = x * 2
            return y.sin().cos()

    program, x = torch.export.export(Model(), (torch.rand(2, 2),)), torch.rand(2, 2)
    for g in (program.module(), fastexport.from_export(program)):
        calls = [node.name for node in g.graph.nodes if node.op.startswith("call_")]
        found = fastexport.split(g, lambda node, calls=calls: calls.index(node.name) // 2)
        assert list(found.keys) == [f"submod_split_{i}" for i in range((len(calls) + 1) // 2)]
        with pytest.raises(ValueError, match="'submod_1' is taken"):
            fastexport.outline(
                g, [g.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)[0]], "submod_1"
            )
    module = program.module()
    found = fastexport.split(module, lambda node: 1)
    assert torch.equal(found.result(x), module(x))
    again = fastexport.split(found.result, lambda node: 1)
    assert list(again.keys) == ["submod_split2_1"] and torch.equal(again.result(x), module(x))


def test_keys_of_parts_may_have_dots():
    module = torch.fx.symbolic_trace(lambda x: (x + 1).relu().neg())
    for key in (1.5, "a.b"):
        found = fastexport.split(module, lambda node, key=key: key)
        name = f"submod_{key}".replace(".", "_")
        assert found.keys == {name: key} and torch.equal(found.result(torch.ones(2)), module(torch.ones(2)))
