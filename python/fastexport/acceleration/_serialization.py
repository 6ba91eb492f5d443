"""torch.export.save and torch.export.load: the steps between programs, objects of the schema, and JSON."""

from __future__ import annotations

import json
from types import FunctionType
from typing import Any

from fastexport._collecting import no_collection
from fastexport.acceleration import _canonical_form, _schema_plans
from fastexport.acceleration._known import are_known
from fastexport.acceleration._replacement import Replacement

_SERDE = "torch._export.serde.serialize"
_PACKAGE = "torch.export.pt2_archive._package"

# What ours do in one go, and torch by calling itself for each part.
_DECODING = {"_dict_to_dataclass": "caf63dd8c94356b1", "_resolve_schema_cls": "6337f114e85d6c7b"}
_ENCODING = {"_dataclass_to_dict": "b46aee3cd42da467"}


def dict_to_dataclass(stock: Any, cls: Any, data: Any) -> Any:
    """Schema objects made of JSON values, without looking up type hints for each."""
    if are_known(stock.__wrapped__.__globals__, _DECODING):
        try:
            with no_collection():
                return _schema_plans.plan(cls).decode(data)
        except Exception:
            pass  # torch tells what is wrong, if anything
    return stock(cls, data)


def dataclass_to_dict(stock: Any, obj: Any) -> Any:
    """JSON values made of schema objects, without looking up fields for each."""
    if are_known(stock.__wrapped__.__globals__, _ENCODING):
        try:
            return _schema_plans.plan(type(obj)).with_tags(obj)
        except Exception:
            pass
    return stock(obj)


def to_json_bytes(stock: Any, obj: Any) -> bytes:
    """The JSON text of a schema object, its values made without looking up fields for each."""
    parts = stock.__wrapped__.__globals__
    if not are_known(parts, _ENCODING):
        return stock(obj)
    with no_collection():
        try:
            values = _schema_plans.plan(type(obj)).with_names(obj)
        except Exception:
            return stock(obj)
        return json.dumps(values, cls=parts["EnumEncoder"], allow_nan=False).encode("utf-8")


def serialize_program(stock: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """A program as objects of the schema, without copying it all to see that it has a canonical form."""
    torchs, canonicalize = stock.__wrapped__, _canonical_form.canonicalize
    if canonicalize is None or torchs.__globals__["canonicalize"] is not canonicalize:
        return stock(self, *args, **kwargs)

    def check(program: Any, constants: Any) -> None:
        if not _canonical_form.is_certain(program, constants):
            canonicalize(program, constants)

    # torch's own function, for which another function has the name canonicalize. It drops the result.
    names = {**torchs.__globals__, "canonicalize": check}
    function = FunctionType(torchs.__code__, names, torchs.__name__, torchs.__defaults__, torchs.__closure__)
    function.__kwdefaults__ = torchs.__kwdefaults__
    with no_collection():
        return function(self, *args, **kwargs)


def deserialize_program(stock: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """A program made of objects of the schema, as torch does it, but without collecting garbage on the way."""
    with no_collection():
        return stock.__wrapped__(self, *args, **kwargs)


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "serde_decode",
        (f"{_SERDE}:_dict_to_dataclass", f"{_PACKAGE}:_dict_to_dataclass"),
        dict_to_dataclass,
        (_DECODING["_dict_to_dataclass"],),
    ),
    Replacement(
        "serde_encode",
        (
            f"{_SERDE}:_dataclass_to_dict",
            f"{_PACKAGE}:_dataclass_to_dict",
            "torch._export.serde.dynamic_shapes:_dataclass_to_dict",
            "torch._inductor.extern_node_serializer:_dataclass_to_dict",
        ),
        dataclass_to_dict,
        (_ENCODING["_dataclass_to_dict"],),
    ),
    Replacement("serde_json", (f"{_SERDE}:_to_json_bytes",), to_json_bytes, ("c656fcb42aedb431",)),
    Replacement(
        "serde_canonical",
        (f"{_SERDE}:ExportedProgramSerializer.serialize",),
        serialize_program,
        ("2bd1bebd55225f0f",),
    ),
    Replacement(
        "serde_program",
        (f"{_SERDE}:ExportedProgramDeserializer.deserialize",),
        deserialize_program,
        ("28bc89aa7faf8197",),
    ),
)
