"""The verb diff: what differs between two programs, node by node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from fastexport._diff import diff as compare
from fastexport._terminal import use_colour, write, write_json

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram

_SAME, _DIFFERENT = 0, 1


def diff(a: ExportedProgram, b: ExportedProgram, options: Any) -> int:
    """Print what b has that a has not, and the other way round."""
    found = compare(a, b)
    if options.json:
        write_json(found.to_dict())
    elif found:
        print(found.text(context=0, colour=use_colour(sys.stdout)))  # the text is escaped already
    else:
        write("the programs are the same")
    return _DIFFERENT if found else _SAME
