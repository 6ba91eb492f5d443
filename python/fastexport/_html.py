"""HTML of ours: everything from outside is escaped, styles are inline, and a page of any object has bounded size.

Notebooks, GitHub and pages of text all show it: there is no script, no style sheet and no class; what folds is
``<details>``. Colours are those of the page it stands in, light or dark; accents are see-through. Without any styles it
still reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape as _escape_html
from typing import TYPE_CHECKING, Any

from fastexport._terminal import escape as _escape_hidden

if TYPE_CHECKING:
    from fastexport._tables import Table

MOST_BYTES = 50_000
_RESERVE = 4_000  # for what is always said: how much was left out
_MOST_CELL = 90  # characters
_MOST_COLUMNS = 30

_PAGE = '<div style="font-size:13px;line-height:1.5;text-align:left;max-width:1100px">'
_LINE = "border-top:1px solid rgba(128,128,128,.3)"
_TABLE = '<table style="margin:2px 0;border-collapse:collapse;font-size:12px;text-align:left">'
_CELL = '<td style="text-align:left">'
_RIGHT = '<td style="text-align:right">'
_HEAD = '<th style="text-align:{};font-weight:600">'
_DIM = '<span style="opacity:.65">'
_BADGE = '<span style="background:rgba({},.16);border-radius:9px;padding:0 8px;white-space:nowrap">'

COLOURS = {
    "plain": "128,128,128",
    "good": "46,160,67",
    "bad": "229,83,75",
    "changed": "212,153,24",
    "info": "56,139,253",
}


def escape(text: str) -> str:
    r"""A text of a file or user for HTML: nothing in it is markup, and nothing hides or turns text round.

    >>> escape("<b>\x1b\u202e'")
    '&lt;b&gt;\\x1b\\u202e&#x27;'
    """
    return _escape_html(_escape_hidden(text))


def shortened(text: str, most: int = _MOST_CELL) -> str:
    """A text of that many characters at most; its middle is left out.

    >>> shortened("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}…{text[-half:]}"


def code(text: str, most: int = _MOST_CELL) -> str:
    """A name or a piece of code; of a longer one a part."""
    return f"<code>{escape(shortened(text, most))}</code>"


def dim(text: str) -> str:
    """What matters less."""
    return f"{_DIM}{escape(text)}</span>"


def badge(text: str, colour: str = "plain") -> str:
    """A word in a frame; colours: see `COLOURS`."""
    return f"{_BADGE.format(COLOURS[colour])}{escape(shortened(text))}</span>"


def marked(text: str, colour: str) -> str:
    """A piece of a text on a coloured ground."""
    return f'<span style="background:rgba({COLOURS[colour]},.2)">{escape(text)}</span>'


class Page:
    """Writes the HTML of one object, up to `MOST_BYTES`: what would be too much is left out and counted."""

    def __init__(self) -> None:
        self._parts = [_PAGE]
        self._size = len(_PAGE) + len("</div>")
        self._limit = MOST_BYTES - _RESERVE
        self._ends: list[tuple[str, int]] = []  # what is open: how it ends, and the limit around it

    def add(self, html: str, *, always: bool = False) -> bool:
        """Write HTML, unless it is too much.

        Args:
            html: made of escaped parts, with all tags closed.
            always: it may use what is reserved for words on what was left out.

        Returns:
            Whether it was written.
        """
        size = len(html) if html.isascii() else len(html.encode())
        if self._size + size > (MOST_BYTES if always else self._limit):
            return False
        self._parts.append(html)
        self._size += size
        return True

    def begin(self, start: str, end: str, share: float = 1.0) -> bool:
        """Open an element, unless it is too much; `end` is to follow if it was opened.

        Args:
            start, end: its tags.
            share: of the bytes that are left, how many it may use.
        """
        if self._size + len(end) + len(start.encode()) > self._limit:
            return False
        self._ends.append((end, self._limit))
        self._size += len(end)
        self.add(start)
        self._limit = self._size + int((self._limit - self._size) * share)
        return True

    def end(self) -> None:
        """Close what was opened last."""
        end, self._limit = self._ends.pop()
        self._parts.append(end)

    def html(self) -> str:
        """The whole page."""
        while self._ends:
            self.end()
        return "".join([*self._parts, "</div>"])

    # ---- pieces

    def title(self, text: str, *rest: str) -> None:
        """The first line: what it is, and HTML of badges and the like."""
        self.add(f"<div><b>{escape(shortened(text))}</b> {' '.join(rest)}</div>")

    def note(self, text: str) -> None:
        """A line that matters less."""
        self.add(f'<div style="opacity:.65">{escape(shortened(text, 200))}</div>', always=True)

    def more(self, count: int) -> None:
        """Say how many were left out, if any."""
        if count:
            self.note(f"+{count:,} more")

    def section(self, title: str, about: str = "", *, is_open: bool = False, share: float = 1.0) -> bool:
        """Open a part that folds: HTML of its title, and words beside it."""
        summary = f"{title} {dim(shortened(about))}" if about else title
        start = (
            f'<details{" open" if is_open else ""} style="{_LINE};padding:2px 0">'
            f'<summary style="cursor:pointer;display:list-item">{summary}</summary>'
            '<div style="margin:0 0 4px 16px;max-height:460px;overflow:auto">'
        )
        return self.begin(start, "</div></details>", share)

    def branch(self, title: str, *, is_open: bool) -> bool:
        """Open a part of a tree."""
        start = (
            f'<details{" open" if is_open else ""} style="margin-left:14px">'
            f'<summary style="cursor:pointer;display:list-item;margin-left:-14px">{title}</summary>'
        )
        return self.begin(start, "</details>")

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values, a line each."""
        if self.begin(f"{_TABLE}<tbody>", "</tbody></table>"):
            for name, value in pairs:
                self.add(
                    f'<tr><th style="text-align:left;font-weight:400;opacity:.65">{escape(shortened(name))}</th>'
                    f"{_CELL}{escape(shortened(value, 300))}</td></tr>"
                )
            self.end()

    def table(
        self,
        table: Table,
        most: int,
        colour: Callable[[tuple[Any, ...]], str | None] = lambda row: None,
        most_chars: int = _MOST_CELL,
    ) -> None:
        """A table, of which so many rows are shown.

        Args:
            most: how many rows.
            colour: of a row's ground, or None.
            most_chars: of a cell.
        """
        columns = table.columns[:_MOST_COLUMNS]
        head = "".join(
            f"{_HEAD.format('right' if column.right else 'left')}{escape(shortened(column.name))}</th>"
            for column in columns
        )
        shown = 0
        if self.begin(f"{_TABLE}<thead><tr>{head}</tr></thead><tbody>", "</tbody></table>"):
            for row in table.rows[:most]:
                cells = zip(table.cells(row), columns, strict=False)
                inner = "".join(
                    f"{_RIGHT if column.right else _CELL}{escape(shortened(cell, most_chars))}</td>"
                    for cell, column in cells
                )
                ground = colour(row)
                start = f'<tr style="background:rgba({COLOURS[ground]},.14)">' if ground else "<tr>"
                if not self.add(f"{start}{inner}</tr>"):
                    break
                shown += 1
            self.end()
        self.more(len(table.rows) - shown)
        if len(table.columns) > len(columns):
            self.note(f"+{len(table.columns) - len(columns):,} more columns")

    def names(self, names: Iterable[str], total: int, most: int) -> None:
        """Names one after the other."""
        shown = 0
        if self.begin("<div>", "</div>"):
            for name in names:
                if shown == most or not self.add(f"{', ' if shown else ''}{code(name)}"):
                    break
                shown += 1
            self.end()
        self.more(total - shown)

    def lines(self, lines: list[str], most: int) -> None:
        """Lines of HTML in the letters of code."""
        shown = 0
        start = '<pre style="margin:2px 0;line-height:1.35;font-size:12px;overflow-x:auto;background:none">'
        if self.begin(start, "</pre>"):
            for line in lines[:most]:
                if not self.add(f"{line}\n"):
                    break
                shown += 1
            self.end()
        self.more(len(lines) - shown)
