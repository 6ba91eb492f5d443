"""Storage and Tensor: bytes that come in when they are touched, and views of them for Python, numpy and torch."""

import array
import copy
import ctypes
import gc
import itertools
import os
import pickle
import sys
import threading
import weakref
import zipfile

import numpy
import pytest
import torch

from fastexport import _core, load
from fastexport._core import Archive, Storage, Tensor
from fastexport._dtypes import DType
from fastexport._errors import FormatError
from fastexport._tensors import from_array, to_torch_all
from helpers import run_python
from pt2_files import sample

FLOAT = DType("float32")
WEIGHT, BIAS = "data/weights/weight_0", "data/weights/weight_1"  # of the sample linear: 3 x 4 and 3 floats
VIEWS = [  # shape, strides
    ((3, 4), None),
    ((3, 4), (1, 3)),
    ((2, 2), (4, 2)),
    ((2, 3, 2), (2, 1, 4)),
    ((5,), (0,)),
    ((), None),
    ((0, 3), None),
    ((1, 3), (99999, 1)),
]


@pytest.fixture
def linear(tmp_path):
    """A copy of a sample that may be spoilt, its bytes, and where its first weight lies in it."""
    path = tmp_path / "linear.pt2"
    data = sample("linear").read_bytes()
    path.write_bytes(data)
    weight = zipfile.ZipFile(path).read("linear/" + WEIGHT)
    return path, data, data.index(weight)


def open_file(path):
    return Archive(os.open(path, os.O_RDONLY))


