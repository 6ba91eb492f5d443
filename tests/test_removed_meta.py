"""What was taken out of a node's meta is seen: no file gets what the node had before, and verify() tells of it."""

import copy
import io
import pickle

import pytest

import fastexport
from pt2_files import sample

WAYS = {
    "del": lambda node: node.meta.__delitem__("val"),
    "pop": lambda node: node.meta.pop("val"),
    "clear": lambda node: node.meta.clear(),
    "assign": lambda node: setattr(node, "meta", {}),
    "popitem": lambda node: [node.meta.popitem() for _ in range(len(node.meta))],
    "none": lambda node: node.meta.update(val=None),
}
# inputs, tensors, several results, one of them, higher-order operators, numbers, constants of the signature
NODES = [
    ("linear", "relu"),
    ("linear", "x"),
    ("linear", "p_fc_bias"),
    ("multi_out", "topk"),
    ("multi_out", "getitem"),
    ("cond_", "cond"),
    ("cond_", "getitem"),
    ("dynamic", "add_1"),
    ("dynamic", "sym_size_int_1"),
    ("sym_int_input", "n"),
    ("scalars", "n"),
]


def words(program):
    return [(fault.code, fault.node, fault.message) for fault in program.verify(all=True)]


def expected(name):
    what = "set it to what the node gives: a FakeTensor, a TensorMeta or the like, or run the pass refresh_fake_tensors"
    return ("FX305", name, f"'{name}' has no meta['val']; {what}")


def saved(program, **options):
    file = io.BytesIO()
    fastexport.save(program, file, **options)
    return file.getvalue()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "node"), NODES)
def test_values(name, node, way):
    program = fastexport.load(sample(name))
    if "val" not in program.graph.node(node).meta:
        pytest.fail("the file has no value to take out")
    WAYS[way](program.graph.node(node))
    for each in (program, copy.copy(program), copy.deepcopy(program)):
        assert expected(node) in words(each)
        with pytest.raises(fastexport.VerifyError, match="has no meta"):
            saved(each)
    if node != "getitem":  # its value stands at what gives it
        for write in (lambda: saved(program, verify=False), lambda: pickle.dumps(program)):
            with pytest.raises(fastexport.FormatError, match="nothing tells"):
                write()


def test_the_same_words_as_of_a_program_of_torch():
    torch = pytest.importorskip("torch")
    program = fastexport.from_export(torch.export.load(sample("linear")))
    del program.graph.node("relu").meta["val"]
    assert words(program) == [expected("relu")]
    from_file = fastexport.load(sample("linear"))
    del from_file.graph.node("relu").meta["val"]
    with pytest.raises(fastexport.VerifyError, match="'relu' has no meta"):
        from_file.to_torch()


def test_a_value_that_is_put_back():
    program = fastexport.load(sample("linear"))
    before = saved(program)
    node = program.graph.node("relu")
    value = node.meta.pop("val")
    node.meta["val"] = value
    assert program.verify(all=True, level="strict") == [] and saved(program) == before


def test_values_of_subgraphs():
    program = fastexport.load(sample("cond_"))
    node = next(n for n in program.graph.subgraphs["true_graph_0"].nodes if n.op == "call_function")
    del node.meta["val"]
    assert expected(node.name) in words(program)


def test_another_operator_has_another_value():
    program = fastexport.load(sample("linear"))
    node = program.graph.node("relu")
    node.target = "torch.ops.aten.sum.default"
    del node.meta["val"]
    with pytest.raises(fastexport.VerifyError, match="'relu' has no meta"):
        fastexport.run_passes(program, ["lint"], check=True)
        program.save(io.BytesIO())
    node.meta["val"] = fastexport.TensorMeta("float32", ())
    assert fastexport.load(saved(program)).graph.node("relu").meta["val"].shape == ()


def test_what_returns_nothing_needs_no_value():
    program = fastexport.load(sample("linear"))
    relu = program.graph.node("relu")
    with program.graph.inserting_after(relu):
        program.graph.call_function("torch.ops.aten._assert_scalar.default", (1, "m"))
    assert program.verify(all=True) == []
    relu.replace_all_uses_with(program.graph.node("linear"))
    relu.target, relu.args = "torch.ops.aten._assert_scalar.default", (1, "m")
    del relu.meta["val"]
    assert program.verify(all=True) == []
    assert "val" not in fastexport.load(saved(program)).graph.node("relu").meta


@pytest.mark.parametrize("name", ["linear", "custom_meta", "multi_out", "cond_"])
def test_other_entries(name):
    """Each key in turn, and all of them: gone from the file too, and nothing else is."""
    whole = fastexport.load(sample(name))
    keys = {key for node in whole.graph.nodes for key in node.meta} - {"val"}
    assert len(keys) > 1
    for gone in [*({key} for key in keys), keys]:
        program = fastexport.load(sample(name))
        for node in program.graph.nodes:
            for key in gone:
                node.meta.pop(key, None)
        again = fastexport.load(saved(program))
        for node, other in zip(whole.graph.nodes, again.graph.nodes, strict=True):
            left = {key: value for key, value in node.meta.items() if key not in gone}
            assert dict(other.meta) == left
