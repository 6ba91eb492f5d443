"""An extension that was built from other sources than those beside the package is refused."""

import os
import types
from pathlib import Path

import pytest

import fastexport
from fastexport import _build


@pytest.fixture
def checkout(tmp_path):
    """A repository of one C file a folder, and an extension that was built from them."""
    for folder in ("core", "pt2", "py"):
        (tmp_path / "csrc" / folder).mkdir(parents=True)
        (tmp_path / "csrc" / folder / "a.c").write_text("int a;\n")
    built = tmp_path / "_core.so"
    built.write_text("")
    core = types.SimpleNamespace(__file__=str(built), build=_build.sources_hash(str(tmp_path)))
    make_newer(built)
    return tmp_path, core


def make_newer(path):
    later = max(os.stat(each).st_mtime_ns for each in path.parent.rglob("*")) + 10**9
    os.utime(path, ns=(later, later))


def change(path, text):
    path.write_text(text)
    make_newer(path)


def test_an_extension_of_these_sources(checkout):
    root, core = checkout
    _build.check(core, str(root))
    change(root / "csrc/py/a.c", "int a;\n")  # newer, but the same
    _build.check(core, str(root))
    change(root / "csrc/py/notes.txt", "no source")
    _build.check(core, str(root))


@pytest.mark.parametrize(("path", "text"), [("core/a.c", "int b;\n"), ("pt2/new.h", "\n"), ("py/table.inc", "1,\n")])
def test_an_extension_of_other_sources(checkout, path, text):
    root, core = checkout
    change(root / "csrc" / path, text)
    with pytest.raises(ImportError, match=r"_core.so was built from other sources .*; build it with `python setup.py"):
        _build.check(core, str(root))
    core.build = _build.sources_hash(str(root))
    _build.check(core, str(root))


def test_a_text_that_moves_to_another_file_is_a_change(checkout):
    root, core = checkout
    (root / "csrc/core/a.c").write_text("")
    change(root / "csrc/core/b.c", "int a;\n")
    with pytest.raises(ImportError):
        _build.check(core, str(root))


def test_an_installed_extension_has_no_sources(checkout, tmp_path):
    root, core = checkout
    core.build = "of long ago"
    _build.check(core, str(tmp_path / "elsewhere"))
    core.__file__ = str(root / "gone.so")
    _build.check(core, str(root))


def test_an_extension_that_does_not_load():
    error = _build.explain(AttributeError("no name"))
    assert type(error) is ImportError and "can't be loaded (no name); build it with" in str(error)


def test_this_extension():
    root = Path(__file__).parents[1]
    assert fastexport._core.build in ("", _build.sources_hash(str(root)))  # "": not built by setup.py
    assert any(path.endswith("core/lint.c") for path in _build.sources(str(root)))
