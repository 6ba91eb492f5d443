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
import json
import logging
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import measure
import program_cases
from files import GIB, OURS_A_ROUND, Kind, aligned, cells, environment, goal, line
from measure import Job, Spread
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
from run import number, put_into_readme, size_text

HERE = Path(__file__).parent
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench programs", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="REGEX", help="only rows whose title (job, program) matches")
    parser.add_argument("--rounds", type=int, default=3, help="of each row, at least (3)")
    parser.add_argument("--quick", action="store_true", help="one round, on small programs")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON too")
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        nargs="?",
        const=str(HERE / "PROGRAMS.md"),
        help="write a report too (default file: benchmarks/PROGRAMS.md)",
    )
    parser.add_argument("--readme", action="store_true", help="put the ratios into the README's table")
    args = parser.parse_args()
    args.rounds = 1 if args.quick else args.rounds
    args.counts = (20, 40) if args.quick else (500, 1000, LIMITED, 8000)
    args.weights = 64 << 20 if args.quick else GIB
    return args


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


class Run:
    """Measures what was asked for and collects the rows."""

    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.folder = args, folder
        self.rows: list[dict[str, Any]] = []

    def wants(self, job: str, program: str) -> bool:
        return bool(re.search(self.args.only or "", f"{job}, {program}"))

    def add(
        self,
        job: str,
        program: str,
        nodes: int,
        slow: list[float],
        fast: list[float],
        *,
        unit: str = "ms",
        target: float | None = None,
        most: float | None = None,
        inverse: bool = False,
    ) -> None:
        """A row. Its ratio is the baseline by ours; where it is inverse, ours by the baseline, and less is better."""
        if self.args.quick:
            target = most = None
        ratio = measure.ratio(fast, slow) if inverse else measure.ratio(slow, fast)
        row = {
            "job": job,
            "file": program,
            "nodes": nodes,
            "unit": unit,
            "baseline": asdict(Spread.of(slow)),
            "fastexport": asdict(Spread.of(fast)),
            "ratio": asdict(ratio),
            "target": target,
            "at_most": most,
            "reached": ratio.median >= target if target else ratio.median <= most if most else None,
            "rounds": len(slow),
        }
        self.rows.append(row)
        print(line(row), flush=True)

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
        wanted = {job for job, of in TARGETS if of == kind and self.wants(job, source.title)}
        if not wanted:
            return
        with waiting(f"exporting {source.title}", 0.6 * source.kind.layers):
            nodes = len(source.program.graph.nodes)
        for case in program_cases.cases_of(source):
            ours = {job: run for job, run in case.ours.items() if job in wanted}
            if ours:
                with waiting(f"comparing {', '.join(ours)}, {source.title}", 0.2 * source.kind.layers):
                    case.check()
                slow, fast = self.timed(replace(case, ours=ours), source.title)
                for job, times in fast.items():
                    self.add(job, source.title, nodes, slow, times, target=TARGETS[job, kind])

    def unused(self) -> None:
        """The rows of programs with unused parameters."""
        counts = self.args.counts
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
                self.add(LIMIT, title, count, limit, fast[REMOVE], most=1, inverse=True)

    def growth(self, jobs: dict[int, Job], title: str) -> None:
        """Time for each of many beside that for each of few; they take turns."""
        rounds = self.args.rounds if self.args.quick else MOST_ROUNDS
        each: list[list[float]] = [[], []]
        for _ in range(rounds):
            for times, (count, job) in zip(each, jobs.items(), strict=True):
                times.append(middle(job) / count * 1e9)
        self.add(GROWTH, title, max(jobs), *each, unit="ns", most=LARGEST_GROWTH, inverse=True)

    def memory(self) -> None:
        """The rows of the memory that saving takes."""
        size = self.args.weights
        title = f"{size >> 20} MiB of weights"
        jobs = [job for job in (PEAK, TORCH_PEAK) if self.wants(job, title)]
        if not jobs:
            return
        found: dict[str, list[dict[str, int]]] = {"fastexport": [], "torch": []}
        with Bar() as bar:
            for i in range(self.args.rounds):
                bar.update(i / self.args.rounds, title)
                for how, measured in found.items():
                    command = [sys.executable, str(HERE / "program_memory.py"), how, str(size), str(self.folder)]
                    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment())
                    measured.append(json.loads(done.stdout))
        weights, torchs = ([m[what] / 1e6 for m in found["torch"]] for what in ("weights", "growth"))
        ours = [m["growth"] / 1e6 for m in found["fastexport"]]
        if PEAK in jobs:
            self.add(PEAK, title, 0, weights, ours, unit="MB", most=LARGEST_PEAK, inverse=True)
        if TORCH_PEAK in jobs:
            self.add(TORCH_PEAK, title, 0, torchs, ours, unit="MB", inverse=True)

    def all(self) -> None:
        for kind in (LLAMA, DYNAMIC, DECOMPOSED):
            self.exported(kind)
            gc.collect()
        self.unused()
        self.memory()


