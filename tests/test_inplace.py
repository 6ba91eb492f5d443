"""The passes in place on live torch.fx graphs: equal to torch's own, or, by fastexport's own policy, right."""

import copy
import io
import operator

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import fx
from torch.export.exported_program import _common_getitem_elimination_pass
from torch.export.graph_signature import ExportGraphSignature, TensorArgument

import fastexport
from fastexport import _core, _torch
from fx_graphs import (
    MODELS,
    aten,
    build,
    calls,
    edits,
    exported,
    exported_cond,
    getitems,
    graph_of,
    links,
    module_state,
    owned,
    recipes,
    root_module,
    state,
    table,
    trees,
)
from helpers import label, names


@pytest.fixture(params=["fast", "public"])
def bridge(request, monkeypatch):
    """Through the C code that knows torch's nodes, and through torch's public API alone."""
    assert _torch._FAST
    monkeypatch.setattr(_torch, "_FAST", request.param == "fast")
    return request.param


def torch_getitems(module):
    _common_getitem_elimination_pass(module, ExportGraphSignature([], []), [])


def node_of(graph, name):
    return next(node for node in graph.nodes if node.name == name)


def attempt(function):
    """What a call returns, or the type of what it raises."""
    try:
        return function()
    except Exception as error:
        return type(error)


def same_outcome(first, second, torch_pass, our_pass):
    """Run torch's pass on one graph and ours on an equal one: all that can be seen of both is equal afterwards."""
    before = state(first)
    assert state(second) == before
    handles = [list(graph.nodes) for graph in (first, second)]
    owners = first.owning_module, second.owning_module
    expected = torch_pass(first)
    result = our_pass(second)
    assert state(second) == state(first)
    assert [links(node) for node in handles[1]] == [links(node) for node in handles[0]]  # of erased nodes too
    assert (first.owning_module, second.owning_module) == owners
    assert all(node.graph is second for node in handles[1])
    gone = [node.name for node in handles[1] if node._erased]
    assert sorted(result.removed) == sorted(gone)
    assert bool(result) is bool(gone)
    return expected, result


def torch_dce(graph):
    return graph.eliminate_dead_code()


def our_dce(graph):
    return fastexport.eliminate_dead_code(graph, policy="torch")


# ---- random graphs


@settings(max_examples=50)
@given(recipes, st.booleans())
def test_dead_code_of_random_graphs(recipe, fast):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_torch, "_FAST", fast)
        expected, result = same_outcome(build(recipe), build(recipe), torch_dce, our_dce)
    assert bool(result) is expected


def with_sound_getitems(graph):
    """torch's getitem pass takes only getitems of a node with one index."""
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        if len(node.args) != 2 or not isinstance(node.args[0], fx.Node):
            node.target = operator.add
    return graph


getitem_recipes = st.tuples(st.lists(st.one_of(getitems, getitems, calls, edits), max_size=14), trees)


@settings(max_examples=50)
@given(getitem_recipes, st.booleans())
def test_getitems_of_random_graphs(recipe, fast):
    first, second = with_sound_getitems(build(recipe)), with_sound_getitems(build(recipe))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_torch, "_FAST", fast)
        same_outcome(
            first,
            second,
            lambda graph: torch_getitems(graph.owning_module),
            lambda graph: fastexport.eliminate_getitems(graph, policy="torch"),
        )


@settings(max_examples=50)
@given(getitem_recipes, st.sampled_from(["safe", "torch"]))
def test_a_chain_of_passes_does_what_each_does_alone(recipe, policy):
    first, second = with_sound_getitems(build(recipe)), with_sound_getitems(build(recipe))
    alone = [
        fastexport.eliminate_getitems(first, policy=policy),
        fastexport.eliminate_dead_code(first, policy=policy),
    ]
    chained = fastexport.run_passes(second, ["eliminate_getitems", "eliminate_dead_code", "lint"], policy=policy)
    assert [result.removed for result in chained] == [result.removed for result in alone] + [[]]
    assert [bool(result) for result in chained] == [bool(result) for result in alone] + [False]
    assert chained[0].replaced == alone[0].replaced
    assert state(second) == state(first)


@settings(max_examples=50)
@given(getitem_recipes, st.sampled_from(["safe", "torch"]))
def test_the_native_graph_and_both_ways_to_torch_agree(recipe, policy):
    outcomes, texts = [], []
    for way in ("native", "fast", "public"):
        graph = with_sound_getitems(build(recipe))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_torch, "_FAST", way != "public")
            graph = fastexport.from_fx(graph) if way == "native" else graph
            merged = fastexport.eliminate_getitems(graph, policy=policy)
            cleared = fastexport.eliminate_dead_code(graph, policy=policy, explain=True)
        outcomes.append((merged.replaced, cleared.removed, cleared.reasons))
        texts.append(str(graph))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert texts[0] == texts[1] == texts[2]


