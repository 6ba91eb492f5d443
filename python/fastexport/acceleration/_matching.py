"""Finding and replacing patterns in torch.fx graphs: SubgraphMatcher, the cycle check of a match, replace_pattern.

torch looks at all that lies downstream of a match to see whether fusing it would close a cycle. In a graph whose nodes
all come before their users, what leads from a match back into it lies between its first node and its last; so the order
is checked once in a call, and then only that stretch is searched.

The walk over a pattern is torch's step by step, for the order of what it finds can be seen. A matcher with methods of
its own, a patched one and one that logs are left to torch, but for the cycle check.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, subgraph_rewriter
from torch.fx.passes.utils import fuser_utils, matcher_utils
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from fastexport import _core, _torch
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

    def closes_cycle_alone(self) -> bool | None:
        """`closes_cycle` of any one node of the graph."""
        return False if self._is_sorted() else None

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
    """Finds a pattern from the nodes that call what its anchors call, and checks for cycles locally."""
    if not is_plain(type(self), vars(self)):
        with _ordered(graph):
            return stock.__wrapped__(self, graph, node_name_match)
    candidates: dict[Node, list[Node]] = {}
    for anchor in self.pattern_anchors:
        found = _candidates(self, anchor, graph, node_name_match)
        if found:  # an anchor without any is passed over
            candidates.setdefault(anchor, []).extend(found)
    contained = _contained(self, _find(self, list(candidates.items()))) if candidates else []
    if self.remove_overlapping_matches:
        return self._remove_overlapping_matches(_without_cycles(graph, contained))
    return [match for match, _ in contained]  # torch looks for cycles here, too, and drops what it found


def _candidates(matcher: SubgraphMatcher, anchor: Node, graph: Graph, node_name_match: str) -> list[Node]:
    """The nodes that an anchor may stand for, in the order of the graph."""
    if anchor.op == "call_function" and not node_name_match:
        called = nodes_calling(graph, anchor.target)
        if called is not None:
            return called
    return [node for node in graph.nodes if matcher._nodes_are_equal(anchor, node, node_name_match)]


def nodes_calling(graph: Graph, target: Any) -> list[Node] | None:
    """The nodes that call a function, in order, by the table of find_nodes; None where it doesn't hold every node."""
    table = graph._find_nodes_lookup_table.table if isinstance(graph, Graph) else {}
    if sum(map(len, table.values())) != len(graph.nodes):
        return None
    found = [
        node
        for (op, called), nodes in table.items()
        if op == "call_function" and target == called
        for node in nodes
        if target == node.target
    ]
    return sorted(found)


def _find(matcher: SubgraphMatcher, candidates: list[tuple[Node, list[Node]]]) -> list[Any]:
    """All ways to match the anchors at once with one of their candidates each, the first anchor's varying slowest."""
    walk = _walker(matcher)
    make = matcher_utils.InternalMatch
    anchors, inputs = matcher.pattern_anchors, matcher.pattern_placeholder_nodes
    returned = matcher.pattern_returning_nodes
    matches: list[Any] = []

    def extend(index: int, nodes_map: _Map) -> None:
        if index == len(candidates):
            # A KeyError is torch's own, for a node of the pattern that no anchor leads to.
            matches.append(make(anchors, nodes_map, [nodes_map[n] for n in inputs], [nodes_map[n] for n in returned]))
            return
        anchor, nodes = candidates[index]
        for node in nodes:
            tried = nodes_map.copy()
            if walk(anchor, node, tried, True):
                extend(index + 1, tried)

    extend(0, {})
    return matches


