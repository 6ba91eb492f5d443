"""The passes as functions: on a Graph or program of ours, or in place on a torch.fx graph, module or program."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from fastexport._errors import LintFault
from fastexport._graph import Graph, Policy, check_policy
from fastexport._results import PassResult


def _own_graph(g: Any) -> Graph | None:
    """The graph when it is one of ours, or that of a program of ours."""
    if isinstance(g, Graph):
        return g
    # A program is opened by _program.py; where that was never imported, g is none.
    module = sys.modules.get("fastexport._program")
    return g.graph if module is not None and isinstance(g, module.ExportedProgram) else None


def eliminate_dead_code(
    g: Any,
    is_impure_node: Callable[[Any], bool] | None = None,
    *,
    keep_random: bool = True,
    recurse: bool = True,
    policy: Policy = "safe",
    explain: bool = False,
) -> PassResult:
    """Remove every node that has neither users nor an effect.

    Args:
        g: a fastexport Graph or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram, which is changed
            in place (a GraphModule is recompiled when something was removed).
        is_impure_node: tells, for a node, whether it has an effect, in place of fastexport's own judgement.
        keep_random: drawing random numbers counts as an effect.
        recurse: go into the subgraphs too.
        policy: "safe" keeps whatever may have an effect; "torch" removes exactly what torch.fx 2.13 removes.
        explain: give the reason why each node was kept or removed.

    Returns:
        A `PassResult`.

    Raises:
        LintError: the graph is not in order. Nothing is changed then.
        TypeError: g is none of these.
    """
    check_policy(policy)
    own = _own_graph(g)
    if own is not None:
        return own.eliminate_dead_code(
            is_impure_node, keep_random=keep_random, recurse=recurse, policy=policy, explain=explain
        )
    from fastexport import _torch

    start = time.perf_counter()
    outcome = _torch.eliminate_dead_code_inplace(
        g, is_impure_node, keep_random=keep_random, recurse=recurse, policy=policy, explain=explain
    )
    return PassResult("eliminate_dead_code", seconds=time.perf_counter() - start, **outcome)


def eliminate_getitems(
    g: Any, *, recurse: bool = True, policy: Policy = "safe", provenance: bool | None = None
) -> PassResult:
    """Keep one ``operator.getitem`` for each source and index, the first.

    Args:
        g: as for `eliminate_dead_code`.
        recurse: go into the subgraphs too.
        policy: "safe" compares indexes by type and value and merges nothing across a write; "torch" compares their
            text, as torch.export 2.13 does, and takes no notice of writes.
        provenance: note at each kept node, in ``meta["from_node"]``, which ones it stands for; None: with the policy
            "safe" only, as torch notes nothing, and wherever a graph of ours is recorded.

    Returns:
        A `PassResult`; ``replaced`` tells the node in the place of each removed one.
    """
    check_policy(policy)
    own = _own_graph(g)
    if own is not None:
        return own.eliminate_getitems(recurse=recurse, policy=policy, provenance=provenance)
    from fastexport import _torch

    start = time.perf_counter()
    outcome = _torch.eliminate_getitems_inplace(
        g, recurse=recurse, policy=policy, provenance=policy == "safe" if provenance is None else provenance
    )
    return PassResult("eliminate_getitems", seconds=time.perf_counter() - start, **outcome)


def lint(g: Any, *, all: bool = False) -> list[LintFault]:
    """Check that a graph is well formed.

    Args:
        g: as for `eliminate_dead_code`.
        all: return every fault instead of raising for the first.

    Returns:
        The faults; an empty list when there are none.

    Raises:
        LintError: there is a fault and ``all`` is false. It is a RuntimeError, and for a target of the wrong type a
            ValueError, as in torch.fx.
    """
    own = _own_graph(g)
    if own is not None:
        return own.lint(all=all)
    from fastexport import _torch

    return _torch.lint_inplace(g, all=all)


def run_passes(
    g: Any,
    passes: Iterable[str | Callable[[Any], PassResult]],
    *,
    policy: Policy = "safe",
    provenance: bool | None = None,
) -> list[PassResult]:
    """Run a chain of passes, with one conversion for all of them.

    Args:
        g: a fastexport Graph or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram. torch's are read
            once, the passes run in C, and what they did is applied in place once.
        passes: names of passes ("eliminate_dead_code", "eliminate_getitems", "lint"), or, for a fastexport Graph,
            functions that take the graph and return a `PassResult`.
        policy, provenance: as for each pass.

    Returns:
        One `PassResult` a pass, in order.

    Raises:
        ValueError: a name is not that of a pass.
        LintError: "lint" found a fault; for a torch object nothing is applied then.

    >>> import fastexport
    >>> g = fastexport.Graph()
    >>> _ = g.output(g.placeholder("x"))
    >>> [bool(result) for result in run_passes(g, ["eliminate_getitems", "eliminate_dead_code", "lint"])]
    [False, False, False]
    """
    check_policy(policy)
    if isinstance(passes, str):
        raise TypeError(f"passes must be a list, such as [{passes!r}], not a str")
    chain = [_find_pass(item) for item in passes]
    own = _own_graph(g)
    if own is not None:
        return [run(own, policy, provenance) for run in chain]
    from fastexport import _torch

    with _torch.native_twin(g) as twin:
        return [run(twin, policy, provenance) for run in chain]


def _run_lint(graph: Any, policy: Policy, provenance: bool | None) -> PassResult:
    start = time.perf_counter()
    graph.lint()
    return PassResult("lint", seconds=time.perf_counter() - start)


_Run = Callable[[Any, Policy, bool | None], PassResult]
_PASSES: dict[str, _Run] = {
    "eliminate_dead_code": lambda graph, policy, provenance: graph.eliminate_dead_code(policy=policy),
    "eliminate_getitems": lambda graph, policy, provenance: graph.eliminate_getitems(
        policy=policy, provenance=provenance
    ),
    "lint": _run_lint,
}


def _find_pass(item: str | Callable[[Any], PassResult]) -> _Run:
    if callable(item):
        return lambda graph, policy, provenance: item(graph)
    if not isinstance(item, str) or item not in _PASSES:
        raise ValueError(f"there is no pass {item!r}; the passes are {', '.join(sorted(_PASSES))}")
    return _PASSES[item]
