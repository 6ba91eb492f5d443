"""Checks and statistics of many files, on whatever engine there is: threads, processes, a cluster.

All models of a folder::

    for report in fastexport.batch.check_many(fastexport.batch.expand_paths(["models/"])):
        print(report.path, "ok" if report.ok else report.faults[0])

An engine is any `concurrent.futures` executor (threads, spawned processes, loky, dask's ``Client.get_executor()``,
parsl), or any function that maps a function over an iterable (joblib, multiprocessing and Ray pools, Spark). Without
one, threads do the work: reading, checking and reading weights happen in C, without the GIL.

Files are paths, URLs that fsspec knows, fsspec's OpenFile, open binary files, or bytes; one alone is a list of one.
Nothing imports torch. What a
file raises becomes its report, so that one damaged file among a hundred thousand stops nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from fastexport import _core
from fastexport._errors import Fault, FileError, FormatError
from fastexport._loaded import loaded
from fastexport._program import ExportedProgram, Level, load, open_archive
from fastexport._remote import import_fsspec, is_open_file, is_url

if TYPE_CHECKING:
    from fastexport._stats import Stats

__all__ = [
    "CheckReport",
    "StatsReport",
    "check_many",
    "check_one",
    "expand_paths",
    "map_many",
    "stats_many",
    "stats_one",
]

_R = TypeVar("_R")
_Path = str | bytes | os.PathLike[str]
OnError = Literal["report", "raise"]


class Executor(Protocol):
    """What an executor needs to have."""

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Any:
        """Start a call; gives a future."""


# ---- reports -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckReport:
    """Everything that is wrong with one file. It can be pickled, and holds nothing of the file.

    Attributes:
        path: what the file was named by.
        faults: what was found, errors and warnings, as `fastexport.Fault`.
        error: why the file could not be looked at (it is not there, not ours to read, too large for memory), or None.
        seconds: how long it took.
    """

    path: str
    faults: tuple[Fault, ...] = ()
    error: str | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the file was read and has no errors; warnings it may have."""
        return self.error is None and not self.errors

    @property
    def errors(self) -> tuple[Fault, ...]:
        """The faults that are errors."""
        return tuple(fault for fault in self.faults if fault.is_error)

    @property
    def warnings(self) -> tuple[Fault, ...]:
        """The faults that are none."""
        return tuple(fault for fault in self.faults if not fault.is_error)

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        faults = [fault._asdict() for fault in self.faults]
        return {"path": self.path, "ok": self.ok, "error": self.error, "seconds": self.seconds, "faults": faults}


@dataclass(frozen=True)
class StatsReport:
    """Counts and sizes of one file. It can be pickled, and holds nothing of the file.

    Attributes:
        path: what the file was named by.
        stats: see `fastexport.stats`; None when the file could not be read.
        error: why not, or None.
        seconds: how long it took.
    """

    path: str
    stats: Stats | None = None
    error: str | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the file was read."""
        return self.error is None

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        stats = None if self.stats is None else self.stats.to_dict()
        return {"path": self.path, "ok": self.ok, "error": self.error, "seconds": self.seconds, "stats": stats}


# ---- one file ------------------------------------------------------------------------------------


def name_of(source: Any) -> str:
    """What reports call a file: its path where it has one.

    >>> import io
    >>> name_of("a.pt2"), name_of(io.BytesIO()), name_of(b"PK")
    ('a.pt2', '<BytesIO>', '<bytes>')
    """
    if isinstance(source, str | os.PathLike):
        return os.fsdecode(source)
    for attribute in ("full_name", "name", "path"):
        name = getattr(source, attribute, None)
        if isinstance(name, str):
            return name
    return f"<{type(source).__name__}>"


def _why(error: Exception) -> str:
    """The reason that an exception tells, in one line."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or "no reason is told"
    return text if isinstance(error, OSError | FormatError) else f"{type(error).__name__}: {text}"


def faults_of(archive: _core.Archive, model: str | None, level: Level, weights: bool) -> list[Fault]:
    """Every fault of one model of an archive, or of all (None); found without making graphs, and without the GIL.

    Args:
        archive: the archive.
        model: the name of the model, or None.
        level, weights: as for `ExportedProgram.verify`.
    """
    found = archive.faults + _core.check_archive(archive, model, level == "strict", weights)
    faults = list(dict.fromkeys(Fault(*fault) for fault in found))
    verifier = loaded("fastexport._verifier")
    if verifier is not None and verifier._registry:  # dialects that only Python knows
        names: list[str | None] = [model] if model is not None else [*archive.models]
        for name in names or [None]:
            faults = _judged(archive, name, faults)
    return faults


