"""Dead code, lint and new nodes of torch.fx graphs.

The work is done by the C functions on live graphs, under one rule: they stand in for torch's loop only where every step
of that loop would be torch's own. A graph class with methods of its own, a patched method, a hook or a predicate is
stepped aside for; and whenever lint finds anything, torch's lint runs, so that the same exception comes from it.
"""

from __future__ import annotations

import logging
import warnings
from types import FunctionType
from typing import Any

import torch
import torch.fx
from torch._library import utils as library_utils
from torch.fx import graph as fx_graph
from torch.fx import node as fx_node
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.utils import _pytree as pytree

from fastexport import _core, _torch
from fastexport.acceleration._clone import Copies
from fastexport.acceleration._replacement import Replacement, behind, inner
from fastexport.acceleration._verify import outcome, require_same, verify_method

# ---- whether methods are torch's


def _is_from(module: Any, held: Any) -> bool:
    function = inner(held)
    return type(function) is FunctionType and function.__code__.co_filename == module.__file__


class Methods:
    """Methods of a class of torch, as they were at the import of this module, to compare others with."""

    def __init__(self, module: Any, kind: type, *names: str) -> None:
        found = ((name, vars(kind).get(name)) for name in names)
        self._stock = {name: held if _is_from(module, held) else None for name, held in found}

    def are_those_of(self, kind: type, instance: Any = None) -> bool:
        """Whether a class has torch's methods, or ours in their place, and an instance none of its own."""
        for name, stock in self._stock.items():
            held = getattr(kind, name, None)
            if held is not stock and (stock is None or not _is_ours(held, stock)):
                return False
        return instance is None or self._stock.keys().isdisjoint(vars(instance))


def _is_ours(held: Any, stock: Any) -> bool:
    found = behind(held)
    return found is not None and found[1] is stock


NODE = Methods(fx_node, torch.fx.Node, "__init__", "__setattr__", "prepend")
NAMESPACE = Methods(fx_graph, fx_graph._Namespace, "create_name", "associate_name_with_obj")
_LINTED = Methods(fx_graph, torch.fx.Graph, "nodes", "owning_module")
_SWEPT = Methods(fx_graph, torch.fx.Graph, "lint", "erase_node", "nodes", "owning_module", "find_nodes")
_PURITY = Methods(fx_node, torch.fx.Node, "is_impure")
_LIBRARY_IS_IMPURE = library_utils.is_impure

# ---- lint


def lint(stock: Any, self: Any) -> None:
    """Graph.lint in one walk in C; torch's own runs when anything is found, and raises"""
    if _torch._FAST and _LINTED.are_those_of(type(self), self):
        try:
            if not _core.fx_lint(self, False, True):
                return None
        except Exception:  # a graph that can't be read that way; torch's lint says what it is
            pass
    return stock(self)


# ---- dead code


def _is_usual(graph: Any) -> bool:
    """Whether each step of torch's dead-code elimination would be torch's own, and nobody listens."""
    return (
        _torch._FAST
        and _SWEPT.are_those_of(type(graph), graph)
        and _PURITY.are_those_of(torch.fx.Node)
        and library_utils.is_impure is _LIBRARY_IS_IMPURE
        and not fx_graph.log.isEnabledFor(logging.INFO)
    )


def _sweep(graph: Any) -> bool | None:
    """Remove dead nodes of one graph: whether there were any, or None when nothing was done."""
    try:
        outcome = _core.fx_eliminate_dead_code(graph, True, _torch._impure_random(), False)
    except Exception:
        return None
    if outcome is None or outcome[2] is not None:
        return None
    return bool(outcome[0])


def eliminate_dead_code(stock: Any, self: Any, is_impure_node: Any = None) -> bool:
    """Graph.eliminate_dead_code with its lint in C: each kind of call is asked for its effects once a run"""
    changed = _sweep(self) if is_impure_node is None and _is_usual(self) else None
    if changed is None:
        return stock(self, is_impure_node)
    owner = self.owning_module
    if owner is None:
        return changed
    attributes = self.find_nodes(op="get_attr", sort=False)
    if attributes or "named_children" in vars(owner) or type(owner).named_children is not _NAMED_CHILDREN:
        names = {node.target for node in attributes}
        for name, child in owner.named_children():
            if name in names and isinstance(child, torch.fx.GraphModule):
                changed |= child.graph.eliminate_dead_code()
                child.recompile()
    return changed


_NAMED_CHILDREN = torch.nn.Module.named_children

