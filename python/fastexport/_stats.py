"""Counts and sizes of programs: `stats`, and `summary`, the tree of modules with theirs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from fastexport import _core
from fastexport._arguments import check_graph
from fastexport._graph import Graph
from fastexport._graph_module import GraphModule
from fastexport._naming import pretty
from fastexport._program import ExportedProgram, load_if_file
from fastexport._records import Record
from fastexport._summary import size_text
from fastexport._tables import Column, Table, Tabular
from fastexport._tree import all_graphs

if TYPE_CHECKING:
    from fastexport._tree import Module

__all__ = ["Stats", "StatsTable", "Summary", "stats", "summary"]

_QUANTIZED = ("quantized", "partly", "weight only")


class Stats(Record, Tabular):
    """Counts and sizes of one program; made by `stats`. It holds nothing of the program, and can be pickled.

    Attributes:
        name: the path, or "program" or "graph".
        dialect, schema, torch: what the program says of itself; None of a graph, or where it does not say.
        nodes: how many nodes the graph itself has.
        ops: opcode -> how many of them.
        subgraphs: how many subgraphs are below it.
        subgraph_nodes, subgraph_ops: the same of these together.
        calls: what is called -> how often, in the graph and its subgraphs, the most frequent first.
        quantized: "quantized", "partly" and "weight only" -> how many operators are, of a program that was quantized;
            see `fastexport.pt2e.quantization_report`.
        parameters, buffers, constants: how many names.
        shared: how many of these names are of memory that one before them has: tied weights.
        elements: of all tensors among them; memory that several names share counts once, as that of the first.
        bytes: dtype -> bytes of the same elements.
        elements_by_kind, bytes_by_kind: "parameters", "buffers" and "constants" -> how many of these.
        dynamic: symbol of a dynamic size -> the least and the greatest it may be; None: no end.
    """

    name: str
    nodes: int
    ops: dict[str, int]
    subgraphs: int
    subgraph_nodes: int
    subgraph_ops: dict[str, int]
    quantized: dict[str, int]
    parameters: int
    buffers: int
    constants: int
    shared: int
    elements: int
    elements_by_kind: dict[str, int]
    bytes: dict[str, int]
    bytes_by_kind: dict[str, int]
    dynamic: dict[str, list[int | None]]
    schema: str | None
    torch: str | None
    dialect: str | None
    calls: dict[str, int]

    @property
    def nbytes(self) -> int:
        """The bytes of all weights and constants; memory that several share counts once."""
        return sum(self.bytes.values())

    def facts(self) -> dict[str, int | str | None]:
        """All of it under one name each, such as "op output", "bytes float32" and "calls aten.relu.default"."""
        return {
            "nodes": self.nodes,
            **{f"op {op}": count for op, count in self.ops.items()},
            "subgraphs": self.subgraphs,
            **({"subgraph nodes": self.subgraph_nodes} if self.subgraphs else {}),
            **{f"subgraph op {op}": count for op, count in self.subgraph_ops.items()},
            **{f"operators {status}": count for status, count in self.quantized.items()},
            "parameters": self.parameters,
            "buffers": self.buffers,
            "constants": self.constants,
            "shared names": self.shared,
            "elements": self.elements,
            **{f"elements of {kind}": count for kind, count in self.elements_by_kind.items()},
            **{f"bytes {dtype}": size for dtype, size in self.bytes.items()},
            **{f"bytes of {kind}": size for kind, size in self.bytes_by_kind.items()},
            "dynamic sizes": len(self.dynamic),
            "schema": self.schema,
            "torch": self.torch,
            "dialect": self.dialect,
            **{f"calls {operator}": count for operator, count in self.calls.items()},
        }

    def compare(self, *others: Stats) -> StatsTable:
        """This one and others side by side."""
        return StatsTable([self, *others])

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name, for JSON."""
        return {name: self.__dict__[name] for name in self._fields}

    def _table(self) -> Table:
        return StatsTable([self])._table()

    def __repr__(self) -> str:
        return repr(self._table())


