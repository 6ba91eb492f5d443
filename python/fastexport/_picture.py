"""A level, with what is opened in it, as SVG: one file that needs nothing else, light and dark, whatever names say.

Colours are in a style element, for the two colour schemes; each group also has plain attributes, for viewers that leave
styles out. What a box or an edge is, its title element tells, which browsers show as a tooltip and screen readers read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fastexport._levels import Item, Level
from fastexport._node_facts import Result, Weight
from fastexport._placing import (
    PAD,
    PILE,
    SIZES,
    TITLE,
    TURN,
    Box,
    Part,
    Placed,
    Route,
    place,
    results_text,
    row_text,
    short_name,
    text_width,
    visible,
)

_MARGIN = 20.0
_HEADER = 52.0
_LONGEST = 400  # characters of a call in a tooltip
_MOST_LINES = 20  # for values or weights in a tooltip

# What an operator does, for the colour of its box; by its short name, without a trailing underscore.
_FAMILIES = {
    "matrix": "linear matmul mm bmm addmm baddbmm conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d "
    "conv_transpose3d embedding embedding_bag scaled_dot_product_attention einsum lstm gru rnn_tanh rnn_relu dot mv "
    "outer bilinear multi_head_attention_forward _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention",
    "activation": "relu relu6 gelu silu sigmoid tanh softmax _softmax log_softmax _log_softmax elu celu selu mish "
    "leaky_relu prelu hardtanh hardswish hardsigmoid softplus glu logsigmoid threshold",
    "norm": "layer_norm batch_norm group_norm instance_norm rms_norm native_layer_norm native_batch_norm "
    "native_group_norm _native_batch_norm_legit_no_training local_response_norm normalize dropout native_dropout "
    "alpha_dropout feature_dropout",
    "shape": "view _unsafe_view reshape transpose t permute expand expand_as slice select narrow cat stack split "
    "split_with_sizes chunk unsqueeze squeeze flatten unflatten getitem to _to_copy clone detach contiguous alias "
    "index index_select gather movedim swapaxes repeat repeat_interleave unbind pad constant_pad_nd roll flip size "
    "sym_size lift_fresh_copy as_strided pixel_shuffle tile copy slice_scatter select_scatter "
    "view_as reshape_as view_as_complex view_as_real",
    "quantize": "quantize_per_tensor quantize_per_channel quantize_per_token quantize_affine dequantize_per_tensor "
    "dequantize_per_channel dequantize_per_token dequantize_affine fake_quantize_per_tensor_affine "
    "fake_quantize_per_channel_affine choose_qparams choose_qparams_affine dequantize quantize",
    "check": "_assert_tensor_metadata _assert_scalar _assert_async sym_constrain_range sym_constrain_range_for_size "
    "_check _check_is_size _assert",
}
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names.split()}
_CLASSES = {name.replace("_", ""): family for name, family in _FAMILY_OF.items()}  # of modules, in small letters

# Fill and border of each class of box, light and dark.
_COLOURS = {
    "math": ("#ffffff", "#b6bcc6", "#22262e", "#4a515e"),
    "matrix": ("#e3edff", "#7ea3e6", "#1c2c4d", "#4a6fb3"),
    "activation": ("#ffe8dc", "#e5a07c", "#46291b", "#a4623f"),
    "norm": ("#e4f5e6", "#86c08e", "#1c3a24", "#4c8a58"),
    "shape": ("#f1f2f4", "#c9cdd4", "#1b1e24", "#3b414c"),
    "quantize": ("#fff3c9", "#d9b64a", "#3d3312", "#937a2a"),
    "check": ("#ffffff", "#d4d7dd", "#191c21", "#343943"),
    "end": ("#3f4754", "#3f4754", "#c9d1dc", "#c9d1dc"),
    "module": ("#f3effd", "#a590db", "#2a2342", "#7059ad"),
    "open": ("#fbfaff", "#c3b5e8", "#17161f", "#4d4175"),
}
_INK = {  # text and lines: class, property, light, dark
    "name": ("fill", "#1d2129", "#e8ebf0"),
    "note": ("fill", "#5b6472", "#9aa4b2"),
    "weight": ("fill", "#7a5c1e", "#d6b36a"),
    "line": ("stroke", "#8d96a5", "#6d7787"),
    "tip": ("fill", "#8d96a5", "#6d7787"),
    "port": ("fill", "#a590db", "#7059ad"),
    "back": ("fill", "#ffffff", "#111318"),
}
_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"


def svg(level: Level, depth: int = 1) -> str:
    """The picture of a level.

    Args:
        level: of `levels_of`.
        depth: how many levels to show: 1 opens nothing.
    """
    placed = place(level, depth)
    title, note = _heading(level)
    width = max(placed.width, text_width(title, 15, True), text_width(note, 11)) + 2 * _MARGIN
    height = placed.height + _HEADER + 2 * _MARGIN
    x = (width - placed.width) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fe" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" role="img" font-family="{_FONT}">',
        f"<title>{_text(title)}</title>",
        f"<desc>{_text(note)}</desc>",
        f"<style>{_style()}</style>",
        '<defs><marker id="fe-tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        '<path class="fe-tip" fill="#8d96a5" d="M0 .8 8 4 0 7.2z"/></marker></defs>',
        '<rect class="fe-back" fill="#ffffff" width="100%" height="100%"/>',
        f'<text class="fe-name" x="{_n(_MARGIN)}" y="{_n(_MARGIN + 13)}" font-size="15" font-weight="600">'
        f"{_text(title)}</text>",
        f'<text class="fe-note" x="{_n(_MARGIN)}" y="{_n(_MARGIN + 30)}" font-size="11">{_text(note)}</text>',
        f'<g transform="translate({_n(x)} {_n(_MARGIN + _HEADER)})">',
    ]
    _add_placed(placed, parts)
    parts += ("</g>", "</svg>\n")
    return "\n".join(parts)


def _heading(level: Level) -> tuple[str, str]:
    title = f"{level.path}: {level.type}" if level.path and level.type else level.path or level.type or "graph"
    calls = f"{level.size} {'node' if level.size == 1 else 'nodes'}"
    of_graph = [result for item in level.outputs for result in item.results]
    results = f"{len(level.outputs)} out" if level.item is not None else results_text(of_graph)
    return visible(title).replace("\n", " "), f"{calls}, {len(level.inputs)} in, {results}"


def _style() -> str:
    light, dark = [], []
    for name, (fill, line, dark_fill, dark_line) in _COLOURS.items():
        light.append(f".fe-{name}{{fill:{fill};stroke:{line}}}")
        dark.append(f".fe-{name}{{fill:{dark_fill};stroke:{dark_line}}}")
    for name, (what, ink, dark_ink) in _INK.items():
        light.append(f".fe-{name}{{{what}:{ink}}}")
        dark.append(f".fe-{name}{{{what}:{dark_ink}}}")
    light.append(".fe-end-name{fill:#fff}.fe-line path:hover{stroke:#4f6bd8;stroke-width:3}")
    dark.append(".fe-end-name{fill:#14171c}.fe-line path:hover{stroke:#8fa6ff}")
    return f".fe{{color-scheme:light dark}}{''.join(light)}@media(prefers-color-scheme:dark){{{''.join(dark)}}}"


# ---- pieces


def _n(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _add_placed(placed: Placed, out: list[str]) -> None:
    if placed.routes:
        out.append('<g class="fe-line" fill="none" stroke="#8d96a5" stroke-width="1.3">')
        out += map(_route, placed.routes)
        out.append("</g>")
    for box in placed.boxes:
        if box.is_port:
            out += _port(box)
        else:
            _add_box(box, out)


def _port(box: Box) -> tuple[str, str]:
    x, y = _n(box.x + box.width / 2), _n(box.y)
    end = _n(box.y + box.height)
    return (
        f'<path class="fe-line" stroke="#8d96a5" stroke-width="1.3" d="M{x} {y}V{end}"/>',
        f'<circle class="fe-port" fill="#a590db" cx="{x}" cy="{y if box.item.kind == "input" else end}" r="3">'
        f"{_title(_told(box.item))}</circle>",
    )


def _route(route: Route) -> str:
    (x, y), *rest = route.points
    steps = [f"M{_n(x)} {_n(y)}"]
    if route.turned:
        steps += _bends(route.points)
        rest = []
    for to_x, to_y in rest:
        if to_x == x:
            steps.append(f"V{_n(to_y)}")
        else:
            middle = _n((y + to_y) / 2)
            steps.append(f"C{_n(x)} {middle} {_n(to_x)} {middle} {_n(to_x)} {_n(to_y)}")
        x, y = to_x, to_y
    goes_on = route.target.is_port or (route.target.parts and route.target.item.level is not None)
    tip = "" if goes_on else ' marker-end="url(#fe-tip)"'
    turned = ' stroke-dasharray="5 3"' if route.turned else ""
    wide = ' stroke-width="2.2"' if len(route.values) > 1 else ""
    told = "\n".join(_some(f"{name}: {text}" if text else name for name, text in route.values))
    return f'<path{turned}{wide}{tip} d="{"".join(steps)}">{_title(told)}</path>'


def _bends(points: tuple[tuple[float, float], ...]) -> list[str]:
    """The way of an edge that goes upwards, behind its start."""
    _, (x, low), (side, _), (_, high), (end, _), (_, y) = points
    below, above = _n(low + TURN), _n(high - TURN)
    return [
        f"V{_n(low)}C{_n(x)} {below} {_n(side)} {below} {_n(side)} {_n(low)}",
        f"V{_n(high)}C{_n(side)} {above} {_n(end)} {above} {_n(end)} {_n(high)}V{_n(y)}",
    ]


def _family(item: Item) -> str:
    if item.kind in ("input", "output"):
        return "end"
    if item.kind != "node" or item.subgraphs:
        return "module"
    name = short_name(item.type)
    family = _FAMILY_OF.get(name) or _FAMILY_OF.get(name.removesuffix("_"))
    if family is None and item.module:
        family = _CLASSES.get(re.sub("[0-9]d$", "", item.module[1]).lower(), "matrix")
    return family or "math"


def _add_box(box: Box, out: list[str]) -> None:
    item = box.item
    family = "open" if box.parts else _family(item)
    fill, line = _COLOURS[family][:2]
    out.append(f'<g transform="translate({_n(box.x)} {_n(box.y)})">{_title(_told(item))}')
    paint = f'class="fe-{family}" fill="{fill}" stroke="{line}"'
    height = box.height
    if item.count > 1 and not box.parts:  # a pile of sheets
        height -= PILE
        out += (
            f'<rect {paint} x="{_n(inset)}" y="{_n(inset)}" rx="6" width="{_n(box.width - 2 * inset)}" '
            f'height="{_n(height)}"/>'
            for inset in (PILE, PILE / 2)
        )
    shape = f'{paint} width="{_n(box.width)}" height="{_n(height)}"'
    radius = _n(box.height / 2) if family == "end" else "10" if box.parts else "6"
    dashes = ' stroke-dasharray="3 2"' if family == "check" else ""
    out.append(f'<rect rx="{radius}"{dashes} {shape}/>')
    if box.parts:
        for part in box.parts:
            _add_part(part, out)
        out.append(_band(box))
    else:
        out += _lines(box, family)
    out.append("</g>")


def _add_part(part: Part, out: list[str]) -> None:
    if part.title:
        out.append(
            f'<text class="fe-note" x="{_n(part.x)}" y="{_n(part.y - PAD)}" font-size="{SIZES["note"]}">'
            f"{_text(part.title)}</text>"
        )
    out.append(f'<g transform="translate({_n(part.x)} {_n(part.y)})">')
    _add_placed(part.placed, out)
    out.append("</g>")


def _band(box: Box) -> str:
    """The title of an open box, over the lines that come in there."""
    text = box.lines[0].text
    width = text_width(text, SIZES["name"], True) + 8
    return (
        f'<rect class="fe-module" fill="#f3effd" stroke="#a590db" x="8" y="5" rx="4" width="{_n(width + 6)}" '
        f'height="{_n(TITLE - 8)}"/><text class="fe-name" x="15" y="18" font-size="{SIZES["name"]}" font-weight="600">'
        f"{_text(text)}</text>"
    )


def _lines(box: Box, family: str) -> Iterator[str]:
    y = 6.0
    for line in box.lines:
        size = SIZES[line.style]
        y += 15 if line.style == "name" else 13
        name = f"fe-{line.style}" + (" fe-end-name" if family == "end" else "")
        colour = ' fill="#ffffff"' if family == "end" else f' fill="{_INK[line.style][1]}"'
        weight = ' font-weight="600"' if line.style == "name" else ""
        yield (
            f'<text class="{name}"{colour} x="{_n(box.width / 2)}" y="{_n(y - 3.5)}" font-size="{size}" '
            f'text-anchor="middle"{weight}>{_text(line.text)}</text>'
        )


# ---- tooltips


def _title(text: str) -> str:
    return f"<title>{_text(visible(text))}</title>"


def _some(lines: Iterable[str]) -> list[str]:
    """Lines of a tooltip, of many the first ones."""
    told = list(lines)
    more = len(told) - _MOST_LINES
    return told if more <= 0 else [*told[:_MOST_LINES], f"+{more} more"]


def _told(item: Item) -> str:
    """Everything there is to tell of an item, in lines."""
    lines = [item.name if item.kind != "block" else f"{item.name} ({item.count} alike, {row_text(item)})"]
    if item.type:
        lines.append(item.type)
    if item.text:
        lines.append(item.text)
    if item.module:
        lines.append(f"module {item.module[0]}: {item.module[1]}" if item.module[1] else f"module {item.module[0]}")
    lines += _some(item.fates)
    lines += _some(map(_result, item.results))
    if item.kind == "node":
        lines += _some(map(_weight, item.weights))
        lines += _call(item.node)
        lines += _source(item.node)
    return "\n".join(lines)


def _result(result: Result) -> str:
    from fastexport._views import text_of

    value = text_of(result.value)[:_LONGEST] if result.node is None else result.node.name
    return f"{result.text}: {value}"


def _weight(weight: Weight) -> str:
    told = f"{weight.kind} {weight.target} {weight.text}".rstrip()
    return f"{told}, becomes {weight.becomes}" if weight.becomes else told


def _call(node: Any) -> list[str]:
    """The call as graphs print it, with its arguments."""
    try:
        line = node.format_node()
    except Exception:  # of an argument of a user's, which may do anything
        return []
    return [line if len(line) <= _LONGEST else line[:_LONGEST] + "…"] if line else []


def _source(node: Any) -> list[str]:
    """The innermost place in the stack trace of a node."""
    from fastexport._findings import frames_of

    trace = node.stack_trace
    if not isinstance(trace, str):
        return []
    last = trace[max(trace.rfind('\n  File "'), 0) :]  # most of a trace is the way there
    frames = frames_of(last) or frames_of(trace)
    return [f"{frames[-1].file}:{frames[-1].line} in {frames[-1].function}"] if frames else []
