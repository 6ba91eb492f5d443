"""Data of nodes for Model Explorer: findings, dtypes, sizes.

The fields are those of model_explorer's node_data_builder.py (ai-edge-model-explorer 0.1.34).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastexport._dtypes import DType
from fastexport._errors import Fault
from fastexport._graph import Graph
from fastexport._node_facts import NodeFacts, first_value
from fastexport._tensor_meta import TensorMeta
from fastexport._tree import named_graphs

_ERROR, _WARNING = {"bgColor": "#c62828", "textColor": "#ffffff"}, {"bgColor": "#f9c846", "textColor": "#000000"}
_SCALE = [{"stop": 0, "bgColor": "#f1f5fb"}, {"stop": 1, "bgColor": "#2f6fd0"}]
_NUMBERS = {"gradient": _SCALE}
_TEXTS = {"showExpandedSummaryOnGroupNode": True, "showLabelCountColumnsInChildrenStatsTable": True}
_QUANTIZED = {"bgColor": "#9fd8a8", "textColor": "#000000"}
_FAMILIES = (  # of dtypes, the first that fits
    (lambda dtype: dtype.name == "bool", {"bgColor": "#e3d3f2", "textColor": "#000000"}),
    (lambda dtype: dtype.itemsize == 1, _QUANTIZED),
    (lambda dtype: dtype.is_complex, {"bgColor": "#f2b8c6", "textColor": "#000000"}),
    (lambda dtype: not dtype.is_floating_point, {"bgColor": "#f7dfb0", "textColor": "#000000"}),
    (lambda dtype: dtype.itemsize == 2, {"bgColor": "#b9dcf2", "textColor": "#000000"}),
    (lambda dtype: dtype.itemsize == 4, {"bgColor": "#dfe7ef", "textColor": "#000000"}),
)
_OTHER = {"bgColor": "#c4cad2", "textColor": "#000000"}

Results = dict[str, dict[str, Any]]


def data_of(graph: Graph, name: str, findings: Sequence[Fault]) -> dict[str, dict[str, Any]]:
    """Of each set of data that is not empty, what is told of the nodes of each graph, by the id of that."""
    sets: dict[str, dict[str, Any]] = {title: {} for title in ("findings", "dtype", "output bytes", "weight bytes")}
    for key, inner in named_graphs(graph, name):
        results = {"findings": _findings(inner, findings, key != name), **_values(inner)}
        for title, found in results.items():
            if found:
                style = _NUMBERS if title.endswith("bytes") else _TEXTS
                sets[title][key] = {"name": title, "results": found, **style}
    return {title: data for title, data in sets.items() if data}


def _findings(graph: Graph, findings: Sequence[Fault], is_inner: bool) -> Results:
    """A finding tells the name of its node; of which graph, its path in the document does."""
    found: dict[str, list[Fault]] = {}
    for fault in findings:
        if fault.node and is_inner == ("as_graph" in (fault.json_path or "")):
            found.setdefault(fault.node, []).append(fault)
    names = {node.name for node in graph.nodes} if found else set()
    return {
        name: {
            "value": ", ".join(dict.fromkeys(fault.code for fault in faults)),
            **(_ERROR if any(fault.is_error for fault in faults) else _WARNING),
        }
        for name, faults in found.items()
        if name in names
    }


def _values(graph: Graph) -> dict[str, Results]:
    facts = NodeFacts(graph)
    dtypes: Results = {}
    outputs: Results = {}
    weights: Results = {}
    known: dict[Any, tuple[dict[str, Any] | None, int | None]] = {}
    for place, node in enumerate(facts.nodes):
        raw = facts.rows[place][3]
        if raw is None:
            continue
        shown = known.get(raw) if raw else None
        if shown is None:
            shown = _of_text(raw) if raw and "(" not in raw else _of_value(first_value(node))
            known[raw] = shown
        dtype, nbytes = shown
        if dtype is not None:
            dtypes[node.name] = dtype
        if nbytes is not None and place in facts.weights:
            weights[node.name] = {"value": nbytes}
        elif nbytes is not None and node.op not in ("placeholder", "output", "get_attr"):
            outputs[node.name] = {"value": nbytes}
    return {"dtype": dtypes, "output bytes": outputs, "weight bytes": weights}


def _of_text(raw: str) -> tuple[dict[str, Any], int | None]:
    """The dtype as a result, and the bytes, of what a file has as ``CODE[SIZES]``."""
    code, _, sizes = raw.rstrip("]").partition("[")
    parts = sizes.split(", ") if sizes else []
    return _told(DType.from_code(int(code)), [int(part) if part.isdecimal() else None for part in parts])


def _of_value(value: Any) -> tuple[dict[str, Any] | None, int | None]:
    try:
        meta = value if isinstance(value, TensorMeta) else TensorMeta.of(value)
    except Exception:  # no tensor, or an object of a user's that may do anything
        return None, None
    return _told(meta.dtype, [size if isinstance(size, int) else None for size in meta.shape])


def _told(dtype: DType, sizes: Sequence[int | None]) -> tuple[dict[str, Any], int | None]:
    colours = next((colours for fits, colours in _FAMILIES if fits(dtype)), _OTHER)
    numbers = [size for size in sizes if size is not None]
    nbytes = dtype.itemsize * math.prod(numbers) if len(numbers) == len(sizes) else None
    return {"value": dtype.name, **colours}, nbytes
