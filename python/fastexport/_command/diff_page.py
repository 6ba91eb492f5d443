"""The page of a diff: all of it, where the view in a notebook is cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastexport._diff_text import sections
from fastexport._html import escape, marked

if TYPE_CHECKING:
    from fastexport._diff import GraphDiff

_MARKS = {"-": "bad", "+": "good", "~": "changed"}
_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<body style="font-family:system-ui,sans-serif">
<h1 style="font-size:18px">{title}</h1>"""


def page(diff: GraphDiff, a: str, b: str, context: int) -> Iterator[str]:
    """The lines of the page.

    Args:
        diff: what it shows.
        a, b: the names of the two programs.
        context: how many unchanged nodes to show around a change.
    """
    yield _HEAD.format(title=f"{escape(a)} → {escape(b)}")
    yield f"<p>{escape(repr(diff))}</p>"
    for title, lines in sections(diff, context):
        yield f'<details open><summary style="font-weight:600">{escape(title)}</summary><pre style="overflow-x:auto">'
        yield from (_line(mark, text) for mark, text in lines)
        yield "</pre></details>"
    yield "</body>\n</html>"


def _line(mark: str, text: str) -> str:
    if mark == "@":
        return f'<span style="opacity:.65">{escape(text)}</span>'
    line = f"{mark} {text}".rstrip()
    return marked(line, _MARKS[mark]) if mark in _MARKS else escape(line)
