"""Inputs and outputs of a program: added, removed, renamed, with all that has to follow.

A program's interface stands in three places: the placeholders and the output node, the signature, and the calling
convention (how arguments and results nest). Each function here first works out all three, then changes them, so that a
call that fails has changed nothing.
"""

from __future__ import annotations

import copy
import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from fastexport import _guards
from fastexport._signature import CustomObjArgument
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta
from fastexport._tokens import is_token
from fastexport._treespec import TreeSpec

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram

_USER = 0  # fe_input_kind and fe_output_kind of csrc/core/ir.h
_LOSS = 1
_TOKEN = 5
_TOKEN_OUT = 7
_UPDATES = (2, 5, 6)  # of a buffer, a user's input, a parameter

_Spec = tuple[Any, ...]


def _new_spec(name: str) -> _Spec:
    """A user input or output, as Graph._signature has them."""
    return _USER, name, None, None, None, False, -1


# ---- the calling convention ----------------------------------------------------------------------


def _convention(program: ExportedProgram) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A copy of the module call graph to be changed, and the signature of the program itself in it."""
    calls = copy.deepcopy(program._stored_calls())
    if not calls or not calls[0].get("signature"):
        raise ValueError("the program has no calling convention: its module call graph is empty")
    return calls, calls[0]["signature"]


def _without_leaves(spec: TreeSpec, gone: Sequence[int], start: int = 0) -> TreeSpec | None:
    """The spec without some of its leaves, by their numbers in order; None when it is such a leaf itself.

    Args:
        start: the number of its first leaf.
    """
    end = start + spec.num_leaves
    if bisect_left(gone, start) == bisect_left(gone, end):
        return spec
    if spec.is_leaf():
        return None
    kept, children = [], []
    for i, child in enumerate(spec.children()):
        changed = _without_leaves(child, gone, start)
        start += child.num_leaves
        if changed is not None:
            kept.append(i)
            children.append(changed)
    if len(kept) == spec.num_children:
        return TreeSpec(spec.type, spec.context, children)
    return TreeSpec(spec.type, _context_of(spec, kept), children)


def _type_name(spec: TreeSpec) -> str:
    return getattr(spec.type, "__name__", str(spec.type))


def _context_of(spec: TreeSpec, kept: list[int]) -> Any:
    """The context of a container that keeps only some of its children."""
    name = _type_name(spec)
    if name in ("tuple", "list", "deque"):
        return spec.context
    if name in ("dict", "OrderedDict"):
        return [spec.context[i] for i in kept]
    if name == "defaultdict":
        factory, keys = spec.context
        return [factory, [keys[i] for i in kept]]
    raise ValueError(f"it is a field of a {name}, which can't do without; export the program with another type")


def _fixed_leaves(spec: TreeSpec, start: int = 0) -> Iterator[int]:
    """Numbers of the leaves that are fields of a container which can't lose one."""
    loses = _type_name(spec) in ("tuple", "list", "deque", "dict", "OrderedDict", "defaultdict")
    for child in spec.children():
        if child.is_leaf():
            if not loses:
                yield start
        else:
            yield from _fixed_leaves(child, start)
        start += child.num_leaves


def _parameters_of(in_spec: TreeSpec, leaves: Collection[int]) -> dict[int, bool]:
    """Which parameters of forward the leaves belong to: number -> whether the leaf is all of it."""
    found, start = {}, 0
    for i, child in enumerate(child for part in in_spec.children() for child in part.children()):
        if any(leaf in leaves for leaf in range(start, start + child.num_leaves)):
            found[i] = child.is_leaf()
        start += child.num_leaves
    return found


def _leaves(spec: TreeSpec, way: str = "") -> Iterator[str]:
    """The way to each leaf of a spec, as guards write it; of a container that is unknown, one that they can't have."""
    if spec.is_leaf():
        yield way
    for step, child in zip(_steps(spec), spec.children(), strict=True):
        yield from _leaves(child, way + step)


