"""A graph as a tree of levels, one for each module: what pictures, the report page and notebooks show one at a time.

A level holds items and edges between them. An item is a call, an input, an output, a module (whose inside is a level
of its own), a block (modules in a row that look the same: the first stands for all) or a run (calls of a level that was
too large). Parameters, buffers and constants are no items: they are listed with the items that use them.

    >>> import operator
    >>> from fastexport import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> weight = graph.get_attr("weight")
    >>> out = graph.output(graph.call_function(operator.mul, (x, weight)))
    >>> root = levels_of(graph).root
    >>> [(item.kind, item.name, item.type) for item in root.items]
    [('input', 'x', ''), ('node', 'mul', 'operator.mul'), ('output', 'output', '')]
    >>> root.items[1].weights[0].target
    'weight'
    >>> [(edge.source, edge.target) for edge in root.edges]
    [(0, 1), (1, 2)]

What holds, and is tested: each node that is no weight is in exactly one level, as one item (`Levels.find`), where the
levels of all members of a block count. Values that come into a module from outside are its input items, those that
others use its output items; an edge's ports say which: ``(i, j)`` leaves by output i of what is in its source and goes
into input j of what is in its target, 0 for an item with nothing in it. Everything depends on the graph alone, so that
the same graph always gives the same levels; nothing reads weights or changes the graph.

Where a node belongs, its ``meta["nn_module_stack"]`` tells: the path of its last entry. A path that is no module that
was called, such as that of a ModuleList, makes no level, and a module of a single call is that call, unless just that
module is asked for. Two modules look the same when their calls, literals, shapes and edges are; names don't count. A
level that holds more than max_items items even so, as that of a large graph without modules, is cut into runs: what
repeats first, and then where the fewest values pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastexport._arguments import whole
from fastexport._graph import Graph
from fastexport._node_facts import NodeFacts, Result, Weight, class_name, graph_of, prefixes
from fastexport._tree import all_graphs, check_count

__all__ = ["Edge", "Item", "Level", "Levels", "Weight", "levels_of"]


_MOST_NAMED = 10  # in a message


@dataclass(slots=True, eq=False)
class Item:
    """One thing of a level.

    Attributes:
        kind: "input", "output", "node", "module", "block" or "run".
        name: of the node; of a module its path below its level, of a block the first and the last of those.
        type: the operator without ``torch.ops.``, or the class of the module.
        text: dtype and shape of its value, ``f32[2, 8]``, or "".
        node: of a call; of an input or output of a module the node whose value passes; else None.
        level: what is inside: of a block the first of its members.
        members: of a block, the levels of all.
        chain: a block whose members use each other's results in turn; otherwise they stand side by side.
        module: of a call that is all there is of a module, its path below the level and its class.
        weights: what it uses of parameters and the like; not those of the items in it.
        subgraphs: name and level of each graph that the call runs, such as the branches of a cond.
        fates: what becomes of the value in the end, ``becomes buffer cache``, where it is not merely returned; of an
            input also the node that it becomes.
        results: of an output of the graph, in order.
        size: nodes in it, with those of all members, without weights.
        index: its place in the items of its level.
    """

    kind: str
    name: str
    type: str = ""
    text: str = ""
    node: Any = None
    level: Level | None = None
    members: Sequence[Level] = ()
    chain: bool = False
    module: tuple[str, str] | None = None
    weights: Sequence[Weight] = ()
    subgraphs: Sequence[tuple[str, Level]] = ()
    fates: Sequence[str] = ()
    results: Sequence[Result] = ()
    size: int = 1
    index: int = -1
    place: int = -1  # of the node in the list of nodes
    key: int = -1  # equal for items that look the same

    @property
    def count(self) -> int:
        """How many modules it stands for."""
        return len(self.members) or 1


@dataclass(slots=True, eq=False)
class Edge:
    """Values that go from one item to another.

    Attributes:
        source, target: indexes into the items of the level.
        ports: for each value the output of the source's inside that it is, and the input of the target's.
        texts: for each value its dtype and shape, or "".
    """

    source: int
    target: int
    ports: list[tuple[int, int]]
    texts: list[str]


class Level:
    """The inside of a module, of the program, of a subgraph or of a run.

    Attributes:
        path: of the module, ``model.layers.0``; of a run the names of its first and last item; "" at the root. In a
            subgraph the scope comes first: ``cond/true_graph_0/layers.0``.
        scope: of a subgraph and what is in it, the node that runs it and its name: ``cond/true_graph_0``; else "".
        module: the path of the module in the graph; of a run that of the module it is in.
        type: the class of the module, or "".
        parent: the level that it is in; None at the root.
        items: its inputs, then what happens, in the order of the graph, then its outputs.
        edges: between its items, in order of source and target.
        inputs, outputs: the items for what comes in and goes out, in the order of the ports.
        size: nodes in it and below, without weights, inputs and outputs of modules.
        item: the item of the parent that it is the inside of, or of which it is a member; None for roots.
        body: its items without inputs and outputs.
        key: equal for levels that look the same.
        depth: how many levels it is in.
        index: its place in `Levels.all`.
    """

    __slots__ = ("_edges", "body", "depth", "index", "inputs", "item", "items", "key", "module", "outputs", "parent",
                 "path", "ports", "scope", "size", "type", "wires")  # fmt: skip

    def __init__(self, scope: str, module: str, type_: str = "", parent: Level | None = None) -> None:
        self.path = f"{scope}/{module}" if scope and module else scope or module
        self.scope = scope
        self.module = module
        self.type = type_
        self.parent = parent
        self.items: list[Item] = []
        self._edges: list[Edge] | None = None
        self.inputs: list[Item] = []
        self.outputs: list[Item] = []
        self.size = 0
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.index = -1
        self.item: Item | None = None  # what stands for it in its parent
        self.body: list[Item] = []
        self.key = -1
        self.wires: list[Wire] = []
        # While it is made: the ports of values that pass its border.
        self.ports: tuple[dict[Any, int], dict[Any, int]] = ({}, {})

    @property
    def edges(self) -> list[Edge]:
        """Its edges, made when they are first asked for."""
        if self._edges is None:
            edges: dict[tuple[int, int], Edge] = {}
            for source, i, target, j in self.wires:
                ends = source.index, target.index
                edge = edges.get(ends)
                if edge is None:
                    edge = edges[ends] = Edge(*ends, [], [])
                edge.ports.append((i, j))
                edge.texts.append(value_at(source, i).text)
            self._edges = [edges[ends] for ends in sorted(edges)]
        return self._edges

    def __repr__(self) -> str:
        return f"<Level {self.path!r}: {len(self.items)} items>"


Wire = tuple[Item, int, Item, int]  # source, its port, target, its port


class Levels:
    """All levels of a graph.

    Attributes:
        root: the level of the graph itself.
        all: every level, each before those below it; the levels of all members of blocks too.
        modules: the paths of all modules with calls in them, of which not each has a level.
    """

    def __init__(self, root: Level, modules: Sequence[str]) -> None:
        self.root = root
        self.modules = modules
        self.all: list[Level] = []
        self._found: dict[str, tuple[Level, Item]] | None = None
        waiting = [root]
        while waiting:
            level = waiting.pop()
            level.index = len(self.all)
            level.depth = 0 if level.parent is None else level.parent.depth + 1
            self.all.append(level)
            waiting += reversed(list(inside(level)))

    def at(self, path: str) -> Level:
        """The level of that path: as `Level.path` has it, or without the nodes that run subgraphs, or in any subgraph.

        A module of a single call, or one that only holds others, has a level when `levels_of` was asked for it.

        Raises:
            KeyError: there is none; the message names those that are like it.
        """
        exact = (level for level in self.all if level.path == path)
        short = (level for level in self.all if path in _short_names(level))
        found = next(exact, None) or next(short, None)
        if found is not None:
            return found
        import difflib

        scopes = list(dict.fromkeys(level.scope for level in self.all if level.scope))
        close = difflib.get_close_matches(path, [*self.modules, *scopes], 3)
        message = f"there is no module or subgraph {path!r} with calls in it"
        if close:
            raise KeyError(f"{message}; did you mean {', '.join(close)}?")
        known = [*scopes, *sorted(self.modules, key=lambda path: path.count("."))]
        more = f", +{len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
        raise KeyError(f"{message}; there are {', '.join(known[:_MOST_NAMED])}{more}" if known else message)

    def find(self, name: str) -> tuple[Level, Item]:
        """The level and the item of a node; one in a subgraph by its path, ``cond/true_graph_0/add``.

        Raises:
            KeyError: there is no such node, or it is a weight.
        """
        if self._found is None:
            self._found = {}
            for level in self.all:
                for item in level.items:
                    if item.place >= 0:
                        self._found[f"{level.scope}/{item.name}" if level.scope else item.name] = level, item
        return self._found[name]


def inside(level: Level) -> Iterator[Level]:
    """The levels just below one."""
    for item in level.items:
        yield from item.members or ((item.level,) if item.level else ())
        for _, sub in item.subgraphs:
            yield sub


def _short_names(level: Level) -> Iterator[str]:
    """What else a level may be called: a subgraph by its name, a module by its path wherever it is."""
    names = level.scope.split("/")[1::2] if level.scope else []
    for dot in "./":
        yield "/".join(part for part in (dot.join(names), level.module) if part)
    yield _without_call(level.module)


def _without_call(path: str) -> str:
    """The path of a module without the mark of its second call and those behind it, ``conv@1``."""
    return path.partition("@")[0]


def levels_of(g: Any, *, fold: bool = True, max_items: int = 150, module: str | None = None) -> Levels:
    """The tree of levels of a graph.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, or one of torch's.
        fold: whether modules in a row that look the same become one block.
        max_items: how many items a level may hold, without inputs and outputs, before it is cut into runs.
        module: a path that gets a level even when it is that of a single call, or of a module that only holds others.

    Raises:
        TypeError: g is none of these, or max_items no whole number.
        RecursionError: a graph stands below itself.
        ValueError: max_items is less than 2, or the subgraphs are too many.
    """
    max_items = whole("max_items", max_items, 2)
    wanted = "" if module is None else module.rpartition("/")[2]
    graph = graph_of(g)
    all_graphs(graph)  # it has an end
    builders = [_Builder(graph, "", fold, max_items, wanted)]
    for builder in builders:  # of which there are more on the way
        builder.build()
        builders += builder.inner
        check_count(len(builders))
    for builder in reversed(builders):  # what is inside first
        builder.finish()
    return Levels(builders[0].root, [path for builder in builders for path in builder.modules()])


def value_at(item: Item, port: int) -> Item:
    """The item that tells of the value at a port of an item: the call, or the output of what is inside a module."""
    return item if item.level is None else item.level.outputs[port]


# ---- making the tree


class _Builder:
    """Makes the levels of one graph; those of its subgraphs are made by others."""

    def __init__(self, graph: Graph, scope: str, fold: bool, max_items: int, wanted: str) -> None:
        self.graph = graph
        self.scope = scope
        self.fold = fold
        self.max_items = max_items
        self.wanted = wanted  # path of a module that gets a level in any case
        self.facts = NodeFacts(graph)
        self.nodes = self.facts.nodes
        self.weights = self.facts.weights
        self.types = self.facts.types
        self.totals: Counter[str] = Counter()  # by path: nodes in the module and below
        self.levels: dict[str, Level] = {}  # by path of any node
        self.keys: dict[Any, int] = {}
        self.root = Level(scope, "")
        self.inner: list[_Builder] = []  # of subgraphs

    def build(self) -> None:
        """Make the levels with their items."""
        paths = self.facts.paths()
        self.totals = self._totals(paths)
        self.levels[""] = self.root
        owner = self.graph.owning_module
        self.root.type = class_name(self.types.get("", "" if owner is None or self.scope else type(owner)))
        items = self._items(paths)
        self._wires(items)

    def finish(self) -> None:
        """Fold and cut the levels, when those of the subgraphs are done."""
        from fastexport import _level_groups

        _level_groups.finish(self.root, self.keys, self.fold, self.max_items)

    def modules(self) -> Iterator[str]:
        """The paths of all modules with calls in them."""
        return (f"{self.scope}/{path}" if self.scope else path for path in self.totals if path)

    def _totals(self, paths: list[str]) -> Counter[str]:
        """By path how many nodes lie in the module and below; "" for all that are no weights."""
        own = Counter(path for place, path in enumerate(paths) if place not in self.weights)
        totals: Counter[str] = Counter()
        for path, count in own.items():
            for part in prefixes(path):
                totals[part] += count
        return totals

    def _level(self, path: str) -> Level:
        """The level that a node of a path is in: that of the innermost module that has one."""
        level = self.levels.get(path)
        if level is not None:
            return level
        level = self.root
        for part in prefixes(path):
            is_wanted = self.wanted and _without_call(part) == self.wanted
            if is_wanted or (part in self.types and self.totals[part] > 1):
                inner = self.levels.get(part)
                level = inner if inner is not None else self._open(part, level)
            self.levels.setdefault(part, level)
        return level

    def _open(self, path: str, parent: Level) -> Level:
        kind = class_name(self.types.get(path, ""))
        level = Level(self.scope, path, kind, parent)
        level.item = Item("module", _below(path, parent.module), kind, level=level)
        parent.body.append(level.item)
        return level

    # -- items

    def _items(self, paths: list[str]) -> list[tuple[Item, Level] | None]:
        """For each node that is no weight its item and its level."""
        items: list[tuple[Item, Level] | None] = []
        fates = self._fates()
        for place, node in enumerate(self.nodes):
            if place in self.weights or place in self.facts.subgraphs:
                items.append(None)
                continue
            op = node.op
            level = self.root if op in ("placeholder", "output") else self._level(paths[place])
            fate = fates.get(node.name, ())
            item = Item("node", node.name, text=self.facts.text(place), node=node, place=place, fates=fate)
            if op == "placeholder":
                item.kind = "input"
                level.inputs.append(item)
            elif op == "output":
                item.kind = "output"
                item.results = self.facts.results
                level.outputs.append(item)
            else:
                self._describe(item, node, op, paths[place], level)
                level.body.append(item)
            items.append((item, level))
        return items

    def _fates(self) -> dict[str, list[str]]:
        """By the name of a node what it becomes, or what becomes of it."""
        fates: dict[str, list[str]] = {}
        for result in self.facts.results:
            if result.node is None or result.group == "out":
                continue
            fates.setdefault(result.node.name, []).append(result.text)
            if result.input is not None and result.group == "mutation":
                fates.setdefault(result.input, []).append(f"becomes {result.node.name}")
        return fates

    def _describe(self, item: Item, node: Any, op: str, path: str, level: Level) -> None:
        target = node.target
        item.type = self.facts.target(target)
        if path != level.module and path in self.types:
            item.module = _below(path, level.module), class_name(self.types[path])
        kind = item.type
        if op == "call_module":
            kind = self._module_text(str(target))
            item.type = (item.module and item.module[1]) or kind.partition("(")[0] or item.type
        key = (self.facts.rows[item.place][0], kind, item.text, item.module and item.module[1])
        item.key = self.keys.setdefault(key, len(self.keys))

    def _module_text(self, path: str) -> str:
        """The class of a module and how it was made, as its repr tells; the path where the graph has no module."""
        owner = self.graph.owning_module
        try:
            return repr(owner.get_submodule(path))
        except Exception:  # there is none, or it is a user's and may do anything
            return path

    # -- edges

    def _wires(self, items: list[tuple[Item, Level] | None]) -> None:
        from fastexport import _level_groups

        for place, found in enumerate(items):
            if found is None:
                continue
            item, level = found
            weights = []
            for used in self.facts.rows[place][1]:
                source = items[used]
                if source is not None:
                    _level_groups.connect(used, (source[0], 0), source[1], (item, 0), level)
                elif used in self.weights:
                    weights.append(self.weights[used])
                else:
                    self._add_subgraph(item, level, self.facts.subgraphs[used])
            item.weights = weights

    def _add_subgraph(self, item: Item, level: Level, name: str) -> None:
        scope = f"{self.scope}/{item.name}/{name}" if self.scope else f"{item.name}/{name}"
        graph = (self.graph.subgraphs or {})[name]
        builder = _Builder(graph, scope, self.fold, self.max_items, self.wanted)
        builder.root.parent = level
        self.inner.append(builder)
        item.subgraphs = (*item.subgraphs, (name, builder.root))
        item.key = -1 - item.place  # it looks like no other


def _below(path: str, above: str) -> str:
    return path[len(above) + 1 :] if above else path
