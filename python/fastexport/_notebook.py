"""What notebooks are given to show: text and HTML, the report page in a frame, and the options that say how much."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextvars import ContextVar, Token
from threading import Lock
from typing import Any, NamedTuple

_MOST_TEXT = 20_000  # characters of the text that goes beside the HTML
_ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")  # which makes every run of a notebook differ


class Options(NamedTuple):
    """See `set_options`."""

    display_html: bool = True
    display_depth: int = 1
    display_max_nodes: int = 60


_everywhere = Options()
_lock = Lock()  # of _everywhere, which is read whole and so needs none
_here: ContextVar[Options | None] = ContextVar("fastexport_options", default=None)


def options() -> Options:
    """The options in force."""
    return _here.get() or _everywhere


class set_options:
    """Say how objects are shown in notebooks: from now on, or for the length of a ``with`` block.

    A plain call counts everywhere. In a ``with`` block the options are those of the thread, or the task, that runs it.

    Args:
        display_html: whether there is HTML beside the text.
        display_depth: how many levels of the tree of modules are opened.
        display_max_nodes: how many rows of nodes, weights and the like are listed; those left out are counted.

    Raises:
        TypeError: an option is of another type.
        ValueError: a number is negative.

    >>> from fastexport._notebook import options
    >>> with set_options(display_depth=3, display_html=False):
    ...     options()
    Options(display_html=False, display_depth=3, display_max_nodes=60)
    >>> options().display_depth
    1
    """

    def __init__(
        self,
        *,
        display_html: bool | None = None,
        display_depth: int | None = None,
        display_max_nodes: int | None = None,
    ) -> None:
        global _everywhere
        given = {"display_depth": display_depth, "display_max_nodes": display_max_nodes}
        if display_html is not None and type(display_html) is not bool:
            raise TypeError(f"display_html is True or False, not {display_html!r}")
        for name, value in given.items():
            if value is not None and type(value) is not int:
                raise TypeError(f"{name} is an int, not {value!r}")
            if value is not None and value < 0:
                raise ValueError(f"{name} is a number from 0 on, not {value}")
        changes = {"display_html": display_html, **given}
        self._changes: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        self._tokens: list[Token[Options | None]] = []
        with _lock:
            self._before: dict[str, Any] = {name: getattr(_everywhere, name) for name in self._changes}
            _everywhere = _everywhere._replace(**self._changes)

    def __enter__(self) -> set_options:
        global _everywhere
        if not self._tokens:  # what the call did everywhere is for the block alone
            with _lock:
                _everywhere = _everywhere._replace(**self._before)
        self._tokens.append(_here.set(options()._replace(**self._changes)))
        return self

    def __exit__(self, *_: object) -> None:
        _here.reset(self._tokens.pop())

    def __repr__(self) -> str:
        return f"set_options({', '.join(f'{name}={value}' for name, value in self._changes.items())})"


def mimebundle(
    obj: Any, include: Collection[str] | None = None, exclude: Collection[str] | None = None
) -> dict[str, str]:
    """What ``_repr_mimebundle_`` gives for an object: its text, and HTML unless that is not wanted.

    Args:
        include, exclude: types that are wanted, or not; None: all, or none.
    """
    wanted = {"text/plain", "text/html"} if include is None else set(include)
    wanted.difference_update(exclude or ())
    bundle = {}
    if "text/plain" in wanted:
        bundle["text/plain"] = cut(_ADDRESS.sub("", repr(obj)), _MOST_TEXT)
    if "text/html" in wanted and options().display_html:
        from fastexport import _views

        bundle["text/html"] = _views.html_of(obj)
    return bundle


def cut(text: str, most: int) -> str:
    """A text of that many characters at most, with a word on what is missing.

    >>> cut("abcdef", 6), cut("abcdefg", 3)
    ('abcdef', 'abc... +4 more characters')
    """
    return text if len(text) <= most else f"{text[:most]}... +{len(text) - most} more characters"


_LENGTH = re.compile(r"\d{1,5}(\.\d{1,3})?(px|%|em|rem|vh|vw)")


class View:
    """The report page of a program or graph, shown by a notebook in a frame of its own.

    The page is in the notebook itself, so that it is there when that is opened again, or exported. It is made when it
    is first shown, and can do nothing outside its frame but give its picture to save.

    Args:
        shown: the program or graph.
        height, width: of the frame: pixels, or a length of CSS such as ``"80vh"``.

    Raises:
        ValueError: a length is none.
    """

    def __init__(self, shown: Any, height: int | str = 600, width: int | str = "100%") -> None:
        self._shown = shown
        self._style = f"width:{_length(width)};height:{_length(height)};border:1px solid rgba(128,128,128,.35)"
        self._page: str | None = None

    def html(self) -> str:
        """The page alone."""
        if self._page is None:
            from fastexport import _report

            self._page = _report.report_html(self._shown)
        return self._page

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        from html import escape

        bundle = {"text/plain": repr(self)}
        if options().display_html:
            rights = "allow-scripts allow-downloads"  # the picture can be saved; the notebook can't be reached
            bundle["text/html"] = (
                f'<iframe sandbox="{rights}" style="{self._style}" srcdoc="{escape(self.html())}"></iframe>'
            )
        return bundle

    def __repr__(self) -> str:
        return f"<view of {cut(repr(self._shown), 1000)}>"


def _length(value: int | str) -> str:
    if type(value) is int and 0 < value < 100_000:
        return f"{value}px"
    if isinstance(value, str) and _LENGTH.fullmatch(value):
        return value
    raise ValueError(f"a height or width is a number of pixels, or a length such as '80vh', not {value!r}")