def _steps(spec: TreeSpec) -> list[str]:
    name = _type_name(spec)
    if name in ("dict", "OrderedDict"):
        return [f"[{key!r}]" for key in spec.context]
    if name == "defaultdict":
        return [f"[{key!r}]" for key in spec.context[1]]
    if name in ("tuple", "list", "deque"):
        return [f"[{i}]" for i in range(spec.num_children)]
    fields = getattr(spec.context, "field_names", None) or getattr(spec.context, "_fields", None)
    return [f".{field}" for field in fields] if name == "namedtuple" and fields else ["<>"] * spec.num_children


def flatten(program: ExportedProgram) -> None:
    """Let a program take its inputs one by one, by the names that they have, and return its results as a plain tuple.

    Raises:
        ValueError: the program has no calling convention.
    """
    calls, signature = _convention(program)
    names = [node.name for node in user_inputs(program)]
    in_spec, out_spec = (program._read_spec(signature[part]) for part in ("in_spec", "out_spec"))
    flat_in = TreeSpec(tuple, None, [_row(len(names)), TreeSpec(dict, [])])
    guards = program.guards
    if in_spec != flat_in:
        guards = _guards.flattened(guards, _places(in_spec, signature.get("forward_arg_names") or []), names)
        signature["in_spec"] = program._write_spec(flat_in)
        signature["forward_arg_names"] = names
    signature["out_spec"] = program._write_spec(_row(out_spec.num_leaves))
    _set_called(program, calls, guards)


def _row(length: int) -> TreeSpec:
    return TreeSpec(tuple, None, [TreeSpec()] * length)


def _places(in_spec: TreeSpec, names: Sequence[str]) -> list[tuple[str, str]]:
    """Of each leaf of the inputs: the parameter of forward that it is in, "" if unknown, and the way from there."""
    parameters = [child for part in in_spec.children() for child in part.children()]
    return [
        (name, way)
        for name, child in zip([*names, *[""] * len(parameters)], parameters, strict=False)
        for way in _leaves(child)
    ]


# ---- inputs --------------------------------------------------------------------------------------


def _placeholder(program: ExportedProgram, name: str) -> Node:
    try:
        node = program.graph.node(name)
    except KeyError:
        node = None
    if node is None or node.op != "placeholder":
        inputs = [found.name for found in program.graph.find_nodes(op="placeholder")]
        raise ValueError(f"the program has no input {name!r}; its inputs are {', '.join(inputs) or 'none'}")
    return node


def _position(program: ExportedProgram, node: Node) -> int:
    """The place of a placeholder in the signature."""
    return program.graph.find_nodes(op="placeholder").index(node)


def _has_node(graph: Graph, name: str) -> bool:
    try:
        graph.node(name)
    except (KeyError, ValueError):  # of the latter what can't be a name
        return False
    return True


def _check_name(name: object) -> None:
    """See that a parameter can be called so: torch writes the name into code."""
    if not isinstance(name, str):
        raise TypeError(f"the name of an input is a str, not {type(name).__name__}")
    if not name.isidentifier() or iskeyword(name):
        raise ValueError(f"an input can't be named {name!r}: it is no identifier that code may use")


def user_inputs(program: ExportedProgram) -> list[Node]:
    """The placeholders of the caller's arguments, numbers and texts among them."""
    inputs, _ = _signature(program)
    nodes = program.graph.find_nodes(op="placeholder")
    return [node for node, spec in zip(nodes, inputs, strict=True) if spec[0] == _USER]


def rename_input(program: ExportedProgram, old: str, new: str) -> None:
    """See `ExportedProgram.rename_input`."""
    _check_name(new)
    node = _placeholder(program, old)
    inputs, _ = _signature(program)
    position = _position(program, node)
    calls = None
    if position < len(inputs) and inputs[position][0] == _USER and old != new:
        calls = _calls_with_parameter(program, sum(spec[0] == _USER for spec in inputs[:position]), old, new)
    node.name = new
    node.target = new
    if calls is not None:
        program._set_module_calls(calls)
        program._set_guards(_guards.renamed(program.guards, old, new))


