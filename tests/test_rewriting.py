"""replace_pattern in graphs of fastexport and, in place, of torch: what comes out computes the same."""

import io
import operator
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given, settings
from torch import fx
from torch.fx import subgraph_rewriter

import fastexport
from fastexport import Graph, NodeSource, replace_pattern, replace_pattern_with_filters
from helpers import run_python

aten = torch.ops.aten


def run(graph, *inputs):
    """What a graph of functions gives."""
    inputs, values = iter(inputs), {}

    def value(argument):
        match argument:
            case list() | tuple():
                return type(argument)(map(value, argument)) if type(argument) is tuple else [*map(value, argument)]
            case dict():
                return {key: value(item) for key, item in argument.items()}
        return values[argument] if type(argument).__name__ == "Node" else argument

    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(inputs)
        elif node.op == "output":
            return value(node.args[0])
        else:
            values[node] = node.target(*value(node.args), **value(node.kwargs))
    return None


def made(inputs, steps, returns=None, kind=Graph):
    """A graph of calls (function, arguments): an int is the node of that place, inputs first; a list may hold them."""
    graph = kind()
    nodes = [graph.placeholder(f"x{index}") for index in range(inputs)]

    def at(value):
        return [*map(at, value)] if isinstance(value, list) else nodes[value] if isinstance(value, int) else value

    for function, *arguments in steps:
        nodes.append(graph.call_function(function, tuple(map(at, arguments))))
    graph.output(nodes[-1] if returns is None else tuple(nodes[place] for place in returns))
    return graph


def one(function, inputs=2, kind=Graph):
    return made(inputs, [(function, *range(inputs))], kind=kind)


def calls(graph):
    return [getattr(node.target, "__name__", node.target) for node in graph.nodes if node.op == "call_function"]


def in_order(graph):
    graph.lint()
    return True


# ---- random patterns, each fused into one call that gives the same

functions = st.sampled_from([operator.neg, operator.add, operator.mul, operator.sub])
steps = st.lists(st.tuples(functions, st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4)


def recipe(inputs, drawn):
    calls = []
    for function, *places in drawn:
        count = inputs + len(calls)
        recent = [count - 1 - place % min(count, 5) for place in places]
        calls.append((function, *recent[: 1 if function is operator.neg else 2]))
    return calls


def unused(inputs, calls):
    used = {place for _, *places in calls for place in places}
    return [place for place in range(inputs, inputs + len(calls)) if place not in used]


def fused(pattern):
    """A replacement of one call for a pattern, and one for each of its results."""
    graph = Graph()
    inputs = [graph.placeholder(node.name) for node in pattern.nodes if node.op == "placeholder"]

    def all_at_once(*values):
        return run(pattern, *values)

    call = graph.call_function(all_at_once, tuple(inputs))
    results = pattern.output_node().args[0]
    graph.output(tuple(graph.call_function(operator.getitem, (call, place)) for place in range(len(results))))
    return graph


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 2), steps, st.booleans(), st.integers(1, 3), steps, st.lists(st.booleans(), max_size=5))
def test_fused_patterns_compute_the_same(inputs, drawn, returns_more, others, drawn_others, repeats):
    body = recipe(inputs, drawn)
    results = unused(inputs, body)
    if returns_more:
        results = sorted({*results, inputs})
    pattern = made(inputs, body, results)
    assume(all(node.users for node in pattern.nodes if node.op == "placeholder"))
    for before in repeats:
        drawn_others = [*drawn, *drawn_others] if before else [*drawn_others, *drawn]
    whole = recipe(others, drawn_others[:16])
    graph = made(others, whole, unused(others, whole))
    values = [3, 5, 7][:others]
    expected = run(graph, *values)
    replaced = replace_pattern(graph, pattern, fused(pattern))
    assert in_order(graph) and run(graph, *values) == expected
    assert calls(graph).count("all_at_once") == len(replaced)
    live = made(others, whole, unused(others, whole), fx.Graph)
    again = replace_pattern(live, pattern, fused(pattern))
    live.lint()
    assert len(again) == len(replaced) and str(live) == str(graph)
    assert [node.name for node in live.nodes] == [node.name for node in graph.nodes]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2), steps, st.integers(1, 3), steps, st.lists(st.booleans(), max_size=5))
