"""fastexport.draw: a picture of a graph, whole or of one module, as SVG or as text for Graphviz."""

from __future__ import annotations

import os
from typing import Any, Literal

from fastexport._arguments import check_graph, check_text, whole

Format = Literal["svg", "dot"]
Engine = Literal["own", "graphviz"]


def draw(
    g: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    depth: int = 1,
    format: Format | None = None,
    fold: bool = True,
    module: str | None = None,
    max_items: int = 150,
    engine: Engine = "own",
    timeout: float = 20.0,
) -> str:
    """Draw a graph, one level of modules at a time: no browser, no torch and no other program is needed.

    Modules are boxes that can be opened, those that repeat are drawn once (``Block × 12``), and parameters, buffers and
    constants stand in the boxes of the nodes that use them. Tooltips tell names, shapes and source lines.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, one of torch's, which is copied, or a .pt2
            file: its path, a file that is open, or its bytes.
        path: a file to write, which takes its name only when it is whole; None: nothing is written.
        depth: how many levels of modules are shown, 100 at most. 1 leaves them closed, but for one that is all there
            is.
        format: "svg" or "dot"; None: as the end of the path says, else "svg".
        fold: draw modules in a row that look the same once.
        module: the path of the module to draw, as ``fastexport show --tree`` tells it; None: everything. A subgraph
            is drawn by its name, ``true_graph_0``, or with the node that runs it, ``cond/true_graph_0``, and a module
            in it by ``cond/true_graph_0/layers.0``.
        max_items: how many calls and modules a level may hold before it is cut into runs, which can be opened like
            modules; all inputs and outputs are shown.
        engine: "own", or "graphviz", which takes the extra ``fastexport[draw]`` and draws at most 400 boxes.
        timeout: seconds after which Graphviz is stopped; ``math.inf``: never.

    Returns:
        The text of the picture.

    Raises:
        TypeError: g is none of these, or an option is of another type.
        FormatError: g is a file that is damaged, or no exported program.
        ValueError: an option is none of those it may be, the path ends as that of another kind of file, or the
            subgraphs, each counted wherever it is run, are more than 100,000.
        RecursionError: a graph stands below itself.
        KeyError: there is no such module or subgraph, or no call is in it.
        OSError: a file can't be read or written, or a .pt2 file is there already; what was there is unchanged.
        FastExportError: Graphviz can't draw it, or not in time.
        ImportError: Graphviz was asked for and pygraphviz is not there.

    >>> import operator
    >>> from fastexport import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> out = graph.output(graph.call_function(operator.neg, (x,)))
    >>> draw(graph)[:45]
    '<svg xmlns="http://www.w3.org/2000/svg" class'
    """
    name = None if path is None else os.fsdecode(path)
    kind = format or format_of(name)
    _check(kind, engine, timeout)
    depth = whole("depth", depth, 1)
    check_text("module", module)
    from fastexport._collecting import no_collection
    from fastexport._levels import levels_of
    from fastexport._program import load_if_file

    source = load_if_file(g)
    check_graph("draw", source, files=True)
    with no_collection():
        levels = levels_of(source, fold=fold, max_items=max_items, module=module)
        level = levels.root if module is None else levels.at(module)
        if kind == "svg" and engine == "own":
            from fastexport._picture import svg

            text = svg(level, depth)
        else:
            from fastexport import _dot

            text = _dot.dot(level, depth)
    if kind == "svg" and engine == "graphviz":
        text = _dot.graphviz(text, _dot.count_nodes(level, depth), timeout)
    if name is not None:
        from fastexport._new_file import write_file

        write_file(name, text.encode())
    return text


def format_of(path: str | None) -> Format:
    """What a file of that name is to hold.

    Raises:
        ValueError: it has the ending of something else.
    """
    ending = os.path.splitext(path or "")[1].lower()
    if ending not in ("", ".svg", ".dot", ".gv"):
        raise ValueError(f"a picture is written as .svg or as .dot, not as {ending}; name it so, or give its format")
    return "dot" if ending in (".dot", ".gv") else "svg"


def _check(kind: str, engine: str, timeout: float) -> None:
    if kind not in ("svg", "dot"):
        raise ValueError(f'format is "svg" or "dot", not {kind!r}')
    if engine not in ("own", "graphviz"):
        raise ValueError(f'engine is "own" or "graphviz", not {engine!r}')
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout is a number of seconds, not {timeout!r}")
    if not timeout > 0:
        raise ValueError(f"timeout is more than 0, not {timeout}")
