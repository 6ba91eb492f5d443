"""Annotating by pattern, and clear errors for annotations that can't be used."""

import functools
import pickle

import pytest
import torch
from torch import nn

import fastexport
from fastexport import acceleration, pt2e
from fastexport.acceleration._clone import clone
from fastexport.acceleration._equal import find_difference

pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
from torchao.quantization.pt2e import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

aten = torch.ops.aten
KEY = "quantization_annotation"
ACTIVATION = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,
    observer_or_fake_quant_ctr=MinMaxObserver,
)
WEIGHT = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-127,
    quant_max=127,
    qscheme=torch.per_channel_symmetric,
    ch_axis=0,
    observer_or_fake_quant_ctr=PerChannelMinMaxObserver,
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.linear, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.Linear(4, 2, bias=False)

    def forward(self, x, i):
        a = torch.relu(self.conv(x)).mean((2, 3))
        b = self.linear(a)
        return torch.cat([torch.nn.functional.gelu(self.out(b)), b + a], 1), i + 1


class Join(nn.Module):
    def forward(self, x, y):
        return torch.cat([torch.relu(x), torch.relu(y)])


@functools.cache
def exported(kind):
    torch.manual_seed(0)
    inputs = (torch.randn(2), torch.randn(2)) if kind is Join else (torch.randn(2, 3, 6, 6), torch.arange(3))
    return torch.export.export(kind().eval(), inputs).module(), inputs


def made(kind=Net):
    return clone((exported(kind)[0],), {})[0][0]


def inputs(kind=Net):
    return exported(kind)[1]


def by_name(gm, name):
    return next(node for node in gm.graph.nodes if node.name == name)


def specs_of(gm):
    return {
        node.name: ({source.name: spec for source, spec in note.input_qspec_map.items()}, note.output_qspec)
        for node in getattr(gm, "graph", gm).nodes
        if (note := node.meta.get(KEY)) is not None
    }


# ---- by pattern


def gelu_of_linear(x, w):
    return aten.gelu.default(aten.linear.default(x, w))


WEIGHTED = pt2e.Observed({"input": ACTIVATION, "weight": WEIGHT}, ACTIVATION)
RULES = {
    (aten.conv2d.default, aten.relu.default): WEIGHTED,
    gelu_of_linear: pt2e.Observed({"x": ACTIVATION, "w": WEIGHT}),
    aten.linear.default: pt2e.Observed({0: ACTIVATION, 1: WEIGHT, "bias": None}),
    aten.add: ACTIVATION,
    aten.cat.default: ACTIVATION,
}


def test_annotates_by_operator_chain_and_function():
    gm = made()
    done = pt2e.annotate(gm, RULES)
    assert specs_of(gm) == {
        "conv2d": ({"x": ACTIVATION, "conv_weight": WEIGHT}, None),
        "relu": ({}, ACTIVATION),
        "linear": ({"mean": ACTIVATION, "linear_weight": WEIGHT}, None),
        "linear_1": ({"linear": ACTIVATION, "out_weight": WEIGHT}, None),
        "gelu": ({}, None),
        "add": ({"linear": ACTIVATION, "mean": ACTIVATION}, ACTIVATION),
        "cat": ({"gelu": ACTIVATION, "add": ACTIVATION}, ACTIVATION),
        "add_1": ({}, None),  # of integers
    }
    assert all(by_name(gm, name).meta[KEY]._annotated for name in done)
    assert done["relu"] == (aten.conv2d.default, aten.relu.default) and done["gelu"] is gelu_of_linear
    assert done["add"] is done["add_1"] is aten.add
    assert pt2e.annotate(gm, {aten.linear.default: ACTIVATION}) == {}, "what is annotated stays"


@pytest.mark.parametrize("is_qat", [False, True])
def test_inserts_observers(is_qat):
    gm = made()
    prepared = pt2e.insert_observers(gm, RULES, is_qat=is_qat)
    before = prepared(*inputs())
    report = pt2e.quantization_report(prepared)
    assert report["linear"].status == "quantized" and report["add_1"].status == "n/a"
    quantized = convert_pt2e(prepared)
    for a, b in zip(quantized(*inputs()), before, strict=True):
        torch.testing.assert_close(a.float(), b.float(), atol=0.1, rtol=0.1)
    assert pt2e.quantization_report(quantized)["relu"].why == "inside a pattern with conv2d"


def test_quantizer_of_patterns_gives_the_same():
    gm, again = made(), made()
    by_prepare = prepare_pt2e(gm, pt2e.pattern_quantizer(RULES))
    by_hand = pt2e.insert_observers(again, list(RULES.items()))
    assert find_difference(by_prepare.graph, by_hand.graph) is None
    assert by_prepare.code == by_hand.code


