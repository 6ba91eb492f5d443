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
    """Rows in columns, two blanks between; `right` tells the columns whose texts stand to the right."""
    if not rows:
        return
    right = set(right)
    widths = [max(len(escape(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            escape(cell).rjust(widths[i]) if i in right else escape(cell).ljust(widths[i]) for i, cell in enumerate(row)
        ]
        emit("  ".join(cells).rstrip())


def complain(message: object) -> None:
    """A message of ours on stderr, unless that is full or gone: then the exit code has to do."""
    with suppress(OSError):
        print(f"fastexport: {inert(escape(str(message)))}", file=sys.stderr)


def complain_of_name(message: str, names: Sequence[str], name: str) -> None:
    """Say on stderr that a name is unknown, and which ones are like it."""
    import difflib

    close = difflib.get_close_matches(name, names, 3)
    complain(message + (f"; did you mean {', '.join(close)}?" if close else ""))


def use_colour(stream: TextIO) -> bool:
    """Whether colours are wanted on a stream: NO_COLOR says no, FORCE_COLOR yes, and else a terminal gets them."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


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
        if not sys.stderr.isatty() or now - self._start < 1 or now - self._shown < 0.1:
            return
        self._shown = now
        part = min(self.done / self.total, 1)
        bar = "#" * int(30 * part)
        print(f"\r{escape(self.label)} [{bar:<30}] {part:4.0%}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