# ---- showing -------------------------------------------------------------------------------------

HEAD = ("job", "program", "nodes", "torch", "fastexport", "ratio", "quarters", "target", "met")


def markdown(result: dict[str, Any]) -> str:
    """The results as a report. What bounds a row that falls short is told in bounds.toml."""
    with (HERE / "bounds.toml").open("rb") as f:
        bounds = tomllib.load(f)
    machine, rows = result["machine"], result["rows"]
    short = [row for row in rows if row["reached"] is False]
    lines = [
        "# Programs of torch: fastexport beside torch.export",
        "",
        f"Made by `./run bench programs --markdown` on {result['date']}; edit `bounds.toml`, not this file.",
        "",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}",
        f"- Python {machine['python']}, torch {machine['torch']}, one torch thread",
        "- CPU time, medians over the rounds, both in turn, on the same program. Programs with all their meta, files,",
        "  and the verdicts of verifiers were compared first. torch's side is without `accelerate()`.",
        f"- *{LOAD}* and *{ACCELERATED_LOAD}*: beside torch.export.load; *save*: beside torch.export.save.",
        f"- *{VERIFY}*: beside torch's `Verifier().check`, of a program that was just converted; *again*: once more.",
        f"- *{EDIT}*: beside deepcopy(graph_module), the same edit, and ExportedProgram(...).",
        f"- *{REMOVE}*: beside erase_node for each, and ExportedProgram(...).",
        f"- *{LIMIT}*: the limit stands in the column *torch*.",
        "- *growth*: time for each of many by that for each of few, which stands in the column *torch*.",
        "- *peak memory*: growth of a fresh process's peak, beside the weights themselves, or that of torch's save.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|---|---|{'---:|' * (len(HEAD) - 2)}",
        *(f"| {' | '.join(cells(row))} |" for row in rows),
        "",
        "## Short of the target",
        "",
        *(
            f"- {row['job']}, {row['file']}: {number(row['ratio']['median'])}x of {goal(row)}. "
            f"{bounds.get(row['job'], '')}".rstrip()
            for row in short
        ),
        *([] if short else ["None."]),
    ]
    return "\n".join(lines) + "\n"


def update_readme(rows: list[dict[str, Any]]) -> None:
    """Write the rows that have a target between the marks in the README."""
    lines = ["| job | program | target | fastexport |", "|---|---|---:|---:|"]
    for row in rows:
        if goal(row):
            lines.append(f"| {row['job']} | {row['file']} | {goal(row)} | {number(row['ratio']['median'])}x |")
    put_into_readme("programs", lines)


def main() -> int:
    args = arguments()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    machine = measure.machine()
    print(f"{machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, torch {machine['torch']}")
    print(aligned(HEAD), flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        running = Run(args, Path(folder))
        running.all()
    if not running.rows:
        print("no row matches", file=sys.stderr)
        return 2
    result = {
        "schema": 1,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "seconds": round(time.monotonic() - start),
        "rows": running.rows,
    }
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    if args.markdown:
        Path(args.markdown).write_text(markdown(result))
    if args.readme:
        update_readme(running.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
