"""Graphs of any size, the same in torch.fx and in fastexport: one function builds both.

Whatever is here uses the API that torch.fx.Graph and fastexport.Graph have in common.
"""

import operator
import random
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def build(graph: Any, nodes: int, *, dead: float = 0.1, seed: int = 0) -> Any:
    """Fill an empty graph with about so many nodes; the same ones for the same seed.

    Sums, products, activations and shapes of earlier values, picked at random; lists, floats and
    keywords among the arguments; in a block of twenty a split whose first part is read twice, by
    two getitems.

    Args:
        graph: a torch.fx.Graph or fastexport.Graph without nodes.
        nodes: how many to make; the last block is made whole.
        dead: the share of nodes that nobody uses.
        seed: of the random choices.

    Returns:
        The graph.
    """
    rng = random.Random(seed)
    inputs = [graph.placeholder(name) for name in ("x", "y", "mask")]
    values, live, made, unused = list(inputs), inputs[0], 3, 0
    call = graph.call_function

    def pick() -> Any:
        return values[rng.randrange(len(values))]

    while made < nodes - 1:
        split = call(aten.split.Tensor, (live, 2), {"dim": 1})
        first = call(operator.getitem, (split, 0))
        again = call(operator.getitem, (split, 0))
        second = call(operator.getitem, (split, 1))
        live = call(aten.add.Tensor, (first, again), {"alpha": 2})
        values += [second, live]
        made += 5
        for _ in range(3):
            live = call(aten.mul.Tensor, (live, pick()))
            values.append(live)
            live = call(aten.add.Tensor, (live, pick()))
            values.append(live)
            live = call(aten.relu.default, (live,))
            made += 3
        joined = call(aten.cat.default, ([live, pick(), second], 1))
        shaped = call(aten.view.default, (joined, [2, -1, 64]))
        scaled = call(aten.mul.Tensor, (shaped, 0.125))
        live = call(aten.slice.Tensor, (scaled, 1, 0, 8))
        values += [joined, live]
        made += 4
        while unused < dead * made:
            call(aten.sigmoid.default, (pick(),))
            made += 1
            unused += 1
    graph.output((live, values[-2]))
    return graph


def plant_dead(graph: Any, share: float, seed: int = 0) -> int:
    """Add calls that nobody uses until they are this share of the nodes; returns how many.

    Each reads the value of a call; where nodes tell what they give (meta["val"]), a tensor.
    """
    calls = [node for node in graph.nodes if node.op == "call_function"]
    calls = [node for node in calls if _gives_tensor(node)] or calls
    count = round(share / (1 - share) * len(graph.nodes))
    rng = random.Random(seed)
    for node in sorted(rng.choices(calls, k=count)):
        with graph.inserting_after(node):
            graph.call_function(aten.sigmoid.default, (node,))
    return count


def plant_getitems(graph: Any, share: float, seed: int = 0) -> int:
    """Let each reader of some values take its part of a split with a getitem of its own.

    Every chosen value goes through a split into one part, so what the graph computes stays the
    same. The nodes must tell the shape of their values (meta["val"]). Values are chosen until
    getitems that repeat another are this share of the nodes, or all values are.

    Returns:
        How many getitems repeat another.
    """
    rng = random.Random(seed)
    calls = [n for n in graph.nodes if len(n.users) > 1 and _gives_tensor(n)]
    rng.shuffle(calls)
    wanted, repeated = share * len(graph.nodes), 0
    for node in calls:
        shape = node.meta["val"].shape
        if repeated >= wanted:
            break
        if not shape or shape[0] == 0:
            continue
        readers = list(node.users)
        with graph.inserting_after(node):
            split = graph.call_function(aten.split.Tensor, (node, int(shape[0])))
        for reader in readers:
            with graph.inserting_before(reader):
                part = graph.call_function(operator.getitem, (split, 0))
            reader.replace_input_with(node, part)
        repeated += len(readers) - 1
    return repeated


def plant_copies(graph: Any, count: int) -> list[Any]:
    """Put a clone between each of some calls and all that use it; returns the clones."""
    calls = [node for node in graph.nodes if node.op == "call_function" and node.users]
    clones = []
    for node in calls[:count]:
        with graph.inserting_after(node):
            clone = graph.call_function(aten.clone.default, (node,))
        node.replace_all_uses_with(clone)
        clone.args = (node,)
        clones.append(clone)
    return clones


def _gives_tensor(node: Any) -> bool:
    return node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)


def builder_of(graph: Any) -> Callable[[Any], Any]:
    """A function that makes the nodes of a graph again in an empty one, as if written by hand.

    It calls the graph's API once for each node and does nothing else.
    """
    constants: dict[str, Any] = {}
    place = {node: f"n{i}" for i, node in enumerate(graph.nodes)}

    def constant(value: Any) -> str:
        name = f"c{len(constants)}"
        constants[name] = value
        return name

    def text(value: Any) -> str:
        if hasattr(value, "all_input_nodes"):
            return place[value]
        if isinstance(value, tuple):
            return f"({''.join(f'{text(item)}, ' for item in value)})"
        if isinstance(value, list):
            return f"[{', '.join(text(item) for item in value)}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {text(item)}' for key, item in value.items())}}}"
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        return constant(value)

    functions = {node.target: constant(node.target) for node in graph.nodes if node.op == "call_function"}
    lines = ["def build(graph):", "    call_function = graph.call_function"]
    for node in graph.nodes:
        args = f"{text(node.args)}, {text(dict(node.kwargs))}" if node.kwargs else text(node.args)
        if node.op == "call_function":
            call = f"call_function({functions[node.target]}, {args})"
        elif node.op in ("placeholder", "get_attr"):
            call = f"graph.{node.op}({node.target!r})"
        elif node.op == "output":
            call = f"graph.output({text(node.args[0])})"
        else:
            call = f"graph.{node.op}({node.target!r}, {args})"
        lines.append(f"    {place[node]} = {call}")
    lines.append("    return graph")
    exec(compile("\n".join(lines), "<a graph, written out>", "exec"), constants)
    return constants["build"]


def describe(graph: Any) -> list[tuple[Any, ...]]:
    """All that makes a graph, of either kind, node by node; equal lists mean equal graphs."""
    return [
        (
            node.op,
            node.name,
            node.target,
            repr(node.args),
            repr(node.kwargs),
            node.type,
            [user.name for user in node.users],
        )
        for node in graph.nodes
    ]
