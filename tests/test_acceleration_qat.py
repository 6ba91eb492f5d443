"""Patterns of quantization-aware training under accelerate(): torchao's graphs, with fewer exports."""

import copy
import functools
import gc
import itertools
import weakref
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch.overrides import TorchFunctionMode

pytest.importorskip("torchao")

import torchao.quantization.pt2e.qat_utils as qat_utils
import torchao.testing.pt2e._xnnpack_quantizer_utils as xnnpack_utils
from torchao.quantization.pt2e import export_utils
from torchao.quantization.pt2e import utils as pt2e_utils
from torchao.quantization.pt2e.convert import _convert_to_reference_decomposed_fx
from torchao.quantization.pt2e.export_utils import WrapperModule
from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

import fastexport
from fastexport.acceleration import _matching, _qat
from fx_graphs import modules_of, state

aten = torch.ops.aten
EXPORT = "_get_aten_graph_module_for_pattern"
ONLY = [
    "pattern_export",
    "qat_fuse_conv_bn",
    "qat_fold_conv_bn",
    "xnnpack_annotate_conv_bn",
    "replace_pattern",
    "subgraph_match",
]


def accelerated(only=ONLY, **options):
    return fastexport.accelerate(only=only, **options)


@pytest.fixture(autouse=True)
def nothing_kept():
    _qat.clear()
    yield
    _qat.clear()


@pytest.fixture
def exports(monkeypatch):
    """The patterns that are exported, one after the other."""
    done = []
    export = torch.export.export

    def counted(pattern, *args, **kwargs):
        done.append(getattr(getattr(pattern, "fn", None), "__name__", None))
        return export(pattern, *args, **kwargs)

    monkeypatch.setattr(torch.export, "export", counted)
    return done


def tensors(count, dimensions=2):
    return (torch.randn(1, 1, *[3] * dimensions), torch.randn(1, 1, *[1] * dimensions), *map(torch.randn, [1] * count))


def plain_meta(module):
    """What nodes say of themselves, but ids of graphs and fake tensors, which are new in each export."""
    return [
        {
            key: [(source.name, source.pass_name) for source in value] if key == "from_node" else repr(value)
            for key, value in node.meta.items()
            if key != "seq_nr"  # counts what autograd has done in this thread
        }
        for node in module.graph.nodes
    ]


def nodes_of(module):
    found = state(module.graph)
    for node in found["nodes"]:
        node.pop("meta")
    return found


def assert_same(module, expected):
    assert type(module).__mro__[1:] == type(expected).__mro__[1:]
    assert vars(module).keys() == vars(expected).keys()
    assert module.code == expected.code
    assert nodes_of(module) == nodes_of(expected)
    assert plain_meta(module) == plain_meta(expected)
    assert module.training == expected.training


# ---- graphs that are kept

PATTERNS = [
    (qat_utils._get_conv_bn_pattern, (F.conv2d,), tensors(5)),
    (qat_utils._get_qat_conv_bn_pattern, (F.conv_transpose1d,), tensors(5, 1)),
    (qat_utils._get_quantized_qat_conv_bn_pattern, (False, False, False, F.conv2d, True), tensors(4)),
]


@pytest.mark.parametrize("make, options, inputs", PATTERNS)
def test_a_copy_is_what_export_gives(make, options, inputs, exports):
    expected = pt2e_utils._get_aten_graph_module_for_pattern(make(*options), inputs)
    with accelerated():
        first = qat_utils._get_aten_graph_module_for_pattern(make(*options), inputs)
        second = pt2e_utils._get_aten_graph_module_for_pattern(make(*options), inputs)
    assert len(exports) == 2
    for module in (first, second):
        assert_same(module, expected)
        with pytest.raises(NotImplementedError):
            module.train()
        assert module.train.__self__ is module
    third, fourth = (copy.deepcopy(module) for module in (expected, second))
    assert third.code == fourth.code


def test_copies_share_nothing_that_is_written_to():
    make, options, inputs = PATTERNS[0]
    with accelerated():
        modules = [pt2e_utils._get_aten_graph_module_for_pattern(make(*options), inputs) for _ in range(3)]
        code = modules[1].code
        for module in modules[:2]:
            for node in module.graph.nodes:
                node.meta["nn_module_stack"] = {}
                node.meta["from_node"].clear()
            module.graph.erase_node(module.graph.find_nodes(op="output")[0])
            module.recompile()
        again = pt2e_utils._get_aten_graph_module_for_pattern(make(*options), inputs)
    assert again.code == modules[2].code == code
    assert plain_meta(again) == plain_meta(modules[2])
    assert all(node.meta["from_node"] for node in again.graph.nodes)
    assert len({id(module.graph) for module in [*modules, again]}) == 4


