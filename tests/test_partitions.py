"""Source partitions of graphs of ours and torch's: what torch and torchao find, without their searches."""

import operator
import random

import pytest
import torch
from torch import fx, nn
from torch.fx.passes.utils import source_matcher_utils as theirs
from torchao.quantization.pt2e import graph_utils

import fastexport
from fastexport import check_subgraphs_connected, find_sequential_partitions, get_source_partitions

SOURCES = [nn.Linear, nn.ReLU, torch.add, torch.nn.functional.relu, "linear", "relu", "add", operator.add]
MODULES = [nn.Linear, nn.ReLU, nn.Conv2d, "torch.nn.modules.linear.Linear", "torch.nn.modules.activation.ReLU"]
WANTED = [[nn.Linear], ["relu", nn.ReLU], [torch.add, operator.add, "add"], SOURCES, [nn.Module], [nn.Conv2d], []]


def sourced(seed, size):
    """A graph whose nodes say in one way or another what they come from, or nothing."""
    rng = random.Random(seed)
    graph = fx.Graph()
    made = [graph.placeholder("x"), graph.get_attr("w")]
    for _ in range(size):
        operands = tuple(rng.choices(made[-6:], k=rng.randint(1, 2)))
        kind = rng.random()
        node = (
            graph.get_attr("w")
            if kind < 0.1
            else graph.call_method("relu", operands)
            if kind < 0.2
            else graph.call_function(torch.add, operands)
        )
        number = rng.randint(0, 4)
        if rng.random() < 0.3:
            node.meta["source_fn_stack"] = [("outer", nn.Module), (f"call_{number}", rng.choice(SOURCES))]
        if rng.random() < 0.3:
            node.meta["torch_fn"] = (f"fn_{number}", f"builtin.{rng.choice(['linear', 'relu', 'add', 'mul'])}")
        if rng.random() < 0.4:
            node.meta["nn_module_stack"] = {"": ("", nn.Module), "key": (f"at.{number}", rng.choice(MODULES))}
        made.append(node)
    graph.output(made[-1])
    return graph


def plain(partition):
    names = [[node.name for node in nodes] for nodes in (partition.nodes, partition.input_nodes)]
    rest = [sorted(node.name for node in nodes) for nodes in (partition.output_nodes, partition.params)]
    return [names[0], sorted(names[1]), *rest, partition.source]


def plain_groups(found):
    return [(source, [plain(partition) for partition in partitions]) for source, partitions in found.items()]


@pytest.mark.parametrize("keep", [None, lambda node: len(node.args) != 1])
def test_source_partitions(keep):
    for seed in range(40):
        graph = sourced(seed, 30)
        native = fastexport.from_fx(graph)
        for wanted in WANTED:
            expected = plain_groups(theirs.get_source_partitions(graph, wanted, keep))
            assert plain_groups(get_source_partitions(graph, wanted, keep)) == expected
            assert plain_groups(get_source_partitions(native, wanted, keep)) == expected


def test_partitions_are_ours():
    graph = sourced(1, 30)
    (found,) = get_source_partitions(fastexport.from_fx(graph), ["add"]).values()
    assert all(type(partition) is fastexport.SourcePartition for partition in found)
    assert all(isinstance(node, fastexport.Node) for partition in found for node in partition.nodes)
    assert found == get_source_partitions(found[0].nodes[0].graph, ["add"])["add"]


@pytest.mark.parametrize(
    "sequence", [[], [nn.Linear], ["linear", "relu"], [nn.Linear, nn.ReLU], ["relu", torch.add, nn.Linear]]
)
def test_sequential_partitions(sequence):
    for seed in range(40):
        graph = sourced(seed, 40)
        module = fx.GraphModule(nn.Module(), fx.Graph())
        module._graph = graph
        expected = [[plain(p) for p in found] for found in graph_utils.find_sequential_partitions(module, sequence)]
        for g in (graph, fastexport.from_fx(graph)):
            assert [[plain(p) for p in found] for found in find_sequential_partitions(g, sequence)] == expected


def test_equivalents_can_be_left_out():
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    conv = graph.call_function(torch.conv2d, (x,))
    conv.meta["source_fn_stack"] = [("conv", nn.Conv2d)]
    relu = graph.call_function(torch.relu, (conv,))
    relu.meta["source_fn_stack"] = [("relu", torch.nn.functional.relu)]
    assert len(find_sequential_partitions(graph, [nn.Conv2d, nn.ReLU])) == 1
    assert find_sequential_partitions(graph, [nn.Conv2d, nn.ReLU], include_functional_equivalent=False) == []
    with pytest.raises(ValueError, match="stand for each other"):
        find_sequential_partitions(graph, [nn.ReLU, torch.nn.functional.relu])
    with pytest.raises(ValueError):
        find_sequential_partitions(graph, ["x", "x"], include_functional_equivalent=False)


def test_connected():
    for seed in range(20):
        graph = sourced(seed, 20)
        found = [p for ps in theirs.get_source_partitions(graph, SOURCES).values() for p in ps]
        for first in found:
            for second in found:
                assert check_subgraphs_connected(first, second) == theirs.check_subgraphs_connected(first, second)


def test_many_partitions_take_no_product():
    """Forty of each of five kinds are 10**8 combinations, of which forty are sequences."""
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    kinds = ["conv2d", "batch_norm", "relu", "linear", "gelu"]
    for i in range(40):
        node = x
        for kind in kinds:
            node = graph.call_method(kind, (node,))
            node.meta["torch_fn"] = (f"{kind}_{i}", f"function.{kind}")
    found = find_sequential_partitions(graph, kinds)
    assert [[p.nodes[0].target for p in sequence] for sequence in found] == [kinds] * 40


def test_wrong_arguments():
    with pytest.raises(TypeError):
        get_source_partitions(3, [])
    graph = fastexport.Graph()
    graph.placeholder("x").meta["torch_fn"] = ("only",)
    with pytest.raises(ValueError):
        get_source_partitions(graph, ["relu"])
