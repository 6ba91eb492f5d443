"""Whether two results are the same in everything that can be seen: for ``verify=True``.

Two nodes of different graphs are the same when they stand at the same place under the same name; so a graph is compared
with its copy, and what refers to nodes with what refers to their copies. Nothing here runs operators of torch in the
modes that are active, adds guards to symbolic sizes or runs code of the user's, but for ``==`` of objects whose class
defines it.
"""

from __future__ import annotations

import enum
import functools
import inspect
import struct
import types
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.traceback import NodeSource
from torch.utils._python_dispatch import _disable_current_modes

_ATOMS = (bool, int, str, bytes, bytearray, type(None), type(...), type(NotImplemented), range)
_TORCH_ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)
# A custom operator may be several objects, which fill in what they know of themselves as they are used.
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
# What a whole trace shares; two runs in one of them leave it in different states, and nobody reads it as a result.
_SHARED = (FakeTensorMode, ShapeEnv)
# Set for a graph or a module by hand in `_graph` and `_graph_module`.
_GRAPH_PARTS = {
    "_root",
    "_used_names",
    "_insert",
    "_graph_namespace",
    "_owning_module",
    "_find_nodes_lookup_table",
}
_MODULE_PARTS = {"_graph", "_code", "_lineno_map", "_prologue_start"}
_CODE_PARTS = ("co_code", "co_names", "co_varnames", "co_argcount", "co_kwonlyargcount", "co_flags", "co_freevars")


def find_difference(expected: Any, found: Any, where: str = "result") -> str | None:
    """Where two results differ, in words; None where they don't.

    Args:
        expected: what torch gave.
        found: what fastexport gave.
        where: what they are called in the words.

    Example:
        >>> find_difference([1, {"a": 2}], [1, {"a": 3}])
        "result[1]['a']: torch has 2, fastexport 3"
        >>> find_difference((1, 2), (1, 2))
    """
    # In this order: a mode that records a trace would record how the others are set.
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        try:
            _Comparison().any(expected, found, where)
        except _Differs as difference:
            return str(difference)
    return None


class _Differs(Exception):
    """What differs, and where."""


def _differ(where: str, expected: Any, found: Any) -> None:
    raise _Differs(f"{where}: torch has {_short(expected)}, fastexport {_short(found)}")


def _same(expected: Any, found: Any, where: str) -> None:
    if expected != found:
        _differ(where, expected, found)


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # a repr of the user's
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= 200 else text[:190] + " ... " + text[-5:]


