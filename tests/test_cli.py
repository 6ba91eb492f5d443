"""The command fastexport, as users run it: texts, JSON, exit codes."""

import json
import os
import pty
import stat
import subprocess
import sys
import threading

import pytest

import fastexport
from pt2_files import CURRENT, HOSTILE, expected, sample


def run(*args, code=0, stdin=None, env=None, cwd=None):
    done = subprocess.run(
        [sys.executable, "-m", "fastexport", *map(str, args)],
        input=stdin,
        capture_output=True,
        env=os.environ | (env or {}),
        cwd=cwd,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout.decode(), done.stderr.decode()


def test_show_prints_what_torch_prints():
    for name in ("linear", "cond_", "dynamic"):
        out, _ = run("show", sample(name))
        want = expected(sample(name))
        assert out.startswith(want["graph"])
        assert want["graph_signature"].strip() in out
        for path, text in want["subgraphs"].items():
            assert f"\n{path}:\n{text}\n" in out
    assert "{s77: VR[2, 64], s17: VR[2, int_oo]}" in run("show", sample("dynamic"))[0]


def test_parts_of_show():
    assert run("show", sample("linear"), "--signature")[0].startswith(
        "# inputs\np_fc_weight: PARAMETER target='fc.weight'"
    )
    assert "3 placeholder, 2 call_function, 1 output" in run("show", sample("linear"), "--summary")[0]
    table = run("show", sample("linear"), "--table")[0].splitlines()
    assert table[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert table[5].split()[:3] == ["call_function", "relu", "torch.ops.aten.relu.default"]
    assert "fc: Linear  (1 ops, 15 parameters)" in run("show", sample("linear"), "--tree")[0]
    node = run("show", sample("linear"), "--node", "relu")[0]
    assert node.startswith("%relu : [num_users=1] = call_function[target=torch.ops.aten.relu.default]")
    assert "return torch.relu(s.fc(x))" in node
    assert run("show", sample("cond_"), "--subgraph", "true_graph_0")[0].startswith("graph():\n    %")
    assert "%sin" in run("show", sample("cond_"), "--node", "true_graph_0/sin")[0]


def test_names_that_are_not_there():
    _, error = run("show", sample("linear"), "--node", "reluu", code=2)
    assert error == "fastexport: there is no node 'reluu'; did you mean relu?\n"
    run("show", sample("linear"), "--subgraph", "x", code=2)
    run("weights", sample("linear"), "fc.wieght", code=2)
    run("extract", sample("linear"), "models/other.json", code=2)
    run("explain", "FX999", code=2)


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
        "   ├─ 0..2: Block x 3  (2 ops, 0 parameters)  add.Tensor x2",
        "   └─ 3: Block  (1 ops, 0 parameters)  add.Tensor",
    ]
    assert len(list(tree_lines(root, fold=False))) == 6


def test_json_of_every_verb():
    path = sample("linear")
    shown = json.loads(run("show", path, "--json")[0])
    assert [node["name"] for node in shown["nodes"]] == expected(path)["node_names"]
    assert json.loads(run("show", path, "--node", "relu", "--json")[0])["users"] == ["output"]
    assert json.loads(run("stats", path, "--json")[0])[str(path)]["elements"] == 15
    assert json.loads(run("check", path, "--json")[0]) == {str(path): []}
    assert json.loads(run("weights", path, "--json")[0])[0]["shape"] == [3, 4]
    assert {"name": "archive_format", "size": 3} in json.loads(run("extract", path, "--json")[0])
    assert not any(json.loads(run("diff", path, path, "--json")[0]).values())


def test_check():
    good = [path for path in CURRENT if "functionalized" not in path.name and "custom_op" not in path.name]
    out, _ = run("check", *good[:5])
    assert out.count(": ok\n") == 5
    out, error = run(
        "check", sample("linear"), HOSTILE / "Z23_weight_bit.pt2", HOSTILE / "G43_name_code_default.pt2", code=1
    )
    assert "FX102 data/weights/weight_0" in out
    assert "FX302 models/model.json $.graph_module.graph.inputs[2]" in out
    assert out.startswith(f"{sample('linear')}: ok\n")
    assert error == ""


def test_check_selects_and_goes_on():
    bad = HOSTILE / "Z23_weight_bit.pt2"
    assert run("check", bad, "--ignore", "FX1")[0] == f"{bad}: ok\n"
    assert run("check", bad, "--select", "FX3,FX4")[0] == f"{bad}: ok\n"
    assert run("check", bad, "--no-weights")[0] == f"{bad}: ok\n"
    out, error = run("check", "none.pt2", sample("linear"), code=2)
    assert out == f"{sample('linear')}: ok\n"
    assert error == "fastexport: none.pt2: No such file or directory\n"
    out, _ = run("check", "--json", "none.pt2", sample("linear"), code=2)
    assert json.loads(out)["none.pt2"][0]["code"] == "FX105"
    run("check", sample("linear"), "--select", "ZZ", code=2)
    report = json.loads(run("check", bad, "--json", code=1)[0])
    assert report[str(bad)][0]["code"] == "FX102"


def test_every_code_is_explained():
    listing = run("explain")[0].splitlines()
    assert len(listing) == len(fastexport._core.fault_kinds())
    for code, kind in fastexport._core.fault_kinds().items():
        assert f"{code}  {kind}" in "\n".join(listing)
    assert run("explain", "fx102")[0].startswith("FX102 crc\n\nThe bytes of an entry")


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


def test_opt_and_extract(tmp_path):
    out = tmp_path / "o.pt2"
    text, _ = run("opt", sample("native_layer_norm_unused"), "-o", out, "--passes", "eliminate_dead_code,lint")
    assert text.startswith("eliminate_dead_code: ")
    assert fastexport.is_pt2(out)
    run("opt", sample("linear"), "-o", out, "--passes", "no_such_pass", code=2)
    document, _ = run("extract", out, "models/model.json")
    assert json.loads(document)["schema_version"]["major"] == 8
    run("extract", out, "models/model.json", "-o", tmp_path / "m.json")
    assert (tmp_path / "m.json").read_text() == document


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


def test_characters_that_the_terminal_lacks():
    out, _ = run("show", sample("linear"), "--tree", env={"PYTHONIOENCODING": "ascii"})
    assert "\\u2514\\u2500 fc: Linear" in out


def test_modules_that_nest_too_deep(tmp_path):
    path = tmp_path / "m.pt2"
    ep = fastexport.load(sample("linear"))
    ep.graph.node("linear").meta["nn_module_stack"] = {"k": (".".join(["a"] * 5000), "T")}
    ep.save(path)
    assert "a.a.a: T  (1 ops" in run("show", path, "--tree")[0]


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "text.pt2").write_text("no archive")
    for verb in ("show", "stats", "weights", "extract"):
        _, error = run(verb, tmp_path / "none.pt2", code=2)
        assert "No such file" in error
        _, error = run(verb, tmp_path / "text.pt2", code=2)
        assert "Traceback" not in error
    run("show", tmp_path, code=2)
    run("show", HOSTILE / "G43_name_code_default.pt2", code=2)


