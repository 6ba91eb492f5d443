"""Weights to safetensors files and back, held against the package safetensors itself."""

import array
import json
import os
import stat
import sys

import pytest
import safetensors.numpy
import safetensors.torch
import torch

import fastexport
from fastexport import from_safetensors, load, open_weights, to_safetensors
from fastexport._core import Storage, Tensor
from fastexport._dtypes import DType
from fastexport._errors import FormatError
from fastexport._weights import SAFETENSORS_NAMES
from helpers import run_python
from pt2_files import CURRENT, OLD, label, sample

DTYPES = sorted(set(SAFETENSORS_NAMES) - {"complex32", "complex128"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.safetensors"


def plain(program):
    """The state dict without what is no tensor, or has no elements to write."""
    items = program.state_dict.items()
    return {name: value for name, value in items if isinstance(value, Tensor) and value.storage is not None}


@pytest.mark.parametrize("sample_path", CURRENT, ids=label)
def test_every_sample_goes_there_and_back(sample_path, path):
    state = plain(load(sample_path, verify=False))
    to_safetensors(state, path)
    theirs = safetensors.torch.load_file(path)
    ours = from_safetensors(path)
    assert set(theirs) == set(ours) == set(state)
    for name, tensor in state.items():
        wanted = tensor.torch().detach()
        assert theirs[name].dtype == wanted.dtype and theirs[name].shape == wanted.shape
        assert ours[name].tobytes() == tensor.tobytes() and ours[name].dtype is tensor.dtype
        assert ours[name].shape == tensor.shape and ours[name].is_contiguous


@pytest.mark.parametrize("name", DTYPES)
def test_every_type(name, path):
    data = bytes([0, 1] * 8)
    tensor = Tensor(Storage(data), DType(name), (16 // DType(name).itemsize,))
    empty, scalar = Tensor(Storage(b""), DType(name), (0, 3)), Tensor(Storage(data), DType(name), ())
    to_safetensors({"t": tensor, "e": empty, "s": scalar}, path)
    with safetensors.safe_open(path, "pt") as f:
        assert f.get_slice("t").get_dtype() == SAFETENSORS_NAMES[name]
        with open_weights(sample("linear")) as other:
            assert type(other.get_slice("fc.bias").get_dtype()) is str
    back = from_safetensors(path)
    assert back["t"].tobytes() == data and back["e"].shape == (0, 3) and back["s"].shape == ()


@pytest.mark.parametrize("name", ["complex32", "complex128"])
def test_types_that_safetensors_lacks(name, path):
    with pytest.raises(TypeError, match=f"'t' can't be written: safetensors has no torch.{name}"):
        to_safetensors({"t": Tensor(Storage(bytes(16)), DType(name), (1,))}, path)
    assert not path.exists()


def test_views_are_written_in_order(path):
    base = array.array("f", range(12))
    views = {
        "transposed": Tensor(Storage(base), DType("float32"), (4, 3), (1, 4)),
        "expanded": Tensor(Storage(base), DType("float32"), (2, 3), (0, 1), 2),
        "later": Tensor(Storage(base), DType("float32"), (2,), (1,), 7),
    }
    to_safetensors(views, path)
    theirs = safetensors.numpy.load_file(path)
    assert {name: value.tolist() for name, value in theirs.items()} == {n: v.tolist() for n, v in views.items()}


def test_programs_files_and_mappings(path):
    program = load(sample("linear"))
    contents = set()
    with open_weights(sample("linear")) as f:
        for weights in (program, f, program.state_dict, dict(program.state_dict)):
            to_safetensors(weights, path, metadata={})
            contents.add(path.read_bytes())
    module = {name: value.torch() for name, value in program.state_dict.items()}
    to_safetensors(module, path)
    contents.add(path.read_bytes())
    assert len(contents) == 1
    to_safetensors(load(OLD[0]), path)
    assert set(from_safetensors(path)) == set(load(OLD[0]).state_dict)


def test_a_program_of_torch(path):
    exported = torch.export.export(torch.nn.Linear(3, 2), (torch.randn(1, 3),))
    to_safetensors(exported, path)
    assert torch.equal(from_safetensors(path)["weight"].torch(), exported.state_dict["weight"])


def test_constants_are_written_when_asked_for(path):
    candidates = (load(p, verify=False) for p in CURRENT)
    program = next(p for p in candidates if any(isinstance(value, Tensor) for value in p.constants.values()))
    constants = {name for name, value in program.constants.items() if isinstance(value, Tensor)}
    to_safetensors(program.constants, path)
    assert set(from_safetensors(path)) == constants
    to_safetensors(program, path, constants=True)
    assert constants <= set(from_safetensors(path))
    to_safetensors(program, path)
    assert not constants & set(from_safetensors(path))


def test_metadata(path, tmp_path):
    load(sample("linear")).save(tmp_path / "m.pt2", extra_files={"note": "é"})
    to_safetensors(load(tmp_path / "m.pt2"), path)
    with safetensors.safe_open(path, "pt") as f:
        assert f.metadata() == {"note": "é"}
    to_safetensors(load(tmp_path / "m.pt2"), path, metadata={"format": "pt"})
    with safetensors.safe_open(path, "pt") as f:
        assert f.metadata() == {"format": "pt"}


def test_ties_are_copied_or_noted(path):
    program = load(sample("shared_weights"))
    to_safetensors(program, path)
    assert set(safetensors.torch.load_file(path)) == set(program.state_dict)
    to_safetensors(program, path, ties="once", metadata={"a": "b"})
    names = set(safetensors.torch.load_file(path))
    with safetensors.safe_open(path, "pt") as f:
        aliases = {name: kept for name, kept in f.metadata().items() if name != "a"}
    assert names | set(aliases) == set(program.state_dict) and aliases
    back = from_safetensors(path)
    assert set(back) == set(program.state_dict)
    for alias, kept in aliases.items():
        assert back[alias] is back[kept] and back[alias].tobytes() == program.state_dict[alias].tobytes()
    with pytest.raises(ValueError, match="ties is"):
        to_safetensors(program, path, ties="drop")


def test_weights_of_a_file_become_a_programs(path):
    program, other = load(sample("linear")), load(sample("linear"))
    to_safetensors({"fc.bias": array.array("f", [1, 2, 3])}, path)
    got = from_safetensors(path, into=program)
    assert program.state_dict["fc.bias"].tolist() == [1.0, 2.0, 3.0] and program.state_dict["fc.bias"].is_param
    assert list(got) == ["fc.bias"] and program.verify() == []
    to_safetensors({"fc.bias": array.array("f", [9, 9, 9]), "nothing": array.array("f", [1])}, path)
    with pytest.raises(KeyError, match="nothing"):
        from_safetensors(path, into=other)
    assert other.state_dict.is_unchanged()


@pytest.mark.parametrize("mmap", [True, False])
def test_what_is_read_is_not_copied(path, mmap):
    to_safetensors({"b": array.array("b", [1]), "w": array.array("f", range(1000))}, path)
    tensors = from_safetensors(path, mmap=mmap)
    assert tensors["w"].tolist() == list(range(1000)) and memoryview(tensors["w"]).readonly
    storages = [tensor.storage for tensor in tensors.values()]
    assert not any(storage.is_mapped for storage in storages)  # of a buffer, which may be a mapping itself
    path.unlink()
    assert tensors["b"].tolist() == [1]


def test_a_gap_or_a_lie_in_the_header_is_refused(path):
    to_safetensors({"w": array.array("f", range(4))}, path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")

    def write(change):
        header = json.loads(data[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])

    for change in (
        lambda h: h["w"].update(data_offsets=[4, 20]),
        lambda h: h["w"].update(data_offsets=[0, 12]),
        lambda h: h["w"].update(shape=[5]),
        lambda h: h["w"].update(dtype="F99"),
        lambda h: h.update(v=h["w"]),
    ):
        write(change)
        with pytest.raises(FormatError):
            from_safetensors(path)
    for cut in (0, 4, 8, 20, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(FormatError):
            from_safetensors(path)
    with pytest.raises(FileNotFoundError):
        from_safetensors(path.with_name("none"))


def test_types_that_tensors_lack(path):
    header = json.dumps({"w": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x12")
    with pytest.raises(TypeError, match="'w' has elements of type F4"):
        from_safetensors(path)


# ---- whole or not at all ----


def test_a_failed_write_leaves_the_file_as_it_was(path, monkeypatch):
    to_safetensors({"w": array.array("f", [1])}, path)
    before = path.read_bytes()

    def fail(*args):
        raise OSError("the disk is full")

    for owner, name in ((safetensors, "serialize_file"), (os, "fsync"), (os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            with pytest.raises(OSError, match="full"):
                to_safetensors({"w": array.array("f", [2])}, path)
        assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]
    with pytest.raises(FileNotFoundError):
        to_safetensors({"w": array.array("f", [2])}, path.parent / "none" / "w")


def test_errors_of_the_system_are_told_as_such(path, monkeypatch):
    """safetensors has a class of its own for them, with the number in its text."""

    def fail(*args):
        raise safetensors.SafetensorError(text)

    monkeypatch.setattr(safetensors, "serialize_file", fail)
    text = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(OSError, match="No space left") as caught:
        to_safetensors({"w": array.array("f", [2])}, path)
    assert (caught.value.errno, caught.value.filename) == (28, str(path))
    text = "Error while serializing: something else"
    with pytest.raises(OSError, match="something else"):
        to_safetensors({"w": array.array("f", [2])}, path)
    assert os.listdir(path.parent) == []


def test_a_path_is_no_program(path):
    for given in (str(path), path, b"x"):
        with pytest.raises(TypeError, match="open_weights"):
            to_safetensors(given, path)


def test_tensors_that_torch_has_not_worked_out(path):
    torch = pytest.importorskip("torch")
    value = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    given = {"conj": value.conj(), "neg": value.conj().imag, "neg_view": torch._neg_view(torch.ones(2))}
    to_safetensors(given, path)
    found = from_safetensors(os.fsencode(path))
    assert {name: tensor.tolist() for name, tensor in found.items()} == {k: v.tolist() for k, v in given.items()}


def test_what_has_no_place_in_a_file(path):
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="'w' can't be written"):
        to_safetensors({"w": torch.eye(2).to_sparse()}, path)
    with pytest.raises(ValueError, match="'__metadata__'"):
        to_safetensors({"__metadata__": torch.eye(2)}, path)
    assert os.listdir(path.parent) == []


def test_modes_and_links_stay(path):
    to_safetensors({"w": array.array("f", [1])}, path)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o600)
    link = path.with_name("link")
    link.symlink_to(path)
    to_safetensors({"w": array.array("f", [2])}, link)
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert from_safetensors(path)["w"].tolist() == [2.0]


def test_onto_the_file_that_it_came_from(path):
    to_safetensors({"w": array.array("f", range(100))}, path)
    tensors = from_safetensors(path)
    to_safetensors(tensors, path)
    assert from_safetensors(path)["w"].tolist() == tensors["w"].tolist() == list(range(100))


# ---- what is no tensor, or not there ----


def test_values_that_can_not_be_written(path):
    for value, error in ((object(), TypeError), (Tensor(None, DType("float32"), (2,), device="meta"), ValueError)):
        with pytest.raises(error, match="'w'"):
            to_safetensors({"w": value}, path)
    bools = Tensor(Storage(b"\2"), DType("bool"), (1,))
    with pytest.raises(FormatError, match="bools"):
        to_safetensors({"w": bools}, path)
    assert not path.exists()


def test_writing_needs_no_numpy_and_no_torch(tmp_path):
    code = """
        import sys
        sys.modules["numpy"] = sys.modules["torch"] = None
        import fastexport
        path = sys.argv[2]
        fastexport.to_safetensors(fastexport.load(sys.argv[1]), path)
    """
    run_python(code, str(sample("linear")), str(tmp_path / "w"))
    assert set(from_safetensors(tmp_path / "w")) == {"fc.weight", "fc.bias"}


def test_safetensors_is_named_when_it_is_missing(monkeypatch, path):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for call in (lambda: to_safetensors({}, path), lambda: fastexport.from_safetensors(sample("linear"))):
        with pytest.raises(ImportError, match=r"pip install 'fastexport\[safetensors\]'"):
            call()


@pytest.mark.parametrize("weights", [None, 5, ["w"], object()], ids=["None", "int", "list", "object"])
def test_what_has_no_weights_is_refused(weights, tmp_path):
    with pytest.raises(TypeError, match=f"mapping of names to tensors or arrays, not {type(weights).__name__}"):
        fastexport.to_safetensors(weights, tmp_path / "none.safetensors")
    assert not list(tmp_path.iterdir())


def test_modules_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 3)
    fastexport.to_safetensors(layer, tmp_path / "layer.safetensors")
    found = fastexport.from_safetensors(tmp_path / "layer.safetensors")
    assert {name: found[name].tolist() for name in found} == {
        name: value.tolist() for name, value in layer.state_dict().items()
    }
