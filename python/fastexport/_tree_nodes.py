"""The containers of pytrees: how each type comes apart and goes together, under which name files know it, and the keys
of paths. Names, arguments and meaning are those of torch/utils/_pytree.py (torch 2.13).

A type counts as a container when it was registered here or, once torch is loaded, with torch; never for being a
subclass. All classes of named tuples share one node, that of `collections.namedtuple`: the class is their context.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fastexport._loaded import loaded

__all__ = [
    "GetAttrKey",
    "MappingKey",
    "SequenceKey",
    "register_dataclass",
    "register_namedtuple",
    "register_pytree_node",
]

FlattenFn = Callable[[Any], tuple[Any, Any]]
UnflattenFn = Callable[[Any, Any], Any]

NAMED_TUPLE: Any = namedtuple  # what torch puts as the type of every named tuple
STANDARD_DICTS = frozenset({dict, OrderedDict, defaultdict})


class NodeDef(NamedTuple):
    """How a type comes apart and goes together."""

    type: Any
    flatten_fn: FlattenFn
    unflatten_fn: UnflattenFn
    flatten_with_keys_fn: FlattenFn | None
    serialized_type_name: str | None = None
    to_dumpable_context: Callable[[Any], Any] | None = None
    from_dumpable_context: Callable[[Any], Any] | None = None


# ---- keys of paths ----


class Frozen:
    """A base for values that can't be changed, equal when class and fields are; `dataclasses` takes long to import."""

    __slots__ = ("_fields",)
    _fields: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return self._fields == other._fields if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._fields))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._fields


class SequenceKey(Frozen):
    """The way to an item of a sequence."""

    __slots__ = ()

    def __init__(self, idx: int) -> None:
        self._fields = (idx,)

    @property
    def idx(self) -> int:
        """The item's place."""
        return int(self._fields[0])

    def __str__(self) -> str:
        return f"[{self._fields[0]!r}]"

    def __repr__(self) -> str:
        return f"SequenceKey(idx={self._fields[0]!r})"

    def get(self, sequence: Any) -> Any:
        """The item."""
        return sequence[self._fields[0]]


class MappingKey(Frozen):
    """The way to a value of a mapping."""

    __slots__ = ()

    def __init__(self, key: Any) -> None:
        self._fields = (key,)

    @property
    def key(self) -> Any:
        """The value's key."""
        return self._fields[0]

    def __str__(self) -> str:
        return f"[{self._fields[0]!r}]"

    def __repr__(self) -> str:
        return f"MappingKey(key={self._fields[0]!r})"

    def get(self, mapping: Any) -> Any:
        """The value."""
        return mapping[self._fields[0]]


class GetAttrKey(Frozen):
    """The way to an attribute."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        self._fields = (name,)

    @property
    def name(self) -> str:
        """The attribute's name."""
        return str(self._fields[0])

    def __str__(self) -> str:
        return f".{self._fields[0]}"

    def __repr__(self) -> str:
        return f"GetAttrKey(name={self._fields[0]!r})"

    def get(self, obj: Any) -> Any:
        """The attribute."""
        return getattr(obj, self._fields[0])


def _like(key: Any, classes: dict[str, Any]) -> Any:
    """A key as the class of the same name in `classes`: ours as torch's, or torch's as ours."""
    name = type(key).__name__
    if name not in classes or type(key) is classes[name]:
        return key
    return classes[name](getattr(key, _KEY_FIELDS[name]))


_KEY_FIELDS = {"SequenceKey": "idx", "MappingKey": "key", "GetAttrKey": "name"}
_OWN_KEYS = {cls.__name__: cls for cls in (SequenceKey, MappingKey, GetAttrKey)}


def _with_keys_like(flatten_with_keys: FlattenFn | None, classes: dict[str, Any]) -> FlattenFn | None:
    if flatten_with_keys is None:
        return None

    def flatten(value: Any) -> tuple[list[Any], Any]:
        pairs, context = flatten_with_keys(value)
        return [(_like(key, classes), child) for key, child in pairs], context

    return flatten


# ---- the types every tree may have ----


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class is one of `collections.namedtuple`'s or made from one."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(getattr(cls, "_fields", None), tuple)
        and all(type(field) is str for field in cls._fields)  # type: ignore[attr-defined]
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def _flatten_sequence(value: Any) -> tuple[list[Any], None]:
    return list(value), None


