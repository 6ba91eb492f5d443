"""The command fastexport, as users run it: texts, exit codes, pipes, terminals and signals."""

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import fastexport
from commands import process, result, run
from pt2_files import CURRENT, HOSTILE, MIDDLE, OLD, SAMPLES, expected, sample, with_document

GOLDEN = Path(__file__).parent / "golden" / "command"
NAME_FAULT = HOSTILE / "G43_name_code_default.pt2"
WEIGHT_FAULT = HOSTILE / "Z23_weight_bit.pt2"


# ---- texts


def test_show_prints_what_torch_prints():
    for name in ("linear", "cond_", "dynamic"):
        out, _ = run("show", sample(name))
        want = expected(sample(name))
        assert out.startswith(want["graph"])
        assert want["graph_signature"].strip() in out
        for path, text in want["subgraphs"].items():
            assert f"\n{path}:\n{text}\n" in out
    assert "{s77: VR[2, 64], s17: VR[2, int_oo]}" in run("show", sample("dynamic"))[0]


CASES = {
    "show": ("show", "cond_.pt2"),
    "show_code": ("show", "cond_.pt2", "--code"),
    "show_signature": ("show", "dynamic.pt2", "--signature"),
    "show_summary": ("show", "cond_.pt2", "--summary"),
    "show_table": ("show", "linear.pt2", "--table"),
    "show_tree": ("show", "conv_bn_eval_core.pt2", "--tree"),
    "show_node": ("show", "cond_.pt2", "--node", "true_graph_0/sin"),
    "show_subgraph": ("show", "cond_.pt2", "--subgraph", "false_graph_0"),
    "stats": ("stats", "linear.pt2", "cond_.pt2"),
    "weights": ("weights", "constants_lifted.pt2"),
    "weights_one": ("weights", "linear.pt2", "fc.bias", "--sha256"),
    "weights_statistics": ("weights", "buffer_mutation.pt2", "--statistics"),
    "check": ("check", "linear.pt2", "custom_op.pt2"),
    "check_json": ("check", "linear.pt2", "custom_op.pt2", "--output-format", "json"),
    "check_github": ("check", "linear.pt2", "custom_op.pt2", "--output-format", "github"),
    "check_junit": ("check", "linear.pt2", "custom_op.pt2", "--output-format", "junit"),
    "diff": ("diff", "linear.pt2", "var_args.pt2", "--context", "1"),
    "extract": ("extract", "linear.pt2"),
    "explain": ("explain",),
    "explain_code": ("explain", "FX302"),
    "schema": ("schema",),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name, request, monkeypatch):
    monkeypatch.chdir(SAMPLES / "current")
    out, err = run(*CASES[name], code=name == "diff")
    assert err == ""
    path = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(out, "utf-8")
    assert out == path.read_text("utf-8")


def test_names_that_are_not_there():
    _, error = run("show", sample("linear"), "--node", "reluu", code=2)
    assert error == f"fastexport: {sample('linear')} has no node 'reluu'; did you mean relu?\n"
    error = run("show", sample("linear"), "--node", "x/y", code=2)[1]
    assert error.endswith("there are p_fc_weight, p_fc_bias, x, linear, relu, output\n")
    error = run("show", sample("conv_bn_train"), "--node", "-", code=2)[1]
    assert error.endswith(f"`fastexport show {sample('conv_bn_train')}` lists them\n")
    assert run("show", sample("linear"), "--subgraph", "x", code=2)[1].endswith("has no subgraph 'x'; there are none\n")
    assert "did you mean fc.weight" in run("weights", sample("linear"), "fc.wieght", code=2)[1]
    assert "models/model.json" in run("extract", sample("linear"), "models/other.json", code=2)[1]
    error = run("explain", "FX999", code=2)[1]
    assert error == "fastexport: there is no code 'FX999'; `fastexport explain` lists them\n"
    assert "did you mean show" in run("schema", "shwo", code=2)[1]
    assert "there are check, diff" in run("schema", "nope", code=2)[1]
    run("show", sample("linear"), "--model", "other", code=2)


