"""Records: classes of named fields with equality and a repr, as dataclasses make them.

Importing `dataclasses` takes longer than opening a file, and each class made by it runs the compiler; these do neither.
"""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform


@dataclass_transform()
class Record:
    """A base class: the annotated names of a subclass are its fields, their values in the class the defaults.

    >>> class Point(Record):
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, y=0)
    (Point(x=1, y=0), True)
    """

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__dict__.get("__annotations__", ()))
        setattr(cls, "__match_args__", cls._fields)  # noqa: B010

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = self._fields
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__}() takes {len(names)} arguments, but {len(args)} were given")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                what = "got twice" if name in given else "does not have"
                raise TypeError(f"{type(self).__name__}() {what} the argument {name!r}")
            given[name] = value
        for name in names:
            if name in given:
                self.__dict__[name] = given[name]
            elif name in type(self).__dict__:
                self.__dict__[name] = type(self).__dict__[name]
            else:
                raise TypeError(f"{type(self).__name__}() needs the argument {name!r}")
        self._check()

    def _check(self) -> None:
        """Raise when the fields don't go together."""

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._fields)
        return f"{type(self).__qualname__}({fields})"
