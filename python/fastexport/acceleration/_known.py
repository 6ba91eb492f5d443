"""Whether functions that ours restate a part of are those it was written against, not a user's or another release's.

An entry's own text is checked where it is put in; what that text calls can be patched, or change with a release, just
the same.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from fastexport.acceleration._replacement import digest, is_theirs, stock_behind


def is_known(function: Any, source: str) -> bool:
    """Whether a function has the source text of that digest; one of ours counts as what it stands in for."""
    return _is_known(function, getattr(function, "__code__", None), source)


def are_known(namespace: Mapping[str, Any], sources: dict[str, str]) -> bool:
    """`is_known` for the functions of these names in a module's or class's namespace."""
    return all(is_known(namespace.get(name), source) for name, source in sources.items())


@functools.lru_cache(maxsize=256)
def _is_known(function: Any, code: Any, source: str) -> bool:
    function = stock_behind(function)
    return digest(function) == source and is_theirs(function)
