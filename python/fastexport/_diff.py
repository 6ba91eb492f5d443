"""What differs between two graphs or programs: `diff` and the `GraphDiff` it gives.

Nodes are paired in C by what they do before what they are called (csrc/core/diff.c), so a node that is put in, which
shifts the names of those after it, is one difference and not hundreds.
"""

from __future__ import annotations

import os
import re
import sys
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastexport import _core
from fastexport._arguments import list_of
from fastexport._collecting import no_collection
from fastexport._graph import Graph
from fastexport._graph_module import GraphModule, subgraphs_of
from fastexport._loaded import loaded
from fastexport._passes import _own_graph
from fastexport._tables import Table, Tabular

__all__ = ["GraphDiff", "NodeChange", "NodesDiff", "diff"]

# The bits of a change, as csrc/core/diff.h has them; the last is csrc/py/diff.c's.
_KINDS = ("op", "target", "args", "kwargs", "type", "name", "order", "meta")
OP, TARGET, ARGS, KWARGS, TYPE, NAME, ORDER, META = (1 << bit for bit in range(8))
NOWHERE = 2**32 - 1  # the place of a node in the graph that does not have it
_CONTEXT = 3  # unchanged lines that are kept around a change


_Triple = tuple[int, int, int]  # as `compare_nodes` gives


class NodeChange(NamedTuple):
    """A node that is in both graphs and not the same.

    Attributes:
        before: its name in the first graph.
        after: its name in the second.
        kinds: what differs: "op", "target", "args", "kwargs", "type", "name", "order", and keys of meta such as "val".
            An operand counts by what it has become, so one that has another name is no change of "args".
        old, new: the text of the node in each graph.
        meta: key of meta -> what was there and what is, as text; None: nothing.
    """

    before: str
    after: str
    kinds: tuple[str, ...]
    old: str
    new: str
    meta: dict[str, tuple[str | None, str | None]]


class Row(NamedTuple):
    """A line of the text of a diff: what it is of ("-", "+", "~" or " "), and the places of its node, or None."""

    mark: str
    text: str
    before: int | None
    after: int | None


class NodesDiff(NamedTuple):
    """What differs between two graphs, without their subgraphs.

    Attributes:
        path: where the first graph is; "" for the whole.
        removed, added: name of each node that only one of them has -> its text.
        changed: the nodes that are in both and not the same, in the order of the second graph.
        stretches: what the text of the diff is made of: runs of rows.
    """

    path: str
    removed: dict[str, str]
    added: dict[str, str]
    changed: list[NodeChange]
    stretches: list[list[Row]]

    @property
    def renamed(self) -> dict[str, str]:
        """Name in the first graph -> name in the second, of each node that has another one."""
        return {change.before: change.after for change in self.changed if "name" in change.kinds}

    @property
    def moved(self) -> list[str]:
        """Names, in the second graph, of the nodes that stand elsewhere among those of both."""
        return [change.after for change in self.changed if "order" in change.kinds]

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed)

    def __repr__(self) -> str:
        counts = f"{len(self.removed)} removed, {len(self.added)} added, {len(self.changed)} changed"
        return f"NodesDiff({self.path!r}: {counts})"


