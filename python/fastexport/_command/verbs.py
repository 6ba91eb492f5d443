"""The table of verbs, and the parser made of it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

from fastexport._command.exits import EPILOG, UNREADABLE


class Verb(NamedTuple):
    """A verb: its name, what it does, and the module that does it."""

    name: str
    help: str
    module: str


VERBS = (
    Verb("show", "print the program, or a part of it", "show"),
    Verb("stats", "counts and sizes, a column a file", "stats"),
    Verb("check", "list everything that is wrong", "check"),
    Verb("explain", "what a finding's code means", "explain"),
    Verb("diff", "compare two programs", "diff"),
    Verb("opt", "run passes and save the result", "opt"),
    Verb("extract", "write one entry of the archive, or a part of the graph as a program", "extract"),
    Verb("weights", "list weights and constants, or show one", "weights"),
    Verb("draw", "a picture of the program or a module, as SVG or for Graphviz", "draw"),
    Verb("report", "a page of the program, or of two side by side, to look through in a browser", "report"),
    Verb("schema", "the JSON schemas of the output", "schema"),
)


class _Formatter(argparse.HelpFormatter):
    """argparse's own asks shutil for the width, which takes longer to import than most of our work takes."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=columns - 2)


class _Parser(argparse.ArgumentParser):
    """A parser whose messages, which may have names of files in them, hide nothing."""

    def error(self, message: str) -> NoReturn:
        from fastexport._terminal import escape, inert

        self.print_usage(sys.stderr)
        self.exit(UNREADABLE, f"{self.prog}: error: {inert(escape(message))}\n")


def parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command line; what it gives has `run`, which takes it and returns the exit code.

    Args:
        argv: what is to be parsed: only a verb that it names is asked for its arguments.
    """
    from fastexport import __version__

    whole = _Parser(
        prog="fastexport",
        formatter_class=_Formatter,
        description="Open, check, compare and change .pt2 files of torch.export, without torch.",
        epilog=EPILOG,
    )
    whole.add_argument("--version", action="version", version=f"fastexport {__version__}")
    group = whole.add_subparsers(title="verbs", metavar="VERB", required=True, prog="fastexport")
    for verb in VERBS:
        description = f"{verb.help[0].upper()}{verb.help[1:]}."
        own = group.add_parser(
            verb.name, help=verb.help, description=description, formatter_class=_Formatter, epilog=EPILOG
        )
        if verb.name in argv:
            module = import_module(f"fastexport._command.{verb.module}")
            module.add(own)
            own.set_defaults(run=module.run)
    return whole
