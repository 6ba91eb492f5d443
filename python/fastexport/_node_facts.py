"""What is shown of each node of a graph: its module, its value, whether it is a weight; for pictures and viewers.

Meta that still waits in a file stays there, for decoding it would take longer than all the rest: its texts are read as
they stand (levels.c), each that comes again is understood once, and only expressions are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastexport import _core
from fastexport._dtypes import DType
from fastexport._graph import Graph
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

__all__ = [
    "ModulePaths",
    "NodeFacts",
    "Result",
    "Weight",
    "argument_names",
    "class_name",
    "first_value",
    "graph_of",
    "own_of",
    "parts_of",
    "prefixes",
    "results_of",
    "target_text",
    "value_text",
    "value_text_in_file",
    "value_text_of",
    "weight_of",
    "weight_rows",
]

_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # what torch notes for a node that belongs to no module
_WRAPPERS = ("torch.export.", "torch.fx.")  # classes that torch puts round the module that it is given
_MOST_PARTS = 100  # of a path: a file may say anything, and trees are walked by recursion
_WEIGHT_KINDS = {1: "parameter", 2: "buffer", 3: "constant", 4: "custom object"}  # fe_input_kind of ir.h
_RESULTS = (  # by the core's numbers, fe_output_kind of ir.h: what becomes of a result, and its group
    ("returned", "out"),
    ("returned as the loss", "out"),
    ("becomes buffer", "mutation"),
    ("is the gradient of parameter", "gradient"),
    ("is the gradient of input", "gradient"),
    ("becomes input", "mutation"),
    ("becomes parameter", "mutation"),
    ("returned as a token", "token"),
)
_OF_INPUTS = (4, 5)  # whose target is the name of an input, not the path of a weight
_VALUES = ("val", "tensor_meta", "example_value")


@dataclass(slots=True, eq=False)
class Weight:
    """A parameter, buffer or constant, told with the items that use it.

    Attributes:
        name: of its node.
        target: its path in the module, ``layers.0.weight``.
        kind: "parameter", "buffer", "constant", "custom object" or "attribute" (of a graph without a signature).
        text: its dtype and shape, or "".
        becomes: the name of the node that it becomes in the end, or "".
    """

    name: str
    target: str
    kind: str
    text: str
    becomes: str = ""


class Result(NamedTuple):
    """One of the results of a graph.

    Attributes:
        node: the node that it is; None: a constant.
        value: the constant.
        fate: what becomes of it: "returned", "becomes buffer", "is the gradient of parameter" and the like.
        target: the path or name of the buffer, parameter or input, or "".
        input: the name of the node that stands for that; None: there is none.
        group: "out", which whoever calls the program gets, "mutation", "gradient" or "token".
    """

    node: Any
    value: Any
    fate: str
    target: str
    input: str | None
    group: str

    @property
    def text(self) -> str:
        """The fate with its target."""
        return f"{self.fate} {self.target}".rstrip()


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
                if path not in self.types or _is_wrapper(self.types[path]):
                    self.types[path] = kind
        return last


def _is_wrapper(kind: Any) -> bool:
    """Whether a class is one of torch's own round the module, which has the same path."""
    try:
        name = kind if isinstance(kind, str) else f"{kind.__module__}."
    except Exception:  # a user's object, which may do anything
        return False
    return name.startswith(_WRAPPERS)


class NodeFacts:
    """The facts of a graph's nodes, by their places in its list.

    Attributes:
        graph: the graph.
        nodes: the list.
        rows: of each node what `_core.level_facts` gives; [1] are the places of its operands.
        types: the class of each module that was called, by its path; complete once `paths` was called.
        weights: the weights by place.
        subgraphs: by place of a get_attr the name of the graph that it gets.
        results: what the graph gives back.
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
        self.results = results_of(graph)
        becomes = {
            result.input: result.node.name
            for result in self.results
            if result.group == "mutation" and result.node is not None
        }
        for each in self.weights.values():
            each.becomes = becomes.get(each.name, "")

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
    own = own_of(g)
    return own if isinstance(own, Graph) else own.graph


def own_of(g: Any) -> Any:
    """A graph, module or program of ours, or a copy of torch's.

    Raises:
        TypeError: it is none of ours or torch's.
    """
    from fastexport._passes import _own_graph

    if _own_graph(g) is not None:
        return g
    if type(g).__module__ == "torch.export.exported_program":
        from fastexport import from_export

        return from_export(g)
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


def results_of(graph: Graph) -> list[Result]:
    """The results of a graph in order: as its signature tells them, or else all that is in what it returns."""
    values = [value for output in graph.find_nodes(op="output") for value in _leaves(output.args)]
    signature = graph._signature()
    if signature is None or len(signature[1]) != len(values):
        return [_result(value, 0, "", None) for value in values]
    inputs = {row[4]: row[1] for row in signature[0] if row[0] in _WEIGHT_KINDS and row[4] is not None}
    return [
        _result(value, kind, target or "", target if kind in _OF_INPUTS else inputs.get(target))
        for value, (kind, _, _, _, target, *_) in zip(values, signature[1], strict=True)
    ]


def _result(value: Any, kind: int, target: str, input_name: str | None) -> Result:
    is_node = isinstance(value, _core.Node)
    fate, group = _RESULTS[kind]
    return Result(value if is_node else None, None if is_node else value, fate, target, input_name, group)


def _leaves(value: Any) -> Iterator[Any]:
    """What is in tuples, lists and dicts, however they nest."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple | list):
            waiting += reversed(value)
        elif isinstance(value, dict):
            waiting += reversed(value.values())
        else:
            yield value


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


def argument_names(target: Any) -> list[str]:
    """The names of what an operator takes, by its schema; none where that is not known."""
    try:
        schema = _core.operator_schema(target if isinstance(target, str) else target_text(target))
    except Exception:  # of a name that no operator can have
        return []
    return [name for name, *_ in schema[0]] if schema else []


def class_name(kind: Any) -> str:
    """The name of a class without its module; files have it as text."""
    text = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    return text.rpartition(".")[2] if isinstance(text, str) else ""
