"""What follows a row of edits: dead code out, lint, and one recompile."""

from __future__ import annotations

from typing import Any

from fastexport._graph import Policy
from fastexport._passes import eliminate_dead_code, lint
from fastexport._results import PassResult
from fastexport.pt2e._graphs import parts


def clean_up(g: Any, *, policy: Policy = "safe") -> PassResult:
    """Remove dead code, check the graph and recompile the module, once.

    Call it after edits with ``insert_nodes``, ``replace_all_uses``, ``erase_nodes`` or torch's own methods.

    Args:
        g: a torch.fx.GraphModule, which is recompiled also if nothing was dead, a torch.fx.Graph or a fastexport Graph.
        policy: as for `fastexport.eliminate_dead_code`.

    Returns:
        The `PassResult` of the elimination.

    Raises:
        LintError: the graph is not in order; the module is not recompiled then.
        TypeError: g is none of these.

    >>> import operator
    >>> from fastexport import Graph
    >>> g = Graph()
    >>> x = g.placeholder("x")
    >>> unused = g.call_function(operator.neg, (x,))
    >>> out = g.output(x)
    >>> clean_up(g).removed
    ['neg']
    """
    graph, _, recompile = parts(g)
    result = eliminate_dead_code(graph, policy=policy)
    lint(graph)
    recompile()
    return result
