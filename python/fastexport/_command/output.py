"""Where output goes: documents on stdout, each with the name of its schema first, and files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from fastexport._command.exits import Refused

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram

_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def write_document(verb: str, value: dict[str, Any]) -> None:
    """A JSON document; `fastexport schema VERB` prints its schema."""
    from fastexport._terminal import write_json

    write_json({"schema": schema_name(verb), **value})


def write_line(verb: str, value: dict[str, Any]) -> None:
    """A JSON document on a line of its own, which is there for the reader at once."""
    from fastexport._terminal import json_text

    print(json_text({"schema": schema_name(verb), **value}, separators=(",", ":")), flush=True)


def schema_name(verb: str) -> str:
    """The name and version of the schema of what a verb writes.

    >>> schema_name("check")
    'fastexport.check/1'
    """
    return f"fastexport.{verb}/1"


# ---- files that are named


def check_output(path: str | None, inputs: Iterable[str]) -> None:
    """See, before any work, that a file of another kind than a program does not take the place of one.

    Args:
        path: of the output; None and "-" are stdout.
        inputs: what is read, of which it must be none.

    Raises:
        OSError: it would.
    """
    if path is None or path == "-":
        return
    from fastexport._new_file import keep_program

    for name in inputs:
        if os.path.isfile(path) and os.path.exists(name) and os.path.samefile(path, name):
            raise FileExistsError(f"{path} is an input, which is not overwritten: write to another file")
    keep_program(path)


def check_two(path: str, other: str | None) -> None:
    """See that two outputs don't go to one file.

    Raises:
        OSError: they do.
    """
    if other is None:
        return
    is_device = os.path.exists(path) and not os.path.isfile(path)  # which may take both, as /dev/null does
    is_one_file = not is_device and os.path.realpath(path) == os.path.realpath(other)
    if is_one_file or (is_stdout(path) and is_stdout(other)):
        raise OSError(f"{path} is named for two outputs: name another file for one of them")


def is_stdout(path: str | None) -> bool:
    """Whether the name of an output stands for stdout."""
    return path in _STDOUT


def stream_of(path: str) -> str:
    """The path of an output that is no text: that of stdout for "-".

    Raises:
        OSError: it would be shown by a terminal, or is closed.
    """
    if is_stdout(path) and sys.__stdout__ is None:
        raise closed()  # a file of ours may have its number now
    if is_stdout(path) and os.isatty(1):
        raise no_text()
    return "/dev/stdout" if path == "-" else path


def closed() -> OSError:
    """What is said of what nobody can read."""
    return OSError("standard output is closed")


def no_text() -> OSError:
    """What is said of bytes that would steer a terminal."""
    return OSError("stdout is a terminal, and this is no text: name a file, or pass it on with | or >")


def save_program(program: ExportedProgram, path: str) -> None:
    """Write a program to a file, which takes its name when it is whole, to stdout, a pipe or a device.

    Raises:
        Refused: it is no program any more.
        OSError: it can't be written.
    """
    from fastexport._command.files import reason_of
    from fastexport._errors import FileError, FormatError, VerifyError
    from fastexport._new_file import replacing

    try:
        with replacing(stream_of(path)) as name:
            program.save(name)
    except FileError:
        raise
    except (FormatError, VerifyError) as error:
        raise Refused(reason_of(error, path, is_read=False)) from error


def beside(options: Any) -> AbstractContextManager[object]:
    """For what is told of an output: it goes to stderr where the output itself goes to stdout."""
    is_taken = is_stdout(options.output) and options.output_file in (None, "-")
    return redirect_stdout(sys.stderr) if is_taken else nullcontext()
