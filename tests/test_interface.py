"""Inputs and outputs added, removed and renamed: the program verifies, is written, and torch runs it."""

import pytest

import fastexport
from fastexport import DType, TensorMeta
from pt2_files import CURRENT, label, sample

F32 = DType("float32")


def again(ep, tmp_path):
    ep.verify()
    ep.save(tmp_path / "m.pt2")
    loaded = fastexport.load(tmp_path / "m.pt2")
    assert str(loaded.graph) == str(ep.graph)
    assert str(loaded.graph_signature) == str(ep.graph_signature)
    assert str(loaded.call_spec) == str(ep.call_spec)
    return loaded


def test_rename_input(tmp_path):
    ep = fastexport.load(sample("user_input_mutation"))
    old = ep.graph_signature.user_inputs[0]
    ep.rename_input(old, "renamed")
    assert ep.graph_signature.user_inputs[0] == "renamed"
    assert old not in ep.graph_signature.user_inputs_to_mutate.values()
    again(ep, tmp_path)
    with pytest.raises(ValueError, match="no input 'nope'"):
        ep.rename_input("nope", "x")
    with pytest.raises(ValueError):
        ep.rename_input("renamed", ep.graph.output_node().args[0][0].name)


def test_add_and_use_an_input(tmp_path):
    import torch

    import pt2_torch

    ep = fastexport.load(sample("linear"))
    scale = ep.add_input("scale", TensorMeta(F32, (3,)))
    relu = ep.graph.node("relu")
    with ep.graph.inserting_after(relu):
        mul = ep.graph.call_function("torch.ops.aten.mul.Tensor", (relu, scale))
    mul.meta["val"] = relu.meta["val"]
    ep.graph.output_node().args = ((mul,),)
    assert ep.graph_signature.user_inputs == ("x", "scale")
    again(ep, tmp_path)
    x, factor = torch.randn(2, 4), torch.randn(3)
    theirs = pt2_torch.load(sample("linear")).module()(x)
    assert torch.equal(pt2_torch.load(tmp_path / "m.pt2").module()(x, factor), theirs * factor)
    with pytest.raises(ValueError, match="relu"):
        ep.add_input("relu", TensorMeta(F32, ()))


def test_an_input_goes_before_keyword_arguments(tmp_path):
    ep = fastexport.load(sample("kwargs_"))
    before = ep.graph_signature.user_inputs
    args = ep.call_spec.in_spec.child(0).num_leaves
    ep.add_input("extra", TensorMeta(F32, (2,)))
    assert ep.graph_signature.user_inputs == (*before[:args], "extra", *before[args:])
    again(ep, tmp_path)


def test_remove_inputs(tmp_path):
    import torch

    import pt2_torch

    ep = fastexport.load(sample("linear"))
    ep.add_input("extra", TensorMeta(F32, (2,)))
    ep.remove_input("extra")
    assert str(ep.graph) == str(fastexport.load(sample("linear")).graph)
    with pytest.raises(ValueError, match="is used by linear"):
        ep.remove_input("x")
    linear = ep.graph.node("linear")
    linear.args = linear.args[:2]
    ep.remove_input("p_fc_bias")
    assert list(ep.state_dict) == ["fc.weight"]
    again(ep, tmp_path)
    x = torch.randn(2, 4)
    weight = pt2_torch.load(sample("linear")).state_dict["fc.weight"]
    assert torch.equal(pt2_torch.load(tmp_path / "m.pt2").module()(x), torch.relu(x @ weight.T))


@pytest.mark.parametrize("path", CURRENT, ids=label)
def test_unused_inputs_of_every_sample(path, tmp_path):
    ep = fastexport.load(path)
    unused = [node.name for node in ep.graph.find_nodes(op="placeholder") if not node.users]
    removed = ep.remove_unused_inputs()
    assert set(removed) <= set(unused)
    signature = ep.graph_signature
    kept = {spec.arg.name for spec in signature.input_specs if spec.kind.name != "USER_INPUT"}
    updated = {*signature.buffers_to_mutate.values(), *signature.parameters_to_mutate.values()}
    for name in set(unused) & kept:
        assert next(s.target for s in signature.input_specs if s.arg.name == name) in updated
    again(ep, tmp_path)


def test_unused_arguments(tmp_path):
    ep = fastexport.load(sample("scalars"))
    unused = [n.name for n in ep.graph.find_nodes(op="placeholder") if not n.users]
    assert unused
    assert ep.remove_unused_inputs() == []
    assert ep.remove_unused_inputs(user_inputs=True) == unused
    again(ep, tmp_path)


def test_outputs(tmp_path):
    import torch

    import pt2_torch

    ep = fastexport.load(sample("linear"))
    ep.add_output(ep.graph.node("linear"))
    assert ep.graph_signature.user_outputs == ("relu", "linear")
    assert str(ep.call_spec.out_spec) == "TreeSpec(tuple, None, [*,\n  *])"
    again(ep, tmp_path)
    x = torch.randn(2, 4)
    relu, linear = pt2_torch.load(tmp_path / "m.pt2").module()(x)
    assert torch.equal(relu, torch.relu(linear))
    ep.remove_output("relu")
    again(ep, tmp_path)
    (alone,) = pt2_torch.load(tmp_path / "m.pt2").module()(x)
    assert torch.equal(alone, linear)
    for which in ("nope", 1, -2):
        with pytest.raises(ValueError, match="the program has"):
            ep.remove_output(which)
    with pytest.raises(ValueError, match="no node"):
        ep.add_output(fastexport.load(sample("linear")).graph.node("relu"))


def test_the_only_output_stays():
    ep = fastexport.load(sample("linear"))
    before = str(ep)
    with pytest.raises(ValueError, match="all that the program returns"):
        ep.remove_output(0)
    assert str(ep) == before


def test_results_come_after_updates(tmp_path):
    ep = fastexport.load(sample("buffer_mutation"))
    node = next(n for n in ep.graph.nodes if n.op == "call_function")
    ep.add_output(node)
    assert list(ep.graph_signature.user_outputs)[-1] == node.name
    assert ep.graph_signature.output_specs[0].kind.name == "BUFFER_MUTATION"
    again(ep, tmp_path)


def test_a_key_of_a_dict_goes_with_its_result(tmp_path):
    ep = fastexport.load(sample("nested_inputs"))
    leaves = ep.call_spec.out_spec.num_leaves
    ep.remove_output(0)
    assert ep.call_spec.out_spec.num_leaves == leaves - 1
    assert "o1" not in str(ep.call_spec.out_spec)
    again(ep, tmp_path)
