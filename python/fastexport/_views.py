"""The HTML of each kind of object that a notebook shows: the pieces are `_html`'s, the facts those of the reprs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastexport import _core
from fastexport._errors import FastExportError, Fault
from fastexport._html import Page, badge, code, dim, escape, marked, shortened
from fastexport._notebook import options
from fastexport._summary import plural, size_text
from fastexport._tables import Column, Rows, Table

if TYPE_CHECKING:
    from fastexport._core import Node, NodeList, Tensor
    from fastexport._diff import GraphDiff
    from fastexport._errors import LintFault
    from fastexport._graph import Graph
    from fastexport._graph_module import GraphModule
    from fastexport._pass_log import PassLog
    from fastexport._program import ExportedProgram
    from fastexport._results import PassResult
    from fastexport._signature import ExportGraphSignature
    from fastexport._state import TensorDict
    from fastexport._statistics import WeightStatistics
    from fastexport._stats import Stats, StatsTable, Summary
    from fastexport._tables import Tabular
    from fastexport._tree import Module
    from fastexport.pt2e import QuantizationReport

_MOST_BRANCHES = 20  # of one module in the tree
_MOST_PREVIEW = 1 << 20  # bytes of a tensor whose elements are looked at
_PREVIEWED = 8
_MOST_MESSAGE = 400  # characters


def html_of(obj: Any) -> str:
    """The HTML of an object that has a view, found by its class or a base of that."""
    page = Page()
    for cls in type(obj).__mro__:
        if str(cls.__module__).partition(".")[0] == "fastexport" and cls.__name__ in _VIEWS:
            _VIEWS[cls.__name__](page, obj)
            break
    return page.html()


# ---- texts of what a graph holds -------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """The text of any object, also of one that has none: an object of a user's may raise when it is asked."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def value_text(value: Any) -> str:
    """What is known of the value of a node, as ``f32[2, 3]``; "" when nothing is."""
    if value is None:
        return ""
    if isinstance(value, tuple | list):
        inner = ", ".join(value_text(item) or "None" for item in value[:_PREVIEWED])
        return f"({inner}{', ...' if len(value) > _PREVIEWED else ''})"
    if str(type(value).__module__).partition(".")[0] == "torch" and hasattr(value, "dtype") and hasattr(value, "shape"):
        from fastexport._tensor_meta import TensorMeta

        try:
            value = TensorMeta.of(value)
        except (TypeError, ValueError):  # one without strides
            return str(value)
    return text_of(value)


def _arguments(node: Node) -> str:
    """The arguments of a node on a line."""
    parts = [text_of(arg) for arg in node.args]
    parts += [f"{key}={text_of(value)}" for key, value in node.kwargs.items()]
    return ", ".join(parts)


def _target(node: Node) -> str:
    from fastexport._naming import pretty

    target = node.target
    try:
        return (target if isinstance(target, str) else pretty(target)).removeprefix("torch.ops.")
    except Exception:  # an object of a user's
        return text_of(target)


def _calls(node: Node) -> str:
    """What a node does: the operator it calls, or opcode and target."""
    return _target(node) if node.op in ("call_function", "output") else f"{node.op} {_target(node)}"


def _module_of(node: Node) -> str:
    from fastexport._tree import modules_of

    paths = [path for path, _ in modules_of(node)]
    return paths[-1] if paths else ""


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counter.most_common())


# ---- graphs ----------------------------------------------------------------------------------------------------------

_NODE_COLUMNS = (Column("name"), Column("calls"), Column("arguments"), Column("value"))


def _node_row(node: Node) -> tuple[str, ...]:
    return node.name, _calls(node), _arguments(node), value_text(node.meta.get("val"))


def node_table(graph: Graph) -> Table:
    """See `Graph.table`."""
    names = ("name", "op", "target", "arguments", "value", "module", "users")
    return Table([Column(name) for name in names], Rows(list(graph.nodes), _table_row))


def _table_row(node: Node) -> tuple[Any, ...]:
    value = value_text(node.meta.get("val"))
    users = [user.name for user in node.users]
    return node.name, node.op, _target(node), _arguments(node), value, _module_of(node), users


