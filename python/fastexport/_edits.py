"""Many edits of a graph in one call: erasing, replacing, inserting.

On a torch.fx graph each does in C what torch's own calls would do one by one, with the same result; on a fastexport
Graph it is a loop over its methods. Everything is checked before the first change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fastexport._arguments import check_graph, list_of
from fastexport._graph import Graph
from fastexport._provenance import propagate_meta as take_meta


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
        TypeError: something is no node, or graph is no graph.

    >>> import operator
    >>> g = Graph()
    >>> x = g.placeholder("x")
    >>> a = g.call_function(operator.neg, (x,))
    >>> b = g.call_function(operator.pos, (a,))
    >>> erase_nodes(g, [b, a])
    >>> list(g.nodes)
    [x]
    """
    nodes = _checked("erase_nodes", graph, "nodes", nodes, "nodes")
    for node in nodes:
        _check_node("nodes", node)
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
    propagate_meta: bool | Literal["none", "missing", "all"] = False,
) -> None:
    """For each pair (old, new), one after the other, put new in the place of old in all its users.

    Args:
        graph: a fastexport Graph or a torch.fx.Graph.
        pairs: pairs of its nodes.
        delete_user_cb: called with each user; where it gives false, that user keeps the old node.
        propagate_meta: what new takes over of the meta of old: "missing": the entries that it lacks, but for those
            under `VALUE_META`, which are about old's value; "all": every entry, over its own, which is for a node of
            the same value; True: every entry, and its own meta must be empty; "none" or False: nothing.

    Raises:
        ValueError: a node is of another graph, or erased, or propagate_meta is none of these. Nothing is replaced then.
        TypeError: something is no pair of nodes, or graph is no graph.
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
    pairs = _checked("replace_all_uses", graph, "pairs", pairs, "pairs of nodes")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"pairs is a list of pairs of nodes, (old, new); one is {pair!r}")
        for node in pair:
            _check_node("pairs", node)
    for node in (node for pair in pairs for node in pair):
        if node.graph is not graph or node._erased:
            raise ValueError(f"node '{node}' is {'erased' if node._erased else 'a node of another graph'}")
    if isinstance(propagate_meta, str) and propagate_meta not in ("none", "missing", "all"):
        raise ValueError(f"propagate_meta must be a bool, 'none', 'missing' or 'all', not {propagate_meta!r}")
    if isinstance(graph, Graph):
        for old, new in pairs:
            old.replace_all_uses_with(new, delete_user_cb, propagate_meta=propagate_meta)
        return
    policy = propagate_meta if isinstance(propagate_meta, str) else "none"
    as_torch = bool(propagate_meta) and not isinstance(propagate_meta, str)
    if delete_user_cb is not None or as_torch:
        for old, new in pairs:
            take_meta(old, new, policy)
            old.replace_all_uses_with(new, delete_user_cb, propagate_meta=as_torch)
        return
    from fastexport import _torch

    _torch.replace_all_uses(graph, pairs)
    for old, new in pairs:
        take_meta(old, new, policy)


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
        TypeError: something is no insertion, or graph is no graph.

    >>> import operator
    >>> g = Graph()
    >>> x = g.placeholder("x")
    >>> out = g.output(x)
    >>> insert_nodes(g, [Insertion(out, operator.neg, (x,)), Insertion(out, operator.pos, (x,), name="same")])
    [neg, same]
    """
    wanted = [_insertion(item) for item in _checked("insert_nodes", graph, "insertions", insertions, "Insertion")]
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


# ---- what is given


def _checked(function: str, graph: Any, name: str, items: Iterable[Any], what: str) -> list[Any]:
    check_graph(function, graph)
    return list_of(name, items, what)


def _check_node(name: str, node: Any) -> None:
    if not hasattr(node, "users") or not hasattr(node, "op"):
        raise TypeError(f"{name} holds what is no node: {node!r}")


def _insertion(item: Any) -> Insertion:
    if isinstance(item, Insertion):
        return item
    if not isinstance(item, tuple | list) or not 2 <= len(item) <= len(Insertion._fields):
        raise TypeError(
            f"insertions is a list of Insertion, or of tuples in its order, (anchor, target, ...), not of {item!r}"
        )
    return Insertion(*item)
