"""fastexport diff: what differs between two programs, node by node."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastexport._command.arguments import add_model, add_output_format
from fastexport._command.exits import CLEAN, FOUND
from fastexport._command.files import check_inputs, open_program
from fastexport._command.output import write_document
from fastexport._terminal import emit, use_colour, write, write_markup


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("a", metavar="A", help='a .pt2 file; "-" is standard input')
    parser.add_argument("b", metavar="B", help="another")
    parser.add_argument(
        "--context",
        metavar="N",
        type=int,
        default=0,
        choices=range(4),
        help="unchanged nodes around, 0 to 3 (default: 0)",
    )
    parser.add_argument("--ignore-names", action="store_true", help="nodes that only have other names are the same")
    add_output_format(parser, "text", "json", "html")
    add_model(parser)


def run(options: Any) -> int:
    """Print what B has that A has not, and the other way round."""
    from fastexport._diff import diff

    check_inputs([options.a, options.b])
    a, b = open_program(options.a, options.model), open_program(options.b, options.model)
    found = diff(a, b, names=not options.ignore_names)
    if options.output_format == "json":
        write_document("diff", {"same": not found, **found.to_dict()})
    elif options.output_format == "html":
        from fastexport._command.diff_page import page

        for line in page(found, options.a, options.b, max(options.context, 3)):
            write_markup(line)
    elif found:
        emit(found.text(context=options.context, colour=use_colour(sys.stdout)))
    else:
        write("the programs are the same")
    return FOUND if found else CLEAN
