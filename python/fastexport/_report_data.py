r"""What the report page knows of programs: their nodes, levels, findings and differences, as compact JSON.

Every text is in one table, made visible (`_terminal.escape`): a name can't hide or turn round what stands beside it.
Nodes are columns of a table, in the order of the graphs; a node is told by its place there. References in arguments
are written ``\x02N\x02``, N places back, so that layers which look the same share their texts. What the page makes of
it, ``_page/data.js`` tells, and the two go together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fastexport import _core
from fastexport._diff import NOWHERE, _describe, compare_nodes, diff
from fastexport._graph import Graph
from fastexport._levels import Item, Level, Levels, levels_of
from fastexport._node_facts import _VALUES
from fastexport._picture import _COLOURS, _family
from fastexport._placing import GAPS, SIZES, item_lines, text_width
from fastexport._terminal import escape
from fastexport._views import _argument_names, _target, text_of, value_text

_MOST_TEXT = 2000  # characters of an argument or of meta
_MOST_NAME = 50_000  # characters of a name or path, which can be searched for
_KNOWN_META = (*_VALUES, "stack_trace", "nn_module_stack")
REF, ARG, NAME = "\x02", "\x1f", "\x1e"  # round a reference, between arguments, behind the name of one


def data_of(
    program: Any, other: Any, findings: Iterable[Any] | None, fold: bool, names: Sequence[str]
) -> dict[str, Any]:
    """All that the page shows; see `fastexport.report`."""
    texts = _Texts()
    sides = [_Side(_own(program), texts, fold)]
    if other is not None:
        sides.append(_Side(_own(other), texts, fold))
    known = ("program",) if other is None else ("before", "after")
    told = [*names, *known[len(names) :]]
    programs = [side.data(escape(str(name))) for side, name in zip(sides, told, strict=False)]
    programs[0]["findings"] = sides[0].findings(findings)
    for side, data in zip(sides[1:], programs[1:], strict=True):
        data["findings"] = side.findings(None if findings is None else ())
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


def _own(g: Any) -> Any:
    """A graph, module or program of ours."""
    from fastexport._passes import _own_graph

    if _own_graph(g) is not None:
        return g
    if type(g).__module__ == "torch.export.exported_program":
        from fastexport import from_export

        return from_export(g)
    return Graph.from_fx(g)


class _Texts(dict[str, int]):
    """Texts with their places in the table, and the stack traces."""

    def __init__(self) -> None:
        self.traces: list[list[int]] = []  # file, line, function and code of each frame
        self._traces: dict[str, int] = {}
        self._outside: dict[str, int] = {}
        self("")

    def __call__(self, text: str) -> int:
        """The place of a text."""
        return self.setdefault(text, len(self))

    def outside(self, text: str) -> int:
        """The place of a text that a file or user gave."""
        place = self._outside.get(text)
        if place is None:
            place = self._outside[text] = self(_shown(text, _MOST_TEXT))
        return place

    def name(self, text: str) -> int:
        """The place of a name that a file or user gave."""
        return self.outside(text) if len(text) <= _MOST_TEXT else self(_shown(text, _MOST_NAME))

    def trace(self, text: Any) -> int:
        """The place of a stack trace; -1: there is none."""
        if not isinstance(text, str):
            return -1
        place = self._traces.get(text)
        if place is None:
            from fastexport._findings import frames_of

            place = self._traces[text] = len(self.traces)
            frames = [
                (self.outside(f.file), f.line, self.outside(f.function), self.outside(f.code)) for f in frames_of(text)
            ]
            self.traces.append([number for frame in frames for number in frame])
        return place


def _shown(text: str, most: int) -> str:
    return escape(text) if len(text) <= most else f"{escape(text[:most])}… +{len(text) - most:,} characters"


# ---- one program -----------------------------------------------------------------------------------------------------


class _Scope(NamedTuple):
    """A graph: the program's own, or a subgraph where it is run; and the place of its first node in the table."""

    graph: Graph
    nodes: list[Any]
    start: int