def test_chain_needs_a_single_user():
    gm = made()
    assert "linear" not in pt2e.annotate(gm, {(aten.linear.default, aten.add.Tensor): ACTIVATION})
    assert pt2e.annotate(gm, {(aten.linear.default, aten.gelu.default): ACTIVATION}).keys() == {"linear_1", "gelu"}


def test_annotates_fastexport_graphs():
    gm = made()
    graph = fastexport.from_fx(gm)
    rules = {pattern: observed for pattern, observed in RULES.items() if pattern is not gelu_of_linear}
    assert pt2e.annotate(graph, rules) == pt2e.annotate(gm, rules)
    assert specs_of(graph) == specs_of(gm)
    with pytest.raises(TypeError, match="in torch graphs only"):
        pt2e.annotate(graph, RULES)


def test_patterns_that_are_none():
    gm = made()
    for pattern in (3, (aten.relu.default, 3), ()):
        with pytest.raises(TypeError, match="a pattern is an operator"):
            pt2e.annotate(gm, {pattern: ACTIVATION})
    with pytest.raises(TypeError, match="calls no operator"):
        pt2e.annotate(gm, {lambda x: x: ACTIVATION})
    with pytest.raises(fastexport.FastExportError, match="has no input 'weigth' at linear"):
        pt2e.annotate(gm, {aten.linear.default: pt2e.Observed({"weigth": WEIGHT})})
    assert specs_of(gm) == {}


# ---- checks


def note(gm, name, given, output=None, **options):
    """Annotate a node: names of inputs -> specs."""
    node = by_name(gm, name)
    given = {by_name(gm, source): spec for source, spec in given.items()}
    node.meta[KEY] = QuantizationAnnotation(given, output, _annotated=True, **options)


def shared(gm, *names):
    """A spec shared with an output, or with an edge given as (input, user)."""
    nodes = tuple(by_name(gm, name) for name in names)
    return SharedQuantizationSpec(nodes[0] if len(nodes) == 1 else nodes)


def annotate_join(gm, kind):
    """The annotations of the public report: an anchor that comes later, one that is missing, and a circle."""
    first, second = shared(gm, "relu", "cat"), shared(gm, "relu_1", "cat")
    if kind == "later":
        note(gm, "cat", {"relu": second, "relu_1": ACTIVATION}, second)
    elif kind == "missing":
        note(gm, "cat", {"relu": shared(gm, "relu_1"), "relu_1": ACTIVATION}, second)
    elif kind == "cycle":
        note(gm, "cat", {"relu": second, "relu_1": first}, first)
    else:
        note(gm, "cat", {"relu": ACTIVATION, "relu_1": first}, first)


class JoinQuantizer(Quantizer):
    def __init__(self, kind):
        self.kind = kind

    def annotate(self, model):
        annotate_join(model, self.kind)
        return model

    def validate(self, model):
        pass


