"""The parts of Node that are written in Python, and small functions that the C module calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastexport import _containers, _core, _naming
from fastexport._loaded import loaded

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._graph import Graph


def identity(value: Any) -> Any:
    """Give back the value: the transformation of arguments when none is asked for."""
    return value


def node_of_graph(graph: Graph, name: str) -> Node:
    """The node of that name; how a node is found again when it comes out of a pickle."""
    return graph.node(name)


def normalized_arguments(node: Node, *args: Any, **kwargs: Any) -> Any:
    """`Node.normalized_arguments`, which is torch's work."""
    from fastexport import _torch

    return _torch.normalized_arguments(node, *args, **kwargs)


def format_node(
    node: Node,
    placeholder_names: list[str] | None = None,
    maybe_return_typename: list[str] | None = None,
    *,
    include_tensor_metadata: bool = False,
) -> str | None:
    """`Node.format_node` with torch.fx's options, whose results it gives.

    Args:
        placeholder_names: when not empty, a placeholder is added here and None returned.
        maybe_return_typename: its first item is set to the return type of an output.
        include_tensor_metadata: show dtype, shape, stride and device of ``meta`` in place of the type; needs torch.
    """
    if node.op == "placeholder" and placeholder_names:
        # torch.fx doubles the name in front of a type; who asks for its text gets its text.
        placeholder_names.append(
            f"{node.target}{node.target}: {_naming.type_repr(node.type)}" if node.type else str(node.target)
        )
        return None
    if node.op == "output" and node.type and maybe_return_typename:
        maybe_return_typename[0] = f" -> {_naming.type_repr(node.type)}"
    line = node._line()
    if include_tensor_metadata and node.op not in ("placeholder", "get_attr", "output"):
        annotation = _tensor_annotation(node)
        if annotation is not None:
            head, rest = line.split(" : ", 1)
            return f"{head} : {annotation}{rest[rest.index('[num_users=') :]}"
    return line


def _tensor_annotation(node: Node) -> str | None:
    value = node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))
    torch = loaded("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    if value.layout in (torch.sparse_csc, torch.sparse_csr):
        return None
    from fastexport import _torch

    def listed(sizes: Any) -> str:
        return f"[{', '.join(str(size) for size in sizes)}]"

    dtype = _torch.dtype_abbreviation(value.dtype)
    return f'Tensor "{dtype}{listed(value.shape)}{listed(value.stride())}{value.device}"'


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Nested arguments with each leaf mapped; lists and dicts become immutable, as those of nodes are.

    Args:
        a: what a node has as args or kwargs, or a part of it.
        fn: is given each leaf, and gives what takes its place.

    Example:
        >>> map_aggregate((1, [2, {"k": 3}]), lambda leaf: leaf * 10)
        (10, [20, {'k': 30}])
    """
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return _containers.immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return _containers.immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Nested arguments with each `Node` mapped; see `map_aggregate`.

    Example:
        >>> from fastexport import Graph
        >>> g = Graph()
        >>> x = g.placeholder("x")
        >>> map_arg((x, [x, 1]), lambda node: node.name)
        ('x', ['x', 1])
    """
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, _core.Node) else leaf)
