"""Symbolic numbers: the sizes, numbers and conditions of an exported program that depend on its inputs.

Each holds an expression and the value that it had when the program was exported, its hint. Nothing is ever evaluated by
Python: expressions are read by the grammar of the C part, and computed there. They can be computed with, as numbers
can; what comes out is symbolic again, or a plain number where the symbols cancel out or decide.

>>> size = SymInt("Symbol('s77', positive=True, integer=True)", 4)
>>> size.srepr, size.hint
("Symbol('s77', positive=True, integer=True)", 4)
>>> 2 * size + 1, (2 * size + 1).hint, size > 0, size > 3
(2*s77 + 1, 9, True, s77 > 3)
>>> (size * 3).evaluate(s77=10)
30
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from fastexport._core import Expr
    from fastexport._program import ExportedProgram
    from fastexport._ranges import ValueRange

__all__ = ["SymBool", "SymFloat", "SymInt", "evaluate_shapes"]


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

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols that it depends on."""
        return self.expr.symbols

    def bounds(self, ranges: Mapping[str, ValueRange] | None = None, /, **symbols: ValueRange) -> ValueRange:
        """A range that holds its value, from the ranges of its symbols.

        Args:
            ranges: a mapping from the names of symbols to ValueRange; without one, a symbol may be whatever its
                assumptions allow.
            symbols: the same as keywords.

        Example:
            >>> from fastexport import ValueRange
            >>> (SymInt("Symbol('s0', positive=True, integer=True)") * 2).bounds(s0=ValueRange(2, 5))
            VR[4, 10]
        """
        return self.expr.simplify().bounds(ranges, **symbols)

    def subs(self, values: Mapping[str, Any] | None = None, /, **symbols: Any) -> Any:
        """The same with symbols replaced, all at once; a plain number when none is left. Its hint is not known.

        Args:
            values: a mapping from the names of symbols to numbers, symbolic numbers or Expr.
            symbols: the same as keywords.

        Example:
            >>> size = SymInt("Add(Symbol('s0', integer=True), Symbol('s1', integer=True))")
            >>> size.subs(s0=3), size.subs(s0=3, s1=4)
            (s1 + 3, 7)
        """
        given = {**(values or {}), **symbols}
        return _number(type(self), self.expr.subs({name: _operand(value) for name, value in given.items()}), None)

    def _value(self, sizes: Mapping[str, Any] | None, symbols: Mapping[str, Any]) -> Any:
        return self.expr.evaluate(sizes, **symbols)

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


def _operand(value: Any) -> Any:
    """What `Expr` takes for a number of ours."""
    return value.expr if isinstance(value, _Symbolic) else value


def _hint(function: Callable[..., Any], *values: Any) -> Any:
    """A function of hints, if all are known and it has a value for them."""
    hints = [value.hint if isinstance(value, _Symbolic) else value for value in values]
    if any(hint is None for hint in hints):
        return None
    try:
        return function(*hints)
    except (ArithmeticError, TypeError, ValueError):
        return None


def _number(kind: type[_Symbolic], expr: Expr, hint: Any) -> Any:
    """An expression as a number: a plain one if it is constant."""
    value = expr.value
    if value is None:
        return kind(expr, hint)
    return float(value) if kind is SymFloat else value


def _is_int(value: object) -> bool:
    return isinstance(value, int | SymInt)


def _as_float(value: Any) -> Any:
    from fastexport._core import Expr

    if isinstance(value, SymInt):
        return Expr.make("ToFloat", value.expr)
    return value.expr if isinstance(value, _Symbolic) else float(value)


def _as_int(value: Any) -> Any:
    return value.expr if isinstance(value, _Symbolic) else int(value)


def _numbers(*values: object) -> bool:
    return all(isinstance(value, int | float | SymInt | SymFloat) for value in values)


def _call(function: Callable[..., Any], name: str, *values: Any, kind: type[_Symbolic] | None = None) -> Any:
    """A call of a function of `Expr` on numbers, which are made floats if one of them is."""
    from fastexport._core import Expr

    if not _numbers(*values):
        return NotImplemented
    whole = all(_is_int(value) for value in values)
    args = [_as_int(value) if whole else _as_float(value) for value in values]
    return _number(kind or (SymInt if whole else SymFloat), Expr.make(name, *args), _hint(function, *values))


def _subtract(a: Any, b: Any) -> Any:
    return _call(operator.add, "Add", a, -b) if _numbers(a, b) else NotImplemented


