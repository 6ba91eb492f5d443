"""./run bench fx: time tracing, code, patterns and passes beside torch.fx.

Compared before anything is timed: the code, the matches, the graphs with their arguments after replace_pattern, after
common subexpressions are eliminated and after a sort, the sequences of partitions, and the traces with their code.

Both take turns in one process, by CPU time. torch is as it is, without accelerate(). In each round torch's work runs
once and ours, which is short, several times; the middle of them counts. An input that a job changes is made afresh.
"""

import argparse
import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fx_cases
import rows
from cases import Source, synthetic_source
from exported import Kind
from fx_cases import (
    CODE,
    CSE,
    IN_PLACE,
    LEGALIZE,
    MATCH,
    OF_TORCHS,
    PARTITIONS,
    REPLACE,
    SORT,
    TRACE,
    TRACE_CODE,
    VERBOSE,
)
from measure import Job
from program_cases import Case
from programs import BUDGET, MOST_ROUNDS, Times, middle, timed
from progress import Bar, waiting
from run import size_text

Targets = dict[str, float | None]  # by the titles of rows

ON_GRAPHS: tuple[tuple[Callable[[Any], Case], Targets], ...] = (
    (fx_cases.coding, {CODE: 15}),
    (fx_cases.coding_verbose, {VERBOSE: None}),
    (fx_cases.replacing, {REPLACE: 50, REPLACE + IN_PLACE: None}),
    (fx_cases.matching, {MATCH: 200}),
    (fx_cases.common_subexpressions, {CSE: 50, CSE + IN_PLACE: None}),
    (partial(fx_cases.sorting, by=SORT), {SORT: 50, SORT + IN_PLACE: None}),
    (partial(fx_cases.sorting, by=LEGALIZE), {LEGALIZE: 50, LEGALIZE + IN_PLACE: None}),
)
ON_LONGEST_CHAIN: Targets = {REPLACE: 500, REPLACE + IN_PLACE: None}
ON_CHAINS: Targets = dict.fromkeys(ON_LONGEST_CHAIN)
ON_RESNET: Targets = {PARTITIONS: 20, PARTITIONS + OF_TORCHS: None}
ON_MODULE: Targets = {TRACE: 5, TRACE_CODE: None}

IDLE, IDLE_MILLISECONDS = "idle {}", 1
DIFF, DIFF_MILLISECONDS = "diff with an edited copy", 50
GROWTH = f"growth of {REPLACE}"
LARGEST_GROWTH = 1.5  # of the time for each node, from few to many
LONG, NODES_A_SECOND = 1, 1000  # of making and comparing, for the bar
SLOW = 5  # seconds; what takes torch longer is timed once


