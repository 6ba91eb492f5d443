"""The bridge to torch.fx through its public API alone: slower, with the same results.

For a torch whose nodes the C code does not know, and for graphs in which every step has to be torch's own: because
hooks or callbacks see the graph between two steps, or because a class overrides what steps do.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable
from typing import Any

import torch.fx
from torch.fx.node import map_aggregate

from fastexport import _core, _fact_tables, _facts
from fastexport._dtypes import to_torch
from fastexport._errors import LintFault
from fastexport._graph import Graph

# ---- conversion


def read(source: torch.fx.Graph, graph: Graph) -> list[str]:
    """Fill an empty native graph from a torch one; gives the targets of its get_attr and call_module nodes.

    Raises:
        ValueError: a node uses one that is not in the graph, or users and arguments disagree.
    """
    nodes = list(source.nodes)
    made = {node: graph.create_node(node.op, node.target, name=node.name, type_expr=node.type) for node in nodes}

    def leaf_of(user: torch.fx.Node) -> Callable[[Any], Any]:
        def leaf(value: Any) -> Any:
            if not isinstance(value, torch.fx.Node):
                return value
            if value not in made:
                raise ValueError(f"node '{user}' uses '{value}', which is not in the graph's list of nodes")
            return made[value]

        return leaf

    for node in nodes:
        copy = made[node]
        if copy.name != node.name:
            copy.name = node.name
        copy.args = map_aggregate(tuple(node.args), leaf_of(node))
        copy.kwargs = map_aggregate(node.kwargs, leaf_of(node))
        copy.meta = node.meta
    for node in nodes:
        if set(made[node].users) != {made.get(user) for user in node.users}:
            raise ValueError(f"the users of node '{node}' and the arguments of the nodes disagree")
        made[node]._order_users([made[user] for user in node.users])
    return [node.target for node in nodes if node.op in ("get_attr", "call_module") and isinstance(node.target, str)]


def _target_of(node: Any) -> Any:
    """What a node calls in torch: of an Operator the function that it names."""
    try:
        return to_torch(node.target)
    except ValueError as error:
        raise ValueError(f"node '{node}': {error}") from None


def build(
    graph: Graph, built: torch.fx.Graph, convert: Callable[[Any], Any] = to_torch, with_meta: bool = True
) -> None:
    """Fill an empty torch graph from a native one.

    Args:
        convert: gives what stands in arguments for a DType and the like.
        with_meta: the nodes get their meta too.

    Raises:
        ValueError: a call_function node has a string as its target, or an Operator of which torch knows nothing.
    """
    nodes = list(graph.nodes)
    for node in nodes:
        if node.op == "call_function" and isinstance(node.target, str):
            raise ValueError(
                f"node '{node}' calls {node.target!r} by its name only, as a program read without torch does; give the "
                "node a callable as its target before the graph becomes a torch.fx graph"
            )
    targets = [_target_of(node) for node in nodes]
    made = {
        node: built.create_node(node.op, target, name=node.name, type_expr=node.type)
        for node, target in zip(nodes, targets, strict=True)
    }

    def leaf(value: Any) -> Any:
        return made[value] if isinstance(value, _core.Node) else convert(value)

    for node, copy in made.items():
        if copy.name != node.name:
            copy.name = node.name
        copy.args = map_aggregate(node.args, leaf)
        copy.kwargs = map_aggregate(node.kwargs, leaf)
        copy.meta = dict(node.meta) if with_meta else {}
    for node, copy in made.items():
        copy.users.clear()
        copy.users.update(dict.fromkeys(made[user] for user in node.users))


# ---- dead code

_ENDS = {"placeholder": "kept: an input of the graph", "output": "kept: the output of the graph"}
_WHY = {
    _fact_tables.MUTATES: "kept: it writes to an operand",
    _fact_tables.EFFECT: "kept: it has an effect",
    _fact_tables.NO_RESULT: "kept: it returns nothing, so it is there for an effect",
    _fact_tables.UNKNOWN: "kept: nothing is known about its target, so it may have an effect",
}


def _effect(node: torch.fx.Node, keep_random: bool) -> str | None:
    """Why a node would be kept if it had no users, by fastexport's own policy."""
    flags = _facts.target_facts(node.op, node.target, node.graph.owning_module)
    if node.target in (_facts.registered_effects() or ()):
        flags |= _fact_tables.EFFECT
    for flag, why in _WHY.items():
        if flags & flag:
            return why
    call = _facts.call_facts(node) if flags & _fact_tables.PER_NODE else 0
    if keep_random and (flags & _fact_tables.RANDOM or call & _fact_tables.NODE_RANDOM):
        return "kept: it draws random numbers (keep_random)"
    if call & _fact_tables.NODE_IMPURE:
        return "kept: this call has an effect"
    written: list[torch.fx.Node] = []
    torch.fx.node.map_arg(node.kwargs.get("out"), written.append)
    return "kept: it writes to its out= argument" if written else None


