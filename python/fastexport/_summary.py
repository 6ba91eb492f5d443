"""A program in a few lines: what a terminal shows for it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fastexport._dtypes import DType
from fastexport._state import Payload

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram
    from fastexport._state import TensorDict

_WIDTH = 100  # of a list of names, in characters


def summary(program: ExportedProgram) -> str:
    """The kind of file, the size of the graph, what goes in and out, and the weights."""
    major, minor = program.schema_version
    lines = [
        f"ExportedProgram: {program.dialect} dialect, schema {major}.{minor}, torch {program.torch_version}",
        f"  nodes    {nodes_line(program)}",
        f"  inputs   {_values(program, program.graph_signature.user_inputs)}",
        f"  outputs  {_values(program, program.graph_signature.user_outputs)}",
    ]
    if len(program.graph_signature.input_specs) > len(program.graph_signature.user_inputs):
        lines.append(f"  weights  {weights_line(program)}")
    ranges = program.range_constraints
    if ranges:
        lines.append(f"  ranges   {_cut(f'{key}: {value}' for key, value in ranges.items())}")
    warnings = len(program.faults)
    if warnings:
        lines.append(f"  noted    {warnings} warning{'s' * (warnings > 1)}: see .faults")
    return "\n".join(lines)


def nodes_line(program: ExportedProgram) -> str:
    """How many nodes of each opcode."""
    counts = Counter(node.op for node in program.graph.nodes)
    parts = ", ".join(f"{count} {op}" for op, count in counts.items())
    subgraphs = count_subgraphs(program.graph)
    return f"{sum(counts.values())}: {parts}" + (f"; {subgraphs} subgraphs" if subgraphs else "")


def count_subgraphs(graph: Any) -> int:
    """Subgraphs of a graph, and theirs."""
    inner = (graph.subgraphs or {}).values()
    return len(inner) + sum(count_subgraphs(sub) for sub in inner)


def weights_line(program: ExportedProgram) -> str:
    """How many parameters, buffers and constants, and their bytes."""
    signature = program.graph_signature
    counts = (
        (len(signature.parameters), "parameters"),
        (len(signature.buffers), "buffers"),
        (len(signature.lifted_tensor_constants), "constants"),
        (len(signature.lifted_custom_objs), "custom objects"),
    )
    names = ", ".join(f"{count} {what}" for count, what in counts if count)
    if program._program.layout != "A":
        return f"{names} (pickled)"
    sizes = sizes_by_dtype(program.state_dict)
    sizes.update(sizes_by_dtype(program.constants))
    return f"{names}; {', '.join(f'{size_text(size)} {name}' for name, size in sizes.items()) or '0 bytes'}"


def sizes_by_dtype(state: TensorDict) -> Counter[str]:
    """Bytes of tensors by dtype, from the configuration alone; a tied weight counts once for each name."""
    sizes: Counter[str] = Counter()
    for _, value in state.described():
        if isinstance(value, Payload):
            if value.kind == 0:
                dtype = DType.from_code(value.dtype)
                sizes[dtype.name] += _elements(value.sizes) * dtype.itemsize
        elif hasattr(value, "dtype"):
            sizes[value.dtype.name] += value.nbytes
    return sizes


def elements_of(state: TensorDict) -> int:
    """Elements of all tensors."""
    total = 0
    for _, value in state.described():
        if isinstance(value, Payload):
            total += _elements(value.sizes) if value.kind == 0 else 0
        elif hasattr(value, "numel"):
            total += value.numel
    return total


def _elements(sizes: tuple[int, ...]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def size_text(size: float) -> str:
    """Bytes for people: 1.5 MiB.

    >>> size_text(512), size_text(1 << 20)
    ('512 B', '1.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
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
    value = node.meta.get("val")
    return f"{name}: {value}" if value is not None else name


def _cut(parts: Any) -> str:
    text = ""
    for part in parts:
        if len(text) + len(part) > _WIDTH:
            return f"{text}, ..."
        text = f"{text}, {part}" if text else part
    return text
