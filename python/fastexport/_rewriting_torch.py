"""Replacing patterns in live torch.fx graphs: found and placed in C on a native twin, then done to the torch nodes.

With the policy "torch" it is torch's own function that works, accelerated.
"""

from __future__ import annotations

import sys
from typing import Any

from torch.fx import Graph, Node, subgraph_rewriter
from torch.fx.node import map_aggregate
from torch.fx.traceback import NodeSource, NodeSourceAction

from fastexport import _core, _torch, acceleration
from fastexport._collecting import no_collection
from fastexport._errors import FastExportError
from fastexport._graph import Graph as Twin
from fastexport._matching import Found, Match, graph_of
from fastexport._provenance import with_sources
from fastexport._rewriting import Job, Outcome, ReplacedPatterns, Replacements, collected, fitted, joined

_ACTIONS = [NodeSourceAction.REPLACE, NodeSourceAction.CREATE]


def run(job: Job, obj: Any, provenance: bool, recurse: bool) -> Replacements:
    """`fastexport.replace_pattern_with_filters` on a torch object."""
    parts = _torch._parts(obj)
    graphs = [graph for prefix, graph in _torch._modules_with_graphs(parts, recurse) if prefix]
    for graph in (parts.graph, *graphs) if job.policy == "safe" else ():
        _torch._raise_faults(graph, fx_only=True)
    below = [_torch._parts(graph.owning_module or graph) for graph in graphs]
    return joined(_run(job, each, provenance) for each in (parts, *below))


def _run(job: Job, parts: Any, provenance: bool) -> Replacements:
    if job.policy == "torch":
        return _as_torch(job, parts)
    live = _Live(job, parts, provenance)
    with no_collection(), _torch._following_signature(parts):
        try:
            return live.run()
        finally:
            if live.modified and parts.module is not None:
                _torch.renew_code(parts.module)


def _as_torch(job: Job, parts: Any) -> Replacements:
    module = parts.module if parts.module is not None else _Holder(parts.graph)
    found = job.find(_torch.from_fx(parts.graph), list(parts.graph.nodes))  # for the report
    pattern, replacement = _torch_graph(job.pattern.source), job.replacement
    with acceleration.accelerate(only=("subgraph_match", "validate_partition", "replace_pattern")):
        done = subgraph_rewriter.replace_pattern_with_filters(
            module,
            pattern,
            None if replacement is None else _torch_graph(replacement),
            job.filters,
            job.options.ignore_literals,
            job.callback,
            job.name,
        )
    items = [ReplacedPatterns(item.anchor, item.nodes_map, item.replacements) for item in done]
    return Replacements(items, [], found)


def _torch_graph(graph: Any) -> Graph:
    return graph if isinstance(graph, Graph) else graph.to_fx()


class _Holder:
    """What torch's rewriter asks of the module of a graph that is none."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def recompile(self) -> None:
        """There is no code."""


class _Watched:
    """Live nodes while functions of the user run, which the twin would not follow if they edited them."""

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = [node for node in nodes if isinstance(node, Node)]
        self._before = [_parts_of(node) for node in self._nodes]

    def check(self, who: str) -> None:
        """Raise if a node was edited or is erased."""
        for node, before in zip(self._nodes, self._before, strict=True):
            if node._erased:
                raise FastExportError(f"{who} was to look only, but {node.name!r} was erased meanwhile")
            if any(now is not then for now, then in zip(_parts_of(node), before, strict=True)):
                raise FastExportError(f"{who} was to look only, but has edited {node.name!r}")


def _parts_of(node: Any) -> tuple[Any, ...]:
    return node.op, node.target, node.args, node.kwargs


class _Live:
    """A live graph and its twin, which go in step."""

    def __init__(self, job: Job, parts: Any, provenance: bool) -> None:
        self.job, self.parts, self.provenance = job, parts, provenance
        self.graph: Graph = parts.graph
        self.nodes: list[Any] = list(self.graph.nodes)  # that of the twin's id i + 1 is the i-th
        self.twin = _torch.from_fx(self.graph)
        if parts.module is not None:
            self.twin.owning_module = parts.module
        self.modified = False

    def run(self) -> Replacements:
        job = self.job
        found = job.find(self.twin, self.nodes)
        watched = _Watched(self.nodes if job.filters else [])
        chosen = job.chosen(found, self.graph)
        watched.check("a filter")
        common = fitted(job.replacement, self.twin) if job.callback is None and chosen else None
        made: list[list[Any] | str] = []
        for index in chosen:
            match = found.match(index)
            matched = self._matched(found, match.nodes_map)
            replacement = common if common is not None else self._ask(match, matched)
            (outcome,) = found.matches.rewrite(replacement, [index], job.value_keys, ("from_node",))
            if not isinstance(outcome, str):
                self.modified = True
                outcome = self.repeat(outcome, matched)
            made.append(outcome)
        return collected(found, chosen, made)

    def _ask(self, match: Match, matched: list[Node]) -> Twin:
        watched = _Watched(matched)
        made = self.job.callback(match, self.graph, self.job.pattern.source) if self.job.callback is not None else None
        watched.check("the callback")
        return fitted(graph_of(made, for_torch=True), self.twin)

    def _matched(self, found: Found, nodes_map: dict[Any, Any]) -> list[Node]:
        nodes = reversed(found.pattern.nodes)
        return [nodes_map[n] for n in nodes if n.op not in ("placeholder", "output") and n in nodes_map]

    def of(self, twin: Any) -> Any:
        """The live node of a node of the twin; anything else as it is."""
        return self.nodes[_id(twin) - 1] if isinstance(twin, _core.Node) else twin

    def repeat(self, outcome: Outcome, matched: list[Node]) -> list[Node]:
        """Do to the live graph what was done to the twin: the new nodes."""
        made, old, results, moved = outcome
        added = [self._make(node) for node in made]
        self._place(added, made, moved)
        lives = [self.of(node) for node in old]
        for before, after in zip(lives, results, strict=True):
            after = self.of(after)
            self._note(before, after, after in added)
            before.replace_all_uses_with(after)
            for entry in self.parts.program.module_call_graph if self.parts.program is not None else ():
                if entry.signature is not None:
                    entry.signature.replace_all_uses_with(before, after)
        for node in matched:
            self.graph.erase_node(node)
        return added

    def _make(self, node: Any) -> Node:
        args, kwargs = map_aggregate(node.args, self.of), map_aggregate(node.kwargs, self.of)
        live = self.graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        live.meta.update(node.meta)
        self.nodes.extend([None] * (_id(node) - len(self.nodes)))
        self.nodes[_id(node) - 1] = live
        return live

    def _place(self, added: list[Node], made: list[Any], moved: list[Any]) -> None:
        """Put new nodes, and those that moved behind them, in front of what follows them in the twin."""
        if not made:
            return
        following = (moved or made)[-1].next
        anchor = self.graph._root if following.op == "root" else self.of(following)
        for node in [*added, *map(self.of, moved)]:
            anchor.prepend(node)

    def _note(self, old: Node, new: Node, is_made: bool) -> None:
        if not self.provenance:
            return
        source = NodeSource(old, "replace_pattern", _ACTIONS if is_made else NodeSourceAction.REPLACE)
        noted = with_sources(new.meta.get("from_node"), [source])
        if noted is not None:
            new.meta["from_node"] = noted


def _id(node: Any) -> int:
    return int.from_bytes(node._id, sys.byteorder)
