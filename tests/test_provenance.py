"""Where nodes come from: what recordings and passes note, what torch's GraphTransformObserver notes of the same edits.

Also what replacing a node does with meta, and TensorMeta.of.
"""

import copy
import io
import operator
import pickle
import random
import subprocess
import sys

import pytest
import torch
from torch.fx.passes.graph_transform_observer import GraphTransformObserver
from torch.fx.traceback import NodeSource as TorchSource
from torch.fx.traceback import NodeSourceAction, preserve_node_meta, set_current_meta

import fastexport
from fastexport import VALUE_META, FastExportError, Graph, NodeSource, TensorMeta, _torch
from fastexport._meta_json import MetadataText
from torch_programs import assert_same_programs, meta_facts

torch.set_num_threads(1)
aten = torch.ops.aten


def facts(graph, ids=None):
    """What from_node says at each node: graphs by their number, as their ids differ."""
    ids = {} if ids is None else ids

    def numbered(source):
        graph_id = source["graph_id"]
        number = graph_id if graph_id == -1 else ids.setdefault(graph_id, len(ids))
        return {**source, "graph_id": number, "from_node": list(map(numbered, source["from_node"]))}

    return {
        node.name: [numbered(source.to_dict()) for source in node.meta["from_node"]]
        for node in graph.nodes
        if "from_node" in node.meta
    }


def observer(gm, name):
    """torch's observer, switched on."""
    with torch._inductor.config.patch("trace.provenance_tracking_level", 1):
        return GraphTransformObserver(gm, name)


BEFORE = torch.fx.Graph()  # the graph that things were traced from
BEFORE.call_function(aten.relu.default, (BEFORE.placeholder("input"),), name="before")


def traced():
    """What tracing notes."""
    return [TorchSource(node, "trace", NodeSourceAction.CREATE) for node in BEFORE.nodes if node.name == "before"]


