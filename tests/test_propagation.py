"""Shapes and fake tensors: what torch's own passes note, at the nodes of a graph of ours."""

import copy

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils import _pytree as pytree

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


class OfData(torch.nn.Module):
    """What it gives depends on what it is given."""

    def forward(self, x, y):
        n = x.item()
        torch._check(n >= 0)
        torch._check(n < 100)
        return torch.zeros(n), torch.nonzero(y) + 1


def test_numbers_that_only_a_run_tells(tmp_path):
    """The symbols of the file stay, though torch makes new ones, and so its ranges stay true."""
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(OfData(), (torch.tensor(4), torch.ones(3))), path)
    program = fastexport.load(path)
    told = {node.name: node.meta.get("val") for node in program.graph.nodes}
    assert not fastexport.refresh_fake_tensors(program)
    assert not fastexport.refresh_fake_tensors(program, None, torch.tensor(4), torch.ones(3))
    for node in program.graph.find_nodes(op="call_function", target="torch.ops.aten.zeros.default"):
        assert node.meta.pop("val").symbols == ("u0",)
    del program.graph.node("add").meta["val"]
    assert fastexport.run_passes(program, ["refresh_fake_tensors"])
    assert {node.name: node.meta.get("val") for node in program.graph.nodes} == told
    assert program.verify(all=True, level="strict") == [] and program.to_torch()
    assert not any("unbacked_bindings" in node.meta for node in program.graph.nodes)
    with pytest.raises(ValueError, match="refresh_fake_tensors: what the node '.*' gives depends on data"):
        fastexport.refresh_fake_tensors(program.graph)
    assert {node.name: node.meta.get("val") for node in program.graph.nodes} == told


def test_given_sizes_take_the_place_of_symbols(tmp_path):
    dynamic = {"x": {0: torch.export.Dim("n", min=2, max=50)}}
    torch.export.save(torch.export.export(Model(), (X,), dynamic_shapes=dynamic), tmp_path / "m.pt2")
    program = fastexport.load(tmp_path / "m.pt2")
    add = program.graph.node("add")
    symbolic = add.meta.pop("val")
    assert fastexport.refresh_fake_tensors(program) and add.meta["val"] == symbolic
    assert str(symbolic).startswith("f32[s")
    assert fastexport.refresh_fake_tensors(program, None, torch.ones(5, 3))
    assert add.meta["val"].shape == (5, 2)
    program = fastexport.load(tmp_path / "m.pt2")
    assert fastexport.refresh_fake_tensors(program, None, FakeTensorMode().from_tensor(torch.ones(6, 3)))
    assert program.graph.node("add").meta["val"].shape == (6, 2)
    for name in ("x", "add"):
        program = fastexport.load(tmp_path / "m.pt2")
        program.graph.node(name).meta.clear()
        if name == "x":
            with pytest.raises(ValueError, match="the input 'x' has no meta"):
                fastexport.refresh_fake_tensors(program)
        else:
            program.graph.node("linear").target = "torch.ops.nosuch.op.default"
            with pytest.raises(ValueError, match="nosuch"):
                fastexport.refresh_fake_tensors(program)


def test_errors():
    graph = fastexport.Graph()
    graph.output(graph.placeholder("x"))
    with pytest.raises(ValueError, match="give the inputs"):
        graph.refresh_fake_tensors()
    with pytest.raises(TypeError):
        fastexport.propagate_shapes(3)


def test_reasons():
    module = fx.symbolic_trace(Model())
    graph = fastexport.from_fx(module)
    reasons = graph.propagate_shapes(X, explain=True).reasons
    assert reasons == fastexport.propagate_shapes(module, X, explain=True).reasons
    assert list(reasons) == [node.name for node in graph.nodes]
    assert reasons["relu"] == "noted: tensor_meta, type"
    assert reasons["getattr_1"] == "noted: type"
    again = graph.propagate_shapes(torch.ones(5, 3), explain=True)
    assert again.reasons["relu"] == "noted: tensor_meta"
    assert again.reasons["getattr_1"] == "kept: what it gives is as it was noted before"
    assert set(graph.propagate_shapes(torch.ones(5, 3), explain=True).reasons.values()) == {again.reasons["getattr_1"]}
    assert graph.propagate_shapes(X).reasons is None
    fake = graph.refresh_fake_tensors(None, X, explain=True).reasons
    assert set(fake.values()) == {"noted: val"}


class Cond(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: (y * 2,), lambda y: (y - 1,), (x,))


class Loop(torch.nn.Module):
    def forward(self, x):
        return torch.ops.higher_order.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x), ()
        )


class Wrapped(torch.nn.Module):
    def forward(self, x):
        with torch.no_grad():
            x = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x


def forget(graph, keys):
    for node in graph.nodes:
        for key in keys:
            node.meta.pop(key, None)
    for sub in (graph.subgraphs or {}).values():
        forget(sub, keys)


