"""fastexport.batch: many files on threads, processes, dask, loky and joblib, some of them damaged, or not there."""

import concurrent.futures
import doctest
import io
import itertools
import json
import multiprocessing
import os
import pickle
import re
import sys
import threading
import time
import zipfile
from functools import partial
from pathlib import Path

import fsspec
import pytest

import fastexport
from fastexport import Fault, FormatError, batch, load
from fastexport._program import open_archive
from fastexport.batch import (
    CheckReport,
    StatsReport,
    check_many,
    check_one,
    expand_paths,
    map_many,
    stats_many,
    stats_one,
)
from helpers import run_python
from pt2_files import ALL, HOSTILE, NEGATIVE, label, sample

GOOD = str(sample("linear"))


@pytest.fixture
def folder(tmp_path):
    """Files that are good, foreign, empty, damaged, ours no more, and a folder that is called like one."""
    data = sample("linear").read_bytes()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a.pt2").write_bytes(data)
    (tmp_path / "deep" / "b.pt2").write_bytes(data)
    (tmp_path / "deep" / "er" / "c.pt2").write_bytes(data[:-50])
    (tmp_path / "deep" / "notes.txt").write_text("no program")
    (tmp_path / "empty.pt2").write_bytes(b"")
    (tmp_path / "text.pt2").write_text("no program")
    (tmp_path / "folder.pt2").mkdir()
    return tmp_path


def verdicts(reports):
    return {os.path.basename(report.path): (report.ok, report.error) for report in reports}


WANTED = {"a.pt2": (True, None), "b.pt2": (True, None)} | dict.fromkeys(
    ("c.pt2", "empty.pt2", "text.pt2"), (False, None)
)
NOWHERE = {"none.pt2": (False, "No such file or directory"), "folder.pt2": (False, "Is a directory")}


def hard_list(folder):
    return [*expand_paths([folder]), str(folder / "none.pt2"), str(folder / "folder.pt2")]


# ---- one file ----


@pytest.mark.parametrize("path", [*ALL, *NEGATIVE, *sorted(HOSTILE.glob("*.pt2"))], ids=label)
def test_the_check_in_c_finds_what_load_and_verify_find(path):
    for level in ("lenient", "strict") if path in ALL else ("lenient",):
        noted = set()  # by opening the archive; errors that load raises don't have these
        try:
            noted.update(Fault(*fault) for fault in open_archive(path).faults)
            program = load(path, verify=False)
            wanted = [*program.faults, *program.verify(all=True, level=level)]
        except FormatError as error:
            wanted = error.faults
        report = check_one(path, level=level)
        assert set(report.faults) == noted | set(wanted) and report.error is None
        assert report.ok == (not any(fault.is_error for fault in wanted))
        assert set(report.errors + report.warnings) == set(report.faults)


def test_weights_are_checked_unless_told_otherwise(tmp_path):
    data = bytearray(sample("linear").read_bytes())
    data[data.index(load(GOOD).state_dict["fc.weight"].tobytes())] ^= 1
    assert [fault.code for fault in check_one(bytes(data)).faults] == ["FX102"]
    assert check_one(bytes(data), weights=False).ok


def test_all_models_of_a_file_are_checked(tmp_path):
    path = tmp_path / "two.pt2"
    with zipfile.ZipFile(GOOD) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
            if name.endswith("/models/model.json"):
                data = old.read(name).replace(b"aten.relu", b"aten.r")
                new.writestr(name.replace("model.json", "other.json"), data)
            elif name.rpartition("/")[2].startswith("model"):
                new.writestr(name.replace("/model", "/other"), old.read(name))
    found = check_one(path)
    assert {fault.entry for fault in found.faults} == {"models/other.json"}
    assert "FX304" in {fault.code for fault in found.faults}
    assert check_one(path, model="model").faults == () and check_one(path, model="other").faults == found.faults
    assert check_one(path, model="none").faults[0].code == "FX111"


