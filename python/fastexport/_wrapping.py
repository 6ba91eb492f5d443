"""Functions that tracing records as one call, and how they are put in place while a trace runs."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Any, TypeVar

from fastexport import _core
from fastexport._errors import FastExportError, shown_as

_F = TypeVar("_F", bound=Callable[..., Any] | str)

# Where functions to wrap are found: (id of a module's globals, name) -> the globals, kept so that the id stays theirs.
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}


def wrap(fn_or_name: _F) -> _F:
    """Let tracing record calls of a function as one node, in place of what the function does.

    To be called at the top level of the module whose functions call it, with the name under which it is known there, or
    used as a decorator. Only calls with a `Proxy` among the arguments are recorded. What `torch.fx.wrap` was told is
    followed too.

    Args:
        fn_or_name: the function, or the name of a global or builtin.

    Returns:
        What was given.

    Raises:
        TypeError: it is neither; as in torch, a RuntimeError too.
        NotImplementedError: the call is not at the top level of a module.

    Example:
        >>> fastexport.wrap("len")  # doctest: +SKIP
        'len'
    """
    if isinstance(fn_or_name, str):
        name: str = fn_or_name
    elif callable(fn_or_name):
        name = fn_or_name.__name__
    else:
        raise WrapError(f"wrap takes a function or its name, not {type(fn_or_name).__name__}")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError(f"wrap({name!r}) must be called at the top level of a module, not in a function")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


@shown_as("FastExportError")
class WrapError(FastExportError, TypeError, RuntimeError):
    """Something that can't be wrapped; torch.fx raises RuntimeError for it."""


def wrapped_names() -> list[tuple[dict[str, Any], str]]:
    """The globals and names that `wrap` was told."""
    return [(namespace, name) for (_, name), namespace in _wrapped.items()]


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for a function that records the call when there is a proxy among the arguments."""

    @functools.wraps(function)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        proxy = _core.proxy_among((args, kwargs))
        if proxy is None:
            return function(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    stand_in._fastexport_stand_in = True  # type: ignore[attr-defined]
    return stand_in


def recorded_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a method of a class."""

    @functools.wraps(function)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        proxy = _core.proxy_among((args, kwargs))
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    stand_in._fastexport_stand_in = True  # type: ignore[attr-defined]
    return stand_in


_MISSING = object()


class Patches:
    """Names that stand for something else for the length of a ``with`` block; undone in the reverse order."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self._seen: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> Patches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._undo:
            holder, name, old = self._undo.pop()
            if not isinstance(holder, dict):
                setattr(holder, name, old)
            elif old is _MISSING:
                holder.pop(name, None)
            else:
                holder[name] = old

    def attribute(self, holder: Any, name: str, new: Any) -> None:
        """Set an attribute of a class."""
        self._undo.append((holder, name, getattr(holder, name)))
        setattr(holder, name, new)

    def functions(self, names: Iterable[tuple[dict[str, Any], str]]) -> None:
        """Wrap functions in namespaces; a builtin hides behind a global of its name."""
        for namespace, name in names:
            old = namespace.get(name, _MISSING)
            function = getattr(builtins, name, None) if old is _MISSING else old
            if function is None:
                raise NameError(f"wrap({name!r}): module {namespace.get('__name__')!r} has no such function")
            self._function(namespace, name, function, old)

    def methods(self, names: Iterable[tuple[type, str]]) -> None:
        """Wrap methods of classes."""
        for owner, name in names:
            method = getattr(owner, name)
            if not getattr(method, "_fastexport_stand_in", False):
                self.attribute(owner, name, recorded_method(name, method))

    def known(self, namespace: dict[str, Any], ids: Collection[int]) -> None:
        """Wrap what a namespace has of some functions, given by id, under any public name; each namespace once."""
        if id(namespace) in self._seen:
            return
        self._seen[id(namespace)] = namespace
        for name, value in list(namespace.items()):
            if id(value) in ids and not name.startswith("_"):
                self._function(namespace, name, value, value)

    def _function(self, namespace: dict[str, Any], name: str, function: Any, old: Any) -> None:
        if getattr(function, "_fastexport_stand_in", False):
            return  # by an outer trace: it asks the proxy which tracer to record with
        self._undo.append((namespace, name, old))
        namespace[name] = recorded(function)
