"""PT2E graph edits as tools: compared with what torchao's own passes do to a copy of the same graph."""

import copy
import doctest
import functools
import importlib
import operator

import pytest
import torch
from torch import nn

import fastexport
from fastexport import pt2e
from fastexport.acceleration._clone import clone
from fastexport.acceleration._equal import find_difference
from helpers import names, plain, run_python

pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
from torchao.quantization.pt2e.convert import _convert_to_reference_decomposed_fx
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e
from torchao.quantization.pt2e.quantizer import DuplicateDQPass, PortNodeMetaForQDQ
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
from torchao.quantization.pt2e.utils import _fuse_conv_bn_, _fuse_linear_bn_
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

aten = torch.ops.aten


class Net(nn.Module):
    """Convolutions with and without bias, a shared activation, a linear layer and integers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4))
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4, affine=False))
        self.up = nn.Sequential(nn.ConvTranspose2d(4, 4, 3), nn.BatchNorm2d(4))
        self.linear = nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6))

    def forward(self, x, i):
        a = torch.relu(self.first(x))
        b = self.second(a) + a
        c = self.up(b).mean((2, 3))
        return self.linear(c), torch.cat([b, a]), i + 1


ARGUMENTS = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8), torch.arange(3)


def trained(model):
    """The model with statistics that are not those it starts with, in eval mode."""
    torch.manual_seed(0)
    for part in model.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.uniform_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2)
            if part.affine:
                nn.init.uniform_(part.weight, 0.5, 2)
                nn.init.uniform_(part.bias)
    return model.eval()


@functools.cache
def exported():
    return torch.export.export(trained(Net()), ARGUMENTS).module()


def copies(gm, count=2):
    return [clone((gm,), {})[0][0] for _ in range(count)]


def module_of(model, *arguments):
    return torch.export.export(trained(model), arguments).module()


# ---- folding


def test_folds_as_torchao_does():
    ours, theirs = copies(exported())
    result = pt2e.fold_conv_bn(ours)
    _fuse_conv_bn_(theirs)
    _fuse_linear_bn_(theirs)
    bias = next(node for node in ours.graph.nodes if node.name == "linear_0_weight_bias")
    assert bias.meta.pop("val").shape == (6,)  # torchao gives one to the bias of a convolution only
    assert find_difference(theirs, ours) is None
    assert result.modified and len(result.replaced) == 4
    assert all(why.startswith("folded") for why in result.reasons.values())
    assert "first_0_weight_bias" in result.added and set(result.replaced) <= set(result.removed)
    for a, b in zip(ours(*ARGUMENTS), exported()(*ARGUMENTS), strict=True):
        torch.testing.assert_close(a, b)
    assert not pt2e.fold_conv_bn(ours).modified


def test_folds_convolutions_alone():
    ours, theirs = copies(exported())
    pt2e.fold_conv_bn(ours, linear=False)
    _fuse_conv_bn_(theirs)
    assert find_difference(theirs, ours) is None


def test_folds_the_form_with_three_results():
    def decomposed(x, weight, bias, mean, variance, training, momentum, eps, cudnn_enabled):
        return aten._native_batch_norm_legit_no_training(x, weight, bias, mean, variance, momentum, eps)[0]

    program = torch.export.export(trained(Net()), ARGUMENTS)
    gm = program.run_decompositions({aten.batch_norm.default: decomposed}).module()
    found = gm.graph.find_nodes(op="call_function", target=aten._native_batch_norm_legit_no_training.default)
    ours, theirs = copies(gm)
    result = pt2e.fold_conv_bn(ours)
    assert len(result.replaced) == len(found) == 4
    _fuse_conv_bn_(theirs)
    _fuse_linear_bn_(theirs)
    next(node for node in ours.graph.nodes if node.name == "linear_0_weight_bias").meta.pop("val")
    assert find_difference(theirs, ours) is None
    for a, b in zip(ours(*ARGUMENTS), gm(*ARGUMENTS), strict=True):
        torch.testing.assert_close(a, b)


def test_folds_in_a_fastexport_graph():
    ours, theirs = copies(exported())
    graph = fastexport.from_fx(ours)
    result = pt2e.fold_conv_bn(graph)
    pt2e.fold_conv_bn(theirs)
    assert len(result.replaced) == 4
    assert [(n.name, plain(n.args), names(n.users)) for n in graph.nodes] == [
        (n.name, plain(n.args), names(n.users)) for n in theirs.graph.nodes
    ]
    again = graph.to_fx(ours)
    for a, b in zip(again(*ARGUMENTS), theirs(*ARGUMENTS), strict=True):
        assert torch.equal(a, b)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.a, self.b = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x):
        return self.b(self.conv(self.a(self.conv(x))))


class TwoUsers(Shared):
    def forward(self, x):
        y = self.conv(x)
        return self.a(y) + y


class Groups(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.a = nn.ConvTranspose2d(4, 4, 3, groups=2), nn.BatchNorm2d(4)

    def forward(self, x):
        return self.a(self.conv(torch.cat([x, x[:, :1]], 1)))


class NotAfter(Shared):
    def forward(self, x):
        return self.a(torch.relu(self.conv(x)))


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.a = nn.Linear(8, 8), nn.BatchNorm1d(24)

    def forward(self, x):
        return self.a(self.linear(x.flatten(1, 2)))


@pytest.mark.parametrize(
    "model, reason",
    [
        (Shared, "conv_weight is used by others than conv2d too"),
        (TwoUsers, "the result of conv2d is also used by add"),
        (Groups, "conv_transpose2d is a transposed convolution in groups"),
        (NotAfter, "it follows relu, which is no convolution or linear layer"),
        (Wide, "linear works on the last dimension of more than two"),
    ],
)
def test_keeps_what_folding_would_change(model, reason):
    gm = module_of(model(), ARGUMENTS[0])
    (twin,) = copies(gm, 1)
    result = pt2e.fold_conv_bn(twin)
    assert not result.modified and find_difference(gm, twin) is None
    assert any(reason in why for why in result.reasons.values()), result.reasons


def test_keeps_normalization_in_training():
    gm = torch.export.export(Net().train(), ARGUMENTS).module()
    result = pt2e.fold_conv_bn(gm)
    assert not result.modified and all("training mode" in why for why in result.reasons.values()) and result.reasons


def test_folding_needs_a_module():
    with pytest.raises(ValueError, match="no owning module"):
        pt2e.fold_conv_bn(fastexport.Graph())
    with pytest.raises(TypeError, match="not int"):
        pt2e.fold_conv_bn(3)


# ---- q/dq


def quantizers():
    return {
        "x86": x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config()),
        "xnnpack": XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)),
        "dynamic": XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_dynamic=True)),
    }


@functools.cache
def converted(kind):
    """A module with q/dq nodes, before the passes that are compared here."""
    (gm,) = copies(exported(), 1)
    if kind == "xnnpack":  # which makes a float of the 1 that is added to integers
        node = next(n for n in gm.graph.nodes if n.target is aten.add.Tensor and n.meta["val"].dtype is torch.int64)
        node.replace_all_uses_with(node.args[0])
        pt2e.clean_up(gm)
    prepared = prepare_pt2e(gm, quantizers()[kind])
    prepared(*ARGUMENTS)
    return _convert_to_reference_decomposed_fx(prepared)


KINDS = ["x86", "xnnpack", "dynamic"]


@pytest.mark.parametrize("kind", KINDS)
def test_duplicates_as_torchao_does(kind):
    ours, theirs = copies(converted(kind))
    result = pt2e.duplicate_dq(ours)
    DuplicateDQPass()(theirs)
    assert find_difference(theirs, ours) is None
    assert len(result.added) == len(ours.graph.nodes) - len(converted(kind).graph.nodes) + len(result.removed)
    if kind == "xnnpack":
        assert result.added


@pytest.mark.parametrize("kind", KINDS)
def test_duplicates_in_a_fastexport_graph(kind):
    ours, theirs = copies(converted(kind))
    graph = fastexport.from_fx(ours)
    result = pt2e.duplicate_dq(graph)
    assert pt2e.duplicate_dq(theirs).added == result.added
    assert [(n.name, plain(n.args), names(n.users)) for n in graph.nodes] == [
        (n.name, plain(n.args), names(n.users)) for n in theirs.graph.nodes
    ]


def test_duplicates_for_all_users():
    (gm,) = copies(converted("xnnpack"), 1)
    for node in gm.graph.nodes:
        node.meta.pop("quantization_annotation", None)
    before = gm(*ARGUMENTS)
    assert not pt2e.duplicate_dq(copy.deepcopy(gm)).added
    result = pt2e.duplicate_dq(gm, annotated_only=False)
    assert result.added
    assert all(len(n.users) <= 1 for n in gm.graph.nodes if "dequantize" in str(n.target))
    for a, b in zip(gm(*ARGUMENTS), before, strict=True):
        assert torch.equal(a, b)


def with_tags(gm):
    for index, node in enumerate(gm.graph.nodes):
        node.meta["quantization_tag"] = f"tag {index}"
        if "quantize" in str(node.target) or "choose" in str(node.target):
            node.meta.pop("quantization_tag"), node.meta.pop("stack_trace", None)
    return gm


@pytest.mark.parametrize("kind", KINDS)
def test_ports_meta_as_torchao_does(kind):
    ours, theirs = copies(with_tags(copies(converted(kind), 1)[0]))
    for gm in (ours, theirs):
        pt2e.duplicate_dq(gm)
    graph = fastexport.from_fx(ours)
    result = pt2e.port_qdq_meta(ours)
    PortNodeMetaForQDQ()(theirs)
    assert find_difference(theirs, ours) is None
    assert result.modified and all("quantize" in name or "choose" in name for name in result.reasons)
    assert pt2e.port_qdq_meta(graph).reasons == result.reasons
    assert [n.meta.get("quantization_tag") for n in graph.nodes] == [
        n.meta.get("quantization_tag") for n in ours.graph.nodes
    ]


def test_port_names_the_node_of_an_odd_pattern():
    (gm,) = copies(converted("dynamic"), 1)
    choose = next(n for n in gm.graph.nodes if "choose_qparams" in str(n.target))
    with gm.graph.inserting_after(choose):
        gm.graph.call_function(operator.getitem, (choose, 0))
    with pytest.raises(fastexport.FastExportError, match=f"{choose.name} should have two users"):
        pt2e.port_qdq_meta(gm)


# ---- cleaning


def test_clean_up_compiles_once(monkeypatch):
    (gm,) = copies(exported(), 1)
    relu = next(n for n in gm.graph.nodes if n.target is aten.relu.default)
    with gm.graph.inserting_after(relu):
        gm.graph.call_function(aten.neg.default, (relu,))
    relu.target = aten.sigmoid.default
    calls = []
    recompile = type(gm).recompile
    monkeypatch.setattr(torch.fx.GraphModule, "recompile", lambda self: calls.append(self) or recompile(self))
    result = pt2e.clean_up(gm)
    assert result.removed[0] == "neg_default" and [c for c in calls if c is gm] == [gm]
    assert "sigmoid" in gm.code


def test_clean_up_of_a_graph_out_of_order():
    (gm,) = copies(exported(), 1)
    code = gm.code
    nodes = [n for n in gm.graph.nodes if n.op == "call_function"]
    nodes[3].append(nodes[0])
    with pytest.raises(fastexport.LintError):
        pt2e.clean_up(gm)
    assert gm.code == code


def test_needs_no_torch():
    run_python("""
        import operator, sys
        import fastexport
        from fastexport import pt2e

        g = fastexport.Graph()
        x = g.placeholder("x")
        g.output(g.call_function(operator.neg, (x,)))
        assert not pt2e.clean_up(g).modified
        assert [row.op for row in pt2e.quantization_report(g)] == ["neg"]
        assert not pt2e.duplicate_dq(g).modified and not pt2e.port_qdq_meta(g).modified
        assert pt2e.check_annotations(g) == []
        assert not any(name.partition(".")[0] in ("torch", "torchao") for name in sys.modules)
    """)


def test_everything_public_is_documented():
    assert all(getattr(pt2e, name).__doc__ for name in pt2e.__all__)
    assert sorted(pt2e.__all__) == pt2e.__all__


def test_examples_in_docstrings():
    for name in ("_graphs", "_cleaning", "_folding", "_qdq", "_checks", "_observers", "_reports"):
        module = importlib.import_module(f"fastexport.pt2e.{name}")
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("rules", [None, 5, ["ab", 3], {torch.ops.aten.relu.default: None}])
def test_rules_of_the_wrong_kind_are_told(rules):
    module = torch.export.export(torch.nn.ReLU(), (torch.randn(2),)).module()
    with pytest.raises(TypeError, match="rule"):
        pt2e.annotate(module, rules)
    with pytest.raises(TypeError, match="rule"):
        pt2e.pattern_quantizer(rules)


@pytest.mark.parametrize("given", [None, 5, torch.fx.Graph(), fastexport.Graph(), torch.nn.ReLU()])
def test_observers_go_into_modules_only(given):
    with pytest.raises(TypeError, match="GraphModule"):
        pt2e.insert_observers(given, {})
