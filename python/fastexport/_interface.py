"""Inputs and outputs of a program: added, removed, renamed, with all that has to follow.

A program's interface stands in three places: the placeholders and the output node, the signature, and the calling
convention (how arguments and results nest). Each function here first works out all three, then changes them, so that a
call that fails has changed nothing.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from fastexport._treespec import TreeSpec

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._program import ExportedProgram

_USER = 0  # fe_input_kind and fe_output_kind of csrc/core/ir.h
_LOSS = 1

_Spec = tuple[Any, ...]


def _new_spec(name: str) -> _Spec:
    """A user input or output, as Graph._signature has them."""
    return _USER, name, None, None, None, False, -1


# ---- the calling convention ----------------------------------------------------------------------


def _convention(program: ExportedProgram) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A copy of the module call graph to be changed, and the signature of the program itself in it."""
    calls = copy.deepcopy(program._module_calls())
    if not calls or not calls[0].get("signature"):
        raise ValueError("the program has no calling convention: its module call graph is empty")
    return calls, calls[0]["signature"]


def _spec(program: ExportedProgram, text: str) -> TreeSpec:
    fields = program._program.json("model", "graph_module", "treespec_namedtuple_fields") or {}
    return TreeSpec.from_json(text, fields)


def _without_leaf(spec: TreeSpec, index: int) -> TreeSpec | None:
    """The spec without one of its leaves; None when it is that leaf."""
    if spec.is_leaf():
        return None
    children = spec.children()
    i = 0
    while index >= children[i].num_leaves:
        index -= children[i].num_leaves
        i += 1
    changed = _without_leaf(children[i], index)
    if changed is not None:
        return TreeSpec(spec.type, spec.context, [*children[:i], changed, *children[i + 1 :]])
    return TreeSpec(spec.type, _without_key(spec, i), [*children[:i], *children[i + 1 :]])


def _without_key(spec: TreeSpec, index: int) -> Any:
    """The context of a container that loses a child."""
    name = getattr(spec.type, "__name__", str(spec.type))
    if name in ("tuple", "list", "deque"):
        return spec.context
    if name in ("dict", "OrderedDict"):
        return [key for i, key in enumerate(spec.context) if i != index]
    if name == "defaultdict":
        factory, keys = spec.context
        return [factory, [key for i, key in enumerate(keys) if i != index]]
    raise ValueError(f"it is a field of a {name}, which can't do without; export the program with another type")


def _parameter_of(in_spec: TreeSpec, index: int) -> int | None:
    """Which parameter of forward a leaf is as a whole; None when it is part of one."""
    children = [child for part in in_spec.children() for child in part.children()]
    for i, child in enumerate(children):
        if index == 0 and child.is_leaf():
            return i
        if index < child.num_leaves:
            return None
        index -= child.num_leaves
    return None


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


def rename_input(program: ExportedProgram, old: str, new: str) -> None:
    """See `ExportedProgram.rename_input`."""
    node = _placeholder(program, old)
    node.name = new
    node.target = new


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
    calls = None
    if inputs[position][0] == _USER:
        index = sum(spec[0] == _USER for spec in inputs[:position])
        calls = _calls_without_input(program, index)
    program.graph.erase_node(node)
    if calls is not None:
        program._set_module_calls(calls)


def _calls_without_input(program: ExportedProgram, index: int) -> list[dict[str, Any]]:
    calls, signature = _convention(program)
    in_spec = _spec(program, signature["in_spec"])
    changed = _without_leaf(in_spec, index)
    assert changed is not None  # the spec of inputs is (args, kwargs)
    parameter = _parameter_of(in_spec, index)
    names = signature.get("forward_arg_names")
    if names and parameter is not None and parameter < len(names):
        signature["forward_arg_names"] = names[:parameter] + names[parameter + 1 :]
    signature["in_spec"] = changed.to_json()
    return calls


def add_input(program: ExportedProgram, name: str, value: Any) -> Node:
    """See `ExportedProgram.add_input`."""
    calls, signature = _convention(program)
    args, kwargs = _spec(program, signature["in_spec"]).children()
    inputs, outputs = _signature(program)
    first_user = next((i for i, spec in enumerate(inputs) if spec[0] == _USER), len(inputs))
    position = first_user + args.num_leaves
    args_now = TreeSpec(args.type, args.context, [*args.children(), TreeSpec()])
    signature["in_spec"] = TreeSpec(tuple, None, [args_now, kwargs]).to_json()
    names = signature.get("forward_arg_names")
    if names is not None:
        signature["forward_arg_names"] = [*names[: args.num_children], name, *names[args.num_children :]]

    node = _new_placeholder(program, name, position)
    node.meta["val"] = value
    inputs.insert(position, _new_spec(node.name))
    program.graph._set_signature(inputs, outputs)
    program._set_module_calls(calls)
    return node


def _new_placeholder(program: ExportedProgram, name: str, position: int) -> Node:
    graph = program.graph
    try:
        graph.node(name)
    except KeyError:
        pass
    else:
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
    updated = {spec[4] for spec in outputs if spec[4] is not None}
    removed = []
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), inputs, strict=True):
        kept = node.users or spec[4] in updated or node.name in updated
        if kept or (spec[0] == _USER and not user_inputs):
            continue
        removed.append(node.name)
        if spec[0] == _USER:
            remove_input(program, node.name)
        else:
            program.graph.erase_node(node)
    return removed


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
    calls, signature = _convention(program)
    out_spec = _spec(program, signature["out_spec"])
    children = out_spec.children() if out_spec.type is tuple else [out_spec]
    signature["out_spec"] = TreeSpec(tuple, None, [*children, TreeSpec()]).to_json()
    _, results = _results(program)
    _, outputs = _signature(program)
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
    elif -len(names) <= which < len(names):
        index = which % len(names)
    else:
        raise ValueError(f"the program has {len(names)} outputs, there is none with the number {which}")
    calls, signature = _convention(program)
    changed = _without_leaf(_spec(program, signature["out_spec"]), index)
    if changed is None:
        raise ValueError("it is all that the program returns; a program returns something")
    signature["out_spec"] = changed.to_json()
    _, results = _results(program)
    del results[users[index]], outputs[users[index]]
    _set_outputs(program, results, outputs, calls)


def takes_other_inputs(program: ExportedProgram) -> bool:
    """Whether it is called in another way than in the file, so that the file's example inputs don't fit."""
    if program._calls is None:
        return False
    path = ("graph_module", "module_call_graph", 0, "signature", "in_spec")
    return bool(program._calls[0]["signature"]["in_spec"] != program._program.json("model", *path))


def calls_text(program: ExportedProgram) -> str | None:
    """The module call graph for the writer and the verifier, when it is not the file's."""
    return None if program._calls is None else json.dumps(program._calls)
