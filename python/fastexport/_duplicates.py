"""Deep copies of graphs, modules and programs, made in C where that gives what copy.deepcopy would."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from fastexport._loaded import loaded

T = TypeVar("T")

_COPIES = ("graph_copy", "deepcopy_module")  # of acceleration.table()


def deepcopy(graph_or_module: T, memo: dict[int, Any] | None = None) -> T:
    """Copy a graph, a module or a program with all that is its own, as ``copy.deepcopy`` does.

    Of fastexport's own that is what ``copy.deepcopy`` gives anyway. A ``torch.fx.Graph`` or ``GraphModule`` is copied
    by the functions that `accelerate` has for them, for this one call and on this thread: the same result, faster.

    Args:
        graph_or_module: a fastexport Graph, GraphModule or ExportedProgram; a torch.fx.Graph or GraphModule, or
            whatever holds some.
        memo: as for ``copy.deepcopy``.

    Raises:
        Exception: what ``copy.deepcopy`` raises.

    Example:
        >>> import fastexport
        >>> g = fastexport.Graph()
        >>> out = g.output(g.placeholder("x"))
        >>> twin = fastexport.deepcopy(g)
        >>> twin == g, twin.node("x") is g.node("x")
        (True, False)
    """
    if loaded("torch") is None or type(graph_or_module).__module__.startswith("fastexport."):
        return copy.deepcopy(graph_or_module, memo)
    from fastexport.acceleration import accelerate

    with accelerate(only=_COPIES):
        return copy.deepcopy(graph_or_module, memo)
