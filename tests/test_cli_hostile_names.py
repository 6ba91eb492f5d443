"""Names of files that try to steer a terminal or a runner of CI, and places that can't be written to."""

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

from commands import process, result
from pt2_files import HOSTILE, sample, with_document

COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)
NAMES = {
    "newline": "a\n::error::x.pt2",
    "escape": "\x1b[31m\x9b2Ja.pt2",
    "command": "::set-output name=a::b.pt2",
    "azure": "##vso[task.complete]a.pt2",
    "bidi": "\u202ea.pt2",
    "long": "x" * 240 + ".pt2",
    "no utf-8": os.fsdecode(b"\xff\xfe.pt2"),
    "markup": "<script>&'\".pt2",
}
TRACE = 'File "m.py", line 1, in f\n::error::from a file\n ##[group]x\n\x1b[31m'


def hostile(document):
    for node in document["graph_module"]["graph"]["nodes"]:
        node["metadata"]["stack_trace"] = TRACE


def command_lines(path, other, folder):
    yield ["show", path]
    yield ["show", path, "--node", "relu"]
    yield ["show", path, "--code"]
    yield ["show", path, "--node", "relu", "--output-format", "json"]
    for form in ("text", "json", "jsonl"):
        yield ["stats", path, "--output-format", form]
    for form in ("text", "json", "jsonl", "github", "sarif", "junit"):
        yield ["check", path, other, "--output-format", form]
    for form in ("text", "json", "html"):
        yield ["diff", path, sample("linear"), "--output-format", form]
    yield ["opt", path, "-o", folder / "out.pt2", "--passes", "lint"]
    yield ["extract", path]
    yield ["extract", path, "nothing"]
    yield ["weights", path]
    yield ["draw", path]
    yield ["draw", path, "--format", "dot"]
    yield ["report", path, "-o", folder / "page.html"]
    yield ["show", f"{path}.none"]
    yield ["show", path, "--model", "\n::error::"]
    yield ["show", "-\n::error::x", path]
    yield ["explain", "\n::error::"]


