"""What others get of a Tensor, down to the structs: DLPack's fields, deleters and capsules, and buffers.

Values and views that torch and numpy read from them are in test_tensors.py.
"""

import ctypes
import enum
import gc
import sys
import threading
import weakref

import numpy
import pytest
import torch

from fastexport import load
from fastexport._core import Archive, Program, Storage, Tensor
from fastexport._dtypes import DType
from helpers import run_python
from pt2_files import sample

READ_ONLY, IS_COPIED = 1, 2  # flags of DLManagedTensorVersioned
FLOAT = DType("float32")


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Plain(ctypes.Structure):
    _fields_ = [
        ("tensor", DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


def capsule_api(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, *arguments)((name, ctypes.pythonapi))


pointer_of = capsule_api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_char_p)
rename = capsule_api("PyCapsule_SetName", ctypes.c_int, ctypes.c_char_p)


def struct_in(capsule, kind=Versioned):
    """What a capsule holds; it stays the capsule's."""
    name = b"dltensor_versioned" if kind is Versioned else b"dltensor"
    return kind.from_address(pointer_of(capsule, name))


def taken(tensor, kind=Versioned, **asked):
    """An export that is ours, to be given back by its deleter, and the address that the deleter takes."""
    capsule = tensor.__dlpack__(max_version=(1, 0) if kind is Versioned else None, **asked)
    export = struct_in(capsule, kind)
    rename(capsule, USED)
    return export, ctypes.addressof(export)


USED = b"used"  # a capsule keeps the pointer, not the text


# ---- the structs ----


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DType.all(), ids=lambda dtype: dtype.name)
def test_types_are_those_that_torch_gives(dtype):
    ours = Tensor(Storage(bytes(2 * dtype.itemsize)), dtype, (2,))
    theirs = torch.empty(2, dtype=getattr(torch, dtype.name)).__dlpack__(max_version=(1, 0))
    capsule = ours.__dlpack__(max_version=(1, 0))
    found, wanted = struct_in(capsule).tensor, struct_in(theirs).tensor
    assert (found.code, found.bits, found.lanes) == (wanted.code, wanted.bits, wanted.lanes)


@pytest.mark.parametrize(
    "asked, version, flags",
    [
        ({}, (1, 0), READ_ONLY),
        ({"copy": False}, (1, 0), READ_ONLY),
        ({"copy": True}, (1, 0), IS_COPIED),
        ({"max_version": (1, 7)}, (1, 0), READ_ONLY),
        ({"max_version": (2, 0)}, (1, 0), READ_ONLY),
    ],
)
def test_flags_and_version(asked, version, flags):
    capsule = Tensor(Storage(bytes(8)), FLOAT, (2,)).__dlpack__(**{"max_version": (1, 0), **asked})
    found = struct_in(capsule)
    assert ((found.major, found.minor), found.flags) == (version, flags)


def test_floats_of_8_bits_need_version_1_1():
    capsule = Tensor(Storage(bytes(2)), DType("float8_e5m2"), (2,)).__dlpack__(max_version=(1, 1))
    assert (struct_in(capsule).major, struct_in(capsule).minor) == (1, 1)


def test_views_and_what_has_no_elements():
    data = Storage(bytearray(range(48)))
    view = Tensor(data, FLOAT, (2, 3), (1, 4), 1)
    for asked, strides in ({}, [1, 4]), ({"copy": True}, [3, 1]):
        capsule = view.__dlpack__(max_version=(1, 0), **asked)
        found = struct_in(capsule).tensor
        assert (found.shape[:2], found.strides[:2], found.byte_offset) == ([2, 3], strides, 0)
        assert ctypes.string_at(found.data, 4) == bytes([4, 5, 6, 7])
    for kind, asked in ((Versioned, {"max_version": (1, 0)}), (Plain, {})):
        for shape in ((0, 3), (3, 0, 2)):
            capsule = Tensor(data, FLOAT, shape).__dlpack__(**asked)
            found = struct_in(capsule, kind).tensor
            assert (found.data, found.shape[: len(shape)]) == (None, list(shape))
    capsule = Tensor(data, FLOAT, ()).__dlpack__(max_version=(1, 0))
    assert (struct_in(capsule).tensor.ndim, torch.from_dlpack(capsule).shape) == (0, ())


# ---- what is asked for ----


class DeviceType(enum.IntEnum):
    CPU = 1


def test_devices_may_be_enumerated():
    tensor = Tensor(Storage(bytes(8)), FLOAT, (2,))
    assert struct_in(tensor.__dlpack__(max_version=(1, 0), dl_device=(DeviceType.CPU, 0))).flags == READ_ONLY
    assert torch.from_dlpack(tensor, device="cpu").tolist() == [0, 0]
    assert numpy.from_dlpack(tensor, device="cpu").tolist() == [0, 0]


class Dropping:
    """An argument that drops the last name of the tensor when it is looked at."""

    def __init__(self, names, value):
        self.names, self.value = names, value

    def look(self):
        self.names.clear()
        gc.collect()
        return self.value

    __bool__ = __index__ = look


