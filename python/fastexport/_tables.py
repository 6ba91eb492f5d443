"""Tables: rows under named columns, as text, HTML, dicts, or a DataFrame of pandas."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, overload

from fastexport._display import Displayed

_MOST_ROWS = 60  # of a repr; print() shows all
_MOST_CHARS = 100  # of a cell, likewise


class Column(NamedTuple):
    """A column: its name, how its values are shown, and whether they stand to the right, as numbers do."""

    name: str
    show: Callable[[Any], str] | None = None
    right: bool = False


class Tabular(Displayed):
    """What has rows and columns. A class says which in `_table`; every form of them follows."""

    __slots__ = ()

    def _table(self) -> Table:
        raise NotImplementedError

    def to_records(self) -> list[dict[str, Any]]:
        """The rows, each as a dict from the name of a column to a number, a text, or a list of them."""
        table = self._table()
        names = [column.name for column in table.columns]
        return [dict(zip(names, row, strict=True)) for row in table.rows]

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, numbers and texts, for JSON; of a plain table, its columns."""
        table = self._table()
        return {column.name: [row[i] for row in table.rows] for i, column in enumerate(table.columns)}

    def to_dataframe(self) -> Any:
        """The rows as a DataFrame of pandas, which is imported by this.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_dataframe() needs pandas: pip install pandas") from error
        table = self._table()
        names = [column.name for column in table.columns]
        return pandas.DataFrame([list(row) for row in table.rows], columns=names)

    def print(self, file: Any = None) -> None:
        """Print the whole table.

        Args:
            file: where to; sys.stdout when None.
        """
        print("\n".join(self._table().lines()), file=sys.stdout if file is None else file)


class Table(Tabular):
    """Rows under named columns.

    ``len()`` is the number of rows, iterating gives them as tuples. The repr is cut where `print` shows all.

    Attributes:
        columns: a `Column` each.
        rows: a tuple of values each.

    >>> table = Table([Column("name"), Column("bytes", right=True)], [("fc.weight", 48), ("fc.bias", 12)])
    >>> table
    name       bytes
    fc.weight     48
    fc.bias       12
    >>> table.to_records()[0], table.to_dict()
    ({'name': 'fc.weight', 'bytes': 48}, {'name': ['fc.weight', 'fc.bias'], 'bytes': [48, 12]})
    """

    def __init__(self, columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> None:
        self.columns = list(columns)
        self.rows = rows

    def _table(self) -> Table:
        return self

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self.rows[index]

    def cells(self, row: tuple[Any, ...]) -> list[str]:
        """The texts of a row."""
        return [_text(value, column) for value, column in zip(row, self.columns, strict=True)]

    def lines(self, most_rows: int | None = None, most_chars: int | None = None) -> list[str]:
        """The table as lines of text; None: all of it."""
        from fastexport._terminal import escape, width

        rows: list[list[str]] = []
        for texts in ([column.name for column in self.columns], *map(self.cells, self.rows[:most_rows])):
            cells = (" ".join(escape(text).split("\n")) for text in texts)
            rows.append([_shortened(cell, most_chars) for cell in cells])
        widths = [max(width(row[i]) for row in rows) for i in range(len(self.columns))]
        lines = []
        for row in rows:
            blanks = [" " * (room - width(cell)) for cell, room in zip(row, widths, strict=True)]
            cells = (
                blank + cell if column.right else cell + blank
                for cell, blank, column in zip(row, blanks, self.columns, strict=True)
            )
            lines.append("  ".join(cells).rstrip())
        left = len(self.rows) - (len(rows) - 1)
        return [*lines, f"+{left} more"] if left else lines

    def __repr__(self) -> str:
        return "\n".join(self.lines(_MOST_ROWS, _MOST_CHARS))


def _text(value: Any, column: Column) -> str:
    if value is None:
        return ""
    if column.show is not None:
        return column.show(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _shortened(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else text[: most - 3] + "..."


class Rows(Sequence[tuple[Any, ...]]):
    """Rows that are made when they are looked at: of a graph of thousands of nodes, a notebook shows a few."""

    def __init__(self, items: Sequence[Any], make: Callable[[Any], tuple[Any, ...]]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Rows(self._items[index], self._make)
        return self._make(self._items[index])
