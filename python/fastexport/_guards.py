"""Guards of a program: conditions on its arguments, texts that name them by forward's parameters.

``L['x']`` is the parameter x, ``L['rest'][1]`` a part of one, or the parameter that forward takes as ``rest_1``, and
``L['flat_args'][3]`` the fourth of all arguments laid out flat. When the arguments change, guards follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

_FLAT = re.compile(r"L\['flat_args'\]\[([0-9]+)\]")


def _sources(name: str) -> list[str]:
    """How a guard names a parameter."""
    sources = [f"L['{name}']"]
    base, _, number = name.rpartition("_")
    if base and number.isdecimal():  # one of *base
        sources.append(f"L['{base}'][{number}]")
    return sources


def renamed(guards: Sequence[str], old: str, new: str) -> list[str]:
    """The guards of a program whose parameter has another name.

    >>> renamed(["L['x'].size()[0] == L['rest'][0].size()[0]"], "rest_0", "y")
    ["L['x'].size()[0] == L['y'].size()[0]"]
    """
    found = list(guards)
    for source in _sources(old):
        found = [guard.replace(source, f"L['{new}']") for guard in found]
    return found


def without(guards: Sequence[str], names: Collection[str], leaves: Sequence[int]) -> list[str]:
    """The guards of a program that has lost arguments, or parts of them.

    Args:
        names: of the parameters they were, or were parts of.
        leaves: their numbers among all arguments laid out flat.

    >>> without(["L['x'].size()[0] >= 2", "L['flat_args'][0] == 1", "L['flat_args'][2] == 1"], ["x"], [0])
    ["L['flat_args'][1] == 1"]
    """
    sources = [source for name in names for source in _sources(name)]
    gone = set(leaves)
    kept = [
        guard
        for guard in guards
        if not any(source in guard for source in sources) and gone.isdisjoint(map(int, _FLAT.findall(guard)))
    ]
    return [_numbered(guard, lambda leaf: leaf - sum(other < leaf for other in gone)) for guard in kept]


def flattened(guards: Sequence[str], places: Sequence[tuple[str, str]], names: Sequence[str]) -> list[str]:
    """The guards of a program that takes the leaves of its arguments one by one.

    Args:
        places: of each leaf: the parameter that it is in, and the way from there to it.
        names: of the parameters that take the leaves now.

    Returns:
        Those that speak of leaves only: of others nothing can be said any more.

    >>> flattened(["L['x'][1].size()[0] == L['y']", "len(L['x']) == 2"], [("x", "[1]"), ("y", "")], ["a", "b"])
    ["L['a'].size()[0] == L['b']"]
    """
    now = {
        source + way: f"L['{name}']"
        for (parameter, way), name in zip(places, names, strict=True)
        for source in _sources(parameter)
    }
    now |= {f"L['flat_args'][{i}]": f"L['flat_args'][{i}]" for i in range(len(names))}
    leaf = re.compile("|".join(map(re.escape, sorted(now, key=len, reverse=True))) or "(?!)")
    return [leaf.sub(lambda found: now[found[0]], guard) for guard in guards if "L[" not in leaf.sub("", guard)]


def with_leaf(guards: Sequence[str], leaf: int) -> list[str]:
    """The guards of a program with one more argument, which has this number among all laid out flat.

    >>> with_leaf(["L['flat_args'][0] == L['flat_args'][1]"], 1)
    ["L['flat_args'][0] == L['flat_args'][2]"]
    """
    return [_numbered(guard, lambda other: other + (other >= leaf)) for guard in guards]


def _numbered(guard: str, number: Callable[[int], int]) -> str:
    return _FLAT.sub(lambda found: f"L['flat_args'][{number(int(found[1]))}]", guard)
