"""Values of torch's: what files tell of tensors and symbolic numbers, as objects of ours; the weights of modules."""

from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.traceback import NodeSource

from fastexport._meta_json import NodeSource as OurSource
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

_SYMBOLIC = {torch.SymInt: (SymInt, int), torch.SymFloat: (SymFloat, float), torch.SymBool: (SymBool, bool)}


def facts_of(value: Any) -> Any:
    """What files tell of a fake tensor, a symbolic number or a source of a node; None for anything else.

    Raises:
        ValueError: a tensor has no strides, or a number is no expression.
    """
    if type(value) is FakeTensor:
        return TensorMeta(*tensor_facts(value))
    if type(value) in _SYMBOLIC:
        return _number(value)
    return OurSource.from_dict(value.to_dict()) if type(value) is NodeSource else None


def tensor_facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What makes a TensorMeta of a tensor, in its order; see `fastexport.TensorMeta.of`."""
    try:
        strides = tensor.stride()
    except RuntimeError as error:
        raise ValueError(f"a tensor of the layout {tensor.layout} has no strides") from error
    return (
        tensor.dtype,
        [_size(size) for size in tensor.shape],
        [_size(stride) for stride in strides],
        tensor.device,
        tensor.layout,
        tensor.requires_grad,
        _size(tensor.storage_offset()),
    )


def _size(size: Any) -> int | SymInt:
    return size if type(size) is int else _number(size)


def _number(value: Any) -> Any:
    expr = getattr(value.node, "expr", None)
    if expr is None:
        raise ValueError(f"{value} is no expression")
    symbolic, plain = _SYMBOLIC[type(value)]
    return symbolic(sympy.srepr(expr), value.node.hint) if expr.free_symbols else plain(expr)


def weights_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by each of their paths, as named_parameters and named_buffers give them.

    Raises:
        RecursionError: a module is below itself.
    """
    parameters: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    around: set[int] = set()
    left = [("", module, False)]
    while left:  # modules may nest deeper than calls may
        prefix, at, is_done = left.pop()
        if is_done:
            around.remove(id(at))
            continue
        if id(at) in around:
            raise RecursionError(f"the module at {prefix.removesuffix('.')!r} is below itself")
        around.add(id(at))
        for found, own in ((parameters, at._parameters), (buffers, at._buffers)):
            found.update((prefix + name, tensor) for name, tensor in own.items() if tensor is not None)
        left.append((prefix, at, True))
        below = [(f"{prefix}{name}.", child, False) for name, child in at._modules.items() if child is not None]
        left += reversed(below)
    return {**parameters, **buffers}
