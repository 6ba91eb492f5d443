"""What the benchmarks time: each job by torch and by fastexport, on the same graph.

A case lists jobs that are timed in turn and the rows of the table they give. Before anything is
timed its check has made sure that all of them come to the same result.
"""

import copy
import gc
import operator
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import fastexport
import synthetic
import torch
import torch_passes
import zoo
from fastexport import _core
from measure import Job, collector_off, resident_growth
from torch.fx import Graph as TorchGraph

aten = torch.ops.aten

EDITS = 1000  # nodes that the rows about edits erase, replace or insert
POLICY = "torch"  # what is compared must do the same


@dataclass(frozen=True)
class Row:
    """A line of the table: the time of one job beside another's."""

    job: str
    door: str
    fast: str
    slow: str = "torch"
    target: float | None = None  # how many times faster it should be


@dataclass(frozen=True)
class Case:
    title: str
    graph: str
    nodes: int
    jobs: dict[str, Job]
    rows: list[Row]
    check: Callable[[], None]
    per: int = 0  # items that the time is for, when not nodes
    extra: dict[str, Any] = field(default_factory=dict)


class Source:
    """A graph to measure on: torch's, and fastexport's, with nothing to remove from them."""

    def __init__(self, title: str, graph: TorchGraph, module: Any, has_targets: bool):
        self.title, self.module, self.has_targets = title, module, has_targets
        graph.eliminate_dead_code()
        self.torch = graph
        self.nodes = len(graph.nodes)

    @cached_property
    def native(self) -> fastexport.Graph:
        return fastexport.from_fx(self.torch)

    def variant(self, change: Callable[[Any], Any]) -> "Source":
        """The same graph with something planted in it."""
        graph = self.fresh()
        change(graph)
        made = Source.__new__(Source)
        made.title, made.module, made.has_targets = self.title, self.module, self.has_targets
        made.torch, made.nodes = graph, len(graph.nodes)
        return made

    def fresh(self) -> TorchGraph:
        graph = copy.deepcopy(self.torch)
        graph.owning_module = self.module
        return graph

    def fresh_native(self) -> fastexport.Graph:
        graph = copy.copy(self.native)
        graph.owning_module = self.module
        return graph

    def fresh_held(self) -> torch.fx.GraphModule:
        return torch_passes.bare_module(self.fresh())


def synthetic_source(nodes: int, has_targets: bool) -> Source:
    graph = synthetic.build(TorchGraph(), nodes, dead=0)
    return Source(f"synthetic, {nodes:,} nodes", graph, None, has_targets)


def llama_source(layers: int, has_targets: bool) -> Source:
    module = zoo.export("llama", layers).module()
    return Source(f"Llama of {layers} layers, exported", module.graph, module, has_targets)


def without_payload(graph: TorchGraph) -> TorchGraph:
    """A copy whose nodes have no meta."""
    stripped = copy.deepcopy(graph)
    for node in stripped.nodes:
        node.meta = {}
    return stripped


class Different(Exception):
    """Two ways to do a job came to different results."""


def same(expected: Any, *others: Any) -> None:
    """Raise unless all graphs are equal in everything."""
    for other in others:
        if str(expected) != str(other) or synthetic.describe(expected) != synthetic.describe(other):
            raise Different("the graphs differ")


def done(given: Any, run: Callable[[Any], object]) -> Any:
    """The graph after a job that changes it."""
    run(given)
    return given.graph if isinstance(given, torch.fx.GraphModule) else given


# ---- passes --------------------------------------------------------------------------------------


def dead_code(graph: Any) -> object:
    return fastexport.eliminate_dead_code(graph, policy=POLICY)


def getitems(graph: Any) -> object:
    return fastexport.eliminate_getitems(graph, policy=POLICY)


def chain(graph: Any) -> object:
    passes = ["eliminate_getitems", "eliminate_dead_code", "lint"]
    return fastexport.run_passes(graph, passes, policy=POLICY)


