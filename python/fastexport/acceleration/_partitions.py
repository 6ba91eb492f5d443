"""Source partitions of a graph: found through an index, and joined along edges.

torch reads the whole graph for every list of sources asked for, and torchao tries every combination of partitions.
Here the nodes are grouped by where they come from in one walk, a question is answered per group, and only partitions
with an edge between them are put together. The order of everything is torch's: groups by their first node, nodes by
position, sequences lexicographically.

While torchao's own quantizer annotates, nothing writes what the index is made from, so one index serves all its
questions. Everywhere else each question walks the graph anew.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType
from typing import Any

from torch.fx import Graph, Node
from torch.fx.passes.utils import source_matcher_utils
from torch.fx.passes.utils.source_matcher_utils import SourcePartition

from fastexport.acceleration._known import are_known, is_known
from fastexport.acceleration._replacement import Replacement, behind
from fastexport.acceleration._verify import verify_method

_Groups = dict[Any, list[SourcePartition]]

# ---- the index


class _Unusual(Exception):
    """The graph has something whose handling is better left to torch."""


class _Index:
    """The nodes of a graph, grouped by the kind of source they have.

    A kind is ``(True, source, None)`` for a node with a stack of source functions, else ``(False, name of the torch
    function, type of the innermost module)``. Its entries are (position, name of the call, name of the module).
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = list(graph.nodes)
        self._kinds: dict[tuple[bool, Any, Any], list[tuple[int, Any, Any]]] = {}
        self._answers: dict[tuple[Any, ...], _Groups] = {}
        kinds = self._kinds
        for position, node in enumerate(self.nodes):
            kind, call, module = _kind(node)
            if kind is not None:
                entries = kinds.get(kind)
                if entries is None:
                    kinds[kind] = entries = []
                entries.append((position, call, module))
        if not all(_is_plain(part) for kind in kinds for part in kind[1:]):
            raise _Unusual

    def is_of(self, graph: Graph) -> bool:
        return self.graph is graph and self.nodes == list(graph.nodes)

    def partitions(self, wanted: list[Any]) -> _Groups:
        """The answer to a question that was asked before is the same objects."""
        key = tuple(wanted)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self.find(wanted, None)
        return answer

    def find(self, wanted: list[Any], keep: Callable[[Node], bool] | None) -> _Groups:
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
        groups: dict[Any, dict[Any, list[Node]]] = {}
        for position, source, name in matches:
            groups.setdefault(source, {}).setdefault(name, []).append(nodes[position])
        if keep:
            groups = {
                source: {name: group for name, group in named.items() if all(map(keep, group))}
                for source, named in groups.items()
            }
        return {source: [_partition(group, source) for group in named.values()] for source, named in groups.items()}


def _kind(node: Node) -> tuple[tuple[bool, Any, Any] | None, Any, Any]:
    meta = node.meta
    stack = meta.get("source_fn_stack")
    if stack is not None:
        innermost = stack[-1]
        if innermost[1] is None:
            raise _Unusual
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
            if module_type is None:
                raise _Unusual
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


def _is_plain(source: Any) -> bool:
    """Whether comparing and hashing it has no code of anybody's in it."""
    kind: Any = type(source)
    return kind in (str, BuiltinFunctionType) or source is None or kind.__eq__ is object.__eq__


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    """What torch makes of the nodes; its sets are filled in its order, as their order shows in the lists."""
    inside: Any = nodes if len(nodes) < 8 else frozenset(nodes)
    inputs: set[Node] = set()
    outputs: set[Node] = set()
    params: set[Node] = set()
    for node in nodes:
        for argument in node.args:
            if isinstance(argument, Node) and argument not in inside and argument.op != "get_attr":
                inputs.add(argument)
        if node.op == "get_attr":
            params.add(node)
        elif any(user not in inside for user in node.users):
            outputs.add(node)
    return SourcePartition(nodes, source, list(inputs), list(outputs), list(params))


# ---- while a quantizer of torchao annotates


class _Annotating(threading.local):
    """The index of the graph being annotated in this thread, if any; made at the first question."""

    depth = 0
    index: _Index | None = None


_annotating = _Annotating()


@contextmanager
def _one_index() -> Iterator[None]:
    outer = _annotating.depth, _annotating.index
    _annotating.depth, _annotating.index = outer[0] + 1, None
    try:
        yield
    finally:
        _annotating.depth, _annotating.index = outer


def annotate(stock: Any, self: Any, model: Any) -> Any:
    """X86InductorQuantizer.annotate, asking one index of the graph for all source partitions"""
    if not _is_torchao_known() or not _has_torchaos_methods(self):
        return stock(self, model)
    with _one_index():
        return stock.__wrapped__(self, model)


def _is_torchao_known() -> bool:
    """Whether what annotate calls is known to write nothing but annotations."""
    return str(getattr(sys.modules.get("torchao"), "__version__", "")).startswith("0.18.")


