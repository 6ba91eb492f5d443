"""./run bench programs: time torch's programs on their way into fastexport and back, beside torch.export.

Compared before anything is timed, for each program:

- `fastexport.load(FILE).to_torch()`, and torch.export.load under `accelerate()`, give the program that
  torch.export.load gives: texts, signature, range constraints, module call graph, weights, and all meta of all nodes;
- fastexport.save of the torch program, and torch.export.save under `accelerate()`, write the entries that
  torch.export.save writes, with the same bytes;
- both verifiers find the program right, and wrong without the value of one node;
- the same edit (calls that assert something erased, every tenth of the others renamed) gives the same program through
  fastexport and through torch's copy and constructor;
- a program whose unused parameters are removed is the one made anew with torch.

Both take turns in one process, by CPU time. torch is as it is, without accelerate(), save in the rows that say so. In
each round torch's work runs once and ours, which is short, several times; the middle of them counts. Memory is the
growth of a fresh process's peak.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import measure
import program_cases
import rows
from exported import Kind
from measure import Job
from program_cases import (
    ACCELERATED_LOAD,
    ACCELERATED_SAVE,
    CONVERT_VERIFY,
    EDIT,
    LOAD,
    REMOVE,
    SAVE,
    VERIFY,
    VERIFY_AGAIN,
    Case,
    Source,
)
from progress import Bar, waiting
from rows import GIB, OURS_A_ROUND
from run import size_text

LLAMA = Kind("llama", 128)
DYNAMIC = Kind("bert", 64, dynamic=True)
DECOMPOSED = Kind("bert", 64, decomposed=True)
TARGETS: dict[tuple[str, Kind], float | None] = {
    (LOAD, LLAMA): 10,
    (LOAD, DYNAMIC): 10,
    (ACCELERATED_LOAD, LLAMA): 10,
    (ACCELERATED_LOAD, DYNAMIC): None,
    (SAVE, LLAMA): 20,
    (SAVE, DYNAMIC): 20,
    (SAVE, DECOMPOSED): 20,
    (ACCELERATED_SAVE, LLAMA): 8,
    (ACCELERATED_SAVE, DYNAMIC): None,
    (VERIFY, LLAMA): 100,
    (VERIFY, DYNAMIC): 100,
    (VERIFY_AGAIN, LLAMA): None,
    (VERIFY_AGAIN, DYNAMIC): None,
    (CONVERT_VERIFY, LLAMA): 4,
    (CONVERT_VERIFY, DYNAMIC): 4,
    (EDIT, LLAMA): 10,
    (EDIT, DYNAMIC): 10,
}

LIMIT = f"{REMOVE}, by a limit"
GROWTH = f"growth of {REMOVE}"
PEAK, TORCH_PEAK = "peak memory of save, by the weights", "peak memory of save, by torch.export.save"
LIMITED, MILLISECONDS = 2000, 50  # so many unused parameters are to be removed in that time
LARGEST_GROWTH = 1.5  # of the time for each, from few to many
LARGEST_PEAK = 0.05  # of the weights

BUDGET = 5.0  # seconds for a case, beyond the rounds that are asked for
MOST_ROUNDS = 15

Times = dict[str, list[float]]  # CPU seconds of each round, by row


# ---- measuring -----------------------------------------------------------------------------------


def seconds(job: Job) -> float:
    return measure.once(job)[0]


def middle(job: Job) -> float:
    return statistics.median(seconds(job) for _ in range(OURS_A_ROUND))


def timed(case: Case, rounds: int, budget: float, tick: Callable[[], object]) -> tuple[list[float], Times]:
    """torch's seconds and those of our jobs, round by round; who begins changes from one to the next."""
    slow: list[float] = []
    fast: Times = {title: [] for title in case.ours}
    start = time.monotonic()
    while len(slow) < rounds or (len(slow) < MOST_ROUNDS and time.monotonic() - start < budget):
        tick()
        torch_begins = len(slow) % 2 == 0
        if torch_begins:
            slow.append(seconds(case.torch))
        for title, job in case.ours.items():
            fast[title].append(middle(job))
        if not torch_begins:
            slow.append(seconds(case.torch))
    return slow, fast


