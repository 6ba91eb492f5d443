"""No-op removal: what is taken out, what stays and why, and that a run sees nothing of it."""

import copy

import pytest
import torch
from hypothesis import given, settings
from torch import fx

import fastexport
from fx_graphs import MODELS, aten, exported
from helpers import label
from simplify_graphs import programs, propagate, seen


def one_call(op, target, args, kwargs=None, *, operand=None, result=None, root=None):
    """x -> relu -> the call -> cos, with meta of the call and its operand."""
    graph = fx.Graph(root)
    x = graph.placeholder("x")
    source = graph.call_function(aten.relu.default, (x,))
    args = tuple([source] if arg == ["%"] else source if isinstance(arg, str) and arg == "%" else arg for arg in args)
    node = graph.create_node(op, target, args, kwargs or {})
    graph.output(graph.call_function(aten.cos.default, (node,)))
    source.meta["val"] = torch.ones(2, 3) if operand is None else operand
    node.meta["val"] = torch.ones(2, 3) if result is None else result
    return graph


REMOVED = [
    ("call_function", aten.view.default, ("%", [2, 3])),
    ("call_function", aten.expand.default, ("%", [2, 3])),
    ("call_method", "reshape", ("%", 2, 3)),
    ("call_method", "contiguous", ("%",)),
    ("call_function", aten.alias.default, ("%",)),
    ("call_function", aten.clone.default, ("%",)),
    ("call_function", aten.dropout.default, ("%", 0.5, False)),
    ("call_function", torch.nn.functional.dropout, ("%",), {"p": 0.5, "training": False, "inplace": False}),
    ("call_function", aten.add.Tensor, ("%", 0)),
    ("call_function", torch.add, (0.0, "%")),
    ("call_function", aten.sub.Tensor, ("%", 0), {"alpha": 3}),
    ("call_function", aten.mul.Tensor, ("%", 1)),
    ("call_function", torch.mul, ("%", 1.0)),
    ("call_function", aten.div.Tensor, ("%", 1)),
    ("call_function", aten.pow.Tensor_Scalar, ("%", 1)),
    ("call_function", aten.to.dtype, ("%", torch.float32)),
    ("call_function", aten._to_copy.default, ("%",), {"dtype": torch.float32}),
    ("call_function", aten.cat.default, (["%"],)),
    ("call_function", aten.slice.Tensor, ("%", 0, 0, 9223372036854775807)),
]
KEPT = [
    ("call_function", aten.dropout.default, ("%", 0.5, True)),
    ("call_function", aten.add.Tensor, ("%", 1)),
    ("call_function", aten.mul.Tensor, ("%", 0)),
    ("call_function", aten.rsub.Scalar, ("%", 0)),
    ("call_function", torch.sub, (0, "%")),
    ("call_function", torch.div, (1, "%")),
    ("call_function", aten.div.Tensor_mode, ("%", 1), {"rounding_mode": "floor"}),
    ("call_function", aten.mul.Tensor, ("%", "%")),
    ("call_function", aten.cat.default, (["%", "%"],)),
    ("call_function", aten.transpose.int, ("%", 0, 1)),
    ("call_function", aten.add.Tensor, ("%", 0), {"alpha": float("inf")}),
    ("call_method", "add", ("%", True)),
]


@pytest.mark.parametrize("row", REMOVED, ids=label)
def test_removed(row):
    graph = one_call(*row)
    native = fastexport.from_fx(graph)
    result = fastexport.remove_noops(graph, explain=True)
    assert len(result.removed) == 1 and list(result.replaced.values()) == ["relu_default"]
    assert result.reasons[result.removed[0]].startswith("removed: ")
    assert native.remove_noops().replaced == result.replaced
    assert str(native) == str(graph)
    assert not fastexport.remove_noops(graph)


@pytest.mark.parametrize("row", KEPT, ids=label)
def test_kept(row):
    graph = fx.Graph()
    source = graph.call_function(aten.relu.default, (graph.placeholder("x"),))

    def mapped(value):
        return [mapped(v) for v in value] if isinstance(value, list) else source if value == "%" else value

    node = graph.create_node(row[0], row[1], tuple(map(mapped, row[2])), row[3] if len(row) > 3 else {})
    graph.output(graph.call_function(aten.cos.default, (node,)))
    source.meta["val"], node.meta["val"] = torch.ones(2, 2), torch.ones(2, 2)
    assert not fastexport.remove_noops(graph)
    assert not fastexport.from_fx(graph).remove_noops()


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (torch.ones(3, 2), "its shape is not that of its operand"),
        (torch.ones(2, 3, dtype=torch.float64), "its type is not that of its operand"),
        (torch.ones(2, 3, device="meta"), "its device or layout is not that of its operand"),
        (torch.ones(3, 2).t(), "its strides are not those of its operand"),
        (5, "its meta, or that of its operand, is not that of a tensor"),
        (None, "its meta, or that of its operand, does not tell what it gives"),
    ],
)
def test_meta_must_agree(result, why):
    graph = one_call("call_function", aten.mul.Tensor, ("%", 1))
    (node,) = graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    node.meta["val"] = result
    assert fastexport.remove_noops(graph, explain=True).reasons == {"mul_tensor": f"kept: {why}"}


def test_signed_zeros():
    graph = one_call("call_function", aten.add.Tensor, ("%", 0))
    result = fastexport.remove_noops(graph, signed_zeros=True, explain=True)
    assert not result and result.reasons == {"add_tensor": "kept: adding zero makes 0.0 of -0.0"}
    ints = torch.ones(2, 3, dtype=torch.int64)
    graph = one_call("call_function", aten.add.Tensor, ("%", 0), operand=ints, result=ints)
    assert fastexport.remove_noops(graph, signed_zeros=True)