def pass_case(
    source: Source,
    job: str,
    *,
    stock: Callable[[Any], object],
    ours: Callable[[Any], object],
    targets: tuple[float, float] | None,
    python: Callable[[Any], object] | None = None,
    stock_fresh: Callable[[], Any] | None = None,
    changes: bool = True,
) -> Case:
    """A pass by torch, in place on torch's graph, and natively."""

    def maker(fresh: Callable[[], Any]) -> Callable[[], Any]:
        if changes:
            return fresh
        kept = fresh()  # nothing changes it, so one is enough
        return lambda: kept

    stock_fresh = stock_fresh or source.fresh
    jobs = {
        "torch": Job(stock, maker(stock_fresh)),
        "in place": Job(ours, maker(source.fresh)),
        "native": Job(ours, maker(source.fresh_native)),
    }
    if python:
        jobs["python"] = Job(python, maker(source.fresh))
    target = targets if targets and source.has_targets else (None, None)
    rows = [
        Row(job, "in place", "in place", target=target[0]),
        Row(job, "native", "native", target=target[1]),
    ]
    if python:
        rows.append(Row(f"{job}: against cached Python", "in place", "in place", "python"))

    def check() -> None:
        expected = done(stock_fresh(), stock)
        same(expected, done(source.fresh(), ours), done(source.fresh_native(), ours))
        if python:
            same(expected, done(source.fresh(), python))
        if changes == (len(expected.nodes) == source.nodes):
            raise Different(f"{job}: the pass found something else to do than was planted")

    return Case(job, source.title, source.nodes, jobs, rows, check)


def passes(source: Source) -> Iterator[Case]:
    with_dead = source.variant(lambda graph: synthetic.plant_dead(graph, 0.2))
    with_getitems = source.variant(plant_getitems)
    yield pass_case(
        with_dead,
        "eliminate_dead_code, 20 % dead",
        stock=torch_passes.eliminate_dead_code,
        ours=dead_code,
        targets=(20, 150),
        python=torch_passes.eliminate_dead_code_cached,
    )
    yield pass_case(
        source,
        "eliminate_dead_code, nothing dead",
        stock=torch_passes.eliminate_dead_code,
        ours=dead_code,
        targets=(30, 150),
        python=torch_passes.eliminate_dead_code_cached,
        changes=False,
    )
    yield pass_case(
        source,
        "lint",
        stock=torch_passes.lint,
        ours=fastexport.lint,
        targets=(6, 100),
        changes=False,
    )
    yield pass_case(
        with_getitems,
        "eliminate_getitems, 5 % repeated",
        stock=torch_passes.eliminate_getitems,
        ours=getitems,
        targets=(3, 30),
        stock_fresh=with_getitems.fresh_held,
    )
    yield chain_case(with_getitems)


def plant_getitems(graph: Any) -> None:
    """Some 5 % of getitems that repeat another; the synthetic graph has them already."""
    if not any(node.target is operator.getitem for node in graph.nodes):
        synthetic.plant_getitems(graph, 0.05)


def chain_case(source: Source) -> Case:
    """The three passes; run_passes reads a torch graph once and changes it once."""
    job = "the three in a chain"
    jobs = {
        "torch": Job(torch_passes.chain, source.fresh_held),
        "run_passes": Job(chain, source.fresh),
        "native": Job(chain, source.fresh_native),
    }
    rows = [Row(job, "run_passes", "run_passes"), Row(job, "native", "native")]

    def check() -> None:
        expected = done(source.fresh_held(), torch_passes.chain)
        same(expected, done(source.fresh(), chain), done(source.fresh_native(), chain))

    return Case(job, source.title, source.nodes, jobs, rows, check)


# ---- conversion, building, text ------------------------------------------------------------------