def _true_divide(a: Any, b: Any) -> Any:
    if not _numbers(a, b):
        return NotImplemented
    name = "IntTrueDiv" if _is_int(a) and _is_int(b) else "FloatTrueDiv"
    return _call(operator.truediv, name, a, b, kind=SymFloat)


def _floor_divide(a: Any, b: Any) -> Any:
    return _call(operator.floordiv, "FloorDiv", a, b) if _is_int(a) and _is_int(b) else NotImplemented


def _never_negative(value: Any) -> bool:
    if not isinstance(value, _Symbolic):
        return bool(value >= 0)
    lower = value.expr.bounds().lower
    return lower is not None and lower >= 0


def _modulo(a: Any, b: Any) -> Any:
    if not (_is_int(a) and _is_int(b)):
        return NotImplemented
    return _call(operator.mod, "Mod" if _never_negative(a) and _never_negative(b) else "PythonMod", a, b)


def _power(a: Any, b: Any) -> Any:
    if not _numbers(a, b):
        return NotImplemented
    if _is_int(a) and (isinstance(b, SymInt) or (isinstance(b, int) and b >= 0)):
        return _call(operator.pow, "PowByNatural", a, b)
    from fastexport._core import Expr

    return _number(SymFloat, Expr.make("FloatPow", _as_float(a), _as_float(b)), _hint(operator.pow, a, b))


def _compare(function: Callable[..., Any], name: str, a: Any, b: Any) -> Any:
    return _call(function, name, a, b, kind=SymBool)


