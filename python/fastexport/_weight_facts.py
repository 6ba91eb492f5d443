"""What is known of a program's weights and constants without reading one: for tables, statistics and trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastexport._dtypes import DType
from fastexport._module_tree import Holder, is_module, is_submodule, is_tensor, modules_below
from fastexport._signature import weight_names
from fastexport._state import _OPAQUE_KINDS, TENSOR, OpaqueValue, Payload, TensorDict
from fastexport._summary import size_text
from fastexport._tables import Column, Table

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram


class WeightFacts(NamedTuple):
    """One weight or constant.

    Attributes:
        name: in the program.
        kind: "parameter", "buffer", "constant", or what torch's own objects are called, such as "custom_obj".
        dtype: such as "float32"; None of what is no tensor.
        shape: None likewise.
        elements: how many.
        nbytes: how many bytes; of what is no tensor 0 where that can't be told without reading it.
        key: equal for names of the same memory: tied weights, and one that is another transposed.
    """

    name: str
    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    elements: int
    nbytes: int
    key: object


def weights_of(owner: Any) -> Iterator[WeightFacts]:
    """The weights, then the constants of a program; those of a module, ours or torch's; a graph alone has none."""
    from fastexport._program import ExportedProgram

    if isinstance(owner, ExportedProgram):
        yield from _weights_of_program(owner)
    elif is_submodule(owner):
        yield from _weights_of_module(owner)


def _weights_of_module(module: Any) -> Iterator[WeightFacts]:
    known: set[int] = set()  # weights of programs: all modules of one share them
    for prefix, at in (("", module), *modules_below(module)):
        start = f"{prefix}." if prefix else ""
        for name, value, kind in _own_tensors(at):
            yield facts_of(start + name, value, kind)
        values = at._values if isinstance(at, Holder) else None
        if isinstance(values, TensorDict) and id(values) not in known:
            known.add(id(values))
            parameters, _ = weight_names(at.graph)
            for name, value in described(values):
                yield facts_of(start + name, value, "parameter" if name in parameters else "buffer")


def _own_tensors(module: Any) -> Iterator[tuple[str, Any, str]]:
    """Name, tensor and kind of those in a module itself."""
    if is_module(module):
        for kind, found in (("parameter", module.named_parameters), ("buffer", module.named_buffers)):
            yield from ((name, value, kind) for name, value in found(recurse=False, remove_duplicate=False))
        return
    for name, value in vars(module).items():
        for kind, parameter in (("parameter", True), ("buffer", False)):
            if is_tensor(value, parameter=parameter):
                yield name, value, kind


def _weights_of_program(program: ExportedProgram) -> Iterator[WeightFacts]:
    parameters, buffers = weight_names(program.graph)
    kinds = dict.fromkeys(buffers, "buffer") | dict.fromkeys(parameters, "parameter")
    for state, default in ((program.state_dict, "buffer"), (program.constants, "constant")):
        for name, value in described(state):
            yield facts_of(name, value, kinds.get(name, default))


def described(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names with what is known of them; torch's own tensors themselves."""
    yield from state.described() if isinstance(state, TensorDict) else state.items()


def facts_of(name: str, value: Any, kind: str) -> WeightFacts:
    """The facts of one value: a `Payload`, a tensor of ours or torch's, or what only torch can read."""
    if isinstance(value, Payload):
        if value.kind != TENSOR:
            return WeightFacts(name, _OPAQUE_KINDS[value.kind], None, None, 0, 0, (value.entry, name))
        dtype = DType.from_code(value.dtype)
        elements = math.prod(value.sizes)
        key = (value.entry, value.offset, _extent(value.sizes, value.strides), value.dtype)
        return WeightFacts(name, kind, dtype.name, value.sizes, elements, elements * dtype.itemsize, key)
    if isinstance(value, OpaqueValue):
        return WeightFacts(name, value.kind, None, None, 0, value.nbytes, id(value))
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return WeightFacts(name, type(value).__name__, None, None, 0, 0, id(value))
    shape = tuple(int(size) for size in value.shape)
    dtype_name = str(value.dtype).removeprefix("torch.")
    elements = math.prod(shape)
    return WeightFacts(
        name, kind, dtype_name, shape, elements, elements * value.dtype.itemsize, _memory_of(value, shape)
    )


def _memory_of(tensor: Any, shape: tuple[int, ...]) -> object:
    """What is equal for tensors of the same memory."""
    storage = getattr(tensor, "storage", None)
    if not callable(storage):
        place = None if storage is None else (id(storage), tensor.storage_offset, _extent(shape, tensor.strides))
    elif type(tensor).__module__ in ("torch", "torch.nn.parameter"):
        place = _memory_in_torch(tensor, shape)
    else:  # of a class of its own, which may have no memory that can be asked for
        place = None
    return id(tensor) if place is None else (*place, str(tensor.dtype))


def _memory_in_torch(tensor: Any, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    try:
        address = tensor.data_ptr()
        return (str(tensor.device), address, _extent(shape, tensor.stride())) if address else None
    except Exception:  # a sparse one, or one on a device without addresses
        return None


def _extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements lie from the first to the last."""
    return 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)) if 0 not in sizes else 0


class Totals:
    """What many weights and constants are together. Memory that several names share counts once, for the first.

    Attributes:
        names: kind -> how many names, those that share memory included; what is no tensor is a constant.
        shared: how many names are of memory that one before them has.
        elements, nbytes: kind -> of the tensors.
        dtypes: dtype -> bytes of the tensors.
    """

    def __init__(self, weights: Iterable[WeightFacts]) -> None:
        self.names: Counter[str] = Counter()
        self.shared = 0
        self.elements: Counter[str] = Counter()
        self.nbytes: Counter[str] = Counter()
        self.dtypes: Counter[str] = Counter()
        seen = set()
        for weight in weights:
            kind = weight.kind if weight.kind in ("parameter", "buffer") else "constant"
            self.names[kind] += 1
            if weight.dtype is None:
                continue
            if weight.key in seen:
                self.shared += 1
                continue
            seen.add(weight.key)
            self.elements[kind] += weight.elements
            self.nbytes[kind] += weight.nbytes
            self.dtypes[weight.dtype] += weight.nbytes


COLUMNS = (
    Column("name"),
    Column("kind"),
    Column("dtype"),
    Column("shape"),
    Column("bytes", size_text, right=True),
)


def weights_table(weights: Iterator[WeightFacts]) -> Table:
    """The table of some weights: name, kind, dtype, shape and bytes."""
    rows = [(w.name, w.kind, w.dtype, None if w.shape is None else list(w.shape), w.nbytes) for w in weights]
    return Table(COLUMNS, rows)
