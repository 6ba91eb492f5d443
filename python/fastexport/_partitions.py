"""Source partitions of a graph: the nodes that one call or module of the source became, found by the notes in meta.

torch reads the whole graph for every list of sources asked for, and torchao tries every combination of partitions. Here
the nodes are grouped by where they come from in one walk, a question is answered per group, and only partitions with an
edge between them are put together. The order of everything is torch's: groups by their first node, nodes by position,
sequences lexicographically. Source: torch/fx/passes/utils/source_matcher_utils.py of torch 2.13 and
torchao/quantization/pt2e/graph_utils.py of torchao 0.18.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import BuiltinFunctionType
from typing import Any

from fastexport._arguments import list_of
from fastexport._core import Node
from fastexport._loaded import loaded
from fastexport._passes import _own_graph

__all__ = ["SourcePartition", "check_subgraphs_connected", "find_sequential_partitions", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The nodes that one call of a source became.

    Attributes:
        nodes: the nodes, in the order of the graph.
        source: what they come from, as it was asked for.
        input_nodes: what they use of other nodes, but for get_attr nodes.
        output_nodes: those that other nodes use.
        params: the get_attr nodes among them.
    """

    nodes: list[Any]
    source: Any
    input_nodes: list[Any] = field(default_factory=list)
    output_nodes: list[Any] = field(default_factory=list)
    params: list[Any] = field(default_factory=list)


