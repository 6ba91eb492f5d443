"""Large files of fsspec are read by ranges: what is fetched, and what comes of it when that fails."""

import asyncio
import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

fsspec = pytest.importorskip("fsspec")
torch = pytest.importorskip("torch")
from fsspec.asyn import AsyncFileSystem  # noqa: E402
from fsspec.implementations.cached import CachingFileSystem  # noqa: E402
from fsspec.spec import AbstractBufferedFile  # noqa: E402

import fastexport  # noqa: E402
from fastexport import _core, _remote  # noqa: E402
from fastexport._remote import RemoteFile, said_by  # noqa: E402
from fastexport._views import html_of  # noqa: E402
from fastexport.batch import check_many, check_one, stats_one  # noqa: E402
from helpers import run_python  # noqa: E402
from pt2_files import ALL, HOSTILE, NEGATIVE, label, sample  # noqa: E402


class FarFile(AbstractBufferedFile):
    """A file of which requests are written down."""

    def _fetch_range(self, start, end):
        return self.fs.answer(self.path, start, end)


class Far(fsspec.AbstractFileSystem):
    """A file system that is far away; fault, if any, is called before a request is answered."""

    cachable = False

    def __init__(self, files):
        super().__init__()
        self.files = files
        self.requests = []
        self.fault = None

    def info(self, path, **options):
        return {"name": path, "size": len(self.files[path]), "type": "file"}

    def _open(self, path, mode="rb", **options):
        return FarFile(self, path, mode, **options)

    def answer(self, path, start, end):
        self.requests.append((start, end))
        if self.fault is not None:
            self.fault()
        return self.files[path][start:end]

    @property
    def fetched(self):
        return sum(end - start for start, end in self.requests)


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(5)))

    def forward(self, x):
        return self.layers(x)


@pytest.fixture(scope="module")
def data():
    torch.manual_seed(0)
    file = io.BytesIO()
    torch.export.save(torch.export.export(Wide(), (torch.ones(2, 200),)), file)
    return file.getvalue()


@pytest.fixture
def far(data, monkeypatch):
    monkeypatch.setattr(_remote, "_WHOLE", 100_000)
    return Far({"m.pt2": data})


def opened(far):
    return fsspec.core.OpenFile(far, "m.pt2")


def test_a_graph_comes_without_the_weights(far, data):
    program = fastexport.load(opened(far), verify=False)
    assert [node.name for node in program.graph.nodes] == [node.name for node in fastexport.load(data).graph.nodes]
    assert far.fetched < len(data) / 3
    before = far.fetched
    assert stats_one(opened(far)).stats.parameters == 10 and check_one(opened(far), weights=False).ok
    assert far.fetched < 4 * before


def test_a_weight_comes_without_the_others(far, data):
    wanted = fastexport.load(data).state_dict
    with fastexport.open_weights(opened(far)) as weights:
        tensor = weights.get_tensor("layers.3.weight")
        far.requests.clear()
        assert tensor.tobytes() == wanted["layers.3.weight"].tobytes()
        assert tensor.nbytes <= far.fetched < 2 * tensor.nbytes + 4 * _remote._AHEAD
        assert not tensor.storage.is_mapped
        part = weights.get_slice("layers.1.weight")[10:12]
        far.requests.clear()
        assert part.tobytes() == wanted["layers.1.weight"].tobytes()[8000:9600]
        assert len(far.requests) == 1 and far.fetched <= _remote._AHEAD


def test_everything_is_checked_and_saved_as_ever(far, data, tmp_path):
    assert check_one(opened(far)).ok
    assert far.fetched < 1.5 * len(data)
    damaged = bytearray(data)
    damaged[data.index(fastexport.load(data).state_dict["layers.2.weight"].tobytes()) + 7] ^= 1
    far.files["m.pt2"] = bytes(damaged)
    (fault,) = check_one(opened(far)).faults
    assert fault.kind == "crc"
    far.files["m.pt2"] = data
    program = fastexport.load(opened(far))
    program.save(tmp_path / "m.pt2")
    assert fastexport.load(tmp_path / "m.pt2").state_dict["layers.0.bias"].tolist() == (
        program.state_dict["layers.0.bias"].tolist()
    )


