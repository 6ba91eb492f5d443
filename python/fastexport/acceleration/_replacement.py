"""One function of torch or torchao, and ours that stands in for it.

Ours is called with torch's as its first argument, `stock`; calling that is stepping aside, and is counted. It takes
over only in a place that holds the very source text it was written against: a function changed by another release, or
put there by somebody else, is left alone.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import logging
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fastexport.acceleration import _scope
from fastexport.acceleration._verify import verify_result

log = logging.getLogger("fastexport.acceleration")
logging.getLogger("fastexport").addHandler(logging.NullHandler())

# Function of ours in a place -> its entry, and what it took the place of.
_stand_ins: weakref.WeakKeyDictionary[FunctionType, tuple[Replacement, Any]] = weakref.WeakKeyDictionary()
_digests: weakref.WeakKeyDictionary[FunctionType, tuple[CodeType, str]] = weakref.WeakKeyDictionary()
# Where wrappers that torch puts around its own functions come from.
_WRAPPERS = frozenset(("torch", "torchao", "contextlib", "functools", "typing_extensions", "warnings"))


class Replacement:
    """An entry of the table of replacements.

    Attributes:
        name: what the entry is called in ``accelerate(only=...)`` and in the table.
        places: where torch's function stands, as ``"module:attribute"`` or ``"module:Class.attribute"``; all hold the
            same function.
        function: ours; ``function(stock, *args, **kwargs)``.
        sources: digests of the source texts that ours is known to agree with, as `digest` makes them.
        since: the first release it was compared with, such as ``"torch 2.13"``.
        verify: ``verify(ours, stock, args, kwargs)`` calls both on equal inputs and gives the result of ours, or raises
            AccelerationError. Without one it is `verify_result`, for functions that leave their arguments as they are;
            see `_verify` for others.
        enabled: False switches the entry off, in every scope; the argument of that name is its state at first.
        hits: how often ours did the work.
        asides: how often it left the work to torch.
        unavailable: why the entry can't be used here, or None.
    """

    __slots__ = (
        "_told",
        "asides",
        "enabled",
        "function",
        "hits",
        "name",
        "places",
        "since",
        "sources",
        "unavailable",
        "verify",
    )

    def __init__(
        self,
        name: str,
        places: tuple[str, ...],
        function: Callable[..., Any],
        sources: tuple[str, ...],
        *,
        since: str = "torch 2.13",
        verify: Callable[..., Any] | None = None,
        enabled: bool = True,
    ) -> None:
        self.name = name
        self.places = places
        self.function = function
        self.sources = frozenset(sources)
        self.since = since
        self.verify = verify if verify is not None else verify_result
        self.enabled = enabled
        self.hits = 0
        self.asides = 0
        self.unavailable: str | None = None
        self._told: set[str] = set()

    def __repr__(self) -> str:
        state = self.unavailable or ("on" if self.enabled else "off")
        return f"<replacement {self.name}: {state}, {self.hits} hits, {self.asides} asides>"

    @property
    def summary(self) -> str:
        """The first line of what is written about ours."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0].rstrip(".")

    def step_aside(self, reason: str) -> None:
        """Note why the entry can't be used with what is installed; each reason is logged once."""
        self.unavailable = reason
        if reason not in self._told:
            self._told.add(reason)
            log.warning("%s steps aside: %s", self.name, reason)


def inner(held: Any) -> Any:
    """The function of a property, static method or class method; else the thing itself."""
    if isinstance(held, property):
        return held.fget
    return held.__func__ if isinstance(held, (staticmethod, classmethod)) else held


def digest(function: Any) -> str:
    """A short digest of the source text of a function, method or property; "" where there is no text."""
    try:
        function = inspect.unwrap(inner(function))
    except ValueError:  # wrapped in itself
        return ""
    code = getattr(function, "__code__", None)
    known = _digests.get(function) if type(function) is FunctionType else None
    if known is not None and known[0] is code:
        return known[1]
    try:
        text = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return ""
    if type(function) is FunctionType:
        _digests[function] = function.__code__, text
    return text


def is_theirs(held: Any) -> bool:
    """Whether what is wrapped around a function is of the function's own package, or of torch.

    A wrapper that a user put around torch's function has the source text of torch's, as far as `digest` can tell.
    """
    homes = []
    for layer in _layers(inner(held)):
        home = layer.__globals__.get("__name__", "") if type(layer) is FunctionType else type(layer).__module__
        homes.append(home.partition(".")[0])
    return all(home in _WRAPPERS or home == homes[-1] for home in homes)


def _layers(function: Any) -> Iterator[Any]:
    while True:
        yield function
        if not hasattr(function, "__wrapped__"):
            return
        function = function.__wrapped__


def behind(held: Any) -> tuple[Replacement, Any] | None:
    """The entry whose stand-in something is, and what that took the place of; None for anything else."""
    function = inner(held)
    return _stand_ins.get(function) if type(function) is FunctionType else None


def stock_behind(held: Any) -> Any:
    """What stood in a place before any replacement of ours was put there; the thing itself if none was."""
    while (below := behind(held)) is not None:
        held = below[1]
    return held


def find(place: str) -> tuple[ModuleType | type, str, Any]:
    """The holder, the attribute and what it holds, of a place whose module is imported.

    Raises:
        AttributeError: there is no such attribute.
    """
    module, _, path = place.partition(":")
    # Not through the import system: it would wait for a module that another thread is importing.
    holder: Any = sys.modules.get(module) or importlib.import_module(module)
    *outer, attribute = path.split(".")
    for name in outer:
        holder = getattr(holder, name)
    if attribute not in vars(holder):
        raise AttributeError(f"{place} is not there")
    return holder, attribute, vars(holder)[attribute]


def stand_in(entry: Replacement, held: Any) -> Any:
    """What to put in the place of `held`: it asks at each call whether the entry is on here."""
    function = _dispatch(entry, inner(held))
    _stand_ins[function] = entry, held
    if isinstance(held, property):
        return property(function, held.fset, held.fdel, held.__doc__)
    return type(held)(function) if isinstance(held, (staticmethod, classmethod)) else function


def _dispatch(entry: Replacement, stock: Any) -> FunctionType:
    ours = entry.function

    @functools.wraps(stock)
    def aside(*args: Any, **kwargs: Any) -> Any:
        entry.asides += 1
        entry.hits -= 1
        return stock(*args, **kwargs)

    # Spelled out, as this runs at each call: what _scope.current and Scope.covers tell.
    innermost, name = _scope.innermost.get, entry.name

    @functools.wraps(stock)
    def accelerated(*args: Any, **kwargs: Any) -> Any:
        frame = innermost()
        scope = _scope.everywhere if frame is None else frame[0]
        if scope is None or not entry.enabled or (scope[0] is not None and name not in scope[0]):
            return stock(*args, **kwargs)
        entry.hits += 1
        if scope[1]:
            return entry.verify(functools.partial(ours, aside), _plain(stock), args, kwargs)
        return ours(aside, *args, **kwargs)

    return accelerated  # type: ignore[return-value]


def _plain(stock: Any) -> Callable[..., Any]:
    """torch's function, with nothing of ours underneath it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with _scope.suspended():
            return stock(*args, **kwargs)

    return call
