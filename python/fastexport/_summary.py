"""A program in a few lines: what a terminal shows for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastexport._dtypes import DType
from fastexport._state import Payload

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram
    from fastexport._state import TensorDict

_WIDTH = 100  # of a list of names, in characters


def summary(program: ExportedProgram) -> str:
    """The kind of file, the size of the graph, what goes in and out, and the weights."""
    lines = [f"ExportedProgram: {about(program)}", *(f"  {name:<9}{text}" for name, text in facts(program))]
    return "\n".join(lines)


def about(program: ExportedProgram) -> str:
    """The dialect, and what wrote the program."""
    version = program._program.json("model", "schema_version")
    source = f"schema {version['major']}.{version['minor']}, torch" if version else "from torch"
    return f"{program.dialect} dialect, {source} {program.torch_version}"


def facts(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """The lines of a summary: names and texts."""
    signature = program.graph_signature
    yield "nodes", nodes_line(program)
    yield "inputs", _values(program, signature.user_inputs)
    yield "outputs", _values(program, signature.user_outputs)
    if len(signature.input_specs) > len(signature.user_inputs):
        yield "weights", weights_line(program)
    ranges = program.range_constraints
    if ranges:
        yield "ranges", _cut(f"{key}: {value}" for key, value in ranges.items())
    warnings = len(program.faults)
    if warnings:
        yield "noted", f"{warnings} warning{'s' * (warnings > 1)}: see .faults"


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
    if getattr(program._program, "layout", "A") != "A":
        return f"{names} (pickled)"
    from fastexport._weight_facts import weights_of

    sizes: Counter[str] = Counter()
    for weight in weights_of(program):
        if weight.dtype is not None:
            sizes[weight.dtype] += weight.nbytes
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
