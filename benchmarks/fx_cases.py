"""What ./run bench fx times: each job by torch.fx and by fastexport, on equal graphs.

A case is one job of torch's and the jobs of ours that it is the baseline of. Before anything is timed its check has
made sure that all of them come to the same result. Graphs are made when first asked for.
"""

import operator
import random
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.passes.dialect.common.cse_pass import CSEPass
from torch.fx.passes.tools_common import legalize_graph, stable_topological_sort
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

import fastexport
import synthetic
from cases import Source, deepcopy
from exported import Kind, same
from measure import Job
from program_cases import Case

aten = torch.ops.aten

CODE = "python_code"
VERBOSE = "python_code, verbose"
REPLACE = "replace_pattern, add to sub"
MATCH = "SubgraphMatcher.match, add"
CSE = "eliminate_common_subexpressions"
TRACE = "symbolic_trace"
TRACE_CODE = "symbolic_trace + code"
SORT = "sort_topologically"
LEGALIZE = "sort_topologically, stable=False"
PARTITIONS = "find_sequential_partitions"
IN_PLACE, OF_TORCHS = ", in place", ", of torch's graph"

IDLE = (
    "eliminate_common_subexpressions",
    "eliminate_dead_code",
    "eliminate_getitems",
    "fold_constants",
    "remove_noops",
    "sort_topologically",
)

MOVED = 0.1  # this share of the nodes is out of order before a sort
SEQUENCE = ["conv2d", "batch_norm", "relu"]


def held(source: Source) -> torch.fx.GraphModule:
    """A GraphModule of torch's over a copy of the graph; what its nodes refer to is shared."""
    return torch.fx.GraphModule(source.stock.owning_module or torch.nn.Module(), source.fresh())


def names(nodes: Any) -> list[str]:
    return [node.name for node in nodes]


def same_graphs(what: str, expected: Any, *found: Any) -> None:
    """Raise unless graphs, of either kind, have the same nodes in everything but meta and the order of users."""
    for graph in found:
        same(what, str(expected), str(graph))
        same(f"{what}, arguments", *([row[:6] for row in synthetic.describe(one)] for one in (expected, graph)))


# ---- graphs --------------------------------------------------------------------------------------


def binary(graph: Any, function: Any) -> Any:
    """A pattern of one call with two inputs, in an empty graph."""
    graph.output(graph.call_function(function, (graph.placeholder("x"), graph.placeholder("y"))))
    return graph


def exported(kind: Kind) -> Source:
    """A program of the zoo as a module, without what is dead in it."""

    def make() -> torch.fx.Graph:
        module = kind.export().module()
        module.graph.eliminate_dead_code()
        return deepcopy(module.graph)

    return Source(kind.title, make)


