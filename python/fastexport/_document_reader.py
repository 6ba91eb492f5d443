"""The reader of documents of graphs; see `_document`. Nothing in one is run, or imported by name."""

from __future__ import annotations

import struct
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fastexport import _pickle
from fastexport._document_types import FORMAT, SYMBOLIC, VALUES, VERSION, Bad, bad, read_text, read_type, shown
from fastexport._dtypes import Device, DType, Layout, MemoryFormat, to_torch
from fastexport._errors import FastExportError, FormatError
from fastexport._functions import function_named
from fastexport._graph import Graph
from fastexport._meta_json import MetadataText, NodeSource, decode_value
from fastexport._operators import Operator
from fastexport._tensor_meta import TensorMeta

_GRAPH_KEYS = {"nodes", "subgraphs", "codegen"}
_NODE_KEYS = {"op", "target", "name", "args", "kwargs", "type", "users", "meta"}


def read_document(document: Any) -> Graph:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else document
        raise FormatError(
            f"no document of a graph: its format is {shown(found)}, not {FORMAT!r}", kind="format", json_path="$"
        )
    if type(document.get("version")) is not int or document["version"] != VERSION:
        raise FormatError(
            f"the document is of version {shown(document.get('version'))}; this fastexport reads version {VERSION}",
            kind="version",
            json_path="$",
        )
    items = document.get("graphs")
    if not isinstance(items, list) or not items or document.keys() != {"format", "version", "graphs"}:
        raise FormatError("a document has a list of graphs", kind="type", json_path="$")
    graphs: list[Graph] = []
    below: list[dict[str, int]] = []  # the places of each one's subgraphs
    for at, item in enumerate(items):
        path = f"$.graphs[{at}]"
        if not isinstance(item, dict) or not item.keys() <= _GRAPH_KEYS or not isinstance(item.get("nodes"), list):
            raise FormatError(f"{path} is no graph, which has a list of nodes", kind="type", json_path=path)
        below.append(_read_places(item.get("subgraphs", []), f"{path}.subgraphs", range(at + 1, len(items))))
        graphs.append(_read_graph(item, path))
    alone = set(range(1, len(items))).difference(*(places.values() for places in below))
    if alone:
        path = f"$.graphs[{min(alone)}]"
        raise FormatError(f"{path} is a subgraph of no other", kind="value", json_path=path)
    for graph, places in zip(graphs, below, strict=True):
        if places:
            graph.subgraphs = {name: graphs[place] for name, place in places.items()}
    return graphs[0]


def _read_places(value: Any, path: str, allowed: range) -> dict[str, int]:
    """The names of subgraphs and where in the document these stand: behind the graph, so that no graph has itself."""
    try:
        pairs = [(_decode(name, 0), place) for name, place in value] if isinstance(value, list) else [value]
        found = dict(pairs)
        if len(found) == len(pairs) and all(type(name) is str for name in found):
            if all(type(place) is int and place in allowed for place in found.values()):
                return found
    except (ValueError, LookupError, TypeError, ArithmeticError, struct.error):
        pass
    raise FormatError(f"{path}: {shown(value)} does not name graphs behind it", kind="value", json_path=path)


def _read_graph(item: dict[str, Any], path: str) -> Graph:
    nodes = item["nodes"]
    entries, metas, names = [], [], set()
    for at, node in enumerate(nodes):
        where = f"{path}.nodes[{at}]"
        try:
            entry, meta = _read_node(node, len(nodes))
            if entry[2] in names:
                raise Bad(f"the name {entry[2]!r} is of another node, too")
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error) as error:
            raise FormatError(f"{where}: {error}", kind="value", json_path=where) from error
        names.add(entry[2])
        entries.append(entry)
        metas.append(meta)
    try:
        graph = _pickle.rebuild(Graph, _pickle.VERSION, entries)
    except (ValueError, TypeError, FastExportError) as error:
        raise FormatError(f"{path}: the nodes make no graph: {error}", kind="graph", json_path=path) from error
    for node, meta in zip(graph.nodes, metas, strict=True):
        if meta:
            node.meta = meta
    if "codegen" in item:
        from fastexport._codegen_json import read_codegen

        try:
            graph.set_codegen(read_codegen(item["codegen"]))
        except (ValueError, TypeError, FastExportError) as error:
            raise FormatError(f"{path}.codegen: {error}", kind="value", json_path=f"{path}.codegen") from error
    return graph


def _read_node(item: Any, count: int) -> tuple[tuple[Any, ...], dict[Any, Any]]:
    if not isinstance(item, dict) or not item.keys() <= _NODE_KEYS:
        raise Bad(f"{shown(item)} is no node")
    op, name, args, users = (item.get(key) for key in ("op", "name", "args", "users"))
    target = _decode(item.get("target"), count)
    name = _decode(name, count)
    if not isinstance(op, str) or not isinstance(name, str) or not isinstance(args, (list, types.NoneType)):
        raise Bad("a node has an op and a name, which are strings, and a list of args")
    if op == "call_function" and not callable(target):
        raise Bad(f"the target {shown(target)} can't be called")
    kwargs = _read_dict(item.get("kwargs", []), count)
    if not all(type(key) is str for key in kwargs):
        raise Bad("a keyword is no string")
    if users is not None and not (isinstance(users, list) and all(type(at) is int and 0 <= at < count for at in users)):
        raise Bad(f"{shown(users)} is no order of users")
    kind = read_type(item["type"]) if "type" in item else None
    meta = _read_dict(item.get("meta", []), count)
    return (op, target, name, tuple(_decode(arg, count) for arg in args or ()), kwargs, kind, users), meta


