"""Finding a pattern in a graph: `SubgraphMatcher`, `Match`, and why nothing was found.

The search runs in C. Here a pattern is made ready for it: a private copy, with a node behind it for each operator that
tells the parameters, so that a call is the same however its arguments are spelled.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastexport import _core
from fastexport._collecting import no_collection
from fastexport._graph import Graph, Policy, check_policy
from fastexport._loaded import loaded
from fastexport._operators import Operator

if TYPE_CHECKING:
    from fastexport._core import Matches

__all__ = ["Match", "MatchReport", "SubgraphMatcher", "SubgraphMatcherWithNameNodeMap"]

_KEYWORD_ONLY, _NO_DEFAULT = 1, 2  # as fe_parameter_flag of match.h
_Parameters = list[tuple[str, int, Any]]  # name, flags, default
_SameAttribute = Callable[[str, str], bool]  # of paths in the modules of the pattern and the graph


@dataclass
class Match:
    """One place where a pattern was found.

    Attributes:
        anchors: the nodes of the pattern from which it was found.
        nodes_map: for each node of the pattern what it stands for: a node, or for a placeholder any value.
        placeholder_nodes: what the pattern's placeholders stand for, in order.
        returning_nodes: the nodes that stand for what the pattern returns.
        name_node_map: see `SubgraphMatcherWithNameNodeMap`.
    """

    anchors: list[Any]
    nodes_map: dict[Any, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Any] = field(default_factory=list)
    name_node_map: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MatchReport:
    """What came of a search, and how far the best of the failed attempts came; its text tells it.

    Attributes:
        matches: how many matches there are.
        reason: why the best attempt failed: ``CALL``, ``LITERAL``, ``ARGUMENTS`` and the like; None: none did.
        pattern_node: the node of the pattern it failed at.
        graph_node: the node of the graph there, or None.
        operand: which argument it was, counted through args and then kwargs, or None.
        matched: nodes of the pattern that had been matched by then, with what they stood for.
        refused: how many complete matches were given up, by reason.
        text: all of that.
    """

    matches: int
    reason: str | None
    pattern_node: Any
    graph_node: Any
    operand: int | None
    matched: dict[Any, Any]
    refused: dict[str, int]
    text: str

    def __str__(self) -> str:
        return self.text


# ---- patterns


def graph_of(source: Any, *, for_torch: bool = False) -> Any:
    """The graph that a pattern or replacement is given as: a Graph of ours or of torch.

    Args:
        source: a graph, something with one (a GraphModule, an ExportedProgram), or a function to be traced.
        for_torch: a function is traced by torch, as it is for a graph of torch.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(source, Graph) or _is_torch(source, "torch.fx.graph", "Graph"):
        return source
    for name in ("graph_module", "graph"):
        inner = None if isinstance(source, type) else getattr(source, name, None)
        if isinstance(inner, Graph) or getattr(inner, "graph", inner) is not None:
            return graph_of(inner)
    if not callable(source) or isinstance(source, type):
        raise TypeError(
            f"expected a graph, a GraphModule, an ExportedProgram or a function, not {type(source).__name__}"
        )
    if for_torch:
        from torch.fx import symbolic_trace

        return symbolic_trace(source).graph
    from fastexport._tracer import symbolic_trace as trace

    return trace(source).graph


def _is_torch(value: Any, module: str, name: str) -> bool:
    kind = getattr(loaded(module), name, None)
    return kind is not None and isinstance(value, kind)


