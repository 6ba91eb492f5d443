"""Sizes as nodes: what `Graph.create_size_node` and `Graph.materialize_symints` do. Needs torch.

An expression is taken apart with sympy, and what torch evaluates such expressions with is run on proxies, which record.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental.symbolic_shapes import CallMethodKey, ConvertIntKey, DivideByKey, InnerTensorKey
from torch.utils._pytree import SequenceKey
from torch.utils._sympy.interp import _run_sympy_handler, sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from fastexport._core import Node
from fastexport._graph import Graph
from fastexport._proxy import Proxy
from fastexport._tensor_meta import TensorMeta

aten = torch.ops.aten
_VALUES = ("val", "example_value")


def create_size_node(graph: Graph, node: Node, dim: int) -> Node:
    """See `Graph.create_size_node`."""
    return _query(graph, aten.sym_size.int, (node, dim), lambda value: value.shape[dim])


def create_stride_node(graph: Graph, node: Node, dim: int) -> Node:
    """See `Graph.create_stride_node`."""
    return _query(
        graph,
        aten.sym_stride.int,
        (node, dim),
        lambda value: (value.stride if isinstance(value, TensorMeta) else value.stride())[dim],
    )


def create_storage_offset_node(graph: Graph, node: Node) -> Node:
    """See `Graph.create_storage_offset_node`."""
    return _query(
        graph,
        aten.sym_storage_offset.default,
        (node,),
        lambda value: value.storage_offset if isinstance(value, TensorMeta) else value.storage_offset(),
    )


def _query(graph: Graph, target: Any, args: tuple[Any, ...], ask: Callable[[Any], Any]) -> Node:
    meta = args[0].meta
    key = next((key for key in _VALUES if key in meta), None)
    value = None if key is None else ask(meta[key])  # before there is a node: it may raise
    node = graph.call_function(target, args)
    if key is not None:
        node.meta[key] = value
    return node


def materialize_symints(graph: Graph, values: Sequence[Any]) -> list[Any]:
    """See `Graph.materialize_symints`."""
    for value in values:
        if not isinstance(value, (torch.SymInt, int)):
            raise TypeError(f"sizes are SymInts of torch or ints, not {type(value).__name__} ({value!r})")
    made = _Sizes(graph)
    return [made.node_of(value) if isinstance(value, torch.SymInt) else value for value in values]


def _value_of(node: Node) -> Any:
    value = node.meta.get("val")
    return node.meta.get("example_value") if value is None else value


def _note_value(node: Node, value: Any) -> None:
    node.meta["val"] = value
    if any(isinstance(arg, Node) and "example_value" in arg.meta for arg in node.args):
        node.meta["example_value"] = value


class _Sizes:
    """What gives each symbol and expression, found or made as it is needed."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[Any, Any] = {}  # expression -> Proxy
        self._shapes: dict[Any, tuple[Node, int, int]] = {}  # symbol -> input, dimension, what the size is divided by
        self._bindings: dict[Any, tuple[Node, tuple[Any, ...]]] = {}  # symbol -> node, and the way to it in its value
        for node in graph.nodes:
            if node.op == "placeholder":
                self._read_input(node, _value_of(node))
            else:
                for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
                    self._bindings.setdefault(symbol, (node, tuple(path)))

    def _read_input(self, node: Node, value: Any) -> None:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            if isinstance(value.node.expr, sympy.Symbol):
                self._known.setdefault(value.node.expr, Proxy(node))
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    self._read_size(node, dim, size.node.expr)

    def _read_size(self, node: Node, dim: int, expr: Any) -> None:
        """A size that is a symbol, or a multiple of one, tells the symbol."""
        factor, symbol = expr.as_coeff_Mul()
        if isinstance(symbol, sympy.Symbol) and factor.is_Integer and factor > 0:
            self._shapes.setdefault(symbol, (node, dim, int(factor)))

    def node_of(self, size: torch.SymInt) -> Node | int:
        """The node of a size, or a number."""
        expr = size.node.expr
        if expr.is_number:
            return int(size)
        for symbol in sorted(expr.free_symbols, key=str):
            self._produce(symbol)
        found = self._evaluate(expr)
        if not isinstance(found, Proxy):
            return int(found)
        _note_value(found.node, size)
        return found.node

    def _produce(self, symbol: Any) -> None:
        if symbol in self._known:
            return
        if symbol in self._shapes:
            self._known[symbol] = Proxy(self._from_shape(*self._shapes[symbol]))
            return
        if symbol not in self._bindings:
            raise ValueError(f"no node of the graph gives {symbol}")
        node, path = self._bindings[symbol]
        for key in path:
            if isinstance(key, DivideByKey) and isinstance(key.divisor, torch.SymInt):
                for inner in key.divisor.node.expr.free_symbols:
                    self._produce(inner)
        self._known[symbol] = Proxy(self._follow(node, path))

    def _from_shape(self, tensor: Node, dim: int, divisor: int) -> Node:
        node = self._graph.call_function(aten.sym_size.int, (tensor, dim))
        size = _value_of(tensor).shape[dim]
        _note_value(node, size)
        if divisor == 1:
            return node
        quotient = self._graph.call_function(operator.floordiv, (node, divisor))
        _note_value(quotient, size // divisor)
        return quotient

    def _follow(self, node: Node, path: tuple[Any, ...]) -> Node:
        """Nodes that take a size out of a node's value, as the way to it says."""
        keys = list(path)
        while keys:
            key = keys.pop(0)
            if isinstance(key, CallMethodKey):
                index = keys.pop(0).idx if keys and isinstance(keys[0], SequenceKey) else None
                node = self._ask(node, key.name, index)
            elif isinstance(key, SequenceKey):
                node = self._graph.call_function(operator.getitem, (node, key.idx))
            elif isinstance(key, ConvertIntKey):
                node = self._graph.call_function(torch.sym_ite, (node, 1, 0))
            elif isinstance(key, DivideByKey):
                symbolic = isinstance(key.divisor, torch.SymInt)
                divisor = self._evaluate(key.divisor.node.expr) if symbolic else key.divisor
                args = (node, divisor.node if isinstance(divisor, Proxy) else divisor)
                node = self._graph.call_function(operator.floordiv, args)
            elif isinstance(key, InnerTensorKey):
                node = self._graph.call_function(getattr, (node, key.inner_name))
            else:
                raise ValueError(f"a way to a size with an unknown part: {key}")
        return node

    def _ask(self, node: Node, method: str, index: int | None) -> Node:
        if index is not None and method == "size":
            return create_size_node(self._graph, node, index)
        if index is not None and method == "stride":
            return create_stride_node(self._graph, node, index)
        if index is None and method == "storage_offset":
            return create_storage_offset_node(self._graph, node)
        return self._graph.call_method(method, (node,) if index is None else (node, index))

    def _evaluate(self, expr: Any) -> Any:
        if expr in self._known:
            return self._known[expr]
        if not expr.args:
            return sympy_interp(PythonReferenceAnalysis, self._known, expr)
        found = _run_sympy_handler(PythonReferenceAnalysis, [self._evaluate(arg) for arg in expr.args], expr)
        if isinstance(found, Proxy):
            self._known[expr] = found
            self._annotate(found.node)
        return found

    def _annotate(self, node: Node) -> None:
        args = [_value_of(arg) if isinstance(arg, Node) else arg for arg in node.args]
        if callable(node.target) and all(arg is not None for arg in args):
            try:
                _note_value(node, node.target(*args))
            except (TypeError, ValueError, AttributeError):
                pass  # the sizes that were asked for get theirs all the same
