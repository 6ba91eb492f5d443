"""fastexport explain: what the codes of findings mean."""

from __future__ import annotations

import argparse
from typing import Any

from fastexport._codes import EXPLANATIONS
from fastexport._command.arguments import add_output_format
from fastexport._command.exits import CLEAN, Refused, unknown
from fastexport._command.output import write_document
from fastexport._terminal import write


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument(
        "code", metavar="CODE", nargs="?", default="", help="such as FX302; FX3: all that begin so, a line each"
    )
    add_output_format(parser, "text", "json")


def run(options: Any) -> int:
    """Print what a code means; of all that begin so, or of all, what each means in a line."""
    from fastexport import _core

    kinds = _core.fault_kinds()
    prefix = options.code.upper()
    codes = [code for code in kinds if code.startswith(prefix)]
    if not codes:
        if prefix.removeprefix("FX").isdecimal():  # nothing is like a number
            raise Refused(f"there is no code {options.code!r}; `fastexport explain` lists them")
        raise unknown(f"there is no code {options.code!r}", list(kinds), prefix, "fastexport explain")
    if options.output_format == "json":
        write_document("explain", {"codes": [_code_json(code, kinds[code]) for code in codes]})
    elif codes == [prefix]:
        _write_page(prefix, kinds[prefix])
    else:
        for code in codes:
            write(f"{code}  {kinds[code]:<18}{EXPLANATIONS[code].meaning}")
    return CLEAN


def _code_json(code: str, kind: str) -> dict[str, Any]:
    return {"code": code, "kind": kind, **EXPLANATIONS[code]._asdict()}


def _write_page(code: str, kind: str) -> None:
    page = EXPLANATIONS[code]
    write(f"{code} {kind}\n\n{page.meaning}")
    for title, text in (("Why", page.why), ("Example", page.example), ("What to do", page.remedy)):
        write(f"\n{title}: {text}")
    write(f"\nSource: {page.source}")
