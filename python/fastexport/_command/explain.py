"""fastexport explain: what the codes of findings mean."""

from __future__ import annotations

import argparse
from typing import Any

from fastexport._codes import EXPLANATIONS
from fastexport._command.arguments import add_output_format
from fastexport._command.exits import CLEAN, UNREADABLE
from fastexport._command.output import write_document
from fastexport._terminal import complain_of_name, write


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("code", metavar="CODE", nargs="?", help="such as FX302; without it, all codes in a line each")
    add_output_format(parser, "text", "json")


def run(options: Any) -> int:
    """Print what a code means; without one, all codes."""
    from fastexport import _core

    kinds = _core.fault_kinds()
    code = None if options.code is None else options.code.upper()
    if code is not None and code not in kinds:
        complain_of_name(f"there is no code {options.code!r}; `fastexport explain` lists them", list(kinds), code)
        return UNREADABLE
    if options.output_format == "json":
        codes = list(kinds) if code is None else [code]
        write_document("explain", {"codes": [_code_json(name, kinds[name]) for name in codes]})
    elif code is None:
        for name, kind in kinds.items():
            write(f"{name}  {kind:<18}{EXPLANATIONS[name].meaning}")
    else:
        _write_page(code, kinds[code])
    return CLEAN


def _code_json(code: str, kind: str) -> dict[str, Any]:
    return {"code": code, "kind": kind, **EXPLANATIONS[code]._asdict()}


def _write_page(code: str, kind: str) -> None:
    page = EXPLANATIONS[code]
    write(f"{code} {kind}\n\n{page.meaning}")
    for title, text in (("Why", page.why), ("Example", page.example), ("What to do", page.remedy)):
        write(f"\n{title}: {text}")
    write(f"\nSource: {page.source}")