class _Number(_Symbolic):
    """A SymInt or SymFloat: what numbers can do."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return _call(operator.add, "Add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _call(operator.add, "Add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _subtract(other, self)

    def __mul__(self, other: Any) -> Any:
        return _call(operator.mul, "Mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _call(operator.mul, "Mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _true_divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _true_divide(other, self)

    def __pow__(self, other: Any) -> Any:
        return _power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return _power(other, self)

    def __neg__(self) -> Any:
        return _call(operator.mul, "Mul", -1, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _call(abs, "Abs", self)

    def __lt__(self, other: Any) -> Any:
        return _compare(operator.lt, "StrictLessThan", self, other)

    def __le__(self, other: Any) -> Any:
        return _compare(operator.le, "LessThan", self, other)

    def __gt__(self, other: Any) -> Any:
        return _compare(operator.gt, "StrictGreaterThan", self, other)

    def __ge__(self, other: Any) -> Any:
        return _compare(operator.ge, "GreaterThan", self, other)

    def eq(self, other: Any) -> Any:
        """The condition that the two are equal; ``==`` tells whether they are the same expression.

        Raises:
            TypeError: other is no number.
        """
        return self._equality(operator.eq, "Equality", other)

    def ne(self, other: Any) -> Any:
        """The condition that the two differ.

        Raises:
            TypeError: other is no number.
        """
        return self._equality(operator.ne, "Unequality", other)

    def _equality(self, function: Callable[..., Any], name: str, other: Any) -> Any:
        if not _numbers(other):
            raise TypeError(f"a {type(self).__name__} is not compared with {other!r}")
        return _compare(function, name, self, other)

    def max(self, other: Any) -> Any:
        """The greater of two numbers.

        Example:
            >>> SymInt("Symbol('u0', integer=True)").max(1)
            Max(1, u0)
        """
        return _call(max, "Max", self, other)

    def min(self, other: Any) -> Any:
        """The smaller of two numbers."""
        return _call(min, "Min", self, other)

    def __bool__(self) -> bool:
        return bool(self.ne(0))

    def _constant(self, what: str) -> Any:
        value = self.expr.simplify().value
        if value is None:
            raise TypeError(f"{self} depends on {', '.join(self.symbols)} and is no {what}; use evaluate()")
        return value

    def __int__(self) -> int:
        return int(self._constant("int"))

    def __float__(self) -> float:
        return float(self._constant("float"))


class SymInt(_Number):
    """A whole number that depends on the inputs, such as a size.

    It can be computed with: + - * // % ** / and comparisons, with int, float and each other. ``==`` and hash() are of
    the expression and the hint, so that sizes can be kept in sets and dicts; `eq` is the condition.

    Example:
        >>> SymInt("Symbol('u0', integer=True)").hint is None
        True
        >>> s = SymInt("Symbol('s0', positive=True, integer=True)")
        >>> (4 * s) // 2, s % 1, s - s, s.max(4), s / 2
        (2*s0, 0, 0, Max(4, s0), IntTrueDiv(s0, 2))
    """

    __slots__ = ()
    _hints = (int, bool, float)

    def evaluate(self, sizes: Mapping[str, int] | None = None, /, **symbols: int) -> int:
        """The number for values of the symbols.

        Args:
            sizes: a mapping from the names of symbols to their values.
            symbols: the same as keywords; these go first.

        Raises:
            KeyError: a symbol has no value.
            OverflowError: the number does not fit in 64 bits.
            ZeroDivisionError: a division by zero.
            ValueError: what comes out is not a whole number.

        Example:
            >>> SymInt("Add(Symbol('s0', positive=True, integer=True), Integer(1))").evaluate(s0=4)
            5
        """
        value = self._value(sizes, symbols)
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"{self} is {value}, not a whole number")
        return int(value)

    def __floordiv__(self, other: Any) -> Any:
        return _floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _floor_divide(other, self)

    def __mod__(self, other: Any) -> Any:
        return _modulo(self, other)

    def __rmod__(self, other: Any) -> Any:
        return _modulo(other, self)


class SymFloat(_Number):
    """A real number that depends on the inputs.

    Example:
        >>> x = SymFloat("ToFloat(Symbol('s77', positive=True, integer=True))", 4.0)
        >>> x.hint, x * 0.5, (x * 0.5).hint, round(x)
        (4.0, 0.5*ToFloat(s77), 2.0, RoundToInt(ToFloat(s77)))
    """

    __slots__ = ()
    _hints = (int, bool, float)

    def evaluate(self, sizes: Mapping[str, float] | None = None, /, **symbols: float) -> float:
        """The number for values of the symbols; see `SymInt.evaluate`."""
        return float(self._value(sizes, symbols))

    def __floor__(self) -> Any:
        return _call(lambda x: x // 1, "FloorToInt", self, kind=SymInt)

    def __ceil__(self) -> Any:
        return _call(lambda x: -(-x // 1), "CeilToInt", self, kind=SymInt)

    def __trunc__(self) -> Any:
        return _call(int, "TruncToInt", self, kind=SymInt)

    def __round__(self, digits: int | None = None) -> Any:
        from fastexport._core import Expr

        if digits is None:
            return _call(round, "RoundToInt", self, kind=SymInt)
        return _number(SymFloat, Expr.make("RoundDecimal", self.expr, digits), _hint(round, self, digits))


class SymBool(_Symbolic):
    """A condition on the inputs.

    ``bool()`` works where the assumptions of the symbols decide it; `decide` takes ranges as well.

    Example:
        >>> SymBool("StrictLessThan(Symbol('s77', positive=True, integer=True), Integer(10))").hint is None
        True
        >>> s = SymInt("Symbol('s0', positive=True, integer=True)")
        >>> (s > 2) & (s < 8), ~(s > 2)
        ((s0 > 2) & (s0 < 8), s0 <= 2)
    """

    __slots__ = ()
    _hints = (int, bool, float)

    def evaluate(self, sizes: Mapping[str, int | float] | None = None, /, **symbols: int | float) -> bool:
        """Whether it holds for values of the symbols; see `SymInt.evaluate`."""
        return bool(self._value(sizes, symbols))

    def decide(self, ranges: Mapping[str, ValueRange] | None = None, /, **symbols: ValueRange) -> bool | None:
        """Whether it holds for all values in the ranges of the symbols: True, False, or None when that is not known.

        Args:
            ranges: a mapping from the names of symbols to ValueRange; without one, a symbol may be whatever its
                assumptions allow.
            symbols: the same as keywords.

        Example:
            >>> from fastexport import ValueRange
            >>> s = SymInt("Symbol('s0', positive=True, integer=True)")
            >>> (s > 3).decide(s0=ValueRange(4, None)), (s > 3).decide(s0=ValueRange(2, None))
            (True, None)
        """
        lower, upper = self.bounds(ranges, **symbols)
        return bool(lower) if lower == upper else None

    def __bool__(self) -> bool:
        answer = self.decide()
        if answer is None:
            raise TypeError(
                f"{self} is not decided, as {', '.join(self.symbols)} may be anything; "
                "use evaluate() with sizes, or decide() with ranges"
            )
        return answer

    def __and__(self, other: Any) -> Any:
        return self._joined("And", other, lambda a, b: a and b)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return self._joined("Or", other, lambda a, b: a or b)

    __ror__ = __or__

    def _joined(self, name: str, other: Any, function: Callable[..., Any]) -> Any:
        from fastexport._core import Expr

        if not isinstance(other, bool | SymBool):
            return NotImplemented
        return _number(SymBool, Expr.make(name, self.expr, _operand(other)), _hint(function, self, other))

    def __invert__(self) -> Any:
        from fastexport._core import Expr

        return _number(SymBool, Expr.make("Not", self.expr), _hint(operator.not_, self))


# ---- shapes of a program


def _check_sizes(constraints: Mapping[Expr, ValueRange], sizes: Mapping[str, int]) -> None:
    bounds = {str(key): allowed for key, allowed in constraints.items()}
    for name, size in sizes.items():
        allowed = bounds.get(name)
        if allowed is not None and size not in allowed:
            raise ValueError(f"{name} = {size} lies outside {allowed}, which the program demands of it")
        if not -(1 << 63) <= size < 1 << 63:
            demanded = "" if allowed is None else f"; the program demands {allowed} of it"
            raise OverflowError(f"{name} = {size} does not fit in 64 bits{demanded}")
    for key, allowed in constraints.items():
        if str(key) not in sizes and all(name in sizes for name in key.symbols):
            value = key.evaluate(sizes)
            if value not in allowed:
                raise ValueError(f"{key} = {value} lies outside {allowed}, which the program demands of it")


def _given_sizes(sizes: Any, symbols: Mapping[str, int]) -> dict[str, int]:
    if sizes is not None and not isinstance(sizes, Mapping):
        raise TypeError(f"sizes is a mapping from the names of symbols to ints, not {type(sizes).__name__}")
    given = {**(sizes or {}), **symbols}
    for name, size in given.items():
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"the size {name} is an int, not {size!r}")
    return given


class _Evaluation:
    """Values of the symbolic numbers of a program; each expression is computed once."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.known: dict[_Symbolic, Any] = {}
        self.symbols: dict[str, None] = {}

    def number(self, value: Any) -> Any:
        if not isinstance(value, _Symbolic):
            return value
        if value not in self.known:
            self.symbols.update(dict.fromkeys(value.symbols))
            self.known[value] = value.subs({n: self.sizes[n] for n in value.symbols if n in self.sizes})
        return self.known[value]

    def result(self, value: Any) -> Any:
        """The shape of a tensor, a number, or a tuple of these."""
        if isinstance(value, list | tuple):
            return tuple(self.result(item) for item in value)
        shape = getattr(value, "shape", None)
        if shape is not None:
            return tuple(self.number(size) for size in shape)
        return self.number(value)