def make_zip(path, entries, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in entries.items():
            file.writestr(f"m/{name}", data)
    return path


def bits(tensor):
    """The bytes of a torch tensor's elements in C order."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_bytes(dtype, count):
    top = 2 if dtype.name == "bool" else 256
    return numpy.random.default_rng(dtype.code).integers(0, top, dtype.itemsize * count).astype("u1").tobytes()


def address(tensor):
    return tensor.numpy(raw=True).__array_interface__["data"][0]


# ---- storages ----


def test_storage_of_a_buffer():
    data = bytearray(range(10))
    storage = Storage(data, 2, 5)
    assert bytes(storage) == bytes(range(2, 7)) and storage.nbytes == len(storage) == 5
    assert storage.entry is None and storage.is_loaded and not storage.is_mapped
    assert memoryview(storage).readonly
    assert bytes(Storage(data, 10)) == b"" and bytes(Storage(data, offset=8)) == b"\x08\x09"
    assert bytes(Storage(numpy.arange(3, dtype="i2"))) == b"\0\0\1\0\2\0"
    with pytest.raises(BufferError):  # it holds the buffer
        data.append(1)
    del storage
    gc.collect()


@pytest.mark.parametrize("part", [(11,), (-1,), (0, 11), (5, 6), (0, -1), (sys.maxsize, 1), (1, sys.maxsize)])
def test_a_storage_stays_within_its_buffer(part):
    with pytest.raises(ValueError, match="not within the buffer"):
        Storage(bytes(10), *part)


def test_a_storage_needs_a_contiguous_buffer():
    with pytest.raises((BufferError, ValueError)):
        Storage(numpy.arange(6)[::2])
    with pytest.raises(TypeError):
        Storage("text")
    with pytest.raises(TypeError):
        Storage(b"abc", 0, "1")


@pytest.mark.parametrize("map", [True, False])
def test_stored_entries_are_mapped_when_touched(linear, map):
    path, data, at = linear
    storage = open_file(path).storage(WEIGHT, map=map)
    tensor = Tensor(storage, FLOAT, (3, 4))
    assert repr(storage) == f"Storage(48 bytes of {WEIGHT})" and storage.entry == WEIGHT
    assert (tensor.nbytes, storage.nbytes, len(tensor)) == (48, 48, 3) and "48 bytes" in repr(tensor)
    assert not storage.is_loaded and not storage.is_mapped
    assert tensor.tobytes() == data[at : at + 48]
    assert storage.is_loaded and storage.is_mapped is map


def test_archives_of_bytes_are_not_copied(linear):
    _, data, at = linear
    storage = Archive(data).storage(WEIGHT)
    there = numpy.frombuffer(data, "u1").__array_interface__["data"][0] + at
    assert address(Tensor(storage, DType("uint8"), (48,))) == there and not storage.is_mapped


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_entries_wherever_they_lie(tmp_path, method):
    """Of each alignment, and both methods: what can't be mapped is read."""
    entries = {"x" * n: bytes(range(64)) * 50 for n in range(1, 17)}
    path = make_zip(tmp_path / "m.zip", entries, method)
    starts = [info.header_offset + 30 + len(info.filename) for info in zipfile.ZipFile(path).infolist()]
    assert {start % 8 for start in starts} == set(range(8))
    archive = open_file(path)
    storages = [archive.storage(name) for name in entries]
    assert all(bytes(storage) == bytes(range(64)) * 50 for storage in storages)
    stored = method == zipfile.ZIP_STORED
    assert [storage.is_mapped for storage in storages] == [stored and start % 8 == 0 for start in starts]
    assert all(address(Tensor(storage, FLOAT, (1,))) % 8 == 0 for storage in storages)


def test_large_and_empty_entries(tmp_path):
    data = numpy.random.default_rng(0).bytes(3_000_000)
    archive = open_file(make_zip(tmp_path / "m.zip", {"large": data, "none": b""}))
    assert bytes(archive.storage("large")) == data
    assert bytes(archive.storage("none")) == b"" and archive.storage("none").nbytes == 0
    archive = open_file(make_zip(tmp_path / "d.zip", {"large": data, "none": b""}, zipfile.ZIP_DEFLATED))
    assert bytes(archive.storage("large")) == data and bytes(archive.storage("none")) == b""


@pytest.mark.parametrize("map", [True, False])
@pytest.mark.parametrize("memory", [True, False])
def test_a_wrong_crc_is_an_error_at_each_touch(linear, map, memory):
    path, data, at = linear
    spoilt = data[: at + 7] + bytes([data[at + 7] ^ 1]) + data[at + 8 :]
    path.write_bytes(spoilt)
    archive = Archive(spoilt) if memory else open_file(path)
    tensor = Tensor(archive.storage(WEIGHT, map=map), FLOAT, (3, 4))
    touches = [
        tensor.tobytes,
        tensor.tolist,
        tensor.numpy,
        tensor.torch,
        lambda: memoryview(tensor),
        lambda: bytes(tensor.storage),
        lambda: tensor.__array_interface__,
        lambda: tensor.__dlpack__(max_version=(1, 0)),
        lambda: pickle.dumps(tensor),
    ]
    for touch in touches:
        with pytest.raises(FormatError) as caught:
            touch()
        assert caught.value.entry == WEIGHT and caught.value.kind == "crc"
    assert not tensor.storage.is_loaded
    assert len(bytes(archive.storage(BIAS, map=map))) == 12  # the others are as they were


def test_a_wrong_crc_of_a_deflated_entry(tmp_path):
    path = make_zip(tmp_path / "m.zip", {"w": bytes(1000)}, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    right = zipfile.ZipFile(path).getinfo("m/w").CRC.to_bytes(4, "little")
    assert data.count(right) == 2  # in the local and the central header
    path.write_bytes(data.replace(right, b"\1\2\3\4"))
    with pytest.raises(FormatError) as caught:
        bytes(open_file(path).storage("w"))
    assert caught.value.kind == "crc"


@pytest.mark.parametrize("map", [True, False])
def test_a_file_that_was_cut_since(linear, map):
    path, _, at = linear
    storage = open_file(path).storage(WEIGHT, map=map)
    os.truncate(path, at + 20)
    with pytest.raises(FormatError) as caught:
        bytes(storage)
    assert caught.value.entry == WEIGHT


def test_data_outlive_the_file_and_the_archive(linear):
    path, data, at = linear
    archive = open_file(path)
    tensor = Tensor(archive.storage(WEIGHT), FLOAT, (3, 4))
    untouched = Tensor(archive.storage(BIAS), FLOAT, (3,))
    view = memoryview(tensor)
    del archive, tensor
    os.unlink(path)
    gc.collect()
    assert view.tobytes() == data[at : at + 48]
    assert untouched.tobytes() == zipfile.ZipFile(sample("linear")).read("linear/" + BIAS)


def test_threads_that_touch_at_once(tmp_path):
    entries = {f"w{i}": bytes([i]) * 200_000 for i in range(20)}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        archive = open_file(make_zip(tmp_path / f"{method}.zip", entries, method))
        tensors = {name: Tensor(archive.storage(name), DType("uint8"), (200_000,)) for name in entries}
        start, failures = threading.Barrier(8), []

        def work(tensors=tensors, start=start, failures=failures):
            start.wait()
            failures.extend(name for name, tensor in tensors.items() if tensor.tobytes() != entries[name])

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures


def test_a_file_left_open_is_closed(linear):
    before = len(os.listdir("/proc/self/fd"))
    storage = open_file(linear[0]).storage(WEIGHT)
    bytes(storage)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del storage
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


# ---- views ----


@pytest.mark.parametrize("shape, strides", VIEWS)
@pytest.mark.parametrize("dtype", DType.all(), ids=lambda dtype: dtype.name)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_every_type_and_view_is_as_in_torch(dtype, shape, strides):
    data = random_bytes(dtype, 16)
    tensor = Tensor(Storage(data), dtype, shape, strides, 1)
    whole = torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype.name))
    expected = whole.as_strided(shape, tensor.strides, 1)
    assert tensor.shape == expected.shape and tensor.numel == expected.numel() and tensor.ndim == expected.ndim
    assert tensor.strides == expected.stride() and tensor.is_contiguous == expected.is_contiguous()
    assert (tensor.itemsize, tensor.nbytes) == (dtype.itemsize, expected.numel() * dtype.itemsize)
    assert tensor.tobytes() == bytes(memoryview(tensor)) == bits(expected)

    shared = torch.from_dlpack(tensor)
    assert shared.dtype == expected.dtype and bits(shared) == bits(expected)
    assert not tensor.numel or shared.data_ptr() == address(tensor)
    assert bits(torch.from_dlpack(tensor.__dlpack__())) == bits(expected)  # as before version 1
    for made in (tensor.torch(), tensor.torch(copy=False)):
        assert made.dtype == expected.dtype and made.shape == expected.shape and bits(made) == bits(expected)
    assert tensor.torch().stride() == expected.stride()

    numbers = expected.to(torch.complex64) if dtype.name == "complex32" else expected
    assert repr(tensor.tolist()) == repr(numbers.tolist())