def _calls_with_parameter(program: ExportedProgram, index: int, old: str, new: str) -> list[dict[str, Any]] | None:
    """The module call graph for an input of another name; None when forward's parameter has not the old one."""
    calls, signature = _convention(program)
    in_spec = program._read_spec(signature["in_spec"])
    ((parameter, is_whole),) = _parameters_of(in_spec, (index,)).items()
    if not is_whole:
        return None
    names = signature.get("forward_arg_names")
    args, kwargs = in_spec.children()
    changed = False
    if names and parameter < len(names) and names[parameter] == old:
        names[parameter] = new
        changed = True
    keyword = parameter - args.num_children
    if keyword >= 0 and kwargs.context[keyword] == old:
        keys = [*kwargs.context[:keyword], new, *kwargs.context[keyword + 1 :]]
        if keys.count(new) > 1:
            raise ValueError(f"the program has a keyword argument {new!r} already")
        kwargs = TreeSpec(kwargs.type, keys, kwargs.children())
        signature["in_spec"] = program._write_spec(TreeSpec(in_spec.type, in_spec.context, [args, kwargs]))
        changed = True
    return calls if changed else None


def remove_input(program: ExportedProgram, name: str) -> None:
    """See `ExportedProgram.remove_input`."""
    node = _placeholder(program, name)
    if node.users:
        users = ", ".join(user.name for user in node.users)
        raise ValueError(f"the input {name!r} is used by {users}; replace these uses first")
    position = _position(program, node)
    inputs, outputs = _signature(program)
    if any(spec[4] == name and spec[0] != _USER for spec in outputs):
        raise ValueError(f"the input {name!r} is updated by an output; remove that output first")
    called = None
    if inputs[position][0] == _USER:
        called = _called_without_inputs(program, [sum(spec[0] == _USER for spec in inputs[:position])])
    program.graph.erase_node(node)
    _forget_values(program, [inputs[position]])
    if called is not None:
        _set_called(program, *called)


def _forget_values(program: ExportedProgram, removed: list[_Spec]) -> None:
    """The weights and constants of inputs that are gone go too, unless another input is the same one."""
    kept = {spec[4] for spec in _signature(program)[0]}
    program._forget_values({spec[4] for spec in removed if spec[4] is not None} - kept)


def _set_called(program: ExportedProgram, calls: list[dict[str, Any]], guards: list[str]) -> None:
    program._set_module_calls(calls)
    program._set_guards(guards)


def _called_without_inputs(program: ExportedProgram, gone: list[int]) -> tuple[list[dict[str, Any]], list[str]]:
    """The module call graph and the guards of a program without some of the user's inputs, by number in order."""
    calls, signature = _convention(program)
    in_spec = program._read_spec(signature["in_spec"])
    changed = _without_leaves(in_spec, gone)
    assert changed is not None  # the spec of inputs is (args, kwargs)
    parameters = _parameters_of(in_spec, set(gone))
    names = signature.get("forward_arg_names") or []
    if names:
        signature["forward_arg_names"] = [name for i, name in enumerate(names) if not parameters.get(i)]
    signature["in_spec"] = program._write_spec(changed)
    touched = [names[i] for i in parameters if i < len(names)]
    return calls, _guards.without(program.guards, touched, gone)


def add_input(program: ExportedProgram, name: str, value: Any) -> Node:
    """See `ExportedProgram.add_input`."""
    _check_name(name)
    _check_value(name, value)
    calls, signature = _convention(program)
    args, kwargs = program._read_spec(signature["in_spec"]).children()
    inputs, outputs = _signature(program)
    first_user = next((i for i, spec in enumerate(inputs) if spec[0] == _USER), len(inputs))
    position = first_user + args.num_leaves
    args_now = TreeSpec(args.type, args.context, [*args.children(), TreeSpec()])
    signature["in_spec"] = program._write_spec(TreeSpec(tuple, None, [args_now, kwargs]))
    names = signature.get("forward_arg_names")
    if names is not None:
        signature["forward_arg_names"] = [*names[: args.num_children], name, *names[args.num_children :]]

    node = _new_placeholder(program, name, position)
    node.meta["val"] = value
    inputs.insert(position, _new_spec(node.name))
    program.graph._set_signature(inputs, outputs)
    _set_called(program, calls, _guards.with_leaf(program.guards, args.num_leaves))
    return node