def _flatten_dict(value: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(value.values()), list(value)


def _flatten_defaultdict(value: defaultdict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(value.values()), [value.default_factory, list(value)]


def _flatten_deque(value: deque[Any]) -> tuple[list[Any], int | None]:
    return list(value), value.maxlen


def _flatten_namedtuple(value: Any) -> tuple[list[Any], type]:
    return list(value), type(value)


def _unflatten_defaultdict(values: Iterable[Any], context: Any) -> Any:
    factory, keys = context
    return defaultdict(factory, zip(keys, values, strict=True))


def _by_index(flatten: FlattenFn) -> FlattenFn:
    def flatten_with_keys(value: Any) -> tuple[list[Any], Any]:
        values, context = flatten(value)
        return [(SequenceKey(i), child) for i, child in enumerate(values)], context

    return flatten_with_keys


def _by_key(flatten: FlattenFn) -> FlattenFn:
    def flatten_with_keys(value: Any) -> tuple[list[Any], Any]:
        values, context = flatten(value)
        return [(MappingKey(key), child) for key, child in zip(value, values, strict=True)], context

    return flatten_with_keys


def _by_field(value: Any) -> tuple[list[Any], Any]:
    fields = type(value)._fields
    return [(GetAttrKey(field), child) for field, child in zip(fields, value, strict=True)], type(value)


_BUILTIN = (
    NodeDef(tuple, _flatten_sequence, lambda values, _: tuple(values), _by_index(_flatten_sequence), "builtins.tuple"),
    NodeDef(list, _flatten_sequence, lambda values, _: list(values), _by_index(_flatten_sequence), "builtins.list"),
    NodeDef(
        dict,
        _flatten_dict,
        lambda values, keys: dict(zip(keys, values, strict=True)),
        _by_key(_flatten_dict),
        "builtins.dict",
    ),
    NodeDef(NAMED_TUPLE, _flatten_namedtuple, lambda values, cls: cls(*values), _by_field, "collections.namedtuple"),
    NodeDef(
        OrderedDict,
        _flatten_dict,
        lambda values, keys: OrderedDict(zip(keys, values, strict=True)),
        _by_key(_flatten_dict),
        "collections.OrderedDict",
    ),
    NodeDef(
        defaultdict,
        _flatten_defaultdict,
        _unflatten_defaultdict,
        _by_key(_flatten_defaultdict),
        "collections.defaultdict",
    ),
    NodeDef(
        deque,
        _flatten_deque,
        lambda values, maxlen: deque(values, maxlen=maxlen),
        _by_index(_flatten_deque),
        "collections.deque",
    ),
)
BUILTIN_TYPES = frozenset(node.type for node in _BUILTIN)
BUILTIN_NAMES = {node.serialized_type_name: node.type for node in _BUILTIN}

_LOCK = threading.RLock()
_nodes: dict[Any, NodeDef] = {node.type: node for node in _BUILTIN}
_named_tuples: dict[type, NodeDef] = {}  # classes that got a name for files; they come apart like all named tuples
_by_name: dict[str, NodeDef] = {}


# ---- registration ----


def register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Any], Any] | None = None,
    from_dumpable_context: Callable[[Any], Any] | None = None,
    flatten_with_keys_fn: FlattenFn | None = None,
) -> None:
    """Make a type a container of pytrees; the arguments are those of torch.utils._pytree.register_pytree_node.

    Types that are registered with torch need not be registered here: once torch is loaded they are found. Types that
    are registered here are handed to torch when a tree spec goes there.

    Args:
        cls: the type; its subclasses are not meant.
        flatten_fn: takes a value, gives its children and a context.
        unflatten_fn: takes the children, as a list, and the context; gives a value.
        serialized_type_name: how files name the type; a tree spec with it can't be written without.
        to_dumpable_context: makes of the context what JSON can hold; by default its JSON text.
        from_dumpable_context: the way back.
        flatten_with_keys_fn: like flatten_fn, but each child comes as (key, child); needed for paths.

    Raises:
        ValueError: the type is registered already, only one of the two functions for the context is given, or the name
            is that of a built-in type.

    Example:
        >>> from fastexport._pytree import tree_flatten
        >>> class Box:
        ...     def __init__(self, content):
        ...         self.content = content
        >>> register_pytree_node(Box, lambda box: ([box.content], None), lambda children, _: Box(*children))
        >>> tree_flatten([Box(1), 2])
        ([1, 2], TreeSpec(list, None, [TreeSpec(Box, None, [*]),
          *]))
    """
    with _LOCK:
        if cls in _nodes or cls in _named_tuples:
            raise ValueError(f"{cls} is already registered as pytree node.")
        _register(
            NodeDef(
                cls,
                flatten_fn,
                unflatten_fn,
                flatten_with_keys_fn,
                serialized_type_name,
                to_dumpable_context,
                from_dumpable_context,
            )
        )