class Pattern:
    """A graph made ready to be searched for.

    Attributes:
        source: the graph as it was given, of ours or torch's.
        nodes: its nodes.
        compiled: the copy.
        signatures: for each node the place of the one that tells its parameters, or 0.
    """

    def __init__(self, source: Any, policy: Policy) -> None:
        self.source = source
        self.nodes: list[Any] = list(source.nodes)
        if not self.nodes:
            raise ValueError("a pattern needs nodes, and this one has none")
        if isinstance(source, Graph):
            self.compiled: Graph = source._copy(False)
        else:
            from fastexport import _torch

            self.compiled = _torch.from_fx(source)
        self._leave_out_guards()
        self.owner = source.owning_module
        self.signatures = self._add_signatures(policy)

    def _leave_out_guards(self) -> None:
        """The check of its inputs that ``ExportedProgram.module()`` begins with is no part of a pattern."""
        is_guard = [n.op == "call_module" and n.target == "_guards_fn" and not n.users for n in self.nodes]
        if any(is_guard):
            for node in [node for node, guards in zip(self.compiled.nodes, is_guard, strict=True) if guards]:
                self.compiled.erase_node(node)
            self.nodes = [node for node, guards in zip(self.nodes, is_guard, strict=True) if not guards]
            self.compiled = self.compiled._copy(False)

    def _add_signatures(self, policy: Policy) -> list[int]:
        places: dict[int, int] = {}  # by the target's identity, as some can't be hashed
        signatures = []
        count = len(self.nodes)
        for node in list(self.compiled.nodes):
            target = node.target
            if node.op != "call_function":
                signatures.append(0)
                continue
            if id(target) not in places:
                parameters = _parameters(target, policy)
                places[id(target)] = 0
                if parameters is not None:
                    defaults = tuple(default for _, _, default in parameters)
                    flags = {name: flag for name, flag, _ in parameters}
                    self.compiled.create_node("call_function", target, defaults, flags)
                    count += 1
                    places[id(target)] = count
            signatures.append(places[id(target)])
        return signatures

    @cached_property
    def placeholders(self) -> list[Any]:
        return [node for node in self.nodes if node.op == "placeholder"]

    @cached_property
    def returning(self) -> list[Any]:
        return list(self.nodes[-1].all_input_nodes)

    def anchors(self, match_output: bool) -> list[Any]:
        return [self.nodes[-1]] if match_output else [node for node in self.returning if len(node.users) == 1]


def ready(source: Any, policy: Policy) -> Pattern:
    """A pattern that can be found: it has no dead code, which nothing leads to.

    Raises:
        ValueError: it has, or has no nodes at all.
    """
    pattern = Pattern(source, policy)
    for node in pattern.nodes:
        if node.op != "output" and not node.users and not node.is_impure():
            raise ValueError(f"nothing in the pattern uses its node '{node.name}'; remove dead code before matching")
    return pattern


def _parameters(target: Any, policy: Policy) -> _Parameters | None:
    """The parameters of a function, where they can be told; torch.fx knows those of operators only."""
    if isinstance(target, Operator):
        return _operator_parameters(target)
    if _is_torch(target, "torch._ops", "OpOverload"):
        return _overload_parameters(target, policy)
    if policy == "torch" or not isinstance(target, types.FunctionType):
        return None
    return _function_parameters(target)


def _operator_parameters(target: Operator) -> _Parameters | None:
    if loaded("torch") is not None:
        try:
            return _overload_parameters(target.to_torch(), "safe")
        except (ValueError, AttributeError):  # not there, or no operator with a schema
            pass
    try:
        arguments = target.arguments
    except LookupError:
        return None
    return [(name, _NO_DEFAULT | (_KEYWORD_ONLY if only else 0), None) for name, _, _, only, _ in arguments]


def _overload_parameters(target: Any, policy: Policy) -> _Parameters:
    parameters = []
    for argument in target._schema.arguments:
        known = policy == "torch" or argument.has_default_value()
        flags = (_KEYWORD_ONLY if argument.kwarg_only else 0) | (0 if known else _NO_DEFAULT)
        parameters.append((argument.name, flags, argument.default_value))
    return parameters


def _function_parameters(target: types.FunctionType) -> _Parameters | None:
    try:
        signature = inspect.signature(target)
    except (ValueError, TypeError):
        return None
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            return None
        known = parameter.default is not parameter.empty
        flags = (_KEYWORD_ONLY if parameter.kind is parameter.KEYWORD_ONLY else 0) | (0 if known else _NO_DEFAULT)
        parameters.append((parameter.name, flags, parameter.default if known else None))
    return parameters