def _check_value(name: str, value: Any) -> None:
    """See that a value tells what callers may give.

    Raises:
        TypeError: it is something else.
    """
    from fastexport._verifier import classes_of_torch

    classes = (TensorMeta, SymInt, SymFloat, SymBool, CustomObjArgument)
    torchs = classes_of_torch("torch", "SymInt", "SymFloat", "SymBool")
    torchs += classes_of_torch("torch._subclasses.fake_tensor", "FakeTensor")
    if not issubclass(type(value), classes + torchs):
        raise TypeError(
            f"the input {name!r} is told by a TensorMeta, SymInt, SymFloat, SymBool or CustomObjArgument, or by a "
            f"FakeTensor or symbolic number of torch, not by a {type(value).__name__}"
        )


def _new_placeholder(program: ExportedProgram, name: str, position: int) -> Node:
    graph = program.graph
    if _has_node(graph, name):
        raise ValueError(f"a node is named {name!r} already")
    placeholders = graph.find_nodes(op="placeholder")
    first = next(iter(graph.nodes))
    with graph.inserting_after(placeholders[position - 1]) if position else graph.inserting_before(first):
        node = graph.placeholder(name)
    node.name = name
    return node


def remove_unused_inputs(program: ExportedProgram, user_inputs: bool) -> list[str]:
    """See `ExportedProgram.remove_unused_inputs`."""
    inputs, outputs = _signature(program)
    nodes = program.graph.find_nodes(op="placeholder")
    updated = {spec[4] for spec in outputs if spec[4] is not None}
    users = [i for i, spec in enumerate(inputs) if spec[0] == _USER]
    fixed = _fixed_positions(program, users) if user_inputs else set(users)
    gone = [
        i
        for i, (node, spec) in enumerate(zip(nodes, inputs, strict=True))
        if not (node.users or spec[0] == _TOKEN or spec[4] in updated or node.name in updated or i in fixed)
    ]
    removed = [nodes[i].name for i in gone]
    flags = bytearray(len(inputs))
    for i in gone:
        flags[i] = 1
    leaves = [leaf for leaf, i in enumerate(users) if flags[i]]
    called = _called_without_inputs(program, leaves) if leaves else None
    program.graph._erase_inputs(bytes(flags))
    _forget_values(program, [inputs[i] for i in gone])
    if called is not None:
        _set_called(program, *called)
    return removed


def _fixed_positions(program: ExportedProgram, users: list[int]) -> set[int]:
    """Of the user's inputs, by their positions, those that are fields of a container which can't lose one."""
    _, signature = _convention(program)
    return {users[leaf] for leaf in _fixed_leaves(program._read_spec(signature["in_spec"]))}


# ---- outputs -------------------------------------------------------------------------------------


def _signature(program: ExportedProgram) -> tuple[list[_Spec], list[_Spec]]:
    signature = program.graph._signature()
    if signature is None:
        raise ValueError("the program's graph has no signature")
    return signature


def _results(program: ExportedProgram) -> tuple[Node, list[Any]]:
    output = program.graph.output_node()
    results = output.args[0]
    return output, list(results) if isinstance(results, tuple | list) else [results]


def _set_outputs(
    program: ExportedProgram, results: list[Any], outputs: list[_Spec], calls: list[dict[str, Any]]
) -> None:
    inputs, _ = _signature(program)
    output, _ = _results(program)
    output.args = (tuple(results),)
    program.graph._set_signature(inputs, outputs)
    program._set_module_calls(calls)


