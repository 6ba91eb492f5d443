"""Where in memory, or in a file, tensors have their elements, and how much many of them take together.

What holds, and is tested: no byte counts twice, but those of tensors with gaps that lie in each other's gaps in part;
what tensors take together depends neither on their order nor on what was looked at before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastexport._state import Payload, Storages


class Place(NamedTuple):
    """The place of a tensor.

    Attributes:
        storage: equal for tensors of the same storage.
        start, end: the bytes of it from the first element to the last.
        used: how many of those the elements are; those that stand in the same place, as after ``expand``, count once.
    """

    storage: object
    start: int
    end: int
    used: int


def place_in_file(payload: Payload, itemsize: int, storages: Storages | None) -> Place:
    """That of a tensor that nobody has looked at."""
    is_alone = payload.device == "meta"  # it has no bytes there
    storage = (id(storages), payload.name) if is_alone else (id(storages), None, payload.entry)
    return _place(storage, payload.offset * itemsize, payload.sizes, payload.strides, itemsize)


def place_of(tensor: Any, shape: tuple[int, ...], storages: Storages | None) -> Place:
    """That of a tensor of ours or torch's; one whose memory can't be asked for is alone.

    Args:
        shape: its shape, of whole numbers.
        storages: those of the program that has it, whose files may have more in the same storage.
    """
    itemsize = tensor.dtype.itemsize
    storage = getattr(tensor, "storage", None)
    found = None
    if not callable(storage):
        if storage is not None:
            in_file = storages is not None and storage in storages
            key = (id(storages), None, storage.entry) if in_file else id(storage)
            found = _place(key, tensor.storage_offset * itemsize, shape, tensor.strides, itemsize)
    elif type(tensor).__module__ in ("torch", "torch.nn.parameter"):  # not of a class of its own
        found = _place_in_torch(tensor, shape, itemsize)
    return found or _place(id(tensor), 0, shape, None, itemsize)


def _place_in_torch(tensor: Any, shape: tuple[int, ...], itemsize: int) -> Place | None:
    try:
        address = tensor.untyped_storage().data_ptr()
        start = tensor.storage_offset() * itemsize
        key = (str(tensor.device), address)
        return _place(key, start, shape, tensor.stride(), itemsize) if address else None
    except Exception:  # a sparse one, or one on a device without addresses
        return None


def _place(storage: object, start: int, sizes: Sequence[int], strides: Sequence[int] | None, itemsize: int) -> Place:
    if strides is None:  # elements without gaps
        strides = [0] * len(sizes)
        step = 1
        for at in reversed(range(len(sizes))):
            strides[at] = step
            step *= sizes[at]
    extent, used = 1, 1
    for size, step in zip(sizes, strides, strict=True):
        extent += (size - 1) * step
        used *= size if step else 1
    if 0 in sizes:
        extent = 0
    return Place(storage, start, start + extent * itemsize, min(used, extent) * itemsize)


class Memory:
    """What tensors take together, added one by one."""

    def __init__(self) -> None:
        self._storages: dict[object, _Ranges] = {}

    def add(self, place: Place) -> int | None:
        """How many bytes a tensor adds to what those before it take; None: it stands in their memory alone."""
        if not place.used:
            return 0
        ranges = self._storages.get(place.storage)
        if ranges is None:
            ranges = self._storages[place.storage] = _Ranges()
        return ranges.add(place)


class _Ranges:
    """The bytes of one storage that tensors stand in.

    Which bytes of a range the elements are is not known where they have gaps. So tensors take together what theirs come
    to, but no more than the ranges cover: that is right for one that is part of another, and for two that stand in each
    other's gaps.
    """

    def __init__(self) -> None:
        self._seen: set[Place] = set()
        self._starts: list[int] = []  # of ranges in order, which do not touch
        self._ends: list[int] = []
        self._covered = 0
        self._used = 0

    def add(self, place: Place) -> int | None:
        if place in self._seen:
            return None
        before = min(self._used, self._covered)
        self._seen.add(place)
        self._used += place.used
        self._cover(place.start, place.end)
        added = min(self._used, self._covered) - before
        return added or None

    def _cover(self, start: int, end: int) -> None:
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:  # it meets these
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
            self._covered -= sum(self._ends[first:last]) - sum(self._starts[first:last])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        self._covered += end - start
