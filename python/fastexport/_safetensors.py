"""Weights as safetensors files, and back. The package safetensors writes them, and checks what is read."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from fastexport import _core
from fastexport._dtypes import DType
from fastexport._new_file import replacing
from fastexport._weights import SAFETENSORS_NAMES

if TYPE_CHECKING:
    from fastexport._core import Tensor

_MISSING = "needs the package safetensors, which is not installed (pip install 'fastexport[safetensors]')"
_METADATA = "__metadata__"  # in the header
_DTYPES = {name: dtype for dtype, name in SAFETENSORS_NAMES.items()}


def _import_safetensors(what: str) -> Any:
    try:
        import safetensors
    except ImportError as error:
        raise ImportError(f"{what} {_MISSING}") from error
    return safetensors


# ---- writing ----


def to_safetensors(
    weights: Any,
    path: str | os.PathLike[str],
    *,
    constants: bool = False,
    metadata: Mapping[str, str] | None = None,
    ties: Literal["copy", "once"] = "copy",
) -> None:
    """Write weights as a safetensors file. They are not copied in memory; the file takes its name when it is whole.

    Args:
        weights: a program, an open file of weights, a module of torch, or any mapping of names to tensors or arrays.
        path: of the new file.
        constants: of a program, write its constant tensors too.
        metadata: texts for the header, by name; by default those that were saved along with the program.
        ties: names of one and the same tensor, as tied weights are: "copy" writes each of them, so that any reader
            finds all names; "once" writes the first, and notes in the header which name stands for which, as
            safetensors' own ``save_model`` does. `from_safetensors` ties them again.

    Raises:
        ImportError: safetensors is not installed.
        TypeError: weights is none of these, a value is no tensor, or its elements are of a type that safetensors does
            not have (complex32, complex128).
        ValueError: ties is something else; a tensor has no elements, being on the device meta, or fewer bytes than it
            needs, its storage having been freed; or it is called as nothing can be (``__metadata__``).
        OSError: the file can't be written. Nothing is left behind then.

    Example:
        >>> import fastexport, os, tempfile
        >>> ep = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fastexport.to_safetensors(ep, os.path.join(folder, "linear.safetensors"))
        ...     print(list(fastexport.from_safetensors(os.path.join(folder, "linear.safetensors"), mmap=False)))
        ['fc.bias', 'fc.weight']
    """
    safetensors = _import_safetensors("to_safetensors()")
    if ties not in ("copy", "once"):
        raise ValueError(f"ties is 'copy' or 'once', not {ties!r}")
    tensors = _tensors_of(weights, constants)
    texts = dict(metadata if metadata is not None else _metadata_of(weights) or {})
    if ties == "once":
        tensors, aliases = _once(tensors)
        texts.update(aliases)
    held: list[Any] = []  # what the specs point to
    specs = {name: _spec(safetensors, name, tensor, held) for name, tensor in tensors.items()}
    with replacing(path) as new:
        with open(new, "ab") as file:
            mode = os.stat(file.fileno()).st_mode
        try:
            safetensors.serialize_file(specs, new, texts or None)
        except safetensors.SafetensorError as error:
            raise _os_error(error, path) from error
        os.chmod(new, mode & 0o7777)  # safetensors' are their owner's alone
    held.clear()


def _os_error(error: Exception, path: str | os.PathLike[str]) -> OSError:
    """An error of the system, of which safetensors tells in words."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is None:
        return OSError(f"{os.fspath(path)}: {error}")
    return OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path))


def _tensors_of(weights: Any, constants: bool) -> dict[str, Tensor]:
    from fastexport._tensors import from_array, mappings_of

    if isinstance(weights, str | bytes | os.PathLike):
        raise TypeError("to_safetensors() takes what open_weights() or load() has opened, not the path of a file")
    parts = mappings_of(weights, "to_safetensors")
    parts = parts[::-1] if constants else parts[:1]  # of one name the weight counts, which comes last
    tensors = {}
    for part in parts:
        for name in part:
            if name == _METADATA:
                raise ValueError(f"no tensor can be called {name!r}: that is where a safetensors file has its texts")
            tensors[name] = from_array(part[name], f"{name!r} can't be written: it")
    return tensors


def _metadata_of(weights: Any) -> Mapping[str, str] | None:
    state = getattr(weights, "state_dict", weights)
    verb = getattr(state, "metadata", None)
    return verb() if verb is not None else None


