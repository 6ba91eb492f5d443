"""What code shows of meta when it is asked to: types of values, and where nodes come from."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

if TYPE_CHECKING:
    from fastexport._core import Node

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_LONGEST = 40
_NO_ORIGIN = "No stacktrace found for following nodes"
_BLUE, _RED, _DIM, _DIM_BLUE, _GREEN = "\033[34m", "\033[31m", "\033[2m", "\033[2m\033[34m", "\033[2m\033[32m"
_VALUES = ("val", "tensor_meta", "example_value")


def _painted(colour: str, text: str, colored: bool) -> str:
    return f"{colour}{text}\033[0m" if colored else text


# ---- types


def annotations_of(nodes: list[Node], options: Any) -> list[str | None]:
    """The type of each node's value, as text; None where meta has none."""
    stride = options.include_stride or os.environ.get("FX_GRAPH_SHOW_STRIDE", "0") == "1"
    device = options.include_device or os.environ.get("FX_GRAPH_SHOW_DEVICE", "0") == "1"
    return [_annotation(_value(node.meta), stride, device, options.colored) for node in nodes]


def _value(meta: Any) -> Any:
    return next((meta[key] for key in _VALUES if key in meta), None)


def _annotation(value: Any, stride: bool, device: bool, colored: bool) -> str | None:
    if value is None:
        return None
    if isinstance(value, TensorMeta):
        return f': "{_tensor(value, value.dtype.abbreviation, stride, device, colored)}"'
    if isinstance(value, (SymInt, SymFloat, SymBool)):
        return f': "Sym({value})"'
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    from fastexport import _torch

    if isinstance(value, torch.Tensor):
        if value.layout in (torch.sparse_csc, torch.sparse_csr):
            return None
        text = _tensor(value, _torch.dtype_abbreviation(value.dtype), stride, device, colored)
        kind, more = _torch.tensor_kind(value)
        if kind is None:
            return f': "{text}"'
        return f': "{kind}({text}{", " + _painted(_GREEN, more, colored) if more is not None else ""})"'
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return f': "Sym({value!r})"'
    if _torch.is_tensor_metadata(value):
        return f': "{_torch.dtype_abbreviation(value.dtype)}{_listed(value.shape)}"'
    return None


def _tensor(value: Any, dtype: str, stride: bool, device: bool, colored: bool) -> str:
    parts = (
        (_RED, dtype),
        (_BLUE, _listed(value.shape)),
        (_DIM_BLUE, _listed(value.stride() if callable(value.stride) else value.stride) if stride else ""),
        (_GREEN, str(value.device) if device else ""),
    )
    return "".join(_painted(colour, text, colored) for colour, text in parts)


def _listed(sizes: Any) -> str:
    return f"[{', '.join(map(str, sizes))}]"


# ---- where nodes come from


def notes_of(nodes: list[Node], options: Any) -> list[str | None]:
    """The comment before each node, None where it is that of the node before."""
    notes: list[str | None] = []
    last = None
    for node in nodes:
        note = None
        if node.op not in ("placeholder", "output"):
            text = _note(node.meta, options.additional_meta or ())
            note = f"\n{_painted(_DIM, text, options.colored)}\n"
            note, last = (None, last) if note == last else (note, note)
        notes.append(note)
    return notes


def _note(meta: Any, keys: Any) -> str:
    shown = ", ".join(f"{key}: {meta[key]}" for key in keys if key in meta)
    more = f"# {shown} " if shown else ""
    return f"{more}#{_custom(meta)}{_recompute(meta)} {_origin(meta.get('stack_trace'))}"


def _custom(meta: Any) -> str:
    custom = meta.get("custom")
    if not custom:
        return ""
    short = {key: _shortened(value) for key, value in custom.items()}
    return f" Annotation: {short}"


def _shortened(value: Any) -> Any:
    text = str(value)
    return text[:_LONGEST] + "..." if len(text) > _LONGEST else value


def _recompute(meta: Any) -> str:
    policy, region = meta.get("recompute"), meta.get("ac_graph_id")
    texts = []
    if region is not None:
        texts.append(f"ac_graph_id: {region}")
    if policy is not None:
        texts.append(f"{'- ' if texts else 'recompute: '}{policy.name}")
    return f" {' '.join(texts)}" if texts else ""


def _origin(trace: str | None) -> str:
    """The innermost place in a stack trace, and the code there."""
    if not trace:
        return _NO_ORIGIN
    text = trace.strip()
    return _frame_in(text.rsplit("\n", 4)[1:]) or _frame_in(text.split("\n")) or _NO_ORIGIN


def _frame_in(lines: list[str]) -> str | None:
    for at in range(len(lines) - 2, -1, -1):
        frame = _FRAME.fullmatch(lines[at].strip())
        if frame:
            return f"File: {frame[1]}:{frame[2]} in {frame[3]}, code: {lines[at + 1].strip()}"
    return None
