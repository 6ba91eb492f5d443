"""Weights and constants lifted to inputs, and taken back into the graph: torch's verifier passes the program, and it
computes the same."""

import array
import copy
import io

import pytest
import torch
from torch import nn

import export_kinds
import fastexport
import pt2_torch
from fastexport import InputKind
from pt2_files import sample

SOME = [
    "linear",
    "image_training",
    "image_training_decomposed",
    "attention",
    "sizes",
    "choice",
    "tied",
    "quantized",
    "script_object",
]

pytestmark = pytest.mark.filterwarnings("ignore:the owning module has no attribute")


def program(name, way):
    """A program of a kind, as it came from torch, or from a file of it."""
    exported = export_kinds.exported(name)
    if way == "torch":
        return fastexport.from_export(exported)
    return fastexport.load(written(exported).getvalue())


def written(exported):
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    return file


def torchs(ep):
    return ep.to_torch(pickles=True)


def assert_runs_like(ep, name):
    theirs = export_kinds.exported(name)
    export_kinds.assert_same_results(export_kinds.run(torchs(ep), theirs.example_inputs), export_kinds.run(theirs))


ways = pytest.mark.parametrize("way", ["torch", "file"])


@ways
@pytest.mark.parametrize("name", SOME)
def test_there_and_back(name, way):
    ep = program(name, way)
    before, values = str(ep), {node.name: node.meta.get("val") for node in ep.graph.nodes}
    nodes = ep.unlift_constants()
    signature = ep.graph_signature
    assert not (signature.parameters or signature.buffers or signature.lifted_tensor_constants)
    assert [spec.kind for spec in signature.input_specs].count(InputKind.USER_INPUT) == len(signature.user_inputs)
    assert {node.target for node in nodes} <= {*ep.state_dict, *ep.constants}
    assert ep.lift_constants() == [node.name for node in nodes]
    assert str(ep) == before
    for node in ep.graph.nodes:
        value = node.meta.get("val")
        assert value is values[node.name] or value == values[node.name]
    assert_runs_like(ep, name)


@ways
@pytest.mark.parametrize("name", SOME)
def test_a_module_like_torchs(name, way):
    exported = export_kinds.exported(name)
    ep = program(name, way)
    theirs = (exported if way == "torch" else pt2_torch.load(written(exported))).module(check_guards=False).graph
    before = str(ep)
    module = ep.unlift()
    assert str(ep) == before
    for graph in (module.graph, theirs):  # torch takes away what it adds to graphs of files, and not always
        graph.eliminate_dead_code()
    ours, names = list(module.graph.nodes), {}
    for node, other in zip(ours, theirs.nodes, strict=True):
        assert (node.op, len(node.users)) == (other.op, len(other.users))
        assert [names[operand] for operand in node.all_input_nodes] == other.all_input_nodes
        names[node] = other
        if node.op != "placeholder":  # whose names torch.fx changes when it copies them
            assert node.name == other.name
        if node.op == "get_attr":
            assert node.target == other.target
    for path in (node.target for node in ours if node.op == "get_attr" and node.target in ep.state_dict):
        assert getattr(module, path) is ep.state_dict[path]


@ways
def test_what_stands_in_the_file_after(way, tmp_path):
    ep = program("image_training_decomposed", way)
    ep.unlift_constants()
    ep.lift_constants()
    ep.save(tmp_path / "a.pt2")
    loaded = fastexport.load(tmp_path / "a.pt2")
    again = program("image_training_decomposed", "file")
    assert str(loaded.graph) == str(again.graph)
    assert loaded.graph_signature == again.graph_signature


@ways
def test_some_of_them(way):
    ep = program("linear", way)
    first, *others = ep.graph_signature.parameters
    (node,) = ep.unlift_constants([first])
    assert (node.op, node.target) == ("get_attr", first)
    assert list(ep.graph_signature.parameters) == others
    assert first in ep.state_dict
    with pytest.raises(ValueError, match="'nothing'"):
        ep.unlift_constants(["nothing"])
    with pytest.raises(ValueError, match=first):
        ep.unlift_constants([first])
    assert ep.lift_constants() == [node.name]
    assert ep.lift_constants() == []
    assert_runs_like(ep, "linear")


@ways
def test_unlifted_programs_are_none(way):
    ep = program("linear", way)
    ep.unlift_constants()
    with pytest.raises(fastexport.VerifyError):
        ep.verify()
    with pytest.raises(Exception, match="0.weight"):
        ep.to_torch()


@ways
def test_a_weight_that_goes_meanwhile(way):
    ep = program("linear", way)
    bias = next(name for name in ep.state_dict if "bias" in name)
    (node,) = ep.unlift_constants([bias])
    for user in list(node.users):
        user.args = tuple(arg for arg in user.args if arg is not node)
    ep.graph.erase_node(node)
    assert bias in ep.state_dict
    assert ep.lift_constants() == []
    assert bias not in ep.state_dict
    assert bias not in torchs(ep).state_dict


def with_scale(ep, path="scale"):
    """The program's first result times what a new get_attr node gives."""
    output = ep.graph.output_node()
    (results,) = output.args
    with ep.graph.inserting_before(output):
        scale = ep.graph.get_attr(path)
        product = ep.graph.call_function("torch.ops.aten.mul.Tensor", (results[-1], scale))
    product.meta["val"] = results[-1].meta["val"]
    output.args = ((*results[:-1], product),)
    return scale


