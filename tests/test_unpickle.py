"""Files of torch.save, read without torch and without running anything from them."""

import io
import math
import os
import pickle
import pickletools
import sys
import zipfile

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fastexport
from fastexport import _core
from fastexport._core import Tensor
from fastexport._dtypes import DType
from fastexport._errors import FormatError
from fastexport._unpickle import PickleLimits, load_example_inputs, load_pickle, load_state_dict, load_value
from helpers import run_python
from pt2_files import CURRENT, HOSTILE, MIDDLE, OLD, SAMPLES, label, sample

USER_CLASSES = {"dataclass_io": "gen_samples.DC", "nested_inputs": "gen_samples.NT"}


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def packed(pickled, **entries):
    """A file like torch.save's around a pickle; entries by key of the storage."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zip:
        zip.writestr("archive/data.pkl", pickled)
        for key, data in entries.items():
            zip.writestr(f"archive/data/{key.removeprefix('s')}", data)
    return file.getvalue()


def pickled_entries(path):
    """Name -> bytes of what torch.save wrote in a .pt2 file."""
    with zipfile.ZipFile(path) as zip:
        return {name: zip.read(name) for name in zip.namelist() if name.endswith(".pt")}


def same(ours, theirs):
    """Whether a value is torch's, down to the bits."""
    if isinstance(theirs, torch.Tensor):
        assert type(ours) is Tensor
        assert ours.shape == tuple(theirs.shape) and ours.strides == theirs.stride()
        assert str(ours.dtype) == str(theirs.dtype) and ours.device == str(theirs.device)
        assert ours.storage_offset == theirs.storage_offset() and ours.requires_grad == theirs.requires_grad
        assert ours.is_param == isinstance(theirs, torch.nn.Parameter)
        assert ours.tobytes() == theirs.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(theirs, dict):
        assert isinstance(ours, dict) and list(ours) == list(theirs)
        assert all(same(ours[key], theirs[key]) for key in theirs)
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is (list if isinstance(theirs, list) else tuple) and len(ours) == len(theirs)
        assert all(map(same, ours, theirs))
    else:
        assert type(ours) is type(theirs) and repr(ours) == repr(theirs)
    return True


# ---- the samples, as torch reads them ----


@pytest.mark.parametrize("path", OLD + MIDDLE, ids=label)
def test_state_dicts_of_older_layouts(path):
    found = 0
    for name, data in pickled_entries(path).items():
        if "inputs" in name:
            continue
        ours, theirs = load_state_dict(data), torch.load(io.BytesIO(data), weights_only=True)
        assert type(ours) is dict and same(ours, theirs)
        for a in theirs:
            for b in theirs:
                tied = theirs[a].untyped_storage()._cdata == theirs[b].untyped_storage()._cdata
                assert (ours[a].storage is ours[b].storage) == tied
                assert (ours[a] is ours[b]) == (theirs[a] is theirs[b])
        found += 1
    assert found == 2  # weights and constants


def damaged_inputs():
    file = io.BytesIO()
    torch.save(((torch.ones(3),), {}), file)
    good = file.getvalue()
    return {
        "junk": b"junk",
        "cut": good[:-30],
        "empty": b"PK\x05\x06" + bytes(18),
    }


@pytest.mark.parametrize("kind", ["junk", "cut", "empty"])
def test_a_fault_of_an_archive_in_a_file_names_the_entry(kind, tmp_path):
    """And not the file, which is well."""
    path, entry = tmp_path / "m.pt2", "data/sample_inputs/model.pt"
    with zipfile.ZipFile(sample("linear")) as old, zipfile.ZipFile(path, "w") as new:
        for item in old.infolist():
            new.writestr(item, damaged_inputs()[kind] if item.filename.endswith(entry) else old.read(item))
    program = fastexport.load(path)
    for read in (lambda: program.example_inputs, lambda: program.to_torch(example_inputs=True)):
        with pytest.raises(FormatError, match="data/sample_inputs/model.pt") as caught:
            read()
        assert caught.value.entry == entry