def chain():
    """A module whose graph is x -> relu -> add -> neg, with sources of an earlier step at add."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    relu = graph.create_node("call_function", aten.relu.default, (x,), name="relu")
    add = graph.create_node("call_function", aten.add.Tensor, (relu, x), name="add")
    neg = graph.create_node("call_function", aten.neg.default, (add,), name="neg")
    graph.output((neg, relu))
    add.meta["from_node"] = traced()
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def native_chain():
    gm = chain()
    return gm, fastexport.from_fx(gm)


# ---- recordings


def edit(graph):
    """A pass: creates, replaces in all users, in some and in one, copies, and changes its mind."""
    x, relu, add, neg, out = graph.nodes
    with graph.inserting_before(neg):
        mul = graph.call_function(aten.mul.Tensor, (relu, 2))
        add.replace_all_uses_with(mul)
        unused = graph.call_function(aten.abs.default, (x,))
    with graph.inserting_before(out):
        exp = graph.call_function(aten.exp.default, (relu,))
        twin = graph.node_copy(add)
        relu.replace_all_uses_with(exp, lambda user: user is out)
        neg.replace_all_uses_with(twin)
        neg.replace_all_uses_with(exp)  # nobody uses it any more
        out.replace_input_with(exp, mul)
    graph.erase_node(unused)
    graph.erase_node(neg)


def test_a_recording_notes_what_torch_notes():
    gm, native = native_chain()
    with observer(gm, "my_pass"):
        edit(gm.graph)
    with native.recording("my_pass"):
        edit(native)
    assert facts(native) == facts(gm.graph)
    # With torch's classes after to_fx, and nothing of ours left.
    again = native.to_fx(gm)
    assert facts(again.graph) == facts(gm.graph)
    assert {type(s) for n in again.graph.nodes for s in n.meta.get("from_node", ())} == {TorchSource}
    assert native.node("add").meta["from_node"][0] is not again.graph.find_nodes(op="output")[0]


@pytest.mark.parametrize("seed", range(20))
def test_random_edits(seed):
    """Any edits, in several passes one after the other, some within another."""
    gm, native = native_chain()

    def run(graph, record):
        rng = random.Random(seed)
        for step in range(4):
            with record(f"pass_{step % 3}"):
                edit_randomly(graph, rng)
        with record("outer"), record("inner"):
            edit_randomly(graph, rng)
        with record("same"), record("same"):
            edit_randomly(graph, rng)

    run(gm.graph, lambda name: observer(gm, name))
    run(native, native.recording)
    assert facts(native) == facts(gm.graph)
    assert str(native) == str(gm.graph)


def edit_randomly(graph, rng):
    for _ in range(rng.randrange(1, 8)):
        nodes = [node for node in graph.nodes if node.op != "output"]
        kind = rng.choice(["make", "replace", "some", "input", "copy", "erase"])
        if kind in ("make", "copy"):
            with graph.inserting_after(rng.choice(nodes)):
                node = rng.choice(nodes)
                if kind == "make":
                    graph.call_function(rng.choice([aten.neg.default, aten.abs.default]), (node,))
                elif node.op == "call_function":
                    graph.node_copy(node)
        elif kind == "erase":
            dead = [node for node in nodes if not node.users and node.op == "call_function"]
            if dead:
                graph.erase_node(rng.choice(dead))
        else:
            old, new = rng.choice(nodes), rng.choice(nodes)
            if kind == "replace":
                old.replace_all_uses_with(new)
            elif kind == "some":
                old.replace_all_uses_with(new, lambda user: len(user.name) % 2)
            elif old.users:
                rng.choice(list(old.users)).replace_input_with(old, new)


def test_outside_a_recording_nothing_is_noted():
    _, native = native_chain()
    before = facts(native)
    edit(native)
    assert facts(native) == {**before, "add_1": before["add"]}
    with native.recording("p"):
        pass
    assert native.call_function(aten.neg.default, (native.node("x"),)).meta == {}


def test_a_recording_ends_with_its_block():
    g = Graph()
    x = g.placeholder("x")
    with pytest.raises(KeyError), g.recording("p"):
        raise KeyError
    assert g.call_function(operator.neg, (x,)).meta == {}
    with pytest.raises(TypeError, match="name of a pass"):
        g.recording(3)


def test_an_input_that_is_not_used_is_not_replaced():
    g = Graph()
    x, y = g.placeholder("x"), g.placeholder("y")
    neg = g.call_function(operator.neg, (x,))
    with g.recording("p"):
        neg.replace_input_with(y, x)
        y.replace_all_uses_with(x)
        neg.replace_all_uses_with(x, lambda user: False)
    assert [dict(node.meta) for node in g.nodes] == [{}, {}, {}]


def test_many_replacements_by_one_node_are_all_noted():
    g = Graph()
    x = g.placeholder("x")
    many = [g.call_function(operator.neg, (x,)) for _ in range(3000)]
    for node in many:
        g.call_function(operator.pos, (node,))
    with g.recording("p"):
        for node in many:
            node.replace_all_uses_with(x)
            node.replace_all_uses_with(x)
    assert [source.name for source in x.meta["from_node"]] == [node.name for node in many]


def test_a_list_that_somebody_else_put_there_is_left_to_them():
    g = Graph()
    x = g.placeholder("x")
    nodes = [g.call_function(operator.neg, (x,), name=name) for name in "abcd"]
    a, b, c, d = nodes
    out = g.output((a, b, c, d))
    with g.recording("p"):
        a.replace_all_uses_with(x)
        x.meta["from_node"] = mine = [NodeSource("other", "t", 1)]
        b.replace_all_uses_with(x)
        assert [s.name for s in mine] == ["other"]
        assert [s.name for s in x.meta["from_node"]] == ["other", "b"]
        x.meta["from_node"].clear()
        c.replace_all_uses_with(x)
        assert [s.name for s in x.meta["from_node"]] == ["c"]
        del x.meta["from_node"]
        d.replace_all_uses_with(x)
        assert [s.name for s in x.meta["from_node"]] == ["d"]
    assert out.args == ((x, x, x, x),)


class Rude:
    """What no note should look into."""

    def __getattribute__(self, name):
        raise ZeroDivisionError(name)


NO_SOURCES = {
    "number": lambda: 7,
    "text": lambda: "text",
    "text of a file": lambda: MetadataText("[{]"),
    "tuple": lambda: (),
    "dict": lambda: {"name": 1},
    "rude": Rude,
    "list of rude": lambda: [Rude()],
    "numbers": lambda: [1],
    "None": lambda: [None],
    "mixed": lambda: [NodeSource("n", "t", 1), 2],
}


@pytest.mark.parametrize("kind", NO_SOURCES)
def test_from_node_that_is_no_list_of_sources_stays(kind):
    there = NO_SOURCES[kind]()
    g = Graph()
    x = g.placeholder("x")
    split = g.call_function(operator.pos, (x,))
    first, again = (g.call_function(operator.getitem, (split, 0)) for _ in range(2))
    neg = g.call_function(operator.neg, (again,))
    g.output((first, neg))
    for node in (x, first, again):
        node.meta["from_node"] = there
    assert g.eliminate_getitems().replaced == {"getitem_1": "getitem"}
    with g.recording("p"):
        neg.replace_all_uses_with(x)
        new = g.call_function(operator.pos, (x,))
    assert first.meta["from_node"] is there and x.meta["from_node"] is there
    assert [source.to_dict()["pass_name"] for source in new.meta["from_node"]] == ["p"]


def test_a_target_that_has_no_text_stops_the_replacement():
    class Mute:
        __name__ = "mute"

        def __call__(self, x):
            return x

        def __str__(self):
            raise ZeroDivisionError

    g = Graph()
    x = g.placeholder("x")
    old = g.call_function(Mute(), (x,))
    out = g.output(old)
    with g.recording("p"), pytest.raises(ZeroDivisionError):
        old.replace_all_uses_with(x)
    assert out.args == (old,) and x.meta == {} and g.lint() == []


def test_a_node_whose_creation_can_not_be_noted_is_not_made():
    class Refusing:
        def created(self, node):
            raise KeyError(node.name)

        replaced = created

    g = Graph()
    x = g.placeholder("x")
    neg = g.call_function(operator.neg, (x,))
    g.output(neg)
    before = str(g)
    g._observer = Refusing()
    for attempt in (
        lambda: g.call_function(operator.pos, (x,)),
        lambda: g.placeholder("y"),
        lambda: g.node_copy(neg),
        lambda: g.graph_copy(native_chain()[1], {}),
        lambda: neg.replace_all_uses_with(x),
        lambda: g.output_node().replace_input_with(neg, x),
    ):
        with pytest.raises((KeyError, TypeError)):
            attempt()
        assert str(g) == before and g.lint() == []


def test_an_observer_that_edits_the_graph():
    class Meddling:
        def created(self, node):
            node.graph._observer = None
            node.graph.erase_node(node)

        def replaced(self, old, new):
            old.graph._observer = None
            old.graph.erase_node(new)

    g = Graph()
    x = g.placeholder("x")
    neg, pos = g.call_function(operator.neg, (x,)), g.call_function(operator.pos, (x,))
    g.output(neg)
    g._observer = Meddling()
    assert g.call_function(operator.abs, (x,))._erased
    g._observer = Meddling()
    with pytest.raises(ValueError, match="erased"):
        neg.replace_all_uses_with(pos)
    assert g.lint() == [] and g.output_node().args == (neg,)


def test_copies_are_not_recorded():
    _, native = native_chain()
    with native.recording("p"):
        twins = [copy.copy(native), copy.deepcopy(native), pickle.loads(pickle.dumps(native))]
    for twin in twins:
        assert twin._observer is None and facts(twin).keys() == facts(native).keys()


def test_works_without_torch():
    code = """