@settings(max_examples=50)
@given(recipes, st.data())
def test_lint_says_what_torch_s_lint_says(recipe, data):
    graph = build(recipe)
    nodes = list(graph.nodes)
    spoil = data.draw(st.sampled_from(["nothing", "order", "foreign", "name", "target", "attribute"]))
    node = data.draw(st.sampled_from(nodes))
    if spoil == "order":
        nodes[0].prepend(node)
    elif spoil == "foreign":
        node.args = (fx.Graph().placeholder("z"), *node.args)
    elif spoil == "name":
        node.name = nodes[0].name
    elif spoil == "target":
        node.target = "text" if node.op == "call_function" else len
    elif spoil == "attribute":
        with graph.inserting_before(nodes[0]):
            graph.create_node("get_attr", data.draw(st.sampled_from(["weight.nothing", "no", "linear.weight", ""])))
    expected = attempt(graph.lint)
    ours = attempt(lambda: fastexport.lint(graph))
    if expected is None:
        # Ours may know of more: a node after the output, say.
        assert ours == [] or issubclass(ours, fastexport.LintError)
        assert _core.fx_lint(graph, True, True) == []
    else:
        assert issubclass(ours, fastexport.LintError)
        assert issubclass(ours, expected)
        assert issubclass(ours, ValueError) is (expected is ValueError)
        assert len(fastexport.lint(graph, all=True)) >= 1


# ---- bulk edits


def safe_to_erase(graph, wanted):
    """Nodes of a graph that can be erased one after the other, some of them, users first."""
    chosen = []
    for i, node in enumerate(reversed(graph.nodes)):
        free = all(user in chosen for user in node.users) and node.op not in ("placeholder", "output")
        if free and wanted >> i & 1:
            chosen.append(node)
    return chosen


def torch_erase(graph, nodes):
    for node in nodes:
        graph.erase_node(node)


def torch_replace(graph, pairs):
    for old, new in pairs:
        old.replace_all_uses_with(new)


def torch_insert(graph, insertions):
    made = []
    for anchor, before, op, target, args, kwargs, name, meta in insertions:
        with graph.inserting_before(anchor) if before else graph.inserting_after(anchor):
            node = graph.create_node(op, target, args, kwargs, name)
        if meta is not None:
            node.meta = dict(meta)
        made.append(node)
    return made


@settings(max_examples=50)
@given(recipes, st.integers(0, 2**20 - 1))
def test_bulk_erase(recipe, wanted):
    first, second = build(recipe), build(recipe)
    handles = [list(graph.nodes) for graph in (first, second)]
    torch_erase(first, safe_to_erase(first, wanted))
    assert _core.fx_erase(second, safe_to_erase(second, wanted)) is None
    assert state(second) == state(first)
    assert [links(node) for node in handles[1]] == [links(node) for node in handles[0]]


@settings(max_examples=50)
@given(recipes, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6))
def test_bulk_replace(recipe, places):
    graphs = build(recipe), build(recipe)
    for graph, replace in zip(graphs, (torch_replace, _core.fx_replace_all_uses), strict=True):
        nodes = list(graph.nodes)
        pairs = [sorted((a % len(nodes), b % len(nodes)), reverse=True) for a, b in places]
        replace(graph, [(nodes[a], nodes[b]) for a, b in pairs])
    assert state(graphs[1]) == state(graphs[0])


insertions = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.booleans(),
        st.sampled_from([("call_function", torch.relu), ("call_method", "add"), ("call_module", "linear")]),
        st.lists(st.integers(0, 20), max_size=3),
        st.sampled_from([None, "relu", "new", "a_1", "x"]),
        st.sampled_from([None, {}, {"k": 1}]),
    ),
    max_size=6,
)


@settings(max_examples=50)
@given(recipes, insertions)
def test_bulk_insert(recipe, wanted):
    graphs = build(recipe), build(recipe)
    made = []
    for graph, insert in zip(graphs, (torch_insert, _core.fx_insert), strict=True):
        nodes = list(graph.nodes)
        items = []
        for place, before, (op, target), operands, name, meta in wanted:
            args = tuple([nodes[i % len(nodes)]] for i in operands)
            kwargs = {"k": nodes[0], "l": [1, {"m": slice(nodes[0])}]} if operands else None
            items.append((nodes[place % len(nodes)], before, op, target, args, kwargs, name, meta))
        made.append(insert(graph, items))
    assert names(made[1]) == names(made[0])
    assert [plainest(graph) for graph in graphs][0] == plainest(graphs[1])


def plainest(graph):
    """The state of a graph; meta that is made anew by value."""
    seen = state(graph)
    for entry, node in zip(seen["nodes"], graph.nodes, strict=True):
        entry["meta"] = [(key, value) for key, value in node.meta.items()]
    return seen


def chain_graph():
    return graph_of(
        ("call_function", torch.relu, ("%x",)),
        ("call_function", torch.neg, ("%relu",)),
        ("call_function", torch.abs, ("%x",)),
        output="%x",
    )


def failing_erase(graph, x, relu, neg):
    return lambda: _core.fx_erase(graph, [neg, x])


def failing_erase_in_wrong_order(graph, x, relu, neg):
    return lambda: _core.fx_erase(graph, [relu, neg])


def failing_erase_of_foreign(graph, x, relu, neg):
    return lambda: _core.fx_erase(graph, [neg, fx.Graph().placeholder("z")])


def failing_erase_of_no_node(graph, x, relu, neg):
    return lambda: _core.fx_erase(graph, [neg, "relu"])


def failing_insert_of_bad_op(graph, x, relu, neg):
    good = (x, False, "call_function", torch.sin, (x,), None, None, None)
    return lambda: _core.fx_insert(graph, [good, (x, False, "nothing", torch.sin, (), None, None, None)])


def failing_insert_at_foreign(graph, x, relu, neg):
    good = (x, False, "call_function", torch.sin, (x,), None, "kept", {"a": 1})
    foreign = fx.Graph().placeholder("z")
    return lambda: _core.fx_insert(graph, [good, (foreign, False, "call_function", torch.sin, (), None, None, None)])


