"""A level, with what is opened in it, in the language of Graphviz; and a picture of that by Graphviz itself.

Graphviz needs minutes for graphs with many long edges, so it only gets small ones, in a process of its own that is
ended when its time is up.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from fastexport._errors import FastExportError
from fastexport._levels import Item, Level, value_at
from fastexport._placing import depths_inside, item_lines, open_title, visible

MOST_NODES = 400  # that Graphviz is given
_MOST_SECONDS = 1_000_000.0  # that the system can be asked to wait; more is no limit

_STYLES = {
    "input": 'style="rounded,filled", fillcolor="#3f4754", fontcolor=white',
    "output": 'style="rounded,filled", fillcolor="#3f4754", fontcolor=white',
    "node": 'style="rounded,filled", fillcolor=white',
    "module": 'style="rounded,filled", fillcolor="#f3effd"',
    "run": 'style="rounded,filled", fillcolor="#f3effd"',
    "block": 'style="rounded,filled", fillcolor="#f3effd", peripheries=2',
}

# What runs in the process of its own: a graph's text in, its picture out.
_CODE = """
import sys, pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
sys.stdout.buffer.write(graph.draw(format="svg", prog="dot"))
"""


def dot(level: Level, depth: int = 1) -> str:
    """The text of a level; modules that are opened are clusters.

    Args:
        level: of `levels_of`.
        depth: how many levels to show: 1 opens nothing.

    >>> import operator
    >>> from fastexport import Graph
    >>> from fastexport._levels import levels_of
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> out = graph.output(graph.call_function(operator.neg, (x,)))
    >>> print(dot(levels_of(graph).root))
    digraph {
      graph [rankdir=TB, compound=true, fontname=Helvetica, fontsize=11]
      node [shape=box, fontname=Helvetica, fontsize=10, margin="0.12,0.06", color="#8d96a5"]
      edge [color="#8d96a5", arrowsize=0.7]
      "0" [label="x", tooltip="x", style="rounded,filled", fillcolor="#3f4754", fontcolor=white]
      "1" [label="neg", tooltip="neg", style="rounded,filled", fillcolor=white]
      "2" [label="output", tooltip="output", style="rounded,filled", fillcolor="#3f4754", fontcolor=white]
      "0" -> "1" [tooltip="x"]
      "1" -> "2" [tooltip="neg"]
    }
    <BLANKLINE>
    """
    lines = [
        "digraph {",
        "  graph [rankdir=TB, compound=true, fontname=Helvetica, fontsize=11]",
        '  node [shape=box, fontname=Helvetica, fontsize=10, margin="0.12,0.06", color="#8d96a5"]',
        '  edge [color="#8d96a5", arrowsize=0.7]',
        *_nodes(level, depth, "", "  ", False),
        *_edges(level, depth, ""),
        "}",
    ]
    return "\n".join(lines) + "\n"


def graphviz(text: str, nodes: int, timeout: float) -> str:
    """The picture of a text in the language of Graphviz, as SVG.

    Args:
        text: of `dot`.
        nodes: how many nodes it has.
        timeout: seconds that it may take; from a million on there is no limit.

    Raises:
        ImportError: pygraphviz is not there.
        FastExportError: the graph is too large, took too long, or is one that Graphviz can't draw.
    """
    from importlib.util import find_spec

    if find_spec("pygraphviz") is None:
        raise ImportError('Graphviz draws by pygraphviz: pip install "fastexport[draw]", or draw without Graphviz')
    if nodes > MOST_NODES:
        raise FastExportError(
            f"{nodes} boxes are too many for Graphviz, which gets at most {MOST_NODES}: show less depth or a module, "
            "or draw without Graphviz"
        )
    limit = timeout if timeout < _MOST_SECONDS else None
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _CODE], input=text.encode(), capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise FastExportError(
            f"Graphviz was not done after {timeout:g} seconds: show less depth, or draw without Graphviz"
        ) from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise FastExportError(f"Graphviz can't draw this graph: {last}")
    return done.stdout.decode()


def count_nodes(level: Level, depth: int) -> int:
    """How many nodes `dot` writes."""
    count = 0
    for item, inner in zip(level.items, depths_inside(level, depth), strict=True):
        levels = _inside(item) if inner else []
        count += sum(count_nodes(sub, inner) for sub in levels) or 1
    return count


# ---- pieces


def _inside(item: Item) -> list[Level]:
    return [item.level] if item.level is not None else [sub for _, sub in item.subgraphs]


def _nodes(level: Level, depth: int, prefix: str, indent: str, as_points: bool) -> Iterator[str]:
    for item, inner in zip(level.items, depths_inside(level, depth), strict=True):
        name = f"{prefix}{item.index}"
        if inner:
            yield f'{indent}subgraph "cluster_{name}" {{'
            yield f'{indent}  graph [label={_quoted(open_title(item))}, style="rounded,filled", fillcolor="#fbfaff"]'
            if item.level is None:
                yield f"{indent}  {_node(item, name)}"
            for part, sub in enumerate(_inside(item)):
                below = f"{name}_" if item.level is not None else f"{name}_{part}_"
                yield from _nodes(sub, inner, below, indent + "  ", item.level is not None)
            yield f"{indent}}}"
        elif as_points and item.kind in ("input", "output"):
            yield f'{indent}"{name}" [shape=point, tooltip={_quoted(item.name)}]'
        else:
            yield indent + _node(item, name)


def _node(item: Item, name: str) -> str:
    label = "\n".join(text for text, _ in item_lines(item))
    return f'"{name}" [label={_quoted(label)}, tooltip={_quoted(item.name)}, {_STYLES[item.kind]}]'


def _edges(level: Level, depth: int, prefix: str) -> Iterator[str]:
    depths = depths_inside(level, depth)

    def end(index: int, port: int, *, is_input: bool) -> str:
        item = level.items[index]
        name = f"{prefix}{index}"
        if not depths[index] or item.level is None:
            return name
        return f"{name}_{(item.level.inputs if is_input else item.level.outputs)[port].index}"

    for edge in level.edges:
        told: dict[tuple[str, str], list[str]] = {}
        for (i, j), text in zip(edge.ports, edge.texts, strict=True):
            ends = end(edge.source, i, is_input=False), end(edge.target, j, is_input=True)
            value = value_at(level.items[edge.source], i).name
            told.setdefault(ends, []).append(f"{value}: {text}" if text else value)
        for (a, b), values in told.items():
            head = ", arrowhead=none" if depths[edge.target] and level.items[edge.target].level is not None else ""
            yield f'  "{a}" -> "{b}" [tooltip={_quoted(chr(10).join(values))}{head}]'
    for item, inner in zip(level.items, depths, strict=True):
        for part, sub in enumerate(_inside(item) if inner else ()):
            below = f"{prefix}{item.index}_" if item.level is not None else f"{prefix}{item.index}_{part}_"
            yield from _edges(sub, inner, below)


def _quoted(text: str) -> str:
    """A string of Graphviz that shows just this text: quotes, backslashes and entities mean nothing in it."""
    text = visible(text).replace("\t", " ").replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + text.replace("\n", "\\n") + '"'