def _has_torchaos_methods(quantizer: Any) -> bool:
    """Whether all that runs inside of annotate is torchao's: no other class's methods, no patched ones."""
    own = vars(quantizer)
    for kind in type(quantizer).__mro__[:-1]:
        for name, held in vars(kind).items():
            if callable(held) and not name.startswith("__") and (name in own or not _is_torchaos(held)):
                return False
    return True


def _is_torchaos(function: Any) -> bool:
    if behind(function) is not None:
        return True
    return isinstance(function, FunctionType) and str(function.__globals__.get("__name__")).startswith("torchao.")


# ---- the two functions


def get_source_partitions(stock: Any, graph: Any, wanted_sources: Any, filter_fn: Any = None) -> Any:
    """get_source_partitions, matching each kind of source once instead of each node"""
    index = _annotating.index
    if index is None or not index.is_of(graph):
        index = _make_index(graph)
        if _annotating.depth:
            _annotating.index = index
    if index is None or type(wanted_sources) is not list or not all(map(_is_plain, wanted_sources)):
        return stock(graph, wanted_sources, filter_fn)
    if _annotating.depth and not filter_fn:
        return {source: list(partitions) for source, partitions in index.partitions(wanted_sources).items()}
    return index.find(wanted_sources, filter_fn)


def _make_index(graph: Any) -> _Index | None:
    if not isinstance(graph, Graph):
        return None
    try:
        return _Index(graph)
    except Exception:  # whatever is wrong in the metadata, torch's own walk is the one to say so
        return None


_GRAPH_UTILS = {"_partitions_sequential": "96f4973c16f8b1ab"}
_CONNECTED = "45421a70373758aa"


def find_sequential_partitions(
    stock: Any, gm: Any, partition_types: Any, include_functional_equivalent: Any = True, filter_fn: Any = None
) -> Any:
    """find_sequential_partitions, going from partition to connected partition instead of through all combinations"""
    utils = stock.__wrapped__.__globals__
    if not (are_known(utils, _GRAPH_UTILS) and is_known(utils["check_subgraphs_connected"], _CONNECTED)):
        return stock(gm, partition_types, include_functional_equivalent, filter_fn)
    if not utils["_valid_type_sequence"](partition_types):
        raise ValueError(f"Invalid partition types: {partition_types}. Each type in the sequence must be unique")
    # As torchao does: types that are equal are one step of the sequence.
    steps: dict[Any, list[SourcePartition]] = {}
    for partition_type in partition_types:
        found = utils["get_source_partitions"](gm.graph, utils["_get_matching_types"](partition_type), filter_fn)
        steps[partition_type] = [partition for partitions in found.values() for partition in partitions]
    return _sequences(list(steps.values()))


def _sequences(steps: list[list[SourcePartition]]) -> list[tuple[SourcePartition, ...]]:
    """The members of the product of the steps in which each partition feeds the next, in the product's order."""
    if not steps:
        return [()]
    if not all(steps):
        return []
    sequences: list[tuple[SourcePartition, ...]] = [(partition,) for partition in steps[0]]
    ends = list(range(len(steps[0])))
    for step, following in zip(steps, steps[1:], strict=False):
        successors = _successors(step, following)
        sequences, ends = (
            [(*sequence, following[i]) for sequence, end in zip(sequences, ends, strict=True) for i in successors[end]],
            [i for end in ends for i in successors[end]],
        )
    return sequences


def _successors(step: list[SourcePartition], following: list[SourcePartition]) -> list[list[int]]:
    homes: dict[Node, list[int]] = {}
    for i, partition in enumerate(following):
        for node in partition.nodes:
            homes.setdefault(node, []).append(i)
    nowhere: list[int] = []
    return [
        sorted({i for node in partition.nodes for user in node.users for i in homes.get(user, nowhere)})
        for partition in step
    ]


_X86 = "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"

REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "source_partitions",
        (
            f"{source_matcher_utils.__name__}:get_source_partitions",
            "torchao.quantization.pt2e.graph_utils:get_source_partitions",
            f"{_X86}:get_source_partitions",
            "torchao.testing.pt2e._xnnpack_quantizer_utils:get_source_partitions",
        ),
        get_source_partitions,
        ("2efa189daa77e24f",),
    ),
    Replacement(
        "sequential_partitions",
        (
            "torchao.quantization.pt2e.graph_utils:find_sequential_partitions",
            "torchao.quantization.pt2e:find_sequential_partitions",
            f"{_X86}:find_sequential_partitions",
        ),
        find_sequential_partitions,
        ("4668488252915a5e",),
        since="torchao 0.18",
    ),
    Replacement(
        "x86_annotate",
        (f"{_X86}:X86InductorQuantizer.annotate",),
        annotate,
        ("630d785b2122d043",),
        since="torchao 0.18",
        verify=verify_method,
    ),
)
