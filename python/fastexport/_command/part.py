"""The part of a program between some nodes: what the outputs need from the inputs on, and nothing else.

A node stays when an output needs its value, when it writes to memory that the part reads, or when it checks values that
are there anyway. All other effects are the business of the rest of the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fastexport._core import Node
from fastexport._interface import flatten, remove_updates, updates, user_inputs
from fastexport._memory import CALM, COPIES, FRESH, POSITION_SHIFT, VIEW, memory_facts

if TYPE_CHECKING:
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram

_CALLS = ("call_function", "call_method", "call_module")
_OUTSIDE = ("placeholder", "get_attr")  # their memory is there before the part runs, and after


def cut(program: ExportedProgram, inputs: list[Node], outputs: list[Node]) -> None:
    """Leave of a program what computes some nodes from others.

    Args:
        program: it is changed.
        inputs: nodes whose values are given to the program; what computed them goes. Inputs have the names of these.
        outputs: nodes whose values it returns, as a tuple. An update of a buffer or an input stays when the part reads
            that and has all the update needs.

    Raises:
        ValueError: an input is an output too, or is not needed, or a value can't be one.
        TypeError: nothing is known of the value of an input.
    """
    old_outputs = len(program.graph_signature.user_outputs)
    there = set(user_inputs(program))
    both = [node.name for node in inputs if node in outputs]
    if both:
        raise ValueError(f"{both[0]} can't be an input and an output")
    for node in (*inputs, *outputs):
        _check_value(node)
    names = {node.name for node in program.graph.nodes}
    cuts = {node: _free_name(node.name, names) for node in inputs if node not in there}
    flatten(program)
    for node in outputs:
        program.add_output(node)
    for _ in range(old_outputs):
        program.remove_output(0)
    named = {node.name: cuts.get(node, node.name) for node in inputs}
    for node, name in cuts.items():
        node.replace_all_uses_with(program.add_input(name, node.meta.get("val")))
    _drop_the_rest(program)
    program.remove_unused_inputs(user_inputs=True)
    _check_needed(program, named)
    _forget_module_calls(program)
    taken = {node.name for node in program.graph.nodes}
    for old, name in named.items():
        if old not in taken:
            program.rename_input(name, old)


def _check_value(node: Node) -> None:
    """See that a node has one value."""
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        users = ", ".join(user.name for user in node.users)
        raise ValueError(f"{node.name} has several values: name a node that takes one ({users or 'there is none'})")
    if node.op == "get_attr" and value is None:
        raise ValueError(f"{node.name} is no value, but what another node calls")
    if node.op in _CALLS and value is None:
        raise ValueError(f"{node.name} gives no value: it can be neither an input nor an output")


def _free_name(name: str, names: set[str]) -> str:
    """A name for an input that stands for a node, until that is gone."""
    free = f"{name}_input"
    while free in names:
        free += "_"
    return free


def _check_needed(program: ExportedProgram, named: dict[str, str]) -> None:
    """See that the part needs each input that was named.

    Args:
        named: how inputs were called by the user -> as they are called now.
    """
    there = {node.name for node in program.graph.find_nodes(op="placeholder")}
    unused = [name for name, now in named.items() if now not in there]
    if unused:
        called = {now: name for name, now in named.items()}
        needed = ", ".join(called.get(node.name, node.name) for node in user_inputs(program))
        raise ValueError(
            f"the outputs don't come from {', '.join(unused)}: "
            + (f"they need {needed}, of which any may be named" if needed else "they need no input")
        )


def _forget_module_calls(program: ExportedProgram) -> None:
    """How modules in the program are called: their values need not be there any more."""
    whole, *inner = program._module_calls() or [{}]
    if any(call["signature"] is not None for call in inner):
        program._set_module_calls([whole, *({**call, "signature": None} for call in inner)])


def _drop_the_rest(program: ExportedProgram) -> None:
    nodes = list(program.graph.nodes)
    found = updates(program)
    part = _Part(nodes, set(user_inputs(program)))
    part.need(value for position, value in enumerate(program.graph.output_node().args[0]) if position not in found)
    part.complete(found)
    remove_updates(program, [position for position, (value, _) in found.items() if value not in part.kept])
    for node in reversed(nodes):
        if node not in part.kept and node.op not in ("placeholder", "output"):
            program.graph.erase_node(node)
    _drop_subgraphs(program.graph)


def _drop_subgraphs(graph: Graph) -> None:
    """Subgraphs that no node names any more go."""
    named = {node.target for op in ("get_attr", "call_module") for node in graph.find_nodes(op=op)}
    if graph.subgraphs:
        graph.subgraphs = {path: sub for path, sub in graph.subgraphs.items() if path in named}


class _Part:
    """The nodes that stay; it grows until all they need is there.

    Attributes:
        kept: the nodes that stay.
    """

    def __init__(self, nodes: list[Node], user_inputs: set[Node]) -> None:
        self.kept: set[Node] = set()
        self._user_inputs = user_inputs
        self._places = {node: i for i, node in enumerate(nodes)}
        self._memory = _Memory(nodes)
        self._last_read: dict[Node, int] = {}  # by region, the place of the last node in the part that reads it

    def need(self, values: Iterable[Any]) -> None:
        """Let nodes stay, with all that their values come from."""
        for node in self._missing(values):
            self.kept.add(node)
            for read in (node, *node.all_input_nodes):
                region = self._memory.region(read)
                self._last_read[region] = max(self._last_read.get(region, 0), self._places[node])

    def _missing(self, values: Iterable[Any]) -> set[Node]:
        """Of some nodes and all that they come from those that the part lacks."""
        found: set[Node] = set()
        left = [value for value in values if isinstance(value, Node)]
        while left:
            node = left.pop()
            if node not in found and node not in self.kept:
                found.add(node)
                left += node.all_input_nodes
        return found

    def complete(self, found_updates: dict[int, tuple[Any, Node | None]]) -> None:
        """Add the writes to what the part reads, before it is read; then what changes memory from outside and can do so
        with the inputs that are there, and checks of values that are there."""
        before = -1
        while len(self.kept) != before:
            before = len(self.kept)
            self._add_writes()
            for value, updated in found_updates.values():
                if updated in self.kept and self._is_computed(value):
                    self.need([value])
        for node in self._memory.checks:
            if node.all_input_nodes and self.kept.issuperset(node.all_input_nodes):
                self.kept.add(node)

    def _add_writes(self) -> None:
        for node, regions in self._memory.writes.items():
            if node in self.kept:
                continue
            is_read_later = any(self._places[node] < self._last_read.get(region, -1) for region in regions)
            if is_read_later or (self._memory.outside.get(node) in self.kept and self._is_computed(node)):
                self.need([node])

    def _is_computed(self, value: Any) -> bool:
        """Whether a value needs no input that the part has not; of weights it may need more."""
        return self._user_inputs.isdisjoint(self._missing([value]))


class _Memory:
    """Which nodes of a graph may share memory, and which write to it. Inputs share none with each other.

    Attributes:
        writes: node -> the regions it may write to.
        checks: nodes that only raise an error, or tell the range of a size.
        outside: node -> the input or attribute that it writes to for sure.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.checks: list[Node] = []
        self._regions: dict[Node, Node] = {}
        written: dict[Node, list[Node]] = {}
        for node in nodes:
            if node.op in _CALLS:
                shared = self._read_call(node, written)
                for other in shared:
                    self._regions[self.region(other)] = self.region(node)
        self.writes = {node: {self.region(each) for each in operands} for node, operands in written.items()}
        bases = ((node, _base(node)) for node in written)
        self.outside = {node: base for node, base in bases if base.op in _OUTSIDE}

    def region(self, node: Node) -> Node:
        """The node that stands for the region of a node."""
        while (above := self._regions.get(node, node)) is not node:
            self._regions[node] = self._regions.get(above, above)
            node = above
        return node

    def _read_call(self, node: Node, written: dict[Node, list[Node]]) -> list[Node]:
        """Note what a call does; gives the operands that its value may share memory with."""
        facts = memory_facts(None, node.op, node.target)
        if node.is_impure(False):
            if facts & CALM:
                self.checks.append(node)
                return []
            written[node] = _operands_written(node, facts)
            return written[node]
        if facts & FRESH:
            return []
        if facts & VIEW:
            return [value for value in node.args[:1] if isinstance(value, Node)]
        return node.all_input_nodes


def _operands_written(node: Node, facts: int) -> list[Node]:
    """The operands that a call may write to: all, but where it is known which."""
    positions = facts >> POSITION_SHIFT
    operands = [value for i, value in enumerate(node.args) if positions >> i & 1]
    known = facts & COPIES and not node.kwargs and operands and all(isinstance(value, Node) for value in operands)
    return operands if known else node.all_input_nodes


def _base(node: Node) -> Node:
    """The node whose memory a node sees or writes to for sure."""
    while memory_facts(None, node.op, node.target) & (VIEW | COPIES) and node.args and isinstance(node.args[0], Node):
        node = node.args[0]
    return node
