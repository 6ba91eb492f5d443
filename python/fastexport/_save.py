"""Writing programs: layout A, as torch.export.save of torch 2.13 writes it.

What did not change is copied from the file the program came from, byte for byte, without being held in memory; a new
file takes its name only when it is whole.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fastexport import _core
from fastexport._errors import FormatError, naming
from fastexport._interface import calls_text, takes_other_inputs
from fastexport._loaded import loaded
from fastexport._new_file import refuse_url
from fastexport._program import ExportedProgram, _is_text
from fastexport._state import OpaqueValue, TensorDict

if TYPE_CHECKING:
    import torch.export

# Bytes, or an entry of an archive.
Source = bytes | memoryview | tuple[_core.Archive, str]

# The protocol with which torch.export.save pickles unless it is told another.
DEFAULT_PROTOCOL = 2

MARKERS: tuple[tuple[str, bytes], ...] = (
    ("archive_format", b"pt2"),
    ("archive_version", b"0"),
    (".data/version", b"6\n"),
    ("byteorder", b"little"),
)


def save(
    program: ExportedProgram | torch.export.ExportedProgram,
    path_or_file: Any,
    *,
    extra_files: Mapping[str, str | bytes] | None = None,
    opset_version: Mapping[str, int] | None = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    verify: bool = True,
) -> None:
    """Write a program so that torch.export.load, and fastexport.load, open it.

    A program of torch is written straight from its objects, to the file that torch.export.save makes of it.

    Args:
        program: the program; also one of torch's.
        path_or_file: a path (a str, bytes or a PathLike), or a file open for writing in binary mode. A path is replaced
            only when all is written: saving onto the file that the program came from is fine.
        extra_files: texts to store along with it, by name. None keeps those that came with the program; a dict takes
            their place.
        opset_version: of a program of torch: versions of sets of operators, by name, to be noted in the file. That
            of ``aten`` is this torch's when it is not given.
        pickle_protocol: of a program of torch: for what is pickled, such as its example inputs.
        verify: check an edited program, and any of torch, so that no file is written that `load` would refuse: weights
            against the graph, arguments against the operators' schemas, the calling convention. False writes what
            torch.export.save would; torch's verifier sees a program of torch in any case.

    Raises:
        VerifyError: the program breaks a rule.
        torch._export.verifier.SpecViolationError: torch's verifier refuses a program of torch.
        FormatError: the program holds something that the format can't say; the message names the node.
        OSError: the file can't be written: FileNotFoundError and the like, as open() raises them. Nothing is left
            behind then.

    Example:
        >>> import io, fastexport
        >>> ep = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
        >>> file = io.BytesIO()
        >>> fastexport.save(ep, file)
        >>> fastexport.load(file.getvalue()).graph == ep.graph
        True
    """
    _check_arguments(program, path_or_file, extra_files, opset_version, pickle_protocol)
    if "_source" in program.__dict__ or not isinstance(program, ExportedProgram):  # of torch, or from there
        from fastexport import _torch_save

        torchs = program.to_torch() if "_source" in program.__dict__ else program
        _torch_save.write(
            torchs,
            path_or_file,
            extra_files=extra_files,
            opset_version=opset_version,
            pickle_protocol=pickle_protocol,
            verify=verify,
        )
        return
    check_names(program)
    if verify and not _is_untouched(program):
        program.verify(weights=False)
    write_parts(path_or_file, _parts(program, extra_files))


def _check_arguments(
    program: Any, path_or_file: Any, extra_files: Any, opset_version: Any, pickle_protocol: Any
) -> None:
    """Raise a TypeError for what can't be right."""
    torchs = loaded("torch.export")
    classes = (ExportedProgram,) if torchs is None else (ExportedProgram, torchs.ExportedProgram)
    if not isinstance(program, classes):
        raise TypeError(
            "The 'program' parameter must be an instance of 'ExportedProgram', of fastexport or torch.export, "
            f"got '{type(program).__name__}' instead."
        )
    if not isinstance(path_or_file, str | bytes | os.PathLike) and not hasattr(path_or_file, "write"):
        raise TypeError("save() writes to a path or a binary file")
    if extra_files is not None and not isinstance(extra_files, Mapping):
        raise TypeError(f"extra_files maps names to texts; it is a {type(extra_files).__name__}")
    if opset_version is not None and not (
        isinstance(opset_version, Mapping)
        and all(type(name) is str and type(number) is int for name, number in opset_version.items())
    ):
        raise TypeError("opset_version maps names of sets of operators to whole numbers")
    if type(pickle_protocol) is not int:
        raise TypeError(f"pickle_protocol is a whole number, not a {type(pickle_protocol).__name__}")


