"""Memory that others can take away or write to: torch's storages, files that are cut short, and mappings.

What would end the process if it were not seen to runs in a Python of its own.
"""

import array
import io
import shutil

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import fastexport
from fastexport import FormatError, VerifyError, from_safetensors, load, open_weights, to_safetensors
from fastexport._core import Storage, Tensor
from fastexport._dtypes import DType
from fastexport._tensors import from_array
from helpers import run_python
from pt2_files import sample

LINEAR = sample("linear")  # fc.weight of 3 x 4, fc.bias of 3


def linear_of_torch():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 3)
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            return self.fc(x) * self.scale

    return torch.export.export(Net(), (torch.ones(2, 4),))


# ---- storages of torch that are too small ----


def freed(tensor, size=0):
    tensor.untyped_storage().resize_(size)
    return tensor


TOO_SMALL = {
    "freed": (lambda: freed(torch.ones(3, 4)), 48, 0),
    "one byte short": (lambda: freed(torch.ones(3, 4), 47), 48, 47),
    "a view": (lambda: freed(torch.ones(100).as_strided((3, 4), (8, 1), 80), 390), 400, 390),
    "transposed": (lambda: freed(torch.ones(4, 3).t(), 40), 48, 40),
    "a parameter": (lambda: freed(torch.nn.Parameter(torch.ones(3, 4)).data), 48, 0),
    "of 8 bits": (lambda: freed(torch.ones(3, 4, dtype=torch.float8_e5m2), 11), 12, 11),
    "expanded": (lambda: freed(torch.ones(4).expand(3, 4)), 16, 0),
    "conjugated": (lambda: freed(torch.ones(3, 4, dtype=torch.complex64).conj()), 96, 0),
}


@pytest.mark.parametrize("make, needed, there", TOO_SMALL.values(), ids=TOO_SMALL)
def test_a_storage_that_is_too_small_is_refused(make, needed, there, tmp_path):
    tensor = make()
    message = f"'fc.weight' needs {needed} bytes of its storage, which has {there}: it was freed or made smaller"
    ep = load(LINEAR)
    before = ep.state_dict["fc.weight"]
    with pytest.raises(ValueError, match=message):
        ep.state_dict["fc.weight"] = tensor
    assert ep.state_dict["fc.weight"] is before
    with pytest.raises(ValueError, match=f"needs {needed} bytes"):
        ep.add_constant("more", tensor)
    with pytest.raises(ValueError, match=message.replace("needs", "can't be written: it needs")):
        to_safetensors({"fc.weight": tensor}, tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_storage_that_is_just_large_enough():
    tensor = freed(torch.arange(8.0), 24)[2:6]
    assert from_array(tensor).tolist() == [2, 3, 4, 5]
    assert from_array(freed(torch.ones(0, 3))).shape == (0, 3)
    assert from_array(torch.empty(2, device="meta")).storage is None


@pytest.mark.parametrize("name", ["fc.weight", "scale"])
def test_programs_of_torch_with_freed_weights(name, tmp_path):
    program = linear_of_torch()
    freed(program.state_dict[name].data)
    ours = fastexport.from_export(program)
    for save in (lambda file: fastexport.save(program, file), ours.save):
        for verify in (True, False):
            with pytest.raises(ValueError, match=f"'{name}' needs .* bytes of its storage, which has 0"):
                fastexport.save(program, tmp_path / "m.pt2", verify=verify)
        with pytest.raises(ValueError, match=f"'{name}' needs .* bytes of its storage, which has 0"):
            save(tmp_path / "m.pt2")
    with pytest.raises(ValueError, match=f"'{name}' can't be written: it needs .* bytes of its storage, which has 0"):
        to_safetensors(ours, tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())
    (found,) = ours.verify(all=True, level="strict")
    assert found.code == "FX501" and name in found.message and "which has 0" in found.message


# ---- what torch has not computed yet, and has no data for ----


def lazily(kind):
    values = torch.tensor([1 + 2j, 3 - 4j, 5j])
    return values.conj() if kind == "conjugated" else values.conj().imag


@pytest.mark.parametrize("kind", ["conjugated", "negated"])
@pytest.mark.parametrize("is_param", [False, True])
def test_conjugated_and_negated_views_are_saved_as_they_show(kind, is_param, tmp_path):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.c = torch.nn.Parameter(lazily(kind)) if is_param else None
            if not is_param:
                del self.c
                self.register_buffer("c", lazily(kind))

        def forward(self, x):
            return x * self.c

    program = torch.export.export(Net(), (torch.ones(3),))
    held = program.state_dict["c"]
    assert held.is_conj() or held.is_neg()
    file = io.BytesIO()
    fastexport.save(program, file)
    assert load(file.getvalue()).state_dict["c"].tolist() == held.tolist()
    assert load(file.getvalue()).state_dict["c"].is_param is is_param
    again = torch.export.load(io.BytesIO(file.getvalue()))
    assert torch.equal(again.module()(torch.ones(3)), program.module()(torch.ones(3)))
    assert held.is_conj() or held.is_neg()

    ep = load(file.getvalue())
    ep.state_dict["c"] = lazily(kind)
    assert ep.state_dict["c"].tolist() == lazily(kind).tolist()
    if kind == "negated":
        to_safetensors({"c": held}, tmp_path / "c.safetensors")
        assert from_safetensors(tmp_path / "c.safetensors", mmap=False)["c"].tolist() == held.tolist()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse", "ignore:.*quantize_per_tensor")
@pytest.mark.parametrize(
    "make, kind",
    [
        (lambda: torch.ones(2).to_sparse(), "layout torch.sparse_coo"),
        (lambda: torch.eye(2).to_sparse_csr(), "layout torch.sparse_csr"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)]), "nested"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), "nested"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), "quint8"),
        (lambda: FakeTensorMode().from_tensor(torch.ones(2)), "FakeTensor without bytes"),
    ],
)
def test_what_has_no_strides_is_told_apart(make, kind, tmp_path):
    ep = load(LINEAR)
    with pytest.raises(TypeError, match=f"'fc.bias' .*{kind}"):
        ep.state_dict["fc.bias"] = make()
    with pytest.raises(TypeError, match=f"'w' .*{kind}"):
        to_safetensors({"w": make()}, tmp_path / "w.safetensors")