def test_schemas_have_the_names_that_are_listed():
    names = run("schema")[0].split()
    assert "fastexport.check/1" in names
    for name in names:
        verb = name.removeprefix("fastexport.").removesuffix("/1")
        assert run("schema", name) == run("schema", verb)
        assert f'"urn:fastexport:{verb}:1"' in run("schema", name)[0]


def test_repeated_modules_are_folded():
    from fastexport._tree import Module, tree_lines

    root = Module("")
    for i in range(4):
        block = root.at(f"layers.{i}")
        block.type = "Block"
        block.operators["add.Tensor"] += 2 if i < 3 else 1
    assert list(tree_lines(root)) == [
        "program  (7 ops, 0 parameters)",
        "└─ layers  (7 ops, 0 parameters)",
        "   ├─ 0..2: Block x 3  (2 ops, 0 parameters each)  add.Tensor x2",
        "   └─ 3: Block  (1 ops, 0 parameters)  add.Tensor",
    ]
    assert len(list(tree_lines(root, fold=False))) == 6


def test_modules_that_nest_too_deep(tmp_path):
    path = tmp_path / "m.pt2"
    ep = fastexport.load(sample("linear"))
    ep.graph.node("linear").meta["nn_module_stack"] = {"k": (".".join(["a"] * 5000), "T")}
    ep.save(path)
    assert "a.a.a: T  (1 ops" in run("show", path, "--tree")[0]
    run("show", path, "--tree", "--output-format", "json")


def test_every_code_is_explained():
    for code, kind in fastexport._core.fault_kinds().items():
        page = run("explain", code.lower())[0]
        assert page.startswith(f"{code} {kind}\n\n")
        assert all(f"\n{title}: " in page for title in ("Why", "Example", "What to do", "Source"))


def test_codes_that_begin_so():
    whole = run("explain")[0].splitlines()
    assert run("explain", "fx1")[0].splitlines() == [line for line in whole if line.startswith("FX1")] != whole
    codes = json.loads(run("explain", "FX20", "--output-format", "json")[0])["codes"]
    assert [code["code"] for code in codes] == [f"FX20{i}" for i in range(1, 9)]
    assert "did you mean FX302" in run("explain", "FX3O2", code=2)[1]


def test_usage():
    assert "there is no folder 'nowhere'" in run("check", sample("linear"), "--source-root", "nowhere", code=2)[1]
    run(code=2)
    run("fly", code=2)
    run("check", sample("linear"), "--jobs", "-1", code=2)
    run("show", sample("linear"), "--output-format", "sarif", code=2)
    assert "Exit codes" in run("--help")[0]
    assert "--fail-on" in run("check", "--help")[0]
    assert run("--version")[0] == f"fastexport {fastexport.__version__}\n"


# ---- many files


def test_check_of_good_files():
    good = [path for path in CURRENT if "functionalized" not in path.name and "custom_op" not in path.name]
    assert run("check", *good[:5])[0].count(": ok\n") == 5
    assert run("check", *good[:5], "--quiet")[0] == ""


def test_check_goes_on():
    out, error = run("check", "none.pt2", sample("linear"), WEIGHT_FAULT, NAME_FAULT, code=2)
    assert out.startswith(f"{sample('linear')}: ok\n")
    assert "FX102 data/weights/weight_0" in out
    assert "FX302 models/model.json $.graph_module.graph.inputs[2]" in out
    assert error == "fastexport: none.pt2: No such file or directory\n"
    assert run("check", NAME_FAULT, sample("linear"), WEIGHT_FAULT, code=1)[1] == ""