WRONG = {
    "later": (
        "SHARED_LATER",
        "SHARED_LATER: the input relu of cat shares its spec with the input relu_1 of cat, which prepare_pt2e meets "
        "later; give the input relu of cat the spec and let the input relu_1 of cat share it",
    ),
    "missing": (
        "SHARED_MISSING",
        "SHARED_MISSING: the input relu of cat shares its spec with the output of relu_1, which has no spec; annotate "
        "it, or share with another, such as the input relu_1 of cat",
    ),
    "cycle": (
        "SHARED_CYCLE",
        "SHARED_CYCLE: the input relu of cat shares its spec with the input relu_1 of cat, which shares with the input "
        "relu of cat, so that none has a spec of its own; give one of them a spec that is not shared",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_faults_of_shared_specs_name_the_nodes(kind):
    gm = made(Join)
    annotate_join(gm, kind)
    (finding,) = pt2e.check_annotations(gm)
    assert (finding.code, finding.message) == WRONG[kind]
    assert finding.node == "cat" and set(finding.others) == {"relu", "relu_1"}
    with pytest.raises(pt2e.AnnotationError, match=finding.code) as caught:
        pt2e.check_annotations(gm, raise_on_error=True)
    assert caught.value.findings == [finding]
    assert isinstance(caught.value, fastexport.FastExportError)
    assert pickle.loads(pickle.dumps(caught.value)).findings == [finding]
    with pytest.raises((AssertionError, KeyError, RecursionError)):
        prepare_pt2e(made(Join), JoinQuantizer(kind))


def test_right_order_has_no_findings():
    gm = made(Join)
    annotate_join(gm, "right")
    assert pt2e.check_annotations(gm, raise_on_error=True) == []
    prepare_pt2e(made(Join), JoinQuantizer("right"))


def test_an_anchor_that_comes_later_may_be_shared_already():
    """The tensor has an earlier spec, so that the group has begun: prepare_pt2e takes it, and so does the check."""
    gm = made(Join)
    note(gm, "relu", {"x": ACTIVATION}, ACTIVATION)
    note(gm, "relu_1", {"y": ACTIVATION}, ACTIVATION)
    second = shared(gm, "relu_1", "cat")
    note(gm, "cat", {"relu": second, "relu_1": ACTIVATION}, second)
    findings = pt2e.check_annotations(gm)

    class Same(JoinQuantizer):
        def annotate(self, model):
            for node, copied in zip(gm.graph.nodes, model.graph.nodes, strict=True):
                if KEY in node.meta:
                    copied.meta[KEY] = mapped(node.meta[KEY], model)
            return model

    assert findings == []
    prepare_pt2e(made(Join), Same(""))


def mapped(annotation, gm):
    """An annotation for another copy of the module."""

    def spec(value):
        if not isinstance(value, SharedQuantizationSpec):
            return value
        nodes = value.edge_or_node
        return shared(gm, *(n.name for n in (nodes if isinstance(nodes, tuple) else (nodes,))))

    given = {by_name(gm, source.name): spec(value) for source, value in annotation.input_qspec_map.items()}
    return QuantizationAnnotation(given, spec(annotation.output_qspec), _annotated=True)


def test_integers_inputs_and_keywords():
    gm = made()
    note(gm, "add_1", {"i": ACTIVATION}, ACTIVATION)
    note(gm, "linear", {"x": ACTIVATION, "mean": ACTIVATION, "linear_weight": WEIGHT})
    told = [(f.code, f.node, f.others) for f in pt2e.check_annotations(gm)]
    assert told == [
        ("NOT_AN_INPUT", "linear", ("x",)),
        ("INTEGER_OBSERVED", "add_1", ("i",)),
        ("INTEGER_OBSERVED", "add_1", ()),
    ]
    assert "i is a tensor of int64" in pt2e.check_annotations(gm)[1].message
    node = by_name(gm, "gelu")
    node.args, node.kwargs = (), {"self": node.args[0]}
    note(gm, "gelu", {"linear_1": ACTIVATION})
    assert [f.others for f in pt2e.check_annotations(gm) if f.code == "KEYWORD_INPUT"] == [("linear_1",)]


def test_derived_specs():
    gm = made(Join)

    def derive(obs):
        return torch.ones(1), torch.zeros(1, dtype=torch.int)

    relu, cat = by_name(gm, "relu_1"), by_name(gm, "cat")
    derived = DerivedQuantizationSpec([(relu, cat)], derive, torch.int8)
    note(gm, "cat", {"relu": derived, "relu_1": ACTIVATION})
    assert [f.code for f in pt2e.check_annotations(gm)] == ["DERIVED_LATER"]
    note(gm, "cat", {"relu_1": ACTIVATION, "relu": derived})
    assert pt2e.check_annotations(gm) == []
    note(gm, "cat", {"relu": derived})
    assert [f.code for f in pt2e.check_annotations(gm)] == ["DERIVED_MISSING"]


def test_quantizers_of_torchao_have_no_findings():
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    gm = made()
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    quantizer.annotate(gm)
    assert specs_of(gm) and pt2e.check_annotations(gm) == []


def test_one_who_shares_with_itself():
    gm = made(Join)
    note(gm, "cat", {"relu": shared(gm, "relu", "cat")})
    assert [f.code for f in pt2e.check_annotations(gm)] == ["SHARED_CYCLE"]


def test_graphs_without_annotations():
    assert pt2e.check_annotations(made()) == []
    assert pt2e.check_annotations(made().graph) == []
    with pytest.raises(TypeError):
        pt2e.check_annotations(None)


# ---- inside of prepare_pt2e


@pytest.fixture
def checks():
    entry = acceleration.table()["annotation_checks"]
    assert entry.enabled is False
    entry.enabled = True
    yield entry
    entry.enabled = False


@pytest.mark.parametrize("kind", WRONG)
def test_prepare_gives_the_clear_error(checks, kind):
    with fastexport.accelerate(only=["annotation_checks"]):
        with pytest.raises(pt2e.AnnotationError, match="relu_1") as caught:
            prepare_pt2e(made(Join), JoinQuantizer(kind))
        prepare_pt2e(made(Join), JoinQuantizer("right"))
    assert [finding.code for finding in caught.value.findings] == [WRONG[kind][0]]
    assert checks.hits == 2 and checks.unavailable is None
    checks.hits = 0


def test_prepare_has_torchaos_error_unless_asked():
    with fastexport.accelerate(only=["annotation_checks"]):
        with pytest.raises(RecursionError):
            prepare_pt2e(made(Join), JoinQuantizer("cycle"))