@pytest.mark.parametrize("what", NAMES)
def test_names_steer_nothing(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = NAMES[what]
    with open(name, "wb") as file:
        file.write(with_document(sample("linear"), hostile))
    other = "bad" + name if len(name) < 240 else "bad.pt2"
    shutil.copy(HOSTILE / "E04_empty_weight.pt2", other)
    for line in command_lines(name, other, tmp_path):
        code, out, err = result(*line)
        assert code in (0, 1, 2) and "Traceback" not in err, (line, err)
        if "github" in line:
            assert all(re.match("::(error|warning) file=", text) for text in out.splitlines()), out
            assert not re.search(r"##\w*\[", out)
        else:
            assert not COMMAND.search(out), (line, COMMAND.search(out))
        assert not COMMAND.search(err), (line, err)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", out + err), line
        if "json" in line or "sarif" in line:
            json.loads(out)
        if "jsonl" in line:
            assert all(isinstance(json.loads(text), dict) for text in out.splitlines())
        if "junit" in line:
            xml.fromstring(out)


def test_what_a_file_says_is_the_same_in_json(tmp_path):
    path = tmp_path / "a.pt2"
    path.write_bytes(with_document(sample("linear"), hostile))
    _, out, _ = result("show", path, "--node", "relu", "--output-format", "json")
    assert "##[" not in out and "##[group]x" in json.loads(out)["node"]["meta"]["stack_trace"]


PLAIN = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("what", ["no utf-8", "bidi", "escape"])
def test_any_locale(what, tmp_path):
    shutil.copy(sample("linear"), os.path.join(tmp_path, NAMES[what]))
    for env in (PLAIN, {"PYTHONIOENCODING": "ascii"}):
        for args in (["check", tmp_path], ["stats", tmp_path], ["draw", *sorted(tmp_path.iterdir())]):
            out, _ = process(*args, env=env)
            assert out.isascii()


# ---- where output goes

OUTPUTS = {
    "show": ["show", sample("linear"), "--output-file"],
    "check": ["check", sample("linear"), "--output-format", "sarif", "--output-file"],
    "opt": ["opt", sample("linear"), "--passes", "lint", "-o"],
    "extract": ["extract", sample("linear"), "models/model.json", "-o"],
    "draw": ["draw", sample("linear"), "-o"],
    "report": ["report", sample("linear"), "-o"],
}


@pytest.mark.parametrize("verb", OUTPUTS)
def test_where_nothing_can_be_written(verb, tmp_path):
    line, before = OUTPUTS[verb], sorted(tmp_path.iterdir())
    places = [tmp_path, tmp_path / "no" / "folder", "", "/proc/none"]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    places += [loop] + (["/dev/full"] if os.path.exists("/dev/full") else [])
    for place in places:
        code, _, err = result(*line, place)
        assert code == 2 and err.startswith("fastexport: ") and "Traceback" not in err, (place, err)
        assert f"{tmp_path}/tmp" not in err
    assert sorted(tmp_path.iterdir()) == [*before, loop]


@pytest.mark.parametrize("verb", OUTPUTS)
def test_a_link_stays_one(verb, tmp_path):
    (tmp_path / "target").write_text("old")
    link = tmp_path / "link"
    link.symlink_to("target")
    code, _, err = result(*OUTPUTS[verb], link)
    assert code == 0, err
    assert link.is_symlink() and (tmp_path / "target").read_bytes() != b"old"


CLOSED = {
    "stdout": (">&-", 2),
    "stderr": ("2>&-", 0),
    "both": (">&- 2>&-", 2),
    "stdin": ("<&-", 0),
    "full": (">/dev/full", 2),
}


@pytest.mark.parametrize("what", CLOSED)
def test_closed_streams(what):
    redirect, code = CLOSED[what]
    for args in (["show"], ["check"], ["weights", "--output-format", "jsonl"]):
        line = " ".join([sys.executable, "-m", "fastexport", *args, str(sample("linear")), redirect])
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
        assert done.returncode == code and "Traceback" not in done.stderr, (args, done)
        assert what != "stdout" or done.stderr == "fastexport: standard output is closed\n"


def test_an_output_that_is_closed_is_told_of_before_any_work(tmp_path):
    path = tmp_path / "m.pt2"
    shutil.copy(sample("linear"), path)
    command = f"{sys.executable} -m fastexport"
    for line in (
        f"opt {path} -o - --passes lint",
        f"weights {path} --safetensors -",
        f"extract {path} models/model.json",
    ):
        done = subprocess.run(["sh", "-c", f"{command} {line} >&-"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (2, "fastexport: standard output is closed\n"), line
    assert path.read_bytes() == sample("linear").read_bytes()
    done = subprocess.run(["sh", "-c", f"{command} check -q {path} >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")  # which has nothing to say


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_an_error_that_can_not_be_told(redirect):
    for args in (["show", "none.pt2"], ["check", "none.pt2"], ["show", "--nonsense"]):
        line = " ".join([sys.executable, "-m", "fastexport", *args, redirect])
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
        assert done.returncode == 2, (args, done)


def test_a_reader_that_goes(tmp_path):
    for args in (["show"], ["draw"], ["weights", "--output-format", "jsonl"]):
        line = " ".join([sys.executable, "-m", "fastexport", *args, str(sample("linear"))])
        done = subprocess.run(["bash", "-c", f"{line} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
        assert done.stdout == "141\n" and done.stderr == "", (args, done)


def test_a_name_that_looks_like_a_chain_of_urls(tmp_path, monkeypatch):
    """A file that is there is not fetched from elsewhere."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(sample("linear"), "simplecache::http:a.pt2")
    for verb in ("check", "show", "stats"):
        code, _, err = result(verb, "simplecache::http:a.pt2")
        assert code == 0, err


@pytest.mark.parametrize("verb", ["check", "show", "stats", "weights"])
def test_a_url_of_no_known_kind(verb):
    code, _, err = result(verb, "nosuch://a/b.pt2")
    assert code == 2 and err.startswith("fastexport: ") and "Traceback" not in err


# ---- messages are not cut where a name has a NUL


def renamed(name, old, new):
    """A sample in whose document one text is another, wherever it is."""

    def change(value):
        if isinstance(value, dict):
            return {change(key): change(inner) for key, inner in value.items()}
        return [change(inner) for inner in value] if isinstance(value, list) else new if value == old else value

    def put(document):
        document["graph_module"] = change(document["graph_module"])

    return with_document(sample(name), put)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("linear", "fc.weight", "fc.a\0b"),
        ("linear", "fc", "f\0c"),
        ("linear", "linear", "lin\0ear"),
        ("linear", "torch.ops.aten.relu.default", "torch.ops.aten\0relu"),
        ("cond_", "true_graph_0", "true\0graph"),
    ],
)
def test_a_name_with_a_nul_is_shown_whole(file, old, new):
    _, out, _ = result("check", "-", "--no-weights", "--strict", stdin=renamed(file, old, new))
    assert f"'{repr(new)[1:-1]}" in out, out


def test_many_nuls_are_cut_like_a_long_name():
    for new in ("a" * 299 + "\0" * 9, "\0" * 5000, "a" * 5000):
        _, out, _ = result("check", "-", "--no-weights", "--strict", stdin=renamed("linear", "fc.weight", new))
        assert "a" * 290 in out or "\\x00" * 70 in out


def test_the_label_of_a_node_has_its_whole_name():
    def change(document):
        node = document["graph_module"]["graph"]["nodes"][0]
        node["name"], node["target"] = "lin\0ear", "os.system"

    _, out, _ = result("check", "-", "--no-weights", stdin=with_document(sample("linear"), change))
    assert r"nodes[0].target node lin\x00ear: 'os.system'" in out
    assert r"node lin\x00ear: the node is called 'lin\x00ear' but its result 'linear'" in out


def test_the_label_of_a_node_that_was_edited():
    import fastexport

    ep = fastexport.load(sample("linear"))
    ep.graph.node("linear").name = "lin\0ear"
    (fault,) = ep.verify(all=True)
    assert (fault.code, fault.node) == ("FX302", r"lin\x00ear")
    ep.graph.node("relu").append(ep.graph.node("lin\0ear"))
    assert r"node 'relu' uses 'lin\x00ear' before" in "".join(fault.message for fault in ep.verify(all=True))


# ---- paths in what machines read


def test_paths_in_sarif_and_github(tmp_path, monkeypatch):
    """A URI has all bytes of a name, whatever they are and wherever the source is; an annotation has no loose mark."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name, uri in (
        ("a b#?%&.pt2", "a%20b%23%3F%25%26.pt2"),
        (os.fsdecode(b"\xff.pt2"), "%FF.pt2"),
        ("\u00e9.pt2", "%C3%A9.pt2"),
        ("c:d,e.pt2", "c%3Ad%2Ce.pt2"),
        ("-x.pt2", "-x.pt2"),
    ):
        shutil.copy(HOSTILE / "E04_empty_weight.pt2", name)
        shutil.copy(HOSTILE / "E04_empty_weight.pt2", os.path.join("src", name))
        for args in ([], ["--source-root", "src"]):
            for folder in ("", "src"):  # from the current folder on, wherever the source is
                path = os.path.join(folder, name)
                _, out, _ = result("check", *args, "--output-format", "sarif", "--", path)
                artifacts = json.loads(out)["runs"][0]["artifacts"]
                assert [artifact["location"]["uri"] for artifact in artifacts] == [os.path.join(folder, uri)]
        _, out, _ = result("check", "--output-format", "github", "--", name)
        properties = out.splitlines()[0].removeprefix("::error ").partition("::")[0]
        assert properties.count(",") == 1 and ":" not in properties


@pytest.mark.parametrize("form", ["json", "sarif", "github", "junit"])
def test_urls_are_told_as_they_are(form):
    _, out, _ = result("check", "nosuch://host/a//b.pt2?x=1", "--output-format", form)
    url = "nosuch%3A//host/a//b.pt2?x=1" if form == "github" else "nosuch://host/a//b.pt2?x=1"
    assert url in out and "nosuch:/host" not in out