def _once(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, each once; and the names that are left out, with those that stand for them."""
    first: dict[tuple[Any, ...], str] = {}
    aliases = {}
    for name, tensor in tensors.items():
        key = (id(tensor.storage), tensor.dtype.name, tensor.shape, tensor.strides, tensor.storage_offset)
        if first.setdefault(key, name) != name:
            aliases[name] = first[key]
    return {name: tensor for name, tensor in tensors.items() if name not in aliases}, aliases


def _spec(safetensors: Any, name: str, tensor: Tensor, held: list[Any]) -> Any:
    if tensor.storage is None:
        raise ValueError(f"{name!r} is on the device meta: it has no elements that could be written")
    if tensor.dtype.name in ("complex32", "complex128"):
        raise TypeError(f"{name!r} can't be written: safetensors has no {tensor.dtype}")
    memoryview(tensor).release()  # bools are checked so
    if tensor.is_contiguous:
        size = tensor.dtype.itemsize
        storage, before = tensor.storage, tensor.storage_offset * size
    else:
        storage, before = _core.Storage(tensor.tobytes()), 0
    # bytes of which numpy's interface tells the address, whatever the type of the elements
    raw = _core.Tensor(storage, DType("uint8"), (tensor.nbytes,), (1,), before)
    held.append(raw)
    address = raw.__array_interface__["data"][0] if tensor.nbytes else 0
    return safetensors.TensorSpec(
        dtype=tensor.dtype.name, shape=list(tensor.shape), data_ptr=address, data_len=tensor.nbytes
    )


# ---- reading ----


def from_safetensors(path: str | os.PathLike[str], *, into: Any = None, mmap: bool = True) -> dict[str, Tensor]:
    """The tensors of a safetensors file, without a copy: what nobody touches is never read.

    Args:
        path: of the file.
        into: a program, whose weights and constants of the same names become these.
        mmap: map the file; False reads it, which is right for files that others may cut short.

    Returns:
        The tensors by name. Names that were written as ties share one.

    Raises:
        ImportError: safetensors, or numpy, which its reader needs, is not installed.
        FormatError: it is no safetensors file, or a damaged one.
        TypeError: it has elements of a type that no tensor of ours has.
        KeyError: the program has no such weight; nothing is changed then.
        OSError: the file can't be read.

    Example:
        >>> import array, fastexport, os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "w.safetensors")
        ...     fastexport.to_safetensors({"w": array.array("f", [1, 2])}, path, metadata={"from": "a test"})
        ...     print(fastexport.from_safetensors(path, mmap=False)["w"].tolist())
        [1.0, 2.0]
    """
    path = os.fsdecode(path)
    table, metadata, start = _header(path)
    buffer = _bytes_of(path, mmap)
    tensors = {}
    for name, dtype, shape in table:
        kind = DType(_DTYPES[dtype]) if dtype in _DTYPES else None
        if kind is None:
            raise TypeError(f"{name!r} has elements of type {dtype}, which no tensor of a program has")
        size = math.prod(shape) * kind.itemsize
        tensors[name] = _core.Tensor(_core.Storage(buffer, start, size), kind, tuple(shape))
        start += size
    tensors = {name: tensors[name] for name in sorted(tensors)}
    tensors.update(
        (alias, tensors[name]) for alias, name in metadata.items() if name in tensors and alias not in tensors
    )
    if into is not None:
        _assign(into, tensors)
    return tensors


def _header(path: str) -> tuple[list[tuple[str, str, list[int]]], dict[str, str], int]:
    """(name, dtype, shape) in the order of the bytes, which have no gaps; the texts; where the bytes start."""
    from fastexport._errors import FormatError

    safetensors = _import_safetensors("from_safetensors()")
    with open(path, "rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
    try:
        with safetensors.safe_open(path, "np") as file:
            slices = ((name, file.get_slice(name)) for name in file.offset_keys())
            table = [(name, part.get_dtype(), part.get_shape()) for name, part in slices]
            return table, dict(file.metadata() or {}), start
    except safetensors.SafetensorError as error:
        raise FormatError(f"{path}: {error}", kind="payload") from error


def _bytes_of(path: str, is_mapped: bool) -> _core.Storage:
    with open(path, "rb") as file:
        return _core.Storage.map(file) if is_mapped else _core.Storage(file.read())


def _assign(program: Any, tensors: dict[str, Tensor]) -> None:
    states = {}
    for name in tensors:
        state = program.state_dict if name in program.state_dict else program.constants
        if name not in state:
            raise KeyError(f"the program has no weight {name!r}")
        states[name] = state
    for name, state in states.items():
        state[name] = tensors[name]
