"""Exported programs that `./run bench files` and `./run bench programs` time, and what of their results is compared."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import zoo

Facts = dict[str, tuple[str, tuple[int, ...], bytes]]  # name of a tensor -> dtype, shape, bytes


@dataclass(frozen=True)
class Kind:
    """A model of the zoo, and how to export it."""

    name: str
    layers: int
    dynamic: bool = False
    decomposed: bool = False

    @property
    def title(self) -> str:
        how = ", dynamic sizes" * self.dynamic + ", decomposed" * self.decomposed
        return f"{self.name}, {self.layers} block{'s' * (self.layers > 1)}{how}"

    def export(self) -> torch.export.ExportedProgram:
        module, args = zoo.build(self.name, self.layers)
        sizes = (tuple({0: torch.export.Dim.AUTO} for _ in args),) if self.dynamic else None
        with torch.no_grad():
            program = torch.export.export(module, args, dynamic_shapes=sizes)
            return program.run_decompositions() if self.decomposed else program


def same(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise RuntimeError(f"not timed, for results differ: {what}")


def entries(path: Path) -> dict[str, bytes]:
    """What an archive holds, by the names below its top folder."""
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def texts(constraints: Any) -> list[tuple[str, str]]:
    return [(str(size), str(limits)) for size, limits in constraints.items()]


def tensor_facts(tensors: Any) -> Facts:
    """Of torch's tensors."""
    found = {}
    for name, tensor in tensors.items():
        flat = tensor.detach().contiguous().flatten().view(torch.uint8)
        found[name] = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), flat.numpy().tobytes()
    return found


def our_facts(tensors: Any) -> Facts:
    return {name: (str(t.dtype).removeprefix("torch."), tuple(t.shape), t.tobytes()) for name, t in tensors.items()}
