"""Weights by the verbs of safetensors: keys, get_tensor, get_slice, metadata; of a file, its program is not read."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from fastexport import _core
from fastexport._state import TENSOR, Payload, Storages, TensorVerbs, make_value, unpickled

if TYPE_CHECKING:
    from fastexport._core import Storage, Tensor

# What get_dtype() says, as safetensors has it; of types that safetensors lacks, in its manner.
SAFETENSORS_NAMES = {
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "bfloat16": "BF16",
    **{f"{kind}{bits}": f"{kind[0].upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"complex{bits}": f"C{bits}" for bits in (32, 64, 128)},
}

_FRAMEWORKS = {
    None: None,
    "np": "numpy",
    "numpy": "numpy",
    "pt": "torch",
    "torch": "torch",
    "pytorch": "torch",
}
_ALIGNMENT = 64  # parts of storages start at multiples, as records do


def _converted(tensor: Tensor, framework: str | None) -> Any:
    if framework is None:
        return tensor
    return tensor.numpy() if framework == "numpy" else tensor.torch()


# ---- slices ----

_Index = int | slice | EllipsisType | None


def _positions(index: Any, ndim: int) -> list[int | slice | None]:
    """An index for each dimension, with None for new ones; an ellipsis stands for what is left."""
    parts = list(index) if isinstance(index, tuple) else [index]
    given = sum(part is not None and part is not ... for part in parts)
    if given > ndim:
        raise IndexError(f"too many indices: {given} for a tensor of {ndim} dimensions")
    ellipses = [i for i, part in enumerate(parts) if part is ...]
    if len(ellipses) > 1:
        raise IndexError("an index has one ellipsis (...) at most")
    at = ellipses[0] if ellipses else len(parts)
    return [*parts[:at], *[slice(None)] * (ndim - given), *parts[at + 1 :]]


def _view(tensor: Tensor, index: Any) -> tuple[list[int], list[int], int]:
    """Shape, strides and offset of what an index picks: ints, slices, None and an ellipsis."""
    shape: list[int] = []
    strides: list[int] = []
    offset = tensor.storage_offset
    dims = iter(zip(tensor.shape, tensor.strides, strict=True))
    for part in _positions(index, tensor.ndim):
        if part is None:
            shape.append(1)
            strides.append(1)
            continue
        size, stride = next(dims)
        if isinstance(part, slice):
            start, stop, step = part.indices(size)
            if step < 0:
                raise ValueError("the step of a slice must be greater than 0")
            count = len(range(start, stop, step))
            shape.append(count)
            strides.append(stride * step if count > 1 else stride)
            offset += start * stride if count else 0
            continue
        if isinstance(part, bool) or not hasattr(type(part), "__index__"):  # a bool is a mask in other libraries
            raise TypeError(f"a slice is taken by ints, slices, None and ..., not by {type(part).__name__}")
        number = operator.index(part)
        if not -size <= number < size:
            raise IndexError(f"index {number} is out of range for a dimension of size {size}")
        offset += number % size * stride
    return shape, strides, offset


def _part(storage: Storage, first: int, last: int) -> tuple[Storage, int]:
    """The bytes [first, last) of a storage, with some before them; how many those are."""
    before = first % _ALIGNMENT
    return storage.part(first - before, last - first + before), before


def take(tensor: Tensor, index: Any) -> Tensor:
    """A part of a tensor: a view of those bytes alone that lie between its first element and its last.

    Args:
        tensor: the tensor.
        index: ints, slices with steps above 0, None and an ellipsis, or a tuple of them.

    Raises:
        IndexError: it lies outside the tensor.
        ValueError: a step is below 1.
        TypeError: it is indexed by something else.

    Example:
        >>> import array
        >>> from fastexport._tensors import from_array
        >>> take(from_array(array.array("f", [1, 2, 3, 4])), slice(1, None, 2)).tolist()
        [2.0, 4.0]
    """
    shape, strides, offset = _view(tensor, index)
    storage, dtype = tensor.storage, tensor.dtype
    if storage is not None:
        size = dtype.itemsize
        last = offset + 1 + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
        if math.prod(shape):
            storage, before = _part(storage, offset * size, last * size)
            offset = before // size
        else:
            storage, offset = _core.Storage(b""), 0
    return _core.Tensor(
        storage, dtype, tuple(shape), tuple(strides), offset, device=tensor.device, layout=tensor.layout
    )


class TensorSlice:
    """A tensor of which parts can be had without the rest; see `WeightsFile.get_slice`.

    >>> import fastexport
    >>> with fastexport.open_weights("tests/data/pt2/samples/current/linear.pt2") as f:
    ...     part = f.get_slice("fc.weight")
    ...     print(part.get_shape(), part.get_dtype(), part[1:, 0])
    [3, 4] F32 Tensor(shape=(2,), dtype=torch.float32, 8 bytes)
    """

    __slots__ = ("_framework", "_tensor")

    def __init__(self, tensor: Tensor, framework: str | None = None) -> None:
        self._tensor = tensor
        self._framework = framework

    def get_shape(self) -> list[int]:
        """The sizes of the whole."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The type of the elements as safetensors names it: ``"F32"``, ``"BF16"``."""
        return SAFETENSORS_NAMES[self._tensor.dtype.name]

    def __getitem__(self, index: Any) -> Any:
        return _converted(take(self._tensor, index), self._framework)

    def __len__(self) -> int:
        return len(self._tensor)

    def __iter__(self) -> Iterator[Any]:
        if not self._tensor.ndim:
            raise TypeError("iteration over a tensor without dimensions")
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"TensorSlice(shape={self.get_shape()}, dtype={self.get_dtype()})"


