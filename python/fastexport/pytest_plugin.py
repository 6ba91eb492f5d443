"""A plugin of pytest for those who test programs and passes.

It offers the fixtures `assert_same_program` and `golden_graph`, and collects .pt2 files as tests with
``pytest --fastexport-check``. Whoever wants it asks for it, so that it costs other runs of pytest nothing:
``pytest -p fastexport.pytest_plugin``; the same in ``addopts`` of pytest's configuration file; or, in the outermost
conftest.py, ``pytest_plugins = ["fastexport.pytest_plugin"]``.

Options, and settings of pytest's configuration file:
    ``--fastexport-check``: check each .pt2 file that is found; errors fail.
    ``--fastexport-update``: write the files of `golden_graph` anew; look at the difference before it is committed.
    ``fastexport_ignore``: codes of findings, or beginnings of such, that don't count.
    ``fastexport_fail_on``: codes of warnings, or beginnings of such, that fail too: FX502 for pickles that run code.
    ``fastexport_golden``: the folder of golden files, beside the tests; "golden" by default.

Example::

    def test_my_pass(assert_same_program, golden_graph):
        program = my_pass(fastexport.load("model.pt2"))
        golden_graph("model", program)
        assert_same_program(program, "expected.pt2", ignore=["weights"])
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fastexport._findings import FileReport

__all__ = ["assert_same_program", "golden_graph"]

_PARTS = ("meta", "names", "ranges", "signature", "weights")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and settings."""
    group = parser.getgroup("fastexport")
    group.addoption("--fastexport-check", action="store_true", help="check .pt2 files: errors in them fail")
    group.addoption("--fastexport-update", action="store_true", help="write the files of golden_graph anew")
    parser.addini("fastexport_ignore", "codes of findings that don't count", type="args", default=[])
    parser.addini("fastexport_fail_on", "codes of warnings that fail too", type="args", default=[])
    parser.addini("fastexport_golden", "folder of the files of golden_graph, beside the tests", default="golden")


def pytest_configure(config: pytest.Config) -> None:
    """See that the codes of the settings are some."""
    if not config.getoption("--fastexport-check"):
        return
    from fastexport import _core

    for setting in ("fastexport_ignore", "fastexport_fail_on"):
        for prefix in _codes(config, setting):
            if not any(code.startswith(prefix) for code in _core.fault_kinds()):
                raise pytest.UsageError(f"{setting}: no code begins with {prefix!r}; `fastexport explain` lists them")


def _codes(config: pytest.Config, setting: str) -> tuple[str, ...]:
    return tuple(code.upper() for code in config.getini(setting))


# ---- files as tests --------------------------------------------------------------------------------------------------


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A .pt2 file is a test, where that was asked for."""
    if file_path.suffix == ".pt2" and parent.config.getoption("--fastexport-check"):
        return _File.from_parent(parent, path=file_path)
    return None


class _File(pytest.File):
    """A .pt2 file."""

    def collect(self) -> Iterator[_Check]:
        yield _Check.from_parent(self, name="fastexport")


class _Found(Exception):
    """There are errors in a file."""


class _Check(pytest.Item):
    """The check of a file."""

    def runtest(self) -> None:
        from fastexport._findings import check_file

        report = check_file(self.path)
        ignored, fail_on = _codes(self.config, "fastexport_ignore"), _codes(self.config, "fastexport_fail_on")
        failures = [
            finding
            for finding in report.findings
            if (finding.fault.is_error or finding.fault.code.startswith(fail_on))
            and not (report.opened and finding.fault.code.startswith(ignored))
        ]
        if failures:
            raise _Found(_described(report._replace(findings=failures)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, _Found):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name}: fastexport check"


def _described(report: FileReport) -> str:
    from fastexport._terminal import escape

    return escape("\n".join(str(finding.fault) for finding in report.findings))


# ---- fixtures --------------------------------------------------------------------------------------------------------


@pytest.fixture
def assert_same_program() -> Callable[..., None]:
    """A function that fails when two programs or graphs differ, and tells how.

    ``assert_same_program(a, b, *, ignore=())``: a and b are what `fastexport.diff` takes, or paths of .pt2 files;
    ``ignore`` names what may differ: "meta", "names" (which of whole programs stand in the signature too), "ranges",
    "signature", "weights".
    """
    return _assert_same


def _assert_same(a: Any, b: Any, *, ignore: Collection[str] = ()) -> None:
    __tracebackhide__ = True
    from fastexport._diff import diff

    unknown = [ignore] if isinstance(ignore, str) else sorted(set(ignore) - set(_PARTS))
    if unknown:
        raise ValueError(f"ignore takes a list of {', '.join(_PARTS)}, not {unknown[0]!r}")
    found = diff(_opened(a), _opened(b), names="names" not in ignore, meta=() if "meta" in ignore else ("val",))
    for part in {"ranges", "signature", "weights"}.intersection(ignore):
        setattr(found, part, [])
    if found:
        raise AssertionError(f"the programs differ\n{found.text(context=1)}")


def _opened(program: Any) -> Any:
    from fastexport._program import load

    return load(program) if isinstance(program, str | os.PathLike) else program


@pytest.fixture
def golden_graph(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """A function that compares the text of a graph or program with a file, and fails when they differ.

    ``golden_graph(name, graph)``: the file is ``golden/NAME.txt`` beside the test; ``--fastexport-update`` writes it.
    The graph is one of fastexport or torch.fx, a module that has one, a program, or the path of a .pt2 file.
    """
    folder = request.path.parent / str(request.config.getini("fastexport_golden"))

    def check(name: str, graph: Any) -> None:
        __tracebackhide__ = True
        if re.fullmatch(r"\w[\w.-]*", name) is None:
            raise ValueError(f"{name!r} can't be the name of a golden file: letters, digits, '_', '-' and '.'")
        path, text = folder / f"{name}.txt", _text_of(graph)
        if request.config.getoption("--fastexport-update"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        else:
            _compare(path, text)

    return check


def _text_of(given: Any) -> str:
    """The text of a graph, of ours or of torch.fx; of a program its signature too."""
    from fastexport._graph import Graph
    from fastexport._loaded import loaded

    program = _opened(given)
    graph, torchs = getattr(program, "graph", program), loaded("torch.fx")
    if not isinstance(graph, Graph if torchs is None else Graph | torchs.Graph):
        raise TypeError(
            "golden_graph takes a graph, a module or a program, of fastexport or torch, or the path of a .pt2 file, "
            f"not {type(given).__name__}"
        )
    parts = [str(graph).strip()]
    signature = getattr(program, "graph_signature", None)
    parts += [] if signature is None else [str(signature).strip()]
    return "\n\n".join(parts) + "\n"


def _compare(path: Path, text: str) -> None:
    __tracebackhide__ = True
    if not path.exists():
        raise AssertionError(f"there is no {path}; pytest --fastexport-update writes it")
    expected = path.read_text("utf-8")
    if text != expected:
        from difflib import unified_diff

        from fastexport._terminal import escape

        lines = unified_diff(expected.splitlines(), text.splitlines(), str(path), "now", n=2, lineterm="")
        raise AssertionError("\n".join(["the graph is another; --fastexport-update accepts it", *map(escape, lines)]))
