"""Outputs that are streams: programs and weights on stdout, descriptors, terminals, and readers that have gone."""

import os
import subprocess
import sys

import pytest

import fastexport
from commands import process, run
from pt2_files import HOSTILE, sample
from test_cli import on_terminal

LINEAR = sample("linear")
FASTEXPORT = f"{sys.executable} -m fastexport"
STDOUT = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]


def shell(line, cwd=None):
    return subprocess.run(["bash", "-c", line], capture_output=True, cwd=cwd)


@pytest.mark.parametrize("name", STDOUT)
def test_a_program_goes_into_a_pipe(name):
    """And what is told of it goes to stderr."""
    done = shell(f"{FASTEXPORT} opt {LINEAR} --passes lint -o {name} | cat")
    assert fastexport.load(done.stdout).graph.node("relu").op == "call_function"
    assert done.stderr == b"lint: 0 removed, 0 replaced\n"
    done = shell(f"{FASTEXPORT} extract {LINEAR} --outputs linear -o {name} | cat")
    assert "relu" not in {node.name for node in fastexport.load(done.stdout).graph.nodes}
    assert done.stderr == f"{name}: 5 nodes\n".encode()


def test_what_is_told_of_a_program_goes_where_it_is_sent(tmp_path):
    line = f"{FASTEXPORT} opt {LINEAR} --passes lint --output-format json --output-file {tmp_path / 'told'} -o - | cat"
    done = shell(line)
    assert len(fastexport.load(done.stdout).graph.nodes) == 6 and done.stderr == b""
    done = shell(f"{FASTEXPORT} opt {LINEAR} --passes lint --output-file - -o - | cat")
    assert len(fastexport.load(done.stdout).graph.nodes) == 6 and done.stderr == b"lint: 0 removed, 0 replaced\n"
    assert (tmp_path / "told").read_text().startswith('{\n  "schema": "fastexport.opt/1"')


def test_other_descriptors(tmp_path):
    shell(f"{FASTEXPORT} opt {LINEAR} --passes lint -o /dev/fd/7 7> out.pt2", tmp_path)
    assert len(fastexport.load(tmp_path / "out.pt2").graph.nodes) == 6
    done = shell(f"{FASTEXPORT} opt {LINEAR} --passes lint -o >({FASTEXPORT} check - | cat >&2) | cat")
    assert done.stderr == b"-: ok\n"
    done = shell(f"{FASTEXPORT} draw {LINEAR} --format dot -o /dev/stderr")
    assert done.stderr.startswith(b"digraph") and done.stdout == b""
    assert "/dev/fd/77: Bad file descriptor" in run("opt", LINEAR, "--passes", "lint", "-o", "/dev/fd/77", code=2)[1]


def test_weights_go_into_a_pipe():
    safetensors = pytest.importorskip("safetensors.numpy")
    pytest.importorskip("numpy")
    for name in STDOUT:
        done = shell(f"{FASTEXPORT} weights {LINEAR} --safetensors {name} | cat")
        assert sorted(safetensors.load(done.stdout)) == ["fc.bias", "fc.weight"] and done.stderr == b""


@pytest.mark.parametrize("name", STDOUT)
def test_an_entry_goes_to_stdout(name, tmp_path):
    assert process("extract", LINEAR, "archive_format", "-o", name, cwd=tmp_path)[0] == "pt2"
    assert os.listdir(tmp_path) == []


def test_a_stream_goes_on_from_where_it_is(tmp_path):
    """A file behind it is not begun anew."""
    (tmp_path / "log").write_text("kept\n")
    shell(f"{FASTEXPORT} draw {LINEAR} -o /dev/stdout >> log", tmp_path)
    shell(f"(echo before; {FASTEXPORT} draw {LINEAR} -o /dev/stdout; echo after) >> log", tmp_path)
    text = (tmp_path / "log").read_text()
    assert text.startswith("kept\n<svg") and text.endswith("</svg>\nafter\n") and "\nbefore\n<svg" in text


def test_terminals_get_no_bytes(tmp_path):
    for args in (
        ("opt", LINEAR, "--passes", "lint", "-o", "-"),
        ("opt", LINEAR, "--passes", "lint", "-o", "/dev/stdout"),
        ("extract", LINEAR, "--outputs", "linear", "-o", "-"),
        ("extract", LINEAR, "data/weights/weight_0"),
        ("weights", LINEAR, "--safetensors", "-"),
    ):
        assert on_terminal(*args) == ""
    assert on_terminal("extract", LINEAR, "archive_format") == "pt2"


