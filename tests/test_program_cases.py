"""Faults that people met with exported programs, each with the value that is right; from torch and from files."""

import copy
import io
import operator
import pickle
import zipfile

import pytest
import torch
from torch import nn

import export_kinds
import fastexport
import pt2_torch
from export_kinds import OPS, export, exported, values

aten = torch.ops.aten
Dim = torch.export.Dim


pytestmark = pytest.mark.usefixtures("quiet")


def from_torch(program):
    return fastexport.from_export(program)


def from_file(program):
    file = io.BytesIO()
    torch.export.save(program, file)
    return fastexport.load(file.getvalue())


both = pytest.mark.parametrize("native", [from_torch, from_file])


def saved(ep):
    """A program written by us and read by torch."""
    file = io.BytesIO()
    fastexport.save(ep, file)
    file.seek(0)
    return pt2_torch.load(file)


def verified(ep):
    """It verifies here and in torch; the torch program."""
    assert not [fault for fault in ep.verify(all=True) if fault.is_error]
    program = ep.to_torch()
    program.validate()
    for verifier in program.verifiers:
        verifier().check(program)
    return program


def target_name(node):
    """The target, without what differs between an operator of torch and one of a file."""
    return str(node.target).removeprefix("torch.ops.").removeprefix("higher_order.")


def find(graph, target):
    """The first node that calls an operator."""
    return next(node for node in graph.nodes if target_name(node) == target)


# ---- getitems


def test_a_second_getitem_is_merged_into_the_first():
    def forward(self, x):
        top, places = torch.topk(x, 2)
        return top * 2, places

    program = export(forward, torch.arange(4.0))
    graph = program.graph
    mul = next(node for node in graph.nodes if node.target is aten.mul.Tensor)
    first = mul.args[0]
    with graph.inserting_before(mul):
        again = graph.call_function(operator.getitem, (first.args[0], 0))
    again.meta = dict(first.meta)
    mul.args = (first, again)
    program.graph_module.recompile()

    ep = fastexport.from_export(program)
    assert len(ep.graph.nodes) == 7
    want = ["x", "topk", "getitem", "getitem_1", "mul", "output"]
    assert ep.graph.eliminate_getitems().replaced == {again.name: "getitem"}
    assert [node.name for node in ep.graph.nodes] == want
    assert [user.name for user in ep.graph.node("topk").users] == ["getitem", "getitem_1"]
    for changed in (verified(ep), saved(ep), saved(program), fastexport.from_export(program).to_torch()):
        assert [node.name for node in changed.graph.nodes] == want
        assert changed.module()(torch.arange(4.0))[0].tolist() == [9.0, 4.0]


@both
def test_a_list_that_nobody_uses(native):
    def forward(self, x):
        first, listed, _ = OPS.mixed(x, 2)
        return first * 2, listed[1]

    ep = native(export(forward, torch.ones(2)))
    (results,) = ep.graph.output_node().args
    ep.remove_output(1)
    removed = ep.eliminate_dead_code().removed
    assert results[1].name in removed
    assert sum("getitem" in node.name for node in ep.graph.nodes) == 1
    for changed in (verified(ep), saved(ep)):
        (result,) = torch.utils._pytree.tree_leaves(changed.module()(torch.ones(2)))
        assert result.tolist() == [2.0, 2.0]


# ---- meta


@both
def test_a_replacement_carries_meta(native):
    def forward(self, x):  # torch notes the lines of forward
        return torch.relu(x) + 1

    ep = native(export(forward, values(3)))
    old = find(ep.graph, "aten.relu.default")
    meta = {key: str(value) for key, value in old.meta.items()}
    with ep.graph.inserting_after(old):
        new = ep.graph.call_function("torch.ops.aten.sigmoid.default", (old.args[0],))
    old.replace_all_uses_with(new, propagate_meta=True)
    ep.graph.erase_node(old)
    assert {key: str(value) for key, value in new.meta.items()} == meta
    assert tuple(new.meta["val"].shape) == (3,)
    for changed in (verified(ep), saved(ep)):
        assert torch.equal(changed.module()(values(3)), torch.sigmoid(values(3)) + 1)
        node = find(changed.graph, "aten.sigmoid.default")
        assert str(node.meta["val"].dtype) == "torch.float32"
        assert node.meta["stack_trace"] == meta["stack_trace"]


