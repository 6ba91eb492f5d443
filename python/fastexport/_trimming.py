"""Inputs that nothing uses and results that nobody picks, taken out of subgraphs and of the calls of them."""

from __future__ import annotations

import operator
import time
from collections import Counter
from itertools import chain
from typing import Any

from fastexport._core import Node
from fastexport._graph import Graph
from fastexport._program import ExportedProgram
from fastexport._results import PassResult
from fastexport._splitting import arguments_by_input, on_native

__all__ = ["trim_interfaces"]


def trim_interfaces(g: Any, *, inputs: bool = False) -> PassResult:
    """Remove what subgraphs take and give for nothing.

    Of a subgraph that call_module nodes call: results that no call's user picks, what was there for these alone, and
    inputs that nothing uses; the calls follow. So it is with a GraphModule that is called. A subgraph that is passed on
    as a value (by a get_attr node), that is called from more than one graph, that takes any number of arguments, or
    whose result some user takes as a whole keeps its convention.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram; it
            is changed in place.
        inputs: remove unused inputs of the graph itself, too, which then is called without them; of a program, see
            `ExportedProgram.remove_unused_inputs`.

    Returns:
        A `PassResult`; ``removed`` has the nodes that went, as ``path/name`` in a subgraph.

    Raises:
        TypeError: a call and the inputs of its subgraph don't fit; or g is none of these.
        ValueError: inputs of a torch ExportedProgram are to go, or those of a program one of which is fixed.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> x, y = g.placeholder("x"), g.placeholder("y")
        >>> sub = fastexport.Graph()
        >>> a, b = sub.placeholder("a"), sub.placeholder("b")
        >>> _ = sub.output((sub.call_function(operator.neg, (a,)), sub.call_function(operator.pos, (b,))))
        >>> call = g.create_node("call_module", "sub", (x, y))
        >>> _ = g.output(g.call_function(operator.getitem, (call, 1)))
        >>> g.subgraphs = {"sub": sub}
        >>> trim_interfaces(g).removed, call.args
        (['sub/neg', 'sub/a'], (y,))
    """
    start = time.perf_counter()
    removed: list[str] = []
    changes = [False]
    if inputs and isinstance(g, ExportedProgram):
        removed += g.remove_unused_inputs(user_inputs=True)
    own = inputs and not isinstance(g, ExportedProgram)
    if own and hasattr(g, "graph_signature"):
        raise ValueError("the inputs of a torch ExportedProgram can't be removed; use fastexport.from_export")

    def work(graph: Graph, _: Any) -> None:
        places = _places(graph)
        for path, each in chain([("", graph)], graph._graphs_below()):
            changes[0] |= _trim_inside(each, path and f"{path}/", removed, places)
        if own:
            removed.extend(_erase_unused(graph, graph.find_nodes(op="placeholder")))

    on_native("trim_interfaces", g, work)
    modified = changes[0] or bool(removed)
    return PassResult("trim_interfaces", modified, removed=removed, seconds=time.perf_counter() - start)


def _erase_unused(graph: Graph, nodes: Any) -> list[str]:
    gone = [node for node in nodes if not node.users]
    for node in gone:
        graph.erase_node(node)
    return [node.name for node in gone]


def _places(graph: Graph) -> Counter[int]:
    """In how many places, here and below, each subgraph is, by id: equal ones are two, and one may stand in several."""
    places: Counter[int] = Counter()
    left = [graph]
    while left:
        for sub in left.pop()._graphs_inside().values():
            places[id(sub)] += 1
            if places[id(sub)] == 1:
                left.append(sub)
    return places


def _trim_inside(graph: Graph, prefix: str, removed: list[str], places: Counter[int]) -> bool:
    """Trim the subgraphs of a graph, but not theirs; whether any result or input went."""
    modified = False
    inside = graph._graphs_inside()
    paths_of: dict[int, list[str]] = {}
    for path, sub in inside.items():
        paths_of.setdefault(id(sub), []).append(path)
    passed_on = {node.target for node in graph.find_nodes(op="get_attr")} if inside else set()
    for paths in paths_of.values():
        path, sub = paths[0], inside[paths[0]]
        calls = [node for node in graph.find_nodes(op="call_module") if node.target in paths]
        gone: list[str] = []
        if calls and passed_on.isdisjoint(paths) and places[id(sub)] == len(paths) and _is_plain(sub):
            arguments = [arguments_by_input(call.name, call.args, call.kwargs, path, sub) for call in calls]
            modified |= _trim_results(calls, sub, gone)
            modified |= _trim_inputs(calls, arguments, sub, gone)
        removed += [f"{prefix}{path}/{name}" for name in gone]
    return modified


def _is_plain(sub: Graph) -> bool:
    takes_any = any(node.target.startswith("*") for node in sub.find_nodes(op="placeholder"))
    return not takes_any and bool(sub.find_nodes(op="output")) and "_codegen" not in (sub.extras or {})


def _trim_results(calls: list[Node], sub: Graph, gone: list[str]) -> bool:
    output = sub.output_node()
    results: Any = output.args[0] if output.args else None
    if type(results) is not tuple and not isinstance(results, list):
        return False
    kind = tuple if type(results) is tuple else list
    picked = _picked(calls, len(results))
    if picked is None or len(picked) == len(results):
        return False
    places = {old: new for new, old in enumerate(sorted(picked))}
    output.args = (kind(results[old] for old in places),)
    for call in calls:
        for user in list(call.users):
            user.args = (call, places[user.args[1] % len(results)])
    gone += sub.eliminate_dead_code(recurse=False).removed
    return True


def _picked(calls: list[Node], count: int) -> set[int] | None:
    """Which of the results users pick; None: somebody takes them as a whole."""
    picked = set()
    for call in calls:
        for user in call.users:
            if user.target is not operator.getitem or len(user.args) != 2 or user.args[0] is not call:
                return None
            key = user.args[1]
            if type(key) is not int or not -count <= key < count:
                return None
            picked.add(key % count)
    return picked


def _trim_inputs(calls: list[Node], arguments: list[dict[Any, Any]], sub: Graph, gone: list[str]) -> bool:
    unused = [node for node in sub.find_nodes(op="placeholder") if not node.users]
    for call, values in zip(calls, arguments, strict=True) if unused else ():
        given = list(values)[: len(call.args)]
        names = {node.target for node in unused}
        call.args = tuple(values[node] for node in given if node not in unused)
        call.kwargs = {name: value for name, value in call.kwargs.items() if name not in names}
    gone += _erase_unused(sub, unused)
    return bool(unused)
