"""Files that are elsewhere: URLs, fsspec's OpenFile, and files read by ranges. fsspec is imported only for a URL."""

from __future__ import annotations

import errno
import os
import re
import sys
from bisect import bisect_right
from typing import Any

_WHOLE = 16 << 20  # bytes of a file that is fetched in one go: for less, several requests take longer
_AHEAD, _MOST_AHEAD = 64 << 10, 32 << 20  # bytes read ahead, at first and when reading goes on and on
_GAP = 16 << 10  # bytes between two ranges that are fetched along with them

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")


def is_url(path: Any) -> bool:
    """Whether a path is a URL, or a chain of them such as ``simplecache::s3://bucket/m.pt2``, and no file here.

    >>> is_url("s3://bucket/m.pt2"), is_url("C:/m.pt2"), is_url("m.pt2")
    (True, False, False)
    """
    return isinstance(path, str) and _URL.match(path) is not None and not os.path.lexists(path)


def import_fsspec(url: str) -> Any:
    """The module fsspec, or an error that says how to get it."""
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"{url} needs fsspec, which is not installed (pip install fsspec)") from error
    return fsspec


def is_open_file(value: Any) -> bool:
    """Whether it is an fsspec.core.OpenFile, which names a file and has yet to be opened."""
    return not hasattr(value, "read") and all(hasattr(value, name) for name in ("fs", "path", "__enter__"))


def open_file_of(url: str) -> Any:
    """The OpenFile of a URL.

    Raises:
        ImportError: fsspec, or what it needs for such URLs, is not installed.
        ValueError: it knows no such protocol.
    """
    return import_fsspec(url).open(url, "rb")


# ---- what file systems say ----

_NUMBERS = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    ConnectionRefusedError: errno.ECONNREFUSED,
    ConnectionResetError: errno.ECONNRESET,
    TimeoutError: errno.ETIMEDOUT,
    MemoryError: errno.ENOMEM,
}


def said_by(error: BaseException, place: str) -> str:
    """What an error says of a file, in a line and without the place; where it is but the place, what caused the error.

    Args:
        error: what opening or reading the file has raised; fsspec's have often no more than the path.
        place: the path or URL, which stands before the words wherever they are shown.

    >>> said_by(FileNotFoundError("/zoo/m.pt2"), "memory://zoo/m.pt2")
    'No such file or directory'
    """
    told = _words(error, place)
    if not told and error.__cause__ is not None:
        told = _words(error.__cause__, place)
    number = next((number for kind, number in _NUMBERS.items() if isinstance(error, kind)), None)
    return told or (type(error).__name__ if number is None else os.strerror(number))


def _words(error: BaseException, place: str) -> str:
    """What it says beyond the place, or nothing."""
    told, status, message = (getattr(error, name, None) for name in ("strerror", "status", "message"))
    if isinstance(told, str) and told:
        return " ".join(told.splitlines())
    if isinstance(status, int) and isinstance(message, str):  # of aiohttp, an answer of a server
        return f"{message} ({status})".lstrip()
    text = " ".join(str(error).splitlines()).removeprefix(place).lstrip(": ")
    path = "/" + text.strip("'\"").lstrip("/")
    return "" if any(f"/{link}".endswith(path) for link in (place, *place.split("::"))) else text


# ---- files read by ranges ----


class RemoteFile:
    """A file of fsspec of which only those ranges are fetched that are asked for; what Archive reads from.

    A server that knows of no ranges sends the whole file in the place of one, which is kept then.

    Args:
        system, path: of the file.
        options: for the system's cat_ranges().

    Attributes:
        size: the bytes of the file.
    """

    def __init__(self, system: Any, path: str, size: int, options: dict[str, Any]) -> None:
        self.size = size
        self._system = system
        self._path = path
        self._options = options
        self._block = 0, memoryview(b"")  # what was fetched last, and where it starts
        self._whole: memoryview | None = None
        self._ahead = _AHEAD
        self._expected: list[tuple[int, int]] = []
        self._starts: list[int] = []  # of the ranges that were expected, in their order
        self._ranges: list[memoryview] = []

    def expect(self, at: int, length: int) -> None:
        """Fetch a range with the next one that has to be fetched: all that are expected then come together."""
        start, block = self._block
        if not (start <= at and at + length <= start + len(block)):
            self._expected.append((at, at + length))

    def read_range(self, at: int, length: int) -> memoryview:
        """So many bytes at a place, all of them within the size.

        Raises:
            OSError: others came than were asked for; what the file system raises comes as it is.
        """
        found = _within(*self._block, at, length)
        if found is None and self._expected:
            self._fetch_expected()
        if found is None and self._starts:
            i = bisect_right(self._starts, at) - 1
            found = _within(self._starts[i], self._ranges[i], at, length) if i >= 0 else None
        return self._fetch_block(at, length) if found is None else found

    def _fetch_expected(self) -> None:
        joined: list[tuple[int, int]] = []
        for start, end in sorted(self._expected):
            if joined and start - joined[-1][1] <= _GAP:
                joined[-1] = joined[-1][0], max(joined[-1][1], end)
            else:
                joined.append((start, end))
        self._expected = []
        self._ranges = self._fetch(joined)
        self._starts = [start for start, _ in joined]

    def _fetch_block(self, at: int, length: int) -> memoryview:
        start, block = self._block
        end = start + len(block)
        goes_on = start <= at <= end
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if goes_on else _AHEAD
        rest = bytes(block[at - start :]) if goes_on else b""
        del block
        self._block = 0, memoryview(b"")  # let go of it before there is another
        at_missing = at + len(rest)
        (block,) = self._fetch([(at_missing, min(max(at + length, at_missing + self._ahead), self.size))])
        self._block = at, memoryview(rest + block) if rest else block
        return self._block[1][:length]

    def _fetch(self, ranges: list[tuple[int, int]]) -> list[memoryview]:
        if self._whole is not None:
            return [self._whole[start:end] for start, end in ranges]
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        parts = self._system.cat_ranges([self._path] * len(ranges), starts, ends, on_error="raise", **self._options)
        return [self._checked(part, start, end) for part, start, end in zip(parts, starts, ends, strict=True)]

    def _checked(self, part: Any, start: int, end: int) -> memoryview:
        if isinstance(part, BaseException):  # older versions of fsspec give what they should raise
            raise part
        data = memoryview(part)
        if data.nbytes == self.size != end - start:
            self._whole = data
            return data[start:end]
        if data.nbytes != end - start:
            raise OSError(f"{self._path}: {data.nbytes} bytes came where bytes {start} to {end} were asked for")
        return data


def _within(start: int, block: memoryview, at: int, length: int) -> memoryview | None:
    at -= start
    return block[at : at + length] if at >= 0 and at + length <= len(block) else None


def ranges_of(file: Any, place: Any) -> RemoteFile | None:
    """What reads an open file by ranges; None of one that is not fsspec's, or better read whole.

    Args:
        file: the file.
        place: what tells where it is: the file, or the OpenFile that opened it, whose system may keep what it fetches.
    """
    spec = sys.modules.get("fsspec.spec")
    if spec is None or not isinstance(file, spec.AbstractBufferedFile):
        return None
    if type(file.size) is not int or file.size <= _WHOLE or file.tell() != 0:
        return None
    # by itself a system reads ahead, unless it is asynchronous, or keeps what another fetches
    reads_ahead = place.fs is file.fs and not getattr(file.fs, "async_impl", False)
    return RemoteFile(place.fs, place.path, file.size, {"cache_type": "none"} if reads_ahead else {})
