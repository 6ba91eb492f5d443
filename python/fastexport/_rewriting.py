"""Replacing patterns: `replace_pattern` and `replace_pattern_with_filters`, on graphs of ours and, in place, of torch.

The work is done in C. Where torch.fx 2.13 leaves a bad graph, the default policy leaves a good one: inputs inside lists
follow earlier replacements, a replacement stands behind all its inputs and does not pass a write, and what a node
tells of its origin and its value is handed on to what takes its place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

from fastexport import _passes
from fastexport._collecting import no_collection
from fastexport._graph import Graph, Policy, check_policy
from fastexport._matching import Found, Match, MatchReport, SearchOptions, graph_of, ready
from fastexport._meta_json import NodeSource
from fastexport._operators import operator_for
from fastexport._provenance import VALUE_META, source_kinds, sources_of_replaced, target_text

__all__ = ["Replacements", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

_Filter = Callable[[Any, Any, Any], bool]
_Callback = Callable[[Any, Any, Any], Any]
Outcome = tuple[list[Any], list[Any], list[Any], list[Any]]  # new nodes, results, what took their places, moved nodes
_PASS, _FROM_NODE = "replace_pattern", "from_node"


class ReplacedPatterns:
    """One replacement.

    Attributes:
        anchor: the node of the pattern from which the match was found.
        nodes_map: what the pattern's nodes stood for: nodes that are erased now, and inputs as they are now.
        replacements: the nodes that were added.
    """

    __slots__ = ("_nodes_map", "anchor", "replacements")

    def __init__(
        self, anchor: Any, nodes_map: dict[Any, Any] | Callable[[], dict[Any, Any]], replacements: list[Any]
    ) -> None:
        """
        Args:
            anchor, replacements: as above.
            nodes_map: as above, or what makes it when it is asked for.
        """
        self.anchor, self.replacements = anchor, replacements
        self._nodes_map = nodes_map

    @property
    def nodes_map(self) -> dict[Any, Any]:
        if not isinstance(self._nodes_map, dict):
            self._nodes_map = self._nodes_map()
        return self._nodes_map

    def __repr__(self) -> str:
        return f"ReplacedPatterns(anchor={self.anchor}, nodes_map={self.nodes_map}, replacements={self.replacements})"


class Replacements(list[ReplacedPatterns]):
    """What was replaced, as a list.

    Attributes:
        refused: pairs (match, why it was left as it is) of the matches that had to be.
        report: tells how the search went, and why the pattern was not found more often.
    """

    def __init__(self, items: Iterable[ReplacedPatterns], refused: list[tuple[Match, str]], found: Found) -> None:
        super().__init__(items)
        self.refused = refused
        self._found = found

    @property
    def report(self) -> MatchReport:
        return self._found.report()


def replace_pattern(
    g: Any,
    pattern: Any,
    replacement: Any,
    *,
    recurse: bool = False,
    policy: Policy = "safe",
    provenance: bool | None = None,
) -> Replacements:
    """Put a replacement in the place of each match of a pattern that shares no node with an earlier one.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram,
            which is changed in place (a GraphModule is recompiled).
        pattern, replacement: graphs, GraphModules, ExportedPrograms or functions to be traced, with the same number of
            inputs and of results.
        recurse: go into the subgraphs too; torch.fx does not. What is told of no match is told of g itself.
        policy: "safe" or "torch"; see `SubgraphMatcher`. With "torch" the replacement goes where torch.fx puts it and
            inherits no meta.
        provenance: note at new nodes, in ``meta["from_node"]``, what they stand for; None: with the policy "safe".

    Returns:
        A list with a `ReplacedPatterns` for each replacement; its ``report`` tells why there are no more.

    Raises:
        ValueError: the numbers of inputs or results differ, the pattern is empty or has dead code, or the replacement
            returns something that is no node. What was replaced before stays so.
        LintError: the graph is not in order.

    Example:
        >>> import operator
        >>> def one(function):
        ...     g = Graph()
        ...     _ = g.output(g.call_function(function, (g.placeholder("x"), g.placeholder("y"))))
        ...     return g
        >>> g = one(operator.add)
        >>> [done.replacements for done in replace_pattern(g, one(operator.add), one(operator.sub))]
        [[sub]]
    """
    return replace_pattern_with_filters(g, pattern, replacement, recurse=recurse, policy=policy, provenance=provenance)


def replace_pattern_with_filters(
    g: Any,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[_Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: _Callback | None = None,
    node_name_match: str = "",
    *,
    recurse: bool = False,
    policy: Policy = "safe",
    provenance: bool | None = None,
) -> Replacements:
    """As `replace_pattern`, for matches that pass filters.

    Args:
        g, pattern, replacement, recurse, policy, provenance: as for `replace_pattern`.
        match_filters: functions of (match, graph, graph of the pattern); a match is replaced when all say so. All are
            asked before anything is replaced in that graph.
        ignore_literals: any literal will do where the pattern has one.
        replacement_callback: a function of the same that gives the replacement for a match.
        node_name_match: the pattern's anchors also stand for nodes with this in their names.

    Raises:
        ValueError: as `replace_pattern`; or there is neither a replacement nor a callback.
        TypeError: what should be a function is none.
        FastExportError: a filter or the callback has edited what was to be replaced.
    """
    check_policy(policy)
    if pattern is None:
        raise TypeError("pattern is a graph, module, program or function, not None")
    if replacement is None and replacement_callback is None:
        raise ValueError("give a replacement, or a replacement_callback")
    if match_filters is not None and (
        not isinstance(match_filters, list | tuple) or not all(map(callable, match_filters))
    ):
        raise TypeError(f"match_filters must be a list of functions, not {match_filters!r}")
    if replacement_callback is not None and not callable(replacement_callback):
        raise TypeError(f"replacement_callback must be a function, not {replacement_callback!r}")
    own = _own(g)
    pattern, common = (
        None if source is None else graph_of(source, for_torch=own is None) for source in (pattern, replacement)
    )
    job = Job(pattern, common, match_filters or [], ignore_literals, replacement_callback, node_name_match, policy)
    noted = policy == "safe" if provenance is None else provenance
    if own is not None:
        below = [graph for _, graph in own._graphs_below()] if recurse else []
        for graph in below if policy == "safe" else ():
            graph._raise_faults(fx_only=True)  # before anything is changed
        return joined(job.run(graph, noted) for graph in (own, *below))
    from fastexport import _rewriting_torch

    return _rewriting_torch.run(job, g, noted, recurse)


def _own(g: Any) -> Graph | None:
    graph = _passes._own_graph(g)
    if graph is None and isinstance(getattr(g, "graph", None), Graph):
        graph = g.graph  # a module of ours
    return graph


class Job:
    """One call."""

    def __init__(
        self,
        pattern: Any,
        replacement: Any,
        filters: list[_Filter],
        ignore_literals: bool,
        callback: _Callback | None,
        name: str,
        policy: Policy,
    ) -> None:
        self.policy: Policy = policy
        self.pattern = ready(pattern, policy)
        self.filters, self.callback, self.name = filters, callback, name
        self.options = SearchOptions(ignore_literals=ignore_literals, policy=policy)
        self.replacement = replacement

    @property
    def value_keys(self) -> frozenset[str] | None:
        """The keys of meta that only what has the same value inherits; None: nothing is inherited."""
        return VALUE_META if self.policy == "safe" else None

    def find(self, graph: Graph, nodes: list[Any] | None = None) -> Found:
        """The matches; nodes are what to give for the graph's, by id."""
        return Found(graph, self.pattern, self.options, self.name, nodes)

    def chosen(self, found: Found, graph: Any) -> list[int]:
        """The matches that pass the filters."""
        if not self.filters:
            return list(range(len(found)))
        source = self.pattern.source
        return [
            index
            for index in range(len(found))
            if all(keep(match, graph, source) for match in (found.match(index),) for keep in self.filters)
        ]

    def run(self, graph: Graph, provenance: bool) -> Replacements:
        """Do it on a graph of ours."""
        if self.policy == "safe":
            graph._raise_faults(fx_only=True)
        # Each time the number of objects has grown by a quarter the collector would look at all of the process.
        with no_collection():
            found = self.find(graph)
            chosen = self.chosen(found, graph)
            if self.callback is None:
                made = self.rewrite(found, graph, self.replacement, chosen, provenance)
            else:
                made = []
                for index in chosen:
                    given = graph_of(self.callback(found.match(index), graph, self.pattern.source))
                    made += self.rewrite(found, graph, given, [index], provenance)
            return collected(found, chosen, made)

    def rewrite(
        self, found: Found, graph: Graph, replacement: Any, chosen: list[int], provenance: bool
    ) -> list[list[Any] | str]:
        """Replace matches by a graph: for each the new nodes, or why it is left as it is."""
        if not chosen:
            return []
        rest: list[tuple[Any, Any, bool]] = []
        notes = (source_kinds(), target_text, _PASS, rest) if provenance else None
        never = (_FROM_NODE,) if provenance else ()
        watcher = graph._observer  # which is told instead, and may note nothing
        is_watched = provenance and watcher is not None and getattr(watcher, "recorder", watcher) is None
        with graph.recording(_PASS) if is_watched else nullcontext():
            made = found.matches.rewrite(fitted(replacement, graph), chosen, self.value_keys, never, notes, True)
        if rest:
            _note_sources(graph, rest)
        return made


