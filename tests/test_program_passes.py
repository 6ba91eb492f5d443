"""Programs have the passes as methods, those of files and those that came from torch."""

import inspect

import pytest
import torch

import fastexport
from fastexport._passes import names_of_passes
from fastexport._program_passes import ProgramPasses

METHODS = sorted(name for name in vars(ProgramPasses) if not name.startswith("_"))


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + torch.relu(x), x.neg()


@pytest.fixture(params=["file", "torch"])
def program(request, tmp_path):
    exported = torch.export.export(Model(), (torch.ones(2),))
    if request.param == "torch":
        return fastexport.from_export(exported)
    torch.export.save(exported, tmp_path / "model.pt2")
    return fastexport.load(tmp_path / "model.pt2")


def test_all_passes_that_have_a_name_are_there():
    assert set(names_of_passes()) <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_functions_of_the_same_name_take_a_program_first(name):
    assert inspect.isfunction(getattr(fastexport, name))
    assert name in getattr(ProgramPasses, name).__doc__


@pytest.mark.parametrize("name", names_of_passes(alone=True))
def test_each_runs_by_its_name(name, program):
    result = getattr(program, name)()
    assert isinstance(result, list if name == "lint" else fastexport.PassResult)
    assert program.verify() == []


def test_what_they_do(program):
    assert program.eliminate_common_subexpressions(explain=True).replaced == {"relu_1": "relu"}
    assert program.outline([program.graph.node("add")], "part").modified
    assert program.inline().modified
    replaced = program.replace_pattern(lambda x: torch.ops.aten.neg.default(x), lambda x: torch.ops.aten.abs.default(x))
    assert len(replaced) == 1
