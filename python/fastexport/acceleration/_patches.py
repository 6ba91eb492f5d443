"""Putting the replacements into torch's modules and taking them out again, all or none.

They stand there while any scope is open, and ask at each call whether they are on. Modules that are not imported yet
(torchao's, mostly) are left so; when something imports them while a scope is open, their replacements follow.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from fastexport.acceleration._replacement import (
    Replacement,
    behind,
    digest,
    find,
    is_theirs,
    log,
    stand_in,
    stock_behind,
)


class _Patch(NamedTuple):
    holder: Any
    attribute: str
    stock: Any
    ours: Any


class Patches:
    """The replacements of a table, put in with the first `acquire` and taken out with the last `release`."""

    def __init__(self, entries: Iterable[Replacement]) -> None:
        self._entries = tuple(entries)
        self._lock = threading.RLock()
        self._count = 0
        self._patches: list[_Patch] = []
        self._made: dict[tuple[str, int], Any] = {}  # name of the entry, id of what was there -> ours
        self._modules: frozenset[str] = frozenset()
        self._pending: dict[str, list[tuple[Replacement, str]]] = {}
        self._finder = _Finder(self)

    def acquire(self) -> None:
        """Put the replacements in, unless they are.

        Raises:
            Exception: whatever came up; nothing is replaced then.
        """
        with self._lock:
            if self._count == 0:
                try:
                    self._put_all()
                except BaseException:
                    self._take_all()
                    raise
            self._count += 1

    def release(self) -> None:
        """Take the replacements out if this was the last to hold them."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._take_all()

    def imported(self, module: ModuleType) -> None:
        """Put in what belongs to a module that has just been imported."""
        with self._lock:
            if sys.modules.get(module.__name__) is module:
                for entry, place in self._pending.pop(module.__name__, ()):
                    self._put(entry, place)

    def awaits(self, module: str) -> bool:
        """Whether there is something to put into a module when it is imported."""
        return module in self._pending

    def _put_all(self) -> None:
        self._modules = frozenset(sys.modules)
        for entry in self._entries:
            entry.unavailable = None
            for place in entry.places:
                module = place.partition(":")[0]
                if _is_imported(module):
                    self._put(entry, place)
                else:
                    self._pending.setdefault(module, []).append((entry, place))
        if self._pending:
            sys.meta_path.insert(0, self._finder)

    def _put(self, entry: Replacement, place: str) -> None:
        try:
            holder, attribute, held = find(place)
        except (AttributeError, ImportError):
            entry.step_aside(f"{place} is not there")
            return
        stock, layers = held, []
        while (below := behind(stock)) is not None:
            layers.append(below[0])
            stock = below[1]
        if entry in layers:  # copied from another place since then, or put back by somebody who had kept it
            self._patches.append(_Patch(holder, attribute, stock, held))
            return
        if digest(stock) not in entry.sources or not is_theirs(stock):
            entry.step_aside(f"{place} is not the function it was made for ({entry.since})")
            return
        # What is one function in many places stays one.
        key = entry.name, id(held)
        ours = self._made[key] if key in self._made else stand_in(entry, held)
        self._made[key] = ours
        setattr(holder, attribute, ours)
        self._patches.append(_Patch(holder, attribute, held, ours))

    def _take_all(self) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._pending.clear()
        self._made.clear()
        while self._patches:
            patch = self._patches.pop()
            held = vars(patch.holder).get(patch.attribute)
            if held is patch.ours:
                setattr(patch.holder, patch.attribute, patch.stock)
            elif held is not patch.stock:
                log.warning("%s.%s was replaced by something else and stays", patch.holder.__name__, patch.attribute)
        for name in sys.modules.keys() - self._modules:
            _take_copies(sys.modules.get(name))


def _is_imported(name: str) -> bool:
    """Whether a module is there and its import has come to its end."""
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _take_copies(module: Any) -> None:
    """Give a module torch's functions where it imported ours by name while they stood in torch's places."""
    if not isinstance(module, ModuleType):
        return
    for name, value in list(vars(module).items()):
        stock = stock_behind(value) if type(value) is FunctionType else value
        if stock is not value:
            setattr(module, name, stock)


class _Finder(importlib.abc.MetaPathFinder):
    """Tells of the imports of modules that replacements wait for."""

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._busy = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self._patches.awaits(fullname) or getattr(self._busy, "name", None) == fullname:
            return None
        self._busy.name = fullname
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy.name = None
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._patches)  # type: ignore[assignment]
        return spec


class _Loader:
    """A module's own loader, and a word when it is done."""

    def __init__(self, loader: Any, patches: Patches) -> None:
        self._loader = loader
        self._patches = patches

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_loader", "_patches"):  # as copy and pickle ask before there is state
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._loader,)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self._loader, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._patches.imported(module)


def _itself(loader: Any) -> Any:
    return loader
