"""The verb diff: what differs between two programs, node by node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastexport._show import subgraphs_of
from fastexport._terminal import write, write_json

if TYPE_CHECKING:
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram

_SAME, _DIFFERENT = 0, 1


def diff(a: ExportedProgram, b: ExportedProgram, options: Any) -> int:
    """Print what b has that a has not, and the other way round."""
    changes = compare(a, b)
    if options.json:
        write_json(changes)
    else:
        for part, lines in changes.items():
            if lines:
                write(f"{part}:")
                write("\n".join(f"  {line}" for line in lines))
        if not any(changes.values()):
            write("the programs are the same")
    return _DIFFERENT if any(changes.values()) else _SAME


def compare(a: ExportedProgram, b: ExportedProgram) -> dict[str, list[str]]:
    """The differences of two programs.

    Returns:
        By part (a graph, the signature, ranges, weights), lines that begin with ``-``, ``+`` or ``~``.
    """
    changes = {"graph": _graphs(a.graph, b.graph)}
    first, second = dict(subgraphs_of(a.graph)), dict(subgraphs_of(b.graph))
    for path in dict.fromkeys([*first, *second]):
        if path in first and path in second:
            changes[f"graph {path}"] = _graphs(first[path], second[path])
        else:
            changes[f"graph {path}"] = [f"{'-' if path in first else '+'} the whole subgraph"]
    changes["signature"] = _texts(
        str(a.graph_signature).strip().splitlines(), str(b.graph_signature).strip().splitlines()
    )
    changes["ranges"] = _texts(_ranges(a), _ranges(b))
    changes["weights"] = _weights(a.state_dict, b.state_dict) + _weights(a.constants, b.constants)
    return changes


def _line(node: Any) -> str:
    """A node without the number of its users, which follows from the other nodes."""
    return re.sub(r" : \[num_users=\d+\]", "", node.format_node() or str(node), count=1)


def _graphs(a: Graph, b: Graph) -> list[str]:
    first = {node.name: _line(node) for node in a.nodes}
    second = {node.name: _line(node) for node in b.nodes}
    lines = [f"- {text}" for name, text in first.items() if name not in second]
    for name, text in second.items():
        if name not in first:
            lines.append(f"+ {text}")
        elif first[name] != text:
            lines += [f"- {first[name]}", f"+ {text}"]
    if not lines and list(first) != list(second):
        lines.append("~ the nodes stand in another order")
    return lines


def _texts(a: list[str], b: list[str]) -> list[str]:
    first, second = set(a), set(b)
    return [f"- {line}" for line in a if line not in second] + [f"+ {line}" for line in b if line not in first]


def _ranges(program: ExportedProgram) -> list[str]:
    return [f"{key}: {value}" for key, value in program.range_constraints.items()]


def _facts(value: Any) -> str:
    return f"{value.dtype.name}{list(value.shape)}" if hasattr(value, "dtype") else value.kind


def _weights(a: Any, b: Any) -> list[str]:
    lines = [f"- {name}" for name in a if name not in b] + [f"+ {name}" for name in b if name not in a]
    for name in a:
        if name not in b:
            continue
        if _facts(a[name]) != _facts(b[name]):
            lines.append(f"~ {name}: {_facts(a[name])} -> {_facts(b[name])}")
        elif a[name].tobytes() != b[name].tobytes():
            lines.append(f"~ {name}: other values")
    return lines