def test_a_weight_without_data():
    ep = load(LINEAR)
    ep.state_dict["fc.weight"] = torch.ones(3, 4, device="meta")
    assert repr(ep.state_dict["fc.weight"]) == (
        "Tensor(shape=(3, 4), dtype=torch.float32, no data, on the device meta)"
    )
    (found,) = ep.verify(all=True)
    assert found.code == "FX501" and found.is_error and "has no data, being on the device meta" in found.message
    with pytest.raises(VerifyError, match="FX501 .*no data"):
        ep.save(io.BytesIO())
    ep.state_dict["fc.weight"] = torch.ones(3, 4)
    assert not ep.verify(all=True)


def test_a_weight_of_torch_without_data():
    program = linear_of_torch()
    program.state_dict["fc.weight"] = torch.nn.Parameter(torch.empty(3, 4, device="meta"))
    with pytest.raises(VerifyError, match=r"FX501 .*'fc.weight' has no data, being on the device meta"):
        fastexport.save(program, io.BytesIO())
    with pytest.raises(VerifyError, match="no data"):
        fastexport.from_export(program).verify(level="strict")


# ---- what else can be a weight ----


class OnlyInterface:
    """An array as numpy's interface has it, without a buffer."""

    def __init__(self, values):
        self.values = values

    @property
    def __array_interface__(self):
        return self.values.__array_interface__


class OnlyDLPack:
    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.mark.parametrize("wrapped", [OnlyInterface, OnlyDLPack])
def test_arrays_without_a_buffer(wrapped, tmp_path):
    values = numpy.arange(12, dtype="f").reshape(4, 3).T
    ep = load(LINEAR)
    ep.state_dict["fc.weight"] = wrapped(values)
    assert ep.state_dict["fc.weight"].tolist() == values.tolist() and ep.state_dict["fc.weight"].is_param
    to_safetensors({"w": wrapped(values)}, tmp_path / "w.safetensors")
    assert from_safetensors(tmp_path / "w.safetensors", mmap=False)["w"].tolist() == values.tolist()


