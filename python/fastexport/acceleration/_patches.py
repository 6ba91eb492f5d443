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
from types import ModuleType
from typing import Any, NamedTuple

from fastexport.acceleration._replacement import Replacement, digest, find, log, stand_in


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

    def imported(self, module: str) -> None:
        """Put in what belongs to a module that has just been imported."""
        with self._lock:
            for entry, place in self._pending.pop(module, ()):
                self._put(entry, place)

    def awaits(self, module: str) -> bool:
        """Whether there is something to put into a module when it is imported."""
        return module in self._pending

    def _put_all(self) -> None:
        for entry in self._entries:
            for place in entry.places:
                module = place.partition(":")[0]
                if module in sys.modules:
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
        if digest(held) not in entry.sources:
            entry.step_aside(f"{place} is not the function it was made for ({entry.since})")
            return
        ours = stand_in(entry, held)
        setattr(holder, attribute, ours)
        self._patches.append(_Patch(holder, attribute, held, ours))

    def _take_all(self) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._pending.clear()
        while self._patches:
            patch = self._patches.pop()
            if vars(patch.holder).get(patch.attribute) is patch.ours:
                setattr(patch.holder, patch.attribute, patch.stock)
            else:
                log.warning("%s.%s was replaced by something else and stays", patch.holder.__name__, patch.attribute)


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
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._patches)
        return spec


class _Loader(importlib.abc.Loader):
    """A module's own loader, and a word when it is done."""

    def __init__(self, loader: Any, patches: Patches) -> None:
        self._loader = loader
        self._patches = patches

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._patches.imported(module.__name__)