def failing_insert_of_short_tuple(graph, x, relu, neg):
    good = (x, False, "call_function", torch.sin, (x,), None, None, None)
    return lambda: _core.fx_insert(graph, [good, good[:5]])


def failing_replace_by_no_node(graph, x, relu, neg):
    return lambda: _core.fx_replace_all_uses(graph, [(relu, x), (neg, None)])


@pytest.mark.parametrize(
    "failing",
    [
        failing_erase,
        failing_erase_in_wrong_order,
        failing_erase_of_foreign,
        failing_erase_of_no_node,
        failing_insert_of_bad_op,
        failing_insert_at_foreign,
        failing_insert_of_short_tuple,
        failing_replace_by_no_node,
    ],
)
def test_a_bulk_edit_that_fails_changes_nothing(failing):
    graph = chain_graph()
    x, relu, neg = list(graph.nodes)[:3]
    before = state(graph)
    function = failing(graph, x, relu, neg)
    with pytest.raises((TypeError, ValueError, RuntimeError, AssertionError)):
        function()
    assert state(graph) == before
    assert graph.call_function(torch.sin).name == "sin"  # no name was used up


# ---- tables, links, module


def test_the_order_of_the_find_nodes_table_is_torch_s(bridge):
    def made():
        graph = fx.Graph()
        x = graph.placeholder("x")
        relus = [graph.call_function(torch.relu, (x,)) for _ in range(5)]
        relus[3].meta = {}  # moves it to the end of its table
        graph.output([relus[i] for i in (0, 2, 3)])
        return graph

    first, second = made(), made()
    assert table(first)["call_function", torch.relu][-1] == "relu_3"
    same_outcome(first, second, torch_dce, our_dce)
    assert names(second.find_nodes(op="call_function", target=torch.relu, sort=False)) == ["relu", "relu_2", "relu_3"]


def test_an_erased_node_keeps_what_torch_leaves_it(bridge):
    graph = chain_graph()
    relu, neg, dead = list(graph.nodes)[1:4]
    assert fastexport.eliminate_dead_code(graph).removed == ["abs_1", "neg", "relu"]
    assert neg._erased and neg.args == (None,) and not neg._input_nodes and not relu.users
    assert neg.name == "neg" and neg.graph is graph
    assert graph.call_function(torch.abs).name == "abs_2"  # its name stays taken
    assert list(node_of(graph, "x").users) == list(graph.find_nodes(op="output"))


def test_a_module_is_recompiled_when_its_graph_changed(bridge):
    module = fx.GraphModule(torch.nn.Module(), chain_graph())
    assert "torch.abs" in module.code
    assert fastexport.eliminate_dead_code(module)
    assert "torch.abs" not in module.code
    assert module(torch.ones(1)).tolist() == [1.0]
    assert module.graph.owning_module is module
    code = module.code
    assert not fastexport.eliminate_dead_code(module)
    assert module.code == code


def test_a_bare_graph_needs_no_module(bridge):
    graph = chain_graph()
    assert graph.owning_module is None
    assert len(fastexport.eliminate_dead_code(graph, policy="torch").removed) == 3


# ---- hooks


def recorded_hooks(module):
    """A list that gets what the hooks of a module are called with, and how the graph looks then."""
    calls = []

    def look(kind, **what):
        seen = {key: getattr(value, "name", value) for key, value in what.items()}
        node = what.get("node") or what.get("old")
        calls.append((kind, seen, names(module.graph), names(node.users), node._erased, module.graph._len))

    module._erase_node_hooks.append(lambda node: look("erase", node=node))
    module._create_node_hooks.append(lambda node: look("create", node=node))
    module._replace_hooks.append(lambda old, new, user: look("replace", old=old, new=new, user=user))
    return calls


@settings(max_examples=50)
@given(getitem_recipes)
def test_hooks_are_called_as_torch_calls_them(recipe):
    first, second = with_sound_getitems(build(recipe)), with_sound_getitems(build(recipe))
    seen = [recorded_hooks(graph.owning_module) for graph in (first, second)]
    torch_getitems(first.owning_module)
    first.eliminate_dead_code()
    fastexport.eliminate_getitems(second, policy="torch")
    fastexport.eliminate_dead_code(second, policy="torch")
    assert seen[1] == seen[0]
    assert state(second) == state(first)


def test_bulk_edits_call_hooks_as_torch_does():
    seen, states = [], []
    for erase, replace, insert in (
        (torch_erase, torch_replace, torch_insert),
        (_core.fx_erase, _core.fx_replace_all_uses, _core.fx_insert),
    ):
        graph = chain_graph()
        seen.append(recorded_hooks(owned(graph)))
        x, relu, neg, dead = list(graph.nodes)[:4]
        new, _ = insert(
            graph,
            [
                (x, False, "call_function", torch.sin, (x,), None, None, None),
                (x, True, "call_method", "cos", (), None, "given", {}),
            ],
        )
        replace(graph, [(relu, new), (neg, x)])
        erase(graph, [dead, neg, relu])
        states.append(state(graph))
    assert seen[1] == seen[0]
    assert [kind for kind, *_ in seen[0]] == ["create", "create", "replace", "erase", "erase", "erase"]
    assert states[1] == states[0]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_hook_that_raises_stops_the_pass_where_torch_stops(bridge, times):
    ends = []
    for run in (torch_dce, our_dce):
        graph = chain_graph()
        module = owned(graph)
        calls = []

        def hook(node, calls=calls):
            calls.append(node.name)
            if len(calls) == times:
                raise KeyError("enough")

        module._erase_node_hooks.append(hook)
        with pytest.raises(KeyError, match="enough"):
            run(graph)
        ends.append((calls, state(graph)))
    assert ends[1] == ends[0]


