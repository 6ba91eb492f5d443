"""Ranges of symbols: what a program demands of its dynamic sizes."""

from __future__ import annotations

from typing import NamedTuple


class ValueRange(NamedTuple):
    """The values that a symbol, or an expression, may take; both ends count.

    Attributes:
        lower: the least value; None when there is none.
        upper: the greatest value; None when there is none.

    >>> ValueRange(2, None)
    VR[2, int_oo]
    >>> 1 in ValueRange(2, None)
    False
    """

    lower: int | None
    upper: int | None

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int):
            return False
        return (self.lower is None or self.lower <= value) and (self.upper is None or value <= self.upper)

    def __repr__(self) -> str:
        lower = "-int_oo" if self.lower is None else self.lower
        upper = "int_oo" if self.upper is None else self.upper
        return f"VR[{lower}, {upper}]"
