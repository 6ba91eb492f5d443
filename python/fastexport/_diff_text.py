"""The forms of a `GraphDiff`: text, in colours or not, and a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastexport._tables import Column, Table
from fastexport._terminal import escape

if TYPE_CHECKING:
    from fastexport._diff import GraphDiff, NodesDiff, Row

_COLOURS = {"-": 31, "+": 32, "~": 33, "@": 36}  # ANSI's


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


def table_of(diff: GraphDiff) -> Table:
    """A row for each node, subgraph, or line of the signature, ranges and weights that differs."""
    rows: list[tuple[Any, ...]] = []
    for path, part in diff.graphs.items():
        rows += [("node", path, "removed", name, None, text, None) for name, text in part.removed.items()]
        rows += [("node", path, "added", None, name, None, text) for name, text in part.added.items()]
        for change in part.changed:
            kinds = ", ".join(change.kinds)
            rows.append(("node", path, kinds, change.before, change.after, change.old, change.new))
    for what, paths in (("removed", diff.removed_graphs), ("added", diff.added_graphs)):
        rows += [("graph", path, what, None, None, None, None) for path in paths]
    for title in ("signature", "ranges", "weights"):
        rows += [(title, "", _WORDS[line[0]], None, None, *_sides(line)) for line in getattr(diff, title)]
    return Table([Column(name) for name in ("part", "graph", "change", "before", "after", "old", "new")], rows)


_WORDS = {"-": "removed", "+": "added", "~": "changed"}


def _sides(line: str) -> tuple[str | None, str | None]:
    """A line of the signature and so on, in the column of the program that has it."""
    return (line[2:], None) if line[0] == "-" else (None, line[2:])