def test_a_hook_that_changes_the_graph_mid_pass(bridge):
    ends = []
    for run in (torch_dce, our_dce):
        graph = chain_graph()
        module = owned(graph)

        def hook(node, graph=graph):
            if node.name == "abs_1":
                with graph.inserting_before(node):
                    graph.call_function(torch.sin, (node.args[0],))
                node_of(graph, "output").args = (node_of(graph, "neg"),)

        module._erase_node_hooks.append(hook)
        run(graph)
        ends.append(state(graph))
    assert ends[1] == ends[0]
    assert names(graph) == ["x", "relu", "neg", "output"]


# ---- callbacks


@settings(max_examples=50)
@given(recipes, st.integers(0, 2**20 - 1), st.booleans())
def test_is_impure_node_is_asked_as_torch_asks(recipe, impure, explain):
    ends = []
    for run in (
        lambda graph, asked: graph.eliminate_dead_code(asked),
        lambda graph, asked: bool(fastexport.eliminate_dead_code(graph, asked, policy="torch", explain=explain)),
    ):
        graph = build(recipe)
        calls = []
        positions = {node: i for i, node in enumerate(graph.nodes)}

        def asked(node, calls=calls, positions=positions):
            calls.append((node.name, names(node.users)))
            return node.op in ("placeholder", "output") or bool(impure >> positions[node] & 1)

        ends.append((run(graph, asked), calls, state(graph)))
    assert ends[1] == ends[0]


def test_a_callback_that_raises_stops_where_torch_stops(bridge):
    ends = []
    for run in (torch_dce_with, our_dce_with):
        graph = chain_graph()

        def asked(node):
            if node.name == "neg":
                raise ZeroDivisionError
            return node.op in ("placeholder", "output")

        with pytest.raises(ZeroDivisionError):
            run(graph, asked)
        ends.append(state(graph))
    assert ends[1] == ends[0]


def torch_dce_with(graph, asked):
    return graph.eliminate_dead_code(asked)


def our_dce_with(graph, asked):
    return fastexport.eliminate_dead_code(graph, asked, policy="torch")


def test_a_callback_that_changes_the_graph(bridge):
    ends = []
    for run in (torch_dce_with, our_dce_with):
        graph = chain_graph()

        def asked(node, graph=graph):
            if node.name == "abs_1":
                node_of(graph, "output").args = (node_of(graph, "relu"),)
                graph.erase_node(node_of(graph, "neg"))
            return node.op in ("placeholder", "output")

        run(graph, asked)
        ends.append(state(graph))
    assert ends[1] == ends[0]


def test_a_node_class_with_its_own_opinion_is_asked(bridge, monkeypatch):
    asked = []

    def is_impure(node, impure_random=True):
        asked.append(node.name)
        return node.op in ("placeholder", "output") or node.target is torch.neg

    monkeypatch.setattr(fx.Node, "is_impure", is_impure)
    graph = chain_graph()
    assert fastexport.eliminate_dead_code(graph, policy="torch").removed == ["abs_1"]
    assert asked == ["output", "abs_1", "neg", "relu", "x"]


# ---- subgraphs


def branching(held_by, dead=True):
    """A module with a GraphModule child "sub" that has dead code, which a get_attr or call_module node names."""
    root = torch.nn.Module()
    root.sub = fx.GraphModule(torch.nn.Module(), chain_graph())
    root.sub.deep = fx.GraphModule(torch.nn.Module(), chain_graph())
    graph = fx.Graph()
    x = graph.placeholder("x")
    if held_by == "get_attr":
        graph.output((x, graph.get_attr("sub")))
    elif held_by == "call_module":
        graph.output(graph.call_module("sub", (x,)))
    else:
        graph.output((x, graph.get_attr("sub.deep")))
    return fx.GraphModule(root, graph)


@pytest.mark.parametrize("held_by", ["get_attr", "call_module", "deep get_attr"])
@pytest.mark.parametrize("door", ["graph", "module"])
def test_subgraphs_are_gone_into_as_torch_does(bridge, held_by, door):
    first, second = branching(held_by), branching(held_by)
    expected = first.graph.eliminate_dead_code()
    result = fastexport.eliminate_dead_code(second.graph if door == "graph" else second, policy="torch")
    assert module_state(second) == module_state(first)
    assert bool(result) is expected
    if held_by == "get_attr":
        assert result.removed == ["sub/abs_1", "sub/neg", "sub/relu"]
        assert "torch.abs" not in second.sub.code
    else:
        assert result.removed == []


@pytest.mark.parametrize("held_by", ["get_attr", "call_module"])
def test_the_safe_policy_goes_into_every_subgraph_unless_told_not_to(bridge, held_by):
    module = branching(held_by)
    assert not fastexport.eliminate_dead_code(module, recurse=False)
    result = fastexport.eliminate_dead_code(module, explain=True)
    assert result.removed == ["sub/abs_1", "sub/neg", "sub/relu"]
    assert result.reasons["sub/abs_1"].startswith("removed")
    assert "torch.abs" not in module.sub.code


def test_branches_of_a_cond(bridge):
    def spoiled():
        module = copy.deepcopy(exported_cond()[0].graph_module)
        for branch in module.children():
            x = next(iter(branch.graph.nodes))
            with branch.graph.inserting_after(x):
                branch.graph.call_function(aten.cos.default, (x,))
            branch.recompile()
        return module

    first, second = spoiled(), spoiled()
    assert first.graph.eliminate_dead_code() is True
    result = fastexport.eliminate_dead_code(second, policy="torch")
    assert len(result.removed) == 2 and all("/cos" in name for name in result.removed)
    assert {path: seen[1] for path, seen in module_state(second).items()} == {
        path: seen[1] for path, seen in module_state(first).items()
    }


