"""Where in the model's own source a finding belongs.

A file tells paths of the machine that exported it, which need not be this one. A path counts when the file is below
the folder of the source: as it is, or without some of its first folders, and then only where the line still says what
the file tells of it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from fastexport._remote import is_url

if TYPE_CHECKING:
    from fastexport._findings import Finding, Frame

_LIBRARY = re.compile(r"(^|[/\\])(site-packages|dist-packages)[/\\]")
_MOST_SOURCE = 4 << 20  # bytes of a source file that is read for a line of it
_MOST_FOLDERS = 40


class Place(NamedTuple):
    """A line of source.

    Attributes:
        file: the path; where `exists`, as `Sources.relative` tells it.
        line: counted from one.
        function: what the line is in, or "".
        exists: whether the file is there.
    """

    file: str
    line: int
    function: str
    exists: bool


class Sources:
    """The source below a folder.

    Args:
        root: the folder.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._here = os.getcwd()
        self._found: dict[tuple[str, int, str], str | None] = {}
        self._lines: dict[str, list[bytes]] = {}

    def place(self, finding: Finding) -> Place | None:
        """The innermost call that is made in a file below the folder; without one, in a file that is no library's."""
        frames = [frame for frame in reversed(finding.frames) if _is_own(frame.file)]
        for frame in frames:
            key = frame.file, frame.line, frame.code
            if key not in self._found:
                self._found[key] = self._find(frame)
            file = self._found[key]
            if file is not None:
                return Place(self.relative(os.path.join(self._root, file)), frame.line, frame.function, True)
        return Place(frames[0].file, frames[0].line, frames[0].function, False) if frames else None

    def relative(self, path: str) -> str:
        """A path below the current folder, which is that of a repository as a rule, relative to it and with slashes: so
        forges look for files. Another one, and a URL, as it is, with slashes."""
        return path if is_url(path) else _inner(path, self._here) or _slashes(path)

    def _find(self, frame: Frame) -> str | None:
        """The path of its file below the folder of the source, relative to that."""
        inside = _inner(os.path.join(self._root, frame.file), self._root)
        if inside and self._is_file(inside):
            return inside
        parts = [part for part in re.split(r"[/\\]", frame.file) if part][-_MOST_FOLDERS:]
        if ".." in parts or not frame.code:
            return None
        for start in range(len(parts)):
            path = "/".join(parts[start:])
            if self._is_file(path) and self._says(path, frame):
                return path
        return None

    def _is_file(self, path: str) -> bool:
        try:
            return os.path.isfile(os.path.join(self._root, path))
        except ValueError:  # no path can be like that
            return False

    def _says(self, path: str, frame: Frame) -> bool:
        if path not in self._lines:
            self._lines[path] = self._read(path)
        lines = self._lines[path]
        return 0 < frame.line <= len(lines) and lines[frame.line - 1].decode("utf-8", "replace").strip() == frame.code

    def _read(self, path: str) -> list[bytes]:
        try:
            with open(os.path.join(self._root, path), "rb") as file:
                return file.read(_MOST_SOURCE).splitlines()
        except OSError:
            return []


def _is_own(file: str) -> bool:
    return not file.startswith("<") and not file.startswith("torch/") and _LIBRARY.search(file) is None


def _inner(path: str, folder: str) -> str | None:
    """A path below a folder relative to it, with slashes."""
    inner = os.path.relpath(os.path.abspath(path), folder)
    return None if inner.split(os.sep, 1)[0] == os.pardir else _slashes(inner)


def _slashes(path: str) -> str:
    return path.replace(os.sep, "/")
