"""Tree specs: how the inputs and outputs of a program nest.

A spec in memory has the types and contexts of torch.utils._pytree, so that it goes to torch and back. A file holds
specs as JSON text (protocol 1 there). Reading it imports nothing: a type, an enum or a factory that is not known here
stays a placeholder that prints and is written as it came, and is looked up again when a value is built through it.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastexport._tree_contexts import (
    EnumKey,
    UnknownFactory,
    UnknownType,
    context_text,
    custom_context,
    dumpable,
    enum_json,
    has_placeholder,
    imports_of,
    not_registered,
    read_context,
    resolved_context,
    short_name,
)
from fastexport._tree_nodes import (
    BUILTIN_TYPES,
    NAMED_TUPLE,
    STANDARD_DICTS,
    NodeDef,
    node_of_class,
    node_of_name,
    node_of_type,
    tell_torch,
)

__all__ = ["EnumKey", "TreeSpec", "UnknownFactory", "UnknownType"]

MAX_DEPTH = 200  # containers in containers; so no walk over a spec, here or in torch, runs out of stack

_PROTOCOL = 1
_PARTS = {"type", "context", "children_spec"}
_LEAF_HASH = hash("*")


class TreeSpec:
    """How a value nests: a leaf, or a container with a spec for each child. Can't be changed.

    Args:
        type: the class of the container, `collections.namedtuple` for every named tuple, an `UnknownType` for a type of
            a file that nobody has registered; None for a leaf.
        context: what the container needs besides its children: the keys of a dict, the factory and the keys of a
            defaultdict, the longest length of a deque, the class of a named tuple, the names of the fields of a
            dataclass. Of an unknown type: the text in the file.
        children_specs: the specs of the children.

    Raises:
        ValueError: a leaf has a context or children, or the spec is nested more than 200 deep.

    Example:
        >>> spec = TreeSpec(dict, ["x", "y"], [TreeSpec(), TreeSpec(list, None, [TreeSpec(), TreeSpec()])])
        >>> spec
        TreeSpec(dict, ['x', 'y'], [*,
          TreeSpec(list, None, [*,
            *])])
        >>> spec.num_leaves, spec.num_nodes, spec.num_children, spec.child(0).is_leaf()
        (3, 5, 2, True)
        >>> spec.unflatten([1, 2, 3])
        {'x': 1, 'y': [2, 3]}
        >>> TreeSpec.from_json(spec.to_json()) == spec
        True
    """

    __slots__ = ("_children", "_context", "_depth", "_known", "_num_leaves", "_num_nodes", "_type")
    _type: Any
    _context: Any
    _children: tuple[TreeSpec, ...]
    _num_leaves: int
    _num_nodes: int
    _depth: int
    _known: bool  # it has no placeholder

    def __init__(self, type: Any = None, context: Any = None, children_specs: Iterable[TreeSpec] = ()) -> None:
        children = tuple(children_specs)
        leaves, nodes, depth, known = int(type is None), 1, 0, not has_placeholder(type, context)
        for child in children:
            if not isinstance(child, TreeSpec):
                raise TypeError("the children of a tree spec are tree specs")
            leaves += child._num_leaves
            nodes += child._num_nodes
            depth = max(depth, child._depth + 1)
            known = known and child._known
        if type is None and (context is not None or children):
            raise ValueError("a leaf has neither a context nor children")
        self._type = type
        self._context = context
        self._children = children
        self._num_leaves = leaves
        self._num_nodes = nodes
        self._depth = depth
        self._known = known
        if depth > MAX_DEPTH:
            raise ValueError(f"a tree spec is nested more than {MAX_DEPTH} deep")

    @property
    def type(self) -> Any:
        """The class of the container; None for a leaf."""
        return self._type

    @property
    def context(self) -> Any:
        """What the container needs besides its children."""
        return self._context

    @property
    def num_leaves(self) -> int:
        """How many leaves there are in all."""
        return self._num_leaves

    @property
    def num_nodes(self) -> int:
        """How many containers and leaves there are in all."""
        return self._num_nodes

    @property
    def num_children(self) -> int:
        """How many children there are."""
        return len(self._children)

    def is_leaf(self) -> bool:
        """Whether this is a leaf."""
        return self._type is None

    def children(self) -> list[TreeSpec]:
        """The specs of the children, as a new list."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The spec of one of the children."""
        return self._children[index]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self._num_nodes == other._num_nodes
            and self._num_leaves == other._num_leaves
            and same_type(self._type, other._type)
            and bool(self._context == other._context)
            and self._children == other._children
        )

    def __hash__(self) -> int:
        kind, context = self._type, self._context
        if kind is None:
            return _LEAF_HASH
        hashable: Any = None
        if kind is defaultdict:
            hashable = (context[0], tuple(context[1]))
        elif kind in STANDARD_DICTS:
            hashable = tuple(context)
        elif kind in BUILTIN_TYPES:
            hashable = context
        # The context of other types need not be hashable.
        return hash((str(kind), hashable, self._children))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type, self._context, self._children)

    def __deepcopy__(self, memo: dict[int, Any]) -> TreeSpec:
        if self._type is None:
            return self
        children = [child.__deepcopy__(memo) for child in self._children]
        return TreeSpec(self._type, copy.deepcopy(self._context, memo), children)

    # ---- text ----

    def __repr__(self) -> str:
        parts: list[str] = []
        self._put_text(parts, 2)
        return "".join(parts)

    def _put_text(self, parts: list[str], indent: int) -> None:
        if self._type is None:
            parts.append("*")
            return
        parts.append(f"TreeSpec({short_name(self._type)}, {context_text(self._type, self._context)}, [")
        between = ",\n" + " " * indent
        for i, child in enumerate(self._children):
            if i:
                parts.append(between)
            if child._type is None:
                parts.append("*")
            else:
                child._put_text(parts, indent + 2)
        parts.append("])")

    # ---- values ----

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Build a value that nests like this from its leaves.

        Args:
            leaves: as many as `num_leaves`.

        Raises:
            ValueError: they are more or fewer.
            NotImplementedError: the spec names a type that nobody has registered, or an enum that is not loaded.
        """
        if not isinstance(leaves, list | tuple):
            leaves = list(leaves)
        if len(leaves) != self._num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                f"holds {self._num_leaves} items ({self})."
            )
        spec = self.resolve()
        return leaves[0] if spec._type is None else spec._build(iter(leaves), {})

    def _build(self, leaves: Iterator[Any], nodes: dict[Any, NodeDef]) -> Any:
        node = nodes.get(self._type)
        if node is None:
            node = nodes[self._type] = _node(self._type)
        children = [next(leaves) if c._type is None else c._build(leaves, nodes) for c in self._children]
        return node.unflatten_fn(children, self._context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Take a value apart as far as this spec goes: a list of what stands at its leaves.

        The three types of dicts are taken for each other, and the order of keys may differ.

        Raises:
            ValueError: the value does not nest like this; the message tells what differs.
        """
        subtrees: list[Any] = []
        self.resolve()._flatten_up_to(tree, subtrees)
        return subtrees

    def _flatten_up_to(self, value: Any, subtrees: list[Any]) -> None:
        if self._type is None:
            subtrees.append(value)
            return
        for child, spec in zip(self._children_of(value), self._children, strict=True):
            spec._flatten_up_to(child, subtrees)

    def _children_of(self, value: Any) -> Any:
        """The children of a value of this type, in this spec's order. The messages are torch's."""
        node = node_of_class(type(value))
        got = node.type if node is not None else type(value)
        dicts = self._type in STANDARD_DICTS and got in STANDARD_DICTS
        if node is None or (got != self._type and not dicts):
            what = "Node type mismatch" if self._type in BUILTIN_TYPES else "Type mismatch"
            raise ValueError(f"{what}; expected {self._type!r}, but got {got!r}.")
        children, context = node.flatten_fn(value)
        if len(children) != len(self._children):
            raise ValueError(f"Node arity mismatch; expected {len(self._children)}, but got {len(children)}.")
        if dicts:
            return _by_keys(value, self._context[1] if self._type is defaultdict else self._context)
        if self._type is not deque and context != self._context:
            if self._type not in BUILTIN_TYPES:
                raise ValueError(f"Node context mismatch for custom node type {self._type!r}.")
            raise ValueError(
                f"Node context mismatch for node type {self._type!r}; expected {self._context!r}, but got {context!r}."
            )
        return children

    # ---- placeholders ----

    def resolve(self) -> TreeSpec:
        """This spec with every placeholder replaced by what is registered or loaded by now; nothing is imported.

        Raises:
            NotImplementedError: something is not known; the message names it and says what to do.
        """
        if self._known:
            return self
        children = [child.resolve() for child in self._children]
        if isinstance(self._type, UnknownType):
            node = node_of_name(self._type.name)
            if node is None:
                raise NotImplementedError(not_registered(self._type.name))
            return TreeSpec(node.type, custom_context(node, self._context), children)
        return TreeSpec(self._type, resolved_context(self._type, self._context), children)

    def imports(self) -> list[str]:
        """What torch would import to read the text of this spec: enums that keys are of, and factories, "module:name".

        Nothing is imported by fastexport, nor for `to_torch`.

        Example:
            >>> key = [{"__enum__": True, "fqn": "colours:Colour", "name": "RED"}]
            >>> leaf = {"type": None, "context": None, "children_spec": []}
            >>> spec = {"type": "builtins.dict", "context": json.dumps(key), "children_spec": [leaf]}
            >>> TreeSpec.from_json(json.dumps([1, spec])).imports()
            ['colours:Colour']
        """
        if self._known:
            return []
        found = dict.fromkeys(imports_of(self._type, self._context))
        for child in self._children:
            found.update(dict.fromkeys(child.imports()))
        return list(found)

    # ---- JSON ----

    @classmethod
    def from_json(cls, text: str, namedtuple_fields: Mapping[str, Any] | None = None) -> TreeSpec:
        """Read a tree spec from the text that a file has for it; no module is imported for it.

        Args:
            text: JSON: [1, SPEC].
            namedtuple_fields: the fields of classes of named tuples, by name; or a file's treespec_namedtuple_fields.

        Raises:
            ValueError: the text is no tree spec.

        Example:
            >>> leaf = '{"type": null, "context": null, "children_spec": []}'
            >>> text = '[1, {"type": "collections.namedtuple", "context": "shop.Pair", "children_spec": [LEAF, LEAF]}]'
            >>> spec = TreeSpec.from_json(text.replace("LEAF", leaf), {"shop.Pair": ["left", "right"]})
            >>> spec.context, spec.context.field_names
            (<class 'shop.Pair'>, ('left', 'right'))
        """
        try:
            document = json.loads(text)
            protocol, spec = document if isinstance(document, list) and len(document) == 2 else (None, None)
            if type(protocol) is not int or protocol != _PROTOCOL:
                raise ValueError("it is not [1, SPEC]")
            return _read(spec, namedtuple_fields or {})
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a tree spec: {error}") from None

    def to_json(self) -> str:
        """The text of this spec, as torch writes it.

        Raises:
            NotImplementedError: a type has no name for files.
            TypeError: a context is not what JSON can hold.

        Example:
            >>> TreeSpec().to_json()
            '[1, {"type": null, "context": null, "children_spec": []}]'
        """
        return json.dumps([_PROTOCOL, self._write()], default=enum_json)

    def _write(self) -> dict[str, Any]:
        name, context = dumpable(self._type, self._context)
        return {"type": name, "context": context, "children_spec": [child._write() for child in self._children]}

    # ---- torch ----

    def to_torch(self) -> Any:
        """This spec as torch's, a torch.utils._pytree.TreeSpec. Its types that torch doesn't know are registered there.

        Raises:
            NotImplementedError: the spec names a type that nobody has registered, or an enum that is not loaded.
            ImportError: torch is not installed.
        """
        import torch.utils._pytree as pytree

        return self.resolve()._to_torch(pytree)

    def _to_torch(self, pytree: Any) -> Any:
        if self._type is None:
            return pytree.treespec_leaf()
        tell_torch(self._context if self._type is NAMED_TUPLE else self._type)
        return pytree.TreeSpec(self._type, self._context, [child._to_torch(pytree) for child in self._children])

    @classmethod
    def from_torch(cls, spec: Any) -> TreeSpec:
        """A spec of torch.utils._pytree (or of its C++ twin) as ours.

        Raises:
            TypeError: it is no tree spec of torch.
            ValueError: it is nested more than 200 deep.
        """
        import torch.utils._pytree as pytree

        return _from_torch(pytree._ensure_python_treespec_instance(spec))


