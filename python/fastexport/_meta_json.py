"""The meta of nodes as .pt2 files hold it: values as JSON, metadata as strings.

Both directions; what was decoded and not changed is encoded as the same JSON. Nothing is imported, looked up or run for
a text of a file. Source: serialize_metadata and deserialize_metadata in torch/_export/serde/serialize.py of torch 2.13.

>>> decode_metadata({"torch_fn": "relu_1;function.relu", "nn_module_stack": "L__self__,,net.Net"})
{'nn_module_stack': {'L__self__': ('', 'net.Net')}, 'torch_fn': ('relu_1', 'function.relu')}
>>> from fastexport._tensor_meta import TensorMeta
>>> value_json(True), value_json((None, 2.5))
('{"as_sym_bool": {"as_bool": true}}', '{"as_list": [{"as_none": true}, {"as_sym_float": {"as_float": 2.5}}]}')
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastexport._dtypes import Device, DType, Layout
from fastexport._operators import Operator
from fastexport._signature import CustomObjArgument
from fastexport._symbols import SymBool, SymFloat, SymInt, _Symbolic
from fastexport._tensor_meta import TensorMeta

__all__ = [
    "MetadataText",
    "NodeSource",
    "decode_metadata",
    "decode_value",
    "metadata_json",
    "split_module",
    "value_json",
]

_BETWEEN_ITEMS = ";"


class MetadataText(str):
    """The text of a metadata entry that is kept as it is: under a key that is not known, or not well formed."""

    __slots__ = ()


class NodeSource:
    """Where a node came from: an item of ``meta["from_node"]``, as torch.fx.traceback.NodeSource.

    Nodes may share one, so make another rather than change it.

    Attributes:
        name, target, graph_id: of the node it came from.
        pass_name: what made the new node.
        action: ``create``, ``replace``, or several joined by ``+``.
        from_node: where that node came from in its turn.

    Example:
        >>> NodeSource("x", "x", 7, "Interpreter_PropagateUnbackedSymInts", "create")
        NodeSource('x', pass_name='Interpreter_PropagateUnbackedSymInts', action='create')
    """

    __slots__ = ("action", "from_node", "graph_id", "name", "pass_name", "target")

    def __init__(
        self,
        name: str,
        target: str,
        graph_id: int,
        pass_name: str = "",
        action: str = "",
        from_node: Iterable[NodeSource] = (),
    ) -> None:
        self.name = name
        self.target = target
        self.graph_id = graph_id
        self.pass_name = pass_name
        self.action = action
        self.from_node = list(from_node)

    def to_dict(self) -> dict[str, Any]:
        """The form that files have, as torch's to_dict gives it."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self.action,
            "from_node": [source.to_dict() for source in self.from_node],
        }

    @classmethod
    def from_dict(cls, item: Mapping[str, Any]) -> NodeSource:
        """The inverse of `to_dict`.

        Raises:
            ValueError: it is not of that form.
        """
        if not isinstance(item, dict) or item.keys() != _SOURCE_KEYS or not isinstance(item["from_node"], list):
            raise ValueError(f"{item!r} is no source of a node")
        return cls(**{**item, "from_node": [cls.from_dict(source) for source in item["from_node"]]})

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, NodeSource) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.target, self.graph_id, self.pass_name, self.action))

    def __repr__(self) -> str:
        return f"NodeSource({self.name!r}, pass_name={self.pass_name!r}, action={self.action!r})"


_SOURCE_KEYS = {"name", "target", "graph_id", "pass_name", "action", "from_node"}


# ---- metadata, decoded ----


def split_module(item: str) -> tuple[str, tuple[str, str]]:
    """An entry of a stack of modules, KEY,PATH,TYPE, at the commas that stand outside brackets.

    Raises:
        ValueError: there are not three parts.
    """
    if "[" not in item and "(" not in item:  # as nearly always
        key, path, kind = item.split(",")
        return key, (path, kind)
    parts = []
    start = depth = 0
    for end, char in enumerate(item):
        depth += (char in "[(") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(item[start:end])
            start = end + 1
    key, path, kind = *parts, item[start:]  # a ValueError unless there are three
    return key, (path, kind)


