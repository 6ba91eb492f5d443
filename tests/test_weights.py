"""Weights by the verbs of safetensors, their statistics, and that large ones cost no memory."""

import array
import hashlib
import io
import json
import math
import pickle
import random
import subprocess
import sys
import zipfile
import zlib

import ml_dtypes
import numpy
import pytest
import torch

import fastexport
from fastexport import WeightStatistics, load, open_weights, weight_statistics
from fastexport._core import Storage, Tensor
from fastexport._dtypes import DType
from fastexport._errors import FormatError
from fastexport._statistics import fold, fold_name, join
from fastexport._tensors import from_array
from fastexport._weights import SAFETENSORS_NAMES, take
from helpers import run_python
from pt2_files import ALL, HOSTILE, MIDDLE, OLD, label, sample

GIB = 1 << 30
OPAQUE = [sample("hand_custom_obj")]  # with constants that are no tensors
ROOT = "twelve_chars"  # with it, the first weight of a file is aligned


def tensors_of(program):
    """The tensors of a program by name, as open_weights has them."""
    both = {**program.constants, **program.state_dict}
    return {name: value for name, value in both.items() if isinstance(value, Tensor)}


def same(a, b):
    """Whether two tensors are equal in all that the file says of them."""
    fields = ("dtype", "shape", "strides", "storage_offset", "device", "layout", "requires_grad", "is_param")
    data = a.storage is None if b.storage is None else a.tobytes() == b.tobytes()
    return data and all(getattr(a, name) == getattr(b, name) for name in fields)


# ---- the verbs ----


@pytest.mark.parametrize("path", ALL, ids=label)
def test_every_sample_has_the_weights_that_load_finds(path):
    wanted = tensors_of(load(path, verify=False))
    with open_weights(path) as f:
        assert set(f.keys()) == set(wanted) and len(f) == len(wanted)
        assert all(same(f.get_tensor(name), tensor) for name, tensor in wanted.items())
        assert sorted(f.offset_keys()) == sorted(wanted)
        assert set(f.weights) | set(f.constants) == set(wanted)


def test_the_program_is_not_read(tmp_path):
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(sample("linear")) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = b"no JSON at all" if name.endswith("models/model.json") else old.read(name)
            new.writestr(name, data)
    with pytest.raises(FormatError):
        load(path)
    with open_weights(path) as f:
        assert f.get_tensor("fc.bias").tobytes() == load(sample("linear")).state_dict["fc.bias"].tobytes()


@pytest.mark.parametrize("framework", ["np", "numpy", "pt", "torch"])
def test_frameworks_as_in_safetensors(framework):
    kind = numpy.ndarray if framework[0] == "n" else torch.Tensor
    wanted = load(sample("linear")).state_dict["fc.weight"].tolist()
    with open_weights(sample("linear"), framework=framework) as f:
        assert isinstance(f.get_tensor("fc.weight"), kind) and f.get_tensor("fc.weight").tolist() == wanted
        assert isinstance(f.get_slice("fc.weight")[0], kind) and f.get_slice("fc.weight")[0].tolist() == wanted[0]
    with pytest.raises(ValueError, match="framework is one of"):
        open_weights(sample("linear"), framework="jax")


def test_a_file_that_was_closed():
    f = open_weights(sample("linear"))
    tensor, part = f["fc.bias"], f.get_slice("fc.weight")
    f.close()
    for use in (lambda: f["fc.bias"], lambda: list(f), f.metadata, f.__enter__, f.offset_keys):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert tensor.tolist() and part[0].tolist()
    assert "closed" in repr(f)


def test_metadata_are_the_texts_saved_along(tmp_path):
    program = load(sample("linear"))
    program.save(tmp_path / "m.pt2", extra_files={"licence": "none", "notes": "é"})
    with open_weights(tmp_path / "m.pt2") as f:
        assert f.metadata() == {"licence": "none", "notes": "é"}
        assert load(tmp_path / "m.pt2").state_dict.metadata() == f.metadata()
    program.save(tmp_path / "m.pt2", extra_files={})
    assert open_weights(tmp_path / "m.pt2").metadata() is None


