"""Passes of the other world: torch's on graphs of ours (`apply_fx_pass`), ours on torch's graphs (`native_edit`).

Both work the same way. The graph is converted and the pass runs on the copy; then what differs between the copy as it
is and as it was is found in C, and done to the original. So each node that the pass left alone stays the same object.
"""

from __future__ import annotations

import copy
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

from fastexport._core import Node, resolves
from fastexport._diff import ARGS, KWARGS, META, NAME, NOWHERE, OP, ORDER, TARGET, TYPE, compare_nodes
from fastexport._dtypes import from_torch, to_torch
from fastexport._graph import Graph
from fastexport._graph_module import GraphModule
from fastexport._module_tree import attribute, install
from fastexport._pass_log import Replacements
from fastexport._passes import _own_graph
from fastexport._provenance import _observing
from fastexport._results import PassResult
from fastexport._tensor_meta import TensorMeta

__all__ = ["apply_fx_pass"]


# ---- torch's passes on graphs of ours --------------------------------------------------------------------------------


def apply_fx_pass(
    g: Any, torch_pass: Callable[[Any], Any], *, takes: Literal["module", "graph"] = "module", name: str | None = None
) -> PassResult:
    """Run a pass that was written for torch.fx, and that tests for its classes, on a graph of ours.

    The graph is converted, the pass runs on the torch graph, and what it did is done to ``g``: nodes that it left alone
    stay the same objects, with their meta. A pass that asks for no classes needs none of this: it runs on a Graph as it
    is.

    Args:
        g: a fastexport Graph or ExportedProgram; of the latter the signature follows.
        torch_pass: called with what ``takes`` says. It changes that in place, or gives another GraphModule, Graph, or
            result that has a ``graph_module``, such as torch's own PassResult; or None, a bool, a fastexport
            PassResult, or a list, such as replace_pattern gives.
        takes: "module": a torch.fx.GraphModule, made with the graph's owning module for its root; "graph": the
            torch.fx.Graph of that, or one without a module when there is none to own it.
        name: of the result; None: the function's own.

    Returns:
        A `PassResult`; ``replaced`` is empty, for a torch pass does not say what replaces what.

    Raises:
        TypeError: g is no graph or program of ours, torch_pass no function, or it gave something else; g is as it was.
        ValueError: takes is neither, or the pass left several nodes of one name; g is as it was.
        Exception: what the pass raises; g is as it was then.

    Example:
        >>> import operator, torch
        >>> g = Graph()
        >>> out = g.output(g.call_function(operator.neg, (g.placeholder("x"),)))
        >>> def to_pos(gm):
        ...     assert isinstance(gm, torch.fx.GraphModule)
        ...     for node in gm.graph.find_nodes(op="call_function", target=operator.neg):
        ...         node.target = operator.pos
        >>> apply_fx_pass(g, to_pos).modified, g.node("neg").target
        (True, <built-in function pos>)
    """
    graph = _own_graph(g)
    if graph is None:
        raise TypeError(f"apply_fx_pass() takes a fastexport Graph or ExportedProgram, not {type(g).__name__}")
    if takes not in ("module", "graph"):
        raise ValueError(f"takes must be 'module' or 'graph', not {takes!r}")
    if not callable(torch_pass):
        raise TypeError(f"torch_pass must be a function of a torch module or graph, not {torch_pass!r}")
    import torch.fx

    from fastexport import _torch

    start = time.perf_counter()
    name = name or str(getattr(torch_pass, "__name__", type(torch_pass).__name__))
    built = _built(g, graph, takes == "module")
    known = dict(_forms_below(graph, built))
    outcome = torch_pass(built if takes == "module" else getattr(built, "graph", built))
    outcome = getattr(outcome, "graph_module", outcome)
    if isinstance(outcome, bool | PassResult | list | None):
        outcome = built
    elif not isinstance(outcome, torch.fx.Graph | torch.fx.GraphModule):
        raise TypeError(
            f"pass {name!r} returned a {type(outcome).__name__}, not a torch graph or module, None or a bool"
        )
    after = _torch.from_fx(outcome)
    _check_names(after)
    changes = _Changes()
    _bring_back(graph, after, outcome, known, _leaf_for(graph), changes, "")
    return PassResult(
        name,
        changes.modified,
        removed=changes.removed,
        added=changes.added,
        seconds=time.perf_counter() - start,
    )


