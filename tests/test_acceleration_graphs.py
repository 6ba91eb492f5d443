"""Dead code, lint and new nodes under accelerate(): torch's results, exceptions, warnings and log, by torch's rules."""

import copy
import logging
import operator
import warnings
from collections import OrderedDict, namedtuple

import pytest
import torch
from hypothesis import given
from torch import fx
from torch._guards import TracingContext, tracing
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import fastexport
from fx_graphs import MODELS, build, exported, exported_cond, graph_of, modules_of, owned, recipes, state
from helpers import Counts, outcome

aten = torch.ops.aten
ONLY = ["lint", "eliminate_dead_code", "create_node"]


def accelerated(**options):
    return fastexport.accelerate(only=ONLY, **options)


def both(function, *args):
    """What torch makes, and what comes of it under accelerate()."""
    stock = function(*args)
    with accelerated():
        return stock, function(*args)


# ---- dead code


def swept(make, **options):
    """The outcome of dead-code elimination on a new graph, and the graph after it."""
    graph = make()
    result = outcome(lambda: graph.eliminate_dead_code(**options))
    return result, state(graph)


@given(recipes)
def test_random_graphs(recipe):
    stock, ours = both(swept, lambda: build(recipe))
    assert ours == stock


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    module = exported(name)[0].module()
    counts = Counts("eliminate_dead_code")

    def with_dead_nodes():
        graph = copy.deepcopy(module.graph)
        graph.owning_module = module
        for node in list(graph.nodes)[5:20:3]:
            with graph.inserting_before(node.next):
                new = graph.call_function(aten.neg.default, (node,))
                graph.call_function(aten.abs.default, (new,))
        return graph

    stock, ours = both(swept, with_dead_nodes)
    assert ours == stock and ours[0] == ("result", True)
    assert counts() == (1, 0)


def test_subgraphs_are_swept_and_recompiled():
    source = exported_cond()[0].module()

    def sweep():
        module = copy.deepcopy(source)
        for child in modules_of(module).values():
            with child.graph.inserting_before(child.graph.output_node()):
                child.graph.call_function(aten.neg.default, (next(iter(child.graph.nodes)),))
        unused = fx.symbolic_trace(torch.nn.ReLU())
        unused.graph.call_function(aten.neg.default, (next(iter(unused.graph.nodes)),))
        module.unused = unused
        changed = module.graph.eliminate_dead_code()
        return changed, {path: (state(child.graph), child.code) for path, child in modules_of(module).items()}

    stock, ours = both(sweep)
    assert ours == stock and ours[0]


def dead(*steps):
    """A graph with an owning module whose every step is dead."""
    graph = graph_of(*steps)
    owned(graph)
    return graph


@pytest.mark.parametrize("fallback", [None, True, False])
def test_random_calls(fallback):
    from torch._inductor import config

    def sweep():
        made = dead(
            ("call_function", aten.rand.default, ([2],)),
            ("call_function", torch.rand, (2,)),
            ("call_function", aten.bernoulli.default, ("%x",)),
        )
        if fallback is None:
            return swept(lambda: made)
        with tracing(TracingContext(None)), config.patch(fallback_random=fallback):
            return swept(lambda: made)

    stock, ours = both(sweep)
    assert ours == stock


def test_a_predicate_is_asked():
    def sweep():
        asked = []

        def is_impure(node):
            asked.append(node.name)
            return node.target is torch.relu

        made = dead(("call_function", torch.relu, ("%x",)), ("call_function", torch.abs, ("%x",)))
        return swept(lambda: made, is_impure_node=is_impure), asked

    counts = Counts("eliminate_dead_code")
    stock, ours = both(sweep)
    assert ours == stock
    assert counts() == (0, 1)


@pytest.mark.parametrize("where", ["node", "library"])
def test_a_patched_purity_check_is_asked(where, monkeypatch):
    holder = fx.Node if where == "node" else torch._library.utils
    monkeypatch.setattr(holder, "is_impure", lambda *args, **kwargs: True)
    stock, ours = both(swept, lambda: dead(("call_function", torch.relu, ("%x",))))
    assert ours == stock and ours[0] == ("result", False)


