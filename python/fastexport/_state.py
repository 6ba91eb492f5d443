"""Weights and constants of a program: mappings from name to tensor that read the file only when a tensor is touched.

Names whose input was removed from the graph since the program was read are gone from the mapping too, so that weights
stay in step with the signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from fastexport import _core
from fastexport._dtypes import DType, Layout
from fastexport._tables import Tabular

if TYPE_CHECKING:
    from fastexport._core import Program, Storage, Tensor
    from fastexport._errors import Fault
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram
    from fastexport._tables import Table
    from fastexport._weights import TensorSlice

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
        storage: its bytes, read when they are asked for.
    """

    __slots__ = ("entry", "kind", "name", "storage")

    def __init__(self, name: str, kind: str, entry: str, storage: Storage) -> None:
        self.name = name
        self.kind = kind
        self.entry = entry
        self.storage = storage

    @property
    def nbytes(self) -> int:
        """How many bytes the file has for it."""
        return self.storage.nbytes

    def tobytes(self) -> bytes:
        """The bytes that the file has for it."""
        return bytes(memoryview(self.storage))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}, {self.nbytes} bytes in {self.entry}>"


_OPAQUE_KINDS = {PICKLED: "pickled_tensor", CUSTOM: "custom_obj", OPAQUE: "opaque_obj"}


class Storages:
    """The storages of an archive, one for each entry, so that ties stay ties."""

    def __init__(self, archive: _core.Archive, mmap: bool) -> None:
        self._archive = archive
        self._mmap = mmap
        self._made: dict[str, Storage] = {}
        self._unchecked: dict[str, Storage] = {}

    def __getitem__(self, entry: str) -> Storage:
        storage = self._made.get(entry)
        if storage is None:
            storage = self._made.setdefault(entry, self._archive.storage(entry, map=self._mmap))
        return storage

    def __contains__(self, storage: Storage) -> bool:
        return storage.entry is not None and self._made.get(storage.entry) is storage

    def written(self) -> dict[str, Storage]:
        """Those into whose memory somebody wrote who was told that it is read-only, by entry."""
        return {entry: storage for entry, storage in list(self._made.items()) if storage.is_written()}

    def unchecked(self, entry: str) -> Storage:
        """The same bytes, whose checksum is not looked at."""
        storage = self._unchecked.get(entry)
        if storage is None:
            whole = self[entry]
            storage = self._unchecked.setdefault(entry, whole.part(0, whole.nbytes))
        return storage


def make_value(payload: Payload, storage: Storage) -> Any:
    """The tensor that a payload describes, or the OpaqueValue."""
    if payload.kind != TENSOR:
        return OpaqueValue(payload.name, _OPAQUE_KINDS[payload.kind], payload.entry, storage)
    device = payload.device or "cpu"
    return _core.Tensor(
        None if device == "meta" else storage,
        DType.from_code(payload.dtype),
        payload.sizes,
        payload.strides,
        payload.offset,
        requires_grad=payload.requires_grad,
        is_param=payload.is_param,
        device=device,
        layout=str(Layout.from_code(payload.layout)),
    )


def unpickled(storages: Storages, entry: str) -> dict[str, Any]:
    """The tensors of an entry that torch.save wrote, as older files have them; nothing is called."""
    from fastexport._unpickle import load_state_dict

    return dict(load_state_dict(storages[entry], entry=entry))