@pytest.mark.parametrize("path", CURRENT + OLD + MIDDLE, ids=label)
def test_example_inputs(path):
    (data,) = (data for name, data in pickled_entries(path).items() if "inputs" in name)
    if not data:
        assert load_example_inputs(data) is None
    elif path.stem in USER_CLASSES:
        with pytest.raises(FormatError, match=USER_CLASSES[path.stem]) as caught:
            load_example_inputs(data, entry="data/sample_inputs/model.pt")
        assert caught.value.kind == "pickle" and caught.value.entry == "data/sample_inputs/model.pt"
    else:
        assert same(load_example_inputs(data), torch.load(io.BytesIO(data), weights_only=True))


def test_the_samples_hold_what_is_tested():
    assert len(OLD) >= 8 and len(MIDDLE) >= 2 and USER_CLASSES.keys() <= {path.stem for path in CURRENT}


def test_a_stored_file_is_read_in_place():
    storage = _core.Storage(saved({"a": torch.ones(5), "b": torch.ones(3, dtype=torch.float64)}))
    begin = Tensor(storage, DType("uint8"), (storage.nbytes,)).__array_interface__["data"][0]
    weights = load_state_dict(storage)
    assert all(begin < w.__array_interface__["data"][0] < begin + storage.nbytes for w in weights.values())


def test_an_entry_of_an_archive():
    path = next(path for path in MIDDLE if path.stem == "shared_weights")
    storage = _core.Archive(os.open(path, os.O_RDONLY)).storage("data/weights/model.pt")
    weights = load_state_dict(storage, entry=storage.entry)
    again = load_state_dict(_core.Archive(storage))
    assert [w.tolist() for w in weights.values()] == [w.tolist() for w in again.values()] and weights


# ---- hostile files ----