import operator, sys, fastexport
g = fastexport.Graph()
x = g.placeholder("x")
relu = g.call_function("torch.ops.aten.relu.default", (x,))
g.output(relu)
with g.recording("p"), g.inserting_before(g.output_node()):
    new = g.call_function("torch.ops.aten.neg.default", (x,))
    relu.replace_all_uses_with(new, propagate_meta="missing")
(source,) = new.meta["from_node"]
assert source.target == "aten.relu.default" and source.action == "replace+create" and source.graph_id == id(g)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- inheriting


def origin():
    """Meta of the kind that says where a node comes from."""
    return {
        "stack_trace": "File here",
        "nn_module_stack": {"L__self__": ("", "Net")},
        "source_fn_stack": [("relu", "relu")],
        "torch_fn": ("relu_1", "function.relu"),
        "original_aten": aten.relu.default,
        "custom": {"tag": [1]},
        "recompute": 2,
        "partitioner_tag": "x",
    }


def test_made_for_another_node_as_torch_does():
    """torch copies meta where its tracer makes nodes; here, where a graph does."""
    gm, native = native_chain()
    for graph in (gm.graph, native):
        for node in graph.nodes:
            node.meta.update(origin(), val=node.name, seq_nr=3, quantization_annotation=object())
    x, relu, add, *_ = gm.graph.nodes
    tracer = torch.fx.Tracer()
    tracer.graph, tracer.root = gm.graph, gm
    with preserve_node_meta(), set_current_meta(add, "decompose"), gm.graph.inserting_before(add):
        theirs = tracer.create_node("call_function", aten.neg.default, (x,), {})
    before = native.node("add")
    with native.inherit_meta(before, "decompose"), native.inserting_before(before):
        ours = native.call_function(aten.neg.default, (native.node("x"),))
        again = native.call_function(aten.neg.default, (native.node("x"),))
    theirs.meta.pop("seq_nr", None)
    assert facts(native)["neg_default"] == facts(gm.graph)["neg_default"]
    assert list(ours.meta) == list(theirs.meta)
    for key, value in theirs.meta.items():  # torch copies even the operator
        assert key == "from_node" or str(ours.meta[key]) == str(value)
    assert ours.meta["original_aten"] is aten.relu.default
    ours.meta["custom"]["tag"].append(2)
    assert before.meta["custom"] == again.meta["custom"] == {"tag": [1]}


