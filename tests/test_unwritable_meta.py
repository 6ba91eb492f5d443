"""Meta that no file can hold is a fault of its node."""

import pytest

import fastexport
from fastexport import TensorMeta

PATH = "tests/data/pt2/samples/current/linear.pt2"


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("val", object(), "FX305"),
        ("custom", object(), "FX403"),
        ("nn_module_stack", 5, "FX403"),
        ("nn_module_stack", {"a,b": ("a,b", "C")}, "FX403"),
        ("from_node", [3], "FX403"),
    ],
    ids=["val", "custom", "nn_module_stack", "module_name", "from_node"],
)
def test_the_node_is_told(key, value, code, tmp_path):
    program = fastexport.load(PATH)
    program.graph.node("relu").meta[key] = value
    (fault,) = program.verify(all=True)
    assert (fault.code, fault.node) == (code, "relu") and f"meta['{key}']" in fault.message
    for verify in (True, False):
        with pytest.raises(fastexport.VerifyError, match=f"{code} node relu"):
            program.save(tmp_path / "new.pt2", verify=verify)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value", [5, True, 1.5, (1, 2), [TensorMeta("float32", (2,))], (TensorMeta("float32", (2,)),) * 2]
)
def test_values_of_another_kind(value, tmp_path):
    """An operator that returns one tensor gives no number and no list."""
    program = fastexport.load(PATH)
    program.graph.node("linear").meta["val"] = value
    (fault,) = program.verify(all=True)
    assert (fault.code, fault.node) == (
        "FX305",
        "linear",
    ) and "no tensor, which 'torch.ops.aten.linear" in fault.message
    with pytest.raises(fastexport.VerifyError, match="FX305.*node linear"):
        program.save(tmp_path / "new.pt2")
    assert not list(tmp_path.iterdir())
