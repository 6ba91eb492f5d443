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
import json
import logging
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import fastexport
import measure
import synthetic_file
import zoo
from measure import Spread
from progress import Bar, waiting
from run import number, put_into_readme, size_text

HERE = Path(__file__).parent
OURS_A_ROUND = 5
GIB = 1 << 30
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
TARGETS = {LOAD: 200, TEXT: 20, SAVE: 200, EDIT: 200, SHOW: 100}
GROWING = ("growth of load + verify", "growth of str(graph)", "growth of save after an edit")
MOST = {TREE: 1.2, **dict.fromkeys(GROWING, 1.5)}
LESS = {TREE, PYTHON_TREE, READS, READS_UNVERIFIED, *GROWING}  # is better

Times = dict[str, tuple[float, float]]  # CPU and wall seconds, by job


@dataclass(frozen=True)
class Kind:
    """A model to export."""

    name: str
    layers: int
    dynamic: bool = False
    decomposed: bool = False

    @property
    def title(self) -> str:
        how = ", dynamic sizes" * self.dynamic + ", decomposed" * self.decomposed
        return f"{self.name}, {self.layers} block{'s' * (self.layers > 1)}{how}"

    def write(self, path: Path) -> None:
        module, args = zoo.build(self.name, self.layers)
        sizes = (tuple({0: torch.export.Dim.AUTO} for _ in args),) if self.dynamic else None
        with torch.no_grad():
            program = torch.export.export(module, args, dynamic_shapes=sizes)
            if self.decomposed:
                program = program.run_decompositions()
        torch.export.save(program, path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench files", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="REGEX", help="only rows whose title (job, file) matches")
    parser.add_argument("--rounds", type=int, default=3, help="of each row (3)")
    parser.add_argument("--quick", action="store_true", help="one round, on small files")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON too")
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        nargs="?",
        const=str(HERE / "FILES.md"),
        help="write a report too (default file: benchmarks/FILES.md)",
    )
    parser.add_argument("--readme", action="store_true", help="put the ratios into the README's table")
    args = parser.parse_args()
    args.rounds = 1 if args.quick else args.rounds
    args.kinds = [
        Kind("llama", 4 if args.quick else 128),
        Kind("bert", 1 if args.quick else 64, dynamic=True),
        Kind("bert", 1 if args.quick else 64, decomposed=True),
    ]
    if args.quick:
        del args.kinds[2]
    args.weights = 64 << 20 if args.quick else GIB
    args.sizes = (1000, 10_000) if args.quick else (10_000, 200_000)
    return args


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


def environment() -> dict[str, str]:
    """That of processes: modules are compiled once, as an installation does it, not at each start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def process(*command: str) -> tuple[float, float]:
    """CPU and wall seconds of a process, whose output is thrown away."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
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


