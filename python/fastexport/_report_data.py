"""What the report page knows of programs: their nodes, levels, findings and differences, as compact JSON.

Every text is in one table, made visible (`_placing.visible`): a name can't hide or turn round what stands beside it.
Nodes are columns of a table (`_report_nodes`), in the order of the graphs; a node is told by its place there. What the
page makes of it, ``_page/data.js`` tells, and the two go together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fastexport import _core
from fastexport._diff import NOWHERE, compare_nodes, diff
from fastexport._graph import Graph
from fastexport._levels import Item, Level, Levels, levels_of
from fastexport._node_facts import own_of
from fastexport._picture import _COLOURS, _family
from fastexport._placing import GAPS, SIZES, item_lines, text_width, visible
from fastexport._report_nodes import NodeTable, Steps, Texts
from fastexport._views import _target, text_of


def data_of(
    program: Any, other: Any, findings: Iterable[Any] | None, fold: bool, names: Sequence[str]
) -> dict[str, Any]:
    """All that the page shows; see `fastexport.report`."""
    texts = Texts()
    sides = [_Side(own_of(program), texts, fold)]
    if other is not None:
        sides.append(_Side(own_of(other), texts, fold))
    known = ("program",) if other is None else ("before", "after")
    told = [*names, *known[len(names) :]]
    given = [findings, None if findings is None else ()]
    programs = [side.data(visible(str(name)), faults) for side, name, faults in zip(sides, told, given, strict=False)]
    return {
        "programs": programs,
        "diff": _diff(sides[0], sides[1], texts) if other is not None else None,
        "colours": _COLOURS,
        "traces": texts.traces,
        "texts": list(texts),
    }


def json_text(data: dict[str, Any]) -> bytes:
    """The data as JSON in ASCII."""
    return json.dumps(data, separators=(",", ":")).encode()


# ---- one program -----------------------------------------------------------------------------------------------------


class _Scope(NamedTuple):
    """A graph: the program's own, or a subgraph where it is run; and the place of its first node in the table."""

    graph: Graph
    nodes: list[Any]
    start: int