def test_a_closed_stdout():
    command = f"{sys.executable} -m fastexport show {sample('linear')} >&-"
    assert subprocess.run(["bash", "-c", command], capture_output=True).returncode == 0


def test_the_file_is_named():
    bad = HOSTILE / "G43_name_code_default.pt2"
    assert run("stats", sample("linear"), bad, code=2)[1].startswith(f"fastexport: {bad}: FX302")


def test_usage():
    run(code=2)
    run("fly", code=2)
    assert "Exit codes" in run("--help")[0]
    assert run("--version")[0] == f"fastexport {fastexport.__version__}\n"


def test_standard_input():
    data = sample("linear").read_bytes()
    assert run("show", "-", stdin=data)[0] == run("show", sample("linear"))[0]


def test_a_reader_that_goes_away():
    command = f"{sys.executable} -m fastexport show {sample('linear')} | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert done.stdout == "graph():\n"
    assert done.stderr == ""


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
    process = subprocess.Popen(
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
    process.wait()
    os.close(leader)
    return text.decode()


def test_colours_only_on_a_terminal():
    bad = HOSTILE / "Z23_weight_bit.pt2"
    assert "\x1b[31merror\x1b[0m" in on_terminal("check", bad)
    assert "\x1b" not in on_terminal("check", bad, env={"NO_COLOR": "1"})
    assert "\x1b" not in run("check", bad, code=1)[0]


@pytest.mark.parametrize("verb", ["show", "stats", "check", "weights"])
def test_no_verb_imports_torch(verb):
    code = (
        "import sys; sys.argv = ['fastexport', *sys.argv[1:]]\n"
        "from fastexport._cli import main\n"
        "code = main()\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, verb, sample("linear")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