def same(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise RuntimeError(f"not timed, for results differ: {what}")


def entries(path: Path) -> dict[str, bytes]:
    """What an archive holds, by the names below its top folder."""
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def texts(constraints: Any) -> list[tuple[str, str]]:
    return [(str(size), str(limits)) for size, limits in constraints.items()]


def tensor_facts(tensors: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Of torch's tensors."""
    found = {}
    for name, tensor in tensors.items():
        flat = tensor.detach().contiguous().flatten().view(torch.uint8)
        found[name] = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), flat.numpy().tobytes()
    return found


def our_facts(tensors: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (str(t.dtype).removeprefix("torch."), tuple(t.shape), t.tobytes()) for name, t in tensors.items()}


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


class Run:
    """Measures what was asked for and collects the rows."""

    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.folder = args, folder
        self.out = folder / "saved.pt2"
        self.rows: list[dict[str, Any]] = []
        self.references: dict[str, float] = {}

    def wants(self, job: str, file: str) -> bool:
        return bool(re.search(self.args.only or "", f"{job}, {file}"))

    def add(
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
        """A row. Its ratio is the baseline by ours; where less is better, ours by the baseline, with a bound."""
        target = None if self.args.quick else TARGETS.get(job)
        if most is None and not self.args.quick:
            most = MOST.get(job)
        ratio = measure.ratio(fast, slow) if job in LESS else measure.ratio(slow, fast)
        row = {
            "job": job,
            "file": file,
            "nodes": nodes,
            "unit": unit,
            "baseline": asdict(Spread.of(slow)),
            "fastexport": asdict(Spread.of(fast)),
            "ratio": asdict(ratio),
            "target": target,
            "at_most": most,
            "reached": ratio.median >= target if target else ratio.median <= most if most else None,
            "rounds": len(slow),
        } | more
        self.rows.append(row)
        print(line(row), flush=True)

    def add_times(
        self, job: str, file: str, nodes: int, slow: list[tuple[float, float]], fast: Any, which: int
    ) -> None:
        """A row of seconds; which: 0, CPU time, or 1, wall time. The other's ratio is kept beside it."""
        milliseconds = [[t[which] * 1e3 for t in side] for side in (slow, fast)]
        other = measure.ratio([t[1 - which] for t in slow], [t[1 - which] for t in fast]).median
        self.add(job, file, nodes, "ms", *milliseconds, **{("wall_ratio", "cpu_ratio")[which]: other})

    # ---- exported files

    def exported(self, kind: Kind) -> None:
        in_process = {job for job in (LOAD, UNREAD, TEXT, SAVE, EDIT) if self.wants(job, kind.title)}
        shows = self.wants(SHOW, kind.title) and not (self.args.quick and kind.dynamic)
        if not in_process and not shows:
            return
        path = self.folder / f"{kind.name}.pt2"
        with waiting(f"exporting {kind.title}", 0.6 * kind.layers):
            kind.write(path)
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
        size, nodes = self.args.weights, self.args.sizes[-1] if self.args.quick else 10_000
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
                    command = [sys.executable, str(HERE / "file_memory.py"), how, str(path), str(small)]
                    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment())
                    measured.append(json.loads(done.stdout))

        def megabytes(how: str, what: str = "growth") -> list[float]:
            return [measured[what] / 1e6 for measured in found[how]]

        for job, tree in ((TREE, "yyjson"), (PYTHON_TREE, "json")):
            if job in jobs:
                self.add(job, file, nodes, "MB", megabytes(tree), megabytes("load"))
        with zipfile.ZipFile(path) as archive:
            weights = sum(i.file_size for i in archive.infolist() if re.search(r"/weight_\d+$", i.filename))
        least = path.stat().st_size - weights
        for job, how in ((READS, "load"), (READS_UNVERIFIED, "unverified")):
            if job in jobs:
                read = megabytes(how, "read")
                self.add(job, file, nodes, "MB", [least / 1e6] * len(read), read, most=(least + SLACK) / least)
        path.unlink()

    def growth(self) -> None:
        small, large = self.args.sizes
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
            self.add(job, file, nodes[large], "ns", few, by_size[large])
        for path in paths.values():
            path.unlink()

    def grown(self, path: Path) -> tuple[float, float, float]:
        program, load = timed(lambda: fastexport.load(path))
        _, text = timed(lambda: str(program.graph))
        rename(program)
        _, save = timed(lambda: program.save(self.out))
        return load[0], text[0], save[0]

    def all(self) -> None:
        for kind in self.args.kinds:
            self.exported(kind)
        self.version()
        if any(self.wants(job, "made up") for job in (*GROWING, TREE, PYTHON_TREE, READS, READS_UNVERIFIED)):
            path = self.folder / "checked.pt2"
            synthetic_file.write(path, 50)
            check(path, self.out)
        self.memory()
        self.growth()


# ---- showing -------------------------------------------------------------------------------------

HEAD = ("job", "file", "nodes", "torch", "fastexport", "ratio", "quarters", "target", "met")
WIDTHS = (41, 32, 8, 12, 12, 8, 12, 14, 3)


def goal(row: dict[str, Any]) -> str:
    if row["target"] is not None:
        return f"{row['target']:g}x"
    return "" if row["at_most"] is None else f"at most {row['at_most']:.3g}x"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    ratio = row["ratio"]
    return (
        row["job"],
        row["file"],
        f"{row['nodes']:,}" if row["nodes"] else "",
        f"{number(row['baseline']['median'])} {row['unit']}",
        f"{number(row['fastexport']['median'])} {row['unit']}",
        f"{number(ratio['median'])}x",
        f"{number(ratio['low'])}-{number(ratio['high'])}" if row["rounds"] > 1 else "",
        goal(row),
        {None: "", True: "yes", False: "NO"}[row["reached"]],
    )


def aligned(texts: tuple[str, ...]) -> str:
    pairs = zip(texts, WIDTHS, strict=True)
    return "  ".join(f"{c:<{w}}" if i < 2 else f"{c:>{w}}" for i, (c, w) in enumerate(pairs)).rstrip()


def line(row: dict[str, Any]) -> str:
    return aligned(cells(row))


def markdown(result: dict[str, Any]) -> str:
    """The results as a report. What bounds a row that falls short is told in bounds.toml."""
    with (HERE / "bounds.toml").open("rb") as f:
        bounds = tomllib.load(f)
    machine, rows = result["machine"], result["rows"]
    short = [row for row in rows if row["reached"] is False]
    lines = [
        "# .pt2 files: fastexport beside torch.export",
        "",
        f"Made by `./run bench files --markdown` on {result['date']}; edit `bounds.toml`, not this file.",
        "",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}",
        f"- Python {machine['python']}, torch {machine['torch']}, one torch thread, without `accelerate()`",
        "- CPU time, imports excluded; *from process start*: wall time of processes, imports included. Medians over",
        "  the rounds, both in turn. Graphs, signatures, weights, saved files and printed texts were compared first.",
        "- *peak memory*: growth of a fresh process's peak; beside it, in the column *torch*, that of parsing the",
        "  JSON documents alone; the ratio is ours by that. *bytes read*: beside the archive without its weights.",
        "- *growth*: time per node of the larger file by that of the smaller, which stands in the column *torch*.",
        *(f"- `{name}` takes {number(value)} ms from process start." for name, value in result["references"].items()),
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
    lines = ["| job | file | target | fastexport |", "|---|---|---:|---:|"]
    for row in rows:
        if goal(row):
            lines.append(f"| {row['job']} | {row['file']} | {goal(row)} | {number(row['ratio']['median'])}x |")
    put_into_readme("files", lines)


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
    for name, value in running.references.items():
        print(f"{name}: {number(value)} ms")
    result = {
        "schema": 1,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "seconds": round(time.monotonic() - start),
        "references": running.references,
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
