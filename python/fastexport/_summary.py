"""A program in a few lines: what a terminal shows for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastexport import _core

if TYPE_CHECKING:
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram

_WIDTH = 100  # of a list of names, in characters


def summary(program: ExportedProgram) -> str:
    """The kind of file, the size of the graph, what goes in and out, and the weights."""
    lines = [f"ExportedProgram: {about(program)}", *(f"  {name:<9}{text}" for name, text in facts(program))]
    return "\n".join(lines)


def about(program: ExportedProgram) -> str:
    """The dialect, and what wrote the program."""
    version = program.schema_version
    source = f"schema {version[0]}.{version[1]}, torch" if version else "from torch"
    return f"{program.dialect} dialect, {source} {program.torch_version}"


def facts(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """The lines of a summary: names and texts."""
    signature = program.graph_signature
    yield "nodes", nodes_line(program.graph)
    yield "inputs", _values(program, signature.user_inputs)
    yield "outputs", _values(program, signature.user_outputs)
    if len(signature.input_specs) > len(signature.user_inputs):
        yield "weights", weights_line(program)
    ranges = program.range_constraints
    if ranges:
        yield "ranges", _cut(f"{key}: {value}" for key, value in ranges.items())
    warnings = len(program.faults)
    if warnings:
        yield "noted", f"{plural(warnings, 'warning')}: .faults and `fastexport check` tell which"


def nodes_line(graph: Graph) -> str:
    """How many nodes of each opcode a graph has, and how many there are in all its subgraphs."""
    from fastexport._tree import all_graphs

    counts = Counter(dict(_core.count_nodes(graph)[0]))
    parts = [f"{count:,} {op}" for op, count in counts.items()]
    inner = [sum(count for _, count in _core.count_nodes(each)[0]) for each in all_graphs(graph)][1:]
    if inner:
        parts.append(f"and {sum(inner):,} in {plural(len(inner), 'subgraph')}")
    return f"{counts.total():,}: {', '.join(parts)}"


def weights_line(program: ExportedProgram) -> str:
    """How many parameters, buffers and constants, and their bytes."""
    signature = program.graph_signature
    counts = (
        (len(signature.parameters), "parameter"),
        (len(signature.buffers), "buffer"),
        (len(signature.lifted_tensor_constants), "constant"),
        (len(signature.lifted_custom_objs), "custom object"),
    )
    names = ", ".join(plural(count, what) for count, what in counts if count)
    if getattr(program._program, "layout", "A") != "A":
        return f"{names} (pickled)"
    from fastexport._weight_facts import Totals, weights_of

    totals = Totals(weights_of(program))
    sizes = ", ".join(f"{size_text(size)} {name}" for name, size in totals.dtypes.items()) or "0 bytes"
    return f"{names}; {sizes}{', shared memory counted once' if totals.is_shared else ''}"


def plural(count: int, what: str) -> str:
    """So many of a thing.

    >>> plural(1, "node"), plural(2000, "node")
    ('1 node', '2,000 nodes')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def size_text(size: float) -> str:
    """Bytes for people: 1.5 MiB.

    >>> size_text(512), size_text(1 << 20)
    ('512 B', '1.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _values(program: ExportedProgram, names: Any) -> str:
    return _cut(_value(program, name) for name in names) or "none"


def _value(program: ExportedProgram, name: Any) -> str:
    try:
        node = program.graph.node(name)
    except (KeyError, TypeError):
        return repr(name)
    value = program._without_torch(node.meta.get("val"))
    return f"{name}: {value}" if value is not None else name


def _cut(parts: Any) -> str:
    text = ""
    for part in parts:
        if len(text) + len(part) > _WIDTH:
            return f"{text}, ..."
        text = f"{text}, {part}" if text else part
    return text
