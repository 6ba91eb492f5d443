"""What the command writes and where: never in the place of a program, whole or not at all, to files and to streams."""

import errno
import os
import resource
import shutil
import subprocess
import sys

import pytest

import fastexport
from commands import process, run
from fastexport._new_file import replacing, write_file
from fastexport._passes import names_of_passes
from pt2_files import sample

LINEAR = sample("linear")


def writers(path, out):
    """Command lines that read a program and write something else."""
    return (
        ("draw", path, "-o", out, "--format", "svg"),
        ("report", path, "-o", out),
        ("report", LINEAR, path, "-o", out),
        ("weights", path, "--safetensors", out),
        ("check", LINEAR, path, "--output-file", out),
        ("diff", LINEAR, path, "--output-file", out),
        ("stats", path, "--output-file", out),
    )


@pytest.mark.parametrize("name", ["model.bin", "link", "twin", "other.pt2", "bare"])
def test_no_program_is_lost_for_something_else(name, tmp_path):
    """An input, under whatever name, and any program, with or without its ending."""
    model = tmp_path / "model.bin"
    for path in (model, tmp_path / "other.pt2", tmp_path / "bare"):
        shutil.copy(LINEAR, path)
    (tmp_path / "link").symlink_to(model)
    os.link(model, tmp_path / "twin")
    before = sorted(os.listdir(tmp_path))
    for line in writers(model, tmp_path / name):
        error = run(*line, code=2)[1]
        assert "which is not overwritten" in error and error.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == before
    assert all((tmp_path / each).read_bytes() == LINEAR.read_bytes() for each in before)


def test_an_input_that_is_no_program_is_kept_too(tmp_path):
    path = tmp_path / "damaged.bin"
    path.write_bytes(LINEAR.read_bytes()[:300])
    assert "is an input" in run("check", path, "--output-file", path, code=2)[1]
    assert path.stat().st_size == 300
    pattern = str(tmp_path / "*.bin")
    assert "is an input" in run("check", LINEAR, pattern, "--output-file", path, code=2)[1]
    assert path.stat().st_size == 300
    (tmp_path / "empty.pt2").touch()
    assert "is a .pt2 file" in run("draw", LINEAR, "-o", tmp_path / "empty.pt2", "--format", "svg", code=2)[1]


def test_opt_may_write_onto_what_it_reads(tmp_path):
    path = tmp_path / "m.pt2"
    ep = fastexport.load(LINEAR)
    relu = ep.graph.node("relu")
    with ep.graph.inserting_before(relu):
        ep.graph.node_copy(relu, lambda node: node).name = "dead"
    ep.save(path)
    run("opt", path, "-o", path, "--passes", "eliminate_dead_code")
    assert len(fastexport.load(path).graph.nodes) == 6
    before = path.read_bytes()
    assert "not overwritten" in run("opt", path, "-o", path, "--passes", "lint", "--output-file", path, code=2)[1]
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.pt2"]


@pytest.mark.parametrize("make", [fastexport.draw, fastexport.report])
def test_functions_keep_programs(make, tmp_path):
    path = tmp_path / "m.pt2"
    shutil.copy(LINEAR, path)
    options = {"format": "svg"} if make is fastexport.draw else {}
    with pytest.raises(FileExistsError, match="not overwritten"):
        make(LINEAR, path=path, **options)
    assert path.read_bytes() == LINEAR.read_bytes()


def test_errors_name_what_was_asked_for(tmp_path):
    (tmp_path / "folder.svg").mkdir()
    for line in writers(LINEAR, "none/x.svg"):
        error = run(*line, code=2)[1]
        assert "none/x.svg" in error and "fastexport-" not in error and "No such file" in error
    for line in writers(LINEAR, tmp_path / "folder.svg"):
        assert f"{tmp_path / 'folder.svg'}: this is a folder, not a file" in run(*line, code=2)[1]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_step_that_fails_leaves_nothing(step, tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("old")

    def fail(name, *args):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="full") as caught:
        write_file(path, b"new")
    assert caught.value.filename == str(path) and os.listdir(tmp_path) == ["x.txt"] and path.read_text() == "old"