class GraphDiff(Tabular):
    """What differs between two graphs or programs; false when nothing does.

    ``str()`` is the text of it, a notebook shows it as HTML.

    Attributes:
        graphs: path -> `NodesDiff`, of each graph that differs; "" is the whole one, other paths are subgraphs'.
        removed_graphs, added_graphs: paths of the subgraphs that only one has.
        signature, ranges, weights: what differs there, as lines that begin with "-", "+" or "~"; of programs only, and
            weights of torch's modules too.
    """

    def __init__(
        self,
        graphs: dict[str, NodesDiff],
        removed_graphs: list[str],
        added_graphs: list[str],
        signature: list[str],
        ranges: list[str],
        weights: list[str],
    ) -> None:
        self.graphs = graphs
        self.removed_graphs = removed_graphs
        self.added_graphs = added_graphs
        self.signature = signature
        self.ranges = ranges
        self.weights = weights

    def __bool__(self) -> bool:
        return any(self.__dict__.values())

    # ---- all graphs at once

    @property
    def removed(self) -> list[str]:
        """Names of the nodes that only the first has; of those in subgraphs, ``path/name``."""
        return [name for part in self.graphs.values() for name in _under(part.path, part.removed)]

    @property
    def added(self) -> list[str]:
        """Names of the nodes that only the second has, likewise."""
        return [name for part in self.graphs.values() for name in _under(part.path, part.added)]

    @property
    def changed(self) -> list[NodeChange]:
        """The nodes that are in both and not the same, of all graphs."""
        return [change for part in self.graphs.values() for change in part.changed]

    @property
    def renamed(self) -> dict[str, str]:
        """Old name -> new name of each node that has another one; in subgraphs ``path/name``."""
        renamed: dict[str, str] = {}
        for part in self.graphs.values():
            renamed.update(zip(_under(part.path, part.renamed), _under(part.path, part.renamed.values()), strict=True))
        return renamed

    @property
    def moved(self) -> list[str]:
        """Names of the nodes that stand elsewhere; in subgraphs ``path/name``."""
        return [name for part in self.graphs.values() for name in _under(part.path, part.moved)]

    # ---- forms

    def text(self, *, context: int = _CONTEXT, colour: bool = False) -> str:
        """The diff as text, one section for each part that differs.

        Args:
            context: how many unchanged nodes to show around a change, 3 at most; 0 leaves out the places too.
            colour: with the colours of a terminal.

        Raises:
            ValueError: context is no whole number from 0 on.
        """
        from fastexport import _diff_text

        if not isinstance(context, int) or context < 0:
            raise ValueError(f"context must be a whole number from 0 on, not {context!r}")
        return _diff_text.text_of(self, min(context, _CONTEXT), colour)

    def print(self, file: Any = None) -> None:
        """Print the text, in colours on a terminal.

        Args:
            file: where to; sys.stdout when None.
        """
        from fastexport._terminal import use_colour

        stream = sys.stdout if file is None else file
        print(self.text(colour=use_colour(stream)), file=stream)

    def to_dict(self) -> dict[str, Any]:
        """The diff as dicts, lists and texts, for JSON; each value is empty where nothing differs."""
        return {
            "graphs": {path: _part_dict(part) for path, part in self.graphs.items()},
            "removed_graphs": self.removed_graphs,
            "added_graphs": self.added_graphs,
            "signature": self.signature,
            "ranges": self.ranges,
            "weights": self.weights,
        }

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        counts = [
            (len(self.removed), "removed"),
            (len(self.added), "added"),
            (sum(not set(change.kinds) <= {"name", "order"} for change in self.changed), "changed"),
            (len(self.renamed), "renamed"),
            (len(self.moved), "moved"),
            (len(self.removed_graphs), "graphs removed"),
            (len(self.added_graphs), "graphs added"),
        ]
        parts = [f"{count} {what}" for count, what in counts if count]
        parts += [f"other {name}" for name in ("signature", "ranges", "weights") if getattr(self, name)]
        return f"GraphDiff({', '.join(parts) or 'the same'})"

    def _table(self) -> Table:
        from fastexport import _diff_text

        return _diff_text.table_of(self)


def _under(path: str, names: Iterable[str]) -> list[str]:
    return [f"{path}/{name}" if path else name for name in names]


def _part_dict(part: NodesDiff) -> dict[str, Any]:
    return {
        "removed": part.removed,
        "added": part.added,
        "changed": [change._asdict() for change in part.changed],
    }


