"""The order of nodes: sorted graphs of ours, and torch's in place, beside torch's own two sorts."""

import operator
import random
import subprocess
import sys

import pytest
import torch
from torch import fx
from torch.fx.passes.tools_common import legalize_graph, stable_topological_sort

import fastexport
from fx_graphs import aten, owned, state

FUNCTIONS = [torch.relu, torch.neg, operator.add, torch.sub, aten.add.Tensor, aten._assert_scalar.default]


def shuffled(seed, size, moves):
    """A torch graph of which some nodes stand where they must not, or need not."""
    rng = random.Random(seed)
    graph = fx.Graph()
    nodes = [graph.placeholder(f"p{i}") for i in range(3)]
    for _ in range(size):
        if rng.random() < 0.1:
            nodes.append(graph.get_attr("weight"))
        else:
            nodes.append(graph.call_function(rng.choice(FUNCTIONS), tuple(rng.choices(nodes[-20:], k=2))))
    graph.output(nodes[-1])
    inner = list(graph.nodes)[3:-1]
    for _ in range(moves if len(inner) > 1 else 0):
        a, b = rng.sample(inner, 2)
        a.prepend(b)
    return owned(graph)


def order(graph):
    return [node.name for node in graph.nodes]


@pytest.mark.parametrize("size, moves", [(1, 0), (6, 3), (30, 12), (80, 0), (80, 60)])
@pytest.mark.parametrize("stable, reference", [(True, stable_topological_sort), (False, legalize_graph)])
def test_as_torch_sorts(size, moves, stable, reference):
    for seed in range(12):
        expected = reference(shuffled(seed, size, moves)).graph
        module = shuffled(seed, size, moves)
        native = fastexport.from_fx(module)
        before, nodes = order(module.graph), set(module.graph.nodes)
        results = [fastexport.sort_topologically(g, stable=stable, policy="torch") for g in (module, native)]
        assert order(module.graph) == order(native) == order(expected)
        assert [r.modified for r in results] == [before != order(expected)] * 2
        assert str(module.graph) == str(native) == str(expected)
        assert set(module.graph.nodes) == nodes
        state(module.graph)  # the list reads the same both ways, and sort keys follow it
        assert not results[0] or module.code == expected.owning_module.code


@pytest.mark.parametrize("stable", [True, False])
def test_safe_order(stable):
    """Inputs first, output last, whatever stands there before; then it is left alone."""
    for seed in range(12):
        module = shuffled(seed, 30, 20)
        nodes = list(module.graph.nodes)
        nodes[5].prepend(nodes[-1])
        nodes[20].append(nodes[1])
        native = fastexport.from_fx(module)
        for graph in (module.graph, native):
            assert fastexport.sort_topologically(graph, stable=stable)
            assert [node.op for node in graph.nodes][:3] == ["placeholder"] * 3
            assert not fastexport.lint(graph, all=True)
            assert not fastexport.sort_topologically(graph)
        assert order(native) == order(module.graph)


def test_sorted_graph_stays_untouched():
    module = shuffled(0, 50, 0)
    native = fastexport.from_fx(module)
    before, version = state(module.graph), native._version
    assert not fastexport.sort_topologically(module)
    assert not native.sort_topologically()
    assert state(module.graph) == before
    assert native._version == version


def test_circle_is_named():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.neg, (x,), name="a")
    b = graph.call_function(torch.neg, (a,), name="b")
    graph.output(b)
    native = fastexport.from_fx(graph)
    a.args = (b,)
    native.node("a").args = (native.node("b"),)
    before = state(graph)
    for g in (graph, native):
        for stable in (True, False):
            with pytest.raises(RuntimeError, match=r"(a -> b -> a|b -> a -> b) need each other") as caught:
                fastexport.sort_topologically(g, stable=stable)
            assert isinstance(caught.value, fastexport.LintError)
            assert caught.value.faults[0].code == "CIRCLE"
    assert state(graph) == before
    assert order(native) == ["x", "a", "b", "output"]