class _Comparison:
    """One comparison: it remembers the pairs it has seen, so that what is shared or cyclic is looked at once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[Any, Any]] = {}  # holds the pairs, so that no id is used again
        self._places: dict[int, tuple[Any, dict[Any, int]]] = {}
        self._graph_ids: dict[int, int] = {}  # by the notes of where nodes come from: of torch's result -> of ours

    def any(self, a: Any, b: Any, where: str) -> None:
        """Raise _Differs unless two values are the same."""
        if a is b:
            return
        if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
            self._once(self._module, a, b, where)
            return
        if type(a) is not type(b):
            _differ(where, a, b) if _short(a) != _short(b) else _differ(f"{where}, its type", type(a), type(b))
        if isinstance(a, torch.fx.Node):
            self._reference(a, b, where)
        elif isinstance(a, (float, complex)):
            self._number(a, b, where)
        elif isinstance(a, enum.Enum) or type(a) in _TORCH_ATOMS:
            _same(a, b, where)
        elif isinstance(a, _ATOMS):
            _same(a, b, where)
            self._state(a, b, where)
        elif isinstance(a, _OPERATORS):
            _same(str(a), str(b), where)
        elif isinstance(a, _SYMBOLS):
            _same(str(a.node.expr), str(b.node.expr), where)
        elif isinstance(a, torch.Tensor):
            self._once(self._tensor, a, b, where)
        elif isinstance(a, torch.fx.Graph):
            self._once(self._graph, a, b, where)
        elif isinstance(a, _SHARED):
            return
        else:
            self._once(self._composite, a, b, where)

    def _once(self, compare: Any, a: Any, b: Any, where: str) -> None:
        if (id(a), id(b)) not in self._seen:
            self._seen[id(a), id(b)] = (a, b)
            compare(a, b, where)

    # ---- plain values and containers

    def _number(self, a: Any, b: Any, where: str) -> None:
        parts_a, parts_b = ((x.real, x.imag) if isinstance(x, complex) else (x,) for x in (a, b))
        for x, y in zip(parts_a, parts_b, strict=True):
            if struct.pack("d", x) != struct.pack("d", y) and not (x != x and y != y):
                _differ(where, a, b)

    def _composite(self, a: Any, b: Any, where: str) -> None:
        if isinstance(a, Mapping) and not is_dataclass(a):
            self._mapping(a, b, where)
        elif isinstance(a, (list, tuple, deque)):
            self._sequence(a, b, where)
        elif isinstance(a, Set):
            self._set(a, b, where)
        elif isinstance(a, slice):
            self._sequence((a.start, a.stop, a.step), (b.start, b.stop, b.step), where)
        elif isinstance(a, BaseException):
            self.any(a.args, b.args, where + ".args")
            self._state(a, b, where)
        elif isinstance(a, type):
            self._class(a, b, where)
        elif isinstance(a, (types.FunctionType, types.MethodType, functools.partial, types.CodeType, types.CellType)):
            self._callable(a, b, where)
        elif isinstance(a, weakref.ReferenceType):
            self.any(a(), b(), where + "()")
        else:
            self._object(a, b, where)

    def _sequence(self, a: Sequence[Any], b: Sequence[Any], where: str) -> None:
        for index, (x, y) in enumerate(zip(a, b, strict=False)):
            self.any(x, y, f"{where}[{index}]")
        _same(len(a), len(b), f"{where}, its length")
        self._state(a, b, where)

    def _mapping(self, a: Mapping[Any, Any], b: Mapping[Any, Any], where: str) -> None:
        """The same keys in the same order, and the same values."""
        keys_a, keys_b = list(a), list(b)
        for x, y in zip(keys_a, keys_b, strict=False):
            self.any(x, y, f"{where}, a key in its place")
            self.any(a[x], b[y], f"{where}[{_short(x)}]")
        if len(keys_a) != len(keys_b):
            _differ(f"{where}, its keys", keys_a[len(keys_b) :], keys_b[len(keys_a) :])
        self._state(a, b, where)

    def _set(self, a: Set[Any], b: Set[Any], where: str) -> None:
        if a == b:
            return
        rest = list(b)
        for x in a:
            match = next((i for i, y in enumerate(rest) if self._agree(x, y)), None)
            if match is None:
                _differ(where, a, b)
            else:
                del rest[match]
        if rest:
            _differ(where, a, b)

    def _agree(self, a: Any, b: Any) -> bool:
        try:
            _Comparison().any(a, b, "")
        except _Differs:
            return False
        return True

    # ---- objects

    def _object(self, a: Any, b: Any, where: str) -> None:
        if type(a).__module__ == "numpy" and hasattr(a, "tobytes"):
            self.any((a.dtype.str, a.shape, a.tobytes()), (b.dtype.str, b.shape, b.tobytes()), where)
            return
        if is_dataclass(a):
            self._state(a, b, where)
            return
        defined = getattr(type(a), "__eq__", None) is not object.__eq__
        if defined:
            try:
                if bool(a == b):
                    return
            except Exception:
                defined = False
        if not self._state(a, b, where) and defined:
            _differ(where, a, b)

    def _state(self, a: Any, b: Any, where: str) -> bool:
        """What an object holds in its attributes; False where it can hold nothing."""
        state_a, state_b = _attributes(a), _attributes(b)
        if isinstance(a, NodeSource.NodeInfo):
            state_b["graph_id"] = state_a["graph_id"] = self._graph_id(a.graph_id, b.graph_id, where)
        # What a NodeSource keeps of its own text is made from the rest, once somebody looked at it.
        self._attributes_of(state_a, state_b, where, ("_dict", "_hash") if isinstance(a, NodeSource) else ())
        return bool(state_a) or hasattr(a, "__dict__")

    def _graph_id(self, a: int, b: int, where: str) -> int:
        """The ids of graphs differ between copies, but not which are the same."""
        _same(self._graph_ids.setdefault(a, b), b, f"{where}.graph_id")
        return b

    def _attributes_of(self, a: dict[str, Any], b: dict[str, Any], where: str, leave: Iterable[str] = ()) -> None:
        names_a, names_b = a.keys() - set(leave), b.keys() - set(leave)
        if names_a != names_b:
            _differ(f"{where}, its attributes", sorted(names_a - names_b), sorted(names_b - names_a))
        for name in a:
            if name in names_a:
                self.any(a[name], b[name], f"{where}.{name}")

    def _class(self, a: type, b: type, where: str) -> None:
        """Classes are the same when they are one; those that GraphModule makes for its instances, by what they are."""
        own = [issubclass(kind, torch.fx.GraphModule) and kind.__name__ == a.__name__ for kind in (a, b)]
        if not all(own) or a.__mro__[1:] != b.__mro__[1:] or a is torch.fx.GraphModule:
            _differ(where, a, b)

    def _callable(self, a: Any, b: Any, where: str) -> None:
        if isinstance(a, types.CodeType):
            for part in _CODE_PARTS:
                _same(getattr(a, part), getattr(b, part), f"{where}.{part}")
            self.any(a.co_consts, b.co_consts, f"{where}.co_consts")
        elif isinstance(a, types.MethodType):
            self.any((a.__func__, a.__self__), (b.__func__, b.__self__), where)
        elif isinstance(a, functools.partial):
            self.any((a.func, a.args, a.keywords), (b.func, b.args, b.keywords), where)
        elif isinstance(a, types.CellType):
            contents = [[cell.cell_contents] if cell != types.CellType() else [] for cell in (a, b)]
            self.any(contents[0], contents[1], where)
        else:
            for part in ("__code__", "__closure__", "__defaults__", "__kwdefaults__"):
                self.any(getattr(a, part), getattr(b, part), f"{where}.{part}")

    # ---- tensors

    def _tensor(self, a: torch.Tensor, b: torch.Tensor, where: str) -> None:
        for part in ("dtype", "device", "layout", "requires_grad", "is_leaf"):
            _same(getattr(a, part), getattr(b, part), f"{where}.{part}")
        self.any(tuple(a.shape), tuple(b.shape), f"{where}.shape")
        if a.layout is torch.strided:
            self.any(a.stride(), b.stride(), f"{where}.stride()")
            self.any(a.storage_offset(), b.storage_offset(), f"{where}.storage_offset()")
        if a.is_leaf:
            self.any(a.grad, b.grad, f"{where}.grad")
        if isinstance(a, FakeTensor) or torch._is_functional_tensor(a) or a.device.type == "meta":
            return
        if hasattr(a, "__tensor_flatten__"):
            inner = [tensor.__tensor_flatten__() for tensor in (a, b)]
            self.any(inner[0], inner[1], f"{where}, its parts")
            for name in inner[0][0]:
                self.any(getattr(a, name), getattr(b, name), f"{where}.{name}")
        elif not _same_bits(a, b):
            _differ(f"{where}, its values", a, b)

    # ---- graphs

    def _place(self, node: torch.fx.Node) -> int | None:
        """Where a node stands in its graph; None for one that is erased."""
        graph = node.graph
        if id(graph) not in self._places:
            self._places[id(graph)] = graph, {each: index for index, each in enumerate(graph.nodes)}
        return self._places[id(graph)][1].get(node)

    def _reference(self, a: torch.fx.Node, b: torch.fx.Node, where: str) -> None:
        place_a, place_b = self._place(a), self._place(b)
        if (place_a, a.name, a.op) != (place_b, b.name, b.op) or (a.graph is b.graph and place_a is not None):
            _differ(where, f"%{a.name} (node {place_a})", f"%{b.name} (node {place_b})")

    def _references(self, a: Iterable[Any], b: Iterable[Any], where: str) -> None:
        list_a, list_b = list(a), list(b)
        if len(list_a) != len(list_b) or [x.name for x in list_a] != [x.name for x in list_b]:
            _differ(where, list_a, list_b)
        for x, y in zip(list_a, list_b, strict=True):
            self._reference(x, y, where)

    def _graph(self, a: torch.fx.Graph, b: torch.fx.Graph, where: str) -> None:
        nodes_a, nodes_b = list(a.nodes), list(b.nodes)
        self._references(nodes_a, nodes_b, f"{where}.nodes")
        for x, y in zip(nodes_a, nodes_b, strict=True):
            self._node(x, y, f"{where}: node {x.name}")
        _same(a._len, b._len, f"{where}._len")
        self._namespaces(a, b, nodes_a, nodes_b, where)
        self._listings(a, b, where)
        inserts = [(graph._insert.__func__, graph._insert.__self__.name) for graph in (a, b)]
        _same(inserts[0], inserts[1], f"{where}, its insert point")
        _same(a.owning_module is None, b.owning_module is None, f"{where}.owning_module is None")
        self._attributes_of(vars(a), vars(b), where, _GRAPH_PARTS)

    def _node(self, a: torch.fx.Node, b: torch.fx.Node, where: str) -> None:
        for part in ("op", "target", "type", "args", "kwargs", "meta"):
            self.any(getattr(a, part), getattr(b, part), f"{where}, its {part}")
        self._references(a.users, b.users, f"{where}, its users")
        self._references(a._input_nodes, b._input_nodes, f"{where}, its input nodes")
        self.any(vars(a), vars(b), f"{where}, its attributes")

    def _namespaces(self, a: torch.fx.Graph, b: torch.fx.Graph, nodes_a: Any, nodes_b: Any, where: str) -> None:
        space_a, space_b = a._graph_namespace, b._graph_namespace
        if space_a._used_names != space_b._used_names:
            only = space_a._used_names - space_b._used_names, space_b._used_names - space_a._used_names
            _differ(f"{where}, names taken", *map(sorted, only))
        _same(space_a._base_count, space_b._base_count, f"{where}, counters of names")
        for x, y in zip(nodes_a, nodes_b, strict=True):
            known = space_a._obj_to_name.get(x), space_b._obj_to_name.get(y)
            _same(known[0], known[1], f"{where}, the name its namespace has for node {x.name}")

    def _listings(self, a: torch.fx.Graph, b: torch.fx.Graph, where: str) -> None:
        """What find_nodes gives, with its order."""
        table_a, table_b = (graph._find_nodes_lookup_table.table for graph in (a, b))
        for key in [*table_a, *(key for key in list(table_b) if key not in table_a)]:
            self._references(table_a.get(key, ()), table_b.get(key, ()), f"{where}.find_nodes of {key}")

    # ---- modules

    def _module(self, a: torch.nn.Module, b: torch.nn.Module, where: str) -> None:
        if isinstance(a, torch.fx.GraphModule) and isinstance(b, torch.fx.GraphModule):
            self._graph_module(a, b, where)
            return
        if type(a) is not type(b):
            _differ(f"{where}, its class", type(a), type(b))
        self._attributes_of(vars(a), vars(b), where)

    def _graph_module(self, a: torch.fx.GraphModule, b: torch.fx.GraphModule, where: str) -> None:
        if type(a) is not type(b):
            self._class(type(a), type(b), f"{where}, its class")
        self.any(a.graph, b.graph, f"{where}.graph")
        for part in ("code", "_lineno_map", "_prologue_start"):
            self.any(getattr(a, part, None), getattr(b, part, None), f"{where}.{part}")
        _same(_signature(a), _signature(b), f"{where}, its signature")
        for part in ("forward", "__call__"):
            own = vars(type(a)).get(part), vars(type(b)).get(part)
            self.any(own[0], own[1], f"{where}, the {part} of its class")
        self._attributes_of(vars(a), vars(b), where, _MODULE_PARTS)


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes in the __dict__ and the slots of an object; of a dataclass its fields first."""
    state: dict[str, Any] = {}
    if is_dataclass(value) and not isinstance(value, type):
        state.update((f.name, getattr(value, f.name)) for f in fields(value) if hasattr(value, f.name))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                name = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") else name
                if hasattr(value, name):
                    state[name] = getattr(value, name)
    state.update(getattr(value, "__dict__", None) or {})
    return state


def _signature(module: torch.fx.GraphModule) -> str | None:
    try:
        return str(inspect.signature(type(module).forward))
    except (TypeError, ValueError):
        return None


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of equal metadata hold the same bits."""
    if a.is_quantized:
        return str(a) == str(b) and _same_bits(a.int_repr(), b.int_repr())
    if a.layout is not torch.strided:
        return bool(torch.equal(a.to_dense(), b.to_dense()))
    dense = [x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for x in (a, b)]
    return bool(torch.equal(dense[0], dense[1]))