def diff(a: Any, b: Any, *, meta: Sequence[str] = ("val",), names: bool = True) -> GraphDiff:
    """Compare two graphs or programs.

    Args:
        a, b: a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.Graph, GraphModule or
            torch ExportedProgram; the two may be of different kinds, such as what `load` gave for a file, and a torch
            program. Modules that are called, of ours or of torch.fx, are compared too.
        meta: the keys of ``node.meta`` to compare. Values are compared by their dtype, shape, stride, device and so on.
        names: whether another name alone makes a node differ.

    Returns:
        A `GraphDiff`, false when nothing differs.

    Raises:
        TypeError: a or b is none of these.

    Example:
        >>> import copy, operator
        >>> a = Graph()
        >>> x = a.placeholder("x")
        >>> y = a.call_function(operator.neg, (x,))
        >>> _ = a.output(a.call_function(operator.add, (y, 1)))
        >>> b = copy.copy(a)
        >>> with b.inserting_after(b.node("neg")):
        ...     new = b.call_function(operator.pos, (b.node("neg"),))
        >>> b.node("add").args = (new, 1)
        >>> found = diff(a, b)
        >>> found, found.added, [(change.after, change.kinds) for change in found.changed]
        (GraphDiff(1 added, 1 changed), ['pos'], [('add', ('args',))])
        >>> print(found.text(context=0))
        graph:
          + %pos = call_function[target=operator.pos](args = (%neg,), kwargs = {})
          - %add = call_function[target=operator.add](args = (%neg, 1), kwargs = {})
          + %add = call_function[target=operator.add](args = (%pos, 1), kwargs = {})
        >>> bool(diff(a, a))
        False
    """
    if isinstance(meta, str):
        raise TypeError(f"meta must be a tuple of keys, such as ({meta!r},), not a str")
    meta = list_of("meta", meta, "keys")
    first, second = _side_of(a), _side_of(b)
    graphs = _Graphs(tuple(meta), names)
    with no_collection():
        graphs.compare(first.graph, second.graph)
    return GraphDiff(
        graphs.parts,
        graphs.removed,
        graphs.added,
        _text_lines(first.signature, second.signature),
        _text_lines(first.ranges, second.ranges),
        _weight_lines(first.weights, second.weights),
    )


# ---- what is compared ------------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    graph: Graph
    signature: list[str]
    ranges: list[str]
    weights: Mapping[str, Any]


def _side_of(obj: Any) -> _Side:
    if isinstance(obj, Graph):
        return _Side(obj, [], [], {})
    if isinstance(obj, GraphModule):
        return _Side(obj.graph, [], [], {**dict(obj.named_parameters()), **dict(obj.named_buffers())})
    return _torch_side(obj) if _own_graph(obj) is None else _program_side(obj)


def _program_side(program: Any) -> _Side:
    return _Side(
        program.graph,
        str(program.graph_signature).strip().splitlines(),
        [f"{symbol}: {values}" for symbol, values in program.range_constraints.items()],
        {**program.state_dict, **program.constants},
    )


def _torch_side(obj: Any) -> _Side:
    import torch.fx

    from fastexport import _torch
    from fastexport._torch_values import weights_of

    if not isinstance(obj, torch.fx.Graph | torch.fx.GraphModule | torch.export.ExportedProgram):
        hint = "; open files with load()" if isinstance(obj, str | os.PathLike) else ""
        raise TypeError(
            "diff() takes a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.Graph, GraphModule or "
            f"torch ExportedProgram, not {type(obj).__name__}{hint}"
        )
    parts = _torch._parts(obj)
    if parts.program is not None:
        from fastexport._torch_api import from_export

        return _program_side(from_export(parts.program))
    weights = {} if parts.module is None else weights_of(parts.module)
    return _Side(_torch.from_fx(obj), [], [], weights)


# ---- graphs ----------------------------------------------------------------------------------------------------------


_Task = tuple[str, Graph, Graph, int | None]  # path, two graphs, and once all below is done what was found before it


