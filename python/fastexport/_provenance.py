"""Where nodes come from, and what of a node's meta another one may take over.

Entries of ``node.meta`` are of two kinds. Those under `VALUE_META` tell what the node's value is; a node of another
value must not have them. All others tell where the node comes from and how it is to be treated (``stack_trace``,
``nn_module_stack``, ``source_fn_stack``, ``torch_fn``, ``custom``, ``from_node``, annotations of quantization), which
holds of whatever takes its place.

``from_node`` is a list of `NodeSource`. While a graph is recorded (`recording`) each new node gets one with the action
"create", and each node that takes another's place gets the other as a source, with "replace", or "replace+create" if it
was made under the same recording; a source of the same name is noted once. Source: GraphTransformObserver in
torch/fx/passes/graph_transform_observer.py and set_current_meta in torch/fx/traceback.py of torch 2.13, which note the
same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from fastexport._core import Node, copy_containers
from fastexport._loaded import loaded
from fastexport._meta_json import NodeSource
from fastexport._operators import Operator

if TYPE_CHECKING:
    from fastexport._graph import Graph

__all__ = ["VALUE_META"]

VALUE_META = frozenset(
    {
        "val",
        "example_value",
        "fake_result",
        "tensor_meta",
        "type",
        "unbacked_bindings",
        "eager_input_vals",
        "grapharg",
        "tensor_dict",
    }
)
"""The keys of meta that are about the value of a node."""

# What torch gives the nodes made for another one: _COPY_META_FIELDS in torch/fx/proxy.py, and the stack trace.
_INHERITED = (
    "stack_trace",
    "nn_module_stack",
    "torch_fn",
    "source_fn_stack",
    "original_aten",
    "recompute",
    "ac_graph_id",
    "has_backward_hook",
    "from_node",
    "quantization_tag",
    "_numeric_debug_handle",
    "custom",
    "partitioner_tag",
)
_CREATE, _REPLACE, _BOTH = "create", "replace", "replace+create"


# ---- sources


def _sources_in(value: Any) -> list[Any] | None:
    """The sources that ``meta["from_node"]`` holds; None: it is something else, which is nobody's to change."""
    if value is None:
        return []
    return value if type(value) is list and set(source_kinds()).issuperset(map(type, value)) else None


def source_kinds() -> tuple[type, ...]:
    """The classes of sources: ours, and torch's where it is loaded."""
    torch = loaded("torch.fx.traceback")
    return (NodeSource,) if torch is None else (NodeSource, torch.NodeSource)


def target_text(target: Any) -> str:
    """A target as sources tell it."""
    return target._custom_fx_repr_fn() if isinstance(target, Operator) else str(target)


def _source_of(node: Node, pass_name: str, action: str) -> NodeSource:
    """A node as a source of another one."""
    sources = _sources_in(node.meta.get("from_node")) or ()
    return NodeSource(node.name, target_text(node.target), id(node.graph), pass_name, action, sources)


def _action(source: Any) -> str:
    """The action of a source of ours or torch's."""
    return source.action if type(source) is NodeSource else "+".join(action.value for action in source.action)


def with_sources(value: Any, added: list[Any]) -> list[Any] | None:
    """What ``meta["from_node"]`` becomes when sources are noted at a node that took the place of others.

    Args:
        value: what is there. It and the sources are of ours or torch's.
        added: the sources, of one pass. One whose name is there already is not noted again; the bare creation by the
            same pass need not be told beside them.

    Returns:
        A list; None: nothing is to be changed.
    """
    known = _sources_in(value)
    if known is None:
        return None
    names = {source.name for source in known}
    fresh = []
    for source in added:
        if source.name not in names:
            names.add(source.name)
            fresh.append(source)
    if not fresh:
        return None
    made_by = fresh[0].pass_name
    kept = []
    for source in known:
        if source.pass_name != made_by or _action(source) != _CREATE:
            kept.append(source)
    return kept + fresh


# ---- observers: what the C code tells of edits while one is set


class _Observer:
    """Tells the observer whose place it has taken; by itself it notes nothing."""

    def __init__(self, graph: Graph) -> None:
        self._outer: _Observer | None = graph._observer

    @property
    def recorder(self) -> _Recorder | None:
        """The recording in force."""
        return None if self._outer is None else self._outer.recorder

    def created(self, node: Node) -> None:
        """A node was made."""
        if self._outer is not None:
            self._outer.created(node)

    def replaced(self, old: Node, new: Node) -> None:
        """A node is about to take the place of another in one user or more."""
        if self._outer is not None:
            self._outer.replaced(old, new)


