"""Many edits at once, on both kinds of graph: the same result as one by one, all or nothing."""

import operator

import pytest
import torch
from torch.fx import Graph as TorchGraph

import fastexport
from fastexport import Insertion

KINDS = [fastexport.Graph, TorchGraph]


def chain(kind, length=6):
    graph = kind()
    value = graph.placeholder("x")
    for _ in range(length):
        value = graph.call_function(torch.relu, (value,))
    graph.call_function(operator.add, (value, value))
    graph.output(value)
    return graph


def state(graph):
    return str(graph), [[user.name for user in node.users] for node in graph.nodes]


@pytest.mark.parametrize("kind", KINDS)
def test_erase_nodes(kind):
    graph, expected = chain(kind), chain(kind)
    (add,) = graph.find_nodes(op="call_function", target=operator.add)
    relu = next(n for n in graph.nodes if n.name == "relu")
    before = state(graph)
    with pytest.raises(RuntimeError, match="relu"):
        fastexport.erase_nodes(graph, [add, relu])
    assert state(graph) == before
    fastexport.erase_nodes(graph, [add])
    expected.erase_node(expected.find_nodes(op="call_function", target=operator.add)[0])
    assert state(graph) == state(expected)
    assert add._erased


@pytest.mark.parametrize("kind", KINDS)
def test_replace_all_uses(kind):
    graph, expected = chain(kind), chain(kind)

    def pairs(g):
        nodes = {n.name: n for n in g.nodes}
        return [(nodes["relu_5"], nodes["relu_1"]), (nodes["relu_1"], nodes["x"])]

    fastexport.replace_all_uses(graph, pairs(graph))
    for old, new in pairs(expected):
        old.replace_all_uses_with(new)
    assert state(graph) == state(expected)
    before = state(graph)
    stranger = next(iter(expected.nodes))
    with pytest.raises((ValueError, RuntimeError)):
        fastexport.replace_all_uses(graph, [*pairs(graph), (next(iter(graph.nodes)), stranger)])
    assert state(graph) == before


@pytest.mark.parametrize("kind", KINDS)
def test_insert_nodes(kind):
    graph, expected = chain(kind), chain(kind)

    def insertions(g):
        made = []
        for node in g.find_nodes(op="call_function", target=torch.relu):
            made.append(Insertion(node, torch.neg, (node.args[0],), {}, meta={"tag": node.name}))
            made.append((node, torch.abs, (node,), {"out": None}, "call_function", False, "own"))
        return made

    made = fastexport.insert_nodes(graph, insertions(graph))
    for item in insertions(expected):
        anchor, target, args, kwargs, *rest = item
        before = rest[1] if len(rest) > 1 else True
        with expected.inserting_before(anchor) if before else expected.inserting_after(anchor):
            expected.create_node("call_function", target, args, dict(kwargs), rest[2])
    assert state(graph) == state(expected)
    assert made[0].meta == {"tag": "relu"} and made[1].name == "own"
    before = state(graph)
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        fastexport.insert_nodes(graph, [Insertion(made[0], torch.neg, (made[0],)), Insertion(made[0], "no function")])
    assert state(graph) == before
    assert graph.call_function(torch.sin, (made[0],)).next.op == "root"  # the insert point is where it was


@pytest.mark.parametrize("native", [False, True])
def test_replace_all_uses_of_chosen_users(native):
    source = torch.fx.symbolic_trace(lambda x: torch.relu(x) + torch.neg(x)).graph
    graph = fastexport.from_fx(source) if native else source
    x = next(iter(graph.nodes))
    x.meta["scale"] = [1]
    [observed] = fastexport.insert_nodes(graph, [fastexport.Insertion(x, torch.abs, (x,), before=False)])
    pairs = [(x, observed)]
    fastexport.replace_all_uses(graph, pairs, delete_user_cb=lambda user: user is not observed, propagate_meta=True)
    assert [user.name for user in x.users] == ["abs_1"] and observed.args == (x,)
    assert [user.name for user in observed.users] == ["relu", "neg"]
    assert observed.meta["scale"] == [1]
    graph.lint()
    with pytest.raises(ZeroDivisionError):
        fastexport.replace_all_uses(graph, pairs, delete_user_cb=lambda user: 1 // 0)
    graph.lint()