def _judged(archive: _core.Archive, model: str | None, faults: list[Fault]) -> list[Fault]:
    """The faults, and what dialects of the caller's have to say of a model."""
    from fastexport._verifier import with_dialects

    try:
        program = ExportedProgram(_core.Program(archive, model))
    except FormatError:
        return faults  # among which is why
    return list(dict.fromkeys(with_dialects(program, faults, None)))


def check_one(
    source: Any,
    *,
    model: str | None = None,
    level: Level = "lenient",
    weights: bool = True,
    limits: Mapping[str, int] | None = None,
    on_error: OnError = "report",
) -> CheckReport:
    """Check one file; what `check_many` does with each.

    Args:
        source: the file.
        model: the name of a model; by default all that the file has are checked.
        level: "strict" also reports what torch's exporter would not have written.
        weights: also read all weights to their ends and check their checksums.
        limits: what a file may ask of us; see `fastexport.load`.
        on_error: "raise" raises for a file that can't be looked at, in the place of reporting it.

    Example:
        >>> check_one("tests/data/pt2/samples/current/linear.pt2").ok
        True
        >>> check_one("nowhere.pt2").error
        'No such file or directory'
    """
    _check_level(level)
    start, name = time.perf_counter(), name_of(source)
    error, faults = None, []
    try:
        faults = faults_of(open_archive(source, limits), model, level, weights)
    except FormatError as failure:
        if isinstance(failure, FileError) and on_error == "raise":
            raise
        faults = failure.faults or [Fault("FX101", failure.kind, True, failure.entry, None, None, str(failure))]
        error = _why(failure) if isinstance(failure, FileError) else None
    except Exception as failure:
        if on_error == "raise":
            raise
        error = _why(failure)
        if isinstance(failure, OSError):
            faults = [Fault("FX105", "io", True, None, None, None, error)]
    return CheckReport(name, tuple(faults), error, time.perf_counter() - start)


def _check_level(level: Any) -> None:
    if level not in ("lenient", "strict"):
        raise ValueError(f"level must be 'lenient' or 'strict', not {level!r}")


def stats_one(
    source: Any, *, model: str | None = None, limits: Mapping[str, int] | None = None, on_error: OnError = "report"
) -> StatsReport:
    """Count what one file is made of; what `stats_many` does with each.

    Args:
        source: the file.
        model: the name of the model, of a file with several.
        limits: what a file may ask of us; see `fastexport.load`.
        on_error: "raise" raises for a file that can't be read, in the place of reporting it.

    Example:
        >>> stats_one("tests/data/pt2/samples/current/linear.pt2").stats.nodes
        6
    """
    from fastexport._stats import stats

    start, name = time.perf_counter(), name_of(source)
    error, found = None, None
    try:
        found = stats(load(source, verify=False, model=model, limits=limits))
        found.name = name
    except Exception as failure:
        if on_error == "raise":
            raise
        error = _why(failure)
    return StatsReport(name, found, error, time.perf_counter() - start)


# ---- many ----------------------------------------------------------------------------------------


def check_many(
    paths: Any,
    *,
    executor: Executor | None = None,
    map: Callable[..., Iterable[Any]] | None = None,
    chunksize: int = 1,
    pending: int | None = None,
    in_order: bool = False,
    progress: Any = None,
    on_error: OnError = "report",
    model: str | None = None,
    level: Level = "lenient",
    weights: bool = True,
    limits: Mapping[str, int] | None = None,
) -> Iterator[CheckReport]:
    """Check files, many at a time; see `check_one`, and `map_many` for what is not told here.

    Args:
        paths: the files, or one; a generator is read as the work goes on.
        executor, map, chunksize, pending, in_order, progress: see `map_many`.
        on_error: "report" makes a report of a file that can't be looked at, or not be sent to the process of an
            executor; "raise" raises and stops.
        model, level, weights, limits: see `check_one`.

    Yields:
        A `CheckReport` for each file, as it becomes known.

    Example:
        >>> paths = expand_paths(["tests/data/pt2/samples/current"])
        >>> sum(report.ok for report in check_many(paths)) > 10
        True
    """
    _check_level(level)
    options = {"model": model, "level": level, "weights": weights, "limits": limits, "on_error": _known(on_error)}
    return _mapped(
        partial(check_one, **options),  # type: ignore[arg-type]
        _listed(paths),
        partial(_unsent, CheckReport) if on_error == "report" else None,
        executor=executor,
        map=map,
        chunksize=chunksize,
        pending=pending,
        in_order=in_order,
        progress=progress,
    )


