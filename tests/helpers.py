"""Small things that tests share. Nothing here imports torch."""

import gc
import operator
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import fastexport

# What lint may report of a graph that was only ever edited through its API: an edit may leave the
# nodes in a bad order, but never the books in disorder.
ORDER_FAULTS = {
    "UNDEFINED_OPERAND",
    "SECOND_OUTPUT",
    "OUTPUT_NOT_LAST",
}


def label(value):
    """An id for a parameter: its text without addresses, so that all workers of pytest-xdist collect the same tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def names(nodes):
    """The names of some nodes; of all nodes of a graph."""
    return [node.name for node in getattr(nodes, "nodes", nodes)]


def plain(value):
    """Arguments with each node replaced by its name and each container marked with its kind."""
    if isinstance(value, tuple):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, list):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, dict):
        return (type(value).__name__, *((plain(key), plain(item)) for key, item in value.items()))
    if isinstance(value, slice):
        return ("slice", plain(value.start), plain(value.stop), plain(value.step))
    if type(value).__name__ == "Node":
        return f"%{value.name}"
    return type(value).__name__, repr(value)


def structure(graph):
    """All of a graph that an edit can change, as plain values; of fastexport or torch.fx."""
    return [
        (
            node.name,
            node.op,
            node.target,
            plain(node.args),
            plain(node.kwargs),
            node.type,
            names(node.users),
            names(node.all_input_nodes),
            dict(node.meta),
        )
        for node in graph.nodes
    ]


def codes(graph):
    """The codes of all faults that lint finds, without what is only odd."""
    return [fault.code for fault in graph.lint(all=True) if fault.is_error]


def assert_sound(graph):
    """Lint finds nothing but what a bad order explains, and both directions of the list agree."""
    assert set(codes(graph)) <= ORDER_FAULTS
    forwards = list(graph.nodes)
    assert len(graph.nodes) == len(forwards)
    assert list(reversed(graph.nodes)) == forwards[::-1]
    assert all(a < b for a, b in zip(forwards, forwards[1:], strict=False))


class Unchanged:
    """A block after which the graph has to be as it was before."""

    def __init__(self, graph):
        self.graph = graph

    def __enter__(self):
        self.before = structure(self.graph), str(self.graph), self.graph.nbytes is not None

    def __exit__(self, kind, error, traceback):
        if kind is None or issubclass(kind, Exception):
            assert (structure(self.graph), str(self.graph)) == self.before[:2]
            assert_sound(self.graph)
        return False


def small_graph(kind=fastexport.Graph):
    """x -> add(x, 1) -> mul(add, x) -> output; the graph and its nodes."""
    graph = kind()
    x = graph.placeholder("x")
    add = graph.call_function(operator.add, (x, 1))
    mul = graph.call_function(operator.mul, (add, x))
    out = graph.output(mul)
    return graph, x, add, mul, out


def leaked(function, loops=50, tries=3):
    """How many objects and blocks of Python's memory a call leaves behind.

    A leak comes with every call, however often they are counted. What comes once, as what a cache or another thread
    makes meanwhile, is none: it is less than one for two calls, or gone when counted again.
    """

    def count():
        for _ in range(3):
            gc.collect()
        sys._clear_type_cache()  # keeps the names of attributes that were asked for, by their addresses
        return len(gc.get_objects()), sys.getallocatedblocks()

    gc.freeze()  # what there is now need not be looked at each time
    found = 1
    while found and tries:
        for _ in range(5):
            function()
        before = count()
        for _ in range(loops):
            function()
        found = sum(max(0, round((now - then) / loops)) for then, now in zip(before, count(), strict=True))
        tries -= 1
    return found


def run_python(code, *args, timeout=120):
    """Run code in a Python of its own, with fastexport and these helpers on its path; its stdout."""
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=Path(__file__).parent,
    )
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


class Counts:
    """How often an entry did its work and stepped aside since."""

    def __init__(self, name):
        self.entry = fastexport.acceleration.table()[name]
        self.hits, self.asides = self.entry.hits, self.entry.asides

    def __call__(self):
        return self.entry.hits - self.hits, self.entry.asides - self.asides


def outcome(function, *args):
    """A result or an exception, as plain values."""
    try:
        return "result", function(*args)
    except Exception as error:
        return type(error), str(error)