class TensorVerbs:
    """The verbs of safetensors, for mappings of tensors that a file has."""

    @property
    def _open_archive(self) -> _core.Archive:
        raise NotImplementedError

    def get_tensor(self, name: str) -> Any:
        """A tensor by name, as safetensors' verb; the same as indexing."""
        return self[name]  # type: ignore[index]

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor of which parts can be read by indexing, without the rest, and so without a check of its checksum."""
        from fastexport._weights import TensorSlice

        value = self.get_tensor(name)
        if not isinstance(value, _core.Tensor):
            raise TypeError(f"{name!r} is {value!r}, and no tensor")
        return TensorSlice(value)

    def metadata(self) -> dict[str, str] | None:
        """The texts that were saved along with the program (``extra_files``), or None: what safetensors calls so."""
        archive = self._open_archive
        texts = {}
        for name, *_ in archive.entries():
            for prefix in ("extra/", "extra_files/"):
                if name.startswith(prefix):
                    texts[name[len(prefix) :]] = archive.read(name).decode("utf-8", "backslashreplace")
        return texts or None

    def offset_keys(self) -> list[str]:
        """The names in the order in which the file has the bytes, for those who read all; others come last."""
        places = {name: place for place, (name, *_) in enumerate(self._open_archive.entries())}

        def place(name: str) -> tuple[int, int]:
            value = self[name]  # type: ignore[index]
            entry = value.storage.entry if value.storage is not None else None
            return places.get(entry or "", len(places)), getattr(value, "storage_offset", 0)

        return sorted(self, key=place)  # type: ignore[call-overload]


class InputTargets:
    """The weights and constants that a program's inputs are: those that had an input in the file, and have none now.

    It refers to the graph alone, so that programs are freed at once when nobody holds them.

    Attributes:
        unlifted: the inputs that are get_attr nodes now: weight or constant -> (which input it was, what it was, as
            Graph._signature has it).
    """

    def __init__(self, graph: Graph, in_file: frozenset[str] | None = None) -> None:
        self._graph = graph
        self._in_file = frozenset(_targets(graph)) if in_file is None else in_file
        self._dropped: tuple[int, frozenset[str]] = (graph._version, frozenset()) if in_file is None else (-1, in_file)
        self.unlifted: dict[str, tuple[int, tuple[Any, ...]]] = {}

    def dropped(self) -> frozenset[str]:
        """Names that had an input in the file and have none any more."""
        version, names = self._dropped
        now = self._graph._version
        if version != now:
            names = self._in_file.difference(_targets(self._graph), self.unlifted)
            self._dropped = now, names
        return names

    def copy_for(self, graph: Graph) -> InputTargets:
        """The same for a copy of the graph."""
        return self._with(graph, self._in_file)

    def with_names(self, names: Iterable[str]) -> InputTargets:
        """The same with weights or constants that are new."""
        return self._with(self._graph, self._in_file.union(names))

    def _with(self, graph: Graph, names: frozenset[str]) -> InputTargets:
        twin = InputTargets(graph, names)
        twin.unlifted.update(self.unlifted)
        return twin


def _targets(graph: Graph) -> Iterator[str]:
    signature = graph._signature()
    return (spec[4] for spec in (signature[0] if signature else ()) if spec[4] is not None)


class TensorDict(TensorVerbs, MutableMapping[str, Any], Tabular):
    """Name -> Tensor, in the order of the file. Assigning takes anything with a buffer, numpy arrays and torch tensors.

    Reading the names reads no tensor. A value that can only be carried along is an `OpaqueValue`.
    """

    def __init__(self, program: Program, storages: Storages, inputs: InputTargets, *, constants: bool) -> None:
        self._program = program
        self._storages = storages
        self._inputs = inputs
        self._constants = constants
        self._known: dict[str, Payload | Any] | None = None
        self._lock = RLock()  # of the first look, and of a tensor's making: all threads get the same objects
        self.changed: set[str] = set()  # names assigned or deleted since

    @property
    def _items(self) -> dict[str, Payload | Any]:
        if self._known is None:
            self._lock.acquire()
            try:  # no `with`: CPython 3.11 does not let go of the lock when memory runs out in it
                if self._known is None:
                    self._known = self._read()
            finally:
                self._lock.release()
        return self._known

    def _read(self) -> dict[str, Payload | Any]:
        payloads, pickle = self._program.payloads(self._constants)
        if pickle is not None:
            return unpickled(self._storages, pickle)
        return {item[0]: Payload(*item) for item in payloads}

    @property
    def _open_archive(self) -> _core.Archive:
        return self._program.archive

    def _gone(self, name: str) -> bool:
        return name not in self.changed and name in self._inputs.dropped()

    def __getitem__(self, name: str) -> Tensor:
        value = self._items[name]
        if self._gone(name):
            raise KeyError(name)
        if isinstance(value, Payload):
            self._lock.acquire()
            try:
                value = self._items[name]
                if isinstance(value, Payload):
                    value = self._items[name] = make_value(value, self._storages[value.entry])
            finally:
                self._lock.release()
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        from fastexport._tensors import from_array

        if not isinstance(name, str):
            raise TypeError(f"the name of a weight is a str, not {type(name).__name__}")
        old = self._items.get(name)
        if not isinstance(value, _core.Tensor | OpaqueValue):
            value = from_array(value, repr(name))
        if isinstance(value, _core.Tensor) and isinstance(old, Payload | _core.Tensor) and old.is_param:
            value = as_parameter(value, old.requires_grad)
        with self._lock:
            self.changed.add(name)
            self._items[name] = value

    def __delitem__(self, name: str) -> None:
        if self._gone(name):
            raise KeyError(name)
        with self._lock:
            del self._items[name]
            self.changed.add(name)

    def __iter__(self) -> Iterator[str]:
        dropped = self._inputs.dropped() - self.changed
        return (name for name in list(self._items) if name not in dropped)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._items and not self._gone(str(name))

    def __repr__(self) -> str:
        names = list(self)
        shown = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
        return f"<{len(names)} {'constants' if self._constants else 'weights'}: {shown}>"

    def _table(self) -> Table:
        from fastexport._weight_facts import facts_in, weights_table

        parameters = {name: "parameter" for name, value in self.described() if getattr(value, "is_param", False)}
        return weights_table(facts_in(self, parameters, "constant" if self._constants else "buffer"))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def copy_for(self, inputs: InputTargets) -> TensorDict:
        """The same for a copy of the program; the tensors, which can't be written to, are shared."""
        twin = TensorDict(self._program, self._storages, inputs, constants=self._constants)
        twin._known = None if self._known is None else dict(self._known)
        twin.changed = set(self.changed)
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # alone it is no program's any more

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)  # the tensors can't be written to

    def is_unchanged(self) -> bool:
        """Whether it holds exactly what the file holds."""
        return not self.changed and (not self._inputs.dropped() or len(self) == len(self._items))

    def is_storage_of_file(self, storage: Storage | None) -> bool:
        """Whether a storage is an entry of the file that the program came from."""
        return storage is not None and storage in self._storages

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


