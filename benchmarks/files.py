"""./run bench files: time what fastexport does with .pt2 files beside torch.export.

Compared before anything is timed, for each exported file:

- the text of the graph, of its signature and of its range constraints, as torch.export.load and fastexport.load give
  them, and the names, dtypes and bytes of all weights and constants;
- a file loaded and saved unchanged: every entry has the bytes of the original;
- a file saved after a node was renamed: torch.export.load and fastexport.load read the graph that torch has after the
  same edit;
- what `fastexport show` prints: it begins with what `print(torch.export.load(FILE).graph)` prints.

A small made-up file, of the kind that growth and memory are measured on, is read by both and compared likewise.

Both take turns in one process, by CPU time. torch is as it is, without accelerate(). Rows "from process start" are
processes in turn, by wall time. In each round torch's work runs once and ours, which is short, several times; the
middle of them counts. Memory is the growth of a fresh process's peak.
"""

import argparse
import gc
import os
import re
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import fastexport
import measure
import rows
import synthetic_file
from exported import Kind, entries, our_facts, same, tensor_facts, texts
from progress import Bar, waiting
from rows import GIB, OURS_A_ROUND
from run import size_text

SLACK = 1 << 20  # bytes that load may read beyond an archive without its weights
NEW_NAME = "renamed_by_the_benchmark"

LOAD = "load + verify"
UNREAD = "load + verify, CRCs of weights left out"
TEXT = "str(graph)"
SAVE = "load + save, unchanged"
EDIT = "load + save, one node renamed"
SHOW = "show FILE, from process start"
VERSION = "--version, from process start"
TREE, PYTHON_TREE = "peak memory of load, by yyjson's tree", "peak memory of load, by json.loads"
READS, READS_UNVERIFIED = "bytes read by load", "bytes read by load, verify=False"
KINDS = (Kind("llama", 128), Kind("bert", 64, dynamic=True), Kind("bert", 64, decomposed=True))
TARGETS = {LOAD: 200, TEXT: 20, SAVE: 200, EDIT: 200, SHOW: 100}
GROWING = ("growth of load + verify", "growth of str(graph)", "growth of save after an edit")
MOST = {TREE: 1.2, **dict.fromkeys(GROWING, 1.5)}
LESS = {TREE, PYTHON_TREE, READS, READS_UNVERIFIED, *GROWING}  # is better

Times = dict[str, tuple[float, float]]  # CPU and wall seconds, by job


# ---- both sides ----------------------------------------------------------------------------------


