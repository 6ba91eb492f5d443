"""The passes as functions: on a Graph or program of ours, or in place on a torch.fx graph, module or program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fastexport._arguments import check_graph
from fastexport._errors import LintFault
from fastexport._graph import Graph, Policy, check_policy
from fastexport._loaded import loaded
from fastexport._results import PassResult

if TYPE_CHECKING:
    from fastexport._pass_log import PassLog, Step


def _own_graph(g: Any, function: str | None = None) -> Graph | None:
    """The graph when it is one of ours, or that of a module or program of ours.

    Args:
        g: what was given.
        function: what it was given to, which takes torch's, too.

    Raises:
        TypeError: a function is named, and g is neither ours nor torch's.
    """
    if function is not None:
        check_graph(function, g)
    if isinstance(g, Graph):
        return g
    # Where the module of a class was never imported, g is none of it.
    module = loaded("fastexport._graph_module")
    if module is not None and isinstance(g, module.GraphModule):
        g.graph = g.graph  # its code is made anew when it is next looked at; as is that of what it calls:
        for below in g.modules():
            if isinstance(below, module.GraphModule):
                below._code = below._forward = None
        return g.graph
    module = loaded("fastexport._program")
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
        g: a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram,
            which is changed in place. A GraphModule is recompiled when something was removed; as by all passes of
            ours, that is to say that the code it has when somebody looks at it, or calls it, is that of the graph now.
        is_impure_node: tells, for a node, whether it has an effect, in place of fastexport's own judgement.
        keep_random: drawing random numbers counts as an effect.
        recurse: go into the subgraphs too, and into GraphModules that are called or named by get_attr nodes.
        policy: "safe" keeps whatever may have an effect; "torch" removes exactly what torch.fx 2.13 removes, and goes
            into those subgraphs only that get_attr nodes name.
        explain: give the reason why each node was kept or removed.

    Returns:
        A `PassResult`.

    Raises:
        LintError: the graph is not in order. Nothing is changed then.
        TypeError: g is none of these.
    """
    check_policy(policy)
    own = _own_graph(g, "eliminate_dead_code")
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
    own = _own_graph(g, "eliminate_getitems")
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
        g: as for `eliminate_dead_code`. As in torch.fx its subgraphs, and modules that it calls, are not looked into;
            run_passes with ``check`` looks into them, too.
        all: return every fault instead of raising for the first.

    Returns:
        The faults; an empty list when there are none.

    Raises:
        LintError: there is a fault and ``all`` is false. It is a RuntimeError, and for a target of the wrong type a
            ValueError, as in torch.fx.
    """
    own = _own_graph(g, "lint")
    if own is not None:
        return own.lint(all=all)
    from fastexport import _torch

    return _torch.lint_inplace(g, all=all)


def run_passes(
    g: Any,
    passes: Iterable[str | tuple[str, Mapping[str, Any]] | Callable[[Any], Any]],
    *,
    policy: Policy = "safe",
    provenance: bool | None = None,
    check: bool = False,
    bisect: bool = False,
    log: Callable[[PassResult], Any] | list[PassResult] | None = None,
) -> PassLog:
    """Run a chain of passes, with one conversion for all of them.

    Args:
        g: a fastexport Graph or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram. torch's are read
            once, the passes run on the graph in C, and what they did is done to torch's nodes in place once.
        passes: names of passes ("eliminate_dead_code", "eliminate_getitems", "lint", ...), pairs (name, options), or
            functions. A pass that needs more than the graph is given that as options: ("replace_pattern", {"pattern":
            f, "replacement": g}); propagate_shapes, which takes inputs, is given as a function. Options go before
            those of run_passes. A function is given the fastexport Graph, changes it in place, and returns a
            `PassResult`, or None, whether it changed anything, or a list, such as `replace_pattern` gives: what it did
            is then seen from the graph. One that makes a new graph is for `apply_fx_pass`.
        policy, provenance: as for each pass.
        check: lint the graph and its subgraphs, and verify a program, after each pass.
        bisect: do that once, at the end; if something is wrong, find the pass that broke the graph by running halves
            of the chain again on copies. For that, passes must do the same each time.
        log: gets each `PassResult` as it comes: a function, or a list. So it has those of the passes that ran before an
            error, too.

    Returns:
        A `PassLog`: a list of one `PassResult` a pass, in order, that is shown as a table.

    Raises:
        TypeError: passes is no list, a pass does not take the options given with it or lacks one, or a function has
            returned something else.
        ValueError: a name is not that of a pass.
        PassError: with check or bisect, a pass has broken the graph; it tells which one, in which subgraph, the faults,
            and what the pass did. A graph of ours is as the pass left it, a torch object as it was.
        LintError, VerifyError: "lint" found a fault, or with check or bisect the graph is not in order to begin with.
        Exception: what a function raises, with a note that names it. Nothing is done to a torch object then.

    >>> import operator
    >>> import fastexport
    >>> g = fastexport.Graph()
    >>> _ = g.output(g.call_function(operator.neg, (g.placeholder("x"),)))
    >>> [bool(result) for result in run_passes(g, ["eliminate_getitems", "eliminate_dead_code", "lint"])]
    [False, False, False]
    >>> def to_pos(graph):
    ...     for node in graph.find_nodes(op="call_function", target=operator.neg):
    ...         with graph.inserting_before(node):
    ...             _ = node.replace_all_uses_with(graph.call_function(operator.pos, node.args))
    ...         graph.erase_node(node)
    >>> run_passes(g, [to_pos], check=True)[0].replaced
    {'neg': 'pos'}
    >>> def upside_down(graph):
    ...     graph.node("pos").append(graph.node("x"))
    >>> run_passes(g, ["eliminate_dead_code", upside_down], check=True)
    Traceback (most recent call last):
    ...
    fastexport.PassError: pass 'upside_down' (2 of 2) broke the graph: node 'pos' uses 'x' before it is ...
    """
    from fastexport import _pass_log

    check_policy(policy)
    if isinstance(passes, str):
        raise TypeError(f"passes must be a list, such as [{passes!r}], not a str")
    try:
        passes = list(passes)
    except TypeError:
        raise TypeError(f"passes must be a list of names and functions, not {type(passes).__name__}") from None
    chain = _pass_log.Chain([_find_pass(item, policy, provenance) for item in passes], log)
    own = _own_graph(g, "run_passes")
    if own is not None:
        return chain.run(own if own.owning_module is g else g, check=check, bisect=bisect)
    if all(isinstance(item, str) and item in _RECORDED for item in passes) and not check and not bisect:
        from fastexport import _torch

        with _torch.native_twin(g) as twin:
            return chain.run(twin)
    from fastexport import _adapter

    with _adapter.native_edit(g) as native:
        return chain.run(native, check=check, bisect=bisect)


# The passes that have a name, with the options of run_passes that each takes.
_PASSES: dict[str, tuple[str, ...]] = {
    "eliminate_dead_code": ("policy",),
    "eliminate_getitems": ("policy", "provenance"),
    "eliminate_common_subexpressions": ("policy", "provenance"),
    "remove_noops": ("provenance",),
    "fold_constants": (),
    "refresh_fake_tensors": (),
    "sort_topologically": ("policy",),
    "trim_interfaces": (),
    "inline": (),
    "outline": ("policy",),
    "fuse": ("policy",),
    "replace_pattern": ("policy", "provenance"),
    "replace_pattern_with_filters": ("policy", "provenance"),
    "lint": (),
}


# Those that can be done to torch's nodes as a native graph has noted them, call by call.
_RECORDED = frozenset(
    {"eliminate_common_subexpressions", "eliminate_dead_code", "eliminate_getitems", "lint", "remove_noops"}
)


def _find_pass(item: Any, policy: Policy, provenance: bool | None) -> Step:
    from fastexport._pass_log import Step

    if callable(item):
        named = item.func if isinstance(item, partial) else item
        return Step(getattr(named, "__name__", type(named).__name__), item, is_ours=False)
    is_pair = isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Mapping)
    name, given = item if is_pair else (item, {})
    if not isinstance(name, str) or name not in _PASSES:
        raise ValueError(f"there is no pass {name!r}; the passes are {', '.join(sorted(_PASSES))}")
    options = {"policy": policy, "provenance": provenance}
    function = _function_of(name)
    options = {**{key: options[key] for key in _PASSES[name]}, **given}
    fault = _misfit(function, options)
    if fault is not None:
        raise TypeError(f"pass {name!r}: {fault}; give it as ({name!r}, options)")
    # Replacements tell less than is seen from the graph.
    return Step(name, partial(function, **options), is_ours=not name.startswith("replace_pattern"))


def names_of_passes(*, alone: bool = False) -> list[str]:
    """The passes that have a name; alone: those that can be run by it, with no options."""
    return sorted(name for name in _PASSES if not alone or _misfit(_function_of(name), {}) is None)


def _function_of(name: str) -> Callable[..., Any]:
    import fastexport

    function: Callable[..., Any] = _run_lint if name == "lint" else getattr(fastexport, name)
    return function


def _misfit(function: Callable[..., Any], options: Mapping[str, Any]) -> TypeError | None:
    """Why a function does not take a graph and these options, or None."""
    import inspect  # here: it takes a fifth of the time of `import fastexport`

    try:
        inspect.signature(function).bind(None, **options)
    except TypeError as error:
        return error
    return None


def _run_lint(g: Any) -> PassResult:
    start = time.perf_counter()
    lint(g)
    return PassResult("lint", seconds=time.perf_counter() - start)
