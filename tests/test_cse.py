"""Common subexpressions: what is equal, what a write keeps apart, and that a run sees nothing of the pass."""

import copy
import operator
import struct

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import fx
from torch.fx.passes.dialect.common.cse_pass import CSEPass, get_CSE_banned_ops

import fastexport
from fastexport._memory import FRESH, memory_facts
from fx_graphs import MODELS, aten, exported, graph_of, owned
from simplify_graphs import programs, seen

NAN, OTHER_NAN = (struct.unpack("d", struct.pack("Q", b))[0] for b in (0x7FF8000000000000, 0x7FF8000000000001))


def cse(graph, **options):
    return fastexport.eliminate_common_subexpressions(graph, **options)


def calls(*rows, output=None):
    return graph_of(*(("call_function", target, args) for target, args in rows), output=output)


# ---- what is equal


@pytest.mark.parametrize(
    ("a", "b", "safe", "as_torch"),
    [
        (1, 1, True, True),
        (1, 1.0, False, True),
        (1, True, False, True),
        (0.0, -0.0, False, True),
        (2**53, float(2**53), False, True),
        (2**53 + 1, float(2**53), False, False),
        (NAN, OTHER_NAN, False, False),
        ("a", "a", True, True),
        ([1, 2], [1, 2], True, True),
        ([1, 2], (1, 2), False, False),
        ([1], [1.0], False, True),
        (slice(0, 1), slice(0, 1), True, None),
        (torch.float32, torch.float64, False, False),
        (torch.device("cpu"), torch.device("cpu"), True, True),
        (None, 0, False, False),
        (1j, 1j, True, True),
    ],
)
def test_constants(a, b, safe, as_torch):
    def make():
        return calls((operator.add, ("%x", a)), (operator.add, ("%x", b)), output=["%add", "%add_1"])

    assert bool(cse(make())) is safe
    assert bool(cse(fastexport.from_fx(make()))) is safe
    if as_torch is not None:
        assert bool(cse(make(), policy="torch")) is as_torch
        module = fx.GraphModule(torch.nn.Module(), make())
        assert CSEPass(get_CSE_banned_ops())(module).modified is as_torch


def test_a_nan_is_itself():
    graph = calls((operator.add, ("%x", NAN)), (operator.add, ("%x", NAN)), output=["%add", "%add_1"])
    assert cse(graph).replaced == {"add_1": "add"}


def test_whole_trees_and_keywords():
    graph = graph_of(
        ("call_function", aten.cos.default, ("%x",)),
        ("call_function", aten.cos.default, ("%x",)),
        ("call_function", aten.add.Tensor, ("%cos_default", "%x"), {"alpha": 2}),
        ("call_function", aten.add.Tensor, ("%cos_default_1", "%x"), {"alpha": 2}),
        ("call_function", aten.add.Tensor, ("%cos_default_1", "%x"), {"alpha": 3}),
        output=["%add_tensor", "%add_tensor_1", "%add_tensor_2"],
    )
    result = cse(graph)
    assert result.replaced == {"cos_default_1": "cos_default", "add_tensor_1": "add_tensor"}
    assert result.modified and not cse(graph).modified
    graph.lint()


def test_two_targets_are_not_equal():
    assert not cse(
        calls((aten.cos.default, ("%x",)), (aten.sin.default, ("%x",)), output=["%cos_default", "%sin_default"])
    )


def test_random_and_effects_stay():
    rows = [(aten.rand.default, ([2],)), (aten.dropout.default, ("%x", 0.5, True)), (print, ()), (len, ("%x",))]
    assert cse(calls(*rows, rows[-1])).removed == ["len_2"]
    assert not cse(calls(*rows, *rows))  # print might do anything


def test_attributes_and_modules():
    root = torch.nn.Module()
    root.linear, root.drop = torch.nn.Linear(2, 2), torch.nn.Dropout()
    root.eval()
    graph = fx.Graph()
    x = graph.placeholder("x")
    first, second = graph.call_module("linear", (x,)), graph.call_module("linear", (x,))
    a, b = graph.get_attr("linear.weight"), graph.get_attr("linear.weight")
    c, d = graph.call_function(aten.t.default, (a,)), graph.call_function(aten.t.default, (b,))
    e, f = graph.call_module("drop", (x,)), graph.call_module("drop", (x,))
    graph.output((first, second, c, d, e, f))
    module = fx.GraphModule(root, graph)
    root.train()
    assert cse(copy.deepcopy(module)).removed == ["linear_1", "linear_weight_1", "t_default_1"]
    module.eval()
    assert cse(module).removed == ["linear_1", "linear_weight_1", "t_default_1", "drop_1"]
    assert module.code.count("linear(") == 1


