"""Common subexpressions: of equal calls, the first one serves for all."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from fastexport._dtypes import Device, DType, Layout, MemoryFormat
from fastexport._graph import Graph, Policy, _removed_names, _replaced_names, check_policy
from fastexport._loaded import loaded
from fastexport._memory import SINGLE, aten_name, memory_facts
from fastexport._passes import _own_graph
from fastexport._results import PassResult

__all__ = ["eliminate_common_subexpressions"]

# What get_CSE_banned_ops() of torch/fx/passes/dialect/common/cse_pass.py in torch 2.13 gives.
_BANNED = frozenset(
    """dropout _fused_dropout _standard_gamma bernoulli multinomial native_dropout normal poisson binomial rrelu
    rand_like rand randint randn randperm add_ sub_ mul_ div_ pow_ lerp_ relu_ sigmoid_ tanh_""".split()
)


def eliminate_common_subexpressions(
    g: Any,
    *,
    recurse: bool = True,
    policy: Policy = "safe",
    explain: bool = False,
    provenance: bool | None = None,
) -> PassResult:
    """Let the first of equal calls stand for all.

    Calls are equal when their target and all arguments are: constants by type and bits, so that 1, 1.0 and True are
    three, 0.0 and -0.0 two, and a nan is itself. Calls with an effect, of random numbers, or of which nothing is known
    stay. So do equal calls between which something is written that they read, and those to whose results something is
    written later; memory that may be shared, as by views, counts as one, and so do all inputs and attributes. A graph
    may return one tensor where it returned two equal ones; but what a program returns and what becomes of one of its
    buffers stay two, and so do the results of a subgraph, which torch lets share no memory.

    Args:
        g: a fastexport Graph or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram, which is
            changed in place.
        recurse: go into the subgraphs too.
        policy: "safe" is what is said above; "torch" gives what torch's ``CSEPass(get_CSE_banned_ops())`` of 2.13
            gives, which compares numbers by value, knows of a few random and writing operators only, and leaves
            subgraphs alone.
        explain: give the reason why each node was kept or removed that is like one before it.
        provenance: note at each kept node, in ``meta["from_node"]``, which ones it stands for; None: with the policy
            "safe" only, and wherever the graph is recorded (see `Graph.recording`).

    Returns:
        A `PassResult`; ``replaced`` tells the node in the place of each removed one.

    Raises:
        TypeError: g is none of these.

    Example:
        >>> import operator
        >>> g = Graph()
        >>> x = g.placeholder("x")
        >>> calls = [g.call_function(operator.add, (x, number)) for number in (1, 1.0, 1)]
        >>> out = g.output(tuple(calls))
        >>> eliminate_common_subexpressions(g).replaced
        {'add_2': 'add'}
    """
    check_policy(policy)
    start = time.perf_counter()
    own = _own_graph(g, "eliminate_common_subexpressions")
    recurse = recurse and policy == "safe"
    if own is not None:
        result = _run(own, recurse, policy, explain, provenance)
    else:
        from fastexport import _torch

        with _torch.native_twin(g) as twin:
            result = _run(twin, recurse, policy, explain, provenance)
    result.seconds = time.perf_counter() - start
    return result


def _run(
    graph: Graph, recurse: bool, policy: Policy, explain: bool, provenance: bool | None, *, is_inner: bool = False
) -> PassResult:
    notes = notes_for(graph, "eliminate_common_subexpressions", policy == "safe" if provenance is None else provenance)
    judge = _banned if policy == "torch" else partial(_facts, graph)
    removed, kept, rows = graph._eliminate_common_subexpressions(
        judge, _plain_types(), policy == "torch", is_inner, explain, notes
    )
    reasons = None if rows is None else {name: text.replace("%O", other) for name, other, text in rows}
    inner = []
    with graph._judged_below(recurse=recurse) as below:
        for path, subgraph in below:
            result = _run(subgraph, False, policy, explain, provenance, is_inner=True)
            if result:
                inner.append((path, result))
            if reasons is not None:
                reasons.update((f"{path}/{name}", why) for name, why in (result.reasons or {}).items())
    return PassResult(
        "eliminate_common_subexpressions",
        bool(removed) or any(result.modified for _, result in inner),
        removed=partial(_removed_names, graph, removed, inner),
        replaced=partial(_replaced_names, graph, removed, kept, inner),
        reasons=reasons,
    )


def notes_for(graph: Graph, pass_name: str, provenance: bool) -> Any:
    """What a pass gives the C code to note where nodes come from; None: nothing is to be noted."""
    if not provenance and (graph._observer is None or graph._observer.recorder is None):
        return None
    from fastexport import _provenance

    return partial(_provenance.sources_of_replaced, graph, pass_name)


def _facts(graph: Graph, op: str, target: Any) -> int:
    if op == "get_attr":
        return SINGLE if target in (graph.subgraphs or {}) else 0  # each call has a subgraph of its own
    return memory_facts(graph.owning_module, op, target)


def _banned(op: str, target: Any) -> int:
    is_operator = type(target).__module__ in ("torch._ops", "fastexport._operators")
    return SINGLE if op == "call_function" and is_operator and aten_name(op, target) in _BANNED else 0


def _plain_types() -> tuple[type, ...]:
    """Classes of constants that are equal when they compare equal, and of which graphs hold several equal ones."""
    torch: Any = loaded("torch")
    ours = (Device, DType, Layout, MemoryFormat)
    return ours if torch is None else (*ours, torch.device, torch.Size)