@both
def test_a_node_without_a_value_is_told_by_its_name(native):
    ep = native(export(lambda self, x: torch.relu(x) + 1, values(3)))
    old = find(ep.graph, "aten.relu.default")
    with ep.graph.inserting_after(old):
        new = ep.graph.call_function("torch.ops.aten.sigmoid.default", (old.args[0],))
    old.replace_all_uses_with(new)
    ep.graph.erase_node(old)
    for check in (ep.verify, ep.validate, lambda: fastexport.save(ep, io.BytesIO())):
        with pytest.raises(fastexport.FastExportError, match="sigmoid"):
            check()


@both
def test_nested_meta_of_copies_is_independent(native):
    ep = native(exported("notes"))
    twins = [copy.deepcopy(ep).graph, copy.deepcopy(ep.graph)]
    by_hand = fastexport.Graph()
    made = {}
    for node in ep.graph.nodes:
        made[node] = by_hand.node_copy(node, lambda operand: made[operand])
    for graph in (*twins, by_hand):
        node = next(node for node in graph.nodes if node.meta.get("custom"))
        node.meta["custom"]["tags"].append("changed")
        node.meta["custom"]["partition"] = 2
    for node in ep.graph.nodes:
        if custom := node.meta.get("custom"):
            assert custom == {"partition": 1, "tags": ["a", "é\u2028", None], "share": 0.5}


@both
def test_custom_meta_survives_every_way(native):
    want = {"partition": 1, "tags": ["a", "é\u2028", None], "share": 0.5}
    ep = native(exported("notes"))
    programs = [ep, verified(ep), saved(ep), pickle.loads(pickle.dumps(ep)), copy.deepcopy(ep), from_file(saved(ep))]
    for program in programs:
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        assert [node.meta["custom"] for node in calls] == [want] * 2
        assert program.graph_module.meta["custom"] == {"who": "a test"}


# ---- pickle


@both
@pytest.mark.parametrize("name", ["arguments_written", "buffers_written", "choice", "sizes", "constants"])
def test_pickle_is_no_new_trace(native, name):
    ep = native(exported(name))
    twin = pickle.loads(pickle.dumps(ep))
    assert str(twin.graph) == str(from_file(exported(name)).graph)  # a file has lists where torch may have tuples
    assert str(twin.graph_signature) == str(ep.graph_signature)
    for node, old in zip(twin.graph.nodes, ep.graph.nodes, strict=True):
        assert target_name(node) == target_name(old)
        assert node.meta.get("stack_trace") == old.meta.get("stack_trace")
    program = twin.to_torch()
    want = export_kinds.run(exported(name))
    export_kinds.assert_same_results(export_kinds.run(program, exported(name).example_inputs), want)


# ---- the signature


@both
def test_signature_follows_a_new_result(native):
    ep = native(export(lambda self, x: torch.relu(x) + 1, values(3)))
    old = find(ep.graph, "aten.add.Tensor")
    with ep.graph.inserting_after(old):
        new = ep.graph.call_function("torch.ops.aten.add.Tensor", (old.args[0], 2))
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)
    ep.graph.erase_node(old)
    assert ep.graph_signature.user_outputs == (new.name,)
    for changed in (verified(ep), saved(ep)):
        assert changed.graph_signature.user_outputs == (new.name,)
        assert torch.equal(changed.module()(values(3)), torch.relu(values(3)) + 2)