@pytest.mark.parametrize("number", [15, 16, 17, 18, 20, 21, 22])
def test_nothing_of_a_hostile_file_is_run(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (path,) = HOSTILE.glob(f"E{number}_*.pt2")
    refused = []
    with zipfile.ZipFile(path) as zip:
        for name in zip.namelist():
            data = zip.read(name)
            if name.endswith(".pt") or data[:2] in (b"PK", b"\x80\x02"):
                load = load_pickle if data[:2] == b"\x80\x02" else load_value
                try:
                    load(data, entry=name)
                except FormatError as e:
                    assert e.kind == "pickle" and e.entry == name
                    refused.append(str(e))
    assert len(refused) == 1
    assert ("os.mkdir" if number != 15 else "no file of torch.save") in refused[0]
    assert not os.listdir()


TUPLES = b"\x80\x02)" + b"\x85" * 100_000
SHARED = b"\x80\x02)" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60))  # a tuple of 2**60 leaves
STORAGE = b"\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
HOSTILE_PICKLES = {
    "global": (b"\x80\x02cos\nsystem\n.", "os.system"),
    "global of builtins": (b"\x80\x02c__builtin__\neval\n.", "builtins.eval"),
    "stacked global": (b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93.", "builtins.exec"),
    "attribute of an allowed one": (
        b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.",
        "OrderedDict.__in",
    ),
    "module that is a path": (b"\x80\x04\x8c\x0dcollections.\n\x8c\x01x\x93.", r"collections.\\n.x"),
    "global that is no text": (b"\x80\x04K\x01K\x02\x93.", "no text"),
    "load_from_bytes": (b"\x80\x02ctorch.storage\n_load_from_bytes\n.", "torch.storage._load_from_bytes"),
    "import of something new": (b"\x80\x02cantigravity\nx\n.", "antigravity.x"),
    "INST": (b"(ios\nsystem\n.", "operation b'i'"),
    "OBJ": (b"\x80\x02(ctorch\nSize\no.", "operation b'o'"),
    "NEWOBJ": (b"\x80\x02ctorch\nSize\n)\x81.", "operation b'.x81'"),
    "NEWOBJ_EX": (b"\x80\x04ctorch\nSize\n)}\x92.", "operation b'.x92'"),
    "EXT1": (b"\x80\x02\x82\x01.", "operation b'.x82'"),
    "EXT4": (b"\x80\x02\x84\x01\0\0\0.", "operation b'.x84'"),
    "PERSID": (b"P0\n.", "operation b'P'"),
    "LONG4": (b"\x80\x02\x8b\xff\xff\xff\x7f.", "operation b'.x8b'"),
    "INT text": (b"I" + b"9" * 100_000 + b"\n.", "operation b'I'"),
    "BYTEARRAY8": (b"\x80\x05\x96" + b"\xff" * 8 + b".", "operation b'.x96'"),
    "protocol 6": (b"\x80\x06N.", "protocol is 6"),
    "protocol 0": (b"\x80\x00N.", "protocol is 0"),
    "BUILD of a function": (b"\x80\x02ctorch\nSize\n}X\x04\0\0\0nameK\x01sb.", "sets attributes"),
    "BUILD of a dtype": (b"\x80\x02ctorch\nfloat32\n}b.", "sets attributes"),
    "BUILD of a dict": (b"\x80\x02}}b.", "sets attributes"),
    "call of a dtype": (b"\x80\x02ctorch\nfloat32\n)R.", "no function"),
    "call of a text": (b"\x80\x02X\x01\0\0\0a)R.", "no function"),
    "call with a list": (b"\x80\x02ctorch\nSize\n]R.", "no function"),
    "OrderedDict of something": (b"\x80\x02ccollections\nOrderedDict\n]\x85R.", "with arguments"),
    "bytes of a size": (b"\x80\x02c__builtin__\nbytes\nJ\xff\xff\xff\x7f\x85R.", "with arguments"),
    "complex of a text": (b"\x80\x02c__builtin__\ncomplex\nX\x01\0\0\x001K\x00\x86R.", "not made of floats"),
    "codec": (b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0rot13\x86R.", "only spell bytes"),
    "codec that fails": (b"\x80\x02c_codecs\nencode\nX\x02\0\0\0\xc4\x80X\x06\0\0\0latin1\x86R.", "don't fit together"),
    "set of lists": (b"\x80\x02c__builtin__\nset\n]]a\x85R.", "neither a number"),
    "EMPTY_SET of lists": (b"\x80\x04\x8f(]\x90.", "neither a number"),
    "key that is a list": (b"\x80\x02}]Ns.", "neither a number"),
    "key that is a function": (b"\x80\x02}ctorch\nSize\nNs.", "neither a number"),
    "key that is deep": (b"\x80\x02}" + TUPLES[2:] + b"Ns.", "holds tuples"),
    "key that is shared": (b"\x80\x02}" + SHARED[2:] + b"Ns.", "holds tuples"),
    "key that is long": (b"\x80\x02}(" + b"K\x01" * 1000 + b"tNs.", "short tuple"),
    "key without a value": (b"\x80\x02}(K\x01u.", "no value"),
    "items of a list": (b"\x80\x02](K\x01K\x02u.", "no dict"),
    "item of a tuple": (b"\x80\x02)K\x01a.", "no list"),
    "items of a text": (b"\x80\x02X\x01\0\0\0a(K\x01e.", "no list"),
    "member of a dict": (b"\x80\x04}(K\x01\x90.", "no set"),
    "deep": (TUPLES + b".", "deep"),
    "deep lists": (b"\x80\x02" + b"]" * 300 + b"a" * 299 + b".", "deep"),
    "shared": (SHARED + b".", "values"),
    "cycle": (b"\x80\x02]q\x00h\x00a.", "deep"),
    "cycle of dicts": (b"\x80\x02}q\x00K\x01h\x00s.", "deep"),
    "memo that was never set": (b"\x80\x02j\xff\xff\xff\xff.", "don't fit together"),
    "memo of nothing": (b"\x80\x02q\x00.", "don't fit together"),
    "text that is too long": (b"\x80\x02X\xff\xff\xff\xffabc.", "cut short"),
    "bytes that are too long": (b"\x80\x04\x8e" + b"\xff" * 8 + b"abc.", "cut short"),
    "name without an end": (b"\x80\x02c" + b"a" * 100_000, "don't fit together"),
    "name that is no UTF-8": (b"\x80\x02c\xff\nx\n.", "don't fit together"),
    "text that is no UTF-8": (b"\x80\x02X\x01\0\0\0\xff.", "don't fit together"),
    "empty": (b"", "don't fit together"),
    "no STOP": (b"\x80\x02N", "don't fit together"),
    "nothing to return": (b"\x80\x02.", "too early"),
    "two to return": (b"\x80\x02NN.", "too early"),
    "open mark": (b"\x80\x02(N.", "too early"),
    "no mark": (b"\x80\x02Nt.", "don't fit together"),
    "tuple of too few": (b"\x80\x02N\x86.", "too few"),
    "result that is a function": (b"\x80\x02ctorch\nSize\n.", "a class, a function"),
    "result with a storage type": (b"\x80\x02ctorch\nFloatStorage\n\x85.", "a class, a function"),
    "storage outside": (STORAGE + b".", "not part of an archive"),
    "lazy view": (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))\x89N}X\x04\0\0\0conj\x88stR.",
        "lazy 'conj' view",
    ),
    "too few arguments": (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "don't fit together"),
    "tensor of no storage": (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))\x89NtR.", "no storage"),
    "parameter of no tensor": (b"\x80\x02ctorch._utils\n_rebuild_parameter\n(N\x89NtR.", "made of something"),
    "tensor by a class": (b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(NN)NtR.", "no function"),
    "device": (b"\x80\x02ctorch\ndevice\nX\x05\0\0\0a b;c\x85R.", "no device"),
    "layout": (b"\x80\x02ctorch.serialization\n_get_layout\nX\x03\0\0\0abc\x85R.", "no layout"),
    "fake tensor that is no JSON": (
        b"\x80\x03ctorch._export.serde.serialize\n_reconstruct_fake_tensor\nC\x02{x\x89\x86R.",
        "don't fit together",
    ),
    "fake tensor that is deep": (
        b"\x80\x03ctorch._export.serde.serialize\n_reconstruct_fake_tensor\nB\x90\x5f\x01\0"
        + b"[" * 90_000
        + b"\x89\x86R.",
        "don't fit together",
    ),
}


