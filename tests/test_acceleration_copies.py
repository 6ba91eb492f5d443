"""Copies of torch graphs and modules under accelerate(): the same as torch's in everything that is seen of them."""

import collections
import copy
import gc
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import example, given
from torch import fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.immutable_collections import immutable_list

import fastexport
from fastexport.acceleration import _copies
from fx_graphs import (
    MODELS,
    Pair,
    build,
    exported,
    exported_cond,
    graph_of,
    module_state,
    modules_of,
    owned,
    recipes,
    state,
)
from helpers import Counts

aten = torch.ops.aten
ONLY = ["graph_copy", "deepcopy_module", "create_node"]


def accelerated():
    return fastexport.accelerate(only=ONLY)


def both(function):
    """What torch makes, and what comes of it under accelerate()."""
    stock = function()
    with accelerated():
        return stock, function()


# ---- graphs


@given(recipes)
@example(([], None))
def test_deepcopy_of_random_graphs(recipe):
    graph = build(recipe)
    before = state(graph)
    stock, ours = both(lambda: copy.deepcopy(graph))
    assert state(ours) == state(stock)
    assert state(graph) == before


@pytest.mark.parametrize("name", MODELS)
def test_graphs_of_models(name):
    program, _ = exported(name)
    counts = Counts("graph_copy")
    for graph in (program.graph, program.module().graph):
        stock, ours = both(lambda graph=graph: copy.deepcopy(graph))
        assert state(ours) == state(stock)
        assert type(ours._codegen) is type(stock._codegen) and ours._codegen is not graph._codegen
        assert ours._tracer_cls is stock._tracer_cls
    assert counts() == (2, 0)


def test_copies_work_on():
    graph = graph_of(
        ("call_function", torch.add, ("%x", 1)),
        ("call_function", torch.mul, (["%add", "%x"], slice(None, "%add")), {"out": "%add"}),
        output=["%mul", {"k": "%x"}],
    )

    def edited():
        made = copy.deepcopy(graph)
        first, second = list(made.nodes)[1:3]
        with made.inserting_after(first):
            new = made.call_function(torch.add, (first, 2))
        second.replace_input_with(first, new)
        made.erase_node(made.create_node("call_method", "relu", (new,)))
        return made

    stock, ours = both(edited)
    assert state(ours) == state(stock)
    ours.lint()


def test_containers_are_not_shared():
    graph = graph_of(("call_function", torch.cat, (["%x"], 0)))
    with accelerated():
        made = copy.deepcopy(graph)
    old, new = list(graph.nodes)[1], list(made.nodes)[1]
    assert type(new.args[0]) is immutable_list and new.args[0] is not old.args[0]
    assert new.meta is not old.meta


def copied_into(before=None, val_map=None, graph=None, keep_output=False):
    """A graph that had nodes of its own, after the nodes of another were copied into it."""
    source = graph_of(
        ("call_function", torch.add, ("%x", 1)), ("call_function", torch.add, ("%add", "%x")), output=("%add_1",)
    )
    made = graph or graph_of(("call_function", torch.add, ("%x", 3)))
    nodes = list(made.nodes)
    known = {} if val_map is None else {list(source.nodes)[at]: nodes[to] for at, to in val_map.items()}
    with made.inserting_before(nodes[-1] if before is None else nodes[before]):
        result = made.graph_copy(source, known, keep_output)
    if keep_output and result is not None:  # which it is when the map has the output
        assert result[1] is source.output_node()
        result = result[0]
    return state(made), str(result), [(key.name, value.name) for key, value in known.items()]


@pytest.mark.parametrize("before", [None, 0, 1])
@pytest.mark.parametrize("val_map", [{}, {0: 0}, {0: 1}, {0: 0, 2: 1}, {3: 0}])
@pytest.mark.parametrize("keep_output", [True, False])
def test_graph_copy_into_a_graph_with_nodes(before, val_map, keep_output):
    counts = Counts("graph_copy")
    stock, ours = both(lambda: copied_into(before, val_map, keep_output=keep_output))
    assert ours == stock
    assert counts() == (1, 0)


def test_graph_copy_without_output():
    source = fx.Graph()
    source.placeholder("x")
    with accelerated():
        made = fx.Graph()
        assert made.graph_copy(source, {}) is None
        assert made.graph_copy(source, {}, return_output_node=True) is None
    assert [node.name for node in made.nodes] == ["x", "x_1"]


def test_nodes_after_the_output_are_not_copied():
    graph = graph_of(("call_function", torch.add, ("%x", 1)))
    graph.call_method("relu", (next(iter(graph.nodes)),))
    stock, ours = both(lambda: state(copy.deepcopy(graph)))
    assert ours == stock


