"""What stands in a graph for the things that a file names: dtypes, devices, operators; and the meta of its nodes.

The C part calls these. `make_object` gives one and the same object for the same things, so that they can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

from fastexport._dtypes import Device, DType, Layout, MemoryFormat, from_torch
from fastexport._loaded import loaded
from fastexport._operators import Operator, operator_for

# pt2_object_kind of csrc/pt2/program.h
_DTYPE, _LAYOUT, _MEMORY_FORMAT, _DEVICE, _TARGET, _CUSTOM = range(1, 7)


class CustomObject:
    """A custom object that a node has as an argument and that is no input of the program; only its name is known.

    Attributes:
        name: its name in the constants of the program.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<custom obj {self.name}>"


# Classes of the objects that describe_object has a word for.
DESCRIBED_TYPES = (DType, Layout, MemoryFormat, Device, Operator, CustomObject, BuiltinFunctionType, FunctionType)


def make_object(kind: int, code: int, text: str | None) -> Any:
    """The object for a pt2_object of the C part."""
    if kind == _DTYPE:
        return DType.from_code(code)
    if kind == _LAYOUT:
        return Layout.from_code(code)
    if kind == _MEMORY_FORMAT:
        return MemoryFormat.from_code(code)
    if text is None:
        raise ValueError(f"an object of kind {kind} needs a text")
    if kind == _DEVICE:
        return Device(text)
    if kind == _TARGET:
        return operator_for(text)
    if kind == _CUSTOM:
        return CustomObject(text)
    raise ValueError(f"there is no kind {kind} of objects")


def describe_object(value: Any) -> tuple[int, int, str | None] | None:
    """The pt2_object for an object; None when the format has no word for it."""
    if isinstance(value, DType):
        return _DTYPE, value.code, None
    if isinstance(value, Layout):
        return _LAYOUT, value.code, None
    if isinstance(value, MemoryFormat):
        return _MEMORY_FORMAT, value.code, None
    if isinstance(value, Device):
        return _DEVICE, 0, str(value)
    if isinstance(value, Operator):
        return _TARGET, 0, value.name
    if isinstance(value, CustomObject):
        return _CUSTOM, 0, value.name
    if isinstance(value, BuiltinFunctionType | FunctionType):
        name = python_function_name(value)
        return None if name is None else (_TARGET, 0, name)
    return _describe_torch(value)


def _describe_torch(value: Any) -> tuple[int, int, str | None] | None:
    """The same for an object of torch's own, once torch is loaded."""
    torch = loaded("torch")
    if torch is None or not type(value).__module__.startswith("torch"):
        return None
    if isinstance(value, torch._ops.OpOverload):
        return _TARGET, 0, f"torch.ops.{value}"
    if isinstance(value, torch._ops.HigherOrderOperator):
        return _TARGET, 0, f"torch.ops.higher_order.{value.name()}"
    ours = from_torch(value)
    return None if ours is value else describe_object(ours)


def python_function_name(function: Any) -> str | None:
    """The name under which a file calls a plain function; None for one that files don't call."""
    name = f"{getattr(function, '__module__', None)}.{getattr(function, '__name__', None)}"
    try:
        return name if operator_for(name) is function else None
    except ValueError:
        return None


def decode_meta(metadata: dict[str, str], value: Any) -> dict[str, Any]:
    """The meta of a node, from the strings of its document and its value: None, (kind, JSON), or a list of such."""
    from fastexport._meta_json import decode_metadata

    meta: dict[str, Any] = {}
    if value is not None:
        meta["val"] = _decode_value(value)
    meta.update(decode_metadata(metadata))
    return meta


def _decode_value(value: Any) -> Any:
    from fastexport._meta_json import decode_value

    if value is None:
        return None
    if isinstance(value, list):
        return tuple(_decode_value(item) for item in value)
    return decode_value(*value)


def encode_meta(meta: Mapping[Any, Any], node: str) -> tuple[str | None, str]:
    """The value and the metadata of a node's meta as JSON texts, for the writer.

    Raises:
        VerifyError: no file can hold it; the fault names the node.
    """
    from fastexport._meta_json import metadata_json, value_json

    value = meta.get("val")
    code, kind = "FX305", "value"
    try:
        text = None if value is None else value_json(value)
        code, kind = "FX403", "metadata"
        return text, metadata_json(meta)
    except ValueError as error:
        from fastexport._errors import Fault, VerifyError

        raise VerifyError([Fault(code, kind, True, None, None, node, str(error))]) from error
