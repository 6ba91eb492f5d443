"""The code blocks of Markdown pages: found, run, and compared with what they show.

Blocks that are run share their names and a folder. `tests` in it is this folder, so that examples can open samples.
    pycon     a doctest;
    python    a piece of a script;
    console   commands after `$ `, and what they print;
    sh        only looked at: each `fastexport ...` must be a command line that is accepted.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SHOWN = {"c", "json", "text", "toml", "yaml"}  # neither run nor looked at

_FLAGS = doctest.ELLIPSIS
_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1$", re.M | re.S)


class Block(NamedTuple):
    """A fenced block: the line it begins at, what it says of itself, its text."""

    line: int
    language: str
    text: str


def blocks(text: str, before: int = 0) -> list[Block]:
    """The fenced blocks of a page, those in directives of MyST too.

    Args:
        text: of the page, or of a part.
        before: the lines before that part.
    """
    found = []
    for match in _FENCE.finditer(text):
        line = before + text.count("\n", 0, match.start()) + 1
        found += blocks(match[3], line) if match[2].startswith("{") else [Block(line, match[2], match[3])]
    return found


def prose(text: str) -> str:
    """A page without its blocks, but with what stands in directives."""
    return _FENCE.sub(lambda match: prose(match[3]) if match[2].startswith("{") else "", text)


def links(text: str) -> list[str]:
    """What a page links to by relative paths, without the places in them."""
    return re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", prose(text))


def run(page: Path, found: Iterable[Block], folder: Path) -> None:
    """Run the blocks of a page, in a folder that is the current one.

    Raises:
        AssertionError: a block does not give what it shows.
    """
    (folder / "tests").symlink_to(ROOT / "tests")
    names: dict[str, Any] = {"__name__": "page"}
    for block in found:
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
        elif block.language == "pycon":
            _run_doctest(page, block, names)
        elif block.language == "console":
            _run_commands(page, block, folder)
        elif block.language == "sh":
            _look_at_commands(page, block)
        else:
            assert block.language in SHOWN, f"{page}:{block.line}: what is a block of {block.language!r}?"


def _run_doctest(page: Path, block: Block, names: dict[str, Any]) -> None:
    example = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
    runner = doctest.DocTestRunner(optionflags=_FLAGS)
    runner.run(example, clear_globs=False)
    names |= example.globs
    assert runner.failures == 0, f"{page}:{block.line}: see the captured output"


def _run_commands(page: Path, block: Block, folder: Path) -> None:
    """Each command is run by a shell that knows fastexport, without colours; standard error is not shown."""
    tool = folder / "bin" / "fastexport"
    if not tool.exists():
        tool.parent.mkdir()
        tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fastexport "$@"\n')
        tool.chmod(0o755)
    settings = os.environ | {"PATH": f"{tool.parent}:{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "100"}
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        result = subprocess.run(["sh", "-c", command], env=settings, capture_output=True, text=True, check=False)
        got = re.sub(r" +$", "", result.stdout, flags=re.M)
        same = doctest.OutputChecker().check_output(shown, got, _FLAGS | doctest.NORMALIZE_WHITESPACE)
        assert same, f"{page}:{block.line}: {command}\ngave\n{got}\n{result.stderr}\nnot\n{shown}"


def _look_at_commands(page: Path, block: Block) -> None:
    from fastexport._command.verbs import parser

    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["fastexport"]:
            continue
        end = next((i for i, word in enumerate(words) if word in ("|", ">", "&&", ";")), len(words))
        try:
            parser(words[1:end]).parse_args(words[1:end])
        except SystemExit:
            raise AssertionError(f"{page}:{block.line}: this command line is not accepted: {line}") from None