def _decode_modules(text: str) -> dict[str, tuple[str, str]]:
    return dict(map(split_module, text.split(_BETWEEN_ITEMS)))


def _decode_functions(text: str) -> list[tuple[str, str]]:
    functions = []
    for item in text.split(_BETWEEN_ITEMS):
        name, target = item.split(",")
        functions.append((name, target))
    return functions


def _decode_sources(text: str) -> list[NodeSource] | None:
    items = json.loads(text)
    if items is None:
        return None
    if not isinstance(items, list):
        raise ValueError("from_node is no list")
    return [NodeSource.from_dict(item) for item in items if item is not None]


# In the order in which torch writes them.
_DECODERS: dict[str, Callable[[str], Any]] = {
    "stack_trace": str,
    "nn_module_stack": _decode_modules,
    "source_fn_stack": _decode_functions,
    "torch_fn": lambda text: tuple(text.split(_BETWEEN_ITEMS)),
    "custom": json.loads,
    "from_node": _decode_sources,
}


def decode_metadata(strings: Mapping[str, str]) -> dict[str, Any]:
    """The metadata of a node, or of a graph module, from the strings of a file.

    ``nn_module_stack`` becomes a dict of (path, type) under each key, ``source_fn_stack`` a list of (name, target),
    ``torch_fn`` a tuple, ``custom`` what its JSON says, ``from_node`` a list of NodeSource. Types and targets stay
    texts. A text that is not of the known form, or stands under an unknown key, is kept as a MetadataText.

    Args:
        strings: the metadata of a Node in the file.

    Example:
        >>> decode_metadata({"custom": "[1, 2]", "stack_trace": "here", "mine": "x"})
        {'stack_trace': 'here', 'custom': [1, 2], 'mine': 'x'}
    """
    meta: dict[str, Any] = {}
    for key, decode in _DECODERS.items():
        text = strings.get(key)
        if not text:
            continue
        try:
            meta[key] = decode(text)
        except (ValueError, TypeError, RecursionError):
            meta[key] = MetadataText(text)
    for key, text in strings.items():
        if key not in meta:
            meta[key] = MetadataText(text)
    return meta


# ---- metadata, encoded ----


def _callable_text(target: Any) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, Operator):
        return target.name
    return f"{target.__module__}.{target.__qualname__}"


def module_item(key: Any, path: Any, kind: str) -> str:
    """An entry of a stack of modules as a file has it, KEY,PATH,TYPE.

    Raises:
        ValueError: it would be read as something else.
    """
    item = f"{key},{path},{kind}"
    if item.count(",") != 2 or any(sign in item for sign in ";()[]"):
        _check_item(item, split_module, (f"{key}", (f"{path}", kind)))
    return item


def function_item(name: Any, target: str) -> str:
    """An entry of a stack of functions as a file has it, NAME,TARGET.

    Raises:
        ValueError: it would be read as something else.
    """
    item = f"{name},{target}"
    if _BETWEEN_ITEMS in item or item.count(",") != 1:
        _check_item(item, lambda item: item.split(","), [f"{name}", target])
    return item


def function_names(names: Iterable[str]) -> str:
    """torch_fn as a file has it, NAME;FUNCTION.

    Raises:
        ValueError: it would be read as something else.
    """
    items = list(names)
    for item in items:
        _check_item(item, str, item)
    return _BETWEEN_ITEMS.join(items)


def _check_item(item: str, split: Callable[[str], Any], parts: Any) -> None:
    """See that an item is read as what it was made from: the format has no way to quote what separates parts."""
    try:
        if _BETWEEN_ITEMS not in item and split(item) == parts:
            return
    except ValueError:
        pass
    raise ValueError(f"{item!r} would be read as something else")


