"""fastexport opt: run passes and save the result."""

from __future__ import annotations

import argparse
from typing import Any

from fastexport._command.arguments import add_model, add_output_format, names
from fastexport._command.exits import CLEAN, FOUND, UNREADABLE
from fastexport._command.files import open_program
from fastexport._command.interrupts import writing
from fastexport._command.output import no_stdout, write_document
from fastexport._terminal import complain, write


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("file", metavar="IN", help='a .pt2 file; "-" is standard input')
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the file to write; may be IN")
    parser.add_argument("--passes", metavar="A,B", required=True, help="eliminate_getitems,eliminate_dead_code,lint")
    add_output_format(parser, "text", "json")
    add_model(parser)


def run(options: Any) -> int:
    """Run the passes, write the file, and tell what each pass did."""
    from fastexport._errors import LintError
    from fastexport._passes import run_passes

    no_stdout(options.output)
    passes = names(options.passes)
    wrong = _fault_of(passes)
    if wrong is not None:
        complain(wrong)
        return UNREADABLE
    program = open_program(options.file, options.model, verify=True)
    try:
        results = run_passes(program, passes)
    except LintError as error:
        complain(error)
        return FOUND
    except (ImportError, ValueError) as error:
        complain(error)
        return UNREADABLE
    with writing:
        program.save(options.output)
    rows = [
        {"name": result.name, "removed": list(result.removed), "replaced": dict(result.replaced)} for result in results
    ]
    if options.output_format == "json":
        write_document("opt", {"output": options.output, "passes": rows})
    else:
        for row in rows:
            write(f"{row['name']}: {len(row['removed'])} removed, {len(row['replaced'])} replaced")
    return CLEAN


def _fault_of(passes: list[str]) -> str | None:
    """Why passes can't be run from here, or None."""
    from fastexport._passes import names_of_passes

    known, alone = names_of_passes(), names_of_passes(alone=True)
    here = f"the passes here are {', '.join(alone)}"
    if not passes:
        return f"--passes names no pass; {here}"
    for name in passes:
        if name not in known:
            return f"there is no pass {name!r}; {here}"
        if name not in alone:
            return f"the pass {name!r} needs options, which only fastexport.run_passes() can give it; {here}"
    return None