def _note_sources(graph: Graph, replaced: list[tuple[Any, Any, bool]]) -> None:
    """What a recording would have noted at nodes that are not new, or have sources already."""
    fresh = {new for _, new, is_made in replaced if is_made}
    for node, sources in sources_of_replaced(graph, _PASS, [(old, new) for old, new, _ in replaced]):
        if node in fresh:
            for source in sources:
                if type(source) is NodeSource and source.pass_name == _PASS and source.action == "replace":
                    source.action = "replace+create"  # made just now, so nobody shares it
        node.meta[_FROM_NODE] = sources


def joined(results: Iterable[Replacements]) -> Replacements:
    """What was replaced in a graph and those below it, as one result."""
    first, *others = results
    for other in others:
        first += other
        first.refused += other.refused
    return first


def collected(found: Found, chosen: list[int], made: list[list[Any] | str]) -> Replacements:
    """What became of some matches: for each the new nodes, or why it is left as it is."""
    done, refused = [], []
    anchor, nodes_map = found.anchor if chosen else None, found.nodes_map
    for index, nodes in zip(chosen, made, strict=True):
        if isinstance(nodes, str):
            refused.append((found.match(index), nodes))
        else:
            done.append(ReplacedPatterns(anchor, partial(nodes_map, index), nodes))
    return Replacements(done, refused, found)


