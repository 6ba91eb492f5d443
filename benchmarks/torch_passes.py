"""torch's own passes as functions, and what a better algorithm in plain Python would give."""

from typing import Any

import torch
from torch._library.utils import is_impure
from torch.export.exported_program import _common_getitem_elimination_pass
from torch.export.graph_signature import ExportGraphSignature


def eliminate_dead_code(graph: torch.fx.Graph) -> object:
    return graph.eliminate_dead_code()


def lint(graph: torch.fx.Graph) -> None:
    graph.lint()


def eliminate_getitems(module: torch.fx.GraphModule) -> None:
    """torch.export's pass, which it runs whenever an ExportedProgram is made."""
    _common_getitem_elimination_pass(module, ExportGraphSignature([], []), [])


def chain(module: torch.fx.GraphModule) -> None:
    """The three passes one after the other."""
    eliminate_getitems(module)
    module.graph.eliminate_dead_code()
    module.graph.lint()


def bare_module(graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A GraphModule that holds the graph and nothing else, without the cost of making its code.

    torch's getitem pass takes modules only; it looks at their graphs and at nothing else of them.
    """
    module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    module._graph = graph
    return module


def eliminate_dead_code_cached(graph: torch.fx.Graph) -> bool:
    """torch's dead-code elimination, asking for each function once whether it is pure.

    Exact: what is asked depends on the arguments too, but only for higher-order operators and for
    functions with an inplace argument, which are asked each time.
    """
    graph.lint()
    known: dict[Any, bool] = {}
    changed = False
    for node in reversed(graph.nodes):
        if node.users:
            continue
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            if node.target not in known:
                known[node.target] = is_impure(node.target, args=node.args, kwargs=node.kwargs)
            impure = known[node.target]
        else:
            impure = node.is_impure()
        if not impure:
            graph.erase_node(node)
            changed = True
    return changed