@both
def test_signature_follows_a_renamed_argument_and_update(native):
    ep = native(exported("arguments_written_decomposed"))
    before = ep.graph_signature.user_inputs_to_mutate
    ep.graph.node("x").name = "data"
    for name in list(before):
        ep.graph.node(name).name = f"new_{name}"
    want = {f"new_{name}": "data" if target == "x" else target for name, target in before.items()}
    assert dict(ep.graph_signature.user_inputs_to_mutate) == want
    args, _ = exported("arguments_written_decomposed").example_inputs
    expected = exported("arguments_written_decomposed").module()(*copy.deepcopy(args))
    for changed in (verified(ep), saved(ep)):
        assert dict(changed.graph_signature.user_inputs_to_mutate) == want
        got = changed.module()(*copy.deepcopy(args))
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@both
def test_dead_code_leaves_inputs_and_updates(native):
    def forward(self, x):
        self.seen.add_(1)
        return x + torch.tensor([1.0, 2.0]) * self.factor

    members = {"factor": nn.Buffer(torch.ones(2)), "seen": nn.Buffer(torch.zeros(1))}
    ep = native(export(forward, torch.ones(2), members=members).run_decompositions({}))
    mul = find(ep.graph, "aten.mul.Tensor")
    mul.args = (mul.args[0], 3)  # nobody uses the buffer now
    before = str(ep.graph_signature)
    ep.eliminate_dead_code()
    assert str(ep.graph_signature) == before
    assert len(ep.graph.find_nodes(op="placeholder")) == len(ep.graph_signature.input_specs) == 4
    (update,) = ep.graph_signature.buffers_to_mutate
    assert target_name(ep.graph.node(update)) == "aten.add.Tensor"
    for changed in (verified(ep), saved(ep)):
        module = changed.module()
        assert module(torch.ones(2)).tolist() == [4.0, 7.0]
        assert module.get_buffer("seen").tolist() == [1.0]
    assert ep.remove_unused_inputs() == ["b_factor"]
    for changed in (verified(ep), saved(ep)):
        assert list(changed.state_dict) == ["seen"]
        assert changed.module()(torch.ones(2)).tolist() == [4.0, 7.0]


def test_nothing_is_left_after_quantization():
    ep = fastexport.from_export(exported("quantized"))
    left = [node.name for node in ep.graph.find_nodes(op="placeholder") if not node.users]
    assert ep.remove_unused_inputs() == left
    assert not ep.eliminate_dead_code().removed
    assert all(value.dtype is torch.int8 or value.numel() <= 4 for value in ep.state_dict.values())
    got = export_kinds.run(verified(ep), exported("quantized").example_inputs)[0]
    assert torch.equal(got, export_kinds.run(exported("quantized"))[0])


# ---- sizes


def test_a_sum_of_three_sizes_is_saved(tmp_path):
    program = exported("sym_sum")
    path = tmp_path / "sum.pt2"
    fastexport.save(program, path)
    loaded = pt2_torch.load(path)
    assert loaded.module()(torch.ones(6), torch.ones(7), torch.ones(8)).shape == (21, 1)
    assert repr(loaded.range_constraints) == repr(program.range_constraints)
    assert len(loaded.range_constraints) == 3
    ep = fastexport.load(path)
    assert sorted(map(str, ep.range_constraints)) == sorted(map(str, program.range_constraints))


def bounds(program):
    return sorted((str(symbol), int(r.lower), int(r.upper)) for symbol, r in program.range_constraints.items())


@both
def test_ranges_survive(native):
    program = exported("sizes_multiple")
    want = bounds(program)
    assert sorted(pair[1:] for pair in want) == [(2, 16), (2, 64), (8, 64)]
    ep = native(program)
    ep.eliminate_dead_code()
    ep.eliminate_getitems()
    assert bounds(ep) == want
    shapes = [str(node.meta["val"].shape) for node in program.graph.nodes if hasattr(node.meta.get("val"), "shape")]
    for changed in (verified(ep), saved(ep), saved(program)):
        assert bounds(changed) == want
        assert shapes == [
            str(node.meta["val"].shape) for node in changed.graph.nodes if hasattr(node.meta.get("val"), "shape")
        ]
        assert changed.module()(torch.ones(5, 20)).shape == (5, 5)
        with pytest.raises(Exception, match="(?i)guard|expected|size"):
            changed.module()(torch.ones(5, 19))
        with pytest.raises(Exception, match="(?i)guard|expected|size"):
            changed.module()(torch.ones(65, 20))


@both
@pytest.mark.parametrize("name", ["sizes", "sizes_equal", "sizes_multiple"])
def test_guards_follow_a_renamed_argument(native, name):
    args, _ = exported(name).example_inputs
    want = exported(name).module()(*args)
    ep = native(exported(name))
    assert any("L['x']" in guard for guard in ep.guards)
    ep.rename_input("x", "data")
    assert not any("L['x']" in guard for guard in ep.guards)
    for changed in (ep.to_torch(), saved(ep), copy.deepcopy(ep).to_torch(), pickle.loads(pickle.dumps(ep)).to_torch()):
        assert len(changed._guards_code) == len(exported(name)._guards_code)
        results = zip(*map(torch.utils._pytree.tree_leaves, (changed.module()(*args), want)), strict=True)
        assert all(pt2_torch.same(a, b) for a, b in results)


