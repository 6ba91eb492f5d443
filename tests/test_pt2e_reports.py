"""The report of what is quantized, what not and why, at each stage and for both kinds of graphs."""

import functools

import pytest
import torch
from torch import nn

import fastexport
from fastexport import pt2e

pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
from torchao.quantization.pt2e import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationSpec
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

aten = torch.ops.aten
ACTIVATION = QuantizationSpec(torch.uint8, MinMaxObserver, 0, 255, torch.per_tensor_affine)
WEIGHT = QuantizationSpec(torch.int8, PerChannelMinMaxObserver, -127, 127, torch.per_channel_symmetric, 0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bound, self.weighted, self.last = (
            nn.Conv2d(3, 4, 3),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
        )

    def forward(self, x, i):
        a = torch.relu(self.conv(x)).mean((2, 3))
        b = self.bound(a).softmax(-1)
        c = self.weighted(b) * b
        return self.last(c).reshape(-1), i + 1


INPUTS = torch.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6), torch.arange(3)
RULES = {
    (aten.conv2d.default, aten.relu.default): pt2e.Observed({"input": ACTIVATION, "weight": WEIGHT}, ACTIVATION),
    aten.mul: pt2e.Observed({0: ACTIVATION}),
    aten.reshape: pt2e.Observed(None, ACTIVATION),
}


def float_model():
    torch.manual_seed(0)
    return torch.export.export(Net().eval(), INPUTS).module()


def annotate(gm):
    """Rules, and linear layers each in another way."""
    bound, weighted, last = gm.graph.find_nodes(op="call_function", target=aten.linear.default)
    order = iter(({"input": ACTIVATION, "weight": WEIGHT}, {"weight": WEIGHT}))
    for node in (bound, weighted):
        hidden = [other for other in (bound, weighted, last) if other is not node]
        kept = [other.target for other in hidden]
        for other in hidden:
            other.target = aten.relu.default
        pt2e.annotate(gm, {aten.linear.default: pt2e.Observed(next(order))})
        for other, target in zip(hidden, kept, strict=True):
            other.target = target
    pt2e.annotate(gm, RULES)
    return gm


@functools.cache
def stages():
    gm = annotate(float_model())
    annotated = pt2e.quantization_report(gm)
    prepared = pt2e.insert_observers(gm, {})
    prepared(*INPUTS)
    observed = pt2e.quantization_report(prepared)
    converted = convert_pt2e(prepared)
    return {
        "annotated": annotated,
        "prepared": observed,
        "converted": pt2e.quantization_report(converted),
        "gm": converted,
    }


def statuses(report):
    return {row.node: row.status for row in report}


STATUS = {
    "conv2d": "quantized",
    "relu": "quantized",
    "mean": "float",
    "linear": "quantized",
    "softmax": "float",
    "linear_1": "weight only",
    "mul": "partly",
    "linear_2": "float",
    "reshape": "float",
    "add": "n/a",
}


@pytest.mark.parametrize("stage", ["annotated", "prepared", "converted"])
def test_statuses_at_each_stage(stage):
    report = stages()[stage]
    assert report.stage == stage
    assert statuses(report) == STATUS
    assert report.counts == {"quantized": 3, "float": 4, "weight only": 1, "partly": 1, "n/a": 1}


def test_reasons():
    report = stages()["converted"]
    why = {row.node: row.why for row in report}
    assert why["conv2d"] == why["linear"] == "all inputs are quantized"
    assert why["relu"] == "inside a pattern with conv2d"
    assert why["mean"] == "no annotation; it reads what is quantized for others: relu"
    assert why["softmax"] == why["linear_2"] == "no annotation"
    assert why["linear_1"] == "float input without q/dq: softmax"
    assert why["mul"] == "float input without q/dq: softmax"
    assert why["reshape"] == "only its output is annotated; float input without q/dq: linear_2"
    assert why["add"] == "unsupported dtype: int64"


def test_rows_are_data():
    row = stages()["converted"]["linear"]
    assert (row.op, row.module, row.output) == ("aten.linear.default", "bound", "float32")
    assert [kind for _, kind in row.inputs] == ["uint8", "int8", "float32"]
    assert row.inputs[0][0] == "mean" and row.inputs[2][0] == "bound_bias"
    assert stages()["converted"]["relu"].output == "uint8"
    assert stages()["annotated"]["relu"].output == "uint8"
    assert len(stages()["converted"]) == len(list(stages()["converted"])) == len(STATUS)
    with pytest.raises(KeyError, match="no node 'nothing'"):
        stages()["converted"]["nothing"]


def test_only_some():
    report = stages()["converted"].only("partly", "weight only")
    assert statuses(report) == {"linear_1": "weight only", "mul": "partly"} and report.stage == "converted"


def test_table():
    lines = str(stages()["converted"]).splitlines()
    assert lines[0].split() == ["node", "op", "module", "status", "inputs", "output", "why"]
    assert set(lines[1]) == {"-", " "}
    assert len(lines) == len(STATUS) + 3 and lines[-1].startswith("converted: 3 quantized, 4 float")
    assert not any(line != line.rstrip() for line in lines)
    starts = [line.index(STATUS[line.split()[0]]) for line in lines[2:-1]]
    assert len(set(starts)) == 1
    assert repr(stages()["converted"]).startswith("<quantization report of a converted graph: 3 quantized")


def test_html_is_escaped():
    row = pt2e.ReportRow("<a>", "op", "m&m", "float", (("x", "float32"),), "float32", "'why'")
    page = pt2e.QuantizationReport([row], "float")._repr_html_()
    assert "&lt;a&gt;" in page and "m&amp;m" in page and "<a>" not in page
    assert page.count("<tr") == 2 and page.count("<td") == len(row)


def test_float_and_empty_graphs():
    report = pt2e.quantization_report(float_model())
    assert report.stage == "float" and set(report.counts) == {"float", "n/a"}
    assert report["conv2d"].why == "nothing is annotated yet"
    empty = pt2e.quantization_report(torch.fx.Graph())
    assert len(empty) == 0 and "no operators" in str(empty) and empty.counts == {}
    with pytest.raises(TypeError):
        pt2e.quantization_report(None)


def test_fastexport_graphs_have_the_same_report():
    gm = stages()["gm"]
    for report in (pt2e.quantization_report(fastexport.from_fx(gm)), pt2e.quantization_report(gm.graph)):
        assert report.rows == stages()["converted"].rows and report.stage == "converted"
    graph = fastexport.from_fx(gm)
    graph.owning_module = None
    assert statuses(pt2e.quantization_report(graph)) == STATUS


def test_without_annotations_the_graph_tells():
    graph = fastexport.from_fx(stages()["gm"])
    for node in graph.nodes:
        node.meta.pop("quantization_annotation", None)
    expected = STATUS | {"mean": "quantized", "relu": "float"}
    assert statuses(pt2e.quantization_report(graph)) == expected


def test_dynamic_quantization_is_told():
    gm = float_model()
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_dynamic=True))
    prepared = prepare_pt2e(gm, quantizer)
    for report in (pt2e.quantization_report(prepared), pt2e.quantization_report(convert_pt2e(prepared))):
        assert report["linear"].status == "quantized"
        assert report["linear"].inputs[0] == ("mean", "int8 (dynamic)")