class Scan(torch.nn.Module):
    def forward(self, x):
        return torch.ops.higher_order.scan(lambda c, y: (c + y, c * y), [x[0]], [x], ())


# With real tensors one branch of a condition is run, and what a scan combines by is not gone into.
LEFT = {"shapes": {"false_graph_0", "scan_combine_graph_0"}, "fake": set()}


@pytest.mark.parametrize(("model", "below"), [(Cond, 2), (Loop, 2), (Scan, 1), (Wrapped, 2)])
@pytest.mark.parametrize("way", LEFT)
def test_graphs_below_are_gone_into(model, below, way):
    x = torch.ones(3, 3)
    program = fastexport.from_export(torch.export.export(model(), (x,)))
    subgraphs = program.graph.subgraphs
    told = {path: {n.name: n.meta["val"] for n in sub.nodes if "val" in n.meta} for path, sub in subgraphs.items()}
    assert len(subgraphs) == below
    forget(program.graph, ("val", "tensor_meta", "type"))
    if way == "shapes":
        result = fastexport.propagate_shapes(program, x, explain=True)
    else:
        result = fastexport.refresh_fake_tensors(program, None, x, explain=True)
    assert result.modified
    for path, sub in subgraphs.items():
        for node in (node for node in sub.nodes if node.op in ("placeholder", "call_function")):
            reason = result.reasons[f"{path}/{node.name}"]
            if path in LEFT[way]:
                assert reason == "kept: the run did not come to it" and not {"tensor_meta", "val"} & node.meta.keys()
            else:
                noted, expected = node.meta["tensor_meta" if way == "shapes" else "val"], told[path][node.name]
                assert (noted.shape, noted.dtype) == (expected.shape, expected.dtype)
                assert reason.startswith("noted")


@pytest.mark.parametrize("model", [Cond, Loop, Scan, Wrapped])
def test_graphs_below_in_files(model, tmp_path):
    path, again, x = tmp_path / "m.pt2", tmp_path / "again.pt2", torch.rand(3, 3)
    torch.export.save(torch.export.export(model(), (x,)), path)
    program = fastexport.load(path)
    inputs = {node: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    forget(program.graph, ("val",))
    for node, value in inputs.items():  # which nothing else tells
        node.meta["val"] = value
    fastexport.refresh_fake_tensors(program)
    assert not program.verify(all=True)
    program.save(again)
    found, expected = torch.export.load(again).module()(x), torch.export.load(path).module()(x)
    assert all(map(torch.equal, pytree.tree_leaves(found), pytree.tree_leaves(expected)))


def test_modules_that_are_called():
    inner, outer = fx.Graph(), fx.Graph()
    x, y = inner.placeholder("x"), inner.placeholder("y")
    inner.output(inner.call_function(torch.cat, ([x, y],)))
    x = outer.placeholder("x")
    called = outer.call_module("inner", (x, x))
    outer.output(outer.call_module("inner", (called, x)))
    module = fx.GraphModule({"inner": fx.GraphModule({}, inner)}, outer)
    assert fastexport.propagate_shapes(module, X)
    assert outer.output_node().args[0].meta["tensor_meta"].shape == (6, 3)
    assert inner.find_nodes(op="call_function", target=torch.cat)[0].meta["tensor_meta"].shape == (6, 3)
    assert fastexport.refresh_fake_tensors(module, None, X)
    assert inner.find_nodes(op="call_function", target=torch.cat)[0].meta["val"].shape == (6, 3)


def test_what_fails_below_is_told(capsys):
    inner, outer = fx.Graph(), fx.Graph()
    inner.output(inner.call_function(torch.mm, (inner.placeholder("x"), 3)))
    outer.output(outer.call_module("inner", (outer.placeholder("x"),)))
    module = fx.GraphModule({"inner": fx.GraphModule({}, inner)}, outer)
    with pytest.raises(RuntimeError, match=r"ShapeProp error for: node=%inner") as caught:
        fastexport.propagate_shapes(module, X)
    assert "node=%mm" in str(caught.value.__cause__)
    assert not any("type" in node.meta for node in outer.nodes)


@pytest.mark.parametrize("trace", [fx.symbolic_trace, fastexport.symbolic_trace])
def test_a_graph_module(trace):
    """Of ours as of torch's, with its own modules, and as a step of run_passes."""
    module, x = trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())), torch.ones(1, 2)
    assert fastexport.propagate_shapes(module, x)
    assert [node.meta["tensor_meta"].shape for node in module.graph.nodes][1] == (1, 3)
    assert fastexport.refresh_fake_tensors(module, None, x)
    assert [node.meta["val"].shape for node in module.graph.nodes][-2] == (1, 3)
    for node in module.graph.nodes:
        node.meta = {}
    assert fastexport.run_passes(module, [lambda g: g.propagate_shapes(x)])
    assert all("tensor_meta" in node.meta for node in module.graph.nodes)