def evaluate_shapes(
    program: ExportedProgram, sizes: Mapping[str, int] | None = None, /, **symbols: int
) -> dict[str, Any]:
    """The shapes of all values of a program for given sizes of its dynamic dimensions, without torch.

    Args:
        program: a program from `load`; or one that came from torch.
        sizes: a mapping from the names of symbols, as `range_constraints` shows them, to their values.
        symbols: the same as keywords.

    Returns:
        For each node that has a value: the shape of its tensor, a tuple of int; the number, for a symbolic number; a
        tuple of these, for several results. What depends on symbols that are not given stays symbolic.

    Raises:
        ValueError: a size lies outside what the program demands, or is of no symbol of the program; it is named.
        TypeError: it is no program of fastexport (`from_export` makes one of torch's), or a size is no int.
        OverflowError, ZeroDivisionError: a size that does not fit in 64 bits, or is divided by zero; it or the node is
            named.

    Example:
        >>> import fastexport
        >>> program = fastexport.load("tests/data/pt2/samples/current/dynamic.pt2")
        >>> program.range_constraints
        {s77: VR[2, 64], s17: VR[2, int_oo]}
        >>> shapes = evaluate_shapes(program, s77=16, s17=4)
        >>> shapes["x"], shapes["linear"], shapes["add"]
        ((16, 4), (20, 4), 21)
    """
    from fastexport._program import ExportedProgram

    if not isinstance(program, ExportedProgram):
        kind = type(program)
        raise TypeError(
            f"evaluate_shapes() takes a fastexport.ExportedProgram, of load() or from_export(), not "
            f"{kind.__module__}.{kind.__qualname__}"
        )
    given = _given_sizes(sizes, symbols)
    constraints = program._ranges()
    _check_sizes(constraints, given)
    evaluation = _Evaluation(given)
    result = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if value is not None:
            try:
                result[node.name] = evaluation.result(program._without_torch(value))
            except (OverflowError, ZeroDivisionError) as error:
                raise type(error)(f"the shape of node {node.name!r} for {given}: {error}") from None
    known = {*evaluation.symbols, *(name for key in constraints for name in key.symbols)}
    for name in given:
        if name not in known:
            raise ValueError(f"the program has no symbol {name!r}; it has {', '.join(sorted(known)) or 'none'}")
    return result
