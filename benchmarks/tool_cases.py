"""What `./run bench tools` does to files and programs, on either side, and that both come to the same."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import fastexport
import plain_explorer
from exported import same
from fastexport.batch import check_one

EVERY_LEVEL = 100  # deeper than modules are nested


# ---- many files ----------------------------------------------------------------------------------


def torch_check(path: Path) -> None:
    """What torch has to say of a file: it is read, and the program is gone through by the verifier of its dialect."""
    torch.export.load(path).validate()


def one_by_one(paths: list[Path]) -> bool:
    return all(check_one(path).ok for path in paths)


# ---- counts --------------------------------------------------------------------------------------


def torch_counts(program: Any) -> dict[str, int]:
    """How often each operator is called."""
    return dict(Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function"))


def compare_counts(theirs: Any, path: Path) -> None:
    same("counts of operators", torch_counts(theirs), fastexport.stats(path).calls)


# ---- weights -------------------------------------------------------------------------------------


def torch_statistics(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[float, ...]]:
    """Extremes, mean, deviation, and how many zeros, nans and infinities, by torch's own functions."""
    found = {}
    for name, tensor in tensors.items():
        low, high = tensor.aminmax()
        deviation, mean = torch.std_mean(tensor)
        counts = (tensor == 0).sum(), tensor.isnan().sum(), tensor.isinf().sum()
        found[name] = tuple(value.item() for value in (low, high, mean, deviation, *counts))
    return found


def our_statistics(tensors: Any) -> dict[str, tuple[float, ...]]:
    return {
        name: (s.min, s.max, s.mean, s.std, s.zeros, s.nans, s.infs)
        for name, s in fastexport.weight_statistics(tensors)
    }


def compare_statistics(theirs: dict[str, torch.Tensor], ours: Any) -> None:
    """Of torch's, in the doubles that ours are of."""
    expected = torch_statistics({name: tensor.double() for name, tensor in theirs.items()})
    found = our_statistics(ours)
    same("names of weights", list(expected), list(found))
    for name, numbers in expected.items():
        torch.testing.assert_close(torch.tensor(found[name]).double(), torch.tensor(numbers).double())


def listed_by_safetensors(path: Path) -> list[tuple[str, list[int], str]]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        slices = [(name, file.get_slice(name)) for name in file.keys()]
        return [(name, part.get_shape(), part.get_dtype()) for name, part in slices]


def listed_by_us(path: Path) -> list[tuple[str, list[int], str]]:
    with fastexport.open_weights(path) as file:
        slices = [(name, file.get_slice(name)) for name in file]
        return [(name, part.get_shape(), part.get_dtype()) for name, part in slices]


def compare_lists(safetensors: Path, pt2: Path) -> None:
    same("names, shapes and dtypes", sorted(listed_by_safetensors(safetensors)), sorted(listed_by_us(pt2)))


# ---- Model Explorer ------------------------------------------------------------------------------


def plain_adapter(path: Path) -> dict[str, Any]:
    import model_explorer.graph_builder as classes

    return {"graphs": plain_explorer.graphs(str(path), classes)}


def our_adapter(path: Path) -> dict[str, Any]:
    from fastexport.model_explorer.main import ProgramAdapter

    return ProgramAdapter().convert(str(path), {})


def sent(answer: Any) -> str:
    """What Model Explorer's server makes of an adapter's answer, and sends."""
    from model_explorer.utils import convert_adapter_response

    return json.dumps(convert_adapter_response(answer))


def plain_json(path: Path) -> str:
    return json.dumps({"label": "model", "graphs": plain_explorer.graphs(str(path), plain_explorer.Dicts)})


def our_json(path: Path) -> str:
    from fastexport.model_explorer import to_json

    return to_json(fastexport.load(path, verify=False))


def _structure(answer: str) -> dict[str, Any]:
    """The nodes of each graph, with their labels, namespaces, and the nodes whose results they take."""
    return {
        graph["id"]: {
            node["id"]: (node["label"], node["namespace"], [edge["sourceNodeId"] for edge in node["incomingEdges"]])
            for node in graph["nodes"]
        }
        for graph in json.loads(answer)["graphs"]
    }


def compare_adapters(path: Path) -> None:
    expected = _structure(sent(plain_adapter(path)))
    for what, answer in (("adapter's", sent(our_adapter(path))), ("JSON's", our_json(path))):
        same(f"the {what} graphs", expected, _structure(answer))
    same("the plain graphs", expected, _structure(plain_json(path)))