@pytest.mark.parametrize("shape, strides", VIEWS)
@pytest.mark.parametrize("dtype", [d for d in DType.all() if d.numpy], ids=lambda dtype: dtype.name)
def test_every_type_and_view_in_numpy(dtype, shape, strides):
    if dtype.in_ml_dtypes:
        pytest.importorskip("ml_dtypes")
    tensor = Tensor(Storage(random_bytes(dtype, 16)), dtype, shape, strides, 1)
    array = tensor.numpy()
    assert array.dtype.name == dtype.name and array.shape == tensor.shape and array.tobytes() == tensor.tobytes()
    assert not array.flags.writeable
    assert hasattr(tensor, "__array_interface__") is not dtype.in_ml_dtypes
    if dtype.in_ml_dtypes:
        assert memoryview(tensor).format == dtype.name and memoryview(tensor).tobytes() == tensor.tobytes()
        for look in (numpy.asarray, numpy.array, numpy.mean, lambda t: numpy.asarray(t, dtype=numpy.float32)):
            with pytest.raises(ValueError, match=dtype.name):  # and no ints that happen to have the bits
                look(tensor)
        if tensor.is_contiguous:
            again = from_array(memoryview(tensor))
            assert again.dtype is dtype and again.tobytes() == tensor.tobytes()
        return
    shared = numpy.from_dlpack(tensor)
    assert shared.dtype == array.dtype and shared.tobytes() == tensor.tobytes()
    assert not tensor.numel or not shared.flags.writeable

    class Interface:
        __array_interface__ = tensor.__array_interface__

    again = numpy.asarray(Interface())
    assert again.dtype == array.dtype and again.tobytes() == tensor.tobytes() and not again.flags.writeable


BAD_VIEWS = {
    "beyond": ((3, 5), None, 0),
    "offset beyond": ((3, 4), None, 1),
    "offset huge": ((2,), None, 2**63 - 1),
    "offset negative": ((3,), None, -1),
    "stride beyond": ((2,), (12,), 0),
    "stride huge": ((2,), (2**62,), 0),
    "stride wraps to small": ((5, 2), (2**62, 1), 0),
    "stride times itemsize wraps": ((2,), (2**62 + 1,), 0),
    "stride negative": ((2,), (-1,), 0),
    "elements wrap": ((2**32, 2**32), (0, 0), 0),
    "bytes wrap": ((2**62, 2), (0, 0), 0),
    "size negative": ((-1,), None, 0),
    "sizes negative": ((-1, -1), None, 0),
    "size negative beside 0": ((0, -1), (1, 1), 0),
    "size huge": ((2**63 - 1, 2), None, 0),
    "fewer strides": ((2, 2), (1,), 0),
    "more strides": ((2,), (1, 1), 0),
    "dimensions": ((1,) * 65, None, 0),
}


