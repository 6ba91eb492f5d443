"""Every page of `fastexport explain`: its example is what a file gives that has this fault."""

import io
import json
import os
import re
import subprocess
import sys
import zipfile

import pytest

import fastexport
from commands import run
from fastexport._codes import EXPLANATIONS
from fastexport._command.formats.common import described
from fastexport._findings import check_file
from pt2_files import HOSTILE, sample, with_document

# Of the hostile files one for each code.
FILES = {
    "FX101": "Z08_cut_at_cd",
    "FX102": "Z23_weight_bit",
    "FX103": "Z77_aes",
    "FX104": "Z71_bomb_json",
    "FX110": "E13_models_stray",
    "FX111": "Z53_case_only",
    "FX112": "Z49_dup_same",
    "FX113": "E27_path_0",
    "FX114": "E05_format_0",
    "FX115": "E11_unknown_entries",
    "FX201": "E03_empty_models_model.json",
    "FX203": "T_opset_version_item",
    "FX204": "G94_range_big",
    "FX205": "M_graph_module",
    "FX206": "G01_union_two",
    "FX207": "E56_dtype_99",
    "FX208": "J43_unknown_keys",
    "FX302": "G141_sub_name_0",
    "FX303": "G51_target_0",
    "FX304": "G51_target_11",
    "FX305": "G131_rank",
    "FX306": "G100_expr_code",
    "FX307": "G105_expr_deep",
    "FX310": "G34_pos_after_kw",
    "FX401": "E32_is_param_false",
    "FX402": "G150_spec_rubbish",
    "FX403": "G170_md_nnstack",
    "FX501": "E04_empty_weight",
    "FX502": "E16_sample_inputs_code",
}


def deep(document):
    inner = []
    for _ in range(600):
        inner = [inner]
    document["zzz"] = inner


