"""What the command says of itself, and how it fits a terminal: help, its examples, tables, widths."""

import re
import shutil
import subprocess
import sys

import pytest

from commands import run
from fastexport import _terminal
from fastexport._command.exits import EPILOG
from fastexport._command.verbs import VERBS
from fastexport._terminal import columns, width, write_table
from pt2_files import sample


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_examples_run(verb, tmp_path):
    """As they stand in the help, in a shell."""
    (tmp_path / "models").mkdir()
    for name in ("model.pt2", "before.pt2", "after.pt2", "models/a.pt2"):
        shutil.copy(sample("linear"), tmp_path / name)
    text = run(verb, "--help")[0]
    examples = re.findall(r"^  (fastexport .*)$", text.partition("\nExamples:\n")[2], re.MULTILINE)
    assert examples and all(line.startswith(f"fastexport {verb} ") for line in examples)
    if "safetensors" in text:
        pytest.importorskip("safetensors")
    for line in examples:
        command = f'set -o pipefail; fastexport() {{ {sys.executable} -m fastexport "$@"; }}; {line}'
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (line, done)


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_help_is_whole(verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    text = run(verb, "--help")[0]
    assert EPILOG in text
    options = re.split(r"^  (?=-)", text.partition("\noptions:\n")[2].partition("\n\n")[0], flags=re.MULTILINE)
    assert len(options) > 2
    for option in options[1:]:
        assert re.match(r"-\S.*?\s{2,}\S", option, re.DOTALL), f"nothing is told of {option!r}"


def test_the_help_of_opt_tells_what_passes_do():
    from fastexport._passes import names_of_passes

    text = " ".join(run("opt", "--help")[0].partition("\nPasses:\n")[2].split())
    for name in names_of_passes(alone=True):
        assert f"{name}: " in text
    assert "eliminate_dead_code: Remove every node that has neither users nor an effect." in text


def test_a_pass_that_needs_more_than_the_file(tmp_path):
    pytest.importorskip("torch")
    path = sample("custom_op")
    command = [sys.executable, "-m", "fastexport", "opt", path, "-o", tmp_path / "m.pt2", "--passes"]
    # In a process of its own: here another test may have registered the operator.
    done = subprocess.run([*command, "refresh_fake_tensors"], capture_output=True, text=True)
    error = done.stderr
    assert done.returncode == 2 and error.startswith(f"fastexport: {path}: node 'twice': torch ")
    assert "Python's fastexport.run_passes() takes more" in error
    assert not (tmp_path / "m.pt2").exists()


@pytest.mark.parametrize("value", ["", "0", "-5", "x", "1", "40", "9" * 5000])
def test_widths_of_terminals(value, monkeypatch):
    monkeypatch.setenv("COLUMNS", value)
    assert columns() == (int(value[:6]) if value.isdecimal() and int(value[:6]) else 80)
    text = run("check", "--help")[0]
    if value in ("", "0", "-5", "x"):
        assert max(map(len, text.splitlines())) <= 80


def test_a_terminal_that_does_not_know_its_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(_terminal.os, "get_terminal_size", lambda descriptor: _terminal.os.terminal_size((0, 0)))
    assert columns() == 80


def test_columns_of_characters(capsys):
    assert [width(text) for text in ("", "ab", "層", "ｆ", "e\u0301", "é", "🙂")] == [0, 2, 2, 2, 1, 1, 2]
    write_table([("層", "1"), ("ab", "22"), ("e\u0301", "333")], right=[1])
    assert capsys.readouterr().out.splitlines() == ["層    1", "ab   22", "e\u0301   333"]


def test_a_row_is_a_line(capsys):
    write_table([("a\nb\tc", "x"), ("d", "\x1b[2J")])
    assert capsys.readouterr().out.splitlines() == ["a\\nb\\tc  x", "d        \\x1b[2J"]


def test_a_long_cell_does_not_widen_all_rows(capsys):
    write_table([("x" * 100_000, "1"), *[("y", "2")] * 1000])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "x" * 100_000 + "  1" and set(lines[1:]) == {f"{'y':<100}  2"}


def test_a_bar_fits_its_terminal(monkeypatch):
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    for wanted in (20, 60, 80, 200):
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("COLUMNS", str(wanted))
        bar = _terminal.Progress("層" * 50 + "/model.pt2", 4)
        bar._start -= 5  # as if it had taken so long
        bar.add(2)
        shown = stream.getvalue().removeprefix("\r")
        assert "  50%" in shown and width(shown) < max(wanted, 49)
        assert ("model.pt2 [" in shown) is (wanted > 20)
