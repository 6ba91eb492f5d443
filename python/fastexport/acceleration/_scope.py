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
innermost: ContextVar[_Frame | None] = ContextVar("fastexport.acceleration", default=None)
everywhere: Scope | None = None


def current() -> Scope | None:
    """The scope that holds here, or None."""
    frame = innermost.get()
    return everywhere if frame is None else frame.scope


def set_installed(scope: Scope | None) -> None:
    """Make a scope hold wherever none was entered."""
    global everywhere
    everywhere = scope


def installed() -> Scope | None:
    """What `set_installed` was last given."""
    return everywhere


def enter(scope: Scope) -> None:
    """Make a scope hold in this thread or task, until `leave`."""
    innermost.set(_Frame(scope, innermost.get()))


def leave() -> None:
    """Make the scope before the last `enter` hold again."""
    frame = innermost.get()
    innermost.set(None if frame is None else frame.outer)


@contextmanager
def suspended() -> Iterator[None]:
    """Let nothing be replaced in this thread or task."""
    enter(_OFF)
    try:
        yield
    finally:
        leave()