@pytest.mark.parametrize("data, message", HOSTILE_PICKLES.values(), ids=HOSTILE_PICKLES)
def test_hostile_pickles(data, message):
    modules = set(sys.modules)
    for load in (load_pickle, lambda data, entry: load_value(packed(data), entry=entry)):
        if message == "not part of an archive" and load is not load_pickle:
            message = "storage '0' is missing"
        with pytest.raises(FormatError, match=message) as caught:
            load(data, entry="x")
        assert caught.value.kind == "pickle" and caught.value.entry == "x"
        assert str(caught.value).isprintable() and len(str(caught.value)) < 500
    assert set(sys.modules) == modules


def test_what_is_known_cannot_be_changed():
    """Attributes set by one pickle would be those of all that follow."""
    for name in ("Size", "float32", "FloatStorage", "Tensor", "device"):
        for state in (b"}X\x04\0\0\0callNs", b"N}X\x04\0\0\0callNs\x86"):
            with pytest.raises(FormatError):
                load_pickle(b"\x80\x02ctorch\n" + name.encode() + b"\n" + state + b"b.")
    assert load_pickle(b"\x80\x02ctorch\nSize\nK\x02\x85\x85R.") == (2,)


def test_limits():
    data = pickle.dumps([[1] * 50], 2)
    assert load_pickle(data) == [[1] * 50]
    for limits, kind, message in [
        (PickleLimits(pickle_bytes=len(data) - 1), "limit", "the limit is"),
        (PickleLimits(operations=20), "pickle", "more than 20 operations"),
        (PickleLimits(values=51), "pickle", "more than 51 values"),
        (PickleLimits(depth=1), "pickle", "more than 1 deep"),
    ]:
        for load in (load_pickle, lambda data, **options: load_value(packed(data), **options)):
            with pytest.raises(FormatError, match=message) as caught:
                load(data, limits=limits)
            assert caught.value.kind == kind
    assert load_pickle(data, limits=PickleLimits(len(data), 200, 52, 2)) == [[1] * 50]


