"""./run bench pipeline: time the stages of export and PT2E with and without `accelerate()`.

Both take turns in one process, by CPU time, and must come to the same graphs, code and outputs before anything is
timed. Histogram observers take the range they saw, in both, as their search is tensor maths.
"""

import argparse
import contextlib
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

import fastexport
import measure
import stages
from measure import Spread
from progress import Bar, waiting
from run import number, put_into_readme

HERE = Path(__file__).parent
LOWEST = 0.97  # no stage may be slower than this

# Stage, model, layers, target, and what was measured of the same swaps in plain Python.
TARGETS: list[tuple[str, str, int, float | None, float | None]] = [
    ("prepare_pt2e, X86", "resnet", 64, 20, 14.7),
    ("prepare_pt2e, X86", "resnet", 128, 40, 32.5),
    ("prepare_pt2e, X86", "llama", 64, 5, 3.3),
    ("prepare_pt2e, X86", "llama", 128, 6, None),
    ("convert_pt2e, X86", "llama", 32, 6, 4.4),
    ("convert_pt2e, X86", "llama", 128, 6, None),
    ("convert_pt2e, X86", "resnet", 64, 4, 2.9),
    ("prepare, call, convert, call, X86", "llama", 64, None, None),
    ("prepare, call, convert, call, X86", "resnet", 64, None, None),
    ("prepare_qat_pt2e, cold cache", "mobilenet", 17, 2.5, 2.1),
    ("prepare_qat_pt2e, warm cache", "mobilenet", 17, None, 30),
    ("convert_pt2e after QAT, cold cache", "mobilenet", 17, 9, 7.8),
    ("convert_pt2e after QAT, warm cache", "mobilenet", 17, None, 50),
    ("ep.module()", "llama", 32, 8, 5.4),
    ("ep.module()", "llama", 128, 8, None),
    ("ExportedProgram(...)", "llama", 32, 8, 4.8),
    ("ExportedProgram(...)", "llama", 128, 8, None),
    ("torch.export.load", "llama", 128, 10, 2.7),
    ("torch.export.save", "llama", 128, 8, 2.1),
    ("SubgraphMatcher.match", "llama", 64, 40, 20),
    ("replace_pattern", "llama", 64, 12, 10.8),
    ("deepcopy(module)", "llama", 64, 6, 2.8),
    ("run_decompositions", "llama", 64, 1.4, 1.2),
    ("export", "bert", 192, 1.25, 1.2),
    ("eliminate_dead_code", "llama", 64, None, 4.1),
]
ZOO = [("bert", 12), ("llama", 8), ("vit", 12), ("resnet", 16), ("mobilenet", 17)]
# Training a whole zoo takes long, and one model is among the targets. XNNPACKQuantizer observes the integer sums of a
# mask, and fails at calibration.
LEFT_OUT = (
    [("bert", "XNNPACK"), ("llama", "XNNPACK")]
    + [(name, "qat") for name, _ in ZOO]
    + [(name, "QAT") for name, _ in ZOO]
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench pipeline", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="REGEX", help="only rows whose title (stage, model) matches")
    parser.add_argument("--rounds", type=int, default=3, help="of each row, after one that warms up (3)")
    parser.add_argument("--zoo", action="store_true", help="every stage of every model of the zoo, at a small depth")
    parser.add_argument("--quick", action="store_true", help="one round, on 8 layers or 16 blocks")
    parser.add_argument("--entries", metavar="NAME", nargs="+", help="of fastexport.acceleration.table(), to use alone")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON too")
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        nargs="?",
        const=str(HERE / "PIPELINE.md"),
        help="write a report too (default file: benchmarks/PIPELINE.md)",
    )
    parser.add_argument("--readme", action="store_true", help="put the ratios into the README's table")
    return parser.parse_args()


def rows_of(args: argparse.Namespace) -> Iterator[tuple[str, str, int, float | None, float | None]]:
    for stage, name, layers, target, floor in TARGETS:
        small = {"resnet": 16, "mobilenet": 17}.get(name, 8)
        yield stage, name, small if args.quick else layers, None if args.quick else target, floor
    if args.zoo:
        for name, layers in ZOO:
            for stage in stages.stages(stages.Model(name, layers)):
                if not any(name == model and part in stage for model, part in LEFT_OUT):
                    yield stage, name, layers, None, None


def wanted(args: argparse.Namespace) -> dict[tuple[str, int], list[tuple[str, float | None, float | None]]]:
    """The stages to time, by model: each model is exported once."""
    by_model: dict[tuple[str, int], list[tuple[str, float | None, float | None]]] = {}
    for stage, name, layers, target, floor in rows_of(args):
        if re.search(args.only or "", f"{stage}, {name}, {layers} blocks"):
            group = by_model.setdefault((name, layers), [])
            if stage not in [row[0] for row in group]:
                group.append((stage, target, floor))
    return by_model


@contextlib.contextmanager
def accelerated(entries: list[str] | None) -> Iterator[None]:
    with fastexport.accelerate(only=entries):
        yield


class FailsInTorch(Exception):
    """A stage can't be timed, since torch or torchao fail in it."""