@pytest.mark.parametrize("view", BAD_VIEWS.values(), ids=BAD_VIEWS)
def test_a_tensor_stays_within_its_storage(view):
    with pytest.raises(ValueError, match="not a tensor|at most 64"):
        Tensor(Storage(bytes(48)), FLOAT, *view)


def test_numbers_beyond_64_bits_and_of_other_types():
    for args in [((2**63,),), ((1,), (2**64,)), ((1,), None, 2**63)]:
        with pytest.raises(OverflowError):
            Tensor(Storage(bytes(48)), FLOAT, *args)
    for args in [((1.5,),), ("ab",), (3,), (("1",),)]:
        with pytest.raises(TypeError):
            Tensor(Storage(bytes(48)), FLOAT, *args)
    with pytest.raises(TypeError, match="must be a Storage"):
        Tensor(b"abcd", FLOAT, (1,))
    for dtype in ("float32", None, 6, type("Other", (), {"code": "x"})()):
        with pytest.raises(TypeError, match="dtype must be a DType, not"):
            Tensor(Storage(b"abcd"), dtype, (1,))

    class Strange:
        code = 14

    with pytest.raises(ValueError, match="no tensor has elements"):
        Tensor(Storage(b"abcd"), Strange(), (1,))


def test_any_small_view_is_as_torch_says():
    """All views of up to 3 sizes over 7 elements: ours exist where torch's do, with the same elements."""
    data = array.array("h", range(7))
    whole, storage = torch.tensor(data, dtype=torch.int16), Storage(data)
    made = 0
    for ndim in range(4):
        for shape in itertools.product((0, 1, 2, 3), repeat=ndim):
            for strides in itertools.product((0, 1, 3), repeat=ndim):
                for offset in (0, 2):
                    try:
                        expected = whole.as_strided(shape, strides, offset)
                    except RuntimeError:
                        with pytest.raises(ValueError):
                            Tensor(storage, DType("int16"), shape, strides, offset)
                        continue
                    tensor = Tensor(storage, DType("int16"), shape, strides, offset)
                    assert tensor.tolist() == expected.tolist(), (shape, strides, offset)
                    assert tensor.is_contiguous == expected.is_contiguous(), (shape, strides, offset)
                    made += 1
    assert made > 1000


def test_an_empty_tensor_may_have_any_sizes_and_strides():
    tensor = Tensor(Storage(b""), FLOAT, (0, 2**62, 2**62), (2**62, 2**62, 1), 5)
    assert (tensor.numel, tensor.nbytes, tensor.tobytes()) == (0, 0, b"") and tensor.tolist() == []
    with pytest.raises(ValueError, match="empty lists"):
        Tensor(Storage(b""), FLOAT, (2**40, 0)).tolist()


def test_64_dimensions():
    tensor = Tensor(Storage(bytes(8)), FLOAT, (1,) * 63 + (2,))
    assert memoryview(tensor).ndim == 64 and tensor.numpy().shape == tensor.shape
    assert torch.from_dlpack(tensor).shape == tensor.shape


ONES = [  # dtype, bytes of one element, the number
    ("float64", "9c7500883ce4377e", 1e300),
    ("float32", "0000c03f", 1.5),
    ("float16", "003e", 1.5),
    ("bfloat16", "c03f", 1.5),
    ("float8_e4m3fn", "3c", 1.5),
    ("float8_e5m2", "3e", 1.5),
    ("float8_e4m3fnuz", "44", 1.5),
    ("float8_e5m2fnuz", "42", 1.5),
    ("float8_e8m0fnu", "80", 2.0),
    ("int64", "ffffffffffffffff", -1),
    ("uint8", "31", 49),
    ("uint64", "ffffffffffffffff", 2**64 - 1),
    ("bool", "01", True),
    ("complex64", "0000803f00000040", 1 + 2j),
]