def test_a_dialect_of_the_callers_is_asked():
    run_python(
        """
        import sys
        import fastexport
        from fastexport import batch
        class NoLinear(fastexport.Verifier):
            dialect = "TRAINING2"
            def check_valid_op(self, op):
                raise fastexport.VerifyError("no")
        from pt2_files import with_document, sample
        data = with_document(sample("linear"), lambda d: d.update(verifiers=["TRAINING2"]))
        assert "FX311" in {fault.code for fault in batch.check_one(data).faults}
        """
    )


def test_a_dialect_hides_nothing_of_other_models():
    """All models are asked about, and what the reading of a program finds is told too."""
    run_python(
        """
        import io, json, zipfile
        import fastexport
        from fastexport import batch
        from pt2_files import with_document, sample

        def models(change):
            one = io.BytesIO(with_document(sample("linear"), lambda d: d.update(verifiers=["TRAINING2"])))
            out = io.BytesIO()
            with zipfile.ZipFile(one) as old, zipfile.ZipFile(out, "w") as new:
                for name in old.namelist():
                    new.writestr(name, old.read(name))
                    folder, _, last = name.rpartition("/")
                    if last.startswith("model"):
                        data = old.read(name)
                        new.writestr(
                            f"{folder}/{last.replace('model', 'other')}", change(data) if "/models/" in name else data
                        )
            return out.getvalue()

        def codes(data, **options):
            return {(fault.code, fault.entry) for fault in batch.check_one(data, **options).faults}

        good = models(lambda data: data)
        bad = models(lambda data: data.replace(b"aten.relu.default", b"aten.nosuch.default"))
        broken = models(lambda data: data[:-9])
        before = [codes(data) for data in (good, bad, broken)]

        class Strict(fastexport.Verifier):
            dialect = "TRAINING2"
            def check_valid_op(self, op):
                if "relu" in op.__name__:
                    raise fastexport.VerifyError("no")

        without = [{(code, entry) for code, entry in found if code != "FX103"} for found in before]
        after = [codes(data) for data in (good, bad, broken)]
        assert [found - {("FX311", None)} for found in after] == without, (before, after)
        assert all(("FX311", None) in found for found in after)
        assert all(("FX103" not in {code for code, _ in found}) for found in after)
        assert len([f for f in batch.check_one(good).faults if f.code == "FX311"]) == 1  # told once, as all else
        assert ("FX311", None) not in codes(bad, model="other") and ("FX311", None) in codes(bad, model="model")
        """
    )


def test_names_of_files():
    file = io.BytesIO(sample("linear").read_bytes())
    with open(GOOD, "rb") as opened:
        names = [report.path for report in check_many([file, opened, sample("linear"), b""], in_order=True)]
    assert names == ["<BytesIO>", GOOD, GOOD, "<bytes>"]


def test_what_is_no_file():
    report = check_one(5)
    assert not report.ok and report.error.startswith("TypeError: ")
    with pytest.raises(TypeError):
        check_one(5, on_error="raise")
    with pytest.raises(FileNotFoundError):
        check_one("none.pt2", on_error="raise")
    assert not check_one(b"", on_error="raise").ok  # a damaged file is what a check is for
    with pytest.raises(ValueError, match="level"):
        check_one(GOOD, level="loose")


def test_memory_that_runs_out_is_the_files_error(monkeypatch):
    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(batch, "open_archive", fail)
    assert check_one(GOOD).error == "MemoryError: no reason is told"


def test_reports_become_json(folder):
    reports = list(check_many(hard_list(folder), in_order=True))
    read = json.loads(json.dumps([report.to_dict() for report in reports]))
    assert [each["ok"] for each in read] == [report.ok for report in reports]
    assert read[2]["faults"][0]["code"] == reports[2].faults[0].code
    assert pickle.loads(pickle.dumps(reports)) == reports
    with pytest.raises(AttributeError):
        reports[0].path = "other"


