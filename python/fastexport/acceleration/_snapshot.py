"""Whether the functions of whole classes and modules are what they were: for jobs that restate very many of them.

Where an entry restates a few functions it knows their texts (see `_known`). Here the text of the entry's own function,
and of those that decide most, vouch for the release; the rest has only to be torch's own, and unpatched.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

from fastexport.acceleration._replacement import inner, is_theirs, stock_behind

_HOMES = frozenset(("torch", "sympy", "typing_extensions"))


class Snapshot:
    """What classes and modules hold when this is made, as far as it is called.

    Args:
        holders: classes, and modules.
    """

    def __init__(self, holders: Iterable[type | ModuleType]) -> None:
        self._known = [(vars(holder), _names(holder), _functions(holder)) for holder in holders]
        self._is_torchs = all(_is_at_home(function) for *_, held in self._known for function in held.values())

    def is_current(self) -> bool:
        """Whether all was torch's own, and is there still; ours count as what they stand in for."""
        if not self._is_torchs:
            return False
        for namespace, names, functions in self._known:
            if names is not None and names != _public(namespace):
                return False
            for name, function in functions.items():
                held = namespace.get(name)
                if held is not function and stock_behind(held) is not function:
                    return False
        return True


def _functions(holder: Any) -> dict[str, Any]:
    held = {name: stock_behind(value) for name, value in vars(holder).items()}
    return {name: value for name, value in held.items() if isinstance(inner(value), FunctionType | type)}


def _names(holder: Any) -> frozenset[str] | None:
    """All names of a class, as one that is added may hide its base's; those of a module come and go."""
    return _public(vars(holder)) if isinstance(holder, type) else None


def _public(namespace: Any) -> frozenset[str]:
    return frozenset([name for name in namespace if not name.startswith("__")])


def _is_at_home(held: Any) -> bool:
    function = inner(held)
    if not isinstance(function, FunctionType):
        return True
    try:
        innermost = inspect.unwrap(function)
    except ValueError:  # wrapped in itself
        return False
    home = str(getattr(innermost, "__module__", "")).partition(".")[0]
    return is_theirs(function) and (home in _HOMES or home in sys.stdlib_module_names)
