"""Graphs as the JSON that Model Explorer shows. The nodes are written in C; what is told beside them comes from here.

The fields are those of model_explorer's graph_builder.py (ai-edge-model-explorer 0.1.34).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from fastexport import _core
from fastexport._graph import Graph
from fastexport._node_facts import (
    ModulePaths,
    argument_names,
    class_name,
    graph_of,
    parts_of,
    target_text,
    value_text_in_file,
    value_text_of,
    weight_of,
    weight_rows,
)
from fastexport._program import ExportedProgram
from fastexport._tree import named_graphs

quoted: Callable[[str], str] = encode_basestring_ascii


class Part(NamedTuple):
    """One graph: its id, its nodes as JSON objects with commas between, and what is told of modules, by namespace."""

    id: str
    nodes: str
    groups: dict[str, dict[str, str]]

    def json(self) -> str:
        """The graph as a JSON text."""
        groups = ",".join(f"{quoted(space)}:{_object(items)}" for space, items in self.groups.items())
        return f'{{"id":{quoted(self.id)},"nodes":[{self.nodes}],"groupNodeAttributes":{{{groups}}}}}'


def graphs_of(g: Any, name: str) -> Iterator[Part]:
    """A graph, then each below it that its nodes run.

    Args:
        g: what has the graph, as for `to_json`.
        name: its id; the name of a subgraph is added after a slash: ``model/true_graph_0``.
    """
    graph, facts = graph_of(g), _facts(g)
    for path, each in named_graphs(graph, name):
        told = _Told(each, path)
        nodes = _core.explorer_nodes(each, told)
        yield Part(path, nodes, {"": facts if each is graph else {}, **told.groups()})


def _facts(g: Any) -> dict[str, str]:
    """What is told of a program as a whole."""
    if not isinstance(g, ExportedProgram):
        return {}
    facts = {"dialect": str(g.dialect), "torch": g.torch_version, "schema": ".".join(map(str, g.schema_version or ()))}
    facts["opset"] = ", ".join(f"{domain} {version}" for domain, version in (g.opset_version or {}).items())
    return {key: value for key, value in facts.items() if value}


class _Told:
    """What C asks of a graph's targets, modules, source lines and values; see `_core.explorer_nodes`."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._name = name
        self._weights = weight_rows(graph)
        self._inner = graph.subgraphs or {}
        self._modules = ModulePaths()
        self._spaces: dict[str, str] = {}  # path of a module -> its namespace

    def groups(self) -> dict[str, dict[str, str]]:
        """The modules that were met, by namespace."""
        types = self._modules.types
        return {self._space(path): {"path": path, "class": class_name(kind)} for path, kind in types.items() if path}

    def leaf(self, node: Any) -> tuple[str, str | None, bool]:
        """An input, an output, a weight, or a graph that others run."""
        if node.op == "get_attr" and node.target in self._inner:
            label = quoted(node.target)
            return _leaf(label, "subgraph"), quoted(f"{self._name}/{node.target}"), True
        weight = weight_of(node, self._weights)
        if weight is None:
            return _leaf(quoted(node.name), "output" if node.op == "output" else "input"), None, False
        target, kind = weight
        more = f',{{"key":"target","value":{quoted(target)}}}'
        return _leaf(quoted(target.rpartition(".")[2]), kind, more), None, True

    def target(self, target: Any) -> tuple[str, tuple[str, ...]]:
        """What nodes call, and the names of its arguments where its schema is known."""
        return quoted(target_text(target)), tuple(map(quoted, argument_names(target)))

    def space(self, stack: str | None, node: Any) -> str:
        """The module of a node."""
        path = (
            self._modules.in_meta(node.meta.get("nn_module_stack")) if stack is None else self._modules.in_text(stack)
        )
        return quoted(self._space(path))[1:-1]

    def source(self, trace: str | None, node: Any) -> str:
        """The line of the model's source that made a node: of the innermost call."""
        from fastexport._findings import frames_of

        text = node.meta.get("stack_trace") if trace is None else trace
        frames = frames_of(text) if isinstance(text, str) else ()
        if not frames:
            return ""
        file, line, function, code = frames[-1]
        where = f"{file}:{line} in {function}" if function else f"{file}:{line}"
        shown = {"source": where, "code": code} if code else {"source": where}
        return "".join(f',{{"key":"{key}","value":{quoted(value)}}}' for key, value in shown.items())

    def _space(self, path: str) -> str:
        """Where the nodes of a module are shown: ``layers/0/mlp``. A part has no slash in it, and is not empty."""
        space = self._spaces.get(path)
        if space is None:
            parts = parts_of(path)
            space = self._spaces[path] = "/".join(part.replace("/", "|") or "_" for part in parts)
        return space

    def value(self, raw: str | None, node: Any) -> str:
        """The dtype and shape of a node's value."""
        text = value_text_of(node) if raw is None else value_text_in_file(raw, node)
        return quoted(text) if text else ""


def _leaf(label: str, kind: str, more: str = "") -> str:
    return f'"label":{label},"attrs":[{{"key":"kind","value":"{kind}"}}{more}]'


def _object(items: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{quoted(key)}:{quoted(value)}' for key, value in items.items())}}}"


def collection_json(label: str, parts: Iterator[Part]) -> str:
    """What Model Explorer opens as a .json file: graphs under a name."""
    return f'{{"label":{quoted(label)},"graphs":[{",".join(part.json() for part in parts)}]}}'
