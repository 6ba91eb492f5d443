"""Files that are elsewhere: URLs, and fsspec's OpenFile. fsspec is imported only for a URL."""

from __future__ import annotations

import os
import re
from typing import Any

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
