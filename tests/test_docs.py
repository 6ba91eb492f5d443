"""The documentation: the examples of its pages run, its reference is complete, its links and markup are right."""

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fastexport
import pages
from fastexport._codes import EXPLANATIONS

DOCS = pages.ROOT / "docs"


def guides() -> list[Any]:
    """The pages that are written by hand."""
    found = sorted(path for path in DOCS.rglob("*.md") if "generated" not in path.parts)
    return [pytest.param(path, id=str(path.relative_to(DOCS))) for path in found]


@pytest.mark.parametrize("page", guides())
def test_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages.run(page, pages.blocks(page.read_text()), tmp_path)


def test_blocks_in_directives_are_found() -> None:
    text = "# Page\n\n````{grid}\n[a](b.md)\n\n```pycon\n>>> 1\n1\n```\n````\n\n```text\n[no](link.md)\n```\n"
    assert pages.blocks(text) == [(6, "pycon", ">>> 1\n1\n"), (12, "text", "[no](link.md)\n")]
    assert pages.links(text) == ["b.md"]


def test_what_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [
        "```pycon\n>>> 1 + 1\n3\n```",
        "```sh\nfastexport show --nope x\n```",
        "```console\n$ fastexport explain FX302\nno\n```",
    ]
    for i, text in enumerate([*wrong, "```python\nassert False\n```", "```klingon\n```"]):
        folder = tmp_path / str(i)
        folder.mkdir()
        monkeypatch.chdir(folder)
        with pytest.raises(AssertionError):
            pages.run(Path("page.md"), pages.blocks(text + "\n"), folder)


# ---- what pages are made of ----


@pytest.fixture(scope="module")
def extensions() -> Any:
    """The modules that make pages when Sphinx asks for them."""
    pytest.importorskip("sphinx")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "extensions"))
        yield importlib.import_module("generated_pages")


def test_every_public_name_is_in_the_reference(extensions: ModuleType) -> None:
    public_names = extensions.public_names
    assert public_names.ungrouped() == []
    text = "\n".join(public_names.pages().values())
    modules = public_names.MODULES
    missing = [
        name
        for name in fastexport.__all__
        if f":: fastexport.{name}\n" not in text and f"fastexport.{name}" not in modules
    ]
    assert missing == []


def test_a_name_without_a_group_is_told(extensions: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastexport, "__all__", [*fastexport.__all__, "new_name"])
    with pytest.raises(Exception, match=r"put these into a group.*'new_name'"):
        extensions.public_names.pages()


def test_every_code_has_a_page(extensions: ModuleType) -> None:
    made = extensions.codes()
    assert set(made) == {"index.md", *(f"{code}.md" for code in EXPLANATIONS)}
    for code, page in EXPLANATIONS.items():
        assert all(part in made[f"{code}.md"] for part in (code, *page))
        assert f"[{code}]({code}.md)" in made["index.md"], "it is in no class of codes"


def test_the_report_shows_what_a_pass_did(extensions: ModuleType) -> None:
    text = extensions.report()
    assert text.startswith("<!doctype html>") and "after remove_noops" in text and str(pages.ROOT) not in text


def test_every_verb_is_told_of_with_its_schemas(extensions: ModuleType) -> None:
    text = extensions.command()["index.md"]
    verbs = re.findall(r"^## (\w+)$", text, re.M)
    assert verbs == [verb.name for verb in extensions.VERBS]
    assert all(f"usage: fastexport {verb}" in text for verb in verbs)
    schemas = sorted(path.stem for path in extensions.SCHEMAS.glob("*.json"))
    assert sorted(re.findall(r"\{dropdown\} Schema (\S+)", text)) == schemas


def test_every_measured_row_is_shown(extensions: ModuleType) -> None:
    made = extensions.benchmarks()
    for name in extensions.REPORTS:
        judged = [line for line in made[name].splitlines() if line.rstrip(" |").endswith(("| yes", "| NO"))]
        assert judged and len(extensions.table_rows(made[name])) == len(judged)
    assert {path.name for path in (pages.ROOT / "benchmarks").glob("*.md")} == set(extensions.REPORTS)


def test_versions_are_those_of_torch(extensions: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    schema = importlib.import_module("torch._export.serde.schema")
    text = extensions.compatibility()
    assert f"| {torch.__version__.partition('+')[0]} |" in text
    assert schema.SCHEMA_VERSION[0] == 8 and f"8.0 to 8.{schema.SCHEMA_VERSION[1]} |" in text
    with pytest.raises(ValueError, match="does not say"):
        extensions.source_fact("pyproject.toml", r"^no such line (\d)")


# ---- links ----


@pytest.mark.parametrize("page", guides())
def test_links(page: Path) -> None:
    """To other pages, pictures and notebooks; those to pages that are made lead into docs/generated."""
    for link in pages.links(page.read_text()):
        target = (page.parent / link).resolve()
        assert "generated" in target.parts or target.is_file(), f"{page.name} leads to {link}"


# ---- what a new user sees ----


def test_the_picture_of_the_readme_is_ours_and_tells_no_paths() -> None:
    for name in ("model.svg", "layers.svg"):
        text = (DOCS / "images" / name).read_text()
        assert text.startswith("<svg") and "prefers-color-scheme:dark" in text
        assert not re.search(r"/(home|root|tmp|usr)/|\.py:", text)


def test_run_knows_what_the_pages_tell_of() -> None:
    usage = (pages.ROOT / "run").read_text()
    known = set(re.findall(r"^\./run (\w+)", usage, re.M))
    for page in (pages.ROOT / "README.md", pages.ROOT / "CONTRIBUTING.md"):
        assert set(re.findall(r"\./run (\w+)", page.read_text())) <= known


def test_versions_agree() -> None:
    citation = (pages.ROOT / "CITATION.cff").read_text()
    assert f"version: {fastexport.__version__}\n" in citation
