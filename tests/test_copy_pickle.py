"""Copies, deep copies and pickles of native graphs: the same graph, and a state of its own."""

import collections
import copy
import io
import math
import operator
import pickle
import subprocess
import sys

import pytest
import torch

import fastexport
from fastexport import Graph
from helpers import assert_sound, names, run_python, small_graph, structure

Pair = collections.namedtuple("Pair", "first second")


def rich_graph():
    """A graph with everything in it that a graph may hold."""
    g = Graph()
    x = g.placeholder("x", torch.Tensor, default_value=None)
    w = g.get_attr("deep.weight")
    gone = g.call_function(torch.sin, (x,))
    add = g.call_function(torch.ops.aten.add.Tensor, (x, w), {"alpha": 2}, torch.Tensor, "sum")
    method = g.call_method("mul_", (add, [x, {"k": (w, slice(x, None, 2))}]))
    module = g.call_module("deep.linear", (method,), {"flag": True})
    constants = (1 << 80, -1, 2.5, -0.0, math.inf, 1j, "it's", "\u00e9", "\ud800", b"b", None, ..., True) + (
        Pair(1, [add]),
        torch.float32,
        torch.device("cpu"),
        range(3),
        frozenset({1}),
        torch.Size([2]),
    )
    many = g.call_function(len, (constants, {1: 2, None: (3,), (1, 2): 4}))
    g.output((many, [module], Pair(add, x)), tuple)
    g.erase_node(gone)
    x.replace_all_uses_with(x, lambda user: user is add)  # users out of the order of the list
    add.name = "named by hand"
    add.meta = {"val": [1, {"deep": [2]}], "tag": 5, 3: "three", "shared": SHARED}
    method.meta = {"shared": SHARED, "node": x}
    return g


SHARED = {"same": [1]}

COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle{protocol}": lambda g, protocol=protocol: pickle.loads(pickle.dumps(g, protocol))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("kind", COPIES)
def test_the_same_graph(kind):
    g = rich_graph()
    h = COPIES[kind](g)
    assert type(h) is Graph and h is not g and h == g
    assert str(h) == str(g) and names(h) == names(g)
    without_meta = [entry[:-1] for entry in structure(g)]
    assert [entry[:-1] for entry in structure(h)] == without_meta
    assert h.node("named by hand").meta["val"] == [1, {"deep": [2]}]
    assert all(ours.graph is h for ours in h.nodes)
    assert_sound(h)
    h.erase_node(h.output_node())
    assert names(g)[-1] == "output" and names(h)[-1] != "output"


def test_copies_go_on_by_themselves():
    g, x, add, mul, out = small_graph()
    with g.inserting_before(add):
        for make in COPIES.values():
            h = make(g)
            # New nodes go to the end, as in a copy of torch.fx's.
            assert h.call_function(operator.add, (h.node("x"), 2)).name == "add_1"
            assert names(h) == ["x", "add", "mul", "output", "add_1"]
            h.node("mul").args = (h.node("x"),)
    assert names(g) == ["x", "add", "mul", "output"] and mul.args == (add, x)


def test_names_of_erased_nodes_are_free_in_a_copy():
    g, x, *_ = small_graph()
    g.erase_node(g.call_function(operator.neg, (x,)))
    assert g.call_function(operator.neg, (x,)).name == "neg_1"
    assert copy.deepcopy(g).call_function(operator.neg).name == "neg"
    assert copy.copy(g).call_function(operator.neg).name == "neg"


@pytest.mark.parametrize("kind", [kind for kind in COPIES if kind != "copy"])
def test_nested_meta_is_independent(kind):
    g = rich_graph()
    h = COPIES[kind](g)
    theirs = h.node("named by hand").meta
    theirs["val"][1]["deep"].append("new")
    theirs["shared"]["same"].append("new")
    theirs["more"] = 1
    assert g.node("named by hand").meta == {"val": [1, {"deep": [2]}], "tag": 5, 3: "three", "shared": {"same": [1]}}
    # What nodes shared they share again.
    assert theirs["shared"] is h.node("mul_").meta["shared"]


def test_nested_meta_of_copied_nodes():
    g, x, add, *_ = small_graph()
    x.meta = {"custom": {"tag": 1}, "val": "v"}
    h = Graph()
    one = h.node_copy(x)
    two = g.node_copy(x)
    val_map = {}
    h.graph_copy(g, val_map)
    for copied in (one, two, val_map[x], copy.deepcopy(g).node("x")):
        copied.meta["custom"]["tag"] = 2
        copied.meta["new"] = 1
        assert x.meta == {"custom": {"tag": 1}, "val": "v"}


def test_a_shallow_copy_shares_values():
    g = rich_graph()
    h = copy.copy(g)
    assert h.node("mul_").meta["shared"] is SHARED
    h.node("mul_").meta["own"] = 1
    assert "own" not in g.node("mul_").meta


