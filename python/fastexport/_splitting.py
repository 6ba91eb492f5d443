"""Graphs taken apart and put together: groups of nodes become subgraphs, subgraphs become nodes again.

A group of nodes becomes one call of a subgraph (`outline`, `fuse`, `split`), by a plan that the C part makes: what each
group takes and gives, and an order for what is left. Nothing is changed before the plan and the subgraphs stand.
`inline` goes the other way. Meta is copied along, and where nodes take others' places that is noted in
``meta["from_node"]``.
"""

from __future__ import annotations

import copy
import operator
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from fastexport import _core
from fastexport._arguments import list_of
from fastexport._core import Node
from fastexport._errors import LintError, LintFault
from fastexport._graph import Graph, Policy, check_policy
from fastexport._graph_module import GraphModule, subgraphs_of
from fastexport._module_tree import attribute
from fastexport._node import map_arg
from fastexport._operators import Operator
from fastexport._passes import _own_graph
from fastexport._pickle import is_higher_order
from fastexport._provenance import propagate_meta
from fastexport._results import PassResult

__all__ = ["Split", "fuse", "inline", "outline", "split"]

_BORDERS = ("placeholder", "output")


# ---- outlining -------------------------------------------------------------------------------------------------------


def outline(
    g: Any, nodes: Iterable[Any], name: str = "outlined", *, always_return_tuple: bool = False, policy: Policy = "safe"
) -> PassResult:
    """Put some nodes into a subgraph, and one call of it in their place.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram; it
            is changed in place. The subgraph is put into ``subgraphs`` of a Graph, and added to a module.
        nodes: the nodes, in any order; they need not follow each other.
        name: what the subgraph is called.
        always_return_tuple: let it return a tuple though it has one result only.
        policy: "safe" keeps the order of writes, random numbers and other effects; "torch" looks at uses only.

    Returns:
        A `PassResult`; ``removed`` has the nodes that moved, ``added`` the call and what picks its results.

    Raises:
        LintError: the nodes can't be one call, because a way leads out of them and back; the message names it. Nothing
            is changed then.
        ValueError: there are no nodes, one is an input or the output, or of another graph, or the name is taken.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> x = g.placeholder("x")
        >>> double = g.call_function(operator.add, (x, x))
        >>> out = g.output(g.call_function(operator.neg, (double,)))
        >>> outline(g, [double], "twice").added
        ['twice']
        >>> print(g)
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %twice : [num_users=1] = call_module[target=twice](args = (%x,), kwargs = {})
            %neg : [num_users=1] = call_function[target=operator.neg](args = (%twice,), kwargs = {})
            return neg
        >>> print(g.subgraphs["twice"])
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %add : [num_users=1] = call_function[target=operator.add](args = (%x, %x), kwargs = {})
            return add
    """
    return _fuse(g, [list_of("nodes", nodes, "nodes")], [name], always_return_tuple, policy, "outline")


def fuse(
    g: Any,
    partitions: Iterable[Iterable[Any]],
    prefix: str = "fused_",
    *,
    always_return_tuple: bool = False,
    policy: Policy = "safe",
) -> PassResult:
    """Put each of some groups of nodes into a subgraph of its own, called ``prefix`` and its number.

    The same as `outline` for each of them, but all or none, and with one order for all. Source: fuse_by_partitions in
    torch/fx/passes/utils/fuser_utils.py of torch 2.13.

    Args:
        g, always_return_tuple, policy: as for `outline`.
        partitions: groups of nodes; dicts of nodes, as torch's partitioners give them, will do.
        prefix: of the names of subgraphs.

    Raises:
        LintError, ValueError: as `outline`; or a node is in two groups.
    """
    what = "groups of nodes"
    groups = [list_of("a group of partitions", group, "nodes") for group in list_of("partitions", partitions, what)]
    names = [f"{prefix}{i}" for i in range(len(groups))]
    return _fuse(g, groups, names, always_return_tuple, policy, "fuse")


def _fuse(
    g: Any, groups: Sequence[Iterable[Any]], names: list[str], as_tuple: bool, policy: Policy, pass_name: str
) -> PassResult:
    check_policy(policy)
    start = time.perf_counter()
    removed: list[str] = []
    added: list[str] = []
    options = _Options(names, as_tuple, policy == "safe", pass_name)
    if groups:
        on_native(
            pass_name,
            g,
            lambda graph, own: _outline(
                graph, [list(dict.fromkeys(map(own, group))) for group in groups], options, removed, added
            ),
        )
    return PassResult(pass_name, bool(groups), removed=removed, added=added, seconds=time.perf_counter() - start)