def test_inheriting_within_a_recording():
    gm, native = native_chain()
    x, relu, add, neg, out = native.nodes
    with native.recording("p"), native.inserting_before(out):
        with native.inherit_meta(neg):
            new = native.call_function(aten.abs.default, (x,))
        other = native.call_function(aten.abs.default, (x,))
        neg.replace_all_uses_with(new)
    assert [(s.name, s.pass_name, s.action) for s in other.meta["from_node"]] == [("", "p", "create")]
    # named in the note of its creation already
    assert [(s.name, s.pass_name, s.action) for s in new.meta["from_node"]] == [("neg", "p", "create")]
    with native.inherit_meta(relu), native.inserting_before(out):  # a pass in here goes by its own name
        split = native.call_function(operator.getitem, (new, 0))
        repeat = native.call_function(operator.getitem, (new, 0))
        native.call_function(operator.add, (split, repeat))
        native.eliminate_getitems()
    assert [(s.name, s.pass_name) for s in split.meta["from_node"]] == [
        ("relu", ""),
        (repeat.name, "eliminate_getitems"),
    ]
    with pytest.raises(TypeError, match="name of a pass"):
        native.inherit_meta(relu, 3)


def test_from_a_node_of_another_graph():
    gm, native = native_chain()
    g = Graph()
    x = g.placeholder("x")
    add = next(node for node in gm.graph.nodes if node.name == "add")
    with g.inherit_meta(add, "p"):
        new = g.call_function(operator.neg, (x,))
    (source,) = new.meta["from_node"]
    assert (source.name, source.graph_id, source.target) == ("add", id(gm.graph), "aten.add.Tensor")
    assert source.from_node[0] is add.meta["from_node"][0]
    converted = g.to_fx().find_nodes(op="call_function", target=operator.neg)[0].meta["from_node"]
    assert converted == [TorchSource(add, "p", NodeSourceAction.CREATE)]


def test_meta_that_can_not_be_copied():
    class Bad(dict):
        def copy(self):
            raise ZeroDivisionError

    g = Graph()
    x, y = g.placeholder("x"), g.placeholder("y")
    neg = g.call_function(operator.neg, (x,))
    x.meta["custom"] = Bad(a=1)
    before = str(g)
    with g.inherit_meta(x), pytest.raises(ZeroDivisionError):
        g.call_function(operator.neg, (x,))
    for policy in ("missing", "all"):
        with pytest.raises(ZeroDivisionError):
            x.replace_all_uses_with(y, propagate_meta=policy)
    assert str(g) == before and y.meta == neg.meta == {} and g.lint() == []


# ---- passes


def repeated():
    """A module with getitems that repeat others, in the graph and in a subgraph."""

    def body():
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        split = graph.call_function(aten.split.Tensor, (x, 1))
        items = [graph.call_function(operator.getitem, (split, i)) for i in (0, 1, 0, 1, 0)]
        items[2].meta["from_node"] = traced()
        items[0].meta.update({"val": 1, "from_node": traced()})
        return graph, items

    graph, items = body()
    graph.output(tuple(items))
    inner = torch.fx.GraphModule(torch.nn.Module(), graph)
    graph, items = body()
    sub = graph.get_attr("inner")
    graph.output((*items, sub))
    root = torch.nn.Module()
    root.inner = inner
    return torch.fx.GraphModule(root, graph)


def observed():
    """What torch's observer notes of the same replacements."""
    gm = repeated()
    for module in (gm, gm.inner):
        with observer(module, "eliminate_getitems"):
            for policy in fastexport.eliminate_getitems(module, recurse=False, provenance=False).replaced:
                assert policy
    return [facts(gm.graph), facts(gm.inner.graph)]


