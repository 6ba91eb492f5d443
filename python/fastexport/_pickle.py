"""Pickling of graphs: a list of plain tuples, in which a node is its index.

A graph comes back with the same nodes in the same order, with names, types, meta and the order of users. Objects it
refers to (targets, meta values) are pickled by their own rules; operators of torch go by their names, so that the
pickle does not depend on how torch pickles them. Meta with fake tensors or symbolic numbers, which pickle refuses,
goes through torch's own pickler for graphs as a whole; they come back under one new fake mode, and what else was shared
with the rest of the pickle is separate then. The owning module is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fastexport import _core
from fastexport._errors import FastExportError

if TYPE_CHECKING:
    from fastexport._graph import Graph

VERSION = 1
_FAKE_CLASSES = frozenset(("FakeTensor", "SymInt", "SymFloat", "SymBool"))


_CHANGED = "the graph was changed while it was being written; let nobody edit it meanwhile, or write a copy"


class NodeIndex(int):
    """A node of the pickled graph, by its place."""


class Operator(str):
    """A torch operator, by its qualified name, such as ``aten.add.Tensor``."""


def _map(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Rebuild nested arguments with each leaf mapped; containers become plain ones, except tuples with a class."""
    if isinstance(value, tuple):
        items = [_map(item, leaf) for item in value]
        if type(value) is tuple:
            return tuple(items)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list):
        return [_map(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: _map(item, leaf) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(_map(value.start, leaf), _map(value.stop, leaf), _map(value.step, leaf))
    return leaf(value)


def is_higher_order(target: Any) -> bool:
    return any(c.__name__ == "HigherOrderOperator" and c.__module__ == "torch._ops" for c in type(target).__mro__)


_PLAIN = frozenset((int, float, bool, str, type(None), type(len), type(_map)))


def _pack_operator(target: Any) -> Any:
    if type(target) in _PLAIN:
        return target
    if is_higher_order(target):
        import torch

        name = target.name()
        if getattr(torch.ops.higher_order, name, None) is target:
            return Operator(f"higher_order.{name}")
    if type(target).__name__ in ("OpOverload", "OpOverloadPacket") and type(target).__module__ == "torch._ops":
        return Operator(str(target))
    return target


def _unpack_operator(target: Any) -> Any:
    if not isinstance(target, Operator):
        return target
    import torch

    found: Any = torch.ops
    for part in target.split("."):
        found = getattr(found, part)
    return found


class TorchMeta(bytes):
    """The meta of all nodes as torch's pickler for graphs writes it."""


def _holds_fakes(value: Any) -> bool:
    """Whether there are fake tensors or symbolic numbers in a value or its containers."""
    kind = type(value)
    if kind.__name__ in _FAKE_CLASSES and kind.__module__.startswith("torch"):
        return True
    if isinstance(value, dict):
        return any(map(_holds_fakes, value.values()))
    return isinstance(value, (tuple, list)) and any(map(_holds_fakes, value))


def _pack_meta(graph: Graph, meta: list[dict[str, Any]]) -> Any:
    if not any(map(_holds_fakes, meta)):
        return meta
    from fastexport import _torch

    return TorchMeta(_torch.dump_meta(graph, meta))


def _unpack_meta(graph: Graph, meta: Any) -> list[dict[str, Any]]:
    if not isinstance(meta, TorchMeta):
        return meta
    from fastexport import _torch

    return _torch.load_meta(graph, meta)


@contextmanager
def unchanged(graph: Graph) -> Iterator[None]:
    """A ``with`` block that reads a graph step by step: what it makes of one that changes meanwhile is no graph.

    Raises:
        FastExportError: the graph was changed, by another thread or by code of an object in it.
    """
    version = graph._version
    try:
        yield
    except Exception as error:
        if graph._version != version:
            raise FastExportError(_CHANGED) from error
        raise
    if graph._version != version:
        raise FastExportError(_CHANGED)


def node_entries(graph: Graph) -> list[tuple[Any, ...]]:
    """The nodes as tuples: op, target, name, args, kwargs, type, users; for a node stands its `NodeIndex`."""
    index = {node: NodeIndex(i) for i, node in enumerate(graph.nodes)}

    def leaf(value: Any) -> Any:
        return index[value] if isinstance(value, _core.Node) else _pack_operator(value)

    return [
        (
            node.op,
            _pack_operator(node.target),
            node.name,
            _map(node.args, leaf),
            _map(node.kwargs, leaf),
            node.type,
            [int(index[user]) for user in node.users],
        )
        for node in index
    ]


def reduce(graph: Graph) -> tuple[Any, ...]:
    """What pickle needs to build a graph again (see `object.__reduce_ex__`)."""
    with unchanged(graph):
        # Pickled after the graph itself is known to the pickler, since it may refer back to the graph.
        attributes = {
            "meta": _pack_meta(graph, [dict(node.meta) for node in graph.nodes]),
            "subgraphs": graph.subgraphs,
            "extras": graph.extras,
            "__dict__": dict(getattr(graph, "__dict__", {})),
        }
        return rebuild, (type(graph), VERSION, node_entries(graph)), attributes, None, None, set_attributes


def rebuild(cls: type[Graph], version: int, nodes: list[tuple[Any, ...]]) -> Graph:
    """Build a graph from the tuples of `reduce`.

    Raises:
        ValueError: the pickle comes from a newer fastexport.
    """
    if version != VERSION:
        raise ValueError(f"this graph was pickled in format {version}; this fastexport reads format {VERSION}")
    graph = cls()
    made = [
        graph.create_node(op, _unpack_operator(target), name=name, type_expr=type_expr)
        for op, target, name, _, _, type_expr, _ in nodes
    ]

    def leaf(value: Any) -> Any:
        return made[value] if isinstance(value, NodeIndex) else _unpack_operator(value)

    for node, (_, _, name, args, kwargs, _, _) in zip(made, nodes, strict=True):
        if node.name != name:
            node.name = name
        node.args = _map(args, leaf)
        node.kwargs = _map(kwargs, leaf)
    for node, entry in zip(made, nodes, strict=True):
        if entry[-1] is not None:  # else they are in the order of the nodes
            node._order_users([made[i] for i in entry[-1]])
    return graph


def set_attributes(graph: Graph, attributes: dict[str, Any]) -> None:
    """Give a rebuilt graph what may refer back to it."""
    graph.__dict__.update(attributes.pop("__dict__"))
    for node, meta in zip(graph.nodes, _unpack_meta(graph, attributes.pop("meta")), strict=True):
        node.meta = meta
    for name, value in attributes.items():
        setattr(graph, name, value)
