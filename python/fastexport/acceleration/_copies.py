"""Copies of torch.fx graphs: the nodes are made and named in C, in one go.

A copy is torch's when it is made of the same parts by the same rules: names are given anew, meta is copied as deep as
copy.copy goes, users come in the order of the nodes. Where anything else would have a say in it, such as a hook, a
graph class with methods of its own or an argument that create_node warns of, torch's loop runs.
"""

from __future__ import annotations

import copy
import copyreg
import inspect
from collections import OrderedDict
from typing import Any

import torch
import torch.fx
from torch.fx import graph as fx_graph
from torch.fx import node as fx_node
from torch.fx.graph_module import _share_torchbind_and_process_group
from torch.utils import _pytree as pytree

from fastexport import _core, _torch
from fastexport.acceleration._clone import Copies
from fastexport.acceleration._graphs import NAMESPACE, NODE, Methods
from fastexport.acceleration._replacement import Replacement
from fastexport.acceleration._verify import outcome, require_same

_READ = Methods(fx_graph, torch.fx.Graph, "nodes")
_WRITTEN = Methods(fx_graph, torch.fx.Graph, "create_node", "node_copy", "owning_module")


def _can_copy(graph: Any, source: Any, val_map: Any) -> bool:
    """Whether each step of torch's loop would be torch's own."""
    return (
        _torch._FAST
        and graph is not source
        and type(val_map) is dict
        and _READ.are_those_of(type(source), source)
        and _WRITTEN.are_those_of(type(graph), graph)
        and NODE.are_those_of(torch.fx.Node)
        and type(graph._graph_namespace) is fx_graph._Namespace
        and NAMESPACE.are_those_of(fx_graph._Namespace)
        and getattr(graph._insert, "__func__", None) is torch.fx.Node.prepend
        and not getattr(graph.owning_module, "_create_node_hooks", None)
    )


def graph_copy(stock: Any, self: Any, g: Any, val_map: Any, return_output_node: bool = False) -> Any:
    """Graph.graph_copy in C, in bulk; deepcopy of a Graph or GraphModule goes through it"""
    done = None
    if _can_copy(self, g, val_map):
        try:
            done = _core.fx_copy(self, self._insert.__self__, g, val_map, pytree.SUPPORTED_NODES)
        except Exception:  # nothing was changed; torch's loop says what it is
            done = None
    if done is None:
        return stock(self, g, val_map, return_output_node)
    output = done[0]
    if output is None:
        return None
    value = fx_node.map_arg(output.args[0], lambda node: val_map[node])
    return (value, output) if return_output_node else value


# ---- modules below a GraphModule

# What copy.deepcopy asks of a class, and what says that only the attributes count.
_PROTOCOL = {
    "__deepcopy__": None,
    "__reduce__": object.__reduce__,
    "__reduce_ex__": object.__reduce_ex__,
    "__getstate__": torch.nn.Module.__getstate__,
    "__new__": object.__new__,
    "__getnewargs__": None,
    "__getnewargs_ex__": None,
    "__slots__": None,
}
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, torch.dtype))
_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))


def _is_plain_kind(kind: type) -> bool:
    """Whether copy.deepcopy would make an instance by copying its attributes, and nothing else."""
    return (
        kind not in copyreg.dispatch_table
        and getattr(kind, "__setstate__", None)
        is torch.nn.Module.__setstate__  # torch._dynamo puts another there; it is called
        and all(getattr(kind, name, None) is expected for name, expected in _PROTOCOL.items())
    )