class _Side:
    """One program."""

    def __init__(self, program: Any, texts: _Texts, fold: bool) -> None:
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

    def data(self, name: str) -> dict[str, Any]:
        """The program for the page, but for its findings."""
        return {
            "name": name,
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
        texts = self.texts
        columns: dict[str, list[Any]] = {
            name: [] for name in ("name", "op", "target", "value", "args", "trace", "stack", "meta")
        }
        values: dict[int, tuple[int, Any]] = {}  # by identity, which they keep while they are here
        targets: dict[int, tuple[int, list[str], Any]] = {}
        stacks: dict[Any, int] = {}  # by the text in the file
        for scope in self.scopes.values():
            places = {node: scope.start + i for i, node in enumerate(scope.nodes)}
            raw_stacks = [row[2] for row in _core.level_facts(scope.graph)]
            for (node, place), raw in zip(places.items(), raw_stacks, strict=True):
                meta, target = node.meta, node.target
                if id(target) not in targets:
                    targets[id(target)] = texts.name(_target(node)), _argument_names(node), target
                value = next((meta[key] for key in _VALUES if key in meta), None)
                if id(value) not in values:
                    values[id(value)] = texts.outside(_value(value)), value
                stack = stacks.get(raw) if isinstance(raw, str) else None
                if stack is None:
                    stack = stacks[raw] = texts(_stack(node))
                columns["name"].append(texts.name(node.name))
                columns["op"].append(texts(node.op))
                columns["target"].append(targets[id(target)][0])
                columns["value"].append(values[id(value)][0])
                columns["args"].append(texts(_arguments(node, targets[id(target)][1], place, places)))
                columns["trace"].append(texts.trace(meta.get("stack_trace")))
                columns["stack"].append(stack)
                columns["meta"].append(texts(_meta(meta)))
        return {
            "nodes": columns,
            "weights": self._weights(),
            "scopes": [[texts.outside(path), scope.start] for path, scope in self.scopes.items()],
            "status": self._status(),
        }

    def _weights(self) -> list[list[int]]:
        """Place, kind and target of each node that is a weight."""
        rows = {}
        for level in self.levels.all:
            for item in level.items:
                for weight in item.weights:
                    place = self.scopes[level.scope].start + self._places(level.scope)[weight.name]
                    rows[place] = [place, self.texts(weight.kind), self.texts.name(weight.target)]
        return list(rows.values())

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


def _value(value: Any) -> str:
    """All facts of the value of a node, behind the short form of them, which is a line of its own."""
    if value is None:
        return ""
    try:
        short, long = value_text(value), _describe(value) or ""
    except Exception:  # an object of a user's
        return f"<{type(value).__name__}>"
    long = long.removeprefix(short).removeprefix(", ") if short else long
    return f"{short}\n{long}" if long else short


def _arguments(node: Any, names: list[str], place: int, places: dict[Any, int]) -> str:
    pairs = [(names[i] if i < len(names) else str(i), value) for i, value in enumerate(node.args)]
    pairs += [(str(key), value) for key, value in node.kwargs.items()]
    return ARG.join(f"{_shown(name, 200)}{NAME}{_argument(value, place, places)}" for name, value in pairs)


def _argument(value: Any, place: int, places: dict[Any, int]) -> str:
    if isinstance(value, _core.Node):
        return f"{REF}{place - places[value]}{REF}" if value in places else _shown(value.name, 200)
    if isinstance(value, tuple | list) and len(value) <= 200:
        inner = ", ".join(_argument(item, place, places) for item in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict) and len(value) <= 200:
        return "{" + ", ".join(f"{_quoted(key)}: {_argument(item, place, places)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({', '.join(_argument(part, place, places) for part in (value.start, value.stop, value.step))})"
    return _quoted(value)


def _quoted(value: Any) -> str:
    try:
        return _shown(repr(value) if isinstance(value, str) else str(value), _MOST_TEXT)
    except Exception:  # an object of a user's
        return f"<{type(value).__name__}>"


def _stack(node: Any) -> str:
    from fastexport._tree import modules_of

    return ARG.join(f"{_shown(path, 400)}{NAME}{_shown(kind, 400)}" for path, kind in modules_of(node))


def _meta(meta: Any) -> str:
    pairs = [(text_of(key), value) for key, value in meta.items() if key not in _KNOWN_META]
    return ARG.join(f"{_shown(key, 200)}{NAME}{_shown(text_of(value), 500)}" for key, value in pairs)


# ---- levels ----------------------------------------------------------------------------------------------------------


def _levels(side: _Side) -> dict[str, Any]:
    """The levels for the page, and the shapes of their pictures, which those that look the same share."""
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
                [_item(side, level, item) for item in level.items],
            ]
        )
    return {"levels": levels, "shapes": drawn}


_KINDS = ("node", "module", "block", "run")


def _item(side: _Side, level: Level, item: Item) -> Any:
    """An input or output is the place of its node; others are lists, begun by their kind."""
    outside = side.texts.outside
    if item.kind in ("input", "output"):
        return side.place(level, item)
    if item.kind == "node":
        row: list[Any] = [0, side.place(level, item), outside(_family(item)), outside(item.text)]
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


def _diff(a: _Side, b: _Side, texts: _Texts) -> dict[str, Any]:
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
