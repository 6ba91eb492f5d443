"""./run bench: time fastexport beside torch on the same graphs, in the same process.

The table goes to stdout, progress to stderr when that is a terminal. A row's ratio is the median
over the rounds of torch's time by fastexport's, with the quarters below and above it. "again" is
the ratio of a second run that follows the first at once, for jobs that leave their input as it is.
In brackets: what torch does instead, where that is another job. Memory is without meta; "counted"
by the allocators, "resident" by the growth of the process.
"""

import argparse
import gc
import json
import logging
import re
import sys
import time
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import cases
import measure
from measure import Spread
from progress import Bar, waiting

HERE = Path(__file__).parent
SCHEMA = 1
MEMORY = "memory per node"
TARGETED = 10_000  # nodes of the graphs that targets are set for
GROWN = 1_000_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="REGEX", help="only rows whose title matches")
    parser.add_argument(
        "--sizes",
        nargs="+",
        metavar="N",
        type=size,
        default=None,
        help="nodes of the synthetic graphs, such as 10k 1m; from 1m on fastexport alone (default: 1k 10k 100k 1m)",
    )
    parser.add_argument("--layers", type=int, default=None, help="of the Llama; 0 leaves it out (default: 128)")
    parser.add_argument("--quick", action="store_true", help="size 10k, 16 layers, few rounds")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON too")
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        nargs="?",
        const=str(HERE / "RESULTS.md"),
        help="write a report too (default file: benchmarks/RESULTS.md)",
    )
    parser.add_argument("--readme", action="store_true", help="put the ratios into the README's table")
    parser.add_argument("--list", action="store_true", help="print the titles of the rows and stop")
    args = parser.parse_args()
    if args.sizes is None:
        args.sizes = [10_000] if args.quick else [1000, 10_000, 100_000, GROWN]
    if args.layers is None:
        args.layers = 16 if args.quick else 128
    args.wanted = re.compile(args.only or "")
    return args


def size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([km]?)", text.lower())
    if not match:
        raise argparse.ArgumentTypeError(f"no size: {text!r}; write 5000, 10k or 1m")
    return int(match[1]) * {"": 1, "k": 1000, "m": 1_000_000}[match[2]]


# ---- measuring -----------------------------------------------------------------------------------


class Run:
    """Measures what was asked for and collects the rows of the results."""

    def __init__(self, args: argparse.Namespace, bar: Bar, total: int):
        self.args, self.bar, self.total, self.done = args, bar, total, 0
        self.rows: list[dict[str, Any]] = []

    def step(self, title: str) -> None:
        self.bar.update(self.done / self.total, title)
        self.done += 1

    def wants(self, *titles: str) -> bool:
        return any(self.args.wanted.search(title) for title in titles)

    def time(self, jobs: dict[str, measure.Job], title: str, nodes: int) -> dict[str, measure.Times]:
        limits: dict[str, Any] = {"budget": 0.5, "at_least": 3, "at_most": 7} if self.args.quick else {}
        if nodes > TARGETED * 5:
            limits["at_least"] = 3

        def tick() -> None:
            self.bar.update((self.done - 0.5) / self.total, title)

        return measure.interleaved(jobs, tick=tick, **limits)

    def case(self, case: cases.Case) -> None:
        title = f"{case.source.title}: {case.title}"
        self.step(title)
        rows = [row for row in case.rows if self.wants(row.job, case.title)]
        if not rows:
            return
        case.check()
        needed = {name for row in rows for name in (row.slow, row.fast)}
        times = self.time({k: job for k, job in case.jobs.items() if k in needed}, title, case.source.nodes)
        for row in rows:
            slow, fast = times[row.slow].first, times[row.fast].first
            again = None
            if times[row.slow].again and times[row.fast].again:
                again = measure.ratio(times[row.slow].again, times[row.fast].again).median
            self.add(
                kind="time",
                job=row.job,
                door=row.door,
                graph=case.source.title,
                nodes=case.source.nodes,
                unit="ms",
                baseline_is=row.slow,
                baseline=Spread.of(slow).scaled(1e3),
                fastexport=Spread.of(fast).scaled(1e3),
                ratio=measure.ratio(slow, fast),
                ratio_again=again,
                target=row.target,
                rounds=len(slow),
            )

    def memory(self, source: cases.Source) -> None:
        title = MEMORY
        self.step(f"{source.title}: {title}")
        if not self.wants(title):
            return
        for how, theirs, ours in cases.memory(source):
            self.add(
                kind="memory",
                job=f"{title}, {how}",
                door="native",
                graph=source.title,
                nodes=source.nodes,
                unit="B",
                baseline_is="torch",
                baseline=Spread(theirs, theirs, theirs),
                fastexport=Spread(ours, ours, ours),
                ratio=Spread(theirs / ours, theirs / ours, theirs / ours),
                ratio_again=None,
                target=5 if source.has_targets else None,
                rounds=1,
            )

    def growth(self, small: int, large: int) -> None:
        """Time per node at a large size by that at a small one; the sizes are timed in turn."""
        for name, jobs_of in cases.GROWING.items():
            title = f"growth of {name}"
            self.step(title)
            if not self.wants(title):
                continue
            (few, fast), (many, slow) = jobs_of(small), jobs_of(large)
            times = self.time({"small": fast, "large": slow}, title, large)
            per_small = [seconds / few for seconds in times["small"].first]
            per_large = [seconds / many for seconds in times["large"].first]
            self.add(
                kind="growth",
                job=title,
                door="native",
                graph=f"fastexport alone: time per node at {size_text(large)} beside that at {size_text(small)}",
                nodes=many,
                unit="ns",
                baseline_is=f"fastexport at {size_text(small)}",
                baseline=Spread.of(per_small).scaled(1e9),
                fastexport=Spread.of(per_large).scaled(1e9),
                ratio=measure.ratio(per_large, per_small),
                ratio_again=None,
                target=2,
                rounds=len(per_large),
            )

    def add(self, **row: Any) -> None:
        target, median = row["target"], row["ratio"].median
        met = None
        if target is not None:
            met = median <= target if row["kind"] == "growth" else median >= target
        for name in ("baseline", "fastexport", "ratio"):
            row[name] = asdict(row[name])
        self.rows.append(row | {"reached": met})