def _encode_modules(stack: Mapping[Any, tuple[str, Any]]) -> str:
    return _BETWEEN_ITEMS.join(module_item(key, path, _callable_text(kind)) for key, (path, kind) in stack.items())


def _encode_functions(stack: Iterable[tuple[str, Any]]) -> str:
    return _BETWEEN_ITEMS.join(function_item(name, _callable_text(target)) for name, target in stack)


def _encode_sources(sources: Iterable[Any] | None) -> str:
    return json.dumps(None if sources is None else [source.to_dict() for source in sources])


_ENCODERS: dict[str, Callable[[Any], str]] = {
    "stack_trace": str,
    "nn_module_stack": _encode_modules,
    "source_fn_stack": _encode_functions,
    "torch_fn": function_names,
    "custom": json.dumps,
    "from_node": _encode_sources,
}


# What an entry has to be.
FORMS = {
    "stack_trace": "a str",
    "nn_module_stack": "a dict whose values are tuples (path, class), without commas and semicolons in their names",
    "source_fn_stack": "a list of tuples (name, function), without commas and semicolons in their names",
    "torch_fn": "a tuple of two str without semicolons",
    "custom": "what JSON can say",
    "from_node": "a list of NodeSource, or None",
}


def metadata_json(meta: Mapping[Any, Any]) -> str:
    """The JSON text of a node's metadata: an object of strings. What torch does not write is left out, as ``val`` is.

    Args:
        meta: as decode_metadata gives it, and anything else.

    Raises:
        ValueError: an entry can't be written; the message names it.

    Example:
        >>> metadata_json({"torch_fn": ("relu_1", "function.relu"), "val": None})
        '{"torch_fn": "relu_1;function.relu"}'
    """
    strings: dict[str, str] = {}
    for key, encode in _ENCODERS.items():
        if key not in meta:
            continue
        value = meta[key]
        if isinstance(value, MetadataText):
            strings[key] = value
        elif value or key == "from_node":
            try:
                strings[key] = encode(value)
            except MemoryError:
                raise
            except ValueError as error:
                raise ValueError(f"meta[{key!r}] can't be written to a .pt2 file: {error}") from error
            except Exception as error:  # it has another form, and encoding stumbles over it
                form = FORMS[key]
                raise ValueError(f"meta[{key!r}] can't be written to a .pt2 file: it has to be {form}") from error
    for key, value in meta.items():
        if key not in _ENCODERS and isinstance(key, str) and isinstance(value, MetadataText):
            strings[key] = value
    return json.dumps(strings)


# ---- values, decoded ----

# pt2_value_kind of csrc/pt2/program.h
_KINDS = ("as_none", "as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool", "as_custom_obj")


def _decode_real(value: Any) -> float:
    return float(value) if isinstance(value, int | float | str) else _bad(value)


def _bad(value: Any) -> Any:
    raise ValueError(f"{value!r} is no value of a .pt2 file")


def _decode_number(value: Any) -> Any:
    """as_int, as_bool or as_float."""
    ((tag, number),) = value.items()
    if tag == "as_float":
        return _decode_real(number)
    return number if tag == ("as_bool" if isinstance(number, bool) else "as_int") else _bad(value)


def _decode_symbolic(make: Callable[[str, Any], Any], value: Any) -> Any:
    expr = value.get("as_expr")
    if expr is None:
        return _decode_number(value)
    hint = expr.get("hint")
    return make(expr["expr_str"], None if hint is None else _decode_number(hint))


def _decode_size(value: Any) -> int | SymInt:
    return _decode_symbolic(SymInt, value)


def _decode_tensor(value: Any) -> TensorMeta:
    device = value["device"]
    return TensorMeta(
        DType.from_code(value["dtype"]),
        [_decode_size(size) for size in value["sizes"]],
        [_decode_size(stride) for stride in value["strides"]],
        Device(device["type"], device.get("index")),
        Layout.from_code(value["layout"]),
        value["requires_grad"],
        _decode_size(value["storage_offset"]),
    )