def add_relu_chain(nodes: int) -> Source:
    """Sums and activations, each of the one before."""

    def make() -> torch.fx.Graph:
        graph = torch.fx.Graph()
        value, other = graph.placeholder("x"), graph.placeholder("y")
        for _ in range(nodes // 2):
            value = graph.call_function(aten.relu.default, (graph.call_function(aten.add.Tensor, (value, other)),))
        graph.output(value)
        return graph

    return Source(f"add-relu chain, {nodes:,} nodes", make)


def disorder(graph: Any) -> None:
    """Move some nodes before their operands, to places picked at random."""
    rng = random.Random(0)
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    for node in rng.sample(nodes, round(MOVED * len(nodes))):
        rng.choice(nodes).prepend(node)


def repeat(graph: torch.fx.Graph) -> None:
    """Let one of ten calls be made again, for the readers of the first."""
    calls = [node for node in graph.nodes if node.op == "call_function" and node.users]
    for node in calls[::10]:
        with graph.inserting_after(node):
            again = graph.call_function(node.target, node.args, node.kwargs)
        again.meta = dict(node.meta)
        for user in list(node.users)[1::2] or list(node.users):
            user.replace_input_with(node, again)


# ---- text ----------------------------------------------------------------------------------------


def coding(source: Source) -> Case:
    def code(graph: Any) -> str:
        return str(graph.python_code("self").src)

    return Case(
        Job(code, lambda: source.stock),
        {CODE: Job(code, lambda: source.native)},
        lambda: same("code", code(source.stock), code(source.native)),
    )


def coding_verbose(source: Source) -> Case:
    def code(graph: Any) -> str:
        return str(graph.python_code("self", verbose=True, include_stride=True, include_device=True).src)

    return Case(
        Job(code, lambda: source.stock),
        {VERBOSE: Job(code, lambda: source.native)},
        lambda: same("verbose code", code(source.stock), code(source.native)),
    )


# ---- patterns ------------------------------------------------------------------------------------


def replacing(source: Source) -> Case:
    pattern, replacement = (binary(torch.fx.Graph(), f) for f in (aten.add.Tensor, aten.sub.Tensor))
    our_pattern, our_replacement = fastexport.from_fx(pattern), fastexport.from_fx(replacement)

    def theirs(module: torch.fx.GraphModule) -> Any:
        return torch.fx.subgraph_rewriter.replace_pattern(module, pattern, replacement)

    def ours(given: Any) -> Any:
        return fastexport.replace_pattern(given, our_pattern, our_replacement)

    def check() -> None:
        expected, found, in_place = held(source), source.fresh_native(), held(source)
        counts = len(theirs(expected)), len(ours(found)), len(ours(in_place))
        same("replacements", (counts[0],) * 3, counts)
        same_graphs("the graph after replace_pattern", expected.graph, found, in_place.graph)
        same("code in place", expected.code, in_place.code)
        if not counts[0]:
            raise RuntimeError("not timed, for there is nothing to replace")

    return Case(
        Job(theirs, lambda: held(source), True),
        {REPLACE: Job(ours, source.fresh_native, True), REPLACE + IN_PLACE: Job(ours, lambda: held(source), True)},
        check,
    )


def matching(source: Source) -> Case:
    pattern = binary(torch.fx.Graph(), aten.add.Tensor)
    theirs = SubgraphMatcher(pattern).match
    ours = fastexport.SubgraphMatcher(fastexport.from_fx(pattern)).match

    def told(matches: Any) -> Any:
        """By names; an input of the pattern may stand for a literal."""
        return [(names(m.anchors), {p.name: str(g) for p, g in m.nodes_map.items()}) for m in matches]

    def check() -> None:
        same("matches", told(theirs(source.stock)), told(ours(source.native)))

    return Case(Job(theirs, lambda: source.stock), {MATCH: Job(ours, lambda: source.native)}, check)


# ---- passes --------------------------------------------------------------------------------------


def common_subexpressions(origin: Source) -> Case:
    source = origin.variant(repeat)

    def theirs(module: torch.fx.GraphModule) -> Any:
        return CSEPass()(module).graph_module

    def ours(given: Any) -> Any:
        return fastexport.eliminate_common_subexpressions(given)

    def check() -> None:
        expected, found = theirs(held(source)), source.fresh_native()
        fastexport.eliminate_common_subexpressions(found, policy="torch")
        same_graphs("the graph without repetitions", expected.graph, found)
        found, in_place = source.fresh_native(), held(source)
        if not ours(found).modified or not ours(in_place).modified:
            raise RuntimeError("not timed, for there is nothing to merge")
        same_graphs("the graph without repetitions, in place", found, in_place.graph)

    return Case(
        Job(theirs, lambda: held(source), True),
        {CSE: Job(ours, source.fresh_native, True), CSE + IN_PLACE: Job(ours, lambda: held(source), True)},
        check,
    )


def sorting(source: Source, by: str) -> Case:
    stable = by == SORT
    theirs = stable_topological_sort if stable else legalize_graph

    def disordered_module() -> torch.fx.GraphModule:
        module = held(source)
        disorder(module.graph)
        return module

    def disordered() -> fastexport.Graph:
        graph = source.fresh_native()
        disorder(graph)
        return graph

    def ours(given: Any) -> Any:
        return fastexport.sort_topologically(given, stable=stable)

    def check() -> None:
        expected, found = theirs(disordered_module()), disordered()
        fastexport.sort_topologically(found, stable=stable, policy="torch")
        same("the order", names(expected.graph.nodes), names(found.nodes))
        found, in_place = disordered(), disordered_module()
        if not ours(found).modified or not ours(in_place).modified:
            raise RuntimeError("not timed, for there is nothing to sort")
        fastexport.lint(found)
        same("the order in place", names(found.nodes), names(in_place.graph.nodes))
        same("the nodes", sorted(names(expected.graph.nodes)), sorted(names(found.nodes)))

    return Case(
        Job(theirs, disordered_module, True),
        {by: Job(ours, disordered, True), by + IN_PLACE: Job(ours, disordered_module, True)},
        check,
    )


def partitioning(source: Source) -> Case:
    from torchao.quantization.pt2e.graph_utils import find_sequential_partitions

    module, native = held(source), source.native

    def theirs(module: Any) -> Any:
        return find_sequential_partitions(module, SEQUENCE)

    def ours(given: Any) -> Any:
        return fastexport.find_sequential_partitions(given, SEQUENCE)

    def told(found: Any) -> Any:
        return [[(names(p.nodes), names(p.input_nodes), names(p.output_nodes)) for p in parts] for parts in found]

    def check() -> None:
        expected = told(theirs(module))
        same("sequences of partitions", expected, told(ours(native)))
        same("sequences of partitions of torch's graph", expected, told(ours(module)))

    return Case(
        Job(theirs, lambda: module),
        {PARTITIONS: Job(ours, lambda: native), PARTITIONS + OF_TORCHS: Job(ours, lambda: module)},
        check,
    )


# ---- tracing -------------------------------------------------------------------------------------


class Steps(torch.nn.Module):
    """A module whose forward makes so many nodes: operators, functions, methods, attributes, layers."""

    def __init__(self, nodes: int):
        super().__init__()
        self.steps = nodes // 10
        self.layer = torch.nn.Linear(4, 4)
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(self.steps):
            x = torch.clamp(torch.relu(x + y), max=2.0) * 0.5
            x = self.layer(x) - self.scale
            x = torch.nn.functional.gelu(x, approximate="tanh").view(x.size(0), -1).contiguous()
        return x


class Traced(Source):
    """What comes of tracing a module, which is `root`."""

    def __init__(self, nodes: int):
        self.root = Steps(nodes)
        super().__init__(f"module of {nodes:,} operations", lambda: torch.fx.symbolic_trace(self.root).graph)


def tracing(source: Traced) -> Case:
    def ours(root: torch.nn.Module) -> Any:
        return fastexport.symbolic_trace(root)

    def ours_with_code(root: torch.nn.Module) -> Any:
        return ours(root).code

    def check() -> None:
        expected, found = torch.fx.symbolic_trace(source.root), ours(source.root)
        same_graphs("the trace", expected.graph, found.graph)
        same("code of the trace", expected.code, found.code)

    def root() -> torch.nn.Module:
        return source.root

    return Case(
        Job(torch.fx.symbolic_trace, root),
        {TRACE: Job(ours, root), TRACE_CODE: Job(ours_with_code, root)},
        check,
    )


# ---- fastexport alone ----------------------------------------------------------------------------


def nothing_to_do() -> dict[str, Callable[[Any], Any]]:
    """Passes, and searches for a pattern that is nowhere, as functions of a graph."""
    pattern = binary(fastexport.Graph(), operator.matmul)
    runs: dict[str, Callable[[Any], Any]] = {
        "replace_pattern": lambda graph: fastexport.replace_pattern(graph, pattern, pattern),
        "SubgraphMatcher.match": fastexport.SubgraphMatcher(pattern).match,
    }
    return runs | {name: getattr(fastexport, name) for name in IDLE}


def idle(source: Source, name: str, run: Callable[[Any], Any]) -> Job:
    """A pass on a graph in which it has already done what there is to do."""
    graph = source.fresh_native()
    run(graph)
    again = run(graph)
    if getattr(again, "modified", again):
        raise RuntimeError(f"not timed, for {name} found something to do")
    return Job(run, lambda: graph)


def diffing(source: Source) -> Job:
    """A graph beside a copy in which one of twenty calls is of another function or has another name."""
    edited = source.fresh_native()
    for i, node in enumerate([node for node in edited.nodes if node.op == "call_function"][::20]):
        if i % 2:
            node.target = operator.matmul
        else:
            node.name = f"renamed_{i}"
    if not fastexport.diff(source.native, edited):
        raise RuntimeError("not timed, for no difference is seen")
    return Job(lambda graphs: fastexport.diff(*graphs), lambda: (source.native, edited))
