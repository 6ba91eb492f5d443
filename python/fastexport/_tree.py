"""The modules of a program as a tree, with the operators and parameters of each; from the nodes' nn_module_stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram


_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # what torch notes for a node that belongs to no module
_MOST_PARTS = 100  # of a path: a file may say anything, and trees are walked by recursion


class Module:
    """One module of the tree.

    Attributes:
        name: the last part of its path.
        type: its class, as the file names it, or "".
        children: the modules in it, by name.
        operators: how many calls of each operator stand in it, without those of its children.
        parameters: elements of its own parameters.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.type = ""
        self.children: dict[str, Module] = {}
        self.operators: Counter[str] = Counter()
        self.parameters = 0

    def child(self, name: str) -> Module:
        """The module in it of that name, made when it is new."""
        return self.children.setdefault(name, Module(name))

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

    def shape(self) -> tuple[object, ...]:
        """What makes two modules look the same: class, operators, parameters and children; not their own names."""
        children = tuple((name, child.shape()) for name, child in self.children.items())
        return self.type, tuple(sorted(self.operators.items())), self.parameters, children


def module_tree(program: ExportedProgram) -> Module:
    """The tree of a program; its root is the program's own module."""
    root = Module("")
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        module = root
        for path, kind in (node.meta.get("nn_module_stack") or {}).values():
            if kind == _NO_MODULE:
                continue
            module = root.at(_plain(path))
            module.type = kind.rsplit(".", 1)[-1]
        module.operators[getattr(node.target, "__name__", str(node.target))] += 1
    for name, value in program.state_dict.described():
        if getattr(value, "is_param", False):
            path, _, _ = name.rpartition(".")
            count = 1
            for size in getattr(value, "sizes", getattr(value, "shape", ())):
                count *= size
            root.at(path).parameters += count
    return root


def _plain(path: str) -> str:
    """A path without the marks of calls: a module called twice has @ and a number."""
    return path.split("@", 1)[0]


def tree_lines(root: Module, *, fold: bool = True) -> Iterator[str]:
    """The tree as text; brothers in a row that look the same are folded as ``Block x N``.

    Args:
        root: of `module_tree`.
        fold: whether to fold.
    """
    yield _line(root, root.type or "program")
    yield from _children(root, "", fold)


def _line(module: Module, label: str) -> str:
    counts = f"{module.total_operators()} ops, {module.total_parameters()} parameters"
    own = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in module.operators.most_common(4))
    return f"{label}  ({counts})" + (f"  {own}" if own else "")


def _groups(module: Module, fold: bool) -> list[list[Module]]:
    groups: list[list[Module]] = []
    last = None
    for child in module.children.values():
        shape = child.shape() if fold else None
        if fold and groups and shape == last:
            groups[-1].append(child)
        else:
            groups.append([child])
        last = shape
    return groups


def _children(module: Module, indent: str, fold: bool) -> Iterator[str]:
    groups = _groups(module, fold)
    for i, group in enumerate(groups):
        is_last = i == len(groups) - 1
        first = group[0]
        name = first.name if len(group) == 1 else f"{first.name}..{group[-1].name}"
        times = f" x {len(group)}" if len(group) > 1 else ""
        label = f"{name}: {first.type}{times}" if first.type else f"{name}{times}"
        yield f"{indent}{'└─ ' if is_last else '├─ '}{_line(first, label)}"
        yield from _children(first, indent + ("   " if is_last else "│  "), fold)
