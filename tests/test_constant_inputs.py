"""Inputs that stand for a number, a string or None: what their meta tells, from a file as from torch."""

import math

import pytest
import torch

import fastexport


class Many(torch.nn.Module):
    def forward(self, x, number, real, flag, text, nothing):
        return x * number + real if flag else x


GIVEN = (3, 2.5, True, "text", None)


@pytest.fixture
def path(tmp_path):
    torch.export.save(torch.export.export(Many(), (torch.ones(2), *GIVEN)), tmp_path / "many.pt2")
    return tmp_path / "many.pt2"


def values(graph):
    return [node.meta["val"] for node in graph.nodes if node.op == "placeholder"][1:]


def test_the_values_are_those_of_torch(path):
    program = fastexport.load(path)
    assert values(program.graph) == list(GIVEN) == values(torch.export.load(path).graph)
    assert [type(value) for value in values(program.graph)] == [type(value) for value in GIVEN]


@pytest.mark.parametrize("real", [math.inf, -math.inf, math.nan])
def test_reals_that_json_lacks(real, tmp_path):
    torch.export.save(torch.export.export(Many(), (torch.ones(2), 3, real, True, "", None)), tmp_path / "real.pt2")
    found = fastexport.load(tmp_path / "real.pt2").graph.node("real").meta["val"]
    assert type(found) is float and str(found) == str(real)


def test_saved_after_a_look_at_them(path):
    """What was looked at is encoded anew."""
    program = fastexport.load(path)
    assert values(program.graph) == list(GIVEN)
    program.graph.node("add").name = "sum_of_both"
    program.save(path)
    again = torch.export.load(path)
    assert values(again.graph) == list(GIVEN)
    assert again.module()(torch.ones(2), *GIVEN).tolist() == [5.5, 5.5]
    assert fastexport.load(path).verify(all=True, level="strict") == []
    assert values(program.to_torch().graph) == list(GIVEN)


def test_passes_that_need_every_value(path):
    program = fastexport.load(path)
    assert not fastexport.refresh_fake_tensors(program)


def test_a_string_is_no_value_of_a_call(path):
    program = fastexport.load(path)
    program.graph.node("add").meta["val"] = "text"
    with pytest.raises(fastexport.VerifyError, match="node add: its meta"):
        program.save(path)


@pytest.mark.parametrize("name", ["dynamic", "sym_int_input"])
def test_symbols_of_a_file_are_no_sizes_to_compute_with(name):
    program = fastexport.load(f"tests/data/pt2/samples/current/{name}.pt2")
    with pytest.raises(ValueError, match="of a size that is a symbol of the file; give the inputs, or the program"):
        fastexport.refresh_fake_tensors(program.graph)
    assert not fastexport.refresh_fake_tensors(program)
