"""What is shown of each node of a graph: its module, its value, whether it is a weight; for pictures and viewers.

Meta that still waits in a file stays there, for decoding it would take longer than all the rest: its texts are read as
they stand (levels.c), each that comes again is understood once, and only expressions are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastexport import _core
from fastexport._dtypes import DType
from fastexport._graph import Graph
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

__all__ = [
    "ModulePaths",
    "NodeFacts",
    "Weight",
    "class_name",
    "first_value",
    "graph_of",
    "parts_of",
    "prefixes",
    "target_text",
    "value_text",
    "value_text_in_file",
    "value_text_of",
    "weight_of",
    "weight_rows",
]

_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # what torch notes for a node that belongs to no module
_MOST_PARTS = 100  # of a path: a file may say anything, and trees are walked by recursion
_WEIGHT_KINDS = {1: "parameter", 2: "buffer", 3: "constant", 4: "custom object"}  # fe_input_kind of ir.h
_VALUES = ("val", "tensor_meta", "example_value")


@dataclass(slots=True, eq=False)
class Weight:
    """A parameter, buffer or constant, told with the items that use it.

    Attributes:
        name: of its node.
        target: its path in the module, ``layers.0.weight``.
        kind: "parameter", "buffer", "constant", "custom object" or "attribute" (of a graph without a signature).
        text: its dtype and shape, or "".
    """

    name: str
    target: str
    kind: str
    text: str


class ModulePaths:
    """Finds which module a node belongs to: that of the last entry of its nn_module_stack.

    Attributes:
        types: the class of each module that was met, by its path.
    """

    def __init__(self) -> None:
        self.types: dict[str, Any] = {}
        self._entries: dict[str, str] = {}  # text of an entry of a stack -> its path

    def in_text(self, stack: str) -> str:
        """The path of the module, by the text that a file has."""
        last = ""
        for text in stack.split(";"):
            path = self._entries.get(text)
            if path is None:
                path = self._entries[text] = self._in_entry(text)
            last = path or last
        return last

    def _in_entry(self, text: str) -> str:
        from fastexport._meta_json import split_module

        try:
            key, entry = split_module(text)
        except ValueError:
            return ""
        return self.in_meta({key: entry})

    def in_meta(self, modules: Any) -> str:
        """The same by what the meta of a node holds, whatever it is."""
        last = ""
        for entry in modules.values() if isinstance(modules, dict) else ():
            if not isinstance(entry, tuple | list) or len(entry) != 2 or not isinstance(entry[0], str):
                continue
            path, kind = entry
            if not isinstance(kind, str) or kind != _NO_MODULE:
                last = path
                self.types.setdefault(path, kind)
        return last


class NodeFacts:
    """The facts of a graph's nodes, by their places in its list.

    Attributes:
        graph: the graph.
        nodes: the list.
        rows: of each node what `_core.level_facts` gives; [1] are the places of its operands.
        types: the class of each module that was called, by its path; complete once `paths` was called.
        weights: the weights by place.
        subgraphs: by place of a get_attr the name of the graph that it gets.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = list(graph.nodes)
        self.rows = _core.level_facts(graph)
        self._modules = ModulePaths()
        self.types = self._modules.types
        self.weights: dict[int, Weight] = {}
        self.subgraphs: dict[int, str] = {}
        self._stacks: dict[Any, str] = {}  # text of a stack -> path of its last entry
        self._texts: dict[str, str] = {}  # text of a value in the file -> as it is shown
        self._targets: dict[int, tuple[str, Any]] = {}  # by identity, which they keep while they are here
        known = weight_rows(graph)
        inner = graph.subgraphs or {}
        for place, node in enumerate(self.nodes):
            if node.op == "get_attr" and node.target in inner:
                self.subgraphs[place] = node.target
            elif weight := weight_of(node, known):
                self.weights[place] = Weight(node.name, *weight, self.text(place))

    def text(self, place: int) -> str:
        """The dtype and shape of a node's value, ``f32[2, 8]``, or ""."""
        raw = self.rows[place][3]
        if raw is None:
            return ""
        if raw is False:
            return value_text_of(self.nodes[place])
        text = self._texts.get(raw)
        if text is None:
            text = self._texts[raw] = value_text_in_file(raw, self.nodes[place])
        return text

    def target(self, target: Any) -> str:
        """`target_text`, which is made once of each."""
        known = self._targets.get(id(target))
        if known is None:
            known = self._targets[id(target)] = target_text(target), target
        return known[0]

    def paths(self) -> list[str]:
        """For each node the path of its module, by the last entry of its nn_module_stack; "" of what is no call."""
        paths = []
        for place, node in enumerate(self.nodes):
            stack = self.rows[place][2]
            if stack is None or place in self.weights or node.op in ("placeholder", "output"):
                paths.append("")
            elif stack is False:
                paths.append(self._modules.in_meta(node.meta.get("nn_module_stack")))
            else:
                path = self._stacks.get(stack)
                if path is None:
                    path = self._stacks[stack] = self._modules.in_text(stack)
                paths.append(path)
        return paths