def _check_names(graph: Graph) -> None:
    """Raise ValueError where two nodes have one name, which a graph of torch's may have, but none of ours."""
    names = [node.name for node in graph.nodes]
    if len(set(names)) < len(names):
        name = next(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"the pass has left several nodes of the name {name!r}")
    for sub in (graph.subgraphs or {}).values():
        _check_names(sub)


def _built(g: Any, graph: Graph, as_module: bool) -> Any:
    """The torch form of a graph: a GraphModule where there is an owner, or one is asked for."""
    import torch.fx

    from fastexport._torch_module import module_of

    owner = graph.owning_module
    if isinstance(owner, torch.fx.GraphModule):
        return module_of(graph, owner)  # which makes code when somebody asks for it
    if owner is None and not isinstance(g, Graph):
        owner = g.to_torch().graph_module
    if isinstance(owner, GraphModule) and owner.graph is graph:
        return owner.to_fx()
    return graph.to_fx({} if owner is None and as_module else owner)


class _Form(NamedTuple):
    """The torch form of a graph, before a pass."""

    nodes: list[Any]
    meta: list[dict[Any, Any]]

    @classmethod
    def of(cls, graph: Any) -> _Form:
        nodes = list(graph.nodes)
        return cls(nodes, [dict(node.meta) for node in nodes])


def _forms_below(graph: Graph, built: Any, path: str = "") -> Iterator[tuple[str, _Form]]:
    """The forms of a graph and of those below it, by the path that names of their nodes begin with."""
    yield path, _Form.of(getattr(built, "graph", built))
    for name, sub in (graph.subgraphs or {}).items():
        child = _submodule(built, name)
        if child is not None:
            yield from _forms_below(sub, child, f"{path}{name}/")


def _submodule(owner: Any, path: str) -> Any:
    """The GraphModule at a path of a torch module, or None."""
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner if hasattr(owner, "graph") else None


def _bring_back(
    graph: Graph,
    after: Graph,
    outcome: Any,
    known: Mapping[str, _Form],
    leaf: Callable[[Any], Any],
    changes: _Changes,
    path: str,
) -> None:
    """Do to a graph what a torch pass did to its torch form, which `after` was read from."""
    nodes = list(getattr(outcome, "graph", outcome).nodes)
    before = known.get(path) or _Form([], [])
    places = {node: place for place, node in enumerate(before.nodes)}
    if not any(node in places for node in nodes):  # the pass has made a graph of its own
        names = {node.name: place for place, node in enumerate(before.nodes)}
        found = array("I", [names.get(node.name, NOWHERE) for node in nodes])
    else:
        found = array("I", [places.get(node, NOWHERE) for node in nodes])
    edit = _Edit(graph, list(graph.nodes), after, compare_nodes(graph, after, found, None), leaf, before.meta)
    below, kept = after.subgraphs or {}, dict(graph.subgraphs or {})
    edit.apply(changes, path)
    if not _same_codegen(graph, after):
        extras = {name: value for name, value in (graph.extras or {}).items() if name != "_codegen"}
        graph.extras = {**extras, **{name: value for name, value in (after.extras or {}).items() if name == "_codegen"}}
        changes.modified = True
    for name, sub in below.items():
        if name in kept:
            _bring_back(kept[name], sub, _submodule(outcome, name), known, leaf, changes, f"{path}{name}/")
        else:
            kept[name] = sub
            changes.modified = True
    targets = {node.target for node in after.nodes if node.op in ("get_attr", "call_module")}
    for name in [name for name in kept if name not in below and name not in targets]:
        del kept[name]
    graph.subgraphs = kept or None
    _keep_attributes(graph, outcome, targets)


def _same_codegen(a: Graph, b: Graph) -> bool:
    """Whether code of the two takes and gives arguments alike."""
    first, second = ((graph.extras or {}).get("_codegen") for graph in (a, b))
    return first is second or (type(first) is type(second) and vars(first) == vars(second))


def _keep_attributes(graph: Graph, outcome: Any, targets: set[Any]) -> None:
    """See to it that the owning module has what nodes refer to, where a pass has put that into its module."""
    owner = graph.owning_module
    if not hasattr(outcome, "graph") or (owner is None and graph._signature()):
        return  # without a module, or of a file, whose weights are the program's
    missing = [target for target in targets if owner is None or not resolves(owner, target, False)]
    if missing and isinstance(owner, GraphModule):
        install(owner, {target: attribute(outcome, target) for target in missing})
    elif missing:
        graph.owning_module = outcome


