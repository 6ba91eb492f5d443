"""The modules of a program as a tree, with the operators and parameters of each; from the nodes' nn_module_stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastexport import _core
from fastexport._graph import Graph

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._program import ExportedProgram


_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # what torch notes for a node that belongs to no module
_STACK = "nn_module_stack"
_Modules = list[tuple[str, str]]  # path and class of each, from the outermost
_MOST_PARTS = 100  # of a path: a file may say anything, and trees are walked by recursion
MOST_GRAPHS = 100_000


class Module:
    """One module of the tree.

    Attributes:
        name: the last part of its path.
        type: its class, as the file names it, or "".
        children: the modules in it, by name.
        operators: how many calls of each operator stand in it, without those of its children.
        parameters: elements of its own parameters; of tied ones, in the module of the first.
        bytes: of its own parameters, buffers and constants, likewise.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.type = ""
        self.children: dict[str, Module] = {}
        self.operators: Counter[str] = Counter()
        self.parameters = 0
        self.bytes = 0

    def child(self, name: str) -> Module:
        """The module in it of that name, made when it is new."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = Module(name)
        return found

    def at(self, path: str) -> Module:
        """The module at a dotted path below it; what nests too deep for any model is one part."""
        module = self
        for part in path.split(".", _MOST_PARTS) if path else ():
            module = module.child(part)
        return module

    def total_operators(self) -> int:
        """Calls in it and below."""
        return self.operators.total() + sum(child.total_operators() for child in self.children.values())

    def total_parameters(self) -> int:
        """Parameters in it and below."""
        return self.parameters + sum(child.total_parameters() for child in self.children.values())

    def total_bytes(self) -> int:
        """Bytes of parameters, buffers and constants in it and below."""
        return self.bytes + sum(child.total_bytes() for child in self.children.values())

    def shape(self) -> tuple[object, ...]:
        """What makes two modules look the same: class, operators, parameters and children; not their own names."""
        children = tuple((name, child.shape()) for name, child in self.children.items())
        return self.type, tuple(sorted(self.operators.items())), self.parameters, self.bytes, children

    def groups(self, fold: bool = True) -> list[list[Module]]:
        """The modules in it; brothers in a row that look the same are one group."""
        groups: list[list[Module]] = []
        last = None
        for child in self.children.values():
            shape = child.shape() if fold else None
            if fold and groups and shape == last:
                groups[-1].append(child)
            else:
                groups.append([child])
            last = shape
        return groups


def module_tree(g: ExportedProgram | Graph, owner: Any = None) -> Module:
    """The tree of a program or graph; its root is the program's own module.

    What is in subgraphs counts in each module that calls them, once, but where its nodes tell modules of their own.

    Args:
        g: the program or graph.
        owner: the module that has the weights of a graph.
    """
    graph = g if isinstance(g, Graph) else g.graph
    root = Module("")
    known: dict[str, Module] = {}
    all_graphs(graph)  # it has an end
    left: list[tuple[Graph, _Modules]] = [(graph, [])]
    seen: set[tuple[int, tuple[tuple[str, str], ...]]] = set()
    while left:
        each, place = left.pop()
        if (id(each), tuple(place)) in seen:
            continue
        seen.add((id(each), tuple(place)))
        for node, modules in _calls(each):
            module = root
            for path, kind in modules or place:
                found = known.get(path)
                module = known[path] = root.at(path) if found is None else found
                module.type = kind.rsplit(".", 1)[-1]
            name = getattr(node.target, "__name__", None)
            module.operators[str(node.target) if name is None else name] += 1
        left += _subgraphs_at(each, place)
    _count_weights(root, g if owner is None else owner)
    return root


def all_graphs(graph: Graph) -> list[Graph]:
    """A graph and all below it, each once and before those below it.

    Raises:
        RecursionError: a graph stands below itself.
    """
    found: list[Graph] = []  # behind those below it
    done: set[int] = set()  # by id: graphs that look the same are equal
    around: set[int] = set()
    left = [(graph, False)]
    while left:
        each, is_done = left.pop()
        if is_done:
            around.remove(id(each))
            done.add(id(each))
            found.append(each)
        elif id(each) in around:
            raise RecursionError("a graph is among its own subgraphs")
        elif id(each) not in done:
            around.add(id(each))
            left.append((each, True))
            left += [(inner, False) for inner in (each.subgraphs or {}).values()]
    return found[::-1]


def check_count(count: int) -> None:
    """Graphs that share subgraphs on each level come to a number that no one can look at.

    Raises:
        ValueError: it is more than `MOST_GRAPHS`.
    """
    if count > MOST_GRAPHS:
        raise ValueError(
            f"its subgraphs come to more than {MOST_GRAPHS:,}, each counted wherever it is run; take one by itself"
        )


def named_graphs(graph: Graph, name: str) -> Iterator[tuple[str, Graph]]:
    """A graph and all below it, each as often as it stands there, with their paths: ``name/true_graph_0``.

    Raises:
        RecursionError: a graph stands below itself.
        ValueError: they are more than `MOST_GRAPHS`.
    """
    around: set[int] = set()  # by id: graphs that look the same are equal
    left = [(name, graph, False)]
    count = 0
    while left:
        path, each, is_done = left.pop()
        if is_done:
            around.remove(id(each))
            continue
        if id(each) in around:
            raise RecursionError("a graph is among its own subgraphs")
        count += 1
        check_count(count)
        yield path, each
        around.add(id(each))
        left.append((path, each, True))
        left += [(f"{path}/{key}", inner, False) for key, inner in reversed((each.subgraphs or {}).items())]


def _subgraphs_at(graph: Graph, place: _Modules) -> Iterator[tuple[Graph, _Modules]]:
    """The subgraphs of a graph, last one first, with the modules that the first call of each stands in.

    Args:
        place: those that the graph itself is called in.
    """
    subgraphs = graph.subgraphs or {}
    places: dict[str, _Modules] = {}
    for node in (*graph.find_nodes(op="get_attr"), *graph.find_nodes(op="call_module")) if subgraphs else ():
        if node.target in subgraphs and node.target not in places:
            caller = next(iter(node.users), node) if node.op == "get_attr" else node
            places[node.target] = list(modules_of(caller)) or place
    return ((subgraphs[path], places.get(path, place)) for path in reversed(subgraphs))


def _calls(graph: Graph) -> Iterator[tuple[Node, _Modules]]:
    """The calls of a graph with their `modules_of`; what a file says is not decoded node by node."""
    from fastexport._meta_json import decode_metadata

    known: dict[str, _Modules] = {}  # by the text in the file
    for node, (_, _, stack, _) in zip(graph.nodes, _core.level_facts(graph), strict=True):
        if node.op not in ("call_function", "call_method", "call_module"):
            continue
        if stack is None:
            modules = []
        elif stack is False:
            modules = list(modules_of(node))
        elif stack in known:
            modules = known[stack]
        else:
            modules = known[stack] = list(_modules_in(decode_metadata({_STACK: stack}).get(_STACK)))
        yield node, modules


def modules_of(node: Node) -> Iterator[tuple[str, str]]:
    """Path and class of each module that a node stands in, from the outermost; whatever else the meta holds."""
    return _modules_in(node.meta.get(_STACK))


def _modules_in(stack: Any) -> Iterator[tuple[str, str]]:
    for entry in stack.values() if isinstance(stack, dict) else ():
        if isinstance(entry, tuple | list) and len(entry) == 2 and entry[1] != _NO_MODULE:
            path, kind = entry
            kind = kind.__qualname__ if isinstance(kind, type) else kind
            if isinstance(path, str) and isinstance(kind, str):
                yield _plain(path), kind


def _count_weights(root: Module, owner: Any) -> None:
    from fastexport._weight_facts import weights_of
    from fastexport._weight_memory import Memory

    memory = Memory()
    for weight in weights_of(owner):
        added = None if weight.place is None else memory.add(weight.place)
        if added is not None:
            module = root.at(weight.name.rpartition(".")[0])
            module.parameters += weight.elements_in(added) if weight.kind == "parameter" else 0
            module.bytes += added


def _plain(path: str) -> str:
    """A path without the marks of calls: a module called twice has @ and a number."""
    return path.split("@", 1)[0]


def tree_lines(root: Module, *, fold: bool = True, encoding: str | None = None) -> Iterator[str]:
    """The tree as text; brothers in a row that look the same are folded as ``Block x N``, with the counts of each.

    Args:
        root: of `module_tree`.
        fold: whether to fold.
        encoding: of where it is written; the lines between modules are ASCII where it has none for them.
    """
    yield _line(root, root.type or "program")
    yield from _children(root, "", fold, _LINES if _can_say("".join(_LINES), encoding) else _PLAIN_LINES)


def _can_say(text: str, encoding: str | None) -> bool:
    try:
        return encoding is None or bool(text.encode(encoding))
    except (UnicodeEncodeError, LookupError):
        return False


def label_of(group: list[Module]) -> str:
    """The name, class and number of modules that look the same: ``0..3: Block x 4``."""
    first = group[0]
    name = first.name if len(group) == 1 else f"{first.name}..{group[-1].name}"
    times = f" x {len(group)}" if len(group) > 1 else ""
    return f"{name}: {first.type}{times}" if first.type else f"{name}{times}"


def _line(module: Module, label: str, times: int = 1) -> str:
    counts = f"{module.total_operators()} ops, {module.total_parameters()} parameters{' each' if times > 1 else ''}"
    own = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in module.operators.most_common(4))
    return f"{label}  ({counts})" + (f"  {own}" if own else "")


_LINES, _PLAIN_LINES = ("├─ ", "└─ ", "│  "), ("|- ", "`- ", "|  ")


def _children(module: Module, indent: str, fold: bool, marks: tuple[str, str, str]) -> Iterator[str]:
    among, last, beside = marks
    groups = module.groups(fold)
    for i, group in enumerate(groups):
        is_last = i == len(groups) - 1
        first = group[0]
        yield f"{indent}{last if is_last else among}{_line(first, label_of(group), len(group))}"
        yield from _children(first, indent + ("   " if is_last else beside), fold, marks)
