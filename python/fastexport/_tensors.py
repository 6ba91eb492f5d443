"""What a Tensor becomes elsewhere: numpy arrays, torch tensors, lists; and tensors made of arrays.

`fastexport._core.Tensor` calls `to_numpy`, `to_torch`, `to_list` and `to_item` for its methods. numpy, ml_dtypes and
torch are imported only when one of these needs them.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastexport import _core
from fastexport._dtypes import DType, dtype_named
from fastexport._loaded import loaded


def to_numpy(tensor: _core.Tensor, *, raw: bool = False) -> Any:
    """The data of a tensor as a read-only numpy array, without a copy.

    Args:
        tensor: the tensor; bfloat16 and float8 become types of ml_dtypes.
        raw: give types that numpy itself does not have as unsigned ints of their size instead.

    Raises:
        ImportError: numpy is not installed, or ml_dtypes where the type is one of its.
        TypeError: no numpy type holds such elements (complex32), and raw is false.
        FormatError: the file is damaged.

    Example:
        >>> import array
        >>> to_numpy(from_array(array.array("f", [1, 2])))
        array([1., 2.], dtype=float32)
    """
    try:
        import numpy
    except ImportError as e:
        raise ImportError(
            "numpy() needs numpy, which is not installed (pip install numpy); memoryview() and tolist() don't"
        ) from e
    name = tensor.dtype.numpy
    if name is None and not raw:
        raise TypeError(f"numpy has nothing like {tensor.dtype}; raw=True gives each element as an unsigned int")
    if name is not None and not tensor.dtype.in_ml_dtypes:
        return numpy.asarray(memoryview(tensor))
    array = numpy.asarray(memoryview(_as_uints(tensor)))
    if raw:
        return array
    try:
        import ml_dtypes
    except ImportError as e:
        raise ImportError(
            f"numpy() of {name} needs ml_dtypes, which is not installed (pip install ml_dtypes); "
            "raw=True gives the bits as unsigned ints"
        ) from e
    return array.view(getattr(ml_dtypes, str(name)))


def _as_uints(tensor: _core.Tensor) -> _core.Tensor:
    """The same elements as unsigned ints of their size, for types of which numpy knows nothing."""
    dtype = DType(f"uint{8 * tensor.itemsize}")
    return _core.Tensor(tensor.storage, dtype, tensor.shape, tensor.strides, tensor.storage_offset)


# ---- torch ----


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as e:
        message = "torch() needs torch, which is not installed (pip install 'fastexport[torch]'); numpy() does not"
        raise ImportError(message) from e
    return torch


def _torch_storage(storage: _core.Storage, torch: Any) -> Any:
    """A copy of a storage that torch may write to."""
    if not storage.nbytes:
        return torch.UntypedStorage(0)
    return torch.frombuffer(bytearray(memoryview(storage)), dtype=torch.uint8).untyped_storage()


def _finish(value: Any, tensor: _core.Tensor, torch: Any) -> Any:
    if tensor.is_param:
        return torch.nn.Parameter(value, requires_grad=tensor.requires_grad)
    return value.requires_grad_(True) if tensor.requires_grad else value


def _on_meta(tensor: _core.Tensor, dtype: Any, torch: Any) -> Any:
    """The same view of a storage that has a size and no bytes, as those on the device meta are."""
    needed = tensor.storage_offset + 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    storage = torch.UntypedStorage(max(needed, 0) * dtype.itemsize if tensor.numel else 0, device="meta")
    return torch.empty(0, dtype=dtype, device="meta").set_(storage, tensor.storage_offset, tensor.shape, tensor.strides)


def _torch_view(tensor: _core.Tensor, storages: dict[_core.Storage, Any], torch: Any) -> Any:
    dtype = getattr(torch, tensor.dtype.name)
    storage = tensor.storage
    if storage is None:
        return _on_meta(tensor, dtype, torch)
    memoryview(tensor).release()  # as others see it: checked
    if storage not in storages:
        storages[storage] = _torch_storage(storage, torch)
    return torch.empty(0, dtype=dtype).set_(storages[storage], tensor.storage_offset, tensor.shape, tensor.strides)


def to_torch(tensor: _core.Tensor, copy: bool = True) -> Any:
    """The tensor as one of torch, on the CPU; a torch.nn.Parameter when ``is_param`` is set.

    Args:
        tensor: the tensor.
        copy: False shares the memory: what is written there shows in the tensor, and in all that share its storage.

    Raises:
        ImportError: torch is not installed.
        FormatError: the file is damaged.

    Example:
        >>> import array
        >>> to_torch(from_array(array.array("f", [1, 2])))
        tensor([1., 2.])
    """
    torch = _import_torch()
    if copy or tensor.storage is None:
        return _finish(_torch_view(tensor, {}, torch), tensor, torch)
    return _finish(torch.from_dlpack(tensor), tensor, torch)


def to_torch_all(tensors: Mapping[str, _core.Tensor]) -> dict[str, Any]:
    """Copies of tensors for torch, in which those that shared memory share it again.

    Args:
        tensors: such as a state dict.

    Raises:
        ImportError: torch is not installed.
        FormatError: the file is damaged.

    Example:
        >>> import array
        >>> to_torch_all({"w": from_array(array.array("f", [1, 2]))})
        {'w': tensor([1., 2.])}
    """
    torch = _import_torch()
    storages: dict[_core.Storage, Any] = {}
    # the same tensor under two names stays one object, as a tied parameter is in a module
    made: dict[int, Any] = {}
    for tensor in tensors.values():
        if id(tensor) not in made:
            made[id(tensor)] = _finish(_torch_view(tensor, storages, torch), tensor, torch)
    return {name: made[id(tensor)] for name, tensor in tensors.items()}


# ---- lists ----

_STRUCT = {
    "uint8": "B",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "bool": "?",
}
_COMPLEX = {"complex32": "e", "complex64": "f", "complex128": "d"}
# bits of the exponent and of the mantissa, bias, and whether the largest exponent is kept for inf and nan, as in IEEE
_FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7, False),
    "float8_e5m2": (5, 2, 15, True),
    "float8_e4m3fnuz": (4, 3, 8, False),
    "float8_e5m2fnuz": (5, 2, 16, False),
}


def _float8(name: str, byte: int) -> float:
    """The number that a byte stands for (the names are those of the types' paper and of ONNX)."""
    if name == "float8_e8m0fnu":  # an exponent and nothing else
        return math.nan if byte == 0xFF else math.ldexp(1.0, byte - 127)
    exponent_bits, mantissa_bits, bias, ieee = _FLOAT8[name]
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = byte >> mantissa_bits & (1 << exponent_bits) - 1, byte & (1 << mantissa_bits) - 1
    if name.endswith("fnuz"):
        if byte == 0x80:
            return math.nan
    elif exponent == (1 << exponent_bits) - 1:
        if ieee:
            return math.nan if mantissa else sign * math.inf
        if mantissa == (1 << mantissa_bits) - 1:
            return math.nan
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits)


