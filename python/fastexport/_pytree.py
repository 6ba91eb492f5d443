"""Pytrees: taking nested values apart into leaves and a `TreeSpec`, and putting them together again, without torch.

Names, arguments and results are those of torch.utils._pytree (torch 2.13). `match_inputs` does for the inputs of a
program what a module of torch.export does when it is called.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastexport._arguments import check_mapping
from fastexport._loaded import loaded
from fastexport._tree_nodes import (
    NAMED_TUPLE,
    STANDARD_DICTS,
    GetAttrKey,
    MappingKey,
    NodeDef,
    SequenceKey,
    node_of_class,
    register_dataclass,
    register_namedtuple,
    register_pytree_node,
    tell_torch,
)
from fastexport._treespec import LEAF, MAX_DEPTH, TreeSpec, UnknownType, make_spec, same_type

__all__ = [
    "GetAttrKey",
    "MappingKey",
    "SequenceKey",
    "TreeSpec",
    "UnknownType",
    "check_call_spec",
    "key_get",
    "keystr",
    "match_inputs",
    "register_dataclass",
    "register_namedtuple",
    "register_pytree_node",
    "tell_torch",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_leaves",
    "tree_map",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_dumps",
    "treespec_loads",
]

IsLeaf = Callable[[Any], Any]
KeyPath = tuple[Any, ...]
_Nodes = dict[type, NodeDef | None]  # what was looked up during one walk


def tree_is_leaf(tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether a value is a leaf: of no registered type, or one that `is_leaf` says so of.

    Example:
        >>> tree_is_leaf(None), tree_is_leaf([1]), tree_is_leaf([1], is_leaf=lambda value: True)
        (True, False, True)
    """
    return _node_of(tree, is_leaf, {}) is None


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """Take a value apart.

    Args:
        tree: any value; of tuples, lists, dicts, OrderedDicts, defaultdicts, deques, named tuples and registered types
            the contents are taken. Only these very classes count, not what is derived from them.
        is_leaf: is asked for each value; when it says true, the value is a leaf whatever its type.

    Returns:
        The leaves in order, and how they nest. A dict's leaves come in the order of its keys.

    Raises:
        ValueError: it is nested more than 200 deep, or contains itself.

    Example:
        >>> tree_flatten({"x": 1, "y": (2, [3])})
        ([1, 2, 3], TreeSpec(dict, ['x', 'y'], [*,
          TreeSpec(tuple, None, [*,
            TreeSpec(list, None, [*])])]))
    """
    leaves: list[Any] = []
    nodes: _Nodes = {}
    node = _node_of(tree, is_leaf, nodes)
    if node is None:
        return [tree], LEAF
    try:
        return leaves, _flatten(node, tree, leaves, is_leaf, nodes, MAX_DEPTH)
    except RecursionError:
        _tell_depth(tree, is_leaf)
        raise


def _node_of(value: Any, is_leaf: IsLeaf | None, nodes: _Nodes) -> NodeDef | None:
    if is_leaf is not None and is_leaf(value):
        return None
    cls = type(value)
    if cls not in nodes:
        nodes[cls] = node_of_class(cls)
    return nodes[cls]


def _flatten(
    node: NodeDef, value: Any, leaves: list[Any], is_leaf: IsLeaf | None, nodes: _Nodes, deeper: int
) -> TreeSpec:
    """Deeper counts the levels that are still allowed."""
    if not deeper:
        raise RecursionError
    children, context = node.flatten_fn(value)
    specs: list[TreeSpec] = []
    num_nodes, depth, before = 1, 0, len(leaves)
    for child in children:
        # As _node_of does, without a call for each leaf.
        try:
            inner = nodes[type(child)]
        except KeyError:
            inner = _node_of(child, None, nodes)
        if is_leaf is not None and is_leaf(child):
            inner = None
        if inner is None:
            leaves.append(child)
            specs.append(LEAF)
            num_nodes += 1
            continue
        spec = _flatten(inner, child, leaves, is_leaf, nodes, deeper - 1)
        specs.append(spec)
        num_nodes += spec._num_nodes
        if spec._depth >= depth:
            depth = spec._depth + 1
    return make_spec(node.type, context, specs, len(leaves) - before, num_nodes, depth)


