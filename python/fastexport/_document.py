"""Graphs as text: `dumps` writes one, `loads` reads it back. Nothing in it is run or imported when it is read.

A document is JSON, a line for each node. Numbers, strings, None and lists are themselves; anything else is an object of
one key, which says what it is: ``{"tuple": [...]}``, ``{"node": 3}``, ``{"operator": "torch.ops.aten.add.Tensor"}``.
What a node calls is named, and looked up among operators and the functions on a closed list; so a document can't name
what reads files or runs code. What has no such word can't be written: a pickle of the graph may hold it.

Graphs stand in a list, the whole one first, and each before its subgraphs, which it names with their places:
``"subgraphs": [["true_graph", 1], ["false_graph", 2]]``. So they may nest deeper than JSON may, none has itself, and
one that stands in several places is written once, and is one graph again when it is read.
"""

from __future__ import annotations

import json
from typing import Any

from fastexport._document_reader import read_document
from fastexport._document_writer import document_text
from fastexport._errors import FormatError
from fastexport._graph import Graph
from fastexport._program import ExportedProgram, load


def dumps(graph_or_program: Graph | ExportedProgram, *, meta: bool = True) -> bytes:
    """Write a graph or a program as bytes that `loads` reads without running anything.

    A program becomes a .pt2 file. A graph becomes a JSON document with its subgraphs: nodes, order, names, arguments
    with their containers, types, order of users and meta, and how its function nests what it takes and gives. It is of
    one moment: as of a copy, whatever another thread does to the graph meanwhile.

    What stands for torch's own work goes as files have it, and comes back as ours: of fake tensors, symbolic numbers
    and node sources the facts, as `TensorMeta`, `SymInt` and `NodeSource`; of classes and functions in the stacks that
    tracers note the names, unless they are torch's; ``unbacked_bindings`` and torch's ``desc`` not at all.
    Left out, too, are what a tracer noted about the traced function, the signature of a graph that is a program's, and
    the owning module: ``GraphModule(module, loads(data))`` gives a graph its modules again, of whatever class.

    Args:
        graph_or_program: what to write.
        meta: of graphs, the meta of nodes too.

    Raises:
        TypeError: it is neither.
        FormatError: the graph holds an object that has no text, such as a tensor with values or a function of yours:
            the node, the key of meta and the object are named.
        VerifyError: the program has a fault; see `save`.
        FastExportError: another thread changes the program meanwhile; see `save`.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> out = g.output(g.call_function(operator.add, (g.placeholder("x"), 1)))
        >>> data = fastexport.dumps(g)
        >>> data.decode().split("\\n")[3]
        '{"op": "call_function", "target": {"function": "operator.add"}, "name": "add", "args": [{"node": 0}, 1]},'
        >>> fastexport.loads(data) == g
        True
    """
    if isinstance(graph_or_program, Graph):
        return document_text(graph_or_program, meta).encode()
    if isinstance(graph_or_program, ExportedProgram):
        from io import BytesIO

        file = BytesIO()
        graph_or_program.save(file)
        return file.getvalue()
    kind = type(graph_or_program).__name__
    more = "; give the graph of it, with from_fx if it is torch's" if hasattr(graph_or_program, "graph") else ""
    raise TypeError(f"dumps takes a Graph or an ExportedProgram of fastexport, not {kind}{more}")


def loads(data: bytes | bytearray | memoryview) -> Graph | ExportedProgram:
    """Read what `dumps` wrote.

    To read is not to run: whoever runs a graph of somebody else's, runs a program of his.

    Args:
        data: the bytes; from anywhere, as nothing in them is run or imported. torch itself is, by a graph that names
            functions or types of torch's.

    Raises:
        TypeError: data is not bytes.
        FormatError: they are no such document or .pt2 file, or damaged; it says where. A ValueError.
        ImportError: they name something of torch's, and there is no torch.
        VerifyError: a program has a fault; see `load`.

    Example:
        >>> import fastexport
        >>> fastexport.loads(b"{}")
        Traceback (most recent call last):
        ...
        fastexport.FormatError: no document of a graph: its format is None, not 'fastexport.graph'
    """
    try:
        raw = bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"loads() takes the bytes that dumps() gave, not {type(data).__name__}") from None
    if raw[:2] == b"PK":
        return load(raw)
    try:
        document = json.loads(raw.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no document of a graph, nor a .pt2 file: {error}", kind="json") from error
    try:
        return read_document(document)
    except RecursionError as error:
        raise FormatError("the document is nested too deep", kind="depth") from error


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in an object")
    return found