def eliminate_dead_code(
    graph: torch.fx.Graph,
    is_impure_node: Callable[[Any], bool] | None,
    keep_random: bool,
    fx_policy: bool,
    explain: bool,
) -> tuple[list[str], dict[str, str] | None]:
    """Dead-code elimination node by node, as torch.fx does it; the graph has passed lint."""
    removed: list[str] = []
    reasons: dict[str, str] | None = {} if explain else None

    def effect(node: Any) -> str | None:
        if is_impure_node is not None:
            return "kept: is_impure_node says it has an effect" if is_impure_node(node) else None
        if not fx_policy and node.op not in _ENDS:
            return _effect(node, keep_random)
        if fx_policy and not node.is_impure(keep_random):
            return None
        return _ENDS.get(node.op, "kept: it has an effect")

    for node in reversed(graph.nodes):
        why = effect(node)
        if why is None:
            if len(node.users) == 0:
                graph.erase_node(node)
                removed.append(node.name)
                why = "removed: no users and no effect"
            else:
                why = "kept: it has users"
        if reasons is not None:
            reasons[node.name] = why
    return removed, reasons


# ---- lint


def lint(graph: torch.fx.Graph, *, all: bool, fx_only: bool) -> list[LintFault]:
    """The faults of a graph, as far as torch.fx and a native twin tell them."""
    try:
        graph.lint()
    except (RuntimeError, ValueError) as error:
        code = "TARGET_TYPE" if isinstance(error, ValueError) else "MALFORMED"
        return [LintFault(code, "", None, str(error).partition("\n")[0])]
    if fx_only:
        return []
    twin = Graph()
    try:
        read(graph, twin)
    except ValueError as error:
        return [LintFault("STALE_USERS", "", None, str(error))]
    twin.owning_module = graph.owning_module
    return twin.lint(all=True) if all else [LintFault(*fault) for fault in twin._lint(False, False)]


# ---- getitems


def repeated_getitems(graph: torch.fx.Graph, fx_policy: bool) -> list[tuple[Any, Any]]:
    """The getitem nodes that an earlier one can stand for, as pairs (removed, kept)."""
    if not fx_policy:
        twin = Graph()
        read(graph, twin)
        twin.owning_module = graph.owning_module
        nodes = list(graph.nodes)  # that of id i + 1 in the twin is the i-th
        removed, kept = (array("I", ids) for ids in twin._eliminate_getitems(False))
        return [(nodes[old - 1], nodes[new - 1]) for old, new in zip(removed, kept, strict=True)]
    pairs: list[tuple[Any, Any]] = []
    keys: dict[Any, str] = {}
    known: dict[str, Any] = {}
    stands_for: dict[Any, Any] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not operator.getitem:
            keys[node] = node.name
            continue
        source, index = torch.fx.node.map_arg(node.args, lambda n: stands_for.get(n, n))
        key = f"{keys[source]}.{index}"
        if key in known:
            pairs.append((node, known[key]))
            stands_for[node] = known[key]
        else:
            known[key] = node
            keys[node] = key
    return pairs