def _tell_depth(tree: Any, is_leaf: IsLeaf | None) -> None:
    """Walk as _flatten did, down to where it became too deep, and raise what tells whether a value contains itself."""
    nodes: _Nodes = {}
    path = [tree]
    walks = [_containers_in(tree, is_leaf, nodes)]
    while walks:
        child = next(walks[-1], walks)
        if child is walks:  # no more here
            walks.pop()
            path.pop()
            continue
        if any(child is outer for outer in path):
            raise ValueError(f"a {type(child).__name__} contains itself, so it is no tree") from None
        path.append(child)
        walks.append(_containers_in(child, is_leaf, nodes))
        if len(path) > MAX_DEPTH:
            raise ValueError(f"the value is nested more than {MAX_DEPTH} deep") from None


def _containers_in(value: Any, is_leaf: IsLeaf | None, nodes: _Nodes) -> Iterator[Any]:
    node = _node_of(value, None, nodes)
    children = node.flatten_fn(value)[0] if node is not None else ()
    return (child for child in children if _node_of(child, is_leaf, nodes) is not None)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a value; see `tree_flatten`.

    Example:
        >>> tree_leaves([1, {"x": 2}])
        [1, 2]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeSpec:
    """How a value nests; see `tree_flatten`.

    Example:
        >>> tree_structure((1, 2))
        TreeSpec(tuple, None, [*,
          *])
    """
    return tree_flatten(tree, is_leaf)[1]


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """Put a value together from its leaves and how they nest; the two may come in either order, as in torch.

    Raises:
        TypeError: neither is a TreeSpec.
        ValueError: there are more or fewer leaves than the spec has.
        NotImplementedError: the spec names a type that nobody has registered, or an enum that is not loaded.

    Example:
        >>> leaves, spec = tree_flatten({"x": 1, "y": [2]})
        >>> tree_unflatten(["a", "b"], spec)
        {'x': 'a', 'y': ['b']}
    """
    if not isinstance(treespec, TreeSpec):
        if not isinstance(leaves, TreeSpec):
            raise TypeError(f"Expected `treespec` to be a TreeSpec but got item of type {type(treespec)}.")
        leaves, treespec = treespec, leaves
    return treespec.unflatten(leaves)


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """A value like `tree`, with func(leaf) for each leaf.

    Args:
        func: takes a leaf and what stands in its place in each of the rests.
        tree: the value that tells the nesting.
        rests: values that nest like it, at least as far as its leaves.
        is_leaf: see `tree_flatten`.

    Example:
        >>> tree_map(lambda x: x + 1, {"x": 7, "y": (42, 64)})
        {'x': 8, 'y': (43, 65)}
        >>> tree_map(lambda x, y: [x] + y, [5, 6], [[7, 9], [1, 2]])
        [[5, 7, 9], [6, 1, 2]]
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *[spec.flatten_up_to(rest) for rest in rests]))


# ---- paths ----


def tree_flatten_with_path(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Like `tree_flatten`, with the way to each leaf: a tuple of keys, which `keystr` prints.

    Raises:
        ValueError: a type was registered without a flatten_with_keys_fn; or as `tree_flatten`.

    Example:
        >>> pairs, spec = tree_flatten_with_path({"x": [1, 2]})
        >>> [(keystr(path), leaf) for path, leaf in pairs]
        [("['x'][0]", 1), ("['x'][1]", 2)]
    """
    spec = tree_structure(tree, is_leaf)
    pairs: list[tuple[KeyPath, Any]] = []
    nodes: _Nodes = {}
    node = _node_of(tree, is_leaf, nodes)
    if node is None:
        return [((), tree)], spec
    _flatten_with_path((), node, tree, pairs, is_leaf, nodes)
    return pairs, spec


