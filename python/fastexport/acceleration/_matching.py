"""Finding and replacing patterns in torch.fx graphs: SubgraphMatcher, the cycle check of a match, replace_pattern.

torch looks at all that lies downstream of a match to see whether fusing it would close a cycle. In a graph whose nodes
all come before their users, what leads from a match back into it lies between its first node and its last; so the order
is checked once in a call, and then only that stretch is searched.

The search runs in C, on a copy of the graph's structure, and finds what torch finds in the same order. A matcher with
methods of its own, a patched one and one that logs are left to torch, but for the cycle check.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, subgraph_rewriter
from torch.fx.passes.utils import fuser_utils, matcher_utils
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from fastexport import _core, _torch
from fastexport._collecting import no_collection
from fastexport._graph import Graph as Twin
from fastexport._matching import Found, Pattern, SearchOptions
from fastexport.acceleration._replacement import Replacement, digest, stock_behind
from fastexport.acceleration._verify import verify_method

_Map = dict[Node, Any]  # nodes of a pattern -> what they were matched with; a placeholder may stand for any value

# ---- the order of a graph's nodes


class _Order:
    """Whether all nodes of a graph come before their users, and where they stand; found out when asked for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sorted: bool | None = None
        self._places: dict[Node, int] | None = None

    def closes_cycle(self, partition: Collection[Node]) -> bool | None:
        """Whether fusing nodes closes a cycle; None where the order doesn't tell."""
        if not self._is_sorted():
            return None
        if self._places is None:
            self._places = {node: place for place, node in enumerate(self._graph.nodes)}
        members = set(partition)
        return self._leads_back(members) if members <= self._places.keys() else None

    def _is_sorted(self) -> bool:
        if self._sorted is None:
            try:
                self._sorted = _torch._FAST and _core.fx_is_sorted(self._graph)
            except (AttributeError, TypeError, ValueError):  # no graph, or a damaged one
                self._sorted = False
        return self._sorted

    def _leads_back(self, members: set[Node]) -> bool:
        places = self._places or {}
        last = max([places[node] for node in members], default=0)
        waiting = [user for node in members for user in node.users if places[user] < last and user not in members]
        seen = set(waiting)
        while waiting:
            for user in waiting.pop().users:
                if user in members:
                    return True
                if places[user] < last and user not in seen:
                    seen.add(user)
                    waiting.append(user)
        return False


class _Work(threading.local):
    """The order of the graph that a matcher is at work on in this thread."""

    order: _Order | None = None


_work = _Work()


@contextmanager
def _ordered(graph: Graph) -> Iterator[None]:
    outer = _work.order
    _work.order = _Order(graph)
    try:
        yield
    finally:
        _work.order = outer


def _validate_partition(stock: Any, partition: list[Node]) -> bool:
    """Searches for a cycle between the first node and the last of a match, not in all that follows."""
    order = _work.order
    closes = order.closes_cycle(partition) if order is not None else None
    return not closes if closes is not None else stock(partition)


# ---- matching

# The parts of a matcher that ours restates.
_PARTS = {
    "_match_attributes": "b2ab30e469694fac",
    "_nodes_are_equal": "b3cf5de7a34912b7",
    "_is_contained": "70695cef021e3385",
    "_match_literals": "a5b41f45b5ca03b0",
    "_match_nodes": "33d538bdbd7f1ab2",
}
_VALIDATE_SOURCE = "a0c37557e1ac636a"
_REMOVE, _REMOVE_SOURCE = "_remove_overlapping_matches", "7d96463cd7c364fd"
_known_codes: tuple[Any, ...] = ()  # of the parts, when they were last looked at and found to be torch's


def is_torchs(function: Any, source: str) -> bool:
    """Whether a function is torch's of that digest, or ours in its place, and nobody has put another there."""
    function = stock_behind(function)
    return not hasattr(function, "__wrapped__") and digest(function) == source


def is_plain(kind: type[SubgraphMatcher], own: Mapping[str, Any]) -> bool:
    """Whether matchers of a class, with attributes of their own, do each step as torch does, and tell nothing of it."""
    global _known_codes
    codes = tuple([getattr(getattr(kind, name), "__code__", None) for name in _PARTS])
    if codes != _known_codes:
        if not all(is_torchs(getattr(kind, name), source) for name, source in _PARTS.items()):
            return False
        _known_codes = codes
    return own.keys().isdisjoint(_PARTS) and not matcher_utils.logger.isEnabledFor(logging.INFO)


def _match(stock: Any, self: SubgraphMatcher, graph: Graph, node_name_match: str = "") -> list[Any]:
    """Finds a pattern in C, in a copy of the graph's structure."""
    if is_plain(type(self), vars(self)) and is_torchs(fuser_utils.validate_partition, _VALIDATE_SOURCE):
        if not node_name_match and not _has_candidates(self, graph):
            return []
        found = _find(self, graph, node_name_match)
        if found is not None:
            return _matches(self, found)
    with _ordered(graph):
        return stock.__wrapped__(self, graph, node_name_match)


