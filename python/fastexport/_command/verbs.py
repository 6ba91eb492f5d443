"""The table of verbs, and the parser made of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from fastexport._command.exits import EPILOG, UNREADABLE


class Verb(NamedTuple):
    """A verb: its name, which its module has too, what it does, and command lines that show it."""

    name: str
    help: str
    examples: tuple[str, ...]


VERBS = (
    Verb(
        "show",
        "print the program, or a part of it",
        ("show model.pt2 --tree", "show model.pt2 --node relu --output-format json"),
    ),
    Verb(
        "stats",
        "counts and sizes, a column a file, and the change from the first to the last",
        ("stats before.pt2 after.pt2", "stats models/ --jobs 0 --output-format jsonl"),
    ),
    Verb(
        "check",
        "list everything that is wrong",
        ("check models/ --jobs 0", "check model.pt2 --output-format sarif --output-file check.sarif"),
    ),
    Verb("explain", "what a finding's code means", ("explain FX302",)),
    Verb(
        "diff",
        "compare two programs",
        ("diff before.pt2 after.pt2 --context 2", "diff before.pt2 after.pt2 --output-format html > diff.html"),
    ),
    Verb(
        "opt",
        "run passes and save the result",
        (
            "opt model.pt2 -o small.pt2 --passes eliminate_getitems,eliminate_dead_code",
            "opt model.pt2 -o - --passes remove_noops | fastexport check -",
        ),
    ),
    Verb(
        "extract",
        "write one entry of the archive, or a part of the graph as a program",
        ("extract model.pt2 models/model.json", "extract model.pt2 --inputs linear --outputs relu -o part.pt2"),
    ),
    Verb(
        "weights",
        "list weights and constants, or show one",
        ("weights model.pt2 --fold --stats", "weights model.pt2 --safetensors weights.safetensors"),
    ),
    Verb(
        "draw",
        "a picture of the program or a module, as SVG or for Graphviz",
        ("draw model.pt2 -o model.svg --depth 2",),
    ),
    Verb(
        "report",
        "a page of the program, or of two side by side, to look through in a browser",
        ("report before.pt2 after.pt2 -o report.html",),
    ),
    Verb("schema", "the JSON schemas of the output", ("schema check",)),
)


class _Formatter(argparse.HelpFormatter):
    """argparse's own asks shutil for the width, which takes longer to import than most of our work takes."""

    def __init__(self, prog: str) -> None:
        from fastexport._terminal import columns

        super().__init__(prog, width=columns() - 2)


class _Parser(argparse.ArgumentParser):
    """A parser whose messages, which may have names of files in them, hide nothing, and whose help ends in examples."""

    examples: tuple[str, ...] = ()
    notes: Callable[[], str] | None = None

    def format_help(self) -> str:
        notes = f"\n{self.notes()}\n" if self.notes else ""
        lines = "".join(f"  fastexport {example}\n" for example in self.examples)
        return super().format_help() + notes + (f"\nExamples:\n{lines}" if lines else "")

    def print_help(self, file: Any = None) -> None:  # argparse's keeps quiet about what it can't write
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        from fastexport._terminal import one_line

        self.print_usage(sys.stderr)
        self.exit(UNREADABLE, f"{self.prog}: error: {one_line(message)}\n")


class _Version(argparse.Action):
    """--version; argparse's own keeps quiet about what it can't write."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from fastexport import __version__

        print(f"fastexport {__version__}")
        parser.exit()


def parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command line; what it gives has `run`, which takes it and returns the exit code.

    Args:
        argv: what is to be parsed: only a verb that it names is asked for its arguments.
    """
    whole = _Parser(
        prog="fastexport",
        formatter_class=_Formatter,
        description="Open, check, compare and change .pt2 files of torch.export, without torch.",
        epilog=EPILOG,
    )
    whole.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    group = whole.add_subparsers(title="verbs", metavar="VERB", required=True, prog="fastexport")
    for verb in VERBS:
        description = f"{verb.help[0].upper()}{verb.help[1:]}."
        own = group.add_parser(
            verb.name, help=verb.help, description=description, formatter_class=_Formatter, epilog=EPILOG
        )
        if verb.name in argv:
            module = import_module(f"fastexport._command.{verb.name}")
            module.add(own)
            own.examples = verb.examples
            own.notes = getattr(module, "notes", None)
            own.set_defaults(run=module.run)
    return whole