def test_objects_stay_the_same_in_a_deep_copy():
    """What torch.fx keeps: tensors and the like in arguments and meta are not copied."""
    tensor, text = torch.zeros(1), bytearray(b"x")
    g, x, add, *_ = small_graph()
    add.args = (x, tensor, [text])
    add.meta = {"val": tensor, "list": [tensor], "tuple": (tensor, [1]), "set": {1, 2}}
    h = copy.deepcopy(g)
    theirs = h.node("add")
    assert theirs.args[1] is tensor and theirs.args[2][0] is text
    assert theirs.meta["val"] is tensor is theirs.meta["list"][0] is theirs.meta["tuple"][0]
    theirs.meta["tuple"][1].append(2)
    theirs.meta["set"].add(3)
    assert add.meta["tuple"] == (tensor, [1]) and add.meta["set"] == {1, 2}


def test_subgraphs_extras_and_module():
    g, *_ = small_graph()
    inner = small_graph()[0]
    root = torch.nn.Module()
    g.subgraphs = {"branch": inner}
    g.extras = {"_tracer_extras": {"k": [1]}}
    g.owning_module = root
    shallow, deep = copy.copy(g), copy.deepcopy(g)
    assert shallow.subgraphs["branch"] == inner and shallow.subgraphs["branch"] is not inner
    assert deep.subgraphs["branch"] == inner and deep.subgraphs["branch"] is not inner
    deep.extras["_tracer_extras"]["k"].append(2)
    assert g.extras == {"_tracer_extras": {"k": [1]}}
    g.owning_module = None
    loaded = pickle.loads(pickle.dumps(g))
    assert loaded.subgraphs["branch"] == inner and loaded.extras == g.extras
    assert loaded.owning_module is None


def test_copies_beside_what_refers_to_them():
    g, x, add, mul, out = small_graph()
    pack = {"graph": g, "node": add, "again": [add, g], "meta": add.meta}
    for made in (copy.deepcopy(pack), pickle.loads(pickle.dumps(pack))):
        assert made["graph"] is not g and made["graph"] == g
        assert made["node"] is made["graph"].node("add") is made["again"][0]
        assert made["again"][1] is made["graph"]


def test_meta_that_refers_to_nodes_and_the_graph():
    g, x, add, *_ = small_graph()
    add.meta = {"source": x, "graph": g, "nodes": [x, add]}
    loaded = pickle.loads(pickle.dumps(g))
    meta = loaded.node("add").meta
    assert meta["source"] is loaded.node("x") and meta["graph"] is loaded
    assert meta["nodes"] == [loaded.node("x"), loaded.node("add")]


class Tagged(Graph):
    """A subclass with a state of its own."""

    def __init__(self):
        super().__init__()
        self.tag = [1]


