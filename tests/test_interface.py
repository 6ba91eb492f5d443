"""Inputs and outputs added, removed and renamed: the program verifies, is written, and torch runs it."""

import array
import io

import pytest

import fastexport
from fastexport import DType, TensorMeta, _guards
from fastexport._pytree import GetAttrKey, tell_torch
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


# ---- programs of torch, and of many inputs


class Local:
    """A container that no file knows."""

    def __init__(self, one, two):
        self.one, self.two = one, two


def with_containers(way):
    """A program of nested arguments, of which some are not used: from torch, or from a file."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.full((2,), float(i))) for i in range(4)])
            self.tie = self.weights[1]
            self.register_buffer("extra", torch.ones(1))
            self.register_buffer("apart", torch.ones(1), persistent=False)

        def forward(self, pair, table, *rest, flag=None, other=None):
            return {"sum": pair.one + table["b"] * self.tie + rest[1], "two": [self.weights[3]]}

    x = torch.arange(2.0)
    args = (Local(x, x + 1), {"a": x + 2, "b": x + 3, "c": x + 4}, x + 5, x + 6, x + 7)
    program = torch.export.export(Model(), args, {"flag": True, "other": x + 8})
    if way == "torch":
        return fastexport.from_export(program), program
    file = io.BytesIO()
    torch.export.save(program, file)
    return fastexport.load(file.getvalue()), program


@pytest.fixture(params=["torch", "file"])
def nested(request):
    pytest.importorskip("torch")
    name = None if request.param == "torch" else "test_interface.Local"
    dumps = {} if name is None else {"to_dumpable_context": lambda c: "none", "from_dumpable_context": lambda c: None}
    fastexport.register_pytree_node(
        Local,
        lambda local: ([local.one, local.two], None),
        lambda children, context: Local(*children),
        serialized_type_name=name,
        flatten_with_keys_fn=lambda local: ([(GetAttrKey(key), getattr(local, key)) for key in ("one", "two")], None),
        **dumps,
    )
    tell_torch()
    yield with_containers(request.param)
    from torch.utils import _pytree as pytree

    from fastexport._tree_nodes import _deregister_pytree_node

    _deregister_pytree_node(Local)
    pytree._deregister_pytree_node(Local)


def test_all_that_is_not_used_goes_at_once(nested):
    import torch

    ep, theirs = nested
    gone = ep.remove_unused_inputs(user_inputs=True)
    assert set(gone) == {
        *("p_weights_0", "p_weights_2", "p_tie", "b_extra", "b_apart"),
        *("table_a", "table_c", "rest_0", "rest_2", "flag", "other"),
    }
    assert ep.graph_signature.user_inputs == ("pair_one", "pair_two", "table_b", "rest_1")  # a field can't go
    assert {*ep.state_dict, *ep.constants} == {"weights.1", "weights.3"}  # what was tied stays by its other name
    x = torch.arange(2.0)
    (pair, *_), _ = theirs.example_inputs
    program = ep.to_torch()
    got = program.module()(pair, {"b": x + 3}, x + 6)
    want = theirs.module()(*theirs.example_inputs[0], **theirs.example_inputs[1])
    assert torch.equal(got["sum"], want["sum"])
    assert torch.equal(got["two"][0], want["two"][0])
    assert program.example_inputs is None
    assert ep.remove_unused_inputs(user_inputs=True) == []


def test_arguments_of_any_container_are_changed(nested):
    ep, _ = nested
    new = ep.add_input("more", TensorMeta(F32, (2,)))
    ep.rename_input("flag", "yes")
    ep.rename_input("other", "third")
    ep.remove_input("table_a")
    with pytest.raises(ValueError, match="field of a Local"):
        ep.remove_input("pair_two")
    ep.remove_output(1)
    ep.add_output(new)
    program = ep.to_torch()
    (pair, table, *rest), keywords = nested[1].example_inputs
    del table["a"]
    got = program.module()(pair, table, *rest, rest[0], yes=keywords["flag"], third=keywords["other"])
    assert [type(part) for part in got] == [dict, type(rest[0])]
    table["a"] = None


@pytest.mark.parametrize("wrong", ["", "1x", "a b", "x): pass", "for", "None", "é-"])
def test_names_that_can_not_be_parameters(wrong):
    ep = fastexport.load(sample("linear"))
    before = str(ep), ep.call_spec
    for call in (lambda: ep.rename_input("x", wrong), lambda: ep.add_input(wrong, TensorMeta(F32, ()))):
        with pytest.raises(ValueError, match="identifier"):
            call()
    for call in (lambda: ep.rename_input("x", 1), lambda: ep.add_input(None, TensorMeta(F32, ()))):
        with pytest.raises(TypeError, match="str"):
            call()
    assert (str(ep), ep.call_spec) == before


def test_weights_that_were_assigned_go_too():
    ep = fastexport.load(sample("linear"))
    linear = ep.graph.node("linear")
    ep.state_dict["fc.bias"] = array.array("f", [1.0, 2.0, 3.0])
    linear.args = linear.args[:2]
    ep.remove_input("p_fc_bias")
    assert list(ep.state_dict) == ["fc.weight"]
    ep.verify()


def test_the_weight_of_two_inputs_stays():
    ep = fastexport.load(sample("linear"))
    inputs, outputs = ep.graph._signature()
    with ep.graph.inserting_before(ep.graph.node("x")):
        ep.graph.placeholder("p_again")
    ep.graph._set_signature([*inputs[:2], (*inputs[0][:1], "p_again", *inputs[0][2:]), *inputs[2:]], outputs)
    ep.state_dict["fc.weight"] = ep.state_dict["fc.weight"]
    assert ep.remove_unused_inputs() == ["p_again"]
    assert "fc.weight" in ep.state_dict


def test_tokens_stay():
    ep = fastexport.load(sample("linear"))
    inputs, outputs = ep.graph._signature()
    first = next(iter(ep.graph.nodes))
    with ep.graph.inserting_before(first):
        ep.graph.placeholder("token")
    ep.graph._set_signature([(5, "token", None, None, None, False, -1), *inputs], outputs)
    assert ep.remove_unused_inputs(user_inputs=True) == []
    assert ep.graph_signature.input_tokens == ("token",)


# ---- guards


GUARDS = [
    "L['x'].size()[0] >= 2",
    "L['x'].size()[0] == L['rest'][1].size()[0]",
    "L['flat_args'][0] != L['flat_args'][2]",
    "L['xx'].size()[1] == 3",
]


def test_guards_of_other_arguments():
    assert _guards.renamed(GUARDS, "x", "data") == [guard.replace("L['x']", "L['data']") for guard in GUARDS]
    assert _guards.renamed(GUARDS, "rest_1", "y")[1] == "L['x'].size()[0] == L['y'].size()[0]"
    assert _guards.renamed(GUARDS, "rest_0", "y") == GUARDS
    assert _guards.without(GUARDS, ["rest_1"], [1]) == [GUARDS[0], "L['flat_args'][0] != L['flat_args'][1]", GUARDS[3]]
    assert _guards.without(GUARDS, ["x"], [0]) == [GUARDS[3]]
    assert _guards.without(GUARDS, [], []) == GUARDS
    assert _guards.with_leaf(GUARDS, 1)[2] == "L['flat_args'][0] != L['flat_args'][3]"


def test_guards_of_a_file_follow(tmp_path):
    ep = fastexport.load(sample("dynamic"))
    before = ep.guards
    name = ep.graph_signature.user_inputs[0]
    assert any(f"L['{name}']" in guard for guard in before)
    twin = fastexport.load(sample("dynamic"))
    ep.rename_input(name, "data")
    assert ep.guards == [guard.replace(f"L['{name}']", "L['data']") for guard in before]
    assert again(ep, tmp_path).guards == ep.guards
    assert twin.guards == before
    last = twin.graph_signature.user_inputs[-1]
    twin.rename_input(last, last)
    assert twin.guards == before
    assert ep.to_torch()._guards_code == ep.guards
