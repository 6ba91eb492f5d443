"""prepare_pt2e and convert_pt2e under accelerate(): torchao's modules, observers, names, warnings and errors."""

import copy
import functools
import gc
import importlib
import itertools
import logging
import operator
import sys
import types
import warnings
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn
from torch.fx import traceback
from torch.fx.passes.utils import source_matcher_utils
from torch.fx.passes.utils.source_matcher_utils import get_source_partitions
from torch.utils._python_dispatch import TorchDispatchMode
from torchao.quantization.pt2e import graph_utils, observer, quantize_pt2e, quantizer, utils
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

import fastexport
from fastexport.acceleration._equal import find_difference
from fx_graphs import build, exported, graph_of, owned, recipes, root_module
from helpers import Counts, outcome

fx_utils = importlib.import_module("torch.ao.quantization.fx.utils")
prepare = importlib.import_module("torchao.quantization.pt2e.prepare")
constant_fold = importlib.import_module("torchao.quantization.pt2e.constant_fold")
aten = torch.ops.aten
PACKAGE = "fastexport.acceleration"
FAMILIES = ("_partitions", "_observers", "_members", "_folding")
ONLY = [entry.name for family in FAMILIES for entry in importlib.import_module(f"{PACKAGE}.{family}").REPLACEMENTS]


def accelerated(only=ONLY, **options):
    return fastexport.accelerate(only=only, **options)


def same(expected, found):
    difference = find_difference(expected, found)
    assert difference is None, difference
    return True


# ---- models


