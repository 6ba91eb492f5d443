"""Graphs as the verifier and the writer of files see them, while Python code runs that says what is in them."""

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
