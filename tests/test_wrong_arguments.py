"""Wrong arguments of public functions: the message is about the argument, not about what stumbled over it inside."""

import io
import operator
import re

import pytest

import fastexport
from fastexport import Graph, GraphModule
from pt2_files import sample

# Of these, what is said by the language about a value, and not by us about an argument.
INNER = re.compile(
    r"has no attribute|not supported between|cannot unpack|values to unpack|is not iterable|not subscriptable"
    r"|argument after \*|has no len|required positional|sequence element|memoryview:"
)
WRONG = (None, 1, "x", [1], (1, 2), b"x", object(), {"a": 1})
GRAPHS = (
    "draw", "eliminate_common_subexpressions", "eliminate_dead_code", "eliminate_getitems", "fold_constants", "inline",
    "lint", "propagate_shapes", "refresh_fake_tensors", "remove_noops", "report", "sort_topologically", "stats",
    "summary", "trim_interfaces",
)  # fmt: skip
WITH_MORE = {
    "erase_nodes": [],
    "find_sequential_partitions": [operator.neg],
    "fuse": [[1]],
    "get_source_partitions": [],
    "insert_nodes": [],
    "outline": [1],
    "replace_all_uses": [],
    "run_passes": ["lint"],
}


def graph():
    g = Graph()
    x = g.placeholder("x")
    g.output(g.call_function(operator.neg, (x,)))
    return g


def program():
    return fastexport.load(io.BytesIO(sample("linear")))


@pytest.mark.parametrize("name", [*GRAPHS, *WITH_MORE])
@pytest.mark.parametrize("wrong", [None, 1, (1, 2), object()], ids=["None", "1", "tuple", "object"])
def test_what_is_no_graph(name, wrong):
    more = [WITH_MORE[name]] if name in WITH_MORE else []
    kind = type(wrong).__name__
    with pytest.raises(TypeError, match=rf"^{name}\(\) takes a fastexport or torch graph, module or .*, not {kind}$"):
        getattr(fastexport, name)(wrong, *more)


def test_a_path_where_only_graphs_are_taken():
    with pytest.raises(TypeError, match=r"^lint\(\) takes .*, not str; open files with load\(\)$"):
        fastexport.lint("m.pt2")


OPTIONS = {
    "draw.module": lambda wrong: fastexport.draw(graph(), module=wrong),
    "draw.depth": lambda wrong: fastexport.draw(graph(), depth=wrong),
    "draw.max_items": lambda wrong: fastexport.draw(graph(), max_items=wrong),
    "draw.timeout": lambda wrong: fastexport.draw(graph(), timeout=wrong),
    "report.findings": lambda wrong: fastexport.report(graph(), findings=wrong),
    "report.names": lambda wrong: fastexport.report(graph(), names=wrong),
    "report.other": lambda wrong: fastexport.report(graph(), wrong),
    "summary.depth": lambda wrong: fastexport.summary(graph(), depth=wrong),
    "to_json": lambda wrong: fastexport.model_explorer.to_json(wrong),
    "node_data": lambda wrong: fastexport.model_explorer.node_data(wrong),
    "node_data.findings": lambda wrong: fastexport.model_explorer.node_data(graph(), findings=wrong),
    "diff.b": lambda wrong: fastexport.diff(graph(), wrong),
    "diff.meta": lambda wrong: fastexport.diff(graph(), graph(), meta=wrong),
    "erase_nodes": lambda wrong: fastexport.erase_nodes(graph(), wrong),
    "erase_nodes.one": lambda wrong: fastexport.erase_nodes(graph(), [wrong]),
    "replace_all_uses": lambda wrong: fastexport.replace_all_uses(graph(), wrong),
    "replace_all_uses.pair": lambda wrong: fastexport.replace_all_uses(graph(), [wrong]),
    "insert_nodes": lambda wrong: fastexport.insert_nodes(graph(), wrong),
    "insert_nodes.one": lambda wrong: fastexport.insert_nodes(graph(), [wrong]),
    "outline.nodes": lambda wrong: fastexport.outline(graph(), wrong),
    "fuse.partitions": lambda wrong: fastexport.fuse(graph(), wrong),
    "sources": lambda wrong: fastexport.get_source_partitions(graph(), wrong),
    "sequential": lambda wrong: fastexport.find_sequential_partitions(graph(), wrong),
    "connected": lambda wrong: fastexport.check_subgraphs_connected(wrong, graph()),
    "match_inputs.in_spec": lambda wrong: fastexport.match_inputs(wrong, ()),
    "match_inputs.args": lambda wrong: fastexport.match_inputs(fastexport.tree_structure(((1,), {})), wrong),
    "match_inputs.kwargs": lambda wrong: fastexport.match_inputs(fastexport.tree_structure(((1,), {})), (1,), wrong),
    "replace_pattern": lambda wrong: fastexport.replace_pattern(graph(), wrong, operator.neg),
    "loads": lambda wrong: fastexport.loads(wrong),
    "open_weights.limits": lambda wrong: fastexport.open_weights(io.BytesIO(sample("linear")), limits=wrong),
    "lift_constants": lambda wrong: program().lift_constants(wrong),
    "unlift_constants": lambda wrong: program().unlift_constants(wrong),
    "remove_output": lambda wrong: program().remove_output(wrong),
    "run_decompositions": lambda wrong: program().run_decompositions(wrong),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_values_are_told_by_the_argument(name):
    refused = 0
    for wrong in WRONG:
        if name == "run_decompositions" and (wrong is None or isinstance(wrong, dict)):
            continue  # as it may be: torch would be imported
        try:
            OPTIONS[name](wrong)
        except (TypeError, ValueError, KeyError, FileNotFoundError, fastexport.FastExportError) as error:
            refused += 1
            assert not INNER.search(str(error)), f"{wrong!r}: {error}"
    assert refused


def test_what_is_taken_still_is():
    """Whole numbers of other kinds, iterators, sequences of the old kind."""

    class Three:
        def __index__(self):
            return 3

    class Old:
        def __getitem__(self, index):
            return [][index]

    g = graph()
    assert fastexport.draw(g, depth=Three(), max_items=Three(), timeout=float("inf"))
    fastexport.erase_nodes(g, iter(()))
    fastexport.erase_nodes(g, Old())
    assert fastexport.report(g, names=("a",), findings=iter(()))
    assert fastexport.lint(GraphModule({}, g)) == []
    x, neg, out = g.nodes
    assert [str(n) for n in fastexport.insert_nodes(g, [(out, operator.pos, (x,)), [neg, operator.pos]])]