class _Graphs:
    """The comparison of two graphs and of those below them."""

    def __init__(self, meta: tuple[str, ...], names: bool) -> None:
        self.meta = meta
        self.names = names
        self.parts: dict[str, NodesDiff] = {}
        self.removed: list[str] = []
        self.added: list[str] = []
        self._read: dict[int, Any] = {}  # see `subgraphs_of`

    def compare(self, a: Graph, b: Graph) -> None:
        """Compare two graphs and all below them; in a loop, for modules may nest deeper than calls may."""
        # By ids, which the graphs keep: pairs that are the same all the way down, or that it is inside of, for a module
        # may be reached from itself. What differs is told at each place where it stands.
        known: dict[tuple[int, int], tuple[Graph, Graph]] = {}
        left: list[_Task] = [("", a, b, None)]
        while left:
            path, a, b, found = left.pop()
            pair = id(a), id(b)
            if found is None:
                if pair not in known:
                    known[pair] = a, b
                    left.append((path, a, b, self._found()))
                    left += reversed(self._compare_alone(path, a, b))
            elif found != self._found():
                del known[pair]

    def _found(self) -> int:
        return len(self.parts) + len(self.removed) + len(self.added)

    def _compare_alone(self, path: str, a: Graph, b: Graph) -> list[_Task]:
        """Compare two graphs without those below; these are still to be done."""
        pairs = _Pairs(a, b, self.meta, self.names)
        part = pairs.nodes_diff(path)
        if part:
            self.parts[path] = part
        owned = a.owning_module is not None and b.owning_module is not None  # of a copy there is no module to look in
        below_a, below_b = (subgraphs_of(graph, self._read) if owned else graph.subgraphs or {} for graph in (a, b))
        if not below_a and not below_b:
            return []
        names = {name: name for name in below_a if name in below_b}
        taken = set(names)
        for old, new in pairs.targets():
            if old in below_a and new in below_b and old not in names and new not in taken:
                names[old] = new
                taken.add(new)
        prefix = path and f"{path}."
        self.removed += [prefix + name for name in below_a if name not in names]
        self.added += [prefix + name for name in below_b if name not in taken]
        return [(prefix + old, below_a[old], below_b[new], None) for old, new in names.items()]


class _Pairs:
    """The nodes of two graphs, paired."""

    def __init__(self, a: Graph, b: Graph, meta: tuple[str, ...], names: bool) -> None:
        self.a, self.b, self.meta = a, b, meta
        self._shown = 0xFF if names else 0xFF & ~NAME
        self._triples = compare_nodes(a, b, None, meta)
        self.differ = any(changes & self._shown or NOWHERE in (i, k) for i, k, changes in self._triples)
        self._nodes_a: list[Any] = list(a.nodes) if self.differ else []
        self._nodes_b: list[Any] = list(b.nodes) if self.differ else []

    def targets(self) -> Iterator[tuple[Any, Any]]:
        """Old and new target of each node that refers to something by name and has another target."""
        for i, k, changes in self._triples:
            if changes & TARGET and self._nodes_b[k].op in ("get_attr", "call_module"):
                yield self._nodes_a[i].target, self._nodes_b[k].target

    def nodes_diff(self, path: str) -> NodesDiff:
        part = NodesDiff(path, {}, {}, [], [])
        if not self.differ:
            return part
        lines_a, lines_b = _Lines(self.a, self._nodes_a), _Lines(self.b, self._nodes_b)
        gone = deque(i for i, k, _ in self._triples if k == NOWHERE)
        part.removed.update((self._nodes_a[i].name, lines_a[i]) for i in gone)
        rows: list[Row | _Triple] = []
        shown = self._shown
        for triple in self._triples[: len(self._nodes_b)]:
            i, k, changes = triple
            if i == NOWHERE:
                part.added[self._nodes_b[k].name] = lines_b[k]
                rows.append(Row("+", lines_b[k], None, k))
                continue
            while gone and gone[0] < i and not changes & ORDER:
                place = gone.popleft()
                rows.append(Row("-", lines_a[place], place, None))
            change = self._change(i, k, changes & shown, lines_a, lines_b) if changes & shown else None
            if change is None:
                rows.append(triple)
            else:
                part.changed.append(change)
                rows += _change_rows(change, i, k)
        rows += [Row("-", lines_a[place], place, None) for place in gone]
        part.stretches.extend(_stretches(rows, lines_b))
        return part

    def _change(self, i: int, k: int, changes: int, lines_a: _Lines, lines_b: _Lines) -> NodeChange | None:
        """None: the meta holds other objects, which tell the same."""
        before, after = self._nodes_a[i], self._nodes_b[k]
        looks = changes & META and after.op != "output"  # its value follows from its operands, and files have none
        meta = _meta_changes(before, after, self.meta) if looks else {}
        kinds = tuple(kind for bit, kind in enumerate(_KINDS[:-1]) if changes & 1 << bit) + tuple(meta)
        return NodeChange(before.name, after.name, kinds, lines_a[i], lines_b[k], meta) if kinds else None