# ---- replacements


def fitted(source: Any, graph: Graph) -> Graph:
    """A replacement as a graph of ours, with what it refers to in the owning module of the graph it is for."""
    if isinstance(source, Graph):
        replacement = source
    else:
        from fastexport import _torch

        replacement = _torch.from_fx(source)
    if graph._file_version is not None and replacement._file_version is None:
        replacement = _with_operators(replacement)
    _carry_attributes(replacement, graph)
    return replacement


def _with_operators(source: Graph) -> Graph:
    """Operators of torch as a graph that was opened without torch has them."""
    graph = source._copy(False)
    for node in graph.nodes:
        if node.op == "call_function" and type(node.target).__name__ == "OpOverload":
            node.target = operator_for(f"torch.ops.{node.target}")
    return graph


def _carry_attributes(replacement: Graph, graph: Graph) -> None:
    """Copy what the replacement's nodes refer to and the graph's owning module lacks."""
    owner, source = graph.owning_module, replacement.owning_module
    if owner is None or source is None or owner is source:
        return
    for node in replacement.nodes:
        if node.op in ("get_attr", "call_module") and _lookup(owner, node.target) is None:
            found = _lookup(source, node.target)
            if found is None:
                raise ValueError(f"neither the graph's module nor the replacement's has what {node.name!r} refers to")
            _put(owner, node.target, copy.deepcopy(found))


def _lookup(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


def _put(owner: Any, path: str, value: Any) -> None:
    if hasattr(value, "named_parameters") and hasattr(owner, "add_submodule"):
        owner.add_submodule(path, value)
        return
    *prefix, name = path.split(".")
    for part in prefix:
        owner = getattr(owner, part)
    setattr(owner, name, value)