def test_effects_registered_meanwhile():
    def relu(x):
        return x

    def make():
        return dead(("call_function", relu, ("%x",)))

    with accelerated():
        assert swept(make)[0] == ("result", True)
        fx.node.has_side_effect(relu)
        assert swept(make)[0] == ("result", False)
    fx.node._side_effectful_functions.discard(relu)


def test_call_module_without_an_owner():
    def make():
        return graph_of(("call_function", torch.relu, ("%x",)), ("call_module", "linear", ("%x",)))

    stock, ours = both(swept, make)
    assert ours == stock and ours[0][0] is AssertionError


def test_impure_modules_stay():
    stock, ours = both(
        swept, lambda: dead(("call_module", "deep.impure", ("%x",)), ("call_module", "deep.relu", ("%x",)))
    )
    assert ours == stock


def test_hooks_fire_in_order():
    def sweep():
        seen = []
        graph = dead(("call_function", torch.relu, ("%x",)), ("call_function", torch.abs, ("%relu",)))
        graph.owning_module._register_erase_node_hook(lambda node: seen.append((node.name, len(graph.nodes))))
        return swept(lambda: graph), seen

    stock, ours = both(sweep)
    assert ours == stock and len(ours[1]) == 2


def test_overridden_methods_are_called(monkeypatch):
    called = []

    class Graph(fx.Graph):
        def erase_node(self, node):
            called.append(("erase", node.name))
            super().erase_node(node)

        def lint(self):
            called.append("lint")
            super().lint()

    def sweep():
        called.clear()
        graph = Graph()
        x = graph.placeholder("x")
        graph.call_function(torch.relu, (x,))
        graph.output(x)
        return graph.eliminate_dead_code(), list(called)

    stock, ours = both(sweep)
    assert ours == stock == (True, ["lint", ("erase", "relu")])
    with accelerated():
        monkeypatch.setattr(fx.Graph, "lint", lambda self: called.append("patched"))
        graph_of().eliminate_dead_code()
    assert called[-1] == "patched"


def test_the_log_tells_the_nodes(caplog):
    def sweep():
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="torch.fx.graph"):
            dead(("call_function", torch.relu, ("%x",))).eliminate_dead_code()
        return [(record.message, record.funcName, record.lineno) for record in caplog.records]

    stock, ours = both(sweep)
    assert ours == stock and "relu" in ours[0][0]


# ---- lint


def foreign():
    graph = graph_of(("call_function", torch.relu, ("%x",)))
    other = graph_of()
    list(graph.nodes)[1].args = (next(iter(other.nodes)),)
    return graph


def disordered():
    graph = graph_of(("call_function", torch.relu, ("%x",)), ("call_function", torch.abs, ("%relu",)))
    relu, abs_ = list(graph.nodes)[1:3]
    abs_.append(relu)
    return graph


def same_names():
    graph = graph_of(("call_function", torch.relu, ("%x",)))
    list(graph.nodes)[1].name = "x"
    return graph


def unlisted():
    graph = graph_of(("call_function", torch.relu, ("%x",)))
    graph._find_nodes_lookup_table.remove(list(graph.nodes)[1])
    return graph


def unknown_opcode():
    graph = graph_of(("call_function", torch.relu, ("%x",)))
    object.__setattr__(list(graph.nodes)[1], "op", "call")
    return graph


def no_such_attribute():
    graph = graph_of(("get_attr", "deep.missing.weight", ()))
    owned(graph)
    return graph


def no_module():
    graph = graph_of(("call_module", "weight", ("%x",)))
    owned(graph)
    return graph


def not_callable():
    graph = graph_of(("call_function", torch.relu, ("%x",)))
    list(graph.nodes)[1].target = "relu"
    owned(graph)
    return graph


def missing_arguments():
    graph = graph_of(("call_function", torch.relu, ("%x",)))
    object.__setattr__(list(graph.nodes)[1], "_input_nodes", None)
    return graph