class _ModuleCopies:
    """Copies of modules that hold plain values, tensors and such modules, entered into the memo of a deepcopy.

    copy.deepcopy finds them there. What refers to anything else, such as the module above, it copies itself.
    """

    def __init__(self, memo: dict[int, Any]) -> None:
        self._memo = memo
        self._alive = memo.setdefault(id(memo), [])  # where copy keeps what the memo names by id
        self._kinds: dict[type, bool] = {}
        self._simple: dict[int, bool] = {}

    def enter(self, module: Any) -> None:
        """Copy what can be copied of a module and the modules below it."""
        if self._is_simple(module):
            if id(module) not in self._memo:
                self._module(module)
        elif isinstance(module, torch.nn.Module) and type(vars(module).get("_modules")) is dict:
            for child in module._modules.values():
                self.enter(child)

    def enter_tables(self, module: Any) -> None:
        """Copy the dicts of plain values that a module holds, such as the line numbers of its nodes."""
        for value in vars(module).values():
            if type(value) is dict and value and id(value) not in self._memo:
                if _PLAIN.issuperset(map(type, value)) and _PLAIN.issuperset(map(type, value.values())):
                    self._keep(value, dict(value))

    def _is_simple(self, module: Any) -> bool:
        known = self._simple.get(id(module))
        if known is None:
            self._simple[id(module)] = False  # as long as it is not known, for one that is below itself
            known = self._simple[id(module)] = self._has_simple_parts(module)
        return known

    def _has_simple_parts(self, module: Any) -> bool:
        kind = type(module)
        if kind not in self._kinds:
            self._kinds[kind] = issubclass(kind, torch.nn.Module) and _is_plain_kind(kind)
        if not self._kinds[kind] or isinstance(module, torch.fx.GraphModule):
            return False
        return all(
            type(value) in _PLAIN or self._is_simple_value(value, name == "_modules")
            for name, value in vars(module).items()
        )

    def _is_simple_value(self, value: Any, modules: bool) -> bool:
        kind = type(value)
        if kind in _TENSORS:
            return kind is torch.nn.Parameter or not vars(value)
        if kind is OrderedDict:
            return not value and not vars(value)
        if kind is set:
            return not value
        if kind is tuple:
            return _PLAIN.issuperset(map(type, value))
        if kind is not dict:
            return False
        if modules:
            return all(type(name) is str and (child is None or self._is_simple(child)) for name, child in value.items())
        return all(
            type(name) is str and (type(item) in _PLAIN or self._is_simple_value(item, False))
            for name, item in value.items()
        )

    def _keep(self, value: Any, made: Any) -> Any:
        self._memo[id(value)] = made
        self._alive.append(value)
        return made

    def _module(self, module: Any) -> Any:
        made = self._keep(module, object.__new__(type(module)))
        parts = {}
        for name, value in vars(module).items():
            if name != "_compiled_call_impl":  # which __getstate__ leaves out
                parts[name] = value if type(value) in _PLAIN else self._value(value)
        made.__setstate__(parts)
        return made

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN or kind is tuple:
            return value
        known = self._memo.get(id(value))
        if known is not None:
            return known
        if kind in _TENSORS:
            return copy.deepcopy(value, self._memo)
        if kind is not dict:
            return self._module(value) if isinstance(value, torch.nn.Module) else self._keep(value, kind())
        made: dict[str, Any] = self._keep(value, {})
        for name, item in value.items():
            made[name] = self._value(item)
        return made


def deepcopy_module(stock: Any, self: Any, memo: Any) -> Any:
    """copy.deepcopy of a GraphModule: the plain modules below it are copied without asking each how to copy it"""
    if type(memo) is dict and not _share_torchbind_and_process_group.get() and type(self._modules) is dict:
        copies = _ModuleCopies(memo)
        for child in self._modules.values():
            copies.enter(child)
        copies.enter_tables(self)
    return stock.__wrapped__(self, memo)


def _verify_copy(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Into a copy of the graph, from the same source. Of a memo only the nodes are compared: the rest is unfinished."""
    asked = inspect.signature(torch.fx.Graph.graph_copy).bind(*args, **kwargs).arguments
    graph, val_map = asked["self"], asked["val_map"]
    if not isinstance(val_map, dict):
        return ours(*args, **kwargs)
    copies = Copies()
    twin = copies.value(graph)
    twins = copy.copy(val_map)
    twins.update((key, copies.value(value)) for key, value in val_map.items() if _is_node(key))
    expected = outcome(stock, (), {**asked, "self": twin, "val_map": twins})
    found = outcome(ours, args, kwargs)
    require_same(expected, found, "graph_copy", (twin, _names(twins)), (graph, _names(val_map)))
    return found.value()


def _is_node(value: Any) -> bool:
    return isinstance(value, torch.fx.Node)


def _names(val_map: dict[Any, Any]) -> list[tuple[str, str]]:
    return [(key.name, str(value)) for key, value in val_map.items() if _is_node(key)]


def _verify_deepcopy(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Each with a memo of its own; else what torch's has copied would be found there by ours.

    Below another module, of which the copy isn't finished, nothing is compared; it is in the end, with that one.
    """
    module, memo = (*args, *kwargs.values())
    if memo:
        return ours(module, memo)
    expected = outcome(stock, (module, dict(memo)), {})
    found = outcome(ours, (module, memo), {})
    require_same(expected, found, "deepcopy_module")
    return found.value()


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "graph_copy", ("torch.fx.graph:Graph.graph_copy",), graph_copy, ("ae19fbae63fb5c7a",), verify=_verify_copy
    ),
    Replacement(
        "deepcopy_module",
        ("torch.fx.graph_module:GraphModule.__deepcopy__",),
        deepcopy_module,
        ("895f13008e6b1972",),
        verify=_verify_deepcopy,
    ),
)
