"""Checks and statistics of many files, on whatever engine there is: threads, processes, a cluster.

All models of a folder::

    for report in fastexport.batch.check_many(fastexport.batch.expand_paths(["models/"])):
        print(report.path, "ok" if report.ok else report.faults[0])

An engine is any `concurrent.futures` executor (threads, spawned processes, loky, dask's ``Client.get_executor()``,
parsl), or any function that maps a function over an iterable (joblib, multiprocessing and Ray pools, Spark). Without
one, threads do the work: reading, checking and reading weights happen in C, without the GIL.

Files are paths, URLs that fsspec knows, fsspec's OpenFile, open binary files, or bytes; one alone is a list of one.
Nothing imports torch. What a file raises becomes its report, so that one damaged file among a hundred thousand stops
nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from fastexport import _core
from fastexport._errors import Fault, FileError, FormatError
from fastexport._loaded import loaded
from fastexport._paths import expand_paths, listed
from fastexport._program import LIMITS, ExportedProgram, Level, load, open_archive
from fastexport._remote import said_by

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
    try:
        if isinstance(source, str | os.PathLike):
            return os.fsdecode(source)
        for attribute in ("full_name", "name", "path"):
            name = getattr(source, attribute, None)
            if isinstance(name, str):
                return name
    except Exception:  # an object of a user's may raise when it is asked
        pass
    return f"<{type(source).__name__}>"


def _why(error: Exception, name: str) -> str:
    """The reason that an exception tells, in one line; where it is no sentence of its own, its class before it."""
    try:
        own = " ".join(str(error).splitlines())
        text = said_by(error, name) if isinstance(error, OSError | FormatError) else own
    except Exception:  # of a user's class
        return f"{type(error).__name__}: no reason is told"
    of_system = isinstance(error, OSError) and (isinstance(error.strerror, str) or text not in own)
    if of_system or type(error) is OSError or isinstance(error, FormatError):
        return text
    return f"{type(error).__name__}: {text or 'no reason is told'}"


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
    _check_options(model, limits)
    start, name = time.perf_counter(), name_of(source)
    error, faults = None, []
    try:
        faults = faults_of(open_archive(source, limits), model, level, weights)
    except FormatError as failure:
        if isinstance(failure, FileError) and on_error == "raise":
            raise
        faults = failure.faults or [Fault("FX101", failure.kind, True, failure.entry, None, None, str(failure))]
        error = _why(failure, name) if isinstance(failure, FileError) else None
    except Exception as failure:
        if on_error == "raise":
            raise
        error = _why(failure, name)
        if isinstance(failure, OSError):
            faults = [Fault("FX105", "io", True, None, None, None, error)]
    return CheckReport(name, tuple(faults), error, time.perf_counter() - start)


def _check_level(level: Any) -> None:
    if level not in ("lenient", "strict"):
        raise ValueError(f"level must be 'lenient' or 'strict', not {level!r}")


def _check_options(model: Any, limits: Mapping[str, int] | None) -> None:
    if model is not None and not isinstance(model, str):
        raise TypeError(f"model is the name of one, or None, not {model!r}")
    if limits is not None and not isinstance(limits, Mapping):
        raise TypeError(f"limits are a dict of numbers by name, or None, not {limits!r}")
    for name in limits or ():
        if name not in LIMITS:
            raise ValueError(f"there is no limit {name!r}")


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

    _check_options(model, limits)
    start, name = time.perf_counter(), name_of(source)
    error, found = None, None
    try:
        found = stats(load(source, verify=False, model=model, limits=limits))
        found.name = name
    except Exception as failure:
        if on_error == "raise":
            raise
        error = _why(failure, name)
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
        on_error: "report" makes a report of a file that can't be looked at, or not be sent to another process; "raise"
            raises and stops.
        model, level, weights, limits: see `check_one`.

    Yields:
        A `CheckReport` for each file, as it becomes known.

    Example:
        >>> paths = expand_paths(["tests/data/pt2/samples/current"])
        >>> sum(report.ok for report in check_many(paths)) > 10
        True
    """
    _check_level(level)
    _check_options(model, limits)
    options = {"model": model, "level": level, "weights": weights, "limits": limits, "on_error": _known(on_error)}
    return _mapped(
        partial(check_one, **options),  # type: ignore[arg-type]
        listed(paths),
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
        on_error: "report" makes a report of a file that can't be read, or not be sent to another process; "raise"
            raises and stops.
        model, limits: see `stats_one`.

    Yields:
        A `StatsReport` for each file, as it becomes known.

    Example:
        >>> paths = ["tests/data/pt2/samples/current/linear.pt2", "nowhere.pt2"]
        >>> [report.error for report in stats_many(paths, in_order=True)]
        [None, 'No such file or directory']
    """
    _check_options(model, limits)
    options = {"model": model, "limits": limits, "on_error": _known(on_error)}
    return _mapped(
        partial(stats_one, **options),  # type: ignore[arg-type]
        listed(paths),
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


def _unsent(kind: Callable[..., _R], item: _Unsent) -> _R:
    """The report on what can't be sent to where the work is done."""
    return kind(item.name, error=f"it can't be sent to another process: {item.why}")


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
        TypeError: an argument is none of these, or map gives what is none of the results.
        RuntimeError: map gives more results than there are items, or fewer; or function raises StopIteration, which
            would end the iteration as if all was done.

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
    unsent: Callable[[_Unsent], _R] | None,
    *,
    executor: Executor | None,
    map: Callable[..., Iterable[Any]] | None,
    chunksize: int,
    pending: int | None,
    in_order: bool,
    progress: Any,
) -> Iterator[_R]:
    """`map_many`; unsent makes the result of an item that can't be pickled where the engine pickles."""
    if not callable(function) or not isinstance(items, Iterable):
        wrong = items if callable(function) else function
        raise TypeError(f"a function and an iterable of items are wanted, not {wrong!r}")
    if executor is not None and map is not None:
        raise ValueError("give an executor or a map, not both")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"an executor has a method submit, as that of concurrent.futures; {executor!r} has none")
    if map is not None and not callable(map):
        raise TypeError(f"a map is called with a function and an iterable; {map!r} can't be called")
    for name, number in ("chunksize", chunksize), ("pending", 1 if pending is None else pending):
        if not isinstance(number, int):
            raise TypeError(f"{name} is a number, not {number!r}")
        if number < 1:
            raise ValueError(f"{name} is a number from 1 on, not {number}")
    total = len(items) if isinstance(items, Sequence) else None
    chunks = _chunks(items, chunksize, list if unsent is None else _Chunk)
    call = partial(_call, function, unsent)
    if map is not None:
        given = _Counted(chunks)
        groups = _of_map(iter(map(call, given)), given)
    else:
        groups = _on_executor(call, chunks, executor, pending, in_order)
    return _each(groups, total, _reporter(progress))


