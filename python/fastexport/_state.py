"""Weights and constants of a program: mappings from name to tensor that read the file only when a tensor is touched.

Names whose input was removed from the graph since the program was read are gone from the mapping too, so that weights
stay in step with the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastexport import _core
from fastexport._dtypes import DType, Layout

if TYPE_CHECKING:
    from fastexport._core import Program, Storage, Tensor

TENSOR, PICKLED, CUSTOM, OPAQUE = range(4)  # pt2_payload_kind of csrc/pt2/program.h


class Payload(NamedTuple):
    """A weight or constant as the file describes it; see Program.payloads."""

    name: str
    kind: int
    is_param: bool
    requires_grad: bool
    entry: str
    dtype: int
    layout: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str | None


class OpaqueValue:
    """A constant that only torch, or the program that made it, can read: a TorchBind object or a pickle.

    It is carried along as it is. fastexport never unpickles it.

    Attributes:
        name: its name in the program.
        kind: ``"custom_obj"``, ``"opaque_obj"`` or ``"pickled_tensor"``.
        entry: where the file has it.
    """

    __slots__ = ("entry", "kind", "name", "_storage")

    def __init__(self, name: str, kind: str, entry: str, storage: Storage) -> None:
        self.name = name
        self.kind = kind
        self.entry = entry
        self._storage = storage

    @property
    def nbytes(self) -> int:
        """How many bytes the file has for it."""
        return self._storage.nbytes

    def tobytes(self) -> bytes:
        """The bytes that the file has for it."""
        return bytes(memoryview(self._storage))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}, {self.nbytes} bytes in {self.entry}>"


_OPAQUE_KINDS = {PICKLED: "pickled_tensor", CUSTOM: "custom_obj", OPAQUE: "opaque_obj"}


class Storages:
    """The storages of an archive, one for each entry, so that ties stay ties."""

    def __init__(self, archive: _core.Archive, mmap: bool) -> None:
        self._archive = archive
        self._mmap = mmap
        self._made: dict[str, Storage] = {}

    def __getitem__(self, entry: str) -> Storage:
        storage = self._made.get(entry)
        if storage is None:
            storage = self._made[entry] = self._archive.storage(entry, map=self._mmap)
        return storage

    def __contains__(self, storage: Storage) -> bool:
        return storage.entry is not None and self._made.get(storage.entry) is storage


class TensorDict(MutableMapping[str, Any]):
    """Name -> Tensor, in the order of the file. Assigning takes anything with a buffer, numpy arrays and torch tensors.

    Reading the names reads no tensor. A value that can only be carried along is an `OpaqueValue`.
    """

    def __init__(
        self,
        program: Program,
        storages: Storages,
        *,
        constants: bool,
        dropped: Callable[[], set[str]],
    ) -> None:
        self._program = program
        self._storages = storages
        self._constants = constants
        self._dropped = dropped
        self._known: dict[str, Payload | Any] | None = None
        self.changed: set[str] = set()  # names assigned or deleted since

    @property
    def _items(self) -> dict[str, Payload | Any]:
        if self._known is None:
            payloads, pickle = self._program.payloads(self._constants)
            known: dict[str, Any] = {payload[0]: Payload(*payload) for payload in payloads}
            if pickle is not None:
                known = self._unpickle(pickle)
            self._known = known
        return self._known

    def _unpickle(self, entry: str) -> dict[str, Any]:
        from fastexport._unpickle import load_state_dict

        return dict(load_state_dict(_core.Archive(self._storages[entry]), entry=entry))

    def _make(self, payload: Payload) -> Any:
        storage = self._storages[payload.entry]
        if payload.kind != TENSOR:
            return OpaqueValue(payload.name, _OPAQUE_KINDS[payload.kind], payload.entry, storage)
        return _core.Tensor(
            storage,
            DType.from_code(payload.dtype),
            payload.sizes,
            payload.strides,
            payload.offset,
            requires_grad=payload.requires_grad,
            is_param=payload.is_param,
            device=payload.device or "cpu",
            layout=str(Layout.from_code(payload.layout)),
        )

    def _gone(self, name: str) -> bool:
        return name not in self.changed and name in self._dropped()

    def __getitem__(self, name: str) -> Tensor:
        value = self._items[name]
        if self._gone(name):
            raise KeyError(name)
        if isinstance(value, Payload):
            value = self._items[name] = self._make(value)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        from fastexport._tensors import from_array

        if not isinstance(name, str):
            raise TypeError(f"the name of a weight is a str, not {type(name).__name__}")
        old = self._items.get(name)
        if not isinstance(value, _core.Tensor | OpaqueValue):
            value = from_array(value)
        if isinstance(value, _core.Tensor) and isinstance(old, Payload | _core.Tensor) and old.is_param:
            value = as_parameter(value, old.requires_grad)
        self._items[name] = value
        self.changed.add(name)

    def __delitem__(self, name: str) -> None:
        if self._gone(name):
            raise KeyError(name)
        del self._items[name]
        self.changed.add(name)

    def __iter__(self) -> Iterator[str]:
        dropped = self._dropped() - self.changed
        return (name for name in list(self._items) if name not in dropped)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._items and not self._gone(str(name))

    def __repr__(self) -> str:
        names = list(self)
        shown = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
        return f"<{len(names)} {'constants' if self._constants else 'weights'}: {shown}>"

    def copy_for(self, dropped: Callable[[], set[str]]) -> TensorDict:
        """The same for a copy of the program; the tensors, which can't be written to, are shared."""
        twin = TensorDict(self._program, self._storages, constants=self._constants, dropped=dropped)
        twin._known = None if self._known is None else dict(self._known)
        twin.changed = set(self.changed)
        return twin

    def is_unchanged(self) -> bool:
        """Whether it holds exactly what the file holds."""
        return not self.changed and (self._known is None or len(self) == len(self._known)) and not self._dropped()

    def is_storage_of_file(self, storage: Storage) -> bool:
        """Whether a storage is an entry of the file that the program came from."""
        return storage in self._storages

    def described(self) -> Iterator[tuple[str, Payload | Any]]:
        """Names with what is known of them, without reading anything."""
        return ((name, self._items[name]) for name in self)


def as_parameter(tensor: Tensor, requires_grad: bool) -> Tensor:
    """The same tensor, marked as a parameter."""
    return _core.Tensor(
        tensor.storage,
        tensor.dtype,
        tensor.shape,
        tensor.strides,
        tensor.storage_offset,
        requires_grad=requires_grad,
        is_param=True,
        device=tensor.device,
        layout=tensor.layout,
    )