def graph_of(g: Any) -> Graph:
    """The graph of what may be given as one; of torch's a copy.

    Raises:
        TypeError: it is none of ours or torch's.
    """
    from fastexport._passes import _own_graph

    own = _own_graph(g)
    if own is not None:
        return own
    if type(g).__module__ == "torch.export.exported_program":
        from fastexport import from_export

        return from_export(g).graph
    return Graph.from_fx(g)


def prefixes(path: str) -> Iterator[str]:
    """The paths of the modules round one, and its own."""
    parts = parts_of(path)
    return (".".join(parts[: i + 1]) for i in range(len(parts)))


def parts_of(path: str) -> list[str]:
    """The parts of the path of a module; what nests too deep for any model is one part."""
    return path.split(".", _MOST_PARTS) if path else []


def weight_rows(graph: Graph) -> dict[str, tuple[Any, ...]]:
    """The rows of a graph's signature that are of parameters and the like, by the names of their nodes."""
    signature = graph._signature()
    return {row[1]: row for row in signature[0] if row[0] in _WEIGHT_KINDS} if signature else {}


def weight_of(node: Any, known: dict[str, tuple[Any, ...]]) -> tuple[str, str] | None:
    """Path and kind of the weight that a node stands for, or None; known as `weight_rows` gives it."""
    if node.op == "get_attr":
        return node.target, "attribute"
    row = known.get(node.name) if node.op == "placeholder" else None
    return None if row is None else (row[4] or node.name, _WEIGHT_KINDS[row[0]])


def value_text_in_file(raw: str, node: Any) -> str:
    """`value_text` of what a file says of a node, as `_core.level_facts` gives it; an expression is decoded."""
    code, _, sizes = raw.partition("[")
    if "(" in sizes or any(c.isalpha() for c in sizes):
        return value_text(node.meta.get("val"))
    return f"{DType.from_code(int(code)).abbreviation}[{sizes}"


def value_text_of(node: Any) -> str:
    """`value_text` of what the meta of a node holds."""
    return value_text(first_value(node))


def first_value(node: Any) -> Any:
    """What the meta of a node holds of its value, or None."""
    meta = node.meta
    return next((meta[key] for key in _VALUES if key in meta), None)


def value_text(value: Any) -> str:
    """The dtype and shape of a value of meta, or ""; of several values their getitems tell.

    >>> value_text(TensorMeta("float32", (2, 8)))
    'f32[2, 8]'
    """
    try:
        if isinstance(value, TensorMeta | SymInt | SymFloat | SymBool):
            return str(value)
        return str(TensorMeta.of(value))
    except Exception:  # no tensor, or an object of a user's that may do anything
        return ""


def target_text(target: Any) -> str:
    """What a node calls, in short: ``aten.add.Tensor``; whatever the target is."""
    from fastexport._naming import pretty

    try:
        text = pretty(target)
    except Exception:  # a user's object, which may do anything
        text = type(target).__name__
    return text.removeprefix("torch.ops.")


def class_name(kind: Any) -> str:
    """The name of a class without its module; files have it as text."""
    text = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    return text.rpartition(".")[2] if isinstance(text, str) else ""