def test_statistics(folder):
    found = {os.path.basename(report.path): report for report in stats_many(hard_list(folder))}
    assert found["a.pt2"].stats == fastexport.stats(folder / "a.pt2") and found["a.pt2"].stats.name.endswith("a.pt2")
    assert [name for name, report in found.items() if report.ok] == ["a.pt2", "b.pt2"] or {
        name for name, report in found.items() if report.ok
    } == {"a.pt2", "b.pt2"}
    assert found["none.pt2"].error == "No such file or directory" and found["none.pt2"].stats is None
    assert "zip" in found["text.pt2"].error
    copies = pickle.loads(pickle.dumps(found))
    assert copies["a.pt2"].to_dict() == found["a.pt2"].to_dict()
    json.dumps([report.to_dict() for report in found.values()])
    with pytest.raises(FileNotFoundError):
        list(stats_many(["none.pt2"], on_error="raise"))


# ---- engines ----


def spawned(**options):
    return concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"), **options)


def loky():
    from loky import ProcessPoolExecutor

    return ProcessPoolExecutor(2)


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("engine", ["threads", "own", "spawn", "loky"])
def test_executors(folder, engine, chunksize):
    if engine == "own":
        assert verdicts(check_many(hard_list(folder), chunksize=chunksize)) == WANTED | NOWHERE
        return
    make = {"threads": lambda: concurrent.futures.ThreadPoolExecutor(2), "spawn": spawned, "loky": loky}[engine]
    with make() as executor:
        assert verdicts(check_many(hard_list(folder), executor=executor, chunksize=chunksize)) == WANTED | NOWHERE
        assert sum(report.ok for report in stats_many(hard_list(folder), executor=executor)) == 2


