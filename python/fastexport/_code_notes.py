"""What code shows of meta when it is asked to: types of values, and where nodes come from."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from fastexport._loaded import loaded
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._graph import Graph

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_LONGEST = 40
_NO_ORIGIN = "No stacktrace found for following nodes"
_BLUE, _RED, _DIM, _DIM_BLUE, _GREEN = "\033[34m", "\033[31m", "\033[2m", "\033[2m\033[34m", "\033[2m\033[32m"
_VALUES = ("val", "tensor_meta", "example_value")
_MISSING = object()


def _painted(colour: str, text: str, colored: bool) -> str:
    return f"{colour}{text}\033[0m" if colored else text


# ---- types


def annotations_of(graph: Graph, options: Any) -> list[str | None]:
    """The type of each node's value, as text; None where meta has none."""
    stride = options.include_stride or os.environ.get("FX_GRAPH_SHOW_STRIDE", "0") == "1"
    device = options.include_device or os.environ.get("FX_GRAPH_SHOW_DEVICE", "0") == "1"
    annotation = _Annotation(stride, device, options.colored)
    return [None if value is None else annotation.of(value) for value in graph._meta_column(_VALUES, None)]


class _Annotation:
    """The types of values: the text is made once for all tensors of the same sizes, dtype and so on."""

    def __init__(self, stride: bool, device: bool, colored: bool) -> None:
        self._shown = stride, device, colored
        self._plain: dict[type, bool] = {}  # by class: whether it is one of ordinary tensors
        self._texts: dict[Any, str | None] = {}
        torch = loaded("torch")
        self._strided = torch.strided if torch is not None else None

    def of(self, value: Any) -> str | None:
        kind = type(value)
        plain = self._plain.get(kind)
        if plain is None:
            plain = self._plain[kind] = _is_plain(kind)
        if not plain or value.layout is not self._strided:
            return _annotation(value, *self._shown)
        stride, device, _ = self._shown
        facts = value.dtype, value.shape, stride and value.stride(), device and value.device
        try:
            return self._texts[facts]
        except KeyError:
            text = self._texts[facts] = _annotation(value, *self._shown)
            return text
        except TypeError:  # sizes that are symbols have no hash
            return _annotation(value, *self._shown)


def _is_plain(kind: type) -> bool:
    if loaded("torch") is None:
        return False
    from fastexport import _torch

    return _torch.is_ordinary(kind)


def _annotation(value: Any, stride: bool, device: bool, colored: bool) -> str | None:
    if isinstance(value, TensorMeta):
        return f': "{_tensor(value, value.dtype.abbreviation, stride, device, colored)}"'
    if isinstance(value, (SymInt, SymFloat, SymBool)):
        return f': "Sym({value})"'
    torch = loaded("torch")
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


def notes_of(graph: Graph, nodes: list[Node], options: Any) -> list[str | None]:
    """The comment before each node, None where it is that of the node before."""
    shown = [(key, graph._meta_column((key,), _MISSING)) for key in options.additional_meta or ()]
    columns = (graph._meta_column((key,), None) for key in ("custom", "recompute", "ac_graph_id", "stack_trace"))
    bare: dict[str, str] = {}  # by stack trace, of which few differ: the comment of a node with nothing else to tell
    notes: list[str | None] = []
    last = None
    for at, (node, custom, policy, region, trace) in enumerate(zip(nodes, *columns, strict=True)):
        if node.op in ("placeholder", "output"):
            notes.append(None)
            continue
        is_bare = type(trace) is str and not shown and not custom and policy is None and region is None
        note = bare.get(trace) if is_bare else None
        if note is None:
            told = ", ".join(f"{key}: {column[at]}" for key, column in shown if column[at] is not _MISSING)
            more = f"# {told} " if told else ""
            text = f"{more}#{_custom(custom)}{_recompute(policy, region)} {_origin(trace)}"
            note = f"\n{_painted(_DIM, text, options.colored)}\n"
            if is_bare:
                bare[trace] = note
        notes.append(None if note == last else note)
        last = note
    return notes


def _custom(custom: Any) -> str:
    if not custom:
        return ""
    short = {key: _shortened(value) for key, value in custom.items()}
    return f" Annotation: {short}"


def _shortened(value: Any) -> Any:
    text = str(value)
    return text[:_LONGEST] + "..." if len(text) > _LONGEST else value


def _recompute(policy: Any, region: Any) -> str:
    if policy is None and region is None:
        return ""
    texts = []
    if region is not None:
        texts.append(f"ac_graph_id: {region}")
    if policy is not None:
        texts.append(f"{'- ' if texts else 'recompute: '}{policy.name}")
    return f" {' '.join(texts)}"


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
