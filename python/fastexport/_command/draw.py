"""fastexport draw: a picture of the program, or of one of its modules."""

from __future__ import annotations

import argparse
from typing import Any

from fastexport._command.arguments import add_model
from fastexport._command.exits import CLEAN, UNREADABLE
from fastexport._command.files import open_program
from fastexport._command.output import check_output
from fastexport._terminal import complain, write, write_markup

_MOST_LEVELS = 100  # no program has more


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help='a .pt2 file; "-" is standard input')
    parser.add_argument("-o", "--output", metavar="OUT", help="the picture, .svg or .dot, instead of stdout (-)")
    parser.add_argument("--format", choices=("svg", "dot"), help="by default what the name of OUT says, else svg")
    parser.add_argument(
        "--depth", metavar="N", type=_depth, default=1, help="levels of modules that are shown, 1 to 100 (default: 1)"
    )
    parser.add_argument("--module", metavar="PATH", help="draw this module, or subgraph, only")
    parser.add_argument("--no-fold", action="store_true", help="draw each of the modules that look the same")
    parser.add_argument(
        "--max-items", metavar="N", type=int, default=150, help="cut levels of more calls and modules into runs (150)"
    )
    parser.add_argument("--graphviz", action="store_true", help="draw with Graphviz, by pygraphviz")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=20.0,
        help="stop Graphviz after so many seconds, or never: inf (default: 20)",
    )
    add_model(parser)


def _depth(text: str) -> int:
    if not text.isdecimal() or len(text) > 3 or not 1 <= int(text) <= _MOST_LEVELS:
        raise argparse.ArgumentTypeError(f"a number from 1 to {_MOST_LEVELS} is wanted, not {text!r}")
    return int(text)


def run(options: Any) -> int:
    """Draw, and write the picture when it is whole."""
    from fastexport._draw import draw, format_of

    output = None if options.output == "-" else options.output
    check_output(output, [options.file])
    try:
        kind = options.format or format_of(output)  # before the file is read
        text = draw(
            open_program(options.file, options.model),
            output,
            depth=options.depth,
            format=kind,
            fold=not options.no_fold,
            module=options.module,
            max_items=options.max_items,
            timeout=options.timeout,
            engine="graphviz" if options.graphviz else "own",
        )
    except (ValueError, KeyError, ImportError) as error:
        complain(error.args[0] if error.args else error)
        return UNREADABLE
    if output is None:
        (write if kind == "dot" else write_markup)(text.removesuffix("\n"))
    return CLEAN
