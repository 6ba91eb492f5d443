"""Tokens, which order effects: which values are some, and a graph that does without them.

Each call with an effect is wrapped in `with_effects`, takes the token of the call before it and gives a new one, beside
its results. Subgraphs that are called by `invoke_subgraph` pass a token on as their first argument and result. Where
nothing else depends on the token, the order of the nodes says the same, and so torch's `ExportedProgram.module` takes
tokens away. Source: torch/export/_remove_effect_tokens_pass.py.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fastexport._objects import describe_object

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._graph import Graph

_WITH_EFFECTS = "torch.ops.higher_order.with_effects"
_INVOKE_SUBGRAPH = "torch.ops.higher_order.invoke_subgraph"


def is_token(node: Node) -> bool:
    """Whether a node takes the token out of what a call with an effect gives."""
    return _is_first(node) and _gives_token(node.graph, node.args[0])


def remove_tokens(graph: Graph, inputs: Iterable[Node] = ()) -> None:
    """Take tokens away from a graph that is nobody else's, and from its subgraphs.

    Args:
        graph: the graph.
        inputs: those that are tokens even if no call takes them.

    Raises:
        ValueError: a call with an effect has no value, which would tell how many results it has.
        RuntimeError: something that has no effect uses a token.
    """
    tokens = dict.fromkeys(inputs)
    calls = [node for node in graph.nodes if _gives_token(graph, node)]
    subgraphs = graph.subgraphs or {}
    for path in dict.fromkeys(node.args[0].target for node in calls if _name(node) == _INVOKE_SUBGRAPH):
        remove_tokens(subgraphs[path])
    for node in calls:
        is_wrapped = _name(node) == _WITH_EFFECTS
        token = node.args[0 if is_wrapped else 2]
        for user in filter(_is_first, list(node.users)):
            user.replace_all_uses_with(token)
            graph.erase_node(user)
        if token.op == "placeholder":
            tokens[token] = None
        if is_wrapped:
            _unwrap(graph, node)
        else:
            node.args = (*node.args[:2], *node.args[3:])
            node.meta["val"] = node.meta["val"][1:]
            _move_results(node, node)
    output = graph.output_node()
    output.args = (tuple(result for result in output.args[0] if result not in tokens),)
    for token in tokens:
        graph.erase_node(token)


def _unwrap(graph: Graph, node: Node) -> None:
    """Let a call stand by itself; its token is taken out already."""
    value = node.meta.get("val")
    if not isinstance(value, tuple | list) or len(value) < 2:
        raise ValueError(f"node '{node.name}' has no value, which would tell how many results it has")
    with graph.inserting_before(node):
        call = graph.call_function(node.args[1], node.args[2:], node.kwargs)
    call.meta = {**node.meta, "val": value[1] if len(value) == 2 else value[1:]}
    bindings = node.meta.get("unbacked_bindings")
    if bindings is not None:
        call.meta["unbacked_bindings"] = {symbol: path[1:] for symbol, path in bindings.items()}
    if len(value) > 2:
        _move_results(node, call)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(call)
            graph.erase_node(user)
    graph.erase_node(node)


def _move_results(node: Node, call: Node) -> None:
    """Let results of a node be those of a call that gives no token before them."""
    for user in list(node.users):
        user.args = (call, user.args[1] - 1)


def _name(node: Node) -> str | None:
    """What a node calls, as a file spells it."""
    described = None if node.op != "call_function" else describe_object(node.target)
    return None if described is None else described[2]


def _is_first(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem and node.args[1] == 0


def _gives_token(graph: Graph, node: Any) -> bool:
    name = _name(node)
    if name != _INVOKE_SUBGRAPH:
        return name == _WITH_EFFECTS
    subgraph = (graph.subgraphs or {}).get(node.args[0].target)
    return subgraph is not None and any(_gives_token(subgraph, inner) for inner in subgraph.nodes)
