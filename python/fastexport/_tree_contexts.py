"""The contexts of tree specs: as texts, from files and to files, and the placeholders that stand for what a file names.

A file names types, enums and factories. None of them is imported: what is not registered here, or with torch when
that is loaded, is a placeholder that prints and is written as it came. `resolved_context` looks again, when a value is
built.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from enum import Enum
from types import ModuleType
from typing import Any

from fastexport._tree_nodes import (
    BUILTIN_NAMES,
    NAMED_TUPLE,
    STANDARD_DICTS,
    Frozen,
    NodeDef,
    is_namedtuple_class,
    name_of_namedtuple,
    node_of_name,
    node_of_type,
)

_PLAIN_FACTORIES: dict[tuple[str, str], Any] = {
    (cls.__module__, cls.__qualname__): cls
    for cls in (list, dict, set, int, float, str, tuple, bool, frozenset, complex, OrderedDict, deque, Counter)
}


class EnumKey(Frozen):
    """A member of an enum, as the key of a dict: its class is named, never imported.

    >>> EnumKey("colours:Colour", "RED")
    <Colour.RED>
    """

    __slots__ = ()

    def __init__(self, fqn: str, name: str) -> None:
        self._fields = (fqn, name)

    @property
    def fqn(self) -> str:
        """The class: "module:Class"."""
        return str(self._fields[0])

    @property
    def name(self) -> str:
        """The member."""
        return str(self._fields[1])

    def __repr__(self) -> str:
        return f"<{self.fqn.partition(':')[2]}.{self.name}>"


class UnknownType(Frozen):
    """A type that a file names and that nobody has registered. Equal when the names are.

    Args:
        name: the name in the file.
        field_names: the fields of a named tuple, where the file tells them.
    """

    __slots__ = ("_field_names",)

    def __init__(self, name: str, field_names: tuple[str, ...] | None = None) -> None:
        self._fields = (name,)
        self._field_names = field_names

    @property
    def name(self) -> str:
        """The name in the file."""
        return str(self._fields[0])

    @property
    def field_names(self) -> tuple[str, ...] | None:
        """The fields of a named tuple, where the file tells them."""
        return self._field_names

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self._field_names)

    def __repr__(self) -> str:
        return f"<class '{self.name}'>"


class UnknownFactory(Frozen):
    """The factory of a defaultdict that a file names and that is no plain type."""

    __slots__ = ()

    def __init__(self, module: str, qualname: str) -> None:
        self._fields = (module, qualname)

    @property
    def module(self) -> str:
        """Its module."""
        return str(self._fields[0])

    @property
    def qualname(self) -> str:
        """Its name there."""
        return str(self._fields[1])

    def __repr__(self) -> str:
        return f"<class '{self.module}.{self.qualname}'>"


# ---- texts ----


def short_name(kind: Any) -> str:
    """The name of a type as the text of a spec has it."""
    return kind.name.rpartition(".")[2] if isinstance(kind, UnknownType) else str(getattr(kind, "__name__", kind))


def context_text(kind: Any, context: Any) -> str:
    """A context as the text of a spec has it."""
    return f"{_parsed(kind, context)}"


def _parsed(kind: Any, context: Any) -> Any:
    """A context; that of an unknown type without its JSON, where it is JSON, as most are."""
    if isinstance(kind, UnknownType) and isinstance(context, str):
        try:
            return json.loads(context, object_hook=_enum_key)
        except (ValueError, RecursionError):
            pass
    return context


def not_registered(name: str) -> str:
    """What to say of a name that nobody has registered."""
    return (
        f"{name} is not registered: register the class with fastexport.register_dataclass or "
        f"fastexport.register_pytree_node, with serialized_type_name={name!r}"
    )


# ---- placeholders ----


def has_placeholder(kind: Any, context: Any) -> bool:
    """Whether a type or its context has something that `resolved_context` or a registration would replace."""
    if context is None and type(kind) is type:
        return False
    if isinstance(kind, UnknownType) or isinstance(context, UnknownType):
        return True
    if kind is defaultdict and isinstance(context, list) and len(context) == 2:
        return isinstance(context[0], UnknownFactory) or _holds_enum_key(context[1])
    return _holds_enum_key(context)


def imports_of(kind: Any, context: Any) -> Iterator[str]:
    """What torch would import to read a context, as "module:name"."""
    if kind is defaultdict and isinstance(context[0], UnknownFactory):
        yield f"{context[0].module}:{context[0].qualname}"
    yield from _enums_in(_parsed(kind, context))


def _enums_in(value: Any) -> Iterator[str]:
    if isinstance(value, EnumKey):
        yield value.fqn
    elif type(value) in (list, dict):
        for item in value.values() if type(value) is dict else value:
            yield from _enums_in(item)


def _holds_enum_key(value: Any) -> bool:
    if type(value) is dict:
        return any(map(_holds_enum_key, value.values()))
    return isinstance(value, EnumKey) or (type(value) is list and any(map(_holds_enum_key, value)))


def resolved_context(kind: Any, context: Any) -> Any:
    """A context with its placeholders replaced by what is registered or loaded; NotImplementedError when one is not."""
    if isinstance(context, UnknownType):
        return _namedtuple_class(context)
    if kind is defaultdict and isinstance(context[0], UnknownFactory):
        module, name = context[0].module, context[0].qualname
        raise NotImplementedError(f"{module}.{name}, the factory of a defaultdict, is no plain type")
    return _with_enums(context)


def _namedtuple_class(unknown: UnknownType) -> Any:
    node = node_of_name(unknown.name)
    if node is None or not is_namedtuple_class(node.type):
        fields = f"; its fields are {', '.join(unknown.field_names)}" if unknown.field_names else ""
        raise NotImplementedError(
            f"the named tuple {unknown.name} is not registered: register its class with "
            f"fastexport.register_namedtuple, with serialized_type_name={unknown.name!r}{fields}"
        )
    if unknown.field_names is not None and node.type._fields != unknown.field_names:
        raise NotImplementedError(
            f"the named tuple {unknown.name} has the fields {', '.join(unknown.field_names)} in the file, but the "
            f"class that is registered has {', '.join(node.type._fields)}"
        )
    return node.type


def _with_enums(value: Any) -> Any:
    if isinstance(value, EnumKey):
        return _enum_member(value)
    if type(value) is list:
        return [_with_enums(item) for item in value]
    return {key: _with_enums(item) for key, item in value.items()} if type(value) is dict else value


def _enum_member(key: EnumKey) -> Enum:
    """The member of an enum whose module is loaded. Only namespaces are looked into: no code of the module runs."""
    module, _, path = key.fqn.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
    if isinstance(found, type) and issubclass(found, Enum) and key.name in found.__members__:
        return found.__members__[key.name]
    raise NotImplementedError(f"the key {key} is of the enum {key.fqn}, which is not loaded: import its module first")


# ---- reading and writing ----


def read_context(name: str | None, context: Any, children: int, fields: Mapping[str, Any]) -> tuple[Any, Any]:
    """The type and the context of a spec in memory from what a file has for them; ValueError when they are not such."""
    kind = BUILTIN_NAMES.get(name)
    if kind is NAMED_TUPLE:
        return kind, _read_namedtuple(context, children, fields)
    if kind is defaultdict:
        return kind, _read_defaultdict(context, children)
    if name is None:
        raise ValueError("a leaf has neither a context nor children")
    if kind is None:
        node = node_of_name(name)
        return (UnknownType(name), context) if node is None else (node.type, _read_custom(node, context))
    if not isinstance(context, str):
        raise ValueError(f"the context of {name} is no text")
    value = json.loads(context, object_hook=_enum_key) if context != "null" else None
    if kind in STANDARD_DICTS:
        _check_keys(value, children)
    elif kind is deque:
        if value is not None and (type(value) is not int or value < children):
            raise ValueError("the length of a deque does not hold its children")
    elif value is not None:
        raise ValueError(f"the context of {name} is not null")
    return kind, value


def _read_namedtuple(name: Any, children: int, fields: Mapping[str, Any]) -> Any:
    if not isinstance(name, str):
        raise ValueError("a named tuple has no class")
    names = fields.get(name)
    names = names["field_names"] if isinstance(names, Mapping) else names
    unknown = UnknownType(name, None if names is None else tuple(map(str, names)))
    if unknown.field_names is not None and len(unknown.field_names) != children:
        raise ValueError(f"the named tuple {name} has not as many fields as children")
    try:
        return _namedtuple_class(unknown)
    except NotImplementedError:
        return unknown


def _read_defaultdict(context: Any, children: int) -> list[Any]:
    names = ("default_factory_module", "default_factory_name", "dict_context")
    if not isinstance(context, dict) or set(context) != set(names):
        raise ValueError("the context of a defaultdict is not a factory and keys")
    module, name, keys = (context[key] for key in names)
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("the factory of a defaultdict is no name")
    if isinstance(keys, list):
        keys = [_enum_key(key) if isinstance(key, dict) else key for key in keys]
    _check_keys(keys, children)
    return [_PLAIN_FACTORIES.get((module, name), UnknownFactory(module, name)), keys]


def _read_custom(node: NodeDef, context: Any) -> Any:
    try:
        return custom_context(node, context, enums=False)
    except NotImplementedError:
        raise
    except Exception as error:
        raise ValueError(f"the context of {node.serialized_type_name} can't be read: {error}") from error


def custom_context(node: NodeDef, context: Any, enums: bool = True) -> Any:
    """The context of a registered type from what a file has for it."""
    if node.from_dumpable_context is not None:
        return node.from_dumpable_context(context)
    value = json.loads(context, object_hook=_enum_key)
    return _with_enums(value) if enums else value


def _check_keys(keys: Any, children: int) -> None:
    if not isinstance(keys, list) or len(keys) != children:
        raise ValueError("the keys of a dict are not as many as its children")
    if any(isinstance(key, list | dict) for key in keys):
        raise ValueError("a key of a dict is a list or an object")
    if len(set(keys)) != len(keys):
        raise ValueError("a key of a dict comes twice")


def _enum_key(value: dict[str, Any]) -> Any:
    if "__enum__" not in value:
        return value
    fqn, name = value.get("fqn"), value.get("name")
    if not isinstance(fqn, str) or not isinstance(name, str):
        raise ValueError("an enum key names no class and member")
    return EnumKey(fqn, name)


def enum_json(value: Any) -> Any:
    """What JSON has for an enum member; the `default` of json.dumps."""
    if isinstance(value, EnumKey):
        return {"__enum__": True, "fqn": value.fqn, "name": value.name}
    if isinstance(value, Enum):
        cls = type(value)
        return {"__enum__": True, "fqn": f"{cls.__module__}:{cls.__qualname__}", "name": value.name}
    raise TypeError(f"a {type(value).__name__} can't stand in a tree spec")


def dumpable(kind: Any, context: Any) -> tuple[str | None, Any]:
    """The name of a type in files, and its context as JSON can hold it."""
    if kind is None:
        return None, None
    if isinstance(kind, UnknownType):
        return kind.name, context
    if kind is NAMED_TUPLE:
        return "collections.namedtuple", _dumpable_namedtuple(context)
    if kind is defaultdict:
        return "collections.defaultdict", _dumpable_defaultdict(context)
    node = node_of_type(kind)
    if node is None:
        raise NotImplementedError(f"Serializing {kind} in pytree is not registered.")
    if node.serialized_type_name is None:
        raise NotImplementedError(
            f"No registered serialization name for {kind} found. Please register it with a `serialized_type_name`."
        )
    if node.to_dumpable_context is not None:
        return node.serialized_type_name, node.to_dumpable_context(context)
    try:
        return node.serialized_type_name, json.dumps(context, default=enum_json)
    except TypeError as error:
        raise TypeError(
            f"Unable to serialize context of {kind}: {error}. Please make the context json dump-able, or register the "
            "type with `to_dumpable_context`."
        ) from error


def _dumpable_namedtuple(cls: Any) -> str:
    name = cls.name if isinstance(cls, UnknownType) else name_of_namedtuple(cls)
    if name is None:
        raise NotImplementedError(
            f"Can't serialize TreeSpec of namedtuple class {cls} because we didn't register a serializated_type_name. "
            "Please register using fastexport.register_namedtuple."
        )
    return str(name)


def _dumpable_defaultdict(context: Any) -> dict[str, Any]:
    factory, keys = context
    unknown = isinstance(factory, UnknownFactory)
    module = factory.module if unknown else getattr(factory, "__module__", None)
    name = factory.qualname if unknown else getattr(factory, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise TypeError(f"Unable to serialize a defaultdict: its factory, {factory!r}, has no module and name")
    return {"default_factory_module": module, "default_factory_name": name, "dict_context": keys}