def time_stage(stage: stages.Stage, args: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Seconds of each round, without and with; what is checked first has warmed both up."""

    def once(fast: bool) -> tuple[float, Any]:
        given = stage.prepare()
        if stage.cold:
            fastexport.acceleration.clear_caches()
        gc.collect()
        with accelerated(args.entries) if fast else contextlib.nullcontext():
            start = time.process_time()
            result = stage.run(given)
            return time.process_time() - start, result

    try:
        expected = once(False)[1]
    except Exception as error:
        raise FailsInTorch(f"{type(error).__name__}: {error}".partition("\n")[0]) from error
    stage.check(expected, once(True)[1])
    slow: list[float] = []
    fast: list[float] = []
    for i in range(args.rounds):
        for which in (False, True) if i % 2 else (True, False):
            (fast if which else slow).append(once(which)[0])
    return slow, fast


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    groups = wanted(args)
    total, done = sum(map(len, groups.values())), 0
    for (name, layers), group in groups.items():
        model = stages.Model(name, layers)
        with waiting(f"exporting {model.title}", 0.1 * layers):
            nodes = len(model.program.graph.nodes)
        found = stages.stages(model)
        with Bar() as bar:
            for title, target, floor in group:
                bar.update(done / total, f"{title}, {model.title}")
                try:
                    slow, fast = time_stage(found[title], args)
                except FailsInTorch as error:
                    print(f"{title}, {model.title}: left out, for torch fails: {error}", flush=True)
                    done += 1
                    continue
                ratio = measure.ratio(slow, fast)
                rows.append(
                    {
                        "stage": title,
                        "model": model.title,
                        "nodes": nodes,
                        "without": asdict(Spread.of(slow)),
                        "with": asdict(Spread.of(fast)),
                        "ratio": asdict(ratio),
                        "floor": floor,
                        "target": target,
                        "reached": None if target is None else ratio.median >= target,
                        "rounds": len(slow),
                    }
                )
                done += 1
                print(line(rows[-1]), flush=True)
    return rows


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    ratio = row["ratio"]
    return (
        row["stage"],
        row["model"],
        f"{row['nodes']:,}",
        f"{number(row['without']['median'] * 1e3)} ms",
        f"{number(row['with']['median'] * 1e3)} ms",
        number(row["with"]["median"] / row["nodes"] * 1e6),
        f"{number(ratio['median'])}x",
        f"{number(ratio['low'])}-{number(ratio['high'])}",
        "" if row["floor"] is None else f"{row['floor']:g}x",
        "" if row["target"] is None else f"{row['target']:g}x",
        {None: "", True: "yes", False: "NO"}[row["reached"]],
    )


HEAD = (
    "stage",
    "model",
    "nodes",
    "torch",
    "accelerated",
    "us a node",
    "ratio",
    "quarters",
    "plain Python",
    "target",
    "met",
)
WIDTHS = (34, 20, 7, 11, 11, 9, 7, 11, 12, 7, 3)


def line(row: dict[str, Any]) -> str:
    pairs = zip(cells(row), WIDTHS, strict=True)
    return "  ".join(f"{c:<{w}}" if i < 2 else f"{c:>{w}}" for i, (c, w) in enumerate(pairs)).rstrip()


def markdown(result: dict[str, Any]) -> str:
    """The results as a report. What bounds a row that falls short is told in bounds.toml."""
    with (HERE / "bounds.toml").open("rb") as f:
        bounds = tomllib.load(f)
    machine, rows = result["machine"], result["rows"]
    short = [row for row in rows if row["reached"] is False]
    slower = [row for row in rows if row["ratio"]["median"] < LOWEST]
    lines = [
        "# accelerate(): stages with and without",
        "",
        f"Made by `./run bench pipeline --markdown` on {result['date']}; edit `bounds.toml`, not this file.",
        "",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}",
        f"- Python {machine['python']}, torch {machine['torch']}, one torch thread",
        "- CPU time, medians over the rounds; with and without take turns in one process. Graphs, code and",
        "  outputs were compared first. Histogram observers take the range they saw, in both.",
        "- *us a node*: of the exported graph, accelerated; growth is linear where it stays the same.",
        "- *plain Python*: what the same swaps gave, written in plain Python, measured apart from this run.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|---|---|{'---:|' * (len(HEAD) - 2)}",
        *(f"| {' | '.join(cells(row))} |" for row in rows),
        "",
        "## Short of the target",
        "",
        *(
            f"- {row['stage']}, {row['model']}: {number(row['ratio']['median'])}x of {row['target']:g}x. "
            f"{bounds.get(row['stage'], '')}".rstrip()
            for row in short
        ),
        *([] if short else ["None."]),
        "",
        f"## Slower than {LOWEST}x",
        "",
        *(f"- {row['stage']}, {row['model']}: {number(row['ratio']['median'])}x" for row in slower),
        *([] if slower else ["None."]),
    ]
    return "\n".join(lines) + "\n"


def update_readme(rows: list[dict[str, Any]]) -> None:
    """Write the rows that have a target between the marks in the README."""
    lines = ["| stage | model | target | with `accelerate()` |", "|---|---|---:|---:|"]
    for row in rows:
        if row["target"] is not None:
            ratio = f"{number(row['ratio']['median'])}x"
            lines.append(f"| {row['stage']} | {row['model']} | {row['target']:g}x | {ratio} |")
    put_into_readme("pipeline", lines)


def main() -> int:
    args = arguments()
    if args.quick:
        args.rounds = 1
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    stages.use_plain_range()
    machine = measure.machine()
    print(f"{machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, torch {machine['torch']}")
    pairs = zip(HEAD, WIDTHS, strict=True)
    print("  ".join(f"{c:<{w}}" if i < 2 else f"{c:>{w}}" for i, (c, w) in enumerate(pairs)), flush=True)
    start = time.monotonic()
    rows = run(args)
    if not rows:
        print("no row matches", file=sys.stderr)
        return 2
    result = {
        "schema": 1,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "seconds": round(time.monotonic() - start),
        "rows": rows,
    }
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    if args.markdown:
        Path(args.markdown).write_text(markdown(result))
    if args.readme:
        update_readme(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