def test_subgraphs_are_sorted_too():
    inner = shuffled(3, 10, 8)
    root = torch.nn.Module()
    root.inner = inner
    graph = fx.Graph()
    xs = tuple(graph.placeholder(name) for name in "abc")
    graph.output(graph.call_module("inner", xs))
    module = fx.GraphModule(root, graph)
    native = fastexport.from_fx(module)
    expected = order(stable_topological_sort(shuffled(3, 10, 8)).graph)
    assert not fastexport.sort_topologically(module, recurse=False)
    assert fastexport.sort_topologically(module)
    assert fastexport.sort_topologically(native)
    assert order(module.inner.graph) == order(native.subgraphs["inner"]) == expected
    assert "p0" in module.inner.code


class Listening(fx.Graph):
    """A graph with a method of its own, so that torch's methods do the work."""

    def find_nodes(self, *args, **kwargs):
        return super().find_nodes(*args, **kwargs)


def test_unusual_graphs():
    graph = Listening()
    x = graph.placeholder("x")
    a = graph.call_function(torch.neg, (x,), name="a")
    b = graph.call_function(torch.neg, (a,), name="b")
    graph.output(b)
    a.prepend(b)
    assert fastexport.sort_topologically(graph)
    assert order(graph) == ["x", "a", "b", "output"]
    assert not fastexport.sort_topologically(graph)


def test_user_in_another_graph():
    """What is no user of this graph can't be waited for; nothing is changed, nothing crashes."""
    graph, other = fx.Graph(), fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.neg, (x,), name="a")
    graph.output(a)
    x.users[other.placeholder("y")] = None
    with pytest.raises(ValueError):
        fastexport.sort_topologically(graph)
    x.users = {"no node": None}
    with pytest.raises(ValueError):
        fastexport.sort_topologically(graph)
    assert order(graph) == ["x", "a", "output"]


def test_as_a_named_pass():
    native = fastexport.from_fx(shuffled(1, 20, 10))
    log = fastexport.run_passes(native, ["sort_topologically", "eliminate_dead_code"])
    assert [result.name for result in log] == ["sort_topologically", "eliminate_dead_code"]
    assert log[0].modified
    module = shuffled(1, 20, 10)
    assert fastexport.run_passes(module, ["sort_topologically"])[0].modified
    assert order(module.graph) == order(stable_topological_sort(shuffled(1, 20, 10)).graph)


def test_wrong_arguments():
    with pytest.raises(TypeError):
        fastexport.sort_topologically(3)
    with pytest.raises(ValueError):
        fastexport.sort_topologically(fastexport.Graph(), policy="fast")
    core = fastexport._core
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    for nodes in ([], [x, x], [fastexport.Graph().placeholder("x")], [None]):
        with pytest.raises((TypeError, ValueError)):
            core.arrange_graph(graph, nodes)
    with pytest.raises(TypeError):
        core.sort_graph(object(), False, True, ())


OUT_OF_MEMORY = """
import _testcapi, operator, torch
from torch import fx
import fastexport
from fastexport import _core

def live():
    graph = fx.Graph()
    nodes = [graph.placeholder("x")]
    for i in range(12):
        nodes.append(graph.call_function(operator.neg, (nodes[-1],)))
    graph.output(nodes[-1])
    for a, b in ((3, 9), (2, 5), (7, 11)):
        nodes[a].prepend(nodes[b])
    return graph

def native():
    graph = fastexport.from_fx(live())
    _core.plan_groups(graph, [], True)  # asks for facts, which is not what is tested here
    return graph

def groups(graph):
    calls = graph.find_nodes(op="call_function", target=operator.neg)
    return [list(calls[:3]), list(calls[5:8])]

def fail_everywhere(make, call):
    for nth in range(1, 1000):
        graph = make()
        arguments = groups(graph) if make is native else None
        _testcapi.set_nomemory(nth)
        try:
            call(graph, arguments)
            return nth
        except MemoryError:
            pass
        finally:
            _testcapi.remove_mem_hooks()
        assert len(list(graph.nodes)) == 14

for breadth_first in (False, True):
    print(fail_everywhere(native, lambda g, _: _core.sort_graph(g, breadth_first, True, ())) > 3)
    print(fail_everywhere(live, lambda g, _: _core.fx_sort(g, breadth_first, True, ())) > 3)
print(fail_everywhere(native, lambda g, groups: _core.plan_groups(g, groups, True)) > 3)
print(fail_everywhere(native, lambda g, groups: _core.arrange_graph(g, list(reversed(g.nodes)))) > 1)
"""


def test_out_of_memory():
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["True"] * 6), done.stderr
