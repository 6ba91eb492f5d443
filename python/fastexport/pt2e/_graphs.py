"""What the tools share: one view of both kinds of graphs, and operators known by their names.

Operators are compared by name, so that a graph read without torch, whose targets are names, is seen as well.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fastexport._graph import Graph

ANNOTATION = "quantization_annotation"

QUANTIZE = frozenset(
    (
        "quantized_decomposed.quantize_per_tensor.default",
        "quantized_decomposed.quantize_per_tensor.tensor",
        "quantized_decomposed.quantize_per_channel.default",
        "torchao.quantize_affine.default",
    )
)
DEQUANTIZE = frozenset(
    (
        "quantized_decomposed.dequantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_tensor.tensor",
        "quantized_decomposed.dequantize_per_channel.default",
        "torchao.dequantize_affine.default",
    )
)
CHOOSE = frozenset(
    (
        "quantized_decomposed.choose_qparams.tensor",
        "quantized_decomposed.choose_qparams_symmetric.tensor",
        "torchao.choose_qparams_affine.default",
    )
)
_SYM_SIZES = frozenset(("aten.sym_size.default", "aten.sym_numel.default", "aten.sym_numel", "aten.sym_size"))


class Parts(NamedTuple):
    """A graph, the module that holds its attributes (or None), and what is to be called once the graph is edited."""

    graph: Any
    module: Any
    recompile: Callable[[], Any]


def parts(g: Any) -> Parts:
    """The parts of a fastexport Graph, a torch.fx.Graph or a GraphModule.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(g, Graph):
        return Parts(g, g.owning_module, _nothing)
    fx = sys.modules.get("torch.fx")
    if fx is not None and isinstance(g, fx.GraphModule):
        return Parts(g.graph, g, g.recompile)
    if fx is not None and isinstance(g, fx.Graph):
        return Parts(g, g.owning_module, _nothing)
    raise TypeError(f"expected a torch.fx.GraphModule, a torch.fx.Graph or a fastexport.Graph, not {type(g).__name__}")


def _nothing() -> None:
    pass


def op_name(node: Any) -> str:
    """The name of what a node calls, such as ``"aten.linear.default"``; "" for other nodes."""
    if node.op != "call_function":
        return ""
    target = node.target
    if isinstance(target, str):
        return target.removeprefix("torch.ops.")
    if target is operator.getitem:
        return "getitem"
    if hasattr(target, "_schema") or hasattr(target, "_qualified_op_name"):
        return str(target).removeprefix("torch.ops.")
    return getattr(target, "__name__", None) or str(target)


def is_node(value: Any) -> bool:
    """Whether something is a node, of either kind of graph."""
    return hasattr(value, "all_input_nodes")


def real_users(node: Any) -> list[Any]:
    """The users of a node without those that only ask for its sizes."""
    return [user for user in node.users if op_name(user) not in _SYM_SIZES]


def flat_nodes(value: Any) -> Iterator[Any]:
    """The nodes in an argument, in order."""
    if is_node(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat_nodes(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from flat_nodes(item)


def is_annotated(node: Any) -> bool:
    """Whether a node has an annotation that asks for something to be quantized."""
    annotation = node.meta.get(ANNOTATION)
    return annotation is not None and bool(annotation.input_qspec_map or annotation.output_qspec is not None)


def dtype_name(node: Any) -> str | None:
    """The dtype of the tensor that a node gives, such as ``"float32"``; None where it is not known, or no tensor."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return None if dtype is None else str(dtype).removeprefix("torch.")


def is_float_dtype(name: str) -> bool:
    """Whether values of a dtype are real numbers, as observers want them."""
    return name.startswith(("float", "bfloat", "half", "double"))


def find_attribute(module: Any, path: str) -> Any:
    """What a dotted path leads to in a module; None where there is nothing."""
    for name in path.split("."):
        if module is None:
            return None
        module = getattr(module, name, None)
    return module