class Run(rows.Rows):
    name, what = "fx", "graph"
    title = "Work on graphs: fastexport beside torch.fx"
    notes = (
        "- CPU time, medians over the rounds, both in turn, on equal graphs; results were compared first. torch's side",
        f"  is without `accelerate()`. What takes torch more than {SLOW} seconds is timed once.",
        "- Graphs are fastexport's. *in place*: torch's own, read and changed.",
        "- torch's passes make the module's code anew each time; a module that fastexport has changed gets it when it",
        f"  is first called or looked at, which is not in the time. Likewise *{TRACE}*; *{TRACE_CODE}* makes it too.",
        f"- *{CSE}*: beside CSEPass; one of ten calls is there twice. What CSEPass",
        '  gives is compared with the policy "torch"; the default, which is timed, knows of writes and random numbers.',
        f"- *{SORT}*: beside stable_topological_sort, and with *stable=False* beside legalize_graph; one of ten calls",
        "  is out of place. Their orders are compared likewise; the default also puts inputs first.",
        f"- *{IDLE.format('PASS')}*: nothing is found to do. Its limit, and that of *{DIFF}*,",
        "  stand in the column *torch*.",
        "- *growth*: time for each node of many by that for each of few, which stands in the column *torch*.",
    )

    def __init__(self, args: argparse.Namespace, folder: Path):
        super().__init__(args, folder)
        self.nodes = 400 if args.quick else 10_000
        self.chain_sizes = (200, 400) if args.quick else (1000, 2000, 5000, 20_000)
        self.llama = Kind("llama", 2 if args.quick else 128)
        self.resnet = Kind("resnet", 4 if args.quick else 128)

    def goal(self, value: float | None) -> float | None:
        """A target or limit, which small graphs are not held to."""
        return None if self.args.quick else value

    def timed(self, case: Case, title: str) -> tuple[list[float], Times]:
        """Milliseconds."""
        with Bar() as bar:
            run = partial(timed, case, tick=lambda: bar.update(0, title))
            slow, fast = run(rounds=1, budget=0)
            if slow[0] < SLOW and not self.args.quick:
                slow, fast = run(rounds=self.args.rounds, budget=BUDGET)
        return [s * 1e3 for s in slow], {job: [s * 1e3 for s in times] for job, times in fast.items()}

    def case(self, make: Callable[[Any], Case], source: Source, targets: Targets) -> None:
        """The rows of a case, which is made when one of them is wanted."""
        wanted = [job for job in targets if self.wants(job, source.title)]
        if not wanted:
            return
        with waiting(f"making a graph: {source.title}", LONG):
            nodes = source.nodes
        with waiting(f"comparing {', '.join(wanted)}, {source.title}", nodes / NODES_A_SECOND):
            case = make(source)
            case.check()
        slow, fast = self.timed(replace(case, ours={job: case.ours[job] for job in wanted}), source.title)
        for job, times in fast.items():
            self.add(job, source.title, nodes, slow, times, target=self.goal(targets[job]))

    def graphs(self) -> None:
        """The rows of a generated graph and of an exported program."""
        sources = [synthetic_source(self.nodes, True), fx_cases.exported(self.llama)]
        while sources:  # one that is done goes
            source = sources.pop(0)
            for make, targets in ON_GRAPHS:
                self.case(make, source, targets)
            for name, run in fx_cases.nothing_to_do().items():
                self.limited(IDLE.format(name), source, IDLE_MILLISECONDS, partial(fx_cases.idle, source, name, run))
            self.limited(DIFF, source, DIFF_MILLISECONDS, partial(fx_cases.diffing, source))
            gc.collect()

    def limited(self, job: str, source: Source, milliseconds: float, make: Callable[[], Job]) -> None:
        """A row that is judged by a limit."""
        if self.wants(job, source.title):
            run = make()
            times = [middle(run) * 1e3 for _ in range(self.args.rounds)]
            limit = [milliseconds] * len(times)
            self.add(job, source.title, source.nodes, limit, times, most=self.goal(1), inverse=True)

    def chains(self) -> None:
        """The rows of chains of more and more nodes, and how the time grows from the shortest to the longest."""
        sources = {nodes: fx_cases.add_relu_chain(nodes) for nodes in self.chain_sizes}
        few, many = self.chain_sizes[0], self.chain_sizes[-1]
        for nodes, source in sources.items():
            self.case(fx_cases.replacing, source, ON_LONGEST_CHAIN if nodes == many else ON_CHAINS)
        title = f"{size_text(many)} beside {size_text(few)} nodes of an add-relu chain"
        if self.wants(GROWTH, title):
            jobs = {nodes: fx_cases.replacing(sources[nodes]).ours[REPLACE] for nodes in (few, many)}
            each: list[list[float]] = [[], []]
            for _ in range(1 if self.args.quick else MOST_ROUNDS):
                for times, (nodes, job) in zip(each, jobs.items(), strict=True):
                    times.append(middle(job) / nodes * 1e9)
            self.add(GROWTH, title, many, *each, unit="ns", most=self.goal(LARGEST_GROWTH), inverse=True)

    def all(self) -> None:
        self.graphs()
        self.chains()
        self.case(fx_cases.partitioning, fx_cases.exported(self.resnet), ON_RESNET)
        self.case(fx_cases.tracing, fx_cases.Traced(self.nodes), ON_MODULE)


if __name__ == "__main__":
    sys.exit(rows.main(Run, __doc__.splitlines()[0]))
