"""Lists and dicts as they come out of a node's arguments: instances of list and dict that refuse to be changed.

A change of such a container would not reach the graph, so it raises. The classes do what torch.fx's do; once torch.fx
is loaded its own are used instead (see `_torch`).
"""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__} objects are arguments of a node and can't be changed; assign node.args or node.kwargs"
    )


class immutable_list(list[Any]):
    """A list in the arguments of a node."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type, tuple[tuple[Any, ...]]]:
        return type(self), (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dict in the arguments of a node."""

    __delitem__ = __ior__ = __setitem__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type, tuple[tuple[tuple[Any, Any], ...]]]:
        return type(self), (tuple(self.items()),)