def add_output(program: ExportedProgram, node: Node) -> None:
    """See `ExportedProgram.add_output`."""
    if getattr(node, "graph", None) is not program.graph or node.op == "output":
        raise ValueError(f"{node} is no node of the program's graph that has a value")
    inputs, outputs = _signature(program)
    tokens = {spec[1] for spec in inputs if spec[0] == _TOKEN} | {spec[1] for spec in outputs if spec[0] == _TOKEN_OUT}
    if node.name in tokens or is_token(node):
        raise ValueError(f"{node.name!r} is a token, which orders effects; it is no result")
    calls, signature = _convention(program)
    out_spec = program._read_spec(signature["out_spec"])
    children = out_spec.children() if out_spec.type is tuple else [out_spec]
    signature["out_spec"] = program._write_spec(TreeSpec(tuple, None, [*children, TreeSpec()]))
    _, results = _results(program)
    position = max((i + 1 for i, spec in enumerate(outputs) if spec[0] in (_USER, _LOSS)), default=len(outputs))
    results.insert(position, node)
    outputs.insert(position, _new_spec(node.name))
    _set_outputs(program, results, outputs, calls)


def remove_output(program: ExportedProgram, which: str | int) -> None:
    """See `ExportedProgram.remove_output`."""
    _, outputs = _signature(program)
    users = [i for i, spec in enumerate(outputs) if spec[0] in (_USER, _LOSS)]
    names = [outputs[i][1] for i in users]
    if isinstance(which, str):
        if which not in names:
            raise ValueError(f"the program has no output {which!r}; its outputs are {', '.join(map(str, names))}")
        index = names.index(which)
    elif not isinstance(which, int):
        raise TypeError(f"which is the name or number of an output, not {which!r}")
    elif -len(names) <= which < len(names):
        index = which % len(names)
    else:
        raise ValueError(f"the program has {len(names)} outputs, there is none with the number {which}")
    calls, signature = _convention(program)
    changed = _without_leaves(program._read_spec(signature["out_spec"]), [index])
    if changed is None:
        raise ValueError("it is all that the program returns; a program returns something")
    signature["out_spec"] = program._write_spec(changed)
    _, results = _results(program)
    del results[users[index]], outputs[users[index]]
    _set_outputs(program, results, outputs, calls)


def updates(program: ExportedProgram) -> dict[int, tuple[Any, Node | None]]:
    """The results that are neither the user's nor a token, by position: each with the input it is the new value of.

    A gradient is that of no input.
    """
    inputs, outputs = _signature(program)
    nodes = program.graph.find_nodes(op="placeholder")
    by_target = {node.name: node for node in nodes} | {
        spec[4]: node for node, spec in zip(nodes, inputs, strict=True) if spec[4] is not None
    }
    _, results = _results(program)
    found = {}
    for position, (value, spec) in enumerate(zip(results, outputs, strict=True)):
        if spec[0] not in (_USER, _LOSS, _TOKEN_OUT):
            found[position] = value, by_target.get(spec[4]) if spec[0] in _UPDATES else None
    return found


def remove_updates(program: ExportedProgram, positions: Collection[int]) -> None:
    """Take results away that are not the user's.

    Args:
        positions: among all results, as in `updates`.
    """
    calls, _ = _convention(program)
    _, outputs = _signature(program)
    _, results = _results(program)
    kept = [i for i in range(len(results)) if i not in positions]
    _set_outputs(program, [results[i] for i in kept], [outputs[i] for i in kept], calls)


def takes_other_inputs(program: ExportedProgram) -> bool:
    """Whether it is called in another way than in the file, so that the file's example inputs don't fit."""
    if program._calls is None:
        return False
    path = ("graph_module", "module_call_graph", 0, "signature", "in_spec")
    return bool(program._calls[0]["signature"]["in_spec"] != program._program.json("model", *path))


def calls_text(program: ExportedProgram) -> str | None:
    """The module call graph for the writer and the verifier, when it is not the file's."""
    from fastexport._signature import replaced_in_calls

    is_files = program._calls is None and not replaced_in_calls(program.graph)
    return None if is_files else json.dumps(program._module_calls())