# ---- new nodes

_CALLS = frozenset(("call_function", "call_method", "call_module"))
# Types that pytree doesn't look into and that hold no symbol.
_LEAVES = frozenset(
    (torch.fx.Node, int, float, bool, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device)
    + (torch.layout, torch.memory_format, torch._ops.OpOverload, slice, range)
)
_SEQUENCES = frozenset((tuple, list, immutable_list))
_MAPPINGS = frozenset((dict, immutable_dict))


def _may_hold_symbol(values: Any) -> bool:
    """Whether values have to be looked through by pytree: one is neither a known leaf nor a plain container."""
    if _LEAVES.issuperset(map(type, values)):
        return False
    for value in values:
        kind = type(value)
        if kind in _LEAVES:
            continue
        if kind in _MAPPINGS:
            value = value.values()
        elif kind not in _SEQUENCES:
            return True
        if _may_hold_symbol(value):
            return True
    return False


def _warn_of_symbol(op: str, target: Any, args: Any, kwargs: Any) -> None:
    for value in pytree.tree_iter((args, kwargs)):
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            warnings.warn(
                f"Raw {type(value).__name__} value ({value}) passed as argument to "
                f"Graph.create_node(op='{op}', target={target}). "
                "Use create_*_node() helpers for tensor metadata queries "
                "or materialize_symints() for general symbolic expressions.",
                stacklevel=4,  # past create_node and what asks whether it is on, to where create_node is called
            )
            return


_STEM = Methods(fx_graph, torch.fx.Graph, "_target_to_str")
_SNAKE_CASE = fx_graph._snake_case
_STEMS_KEPT = 10_000
_stems: dict[str, str] = {}


def _candidate(graph: Any, target: Any) -> str:
    """What the name of a node begins with: the target's name in lower case, found once for each name."""
    name = getattr(target, "__name__", None) if callable(target) else None
    if type(name) is not str or not _STEM.are_those_of(type(graph)) or fx_graph._snake_case is not _SNAKE_CASE:
        return graph._target_to_str(target)
    stem = _stems.get(name)
    if stem is None:
        if len(_stems) >= _STEMS_KEPT:
            _stems.clear()
        stem = _stems[name] = graph._target_to_str(target)
    return stem


def create_node(
    stock: Any,
    self: Any,
    op: str,
    target: Any,
    args: Any = None,
    kwargs: Any = None,
    name: str | None = None,
    type_expr: Any = None,
) -> Any:
    """Graph.create_node, which looks through arguments with pytree only when they are out of the ordinary"""
    if not args:
        args = ()
    elif not isinstance(args, tuple):
        raise AssertionError(f"args must be a tuple, got {type(args)}")
    if not kwargs:
        kwargs = immutable_dict()
    elif not isinstance(kwargs, dict):
        raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
    if op in _CALLS and _may_hold_symbol((args, kwargs)):
        _warn_of_symbol(op, target, args, kwargs)
    namespace = self._graph_namespace
    name = namespace.create_name(_candidate(self, target) if name is None else name, None)
    node = fx_graph.Node(self, name, op, target, args, kwargs, type_expr)
    owner = self.owning_module
    if owner is not None:
        for hook in getattr(owner, "_create_node_hooks", None) or ():
            hook(node)
    namespace.associate_name_with_obj(name, node)
    self._insert(node)
    self._find_nodes_lookup_table.insert(node)
    self._len += 1
    return node


def _verify_node(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch's makes its node in a copy of the graph, of arguments that name the nodes of the copy."""
    graph, *rest = args
    copies = Copies()
    twin = copies.value(graph)

    def mapped(value: Any) -> Any:
        return fx_node.map_arg(value, copies.value) if isinstance(value, (tuple, dict)) else value

    expected = outcome(stock, (twin, *map(mapped, rest)), {name: mapped(value) for name, value in kwargs.items()})
    found = outcome(ours, args, kwargs)
    require_same(expected, found, "create_node", twin, graph)
    return found.value()


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement("lint", ("torch.fx.graph:Graph.lint",), lint, ("939af6b31c2c854f",)),
    Replacement(
        "eliminate_dead_code",
        ("torch.fx.graph:Graph.eliminate_dead_code",),
        eliminate_dead_code,
        ("e3cde4c528c19a08",),
        verify=verify_method,
    ),
    Replacement(
        "create_node", ("torch.fx.graph:Graph.create_node",), create_node, ("7e8353cfe5d2ae96",), verify=_verify_node
    ),
)
