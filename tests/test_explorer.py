"""explorer_nodes asked of tellers that answer what they should not; what it writes, test_model_explorer.py checks."""

import gc
import json
import operator

import pytest

from explorer_told import Told
from fastexport import FastExportError, Graph, _core


def small_graph():
    g = Graph()
    x = g.placeholder("x")
    g.output(g.call_function(operator.neg, (x,)))
    return g


@pytest.mark.parametrize("method", ["leaf", "target", "space", "source", "value"])
@pytest.mark.parametrize("answer", [None, 3, b"bytes", "not \N{SNOWMAN} ASCII", "\ud800", (), ("", "", "", "")])
def test_answers_that_are_none(method, answer):
    teller = Told()
    setattr(teller, method, lambda *asked: answer)
    with pytest.raises((TypeError, UnicodeError)):
        _core.explorer_nodes(small_graph(), teller)


@pytest.mark.parametrize("method", ["leaf", "target", "space", "source", "value"])
def test_answers_that_raise(method):
    def answer(*asked):
        raise RuntimeError("from within")

    teller = Told()
    setattr(teller, method, answer)
    with pytest.raises(RuntimeError, match="from within"):
        _core.explorer_nodes(small_graph(), teller)


def test_a_truth_is_not_asked_for():
    """A __bool__ could change the graph after it was seen to be as it was."""

    class Truth:
        def __bool__(self):
            raise AssertionError("was asked")

    teller = Told()
    teller.leaf = lambda node: ('"label":"x","attrs":[]', None, Truth())
    with pytest.raises(TypeError, match="bool"):
        _core.explorer_nodes(small_graph(), teller)


@pytest.mark.parametrize("method", ["leaf", "target", "space", "source", "value"])
def test_answers_that_change_the_graph(method):
    g = small_graph()
    teller = Told()
    answer = getattr(teller, method)

    def change(*asked):
        for _ in range(100):
            g.placeholder("more")
        gc.collect()
        return answer(*asked)

    setattr(teller, method, change)
    with pytest.raises(FastExportError, match="was changed"):
        _core.explorer_nodes(g, teller)


@pytest.mark.parametrize("text", ["\t\n\r\x01\x7f'", "\xe4\t\n\r\x01\x7f'", "\xe4\"'\\", "\N{GRINNING FACE}"])
def test_strings_are_shown_as_python_does(text):
    g = Graph()
    g.output(g.call_function(operator.mul, (g.placeholder("x"), text)))
    nodes = json.loads(f"[{_core.explorer_nodes(g, Told())}]")
    assert {"key": "second", "value": repr(text)} in nodes[1]["attrs"]


def test_a_graph_and_answers_that_nobody_else_holds():
    class Fresh(Told):
        def leaf(self, node):
            gc.collect()
            return "".join(['"label":', '"x","attrs":[]']), None, False

    assert '"label":"x"' in _core.explorer_nodes(small_graph(), Fresh())
