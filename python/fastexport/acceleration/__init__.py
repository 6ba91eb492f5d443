"""torch.fx, torch.export and torchao's PT2E made faster without changing a line, with exactly torch's results.

Example:
    >>> import fastexport
    >>> with fastexport.accelerate():
    ...     pass  # prepare_pt2e(...), torch.export.load(...), graph.eliminate_dead_code(), ...

What is replaced is listed by `table`; each entry can be switched off, and ``verify=True`` compares every result with
torch's own.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fastexport.acceleration import _scope
from fastexport.acceleration._patches import Patches
from fastexport.acceleration._replacement import Replacement
from fastexport.acceleration._table import Table, gather
from fastexport.acceleration._verify import AccelerationError

__all__ = [
    "AccelerationError",
    "Replacement",
    "Table",
    "accelerate",
    "clear_caches",
    "install",
    "table",
    "uninstall",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


_Function = TypeVar("_Function", bound=Callable[..., Any])


_lock = threading.RLock()  # two threads must not make two tables, nor install twice


def table() -> Table:
    """All replacements by name, with their state and how often each was used. Imports torch.

    An entry is switched with ``table()[name].enabled = False``, in every scope.
    """
    with _lock:
        return _make_table()


@functools.cache
def _make_table() -> Table:
    return Table(gather())


def _shared_patches() -> Patches:
    with _lock:
        return _make_patches()


@functools.cache
def _make_patches() -> Patches:
    return Patches(table().values())


class accelerate:
    """Put fastexport under torch.fx, torch.export and torchao's PT2E, here, until the block ends.

    As a context manager or a decorator of a function or coroutine function. Scopes nest, and the innermost decides. It
    holds in the thread or task that entered it; one object can be entered again, also while it is entered.

    Args:
        only: names of the entries of `table` to use; None uses all.
        verify: do each replaced job both ways and compare graphs, names, users, meta, code and results. Slow, and for
            one thread at a time.

    Raises:
        KeyError: there is no entry of that name.
        AccelerationError: with ``verify``, inside the block, when a result differs from torch's.

    Example:
        >>> import fastexport
        >>> @fastexport.accelerate()
        ... def quantize(module): ...
    """

    def __init__(self, only: Iterable[str] | None = None, verify: bool = False) -> None:
        self._scope = _make_scope(only, verify)
        self._entered: list[None] = []  # one for each time; a list, for threads may share this

    def __enter__(self) -> accelerate:
        _shared_patches().acquire()
        _scope.enter(self._scope)
        self._entered.append(None)
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._entered.pop()
        except IndexError:
            raise RuntimeError("accelerate was left more often than it was entered") from None
        _scope.leave()
        _shared_patches().release()

    def __call__(self, function: _Function) -> _Function:
        only, verify = self._scope
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"accelerate can't decorate the generator {function.__qualname__}; put `with` inside it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def accelerated_coroutine(*args: Any, **kwargs: Any) -> Any:
                with accelerate(only, verify):
                    return await function(*args, **kwargs)

            return accelerated_coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def accelerated(*args: Any, **kwargs: Any) -> Any:
            with accelerate(only, verify):
                return function(*args, **kwargs)

        return accelerated  # type: ignore[return-value]


def install(only: Iterable[str] | None = None, verify: bool = False) -> None:
    """Accelerate everywhere, in all threads, until `uninstall`. Installing again changes what is on.

    Args and errors are those of `accelerate`.
    """
    scope = _make_scope(only, verify)
    with _lock:
        if _scope.installed() is None:
            _shared_patches().acquire()
        _scope.set_installed(scope)


def uninstall() -> None:
    """Undo `install`; without one, nothing happens."""
    with _lock:
        if _scope.installed() is not None:
            _scope.set_installed(None)
            _shared_patches().release()


def clear_caches() -> None:
    """Forget what is kept from one call to another: the exported patterns of quantization-aware training."""
    qat = sys.modules.get(f"{__name__}._qat")
    if qat is not None:
        qat.clear()


def _make_scope(only: Iterable[str] | None, verify: bool) -> _scope.Scope:
    if only is None:
        return _scope.Scope(None, bool(verify))
    if isinstance(only, str):
        raise TypeError(f"only takes a list of names, not the string {only!r}")
    names = frozenset(only)
    unknown = sorted(names.difference(table()))
    if unknown:
        raise KeyError(f"no replacement is called {', '.join(unknown)}; there are: {', '.join(table())}")
    return _scope.Scope(names, bool(verify))
