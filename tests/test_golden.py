"""Golden texts: what the passes make of small graphs, by either policy, word for word.

A file of tests/golden holds the graph before, and after each pass by each policy. `pytest --update-golden` writes the
files anew; look at the difference before it is committed.
"""

import operator
import pathlib

import pytest
import torch
from torch import fx

import fastexport
from fx_graphs import aten, graph_of, owned, root_module

FILES = pathlib.Path(__file__).parent / "golden"


def effects():
    """Calls without users, with an effect and without one."""
    graph = fx.Graph()
    x, buffer = graph.placeholder("x"), graph.placeholder("buffer")
    graph.placeholder("unused")
    graph.call_method("mul_", (x, 3))
    graph.call_method("mul", (x, 3))
    graph.call_method("__add__", (x, 3))
    graph.call_function(torch.add, (x, x), {"out": buffer})
    graph.call_function(torch.add, (x, x), {"alpha": 2})
    graph.call_function(aten.add_.Tensor, (x, 1))
    graph.call_function(aten.add.Tensor, (x, 1))
    graph.call_function(operator.setitem, (x, 0, 1))
    graph.call_function(aten._assert_async.msg, (x, "text"))
    graph.call_function(aten.rand.default, ([2],))
    graph.call_function(aten.dropout.default, (x, 0.5, True))
    graph.call_function(print, (x,))
    graph.output(buffer)
    return owned(graph).graph


def chains():
    """Dead code that is used by dead code only, or by code that has an effect."""
    return graph_of(
        ("call_function", aten.relu.default, ("%x",)),
        ("call_function", aten.neg.default, ("%relu_default",)),
        ("call_function", aten.add.Tensor, ("%neg_default", "%relu_default")),
        ("call_function", aten.abs.default, ("%x",)),
        ("call_function", aten.add_.Tensor, ("%x", "%abs_default")),
        ("call_function", aten.sin.default, ("%x",)),
        output=["%sin_default"],
    )


def modules():
    """Modules and attributes: one module says of itself that it is impure, one writes to its input."""
    root = root_module()
    inner = graph_of(("call_function", aten.add_.Tensor, ("%x", 1)), output="%add__tensor")
    root.writes = fx.GraphModule(torch.nn.Module(), inner)
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.get_attr("weight")
    for name in ("linear", "deep.relu", "deep.impure", "writes"):
        graph.call_module(name, (x,))
    graph.output(graph.call_module("linear", (graph.get_attr("weight"),)))
    return owned(graph, root).graph


def getitems():
    """Repeated getitems: nested, with keys that only look equal, with slices, and unused."""
    item = operator.getitem
    return graph_of(
        ("call_function", aten.topk.default, ("%x", 2)),
        ("call_function", item, ("%topk_default", 0)),
        ("call_function", item, ("%topk_default", 1)),
        ("call_function", item, ("%topk_default", 0)),
        ("call_function", item, ("%getitem_2", 1)),
        ("call_function", item, ("%getitem", 1)),
        ("call_function", item, ("%x", 0)),
        ("call_function", item, ("%x", "0")),
        ("call_function", item, ("%x", False)),
        ("call_function", item, ("%x", 0.0)),
        ("call_function", item, ("%x", slice(0, 1))),
        ("call_function", item, ("%x", slice(0, 1))),
        ("call_function", item, ("%x", (0, 1))),
        ("call_function", item, ("%x", [0, 1])),
        output=[f"%getitem_{i}" for i in range(2, 13)],
    )


def writes():
    """Getitems before and after a write to their source, and after one to something else."""
    item = operator.getitem
    return graph_of(
        ("call_function", item, ("%x", 0)),
        ("call_function", item, ("%x", 0)),
        ("call_function", operator.setitem, ("%x", 0, 1)),
        ("call_function", item, ("%x", 0)),
        ("call_function", item, ("%x", 0)),
        ("call_method", "mul_", ("%getitem_2", 2)),
        ("call_function", item, ("%x", 0)),
        ("call_function", aten.relu.default, ("%x",)),
        ("call_function", item, ("%x", 0)),
        output=["%getitem", "%getitem_1", "%getitem_2", "%getitem_3", "%getitem_4", "%getitem_5"],
    )


