"""What the benchmarks time: each job by torch and by fastexport, on the same graph.

A case lists jobs that are timed in turn and the rows of the table they give. Before anything is
timed its check has made sure that all of them come to the same result.
"""

import copy
import gc
import operator
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch.fx import Graph as TorchGraph

import fastexport
import synthetic
import torch_passes
import zoo
from measure import Job, collector_off, resident_growth

aten = torch.ops.aten

EDITS = 1000  # nodes that the rows about edits erase, replace or insert; 100 of a small graph
POLICY = "torch"  # what is compared must do the same


@dataclass(frozen=True)
class Row:
    """A line of the table: the time of one job beside another's."""

    job: str
    door: str
    fast: str
    slow: str = "torch"
    target: float | None = None  # how many times faster it should be


def deepcopy(graph: TorchGraph) -> TorchGraph:
    """A copy that has the same owner. Users come in the order in which deepcopy meets them."""
    new = copy.deepcopy(graph)
    new.owning_module = graph.owning_module
    return new


class Source:
    """A graph to measure on, torch's and fastexport's; both are made when first asked for."""

    def __init__(self, title: str, make: Callable[[], TorchGraph], has_targets: bool = False):
        self.title, self.make, self.has_targets = title, make, has_targets

    @cached_property
    def stock(self) -> TorchGraph:
        return self.make()

    @cached_property
    def native(self) -> fastexport.Graph:
        return fastexport.from_fx(self.stock)

    @property
    def nodes(self) -> int:
        return len(self.stock.nodes)

    def fresh(self) -> TorchGraph:
        return deepcopy(self.stock)

    def fresh_held(self) -> torch.fx.GraphModule:
        return torch_passes.bare_module(self.fresh())

    def fresh_native(self) -> fastexport.Graph:
        graph = copy.copy(self.native)
        graph.owning_module = self.stock.owning_module
        return graph

    def variant(self, change: Callable[[TorchGraph], object]) -> "Source":
        """The same graph with something planted in it."""

        def make() -> TorchGraph:
            graph = self.fresh()
            change(graph)
            return deepcopy(graph)

        return Source(self.title, make, self.has_targets)


@dataclass(frozen=True)
class Case:
    title: str
    source: Source
    jobs: dict[str, Job]
    rows: list[Row]
    check: Callable[[], None]


def synthetic_source(nodes: int, has_targets: bool) -> Source:
    def make() -> TorchGraph:
        graph = synthetic.build(TorchGraph(), nodes, dead=0)
        graph.eliminate_dead_code()
        return graph

    return Source(f"synthetic, {nodes:,} nodes", make, has_targets)


def llama_source(layers: int) -> Source:
    """A Llama as PT2E gets it, without what is dead in it. It is exported here and now."""
    module = zoo.export("llama", layers).module()
    module.graph.eliminate_dead_code()
    return Source(f"Llama of {layers} layers, exported", lambda: deepcopy(module.graph))


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
    targets: tuple[float, float],
    python: Callable[[Any], object] | None = None,
    stock_fresh: Callable[[], Any] | None = None,
    changes: bool = True,
) -> Case:
    """A pass by torch, in place on torch's graph, and natively."""
    stock_fresh = stock_fresh or source.fresh
    kept = (lambda make: make) if changes else cache  # what nothing changes is made once
    jobs = {
        "torch": Job(stock, kept(stock_fresh), changes),
        "in place": Job(ours, kept(source.fresh), changes),
        "native": Job(ours, kept(source.fresh_native), changes),
    }
    rows = [
        Row(job, "in place", "in place", target=_target(source, targets[0])),
        Row(job, "native", "native", target=_target(source, targets[1])),
    ]
    if python:
        jobs["python"] = Job(python, kept(source.fresh), changes)
        rows.append(Row(f"{job} (better Python)", "in place", "in place", "python"))

    def check() -> None:
        expected = done(stock_fresh(), stock)
        same(expected, done(source.fresh(), ours), done(source.fresh_native(), ours))
        if python:
            same(expected, done(source.fresh(), python))
        if changes == (len(expected.nodes) == source.nodes):
            raise Different(f"{job}: the pass found something else to do than was planted")

    return Case(job, source, jobs, rows, check)


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
        "torch": Job(torch_passes.chain, source.fresh_held, True),
        "run_passes": Job(chain, source.fresh, True),
        "native": Job(chain, source.fresh_native, True),
    }
    rows = [Row(job, "run_passes", "run_passes"), Row(job, "native", "native")]

    def check() -> None:
        expected = done(source.fresh_held(), torch_passes.chain)
        same(expected, done(source.fresh(), chain), done(source.fresh_native(), chain))

    return Case(job, source, jobs, rows, check)


