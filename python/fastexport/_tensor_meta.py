"""What a program knows of a tensor: everything but its elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from fastexport import _core
from fastexport._dtypes import Device, DType, Layout, from_torch
from fastexport._loaded import loaded
from fastexport._symbols import SymInt

__all__ = ["TensorMeta"]

_FIELDS = ("dtype", "shape", "stride", "device", "layout", "requires_grad", "storage_offset")


def _sizes(values: Any, what: str) -> tuple[int | SymInt, ...]:
    try:
        sizes = tuple(values)
    except TypeError:
        raise TypeError(f"the {what} of a tensor is a sequence of int and SymInt, not {values!r}") from None
    for size in sizes:
        _check_size(size, what)
    return sizes


def _check_size(size: Any, what: str) -> None:
    if type(size) is not int and not isinstance(size, SymInt):
        raise TypeError(f"the {what} of a tensor holds int and SymInt, not {size!r}")
    if type(size) is int and not -(2**63) <= size < 2**63:
        raise ValueError(f"the {what} of a tensor holds numbers of 64 bits, not {size}")


def _contiguous(shape: tuple[int | SymInt, ...]) -> tuple[int | SymInt, ...] | None:
    """The strides of a tensor whose elements lie in order; None when one does not fit in 64 bits.

    As in torch, a dimension without elements counts as one of 1, and a size that may be 0 as the greater of it and 1.
    """
    strides: list[int | SymInt] = []
    step: int | SymInt = 1
    try:
        for size in reversed(shape):
            strides.append(step)
            step = step * (max(size, 1) if isinstance(size, int) else size.max(1))
    except OverflowError:
        if len(strides) < len(shape):
            return None
    if any(isinstance(step, int) and step >= 2**63 for step in strides):
        return None
    return tuple(reversed(strides))


class TensorMeta:
    """dtype, shape and the like of a tensor: what ``node.meta["val"]`` holds in a graph without torch.

    It can't be changed; `replace` makes another one.

    Attributes:
        dtype: a DType, ``torch.float32``.
        shape: a tuple of int and SymInt.
        stride: likewise, in elements.
        device: a Device.
        layout: a Layout, ``torch.strided``.
        requires_grad: whether gradients are wanted.
        storage_offset: of the first element, int or SymInt.

    Example:
        >>> meta = TensorMeta("float32", (2, 3))
        >>> meta, meta.stride
        (TensorMeta(f32[2, 3], cpu), (3, 1))
        >>> meta.replace(dtype="bool", shape=(4,))
        TensorMeta(b8[4], cpu)
    """

    __slots__ = _FIELDS
    dtype: DType
    shape: tuple[int | SymInt, ...]
    stride: tuple[int | SymInt, ...]
    device: Device
    layout: Layout
    requires_grad: bool
    storage_offset: int | SymInt

    def __init__(
        self,
        dtype: DType | str | Any,
        shape: Sequence[int | SymInt],
        stride: Sequence[int | SymInt] | None = None,
        device: Device | str | Any = "cpu",
        layout: Layout | str | Any = "strided",
        requires_grad: bool = False,
        storage_offset: int | SymInt = 0,
    ) -> None:
        """A tensor's facts. dtype, device and layout may be names, or torch's own.

        Args:
            stride: None: elements lie in order.

        Raises:
            TypeError: something is of a type that it can't be.
            ValueError: a name is none; stride and shape are of different lengths; or the shape is too large.
        """
        dtype, device, layout = from_torch(dtype), from_torch(device), from_torch(layout)
        set_ = object.__setattr__
        set_(self, "dtype", dtype if isinstance(dtype, DType) else DType(dtype))
        set_(self, "device", device if isinstance(device, Device) else Device(device))
        set_(self, "layout", layout if isinstance(layout, Layout) else Layout(layout))
        sizes = _sizes(shape, "shape")
        strides = _contiguous(sizes) if stride is None else _sizes(stride, "stride")
        if strides is None:
            raise ValueError(f"the stride of a tensor of shape {sizes} does not fit in 64 bits")
        if len(sizes) != len(strides):
            raise ValueError(f"a tensor of {len(sizes)} dimensions has no {len(strides)} strides")
        if type(requires_grad) is not bool:
            raise TypeError(f"requires_grad is True or False, not {requires_grad!r}")
        _check_size(storage_offset, "storage_offset")
        set_(self, "shape", sizes)
        set_(self, "stride", strides)
        set_(self, "requires_grad", requires_grad)
        set_(self, "storage_offset", storage_offset)

    @classmethod
    def of(cls, tensor: Any) -> TensorMeta:
        """The facts of a tensor: one of torch, fake or not, or a weight of a file. The tensor itself is not kept.

        Sizes that depend on symbols become SymInt, with their hints. So for the value of a node this is equal to what a
        file of the same program says.

        Raises:
            TypeError: it is no tensor.
            ValueError: it has no strides, as sparse ones have not, or a size that is no expression.

        Example:
            >>> import torch
            >>> TensorMeta.of(torch.ones(2, 3, requires_grad=True).t())
            TensorMeta(f32[3, 2], cpu, stride=(1, 3), requires_grad=True)
        """
        if type(tensor) is cls:
            return tensor
        if type(tensor) is _core.Tensor:
            return cls(
                tensor.dtype,
                tensor.shape,
                tensor.strides,
                tensor.device,
                tensor.layout.removeprefix("torch."),
                tensor.requires_grad,
                tensor.storage_offset,
            )
        torch = loaded("torch")
        if torch is None or not issubclass(type(tensor), torch.Tensor):
            raise TypeError(f"TensorMeta.of() takes a tensor, not {type(tensor).__name__}")
        from fastexport._torch_values import tensor_facts

        return cls(*tensor_facts(tensor))

    def replace(self, **changes: Any) -> TensorMeta:
        """Another TensorMeta, with some fields changed. With a new shape and no stride, elements lie in order.

        Raises:
            TypeError, ValueError: as when one is made.

        Example:
            >>> TensorMeta("int64", (2,)).replace(requires_grad=False, device="cuda:0")
            TensorMeta(i64[2], cuda:0)
        """
        fields: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        if "shape" in changes:
            fields["stride"] = None
        return TensorMeta(**{**fields, **changes})

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols that its sizes, strides and offset depend on, each once.

        Example:
            >>> TensorMeta("float32", (SymInt("Symbol('s0', positive=True, integer=True)"), 3)).symbols
            ('s0',)
        """
        numbers = (*self.shape, *self.stride, self.storage_offset)
        return tuple(dict.fromkeys(name for n in numbers if isinstance(n, SymInt) for name in n.symbols))

    @property
    def numel(self) -> int | SymInt:
        """How many elements it has: the product of its sizes.

        Raises:
            OverflowError: a number that does not fit in 64 bits.

        Example:
            >>> TensorMeta("float32", (SymInt("Symbol('s0', positive=True, integer=True)"), 3, 4)).numel
            12*s0
        """
        whole = 1
        symbolic: int | SymInt = 1
        for size in self.shape:
            if isinstance(size, SymInt):
                symbolic = size * symbolic
            else:
                whole *= size
        return whole * symbolic

    @property
    def nbytes(self) -> int | SymInt:
        """How many bytes its elements take, each once.

        Example:
            >>> TensorMeta("float16", (2, 3)).nbytes
            12
        """
        return self.numel * self.dtype.itemsize

    def evaluate(self, sizes: Mapping[str, int] | None = None, /, **symbols: int) -> TensorMeta:
        """The same with numbers for its symbols.

        Args:
            sizes: a mapping from the names of symbols to their values.
            symbols: the same as keywords; these go first.

        Raises:
            KeyError: a symbol has no value.
            OverflowError, ZeroDivisionError, ValueError: as `SymInt.evaluate`.

        Example:
            >>> TensorMeta("float32", (SymInt("Symbol('s0', positive=True, integer=True)"), 3)).evaluate(s0=8)
            TensorMeta(f32[8, 3], cpu)
        """

        def number(n: int | SymInt) -> int:
            return n.evaluate(sizes, **symbols) if isinstance(n, SymInt) else n

        fields: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        fields["shape"] = tuple(map(number, self.shape))
        fields["stride"] = tuple(map(number, self.stride))
        fields["storage_offset"] = number(self.storage_offset)
        return TensorMeta(**fields)

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _FIELDS)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a TensorMeta can't be changed; use replace({name}=...)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a TensorMeta can't be changed; use replace()")

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, TensorMeta) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __copy__(self) -> TensorMeta:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorMeta:
        return self

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return TensorMeta, self._fields()

    def __str__(self) -> str:
        """The dtype and shape alone: f32[2, s0]."""
        return f"{self.dtype.abbreviation}[{', '.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        parts = [str(self), str(self.device)]
        in_order = _contiguous(self.shape)
        if in_order is not None and in_order != self.stride:
            parts.append(f"stride=({', '.join(map(str, self.stride))})")
        if self.layout.name != "strided":
            parts.append(f"layout={self.layout}")
        if self.requires_grad:
            parts.append("requires_grad=True")
        if self.storage_offset != 0:
            parts.append(f"storage_offset={self.storage_offset}")
        return f"TensorMeta({', '.join(parts)})"
