"""Run by test_tracing.py in a process of its own: recording and running with each allocation failing in turn.

Then the call has to raise MemoryError, leave the graph as it was, hold on to nothing, and work when it is called again.
"""

import _testcapi
import collections
import gc
import weakref

import torch

import fastexport
from fastexport import Graph, Proxy, _core

LAST = 8  # so many calls in a row that succeed: no allocation is left to fail
Pair = collections.namedtuple("Pair", "first second")


class Made:
    """A graph and a proxy in it whose tracer stands in a module."""

    def __init__(self):
        self.graph = Graph()
        self.tracer = fastexport.Tracer()
        self.tracer.graph, self.tracer.root, self.tracer.tensor_attrs = self.graph, torch.nn.Module(), {}
        self.tracer.module_stack["a"] = ("a", int)
        self.x = Proxy(self.graph.placeholder("x"), self.tracer)
        self.y = self.x - 1
        self.tracer.scope.module_path = "a"
        self.args = (self.x, [self.y, {"k": slice(self.x, None)}], (1, 2.5), 1 << 80, "text", 2j)
        self.node = self.graph.call_function(
            max, (self.x.node, [self.y.node, {"k": self.x.node}], Pair(1, self.x.node))
        )


def missing(node):
    raise AssertionError


OPERATIONS = {
    "operator": lambda m: m.x + 1,
    "reflected": lambda m: 1 << m.x,
    "compare": lambda m: m.x == 3,
    "item": lambda m: m.x[1:, None],
    "method": lambda m: m.x.add(m.y, 3, alpha=m.y),
    "long call": lambda m: m.x.add(*range(20)),
    "attribute": lambda m: m.x.shape,
    "attribute's node": lambda m: m.x.shape.node,
    "call": lambda m: m.x(1, k=m.y),
    "function": lambda m: Proxy.__torch_function__(torch.add, (), (m.x, m.y), {"alpha": [m.x]}),
    "create_proxy": lambda m: m.tracer._record("call_function", max, m.args, {"k": m.y}, "name", int),
    "proxy": lambda m: Proxy(m.y.node, m.tracer),
    "find": lambda m: _core.proxy_among([{1: (2, slice(m.x))}]),
    "last uses": lambda m: _core.last_uses(m.graph),
    "values": lambda m: _core.map_nodes(m.node.args, {m.x.node: 1, m.y.node: 2}, missing),
}


def attempt(operation, made, start, stop):
    _testcapi.set_nomemory(start, stop)
    try:
        operation(made)
    except MemoryError:
        return False
    finally:
        _testcapi.remove_mem_hooks()
    return True


def state(made):
    return str(made.graph), [dict(node.meta) for node in made.graph.nodes], dict(made.tracer.node_name_to_scope)


def run(name, operation, *, once):
    good = failures = start = 0
    while good < LAST:
        made = Made()
        before, seen = state(made), weakref.ref(made.graph)
        if attempt(operation, made, start, start + 1 if once else 0):
            good += 1
        else:
            good = 0
            failures += 1
            assert state(made) == before, f"{name}: allocation {start} left the graph changed"
            operation(made)
        made.graph.lint()
        del made, before
        gc.collect()
        assert seen() is None, f"{name}: allocation {start} leaked the graph"
        start += 1
        assert start < 5000, f"{name}: no end"
    return failures


gc.freeze()  # torch has much to look through
for name, operation in OPERATIONS.items():
    operation(Made())  # what is only done once
    print(f"{name}: {run(name, operation, once=True) + run(name, operation, once=False)}")
