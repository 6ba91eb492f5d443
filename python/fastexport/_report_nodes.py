r"""What the report page tells of each node: columns of a table, which hold places in the table of texts.

References in arguments are written ``\x02N\x02``, N places back, so that layers which look the same share their texts.
Meta that waits in a file goes on waiting: what the file says of many nodes is understood once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastexport import _core
from fastexport._diff import _describe
from fastexport._graph import Graph
from fastexport._node_facts import _VALUES, argument_names, first_value
from fastexport._placing import visible
from fastexport._views import _target, text_of, value_text

_MOST_TEXT = 2000  # characters of an argument or of meta
_MOST_ITEMS = 200  # of a list that is not of nodes alone
_MOST_NESTED = 50  # lists in each other, of an argument
_MOST_NAME = 50_000  # characters of a name or path, which can be searched for
_TRACE, _STACK = "stack_trace", "nn_module_stack"
_SHOWN_META = (*_VALUES, _TRACE, _STACK)  # by columns of their own
_INPUT = 1  # pt2_source of program.h
REF, ARG, NAME = "\x02", "\x1f", "\x1e"  # round a reference, between arguments, behind the name of one


class Texts(dict[str, int]):
    """Texts with their places in the table, and the stack traces."""

    def __init__(self) -> None:
        self.traces: list[list[int]] = []  # file, line, function and code of each frame
        self._traces: dict[str, int] = {}
        self._outside: dict[str, int] = {}
        self("")

    def __call__(self, text: str) -> int:
        """The place of a text."""
        return self.setdefault(text, len(self))

    def outside(self, text: str) -> int:
        """The place of a text that a file or user gave."""
        place = self._outside.get(text)
        if place is None:
            place = self._outside[text] = self(_shown(text, _MOST_TEXT))
        return place

    def name(self, text: str) -> int:
        """The place of a name that a file or user gave."""
        return self.outside(text) if len(text) <= _MOST_TEXT else self(_shown(text, _MOST_NAME))

    def trace(self, text: Any) -> int:
        """The place of a stack trace; -1: there is none."""
        if not isinstance(text, str):
            return -1
        place = self._traces.get(text)
        if place is None:
            from fastexport._findings import frames_of

            place = self._traces[text] = len(self.traces)
            frames = [
                (self.outside(f.file), f.line, self.outside(f.function), self.outside(f.code)) for f in frames_of(text)
            ]
            self.traces.append([number for frame in frames for number in frame])
        return place


class Steps:
    """Numbers one after the other as how much greater each is than the one before, which compresses far better.

    >>> list(map(Steps(), [5, 6, 7, 3]))
    [5, 1, 1, -4]
    """

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, number: int) -> int:
        """The step to a number."""
        step, self._last = number - self._last, number
        return step


class NodeTable:
    """The nodes of a program, in the order of its graphs.

    Attributes:
        columns: by the name of a fact, for each node the place of its text; of a trace the place in `Texts.traces`.
    """

    def __init__(self, texts: Texts) -> None:
        names = ("name", "op", "target", "args", "value", "trace", "stack", "meta")
        self.columns: dict[str, list[int]] = {name: [] for name in names}
        self._texts = texts
        self._targets: dict[int, tuple[int, list[str], Any]] = {}  # by identity, which they keep while they are here
        self._values: dict[str, int] = {}  # by what the file says
        self._stacks: dict[str, int] = {}

    def add(self, graph: Graph, nodes: Sequence[Any], start: int) -> None:
        """Add the nodes of a graph, the first of which gets the place `start`."""
        places = {node: place for place, node in enumerate(nodes, start)}
        file_places, entries, _ = graph._file_meta() or ([0] * len(nodes), [], False)
        columns = self.columns.values()
        for (node, place), at in zip(places.items(), file_places, strict=True):
            target, names = self._target(node)
            row = (
                self._texts.name(node.name),
                self._texts(node.op),
                target,
                self._texts(_arguments(node, names, place, places)),
                *((at > 0 and self._told_by_file(*entries[at])) or self._told_by_meta(node)),
            )
            for column, text in zip(columns, row, strict=True):
                column.append(text)

    def _target(self, node: Any) -> tuple[int, list[str]]:
        target = node.target
        known = self._targets.get(id(target))
        if known is None:
            known = self._targets[id(target)] = self._texts.name(_target(node)), argument_names(target), target
        return known[:2]

    def _told_by_meta(self, node: Any) -> tuple[int, int, int, int]:
        """Value, trace, stack and the other meta of a node."""
        meta, texts = node.meta, self._texts
        value = texts.outside(_value(first_value(node)))
        return value, texts.trace(meta.get(_TRACE)), texts(_stack(meta)), texts(_meta(meta))

    def _told_by_file(
        self, source: int, strings: Mapping[str, str] | None, value: tuple[int, Any] | None, results: Any
    ) -> tuple[int, int, int, int] | None:
        """The same from an entry of `Graph._file_meta`; None: the meta has to be looked at."""
        from fastexport._meta_json import decode_metadata

        if isinstance(results, list) or (source == _INPUT and value is None):
            return None
        strings = strings or {}
        others = {key: text for key, text in strings.items() if key not in _SHOWN_META}
        return (
            self._file_value(value),
            self._texts.trace(strings.get(_TRACE)),
            self._file_stack(strings.get(_STACK, "")),
            self._texts(_meta(decode_metadata(others))),
        )

    def _file_value(self, value: tuple[int, Any] | None) -> int:
        from fastexport._meta_json import decode_value

        said = repr(value)
        if said not in self._values:
            self._values[said] = self._texts.outside("" if value is None else _value(decode_value(*value)))
        return self._values[said]

    def _file_stack(self, said: str) -> int:
        from fastexport._meta_json import decode_metadata

        if said not in self._stacks:
            self._stacks[said] = self._texts(_stack(decode_metadata({_STACK: said})))
        return self._stacks[said]


# ---- texts -----------------------------------------------------------------------------------------------------------


def _value(value: Any) -> str:
    """All facts of the value of a node, behind the short form of them, which is a line of its own."""
    if value is None:
        return ""
    try:
        short, long = value_text(value), _describe(value) or ""
    except Exception:  # an object of a user's
        return f"<{type(value).__name__}>"
    long = long.removeprefix(short).removeprefix(", ") if short else long
    return f"{short}\n{long}" if long else short


def _arguments(node: Any, names: list[str], place: int, places: dict[Any, int]) -> str:
    pairs = [(names[i] if i < len(names) else str(i), value) for i, value in enumerate(node.args)]
    pairs += [(str(key), value) for key, value in node.kwargs.items()]
    return ARG.join(f"{_shown(name, 200)}{NAME}{_argument(value, place, places)}" for name, value in pairs)


def _argument(value: Any, place: int, places: dict[Any, int], depth: int = 0) -> str:
    def text(inner: Any) -> str:
        return _argument(inner, place, places, depth + 1)

    if isinstance(value, _core.Node):
        return f"{REF}{place - places[value]}{REF}" if value in places else _shown(value.name, 200)
    if depth == _MOST_NESTED:
        return _quoted(value)
    if isinstance(value, tuple | list) and (len(value) <= _MOST_ITEMS or all(map(_is_node, value))):
        inner = ", ".join(map(text, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict) and len(value) <= _MOST_ITEMS:
        return "{" + ", ".join(f"{_quoted(key)}: {text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({', '.join(map(text, (value.start, value.stop, value.step)))})"
    return _quoted(value)


def _is_node(value: Any) -> bool:
    return isinstance(value, _core.Node)


def _quoted(value: Any) -> str:
    try:
        return _shown(repr(value) if isinstance(value, str) else str(value), _MOST_TEXT)
    except Exception:  # an object of a user's
        return f"<{type(value).__name__}>"


def _stack(meta: Mapping[Any, Any]) -> str:
    from fastexport._tree import _modules_in

    return ARG.join(f"{_shown(path, 400)}{NAME}{_shown(kind, 400)}" for path, kind in _modules_in(meta.get(_STACK)))


def _meta(meta: Any) -> str:
    pairs = [(text_of(key), value) for key, value in meta.items() if key not in _SHOWN_META]
    return ARG.join(f"{_shown(key, 200)}{NAME}{_shown(text_of(value), 500)}" for key, value in pairs)


def _shown(text: str, most: int) -> str:
    return visible(text) if len(text) <= most else f"{visible(text[:most])}… +{len(text) - most:,} characters"
