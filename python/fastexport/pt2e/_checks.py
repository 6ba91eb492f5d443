"""Faults of quantization annotations, found and named before prepare_pt2e meets them with a bare error.

An annotation speaks of edges (a node as an input of another) and of outputs (a node). prepare_pt2e goes through them in
one order: node by node, the inputs before the output. A shared spec has to lead to a spec of its own, and the first
member of a group that shares has to have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fastexport._errors import FastExportError
from fastexport.pt2e._graphs import ANNOTATION, dtype_name, flat_nodes, is_float_dtype, is_node, parts

Point = Any  # a node, for its output, or a pair (input, user)


class AnnotationFinding(NamedTuple):
    """One fault of the annotations.

    Attributes:
        code: ``"SHARED_MISSING"``, ``"SHARED_LATER"``, ``"SHARED_CYCLE"``, ``"DERIVED_MISSING"``, ``"DERIVED_LATER"``,
            ``"INTEGER_OBSERVED"``, ``"NOT_AN_INPUT"`` or ``"KEYWORD_INPUT"``.
        node: the name of the node whose annotation is at fault.
        others: the names of the other nodes involved.
        message: what is wrong, where, and what to do about it.
    """

    code: str
    node: str
    others: tuple[str, ...]
    message: str


class AnnotationError(FastExportError, ValueError):
    """Annotations that prepare_pt2e can't use, or that fail when the model is calibrated.

    Attributes:
        findings: all of them, as `AnnotationFinding`; the message has each on a line.
    """

    __module__ = "fastexport.pt2e"

    def __init__(self, findings: list[AnnotationFinding]) -> None:
        super().__init__("\n".join(finding.message for finding in findings))
        self.findings = findings


def check_annotations(gm: Any, *, raise_on_error: bool = False) -> list[AnnotationFinding]:
    """Look for faults in the quantization annotations of a graph.

    Found are: a spec shared with an edge or node that has none, with one that comes later, or in a circle; one derived
    from such; integer tensors about to be observed; inputs that are not inputs, or are given by keyword. To have the
    same inside of prepare_pt2e, switch on the replacement of that name:
    ``fastexport.acceleration.table()["annotation_checks"].enabled = True``, and use ``fastexport.accelerate()``.

    Args:
        gm: an annotated torch.fx.GraphModule or Graph, before it is prepared.
        raise_on_error: raise if there are findings.

    Returns:
        The findings, by node; an empty list where there are none.

    Raises:
        AnnotationError: with ``raise_on_error``, there are findings.
        TypeError: gm is none of these.

    Example::

        quantizer.annotate(gm)
        for finding in check_annotations(gm):
            print(finding.message)
    """
    findings = list(_find(parts(gm).graph))
    if findings and raise_on_error:
        raise AnnotationError(findings)
    return findings


def _find(graph: Any) -> Iterator[AnnotationFinding]:
    specs = _specs(graph)
    for node in graph.nodes:
        if ANNOTATION in node.meta:
            yield from _input_faults(node)
    for point, spec in specs.items():
        yield from _integer_faults(point, _resolved(spec, specs))
    broken = yield from _chain_faults(specs)
    if not broken:
        yield from _order_faults(specs)


def _specs(graph: Any) -> dict[Point, Any]:
    """All points that are annotated, in the order in which prepare_pt2e meets them."""
    specs: dict[Point, Any] = {}
    for node in graph.nodes:
        annotation = node.meta.get(ANNOTATION)
        if annotation is not None:
            specs.update(((source, node), spec) for source, spec in annotation.input_qspec_map.items())
            if annotation.output_qspec is not None:
                specs[node] = annotation.output_qspec
    return specs


def _is_shared(spec: Any) -> bool:
    return hasattr(spec, "edge_or_node")


def _derived_from(spec: Any) -> list[Point]:
    return list(getattr(spec, "derived_from", ()))


def _told(point: Point) -> str:
    """A point in words."""
    return f"the output of {point.name}" if is_node(point) else f"the input {point[0].name} of {point[1].name}"


def _nodes(*points: Point) -> list[str]:
    names = [node.name for point in points for node in ((point,) if is_node(point) else reversed(point))]
    return list(dict.fromkeys(names))


def _own(point: Point) -> Any:
    """The node in whose annotation a point is."""
    return point if is_node(point) else point[1]


def _finding(code: str, points: list[Point], message: str) -> AnnotationFinding:
    """A finding in the annotation that the first point is of."""
    node, *others = _nodes(_own(points[0]), *points)
    return AnnotationFinding(code, node, tuple(others), f"{code}: {message}")


# ---- inputs


def _input_faults(node: Any) -> Iterator[AnnotationFinding]:
    positional, keyword = set(flat_nodes(node.args)), list(flat_nodes(node.kwargs))
    if keyword:
        message = (
            f"{node.name} is annotated and takes {keyword[0].name} by keyword, which prepare_pt2e refuses; pass it by "
            "position"
        )
        yield AnnotationFinding("KEYWORD_INPUT", node.name, (keyword[0].name,), f"KEYWORD_INPUT: {message}")
    for source in node.meta[ANNOTATION].input_qspec_map:
        if source not in positional and source not in keyword:
            message = (
                f"the annotation of {node.name} has a spec for its input {source.name}, but {node.name} does not use "
                f"{source.name}, so nothing is observed; its inputs are {[n.name for n in node.all_input_nodes]}"
            )
            yield AnnotationFinding("NOT_AN_INPUT", node.name, (source.name,), f"NOT_AN_INPUT: {message}")


def _integer_faults(point: Point, spec: Any) -> Iterator[AnnotationFinding]:
    tensor = point if is_node(point) else point[0]
    dtype = dtype_name(tensor)
    if spec is None or dtype is None or is_float_dtype(dtype):
        return
    yield _finding(
        "INTEGER_OBSERVED",
        [point],
        f"{_told(point)} is about to be observed, but {tensor.name} is a tensor of {dtype}, which observers can't "
        f"take; leave it out of the annotation of {tensor.name if is_node(point) else point[1].name}",
    )


# ---- shared specs


def _resolved(spec: Any, specs: dict[Point, Any]) -> Any:
    """The spec at the end of a chain of shared ones; a missing end, or a circle, counts as something."""
    for _ in range(len(specs) + 1):
        if not _is_shared(spec):
            return spec
        spec = specs.get(spec.edge_or_node, "missing")
    return spec


def _chain_faults(specs: dict[Point, Any]) -> Any:
    """Chains that lead nowhere or in a circle; gives whether there are any."""
    broken = False
    in_circles: set[Point] = set()
    for point, spec in specs.items():
        code = "SHARED_MISSING" if _is_shared(spec) else "DERIVED_MISSING"
        for target in [spec.edge_or_node] if _is_shared(spec) else _derived_from(spec):
            if target not in specs:
                broken = True
                how = "shares its spec with" if _is_shared(spec) else "derives its spec from"
                yield _finding(
                    code,
                    [point, target],
                    f"{_told(point)} {how} {_told(target)}, which has no spec; annotate it, or share with "
                    f"another{_hint(target, specs)}",
                )
        circle = _circle(point, specs)
        if circle and not in_circles.intersection(circle):
            broken = True
            in_circles.update(circle)
            steps = ", which shares with ".join(_told(each) for each in [*circle[1:], circle[0]])
            yield _finding(
                "SHARED_CYCLE",
                circle,
                f"{_told(circle[0])} shares its spec with {steps}, so that none has a spec of its own; give one of "
                "them a spec that is not shared",
            )
    return broken


def _hint(target: Point, specs: dict[Point, Any]) -> str:
    """Where the same tensor has a spec, if anywhere."""
    tensor = target if is_node(target) else target[0]
    known = next((point for point in specs if (point if is_node(point) else point[0]) is tensor), None)
    return "" if known is None else f", such as {_told(known)}"


def _circle(point: Point, specs: dict[Point, Any]) -> list[Point]:
    """The points of the circle of shared specs that a point is in; none if it is in none."""
    path = [point]
    spec = specs[point]
    while _is_shared(spec) and len(path) <= len(specs):
        if spec.edge_or_node == point:
            return path
        path.append(spec.edge_or_node)
        spec = specs.get(spec.edge_or_node)
    return []


# ---- order


def _order_faults(specs: dict[Point, Any]) -> Iterator[AnnotationFinding]:
    """Groups whose first member has a shared spec, and derived specs that come before what they derive from."""
    if not any(_is_shared(spec) or _derived_from(spec) for spec in specs.values()):
        return
    from torchao.quantization.pt2e.prepare import _get_edge_or_node_to_group_id

    groups = _get_edge_or_node_to_group_id(specs)
    started: set[int] = set()
    met: set[Point] = set()
    for point, spec in specs.items():
        first = groups[point] not in started
        started.add(groups[point])
        if first and _is_shared(spec) and spec.edge_or_node not in met:
            anchor = spec.edge_or_node
            yield _finding(
                "SHARED_LATER",
                [point, anchor],
                f"{_told(point)} shares its spec with {_told(anchor)}, which prepare_pt2e meets later; give "
                f"{_told(point)} the spec and let {_told(anchor)} share it",
            )
        for target in _derived_from(spec) if first else ():
            if target not in met:
                yield _finding(
                    "DERIVED_LATER",
                    [point, target],
                    f"{_told(point)} derives its spec from {_told(target)}, which prepare_pt2e meets later; annotate "
                    "the node of the latter, or an earlier user of the same tensor, instead",
                )
        met.add(point)