def test_readers_that_go_away(tmp_path):
    """One of stdout may, as `head` does, without a word; but the exit code is not that of a clean file."""
    for verb in (f"check {HOSTILE}/E05_format_0.pt2", f"diff {LINEAR} {sample('kwargs_')}", f"show {LINEAR}", "--help"):
        done = shell(f"{FASTEXPORT} {verb} | true; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (141, b"")
    line = f"{FASTEXPORT} opt {LINEAR} --passes lint -o - 2>/dev/null | true; exit ${{PIPESTATUS[0]}}"
    assert shell(line).returncode == 141
    line = f"{FASTEXPORT} draw {LINEAR} -o /dev/fd/7 7>&1 >/dev/null | true; exit ${{PIPESTATUS[0]}}"
    done = shell(line)
    assert done.returncode == 2 and done.stderr == b"fastexport: /dev/fd/7: Broken pipe\n"


@pytest.mark.parametrize("verb", ["--help", "--version", "check --help", "explain FX302"])
def test_what_can_not_be_written_is_an_error(verb):
    """Help too."""
    if os.path.exists("/dev/full"):
        done = shell(f"{FASTEXPORT} {verb} > /dev/full")
        assert (done.returncode, done.stderr) == (2, b"fastexport: No space left on device\n")
    done = shell(f"{FASTEXPORT} {verb} >&-")
    assert (done.returncode, done.stderr) == (2, b"fastexport: standard output is closed\n")


def test_messages_stand_where_they_belong(tmp_path):
    """In a log of both streams, what is told of a file stands between those before and after it."""
    done = shell(f"{FASTEXPORT} check {LINEAR} none.pt2 {LINEAR} > log 2>&1", tmp_path)
    assert done.returncode == 2
    assert (tmp_path / "log").read_text().splitlines() == [
        f"{LINEAR}: ok",
        "fastexport: none.pt2: No such file or directory",
        f"{LINEAR}: ok",
    ]


# ---- outputs that can't be


def test_two_outputs_of_one_name(tmp_path):
    out = tmp_path / "out"
    (tmp_path / "link").symlink_to(out)
    for line in (
        ("opt", LINEAR, "--passes", "lint", "-o", out),
        ("extract", LINEAR, "--outputs", "linear", "-o", out),
        ("weights", LINEAR, "--safetensors", out),
    ):
        for other in (out, tmp_path / "link", f"{tmp_path}/./out"):
            assert "two outputs" in run(*line, "--output-file", other, code=2)[1]
    assert os.listdir(tmp_path) == ["link"]
    run("opt", LINEAR, "--passes", "lint", "-o", "/dev/null", "--output-file", "/dev/null")
    for name in STDOUT:
        assert (
            "two outputs"
            in run("opt", LINEAR, "--passes", "lint", "-o", name, "--output-file", "/dev/stdout", code=2)[1]
        )


def test_options_that_say_nothing(tmp_path):
    """An option that could have no effect is told of."""
    for line in (
        ("extract", LINEAR, "-o", tmp_path / "x"),
        ("extract", LINEAR, "archive_format", "--output-file", tmp_path / "x"),
        ("extract", LINEAR, "archive_format", "--output-format", "json"),
        ("weights", LINEAR, "fc.bias", "--safetensors", tmp_path / "x"),
        ("weights", LINEAR, "--sha256", "--safetensors", tmp_path / "x"),
    ):
        out, error = run(*line, code=2)
        assert out == "" and error.count("\n") == 1 and "Traceback" not in error
    assert os.listdir(tmp_path) == []


def test_a_file_that_may_not_be_written_stays(tmp_path, monkeypatch):
    path = tmp_path / "out"
    path.write_text("old")
    real = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: str(name) != str(path) and real(name, mode))
    for line in (("draw", LINEAR), ("opt", LINEAR, "--passes", "lint"), ("extract", LINEAR, "archive_format")):
        assert run(*line, "-o", path, code=2)[1] == f"fastexport: {path}: Permission denied\n"
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out"]


def test_rights_of_new_files(tmp_path):
    """Those that the umask leaves, or of the file whose place is taken; nobody else reads it before."""
    for umask, want in ((0o022, 0o644), (0o077, 0o600)):
        name = tmp_path / f"{umask}.svg"
        shell(f"umask {umask:o}; {FASTEXPORT} draw {LINEAR} -o {name}")
        assert name.stat().st_mode & 0o777 == want
    (tmp_path / "18.svg").chmod(0o604)
    run("draw", LINEAR, "-o", tmp_path / "18.svg")
    assert (tmp_path / "18.svg").stat().st_mode & 0o777 == 0o604


# ---- inputs that can't be


