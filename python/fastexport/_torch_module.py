"""Graphs of programs that came from torch, as torch's modules again.

What a graph names and is no subgraph (weights of subgraphs, modules, scripted objects) is shared with the module that
it came from; values that an edit has set as they are without torch become torch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from fastexport import _torch, _torch_export
from fastexport._symbols import _Symbolic
from fastexport._tensor_meta import TensorMeta
from fastexport._torch_reader import reader_for

if TYPE_CHECKING:
    from fastexport._graph import Graph

__all__ = ["check_symbols", "convert_values", "module_of"]


def module_of(graph: Graph, source: torch.fx.GraphModule, *, is_top: bool = False) -> torch.fx.GraphModule:
    """A graph as torch's, in a module like another one; what is no subgraph is shared with that."""
    built = _torch.to_fx(graph)
    members: dict[str, Any] = {}
    for node in [*built.find_nodes(op="get_attr"), *built.find_nodes(op="call_module")]:
        if node.target not in members:
            members[node.target] = _member(graph, source, node.target)
    module = _torch_export.create_module(
        built, members, source.meta, name="GraphModule" if is_top else type(source).__name__
    )
    convert_values(built)
    module.training = source.training
    if not is_top:
        _torch._carry_over(source, module)
    return module


def _member(graph: Graph, source: Any, path: str) -> Any:
    found = source
    for part in path.split("."):
        found = getattr(found, part)
    subgraph = (graph.subgraphs or {}).get(path)
    return found if subgraph is None else module_of(subgraph, found)


def convert_values(graph: torch.fx.Graph) -> None:
    """Values that an edit has set as they are without torch become torch's."""
    from fastexport._torch_program import OUR_VALUES, torch_value

    reader = None
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, OUR_VALUES) or (
            type(value) in (tuple, list) and any(isinstance(item, OUR_VALUES) for item in value)
        ):
            reader = reader or reader_for(graph)
            for item in value if isinstance(value, tuple | list) else (value,):
                check_symbols(item)
            node.meta["val"] = torch_value(reader, value)


def check_symbols(value: Any) -> None:
    """See that expressions are some, as torch would run their texts.

    Raises:
        ValueError: one is none.
    """
    if isinstance(value, TensorMeta):
        for size in (*value.shape, *value.stride, value.storage_offset):
            check_symbols(size)
    elif isinstance(value, _Symbolic):
        value.expr  # noqa: B018
