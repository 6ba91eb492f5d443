"""Run by test_memory.py in a process of its own: operations with each allocation failing in turn.

The allocators of Python fail once, or from some point on. Then the call has to raise MemoryError, leave the graph as it
was, hold on to nothing, and work when it is called again.
"""

import _testcapi
import copy
import gc
import operator
import sys
import tracemalloc
import weakref
from collections import namedtuple

import fastexport
from explorer_told import Told
from fastexport import Graph, _core
from fastexport._provenance import _Recorder
from helpers import ORDER_FAULTS, codes, small_graph, structure

Pair = namedtuple("Pair", "first second")
LAST = 8  # so many calls in a row that succeed: no allocation is left to fail
SOURCE = small_graph()[0]
SOURCE.node("add").meta = {"tag": {"deep": [1]}}


class Value:
    """Something that must be let go."""

    def __repr__(self):
        return "Value"

    def __eq__(self, other):
        return type(other) is Value

    __hash__ = None


def judge(op, target):
    return 0


ALIAS = 1 << 32  # the kind of no-op of _noops.py


def judge_noop(op, target):
    return ALIAS if target is operator.neg else 0


def agree(rows):
    return b"\1" * len(rows)


class Sizes:
    """What remove_noops reads of a value."""

    shape = (2, 3)

    def stride(self):
        return 3, 1


SIZES = Sizes(), Sizes()


def build():
    g, x, add, mul, out = small_graph()
    add.meta = {"val": [1], "tag": Value()}
    mul.args = (add, [x, {"k": (x, Pair(1, x))}, slice(x, None)], 1.5, "text", Value())
    with g.inserting_before(out):
        first = g.call_function(operator.getitem, (mul, 0), name="first")
        second = g.call_function(operator.getitem, (mul, 0), name="second")
        g.call_function(operator.neg, (x,), name="dead")
        g.call_function(operator.neg, (g.node("dead"),), {"k": Value()}, name="deader")
    g.node("dead").meta["val"], g.node("deader").meta["val"] = SIZES
    out.args = ((first, second),)
    return g


OTHER = build()
PLACES = b"".join(i.to_bytes(4, sys.byteorder) for i in range(len(OTHER.nodes)))


BOXES = [(40.0, 20.0, 0)] * 5
EDGES = [(0, 1, 0.0, 5.0), (1, 2, 0.0, 0.0), (0, 3, 0.0, 0.0), (2, 3, 0.0, 0.0), (3, 1, 0.0, 0.0), (4, 4, 0.0, 0.0)]


def nested(x):
    return [x, {"k": (x, slice(x, None)), "v": Value()}, Pair(Value(), [1j, 1 << 80, "new text", 2.5, None])]


class ToNode:
    def __init__(self, node):
        self.node = node

    def __call__(self, node):
        return self.node


def recorded(g):
    """The same graph, recorded."""
    g._observer = _Recorder(g, "recorded")
    return g


