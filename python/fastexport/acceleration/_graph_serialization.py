"""The steps of torch.export.save and load that come at every node: metadata of tensors, arguments, fake tensors."""

from __future__ import annotations

import inspect
import weakref
from typing import Any

import torch
from torch._export.serde import schema, serialize
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConfig, FakeTensorMode

from fastexport.acceleration import _schema_plans
from fastexport.acceleration._known import are_known, is_known
from fastexport.acceleration._replacement import Replacement
from fastexport.acceleration._verify import verify_result

_SERDE = "torch._export.serde.serialize"
_READER = f"{_SERDE}:GraphModuleDeserializer"

_get = object.__getattribute__  # a union's own is slow


# ---- save


def create_union(stock: Any, cls: Any, /, **kwargs: Any) -> Any:
    """A union of the schema, without calling the constructor of its class."""
    try:
        [(name, value)] = kwargs.items()
        return _schema_plans.maker(cls).make(name, value)
    except Exception:
        return stock(cls, **kwargs)


def serialize_tensor_meta(stock: Any, t: Any) -> Any:
    """The metadata of a tensor as an object of the schema, plain sizes made in one step each."""
    parts = stock.__wrapped__.__globals__
    serialize_sym_int = parts["serialize_sym_int"]
    if serialize_sym_int is not _serialize_sym_int:
        return stock(t)
    try:
        make = _schema_plans.maker(parts["SymInt"]).make
    except Exception:
        return stock(t)

    def of_int(value: Any) -> Any:
        return make("as_int", value) if type(value) is int else serialize_sym_int(value)

    return parts["TensorMeta"](
        dtype=parts["_TORCH_TO_SERIALIZE_DTYPE"][t.dtype],
        sizes=[of_int(size) for size in t.shape],
        requires_grad=t.requires_grad,
        device=parts["Device"](type=t.device.type, index=t.device.index),
        strides=[of_int(stride) for stride in t.stride()],
        storage_offset=of_int(t.storage_offset()),
        layout=parts["_TORCH_TO_SERIALIZE_LAYOUT"][t.layout],
    )


# What makes an object of a size, if it is what is known here.
_serialize_sym_int: Any = (
    serialize.serialize_sym_int if is_known(serialize.serialize_sym_int, "9fe0043c21234cac") else None
)


# ---- load