def _numbers(name: str, data: bytes, count: int) -> Sequence[Any]:
    if name in _STRUCT:
        return struct.unpack(f"<{count}{_STRUCT[name]}", data)
    if name in _COMPLEX:
        parts = struct.unpack(f"<{2 * count}{_COMPLEX[name]}", data)
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    if name == "bfloat16":  # the upper half of a float32
        halves = struct.unpack(f"<{count}H", data)
        return struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *(half << 16 for half in halves)))
    table = [_float8(name, byte) for byte in range(256)]
    return [table[byte] for byte in data]


_MOST_EMPTY_LISTS = 1_000_000


def _nested(numbers: Iterator[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(numbers)
    return [_nested(numbers, shape[1:]) for _ in range(shape[0])]


def to_list(tensor: _core.Tensor) -> Any:
    """The elements as nested lists of Python numbers; of a tensor without dimensions, the number.

    Args:
        tensor: the tensor.

    Raises:
        ValueError: it has no elements, but sizes that ask for a great many empty lists.
        FormatError: the file is damaged.

    Example:
        >>> import array
        >>> to_list(from_array(array.array("f", [1, 2])))
        [1.0, 2.0]
    """
    if not tensor.numel and math.prod(tensor.shape[: tensor.shape.index(0)]) > _MOST_EMPTY_LISTS:
        raise ValueError(f"a tensor of shape {tensor.shape} has no elements, only empty lists, and too many of them")
    return _nested(iter(_numbers(tensor.dtype.name, tensor.tobytes(), tensor.numel)), tensor.shape)


def to_item(tensor: _core.Tensor) -> Any:
    """The only element of a tensor as a Python number.

    Raises:
        ValueError: it has several elements, or none.
        FormatError: the file is damaged.

    Example:
        >>> import array
        >>> to_item(from_array(array.array("f", [2])))
        2.0
    """
    if tensor.numel != 1:
        raise ValueError(f"a Tensor of {tensor.numel} elements is no single number; tolist() gives them all")
    return _numbers(tensor.dtype.name, tensor.tobytes(), 1)[0]


# ---- tensors from arrays ----

# What has no letter in the buffer protocol is there by its name, as a Tensor has it.
_FORMATS = {format: name for name, format in _STRUCT.items()} | {
    "l": "int64",
    "L": "uint64",
    "c": "uint8",
    "Zf": "complex64",
    "Zd": "complex128",
    "complex32": "complex32",
    "bfloat16": "bfloat16",
    **{name: name for name in (*_FLOAT8, "float8_e8m0fnu")},
}


def _dtype_of(name: str, what: str) -> DType:
    try:
        return dtype_named(name)
    except KeyError:
        raise TypeError(f"{what} has elements of type {name}, which no tensor of a file has") from None


def check_storage(tensor: Any, what: str) -> None:
    """See that a tensor of torch has its bytes: a storage can be made smaller under it, and torch looks only at times.

    Args:
        tensor: a torch.Tensor with strides.
        what: it is, for the message.

    Raises:
        ValueError: its elements lie beyond the end of its storage.
    """
    if not tensor.numel():
        return
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed, there = (tensor.storage_offset() + reach + 1) * tensor.element_size(), tensor.untyped_storage().nbytes()
    if needed > there:
        raise ValueError(
            f"{what} needs {needed} bytes of its storage, which has {there}: it was freed or made smaller "
            "(untyped_storage().resize_())"
        )


def _from_torch(array: Any, what: str) -> _core.Tensor:
    torch = sys.modules["torch"]
    if array.is_nested or array.layout is not torch.strided:
        kind = "nested" if array.is_nested else f"of layout {array.layout}"
        raise TypeError(f"{what} is {kind}; a tensor of a file has strides")
    dtype = _dtype_of(str(array.dtype).removeprefix("torch."), what)
    is_param = isinstance(array, torch.nn.Parameter)
    if array.device.type == "meta":
        return _core.Tensor(
            None,
            dtype,
            tuple(array.shape),
            array.stride(),
            array.storage_offset(),
            requires_grad=array.requires_grad,
            is_param=is_param,
            device="meta",
        )
    try:
        check_storage(array, what)
        values = array.detach().cpu().resolve_conj().resolve_neg().contiguous()
        data = values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b""
    except RuntimeError as error:  # such as a fake tensor, or one of a class that wraps others
        raise TypeError(f"{what} is a {type(array).__name__} without bytes of its own: {error}") from error
    return _core.Tensor(
        _core.Storage(data), dtype, tuple(values.shape), requires_grad=array.requires_grad, is_param=is_param
    )


def _from_numpy(array: Any, what: str) -> _core.Tensor:
    dtype = _dtype_of(array.dtype.name, what)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return _core.Tensor(_core.Storage(little.tobytes()), dtype, array.shape)


def _from_buffer(array: Any, what: str) -> _core.Tensor:
    view = memoryview(array)
    format = view.format.removeprefix("@").removeprefix("=")
    if sys.byteorder == "little":
        format = format.removeprefix("<")
    if format not in _FORMATS:
        raise TypeError(f"{what} has elements of the buffer format {view.format!r}, which no tensor of a file has")
    return _core.Tensor(_core.Storage(view.tobytes()), dtype_named(_FORMATS[format]), view.shape or ())


def _has_buffer(array: Any) -> bool:
    try:
        memoryview(array).release()
    except TypeError:
        return False
    return True


def from_array(array: Any, what: str = "the array") -> _core.Tensor:
    """A tensor that holds a copy of an array's elements, in C order.

    Args:
        array: a Tensor (given back as it is), a torch.Tensor, a numpy array, any object with a buffer whose elements
            are numbers; with numpy, also one that has ``__array_interface__`` or ``__dlpack__``.
        what: it is, for the messages.

    Raises:
        TypeError: the object is no array, or its elements are of a type that tensors don't have.
        ValueError: it is a torch.Tensor whose storage is too small for it.

    Example:
        >>> from_array(memoryview(b"abc"))
        Tensor(shape=(3,), dtype=torch.uint8, 3 bytes)
    """
    if isinstance(array, _core.Tensor):
        return array
    torch = loaded("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _from_torch(array, what)
    numpy = loaded("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray | numpy.generic):
        return _from_numpy(array, what)
    if _has_buffer(array):
        return _from_buffer(array, what)
    if hasattr(type(array), "__array_interface__") or hasattr(type(array), "__dlpack__"):
        return _from_numpy(_numpy_of(array, what), what)
    raise TypeError(f"{what} is of type {type(array).__name__}, which is no tensor and no array")


def _numpy_of(array: Any, what: str) -> Any:
    """What tells numpy where its elements are, and has no buffer."""
    try:
        import numpy
    except ImportError as e:
        raise ImportError(f"{what} is of type {type(array).__name__}, which takes numpy, which is not installed") from e
    return numpy.asarray(array) if hasattr(type(array), "__array_interface__") else numpy.from_dlpack(array)


def mappings_of(weights: Any, taker: str) -> tuple[Mapping[str, Any], ...]:
    """The mappings that have the tensors: of a program its weights and its constants, of anything else one.

    Args:
        weights: a program, an open file of weights, a module, or a mapping.
        taker: the function that was given it, for the error.

    Raises:
        TypeError: it is none of these.
    """
    state = getattr(weights, "state_dict", None)
    if state is None:
        parts: tuple[Any, ...] = (weights,)
    else:
        parts = (state(),) if callable(state) else (state, getattr(weights, "constants", None))
    if not all(hasattr(part, "keys") and hasattr(part, "__getitem__") for part in parts):
        raise TypeError(
            f"{taker}() takes a program, an open file of weights, a module of torch, or a mapping of names to tensors "
            f"or arrays, not {type(weights).__name__}"
        )
    return parts