class StatsTable(Tabular):
    """The `Stats` of several programs, a column each, and the change from the first to the last.

    ``len()``, iterating and indexing are those of the list of them.
    """

    def __init__(self, columns: Sequence[Stats]) -> None:
        self._columns = list(columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[Stats]:
        return iter(self._columns)

    def __getitem__(self, index: int) -> Stats:
        return self._columns[index]

    def changes(self) -> dict[str, int | None]:
        """Name of a fact -> how much greater the last one's is; None of a text that differs. What is equal is left out.

        The names are those of `Stats.facts`.
        """
        if not self._columns:
            return {}
        first, last = self._columns[0].facts(), self._columns[-1].facts()
        return {key: _change(first.get(key), last.get(key)) for key in first | last if first.get(key) != last.get(key)}

    def to_dict(self) -> dict[str, Any]:
        """The programs, each as `Stats.to_dict` gives it, and the changes, for JSON."""
        return {"programs": [each.to_dict() for each in self], "changes": self.changes()}

    def _table(self) -> Table:
        facts = [each.facts() for each in self]
        changes = self.changes()
        keys = list(dict.fromkeys(key for each in facts for key in each))
        columns = [Column("fact"), *(Column(name, right=True) for name in _unique(self._columns))]
        if len(self) > 1:
            columns.append(_CHANGE if len(self) == 2 else _CHANGE_OF_MANY)
        rows = []
        for key in _in_order(keys):
            row = [key, *(each.get(key) for each in facts)]
            if len(self) > 1:
                row.append("" if key not in changes else "differs" if changes[key] is None else changes[key])
            rows.append(tuple(row))
        return _FactTable(columns, rows)

    def __repr__(self) -> str:
        return repr(self._table())


_CHANGE, _CHANGE_OF_MANY = Column("change", right=True), Column("last - first", right=True)


class _FactTable(Table):
    """A table whose rows tell how their values are shown: bytes as sizes, changes with their signs."""

    def cells(self, row: tuple[Any, ...]) -> list[str]:
        last = len(self.columns) - (self.columns[-1] in (_CHANGE, _CHANGE_OF_MANY))
        show = size_text if row[0].startswith("bytes ") else lambda value: format(value, ",")
        texts = [row[0]]
        for i, value in enumerate(row[1:], 1):
            text = "-" if value is None else show(value) if isinstance(value, int) else str(value)
            texts.append(f"+{text}" if i == last and isinstance(value, int) and value > 0 else text)
        return texts


def _in_order(keys: list[str]) -> list[str]:
    """Names of facts with those of a kind together, where programs have different ones."""
    kinds: dict[str, list[str]] = {}
    for key in keys:
        first, _, rest = key.partition(" ")
        kinds.setdefault(f"{first} of" if rest.startswith("of ") else first.removesuffix("s"), []).append(key)
    return [key for group in kinds.values() for key in group]


def _change(a: int | str | None, b: int | str | None) -> int | None:
    return None if isinstance(a, str) or isinstance(b, str) else (b or 0) - (a or 0)


def _unique(columns: Sequence[Stats]) -> list[str]:
    """Names of columns; what another is called as well is numbered."""
    names = {"fact": None, _CHANGE.name: None, _CHANGE_OF_MANY.name: None}
    last: Counter[str] = Counter()
    for each in columns:
        name = each.name
        while name in names:
            last[each.name] += 1
            name = f"{each.name} ({last[each.name] + 1})"
        names[name] = None
    return list(names)[3:]


@overload
def stats(program: Any, /) -> Stats: ...
@overload
def stats(first: Any, second: Any, /, *others: Any) -> StatsTable: ...
def stats(*programs: Any) -> Stats | StatsTable:
    """Count what a program is made of; of several, side by side.

    Args:
        programs: an ExportedProgram, GraphModule or Graph of fastexport or torch, or the path of a .pt2 file, an open
            one, or its bytes; files are not verified.

    Returns:
        A `Stats`; of several a `StatsTable`, with what changed from the first to the last.

    Raises:
        FormatError: a file is damaged, or no exported program.
        OSError: a file can't be read.
        TypeError: nothing is given, or something that has no graph.

    Example:
        >>> found = stats("tests/data/pt2/samples/current/linear.pt2")
        >>> found.nodes, found.calls, found.bytes
        (6, {'aten.linear.default': 1, 'aten.relu.default': 1}, {'float32': 60})
        >>> found.compare(stats("tests/data/pt2/samples/current/var_args.pt2")).changes()["nodes"]
        4
    """
    if not programs:
        raise TypeError("stats() takes one program or more")
    found = [_stats(*_opened("stats", program)) for program in programs]
    return found[0] if len(found) == 1 else StatsTable(found)


def _opened(function: str, g: Any) -> tuple[str, Graph, Any]:
    """The name of what a function is given, its graph, and the program or module that has the weights, or None."""
    if isinstance(g, ExportedProgram):
        return "program", g.graph, g
    if isinstance(g, Graph):
        return "graph", g, None
    if isinstance(g, GraphModule):
        return "graph", g.graph, g
    program = load_if_file(g)
    if program is not g:
        return os.fsdecode(g) if isinstance(g, str | os.PathLike) else "program", program.graph, program
    check_graph(function, g, files=True)
    return _from_torch(g)


def _from_torch(g: Any) -> tuple[str, Graph, Any]:
    from fastexport._torch_api import from_export

    if hasattr(g, "graph_signature"):
        program = from_export(g)
        return "program", program.graph, program
    return "graph", Graph.from_fx(g), g


def _stats(name: str, graph: Graph, owner: Any) -> Stats:
    graphs = list(all_graphs(graph))
    ops: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for each in graphs:
        with_op, with_target = _core.count_nodes(each)
        for op, count in with_op:
            (ops if each is graph else inner)[op] += count
        for target, count in with_target:
            calls[_name_of(target)] += count
    counts = dict(calls.most_common())
    return Stats(
        name=name,
        nodes=ops.total(),
        ops=dict(ops),
        subgraphs=len(graphs) - 1,
        subgraph_nodes=inner.total(),
        subgraph_ops=dict(inner),
        calls=counts,
        quantized=_quantized(graph, counts),
        **(_program_facts(owner) if isinstance(owner, ExportedProgram) else _NO_PROGRAM),
        **_weight_counts(owner),
    )


def _name_of(target: Any) -> str:
    return (target if isinstance(target, str) else pretty(target)).removeprefix("torch.ops.")


def _quantized(graph: Graph, calls: dict[str, int]) -> dict[str, int]:
    """How many operators are quantized; nothing where nothing is dequantized."""
    from fastexport.pt2e._graphs import DEQUANTIZE

    if not DEQUANTIZE.intersection(calls):
        return {}
    from fastexport.pt2e import quantization_report

    counts = quantization_report(graph).counts
    return {status: counts[status] for status in _QUANTIZED if counts.get(status)}


_NO_PROGRAM: dict[str, Any] = {"dialect": None, "schema": None, "torch": None, "dynamic": {}}


def _program_facts(program: ExportedProgram) -> dict[str, Any]:
    version = program.schema_version
    return {
        "dialect": program.dialect,
        "schema": None if version is None else f"{version[0]}.{version[1]}",
        "torch": program.torch_version,
        "dynamic": {str(symbol): [values.lower, values.upper] for symbol, values in program._ranges().items()},
    }


def _weight_counts(owner: Any) -> dict[str, Any]:
    from fastexport._weight_facts import Totals, weights_of

    totals = Totals(weights_of(owner))
    kinds = {"parameter": "parameters", "buffer": "buffers", "constant": "constants"}
    return {
        **{plural: totals.names[kind] for kind, plural in kinds.items()},
        "shared": totals.shared,
        "elements": totals.elements.total(),
        "elements_by_kind": {kinds[kind]: totals.elements[kind] for kind in kinds if kind in totals.elements},
        "bytes": dict(totals.dtypes),
        "bytes_by_kind": {kinds[kind]: totals.nbytes[kind] for kind in kinds if kind in totals.nbytes},
    }


# ---- by modules ------------------------------------------------------------------------------------------------------


class Summary(Tabular):
    """The modules of a program with their operators, parameters and bytes; made by `summary`.

    What a row counts is in its module and all below, shown or not, so that totals do not depend on the depth. A row
    ``a..b`` tells of modules that look the same, all of them together ("x 3, all"); the rows in it tell of one of them.

    Attributes:
        root: the tree it is made of.
        depth: how many levels are shown; None: all.
    """

    def __init__(self, root: Module, depth: int | None) -> None:
        self.root = root
        self.depth = depth

    def _table(self) -> Table:
        columns = [
            Column("module"),
            Column("type"),
            Column("times", lambda times: f"x {times}, all" if times > 1 else "", right=True),
            Column("operators", _grouped, right=True),
            Column("parameters", _grouped, right=True),
            Column("bytes", size_text, right=True),
        ]
        root = self.root
        top = ("", root.type, 1, root.total_operators(), root.total_parameters(), root.total_bytes())
        return _TreeTable(columns, [top, *self._rows(root, "", 1)])

    def _rows(self, module: Module, prefix: str, level: int) -> Iterator[tuple[Any, ...]]:
        if self.depth is not None and level > self.depth:
            return
        for group in module.groups():
            first, times = group[0], len(group)
            name = first.name if times == 1 else f"{first.name}..{group[-1].name}"
            totals = (first.total_operators(), first.total_parameters(), first.total_bytes())
            yield (prefix + name, first.type, times, *(total * times for total in totals))
            yield from self._rows(first, f"{prefix}{name}.", level + 1)

    def __repr__(self) -> str:
        return repr(self._table())


class _TreeTable(Table):
    """A table whose first column is paths, shown as a tree."""

    def cells(self, row: tuple[Any, ...]) -> list[str]:
        path = row[0].replace("..", "\0").split(".") if row[0] else []
        name = "  " * len(path) + path[-1].replace("\0", "..") if path else "(whole)"
        return [name, *super().cells(row)[1:]]


def _grouped(number: int) -> str:
    return format(number, ",")


def summary(program: Any, *, depth: int | None = 3) -> Summary:
    """The modules of a program as a table: their operators, parameters and bytes, with repeats folded.

    Args:
        program: as for `stats`.
        depth: how many levels of modules to show; None: all. What is deeper counts all the same.

    Returns:
        A `Summary`.

    Raises:
        FormatError: a file is damaged, or no exported program.
        OSError: a file can't be read.
        TypeError: it has no graph, or depth is no int.
        ValueError: depth is negative.

    Example:
        >>> summary("tests/data/pt2/samples/current/conv_bn_eval_core.pt2")
        module   type         times  operators  parameters  bytes
        (whole)  M                           6         120  520 B
          conv   Conv2d                      1         112  448 B
          bn     BatchNorm2d                 4           8   72 B
    """
    from fastexport._tree import module_tree

    if depth is not None and type(depth) is not int:
        raise TypeError(f"depth is an int or None, not {depth!r}")
    if depth is not None and depth < 0:
        raise ValueError(f"depth is a number from 0 on, not {depth}")
    _, graph, owner = _opened("summary", program)
    return Summary(module_tree(graph, owner), depth)
