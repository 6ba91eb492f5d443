"""Types in documents of graphs, both ways; and what the writer and the reader of documents share."""

from __future__ import annotations

import types
import typing
from operator import attrgetter
from typing import Any

from fastexport._functions import module_class_named, name_of_module_class
from fastexport._loaded import loaded
from fastexport._signature import CustomObjArgument
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

FORMAT, VERSION = "fastexport.graph", 1
SYMBOLIC = (SymInt, SymFloat, SymBool)
VALUES = (TensorMeta, CustomObjArgument, *SYMBOLIC)

_SIMPLE_TYPES = {kind.__name__: kind for kind in (
    int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, slice, range, object, type, types.NoneType
)}  # fmt: skip
_TORCH_TYPES = (
    "Tensor", "nn.Parameter", "dtype", "device", "layout", "memory_format", "Size", "SymInt", "SymFloat", "SymBool",
)  # fmt: skip
_TYPING = ("Any", "List", "Dict", "Tuple", "Set", "FrozenSet", "Type", "Sequence", "Callable", "Iterable", "Mapping")


class Unwritable(Exception):
    """A value that has no text."""


class Bad(ValueError):
    """What a document holds is of another form."""


def bad(value: Any, what: str) -> Any:
    raise Bad(f"{shown(value)} is no {what}")


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def described(value: Any) -> str:
    return f"{text_of(value)} of type {type(value).__module__}.{type(value).__name__}"


def text_of(value: Any) -> str:
    try:
        return shown(value)
    except Exception:
        return "an object"


# ---- texts, which may have halves of characters


def str_json(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:  # halves of characters, which JSON may put together
        return {"str": list(map(ord, value))}
    return value


def read_text(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"str"} and isinstance(value["str"], list):
        return "".join(map(chr, value["str"]))
    return value if isinstance(value, str) else bad(value, "text")


# ---- types


def type_json(kind: Any) -> Any:
    """An annotation."""
    if isinstance(kind, str):
        return {"text": str_json(kind)}
    name = getattr(kind, "__name__", None)
    if isinstance(name, str) and _SIMPLE_TYPES.get(name) is kind:
        return name
    torch = loaded("torch")
    for name in _TORCH_TYPES if torch is not None else ():
        if attrgetter(name)(torch) is kind:
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
            return [word, *map(type_json, args)]
    name = getattr(origin, "__name__", None)
    if isinstance(name, str) and isinstance(kind, types.GenericAlias) and _SIMPLE_TYPES.get(name) is origin:
        return [name, *map(type_json, args)]
    alias = getattr(kind, "_name", None)
    if type(kind).__module__ == "typing" and alias in _TYPING and getattr(typing, alias)[args] == kind:
        return [f"typing.{alias}", *map(type_json, args)]
    raise Unwritable(described(kind))


def read_type(value: Any) -> Any:
    """The inverse of type_json."""
    if isinstance(value, dict) and value.keys() == {"text"}:
        return read_text(value["text"])
    if isinstance(value, list) and value and isinstance(value[0], str):
        return _generic(value[0], tuple(map(read_type, value[1:])))
    if not isinstance(value, str):
        return bad(value, "type")
    if value in _SIMPLE_TYPES:
        return _SIMPLE_TYPES[value]
    package, _, name = value.rpartition(".")
    if package == "typing" and name in _TYPING:
        return getattr(typing, name)
    if value.startswith("torch.") and value.removeprefix("torch.") in _TORCH_TYPES:
        import torch

        return attrgetter(value.removeprefix("torch."))(torch)
    if package.startswith("torch.nn.modules"):
        return module_class_named(value)
    return ... if value == "..." else bad(value, "type")


def _generic(word: str, args: tuple[Any, ...]) -> Any:
    if word == "|":
        found = args[0] if args else bad(word, "type")
        for kind in args[1:]:
            found = found | kind
        return found
    if word == "typing.Union":
        return typing.Union[args]  # noqa: UP007
    if word in _SIMPLE_TYPES:
        return types.GenericAlias(_SIMPLE_TYPES[word], args)
    name = word.removeprefix("typing.")
    return getattr(typing, name)[args] if name in _TYPING else bad(word, "type")