def test_torchs_policy_gives_torchs_graph(inputs, drawn, others, drawn_others, repeats):
    body = recipe(inputs, drawn)
    pattern = made(inputs, body, unused(inputs, body), fx.Graph)
    assume(all(node.users for node in pattern.nodes if node.op == "placeholder"))
    replacement = fused(pattern).to_fx()
    for before in repeats:
        drawn_others = [*drawn, *drawn_others] if before else [*drawn_others, *drawn]
    whole = recipe(others, drawn_others[:16])
    stock = fx.GraphModule(torch.nn.Module(), made(others, whole, unused(others, whole), fx.Graph))
    native = fastexport.from_fx(stock.graph)
    live = made(others, whole, unused(others, whole), fx.Graph)
    done = subgraph_rewriter.replace_pattern_with_filters(stock, pattern, replacement)
    ours = replace_pattern(native, pattern, replacement, policy="torch")
    assert str(native) == str(stock.graph)
    assert [[n.name for n in item.replacements] for item in ours] == [
        [n.name for n in item.replacements] for item in done
    ]
    replace_pattern(live, pattern, replacement, policy="torch")
    assert str(live) == str(stock.graph)


# ---- where torch.fx is wrong, or slow


def doors(build):
    """The same graph as one of ours, and as a live one of torch."""
    return fastexport.from_fx(build()), build()


def test_inputs_in_lists_follow_earlier_replacements():
    def build():
        return made(3, [(torch.cat, [0, 1], 0.0), (torch.cat, [3, 2], 0.0)], kind=fx.Graph)

    for graph in doors(build):
        first, second = replace_pattern(graph, one(torch.cat), one(torch.concat))
        graph.lint()
        assert calls(graph) == ["concat", "concat"]
        assert second.replacements[0].args[0] == [first.replacements[0], list(graph.nodes)[2]]


def test_chains_of_nothing():
    identity = Graph()
    identity.output(identity.placeholder("x"))

    def build():
        return made(
            1, [(aten.relu.default, 0), *((aten.alias.default, place) for place in range(1, 40))], kind=fx.Graph
        )

    for graph in doors(build):
        replaced = replace_pattern(graph, one(aten.alias.default, 1), identity)
        assert len(replaced) == 39 and all(item.replacements == [] for item in replaced)
        assert calls(graph) == ["relu.default"] and in_order(graph)
        assert graph.output_node().args[0].name == "relu_default"


def test_cyclic_matches_are_left():
    pattern = made(3, [(operator.add, 0, 1), (operator.mul, 0, 2)], (3, 4))
    for graph in doors(
        lambda: made(2, [(operator.add, 0, 1), (operator.neg, 2), (operator.mul, 0, 3)], (2, 4), fx.Graph)
    ):
        replaced = replace_pattern(graph, pattern, fused(pattern))
        assert replaced == [] and "leads back" in replaced.report.text and run(graph, 2, 1) == (3, -6)


def test_matches_that_close_a_cycle_together():
    # Each alone may be fused: a of the first feeds the second, and b of the second the first.
    graph = made(2, [(operator.neg, 0), (operator.neg, 1), (operator.pos, 3), (operator.pos, 2)], (2, 3, 4, 5))
    pattern = made(2, [(operator.neg, 0), (operator.pos, 1)], (2, 3))
    expected = run(graph, 2, 3)
    replaced = replace_pattern(graph, pattern, fused(pattern))
    assert in_order(graph) and run(graph, 2, 3) == expected
    assert len(replaced) == 1 and len(replaced.refused) == 1
    match, why = replaced.refused[0]
    assert "depends on a result" in why and len(match.returning_nodes) == 2


def test_users_before_the_last_input_move_behind_it():
    # neg is used before the second input of the match is there.
    def build():
        return made(
            2, [(operator.neg, 0), (operator.abs, 2), (operator.abs, 1), (operator.pos, 4)], (3, 5, 2), fx.Graph
        )

    pattern = made(2, [(operator.neg, 0), (operator.pos, 1)], (2, 3))
    for graph in doors(build):
        expected = run(graph, 2, -3)
        (replaced,) = replace_pattern(graph, pattern, fused(pattern))
        assert in_order(graph) and run(graph, 2, -3) == expected
        assert calls(graph) == ["abs", "all_at_once", "getitem", "getitem", "abs"]
        assert len(replaced.replacements) == 3


