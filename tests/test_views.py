"""Graphs as the verifier and the writer of files see them, while Python code runs that says what is in them."""

import gc
from pathlib import Path

import pytest

import fastexport
from fastexport import FormatError, _core

SAMPLE = Path(__file__).parent / "data" / "pt2" / "samples" / "current" / "associative_scan_.pt2"
VALUE = '{"as_sym_int": {"as_int": 1}}'


def test_a_class_renamed_while_its_object_is_described():
    pytest.importorskip("torch")  # with it, any object may be asked what it is

    class Thing:
        @property
        def __class__(self):
            Thing.__name__ = "Another"  # lets the old name go
            return Thing

    Thing.__name__ = "-".join(["Thing"] * 4)  # a text that only the class holds
    program = fastexport.load(SAMPLE)
    node = next(n for n in program.graph.nodes if n.op == "call_function")
    node.args = (*node.args, Thing())
    messages = [fault.message for fault in program.verify(all=True)]
    assert any("of class 'Thing-Thing-Thing-Thing'" in message for message in messages)


def test_meta_that_still_waits_in_the_file_is_given_to_the_encoder():
    seen = {}

    def encode(name, meta, is_input):
        seen[name] = dict(meta)
        return VALUE, "{}"

    graph, again = fastexport.load(SAMPLE).graph, fastexport.load(SAMPLE).graph
    try:
        _core.Program.write_new(graph, "{}", encode, lambda value: None)
    except FormatError:
        pass  # nothing here describes an operator
    assert any(seen.values())
    assert all(list(seen[n.name]) == list(n.meta) for n in again.nodes if n.name in seen)


def write(graph, describe):
    """The document of a graph, as bytes, or what the writer has to say."""
    try:
        return _core.Program.write_new(graph, "{}", lambda name, meta, is_input: (VALUE, "{}"), describe)
    except FormatError as error:
        return str(error)


@pytest.mark.parametrize("kind", [4, 5, 6])
def test_a_device_target_or_custom_object_without_its_text(kind):
    with pytest.raises(TypeError, match=f"kind {kind} is described with a text"):
        write(fastexport.load(SAMPLE).graph, lambda value: (kind, 0, None))


def test_subgraphs_that_go_while_they_are_listed():
    graph, inner = fastexport.load(SAMPLE).graph, [fastexport.Graph() for _ in range(3)]
    gone = []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            graph.subgraphs = None  # the dict has no other owner
            gone.append(1)

    def describe(value):
        gc.disable()
        gc.collect()  # which also empties the stocks of lists and tuples
        graph.subgraphs = {"-".join(["inner"] * i): each for i, each in enumerate(inner, 1)}
        Cycle()
        gc.set_threshold(1)
        gc.enable()  # the next container that is made brings a collection: after the last call, the list of subgraphs

    threshold = gc.get_threshold()
    try:
        assert write(graph, describe)
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
    assert gone


def test_an_object_that_takes_the_place_of_one_described_already():
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    node = graph.call_function("torch.ops.aten.neg.default", (x, object()))
    graph.output((node,))
    described = []

    def describe(value):
        if not described and not callable(value):
            node.args = (x,)
            node.args = (x, [])  # the object is gone, and what comes next gets its number
            node.args = (x, object())
        described.append(value)

    with pytest.raises(fastexport.FastExportError, match="was changed while"):
        write(graph, describe)
