"""torch's export schema from JSON values and to them, by what was found out once about each of its classes.

torch asks for the type hints and fields of a class again at every object; here a class has a decoder and an encoder,
made of those of its fields. They know only values as JSON has them and classes as the schema module holds them:
whatever else turns up raises, nothing has been changed by then, and the caller lets torch do the whole job.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import operator
import types
import typing
from collections.abc import Callable
from typing import Any

from torch._export.serde import schema, union

from fastexport.acceleration._known import is_known
from fastexport.acceleration._replacement import inner, stock_behind

Decode = Callable[[Any], Any]
Encode = Callable[[Any], Any]

_ATOMS = frozenset((str, int, bool, float, type(None)))
_MANY = 16  # fields, from which on a union is filled by copying a dict of them

# A union's own ways of reading are slow, and refuse fields that are not set.
_get = object.__getattribute__
_put = object.__setattr__

# What is done here in place of the methods of unions and their tags.
_SOURCES = {
    (union._Union, "create"): "3438ba3145476cd6",
    (union._Union, "__post_init__"): "a5f10dec83137a37",
    (union._Union, "type"): "32bec7715a60f766",
    (union._Union, "value"): "2070296f683083c4",
    (union._Union, "__getattribute__"): "64e9842152047963",
    (union._UnionTag, "create"): "4203c1c9763671e1",
}
# What a union must not bring along itself. Its __init__ comes from being a dataclass.
_MAKING = frozenset(
    ("__new__", "__setattr__", "__getattr__", "__getattribute__", "__post_init__", "create", "type", "value", "_type")
)
_KNOWN = all(is_known(vars(holder).get(name), source) for (holder, name), source in _SOURCES.items())


class Unexpected(Exception):
    """A value or class that is left to torch."""


class Shape:
    """A class of the schema, and what must not have changed since it was looked at."""

    __slots__ = ("cls", "fields", "is_union")

    def __init__(self, cls: type) -> None:
        if vars(schema).get(cls.__name__) is not cls or not dataclasses.is_dataclass(cls):
            raise Unexpected(f"{cls!r} is not of the schema")
        self.cls = cls
        self.is_union = cls.__bases__ == (union._Union,)
        if not self.is_union and cls.__bases__ != (object,):
            raise Unexpected(f"{cls!r} has bases of its own")
        if self.is_union and (not _MAKING.isdisjoint(vars(cls)) or not _is_generated(cls.__init__)):
            raise Unexpected(f"{cls!r} has its own way of being made or read")
        self.fields = tuple(field.name for field in dataclasses.fields(cls))

    def hints(self) -> dict[str, Any]:
        """What is known of the types of the fields."""
        return typing.get_type_hints(self.cls, globalns=vars(schema))


def _is_generated(function: Any) -> bool:
    """Whether the dataclass module made a function, out of a text."""
    return type(function) is types.FunctionType and function.__code__.co_filename == "<string>"


class Plan:
    """How objects of one class, and all that they hold, are made of JSON values, and how such values are made of them.

    A plan does not change, so that threads may share it; `is_current` tells whether the schema is still what it was
    made for.

    Attributes:
        decode: makes an object of a JSON value.
        with_tags: makes a JSON value of an object, with the tags of unions as keys, as torch does.
        with_names: the same with plain strings as keys, which are written to JSON faster.
    """

    __slots__ = ("_facts", "decode", "with_names", "with_tags")

    def __init__(self, root: type) -> None:
        decoders = _Decoders()
        self.decode: Decode = decoders.of(root)
        self.with_tags: Encode = _Encoders(_same).encode
        self.with_names: Encode = _Encoders(str).encode
        self._facts = tuple(_facts(cls) for cls in decoders.classes)

    def is_current(self) -> bool:
        return not _unions_changed() and all(_facts(facts[0]) == facts for facts in self._facts)


def _facts(cls: type) -> tuple[Any, ...]:
    return cls, vars(schema).get(cls.__name__), cls.__bases__, _namespace(cls)


def _namespace(cls: type) -> dict[str, Any]:
    """What a class holds; copyreg adds a note of its own to it when an object is copied."""
    return {name: _held(value) for name, value in vars(cls).items() if name != "__slotnames__"}


def _held(value: Any) -> Any:
    if type(value) is dict:
        return value.copy()
    return inner(stock_behind(value))


def _unions_changed() -> bool:
    return not _KNOWN or _union_namespaces() != _UNIONS


def _union_namespaces() -> tuple[Any, ...]:
    return union._UnionTag, _namespace(union._Union), _namespace(union._UnionTag)


_UNIONS = _union_namespaces()


# ---- decoding


class _Decoders:
    """Makes decoders, those of classes once each, so that classes may hold each other."""

    def __init__(self) -> None:
        self.classes: dict[type, list[Decode]] = {}

    def of(self, hint: Any) -> Decode:
        """The decoder of what a type hint describes."""
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType) and len(args) == 2 and args[1] is type(None):
            return _optional(self.of(args[0]))
        if origin is list:
            return _list(self.of(args[0]), _is_atom(args[0]))
        if origin is dict and args[0] is str:
            return _dict(self.of(args[1]), _is_atom(args[1]))
        if hint is float:
            return _float
        if _is_atom(hint):
            return _atom
        if isinstance(hint, type):
            return self._of_class(hint)
        raise Unexpected(f"{hint!r} is not known here")

    def _of_class(self, cls: type) -> Decode:
        if cls not in self.classes:
            later = self.classes[cls] = []
            shape = Shape(cls)
            hints = shape.hints()
            parts = {name: self.of(hints[name]) for name in shape.fields}
            later.append(_union(shape, parts) if shape.is_union else _dataclass(shape, parts))
        made = self.classes[cls]
        return made[0] if made else lambda data: made[0](data)


def _is_atom(hint: Any) -> bool:
    """Whether JSON's value is the value: all but float, which torch makes of other values too."""
    return hint in (str, int, bool) or isinstance(hint, type) and issubclass(hint, enum.Enum)


