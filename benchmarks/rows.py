"""Rows of `./run bench files`, `programs`, `fx` and `tools`: collected, printed, and put into report and README.

A row is one job on one file or program: what it takes of torch, or another baseline, and of fastexport, and the ratio
with its target. A benchmark is a subclass of `Rows` that measures, and `main` runs it.
"""

import argparse
import gc
import json
import logging
import re
import sys
import tempfile
import time
import tomllib
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch

import measure
from measure import Spread
from run import number, put_into_readme

HERE = Path(__file__).parent
GIB = 1 << 30
OURS_A_ROUND = 5  # runs of a job of ours, which is short; the middle one counts


class Rows:
    """The rows that were asked for.

    Attributes:
        name: that of the benchmark, after which the report and the mark in the README are called too.
        what: what jobs are done to.
        title: that of the report.
        baseline: what ours is beside, as the head of its column has it.
        conditions: how torch was run; it goes on a line of the report.
        notes: lines of the report that explain its rows.
        references: milliseconds that tell something beside the rows, by what takes them.
    """

    name: ClassVar[str]
    what: ClassVar[str]
    title: ClassVar[str]
    baseline: ClassVar[str] = "torch"
    conditions: ClassVar[str] = ""
    notes: ClassVar[tuple[str, ...]]

    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.folder = args, folder
        self.rows: list[dict[str, Any]] = []
        self.references: dict[str, float] = {}

    def all(self) -> None:
        """Measure."""
        raise NotImplementedError

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
        **more: Any,
    ) -> None:
        """A row. Its ratio is the baseline by ours; where it is inverse, ours by the baseline, and less is better."""
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
        } | more
        self.rows.append(row)
        print(aligned(cells(row)), flush=True)


# ---- showing -------------------------------------------------------------------------------------

WIDTHS = (41, 32, 8, 12, 12, 8, 12, 14, 3)


def head(kind: type[Rows]) -> tuple[str, ...]:
    return "job", kind.what, "nodes", kind.baseline, "fastexport", "ratio", "quarters", "target", "met"


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


def markdown(kind: type[Rows], result: dict[str, Any]) -> str:
    """The results as a report. What bounds a row that falls short is told in bounds.toml."""
    with (HERE / "bounds.toml").open("rb") as f:
        bounds = tomllib.load(f)
    machine, rows = result["machine"], result["rows"]
    short = [row for row in rows if row["reached"] is False]
    columns = head(kind)
    lines = [
        f"# {kind.title}",
        "",
        f"Made by `./run bench {kind.name} --markdown` on {result['date']}; edit `bounds.toml`, not this file.",
        "",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}",
        f"- Python {machine['python']}, torch {machine['torch']}, one torch thread{kind.conditions}",
        *kind.notes,
        *(f"- `{name}` takes {number(value)} ms from process start." for name, value in result["references"].items()),
        "",
        f"| {' | '.join(columns)} |",
        f"|---|---|{'---:|' * (len(columns) - 2)}",
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


def update_readme(kind: type[Rows], rows: list[dict[str, Any]]) -> None:
    """Write the rows that have a target between the marks in the README."""
    lines = [f"| job | {kind.what} | target | fastexport |", "|---|---|---:|---:|"]
    for row in rows:
        if goal(row):
            lines.append(f"| {row['job']} | {row['file']} | {goal(row)} | {number(row['ratio']['median'])}x |")
    put_into_readme(kind.name, lines)


# ---- running -------------------------------------------------------------------------------------


def arguments(kind: type[Rows], description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"./run bench {kind.name}", description=description)
    parser.add_argument("--only", metavar="REGEX", help=f"only rows whose title (job, {kind.what}) matches")
    parser.add_argument("--rounds", type=int, default=3, help="of each row, at least (3)")
    parser.add_argument("--quick", action="store_true", help=f"one round, on small {kind.what}s")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON too")
    report = f"{kind.name.upper()}.md"
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        nargs="?",
        const=str(HERE / report),
        help=f"write a report too (default file: benchmarks/{report})",
    )
    parser.add_argument("--readme", action="store_true", help="put the ratios into the README's table")
    args = parser.parse_args()
    args.rounds = 1 if args.quick else args.rounds
    return args


def main(kind: type[Rows], description: str) -> int:
    args = arguments(kind, description)
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if args.quick:
        gc.freeze()  # looking through torch before each job takes longer than the jobs
    machine = measure.machine()
    print(f"{machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, torch {machine['torch']}")
    print(aligned(head(kind)), flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        running = kind(args, Path(folder))
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
        Path(args.markdown).write_text(markdown(kind, result))
    if args.readme:
        update_readme(kind, running.rows)
    return 0
