"""The code blocks of the README run, and give what they show.

Within a section (a heading of the second level) they run in order and share their names.
"""

import re
from pathlib import Path
from typing import Any

import pytest

import pages

README = pages.ROOT / "README.md"


def sections() -> list[Any]:
    """The title of each section that has blocks, with its text and the number of lines before it."""
    text = README.read_text()
    starts = [0, *(match.start() for match in re.finditer(r"^## ", text, re.M)), len(text)]
    found = []
    for start, end in zip(starts, starts[1:], strict=False):
        before = text.count("\n", 0, start)
        if blocks := pages.blocks(text[start:end], before):
            found.append(pytest.param(blocks, id=text[start:end].splitlines()[0].strip("# ")))
    return found


@pytest.mark.parametrize("blocks", sections())
def test_blocks(blocks: list[pages.Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    pages.run(README, blocks, tmp_path)


def test_it_stays_short() -> None:
    text = re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", "", README.read_text(), flags=re.S)
    assert len(text.splitlines()) < 290, "depth belongs into docs/guides"


def test_its_links_lead_somewhere() -> None:
    links = pages.links(README.read_text())
    assert links and [link for link in links if not (pages.ROOT / link).exists()] == []