def _atom(data: Any) -> Any:
    if data.__class__ not in _ATOMS:
        raise Unexpected
    return data


def _float(data: Any) -> float:
    if data.__class__ not in _ATOMS:
        raise Unexpected
    return float(data)


def _optional(decode: Decode) -> Decode:
    return lambda data: None if data is None else decode(data)


def _list(decode: Decode, atoms: bool) -> Decode:
    def decode_list(data: Any) -> Any:
        if data.__class__ is not list:
            raise Unexpected
        if not data:
            return data
        if not atoms:
            return [decode(item) for item in data]
        if not _ATOMS.issuperset(map(type, data)):
            raise Unexpected
        return data[:]

    return decode_list


def _dict(decode: Decode, atoms: bool) -> Decode:
    def decode_dict(data: Any) -> Any:
        if data.__class__ is not dict:
            raise Unexpected
        if not atoms:
            return {key: decode(value) for key, value in data.items()}
        if not _ATOMS.issuperset(map(type, data.values())):
            raise Unexpected
        return data.copy()

    return decode_dict


def _dataclass(shape: Shape, parts: dict[str, Decode]) -> Decode:
    cls, plan = shape.cls, tuple(parts.items())

    def decode_dataclass(data: Any) -> Any:
        if data.__class__ is not dict:
            raise Unexpected
        return cls(**{name: decode(data[name]) for name, decode in plan if name in data})

    return decode_dataclass


def _union(shape: Shape, parts: dict[str, Decode]) -> Decode:
    make = Maker(shape).make

    def decode_union(data: Any) -> Any:
        if data.__class__ is not dict:
            raise Unexpected
        [(name, value)] = data.items()
        return make(name, parts[name](value))

    return decode_union


