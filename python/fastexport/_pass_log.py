"""Chains of passes: what each one did, and which one broke the graph."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from fastexport._core import Node
from fastexport._errors import FastExportError, Fault, LintFault
from fastexport._graph import Graph
from fastexport._provenance import _Observer, _observing
from fastexport._results import PassResult
from fastexport._tables import Column, Table, Tabular

if TYPE_CHECKING:
    from fastexport._diff import GraphDiff

__all__ = ["PassError", "PassLog", "Step"]


class PassLog(list[PassResult], Tabular):
    """The results of a chain of passes, in order; shown as a table.

    >>> PassLog([PassResult("eliminate_dead_code", True, removed=["relu"], seconds=0.001), PassResult("lint")])
    pass                 modified  removed  added  replaced     ms
    eliminate_dead_code  yes             1      -         -  1.000
    lint                 no              -      -         -  0.000
    all                  yes             1      -         -  1.000
    """

    @property
    def modified(self) -> bool:
        """Whether any pass modified the graph."""
        return any(result.modified for result in self)

    @property
    def seconds(self) -> float:
        """The time of all passes."""
        return sum(result.seconds for result in self)

    def to_dict(self) -> dict[str, Any]:
        """The results, each as `PassResult.to_dict` gives it, for JSON."""
        return {"passes": [result.to_dict() for result in self], "modified": self.modified, "seconds": self.seconds}

    def _table(self) -> Table:
        return Table(_COLUMNS, [_row(result) for result in self])

    def __repr__(self) -> str:
        table = self._table()
        if len(self) > 1:
            sums = (sum(row[i] for row in table.rows) for i in (2, 3, 4))
            table = Table(_COLUMNS, [*table.rows, ("all", self.modified, *sums, self.seconds * 1e3)])
        return "\n".join(table.lines())


_COLUMNS = (
    Column("pass"),
    Column("modified"),
    *(Column(name, lambda count: str(count or "-"), right=True) for name in ("removed", "added", "replaced")),
    Column("ms", "{:.3f}".format, right=True),
)


def _row(result: PassResult) -> tuple[Any, ...]:
    counts = (len(result.removed), len(result.added), len(result.replaced))
    return result.name, result.modified, *counts, result.seconds * 1e3


class PassError(FastExportError, RuntimeError):
    """A pass has left a graph that is not in order; raised by `run_passes` with ``check`` or ``bisect``.

    Attributes:
        name: the pass.
        index: its place in the chain, from 0.
        total: how many passes the chain has.
        path: the subgraph at fault, such as ``"true_graph_0"``; "" for the graph itself.
        faults: what is wrong, as `LintFault` or, of a program, `Fault`.
        diff: what the pass did to the graph, as `GraphDiff`.
        log: the results of the passes before it, and its own.
    """

    __module__ = "fastexport"

    def __init__(
        self,
        name: str,
        index: int,
        total: int,
        path: str,
        faults: Sequence[LintFault | Fault],
        diff: GraphDiff,
        log: PassLog,
    ) -> None:
        where = f" in {path}" if path else ""
        more = f" (and {len(faults) - 1} more: see .faults)" if len(faults) > 1 else ""
        place = f"{index + 1} of {total}"
        super().__init__(f"pass {name!r} ({place}) broke the graph{where}: {faults[0].message}{more}")
        self.name = name
        self.index = index
        self.total = total
        self.path = path
        self.faults = list(faults)
        self.diff = diff
        self.log = log


class Step(NamedTuple):
    """A pass of a chain: its name, what runs it, and whether it is one of ours.

    Those of ours are given a graph or a whole program, and tell what they did; others get the graph.
    """

    name: str
    run: Callable[[Any], Any]
    is_ours: bool


# ---- running ---------------------------------------------------------------------------------------------------------


class Chain:
    """A chain of passes, to be run on a graph or program of ours.

    Args:
        steps: the passes.
        log: gets each result as it comes: a function, or a list; None: nobody.
    """

    def __init__(self, steps: list[Step], log: Any) -> None:
        self._steps = steps
        if log is not None and not callable(log) and not hasattr(log, "append"):
            raise TypeError(f"log is a function or a list, not {type(log).__name__}")
        self._tell = log.append if hasattr(log, "append") else log

    def run(self, g: Any, *, check: bool = False, bisect: bool = False) -> PassLog:
        """Run the passes; see `fastexport.run_passes`."""
        if check or bisect:
            _raise_faults(g)
        if check:
            return self._run_checked(g)
        if not bisect:
            return self._run(g, self._steps)
        start = copy.copy(g)
        try:
            log = self._run(g, self._steps)
        except Exception:
            self._bisect(start)
            raise
        if _faults_of(g)[1]:
            self._bisect(start)
        return log

    def _run(self, g: Any, steps: list[Step], *, quietly: bool = False) -> PassLog:
        log = PassLog()
        for index, step in enumerate(steps):
            log.append(self._one(g, step, index))
            if self._tell is not None and not quietly:
                self._tell(log[-1])
        return log

    def _one(self, g: Any, step: Step, index: int) -> PassResult:
        try:
            return _run_step(g, step)
        except Exception as error:
            error.add_note(f"in pass {step.name!r}, {index + 1} of {len(self._steps)}")
            raise

    def _run_checked(self, g: Any) -> PassLog:
        log = PassLog()
        for index, step in enumerate(self._steps):
            before = copy.copy(g)
            log.append(self._one(g, step, index))
            if self._tell is not None:
                self._tell(log[-1])
            self._check(index, before, g, log)
        return log

    def _check(self, index: int, before: Any, after: Any, log: PassLog) -> None:
        path, faults = _faults_of(after)
        if faults:
            from fastexport._diff import diff

            name, total = self._steps[index].name, len(self._steps)
            raise PassError(name, index, total, path, faults, diff(before, after), log)

    def _bisect(self, start: Any) -> None:
        """Find the pass that breaks a graph that the whole chain breaks; returns when none does by itself."""
        good, bad = 0, len(self._steps)  # numbers of passes after which the graph is in order, and is not
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._breaks(copy.copy(start), self._steps[:middle]):
                bad = middle
            else:
                good = middle
        before = copy.copy(start)
        log = self._run(before, self._steps[:good], quietly=True)
        after = copy.copy(before)
        log.append(self._one(after, self._steps[good], good))
        self._check(good, before, after, log)

    def _breaks(self, g: Any, steps: list[Step]) -> bool:
        try:
            self._run(g, steps, quietly=True)
        except Exception:  # by what an earlier pass has left, or by itself: either way the place is up to here
            return True
        return bool(_faults_of(g)[1])


def _graph_of(g: Any) -> Graph:
    return g if isinstance(g, Graph) else g.graph


def _run_step(g: Any, step: Step) -> PassResult:
    """Run a pass; what a function that tells nothing did is seen from the graph."""
    if step.is_ours:
        result: PassResult = step.run(g)
        return result
    graph = _graph_of(g)
    start = time.perf_counter()
    with _watching(graph) as watches:
        outcome = step.run(graph)
    seconds = time.perf_counter() - start
    if isinstance(outcome, PassResult):
        return outcome
    told = outcome if isinstance(outcome, bool) else getattr(outcome, "modified", False) is True
    if not isinstance(outcome, bool | list | None) and not _is_of(outcome, graph):
        raise TypeError(
            f"pass {step.name!r} returned a {type(outcome).__name__}; a pass of run_passes changes its graph in place "
            "and returns None, a bool, a PassResult or a list of replacements; "
            "apply_fx_pass takes one that makes a new graph or module"
        )
    return _result_of(watches, step.name, told, seconds)


def _is_of(outcome: Any, graph: Graph) -> bool:
    """Whether a pass has given back the graph that it was given, or its module, or a result with either."""
    outcome = getattr(outcome, "graph_module", outcome)
    return getattr(outcome, "graph", outcome) is graph


# ---- what a function of the user did ---------------------------------------------------------------------------------


class Replacements(_Observer):
    """Notes which node took whose place."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._pairs: dict[Node, Node] = {}

    def replaced(self, old: Node, new: Node) -> None:
        super().replaced(old, new)
        self._pairs[old] = new

    def pairs(self) -> Iterator[tuple[Node, Node]]:
        """Nodes whose place was taken, and what stands there now."""
        for old, new in self._pairs.items():
            seen = set()
            while new._erased and new in self._pairs and new not in seen:
                seen.add(new)
                new = self._pairs[new]
            if not new._erased:
                yield old, new


