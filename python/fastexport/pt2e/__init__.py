"""Tools for quantization by PT2E: annotating, checking, folding and reporting, on live torch graphs and fastexport's.

Each takes a torch.fx.GraphModule or Graph, which is changed in place, or a `fastexport.Graph`. Importing this imports
no torch; what makes annotations needs torchao when it is called.

Example::

    from fastexport import pt2e

    pt2e.fold_conv_bn(gm)  # gm = torch.export.export(...).module()
    linear = pt2e.Observed({"input": activations, "weight": weights})  # QuantizationSpecs of torchao
    prepared = pt2e.insert_observers(gm, {torch.ops.aten.linear.default: linear})
    prepared(*example)
    print(pt2e.quantization_report(convert_pt2e(prepared)))
"""

from __future__ import annotations

from fastexport.pt2e._checks import AnnotationError, AnnotationFinding, check_annotations
from fastexport.pt2e._cleaning import clean_up
from fastexport.pt2e._folding import fold_conv_bn
from fastexport.pt2e._observers import Observed, annotate, insert_observers, pattern_quantizer
from fastexport.pt2e._pictures import to_dot
from fastexport.pt2e._qdq import duplicate_dq, port_qdq_meta
from fastexport.pt2e._reports import QuantizationReport, ReportRow, quantization_report

__all__ = [
    "AnnotationError",
    "AnnotationFinding",
    "Observed",
    "QuantizationReport",
    "ReportRow",
    "annotate",
    "check_annotations",
    "clean_up",
    "duplicate_dq",
    "fold_conv_bn",
    "insert_observers",
    "pattern_quantizer",
    "port_qdq_meta",
    "quantization_report",
    "to_dot",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
