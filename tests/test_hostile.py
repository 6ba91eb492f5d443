"""Damaged and hostile files: each has its right outcome, and none crashes, hangs or runs anything."""

import json
import os

import pytest

import fastexport
from fastexport import FormatError
from pt2_files import HOSTILE, sample, with_document

CASES = json.loads((HOSTILE / "expected.json").read_text())


def outcome(path):
    try:
        return fastexport.load(path), None
    except FormatError as error:
        return None, error


def normal(path):
    return (path or "").replace('"', "'")


@pytest.mark.parametrize("name", CASES)
def test_outcome(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what a file makes would show here
    case = CASES[name]
    ep, error = outcome(HOSTILE / f"{name}.pt2")
    assert os.listdir(tmp_path) == []
    want = case["outcome"]
    if case.get("also_ok") or case.get("also_error") or want == "limit_or_ok":
        want = "error" if error else "ok"
    if want == "ok":
        assert error is None, f"{error} {error and error.json_path}"
        check_warning(case, ep)
        return
    assert error is not None, f"loads, but: {case['title']}"
    check_error(case, error)


def check_warning(case, ep):
    if case["outcome"] == "ok" and case.get("warn"):
        assert ep.faults, f"nothing is noted; wanted: {case['warn']}"


def check_error(case, error):
    if case["outcome"] == "ok":  # both are right, and this answer is not described
        return
    kinds = {fault.kind for fault in error.faults if fault.is_error}
    assert case["kind"] in kinds or case["kind"] == "limit" or case.get("also_error") or case.get("also_ok")
    entries = [fault.entry or "" for fault in error.faults]
    if case.get("entry"):
        assert any(case["entry"].split("\\")[0].rstrip("/") in entry or entry in case["entry"] for entry in entries), (
            entries
        )
    if case.get("path"):
        paths = [normal(fault.json_path) for fault in error.faults]
        assert any(normal(case["path"]) in path for path in paths), (case["path"], paths, str(error))
    for token in case.get("tok") or ():
        text = "".join(map(str, error.faults))
        assert token.encode("ascii", "backslashreplace").decode() in text or ascii(token)[1:-1] in text, str(error)


def test_messages_are_one_printable_line():
    for name in CASES:
        _, error = outcome(HOSTILE / f"{name}.pt2")
        if error is not None:
            assert str(error).isprintable(), name


def test_every_prefix_is_an_error():
    data = sample("linear").read_bytes()
    for n in range(0, len(data), 7):
        with pytest.raises(FormatError):
            fastexport.load(data[:n])


@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_no_flipped_byte_passes_as_another_program(flip):
    data = sample("linear").read_bytes()
    good = fastexport.load(data)
    want = str(good), {name: t.tobytes() for name, t in good.state_dict.items()}
    for i in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[i] ^= flip
        ep, error = outcome(damaged)
        if error is None:
            assert (str(ep), {name: t.tobytes() for name, t in ep.state_dict.items()}) == want, i


def test_every_flipped_byte_of_data_is_an_error():
    import zipfile

    path = sample("linear")
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        spans = [(info.header_offset, info.file_size, info.filename) for info in archive.infolist()]
    for offset, size, name in spans:
        start = offset + 30 + int.from_bytes(data[offset + 26 : offset + 28], "little")
        start += int.from_bytes(data[offset + 28 : offset + 30], "little")
        for i in range(start, start + size, max(1, size // 20)):
            damaged = bytearray(data)
            damaged[i] ^= 0x10
            with pytest.raises((FormatError, fastexport.VerifyError)):
                ep = fastexport.load(damaged)
                ep.verify()
                ep._program.archive.check(name.split("/", 1)[1])


def first_call(document):
    return document["graph_module"]["module_call_graph"][0]["signature"]


def refused(name, change):
    with pytest.raises(FormatError) as caught:
        fastexport.load(with_document(sample(name), change))
    return caught.value


def test_a_parameter_that_is_code():
    def change(document):
        first_call(document)["forward_arg_names"] = ["x=print('ran')"]

    error = refused("linear", change)
    assert error.kind == "name"
    assert error.json_path.endswith("module_call_graph[0].signature.forward_arg_names[0]")


def test_a_keyword_that_leaves_its_quotes():
    """torch puts the names of keyword arguments between quotes, into code that it runs."""

    def change(document):
        call = first_call(document)
        spec = json.loads(call["in_spec"])
        kwargs = spec[1]["children_spec"][1]
        keys = json.loads(kwargs["context"])
        keys[0] = "a': print('ran'), 'b"
        kwargs["context"] = json.dumps(keys)
        call["in_spec"] = json.dumps(spec)

    error = refused("kwargs_", change)
    assert error.kind == "treespec"
    assert error.json_path.endswith("module_call_graph[0].signature.in_spec")


@pytest.mark.parametrize("index", [-1, 128, 2**31, -(2**63)])
def test_devices_that_cannot_be(index):
    def change(document):
        next(iter(document["graph_module"]["graph"]["tensor_values"].values()))["device"]["index"] = index

    error = refused("linear", change)
    assert error.kind == "json_range"
    assert error.json_path.endswith("device.index")


def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not fastexport.is_pt2(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        fastexport.load(tmp_path / "pipe")


def test_a_keyword_argument_that_is_code():
    def change(document):
        for node in document["graph_module"]["graph"]["nodes"]:
            if "higher_order" in node["target"]:
                node["inputs"][-1] |= {"name": "a=print('ran')", "kind": 2}

    error = refused("cond_", change)
    assert error.kind == "name"
    assert error.json_path.endswith(".name")