def test_data_dependent_sizes_stay_apart():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.nonzero(), x.nonzero(), x.cos(), x.cos()

    program = torch.export.export(Model(), (torch.ones(3),))
    assert cse(program).removed == ["cos_1"]
    native = fastexport.from_export(torch.export.export(Model(), (torch.ones(3),)))
    graph = native.graph
    for node in graph.find_nodes(op="call_function", target=aten.cos.default):
        node.meta["unbacked_bindings"] = {"u9": ()}
    assert not cse(native)


# ---- writes


def test_case_12():
    """Source: pytorch issues 183969 and 175836."""
    graph = fx.Graph()
    x, y, z = (graph.placeholder(name) for name in "xyz")
    k1 = graph.call_function(aten.cos.default, (z,))
    c1 = graph.call_function(aten.cos.default, (x,))
    graph.call_function(aten.copy_.default, (c1, y))
    c2 = graph.call_function(aten.cos.default, (x,))
    k2 = graph.call_function(aten.cos.default, (z,))
    graph.output((c1, c2, k1, k2))
    module = fx.GraphModule(torch.nn.Module(), graph)
    result = cse(module, explain=True)
    assert result.replaced == {"cos_default_3": "cos_default"}
    assert result.reasons["cos_default_2"] == "kept: like 'cos_default_1', but what one of them gives may be written to"
    values = module(torch.zeros(1), torch.full((1,), 5.0), torch.zeros(1))
    assert [value.item() for value in values] == [5.0, 1.0, 1.0, 1.0]


def test_a_write_through_a_view():
    graph = calls(
        (aten.cos.default, ("%x",)),
        (aten.view.default, ("%x", [-1])),
        (aten.add_.Tensor, ("%view_default", 1)),
        (aten.cos.default, ("%x",)),
        output=["%cos_default", "%cos_default_1"],
    )
    result = cse(graph, explain=True)
    assert not result
    assert result.reasons == {"cos_default_1": "kept: like 'cos_default', but what it reads may be written in between"}


def test_calls_of_which_nothing_is_known_may_write():
    def mystery(x):
        return x.zero_()

    graph = calls((aten.cos.default, ("%x",)), (mystery, ("%x",)), (aten.cos.default, ("%x",)), output="%cos_default_1")
    assert not cse(graph)
    graph = calls((aten.cos.default, ("%x",)), (mystery, ()), (aten.cos.default, ("%x",)), output="%cos_default_1")
    assert not cse(graph)