@pytest.mark.parametrize(
    "asked",
    [
        lambda d: {"copy": d(True)},
        lambda d: {"max_version": (d(1), d(0))},
        lambda d: {"dl_device": (d(1), 0)},
    ],
)
def test_arguments_that_drop_the_tensor(asked):
    names = [Tensor(Storage(bytearray(b"\0\0\x80?")), FLOAT, (1,))]
    call = {"max_version": (1, 0), **asked(lambda value: Dropping(names, value))}
    assert torch.from_dlpack(names[0].__dlpack__(**call)).tolist() == [1.0] and not names


class Raising:
    def raise_(self):
        raise RuntimeError("from within")

    __bool__ = __index__ = raise_


@pytest.mark.parametrize("asked", [{"copy": Raising()}, {"max_version": (Raising(), 0)}, {"dl_device": (1, Raising())}])
def test_arguments_that_raise(asked):
    with pytest.raises(RuntimeError, match="from within"):
        Tensor(Storage(bytes(8)), FLOAT, (2,)).__dlpack__(**asked)


# ---- deleters ----


@pytest.mark.parametrize("kind", [Plain, Versioned])
@pytest.mark.parametrize("copy", [None, True])
def test_a_deleter_runs_in_any_thread_without_the_gil(kind, copy):
    """Functions of ctypes release the GIL; the thread of a consumer need not know of Python at all."""
    tensor = Tensor(Storage(bytes(8)), FLOAT, (2,))
    before = sys.getrefcount(tensor)
    exports = [taken(tensor, kind, copy=copy) for _ in range(8)]
    held = 0 if kind is Plain or copy else len(exports)
    assert sys.getrefcount(tensor) == before + held
    threads = [threading.Thread(target=export.deleter, args=(address,)) for export, address in exports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.getrefcount(tensor) == before


def test_an_export_outlives_all_else():
    owner = bytearray(b"\0\0\x80?")
    tensor = Tensor(Storage(owner), FLOAT, (1,))
    export, address = taken(tensor)
    seen = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert seen() is not None and ctypes.string_at(export.tensor.data, 4) == owner
    export.deleter(address)
    assert seen() is None


AT_EXIT = """
    import ctypes, sys
    import numpy, torch
    from fastexport._core import Storage, Tensor
    from fastexport._dtypes import DType
    from test_dlpack import taken

    tensor = Tensor(Storage(bytearray(b"abcd")), DType("float32"), (1,))
    sys.modules["kept"] = [torch.from_dlpack(tensor), numpy.from_dlpack(tensor), tensor.__dlpack__()]
    late = [taken(tensor), taken(tensor, copy=True)]
    for export, address in late:  # at the end of the process, when Python is gone
        ctypes.CDLL(None).__cxa_atexit(ctypes.cast(export.deleter, ctypes.c_void_p), ctypes.c_void_p(address), None)
    print("done")
"""


def test_deleters_may_run_when_python_is_gone():
    assert run_python(AT_EXIT) == "done\n"


# ---- buffers ----


def test_a_buffer_of_no_dimensions_has_neither_shape_nor_strides():
    """As the documentation of Py_buffer.ndim says."""

    class Buffer(ctypes.Structure):
        _fields_ = [
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("itemsize", ctypes.c_ssize_t),
            ("readonly", ctypes.c_int),
            ("ndim", ctypes.c_int),
            ("format", ctypes.c_char_p),
            ("shape", ctypes.c_void_p),
            ("strides", ctypes.c_void_p),
            ("suboffsets", ctypes.c_void_p),
            ("internal", ctypes.c_void_p),
        ]

    tensor, view = Tensor(Storage(bytes(4)), FLOAT, ()), Buffer()
    for flags in (0x8, 0x18, 0x11C):  # PyBUF_ND, PyBUF_STRIDES, PyBUF_FULL_RO
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(tensor), ctypes.byref(view), flags)
        assert (view.ndim, view.shape, view.strides, view.len) == (0, None, None, 4)
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    assert memoryview(tensor).tolist() == 0.0 and numpy.asarray(tensor).shape == ()


# ---- archives ----


def test_an_archive_of_bytes_that_refer_to_it_is_collected():
    class Data(bytearray):
        pass

    data = Data(sample("linear").read_bytes())
    data.archive = Archive(data)
    seen = weakref.ref(data)
    del data
    gc.collect()
    assert seen() is None


def test_a_program_of_bytes_that_refer_to_it_is_collected():
    class Data(bytearray):
        pass

    data = Data(sample("linear").read_bytes())
    data.program = Program(Archive(data))
    seen = weakref.ref(data)
    del data
    gc.collect()
    assert seen() is None


def test_a_loaded_program_of_bytes_that_refer_to_it_is_collected():
    class Data(bytearray):
        pass

    data = Data(sample("linear").read_bytes())
    data.program = load(data)
    data.program.state_dict["fc.weight"].tobytes()
    seen = weakref.ref(data)
    del data
    gc.collect()
    assert seen() is None


def test_the_type_of_archives_is_closed():
    with pytest.raises(TypeError):
        Archive.new = 1
    with pytest.raises(TypeError):
        type("Sub", (Archive,), {})
