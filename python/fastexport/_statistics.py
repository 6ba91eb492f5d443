"""Numbers that describe weights: extremes, mean and deviation, zeros, what is not finite; of one, of many, of layers.

The elements are gone through in C, without the GIL, and without a copy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fastexport import _core
from fastexport._state import TensorDict
from fastexport._tensors import from_array, mappings_of


class WeightStatistics(NamedTuple):
    """What the elements of a tensor are like. It can be pickled, compared and, by `to_dict`, written as JSON.

    Extremes, mean and deviation are those of the finite elements, None where there are too few, they are complex, or
    their sums are more than a double can hold.
    Sums are of doubles, in blocks, so that they are good to some 15 digits however many elements there are.

    Attributes:
        dtype, shape, elements, bytes: of the tensor; bytes that its elements take, each counted once.
        min, max: ints where the elements are ints or bools; exact.
        mean: of the finite elements.
        std: their deviation as torch.std has it, with n - 1.
        zeros, nans, infs: how many there are. -0.0 is a zero.
        sha256: of the elements in C order, as hexadecimal digits, when it was asked for.
    """

    dtype: str
    shape: tuple[int, ...]
    elements: int
    bytes: int
    min: int | float | None
    max: int | float | None
    mean: float | None
    std: float | None
    zeros: int
    nans: int
    infs: int
    sha256: str | None = None

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        from fastexport import _notebook

        return _notebook.mimebundle(self, include, exclude)

    @property
    def sparsity(self) -> float:
        """The part of the elements that is zero; of none, 0."""
        return self.zeros / self.elements if self.elements else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields and the sparsity, for JSON."""
        return {**self._asdict(), "shape": list(self.shape), "sparsity": self.sparsity}


def statistics(tensor: _core.Tensor, *, sha256: bool = False) -> WeightStatistics:
    """What the elements of a tensor are like.

    Args:
        tensor: the tensor; of a file, its elements are read.
        sha256: also the SHA-256 of the elements.

    Raises:
        FormatError: the file is damaged.
        BufferError: the tensor is on the device meta, and has no elements.

    Example:
        >>> import array
        >>> from fastexport._tensors import from_array, mappings_of
        >>> found = statistics(from_array(array.array("f", [0, 1, 2, float("inf")])))
        >>> found.min, found.max, found.mean, found.std, found.zeros, found.infs
        (0.0, 2.0, 1.0, 1.0, 1, 1)
    """
    numbers = _core.tensor_statistics(tensor)
    digest = _sha256(tensor) if sha256 else None
    return WeightStatistics(tensor.dtype.name, tensor.shape, tensor.numel, tensor.nbytes, *numbers, digest)


def outline(tensor: _core.Tensor) -> WeightStatistics:
    """What is known of a tensor without reading it; as of one without elements, there are no numbers."""
    nothing = None, None, None, None, 0, 0, 0
    return WeightStatistics(tensor.dtype.name, tensor.shape, tensor.numel, tensor.nbytes, *nothing)


def _sha256(tensor: _core.Tensor) -> str:
    import hashlib

    return hashlib.sha256(tensor if tensor.is_contiguous else tensor.tobytes()).hexdigest()


def weight_statistics(
    weights: Any, *, sha256: bool = False, progress: Any = None
) -> Iterator[tuple[str, WeightStatistics]]:
    """The statistics of every tensor that has elements, by name, one after the other.

    Args:
        weights: a program, ours or torch's (its weights, then its constants), an open file of weights, a module of
            torch (what its state_dict() gives), or a mapping of tensors or arrays. Of a program, constants that are no
            tensors are passed over.
        sha256: also the SHA-256 of each, for which a file is mapped, unless it was opened with ``mmap=False``.
        progress: called with (names done, names in all, name) after each.

    Raises:
        FormatError: the file is damaged.
        TypeError: weights is none of these, or has what is no tensor and no array.

    Example:
        >>> import fastexport
        >>> ep = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
        >>> [(name, found.elements) for name, found in fastexport.weight_statistics(ep)]
        [('fc.weight', 12), ('fc.bias', 3)]
    """
    parts = mappings_of(weights, "weight_statistics")
    has_objects = len(parts) > 1 or isinstance(weights, TensorDict)
    return _statistics_of([(part, name) for part in parts for name in part], sha256, progress, has_objects)


