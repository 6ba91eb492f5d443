"""run_passes with functions of the user's: what it tells of them, and how it finds the one that broke the graph."""

import copy
import operator
import pickle
from types import SimpleNamespace

import pytest
import torch

import fastexport
from fastexport import Graph, PassError, PassLog, PassResult, run_passes
from fx_graphs import exported_cond
from helpers import names, structure


def chain(length=4):
    g = Graph()
    value = g.placeholder("x")
    for _ in range(length):
        value = g.call_function(operator.neg, (value,))
    g.output(value)
    return g


def swap(old, new):
    """A pass that puts calls of another function in the place of those of one."""

    def run(graph):
        for node in graph.find_nodes(op="call_function", target=old):
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.call_function(new, node.args))
            graph.erase_node(node)

    run.__name__ = f"swap_{old.__name__}"
    return run


to_pos = swap(operator.neg, operator.pos)


def nothing(graph):
    """A pass that leaves the graph alone."""


def put_last(name):
    """A pass that moves a node to where it can't stand."""

    def broken(graph):
        graph.output_node().append(graph.node(name))

    return broken


# ---- the log


def test_what_functions_did_is_told():
    g = chain(2)
    log = run_passes(g, [to_pos, nothing, "eliminate_dead_code"])
    assert isinstance(log, list) and [result.name for result in log] == ["swap_neg", "nothing", "eliminate_dead_code"]
    assert [result.modified for result in log] == [True, False, False]
    assert log[0].removed == ["neg", "neg_1"] and log[0].added == ["pos", "pos_1"]
    assert log[0].replaced == {"neg": "pos", "neg_1": "pos_1"}
    assert log.modified and log.seconds == sum(result.seconds for result in log)
    assert not run_passes(g, [nothing]).modified


@pytest.mark.parametrize(
    "edit",
    [
        lambda g: setattr(g.node("neg"), "args", (1,)),
        lambda g: g.output_node().prepend(g.node("neg")),
        lambda g: g.erase_node(g.output_node()),
        lambda g: g.placeholder("y"),
    ],
)
def test_any_edit_of_the_structure_is_a_modification(edit):
    def run(graph):
        edit(graph)

    assert run_passes(chain(1), [run])[0].modified


@pytest.mark.parametrize(
    "outcome, modified",
    [(None, False), (False, False), (True, True)],
)
def test_what_functions_may_return(outcome, modified):
    assert run_passes(chain(), [lambda graph: outcome])[0].modified is modified


def test_a_result_of_the_function_is_kept():
    mine = PassResult("mine", True, removed=["imaginary"])
    assert run_passes(chain(), [lambda graph: mine])[0] is mine


def test_replacements_are_followed_to_the_end():
    g = chain(1)
    log = run_passes(g, [lambda graph: (to_pos(graph), swap(operator.pos, operator.abs)(graph)) and None])
    assert log[0].replaced == {"neg": "abs_1"} and log[0].removed == ["neg"] and log[0].added == ["abs_1"]


def test_subgraphs_are_told_with_their_path():
    program, *_ = exported_cond()
    graph = fastexport.from_export(program).graph

    def run(graph):
        sub = graph.subgraphs["true_graph_0"]
        node = next(node for node in sub.nodes if node.op == "call_function")
        with sub.inserting_before(node):
            new = sub.call_function(torch.ops.aten.neg.default, (node.args[0],), name="new")
        node.replace_all_uses_with(new)
        sub.erase_node(node)

    [result] = run_passes(graph, [run])
    assert result.added == ["true_graph_0/new"]
    assert [(old.split("/")[0], new) for old, new in result.replaced.items()] == [("true_graph_0", "true_graph_0/new")]


def test_the_log_is_a_table():
    log = PassLog([PassResult("one<two>", True, removed=["a", "b"], seconds=0.0015), PassResult("three", added=["c"])])
    assert repr(log).splitlines() == [
        "pass      modified  removed  added  replaced     ms",
        "one<two>  yes             2      -         -  1.500",
        "three     no              -      1         -  0.000",
        "all       yes             2      1         -  1.500",
    ]
    assert "one&lt;two&gt;" in log._repr_html_() and "<two>" not in log._repr_html_()
    assert repr(PassLog()) == "pass  modified  removed  added  replaced  ms"


def test_results_are_told_as_they_come():
    seen, kept = [], PassLog()

    def fails(graph):
        raise KeyError("mine")

    for log in (seen, kept, seen.append):
        with pytest.raises(KeyError, match="mine") as caught:
            run_passes(chain(), ["eliminate_dead_code", fails], log=log)
        assert caught.value.__notes__ == ["in pass 'fails', 2 of 2"]
    assert [result.name for result in seen] == ["eliminate_dead_code"] * 2 and len(kept) == 1
    with pytest.raises(TypeError, match="log is a function or a list"):
        run_passes(chain(), [], log=3)