def _write_nodes(page: Page, nodes: Sequence[Node], *, is_open: bool, share: float) -> None:
    ops: Counter[str] = Counter(node.op for node in nodes)
    if page.section("Nodes", f"{len(nodes):,}: {_counted(ops)}", is_open=is_open, share=share):
        page.table(Table(_NODE_COLUMNS, Rows(nodes, _node_row)), options().display_max_nodes)
        page.end()


def _write_operators(page: Page, nodes: Sequence[Node]) -> None:
    calls = Counter(_target(node) for node in nodes if node.op == "call_function")
    if calls and page.section("Operators", f"{len(calls):,} kinds, {calls.total():,} calls", share=0.3):
        columns = (Column("operator"), Column("calls", "{:,}".format, right=True))
        page.table(Table(columns, calls.most_common()), options().display_max_nodes)
        page.end()


def _write_subgraphs(page: Page, graph: Graph) -> None:
    for path, inner in list((graph.subgraphs or {}).items())[:_MOST_BRANCHES]:
        nodes = list(inner.nodes)
        if page.section(f"Subgraph {code(path)}", plural(len(nodes), "node"), share=0.3):
            page.table(Table(_NODE_COLUMNS, Rows(nodes, _node_row)), options().display_max_nodes)
            page.end()
    page.more(max(len(graph.subgraphs or {}) - _MOST_BRANCHES, 0))


def _view_graph(page: Page, graph: Graph) -> None:
    nodes = list(graph.nodes)
    page.title("Graph", badge(plural(len(nodes), "node")), *_subgraphs_badge(graph))
    _write_graph(page, graph, nodes, graph)


def _view_nodes(page: Page, nodes: NodeList) -> None:
    page.title("Nodes", badge(f"{len(nodes):,}"))
    page.table(Table(_NODE_COLUMNS, Rows(list(nodes), _node_row)), options().display_max_nodes)


def _subgraphs_badge(graph: Graph) -> list[str]:
    return [badge(plural(len(graph.subgraphs), "subgraph"))] if graph.subgraphs else []


def _write_graph(page: Page, graph: Graph, nodes: list[Node], whole: Graph | ExportedProgram) -> None:
    from fastexport._tree import module_tree

    root = module_tree(whole)
    if root.children:
        _write_modules(page, root)
    _write_nodes(page, nodes, is_open=not root.children, share=0.6)
    _write_operators(page, nodes)
    _write_subgraphs(page, graph)


def _view_module(page: Page, module: GraphModule) -> None:
    nodes = list(module.graph.nodes)
    page.title(module._class_name, badge("GraphModule"), badge(plural(len(nodes), "node")))
    if page.section("Code", share=0.5):
        _write_code(page, module)
        page.end()
    _write_graph(page, module.graph, nodes, module.graph)


def _write_code(page: Page, module: GraphModule) -> None:
    try:
        lines = module.code.strip("\n").split("\n")
    except Exception as error:  # an argument that has no text; anything a user's object raises
        page.note(f"no code: {text_of(error)}")
        return
    page.lines([escape(shortened(line, 200)) for line in lines], 4 * options().display_max_nodes)


# ---- the tree of modules ---------------------------------------------------------------------------------------------


def _write_modules(page: Page, root: Module) -> None:
    title = f"{code(root.type)}" if root.type else ""
    if page.section("Modules", is_open=True, share=0.6):
        label = f"{title} {dim(_module_facts(root))}"
        _write_branch(page, root, label, level=0)
        page.end()


def _write_branch(page: Page, module: Module, label: str, level: int) -> bool:
    if not module.children:
        return page.add(f'<div style="margin-left:14px">{label}</div>')
    if not page.branch(label, is_open=level < options().display_depth):
        return False
    groups = module.groups()
    shown = 0
    for group in groups[:_MOST_BRANCHES]:
        if not _write_branch(page, group[0], _branch_label(group), level + 1):
            break
        shown += 1
    page.more(len(groups) - shown)
    page.end()
    return True


def _branch_label(group: list[Module]) -> str:
    first = group[0]
    name = first.name if len(group) == 1 else f"{first.name}..{group[-1].name}"
    times, each = (f" {badge(f'× {len(group)}', 'info')}", " each") if len(group) > 1 else ("", "")
    return f"{code(name, 40)} {escape(shortened(first.type, 40))}{times} {dim(_module_facts(first) + each)}"


