"""The forms of a `GraphDiff`: text, in colours or not, and HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape as escape_html
from typing import TYPE_CHECKING

from fastexport._terminal import escape

if TYPE_CHECKING:
    from fastexport._diff import GraphDiff, NodesDiff, Row

_COLOURS = {"-": 31, "+": 32, "~": 33, "@": 36}  # ANSI's
_STYLES = {"-": "background:#fdd;color:#600", "+": "background:#dfd;color:#050", "~": "background:#ffd;color:#540"}
_HTML_LINES = 400  # a notebook is not to be filled by one diff


def sections(diff: GraphDiff, context: int) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The parts that differ: a title, and lines as (mark, text); the mark "@" is of a line that tells places."""
    for path, part in diff.graphs.items():
        yield f"graph {path}".rstrip(), list(_graph_lines(part, context))
    for mark, paths in (("-", diff.removed_graphs), ("+", diff.added_graphs)):
        for path in paths:
            yield f"graph {path}", [(mark, "the whole subgraph")]
    for title in ("signature", "ranges", "weights"):
        lines = getattr(diff, title)
        if lines:
            yield title, [(line[0], line[2:]) for line in lines]


def _graph_lines(part: NodesDiff, context: int) -> Iterator[tuple[str, str]]:
    for hunk in _hunks(part.stretches, context):
        if context:
            yield "@", f"@@ -{_range(row.before for row in hunk)} +{_range(row.after for row in hunk)} @@"
        for row in hunk:
            yield row.mark, row.text


def _hunks(stretches: list[list[Row]], context: int) -> Iterator[list[Row]]:
    """Changes that stand near each other, with the unchanged rows around them."""
    for rows in stretches:
        first = last = None
        for at, row in enumerate(rows):
            if row.mark == " ":
                continue
            if first is not None and last is not None and at - last - 1 > 2 * context:
                yield rows[max(first - context, 0) : last + context + 1]
                first = None
            first, last = at if first is None else first, at
        if first is not None and last is not None:
            yield rows[max(first - context, 0) : last + context + 1]


def _range(places: Iterator[int | None]) -> str:
    """First place, counted from one, and number of nodes, as in a unified diff."""
    known = {place for place in places if place is not None}
    return f"{min(known) + 1},{len(known)}" if known else "0,0"


def text_of(diff: GraphDiff, context: int, colour: bool) -> str:
    """See `GraphDiff.text`."""
    found = []
    for title, lines in sections(diff, context):
        found.append(f"{escape(title)}:")
        for mark, text in lines:
            line = escape(text if mark == "@" else f"{mark} {text}".rstrip()).replace("\n", "\n    ")
            found.append(f"  \x1b[{_COLOURS[mark]}m{line}\x1b[0m" if colour and mark in _COLOURS else f"  {line}")
    return "\n".join(found)


def html_of(diff: GraphDiff) -> str:
    """See `GraphDiff`; whatever a graph says is escaped, and all styles are inline."""
    parts = [f"<div><code>{escape_html(repr(diff))}</code>"]
    left = _HTML_LINES
    for title, lines in sections(diff, 3):
        parts.append(f'<div style="font-weight:bold;margin-top:6px">{escape_html(escape(title))}</div>')
        parts.append('<pre style="margin:0;line-height:1.3;overflow-x:auto">')
        for mark, text in lines[:left]:
            line = escape_html(escape(text if mark == "@" else f"{mark} {text}"))
            style = _STYLES.get(mark, "color:#888" if mark == "@" else "")
            parts.append(f'<div style="{style}">{line}</div>')
        parts.append("</pre>")
        if len(lines) > left:
            parts.append("<div>... and more: see str()</div>")
            break
        left -= len(lines)
    parts.append("</div>")
    return "".join(parts)
