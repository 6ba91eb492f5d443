"""What a pickle in a file would call is found wherever it is and whatever is around it, without unpickling it."""

import io
import os
import pickle
import resource
import struct
import zipfile

import pytest

from fastexport.batch import check_one
from pt2_files import MIDDLE, OLD, SAMPLES, sample

SAMPLE_INPUTS = "data/sample_inputs/model.pt"
CALLED = f"{os.name}.system"
MIB = 1 << 20


class Hostile:
    """Pickled, it is a call."""

    def __reduce__(self):
        return os.system, ("true",)


def plain(protocol):
    return pickle.dumps(Hostile(), protocol)


def text8(text):
    return b"\x8d" + struct.pack("<Q", len(text)) + text


CALL = f"c{os.name}\nsystem\n(X\x04\x00\x00\x00truetR.".encode()
PADDED = {
    **{f"protocol {n}": plain(n) for n in range(6)},
    "proto opcodes": b"\x80\x02" * (5 * MIB // 2) + CALL,
    "pushes and pops": b"N0" * (5 * MIB // 2) + CALL,
    "a long text": text8(b"x" * 6 * MIB) + b"0" + CALL,
    "a long line": b"V" + b"x" * 5 * MIB + b"\n0" + CALL,
    "long bytes": b"\x8e" + struct.pack("<Q", 5 * MIB) + bytes(5 * MIB) + b"0" + CALL,
    "frames": (b"\x95" + struct.pack("<Q", 1) + b"N0") * (5 * MIB // 11) + CALL,
    "padded behind": CALL + bytes(6 * MIB),
    "in a list": pickle.dumps([b"x" * 5 * MIB, Hostile()], 5),
    "at the edge of a piece": text8(b"x" * (16384 - 9 - 5)) + b"0" + CALL,
}


def saved(data, method=zipfile.ZIP_STORED, more=()):
    """A torch.save file with such a pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/version", "3\n")
        for name, content in more:
            file.writestr(name, content)
    return out.getvalue()


def replaced(path, entry, data, method=zipfile.ZIP_STORED):
    """The bytes of a sample, of which an entry is another."""
    out, found = io.BytesIO(), False
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            mine = info.filename.endswith(entry)
            found |= mine
            new.writestr(info.filename, data if mine else old.read(info), method if mine else zipfile.ZIP_STORED)
    assert found
    return out.getvalue()


def said(source):
    return [fault.message for fault in check_one(source).faults if fault.code == "FX502"]


@pytest.fixture
def file(tmp_path):
    def make(data):
        path = tmp_path / "a.pt2"
        path.write_bytes(data)
        return path

    return make


@pytest.mark.parametrize("how", PADDED)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
def test_padding_hides_nothing(how, method, file):
    inner = saved(PADDED[how], method)
    data = replaced(sample("linear"), SAMPLE_INPUTS, inner)
    assert said(data) == said(file(data)) == [f"sample inputs: the pickle calls {CALLED}"]


def test_large_files_around_the_pickle(file):
    """The entry is large, the pickle small: the usual form of weights in layout B, and of hidden calls."""
    inner = saved(CALL, more=[("archive/data/0", bytes(9 * MIB))])
    data = replaced(sample("linear"), SAMPLE_INPUTS, inner)
    assert said(data) == said(file(data)) == [f"sample inputs: the pickle calls {CALLED}"]
    deflated = replaced(sample("linear"), SAMPLE_INPUTS, inner, zipfile.ZIP_DEFLATED)
    assert said(deflated) == said(file(deflated)) == [f"sample inputs: the pickle calls {CALLED}"]


def test_a_deflated_file_too_large_to_be_inflated_is_told_of(file):
    noise = os.urandom(MIB) * 66
    data = replaced(
        sample("linear"), SAMPLE_INPUTS, saved(CALL, more=[("archive/data/0", noise)]), zipfile.ZIP_DEFLATED
    )
    (message,) = said(data)
    assert message.startswith("sample inputs: not looked into: ")


def test_everywhere(file):
    """Weights, constants and inputs of all layouts."""
    for path in (MIDDLE[0], OLD[0]):
        with zipfile.ZipFile(path) as archive:
            pickles = [name.split("/", 1)[-1] for name in archive.namelist() if name.endswith(".pt")]
        assert len(pickles) == 3
        for entry in pickles:
            for data in (CALL, PADDED["a long text"]):
                (message,) = said(replaced(path, entry, saved(data)))
                assert message.endswith(f"the pickle calls {CALLED}"), (path, entry)


def test_pickled_weights_after_more_records_than_are_read(file):
    """The limit of what is read of records at loading is no place to hide behind."""
    hostile = SAMPLES.parent / "hostile" / "E17_weight_pickle_code.pt2"
    with zipfile.ZipFile(hostile) as archive:
        name = next(n for n in archive.namelist() if archive.read(n)[:2] == b"PK" and "/weights/" in n)
    (message,) = said(replaced(hostile, name, saved(CALL, more=[("archive/data/0", bytes(65 * MIB))])))
    assert message.endswith(f"the pickle calls {CALLED}")


def stack_global(*before):
    return b"\x80\x04" + b"".join(before) + b"\x93(X\x04\x00\x00\x00truetR."


def short(text):
    return b"\x8c" + bytes([len(text)]) + text


SYSTEM = [short(os.name.encode()), short(b"system")]
LURE = [short(b"collections"), short(b"OrderedDict")]


@pytest.mark.parametrize(
    "data",
    [
        stack_global(*SYSTEM, *LURE, b"00"),
        stack_global(*[part + b"\x94" for part in SYSTEM], b"00", *LURE, b"00", b"h\x00h\x01"),
        stack_global(SYSTEM[0] + b"q\x05", SYSTEM[1] + b"q\x06", *[part + b"\x94" for part in LURE], b"h\x05h\x06"),
        stack_global(
            LURE[0], b"\x94q\x05", LURE[1], b"\x94", b"0000", SYSTEM[0], b"q\x00", SYSTEM[1], b"q\x01h\x00h\x01"
        ),
        b"\x80\x04ctorch._utils\n_rebuild_tensor.__globals__.get\n(X\x02\x00\x00\x00ostR.",
        b"\x80\x04ctorch\nfloat32.__class__\n(X\x02\x00\x00\x00ostR.",
        b"\x80\x02\x82\x01.",
    ],
    ids=["popped", "memo", "put", "put over", "attribute of a function", "attribute of a dtype", "extension"],
)
def test_a_lure_hides_no_call(data):
    assert said(replaced(sample("linear"), SAMPLE_INPUTS, saved(data)))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_what_torch_saves_is_harmless(protocol):
    torch = pytest.importorskip("torch")
    out = io.BytesIO()
    values = {f"layer.{i}.weight": torch.nn.Parameter(torch.ones(i)) for i in range(300)}
    torch.save((tuple(values.values()), values, torch.float32, torch.uint8), out, pickle_protocol=protocol)
    assert said(replaced(sample("linear"), SAMPLE_INPUTS, out.getvalue())) == []


def test_half_a_pickle():
    (message,) = said(replaced(sample("linear"), SAMPLE_INPUTS, saved(b"\x80\x02]q\x00")))
    assert message == "sample inputs: this is no whole pickle"


def test_memory_is_bounded(file):
    path = file(replaced(sample("linear"), SAMPLE_INPUTS, saved(text8(bytes(64 * MIB)) + b"0" + CALL)))
    check_one(path, weights=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert said(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024
