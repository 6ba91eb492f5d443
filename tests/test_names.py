"""Names of nodes: the same as torch.fx gives for the same calls, and always unique."""

import operator

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given, settings

import fastexport
from fastexport import Graph
from helpers import names

WORDS = [
    "x", "X", "x_1", "x_2", "x_10", "x_007", "x_0", "x_1_1", "x_", "x__1", "_", "_1", "__1", "1", "1x", "1_2",
    "", " ", "a b", "a-b_3", "a.b.c", "-", "x\n", "x_1\n", "\n", "None", "class", "self", "torch", "inf", "nan",
    "device", "input", "print", "add", "Foo", "fooBar", "HTTPServer", "__add__", "__", "____", "\u00e9", "x_\u0663",
    "\u0663", "\U0001f600", "\ud800", "x\0y", "relu_", "_unnamed", "output", "output_1",
]  # fmt: skip
FUNCTIONS = [operator.add, operator.getitem, torch.relu, torch.ops.aten.add.Tensor, len, torch.nn.functional.relu]

words = st.one_of(
    st.sampled_from(WORDS),
    st.builds("{}_{}".format, st.sampled_from(["x", "add", "class", "_", "a_1"]), st.integers(0, 10**18 - 50)),
    st.text("xXa_01 .\u00e9\u0663\n", max_size=6),
)
steps = st.one_of(
    st.tuples(st.just("name"), words),
    st.tuples(st.just("input"), words),
    st.tuples(st.just("method"), words),
    st.tuples(st.just("function"), st.sampled_from(FUNCTIONS)),
    st.tuples(st.just("erase"), st.integers(0, 50)),
)


def names_made(kind, steps):
    g = kind()
    made = []
    for what, value in steps:
        if what == "erase":
            nodes = list(g.nodes)
            if nodes:
                g.erase_node(nodes[value % len(nodes)])
            continue
        if what == "name":
            node = g.call_function(len, name=value)
        elif what == "input":
            node = g.placeholder(value)
        elif what == "method":
            node = g.call_method(value)
        else:
            node = g.call_function(value)
        made.append(node.name)
    return made


@given(st.lists(steps, max_size=30))
@settings(max_examples=300)
@example([("name", word) for word in WORDS for _ in range(3)])
@example([("input", word) for word in WORDS for _ in range(3)])
@example([("method", word) for word in WORDS for _ in range(3)])
@example([("name", word) for word in WORDS] + [("erase", i) for i in range(40)] + [("name", word) for word in WORDS])
def test_names_are_those_of_torch(steps):
    ours = names_made(Graph, steps)
    # A newline at the end, which torch takes into the name, is to us what a blank is.
    theirs = [(what, value.replace("\n", " ") if isinstance(value, str) else value) for what, value in steps]
    assert ours == names_made(torch.fx.Graph, theirs)
    assert all("\n" not in name for name in ours)
    assert len(set(ours)) == len(ours)


@pytest.mark.parametrize("number", [2**63 - 3, 2**63 - 1, 2**63, 10**19, 10**40])
def test_numbers_beyond_64_bits_stay_unique(number):
    """torch.fx counts on without bound; we begin again at 1. Either way no name comes twice."""
    g = Graph()
    made = [g.call_function(len, name=f"x_{number}").name for _ in range(6)]
    assert made[0] == f"x_{number}" and len(set(made)) == 6
    assert g.lint() == []


def test_numbers_do_not_begin_again():
    g = Graph()
    nodes = [g.placeholder("x") for _ in range(5)]
    for node in nodes:
        g.erase_node(node)
    assert g.placeholder("x").name == "x_5"


def test_a_name_given_by_assignment_is_taken():
    g = Graph()
    node = g.placeholder("x")
    node.name = "y"
    assert g.placeholder("y").name == "y_1" and g.placeholder("x").name == "x_1"
    node.name = "z_7"
    assert names([g.placeholder("z_7"), g.placeholder("z"), g.placeholder("z")]) == ["z_1", "z", "z_2"]


def test_one_target_many_names():
    """The hundred-thousandth name takes no search from 1."""
    g = Graph()
    for _ in range(100_000):
        node = g.call_function(torch.sin)
    assert node.name == "sin_99999"
    assert g.call_function(torch.sin, name="sin_50000").name == "sin_100000"


def test_copies_of_copies():
    """Names like sin_1, sin_2 copied again and again: numbers stay in the thousands."""
    block = Graph()
    for _ in range(50):
        block.call_function(torch.sin)
    g = Graph()
    for _ in range(100):
        g.graph_copy(block, {})
    assert len(set(names(g))) == 5000
    assert list(g.nodes)[-1].name == "sin_4999"


class Named:
    def __init__(self, name):
        self.__name__ = name

    def __call__(self):
        pass


@pytest.mark.parametrize("name", ["Linear", "fooBar", "a b", "<lambda>", "class", "add_1", "\u00c9t\u00e9", "x" * 300])
def test_names_of_callables(name):
    def made(kind):
        g = kind()
        return [g.call_function(Named(name)).name for _ in range(3)]

    assert made(Graph) == made(torch.fx.Graph)


def test_callables_without_a_name():
    class Nameless:
        def __call__(self):
            pass

    g = Graph()
    target = Nameless()
    with pytest.raises(AttributeError, match="__name__"):
        g.call_function(target)
    assert g.call_function(target, name="given").name == "given"
    with pytest.raises(TypeError, match="string"):
        g.call_function(type("Odd", (Nameless,), {"__name__": 3})())


def test_the_same_name_for_every_stem():
    """A stem is asked for once, and a target whose name changes keeps it."""
    g = Graph()
    target = Named("first")
    g.call_function(target)
    target.__name__ = "second"
    assert g.call_function(target).name == "first_1"


ODD = ["a\n", "a b", "", "1a", "class", "None", "a-b"]


@pytest.mark.parametrize("name", ODD)
def test_names_that_code_can_not_have(name):
    """They do no harm, as code has others in their places; lint names them when it is asked for all."""
    g = Graph()
    x = g.placeholder("x")
    g.output(x)
    x.name = name
    assert g.lint() == []
    (fault,) = g.lint(all=True)
    assert (fault.code, fault.node, fault.operand, fault.is_error) == ("ODD_NAME", name, None, False)
    assert fault.message == f"the name '{name}' is no identifier, so code has another in its place; rename the node"
    fastexport.run_passes(g, ["eliminate_dead_code"], check=True)
    compile(g.python_code("self").src, "code", "exec")
    x.name = "plain"
    assert g.lint(all=True) == []


def test_odd_names_of_live_graphs():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.create_node("call_function", operator.neg, (x,), name="a\n")  # torch keeps it
    graph.output(y)
    (fault,) = fastexport.from_fx(graph).lint(all=True)
    assert (fault.code, fault.node) == ("ODD_NAME", "a\n")
    fastexport.lint(graph)
    with fastexport.accelerate():
        graph.lint()
    assert fastexport.from_fx(graph).to_fx().lint() is None