@pytest.mark.parametrize(("dtype", "data", "number"), ONES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_number(dtype, data, number, shape):
    """One element is the number that torch has of it; the memory is never read as text."""
    tensor = Tensor(Storage(bytes.fromhex(data)), DType(dtype), shape)
    assert tensor.item() == number and type(tensor.item()) is type(number)
    assert tensor.item() == tensor.torch().item()
    assert complex(tensor) == complex(number) and bool(tensor) is True
    if isinstance(number, complex):
        for function in (int, float):
            with pytest.raises(TypeError):
                function(tensor)
    else:
        assert float(tensor) == float(number) and int(tensor) == int(number)


def test_what_is_no_number():
    digits = Tensor(Storage(b"12"), DType("uint8"), (2,))
    empty = Tensor(Storage(b""), DType("uint8"), (0,))
    for tensor, count in ((digits, 2), (empty, 0)):
        for function in (int, float, complex, Tensor.item):
            with pytest.raises(ValueError, match=f"a Tensor of {count} elements is no single number"):
                function(tensor)
        with pytest.raises(TypeError, match="neither true nor false"):
            bool(tensor)
    with pytest.raises(ValueError, match="NaN"):
        int(Tensor(Storage(b"\xff\xff\xff\xff"), FLOAT, ()))
    assert not Tensor(Storage(bytes(4)), FLOAT, (1,)) and not Tensor(Storage(b"\0\0\0\x80"), FLOAT, (1,))
    with pytest.raises(BufferError, match="on the device meta"):
        float(Tensor(None, FLOAT, (1,), device="meta"))


def test_what_a_tensor_says_of_itself():
    storage = Storage(bytes(16))
    tensor = Tensor(storage, FLOAT, (2,), (2,), 1, requires_grad=True, device="cuda:7", is_param=True)
    assert tensor.storage is storage and tensor.dtype is FLOAT and tensor.storage_offset == 1
    assert (tensor.device, str(tensor.layout)) == ("cuda:7", "torch.strided")
    assert tensor.requires_grad is True and tensor.is_param is True and tensor.is_contiguous is False
    assert repr(tensor) == "Tensor(shape=(2,), dtype=torch.float32, 8 bytes)"
    plain = Tensor(storage, FLOAT, ())
    assert (plain.device, plain.requires_grad, plain.is_param) == ("cpu", False, False)
    with pytest.raises(TypeError, match="without dimensions"):
        len(plain)
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(tensor)
    assert tensor != Tensor(storage, FLOAT, (2,), (2,), 1) and len({tensor, plain}) == 2
    for name in ("shape", "dtype", "device", "requires_grad", "new"):
        with pytest.raises(AttributeError):
            setattr(tensor, name, 1)


def test_a_tensor_without_data():
    tensor = Tensor(None, FLOAT, (2, 3), device="meta")
    assert tensor.storage is None and tensor.nbytes == 24 and not hasattr(tensor, "__array_interface__")
    for touch in (tensor.tobytes, tensor.tolist, tensor.__dlpack__, tensor.numpy, lambda: memoryview(tensor)):
        with pytest.raises(BufferError, match="no data"):
            touch()
    assert tensor.torch().device.type == "meta" and tensor.torch(copy=False).shape == (2, 3)
    assert copy.deepcopy(tensor).storage is None


def test_bools_are_0_or_1(tmp_path):
    archive = open_file(make_zip(tmp_path / "m.zip", {"b": b"\0\1\1\2\0"}))
    storage, kind = archive.storage("b"), DType("bool")
    assert Tensor(storage, kind, (3,)).tolist() == [False, True, True]
    for tensor in (Tensor(storage, kind, (2,), None, 3), Tensor(Storage(b"\2"), kind, (1,))):
        for touch in (tensor.tobytes, tensor.tolist, tensor.torch, tensor.numpy, lambda t=tensor: memoryview(t)):
            with pytest.raises(FormatError, match="bytes other than 0 and 1") as caught:
                touch()
            assert caught.value.kind == "payload" and caught.value.entry == tensor.storage.entry


# ---- the buffer protocol ----


class Buffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 1, 4, 8, 0x18
C, F, ANY = 0x20 | STRIDES, 0x40 | STRIDES, 0x80 | STRIDES


def ask(tensor, flags):
    """What a request gives: (dimensions, format, shape, strides)."""
    view = Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(tensor), ctypes.byref(view), flags)
    try:
        assert view.readonly == 1 and view.len == tensor.nbytes and view.itemsize == tensor.itemsize
        shape, strides = (list(p[: view.ndim]) if p else None for p in (view.shape, view.strides))
        return view.ndim, view.format, shape, strides
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))


def test_requests_of_a_buffer():
    storage = Storage(bytes(48))
    c, f = Tensor(storage, FLOAT, (3, 4)), Tensor(storage, FLOAT, (3, 4), (1, 3))
    neither = Tensor(storage, FLOAT, (2, 2), (4, 2))
    for tensor in (c, f, neither):
        assert ask(tensor, STRIDES | FORMAT)[1:3] == (b"f", list(tensor.shape))
        assert ask(tensor, STRIDES) == (2, None, list(tensor.shape), [4 * s for s in tensor.strides])
        for flags in (WRITABLE, WRITABLE | STRIDES | FORMAT):
            with pytest.raises(BufferError, match="read-only"):
                ask(tensor, flags)
    assert ask(c, SIMPLE) == (1, None, None, None) and ask(c, ND) == (2, None, [3, 4], None)
    for flags, good in {SIMPLE: (c,), ND: (c,), ND | FORMAT: (c,), C: (c,), F: (f,), ANY: (c, f)}.items():
        for tensor in (c, f, neither):
            if tensor in good:
                ask(tensor, flags)
            else:
                with pytest.raises(BufferError, match="not contiguous"):
                    ask(tensor, flags)
    one = Tensor(storage, FLOAT, (1, 1), (7, 9))  # of one element: all at once
    assert all(ask(one, flags) for flags in (SIMPLE, ND, C, F, ANY, STRIDES))