_VALUES: dict[str, Callable[[Any], Any]] = {
    "as_none": lambda value: None,
    "as_tensor": _decode_tensor,
    "as_sym_int": _decode_size,
    "as_sym_float": lambda value: _decode_symbolic(SymFloat, value),
    "as_sym_bool": lambda value: _decode_symbolic(SymBool, value),
    "as_custom_obj": lambda value: CustomObjArgument(value["name"], value["class_fqn"]),
    # of inputs that stand for constants
    "as_int": int,
    "as_float": float,  # of "NaN" and "Infinity" too
    "as_bool": bool,
    "as_string": str,
}


def decode_value(kind: int | str, value: Any) -> Any:
    """A value of a file: TensorMeta, SymInt, SymFloat, SymBool, a number, a string, CustomObjArgument or None.

    Args:
        kind: which of them: "as_tensor" and so on, or its number.
        value: its JSON, as json.loads gives it.

    Raises:
        ValueError: it is not of that form, or names a dtype, layout or device that there is none of.

    Example:
        >>> decode_value("as_sym_int", {"as_int": 5})
        5
    """
    try:
        return _VALUES[_KINDS[kind] if isinstance(kind, int) else kind](value)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{value!r} is no value of kind {kind}: {error!r}") from error


# ---- values, encoded ----


def _encode_real(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _encode_number(value: int | float | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"as_bool": value}
    return {"as_int": value} if isinstance(value, int) else {"as_float": _encode_real(value)}


def _encode_symbolic(value: Any) -> dict[str, Any]:
    if not isinstance(value, _Symbolic):
        return _encode_number(value)
    hint = None if value.hint is None else _encode_number(value.hint)
    return {"as_expr": {"expr_str": value.srepr, "hint": hint}}


def _encode_tensor(meta: TensorMeta) -> dict[str, Any]:
    return {
        "dtype": meta.dtype.code,
        "sizes": [_encode_symbolic(size) for size in meta.shape],
        "requires_grad": meta.requires_grad,
        "device": {"type": meta.device.type, "index": meta.device.index},
        "strides": [_encode_symbolic(stride) for stride in meta.stride],
        "storage_offset": _encode_symbolic(meta.storage_offset),
        "layout": meta.layout.code,
    }


def _encode_value(value: Any) -> dict[str, Any]:
    if value is None:
        return {"as_none": True}
    if isinstance(value, TensorMeta):
        return {"as_tensor": _encode_tensor(value)}
    if isinstance(value, SymBool | bool):
        return {"as_sym_bool": _encode_symbolic(value)}
    if isinstance(value, SymInt | int):
        return {"as_sym_int": _encode_symbolic(value)}
    if isinstance(value, SymFloat | float):
        return {"as_sym_float": _encode_symbolic(value)}
    if isinstance(value, CustomObjArgument):
        return {"as_custom_obj": {"name": value.name, "class_fqn": value.class_fqn}}
    if isinstance(value, str):
        return {"as_string": value}  # of an input that stands for it
    if isinstance(value, dict):
        return {"as_list": [_encode_value(item) for item in value.values()]}
    if isinstance(value, list | tuple):
        return {"as_list": [_encode_value(item) for item in value]}
    raise ValueError(
        f"meta['val'] is a {type(value).__name__}, which can't be written to a .pt2 file; "
        "use a TensorMeta, a SymInt, a number, None, or a tuple of these"
    )


def value_json(value: Any) -> str:
    """The JSON text of a node's value: ``{"as_tensor": ...}``, ``{"as_sym_int": ...}``, ``{"as_list": [...]}`` ...

    Args:
        value: what ``meta["val"]`` holds.

    Raises:
        ValueError: it is nothing that a file can hold.

    Example:
        >>> value_json(7)
        '{"as_sym_int": {"as_int": 7}}'
    """
    return json.dumps(_encode_value(value))