class FakeKind:
    """Fake tensors of one kind: all of the same mode, sizes, strides and so on, each with a storage of its own.

    Args:
        fake: the first of them, made by torch.
        sizes, strides: of it, for which a meta tensor can be made.
    """

    __slots__ = ("_bytes", "_facts", "_guard", "_model", "_options", "_requires_grad", "_symbolic")

    def __init__(self, fake: FakeTensor, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> None:
        self._facts = dict(vars(fake))
        self._guard = _WARN if fake.fake_mode._allow_unsafe_data_ptr_access else _THROW
        self._requires_grad = fake.requires_grad
        self._options = sizes, strides, fake.dtype
        self._symbolic = not {int}.issuperset(map(type, sizes + strides))
        self._model: torch.Tensor | None = None
        self._bytes: Any = None

    def make(self) -> FakeTensor:
        """Another one."""
        elem = self._symbolic_elem() if self._symbolic else self._elem()
        device = self._facts["_fake_device"]
        if _is_made_as_known():
            fake: Any = torch.Tensor._make_subclass(
                FakeTensor, elem, False, dispatch_device=True, device_for_backend_keys=device
            )
            self._guard(fake)
            vars(fake).update(self._facts)
        else:
            fake = FakeTensor(self._facts["fake_mode"], elem, device)
        return fake.requires_grad_(True) if self._requires_grad else fake

    def _elem(self) -> torch.Tensor:
        sizes, strides, dtype = self._options
        return torch.empty_strided(sizes, strides, dtype=dtype, device="meta")

    def _symbolic_elem(self) -> torch.Tensor:
        """As `_elem`; but the number of its bytes, for which torch multiplies symbols, is that of a model."""
        if self._model is None:
            self._model = self._elem()
            self._bytes = self._model.untyped_storage().nbytes()
        elem = self._model.data
        torch._functionalize_unsafe_set(elem, _holder(self._bytes))
        return elem


def _holder(nbytes: Any) -> torch.Tensor:
    """A tensor with a new storage of so many bytes, all of nothing."""
    made: torch.Tensor = torch.Tensor._make_wrapper_subclass(
        _Holder, (0,), dtype=torch.uint8, device="meta", storage_size=nbytes
    )
    return made


class _Holder(torch.Tensor):
    """It holds a storage, and nothing can be done with it."""

    @classmethod
    def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


_WARN, _THROW = torch._C._set_warn_deprecated_on_mutable_data_ptr, torch._C._set_throw_on_mutable_data_ptr
_MAKING = {"__new__": "edc72218ee23ca6c", "__init__": "79b87fdbed0518e2"}
_MAKERS = (FakeTensor.__new__, FakeTensor.__init__) if are_known(vars(FakeTensor), _MAKING) else None


def _is_made_as_known() -> bool:
    """Whether fake tensors are made in the way that FakeKind says in other words."""
    return (FakeTensor.__new__, FakeTensor.__init__) == _MAKERS


class _Memo:
    """What was made for one deserializer, for use again while it works."""

    __slots__ = ("fakes", "stacks")

    def __init__(self) -> None:
        self.fakes: dict[Any, FakeKind] = {}
        self.stacks: dict[tuple[str, str], dict[str, Any]] = {}


_memos: weakref.WeakKeyDictionary[Any, _Memo] = weakref.WeakKeyDictionary()


def _memo_of(deserializer: Any) -> _Memo:
    memo = _memos.get(deserializer)
    if memo is None:
        memo = _memos[deserializer] = _Memo()
    return memo


def deserialize_tensor_meta(stock: Any, self: Any, tensor_meta: Any) -> Any:
    """A fake tensor; all but the first of their kind are made without dispatch.

    The first goes the long way, so that it is seen whether there can be such a tensor.
    """
    mode = self.fake_tensor_mode
    key = _static_key(tensor_meta)
    if key is None or type(mode) is not FakeTensorMode or mode.cache_crosscheck_enabled or not _plain_context():
        return stock(self, tensor_meta)
    fakes = _memo_of(self).fakes
    kind = fakes.get((mode, key))
    if kind is None:
        fake = stock.__wrapped__(self, tensor_meta)
        fakes[mode, key] = FakeKind(fake, key[0], key[1])
        return fake
    return kind.make()


def _static_key(tensor_meta: Any) -> tuple[Any, ...] | None:
    """All that decides on a fake tensor; None where a size is symbolic."""
    sizes, strides = _integers(tensor_meta.sizes), _integers(tensor_meta.strides)
    if sizes is None or strides is None:
        return None
    device = tensor_meta.device
    return sizes, strides, tensor_meta.dtype, device.type, device.index, tensor_meta.requires_grad


def _integers(values: Any) -> tuple[int, ...] | None:
    """The sizes, if they are plain numbers all."""
    if not {schema.SymInt}.issuperset(map(type, values)) or not {"as_int"}.issuperset(map(_kind, values)):
        return None
    numbers = tuple([_get(value, "as_int") for value in values])
    return numbers if {int}.issuperset(map(type, numbers)) else None


def _kind(union: Any) -> str | None:
    """Which field of a union is set; None if it was not made as unions are."""
    try:
        return str(_get(union, "_type"))
    except AttributeError:
        return None


def _plain_context() -> bool:
    """Whether nothing is on that would see, or change, how a fake tensor is made."""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch.is_inference_mode_enabled()
        and not torch.are_deterministic_algorithms_enabled()
        and not torch.compiler.is_exporting()
        and not FakeTensorConfig.debug
        and not torch._functorch.config.fake_tensor_propagate_real_tensors
    )


