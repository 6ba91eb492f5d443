"""Copies of arguments that torch's function can work on while ours works on the arguments themselves.

A copied graph equals its original in all that can be seen, also where ``copy.deepcopy`` changes it: names, counters of
names, order of users and of find_nodes, insert point, owning module. Copying runs no code of the user's. Hooks that a
module has for the edits of its graph are copied too, since they may do a part of the work: they fire for both.

Copied are graphs, their nodes, modules, exported programs, the containers that hold these, the annotations of
quantization, and the first argument whatever it is (its attributes by these rules). Everything else is shared, tensors
above all.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque
from dataclasses import fields, is_dataclass
from typing import Any

import torch
import torch.fx
from torch.fx.graph_module import _WrappedCall
from torch.fx.immutable_collections import immutable_dict, immutable_list

_DICTS = (dict, OrderedDict, defaultdict)
_FROZEN = (tuple, slice, frozenset, immutable_list, immutable_dict)
_NO_ATTRIBUTES = ("__dict__", "__weakref__", "__module__", "__doc__", "_wrapped_call")


def clone(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Copies]:
    """Copy the arguments of a call.

    Args:
        args, kwargs: the arguments.

    Returns:
        The copied arguments and the `Copies` they are made of.
    """
    copies = Copies()
    first = tuple(copies.first(arg) for arg in args[:1])
    rest = tuple(copies.value(arg) for arg in args[1:])
    return first + rest, {name: copies.value(arg) for name, arg in kwargs.items()}, copies


class Copies:
    """What was copied to what: each thing once, so that what the originals share the copies share."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, int, bool]] = {}

    def written_tensors(self) -> list[torch.Tensor]:
        """The shared tensors that were written to since they were met."""
        return [
            tensor
            for tensor, version, needs_grad in self._tensors.values()
            if tensor._version != version or tensor.requires_grad != needs_grad
        ]

    def first(self, value: Any) -> Any:
        """The copy of an argument whose attributes are copied even if it is of an unknown class."""
        made = self.value(value)
        if made is not value or not hasattr(value, "__dict__") or isinstance(value, (type, torch.Tensor)):
            return made
        return self._object(value)

    def value(self, value: Any) -> Any:
        """The copy of a value, or the value where it is shared."""
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        if isinstance(value, torch.fx.Node):
            self.value(value.graph)
            return self._made[id(value)][1] if id(value) in self._made else self._erased(value)
        if isinstance(value, torch.fx.Graph):
            return self._graph(value)
        if isinstance(value, torch.nn.Module) and not isinstance(value, torch.jit.ScriptModule):
            return self._module(value)
        if isinstance(value, torch.export.ExportedProgram):
            return self._object(value)
        if isinstance(value, torch.Tensor):
            if not value.is_inference():
                self._tensors.setdefault(id(value), (value, value._version, value.requires_grad))
            return value
        return self._container(value)

    def _object(self, value: Any) -> Any:
        made = self._keep(value, object.__new__(type(value)))
        made.__dict__.update((name, self.value(item)) for name, item in value.__dict__.items())
        return made

    def _keep(self, value: Any, made: Any) -> Any:
        self._made[id(value)] = value, made  # holds the value, so that its id is not used again
        return made

    # ---- containers

    def _container(self, value: Any) -> Any:
        kind = type(value)
        if kind in _DICTS:
            made = self._keep(value, copy.copy(value))
            made.clear()
            made.update((self.value(key), self.value(item)) for key, item in value.items())
            return made
        if kind in _FROZEN or (isinstance(value, tuple) and hasattr(kind, "_make")):
            return self._frozen(value)
        if kind in (list, set, deque):
            made = self._keep(value, copy.copy(value))
            made.clear()
            (made.update if kind is set else made.extend)(self.value(item) for item in value)
            return made
        if is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        return value

    def _frozen(self, value: Any) -> Any:
        """A container that nobody changes: a copy only where it holds something that is copied."""
        kind = type(value)
        if kind is slice:
            parts: Any = (value.start, value.stop, value.step)
        else:
            parts = value.items() if kind is immutable_dict else value
        copied = [self.value(part) for part in parts]
        if all(old is new for old, new in zip(parts, copied, strict=True)):
            return value
        made = slice(*copied) if kind is slice else kind(copied) if kind in _FROZEN else kind._make(copied)
        return self._keep(value, made)

    def _dataclass(self, value: Any) -> Any:
        """A copy where a field holds something that is copied, as quantization's annotations do."""
        parts = {field.name: getattr(value, field.name) for field in fields(value) if hasattr(value, field.name)}
        copied = {name: self.value(part) for name, part in parts.items()}
        if all(copied[name] is part for name, part in parts.items()):
            return value
        made = self._keep(value, copy.copy(value))
        for name, part in copied.items():
            object.__setattr__(made, name, part)
        return made

    # ---- graphs

    def _graph(self, graph: torch.fx.Graph) -> torch.fx.Graph:
        made = self._keep(graph, object.__new__(type(graph)))
        torch.fx.Graph.__init__(made, None, graph._tracer_cls, graph._tracer_extras)
        self._keep(graph._root, made._root)
        nodes = list(graph.nodes)
        for node in nodes:
            self._keep(node, self._bare(node, made))
        for node in nodes:
            self._fill(node, self._made[id(node)][1])
        for node in nodes:
            self._reorder(self._made[id(node)][1].users, node.users)
            made._root.prepend(self._made[id(node)][1])
        self._tables(graph, made)
        made._insert = getattr(self.value(graph._insert.__self__), graph._insert.__name__)
        for name, item in vars(graph).items():
            if name not in vars(made):
                vars(made)[name] = self.value(item)
        made._codegen, made._co_fields = copy.copy(graph._codegen), dict(graph._co_fields)
        made._len = graph._len
        made._owning_module = self.value(graph._owning_module)
        return made

    def _bare(self, node: torch.fx.Node, graph: torch.fx.Graph) -> torch.fx.Node:
        """A node of the same kind, name and target without arguments, not linked to others yet."""
        target = node.target if callable(node.target) or node.op != "call_function" else len
        made = type(node)(graph, node.name, node.op, target, (), {}, node.type)
        object.__setattr__(made, "target", node.target)
        object.__setattr__(made, "_repr_fn", node._repr_fn)
        return made

    def _fill(self, node: torch.fx.Node, made: torch.fx.Node) -> None:
        made._update_args_kwargs(self._arguments(node.args), self._arguments(node.kwargs))
        self._reorder(made._input_nodes, node._input_nodes)
        object.__setattr__(made, "meta", self.value(node.meta))
        vars(made).update((name, self.value(item)) for name, item in vars(node).items())

    def _arguments(self, args: Any) -> Any:
        return torch.fx.node.map_arg(args, self.value)

    def _reorder(self, made: dict[Any, None], original: dict[Any, None]) -> None:
        made.clear()
        made.update((self.value(node), None) for node in original)

    def _erased(self, node: torch.fx.Node) -> torch.fx.Node:
        made = self._keep(node, self._bare(node, self.value(node.graph)))
        self._fill(node, made)
        made._erased = node._erased
        return made

    def _tables(self, graph: torch.fx.Graph, made: torch.fx.Graph) -> None:
        for key, nodes in graph._find_nodes_lookup_table.table.items():
            made._find_nodes_lookup_table.table[key] = {self.value(node): None for node in nodes}
        space, copied = graph._graph_namespace, made._graph_namespace
        copied._used_names = set(space._used_names)
        copied._base_count = dict(space._base_count)
        copied._obj_to_name = {self._known(thing): name for thing, name in space._obj_to_name.items()}

    def _known(self, thing: Any) -> Any:
        known = self._made.get(id(thing))
        return thing if known is None else known[1]

    # ---- modules

    def _module(self, module: torch.nn.Module) -> torch.nn.Module:
        kind = type(module)
        if isinstance(module, torch.fx.GraphModule):
            made = self._keep(module, torch.fx.GraphModule.__new__(kind))
            self._class(kind, type(made))
        else:
            made = self._keep(module, object.__new__(kind))
        for name, item in vars(module).items():
            vars(made)[name] = self.value(item)
        return made

    def _class(self, kind: type, made: type) -> None:
        """Give the class that GraphModule made for a copy what the class of the original holds of its own."""
        if kind in made.__mro__:
            return
        made.__name__ = kind.__name__
        for name, item in vars(kind).items():
            if name not in _NO_ATTRIBUTES:
                setattr(made, name, item)
        call = vars(kind).get("_wrapped_call")
        if call is not None:
            made._wrapped_call = _WrappedCall(made, call.cls_call)  # type: ignore[attr-defined]