VERBS = {
    "show": ("show",),
    "stats": ("stats",),
    "check": ("check",),
    "diff": ("diff", LINEAR),
    "opt": ("opt", "--passes", "lint", "-o", "none/x"),
    "extract": ("extract",),
    "entry": ("extract", "-o", "none/x"),
    "part": ("extract", "--outputs", "relu", "-o", "none/x"),
    "weights": ("weights",),
    "safetensors": ("weights", "--safetensors", "none/x"),
    "draw": ("draw",),
    "report": ("report", "-o", "none/x"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_all_verbs_say_the_same_of_a_file(verb, tmp_path):
    rest = ("archive_format",) if verb == "entry" else ()
    head = VERBS[verb]
    none, folder = "none.pt2", HOSTILE / "none*"
    assert run(*head, none, *rest, code=2)[1] == "fastexport: none.pt2: No such file or directory\n"
    for url in ("nosuch://a/b.pt2", "nosuch::b"):
        _, error = run(*head, url, *rest, code=2)
        assert error.startswith(f"fastexport: {url}: ") and error.count("\n") == 1
    assert str(folder) in run(*head, folder, *rest, code=2)[1]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert run(*head, pipe, *rest, code=2)[1] == f"fastexport: {pipe}: this is a pipe, not a file\n"
    bad = tmp_path / "bad.pt2"
    bad.write_bytes(b"no archive")
    code = 1 if verb == "check" else 2
    out, error = run(*head, bad, *rest, code=code)
    assert f"{bad}: " in out + error and "FX101" in out + error and ".faults" not in out + error


def test_all_verbs_say_the_same_of_a_url():
    """Where fsspec's error has but the path, why it can't be read."""
    pytest.importorskip("fsspec")
    for verb, head in VERBS.items():
        rest = ("archive_format",) if verb == "entry" else ()
        url = "memory://none/m.pt2"
        assert run(*head, url, *rest, code=2)[1] == f"fastexport: {url}: No such file or directory\n"


@pytest.mark.parametrize("url", ["s3://bucket/x.pt2", "memory://x.svg", "simplecache::memory://x.svg"])
def test_urls_are_read_only(url, tmp_path):
    for line in (
        ("opt", LINEAR, "--passes", "lint", "-o", url),
        ("extract", LINEAR, "archive_format", "-o", url),
        ("draw", LINEAR, "--format", "svg", "-o", url),
        ("report", LINEAR, "-o", url),
        ("show", LINEAR, "--output-file", url),
    ):
        assert run(*line, code=2)[1].startswith(f"fastexport: {url}: a URL can be read, but not written: ")
    with pytest.raises(OSError, match="a URL can be read, but not written"):
        fastexport.load(LINEAR).save(url)


def test_a_file_whose_name_looks_like_a_url_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("opt", LINEAR, "--passes", "lint", "-o", "a::b.pt2")
    assert os.listdir() == ["a::b.pt2"]


def test_programs_come_out_of_open_pipes():
    done = shell(f"{FASTEXPORT} diff {LINEAR} <(cat {LINEAR}); {FASTEXPORT} stats <(cat {LINEAR}) | head -2 | tail -1")
    assert done.stdout.split() == [*b"the programs are the same nodes 6".split()] and done.stderr == b""
    done = shell(f"cat {LINEAR} | {FASTEXPORT} check /dev/stdin; {FASTEXPORT} check /dev/fd/7 7< {LINEAR}; true")
    assert done.stdout == b"/dev/stdin: ok\n/dev/fd/7: ok\n" and done.stderr == b""
    assert b"FX101" in shell(f"{FASTEXPORT} check <(true)").stdout
    assert shell(f"{FASTEXPORT} show /dev/fd/7").stderr == b"fastexport: /dev/fd/7: No such file or directory\n"


def test_a_url_that_can_not_be_opened_stops_no_others():
    out, error = run("check", LINEAR, "nosuch://a/*.pt2", LINEAR, code=2)
    assert out == f"{LINEAR}: ok\n" * 2 and error.startswith("fastexport: nosuch://a/*.pt2: ")
    out, error = run("stats", "nosuch://a/*.pt2", LINEAR, code=2)
    assert "nodes" in out and error.startswith("fastexport: nosuch://a/*.pt2: ")


def test_a_name_of_a_model_that_is_no_text():
    for verb in ("check", "show", "stats"):
        assert "no model has such a name" in run(verb, LINEAR, "--model", "\udcff", code=2)[1]


def test_what_is_refused_leaves_the_output_file(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    for line, code in (
        (("show", LINEAR, "--node", "nothing"), 2),
        (("weights", LINEAR, "nothing"), 2),
        (("check", LINEAR, "--select", "ZZ"), 2),
        (("explain", "FX999"), 2),
        (("schema", "nothing"), 2),
        (("opt", LINEAR, "--passes", "nothing", "-o", tmp_path / "x"), 2),
    ):
        error = run(*line, "--output-file", path, code=code)[1]
        assert error.count("\n") == 1 and path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]
