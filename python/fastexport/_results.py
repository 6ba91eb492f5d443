"""What a pass did."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from fastexport._tables import Column, Table, Tabular


class PassResult(Tabular):
    """The outcome of one pass over a graph; true when the graph was modified.

    It stands in for the bool that torch.fx's passes return: ``changed |= graph.eliminate_dead_code()`` works. Names are
    made when they are first asked for.

    Args:
        name: the pass.
        modified: whether the graph changed.
        removed, replaced, added: the value of the attribute, or a function that gives it.
        reasons: see below.
        seconds: see below.

    Attributes:
        removed: names of the nodes taken out, in the order they went; in a subgraph, ``path/name``.
        replaced: name of a removed node -> name of the node in its place.
        added: names of new nodes.
        reasons: name of each node -> why it was kept or removed, when that was asked for; else None.
        seconds: the time the pass took.

    >>> PassResult("eliminate_dead_code", True, removed=["relu"], seconds=0.001)
    PassResult(eliminate_dead_code: modified, 1 removed, 1.000 ms)
    """

    def __init__(
        self,
        name: str,
        modified: bool = False,
        *,
        removed: list[str] | Callable[[], list[str]] = list,
        replaced: dict[str, str] | Callable[[], dict[str, str]] = dict,
        added: list[str] | Callable[[], list[str]] = list,
        reasons: dict[str, str] | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.name = name
        self.modified = modified
        self.reasons = reasons
        self.seconds = seconds
        self._removed = removed
        self._replaced = replaced
        self._added = added

    @cached_property
    def removed(self) -> list[str]:
        return self._removed() if callable(self._removed) else self._removed

    @cached_property
    def replaced(self) -> dict[str, str]:
        return self._replaced() if callable(self._replaced) else self._replaced

    @cached_property
    def added(self) -> list[str]:
        return self._added() if callable(self._added) else self._added

    def __bool__(self) -> bool:
        return self.modified

    def __eq__(self, other: object) -> bool:
        if isinstance(other, bool):
            return self.modified == other
        return self is other

    def __hash__(self) -> int:
        return hash(self.modified)

    def __or__(self, other: object) -> bool:
        return self.modified | bool(other) if isinstance(other, (bool, PassResult)) else NotImplemented

    __ror__ = __or__

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name, for JSON."""
        names = ("name", "modified", "removed", "replaced", "added", "reasons", "seconds")
        return {name: getattr(self, name) for name in names}

    def _table(self) -> Table:
        """A row for each node that is gone or new, and for each that there is a reason for."""
        reasons = self.reasons or {}
        what = dict.fromkeys(reasons, "kept") | dict.fromkeys(self.removed, "removed")
        what |= dict.fromkeys(self.replaced, "replaced") | dict.fromkeys(self.added, "added")
        rows = [(node, change, self.replaced.get(node), reasons.get(node)) for node, change in what.items()]
        return Table((Column("node"), Column("change"), Column("by"), Column("reason")), rows)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        for name in ("removed", "replaced", "added"):
            state[name] = getattr(self, name)
            del state["_" + name]
        return state

    def __repr__(self) -> str:
        parts = ["modified" if self.modified else "not modified"]
        for names, what in ((self.removed, "removed"), (self.replaced, "replaced"), (self.added, "added")):
            if names:
                parts.append(f"{len(names)} {what}")
        return f"PassResult({self.name}: {', '.join(parts)}, {self.seconds * 1e3:.3f} ms)"
