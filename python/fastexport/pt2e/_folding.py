"""Batch normalization folded into the convolution or linear layer before it.

The weights are computed by torch's own functions. Folded is where the result is the same function: in inference mode,
and where nothing else uses the layer's result or its weights.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, NamedTuple

from fastexport._passes import eliminate_dead_code
from fastexport._results import PassResult
from fastexport.pt2e._graphs import find_attribute, op_name, parts

_CONV = frozenset(f"aten.conv{n}d.{overload}" for n in (1, 2, 3) for overload in ("default", "padding"))
_CONV_TRANSPOSE = frozenset(
    ("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
)
_LINEAR = frozenset(("aten.linear.default",))
_BATCH_NORM = "aten.batch_norm.default"
_BATCH_NORM_3 = "aten._native_batch_norm_legit_no_training.default"  # has three results, of which the first matters
_TRAINING, _EPS = 5, {_BATCH_NORM: 7, _BATCH_NORM_3: 6}
_GROUPS = 6  # of a transposed convolution


class _Fold(NamedTuple):
    """A layer and the normalization after it; weights as tensors."""

    layer: Any
    norm: Any
    weight: Any
    bias: Any
    affine: list[Any]  # weight, bias, running mean, running variance of the normalization


class _CannotFold(Exception):
    """Why not."""


def fold_conv_bn(g: Any, *, linear: bool = True) -> PassResult:
    """Fold each batch normalization into the convolution or linear layer before it.

    Done is what torchao's ``prepare_pt2e`` does first, but for cases where that changes the result: a normalization in
    training mode, a layer whose result or weights are used elsewhere too, a transposed convolution in groups, and a
    linear layer on more than two dimensions. Dead code is removed and the module recompiled, once for all.

    Args:
        g: a GraphModule, a torch.fx.Graph with an owning module, or a fastexport Graph with one; as
            ``torch.export.export(...).module()`` gives it, weights being get_attr nodes. Its module gets the new
            weights under the names of the old; a layer without bias gets one, called as the weight with ``_bias``.
        linear: fold into linear layers too.

    Returns:
        A `PassResult`: ``replaced`` tells for each normalization the layer it went into, ``reasons`` for each that
        stayed why.

    Raises:
        ValueError: the graph has no owning module.
        TypeError: g is none of these.
    """
    start = time.perf_counter()
    graph, module, recompile = parts(g)
    if module is None:
        raise ValueError("the graph has no owning module, so there are no weights to fold into; give its GraphModule")
    uses = Counter(id(find_attribute(module, node.target)) for node in graph.find_nodes(op="get_attr"))
    replaced: dict[str, str] = {}
    reasons: dict[str, str] = {}
    before = [node.name for node in graph.nodes]
    for norm in [node for node in graph.nodes if op_name(node) in _EPS]:
        try:
            fold = _find_fold(norm, module, uses, linear)
        except _CannotFold as reason:
            reasons[norm.name] = f"kept: {reason}"
            continue
        _fold(fold, graph, module)
        replaced[norm.name] = fold.layer.name
        reasons[norm.name] = f"folded into {fold.layer.name}"
    if replaced:
        eliminate_dead_code(graph)
        recompile()
    after = {node.name for node in graph.nodes} if replaced else set(before)
    return PassResult(
        "fold_conv_bn",
        bool(replaced),
        removed=[name for name in before if name not in after],
        replaced=replaced,
        added=sorted(after.difference(before)),
        reasons=reasons,
        seconds=time.perf_counter() - start,
    )


def _argument(node: Any, index: int, name: str, default: Any = None) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def _find_fold(norm: Any, module: Any, uses: Counter[int], linear: bool) -> _Fold:
    """What can be folded at a normalization.

    Raises:
        _CannotFold: nothing, and why.
    """
    layer = _argument(norm, 0, "input")
    name = op_name(layer)
    if name not in _CONV | _CONV_TRANSPOSE and not (linear and name in _LINEAR):
        raise _CannotFold(f"it follows {layer}, which is no convolution" + (" or linear layer" if linear else ""))
    if op_name(norm) == _BATCH_NORM and _argument(norm, _TRAINING, "training") is not False:
        raise _CannotFold("it is in training mode; call eval() before the export")
    if op_name(norm) == _BATCH_NORM_3 and any(op_name(u) != "getitem" or u.args[1] != 0 for u in norm.users if u.users):
        raise _CannotFold("its other results are used")
    if len(layer.users) != 1:
        others = ", ".join(user.name for user in layer.users if user is not norm)
        raise _CannotFold(f"the result of {layer} is also used by {others}")
    if name in _CONV_TRANSPOSE and _argument(layer, _GROUPS, "groups", 1) != 1:
        raise _CannotFold(f"{layer} is a transposed convolution in groups")
    if name in _LINEAR and getattr(layer.meta.get("val"), "ndim", 2) > 2:
        raise _CannotFold(f"{layer} works on the last dimension of more than two, the normalization on the second")
    weight, bias = (_constant(_argument(layer, i, part), module) for i, part in ((1, "weight"), (2, "bias")))
    parts_of_norm = ((1, "weight"), (2, "bias"), (3, "running_mean"), (4, "running_var"))
    affine = [_constant(_argument(norm, i, part), module) for i, part in parts_of_norm]
    if weight is None or affine[2] is None or affine[3] is None:
        raise _CannotFold("it has no running statistics" if weight is not None else f"{layer} has no weight")
    for tensor, part in ((weight, "weight"), (bias, "bias")):
        if tensor is not None and uses[id(tensor)] != 1:
            raise _CannotFold(f"the {part} of {layer} is used in {uses[id(tensor)]} places")
    for index in (1, 2):
        node = _argument(layer, index, "weight" if index == 1 else "bias")
        if node is not None and len(node.users) != 1:
            raise _CannotFold(f"{node} is used by others than {layer} too")
    return _Fold(layer, norm, weight, bias, affine)


def _constant(node: Any, module: Any) -> Any:
    """The tensor that a get_attr node stands for; None for None."""
    if node is None:
        return None
    if getattr(node, "op", None) != "get_attr":
        raise _CannotFold(f"{node} is no constant of the module")
    tensor = find_attribute(module, node.target)
    if tensor is None:
        raise _CannotFold(f"the module has no {node.target}")
    return tensor


def _fold(fold: _Fold, graph: Any, module: Any) -> None:
    from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

    layer, norm = fold.layer, fold.norm
    gain, shift, mean, variance = fold.affine
    eps = _argument(norm, _EPS[op_name(norm)], "eps")
    if op_name(layer) in _LINEAR:
        weight, bias = fuse_linear_bn_weights(fold.weight, fold.bias, mean, variance, eps, gain, shift)
    else:
        transpose = op_name(layer) in _CONV_TRANSPOSE
        weight, bias = fuse_conv_bn_weights(fold.weight, fold.bias, mean, variance, eps, gain, shift, transpose)
    weight_node = _argument(layer, 1, "weight")
    _set_parameter(module, weight_node.target, weight)
    if fold.bias is not None:
        _set_parameter(module, _argument(layer, 2, "bias").target, bias)
    else:
        _add_bias(layer, weight_node.target, bias, graph, module)
    firsts = [norm] if op_name(norm) == _BATCH_NORM else [u for u in norm.users if u.args[1] == 0]
    for node in firsts:
        node.replace_all_uses_with(layer)
    for node in [*norm.users, norm]:
        graph.erase_node(node)


def _add_bias(layer: Any, weight_path: str, bias: Any, graph: Any, module: Any) -> None:
    path = weight_path + "_bias"
    while find_attribute(module, path) is not None:
        path += "_"
    _set_parameter(module, path, bias)
    with graph.inserting_before(layer):
        node = graph.get_attr(path)
    mode = getattr(layer.meta.get("val"), "fake_mode", None)
    if mode is not None:
        node.meta["val"] = mode.from_tensor(bias, static_shapes=True)
    if "bias" in layer.kwargs or len(layer.args) < 2:
        layer.kwargs = {**layer.kwargs, "bias": node}
    else:
        layer.args = (*layer.args[:2], node, *layer.args[3:])


def _set_parameter(module: Any, path: str, value: Any) -> None:
    """Put a parameter where a parameter, a buffer or a plain tensor is, or nothing."""
    *outer, name = path.split(".")
    holder = find_attribute(module, ".".join(outer)) if outer else module
    if name not in holder._parameters and hasattr(holder, name):
        delattr(holder, name)
    setattr(holder, name, value)
