"""Timing of jobs against each other: interleaved, in one process, by CPU time.

One round runs each job once, in turn, so that what disturbs the machine disturbs all of them. The
collector is on, as a user has it, and has just run when a job begins; then a walk over the nodes,
such as another pass would do, has brought the graph back into the caches. A job that changes its
input gets a fresh one each time. Neither the making nor the walk is timed.
"""

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Job:
    """Something to time: `run`, given what `prepare` makes."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None
    changes: bool = False  # what it is given


@dataclass(frozen=True)
class Spread:
    """The middle of some numbers, and the quarters below and above it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: list[float]) -> "Spread":
        if len(numbers) == 1:
            return cls(numbers[0], numbers[0], numbers[0])
        low, _, high = statistics.quantiles(numbers, n=4, method="inclusive")
        return cls(statistics.median(numbers), low, high)

    def scaled(self, factor: float) -> "Spread":
        return Spread(self.median * factor, self.low * factor, self.high * factor)


def walk(given: Any) -> int:
    """Look at each node of the graph that a job is given, alone or with what to do in it."""
    graph = given[0] if isinstance(given, tuple) else getattr(given, "graph", given)
    return sum(len(node.args) + len(node.users) for node in getattr(graph, "nodes", ()))


def once(job: Job) -> tuple[float, float | None]:
    """CPU seconds of one run, and of the next one at once: with all that it reads in the caches."""
    given = job.prepare()
    gc.collect()
    walk(given)
    first = _seconds(job, given)
    return first, None if job.changes else _seconds(job, given)


def _seconds(job: Job, given: Any) -> float:
    start = time.process_time()
    result = job.run(given)
    seconds = time.process_time() - start
    del result  # released after the clock has stopped
    return seconds


@dataclass
class Times:
    """Seconds of a job, by round; `again` when it may run a second time on the same input."""

    first: list[float]
    again: list[float]


def interleaved(
    jobs: Mapping[str, Job],
    *,
    budget: float = 2.0,
    at_least: int = 5,
    at_most: int = 25,
    tick: Callable[[], object] = lambda: None,
) -> dict[str, Times]:
    """Time jobs in turn, round by round.

    Args:
        jobs: what to time.
        budget: how long, in seconds, to go on; the making of inputs counts.
        at_least: rounds, even when they take longer.
        at_most: rounds.
        tick: called after each run, outside of what is timed.

    Returns:
        The times of each job. A first round, which warms up, is left out.
    """
    times = {name: Times([], []) for name in jobs}
    names = list(jobs)
    start = time.monotonic()
    for i in range(at_most + 1):
        if i > at_least and time.monotonic() - start > budget:
            break
        turn = i % len(names)
        for name in names[turn:] + names[:turn]:
            first, again = once(jobs[name])
            if i:
                times[name].first.append(first)
            if i and again is not None:
                times[name].again.append(again)
            tick()
    return times


def ratio(slow: list[float], fast: list[float]) -> Spread:
    """How many times faster, round by round."""
    return Spread.of([a / b for a, b in zip(slow, fast, strict=True)])


@contextmanager
def collector_off() -> Any:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def resident_growth(make: Callable[[], object]) -> int:
    """By how many bytes the memory of a process grows when it makes something; tried in a child.

    The child hands free memory back to the system first, so that the growth is not hidden in it.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            gc.collect()
            _trim()
            before = _resident()
            made = make()
            os.write(write, str(_resident() - before).encode())
            del made
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        raise RuntimeError("the child that measures memory failed")
    return int(answer)


def _trim() -> None:
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass  # a C library without it: the growth may come out too small


def _resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def environment() -> dict[str, str]:
    """That of processes: modules are compiled once, as an installation does it, not at each start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def told_by(script: str, *args: str) -> dict[str, int]:
    """The JSON object that a script of this folder prints, in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *args]
    found: dict[str, int] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment()).stdout
    )
    return found


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    cpu = platform.processor()
    try:
        with open("/proc/cpuinfo") as f:
            models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
        cpu = models[0] if models else cpu
    except OSError:
        pass
    return {
        "cpu": cpu or platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
    }
