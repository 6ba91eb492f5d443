"""What is the same at each run is computed once, with torch, and kept as a constant."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from fastexport._graph import Graph
from fastexport._graph_module import GraphModule
from fastexport._memory import memory_facts
from fastexport._module_tree import attribute
from fastexport._results import PassResult
from fastexport._signature import OutputKind

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._program import ExportedProgram

__all__ = ["fold_constants"]

_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
_NAME = "_folded_constant"


def fold_constants(
    g: Any, *, parameters: bool = False, max_bytes: int | None = 1 << 24, recurse: bool = True, explain: bool = False
) -> PassResult:
    """Compute what depends on constants alone, with torch, and keep the values as constants. Needs torch.

    Constants are the tensors that get_attr nodes name, and the inputs of a program that stand for constants and
    buffers, if nothing writes to them. What is computed from them by calls without an effect, that draw no random
    numbers, is one too. Its value becomes an attribute of the owning module, or a constant of the program with an
    input that the signature knows. What is returned, or may share memory with what is returned, is computed at each
    run: a caller may write to it. Tensors that are made of numbers alone, as by torch.zeros, stay as they are: making
    them costs less than keeping them.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram,
            which is changed in place. The graph of a program has no place for constants: give the program.
        parameters: parameters count as constants too. What is folded of them can't be trained any more.
        max_bytes: larger values are not kept; None: all are.
        recurse: go into the subgraphs too.
        explain: give the reason why each node that could be computed was kept or removed.

    Returns:
        A `PassResult`; ``replaced`` tells the node of the constant in the place of each removed one.

    Raises:
        TypeError: g is none of these.
        ImportError: there is no torch.

    Example:
        >>> import torch
        >>> root = torch.nn.Module()
        >>> root.register_buffer("scale", torch.full((2,), 3.0))
        >>> g = Graph(root)
        >>> squared = g.call_function(torch.mul, (g.get_attr("scale"), g.get_attr("scale")))
        >>> out = g.output(g.call_function(torch.add, (g.placeholder("x"), squared)))
        >>> fold_constants(g).replaced, root._folded_constant_0
        ({'mul': '_folded_constant_0'}, tensor([9., 9.]))
    """
    from fastexport._passes import _own_graph

    start = time.perf_counter()
    own = _own_graph(g, "fold_constants")
    if own is not None:
        result = _fold(own if isinstance(g, GraphModule) else g, parameters, max_bytes, recurse, explain)
    else:
        from fastexport import _adapter

        with _adapter.native_edit(g) as native:
            result = _fold(native, parameters, max_bytes, recurse, explain)
    result.seconds = time.perf_counter() - start
    return result


def _fold(g: Any, parameters: bool, max_bytes: int | None, recurse: bool, explain: bool) -> PassResult:
    graph = g if isinstance(g, Graph) else g.graph
    place: _Module | _Program = _Module(graph) if graph is g else _Program(g)
    folding = _Folding(graph, place, parameters, max_bytes)
    with graph.recording("fold_constants"):
        folding.run()
    reasons, removed, replaced = folding.reasons, folding.removed, folding.replaced
    with graph._judged_below(recurse=recurse) as below:
        for path, subgraph in below:
            inner = _fold(subgraph, parameters, max_bytes, False, explain)
            removed += [f"{path}/{name}" for name in inner.removed]
            replaced.update((f"{path}/{old}", f"{path}/{new}") for old, new in inner.replaced.items())
            reasons.update((f"{path}/{name}", why) for name, why in (inner.reasons or {}).items())
    return PassResult(
        "fold_constants",
        bool(removed),
        removed=removed,
        replaced=replaced,
        added=list(replaced.values()),
        reasons=reasons if explain else None,
    )


# ---- where constants are


class _Module:
    """Constants are attributes of the owning module."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._owner = None if graph._signature() else graph.owning_module  # the graph of a program has inputs instead

    def constants(self, nodes: list[Node]) -> Iterator[tuple[Node, Any]]:
        """Those of the nodes that stand for tensors, with these."""
        for node in nodes if self._owner is not None else ():
            value = attribute(self._owner, node.target, None) if node.op == "get_attr" else None
            if node.target not in (self._graph.subgraphs or {}) and value is not None:
                yield node, value

    def add(self, value: Any, before: Node) -> Node | None:
        """A node for one more; None: there is no module to hold it."""
        owner, number = self._owner, 0
        if owner is None:
            return None
        while hasattr(owner, f"{_NAME}_{number}"):
            number += 1
        name = f"{_NAME}_{number}"
        if isinstance(owner, GraphModule):
            setattr(owner, name, value)
        else:
            owner.register_buffer(name, value, persistent=False)  # what state dicts hold stays the same
        with self._graph.inserting_before(before):
            return self._graph.get_attr(name)

    def forget(self, node: Node) -> bool:
        """Take out a node that nobody uses any more."""
        self._graph.erase_node(node)
        return True