@pytest.mark.parametrize("value", [None, 1.5, "text", [1.0], object(), OnlyInterface, numpy.array(["a"])])
def test_what_is_no_array_is_told_by_the_name_of_the_weight(value):
    ep = load(LINEAR)
    with pytest.raises(TypeError, match="^'fc.weight' (is of type|has elements of)"):
        ep.state_dict["fc.weight"] = value


# ---- files that are cut short ----

CUT = """
    import os, shutil, sys, tempfile
    import fastexport
    from fastexport import FormatError

    def cut(path, how, touched):
        shutil.copy(sys.argv[1], path)
        weights = fastexport.open_weights(path, checksums=how != "unchecked")
        if how == "whole":
            weights["fc.weight"].tobytes()
        part = weights.get_slice("fc.weight")[1:, ::2]
        if touched:
            part.tobytes()
        os.truncate(path, 0)
        return part, weights["fc.weight"]

    with tempfile.TemporaryDirectory() as folder:
        for how in ("whole", "part", "unchecked"):
            for touched in (True, False):
                for part in cut(os.path.join(folder, f"{how} {touched}.pt2"), how, touched):
                    for touch in ("tobytes", "tolist", "statistics", "torch", "numpy", "__dlpack__"):
                        try:
                            getattr(part, touch)()
                        except FormatError as error:
                            assert isinstance(error, OSError) and "FX105" in str(error), error
                        else:
                            raise AssertionError((how, touched, touch))
    print("done")
"""


def test_slices_of_a_file_that_is_cut_short():
    assert run_python(CUT, str(LINEAR)) == "done\n"


CUT_SAFETENSORS = """
    import array, os, tempfile
    import fastexport
    from fastexport import FormatError

    path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    fastexport.to_safetensors({"a": array.array("f", range(40)), "b": array.array("d", [1])}, path)
    tensors = fastexport.from_safetensors(path)
    assert tensors["a"].tolist() == [*range(40)] and tensors["b"].tolist() == [1]
    part = fastexport._weights.take(tensors["a"], slice(3, 9))
    assert part.tolist() == [*range(3, 9)]
    for size in (os.path.getsize(path) - 1, 0):
        os.truncate(path, size)
        for tensor in (tensors["a"], tensors["b"], part):
            for touch in ("tobytes", "tolist", "statistics", "torch", "numpy", "__dlpack__"):
                try:
                    getattr(tensor, touch)()
                except FormatError as error:
                    assert isinstance(error, OSError) and "FX105" in str(error), error
                else:
                    raise AssertionError(touch)
    print("done")
"""


def test_a_safetensors_file_that_is_cut_short():
    pytest.importorskip("safetensors")
    assert run_python(CUT_SAFETENSORS) == "done\n"


def test_parts_of_parts_hold_what_they_are_a_part_of():
    part = Storage(bytes(range(100)))
    for _ in range(90):
        part = Storage(part, 1)
    assert bytes(part) == bytes(range(90, 100))
    assert bytes(part.part(2, 3)) == bytes(range(92, 95))
    for bad in [(-1,), (11,), (0, 11), (5, 6), (2**62, 2**62)]:
        with pytest.raises(ValueError, match="not within the buffer's 10"):
            Storage(part, *bad)


def test_a_long_chain_of_parts_goes_as_one():
    part = Storage(bytes(8))
    for _ in range(200_000):
        part = Storage(part)
    assert bytes(part) == bytes(8)
    del part


CYCLES = """
    import gc, weakref
    from fastexport._core import Archive, Storage, Tensor
    from fastexport._dtypes import DType
    from fastexport import load

    class Data(bytearray):
        pass

    def cycle(make):
        data = Data(open("data/pt2/samples/current/linear.pt2", "rb").read())
        data.back = make(data)
        return weakref.ref(data)

    KINDS = [
        Storage,
        lambda b: Storage(Storage(b, 8), 8),
        lambda b: Tensor(Storage(b), DType("uint8"), (9,)),
        Archive,
        load,
        lambda b: load(b).state_dict["fc.weight"],
    ]
    for make in KINDS:
        seen = cycle(make)
        gc.collect()
        assert seen() is None, make
    print("done")
"""