def _flatten_with_path(
    path: KeyPath,
    node: NodeDef,
    value: Any,
    pairs: list[tuple[KeyPath, Any]],
    is_leaf: IsLeaf | None,
    nodes: _Nodes,
) -> None:
    if node.flatten_with_keys_fn is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {node.type}. "
            "Please pass a flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in node.flatten_with_keys_fn(value)[0]:
        inner = _node_of(child, is_leaf, nodes)
        if inner is None:
            pairs.append(((*path, key), child))
        else:
            _flatten_with_path((*path, key), inner, child, pairs, is_leaf, nodes)


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Like `tree_map`, with the way to each leaf as the first argument of `func`.

    Example:
        >>> tree_map_with_path(lambda path, leaf: f"{keystr(path)} {leaf}", {"x": [1, 2]})
        {'x': ["['x'][0] 1", "['x'][1] 2"]}
    """
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    subtrees = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten([func(*pair, *others) for pair, *others in zip(pairs, *subtrees, strict=True)])


def keystr(kp: KeyPath) -> str:
    """The text of a path.

    Example:
        >>> keystr((MappingKey("x"), SequenceKey(0), GetAttrKey("y")))
        "['x'][0].y"
    """
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What stands in a value at the end of a path.

    Example:
        >>> key_get({"x": [1, 2]}, (MappingKey("x"), SequenceKey(1)))
        2
    """
    for key in kp:
        obj = key.get(obj)
    return obj


# ---- texts ----


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """The JSON text of a spec; see `TreeSpec.to_json`.

    Raises:
        ValueError: another protocol than 1.

    Example:
        >>> treespec_dumps(tree_structure(5))
        '[1, {"type": null, "context": null, "children_spec": []}]'
    """
    if protocol not in (None, 1):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return treespec.to_json()


def treespec_loads(serialized: str) -> TreeSpec:
    """A spec from its JSON text; see `TreeSpec.from_json`.

    Example:
        >>> treespec_loads('[1, {"type": null, "context": null, "children_spec": []}]').is_leaf()
        True
    """
    return TreeSpec.from_json(serialized)


# ---- the inputs of a program ----


class _Mismatch(Exception):
    """A value that does not nest as it should; each level on the way out puts its key in."""

    def __init__(self, expected: str, got: str) -> None:
        self.expected, self.got = expected, got
        self.keys: list[Any] = []