def test_nothing_passes_a_write():
    # relu reads x before it is written to, and its result is used behind that.
    def build():
        return made(1, [(aten.relu.default, 0), (aten.add_.Tensor, 0, 1.5), (aten.neg.default, 1)], (3,), fx.Graph)

    for graph in doors(build):
        assert len(replace_pattern(graph, one(aten.relu.default, 1), one(aten.sigmoid.default, 1))) == 1
        assert calls(graph) == ["sigmoid.default", "add_.Tensor", "neg.default"]
    torchs = fastexport.from_fx(build())
    replace_pattern(torchs, one(aten.relu.default, 1), one(aten.sigmoid.default, 1), policy="torch")
    assert calls(torchs) == ["add_.Tensor", "sigmoid.default", "neg.default"]
    # With the write among its nodes a match can't be one step.
    pair = made(1, [(aten.relu.default, 0), (aten.neg.default, 1)])
    for graph in doors(build):
        replaced = replace_pattern(graph, pair, one(aten.sigmoid.default, 1))
        assert replaced == [] and "may write" in replaced.refused[0][1]


def test_writes_are_replaced_where_they_stand():
    def build():
        return made(1, [(aten.add_.Tensor, 0, 1.5), (aten.relu.default, 0), (aten.neg.default, 1)], (2, 3), fx.Graph)

    write = made(1, [(aten.add_.Tensor, 0, 1.5)])
    for graph in doors(build):
        assert len(replace_pattern(graph, write, made(1, [(aten.mul_.Tensor, 0, 2.5)]))) == 1
        assert calls(graph) == ["mul_.Tensor", "relu.default", "neg.default"]


def test_writes_that_a_callback_brings_in_are_not_passed():
    # The first call puts a write in front of neg_1, which relu's uses stand behind.
    graph = made(
        1, [(aten.relu.default, 0), (aten.abs.default, 0), (aten.relu.default, 0), (aten.neg.default, 1)], (2, 3, 4)
    )
    asked = []

    def callback(match, whole, pattern):
        if not asked:
            with whole.inserting_before(whole.node("neg_default")):
                whole.call_function(aten.add_.Tensor, (whole.node("x0"), 1))
        asked.append(match)
        return unary(aten.sigmoid.default)

    replace_pattern_with_filters(graph, unary(aten.relu.default), replacement_callback=callback)
    assert calls(graph) == ["sigmoid.default", "abs.default", "sigmoid.default", "add_.Tensor", "neg.default"]


# ---- meta


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


def program():
    return torch.export.export(Model(), (torch.ones(3),))


def unary(function):
    return one(function, 1)


def test_meta_and_provenance_of_programs():
    for ep in (program(), fastexport.from_export(program())):
        (done,) = replace_pattern(ep, unary(aten.relu.default), unary(aten.sigmoid.default))
        (node,) = done.replacements
        assert tuple(node.meta["val"].shape) == (3,) and "relu" in node.meta["stack_trace"]
        assert "nn_module_stack" in node.meta
        (source,) = node.meta["from_node"]
        assert source.name == "relu" and source.pass_name == "replace_pattern"
        assert source.to_dict()["action"] in ("replace+create", "create+replace")
        torch.export.save(ep if isinstance(ep, torch.export.ExportedProgram) else ep.to_torch(), io.BytesIO())
        (ep.validate if hasattr(ep, "validate") else ep.verify)()
        result = (ep.module() if hasattr(ep, "validate") else ep.to_torch().module())(torch.zeros(3))
        assert torch.equal(result, torch.full((3,), 1.5))


def test_signatures_follow():
    class Returns(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x)

    for ep in (torch.export.export(Returns(), (torch.ones(3),)), None):
        ep = ep or fastexport.from_export(torch.export.export(Returns(), (torch.ones(3),)))
        replace_pattern(ep, unary(aten.relu.default), unary(aten.sigmoid.default))
        assert ep.graph_signature.output_specs[0].arg.name == "sigmoid_default"
        (ep.validate if hasattr(ep, "validate") else ep.verify)()