# ---- what a verifier has to say of changes -------------------------------------------------------


def with_changes(faults: Iterable[Fault], program: ExportedProgram, *, strict: bool) -> list[Fault]:
    """The faults of a program, whose weights were checked as the file has them, for the weights as they are now."""
    kept = list(faults)
    for state, which in ((program.state_dict, "weights"), (program.constants, "constants")):
        config = f"data/{which}/{program._program.model}_{which}_config.json"
        stale = tuple(f"$.config.{name}." if name.isidentifier() else f"$.config['{name}']." for name in state.changed)
        kept = [f for f in kept if f.entry != config or not f"{f.json_path}.".startswith(stale)]
    there = {node for node, name, state in _changed_inputs(program) if name in state}
    kept = [fault for fault in kept if fault.code != "FX401" or fault.node not in there]
    return kept + list(_faults_of_changes(program)) + (list(_faults_of_names(program)) if strict else [])


def _changed_inputs(program: ExportedProgram) -> Iterator[tuple[str, str, TensorDict]]:
    """Inputs whose weight or constant was assigned or deleted: (node, name of the weight, where it is)."""
    from fastexport._signature import InputKind

    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    for spec in program.graph_signature.input_specs:
        if spec.kind not in kinds or spec.target is None:
            continue
        is_constant = spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False
        state = program.constants if is_constant else program.state_dict
        if spec.target in state.changed:
            yield spec.arg.name, spec.target, state


def _faults_of_changes(program: ExportedProgram) -> Iterator[Fault]:
    from fastexport._errors import Fault

    for node, name, state in _changed_inputs(program):
        if name not in state:
            message = f"the input '{node}' is {name!r}, which was deleted"
            yield Fault("FX401", "signature", True, None, None, node, message)
            continue
        wrong = _difference(state[name], program.graph.node(node).meta.get("val"))
        if wrong:
            message = f"the new value of {name!r} {wrong}"
            yield Fault("FX501", "payload", True, None, None, node, message)


def _faults_of_names(program: ExportedProgram) -> Iterator[Fault]:
    """Of weights and constants that were assigned under a name that no input has; it may be a misspelled one."""
    from fastexport._errors import Fault

    inputs = {spec.target for spec in program.graph_signature.input_specs}
    for state, what in ((program.state_dict, "weight"), (program.constants, "constant")):
        for name in state:
            if name in state.changed and name not in inputs and name not in program._inputs.unlifted:
                message = f"no input stands for the {what} {name!r}; it is stored for nothing"
                yield Fault("FX501", "payload", False, None, None, None, message)


def _difference(value: Any, meta: Any) -> str | None:
    """What keeps a tensor from being the value that a graph expects."""
    if not isinstance(value, _core.Tensor) or not hasattr(meta, "shape"):
        return None
    if value.dtype is not meta.dtype:
        return f"is of {value.dtype}, but the graph expects {meta.dtype}"
    pairs = zip(value.shape, meta.shape, strict=False)
    if len(value.shape) != len(meta.shape) or any(type(want) is int and have != want for have, want in pairs):
        return f"has the shape {list(value.shape)}, but the graph expects [{', '.join(map(str, meta.shape))}]"
    if value.storage is None and not str(meta.device).startswith("meta"):
        return f"has no data, being on the device meta, but the graph expects it on {meta.device}"
    return None
