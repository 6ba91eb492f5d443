"""What Model Explorer loads for ``--extensions=fastexport.model_explorer``: the adapter, and data of nodes."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

from model_explorer import (
    Adapter,
    AdapterMetadata,
    GetConfigEditorsResult,
    NodeDataProvider,
    NodeDataProviderFilter,
    NodeDataProviderMetadata,
    NodeDataProviderResult,
)
from model_explorer.graph_builder import Graph
from model_explorer.node_data_builder import GradientItem, GraphNodeData, NodeDataResult

from fastexport import _core
from fastexport._collecting import no_collection
from fastexport._program import ExportedProgram, open_archive
from fastexport.model_explorer import node_data
from fastexport.model_explorer._graphs import Part, graphs_of

ADAPTER_ID = "fastexport"
PROVIDERS = {
    "fastexport_findings": ("findings", "Findings", "What fastexport check finds, at the nodes", "rule"),
    "fastexport_dtype": ("dtype", "Dtypes", "The dtypes of values", "palette"),
    "fastexport_output_bytes": ("output bytes", "Output bytes", "Memory that values take", "memory"),
    "fastexport_weight_bytes": ("weight bytes", "Weight bytes", "Memory that weights take", "scale"),
}


class ProgramAdapter(Adapter):  # type: ignore[misc, unused-ignore]
    """Opens .pt2 files without torch."""

    metadata = AdapterMetadata(
        id=ADAPTER_ID,
        name="fastexport (.pt2 without torch)",
        description="Opens exported programs of PyTorch without torch; nothing that is in the file is run",
        fileExts=["pt2"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """The graphs of all models of a file.

        Raises:
            FormatError: the file is damaged, or no exported program.
            OSError: it can't be read.
        """
        graphs = []
        for name, program in programs_of(model_path):
            graphs += [_graph(part) for part in graphs_of(program, name)]
        return {"graphs": graphs}


class ProgramData(NodeDataProvider):  # type: ignore[misc, unused-ignore]
    """Findings, dtypes and sizes of the nodes of a .pt2 file."""

    metadata = [
        NodeDataProviderMetadata(
            id=key, name=title, description=text, icon=icon, filter=NodeDataProviderFilter(modelFileExts=["pt2"])
        )
        for key, (_, title, text, icon) in PROVIDERS.items()
    ]

    def get_config_editors(self, provider_id: str) -> Any:
        """There is nothing to choose."""
        return GetConfigEditorsResult(configEditors=[])

    def run(self, provider_id: str, model_path: str, graph_id: str, config_values: dict[str, Any], graph: Any) -> Any:
        """The data of one graph."""
        title = PROVIDERS[provider_id][0]
        name, program = program_of(model_path, graph_id)
        findings = [*program.faults, *program.verify(all=True, weights=False)] if title == "findings" else ()
        data = node_data(program, name=name, findings=findings).get(title, {})
        return NodeDataProviderResult(result=_data(title, data.get(graph_id, {"results": {}})))


class Ready:
    """A list or dict that is as it is to be sent.

    dataclasses.asdict(), to which the graph that has it is given, would copy all that is in it; of this it takes the
    list or dict itself.
    """

    def __init__(self, value: list[Any] | dict[str, Any]) -> None:
        self._value = value

    def __getitem__(self, key: Any) -> Any:
        return self._value[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any] | dict[str, Any]:
        return self._value


def read_json(text: str) -> Any:
    """What a text says. The collector rests: to go through what is being made, again and again, would take longer.

    It need not look at what was made either, which has no circles: freezing and unfreezing makes that old at once.
    """
    with no_collection():
        value = json.loads(text)
        if gc.get_freeze_count() == 0:  # else somebody has frozen what must stay so
            gc.freeze()
            gc.unfreeze()
    return value


def _graph(part: Part) -> Any:
    return Graph(id=part.id, nodes=Ready(read_json(f"[{part.nodes}]")), groupNodeAttributes=Ready(part.groups))


def _data(title: str, data: dict[str, Any]) -> Any:
    fields = {key: value for key, value in data.items() if key not in ("results", "gradient", "name")}
    return GraphNodeData(
        results={key: NodeDataResult(**result) for key, result in data["results"].items()},
        name=title,
        gradient=[GradientItem(**stop) for stop in data.get("gradient", [])],
        **fields,
    )


def programs_of(path: str) -> Iterator[tuple[str, ExportedProgram]]:
    """The programs of a file with the names of their models."""
    archive = open_archive(path)
    for name in archive.models or ["model"]:  # without one, reading tells what is missing
        yield name, ExportedProgram(_core.Program(archive, name))


def program_of(path: str, graph_id: str) -> tuple[str, ExportedProgram]:
    """The program that a graph belongs to, with the name of its model.

    Raises:
        LookupError: no model of the file has such a graph.
    """
    archive = open_archive(path)
    names = [name for name in archive.models or ["model"] if f"{graph_id}/".startswith(f"{name}/")]
    if not names:
        raise LookupError(f"the file has no graph {graph_id!r}")
    name = max(names, key=len)
    return name, ExportedProgram(_core.Program(archive, name))