def _module_facts(module: Module) -> str:
    parts = [plural(module.total_operators(), "op")]
    if module.total_parameters():
        parts.append(plural(module.total_parameters(), "parameter"))
    if module.total_bytes():
        parts.append(size_text(module.total_bytes()))
    return " · ".join(parts)


# ---- nodes -----------------------------------------------------------------------------------------------------------


def _view_node(page: Page, node: Node) -> None:
    if node._erased:
        page.title(text_of(node), badge("erased", "bad"))
        return
    page.title(node.name, badge(node.op), *([code(_target(node))] if node.op != "output" else []))
    page.facts(_node_facts(node))
    if node.args or node.kwargs:
        _write_arguments(page, node)
    meta = [(text_of(key), text_of(value)) for key, value in node.meta.items() if key not in ("val", "stack_trace")]
    if meta and page.section("Meta", shortened(", ".join(key for key, _ in meta)), share=0.6):
        page.facts(meta[: options().display_max_nodes])
        page.end()
    trace = node.meta.get("stack_trace")
    if isinstance(trace, str) and trace and page.section("Stack trace", _last_frame(trace)):
        page.lines([escape(shortened(line, 200)) for line in trace.rstrip().split("\n")], options().display_max_nodes)
        page.end()


def _node_facts(node: Node) -> Iterator[tuple[str, str]]:
    value = value_text(node.meta.get("val"))
    if value:
        yield "value", value
    users = [user.name for user in node.users]
    more = f", +{len(users) - _PREVIEWED} more" if len(users) > _PREVIEWED else ""
    yield "users", ", ".join(users[:_PREVIEWED]) + more or "none"
    module = _module_of(node)
    if module:
        yield "module", module
    if node.type is not None:
        yield "type", text_of(node.type)


def _last_frame(trace: str) -> str:
    lines = [line.strip() for line in trace.split("\n") if line.strip().startswith("File ")]
    return lines[-1].removeprefix("File ") if lines else ""


def _write_arguments(page: Page, node: Node) -> None:
    from fastexport._node_facts import argument_names

    names = argument_names(node.target)
    pairs = [(names[i] if i < len(names) else str(i), value) for i, value in enumerate(node.args)]
    pairs += [(str(key), value) for key, value in node.kwargs.items()]
    if page.section("Arguments", str(len(pairs)), is_open=True, share=0.5):
        columns = (Column("argument"), Column("given"), Column("value"))
        rows = Rows(pairs, lambda pair: (pair[0], text_of(pair[1]), _operand_value(pair[1])))
        page.table(Table(columns, rows), options().display_max_nodes)
        page.end()


def _operand_value(value: Any) -> str:
    return value_text(value.meta.get("val")) if isinstance(value, _core.Node) else ""


# ---- programs --------------------------------------------------------------------------------------------------------


def _view_program(page: Page, program: ExportedProgram) -> None:
    from fastexport import _summary

    page.title("ExportedProgram", dim(_summary.about(program)))
    page.facts((name, text) for name, text in _summary.facts(program) if name != "noted")
    nodes = list(program.graph.nodes)
    signature = program.graph_signature
    if program.faults:
        about = plural(len(program.faults), "finding")
        if page.section(badge("Findings", "changed"), about, share=0.2):
            _write_faults(page, program.faults)
            page.end()
    try:
        _write_graph(page, program.graph, nodes, program)
    except FastExportError as error:  # weights of an old file that can't be read
        page.note(text_of(error))
        _write_nodes(page, nodes, is_open=False, share=0.6)
    about = f"{plural(len(signature.input_specs), 'input')}, {plural(len(signature.output_specs), 'output')}"
    if page.section("Signature", about, share=0.5):
        _write_signature(page, signature)
        page.end()
    _write_weights(page, program)


def _write_weights(page: Page, program: ExportedProgram) -> None:
    from fastexport._weight_facts import weights_of, weights_table

    try:
        table = weights_table(weights_of(program))
    except FastExportError as error:
        page.note(text_of(error))
        return
    if table.rows and page.section("Weights and constants", f"{len(table):,}"):
        page.table(table, options().display_max_nodes)
        page.end()


_FAULT_COLUMNS = (Column("code"), Column("severity"), Column("where"), Column("node"), Column("message"))


