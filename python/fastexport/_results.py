"""What a pass did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class PassResult:
    """The outcome of one pass over a graph; true when the graph was modified.

    It stands in for the bool that torch.fx's passes return: ``changed |= graph.eliminate_dead_code()`` works.

    Attributes:
        name: the pass.
        modified: whether the graph changed.
        removed: names of the nodes taken out, in the order they went; in a subgraph, ``path/name``.
        replaced: name of a removed node -> name of the node in its place.
        added: names of new nodes.
        reasons: name of each node -> why it was kept or removed, when that was asked for.
        seconds: time the pass took.

    >>> PassResult("eliminate_dead_code", modified=True, removed=["relu"], seconds=0.001)
    PassResult(eliminate_dead_code: modified, 1 removed, 1.000 ms)
    """

    name: str
    modified: bool = False
    removed: list[str] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    reasons: dict[str, str] | None = None
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return self.modified

    def __eq__(self, other: object) -> bool:
        if isinstance(other, bool):
            return self.modified == other
        return self is other

    def __hash__(self) -> int:
        return hash(self.modified)

    def __or__(self, other: object) -> bool:
        return self.modified | other if isinstance(other, bool) else NotImplemented

    __ror__ = __or__

    def __repr__(self) -> str:
        parts: list[str] = ["modified" if self.modified else "not modified"]
        count: Callable[[list[str] | dict[str, str], str], None] = lambda names, what: (  # noqa: E731
            parts.append(f"{len(names)} {what}") if names else None
        )
        count(self.removed, "removed")
        count(self.replaced, "replaced")
        count(self.added, "added")
        return f"PassResult({self.name}: {', '.join(parts)}, {self.seconds * 1e3:.3f} ms)"