def test_getitem_elimination_notes_what_torch_would():
    expected = observed()
    assert [s["action"] for s in expected[0]["getitem"]] == ["create", "replace", "replace"]
    in_place, chained, native, kept = (repeated() for _ in range(4))
    fastexport.eliminate_getitems(in_place)
    fastexport.run_passes(chained, ["eliminate_getitems", "eliminate_dead_code"])
    graph = fastexport.from_fx(native)
    graph.eliminate_getitems()
    for gm in (in_place, chained, graph.to_fx(native)):
        assert [facts(gm.graph), facts(gm.inner.graph)] == expected
        assert {type(s) for n in gm.graph.nodes for s in n.meta.get("from_node", ())} == {TorchSource}
    assert [facts(graph), facts(graph.subgraphs["inner"])] == expected
    fastexport.eliminate_getitems(kept, provenance=False)
    for gm, options in ((repeated(), {"policy": "torch"}), (repeated(), {"provenance": False})):
        fastexport.run_passes(gm, ["eliminate_getitems"], **options)
        assert [facts(gm.graph), facts(gm.inner.graph)] == [facts(kept.graph), facts(kept.inner.graph)]


def test_getitem_elimination_by_torch_s_public_api(monkeypatch):
    """Where torch keeps its graphs in another way, the notes are the same."""
    expected = observed()
    monkeypatch.setattr(_torch, "_FAST", False)
    in_place, chained, native = (repeated() for _ in range(3))
    fastexport.eliminate_getitems(in_place)
    fastexport.run_passes(chained, ["eliminate_getitems"])
    graph = fastexport.from_fx(native)
    graph.eliminate_getitems()
    for gm in (in_place, chained, graph.to_fx(native)):
        assert [facts(gm.graph), facts(gm.inner.graph)] == expected
        assert {type(s) for n in gm.graph.nodes for s in n.meta.get("from_node", ())} == {TorchSource}


def test_provenance_of_torch_s_policy_when_asked_for():
    gm, graph = repeated(), fastexport.from_fx(repeated())
    fastexport.eliminate_getitems(gm, policy="torch", provenance=True)
    graph.eliminate_getitems(policy="torch", provenance=True)
    assert facts(gm.graph) == facts(graph) == observed()[0]
    graph = fastexport.from_fx(repeated())
    graph.eliminate_getitems(policy="torch")
    assert [s.name for s in graph.node("getitem").meta["from_node"]] == ["before"]
    graph = fastexport.from_fx(repeated())
    with graph.recording("mine"):
        graph.eliminate_getitems(policy="torch")
    assert [s.pass_name for s in graph.node("getitem").meta["from_node"]] == ["trace", "mine", "mine"]


def test_passes_within_torch_s_observer():
    """Its note goes first, and ours is none beside it."""
    gm = repeated()
    with observer(gm, "theirs"):
        fastexport.eliminate_getitems(gm, recurse=False)
    first = gm.graph.find_nodes(op="call_function", target=operator.getitem)[0]
    assert [(s.name, s.pass_name) for s in first.meta["from_node"]] == [
        ("before", "trace"),
        ("getitem_2", "theirs"),
        ("getitem_4", "theirs"),
    ]


def test_a_pass_that_removes_notes_nothing():
    gm, native = native_chain()
    before = facts(native)
    for graph in (gm, native):
        with native.recording("p"):
            fastexport.eliminate_dead_code(graph)
    assert facts(native) == facts(gm.graph) == before


