"""The writer of documents of graphs; see `_document`."""

from __future__ import annotations

import copy
import json
import math
import struct
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from fastexport import _pickle
from fastexport._document_types import FORMAT, VALUES, VERSION, Unwritable, described, str_json, text_of, type_json
from fastexport._dtypes import Device, DType, Layout, MemoryFormat, from_torch
from fastexport._errors import FormatError
from fastexport._functions import name_of_function
from fastexport._graph import Graph
from fastexport._loaded import loaded
from fastexport._meta_json import MetadataText, NodeSource, _encode_value
from fastexport._operators import Operator
from fastexport._tree import all_graphs

_DROPPED = ("_co_fields", "_tracer_cls", "_tracer_extras")  # what a tracer notes for a pickle of torch's
_STACKS = ("nn_module_stack", "source_fn_stack")
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
_EXACT_INT = 1 << 53


def document_text(graph: Graph, meta: bool) -> str:
    try:
        whole = copy.copy(graph)  # which no other thread edits
        graphs = all_graphs(whole)
    except RecursionError as error:
        raise FormatError(f"the graph can't be written: {error}", kind="depth") from error
    places = {id(each): place for place, each in enumerate(graphs)}
    paths = {id(whole): _Path(None, "")}
    texts: list[str] = []
    for each in graphs:
        path = paths[id(each)]
        below = (each.subgraphs or {}).items()
        texts.append(_graph_text(each, path, [[_encode(name), places[id(sub)]] for name, sub in below], meta))
        for name, sub in below:
            paths.setdefault(id(sub), _Path(path, name))
    head = f'{{"format": "{FORMAT}", "version": {VERSION}, "graphs": [\n'
    return head + ",\n".join(texts) + "]}"


class _Path(NamedTuple):
    """Where a graph stands, by the first way to it: in which other one, and under what name."""

    holder: _Path | None
    name: str

    def text(self) -> str:
        parts = []
        at: _Path | None = self
        while at is not None and at.holder is not None:
            parts.append(at.name)
            at = at.holder
        return ".".join(reversed(parts))

    def of_node(self, name: str) -> str:
        return name if self.holder is None else f"{self.text()}.{name}"


def _graph_text(graph: Graph, path: _Path, below: list[Any], meta: bool) -> str:
    more = {"subgraphs": below or None, "codegen": _codegen_json(graph, path)}
    entries = zip(graph.nodes, _pickle.node_entries(graph), strict=True)
    lines = [json.dumps(_node_json(node, entry, meta, path)) for node, entry in entries]
    tail = "".join(f', "{key}": {json.dumps(value)}' for key, value in more.items() if value is not None)
    return '{"nodes": [\n' + ",\n".join(lines) + f"\n]{tail}}}"


def _codegen_json(graph: Graph, path: _Path) -> dict[str, Any] | None:
    """What is written of the things that a graph has besides nodes and subgraphs: how its code nests arguments."""
    found = None
    for name, value in (graph.extras or {}).items():
        if name == "_codegen":
            from fastexport._codegen_json import codegen_json

            try:
                found = codegen_json(value)
            except (TypeError, ValueError, NotImplementedError) as error:
                more = "give it a plain one with set_codegen(fastexport.CodeGen())"
                raise FormatError(f"{_graph_at(path)} has {error}, which has no text; {more}", kind="value") from error
        elif name not in _DROPPED:
            raise FormatError(
                f"{_graph_at(path)} has {name} of {type(value).__name__}, which has no text", kind="value"
            )
    if getattr(graph, "__dict__", None):
        names = ", ".join(map(repr, graph.__dict__))
        more = "which have no text; delete them"
        raise FormatError(f"{_graph_at(path)} has attributes of its own, {names}, {more}", kind="value")
    return found


def _graph_at(path: _Path) -> str:
    return "the graph" if path.holder is None else f"the graph {path.text()!r}"


def _node_json(node: Any, entry: tuple[Any, ...], meta: bool, path: _Path) -> dict[str, Any]:
    op, target, name, args, kwargs, kind, users = entry
    found: dict[str, Any] = {"op": op}
    pairs = []
    part = "target"
    try:
        found["target"], found["name"] = _encode(target), _encode(name)
        for part, value, write in (
            ("args", args, _items),
            ("kwargs", kwargs, _pairs),
            ("type", kind, type_json),
            ("users", users if users != sorted(users) else None, list),
        ):
            if value is not None and value not in ((), {}):
                found[part] = write(value)
        for key, value in node.meta.items() if meta else ():
            part = f"meta[{text_of(key)}]"
            if not _is_left_out(key, value):
                pairs.append([_encode(key), _encode(_with_names(value) if _is_name(key, _STACKS) else value)])
    except Unwritable as error:
        if part.startswith("meta"):
            more = "meta=False leaves meta out"
        elif part == "target":
            more = "make it an operator with torch.library, or pickle the graph"
        else:
            more = "a pickle of the graph may hold it"
        raise FormatError(
            f"node {path.of_node(name)!r} can't be written: its {part} has {error}; {more}", kind="value"
        ) from None
    except RecursionError:
        raise FormatError(
            f"node {path.of_node(name)!r} can't be written: its {part} is nested too deep", kind="depth"
        ) from None
    if pairs:
        found["meta"] = pairs
    return found