# ---- real models


@pytest.mark.parametrize("model", MODELS)
def test_real_models(bridge, model):
    program, _ = exported(model)

    def spoiled():
        module = copy.deepcopy(program.graph_module)
        for i, node in enumerate(list(module.graph.nodes)):
            if i % 5 == 0 and node.op == "call_function":
                with module.graph.inserting_before(node.next):
                    dead = module.graph.call_function(aten.sin.default, (node,))
                    module.graph.call_function(aten.cos.default, (dead,))
        return module

    first, second = spoiled(), spoiled()
    texts = str(first.graph)
    torch_getitems(first)
    first.graph.eliminate_dead_code()
    first.graph.lint()
    fastexport.eliminate_getitems(second, policy="torch")
    assert len(fastexport.eliminate_dead_code(second, policy="torch").removed) >= 20
    assert fastexport.lint(second) == []
    assert str(second.graph) == str(first.graph) != texts
    assert [names(node.users) for node in second.graph.nodes] == [names(node.users) for node in first.graph.nodes]


# ---- ExportedProgram


class TopK(torch.nn.Module):
    def forward(self, x):
        values, indices = torch.topk(x, 2)
        return values * 2, indices


def with_second_getitem(output=False):
    """A program of topk in which a pass put a second getitem for output 0; case 09."""
    program = torch.export.export(TopK(), (torch.arange(4.0),))
    graph = program.graph
    mul = next(node for node in graph.nodes if node.target is aten.mul.Tensor)
    first = mul.args[0]
    with graph.inserting_before(mul):
        again = graph.call_function(operator.getitem, (first.args[0], 0))
        again.meta = dict(first.meta)
    mul.args = (first, again)
    if output:  # the program gives the second one's value, too
        (out,) = graph.find_nodes(op="output")
        out.args = ((again, out.args[0][1]),)
        program.graph_signature.output_specs[0].arg.name = again.name
    return program


def test_the_second_getitem_of_a_program_goes_and_it_saves(bridge):
    program = with_second_getitem()
    result = fastexport.eliminate_getitems(program)
    assert names(program.graph) == ["x", "topk", "getitem", "getitem_1", "mul", "output"]
    assert result.replaced == {"getitem_2": "getitem"}
    assert names(node_of(program.graph, "topk").users) == ["getitem", "getitem_1"]
    program.validate()
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert torch.export.load(file).module()(torch.arange(4.0))[0].tolist() == [9.0, 4.0]


@pytest.mark.parametrize("policy", ["safe", "torch"])
@pytest.mark.parametrize("way", ["pass", "chain"])
def test_the_signature_of_a_program_follows(bridge, policy, way):
    program = with_second_getitem(output=True)
    assert program.graph_signature.output_specs[0].arg.name == "getitem_2"
    entry = program.module_call_graph[0]
    entry.signature.outputs.append(TensorArgument("getitem_2"))
    if way == "pass":
        fastexport.eliminate_getitems(program, policy=policy)
    else:
        fastexport.run_passes(program, ["eliminate_getitems", "lint"], policy=policy)
    assert program.graph_signature.output_specs[0].arg.name == "getitem"
    assert entry.signature.outputs[0].name == "getitem"
    assert program.graph_module._replace_hooks == []
    program.validate()
    assert program.module()(torch.arange(4.0))[0].tolist() == [3.0, 2.0]