def test_jobs_give_the_same(tmp_path):
    files = [*CURRENT[:12], WEIGHT_FAULT, tmp_path / "none.pt2", NAME_FAULT]
    one = run("check", *files, code=2)
    assert run("check", *files, "--jobs", 3, code=2) == one
    assert run("check", *files, "-j", 0, code=2) == one
    assert run("stats", *CURRENT[:4], "-j2") == run("stats", *CURRENT[:4])


def test_folders_and_patterns(tmp_path, monkeypatch):
    for name in ("a.pt2", "sub/b.pt2", "sub/c.txt", "odd[1].pt2"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(sample("linear").read_bytes())
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run("check", ".")[0].split() == ["./a.pt2:", "ok", "./odd[1].pt2:", "ok", "./sub/b.pt2:", "ok"]
    assert run("check", "sub/*")[0].split() == ["sub/b.pt2:", "ok", "sub/c.txt:", "ok"]
    assert run("check", "**/*.pt2")[0].count("ok") == 3
    assert run("check", "odd[1].pt2")[0] == "odd[1].pt2: ok\n"
    assert "no_such*.pt2: No such file" in run("check", "no_such*.pt2", code=2)[1]
    assert "there are no .pt2 files in empty" in run("check", "empty", code=2)[1]


def test_files_that_are_no_programs(tmp_path):
    (tmp_path / "text.pt2").write_text("no archive")
    (tmp_path / "empty.pt2").touch()
    (tmp_path / "link.pt2").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.pt2")
    out, error = run("check", tmp_path, sample("linear"), code=2)
    assert out.count("FX101") == 2
    assert out.endswith(f"{sample('linear')}: ok\n")
    assert f"{tmp_path / 'link.pt2'}: No such file or directory" in error
    for verb in ("show", "stats", "weights", "extract"):
        assert "No such file" in run(verb, tmp_path / "none.pt2", code=2)[1]
        assert "Traceback" not in run(verb, tmp_path / "text.pt2", code=2)[1]
    out, error = run("stats", sample("linear"), NAME_FAULT, tmp_path / "none.pt2", code=2)
    assert "nodes" in out
    assert error.startswith(f"fastexport: {NAME_FAULT}: FX302")


def test_a_file_is_opened_once(monkeypatch):
    """So that what is checked is what was listed, whatever is put in its place meanwhile."""
    opened = []
    real = os.open

    def spy(path, *args, **kwargs):
        opened.append(path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", spy)
    for path in (sample("linear"), NAME_FAULT, sample("custom_op")):
        opened.clear()
        run("check", path, code=path == NAME_FAULT)
        assert opened.count(str(path)) == 1


def test_no_hostile_file_is_too_much():
    """Whatever a file holds, a verb tells of it in words that show."""
    for path in sorted(HOSTILE.glob("*.pt2")):
        for verb in ("show", "weights", "extract"):
            code, out, err = result(verb, path)
            assert code in (0, 2) and "Traceback" not in err
            assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out + err) is None, (verb, path)


def test_which_findings_count():
    warned = sample("custom_op")
    assert "2 warnings" in run("check", warned)[0]
    run("check", warned, "--fail-on", "warning", code=1)
    run("check", warned, "--fail-on", "FX304", code=1)
    run("check", warned, "--fail-on", "FX502")
    run("check", warned, "--fail-on", "warning", "--exit-zero")
    run("check", WEIGHT_FAULT, "--exit-zero")
    assert run("check", WEIGHT_FAULT, "--ignore", "FX1")[0] == f"{WEIGHT_FAULT}: ok\n"
    assert run("check", WEIGHT_FAULT, "--select", "FX3,FX4")[0] == f"{WEIGHT_FAULT}: ok\n"
    assert run("check", WEIGHT_FAULT, "--no-weights")[0] == f"{WEIGHT_FAULT}: ok\n"
    run("check", "none.pt2", "--exit-zero", "--select", "FX3", code=2)
    run("check", sample("linear"), "--select", "ZZ", code=2)
    run("check", sample("linear"), "--fail-on", "FX9", code=2)


def test_files_with_several_models(tmp_path):
    import zipfile

    path = tmp_path / "two.pt2"
    with zipfile.ZipFile(sample("linear")) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data)
            folder, _, last = name.rpartition("/")
            if last.startswith("model"):
                changed = data.replace(b"torch.ops.aten.relu.default", b"torch.ops.none.relu.default")
                new.writestr(f"{folder}/{last.replace('model', 'other', 1)}", changed)
    out, _ = run("check", path)
    assert "torch.ops.none.relu.default" in out, "the second model is checked too"
    assert run("check", "-", stdin=path.read_bytes())[0] == out.replace(str(path), "-")
    assert "torch.ops.none.relu.default" not in run("check", path, "--model", "model")[0]
    assert "FX111" in run("check", path, "--model", "third", code=1)[0]