def on_native(function: str, g: Any, work: Callable[[Graph, Callable[[Any], Any]], None]) -> None:
    """Work on a graph of ours: g's own, or one whose changes are done to torch's.

    Args:
        function: what g was given to.
        g: what is worked on.
        work: is given the graph, and a function that tells what a node of g is in it.
    """
    own = _own_graph(g, function)
    if own is not None:
        work(own, lambda node: node)
        if isinstance(own.owning_module, GraphModule) and own.owning_module.graph is own:
            _install(own.owning_module)
        return
    from fastexport import _adapter, _torch

    source = _torch._parts(g).graph
    with _adapter.native_edit(g) as native:
        graph = native if isinstance(native, Graph) else native.graph

        def partner(node: Any) -> Any:
            if getattr(node, "graph", None) is not source:
                raise ValueError(f"{node!r} is no node of the graph")
            return graph.node(node.name)

        work(graph, partner)


def _install(module: GraphModule) -> None:
    """Make the subgraphs of a module's graph its submodules, where they are not."""
    for path, sub in (module.graph.subgraphs or {}).items():
        held = attribute(module, path, None)
        if getattr(held, "graph", None) is not sub:
            module.add_submodule(path, GraphModule(module if sub.owning_module is module else held, sub))
    module.graph = module.graph  # whose code is made when somebody looks at it


class _Options(NamedTuple):
    names: list[str]
    as_tuple: bool
    effects: bool
    pass_name: str


class _Group(NamedTuple):
    """A group of nodes, and what takes its place."""

    members: list[Node]
    inputs: list[Node]  # arguments of the call
    outputs: list[Node]
    name: str
    graph: Graph


def _outline(graph: Graph, groups: list[list[Any]], options: _Options, removed: list[str], added: list[str]) -> None:
    for name, nodes in zip(options.names, groups, strict=True):
        _check_group(graph, name, nodes)
    graph._raise_faults(fx_only=True)
    planned, order = _core.plan_groups(graph, groups, options.effects)
    if planned is None:
        raise _circle_error(options.names, groups, order or [])
    made = [_extract(graph, *plan, name, options) for plan, name in zip(planned, options.names, strict=True)]
    subgraphs = {**(graph.subgraphs or {}), **{group.name: group.graph for group in made}}
    results: dict[Node, Node] = {}
    with graph.recording(options.pass_name):
        placed = {group.members[-1]: _call(graph, group, results, options) for group in made}
        for old, new in results.items():
            old.replace_all_uses_with(new)
    removed += [node.name for group in made for node in group.members]
    added += [node.name for nodes in placed.values() for node in nodes]
    if order is not None and options.effects:
        _core.arrange_graph(graph, list(_arranged(order, placed, made)))
    for group in made:
        for node in reversed(group.members):
            graph.erase_node(node)
    if order is not None and not options.effects:  # as torch does; what picks results may not be all together then
        _core.sort_graph(graph, False, False, ())
    graph.subgraphs = subgraphs


def _check_group(graph: Graph, name: str, nodes: list[Any]) -> None:
    if not isinstance(name, str) or not name.isprintable() or not name or set(name) & set('"\\'):
        raise ValueError(f"{name!r} can't be the name of a subgraph: code has to name it")
    if not nodes:
        raise ValueError(f"there are no nodes for {name!r}")
    for node in nodes:
        if isinstance(node, Node) and node.op in _BORDERS:
            raise ValueError(f"{node.name!r} is an input or output of the graph, which can't go into a subgraph")
    if _has_name(graph, name):
        raise ValueError(f"the name {name!r} is taken; give another")


def _has_name(graph: Graph, name: str) -> bool:
    return name in (graph.subgraphs or {}) or _is_taken(graph.owning_module, name)


def _is_taken(owner: Any, name: str) -> bool:
    return owner is not None and _core.resolves(owner, name, False)