def _read_list(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list):
        raise Bad(f"{shown(value)} is no list")
    return [_decode(item, count) for item in value]


def _read_dict(value: Any, count: int) -> dict[Any, Any]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise Bad(f"{shown(value)} is no list of pairs")
    found = {_decode(key, count): _decode(item, count) for key, item in value}
    if len(found) != len(value):
        raise Bad("a key occurs twice")
    return found


def _read_integer(value: Any) -> int:
    if isinstance(value, dict) and value.keys() == {"int"} and isinstance(value["int"], str):
        return int(value["int"], 16)
    return value if type(value) is int else bad(value, "integer")


def _read_float(value: Any) -> float:
    if isinstance(value, dict) and value.keys() == {"float"}:
        return float(struct.unpack(">d", bytes.fromhex(read_text(value["float"])))[0])
    return value if type(value) is float else bad(value, "float")


def _read_complex(value: Any) -> complex:
    if not isinstance(value, list) or len(value) != 2:
        return bad(value, "complex number")
    return complex(_read_float(value[0]), _read_float(value[1]))


def _read_node_index(value: Any, count: int) -> _pickle.NodeIndex:
    if type(value) is not int or not 0 <= value < count:
        raise Bad(f"there is no node {shown(value)}")
    return _pickle.NodeIndex(value)


def _read_torch(value: Any, count: int) -> Any:
    import torch  # noqa: F401 # it is to be there

    found = _decode(value, count)
    return to_torch(found) if isinstance(found, DType | Layout | MemoryFormat | Device) else bad(value, "torch object")


def _read_size(value: Any, count: int) -> Any:
    import torch

    return torch.Size(_read_list(value, count))


def _read_tensor_metadata(value: Any, count: int) -> Any:
    from torch.fx.passes.shape_prop import TensorMetadata

    return TensorMetadata(*_read_list(value, count))


def _read_torch_operator(value: Any) -> Any:
    found = Operator(read_text(value))
    return found.to_torch() if found.kind in ("operator", "higher_order") else bad(value, "operator of torch")


def _read_value(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        return bad(value, "value")
    found = decode_value(*value)
    if not isinstance(found, VALUES):
        return bad(value, "value")
    numbers = (*found.shape, *found.stride, found.storage_offset) if isinstance(found, TensorMeta) else (found,)
    for number in numbers:
        if isinstance(number, SYMBOLIC):
            number.expr  # noqa: B018 # its text is read now, to be refused here if it is none
    return found


_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "int": lambda value, count: _read_integer({"int": value}),
    "float": lambda value, count: _read_float({"float": value}),
    "str": lambda value, count: read_text({"str": value}),
    "complex": lambda value, count: _read_complex(value),
    "bytes": lambda value, count: bytes.fromhex(read_text(value)),
    "bytearray": lambda value, count: bytearray.fromhex(read_text(value)),
    "ellipsis": lambda value, count: ...,
    "tuple": lambda value, count: tuple(_read_list(value, count)),
    "dict": _read_dict,
    "ordered_dict": lambda value, count: OrderedDict(_read_dict(value, count)),
    "slice": lambda value, count: slice(*_three(_read_list(value, count))),
    "range": lambda value, count: range(*map(_read_integer, _three(value))),
    "set": lambda value, count: set(_read_list(value, count)),
    "frozenset": lambda value, count: frozenset(_read_list(value, count)),
    "node": _read_node_index,
    "dtype": lambda value, count: DType(read_text(value)),
    "layout": lambda value, count: Layout(read_text(value)),
    "memory_format": lambda value, count: MemoryFormat(read_text(value)),
    "device": lambda value, count: Device(read_text(value)),
    "operator": lambda value, count: Operator(read_text(value)),
    "metadata_text": lambda value, count: MetadataText(read_text(value)),
    "node_source": lambda value, count: NodeSource.from_dict(value),
    "value": lambda value, count: _read_value(value),
    "torch_operator": lambda value, count: _read_torch_operator(value),
    "function": lambda value, count: function_named(read_text(value)),
    "size": _read_size,
    "tensor_metadata": _read_tensor_metadata,
    "torch": _read_torch,
    "type": lambda value, count: read_type(value),
}


def _three(value: Any) -> list[Any]:
    return value if isinstance(value, list) and len(value) == 3 else bad(value, "list of three")


def _decode(value: Any, count: int) -> Any:
    if isinstance(value, list):
        return [_decode(item, count) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise Bad(f"{shown(value)} is no object of one key")
    ((word, inner),) = value.items()
    if word not in _DECODERS:
        raise Bad(f"{word!r} is no kind of value")
    return _DECODERS[word](inner, count)