def match_inputs(in_spec: TreeSpec, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
    """The leaves of a program's inputs, in the order of its placeholders, as a module of torch.export takes them.

    Keyword arguments, and the keys of dicts in the inputs, may come in any order; all else must nest as it did when the
    program was made.

    Args:
        in_spec: of the program: a tuple of the positional arguments' tuple and the keyword arguments' dict.
        args: the positional arguments.
        kwargs: the keyword arguments.

    Raises:
        ValueError: the inputs do not nest like in_spec (the message tells where, what was expected and what came), or
            in_spec is not of a call.
        NotImplementedError: in_spec names a type that nobody has registered, or an enum that is not loaded.

    Example:
        >>> spec = tree_structure(((1, [2, 3]), {"scale": 4, "mask": 5}))
        >>> match_inputs(spec, (10, [20, 30]), {"mask": 50, "scale": 40})
        [10, 20, 30, 40, 50]
        >>> match_inputs(spec, (10, [20]), {"mask": 50, "scale": 40})
        Traceback (most recent call last):
        ...
        ValueError: the inputs do not fit the program: at args[1]: expected a list of 2, got a list of 1
    """
    if not isinstance(in_spec, TreeSpec):
        raise TypeError(f"match_inputs() takes a TreeSpec as in_spec, not {type(in_spec).__name__}")
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise TypeError(f"match_inputs() takes a tuple as args, not {type(args).__name__}")
    check_mapping("kwargs", kwargs)
    spec = in_spec.resolve()
    _check_shape_of_call(spec)
    if len(args) != spec.child(0).num_children:
        raise ValueError(
            f"the inputs do not fit the program: expected {spec.child(0).num_children} positional arguments, "
            f"got {len(args)}"
        )
    leaves: list[Any] = []
    nodes: _Nodes = {}
    for child, value, name in zip(spec.children(), (tuple(args), dict(kwargs or {})), ("args", "kwargs"), strict=True):
        try:
            _match(child, value, leaves, nodes)
        except _Mismatch as mismatch:
            place = name + keystr(tuple(reversed(mismatch.keys)))
            raise ValueError(
                f"the inputs do not fit the program: at {place}: expected {mismatch.expected}, got {mismatch.got}"
            ) from None
    return leaves


def check_call_spec(in_spec: TreeSpec) -> None:
    """Refuse a spec that is not of a call, or names a keyword argument that would not be plain text in torch's code.

    torch writes the names into a program between single quotes and runs that. This is asked before a file's spec goes
    there.

    Raises:
        ValueError: the spec is not such; the message tells the name.

    Example:
        >>> check_call_spec(tree_structure(((1,), {"mask": 2})))
    """
    _check_shape_of_call(in_spec)
    for name in in_spec.child(1).context:
        if not isinstance(name, str) or not name.isprintable() or "'" in name or "\\" in name:
            raise ValueError(f"{name!r} is no name for a keyword argument")


def _check_shape_of_call(spec: TreeSpec) -> None:
    if spec.type is not tuple or [child.type for child in spec.children()] != [tuple, dict]:
        raise ValueError("the spec is not of a call: a tuple of the arguments' tuple and the keyword arguments' dict")


def _match(spec: TreeSpec, value: Any, leaves: list[Any], nodes: _Nodes) -> None:
    node = _node_of(value, None, nodes)
    if spec._type is None:
        if node is not None:
            raise _Mismatch("a single value", _describe(node.type, *node.flatten_fn(value)))
        leaves.append(value)
        return
    if node is None:
        raise _Mismatch(_describe_spec(spec), _a(type(value)))
    children, keys = _matched(spec, node, value)
    for i, (child_spec, child) in enumerate(zip(spec._children, children, strict=True)):
        try:
            _match(child_spec, child, leaves, nodes)
        except _Mismatch as mismatch:
            mismatch.keys.append(MappingKey(keys[i]) if keys is not None else _key(node, value, i))
            raise


def _matched(spec: TreeSpec, node: NodeDef, value: Any) -> tuple[list[Any], list[Any] | None]:
    """The children of a value that should nest like a spec, in the spec's order; and the keys of a dict's."""
    children, context = node.flatten_fn(value)
    children = list(children)
    if not same_type(_plain(spec._type), _plain(node.type)):
        raise _Mismatch(_describe_spec(spec), _describe(node.type, children, context))
    if spec._type is dict:
        expected = spec._context
        if set(context) != set(expected):
            raise _Mismatch(f"the keys {expected}", f"{context}{_difference(expected, context)}")
        return [value[key] for key in expected], expected
    if context != spec._context or len(children) != len(spec._children):
        raise _Mismatch(_describe_spec(spec), _describe(node.type, children, context))
    return children, None


def _plain(kind: Any) -> Any:
    """A torch.Size passes for a tuple, as export makes tuples of them."""
    return tuple if kind is not tuple and kind is getattr(loaded("torch"), "Size", tuple) else kind


def _difference(expected: list[Any], got: list[Any]) -> str:
    missing = [key for key in expected if key not in got]
    extra = [key for key in got if key not in expected]
    told = [f"{what} {', '.join(map(repr, keys))}" for what, keys in (("missing", missing), ("unknown", extra)) if keys]
    return f" ({'; '.join(told)})" if told else ""


def _key(node: NodeDef, value: Any, index: int) -> Any:
    if node.flatten_with_keys_fn is None:
        return SequenceKey(index)
    key, _ = list(node.flatten_with_keys_fn(value)[0])[index]
    return key


def _describe_spec(spec: TreeSpec) -> str:
    return _describe(spec._type, spec._children, spec._context)


def _describe(kind: Any, children: Sequence[Any], context: Any) -> str:
    """A container in a few words, with what two of its type may differ in."""
    if kind in (tuple, list):
        return f"{_a(kind)} of {len(children)}"
    if kind is deque:
        return f"a deque of {len(children)}" + (f" with maxlen {context}" if context is not None else "")
    if kind is defaultdict:
        return f"a defaultdict of {context[0]!r} with the keys {context[1]}"
    if kind in STANDARD_DICTS:
        return f"{_a(kind)} with the keys {context}"
    if kind is NAMED_TUPLE:
        return f"a named tuple {context.__module__}.{context.__qualname__}"
    return f"{_a(kind)} of {len(children)} with the context {context}"


def _a(cls: Any) -> str:
    name = getattr(cls, "__name__", str(cls))
    return f"{'an' if name[:1] in 'aeioAEIO' else 'a'} {name}"
