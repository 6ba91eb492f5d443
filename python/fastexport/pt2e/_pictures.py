"""A picture of a graph as text for Graphviz, with weights folded into the nodes that use them.

A weight is what depends on nothing that goes in: an attribute, and calls on attributes alone, such as the
dequantizing of stored integers. Without its weights a model's graph is about half as large, and shows how data flows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastexport.pt2e._graphs import find_attribute, flat_nodes, op_name, parts
from fastexport.pt2e._reports import quantization_report

_COLOURS = {"quantized": "#d7f0d7", "partly": "#fbeecb", "weight only": "#fbeecb", "float": "#f7d6d6"}


def to_dot(g: Any, *, fold_weights: bool = True) -> str:
    """The graph in the language of Graphviz, coloured by what is quantized.

    Args:
        g: a torch.fx.GraphModule or Graph, or a fastexport Graph.
        fold_weights: tell weights in the labels of their users, instead of drawing a node for each.

    Returns:
        The text. ``dot -Tsvg`` makes a picture of it; a graph of thousands of nodes takes it minutes.

    Raises:
        TypeError: g is none of these.

    >>> import operator
    >>> from fastexport import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> weight = graph.get_attr("weight")
    >>> out = graph.output(graph.call_function(operator.mul, (x, weight)))
    >>> print(to_dot(graph))
    digraph {
      node [shape=box, style="rounded,filled", fillcolor=white, fontname=monospace]
      x [label="x"]
      mul [label="mul\\nmul\\nweight"]
      output [label="output"]
      x -> mul
      mul -> output
    }
    """
    graph, module, _ = parts(g)
    nodes = list(graph.nodes)
    folded = _weights(nodes) if fold_weights else set()
    status = {row.node: row.status for row in quantization_report(g).rows}
    lines = ["digraph {", '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=monospace]']
    for node in nodes:
        if node not in folded:
            colour = _COLOURS.get(status.get(node.name, ""))
            fill = f', fillcolor="{colour}"' if colour else ""
            lines.append(f"  {_id(node.name)} [label={_quoted(list(_label(node, module, folded)))}{fill}]")
    for node in nodes:
        if node not in folded:
            lines += [f"  {_id(used.name)} -> {_id(node.name)}" for used in node.all_input_nodes if used not in folded]
    return "\n".join([*lines, "}"])


def _weights(nodes: list[Any]) -> set[Any]:
    """The nodes that depend on attributes alone, and are used by a node that doesn't."""
    found: set[Any] = set()
    for node in nodes:
        used = node.all_input_nodes
        if node.op == "get_attr" or (node.op == "call_function" and used and found.issuperset(used)):
            found.add(node)
    return {node for node in found if not any(user.op == "output" for user in node.users)}


def _label(node: Any, module: Any, folded: set[Any]) -> Iterator[str]:
    yield node.name
    if node.op == "call_function":
        yield op_name(node)
    elif node.op in ("call_module", "call_method", "get_attr"):
        yield f"{node.op} {node.target}"
    names = [argument.name for argument in getattr(getattr(node.target, "_schema", None), "arguments", ())]
    places = [(names[i] if i < len(names) else "", value) for i, value in enumerate(node.args)]
    for name, value in [*places, *node.kwargs.items()]:
        for used in flat_nodes(value):
            if used in folded:
                yield f"{name}: {_told(used, module)}" if name else _told(used, module)


def _told(node: Any, module: Any) -> str:
    """The path, type and shape of the attribute that a weight is made of."""
    source = node
    while source.op != "get_attr":
        source = source.all_input_nodes[0]
    value = find_attribute(module, source.target)
    value = value if value is not None else source.meta.get("val")
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return str(source.target)
    return f"{source.target} {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _id(name: str) -> str:
    plain = name.isascii() and name.isidentifier() and name not in ("node", "edge", "graph", "digraph", "subgraph")
    return name if plain and name != "strict" else _quoted([name])


def _quoted(lines: list[str]) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for line in lines)
    return '"' + "\\n".join(escaped) + '"'
