"""Opening what a command line names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastexport._errors import FormatError

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram


def source_of(path: str) -> Any:
    """What a path stands for: the path itself, or of "-" the bytes of standard input."""
    if path != "-":
        return path
    if sys.stdin is None:
        raise OSError("standard input is closed")
    return sys.stdin.buffer.read()


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

    try:
        return load(source_of(path), verify=verify, model=model)
    except FormatError as error:
        error.args = (f"{path}: {error}",)  # of several files, which
        raise
    except (ImportError, ValueError) as error:  # of a URL: what it needs is not there
        raise OSError(f"{path}: {error}") from error
