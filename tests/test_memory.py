"""Nothing is leaked, cycles are collected, and running out of memory is an exception."""

import copy
import gc
import operator
import pickle
import re
import sys
import weakref
from pathlib import Path

import pytest
import torch

from fastexport import Graph
from helpers import assert_sound, leaked, run_python, small_graph


class Value:
    """Something to see die."""


def test_out_of_memory_at_every_point():
    out = run_python(Path(__file__).with_name("out_of_memory.py").read_text())
    failures = dict(re.findall(r"(.+): (\d+)", out))
    assert len(failures) > 40 and all(int(count) >= 1 for count in failures.values()), failures


# ---- leaks


def everything():
    g, x, add, mul, out = small_graph()
    add.meta = {"val": [1], "value": Value()}
    mul.args = (add, [x, {"k": (x, Value())}], slice(x, Value()))
    mul.kwargs = {"value": Value(), "k": [1j, 1 << 80, "\ud800", torch.float32]}
    node = g.call_function(operator.neg, (x,), {}, int, "node")
    node.name = "other"
    node.target = operator.pos
    node.type = Value()
    node.insert_arg(0, [x, Value()])
    node.update_arg(0, x)
    node.update_kwarg("k", Value())
    node.replace_all_uses_with(mul, lambda user: False)
    x.replace_all_uses_with(x)
    mul.replace_input_with(x, add)
    mul.append(node)
    with g.inserting_before(mul):
        g.placeholder("p", Value, Value())
    list(g.nodes), list(reversed(g.nodes)), sorted(g.nodes), g.find_nodes(op="placeholder")
    str(g), repr(g), repr(g.nodes), [node.format_node() for node in g.nodes]
    h = Graph()
    h.graph_copy(g, {})
    h.node_copy(x)
    assert copy.copy(g) == g == copy.deepcopy(g)
    g.eliminate_getitems(), g.eliminate_getitems(policy="torch")
    g.lint(all=True), [node.is_impure() for node in g.nodes]
    add.meta.update(a=1)
    add.meta.pop("a"), dict(add.meta), add.meta | {"b": 2}, list(add.meta.items())
    dict(x.users), list(x.users), x.users == {}
    g.erase_node(node)


def failures():
    g, x, add, mul, out = small_graph()
    foreign = Graph().placeholder("x")
    for call in (
        lambda: g.call_function(len, (x, [Value(), foreign])),
        lambda: g.call_function(len, (x, Value()), {"k": foreign}),
        lambda: g.call_function(len, (Value(),), name=1, type_expr=Value()),
        lambda: setattr(mul, "args", ([Value()], foreign)),
        lambda: setattr(mul, "kwargs", {"a": Value(), "b": foreign}),
        lambda: mul.insert_arg(0, [Value(), foreign]),
        lambda: mul.insert_arg(9, Value()),
        lambda: mul.update_arg(9, Value()),
        lambda: mul.update_kwarg("k", [Value(), foreign]),
        lambda: mul.replace_all_uses_with(foreign),
        lambda: add.meta.update([(Value(), Value()), 3]),
        lambda: g.node_copy(mul, lambda node: [Value(), foreign]),
        lambda: g.graph_copy(g, {x: foreign}),
        lambda: g.erase_node(x),
        lambda: g.lint(foreign),
        lambda: g.node("none"),
        lambda: pickle.loads(pickle.dumps(g)).node("none"),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError, IndexError, KeyError)):
            call()


@pytest.mark.parametrize("function", [everything, failures])
def test_nothing_is_leaked(function):
    def living():
        gc.collect()
        return sum(type(o) is Value for o in gc.get_objects())

    assert leaked(function) == 0
    assert living() == 0


def test_passes_leak_nothing():
    def passes():
        g, x, add, mul, out = small_graph()
        with g.inserting_before(out):
            for _ in range(3):
                g.call_function(operator.getitem, (mul, 0), {}, None)
                g.call_function(operator.neg, (x,), {"k": Value()})
        out.args = (tuple(g.find_nodes(op="call_function", target=operator.getitem)),)
        assert len(g.eliminate_getitems().replaced) == 2
        assert len(g.eliminate_dead_code(explain=True).removed) == 3

    assert leaked(passes) == 0


def test_memory_of_a_graph_that_is_edited_for_long():
    """What edits give back is used again."""
    g, x, add, mul, out = small_graph()

    def edits():
        for i in range(200):
            mul.args = (add, [x] * (i % 20), {"k": (x, i)}, f"text {i % 10}")
            mul.kwargs = {"a": x, "b": [add] * (i % 7)}
            mul.meta = {"a": i, "b": [i]}
            mul.type = [i]
            x.replace_all_uses_with(x)

    edits()
    before = g.nbytes
    for _ in range(20):
        edits()
    assert g.nbytes <= before * 1.2
    assert_sound(g)


# ---- life and death


def test_arguments_die_with_their_node():
    g, x, *_ = small_graph()
    value = Value()
    seen = weakref.ref(value)
    node = g.call_function(len, (x, [value], slice(value)), {"k": value})
    node.meta["value"] = value
    node.type = value
    del value
    node.type = None
    node.meta.clear()
    node.kwargs = {}
    assert seen() is not None
    node.args = (x,)
    assert seen() is None