def _is_left_out(key: Any, value: Any) -> bool:
    """Whether it is what torch notes while it exports, and works out anew; no file has it."""
    if _is_name(key, ("desc",)):
        return type(value).__module__ == "torch._functorch._aot_autograd.descriptors"
    return _is_name(key, ("unbacked_bindings",))


def _is_name(key: Any, names: tuple[str, ...]) -> bool:
    return type(key) is str and key in names


def _with_names(stack: Any) -> Any:
    """A stack of modules or functions, in which those that have no word go by name, as in files."""
    if type(stack) in (dict, OrderedDict):
        return type(stack)((key, _with_name(entry)) for key, entry in list(stack.items()))
    return [_with_name(entry) for entry in list(stack)] if type(stack) is list else stack


def _with_name(entry: Any) -> Any:
    if type(entry) is not tuple or len(entry) != 2 or not issubclass(type(entry[1]), _NAMED):
        return entry
    try:
        _encode(entry[1])
    except Unwritable:
        return entry[0], f"{entry[1].__module__}.{entry[1].__qualname__}"
    return entry


def _pairs(value: dict[Any, Any]) -> list[list[Any]]:
    return [[_encode(key), _encode(item)] for key, item in list(value.items())]  # others may have it, and change it


def _items(value: Any) -> list[Any]:
    return [_encode(item) for item in list(value)]


def _int_json(value: int) -> Any:
    return value if -_EXACT_INT < value < _EXACT_INT else {"int": hex(value)}


def _float_json(value: float) -> Any:
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}


def _value_json(value: Any) -> list[Any]:
    return list(*_encode_value(value).items())


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    types.NoneType: lambda value: value,
    bool: lambda value: value,
    int: _int_json,
    float: _float_json,
    str: str_json,
    list: _items,
    complex: lambda value: {"complex": [_float_json(value.real), _float_json(value.imag)]},
    bytes: lambda value: {"bytes": value.hex()},
    bytearray: lambda value: {"bytearray": value.hex()},
    types.EllipsisType: lambda value: {"ellipsis": None},
    tuple: lambda value: {"tuple": _items(value)},
    dict: lambda value: {"dict": _pairs(value)},
    OrderedDict: lambda value: {"ordered_dict": _pairs(value)},
    slice: lambda value: {"slice": [_encode(value.start), _encode(value.stop), _encode(value.step)]},
    range: lambda value: {"range": [_int_json(value.start), _int_json(value.stop), _int_json(value.step)]},
    set: lambda value: {"set": sorted(_items(value), key=json.dumps)},
    frozenset: lambda value: {"frozenset": sorted(_items(value), key=json.dumps)},
    _pickle.NodeIndex: lambda value: {"node": int(value)},
    DType: lambda value: {"dtype": value.name},
    Layout: lambda value: {"layout": value.name},
    MemoryFormat: lambda value: {"memory_format": value.name},
    Device: lambda value: {"device": str(value)},
    Operator: lambda value: {"operator": value.name},
    MetadataText: lambda value: {"metadata_text": str_json(str(value))},
    NodeSource: lambda value: {"node_source": value.to_dict()},
    **dict.fromkeys(VALUES, lambda value: {"value": _value_json(value)}),
    _pickle.Operator: lambda value: {"torch_operator": f"torch.ops.{value}"},
}


def _encode(value: Any) -> Any:
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    name = name_of_function(value)
    if name is not None:
        return {"function": name}
    if issubclass(type(value), type):
        return {"type": type_json(value)}
    found = None if loaded("torch") is None else _encode_torch(value)
    if found is None:
        raise Unwritable(described(value))
    return found


def _encode_torch(value: Any) -> Any:
    """An object of torch's; None: another one."""
    import torch

    from fastexport._torch import is_tensor_metadata
    from fastexport._torch_values import facts_of

    packed = _pickle._pack_operator(value)
    if packed is not value:
        return _encode(packed)
    kind = type(value)
    if kind is torch.Size:
        return {"size" if all(type(size) is int for size in value) else "tuple": _items(value)}
    if kind in (torch.dtype, torch.layout, torch.memory_format, torch.device):
        return {"torch": _encode(from_torch(value))}
    if is_tensor_metadata(value):
        return {"tensor_metadata": _items(value)}
    try:
        facts = facts_of(value)
    except ValueError as error:
        raise Unwritable(f"{described(value)}: {error}") from error
    return None if facts is None else _encode(facts)