# ---- conversion, building, text ------------------------------------------------------------------


def conversions(source: Source) -> Iterator[Case]:

    def graph() -> TorchGraph:
        return source.stock

    def graph_copy(graph: TorchGraph) -> TorchGraph:
        new = TorchGraph()
        new.graph_copy(graph, {})
        return new

    yield Case(
        "from_fx",
        source,
        {"torch": Job(graph_copy, graph), "from_fx": Job(fastexport.from_fx, graph)},
        [Row("from_fx (graph_copy)", "convert", "from_fx", target=_target(source, 40))],
        lambda: same(graph(), fastexport.from_fx(graph())),
    )

    def there_and_back(graph: TorchGraph) -> TorchGraph:
        return fastexport.from_fx(graph).to_fx()

    def deepcopy_without_collector(graph: TorchGraph) -> TorchGraph:
        with collector_off():
            return copy.deepcopy(graph)

    yield Case(
        "from_fx and to_fx",
        source,
        {
            "torch": Job(copy.deepcopy, graph),
            "both": Job(there_and_back, graph),
            "python": Job(deepcopy_without_collector, graph),
        },
        [
            Row("from_fx + to_fx (deepcopy)", "convert", "both", target=_target(source, 10)),
            Row("from_fx + to_fx (deepcopy, collector off)", "convert", "both", "python"),
        ],
        lambda: same(graph(), there_and_back(graph())),
    )
    native = cache(source.fresh_native)
    yield Case(
        "deepcopy",
        source,
        {
            "torch": Job(copy.deepcopy, graph),
            "native": Job(copy.deepcopy, native),
        },
        [Row("deepcopy(graph)", "native", "native")],
        lambda: same(native(), copy.deepcopy(native())),
    )


