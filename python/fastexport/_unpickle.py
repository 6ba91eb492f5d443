"""Reads what torch.save wrote (state dicts, constants, example inputs of older files) without running anything from it.

A pickle is a program. Python's own Unpickler would run all of it but for what `find_class` forbids; here a machine with
only the operations that torch.save needs runs it instead. It makes plain containers, numbers and texts, and the few
callables it knows (`_GLOBALS`) are ours; anything else is a FormatError that names it. What it makes is bounded by
`PickleLimits`. None of its steps nests C calls, and keys of dicts and members of sets are small, so hashing is quick.

The operations are those of https://github.com/python/cpython/blob/main/Lib/pickletools.py; the layout of the zip around
the pickle, and what the persistent ids mean, those of torch/serialization.py (2.13).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from fastexport import _core
from fastexport._dtypes import Device, DType, Layout, dtype_named
from fastexport._errors import FileError, FormatError, format_error

_Buffer = bytes | bytearray | memoryview | _core.Storage


class Archive(Protocol):
    """What is asked of an open archive; `_core.Archive` is one."""

    def entries(self) -> Sequence[tuple[str, int, int, bool]]:
        """The name below the top folder, size, packed size, and whether it is stored, of each entry."""

    def read(self, name: str, /) -> bytes:
        """An entry, whole, with its CRC checked."""

    def storage(self, name: str, /) -> _core.Storage:
        """The bytes of an entry, read when they are asked for."""


@dataclass(frozen=True)
class PickleLimits:
    """What a pickle may ask of us.

    Attributes:
        pickle_bytes: the size of the pickle itself; a state dict takes about 200 for each tensor.
        operations: how many operations it has.
        values: how many values the result has, each counted wherever it is referred to.
        depth: how deep its containers nest.
    """

    pickle_bytes: int = 64 << 20
    operations: int = 10_000_000
    values: int = 1_000_000
    depth: int = 200


DEFAULT_LIMITS = PickleLimits()


_CODES = {"pickle": "FX502", "limit": "FX104", "unsupported": "FX103"}


def _error(message: str, entry: str | None, kind: str = "pickle") -> FormatError:
    return format_error([(_CODES[kind], kind, True, entry, None, None, message)])


class _Bad(Exception):
    """Something in a pickle is not as it should be; where and in which entry is added further out."""


# ---- what the globals of a pickle stand for ----


class _Global:
    """A global of a pickle. Slots, so that no pickle could attach anything to it."""

    __slots__ = ("call", "name", "value")

    def __init__(self, name: str, value: Any = None, call: Callable[..., Any] | None = None) -> None:
        self.name, self.value, self.call = name, value, call


@dataclass(frozen=True, slots=True)
class _StorageType:
    dtype: DType | None  # None: of bytes


@dataclass(frozen=True, slots=True, eq=False)
class _StorageRef:
    storage: _core.Storage | None  # None: on the device meta
    dtype: DType | None
    location: str


class _OrderedDict(dict[Any, Any]):
    """A dict that may have been a collections.OrderedDict with attributes, such as the _metadata of a state dict."""

    __slots__ = ()


def _ints(value: Any, what: str) -> tuple[int, ...]:
    if type(value) not in (tuple, list) or not all(type(item) is int for item in value):
        raise _Bad(f"the {what} of a tensor is not a tuple of ints")
    return tuple(value)


def _int(value: Any, what: str) -> int:
    if type(value) is not int:
        raise _Bad(f"the {what} of a tensor is not an int")
    return value


def _bool(value: Any, what: str) -> bool:
    if type(value) is not bool:
        raise _Bad(f"{what} of a tensor is not a bool")
    return value


def _tensor_of(value: Any) -> _core.Tensor:
    if type(value) is not _core.Tensor:
        raise _Bad("a tensor is to be made of something that is none")
    return value


def _parameter_of(value: Any, requires_grad: bool) -> _core.Tensor:
    t = _tensor_of(value)
    return _core.Tensor(
        t.storage, t.dtype, t.shape, t.strides, t.storage_offset, requires_grad, t.device, t.layout, is_param=True
    )


def _make_tensor(
    storage: Any, dtype: DType | None, offset: Any, size: Any, stride: Any, requires_grad: Any
) -> _core.Tensor:
    if type(storage) is not _StorageRef:
        raise _Bad("a tensor has no storage")
    if dtype is None:
        raise _Bad("a tensor has a storage without a type")
    return _core.Tensor(
        storage.storage,
        dtype,
        _ints(size, "size"),
        _ints(stride, "stride"),
        _int(offset, "storage offset"),
        _bool(requires_grad, "requires_grad"),
        storage.location,
    )


def _check_metadata(metadata: Any) -> None:
    """Metadata are the bits of lazy views; the data of one with a bit set are not what its numbers are."""
    if type(metadata) is dict and metadata:
        for key, value in metadata.items():
            if value is not False:
                raise _Bad(f"a tensor is a lazy {key!r} view, which can't be read without torch")
    elif metadata is not None and metadata != {}:
        raise _Bad("the metadata of a tensor are not a dict")


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any) -> _core.Tensor:
    return _make_tensor(storage, getattr(storage, "dtype", None), offset, size, stride, False)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> _core.Tensor:
    _check_metadata(metadata)
    return _make_tensor(storage, getattr(storage, "dtype", None), offset, size, stride, requires_grad)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any, metadata: Any = None
) -> _core.Tensor:
    _check_metadata(metadata)
    return _make_tensor(storage, _dtype_of(dtype), offset, size, stride, requires_grad)


def _rebuild_meta_tensor(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> _core.Tensor:
    meta = _StorageRef(None, None, "meta")
    return _make_tensor(meta, _dtype_of(dtype), 0, size, stride, requires_grad)


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> _core.Tensor:
    """`state`, the attributes that somebody set on the parameter, is not kept."""
    return _parameter_of(data, _bool(requires_grad, "requires_grad"))


def _rebuild_from_type(function: Any, kind: Any, args: Any, state: Any) -> _core.Tensor:
    """A tensor with attributes, which are not kept; of a subclass only torch.nn.Parameter."""
    if type(function) is not _Global or function.call is None or type(args) is not tuple:
        raise _Bad("a tensor is to be made by something that is no function")
    if kind not in ("Tensor", "Parameter"):
        raise _Bad("a tensor is to be of a class that is none of tensors")
    t = _tensor_of(function.call(*args))
    return _parameter_of(t, t.requires_grad) if kind == "Parameter" and not t.is_param else t


def _json_int(value: Any) -> int:
    """A SymInt of the schema; of an expression, its hint."""
    if type(value) is dict and len(value) == 1:
        if type(value.get("as_int")) is int:
            return int(value["as_int"])
        hint = value["as_expr"].get("hint") if type(value.get("as_expr")) is dict else None
        if type(hint) is dict and type(hint.get("as_int")) is int:
            return int(hint["as_int"])
    raise _Bad("a fake tensor has a size that is no number")


def _fake_tensor(data: Any, is_parameter: Any) -> _core.Tensor:
    """torch.export saves fake tensors as the JSON of their TensorMeta; here they are tensors without data."""
    if type(data) is not bytes:
        raise _Bad("a fake tensor is not described by bytes")
    meta = json.loads(data)
    device = meta["device"]["type"]
    if meta["device"].get("index") is not None:
        device = f"{device}:{_int(meta['device']['index'], 'device index')}"
    if type(device) is not str:
        raise _Bad("the device of a fake tensor is no text")
    return _core.Tensor(
        None,
        DType.from_code(_int(meta["dtype"], "dtype")),
        [_json_int(size) for size in meta["sizes"]],
        [_json_int(stride) for stride in meta["strides"]],
        _json_int(meta["storage_offset"]),
        _bool(meta["requires_grad"], "requires_grad"),
        device,
        is_param=_bool(is_parameter, "is_parameter"),
    )


def _dtype_of(value: Any) -> DType:
    if not isinstance(value, DType):
        raise _Bad("the dtype of a tensor is none")
    return value


def _make_size(value: Any = ()) -> tuple[int, ...]:
    return _ints(value, "torch.Size")


def _make_device(kind: Any, index: Any = None) -> Device:
    return Device(kind, index)


def _make_layout(name: Any) -> Layout:
    return Layout(name)


def _make_set(values: Any = ()) -> set[Any]:
    if type(values) not in (list, tuple):
        raise _Bad("a set is made of something that is no list")
    return {_key(value) for value in values}


def _make_complex(real: Any, imag: Any) -> complex:
    if type(real) is not float or type(imag) is not float:
        raise _Bad("a complex number is not made of floats")
    return complex(real, imag)


def _make_slice(start: Any, stop: Any, step: Any) -> slice:
    return slice(start, stop, step)


def _encode(text: Any, encoding: Any) -> bytes:
    """How protocol 2 spells bytes."""
    if type(text) is not str or encoding != "latin1":
        raise _Bad("_codecs.encode may only spell bytes")
    return text.encode("latin1")


_TYPED_STORAGES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_DTYPES = (
    "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex32 complex64"
    " complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
).split()
_CALLABLES: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
    "torch._utils._rebuild_meta_tensor_no_storage": _rebuild_meta_tensor,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch._export.serde.serialize._reconstruct_fake_tensor": _fake_tensor,
    "torch.Size": _make_size,
    "torch.device": _make_device,
    "torch.serialization._get_layout": _make_layout,
    "collections.OrderedDict": _OrderedDict,
    "builtins.set": _make_set,
    "builtins.complex": _make_complex,
    "builtins.slice": _make_slice,
    "builtins.bytes": bytes,
    "_codecs.encode": _encode,
}
# The most arguments of those whose Python twins would take others.
_FEWER = {"collections.OrderedDict": 0, "builtins.bytes": 0}


def _all_globals() -> dict[str, _Global]:
    table = {name: _Global(name, call=call) for name, call in _CALLABLES.items()}
    for name in _DTYPES:
        table[f"torch.{name}"] = _Global(name, dtype_named(name))
    for prefix, name in _TYPED_STORAGES.items():
        table[f"torch.{prefix}Storage"] = _Global(name, _StorageType(dtype_named(name)))
    table["torch.storage.UntypedStorage"] = table["torch.UntypedStorage"] = _Global("untyped", _StorageType(None))
    table["torch.Tensor"] = _Global("torch.Tensor", "Tensor")
    table["torch.nn.parameter.Parameter"] = _Global("torch.nn.parameter.Parameter", "Parameter")
    return table


_GLOBALS = _all_globals()


def _find_global(module: str, name: str) -> Any:
    path = f"{'builtins' if module == '__builtin__' else module}.{name}"
    found = _GLOBALS.get(path)
    if found is None:
        shown = path if path.isprintable() and len(path) <= 200 else ascii(path[:200])
        raise _Bad(f"it uses {shown}, which is not run: only tensors, numbers, texts and plain containers are read")
    return found if found.value is None else found.value


# ---- the machine ----


def _key(value: Any, budget: int = 64) -> Any:
    """Check that a value may be a key of a dict or a member of a set: hashing it must be quick, and run nothing."""
    kind = type(value)
    if kind in (str, int, float, bool, bytes, complex, type(None)) or isinstance(value, DType):
        return value
    if kind is tuple and len(value) < budget:
        for item in value:
            if type(item) is tuple:
                raise _Bad("a key of a dict, or a member of a set, is a tuple that holds tuples")
            _key(item)
        return value
    raise _Bad("a key of a dict, or a member of a set, is neither a number nor a text nor a short tuple of such")


class _Machine:
    """Runs one pickle. `load` finds storages; it takes the type, key, location and number of elements of one."""

    def __init__(self, data: bytes, limits: PickleLimits, load: Callable[[Any], Any]) -> None:
        self.data, self.limits, self.load = data, limits, load
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []  # the stacks below each mark
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """The value that the pickle stands for.

        Raises:
            _Bad, or what operations on data of wrong types raise: see `_SIGNS_OF_DAMAGE`.
        """
        data, operations = self.data, _OPERATIONS
        left = self.limits.operations
        while True:
            code = data[self.at]
            self.at += 1
            if code == _STOP:
                break
            operation = operations.get(code)
            if operation is None:
                raise _Bad(f"the operation {bytes((code,))!r} is none that torch.save uses")
            if left == 0:
                raise _Bad(f"it has more than {self.limits.operations} operations")
            left -= 1
            operation(self)
        if self.marks or len(self.stack) != 1:
            raise _Bad("it ends too early")
        return self.stack[0]

    # what operations are made of

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise _Bad("it is cut short")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def line(self) -> str:
        end = self.data.index(b"\n", self.at, self.at + 1000)
        text = self.data[self.at : end].decode()
        self.at = end + 1
        return text

    def take_marked(self) -> list[Any]:
        items = self.stack
        self.stack = self.marks.pop()
        return items

    # operations

    def proto(self) -> None:
        version = self.number(1)
        if not 2 <= version <= 5:
            raise _Bad(f"its protocol is {version}; torch.save uses 2 to 5")

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def get_global(self) -> None:
        module = self.line()
        self.stack.append(_find_global(module, self.line()))

    def get_stacked_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise _Bad("the name of a global is no text")
        self.stack.append(_find_global(module, name))

    def call(self) -> None:
        args, function = self.stack.pop(), self.stack[-1]
        if type(function) is not _Global or function.call is None or type(args) is not tuple:
            raise _Bad("it calls what is no function")
        if len(args) > _FEWER.get(function.name, len(args)):
            raise _Bad(f"it calls {function.name} with arguments")
        self.stack[-1] = function.call(*args)

    def build(self) -> None:
        """Set attributes: only an OrderedDict has any, and they are dropped."""
        self.stack.pop()
        if type(self.stack[-1]) is not _OrderedDict:
            raise _Bad("it sets attributes of an object")

    def persistent(self) -> None:
        self.stack[-1] = self.load(self.stack[-1])

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.dict_on_top()[_key(key)] = value

    def set_items(self) -> None:
        items = self.take_marked()
        if len(items) % 2:
            raise _Bad("a key has no value")
        target = self.dict_on_top()
        for i in range(0, len(items), 2):
            target[_key(items[i])] = items[i + 1]

    def dict_on_top(self) -> dict[Any, Any]:
        target = self.stack[-1]
        if type(target) is not dict and type(target) is not _OrderedDict:
            raise _Bad("it sets items of what is no dict")
        return target

    def list_on_top(self) -> list[Any]:
        target = self.stack[-1]
        if type(target) is not list:
            raise _Bad("it appends to what is no list")
        return target

    def append(self) -> None:
        value = self.stack.pop()
        self.list_on_top().append(value)

    def append_all(self) -> None:
        items = self.take_marked()
        self.list_on_top().extend(items)

    def add_all(self) -> None:
        items = self.take_marked()
        target = self.stack[-1]
        if type(target) is not set:
            raise _Bad("it adds to what is no set")
        target.update(map(_key, items))

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise _Bad("a tuple has too few items")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def marked_tuple(self) -> None:
        items = tuple(self.take_marked())
        self.stack.append(items)

    def long(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.number(1)), "little", signed=True))

    def text(self, width: int) -> None:
        self.stack.append(self.take(self.number(width)).decode("utf-8", "surrogatepass"))

    def byte_string(self, width: int) -> None:
        self.stack.append(self.take(self.number(width)))

    def frame(self) -> None:
        self.take(8)  # its length, of no use here


def _push(make: Callable[[], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(make())


_STOP = ord(".")
_OPERATIONS: dict[int, Callable[[_Machine], None]] = {
    ord(code): operation
    for code, operation in {
        "\x80": _Machine.proto,
        "\x95": _Machine.frame,
        "(": _Machine.mark,
        "c": _Machine.get_global,
        "\x93": _Machine.get_stacked_global,
        "R": _Machine.call,
        "b": _Machine.build,
        "Q": _Machine.persistent,
        "s": _Machine.set_item,
        "u": _Machine.set_items,
        "a": _Machine.append,
        "e": _Machine.append_all,
        "\x90": _Machine.add_all,
        "q": lambda m: m.put(m.number(1)),
        "r": lambda m: m.put(m.number(4)),
        "\x94": lambda m: m.put(len(m.memo)),
        "h": lambda m: m.get(m.number(1)),
        "j": lambda m: m.get(m.number(4)),
        ")": _push(tuple),
        "]": _push(list),
        "}": _push(dict),
        "\x8f": _push(set),
        "N": _push(lambda: None),
        "\x88": _push(lambda: True),
        "\x89": _push(lambda: False),
        "\x85": lambda m: m.tuple_of(1),
        "\x86": lambda m: m.tuple_of(2),
        "\x87": lambda m: m.tuple_of(3),
        "t": _Machine.marked_tuple,
        "K": lambda m: m.stack.append(m.number(1)),
        "M": lambda m: m.stack.append(m.number(2)),
        "J": lambda m: m.stack.append(int.from_bytes(m.take(4), "little", signed=True)),
        "\x8a": _Machine.long,
        "G": lambda m: m.stack.append(struct.unpack(">d", m.take(8))[0]),
        "X": lambda m: m.text(4),
        "\x8c": lambda m: m.text(1),
        "\x8d": lambda m: m.text(8),
        "B": lambda m: m.byte_string(4),
        "C": lambda m: m.byte_string(1),
        "\x8e": lambda m: m.byte_string(8),
    }.items()
}

# What the machine's plain Python raises when a pickle pops too much, has values of wrong types, or no tensor in range.
_SIGNS_OF_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def _children(value: Any) -> Iterator[Any] | None:
    kind = type(value)
    if kind in (tuple, list, set):
        return iter(value)
    if kind is slice:
        return iter((value.start, value.stop, value.step))
    return iter(value.values()) if isinstance(value, dict) else None


def _check_result(result: Any, limits: PickleLimits) -> None:
    """Whoever walks the result must come to an end: no cycles, and no sharing that multiplies."""
    left = limits.values
    walk = [iter((result,))]
    while walk:
        for value in walk[-1]:
            if type(value) in (_Global, _StorageRef, _StorageType):
                raise _Bad("it holds a class, a function or a bare storage, not only values")
            left -= 1
            if left < 0:
                raise _Bad(f"its result has more than {limits.values} values")
            children = _children(value)
            if children is not None:
                if len(walk) > limits.depth:
                    raise _Bad(f"its containers nest more than {limits.depth} deep")
                walk.append(children)
                break
        else:
            walk.pop()


# ---- the archive around it ----


class _Storages:
    """The storages of one torch.save file; each key gives one Storage, so ties stay."""

    def __init__(self, archive: Archive, names: Collection[str], prefix: str) -> None:
        self.archive, self.names, self.prefix = archive, names, prefix
        self.found: dict[str, _core.Storage] = {}

    def load(self, pid: Any) -> _StorageRef:
        """What a persistent id stands for: ("storage", type, key, location, number of elements)."""
        if type(pid) is not tuple or len(pid) != 5 or pid[0] != "storage" or type(pid[1]) is not _StorageType:
            raise _Bad("it refers to an object outside that is no storage")
        _, kind, key, location, count = pid
        if type(key) is not str or type(location) is not str or type(count) is not int or count < 0:
            raise _Bad("a reference to a storage is malformed")
        if location == "meta":
            return _StorageRef(None, kind.dtype, location)
        storage = self.find(key)
        needed = count * (kind.dtype.itemsize if kind.dtype else 1)
        if storage.nbytes < needed:
            raise _Bad(f"storage {key!r} has {storage.nbytes} bytes, but {needed} are said to be there")
        return _StorageRef(storage, kind.dtype, location)

    def find(self, key: str) -> _core.Storage:
        if key not in self.found:
            name = f"{self.prefix}data/{key}"
            if name not in self.names:
                raise _Bad(f"storage {key!r} is missing: there is no entry {name!r}")
            self.found[key] = self.archive.storage(name)
        return self.found[key]


def _no_storages(pid: Any) -> Any:
    raise _Bad("it refers to an object outside, but is not part of an archive")


def _check_size(size: int, limits: PickleLimits, entry: str | None) -> None:
    if size > limits.pickle_bytes:
        message = f"the pickle has {size} bytes; the limit is {limits.pickle_bytes}"
        raise _error(message, entry, "limit")


def _run(data: bytes, limits: PickleLimits, load: Callable[[Any], Any], entry: str | None) -> Any:
    machine = _Machine(data, limits, load)
    try:
        result = machine.run()
        _check_result(result, limits)
        return result
    except FormatError:  # of the archive; it is a ValueError too
        raise
    except _Bad as e:
        reason: str = str(e)
    except _SIGNS_OF_DAMAGE as e:
        reason = f"its operations don't fit together ({e})"
    raise _error(f"the pickle cannot be read (at byte {machine.at}): {reason}", entry)


# The start of a file of torch.save before 1.6: the pickle of a number.
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def _open(source: Archive | _Buffer, entry: str | None) -> Archive:
    if not isinstance(source, _Buffer):
        return source
    with memoryview(source) as view:
        start = bytes(view[: len(_OLD_TORCH)])
    if start[:4] == b"PK\x03\x04":
        archive: Archive = _core.Archive(source)
        return archive
    if start == _OLD_TORCH:
        message = "it is of the format of torch.save before torch 1.6, which is not read; save it anew with torch"
    else:
        message = "it is no file of torch.save: it does not start as a zip archive does"
    raise _error(message, entry)


@contextmanager
def _inside(entry: str | None) -> Iterator[None]:
    """Faults of an archive that is an entry of another name that entry, and in their words their own."""
    try:
        yield
    except FormatError as error:
        if entry is None or error.entry == entry or isinstance(error, FileError):
            raise
        faults = [
            fault._replace(entry=entry, message=f"{fault.entry}: {fault.message}" if fault.entry else fault.message)
            for fault in error.faults
        ]
        raise format_error([tuple(fault) for fault in faults]) from error


def _prefix_of(names: Iterable[str], entry: str | None) -> str:
    """What stands before data.pkl: nothing, where the archive's names are below its top folder."""
    found = [name for name in names if name == "data.pkl" or (name.endswith("/data.pkl") and name.count("/") == 1)]
    if len(found) != 1:
        what = "no" if not found else "more than one"
        raise _error(f"it is no file of torch.save: it has {what} entry data.pkl", entry)
    return found[0].removesuffix("data.pkl")


