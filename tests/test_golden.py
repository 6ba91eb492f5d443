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


CASES = [effects, chains, modules, getitems, writes, faults]
PASSES = [fastexport.eliminate_getitems, fastexport.eliminate_dead_code]


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
            options = {"explain": True} if run is fastexport.eliminate_dead_code else {}
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


def test_every_golden_file_belongs_to_a_case():
    assert sorted(path.stem for path in FILES.iterdir()) == sorted(make.__name__ for make in CASES)
