"""The order of nodes: graphs sorted so that every node stands behind what it uses."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from typing import Any

from fastexport import _core
from fastexport._errors import LintError, LintFault
from fastexport._graph import Graph, Policy, check_policy
from fastexport._loaded import loaded
from fastexport._operators import operator_for
from fastexport._passes import _own_graph
from fastexport._results import PassResult

__all__ = ["sort_topologically"]

# What assertions about sizes are made of. Source: PRIORITIZED_OPS of legalize_graph in torch/fx/passes/tools_common.py.
_FUNCTIONS = (
    operator.add,
    operator.mul,
    operator.sub,
    operator.floordiv,
    operator.truediv,
    operator.mod,
    operator.le,
    operator.lt,
    operator.ge,
    operator.gt,
    operator.eq,
    operator.ne,
)
_OPERATORS = (
    "sym_constrain_range.default",
    "sym_constrain_range_for_size.default",
    "_assert_async.msg",
    "scalar_tensor.default",
    "_assert_scalar.default",
)


def sort_topologically(g: Any, *, stable: bool = True, recurse: bool = True, policy: Policy = "safe") -> PassResult:
    """Put the nodes of a graph into an order in which every node stands behind what it uses.

    Args:
        g: a fastexport Graph or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram, which is changed
            in place: nodes move, none is made anew. A GraphModule is recompiled when a node moved.
        stable: keep the order there is wherever uses allow it, as torch's stable_topological_sort does; otherwise the
            order is breadth first, with assertions about sizes as early as can be, as torch's legalize_graph has it.
        recurse: go into the subgraphs too.
        policy: "safe" also puts inputs first and the output last; "torch" gives torch's order to the letter.

    Returns:
        A `PassResult`.

    Raises:
        LintError: some nodes need each other in turn, and so have no order; the message names them. That graph is left
            as it is.
        TypeError: g is none of these.

    Example:
        >>> import operator
        >>> g = Graph()
        >>> a, b = g.placeholder("a"), g.placeholder("b")
        >>> total, half = g.call_function(operator.add, (a, b)), g.call_function(operator.truediv, (b, 2))
        >>> out = g.output(total)
        >>> total.args = (a, half)
        >>> sort_topologically(g).modified, [node.name for node in g.nodes]
        (True, ['a', 'b', 'truediv', 'add', 'output'])
    """
    check_policy(policy)
    start = time.perf_counter()
    own = _own_graph(g, "sort_topologically")
    sort = _sort_native if own is not None else _sort_torch
    modified = sort(g if own is None else own, not stable, policy == "safe", recurse)
    return PassResult("sort_topologically", modified, seconds=time.perf_counter() - start)


def _urgent() -> tuple[Any, ...]:
    """The functions that go first when the order is breadth first."""
    ours = tuple(operator_for(f"torch.ops.aten.{name}") for name in _OPERATORS)
    torch = loaded("torch")
    if torch is None:
        return (*_FUNCTIONS, *ours)
    return (*_FUNCTIONS, *ours, *(operator.attrgetter(name)(torch.ops.aten) for name in _OPERATORS))


def _told(outcome: bool | list[Any]) -> bool:
    """The outcome of a sort, unless it is a circle."""
    if isinstance(outcome, bool):
        return outcome
    names = [node.name for node in outcome]
    shown = [*names, names[0]] if len(names) < 12 else [*names[:5], "...", *names[-5:], names[0]]
    message = f"the graph has no order: {' -> '.join(shown)} need each other in turn; break the circle"
    raise LintError([LintFault("CIRCLE", names[0], names[-1], message)])


def _sort_native(graph: Graph, breadth_first: bool, ranks: bool, recurse: bool) -> bool:
    urgent = _urgent() if breadth_first else ()
    modified = _told(_core.sort_graph(graph, breadth_first, ranks, urgent))
    for _, sub in graph._graphs_below() if recurse else ():
        modified |= _told(_core.sort_graph(sub, breadth_first, ranks, urgent))
    return modified


def _sort_torch(obj: Any, breadth_first: bool, ranks: bool, recurse: bool) -> bool:
    from fastexport import _torch

    parts = _torch._parts(obj)
    urgent = _urgent() if breadth_first else ()
    modified = False
    for prefix, graph in _torch._modules_with_graphs(parts, recurse):
        outcome = None
        if _torch._FAST and _torch._is_ordinary(graph):
            outcome = _core.fx_sort(graph, breadth_first, ranks, urgent)
        moved = _told(_sort_by_twin(graph, breadth_first, ranks, urgent) if outcome is None else outcome)
        owner = graph.owning_module if prefix else parts.module
        if moved and owner is not None:
            _torch.renew_code(owner)
        modified |= moved
    return modified


def _sort_by_twin(graph: Any, breadth_first: bool, ranks: bool, urgent: tuple[Any, ...]) -> bool | list[Any]:
    """The order is found with a graph of ours, and the nodes moved by torch's own methods."""
    from fastexport import _torch

    twin = _torch.from_fx(graph)
    partners = dict(zip(twin.nodes, list(graph.nodes), strict=True))
    outcome = _core.sort_graph(twin, breadth_first, ranks, urgent)
    if outcome is True:
        nodes: Iterator[Any] = (partners[node] for node in twin.nodes)
        last = graph._root
        for node in nodes:
            last.append(node)
            last = node
    return outcome
