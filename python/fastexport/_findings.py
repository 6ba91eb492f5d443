"""What `fastexport check` finds in a file, with the place in the model's own source that each finding belongs to.

A fault tells where it is in the file. Most documents say of each node at which line of the model it was made and in
which module, so that is looked up there: also in a file that `load` refuses, where it is all there is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fastexport._errors import Fault, FileError, FormatError

if TYPE_CHECKING:
    from fastexport._core import Archive, Program
    from fastexport._program import Level

_MOST_DOCUMENT = 64 << 20  # bytes of a document that is parsed only to tell where its faults come from
_MOST_FRAMES = 100
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z_0-9]*)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]", re.DOTALL)
_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d{1,9})(?:, in ([^\n]+))?(?:\n(?!\s*File ")([^\n]*))?', re.MULTILINE)


class Frame(NamedTuple):
    """A place in the model's source.

    Attributes:
        file: the path of the source, as the machine that exported the program had it.
        line: counted from one.
        function: what the line is in, or "".
        code: the text of the line, or "".
    """

    file: str
    line: int
    function: str
    code: str


class Finding(NamedTuple):
    """A fault of a file, and what the file says of where in the model it comes from.

    Attributes:
        fault: the fault.
        module: the dotted path of the module that the node is in, or None.
        frames: the calls that made the node, the innermost last.
    """

    fault: Fault
    module: str | None = None
    frames: tuple[Frame, ...] = ()


class FileReport(NamedTuple):
    """What was found in one file.

    Attributes:
        path: of the file.
        findings: all of it, errors and warnings.
        unreadable: whether the system could not read it; the finding is the reason.
        opened: whether it could be opened and read; else only the findings are known of it, and all of them count.
    """

    path: str
    findings: list[Finding]
    unreadable: bool = False
    opened: bool = True

    @property
    def status(self) -> Literal["clean", "findings", "unreadable"]:
        """The report in a word."""
        return "unreadable" if self.unreadable else "findings" if self.findings else "clean"

    @property
    def errors(self) -> int:
        """How many of the findings are errors."""
        return sum(finding.fault.is_error for finding in self.findings)


def check_file(
    path: str | os.PathLike[str],
    *,
    data: Any = None,
    model: str | None = None,
    level: Level = "lenient",
    weights: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> FileReport:
    """Check a file. It is opened once; whatever is wrong with it is in the report.

    Args:
        path: of the file.
        data: its bytes, or the open file, when they are not to be read from the path.
        model: which model, of an archive with several; all of them when None.
        level: of `ExportedProgram.verify`.
        weights: also check the checksums of all entries.
        progress: called with the bytes done and all bytes, for each entry whose checksum was checked.
    """
    from fastexport._program import open_archive
    from fastexport._remote import is_url, said_by

    name = os.fspath(path)
    opened = False
    try:
        archive = open_archive(name if data is None else data)
        opened = True
        return FileReport(name, _findings(archive, model, level, weights, progress))
    except FormatError as error:
        faults = error.faults or [Fault("FX101", error.kind, True, error.entry, error.json_path, None, str(error))]
        unreadable = isinstance(error, FileError)
        return FileReport(name, list(map(Finding, faults)), unreadable, opened and not unreadable)
    except Exception as error:
        if not isinstance(error, OSError | MemoryError) and not is_url(name):
            raise  # of a URL, fsspec and what it asks may raise anything
        fault = Fault("FX105", "io", True, None, None, None, said_by(error, name))
        return FileReport(name, [Finding(fault)], unreadable=True, opened=False)


def _findings(archive: Archive, model: str | None, level: Level, weights: bool, progress: Any) -> list[Finding]:
    from fastexport.batch import faults_of

    faults = faults_of(archive, model, level, weights and progress is None)
    if weights and progress is not None:
        faults = list(dict.fromkeys([*faults, *_check_entries(archive, progress)]))
    documents = {entry: _document(archive, entry) for entry in {fault.entry for fault in faults if fault.json_path}}
    return [_placed(fault, documents[fault.entry]) if fault.json_path else Finding(fault) for fault in faults]


def _check_entries(archive: Archive, progress: Callable[[int, int], object]) -> Iterator[Fault]:
    """The checksums of all entries, for those who want to hear how far it is."""
    entries = archive.entries()
    total, done = sum(packed for _, _, packed, _ in entries), 0
    for name, _, packed, _ in entries:
        try:
            archive.check(name)
        except FormatError as error:
            yield from error.faults
        done += packed
        progress(done, total)


# ---- where a fault comes from ----------------------------------------------------------------------------------------


class _Document:
    """A document of an archive, of which parts are asked for."""

    def __init__(self) -> None:
        self._makers: dict[tuple[str | int, ...], dict[str, int]] = {}

    def at(self, path: Sequence[str | int]) -> Any:
        """What stands at a path, or None."""
        raise NotImplementedError

    def maker(self, graph: tuple[str | int, ...], value: str) -> int | None:
        """The number of the node, of those of a graph, that makes a value."""
        if graph not in self._makers:
            nodes = self.at((*graph, "nodes"))
            makers = self._makers[graph] = {}
            for i, node in enumerate(nodes if isinstance(nodes, list) else ()):
                makers.update(dict.fromkeys(_outputs(node), i))
        return self._makers[graph].get(value)


class _Read(_Document):
    """That of a program that can be loaded."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def at(self, path: Sequence[str | int]) -> Any:
        return self._program.json("model", *path)


