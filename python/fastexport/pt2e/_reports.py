"""What of a model is quantized, what not, and why: of annotated, prepared and converted graphs.

Seen are names of operators, dtypes of values and annotations, so that a graph read without torch has a report too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastexport._tables import Column, Table, Tabular
from fastexport.pt2e._graphs import (
    ANNOTATION,
    CHOOSE,
    DEQUANTIZE,
    QUANTIZE,
    dtype_name,
    find_attribute,
    is_float_dtype,
    is_node,
    op_name,
    parts,
    real_users,
)

# What moves or asks, and has nothing to quantize of its own.
_NO_WORK = frozenset(
    (
        "getitem",
        "aten._assert_scalar.default",
        "aten._assert_tensor_metadata.default",
        "aten.lift_fresh_copy.default",
        "aten.sym_constrain_range_for_size.default",
        "aten.sym_size.int",
    )
)


class ReportRow(NamedTuple):
    """One operator of the model.

    Attributes:
        node: the name of its node.
        op: what it calls, such as ``"aten.linear.default"``.
        module: the path of the module that it comes from, "" where that is not known.
        status: ``"quantized"``, ``"partly"``, ``"weight only"``, ``"float"``, or ``"n/a"`` for what has no
            floating-point tensor to quantize.
        inputs: for each tensor that goes in: its node's name and what it is, such as ``"int8"``, ``"float32"``.
        output: the dtype that the result is quantized to, or its own.
        why: the reason for the status.
    """

    node: str
    op: str
    module: str
    status: str
    inputs: tuple[tuple[str, str], ...]
    output: str
    why: str


class QuantizationReport(Tabular):
    """The rows of a report; printed as a table, in notebooks as one with colours.

    Attributes:
        rows: the `ReportRow` of each operator, in the order of the graph.
        stage: ``"float"``, ``"annotated"``, ``"prepared"`` or ``"converted"``.
    """

    def __init__(self, rows: list[ReportRow], stage: str) -> None:
        self.rows = rows
        self.stage = stage

    @property
    def counts(self) -> dict[str, int]:
        """How many operators have each status."""
        return dict(Counter(row.status for row in self.rows))

    def only(self, *statuses: str) -> QuantizationReport:
        """The report of the operators with some statuses, such as ``report.only("float", "partly")``."""
        return QuantizationReport([row for row in self.rows if row.status in statuses], self.stage)

    def __iter__(self) -> Iterator[ReportRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, node: str) -> ReportRow:
        """The row of a node, by name."""
        for row in self.rows:
            if row.node == node:
                return row
        raise KeyError(f"the report has no node {node!r}")

    def _ipython_key_completions_(self) -> list[str]:
        return [row.node for row in self.rows]

    def __repr__(self) -> str:
        return f"<quantization report of a {self.stage} graph: {self._summary()}>"

    def _summary(self) -> str:
        return ", ".join(f"{count} {status}" for status, count in self.counts.items()) or "no operators"

    def __str__(self) -> str:
        head = ("node", "op", "module", "status", "inputs", "output", "why")
        cells = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
        cells.insert(1, tuple("-" * width for width in widths))
        padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
        lines = ["  ".join(row).rstrip() for row in padded]
        return "\n".join([*lines, f"{self.stage}: {self._summary()}"])

    def _table(self) -> Table:
        columns = [Column(name) for name in ReportRow._fields]
        told = [[f"{name}: {kind}" for name, kind in row.inputs] for row in self.rows]
        return Table(columns, [(*row[:4], inputs, *row[5:]) for row, inputs in zip(self.rows, told, strict=True)])


def _cells(row: ReportRow) -> tuple[str, ...]:
    inputs = ", ".join(f"{name}: {kind}" for name, kind in row.inputs)
    return row.node, row.op, row.module, row.status, inputs, row.output, row.why


def quantization_report(g: Any) -> QuantizationReport:
    """Tell for each operator whether it is quantized, and why not if it isn't.

    Args:
        g: a torch.fx.GraphModule or Graph, annotated, prepared or converted, or a fastexport Graph.

    Returns:
        A `QuantizationReport`: rows as data, a table when printed.

    Raises:
        TypeError: g is none of these.

    Example::

        report = quantization_report(convert_pt2e(prepared))
        print(report.only("float", "partly"))
        {row.node: row.why for row in report if row.status == "float"}
    """
    return _Reporter(g).report()


class _Input(NamedTuple):
    name: str
    kind: str  # the dtype it has, or is quantized to
    quantized: bool
    is_float: bool
    is_weight: bool
    source: Any


class _Reporter:
    """One report: the graph, and how far the model has come."""

    def __init__(self, g: Any) -> None:
        self._graph, self._module, _ = parts(g)
        nodes = list(self._graph.nodes)
        self._observers = {node: dtype for node in nodes if (dtype := self._observed(node)) is not None}
        if any(op_name(node) in DEQUANTIZE for node in nodes):
            self._stage = "converted"
        elif self._observers:
            self._stage = "prepared"
        else:
            self._stage = "annotated" if any(ANNOTATION in node.meta for node in nodes) else "float"
        # Where annotations tell what is meant to be quantized, an operator without one is not, whatever it reads.
        self._has_annotations = any(ANNOTATION in node.meta for node in nodes)
        self._quantized: set[Any] = set()

    def report(self) -> QuantizationReport:
        skipped = QUANTIZE | DEQUANTIZE | CHOOSE | _NO_WORK
        rows = [
            self._row(node)
            for node in self._graph.nodes
            if node.op in ("call_function", "call_method", "call_module")
            and node not in self._observers
            and op_name(node) not in skipped
            and node.target != "_guards_fn"
            and not self._is_preparation(node)
        ]
        return QuantizationReport(rows, self._stage)

    def _observed(self, node: Any) -> str | None:
        """The dtype that an observer or fake quantizer is for; None for any other node."""
        if node.op != "call_module":
            return None
        module = find_attribute(self._module, str(node.target))
        if module is None:
            return "observed" if "activation_post_process" in str(node.target) else None
        is_observer = hasattr(module, "calculate_qparams") or "activation_post_process" in str(node.target)
        return str(getattr(module, "dtype", "observed")).removeprefix("torch.") if is_observer else None

    def _is_preparation(self, node: Any) -> bool:
        """Whether a node only makes a weight ready for its quantize node."""
        return bool(node.users) and all(op_name(u) in QUANTIZE for u in node.users) and _is_constant(node)

    # ---- one operator

    def _row(self, node: Any) -> ReportRow:
        sources = [each for each in node.all_input_nodes if dtype_name(each) or self._quantized_to(node, each)]
        inputs = [self._input(node, each) for each in sources]
        status, why = self._judge(node, inputs)
        if status in ("quantized", "partly"):
            self._quantized.add(node)
        stack = node.meta.get("nn_module_stack") or {}
        module = next(reversed(stack.values()))[0] if stack else ""
        told = tuple((item.name, item.kind) for item in inputs)
        return ReportRow(node.name, op_name(node) or str(node.target), module, status, told, self._output(node), why)

    def _quantized_to(self, node: Any, source: Any) -> str | None:
        """What dtype an input is quantized to; None where it isn't."""
        if self._stage == "annotated":
            annotation = node.meta.get(ANNOTATION)
            spec = None if annotation is None else annotation.input_qspec_map.get(source)
            return None if spec is None else _spec_dtype(spec)
        if source in self._observers:
            return self._observers[source]
        if op_name(source) in DEQUANTIZE:
            return _last_dtype(source) or dtype_name(source.args[0]) or "quantized"
        return None

    def _input(self, node: Any, source: Any) -> _Input:
        to = self._quantized_to(node, source)
        dtype = dtype_name(source) or "float"
        origin = source
        while origin in self._observers or op_name(origin) in DEQUANTIZE | QUANTIZE:
            origin = origin.args[0]
        weight = _is_constant(origin)
        if to is not None and not is_float_dtype(to) and self._is_dynamic(source):
            to += " (dynamic)"
        return _Input(origin.name, to or dtype, to is not None, to is not None or is_float_dtype(dtype), weight, origin)

    def _is_dynamic(self, source: Any) -> bool:
        if op_name(source) in DEQUANTIZE and is_node(source.args[0]):
            scale = source.args[1] if len(source.args) > 1 else None
            return is_node(scale) and op_name(scale) == "getitem"
        module = find_attribute(self._module, str(source.target)) if source in self._observers else None
        return getattr(module, "is_dynamic", False) is True

    def _judge(self, node: Any, inputs: list[_Input]) -> tuple[str, str]:
        floats = [item for item in inputs if item.is_float]
        if not floats:
            kinds = sorted({item.kind for item in inputs})
            return "n/a", f"unsupported dtype: {', '.join(kinds)}" if kinds else "no tensor goes in"
        done = [item for item in floats if item.quantized]
        rest = [item for item in floats if not item.quantized and not self._is_bias(node, item)]
        inner = [item for item in rest if self._is_inside(node, item)]
        rest = [item for item in rest if item not in inner]
        if self._has_annotations and node.meta.get(ANNOTATION) is None and done:
            return "float", f"no annotation; it reads what is quantized for others: {', '.join(d.name for d in done)}"
        if not rest:
            why = f"inside a pattern with {inner[0].name}" if inner else "all inputs are quantized"
            return "quantized", why if self._stage == "converted" or inner else f"{why} ({self._stage})"
        names = ", ".join(item.name for item in rest)
        if not done:
            return "float", self._why_not(node, rest, inner, names)
        if all(item.is_weight for item in done) and not any(item.is_weight for item in rest):
            return "weight only", f"float input without q/dq: {names}"
        return "partly", f"float input without q/dq: {names}"

    def _is_bias(self, node: Any, item: _Input) -> bool:
        """A bias is left in floating point by all backends; an operator with one counts as quantized."""
        names = [a.name for a in getattr(getattr(node.target, "_schema", None), "arguments", ())]
        if "bias" in names:
            place = names.index("bias")
        elif op_name(node).startswith(("aten.conv", "aten.linear.")):  # read without torch: no schema
            place = 2
        else:
            return False
        bias = node.args[place] if len(node.args) > place else node.kwargs.get("bias")
        return bias is item.source

    def _is_inside(self, node: Any, item: _Input) -> bool:
        """Whether an input comes from the operator before in one pattern, between which nothing is quantized."""
        own, before = node.meta.get(ANNOTATION), item.source.meta.get(ANNOTATION)
        return (
            item.source in self._quantized
            and own is not None
            and before is not None
            and before.output_qspec is None
            and not any(_name(key) == item.source.name for key in own.input_qspec_map)
        )

    def _why_not(self, node: Any, rest: list[_Input], inner: list[_Input], names: str) -> str:
        annotation = node.meta.get(ANNOTATION)
        if annotation is None and self._stage == "float":
            return "nothing is annotated yet"
        if annotation is None:
            return "no annotation"
        if not annotation.input_qspec_map:
            if annotation.output_qspec is not None:
                return f"only its output is annotated; float input without q/dq: {names}"
            return "annotated, but with no spec for its inputs"
        known = {_name(key) for key, spec in annotation.input_qspec_map.items() if spec is not None}
        missing = [item.name for item in rest if item.name not in known]
        if missing:
            return f"the annotation has no spec for {', '.join(missing)}"
        return f"annotated, but float input without q/dq: {names}"

    def _output(self, node: Any) -> str:
        if self._stage == "annotated":
            annotation = node.meta.get(ANNOTATION)
            spec = None if annotation is None else annotation.output_qspec
            return _spec_dtype(spec) if spec is not None else dtype_name(node) or ""
        for user in real_users(node):
            if user in self._observers:
                return self._observers[user]
            if op_name(user) in QUANTIZE:
                return _last_dtype(user) or ""
        return dtype_name(node) or ""


def _last_dtype(node: Any) -> str | None:
    """The dtype that a node which quantizes or dequantizes is given."""
    names = (str(arg) for arg in reversed(node.args))
    return next((name.removeprefix("torch.") for name in names if name.startswith("torch.")), None)


def _name(key: Any) -> str:
    return getattr(key, "name", "")


def _spec_dtype(spec: Any) -> str:
    """The dtype of a spec; of a shared one, that it is shared."""
    dtype = getattr(spec, "dtype", None)
    return "shared" if dtype is None else str(dtype).removeprefix("torch.")


def _is_constant(node: Any) -> bool:
    """Whether a value is made of the module's attributes alone."""
    seen: set[Any] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.op == "placeholder" or len(seen) > 16 or (each.op != "get_attr" and not each.all_input_nodes):
            return False
        stack += each.all_input_nodes
    return True