@both
def test_guards_of_an_argument_that_goes(native):
    rows = {0: Dim("rows", min=2, max=9)}
    shapes = {"x": rows, "spare": {0: Dim("more", min=3, max=5)}}
    program = export(lambda self, x, spare: x + 1, values(4), values(4), dynamic_shapes=shapes)
    ep = native(program)
    ep.remove_input("spare")
    assert ep.guards == [guard for guard in program._guards_code if "spare" not in guard]
    for changed in (verified(ep), saved(ep)):
        assert torch.equal(changed.module()(values(9)), values(9) + 1)
        with pytest.raises(Exception, match="(?i)guard|expected"):
            changed.module()(values(10))


# ---- files that run code


class Marker:
    called = 0

    def __reduce__(self):
        return (_mark, ())


def _mark():
    Marker.called += 1


def test_a_file_runs_nothing_until_it_is_trusted():
    torch_file, evil, changed = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.export.save(exported("linear"), torch_file)
    torch.save(((Marker(),), {}), evil)
    with zipfile.ZipFile(torch_file) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, evil.getvalue() if "sample_inputs" in name else old.read(name))
    Marker.called = 0
    ep = fastexport.load(changed.getvalue())
    ep.verify()
    ep.to_torch()
    copy.deepcopy(ep)
    fastexport.save(ep, io.BytesIO())
    with pytest.raises(fastexport.FormatError, match=r"sample_inputs.*_mark"):
        _ = ep.example_inputs
    with pytest.raises(Exception, match="_mark|[Ww]eights.only"):
        ep.to_torch(example_inputs=True)
    assert Marker.called == 0


# ---- effects


@pytest.fixture
def effectful():
    """Operators with an effect, of one, two and a list of results."""
    with torch.library._scoped_library("fe_effects", "FRAGMENT") as library:
        for name, results, function in (
            ("one", "Tensor", lambda x: x + 1),
            ("two", "(Tensor, Tensor)", lambda x: (x + 1, x - 1)),
            ("many", "Tensor[]", lambda x: [x + 1, x - 1]),
        ):
            library.define(f"{name}(Tensor x) -> {results}")
            library.impl(name, function, "CompositeExplicitAutograd")
            torch.library._register_effectful_op(f"fe_effects::{name}", torch._library.effects.EffectType.ORDERED)
        yield torch.ops.fe_effects


def several_effects(ops):
    def forward(self, x):
        first = ops.one(x)
        left, right = ops.two(first)
        some = ops.many(x)
        _, last = ops.two(x)
        return first + left * right, some[0], some[1], last

    return lambda: export(forward, values(3)).run_decompositions()


def effects_in_a_subgraph(ops):
    @torch.compiler.nested_compile_region
    def region(x):
        return ops.one(x).sin()

    def forward(self, x):
        return region(ops.one(x)) + region(x)

    return lambda: export(forward, values(3), strict=True).run_decompositions()


def an_effect_without_result(ops):
    return lambda: exported("effects")


effects = pytest.mark.parametrize("make", [several_effects, effects_in_a_subgraph, an_effect_without_result])


def shape_of(graph):
    """Each node by its operation and operands, whatever they are called."""
    graph.eliminate_dead_code()
    places = {node: place for place, node in enumerate(graph.nodes)}
    return [
        (node.op, node.op == "call_function" and target_name(node), [places[each] for each in node.all_input_nodes])
        for node in graph.nodes
    ]


@both
@effects
def test_an_unlifted_module_has_no_tokens(effectful, native, make):
    make = make(effectful)
    ep = native(make())
    before = str(ep.graph)
    module = ep.unlift()
    assert str(ep.graph) == before
    theirs = make().module(check_guards=False)  # torch takes tokens out of the subgraphs of the program, too
    assert shape_of(module.graph) == shape_of(theirs.graph)
    for path, graph in (module.graph.subgraphs or {}).items():
        assert shape_of(graph) == shape_of(theirs.get_submodule(path).graph)


@both
@effects
def test_a_token_is_no_result(effectful, native, make):
    ep = native(make(effectful)())
    before, tokens = str(ep), []
    for node in list(ep.graph.nodes):
        value = node.meta.get("val")
        if tuple(getattr(value, "shape", ())) == (0,):
            tokens.append(node)
            with pytest.raises(ValueError, match=f"'{node.name}' is a token"):
                ep.add_output(node)
    assert len(tokens) >= 2
    assert str(ep) == before