def kept(pattern=None, inputs=None, **kwargs):
    """Whether the graph of a pattern is one that was kept."""
    before = len(_qat._graphs)
    with accelerated():
        pattern = qat_utils._get_conv_bn_pattern(F.conv2d) if pattern is None else pattern
        qat_utils._get_aten_graph_module_for_pattern(pattern, tensors(5) if inputs is None else inputs, **kwargs)
    return len(_qat._graphs) == before


@pytest.fixture
def unexported(monkeypatch):
    """Instead of exporting, makes a graph without looking at the pattern; the patterns, one after the other."""
    done = []
    monkeypatch.setattr(torch.export, "export", lambda pattern, *args, **kwargs: done.append(pattern) or Program())
    return done


class Program:
    def module(self):
        return fx.symbolic_trace(torch.nn.ReLU())


def test_what_a_graph_depends_on(unexported, monkeypatch):
    assert not kept()
    assert kept()
    assert kept(inputs=tensors(5))
    inputs = tensors(5)
    assert not kept(inputs=(inputs[0].double(), *inputs[1:]))
    assert not kept(inputs=(inputs[0].requires_grad_(), *inputs[1:]))
    assert not kept(inputs=(torch.randn(1, 1, 4, 4), *inputs[1:]))
    assert not kept(inputs=(torch.randn(1, 1, 3, 3).mT, *inputs[1:]))
    assert not kept(inputs=(*inputs[1:3], inputs[2], *inputs[3:], inputs[0]))
    assert not kept(inputs=(*inputs[:5], inputs[5], inputs[5]))
    assert not kept(inputs=tensors(4), extra=torch.randn(1))
    assert not kept(pattern=qat_utils._get_conv_bn_pattern(F.conv1d))
    assert not kept(pattern=qat_utils._get_conv_bn_pattern(F.conv2d).eval())
    with torch.no_grad():
        assert not kept()
        assert kept()
    with torch.inference_mode():
        assert not kept(inputs=inputs)
    torch.set_default_dtype(torch.float64)
    try:
        assert not kept(inputs=tuple(each.float() for each in inputs))
    finally:
        torch.set_default_dtype(torch.float32)
    with torch._dynamo.config.patch(assume_static_by_default=False):
        assert not kept()
    with monkeypatch.context() as patch:
        patch.setattr(F, "batch_norm", lambda *args, **kwargs: args[0])
        assert not kept()
    assert kept()


def test_flags_of_patterns_are_told_apart(unexported):
    flags = [(True, True, True), (True, True, False), (True, False, False), (False, True, True)]
    for flag in flags:
        assert not kept(qat_utils._get_quantized_qat_conv_bn_pattern(*flag, F.conv2d, True), tensors(4))
        assert not kept(qat_utils._get_quantized_qat_conv_bn_pattern(*flag, F.conv2d, False), tensors(4))
    assert kept(qat_utils._get_quantized_qat_conv_bn_pattern(*flags[0], F.conv2d, True), tensors(4))


def test_under_modes_nothing_is_kept(unexported):
    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    inputs = tensors(5)
    for mode in (Mode(), torch.autocast("cpu"), torch.device("cpu"), fx.traceback.preserve_node_meta()):
        with mode:
            kept(inputs=inputs)
    assert not _qat._graphs


def test_patterns_of_users_are_not_kept(unexported):
    module = torch.nn.Linear(2, 2)

    def mine(x):
        return module(x)

    class Wrapper(WrapperModule):
        pass

    hooked = qat_utils._get_conv_bn_pattern(F.conv2d)
    hooked.register_forward_hook(lambda *args: None)
    extended = qat_utils._get_conv_bn_pattern(F.conv2d)
    extended.scale = torch.nn.Parameter(torch.ones(1))
    function = qat_utils._get_conv_bn_pattern(lambda *args: module(*args))
    for pattern in (WrapperModule(mine), Wrapper(hooked.fn), hooked, extended, function, module):
        kept(pattern)
    assert not _qat._graphs