class _Unsent(NamedTuple):
    """What takes the place of an item that can't be pickled, or not be unpickled: what that is called, and why."""

    name: str
    why: str


class _Packed(NamedTuple):
    """An item as it was pickled, and what it is called."""

    name: str
    data: bytes

    def unpacked(self) -> Any:
        """The item; an `_Unsent` where what it needs is not there."""
        import pickle

        try:
            return pickle.loads(self.data)
        except Exception as error:
            return _Unsent(self.name, _why(error, self.name))


class _Chunk(list[Any]):
    """Items that go to the engine together. One that can't be pickled keeps none of the others from being sent."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ([item if type(item) in (str, bytes) else _packed(item) for item in self],)


def _packed(item: Any) -> _Packed | _Unsent:
    import pickle

    # what dask, loky and others pickle with, where it is in use: it takes classes of scripts too
    pickler = sys.modules.get("cloudpickle") or sys.modules.get("joblib.externals.cloudpickle") or pickle
    try:
        return _Packed(name_of(item), pickler.dumps(item))
    except Exception as error:
        name = name_of(item)
        return _Unsent(name, _why(error, name))


def _chunks(items: Iterable[Any], size: int, kind: type[list[Any]]) -> Iterator[list[Any]]:
    chunk = kind()
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = kind()
    if chunk:
        yield chunk


def _call(
    function: Callable[[Any], _R], unsent: Callable[[_Unsent], _R] | None, items: list[Any], token: bytes = b""
) -> list[_R]:
    """What is done where the engine does its work.

    Args:
        token: makes the call unlike any other; dask takes two that are alike for one, also where the first was
            cancelled, or the file has changed since.
    """
    try:
        if unsent is None:
            return [function(item) for item in items]
        arrived = (item.unpacked() if isinstance(item, _Packed) else item for item in items)
        return [unsent(item) if isinstance(item, _Unsent) else function(item) for item in arrived]
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


def _reporter(progress: Any) -> Callable[[int, int | None, Any], object] | None:
    if callable(getattr(progress, "update", None)):
        return lambda done, total, result: progress.update(1)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is called, or has a method update, as tqdm's; {progress!r} is neither")
    return progress


class _Counted:
    """Chunks, whose items are counted as they are taken."""

    def __init__(self, chunks: Iterator[list[Any]]) -> None:
        self._chunks = chunks
        self.count = 0

    def __iter__(self) -> Iterator[list[Any]]:
        return self

    def __next__(self) -> list[Any]:
        chunk = next(self._chunks)
        self.count += len(chunk)
        return chunk


def _of_map(groups: Iterator[list[_R]], given: _Counted) -> Generator[list[_R], None, None]:
    """What a map of the caller's gives; as much as there were items, or that is told of."""
    found = 0
    try:
        for group in groups:
            if not isinstance(group, list | tuple):
                raise TypeError(f"map is to give what the function returns, a list; it gave {group!r}")
            found += len(group)
            yield group
    finally:
        close = getattr(groups, "close", None)
        if close is not None:
            close()
    is_left = next(given, None) is not None
    if is_left or found != given.count:
        items = f"{given.count - is_left} items{' or more' * is_left}"
        raise RuntimeError(f"map gave {found} results of {items}; it is to give one of each")