def test_notes_that_are_wrong_stop_the_pass():
    def meddle(pairs):
        assert pairs == [(again, first)]
        g.call_function(operator.neg, (x,))
        return []

    g = Graph()
    x = g.placeholder("x")
    first, again = (g.call_function(operator.getitem, (x, 0)) for _ in range(2))
    other = Graph().placeholder("other")
    for notes, error in (
        (meddle, FastExportError),
        (lambda pairs: 1 // 0, ZeroDivisionError),
        (lambda pairs: None, TypeError),
        (lambda pairs: [first], TypeError),
        (lambda pairs: [(first,)], TypeError),
        (lambda pairs: [("first", 1)], TypeError),
        (lambda pairs: [(first, 1), (other, 2)], ValueError),
        (7, TypeError),
    ):
        with pytest.raises(error):
            g._eliminate_getitems(False, notes)
        assert not again._erased and first.meta == {}
    g._eliminate_getitems(False, lambda pairs: [(first, 1), (first, 2), (x, 3)])
    assert again._erased and first.meta == {"from_node": 2} and x.meta == {"from_node": 3}


class Split(torch.nn.Module):
    def forward(self, x):
        a, b = torch.split(x, 2)
        return torch.relu(a) + b


def split_program():
    program = torch.export.export(Split(), (torch.ones(4, 3),))
    for node in program.graph.nodes:
        if node.op == "call_function":
            node.meta["from_node"] = traced()
    return program


def plant(graph):
    """Put a second getitem of the same index in."""
    getitem = next(node for node in graph.nodes if node.target is operator.getitem)
    (user,) = getitem.users
    with graph.inserting_after(getitem):
        twin = graph.node_copy(getitem)
    user.replace_input_with(getitem, twin)
    return getitem, twin


def test_accelerate_notes_nothing():
    def programs():
        for fast in (False, True):
            program = split_program()
            plant(program.graph)
            parts = (program.graph_signature, program.state_dict, program.range_constraints, program.module_call_graph)
            with fastexport.accelerate(only=[] if not fast else None):
                yield torch.export.ExportedProgram(program.graph_module, program.graph, *parts)

    stock, fast = programs()
    assert str(stock.graph) == str(fast.graph)
    assert [facts(stock.graph), facts(fast.graph)] == [facts(stock.graph)] * 2


# ---- programs and files


def test_recorded_programs_go_to_torch_and_back():
    program = split_program()
    ep = fastexport.from_export(program)
    relu = ep.graph.find_nodes(op="call_function", target=aten.relu.default)[0]
    with ep.graph.recording("swap"), ep.graph.inserting_before(relu):
        new = ep.graph.call_function(aten.sigmoid.default, relu.args)
        relu.replace_all_uses_with(new, propagate_meta="missing")
        new.meta["val"] = relu.meta["val"]
        ep.graph.erase_node(relu)
    there = ep.to_torch()
    source = next(n for n in there.graph.nodes if n.target is aten.sigmoid.default).meta["from_node"][0]
    assert type(source) is TorchSource and source.action == [NodeSourceAction.REPLACE, NodeSourceAction.CREATE]
    was = next(n for n in program.graph.nodes if n.target is aten.relu.default)
    assert source.from_node == was.meta["from_node"] and source.from_node[0] is not was.meta["from_node"][0]
    file = io.BytesIO()
    torch.export.save(there, file)
    loaded = fastexport.load(io.BytesIO(file.getvalue()))
    assert facts(loaded.graph) == facts(there.graph)
    file = io.BytesIO()
    ep.save(file)
    loaded = fastexport.load(io.BytesIO(file.getvalue()))
    assert facts(loaded.graph) == facts(there.graph)
    back = fastexport.from_export(there)
    assert facts(back.graph) == facts(there.graph)
    assert there.module()(torch.ones(4, 3)).shape == (2, 3)


def test_recorded_files():
    data = io.BytesIO()
    torch.export.save(split_program(), data)
    ep = fastexport.load(io.BytesIO(data.getvalue()))
    relu = ep.graph.node("relu")
    with ep.graph.recording("swap"), ep.graph.inserting_before(relu):
        new = ep.graph.call_function("torch.ops.aten.sigmoid.default", relu.args)
        relu.replace_all_uses_with(new, propagate_meta="all")
        ep.graph.erase_node(relu)
    file = io.BytesIO()
    ep.save(file)
    again, theirs = fastexport.load(io.BytesIO(file.getvalue())), torch.export.load(io.BytesIO(file.getvalue()))
    assert facts(again.graph) == facts(theirs.graph) == facts(ep.graph) == facts(ep.to_torch().graph)
    (*_, source) = theirs.graph.find_nodes(op="call_function", target=aten.sigmoid.default)[0].meta["from_node"]
    assert (source.name, source.target, source.pass_name) == ("relu", "aten.relu.default", "swap")


def test_passes_over_files():
    """What a file has of a getitem is the meta of its source: no note of a pass gets there, torch's neither."""
    data = io.BytesIO()
    torch.export.save(split_program(), data)
    ep = fastexport.load(io.BytesIO(data.getvalue()))
    first, twin = plant(ep.graph)
    assert first.meta["from_node"] == twin.meta["from_node"] and twin.meta["val"] == first.meta["val"]
    ep.graph.node("relu").meta["custom"] = {"a": 1}
    assert ep.eliminate_getitems().replaced == {twin.name: first.name}
    assert [(s.name, s.pass_name) for s in first.meta["from_node"]] == [
        ("before", "trace"),
        (twin.name, "eliminate_getitems"),
    ]
    (_, source) = next(n for n in ep.to_torch().graph.nodes if n.name == first.name).meta["from_node"]
    assert type(source) is TorchSource and source.from_node == traced()
    file = io.BytesIO()
    ep.save(file)
    again, theirs = fastexport.load(io.BytesIO(file.getvalue())), torch.export.load(io.BytesIO(file.getvalue()))
    assert facts(again.graph) == facts(theirs.graph) and len(facts(again.graph)[first.name]) == 1


def test_values_of_a_program_are_the_same_objects():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x, n: int):
            a, b = torch.split(x, 2)
            c = torch.cond(x.sum() > 0, lambda t: t * self.weight, lambda t: t - 1, (a,))
            return c + b, x.nonzero(), x.shape[0] * n

    program = torch.export.export(Model(), (torch.ones(4, 3), 3))
    ep = fastexport.from_export(program)
    seen = []

    def compare(ours, theirs):
        for node in theirs.nodes:
            meta = ours.node(node.name).meta
            assert list(meta) == list(node.meta)
            assert all(meta[key] is value for key, value in node.meta.items())
            seen.append(type(node.meta.get("val")).__name__)
        for path, subgraph in (ours.subgraphs or {}).items():
            compare(subgraph, theirs.owning_module.get_submodule(path).graph)

    compare(ep.graph, program.graph)
    assert {"FakeTensor", "list", "tuple", "NoneType"} <= set(seen) and len(seen) > 15
    there = ep.to_torch()
    for ours, theirs in zip(there.graph.nodes, program.graph.nodes, strict=True):
        assert meta_facts(ours.meta) == meta_facts(theirs.meta)
        assert ours.meta.get("val") is theirs.meta.get("val")
    assert_same_programs(there, program)


