"""Where the items of a level are drawn: boxes with lines of text, opened modules with their insides, and edges.

    >>> import operator
    >>> from fastexport import Graph
    >>> from fastexport._levels import levels_of
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> out = graph.output(graph.call_function(operator.neg, (x,)))
    >>> placed = place(levels_of(graph).root)
    >>> [box.lines[0].text for box in placed.boxes], [len(route.points) for route in placed.routes]
    (['x', 'neg', 'output'], [2, 2])

Coordinates are those of the level's own picture, in pixels, y downwards; the picture in an open box has its place in
`Part`. Text is measured by the widths of Helvetica, which Arial and Liberation Sans share.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from fastexport import _core
from fastexport._levels import Edge, Item, Level, value_at
from fastexport._node_facts import Result
from fastexport._terminal import escape

GAPS = (18.0, 12.0, 24.0)  # between boxes, beside edges that pass, between ranks
TITLE = 26.0  # height of the band at the top of an open box
PAD = 12.0  # round what is inside an open box
TURN = 16.0  # height of the bends of an edge that goes upwards
PILE = 6.0  # below a closed block, for the sheets under it
_SIDE, _TOP, _BOTTOM = 10.0, 6.0, 7.0  # inside a box, beside and above and below the text
_LEAST = 48.0  # width of a box
MOST_DEPTH = 100  # of levels in each other
_MOST = 240.0  # width of a line, which is cut there
_PORT = 8.0  # width that an edge takes where it passes the border of an open box
_WEIGHTS = 3  # lines of weights in a box
_FATES = 3  # lines of what becomes of its value
_GROUPS = ("mutation", "gradient", "token")  # of results that the caller does not get

SIZES = {"name": 12.0, "note": 10.5, "weight": 10.5}  # of the styles of lines, in pixels
_HEIGHTS = {"name": 15.0, "note": 13.0, "weight": 13.0}


# An edge as the layout takes it, and its values.
_Way = tuple[int, int, float, float, list[tuple[str, str]]]


@dataclass(slots=True)
class Line:
    """A line of text in a box: its text, cut and with nothing hidden in it, and its style, one of `SIZES`."""

    text: str
    style: str


@dataclass(slots=True, eq=False)
class Part:
    """A picture in an open box: its title, and where its left upper corner is, from that of the box."""

    title: str
    placed: Placed
    x: float
    y: float


@dataclass(slots=True, eq=False)
class Box:
    """An item: its left upper corner, its size, and either lines or, when it is open, parts.

    A port is an input or output of the inside of an open box: a point on the border, without lines.
    """

    item: Item
    lines: list[Line]
    width: float
    height: float
    parts: list[Part]
    x: float = 0.0
    y: float = 0.0
    rank: int = 0
    is_port: bool = False


@dataclass(slots=True, eq=False)
class Route:
    """An edge, or the values of one that go the same way.

    Attributes:
        source, target: its boxes.
        values: name, and dtype and shape, of each value.
        points: from where it leaves to where it ends; between two of the same x it goes straight, otherwise it bends.
        turned: it goes upwards, as one of a circle of modules that need each other's results. It has six points: down
            below its rank, in a bend of 180 degrees to the side, up, in another bend to where it comes down.
    """

    source: Box
    target: Box
    values: list[tuple[str, str]]
    points: tuple[tuple[float, float], ...]
    turned: bool = False


@dataclass(slots=True, eq=False)
class Placed:
    """The picture of a level: its size, the box of each item in order, and the edges."""

    level: Level
    width: float
    height: float
    boxes: list[Box]
    routes: list[Route]


def place(level: Level, depth: int = 1, *, ports: bool = False) -> Placed:
    """Lay out a level and what is opened in it.

    Args:
        level: the level.
        depth: how many levels to show: 1 opens nothing. A module that is all that a level holds is opened anyway.
        ports: inputs and outputs are points on the upper and lower border, as in an open box.

    Raises:
        MemoryError: there is not enough memory.
    """
    boxes = [_box(item, inner, ports) for item, inner in zip(level.items, depths_inside(level, depth), strict=True)]
    ways = [way for edge in level.edges for way in _ways(level, edge, boxes)]
    shapes = [(box.width, box.height, _rank_of(box)) for box in boxes]
    width, height, corners, lines = _core.lay_out(shapes, [way[:4] for way in ways], GAPS)
    turned = [way for way, (_, is_turned) in zip(ways, lines, strict=True) if is_turned]
    if turned:  # they go round the others, which need not make room for them
        ways = [way for way, (_, is_turned) in zip(ways, lines, strict=True) if not is_turned]
        width, height, corners, lines = _core.lay_out(shapes, [way[:4] for way in ways], GAPS)
    for box, (x, y, rank) in zip(boxes, corners, strict=True):
        box.x, box.y, box.rank = x, y, rank
    routes = [
        Route(boxes[source], boxes[target], values, points)
        for (source, target, _, _, values), (points, _) in zip(ways, lines, strict=True)
    ]
    placed = Placed(level, width, height, boxes, routes)
    if turned:
        _go_round(placed, turned, 0.0 if ports else TURN)
    return placed


@dataclass(slots=True)
class _Row:
    """What a rank takes: boxes, and edges that pass."""

    top: float = math.inf
    bottom: float = -math.inf
    left: float = math.inf
    right: float = -math.inf

    def widen(self, left: float, right: float) -> None:
        self.left = min(self.left, left)
        self.right = max(self.right, right)


def _rows(placed: Placed) -> dict[int, _Row]:
    """The rows by rank, from top to bottom."""
    rows: dict[int, _Row] = {rank: _Row() for rank in sorted({box.rank for box in placed.boxes})}
    for box in placed.boxes:
        row = rows[box.rank]
        row.top, row.bottom = min(row.top, box.y), max(row.bottom, box.y + box.height)
        row.widen(box.x, box.x + box.width)
    in_order = list(rows.values())
    tops = [row.top - 0.5 for row in in_order]
    for route in placed.routes:
        for x, y in route.points:
            in_order[max(bisect_right(tops, y) - 1, 0)].widen(x, x)
    return rows


def _go_round(placed: Placed, ways: list[_Way], room: float) -> None:
    """Draw edges that go upwards beside what is between their ends, with room above and below the picture for bends.

    Each goes round on the side that is nearer, the shorter ones inside of the longer.
    """
    rows = _rows(placed)
    left, right = 0.0, placed.width

    def length(way: _Way) -> tuple[int, float]:
        source, target = placed.boxes[way[0]], placed.boxes[way[1]]
        return abs(source.rank - target.rank), min(source.x, right - source.x)

    for a, b, a_x, b_x, values in sorted(ways, key=length):
        source, target = placed.boxes[a], placed.boxes[b]
        below, above = rows[source.rank].bottom, rows[target.rank].top
        start, end = source.x + source.width / 2 + a_x, target.x + target.width / 2 + b_x
        low, high = sorted((source.rank, target.rank))
        passed = [row for rank, row in rows.items() if low <= rank <= high]
        sides = min(row.left for row in passed) - GAPS[1], max(row.right for row in passed) + GAPS[1]
        side = min(sides, key=lambda x: abs(start - x) + abs(end - x))
        for row in passed:
            row.widen(side, side)
        left, right = min(left, side - 2), max(right, side + 2)
        bends = (start, below), (side, below), (side, above), (end, above)
        points = ((start, source.y + source.height), *bends, (end, target.y))
        placed.routes.append(Route(source, target, values, points, True))
    placed.width, placed.height = right - left, placed.height + 2 * room
    for box in placed.boxes:
        box.x, box.y = box.x - left, box.y + room
    for route in placed.routes:
        route.points = tuple((x - left, y + room) for x, y in route.points)


def depths_inside(level: Level, depth: int) -> list[int]:
    """For each item of a level how many levels of its inside are shown; 0: it is closed, or has none.

    What is in more than MOST_DEPTH levels is closed: nobody looks at that many boxes in each other.
    """
    if level.depth >= MOST_DEPTH:
        return [0] * len(level.items)
    body = [item for item in level.items if item.kind not in ("input", "output")]
    lone = body[0] if len(body) == 1 and body[0].level is not None else None
    return [
        depth if item is lone else depth - 1 if item.level is not None or item.subgraphs else 0 for item in level.items
    ]


def _rank_of(box: Box) -> int:
    return 0 if not box.is_port else 1 if box.item.kind == "input" else 2


# ---- boxes


def _box(item: Item, depth: int, ports: bool) -> Box:
    if ports and item.kind in ("input", "output"):
        return Box(item, [], _PORT, TITLE if item.kind == "input" else PAD, [], is_port=True)
    if depth > 0:
        return _open_box(item, depth) if item.level is not None else _box_of_subgraphs(item, depth)
    lines = [Line(_cut(text, SIZES[style], style == "name"), style) for text, style in item_lines(item)]
    width = max([_LEAST, *(text_width(line.text, SIZES[line.style], line.style == "name") for line in lines)])
    height = _TOP + sum(_HEIGHTS[line.style] for line in lines) + _BOTTOM
    return Box(item, lines, _even(width + 2 * _SIDE), height + (PILE if item.count > 1 else 0), [])


def _open_box(item: Item, depth: int) -> Box:
    assert item.level is not None
    inner = place(item.level, depth, ports=True)
    title = _cut(open_title(item), SIZES["name"], True)
    width = max(inner.width + 2 * PAD, text_width(title, SIZES["name"], True) + 2 * _SIDE)
    top = 0.0 if item.level.inputs else TITLE
    bottom = 0.0 if item.level.outputs else PAD
    width = _even(width)
    part = Part("", inner, (width - inner.width) / 2, top)
    return Box(item, [Line(title, "name")], width, top + inner.height + bottom, [part])


def _box_of_subgraphs(item: Item, depth: int) -> Box:
    lines = [Line(_cut(item_title(item), SIZES["name"], True), "name")]
    parts = []
    x, height = PAD, 0.0
    for name, level in item.subgraphs:
        inner = place(level, depth)
        title = _cut(name, SIZES["note"])
        part = Part(title, inner, x, TITLE * 2)
        parts.append(part)
        x += max(inner.width, text_width(title, SIZES["note"])) + 2 * PAD
        height = max(height, inner.height)
    width = max(x - PAD, text_width(lines[0].text, SIZES["name"], True) + 2 * _SIDE)
    return Box(item, lines, _even(width), TITLE * 2 + height + PAD, parts)


def _even(width: float) -> float:
    """Rounded up, so that the middle of a box is a whole pixel."""
    return float(-int(-width // 2) * 2)


def _ways(level: Level, edge: Edge, boxes: list[Box]) -> Iterator[_Way]:
    """An edge as the layout takes it, once for each pair of points that it goes between, with its values."""
    source, target = boxes[edge.source], boxes[edge.target]
    ways: dict[tuple[float, float], list[tuple[str, str]]] = {}
    for i, j in edge.ports:
        value = value_at(source.item, i)
        points = _port_at(source, i, inputs=False), _port_at(target, j, inputs=True)
        ways.setdefault(points, []).append((value.name, value.text))
    for (a, b), values in ways.items():
        yield edge.source, edge.target, a, b, values


def _port_at(box: Box, port: int, *, inputs: bool) -> float:
    """Where an edge meets a box, from its middle."""
    level = box.item.level
    if level is None or not box.parts:
        return 0.0
    part = box.parts[0]
    items = level.inputs if inputs else level.outputs
    inner = part.placed.boxes[items[port].index]
    return part.x + inner.x + inner.width / 2 - box.width / 2


# ---- texts


def short_name(operator: str) -> str:
    """The name of an operator as people say it: ``linear`` of ``aten.linear.default``."""
    parts = operator.split(".")
    if len(parts) > 2 and parts[0] not in ("operator", "builtins", "math", "torch"):
        return parts[-2]
    return parts[-1]


def item_title(item: Item) -> str:
    """What an item is called in a picture."""
    if item.kind == "block":
        return f"{item.type or f'{item.size // item.count} nodes'} × {item.count}"
    if item.kind == "run":
        return f"{item.size} nodes"
    if item.kind == "module":
        return item.name
    if item.kind == "node":
        return item.module[0] if item.module else short_name(item.type) + _index(item)
    return item.name


def _index(item: Item) -> str:
    args = list(item.node.args) if item.type == "operator.getitem" else []
    return f" [{args[1]}]" if len(args) == 2 and type(args[1]) is int else ""


def open_title(item: Item) -> str:
    """The title over what is in an opened item."""
    if item.kind == "module" and item.type:
        return f"{item_title(item)}: {item.type}"
    return f"{item_title(item)}, {row_text(item)}" if item.kind == "block" else item_title(item)


def item_lines(item: Item) -> Iterator[tuple[str, str]]:
    """The lines of a closed box, not cut, with their styles."""
    yield item_title(item), "name"
    for note in _notes(item):
        yield note, "note"
    names = [weight.target.rpartition(".")[2] for weight in item.weights]
    count = _shown(names, _WEIGHTS)
    for name, weight in zip(names, item.weights[:count], strict=False):
        yield f"{name if names.count(name) == 1 else weight.target} {weight.text}".rstrip(), "weight"
    if len(names) > count:
        yield f"+{len(names) - count} more", "weight"


def results_text(results: Sequence[Result]) -> str:
    """How many results there are: what the caller gets, and mutations and the like apart, ``5 out, 3 mutations``."""
    groups = Counter(result.group for result in results)
    others = (f"{groups[name]} {name}{'s' if groups[name] > 1 else ''}" for name in _GROUPS if groups[name])
    return ", ".join((f"{groups['out']} out", *others))


def _shown(lines: Sequence[str], most: int) -> int:
    """How many of the lines to show, with "+N more" under them; "+1 more" would take as much room as the last one."""
    return most if len(lines) > most + 1 else len(lines)


def row_text(block: Item) -> str:
    """How the members of a block stand to each other."""
    return "in turn" if block.chain else "side by side"


def _notes(item: Item) -> Iterator[str]:
    if item.kind == "block":
        yield item.name
        yield f"{item.size} nodes, {row_text(item)}"
    elif item.kind == "module":
        if item.type:
            yield item.type
        yield f"{item.size} nodes"
    elif item.kind == "run":
        yield item.name
    else:
        if item.module:
            yield short_name(item.type)
        if item.text:
            yield item.text
        count = _shown(item.fates, _FATES)
        yield from item.fates[:count]
        if len(item.fates) > count:
            yield f"+{len(item.fates) - count} more"
        if any(result.group != "out" for result in item.results):
            yield results_text(item.results)
        if item.subgraphs:
            yield f"runs {', '.join(name for name, _ in item.subgraphs)}"


# Thousandths of the size of the font, of the characters from the blank on. Source: Helvetica's metrics in AFM files.
_WIDTHS = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556,
    556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334,
    260, 334, 584,
)  # fmt: skip
_BOLD = 1.07  # times as wide, about


@lru_cache(4096)
def _units(text: str) -> int:
    total = 0
    for char in text:
        code = ord(char) - 32
        total += _WIDTHS[code] if 0 <= code < len(_WIDTHS) else 1000 if code > 0x10E0 else 600
    return total


def text_width(text: str, size: float, bold: bool = False) -> float:
    """How wide a text is, in pixels.

    >>> text_width("add", 12.0)
    20.016
    """
    return _units(text) * size / 1000 * (_BOLD if bold else 1)


# Characters that XML 1.0 does not allow, even as references.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def visible(text: str) -> str:
    """A text with nothing hidden in it, and nothing that XML can't hold: such characters are written as escapes."""
    if text.replace("\n", "").isprintable():  # as nearly all texts are; much quicker
        return text
    return _NOT_XML.sub(lambda match: ascii(match.group())[1:-1], escape(text))


def _cut(text: str, size: float, bold: bool = False) -> str:
    """A text in one line that is no wider than a box may be."""
    text = visible(text).replace("\n", " ").replace("\t", " ")
    if text_width(text, size, bold) <= _MOST:
        return text
    room = _MOST - text_width("…", size, bold)
    widths = accumulate(text_width(char, size, bold) for char in text)
    end = next(i for i, width in enumerate(widths) if width > room)
    return text[:end] + "…"
