"""fastexport schema: the JSON schemas of what the verbs write."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import fastexport
from fastexport._command.arguments import add_output_format
from fastexport._command.exits import CLEAN, UNREADABLE
from fastexport._terminal import complain_of_name, write


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("verb", metavar="VERB", nargs="?", help="whose output; without it, the names of all schemas")
    add_output_format(parser, "json")


def run(options: Any) -> int:
    """Print a schema, or the names of all."""
    known = {path.stem.rpartition("-")[0]: path for path in sorted(folder().glob("*.json"))}
    if options.verb is None:
        for path in known.values():
            write("fastexport.{}/{}".format(*path.stem.rsplit("-", 1)))
    elif options.verb in known:
        print(known[options.verb].read_text("utf-8").rstrip())
    else:
        complain_of_name(f"there is no schema {options.verb!r}", list(known), options.verb)
        return UNREADABLE
    return CLEAN


def folder() -> Path:
    """Where the schemas are: files of the package."""
    return Path(fastexport.__file__).parent / "schemas"