def test_subclasses():
    g = Tagged()
    g.output(g.placeholder("x"))
    g.tag.append(2)
    for made in (copy.copy(g), copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert type(made) is Tagged and made == g
    assert pickle.loads(pickle.dumps(g)).tag == [1, 2]
    assert copy.copy(g).tag == [1, 2] == copy.deepcopy(g).tag
    assert copy.copy(g).tag is g.tag is not copy.deepcopy(g).tag


def test_operators_that_write_and_meta_survive_a_pickle():
    g = Graph()
    x = g.placeholder("x")
    y = g.call_function(operator.iadd, (x, 1))
    d = g.call_function(getattr, (x, "device"))
    o = g.call_function(torch.ones, ((2,),), {"device": d})
    r = g.call_function(torch.relu, (g.call_function(torch.add, (y, o)),))
    r.meta["tag"] = 5
    g.output(r)
    h = pickle.loads(pickle.dumps(g))
    assert [node.target for node in h.nodes] == [node.target for node in g.nodes]
    assert h.node("relu").meta == {"tag": 5}
    assert not h.eliminate_dead_code()


def test_a_pickle_is_read_by_another_process(tmp_path):
    g, x, add, *_ = small_graph()
    add.target = torch.ops.aten.add.Tensor
    add.meta = {"tag": (1, [2])}
    (tmp_path / "g.pickle").write_bytes(pickle.dumps(g))
    out = run_python(
        """
        import pickle, sys
        g = pickle.loads(open(sys.argv[1], "rb").read())
        print(g)
        print(g.node("add").meta, "torch" in sys.modules)
        """,
        str(tmp_path / "g.pickle"),
    )
    assert out == f"{g}\n{{'tag': (1, [2])}} True\n"


def test_pickles_without_torch():
    out = run_python(
        """
        import copy, operator, pickle, sys
        import fastexport
        g = fastexport.Graph()
        x = g.placeholder("x")
        g.output(g.call_function(operator.add, (x, [1, {"k": slice(x)}])))
        h = pickle.loads(pickle.dumps(g))
        assert h == g == copy.deepcopy(g) and str(h) == str(g)
        print(h.lint(), bool(h.eliminate_dead_code()), "torch" in sys.modules)
        """
    )
    assert out == "[] False False\n"


def test_what_can_not_be_pickled_says_so():
    g, x, add, *_ = small_graph()
    add.meta["bad"] = lambda: 0
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(g)
    assert_sound(g)
    add.meta = {}
    gone = g.call_function(operator.neg, (x,))
    g.erase_node(gone)
    for pack in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(ValueError, match="'neg' is erased"):
            pack(gone)


def test_the_streaming_pickler():
    g = rich_graph()
    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    pickler.dump(g)
    pickler.dump(g.output_node())
    file.seek(0)
    unpickler = pickle.Unpickler(file)
    h, out = unpickler.load(), unpickler.load()
    assert h == g and out is h.output_node()


def test_results_can_be_pickled():
    g, x, add, *_ = small_graph()
    with g.inserting_before(add):
        g.call_function(operator.neg, (x,))
    result = pickle.loads(pickle.dumps(g.eliminate_dead_code()))
    assert result.modified and result.removed == ["neg"] and result.name == "eliminate_dead_code"


def test_errors_can_be_pickled():
    g, x, add, mul, out = small_graph()
    add.prepend(mul)
    with pytest.raises(fastexport.LintError) as caught:
        g.lint()
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == str(caught.value) and error.faults == caught.value.faults


def test_import_alone_brings_no_torch():
    code = "import sys, fastexport; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_fake_tensors_and_symbolic_sizes_survive_a_pickle():
    class Reshape(torch.nn.Module):
        def forward(self, x):
            return x.view(x.shape[0] * 2, -1) + 1

    rows, columns = torch.export.Dim("rows"), torch.export.Dim.AUTO
    program = torch.export.export(Reshape(), (torch.randn(4, 6),), dynamic_shapes=({0: rows, 1: columns},))
    g = fastexport.from_fx(program.graph_module)
    first, last = next(iter(g.nodes)), g.output_node()
    last.meta["first"] = [first]
    h = pickle.loads(pickle.dumps(g))
    assert h == g and str(h) == str(g)
    values = [node.meta.get("val") for node in h.nodes]
    assert [str(value) for value in values] == [str(node.meta.get("val")) for node in g.nodes]
    assert type(values[0]).__name__ == "FakeTensor" and type(values[1]) is torch.SymInt
    assert len({value.fake_mode for value in values if hasattr(value, "fake_mode")}) == 1
    assert values[0].shape[0].node.expr == values[1].node.expr  # one symbol, not two of the same name
    assert h.output_node().meta["first"] == [next(iter(h.nodes))]


def test_graphs_that_nest_deep():
    g = Graph()
    g.output(g.placeholder("x"))
    for _ in range(2000):
        outer = Graph()
        outer.output(outer.call_module("a", (outer.placeholder("x"),)))
        outer.subgraphs = {"a": g}
        g = outer
    for twin in (copy.copy(g), copy.deepcopy(g)):
        inner, count = twin, 0
        source = g
        while inner.subgraphs:
            assert inner is not source
            inner, source, count = inner.subgraphs["a"], source.subgraphs["a"], count + 1
        assert count == 2000 and inner is not source and len(inner.nodes) == 2


def test_a_graph_in_two_places_is_one_in_a_copy_too():
    sub, g = Graph(), Graph()
    sub.output(sub.placeholder("x"))
    g.subgraphs = {"a": sub, "b": sub}
    deep, flat = copy.deepcopy(g), copy.copy(g)
    assert deep.subgraphs["a"] is deep.subgraphs["b"] is not sub
    assert flat.subgraphs["a"] is flat.subgraphs["b"] is not sub and list(flat.subgraphs) == ["a", "b"]
    memo = {}
    assert copy.deepcopy([g, sub], memo)[0].subgraphs["a"] is memo[id(sub)]


def test_graphs_in_several_places_are_looked_at_once():
    """And not as often as there are ways to them."""
    g = Graph()
    g.output(g.placeholder("x"))
    for _ in range(60):
        outer = Graph()
        outer.output([outer.get_attr("a"), outer.get_attr("b")])
        outer.subgraphs = {"a": g, "b": g}
        g = outer
    module = fastexport.GraphModule({}, copy.copy(g))
    for twin in (copy.copy(g), copy.deepcopy(g), pickle.loads(pickle.dumps(g)), module.graph):
        for _ in range(60):
            assert twin.subgraphs["a"] is twin.subgraphs["b"]
            twin = twin.subgraphs["a"]
    assert module.a.a is module.b.a is module.b.b
    assert fastexport.stats(g).subgraphs == 60
    assert len(str(fastexport.summary(g))) < 10_000
    assert not fastexport.diff(g, module.graph)
    for made in (module.to_fx(), g.to_fx({}), g.to_fx(torch.nn.Module())):
        assert made.a.b.a is made.b.a.a and fastexport.from_fx(made).subgraphs["a"].subgraphs.keys() == {"a", "b"}


def test_a_graph_below_itself():
    g, sub = Graph(), Graph()
    g.subgraphs, sub.subgraphs = {"a": sub}, {"b": g}
    for twin in (copy.copy(g), copy.deepcopy(g)):
        assert twin.subgraphs["a"].subgraphs["b"] is twin is not g
    for ask in (fastexport.stats, fastexport.summary):
        with pytest.raises(RecursionError):
            ask(g)