def _each(groups: Generator[list[_R], None, None], total: int | None, report: Any) -> Iterator[_R]:
    done = 0
    with closing(groups):
        for group in groups:
            for result in group:
                done += 1
                if report is not None:
                    report(done, total, result)
                yield result


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_executor(
    call: Callable[..., list[_R]],
    chunks: Iterator[list[Any]],
    executor: Executor | None,
    pending: int | None,
    in_order: bool,
) -> Generator[list[_R], None, None]:
    own = None
    if executor is None:
        from concurrent.futures import ThreadPoolExecutor

        executor = own = ThreadPoolExecutor(_processors(), thread_name_prefix="fastexport")
    size = pending or max(64, 4 * getattr(executor, "_max_workers", 0))
    window = _Window(executor, call, size, in_order)
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
        call: Callable[..., list[_R]],
        size: int,
        in_order: bool,
    ) -> None:
        self._executor = executor
        self._call = call
        self._size = size
        self._in_order = in_order
        self._futures: dict[Any, None] = {}  # in the order of their start
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
        future = self._executor.submit(self._call, chunk, os.urandom(16))
        if not callable(getattr(future, "result", None)):
            raise TypeError(f"submit() of an executor gives a future, with a method result; it gave {future!r}")
        self._futures[future] = None
        if not self._in_order:
            future.add_done_callback(self._done.put)

    def _next(self) -> list[_R]:
        future = next(iter(self._futures)) if self._in_order else self._done.get()
        del self._futures[future]
        result: list[_R] = future.result()
        return result

    def cancel(self) -> None:
        """Take back what has not begun."""
        for future in self._futures:
            future.cancel()
