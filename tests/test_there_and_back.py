"""A program of every kind goes into the core and comes back: from torch, from and to a file, and edited."""

import functools
import io

import pytest
import torch

import export_kinds
import fastexport
import pt2_torch
from export_kinds import KINDS, NOT_LOADED, NOT_SAVED, exported
from pt2_files import subgraph_texts
from torch_programs import assert_same_programs, graph_modules

aten = torch.ops.aten

SAVED = [name for name in KINDS if name not in NOT_SAVED]
LOADED = [name for name in SAVED if name not in NOT_LOADED]
# Their files hold pickles that torch would run: of objects, or of arguments that it does not know.
PICKLED = {"script_object", "script_object_argument", "subclass_weight", "queues"}

HAS_DEAD_CODE = {"many_results", "options", "randomness", "unused", "own_lists"}

every_kind = pytest.mark.parametrize("name", KINDS)


pytestmark = pytest.mark.usefixtures("quiet")


@functools.cache
def results(name):
    return export_kinds.run(exported(name))


@functools.cache
def torch_file(name):
    """What torch.export.save writes."""
    file = io.BytesIO()
    torch.export.save(exported(name), file)
    return file.getvalue()


def torch_loads(data):
    return pt2_torch.load(io.BytesIO(data))


@functools.cache
def torch_program(name):
    """What torch.export.load makes of its file, of which nobody may change anything."""
    return torch_loads(torch_file(name))


def torch_verifies(program):
    """torch's own verdict, by the verifiers of the program and its own method."""
    for verifier in program.verifiers:
        verifier().check(program)
    program.validate()


# ---- from torch


@every_kind
def test_from_torch_and_back(name):
    program = exported(name)
    back = fastexport.from_export(program).to_torch()
    assert_same_programs(back, program)
    torch_verifies(back)
    export_kinds.assert_same_results(export_kinds.run(back), results(name))


@every_kind
def test_objects_stay_the_same_objects(name):
    program = exported(name)
    back = fastexport.from_export(program).to_torch()
    for part in ("state_dict", "constants"):
        ours, theirs = getattr(back, part), getattr(program, part)
        assert list(ours) == list(theirs)
        assert all(ours[key] is theirs[key] for key in theirs)
    twins = graph_modules(back)
    for path, module in graph_modules(program).items():
        assert module is not twins[path]
        for node, twin in zip(module.graph.nodes, twins[path].graph.nodes, strict=True):
            assert twin is not node
            assert list(twin.meta) == list(node.meta)
            assert all(twin.meta[key] is value for key, value in node.meta.items())


@every_kind
def test_texts_of_the_native_program(name):
    program = exported(name)
    ep = fastexport.from_export(program)
    assert str(ep.graph) == str(program.graph)
    inner = {path: str(module.graph) for path, module in graph_modules(program).items() if path}
    assert subgraph_texts(ep.graph) == inner
    assert str(ep.graph_signature) == str(program.graph_signature)
    assert ep.verify() == []


# ---- from a file


@pytest.mark.parametrize("name", LOADED)
def test_from_a_file_to_torch(name):
    want = torch_program(name)
    got = fastexport.load(torch_file(name)).to_torch(example_inputs=True, pickles=name in PICKLED)
    assert_same_programs(got, want)
    torch_verifies(got)
    export_kinds.assert_same_results(export_kinds.run(got), results(name))


@pytest.mark.parametrize("name", LOADED)
def test_what_torch_loads_is_read_again(name):
    want = torch_program(name)
    ep = fastexport.from_export(want)
    assert_same_programs(ep.to_torch(), want)
    loaded = fastexport.load(torch_file(name))
    assert str(loaded.graph) == str(ep.graph)
    assert subgraph_texts(loaded.graph) == subgraph_texts(ep.graph)
    assert str(loaded.graph_signature) == str(ep.graph_signature)


# ---- to a file


def saved(program):
    file = io.BytesIO()
    fastexport.save(program, file)
    return file.getvalue()


@pytest.mark.parametrize("name", LOADED)
def test_to_a_file(name):
    data = saved(exported(name))
    got = torch_loads(data)
    assert_same_programs(got, torch_program(name))
    export_kinds.assert_same_results(export_kinds.run(got), results(name))
    loaded = fastexport.load(data)
    assert not [fault for fault in loaded.verify(all=True) if fault.is_error]
    assert str(loaded.graph) == str(fastexport.load(torch_file(name)).graph)