def test_everything_dies_with_the_graph():
    g, x, *_ = small_graph()
    value = Value()
    seen = weakref.ref(value)
    x.args = (value,)
    x.meta["value"] = value
    x.type = value
    g.owning_module = value
    g.subgraphs = {"a": value}
    g.extras = {"a": value}
    g.node("mul").target = value.__eq__
    del value, g, x, _
    gc.collect()
    assert seen() is None


PLACES = ["args", "kwargs", "meta", "meta key", "type", "module", "subgraphs", "extras", "target"]


@pytest.mark.parametrize("place", PLACES)
def test_cycles_are_collected(place):
    g, x, add, mul, out = small_graph()
    value = Value()
    value.graph, value.node, value.walk, value.meta, value.users = g, x, iter(g.nodes), x.meta, x.users
    value.point = g.inserting_before(x)

    class Target(Value):
        __name__ = "target"

        def __call__(self):
            pass

    if place == "args":
        mul.args = (x, [value])
    elif place == "kwargs":
        mul.kwargs = {"k": value}
    elif place == "meta":
        mul.meta["value"] = value
    elif place == "meta key":
        mul.meta[value] = 1
    elif place == "type":
        mul.type = value
    elif place == "module":
        g.owning_module = value
    elif place == "subgraphs":
        g.subgraphs = {"g": value}
    elif place == "extras":
        g.extras = {"g": value}
    else:
        target = Target()
        target.value = value
        mul.target = target
        del target
    seen = weakref.ref(value), weakref.ref(g)
    del g, x, add, mul, out, value, Target
    gc.collect()
    assert seen[0]() is None and seen[1]() is None


def test_a_graph_that_was_cleared_by_the_collector():
    """What a finalizer sees of a graph in a dead cycle is whole, and stays usable when it brings it back."""
    saved = []

    class Phoenix:
        def __del__(self):
            saved.append(self.graph)

    g, x, add, mul, out = small_graph()
    phoenix = Phoenix()
    phoenix.graph = g
    mul.args = (add, x, phoenix)
    mul.meta["phoenix"] = phoenix
    del g, x, add, mul, out, phoenix
    gc.collect()
    (g,) = saved
    assert [node.name for node in g.nodes] == ["x", "add", "mul", "output"]
    assert type(g.node("mul").args[2]) is Phoenix
    g.call_function(operator.neg, (g.node("x"),))
    assert_sound(g)
    g.node("mul").args = ()
    g.node("mul").meta = {}
    saved.clear()


def test_weak_references_to_nodes():
    g, x, *_ = small_graph()
    table = weakref.WeakKeyDictionary({x: 1})
    dead = []
    seen = weakref.ref(x, lambda ref: dead.append(g.node("x").name))
    assert table[g.node("x")] == 1 and seen() is x
    del x, _
    assert dead == ["x"] and seen() is None and len(table) == 0
    assert g.node("x").name == "x"


def test_nodes_are_made_anew_but_equal():
    g, *_ = small_graph()
    del _
    gc.collect()
    assert len({id(g.node("x")) for _ in range(100)}) <= 100
    x = g.node("x")
    assert all(g.node("x") is x for _ in range(100))
    assert sys.getrefcount(x) == 2


def test_types_are_collected_with_the_module():
    out = run_python(
        """
        import gc, importlib, sys, weakref
        import fastexport
        core = fastexport._core
        seen = weakref.ref(core.Node)
        g = fastexport.Graph()
        g.placeholder("x").meta["g"] = g
        for name in [name for name in sys.modules if name.startswith("fastexport")]:
            del sys.modules[name]
        del fastexport, core, g
        for _ in range(5):
            gc.collect()
        import fastexport
        print(fastexport.Graph().placeholder("x"))
        """
    )
    assert out == "x\n"


def test_interpreter_ends_with_graphs_alive():
    """Nodes, views and insert points that are let go after the module is."""
    out = run_python(
        """
        import fastexport, sys
        g = fastexport.Graph()
        x = g.placeholder("x")
        x.meta["graph"] = g

        class Late:
            def __init__(self, g):
                self.kept = [g, x, x.meta, x.users, iter(g.nodes), g.nodes, g.inserting_before(x)]

            def __del__(self):
                self.kept[1].meta["late"] = self.kept

        x.meta["late"] = Late(g)
        sys.kept = Late(g)
        print("end")
        """
    )
    assert out == "end\n"


def test_an_erased_node_lets_go_of_what_it_refers_to():
    class Thing:
        pass

    g = Graph()
    x = g.placeholder("x")
    thing = Thing()
    gone = weakref.ref(thing)
    node = g.call_function(operator.neg, (x, [thing]), {"k": thing})
    node.meta["val"] = thing
    node.type = thing
    g.erase_node(node)
    del thing
    assert gone() is not None and node.args == (None, [gone()])
    del node
    assert gone() is None
    assert g.lint(all=True) == []