@pytest.mark.parametrize("processes", [False, True])
def test_a_dask_cluster(folder, processes, tmp_path):
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": processes, "dashboard_address": None}
    with (
        distributed.LocalCluster(**settings, local_directory=str(tmp_path / "dask")) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor()
        assert verdicts(check_many(hard_list(folder), executor=executor)) == WANTED | NOWHERE
        assert sum(report.ok for report in stats_many(hard_list(folder), executor=executor)) == 2


def test_a_dask_cluster_again_after_what_was_cancelled(tmp_path):
    """The scheduler still knows the calls that were cancelled: those of the next run are none of them."""
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    files = [tmp_path / f"{i}.pt2" for i in range(30)]
    for file in files:
        file.write_bytes(sample("linear").read_bytes())
    with (
        distributed.LocalCluster(**settings, local_directory=str(tmp_path / "dask")) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor()
        for _ in range(3):
            reports = check_many(files, executor=executor)
            assert next(reports).ok
            reports.close()
            assert sum(report.ok for report in check_many(files, executor=executor)) == len(files)
        held = [executor.submit(batch._call, partial(check_one, weights=True), None, [str(files[0])], b"")]
        assert held[0].result()[0].ok
        files[0].write_bytes(b"changed")
        assert not next(check_many(files[0], executor=executor)).ok
        assert len(set(map_many(unlike, [1, 1], executor=executor))) == 2


def unlike(item):
    return os.urandom(8)


def test_no_two_calls_are_alike():
    """An engine that takes calls of the same arguments for one, as dask does, does each of ours."""
    calls = []

    class Engine:
        def submit(self, function, *args):
            calls.append(pickle.dumps((function, args)))
            future = concurrent.futures.Future()
            future.set_result(function(*args))
            return future

    for _ in range(2):
        assert [report.ok for report in check_many([GOOD, GOOD], executor=Engine())] == [True, True]
    assert len(set(calls)) == 4


def test_maps(folder):
    from joblib import Parallel, delayed

    def joblib_map(function, items):
        return Parallel(n_jobs=2, return_as="generator")(delayed(function)(item) for item in items)

    paths = hard_list(folder)
    wanted = [report.path for report in check_many(paths, in_order=True)]
    for engine in (map, joblib_map):
        reports = list(check_many(paths, map=engine, chunksize=2))
        assert verdicts(reports) == WANTED | NOWHERE and [report.path for report in reports] == wanted
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert verdicts(check_many(paths, map=pool.imap_unordered)) == WANTED | NOWHERE
        assert sum(report.ok for report in stats_many(paths, map=pool.map)) == 2


def test_torch_and_numpy_are_not_imported(folder):
    code = """
        import sys
        from fastexport import batch
        assert all(list(report.faults) == [] for report in batch.check_many([sys.argv[1]] * 3))
        assert list(batch.stats_many([sys.argv[1]]))
        assert not {"torch", "numpy", "fsspec", "dask"}.intersection(sys.modules)
    """
    run_python(code, GOOD)


# ---- what is under way ----


class Slow(concurrent.futures.Executor):
    """Runs a call when a thread of the test says so, and counts what waits."""

    def __init__(self):
        self.waiting, self.most, self.cancelled, self.closed = [], 0, 0, False

    def submit(self, function, /, *args):
        future = Later(self)
        self.waiting.append((future, function, args))
        self.most = max(self.most, len(self.waiting))
        return future

    def run(self, which=0):
        future, function, args = self.waiting.pop(which)
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

    def shutdown(self, *args, **options):
        self.closed = True


class Later(concurrent.futures.Future):
    def __init__(self, owner):
        super().__init__()
        self.owner = owner

    def cancel(self):
        self.owner.cancelled += 1
        return super().cancel()

    def result(self, timeout=None):
        while not self.done():
            self.owner.run()
        return super().result(timeout)


def numbers(read, count=10**9):
    for number in range(count):
        read.append(number)
        yield number


def test_a_long_list_does_not_pile_up():
    executor, read = Slow(), []
    results = map_many(abs, numbers(read), executor=executor, pending=5, in_order=True)
    assert [next(results) for _ in range(100)] == list(range(100))
    assert executor.most == 5 and len(read) <= 105
    results.close()
    assert executor.cancelled == len(executor.waiting) and not executor.closed
    with pytest.raises(StopIteration):
        next(results)


def test_results_come_as_they_become_known():
    first, second = threading.Event(), threading.Event()

    def wait(item):
        (first if item == "late" else second).wait(10)
        return item

    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        results = map_many(wait, ["late", "early"], executor=executor)
        second.set()
        assert next(results) == "early"
        first.set()
        assert list(results) == ["late"]
        results = map_many(wait, ["late", "early"], executor=executor, in_order=True)
        assert list(results) == ["late", "early"]


def test_nothing_is_read_before_it_is_asked_for():
    read = []
    results = map_many(abs, numbers(read))
    assert read == []
    results.close()
    assert read == []


@pytest.mark.parametrize("in_order", [False, True])
def test_an_exception_cancels_the_rest(in_order):
    calls = []

    def fail(number):
        calls.append(number)
        raise ZeroDivisionError(number)

    with pytest.raises(ZeroDivisionError):
        list(map_many(fail, itertools.count(), pending=3, in_order=in_order))
    time.sleep(0.05)
    assert len(calls) <= 5


def test_an_exception_of_the_items_is_the_callers():
    def broken():
        yield 1
        raise OSError("the listing broke off")

    with pytest.raises(OSError, match="broke off"):
        list(map_many(abs, broken()))


def test_an_exception_of_progress_is_the_callers():
    def stop(done, total, result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(check_many([GOOD] * 5, progress=stop))


def test_a_worker_that_dies_is_told_of():
    with spawned() as executor, pytest.raises(concurrent.futures.process.BrokenProcessPool):
        list(map_many(os._exit, [3], executor=executor))


def test_control_c_stops_at_once():
    code = """
        import os, signal, sys, threading, time
        from fastexport import batch
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        def endless():
            while True:
                yield sys.argv[1]
        start = time.monotonic()
        try:
            for report in batch.check_many(endless()):
                pass
        except KeyboardInterrupt:
            assert time.monotonic() - start < 10
            print("stopped")
    """
    assert run_python(code, GOOD).strip() == "stopped"


def test_progress(folder):
    class Bar:
        count = 0

        def update(self, step):
            self.count += step

    bar, seen = Bar(), []
    list(check_many([GOOD] * 3, progress=bar))
    list(check_many([GOOD] * 3, progress=lambda done, total, report: seen.append((done, total, report.ok))))
    list(check_many(iter([GOOD]), progress=lambda done, total, report: seen.append((done, total, report.ok))))
    assert bar.count == 3 and seen == [(1, 3, True), (2, 3, True), (3, 3, True), (1, None, True)]


@pytest.mark.parametrize(
    "lossy, told",
    [
        (lambda function, items: list(map(function, items))[:-1], "2 results of 3 items"),
        (lambda function, items: map(function, itertools.islice(items, 2)), "2 results of 2 items or more"),
        (lambda function, items: [function([item]) for chunk in items for item in chunk * 2], "6 results of 3 items"),
        (lambda function, items: [], "0 results of 0 items or more"),
    ],
)
def test_maps_that_lose_results(lossy, told):
    with pytest.raises(RuntimeError, match=f"map gave {told}; it is to give one of each"):
        list(check_many([GOOD] * 3, map=lossy))
    with pytest.raises(RuntimeError, match=told):
        list(map_many(abs, [1, 2, 3], map=lossy))


def test_maps_that_give_something_else():
    with pytest.raises(TypeError, match="a list; it gave None"):
        list(check_many([GOOD], map=lambda function, items: [None for _ in items]))


def test_a_map_is_closed_when_nobody_reads_on():
    closed = []

    def engine(function, items):
        try:
            yield from map(function, items)
        finally:
            closed.append(True)

    found = map_many(abs, [1, 2, 3], map=engine)
    assert next(found) == 1 and not closed
    found.close()
    assert closed


def ends(item):
    raise StopIteration(item)


@pytest.mark.parametrize("options", [{}, {"map": map}, {"in_order": True}])
def test_stop_iteration_of_the_function_loses_nothing(options):
    with pytest.raises(RuntimeError, match="the function raised StopIteration"):
        list(map_many(ends, [1, 2, 3], **options))


@pytest.mark.parametrize("nothing", [None, 5, 2.5])
def test_what_is_no_file_and_no_list(nothing):
    for do in (check_many, stats_many, lambda paths: list(expand_paths(paths))):
        with pytest.raises(TypeError, match=f"files are a path.* not {nothing}"):
            do(nothing)


def test_options_that_can_not_be():
    for wrong, error in (
        ({"executor": Slow(), "map": map}, ValueError),
        ({"executor": 5}, TypeError),
        ({"chunksize": 0}, ValueError),
        ({"chunksize": "a"}, TypeError),
        ({"pending": 1.5}, TypeError),
        ({"map": 3}, TypeError),
        ({"progress": 3}, TypeError),
        ({"pending": 0}, ValueError),
        ({"on_error": "ignore"}, ValueError),
    ):
        with pytest.raises(error):
            check_many([GOOD], **wrong)
    assert list(check_many([])) == [] and list(map_many(abs, [], map=map)) == []


def test_errors_of_files_may_be_raised(folder):
    with pytest.raises(FileNotFoundError), spawned() as executor:
        list(check_many(["none.pt2"], executor=executor, on_error="raise"))
    with pytest.raises(FormatError):
        list(stats_many([b""], on_error="raise"))


# ---- where files are ----


def test_paths_are_expanded(folder):
    below = [os.path.join(folder, *parts) for parts in (("a.pt2",), ("empty.pt2",), ("text.pt2",))]
    deep = [os.path.join(folder, "deep", "b.pt2"), os.path.join(folder, "deep", "er", "c.pt2")]
    assert list(expand_paths([folder])) == [*below, *deep]
    assert list(expand_paths([str(folder / "deep" / "*.pt2")])) == deep[:1]
    assert list(expand_paths([str(folder / "**" / "[bc].pt2")])) == deep
    assert list(expand_paths(["none.pt2", str(folder / "no*.pt2")])) == ["none.pt2", str(folder / "no*.pt2")]
    assert list(expand_paths([folder], suffix=".txt")) == [os.path.join(folder, "deep", "notes.txt")]
    (folder / "odd[1].pt2").write_bytes(b"")
    assert list(expand_paths([folder / "odd[1].pt2"])) == [str(folder / "odd[1].pt2")]


def test_one_path_is_no_list_of_letters(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for one in ("a.pt2", Path("a.pt2")):
        assert [report.path for report in check_many(one)] == ["a.pt2"]
        assert [report.path for report in stats_many(one)] == ["a.pt2"]
        assert list(expand_paths(one)) == ["a.pt2"]
    assert list(expand_paths(b"a.pt2")) == list(expand_paths([b"a.pt2"])) == ["a.pt2"]
    assert list(expand_paths("deep")) == ["deep/b.pt2", "deep/er/c.pt2"]
    data = Path("a.pt2").read_bytes()
    for make in (bytes, memoryview, io.BytesIO, lambda data: fsspec.open(str(folder / "a.pt2"), "rb")):
        assert [report.ok for report in check_many(make(data))] == [True]
        assert [report.stats.nodes for report in stats_many(make(data))] == [6]


@pytest.mark.parametrize(
    "pattern", [".", "**/*.pt2", "./**/*.pt2", "**", "**/**/*.pt2", "*", "dee[p]", "deep/../**/er"]
)
def test_links_that_lead_back_are_not_followed(pattern, tmp_path, monkeypatch):
    """By a pattern as by a folder: each file once."""
    monkeypatch.chdir(tmp_path)
    Path("deep/er/.hidden").mkdir(parents=True)
    Path("deep/er/a.pt2").touch()
    Path("deep/er/loop").symlink_to("../..")
    Path("deep/loop").symlink_to(".")
    assert [os.path.normpath(path) for path in expand_paths([pattern])] == ["deep/er/a.pt2"]


def test_patterns_fit_as_those_of_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.pt2", "x[1]/b.pt2", "x[1]/y/c.pt2", "x[1]/y/notes.txt", ".hidden/d.pt2"):
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).touch()
    assert list(expand_paths(["*"])) == ["a.pt2", "x[1]/b.pt2", "x[1]/y/c.pt2"]
    assert list(expand_paths(["**/y"])) == ["x[1]/y/c.pt2"]
    assert list(expand_paths(["**/y/*"])) == ["x[1]/y/c.pt2", "x[1]/y/notes.txt"]
    assert list(expand_paths(["x*/**/c*", "x*/**c*"])) == ["x[1]/y/c.pt2", "x*/**c*"]
    assert list(expand_paths([f"{tmp_path}/**/*.pt2"])) == [
        f"{tmp_path}/{n}" for n in ("a.pt2", "x[1]/b.pt2", "x[1]/y/c.pt2")
    ]


@pytest.mark.parametrize("path", [".", "**/*.pt2", "d*"])
def test_folders_that_can_not_be_read_are_told_of(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("deep/closed", "deep/open"):
        Path(name).mkdir(parents=True)
        Path(name, "a.pt2").write_bytes(Path(GOOD).read_bytes())
    real = os.scandir

    def scandir(folder="."):
        if os.path.basename(folder) == "closed":
            raise PermissionError(13, "Permission denied", folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)  # whoever runs the tests may be allowed everything
    assert sorted(map(os.path.normpath, expand_paths([path]))) == ["deep/closed", "deep/open/a.pt2"]
    assert {report.ok for report in check_many(expand_paths([path]))} == {True, False}


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("in_order", [True, False])
def test_what_can_not_be_sent_to_processes_is_told_of(chunksize, in_order):
    with open(GOOD, "rb") as file:
        items = [GOOD, file, GOOD, threading.Lock(), file, file, file, GOOD]
        for many in (check_many, stats_many):
            with spawned() as executor:
                reports = list(many(items, executor=executor, chunksize=chunksize, in_order=in_order))
                assert len(reports) == 8 and sum(report.ok for report in reports) == 3
                bad = [report for report in reports if not report.ok]
                assert all("can't be sent to another process: " in report.error for report in bad)
                assert sorted(report.path for report in bad) == sorted([GOOD] * 4 + ["<lock>"])
                if in_order:
                    assert [report.ok for report in reports] == [isinstance(item, str) for item in items]
                with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
                    list(many([file], executor=executor, on_error="raise"))


@pytest.mark.parametrize("chunksize", [1, 3])
def test_what_can_not_be_sent_by_a_map_is_told_of(chunksize):
    from joblib import Parallel, delayed

    def joblib_map(function, items):
        return Parallel(n_jobs=2)(delayed(function)(item) for item in items)

    with open(GOOD, "rb") as file, multiprocessing.get_context("spawn").Pool(1) as pool:
        items = [GOOD, file, Path(GOOD), sample("linear").read_bytes(), threading.Lock()]
        for engine in (pool.map, pool.imap, pool.imap_unordered, joblib_map):
            reports = list(check_many(items, map=engine, chunksize=chunksize))
            assert [report.ok for report in reports] == [True, False, True, True, False]
            assert all("can't be sent to another process: " in report.error for report in reports if not report.ok)
        with pytest.raises((TypeError, pickle.PicklingError)):
            list(check_many([file], map=pool.imap, on_error="raise"))
        assert [report.ok for report in check_many(items, map=map)] == [True, True, True, True, False]


def unknown():
    raise LookupError("not here")


class NotThere:
    name = "not there.pt2"

    def __reduce__(self):
        return unknown, ()


def test_what_can_not_be_unpickled_breaks_no_pool():
    items = [GOOD, NotThere(), GOOD]
    with spawned() as executor:
        reports = list(check_many(items, executor=executor, chunksize=2, in_order=True))
    assert [report.ok for report in reports] == [True, False, True]
    assert reports[1].path == "not there.pt2" and reports[1].error.endswith("LookupError: not here")


def test_engines_that_pickle_at_once():
    class Engine:
        def submit(self, function, *args):
            function, args = pickle.loads(pickle.dumps((function, args)))
            if broken:
                raise RuntimeError("no workers")
            future = concurrent.futures.Future()
            future.set_result(function(*args))
            return future

    broken = False
    items = [GOOD, threading.Lock(), GOOD]
    assert [report.ok for report in check_many(items, executor=Engine(), in_order=True)] == [True, False, True]
    broken = True
    with pytest.raises(RuntimeError, match="no workers"):
        list(check_many([GOOD], executor=Engine()))


def test_errors_of_hostile_objects():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    class File:
        def __init__(self, error):
            self.error = error

        def read(self):
            raise self.error

    given = [Silent(), OSError(5, 5), OSError(), KeyError("a\nb\x85c"), ConnectionError("one\ntwo")]
    found = [report.error for report in check_many(map(File, given), in_order=True)]
    assert found == [
        "Silent: no reason is told",
        "[Errno 5] 5",
        "OSError",
        "KeyError: 'a\\nb\\x85c'",
        "ConnectionError: one two",
    ]


def test_names_of_hostile_objects():
    class Hostile:
        @property
        def name(self):
            raise RuntimeError("no name")

        def __reduce__(self):
            raise RuntimeError("no pickle")

        def read(self):
            raise RuntimeError("no bytes")

    (report,) = check_many([Hostile()])
    assert (report.path, report.error) == ("<Hostile>", "RuntimeError: no bytes")
    with spawned() as executor:
        (report,) = check_many([Hostile()], executor=executor)
    assert report.path == "<Hostile>" and report.error.endswith("RuntimeError: no pickle")


def test_levels_and_limits_are_known_before_anything_is_done():
    with pytest.raises(ValueError, match="level must be"):
        check_many([GOOD], level="high")
    for do, given in ((check_many, [GOOD]), (stats_many, [GOOD]), (check_one, GOOD), (stats_one, GOOD)):
        with pytest.raises(ValueError, match="there is no limit 'bytes'"):
            do(given, limits={"bytes": 7})
        with pytest.raises(TypeError, match="limits are a dict"):
            do(given, limits=3)
        with pytest.raises(TypeError, match="model is the name of one, or None, not 5"):
            do(given, model=5)


@pytest.fixture
def memory():
    """fsspec's file system in memory, with a folder of files."""
    system = fsspec.filesystem("memory")
    for i in range(3):
        system.pipe(f"/models/{i}/m.pt2", sample("linear").read_bytes())
    system.pipe("/models/bad.pt2", b"no program")
    yield system
    system.rm("/models", recursive=True)


def test_urls(memory):
    paths = list(expand_paths(["memory://models", "memory://models/*/m.pt2"]))
    assert len(paths) == 7 and all(path.startswith("memory://") for path in paths)
    assert list(expand_paths(["memory://models/bad.pt2"])) == ["memory://models/bad.pt2"]
    reports = list(check_many([*paths, "memory://models/none.pt2"], in_order=True))
    assert [report.ok for report in reports] == [True] * 3 + [False] + [True] * 3 + [False]
    assert reports[-1].error == "No such file or directory" and reports[0].path == paths[0]
    assert sum(report.ok for report in stats_many(paths)) == 6
    with fastexport.open_weights(paths[0]) as f:
        assert f.get_tensor("fc.bias").numel == 3


def test_files_of_a_chain_of_urls(memory, tmp_path):
    """Each can be opened: it has the whole chain."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in "ab":
            archive.write(sample("linear"), f"m/{name}.pt2")
    found = [f"zip://m/a.pt2::{path}", f"zip://m/b.pt2::{path}"]
    for url in (f"zip://::{path}", f"zip://m::{path}", f"zip://m/*.pt2::{path}"):
        assert list(expand_paths(url)) == found
    (cached,) = expand_paths("simplecache::memory://models/0")
    assert cached.startswith("simplecache::memory://")
    assert list(expand_paths("simplecache::memory://models/0/*.pt2")) == [cached]
    assert all(report.ok for report in check_many([*found, cached]))


def test_an_executor_without_futures():
    class Engine:
        def submit(self, *args):
            return None

    with pytest.raises(TypeError, match="gives a future"):
        list(check_many([GOOD], executor=Engine()))


def test_files_of_fsspec(memory, tmp_path):
    opened = fsspec.open("memory://models/0/m.pt2")
    assert len(load(opened).graph.nodes) == 6 and check_one(opened).ok
    assert check_one(opened).path == "memory:///models/0/m.pt2"
    with spawned() as executor:  # an OpenFile can be sent
        local = fsspec.open(f"file://{GOOD}")
        assert next(check_many([local], executor=executor)).ok
    cached = fsspec.open("filecache::memory://models/0/m.pt2", filecache={"cache_storage": str(tmp_path)})
    for file in (local, cached):
        weight = load(file).state_dict["fc.weight"]
        assert weight.tolist() and weight.storage.is_mapped


def test_fsspec_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match="pip install fsspec"):
        load("s3://bucket/m.pt2")
    assert "pip install fsspec" in check_one("s3://bucket/m.pt2").error
    with pytest.raises(ImportError, match="pip install fsspec"):
        list(expand_paths(["s3://bucket"]))


def test_names_of_classes_are_where_pickles_look_for_them():
    assert CheckReport.__module__ == StatsReport.__module__ == "fastexport.batch"
    report = CheckReport("a", (Fault("FX101", "zip", True, None, None, None, "é"),), None, 0.5)
    assert pickle.loads(pickle.dumps(report)) == report
    assert pickle.loads(pickle.dumps(partial(check_one, level="strict"))).keywords == {"level": "strict"}


def test_the_guide():
    """The examples of docs/guides/batch.md, in order, in one namespace."""
    root = Path(__file__).resolve().parent.parent
    blocks = re.findall(r"^```pycon\n(.*?)^```$", (root / "docs" / "guides" / "batch.md").read_text(), re.M | re.S)
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "batch.md", None, 0)
    before = os.getcwd()
    os.chdir(root)
    try:
        assert doctest.DocTestRunner().run(example).failed == 0 and len(example.examples) > 20
    finally:
        os.chdir(before)
        fsspec.filesystem("memory").rm("/zoo", recursive=True)
