"""Programs in Model Explorer, Google's viewer of large graphs, without torch.

It finds the adapter by this module's name, and then opens .pt2 files by it::

    pip install "fastexport[model-explorer]"
    model-explorer model.pt2 --extensions=fastexport.model_explorer

Modules are layers that open and close, weights stand in the modules that use them, graphs that a call runs are opened
from it, and findings, sizes and dtypes are data that colours the nodes. `visualize` opens a program that is in memory.
`to_json` and `save_node_data` write files that Model Explorer opens without any adapter; they don't need it installed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from fastexport._errors import Fault

__all__ = ["node_data", "save_node_data", "to_json", "visualize"]


def to_json(g: Any, path: str | os.PathLike[str] | None = None, *, name: str = "model") -> str:
    """A program or graph as the JSON that Model Explorer opens: ``model-explorer model.json``.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, or one of torch's, which is copied.
        path: a file to write, which takes its name only when it is whole; None: nothing is written.
        name: the id of the graph. The name of a subgraph is added after a slash.

    Returns:
        The text, in ASCII.

    Raises:
        TypeError: g is none of these.
        OSError: the file can't be written; what was there is unchanged.

    >>> import json, operator
    >>> from fastexport import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> out = graph.output(graph.call_function(operator.mul, (x, 2)))
    >>> nodes = json.loads(to_json(graph))["graphs"][0]["nodes"]
    >>> [(node["id"], node["label"]) for node in nodes]
    [('x', 'x'), ('mul', 'operator.mul'), ('output', 'output')]
    >>> nodes[1]["incomingEdges"]
    [{'sourceNodeId': 'x', 'sourceNodeOutputId': '0', 'targetNodeInputId': '0'}]
    """
    from fastexport._arguments import check_graph
    from fastexport.model_explorer._graphs import collection_json, graphs_of

    check_graph("to_json", g)
    text = collection_json(name, graphs_of(g, name))
    if path is not None:
        _write(path, text)
    return text


def node_data(g: Any, *, name: str = "model", findings: Iterable[Fault] | None = None) -> dict[str, dict[str, Any]]:
    """What colours the nodes in Model Explorer: one set of data for each thing that can be looked at.

    - ``findings``: the codes of what is wrong with a node, errors red and warnings yellow;
    - ``dtype``: of the values of nodes, so that what is quantized stands out;
    - ``output bytes``: how much memory the value of a call takes, where its shape is no expression;
    - ``weight bytes``: the same of parameters, buffers and constants; Model Explorer adds them up for each module.

    Args:
        g: as for `to_json`.
        name: as for `to_json`; data and graph go together by the ids of graphs.
        findings: what is wrong; by default what `ExportedProgram.verify` finds, without a look at the weights. A graph
            without a program has none.

    Returns:
        For each set that is not empty, by name, what goes into its file: the data of each graph by its id.

    Raises:
        TypeError: g is none of these.

    >>> import fastexport
    >>> program = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
    >>> data = node_data(program)
    >>> list(data)
    ['dtype', 'output bytes', 'weight bytes']
    >>> data["weight bytes"]["model"]["results"]
    {'p_fc_weight': {'value': 48}, 'p_fc_bias': {'value': 12}}
    """
    from fastexport._arguments import check_graph, findings_of
    from fastexport._node_facts import graph_of
    from fastexport.model_explorer._node_data import data_of

    check_graph("node_data", g)
    if findings is None:
        verify = getattr(g, "verify", None)
        findings = verify(all=True, weights=False) if verify is not None and _is_program(g) else ()
    return data_of(graph_of(g), name, findings_of(findings))


def save_node_data(
    g: Any,
    folder: str | os.PathLike[str],
    *,
    name: str = "model",
    findings: Iterable[Fault] | None = None,
) -> list[str]:
    """Write each set of `node_data` into a file, for ``model-explorer --node_data_paths=...``.

    Args:
        g, name, findings: as for `node_data`.
        folder: where to; it is made when it is not there. Files are called as the sets, ``weight_bytes.json``.

    Returns:
        The paths of the files; joined by commas they are what the option takes.

    Raises:
        TypeError: g is none of these.
        OSError: a file can't be written.
    """
    os.makedirs(folder, exist_ok=True)
    paths = []
    for title, data in node_data(g, name=name, findings=findings).items():
        paths.append(os.path.join(os.fspath(folder), f"{title.replace(' ', '_')}.json"))
        _write(paths[-1], json.dumps(data))
    return paths


def visualize(g: Any, name: str = "model", **options: Any) -> None:
    """Show a program or graph that is in memory, with its data, in Model Explorer.

    Args:
        g: as for `to_json`.
        name: how it is called there.
        options: of model_explorer's visualize_from_config(), such as ``port``.

    Raises:
        ImportError: model_explorer is not installed.
        TypeError: g is none of these.
    """
    try:
        import model_explorer
    except ImportError as error:
        raise ImportError("visualize() needs Model Explorer: pip install 'fastexport[model-explorer]'") from error
    config = model_explorer.config()
    config.model_sources.append({"url": f"graphs://{name}/{len(config.graphs_list)}"})
    config.graphs_list.append(to_json(g, name=name))
    for title, data in node_data(g, name=name).items():
        config.add_node_data(title, json.dumps(data))
    model_explorer.visualize_from_config(config=config, **options)


def _is_program(g: Any) -> bool:
    from fastexport._program import ExportedProgram

    return isinstance(g, ExportedProgram)


def _write(path: str | os.PathLike[str], text: str) -> None:
    from fastexport._new_file import write_file

    write_file(os.fspath(path), text.encode())