def test_guards_of_sizes_write_nothing():
    class Repeats(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, 3))

        def forward(self, x):
            h = x @ self.weight
            return (h + 1).cos() @ self.weight, h + 1

    module = torch.export.export(Repeats(), (torch.ones(2, 3),)).module()
    assert module.graph.find_nodes(op="call_module", target="_guards_fn")
    result = cse(module, explain=True)
    assert result.replaced == {"add_1": "add"}
    assert not [why for why in result.reasons.values() if why.startswith("kept")]


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.matmul, (torch.ones(1, 2, 3), torch.ones(3, 1))),
        (torch.matmul, (torch.ones(3), torch.ones(3))),
        (torch.nn.functional.linear, (torch.ones(1, 1), torch.ones(1, 1))),
        (torch.nn.functional.softmax, (torch.ones(1, 1), 1)),
        (torch.nn.functional.layer_norm, (torch.ones(2, 3), (3,))),
        (torch.nn.functional.rms_norm, (torch.ones(2, 3), (3,))),
        (torch.nn.functional.scaled_dot_product_attention, (torch.ones(1, 1, 1, 1),) * 3),
        (torch.nn.functional.conv1d, (torch.ones(1, 1, 1), torch.ones(1, 1, 1))),
        (torch.max_pool2d, (torch.ones(1, 1, 1, 1), 1)),
        (torch.where, (torch.tensor(True), torch.ones(()), torch.ones(()))),
        (torch.stack, ([torch.ones(())],)),
        (torch.cumprod, (torch.ones(1), 0)),
        (torch.logsumexp, (torch.ones(1), 0)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_said_to_give_memory_of_its_own_does(function, args):
    assert memory_facts(None, "call_function", function) & FRESH
    operands = [t for t in torch.utils._pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
    result = function(*args)
    assert all(result.untyped_storage().data_ptr() != t.untyped_storage().data_ptr() for t in operands)


def test_out_arguments_are_written():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(torch.cos, (x,))
    graph.call_function(torch.add, (y, y), {"out": x})
    b = graph.call_function(torch.cos, (x,))
    graph.output((a, b))
    assert not cse(graph)


@settings(max_examples=60, deadline=None)
@given(programs(constants=True), st.booleans())
def test_nothing_is_seen_of_it(module, native):
    before = seen(module)
    nodes = len(module.graph.nodes)
    if native:
        graph = fastexport.from_fx(module)
        result = graph.eliminate_common_subexpressions()
        graph.lint()
        module = graph.to_fx(module)
    else:
        result = cse(module)
        module.graph.lint()
    assert len(module.graph.nodes) == nodes - len(result.removed)
    assert seen(module) == before
    assert not cse(module)


@settings(max_examples=40, deadline=None)
@given(programs(writes=False))
def test_every_pair_is_found(module):
    """Against a slow search: equal functional calls of the same operands."""
    graph = fastexport.from_fx(module)
    cse(graph)
    pure = [n for n in graph.nodes if n.op == "call_function" and n.target is not aten.dropout.default]
    keys = [repr((n.target, [(type(a), a) for a in n.args])) for n in pure]
    assert len(set(keys)) == len(keys)


# ---- as torch


@settings(max_examples=40, deadline=None)
@given(programs())
def test_policy_torch_on_random_programs(module):
    expected = CSEPass(get_CSE_banned_ops())(copy.deepcopy(module))
    graph = fastexport.from_fx(module)
    assert graph.eliminate_common_subexpressions(policy="torch") == expected.modified
    assert str(graph).split("\n")[1:] == str(expected.graph_module.graph).split("\n")[1:]


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    program, args = exported(name)
    module = program.graph_module
    expected = CSEPass(get_CSE_banned_ops())(copy.deepcopy(module))
    graph = fastexport.from_fx(module)
    assert graph.eliminate_common_subexpressions(policy="torch") == expected.modified
    assert str(graph).split("\n")[1:] == str(expected.graph_module.graph).split("\n")[1:]
    native = fastexport.from_export(program)
    cse(native)
    native.verify()
    with torch.no_grad():
        assert torch.equal(native.module()(*args), program.module()(*args))


# ---- doors, notes, subgraphs


def test_provenance():
    graph = calls((aten.cos.default, ("%x",)), (aten.cos.default, ("%x",)), output=["%cos_default", "%cos_default_1"])
    native = fastexport.from_fx(graph)
    cse(native)
    source = native.node("cos_default").meta["from_node"][-1]
    assert (source.name, source.pass_name) == ("cos_default_1", "eliminate_common_subexpressions")
    silent = fastexport.from_fx(graph)
    cse(silent, provenance=False)
    assert "from_node" not in silent.node("cos_default").meta
    cse(graph)
    (kept,) = graph.find_nodes(op="call_function", target=aten.cos.default)
    assert [(s.name, s.pass_name) for s in kept.meta["from_node"]] == [
        ("cos_default_1", "eliminate_common_subexpressions")
    ]


def test_subgraphs():
    root = torch.nn.Module()
    twice = [(aten.cos.default, ("%x",)), (aten.cos.default, ("%x",))]
    inner = calls(*twice, (aten.neg.default, ("%cos_default_1",)), output=["%cos_default", "%neg_default"])
    root.inner = fx.GraphModule(torch.nn.Module(), inner)
    graph = fx.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    module = fx.GraphModule(root, graph)
    native = fastexport.from_fx(module)
    assert not native.eliminate_common_subexpressions(recurse=False)
    assert native.eliminate_common_subexpressions(explain=True).reasons == {
        "inner/cos_default_1": "removed: the same as 'cos_default'"
    }
    assert cse(module).removed == ["inner/cos_default_1"]
    assert len(module.inner.graph.nodes) == 4


def test_programs_keep_their_signature():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.cos(), x.cos() + 1

    program = torch.export.export(Model(), (torch.ones(3),))
    native = fastexport.from_export(program)
    for p in (program, native):
        assert cse(p).removed == ["cos_1"]
        assert list(p.graph_signature.user_outputs) == ["cos", "add"]
    program.validate()
    native.verify()
    x = torch.rand(3)
    assert torch.equal(native.module()(x)[1], program.module()(x)[1])


def test_bad_arguments():
    with pytest.raises(TypeError):
        cse(3)
    with pytest.raises(ValueError, match="policy"):
        cse(fastexport.Graph(), policy="other")


def test_hostile_objects():
    class Bad:
        def __eq__(self, other):
            raise RuntimeError("eq")

        def __hash__(self):
            raise RuntimeError("hash")

    bad = Bad()
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    graph.output(tuple(graph.call_function(operator.add, (x, value)) for value in (bad, bad, Bad())))
    assert cse(graph).replaced == {"add_1": "add"}


def test_a_judge_that_changes_the_graph_is_stopped():
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    graph.output(tuple(graph.call_function(operator.add, (x, 1)) for _ in range(2)))

    def judge(op, target):
        graph.erase_node(graph.output_node())
        return 0

    with pytest.raises(fastexport.FastExportError):
        graph._eliminate_common_subexpressions(judge, (), False, False, False, None)
    assert len(graph.nodes) == 4


def test_owned_graphs_are_recompiled():
    graph = calls((aten.cos.default, ("%x",)), (aten.cos.default, ("%x",)), output=["%cos_default", "%cos_default_1"])
    module = owned(graph)
    assert cse(module) and module.code.count("cos.default") == 1