class _Watch:
    """A graph as it was before a pass.

    Attributes:
        path: what stands before the names of its nodes.
    """

    def __init__(self, graph: Graph, path: str) -> None:
        self.graph = graph
        self.path = path
        self.version = graph._version
        self.names = {node: node.name for node in graph.nodes}
        self.observer = Replacements(graph)


def _result_of(watches: list[_Watch], name: str, told: bool, seconds: float) -> PassResult:
    removed = [w.path + old for w in watches for node, old in w.names.items() if node._erased]
    added = [w.path + node.name for w in watches for node in w.graph.nodes if node not in w.names]
    replaced = {
        w.path + w.names[old]: w.path + new.name
        for w in watches
        for old, new in w.observer.pairs()
        if old._erased and old in w.names
    }
    modified = told or any(w.graph._version != w.version for w in watches)
    return PassResult(name, modified, removed=removed, replaced=replaced, added=added, seconds=seconds)


@contextmanager
def _watching(graph: Graph) -> Iterator[list[_Watch]]:
    """A graph and those below it are watched for the length of a ``with`` block."""
    watches = [_Watch(graph, ""), *(_Watch(sub, f"{path}/") for path, sub in graph._graphs_below())]
    with ExitStack() as stack:
        for watch in watches:
            stack.enter_context(_observing(watch.graph, watch.observer))
        yield watches


# ---- checks ----------------------------------------------------------------------------------------------------------


def _faults_of(g: Any) -> tuple[str, Sequence[LintFault | Fault]]:
    """What is wrong with a graph or program, and in which subgraph; lint goes first, as the verifier stands on it."""
    whole = _graph_of(g)
    for path, graph in (("", whole), *whole._graphs_below(between=".")):
        found = [fault for fault in graph.lint(all=True) if fault.is_error]
        if found:
            return path, found
    if isinstance(g, Graph):
        return "", []
    return "", [fault for fault in g.verify(all=True) if fault.is_error]


def _raise_faults(g: Any) -> None:
    """Raise what a graph that is not in order raises, before any pass has run."""
    whole = _graph_of(g)
    for graph in (whole, *(below for _, below in whole._graphs_below())):
        graph.lint()
    if not isinstance(g, Graph):
        g.verify()