def stats_many(
    paths: Any,
    *,
    executor: Executor | None = None,
    map: Callable[..., Iterable[Any]] | None = None,
    chunksize: int = 1,
    pending: int | None = None,
    in_order: bool = False,
    progress: Any = None,
    on_error: OnError = "report",
    model: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Iterator[StatsReport]:
    """Count what files are made of, many at a time; see `stats_one`, and `map_many` for what is not told here.

    Args:
        paths: the files, or one; a generator is read as the work goes on.
        executor, map, chunksize, pending, in_order, progress: see `map_many`.
        on_error: "report" makes a report of a file that can't be read, or not be sent to the process of an executor;
            "raise" raises and stops.
        model, limits: see `stats_one`.

    Yields:
        A `StatsReport` for each file, as it becomes known.

    Example:
        >>> paths = ["tests/data/pt2/samples/current/linear.pt2", "nowhere.pt2"]
        >>> [report.error for report in stats_many(paths, in_order=True)]
        [None, 'No such file or directory']
    """
    options = {"model": model, "limits": limits, "on_error": _known(on_error)}
    return _mapped(
        partial(stats_one, **options),  # type: ignore[arg-type]
        _listed(paths),
        partial(_unsent, StatsReport) if on_error == "report" else None,
        executor=executor,
        map=map,
        chunksize=chunksize,
        pending=pending,
        in_order=in_order,
        progress=progress,
    )


def _known(on_error: str) -> str:
    if on_error not in ("report", "raise"):
        raise ValueError(f"on_error is 'report' or 'raise', not {on_error!r}")
    return on_error


def _listed(paths: Any) -> Any:
    """The files; one that is given alone as a list, and not taken for a list of its letters or lines."""
    is_one = isinstance(paths, str | bytes | bytearray | memoryview | os.PathLike)
    return [paths] if is_one or hasattr(paths, "read") or is_open_file(paths) else paths


def _unsent(kind: Callable[..., _R], item: Any, error: Exception) -> _R:
    """The report on what can't be sent to where the work is done."""
    return kind(name_of(item), error=f"it can't be sent to another process: {_why(error)}")


def map_many(
    function: Callable[[Any], _R],
    items: Iterable[Any],
    *,
    executor: Executor | None = None,
    map: Callable[..., Iterable[Any]] | None = None,
    chunksize: int = 1,
    pending: int | None = None,
    in_order: bool = False,
    progress: Any = None,
) -> Iterator[_R]:
    """What a function makes of each item, on an engine of the caller's; for jobs of one's own over many files.

    Only so many calls are under way at a time that a long list does not pile up in the engine. Closing the iterator,
    an exception and Ctrl-C cancel what has not begun.

    Args:
        function: called with an item. For processes it has to be importable: a function of a module, or a `partial`.
        items: what it is called with; a generator is read as the work goes on, on the thread that reads the results.
        executor: anything with a ``submit`` like that of `concurrent.futures.Executor`; it is the caller's to close.
            None: threads, as many as there are processors for us.
        map: instead, a function like the builtin ``map``: called with a function and an iterable of lists of items. It
            decides itself what is under way.
        chunksize: how many items go to the engine at once. More spare messages where a call is short and far away.
        pending: how many calls are under way or wait in the engine; by default four a worker, and 64 at least.
        in_order: give results in the order of the items, and not as they become known; what `map` gives has its order.
        progress: called with (items done, all or None, result), or an object with ``update(1)`` such as tqdm's.

    Raises:
        ValueError: executor and map are both given, or a number is below 1.
        TypeError: executor has no submit.

    Example:
        >>> sorted(map_many(abs, [-1, 2, -3]))
        [1, 2, 3]
    """
    return _mapped(
        function,
        items,
        None,
        executor=executor,
        map=map,
        chunksize=chunksize,
        pending=pending,
        in_order=in_order,
        progress=progress,
    )


def _mapped(
    function: Callable[[Any], _R],
    items: Iterable[Any],
    unsent: Callable[[Any, Exception], _R] | None,
    *,
    executor: Executor | None,
    map: Callable[..., Iterable[Any]] | None,
    chunksize: int,
    pending: int | None,
    in_order: bool,
    progress: Any,
) -> Iterator[_R]:
    """`map_many`; unsent makes the result of an item that can't be pickled for an executor, and why not."""
    if executor is not None and map is not None:
        raise ValueError("give an executor or a map, not both")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"an executor has a method submit, as that of concurrent.futures; {executor!r} has none")
    if chunksize < 1 or (pending is not None and pending < 1):
        raise ValueError("chunksize and pending are numbers from 1 on")
    total = len(items) if isinstance(items, Sequence) else None
    chunks = _chunks(items, chunksize)
    call = partial(_call, function)
    if map is not None:
        groups = iter(map(call, chunks))
    else:
        groups = _on_executor(call, chunks, executor, pending, in_order, unsent)
    return _each(groups, total, _reporter(progress))


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _call(function: Callable[[Any], _R], items: list[Any]) -> list[_R]:
    return [function(item) for item in items]