def building(source: Source) -> Iterator[Case]:
    build = cache(lambda: synthetic.builder_of(source.stock))
    yield Case(
        "build",
        source,
        {
            "torch": Job(lambda new: build()(new), TorchGraph, True),
            "native": Job(lambda new: build()(new), fastexport.Graph, True),
        },
        [Row("build through call_function", "native", "native", target=_target(source, 20))],
        lambda: same(build()(TorchGraph()), build()(fastexport.Graph())),
    )
    yield Case(
        "str",
        source,
        {"torch": Job(str, lambda: source.stock), "native": Job(str, lambda: source.native)},
        [Row("str(graph)", "native", "native", target=_target(source, 15))],
        lambda: same(source.stock, source.native),
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


def _dead(graph: Any, count: int) -> tuple[Any, list[Any]]:
    nodes = [node for node in reversed(graph.nodes) if node.target is aten.sigmoid.default]
    return graph, [node for node in nodes if not node.users][:count]


def _copies(graph: Any, count: int) -> tuple[Any, list[Any]]:
    """Each clone with what it is a clone of."""
    clones = [node for node in graph.nodes if node.target is aten.clone.default]
    return graph, [(node, node.args[0]) for node in clones[-count:]]


def _calls(graph: Any, count: int) -> tuple[Any, list[Any]]:
    return graph, [node for node in graph.nodes if node.op == "call_function"][:count]


def _insertions(graph: Any, count: int) -> tuple[Any, list[Any]]:
    nodes = _calls(graph, count)[1]
    return graph, [fastexport.Insertion(node, torch.relu, (node,), before=False) for node in nodes]


def edits(source: Source, count: int) -> Iterator[Case]:
    """Edits of a live torch graph: one call for all of them, against torch's call for each."""
    dead = source.variant(lambda graph: synthetic.plant_dead(graph, 1.2 * count / source.nodes))
    yield edit_case(dead, "erase", count, 5, _erase_one_by_one, fastexport.erase_nodes, _dead, _dead)
    copies = source.variant(lambda graph: synthetic.plant_copies(graph, count))
    yield edit_case(
        copies,
        "replace all uses of",
        count,
        2.5,
        _replace_one_by_one,
        fastexport.replace_all_uses,
        _copies,
        _copies,
    )
    yield edit_case(source, "insert", count, 10, _insert_one_by_one, fastexport.insert_nodes, _calls, _insertions)


def edit_case(
    source: Source,
    verb: str,
    count: int,
    target: float,
    one_by_one: Callable[[Any], object],
    bulk: Callable[[Any, Any], object],
    find: Callable[[Any, int], Any],
    find_for_bulk: Callable[[Any, int], Any],
) -> Case:
    title = f"{verb} {count:,} nodes"

    def all_at_once(given: tuple[Any, Any]) -> object:
        return bulk(*given)

    def check() -> None:
        expected, ours, native = source.fresh(), source.fresh(), source.fresh_native()
        found = find(expected, count)
        if len(found[1]) != count:
            raise Different(f"{title}: there are only {len(found[1])} to edit")
        one_by_one(found)
        all_at_once(find_for_bulk(ours, count))
        one_by_one(find(native, count))
        same(expected, ours, native)

    return Case(
        title,
        source,
        {
            "torch": Job(one_by_one, lambda: find(source.fresh(), count), True),
            "in place": Job(all_at_once, lambda: find_for_bulk(source.fresh(), count), True),
            "native": Job(one_by_one, lambda: find(source.fresh_native(), count), True),
        },
        [
            Row(f"{title}, one call", "in place", "in place", target=_target(source, target)),
            Row(f"{title}, a call each", "native", "native"),
        ],
        check,
    )


def reading(source: Source) -> Iterator[Case]:
    @cache
    def native() -> tuple[fastexport.Graph, list[Any]]:
        graph = source.fresh_native()
        return graph, list(graph.nodes)  # a Node that someone holds is not made again

    def check() -> None:
        if _read_all(source.stock) != _read_all(native()[0]):
            raise Different("the nodes read differently")

    yield Case(
        "read",
        source,
        {
            "torch": Job(_read_all, lambda: source.stock),
            "native": Job(_read_all, lambda: native()[0]),
        },
        [Row("walk, reading op, target, args, users", "native", "native")],
        check,
    )

    def find(graph: Any) -> list[Any]:
        return graph.find_nodes(op="call_function", target=aten.mul.Tensor)

    def check_found() -> None:
        theirs, ours = find(source.stock), find(source.native)
        if [node.name for node in theirs] != [node.name for node in ours]:
            raise Different("find_nodes differs")

    yield Case(
        "find_nodes",
        source,
        {"torch": Job(find, lambda: source.stock), "native": Job(find, lambda: source.native)},
        [Row("find_nodes of one function", "native", "native")],
        check_found,
    )


def all_cases(source: Source, edited: int = EDITS) -> Iterator[Case]:
    yield from passes(source)
    yield from conversions(source)
    yield from edits(source, edited)
    yield from building(source)
    yield from reading(source)


# ---- growth: fastexport alone, the same jobs at two sizes ----------------------------------------


@cache
def _grown(nodes: int, dead: float) -> fastexport.Graph:
    graph = synthetic.build(fastexport.Graph(), nodes, dead=dead)
    if not dead:
        graph.eliminate_dead_code()
    return graph


def _growing(
    run: Callable[[Any], object], *, dead: float = 0.1, changes: bool = False
) -> Callable[[int], tuple[int, Job]]:
    def job(nodes: int) -> tuple[int, Job]:
        graph = _grown(nodes, dead)
        return len(graph.nodes), Job(run, lambda: copy.copy(graph) if changes else graph, changes)

    return job


GROWING: dict[str, Callable[[int], tuple[int, Job]]] = {
    "build": lambda nodes: (
        nodes,
        Job(lambda graph: synthetic.build(graph, nodes), fastexport.Graph, True),
    ),
    "eliminate_dead_code, 20 % dead": _growing(dead_code, dead=0.2, changes=True),
    "eliminate_dead_code, nothing dead": _growing(dead_code, dead=0),
    "lint": _growing(fastexport.lint),
    "eliminate_getitems": _growing(getitems, changes=True),
    "str(graph)": _growing(str),
    "copy": _growing(copy.copy),
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
    bare = without_payload(source.stock)
    count = len(bare.nodes)
    native = fastexport.from_fx(bare)
    yield (
        "counted",
        traced_bytes(lambda: copy.deepcopy(bare)) / count,
        native.nbytes / count,
    )
    if count >= 50_000:  # below, what the process has in reserve hides it
        yield (
            "resident",
            resident_growth(lambda: copy.deepcopy(bare)) / count,
            resident_growth(lambda: copy.copy(native)) / count,
        )