def get_source_partitions(
    graph: Any, wanted_sources: list[Any], filter_fn: Callable[[Any], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """Find the nodes that functions or modules of the source became.

    Where ``meta["source_fn_stack"]`` is not there, the function's name in ``meta["torch_fn"]`` tells, and for calls of
    functions the innermost module of ``meta["nn_module_stack"]``.

    Args:
        graph: a fastexport Graph or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram.
        wanted_sources: functions, classes of modules, and names such as "linear".
        filter_fn: partitions of which it refuses a node are left out.

    Returns:
        A dict from each source that was found to its partitions.

    Raises:
        TypeError: graph is none of these.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> add = g.call_function(operator.add, (g.placeholder("x"), 1))
        >>> add.meta["source_fn_stack"] = [("add_1", operator.add)]
        >>> [found.nodes for found in get_source_partitions(g, [operator.add])[operator.add]]
        [[add]]
    """
    index = _index_of("get_source_partitions", graph)
    return index.find(list_of("wanted_sources", wanted_sources, "functions, classes and names"), filter_fn)


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether a node of the second partition uses one of the first.

    Raises:
        TypeError: one is no partition, as `get_source_partitions` finds them.
    """
    for partition in (subgraph1, subgraph2):
        if not hasattr(partition, "source") or not hasattr(partition, "nodes"):  # torch's has them, too
            kind = type(partition).__name__
            raise TypeError(f"check_subgraphs_connected() takes two partitions of get_source_partitions(), not {kind}")
    second = set(subgraph2.nodes)
    return any(user in second for node in subgraph1.nodes for user in node.users)


def find_sequential_partitions(
    gm: Any,
    partition_types: list[Any],
    include_functional_equivalent: bool = True,
    filter_fn: Callable[[Any], bool] | None = None,
) -> list[tuple[SourcePartition, ...]]:
    """Find partitions of given sources of which each feeds the next, such as convolution, batch norm, relu.

    Args:
        gm: as for `get_source_partitions`.
        partition_types: the sources in their order.
        include_functional_equivalent: torch.nn.ReLU also stands for torch.nn.functional.relu, and so on, for the
            classes and functions that torchao takes for one. (torchao 0.18 itself takes no notice of this argument.)
        filter_fn: as for `get_source_partitions`.

    Returns:
        Tuples of one partition for each source.

    Raises:
        ValueError: two of the sources are the same, or stand for the same.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> neg = g.call_function(operator.neg, (g.placeholder("x"),))
        >>> pos = g.call_function(operator.pos, (neg,))
        >>> neg.meta["torch_fn"], pos.meta["torch_fn"] = ("neg_1", "function.neg"), ("pos_1", "function.pos")
        >>> [[p.nodes for p in found] for found in find_sequential_partitions(g, ["neg", "pos"])]
        [[[neg], [pos]]]
    """
    partition_types = list_of("partition_types", partition_types, "functions, classes and names")
    same = _equivalents() if include_functional_equivalent else ()
    groups = [[kind, *(other for group in same if kind in group for other in group)] for kind in partition_types]
    taken: set[Any] = set()
    for group in groups:
        if not taken.isdisjoint(group):
            raise ValueError(f"partition_types {partition_types} has a source twice, or two that stand for each other")
        taken.update(group)
    if not groups:
        return [()]
    index = _index_of("find_sequential_partitions", gm)
    return sequences([[p for found in index.find(group, filter_fn).values() for p in found] for group in groups])


def _equivalents() -> list[tuple[Any, ...]]:
    """Sources that stand for each other; those of torch once it is loaded."""
    arithmetic: list[tuple[Any, ...]] = [
        (operator.add, operator.iadd, "add", "add_"),
        (operator.mul, operator.imul, "mul", "mul_"),
    ]
    torch = loaded("torch")
    if torch is None:
        return arithmetic
    nn, functional = torch.nn, torch.nn.functional
    return [
        (nn.Conv1d, functional.conv1d),
        (nn.Conv2d, functional.conv2d),
        (nn.AdaptiveAvgPool2d, functional.adaptive_avg_pool2d),
        (nn.ReLU, functional.relu, functional.relu_),
        (nn.BatchNorm2d, functional.batch_norm),
        (nn.Hardtanh, functional.hardtanh, functional.hardtanh_),
        (torch.add, *arithmetic[0]),
        (torch.mul, *arithmetic[1]),
    ]


def _index_of(function: str, graph: Any) -> Index:
    own = _own_graph(graph, function)
    if own is not None:
        return Index(own, Node, SourcePartition, _in_order)
    import torch.fx

    from fastexport import _torch

    return Index(_torch._parts(graph).graph, torch.fx.Node, SourcePartition, _in_order)


def _in_order(nodes: list[Any]) -> list[Any]:
    return list(dict.fromkeys(nodes))


# ---- the index


class Unusual(Exception):
    """The graph has something whose handling is better left to torch."""


class Index:
    """The nodes of a graph, grouped by the kind of source they have.

    A kind is ``(True, source, None)`` for a node with a stack of source functions, else ``(False, name of the torch
    function, type of the innermost module)``. Its entries are (position, name of the call, name of the module).

    Args:
        graph: a graph of ours or torch's.
        node_type: the class of its nodes.
        make: makes a partition of (nodes, source, inputs, outputs, params).
        unique: gives the nodes of a list once each, as a list.
        strict: raise `Unusual` for sources whose comparison may run anybody's code, and for None in their place.
    """

    def __init__(
        self,
        graph: Any,
        node_type: type,
        make: Callable[..., Any],
        unique: Callable[[list[Any]], list[Any]],
        *,
        strict: bool = False,
    ) -> None:
        self.graph = graph
        self.nodes = list(graph.nodes)
        self._node_type, self._make, self._unique = node_type, make, unique
        self._kinds: dict[tuple[bool, Any, Any], list[tuple[int, Any, Any]]] = {}
        self._answers: dict[tuple[Any, ...], dict[Any, list[Any]]] = {}
        kinds = self._kinds
        for position, node in enumerate(self.nodes):
            kind, call, module = _kind(node, strict)
            if kind is not None:
                entries = kinds.get(kind)
                if entries is None:
                    kinds[kind] = entries = []
                entries.append((position, call, module))
        if strict and not all(is_plain(part) for kind in kinds for part in kind[1:]):
            raise Unusual

    def is_of(self, graph: Any) -> bool:
        return self.graph is graph and self.nodes == list(graph.nodes)

    def partitions(self, wanted: list[Any]) -> dict[Any, list[Any]]:
        """The answer to a question that was asked before is the same objects."""
        key = tuple(wanted)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self.find(wanted, None)
        return answer

    def find(self, wanted: list[Any], keep: Callable[[Any], bool] | None) -> dict[Any, list[Any]]:
        """The partitions of each source."""
        matches: list[tuple[int, Any, Any]] = []
        several = False
        for kind, entries in self._kinds.items():
            source, column = _match(kind, wanted)
            if column:
                several = bool(matches)
                matches += [(entry[0], source, entry[column]) for entry in entries]
        if several:
            matches.sort(key=_position)
        nodes = self.nodes
        groups: dict[Any, dict[Any, list[Any]]] = {}
        for position, source, name in matches:
            groups.setdefault(source, {}).setdefault(name, []).append(nodes[position])
        if keep:
            groups = {
                source: {name: group for name, group in named.items() if all(map(keep, group))}
                for source, named in groups.items()
            }
        return {
            source: [self._partition(group, source) for group in named.values()] for source, named in groups.items()
        }

    def _partition(self, nodes: list[Any], source: Any) -> Any:
        kind: Any = self._node_type
        inside: Any = nodes if len(nodes) < 8 else frozenset(nodes)
        inputs: list[Any] = []
        outputs: list[Any] = []
        params: list[Any] = []
        for node in nodes:
            for argument in node.args:
                if isinstance(argument, kind) and argument not in inside and argument.op != "get_attr":
                    inputs.append(argument)
            if node.op == "get_attr":
                params.append(node)
            elif any(user not in inside for user in node.users):
                outputs.append(node)
        return self._make(nodes, source, self._unique(inputs), self._unique(outputs), self._unique(params))


def _kind(node: Any, strict: bool) -> tuple[tuple[bool, Any, Any] | None, Any, Any]:
    meta = node.meta
    stack = meta.get("source_fn_stack")
    if stack is not None:
        innermost = stack[-1]
        if strict and innermost[1] is None:
            raise Unusual
        return (True, innermost[1], None), innermost[0], None
    name = call = module_type = module = None
    torch_fn = meta.get("torch_fn")
    if torch_fn is not None:
        call, function = torch_fn
        name = function.split(".")[1]
    if node.op == "call_function":
        modules = meta.get("nn_module_stack")
        if modules:
            module, module_type = next(reversed(modules.values()))
            if strict and module_type is None:
                raise Unusual
    if name is None and module_type is None:
        return None, None, None
    return (False, name, module_type), call, module


def _match(kind: tuple[bool, Any, Any], wanted: list[Any]) -> tuple[Any, int]:
    """The source a kind is listed under, and the column of the name to list it by; 0 if it is not wanted."""
    from_stack, source, module_type = kind
    if source is not None and source in wanted:
        return source, 1
    if from_stack or module_type is None:
        return None, 0
    for candidate in wanted:
        if not isinstance(candidate, type):
            if module_type == candidate:
                return candidate, 2
        elif isinstance(module_type, type):
            if issubclass(module_type, candidate):
                return candidate, 2
        elif isinstance(module_type, str) and module_type == f"{candidate.__module__}.{candidate.__qualname__}":
            return candidate, 2
    return None, 0


def _position(match: tuple[int, Any, Any]) -> int:
    return match[0]


def is_plain(source: Any) -> bool:
    """Whether comparing and hashing it has no code of anybody's in it."""
    kind: Any = type(source)
    return kind in (str, BuiltinFunctionType) or source is None or kind.__eq__ is object.__eq__


# ---- sequences


def sequences(steps: list[list[Any]]) -> list[tuple[Any, ...]]:
    """The members of the product of the steps in which each partition feeds the next, in the product's order."""
    if not steps:
        return [()]
    if not all(steps):
        return []
    found: list[tuple[Any, ...]] = [(partition,) for partition in steps[0]]
    ends = list(range(len(steps[0])))
    for step, following in zip(steps, steps[1:], strict=False):
        successors = _successors(step, following)
        found, ends = (
            [(*sequence, following[i]) for sequence, end in zip(found, ends, strict=True) for i in successors[end]],
            [i for end in ends for i in successors[end]],
        )
    return found


def _successors(step: list[Any], following: list[Any]) -> list[list[int]]:
    homes: dict[Any, list[int]] = {}
    for i, partition in enumerate(following):
        for node in partition.nodes:
            homes.setdefault(node, []).append(i)
    nowhere: Iterable[int] = ()
    return [
        sorted({i for node in partition.nodes for user in node.users for i in homes.get(user, nowhere)})
        for partition in step
    ]