# ---- meta of nodes that take another's place


def two_nodes(kind):
    graph = kind()
    x = graph.placeholder("x")
    old, new = graph.call_function(torch.relu, (x,)), graph.call_function(torch.neg, (x,))
    out = graph.output((old, old))
    old.meta = {"val": 1, "tensor_meta": 2, "unbacked_bindings": {3: 4}, "stack_trace": "s", "custom": {"a": [1]}, 5: 6}
    new.meta = {"val": 7, "stack_trace": "own"}
    return graph, x, old, new, out


def replace(graph, old, new, out, how):
    return {
        "method": lambda **o: old.replace_all_uses_with(new, **o),
        "input": lambda **o: out.replace_input_with(old, new, **o),
        "bulk": lambda **o: fastexport.replace_all_uses(graph, [(old, new)], **o),
        "chosen": lambda **o: fastexport.replace_all_uses(graph, [(old, new)], delete_user_cb=lambda u: True, **o),
    }[how]


@pytest.mark.parametrize(
    ("kind", "how"),
    [(Graph, "method"), (Graph, "input"), (Graph, "bulk"), (Graph, "chosen"), (torch.fx.Graph, "bulk")]
    + [(torch.fx.Graph, "chosen")],
)
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (False, {"val": 7, "stack_trace": "own"}),
        ("none", {"val": 7, "stack_trace": "own"}),
        ("missing", {"val": 7, "stack_trace": "own", "custom": {"a": [1]}, 5: 6}),
        (
            "all",
            {"val": 1, "stack_trace": "s", "tensor_meta": 2, "unbacked_bindings": {3: 4}, "custom": {"a": [1]}, 5: 6},
        ),
    ],
)
def test_propagation_by_policy(kind, how, policy, expected):
    graph, x, old, new, out = two_nodes(kind)
    before = copy.deepcopy(dict(old.meta))
    replace(graph, old, new, out, how)(propagate_meta=policy)
    assert out.args == ((new, new),)
    assert dict(new.meta) == expected and list(new.meta) == list(expected) and dict(old.meta) == before
    if policy in ("missing", "all"):  # what is handed over is not shared
        new.meta["custom"]["a"].append(2)
        assert dict(old.meta) == before


@pytest.mark.parametrize(
    ("kind", "how"), [(Graph, "method"), (Graph, "input"), (Graph, "bulk"), (torch.fx.Graph, "bulk")]
)
def test_propagation_that_is_refused(kind, how):
    graph, x, old, new, out = two_nodes(kind)
    call = replace(graph, old, new, out, how)
    before = [dict(node.meta) for node in graph.nodes]
    for policy in ("", "ALL", "Missing", "\ud800"):
        with pytest.raises(ValueError, match="propagate_meta must be"):
            call(propagate_meta=policy)
    with pytest.raises((ValueError, AssertionError), match="meta"):  # torch's True
        call(propagate_meta=True)
    assert [dict(node.meta) for node in graph.nodes] == before and out.args == ((old, old),)


@pytest.mark.parametrize("kind", [Graph, torch.fx.Graph])
def test_propagation_to_an_empty_node_as_torch(kind):
    graph, x, old, new, out = two_nodes(kind)
    new.meta = {}
    fastexport.replace_all_uses(graph, [(old, new)], propagate_meta=True)
    assert dict(new.meta) == dict(old.meta) and new.meta["custom"] is old.meta["custom"]


