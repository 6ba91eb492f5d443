"""Nodes that quantize and dequantize: one dequantize node a user, and the meta of what they belong to.

Both give what torchao's DuplicateDQPass and PortNodeMetaForQDQ give, on both kinds of graphs.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from fastexport._edits import Insertion, insert_nodes
from fastexport._errors import FastExportError
from fastexport._passes import eliminate_dead_code
from fastexport._results import PassResult
from fastexport.pt2e._graphs import (
    ANNOTATION,
    CHOOSE,
    DEQUANTIZE,
    QUANTIZE,
    is_annotated,
    is_node,
    op_name,
    parts,
    real_users,
)

_CHOOSE_TENSOR = "quantized_decomposed.choose_qparams.tensor"
_PORTED = ("stack_trace", "quantization_tag")
# What may stand between a weight and its quantize node.
_VIEWS = frozenset(
    (
        "aten.flatten.using_ints",
        "aten.permute.default",
        "aten.permute_copy.default",
        "aten.slice_copy.Tensor",
        "aten.squeeze.dim",
        "aten.squeeze_copy.dim",
        "aten.transpose.int",
        "aten.view_copy.default",
        "aten.view.default",
    )
)


def duplicate_dq(g: Any, *, annotated_only: bool = True) -> PassResult:
    """Give each user of a dequantize node a dequantize node of its own.

    Backends match ``dequantize -> operator -> quantize``, which needs this. The pattern of dynamic quantization
    (``choose_qparams -> getitem -> quantize -> dequantize``) is left shared, as in torchao. Dead code is removed and
    the module recompiled, once.

    Args:
        g: a torch.fx.GraphModule or Graph, or a fastexport Graph.
        annotated_only: only for users with an annotation that asks for something, as torchao's DuplicateDQPass does;
            False: for each user but one.

    Returns:
        A `PassResult`; ``added`` has the new nodes.

    Raises:
        LintError: the graph is not in order.
        TypeError: g is none of these.
    """
    start = time.perf_counter()
    graph, _, recompile = parts(g)
    pairs: list[tuple[Any, Any]] = []  # of a dequantize node and a user
    for node in graph.nodes:
        users = real_users(node) if op_name(node) in DEQUANTIZE - {"torchao.dequantize_affine.default"} else ()
        if len(users) > 1 and not _is_dynamic(node):
            chosen = [user for user in users if is_annotated(user)] if annotated_only else users[1:]
            pairs += [(node, user) for user in chosen]
    copies = insert_nodes(
        graph,
        [Insertion(dq, dq.target, dq.args, dq.kwargs, op=dq.op, before=False, name=dq.name, meta=dict(dq.meta))
         for dq, _ in pairs],
    )  # fmt: skip
    for (dq, user), made in zip(pairs, copies, strict=True):
        if dq.type is not None:
            made.type = dq.type
        user.replace_input_with(dq, made)
    removed = eliminate_dead_code(graph).removed
    if pairs or removed:
        recompile()
    return PassResult(
        "duplicate_dq",
        bool(pairs or removed),
        removed=removed,
        added=[made.name for made in copies],
        seconds=time.perf_counter() - start,
    )


def _is_dynamic(dq: Any) -> bool:
    """Whether the scale of a dequantize node is chosen at run time."""
    quantize = dq.args[0]
    if not is_node(quantize) or op_name(quantize) not in QUANTIZE:
        return False
    scale = quantize.args[1]
    return is_node(scale) and op_name(scale) == "getitem" and op_name(scale.args[0]) == _CHOOSE_TENSOR


def port_qdq_meta(g: Any) -> PassResult:
    """Give nodes that quantize and dequantize the ``stack_trace`` and ``quantization_tag`` of what they are there for.

    A dequantize node gets those of the annotated node that it feeds, a quantize node those of the node whose result it
    quantizes, one on a weight those of the weight; the three of dynamic quantization those of their consumer.

    Args:
        g: a torch.fx.GraphModule or Graph, or a fastexport Graph, that convert_pt2e has given q/dq nodes.

    Returns:
        A `PassResult`; ``reasons`` tells for each node that got something from which.

    Raises:
        FastExportError: a dynamically quantized input has no choose_qparams node, or one in another shape than
            convert_pt2e makes.
        TypeError: g is none of these.
    """
    start = time.perf_counter()
    graph, _, _ = parts(g)
    by_name = {node.name: node for node in graph.nodes}
    reasons: dict[str, str] = {}

    def give(to: Any, source: Any) -> None:
        found = {key: source.meta[key] for key in _PORTED if key in source.meta}
        if found:
            to.meta.update(found)
            reasons[to.name] = f"got {', '.join(found)} from {source.name}"

    for node in graph.nodes:
        if not is_annotated(node):
            continue
        annotation = node.meta[ANNOTATION]
        for key, spec in annotation.input_qspec_map.items():
            source = _own_node(key, node, by_name)
            if source is None or spec is None:
                continue
            if getattr(spec, "is_dynamic", None) is True:
                _port_dynamic(source, node, give)
            else:
                _port_input(source, node, give)
        if annotation.output_qspec is not None and node.users:
            users = real_users(node)
            if users and op_name(users[-1]) in QUANTIZE:
                give(users[-1], node)
    return PassResult("port_qdq_meta", bool(reasons), reasons=reasons, seconds=time.perf_counter() - start)


def _own_node(key: Any, node: Any, by_name: dict[str, Any]) -> Any:
    """The node that an annotation speaks of; in a fastexport graph that was a torch graph, the one of that name."""
    if type(key) is type(node):
        return key
    return None if getattr(key, "_erased", False) else by_name.get(key.name)


def _port_input(source: Any, node: Any, give: Any) -> None:
    dq = next(
        (arg for arg in node.args if is_node(arg) and op_name(arg) in DEQUANTIZE and _origin(arg) is source),
        None,
    )
    if dq is None or not is_node(dq.args[0]) or op_name(dq.args[0]) not in QUANTIZE:
        return
    chain = [dq.args[0]]
    origin = chain[0].args[0]
    while is_node(origin) and op_name(origin) in _VIEWS:
        chain.append(origin)
        origin = origin.args[0]
    if is_node(origin) and origin.op == "get_attr":
        for each in chain:
            give(each, origin)
    give(dq, node)


def _origin(node: Any) -> Any:
    """What a chain of q/dq nodes starts from."""
    while is_node(node) and op_name(node) in QUANTIZE | DEQUANTIZE | {_CHOOSE_TENSOR}:
        node = node.args[0]
    return node


def _port_dynamic(source: Any, node: Any, give: Any) -> None:
    choose = _next_choose(source)
    if choose is None:
        raise FastExportError(f"the input {source} of {node} is dynamic, but no choose_qparams node follows it")
    users = real_users(choose)
    if len(users) != 2:
        raise FastExportError(f"{choose} should have two users, its scale and its zero point, and has {len(users)}")
    quantize = next(iter(users[-1].users), None)
    after = real_users(quantize) if quantize is not None else []
    if len(after) != 1:
        raise FastExportError(f"{quantize} should have one user, its dequantize node, and has {len(after)}")
    for each in (choose, quantize, after[0]):
        give(each, node)


def _next_choose(node: Any) -> Any:
    """The first choose_qparams node downstream, breadth first."""
    queue, seen = deque(node.users), set(node.users)
    while queue:
        each = queue.popleft()
        if op_name(each) in CHOOSE:
            return each
        fresh = [user for user in each.users if user not in seen]
        seen.update(fresh)
        queue.extend(fresh)
    return None
