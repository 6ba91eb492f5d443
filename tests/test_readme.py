"""The code blocks of the README run, and give what they show.

Within a section (a heading of the second level) they run in order and share their names. A `pycon`
block is a doctest, a `python` block a piece of a script.
"""

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"

OPTIONS = doctest.ELLIPSIS


def sections() -> list[Any]:
    """The title of each section, with its blocks: line, language and text."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    text = README.read_text()
    heading = "fastexport"
    for match in re.finditer(r"^## ([^\n]+)$|^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        if match[1]:
            heading = match[1]
        else:
            line = text.count("\n", 0, match.start()) + 1
            found.setdefault(heading, []).append((line, match[2], match[3]))
    return [
        pytest.param(blocks, id=title)
        for title, blocks in found.items()
        if any(language != "sh" for _, language, _ in blocks)
    ]


@pytest.mark.parametrize("blocks", sections())
def test_blocks(blocks: list[tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    names: dict[str, Any] = {"__name__": "readme"}
    for line, language, text in blocks:
        if language == "python":
            exec(compile("\n" * line + text, str(README), "exec"), names)
        elif language == "pycon":
            example = doctest.DocTestParser().get_doctest(text, names, "README", str(README), line)
            runner = doctest.DocTestRunner(optionflags=OPTIONS)
            runner.run(example, clear_globs=False)
            names |= example.globs
            assert runner.failures == 0, f"the block at line {line}: see the captured output"


def test_every_block_says_what_it_is() -> None:
    languages = re.findall(r"^```(\w*)\n.*?^```$", README.read_text(), re.M | re.S)
    assert set(languages) <= {"python", "pycon", "sh"}