def test_dead_code_of_a_program_keeps_its_inputs_and_mutations(bridge):
    """Case 44."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.ones(2))
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x):
            self.n.add_(1)
            return x + torch.tensor([1.0, 2.0]) * self.b

    program = torch.export.export(Model(), (torch.ones(2),)).run_decompositions({})
    mul = next(node for node in program.graph.nodes if node.target is aten.mul.Tensor)
    mul.args = (mul.args[0], 3)  # the last use of buffer b
    assert fastexport.eliminate_dead_code(program).removed == []
    with program.graph.inserting_before(mul):
        program.graph.call_function(aten.neg.default, (mul.args[0],))
    assert fastexport.eliminate_dead_code(program).removed == ["neg_default"]
    assert len(program.graph.find_nodes(op="placeholder")) == len(program.graph_signature.input_specs) == 4
    assert list(program.graph_signature.buffers_to_mutate.values()) == ["n"]
    program.validate()
    assert program.module()(torch.ones(2)).tolist() == [4.0, 7.0]


# ---- the safe policy


def in_place_method():
    """Case 01."""
    return graph_of(("call_method", "mul_", ("%x", 3)))


def out_argument():
    """Case 03."""
    return graph_of(
        ("call_function", torch.empty_like, ("%x",)),
        ("call_function", torch.add, ("%x", "%x"), {"out": "%empty_like"}),
        output="%empty_like",
    )


def effect_in_called_module():
    """Case 05."""
    root = torch.nn.Module()
    inner = graph_of(("call_function", aten.add_.Tensor, ("%x", 1)), output="%add__tensor")
    root.sub = fx.GraphModule(torch.nn.Module(), inner)
    graph = graph_of(("call_module", "sub", ("%x",)))
    fx.GraphModule(root, graph)
    return graph


def effect_two_modules_down():
    root = torch.nn.Module()
    root.outer = fx.GraphModule(torch.nn.Module(), fx.Graph())
    root.outer.inner = effect_in_called_module().owning_module
    graph = graph_of(("call_module", "inner", ("%x",)))
    root.outer.graph = graph
    top = graph_of(("call_module", "outer", ("%x",)))
    fx.GraphModule(root, top)
    return top


def of_unknown_effect(x):
    return x


def effects_of_operators():
    return graph_of(
        ("call_function", aten.add_.Tensor, ("%x", 1)),
        ("call_function", operator.setitem, ("%x", 0, 1)),
        ("call_function", operator.iadd, ("%x", 1)),
        ("call_function", aten._assert_async.msg, ("%x", "text")),
        ("call_function", torch._assert, (True, "text")),
        ("call_function", print, ("%x",)),
        ("call_function", of_unknown_effect, ("%x",)),
        ("call_function", aten.sym_constrain_range_for_size.default, ("%x",)),
    )


KEPT = [in_place_method, out_argument, effect_in_called_module, effect_two_modules_down, effects_of_operators]


@pytest.mark.parametrize("make", KEPT)
def test_effects_are_kept(bridge, make):
    graph = make()
    before = state(graph)
    result = fastexport.eliminate_dead_code(graph, explain=True)
    assert not result and result.removed == []
    assert state(graph) == before
    for node in graph.nodes:
        assert result.reasons[node.name].startswith("kept: ")
        if not node.users and node.op != "placeholder":
            assert result.reasons[node.name] != "kept: it has users"


@pytest.mark.parametrize("make", KEPT)
def test_torch_s_policy_removes_what_torch_removes(bridge, make):
    same_outcome(make(), make(), torch_dce, our_dce)


def random_and_asserts():
    """Case 07."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(aten.rand.default, ([2],), name="rand_default")
    graph.call_function(aten.bernoulli.p, (x, 0.5), name="bernoulli_p")
    lt = graph.call_function(aten.all.default, (x,), name="lt")
    graph.call_function(aten._assert_async.msg, (lt, "x must hold"), name="_assert_async_msg")
    graph.call_function(aten.neg.default, (x,))
    graph.output(x)
    return graph


@pytest.mark.parametrize("policy", ["safe", "torch"])
def test_random_operators_and_asserts_stay_unless_asked(bridge, policy):
    graph = random_and_asserts()
    assert fastexport.eliminate_dead_code(graph, policy=policy).removed == ["neg_default"]
    assert names(graph) == ["x", "rand_default", "bernoulli_p", "lt", "_assert_async_msg", "output"]
    result = fastexport.eliminate_dead_code(graph, policy=policy, keep_random=False)
    assert result.removed == ["bernoulli_p", "rand_default"]
    assert names(graph) == ["x", "lt", "_assert_async_msg", "output"]


def test_reasons(bridge):
    graph = random_and_asserts()
    with graph.inserting_after(node_of(graph, "x")):
        graph.call_function(aten.add_.Tensor, (node_of(graph, "x"), 1), name="written")
    reasons = fastexport.eliminate_dead_code(graph, explain=True).reasons
    assert reasons == {
        "x": "kept: an input of the graph",
        "written": "kept: it writes to an operand",
        "rand_default": "kept: it draws random numbers (keep_random)",
        "bernoulli_p": "kept: it draws random numbers (keep_random)",
        "lt": "kept: it has users",
        "_assert_async_msg": reasons["_assert_async_msg"],
        "neg_default": "removed: no users and no effect",
        "output": "kept: the output of the graph",
    }
    assert "nothing" in reasons["_assert_async_msg"] or "effect" in reasons["_assert_async_msg"]
    assert fastexport.eliminate_dead_code(random_and_asserts()).reasons is None


def test_getitems_by_key_and_across_a_write(bridge):
    """Case 10."""
    graph = fx.Graph()
    d, items, value = (graph.placeholder(name) for name in ("d", "items", "value"))
    first = graph.call_function(operator.getitem, (d, 0))
    second = graph.call_function(operator.getitem, (d, "0"))
    third = graph.call_function(operator.getitem, (d, False))
    before = graph.call_function(operator.getitem, (items, 0))
    graph.call_function(operator.setitem, (items, 0, value))
    after = graph.call_function(operator.getitem, (items, 0))
    graph.output((first, second, third, before, after))
    module = fx.GraphModule(torch.nn.Module(), graph)
    untouched = state(graph)
    assert not fastexport.eliminate_getitems(module)
    assert state(graph) == untouched
    assert module({0: "int", "0": "text"}, [10], 20) == ("int", "text", "int", 10, 20)


def test_getitems_that_are_equal_merge_into_the_first(bridge):
    graph = graph_of(
        ("call_function", operator.getitem, ("%x", 0)),
        ("call_function", operator.getitem, ("%x", 1)),
        ("call_function", operator.getitem, ("%x", 0)),
        ("call_function", operator.getitem, ("%getitem", 1)),
        ("call_function", operator.getitem, ("%getitem_2", 1)),
        output=["%getitem_2", "%getitem_1", "%getitem_4", "%getitem_3"],
    )
    result = fastexport.eliminate_getitems(graph)
    assert result.replaced == {"getitem_2": "getitem", "getitem_4": "getitem_3"}
    assert result.removed == ["getitem_2", "getitem_4"]
    assert names(graph) == ["x", "getitem", "getitem_1", "getitem_3", "output"]
    assert str(list(graph.nodes)[-1].args) == "([getitem, getitem_1, getitem_3, getitem_3],)"


