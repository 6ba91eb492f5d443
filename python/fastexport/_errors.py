"""The exceptions of fastexport, and the faults that lint reports.

Tracebacks show the names that users write, so the classes say that they are of the module fastexport, and those that
are another exception too (`shown_as`) bear the name of their public base.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from fastexport._tables import Column, Table, Tabular

_E = TypeVar("_E", bound="type[FastExportError]")


def shown_as(name: str) -> Callable[[_E], _E]:
    """A decorator: the class bears the name of its public base, and is pickled by its own."""

    def rename(cls: _E) -> _E:
        cls._home = cls.__module__, cls.__name__
        cls.__module__, cls.__name__, cls.__qualname__ = "fastexport", name, name
        return cls

    return rename


class FastExportError(Exception):
    """The base of every error that is fastexport's own."""

    __module__ = "fastexport"
    _home: tuple[str, str]

    def __reduce__(self) -> tuple[object, ...]:
        """The same class, args and attributes, whatever the arguments that an error is made with."""
        home = type(self).__dict__.get("_home", type(self))
        return _again, (home, self.args), self.__dict__.copy()


def _again(home: type[FastExportError] | tuple[str, str], args: tuple[object, ...]) -> FastExportError:
    from importlib import import_module

    cls = getattr(import_module(home[0]), home[1]) if isinstance(home, tuple) else home
    maker: Any = cls
    while "__new__" not in vars(maker):  # the one of the layout, which cls.__new__ need not be
        maker = maker.__base__
    error: FastExportError = maker.__new__(cls, *args)
    error.args = args
    return error


class LintFault(NamedTuple):
    """One fault of a graph.

    Attributes:
        code: the kind of fault, such as ``"UNDEFINED_OPERAND"``.
        node: the name of the node at fault.
        operand: the name of the other node involved, or None.
        message: what is wrong, where, and what to do about it.
    """

    code: str
    node: str
    operand: str | None
    message: str

    def __str__(self) -> str:
        return f"{self.code} node {self.node or repr(self.node)}: {self.message}"

    @property
    def is_error(self) -> bool:
        """Whether the graph can't be used so; a name that code can't have is only worth a look."""
        return self.code != "ODD_NAME"


class LintError(FastExportError, RuntimeError):
    """A graph breaks a rule; torch.fx raises RuntimeError for the same.

    Attributes:
        faults: the faults found, as `LintFault`; the message is that of the first.
    """

    __module__ = "fastexport"

    def __init__(self, faults: list[LintFault]) -> None:
        super().__init__(faults[0].message if faults else "the graph is malformed")
        self.faults = faults


@shown_as("LintError")
class LintTargetError(LintError, ValueError):
    """A node has a target of the wrong type; torch.fx raises ValueError for it."""


def lint_error(faults: list[LintFault]) -> LintError:
    """The exception for some faults, of the class torch.fx would raise for the first."""
    return (LintTargetError if faults and faults[0].code == "TARGET_TYPE" else LintError)(faults)


class Fault(NamedTuple):
    """One thing that is wrong, or worth a look, in a program or the file that holds it.

    Attributes:
        code: a stable code, such as ``"FX302"``.
        kind: its name, such as ``"name"``.
        is_error: an error, or a warning.
        entry: the entry of the archive, such as ``"models/model.json"``, or None.
        json_path: where in that entry, such as ``"$.graph_module.graph.nodes[3].target"``, or None.
        node: the name of the node at fault, or None.
        message: what is wrong and what to do about it.
    """

    code: str
    kind: str
    is_error: bool
    entry: str | None
    json_path: str | None
    node: str | None
    message: str

    def __str__(self) -> str:
        node = None if self.node is None else f"node {self.node or repr(self.node)}"
        where = " ".join(part for part in (self.entry, self.json_path, node) if part)
        return f"{self.code} {where}: {self.message}" if where else f"{self.code} {self.message}"


_F = TypeVar("_F", bound="Fault | LintFault")


class Faults(list[_F], Tabular):
    """What a check found, in order; empty when nothing is wrong.

    The repr has one on a line.

    >>> Faults([LintFault("UNDEFINED_OPERAND", "add", "x", "node 'add' uses 'x' before it is defined")])
    UNDEFINED_OPERAND node add: node 'add' uses 'x' before it is defined
    >>> Faults()
    []
    """

    __module__ = "fastexport"

    def _table(self) -> Table:
        fields = self[0]._fields if self else Fault._fields
        return Table([Column(name) for name in fields], [tuple(fault) for fault in self])

    def __repr__(self) -> str:
        lines = [str(fault) for fault in self[:_MOST_LINES]]
        more = [f"+{len(self) - _MOST_LINES} more"] if len(self) > _MOST_LINES else []
        return "\n".join(lines + more) or "[]"


