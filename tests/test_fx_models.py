"""Passes on models and on programs of every kind, through every door: what is computed stays the same, bit for bit."""

import copy
import functools

import pytest
import torch
from torch import fx
from torch.utils import _pytree as pytree

import fastexport
from export_kinds import KINDS, assert_same_results, exported, run, same_value
from fx_graphs import exported as exported_model
from fx_graphs import zoo

PASSES = [
    "eliminate_getitems",
    "eliminate_common_subexpressions",
    "remove_noops",
    "fold_constants",
    "eliminate_dead_code",
]
pytestmark = [pytest.mark.models, pytest.mark.usefixtures("quiet")]
every_kind = pytest.mark.parametrize("name", KINDS)


def called(module, args, kwargs=None):
    """The flat results of a module; the arguments stay as they are."""
    args, kwargs = copy.deepcopy((args, kwargs or {}))
    torch.manual_seed(0)
    with torch.no_grad():
        return pytree.tree_leaves(module(*args, **kwargs))


def assert_same(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert same_value(ours, theirs)


# ---- models of the zoo

every_model = pytest.mark.parametrize("name", zoo.MODELS)


@functools.cache
def model(name):
    """The module that torch.export makes of a model, arguments, and its results; not to be changed."""
    program, args = exported_model(name)
    module = program.module()
    return module, args, called(module, args)


def ours_of(module):
    """A module of ours over a graph of its own."""
    return fastexport.GraphModule(module, fastexport.from_fx(module))


@every_model
def test_models_run(name):
    theirs, args, expected = model(name)
    ours = ours_of(theirs)
    assert ours.code == theirs.code
    assert_same(called(ours, args), expected)
    assert_same(called(fastexport.Interpreter(ours).run, args), expected)
    assert_same(called(copy.deepcopy(ours), args), expected)
    assert_same(called(ours.to_fx(), args), expected)


@every_model
@pytest.mark.parametrize("passes", [*([name] for name in PASSES), PASSES], ids=lambda names: "-".join(names))
def test_models_after_passes(name, passes):
    module, args, expected = model(name)
    ours = ours_of(module)
    log = fastexport.run_passes(ours.graph, passes, check=True)
    assert_same(called(ours, args), expected)
    in_place = fx.GraphModule(module, copy.deepcopy(module.graph))
    again = fastexport.run_passes(in_place, passes)
    assert [result.removed for result in again] == [result.removed for result in log]
    assert str(in_place.graph) == str(ours.graph)
    in_place.graph.lint()
    assert_same(called(in_place, args), expected)


@pytest.mark.parametrize("name", ["bert", "llama", "vit", "mobilenet"])
def test_models_after_a_rewrite(name):
    """The operands of sums of tensors change places, which changes no bit."""
    module, args, expected = model(name)
    add = torch.ops.aten.add.Tensor

    def sums(turned):
        graph = fastexport.Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        graph.output(graph.call_function(add, (y, x) if turned else (x, y)))
        return graph

    def of_tensors(match, *_):
        return all(isinstance(value, fastexport.Node) for value in match.placeholder_nodes)

    ours = ours_of(module)
    sums_before = [node.args for node in ours.graph.find_nodes(op="call_function", target=add)]
    done = fastexport.replace_pattern_with_filters(ours.graph, sums(False), sums(True), [of_tensors])
    assert len(done) == sum(isinstance(y, fastexport.Node) and x is not y for x, y in sums_before) > 0
    for match in done:
        (made,) = match.replacements
        inputs = {node.name: value for node, value in match.nodes_map.items()}
        assert made.args == (inputs["y"], inputs["x"])
    fastexport.lint(ours.graph)
    assert_same(called(ours, args), expected)


@every_model
def test_models_in_parts(name):
    """Split into parts of twenty nodes, run, and put together again."""
    module, args, expected = model(name)
    ours = ours_of(module)
    place = {node: i for i, node in enumerate(ours.graph.nodes)}
    found = fastexport.split(ours, lambda node: place[node] // 20)
    assert len(found.partitions) > 2
    assert_same(called(found.result, args), expected)
    fastexport.lint(found.result.graph)
    assert fastexport.inline(found.result)
    assert not found.result.graph.subgraphs
    assert sorted(map(str, targets(found.result.graph))) == sorted(map(str, targets(ours.graph)))
    assert_same(called(found.result, args), expected)
    assert_same(called(ours, args), expected)


def targets(graph):
    return [node.target for node in graph.nodes if node.op == "call_function"]


def test_a_model_is_traced_and_run():
    """Without control flow a model is traced as a whole; calls of its layers stay calls."""
    root, args = zoo.build("mobilenet", 3)
    expected = called(root, args)
    traced, theirs = fastexport.symbolic_trace(root), fx.symbolic_trace(root)
    assert str(traced.graph) == str(theirs.graph) and traced.code == theirs.code
    assert_same(called(traced, args), expected)
    fastexport.run_passes(traced.graph, PASSES, check=True)
    assert_same(called(traced, args), expected)


# ---- programs of every kind


@every_kind
def test_programs_after_passes(name):
    program = exported(name)
    ours = fastexport.from_export(program)
    fastexport.run_passes(ours, PASSES, check=True)
    assert_same_results(run(ours.to_torch()), run(program))


@every_kind
def test_programs_of_torch_after_passes(name):
    program = fastexport.from_export(exported(name)).to_torch()  # a program that may be changed
    fastexport.run_passes(program, PASSES)
    program.validate()
    assert_same_results(run(program), run(exported(name)))


@every_kind
def test_modules_after_passes(name):
    program = exported(name)
    if program.graph_signature.backward_signature is not None:
        pytest.skip("module() is not for it")
    expected = run(program)
    ours = ours_of(copy.deepcopy(program.module()))  # what it writes to is its own
    fastexport.run_passes(ours.graph, PASSES, check=True)
    found = called(ours, *program.example_inputs)
    assert_same(found, expected[: len(found)])