class _Side:
    """One program."""

    def __init__(self, program: Any, texts: Texts, fold: bool) -> None:
        self.program = program
        self.graph: Graph = program if isinstance(program, Graph) else program.graph
        self.texts = texts
        self.levels = levels_of(program, fold=fold)
        self.scopes = self._scopes(self.levels)
        self._by_name: dict[str, dict[str, int]] = {}
        self.count = sum(len(scope.nodes) for scope in self.scopes.values())

    def _scopes(self, levels: Levels) -> dict[str, _Scope]:
        found: dict[str, _Scope] = {}
        start = 0
        graphs = {"": self.graph}
        for level in levels.all:  # each before those below it
            if level.scope not in found:
                graph = graphs[level.scope]
                found[level.scope] = _Scope(graph, list(graph.nodes), start)
                start += len(found[level.scope].nodes)
            for item in level.items:
                for name, inner in item.subgraphs:
                    graphs[inner.scope] = (found[level.scope].graph.subgraphs or {})[name]
        return found

    def data(self, name: str, findings: Iterable[Any] | None) -> dict[str, Any]:
        """The program for the page."""
        return {
            "name": name,
            "findings": self.findings(findings),  # first: to check meta that waits in the file is much quicker
            "facts": [[self.texts.outside(key), self.texts.outside(text)] for key, text in self._facts()],
            **self._nodes(),
            **_levels(self),
        }

    def place(self, level: Level, item: Item) -> int:
        """The place of the node of an item in the table of nodes."""
        scope = self.scopes[level.scope]
        if item.place >= 0:
            return scope.start + item.place
        return scope.start + self._places(level.scope)[item.node.name]

    def _places(self, scope: str) -> dict[str, int]:
        if scope not in self._by_name:
            self._by_name[scope] = {node.name: i for i, node in enumerate(self.scopes[scope].nodes)}
        return self._by_name[scope]

    def find(self, name: str | None, scope: str = "") -> int:
        """The place of a node by its name, in a scope or else wherever the name is; -1: there is none."""
        if name is None:
            return -1
        for path in (scope, *(path for path in self.scopes if path != scope)):
            place = self._places(path).get(name) if path in self.scopes else None
            if place is not None:
                return self.scopes[path].start + place
        return -1

    def _facts(self) -> Iterator[tuple[str, str]]:
        from fastexport._errors import FastExportError
        from fastexport._stats import stats

        program = self.graph if not hasattr(self.program, "graph_signature") else self.program
        try:
            table = stats(program)._table()
        except FastExportError as error:  # weights of an old file that can't be read
            yield "note", str(error)
            return
        for row in table.rows:
            name, *cells = table.cells(row)
            if not name.startswith("calls "):
                yield name, cells[-1]

    # -- nodes

    def _nodes(self) -> dict[str, Any]:
        table = NodeTable(self.texts)
        for scope in self.scopes.values():
            table.add(scope.graph, scope.nodes, scope.start)
        return {
            "nodes": {name: list(map(Steps(), column)) for name, column in table.columns.items()},
            "weights": self._weights(),
            "results": self._results(),
            "scopes": [[self.texts.outside(path), scope.start] for path, scope in self.scopes.items()],
            "status": self._status(),
        }

    def _weights(self) -> list[list[int]]:
        """Columns for the nodes that are weights: place, kind and target."""
        rows: dict[int, tuple[int, int, int]] = {}
        for level in self.levels.all:
            for item in level.items:
                for weight in item.weights:
                    place = self.scopes[level.scope].start + self._places(level.scope)[weight.name]
                    rows[place] = place, self.texts(weight.kind), self.texts.name(weight.target)
        return [list(map(Steps(), column)) for column in zip(*rows.values(), strict=True)]

    def _results(self) -> list[list[int]]:
        """For each result of a graph the place of its output, that of the result or -1, the text of a constant, what
        becomes of it, its target, the place of the input that stands for that or -1, and its group."""
        outside = self.texts.outside
        return [
            [
                self.place(level, item),
                -1 if result.node is None else self.find(result.node.name, level.scope),
                outside(text_of(result.value) if result.node is None else ""),
                outside(result.fate),
                self.texts.name(result.target),
                -1 if result.input is None else self.find(result.input, level.scope),
                outside(result.group),
            ]
            for level in self.levels.all
            for item in level.outputs
            for result in item.results
        ]

    def _status(self) -> list[list[int]]:
        """Place and status of each node of a quantized graph."""
        from fastexport.pt2e._graphs import DEQUANTIZE, QUANTIZE

        rows = []
        for path, scope in self.scopes.items():
            steps = {
                node.name: "dequantize" if _target(node) in DEQUANTIZE else "quantize"
                for node in scope.nodes
                if node.op == "call_function" and _target(node) in DEQUANTIZE | QUANTIZE
            }
            if not steps:
                continue
            from fastexport.pt2e import quantization_report

            steps.update((row.node, row.status) for row in quantization_report(scope.graph) if row.status != "n/a")
            rows += [[self.find(name, path), self.texts.outside(status)] for name, status in steps.items()]
        return rows

    # -- findings

    def findings(self, given: Iterable[Any] | None) -> list[list[Any]]:
        """What is wrong with the program: code, whether it is an error, place of the node or -1, message, where."""
        faults = self._check() if given is None else given
        return [self._finding(getattr(fault, "fault", fault)) for fault in faults]

    def _check(self) -> Sequence[Any]:
        verify = getattr(self.program, "verify", None)
        return self.graph.lint(all=True) if verify is None else verify(all=True, weights=False)

    def _finding(self, fault: Any) -> list[Any]:
        where = " ".join(part for part in (getattr(fault, "entry", None), getattr(fault, "json_path", None)) if part)
        return [
            self.texts.outside(fault.code),
            int(getattr(fault, "is_error", True)),
            self.find(fault.node),
            self.texts.outside(fault.message),
            self.texts.outside(where),
        ]


# ---- levels ----------------------------------------------------------------------------------------------------------


def _levels(side: _Side) -> dict[str, Any]:
    """The levels for the page, and the shapes of their pictures, which those that look the same share."""
    step = Steps()
    shapes: dict[Any, int] = {}
    drawn: list[list[Any]] = []
    levels = []
    for level in side.levels.all:
        key = _looks(level)
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = len(drawn)
            drawn.append(_shape(level))
        levels.append(
            [
                shape,
                side.texts.name(level.path),
                side.texts.outside(level.type),
                -1 if level.parent is None else level.parent.index,
                len(level.inputs),
                len(level.outputs),
                [_item(side, level, item, step) for item in level.items],
            ]
        )
    return {"levels": levels, "shapes": drawn}


_KINDS = ("node", "module", "block", "run")


def _item(side: _Side, level: Level, item: Item, step: Steps) -> Any:
    """An input or output is the place of its node; others are lists, begun by their kind."""
    outside = side.texts.outside
    if item.kind in ("input", "output"):
        return step(side.place(level, item))
    if item.kind == "node":
        row: list[Any] = [0, step(side.place(level, item)), outside(_family(item)), outside(item.text)]
        if item.module or item.subgraphs:
            row.append([outside(text) for text in item.module or ()])
        if item.subgraphs:
            row.append([[outside(name), inner.index] for name, inner in item.subgraphs])
        return row
    inner = [member.index for member in item.members or (item.level,) if member is not None]
    return [_KINDS.index(item.kind), inner, outside(item.name), outside(item.type), item.size, int(item.chain)]