class Maker:
    """Makes objects of one class of unions, each with one field set.

    Attributes:
        make: gives a new object, for the name of a field and its value.
    """

    __slots__ = ("_cls", "_facts", "make")

    def __init__(self, shape: Shape) -> None:
        cls, names = shape.cls, shape.fields
        new = cls.__new__
        # One tag does for all objects: it is a string, and never changed.
        tags = {name: union._UnionTag.create(name, cls) for name in names}
        empty = dict.fromkeys(names)

        def make_large(name: str, value: Any) -> Any:
            values = empty.copy()
            values["_type"] = tags[name]
            values[name] = value
            made = new(cls)
            made.__dict__ = values
            return made

        def make_small(name: str, value: Any) -> Any:
            tag = tags[name]
            made = new(cls)
            for field in names:
                _put(made, field, value if field == name else None)
            _put(made, "_type", tag)
            return made

        self.make: Callable[[str, Any], Any] = make_large if len(names) >= _MANY else make_small
        self._cls: Any = cls
        self._facts = self._look()

    def is_current(self) -> bool:
        """Whether the class is made in the same way still."""
        return self._look() == self._facts

    def _look(self) -> tuple[Any, ...]:
        cls = self._cls
        tag = union._UnionTag
        return cls.__init__, cls.__post_init__, cls.__setattr__, cls.__dataclass_fields__, tag, tag.create


_makers: dict[type, Maker] = {}


def maker(cls: type) -> Maker:
    """What makes the unions of a class of the schema.

    Raises:
        Unexpected: they are left to torch.
    """
    found = _makers.get(cls)
    if found is None or not found.is_current():
        shape = Shape(cls)
        if not shape.is_union or _unions_changed():
            raise Unexpected
        found = _makers[cls] = Maker(shape)
    return found


# ---- encoding


class _Encoders(dict[type, Encode]):
    """Makes JSON values of schema objects, as torch's _dataclass_to_dict does; by the classes of what they hold.

    Args:
        tag: what stands as the key of a union's value, made of its tag.
    """

    def __init__(self, tag: Callable[[Any], Any]) -> None:
        super().__init__(dict.fromkeys((str, int, bool, type(None)), _same))
        self[float] = _encode_float
        self[list] = lambda items: [self[item.__class__](item) for item in items]
        self[tuple] = lambda items: tuple([self[item.__class__](item) for item in items])
        self[dict] = lambda items: {key: self[value.__class__](value) for key, value in items.items()}
        self._tag = tag

    def __missing__(self, cls: type) -> Encode:
        if issubclass(cls, (str, int)) and not dataclasses.is_dataclass(cls):
            return _same  # and not kept, as it may be any class at all
        if (shape := Shape(cls)).is_union:
            encode = self._union()
        else:
            encode = self._dataclass(shape)
        return self.setdefault(cls, encode)

    def _union(self) -> Encode:
        tag_of = self._tag

        def encode_union(made: Any) -> Any:
            tag = _get(made, "_type")
            value = _get(made, str(tag))
            return {tag_of(tag): self[value.__class__](value)}

        return encode_union

    def _dataclass(self, shape: Shape) -> Encode:
        names = shape.fields
        if len(names) == 1:
            [name] = names
            return lambda made: {name: self[(value := getattr(made, name)).__class__](value)}
        read = operator.attrgetter(*names)

        def encode_dataclass(made: Any) -> Any:
            return {
                name: value if value.__class__ is str else self[value.__class__](value)
                for name, value in zip(names, read(made), strict=True)
            }

        return encode_dataclass

    def encode(self, value: Any) -> Any:
        """The JSON value of one object."""
        return self[value.__class__](value)


def _same(value: Any) -> Any:
    return value


def _encode_float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# ---- plans

_plans: dict[type, Plan] = {}


def plan(cls: Any) -> Plan:
    """The plan of a class of the schema, as it is now. Decoders and encoders raise exceptions of any kind.

    Raises:
        Exception: of any kind; the class is left to torch.
    """
    found = _plans.get(cls)
    if found is None or not found.is_current():
        if not isinstance(cls, type) or _unions_changed():
            raise Unexpected(f"{cls!r} is not known here")
        found = _plans[cls] = Plan(cls)
    return found