def _reporter(progress: Any) -> Callable[[int, int | None, Any], object] | None:
    if progress is None or not hasattr(progress, "update"):
        return progress
    return lambda done, total, result: progress.update(1)


def _each(groups: Iterator[list[_R]], total: int | None, report: Any) -> Iterator[_R]:
    done = 0
    try:
        for group in groups:
            for result in group:
                done += 1
                if report is not None:
                    report(done, total, result)
                yield result
    finally:
        close = getattr(groups, "close", None)
        if close is not None:
            close()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_executor(
    call: Callable[[list[Any]], list[_R]],
    chunks: Iterator[list[Any]],
    executor: Executor | None,
    pending: int | None,
    in_order: bool,
    unsent: Callable[[Any, Exception], _R] | None,
) -> Iterator[list[_R]]:
    own = None
    if executor is None:
        from concurrent.futures import ThreadPoolExecutor

        executor = own = ThreadPoolExecutor(_processors(), thread_name_prefix="fastexport")
    size = pending or max(64, 4 * getattr(executor, "_max_workers", 0))
    window = _Window(executor, call, size, in_order, unsent)
    try:
        yield from window.results(chunks)
    finally:
        window.cancel()
        if own is not None:
            own.shutdown(wait=False, cancel_futures=True)


class _Window(Generic[_R]):
    """The calls that are under way: never more than so many."""

    def __init__(
        self,
        executor: Executor,
        call: Callable[[list[Any]], list[_R]],
        size: int,
        in_order: bool,
        unsent: Callable[[Any, Exception], _R] | None,
    ) -> None:
        self._executor = executor
        self._call = call
        self._size = size
        self._in_order = in_order
        self._unsent = unsent
        self._futures: dict[Any, list[Any]] = {}  # with what was sent, in the order of their start
        self._done: SimpleQueue[Any] = SimpleQueue()

    def results(self, chunks: Iterator[list[Any]]) -> Iterator[list[_R]]:
        """Start calls, and give what they give; an exception of one is raised."""
        for chunk in chunks:
            self._start(chunk)
            while not self._done.empty() or len(self._futures) >= self._size:
                yield self._next()
        while self._futures:
            yield self._next()

    def _start(self, chunk: list[Any]) -> None:
        try:
            future = self._executor.submit(self._call, chunk)
        except Exception as error:  # of an engine that pickles at once
            if self._unsent is None or not any(map(_pickling_error, chunk)):
                raise
            from concurrent.futures import Future

            future = Future[list[_R]]()
            future.set_exception(error)
        self._futures[future] = chunk
        if not self._in_order:
            future.add_done_callback(self._done.put)

    def _next(self) -> list[_R]:
        future = next(iter(self._futures)) if self._in_order else self._done.get()
        chunk = self._futures.pop(future)
        try:
            result: list[_R] = future.result()
        except Exception:
            if self._unsent is None:
                raise
            result = self._without_unsent(chunk, self._unsent)
            if not result:
                raise
        return result

    def _without_unsent(self, chunk: list[Any], unsent: Callable[[Any, Exception], _R]) -> list[_R]:
        """The results of a chunk that failed, of which some can't be pickled; none when that is not why it did."""
        why = {i: error for i, error in enumerate(map(_pickling_error, chunk)) if error is not None}
        if not why:
            return []
        rest = [item for i, item in enumerate(chunk) if i not in why]
        results = iter(self._executor.submit(self._call, rest).result() if rest else [])
        return [unsent(item, why[i]) if i in why else next(results) for i, item in enumerate(chunk)]

    def cancel(self) -> None:
        """Take back what has not begun."""
        for future in self._futures:
            future.cancel()