def _leaf_for(graph: Graph) -> Callable[[Any], Any]:
    """What becomes of torch's objects in arguments: in a graph of a file they are known by name."""
    if any(type(node.target).__name__ == "Operator" for node in graph.nodes):
        return _by_name
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _by_name(value: Any) -> Any:
    import torch

    kind = type(value)
    if kind.__module__ == "torch._ops" and kind.__name__ == "OpOverload":
        from fastexport._operators import operator_for

        return operator_for(f"torch.ops.{value}")
    return TensorMeta.of(value) if isinstance(value, torch.Tensor) else from_torch(value)


# ---- our passes on torch's graphs ------------------------------------------------------------------------------------


@contextmanager
def native_edit(obj: Any) -> Iterator[Any]:
    """Edit a torch graph through a graph of ours.

    Args:
        obj: a torch.fx.Graph, GraphModule or ExportedProgram. It is changed when the block ends well, and only then:
            nodes that were left alone stay the same objects, a GraphModule is recompiled if something was changed, and
            of a program the signature and the module call graph follow. Its hooks are called for each node that is made
            or erased, and, where a node took another's place, for each user that has the one for the other now.

    Yields:
        A Graph; of a program, an ExportedProgram.

    Raises:
        TypeError: obj is none of these.
        ValueError: the graph can't be one of torch: an Operator names nothing, or a new subgraph has no module to hold
            it.
    """
    import torch.fx

    from fastexport import _torch

    parts = _torch._parts(obj)
    if parts.program is None:
        program, graph = None, _torch.from_fx(obj)
    else:
        from fastexport._torch_api import from_export

        program = from_export(parts.program)
        graph = program.graph
    levels = list(_levels_below(graph, copy.copy(graph), parts.graph, parts.module, set()))
    with ExitStack() as stack:
        for level in levels:
            if level.observer is not None:
                stack.enter_context(_observing(level.graph, level.observer))
        yield graph if program is None else program
    edits = [(level, level.edit()) for level in levels]
    changes = _Changes()
    for level, edit in edits:
        modified = edit.apply(changes, "")
        if not _same_codegen(level.before, level.graph):
            codegen = (level.graph.extras or {}).get("_codegen")
            level.torch_graph.set_codegen(codegen if codegen is not None else torch.fx.CodeGen())
            modified = changes.modified = True
        if modified:
            _torch._convert_sources(level.graph, level.torch_graph)
            if level.module is not None:
                _torch.renew_code(level.module)
        level.add_subgraphs(changes)
    if program is not None and changes.modified:
        _update_program(parts.program, program)


class _Level(NamedTuple):
    """One of the graphs of an edit, as it was at the start, beside its torch graph."""

    graph: Graph
    before: Graph
    nodes: list[Node]
    torch_graph: Any
    torch_nodes: list[Any]
    module: Any  # the GraphModule of the torch graph, or None
    subgraphs: dict[str, Graph]
    observer: Replacements | None  # where the torch graph has hooks for what it tells

    def edit(self) -> _Edit:
        places = {node: place for place, node in enumerate(self.nodes)}
        found = array("I", [places.get(node, NOWHERE) for node in self.graph.nodes])
        pairs = compare_nodes(self.before, self.graph, found, None)
        if self._new_subgraphs() and self._owner() is None:
            raise ValueError("a pass has added a subgraph, but the torch graph has no module that could hold it")
        edit = _Edit(self.torch_graph, self.torch_nodes, self.graph, pairs, to_torch)
        if self.observer is not None:
            edit.replaced = [(places[old], new) for old, new in self.observer.pairs() if old in places]
        return edit

    def _owner(self) -> Any:
        return self.torch_graph.owning_module if self.module is None else self.module

    def _new_subgraphs(self) -> dict[str, Graph]:
        now = self.graph.subgraphs or {}
        return {path: sub for path, sub in now.items() if sub is not self.subgraphs.get(path)}

    def add_subgraphs(self, changes: _Changes) -> None:
        """Put the graphs that a pass has made where the nodes look for them."""
        import torch

        from fastexport import _torch

        for path, sub in self._new_subgraphs().items():
            root = sub.owning_module if sub.owning_module is not None else self._owner()
            if isinstance(root, torch.nn.Module):
                root = _torch._holder(root, {})  # whose hooks and meta are not the subgraph's
            self._owner().add_submodule(path, sub.to_fx(root))
            changes.modified = True


def _replace_hooks(torch_graph: Any) -> list[Callable[..., Any]]:
    return getattr(getattr(torch_graph, "owning_module", None), "_replace_hooks", None) or []


