"""Functions that tracing records as one call, and how they are put in place while a trace runs.

What is put in place is seen by all threads, so traces share it: each place is changed once, counted, and put back with
the last trace that needs it. A stand-in acts only for the trace that runs in the thread that calls it.
"""

from __future__ import annotations

import builtins
import functools
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from types import FunctionType, TracebackType
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


def _recorded(place: tuple[int, str], function: Callable[..., Any], record: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for a function that records the call when a trace asked for it and a proxy is among the arguments."""

    @functools.wraps(function)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        proxy = _core.proxy_among((args, kwargs)) if taker(place) is not None else None
        return function(*args, **kwargs) if proxy is None else record(proxy.tracer, args, kwargs)

    stand_in._fastexport_stand_in = function  # type: ignore[attr-defined]
    return stand_in


def _function_call(function: Callable[..., Any], tracer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = tracer.create_proxy("call_function", function, args, kwargs)
    made.node.meta["is_wrapped"] = True
    return made


def _method_call(name: str, tracer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return tracer.create_proxy("call_method", name, args, kwargs)


_MISSING = object()


class _Place:
    """An attribute or a name of a namespace that stands for something else, and how many traces need that."""

    __slots__ = ("holder", "name", "new", "old", "uses")

    def __init__(self, holder: Any, name: str, old: Any, new: Any) -> None:
        self.holder, self.name, self.old, self.new, self.uses = holder, name, old, new, 0

    def put(self, value: Any) -> None:
        if not isinstance(self.holder, dict):
            setattr(self.holder, self.name, value)
        elif value is _MISSING:
            self.holder.pop(self.name, None)
        else:
            self.holder[self.name] = value

    def holds(self) -> Any:
        """What is there now."""
        if isinstance(self.holder, dict):
            return self.holder.get(self.name, _MISSING)
        return getattr(self.holder, self.name, _MISSING)


_lock = threading.RLock()
_places: dict[tuple[int, str], _Place] = {}
_running: ContextVar[Patches | None] = ContextVar("fastexport_trace", default=None)


def running() -> Patches | None:
    """What the innermost trace of this thread has put in place; None: there is no trace."""
    found = _running.get()
    # A context may have been copied into another thread.
    return found if found is not None and found.thread == threading.get_ident() else None


def taker(place: tuple[int, str]) -> Patches | None:
    """What asked for a place, of the traces of this thread from the innermost on."""
    patches = running()
    while patches is not None and place not in patches.taken:
        patches = patches.outer
    return patches


def before(holder: Any, name: str) -> Any:
    """What an attribute was before any trace set it."""
    with _lock:
        place = _places.get((id(holder), name))
        return getattr(holder, name) if place is None else place.old


class Patches:
    """What a trace puts in place of other things, for the length of a ``with`` block.

    Args:
        tracer: whose trace it is, for those who ask what is `running`.
    """

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.thread = threading.get_ident()
        self.outer = running()
        self.taken: dict[tuple[int, str], _Place] = {}
        self._seen: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> Patches:
        _running.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _running.set(self.outer)
        with _lock:
            while self.taken:
                key, place = self.taken.popitem()
                place.uses -= 1
                if not place.uses:
                    del _places[key]
                    if place.holds() is place.new:
                        place.put(place.old)

    def attribute(self, holder: Any, name: str, new: Any) -> None:
        """Set an attribute of a class or module; of all traces the first one's value counts."""
        self._take(holder, name, lambda key: (getattr(holder, name), new))

    def functions(self, names: Iterable[tuple[dict[str, Any], str]]) -> None:
        """Wrap functions in namespaces; a builtin hides behind a global of its name."""
        for namespace, name in names:
            if namespace.get(name) is None and getattr(builtins, name, None) is None:
                raise NameError(f"wrap({name!r}): module {namespace.get('__name__')!r} has no such function")
            self._function(namespace, name)

    def methods(self, names: Iterable[tuple[type, str]]) -> None:
        """Wrap methods of classes."""
        for owner, name in names:
            self._take(owner, name, functools.partial(_method_stand_in, owner, name))

    def known(self, namespace: dict[str, Any], ids: Collection[int]) -> None:
        """Wrap what a namespace has of some functions, given by id, under any public name; each namespace once."""
        if id(namespace) in self._seen:
            return
        self._seen[id(namespace)] = namespace
        for name, value in list(namespace.items()):
            if id(_original(value)) in ids and not name.startswith("_"):
                self._function(namespace, name)

    def _function(self, namespace: dict[str, Any], name: str) -> None:
        self._take(namespace, name, functools.partial(_function_stand_in, namespace, name))

    def _take(self, holder: Any, name: str, make: Callable[[tuple[int, str]], tuple[Any, Any]]) -> None:
        """Ask for a place; the first who does changes it. ``make`` gives what is there and what is to be."""
        key = id(holder), name
        with _lock:
            if key in self.taken:
                return
            place = _places.get(key)
            if place is None:
                place = _places[key] = _Place(holder, name, *make(key))
            place.uses += 1
            self.taken[key] = place
            if place.uses == 1:
                place.put(place.new)


def _function_stand_in(namespace: dict[str, Any], name: str, place: tuple[int, str]) -> tuple[Any, Any]:
    old = namespace.get(name, _MISSING)
    function = _original(getattr(builtins, name) if old is _MISSING else old)
    return old, _recorded(place, function, functools.partial(_function_call, function))


def _method_stand_in(owner: type, name: str, place: tuple[int, str]) -> tuple[Any, Any]:
    old = getattr(owner, name)
    return old, _recorded(place, _original(old), functools.partial(_method_call, name))


def _original(value: Any) -> Any:
    """What a stand-in stands for; anything else itself."""
    return getattr(value, "_fastexport_stand_in", value) if isinstance(value, FunctionType) else value