def compare_nodes(
    a: Graph, b: Graph, places: array[int] | None, meta: tuple[str, ...] | None
) -> list[tuple[int, int, int]]:
    """Which node of b is which of a, and what differs: place in a, place in b, bits; see `_core.diff_graphs`.

    Args:
        places: the place in a of each node of b, or `NOWHERE`; None: find out.
        meta: the keys to compare; None: all, where one graph is a copy of the other.
    """
    found = _core.diff_graphs(a, b, _object_key, None if places is None else places.tobytes(), meta)
    flat = array("I", found)
    return list(zip(flat[0::3], flat[1::3], flat[2::3], strict=True))


class _Lines:
    """The texts of a graph's nodes by place, without the number of users, which follows from the other nodes."""

    _USERS = re.compile(r" (?:: )?\[num_users=\d+\](?= = )")

    def __init__(self, graph: Graph, nodes: list[Any]) -> None:
        self._nodes = nodes
        lines = str(graph).split("\n    ")[1:]
        self._lines: list[str] | None = lines if len(lines) == len(nodes) else None  # no node has such a line break

    def __getitem__(self, place: int) -> str:
        line: str = self._nodes[place]._line() if self._lines is None else self._lines[place]
        return self._USERS.sub("", line, count=1)


def _change_rows(change: NodeChange, before: int, after: int) -> Iterator[Row]:
    kinds = set(change.kinds) - change.meta.keys()
    if kinds <= {"name", "order"} or change.old == change.new:
        notes = []
        if "name" in kinds:
            notes.append(f"%{change.before} is named %{change.after}")
        if "order" in kinds:
            notes.append(f"%{change.after} stands elsewhere")
        if inner := sorted(kinds - {"name", "order"}):
            notes.append(f"%{change.after} has other {' and '.join(inner)} of the same text")
        for note in notes:
            yield Row("~", note, before, after)
    else:
        yield Row("-", change.old, before, None)
        yield Row("+", change.new, None, after)
    for key, (old, new) in change.meta.items():
        yield Row("~", f"%{change.after}: {key} {old or 'missing'} -> {new or 'missing'}", before, after)


def _stretches(rows: list[Row | _Triple], lines: _Lines) -> Iterator[list[Row]]:
    """The rows of changes with a few of those around them, in runs without a gap; a triple is a node that stays."""
    stretch: list[Row] = []
    end = 0  # up to where rows are in the stretch
    for at, row in enumerate(rows):
        if type(row) is tuple:
            continue
        start = max(at - _CONTEXT, end)
        if stretch and start > end:
            yield stretch
            stretch = []
        end = max(end, min(at + _CONTEXT + 1, len(rows)))
        stretch += [_row_of(row, lines) for row in rows[start:end]]
    if stretch:
        yield stretch


def _row_of(row: Row | _Triple, lines: _Lines) -> Row:
    return row if isinstance(row, Row) else Row(" ", lines[row[1]], row[0], row[1])


# ---- objects and meta ------------------------------------------------------------------------------------------------

_TORCH_VALUES = frozenset({"dtype", "device", "layout", "memory_format"})
_OUR_VALUES = frozenset({"DType", "Device", "Layout", "MemoryFormat"})


def _object_key(obj: Any) -> Any:
    """What an argument or target equals: an operator or dtype of torch the one that a file names, else its like."""
    kind = type(obj)
    module, name = kind.__module__, kind.__name__
    if module == "fastexport._operators" and name == "Operator":
        return "operator", obj.name
    if module == "torch._ops" and name == "OpOverload":
        return "operator", f"torch.ops.{obj}"
    if module.startswith("torch.") and any(base.__name__ == "HigherOrderOperator" for base in kind.__mro__):
        return "operator", f"torch.ops.{obj.namespace}.{obj}"
    if (module == "torch" and name in _TORCH_VALUES) or (module == "fastexport._dtypes" and name in _OUR_VALUES):
        return name.lower().replace("_", ""), str(obj)
    return kind, obj


