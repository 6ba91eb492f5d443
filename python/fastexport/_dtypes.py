"""dtypes, layouts, memory formats and devices without torch.

They print as torch's own do, in graphs too, and carry the numbers that torch.export's schema has for them. There is one
object of each; none can be changed. Nothing imports torch but `to_torch`.

>>> float32 = DType("float32")
>>> float32, float32.itemsize, float32.code, DType.from_code(7) is float32
(torch.float32, 4, 7, True)
>>> Device("cuda", 0), str(Device("cuda:0"))
(device(type='cuda', index=0), 'cuda:0')
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self

from fastexport._loaded import loaded

__all__ = ["DType", "Device", "Layout", "MemoryFormat", "dtype_named", "from_torch", "to_torch"]


class _Constant:
    """An object of which there is one for each name."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} can't be changed: {self}.{name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} can't be changed: {self}.{name}")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


class _Enumerated(_Constant):
    """One of the members of an enum of the schema, named as in torch."""

    __slots__ = ("code", "name")
    name: str
    code: int
    _by_name: ClassVar[dict[str, Any]]
    _by_code: ClassVar[dict[int, Any]]
    _what: ClassVar[str]

    def __new__(cls, name: str) -> Self:
        """The member of that name, which may begin with "torch.".

        Raises:
            ValueError: there is none.
        """
        found = cls._by_name.get(name.removeprefix("torch.")) if isinstance(name, str) else None
        if found is None:
            raise ValueError(f"{name!r} is no {cls._what}; there are {', '.join(cls._by_name)}")
        return found

    @classmethod
    def from_code(cls, code: int) -> Self:
        """The member of that number in torch.export's schema.

        Raises:
            ValueError: the schema has no such number, or it stands for "unknown".
        """
        found = cls._by_code.get(code)
        if found is None:
            raise ValueError(f"{code!r} is no number of a {cls._what}")
        return found

    @classmethod
    def all(cls) -> list[Self]:
        """The members, in the order of their numbers."""
        return list(cls._by_code.values())

    @classmethod
    def _add(cls, name: str, code: int, **more: Any) -> None:
        member = object.__new__(cls)
        member._set(name=name, code=code, **more)
        cls._by_name[name] = cls._by_code[code] = member

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return type(self), (self.name,)


class DType(_Enumerated):
    """The type of a tensor's elements.

    Attributes:
        name: as in torch: ``float32``.
        code: its ScalarType in torch.export's schema.
        itemsize: bytes of one element.
        numpy: the name of the type in NumPy, or in ml_dtypes; None where neither has one.
        in_ml_dtypes: whether it is ml_dtypes that has it.
        buffer_format: the format of Python's buffer protocol, or None.
        abbreviation: how torch shortens it: ``f32``.
        is_floating_point, is_complex, is_signed: as in torch.

    Example:
        >>> DType("torch.bfloat16").numpy, DType("bool").itemsize, DType.from_code(29)
        ('bfloat16', 1, torch.float8_e4m3fn)
    """

    __slots__ = (
        "abbreviation",
        "buffer_format",
        "in_ml_dtypes",
        "is_complex",
        "is_floating_point",
        "is_signed",
        "itemsize",
        "numpy",
    )
    abbreviation: str
    buffer_format: str | None
    in_ml_dtypes: bool
    is_complex: bool
    is_floating_point: bool
    is_signed: bool
    itemsize: int
    numpy: str | None
    _by_name: ClassVar[dict[str, Any]] = {}
    _by_code: ClassVar[dict[int, Any]] = {}
    _what = "dtype"


# name, code, itemsize, buffer format, abbreviation. Source: torch/_export/serde/schema.py, torch/utils/_dtype_abbrs.py.
for _name, _code, _size, _format, _short in (
    ("uint8", 1, 1, "B", "u8"),
    ("int8", 2, 1, "b", "i8"),
    ("int16", 3, 2, "h", "i16"),
    ("int32", 4, 4, "i", "i32"),
    ("int64", 5, 8, "q", "i64"),
    ("float16", 6, 2, "e", "f16"),
    ("float32", 7, 4, "f", "f32"),
    ("float64", 8, 8, "d", "f64"),
    ("complex32", 9, 4, None, "c32"),
    ("complex64", 10, 8, "Zf", "c64"),
    ("complex128", 11, 16, "Zd", "c128"),
    ("bool", 12, 1, "?", "b8"),
    ("bfloat16", 13, 2, None, "bf16"),
    ("uint16", 28, 2, "H", "u16"),
    ("float8_e4m3fn", 29, 1, None, "f8e4m3fn"),
    ("float8_e5m2", 30, 1, None, "f8e5m2"),
    ("float8_e4m3fnuz", 31, 1, None, "f8e4m3fnuz"),
    ("float8_e5m2fnuz", 32, 1, None, "f8e5m2fnuz"),
    ("float8_e8m0fnu", 33, 1, None, "f8e8m0fnu"),
    ("uint32", 34, 4, "I", "u32"),
    ("uint64", 35, 8, "Q", "u64"),
):
    DType._add(
        _name,
        _code,
        itemsize=_size,
        numpy=None if _name == "complex32" else _name,
        in_ml_dtypes=_name.startswith(("bfloat", "float8")),
        buffer_format=_format,
        abbreviation=_short,
        is_floating_point=_name.startswith(("float", "bfloat")),
        is_complex=_name.startswith("complex"),
        is_signed=not _name.startswith(("uint", "bool", "float8_e8m0fnu")),
    )


