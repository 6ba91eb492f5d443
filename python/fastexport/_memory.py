"""What calls do with memory, by the names of their targets: for passes that let one tensor stand for another.

A fact is only ever told where it is sure; of all else the passes think the worst. Names are those of aten, which
torch's functions and the methods of tensors share. Source: the schemas of torch 2.13, and that an operator with a
kernel of its own and without alias annotations returns fresh memory, which autograd relies upon.
"""

from __future__ import annotations

import operator
from typing import Any

from fastexport._core import operator_schema
from fastexport._loaded import loaded
from fastexport._module_tree import attribute

# fe_memory_fact in csrc/core/memory.h
FRESH, VIEW, COPIES, CALM, SINGLE, ARITHMETIC = (1 << i for i in range(6))
POSITION_SHIFT, _POSITIONS = 8, 24

_FRESH = frozenset(
    """abs acos acosh add addcdiv addcmul addmm amax amin angle any arange argmax argmin asin asinh atan atan2 atanh
    avg_pool2d avg_pool3d baddbmm batch_norm bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
    bitwise_xor bmm cat ceil celu clamp clamp_max clamp_min clone constant_pad_nd conv1d conv2d conv3d convolution
    copysign cos cosh cumprod cumsum deg2rad digamma div dot elu embedding empty empty_strided eq erf erfc erfinv
    exp exp2 expm1 flip floor fmax fmin fmod frac full full_like gather ge gelu group_norm gt hardshrink
    hardsigmoid hardswish hardtanh heaviside hypot index_put index_select isinf isnan layer_norm le leaky_relu
    lerp lgamma linear log log10 log1p log2 log_softmax logaddexp logical_and logical_not logical_or logical_xor
    logit logsumexp lt masked_fill masked_scatter matmul max_pool2d max_pool2d_with_indices maximum mean minimum
    mish mm mul mv nan_to_num native_dropout native_group_norm native_layer_norm ne neg nextafter nonzero pow prod
    rad2deg rand randn randperm reciprocal relu remainder repeat rms_norm round rsqrt rsub scalar_tensor
    scaled_dot_product_attention scatter scatter_add scatter_reduce select_scatter sgn sigmoid sign signbit silu
    sin sinc sinh slice_scatter softmax softplus softshrink sqrt stack std sub sum tan tanh threshold topk trunc
    var where xlogy _log_softmax _softmax _to_copy""".split()
)
_VIEWS = frozenset(
    """alias as_strided diagonal expand expand_as movedim narrow permute select slice split split_with_sizes squeeze
    swapaxes swapdims t transpose unbind unflatten unfold unsqueeze view view_as""".split()
)
# Write to more than the values of a tensor.
_RESHAPING = frozenset(
    """as_strided_ detach_ rename_ requires_grad_ resize_ resize_as_ set_ set_data sparse_resize_
    sparse_resize_and_clear_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_""".split()
)
_CALM = frozenset(
    """_assert _assert_async _assert_scalar _assert_tensor_metadata _check _check_is_size sym_constrain_range
    sym_constrain_range_for_size""".split()
)
# Give memory as it comes, or a result whose size is a symbol of its own.
_SINGLE = frozenset(
    """_local_scalar_dense _unique _unique2 argwhere bincount empty empty_like empty_permuted empty_strided item
    masked_select new_empty new_empty_strided nonzero repeat_interleave unique unique_consecutive unique_dim""".split()
)

_ARITHMETIC = frozenset(
    getattr(operator, name)
    for name in """add and_ eq floordiv ge gt inv invert le lshift lt matmul mod mul ne neg or_ pos pow rshift sub
    truediv xor""".split()
)

_known: dict[int, tuple[Any, str | None]] = {}


def aten_name(op: str, target: Any) -> str | None:
    """The name in aten of what a node calls, without the overload.

    Args:
        op, target: the node's.

    Returns:
        For an operator of aten, a function of torch or torch.nn.functional and a method the name; else None.

    >>> aten_name("call_method", "add_"), aten_name("call_function", print)
    ('add_', None)
    """
    if op == "call_method":
        return target if isinstance(target, str) else None
    if op != "call_function":
        return None
    known = _known.get(id(target))
    if known is not None and known[0] is target:
        return known[1]
    kind = type(target)
    if kind.__module__ in ("torch._ops", "fastexport._operators"):
        parts = str(target).removeprefix("torch.ops.").split(".")
        name = parts[1] if len(parts) > 1 and parts[0] == "aten" else None
        _known[id(target)] = target, name
        return name
    return _function_name(target)


def _function_name(target: Any) -> str | None:
    """That of a function of torch; None: it is none, or has a name that is not its own."""
    torch = loaded("torch")
    functional = loaded("torch.nn.functional")
    if torch is None or functional is None:
        return None
    try:
        name = target.__name__
    except Exception:  # nobody vouches for such a target
        return None
    if type(name) is not str or (vars(torch).get(name) is not target and vars(functional).get(name) is not target):
        return None
    return name


def _written_positions(target: Any) -> int | None:
    """The positions of the arguments that an operator writes to, as bits; None: not all have one, or none is known."""
    schema = operator_schema(str(target).removeprefix("torch.ops."))
    positions = 0
    for i, (_, _, _, keyword_only, written) in enumerate(schema[0] if schema else ()):
        if written and (keyword_only or i >= _POSITIONS):
            return None
        positions |= written << i
    return positions or None


def _is_guard(owner: Any, path: str) -> bool:
    """Whether a module only compares the sizes of its operands: what torch.export puts before an unlifted graph."""
    kind = type(attribute(owner, path, None)) if owner is not None else None
    return kind is not None and (kind.__module__, kind.__name__) == ("torch.export._unlift", "GuardsFn")


def _is_arithmetic(target: Any) -> bool:
    """Whether it is one of Python's operators that compute; of a user's target neither hash nor comparison is asked."""
    return type(target).__name__ == "builtin_function_or_method" and target in _ARITHMETIC


def memory_facts(owner: Any, op: str, target: Any) -> int:
    """What a call does with memory: bits of fe_memory_fact.

    Args:
        owner: the module that has the modules that nodes call, or None.
        op, target: a node's.

    >>> memory_facts(None, "call_method", "cos") == FRESH, memory_facts(None, "call_function", print)
    (True, 0)
    """
    if op == "call_module":
        return CALM if _is_guard(owner, target) else 0
    name = aten_name(op, target)
    if name is None:
        return ARITHMETIC if op == "call_function" and _is_arithmetic(target) else 0
    if name.endswith("_") and not name.endswith("__"):
        if name in _RESHAPING:
            return 0
        positions = 1 if op == "call_method" else _written_positions(target)
        return 0 if positions is None else COPIES | positions << POSITION_SHIFT
    facts = SINGLE if name in _SINGLE else 0
    if name in _FRESH:
        facts |= FRESH
    elif name in _VIEWS:
        facts |= VIEW
    elif name in _CALM:
        facts |= CALM
    return facts


# Of Python's operators, for graphs that torch.fx has traced.
OPERATOR_NAMES = {
    operator.add: "add",
    operator.mul: "mul",
    operator.sub: "sub",
    operator.truediv: "div",
    operator.pow: "pow",
}