# ---- what is the same in two graphs


def _same_target(a: Any, b: Any) -> bool:
    """Whether two functions are one: an Operator and what it stands for are."""
    if type(a) is Operator and type(b) is not Operator:
        return _stands_for(a, b)
    if type(b) is Operator and type(a) is not Operator:
        return _stands_for(b, a)
    return bool(a == b)


def _stands_for(operator: Operator, function: Any) -> bool:
    if loaded("torch") is None or getattr(function, "__name__", None) != operator.__name__:
        return False
    try:
        return operator.to_torch() is function
    except ValueError:
        return False


def _same_attribute(pattern_owner: Any, owner: Any) -> _SameAttribute | None:
    """Whether two paths of get_attr are the same: tensors of one class are, as in torch.fx, whatever they hold."""
    if pattern_owner is None or owner is None:
        return None

    def same(path: str, other: str) -> bool:
        a, b = _attribute(pattern_owner, path), _attribute(owner, other)
        if a is None or b is None:
            return path == other
        if type(a) is not type(b):
            return False
        return a is b or (hasattr(a, "dtype") and hasattr(a, "shape"))

    return same


def _attribute(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


# ---- matching


@dataclass(frozen=True)
class SearchOptions:
    """How to search; see `SubgraphMatcher`."""

    match_output: bool = False
    match_placeholder: bool = False
    ignore_literals: bool = False
    keep_overlapping: bool = False
    policy: Policy = "safe"

    @property
    def bits(self) -> int:
        flags = (
            self.match_output,
            self.match_placeholder,
            self.ignore_literals,
            self.keep_overlapping,
            self.policy == "torch",
        )
        return sum(1 << place for place, flag in enumerate(flags) if flag)


class Found:
    """The matches of a pattern in a graph.

    Attributes:
        matches: those of C.
        pattern: the pattern.
        nodes: by id, what to give for the graph's nodes: those of a torch graph; None: its own.
    """

    def __init__(
        self,
        graph: Graph,
        pattern: Pattern,
        options: SearchOptions,
        name: str,
        nodes: list[Any] | None,
        same_attribute: _SameAttribute | None = None,
    ) -> None:
        self.pattern, self.nodes = pattern, nodes
        self._anchors = pattern.anchors(options.match_output)
        same = same_attribute or _same_attribute(pattern.owner, graph.owning_module)
        self.matches = self._search(graph, options, name, same)

    def _search(self, graph: Graph, options: SearchOptions, name: str, same: _SameAttribute | None) -> Matches:
        pattern = self.pattern
        try:
            return _core.find_matches(
                graph, pattern.compiled, pattern.signatures, _same_target, same, options.bits, name
            )
        except KeyError as error:
            (place,) = error.args
            if type(place) is not int:  # from the objects that were compared
                raise
        raise KeyError(pattern.nodes[place - 1])

    @property
    def anchor(self) -> Any:
        """The first anchor of the pattern."""
        return self._anchors[0]

    def __len__(self) -> int:
        return len(self.matches)

    def nodes_map(self, index: int) -> dict[Any, Any]:
        """What the pattern's nodes stand for in one match."""
        nodes_map = self.matches.map(index, self.pattern.nodes, self.nodes)
        if self.nodes is not None:
            for key in self.pattern.placeholders:
                if isinstance(nodes_map.get(key), (list, tuple, dict, slice)):
                    nodes_map[key] = _with_nodes(nodes_map[key], self.nodes)
        return nodes_map

    def match(self, index: int) -> Match:
        nodes_map = self.nodes_map(index)
        return Match(
            self._anchors,
            nodes_map,
            [nodes_map.get(node) for node in self.pattern.placeholders],
            [nodes_map[node] for node in self.pattern.returning],
        )

    def __iter__(self) -> Iterator[Match]:
        return map(self.match, range(len(self)))

    def report(self) -> MatchReport:
        """How the search went, and how far its best failed attempt came."""
        reason, why, pattern_id, node_id, operand, _, pairs = self.matches.best()
        pattern_node: Any = None if pattern_id is None else self.pattern.nodes[pattern_id - 1]
        graph_node: Any = None if node_id is None else self._node(node_id)
        matched = {self.pattern.nodes[a - 1]: self._node(b) for a, b in pairs}
        refused = {_without_nodes(why): count for why, count in self.matches.refused().items()}
        lines = [f"{len(self)} match{'' if len(self) == 1 else 'es'}"]
        if pattern_node is not None:
            told = why.replace("%P", pattern_node.name).replace("%N", getattr(graph_node, "name", "?"))
            lines.append(f"the best failed attempt: {told}")
            lines.append(f"    pattern: {pattern_node.format_node()}")
            lines += [f"    graph:   {graph_node.format_node()}"] if graph_node is not None else []
            lines += [f"    at argument {operand} of it"] if operand is not None else []
            lines += [f"    matched by then: {a.name} -> {b.name}" for a, b in matched.items()]
        lines += [f"{count} refused: {why}" for why, count in refused.items()]
        found = None if pattern_node is None else reason
        return MatchReport(len(self), found, pattern_node, graph_node, operand, matched, refused, "\n".join(lines))

    def _node(self, node_id: int) -> Any:
        return self.nodes[node_id - 1] if self.nodes is not None else self.matches.node(node_id)


def _without_nodes(why: str) -> str:
    return (
        why.replace("'%N', in the place of '%P',", "an inner node").replace("'%N'", "a node").replace("'%P'", "a node")
    )


def _with_nodes(value: Any, nodes: list[Any]) -> Any:
    """A literal with the nodes of a torch graph in the place of ours."""
    from torch.fx.node import map_aggregate

    def other(leaf: Any) -> Any:
        return nodes[int.from_bytes(leaf._id, sys.byteorder) - 1] if isinstance(leaf, _core.Node) else leaf

    return map_aggregate(value, other)


def find(graph: Any, pattern: Pattern, options: SearchOptions, name: str = "") -> Found:
    """Find a pattern in a graph of ours, or of torch, or in what has one."""
    if isinstance(graph, Graph):
        return Found(graph, pattern, options, name, None)
    source = graph_of(graph)
    if isinstance(source, Graph):
        return Found(source, pattern, options, name, None)
    from fastexport import _torch

    return Found(_torch.from_fx(source), pattern, options, name, list(source.nodes))


class SubgraphMatcher:
    """Finds a pattern in graphs: the counterpart of torch.fx.passes.utils.matcher_utils.SubgraphMatcher.

    Nodes are the same when they call the same function with the same arguments, a placeholder of the pattern standing
    for any value. What a match has inside may be used inside only, and no way leads from it back into it.

    Example:
        >>> import operator
        >>> def relu_of_sum(g):
        ...     x, y = g.placeholder("x"), g.placeholder("y")
        ...     return g, g.call_function(abs, (g.call_function(operator.add, (x, y)),))
        >>> pattern, result = relu_of_sum(Graph())
        >>> _ = pattern.output(result)
        >>> graph, result = relu_of_sum(Graph())
        >>> _ = graph.output(graph.call_function(operator.neg, (result,)))
        >>> [match.returning_nodes for match in SubgraphMatcher(pattern).match(graph)]
        [[abs_1]]
    """

    def __init__(
        self,
        pattern: Any,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
        *,
        policy: Policy = "safe",
    ) -> None:
        """
        Args:
            pattern: a graph, a GraphModule, an ExportedProgram or a function to be traced; of ours or of torch.
            match_output: the output of the pattern is part of it.
            match_placeholder: a placeholder of the pattern stands for placeholders only.
            remove_overlapping_matches: of matches that share a node only the first is given.
            ignore_literals: any literal will do where the pattern has one.
            policy: "safe" compares literals with their types at every depth, looks into dicts and slices, takes keyword
                arguments in any order and knows the parameters of Python functions; "torch" finds what torch.fx 2.13
                finds, and fails where it does.

        Raises:
            ValueError: the pattern has no nodes, or some that nothing uses.
            TypeError: it is no pattern.
        """
        check_policy(policy)
        self.pattern = graph_of(pattern)
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        self.policy: Policy = policy
        prepared = ready(self.pattern, policy)
        self.pattern_placeholder_nodes = prepared.placeholders
        self.pattern_returning_nodes = prepared.returning
        self.pattern_anchors = prepared.anchors(match_output)

    def match(self, graph: Any, node_name_match: str = "") -> list[Match]:
        """Find the pattern.

        Args:
            graph: a graph of ours or of torch, or a GraphModule or ExportedProgram.
            node_name_match: an anchor also stands for a node that has this in its name, whatever it calls.

        Returns:
            The matches, in the order of their first anchors in the graph.

        Raises:
            KeyError: with the policy "torch", where torch.fx raises it: no anchor leads to some node of the pattern.
        """
        with no_collection():
            return list(self._find(graph, node_name_match))

    def explain(self, graph: Any, node_name_match: str = "") -> MatchReport:
        """Tell why the pattern was not found, or not found more often.

        Args:
            graph, node_name_match: as for `match`.
        """
        return self._find(graph, node_name_match).report()

    def _find(self, graph: Any, name: str) -> Found:
        options = SearchOptions(
            self.match_output,
            self.match_placeholder,
            self.ignore_literals,
            not self.remove_overlapping_matches,
            self.policy,
        )
        return find(graph, Pattern(self.pattern, self.policy), options, name)


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A `SubgraphMatcher` whose pattern names nodes of interest: its last result is a dict from names to nodes.

    ``match.name_node_map`` then has the nodes of the graph under these names. Source: the class of that name in
    torch/fx/passes/utils/matcher_with_name_node_map_utils.py of torch 2.13.

    Attributes:
        name_node_map: name -> node of ``pattern``, which is a copy without that last result.
    """

    def __init__(
        self,
        pattern_gm: Any,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
        *,
        policy: Policy = "safe",
    ) -> None:
        """
        Args:
            pattern_gm: as the pattern of `SubgraphMatcher`; it returns a tuple of one result or more, and the dict.
            match_output, match_placeholder, remove_overlapping_matches, ignore_literals, policy: as there.

        Raises:
            ValueError: the pattern returns something else.
        """
        pattern, self.name_node_map = _split_names(graph_of(pattern_gm))
        super().__init__(
            pattern,
            match_output,
            match_placeholder,
            remove_overlapping_matches,
            ignore_literals,
            policy=policy,
        )

    def match(self, graph: Any, node_name_match: str = "") -> list[Match]:
        """As `SubgraphMatcher.match`; ``name_node_map`` of each match is filled in."""
        matches = super().match(graph, node_name_match)
        for match in matches:
            match.name_node_map = {name: match.nodes_map[node] for name, node in self.name_node_map.items()}
        return matches


def _split_names(source: Any) -> tuple[Graph, dict[str, Any]]:
    """A copy of a pattern without its last result, and that result."""
    if isinstance(source, Graph):
        graph = source._copy(False)
    else:
        from fastexport import _torch

        graph = _torch.from_fx(source)
    output = graph.output_node()
    results: Any = output.args[0]
    out_spec = getattr(getattr(getattr(source, "_codegen", None), "pytree_info", None), "out_spec", None)
    if out_spec is not None:
        from torch.utils import _pytree

        results = _pytree.tree_unflatten(results, out_spec)
    if not isinstance(results, (list, tuple)) or len(results) < 2 or not isinstance(results[-1], dict):
        raise ValueError("the pattern must return a tuple whose last item is a dict from names to nodes")
    *rest, names = results
    output.args = (tuple(_pytree.tree_leaves(rest)) if out_spec is not None else tuple(rest),)
    return graph, dict(names)