def dtype_named(name: str) -> DType:
    """The dtype of a name such as "float32".

    Raises:
        KeyError: there is none.

    Example:
        >>> dtype_named("int64")
        torch.int64
    """
    found: DType = DType._by_name[name]
    return found


class Layout(_Enumerated):
    """How a tensor's elements are stored: ``torch.strided`` for nearly all.

    Example:
        >>> Layout.from_code(7), Layout("sparse_coo").code
        (torch.strided, 1)
    """

    __slots__ = ()
    _by_name: ClassVar[dict[str, Any]] = {}
    _by_code: ClassVar[dict[int, Any]] = {}
    _what = "layout"


for _code, _name in enumerate("sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc _mkldnn strided".split(), 1):
    Layout._add(_name, _code)


class MemoryFormat(_Enumerated):
    """The order of dimensions in memory that an operator is asked for.

    Example:
        >>> MemoryFormat.from_code(2)
        torch.channels_last
    """

    __slots__ = ()
    _by_name: ClassVar[dict[str, Any]] = {}
    _by_code: ClassVar[dict[int, Any]] = {}
    _what = "memory format"


for _code, _name in enumerate("contiguous_format channels_last channels_last_3d preserve_format".split(), 1):
    MemoryFormat._add(_name, _code)


_lock = threading.Lock()
_device_text = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)(?::(0|[1-9][0-9]{0,8}))?", re.ASCII)


class Device(_Constant):
    """Where a tensor is: a type such as ``cpu`` or ``cuda``, and a number or None.

    Example:
        >>> Device("cpu").index, Device("cuda:1").index, Device("cuda", 1) is Device("cuda:1")
        (None, 1, True)
    """

    __slots__ = ("__weakref__", "index", "type")
    type: str
    index: int | None
    _known: ClassVar[weakref.WeakValueDictionary[str, Device]] = weakref.WeakValueDictionary()

    def __new__(cls, type: str, index: int | None = None) -> Device:
        """The device of a text like "cuda:0", or of a type and an index.

        Raises:
            ValueError: it is no name of a device, or the index is given twice, or negative.
            TypeError: type is no str, or index no int.
        """
        if not isinstance(type, str) or isinstance(index, bool) or not (index is None or isinstance(index, int)):
            raise TypeError(f"a device is a str and an int or None, not {type!r} and {index!r}")
        text = type if index is None else f"{type}:{index}"
        found = cls._known.get(text)
        if found is not None:
            return found
        match = _device_text.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no device; write it like 'cpu' or 'cuda:0'")
        _lock.acquire()
        try:  # no `with`: CPython 3.11 does not let go of the lock when memory runs out in it
            found = cls._known.get(text)
            if found is None:
                found = object.__new__(cls)
                found._set(type=match[1], index=None if match[2] is None else int(match[2]))
                cls._known[text] = found
        finally:
            _lock.release()
        return found

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type='{self.type}'{'' if self.index is None else f', index={self.index}'})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return Device, (str(self),)


def to_torch(value: Any) -> Any:
    """What torch has for one of these objects or an Operator; anything else is given back.

    Raises:
        ImportError: it is one of these, and there is no torch.
        ValueError: torch has nothing of the name.

    Example:
        >>> to_torch(DType("float32")), to_torch(Device("cpu")), to_torch(5)
        (torch.float32, device(type='cpu'), 5)
    """
    operators = loaded("fastexport._operators")
    if operators and type(value) is operators.Operator:
        return value.to_torch()
    if not isinstance(value, _Constant):
        return value
    import torch

    try:
        return torch.device(str(value)) if isinstance(value, Device) else getattr(torch, value.name)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError) as error:
        raise ValueError(f"torch {torch.__version__} has no {value}: {error}") from error


def from_torch(value: Any) -> Any:
    """The object of this module for a dtype, layout, memory format or device of torch; anything else is given back.

    Raises:
        ValueError: a dtype that torch.export has no number for.

    Example:
        >>> import torch
        >>> from_torch(torch.float32), from_torch(torch.device("cuda", 0)), from_torch("x")
        (torch.float32, device(type='cuda', index=0), 'x')
    """
    torch = loaded("torch")
    if torch is None:
        return value
    if isinstance(value, torch.device):
        return Device(str(value))
    for theirs, ours in ((torch.dtype, DType), (torch.layout, Layout), (torch.memory_format, MemoryFormat)):
        if isinstance(value, theirs):
            return ours(str(value))
    return value