def _looks(level: Level) -> Any:
    edges = tuple((edge.source, edge.target, *edge.ports) for edge in level.edges)
    return len(level.inputs), len(level.outputs), tuple((item.kind, item.type) for item in level.items), edges


def _shape(level: Level) -> list[Any]:
    """Rank and middle of each item, and the edges: source, target, ports, and where it passes the ranks between."""
    edges = [(edge.source, edge.target, 0.0, 0.0) for edge in level.edges]
    boxes = [_box(level, item) for item in level.items]
    _, _, corners, lines = _core.lay_out(boxes, edges, GAPS)
    turned = [is_turned for _, is_turned in lines]
    if any(turned):  # they go round the others, which need not make room for them
        kept = [edge for edge, is_turned in zip(edges, turned, strict=True) if not is_turned]
        _, _, corners, lines = _core.lay_out(boxes, kept, GAPS)
    ranks = [rank for _, _, rank in corners]
    middles = [round(x + width / 2) for (x, _, _), (width, *_) in zip(corners, boxes, strict=True)]
    rows = {rank: y + boxes[i][1] / 2 for i, (_, y, rank) in enumerate(corners)}
    routes = iter(lines)
    drawn = []
    for edge, is_turned in zip(level.edges, turned, strict=True):
        ports = [number for port in edge.ports for number in port]
        passed = [] if is_turned else _passes(next(routes)[0], ranks[edge.source], ranks[edge.target], rows)
        drawn.append([edge.source, edge.target, int(is_turned), ports, passed])
    return [ranks, middles, drawn]


def _box(level: Level, item: Item) -> tuple[float, float, int]:
    """About what the page will draw, which measures texts in its own font."""
    is_part = level.item is not None
    if is_part and item.kind in ("input", "output"):
        return 8.0, 30.0, 1 if item.kind == "input" else 2
    widths = [text_width(text[:60], SIZES[style], style == "name") for text, style in item_lines(item)]
    return min(max([48.0, *widths]), 240.0) + 24.0, 40.0, 0


def _passes(points: Sequence[tuple[float, float]], start: int, end: int, rows: dict[int, float]) -> list[int]:
    """Where an edge passes the ranks between its ends: x in the middle of each."""
    passed = []
    at = 0
    for rank in range(start + 1, end):
        y = rows.get(rank)
        if y is None or not points:
            return []
        while at + 2 < len(points) and points[at + 1][1] < y:
            at += 1
        (x0, y0), (x1, y1) = points[at], points[min(at + 1, len(points) - 1)]
        share = (y - y0) / (y1 - y0) if y1 > y0 else 0.0
        passed.append(round(x0 + (x1 - x0) * min(max(share, 0.0), 1.0)))
    return passed


# ---- two programs ----------------------------------------------------------------------------------------------------


def _diff(a: _Side, b: _Side, texts: Texts) -> dict[str, Any]:
    """What differs: for each node of b the place of its partner in a or -1, and the changes in order."""
    found = diff(a.program, b.program)
    pairs = [-1] * b.count
    for path, scope in b.scopes.items():
        other = a.scopes.get(path)
        if other is None:
            continue
        for i, k, _ in compare_nodes(other.graph, scope.graph, None, ("val",)):
            if i != NOWHERE and k != NOWHERE:
                pairs[scope.start + k] = other.start + i
    changes = []
    for part in found.graphs.values():
        scope_a, scope_b = _scope_of(a, part.path), _scope_of(b, part.path)
        for name, text in part.removed.items():
            changes.append(["-", a.find(name, scope_a), -1, 0, texts.outside(text), 0])
        for name, text in part.added.items():
            changes.append(["+", -1, b.find(name, scope_b), 0, 0, texts.outside(text)])
        for change in part.changed:
            kinds = texts.outside(", ".join(change.kinds))
            ends = a.find(change.before, scope_a), b.find(change.after, scope_b)
            changes.append(["~", *ends, kinds, texts.outside(change.old), texts.outside(change.new)])
    notes = [
        *(f"- subgraph {path}" for path in found.removed_graphs),
        *(f"+ subgraph {path}" for path in found.added_graphs),
        *(line for lines in (found.signature, found.ranges, found.weights) for line in lines),
    ]
    more = [f"+{len(notes) - 500:,} more"] if len(notes) > 500 else []
    return {"pairs": pairs, "changes": changes, "notes": [texts.outside(note) for note in [*notes[:500], *more]]}


def _scope_of(side: _Side, path: str) -> str:
    """The scope of a subgraph that `diff` names by dots: names of the subgraphs, without the nodes that run them."""
    wanted = path.split(".") if path else []
    return next((scope for scope in side.scopes if scope.split("/")[1::2] == wanted), "")