def _register(node: NodeDef) -> None:
    cls, name = node.type, node.serialized_type_name
    if (node.to_dumpable_context is None) != (node.from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    if name in BUILTIN_NAMES or cls in BUILTIN_TYPES:
        raise ValueError(f"{name or cls} is a built-in type of pytrees")
    with _LOCK:
        if cls in _nodes or cls in _named_tuples:
            warnings.warn(
                f"{cls} is already registered as pytree node. Overwriting the previous registration.", stacklevel=3
            )
            _deregister_pytree_node(cls)
        (_named_tuples if is_namedtuple_class(cls) else _nodes)[cls] = node
        if name is not None:
            _by_name[name] = node


def _deregister_pytree_node(cls: type) -> None:
    """Forget a type that was registered here."""
    with _LOCK:
        if cls in BUILTIN_TYPES:
            raise ValueError(f"{cls} is a built-in type of pytrees")
        node = _named_tuples.pop(cls, None) or _nodes.pop(cls)
        name = node.serialized_type_name
        if name is not None and _by_name.get(name) is node:
            del _by_name[name]


def register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Give a class of named tuples the name that files know it by; in memory named tuples need none.

    Args:
        cls: the class.
        serialized_type_name: the name.

    Raises:
        TypeError: it is no class of named tuples.

    Example:
        >>> from fastexport._pytree import tree_structure
        >>> Point = namedtuple("Point", "x y")
        >>> register_namedtuple(Point, serialized_type_name="geometry.Point")
        >>> "geometry.Point" in tree_structure(Point(1, 2)).to_json()
        True
    """
    if not is_namedtuple_class(cls):
        raise TypeError(f"{cls} is no class of named tuples")
    _register(NodeDef(cls, _flatten_namedtuple, lambda values, _: cls(*values), _by_field, serialized_type_name))


def register_dataclass(
    cls: type,
    *,
    serialized_type_name: str | None = None,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
) -> None:
    """Make a dataclass a container of pytrees, as torch.export.register_dataclass does.

    Fields that are None are no leaves: the spec keeps their names.

    Args:
        cls: the dataclass, or a class that is made by passing its fields by name.
        serialized_type_name: how files name the class; a tree spec with it can't be written without.
        field_names: the fields that are children; needed for a class that is no dataclass. By default those that the
            class is made with.
        drop_field_names: with `field_names`: fields left out on purpose. Ignored without, as in torch.

    Raises:
        ValueError: field_names is missing, or does not fit the fields.

    Example:
        >>> from fastexport._pytree import tree_flatten
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Pair:
        ...     left: int
        ...     right: int | None = None
        >>> register_dataclass(Pair)
        >>> tree_flatten(Pair(1))
        ([1], TreeSpec(Pair, [['left'], ['right']], [*]))
    """
    names = _fields_of(cls, field_names, set(drop_field_names or ()))

    def flatten(value: Any) -> tuple[list[Any], list[list[str]]]:
        children, present, absent = [], [], []
        for name in names:
            child = getattr(value, name)
            if child is None:
                absent.append(name)
            else:
                children.append(child)
                present.append(name)
        return children, [present, absent]

    def unflatten(values: Iterable[Any], context: Any) -> Any:
        present, absent = context
        return cls(**dict(zip(present, values, strict=True)), **dict.fromkeys(absent))

    def flatten_with_keys(value: Any) -> tuple[list[Any], Any]:
        children, context = flatten(value)
        return [(GetAttrKey(name), child) for name, child in zip(context[0], children, strict=True)], context[0]

    _register(NodeDef(cls, flatten, unflatten, flatten_with_keys, serialized_type_name))


def _fields_of(cls: Any, field_names: list[str] | None, dropped: set[str]) -> list[str]:
    import dataclasses

    if not dataclasses.is_dataclass(cls):
        if field_names is None:
            raise ValueError(
                f"field_names must be specified with a list of all fields used to initialize {cls}, "
                "as it is not a dataclass."
            )
        return list(field_names)
    fields = [field.name for field in dataclasses.fields(cls) if field.init]
    if field_names is None:
        return fields
    wanted = set(fields) - dropped
    if wanted == set(field_names):
        return list(field_names)
    message = "field_names does not include all dataclass fields.\n"
    if missing := wanted - set(field_names):
        message += (
            f"Missing fields in `field_names`: {missing}. If you want to include these fields in the pytree, please "
            "add them to `field_names`, otherwise please add them to `drop_field_names`.\n"
        )
    if unexpected := set(field_names) - wanted:
        message += (
            f"Unexpected fields in `field_names`: {unexpected}. Please remove these fields, or add them to "
            "`drop_field_names`.\n"
        )
    raise ValueError(message)


# ---- lookup ----


def node_of_class(cls: type) -> NodeDef | None:
    """The node for values of a class; None when they are leaves."""
    node = _nodes.get(cls)
    if node is not None:
        return node
    if issubclass(cls, tuple) and is_namedtuple_class(cls):
        return _nodes[NAMED_TUPLE]
    return _torch_node(cls)


def node_of_type(type: Any) -> NodeDef | None:
    """The node for the type of a spec; that of a named tuple is `collections.namedtuple`."""
    return _nodes.get(type) or _torch_node(type)


def node_of_name(name: str) -> NodeDef | None:
    """The node that was registered under a name: a class of named tuples also. Nothing is imported."""
    node = _by_name.get(name)
    if node is not None:
        return node
    types = getattr(_torch_pytree(), "SERIALIZED_TYPE_TO_PYTHON_TYPE", None)
    cls = types.get(name) if types else None
    node = _torch_node(cls) if cls is not None else None
    # Classes without a name share one in torch's table.
    return node if node is not None and node.serialized_type_name == name else None


def name_of_namedtuple(cls: Any) -> str | None:
    """The name for files of a class of named tuples; None when it got none."""
    node = _named_tuples.get(cls) or _torch_node(cls)
    return node.serialized_type_name if node is not None else None


def _torch_pytree() -> Any:
    """torch's pytrees, if somebody has loaded torch; it is not loaded for this."""
    return loaded("torch.utils._pytree")


def _torch_node(cls: Any) -> NodeDef | None:
    module = _torch_pytree()
    nodes = getattr(module, "SUPPORTED_NODES", None)  # None while torch is being imported
    node = nodes.get(cls) if nodes else None
    if node is None:
        return None
    with_keys = _with_keys_like(node.flatten_with_keys_fn, _OWN_KEYS)
    serialized = module.SUPPORTED_SERIALIZED_TYPES.get(cls)
    if serialized is None:
        return NodeDef(cls, node.flatten_fn, node.unflatten_fn, with_keys)
    name = serialized.serialized_type_name
    return NodeDef(
        cls,
        node.flatten_fn,
        node.unflatten_fn,
        with_keys,
        None if name == module.NO_SERIALIZED_TYPE_NAME_FOUND else name,
        serialized.to_dumpable_context,
        serialized.from_dumpable_context,
    )


def tell_torch(*types: Any) -> None:
    """Register with torch what was registered here and torch does not know yet, so that both see the same trees.

    Args:
        types: the types meant, of others nothing happens; by default all that were registered here.
    """
    import torch.utils._pytree as pytree

    keys = {name: getattr(pytree, name) for name in _OWN_KEYS}
    with _LOCK:
        nodes = {**_nodes, **_named_tuples}
    for cls in types or nodes:
        node = nodes.get(cls)
        if node is None or cls in pytree.SUPPORTED_NODES:
            continue
        if is_namedtuple_class(cls):
            pytree._register_namedtuple(cls, serialized_type_name=node.serialized_type_name)
            continue
        pytree.register_pytree_node(
            cls,
            node.flatten_fn,
            node.unflatten_fn,
            serialized_type_name=node.serialized_type_name,
            to_dumpable_context=node.to_dumpable_context,
            from_dumpable_context=node.from_dumpable_context,
            flatten_with_keys_fn=_with_keys_like(node.flatten_with_keys_fn, keys),
        )