def _extract(
    graph: Graph, members: list[Node], inputs: list[Node], outputs: list[Node], name: str, options: _Options
) -> _Group:
    """The subgraph of a group. Attributes that are graphs are read in it; they can't be passed to it."""
    known = graph.subgraphs or {}
    sub = Graph()
    sub.owning_module = graph.owning_module
    values: dict[Any, Any] = {}
    for node in inputs:
        if node.op == "get_attr" and node.target in known:
            values[node] = sub.node_copy(node)
        else:
            values[node] = sub.placeholder(node.name, node.type)
            propagate_meta(node, values[node], "all")
    for node in members:
        values[node] = sub.node_copy(node, values.__getitem__)
    results = [values[node] for node in outputs]
    sub.output(results[0] if len(results) == 1 and not options.as_tuple else tuple(results))
    paths = {node.target for node in sub.nodes if node.op in ("get_attr", "call_module")}
    sub.subgraphs = {path: known[path] for path in known if path in paths} or None
    passed = [node for node in inputs if values[node].op == "placeholder"]
    return _Group(members, passed, outputs, name, sub)


def _call(graph: Graph, group: _Group, results: dict[Node, Node], options: _Options) -> list[Node]:
    """Put the call of a group behind its last member, and note what stands for each result; the new nodes."""
    with graph.inserting_after(group.members[-1]):
        call = graph.create_node("call_module", group.name, tuple(group.inputs))
    made = [call]
    if len(group.outputs) == 1 and not options.as_tuple:
        results[group.outputs[0]] = call
    for i, node in enumerate(group.outputs if not results.get(group.outputs[0] if group.outputs else call) else ()):
        with graph.inserting_after(made[-1]):
            made.append(graph.call_function(operator.getitem, (call, i)))
        results[node] = made[-1]
    for node in group.outputs:
        propagate_meta(node, results[node], "all")
    if len(made) > 1 and any("val" in node.meta for node in group.outputs):
        call.meta["val"] = tuple(node.meta.get("val") for node in group.outputs)
    return made


def _arranged(order: list[Node], placed: dict[Node, list[Node]], made: list[_Group]) -> Iterator[Node]:
    """The new order; members, which are to go, come at once before what takes their place."""
    members = {group.members[-1]: group.members for group in made}
    for node in order:
        yield from members.get(node, (node,))
        yield from placed.get(node, ())


def _circle_error(names: list[str], groups: list[list[Node]], circle: list[Node]) -> LintError:
    """The error for nodes and groups, these by one member, that need each other in turn."""
    home = {node: i for i, group in enumerate(groups) for node in group}
    steps = []
    for here, there in zip(circle, [*circle[1:], circle[0]], strict=True):
        first = groups[home[here]] if here in home else [here]
        second = set(groups[home[there]] if there in home else [there])
        uses = ((node, user) for node in first for user in node.users if user in second)
        node, user = next(uses, (None, None))
        if node is None or user is None:
            steps.append(f"{here.name} must stay before {there.name} because of an effect")
        else:
            steps.append(f"{user.name} uses {node.name}")
    kinds = ", ".join(dict.fromkeys(repr(names[home[node]]) for node in circle if node in home))
    inside = ", ".join(node.name for node in circle if node not in home)
    between = f", through {inside}" if inside else ""
    message = f"{kinds or 'the graph'} can't be one call each: there is a circle{between}: {'; '.join(steps)}"
    return LintError([LintFault("CIRCLE", circle[0].name, circle[-1].name, message)])


