"""Pictures for Graphviz: weights are told in the labels of their users, and any name is quoted rightly."""

import operator
import shutil
import subprocess

import pytest
import torch

import fastexport
from fastexport import pt2e

pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.linear = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.linear(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def converted():
    example = (torch.randn(1, 3, 6, 6),)
    config = x86.get_default_x86_inductor_quantization_config()
    module = torch.export.export(Net().eval(), example).module()
    prepared = prepare_pt2e(module, x86.X86InductorQuantizer().set_global(config))
    prepared(*example)
    return convert_pt2e(prepared)


@pytest.mark.parametrize("native", [False, True])
def test_weights_are_folded_into_their_users(converted, native):
    graph = fastexport.from_fx(converted) if native else converted
    text = pt2e.to_dot(graph)
    drawn = {line.split()[0] for line in text.splitlines() if " [label=" in line}
    weights = {node.name for node in converted.graph.nodes if node.op == "get_attr"}
    assert weights and not weights & drawn
    (conv,) = (line for line in text.splitlines() if line.strip().startswith("conv2d ["))
    assert "int8[4, 3, 3, 3]" in conv and "bias: conv.bias float32[4]" in conv and "#d7f0d7" in conv
    assert weights <= {
        line.split()[0] for line in pt2e.to_dot(graph, fold_weights=False).splitlines() if "[label" in line
    }


def test_all_nodes_that_are_drawn_are_joined_as_in_the_graph(converted):
    edges = {
        tuple(line.split(" -> ")) for line in pt2e.to_dot(converted, fold_weights=False).splitlines() if "->" in line
    }
    expected = {(used.name, node.name) for node in converted.graph.nodes for used in node.all_input_nodes}
    assert {(a.strip(), b) for a, b in edges} == expected


def test_odd_names_are_quoted():
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    x.name = 'a "b" \\ {c}|<d>\n'
    node = graph.call_function(operator.neg, (x,))
    node.name = "graph"
    graph.output(node)
    text = pt2e.to_dot(graph)
    assert '"a \\"b\\" \\\\ {c}|<d>\\n" -> "graph"' in text
    if shutil.which("dot"):
        assert subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True).stdout


def test_a_weight_that_is_returned_is_drawn():
    graph = fastexport.Graph()
    graph.output(graph.get_attr("weight"))
    assert "weight -> output" in pt2e.to_dot(graph)


@pytest.mark.parametrize("given", [None, 5, torch.nn.ReLU()])
def test_what_is_no_graph_is_refused(given):
    with pytest.raises(TypeError, match="expected a"):
        pt2e.to_dot(given)
