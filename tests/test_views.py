"""Graphs as the verifier and the writer of files see them, while Python code runs that says what is in them."""

import copy
import gc
import operator
from pathlib import Path

import pytest

import fastexport
from fastexport import FormatError, _core
from pt2_files import sample, with_document

SAMPLE = Path(__file__).parent / "data" / "pt2" / "samples" / "current" / "associative_scan_.pt2"
VALUE = '{"as_sym_int": {"as_int": 1}}'
DOCUMENT = '{"graph_module": {"graph": {}, "signature": {"input_specs": [], "output_specs": []}}}'


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


def write(graph, describe, document="{}"):
    """The document of a graph, as bytes, or what the writer has to say."""
    try:
        return _core.Program.write_new(graph, document, lambda name, meta, is_input: (VALUE, "{}"), describe)
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


def test_subgraphs_have_the_meta_of_the_call_that_takes_them():
    def change(document):
        (call,) = (n for n in document["graph_module"]["graph"]["nodes"] if n["target"].endswith(".cond"))
        one = next(entry for entry in call["inputs"] if "as_graph" in entry["arg"])
        within = {"name": "within", "arg": {"as_string_to_argument": {"key": one["arg"]}}, "kind": 2}
        call["inputs"] += [copy.deepcopy(one) for _ in range(500)] + [within]

    program = fastexport.load(with_document(sample("cond_"), change))
    nodes = [node for node in program.graph.nodes if node.op == "get_attr"]
    call = next(node for node in program.graph.nodes if str(node.target).endswith("cond"))
    assert len(nodes) == 503
    assert call.kwargs["within"] == {"key": nodes[-1]}
    assert [node.meta.get("stack_trace") for node in nodes] == [call.meta["stack_trace"]] * 502 + [None]


def test_graphs_with_more_objects_after_the_comparison_than_before():
    graph, other, source = fastexport.Graph(), fastexport.Graph(), fastexport.Graph()
    source.output([object() for _ in range(5000)])

    class Value:
        def __hash__(self):
            graph.graph_copy(source, {})  # makes arguments of all its objects, though nothing is changed
            return 1

    for each in (graph, other):
        each.output((each.placeholder("x"), Value(), []))
    assert graph != other
    assert graph == graph


def test_a_graph_that_gains_objects_as_its_text_is_begun():
    graph = fastexport.Graph()
    graph.output(graph.placeholder("x"))
    gone = []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            with graph.inserting_before():
                graph.call_method("f", tuple({i} for i in range(300)))
            gone.append(1)

    threshold = gc.get_threshold()
    gc.disable()
    try:
        gc.collect()  # which also empties the stock of lists
        Cycle()
        gc.set_threshold(1)
        gc.enable()
        text = str(graph)
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
    assert gone
    assert "call_method[target=f]" in str(graph)
    assert "placeholder" in text


def test_a_class_that_gives_no_empty_graph_to_copy_into():
    class Single(fastexport.Graph):
        made = []

        def __new__(cls):
            if not cls.made:
                cls.made.append(super().__new__(cls))
            return cls.made[0]

    with pytest.raises(TypeError, match="must give an empty graph"):
        copy.copy(Single())


def test_collection_that_is_turned_off_while_a_pass_asks_for_notes():
    graph = fastexport.Graph()
    x = graph.placeholder("x")
    graph.output([graph.call_function(operator.getitem, (x, 0)) for _ in range(2)])

    def notes(pairs):
        assert len(pairs) == 1
        gc.disable()
        return []

    assert gc.isenabled()
    try:
        graph._eliminate_getitems(False, notes)
        assert not gc.isenabled()
    finally:
        gc.enable()


def graph_of_a_program():
    """An input that is a constant, which names no node, one that is a tensor, and an output."""
    graph = fastexport.Graph()
    graph.placeholder("flag")
    graph.output((graph.placeholder("x"),))
    graph._set_signature(
        [(0, None, 1, None, None, False, 0), (0, "x", None, None, None, False, 1)],
        [(0, "x", None, None, None, False, 0)],
        ["x"],
    )
    return graph


@pytest.mark.parametrize("make", ["placeholder", "output", "node_copy"])
def test_a_node_that_is_taken_back_leaves_the_signature(make):
    class Observer:
        def created(self, node):
            raise KeyError(node.name)

    graph = graph_of_a_program()
    before, called, text = graph._signature(), graph._called(), str(graph)
    graph._observer = Observer()
    source = fastexport.Graph()
    with pytest.raises(KeyError), graph.inserting_before():
        if make == "output":
            graph.output((graph.node("flag"),))
        elif make == "placeholder":
            graph.placeholder("new")
        else:
            graph.node_copy(source.placeholder("new"))
    assert (graph._signature(), graph._called(), str(graph)) == (before, called, text)
    graph._observer = None
    graph.erase_node(graph.placeholder("new"))
    assert graph._signature() == before
    graph.erase_node(graph.node("flag"))
    assert graph._signature()[0] == before[0][1:]


def test_a_new_output_is_what_the_signature_tells():
    graph = graph_of_a_program()
    graph.erase_node(next(reversed(graph.nodes)))
    graph.output((graph.node("flag"),))
    assert graph._signature()[1] == [(0, "flag", None, None, None, False, -1)]


class Text(str):
    pass


@pytest.mark.parametrize("target", [Text("inner"), "\ud800"])
def test_a_get_attr_whose_target_is_no_plain_text(target):
    graph = fastexport.Graph()
    graph.subgraphs = {"inner": fastexport.Graph()}
    x, inner = graph.placeholder("x"), graph.create_node("get_attr", target, name="inner")
    graph.output((graph.call_function(operator.neg, (x, inner)),))
    assert "no subgraph" in write(graph, lambda value: (5, 0, "_operator.neg"), DOCUMENT)
