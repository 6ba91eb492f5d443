"""Statistics of weights, of whatever has them, and which of them are joined as those of one layer."""

import array

import pytest

import fastexport
from fastexport import WeightStatistics, weight_statistics
from fastexport._statistics import fold
from fastexport._tensors import from_array
from pt2_files import sample


def row(*shape, value=0.0):
    return WeightStatistics("float32", shape, 1, 4, value, value, value, None, 0, 0, 0)


def folded(shapes):
    return {name: names for name, names, _ in fold((name, row(*shape)) for name, shape in shapes.items())}


def test_what_stands_in_another_kind_of_module_is_not_joined():
    """A convolution and a normalization side by side, twice: both have a bias of the same shape."""
    shapes = {}
    for i in range(2):
        shapes |= {f"c.{i}.0.weight": (8, 3, 3, 3), f"c.{i}.0.bias": (8,)}
        shapes |= {f"c.{i}.1.weight": (8,), f"c.{i}.1.bias": (8,), f"c.{i}.1.running_mean": (8,)}
    assert folded(shapes) == {
        "c.#.0.weight": ("c.0.0.weight", "c.1.0.weight"),
        "c.#.0.bias": ("c.0.0.bias", "c.1.0.bias"),
        "c.#.1.weight": ("c.0.1.weight", "c.1.1.weight"),
        "c.#.1.bias": ("c.0.1.bias", "c.1.1.bias"),
        "c.#.1.running_mean": ("c.0.1.running_mean", "c.1.1.running_mean"),
    }


def test_what_stands_in_the_same_kind_of_module_is():
    assert folded({"0.w": (2,), "2.w": (2,), "5.w": (3,)}) == {"#.w": ("0.w", "2.w"), "5.w": ("5.w",)}
    assert folded({"a.list.0": (2,), "a.list.1": (2,)}) == {"a.list.#": ("a.list.0", "a.list.1")}
    assert folded({"0": (2,), "1": (2,), "x": (2,)}) == {"#": ("0", "1"), "x": ("x",)}
    assert folded({"h.0.e.0.w": (2,), "h.1.e.1.w": (2,)}) == {"h.#.e.#.w": ("h.0.e.0.w", "h.1.e.1.w")}


def test_numbers_of_arrays():
    [(name, found)] = weight_statistics({"w": array.array("f", [1, 3])}, sha256=True)
    assert (name, found.mean, found.dtype) == ("w", 2.0, "float32") and len(found.sha256) == 64
    assert list(weight_statistics({})) == []


@pytest.mark.parametrize("given", [None, 5, "model.pt2", [1.0], object()])
def test_what_has_no_weights(given):
    with pytest.raises(TypeError, match="takes a program, an open file of weights, a module of torch, or a mapping"):
        weight_statistics(given)


@pytest.mark.parametrize("value", [5, None, "text", object(), [1.0]])
def test_what_is_no_tensor_is_told_of(value):
    with pytest.raises(TypeError, match="'w' is of type .*no tensor"):
        list(weight_statistics({"w": value}))


def test_everything_of_torch_that_has_weights():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 3)
    program = torch.export.export(module, (torch.ones(1, 2),))
    wanted = {name: from_array(value).statistics() for name, value in module.state_dict().items()}
    assert len(wanted) == 2 and wanted["weight"].elements == 6
    ours = fastexport.from_export(program)
    for given in (module, module.state_dict(), dict(module.named_parameters()), program, ours, ours.state_dict):
        assert dict(weight_statistics(given)) == wanted
    numbers = {name: value.numpy() for name, value in module.state_dict().items()}
    assert dict(weight_statistics(numbers)) == wanted
    assert list(weight_statistics({"w": torch.ones(3, device="meta")})) == []  # has no elements
    with pytest.raises(TypeError, match="'w' is of layout torch.sparse_coo"):
        list(weight_statistics({"w": torch.ones(2, 2).to_sparse()}))


def test_constants_that_are_no_tensors_are_passed_over():
    program = fastexport.load(sample("hand_custom_obj"))
    [name] = program.constants
    steps = []
    assert name not in dict(weight_statistics(program, progress=lambda *step: steps.append(step)))
    assert steps[-1] == (len(program.state_dict) + 1, len(program.state_dict) + 1, name)
    assert list(weight_statistics(program.constants)) == []
