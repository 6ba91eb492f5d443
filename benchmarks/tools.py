"""./run bench tools: time the command, pictures, report pages, weights and checks of many files.

Compared before anything is timed: counts of operators with torch's; names, shapes and dtypes of weights with those that
safetensors lists; statistics with torch's, of doubles; files of safetensors by their tensors; the nodes and edges for
Model Explorer with those of an adapter in plain Python; and that all files of the many are right.

What is beside ours, torch, a plain way or a limit, is said in the row. Both take turns, by CPU time; by wall time where
threads, processes, the disk or a browser are timed.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

import fastexport
import measure
import page_time
import rows
import synthetic_file
import tool_cases
from exported import Kind, our_facts, same, tensor_facts
from fastexport.batch import check_many, stats_many, stats_one
from files import our_command, process
from progress import Bar, waiting
from rows import GIB, OURS_A_ROUND
from run import size_text

IMPORT, VERSION = "import fastexport, over bare python", "fastexport --version, over bare python"
PROCESS, STARTS = "a new process", 20  # of which there are so many in a round
CHECK_THREADS, STATS_THREADS = "check_many, 2 threads by one", "stats_many, 2 threads by one"
CHECK_TORCH, CHECK_ONE = "check a file, 2 threads, by torch", "check a file, by torch"
CLOSED, OPEN, FOLDED = "draw, modules closed", "draw, every level", "draw, every level, repeats folded"
DRAW_PROCESS = "draw, modules closed, from process start"
SIZE, MADE, READY = "report page, size", "report page, made", "report page, until it can be used"
TAKEN, PRIVATE = "get_tensor, growth of memory", "get_tensor, private memory once touched"
ADAPTER, SENT, JSON = "Model Explorer: adapter", "Model Explorer: adapter and server", "Model Explorer: JSON of a file"
STATS, SUMMARY, HTML = "count operators of a file, by torch", "summary of a file, by torch", "HTML, by torch's text"
LIST = "list weights, by safetensors"
EXPORT, NUMBERS = "to safetensors, by safetensors.torch", "statistics of weights, by torch"
TARGETS = {CHECK_THREADS: 1.7, CHECK_TORCH: 500, ADAPTER: 5, JSON: 5}
LIMITS = {IMPORT: 30, VERSION: 60, CLOSED: 200, OPEN: 1000, SIZE: 1000, READY: 1000}  # ms, kB
UNHELD = {FOLDED: 1000, DRAW_PROCESS: 200, MADE: 1000}  # stand beside rows that are not held to them
GROWTH = 0.01  # by which memory may grow, of what a copy would take

Job = Callable[[], Any]


def seconds(job: Job, clock: Callable[[], float] = time.process_time) -> float:
    """CPU seconds, or those of another clock; the collector has just run."""
    gc.collect()
    start = clock()
    result = job()
    passed = clock() - start
    del result  # released after the clock has stopped
    return passed


def wall_seconds(job: Job) -> float:
    return seconds(job, time.perf_counter)


def middle(job: Job, times: int = OURS_A_ROUND) -> float:
    return statistics.median(seconds(job) for _ in range(times))


class Run(rows.Rows):
    name, what, baseline = "tools", "file", "baseline"
    title = "Tools: many files, pictures, pages and weights"
    notes = (
        "- Medians over the rounds, both in turn; the middle of several runs of what is short. Results were compared",
        "  first. CPU time; wall time of threads, of processes, of what a browser does and of writing safetensors.",
        "  torch loads the Llama once.",
        "- Rows that are held to a number of milliseconds or kilobytes have that limit as their baseline. *over bare",
        f"  python*: beyond `python -c pass`, each a process, the middle of {STARTS}.",
        "- *2 threads by one*: of a loop without threads. *check a file, 2 threads*: the time of all, by their number,",
        "  beside `torch.export.load(FILE).validate()`.",
        "- *draw, every level*: each level of each module is laid out and drawn, those that look the same too.",
        "- *report page, until it can be used*: in chromium, from the start of the navigation from a file, by the",
        "  page's own clock, until everything has been unpacked, laid out and drawn.",
        "- *get_tensor*: in a process of its own, beside the bytes of the weight. *private* memory is what is no",
        "  mapping of a file, where a copy would be.",
        "- *Model Explorer*: beside an adapter in plain Python, `plain_explorer.py`, that tells the same.",
        "- *to safetensors*: ours waits until the disk has the file before it takes its name; safetensors does not.",
        "- *HTML*: what a notebook shows of a program, beside `str()` of torch's, which it shows there.",
    )

    def __init__(self, args: argparse.Namespace, folder: Path):
        super().__init__(args, folder)
        self.llama = Kind("llama", 2 if args.quick else 128)
        self.count, self.many_nodes = (8, 200) if args.quick else (1000, 2000)
        self.weight_bytes = (4 << 20) if args.quick else GIB
        self.weights = 20 if args.quick else 1000
        self.many = f"{self.count:,} files, {size_text(self.many_nodes)} nodes each"

    def limit(self, value: float | None) -> float | None:
        """A target, which small inputs are not held to."""
        return None if self.args.quick else value

    def asked(self, file: str, *jobs: str) -> list[str]:
        """Those of the jobs that are wanted."""
        return [job for job in jobs if self.wants(job, file)]

    def against(self, job: str, file: str, nodes: int, slow: list[float], fast: list[float]) -> None:
        """A row of seconds, with the target of its job."""
        milliseconds = [[t * 1e3 for t in side] for side in (slow, fast)]
        self.add(job, file, nodes, *milliseconds, target=self.limit(TARGETS.get(job)))

    def limited(self, job: str, file: str, nodes: int, found: list[float], unit: str = "ms") -> None:
        """A row of milliseconds or kilobytes that is judged by a limit, or only stands beside one."""
        most = self.limit(1 if job in LIMITS else None)
        limit = LIMITS.get(job) or UNHELD[job]
        self.add(job, file, nodes, [limit] * len(found), found, unit=unit, most=most, inverse=True)

    def in_turn(self, title: str, *jobs: Job) -> list[list[float]]:
        """What each job tells of itself, seconds or milliseconds, round by round; who begins changes."""
        found: list[list[float]] = [[] for _ in jobs]
        with Bar() as bar:
            for i in range(self.args.rounds):
                bar.update(i / self.args.rounds, title)
                sides = list(zip(found, jobs, strict=True))
                for times, job in sides if i % 2 else reversed(sides):
                    times.append(job())
        return found

    # ---- processes

    def starts(self) -> None:
        jobs = self.asked(PROCESS, IMPORT, VERSION)
        if not jobs:
            return
        python = [sys.executable, "-c"]
        commands = {
            "": [*python, "pass"],
            IMPORT: [*python, "import fastexport"],
            VERSION: [*our_command(), "--version"],
        }
        for command in commands.values():
            process(*command)  # brings files into the system's cache, and compiles our modules
        over: dict[str, list[float]] = {job: [] for job in jobs}
        for _ in range(self.args.rounds):
            times: dict[str, list[float]] = {job: [] for job in ("", *jobs)}
            for _ in range(1 if self.args.quick else STARTS):
                for job, measured in times.items():
                    measured.append(process(*commands[job])[1] * 1e3)
            bare, *ours = (statistics.median(measured) for measured in times.values())
            for job, took in zip(jobs, ours, strict=True):
                over[job].append(max(took - bare, 0.0))
            self.references["python -c pass"] = bare
        for job in jobs:
            self.limited(job, PROCESS, 0, over[job])

    # ---- many files

    def batch(self) -> None:
        jobs = self.asked(self.many, CHECK_THREADS, CHECK_TORCH, CHECK_ONE, STATS_THREADS)
        if not jobs:
            return
        with waiting(f"writing {self.many}", 0.02 * self.count):
            paths = synthetic_file.write_many(self.folder, self.count, self.many_nodes)
        nodes = len(fastexport.load(paths[0]).graph.nodes)
        with ThreadPoolExecutor(2) as threads:
            if not all(report.ok for report in check_many(paths, executor=threads)):
                raise RuntimeError("not timed, for files are not right")
            if jobs != [STATS_THREADS]:
                self.checks(jobs, paths, nodes, threads)
            if STATS_THREADS in jobs:
                one, two = self.in_turn(
                    STATS_THREADS,
                    lambda: wall_seconds(lambda: [stats_one(path) for path in paths]),
                    lambda: wall_seconds(lambda: list(stats_many(paths, executor=threads))),
                )
                self.against(STATS_THREADS, self.many, nodes, one, two)
        for path in paths:
            path.unlink()

    def checks(self, jobs: list[str], paths: list[Path], nodes: int, threads: ThreadPoolExecutor) -> None:
        ways: list[Job] = [
            lambda: wall_seconds(lambda: tool_cases.one_by_one(paths)),
            lambda: wall_seconds(lambda: list(check_many(paths, executor=threads))),
        ]
        if CHECK_TORCH in jobs or CHECK_ONE in jobs:
            others = iter(paths)
            tool_cases.torch_check(next(others))  # its first one takes longer
            ways.append(lambda: wall_seconds(partial(tool_cases.torch_check, next(others))))
        one, two, *slow = self.in_turn(self.many, *ways)
        if CHECK_THREADS in jobs:
            self.against(CHECK_THREADS, self.many, nodes, one, two)
        for job, ours in ((CHECK_TORCH, two), (CHECK_ONE, one)):
            if job in jobs:
                self.against(job, self.many, nodes, slow[0], [each / self.count for each in ours])

    # ---- one program

    def program(self) -> None:
        """The rows of an exported program."""
        groups = {
            self.pictures: (CLOSED, OPEN, FOLDED, DRAW_PROCESS),
            self.pages: (SIZE, MADE, READY),
            self.explorer: (ADAPTER, SENT, JSON),
            self.texts: (STATS, SUMMARY, HTML),
        }
        title = self.llama.title
        wanted = {group: asked for group, jobs in groups.items() if (asked := self.asked(title, *jobs))}
        if not wanted:
            return
        path = self.folder / "llama.pt2"
        with waiting(f"exporting {title}", 0.6 * self.llama.layers):
            torch.export.save(self.llama.export(), path)
        gc.collect()
        nodes = len(fastexport.load(path).graph.nodes)
        for group, jobs in wanted.items():
            group(jobs, path, nodes)
        path.unlink()

    def fresh(self, path: Path, job: Callable[[Any], Any]) -> float:
        """Milliseconds that a job takes on a program that nothing else has been asked of."""
        found = []
        for _ in range(OURS_A_ROUND):
            program = fastexport.load(path)
            found.append(seconds(lambda program=program: job(program)) * 1e3)
        return statistics.median(found)

    def pictures(self, jobs: list[str], path: Path, nodes: int) -> None:
        every = tool_cases.EVERY_LEVEL
        options: dict[str, dict[str, Any]] = {
            CLOSED: {},
            OPEN: {"depth": every, "fold": False},
            FOLDED: {"depth": every},
        }
        for job in jobs:
            if job == DRAW_PROCESS:
                command = [*our_command(), "draw", str(path), "-o", str(self.folder / "picture.svg")]
                (found,) = self.in_turn(job, partial(middle_process, command))
            else:
                (found,) = self.in_turn(job, partial(self.fresh, path, partial(draw, options[job])))
            self.limited(job, self.llama.title, nodes, found)

    def pages(self, jobs: list[str], path: Path, nodes: int) -> None:
        page = self.folder / "report.html"
        (made,) = self.in_turn(MADE, partial(self.fresh, path, lambda program: fastexport.report(program, path=page)))
        if MADE in jobs:
            self.limited(MADE, self.llama.title, nodes, made)
        if SIZE in jobs:
            self.limited(SIZE, self.llama.title, nodes, [page.stat().st_size / 1e3], unit="kB")
        if READY in jobs:
            try:
                with page_time.browser() as driver:
                    page_time.milliseconds_until_ready(driver, page)  # its own start
                    (found,) = self.in_turn(READY, partial(page_time.milliseconds_until_ready, driver, page))
            except (ImportError, FileNotFoundError) as error:
                print(f"left out: {READY}: {error}", file=sys.stderr)
            else:
                self.limited(READY, self.llama.title, nodes, found)

    def explorer(self, jobs: list[str], path: Path, nodes: int) -> None:
        try:
            tool_cases.compare_adapters(path)
        except ImportError as error:
            print(f"left out: Model Explorer: {error}", file=sys.stderr)
            return
        cases = tool_cases
        ways: dict[str, tuple[Job, Job]] = {
            ADAPTER: (lambda: cases.plain_adapter(path), lambda: cases.our_adapter(path)),
            SENT: (lambda: cases.sent(cases.plain_adapter(path)), lambda: cases.sent(cases.our_adapter(path))),
            JSON: (lambda: cases.plain_json(path), lambda: cases.our_json(path)),
        }
        for job in jobs:
            slow, fast = self.in_turn(job, *(partial(middle, way) for way in ways[job]))
            self.against(job, self.llama.title, nodes, slow, fast)

    def texts(self, jobs: list[str], path: Path, nodes: int) -> None:
        """What torch has to load a program for; it does so once."""
        program: Any = None

        def load() -> None:
            nonlocal program
            program = torch.export.load(path)

        loading = seconds(load)
        tool_cases.compare_counts(program, path)
        title = self.llama.title
        if STATS in jobs:
            slow = loading + seconds(lambda: tool_cases.torch_counts(program))
            self.against(STATS, title, nodes, [slow], [middle(lambda: fastexport.stats(path))])
        if SUMMARY in jobs:
            self.against(SUMMARY, title, nodes, [loading], [middle(lambda: str(fastexport.summary(path)))])
        if HTML in jobs:
            show: Callable[[Any], Any] = lambda ours: ours._repr_mimebundle_()  # noqa: E731
            slows, fasts = self.in_turn(
                HTML, lambda: seconds(lambda: str(program)) * 1e3, partial(self.fresh, path, show)
            )
            self.add(HTML, title, nodes, slows, fasts)

    # ---- weights

    def one_weight(self) -> None:
        """The rows of a file with a single weight."""
        title = f"made up, a weight of {self.weight_bytes >> 20} MiB"
        jobs = self.asked(title, TAKEN, PRIVATE, EXPORT, NUMBERS)
        if not jobs:
            return
        path, small = self.folder / "weight.pt2", self.folder / "small.pt2"
        with waiting(f"writing {title}", 4 * self.weight_bytes / GIB):
            nodes = synthetic_file.write(path, 1, self.weight_bytes)
            synthetic_file.write(small, 1)
        if TAKEN in jobs or PRIVATE in jobs:
            found = [measure.told_by("tensor_memory.py", str(path), str(small)) for _ in range(self.args.rounds)]
            for job, what in ((TAKEN, "taken"), (PRIVATE, "private")):
                if job in jobs:
                    sides = [[one[key] / 1e6 for one in found] for key in ("weight", what)]
                    self.add(job, title, nodes, *sides, unit="MB", most=self.limit(GROWTH), inverse=True)
        if EXPORT in jobs or NUMBERS in jobs:
            self.elements(jobs, path, title, nodes)
        path.unlink()

    def elements(self, jobs: list[str], path: Path, title: str, nodes: int) -> None:
        from safetensors.torch import load_file, save_file

        with fastexport.open_weights(path, framework="pt") as file:
            ours = {name: file[name] for name in file}
            theirs = {name: file.get_tensor(name).clone() for name in file}
        if EXPORT in jobs:
            out, our_out = self.folder / "torch.safetensors", self.folder / "ours.safetensors"
            save_file(theirs, out)
            fastexport.to_safetensors(ours, our_out)
            same("weights in safetensors", tensor_facts(load_file(out)), tensor_facts(load_file(our_out)))
            slow, fast = self.in_turn(
                EXPORT,
                lambda: wall_seconds(lambda: save_file(theirs, out)),
                lambda: wall_seconds(lambda: fastexport.to_safetensors(ours, our_out)),
            )
            self.against(EXPORT, title, nodes, slow, fast)
            out.unlink()
            our_out.unlink()
        if NUMBERS in jobs:
            tool_cases.compare_statistics(theirs, ours)
            slow, fast = self.in_turn(
                NUMBERS,
                lambda: seconds(lambda: tool_cases.torch_statistics(theirs)),
                lambda: seconds(lambda: tool_cases.our_statistics(ours)),
            )
            self.against(NUMBERS, title, nodes, slow, fast)

    def many_weights(self) -> None:
        title = f"made up, {self.weights:,} weights"
        if not self.wants(LIST, title):
            return
        path, other = self.folder / "weights.pt2", self.folder / "weights.safetensors"
        nodes = synthetic_file.write(path, 2 + self.weights * synthetic_file.NODES_A_BLOCK)
        with fastexport.open_weights(path) as file:
            same("how many weights", self.weights, len(file))
            fastexport.to_safetensors(file, other)
            same("weights", our_facts(file), our_facts(fastexport.from_safetensors(other)))
        tool_cases.compare_lists(other, path)
        slow, fast = self.in_turn(
            LIST,
            lambda: middle(lambda: tool_cases.listed_by_safetensors(other)),
            lambda: middle(lambda: tool_cases.listed_by_us(path)),
        )
        self.against(LIST, title, nodes, slow, fast)

    def all(self) -> None:
        self.starts()
        self.batch()
        self.program()
        self.one_weight()
        self.many_weights()


def draw(options: dict[str, Any], program: Any) -> str:
    return fastexport.draw(program, **options)


def middle_process(command: list[str]) -> float:
    """Milliseconds."""
    return statistics.median(process(*command)[1] * 1e3 for _ in range(OURS_A_ROUND))


if __name__ == "__main__":
    sys.exit(rows.main(Run, __doc__.splitlines()[0]))