_MOST_LINES = 50


class FormatError(FastExportError, ValueError):
    """A file is damaged, hostile, or of a form that can't be read (or written).

    Attributes:
        faults: all that was found, as `Fault`; the message is that of the first error.
        entry: the entry of the archive at fault, or None.
        json_path: where in that entry, or None.
        kind: the kind of fault, such as ``"crc"``.
    """

    __module__ = "fastexport"

    def __init__(
        self,
        message: str,
        *,
        entry: str | None = None,
        json_path: str | None = None,
        kind: str = "zip",
        faults: list[Fault] | None = None,
    ) -> None:
        super().__init__(message)
        self.entry = entry
        self.json_path = json_path
        self.kind = kind
        self.faults = faults or []


class FileError(FormatError, OSError):
    """The system can't read or write a file; an OSError too, and the FileNotFoundError and so on that open() raises.

    Attributes:
        errno: the system's number of the error.
        strerror: its text.
        filename: the path that `load` or `save` was given; None of an open file, or when it comes up later.
    """

    __module__ = "fastexport"

    __str__ = BaseException.__str__  # OSError's tells the number and the path in the place of the message

    def __reduce__(self) -> tuple[object, ...]:
        make, args, attributes = super().__reduce__()
        assert isinstance(attributes, dict)
        return make, args, {**attributes, **{name: getattr(self, name) for name in ("errno", "strerror", "filename")}}


@shown_as("FileError")
class _NotFound(FileError, FileNotFoundError):
    """There is no such file."""


@shown_as("FileError")
class _NotPermitted(FileError, PermissionError):
    """It is not ours to read or write."""


@shown_as("FileError")
class _IsFolder(FileError, IsADirectoryError):
    """It is a folder."""


@shown_as("FileError")
class _NoFolder(FileError, NotADirectoryError):
    """What should be a folder on the way to it is none."""


@shown_as("FileError")
class _Exists(FileError, FileExistsError):
    """There is one already."""


_BY_NUMBER: dict[int, type[FileError]] = {
    errno.ENOENT: _NotFound,
    errno.EACCES: _NotPermitted,
    errno.EPERM: _NotPermitted,
    errno.EISDIR: _IsFolder,
    errno.ENOTDIR: _NoFolder,
    errno.EEXIST: _Exists,
}


@contextmanager
def naming(path: Any, *, is_written: bool = False) -> Iterator[None]:
    """Errors of a file that leave this have its path; where one is written, those of an entry are of its source."""
    try:
        yield
    except FileError as error:
        if isinstance(path, str | bytes | os.PathLike) and not (is_written and error.entry):
            error.filename = os.fspath(path)
        raise


class VerifyError(FastExportError):
    """A program breaks a rule of the export IR; through a torch door, torch's SpecViolationError.

    Args:
        faults: what was found; a text alone is what a check of one's own raises, see `Verifier`.

    Attributes:
        faults: all that was found, as `Fault`; the message is that of the first error.
    """

    __module__ = "fastexport"

    def __init__(self, faults: list[Fault] | str) -> None:
        super().__init__(faults if isinstance(faults, str) else _summary(faults))
        self.faults = [Fault("FX311", "dialect", True, None, None, None, faults)] if isinstance(faults, str) else faults


def _summary(faults: list[Fault]) -> str:
    errors = [fault for fault in faults if fault.is_error]
    if not errors:
        return "the program can't be used"
    more = f" (and {len(errors) - 1} more: see .faults)" if len(errors) > 1 else ""
    return f"{errors[0]}{more}"


def format_error(faults: list[tuple[object, ...]], number: int = 0) -> FormatError:
    """The exception for the faults that the C part found; number: the errno of the first that is of the system."""
    found = [Fault(*fault) for fault in faults]  # type: ignore[arg-type]
    errors = [fault for fault in found if fault.is_error]
    first = errors[0] if errors else Fault("FX101", "zip", True, None, None, None, "the file is damaged")
    is_io = first.kind == "io"
    error = (_BY_NUMBER.get(number, FileError) if is_io else FormatError)(
        _summary(found if errors else [first]),
        entry=first.entry,
        json_path=first.json_path,
        kind=first.kind,
        faults=found,
    )
    if isinstance(error, FileError):
        error.errno = number or errno.EIO
        error.strerror = os.strerror(error.errno)
    return error