def test_the_verbs_on_a_program():
    state = load(sample("linear")).state_dict
    assert state.get_tensor("fc.bias") is state["fc.bias"]
    assert state.get_slice("fc.weight")[1].tolist() == state["fc.weight"].tolist()[1]
    assert state.offset_keys() == ["fc.weight", "fc.bias"]
    state["fc.bias"] = array.array("f", [1, 2, 3])
    assert state.get_slice("fc.bias")[1:].tolist() == [2.0, 3.0]
    with pytest.raises(KeyError):
        state.get_tensor("nothing")
    opaque = load(OPAQUE[0]).constants
    for name, value in opaque.items():
        if not isinstance(value, Tensor):
            with pytest.raises(TypeError, match="no tensor"):
                opaque.get_slice(name)


@pytest.mark.parametrize("path", [OLD[0], MIDDLE[0]], ids=label)
def test_pickled_weights(path):
    program = load(path)
    with open_weights(path) as f:
        for name in program.state_dict:
            assert f.get_tensor(name).tobytes() == program.state_dict[name].tobytes()


def test_files_objects_and_bytes(tmp_path):
    data = sample("linear").read_bytes()
    with sample("linear").open("rb") as file:
        for source in (data, io.BytesIO(data), file, str(sample("linear"))):
            with open_weights(source) as f:
                assert f.get_tensor("fc.bias").numel == 3
    with pytest.raises(FileNotFoundError) as caught:
        open_weights(tmp_path / "none")
    assert caught.value.filename == str(tmp_path / "none")


def test_hostile_files_are_refused_as_load_refuses_them():
    seen = 0
    for path in sorted(HOSTILE.glob("*.pt2")):
        try:
            with open_weights(path) as f:
                for name in f:
                    f.get_slice(name)[...].tobytes()
                    f.get_tensor(name).tobytes()
        except FormatError as error:
            assert error.faults or error.kind
            seen += 1
        except BufferError as error:  # on the device meta
            assert "meta" in str(error)
    assert seen > 50


# ---- slices ----


INDEXES = [
    0, -1, slice(None), slice(1, None), slice(None, None, 2), slice(5, 2), slice(-2, None), ..., None, (),
    (0, 1), (slice(1, 3), 0), (..., 0), (0, ...), (None, 0), (slice(None), slice(1, 4, 2), slice(0, 1)),
    (slice(None), None, 2), (..., None), (slice(None), ..., slice(3, 4)), (slice(0, 0), 1), (1, slice(2, 2)),
    (numpy.int64(1), 2, 3),
]  # fmt: skip
VIEWS = [((3, 4, 5), None, 0), ((3, 4, 5), (1, 15, 3), 2), ((3, 4, 5), (0, 1, 2), 7), ((3, 1, 4), (4, 99, 1), 0)]


@pytest.mark.parametrize("index", INDEXES, ids=repr)
@pytest.mark.parametrize("shape, strides, offset", VIEWS)
def test_slices_are_torchs(index, shape, strides, offset):
    data = array.array("f", range(80))
    ours = Tensor(Storage(data), DType("float32"), shape, strides, offset)
    theirs = torch.frombuffer(data, dtype=torch.float32).as_strided(shape, ours.strides, offset)
    try:
        wanted = theirs[index]
    except IndexError:
        with pytest.raises(IndexError):
            take(ours, index)
        return
    got = take(ours, index)
    assert got.shape == tuple(wanted.shape) and got.tolist() == wanted.tolist()


def test_steps_that_lead_past_the_end_are_numpys():
    values = numpy.arange(12, dtype="f4").reshape(3, 4)
    ours = from_array(values)
    for index in (slice(None, None, sys.maxsize), (slice(1, None, sys.maxsize), slice(3, None, 5))):
        assert take(ours, index).tolist() == values[index].tolist()
    assert take(ours, slice(2, None, 2**70)).tolist() == values[2:].tolist()


def test_what_is_no_index():
    class Index:
        def __init__(self, number):
            self.number = number

        def __index__(self):
            return self.number

    assert take(from_array(array.array("f", range(4))), Index(2)).tolist() == 2
    t = from_array(array.array("f", range(4)))
    for index, error in (
        (slice(None, None, -1), ValueError),
        (slice(None, None, 0), ValueError),
        ("a", TypeError),
        (1.0, TypeError),
        ([0, 1], TypeError),
        (Index("0"), TypeError),
        (True, TypeError),  # a mask to numpy and torch
        ((None, False), TypeError),
        (4, IndexError),
        (-5, IndexError),
        ((0, 0), IndexError),
        ((..., ...), IndexError),
    ):
        with pytest.raises(error):
            take(t, index)


