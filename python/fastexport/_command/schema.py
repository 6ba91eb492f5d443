"""fastexport schema: the JSON schemas of what the verbs write."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import fastexport
from fastexport._command.arguments import add_output_file
from fastexport._command.exits import CLEAN, unknown
from fastexport._terminal import write


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("verb", metavar="VERB", nargs="?", help="or a schema's name; without it, all names")
    add_output_file(parser)


def run(options: Any) -> int:
    """Print a schema, or the names of all."""
    known = {_name_of(path): path for path in sorted(folder().glob("*.json"))}
    verbs = {path.stem.rpartition("-")[0]: path for path in known.values()}
    if options.verb is None:
        for name in known:
            write(name)
        return CLEAN
    path = known.get(options.verb) or verbs.get(options.verb)
    if path is None:
        raise unknown(f"there is no schema {options.verb!r}", list(verbs), options.verb, "fastexport schema")
    print(path.read_text("utf-8").rstrip())
    return CLEAN


def _name_of(path: Path) -> str:
    """As the output of the verb has it."""
    return "fastexport.{}/{}".format(*path.stem.rsplit("-", 1))


def folder() -> Path:
    """Where the schemas are: files of the package."""
    return Path(fastexport.__file__).parent / "schemas"
