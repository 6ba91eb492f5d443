"""Whole pipelines with and without `accelerate()`: all entries, each alone, neighbours, and all compared."""

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fastexport
from fastexport.acceleration._equal import find_difference

pytest.importorskip("torchao")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
stages = pytest.importorskip("stages")

pytestmark = pytest.mark.models

ENTRIES = [name for name in fastexport.acceleration.table() if name != "annotation_checks"]


class Net(torch.nn.Module):
    """Something for each entry: a convolution to fold, a linear layer, attributes, a getitem."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        first, second = x.mean((2, 3)).split(2, 1)
        return torch.sigmoid(self.linear(torch.cat([first, second], 1) * self.scale))


def example() -> tuple[torch.Tensor, ...]:
    return (torch.ones(2, 3, 6, 6),)


def post_training() -> list[Any]:
    """What each stage of a pipeline comes to."""
    torch.manual_seed(0)
    program = torch.export.export(Net().eval(), example())
    module = program.module()
    prepared = stages.prepare(module, stages.x86())
    prepared(*example())
    text = str(prepared.graph), prepared.code
    converted = stages.convert(prepared)
    exported = torch.export.export(converted, example()).run_decompositions()
    file = io.BytesIO()
    torch.export.save(exported, file)
    loaded = torch.export.load(io.BytesIO(file.getvalue()))
    # Of what was decomposed the text: its meta holds a number that goes on from run to run.
    return [str(program), text, converted.graph, converted.code, converted(*example()), str(exported), loaded]


def training() -> list[Any]:
    torch.manual_seed(0)
    module = torch.export.export(Net().train(), example()).module()
    prepared = stages.prepare_qat(module, stages.xnnpack(True))
    prepared(*example())
    text = str(prepared.graph), prepared.code
    converted = stages.convert(prepared)
    return [text, str(converted.graph), converted.code, converted(*example())]


PIPELINES = {"post-training": post_training, "training": training}
_stock: dict[str, list[Any]] = {}


def check(name: str, only: list[str] | None = None, verify: bool = False) -> None:
    if name not in _stock:
        _stock[name] = PIPELINES[name]()
    with fastexport.accelerate(only=only, verify=verify):
        found = PIPELINES[name]()
    with torch.no_grad():
        assert find_difference(_stock[name], found) is None


@pytest.mark.parametrize("name", PIPELINES)
def test_everything_on(name: str) -> None:
    check(name)


def test_everything_compared() -> None:
    check("post-training", verify=True)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_alone(entry: str) -> None:
    check("post-training", only=[entry])


@pytest.mark.parametrize("first", range(0, len(ENTRIES) - 1, 3))
def test_neighbours(first: int) -> None:
    """Four at a time, the last of which is the first of the next: each two neighbours are on together."""
    check("post-training", only=ENTRIES[first : first + 4])


def test_nothing_is_left_behind() -> None:
    before = {name: vars(owner)[name] for owner, name in _places()}
    with contextlib.suppress(ZeroDivisionError), fastexport.accelerate():
        assert any(vars(owner)[name] is not before[name] for owner, name in _places())
        raise ZeroDivisionError
    assert all(vars(owner)[name] is before[name] for owner, name in _places())


def _places() -> list[tuple[Any, str]]:
    return [(torch.fx.Graph, "lint"), (torch.fx.Graph, "create_node"), (torch.fx.GraphModule, "recompile")]