def test_names_are_given_anew():
    graph = fx.Graph()
    x = graph.placeholder("input")  # which hides a builtin
    for _ in range(3):
        graph.erase_node(graph.call_method("relu", (x,)))
    y = graph.call_method("relu", (x,))
    graph.call_method("relu", (y,)).name = "free name"
    graph.create_node("call_method", "relu", (y,), name="relu_007")
    graph.output(y)
    counts = Counts("graph_copy")
    stock, ours = both(lambda: state(copy.deepcopy(graph)))
    assert ours == stock
    assert counts() == (1, 0)


# ---- what torch's own loop is left for


def aside(function):
    """The results of both, of which ours stepped aside."""
    counts = Counts("graph_copy")
    stock, ours = both(function)
    assert counts()[1] > 0
    return stock, ours


def test_a_use_before_its_definition():
    graph = graph_of(("call_function", torch.add, ("%x", 1)), ("call_function", torch.mul, ("%add", 2)), output="%mul")
    add, mul = list(graph.nodes)[1:3]
    mul.append(add)

    def half_copied():
        made = fx.Graph()
        with pytest.raises(KeyError) as error:
            made.graph_copy(graph, {})
        return state(made), str(error.value)

    stock, ours = aside(half_copied)
    assert ours == stock


def test_hooks_see_each_node():
    def hooked():
        seen = []
        module = owned(fx.Graph())
        module._register_create_node_hook(lambda node: seen.append((node.name, len(node.graph.nodes))))
        module.graph.graph_copy(graph_of(("call_function", torch.add, ("%x", 1))), {})
        return seen, state(module.graph)

    stock, ours = aside(hooked)
    assert ours == stock and len(ours[0]) == 2


def test_overridden_methods_are_called():
    class Graph(fx.Graph):
        def create_node(self, op, target, *args, **kwargs):
            calls.append(target)
            return super().create_node(op, target, *args, **kwargs)

    class Reversed(fx.Graph):
        @property
        def nodes(self):
            calls.append("nodes")
            return super().nodes

    def overridden():
        calls.clear()
        made, source = Graph(), Reversed()
        source.output(source.placeholder("x"))
        made.graph_copy(graph_of(("call_function", torch.add, ("%x", 1))), {})
        fx.Graph().graph_copy(source, {})
        return list(calls)

    calls = []
    stock, ours = aside(overridden)
    assert ours == stock and len(ours) == 3


def test_a_method_put_on_a_graph_or_its_class(monkeypatch):
    source = graph_of(("call_function", torch.add, ("%x", 1)))
    called = []

    def create_node(*args, **kwargs):
        called.append(args)
        return fx.Graph.create_node(made, *args, **kwargs)

    with accelerated():
        made = fx.Graph()
        made.create_node = create_node
        made.graph_copy(source, {})
        assert len(called) == 2
        monkeypatch.setattr(fx.Graph, "node_copy", lambda self, node, arg_transform: called.append(node))
        fx.Graph().graph_copy(source, {})
        assert len(called) == 4


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"k": (x,)}, lambda x: collections.deque([x])])
def test_raw_symbols_are_warned_of(wrap):
    graph = graph_of(("call_function", torch.add, ("%x", 1)))
    with warnings.catch_warnings(), graph.inserting_before(graph.output_node()):
        warnings.simplefilter("ignore")
        graph.call_function(torch.mul, (wrap(ShapeEnv().create_unbacked_symint()), 2))

    def copied():
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            made = fx.Graph()
            made.graph_copy(graph, {})
        return [(str(each.message), each.category, each.filename, each.lineno) for each in heard]

    stock, ours = aside(copied)
    assert ours == stock and len(ours) == 1


def odd_graph(kind):
    graph = graph_of(("call_function", torch.add, ("%x", 1)), ("call_function", torch.mul, ("%add", 2)))
    x, add, mul = list(graph.nodes)[:3]
    if kind == "named tuple":
        mul.args = (Pair(add, 1),)
    elif kind == "raw list":
        mul.insert_arg(0, [x, add])
    elif kind == "meta of a class":
        add.meta = collections.OrderedDict(a=1)
    elif kind == "odd keys":
        mul.args = ({1: add},)
    elif kind == "container of pytree":
        mul.args = (collections.OrderedDict(a=1), collections.deque([1]), torch.Size([1]))
        object.__setattr__(mul, "_args", (add, collections.deque([1])))
    return graph