# ---- splitting -------------------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """What `split` gives.

    Attributes:
        result: the graph or module of calls.
        partitions: name of each subgraph -> the names that its nodes had in the graph that was split.
        keys: name of each subgraph -> what the callback gave for its nodes.
    """

    result: Any
    partitions: dict[str, list[str]]
    keys: dict[str, Any]


def split(
    g: Any,
    callback: Callable[[Any], Any],
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
    policy: Policy = "safe",
) -> Split:
    """Split a graph into subgraphs; the graph itself stays as it is.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.GraphModule.
        callback: tells, for each node that computes something, which part it goes into: any key; None: it stays. Inputs
            and attributes stay, too, and are passed to the parts. Dots of a key are ``_`` in the name of its part.
        partition_affix: goes into the names, ``submod_<affix>_<key>``; None: they are ``submod_<key>``, or where one of
            those is taken ``submod_split_<key>``: torch.export calls subgraphs of its own so.
        tuple_return: let each part return a tuple though it has one result only.
        policy: as for `outline`.

    Returns:
        A `Split`: a Graph with ``subgraphs``, or a module, and which node went where.

    Raises:
        LintError, ValueError: as for `outline`.
        TypeError: g is none of these.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> x = g.placeholder("x")
        >>> double = g.call_function(operator.add, (x, x))
        >>> out = g.output(g.call_function(operator.neg, (double,)))
        >>> found = split(g, lambda node: 0 if node.target is operator.add else 1)
        >>> found.partitions
        {'submod_0': ['add'], 'submod_1': ['neg']}
        >>> print(found.result)
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %submod_0 : [num_users=1] = call_module[target=submod_0](args = (%x,), kwargs = {})
            %submod_1 : [num_users=1] = call_module[target=submod_1](args = (%submod_0,), kwargs = {})
            return submod_1
    """
    check_policy(policy)
    source = _own_graph(g)
    if source is None:
        import torch.fx

        from fastexport import _torch

        if not isinstance(g, torch.fx.GraphModule):
            raise TypeError(f"split() takes a graph or program of ours, or a torch GraphModule, not {type(g).__name__}")
        source = g.graph
        _torch._raise_faults(source, fx_only=True)
        graph = _torch.from_fx(g)
    else:
        source._raise_faults(fx_only=True)
        graph = copy.copy(source)
        graph.owning_module = source.owning_module
    groups: dict[Any, list[Node]] = {}
    for asked, node in zip(list(source.nodes), graph.nodes, strict=True):
        if node.op.startswith("call_"):
            key = callback(asked)
            if key is not None:
                groups.setdefault(key, []).append(node)
    keys = _named_parts(graph, groups, partition_affix)
    partitions = {name: [node.name for node in groups[key]] for name, key in keys.items()}
    if groups:
        options = _Options(list(keys), tuple_return, policy == "safe", "split")
        _outline(graph, list(groups.values()), options, [], [])
    return Split(_result_of(g, graph), partitions, keys)


def _named_parts(graph: Graph, groups: Collection[Any], affix: str | None) -> dict[str, Any]:
    """The keys of parts by the names that the parts get."""
    own = chain(("", "split_"), (f"split{i}_" for i in count(2)))
    for each in own if affix is None else (f"{affix}_",):
        # A dot would be that of a path.
        found = {f"submod_{each}{key}".replace(".", "_"): key for key in groups}
        if affix is not None or not any(_has_name(graph, name) for name in found):
            break
    if len(found) < len(groups):
        raise ValueError("two keys of parts have the same text, and so would their names")
    return found


def _result_of(g: Any, graph: Graph) -> Any:
    """A split graph as what was split: a graph, or a module."""
    if isinstance(g, GraphModule):
        subs = {path: GraphModule(g, sub) for path, sub in (graph.subgraphs or {}).items() if sub.owning_module is g}
        values = {
            node.target: attribute(g, node.target)
            for node in graph.nodes
            if node.op in ("get_attr", "call_module") and node.target not in subs
        }
        return GraphModule({**values, **subs}, graph)
    return graph if _own_graph(g) is not None else graph.to_fx(g)


# ---- inlining --------------------------------------------------------------------------------------------------------


def inline(g: Any, which: Callable[[str], bool] | None = None, *, recurse: bool = True) -> PassResult:
    """Put the nodes of subgraphs in the place of the nodes that call them.

    These are call_module nodes, and calls of the higher-order operators that do no more than to run a graph: wrap and
    invoke_subgraph. Others stay: cond and the like decide about runs, and wrap_with_set_grad_enabled and
    wrap_with_autocast set a state and restore it, whatever happens. Nodes that set it would not do so when one between
    them raises, and what is to be computed in that state could be moved out of it by other passes.

    Args:
        g: as for `outline`; the subgraphs of a torch module are its GraphModules. What the nodes of a subgraph refer to
            stays where it is: their targets get its path in front.
        which: tells, for the path of a subgraph, whether it is to be inlined; None: all are.
        recurse: inline what is called in them, too, and in the subgraphs that stay.

    Returns:
        A `PassResult`; ``reasons`` has the calls that were left, and why.

    Raises:
        TypeError: a call and the inputs of its subgraph don't fit; nothing is changed by that call then.
        ValueError: a subgraph calls itself.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> x = g.placeholder("x")
        >>> double = g.call_function(operator.add, (x, x))
        >>> out = g.output(g.call_function(operator.neg, (double,)))
        >>> _ = outline(g, [double], "twice")
        >>> inline(g)
        PassResult(inline: modified, 1 removed, 1 added, ... ms)
        >>> print(g)
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %add_1 : [num_users=1] = call_function[target=operator.add](args = (%x, %x), kwargs = {})
            %neg : [num_users=1] = call_function[target=operator.neg](args = (%add_1,), kwargs = {})
            return neg
    """
    start = time.perf_counter()
    job = _Inlining(which, recurse)
    on_native("inline", g, lambda graph, _: job.run(graph))
    return PassResult(
        "inline",
        bool(job.removed),
        removed=job.removed,
        added=list(job.added),
        reasons=job.reasons,
        seconds=time.perf_counter() - start,
    )


class _Inlining:
    def __init__(self, which: Callable[[str], bool] | None, recurse: bool) -> None:
        self._which, self._recurse = which, recurse
        self.removed: list[str] = []
        self.added: dict[str, None] = {}
        self.reasons: dict[str, str] = {}
        self._prefix = ""  # of the names of nodes in the graph that is worked on
        self._of_modules: set[str] = set()  # paths of what is a subgraph of it only while this works

    def run(self, graph: Graph) -> None:
        self._run_alone(graph, "")
        for path, sub in graph._graphs_below() if self._recurse else ():
            self._run_alone(sub, f"{path}/")

    def _run_alone(self, graph: Graph, prefix: str) -> None:
        known = subgraphs_of(graph)
        if not known:
            return
        self._prefix, self._of_modules = prefix, known.keys() - (graph.subgraphs or {}).keys()
        graph.subgraphs = known
        try:
            self._inline_calls(graph)
        finally:
            _drop_unused(graph, self._of_modules)

    def _inline_calls(self, graph: Graph) -> None:
        around = {id(graph)}  # the graphs that what is next stands in
        calls: list[Node | Graph] = list(_callers(graph))  # and, below what stood in it, each graph that was inlined
        while calls:
            node = calls.pop()
            if isinstance(node, Graph):
                around.remove(id(node))
                continue
            call = _call_of(node, graph.subgraphs or {})
            if call is None or (self._which is not None and not self._which(call.path)):
                continue
            sub = (graph.subgraphs or {})[call.path]
            if id(sub) in around:
                raise ValueError(f"the subgraph {call.path!r} calls itself")
            why = call.why_kept or _reason_to_keep(sub)
            if why is not None:
                self.reasons[self._prefix + node.name] = why
                continue
            made = self._inline(graph, node, call, sub)
            if self._recurse:
                around.add(id(sub))
                calls.append(sub)
                calls += [inner for inner in made if inner.op in ("call_module", "call_function")]

    def _inline(self, graph: Graph, node: Node, call: _GraphCall, sub: Graph) -> list[Node]:
        path = call.path
        values = arguments_by_input(node.name, call.args, call.kwargs, path, sub)
        shares = sub.owning_module is graph.owning_module
        prefix = "" if shares else f"{path}."
        known = graph.subgraphs or {}
        below = {f"{prefix}{name}": inner for name, inner in subgraphs_of(sub).items()}
        new = below.keys() - known.keys()
        if new:
            self._of_modules.update(new.difference(f"{prefix}{name}" for name in sub.subgraphs or {}))
            known.update((name, below[name]) for name in below if name in new)
            graph.subgraphs = known
        made: list[Node] = []
        with graph.recording("inline"):
            with graph.inserting_before(node):
                for inner in sub.nodes:
                    if inner.op not in _BORDERS:
                        made.append(graph.node_copy(inner, values.__getitem__))
                        values[inner] = made[-1]
                        if prefix and inner.op in ("get_attr", "call_module"):
                            made[-1].target = prefix + inner.target
            result = map_arg(sub.output_node().args[0], values.__getitem__)
            if isinstance(result, Node) and result in made:
                propagate_meta(node, result, "missing")
            _put_in_place(node, result)
        self.added.update((self._prefix + inner.name, None) for inner in made)
        self._erase(node)
        if call.graph is not None and not call.graph.users:
            self._erase(call.graph)
        return made

    def _erase(self, node: Node) -> None:
        name = self._prefix + node.name
        if name in self.added:
            del self.added[name]
        else:
            self.removed.append(name)
        node.graph.erase_node(node)


class _GraphCall(NamedTuple):
    """A node that runs a subgraph."""

    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    graph: Node | None  # what gives the subgraph, where it is an argument
    why_kept: str | None


# Higher-order operators that just run the graph that is their first argument -> where its own arguments begin.
_RUNNERS = {"wrap": 1, "invoke_subgraph": 2}
# Those that set a state for their graph, and restore it.
_STATES = {
    "wrap_with_set_grad_enabled": "sets whether gradients are recorded, and restores it",
    "wrap_with_autocast": "sets how types are chosen, and restores it",
}


def _callers(graph: Graph) -> list[Node]:
    """The nodes that may run a subgraph."""
    known = graph.subgraphs or {}
    held = [node for node in graph.find_nodes(op="get_attr") if node.target in known]
    users = dict.fromkeys(user for node in held for user in node.users)
    return [*graph.find_nodes(op="call_module"), *users]


def _call_of(node: Node, known: dict[str, Graph]) -> _GraphCall | None:
    """How a node runs one of some subgraphs; None: it runs none."""
    if node.op == "call_module":
        return _GraphCall(node.target, node.args, node.kwargs, None, None) if node.target in known else None
    name = _higher_order_name(node.target) if node.op == "call_function" else None
    graphs = [arg for arg in node.args if isinstance(arg, Node) and arg.op == "get_attr" and arg.target in known]
    if name is None or not graphs:
        return None
    held, start = graphs[0], _RUNNERS.get(name)
    if start is None or node.args[0] is not held:
        why = _STATES.get(name, "does more than run a graph")
        return _GraphCall(held.target, (), {}, held, f"kept: {name} {why}")
    return _GraphCall(held.target, node.args[start:], node.kwargs, held, None)


def _higher_order_name(target: Any) -> str | None:
    is_ours = isinstance(target, Operator) and target.kind == "higher_order"
    return target.__name__ if is_ours or is_higher_order(target) else None


def _reason_to_keep(sub: Graph) -> str | None:
    from fastexport._codegen import CodeGen

    if any(node.op == "placeholder" and node.target.startswith("*") for node in sub.nodes):
        return "kept: the subgraph takes any number of arguments"
    codegen = (sub.extras or {}).get("_codegen")
    if codegen is not None and type(codegen) is not CodeGen:
        return "kept: the subgraph unpacks its arguments in its own way"
    if not sub.find_nodes(op="output"):
        return "kept: the subgraph has no output"
    return None


def arguments_by_input(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], path: str, sub: Graph
) -> dict[Any, Any]:
    """What stands for each input of a subgraph that a node of that name calls.

    Raises:
        TypeError: the call and the inputs don't fit.
    """
    inputs = list(sub.find_nodes(op="placeholder"))
    if len(args) > len(inputs):
        raise TypeError(f"{name!r} gives {len(args)} arguments to {path!r}, which takes {len(inputs)}")
    values: dict[Any, Any] = dict(zip(inputs, args, strict=False))
    named = dict(kwargs)
    for node in inputs[len(args) :]:
        if node.target in named:
            values[node] = named.pop(node.target)
        elif node.args:
            values[node] = node.args[0]
        else:
            raise TypeError(f"{name!r} gives no {node.target!r} to {path!r}")
    if named:
        raise TypeError(f"{name!r} gives {', '.join(map(repr, named))} to {path!r}, which has no such input")
    return values


def _put_in_place(call: Node, result: Any) -> None:
    """Let users of a call use what it returned; what picks an item of a known container is given the item."""
    if isinstance(result, Node):
        call.replace_all_uses_with(result)
        return
    for user in list(call.users):
        if user.target is operator.getitem and isinstance(result, (tuple, list, dict)) and user.args[0] is call:
            try:
                item = result[user.args[1]]
            except (LookupError, TypeError):
                item = None
            if isinstance(item, Node):
                user.replace_all_uses_with(item)
                user.graph.erase_node(user)
                continue
        user.args = map_arg(user.args, lambda node: result if node is call else node)
        user.kwargs = map_arg(user.kwargs, lambda node: result if node is call else node)


def _drop_unused(graph: Graph, paths: set[str]) -> None:
    """Forget the subgraphs at some paths, and those that no node names any more."""
    named = {node.target for op in ("call_module", "get_attr") for node in graph.find_nodes(op=op)}
    graph.subgraphs = {path: sub for path, sub in (graph.subgraphs or {}).items() if path in named - paths} or None