LEAF = TreeSpec()


def make_spec(kind: Any, context: Any, children: list[TreeSpec], leaves: int, nodes: int, depth: int) -> TreeSpec:
    """A spec of a value in memory, whose counts its maker knows: nothing is checked."""
    spec = TreeSpec.__new__(TreeSpec)
    spec._type = kind
    spec._context = context
    spec._children = tuple(children)
    spec._num_leaves = leaves
    spec._num_nodes = nodes
    spec._depth = depth
    spec._known = True
    return spec


def same_type(a: Any, b: Any) -> bool:
    """Whether two types of specs are the same; as in torch, by their text, so that a class defined anew is the same."""
    return a is b or a == b or (isinstance(a, type) and isinstance(b, type) and str(a) == str(b))


def _from_torch(spec: Any, deeper: int = MAX_DEPTH) -> TreeSpec:
    if spec.type is None:
        return LEAF
    if not deeper:
        raise ValueError(f"a tree spec is nested more than {MAX_DEPTH} deep")
    children = [_from_torch(child, deeper - 1) for child in spec.children()]
    depth = 1 + max((child._depth for child in children), default=-1)
    return make_spec(spec.type, spec.context, children, spec.num_leaves, spec.num_nodes, depth)


def _read(spec: Any, fields: Mapping[str, Any]) -> TreeSpec:
    if not isinstance(spec, dict) or not _PARTS <= spec.keys():
        raise ValueError("a part is not {type, context, children_spec}")
    name, context, children = spec["type"], spec["context"], spec["children_spec"]
    if not isinstance(children, list) or not (name is None or isinstance(name, str)):
        raise ValueError("a part has a type or children of the wrong kind")
    if name is None and context is None and not children:
        return LEAF
    specs = [_read(child, fields) for child in children]
    kind, context = read_context(name, context, len(specs), fields)
    return TreeSpec(kind, context, specs)


def _node(kind: Any) -> NodeDef:
    node = node_of_type(kind)
    if node is None:
        raise NotImplementedError(f"{kind} is not registered as pytree node")
    return node


def _by_keys(value: Any, keys: list[Any]) -> list[Any]:
    got, expected = set(value), set(keys)
    if got != expected:
        missing, extra = expected - got, got - expected
        message = f"; missing key(s): {missing}" if missing else ""
        message += f"; extra key(s): {extra}" if extra else ""
        raise ValueError(f"Node keys mismatch{message}.")
    return [value[key] for key in keys]