def deserialize_metadata(stock: Any, self: Any, metadata: Any) -> Any:
    """The meta of a node, each text of a module or source stack parsed once."""
    if metadata.__class__ is not dict or not {str}.issuperset(map(type, metadata.values())):
        return stock(self, metadata)
    torchs, stacks = stock.__wrapped__, _memo_of(self).stacks
    result: dict[str, Any] = {}
    for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):  # in torch's order
        if text := metadata.get(key):
            if key == "stack_trace":
                result[key] = text
                continue
            parsed = stacks.get((key, text))
            if parsed is None:
                parsed = stacks[key, text] = torchs(self, {key: text})
            result.update({name: value.copy() for name, value in parsed.items()})
    others = {key: text for key, text in metadata.items() if key in ("torch_fn", "custom", "from_node")}
    if others:
        result.update(torchs(self, others))
    return result


def deserialize_input(stock: Any, self: Any, inp: Any) -> Any:
    """The argument of a node; the usual kinds are told apart in one step."""
    kind = _usual_kind(inp)
    if kind is None:
        return stock.__wrapped__(self, inp)
    value = _get(inp, kind)
    if kind == "as_tensor":
        return self.serialized_name_to_node[value.name]
    return value[:] if value.__class__ is list else value


_USUAL = frozenset(("as_tensor", "as_int", "as_float", "as_bool", "as_string"))
_USUAL_LISTS = frozenset(("as_ints", "as_floats", "as_bools", "as_strings"))


def _usual_kind(inp: Any) -> str | None:
    if inp.__class__ is schema.Argument:
        kind = _kind(inp)
        if kind in _USUAL or (kind in _USUAL_LISTS and _get(inp, str(kind)).__class__ is list):
            return kind
    return None


def _verify_input(ours: Any, stock: Any, args: Any, kwargs: Any) -> Any:
    """Compare the usual kinds; others can't be done twice, as graphs are added to the module."""
    if _usual_kind(inspect.signature(deserialize_input).bind(None, *args, **kwargs).arguments["inp"]) is None:
        return ours(*args, **kwargs)
    return verify_result(ours, stock, args, kwargs)


def free_unbacked_symbols(stock: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """Paths to unbacked symbols; there are none in a fake tensor of plain sizes."""
    return {} if _is_static(a) else stock.__wrapped__(a, *args, **kwargs)


def _is_static(a: Any) -> bool:
    return (
        type(a) is FakeTensor
        and not a._has_symbolic_sizes_strides
        and a.layout is torch.strided
        and a.real_tensor is None
    )


def _verify_symbols(ours: Any, stock: Any, args: Any, kwargs: Any) -> Any:
    """Compare where ours knows; else symbols are taken from a set, which can't be done twice."""
    if not args or not _is_static(args[0]):
        return ours(*args, **kwargs)
    return verify_result(ours, stock, args, kwargs)


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement("serde_union", ("torch._export.serde.union:_Union.create",), create_union, ("3438ba3145476cd6",)),
    Replacement(
        "serde_tensor_meta",
        (f"{_SERDE}:serialize_tensor_meta", "torch.export.pt2_archive._package:serialize_tensor_meta"),
        serialize_tensor_meta,
        ("789e217ed90e6cc7",),
    ),
    Replacement(
        "serde_fake_tensor",
        (f"{_READER}.deserialize_tensor_meta",),
        deserialize_tensor_meta,
        ("eae0ef3450d2ea94",),
    ),
    Replacement("serde_metadata", (f"{_READER}.deserialize_metadata",), deserialize_metadata, ("6b57d85a4158b568",)),
    Replacement(
        "serde_input",
        (f"{_READER}.deserialize_input",),
        deserialize_input,
        ("35176bcad03ed48e",),
        verify=_verify_input,
    ),
    Replacement(
        "unbacked_symbols",
        ("torch.fx.experimental.symbolic_shapes:_free_unbacked_symbols_with_path",),
        free_unbacked_symbols,
        ("70d4e2dcedc21c64",),
        verify=_verify_symbols,
    ),
)
