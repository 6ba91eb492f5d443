"""What is known of a program's weights and constants without reading one: for tables, statistics and trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastexport._dtypes import DType
from fastexport._module_tree import Holder, is_module, is_submodule, is_tensor, modules_below
from fastexport._signature import weight_names
from fastexport._state import _OPAQUE_KINDS, TENSOR, OpaqueValue, Payload, TensorDict
from fastexport._summary import size_text
from fastexport._tables import Column, Table
from fastexport._weight_memory import Memory, Place, place_in_file, place_of

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram
    from fastexport._state import Storages


class WeightFacts(NamedTuple):
    """One weight or constant.

    Attributes:
        name: in the program.
        kind: "parameter", "buffer", "constant", or what torch's own objects are called, such as "custom_obj".
        dtype: such as "float32"; None of what is no tensor.
        shape: None likewise.
        elements: how many.
        nbytes: how many bytes; of what is no tensor 0 where that can't be told without reading it.
        place: where its elements are, which may be where those of others are; None of what is no tensor.
    """

    name: str
    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    elements: int
    nbytes: int
    place: Place | None

    def elements_in(self, nbytes: int) -> int:
        """How many of its elements so many bytes are."""
        return nbytes * self.elements // self.nbytes if self.nbytes else self.elements


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
            for facts in facts_in(values, dict.fromkeys(parameters, "parameter"), "buffer"):
                yield facts._replace(name=start + facts.name)


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
    yield from facts_in(program.state_dict, kinds, "buffer")
    yield from facts_in(program.constants, kinds, "constant")


def facts_in(state: Mapping[str, Any], kinds: Mapping[str, str], default: str) -> Iterator[WeightFacts]:
    """The facts of all weights or constants of a program, whose tensors may be torch's.

    Args:
        kinds: of some of them, by name.
        default: the kind of the others.
    """
    values, storages = (state.described(), state._storages) if isinstance(state, TensorDict) else (state.items(), None)
    for name, value in values:
        yield facts_of(name, value, kinds.get(name, default), storages)


def facts_of(name: str, value: Any, kind: str, storages: Storages | None = None) -> WeightFacts:
    """The facts of one value: a `Payload`, a tensor of ours or torch's, or what only torch can read.

    Args:
        storages: those of the program that has it.
    """
    if isinstance(value, Payload):
        if value.kind != TENSOR:
            return WeightFacts(name, _OPAQUE_KINDS[value.kind], None, None, 0, 0, None)
        dtype = DType.from_code(value.dtype)
        elements = math.prod(value.sizes)
        place = place_in_file(value, dtype.itemsize, storages)
        return WeightFacts(name, kind, dtype.name, value.sizes, elements, elements * dtype.itemsize, place)
    if isinstance(value, OpaqueValue):
        return WeightFacts(name, value.kind, None, None, 0, value.nbytes, None)
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return WeightFacts(name, type(value).__name__, None, None, 0, 0, None)
    shape = tuple(int(size) for size in value.shape)
    dtype_name = str(value.dtype).removeprefix("torch.")
    elements = math.prod(shape)
    nbytes = elements * value.dtype.itemsize
    return WeightFacts(name, kind, dtype_name, shape, elements, nbytes, place_of(value, shape, storages))


class Totals:
    """What many weights and constants are together. Memory that several names share counts once, for the first, and
    elements that stand in the same place once.

    Attributes:
        names: kind -> how many names, those that share memory included; what is no tensor is a constant.
        shared: how many names stand in memory of those before them.
        is_shared: whether any do, also in part.
        elements, nbytes: kind -> of the tensors.
        dtypes: dtype -> bytes of the tensors.
    """

    def __init__(self, weights: Iterable[WeightFacts]) -> None:
        self.names: Counter[str] = Counter()
        self.shared = 0
        self.is_shared = False
        self.elements: Counter[str] = Counter()
        self.nbytes: Counter[str] = Counter()
        self.dtypes: Counter[str] = Counter()
        memory = Memory()
        for weight in weights:
            kind = weight.kind if weight.kind in ("parameter", "buffer") else "constant"
            self.names[kind] += 1
            if weight.dtype is None or weight.place is None:
                continue
            added = memory.add(weight.place)
            self.is_shared |= added != weight.place.used
            if added is None:
                self.shared += 1
                continue
            self.elements[kind] += weight.elements_in(added)
            self.nbytes[kind] += added
            self.dtypes[weight.dtype] += added


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
