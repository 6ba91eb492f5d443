"""fastexport.report: a program, or two side by side, as one page that needs nothing else.

The page is one HTML file: its own style and script, and the program as compressed JSON (`_report_data`), which the
browser unpacks (DecompressionStream, in all browsers since 2023). Nothing is fetched, which the page's own
Content-Security-Policy also forbids. The sources of the page are in the folder ``_page``, and are put together here.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fastexport._arguments import check_graph, findings_of, list_of
from fastexport._html import escape

_SCRIPTS = ("data.js", "colours.js", "layout.js", "view.js", "picture.js", "panel.js", "search.js", "page.js")
_PAGE = Path(__file__).parent / "_page"


def report(
    g: Any,
    other: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    findings: Iterable[Any] | None = None,
    fold: bool = True,
    names: Sequence[str] = (),
) -> str:
    """Write the report page of a program: a picture whose modules open and close, search, and all facts of each node.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, one of torch's, which is copied, or a .pt2
            file: its path, a file that is open, or its bytes.
        other: another, to be shown beside it with what differs.
        path: a file to write, which takes its name only when it is whole; None: nothing is written.
        findings: of `g`, such as those of ``verify(all=True)``; None: check both, but for the checksums of weights.
        fold: show modules in a row that look the same as one, which can be leafed through.
        names: what to call the programs; files are called by their names when it is not given.

    Returns:
        The page.

    Raises:
        TypeError: g or other is none of these.
        FormatError: one is a file that is damaged, or no exported program.
        OSError: a file can't be read or written, or a .pt2 file is there already; what was there is unchanged.

    >>> import operator
    >>> from fastexport import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> out = graph.output(graph.call_function(operator.neg, (x,)))
    >>> report(graph)[:15]
    '<!doctype html>'
    """
    from fastexport._program import load_if_file

    given = [g] if other is None else [g, other]
    known = map(_name_of, given, ("program",) if other is None else ("before", "after"))
    names = list_of("names", names, "str")
    names = [*names, *list(known)[len(names) :]]
    if findings is not None:
        findings = findings_of(findings)
    programs = [load_if_file(one) for one in given]
    for program in programs:
        check_graph("report", program, files=True)
    page = report_html(*programs, findings=findings, fold=fold, names=names)
    if path is not None:
        from fastexport._new_file import write_file

        write_file(path, page.encode())
    return page


def report_html(
    program: Any,
    other: Any = None,
    *,
    findings: Iterable[Any] | None = None,
    fold: bool = True,
    names: Sequence[str] = (),
) -> str:
    """The page of `report`."""
    from fastexport._collecting import no_collection
    from fastexport._report_data import data_of, json_text

    with no_collection():
        data = data_of(program, other, findings, fold, names)
        packed = base64.b64encode(zlib.compress(json_text(data), 8)).decode()
    html, style, script = _sources()
    parts = {
        "title": escape(" → ".join(one["name"] for one in data["programs"])),
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "data": packed,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], html)  # at once: a name may hold such a mark


def _name_of(g: Any, default: str) -> str:
    return os.path.basename(os.fsdecode(g)) if isinstance(g, str | os.PathLike) else default


@cache
def _sources() -> tuple[str, str, str]:
    """The page, its style and its script."""
    html, style, *scripts = (
        (_PAGE / name).read_text(encoding="utf-8") for name in ("report.html", "report.css", *_SCRIPTS)
    )
    return html, style, '"use strict";\n' + "".join(scripts)


def _policy(style: str, script: str) -> str:
    """What the page may do: run its own script, and be styled by its own style; nothing can be fetched or sent."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