def _walker(matcher: SubgraphMatcher) -> Callable[[Node, Node, _Map, bool], bool]:
    """A function that matches a node of the pattern, and what leads to it, with a node; it adds to the map given.

    Its last argument says that the two are known to call the same.
    """
    match_placeholder, ignore_literals = matcher.match_placeholder, matcher.ignore_literals
    schemas: dict[Any, list[tuple[str, bool, Any]]] = {}

    def walk(pattern: Node, node: Node, nodes_map: _Map, same: bool) -> bool:
        if pattern in nodes_map:
            return nodes_map[pattern] == node
        if node in nodes_map.values():
            return False
        op = pattern.op
        if op == "placeholder":
            if match_placeholder and not same and node.op != op:
                return False
            nodes_map[pattern] = node
            return True
        if not same:
            if op != node.op:
                return False
            if op == "get_attr":
                if not matcher._match_attributes(pattern, node):
                    return False
            elif op != "output" and not pattern.target == node.target:
                return False
        nodes_map[pattern] = node
        args, kwargs, node_args, node_kwargs = pattern.args, pattern.kwargs, node.args, node.kwargs
        if len(args) != len(node_args) or list(kwargs) != list(node_kwargs):
            if op != "call_function" or not isinstance(pattern.target, torch._ops.OpOverload):
                return False
            schema = schemas.get(pattern.target)
            if schema is None:
                schema = schemas[pattern.target] = _schema(pattern.target)
            return walk_values(_filled(schema, args, kwargs), _filled(schema, node_args, node_kwargs), nodes_map)
        if not kwargs:
            return walk_values(args, node_args, nodes_map)
        return walk_values([*args, *kwargs.values()], [*node_args, *node_kwargs.values()], nodes_map)

    def walk_values(patterns: Sequence[Any], values: Sequence[Any], nodes_map: _Map) -> bool:
        if len(patterns) != len(values):
            return False
        for pattern, value in zip(patterns, values, strict=True):
            if isinstance(pattern, Node):
                if isinstance(value, Node):
                    if match_placeholder or pattern.op != "placeholder":
                        matched = walk(pattern, value, nodes_map, False)
                    elif pattern in nodes_map:
                        matched = nodes_map[pattern] == value
                    elif value in nodes_map.values():
                        return False
                    else:
                        nodes_map[pattern] = value
                        continue
                elif pattern.op != "placeholder":
                    matched = ignore_literals
                elif pattern in nodes_map:
                    matched = nodes_map[pattern] == value or ignore_literals
                else:
                    nodes_map[pattern] = value
                    continue
            elif isinstance(pattern, (list, tuple)) and isinstance(value, (list, tuple)):
                matched = walk_values(pattern, value, nodes_map)
            elif isinstance(value, Node):
                matched = ignore_literals
            else:
                matched = (type(value) is type(pattern) and value == pattern) or ignore_literals
            if not matched:
                return False
        return True

    return walk


def _schema(target: Any) -> list[tuple[str, bool, Any]]:
    return [(argument.name, argument.kwarg_only, argument.default_value) for argument in target._schema.arguments]


def _filled(schema: list[tuple[str, bool, Any]], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """All arguments of an operator in the order of its schema, those left out by their defaults."""
    return [
        kwargs[name] if name in kwargs else args[place] if not kwarg_only and place < len(args) else default
        for place, (name, kwarg_only, default) in enumerate(schema)
    ]


def _contained(matcher: SubgraphMatcher, matches: list[Any]) -> list[tuple[Any, list[Node]]]:
    """The matches of which only what the pattern returns is used outside; and what is in them, without placeholders."""
    returned = set(matcher.pattern_returning_nodes)
    contained = []
    for match in matches:
        inside = {node: pattern for pattern, node in match.nodes_map.items() if pattern.op != "placeholder"}
        if all(pattern in returned or node.users.keys() <= inside.keys() for node, pattern in inside.items()):
            contained.append((match, [node for node, pattern in inside.items() if pattern.op != "output"]))
    return contained


def _without_cycles(graph: Graph, contained: list[tuple[Any, list[Node]]]) -> list[Any]:
    if not contained:
        return []
    validate = fuser_utils.validate_partition
    order = _Order(graph) if is_torchs(validate, _VALIDATE_SOURCE) else None

    def is_valid(partition: list[Node]) -> bool:
        closes = None
        if order is not None:
            closes = order.closes_cycle(partition) if len(partition) > 1 else order.closes_cycle_alone()
        return validate(partition) if closes is None else not closes

    return [match for match, partition in contained if is_valid(partition)]


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