def size_text(nodes: int) -> str:
    if nodes % 1_000_000 == 0:
        return f"{nodes // 1_000_000}M"
    return f"{nodes // 1000}k" if nodes % 1000 == 0 else str(nodes)


def sources(args: argparse.Namespace) -> Iterator[cases.Source]:
    for nodes in args.sizes:
        if nodes < GROWN:
            yield cases.synthetic_source(nodes, nodes == TARGETED)
    if args.layers:
        with waiting(f"exporting a Llama of {args.layers} layers", 0.15 * args.layers):
            source = cases.llama_source(args.layers)
        source.has_targets = source.nodes >= 0.9 * TARGETED
        yield source


def cases_of(source: cases.Source) -> list[cases.Case]:
    return list(cases.all_cases(source, 100 if source.nodes < TARGETED / 2 else cases.EDITS))


def titles() -> list[str]:
    source = cases.synthetic_source(1000, has_targets=True)
    found = [row.job for case in cases_of(source) for row in case.rows]
    return [*dict.fromkeys(found), MEMORY, *(f"growth of {name}" for name in cases.GROWING)]


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    per_source = len(cases_of(cases.synthetic_source(1000, False))) + 1
    large = [nodes for nodes in args.sizes if nodes >= GROWN]
    count = len(args.sizes) - len(large) + bool(args.layers)
    with Bar() as bar:
        running = Run(args, bar, per_source * count + len(large) * len(cases.GROWING))
        for source in sources(args):
            todo = cases_of(source)
            while todo:  # a case that is done goes, and its graphs with it
                running.case(todo.pop(0))
            running.memory(source)
            del source
            gc.collect()
        for nodes in large:
            running.growth(TARGETED, nodes)
    return running.rows


# ---- showing -------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Three digits that tell something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    ratio, target = row["ratio"], row["target"]
    spread = ""
    if row["rounds"] > 1:
        spread = f"{number(ratio['low'])}-{number(ratio['high'])}"
    return (
        row["job"],
        row["door"],
        f"{row['nodes']:,}",
        f"{number(row['baseline']['median'])} {row['unit']}",
        f"{number(row['fastexport']['median'])} {row['unit']}",
        f"{number(ratio['median'])}x",
        spread,
        "" if row["ratio_again"] is None else f"{number(row['ratio_again'])}x",
        "" if target is None else f"{'at most ' if row['kind'] == 'growth' else ''}{target:g}x",
        {None: "", True: "yes", False: "NO"}[row["reached"]],
    )


def by_graph(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["graph"], []).append(row)
    return groups