def _pickling_error(item: Any) -> Exception | None:
    import pickle

    try:
        pickle.dumps(item)
    except Exception as error:
        return error
    return None


# ---- files ---------------------------------------------------------------------------------------


def expand_paths(paths: Iterable[_Path] | _Path, suffix: str = ".pt2") -> Iterator[str]:
    """The files that paths name: those below a folder, those that a pattern fits, and others as they are.

    Folders are gone through in order, and lazily: the first file is there before the last folder was opened. Those that
    are links are not, where they are come upon below another. A folder that can't be read is given in the place of its
    files, so that whoever opens it is told why. URLs of fsspec may be folders and patterns too.

    Args:
        paths: files, folders and patterns (``*``, ``?``, ``[a-z]``, and ``**`` for folders below), or one of them. Of
            a folder that a pattern fits, the files below it are taken.
        suffix: of files in folders.

    Raises:
        ImportError: there is a URL, and no fsspec.

    Example:
        >>> [path.rpartition("/")[2] for path in expand_paths(["tests/data/pt2/samples/current/line*.pt2"])]
        ['linear.pt2']
    """
    for path in _listed(paths):
        name = os.fsdecode(path)
        if is_url(name):
            yield from _expand_url(name, suffix)
        elif os.path.isdir(name):
            yield from _below(name, suffix)
        elif any(char in name for char in "*?[") and not os.path.lexists(name):
            yield from _matches(name, suffix)
        else:
            yield name


_SEPARATORS = re.escape(os.sep + (os.altsep or ""))
_FOLDERS_BELOW = re.compile(rf"(?:^|(?<=[{_SEPARATORS}]))\*\*(?:[{_SEPARATORS}]+|$)")


def _below(folder: str, suffix: str) -> Iterator[str]:
    unread: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unread.append(error.filename)):
        yield from _emptied(unread)
        folders.sort()
        yield from (os.path.join(parent, file) for file in sorted(files) if file.endswith(suffix))
    yield from unread


def _emptied(names: list[str]) -> Iterator[str]:
    while names:
        yield names.pop(0)


def _matches(pattern: str, suffix: str) -> Iterator[str]:
    """The files that a pattern fits, each once, and those below folders that it fits; without any, the pattern."""
    found: dict[str, None] = {}
    for name in sorted(_glob(pattern)):
        found.update(dict.fromkeys(_below(name, suffix) if os.path.isdir(name) else [name]))
    yield from found or [pattern]


def _glob(pattern: str) -> set[str]:
    """What a pattern fits. Unlike glob's, ``**`` goes into no link, which may lead back, and tells what is unread."""
    from glob import escape, glob

    parts = _FOLDERS_BELOW.split(pattern, maxsplit=1)
    if len(parts) == 1:
        return set(glob(pattern))
    top, rest = parts
    found: set[str] = set()
    for folder in glob(top) if top else ["."]:
        for parent, folders, _ in os.walk(folder, onerror=lambda error: found.add(error.filename)):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inner = escape(os.path.join(parent if top else parent[2:], ""))
            found.update(name for name in _glob(inner + (rest or "*")) if not _is_linked_folder(name))
    return found


def _is_linked_folder(name: str) -> bool:
    return os.path.islink(name) and os.path.isdir(name)


def _expand_url(url: str, suffix: str) -> Iterator[str]:
    fs, path = import_fsspec(url).core.url_to_fs(url)
    if any(char in path for char in "*?["):
        found = sorted(fs.glob(path))
    elif not url.endswith(suffix) and fs.isdir(path):
        found = sorted(name for name in fs.find(path) if name.endswith(suffix))
    else:
        yield url
        return
    yield from (fs.unstrip_protocol(name) for name in found)