def write_parts(path_or_file: Any, parts: list[tuple[str, Source]]) -> None:
    """Write an archive to a path, which is replaced when all is written, or to a file.

    Raises:
        OSError: it can't be written.
    """
    if isinstance(path_or_file, str | bytes | os.PathLike):
        path = os.fspath(path_or_file)
        refuse_url(path)
        with naming(path, is_written=True):
            _core.write_archive(path, _root(path), parts)
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "archive.pt2")
        _core.write_archive(path, "archive", parts)
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                _write_all(path_or_file, piece)


def check_names(program: Any) -> None:
    """See that the names of weights and constants can be written.

    Raises:
        FormatError: one can't; the message has it.
    """
    for name in (*program.state_dict, *program.constants):
        if isinstance(name, str) and not _is_text(name):
            message = f"the weight or constant {name!r} can't be written: its name holds a lone surrogate"
            raise FormatError(message, kind="name")


def _is_untouched(program: ExportedProgram) -> bool:
    """Whether it is what was read, for sure."""
    states = (program.state_dict, program.constants)
    if program._calls is not None:
        return False
    return program._program.is_unchanged(program.graph) and all(state.is_unchanged() for state in states)


def _write_all(file: Any, piece: bytes) -> None:
    """Unbuffered files may take less than they are given, and tell how much."""
    while piece:
        taken = file.write(piece)
        if taken is None and not isinstance(file, io.RawIOBase):  # many a class of users tells nothing
            return
        if taken is None or taken == 0:
            raise OSError("the file takes no more bytes")
        if not isinstance(taken, int):
            raise TypeError(f"write() of a {type(file).__name__} gives how many bytes it took, not {taken!r:.100}")
        if not 0 < taken <= len(piece):
            raise OSError(f"write() of a {type(file).__name__} says it took {taken} of {len(piece)} bytes")
        piece = piece[taken:]


def _root(path: str | bytes) -> str:
    """The top folder: the file's name without its last extension, as torch has it, where that can be one."""
    name = os.path.splitext(os.path.basename(os.fsdecode(path)))[0]
    usable = name.isprintable() and "\\" not in name and name[1:2] != ":"
    return name if name and usable else "archive"


def _parts(program: ExportedProgram, extra_files: Mapping[str, str | bytes] | None) -> list[tuple[str, Source]]:
    extras = None if extra_files is None else encoded_extras(extra_files)
    if program._program.layout == "A":
        parts = _changed_parts(program, extras)
    else:
        parts = _new_parts(program, program.extra_files if extras is None else extras)
    written = program._storages.written()  # what the tensors show is saved, not what the file still has
    return [(name, _as_shown(source, written)) for name, source in parts]


def _as_shown(source: Source, written: Mapping[str, _core.Storage]) -> Source:
    if isinstance(source, tuple) and source[1] in written:
        return memoryview(written[source[1]])
    return source