class _Recorder(_Observer):
    def __init__(self, graph: Graph, pass_name: str) -> None:
        super().__init__(graph)
        self.pass_name = pass_name
        self._made: set[Node] = set()
        self._noted: dict[Node, tuple[list[Any], set[str]]] = {}  # what was put into meta, and the names in it

    @property
    def recorder(self) -> _Recorder:
        return self

    def created(self, node: Node) -> None:
        super().created(node)
        self._made.add(node)
        sources = _sources_in(node.meta.get("from_node"))
        if sources is not None:
            node.meta["from_node"] = [*sources, NodeSource("", "", -1, self.pass_name, _CREATE)]

    def replaced(self, old: Node, new: Node) -> None:
        super().replaced(old, new)
        source, value = self.source(old, new), new.meta.get("from_node")
        noted, names = self._noted.get(new, ([], set()))
        if value is noted and len(noted) == len(names):  # takes the same time however many there are
            if source.name not in names:
                noted.append(source)
                names.add(source.name)
            return
        sources = with_sources(value, [source])
        if sources is not None:
            self._noted[new] = sources, {s.name for s in sources}
            new.meta["from_node"] = sources

    def source(self, old: Node, new: Node) -> NodeSource:
        """What is to be noted at a node that takes another's place."""
        return _source_of(old, self.pass_name, _BOTH if new in self._made else _REPLACE)


class _Heir(_Observer):
    def __init__(self, graph: Graph, node: Node, pass_name: str | None) -> None:
        super().__init__(graph)
        if pass_name is None:
            pass_name = self.recorder.pass_name if self.recorder is not None else ""
        meta = {**node.meta, "from_node": [_source_of(node, pass_name, _CREATE)]}
        self._entries = {key: meta[key] for key in _INHERITED if key in meta}

    def created(self, node: Node) -> None:
        super().created(node)
        node.meta.update(copy_containers(self._entries))


@contextmanager
def _observing(graph: Graph, observer: _Observer) -> Iterator[None]:
    outer = graph._observer
    graph._observer = observer
    try:
        yield
    finally:
        graph._observer = outer


def recording(graph: Graph, pass_name: str) -> AbstractContextManager[None]:
    """See `fastexport.Graph.recording`."""
    if not isinstance(pass_name, str):
        raise TypeError(f"the name of a pass is a str, not {pass_name!r}")
    return _observing(graph, _Recorder(graph, pass_name))


def inheriting(graph: Graph, node: Node, pass_name: str | None) -> AbstractContextManager[None]:
    """See `fastexport.Graph.inherit_meta`."""
    torch = loaded("torch.fx")
    if not isinstance(node, (Node,) if torch is None else (Node, torch.Node)):
        raise TypeError(f"inherit_meta() takes the node that others are made for, not {node!r}")
    if pass_name is not None and not isinstance(pass_name, str):
        raise TypeError(f"the name of a pass is a str, not {pass_name!r}")
    return _observing(graph, _Heir(graph, node, pass_name))


def sources_of_replaced(graph: Graph, pass_name: str, pairs: list[tuple[Node, Node]]) -> list[tuple[Node, list[Any]]]:
    """What a pass of ours notes.

    Args:
        graph: the graph; while it is recorded, the notes are of that recording.
        pass_name: the pass.
        pairs: pairs (node that goes, node that stays).

    Returns:
        Pairs (node, its new ``meta["from_node"]``).
    """
    observer: _Observer | None = graph._observer
    recorder = None if observer is None else observer.recorder
    if recorder is None:
        recorder = _Recorder(graph, pass_name)
    by_node: dict[Node, list[NodeSource]] = {}
    sources: list[tuple[Node, list[NodeSource]]] = []
    for old, new in pairs:
        if new not in by_node:
            by_node[new] = []
            sources.append((new, by_node[new]))
        by_node[new].append(recorder.source(old, new))
    noted = []
    for new, added in sources:
        value = with_sources(new.meta.get("from_node"), added)
        if value is not None:
            noted.append((new, value))
    return noted


# ---- meta by policy


def propagate_meta(old: Any, new: Any, policy: str) -> None:
    """Give a node what it may have of the meta of the one whose place it takes; nodes of a Graph, or of torch.

    Args:
        old, new: the nodes.
        policy: "none"; "missing": entries that new has none of, but for `VALUE_META`; "all": every entry, over its own.
    """
    meta = {} if policy == "none" else dict(old.meta)
    own = new.meta
    for key in list(meta) if policy == "missing" else ():
        if key in VALUE_META or key in own:
            del meta[key]
    if meta:
        new.meta.update(copy_containers(meta))