def _write_faults(page: Page, faults: Sequence[Fault | LintFault]) -> None:
    table = Table(_FAULT_COLUMNS, Rows(faults, _fault_row))
    colours = {"error": "bad", "warning": "changed"}
    page.table(table, options().display_max_nodes, lambda row: colours[row[1]], most_chars=_MOST_MESSAGE)


def _fault_row(fault: Fault | LintFault) -> tuple[str | None, ...]:
    if not isinstance(fault, Fault):
        return fault.code, "error", None, fault.node, fault.message
    where = " ".join(shortened(part) for part in (fault.entry, fault.json_path) if part)
    return fault.code, "error" if fault.is_error else "warning", where, fault.node, fault.message


def _view_signature(page: Page, signature: ExportGraphSignature) -> None:
    page.title(
        "ExportGraphSignature",
        badge(plural(len(signature.input_specs), "input")),
        badge(plural(len(signature.output_specs), "output")),
    )
    _write_signature(page, signature)


def _write_signature(page: Page, signature: ExportGraphSignature) -> None:
    table = signature._table()
    for title, side in (("Inputs", "input"), ("Outputs", "output")):
        rows = [row[1:] for row in table.rows if row[0] == side]
        kinds = Counter(str(kind) for _, kind, *_ in rows)
        if page.section(title, _counted(kinds), is_open=len(rows) <= _MOST_BRANCHES, share=0.6):
            page.table(Table(table.columns[1:], rows), options().display_max_nodes)
            page.end()


# ---- weights ---------------------------------------------------------------------------------------------------------


def _view_state(page: Page, state: TensorDict) -> None:
    from fastexport._weight_facts import Totals, facts_in

    table = state._table()
    total = Totals(facts_in(state, {}, "")).nbytes.total()
    page.title("Constants" if state._constants else "Weights", badge(f"{len(table):,}"), badge(size_text(total)))
    page.table(table, options().display_max_nodes)


def _view_tensor(page: Page, tensor: Tensor) -> None:
    page.title(f"{tensor.dtype.name}[{', '.join(map(str, tensor.shape))}]", badge(size_text(tensor.nbytes)))
    page.facts(_tensor_facts(tensor))


def _tensor_facts(tensor: Tensor) -> Iterator[tuple[str, str]]:
    yield "elements", f"{tensor.numel:,}"
    if not tensor.is_contiguous:
        yield "strides", str(list(tensor.strides))
    yield "kind", "parameter" if tensor.is_param else "tensor"
    if str(tensor.device) != "cpu":
        yield "device", str(tensor.device)
    if str(tensor.layout) != "torch.strided":
        yield "layout", str(tensor.layout)
    if tensor.storage is not None and tensor.storage.entry:
        yield "entry", tensor.storage.entry
    values = _preview(tensor)
    if values:
        yield "values", values


def _view_statistics(page: Page, found: WeightStatistics) -> None:
    page.title("WeightStatistics", badge(found.dtype), badge(str(list(found.shape))), badge(size_text(found.bytes)))
    shown = {name: value for name, value in found._asdict().items() if name not in ("dtype", "shape", "bytes")}
    page.facts((name, _number(value)) for name, value in shown.items() if value is not None)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def _preview(tensor: Tensor) -> str:
    """The first elements, where they are at hand."""
    storage = tensor.storage
    if storage is None or not tensor.numel or storage.nbytes > _MOST_PREVIEW or not tensor.is_contiguous:
        return ""
    count = min(tensor.numel, _PREVIEWED)
    try:
        values = _core.Tensor(storage, tensor.dtype, (count,), storage_offset=tensor.storage_offset).tolist()
    except Exception:  # damaged, out of reach, or of a type without numbers
        return ""
    texts = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
    return ", ".join(texts) + (", ..." if tensor.numel > count else "")


# ---- passes and diffs ------------------------------------------------------------------------------------------------