def test_patterns_and_inputs_are_not_kept_alive(unexported):
    pattern, inputs = qat_utils._get_conv_bn_pattern(F.conv2d), tensors(5)
    held = [weakref.ref(each) for each in (pattern, *inputs)]
    assert not kept(pattern, inputs)
    del pattern, inputs, unexported[:]
    gc.collect()
    assert _qat._graphs
    assert [each() for each in held] == [None] * 8


def test_no_more_are_kept_than_there_is_room_for(unexported, monkeypatch):
    monkeypatch.setattr(_qat, "_ROOM", 3)
    sizes = [torch.randn(1, 1, 3, size) for size in range(3, 9)]
    for size in sizes:
        kept(inputs=(size, *tensors(5)[1:]))
    assert len(_qat._graphs) == 3
    assert kept(inputs=(sizes[-1], *tensors(5)[1:]))
    kept(inputs=(sizes[0], *tensors(5)[1:]))
    assert len(_qat._graphs) == 3


# ---- what patterns call


@pytest.mark.parametrize("convolution, dimensions", [(F.conv1d, 1), (F.conv_transpose1d, 1), (F.conv_transpose2d, 2)])
def test_convolutions_become_the_operators_that_are_expected(convolution, dimensions):
    pattern = qat_utils._get_conv_bn_pattern(convolution)
    module = pt2e_utils._get_aten_graph_module_for_pattern(pattern, tensors(5, dimensions))
    calls = _qat.calls_of(pattern)
    assert len(calls) == 2 and set(calls) <= {node.target for node in module.graph.nodes}


@pytest.mark.parametrize("flags", [(True, True, True), (False, True, False), (True, False, False)])
def test_quantized_patterns_call_what_is_expected(flags):
    pattern = qat_utils._get_quantized_qat_conv_bn_pattern(*flags, F.conv2d, True)
    kwargs = qat_utils._get_quantized_conv_bn_example_inputs_kwargs(*flags, False)
    module = pt2e_utils._get_aten_graph_module_for_pattern(pattern, tensors(4), **kwargs)
    calls = _qat.calls_of(pattern)
    assert len(calls) > 7 and set(calls) <= {node.target for node in module.graph.nodes}


def test_nothing_is_expected_of_patterns_that_are_not_known(monkeypatch):
    known = qat_utils._get_conv_bn_pattern(F.conv2d)
    assert _qat.calls_of(known)
    assert _qat.calls_of(qat_utils._get_qat_conv_bn_pattern(F.conv2d)) == []
    assert _qat.calls_of(qat_utils._get_conv_bn_pattern(F.conv3d)) == []
    assert _qat.calls_of(WrapperModule(lambda x: x)) == []
    assert _qat.calls_of(known.fn) == []
    with torch.autocast("cpu"):
        assert _qat.calls_of(known) == []
    with monkeypatch.context() as patch:
        patch.setattr(F, "batch_norm", lambda *args, **kwargs: args[0])
        assert _qat.calls_of(known) == []
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert _qat.calls_of(known) == []


# ---- whole models


class Blocks(torch.nn.Module):
    """Convolutions with and without bias, batch norm, relu in place and not."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.conv2, self.norm2 = torch.nn.Conv2d(4, 4, 3, bias=False), torch.nn.BatchNorm2d(4)
        self.conv3, self.norm3 = torch.nn.Conv2d(4, 2, 1), torch.nn.BatchNorm2d(2)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.norm1(self.conv1(x)).relu()
        return self.norm3(self.conv3(self.relu(self.norm2(self.conv2(x)))))


class Lines(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv1d(3, 4, 3), torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


MODELS = {"blocks": (Blocks, (2, 3, 8, 8)), "lines": (Lines, (2, 3, 8))}


def program_of(name):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    inputs = (torch.randn(*shape),)
    return torch.export.export(make().train(), inputs).module(), inputs


def quantizer(per_channel=True):
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=per_channel, is_qat=True))


@functools.cache
def annotated_program(name):
    """A model with the quantizer's annotations; copy it before use."""
    module, inputs = program_of(name)
    with accelerated():
        quantizer().annotate(module)
    return module, inputs


@functools.cache
def trained_program(name):
    """A model ready to be converted; copy it before use."""
    module, inputs = program_of(name)
    with accelerated():
        module = prepare_qat_pt2e(module, quantizer())
    module(*inputs)
    return module, inputs


