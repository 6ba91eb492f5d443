"""The files that paths, folders, patterns and URLs name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from fastexport._remote import import_fsspec, is_open_file, is_url

_Path = str | bytes | os.PathLike[str]


def listed(paths: Any) -> Any:
    """The files; one that is given alone as a list, and not taken for a list of its letters or lines.

    Raises:
        TypeError: it is neither a file nor an iterable.
    """
    is_one = isinstance(paths, str | bytes | bytearray | memoryview | os.PathLike)
    if is_one or hasattr(paths, "read") or is_open_file(paths):
        return [paths]
    if not hasattr(type(paths), "__iter__") and not hasattr(type(paths), "__getitem__"):
        raise TypeError(f"files are a path, a URL, an open file, bytes, or an iterable of these, not {paths!r}")
    return paths


def expand_paths(paths: Iterable[_Path] | _Path, suffix: str = ".pt2") -> Iterator[str]:
    """The files that paths name: those below a folder, those that a pattern fits, and others as they are.

    Folders are gone through in order, and lazily: the first file is there before the last folder was opened. Those that
    are links are not, where they are come upon below another. A folder that can't be read is given in the place of its
    files, so that whoever opens it is told why. URLs of fsspec may be folders and patterns too.

    Args:
        paths: files, folders and patterns (``*``, ``?``, ``[a-z]``, and ``**`` for folders below), or one of them. Of
            a folder that a pattern fits, the files below it are taken.
        suffix: of files in folders.

    Raises:
        ImportError: there is a URL, and no fsspec.

    Example:
        >>> [path.rpartition("/")[2] for path in expand_paths(["tests/data/pt2/samples/current/line*.pt2"])]
        ['linear.pt2']
    """
    for path in listed(paths):
        name = os.fsdecode(path)
        if is_url(name):
            yield from _expand_url(name, suffix)
        elif os.path.isdir(name):
            yield from _below(name, suffix)
        elif any(char in name for char in "*?[") and not os.path.lexists(name):
            yield from _matches(name, suffix)
        else:
            yield name


_SEPARATORS = re.escape(os.sep + (os.altsep or ""))
_FOLDERS_BELOW = re.compile(rf"(?:^|(?<=[{_SEPARATORS}]))\*\*(?:[{_SEPARATORS}]+|$)")


def _below(folder: str, suffix: str) -> Iterator[str]:
    unread: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unread.append(error.filename)):
        yield from _emptied(unread)
        folders.sort()
        yield from (os.path.join(parent, file) for file in sorted(files) if file.endswith(suffix))
    yield from unread


def _emptied(names: list[str]) -> Iterator[str]:
    while names:
        yield names.pop(0)


def _matches(pattern: str, suffix: str) -> Iterator[str]:
    """The files that a pattern fits, each once, and those below folders that it fits; without any, the pattern."""
    found: dict[str, None] = {}
    for name in sorted(_glob(pattern)):
        found.update(dict.fromkeys(_below(name, suffix) if os.path.isdir(name) else [name]))
    yield from found or [pattern]


def _glob(pattern: str) -> set[str]:
    """What a pattern fits. Unlike glob's, ``**`` goes into no link, which may lead back, and tells what is unread."""
    from glob import escape, glob

    parts = _FOLDERS_BELOW.split(pattern, maxsplit=1)
    if len(parts) == 1:
        return set(glob(pattern))
    top, rest = parts
    found: set[str] = set()
    for folder in glob(top) if top else ["."]:
        for parent, folders, _ in os.walk(folder, onerror=lambda error: found.add(error.filename)):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inner = escape(os.path.join(parent if top else parent[2:], ""))
            found.update(name for name in _glob(inner + (rest or "*")) if not _is_linked_folder(name))
    return found


def _is_linked_folder(name: str) -> bool:
    return os.path.islink(name) and os.path.isdir(name)


def _expand_url(url: str, suffix: str) -> Iterator[str]:
    """The files that a URL names, each by one of the same chain: `simplecache::` before it, `::x.zip` behind it."""
    fs, path = import_fsspec(url).core.url_to_fs(url)
    if any(char in path for char in "*?["):
        found = sorted(name for name, facts in fs.glob(path, detail=True).items() if facts["type"] != "directory")
    elif not url.endswith(suffix) and fs.isdir(path):
        found = sorted(name for name in fs.find(path) if name.endswith(suffix))
    else:
        yield url
        return
    links = url.split("::")
    at = next((i for i, link in enumerate(links) if "://" in link), len(links) - 1)  # of the path that is looked into
    yield from ("::".join([*links[:at], fs.unstrip_protocol(name), *links[at + 1 :]]) for name in found)
