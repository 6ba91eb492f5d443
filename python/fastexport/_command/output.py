"""Documents on stdout, each with the name of its schema first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any


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


def no_stdout(path: str) -> None:
    """Refuse "-" as the name of an output that is no text.

    Raises:
        OSError: it is that.
    """
    if path == "-":
        raise OSError("- is standard output, and this is no text: name a file (./- is one of that name)")