# ---- lint


def lint_graph():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,), name="a")
    graph.output(graph.call_function(torch.neg, (a,), name="b"))
    owned(graph)
    return graph


def out_of_order(graph, x, a, b, output):
    a.prepend(b)


def erased_operand(graph, x, a, b, output):
    with graph.inserting_before(b):
        c = graph.call_function(torch.abs, (x,), name="c")
    graph.erase_node(c)
    b.args = (c,)


def foreign_operand(graph, x, a, b, output):
    b.args = (fx.Graph().placeholder("z"),)


def missing_attribute(graph, x, a, b, output):
    with graph.inserting_before(a):
        a.args = (graph.create_node("get_attr", "deep.gone"),)


def duplicate_name(graph, x, a, b, output):
    b.name = "a"


def stale_users(graph, x, a, b, output):
    x.users[b] = None


def second_output(graph, x, a, b, output):
    with graph.inserting_before(output):
        graph.create_node("output", "output", (a,), name="output_0")


# what spoils a graph -> the code of the fault, node, operand, what else the message names
FAULTS = {
    out_of_order: ("UNDEFINED_OPERAND", "b", "a", ()),
    erased_operand: ("ERASED_OPERAND", "b", "c", ()),
    foreign_operand: ("FOREIGN_OPERAND", "b", "z", ()),
    missing_attribute: ("TARGET_MISSING", "deep_gone", None, ("deep.gone",)),
    duplicate_name: ("DUPLICATE_NAME", "a", "a", ()),
    stale_users: ("STALE_USERS", "x", "b", ()),
    second_output: ("OUTPUT_NOT_LAST", "output_0", "output", ()),
}


@pytest.mark.parametrize("spoil", FAULTS)
def test_lint_finds_the_seven_faults_and_names_the_nodes(spoil):
    """Case 23."""
    code, node, operand, mentioned = FAULTS[spoil]
    graph = lint_graph()
    spoil(graph, *graph.nodes)
    with pytest.raises(fastexport.LintError) as caught:
        fastexport.lint(graph)
    (fault, *more) = fastexport.lint(graph, all=True)
    assert fault == caught.value.faults[0]
    assert str(caught.value) == fault.message
    assert fault.node == node
    assert fault.operand == operand
    assert fault.code == code
    for name in (node, operand or node, *mentioned):
        assert f"'{name}'" in fault.message
    assert [other.code for other in more] == (["SECOND_OUTPUT"] if spoil is second_output else [])


@pytest.mark.parametrize("spoil", FAULTS)
def test_lint_through_the_public_api_finds_them_too(spoil, monkeypatch):
    graph = lint_graph()
    spoil(graph, *graph.nodes)
    monkeypatch.setattr(_torch, "_FAST", False)
    with pytest.raises(fastexport.LintError):
        fastexport.lint(graph)
    assert fastexport.lint(graph, all=True)
    assert fastexport.lint(lint_graph(), all=True) == []


def test_all_faults_are_listed():
    graph = lint_graph()
    x, a, b, output = graph.nodes
    missing_attribute(graph, x, a, b, output)
    foreign_operand(graph, x, a, b, output)
    second_output(graph, x, a, b, output)
    stale_users(graph, x, a, b, output)
    x.name = "a"
    found = fastexport.lint(graph, all=True)
    assert [(fault.code, fault.node, fault.operand) for fault in found] == [
        ("DUPLICATE_NAME", "a", "a"),
        ("FOREIGN_OPERAND", "b", "z"),
        ("OUTPUT_NOT_LAST", "output_0", "output"),
        ("SECOND_OUTPUT", "output", "output_0"),
        ("TARGET_MISSING", "deep_gone", None),
        ("STALE_USERS", "a", "b"),
    ]


def test_a_target_of_the_wrong_type_is_torch_s_value_error(bridge):
    graph = lint_graph()
    node_of(graph, "a").target = "relu"
    with pytest.raises(ValueError):
        graph.lint()
    with pytest.raises(ValueError) as caught:
        fastexport.lint(graph)
    assert isinstance(caught.value, fastexport.LintError)
    assert fastexport.lint(graph, all=True)[0].code == "TARGET_TYPE"


def test_a_node_that_the_table_lost_is_found(bridge):
    graph = lint_graph()
    graph._find_nodes_lookup_table.table["call_function", torch.relu].clear()
    with pytest.raises(RuntimeError):
        graph.lint()
    with pytest.raises(fastexport.LintError):
        fastexport.lint(graph)


@pytest.mark.parametrize("spoil", [out_of_order, erased_operand, foreign_operand, missing_attribute, duplicate_name])
def test_dead_code_elimination_refuses_what_lint_refuses(bridge, spoil):
    graph = lint_graph()
    x = next(iter(graph.nodes))
    with graph.inserting_after(x):
        graph.call_function(torch.cos, (x,))
    cos = node_of(graph, "cos")
    spoil(graph, *(node for node in graph.nodes if node is not cos))
    with pytest.raises(RuntimeError):
        graph.eliminate_dead_code()
    with pytest.raises(fastexport.LintError):
        fastexport.eliminate_dead_code(graph, policy="torch")
    with pytest.raises(fastexport.LintError):
        fastexport.eliminate_dead_code(graph)
    assert not cos._erased


def test_lint_of_modules_and_programs(bridge):
    program, _ = exported("vit")
    assert fastexport.lint(program) == []
    assert fastexport.lint(program.graph_module) == []
    assert fastexport.lint(fx.GraphModule(root_module(), chain_graph()), all=True) == []


