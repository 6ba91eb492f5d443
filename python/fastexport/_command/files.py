"""Opening what a command line names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fastexport._errors import FileError, FormatError, VerifyError

if TYPE_CHECKING:
    from fastexport._core import Archive
    from fastexport._program import ExportedProgram


def source_of(path: str) -> Any:
    """What a path stands for: the path itself; of "-", and of an open pipe such as `<(...)` of a shell, its bytes."""
    if path != "-":
        data = _pipe(path)
        return path if data is None else data
    if sys.stdin is None:
        raise OSError("standard input is closed")
    return sys.stdin.buffer.read()


def _pipe(path: str) -> bytes | None:
    """What comes out of an open pipe. One that has a name of its own is not waited for: nobody may write to it."""
    import stat

    from fastexport._new_file import descriptor_of

    number = descriptor_of(path)
    if number is None or not stat.S_ISFIFO(os.stat(path).st_mode):
        return None
    with os.fdopen(os.dup(number), "rb") as stream:
        return stream.read()


def check_inputs(paths: Sequence[str]) -> None:
    """See that standard input is named once.

    Raises:
        OSError: it is named again, and would be empty then.
    """
    if paths.count("-") > 1:
        raise OSError("standard input (-) can be read once: name one of them as a file")


def open_program(path: str, model: str | None, *, verify: bool = False) -> ExportedProgram:
    """The program of a path, or of standard input.

    Raises:
        FormatError, OSError: it can't be read; the message has the path.
    """
    from fastexport._program import load

    with naming(path):
        return load(source_of(path), verify=verify, model=model)


def open_archive(path: str) -> Archive:
    """The archive of a path, or of standard input.

    Raises:
        FormatError, OSError: it can't be read; the message has the path.
    """
    from fastexport import _program

    with naming(path):
        return _program.open_archive(source_of(path))


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Errors of a file that leave this tell which of several it is."""
    from fastexport._remote import is_url

    try:
        yield
    except FormatError as error:
        if isinstance(error, FileError) and error.filename is None:
            error.filename = path
        error.args = (f"{path}: {reason_of(error, path)}",)
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or not is_url(path):
            raise
        raise OSError(f"{path}: {reason_of(error, path)}") from error


def reason_of(error: Exception, path: str, *, is_read: bool = True) -> str:
    """What is said of an error behind the path of the file: of several faults the first, and how to see the others.

    Args:
        is_read: whether the file is there to be checked.
    """
    from fastexport._remote import said_by

    if isinstance(error, FileError) and error.faults:
        return error.faults[0].message
    faults = error.faults if isinstance(error, FormatError | VerifyError) else []
    errors = [fault for fault in faults if fault.is_error]
    if errors:
        how = ", which `fastexport check` lists" if is_read and isinstance(error, FormatError) else ""
        return f"{errors[0]} (and {len(errors) - 1} more{how})" if errors[1:] else str(errors[0])
    return said_by(error, path)