class _Program:
    """Constants are inputs that the signature knows."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program

    def constants(self, nodes: list[Node]) -> Iterator[tuple[Node, Any]]:
        signature = self._program.graph_signature
        written = {spec.target for spec in signature.output_specs if spec.kind in _MUTATIONS}
        inputs = {node.name: node for node in nodes if node.op == "placeholder"}
        weights, constants = self._program.state_dict, self._program.constants
        for spec in signature.input_specs:
            if spec.arg.name not in inputs:
                continue
            values = weights if spec.target in weights else constants
            if spec.target is not None and spec.target not in written and spec.target in values:
                yield inputs[spec.arg.name], values[spec.target]

    def add(self, value: Any, before: Node) -> Node | None:
        program, number = self._program, 0
        while f"{_NAME}_{number}" in program.constants:
            number += 1
        return program.add_constant(f"{_NAME}_{number}", value)

    def forget(self, node: Node) -> bool:
        """Inputs stay; `ExportedProgram.remove_unused_inputs` takes them out."""
        return False


# ---- folding


class _Folding:
    """One graph, and what was done to it."""

    def __init__(self, graph: Graph, place: _Module | _Program, parameters: bool, max_bytes: int | None) -> None:
        self._graph, self._place = graph, place
        self._parameters, self._max_bytes = parameters, max_bytes
        self.reasons: dict[str, str] = {}
        self.removed: list[str] = []
        self.replaced: dict[str, str] = {}

    def run(self) -> None:
        judge = partial(memory_facts, self._graph.owning_module)
        # First as if all were constants that may be: only of those that matter the values are looked up.
        _, wanted, leaves = self._graph._find_constants(judge, None)
        if not wanted:
            return
        nodes = [self._graph.node(name) for name in self._graph._names(leaves)]
        known = {node: value for node, value in self._place.constants(nodes) if self._is_constant(value)}
        computed, wanted, _ = self._graph._find_constants(judge, b"".join(node._id for node in known))
        if not wanted:
            return
        names = set(self._graph._names(computed))
        nodes = [node for node in self._graph.nodes if node.name in names]
        keep = set(self._graph._names(wanted))
        values = self._compute(nodes, keep, known)
        for node in nodes:
            if node.name in keep and node in values:
                self._replace(node, values[node], known)
        self._sweep(nodes, known)

    def _is_constant(self, value: Any) -> bool:
        import torch

        from fastexport._core import Tensor

        if isinstance(value, Tensor):
            return self._parameters or not value.is_param
        # A tensor of another class may do what it likes.
        return type(value) is torch.Tensor or (self._parameters and type(value) is torch.nn.Parameter)

    def _compute(self, nodes: list[Node], keep: set[str], known: dict[Node, Any]) -> dict[Node, Any]:
        """The values of the nodes to be kept, and of what they need."""
        import torch

        from fastexport._core import Tensor
        from fastexport._interpreter import Interpreter
        from fastexport._tensors import to_torch_all

        needed: set[Node] = set()
        for node in reversed(nodes):
            if node.name in keep or node in needed:
                needed.update(node.all_input_nodes)
        interpreter = Interpreter(self._graph, garbage_collect_values=False)
        ours = {node.name: value for node, value in known.items() if node in needed and isinstance(value, Tensor)}
        converted = to_torch_all(ours) if ours else {}
        env = interpreter.env = {
            node: converted.get(node.name, value) for node, value in known.items() if node in needed
        }
        with torch.no_grad():
            for node in nodes:
                if node.name not in keep and node not in needed:
                    continue
                try:
                    env[node] = interpreter.run_node(node)
                except Exception as error:  # it will be raised when the graph runs, if it gets that far
                    self.reasons[node.name] = f"kept: it can't be computed ({type(error).__name__}: {error})"
        return env

    def _replace(self, node: Node, value: Any, known: dict[Node, Any]) -> None:
        kept = self._storable(value)
        if isinstance(kept, str):
            self.reasons[node.name] = f"kept: {kept}"
            return
        new = self._place.add(kept, node)
        if new is None:
            self.reasons[node.name] = "kept: there is no module, or no program was given, to hold the value"
            return
        new.meta.update({key: entry for key, entry in node.meta.items() if key != "from_node"})
        node.replace_all_uses_with(new)
        self.replaced[node.name] = new.name
        self.reasons[node.name] = f"removed: '{new.name}' has its value"

    def _storable(self, value: Any) -> Any:
        """The value in memory of its own; or why it can't be kept, a str."""
        import torch

        if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
            return "its value is not a tensor"
        if self._max_bytes is not None and value.numel() * value.element_size() > self._max_bytes:
            return f"its value takes more than {self._max_bytes} bytes"
        copy = value.detach().clone()
        if copy.stride() != value.stride():
            return "its value does not lie in memory as a tensor of its own would"
        return copy

    def _sweep(self, nodes: list[Node], known: dict[Node, Any]) -> None:
        """Take out what was only there for what is a constant now."""
        if not self.replaced:
            return
        used_before = [node for node in known if node.users]
        for node in reversed(nodes):
            if not node.users:
                self.removed.append(node.name)
                self.reasons.setdefault(node.name, "removed: only constants were computed from it")
                self._graph.erase_node(node)
        for node in used_before:
            name = node.name
            if not node.users and self._place.forget(node):
                self.removed.append(name)
                self.reasons[name] = "removed: only constants were computed from it"
