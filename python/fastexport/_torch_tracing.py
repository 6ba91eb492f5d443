"""What tracing takes from torch.fx's own tracer beyond its public API; the only module of tracing that does."""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch
import torch.fx
from torch.fx import _symbolic_trace
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.fx.node import base_types

PH = _symbolic_trace.PH
PHBase = _symbolic_trace.PHBase

# As torch has them itself, whoever may have put something in their places just now.
module_call = _symbolic_trace._orig_module_call
module_getattr = _symbolic_trace._orig_module_getattr
assert_is_none = _symbolic_trace._assert_is_none

CONSTANT_TYPES = frozenset(base_types) - {torch.Tensor}
ATTRIBUTE_TYPES = _symbolic_trace._constant_attribute_types


# Where torch's code looks whether a trace is going on.
FLAG = (_symbolic_trace, "_is_fx_tracing_flag")

_TRACE = inspect.unwrap(torch.fx.Tracer.trace).__code__


def is_traced_in(frame: types.FrameType | None) -> bool:
    """Whether torch's tracer is at work in a frame or in one around it."""
    while frame is not None and frame.f_code is not _TRACE:
        frame = frame.f_back
    return frame is not None


def wrapped_names() -> list[tuple[dict[str, Any], str]]:
    """The globals and names that ``torch.fx.wrap`` was told."""
    return [(namespace, name) for (_, name), namespace in list(_symbolic_trace._wrapped_fns_to_patch.items())]


def wrapped_methods() -> list[tuple[type, str]]:
    """The methods of classes that torch.fx wraps (``Tensor.__getitem__``, when the environment asks for it)."""
    return list(_symbolic_trace._wrapped_methods_to_patch)


def compiled(module: torch.nn.Module) -> None:
    """Have a GraphModule that compiles lazily do so, since its stand-in for ``forward`` can't be traced."""
    _LazyGraphModule.force_recompile(module)


def pytree_codegen(names: list[str], in_spec: Any) -> _PyTreeCodeGen:
    """The code generator of a graph whose inputs are flattened; the spec of its outputs is to come."""
    return _PyTreeCodeGen(_PyTreeInfo(names, in_spec, None))


def set_out_spec(codegen: _PyTreeCodeGen, out_spec: Any) -> None:
    """Tell a code generator how the outputs were flattened."""
    codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)


def is_higher_order(function: object) -> bool:
    """Whether a function is a higher order operator, such as torch.cond's."""
    return isinstance(function, torch._ops.HigherOrderOperator)


def is_script_method(function: object) -> bool:
    """Whether a function is a method of a scripted module."""
    return isinstance(function, torch._C.ScriptMethod)
