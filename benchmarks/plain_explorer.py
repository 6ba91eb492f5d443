"""An adapter for Model Explorer in plain Python: zipfile, json and the classes of model_explorer, without fastexport.

What one writes who reads the present layout of .pt2 files by hand: it tells the same of each node as ours. It is the
yardstick of ./run bench tools, written to be quick: texts that come again are made once.
"""

import json
import re
import zipfile
from typing import Any

FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)(?:, in ([^\n]+))?(?:\n(?!\s*File ")([^\n]*))?', re.MULTILINE)
DTYPES = {0: "u8", 1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "f16", 7: "f32", 8: "f64", 12: "b8", 13: "bf16"}
KINDS = (("parameter", "parameter_name"), ("buffer", "buffer_name"), ("tensor_constant", "tensor_constant_name"))
NAMED = ("as_tensor", "as_sym_int", "as_sym_bool", "as_sym_float", "as_custom_obj")


def graphs(path: str, new: Any) -> list[Any]:
    """The graphs of the program in a file.

    Args:
        path: the file.
        new: makes the parts: the module of model_explorer with its classes, or `Dicts`.
    """
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("models/model.json"))
        document = json.loads(archive.read(name))
    reader = _Reader(document["graph_module"]["signature"], new)
    reader.graph(document["graph_module"]["graph"], "model")
    return reader.made


class Dicts:
    """Makes dicts in the place of model_explorer's classes: what its JSON is dumped from."""

    @staticmethod
    def Graph(**fields: Any) -> dict[str, Any]:
        return fields

    GraphNode = KeyValue = IncomingEdge = MetadataItem = Graph


class _Reader:
    def __init__(self, signature: dict[str, Any], new: Any) -> None:
        self.new = new
        self.made: list[Any] = []
        self.weights: dict[str, tuple[str, str]] = {}
        for spec in signature["input_specs"]:
            for kind, field in KINDS:
                if kind in spec:
                    self.weights[spec[kind]["arg"]["name"]] = kind, spec[kind][field]
        self.stacks: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.traces: dict[str, list[Any]] = {}

    def graph(self, graph: dict[str, Any], name: str) -> None:
        new = self.new
        made: list[Any] = []
        values = graph["tensor_values"]
        sources: dict[str, tuple[str, str]] = {}  # value -> node and which of its results
        spaces: dict[str, list[str]] = {}  # weight -> namespaces of those who use it
        whole = new.Graph(id=name, nodes=made, groupNodeAttributes={"": {"nodes": str(len(graph["nodes"]))}})
        self.made.append(whole)
        for argument in graph["inputs"]:
            value = next(iter(argument.values()))["name"]
            sources[value] = value, "0"
            kind, target = self.weights.get(value, ("input", ""))
            attributes = [new.KeyValue(key="kind", value=kind)]
            if target:
                attributes.append(new.KeyValue(key="target", value=target))
                spaces[value] = []
            made.append(
                new.GraphNode(
                    id=value,
                    label=target.rpartition(".")[2] or value,
                    namespace="",
                    subgraphIds=[],
                    attrs=attributes,
                    incomingEdges=[],
                    outputsMetadata=self.outputs([value], values),
                )
            )
        for node in graph["nodes"]:
            made.append(self.node(node, name, values, sources, spaces))
        edges = self.edges([value for argument in graph["outputs"] for value in names_in(argument)], sources)
        kind = new.KeyValue(key="kind", value="output")
        made.append(
            new.GraphNode(
                id="output", label="output", namespace="", subgraphIds=[], attrs=[kind], incomingEdges=edges,
                outputsMetadata=[],
            )
        )  # fmt: skip
        for i, argument in enumerate(graph["inputs"]):
            users = spaces.get(next(iter(argument.values()))["name"])
            if users:
                space = users[0] if len(set(users)) == 1 else common(users)
                if isinstance(made[i], dict):
                    made[i]["namespace"] = space
                else:
                    made[i].namespace = space
        counts: dict[str, int] = {}
        for node in made:
            space = node["namespace"] if isinstance(node, dict) else node.namespace
            while space:
                counts[space] = counts.get(space, 0) + 1
                space = space.rpartition("/")[0]
        groups = whole["groupNodeAttributes"] if isinstance(whole, dict) else whole.groupNodeAttributes
        for path, kind in self.types.items():
            space = path.replace(".", "/")
            if space in counts:
                groups[space] = {"path": path, "class": kind, "nodes": str(counts[space])}

    def node(self, node: dict[str, Any], graph: str, values: Any, sources: Any, spaces: Any) -> Any:
        new = self.new
        results = [value for argument in node["outputs"] for value in names_in(argument)]
        name = node.get("name") or results[0]
        metadata = node["metadata"]
        stack = metadata.get("nn_module_stack", "")
        space = self.stacks.get(stack)
        if space is None:
            space = self.stacks[stack] = self.space(stack)
        attributes = [new.KeyValue(key="op", value="call_function")]
        inputs, subgraphs = [], []
        for argument in node["inputs"]:
            given = argument["arg"]
            attributes.append(new.KeyValue(key=argument["name"], value=text_of(given)))
            if "as_graph" in given:
                subgraphs.append(f"{graph}/{given['as_graph']['name']}")
                self.graph(given["as_graph"]["graph"], subgraphs[-1])
            else:
                inputs += names_in(given)
        trace = metadata.get("stack_trace")
        if trace:
            told = self.traces.get(trace)
            if told is None:
                told = self.traces[trace] = self.source(trace)
            attributes += told
        for value in inputs:
            if value in spaces:
                spaces[value].append(space)
        for i, value in enumerate(results):
            sources[value] = name, str(i)
        return new.GraphNode(
            id=name,
            label=node["target"].removeprefix("torch.ops."),
            namespace=space,
            subgraphIds=subgraphs,
            attrs=attributes,
            incomingEdges=self.edges(inputs, sources),
            outputsMetadata=self.outputs(results, values),
        )

    def space(self, stack: str) -> str:
        path = ""
        for entry in stack.split(";"):
            parts = entry.split(",")
            if len(parts) == 3:
                path = parts[1]
                self.types.setdefault(path, parts[2].rpartition(".")[2])
        return path.replace(".", "/")

    def source(self, trace: str) -> list[Any]:
        frames = FRAME.findall(trace)
        if not frames:
            return []
        file, line, function, code = frames[-1]
        where = f"{file}:{line}" + (f" in {function}" if function else "")
        return [self.new.KeyValue(key="source", value=where), self.new.KeyValue(key="code", value=code.strip())]

    def edges(self, inputs: list[str], sources: dict[str, tuple[str, str]]) -> list[Any]:
        edges = []
        for i, value in enumerate(dict.fromkeys(inputs)):
            source, result = sources[value]
            edges.append(
                self.new.IncomingEdge(sourceNodeId=source, sourceNodeOutputId=result, targetNodeInputId=str(i))
            )
        return edges

    def outputs(self, results: list[str], values: dict[str, Any]) -> list[Any]:
        new = self.new
        items = []
        for i, value in enumerate(results):
            meta = values.get(value)
            if meta is not None:
                sizes = ", ".join(str(next(iter(size.values()))) for size in meta["sizes"])
                text = f"{DTYPES.get(meta['dtype'], '?')}[{sizes}]"
                items.append(new.MetadataItem(id=str(i), attrs=[new.KeyValue(key="tensor_shape", value=text)]))
        return items


def names_in(argument: dict[str, Any]) -> list[str]:
    """The values that an argument names."""
    ((kind, given),) = argument.items()
    if kind in NAMED:
        name = given.get("name") or given.get("as_name")
        return [name] if name else []
    if kind == "as_tensors":
        return [item["name"] for item in given]
    if kind == "as_optional_tensors":
        return [item["as_tensor"]["name"] for item in given if "as_tensor" in item]
    if kind == "as_sym_ints":
        return [item["as_name"] for item in given if "as_name" in item]
    return []


def text_of(argument: dict[str, Any]) -> str:
    ((kind, given),) = argument.items()
    if kind in NAMED:
        return str(given.get("name") or given.get("as_name") or next(iter(given.values())))
    if kind == "as_none":
        return "None"
    if kind == "as_tensors":
        return f"[{', '.join(item['name'] for item in given)}]"
    if kind == "as_graph":
        return str(given["name"])
    return str(given)


def common(spaces: list[str]) -> str:
    """The innermost namespace that holds all."""
    parts: list[str] = []
    for level in zip(*(space.split("/") for space in spaces), strict=False):
        if len(set(level)) > 1:
            break
        parts.append(level[0])
    return "/".join(parts)
