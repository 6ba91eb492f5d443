"""What keeps a program of torch from being a file that `load` takes, though torch's verifier passes it.

Torch's verifier does not compare weights with the graph that was made for them, nor the calling convention with the
signature; torch.export.save writes such a program all the same. `file_faults` looks for that before each save. What
else a file can't say is found by writing the program without its weights and reading it again, as
``verify(level="strict")`` does.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.export
from torch.export.graph_signature import InputKind

from fastexport import _core, _torch_save, _torch_serializer
from fastexport._dialect import fault, shown
from fastexport._errors import Fault, FormatError, VerifyError
from fastexport._save import write_parts
from fastexport._tensors import check_storage
from fastexport._treespec import MAX_DEPTH

if TYPE_CHECKING:
    from fastexport._torch_source import TorchProgram

__all__ = ["file_faults", "strict_faults"]


def file_faults(program: torch.export.ExportedProgram) -> list[Fault]:
    """Where a program contradicts itself, so that no file may hold it."""
    return [*_weight_faults(program), *_call_faults(program)]


def strict_faults(program: TorchProgram) -> list[Fault]:
    """All errors that `save` and `load` would find in a program that torch's verifier has passed."""
    converted = program._convert()
    return [*_state_faults(converted), *file_faults(converted)] or _faults_of_a_copy(converted)


# ---- weights against the graph ---------------------------------------------------------------------------------------

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _state_faults(program: torch.export.ExportedProgram) -> Iterator[Fault]:
    for name, value in program.state_dict.items():
        if not isinstance(value, torch.Tensor):
            yield fault("FX501", None, f"{name!r} of the state dict is {shown(value)}; it has to be a torch.Tensor")
    for name, value in (*program.state_dict.items(), *program.constants.items()):
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        try:
            if not _torch_serializer.is_pickled(value):
                check_storage(value, repr(name))
        except ValueError as error:
            yield fault("FX501", None, str(error))


def _weight_faults(program: torch.export.ExportedProgram) -> Iterator[Fault]:
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind not in _WEIGHTS or spec.target is None or spec.arg.name not in nodes:
            continue
        tensor = program.state_dict.get(spec.target)
        if tensor is None:
            tensor = program.constants.get(spec.target)
        value = nodes[spec.arg.name].meta.get("val")
        if not isinstance(tensor, torch.Tensor) or not isinstance(value, torch.Tensor):
            continue
        if _torch_serializer.is_pickled(tensor):
            continue
        wrong = _difference(tensor, value)
        if wrong:
            yield fault("FX501", spec.arg.name, f"{spec.target!r} {wrong}")


def _difference(tensor: torch.Tensor, value: torch.Tensor) -> str | None:
    """What keeps a weight from being the value that the graph was made for; symbolic sizes fit any."""
    if tensor.dtype != value.dtype:
        return f"is of {tensor.dtype}, but the graph is made for {value.dtype}"
    have, want = tensor.shape, value.shape
    if len(have) != len(want) or any(type(size) is int and size != is_ for is_, size in zip(have, want, strict=True)):
        return f"has the shape {list(have)}, but the graph is made for [{', '.join(map(str, want))}]"
    if tensor.device.type == "meta" and value.device.type != "meta":
        return f"has no data, being on the device meta, but the graph is made for {value.device}"
    if _torch_serializer.is_fake(tensor) and tensor.device.type != "meta" and tensor.numel():
        return "is a fake tensor, which has no data to be saved; give the real weight"
    return None


# ---- the calling convention --------------------------------------------------------------------


def _call_faults(program: torch.export.ExportedProgram) -> Iterator[Fault]:
    calls = program.module_call_graph
    if not calls or calls[0].signature is None or calls[0].fqn:
        message = "the module call graph does not begin with the program itself, so nothing tells how it is called"
        yield fault("FX401", None, message)
        return
    for entry in calls:
        for what in ("in_spec", "out_spec"):
            spec = getattr(entry.signature, what, None)
            if spec is not None and _is_too_deep(spec):
                message = f"the {what} of {repr(entry.fqn) if entry.fqn else 'the program'} nests more than {MAX_DEPTH}"
                yield fault("FX402", None, f"{message} deep, which `load` does not take; let it nest less")


def _is_too_deep(spec: Any) -> bool:
    level, depth = [spec], 0
    while level and depth <= MAX_DEPTH:
        level = [child for each in level for child in each.children() if not child.is_leaf()]
        depth += 1
    return bool(level)


# ---- the whole file --------------------------------------------------------------------------------------------------


def _faults_of_a_copy(program: torch.export.ExportedProgram) -> list[Fault]:
    """What is found when a program is written, with weights that have no data, and read again."""
    from fastexport._program import load

    file = io.BytesIO()
    try:
        write_parts(file, _torch_save.records_without_data(program))
        load(file.getvalue())
    except MemoryError:
        raise
    except (FormatError, VerifyError) as error:
        found = [each._replace(entry=None) for each in error.faults if each.is_error]
        return _distinct(found) or [fault(_code_of(error), None, str(error))]
    except Exception as error:
        return [fault("FX400", None, f"torch can't write the program: {type(error).__name__}: {error}")]
    return []


def _distinct(faults: list[Fault]) -> list[Fault]:
    """Without those that are told of a node, and of the signature once more."""
    told = {(each.code, each.message) for each in faults if each.node is not None}
    return [each for each in faults if each.node is not None or (each.code, each.message) not in told]


def _code_of(error: Any) -> str:
    kind = getattr(error, "kind", "value")
    return next((code for code, name in _core.fault_kinds().items() if name == kind), "FX305")