# ---- chains


def test_a_chain_that_lint_stops_has_changed_nothing(bridge):
    graph = chain_graph()
    owned(graph)
    with graph.inserting_before(node_of(graph, "output")):
        graph.create_node("output", "output", (node_of(graph, "x"),), name="early")
    before = state(graph)
    with pytest.raises(fastexport.LintError):
        fastexport.run_passes(graph, ["eliminate_dead_code", "lint"])
    assert state(graph) == before


def test_a_chain_on_a_module_recompiles_it_and_its_subgraphs(bridge):
    module = branching("get_attr")
    results = fastexport.run_passes(module, ["eliminate_dead_code", "eliminate_getitems", "lint"])
    assert [bool(result) for result in results] == [True, False, False]
    assert results[0].removed == ["sub/abs_1", "sub/neg", "sub/relu"]
    assert "torch.abs" not in module.sub.code
    assert names(module.sub.graph) == ["x", "output"]


def test_a_chain_calls_hooks(bridge):
    graph = chain_graph()
    seen = recorded_hooks(owned(graph))
    fastexport.run_passes(graph, ["eliminate_dead_code"])
    assert [(kind, what["node"]) for kind, what, *_ in seen] == [
        ("erase", "abs_1"),
        ("erase", "neg"),
        ("erase", "relu"),
    ]


def test_a_function_among_the_passes_may_look_and_change(bridge):
    graph = chain_graph()
    seen = []

    def look(native):
        seen.append(len(native.nodes))
        return fastexport.PassResult("look")

    fastexport.run_passes(graph, ["eliminate_dead_code", look])
    assert seen == [2]
    graph = chain_graph()
    nodes = {node.name: node for node in graph.nodes}
    fastexport.run_passes(graph, [lambda native: native.erase_node(native.node("abs_1"))])
    assert nodes.pop("abs_1")._erased
    assert {node.name: node for node in graph.nodes} == nodes


@pytest.mark.parametrize("function", ["eliminate_dead_code", "eliminate_getitems", "lint"])
def test_what_no_pass_takes_is_refused(function):
    for value in (None, 3, torch.nn.Linear(1, 1), "graph"):
        with pytest.raises(TypeError, match=rf"^{function}\(\) takes a fastexport or torch graph, "):
            getattr(fastexport, function)(value)
    with pytest.raises(ValueError, match="there is no pass 'nothing'"):
        fastexport.run_passes(chain_graph(), ["nothing"])


class Index:
    """Nothing that the core knows."""


@pytest.mark.parametrize(
    "index",
    [..., (..., 0), torch.tensor([0]), torch.float32, b"a", range(2), frozenset((1,)), 2**70, 1j, Index()],
    ids=label,
)
@pytest.mark.parametrize("policy", ["safe", "torch"])
def test_getitems_of_any_index(index, policy):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    first, again = (graph.call_function(operator.getitem, (x, index)) for _ in range(2))
    graph.output((first, again))
    assert fastexport.eliminate_getitems(graph, policy=policy).replaced == {"getitem_1": "getitem"}
    assert graph.output_node().args == ((first, first),)


@pytest.mark.parametrize("distance", range(1, 12))
def test_lint_of_an_operand_that_stands_later(distance):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    nodes = [graph.call_function(torch.relu, (x,)) for _ in range(14)]
    nodes[0].args = (nodes[distance],)
    graph.output(nodes[0])
    faults = fastexport.lint(graph, all=True)
    assert [(f.code, f.node, f.operand) for f in faults] == [("UNDEFINED_OPERAND", "relu", f"relu_{distance}")]
    assert [f.code for f in fastexport.lint(graph, all=True)] == ["UNDEFINED_OPERAND"]


def test_a_node_without_target():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.relu, (x,))
    graph.output(x)
    del relu.target
    with pytest.raises(fastexport.LintError, match="relu"):
        fastexport.eliminate_dead_code(graph)
    assert not fastexport.eliminate_getitems(graph)
    with pytest.raises(ValueError, match="relu"):
        fastexport.from_fx(graph)


def test_a_fault_in_a_subgraph_is_found_before_anything_changes():
    inner = torch.fx.Graph()
    value = inner.placeholder("value")
    inner.output(value).append(value)
    root = torch.nn.Module()
    root.branch = torch.fx.GraphModule(torch.nn.Module(), inner)
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.neg, (x,))
    graph.output((x, graph.get_attr("branch")))
    module = torch.fx.GraphModule(root, graph)
    before = str(module.graph)
    native = fastexport.from_fx(module)
    for target in (module, native):
        with pytest.raises(fastexport.LintError, match="value"):
            fastexport.eliminate_dead_code(target)
    assert str(module.graph) == str(native) == before


@pytest.mark.parametrize("op", ["bogus", None, 5])
def test_an_unknown_opcode_is_told(op):
    graph = torch.fx.symbolic_trace(lambda x: x.relu() + 1).graph
    next(node for node in graph.nodes if node.op == "call_method").op = op  # torch lists it under that opcode
    with pytest.raises(RuntimeError) as expected:
        graph.lint()
    for run in (fastexport.lint, fastexport.eliminate_dead_code):
        with pytest.raises(RuntimeError, match="opcode"):
            run(graph)
    assert fastexport.lint(graph, all=True)[0].code == "UNKNOWN_OP"
    fastexport.eliminate_getitems(graph)
    with fastexport.accelerate(), pytest.raises(RuntimeError) as found:
        graph.lint()
    assert str(found.value) == str(expected.value)
