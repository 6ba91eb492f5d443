"""Sizes as nodes: what torch.fx's create_size_node and materialize_symints make of the same graph."""

import operator

import pytest
import torch

import fastexport
from fastexport import Graph, TensorMeta, from_fx


class Net(torch.nn.Module):
    def forward(self, x, y):
        return x.reshape(-1, 2) + y.sum(), x.shape[0] * 2 + y.shape[0]


@pytest.fixture(scope="module")
def program():
    rows, columns = torch.export.Dim("rows", min=2, max=64), torch.export.Dim("columns", min=2, max=64)
    shapes = {"x": {0: rows}, "y": {0: columns}}
    return torch.export.export(Net(), (torch.ones(4, 6), torch.ones(6, 3)), dynamic_shapes=shapes)


def in_both(program, do):
    """What a function makes of the torch graph and of ours, as text and as values in meta."""
    ours = from_fx(program.graph)
    results = []
    for graph in (ours.to_fx(), ours):
        with graph.inserting_before(graph.output_node()):
            made = do(graph, {node.name: node for node in graph.nodes})
        results.append((str(made), str(graph), [str(node.meta.get("val")) for node in graph.nodes]))
    assert results[1] == results[0]
    return results[1]


def test_queries(program):
    in_both(program, lambda graph, nodes: graph.create_size_node(nodes["x"], 0))
    in_both(program, lambda graph, nodes: graph.create_stride_node(nodes["x"], 0))
    in_both(program, lambda graph, nodes: graph.create_storage_offset_node(nodes["x"]))


def test_expressions(program):
    rows = next(iter(program.graph.nodes)).meta["val"].shape[0]
    columns = list(program.graph.nodes)[1].meta["val"].shape[0]
    # Of an expression of two symbols torch asks for either first, as its set has them; here they are there already.
    both = [rows, columns, rows * columns, rows * columns + rows]
    for values in ([rows], [rows * 2 + 1, 3], both, [True, rows // 2, rows % 3]):
        in_both(program, lambda graph, nodes, values=values: graph.materialize_symints(values))
    in_both(program, lambda graph, nodes: graph.materialize_symint(columns * 2 + 1))


def test_a_multiple_tells_the_symbol():
    rows = torch.export.Dim("rows", min=2, max=64)
    twice = torch.export.export(torch.nn.Flatten(0), (torch.ones(8, 3),), dynamic_shapes={"input": {0: 2 * rows}})
    size = next(iter(twice.graph.nodes)).meta["val"].shape[0]
    ours = in_both(twice, lambda graph, nodes: graph.materialize_symint(size + 1))
    assert "floordiv" in ours[1]


def test_bad_values(program):
    graph = from_fx(program.graph)
    with pytest.raises(TypeError, match="not float"):
        graph.materialize_symints([1.5])
    rows = next(iter(program.graph.nodes)).meta["val"].shape[0]
    before = str(Graph())
    empty = Graph()
    with pytest.raises(ValueError, match="no node of the graph gives s"):
        empty.materialize_symint(rows)
    assert str(empty) == before
    x = empty.placeholder("x")
    x.meta["val"] = 5
    with pytest.raises(AttributeError):
        empty.create_size_node(x, 0)
    assert len(empty.nodes) == 1


def test_meta_without_torch():
    g = Graph()
    x = g.placeholder("x")
    x.meta["val"] = TensorMeta("float32", (2, 3))
    assert g.create_size_node(x, 1).meta["val"] == 3
    assert g.create_stride_node(x, 0).meta["val"] == 3
    assert g.create_storage_offset_node(x).meta["val"] == 0
    assert "val" not in g.create_size_node(g.placeholder("y"), 0).meta


def test_what_was_made_runs(program):
    graph = from_fx(program.graph)
    rows = next(iter(program.graph.nodes)).meta["val"].shape[0]
    output = graph.output_node()
    with graph.inserting_before(output):
        (node,) = graph.materialize_symints([rows * 3])
    output.args = ((node,),)
    graph.eliminate_dead_code()
    assert fastexport.GraphModule({}, graph)(torch.ones(5, 6), torch.ones(6, 3)) == (15,)
    assert graph.find_nodes(op="call_function", target=operator.mul) == [node]