def _levels_below(graph: Graph, before: Graph, torch_graph: Any, module: Any, seen: set[int]) -> Iterator[_Level]:
    seen.add(id(graph))  # equal graphs are two
    subgraphs = dict(graph.subgraphs or {})
    observer = Replacements(graph) if _replace_hooks(torch_graph) else None
    yield _Level(graph, before, list(graph.nodes), torch_graph, list(torch_graph.nodes), module, subgraphs, observer)
    for path, sub in (graph.subgraphs or {}).items():
        child = _submodule(torch_graph.owning_module if module is None else module, path)
        if id(sub) not in seen:
            yield from _levels_below(sub, (before.subgraphs or {})[path], child.graph, child, seen)


def _update_program(theirs: Any, ours: Any) -> None:
    """What inputs and outputs stand for, and the calling conventions of modules, as they are now."""
    from fastexport._torch_module import convert_values
    from fastexport._torch_signature import for_torch

    convert_values(theirs.graph_module.graph)
    theirs.constants.update({path: value for path, value in ours.constants.items() if path not in theirs.constants})
    signature = for_torch(ours.graph_signature)
    theirs.graph_signature.input_specs[:] = signature.input_specs
    theirs.graph_signature.output_specs[:] = signature.output_specs
    for entry, now in zip(theirs.module_call_graph, ours.module_call_graph, strict=True):
        entry.signature = now.signature


# ---- one graph made like another -------------------------------------------------------------------------------------


class _Changes:
    """What edits did, all graphs together."""

    def __init__(self) -> None:
        self.modified = False
        self.removed: list[str] = []
        self.added: list[str] = []