FAULTS = [
    foreign,
    disordered,
    same_names,
    unlisted,
    unknown_opcode,
    no_such_attribute,
    no_module,
    not_callable,
    missing_arguments,
]


@pytest.mark.parametrize("make", FAULTS)
@pytest.mark.parametrize("method", ["lint", "eliminate_dead_code"])
def test_faults_are_told_by_torch(make, method):
    graph = make()
    stock, ours = both(outcome, getattr(fx.Graph, method), graph)
    assert ours == stock and isinstance(ours[0], type)
    assert outcome(getattr(graph, method)) == stock


@given(recipes)
def test_lint_of_random_graphs(recipe):
    graph = build(recipe)
    before = state(graph)
    stock, ours = both(outcome, graph.lint)
    assert ours == stock
    assert state(graph) == before


def test_a_sound_graph_takes_no_other_walk():
    module = exported("bert")[0].module()
    counts = Counts("lint")
    with accelerated():
        module.graph.lint()
        assert counts() == (1, 0)


# ---- new nodes


@given(recipes)
def test_graphs_built_of_random_nodes(recipe):
    stock, ours = both(lambda: state(build(recipe)))
    assert ours == stock


Fields = namedtuple("Fields", "first second")
CONTAINERS = {
    "bare": lambda symbol: symbol,
    "list": lambda symbol: [1, [symbol]],
    "dict": lambda symbol: {"k": symbol},
    "named tuple": lambda symbol: Fields(1, symbol),
    "ordered dict": lambda symbol: OrderedDict(k=symbol),
    "slice": lambda symbol: slice(symbol),  # a leaf for pytree
    "node": lambda symbol: 1,
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("call", ["create_node", "call_function", "kwargs", "output"])
def test_warnings_of_raw_symbols(kind, call):
    argument = CONTAINERS[kind](ShapeEnv().create_unbacked_symint())

    def made():
        graph = fx.Graph()
        x = graph.placeholder("x")
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            if call == "create_node":
                graph.create_node("call_function", torch.add, (x, argument))
            elif call == "call_function":
                graph.call_function(torch.add, (x, argument))
            elif call == "kwargs":
                graph.create_node("call_function", torch.add, (x,), {"other": argument})
            else:
                graph.output((x, argument))
        return [(str(each.message), each.category, each.filename, each.lineno) for each in heard]

    stock, ours = both(made)
    assert ours == stock
    assert bool(ours) == (call != "output" and kind not in ("slice", "node"))


def test_wrong_arguments():
    def made(*args, **kwargs):
        graph = fx.Graph()
        return outcome(lambda: str(graph.create_node(*args, **kwargs))), state(graph)

    for args in [
        ("call_function", torch.add, [1]),
        ("call_function", torch.add, (1,), [1]),
        ("call_function", "add"),
        ("call", "add"),
        ("call_method", 3),
        ("call_method", "__add__", None, None, None, int),
        ("call_function", operator.add, (), {}, "is"),
    ]:
        stock, ours = both(made, *args)
        assert ours == stock


def test_hooks_and_overrides_of_new_nodes():
    class Graph(fx.Graph):
        def _target_to_str(self, target):
            return "named"

    def made():
        seen = []
        graph = Graph()
        owned(graph)
        graph.owning_module._register_create_node_hook(lambda node: seen.append((node.name, len(graph.nodes))))
        x = graph.placeholder("x")
        with graph.inserting_before(x):
            graph.call_method("relu", (x,))
        return seen, state(graph)

    stock, ours = both(made)
    assert ours == stock and ours[0][0] == ("named", 0)


def test_with_torch_as_the_judge():
    with accelerated(verify=True):
        graph = dead(("call_function", torch.relu, ("%x",)), ("call_function", torch.add, ("%x", [1, "%relu"])))
        graph.lint()
        assert graph.eliminate_dead_code()
        assert not graph.eliminate_dead_code()
        module = exported("bert")[0].module()
        module.graph.eliminate_dead_code()