def repeats():
    """Equal calls: constants that only look equal, a write to what is read, a write to a result, random numbers."""
    return graph_of(
        ("call_function", aten.cos.default, ("%x",)),
        ("call_function", aten.cos.default, ("%x",)),
        ("call_function", aten.add.Tensor, ("%cos_default", 1)),
        ("call_function", aten.add.Tensor, ("%cos_default_1", 1)),
        ("call_function", aten.add.Tensor, ("%cos_default_1", 1.0)),
        ("call_function", aten.sin.default, ("%add_tensor",)),
        ("call_function", aten.add_.Tensor, ("%x", 1)),
        ("call_function", aten.cos.default, ("%x",)),
        ("call_function", aten.sin.default, ("%add_tensor_1",)),
        ("call_function", aten.rand.default, ([2],)),
        ("call_function", aten.rand.default, ([2],)),
        output=[
            "%cos_default_2",
            "%add_tensor_2",
            "%sin_default",
            "%sin_default_1",
            "%rand_default",
            "%rand_default_1",
        ],
    )


def faults():
    """A graph in which lint finds several faults."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,), name="a")
    b = graph.call_function(torch.neg, (a,), name="b")
    output = graph.output(b)
    with graph.inserting_before(output):
        graph.create_node("get_attr", "deep.gone")
        graph.create_node("call_module", "weight")
        graph.create_node("output", "output", (a,), name="early")
        graph.create_node("placeholder", "late")
    owned(graph)
    a.prepend(b)
    a.args = (x, fx.Graph().placeholder("foreign"))
    return graph


CASES = [effects, chains, modules, getitems, writes, repeats, faults]
PASSES = [
    fastexport.eliminate_getitems,
    fastexport.eliminate_common_subexpressions,
    fastexport.eliminate_dead_code,
]


def told(result):
    """What a pass says it did."""
    lines = [f"removed: {', '.join(result.removed) or 'nothing'}"]
    lines += [f"{old} -> {new}" for old, new in result.replaced.items()]
    lines += [f"{name}: {why}" for name, why in sorted((result.reasons or {}).items())]
    return "\n".join(lines)


def story(make, convert):
    """The text of a golden file: a graph before and after each pass by each policy."""
    sections = [("before", str(make()).strip())]
    found = fastexport.lint(make(), all=True)
    sections.append(("lint", "\n".join(f"{fault.code}: {fault.message}" for fault in found) or "no faults"))
    for run in PASSES if not found else ():
        for policy in ("safe", "torch"):
            graph = convert(make())
            options = {} if run is fastexport.eliminate_getitems else {"explain": True}
            result = run(graph, policy=policy, **options)
            after = str(graph).strip()
            assert result or after == sections[0][1]
            shown = f"\n\n{after}" if result else ""
            sections.append((f"{run.__name__}, policy={policy}", told(result) + shown))
    return "".join(f"==== {title}\n{text}\n\n" for title, text in sections).rstrip() + "\n"


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_golden(make, request):
    path = FILES / f"{make.__name__}.txt"
    in_place = story(make, lambda graph: graph)
    if request.config.getoption("--update-golden"):
        path.write_text(in_place, "utf-8")
    expected = path.read_text("utf-8")
    assert in_place == expected
    if make is not faults:
        assert story(make, fastexport.from_fx) == expected


# ---- passes that make new nodes and graphs


def unsorted():
    """Nodes before what they use."""
    graph = graph_of(
        ("call_function", aten.relu.default, ("%x",)),
        ("call_function", aten.neg.default, ("%relu_default",)),
        ("call_function", aten.sin.default, ("%x",)),
        ("call_function", aten.add.Tensor, ("%neg_default", "%sin_default")),
        output=["%add_tensor", "%relu_default"],
    )
    nodes = {node.name: node for node in graph.nodes}
    nodes["relu_default"].prepend(nodes["add_tensor"])
    nodes["relu_default"].prepend(nodes["neg_default"])
    return fx.GraphModule(root_module(), graph)


def chain():
    """A chain with a write, a module, an attribute, and a value that several nodes use."""
    graph = graph_of(
        ("get_attr", "weight", ()),
        ("call_function", aten.mul.Tensor, ("%x", "%weight")),
        ("call_function", aten.topk.default, ("%mul_tensor", 2)),
        ("call_function", operator.getitem, ("%topk_default", 0)),
        ("call_function", operator.getitem, ("%topk_default", 1)),
        ("call_function", aten.add_.Tensor, ("%x", 1)),
        ("call_module", "linear", ("%getitem",)),
        ("call_function", aten.neg.default, ("%linear",)),
        output=["%neg_default", "%getitem_1", "%x"],
    )
    return fx.GraphModule(root_module(), graph)


def nested():
    """A subgraph that is called twice, with attributes and a subgraph of its own; one of two results is used."""
    root = root_module()
    inner = graph_of(("call_function", aten.neg.default, ("%x",)), output="%neg_default")
    middle = root_module()
    middle.inner = fx.GraphModule(torch.nn.Module(), inner)
    steps = [
        ("get_attr", "weight", ()),
        ("call_module", "inner", ("%x",)),
        ("call_function", aten.mul.Tensor, ("%inner", "%weight")),
    ]
    root.middle = fx.GraphModule(middle, graph_of(*steps, output=("%mul_tensor", "%x")))
    graph = graph_of(
        ("call_module", "middle", ("%x",)),
        ("call_function", operator.getitem, ("%middle", 0)),
        ("call_module", "middle", ("%getitem",)),
        ("call_function", operator.getitem, ("%middle_1", 0)),
        output="%getitem_1",
    )
    return fx.GraphModule(root, graph)


def sums():
    """Sums that share operands, follow each other, and stand in lists; and a write to one."""
    graph = graph_of(
        ("call_function", aten.add.Tensor, ("%x", "%x")),
        ("call_function", aten.relu.default, ("%add_tensor",)),
        ("call_function", aten.add.Tensor, ("%relu_default", "%x")),
        ("call_function", aten.relu.default, ("%add_tensor_1",)),
        ("call_function", aten.cat.default, (["%relu_default", "%relu_default_1"],)),
        ("call_function", aten.add.Tensor, ("%cat_default", 1)),
        ("call_function", aten.add_.Tensor, ("%add_tensor_2", 1)),
        ("call_function", aten.relu.default, ("%add_tensor_2",)),
        output="%relu_default_2",
    )
    return fx.GraphModule(root_module(), graph)


def idle():
    """Calls that give their operand back, and some that only seem to."""
    root = root_module().eval()
    root.deep.dropout = torch.nn.Dropout().eval()
    graph = graph_of(
        ("call_module", "deep.dropout", ("%x",)),
        ("call_function", aten.dropout.default, ("%deep_dropout", 0.5, False)),
        ("call_function", aten.dropout.default, ("%dropout_default", 0.5, True)),
        ("call_function", aten.alias.default, ("%dropout_default_1",)),
        ("call_function", aten.mul.Tensor, ("%alias_default", 1)),
        ("call_function", aten.mul.Tensor, ("%mul_tensor", 2)),
        output="%mul_tensor_1",
    )
    for node in graph.nodes:
        node.meta["val"] = torch.ones(2, device="meta")
    return fx.GraphModule(root, graph)


def constants():
    """What is the same at each run, and what is not."""
    graph = graph_of(
        ("call_function", aten.ones.default, ([2],)),
        ("call_function", aten.mul.Tensor, ("%ones_default", 3)),
        ("call_function", aten.rand.default, ([2],)),
        ("call_function", aten.add.Tensor, ("%mul_tensor", "%rand_default")),
        ("call_function", aten.add.Tensor, ("%x", "%mul_tensor")),
        output=["%add_tensor", "%add_tensor_1"],
    )
    return fx.GraphModule(root_module(), graph)


def one(target, operands=2):
    """A pattern: relu of a call."""
    graph = fx.Graph()
    inputs = [graph.placeholder(f"x{i}") for i in range(operands)]
    graph.output(graph.call_function(aten.relu.default, (graph.call_function(target, tuple(inputs)),)))
    return graph


def nodes_named(g, *names):
    nodes = {node.name: node for node in getattr(g, "graph", g).nodes}
    return [nodes[name] for name in names]


GROUPS = [("mul_tensor", "topk_default", "getitem"), ("linear", "neg_default")]
PARTS = {name: part for part, names in enumerate(GROUPS) for name in names}
BOTH = ({"policy": "safe"}, {"policy": "torch"})


def fused(g, **options):
    return fastexport.fuse(g, [nodes_named(g, *names) for names in GROUPS], **options)


def outlined(g, **options):
    return fastexport.outline(g, nodes_named(g, "topk_default", "getitem", "getitem_1"), "top", **options)


def split(g, **options):
    return fastexport.split(g, lambda node: PARTS.get(node.name), **options)


def replaced(g, **options):
    return fastexport.replace_pattern(g, one(aten.add.Tensor), one(aten.sub.Tensor), **options)


REWRITES = {
    "sort_topologically": (fastexport.sort_topologically, unsorted, ({}, {"stable": False}, {"policy": "torch"})),
    "fuse": (fused, chain, BOTH),
    "outline": (outlined, chain, ({}, {"always_return_tuple": True})),
    "split": (split, chain, (*BOTH, {"tuple_return": True})),
    "inline": (fastexport.inline, nested, ({}, {"recurse": False})),
    "trim_interfaces": (fastexport.trim_interfaces, nested, ({},)),
    "replace_pattern": (replaced, sums, BOTH),
    "remove_noops": (fastexport.remove_noops, idle, ({},)),
    "fold_constants": (fastexport.fold_constants, constants, ({},)),
}


def texts(g, path=""):
    """The texts of a graph and of the subgraphs that its nodes refer to, by path."""
    graph = getattr(g, "graph", g)
    yield path, str(graph).strip()
    subgraphs = graph.subgraphs or {} if isinstance(graph, fastexport.Graph) else dict(g.named_modules())
    for name in sorted({node.target for node in graph.nodes if node.op in ("call_module", "get_attr")}):
        if isinstance(subgraphs.get(name), (fastexport.Graph, fx.GraphModule)):
            yield from texts(subgraphs[name], f"{path}{name}/")


def outcome(result):
    """What a rewrite says it did."""
    if isinstance(result, fastexport.Split):
        return "\n".join(f"{name}: {', '.join(nodes)}" for name, nodes in result.partitions.items())
    if isinstance(result, fastexport.PassResult):
        return f"modified: {result.modified}\nadded: {', '.join(result.added) or 'nothing'}\n{told(result)}"
    lines = [f"{done.anchor} -> {', '.join(node.name for node in done.replacements)}" for done in result]
    return "\n".join([*lines, *(f"refused: {why}" for _, why in result.refused)])


def rewritten(run, make, ways, convert):
    sections = [("before", "\n".join(f"{path or 'graph'}: {text}" for path, text in texts(convert(make()))))]
    for options in ways:
        g = convert(make())
        result = run(g, **options)
        after = texts(result.result if isinstance(result, fastexport.Split) else g)
        title = ", ".join(f"{key}={value}" for key, value in options.items()) or "after"
        sections.append((title, "\n".join([outcome(result), *(f"{path or 'graph'}: {text}" for path, text in after)])))
    return "".join(f"==== {title}\n{text}\n\n" for title, text in sections).rstrip() + "\n"


@pytest.mark.parametrize("name", REWRITES)
def test_rewrites(name, request):
    path = FILES / f"{name}.txt"
    ours = rewritten(*REWRITES[name], fastexport.from_fx)
    if request.config.getoption("--update-golden"):
        path.write_text(ours, "utf-8")
    expected = path.read_text("utf-8")
    assert ours == expected
    assert rewritten(*REWRITES[name], lambda module: module) == expected


def test_every_golden_file_belongs_to_a_case():
    cases = [*(make.__name__ for make in CASES), *REWRITES]
    assert sorted(path.stem for path in FILES.glob("*.txt")) == sorted(cases)