def test_what_is_inherited():
    graph = made(1, [(operator.neg, 0)])
    stack = {"deep": [1]}
    graph.node("neg").meta.update(val="v", stack_trace="here", nn_module_stack=stack, mine=1)
    replacement = made(1, [(operator.pos, 0), (operator.abs, 1)])
    replacement.node("pos").meta.update(mine=2, other=[3])
    (done,) = replace_pattern(graph, unary(operator.neg), replacement)
    first, last = done.replacements
    assert {k: v for k, v in first.meta.items() if k != "from_node"} == {
        "mine": 2,
        "other": [3],
        "stack_trace": "here",
        "nn_module_stack": stack,
    }
    assert last.meta["val"] == "v" and last.meta["mine"] == 1
    assert last.meta["nn_module_stack"] is not stack and first.meta["nn_module_stack"] is not stack
    assert first.meta["other"] is not replacement.node("pos").meta["other"]
    assert [source.action for source in first.meta["from_node"]] == ["create"]
    assert [(s.name, s.action) for s in last.meta["from_node"]] == [("neg", "replace+create")]


def test_a_recording_notes_the_same():
    graphs = []
    for _ in range(2):
        graph = made(1, [(operator.neg, 0), (operator.neg, 1)])
        graph.node("neg").meta["mine"] = 1
        graphs.append(graph)
    replacement = made(1, [(operator.pos, 0), (operator.abs, 1)])
    with graphs[0].recording("replace_pattern"):
        replace_pattern(graphs[0], unary(operator.neg), replacement)
    replace_pattern(graphs[1], unary(operator.neg), replacement)
    notes = [[[(s.name, s.action) for s in n.meta.get("from_node", ())] for n in graph.nodes] for graph in graphs]
    assert notes[0] == notes[1] and [("neg", "replace+create")] in notes[0]


def test_sources_of_new_nodes_tell_what_they_stand_for():
    """Also of results of different functions, with the sources of these, and beside what the replacement brings."""
    graph = made(1, [(operator.neg, 0), (operator.abs, 1)])
    graph.output_node().args = ((graph.node("neg"), graph.node("abs_1")),)
    graph.node("neg").meta["from_node"] = earlier = [NodeSource("before", "t", 5, "trace", "create")]
    graph.node("abs_1").meta["from_node"] = "no list of sources"
    pattern, replacement = (made(1, [(one, 0), (other, 1)]) for one, other in ((operator.neg, operator.abs),) * 2)
    first, second = (node for node in replacement.nodes if node.op == "call_function")
    first.target, second.target = operator.pos, operator.invert
    brought = second.meta["from_node"] = [NodeSource("mine", "t", 6, "trace", "create")]
    for source in (pattern, replacement):
        source.output_node().args = (tuple(node for node in source.nodes if node.op == "call_function"),)
    (done,) = replace_pattern(graph, pattern, replacement)
    (a,), (kept, b) = (node.meta["from_node"] for node in done.replacements)
    assert kept is brought[0] and kept.action == "create" and a.from_node == earlier and a.from_node is not earlier
    for source, name, function in ((a, "neg", operator.neg), (b, "abs_1", operator.abs)):
        told = source.name, source.target, source.graph_id, source.pass_name, source.action
        assert told == (name, str(function), id(graph), "replace_pattern", "replace+create")
    assert b.from_node == []


def test_an_input_in_the_place_of_results_is_told_of_all():
    graph = made(1, [(operator.neg, 0), (operator.neg, 1), (operator.pos, 2)])
    assert len(replace_pattern(graph, unary(operator.neg), made(1, []))) == 2
    sources = graph.node("x0").meta["from_node"]
    assert [(s.name, s.action) for s in sources] == [("neg", "replace"), ("neg_1", "replace")]


def test_a_target_without_a_text_stops_the_replacement():
    class Target:
        __name__ = "target"

        def __call__(self, x):
            return x

        def __str__(self):
            raise ZeroDivisionError

    target = Target()
    graph = made(1, [(target, 0)])
    with pytest.raises(ZeroDivisionError):
        replace_pattern(graph, unary(target), unary(operator.pos))
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [target]
    assert graph.lint() == []


def test_a_class_that_changes_while_targets_are_looked_up():
    class Changing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(1))

        @property
        def trigger(self):
            Changing.__getattr__ = lambda self, name: None
            return 1

    root = torch.nn.Module()
    root.a, root.b = Changing(), Changing()
    graph = Graph()
    graph.output(tuple(graph.get_attr(path) for path in ("a.w", "a.trigger", "b.w")))
    graph.owning_module = root
    assert [fault.code for fault in graph.lint(all=True)] == ["TARGET_MISSING"]