def test_a_memoryview_of_a_tensor():
    tensor = Tensor(Storage(array.array("f", range(12))), FLOAT, (3, 4))
    view = memoryview(tensor)
    assert view.readonly and view.format == "f" and view.tolist() == tensor.tolist() and view[1, 2] == 6
    assert view.obj is tensor
    with pytest.raises(TypeError):
        view[0, 0] = 1.0


def test_exports_keep_the_data(linear):
    path, data, at = linear
    tensor = Tensor(open_file(path).storage(WEIGHT), FLOAT, (3, 4))
    seen = weakref.ref(tensor), weakref.ref(tensor.storage)
    exports = [memoryview(tensor), numpy.asarray(tensor), torch.from_dlpack(tensor), numpy.from_dlpack(tensor)]
    del tensor
    while exports:
        gc.collect()
        assert seen[0]() is not None and seen[1]() is not None
        assert bytes(memoryview(numpy.asarray(exports[0]))) == data[at : at + 48]
        del exports[0]
    gc.collect()
    assert seen[0]() is None and seen[1]() is None


# ---- DLPack ----


def test_capsules_that_nobody_takes():
    tensor = Tensor(Storage(bytes(8)), FLOAT, (2,))
    before = sys.getrefcount(tensor)
    capsules = [tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0)), tensor.__dlpack__(copy=True)]
    assert "dltensor_versioned" in repr(capsules[1]) and 'dltensor"' in repr(capsules[0])
    assert sys.getrefcount(tensor) == before + 1  # the others are copies
    del capsules
    assert sys.getrefcount(tensor) == before


def test_capsules_that_are_taken():
    tensor = Tensor(Storage(bytes(8)), FLOAT, (2,))
    before = sys.getrefcount(tensor)
    capsule = tensor.__dlpack__(max_version=(1, 0))
    taken = torch.from_dlpack(capsule)
    assert "used_dltensor_versioned" in repr(capsule)
    del capsule
    assert sys.getrefcount(tensor) == before + 1 and taken.tolist() == [0, 0]
    del taken
    gc.collect()
    assert sys.getrefcount(tensor) == before


def test_who_may_write_gets_a_copy():
    data = bytearray(8)
    tensor = Tensor(Storage(data), FLOAT, (2,))
    for capsule in (tensor.__dlpack__(), tensor.__dlpack__(max_version=(0, 8)), tensor.__dlpack__(copy=True)):
        torch.from_dlpack(capsule).fill_(1)
    assert numpy.from_dlpack(tensor, copy=True).flags.writeable
    torch.from_dlpack(tensor, copy=True).fill_(1)
    tensor.torch().fill_(1)
    assert data == bytes(8)
    with pytest.raises(BufferError, match="max_version"):
        tensor.__dlpack__(copy=False)
    assert numpy.from_dlpack(tensor, copy=False).tolist() == [0, 0]


def test_data_that_are_not_aligned():
    tensor = Tensor(Storage(bytes(24) + b"\0\0\x80?", 1, 24), FLOAT, (6,))
    assert address(tensor) % 4 and tensor.tolist() == [0] * 6
    with pytest.raises(BufferError, match="not aligned"):
        tensor.__dlpack__(max_version=(1, 0), copy=False)
    assert torch.from_dlpack(tensor).data_ptr() % 4 == 0


def test_requests_of_dlpack():
    tensor = Tensor(Storage(bytes(8)), FLOAT, (2,))
    assert tensor.__dlpack_device__() == (1, 0)
    tensor.__dlpack__(None, max_version=None, dl_device=(1, 0), copy=None)
    for wrong in ({"dl_device": (2, 0)}, {"dl_device": (1, 1)}, {"stream": 1}):
        with pytest.raises(BufferError):
            tensor.__dlpack__(**wrong)
    for wrong in ({"max_version": 1}, {"max_version": (1,)}, {"max_version": ("1", 0)}, {"dl_device": 1}, {"other": 1}):
        with pytest.raises(TypeError):
            tensor.__dlpack__(**wrong)