def _has_candidates(matcher: SubgraphMatcher, graph: Graph) -> bool:
    """Whether any anchor may stand for some node, as far as the table of find_nodes tells."""
    for anchor in matcher.pattern_anchors:
        called = nodes_calling(graph, anchor.target) if anchor.op == "call_function" else None
        if called is None or called:
            return True
    return not matcher.pattern_anchors


def nodes_calling(graph: Graph, target: Any) -> list[Node] | None:
    """The nodes that call a function, by the table of find_nodes; None where it doesn't hold every node."""
    table = graph._find_nodes_lookup_table.table if isinstance(graph, Graph) else {}
    if sum(map(len, table.values())) != len(graph.nodes):
        return None
    return [
        node
        for (op, called), nodes in table.items()
        if op == "call_function" and target == called
        for node in nodes
        if target == node.target
    ]


def _find(matcher: SubgraphMatcher, graph: Graph, node_name_match: str) -> Found | None:
    """The matches; None where this is left to torch: what can't be read, or a pattern that is not what it was."""
    if not (_torch._FAST and isinstance(graph, Graph) and isinstance(matcher.pattern, Graph)):
        return None
    options = SearchOptions(
        matcher.match_output,
        matcher.match_placeholder,
        matcher.ignore_literals,
        not matcher.remove_overlapping_matches or not _removes_overlapping(matcher),
        "torch",
    )
    try:
        pattern = Pattern(matcher.pattern, "torch")
        twin = Twin()
        _core.fx_read(graph, twin)
        nodes = list(graph.nodes)
    except (AttributeError, TypeError, ValueError, RecursionError):  # damaged, or out of the ordinary
        return None
    if (
        pattern.placeholders != matcher.pattern_placeholder_nodes
        or pattern.returning != matcher.pattern_returning_nodes
        or pattern.anchors(matcher.match_output) != matcher.pattern_anchors
    ):
        return None
    try:
        return Found(twin, pattern, options, node_name_match, nodes, _same_attribute(matcher, pattern.nodes, nodes))
    except _LeftToTorchError:
        return None


def _removes_overlapping(matcher: SubgraphMatcher) -> bool:
    return is_torchs(getattr(type(matcher), _REMOVE), _REMOVE_SOURCE) and _REMOVE not in vars(matcher)


class _LeftToTorchError(Exception):
    """Attributes can't be compared: torch tells how, when it comes to that."""


def _same_attribute(matcher: SubgraphMatcher, patterns: list[Node], nodes: list[Node]) -> Callable[[str, str], bool]:
    first = {node.target: node for node in reversed(nodes) if node.op == "get_attr"}
    wanted = {node.target: node for node in patterns if node.op == "get_attr"}

    def same(path: str, other: str) -> bool:
        try:
            return matcher._match_attributes(wanted[path], first[other])
        except Exception as error:
            raise _LeftToTorchError from error

    return same


def _matches(matcher: SubgraphMatcher, found: Found) -> list[Any]:
    make, inputs, returned = (
        matcher_utils.InternalMatch,
        matcher.pattern_placeholder_nodes,
        matcher.pattern_returning_nodes,
    )
    matches = []
    with no_collection():
        for index in range(len(found)):
            nodes_map = found.nodes_map(index)
            matches.append(
                make(
                    matcher.pattern_anchors,
                    nodes_map,
                    [nodes_map[node] for node in inputs],
                    [nodes_map[node] for node in returned],
                )
            )
    if matcher.remove_overlapping_matches and not _removes_overlapping(matcher):
        return matcher._remove_overlapping_matches(matches)
    return matches


# ---- replacing


class Late:
    """A pattern or replacement that is made when it is needed."""

    def __init__(self, make: Callable[[], GraphModule], may_match: Callable[[Graph], bool]) -> None:
        """
        Args:
            make: makes the GraphModule; called at most once.
            may_match: whether it may match in a graph, as a pattern.
        """
        self.make = functools.cache(make)
        self.may_match = may_match


def _made(value: Any) -> Any:
    return value.make() if isinstance(value, Late) else value