def test_a_policy_is_not_changed_by_watching():
    """A function that runs a pass of ours gets from it what it would get outside."""
    results = []
    for watched in (True, False):
        g = Graph()
        split = g.call_function(torch.split, (g.placeholder("x"), 2))
        items = [g.call_function(operator.getitem, (split, 0)) for _ in range(2)]
        g.output(tuple(items))

        def run(graph):
            graph.eliminate_getitems(policy="torch")

        run_passes(g, [run]) if watched else run(g)
        results.append(structure(g))
    assert results[0] == results[1]
    assert results[0][2][-1] == {}


# ---- checks


def test_check_names_the_pass_and_tells_what_it_did():
    g = chain()
    message = r"pass 'broken' \(2 of 3\) broke the graph: node 'pos_3' uses 'pos_2'"
    with pytest.raises(PassError, match=message) as caught:
        run_passes(g, [to_pos, put_last("pos_2"), "eliminate_dead_code"], check=True)
    error = caught.value
    assert isinstance(error, fastexport.FastExportError) and isinstance(error, RuntimeError)
    assert (error.name, error.index, error.total, error.path) == ("broken", 1, 3, "")
    assert [fault.code for fault in error.faults] == ["UNDEFINED_OPERAND", "OUTPUT_NOT_LAST"]
    assert error.diff.moved == ["pos_2"] and not error.diff.added
    assert [result.name for result in error.log] == ["swap_neg", "broken"]
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.faults == error.faults and str(again.diff) == str(error.diff)


def test_check_of_good_passes_changes_nothing():
    g, h = chain(), chain()
    run_passes(g, [to_pos, "eliminate_dead_code"], check=True)
    run_passes(h, [to_pos, "eliminate_dead_code"])
    assert structure(g) == structure(h)


@pytest.mark.parametrize("options", [{"check": True}, {"bisect": True}])
def test_a_graph_that_was_broken_before(options):
    g = chain()
    put_last("neg_1")(g)
    with pytest.raises(fastexport.LintError):
        run_passes(g, [nothing], **options)


@pytest.mark.parametrize("at", range(7))
def test_bisect_finds_each_pass(at):
    runs = []

    def counting(graph):
        runs.append(1)

    passes = [counting] * 7
    passes[at] = put_last("neg_2")
    kept = []
    with pytest.raises(PassError) as caught:
        run_passes(chain(), passes, bisect=True, log=kept)
    assert (caught.value.index, caught.value.name) == (at, "broken")
    assert caught.value.diff.moved == ["neg_2"]
    assert len(kept) == 7  # what the search ran again is not told
    assert len(caught.value.log) == at + 1


def test_bisect_of_a_chain_whose_later_passes_fail():
    """What dead-code elimination says of a graph is the fault of who broke it."""
    with pytest.raises(PassError) as caught:
        run_passes(chain(), [nothing, put_last("neg_1"), nothing, "eliminate_dead_code"], bisect=True)
    assert (caught.value.index, caught.value.name) == (1, "broken")


def test_bisect_leaves_other_errors_alone():
    def fails(graph):
        raise KeyError("mine")

    for passes in ([fails], [nothing, fails, nothing], [nothing, nothing, fails]):
        with pytest.raises(KeyError, match="mine"):
            run_passes(chain(), passes, bisect=True)
    assert run_passes(chain(), [nothing, to_pos], bisect=True).modified


def test_the_subgraph_at_fault_is_named():
    program, *_ = exported_cond()
    graph = fastexport.from_export(program).graph

    def broken(graph):
        sub = graph.subgraphs["false_graph_0"]
        sub.output_node().append(next(node for node in sub.nodes if node.op == "call_function"))

    for options in ({"check": True}, {"bisect": True}):
        with pytest.raises(PassError, match="broke the graph in false_graph_0") as caught:
            run_passes(copy.copy(graph), ["eliminate_dead_code", broken], **options)
        assert caught.value.path == "false_graph_0"
        assert list(caught.value.diff.graphs) == ["false_graph_0"]


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)

    def forward(self, x):
        return torch.relu(self.fc(x))


def without_value(graph):
    """Breaks no rule of graphs, but one of programs."""
    node = graph.node("relu")
    with graph.inserting_before(node):
        new = graph.call_function(node.target, node.args)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def test_programs_are_verified():
    theirs = torch.export.export(Linear(), (torch.ones(2, 3),))
    for program in (fastexport.from_export(theirs), theirs):
        before = str(theirs)
        for options in ({"check": True}, {"bisect": True}):
            with pytest.raises(PassError) as caught:
                run_passes(copy.copy(program), [nothing, without_value], **options)
            assert caught.value.name == "without_value"
            assert {fault.code for fault in caught.value.faults} == {"FX305"}
        assert str(theirs) == before