@pytest.mark.parametrize("name", sorted(NOT_SAVED))
def test_what_torch_does_not_save(name, tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(b"what was there")
    program = exported(name)
    try:
        fastexport.save(program, path)
    except Exception as error:
        assert path.read_bytes() == b"what was there"
        assert list(tmp_path.iterdir()) == [path]
        assert any(node.name in str(error) for node in program.graph.nodes if node.op == "call_function"), error
    else:
        got = torch_loads(path.read_bytes())
        export_kinds.assert_same_results(export_kinds.run(got), results(name))


# ---- edits


def edited(name, edit):
    """The program with an edit of its native form, as torch takes it."""
    ep = fastexport.from_export(exported(name))
    edit(ep)
    program = ep.to_torch()
    torch_verifies(program)
    return program


def graphs(graph):
    """A graph and all its subgraphs."""
    yield graph
    for inner in (graph.subgraphs or {}).values():
        yield from graphs(inner)


@every_kind
def test_edits_that_change_no_result(name):
    """Dead code goes, every node gets another name, and identities are put before the results."""
    dead, added = [], []

    def edit(ep):
        before = [set(map(str, graph.nodes)) for graph in graphs(ep.graph)]
        ep.eliminate_dead_code()
        dead.extend(names - set(map(str, graph.nodes)) for names, graph in zip(before, graphs(ep.graph), strict=True))
        for graph in graphs(ep.graph):
            for node in graph.nodes:
                if node.op != "output":
                    node.name = f"my_{node.name}"
        added.extend(tensor_results(ep))
        append(ep, added, aten.clone.default)

    program = edited(name, edit)
    assert any(dead) == (name in HAS_DEAD_CODE)
    modules = graph_modules(program).values()
    for (path, module), gone in zip(graph_modules(exported(name)).items(), dead, strict=True):
        left = [f"my_{node.name}" for node in module.graph.nodes if node.name not in gone and node.op != "output"]
        got = [node.name for node in graph_modules(program)[path].graph.nodes if node.op != "output"]
        assert got[: len(left)] == left
        assert len(got) == len(left) + (len(added) if not path else 0)
    assert len(modules) == len(dead)
    export_kinds.assert_same_results(export_kinds.run(program), results(name), strides=False)
    if name in LOADED and name != "script_object_argument":  # torch finds the object by the old name
        again = torch_loads(saved(program))
        export_kinds.assert_same_results(export_kinds.run(again), results(name), strides=False)


def tensor_results(ep, *, floating=False):
    """(place, node) of the results for a caller that are tensors."""
    (outputs,) = ep.graph.output_node().args
    for place, (spec, node) in enumerate(zip(ep.graph_signature.output_specs, outputs, strict=True)):
        value = node.meta.get("val") if isinstance(node, fastexport.Node) else None
        if spec.kind is fastexport.OutputKind.USER_OUTPUT and isinstance(value, torch.Tensor):
            if not floating or value.dtype.is_floating_point:
                yield place, node


def append(ep, places, target):
    """Put a call of one operand behind some results of a program."""
    output = ep.graph.output_node()
    results = list(output.args[0])
    for place, node in places:
        with ep.graph.inserting_before(output):
            new = ep.graph.call_function(target, (node,))
        new.meta = dict(node.meta)
        results[place] = new
    output.args = (tuple(results),)


@every_kind
def test_an_output_is_replaced(name):
    changed = []

    def edit(ep):
        changed.extend(list(tensor_results(ep, floating=True))[:1])
        append(ep, changed, "torch.ops.aten.neg.default")

    program = edited(name, edit)
    if not changed:
        assert name in ("joint",)
        return
    ((place, node),) = changed
    signature = program.graph_signature
    assert signature.output_specs[place].arg.name not in ("", node.name)
    number = sum(spec.kind.name == "USER_OUTPUT" for spec in signature.output_specs[:place])
    got, want = export_kinds.run(program), results(name)
    assert torch.equal((-got[number]).nan_to_num(), want[number].nan_to_num())
    del got[number]
    export_kinds.assert_same_results(got, [*want[:number], *want[number + 1 :]])


SWAPS = {aten.add.Tensor: aten.sub.Tensor, aten.mul.Tensor: aten.add.Tensor, aten.relu.default: aten.sigmoid.default}


def swap(graph):
    for node in graph.nodes:
        if node.op == "call_function" and node.target in SWAPS:
            node.target = SWAPS[node.target]


@every_kind
def test_operators_are_swapped(name):
    program = exported(name)
    theirs = fastexport.from_export(program).to_torch()
    swap(theirs.graph)
    theirs.graph_module.recompile()
    ours = edited(name, lambda ep: swap(ep.graph))
    assert str(ours.graph) == str(theirs.graph)
    if str(ours.graph) != str(program.graph):
        export_kinds.assert_same_results(export_kinds.run(ours), export_kinds.run(theirs))


# ---- dynamic sizes


GROWN = {
    "sizes": ((7, 4), (9, 4)),
    "sizes_derived": ((9, 4), (8, 4)),
    "sizes_multiple": ((5, 20),),
    "sizes_found": ((2, 7, 12),),
    "sizes_equal": ((5, 2), (2, 5)),
    "sym_arithmetic": ((9, 4),),
    "sym_results": ((8, 3),),
    "sym_sum": ((6,), (7,), (8,)),
    "attention": ((3, 5, 8),),
}


@pytest.mark.parametrize("name", GROWN)
def test_other_sizes(name):
    args = tuple(export_kinds.values(*shape) for shape in GROWN[name])
    want = export_kinds.run(exported(name), (args, {}))
    programs = [fastexport.from_export(exported(name)).to_torch()]
    if name in LOADED:
        programs += [fastexport.load(torch_file(name)).to_torch(), torch_loads(saved(exported(name)))]
    for program in programs:
        export_kinds.assert_same_results(export_kinds.run(program, (args, {})), want)