def test_torchs_policy_inherits_nothing():
    graph = made(1, [(operator.neg, 0)])
    graph.node("neg").meta["val"] = 1
    (done,) = replace_pattern(graph, unary(operator.neg), unary(operator.pos), policy="torch")
    assert dict(done.replacements[0].meta) == {}
    graph = made(1, [(operator.neg, 0)])
    (done,) = replace_pattern(graph, unary(operator.neg), unary(operator.pos), provenance=False)
    assert "from_node" not in done.replacements[0].meta


# ---- filters, callbacks, attributes


def test_filters_are_asked_of_all_matches_first():
    asked = []
    for graph in doors(lambda: made(1, [(operator.neg, place) for place in range(4)], kind=fx.Graph)):
        asked.clear()

        def odd(match, whole, pattern, graph=graph):
            assert whole is graph and pattern is match.anchors[0].graph
            asked.append(match.returning_nodes[0].name)
            return len(asked) % 2 == 0

        done = replace_pattern_with_filters(graph, unary(operator.neg), unary(operator.pos), [odd])
        assert asked == ["neg", "neg_1", "neg_2", "neg_3"]
        assert calls(graph) == ["neg", "pos", "neg", "pos"] and len(done) == 2
        assert [item.nodes_map[item.anchor].name for item in done] == ["neg_1", "neg_3"]


def test_callbacks_make_a_replacement_for_each_match():
    for graph in doors(lambda: made(1, [(operator.neg, place) for place in range(3)], kind=fx.Graph)):
        seen = []

        def callback(match, whole, pattern, seen=seen):
            seen.append(calls(whole))
            return unary(operator.pos if len(seen) % 2 else operator.abs)

        replace_pattern_with_filters(graph, unary(operator.neg), replacement_callback=callback)
        assert seen == [["neg", "neg", "neg"], ["pos", "neg", "neg"], ["pos", "abs", "neg"]]
        assert calls(graph) == ["pos", "abs", "pos"] and in_order(graph)


def test_callbacks_that_edit_the_graph():
    graph = made(1, [(operator.neg, place) for place in range(3)])

    def insert(match, whole, pattern):
        with whole.inserting_before(match.returning_nodes[0]):
            whole.call_function(operator.invert, (match.placeholder_nodes[0],))
        return unary(operator.pos)

    replace_pattern_with_filters(graph, unary(operator.neg), replacement_callback=insert)
    assert calls(graph) == ["invert", "pos", "invert", "pos", "invert", "pos"] and in_order(graph)

    def erase(match, whole, pattern):
        if not last._erased:
            last.replace_all_uses_with(last.args[0])
            whole.erase_node(last)
        return unary(operator.pos)

    graph = made(1, [(operator.neg, place) for place in range(3)])
    last = graph.node("neg_2")
    with pytest.raises(fastexport.FastExportError, match="erased before the match was replaced"):
        replace_pattern_with_filters(graph, unary(operator.neg), replacement_callback=erase)
    assert calls(graph) == ["pos", "pos"] and in_order(graph)


