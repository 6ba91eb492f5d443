"""One function over the files of a command line: some at a time, told in their order, with a bar where that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from fastexport._command.files import check_inputs
from fastexport._remote import is_url
from fastexport._terminal import Progress
from fastexport.batch import expand_paths, map_many

_T = TypeVar("_T")
_MOST_JOBS = 256  # threads: of many more the system has none


def each_file(function: Callable[[str], _T], files: Sequence[str], jobs: int) -> Iterator[_T]:
    """What a function makes of each file, as it becomes known, in the order of the files.

    Args:
        function: called with a path.
        files: see `named_files`.
        jobs: how many files at a time; 0: one a processor.
    """
    progress = Progress("files", len(files))
    try:
        for result in _results(function, files, jobs):
            progress.close()
            yield result
            progress.add(1)
    finally:
        progress.close()


def _results(function: Callable[[str], _T], files: Sequence[str], jobs: int) -> Iterator[_T]:
    if jobs == 1 or len(files) == 1:
        yield from map(function, files)
        return
    executor: Any = None
    if jobs:
        from concurrent.futures import ThreadPoolExecutor

        executor = ThreadPoolExecutor(min(jobs, _MOST_JOBS))
    try:
        yield from map_many(function, files, executor=executor, in_order=True)
    finally:
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for what is under way


def named_files(paths: Sequence[str]) -> list[str]:
    """The files that paths, folders and patterns name.

    Raises:
        OSError: there are none at all, or standard input is named twice.
    """
    check_inputs(paths)
    files: list[str] = []
    for path in paths:
        try:
            files += expand_paths(path)
        except Exception:
            if not is_url(path):
                raise
            files.append(path)  # whoever opens it is told why
    if not files:
        raise FileNotFoundError(f"there are no .pt2 files in {', '.join(paths)}")
    return files