# ---- files that are written


def test_diff(tmp_path):
    a, b = sample("linear"), tmp_path / "b.pt2"
    ep = fastexport.load(a)
    ep.graph.node("relu").target = "torch.ops.aten.sigmoid.default"
    ep.state_dict["fc.bias"] = memoryview(bytes(12)).cast("f")
    ep.save(b)
    assert run("diff", a, a)[0] == "the programs are the same\n"
    out, _ = run("diff", a, b, code=1)
    assert "  + %relu = call_function[target=torch.ops.aten.sigmoid.default](args = (%linear,), kwargs = {})\n" in out
    assert "  ~ fc.bias: other values\n" in out
    assert out.count("\n") == 5, out
    ep.graph.node("linear").name = "other"
    ep.graph.node("relu").target = "torch.ops.aten.relu.default"
    ep.state_dict["fc.bias"] = fastexport.load(a).state_dict["fc.bias"]
    ep.save(b)
    run("diff", a, b, code=1)
    run("diff", a, b, "--ignore-names")


def test_opt(tmp_path):
    out = tmp_path / "o.pt2"
    text, _ = run("opt", sample("native_layer_norm_unused"), "-o", out, "--passes", "eliminate_dead_code, lint")
    assert text.startswith("eliminate_dead_code: ")
    assert fastexport.is_pt2(out)
    before = out.read_bytes()
    run("opt", sample("linear"), "-o", out, "--passes", "no_such_pass", code=2)
    run("opt", sample("linear"), "-o", out, "--passes", ",", code=2)
    run("opt", NAME_FAULT, "-o", out, "--passes", "lint", code=2)
    assert out.read_bytes() == before
    run("opt", out, "-o", out, "--passes", "lint")
    run("opt", out, "-o", tmp_path / "none" / "o.pt2", "--passes", "lint", code=2)
    assert os.listdir(tmp_path) == ["o.pt2"]


def test_weights_are_folded(tmp_path):
    ep = fastexport.load(sample("linear"))
    for i in range(3):
        ep.add_constant(f"layers.{i}.scale", memoryview(bytes(8)).cast("f"))
    ep.save(tmp_path / "m.pt2")
    lines = run("weights", tmp_path / "m.pt2", "--fold")[0].splitlines()
    assert [line.split()[0] for line in lines] == ["name", "fc.weight", "fc.bias", "layers.#.scale"]
    assert lines[-1].split()[1:3] == ["x", "3"] and lines[-1].split()[-1] == "24"


def test_weights_to_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    path = tmp_path / "w.safetensors"
    run("weights", sample("linear"), "--safetensors", path)
    with safetensors.safe_open(path, framework="np") as file:
        assert sorted(file.keys()) == ["fc.bias", "fc.weight"]
    run("weights", sample("linear"), "--safetensors", tmp_path / "none" / "w", code=2)


def test_extract_an_entry(tmp_path):
    document, _ = run("extract", sample("linear"), "models/model.json")
    assert json.loads(document)["schema_version"]["major"] == 8
    run("extract", sample("linear"), "models/model.json", "-o", tmp_path / "m.json")
    assert (tmp_path / "m.json").read_text() == document


