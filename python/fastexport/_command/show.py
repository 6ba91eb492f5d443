"""fastexport show: the program, or a part of it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fastexport._command.arguments import add_model, add_output_format
from fastexport._command.exits import CLEAN, unknown
from fastexport._command.files import open_program
from fastexport._command.output import write_document
from fastexport._naming import pretty
from fastexport._terminal import write, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram
    from fastexport._tree import Module


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help='a .pt2 file; "-" is standard input')
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--code", action="store_true", help="the graph as Python code")
    what.add_argument("--signature", action="store_true", help="inputs, outputs and ranges only")
    what.add_argument("--summary", action="store_true", help="a few lines about the whole")
    what.add_argument("--table", action="store_true", help="the nodes as a table")
    what.add_argument("--tree", action="store_true", help="the modules, repeats folded")
    what.add_argument("--node", metavar="NAME", help="one node with its meta; of a subgraph: true_graph_0/NAME")
    what.add_argument("--subgraph", metavar="PATH", help="one subgraph, such as true_graph_0")
    add_output_format(parser, "text", "json")
    add_model(parser)


def run(options: Any) -> int:
    """Print the program, or the part of it that was asked for."""
    program = open_program(options.file, options.model)
    is_json = options.output_format == "json"
    if options.node is not None:
        return _show_node(program, options.file, options.node, is_json)
    if options.subgraph is not None:
        return _show_subgraph(program, options.file, options.subgraph, is_json)
    part = next((name for name in ("code", "signature", "summary", "table", "tree") if getattr(options, name)), None)
    if is_json:
        _write_json(part or "program", _JSON[part](program))
    else:
        _TEXT[part](program)
    return CLEAN


def _write_json(part: str, value: dict[str, Any]) -> None:
    write_document("show", {"part": part, **value})


def _subgraphs_of(graph: Graph, prefix: str = "") -> Iterator[tuple[str, Graph]]:
    """All subgraphs below a graph, by path."""
    for name, inner in (graph.subgraphs or {}).items():
        yield prefix + name, inner
        yield from _subgraphs_of(inner, f"{prefix}{name}.")


# ---- as text


def _write_program(program: ExportedProgram) -> None:
    write(str(program.graph))
    for path, graph in _subgraphs_of(program.graph):
        write(f"\n{path}:\n{graph}")
    write(str(program.graph_signature).rstrip("\n"))
    _write_ranges(program)


def _write_ranges(program: ExportedProgram) -> None:
    if program.range_constraints:
        write(f"\n# ranges\n{program.range_constraints}")


def _write_signature(program: ExportedProgram) -> None:
    write(str(program.graph_signature).strip("\n"))
    _write_ranges(program)


def _write_code(program: ExportedProgram) -> None:
    write(_code_of(program.graph_module))
    for path, code in _inner_code(program):
        write(f"\n# {path}\n{code}")


def _write_table(program: ExportedProgram) -> None:
    rows = [("opcode", "name", "target", "args", "kwargs")]
    rows += [(n.op, n.name, pretty(n.target), str(n.args), str(n.kwargs)) for n in program.graph.nodes]
    write_table(rows)


def _write_tree(program: ExportedProgram) -> None:
    from fastexport._tree import module_tree, tree_lines

    write("\n".join(tree_lines(module_tree(program), encoding=sys.stdout.encoding)))


def _code_of(module: Any) -> str:
    return str(module.code).strip("\n").rstrip()


def _inner_code(program: ExportedProgram) -> list[tuple[str, str]]:
    module = program.graph_module
    found = []
    for path, _ in _subgraphs_of(program.graph):
        inner: Any = module
        for name in path.split("."):
            inner = getattr(inner, name)
        found.append((path, _code_of(inner)))
    return found


# ---- as JSON


def _node_json(node: Any) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "target": pretty(node.target),
        "args": [str(arg) for arg in node.args],
        "kwargs": {key: str(value) for key, value in node.kwargs.items()},
        "users": [user.name for user in node.users],
    }


def _nodes_json(graph: Graph) -> list[dict[str, Any]]:
    return [_node_json(node) for node in graph.nodes]


def _spec_json(spec: Any) -> dict[str, Any]:
    return {"kind": spec.kind.name, "name": spec.arg.name, "target": spec.target}


def _signature_json(program: ExportedProgram) -> dict[str, Any]:
    signature = program.graph_signature
    return {
        "inputs": [_spec_json(spec) for spec in signature.input_specs],
        "outputs": [_spec_json(spec) for spec in signature.output_specs],
        "ranges": {str(key): [r.lower, r.upper] for key, r in program.range_constraints.items()},
    }


def _program_json(program: ExportedProgram) -> dict[str, Any]:
    subgraphs = {path: _nodes_json(graph) for path, graph in _subgraphs_of(program.graph)}
    return {**_signature_json(program), "nodes": _nodes_json(program.graph), "subgraphs": subgraphs}


def _summary_json(program: ExportedProgram) -> dict[str, Any]:
    from fastexport._stats import stats

    return {**_signature_json(program), "statistics": stats(program).to_dict()}


def _tree_json(program: ExportedProgram) -> dict[str, Any]:
    from fastexport._tree import module_tree

    return {"tree": _module_json(module_tree(program))}


def _module_json(module: Module) -> dict[str, Any]:
    return {
        "name": module.name,
        "type": module.type,
        "calls": module.total_operators(),
        "parameters": module.total_parameters(),
        "own_calls": dict(module.operators.most_common()),
        "own_parameters": module.parameters,
        "children": [_module_json(child) for child in module.children.values()],
    }


def _code_json(program: ExportedProgram) -> dict[str, Any]:
    return {"code": _code_of(program.graph_module), "subgraph_code": dict(_inner_code(program))}


_TEXT: dict[str | None, Any] = {
    None: _write_program,
    "code": _write_code,
    "signature": _write_signature,
    "summary": lambda program: write(repr(program)),
    "table": _write_table,
    "tree": _write_tree,
}
_JSON: dict[str | None, Any] = {
    None: _program_json,
    "code": _code_json,
    "signature": _signature_json,
    "summary": _summary_json,
    "table": _program_json,
    "tree": _tree_json,
}


# ---- one node, one subgraph


def _show_node(program: ExportedProgram, file: str, name: str, is_json: bool) -> int:
    path, _, last = name.rpartition("/")
    graphs = {"": program.graph, **{inner.replace(".", "/"): graph for inner, graph in _subgraphs_of(program.graph)}}
    try:
        node = graphs[path].node(last)
    except KeyError:
        names = [f"{inner}/{n.name}" if inner else n.name for inner, graph in graphs.items() for n in graph.nodes]
        raise unknown(f"{file} has no node {name!r}", names, name, f"fastexport show {file}") from None
    if is_json:
        meta = {key: str(value) for key, value in node.meta.items()}
        _write_json("node", {"node": {**_node_json(node), "meta": meta}})
        return CLEAN
    write(node.format_node() or f"{node.op} {node.name}")
    rows = [("users", ", ".join(user.name for user in node.users) or "none")]
    rows += [(key, str(value)) for key, value in node.meta.items() if key != "stack_trace"]
    write_table(rows)
    if node.meta.get("stack_trace"):
        write(node.meta["stack_trace"].rstrip())
    return CLEAN


def _show_subgraph(program: ExportedProgram, file: str, path: str, is_json: bool) -> int:
    graphs = dict(_subgraphs_of(program.graph))
    path = path.replace("/", ".")  # as --node has it
    if path not in graphs:
        raise unknown(f"{file} has no subgraph {path!r}", list(graphs), path, f"fastexport show {file}")
    if is_json:
        _write_json("subgraph", {"subgraph": path, "nodes": _nodes_json(graphs[path])})
    else:
        write(str(graphs[path]))
    return CLEAN