def test_modules():
    root = torch.nn.Module()
    root.same, root.drop = torch.nn.Identity(), torch.nn.Dropout()
    for training, removed in ((True, ["same"]), (False, ["same", "drop"])):
        root.train(training)
        graph = fx.Graph()
        value = graph.placeholder("x")
        value.meta["val"] = torch.ones(2)
        for name in ("same", "drop"):
            value = graph.call_module(name, (value,))
            value.meta["val"] = torch.ones(2)
        graph.output(graph.call_function(aten.cos.default, (value,)))
        assert fastexport.remove_noops(fx.GraphModule(root, graph)).removed == removed


def test_chains_and_provenance():
    graph = fx.Graph()
    nodes = [graph.placeholder("x")]
    for _ in range(4):
        nodes.append(graph.call_function(aten.view.default, (nodes[-1], [2])))
    graph.output(graph.call_function(aten.cos.default, (nodes[-1],)))
    for node in nodes:
        node.meta["val"] = torch.ones(2)
    result = fastexport.remove_noops(graph)
    assert set(result.replaced.values()) == {"x"} and len(result.replaced) == 4
    assert {source.pass_name for source in nodes[0].meta["from_node"]} == {"remove_noops"}
    graph.lint()


def test_a_returned_copy_of_an_input_stays():
    graph = fx.Graph()
    x = graph.placeholder("x")
    copied = graph.call_function(aten.clone.default, (x,))
    graph.output(copied)
    x.meta["val"] = copied.meta["val"] = torch.ones(2)
    result = fastexport.remove_noops(graph, explain=True)
    assert not result and "a copy is returned beside its original" in result.reasons["clone_default"]


def test_a_copy_that_is_written_to_stays():
    graph = fx.Graph()
    x = graph.placeholder("x")
    copied = graph.call_function(aten.mul.Tensor, (x, 1))
    graph.call_function(aten.add_.Tensor, (copied, 1))
    graph.output(graph.call_function(aten.add.Tensor, (copied, x)))
    x.meta["val"] = copied.meta["val"] = torch.ones(2)
    assert not fastexport.remove_noops(graph)


@settings(max_examples=60, deadline=None)
@given(programs(constants=True))
def test_nothing_is_seen_of_it(module):
    propagate(module)
    before = seen(module)
    fastexport.remove_noops(module, signed_zeros=True)
    module.graph.lint()
    assert seen(module) == before


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    program, args = exported(name)
    native = fastexport.from_export(program)
    result = fastexport.remove_noops(native)
    native.verify()
    assert len(native.graph.nodes) == len(program.graph.nodes) - len(result.removed)
    theirs = copy.deepcopy(program)
    assert fastexport.remove_noops(theirs).removed == result.removed
    theirs.validate()
    with torch.no_grad():
        expected = program.module()(*args)
        assert torch.equal(native.module()(*args), expected)
        assert torch.equal(theirs.module()(*args), expected)


def test_symbolic_sizes_get_no_guards():
    class Views(torch.nn.Module):
        def forward(self, x):
            return x.view(x.shape[0], 3).cos(), x.view(3 * x.shape[0]).sin()

    program = torch.export.export(Views(), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    ranges = str(program.range_constraints)
    for p in (fastexport.from_export(program), program):
        assert fastexport.remove_noops(p).removed == ["view"]
        assert str(program.range_constraints) == ranges
    program.validate()


def test_data_dependent_sizes_get_no_guards():
    class First(torch.nn.Module):
        def forward(self, x, n):
            count = n.item()
            torch._check(count >= 2)
            torch._check(count <= x.shape[0])
            return x[:count].view(count, 4).cos()

    program = torch.export.export(First(), (torch.ones(6, 4), torch.tensor(3)))
    ranges = str(program.range_constraints)
    for p in (fastexport.from_export(program), program):
        result = fastexport.remove_noops(p, explain=p is not program)
        assert result.removed == ["view"]
        assert p is program or result.reasons["slice_1"] == "kept: its shape is not that of its operand"
    assert str(program.range_constraints) == ranges
    program.validate()
    x = torch.rand(6, 4)
    assert torch.equal(program.module()(x, torch.tensor(3)), x[:3].cos())


@pytest.mark.parametrize(
    ("target", "args"),
    [
        (aten.view.default, ("%", [3, 2])),
        (aten.view.default, ("%", [6])),
        (aten.view.default, ("%", [2, -1])),
        (aten.expand.default, ("%", [-1, 3])),
        (aten.expand.default, ("%", [1, 2, 3])),
        (aten.slice.Tensor, ("%", 0, 1)),
        (aten.slice.Tensor, ("%", 1, 0, -1)),
        (aten.slice.Tensor, ("%", 0, 0, 9, 2)),
        (aten.slice.Tensor, ("%", 0, -2)),
    ],
    ids=str,
)
def test_what_arguments_tell_of_sizes(target, args):
    """By the arguments alone or by all of meta, the verdict is that of the shapes."""
    source = torch.ones(2, 3)
    value = target(source, *args[1:])
    for explain in (False, True):
        graph = one_call("call_function", target, args, result=value)
        result = fastexport.remove_noops(graph, explain=explain)
        assert bool(result) == (value.shape == source.shape)


def test_hostile_meta():
    class Bad:
        def __getattr__(self, name):
            raise RuntimeError(name)

    graph = fastexport.Graph()
    x = graph.placeholder("x")
    y = graph.call_method("view", (x, (2,)))
    graph.output(y)
    x.meta["val"], y.meta["val"] = Bad(), Bad()
    with pytest.raises(RuntimeError):
        graph.remove_noops()
    assert len(graph.nodes) == 3
