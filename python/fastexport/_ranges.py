"""Ranges of symbols: what a program demands of its dynamic sizes, and what follows for expressions of them."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple, TypeAlias

from fastexport._core import Expr

Number: TypeAlias = int | float

_EXPRESSIONS = {
    "add": "Add(Symbol('a'), Symbol('b'))",
    "sub": "Add(Symbol('a'), Mul(Integer(-1), Symbol('b')))",
    "mul": "Mul(Symbol('a'), Symbol('b'))",
    "floordiv": "FloorDiv(Symbol('a'), Symbol('b'))",
    "mod": "PythonMod(Symbol('a'), Symbol('b'))",
    "max": "Max(Symbol('a'), Symbol('b'))",
    "min": "Min(Symbol('a'), Symbol('b'))",
    "neg": "Mul(Integer(-1), Symbol('a'))",
    "abs": "Abs(Symbol('a'))",
}


@cache
def _expression(name: str) -> Expr:
    return Expr(_EXPRESSIONS[name])


class ValueRange(NamedTuple):
    """The values that a symbol, or an expression, may take; both ends count.

    Ranges can be computed with: the result holds what each pair of values gives. ``&`` is what lies in both ranges,
    ``|`` what lies in one of them or between.

    Attributes:
        lower: the least value; None: an integer without a least value. True or False: a truth value.
        upper: the greatest value; likewise. Ends of floats may be infinite.

    Example:
        >>> ValueRange(2, None)
        VR[2, int_oo]
        >>> 1 in ValueRange(2, None)
        False
        >>> ValueRange(2, None) * 2 + 1, ValueRange(0, 9) // 2, ValueRange(2, None) & ValueRange(None, 8)
        (VR[5, int_oo], VR[0, 4], VR[2, 8])
    """

    lower: Number | None
    upper: Number | None

    @property
    def is_bool(self) -> bool:
        """It is the range of a truth value."""
        return isinstance(self.lower, bool) and isinstance(self.upper, bool)

    @property
    def is_float(self) -> bool:
        """It is a range of floats."""
        return isinstance(self.lower, float) or isinstance(self.upper, float)

    @property
    def is_int(self) -> bool:
        """It is a range of integers."""
        return not self.is_bool and not self.is_float

    @property
    def is_singleton(self) -> bool:
        """It holds one value only."""
        return self.lower is not None and self.lower == self.upper

    @property
    def is_empty(self) -> bool:
        """It holds no value."""
        return self.lower is not None and self.upper is not None and not self.lower <= self.upper

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float) or (isinstance(value, float) and self.is_int and not value.is_integer()):
            return False
        return (self.lower is None or self.lower <= value) and (self.upper is None or value <= self.upper)

    def issubset(self, other: ValueRange) -> bool:
        """Whether all its values lie in the other range as well.

        Example:
            >>> ValueRange(2, 8).issubset(ValueRange(0, None))
            True
        """
        return _least(self) >= _least(other) and _greatest(self) <= _greatest(other)

    def intersection(self, other: ValueRange) -> ValueRange:
        """What lies in both ranges; the same as ``&``.

        Raises:
            ValueError: nothing does.

        Example:
            >>> ValueRange(0, 4).intersection(ValueRange(3, None))
            VR[3, 4]
        """
        lower = self.lower if _least(self) >= _least(other) else other.lower
        upper = self.upper if _greatest(self) <= _greatest(other) else other.upper
        result = _of_one_kind(lower, upper, self, other)
        if result.is_empty:
            raise ValueError(f"nothing lies in both {self} and {other}")
        return result

    def union(self, other: ValueRange) -> ValueRange:
        """The range of all that lies in one of the two, or between them; the same as ``|``."""
        lower = self.lower if _least(self) <= _least(other) else other.lower
        upper = self.upper if _greatest(self) >= _greatest(other) else other.upper
        return _of_one_kind(lower, upper, self, other)

    def __and__(self, other: object) -> ValueRange:
        return self.intersection(other) if isinstance(other, ValueRange) else NotImplemented

    def __or__(self, other: object) -> ValueRange:
        return self.union(other) if isinstance(other, ValueRange) else NotImplemented

    def __add__(self, other: object) -> ValueRange:
        return _compute("add", self, other)

    def __radd__(self, other: object) -> ValueRange:
        return _compute("add", other, self)

    def __sub__(self, other: object) -> ValueRange:
        return _compute("sub", self, other)

    def __rsub__(self, other: object) -> ValueRange:
        return _compute("sub", other, self)

    def __mul__(self, other: object) -> ValueRange:
        return _compute("mul", self, other)

    def __rmul__(self, other: object) -> ValueRange:
        return _compute("mul", other, self)

    def __floordiv__(self, other: object) -> ValueRange:
        return _compute("floordiv", self, other)

    def __rfloordiv__(self, other: object) -> ValueRange:
        return _compute("floordiv", other, self)

    def __mod__(self, other: object) -> ValueRange:
        return _compute("mod", self, other)

    def __rmod__(self, other: object) -> ValueRange:
        return _compute("mod", other, self)

    def __neg__(self) -> ValueRange:
        return _expression("neg").bounds(a=self)

    def __abs__(self) -> ValueRange:
        return _expression("abs").bounds(a=self)

    def max(self, other: ValueRange | Number) -> ValueRange:
        """The range of the greater of two values.

        Example:
            >>> ValueRange(0, None).max(1)
            VR[1, int_oo]
        """
        return _compute("max", self, other)

    def min(self, other: ValueRange | Number) -> ValueRange:
        """The range of the smaller of two values."""
        return _compute("min", self, other)

    def __repr__(self) -> str:
        return f"VR[{_end(self.lower, '-')}, {_end(self.upper, '')}]"


def _least(r: ValueRange) -> Number:
    return -math.inf if r.lower is None else r.lower


def _greatest(r: ValueRange) -> Number:
    return math.inf if r.upper is None else r.upper


def _of_one_kind(lower: Number | None, upper: Number | None, a: ValueRange, b: ValueRange) -> ValueRange:
    """Ends that come from ranges of two kinds."""
    if a.is_bool and b.is_bool:
        return ValueRange(lower, upper)
    if not (a.is_float or b.is_float):
        return ValueRange(None if lower is None else int(lower), None if upper is None else int(upper))
    return ValueRange(-math.inf if lower is None else float(lower), math.inf if upper is None else float(upper))


def _end(value: Number | None, sign: str) -> str:
    if value is None:
        return sign + "int_oo"
    if isinstance(value, float) and math.isinf(value):
        return "oo" if value > 0 else "-oo"
    return str(value)


def _operand(value: object) -> ValueRange | None:
    if isinstance(value, ValueRange):
        return value
    return ValueRange(value, value) if isinstance(value, int | float) else None


def _compute(name: str, a: object, b: object) -> ValueRange:
    x, y = _operand(a), _operand(b)
    return NotImplemented if x is None or y is None else _expression(name).bounds(a=x, b=y)
