"""Writing to the terminal: text with nothing hidden in it, tables, JSON, colours and progress only where they help."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

# Control characters but newline and tab, and characters that turn text round or hide in it.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def escape(text: str) -> str:
    r"""A text of a file, safe to show: what could steer a terminal is written as an escape.

    >>> escape("a\x1b[31m")
    'a\\x1b[31m'
    """
    if text.replace("\n", "").isprintable():  # as nearly all texts are; much quicker
        return text
    return _HIDDEN.sub(lambda match: ascii(match.group())[1:-1], text)


def write(text: str) -> None:
    """A line, or lines, on stdout."""
    print(escape(text))


def write_json(value: Any) -> None:
    """A JSON document on stdout."""
    import json

    print(json.dumps(value, indent=2))


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
        print("  ".join(cells).rstrip())


def complain_of_name(message: str, names: Sequence[str], name: str) -> int:
    """Say on stderr that a name is unknown, and which ones are like it; the exit code for that."""
    import difflib

    close = difflib.get_close_matches(name, names, 3)
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    print(f"fastexport: {escape(message + hint)}", file=sys.stderr)
    return 2


def use_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal and nobody asked for plain text (NO_COLOR, TERM=dumb)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def colour(text: str, code: int, stream: TextIO) -> str:
    """The text in a colour of ANSI's, where the stream shows colours."""
    return f"\x1b[{code}m{text}\x1b[0m" if use_colour(stream) else text


def write_file(path: str, data: bytes) -> None:
    """Write a file that takes its name only when it is whole. A link stays one, and a pipe or device is written to."""
    import stat
    import tempfile

    path = os.path.realpath(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        mode = stat.S_IFREG | 0o666 & ~umask
    if not stat.S_ISREG(mode):
        with open(path, "wb") as file:
            file.write(data)
        return
    descriptor, name = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, stat.S_IMODE(mode))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


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