@pytest.mark.parametrize("kind", ["named tuple", "raw list", "meta of a class", "odd keys", "container of pytree"])
def test_odd_graphs(kind):
    graph = odd_graph(kind)
    stock, ours = aside(lambda: copy.deepcopy(graph))
    assert state(ours) == state(stock)
    assert [type(node.meta) for node in ours.nodes] == [type(node.meta) for node in stock.nodes]


def test_a_map_of_another_class():
    class Map(dict):
        def __missing__(self, key):
            return list(made.nodes)[0]

    source = graph_of(("call_function", torch.add, ("%x", 1)), output="%add")
    with accelerated():
        made = graph_of()
        counts = Counts("graph_copy")
        made.graph_copy(source, Map())
        assert counts() == (0, 1)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before(enabled):
    graph = graph_of(("call_function", torch.add, ("%x", 1)))
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with accelerated():
            copy.deepcopy(graph)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


OUT_OF_MEMORY = """
import _testcapi, sys
sys.path.insert(0, {tests!r})
import torch
from torch.utils._pytree import SUPPORTED_NODES
from fastexport import _core, _torch
from fx_graphs import graph_of, state

source = graph_of(
    ("call_function", torch.cat, (["%x", ("%x", slice(0, "%x"))],), {{"out": "%x"}}),
    ("call_function", torch.relu, ("%cat",)),
    ("call_function", torch.relu, ("%cat",)),
    output=["%relu"],
)
failures = [0, 0]
for lasting in (False, True):
    at = successes = 0
    while successes < 8:
        graph = graph_of(("call_function", torch.relu, ("%x",)))
        known = {{next(iter(source.nodes)): next(iter(graph.nodes))}} if at % 2 else {{}}
        before = state(graph), dict(known)
        try:
            _testcapi.set_nomemory(at, 0 if lasting else at + 1)
            try:
                done = _core.fx_copy(graph, graph._root, source, known, SUPPORTED_NODES)
            finally:
                _testcapi.remove_mem_hooks()
            successes += 1
        except MemoryError:
            successes = 0
            failures[lasting] += 1
            assert (state(graph), known) == before
            done = _core.fx_copy(graph, graph._root, source, known, SUPPORTED_NODES)
        assert done == (source.output_node(),)
        graph.lint()
        at += 1
print(*failures)
"""