# ---- torch objects


def relu_to_sigmoid(graph):
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
        with graph.inserting_before(node):
            new = graph.call_function(torch.ops.aten.sigmoid.default, node.args)
        node.replace_all_uses_with(new, propagate_meta=True)
        graph.erase_node(node)


@pytest.mark.parametrize("options", [{}, {"check": True}, {"bisect": True}])
def test_functions_on_a_torch_program(options):
    theirs = torch.export.export(Linear(), (torch.ones(2, 3),))
    kept = {node.name: node for node in theirs.graph.nodes}
    x = torch.randn(2, 3)
    want = torch.sigmoid(torch.nn.functional.linear(x, theirs.state_dict["fc.weight"], theirs.state_dict["fc.bias"]))
    log = run_passes(theirs, [relu_to_sigmoid, "eliminate_dead_code"], **options)
    assert log[0].replaced == {"relu": "sigmoid_default"}
    assert theirs.graph_signature.user_outputs == ("sigmoid_default",)
    assert all(node is kept[node.name] for node in theirs.graph.nodes if node.name != "sigmoid_default")
    theirs.validate()
    assert torch.equal(theirs.module()(x), want)


def test_a_failing_chain_leaves_a_torch_object_alone():
    module = torch.fx.symbolic_trace(Linear())
    before, code = structure(module.graph), module.code
    for passes, options in (([to_relu6, put_last("fc")], {"check": True}), ([to_relu6, fails_late], {})):
        with pytest.raises(Exception, match="broke|late"):
            run_passes(module, passes, **options)
        assert structure(module.graph) == before and module.code == code
    assert run_passes(module, [to_relu6]).modified
    assert names(module.graph) == ["x", "fc", "relu6", "output"] and "relu6" in module.code


def to_relu6(graph):
    swap(torch.relu, torch.nn.functional.relu6)(graph)


def fails_late(graph):
    to_relu6(graph)
    raise KeyError("late")


def to_new_module(gm):
    graph = torch.fx.Graph()
    graph.output(graph.placeholder("z"))
    return torch.fx.GraphModule({}, graph)


class TestReturned:
    @pytest.mark.parametrize("result", [3, "lint", Graph(), torch.fx.Graph(), to_new_module(None), (), object()])
    @pytest.mark.parametrize("live", [False, True])
    def test_what_is_no_result_is_refused(self, result, live):
        module = torch.fx.symbolic_trace(lambda x: x + 1)
        before = str(module.graph)

        def new(graph):
            return result

        with pytest.raises(TypeError, match=rf"pass 'new' returned a {type(result).__name__}.*apply_fx_pass"):
            run_passes(module if live else fastexport.from_fx(module), [new])
        assert str(module.graph) == before

    def test_a_pass_may_return_what_it_was_given(self):
        graph = fastexport.from_fx(torch.fx.symbolic_trace(lambda x: x + 1))
        assert not run_passes(graph, [lambda g: g, lambda g: None, lambda g: False]).modified
        assert run_passes(graph, [lambda g: True]).modified

    def test_a_pass_may_return_what_replace_pattern_gives(self):
        graph = fastexport.from_fx(torch.fx.symbolic_trace(lambda x: x + 1))
        log = run_passes(graph, [lambda g: fastexport.replace_pattern(g, lambda x: x + 1, lambda x: x - 1)])
        assert log.modified and log[0].replaced == {"add": "sub"}

    def test_a_result_of_torch_with_the_graph_that_was_given(self):
        graph = fastexport.from_fx(torch.fx.symbolic_trace(lambda x: x + 1))
        assert run_passes(graph, [lambda g: SimpleNamespace(graph_module=g, modified=True)]).modified

    @pytest.mark.parametrize("result", [3, "lint", (), object()])
    def test_apply_fx_pass_refuses_too(self, result):
        graph = fastexport.from_fx(torch.fx.symbolic_trace(lambda x: x + 1))
        before = str(graph)
        with pytest.raises(TypeError, match=f"pass 'mine' returned a {type(result).__name__}"):
            fastexport.apply_fx_pass(graph, lambda gm: result, name="mine")
        assert str(graph) == before
        assert fastexport.apply_fx_pass(graph, to_new_module).modified

    def test_arguments_of_the_wrong_form(self):
        graph = fastexport.from_fx(torch.fx.symbolic_trace(lambda x: x + 1))
        with pytest.raises(TypeError, match="passes must be a list"):
            run_passes(graph, None)
        with pytest.raises(TypeError, match="torch_pass must be a function"):
            fastexport.apply_fx_pass(graph, 3)