def test_a_slice_of_what_has_no_data():
    t = Tensor(None, DType("float32"), (4, 4), device="meta")
    assert take(t, (0, slice(1, 3))).shape == (2,)


@pytest.mark.parametrize("mmap", [True, False])
def test_a_slice_reads_nothing_but_its_bytes(tmp_path, mmap):
    """A weight whose second half is damaged, and so has a wrong checksum: its first half can be had all the same."""
    path, _ = made_file(tmp_path / "m.pt2", {"w": array.array("f", range(4096))})
    data = bytearray(path.read_bytes())
    at = data.index(array.array("f", range(4096)).tobytes())
    data[at + 12000] ^= 1
    path.write_bytes(data)
    with open_weights(path, mmap=mmap) as f:
        part = f.get_slice("w")[100:104]
        assert part.tolist() == [100.0, 101.0, 102.0, 103.0]
        assert part.storage.nbytes < 128 and part.storage.is_mapped == mmap
        assert part.storage.entry == f["w"].storage.entry
        assert not f["w"].storage.is_loaded
        with pytest.raises(FormatError, match="CRC"):
            f.get_tensor("w").tolist()
    with open_weights(path, mmap=mmap, checksums=False) as f:
        assert f.get_tensor("w").tolist()[:2] == [0.0, 1.0]


def test_a_slice_of_a_deflated_weight(tmp_path):
    path, _ = made_file(tmp_path / "m.pt2", {"w": array.array("f", range(4096))}, zipfile.ZIP_DEFLATED)
    with open_weights(path) as f:
        assert f.get_slice("w")[7:9].tolist() == [7.0, 8.0]


def test_parts_stay_within_their_storage():
    storage = Storage(b"abcdef")
    assert bytes(storage.part(2, 3)) == b"cde" and bytes(storage.part(2, 3).part(1, 2)) == b"de"
    assert bytes(storage.part(6, 0)) == b""
    with open_weights(sample("linear")) as f:
        entry = f["fc.weight"].storage
        for whole in (storage, entry, entry.part(8, 16)):
            size = whole.nbytes
            for part in ((-1, 1), (0, size + 1), (size + 1, 0), (1, size), (0, -1), (sys.maxsize, sys.maxsize)):
                with pytest.raises(ValueError, match="not within"):
                    whole.part(*part)
        part = entry.part(8, 16).part(4, 8)
        assert bytes(part) == f["fc.weight"].tobytes()[12:20]
        assert pickle.loads(pickle.dumps(part)).nbytes == 8


# ---- large weights ----


def made_file(path, weights, method=zipfile.ZIP_STORED):
    """A file with weights, and no program."""
    config = {}
    with zipfile.ZipFile(path, "w", method) as archive:
        for i, (name, values) in enumerate(weights.items()):
            archive.writestr(f"{ROOT}/data/weights/weight_{i}", values.tobytes())
            config[name] = described(f"weight_{i}", len(values))
        finish(archive, config)
    return path, config