def test_every_prefix_of_a_pickle_is_refused():
    data = pickle.dumps({"a": [1, 2.5, "text", (None, True)], "b": b"bytes", "c": 1 << 70}, 4)
    for end in range(len(data)):
        with pytest.raises(FormatError):
            load_pickle(data[:end])
    assert load_pickle(data) == pickle.loads(data)


# ---- storages ----

TENSOR = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE[2:] + b"K%cK%c\x85K%c\x85\x89Nt" + b"R."


def test_a_tensor_by_hand():
    file = packed(TENSOR % (1, 3, 1), s0=b"\0" * 12 + b"\0\0\x80\x3f")
    tensor = load_value(file)
    assert tensor.tolist() == [0, 0, 1] and tensor.storage_offset == 1 and tensor.device == "cpu"


@pytest.mark.parametrize("view", [(2, 3, 1), (0, 2, 4), (0, 5, 1)])
def test_tensors_stay_within_their_storages(view):
    with pytest.raises(FormatError, match="not a tensor: it needs"):
        load_value(packed(TENSOR % view, s0=bytes(16)))


def test_storages_that_are_wrong():
    good = TENSOR % (0, 4, 1)
    for file, message in [
        (packed(good, s0=bytes(15)), "has 15 bytes, but 16"),
        (packed(good, s1=bytes(16)), "storage '0' is missing"),
        (packed(good.replace(b"K\x04tQ", b"J\xff\xff\xff\xfftQ"), s0=bytes(16)), "malformed"),
        (packed(good.replace(b"K\x04tQ", b"NtQ"), s0=bytes(16)), "malformed"),
        (packed(good.replace(b"K\x04tQ", b"K\x04NtQ"), s0=bytes(16)), "no storage"),
        (packed(good.replace(b"K\x04tQ", b"\x8a\xff" + b"\x7f" * 255 + b"tQ"), s0=bytes(16)), "has 16 bytes, but"),
        (packed(good.replace(b"\x07\0\0\0storage", b"\x06\0\0\0module"), s0=bytes(16)), "no storage"),
        (packed(good.replace(b"X\x01\0\0\x000", b"X\x0b\0\0\0../data.pkl"), s0=bytes(16)), "is missing"),
        (packed(good.replace(b"FloatStorage", b"float32"), s0=bytes(16)), "no storage"),
        (
            packed(good.replace(b"torch\nFloatStorage", b"torch.storage\nUntypedStorage"), s0=bytes(16)),
            "without a type",
        ),
    ]:
        with pytest.raises(FormatError, match=message):
            load_value(file)


def test_a_storage_with_a_wrong_crc_is_found_when_it_is_touched():
    file = packed(TENSOR % (0, 4, 1), s0=b"sixteen bytes ok")
    tensor = load_value(file.replace(b"sixteen bytes ok", b"sixteen bytes no"))
    assert tensor.shape == (4,)
    with pytest.raises(FormatError) as caught:
        tensor.tolist()
    assert caught.value.kind == "crc" and caught.value.entry == "data/0"


def test_one_key_is_one_storage():
    base = torch.arange(4, dtype=torch.int32)
    whole, rest = load_value(saved([base, base[1:]]))
    assert whole.storage is rest.storage and rest.tolist() == [1, 2, 3]


# ---- what torch.save writes ----


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_of_all_kinds(protocol):
    tied = torch.nn.Parameter(torch.ones(2, 2), requires_grad=False)
    attributed = torch.nn.Parameter(torch.ones(2))
    attributed.note = [1]
    numbers = [0, 255, 256, 65535, 65536, -1, 1 << 31, -(1 << 31), 1 << 70, 2.5, -0.0, math.inf, math.nan, 1j]
    value = {
        "tensors": [
            torch.arange(12.0).reshape(3, 4).t()[1:],
            torch.tensor(5),
            torch.zeros(0, 3),
            torch.ones(2, requires_grad=True),
            torch.nn.Buffer(torch.ones(3)),
            torch.ones(1).expand(3),
            *(torch.ones(3).to(getattr(torch, dtype.name)) for dtype in DType.all() if dtype.code not in (9, 33)),
        ],
        "parameters": (tied, tied, attributed),
        "plain": [
            *numbers,
            "",
            "é\ud800",
            None,
            True,
            False,
            (),
            (1,),
            (1, 2),
            (1, 2, 3),
            (1, 2, 3, 4),
            [],
            {},
            b"",
            b"x",
        ],
        5: {(1, "a"): [[[]]], None: 1, 2.5: slice(1, None, 2)},
        "module": torch.nn.Linear(2, 2).state_dict(),
        "sets": [set(), {1, 2}],
    }
    ours = load_value(saved(value, pickle_protocol=protocol))
    value["module"] = dict(value["module"])
    assert same(ours, value)
    assert ours["parameters"][0] is ours["parameters"][1]
    assert same(load_value(saved([torch.Size([1, 2])], pickle_protocol=protocol)), [(1, 2)])