def load_value(source: Archive | _Buffer, *, entry: str | None = None, limits: PickleLimits = DEFAULT_LIMITS) -> Any:
    """Read what torch.save wrote. Nothing of it is run, and no tensor's data are read yet.

    Args:
        source: the file's bytes, a Storage of them, or the open archive that it is.
        entry: what errors are to call it: the entry of the .pt2 file.
        limits: what it may ask of us.

    Returns:
        Plain containers, numbers, texts and `Tensor` objects; an OrderedDict becomes a dict, a torch.Size a tuple of
        ints, a fake tensor a Tensor without data, and dtypes, devices and layouts those of fastexport.

    Raises:
        FormatError: it is damaged, too large, or holds anything else; the message names it. kind is "pickle", "limit",
            or what is wrong with the archive.

    Example:
        >>> import io, torch
        >>> file = io.BytesIO()
        >>> torch.save({"weight": torch.zeros(3, 4)}, file)
        >>> load_value(file.getvalue())
        {'weight': Tensor(shape=(3, 4), dtype=torch.float32, 48 bytes)}
    """
    with _inside(entry):
        archive = _open(source, entry)
        sizes = {item[0]: item[1] for item in archive.entries()}
        prefix = _prefix_of(sizes, entry)
        order = f"{prefix}byteorder"
        if order in sizes and (sizes[order] != len(b"little") or archive.read(order) != b"little"):
            raise _error("its numbers are not little-endian", entry, "unsupported")
        _check_size(sizes[f"{prefix}data.pkl"], limits, entry)
        return _run(archive.read(f"{prefix}data.pkl"), limits, _Storages(archive, sizes.keys(), prefix).load, entry)


