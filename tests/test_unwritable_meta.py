"""Meta that no file can hold is a fault of its node."""

import pytest

import fastexport

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