# ---- copies ----


def test_copies_and_pickles_keep_ties(linear):
    storage = open_file(linear[0]).storage(WEIGHT)
    tied = {
        "a": Tensor(storage, FLOAT, (3, 4), is_param=True, requires_grad=True, device="cuda:1"),
        "b": Tensor(storage, FLOAT, (2, 2), (4, 2), 1),
    }
    tied["c"] = tied["a"]
    assert copy.copy(tied["a"]) is tied["a"] and copy.copy(storage) is storage
    for made in (copy.deepcopy(tied), pickle.loads(pickle.dumps(tied)), pickle.loads(pickle.dumps(tied, 2))):
        assert made["a"].storage is made["b"].storage and made["a"] is made["c"] and made["a"].storage is not storage
        assert made["a"].storage.entry is None
        for name in "ab":
            for attribute in ("shape", "strides", "dtype", "storage_offset", "requires_grad", "is_param", "device"):
                assert getattr(made[name], attribute) == getattr(tied[name], attribute)
            assert made[name].tobytes() == tied[name].tobytes()


def test_torch_gets_ties_too():
    storage = Storage(array.array("f", range(6)))
    tied = {
        "weight": Tensor(storage, FLOAT, (2, 3), is_param=True, requires_grad=True),
        "row": Tensor(storage, FLOAT, (3,), (1,), 3),
        "buffer": Tensor(Storage(bytes(4)), DType("int32"), ()),
    }
    tied["again"] = tied["weight"]
    made = to_torch_all(tied)
    assert list(made) == ["weight", "row", "buffer", "again"] and made["again"] is made["weight"]
    assert isinstance(made["weight"], torch.nn.Parameter) and made["weight"].requires_grad
    made["weight"].data[1, 0] = 9
    assert made["row"].tolist() == [9, 4, 5] and made["buffer"].dtype == torch.int32
    assert storage.nbytes == 24 and tied["row"].tolist() == [3, 4, 5]
    shared = tied["weight"].torch(copy=False)
    assert isinstance(shared, torch.nn.Parameter) and shared.data_ptr() == address(tied["weight"])


def test_objects_that_refer_to_each_other_are_collected():
    class Owner(bytearray):
        pass

    owner = Owner(b"abcd")
    owner.tensor = Tensor(Storage(owner), FLOAT, (1,))
    owner.view = memoryview(owner.tensor)
    seen = weakref.ref(owner)
    del owner
    gc.collect()
    assert seen() is None


# ---- tensors of arrays ----


@pytest.mark.parametrize("dtype", DType.all(), ids=lambda dtype: dtype.name)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_tensors_of_arrays(dtype):
    data = random_bytes(dtype, 12)
    theirs = torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype.name)).reshape(3, 4)
    for given in (theirs, theirs.t()):
        made = from_array(given)
        assert made.dtype is dtype and made.shape == given.shape and made.tobytes() == bits(given)
    if dtype.numpy and not dtype.in_ml_dtypes:
        given = theirs.numpy()
        for ours in (from_array(given), from_array(given.T), from_array(given.astype(given.dtype.newbyteorder(">")))):
            assert ours.dtype is dtype and ours.numpy().tobytes() in (given.tobytes(), given.T.tobytes())


def test_tensors_of_other_things():
    assert from_array(array.array("d", [1, 2])).tolist() == [1.0, 2.0]
    assert from_array(b"ab").dtype is DType("uint8")
    assert from_array(numpy.float32(1.5)).shape == () and from_array(numpy.zeros((0, 2))).shape == (0, 2)
    made = from_array(torch.nn.Parameter(torch.ones(2), requires_grad=False))
    assert made.is_param and not made.requires_grad and from_array(torch.ones(2)).is_param is False
    assert from_array(made) is made
    given = numpy.ones(2)
    made = from_array(given)
    given[:] = 5  # it was copied
    assert made.tolist() == [1, 1]
    for wrong in (
        numpy.array(["a"]),
        numpy.array([None]),
        [1, 2],
        array.array("u", "ab"),
        torch.eye(2, dtype=torch.qint8.__class__ and None)[:0].to_sparse() if False else "text",
    ):
        with pytest.raises(TypeError):
            from_array(wrong)


# ---- without torch, without numpy ----