def undefined(document):
    document["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = {"as_tensor": {"name": "p"}}


def no_value(document):
    expression = {"expr_str": "Add(Symbol('u5', integer=True), Integer(1))", "hint": None}
    document["graph_module"]["graph"]["tensor_values"]["relu"]["sizes"][0] = {"as_expr": expression}


def in_place(document):
    document["verifiers"] = ["ATEN"]
    document["graph_module"]["graph"]["nodes"][1]["target"] = "torch.ops.aten.relu_.default"


def guard(document):
    document["guards_code"] = ["__import__('os').mkdir('x')"]


def own_class(document):
    spec = {"type": "shop.Basket", "context": "null", "children_spec": [LEAF]}
    document["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, spec])


LEAF = {"type": None, "context": None, "children_spec": []}
CHANGES = {
    "FX202": deep,
    "FX301": undefined,
    "FX308": no_value,
    "FX309": in_place,
    "FX404": guard,
    "FX405": own_class,
}


def of_hostile_file(code):
    return check_file(HOSTILE / f"{FILES[code]}.pt2")


def of_change(code):
    return check_file("-", data=with_document(sample("linear"), CHANGES[code]), weights=False)


def is_message(example, message):
    return message == example or (example.endswith("...") and message.startswith(example[:-3]))


@pytest.mark.parametrize("code", [*FILES, *CHANGES])
def test_an_example_is_a_message_of_its_code(code):
    report = of_hostile_file(code) if code in FILES else of_change(code)
    found = [described(finding) for finding in report.findings if finding.fault.code == code]
    assert any(is_message(EXPLANATIONS[code].example, message) for message in found), found


def test_the_example_of_a_file_that_is_not_there():
    (finding,) = check_file("none.pt2").findings
    assert (finding.fault.code, described(finding)) == ("FX105", EXPLANATIONS["FX105"].example)


def test_classes_that_torch_alone_does_not_know():
    """Those files of which torch says so when nothing but torch is imported."""
    pytest.importorskip("torch")
    script = (
        "import sys, torch\nfor path in sys.argv[1:]:\n  try: torch.export.load(path)\n  except Exception: print(path)"
    )
    paths = [str(sample(name)) for name in ("dataclass_io", "nested_inputs", "kwargs_", "none_outputs", "linear")]
    done = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True)
    found = [path for path in paths if "FX405" in {f.fault.code for f in check_file(path).findings}]
    assert done.stdout.split() == found == paths[:2]
    assert run("check", "--strict", paths[2]) == (f"{paths[2]}: ok\n", "")
    run("check", paths[1], "--fail-on", "FX405", code=1)


def test_a_class_is_told_of_until_the_program_is_without_it(tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(with_document(sample("linear"), own_class))
    (fault,) = fastexport.load(path).verify(all=True)
    assert fault.code == "FX405" and "'shop.Basket'" in fault.message
    run("extract", path, "--outputs", "relu", "-o", tmp_path / "part.pt2")
    assert run("check", "--strict", tmp_path / "part.pt2")[0].endswith(": ok\n")


def test_a_zip_archive_of_something_else_is_told_of_as_one(tmp_path):
    path = tmp_path / "letter.pt2"
    for entries, more in (
        ({"word/document.xml": b"<x/>"}, ""),
        ({"m/data.pkl": b"x", "m/version": b"3"}, "; torch.save"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in entries.items():
                archive.writestr(name, data)
        (finding,) = check_file(path).findings
        assert (
            finding.fault.code == "FX111" and f"this is a zip archive, but no .pt2 file{more}" in finding.fault.message
        )
        error = run("show", path, code=2)[1]
        assert "no .pt2 file" in error and "more" not in error


def test_which_models_there_are_is_told(tmp_path):
    path = tmp_path / "two.pt2"
    with zipfile.ZipFile(sample("linear")) as one, zipfile.ZipFile(path, "w") as two:
        for entry in one.infolist():
            for model in ("a", "b"):
                name = re.sub(r"/model(?=[._][^/]*$)", f"/{model}", entry.filename)
                if name not in two.namelist():
                    two.writestr(name, one.read(entry))
    error = run("show", path, code=2)[1]
    assert "the archive has 2 models, none called 'model': name one of 'a', 'b' by model= or --model" in error
    assert run("show", path, "--model", "b")[0] == run("show", sample("linear"))[0]


def test_the_example_of_a_dialect(monkeypatch):
    from fastexport import _verifier

    monkeypatch.setattr(_verifier, "_registry", dict(_verifier._registry))

    class Edge(fastexport.Verifier):
        dialect = "EDGE"

        def check_valid_op(self, op):
            if "relu" in str(op):
                raise fastexport.VerifyError("only linear operators run there")

    (fault,) = fastexport.load(sample("linear")).verify(dialect="EDGE", all=True)
    assert str(fault) == f"FX311 {EXPLANATIONS['FX311'].example}"


def test_the_example_of_torchs_verifier(monkeypatch):
    torch = pytest.importorskip("torch")
    from fastexport import _torch_verifier

    monkeypatch.setattr(_torch_verifier, "_is_torchs", lambda: False)
    program = torch.export.load(sample("linear"))
    (relu,) = [node for node in program.graph.nodes if node.name == "relu"]
    relu.target = print
    (fault,) = fastexport.from_export(program).verify(all=True)
    assert fault.code == "FX400" and is_message(EXPLANATIONS["FX400"].example, fault.message)


def test_operators_of_pt2e_are_told_of():
    """torch knows them only after another import; each is told of once."""
    torch = pytest.importorskip("torch")
    name = "torch.ops.quantized_decomposed.dequantize_per_tensor.default"

    def quantized(document):
        for node in document["graph_module"]["graph"]["nodes"]:
            node["target"] = name

    report = check_file("-", data=with_document(sample("linear"), quantized), weights=False)
    (warning,) = [finding.fault for finding in report.findings if finding.fault.code == "FX304"]
    assert not warning.is_error and "torch.ao.quantization.fx._decomposed" in warning.message
    script = "import torch\nprint(hasattr(torch.ops.quantized_decomposed, 'dequantize_per_tensor'))"
    assert torch and subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


def test_a_range_of_nothing_is_told_of_once(tmp_path):
    def stray(document):
        document["range_constraints"]["u7"] = {"min_val": 0, "max_val": 9}

    report = check_file("-", data=with_document(sample("linear"), stray))
    (finding,) = report.findings
    assert finding.fault.code == "FX305" and not finding.fault.is_error and "torch drops it" in finding.fault.message


def test_a_file_that_can_not_be_opened_is_told_of_whatever_is_selected(tmp_path):
    path = HOSTILE / "Z08_cut_at_cd.pt2"
    for options in (("--select", "FX3"), ("--ignore", "FX1"), ("--select", "FX3", "--quiet")):
        assert "error FX101" in run("check", path, *options, code=1)[0]
    assert run("check", HOSTILE / "E05_format_0.pt2", "--select", "FX3")[0].endswith(": ok\n")


def bomb(size, name="extra/bomb"):
    """A program with an entry that inflates to so many bytes of zeros."""
    file = io.BytesIO()
    with zipfile.ZipFile(sample("linear")) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.infolist():
            new.writestr(entry, old.read(entry))
        root = old.namelist()[0].split("/")[0]
        new.writestr(f"{root}/{name}", bytes(size), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def test_entries_beyond_the_limits_are_listed_and_not_inflated(tmp_path):
    path, out = tmp_path / "m.pt2", tmp_path / "out.pt2"
    path.write_bytes(bomb(80 << 20))
    for options in ((), ("--no-weights",)):
        text = run("check", path, *options, code=1)[0]
        assert text.count("FX104") == 1 and "extra/bomb: " in text and "more than the limit of 1 to 1000" in text
    assert "FX104" in run("opt", path, "--passes", "lint", "-o", out, code=2)[1]
    assert os.listdir(tmp_path) == ["m.pt2"]
    with pytest.raises(fastexport.FormatError) as caught:
        fastexport.load(path, verify=False).save(out)
    assert (caught.value.kind, caught.value.entry) == ("limit", "extra/bomb")
    program = fastexport.load(path, limits={"inflate_ratio": 0})
    assert program.verify(all=True) == []
    program.save(out)
    assert out.stat().st_size > 80 << 20


def test_weights_may_be_all_zeros(tmp_path):
    """Which deflate to less than a thousandth."""
    path = tmp_path / "m.pt2"
    path.write_bytes(bomb(1 << 20, "data/weights/weight_9"))
    assert "FX104" not in run("check", path)[0]


def test_every_code_has_its_page_and_an_example_that_is_tried():
    apart = {"FX105", "FX311", "FX400"}
    assert set(EXPLANATIONS) == set(fastexport._core.fault_kinds()) == {*FILES, *CHANGES, *apart}
    for page in EXPLANATIONS.values():
        for text in (page.meaning, page.why, page.remedy):
            assert text.endswith((".", "...", ")")) and "  " not in text
    assert run("explain")[0].count("\n") == len(EXPLANATIONS)