# No closures in these, which CPython 3.11 leaks when it can't make the cell; no `with` and `finally`, which it does not
# get out of where no memory is left at all; and no pickles, for it crashes when it can't make an iterator over a dict.
OPERATIONS = {
    "Graph": lambda g: Graph(),
    "placeholder": lambda g: g.placeholder("y", int, [Value()]),
    "call_function": lambda g: g.call_function(operator.sub, (g.node("x"), nested(g.node("x"))), {"k": Value()}),
    "call_method": lambda g: g.call_method("method_" + "m" * 300, (g.node("x"),), {}, Value),
    "create_node": lambda g: g.create_node("call_function", Pair, (g.node("x"),), {}, "n\u00e4me", Value()),
    "output": lambda g: g.output(nested(g.node("x"))),
    "args": lambda g: setattr(g.node("mul"), "args", (g.node("add"), nested(g.node("x")))),
    "kwargs": lambda g: setattr(g.node("mul"), "kwargs", {"a": nested(g.node("x"))}),
    "update_arg": lambda g: g.node("mul").update_arg(1, nested(g.node("x"))),
    "insert_arg": lambda g: g.node("mul").insert_arg(1, nested(g.node("x"))),
    "update_kwarg": lambda g: g.node("mul").update_kwarg("new", nested(g.node("x"))),
    "replace_input_with": lambda g: g.node("mul").replace_input_with(g.node("x"), g.node("add")),
    "replace_all_uses_with": lambda g: g.node("add").replace_all_uses_with(g.node("x")),
    "replace_chosen": lambda g: g.node("x").replace_all_uses_with(g.node("add"), lambda user: user.name == "mul"),
    "propagate": lambda g: g.node("add").replace_all_uses_with(g.node("x"), propagate_meta=True),
    "propagate what is missing": lambda g: g.node("add").replace_all_uses_with(g.node("x"), propagate_meta="missing"),
    "propagate all": lambda g: g.node("mul").replace_input_with(g.node("add"), g.node("x"), propagate_meta="all"),
    "recorded call_function": lambda g: recorded(g).call_function(operator.sub, (g.node("x"), 1)),
    "recorded node_copy": lambda g: recorded(g).node_copy(g.node("add")),
    "recorded replace_input_with": lambda g: recorded(g).node("mul").replace_input_with(g.node("x"), g.node("add")),
    "recorded replace_all_uses_with": lambda g: recorded(g).node("add").replace_all_uses_with(g.node("x")),
    "erase_node": lambda g: g.erase_node(g.node("deader")),
    "move": lambda g: g.node("mul").prepend(g.node("x")),
    "name": lambda g: setattr(g.node("mul"), "name", "another"),
    "target": lambda g: setattr(g.node("mul"), "target", operator.xor),
    "op": lambda g: setattr(g.node("mul"), "op", "call_method"),
    "type": lambda g: setattr(g.node("mul"), "type", Value()),
    "read args": lambda g: (g.node("mul").args, g.node("mul").kwargs, g.node("mul").all_input_nodes),
    "read users": lambda g: (list(g.node("x").users), dict(g.node("x").users), repr(g.node("x").users)),
    "walk": lambda g: (list(g.nodes), list(reversed(g.nodes)), repr(g.nodes), sorted(g.nodes)),
    "find_nodes": lambda g: (g.find_nodes(op="call_function", target=operator.neg), g.find_nodes(op="output")),
    "insert point": lambda g: g.inserting_before(g.node("mul")).__exit__(),
    "meta set": lambda g: g.node("x").meta.__setitem__("new key", Value()),
    "meta set more": lambda g: g.node("add").meta.__setitem__("third", Value()),
    "meta delete": lambda g: g.node("add").meta.pop("tag"),
    "meta update": lambda g: g.node("add").meta.update({i: Value() for i in range(20)}),
    "meta assign": lambda g: setattr(g.node("add"), "meta", {"a": Value(), "b": 2, "c": 3}),
    "meta read": lambda g: (dict(g.node("add").meta), g.node("add").meta.items(), g.node("add").meta | {1: 2}),
    "level_facts": _core.level_facts,
    "explorer_nodes": lambda g: _core.explorer_nodes(g, Told()),
    "count_nodes": _core.count_nodes,
    "lay_out": lambda g: _core.lay_out(BOXES, EDGES, (12.0, 6.0, 20.0)),
    "str": str,
    "format_node": lambda g: g.node("mul").format_node(),
    "equal": lambda g: (g == SOURCE, g == OTHER),
    "diff": lambda g: _core.diff_graphs(g, OTHER, id, None, ("val", "tag")),
    "diff of known": lambda g: _core.diff_graphs(g, g, id, PLACES, None),
    "node_copy": lambda g: g.node_copy(SOURCE.node("add"), ToNode(g.node("x"))),
    "graph_copy": lambda g: g.graph_copy(SOURCE, {}),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "lint": lambda g: (g.lint(), g.lint(all=True)),
    "is_impure": lambda g: [node.is_impure() for node in g.nodes],
    "eliminate_dead_code": lambda g: g.eliminate_dead_code(),
    "eliminate_dead_code, torch": lambda g: g.eliminate_dead_code(policy="torch"),
    "eliminate_dead_code, explain": lambda g: g.eliminate_dead_code(explain=True),
    "eliminate_getitems": lambda g: g.eliminate_getitems(),
    "eliminate_getitems, torch": lambda g: g.eliminate_getitems(policy="torch"),
    "eliminate_common_subexpressions": lambda g: g._eliminate_common_subexpressions(judge, (), False, True, True, None),
    "eliminate_common_subexpressions, torch": lambda g: g._eliminate_common_subexpressions(
        judge, (), True, False, False, None
    ),
    "find constants": lambda g: (g._find_constants(judge, None), g._find_constants(judge, g.node("x")._id)),
    "eliminate_noops": lambda g: g._remove_noops(judge_noop, agree, False, None),
    "eliminate_noops, explain": lambda g: g._remove_noops(judge_noop, agree, True, None),
    "eliminate_getitems, recorded": lambda g: recorded(g).eliminate_getitems(),
}