def test_neither_torch_nor_numpy_is_needed():
    run_python(
        """
        import sys, os, pickle, copy
        for name in ("numpy", "torch", "ml_dtypes"):
            sys.modules[name] = None  # importing it raises
        from fastexport._core import Archive, Storage, Tensor
        from fastexport._dtypes import DType
        from pt2_files import sample
        archive = Archive(os.open(sample("linear"), os.O_RDONLY))
        tensor = Tensor(archive.storage("data/weights/weight_0"), DType("float32"), (3, 4))
        assert memoryview(tensor).tolist() == tensor.tolist()
        assert pickle.loads(pickle.dumps(tensor)).tobytes() == copy.deepcopy(tensor).tobytes() == bytes(tensor)
        tensor.__dlpack__(); tensor.__array_interface__
        for method, missing in ((tensor.numpy, "numpy"), (tensor.torch, "torch")):
            try:
                method()
            except ImportError as e:
                assert missing in str(e)
            else:
                raise AssertionError(missing)
        """
    )


def test_ml_dtypes_is_named_when_it_is_missing(monkeypatch):
    tensor = Tensor(Storage(b"\0\0\x80\x3f"), DType("bfloat16"), (2,))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="bfloat16 needs ml_dtypes"):
        tensor.numpy()
    assert tensor.tolist() == [0.0, 1.0]
    with pytest.raises(TypeError, match="numpy has nothing like"):
        Tensor(Storage(bytes(4)), DType("complex32"), (1,)).numpy()


# ---- memory that runs out ----

OUT_OF_MEMORY = """
    import _testcapi, gc, os, copy
    from fastexport import _core
    from fastexport._core import Archive, Storage, Tensor
    from fastexport._dtypes import DType
    from pt2_files import sample
    FLOAT, DATA = DType("float32"), bytes(range(48))
    path = str(sample("linear"))
    tensor = Tensor(Storage(DATA), FLOAT, (2, 2), (4, 2))
    # once before, so that what is imported on the way is there
    fresh = lambda map=True: Archive(os.open(path, os.O_RDONLY)).storage("data/weights/weight_0", map=map)
    operations = {
        "storage": lambda: Storage(DATA, 0, 4),
        "tensor": lambda: Tensor(tensor.storage, FLOAT, (3, 4), (4, 1), 0, True),
        "touch": lambda: bytes(fresh()),
        "read": lambda: bytes(fresh(False)),
        "tobytes": lambda: tensor.tobytes(),
        "view": lambda: memoryview(tensor),
        "dlpack": lambda: tensor.__dlpack__(max_version=(1, 0)),
        "legacy": lambda: tensor.__dlpack__(),
        "interface": lambda: tensor.__array_interface__,
        "repr": lambda: repr(tensor),
        "shape": lambda: tensor.shape,
        "part": lambda: (bytes(fresh().part(4, 8)), bytes(fresh(False).part(4, 8)), tensor.storage.part(1, 2)),
        "statistics": lambda: _core.tensor_statistics(tensor),
        "payloads": lambda: _core.read_payloads(Archive(os.open(path, os.O_RDONLY)), None),
        "check": lambda: _core.check_archive(Archive(os.open(path, os.O_RDONLY)), None, False, True),
        "reduce": lambda: (tensor.__reduce__(), tensor.storage.__reduce__()),
    }
    for name, operation in operations.items():
        operation()
        for lasting in (True, False):
            good = at = failures = 0
            while good < 4:
                result = None
                _testcapi.set_nomemory(at, 0 if lasting else at + 1)
                try:
                    result = operation()
                except MemoryError:
                    failures += 1
                    good = -1
                _testcapi.remove_mem_hooks()
                good += 1
                at += 1
                assert at < 5000, name
            assert failures or name in ("view", "shape"), name
            print(name, failures)
"""


def test_out_of_memory_at_every_point():
    pytest.importorskip("_testcapi")
    assert len(run_python(OUT_OF_MEMORY).splitlines()) == 32


def test_types_are_closed():
    for kind in (Storage, Tensor):
        with pytest.raises(TypeError):
            type("Sub", (kind,), {})
        with pytest.raises(TypeError):
            kind.new = 1
    assert _core.Tensor is Tensor


def test_a_file_that_is_cut_short_while_it_is_mapped(tmp_path):
    """Reading the mapping would end the process."""
    path = tmp_path / "m.pt2"
    path.write_bytes(sample("shared_weights").read_bytes())
    tensor = load(path).state_dict["emb.weight"]
    assert tensor.tobytes()
    os.truncate(path, 100)
    for touch in (tensor.tobytes, tensor.tolist, lambda: memoryview(tensor), lambda: tensor.__dlpack__()):
        with pytest.raises(OSError, match="cut short"):
            touch()