class Run(rows.Rows):
    name, what = "programs", "program"
    title = "Programs of torch: fastexport beside torch.export"
    notes = (
        "- CPU time, medians over the rounds, both in turn, on the same program. Programs with all their meta, files,",
        "  and the verdicts of verifiers were compared first. torch's side is without `accelerate()`.",
        f"- *{LOAD}* and *{ACCELERATED_LOAD}*: beside torch.export.load; *save*: beside torch.export.save.",
        f"- *{VERIFY}*: beside torch's `Verifier().check`, of a program that was just converted; *again*: once more.",
        f"- *{EDIT}*: beside deepcopy(graph_module), the same edit, and ExportedProgram(...).",
        f"- *{REMOVE}*: beside erase_node for each, and ExportedProgram(...).",
        f"- *{LIMIT}*: the limit stands in the column *torch*.",
        "- *growth*: time for each of many by that for each of few, which stands in the column *torch*.",
        "- *peak memory*: growth of a fresh process's peak, beside the weights themselves, or that of torch's save.",
    )

    def __init__(self, args: argparse.Namespace, folder: Path):
        super().__init__(args, folder)
        self.counts = (20, 40) if args.quick else (500, 1000, LIMITED, 8000)
        self.weights = 64 << 20 if args.quick else GIB

    def goal(self, value: float | None) -> float | None:
        """A target or limit, which small programs are not held to."""
        return None if self.args.quick else value

    def timed(self, case: Case, title: str) -> tuple[list[float], Times]:
        """Milliseconds."""
        budget = 0 if self.args.quick else BUDGET
        with Bar() as bar:
            slow, fast = timed(case, self.args.rounds, budget, lambda: bar.update(0, title))
        return [s * 1e3 for s in slow], {job: [s * 1e3 for s in times] for job, times in fast.items()}

    def exported(self, kind: Kind) -> None:
        """The rows of a program of the zoo."""
        small = replace(kind, layers=4 if kind.name == "llama" else 1)
        source = Source(small if self.args.quick else kind, self.folder)
        wanted = {job for job, of in TARGETS if of == kind and self.wants(job, source.kind.title)}
        if not wanted:
            return
        with waiting(f"exporting {source.kind.title}", 0.6 * source.kind.layers):
            nodes = len(source.program.graph.nodes)
        for case in program_cases.cases_of(source):
            ours = {job: run for job, run in case.ours.items() if job in wanted}
            if ours:
                with waiting(f"comparing {', '.join(ours)}, {source.kind.title}", 0.2 * source.kind.layers):
                    case.check()
                slow, fast = self.timed(replace(case, ours=ours), source.kind.title)
                for job, times in fast.items():
                    self.add(job, source.kind.title, nodes, slow, times, target=self.goal(TARGETS[job, kind]))

    def unused(self) -> None:
        """The rows of programs with unused parameters."""
        counts = self.counts
        few, many = counts[0], counts[-1]
        for origin, removing in program_cases.REMOVING.items():
            titles = {count: f"{count:,} unused, {origin}" for count in counts}
            beside = f"{size_text(many)} beside {size_text(few)} unused, {origin}"
            cases: dict[int, Case] = {}
            for count, title in titles.items():
                needed = count in (few, many) and self.wants(GROWTH, beside)
                if needed or self.wants(REMOVE, title) or (count == LIMITED and self.wants(LIMIT, title)):
                    cases[count] = removing(count, self.folder / f"unused{count}.pt2")
                    cases[count].check()
            for count, case in cases.items():
                self.removal(case, titles[count], count)
            if self.wants(GROWTH, beside):
                self.growth({count: cases[count].ours[REMOVE] for count in (few, many)}, beside)

    def removal(self, case: Case, title: str, count: int) -> None:
        if self.wants(REMOVE, title) or (count == LIMITED and self.wants(LIMIT, title)):
            slow, fast = self.timed(case, title)
            if self.wants(REMOVE, title):
                self.add(REMOVE, title, count, slow, fast[REMOVE])
            if count == LIMITED and self.wants(LIMIT, title):
                limit = [MILLISECONDS] * len(slow)
                self.add(LIMIT, title, count, limit, fast[REMOVE], most=self.goal(1), inverse=True)

    def growth(self, jobs: dict[int, Job], title: str) -> None:
        """Time for each of many beside that for each of few; they take turns."""
        rounds = self.args.rounds if self.args.quick else MOST_ROUNDS
        each: list[list[float]] = [[], []]
        for _ in range(rounds):
            for times, (count, job) in zip(each, jobs.items(), strict=True):
                times.append(middle(job) / count * 1e9)
        self.add(GROWTH, title, max(jobs), *each, unit="ns", most=self.goal(LARGEST_GROWTH), inverse=True)

    def memory(self) -> None:
        """The rows of the memory that saving takes."""
        size = self.weights
        title = f"{size >> 20} MiB of weights"
        jobs = [job for job in (PEAK, TORCH_PEAK) if self.wants(job, title)]
        if not jobs:
            return
        found: dict[str, list[dict[str, int]]] = {"fastexport": [], "torch": []}
        with Bar() as bar:
            for i in range(self.args.rounds):
                bar.update(i / self.args.rounds, title)
                for how, measured in found.items():
                    measured.append(measure.told_by("program_memory.py", how, str(size), str(self.folder)))
        weights, torchs = ([m[what] / 1e6 for m in found["torch"]] for what in ("weights", "growth"))
        ours = [m["growth"] / 1e6 for m in found["fastexport"]]
        if PEAK in jobs:
            self.add(PEAK, title, 0, weights, ours, unit="MB", most=self.goal(LARGEST_PEAK), inverse=True)
        if TORCH_PEAK in jobs:
            self.add(TORCH_PEAK, title, 0, torchs, ours, unit="MB", inverse=True)

    def all(self) -> None:
        for kind in (LLAMA, DYNAMIC, DECOMPOSED):
            self.exported(kind)
            gc.collect()
        self.unused()
        self.memory()


if __name__ == "__main__":
    sys.exit(rows.main(Run, __doc__.splitlines()[0]))
