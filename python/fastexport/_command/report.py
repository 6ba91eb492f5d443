"""fastexport report: a page of the program, or of two side by side, to look through in a browser."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from fastexport._command.arguments import add_model
from fastexport._command.exits import CLEAN
from fastexport._command.files import check_inputs, open_program
from fastexport._command.output import check_output


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help='a .pt2 file; "-" is standard input')
    parser.add_argument("other", metavar="OTHER", nargs="?", help="another, to be shown beside it with what differs")
    parser.add_argument(
        "-o", "--output", metavar="OUT", required=True, help="the page: one file that needs no other; - is stdout"
    )
    parser.add_argument("--no-fold", action="store_true", help="show each of the modules that look the same")
    parser.add_argument("--no-check", action="store_true", help="don't look for what is wrong with the programs")
    add_model(parser)


def run(options: Any) -> int:
    """Make the page, and write it when it is whole."""
    from fastexport._new_file import write_file
    from fastexport._report import report_html

    paths = [options.file] if options.other is None else [options.file, options.other]
    check_output(options.output, paths)
    check_inputs(paths)
    programs = [open_program(path, options.model) for path in paths]
    page = report_html(
        *programs,
        findings=() if options.no_check else None,
        fold=not options.no_fold,
        names=["standard input" if path == "-" else os.path.basename(path) for path in paths],
    )
    if options.output == "-":
        sys.stdout.buffer.write(page.encode())  # as it is: the page names its script by its hash
        return CLEAN
    write_file(options.output, page.encode())
    return CLEAN