@pytest.mark.parametrize("path", [*ALL, *NEGATIVE, *sorted(HOSTILE.glob("*.pt2"))], ids=label)
def test_every_file_is_the_same_by_ranges(path, monkeypatch):
    """Damaged and hostile ones too."""
    monkeypatch.setattr(_remote, "_WHOLE", 0)
    far = Far({"m.pt2": path.read_bytes()})
    found, wanted = check_one(opened(far)), check_one(path.read_bytes())
    assert far.requests or path.stat().st_size < 22, "an archive has that many bytes"
    assert (found.faults, found.error) == (wanted.faults, wanted.error)


def test_small_files_are_fetched_whole(far, data, monkeypatch):
    monkeypatch.setattr(_remote, "_WHOLE", len(data))
    assert check_one(opened(far)).ok
    assert far.fetched == len(data)


def test_what_a_cache_has_is_not_fetched_again(far, data, tmp_path):
    cached = CachingFileSystem(fs=far, cache_storage=str(tmp_path))
    for _ in range(2):
        with fastexport.open_weights(fsspec.core.OpenFile(cached, "m.pt2")) as weights:
            far.requests.clear()
            assert len(weights["layers.1.weight"].tobytes()) == 160_000
    assert not far.requests


def test_a_file_that_was_read_from_is_read_on(far, data):
    far.files["m.pt2"] = b"head" + data
    with far.open("m.pt2") as file:
        file.seek(4)
        assert len(fastexport.load(file).state_dict) == 10


def test_headers_are_asked_for_together(data):
    """Where the file system can do that."""
    waiting, most = 0, 0

    class Asynchronous(AsyncFileSystem):
        cachable = False

        async def _cat_file(self, path, start=None, end=None):  # it takes no options of open()
            nonlocal waiting, most
            waiting += 1
            most = max(most, waiting)
            await asyncio.sleep(0.001)
            waiting -= 1
            return data[start:end]

    def work():
        archive = _core.Archive(RemoteFile(Asynchronous(), "m.pt2", len(data), {}))
        return [len(archive.read(name)) == size for name, size, *_ in archive.entries()]

    assert len(work()) > 15 and all(work()) and most >= 4
    with ThreadPoolExecutor(2) as executor:
        assert all(map(all, executor.map(lambda _: work(), range(4))))


def doing(far, data, step):
    """One thing to do with a remote file, that needs bytes of it."""
    if step == "open":
        return lambda: fastexport.open_weights(opened(far))
    if step == "load":
        return lambda: fastexport.load(opened(far), verify=False)
    program = fastexport.load(opened(far), verify=False)
    if step == "save":
        return lambda: program.save(io.BytesIO(), verify=False)
    return {
        "touch": program.state_dict["layers.2.weight"].tobytes,
        "slice": program.state_dict.get_slice("layers.1.weight")[3:9].tobytes,
        "verify": lambda: program.verify(all=True),
    }[step]


STEPS = ("open", "load", "touch", "slice", "verify", "save")


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), KeyboardInterrupt(), LookupError("no such bucket")])
@pytest.mark.parametrize("step", STEPS)
def test_what_the_file_system_raises_comes_as_it_is(far, data, step, error):
    """At whichever request; and the next attempt is none the worse for it."""
    action = doing(far, data, step)
    for nth in range(100):
        left = [nth]

        def fault(left=left):
            left[0] -= 1
            if left[0] < 0:
                raise error

        far.fault = fault
        try:
            action()
        except type(error) as raised:
            assert raised is error or error in (raised.__cause__, raised.__context__)
        else:
            break
    assert 0 < nth < 100
    far.fault = None
    action()


@pytest.mark.parametrize("answer", [b"", b"short", b"x" * 10_000_000, "text", None, 7])
def test_wrong_answers_are_errors(far, data, answer):
    far.answer = lambda path, start, end: answer
    report = check_one(opened(far))
    assert not report.ok and report.error


