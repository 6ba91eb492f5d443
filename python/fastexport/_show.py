"""The verbs that print a program: show, stats, weights."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fastexport._naming import pretty
from fastexport._state import OpaqueValue
from fastexport._summary import count_subgraphs, elements_of, size_text, sizes_by_dtype
from fastexport._terminal import complain_of_name, write, write_json, write_table

if TYPE_CHECKING:
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram

_CLEAN = 0


# ---- show


def show(program: ExportedProgram, options: Any) -> int:
    """Print the program, or the part of it that was asked for."""
    if options.node:
        return _show_node(program, options)
    if options.subgraph:
        return _show_subgraph(program, options)
    if options.json:
        write_json(_show_json(program, options))
    elif options.summary:
        write(repr(program))
    elif options.signature:
        write(str(program.graph_signature).strip("\n"))
        if program.range_constraints:
            write(f"\n# ranges\n{program.range_constraints}")
    elif options.table:
        _write_nodes(program.graph)
    elif options.tree:
        from fastexport._tree import module_tree, tree_lines

        write("\n".join(tree_lines(module_tree(program))))
    else:
        _write_texts(program)
    return _CLEAN


def _write_texts(program: ExportedProgram) -> None:
    write(str(program.graph))
    for path, graph in subgraphs_of(program.graph):
        write(f"\n{path}:\n{graph}")
    write(str(program.graph_signature).rstrip("\n"))
    if program.range_constraints:
        write(f"\n# ranges\n{program.range_constraints}")


def subgraphs_of(graph: Graph, prefix: str = "") -> list[tuple[str, Graph]]:
    """All subgraphs below a graph, by path."""
    found = []
    for name, inner in (graph.subgraphs or {}).items():
        found.append((prefix + name, inner))
        found += subgraphs_of(inner, f"{prefix}{name}.")
    return found


def _target_text(node: Any) -> str:
    return node.target if isinstance(node.target, str) else pretty(node.target)


def _node_json(node: Any) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "target": _target_text(node),
        "args": [str(arg) for arg in node.args],
        "kwargs": {key: str(value) for key, value in node.kwargs.items()},
        "users": [user.name for user in node.users],
    }


def _show_json(program: ExportedProgram, options: Any) -> dict[str, Any]:
    signature = program.graph_signature
    result: dict[str, Any] = {
        "inputs": [_spec_json(spec) for spec in signature.input_specs],
        "outputs": [_spec_json(spec) for spec in signature.output_specs],
        "ranges": {str(key): [r.lower, r.upper] for key, r in program.range_constraints.items()},
    }
    if options.signature or options.summary:
        return result
    result["nodes"] = [_node_json(node) for node in program.graph.nodes]
    result["subgraphs"] = {
        path: [_node_json(node) for node in graph.nodes] for path, graph in subgraphs_of(program.graph)
    }
    return result


def _spec_json(spec: Any) -> dict[str, Any]:
    return {"kind": spec.kind.name, "name": spec.arg.name, "target": spec.target}


def _find_node(program: ExportedProgram, name: str) -> Any:
    """A node by name; one of a subgraph by its path: true_graph_0/add."""
    path, _, last = name.rpartition("/")
    graphs = {"": program.graph, **{inner.replace(".", "/"): graph for inner, graph in subgraphs_of(program.graph)}}
    graph = graphs.get(path)
    try:
        return None if graph is None else graph.node(last)
    except KeyError:
        return None


def _show_node(program: ExportedProgram, options: Any) -> int:
    node = _find_node(program, options.node)
    if node is None:
        return complain_of_name(
            f"there is no node {options.node!r}", [n.name for n in program.graph.nodes], options.node
        )
    if options.json:
        write_json({**_node_json(node), "meta": {key: str(value) for key, value in node.meta.items()}})
        return _CLEAN
    write(node.format_node() or f"{node.op} {node.name}")
    rows = [("users", ", ".join(user.name for user in node.users) or "none")]
    rows += [(key, str(value)) for key, value in node.meta.items() if key != "stack_trace"]
    write_table(rows)
    if node.meta.get("stack_trace"):
        write(node.meta["stack_trace"].rstrip())
    return _CLEAN


def _show_subgraph(program: ExportedProgram, options: Any) -> int:
    graphs = dict(subgraphs_of(program.graph))
    if options.subgraph not in graphs:
        return complain_of_name(f"there is no subgraph {options.subgraph!r}", list(graphs), options.subgraph)
    if options.json:
        write_json([_node_json(node) for node in graphs[options.subgraph].nodes])
    else:
        write(str(graphs[options.subgraph]))
    return _CLEAN


def _write_nodes(graph: Graph) -> None:
    rows = [("opcode", "name", "target", "args", "kwargs")]
    rows += [(n.op, n.name, _target_text(n), str(n.args), str(n.kwargs)) for n in graph.nodes]
    write_table(rows)


# ---- stats


def stats(programs: list[tuple[str, ExportedProgram]], options: Any) -> int:
    """Counts and sizes, a column a file; with two files, the difference too."""
    tables = [(path, _statistics(program)) for path, program in programs]
    if options.json:
        write_json(dict(tables))
        return _CLEAN
    keys = list(dict.fromkeys(key for _, table in tables for key in table))
    head = ["", *(path for path, _ in tables)]
    delta = len(tables) == 2
    rows = [[*head, "change"] if delta else head]
    for key in keys:
        values = [table.get(key) for _, table in tables]
        row = [key, *(_cell(key, value) for value in values)]
        if delta:
            row.append(_change(*values))
        rows.append(row)
    write_table(rows, right=range(1, len(rows[0])))
    return _CLEAN


def _statistics(program: ExportedProgram) -> dict[str, Any]:
    graphs = [program.graph, *(graph for _, graph in subgraphs_of(program.graph))]
    nodes = [node for graph in graphs for node in graph.nodes]
    operators = Counter(pretty(node.target) for node in nodes if node.op == "call_function")
    table: dict[str, Any] = {
        "nodes": len(nodes),
        "subgraphs": count_subgraphs(program.graph),
        **{f"op {op}": count for op, count in Counter(node.op for node in nodes).items()},
        "parameters": len(program.graph_signature.parameters),
        "buffers": len(program.graph_signature.buffers),
        "elements": elements_of(program.state_dict),
    }
    sizes = sizes_by_dtype(program.state_dict) + sizes_by_dtype(program.constants)
    table.update((f"bytes {name}", size) for name, size in sizes.items())
    table["dynamic sizes"] = len(program.range_constraints)
    table["schema"] = ".".join(map(str, program.schema_version))
    table["torch"] = program.torch_version
    table["dialect"] = program.dialect
    table.update((f"calls {name}", count) for name, count in operators.most_common())
    return table


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    return size_text(value) if key.startswith("bytes ") else str(value)


def _change(a: Any, b: Any) -> str:
    if a == b:
        return ""
    if isinstance(a or 0, int) and isinstance(b or 0, int):
        return f"{(b or 0) - (a or 0):+d}"
    return "differs"


# ---- weights


def weights(program: ExportedProgram, options: Any) -> int:
    """The names, shapes, dtypes and sizes of weights and constants; one by name with its values' facts."""
    tensors = {**dict.fromkeys(program.state_dict, "weight"), **dict.fromkeys(program.constants, "constant")}
    if options.name is not None:
        if options.name not in tensors:
            return complain_of_name(f"there is no weight {options.name!r}", list(tensors), options.name)
        tensors = {options.name: tensors[options.name]}
    rows = [_weight_row(program, name, kind) for name, kind in tensors.items()]
    if options.json:
        write_json(rows)
        return _CLEAN
    head = ("name", "kind", "dtype", "shape", "bytes")
    write_table([head, *(tuple(str(row[key]) for key in head) for row in rows)], right=(4,))
    return _CLEAN


def _weight_row(program: ExportedProgram, name: str, kind: str) -> dict[str, Any]:
    value: Any = (program.state_dict if kind == "weight" else program.constants)[name]
    if isinstance(value, OpaqueValue):
        return {"name": name, "kind": value.kind, "dtype": "-", "shape": "-", "bytes": value.nbytes}
    return {
        "name": name,
        "kind": "parameter" if value.is_param else "buffer" if kind == "weight" else kind,
        "dtype": value.dtype.name,
        "shape": list(value.shape),
        "bytes": value.nbytes,
    }
