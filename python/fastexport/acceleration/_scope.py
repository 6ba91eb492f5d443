"""Where acceleration is on: in the thread or task that entered a scope, or everywhere after `install`.

The innermost scope decides. A thread started inside a scope begins outside of it, as it begins with empty context
variables; `install` reaches all threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Scope(NamedTuple):
    """What is on: the names of entries (None for all), and whether torch's results are compared."""

    only: frozenset[str] | None
    verify: bool

    def covers(self, name: str) -> bool:
        return self.only is None or name in self.only


class _Frame(NamedTuple):
    scope: Scope
    outer: _Frame | None


_OFF = Scope(frozenset(), False)
_innermost: ContextVar[_Frame | None] = ContextVar("fastexport.acceleration", default=None)
_installed: Scope | None = None


def current() -> Scope | None:
    """The scope that holds here, or None."""
    frame = _innermost.get()
    return _installed if frame is None else frame.scope


def set_installed(scope: Scope | None) -> None:
    """Make a scope hold wherever none was entered."""
    global _installed
    _installed = scope


def installed() -> Scope | None:
    """What `set_installed` was last given."""
    return _installed


def enter(scope: Scope) -> None:
    """Make a scope hold in this thread or task, until `leave`."""
    _innermost.set(_Frame(scope, _innermost.get()))


def leave() -> None:
    """Make the scope before the last `enter` hold again."""
    frame = _innermost.get()
    _innermost.set(None if frame is None else frame.outer)


@contextmanager
def suspended() -> Iterator[None]:
    """Let nothing be replaced in this thread or task."""
    enter(_OFF)
    try:
        yield
    finally:
        leave()