@ways
def test_a_new_constant(way):
    ep = program("linear", way)
    scale = with_scale(ep)
    with_scale(ep)
    before = str(ep)
    with pytest.raises(ValueError, match="'scale'"):
        ep.lift_constants()
    assert str(ep) == before
    value = torch.tensor(2.0) if way == "torch" else array.array("f", [2.0])
    assert ep.lift_constants({"scale": value}) == ["c_scale"]
    assert scale.op == "placeholder"
    assert list(ep.graph_signature.lifted_tensor_constants) == ["scale"]
    assert [spec.kind.name for spec in ep.graph_signature.input_specs][-2:] == ["CONSTANT_TENSOR", "USER_INPUT"]
    theirs = export_kinds.exported("linear")
    assert "scale" not in theirs.constants
    got = export_kinds.run(torchs(ep), theirs.example_inputs)[0]
    want = export_kinds.run(theirs)[0] * 4
    assert torch.equal(got, want)
    copy.deepcopy(ep).verify()


def test_attributes_of_the_torch_module():
    ep = program("linear", "torch")
    ep._source.module.register_buffer("scale", torch.tensor(3.0), persistent=False)
    try:
        with_scale(ep)
        assert ep.lift_constants() == ["c_scale"]
        assert torch.equal(ep.constants["scale"], torch.tensor(3.0))
        ep.verify()
    finally:
        del ep._source.module.scale


@ways
def test_nodes_without_users_go(way):
    ep = program("linear", way)
    before = str(ep)
    first = next(iter(ep.state_dict))
    with ep.graph.inserting_before(ep.graph.output_node()):
        ep.graph.get_attr(first)
        ep.graph.get_attr("new")
    assert ep.lift_constants({"new": torch.ones(1)}) == []
    assert str(ep) == before
    assert "new" not in ep.constants


@ways
def test_what_is_an_input_already(way):
    ep = program("linear", way)
    first = next(iter(ep.graph_signature.parameters))
    node = ep.graph.node(next(n for n, target in ep.graph_signature.inputs_to_parameters.items() if target == first))
    (user,) = node.users
    with ep.graph.inserting_before(user):
        again = ep.graph.get_attr(first)
    user.replace_input_with(node, again)
    assert ep.lift_constants() == []
    assert list(node.users) == [user]
    assert_runs_like(ep, "linear")


@ways
def test_subgraphs_stay(way):
    ep = program("choice", way)
    paths = [node.target for node in ep.graph.find_nodes(op="get_attr")]
    assert paths
    ep.lift_constants()
    assert [node.target for node in ep.graph.find_nodes(op="get_attr")] == paths


# ---- add_constant


KINDS = [
    (InputKind.PARAMETER, True, "p_sub_scale"),
    (InputKind.BUFFER, True, "b_sub_scale"),
    (InputKind.BUFFER, False, "b_sub_scale"),
    (InputKind.CONSTANT_TENSOR, True, "c_sub_scale"),
]


@ways
@pytest.mark.parametrize(("kind", "persistent", "name"), KINDS)
def test_add_constant(way, kind, persistent, name, tmp_path):
    ep = program("linear", way)
    value = torch.full((1,), 2.0) if way == "torch" else array.array("f", [2.0])
    new = ep.add_constant("sub.scale", value, kind=kind, persistent=persistent)
    assert new.name == new.target == name
    output = ep.graph.output_node()
    ((result,),) = output.args
    with ep.graph.inserting_before(output):
        product = ep.graph.call_function("torch.ops.aten.mul.Tensor", (result, new))
    product.meta["val"] = result.meta["val"]
    output.args = ((product,),)
    spec = next(spec for spec in ep.graph_signature.input_specs if spec.target == "sub.scale")
    assert (spec.kind, spec.persistent) == (kind, persistent if kind is InputKind.BUFFER else None)
    ep.save(tmp_path / "a.pt2")
    theirs = export_kinds.exported("linear")
    want = export_kinds.run(theirs)[0] * 2
    for made in (torchs(ep), pt2_torch.load(tmp_path / "a.pt2")):
        assert torch.equal(export_kinds.run(made, theirs.example_inputs)[0], want)
        held = made.state_dict if kind is InputKind.PARAMETER or spec.persistent else made.constants
        assert isinstance(held["sub.scale"], nn.Parameter) == (kind is InputKind.PARAMETER)
    assert "sub.scale" not in {**theirs.state_dict, **theirs.constants}
    with pytest.raises(ValueError, match="already"):
        ep.add_constant("sub.scale", value)
    with pytest.raises(ValueError, match="USER_INPUT"):
        ep.add_constant("other", value, kind=InputKind.USER_INPUT)
    twin = copy.deepcopy(ep)
    product.replace_all_uses_with(result)
    ep.graph.erase_node(product)
    assert ep.remove_unused_inputs() == [name]
    assert "sub.scale" not in ep.state_dict
    assert "sub.scale" not in ep.constants
    assert_runs_like(ep, "linear")
    assert "sub.scale" in ({**twin.state_dict, **twin.constants})
    twin.verify()


@ways
def test_names_that_are_none(way):
    ep = program("linear", way)
    before = str(ep)
    for wrong in (None, 1, ["a"]):
        with pytest.raises(TypeError):
            ep.add_constant(wrong, torch.ones(1))
    for wrong in ("", ".", "a..b", "a."):
        with pytest.raises(ValueError, match="path"):
            ep.add_constant(wrong, torch.ones(1))
    with pytest.raises((TypeError, ValueError)):
        ep.add_constant("a", object())
    assert str(ep) == before
    assert not ep.constants


def test_names_that_are_taken():
    ep = fastexport.load(sample("linear"))
    names = [ep.add_constant(path, array.array("f", [1.0])).name for path in ("a.b", "a_b", "a-b", "é.²")]
    assert names == ["c_a_b", "c_a_b_1", "c_a_b_2", "c_é__"]
    ep.verify()
