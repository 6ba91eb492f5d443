"""Graphs as text: `dumps` writes one, `loads` reads it back. Nothing in it is run or imported when it is read.

A document is JSON, a line for each node. Numbers, strings, None and lists are themselves; anything else is an object of
one key, which says what it is: ``{"tuple": [...]}``, ``{"node": 3}``, ``{"operator": "torch.ops.aten.add.Tensor"}``.
What a node calls is named, and looked up among operators and the functions on a closed list; so a document can't name
what reads files or runs code. What has no such word can't be written: a pickle of the graph may hold it.
"""

from __future__ import annotations

import json
import math
import struct
import types
import typing
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fastexport import _pickle
from fastexport._dtypes import Device, DType, Layout, MemoryFormat, from_torch, to_torch
from fastexport._errors import FastExportError, FormatError
from fastexport._functions import function_named, module_class_named, name_of_function, name_of_module_class
from fastexport._graph import Graph
from fastexport._loaded import loaded
from fastexport._meta_json import MetadataText, NodeSource, decode_value, value_json
from fastexport._operators import Operator
from fastexport._program import ExportedProgram, load
from fastexport._signature import CustomObjArgument
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

_FORMAT, _VERSION = "fastexport.graph", 1
_NODE_KEYS = {"op", "target", "name", "args", "kwargs", "type", "users", "meta"}
_DROPPED = ("_co_fields", "_tracer_cls", "_tracer_extras")  # what a tracer notes for a pickle of torch's
_SYMBOLIC = (SymInt, SymFloat, SymBool)
_VALUES = (TensorMeta, CustomObjArgument, *_SYMBOLIC)
_SIMPLE_TYPES = {kind.__name__: kind for kind in (
    int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, slice, range, object, type, types.NoneType
)}  # fmt: skip
_TORCH_TYPES = ("Tensor", "dtype", "device", "layout", "memory_format", "Size", "SymInt", "SymFloat", "SymBool")
_TYPING = ("Any", "List", "Dict", "Tuple", "Set", "FrozenSet", "Type", "Sequence", "Callable", "Iterable", "Mapping")
_EXACT_INT = 1 << 53


def dumps(graph_or_program: Graph | ExportedProgram, *, meta: bool = True) -> bytes:
    """Write a graph or a program as bytes that `loads` reads without running anything.

    A program becomes a .pt2 file. A graph becomes a JSON document with its subgraphs: nodes, order, names, arguments
    with their containers, types, order of users and meta, and how its function nests what it takes and gives. The
    owning module is left out, and so are what a tracer noted about the traced function, and the signature of a graph
    that is a program's.

    Args:
        graph_or_program: what to write.
        meta: of graphs, the meta of nodes too; without it, graphs whose meta has fake tensors can be written.

    Raises:
        TypeError: it is neither.
        FormatError: the graph holds an object that has no text: the node and the object are named.
        FastExportError: the graph is changed meanwhile, by another thread.
        VerifyError: the program has a fault; see `save`.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> out = g.output(g.call_function(operator.add, (g.placeholder("x"), 1)))
        >>> data = fastexport.dumps(g)
        >>> data.decode().split("\\n")[2]
        '{"op": "call_function", "target": {"function": "operator.add"}, "name": "add", "args": [{"node": 0}, 1]},'
        >>> fastexport.loads(data) == g
        True
    """
    if isinstance(graph_or_program, Graph):
        return _graph_text(graph_or_program, meta, "").encode()
    if isinstance(graph_or_program, ExportedProgram):
        from io import BytesIO

        file = BytesIO()
        graph_or_program.save(file)
        return file.getvalue()
    raise TypeError(f"dumps takes a Graph or an ExportedProgram of fastexport, not {type(graph_or_program).__name__}")