def conversions(source: Source) -> Iterator[Case]:
    graph = source.torch
    target = (40, 10) if source.has_targets else (None, None)

    def graph_copy(_: None) -> TorchGraph:
        new = TorchGraph()
        new.graph_copy(graph, {})
        return new

    def check_read() -> None:
        same(graph, fastexport.from_fx(graph))

    yield Case(
        "from_fx",
        source.title,
        source.nodes,
        {"torch": Job(graph_copy), "fastexport": Job(lambda _: fastexport.from_fx(graph))},
        [Row("from_fx, against graph_copy", "convert", "fastexport", target=target[0])],
        check_read,
    )

    def there_and_back(_: None) -> TorchGraph:
        return fastexport.from_fx(graph).to_fx()

    def deepcopy_without_collector(_: None) -> TorchGraph:
        with collector_off():
            return copy.deepcopy(graph)

    yield Case(
        "from_fx and to_fx",
        source.title,
        source.nodes,
        {
            "torch": Job(lambda _: copy.deepcopy(graph)),
            "fastexport": Job(there_and_back),
            "python": Job(deepcopy_without_collector),
        },
        [
            Row("from_fx + to_fx, against deepcopy", "convert", "fastexport", target=target[1]),
            Row("the same, the collector off for deepcopy", "convert", "fastexport", "python"),
        ],
        lambda: same(graph, there_and_back(None)),
    )
    native = source.fresh_native()
    yield Case(
        "deepcopy",
        source.title,
        source.nodes,
        {
            "torch": Job(lambda _: copy.deepcopy(graph)),
            "native": Job(lambda _: copy.deepcopy(native)),
        },
        [Row("deepcopy(graph)", "native", "native")],
        lambda: same(native, copy.deepcopy(native)),
    )


def building(source: Source) -> Iterator[Case]:
    build = synthetic.builder_of(source.torch)
    yield Case(
        "build",
        source.title,
        source.nodes,
        {
            "torch": Job(build, TorchGraph),
            "native": Job(build, fastexport.Graph),
        },
        [Row("build through call_function", "native", "native", target=_target(source, 20))],
        lambda: same(build(TorchGraph()), build(fastexport.Graph())),
    )
    graph, native = source.torch, source.fresh_native()
    yield Case(
        "str",
        source.title,
        source.nodes,
        {"torch": Job(lambda _: str(graph)), "native": Job(lambda _: str(native))},
        [Row("str(graph)", "native", "native", target=_target(source, 15))],
        lambda: same(graph, native),
    )


def _target(source: Source, factor: float) -> float | None:
    return factor if source.has_targets else None


# ---- reading and edits, node by node -------------------------------------------------------------


def _read_all(graph: Any) -> int:
    count = 0
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not None:
            count += len(node.args) + len(node.users)
    return count


def _erase_one_by_one(given: tuple[Any, list[Any]]) -> None:
    graph, nodes = given
    for node in nodes:
        graph.erase_node(node)


def _replace_one_by_one(given: tuple[Any, list[Any]]) -> None:
    for old, new in given[1]:
        old.replace_all_uses_with(new)


def _insert_one_by_one(given: tuple[Any, list[Any]]) -> None:
    graph, nodes = given
    for node in nodes:
        with graph.inserting_after(node):
            graph.call_function(torch.relu, (node,))


def _dead(graph: Any) -> tuple[Any, list[Any]]:
    nodes = [node for node in reversed(graph.nodes) if node.target is aten.sigmoid.default]
    return graph, [node for node in nodes if not node.users][:EDITS]


def _pairs(graph: Any) -> tuple[Any, list[Any]]:
    """Calls that have users, each with its first operand: what a removed no-op leaves to do."""
    nodes = [n for n in graph.nodes if n.op == "call_function" and n.users and n.all_input_nodes]
    return graph, [(node, node.all_input_nodes[0]) for node in nodes[:EDITS]]


def _calls(graph: Any) -> tuple[Any, list[Any]]:
    return graph, [node for node in graph.nodes if node.op == "call_function"][:EDITS]


def _insertions(graph: Any) -> tuple[Any, list[Any]]:
    found = _calls(graph)[1]
    places = [
        (node, False, "call_function", torch.relu, (node,), None, None, None) for node in found
    ]
    return graph, places