def test_types_devices_and_layouts():
    value = [
        torch.float8_e5m2,
        torch.bool,
        torch.device("cuda", 1),
        torch.device("cpu"),
        torch.strided,
        torch.sparse_coo,
    ]
    ours = load_value(saved(value))
    assert list(map(str, ours)) == list(map(str, value)) and ours[0] is DType("float8_e5m2")


def test_tensors_without_data():
    from torch._export.serde.serialize import serialize_torch_artifact
    from torch._subclasses.fake_tensor import FakeTensorMode

    meta = load_value(saved(torch.empty(2, 3, device="meta")))
    assert meta.storage is None and (meta.shape, meta.device) == ((2, 3), "meta")
    with FakeTensorMode():
        inputs = (
            (torch.empty(3, 4, dtype=torch.bfloat16).t(), torch.nn.Parameter(torch.empty(2))),
            {"k": torch.empty(())},
        )
    (fake, parameter), kwargs = load_example_inputs(serialize_torch_artifact(inputs))
    assert fake.storage is None and (fake.shape, fake.strides, fake.dtype.name) == ((4, 3), (1, 4), "bfloat16")
    assert parameter.is_param and parameter.requires_grad and kwargs["k"].shape == ()
    assert not fake.is_param and fake.device == "cpu"


@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_is_not_read_is_named():
    for value, name in [
        (frozenset([1]), "frozenset"),
        (torch.eye(2).to_sparse(), "_rebuild_sparse_tensor"),
        (torch.ones(2, dtype=torch.complex64).conj(), "lazy 'conj' view"),
        (torch.zeros(2).untyped_storage(), "bare storage"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (os.getcwd, "getcwd"),
        ({(1, (2,)): 3}, "holds tuples"),
    ]:
        with pytest.raises(FormatError, match=name) as caught:
            load_value(saved(value))
        assert caught.value.kind == "pickle"


def test_files_that_are_none():
    for data, message in [
        (saved({}, _use_new_zipfile_serialization=False), "before torch 1.6"),
        (b"", "no file of torch.save"),
        (b"PK\x03", "no file of torch.save"),
        (b"rubbish", "no file of torch.save"),
    ]:
        with pytest.raises(FormatError, match=message) as caught:
            load_state_dict(data, entry="w.pt")
        assert caught.value.kind == "pickle" and caught.value.entry == "w.pt"
    with pytest.raises(FormatError):
        load_value(b"PK\x03\x04 rubbish")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zip:
        zip.writestr("archive/other.pkl", b"")
    with pytest.raises(FormatError, match="no entry data.pkl"):
        load_value(file.getvalue())


def test_numbers_of_the_other_byte_order():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zip:
        zip.writestr("archive/data.pkl", b"\x80\x02N.")
        zip.writestr("archive/byteorder", b"big")
    with pytest.raises(FormatError, match="little-endian") as caught:
        load_value(file.getvalue())
    assert caught.value.kind == "unsupported"


def test_state_dicts_and_inputs_that_are_none():
    for value, message in [
        ([1], "no state dict, but a list"),
        ({"a": 1}, "'a' of the state dict is no tensor, but an int"),
        ({1: torch.ones(1)}, "no text"),
    ]:
        with pytest.raises(FormatError, match=message):
            load_state_dict(saved(value))
    for value in ([1], ((1,),), (1, {}), ((1,), [])):
        with pytest.raises(FormatError, match="no pair"):
            load_example_inputs(saved(value))
    for value in (None, {}):
        assert load_example_inputs(saved(value)) is None
    assert load_example_inputs(saved(((1,), {"a": 2}))) == ((1,), {"a": 2})
    assert load_state_dict(saved({})) == {}


def test_neither_torch_nor_numpy_is_needed():
    out = run_python(
        """
        import sys, zipfile
        sys.modules["torch"] = sys.modules["numpy"] = None  # importing them raises
        from fastexport._unpickle import load_state_dict
        from pt2_files import MIDDLE
        path = next(path for path in MIDDLE if path.stem == "shared_weights")
        weights = load_state_dict(zipfile.ZipFile(path).read("shared_weights/data/weights/model.pt"))
        print(sum(sum(map(sum, w.tolist())) if w.ndim == 2 else 0 for w in weights.values()))
        """
    )
    path = SAMPLES / "middle_layout" / "shared_weights.pt2"
    data = zipfile.ZipFile(path).read("shared_weights/data/weights/model.pt")
    weights = torch.load(io.BytesIO(data), weights_only=True).values()
    assert math.isclose(float(out), sum(w.double().sum().item() for w in weights if w.ndim == 2))


# ---- at random ----

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(PLAIN, st.integers(2, 5))
def test_plain_values_are_what_pickle_makes_of_them(value, protocol):
    data = pickle.dumps(value, protocol)
    ours = load_pickle(data)
    assert repr(ours) == repr(pickle.loads(data)) and same(ours, value)


SEEDS = [
    pickle.dumps({"a": [1, 2.5, "text", (None, True, b"x")], "b": 1 << 70, "c": {(1, 2): [[]]}}, 4),
    *(
        zipfile.ZipFile(io.BytesIO(saved(value, pickle_protocol=protocol))).read("archive/data.pkl")
        for protocol in (2, 4)
        for value in (
            {"w": torch.nn.Parameter(torch.ones(2)), "b": torch.zeros(2, dtype=torch.uint16), "s": torch.Size([1])},
            ((torch.ones(1),), {"d": torch.device("cpu"), "c": 1j, "e": {1, 2}, "l": torch.strided}),
            torch.nn.Linear(1, 1).state_dict(),
        )
    ),
]
PIECES = [bytes((code,)) for code in range(256)] + [
    b"cos\nsystem\n",
    b"ctorch\nSize\n",
    b"ccollections\nOrderedDict\n)R",
    b"X\x01\0\0\0a",
    b"K\x01",
    b"(K\x01K\x02t",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"h\x00",
    b"\x94",
]


def survives(data):
    """Run a pickle that may be anything."""
    modules = set(sys.modules)
    for load in (load_pickle, lambda data: load_value(packed(data, s0=bytes(8), s1=bytes(8)))):
        try:
            repr(load(data))
        except FormatError as e:
            assert e.kind == "pickle"
    assert set(sys.modules) == modules


@settings(max_examples=300)
@given(
    st.sampled_from(SEEDS), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), st.sampled_from(PIECES)), max_size=6)
)
def test_spoilt_pickles(data, changes):
    for place, removed, inserted in changes:
        at = int(place * len(data))
        data = data[:at] + inserted + data[at + removed :]
    survives(data)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES)).map(b"".join))
@example(b"")
def test_random_operations(data):
    survives(b"\x80\x04" + data + b".")


def test_single_bytes_of_pickles():
    """Each byte of a small file's pickle, in turn, with some other values."""
    data = SEEDS[1]
    for at in range(len(data)):
        for change in (1, 0x80, 0xFF):
            survives(data[:at] + bytes((data[at] ^ change,)) + data[at + 1 :])


def test_our_operations_are_those_of_pickletools():
    """All that are not there are refused; those that are there have the same code as in the standard library."""
    from fastexport._unpickle import _OPERATIONS

    known = {ord(info.code): info for info in pickletools.opcodes}
    assert _OPERATIONS.keys() <= known.keys()
    risky = {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "NEXT_BUFFER"}
    assert not risky & {known[code].name for code in _OPERATIONS}
