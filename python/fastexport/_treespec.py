"""Tree specs: how the inputs and outputs of a program nest.

A file holds them as JSON text (torch/utils/_pytree.py, protocol 1). They are read here into plain Python: types stay
names, nothing is imported, and what a program's author registered needs not be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

__all__ = ["EnumKey", "TreeSpec"]

_PROTOCOL = 1
_DICTS = ("builtins.dict", "collections.OrderedDict")
_BUILTIN = {
    "builtins.tuple": "tuple",
    "builtins.list": "list",
    "builtins.dict": "dict",
    "collections.OrderedDict": "OrderedDict",
    "collections.defaultdict": "defaultdict",
    "collections.deque": "deque",
    "collections.namedtuple": "namedtuple",
}


@dataclass(frozen=True, slots=True)
class EnumKey:
    """A member of an enum, as the key of a dict: its class is named, never imported.

    >>> EnumKey("colours:Colour", "RED")
    <Colour.RED>
    """

    fqn: str  # "module:Class"
    name: str

    def __repr__(self) -> str:
        return f"<{self.fqn.partition(':')[2]}.{self.name}>"


class _ClassName(str):
    """The name of a class, printed as the class itself would be."""

    def __repr__(self) -> str:
        return f"<class '{self}'>"


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """How a value nests: a leaf, or a container with a spec for each child.

    Attributes:
        type: the registered name of the container's type, such as "builtins.dict"; None for a leaf.
        context: what the container needs besides its children: the keys of a dict, the longest length of a deque, the
            class of a named tuple, names of fields of a dataclass; None where it needs nothing.
        children: the specs of the children.
        num_leaves: how many leaves there are in all.
        num_nodes: how many containers and leaves there are in all.

    Example:
        >>> text = '[1, {"type": "builtins.list", "context": "null", "children_spec": [LEAF, LEAF]}]'
        >>> leaf = '{"type": null, "context": null, "children_spec": []}'
        >>> spec = TreeSpec.from_json(text.replace("LEAF", leaf))
        >>> spec.num_leaves, spec.children[0].is_leaf()
        (2, True)
        >>> print(spec)
        TreeSpec(list, None, [*,
          *])
    """

    type: str | None = None
    context: Any = None
    children: tuple[TreeSpec, ...] = ()
    num_leaves: int = field(init=False, compare=False)
    num_nodes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.type is None and (self.context is not None or self.children):
            raise ValueError("a leaf has neither a context nor children")
        leaves = 1 if self.type is None else sum(child.num_leaves for child in self.children)
        object.__setattr__(self, "num_leaves", leaves)
        object.__setattr__(self, "num_nodes", 1 + sum(child.num_nodes for child in self.children))

    @property
    def num_children(self) -> int:
        """How many children there are."""
        return len(self.children)

    def is_leaf(self) -> bool:
        """Whether this is a leaf."""
        return self.type is None

    def child(self, index: int) -> TreeSpec:
        """One of the children."""
        return self.children[index]

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), self.children))

    # ---- text ----

    def __repr__(self) -> str:
        return "".join(self._text(0))

    def _text(self, indent: int) -> Iterator[str]:
        if self.type is None:
            yield "*"
            return
        yield f"TreeSpec({_BUILTIN.get(self.type, self.type.rpartition('.')[2])}, {self._context_text()}, ["
        for i, child in enumerate(self.children):
            if i:
                yield ",\n" + " " * (indent + 2)
            yield from child._text(indent + 2)
        yield "])"

    def _context_text(self) -> str:
        if self.type == "collections.namedtuple":
            return f"<class '{self.context}'>"
        if self.type == "collections.defaultdict":
            module, name, keys = self.context
            return str([_ClassName(name if module == "builtins" else f"{module}.{name}"), keys])
        return str(self.context)

    # ---- JSON ----

    @classmethod
    def from_json(cls, text: str) -> TreeSpec:
        """Read a tree spec from the text that a file has for it.

        Args:
            text: JSON: [1, SPEC].

        Raises:
            ValueError: the text is no tree spec.
        """
        try:
            document = json.loads(text)
            protocol, spec = document if isinstance(document, list) and len(document) == 2 else (None, None)
            if type(protocol) is not int or protocol != _PROTOCOL:
                raise ValueError("it is not [1, SPEC]")
            return cls._read(spec)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a tree spec: {error}") from None

    @classmethod
    def _read(cls, spec: Any) -> TreeSpec:
        if not isinstance(spec, dict) or not {"type", "context", "children_spec"} <= spec.keys():
            raise ValueError("a part is not {type, context, children_spec}")
        name, context, children = spec["type"], spec["context"], spec["children_spec"]
        if not isinstance(children, list) or not (name is None or isinstance(name, str)):
            raise ValueError("a part has a type or children of the wrong kind")
        specs = tuple(cls._read(child) for child in children)
        return cls(name, None if name is None and context is None else _read_context(name, context, len(specs)), specs)

    def to_json(self) -> str:
        """The text of this spec, as torch writes it.

        Example:
            >>> TreeSpec().to_json()
            '[1, {"type": null, "context": null, "children_spec": []}]'
        """
        return json.dumps([_PROTOCOL, self._write()])

    def _write(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "context": _write_context(self.type, self.context),
            "children_spec": [child._write() for child in self.children],
        }


def _read_context(name: str | None, context: Any, children: int) -> Any:
    if name == "collections.namedtuple":
        if not isinstance(context, str):
            raise ValueError("a named tuple has no class")
        return context
    if name == "collections.defaultdict":
        return _read_defaultdict(context, children)
    if not isinstance(context, str):
        if name in _BUILTIN or name is None:
            raise ValueError(f"the context of {name} is no text")
        return context  # of a type with a form of its own
    if name not in _BUILTIN:
        return _read_registered(context)
    value = json.loads(context, object_hook=_enum_key)
    if name in _DICTS:
        _check_keys(value, children)
    elif name == "collections.deque":
        if value is not None and (type(value) is not int or value < children):
            raise ValueError("the length of a deque does not hold its children")
    elif value is not None:
        raise ValueError(f"the context of {name} is not null")
    return value


def _read_defaultdict(context: Any, children: int) -> list[Any]:
    names = ("default_factory_module", "default_factory_name", "dict_context")
    if not isinstance(context, dict) or set(context) != set(names):
        raise ValueError("the context of a defaultdict is not a factory and keys")
    module, name, keys = (context[key] for key in names)
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("the factory of a defaultdict is no name")
    _check_keys(keys, children)
    return [module, name, keys]


def _read_registered(context: str) -> Any:
    """A class may write its context as JSON, or as any other text."""
    try:
        return json.loads(context, object_hook=_enum_key)
    except ValueError:
        return _RawText(context)


class _RawText(str):
    """A context that is not JSON."""


def _check_keys(keys: Any, children: int) -> None:
    if not isinstance(keys, list) or len(keys) != children:
        raise ValueError("the keys of a dict are not as many as its children")
    if any(isinstance(key, list | dict) for key in keys):
        raise ValueError("a key of a dict is a list or an object")


def _enum_key(value: dict[str, Any]) -> Any:
    if "__enum__" not in value:
        return value
    fqn, name = value.get("fqn"), value.get("name")
    if not isinstance(fqn, str) or not isinstance(name, str):
        raise ValueError("an enum key names no class and member")
    return EnumKey(fqn, name)


def _enum_json(value: Any) -> Any:
    if isinstance(value, EnumKey):
        return {"__enum__": True, "fqn": value.fqn, "name": value.name}
    raise TypeError(f"a {type(value).__name__} can't stand in a tree spec")


def _write_context(name: str | None, context: Any) -> Any:
    if name is None:
        return None
    if name == "collections.namedtuple" or isinstance(context, _RawText):
        return str(cast(str, context))
    if name == "collections.defaultdict":
        module, factory, keys = context
        return {"default_factory_module": module, "default_factory_name": factory, "dict_context": keys}
    return json.dumps(context, default=_enum_json)