class _Edit:
    """Makes a graph, of ours or torch's, like another one; nodes that are alike stay as they are.

    All that can fail for what the graph holds is done when it is made, before anything is changed.

    Args:
        graph: what is edited.
        nodes: its nodes in order.
        model: the graph that tells what it is to be.
        pairs: which node of the graph is which of the model, and what differs: see `compare_nodes`.
        leaf: gives what stands in the graph for an argument of the model that is no container and no node.
        meta: the meta that the model's nodes had, by place in the graph, where that is not what the graph's own have.

    Attributes:
        replaced: pairs (place of a node in the graph, node of the model that has taken its place), for hooks.
    """

    def __init__(
        self,
        graph: Any,
        nodes: list[Any],
        model: Graph,
        pairs: list[tuple[int, int, int]],
        leaf: Callable[[Any], Any],
        meta: list[dict[Any, Any]] | None = None,
    ) -> None:
        self._graph = graph
        self.replaced: list[tuple[int, Node]] = []
        self._nodes = nodes
        self._meta = meta
        self._leaf = leaf
        self._model = list(model.nodes)
        self._steps = pairs[: len(self._model)]
        self._table = {self._model[k]: nodes[i] for i, k, _ in self._steps if i != NOWHERE}
        self._gone = [nodes[i] for i, k, _ in pairs if k == NOWHERE]
        self._parts = {
            k: (leaf(self._model[k].target), _mapped(self._model[k].args, leaf), _mapped(self._model[k].kwargs, leaf))
            for i, k, changes in self._steps
            if i == NOWHERE or changes & (OP | TARGET | ARGS | KWARGS)
        }

    def apply(self, changes: _Changes, path: str) -> bool:
        """Do it, and note what was done; whether anything was."""
        removed = [path + node.name for node in self._gone]
        made = [k for i, k, _ in self._steps if i == NOWHERE]
        bare = {k for k in made if not self._create(self._model[k], *self._parts[k])}
        if self.replaced:
            self._tell_replaced()
        operands = self._set_arguments(bare)
        self._erase()
        self._set_order()
        modified = self._set_attributes() or bool(made or removed or self._parts)
        for node in operands:
            self._set_users(node)
        changes.modified |= modified
        changes.removed += removed
        changes.added += [path + self._model[k].name for k in made]
        return modified

    def _create(self, node: Node, target: Any, args: Any, kwargs: Any) -> bool:
        """Make a node; whether with its arguments: some of what it uses may come behind it, and not be made yet."""
        is_whole = all(operand in self._table for operand in node.all_input_nodes)
        args, kwargs = (_mapped(args, self._own), _mapped(kwargs, self._own)) if is_whole else ((), {})
        self._table[node] = self._graph.create_node(node.op, target, args, kwargs, name=node.name, type_expr=node.type)
        return is_whole

    def _tell_replaced(self) -> None:
        """Call the hooks of a torch graph for each user of a node that will have another for it."""
        changed = {self._table[self._model[k]]: self._model[k] for i, k, _ in self._steps if i != NOWHERE}
        for place, new in self.replaced:
            old = self._nodes[place]
            for user in list(old.users):
                model = changed.get(user)
                operands = model.all_input_nodes if model is not None else ()
                if new in operands and all(self._table[operand] is not old for operand in operands):
                    for hook in _replace_hooks(self._graph):
                        hook(old=old, new=self._table[new].name, user=user)

    def _erase(self) -> None:
        """Erase what is gone, users first."""
        left = self._gone[::-1]
        while left:
            used = []
            for node in left:
                if node.users:
                    used.append(node)
                else:
                    self._graph.erase_node(node)
            if len(used) == len(left):  # they use each other in a circle
                for node in used:
                    node.args, node.kwargs = (), {}
                for node in used:
                    self._graph.erase_node(node)
                return
            left = used

    def _set_arguments(self, bare: set[int]) -> list[Node]:
        """Give changed nodes, and new ones that are bare, their arguments; the nodes of the model that these name."""
        operands: dict[Node, None] = {}
        for i, k, changes in self._steps:
            if k not in self._parts:
                continue
            target, args, kwargs = self._parts[k]
            node = self._table[self._model[k]]
            if i != NOWHERE and changes & OP:
                node.op = self._model[k].op
            if i != NOWHERE and changes & (OP | TARGET):
                node.target = target
            if k in bare if i == NOWHERE else changes & ARGS:
                node.args = _mapped(args, self._own)
            if k in bare if i == NOWHERE else changes & KWARGS:
                node.kwargs = _mapped(kwargs, self._own)
            operands.update(dict.fromkeys(self._model[k].all_input_nodes))
        return list(operands)

    def _own(self, value: Any) -> Any:
        return self._table[value] if type(value) is Node else value

    def _set_order(self) -> None:
        before = None
        for i, k, changes in self._steps:
            node = self._table[self._model[k]]
            if i == NOWHERE or changes & ORDER:
                if before is not None:
                    before.append(node)
                elif (first := next(iter(self._graph.nodes))) is not node:
                    first.prepend(node)
            before = node

    def _set_attributes(self) -> bool:
        """Names, types and meta, after the nodes that are gone have given their names free."""
        modified = False
        self._set_names()
        for i, k, changes in self._steps:
            modified |= bool(changes & (NAME | TYPE | ORDER))
            if i != NOWHERE and not changes & (TYPE | META):
                continue
            model = self._model[k]
            node = self._table[model]
            if changes & TYPE:
                node.type = model.type
            if i == NOWHERE or changes & META:
                before = dict(node.meta) if i == NOWHERE or self._meta is None else self._meta[i]
                modified |= self._set_meta(node, model, before)
        return modified

    def _set_meta(self, node: Any, model: Node, before: dict[Any, Any]) -> bool:
        """Do to a node's meta what was done to that of the model."""
        now = dict(model.meta)
        gone = [key for key in before if key not in now]
        new = {key: value for key, value in now.items() if key not in before or before[key] is not value}
        if self._leaf is _by_name and "val" in new:
            new["val"] = _mapped(new["val"], _by_name)
        node.meta.update(new)
        for key in gone:
            node.meta.pop(key, None)
        return bool(gone or new)

    def _set_names(self) -> None:
        """Nodes may take each other's names: then one has another meanwhile."""
        steps = [k for i, k, changes in self._steps if i == NOWHERE or changes & NAME]
        pairs = [(self._table[self._model[k]], self._model[k].name) for k in steps]
        pairs = [(node, name) for node, name in pairs if node.name != name]
        wanted = {name for _, name in pairs}
        taken = wanted.union(node.name for node in self._graph.nodes) if pairs else wanted
        for node, _ in pairs:
            if node.name in wanted:
                name = node.name
                while name in taken:
                    name += "_"
                taken.add(name)
                node.name = name
        for node, name in pairs:
            node.name = name

    def _set_users(self, model: Node) -> None:
        node, wanted = self._table[model], [self._table[user] for user in model.users]
        if list(node.users) == wanted:
            return
        if type(node) is Node:
            node._order_users(wanted)
        else:
            node.users = dict.fromkeys(wanted)


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy of an argument with the leaves replaced."""
    if isinstance(value, tuple):
        items: Iterable[Any] = [_mapped(item, leaf) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list):
        return [_mapped(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: _mapped(item, leaf) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(_mapped(part, leaf) for part in (value.start, value.stop, value.step)))
    return leaf(value)