def _view_result(page: Page, result: PassResult) -> None:
    state = badge("modified", "changed") if result.modified else badge("not modified")
    page.title(result.name, state, dim(f"{result.seconds * 1e3:.3f} ms"))
    most = options().display_max_nodes
    for title, names, colour in (("removed", result.removed, "bad"), ("added", result.added, "good")):
        if names and page.section(badge(title, colour), f"{len(names):,}", is_open=len(names) <= 10, share=0.4):
            page.names(names, len(names), most)
            page.end()
    replaced = result.replaced
    if replaced and page.section(badge("replaced", "changed"), f"{len(replaced):,}", share=0.5):
        page.table(Table((Column("node"), Column("by")), list(replaced.items())), most)
        page.end()
    if result.reasons and page.section("reasons", f"{len(result.reasons):,}"):
        page.table(Table((Column("node"), Column("reason")), list(result.reasons.items())), most)
        page.end()


def _view_log(page: Page, log: PassLog) -> None:
    state = badge("modified", "changed") if log.modified else badge("not modified")
    page.title(plural(len(log), "pass") if len(log) == 1 else f"{len(log):,} passes", state)
    page.table(log._table(), options().display_max_nodes)


_MARKS = {"-": "bad", "+": "good", "~": "changed"}


def _view_diff(page: Page, diff: GraphDiff) -> None:
    from fastexport._diff_text import sections

    page.title("GraphDiff", dim(repr(diff)[len("GraphDiff(") : -1]))
    left = 4 * options().display_max_nodes
    parts = list(sections(diff, 3))
    for shown, (title, lines) in enumerate(parts):
        if left <= 0 or not page.section(escape(shortened(title)), _changed(lines), is_open=shown < 5):
            page.note(f"+{len(parts) - shown:,} more parts: print() shows all")
            return
        page.lines([_diff_line(mark, text) for mark, text in lines], left)
        page.end()
        left -= len(lines)


def _changed(lines: list[tuple[str, str]]) -> str:
    counts = Counter(mark for mark, _ in lines)
    return " ".join(f"{mark}{counts[mark]:,}" for mark in "-+~" if counts[mark])


def _diff_line(mark: str, text: str) -> str:
    if mark == "@":
        return dim(shortened(text, 200))
    line = shortened(f"{mark} {text}", 240)
    return marked(line, _MARKS[mark]) if mark in _MARKS else escape(line)


# ---- tables ----------------------------------------------------------------------------------------------------------


def _view_table(page: Page, table: Tabular) -> None:
    page.table(table._table(), options().display_max_nodes)


def _view_faults(page: Page, faults: Any) -> None:
    errors = sum(getattr(fault, "is_error", True) for fault in faults)
    badges = [badge(plural(errors, "error"), "bad")] if errors else []
    if len(faults) - errors:
        badges.append(badge(plural(len(faults) - errors, "warning"), "changed"))
    page.title("Findings", *(badges or [badge("none", "good")]))
    if faults:
        _write_faults(page, faults)


_STATUS_COLOURS = {"quantized": "good", "partly": "changed", "weight only": "changed", "float": "bad"}


def _view_report(page: Page, report: QuantizationReport) -> None:
    counts = [
        badge(f"{count:,} {status}", _STATUS_COLOURS.get(status, "plain")) for status, count in report.counts.items()
    ]
    page.title("Quantization report", dim(f"of a {report.stage} graph"), *counts)
    page.table(report._table(), options().display_max_nodes, lambda row: _STATUS_COLOURS.get(row[3]))


def _view_stats(page: Page, stats: Stats | StatsTable) -> None:
    page.title("Stats", badge(stats.name if hasattr(stats, "name") else f"{len(stats)} programs"))
    page.table(stats._table(), options().display_max_nodes)


def _view_summary(page: Page, summary: Summary) -> None:
    root = summary.root
    page.title(root.type or "program", dim(_module_facts(root)))
    _write_branch(page, root, code(root.type or "program"), 0)


_VIEWS: dict[str, Callable[[Page, Any], None]] = {
    "ExportGraphSignature": _view_signature,
    "ExportedProgram": _view_program,
    "Faults": _view_faults,
    "Graph": _view_graph,
    "GraphDiff": _view_diff,
    "GraphModule": _view_module,
    "Node": _view_node,
    "NodeList": _view_nodes,
    "PassLog": _view_log,
    "PassResult": _view_result,
    "QuantizationReport": _view_report,
    "Stats": _view_stats,
    "StatsTable": _view_stats,
    "Summary": _view_summary,
    "Tabular": _view_table,
    "Tensor": _view_tensor,
    "TensorDict": _view_state,
    "WeightStatistics": _view_statistics,
}