def edits(source: Source) -> Iterator[Case]:
    """Edits of a live torch graph: one call for all of them, against torch's call for each."""
    with_dead = source.variant(
        lambda graph: synthetic.plant_dead(graph, min(0.5, 1.1 * EDITS / len(graph.nodes)))
    )
    jobs: list[tuple[str, float, Source, Any, Any, Any, Any]] = [
        ("erase", 5, with_dead, _erase_one_by_one, _core.fx_erase, _dead, _dead),
        (
            "replace all uses of",
            2.5,
            source,
            _replace_one_by_one,
            _core.fx_replace_all_uses,
            _pairs,
            _pairs,
        ),
        ("insert", 10, source, _insert_one_by_one, _core.fx_insert, _calls, _insertions),
    ]
    for verb, target, origin, one_by_one, bulk, find, find_for_bulk in jobs:
        count = len(find(origin.torch)[1])
        title = f"{verb} {count:,} nodes"

        def check(
            origin: Source = origin,
            one_by_one: Any = one_by_one,
            bulk: Any = bulk,
            find: Any = find,
            find_for_bulk: Any = find_for_bulk,
        ) -> None:
            expected, ours, native = origin.fresh(), origin.fresh(), origin.fresh_native()
            one_by_one(find(expected))
            bulk(*find_for_bulk(ours))
            one_by_one(find(native))
            same(expected, ours, native)

        yield Case(
            title,
            origin.title,
            origin.nodes,
            {
                "torch": Job(one_by_one, _fresh(origin.fresh, find)),
                "in place": Job(_applied(bulk), _fresh(origin.fresh, find_for_bulk)),
                "native": Job(one_by_one, _fresh(origin.fresh_native, find)),
            },
            [
                Row(title, "in place", "in place", target=_target(source, target)),
                Row(f"{title}, one call each", "native", "native"),
            ],
            check,
            per=count,
        )


def _fresh(make: Callable[[], Any], find: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: find(make())


def _applied(bulk: Callable[..., object]) -> Callable[[Any], object]:
    return lambda given: bulk(*given)


def reading(source: Source) -> Iterator[Case]:
    graph, native = source.torch, source.fresh_native()
    handles = list(native.nodes)

    def check() -> None:
        if _read_all(graph) != _read_all(native) or len(handles) != len(graph.nodes):
            raise Different("the nodes read differently")

    yield Case(
        "read",
        source.title,
        source.nodes,
        {
            "torch": Job(lambda _: _read_all(graph)),
            "native": Job(lambda _: _read_all(native)),
        },
        [Row("walk, reading op, target, args, users", "native", "native")],
        check,
    )

    def find(some: Any) -> Any:
        return some.find_nodes(op="call_function", target=aten.mul.Tensor)

    def check_found() -> None:
        if [node.name for node in find(graph)] != [node.name for node in find(native)]:
            raise Different("find_nodes differs")

    yield Case(
        "find_nodes",
        source.title,
        source.nodes,
        {"torch": Job(lambda _: find(graph)), "native": Job(lambda _: find(native))},
        [Row("find_nodes of one function", "native", "native")],
        check_found,
    )


def all_cases(source: Source) -> Iterator[Case]:
    for group in (passes, conversions, edits, building, reading):
        yield from group(source)


# ---- growth: fastexport alone, the same jobs at two sizes ----------------------------------------


def growth_jobs(nodes: int) -> tuple[int, dict[str, Job]]:
    """Native jobs on the synthetic graph, and how many nodes it has."""
    whole = synthetic.build(fastexport.Graph(), nodes)
    clean = copy.copy(whole)
    clean.eliminate_dead_code()
    return len(whole.nodes), {
        "build": Job(lambda graph: synthetic.build(graph, nodes), fastexport.Graph),
        "eliminate_dead_code, 10 % dead": Job(dead_code, lambda: copy.copy(whole)),
        "eliminate_dead_code, nothing dead": Job(lambda _: dead_code(clean)),
        "lint": Job(lambda _: whole.lint()),
        "eliminate_getitems": Job(getitems, lambda: copy.copy(whole)),
        "str(graph)": Job(lambda _: str(whole)),
        "copy": Job(lambda _: copy.copy(whole)),
    }


# ---- memory --------------------------------------------------------------------------------------


def traced_bytes(make: Callable[[], object]) -> int:
    """What Python's allocators have given out for what a function makes."""
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del made
    return size


def memory(source: Source) -> Iterator[tuple[str, float, float]]:
    """Bytes a node without payload: how measured, torch's, fastexport's."""
    bare = without_payload(source.torch)
    count = len(bare.nodes)
    native = fastexport.from_fx(bare)
    yield (
        "counted by the allocators",
        traced_bytes(lambda: copy.deepcopy(bare)) / count,
        native.nbytes / count,
    )
    if count >= 50_000:  # below, what the process has in reserve hides it
        yield (
            "growth of the process",
            resident_growth(lambda: copy.deepcopy(bare)) / count,
            resident_growth(lambda: copy.copy(native)) / count,
        )
