"""Many edits of a graph in one call: erasing, replacing, inserting.

On a torch.fx graph each does in C what torch's own calls would do one by one, with the same result; on a fastexport
Graph it is a loop over its methods. Everything is checked before the first change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fastexport._graph import Graph


class Insertion(NamedTuple):
    """A node to be made, and where.

    Attributes:
        anchor: the node next to which it goes.
        target: what it calls, as for ``create_node``.
        args, kwargs: its arguments.
        op: its opcode.
        before: put it just before the anchor, else just after.
        name: the name it gets if that is free; None: one made from the target.
        meta: copied to its meta.
    """

    anchor: Any
    target: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    op: str = "call_function"
    before: bool = True
    name: str | None = None
    meta: Mapping[str, Any] | None = None


def erase_nodes(graph: Any, nodes: Iterable[Any]) -> None:
    """Erase nodes, in the order given.

    Args:
        graph: a fastexport Graph or a torch.fx.Graph.
        nodes: its nodes, each before the nodes that it uses.

    Raises:
        RuntimeError: a node has a user that does not come before it, or is of another graph. Nothing is erased then.

    >>> import operator
    >>> g = Graph()
    >>> x = g.placeholder("x")
    >>> a = g.call_function(operator.neg, (x,))
    >>> b = g.call_function(operator.pos, (a,))
    >>> erase_nodes(g, [b, a])
    >>> list(g.nodes)
    [x]
    """
    nodes = list(nodes)
    if not isinstance(graph, Graph):
        from fastexport import _torch

        _torch.erase_nodes(graph, nodes)
        return
    gone: set[Any] = set()
    for node in nodes:
        kept = [user for user in node.users if user not in gone]
        if node.graph is not graph or kept:
            why = f"it still has users {kept}" if kept else "it is a node of another graph"
            raise RuntimeError(f"can't erase node '{node}': {why}")
        gone.add(node)
    for node in nodes:
        graph.erase_node(node)


def replace_all_uses(
    graph: Any,
    pairs: Iterable[tuple[Any, Any]],
    *,
    delete_user_cb: Callable[[Any], bool] | None = None,
    propagate_meta: bool = False,
) -> None:
    """For each pair (old, new), one after the other, put new in the place of old in all its users.

    Args:
        graph: a fastexport Graph or a torch.fx.Graph.
        pairs: pairs of its nodes.
        delete_user_cb: called with each user; where it gives false, that user keeps the old node.
        propagate_meta: copy the meta of old to new, whose own must be empty.

    Raises:
        ValueError: a node is of another graph, or erased. Nothing is replaced then.
        AttributeError: something is no node.
        Exception: what delete_user_cb raises; the pairs before are replaced then.

    >>> import operator
    >>> g = Graph()
    >>> x = g.placeholder("x")
    >>> a = g.call_function(operator.neg, (x,))
    >>> [observed] = insert_nodes(g, [Insertion(a, operator.pos, (x,))])
    >>> replace_all_uses(g, [(x, observed)], delete_user_cb=lambda user: user is not observed)
    >>> a.args, observed.args
    ((pos,), (x,))
    """
    pairs = [(old, new) for old, new in pairs]
    for node in (node for pair in pairs for node in pair):
        if node.graph is not graph or node._erased:
            raise ValueError(f"node '{node}' is {'erased' if node._erased else 'a node of another graph'}")
    if delete_user_cb is not None or propagate_meta or isinstance(graph, Graph):
        chosen = {} if delete_user_cb is None else {"delete_user_cb": delete_user_cb}
        for old, new in pairs:
            old.replace_all_uses_with(new, propagate_meta=propagate_meta, **chosen)
        return
    from fastexport import _torch

    _torch.replace_all_uses(graph, pairs)


def insert_nodes(graph: Any, insertions: Iterable[Insertion | Sequence[Any]]) -> list[Any]:
    """Make nodes at many places.

    Args:
        graph: a fastexport Graph or a torch.fx.Graph.
        insertions: what to make, as `Insertion` or tuples in its order. Arguments may be nodes of the graph; several
            insertions at one anchor go in as they would one by one.

    Returns:
        The new nodes, in the order of the insertions.

    Raises:
        ValueError: an anchor or argument is no node of the graph, or a target is wrong for its opcode. The graph has
            the nodes it had then.

    >>> import operator
    >>> g = Graph()
    >>> x = g.placeholder("x")
    >>> out = g.output(x)
    >>> insert_nodes(g, [Insertion(out, operator.neg, (x,)), Insertion(out, operator.pos, (x,), name="same")])
    [neg, same]
    """
    wanted = [item if isinstance(item, Insertion) else Insertion(*item) for item in insertions]
    if not isinstance(graph, Graph):
        from fastexport import _torch

        return _torch.insert_nodes(graph, wanted)
    point = graph.inserting_after()  # remembers where the user's insert point is
    made: list[Any] = []
    try:
        for item in wanted:
            (graph.inserting_before if item.before else graph.inserting_after)(item.anchor)
            made.append(graph.create_node(item.op, item.target, item.args, dict(item.kwargs or {}), item.name))
            if item.meta:
                made[-1].meta.update(item.meta)
    except BaseException:
        for node in reversed(made):
            graph.erase_node(node)
        raise
    finally:
        point.__exit__(None, None, None)
    return made
