"""Run by test_rewriting.py in a process of its own: searches and rewriting with each allocation failing in turn."""

import _testcapi
import gc
import operator
import sys
import tracemalloc

from fastexport import Graph, _core
from fastexport._matching import Pattern, _same_target
from fastexport._provenance import VALUE_META, source_kinds, target_text
from helpers import codes


class Value:
    def __eq__(self, other):
        return type(other) is Value

    __hash__ = None


def call(graph, function, *args, **kwargs):
    return graph.call_function(function, args, kwargs)


def graph_of(function, *more):
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    result = call(graph, function, x, [y, Value()], k={"a": slice(0, x)})
    for another in more:
        result = call(graph, another, result)
    graph.output(result)
    return graph


def build():
    graph = graph_of(operator.add, operator.neg)
    graph.node("neg").meta.update(val=[1], stack_trace="here", mine={"deep": [Value()]})
    pattern = Pattern(graph_of(operator.add, operator.neg), "safe")
    replacement = graph_of(operator.sub, operator.pos)
    replacement.node("pos").type = Value
    replacement.node("sub").meta["other"] = [1]
    return graph, pattern, replacement


def search(graph, pattern):
    return _core.find_matches(graph, pattern.compiled, pattern.signatures, _same_target, None, 0, None)


def attempt(operation, start, stop):
    _testcapi.set_nomemory(start, stop)
    try:
        return operation()
    except MemoryError:
        return None
    finally:
        _testcapi.remove_mem_hooks()


def run(once, noted):
    good = failures = start = 0
    while good < 8:
        graph, pattern, replacement = build()
        stop = start + 1 if once else 0
        before = str(graph)

        def find_and_map(graph=graph, pattern=pattern):
            found = search(graph, pattern)
            return found, found.map(0, pattern.nodes), found.best(), found.refused()

        result = attempt(find_and_map, start, stop)
        failures += result is None
        found = search(graph, pattern) if result is None else result[0]
        assert len(found) == 1 and str(graph) == before, start

        def rewrite(found=found, replacement=replacement):
            notes = (source_kinds(), target_text, "replace_pattern", []) if noted else None
            return found.rewrite(replacement, [0], VALUE_META, ("mine",), notes, noted)

        done = attempt(rewrite, start, stop)
        if done is None:
            failures += 1
            if "neg" in str(graph):  # else it had been done, and only telling it failed
                assert str(graph) == before, f"allocation {start} left the graph changed"
                done = rewrite()
        names = [node.target.__name__ for node in graph.nodes if node.op == "call_function"]
        assert names == ["sub", "pos"] and not codes(graph), start
        good = good + 1 if result is not None and done is not None and not failures_since(failures) else 0
        start += 1
        assert start < 3000
    return failures


_last = [0]


def failures_since(failures):
    """Whether there were failures since it was last asked."""
    since = failures - _last[0]
    _last[0] = failures
    return since


def in_use():
    getattr(sys, "_clear_internal_caches", sys._clear_type_cache)()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main():
    gc.freeze()
    for once, noted in ((True, False), (False, False), (True, True), (False, True)):
        assert run(once, noted) > 20
        tracemalloc.start()
        growth = []
        for _ in range(2):
            before = in_use()
            run(once, noted)
            growth.append(in_use() - before)
        tracemalloc.stop()
        assert min(growth) < 500, growth


main()