def fused(module):
    """One of the four steps of prepare_qat_pt2e that look for patterns."""
    torch.manual_seed(1)
    module = qat_utils._fuse_conv_bn_qat_helper(copy.deepcopy(module), F.conv2d, tensors(5), False)
    return module, torch.get_rng_state()


def folded(module):
    """One of the four steps of convert_pt2e that look for quantized patterns."""
    torch.manual_seed(2)
    module = _convert_to_reference_decomposed_fx(copy.deepcopy(module))
    module = qat_utils._fold_conv_bn_qat_helper(module, F.conv2d, tensors(4), False)
    return module, torch.get_rng_state()


def assert_same_results(found, expected, inputs):
    (module, random), (twin, twin_random) = found, expected
    assert modules_of(module).keys() == modules_of(twin).keys()
    assert module.code == twin.code
    assert nodes_of(module) == nodes_of(twin)
    assert plain_meta(module) == plain_meta(twin)
    assert torch.equal(random, twin_random)
    assert [name for name, _ in module.named_modules()] == [name for name, _ in twin.named_modules()]
    values, twin_values = module.state_dict(), twin.state_dict()
    assert values.keys() == twin_values.keys()
    assert all(torch.equal(values[name], twin_values[name]) for name in values)
    results = []
    for each in (module, twin):
        torch.manual_seed(3)
        results.append(copy.deepcopy(each)(*inputs))
    assert torch.equal(*results)


def with_batch_norm_in_training(*choices):
    return [flags for flags in itertools.product(*choices) if flags[-1]]


@pytest.mark.parametrize(
    "step, program, stock_count, cold_count", [(fused, annotated_program, 3, 3), (folded, trained_program, 12, 8)]
)
def test_a_model_is_quantized_as_by_torchao(step, program, stock_count, cold_count, exports, monkeypatch):
    # Half of the patterns only differ in a flag of batch norm, which matching ignores.
    monkeypatch.setattr(qat_utils, "itertools", SimpleNamespace(product=with_batch_norm_in_training))
    module, inputs = program("blocks")
    del exports[:]
    expected = step(module)
    assert len(exports) == stock_count
    for count in (cold_count, 0):
        del exports[:]
        with accelerated():
            found = step(module)
        assert len(exports) <= count
        assert_same_results(found, expected, inputs)


def test_only_what_matches_is_exported(exports):
    module, _ = annotated_program("lines")
    del exports[:]
    _qat.clear()
    with accelerated():
        fused(module)  # which looks for conv2d
        assert exports == []
        prepare_qat_pt2e(program_of("lines")[0], quantizer())
    assert sorted(exports[1:]) == ["_conv_bn", "_conv_bn", "_conv_bn_pattern", "_qat_conv_bn_pattern"]


def test_verify_compares_with_torchao():
    module, inputs = annotated_program("blocks")
    with accelerated():
        expected = fused(module)
    with accelerated(verify=True):
        assert_same_results(fused(module), expected, inputs)


# ---- graphs without matches


def helpers(module):
    """The four steps of prepare_qat_pt2e that look for patterns."""
    for convolution, dimensions in ((F.conv1d, 1), (F.conv2d, 2), (F.conv_transpose1d, 1), (F.conv_transpose2d, 2)):
        qat_utils._fuse_conv_bn_qat_helper(module, convolution, tensors(5, dimensions), False)


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x).relu()


def test_without_a_match_modules_are_tidied_all_the_same(exports):
    module = torch.export.export(Plain(), (torch.randn(2, 2),)).module()
    module.add_submodule("unused", torch.nn.Linear(1, 1))
    module.graph.call_function(aten.neg.default, (module.graph.find_nodes(op="placeholder")[0],))
    recompiled = []
    recompile = type(module).recompile
    module.recompile = lambda: recompiled.append(1) or recompile(module)
    del exports[:]
    with accelerated():
        helpers(module)
    assert exports == []
    assert not hasattr(module, "unused")
    assert "neg" not in module.code
    assert len(recompiled) == 4 * 5  # of a helper: once before, twice for each replacement