def described(record, elements):
    meta = {
        "dtype": 7,
        "sizes": [{"as_int": elements}],
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": 1}],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }
    return {"path_name": record, "is_param": True, "use_pickle": False, "tensor_meta": meta}


def finish(archive, config):
    archive.writestr(f"{ROOT}/data/weights/model_weights_config.json", json.dumps({"config": config}))
    archive.writestr(f"{ROOT}/data/constants/model_constants_config.json", '{"config": {}}')
    for name, text in (("archive_format", "pt2"), ("archive_version", "0"), (".data/version", "6\n")):
        archive.writestr(f"{ROOT}/{name}", text)
    archive.writestr(f"{ROOT}/models/model.json", "{}")


def write_sparse(path, size):
    """A file with a weight of so many zeros, which takes next to nothing on the disk."""
    crc, zeros = 0, bytes(1 << 22)
    for _ in range(size // len(zeros)):
        crc = zlib.crc32(zeros, crc)
    with path.open("w+b") as file, zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo(f"{ROOT}/data/weights/weight_0")
        info.file_size = info.compress_size = size
        info.CRC = crc
        info.header_offset = 0
        file.write(info.FileHeader(zip64=False))
        file.seek(size, io.SEEK_CUR)
        archive.filelist.append(info)
        archive.NameToInfo[info.filename] = info
        archive.start_dir = file.tell()
        archive._didModify = True
        finish(archive, {"w": described("weight_0", size // 4)})
    if path.stat().st_blocks * 512 > size // 4:
        pytest.skip("this file system has no sparse files")
    return path


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    return write_sparse(tmp_path_factory.mktemp("sparse") / "m.pt2", GIB)


RESIDENT = """
    import os, sys
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    path, what, checksums = sys.argv[1:]
    import fastexport
    if what in ("numpy", "torch"):
        __import__(what)
    before = resident()
    f = fastexport.open_weights(path, checksums=checksums == "checked")
    t = f.get_tensor("w")
    if what == "numpy":
        a = t.numpy()
        assert a.shape == t.shape and not a.flags.owndata and not a.flags.writeable
    if what == "torch":
        a = sys.modules["torch"].from_dlpack(t)
        assert a.shape == t.shape
    if what == "slice":
        a = f.get_slice("w")[1 << 24 : (1 << 24) + 5]
        assert a.tolist() == [0.0] * 5
    if what == "buffer":
        a = memoryview(t)
        assert a[1 << 24] == 0.0
    grown = resident() - before
    assert grown < 32 << 20, grown
"""


@pytest.mark.parametrize("what", ["nothing", "slice", "buffer", "numpy", "torch"])
def test_a_weight_of_1_gib_is_not_copied(sparse, what):
    run_python(RESIDENT, str(sparse), what, "checked" if what in ("nothing", "slice") else "unchecked")


@pytest.mark.parametrize("what", ["buffer", "numpy"])
def test_a_checksum_leaves_nothing_in_memory(tmp_path, what):
    run_python(RESIDENT, str(write_sparse(tmp_path / "m.pt2", GIB // 8)), what, "checked")


def test_without_mmap_it_is_read(tmp_path):
    path, _ = made_file(tmp_path / "m.pt2", {"w": array.array("f", range(100))})
    with open_weights(path, mmap=False) as f:
        tensor = f.get_tensor("w")
        assert tensor.tolist() == list(range(100)) and not tensor.storage.is_mapped


def test_the_checksum_of_a_large_mapping(tmp_path):
    values = array.array("f", range(3_000_000))  # three pieces
    path, _ = made_file(tmp_path / "m.pt2", {"w": values})
    with open_weights(path) as f:
        assert f["w"].storage.nbytes > 8 << 20 and memoryview(f["w"])[2_999_999] == values[-1]
        assert f["w"].statistics().max == 2_999_999.0
    data = bytearray(path.read_bytes())
    at = data.index(values.tobytes())
    for spot in (0, 5 << 20, len(values) * 4 - 1):
        spoilt = data.copy()
        spoilt[at + spot] ^= 1
        path.write_bytes(spoilt)
        with open_weights(path) as f, pytest.raises(FormatError, match="CRC"):
            memoryview(f["w"])


# ---- to other libraries ----


@pytest.mark.parametrize("name", sorted(SAFETENSORS_NAMES))
def test_raw_gives_the_bits_of_any_type(name):
    dtype = DType(name)
    data = random.Random(name).randbytes(2 * dtype.itemsize) if name != "bool" else b"\1\0"
    array = Tensor(Storage(data), dtype, (2,)).numpy(raw=True)
    assert array.tobytes() == data and not array.flags.writeable
    if dtype.in_ml_dtypes:
        assert array.dtype.kind == "u" and array.dtype.itemsize == dtype.itemsize
        assert Tensor(Storage(data), dtype, (2,)).numpy().dtype == getattr(ml_dtypes, name)


def test_what_is_missing_is_named_with_the_command_that_gets_it(monkeypatch):
    tensor = Tensor(Storage(bytes(4)), DType("bfloat16"), (2,))
    for module, call, command in (
        ("numpy", tensor.numpy, r"pip install numpy"),
        ("ml_dtypes", tensor.numpy, r"pip install ml_dtypes"),
        ("torch", tensor.torch, r"pip install 'fastexport\[torch\]'"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ImportError, match=command):
                call()


# ---- statistics ----

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOAT8 = [
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]


def close(a, b, scale=1.0):
    return a == b or abs(a - b) <= 1e-12 * max(scale, abs(b))


def check_finite(found, values):
    """Hold statistics against what torch says of the finite values, as doubles."""
    assert found.min == values.min().item() and found.max == values.max().item()
    assert close(found.mean, values.mean().item(), values.abs().max().item())
    if len(values) > 1:
        assert close(found.std, values.std().item(), values.abs().max().item())
    assert found.zeros == (values == 0).sum().item()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 5000])
def test_statistics_of_floats_are_torchs(dtype, count):
    torch.manual_seed(count)
    values = (torch.randn(count, dtype=torch.float64) * 3 + 1).to(dtype)
    values[:: max(count // 7, 2)] = 0
    found = from_array(values).statistics()
    check_finite(found, values.double())
    assert (found.nans, found.infs, found.elements, found.bytes) == (0, 0, count, values.nbytes)
    assert found.sparsity == found.zeros / count


@pytest.mark.parametrize("dtype", FLOATS + FLOAT8, ids=str)
def test_every_value_of_a_type(dtype):
    """All bit patterns of the small types, and odd ones of the large."""
    if dtype.itemsize == 1:
        bits = torch.arange(256, dtype=torch.uint8).view(dtype)
    elif dtype.itemsize == 2:
        bits = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(dtype)
    else:
        odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 1e30, -1e30, 1.5]
        bits = torch.tensor(odd, dtype=dtype)
    values = bits.double() if dtype != torch.float8_e8m0fnu else bits.float().double()
    found = from_array(bits).statistics()
    assert found.nans == values.isnan().sum().item() and found.infs == values.isinf().sum().item()
    finite = values[values.isfinite()]
    assert found.zeros == (finite == 0).sum().item()
    assert found.min == finite.min().item() and found.max == finite.max().item()
    assert close(found.mean, finite.mean().item(), finite.abs().max().item())
    assert close(found.std, finite.std().item(), finite.abs().max().item())


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_extremes_of_integers_are_exact(dtype):
    info = torch.iinfo(dtype)
    values = [info.min, info.max, 1, 0, info.max - 1]
    data = b"".join(value.to_bytes(dtype.itemsize, "little", signed=value < 0) for value in values)
    found = Tensor(Storage(data), DType(str(dtype)), (5,)).statistics()
    assert (found.min, found.max) == (info.min, info.max) and type(found.min) is int
    assert found.zeros == values.count(0)
    assert close(found.mean, sum(values) / 5)
    rows = found, Tensor(Storage(data), DType(str(dtype)), (0,)).statistics()
    assert rows[1].min is None and rows[1].mean is None and rows[1].sparsity == 0.0


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_bools_and_complex_numbers():
    found = from_array(torch.tensor([True, False, True, True])).statistics()
    assert (found.min, found.max, found.mean, found.zeros) == (0, 1, 0.75, 1)
    values = [0, 1 + 2j, complex(math.nan, 0), complex(1, math.inf), complex(math.nan, math.inf)]
    for dtype in (torch.complex32, torch.complex64, torch.complex128):
        found = from_array(torch.tensor(values, dtype=torch.complex128).to(dtype)).statistics()
        assert (found.zeros, found.nans, found.infs, found.min, found.mean, found.std) == (1, 2, 1, None, None, None)


def test_digits_are_not_lost():
    """A million values about a mean that is large beside their spread."""
    torch.manual_seed(0)
    values = torch.randn(1_000_000, dtype=torch.float64) + 1e8
    found = from_array(values).statistics()
    exact = [int(x * 2**40) for x in values.tolist()]  # whole numbers, so that sums have no error
    mean = sum(exact) / len(exact)
    std = math.sqrt(sum((x - round(mean)) ** 2 for x in exact) / (len(exact) - 1)) / 2**40
    assert abs(found.mean - mean / 2**40) < 1e-6 and abs(found.std - std) < 1e-7 * std


@pytest.mark.parametrize(
    "shape, strides, offset",
    [((3, 4), (4, 1), 0), ((4, 3), (1, 4), 1), ((3, 4), (0, 2), 0), ((2, 3, 2), (12, 1, 5), 3), ((), (), 5)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bfloat16], ids=str)
def test_statistics_of_views(shape, strides, offset, dtype):
    base = torch.arange(40).sub(9).to(dtype)
    ours = Tensor(Storage(base.view(torch.uint8).numpy()), DType(str(dtype)), shape, strides, offset)
    theirs = base.as_strided(shape, strides, offset)
    found = ours.statistics(sha256=True)
    check_finite(found, theirs.double().reshape(-1))
    raw = theirs.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    assert found.sha256 == hashlib.sha256(raw).hexdigest()


def test_statistics_of_what_has_none():
    with pytest.raises(BufferError, match="meta"):
        Tensor(None, DType("float32"), (4,), device="meta").statistics()
    with pytest.raises(TypeError):
        fastexport._core.tensor_statistics(5)
    found = from_array(torch.tensor([math.nan, math.inf])).statistics()
    assert (found.min, found.max, found.mean, found.std, found.nans, found.infs) == (None, None, None, None, 1, 1)
    one = from_array(torch.tensor([2.0])).statistics()
    assert one.std is None and one.mean == 2.0


def test_sums_that_overflow():
    found = from_array(torch.tensor([1e308, 1e308, -1e308], dtype=torch.float64)).statistics()
    assert (found.max, found.std) == (1e308, None)


def test_statistics_pickle_and_become_json():
    found = from_array(torch.tensor([1.0, 2.0])).statistics(sha256=True)
    assert pickle.loads(pickle.dumps(found)) == found
    assert json.loads(json.dumps(found.to_dict()))["shape"] == [2]
    assert found.to_dict()["sparsity"] == 0.0


def test_statistics_of_a_program():
    ep = load(sample("linear"))
    seen = []
    rows = dict(weight_statistics(ep, sha256=True, progress=lambda *step: seen.append(step)))
    assert list(rows) == ["fc.weight", "fc.bias"] and [step[:2] for step in seen] == [(1, 2), (2, 2)]
    with open_weights(sample("linear")) as f:
        assert dict(weight_statistics(f, sha256=True)) == rows
    check_finite(rows["fc.weight"], ep.state_dict["fc.weight"].torch().detach().double())


# ---- layers ----


def test_names_are_folded_by_the_numbers_of_layers():
    assert fold_name("0.weight") == "#.weight"
    assert fold_name("h.11.mlp.experts.7.w2") == "h.#.mlp.experts.#.w2"
    assert fold_name("conv2d.fc1.x3") == "conv2d.fc1.x3"


def test_folded_layers_are_described_as_one():
    torch.manual_seed(1)
    layers = {f"layers.{i}.w": torch.randn(5, 3) * (i + 1) + i for i in range(4)}
    odd = {"layers.4.w": torch.randn(5, 4), "head": torch.tensor([math.nan, 0.0])}
    rows = [(name, from_array(value).statistics(sha256=True)) for name, value in {**layers, **odd}.items()]
    folded = {(name, row.shape): (len(names), row) for name, names, row in fold(rows)}
    assert set(folded) == {("layers.#.w", (5, 3)), ("layers.4.w", (5, 4)), ("head", (2,))}
    count, row = folded["layers.#.w", (5, 3)]
    check_finite(row, torch.cat([value.reshape(-1) for value in layers.values()]).double())
    assert (count, row.elements, row.sha256) == (4, 60, None)
    assert folded["head", (2,)][1] == rows[-1][1]


def test_joining_what_has_no_numbers():
    empty = WeightStatistics("float32", (0,), 0, 0, None, None, None, None, 0, 0, 0)
    one = WeightStatistics("float32", (0,), 1, 4, 2.0, 2.0, 2.0, None, 0, 0, 0)
    assert join([empty, empty]).mean is None
    assert join([empty, one])[4:8] == (2.0, 2.0, 2.0, None)
    both = join([one, one._replace(min=4.0, max=4.0, mean=4.0)])
    assert (both.mean, both.std) == (3.0, math.sqrt(2))


# ---- the command line ----


def command(*args):
    result = subprocess.run([sys.executable, "-m", "fastexport", "weights", *args], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_command_line_folds_layers(tmp_path):
    blocks = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(4)), torch.nn.Linear(3, 2))
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(blocks, (torch.randn(1, 3),)), path)
    rows = json.loads(command(str(path), "--fold", "--stats", "--output-format", "json"))["weights"]
    assert [(row["name"], len(row.get("names", [0])), row["bytes"]) for row in rows] == [
        ("#.weight", 4, 144),
        ("#.bias", 4, 48),
        ("4.weight", 1, 24),
        ("4.bias", 1, 8),
    ]
    values = torch.cat([blocks[i].weight.reshape(-1) for i in range(4)]).detach().double()
    found = rows[0]["statistics"]
    assert found["max"] == values.max().item() and close(found["std"], values.std().item())
