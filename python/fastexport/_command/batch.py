"""One function over the files of a command line: some at a time, told in their order, with a bar where that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from fastexport._command.files import check_inputs
from fastexport._terminal import Progress
from fastexport.batch import expand_paths, map_many

_T = TypeVar("_T")


def each_file(function: Callable[[str], _T], files: Sequence[str], jobs: int) -> Iterator[_T]:
    """What a function makes of each file, as it becomes known, in the order of the files.

    Args:
        function: called with a path.
        files: see `named_files`.
        jobs: how many files at a time; 0: one a processor.
    """
    progress = Progress("files", len(files))
    for result in _results(function, files, jobs):
        progress.close()
        yield result
        progress.add(1)
    progress.close()


def _results(function: Callable[[str], _T], files: Sequence[str], jobs: int) -> Iterator[_T]:
    if jobs == 1 or len(files) == 1:
        yield from map(function, files)
        return
    executor: Any = None
    if jobs:
        from concurrent.futures import ThreadPoolExecutor

        executor = ThreadPoolExecutor(jobs)
    try:
        yield from map_many(function, files, executor=executor, in_order=True)
    finally:
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for what is under way


def named_files(paths: Sequence[str]) -> list[str]:
    """The files that paths, folders and patterns name.

    Raises:
        OSError: there are none at all, standard input is named twice, or a URL can't be opened here.
    """
    check_inputs(paths)
    try:
        files = list(expand_paths(paths))
    except (ImportError, ValueError) as error:  # of a URL: what it needs is not there
        raise OSError(str(error)) from error
    if not files:
        raise FileNotFoundError(f"there are no .pt2 files in {', '.join(paths)}")
    return files