def test_without_a_match_annotations_are_renewed():
    module = copy.deepcopy(annotated_program("lines")[0])
    before = [node.meta["quantization_annotation"].input_qspec_map for node in annotated(module)]
    with accelerated():
        qat_utils._fuse_conv_bn_qat_helper(module, F.conv2d, tensors(5), False)
    after = [node.meta["quantization_annotation"].input_qspec_map for node in annotated(module)]
    assert after == before and all(one is not other for one, other in zip(after, before, strict=True))


def annotated(module):
    return [node for node in module.graph.nodes if "quantization_annotation" in node.meta]


def test_errors_of_a_graph_without_a_match_are_torchs():
    def failing(damage):
        module = fx.symbolic_trace(Plain())
        damage(module)
        with pytest.raises(Exception) as info:
            qat_utils._fuse_conv_bn_qat_helper(module, F.conv2d, tensors(5), False)
        return info.type, str(info.value)

    def without_attribute(module):
        module.graph.find_nodes(op="call_module")[0].target = "missing"

    def unsorted(module):
        first, *_, last = (node for node in module.graph.nodes if node.op.startswith("call_"))
        last.append(first)

    def without_value(module):
        module.linear = None

    for damage in (without_attribute, unsorted, without_value):
        stock = failing(damage)
        with accelerated():
            assert failing(damage) == stock


# ---- what users put in the place of torchao's


def given_patterns(monkeypatch, holder, name):
    """What a function is given as its second and third argument, or in fact its first."""
    given = []
    function = getattr(holder, name)

    def replaced(*args, **kwargs):
        given.extend(args)
        return function(*args, **kwargs)

    monkeypatch.setattr(holder, name, replaced)
    return given


@pytest.mark.parametrize(
    "holder, name",
    [
        (qat_utils, "replace_pattern_with_filters"),
        (fx.subgraph_rewriter, "_replace_pattern"),
        (fx.passes.utils.matcher_utils.SubgraphMatcher, "_match_nodes"),
        (fx.passes.utils.matcher_utils.SubgraphMatcher, "match"),
    ],
)
def test_patched_functions_are_given_all_patterns(monkeypatch, unexported, holder, name):
    module = fx.symbolic_trace(Plain())
    given = given_patterns(monkeypatch, holder, name)
    with accelerated():
        qat_utils._fuse_conv_bn_qat_helper(module, F.conv2d, tensors(5), False)
    assert len(unexported) == 3
    assert not any(isinstance(each, _matching.Late) for each in given)


def test_a_patched_export_is_asked_for_all_patterns(monkeypatch, unexported):
    module = fx.symbolic_trace(Plain())
    given = given_patterns(monkeypatch, qat_utils, EXPORT)
    with accelerated():
        qat_utils._fuse_conv_bn_qat_helper(module, F.conv2d, tensors(5), False)
    assert sum(isinstance(each, WrapperModule) for each in given) == 3


def test_without_the_entry_that_takes_them_no_pattern_is_put_off(unexported):
    module = fx.symbolic_trace(Plain())
    for only in (["qat_fuse_conv_bn", "pattern_export"], ["qat_fuse_conv_bn", "replace_pattern"]):
        del unexported[:]
        with accelerated(only):
            qat_utils._fuse_conv_bn_qat_helper(module, F.conv2d, tensors(5), False)
        assert len(unexported) == 3
        _qat.clear()


def test_annotating_exports_what_may_match(exports):
    stock, module = (program_of("lines")[0] for _ in range(2))
    expected = [xnnpack_utils._do_annotate_conv_bn(stock, None, None, has_relu=relu) for relu in (False, True)]
    del exports[:]
    with accelerated():
        found = [xnnpack_utils._do_annotate_conv_bn(module, None, None, has_relu=relu) for relu in (False, True)]
    assert exports == ["_conv_bn"] * 2  # conv1d alone; with relu
    assert [[[str(node) for node in part] for part in each] for each in found] == [
        [[str(node) for node in part] for part in each] for each in expected
    ]
    assert plain_meta(module) == plain_meta(stock)


def test_training_and_evaluation_of_exported_models_use_kept_patterns(exports):
    stock, module = (program_of("lines")[0] for _ in range(2))
    export_utils._move_exported_model_to_eval(stock)
    export_utils._move_exported_model_to_train(stock)
    with accelerated():
        export_utils._move_exported_model_to_eval(module)
        del exports[:]
        export_utils._move_exported_model_to_train(module)
    assert exports == []
    assert module.code == stock.code
    assert nodes_of(module) == nodes_of(stock)