def test_no_value_is_ever_missing():
    assert {"val", "example_value", "tensor_meta", "unbacked_bindings"} <= VALUE_META
    graph, x, old, new, out = two_nodes(Graph)
    old.meta = dict.fromkeys(VALUE_META, 1)
    new.meta = {}
    old.replace_all_uses_with(new, propagate_meta="missing")
    assert new.meta == {}


def test_propagation_of_keys_that_misbehave():
    class Key:
        armed = False

        def __hash__(self):
            return 1 // 0 if self.armed else 7

        def __eq__(self, other):
            return 1 // 0 if self.armed else self is other

    graph, x, old, new, out = two_nodes(Graph)
    key = Key()
    old.meta[key] = 1
    Key.armed = True
    try:
        for policy in ("missing", "all"):
            with pytest.raises(ZeroDivisionError):
                old.replace_all_uses_with(new, propagate_meta=policy)
    finally:
        Key.armed = False
    assert out.args == ((old, old),) and new.meta == {"val": 7, "stack_trace": "own"} and graph.lint() == []


def test_meta_of_a_file_is_propagated_before_it_was_looked_at():
    data = io.BytesIO()
    torch.export.save(split_program(), data)
    known = fastexport.load(io.BytesIO(data.getvalue())).graph.node("relu").meta.copy()
    ep = fastexport.load(io.BytesIO(data.getvalue()))
    relu = ep.graph.node("relu")
    with ep.graph.inserting_before(relu):
        new = ep.graph.call_function("torch.ops.aten.neg.default", relu.args)
    relu.replace_all_uses_with(new, propagate_meta="missing")
    assert new.meta == {key: value for key, value in known.items() if key != "val"}
    assert new.meta["stack_trace"] and known["val"] == TensorMeta("float32", (2, 3))


# ---- TensorMeta.of


class Shapes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x, y):
        a = self.linear(torch.cat([x, x]).view(-1, 4))
        c, d = torch.split(a.transpose(0, 1), 2)
        branch = torch.cond(x.sum() > 0, lambda t: (t + 1, t * 2), lambda t: (t - 1, t * 3), (a,))
        return branch, c[:, 1:], d.bool(), y.nonzero(), x.shape[0] * 2, self.count + 1


def test_the_facts_of_fake_tensors_are_those_of_the_file():
    program = torch.export.export(
        Shapes(), (torch.ones(6, 4), torch.ones(5)), dynamic_shapes=({0: torch.export.Dim("b")}, None)
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    loaded = fastexport.load(io.BytesIO(file.getvalue()))
    compared = []

    def flat(value):
        return [item for part in value for item in flat(part)] if isinstance(value, list | tuple) else [value]

    def compare(ours, theirs):
        for node in theirs.nodes:
            if node.op in ("output", "get_attr") or node.meta.get("val") is None:
                continue
            pairs = zip(flat(node.meta["val"]), flat(ours.node(node.name).meta["val"]), strict=True)
            for fake, known in pairs:
                if isinstance(fake, torch.Tensor):
                    made = TensorMeta.of(fake)
                    assert made == known and repr(made) == repr(known)
                    compared.append(made)
        for path, subgraph in (ours.subgraphs or {}).items():
            compare(subgraph, theirs.owning_module.get_submodule(path).graph)

    compare(loaded.graph, program.graph)
    assert len(compared) > 20
    assert any(made.symbols and made.storage_offset for made in compared)
    assert {made.dtype.name for made in compared} >= {"float32", "bool", "int64"}
    for name, weight in program.state_dict.items():
        assert TensorMeta.of(weight) == TensorMeta.of(loaded.state_dict[name])
    one = compared[0]
    assert TensorMeta.of(one) is one


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tensors_of_all_sorts():
    assert TensorMeta.of(torch.ones(2, 3)[:, 1:]) == TensorMeta("float32", (2, 2), (3, 1), storage_offset=1)
    assert TensorMeta.of(torch.empty(2, device="meta", dtype=torch.complex64)).device.type == "meta"
    assert TensorMeta.of(torch.nn.Parameter(torch.ones(2))).requires_grad
    for other in (3, None, "f32[2]", torch.ones, Rude()):
        with pytest.raises(TypeError, match="takes a tensor"):
            TensorMeta.of(other)
    with pytest.raises(ValueError, match="has no strides"):
        TensorMeta.of(torch.eye(2).to_sparse_csr())


def test_the_tensor_is_not_kept():
    import gc
    import weakref

    tensor = torch.ones(3)
    known, seen = TensorMeta.of(tensor), weakref.ref(tensor)
    del tensor
    gc.collect()
    assert seen() is None and known.shape == (3,)