def encoded_extras(extra_files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """Extra files as bytes.

    Raises:
        TypeError: a name is no str, or what it names is neither str nor bytes.
    """
    for name, text in extra_files.items():
        if not isinstance(name, str) or not isinstance(text, str | bytes):
            raise TypeError("extra_files maps names to texts")
        if not _is_text(name) or (isinstance(text, str) and not _is_text(text)):
            raise ValueError(f"the extra file {name!r} can't be written: its name or text holds a lone surrogate")
    return {name: text.encode() if isinstance(text, str) else text for name, text in extra_files.items()}


def _model_json(program: ExportedProgram) -> Source:
    """The document: the file's own where nothing changed."""
    core = program._program
    if program._calls is not None or not core.is_unchanged(program.graph):
        text = _with_changes(program, core.write(program.graph, calls_text(program)))
        is_edited = program.graph._version != program.graph._file_version
        if is_edited or text != core.canonical():
            return text
    return core.archive, core.model_entry


def _with_changes(program: ExportedProgram, text: bytes) -> bytes:
    """A document with the guards of today, and without ranges of symbols that went with their nodes."""
    gone = [name for name, _, _, is_used in program._program.ranges() if is_used and _is_gone(name, text)]
    if program._guards is None and not gone:
        return text
    document = json.loads(text)
    for name in gone:
        del document["range_constraints"][name]
    if program._guards is not None:
        document["guards_code"] = program._guards
    return json.dumps(document).encode()


def _is_gone(name: str, text: bytes) -> bool:
    """Whether a key of a range is a symbol that no expression of a document has."""
    spellings = (f"Symbol('{name}'", f'Symbol(\\"{name}\\"')
    return name.isidentifier() and not any(spelling.encode() in text for spelling in spellings)


def _changed_parts(program: ExportedProgram, extras: Mapping[str, bytes] | None) -> list[tuple[str, Source]]:
    """Every entry of the archive in its order, with what changed in its place."""
    core = program._program
    changed: dict[str, Source | None] = {core.model_entry: _model_json(program)}
    if core.sample_inputs is not None and takes_other_inputs(program):
        changed[core.sample_inputs] = b""
    for state, folder in ((program.state_dict, "weights"), (program.constants, "constants")):
        if not state.is_unchanged():
            changed.update(_payload_parts(state, folder, core))
    names = [name for name, *_ in core.archive.entries()]
    if extras is not None:
        changed.update((name, None) for name in names if name.startswith("extra/"))
        changed.update((f"extra/{name}", text) for name, text in extras.items())
    parts: list[tuple[str, Source]] = []
    for name in names:
        source = changed.pop(name, (core.archive, name))
        if source is not None:
            parts.append((name, source))
    # New entries go first, as weights do in torch's own files.
    return [(name, source) for name, source in changed.items() if source is not None] + parts


def _new_parts(program: ExportedProgram, extras: Mapping[str, bytes]) -> list[tuple[str, Source]]:
    """All entries of a program that comes from another layout."""
    core = program._program
    parts: list[tuple[str, Source]] = []
    for state, folder in ((program.state_dict, "weights"), (program.constants, "constants")):
        parts += [(name, source) for name, source in _payload_parts(state, folder, core).items() if source is not None]
    parts.append((f"models/{core.model}.json", _model_json(program)))
    inputs = None if takes_other_inputs(program) else core.sample_inputs
    parts.append((f"data/sample_inputs/{core.model}.pt", b"" if inputs is None else (core.archive, inputs)))
    parts += [(f"extra/{name}", text) for name, text in extras.items()]
    return parts + list(MARKERS)


# ---- weights -------------------------------------------------------------------------------------

_PREFIXES = {"weights": "weight_", "constants": "tensor_"}


class _Records:
    """Which entries hold the bytes of a state: known storages keep theirs, new ones get a free number."""

    def __init__(self, state: TensorDict, folder: str, prefix: str, taken: Iterable[str]) -> None:
        self.state = state
        self.folder = folder
        self.prefix = prefix
        self.taken = set(taken)
        self.sources: dict[str, Source] = {}
        self._by_storage: dict[tuple[int, int], str] = {}
        self._entries: set[str] = set()  # the values of _by_storage
        self._numbers: Counter[str] = Counter()  # by prefix, the first that may be free

    def keep(self, entry: str, archive: _core.Archive) -> None:
        """An entry of the file stays."""
        self.sources.setdefault(entry, (archive, entry))

    def of(self, tensor: _core.Tensor, archive: _core.Archive) -> str:
        """The entry for the storage of a tensor; by storage and dtype, as torch groups them."""
        storage = tensor.storage
        if storage is None:  # on the device meta: sizes without data
            return self._new(self.prefix, _core.Storage(b""))
        key = id(storage), tensor.dtype.code
        if key not in self._by_storage:
            entry = storage.entry
            if entry is not None and self._may_stay(storage, entry):
                self.keep(entry, archive)
            else:
                entry = self._new(self.prefix, storage)
            self._by_storage[key] = entry
            self._entries.add(entry)
        return self._by_storage[key]

    def of_opaque(self, value: OpaqueValue, archive: _core.Archive) -> str:
        """The entry for what can only be carried along; one from elsewhere gets a new one."""
        if self.state.is_storage_of_file(value.storage) and value.entry.startswith(self.folder):
            self.keep(value.entry, archive)
            return value.entry
        return self._new(self.prefix if value.kind == "pickled_tensor" else f"{value.kind}_", value.storage)

    def _may_stay(self, storage: _core.Storage, entry: str) -> bool:
        """Whether an entry of the file can go on holding a storage: one of this folder, for one dtype only."""
        is_known = self.state.is_storage_of_file(storage) and entry.startswith(f"{self.folder}{self.prefix}")
        return is_known and entry not in self._entries

    def _new(self, prefix: str, storage: _core.Storage) -> str:
        while (entry := f"{self.folder}{prefix}{self._numbers[prefix]}") in self.taken:
            self._numbers[prefix] += 1
        self.taken.add(entry)
        self.sources[entry] = memoryview(storage)
        return entry


def _payload_parts(state: TensorDict, which: str, core: _core.Program) -> dict[str, Source | None]:
    """The configuration and records of weights or constants; None for a record that nothing needs any more."""
    folder = f"data/{which}/"
    archive = core.archive
    document: dict[str, Any] = core.json(which, "config") or {}
    old_entries = {folder + meta["path_name"] for meta in document.values()}
    records = _Records(state, folder, _PREFIXES[which], old_entries)
    config: dict[str, Any] = {}
    for name, value in state.described():
        if name in document and name not in state.changed:
            config[name] = document[name]
            records.keep(folder + document[name]["path_name"], archive)
        elif isinstance(value, OpaqueValue):
            config[name] = _opaque_json(records.of_opaque(value, archive)[len(folder) :])
        else:
            tensor = state[name]
            config[name] = _tensor_json(tensor, records.of(tensor, archive)[len(folder) :])
    parts: dict[str, Source | None] = dict.fromkeys(old_entries - set(records.sources))
    parts.update(records.sources)
    parts[f"{folder}{core.model}_{which}_config.json"] = json.dumps({"config": config}).encode()
    return parts


def _opaque_json(record: str) -> dict[str, Any]:
    return {
        "path_name": record,
        "is_param": False,
        "use_pickle": True,
        "tensor_meta": None,
    }


def _tensor_json(tensor: _core.Tensor, record: str) -> dict[str, Any]:
    """PayloadMeta of torch's schema."""
    from fastexport._dtypes import Device, Layout

    device = Device(str(tensor.device))
    return {
        "path_name": record,
        "is_param": tensor.is_param,
        "use_pickle": False,
        "tensor_meta": {
            "dtype": tensor.dtype.code,
            "sizes": [{"as_int": size} for size in tensor.shape],
            "requires_grad": tensor.requires_grad,
            "device": {"type": device.type, "index": device.index},
            "strides": [{"as_int": stride} for stride in tensor.strides],
            "storage_offset": {"as_int": tensor.storage_offset},
            "layout": Layout(tensor.layout.removeprefix("torch.")).code,
        },
    }