def loads(data: bytes | bytearray | memoryview) -> Graph | ExportedProgram:
    """Read what `dumps` wrote.

    Args:
        data: the bytes; from anywhere, as nothing in them is run or imported. torch itself is, by a graph that names
            functions or types of torch's.

    Raises:
        TypeError: data is not bytes.
        FormatError: they are no such document or .pt2 file, or damaged; it says where. A ValueError.
        ImportError: they name something of torch's, and there is no torch.
        VerifyError: a program has a fault; see `load`.

    Example:
        >>> import fastexport
        >>> fastexport.loads(b"{}")
        Traceback (most recent call last):
        ...
        fastexport.FormatError: no document of a graph: its format is None, not 'fastexport.graph'
    """
    raw = bytes(memoryview(data))
    if raw[:2] == b"PK":
        return load(raw)
    try:
        document = json.loads(raw.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no document of a graph, nor a .pt2 file: {error}", kind="json") from error
    try:
        return _read_graph(document, "$")
    except RecursionError as error:
        raise FormatError("the document is nested too deep", kind="depth") from error


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in an object")
    return found


# ---- writing


class _Unwritable(Exception):
    """A value that has no text."""


def _graph_text(graph: Graph, meta: bool, path: str) -> str:
    with _pickle.unchanged(graph):
        codegen = _codegen_text(graph, path)
        entries = _pickle.node_entries(graph)
        lines = [
            json.dumps(_node_json(node, entry, meta, path)) for node, entry in zip(graph.nodes, entries, strict=True)
        ]
    below = [
        f"{json.dumps(name)}: {_graph_text(sub, meta, f'{path}{name}.')}"
        for name, sub in (graph.subgraphs or {}).items()
    ]
    head = f'{{"format": "{_FORMAT}", "version": {_VERSION}, "nodes": [\n'
    tail = "}" if codegen is None else f'}}, "codegen": {json.dumps(codegen)}'
    return head + ",\n".join(lines) + '\n], "subgraphs": {' + ", ".join(below) + tail + "}"


def _codegen_text(graph: Graph, path: str) -> dict[str, Any] | None:
    """What is written of the things that a graph has besides nodes and subgraphs: how its code nests arguments."""
    where = f"the graph {path.removesuffix('.')!r}" if path else "the graph"
    found = None
    for name, value in (graph.extras or {}).items():
        if name == "_codegen":
            from fastexport._codegen_json import codegen_json

            try:
                found = codegen_json(value)
            except (TypeError, ValueError, NotImplementedError) as error:
                more = "give it a plain one with set_codegen(fastexport.CodeGen())"
                raise FormatError(f"{where} has {error}, which has no text; {more}", kind="value") from error
        elif name not in _DROPPED:
            raise FormatError(f"{where} has {name} of {type(value).__name__}, which has no text", kind="value")
    if getattr(graph, "__dict__", None):
        names = ", ".join(map(repr, graph.__dict__))
        raise FormatError(f"{where} has attributes of its own, {names}, which have no text; delete them", kind="value")
    return found


def _node_json(node: Any, entry: tuple[Any, ...], meta: bool, path: str) -> dict[str, Any]:
    op, target, name, args, kwargs, kind, users = entry
    found: dict[str, Any] = {"op": op}
    part = "target"
    try:
        found["target"], found["name"] = _encode(target), _encode(name)
        for part, value, write in (
            ("args", args, lambda args: [_encode(arg) for arg in args]),
            ("kwargs", kwargs, _pairs),
            ("type", kind, _type_json),
            ("users", users if users != sorted(users) else None, list),
            ("meta", dict(node.meta) if meta else None, _pairs),
        ):
            if value is not None and value not in ((), {}):
                found[part] = write(value)
    except _Unwritable as error:
        more = "; meta=False leaves meta out" if part == "meta" else "; a pickle of the graph may hold it"
        raise FormatError(
            f"node {path + name!r} can't be written: its {part} has {error}{more}", kind="value"
        ) from None
    except RecursionError:
        raise FormatError(
            f"node {path + name!r} can't be written: its {part} is nested too deep", kind="depth"
        ) from None
    return found


def _described(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "an object"
    return f"{text if len(text) <= 80 else text[:77] + '...'} of type {type(value).__module__}.{type(value).__name__}"


def _pairs(value: dict[Any, Any]) -> list[list[Any]]:
    return [[_encode(key), _encode(item)] for key, item in value.items()]


def _items(value: Any) -> list[Any]:
    return [_encode(item) for item in value]


def _int_json(value: int) -> Any:
    return value if -_EXACT_INT < value < _EXACT_INT else {"int": hex(value)}


def _float_json(value: float) -> Any:
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}


def _str_json(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:  # halves of characters, which JSON may put together
        return {"str": list(map(ord, value))}
    return value


def _value_json(value: Any) -> list[Any]:
    ((kind, inner),) = json.loads(value_json(value)).items()
    return [kind, inner]


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    types.NoneType: lambda value: value,
    bool: lambda value: value,
    int: _int_json,
    float: _float_json,
    str: _str_json,
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
    MetadataText: lambda value: {"metadata_text": _str_json(str(value))},
    NodeSource: lambda value: {"node_source": value.to_dict()},
    **dict.fromkeys(_VALUES, lambda value: {"value": _value_json(value)}),
    _pickle.Operator: lambda value: {"torch_operator": f"torch.ops.{value}"},
}


def _encode(value: Any) -> Any:
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    name = name_of_function(value)
    if name is not None:
        return {"function": name}
    torch = loaded("torch")
    if torch is not None and type(value) is torch.Size:
        return {"size": _items(value)}
    if torch is not None and type(value) in (torch.dtype, torch.layout, torch.memory_format, torch.device):
        return {"torch": _encode(from_torch(value))}
    if issubclass(type(value), type):
        return {"type": _type_json(value)}
    raise _Unwritable(_described(value))


def _type_json(kind: Any) -> Any:
    """An annotation."""
    if isinstance(kind, str):
        return {"text": _str_json(kind)}
    name = getattr(kind, "__name__", None)
    if isinstance(name, str) and _SIMPLE_TYPES.get(name) is kind:
        return name
    torch = loaded("torch")
    for name in _TORCH_TYPES if torch is not None else ():
        if getattr(torch, name) is kind:
            return f"torch.{name}"
    for name in _TYPING:
        if getattr(typing, name) is kind:
            return f"typing.{name}"
    name = name_of_module_class(kind)
    if name is not None:
        return name
    if kind is ...:
        return "..."
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    for word, head in (("|", types.UnionType), ("typing.Union", typing.Union)):
        if origin is head:
            return [word, *map(_type_json, args)]
    name = getattr(origin, "__name__", None)
    if isinstance(name, str) and isinstance(kind, types.GenericAlias) and _SIMPLE_TYPES.get(name) is origin:
        return [name, *map(_type_json, args)]
    alias = getattr(kind, "_name", None)
    if type(kind).__module__ == "typing" and alias in _TYPING and getattr(typing, alias)[args] == kind:
        return [f"typing.{alias}", *map(_type_json, args)]
    raise _Unwritable(_described(kind))


# ---- reading


class _Bad(ValueError):
    """What a document holds is of another form."""


def _read_graph(document: Any, path: str) -> Graph:
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        found = document.get("format") if isinstance(document, dict) else document
        raise FormatError(
            f"no document of a graph: its format is {_shown(found)}, not {_FORMAT!r}", kind="format", json_path=path
        )
    if type(document.get("version")) is not int or document["version"] != _VERSION:
        raise FormatError(
            f"the document is of version {_shown(document.get('version'))}; this fastexport reads version {_VERSION}",
            kind="version",
            json_path=path,
        )
    nodes, below = document.get("nodes"), document.get("subgraphs")
    if not isinstance(nodes, list) or not isinstance(below, dict):
        raise FormatError("a graph has a list of nodes and an object of subgraphs", kind="type", json_path=path)
    subgraphs = {name: _read_graph(sub, f"{path}.subgraphs[{name!r}]") for name, sub in below.items()}
    entries, metas, names = [], [], set()
    for at, item in enumerate(nodes):
        where = f"{path}.nodes[{at}]"
        try:
            entry, meta = _read_node(item, len(nodes))
            if entry[2] in names:
                raise _Bad(f"the name {entry[2]!r} is of another node, too")
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
    if subgraphs:
        graph.subgraphs = subgraphs
    if "codegen" in document:
        from fastexport._codegen_json import read_codegen

        try:
            graph.set_codegen(read_codegen(document["codegen"]))
        except (ValueError, TypeError, FastExportError) as error:
            raise FormatError(f"{path}.codegen: {error}", kind="value", json_path=f"{path}.codegen") from error
    return graph


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _read_node(item: Any, count: int) -> tuple[tuple[Any, ...], dict[Any, Any]]:
    if not isinstance(item, dict) or not item.keys() <= _NODE_KEYS:
        raise _Bad(f"{_shown(item)} is no node")
    op, name, args, users = (item.get(key) for key in ("op", "name", "args", "users"))
    target = _decode(item.get("target"), count)
    name = _decode(name, count)
    if not isinstance(op, str) or not isinstance(name, str) or not isinstance(args, (list, types.NoneType)):
        raise _Bad("a node has an op and a name, which are strings, and a list of args")
    if op == "call_function" and not callable(target):
        raise _Bad(f"the target {_shown(target)} can't be called")
    kwargs = _read_dict(item.get("kwargs", []), count)
    if not all(type(key) is str for key in kwargs):
        raise _Bad("a keyword is no string")
    if users is not None and not (isinstance(users, list) and all(type(at) is int and 0 <= at < count for at in users)):
        raise _Bad(f"{_shown(users)} is no order of users")
    kind = _read_type(item["type"]) if "type" in item else None
    meta = _read_dict(item.get("meta", []), count)
    return (op, target, name, tuple(_decode(arg, count) for arg in args or ()), kwargs, kind, users), meta


def _read_list(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list):
        raise _Bad(f"{_shown(value)} is no list")
    return [_decode(item, count) for item in value]


def _read_dict(value: Any, count: int) -> dict[Any, Any]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise _Bad(f"{_shown(value)} is no list of pairs")
    found = {_decode(key, count): _decode(item, count) for key, item in value}
    if len(found) != len(value):
        raise _Bad("a key occurs twice")
    return found


def _read_integer(value: Any) -> int:
    if isinstance(value, dict) and value.keys() == {"int"} and isinstance(value["int"], str):
        return int(value["int"], 16)
    return value if type(value) is int else _bad(value, "integer")


def _read_float(value: Any) -> float:
    if isinstance(value, dict) and value.keys() == {"float"}:
        return float(struct.unpack(">d", bytes.fromhex(_read_text(value["float"])))[0])
    return value if type(value) is float else _bad(value, "float")


def _read_text(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"str"} and isinstance(value["str"], list):
        return "".join(map(chr, value["str"]))
    return value if isinstance(value, str) else _bad(value, "text")


def _bad(value: Any, what: str) -> Any:
    raise _Bad(f"{_shown(value)} is no {what}")


def _read_complex(value: Any) -> complex:
    if not isinstance(value, list) or len(value) != 2:
        return _bad(value, "complex number")
    return complex(_read_float(value[0]), _read_float(value[1]))


def _read_node_index(value: Any, count: int) -> _pickle.NodeIndex:
    if type(value) is not int or not 0 <= value < count:
        raise _Bad(f"there is no node {_shown(value)}")
    return _pickle.NodeIndex(value)


def _read_torch(value: Any, count: int) -> Any:
    import torch  # noqa: F401 # it is to be there

    found = _decode(value, count)
    return to_torch(found) if isinstance(found, DType | Layout | MemoryFormat | Device) else _bad(value, "torch object")


def _read_size(value: Any, count: int) -> Any:
    import torch

    return torch.Size(_read_list(value, count))


def _read_torch_operator(value: Any) -> Any:
    found = Operator(_read_text(value))
    return found.to_torch() if found.kind in ("operator", "higher_order") else _bad(value, "operator of torch")


def _read_value(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        return _bad(value, "value")
    found = decode_value(*value)
    if not isinstance(found, _VALUES):
        return _bad(value, "value")
    numbers = (*found.shape, *found.stride, found.storage_offset) if isinstance(found, TensorMeta) else (found,)
    for number in numbers:
        if isinstance(number, _SYMBOLIC):
            number.expr  # noqa: B018 # its text is read now, to be refused here if it is none
    return found


_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "int": lambda value, count: _read_integer({"int": value}),
    "float": lambda value, count: _read_float({"float": value}),
    "str": lambda value, count: _read_text({"str": value}),
    "complex": lambda value, count: _read_complex(value),
    "bytes": lambda value, count: bytes.fromhex(_read_text(value)),
    "bytearray": lambda value, count: bytearray.fromhex(_read_text(value)),
    "ellipsis": lambda value, count: ...,
    "tuple": lambda value, count: tuple(_read_list(value, count)),
    "dict": _read_dict,
    "ordered_dict": lambda value, count: OrderedDict(_read_dict(value, count)),
    "slice": lambda value, count: slice(*_three(_read_list(value, count))),
    "range": lambda value, count: range(*map(_read_integer, _three(value))),
    "set": lambda value, count: set(_read_list(value, count)),
    "frozenset": lambda value, count: frozenset(_read_list(value, count)),
    "node": _read_node_index,
    "dtype": lambda value, count: DType(_read_text(value)),
    "layout": lambda value, count: Layout(_read_text(value)),
    "memory_format": lambda value, count: MemoryFormat(_read_text(value)),
    "device": lambda value, count: Device(_read_text(value)),
    "operator": lambda value, count: Operator(_read_text(value)),
    "metadata_text": lambda value, count: MetadataText(_read_text(value)),
    "node_source": lambda value, count: NodeSource.from_dict(value),
    "value": lambda value, count: _read_value(value),
    "torch_operator": lambda value, count: _read_torch_operator(value),
    "function": lambda value, count: function_named(_read_text(value)),
    "size": _read_size,
    "torch": _read_torch,
    "type": lambda value, count: _read_type(value),
}


def _three(value: Any) -> list[Any]:
    return value if isinstance(value, list) and len(value) == 3 else _bad(value, "list of three")


def _decode(value: Any, count: int) -> Any:
    if isinstance(value, list):
        return [_decode(item, count) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise _Bad(f"{_shown(value)} is no object of one key")
    ((word, inner),) = value.items()
    if word not in _DECODERS:
        raise _Bad(f"{word!r} is no kind of value")
    return _DECODERS[word](inner, count)


def _read_type(value: Any) -> Any:
    """The inverse of _type_json."""
    if isinstance(value, dict) and value.keys() == {"text"}:
        return _read_text(value["text"])
    if isinstance(value, list) and value and isinstance(value[0], str):
        return _generic(value[0], tuple(map(_read_type, value[1:])))
    if not isinstance(value, str):
        return _bad(value, "type")
    if value in _SIMPLE_TYPES:
        return _SIMPLE_TYPES[value]
    package, _, name = value.rpartition(".")
    if package == "typing" and name in _TYPING:
        return getattr(typing, name)
    if package == "torch" and name in _TORCH_TYPES:
        import torch

        return getattr(torch, name)
    if package.startswith("torch.nn.modules"):
        return module_class_named(value)
    return ... if value == "..." else _bad(value, "type")


def _generic(word: str, args: tuple[Any, ...]) -> Any:
    if word == "|":
        found = args[0] if args else _bad(word, "type")
        for kind in args[1:]:
            found = found | kind
        return found
    if word == "typing.Union":
        return typing.Union[args]  # noqa: UP007
    if word in _SIMPLE_TYPES:
        return types.GenericAlias(_SIMPLE_TYPES[word], args)
    name = word.removeprefix("typing.")
    return getattr(typing, name)[args] if name in _TYPING else _bad(word, "type")