def test_out_of_memory():
    pytest.importorskip("_testcapi")
    script = OUT_OF_MEMORY.format(tests=str(pathlib.Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(int(count) > 20 for count in done.stdout.split())


# ---- modules


def shape_of(value, seen):
    """A value as plain values; what was met before is told by its number, so that sharing shows."""
    if isinstance(value, (type(None), bool, int, float, str, bytes, type, torch.dtype, torch.device)):
        return value
    if id(value) in seen:
        return f"again {seen[id(value)][0]}"
    seen[id(value)] = len(seen), value
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.tolist(), value.requires_grad, shape_of(vars(value), seen)
    if isinstance(value, fx.Graph):
        return state(value)["text"], len(value.nodes)
    if isinstance(value, dict):
        return type(value).__name__, [(str(key), shape_of(item, seen)) for key, item in value.items()]
    if isinstance(value, (list, tuple, set)):
        return type(value).__name__, [shape_of(item, seen) for item in value]
    if isinstance(value, torch.nn.Module):
        return type(value).__mro__[-3:], type(value).__name__, shape_of(vars(value), seen)
    return type(value).__name__


def module_with(children):
    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, child in children.items():
                setattr(self, name, child)

        def forward(self, x):
            return x + 1

    return fx.symbolic_trace(Root()), children


def trees():
    def holder(**values):
        module = torch.nn.Module()
        for name, value in values.items():
            setattr(module, name, value)
        return module

    shared, weight = torch.nn.Linear(2, 2), torch.nn.Parameter(torch.ones(2))
    tensor, mine = torch.ones(2), {"of": "mine"}
    yield (
        "plain",
        {"a": holder(w=torch.nn.Parameter(torch.ones(1)), deep=holder(t=torch.ones(2))), "b": torch.nn.ReLU()},
    )
    yield "shared", {"a": holder(m=shared), "b": holder(m=shared, again=shared), "c": shared}
    yield "tied", {"a": holder(w=weight), "b": holder(w=weight, v=torch.nn.Parameter(weight.data))}
    yield "tensors", {"a": holder(t=tensor), "b": holder(t=tensor, view=tensor[:1])}
    yield (
        "objects",
        {"a": holder(t=mine, u=[mine]), "b": holder(t=mine), "c": holder(s={1, 2}, k=(1, (2,)), o=object())},
    )
    yield "norm", {"n": torch.nn.BatchNorm2d(2), "l": torch.nn.LayerNorm(2), "d": torch.nn.Sequential(torch.nn.ReLU())}
    buffer = holder()
    buffer.register_buffer("b", torch.ones(1), persistent=False)
    buffer.register_forward_hook(lambda *args: None)
    yield "buffers and hooks", {"a": buffer}
    marked = torch.nn.Parameter(torch.ones(1))
    marked.note, marked_tensor = {"a": 1}, torch.ones(1)
    marked_tensor.note = {"a": 1}
    yield "marked tensors", {"a": holder(w=marked, t=marked_tensor)}
    ring = holder()
    ring.around = [ring]
    yield "a ring", {"a": ring}

    class Copied(torch.nn.Module):
        def __deepcopy__(self, memo):
            return self

    class State(torch.nn.Module):
        def __getstate__(self):
            return {**vars(self), "got": True}

    class Slots(torch.nn.Module):
        __slots__ = ("extra",)

    slots = Slots()
    slots.extra = 5
    yield "classes of their own", {"a": Copied(), "b": holder(m=State()), "c": slots}
    yield "old state", {"a": holder(x=1)}


TREES = dict(trees())


@pytest.mark.parametrize("kind", TREES)
def test_deepcopy_of_a_module(kind):
    module, children = module_with(TREES[kind])
    for name, child in children.items():
        setattr(module, name, child)
    module.meta["note"] = {"a": [1]}
    if kind == "old state":
        del vars(module.a)["_forward_pre_hooks"]
    before = shape_of(module, {})
    stock, ours = both(lambda: shape_of(copy.deepcopy(module), {}))
    assert ours == stock
    assert shape_of(module, {}) == before


def test_a_child_that_knows_its_parent():
    module, _ = module_with({})
    child = torch.nn.Module()
    child.parents = [module]
    module.child = child
    stock, ours = both(lambda: copy.deepcopy(module))
    assert (ours.child.parents[0] is ours) == (stock.child.parents[0] is stock)


def test_the_memo_is_filled_and_holds_what_it_names():
    module, _ = module_with({})
    module.layer = torch.nn.Linear(2, 2)
    memo = {}
    with accelerated():
        made = module.__deepcopy__(memo)
    assert memo[id(module)] is made and memo[id(module.layer)] is made.layer
    assert memo[id(module.layer.weight)] is made.layer.weight
    assert any(kept is module.layer for kept in memo[id(memo)])
    with accelerated():
        assert copy.deepcopy(module.layer, memo) is made.layer


def test_a_tensor_that_can_not_be_copied():
    module, _ = module_with({})
    module.layer = torch.nn.Linear(2, 2)
    module.layer.result = module.layer.weight * 2

    def failed():
        with pytest.raises(RuntimeError) as error:
            copy.deepcopy(module)
        return str(error.value)

    stock, ours = both(failed)
    assert ours == stock


@pytest.mark.parametrize("name", MODELS)
def test_modules_of_models(name):
    program, args = exported(name)
    module = program.module()
    stock, ours = both(lambda: copy.deepcopy(module))
    assert module_state(ours) == module_state(stock)
    assert shape_of(ours, {}) == shape_of(stock, {})
    assert list(ours.state_dict()) == list(stock.state_dict())
    with torch.no_grad():
        assert all(map(torch.equal, pytree.tree_leaves(ours(*args)), pytree.tree_leaves(stock(*args))))


def test_subgraphs():
    module = exported_cond()[0].module()
    stock, ours = both(lambda: copy.deepcopy(module))
    assert module_state(ours) == module_state(stock) and len(modules_of(ours)) > 2


def test_with_torch_as_the_judge():
    module = exported("llama")[0].module()
    with fastexport.accelerate(only=ONLY, verify=True):
        made = copy.deepcopy(module)
    assert module_state(made).keys() == module_state(module).keys()


@pytest.mark.parametrize("kind", [torch.nn.Module, torch.nn.Linear, torch.nn.Dropout, torch.nn.ReLU])
def test_torchs_modules_are_copied_without_being_asked(kind):
    assert _copies._is_plain_kind(kind)


def test_what_a_module_was_compiled_to_is_not_copied():
    module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    child = module.get_submodule("0")
    child._compiled_call_impl = None
    expected = copy.deepcopy(module)
    with fastexport.accelerate():
        found = copy.deepcopy(module)
    assert list(vars(found.get_submodule("0"))) == list(vars(expected.get_submodule("0")))
    assert "_compiled_call_impl" not in vars(found.get_submodule("0"))
