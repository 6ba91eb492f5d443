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
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from fastexport.acceleration import _scope

log = logging.getLogger("fastexport.acceleration")


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
            AccelerationError; without one, both are called on the same arguments and the results compared.
        enabled: False switches the entry off, in every scope.
        hits: how often ours did the work.
        asides: how often it left the work to torch.
        unavailable: why the entry can't be used here, or None.
    """

    __slots__ = (
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
    ) -> None:
        self.name = name
        self.places = places
        self.function = function
        self.sources = frozenset(sources)
        self.since = since
        self.verify = verify if verify is not None else _verify_result
        self.enabled = True
        self.hits = 0
        self.asides = 0
        self.unavailable: str | None = None

    def __repr__(self) -> str:
        state = self.unavailable or ("on" if self.enabled else "off")
        return f"<replacement {self.name}: {state}, {self.hits} hits, {self.asides} asides>"

    @property
    def summary(self) -> str:
        """The first line of what is written about ours."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def step_aside(self, reason: str) -> None:
        """Note, once, why the entry can't be used with what is installed."""
        if self.unavailable is None:
            self.unavailable = reason
            log.warning("%s steps aside: %s", self.name, reason)


def digest(function: Any) -> str:
    """A short digest of the source text of a function, method or property; "" where there is no text."""
    if isinstance(function, property):
        function = function.fget
    elif isinstance(function, (staticmethod, classmethod)):
        function = function.__func__
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return ""


def find(place: str) -> tuple[ModuleType | type, str, Any]:
    """The holder, the attribute and what it holds, of a place whose module is imported.

    Raises:
        AttributeError: there is no such attribute.
    """
    module, _, path = place.partition(":")
    holder: Any = importlib.import_module(module)
    *outer, attribute = path.split(".")
    for name in outer:
        holder = getattr(holder, name)
    if attribute not in vars(holder):
        raise AttributeError(f"{place} is not there")
    return holder, attribute, vars(holder)[attribute]


def stand_in(entry: Replacement, held: Any) -> Any:
    """What to put in the place of `held`: it asks at each call whether the entry is on here."""
    if isinstance(held, property):
        return property(_dispatch(entry, held.fget), held.fset, held.fdel, held.__doc__)
    if isinstance(held, (staticmethod, classmethod)):
        return type(held)(_dispatch(entry, held.__func__))
    return _dispatch(entry, held)


def _dispatch(entry: Replacement, stock: Any) -> FunctionType:
    ours = entry.function

    @functools.wraps(stock)
    def aside(*args: Any, **kwargs: Any) -> Any:
        entry.asides += 1
        entry.hits -= 1
        return stock(*args, **kwargs)

    current = _scope.current

    @functools.wraps(stock)
    def accelerated(*args: Any, **kwargs: Any) -> Any:
        scope = current()
        if scope is None or not entry.enabled or not scope.covers(entry.name):
            return stock(*args, **kwargs)
        entry.hits += 1
        if scope.verify:
            return entry.verify(functools.partial(ours, aside), _plain(stock), args, kwargs)
        return ours(aside, *args, **kwargs)

    accelerated.__fastexport__ = entry  # type: ignore[attr-defined]
    return accelerated  # type: ignore[return-value]


def _plain(stock: Any) -> Callable[..., Any]:
    """torch's function, with nothing of ours underneath it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with _scope.suspended():
            return stock(*args, **kwargs)

    return call


def _verify_result(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from fastexport.acceleration import _equal

    expected = _equal.outcome(stock, args, kwargs)
    found = _equal.outcome(ours, args, kwargs)
    _equal.require_same(expected, found, getattr(ours, "func", ours).__name__)
    return found.value()