def test_extract_a_part(tmp_path):
    path = tmp_path / "part.pt2"
    run("extract", sample("linear"), "--inputs", "linear", "--outputs", "relu", "-o", path)
    part = fastexport.load(path)
    assert [node.name for node in part.graph.nodes] == ["linear", "relu", "output"]
    assert part.graph_signature.user_inputs == ("linear",)
    assert dict(part.state_dict) == {}
    run("extract", sample("linear"), "--outputs", "linear", "-o", path)
    assert "%relu" not in run("show", path)[0]
    assert run("check", path, "--strict", "--fail-on", "warning")[0] == f"{path}: ok\n"
    for options in (
        ["--inputs", "linear", "-o", path],
        ["--outputs", "linear"],
        ["--outputs", "linear", "--inputs", "linear", "-o", path],
        ["--outputs", "lineer", "-o", path],
        ["archive_format", "--outputs", "linear", "-o", path],
    ):
        _, error = run("extract", sample("linear"), *options, code=2)
        assert "Traceback" not in error


def test_a_part_computes_what_the_whole_does(tmp_path):
    import torch

    path = tmp_path / "part.pt2"
    run("extract", sample("linear"), "--outputs", "linear,relu", "-o", path)
    x = torch.arange(8.0).reshape(2, 4)
    (linear, relu) = torch.export.load(path).module()(x)
    assert torch.equal(relu, torch.export.load(sample("linear")).module()(x))
    assert torch.equal(relu, linear.relu())


def test_extract_writes_through_links_and_into_pipes(tmp_path):
    target, link, pipe, read = tmp_path / "target", tmp_path / "link", tmp_path / "pipe", []
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    run("extract", sample("linear"), "archive_format", "-o", link)
    assert link.is_symlink()
    assert target.read_text() == "pt2"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    run("extract", sample("linear"), "archive_format", "-o", pipe)
    reader.join()
    assert read == ["pt2"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe", "target"]


def test_output_files(tmp_path):
    path = tmp_path / "out.txt"
    assert run("show", sample("linear"), "--output-file", path) == ("", "")
    assert path.read_text("utf-8") == run("show", sample("linear"))[0]
    run("check", WEIGHT_FAULT, "--output-file", path, "--output-format", "json", code=1)
    assert json.loads(path.read_text("utf-8"))["summary"]["errors"] == 1
    before = path.read_bytes()
    run("show", tmp_path / "none.pt2", "--output-file", path, code=2)
    assert path.read_bytes() == before
    run("show", sample("linear"), "--output-file", tmp_path / "none" / "out.txt", code=2)
    assert os.listdir(tmp_path) == ["out.txt"]


# ---- streams, terminals, signals


def test_as_a_process():
    assert process("show", sample("linear"))[0] == run("show", sample("linear"))[0]
    assert process("check", WEIGHT_FAULT, code=1)[0] == run("check", WEIGHT_FAULT, code=1)[0]
    assert process("fly", code=2)[0] == ""


def test_standard_input():
    data = sample("linear").read_bytes()
    assert process("show", "-", stdin=data)[0] == run("show", sample("linear"))[0]
    assert run("check", "-", stdin=data)[0] == "-: ok\n"
    assert run("diff", sample("linear"), "-", stdin=data)[0] == "the programs are the same\n"
    for verb in ("weights", "extract"):
        assert run(verb, "-", stdin=data)[0] == run(verb, sample("linear"))[0]
    assert run("stats", "-", stdin=data)[0].split()[:2] == ["fact", "-"]
    assert "FX101" in run("check", "-", stdin=b"", code=1)[0]
    command = f"{sys.executable} -m fastexport show - <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "fastexport: standard input is closed\n"


def test_a_reader_that_goes_away():
    command = f"{sys.executable} -m fastexport show {sample('linear')} | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert done.stdout == "graph():\n"
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is full")
def test_a_full_disk():
    command = f"{sys.executable} -m fastexport show {sample('linear')} >/dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode != 0
    assert "No space left" in done.stderr


def test_characters_that_the_terminal_lacks():
    args = ("show", "--tree", sample("conv_bn_eval_core"))
    text = process(*args, env={"PYTHONIOENCODING": "utf-8"})[0]
    assert "\u251c\u2500 conv" in text
    plain = text.replace("\u251c\u2500", "|-").replace("\u2514\u2500", "`-").replace("\u2502", "|")
    assert process(*args, env={"PYTHONIOENCODING": "ascii"})[0] == plain


def test_what_could_steer_a_terminal_is_escaped(tmp_path):
    ep = fastexport.load(sample("special_floats"))
    node = next(n for n in ep.graph.nodes if n.op == "call_function")
    node.meta["stack_trace"] = "File \x1b[2J\u202eevil"
    path = tmp_path / "m.pt2"
    ep.save(path)
    out, _ = run("show", path, "--node", node.name)
    assert "\x1b" not in out
    assert "\\x1b[2J\\u202eevil" in out


def on_terminal(*args, env=None):
    """What a command prints when stdout is a terminal."""
    leader, follower = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-m", "fastexport", *map(str, args)],
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", **(env or {})},
    )
    os.close(follower)
    text = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    started.wait()
    os.close(leader)
    return text.decode()


