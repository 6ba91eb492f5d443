"""Shapes and fake tensors: what torch's own passes note, at the nodes of a graph of ours."""

import copy

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import ShapeProp

import fastexport


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x):
        a, b = self.linear(x).chunk(2, 1)
        return torch.relu(a) + b, x.shape[0]


X = torch.ones(2, 3)


def test_shapes():
    module = fx.symbolic_trace(Model())
    theirs = copy.deepcopy(module)
    ShapeProp(theirs).propagate(X)
    graph = fastexport.from_fx(module)
    assert fastexport.propagate_shapes(graph, X) and not graph.propagate_shapes(X)
    assert fastexport.propagate_shapes(module, X)
    for ours, live, node in zip(graph.nodes, module.graph.nodes, theirs.graph.nodes, strict=True):
        for key in ("tensor_meta", "type"):
            assert ours.meta.get(key) == node.meta.get(key) == live.meta.get(key)


def test_fake_tensors():
    module = fx.symbolic_trace(Model())
    theirs = copy.deepcopy(module)
    FakeTensorProp(theirs, FakeTensorMode(allow_non_fake_inputs=True)).propagate(X)
    graph = fastexport.from_fx(module)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    assert graph.refresh_fake_tensors(mode, X) and not graph.refresh_fake_tensors(mode)
    for ours, node in zip(graph.nodes, theirs.graph.nodes, strict=True):
        value, expected = ours.meta.get("val"), node.meta.get("val")
        assert type(value) is type(expected)
        if isinstance(value, FakeTensor):
            assert value.fake_mode is mode
            assert (value.shape, value.dtype, value.stride()) == (expected.shape, expected.dtype, expected.stride())


def test_programs():
    program = torch.export.export(Model(), (X,))
    native = fastexport.from_export(program)
    assert fastexport.propagate_shapes(native, X)
    assert native.graph.node("add").meta["tensor_meta"].shape == (2, 2)
    assert fastexport.propagate_shapes(program, X)
    with pytest.raises(ValueError, match="takes 1 inputs"):
        fastexport.propagate_shapes(native, X, X)
    assert not fastexport.refresh_fake_tensors(native)


def test_files(tmp_path):
    torch.export.save(torch.export.export(Model(), (X,)), tmp_path / "m.pt2")
    program = fastexport.load(tmp_path / "m.pt2")
    node = program.graph.node("add")
    right = node.meta["val"]
    assert not fastexport.refresh_fake_tensors(program)
    node.meta["val"] = right.replace(shape=(7,), stride=(1,))
    assert fastexport.refresh_fake_tensors(program)
    assert node.meta["val"] == right
    assert fastexport.propagate_shapes(program, X)


def test_errors():
    graph = fastexport.Graph()
    graph.output(graph.placeholder("x"))
    with pytest.raises(ValueError, match="give the inputs"):
        graph.refresh_fake_tensors()
    with pytest.raises(TypeError):
        fastexport.propagate_shapes(3)