class Ignorant(Far):
    """A file system that knows of no ranges: it sends the whole file for each."""

    def answer(self, path, start, end):
        super().answer(path, start, end)
        return self.files[path]

    def cat_ranges(self, paths, starts, ends, **options):
        return [self.answer(path, start, end) for path, start, end in zip(paths, starts, ends, strict=True)]


def test_a_server_without_ranges_sends_the_file_once(data, monkeypatch):
    monkeypatch.setattr(_remote, "_WHOLE", 100_000)
    far, wanted = Ignorant({"m.pt2": data}), fastexport.load(data).state_dict
    program = fastexport.load(opened(far))
    assert {name: tensor.tobytes() for name, tensor in program.state_dict.items()} == {
        name: tensor.tobytes() for name, tensor in wanted.items()
    }
    assert len(far.requests) == 1
    assert check_one(opened(far)).ok and stats_one(opened(far)).ok


class Answered(Exception):
    """As aiohttp tells of an answer of a server."""

    status, message = 404, "Not Found"


def raised(error, cause=None):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (raised(FileNotFoundError("http://a/m.pt2"), Answered("404, url='http://a/m.pt2'")), "Not Found (404)"),
        (raised(FileNotFoundError("http://a/m.pt2"), OSError(111, "Connection refused")), "Connection refused"),
        (raised(FileNotFoundError("a/m.pt2"), KeyError("/a/m.pt2")), "No such file or directory"),
        (PermissionError("/a/m.pt2"), "Permission denied"),
        (FileNotFoundError("The bucket does not exist"), "The bucket does not exist"),
        (FileNotFoundError(2, "No such file or directory", "a/m.pt2"), "No such file or directory"),
        (OSError("http://a/m.pt2: 5 bytes came"), "5 bytes came"),
        (LookupError("one\ntwo"), "one two"),
        (LookupError(), "LookupError"),
    ],
)
def test_what_errors_of_file_systems_say(error, said):
    assert said_by(error, "http://a/m.pt2") == said


def test_a_read_that_uses_the_file_is_an_error(far, data):
    """It has the lock already, and would wait for ever."""
    program = fastexport.load(opened(far), verify=False)
    tensor = program.state_dict["layers.0.weight"]
    far.fault = lambda: program.state_dict["layers.1.weight"].tobytes()
    with pytest.raises(RuntimeError, match="in use by the read that this call is part of"):
        tensor.tobytes()
    far.fault = None
    assert len(tensor.tobytes()) == 160_000


def test_threads(far, data):
    wanted = fastexport.load(data).state_dict
    program = fastexport.load(opened(far), verify=False)
    barrier = threading.Barrier(8)

    def touch(i):
        barrier.wait()
        return [program.state_dict[name].tobytes() == wanted[name].tobytes() for name in list(wanted)[i % 5 :]]

    with ThreadPoolExecutor(8) as executor:
        assert all(all(found) for found in executor.map(touch, range(8)))
    assert all(report.ok for report in check_many([opened(far)] * 6))


def test_a_notebook_shows_a_tensor_that_is_out_of_reach(far, data):
    with fastexport.open_weights(opened(far)) as weights:
        tensor = weights["layers.0.weight"]

    def fault():
        raise LookupError("no such bucket")

    far.fault = fault
    assert "float32[200, 200]" in html_of(tensor) and "values" not in html_of(tensor)
    far.fault = None
    assert "values" in html_of(tensor)


def test_bytes_seen_by_a_memoryview_in_garbage():
    """The collector clears a memoryview that it finds in garbage, though an archive still holds its bytes."""
    code = """
        import gc, sys
        from fastexport import _core
        sys.unraisablehook = lambda error: print("unraisable", error.exc_value)
        data = open(sys.argv[1], "rb").read()
        class Owner:
            pass
        for _ in range(20):
            view, owner = memoryview(data), Owner()
            owner.archive, owner.itself = _core.Archive(view), owner
            del view, owner
        gc.collect()
        print(sum(isinstance(each, Owner) for each in gc.get_objects()))
    """
    assert run_python(code, str(sample("linear"))) == "0\n"