def load_pickle(data: _Buffer, *, entry: str | None = None, limits: PickleLimits = DEFAULT_LIMITS) -> Any:
    """Read a bare pickle, such as that of an opaque constant: plain containers, numbers and texts. Nothing is run.

    Args:
        data: the pickle.
        entry: what errors are to call it.
        limits: what it may ask of us.

    Raises:
        FormatError: it is damaged, too large, or holds anything else; the message names it.

    Example:
        >>> import pickle
        >>> load_pickle(pickle.dumps({"a": (1, 2)}))
        {'a': (1, 2)}
    """
    with memoryview(data) as view:
        _check_size(view.nbytes, limits, entry)
        return _run(view.tobytes(), limits, _no_storages, entry)


def load_state_dict(
    source: Archive | _Buffer, *, entry: str | None = None, limits: PickleLimits = DEFAULT_LIMITS
) -> dict[str, _core.Tensor]:
    """Read the state dict, or the constants, of a file of an older layout.

    Args:
        source, entry, limits: as for `load_value`.

    Returns:
        Tensors by name, in the order of the file. Those that share memory have one Storage; one parameter under two
        names is one object.

    Raises:
        FormatError: as `load_value`; also when it is no dict of tensors by name.

    Example:
        >>> import io, torch
        >>> file = io.BytesIO()
        >>> torch.save({"weight": torch.ones(2)}, file)
        >>> load_state_dict(file.getvalue())["weight"].tolist()
        [1.0, 1.0]
    """
    value = load_value(source, entry=entry, limits=limits)
    if not isinstance(value, dict):
        raise _error(f"it holds no state dict, but {_article(value)}", entry)
    for name, item in value.items():
        if type(name) is not str:
            raise _error(f"the state dict has a key that is no text: {name!r:.100}", entry)
        if type(item) is not _core.Tensor:
            message = f"{name!r} of the state dict is no tensor, but {_article(item)}"
            raise _error(message, entry)
    return dict(value)


def load_example_inputs(
    source: Archive | _Buffer, *, entry: str | None = None, limits: PickleLimits = DEFAULT_LIMITS
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Read the example inputs of a program.

    Args:
        source, entry, limits: as for `load_value`; no bytes at all are legal.

    Returns:
        The pair (args, kwargs); None when the file has none.

    Raises:
        FormatError: as `load_value`, so also when an input is of a class of the user; or it is no such pair.

    Example:
        >>> import io, torch
        >>> file = io.BytesIO()
        >>> torch.save(((1, [2.5]), {"mode": "fast"}), file)
        >>> load_example_inputs(file.getvalue())
        ((1, [2.5]), {'mode': 'fast'})
    """
    if isinstance(source, _Buffer) and not len(source):
        return None
    value = load_value(source, entry=entry, limits=limits)
    if value is None or (type(value) is dict and not value):
        return None
    if type(value) is not tuple or len(value) != 2 or type(value[0]) not in (tuple, list) or type(value[1]) is not dict:
        raise _error("the example inputs are no pair of positional and keyword ones", entry)
    args, kwargs = value
    return tuple(args), kwargs


def _article(value: Any) -> str:
    name = "dict" if isinstance(value, dict) else type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