def test_colours(monkeypatch):
    red = "\x1b[31merror\x1b[0m"
    assert red in on_terminal("check", WEIGHT_FAULT)
    assert "\x1b" not in on_terminal("check", WEIGHT_FAULT, env={"NO_COLOR": "1"})
    assert "\x1b" not in on_terminal("check", WEIGHT_FAULT, env={"TERM": "dumb"})
    assert "\x1b" not in run("check", WEIGHT_FAULT, code=1)[0]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert red in run("check", WEIGHT_FAULT, code=1)[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("check", WEIGHT_FAULT, code=1)[0]


def test_a_bar_shows_on_terminals_only(monkeypatch):
    import io

    from fastexport._terminal import Progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, kind, is_shown in (
        (Terminal(), "xterm", True),
        (Terminal(), "dumb", False),
        (io.StringIO(), "xterm", False),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", kind)
        bar = Progress("files", 4)
        bar._start -= 5  # as if it had taken so long
        bar.add(2)
        assert ("files [###############               ]  50%" in stream.getvalue()) is is_shown
        bar.close()
        assert stream.getvalue().endswith("\r\x1b[K") is is_shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("blocked", [False, True], ids=["in Python", "in C"])
def test_a_signal_ends_it(blocked, number):
    """While Python runs, and while a long call holds it up."""
    waits = "getattr(ctypes.CDLL(None), 'pause')" if blocked else "lambda: time.sleep(60)"
    code = f"""
import ctypes, sys, time
from fastexport._command import explain
from fastexport._command.main import console
wait = {waits}
def run(options):
    print("waiting", flush=True)
    while True:
        wait()
explain.run = run
sys.argv = ["fastexport", "explain"]
sys.exit(console())
"""
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout.readline() == b"waiting\n"
    time.sleep(0.1)
    started.send_signal(number)
    _, error = started.communicate(timeout=30)
    assert started.returncode == 128 + number
    assert error == b""


def test_a_signal_ends_a_write_that_takes_long(tmp_path):
    """What it had written goes, and threads that are busy elsewhere are not waited for."""
    code = """
import ctypes, os, sys, threading, time
from fastexport._command.main import console
threading.Thread(target=ctypes.CDLL(None).pause).start()
def slow(*args):
    print("replacing", flush=True)
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
os.replace = slow
sys.argv = ["fastexport", "extract", sys.argv[1], "archive_format", "-o", sys.argv[2]]
sys.exit(console())
"""
    out = tmp_path / "out"
    out.write_text("old")
    command = [sys.executable, "-c", code, str(sample("linear")), str(out)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout.readline() == b"replacing\n"
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=30)
    assert started.returncode == 130
    assert out.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_interrupted_writes_leave_nothing(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    run("show", sample("linear"), "--output-file", path, code=130)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_errors_of_our_own(monkeypatch):
    from fastexport._command import explain

    def fails(options):
        raise AssertionError("\x1b[2J")

    monkeypatch.setattr(explain, "run", fails)
    _, error = run("explain", code=3)
    assert "please report it: \\x1b[2J" in error


def test_memory_that_runs_out(monkeypatch):
    from fastexport._command import explain

    def fails(options):
        raise MemoryError

    monkeypatch.setattr(explain, "run", fails)
    assert run("explain", code=2) == ("", "fastexport: there is not enough memory\n")


def test_an_interrupt_while_it_starts(monkeypatch):
    from fastexport._command import interrupts, main

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupts, "watch", interrupted)
    assert main.console() == 130


def test_no_verb_imports_torch(tmp_path):
    code = """
import sys
from fastexport._command.main import main
path = sys.argv[1]
for verb in (["show"], ["show", "--code"], ["show", "--tree"], ["stats"], ["check"], ["weights"], ["extract"]):
    for form in ("text", "json"):
        assert main([verb[0], path, *verb[1:], "--output-format", form]) == 0
for form in ("jsonl", "github", "sarif", "junit"):
    assert main(["check", path, "--output-format", form]) == 0
for form in ("text", "json", "html"):
    assert main(["diff", path, path, "--output-format", form]) == 0
assert main(["opt", path, "-o", sys.argv[2], "--passes", "lint"]) == 0
assert main(["explain"]) == 0
heavy = {"torch", "numpy", "pandas", "IPython", "jsonschema", "pytest", "rich"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", code, sample("linear"), tmp_path / "o.pt2"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_version_imports_little():
    code = """
import sys
from fastexport._command.main import main
main(["--version"])
late = {"json", "fastexport._findings", "fastexport._stats", "fastexport._diff", "concurrent.futures", "inspect"}
assert not late & set(sys.modules), late & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- hooks


def hooks():
    """The command lines of the hooks for pre-commit, by id."""
    text = (Path(__file__).parent.parent / ".pre-commit-hooks.yaml").read_text("utf-8")
    found = re.findall(r"^- id: (\S+)$.*?^  entry: fastexport ([^\n]+)$", text, re.MULTILINE | re.DOTALL)
    return {name: entry.split() for name, entry in found}


def test_hooks(tmp_path):
    damaged = tmp_path / "m.pt2"
    damaged.write_bytes(sample("linear").read_bytes()[:-100])
    pickled = HOSTILE / "E16_sample_inputs_code.pt2"
    disordered, guarded = tmp_path / "disordered.pt2", tmp_path / "guarded.pt2"
    disordered.write_bytes(
        with_document(sample("linear"), lambda model: model["graph_module"]["graph"]["nodes"].reverse())
    )
    guarded.write_bytes(with_document(sample("linear"), lambda model: model.update(guards_code=["print()"])))
    for name, fails in {
        "fastexport-check": [WEIGHT_FAULT, damaged, NAME_FAULT, pickled, disordered],
        "fastexport-no-pickle": [
            pickled,
            HOSTILE / "E17_weight_pickle_code.pt2",
            damaged,
            NAME_FAULT,
            HOSTILE / "G51_target_0.pt2",
            HOSTILE / "G100_expr_code.pt2",
            guarded,
        ],
    }.items():
        for path in fails:
            assert str(path) in run(*hooks()[name], sample("linear"), path, code=1)[0]
        assert run(*hooks()[name], sample("linear"), OLD[0], MIDDLE[0]) == ("", "")
        run(*hooks()[name], sample("custom_op"))
    run(*hooks()["fastexport-check"], "--ignore", "FX502", pickled)
    assert run(*hooks()["fastexport-no-pickle"], disordered) == ("", "")  # broken, but no code
