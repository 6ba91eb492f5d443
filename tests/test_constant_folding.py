"""Constant folding: what is constant, where values go, and that results stay bit for bit."""

import copy

import pytest
import torch
from hypothesis import given, settings
from torch import fx

import fastexport
from fx_graphs import MODELS, aten, exported
from simplify_graphs import programs, seen

fold = fastexport.fold_constants


def scaled(*, parameter=False):
    root = torch.nn.Module()
    value = torch.tensor([1.0, 2.0])
    if parameter:
        root.scale = torch.nn.Parameter(value)
    else:
        root.register_buffer("scale", value)
    graph = fx.Graph()
    x, scale = graph.placeholder("x"), graph.get_attr("scale")
    squared = graph.call_function(aten.mul.Tensor, (scale, scale))
    shifted = graph.call_function(aten.add.Tensor, (squared, graph.call_function(aten.ones.default, ([2],))))
    graph.output(graph.call_function(aten.add.Tensor, (x, shifted)))
    return fx.GraphModule(root, graph)


def test_in_place_and_native():
    module, x = scaled(), torch.tensor([0.5, 0.25])
    expected = module(x)
    native = fastexport.from_fx(scaled())
    result = fold(module, explain=True)
    assert result.replaced == {"add_tensor": "_folded_constant_0"}
    assert sorted(result.removed) == ["add_tensor", "mul_tensor", "ones_default", "scale"]
    assert result.reasons["add_tensor"] == "removed: '_folded_constant_0' has its value"
    assert torch.equal(module(x), expected) and len(module.graph.nodes) == 4
    assert native.fold_constants().replaced == result.replaced
    assert str(native).split("\n")[1:] == str(module.graph).split("\n")[1:]
    assert not fold(module)
    (constant,) = module.graph.find_nodes(op="get_attr", target="_folded_constant_0")
    assert constant.meta["from_node"][-1].pass_name == "fold_constants"


def test_parameters_only_when_asked():
    module, x = scaled(parameter=True), torch.ones(2)
    assert not fold(module)
    expected = module(x)
    assert fold(module, parameters=True) and torch.equal(module(x), expected)


def test_limits_and_failures():
    result = fold(scaled(), max_bytes=4, explain=True)
    assert not result and result.reasons == {"add_tensor": "kept: its value takes more than 4 bytes"}
    module = scaled()
    (node,) = module.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    node.args = (node.args[0], "text")
    result = fold(module, explain=True)
    assert not result and "can't be computed" in result.reasons["mul_tensor"]


def test_what_is_written_or_random_is_not_constant():
    module = scaled()
    (scale,) = module.graph.find_nodes(op="get_attr")
    with module.graph.inserting_after(scale):
        module.graph.call_function(aten.add_.Tensor, (scale, 1))
    assert not fold(module)
    graph = fx.Graph()
    graph.output(graph.call_function(aten.neg.default, (graph.call_function(aten.rand.default, ([2],)),)))
    assert not fold(fx.GraphModule(torch.nn.Module(), graph))


class Lifted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(4.0))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return x + self.table.cos().exp(), self.count * 2


def test_programs():
    program, x = torch.export.export(Lifted(), (torch.ones(4),)).run_decompositions({}), torch.rand(4)
    expected = program.module()(x)
    native = fastexport.from_export(program)
    for p in (native, program):
        result = fold(p)
        assert result.replaced == {"exp": "c__folded_constant_0"}
        assert "_folded_constant_0" in p.constants
        assert list(p.graph_signature.lifted_tensor_constants) == ["_folded_constant_0"]
        assert torch.equal(p.module()(x)[0], expected[0])  # the other one counts calls
    native.verify()
    program.validate()


class MadeOfNumbers(torch.nn.Module):
    def forward(self, x):
        return x * (torch.zeros(2, 2) + torch.ones(2, 2))


@pytest.mark.parametrize("options", [{}, {"check": True}, {"bisect": True}], ids=str)
def test_programs_in_a_chain_of_passes(options):
    """As the function alone, a chain keeps the values as constants of the program."""
    program = torch.export.export(MadeOfNumbers(), (torch.ones(2, 2),))
    native = fastexport.from_export(program)
    for p in (native, program):
        (result,) = fastexport.run_passes(p, ["fold_constants"], **options)
        assert result.replaced == {"add": "c__folded_constant_0"}
        assert list(p.constants) == ["_folded_constant_0"]
        assert torch.equal(p.module()(torch.ones(2, 2)), torch.ones(2, 2))
    native.verify()
    program.validate()


def test_the_graph_of_a_program_has_no_place_for_constants():
    program = fastexport.from_export(torch.export.export(MadeOfNumbers(), (torch.ones(2, 2),)))
    result = program.graph.fold_constants(explain=True)
    assert not result
    assert result.reasons["add"] == "kept: there is no module, or no program was given, to hold the value"
    program.verify()


class Returned(torch.nn.Module):
    def __init__(self, last):
        super().__init__()
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))
        self.last = last

    def forward(self, x):
        return x + self.scale * 2, self.last(self.scale * 3)


LASTS = {
    "itself": lambda value: value,
    "view": lambda value: value.view(2, 1),
    "reshape": lambda value: value.reshape(2, 1),
    "part": lambda value: value.split(1)[0],
    "chain": lambda value: value.t().contiguous().expand(2).flatten(),
}


@pytest.mark.parametrize("last", LASTS.values(), ids=list(LASTS))
@pytest.mark.parametrize("kind", ["program", "module"])
def test_what_is_returned_is_computed_at_each_run(last, kind):
    """A caller may write to it, which would change the constant; what is only read is folded."""
    x = torch.ones(2)
    exported = torch.export.export(Returned(last), (x,))
    if kind == "program":
        program = fastexport.from_export(exported)
        result = fastexport.fold_constants(program)
        module = program.to_torch().module()
    else:
        module = exported.module()
        result = fastexport.fold_constants(module)
    assert list(result.replaced) == ["mul"]
    first = module(x)
    expected = [tensor.tolist() for tensor in first]
    for tensor in first:
        tensor.add_(5)
    assert [tensor.tolist() for tensor in module(x)] == expected


def test_modules_of_ours():
    module, x = fastexport.from_fx(scaled()), torch.tensor([0.5, 0.25])
    ours = fastexport.GraphModule(scaled(), module)
    expected = ours(x)
    assert fold(ours) and "_folded_constant_0" in ours.code
    assert torch.equal(ours(x), expected)


@settings(max_examples=40, deadline=None)
@given(programs(constants=True))
def test_nothing_is_seen_of_it(module):
    before = seen(module)
    fold(module, parameters=True)
    module.graph.lint()
    assert seen(module) == before


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    program, args = exported(name)
    native = fastexport.from_export(program)
    fold(native, parameters=True)
    native.verify()
    with torch.no_grad():
        assert torch.equal(native.module()(*args), program.module()(*args))


def test_bad_arguments():
    with pytest.raises(TypeError):
        fold(3)
    assert not fold(copy.copy(fastexport.Graph()))