def heads(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    sides = ("torch", "fastexport")
    if rows[0]["kind"] == "growth":
        sides = (rows[0]["baseline_is"].split()[-1], "larger")
    return ("job", "door", "nodes", *sides, "ratio", "quarters", "again", "target", "met")


def table(rows: list[dict[str, Any]], head: tuple[str, ...]) -> list[str]:
    lines = [head, *map(cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return [
        "  ".join(
            f"{cell:<{width}}" if i < 2 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def print_table(rows: list[dict[str, Any]]) -> None:
    for graph, group in by_graph(rows).items():
        print(f"\n{graph}")
        for line in table(group, heads(group)):
            print(f"  {line}")
    goals = [row for row in rows if row["target"] is not None]
    short = [row for row in goals if not row["reached"]]
    print(f"\n{len(goals) - len(short)} of {len(goals)} targets reached")
    for row in short:
        print(f"  short of it: {describe(row)}")


def describe(row: dict[str, Any]) -> str:
    text = f"{row['graph']}: {row['job']}, {row['door']}: {number(row['ratio']['median'])}x"
    return f"{text} of {row['target']:g}x"


def markdown(result: dict[str, Any]) -> str:
    """The results as a report. What bounds a row that falls short is told in bounds.toml."""
    with (HERE / "bounds.toml").open("rb") as f:
        bounds = tomllib.load(f)
    machine = result["machine"]
    lines = [
        "# Results",
        "",
        f"Made by `./run bench --markdown` on {result['date']}; edit `bounds.toml`, not this file.",
        "",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}",
        f"- Python {machine['python']}, torch {machine['torch']}, one torch thread",
        "- CPU time. torch and fastexport take turns in one process, on equal graphs. The collector is",
        "  on; it has just run, and a walk over the nodes has followed. An input that a job changes is",
        "  made afresh each time. Before it is timed, each job is checked to come to torch's result.",
        "- Times and ratios are medians over the rounds, quarters the quartiles of the ratio. *again*:",
        "  the ratio of a second run right after the first, when all is still in the caches.",
        "- In brackets: what torch does instead, where that is another job. *better Python*: torch's",
        "  elimination asking once for each function whether it is pure.",
        "- Memory is without meta: *counted* by the allocators (tracemalloc; Graph.nbytes), *resident*",
        "  by the growth of the process.",
        "- Targets are for graphs of 10,000 nodes; growth is judged at a million.",
        "- Stages with and without `accelerate()`, their targets and what bounds them: [PIPELINE.md](PIPELINE.md).",
        "- `.pt2` files beside `torch.export`, likewise: [FILES.md](FILES.md).",
        "- Programs of torch, in and out, beside `torch.export`: [PROGRAMS.md](PROGRAMS.md).",
        "- Code, patterns, passes and tracing beside `torch.fx`: [FX.md](FX.md).",
        "- Many files, pictures, pages, weights and the command: [TOOLS.md](TOOLS.md).",
    ]
    for graph, group in by_graph(result["rows"]).items():
        lines += ["", f"## {graph}", ""]
        head = heads(group)
        lines += [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (len(head) - 2)}"]
        lines += [f"| {' | '.join(cells(row))} |" for row in group]
    short = [row for row in result["rows"] if row["reached"] is False]
    lines += ["", "## Short of the target", ""]
    for row in short:
        reason = bounds.get(f"{row['job']}, {row['door']}", "")
        lines.append(f"- {describe(row)}. {reason}".rstrip())
    return "\n".join([*lines, "" if short else "None."]).rstrip() + "\n"


def put_into_readme(mark: str, lines: list[str]) -> None:
    """Write lines between the begin and the end of a mark in the README."""
    readme = HERE.parent / "README.md"
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, rest = readme.read_text().split(begin)
    table = "\n".join(lines)
    readme.write_text(f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}")


def update_readme(result: dict[str, Any]) -> None:
    """Write the rows that have a target, of the graphs of 10,000 nodes, between the marks in the README."""
    goals = [row for row in result["rows"] if row["target"] is not None]
    graphs = list(dict.fromkeys(row["graph"] for row in goals if row["kind"] != "growth"))
    found: dict[tuple[str, str, float], dict[str, str]] = {}
    for row in goals:
        if row["kind"] != "growth":
            key = (row["job"], row["door"], row["target"])
            found.setdefault(key, {})[row["graph"]] = f"{number(row['ratio']['median'])}x"
    lines = [f"| job | door | target | {' | '.join(graphs)} |", f"|---|---|---:|{'---:|' * len(graphs)}"]
    for (job, door, target), ratios in found.items():
        cells = [ratios.get(graph, "") for graph in graphs]
        lines.append(f"| {job} | {door} | {target:g}x | {' | '.join(cells)} |")
    put_into_readme("speed", lines)


def main() -> int:
    args = arguments()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if args.quick:
        gc.freeze()  # looking through torch before each job takes longer than the jobs
    if args.list:
        print("\n".join(titles()))
        return 0
    machine = measure.machine()
    print(f"{machine['cpu']}, {machine['cores']} cores; ", end="")
    print(f"Python {machine['python']}, torch {machine['torch']}", flush=True)
    start = time.monotonic()
    rows = run(args)
    result = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "seconds": round(time.monotonic() - start),
        "settings": {"sizes": args.sizes, "layers": args.layers, "quick": args.quick},
        "rows": rows,
    }
    if not rows:
        print("no row matches; ./run bench --list shows the titles", file=sys.stderr)
        return 2
    print_table(rows)
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    if args.markdown:
        Path(args.markdown).write_text(markdown(result))
    if args.readme:
        update_readme(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