def test_cycles_through_bytes_are_collected():
    assert run_python(CYCLES) == "done\n"


def test_mapping_a_file(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abcdef")
    with open(path, "rb") as file:
        storage = Storage.map(file)
    assert bytes(storage) == b"abcdef" and storage.is_mapped and storage.entry is None and not storage.is_written()
    assert bytes(Storage(storage, 2, 3)) == b"cde"
    with open(path, "ab") as file:
        file.write(b"more")
    assert bytes(storage) == b"abcdef"
    path.write_bytes(b"abc")
    with pytest.raises(OSError, match="cut short"):
        bytes(storage)
    path.write_bytes(b"")
    with open(path, "rb") as file:
        assert bytes(Storage.map(file)) == b""
    for bad, error in [("path", TypeError), (None, TypeError), (-1, ValueError), (10**6, OSError)]:
        with pytest.raises(error):
            Storage.map(bad)


# ---- writing to what is read-only ----

WRITES = """
    import os, shutil, sys, tempfile, warnings
    import numpy, torch
    import fastexport

    warnings.simplefilter("ignore")
    WAYS = {
        "dlpack": lambda ep, w: torch.from_dlpack(w),
        "numpy": lambda ep, w: torch.from_numpy(numpy.asarray(w)),
        "frombuffer": lambda ep, w: torch.frombuffer(w, dtype=torch.float32).view(3, 4),
        "asarray": lambda ep, w: torch.as_tensor(numpy.asarray(w)),
        "torch": lambda ep, w: w.torch(copy=False).detach(),
        "to_torch": lambda ep, w: ep.to_torch(copy=False).state_dict["fc.weight"].detach(),
    }

    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            path = os.path.join(folder, way + ".pt2")
            shutil.copy(sys.argv[1], path)
            with open(path, "rb") as file:
                before = file.read()
            ep = fastexport.load(path)
            weight = ep.state_dict["fc.weight"]
            was = weight.torch()
            view = memoryview(weight)
            assert weight.storage.is_mapped and view.readonly and not numpy.asarray(weight).flags.writeable
            assert not weight.storage.is_written()
            WAYS[way](ep, weight).add_(1)
            now = was.detach() + 1
            assert weight.storage.is_written() and not ep.state_dict["fc.bias"].storage.is_written()

            # all that looks at the tensor sees the same
            assert torch.equal(weight.torch(), now) and weight.tolist() == now.tolist() == view.tolist()
            assert weight.statistics().max == now.max().item()
            assert torch.equal(ep.to_torch().state_dict["fc.weight"], now)

            # files too, but for the one it came from
            ep.save(path + ".new")
            saved = fastexport.load(path + ".new")
            assert saved.state_dict["fc.weight"].tolist() == now.tolist()
            assert saved.state_dict["fc.bias"].tolist() == ep.state_dict["fc.bias"].tolist()
            assert not saved.verify(all=True)
            with open(path, "rb") as file:
                assert file.read() == before
            assert fastexport.load(path).state_dict["fc.weight"].tolist() == was.tolist()
    print("done")
"""


def test_writing_to_a_mapping_stays_in_the_process():
    assert run_python(WRITES, str(LINEAR)) == "done\n"


def test_nobody_wrote():
    ep = load(LINEAR)
    for tensor in ep.state_dict.values():
        assert not tensor.storage.is_written()  # and not even read
        assert not tensor.storage.is_loaded
        tensor.tobytes()
        assert not tensor.storage.is_written() and tensor.storage.is_loaded
    file = io.BytesIO()
    ep.save(file)
    assert file.getvalue()[:4] == b"PK\x03\x04" and not Storage(b"ab").is_written()


PRIVATE = """
    import sys
    import fastexport

    def own():
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:")) << 10

    for checksums in (True, False):
        tensor = fastexport.open_weights(sys.argv[1], checksums=checksums)["big"]
        before = own()
        view = memoryview(tensor)
        for at in range(0, len(view), 1024):
            view[at]
        assert tensor.storage.is_mapped and own() - before < 4 << 20, own() - before
    print("done")
"""


def test_a_mapping_takes_no_memory_of_the_process(tmp_path):
    ep = load(LINEAR)
    ep.add_constant("big", array.array("f", bytes(32 << 20)))
    ep.save(tmp_path / "big.pt2")
    assert run_python(PRIVATE, str(tmp_path / "big.pt2")) == "done\n"


def test_other_layouts_save_what_their_tensors_show(tmp_path):
    path = tmp_path / "m.pt2"
    shutil.copy(sample("linear"), path)
    ep = load(path, mmap=False)
    weight = ep.state_dict["fc.weight"]
    assert not weight.storage.is_mapped
    torch.from_dlpack(weight).zero_()
    assert set(weight.torch().flatten().tolist()) == {0.0} and not weight.storage.is_written()


def test_a_tensor_of_no_number_type_of_numpy_still_goes_everywhere(tmp_path):
    tensor = Tensor(Storage(b"\x80\x3f\x00\x40"), DType("bfloat16"), (2,))
    assert tensor.statistics(sha256=True).max == 2.0
    to_safetensors({"b": tensor}, tmp_path / "b.safetensors")
    assert from_safetensors(tmp_path / "b.safetensors", mmap=False)["b"].tolist() == [1.0, 2.0]
    assert torch.from_dlpack(tensor).tolist() == [1.0, 2.0] and tensor.numpy(raw=True).tolist() == [0x3F80, 0x4000]


def test_slices_as_of_python_and_torch():
    tensor = from_array(array.array("f", range(4)))
    weights = fastexport._weights
    for step in (2**63, 2**64, 2**200, 5):
        assert weights.take(tensor, slice(1, None, step)).tolist() == [1.0]
        assert weights.take(tensor, slice(None, None, step)).shape == (1,)
    assert weights.take(tensor, slice(0, 2**70, 2**62)).tolist() == [0.0]
    scalar = weights.TensorSlice(from_array(numpy.float32(1)))
    with pytest.raises(TypeError, match="0-d|without dimensions"):
        list(scalar)
    assert scalar[...].tolist() == 1.0 and [row.tolist() for row in weights.TensorSlice(tensor)] == [0, 1, 2, 3]


def test_errors_are_those_of_formats():
    with pytest.raises(FormatError), open_weights(b"no file"):
        pass


# ---- what is read and not mapped ----

ODD = (1 << 17) + 1  # elements; more than a piece, and no whole number of them


@pytest.mark.parametrize("checksums", [True, False])
def test_statistics_of_weights_that_nobody_used_yet(checksums, tmp_path):
    ep, given = load(LINEAR), {}
    for number, name in enumerate(("float32", "bfloat16", "int64", "uint8", "float8_e4m3fn", "complex128")):
        dtype = DType(name)
        data = numpy.random.default_rng(number).bytes(ODD * dtype.itemsize)
        given[name] = Tensor(Storage(data), dtype, (ODD,))
    given["bool"] = Tensor(Storage(b"\1\0" * ODD), DType("bool"), (2, ODD))
    given["turned"] = Tensor(Storage(bytes(range(200))), DType("int16"), (10, 10), (1, 10))
    given["part"] = Tensor(Storage(bytes(range(200))), DType("int16"), (10,), (1,), 50)
    for name, tensor in given.items():
        ep.add_constant(name, tensor)
    path = tmp_path / "m.pt2"
    ep.save(path)
    weights = open_weights(path, checksums=checksums)
    for name, tensor in given.items():
        assert repr(weights[name].statistics()) == repr(tensor.statistics())
        assert weights[name].storage.is_loaded is (name in ("bool", "part"))
        assert weights[name].tobytes() == tensor.tobytes()
        assert repr(weights[name].statistics()) == repr(tensor.statistics()) and weights[name].storage.is_mapped


def test_statistics_see_damage(tmp_path):
    path = tmp_path / "m.pt2"
    data = bytearray(LINEAR.read_bytes())
    data[data.index(load(LINEAR).state_dict["fc.weight"].tobytes()) + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="CRC"):
        open_weights(path)["fc.weight"].statistics()
    assert open_weights(path, checksums=False)["fc.weight"].statistics().elements == 12
    weights = open_weights(path, checksums=False), open_weights(path)
    path.write_bytes(b"")
    for each in weights:
        with pytest.raises(OSError, match="FX105"):
            each["fc.weight"].statistics()