class _Refused(_Document):
    """One that is parsed here: it may hold anything, and need not even be JSON."""

    def __init__(self, archive: Archive, entry: str | None) -> None:
        super().__init__()
        self._value = _parsed(archive, entry)

    def at(self, path: Sequence[str | int]) -> Any:
        value = self._value
        for step in path:
            try:
                value = value[step]
            except (LookupError, TypeError):
                return None
        return value


def _parsed(archive: Archive, entry: str | None) -> Any:
    import json

    sizes = {name: size for name, size, _, _ in archive.entries()}
    if entry is None or not 0 < sizes.get(entry, 0) <= _MOST_DOCUMENT:
        return None
    try:
        return json.loads(archive.read(entry))
    except (FormatError, ValueError, RecursionError):
        return None


def _document(archive: Archive, entry: str | None) -> _Document:
    """An entry that faults are told of: that of a program as C has read it, where it can be."""
    from fastexport import _core

    if entry is not None and entry.startswith("models/"):
        try:
            program = _core.Program(archive, entry[len("models/") : -len(".json")])
        except FormatError:
            pass
        else:
            return _Read(program)
    return _Refused(archive, entry)


def _outputs(node: Any) -> Iterator[str]:
    outputs = node.get("outputs") if isinstance(node, dict) else None
    for output in outputs if isinstance(outputs, list) else ():
        for value in output.values() if isinstance(output, dict) else ():
            if isinstance(value, dict) and isinstance(value.get("name"), str):
                yield value["name"]


def _steps(json_path: str) -> list[str | int]:
    """The steps of a path as faults have them, up to what can't be read."""
    steps: list[str | int] = []
    at = 1
    while match := _STEP.match(json_path, at):
        name, index, quoted = match.groups()
        steps.append(int(index) if index else name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    return steps


def _node_path(fault: Fault, document: _Document) -> Sequence[str | int] | None:
    """The path of the node that a fault is of: the innermost on its own path, or the one that makes the value."""
    steps = _steps(fault.json_path or "")
    for end in range(len(steps), 1, -1):
        if steps[end - 2] == "nodes" and isinstance(steps[end - 1], int):
            return steps[:end]
        if isinstance(steps[end - 2], str) and str(steps[end - 2]).endswith("_values") and "graph" in steps[:end]:
            graph = tuple(steps[: end - 2])
            index = document.maker(graph, str(steps[end - 1]))
            return None if index is None else (*graph, "nodes", index)
    return None


def _placed(fault: Fault, document: _Document) -> Finding:
    from fastexport._meta_json import decode_metadata

    path = _node_path(fault, document)
    metadata = document.at((*path, "metadata")) if path else None
    if not isinstance(metadata, dict):
        return Finding(fault)
    wanted = {key: metadata[key] for key in ("stack_trace", "nn_module_stack") if isinstance(metadata.get(key), str)}
    decoded = decode_metadata(wanted)
    return Finding(fault, _module(decoded.get("nn_module_stack")), frames_of(wanted.get("stack_trace", "")))


def _module(stack: Any) -> str | None:
    from fastexport._tree import _NO_MODULE

    paths = [path for path, kind in stack.values() if kind != _NO_MODULE] if isinstance(stack, Mapping) else []
    return paths[-1] if paths else None


def frames_of(trace: str) -> tuple[Frame, ...]:
    r"""The calls of a stack trace, the innermost last.

    >>> frames_of('  File "m.py", line 3, in forward\n    return x + 1\n')
    (Frame(file='m.py', line=3, function='forward', code='return x + 1'),)
    """
    return tuple(
        Frame(file, int(line), function or "", (code or "").strip())
        for file, line, function, code in _FRAME.findall(trace)[-_MOST_FRAMES:]
    )