def _meta_changes(a: Any, b: Any, keys: tuple[str, ...]) -> dict[str, tuple[str | None, str | None]]:
    changes = {}
    for key in keys:
        old, new = a.meta.get(key, _Missing), b.meta.get(key, _Missing)
        if old is not new:
            texts = _describe(old), _describe(new)
            if texts[0] != texts[1]:
                changes[key] = texts
    return changes


class _Missing:
    """Stands for meta that is not there."""


def _describe(value: Any) -> str | None:
    """The facts of a value in meta."""
    if value is _Missing:
        return None
    from fastexport._tensor_meta import TensorMeta

    kind = type(value)
    if kind is TensorMeta:
        return repr(value)[len("TensorMeta(") : -1]
    if isinstance(value, tuple | list):
        inner = ", ".join(str(_describe(item)) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if kind.__module__.partition(".")[0] == "torch":
        return _describe_torch(value)
    return str(value) if kind.__module__ == "fastexport._symbols" else repr(value)


def _describe_torch(value: Any) -> str:
    from fastexport._tensor_meta import TensorMeta

    if type(value).__name__ in ("SymInt", "SymFloat", "SymBool"):
        return str(value)
    try:
        return _describe(TensorMeta.of(value)) or ""
    except (TypeError, ValueError):  # no tensor, or one without strides
        return repr(value)


# ---- texts and weights -----------------------------------------------------------------------------------------------


def _text_lines(a: list[str], b: list[str]) -> list[str]:
    only_a, only_b = Counter(a) - Counter(b), Counter(b) - Counter(a)
    lines = [f"- {line}" for line in a if line in only_a] + [f"+ {line}" for line in b if line in only_b]
    if not lines and a != b:
        lines.append("~ the entries stand in another order")
    return lines


def _weight_lines(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    lines = [f"- {name}: {_facts(a[name])}" for name in a if name not in b]
    lines += [f"+ {name}: {_facts(b[name])}" for name in b if name not in a]
    for name in a:
        if name not in b or a[name] is b[name]:
            continue
        old, new = _facts(a[name]), _facts(b[name])
        if old != new:
            lines.append(f"~ {name}: {old} -> {new}")
        elif not _same_bits(a[name], b[name]):
            lines.append(f"~ {name}: other values")
    return lines


def _facts(value: Any) -> str:
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return str(getattr(value, "kind", type(value).__name__))
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _same_bits(a: Any, b: Any) -> bool:
    """Whether two weights of one dtype and shape hold the same bits; what has none, as a fake tensor, is the same."""
    if _is_torch(a) or _is_torch(b):
        return _same_torch_bits(a, b)
    if not hasattr(a, "tobytes") or not hasattr(b, "tobytes"):
        return True
    first, second = _bytes_of(a), _bytes_of(b)
    return first.nbytes == second.nbytes and all(
        bytes(first[at : at + _CHUNK]) == bytes(second[at : at + _CHUNK]) for at in range(0, first.nbytes, _CHUNK)
    )


_CHUNK = 1 << 20


def _bytes_of(value: Any) -> memoryview:
    """The bytes of a weight in order, or of an object of a file; without a copy where they lie in order."""
    if isinstance(value, _core.Tensor) and value.is_contiguous and value.nbytes:
        return memoryview(_core.Storage(value))
    return memoryview(value.tobytes())


def _is_torch(value: Any) -> bool:
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _same_torch_bits(a: Any, b: Any) -> bool:
    import torch

    flat = []
    for value in (a, b):
        tensor = value.torch(copy=False) if isinstance(value, _core.Tensor) else value
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_meta or tensor.layout != torch.strided:
            return True
        tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
        tensor = tensor.int_repr() if tensor.is_quantized else tensor
        flat.append(tensor.contiguous().reshape(-1).view(torch.uint8))
    return torch.equal(*flat)
