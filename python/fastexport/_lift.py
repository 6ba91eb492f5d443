"""Weights and constants that are inputs of a program, and those that its graph refers to with get_attr nodes.

An exported program has lifted them all: each is an input. A pass may want them in the graph, where they are used, or
put new ones there. A node that goes from one state to the other stays the same Node, with its name, meta and users, and
the program remembers what the input was, so that lifting it again gives the same program back.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from fastexport._arguments import check_mapping, list_of
from fastexport._interface import _USER, _has_node, _new_placeholder, _signature, _Spec
from fastexport._program import _is_text
from fastexport._signature import _INPUT_KINDS, _OUTPUT_KINDS, InputKind, OutputKind
from fastexport._tokens import remove_tokens

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._errors import Fault
    from fastexport._graph import Graph
    from fastexport._graph_module import GraphModule
    from fastexport._program import ExportedProgram

_NUMBERS = {kind: number for number, kind in enumerate(_INPUT_KINDS)}  # of fe_input_kind
_PREFIXES = {  # of the names of inputs, as torch.export gives them
    InputKind.PARAMETER: "p_",
    InputKind.BUFFER: "b_",
    InputKind.CONSTANT_TENSOR: "c_",
    InputKind.CUSTOM_OBJ: "obj_",
}
_LIFTED = frozenset(_NUMBERS[kind] for kind in _PREFIXES)
_ORDER = [_NUMBERS[kind] for kind in (InputKind.TOKEN, *_PREFIXES)]
_COPY: Any = "torch.ops.aten.copy_.default"
_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


# ---- one more constant ---------------------------------------------------------------------------


def add_constant(program: ExportedProgram, name: str, value: Any, kind: InputKind, persistent: bool) -> Node:
    """See `ExportedProgram.add_constant`."""
    if kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
        raise ValueError(f"a tensor can be a PARAMETER, a BUFFER or a CONSTANT_TENSOR, not {kind}")
    if not isinstance(name, str):
        raise TypeError(f"the path of a constant is a str, not {type(name).__name__}")
    if not all(name.split(".")):
        raise ValueError(f"{name!r} is no path: names of modules and a name, with dots between")
    inputs, outputs = _signature(program)
    if name in program.state_dict or name in program.constants:
        raise ValueError(f"the program has {name!r} already")
    if not _is_text(name):
        raise ValueError(f"{name!r} is no path: it holds a lone surrogate")
    is_constant = kind is InputKind.CONSTANT_TENSOR or (kind is InputKind.BUFFER and not persistent)
    value = _as_value(program, name, value, kind is InputKind.PARAMETER)
    meta = program._meta_of(name, value)
    position = _position_for(inputs, _NUMBERS[kind])
    node = _new_placeholder(program, _free_name(program.graph, kind, name, set()), position)
    node.meta["val"] = meta
    persistent = kind is InputKind.BUFFER and persistent
    inputs.insert(position, (_NUMBERS[kind], node.name, None, None, name, persistent, -1))
    program.graph._set_signature(inputs, outputs)
    program._add_values({name: value}, is_constant=is_constant)
    return node


def _as_value(program: ExportedProgram, name: str, value: Any, is_parameter: bool) -> Any:
    """A tensor as the program holds them; a TypeError names what it was to be."""
    try:
        return program._as_value(value, is_parameter)
    except TypeError as error:
        kind = type(value).__name__
        raise TypeError(
            f"the constant {name!r} has to be a tensor, or an array or the like with a buffer of numbers, "
            f"not {'an' if kind[0] in 'aeiou' else 'a'} {kind} ({error})"
        ) from None


def _position_for(inputs: list[_Spec], kind: int) -> int:
    """Where an input of a kind goes: behind the last of its kind and of those that go first."""
    earlier = _ORDER[: _ORDER.index(kind) + 1]
    return max((i + 1 for i, spec in enumerate(inputs) if spec[0] in earlier), default=0)


def _free_name(graph: Graph, kind: InputKind, path: str, taken: set[str]) -> str:
    """A name for the input that stands for a weight, as torch.export would give it, that no node has; it is taken."""
    base = name = _PREFIXES[kind] + "".join(c if f"_{c}".isidentifier() else "_" for c in path)
    number = 0
    while name in taken or _has_node(graph, name):
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name


# ---- lifting -------------------------------------------------------------------------------------


class _Lift:
    """What lifting will do, worked out before anything is changed."""

    def __init__(self, program: ExportedProgram, values: Mapping[str, Any]) -> None:
        self.program = program
        self.given = {path: _as_value(program, path, value, False) for path, value in values.items()}
        # Names by themselves, for mappings look at the graph, which changes when meta is read.
        self.weights, self.constants = set(program.state_dict), set(program.constants)
        self.added: dict[str, Any] = {}  # constants that the program has not got yet
        self.unused: list[Node] = []
        self.again: list[tuple[Node, Node]] = []  # nodes, and the inputs that go into their places
        self.nodes: dict[str, Node] = {}  # path -> the node that becomes its input
        self.specs: dict[str, _Spec] = {}
        self.values: dict[str, Any] = {}  # path -> its meta, where the node has none
        inputs, _ = _signature(program)
        taken: set[str] = set()
        known = {spec[4]: spec[1] for spec in inputs if spec[0] in _LIFTED}
        for node in program.graph.find_nodes(op="get_attr"):
            if node.target not in (program.graph.subgraphs or {}):
                self._plan(node, known, taken)

    def _plan(self, node: Node, known: Mapping[str, str], taken: set[str]) -> None:
        path = node.target
        if path in known:
            self.again.append((node, self.program.graph.node(known[path])))
            return
        if path in self.nodes:
            self.again.append((node, self.nodes[path]))
            return
        was = self.program._inputs.unlifted.get(path)
        if was is not None:
            self.nodes[path] = node
            self.specs[path] = (was[1][0], node.name, *was[1][2:])
            return
        value = self._value(node)
        if value is None:
            return
        if not node.users:
            self.unused.append(node)
            return
        if path not in self.weights and path not in self.constants:
            self.added[path] = value
        self.nodes[path] = node
        self.specs[path] = self._spec(path, value, taken)
        if "val" not in node.meta:
            self.values[path] = self.program._meta_of(path, value)

    def _value(self, node: Node) -> Any:
        """What a node refers to; None when it is neither a tensor nor an object, and so nothing to lift."""
        path = node.target
        if path in self.weights:
            return self.program.state_dict[path]
        if path in self.constants:
            return self.program.constants[path]
        if path not in self.given:
            self.given[path] = self.program._attribute(node)
        return self.given[path]

    def _spec(self, path: str, value: Any, taken: set[str]) -> _Spec:
        is_weight = path in self.weights
        if not hasattr(value, "dtype"):
            kind = InputKind.CUSTOM_OBJ
        elif is_weight:
            kind = InputKind.PARAMETER if self.program._is_parameter(value) else InputKind.BUFFER
        else:
            kind = InputKind.CONSTANT_TENSOR
        name = _free_name(self.program.graph, kind, path, taken)
        return _NUMBERS[kind], name, None, None, path, is_weight and kind is InputKind.BUFFER, -1


def lift_constants(program: ExportedProgram, values: Mapping[str, Any] | None) -> list[str]:
    """See `ExportedProgram.lift_constants`."""
    check_mapping("values", values)
    inputs, outputs = _signature(program)
    placeholders = program.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(inputs):
        raise ValueError(f"the graph has {len(placeholders)} inputs, but its signature {len(inputs)}")
    plan = _Lift(program, values or {})

    program._add_values(plan.added, is_constant=True)
    for node in plan.unused:
        program.graph.erase_node(node)
    for path, node in plan.nodes.items():
        _become_input(node, plan.specs[path][1])
        if path not in program._inputs.unlifted:
            _set_meta(node, plan.values.get(path))
    for node, instead in plan.again:
        node.replace_all_uses_with(instead)
        program.graph.erase_node(node)
    _set_inputs(program, _merged(list(zip(placeholders, inputs, strict=True)), plan), outputs)
    program._inputs.unlifted.clear()
    return [node.name for node in plan.nodes.values()]


def _become_input(node: Node, name: str) -> None:
    node.op = "placeholder"
    node.name = node.target = name


def _set_meta(node: Node, value: Any) -> None:
    for key in ("nn_module_stack", "stack_trace"):  # an input is in no module
        node.meta.pop(key, None)
    if value is not None:
        node.meta["val"] = value


_Input = tuple[Any, _Spec]  # a Node and what it stands for


def _merged(inputs: list[_Input], plan: _Lift) -> list[_Input]:
    """The inputs with the new ones at their places.

    Those that were inputs before get their old places back, as far as they are before the user's inputs; the others go
    behind those of their kind and of the kinds that go first.
    """
    unlifted = plan.program._inputs.unlifted
    back: list[tuple[int, _Input]] = []
    new: dict[int, list[_Input]] = {}
    for path, node in plan.nodes.items():
        spec = plan.specs[path]
        if path in unlifted:
            back.append((unlifted[path][0], (node, spec)))
        else:
            new.setdefault(spec[0], []).append((node, spec))
    merged = _put_back(inputs, sorted(back, key=itemgetter(0)))
    for kind in reversed(_ORDER):
        if kind in new:
            position = _position_for([spec for _, spec in merged], kind)
            merged[position:position] = new[kind]
    return merged


def _put_back(inputs: list[_Input], back: list[tuple[int, _Input]]) -> list[_Input]:
    merged: list[_Input] = []
    waiting = deque(back)
    for item in inputs:
        while waiting and (waiting[0][0] <= len(merged) or item[1][0] == _USER):
            merged.append(waiting.popleft()[1])
        merged.append(item)
    return [*merged, *(item for _, item in waiting)]


def _set_inputs(program: ExportedProgram, inputs: list[_Input], outputs: list[_Spec]) -> None:
    """Let these be the inputs, in this order, at the front of the graph."""
    before: Node | None = None
    for node, _ in inputs:
        if before is None:
            next(iter(program.graph.nodes)).prepend(node)
        elif before.next is not node:
            before.append(node)
        before = node
    program.graph._set_signature([spec for _, spec in inputs], outputs)


# ---- and back ------------------------------------------------------------------------------------


def unlift_constants(program: ExportedProgram, names: Collection[str] | None) -> list[Node]:
    """See `ExportedProgram.unlift_constants`."""
    names = None if names is None else list_of("names", names, "names of weights and constants")
    inputs, outputs = _signature(program)
    placeholders = program.graph.find_nodes(op="placeholder")
    lifted = {spec[4] for spec in inputs if spec[0] in _LIFTED}
    unknown = set(names or ()) - lifted
    if unknown:
        raise ValueError(f"no input is the weight or constant {', '.join(map(repr, sorted(unknown)))}")
    chosen = lifted if names is None else set(names)
    kept, nodes = [], []
    for position, (node, spec) in enumerate(zip(placeholders, inputs, strict=True)):
        if spec[0] in _LIFTED and spec[4] in chosen:
            nodes.append((node, spec))
            program._inputs.unlifted[spec[4]] = position, spec
        else:
            kept.append(spec)
    last = placeholders[-1] if placeholders else None
    for node, spec in nodes:
        node.op = "get_attr"
        node.target = spec[4]
        assert last is not None
        if last is not node:
            last.append(node)
        last = node
    program.graph._set_signature(kept, outputs)
    return [node for node, _ in nodes]


def tell_unlifted(program: ExportedProgram, faults: list[Fault]) -> list[Fault]:
    """The same faults; those of get_attr nodes that refer to weights and constants say what is to be done."""
    return [_told(program, each) if each.code == "FX301" and each.node else each for each in faults]


def _told(program: ExportedProgram, fault: Fault) -> Fault:
    name = fault.node or ""
    node = program.graph.node(name) if _has_node(program.graph, name) else None
    if node is None or node.op != "get_attr":
        return fault
    if node.target not in program.state_dict and node.target not in program.constants:
        return fault
    message = (
        f"'{name}' refers to the weight or constant {node.target!r}, which has to be an input of an exported program; "
        "call lift_constants() once the pass that wants it so is done"
    )
    return fault._replace(message=message)


def unlift(program: ExportedProgram) -> GraphModule:
    """See `ExportedProgram.unlift`."""
    from fastexport._graph_module import GraphModule

    inputs, outputs = _signature(program)
    graph = program.graph.__copy__()
    placeholders = graph.find_nodes(op="placeholder")
    graph._set_signature([], [], [])
    nodes: dict[str, Node] = {}
    for node, spec in zip(placeholders, inputs, strict=True):
        nodes[spec[4] or node.name] = _as_attribute(graph, node, spec[4]) if spec[0] in _LIFTED else node
    _write_mutations(graph, outputs, nodes)
    if tokens := [nodes[spec[1]] for spec in inputs if spec[0] == _NUMBERS[InputKind.TOKEN]]:
        remove_tokens(graph, tokens)
    return GraphModule.of_program(graph, ChainMap(program.state_dict, program.constants), program.graph_module.meta)


def _as_attribute(graph: Graph, node: Node, path: str) -> Node:
    with graph.inserting_after(node):
        new = graph.get_attr(path)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
    return new


def _write_mutations(graph: Graph, outputs: list[_Spec], nodes: Mapping[str, Node]) -> None:
    """Let the graph write what outputs update, and return only the user's."""
    output = graph.output_node()
    results = output.args[0]
    written: dict[Node, Node] = {}
    kept = []
    for result, spec in zip(results, outputs, strict=True):
        if _OUTPUT_KINDS[spec[0]] not in _MUTATIONS:
            kept.append(result)
            continue
        with graph.inserting_before(output):
            written[result] = graph.call_function(_COPY, (nodes[spec[4]], result))
    output.args = (tuple(written.get(result, result) for result in kept),)
