"""Clear errors for annotations that prepare_pt2e can't use; off unless switched on, since torchao's errors differ."""

from __future__ import annotations

from typing import Any

from fastexport.acceleration._replacement import Replacement


def prepare(stock: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Checks the annotations before observers are put in, and tells all faults by node (pt2e.check_annotations)."""
    from fastexport.pt2e import check_annotations

    check_annotations(model, raise_on_error=True)
    return stock.__wrapped__(model, *args, **kwargs)


REPLACEMENTS = (
    Replacement(
        "annotation_checks",
        ("torchao.quantization.pt2e.prepare:prepare", "torchao.quantization.pt2e.quantize_pt2e:prepare"),
        prepare,
        ("8606b9e07605646c",),
        since="torchao 0.18",
        enabled=False,
    ),
)
