"""Writing to the terminal: text with nothing hidden in it, tables, JSON, colours and progress only where they help."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TextIO

# Control characters but newline and tab, and characters that turn text round or hide in it.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)

_MOST_COLUMN = 100  # characters to which the cells of a table are filled up

# What runners of CI (GitHub, Azure, TeamCity) take for a command: the first where a line begins, the second anywhere.
_COMMAND = re.compile(r"^([^\S\n]*):(?=:)|#(?=#\w*\[)", re.MULTILINE)


def escape(text: str) -> str:
    r"""A text of a file, safe to show: what could steer a terminal is written as an escape.

    >>> escape("a\x1b[31m")
    'a\\x1b[31m'
    """
    if text.replace("\n", "").isprintable():  # as nearly all texts are; much quicker
        return text
    return _HIDDEN.sub(lambda match: ascii(match.group())[1:-1], text)


def one_line(text: str) -> str:
    r"""A text with its ends of lines written as escapes, like all else that does not show.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return inert(escape(text)).replace("\n", "\\n").replace("\t", "\\t")


def inert(text: str, form: str = "\\x{:02x}") -> str:
    r"""A text in whose lines a runner of CI finds no command of its own.

    Args:
        text: lines of output.
        form: how a character is written that would begin a command.

    >>> inert("::error::x\n  ::x ##[group] torch::nn")
    '\\x3a:error::x\n  \\x3a:x \\x23#[group] torch::nn'
    """
    if "::" not in text and "##" not in text:
        return text
    return _COMMAND.sub(lambda match: (match[1] or "") + form.format(ord(match[0][-1])), text)


def emit(text: str) -> None:
    """Lines on stdout that are escaped already."""
    print(inert(text))


def write(text: str) -> None:
    """A line, or lines, on stdout."""
    emit(escape(text))


def write_markup(text: str) -> None:
    """Lines of HTML or XML on stdout: the same whatever encoding that has."""
    print(inert(text, "&#{};").encode("ascii", "xmlcharrefreplace").decode())


def write_json(value: Any) -> None:
    """A JSON document on stdout."""
    print(json_text(value, indent=2))


def json_text(value: Any, **options: Any) -> str:
    """A value as JSON, in which no runner of CI finds a command."""
    import json

    return inert(json.dumps(value, **options), "\\u{:04x}")


def write_table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> None:
    """Rows in columns, two blanks between; `right` tells the columns whose texts stand to the right.

    What is wider than a column may be stands out of it: one long cell does not put blanks into all rows.
    """
    if not rows:
        return
    right = set(right)
    lines = [[one_line(cell) for cell in row] for row in rows]
    widths = [min(max(map(width, column)), _MOST_COLUMN) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for i, cell in enumerate(line):
            blanks = " " * (widths[i] - width(cell))
            cells.append(blanks + cell if i in right else cell + blanks)
        emit("  ".join(cells).rstrip())


def width(text: str) -> int:
    """The columns that a line takes on a terminal.

    >>> width("x"), width("層"), width("e\u0301")
    (1, 2, 1)
    """
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    no_columns = sum(category(char) in ("Mn", "Me") for char in text)
    return len(text) - no_columns + sum(east_asian_width(char) in "WF" for char in text)


def complain(message: object) -> None:
    """A message of ours on stderr, in a line."""
    tell(f"fastexport: {one_line(str(message))}")


def tell(text: str) -> None:
    """Lines on stderr, after what stdout has so far; unless stderr is full or gone: then the exit code has to do."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError):
        print(inert(escape(text)), file=sys.stderr)


def use_colour(stream: TextIO) -> bool:
    """Whether colours are wanted on a stream: NO_COLOR says no, FORCE_COLOR yes, and else a terminal gets them."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream)


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can do more than print."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """How wide the terminal is. shutil knows too, but takes longer to import than most of our work takes."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted[:6]) > 0:
        return int(wanted[:6])
    for descriptor in (1, 2):
        with suppress(OSError):
            return os.get_terminal_size(descriptor).columns or 80  # 0: a terminal that does not know
    return 80


def colour(text: str, code: int, stream: TextIO) -> str:
    """The text in a colour of ANSI's, where the stream shows colours."""
    return f"\x1b[{code}m{text}\x1b[0m" if use_colour(stream) else text


class Progress:
    """A bar on stderr for work of more than a second; nothing when stderr is no terminal.

    Args:
        label: what is being done.
        total: of the units that `add` counts.
    """

    def __init__(self, label: str, total: int) -> None:
        self.label = label
        self.total = max(total, 1)
        self.done = 0
        self._start = time.monotonic()
        self._shown = 0.0

    def add(self, units: int) -> None:
        """So much more is done."""
        self.done += units
        now = time.monotonic()
        if not is_terminal(sys.stderr) or now - self._start < 1 or now - self._shown < 0.1:
            return
        self._shown = now
        part = min(self.done / self.total, 1)
        bar = "#" * int(30 * part)
        label = _end_of(one_line(self.label), max(columns() - 40, 8))  # a line that wraps could not be taken away
        self._print(f"\r{label} [{bar:<30}] {part:4.0%}")

    def close(self) -> None:
        """Take the bar away."""
        if self._shown:
            self._print("\r\x1b[K")

    def _print(self, text: str) -> None:
        with suppress(OSError):  # the terminal has gone
            print(text, end="", file=sys.stderr, flush=True)


def _end_of(text: str, room: int) -> str:
    """A text, or the end of one that takes more columns."""
    if width(text) <= room:
        return text
    text = text[-room:]
    while width(text) > room - 3:
        text = text[1:]
    return f"...{text}"