def _replace_pattern(
    stock: Any,
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable[[Any, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[Any, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[Any]:
    """Replaces matches without a search through the graph for where each is used first."""
    graph = gm.graph
    matches: list[Any] = []
    pattern_graph: Any = None
    if not isinstance(pattern, Late) or pattern.may_match(graph):
        pattern_graph = _graph_of(_made(pattern))
        matcher = matcher_utils.SubgraphMatcher(
            pattern_graph,
            match_output=False,
            match_placeholder=False,
            remove_overlapping_matches=True,
            ignore_literals=ignore_literals,
        )
        matches = [
            match
            for match in matcher.match(graph, node_name_match=node_name_match)
            if all(match_filter(match, graph, pattern_graph) for match_filter in match_filters or ())
        ]
    if isinstance(replacement, Late):
        if not matches:
            gm.recompile()
            _settle(gm, replacement)
            return []
        replacement = replacement.make()

    replacement_graph: Any = None
    if isinstance(replacement, (GraphModule, Graph)) or callable(replacement):
        replacement_graph = _graph_of(replacement)
    elif replacement_callback is None:
        raise AssertionError("Must provide either a replacement GraphModule or a replacement callback")
    replaced: dict[Node, Node] = {}
    done = []
    for match in matches:
        if replacement_callback is not None:
            replacement_graph = replacement_callback(match, graph, pattern_graph)
        added = _replace_match(gm, graph, match, replacement_graph, replaced)
        for node in reversed(pattern_graph.nodes):
            if node.op not in ("placeholder", "output"):
                gm.graph.erase_node(match.nodes_map[node])
        done.append(
            subgraph_rewriter.ReplacedPatterns(anchor=match.anchors[0], nodes_map=match.nodes_map, replacements=added)
        )
    gm.recompile()
    if isinstance(replacement, torch.nn.Module):
        subgraph_rewriter._replace_attributes(gm, replacement)
    return done


def _verify_replace(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def given_all(*args: Any, **kwargs: Any) -> Any:
        return stock(*map(_made, args), **{name: _made(value) for name, value in kwargs.items()})

    return verify_method(ours, given_all, args, kwargs)


def _graph_of(source: Any) -> Graph:
    if isinstance(source, Graph):
        return source
    return source.graph if isinstance(source, GraphModule) else subgraph_rewriter.symbolic_trace(source).graph


def _replace_match(gm: GraphModule, graph: Graph, match: Any, replacement: Graph, replaced: _Map) -> list[Node]:
    """Copy a replacement to where the match is used first and use it instead; gives the nodes added.

    `replaced` tells what earlier replacements returned in the place of which nodes, and is added to.
    """
    inputs = [node for node in replacement.nodes if node.op == "placeholder"]
    if len(match.placeholder_nodes) != len(inputs):
        raise AssertionError(f"Placeholder count mismatch: {len(match.placeholder_nodes)} vs {len(inputs)}")
    copies: _Map = {}
    for node, given in zip(inputs, match.placeholder_nodes, strict=True):
        copies[node] = given
        if isinstance(given, Node) and replaced.get(given, given) != given:
            copies[node] = replaced[given]
            match.placeholder_nodes[match.placeholder_nodes.index(given)] = replaced[given]
            matched = list(match.nodes_map)[list(match.nodes_map.values()).index(given)]
            match.nodes_map[matched] = replaced[given]
    with graph.inserting_before(_first_use(graph, match.returning_nodes)):
        outputs: Any = graph.graph_copy(replacement, copies)
    if isinstance(outputs, Node):
        outputs = (outputs,)
    added = [copy for copy in copies.values() if copy not in match.placeholder_nodes]
    if len(match.returning_nodes) != len(outputs):
        raise AssertionError(f"Returning nodes count mismatch: {len(match.returning_nodes)} vs {len(outputs)}")
    for node, output in zip(match.returning_nodes, outputs, strict=True):
        node.replace_all_uses_with(output)
        replaced[node] = output
    return added


def _first_use(graph: Graph, returning: list[Node]) -> Node:
    """The node before which a replacement goes: the first user of what a match returns, or else the node behind it."""
    users = {user for node in returning for user in node.users}
    found = None
    if len(users) == 1:
        (found,) = users
    elif users and all(user.graph is graph and not user._erased for user in users):
        found = min(users)
    elif users:
        found = next((node for node in graph.nodes if node in users), None)
    if found is None:
        following = None
        for node in reversed(graph.nodes):
            if node in returning:
                found = following
                break
            following = node
    if found is None:
        raise AssertionError("The insert point can't be None")
    return found


def _settle(gm: GraphModule, replacement: Late) -> None:
    """What torch does to a module after a replacement, where nothing was replaced: the replacement is not needed."""
    gm.delete_all_unused_submodules()
    holders: dict[str, Any] = {}
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr"):
            path, _, name = node.target.rpartition(".")
            if path not in holders:
                holders[path] = _submodule(gm, path)
            if getattr(holders[path], name, None) is None:  # it may come from the replacement, or is an error
                subgraph_rewriter._replace_attributes(gm, replacement.make())
                return
    gm.graph.lint()


def _submodule(module: torch.nn.Module, path: str) -> torch.nn.Module | None:
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


REPLACEMENTS = (
    Replacement(
        "subgraph_match",
        ("torch.fx.passes.utils.matcher_utils:SubgraphMatcher.match",),
        _match,
        ("8134e695f588f7c8",),
    ),
    Replacement(
        "validate_partition",
        ("torch.fx.passes.utils.fuser_utils:validate_partition",),
        _validate_partition,
        (_VALIDATE_SOURCE,),
    ),
    Replacement(
        "replace_pattern",
        ("torch.fx.subgraph_rewriter:_replace_pattern",),
        _replace_pattern,
        ("bb1c8a5a74cef19d",),
        verify=_verify_replace,
    ),
)
