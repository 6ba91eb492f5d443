"""Source partitions of a graph for torch's and torchao's own functions, by the index of `fastexport._partitions`.

While torchao's own quantizer annotates, nothing writes what the index is made from, so one index serves all its
questions. Everywhere else each question walks the graph anew.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from torch.fx import Graph, Node
from torch.fx.passes.utils import source_matcher_utils
from torch.fx.passes.utils.source_matcher_utils import SourcePartition

from fastexport._partitions import Index, is_plain, sequences
from fastexport.acceleration._known import are_known, is_known
from fastexport.acceleration._replacement import Replacement, behind
from fastexport.acceleration._verify import verify_method


def _once(nodes: list[Node]) -> list[Node]:
    """As torch has them: the order in which a set lists them."""
    return list(set(nodes))


# ---- while a quantizer of torchao annotates


class _Annotating(threading.local):
    """The index of the graph being annotated in this thread, if any; made at the first question."""

    depth = 0
    index: Index | None = None


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
    if index is None or type(wanted_sources) is not list or not all(map(is_plain, wanted_sources)):
        return stock(graph, wanted_sources, filter_fn)
    if _annotating.depth and not filter_fn:
        return {source: list(partitions) for source, partitions in index.partitions(wanted_sources).items()}
    return index.find(wanted_sources, filter_fn)


def _make_index(graph: Any) -> Index | None:
    if not isinstance(graph, Graph):
        return None
    try:
        return Index(graph, Node, SourcePartition, _once, strict=True)
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
    return sequences(list(steps.values()))


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