def _statistics_of(
    names: list[tuple[Mapping[str, Any], str]], sha256: bool, progress: Any, has_objects: bool
) -> Iterator[tuple[str, WeightStatistics]]:
    """See `weight_statistics`; with objects, what is no tensor is passed over."""
    for done, (part, name) in enumerate(names, 1):
        value = part[name]
        if not has_objects or hasattr(value, "dtype"):
            tensor = from_array(value, repr(name))
            if tensor.storage is not None:
                yield name, statistics(tensor, sha256=sha256)
        if progress is not None:
            progress(done, len(names), name)


# ---- layers that are like each other -------------------------------------------------------------

_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")  # a part of a dotted name that is a number


def fold_name(name: str) -> str:
    """A name with the numbers of its layers left out.

    >>> fold_name("layers.12.self_attn.q_proj.weight"), fold_name("conv1.weight")
    ('layers.#.self_attn.q_proj.weight', 'conv1.weight')
    """
    return _NUMBER.sub("#", name)


def fold(
    rows: Iterable[tuple[str, WeightStatistics]],
) -> Iterator[tuple[str, tuple[str, ...], WeightStatistics]]:
    """Join the rows of weights that differ in the numbers of their layers only, and have one dtype and shape.

    They also stand in modules that have the same weights: the bias of a convolution is not joined with one of a
    normalization beside it.

    Args:
        rows: (name, statistics), as `weight_statistics` gives them.

    Yields:
        (name, the names that it stands for, their statistics together) in the order of the first of each. A weight that
        is like no other keeps its name, and of others, numbers that all have are kept.

    Example:
        >>> one = WeightStatistics("float32", (2,), 2, 8, 0.0, 2.0, 1.0, 2**0.5, 1, 0, 0)
        >>> [(name, names, both.elements) for name, names, both in fold([("a.0.w", one), ("a.1.w", one)])]
        [('a.#.w', ('a.0.w', 'a.1.w'), 4)]
    """
    rows = list(rows)
    modules: dict[str, set[tuple[Any, ...]]] = {}
    for name, row in rows:
        module, _, own = name.rpartition(".")
        modules.setdefault(module, set()).add((own, row.dtype, row.shape))
    kinds = {module: frozenset(own) for module, own in modules.items()}
    groups: dict[tuple[Any, ...], list[tuple[str, WeightStatistics]]] = {}
    for name, row in rows:
        key = fold_name(name), row.dtype, row.shape, kinds[name.rpartition(".")[0]]
        groups.setdefault(key, []).append((name, row))
    for members in groups.values():
        names = tuple(member for member, _ in members)
        yield _joined_name(names), names, members[0][1] if len(members) == 1 else join([row for _, row in members])


def _joined_name(names: tuple[str, ...]) -> str:
    """The name of weights that differ in numbers only.

    >>> _joined_name(("c.0.1.bias", "c.2.1.bias"))
    'c.#.1.bias'
    """
    columns = zip(*(name.split(".") for name in names), strict=True)
    return ".".join(parts[0] if len(set(parts)) == 1 else "#" for parts in columns)


def join(rows: list[WeightStatistics]) -> WeightStatistics:
    """The statistics of several tensors of one dtype and shape as if they were one; a checksum it has none.

    Args:
        rows: at least one.
    """
    finite = [(row.elements - row.nans - row.infs, row) for row in rows]
    count = sum(number for number, row in finite if row.mean is not None)
    mean = math.fsum(number * row.mean for number, row in finite if row.mean is not None) / count if count else None
    std = None
    if mean is not None and count > 1:
        squares = (
            (number - 1) * (row.std or 0.0) ** 2 + number * (row.mean - mean) ** 2
            for number, row in finite
            if row.mean is not None
        )
        std = math.sqrt(math.fsum(squares) / (count - 1))
    return rows[0]._replace(
        elements=sum(row.elements for row in rows),
        bytes=sum(row.bytes for row in rows),
        min=min((row.min for row in rows if row.min is not None), default=None),
        max=max((row.max for row in rows if row.max is not None), default=None),
        mean=mean,
        std=std,
        zeros=sum(row.zeros for row in rows),
        nans=sum(row.nans for row in rows),
        infs=sum(row.infs for row in rows),
        sha256=None,
    )
