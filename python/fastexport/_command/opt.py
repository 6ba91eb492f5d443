"""fastexport opt: run passes and save the result."""

from __future__ import annotations

import argparse
from typing import Any

from fastexport._command.arguments import add_model, add_output_format, names
from fastexport._command.exits import CLEAN, FOUND, Refused
from fastexport._command.files import open_program
from fastexport._command.output import beside, save_program, stream_of, write_document
from fastexport._terminal import columns, write


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("file", metavar="IN", help='a .pt2 file; "-" is standard input')
    parser.add_argument(
        "-o", "--output", metavar="OUT", required=True, help="the file to write; may be IN; - is stdout"
    )
    parser.add_argument(
        "--passes", metavar="A,B", required=True, help="passes of those below, in the order in which they run"
    )
    add_output_format(parser, "text", "json")
    add_model(parser)


def notes() -> str:
    """For the help: what each pass does, in a line."""
    import textwrap

    import fastexport
    from fastexport._passes import names_of_passes

    lines = ["Passes:"]
    for name in names_of_passes(alone=True):
        first = (getattr(fastexport, name).__doc__ or "").partition("\n")[0].replace("``", "")
        lines += textwrap.wrap(f"{name}: {first}", columns() - 2, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def run(options: Any) -> int:
    """Run the passes, write the file, and tell what each pass did."""
    from fastexport._errors import LintError
    from fastexport._passes import run_passes

    stream_of(options.output)  # before any work
    passes = names(options.passes)
    _check(passes)
    program = open_program(options.file, options.model, verify=True)
    try:
        results = run_passes(program, passes)
    except LintError as error:
        raise Refused(error, FOUND) from error
    except ImportError as error:
        raise Refused(error) from error
    except ValueError as error:
        raise Refused(
            f"{options.file}: {error} (the command gives a pass the file alone; Python's fastexport.run_passes() takes "
            "more)"
        ) from error
    save_program(program, options.output)
    rows = [
        {"name": result.name, "removed": list(result.removed), "replaced": dict(result.replaced)} for result in results
    ]
    with beside(options):
        _tell(options, rows)
    return CLEAN


def _tell(options: Any, rows: list[dict[str, Any]]) -> None:
    if options.output_format == "json":
        write_document("opt", {"output": options.output, "passes": rows})
    else:
        for row in rows:
            write(f"{row['name']}: {len(row['removed'])} removed, {len(row['replaced'])} replaced")


def _check(passes: list[str]) -> None:
    """See that all passes can be run from here."""
    from fastexport._passes import names_of_passes

    known, alone = names_of_passes(), names_of_passes(alone=True)
    here = f"the passes here are {', '.join(alone)}"
    if not passes:
        raise Refused(f"--passes names no pass; {here}")
    for name in passes:
        if name not in known:
            raise Refused(f"there is no pass {name!r}; {here}")
        if name not in alone:
            raise Refused(f"the pass {name!r} needs options, which only fastexport.run_passes() can give it; {here}")