def timed(job: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """What a job gives, and its CPU and wall seconds; the collector has just run."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    result = job()
    return result, (time.process_time() - cpu, time.perf_counter() - wall)


def both(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]


def some_node(graph: Any) -> Any:
    """The operator call in the middle, in graphs of either kind."""
    calls = [node for node in graph.nodes if node.op == "call_function" and "getitem" not in str(node.target)]
    return calls[len(calls) // 2]


def rename(program: Any) -> None:
    some_node(program.graph).name = NEW_NAME


def torch_round(path: Path, out: Path, wanted: set[str]) -> Times:
    """torch loads once for all of a round's jobs."""
    program, load = timed(lambda: torch.export.load(path))
    times = {LOAD: load, UNREAD: load}
    if TEXT in wanted:
        times[TEXT] = timed(lambda: str(program.graph))[1]
    if SAVE in wanted:
        times[SAVE] = both(load, timed(lambda: torch.export.save(program, out))[1])
    if EDIT in wanted:

        def edit_and_save() -> None:
            rename(program)
            torch.export.save(program, out)

        times[EDIT] = both(load, timed(edit_and_save)[1])
    return times


def our_round(path: Path, out: Path, wanted: set[str]) -> Times:
    """The middle of several runs of each job."""
    program = fastexport.load(path)

    def save(edit: bool) -> None:
        fresh = fastexport.load(path)
        if edit:
            rename(fresh)
        fresh.save(out)

    jobs: dict[str, Callable[[], Any]] = {
        LOAD: lambda: fastexport.load(path),
        UNREAD: lambda: fastexport.load(path, limits={"checked_bytes": 1}),
        TEXT: lambda: str(program.graph),
        SAVE: lambda: save(False),
        EDIT: lambda: save(True),
    }
    return {name: middle([timed(job)[1] for _ in range(OURS_A_ROUND)]) for name, job in jobs.items() if name in wanted}


def middle(times: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def process(*command: str) -> tuple[float, float]:
    """CPU and wall seconds of a process, whose output is thrown away."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=measure.environment())
    assert child.stderr is not None
    message = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {message.decode(errors='replace')}")
    return used.ru_utime + used.ru_stime, wall


def our_command() -> list[str]:
    """The installed command, or the module where there is none."""
    script = Path(sys.executable).with_name("fastexport")
    return [str(script)] if script.exists() else [sys.executable, "-m", "fastexport"]


def torch_command(path: Path) -> list[str]:
    return [sys.executable, "-c", f"import torch; print(torch.export.load({str(path)!r}).graph)"]


# ---- equal results -------------------------------------------------------------------------------


def check(path: Path, out: Path, edits: bool = True) -> None:
    """Raise unless fastexport comes to torch's results on a file."""
    theirs, ours = torch.export.load(path), fastexport.load(path)
    same("graph", str(theirs.graph), str(ours.graph))
    same("signature", str(theirs.graph_signature), str(ours.graph_signature))
    same("range constraints", texts(theirs.range_constraints), texts(ours.range_constraints))
    same("weights", tensor_facts(theirs.state_dict), our_facts(ours.state_dict))
    same("constants", tensor_facts(theirs.constants), our_facts(ours.constants))
    ours.save(out)
    same("an unchanged file", entries(path), entries(out))
    if edits:
        rename(theirs)
        rename(ours)
        ours.save(out)
        same("a renamed node", str(theirs.graph), str(fastexport.load(out).graph))
        same("a renamed node, read by torch", str(theirs.graph), str(torch.export.load(out).graph))


def check_output(path: Path) -> None:
    def output(command: list[str]) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    theirs, ours = output(torch_command(path)).rstrip("\n"), output([*our_command(), "show", str(path)])
    same("the printed graph", theirs, ours[: len(theirs)])


# ---- rows ----------------------------------------------------------------------------------------


class Run(rows.Rows):
    name, what = "files", "file"
    title = ".pt2 files: fastexport beside torch.export"
    conditions = ", without `accelerate()`"
    notes = (
        "- CPU time, imports excluded; *from process start*: wall time of processes, imports included. Medians over",
        "  the rounds, both in turn. Graphs, signatures, weights, saved files and printed texts were compared first.",
        "- *peak memory*: growth of a fresh process's peak; beside it, in the column *torch*, that of parsing the",
        "  JSON documents alone; the ratio is ours by that. *bytes read*: beside the archive without its weights.",
        "- *growth*: time per node of the larger file by that of the smaller, which stands in the column *torch*.",
    )

    def __init__(self, args: argparse.Namespace, folder: Path):
        super().__init__(args, folder)
        self.out = folder / "saved.pt2"
        self.kinds = [Kind("llama", 4), Kind("bert", 1, dynamic=True)] if args.quick else list(KINDS)
        self.weights = 64 << 20 if args.quick else GIB
        self.sizes = (1000, 10_000) if args.quick else (10_000, 200_000)

    def add_row(
        self,
        job: str,
        file: str,
        nodes: int,
        unit: str,
        slow: list[float],
        fast: list[float],
        most: float | None = None,
        **more: Any,
    ) -> None:
        """A row, with the target of its job."""
        goals = {} if self.args.quick else {"target": TARGETS.get(job), "most": MOST.get(job)}
        if most is not None:
            goals["most"] = most
        self.add(job, file, nodes, slow, fast, unit=unit, inverse=job in LESS, **goals, **more)

    def add_times(
        self, job: str, file: str, nodes: int, slow: list[tuple[float, float]], fast: Any, which: int
    ) -> None:
        """A row of seconds; which: 0, CPU time, or 1, wall time. The other's ratio is kept beside it."""
        milliseconds = [[t[which] * 1e3 for t in side] for side in (slow, fast)]
        other = measure.ratio([t[1 - which] for t in slow], [t[1 - which] for t in fast]).median
        self.add_row(job, file, nodes, "ms", *milliseconds, **{("wall_ratio", "cpu_ratio")[which]: other})

    # ---- exported files

    def exported(self, kind: Kind) -> None:
        in_process = {job for job in (LOAD, UNREAD, TEXT, SAVE, EDIT) if self.wants(job, kind.title)}
        shows = self.wants(SHOW, kind.title) and not (self.args.quick and kind.dynamic)
        if not in_process and not shows:
            return
        path = self.folder / f"{kind.name}.pt2"
        with waiting(f"exporting {kind.title}", 0.6 * kind.layers):
            torch.export.save(kind.export(), path)
        gc.collect()
        with waiting(f"comparing {kind.title}", 0.4 * kind.layers):
            check(path, self.out, edits=EDIT in in_process)
            if shows:
                check_output(path)
        nodes = len(fastexport.load(path).graph.nodes)
        if in_process:
            self.in_process(kind, path, nodes, in_process)
        if shows:
            self.processes(SHOW, kind.title, nodes, torch_command(path), [*our_command(), "show", str(path)])
        path.unlink()

    def in_process(self, kind: Kind, path: Path, nodes: int, wanted: set[str]) -> None:
        slow, fast = [], []
        with Bar() as bar:
            for i in range(self.args.rounds):
                bar.update(i / self.args.rounds, kind.title)
                sides = [(slow, torch_round), (fast, our_round)]
                for times, run in sides if i % 2 else reversed(sides):
                    times.append(run(path, self.out, wanted))
        for job in (LOAD, UNREAD, TEXT, SAVE, EDIT):
            if job in wanted:
                self.add_times(job, kind.title, nodes, [t[job] for t in slow], [t[job] for t in fast], 0)

    def processes(self, job: str, file: str, nodes: int, theirs: list[str], ours: list[str]) -> None:
        slow, fast = [], []
        process(*ours)  # brings files into the system's cache, and compiles our modules
        with Bar() as bar:
            for i in range(self.args.rounds):
                bar.update(i / self.args.rounds, job)
                slow.append(process(*theirs))
                fast.append(middle([process(*ours) for _ in range(OURS_A_ROUND)]))
        self.add_times(job, file, nodes, slow, fast, 1)

    def version(self) -> None:
        """What a process costs before it has done anything."""
        if self.wants(VERSION, ""):
            ours = [*our_command(), "--version"]
            self.processes(VERSION, "beside import torch", 0, [sys.executable, "-c", "import torch"], ours)
            bare = [process(sys.executable, "-c", "pass")[1] for _ in range(OURS_A_ROUND)]
            self.references["python -c pass"] = statistics.median(bare) * 1e3

    # ---- made-up files

    def memory(self) -> None:
        size, nodes = self.weights, self.sizes[-1] if self.args.quick else 10_000
        file = f"made up, {size >> 20} MiB of weights"
        jobs = [job for job in (TREE, PYTHON_TREE, READS, READS_UNVERIFIED) if self.wants(job, file)]
        if not jobs:
            return
        path, small = self.folder / "weights.pt2", self.folder / "small.pt2"
        with waiting(f"writing {file}", 8 * size / GIB):
            nodes = synthetic_file.write(path, nodes, size)
            synthetic_file.write(small, 50)
        found: dict[str, list[dict[str, int]]] = {how: [] for how in ("load", "unverified", "yyjson", "json")}
        with Bar() as bar:
            for i in range(self.args.rounds):
                bar.update(i / self.args.rounds, file)
                for how, measured in found.items():
                    measured.append(measure.told_by("file_memory.py", how, str(path), str(small)))

        def megabytes(how: str, what: str = "growth") -> list[float]:
            return [measured[what] / 1e6 for measured in found[how]]

        for job, tree in ((TREE, "yyjson"), (PYTHON_TREE, "json")):
            if job in jobs:
                self.add_row(job, file, nodes, "MB", megabytes(tree), megabytes("load"))
        with zipfile.ZipFile(path) as archive:
            weights = sum(i.file_size for i in archive.infolist() if re.search(r"/weight_\d+$", i.filename))
        least = path.stat().st_size - weights
        for job, how in ((READS, "load"), (READS_UNVERIFIED, "unverified")):
            if job in jobs:
                read = megabytes(how, "read")
                self.add_row(job, file, nodes, "MB", [least / 1e6] * len(read), read, most=(least + SLACK) / least)
        path.unlink()

    def growth(self) -> None:
        small, large = self.sizes
        file = f"made up, {size_text(large)} beside {size_text(small)}"
        jobs = [job for job in GROWING if self.wants(job, file)]
        if not jobs:
            return
        paths = {size: self.folder / f"made{size}.pt2" for size in (small, large)}
        with waiting(f"writing {file}", 8 * large / 100_000):
            nodes = {size: synthetic_file.write(path, size) for size, path in paths.items()}
        found: dict[str, dict[int, list[float]]] = {job: {small: [], large: []} for job in jobs}
        with Bar() as bar:
            for i in range(self.args.rounds):
                bar.update(i / self.args.rounds, file)
                for size, path in paths.items():
                    for _ in range(1 if size == large else OURS_A_ROUND):
                        for job, seconds in zip(GROWING, self.grown(path), strict=True):
                            if job in found:
                                found[job][size].append(seconds / nodes[size] * 1e9)
        for job, by_size in found.items():
            few = by_size[small]
            few = [statistics.median(few[i : i + OURS_A_ROUND]) for i in range(0, len(few), OURS_A_ROUND)]
            self.add_row(job, file, nodes[large], "ns", few, by_size[large])
        for path in paths.values():
            path.unlink()

    def grown(self, path: Path) -> tuple[float, float, float]:
        program, load = timed(lambda: fastexport.load(path))
        _, text = timed(lambda: str(program.graph))
        rename(program)
        _, save = timed(lambda: program.save(self.out))
        return load[0], text[0], save[0]

    def all(self) -> None:
        for kind in self.kinds:
            self.exported(kind)
        self.version()
        if any(self.wants(job, "made up") for job in (*GROWING, TREE, PYTHON_TREE, READS, READS_UNVERIFIED)):
            path = self.folder / "checked.pt2"
            synthetic_file.write(path, 50)
            check(path, self.out)
        self.memory()
        self.growth()


if __name__ == "__main__":
    sys.exit(rows.main(Run, __doc__.splitlines()[0]))
