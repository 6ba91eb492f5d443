"""Calls that give an operand back are taken out."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from fastexport._cse import notes_for
from fastexport._graph import Graph, _removed_names, _replaced_names
from fastexport._memory import FRESH, OPERATOR_NAMES, aten_name, memory_facts
from fastexport._module_tree import attribute
from fastexport._passes import _own_graph
from fastexport._results import PassResult

if TYPE_CHECKING:
    from fastexport._core import Node

__all__ = ["remove_noops"]

# fe_noop in csrc/core/simplify.h
_ALIAS, _VIEW, _RESHAPE, _SLICE, _CONVERT, _DROPOUT, _ADD, _SUB, _MUL, _DIV, _POW, _CAT, _CLONE = range(1, 14)
_KIND_SHIFT = 32
_KINDS = {
    "alias": _ALIAS,
    **dict.fromkeys("contiguous expand_as flatten narrow reshape_as squeeze unflatten view_as".split(), _VIEW),
    **dict.fromkeys(("_unsafe_view", "broadcast_to", "expand", "reshape", "view"), _RESHAPE),
    "slice": _SLICE,
    **dict.fromkeys(("_to_copy", "to", "type_as", "double", "float", "half", "int", "long"), _CONVERT),
    **dict.fromkeys(("dropout", "alpha_dropout", "feature_dropout", "dropout2d", "dropout3d"), _DROPOUT),
    "add": _ADD,
    "sub": _SUB,
    **dict.fromkeys(("mul", "multiply"), _MUL),
    **dict.fromkeys(("div", "true_divide"), _DIV),
    "pow": _POW,
    **dict.fromkeys(("cat", "concat", "concatenate"), _CAT),
    **dict.fromkeys(("clone", "lift_fresh_copy"), _CLONE),
}
_IDLE_MODULES = ("Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")


def remove_noops(
    g: Any, *, recurse: bool = True, signed_zeros: bool = False, explain: bool = False, provenance: bool | None = None
) -> PassResult:
    """Take out calls that give an operand back: its users use the operand.

    These are views and reshapes to the shape that is there, conversions to the type and device that are there, dropout
    outside of training and `Identity`, additions of 0 and multiplications by 1, concatenations of one tensor, and
    copies that nobody writes to. What the nodes' meta says of shape, strides, type and device must agree, so that
    nothing of the result is another; where meta tells nothing the call stays. A call that makes a copy also stays
    where it could be told from its original: if either is written to later, or the copy is returned, and its original,
    or that is an input. What a program returns and what becomes of one of its buffers stay two.

    Args:
        g: a fastexport Graph or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram, which is
            changed in place.
        recurse: go into the subgraphs too.
        signed_zeros: keep what is the same but for the sign of zeros: -0.0 + 0 is 0.0.
        explain: give the reason why each such call was kept or removed.
        provenance: note at the operand, in ``meta["from_node"]``, for which calls it stands; None: as True.

    Returns:
        A `PassResult`; ``replaced`` tells the node in the place of each removed one.

    Raises:
        TypeError: g is none of these.

    Example:
        >>> from fastexport import TensorMeta
        >>> g = Graph()
        >>> x = g.placeholder("x")
        >>> y = g.call_method("view", (x, (2, 3)))
        >>> out = g.output(y)
        >>> x.meta["val"] = y.meta["val"] = TensorMeta("float32", (2, 3))
        >>> remove_noops(g, explain=True).reasons
        {'view': "removed: its operand has this shape already; 'x' takes its place"}
    """
    start = time.perf_counter()
    own = _own_graph(g, "remove_noops")
    noted = True if provenance is None else provenance
    if own is not None:
        result = _run(own, recurse, signed_zeros, explain, noted)
    else:
        from fastexport import _torch

        with _torch.native_twin(g) as twin:
            result = _run(twin, recurse, signed_zeros, explain, noted)
    result.seconds = time.perf_counter() - start
    return result


def _run(graph: Graph, recurse: bool, signed_zeros: bool, explain: bool, provenance: bool) -> PassResult:
    reasons: dict[str, str] | None = {} if explain else None
    removed, kept = graph._remove_noops(
        partial(_judge, graph.owning_module),
        partial(_agree, signed_zeros, reasons),
        explain,
        notes_for(graph, "remove_noops", provenance),
    )
    if reasons is not None:
        _tell(reasons, dict(zip(graph._names(removed), graph._names(kept), strict=True)))
    inner = []
    for path, subgraph in graph._graphs_below() if recurse else ():
        result = _run(subgraph, False, signed_zeros, explain, provenance)
        if result:
            inner.append((path, result))
        if reasons is not None:
            reasons.update((f"{path}/{name}", why) for name, why in (result.reasons or {}).items())
    return PassResult(
        "remove_noops",
        bool(removed) or any(result.modified for _, result in inner),
        removed=partial(_removed_names, graph, removed, inner),
        replaced=partial(_replaced_names, graph, removed, kept, inner),
        reasons=reasons,
    )


def _tell(reasons: dict[str, str], replaced: dict[str, str]) -> None:
    """Say of each call that agrees with its operand what became of it."""
    for name, why in reasons.items():
        if name in replaced:
            reasons[name] = f"removed: {why}; '{replaced[name]}' takes its place"
        elif not why.startswith("kept"):
            reasons[name] = f"kept: {why}, but one of the two is written to, or a copy is returned beside its original"


def _judge(owner: Any, op: str, target: Any) -> int:
    """Bits for `_remove_noops`: facts about memory, and the kind of no-op that a target may be."""
    if op == "call_module":
        return _ALIAS << _KIND_SHIFT if _is_idle(owner, target) else memory_facts(owner, op, target)
    name = aten_name(op, target)
    if name is not None:
        return memory_facts(owner, op, target) | _KINDS.get(name, 0) << _KIND_SHIFT
    if op != "call_function" or type(target).__name__ != "builtin_function_or_method":
        return 0
    name = OPERATOR_NAMES.get(target)
    return FRESH | _KINDS[name] << _KIND_SHIFT if name is not None else 0


def _is_idle(owner: Any, path: Any) -> bool:
    module: Any = None if owner is None else attribute(owner, path, None)
    kind = type(module)
    if not kind.__module__.startswith("torch.nn.modules.") or kind.__name__ not in _IDLE_MODULES:
        return False
    hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return not hooked and (kind.__name__ == "Identity" or not module.training)


def _agree(signed_zeros: bool, reasons: dict[str, str] | None, rows: list[tuple[Node, Node, str]]) -> bytes:
    """For each call whether meta says that it and its operand are alike; notes why, for `_tell`."""
    verdicts = bytearray()
    for node, operand, text in rows:
        problem = _difference(node, operand, text, signed_zeros)
        verdicts.append(problem is None)
        if reasons is not None:
            reasons[node.name] = text if problem is None else f"kept: {problem}"
    return bytes(verdicts)


def _difference(node: Node, operand: Node, text: str, signed_zeros: bool) -> str | None:
    value, source = node.meta.get("val"), operand.meta.get("val")
    if value is None or source is None:
        return "its meta, or that of its operand, does not tell what it gives"
    if value is source:
        return None
    try:
        if not _same_sizes(value.shape, source.shape):
            return "its shape is not that of its operand"
        if value.dtype != source.dtype:
            return "its type is not that of its operand"
        if value.device != source.device or value.layout != source.layout:
            return "its device or layout is not that of its operand"
        if not _same_sizes(_strides(value), _strides(source)):
            return "its strides are not those of its operand"
    except (AttributeError, TypeError):
        return "its meta, or that of its operand, is not that of a tensor"
    if signed_zeros and text.startswith("adding") and value.dtype.is_floating_point:
        return "adding zero makes 0.0 of -0.0"
    return None


def _strides(value: Any) -> Any:
    stride = value.stride
    return stride() if callable(stride) else stride


def _same_sizes(a: Any, b: Any) -> bool:
    """Symbolic sizes are the same when they are written so: to compare them as numbers would put guards on them."""
    if len(a) != len(b):
        return False
    for one, other in zip(a, b, strict=True):
        if type(one) is not type(other) or (one != other if type(one) is int else str(one) != str(other)):
            return False
    return True