@pytest.mark.parametrize("end", ["-o", "--safetensors"])
def test_a_disk_that_is_full(end, tmp_path):
    """Files of this process may not grow beyond some bytes, as when a quota is used up."""
    out, model = tmp_path / "out.svg", tmp_path / "big.pt2"
    ep = fastexport.load(LINEAR)
    ep.add_constant("much", memoryview(bytes(100_000)).cast("f"))
    ep.save(model)
    line = ["draw", str(LINEAR), end, str(out)] if end == "-o" else ["weights", str(model), end, str(out)]
    if end == "--safetensors":
        pytest.importorskip("safetensors")
    done = subprocess.run(
        [sys.executable, "-m", "fastexport", *line],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert (done.returncode, done.stderr) == (2, f"fastexport: {out}: File too large\n")
    assert os.listdir(tmp_path) == ["big.pt2"]


def test_streams(tmp_path):
    """Stdout by its two names, whether it is a pipe or a file."""
    for line in (("draw", LINEAR), ("report", LINEAR)):
        text = process(*line, "-o", "-", cwd=tmp_path)[0]
        assert text.startswith(("<svg", "<!doctype html>")) and text.rstrip().endswith(("</svg>", "</html>"))
        for target in ("", f" > {tmp_path / 'out'}"):
            command = f"{sys.executable} -m fastexport {' '.join(map(str, line))} -o /dev/stdout{target}"
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            found = (tmp_path / "out").read_text("utf-8") if target else done.stdout
            assert line[0] == "draw" or found == text, "scripts of a page are named in it by their hashes"
            assert found.startswith(text[:200]) and found.rstrip().endswith(text.rstrip()[-50:])
    assert run("draw", LINEAR, "-o", "-", "--format", "dot")[0].startswith("digraph")
    assert run("stats", LINEAR, "--output-file", "-") == run("stats", LINEAR)
    assert os.listdir(tmp_path) == ["out"]


def test_a_device_is_written_to_and_stays(tmp_path):
    pytest.importorskip("safetensors")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    run("weights", LINEAR, "--safetensors", pipe)
    assert b"fc.weight" in reader.communicate(timeout=20)[0]
    assert os.listdir(tmp_path) == ["pipe"] and pipe.is_fifo()


def test_a_body_that_is_interrupted_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "x"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


# ---- usage


def test_endings_that_no_picture_of_ours_has(tmp_path):
    for name in ("x.png", "x.PDF", "x.html", "x.pt2"):
        error = run("draw", LINEAR, "-o", tmp_path / name, code=2)[1]
        assert ".svg or as .dot" in error and os.path.splitext(name)[1].lower() in error
        with pytest.raises(ValueError, match=r"\.svg or as \.dot"):
            fastexport.draw(LINEAR, tmp_path / name)
    assert os.listdir(tmp_path) == []
    run("draw", LINEAR, "-o", tmp_path / "X.DOT")
    run("draw", LINEAR, "-o", tmp_path / "x.txt", "--format", "dot")
    run("draw", LINEAR, "-o", tmp_path / "bare")
    assert (tmp_path / "X.DOT").read_text() == (tmp_path / "x.txt").read_text() != (tmp_path / "bare").read_text()


def test_passes_that_need_options(tmp_path):
    """Are told of before anything is read; the list has those that go, which all do."""
    alone = names_of_passes(alone=True)
    others = sorted({*names_of_passes()} - {*alone})
    assert {"fuse", "outline", "replace_pattern", "replace_pattern_with_filters"} <= {*others} and "lint" in alone
    for name in (*others, "no_such_pass"):
        error = run("opt", "none.pt2", "-o", tmp_path / "o.pt2", "--passes", f"lint,{name}", code=2)[1]
        assert (
            name in error and error.count("\n") == 1 and error.endswith(f"; the passes here are {', '.join(alone)}\n")
        )
        assert ("needs options" in error) == (name in others)
    assert os.listdir(tmp_path) == []
    for name in alone:
        run("opt", LINEAR, "-o", tmp_path / "o.pt2", "--passes", name)


def test_standard_input_is_named_once():
    for line in (("diff", "-", "-"), ("report", "-", "-", "-o", "none/x"), ("check", "-", "-"), ("stats", "-", "-")):
        assert "can be read once" in run(*line, code=2, stdin=LINEAR.read_bytes())[1]


def test_words_of_usage():
    run("check", LINEAR, LINEAR, "--jobs", "99999999")
    for text in ("-1", "x", "1.5", "", "9" * 10, "9" * 5000):
        error = run("check", LINEAR, f"--jobs={text}", code=2)[1]
        assert f"argument -j/--jobs: a number from 0 to 999999999 is wanted, not {text!r}" in error
    for text in ("0", "101", "-1", "x", "9" * 5000):
        error = run("draw", LINEAR, f"--depth={text}", code=2)[1]
        assert f"argument --depth: a number from 1 to 100 is wanted, not {text!r}" in error
    run("draw", LINEAR, "--depth", "100")
    for option in ("--select", "--ignore", "--fail-on"):
        error = run("check", LINEAR, option, "all", code=2)[1]
        assert f"{option}: no code begins with 'ALL'" in error and ('"warning"' in error) == (option == "--fail-on")
    assert "0 to 3" in run("diff", "--help")[0]
    assert "1 to 100" in run("draw", "--help")[0]
    assert "no module or subgraph 'nope' with calls in it" in run("draw", LINEAR, "--module", "nope", code=2)[1]


def test_statistics_of_many_files_are_rows():
    assert run("stats", *[LINEAR] * 8)[0].startswith("fact")
    lines = run("stats", *[LINEAR] * 9)[0].splitlines()
    assert lines[0].split() == ["file", "nodes", "parameters", "elements", "bytes", "operators"]
    assert [line.split() for line in lines[1:10]] == [[str(LINEAR), "6", "2", "15", "60", "2"]] * 9
    assert "--output-format json" in lines[10]