class Net(nn.Module):
    """Convolutions with and without bias, a shared one, a residual sum, pools, a linear layer with a batch norm."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 1)
        self.second_norm = nn.BatchNorm2d(4)
        self.shared = nn.Conv2d(4, 4, 1, bias=False)
        self.shared_norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 5)
        self.linear_norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 2, bias=False)

    def forward(self, x):
        x = torch.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(x)) + x
        y = torch.relu(y)
        y = self.shared_norm(self.shared(y))
        y = torch.nn.functional.hardtanh(self.shared_norm(self.shared(y)))
        y = torch.nn.functional.max_pool2d(y, 2)
        y = torch.nn.functional.adaptive_avg_pool2d(y, 1).flatten(1)
        return self.last(self.linear_norm(self.linear(y)))


@functools.cache
def program(name):
    """An exported program and its arguments; not to be changed."""
    if name != "net":
        return exported(name)
    torch.manual_seed(0)
    args = (torch.randn(2, 3, 8, 8),)
    return torch.export.export(Net().eval(), args), args


@functools.cache
def unlifted(name):
    return program(name)[0].module()


def module_of(name):
    """A copy; what it shares with other copies is equal in comparisons."""
    return copy.deepcopy(unlifted(name))


def x86_quantizer(**options):
    return x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(**options))


def xnnpack_quantizer():
    return xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))


QUANTIZERS = {
    "x86": x86_quantizer,
    "x86 dynamic": functools.partial(x86_quantizer, is_dynamic=True),
    "xnnpack": xnnpack_quantizer,
}


def quantized(module, args, make_quantizer, context):
    """All that a pipeline gives: modules and outputs on the way, warnings, and what was drawn at random afterwards."""
    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with context():
            prepared = quantize_pt2e.prepare_pt2e(module, make_quantizer())
        first = copy.deepcopy(prepared)
        observed = prepared(*args)
        with context():
            converted = quantize_pt2e.convert_pt2e(prepared)
        result = converted(*args)
    noted = [(str(each.message), each.category, each.filename, each.lineno) for each in given]
    return first, observed, converted, result, noted, torch.rand(3)


@pytest.mark.parametrize(
    "name, kind",
    [*(("net", kind) for kind in QUANTIZERS), ("resnet", "x86"), ("llama", "x86")],
)
def test_models(name, kind):
    args = program(name)[1]
    expected = quantized(module_of(name), args, QUANTIZERS[kind], stock_only)
    found = quantized(module_of(name), args, QUANTIZERS[kind], accelerated)
    assert same(expected, found)
    assert expected[0].code == found[0].code and expected[2].code == found[2].code


def stock_only():
    return accelerated(only=[])


@pytest.mark.parametrize("only", [*([name] for name in ONLY), ONLY], ids=[*ONLY, "all"])
def test_verified(only):
    quantized(module_of("net"), program("net")[1], x86_quantizer, lambda: accelerated(only, verify=True))


def test_everything_is_used():
    counts = {name: Counts(name) for name in ONLY}
    quantized(module_of("net"), program("net")[1], x86_quantizer, accelerated)
    quantized(module_of("net"), program("net")[1], xnnpack_quantizer, accelerated)
    assert {name for name, count in counts.items() if count()[0] == 0} == set()
    assert {name for name, count in counts.items() if count()[1]} == set()


# ---- source partitions


class Base(nn.Module):
    pass


class Derived(Base):
    pass


FUNCTIONS = ["f.linear", "f.relu", "f.add"]
MODULES = [Base, Derived, nn.Linear, "torch.nn.modules.linear.Linear", operator.add]
WANTED = [["linear"], ["relu", nn.Linear], [Base], [nn.Linear, operator.add, "add"], [torch.relu, "linear"], []]

nodes = st.tuples(
    st.sampled_from(["call_function", "get_attr"]),
    st.lists(st.integers(0, 9), max_size=3),
    st.none() | st.tuples(st.integers(0, 2), st.sampled_from(FUNCTIONS)),
    st.none() | st.lists(st.tuples(st.integers(0, 2), st.sampled_from(MODULES)), max_size=2),
    st.none() | st.lists(st.tuples(st.integers(0, 2), st.sampled_from([torch.relu, nn.Linear, "add"])), min_size=1),
)


def sourced(steps):
    graph = fx.Graph()
    made = [graph.placeholder("x")]
    for op, inputs, function, modules, stack in steps:
        args = tuple(made[i % len(made)] for i in inputs)
        node = graph.create_node(op, "w", ()) if op == "get_attr" else graph.call_function(torch.cat, args)
        if function is not None:
            node.meta["torch_fn"] = (f"call_{function[0]}", function[1])
        if modules is not None:
            node.meta["nn_module_stack"] = {str(i): (f"module_{n}", kind) for i, (n, kind) in enumerate(modules)}
        if stack is not None:
            node.meta["source_fn_stack"] = [(f"source_{n}", source) for n, source in stack]
        made.append(node)
    graph.output(made[-1])
    return graph


@settings(max_examples=50)
@given(st.lists(nodes, max_size=14))
def test_source_partitions_of_random_graphs(steps):
    graph = sourced(steps)
    keeps = [None, lambda node: node.op == "call_function" and len(node.args) != 1]
    for wanted, keep in itertools.product(WANTED, keeps):
        expected = get_source_partitions(graph, wanted, keep)
        with accelerated():
            found = source_matcher_utils.get_source_partitions(graph, wanted, keep)
        assert found == expected
        assert list(found) == list(expected)


@settings(max_examples=50)
@given(st.lists(nodes, max_size=14))
def test_sequences_of_random_graphs(steps):
    module = types.SimpleNamespace(graph=sourced(steps))
    for sequence in ([], ["linear"], ["linear", "relu"], [Base, "add", "linear"], ["relu", nn.Linear, torch.add]):
        expected = graph_utils.find_sequential_partitions(module, sequence)
        with accelerated():
            assert graph_utils.find_sequential_partitions(module, sequence) == expected


def test_sequences_of_nothing():
    module = types.SimpleNamespace(graph=sourced([("call_function", [0], (0, "f.relu"), None, None)]))
    with accelerated():
        assert graph_utils.find_sequential_partitions(module, []) == [()]
        assert graph_utils.find_sequential_partitions(module, ["relu", "linear"]) == []


def test_sequence_with_equal_types():
    module = types.SimpleNamespace(graph=fx.Graph())
    expected = outcome(graph_utils.find_sequential_partitions, module, [torch.add, operator.add])
    with accelerated():
        assert outcome(graph_utils.find_sequential_partitions, module, [torch.add, operator.add]) == expected
    assert expected[0] is ValueError


@pytest.mark.parametrize(
    "meta",
    [
        {"torch_fn": ("call", "nodot")},
        {"torch_fn": ("call",)},
        {"nn_module_stack": {"": ("one",)}},
        {"nn_module_stack": {"": ("module", None)}},
        {"source_fn_stack": []},
        {"source_fn_stack": [("call", None)]},
        {"source_fn_stack": [("call", [1])]},
    ],
)
def test_odd_metadata_is_left_to_torch(meta):
    graph = graph_of(("call_function", torch.relu, ("%x",)))
    list(graph.nodes)[1].meta = meta
    expected = outcome(get_source_partitions, graph, ["relu", nn.Linear])
    counts = Counts("source_partitions")
    with accelerated():
        assert outcome(source_matcher_utils.get_source_partitions, graph, ["relu", nn.Linear]) == expected
    assert counts() == (0, 1)


def test_a_source_with_its_own_equality():
    class Anything:
        __hash__ = None

        def __eq__(self, other):
            return True

    graph = sourced([("call_function", [0], (0, "f.relu"), None, None)])
    expected = get_source_partitions(graph, [Anything()])
    counts = Counts("source_partitions")
    with accelerated():
        assert source_matcher_utils.get_source_partitions(graph, [Anything()]) == expected
    assert counts() == (0, 1)


def test_a_patched_connection(monkeypatch):
    steps = [("call_function", [0], (0, f"f.{name}"), None, None) for name in ("linear", "relu")]
    module = types.SimpleNamespace(graph=sourced(steps))
    monkeypatch.setattr(graph_utils, "check_subgraphs_connected", lambda first, second: True)
    with accelerated():
        assert len(graph_utils.find_sequential_partitions(module, ["linear", "relu"])) == 1


def test_a_quantizer_that_edits_the_graph_while_it_annotates():
    class Editing(x86.X86InductorQuantizer):
        def _annotate_conv2d_unary(self, gm, *args):
            for node in gm.graph.find_nodes(op="call_function", target=aten.relu.default):
                node.meta.pop("torch_fn")
                node.meta.pop("nn_module_stack", None)
            super()._annotate_conv2d_unary(gm, *args)

    def run(context):
        module = module_of("net")
        with context():
            editing = Editing().set_global(x86.get_default_x86_inductor_quantization_config())
            return quantize_pt2e.prepare_pt2e(module, editing)

    counts = Counts("x86_annotate")
    assert same(run(stock_only), run(accelerated))
    assert counts() == (0, 1)


def test_another_torchao(monkeypatch):
    monkeypatch.setattr("torchao.__version__", "0.19.0")
    counts = Counts("x86_annotate")
    with accelerated():
        quantize_pt2e.prepare_pt2e(module_of("net"), x86_quantizer())
    assert counts() == (0, 1)


def test_a_patched_method_of_a_quantizer(monkeypatch):
    calls = []
    stock = x86.X86InductorQuantizer._annotate_linear
    monkeypatch.setattr(
        x86.X86InductorQuantizer, "_annotate_linear", lambda self, *args: (calls.append(1), stock(self, *args))[1]
    )
    counts = Counts("x86_annotate")
    with accelerated():
        quantize_pt2e.prepare_pt2e(module_of("net"), x86_quantizer())
    assert calls and counts() == (0, 1)


# ---- names of attributes


def next_name(module, prefix="p_"):
    return fx_utils.get_new_attr_name_with_prefix(prefix)(module)


def give(module, prefix="p_"):
    name = next_name(module, prefix)
    setattr(module, name, nn.Identity())
    return name


def test_names_count_on():
    module = nn.Module()
    with accelerated():
        assert [give(module) for _ in range(4)] == ["p_0", "p_1", "p_2", "p_3"]
        assert next_name(module) == next_name(module) == "p_4"
        assert give(module, "a.b") == "a_b0"


@pytest.mark.parametrize("free", [0, 1, 3])
def test_a_deletion_frees_a_name(free):
    module = nn.Module()
    with accelerated():
        for _ in range(4):
            give(module)
        delattr(module, f"p_{free}")
        assert [give(module), give(module)] == [f"p_{free}", "p_4"]
        delattr(module, f"p_{free}")
        module.another = nn.Identity()
        assert next_name(module) == f"p_{free}"


@pytest.mark.parametrize("space", ["_modules", "_parameters", "_buffers", "__dict__"])
def test_names_in_every_place_of_a_module(space):
    values = {"_modules": nn.Identity, "_parameters": lambda: nn.Parameter(torch.ones(1)), "__dict__": int}

    def add(module, name):
        if space == "_buffers":
            module.register_buffer(name, torch.ones(1))
        else:
            setattr(module, name, values[space]())

    module = nn.Module()
    with accelerated():
        for i in range(3):
            assert next_name(module) == f"p_{i}"
            add(module, f"p_{i}")
        delattr(module, "p_1")
        assert next_name(module) == "p_1"


def test_names_of_the_class():
    class Named(nn.Module):
        p_0 = 1

    with accelerated():
        module = Named()
        assert [give(module), give(module)] == ["p_1", "p_2"]
        del Named.p_0
        assert next_name(module) == "p_0"


def test_a_module_with_its_own_getattr():
    class Full(nn.Module):
        def __getattr__(self, name):
            if name == "p_0":
                return 1
            return super().__getattr__(name)

    counts = Counts("new_attr_name")
    with accelerated():
        assert next_name(Full()) == "p_1"
    assert counts() == (0, 1)


def test_names_of_modules_in_turn():
    first, second = nn.Module(), nn.Module()
    with accelerated():
        assert [give(first), give(second), give(first), give(second)] == ["p_0", "p_0", "p_1", "p_1"]


def test_names_keep_no_module():
    module = nn.Module()
    module.child = nn.Module()
    with accelerated():
        give(module)
        held = weakref.ref(module), weakref.ref(module.child)
        del module
        gc.collect()
        assert held[0]() is None and held[1]() is None


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["give", "delete", "replace"]), st.integers(0, 5)), max_size=20))
def test_names_are_those_of_a_scan(steps):
    module, twin = nn.Module(), nn.Module()
    with accelerated():
        for do, number in steps:
            name = f"p_{number}"
            if do == "give":
                expected = fx_utils.get_new_attr_name_with_prefix.__wrapped__("p_")(twin)
                assert give(module) == expected
                setattr(twin, expected, nn.Identity())
            elif hasattr(module, name):
                for each in (module, twin):
                    delattr(each, name)
                    if do == "replace":
                        setattr(each, name, 1)


# ---- observers


def made(spec, is_qat=False):
    return prepare._create_obs_or_fq_from_qspec(spec, {}, is_qat)


def specification(constructor, **options):
    return quantizer.QuantizationSpec(
        dtype=torch.int8,
        observer_or_fake_quant_ctr=constructor,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_channel_symmetric,
        ch_axis=1,
        **options,
    )


@pytest.mark.parametrize(
    "constructor, aside",
    [
        (observer.PerChannelMinMaxObserver.with_args(eps=2**-12), 0),
        (observer.PerChannelMinMaxObserver, 0),
        (observer.PerChannelMinMaxObserver.with_args(factory_kwargs={"dtype": torch.float64}), 1),
        (observer.PerChannelMinMaxObserver.with_callable_args(eps=lambda: 0.5), 1),
    ],
)
def test_observers(constructor, aside):
    spec = specification(constructor)
    expected = made(spec)
    counts = Counts("create_observer")
    with accelerated():
        found = made(spec)
    assert same(expected, found)
    assert counts() == (1 - aside, aside)


def test_a_constructor_that_is_copied_by_code_of_its_own():
    class Counting(observer.PerChannelMinMaxObserver):
        copies = 0

    class Constructor(observer.PartialWrapper):
        def __deepcopy__(self, memo):
            Counting.copies += 1
            return self

    spec = specification(Constructor(functools.partial(Counting)))
    with accelerated():
        made(spec)
    assert Counting.copies == 2


def test_a_nested_constructor_fails_as_it_does_in_torchao():
    spec = specification(observer.PerChannelMinMaxObserver.with_args(eps=1.0).with_args(eps=2.0))
    expected = outcome(made, spec)
    with accelerated():
        assert outcome(made, spec) == expected
    assert expected[0] is AttributeError


def test_a_missing_shared_specification():
    spec = quantizer.SharedQuantizationSpec(fx.Graph().placeholder("x"))
    expected = outcome(made, spec)
    with accelerated():
        assert outcome(made, spec) == expected
    assert expected[0] is AssertionError


def test_a_patched_way_to_the_arguments(monkeypatch):
    stock = prepare._get_observer_kwargs
    monkeypatch.setattr(prepare, "_get_observer_kwargs", lambda spec: {**stock(spec), "quant_max": 7})
    with accelerated():
        assert made(specification(observer.PerChannelMinMaxObserver)).quant_max == 7


# ---- folding batch norms


def norm_module(*, dead=False, target=aten.batch_norm.default, labels=("first", "second")):
    """conv -> batch norm -> relu, for each label; with a dead conv and batch norm after the first if asked for."""
    module = nn.Module()
    torch.manual_seed(0)
    graph = fx.Graph()

    def attribute(name, value):
        module.register_parameter(name, nn.Parameter(value, requires_grad=False))
        return graph.get_attr(name)

    def block(x, label):
        weight = attribute(f"{label}_weight", torch.randn(3, 3, 1, 1))
        conv = graph.call_function(aten.conv2d.default, (x, weight))
        numbers = [attribute(f"{label}_{part}", torch.rand(3) + 0.5) for part in ("scale", "shift", "mean", "var")]
        if target is aten.batch_norm.default:
            norm = graph.call_function(target, (conv, *numbers, False, 0.1, 1e-5, True))
        else:
            pair = graph.call_function(target, (conv, *numbers, 0.1, 1e-5))
            norm = graph.call_function(operator.getitem, (pair, 0))
            graph.call_function(operator.getitem, (pair, 1))
        return graph.call_function(aten.relu.default, (norm,))

    x = block(graph.placeholder("x"), labels[0])
    if dead:
        block(x, "dead")
    for label in labels[1:]:
        x = block(x, label)
    graph.output((x,))
    return fx.GraphModule(module, graph)


def fused(module, context, fuse="_fuse_conv_bn_", change=lambda copied: None):
    """The outcome, and the copy of the module that was worked on."""
    module = copy.deepcopy(module)
    change(module)
    with context():
        result = outcome(getattr(utils, fuse), module)
    assert "eliminate_dead_code" not in vars(module.graph)
    return result, module


@pytest.mark.parametrize("target", [aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default])
@pytest.mark.parametrize("dead", [False, True])
def test_dead_batch_norms_are_not_folded(dead, target):
    module = norm_module(dead=dead, target=target)
    counts = Counts("fuse_conv_bn")
    expected, found = fused(module, stock_only), fused(module, accelerated)
    assert same(expected, found)
    assert counts() == (1, 0)
    folded = expected[1]
    assert not hasattr(folded, "dead_weight_bias") and hasattr(folded, "second_weight_bias")


def test_dead_code_is_looked_for_around_each_fold():
    asked = []
    code = fx.Node.is_impure.__code__
    module = norm_module()
    with accelerated():
        sys.setprofile(lambda frame, event, arg: asked.append(1) if event == "call" and frame.f_code is code else None)
        try:
            utils._fuse_conv_bn_(module)
        finally:
            sys.setprofile(None)
    # Everything is looked at in the first elimination and in the last one, and few nodes in between.
    assert len(asked) <= 2 * 18 + 8


def test_erasures_come_in_torchs_order():
    def run(context):
        module = norm_module()
        erased = []
        module._register_erase_node_hook(lambda node: erased.append(node.name))
        with context():
            utils._fuse_conv_bn_(module)
        return erased

    counts = Counts("fuse_conv_bn")
    assert run(accelerated) == run(stock_only) != []
    assert counts() == (0, 1)


def test_batch_norms_that_train():
    module = norm_module(target=aten.batch_norm.default)
    for node in module.graph.find_nodes(op="call_function", target=aten.batch_norm.default):
        node.args = (*node.args[:5], True, *node.args[6:])
    assert same(fused(module, stock_only), fused(module, accelerated))


def test_weights_in_two_convolutions():
    module = module_of("net")
    assert same(fused(module, stock_only), fused(module, accelerated))


def test_linear_batch_norms():
    module = module_of("net")
    expected, found = (fused(module, context, "_fuse_linear_bn_") for context in (stock_only, accelerated))
    assert same(expected, found)
    assert "linear_norm.weight" in dict(module.named_parameters())
    assert not any(node.target == "linear_norm.weight" for node in expected[1].graph.nodes)


def test_no_batch_norm_at_all():
    module = fx.GraphModule(nn.Module(), graph_of(("call_function", torch.relu, ("%x",)), output="%relu"))
    code = module._code
    assert fused(module, accelerated)[0] == ("result", None)
    assert module._code is code


def test_a_name_that_is_taken():
    def rename(module):
        # The second bias will get this name, which the books of the graph don't know to be in use.
        list(module.graph.nodes)[0].name = "second_weight_bias"

    module = norm_module()
    expected, found = (fused(module, context, change=rename) for context in (stock_only, accelerated))
    assert same(expected, found)
    assert expected[0][0] is RuntimeError and "redefined name" in expected[0][1]


def test_an_error_on_the_way():
    def spoil(module):
        module.second_mean = nn.Parameter(torch.ones(5))

    module = norm_module()
    expected, found = (fused(module, context, change=spoil) for context in (stock_only, accelerated))
    assert same(expected, found)
    assert expected[0][0] is RuntimeError and hasattr(expected[1], "first_weight_bias")


@pytest.mark.parametrize("impure", [False, True])
def test_each_fold_leaves_nothing_behind(impure, monkeypatch):
    """Seen where a later fold fails, so that the last elimination, of everything, is not come to."""

    def spoil(module):
        module.fourth_mean = nn.Parameter(torch.ones(5))

    if impure:  # torchao erases such batch norms itself, after it has looked for dead code
        monkeypatch.setattr(fx.node, "_side_effectful_functions", {aten.batch_norm.default})
    module = norm_module(labels=("first", "second", "third", "fourth"))
    expected, found = (fused(module, context, change=spoil) for context in (stock_only, accelerated))
    assert same(expected, found)
    assert expected[0][0] is RuntimeError
    assert any(node.target == "third_scale" for node in found[1].graph.nodes) is impure
    assert not any(node.target == "second_scale" for node in found[1].graph.nodes)


def test_subgraphs_are_swept_and_compiled_each_time():
    module = norm_module()
    inner = fx.GraphModule(nn.Module(), graph_of(("call_function", torch.relu, ("%x",))))
    module.inner = inner
    with module.graph.inserting_before(list(module.graph.nodes)[1]):
        holder = module.graph.get_attr("inner")
    module.graph.output_node().args = ((*module.graph.output_node().args[0], holder),)
    module.recompile()
    counts = Counts("fuse_conv_bn")
    expected, found = fused(module, stock_only), fused(module, accelerated)
    assert same(expected, found)
    assert len(expected[1].inner.graph.nodes) == 2
    assert counts() == (0, 1)


@pytest.mark.parametrize("name", ["lint", "eliminate_dead_code", "erase_node"])
def test_patched_methods_of_graphs(name, monkeypatch):
    calls = []
    stock = getattr(fx.Graph, name)
    monkeypatch.setattr(fx.Graph, name, lambda self, *args: (calls.append(1), stock(self, *args))[1])
    expected = len((fused(norm_module(), stock_only), calls)[1])
    fused(norm_module(), accelerated)
    assert len(calls) == 2 * expected


def test_the_log_of_what_is_eliminated(caplog):
    module = norm_module()
    logs = []
    for context in (stock_only, accelerated):
        caplog.clear()
        with caplog.at_level(logging.INFO, "torch.fx.graph"):
            fused(module, context)
        logs.append(sorted(len(record.getMessage()) for record in caplog.records))
    assert logs[0] == logs[1] != []


# ---- folding constants


def last_uses(module):
    return constant_fold.ConstantFolder.node_to_last_non_output_use(types.SimpleNamespace(module=module))


@settings(max_examples=50)
@given(recipes)
def test_last_uses_in_random_graphs(recipe):
    module = types.SimpleNamespace(graph=build(recipe))
    expected = last_uses(module)
    with accelerated():
        found = last_uses(module)
    assert list(found.items()) == list(expected.items()) and type(found) is type(expected)


def test_nodes_in_slices_are_not_uses():
    module = types.SimpleNamespace(
        graph=graph_of(
            ("call_function", torch.relu, ("%x",)),
            ("call_function", operator.getitem, ("%x", (slice(None, None), 3))),
            output=["%getitem"],
        )
    )
    relu, getitem = list(module.graph.nodes)[1:3]
    getitem.args = (getitem.args[0], slice(relu, 2))
    with accelerated():
        assert last_uses(module) == {getitem: [getitem.args[0], getitem]}


def folder_of(module, context, kind=None, **options):
    with context(), torch.no_grad():
        folder = (kind or constant_fold.ConstantFolder)(module, **options)
        result = outcome(folder.run)
    assert "run_node" not in vars(folder)
    kept = dict(folder.replaced_uses), folder.mutable_buffers, folder.user_to_last_uses
    return result[0], folder.node_replacements, *kept


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.arange(6.0))
        self.register_buffer("count", torch.zeros(6))
        self.w = nn.Parameter(torch.ones(6))

    def forward(self, x):
        b = torch.cat([self.a + 1, self.w])
        c = torch.cat([x, self.a * 2])
        self.count.copy_(self.count + 1)
        return b + c, self.a.split(3)[0] * 2, torch.rand(6) + self.w, torch.zeros(2) + 1, self.count.neg()


@functools.cache
def constants():
    return torch.export.export(Constants(), (torch.ones(6),)).module()


@pytest.mark.parametrize("skip_constructors", [False, True])
def test_folding_constants(skip_constructors):
    counts = Counts("constant_folder_run")
    expected = folder_of(constants(), stock_only, skip_constructors=skip_constructors)
    found = folder_of(constants(), accelerated, skip_constructors=skip_constructors)
    assert list(found[1]) == list(expected[1]) and same(list(expected[1].values()), list(found[1].values()))
    assert found[0] == expected[0] and found[2:] == expected[2:]
    assert expected[1] and expected[3]
    assert counts() == (1, 0)


def test_folding_quantized_weights_leaves_dequantization():
    with torch.no_grad():
        prepared = quantize_pt2e.prepare_pt2e(module_of("net"), x86_quantizer())
        prepared(*program("net")[1])
        module = quantize_pt2e.convert_pt2e(prepared, fold_quantize=False)
    expected = folder_of(module, stock_only, skip_constructors=True)
    found = folder_of(module, accelerated, skip_constructors=True)
    assert list(found[1]) == list(expected[1]) and same(list(expected[1].values()), list(found[1].values()))
    assert found[2] == expected[2]
    assert all("dequantize" not in node.name for node in found[1]) and len(found[1]) >= 5


class Watching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def test_whoever_watches_operators_sees_all_of_them():
    with torch.no_grad():
        prepared = quantize_pt2e.prepare_pt2e(module_of("net"), x86_quantizer())
        prepared(*program("net")[1])
        module = quantize_pt2e.convert_pt2e(prepared, fold_quantize=False)
    seen = []
    for context in (stock_only, accelerated):
        copied = norm_module()
        with Watching() as watching:
            folder_of(module, context)
            with context():
                utils._fuse_conv_bn_(copied)
        seen.append(watching.seen)
    assert seen[0] == seen[1] and any("dequantize" in each for each in seen[0])


def test_folders_of_other_kinds():
    class Mine(constant_fold.ConstantFolder):
        seen = 0

        def run_node(self, node):
            Mine.seen += 1
            return super().run_node(node)

    counts = Counts("constant_folder_run")
    folder_of(constants(), accelerated, Mine)
    assert Mine.seen == len(constants().graph.nodes) - 1
    assert counts() == (0, 1)


def test_folders_with_lifted_constants():
    counts = Counts("constant_folder_run")
    options = {"lifted_constant_names": ["w"]}
    expected, found = (folder_of(constants(), context, **options) for context in (stock_only, accelerated))
    assert list(found[1]) == list(expected[1]) and found[2:] == expected[2:]
    assert counts() == (0, 1)


def test_folding_while_metadata_is_preserved():
    counts = Counts("constant_folder_run")
    with traceback.preserve_node_meta():
        folder_of(constants(), accelerated)
    assert counts() == (0, 1)


def test_folding_what_fails():
    graph = graph_of(
        ("get_attr", "w", ()),
        ("call_function", aten.view.default, ("%w", [7])),
        output="%view",
    )
    root = nn.Module()
    root.register_buffer("w", torch.ones(6))
    module = fx.GraphModule(root, graph)
    outcomes = []
    for context in (stock_only, accelerated):
        with context():
            outcomes.append(outcome(constant_fold.ConstantFolder(module).run))
    assert outcomes[0] == outcomes[1] and outcomes[0][0] is RuntimeError


def test_dequantizing_with_other_parameters():
    quantized_ops = torch.ops.quantized_decomposed
    graph = graph_of(
        ("get_attr", "w", ()),
        ("call_function", quantized_ops.quantize_per_tensor.default, ("%w", 0.1, 0, 0, 255, torch.uint8)),
        (
            "call_function",
            quantized_ops.dequantize_per_tensor.default,
            ("%quantize_per_tensor", 0.1, 0, -128, 127, torch.int8),
        ),
        output="%dequantize_per_tensor",
    )
    root = nn.Module()
    root.register_buffer("w", torch.ones(6))
    module = fx.GraphModule(root, graph)
    outcomes = []
    for context in (stock_only, accelerated):
        with context():
            outcomes.append(outcome(constant_fold.ConstantFolder(module).run))
    assert outcomes[0] == outcomes[1] and outcomes[0][0] != "result"


def test_a_patched_interpreter(monkeypatch):
    seen = []
    stock = fx.Interpreter.get_attr
    monkeypatch.setattr(fx.Interpreter, "get_attr", lambda self, *args: (seen.append(1), stock(self, *args))[1])
    with accelerated():
        constant_fold.ConstantFolder(constants()).run()
    assert seen


# ---- members of modules


def full_module():
    module = nn.Module()
    module.deep = nn.Module()
    module.deep.linear = nn.Linear(2, 2)
    module.deep.norm = nn.BatchNorm1d(2)
    module.deep.register_buffer("passing", torch.ones(1), persistent=False)
    module.deep.note = "text"
    module.deep.gone = None
    module.register_module("none", None)
    return module


def listing(module):
    """Members by path with what holds them, in order; identities, except for modules made on the way."""
    return {
        path: (type(child), vars(child).get("note"), sorted(child._non_persistent_buffers_set))
        + tuple([(name, id(value)) for name, value in space.items()] for space in (child._parameters, child._buffers))
        + (list(child._modules),)
        for path, child in module.named_modules(remove_duplicate=False)
    }


def copied_members(context, targets, prepared=lambda module: None, kind=nn.Module, source=None):
    source = SOURCE if source is None else source
    module = kind()
    prepared(module)
    with context():
        outcomes = [outcome(fx.graph_module._copy_attr, source, module, target) for target in targets]
    return outcomes, listing(module)


SOURCE = full_module()


class WithLinear(nn.Module):
    deep = None
    linear = property(lambda self: 1)


@pytest.mark.parametrize(
    "targets",
    [
        ["deep.linear.weight", "deep.linear.bias", "deep.linear.weight", "deep.norm.running_mean"],
        ["deep.linear", "deep.linear.weight", "deep"],
        ["deep", "deep.linear.weight", "deep.linear", "deep.passing"],
        ["deep.passing", "deep.note", "deep.gone"],
        ["deep.norm.num_batches_tracked", "deep.norm"],
        ["deep.lost", "lost.deep", "none.x", "", "deep.", "deep..weight"],
        ["none"],
    ],
    ids=lambda targets: targets[0],
)
@pytest.mark.parametrize("kind", [nn.Module, WithLinear], ids=lambda kind: kind.__name__)
def test_copied_members(targets, kind):
    assert copied_members(accelerated, targets, kind=kind) == copied_members(stock_only, targets, kind=kind)


@pytest.mark.parametrize("name", ["deep", "linear"])
def test_copied_members_over_others(name):
    parameter = nn.Parameter(torch.ones(1))

    def prepared(module):
        module.register_parameter(name, parameter)

    for targets in (["deep.linear.weight"], ["deep"]):
        expected = copied_members(stock_only, targets, prepared)
        assert copied_members(accelerated, targets, prepared) == expected


def test_hooks_that_see_new_members():
    seen = []
    handle = nn.modules.module.register_module_parameter_registration_hook(lambda *args: seen.append(args[1]))
    try:
        copied_members(accelerated, ["deep.linear.weight"])
    finally:
        handle.remove()
    assert seen == ["weight"]


def test_modules_with_their_own_setattr():
    class Careful(nn.Module):
        def __setattr__(self, name, value):
            vars(self).setdefault("seen", []).append(name)
            super().__setattr__(name, value)

    module = Careful()
    with accelerated():
        fx.graph_module._copy_attr(SOURCE.deep.linear, module, "weight")
    assert module.seen[-1] == "weight"


# ---- submodules that nothing uses


def pruned(make, context):
    module = make()
    with context():
        module.delete_all_unused_submodules()
    return [name for name, _ in module.named_modules()]


def test_unused_submodules():
    def make():
        calls = [("call_module", name, ("%x",)) for name in ("deep.relu", "gone.x")]
        module = owned(graph_of(*calls, ("get_attr", "branch.leaf.w", ())))
        module.branch, module.twig = nn.Module(), nn.Sequential(nn.Linear(1, 1), nn.ReLU())
        module.branch.leaf, module.branch.other = nn.Linear(1, 1), nn.ReLU()
        module.alias = module.deep
        module.deep.relu.inner = nn.ReLU()
        return module

    expected = pruned(make, stock_only)
    assert pruned(make, accelerated) == expected
    assert "deep.relu.inner" in expected and "branch.leaf" in expected and "twig" not in expected


def test_unused_submodules_are_deleted_by_the_modules_own_method():
    class Careful(fx.GraphModule):
        asked = ()

        def delete_submodule(self, target):
            self.asked = (*self.asked, target)
            return False

    module = Careful(root_module(), graph_of(("call_function", torch.relu, ("%x",))))
    module.child = nn.Sequential(nn.ReLU())
    with accelerated():
        module.delete_all_unused_submodules()
    assert module.asked == ("", "child", "child.0")
