"""Symbolic numbers: the sizes, numbers and conditions of an exported program that depend on its inputs.

Each holds an expression and the value that it had when the program was exported, its hint. Nothing is ever evaluated by
Python: expressions are read by the grammar of the C part.

>>> size = SymInt("Symbol('s77', positive=True, integer=True)", 4)
>>> size.srepr, size.hint
("Symbol('s77', positive=True, integer=True)", 4)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from fastexport._core import Expr

__all__ = ["SymBool", "SymFloat", "SymInt"]


class _Symbolic:
    """What the three have in common."""

    __slots__ = ("_expr", "hint", "srepr")
    srepr: str
    hint: int | float | bool | None
    _expr: Expr | None
    _hints: tuple[type, ...] = ()

    def __init__(self, expr: Expr | str, hint: Any = None) -> None:
        """A number from its expression.

        Args:
            expr: an expression, or its text in the form of sympy's srepr, as files have it.
            hint: the value that it had at export; None: not known.

        Raises:
            TypeError: expr or hint is of another type.
        """
        if hint is not None and type(hint) not in self._hints:
            raise TypeError(f"the hint of a {type(self).__name__} is no {type(hint).__name__}: {hint!r}")
        text = expr if isinstance(expr, str) else getattr(expr, "srepr", None)
        if not isinstance(text, str):
            raise TypeError(f"a {type(self).__name__} is made of an expression or its text, not of {expr!r}")
        set_ = object.__setattr__
        set_(self, "srepr", text)
        set_(self, "hint", hint)
        set_(self, "_expr", None if isinstance(expr, str) else expr)

    @property
    def expr(self) -> Expr:
        """The expression.

        Raises:
            ValueError: its text is none.
        """
        if self._expr is None:
            from fastexport._core import Expr

            object.__setattr__(self, "_expr", Expr(self.srepr))
        assert self._expr is not None
        return self._expr

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} can't be changed; make a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} can't be changed; make a new one")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, _Symbolic)
        return self.srepr == other.srepr and self.hint == other.hint

    def __hash__(self) -> int:
        return hash((type(self), self.srepr, self.hint))

    def __str__(self) -> str:
        try:
            return str(self.expr)
        except ValueError:
            return self.srepr

    def __repr__(self) -> str:
        return str(self)

    def __copy__(self) -> _Symbolic:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> _Symbolic:
        return self

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self), (self.srepr, self.hint)


class SymInt(_Symbolic):
    """A whole number that depends on the inputs, such as a size.

    Example:
        >>> SymInt("Symbol('u0', integer=True)").hint is None
        True
    """

    __slots__ = ()
    _hints = (int, bool, float)


class SymFloat(_Symbolic):
    """A real number that depends on the inputs.

    Example:
        >>> SymFloat("ToFloat(Symbol('s77', positive=True, integer=True))", 4.0).hint
        4.0
    """

    __slots__ = ()
    _hints = (int, bool, float)


class SymBool(_Symbolic):
    """A condition on the inputs.

    Example:
        >>> SymBool("StrictLessThan(Symbol('s77', positive=True, integer=True), Integer(10))").hint is None
        True
    """

    __slots__ = ()
    _hints = (int, bool, float)