def test_attributes_of_the_replacement_are_carried_over():
    class Old(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x)

    class New(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.bias = torch.nn.Linear(2, 2), torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return self.linear(x) + self.bias

    new = New()
    module = fx.symbolic_trace(Old())
    replace_pattern(module, unary(torch.relu), fx.symbolic_trace(new))
    x = torch.ones(2)
    assert torch.equal(module(x), new(x)) and module.linear is not new.linear
    native = fastexport.from_fx(fx.symbolic_trace(Old()))
    replace_pattern(native, unary(torch.relu), fx.symbolic_trace(new))
    assert torch.equal(native.to_fx(native.owning_module)(x), new(x))


def test_literals_and_keywords_reach_the_replacement():
    for graph in doors(lambda: made(1, [(torch.sum, 0, [0, 0]), (torch.sum, 1, 2.5)], kind=fx.Graph)):
        replace_pattern(graph, one(torch.sum), one(torch.mean))
        first, second = [node for node in graph.nodes if node.op == "call_function"]
        assert first.args[1] == [first.args[0], first.args[0]] and second.args[1] == 2.5


def test_defaults_reach_the_replacement():
    pattern = Graph()
    x, y, alpha = map(pattern.placeholder, ("x", "y", "alpha"))
    pattern.output(pattern.call_function(aten.add.Tensor, (x, y), {"alpha": alpha}))
    graph = made(2, [(aten.add.Tensor, 0, 1)])
    (done,) = replace_pattern(graph, pattern, one(operator.mul, 3))
    assert done.replacements[0].args[2] == 1


def test_functions_are_traced():
    def pattern(x, y):
        return torch.relu(x + y)

    def replacement(x, y):
        return torch.sigmoid(x - y)

    for graph in (fx.symbolic_trace(pattern), fastexport.from_fx(fx.symbolic_trace(pattern))):
        assert len(replace_pattern(graph, pattern, replacement)) == 1
        assert calls(getattr(graph, "graph", graph)) == ["sub", "sigmoid"]


def test_modules_are_recompiled():
    module = fx.symbolic_trace(lambda x: torch.relu(x))
    replace_pattern(module, unary(torch.relu), unary(torch.sigmoid))
    assert torch.equal(module(torch.zeros(1)), torch.full((1,), 0.5)) and "sigmoid" in module.code


# ---- what can't be done


def test_what_does_not_fit_leaves_the_graph_as_it_was():
    graph = made(1, [(operator.neg, 0)])
    before, constant = str(graph), Graph()
    constant.placeholder("x")
    constant.output(1)
    cases = [
        (one(operator.add), "2 inputs, and the pattern 1"),
        (made(1, [(operator.neg, 0), (operator.pos, 0)], (1, 2)), "returns 2 results, and the pattern 1"),
        (constant, "no node"),
    ]
    for replacement, message in cases:
        with pytest.raises(ValueError, match=message):
            replace_pattern(graph, unary(operator.neg), replacement)
        assert str(graph) == before and in_order(graph)
    with pytest.raises(ValueError, match="by itself"):
        replace_pattern(graph, unary(operator.neg), graph)
    with pytest.raises(ValueError, match="give a replacement"):
        replace_pattern_with_filters(graph, unary(operator.neg))
    with pytest.raises(TypeError):
        replace_pattern(3, unary(operator.neg), unary(operator.neg))
    unordered = made(1, [(operator.neg, 0), (operator.pos, 1)])
    unordered.node("pos").append(unordered.node("neg"))
    with pytest.raises(fastexport.LintError):
        replace_pattern(unordered, unary(operator.neg), unary(operator.pos))


def test_an_input_that_the_pattern_does_not_use():
    pattern = Graph()
    x = pattern.placeholder("x")
    pattern.placeholder("unused")
    pattern.output(pattern.call_function(operator.neg, (x,)))
    other = Graph()
    other.placeholder("unused")
    other.output(other.call_function(operator.pos, (other.placeholder("x"),)))
    graph = made(1, [(operator.neg, 0)])
    with pytest.raises(ValueError, match="uses its input 'x'"):
        replace_pattern(graph, pattern, other)
    with pytest.raises(KeyError):
        replace_pattern(graph, pattern, other, policy="torch")
    keeps = Graph()
    keeps.output(keeps.call_function(operator.pos, (keeps.placeholder("x"),)))
    with keeps.inserting_after(keeps.node("x")):
        keeps.placeholder("unused")
    assert len(replace_pattern(graph, pattern, keeps)) == 1 and calls(graph) == ["pos"]


def test_observers_that_raise_or_edit():
    class Raises:
        def created(self, node):
            raise ZeroDivisionError

        def replaced(self, old, new):
            pass

    class Edits:
        def created(self, node):
            node.graph.call_function(operator.invert, (node,))

        def replaced(self, old, new):
            pass

    graph = made(1, [(operator.neg, 0)])
    graph._observer = Raises()
    before = str(graph)
    with pytest.raises(ZeroDivisionError):
        replace_pattern(graph, unary(operator.neg), unary(operator.pos))
    assert str(graph) == before
    graph._observer = None
    depth = []

    class Once(Edits):
        def created(self, node):
            if not depth:
                depth.append(1)
                super().created(node)

    graph._observer = Once()
    with pytest.raises(fastexport.FastExportError, match="changed while a match was being replaced"):
        replace_pattern(graph, unary(operator.neg), unary(operator.pos))
    assert "neg" in calls(graph) and not [f for f in graph.lint(all=True) if f.code != "OUTPUT_NOT_LAST"]


def test_names_that_are_not_ascii():
    replacement = Graph()
    x = replacement.placeholder("x")
    replacement.output(replacement.create_node("call_function", operator.pos, (x,), name="é"))
    graph = made(1, [(operator.neg, 0), (operator.neg, 1)])
    done = replace_pattern(graph, unary(operator.neg), replacement)
    stock = fx.GraphModule(torch.nn.Module(), made(1, [(operator.neg, 0), (operator.neg, 1)], kind=fx.Graph))
    theirs = subgraph_rewriter.replace_pattern_with_filters(stock, unary(operator.neg).to_fx(), replacement.to_fx())
    assert [i.replacements[0].name for i in done] == [i.replacements[0].name for i in theirs]


def test_out_of_memory_at_every_point():
    run_python(Path(__file__).with_name("rewriting_out_of_memory.py").read_text())


def test_methods_of_graph():
    """Each pass is a method of Graph, too."""

    def made():
        g = Graph()
        x = g.placeholder("x")
        g.output(g.call_function(operator.neg, (g.call_function(operator.add, (x, x)),)))
        return g

    def pattern(function):
        g = Graph()
        g.output(g.call_function(function, (g.placeholder("x"),)))
        return g

    g = made()
    assert [done.replacements for done in g.replace_pattern(pattern(operator.neg), pattern(abs))] == [[g.node("abs_1")]]
    never = g.replace_pattern_with_filters(pattern(abs), pattern(operator.neg), [lambda *_: False])
    assert never == [] and "abs_1" in str(g)
    assert g.outline([g.node("add")], "twice").added == ["twice"] and list(g.subgraphs) == ["twice"]
    assert not g.trim_interfaces()
    assert g.inline().removed == ["twice"] and not g.subgraphs
    assert g.fuse([[g.node("abs_1")]]).added == ["fused_0"]
    assert made().split(lambda node: 0).partitions == {"submod_0": ["add", "neg"]}


class TestEditingFilters:
    """Functions of the user that edit the live graph are noticed before it is changed."""

    def erase_sums(self, match, graph, pattern):
        graph.output_node().args = (None,)
        for node in reversed(list(graph.nodes)):
            if node.op == "call_function" and not node.users:
                graph.erase_node(node)
        return True

    def change_arguments(self, match, graph, pattern):
        node = graph.find_nodes(op="call_function", target=operator.add)[-1]
        node.args = (graph.find_nodes(op="placeholder")[0], 1)
        return True

    @pytest.mark.parametrize("edit", ["erase_sums", "change_arguments"])
    def test_filters(self, edit):
        live = fx.symbolic_trace(lambda x: x + 1 + 1 + 1 + 1)
        with pytest.raises(fastexport.FastExportError, match="a filter was to look only"):
            replace_pattern_with_filters(live, lambda x: x + 1, lambda x: x - 1, [getattr(self, edit)])
        live.graph.lint()
        assert not live.graph.find_nodes(op="call_function", target=operator.sub)

    @pytest.mark.parametrize("edit", ["erase_sums", "change_arguments"])
    def test_callbacks(self, edit):
        live = fx.symbolic_trace(lambda x: x + 1)

        def callback(match, graph, pattern):
            getattr(self, edit)(match, graph, pattern)
            return fx.symbolic_trace(lambda x: x - 1).graph

        with pytest.raises(fastexport.FastExportError, match="the callback was to look only"):
            replace_pattern_with_filters(live, lambda x: x + 1, replacement_callback=callback)
        live.graph.lint()

    def test_a_callback_that_erases_a_later_match(self):
        live = fx.symbolic_trace(lambda x: (x + 1) * (x + 1))

        def callback(match, graph, pattern):
            later = graph.find_nodes(op="call_function", target=operator.add)
            graph.output_node().args = (None,)
            for node in [*graph.find_nodes(op="call_function", target=operator.mul), *later]:
                if node not in match.nodes_map.values():
                    graph.erase_node(node)
            return fx.symbolic_trace(lambda x: x - 1).graph

        with pytest.raises(fastexport.FastExportError, match="erased"):
            replace_pattern_with_filters(live, lambda x: x + 1, replacement_callback=callback)
        live.graph.lint()

    @pytest.mark.parametrize("live", [False, True])
    @pytest.mark.parametrize("filters", [3, [3], "ab"])
    def test_filters_that_are_none(self, live, filters):
        module = fx.symbolic_trace(lambda x: x + 1)
        graph = module if live else fastexport.from_fx(module)
        with pytest.raises(TypeError, match="match_filters must be a list of functions"):
            replace_pattern_with_filters(graph, lambda x: x + 1, lambda x: x - 1, filters)
        with pytest.raises(TypeError, match="replacement_callback must be a function"):
            replace_pattern_with_filters(graph, lambda x: x + 1, replacement_callback=3)