# ---- files ----


class WeightsFile(TensorVerbs, Mapping[str, Any]):
    """The weights and constants of a file, by name; made by `fastexport.open_weights`.

    It is a mapping to tensors, has the verbs of safetensors' ``safe_open``, and is closed by ``with``. What was taken
    from it stays good after that.

    Attributes:
        model: the name of the model.
        weights, constants: the names of each.
    """

    def __init__(self, archive: _core.Archive, model: str | None, *, mmap: bool, checksums: bool, framework: Any):
        if framework not in _FRAMEWORKS:
            raise ValueError(f"framework is one of {', '.join(map(repr, _FRAMEWORKS))}, not {framework!r}")
        self._framework = _FRAMEWORKS[framework]
        self._archive: _core.Archive | None = archive
        self._storages = Storages(archive, mmap)
        self._checksums = checksums
        self.model, *tables = _core.read_payloads(archive, model)
        read = [self._tensors_of(*table) for table in tables]
        self._items: dict[str, Any] = {**read[1], **read[0]}
        self.weights, self.constants = (tuple(table) for table in read)

    def _tensors_of(self, payloads: list[tuple[Any, ...]], pickle: str | None) -> dict[str, Any]:
        if pickle is not None:
            values = unpickled(self._storages, pickle)
            return {name: value for name, value in values.items() if isinstance(value, _core.Tensor)}
        return {payload.name: payload for payload in map(Payload._make, payloads) if payload.kind == TENSOR}

    @property
    def _open_archive(self) -> _core.Archive:
        if self._archive is None:
            raise ValueError("the file of weights is closed")
        return self._archive

    def __getitem__(self, name: str) -> Tensor:
        self._open_archive  # noqa: B018
        value = self._items[name]
        if isinstance(value, Payload):
            value = make_value(value, self._storage_of(value))
            self._items[name] = value
        return value

    def _storage_of(self, payload: Payload) -> Storage:
        storage = self._storages[payload.entry]
        return storage if self._checksums else self._storages.unchecked(payload.entry)

    def __iter__(self) -> Iterator[str]:
        self._open_archive  # noqa: B018
        return iter([*self.weights, *(name for name in self.constants if name not in self.weights)])

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def get_tensor(self, name: str) -> Any:
        """A tensor by name: a `Tensor`, or that of the framework which the file was opened for."""
        return _converted(self[name], self._framework)

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor of which parts can be read by indexing, without the rest, and so without a check of its checksum."""
        return TensorSlice(self[name], self._framework)

    def close(self) -> None:
        """Take no more from it. The file itself is closed when the tensors are gone."""
        self._archive = None

    def __enter__(self) -> Self:
        self._open_archive  # noqa: B018
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._archive is None else f"{len(self)} tensors"
        return f"<WeightsFile of {self.model}: {state}>"


def open_weights(
    path_or_file: Any,
    *,
    model: str | None = None,
    framework: str | None = None,
    mmap: bool = True,
    checksums: bool = True,
    limits: Mapping[str, int] | None = None,
) -> WeightsFile:
    """Open the weights and constants of a .pt2 file, without reading its program.

    No tensor is read before its elements are asked for. They are then mapped into memory, without a copy; a large one
    is read to its end once, to see that its checksum is right, which leaves nothing in memory.

    Args:
        path_or_file: a path, an open binary file, or the bytes; a URL or an OpenFile of fsspec, of which the tensors
            are fetched that are touched, when it is large.
        model: the name of the model, of an archive with several.
        framework: what ``get_tensor`` gives: ``"np"`` (numpy) and ``"pt"`` (torch) as in safetensors; None: `Tensor`.
        mmap: map tensors; False reads them into memory, which is right for files that others may cut short.
        checksums: False leaves them unchecked, so that only those pages of a tensor are ever read that are used.
        limits: see `fastexport.load`.

    Raises:
        FormatError: the file is damaged, or has no weights that can be read.
        OSError: the file can't be read.
        ValueError: there is no such framework.

    Example:
        >>> import fastexport
        >>> with fastexport.open_weights("tests/data/pt2/samples/current/linear.pt2") as f:
        ...     print(list(f.keys()), f.get_tensor("fc.bias"), f.metadata())
        ['fc.weight', 'fc.bias'] Tensor(shape=(3,), dtype=torch.float32, 12 bytes) {'note.txt': 'sample linear'}
    """
    from fastexport._arguments import check_mapping
    from fastexport._errors import naming
    from fastexport._program import open_archive

    check_mapping("limits", limits)
    with naming(path_or_file):
        archive = open_archive(path_or_file, limits)
        return WeightsFile(archive, model, mmap=mmap, checksums=checksums, framework=framework)