# Making the result of a pass comes after the pass: without memory for it the graph may be as it should be then.
PASSES = {name for name in OPERATIONS if name.startswith("eliminate")}


def state(g):
    """Sources by their text, which leaves out the id of the graph."""
    nodes = [
        (*node, {key: repr(value) if key == "from_node" else value for key, value in meta.items()})
        for *node, meta in structure(g)
    ]
    return nodes, str(g), {node.name for node in g.nodes if node.graph is g}


def attempt(operation, g, start, stop):
    """Whether the call succeeded, with the allocations from start to stop failing."""
    _testcapi.set_nomemory(start, stop)
    try:
        operation(g)
    except MemoryError:
        return False
    finally:
        _testcapi.remove_mem_hooks()
    return True


def living():
    gc.collect()
    return sum(type(o) is Value for o in gc.get_objects())


def run(name, operation, *, once):
    done = build()
    operation(done)
    allowed = [state(done)] if name in PASSES else []
    good = failures = start = 0
    while good < LAST:
        g = build()
        before = state(g)
        seen = weakref.ref(g)
        if attempt(operation, g, start, start + 1 if once else 0):
            good += 1
        else:
            good = 0
            failures += 1
            assert state(g) in [before, *allowed], f"{name}: allocation {start} left the graph changed"
            operation(g)
        assert set(codes(g)) <= ORDER_FAULTS | {"TARGET_TYPE"}, f"{name}: allocation {start}: {codes(g)}"
        del g, before
        gc.collect()
        assert seen() is None, f"{name}: allocation {start} leaked the graph"
        start += 1
        assert start < 5000, f"{name}: no end"
    return failures


def in_use():
    """Bytes that Python has in use, without what its look-up cache of methods keeps for a while."""
    getattr(sys, "_clear_internal_caches", sys._clear_type_cache)()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def grown(name, operation, *, once):
    """Bytes more in use after all failures of an operation than before."""
    before = in_use()
    run(name, operation, once=once)
    return in_use() - before


def main(names):
    gc.freeze()  # what there is now need not be looked at each time
    for name in names or OPERATIONS:
        operation = OPERATIONS[name]
        for once in (True, False):
            tracemalloc.start()
            failures = run(name, operation, once=once)
            values = living()
            leaked = min(grown(name, operation, once=once) for _ in range(2))
            tracemalloc.stop()
            assert living() == values, f"{name}: {living() - values} values leaked"
            assert leaked < 500, f"{name}: {leaked} bytes leaked in {failures} failures"
            print(f"{name}: {failures}")


if __name__ == "__main__":
    assert "torch" not in sys.modules and fastexport.__version__
    main(sys.argv[1:])
