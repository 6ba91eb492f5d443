"""Graphs and programs as bytes that can be read without running anything: dumps and loads."""

import collections
import copy
import io
import json
import math
import operator
import pickle
import sys
import threading
import typing
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fastexport
from fastexport import FormatError, Graph, _pickle, dumps, from_fx, loads
from fx_graphs import MODELS, exported
from helpers import assert_sound, names, run_python, structure

SAMPLES = sorted((Path(__file__).parent / "data/pt2/samples/current").glob("*.pt2"))


def graph_of(*args, target=len, meta=None, **kwargs):
    """A graph of x that returns one call; "x" among the arguments is the input."""
    g = Graph()
    x = g.placeholder("x")
    fill = lambda leaf: x if type(leaf) is str and leaf == "x" else leaf  # noqa: E731
    node = g.create_node("call_function", target, fastexport.map_aggregate(args, fill), kwargs, "called")
    node.meta = meta or {}
    g.output(node)
    return g


def same(g, **options):
    data = dumps(g, **options)
    h = loads(data)
    assert type(h) is Graph and h == g and dumps(h, **options) == data
    left = -1 if options else None
    assert [entry[:left] for entry in structure(h)] == [entry[:left] for entry in structure(g)]
    assert list(h.subgraphs or {}) == list(g.subgraphs or {})
    assert_sound(h)
    return h


# ---- the same again


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_graphs_and_programs_of_files(path):
    program = fastexport.load(path)
    graph = same(program.graph)
    for name, sub in (program.graph.subgraphs or {}).items():
        assert graph.subgraphs[name] == sub
    again = loads(dumps(program))
    assert str(again) == str(program) and again.state_dict.keys() == program.state_dict.keys()


@pytest.mark.parametrize("name", MODELS)
def test_graphs_of_torch(name):
    program, _ = exported(name)
    g = from_fx(program.graph)
    same(g, meta=False)
    found = loads(dumps(g))
    assert found == g and dumps(loads(dumps(found))) == dumps(found)
    for node, original in zip(found.nodes, g.nodes, strict=True):
        assert node.meta.keys() == original.meta.keys() - {"unbacked_bindings"}
        assert node.meta.get("val") == facts(original.meta.get("val"))
    assert not fastexport.diff(found, g)
    whole = fastexport.from_export(program)
    assert names(loads(dumps(whole)).graph) == names(whole.graph)


def facts(value):
    """What our own objects say of a value of torch's."""
    if isinstance(value, tuple | list):
        return type(value)(map(facts, value))
    if isinstance(value, torch.Tensor):
        return fastexport.TensorMeta.of(value)
    return getattr(fastexport, type(value).__name__)(str(value)) if "Sym" in type(value).__name__ else value


class Traced(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, y: int = 3, *rest, **more):
        x = torch.nn.functional.relu(self.fc(x) + y) @ self.fc.weight
        return torch.cat([x, rest[0]], dim=0).to(torch.float32), torch.special.expit(x).view(torch.Size([4]))


def test_traced_graphs():
    g = from_fx(torch.fx.symbolic_trace(Traced()))
    h = same(g, meta=False)
    assert h.to_fx(Traced()).code == g.to_fx(Traced()).code
    own = fastexport.symbolic_trace(Traced()).graph
    same(own, meta=False)


VALUES = [
    None, True, 0, -1, 1 << 52, 1 << 53, -(1 << 80), 1 << 4000, 0.0, -0.0, 1.5, 1e300, 5e-324, math.inf, -math.inf, 1j,
    complex(-0.0, math.inf), "", "a\0\n", "\u00e9\U0001f600", "\ud83d", "\ud83d\ude00", b"", b"\0\xff", ...,
    (), [], {}, [1, [2, (3,)]], {"a": 1, 2: [3], None: (4,), (5,): 6.0}, slice(None, 1, -1), slice("x", ["x"], None),
    range(3), range(0, 10**30, 7), frozenset({1, 2}), frozenset({"a"}), frozenset(),
    fastexport.DType("float32"), fastexport.Layout("strided"), fastexport.MemoryFormat("preserve_format"),
    fastexport.Device("cuda", 1), torch.float16, torch.strided, torch.channels_last, torch.device("cpu"),
    torch.Size([1]), torch.ops.aten.add.Tensor, torch.ops.aten.add, torch.ops.higher_order.cond, torch.relu, len,
    operator.add, math.sqrt, fastexport.Operator("torch.ops.aten.relu.default"), int, torch.Tensor,
    torch.nn.functional.linear, {"int": "0x1"}, {"node": 0}, {"tuple": [1]}, ["x", {"k": "x"}],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_values(value):
    h = same(graph_of(value, [value], key=(value,)))
    found = h.node("called").args[0]
    assert type(found) is type(graph_of(value).node("called").args[0])
    assert repr(found) == repr(graph_of(value).node("called").args[0])


def test_values_that_are_not_equal_to_themselves_or_their_copies():
    assert math.isnan(loads(dumps(graph_of(math.nan))).node("called").args[0])
    for value in ({1, "a"}, set()):  # told apart by identity in a graph, for they may change
        assert loads(dumps(graph_of(value))).node("called").args[0] == value
    huge = loads(dumps(graph_of(10**5000))).node("called").args[0]
    assert huge == 10**5000


@pytest.mark.parametrize(
    "kind",
    [
        int, str, type(None), torch.Tensor, torch.SymInt, list[int], dict[str, list[torch.Tensor]], tuple[int, ...],
        int | None, typing.Optional[int], typing.Union[int, str], typing.List[int], typing.Dict[str, torch.Tensor],  # noqa: UP006, UP007, UP045
        typing.Tuple[()], typing.Any, typing.List, "a text", typing.Callable[..., int],  # noqa: UP006
    ],
    ids=str,
)  # fmt: skip
def test_types(kind):
    g = graph_of("x")
    g.node("x").type = kind
    g.output_node().type = kind
    assert same(g).node("x").type == kind


def test_meta():
    value = fastexport.TensorMeta(fastexport.DType("float32"), (2, fastexport.SymInt("Symbol('s0')", 3)))
    meta = {"val": (value, 1, [None]), "stack_trace": "a\n", 3: {"deep": [(1,)]}, "m": collections.OrderedDict(a=1)}
    found = same(graph_of("x", meta=meta)).node("called").meta
    assert dict(found) == meta and type(found["m"]) is collections.OrderedDict


def test_users_names_and_graphs_below():
    g = Graph()
    x = g.placeholder("x")
    y = g.call_function(operator.neg, (x,))
    z = g.call_function(operator.pos, (x,))
    y.args, z.args = (), ()
    z.args, y.args = (x,), (x,)
    y.name = "named by hand"
    g.output((y, z))
    g.subgraphs = {"a.b": graph_of("x"), "\u00e9": graph_of(1), "\ud83d\ude00": graph_of(2)}
    g.subgraphs["a.b"].subgraphs = {"a": graph_of(3), "b": graph_of(4)}
    assert loads(dumps(g)).subgraphs["a.b"].subgraphs == g.subgraphs["a.b"].subgraphs
    assert names(same(g).node("x").users) == ["pos", "named by hand"] != names(g)[1:3]
    assert loads(dumps(g)).subgraphs["\u00e9"] == g.subgraphs["\u00e9"]


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(st.characters()),
    st.binary(max_size=4), st.complex_numbers(allow_nan=False),
    st.sampled_from(["x", torch.int8, ..., len, fastexport.DType("int8")]),
)  # fmt: skip
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.builds(slice, inner, inner, inner),
    ),
    max_leaves=8,
)


@given(st.lists(trees, max_size=3), st.dictionaries(st.text(max_size=4), trees, max_size=3), trees)
@settings(max_examples=150)
def test_any_arguments(args, kwargs, meta):
    kwargs.pop("target", None), kwargs.pop("meta", None)
    same(graph_of(*args, meta={"any": meta}, **kwargs))


def test_copies_of_bytes():
    data = dumps(graph_of("x"))
    assert loads(bytearray(data)) == loads(memoryview(data)) == loads(data)
    for wrong in (data.decode(), 3, None):
        with pytest.raises(TypeError):
            loads(wrong)
    with pytest.raises(TypeError, match="dumps takes a Graph or an ExportedProgram of fastexport, not dict"):
        dumps({})
    for module in (fastexport.GraphModule({}, graph_of("x")), torch.fx.symbolic_trace(torch.nn.ReLU())):
        with pytest.raises(TypeError, match="; give the graph of it, with from_fx if it is torch's"):
            dumps(module)


def test_no_torch_is_needed():
    run_python(
        """
        import sys, fastexport
        program = fastexport.load(sys.argv[1])
        assert fastexport.loads(fastexport.dumps(program.graph)) == program.graph
        assert str(fastexport.loads(fastexport.dumps(program))) == str(program)
        assert "torch" not in sys.modules
        """,
        str(SAMPLES[0]),
    )


# ---- what can't be written


class Opaque:
    def __repr__(self):
        return "<opaque>"


class Raises:
    def __repr__(self):
        raise KeyError("repr")

    __eq__ = __hash__ = __repr__


class Lies:
    __class__ = type


Pair = collections.namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    "value", [Opaque(), Opaque, Raises(), print, eval, open, lambda: 0, torch.load, memoryview(b"a"), Lies()]
)
def test_objects_without_a_text(value):
    for g in (graph_of([{"k": value}]), graph_of("x", meta={"k": value})):
        with pytest.raises(FormatError, match=r"node 'called' can't be written: its (args|meta\['k'\]) has "):
            dumps(g)
    with pytest.raises(FormatError, match=r"<opaque> of type test_document.Opaque; a pickle"):
        dumps(graph_of(Opaque()))
    with pytest.raises(FormatError, match=r"its target has <function .*; make it an operator with torch.library"):
        dumps(graph_of(target=facts))
    with pytest.raises(FormatError, match=r"its meta\['w'\] has tensor\(.*; meta=False leaves meta out"):
        dumps(graph_of(meta={"w": torch.ones(1)}))


def test_other_things_without_a_text():
    circle = []
    circle.append(circle)
    with pytest.raises(FormatError, match=r"'called' can't be written: its meta\['k'\] is nested too deep"):
        dumps(graph_of("x", meta={"k": circle}))
    g = graph_of("x")
    g.subgraphs = {"below": graph_of(Opaque())}
    with pytest.raises(FormatError, match="node 'below.called' can't be written: its args"):
        dumps(g)
    g = graph_of("x")
    g.set_codegen(fastexport.CodeGen())
    same(g)
    g.on_generate_code(lambda before: lambda lines: lines)
    with pytest.raises(FormatError, match="the graph has _codegen of CodeGen, which has no text; give it a plain one"):
        dumps(g)
    g = graph_of("x")
    g.mine = 1
    with pytest.raises(FormatError, match="the graph has attributes of its own, 'mine'"):
        dumps(g)
    g = graph_of("x")
    g.node("x").type = Opaque
    with pytest.raises(FormatError, match="node 'x' can't be written: its type has <class"):
        dumps(g)


# ---- hostile bytes


def graphs(*items):
    return json.dumps({"format": "fastexport.graph", "version": 1, "graphs": items}).encode()


def holding(*subgraphs):
    return {"nodes": [], "subgraphs": subgraphs}


def document(**changes):
    found = json.loads(dumps(graph_of("x")))
    found["graphs"][0]["nodes"][1].update(changes)
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no document"),
        (b"\xff", "no document"),
        (b"null", "its format is None"),
        (b"[" * 100_000, "no document"),
        (b'{"a": 1, "a": 2}', "a key occurs twice"),
        (b"NaN", "NaN is no JSON"),
        (b"9" * 10_000, "no document"),
        (b'{"format": "fastexport.graph", "version": 2}', "of version 2; this fastexport reads version 1"),
        (b'{"format": "fastexport.graph", "version": true}', "of version True"),
        (b'{"format": "fastexport.graph", "version": 1, "nodes": []}', "a list of graphs"),
        (graphs(), "a list of graphs"),
        (graphs([]), r"graphs\[0\] is no graph"),
        (graphs({"nodes": 3}), "a list of nodes"),
        (graphs({"nodes": [], "more": 1}), r"graphs\[0\] is no graph"),
        (graphs({"nodes": []}, {"nodes": []}), r"graphs\[1\] is a subgraph of no other"),
        (
            graphs(holding(["a", 2]), {"nodes": []}),
            r"graphs\[0\].subgraphs: \[\['a', 2\]\] does not name graphs behind it",
        ),
        (graphs(holding(["a", 1]), holding(["b", 1])), r"graphs\[1\].subgraphs: \[\['b', 1\]\] does not name"),
        (graphs(holding(["a", 1]), holding(["b", 0])), "does not name graphs behind it"),
        (graphs(holding(["a", 2]), {"nodes": []}, holding(["b", 1])), "does not name graphs behind it"),
        (graphs(holding(["a", -1]), {"nodes": []}), "does not name graphs behind it"),
        (graphs(holding(["a", True]), {"nodes": []}), "does not name graphs behind it"),
        (graphs(holding([0, 1]), {"nodes": []}), "does not name graphs behind it"),
        (graphs(holding([[], 1]), {"nodes": []}), "does not name graphs behind it"),
        (graphs(holding(["a"]), {"nodes": []}), "does not name graphs behind it"),
        (graphs(holding(1), {"nodes": []}), "does not name graphs behind it"),
        (graphs({"nodes": [], "subgraphs": {"a": 1}}, {"nodes": []}), "does not name graphs behind it"),
        (graphs({"nodes": [], "subgraphs": None}, {"nodes": []}), "does not name graphs behind it"),
        (graphs(holding([{"str": [1 << 40]}, 1]), {"nodes": []}), "does not name graphs behind it"),
        (graphs(holding(["a", 1], ["a", 1]), {"nodes": []}), "does not name graphs behind it"),
        (document(target={"function": "os.system"}), "'os.system' is no function that a document may name"),
        (document(target={"function": "builtins.eval"}), "'builtins.eval' is no function"),
        (document(target={"function": "torch.load"}), "'torch.load' is no function"),
        (document(target={"function": "torch.from_file"}), "'torch.from_file' is no function"),
        (document(target={"function": "torch.os.system"}), "'torch.os.system' is no function"),
        (document(target={"function": "operator.call"}), "'operator.call' is no function"),
        (document(target={"torch_operator": "torch.ops.load_library"}), "not the name of an operator"),
        (document(target={"torch_operator": "torch.ops.aten.add.__class__"}), r"torch.* has no|not the name"),
        (document(target={"torch_operator": "torch.hub.load"}), "nodes\\[1\\]"),
        (document(target={"operator": "os.system"}), "'os.system' is not the name of an operator"),
        (document(target="len"), "can't be called"),
        (document(op="run"), "unknown op|'run'"),
        (document(op=3), "an op and a name"),
        (document(name="x"), "the name 'x' is of another node, too"),
        (document(name=None), "an op and a name"),
        (document(args=[{"node": 3}]), "there is no node 3"),
        (document(args=[{"node": -1}]), "there is no node -1"),
        (document(args=[{"node": True}]), "there is no node True"),
        (document(args=[{"pickle": "abc"}]), "'pickle' is no kind of value"),
        (document(args=[{"a": 1, "b": 2}]), "no object of one key"),
        (document(args=[{"frozenset": [[]]}]), "unhashable"),
        (document(args=[{"dict": [[[], 1]]}]), "unhashable"),
        (document(args=[{"dict": [["a", 1], ["a", 2]]}]), "a key occurs twice"),
        (document(args=[{"str": [1 << 40]}]), "nodes\\[1\\]"),
        (document(args=[{"float": "00"}]), "nodes\\[1\\]"),
        (document(args=[{"value": ["as_tensor", {}]}]), "nodes\\[1\\]"),
        (document(args=[{"value": ["as_sym_int", {"as_expr": {"expr_str": "__import__('os')"}}]}]), "nodes\\[1\\]"),
        (document(args=[{"dtype": "no"}]), "nodes\\[1\\]"),
        (document(args=[{"range": [1, 2, 0]}]), "must not be zero"),
        (document(args=[{"type": "os.PathLike"}]), "is no type"),
        (document(type=["list"] * 3 + [["|"]]), "is no type"),
        (document(kwargs=[[1, 2]]), "a keyword is no string"),
        (document(users=[9]), "no order of users"),
        (document(users=[0, 0]), "the nodes make no graph"),
        (document(extra=1), "is no node"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_hostile_documents(data, message):
    with pytest.raises(FormatError, match=message):
        loads(data)


def test_deep_documents():
    deep = b'{"tuple": [' * 200 + b"]}" * 200
    whole = document(args=["here"]).replace(b'"here"', deep)
    assert_sound(loads(whole))
    for depth in (5_000, 100_000):
        with pytest.raises(FormatError):
            loads(document(args=["here"]).replace(b'"here"', b'{"tuple": [' * depth + b"]}" * depth))


@given(st.data())
@settings(max_examples=300)
def test_damaged_documents(data):
    whole = bytearray(dumps(graph_of("x", [1, (2.5, "a")], meta={"val": {"k": (1,)}})))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        size = data.draw(st.integers(0, 8))
        whole[at : at + size] = data.draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"{}", b"[]", b"1", b'"x"']))
        )
    try:
        found = loads(bytes(whole))
    except FormatError as error:
        assert str(error)
    else:
        assert isinstance(found, Graph)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["tuple", "dict", "int", "value", "type", "size", "range", "str", "torch",
            "node_source", "float", "bytes", "slice", "device", "set", "complex", "node", "ordered_dict"]),
            inner, min_size=1, max_size=1),
    ),
    max_leaves=10,
)  # fmt: skip


@given(st.sampled_from(["target", "name", "args", "kwargs", "type", "users", "meta", "op"]), json_values)
@settings(max_examples=400)
def test_other_json_in_its_places(key, value):
    try:
        found = loads(document(**{key: value}))
    except FormatError as error:
        assert error.json_path is None or error.json_path.startswith("$")
    else:
        assert isinstance(found, Graph)


# ---- deep copies


@pytest.mark.parametrize("kind", ["module", "graph"])
def test_deepcopy_of_torchs(kind):
    program, _ = exported("resnet")
    module = program.module()
    original = module if kind == "module" else module.graph
    copies = fastexport.deepcopy(original), copy.deepcopy(original)
    graphs = [found.graph if kind == "module" else found for found in copies]
    assert type(copies[0]).__name__ == type(copies[1]).__name__
    assert str(graphs[0]) == str(graphs[1]) and graphs[0] is not module.graph
    assert names(graphs[0]) == names(graphs[1])
    assert [list(map(str, node.users)) for node in graphs[0].nodes] == [
        list(map(str, node.users)) for node in graphs[1].nodes
    ]
    if kind == "module":
        assert copies[0].state_dict().keys() == copies[1].state_dict().keys() and copies[0].code == copies[1].code


def test_deepcopy_of_ours():
    g = graph_of("x", meta={"k": [1]})
    module = fastexport.GraphModule({}, g)
    program = fastexport.load(SAMPLES[0])
    assert fastexport.deepcopy(g) == g and fastexport.deepcopy(module).graph == g
    assert str(fastexport.deepcopy(program)) == str(program)
    memo = {}
    twin = fastexport.deepcopy([g, g], memo)
    assert twin[0] is twin[1] is memo[id(g)] and twin[0].node("called").meta["k"] is not g.node("called").meta["k"]


def test_pickles_of_a_graph_that_is_edited_meanwhile():
    """What is pickled while the graph changes is no graph: an error says so."""
    g = graph_of([1, 2])
    x = g.node("x")
    version = g._version
    with pytest.raises(fastexport.FastExportError, match="changed while it was being written"):
        with _pickle.unchanged(g):
            g.node("called").args = (x, x)
            raise KeyError("what comes of it")
    with pytest.raises(fastexport.FastExportError, match="changed while it was being written"):
        with _pickle.unchanged(g):
            g.node("x").name = "y"
    with pytest.raises(KeyError), _pickle.unchanged(g):
        raise KeyError("of another kind")
    assert g._version > version and loads(dumps(g)) == g and pickle.loads(pickle.dumps(g)) == g


def test_a_graph_is_written_as_it_was_at_one_moment():
    """Whatever comes to run while it is written, another thread or code of an object in it, edits the graph itself."""
    g = graph_of([1, 2])

    class Edits:
        def __repr__(self):
            g.node("called").args = ()
            g.node("called").meta["more"] = 1
            return "<edits>"

    g.node("called").meta.update(first=[1], last=Edits())
    with pytest.raises(FormatError, match=r"meta\['last'\] has <edits>"):
        dumps(g)
    assert g.node("called").args == ()

    shared, done = {"k": 1}, threading.Event()
    g = graph_of(*range(300), meta={"shared": shared})
    expected = copy.copy(g)

    def edit():
        x, called = g.node("x"), g.node("called")
        while not done.is_set():
            called.args = (x,)
            with g.inserting_before(called):
                g.erase_node(g.call_function(operator.pos, (x,)))
            called.args = expected.node("called").args
            shared["more"] = shared.pop("more", 0) + 1
            shared.pop("more")

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=edit)
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        for _ in range(40):
            found = loads(dumps(g)).node("called")
            assert found.args in ((found.graph.node("x"),), expected.node("called").args)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_classes_of_torch_nn():
    """What a tracer notes of the modules that it went through; only modules that torch.nn defines have a text."""
    g = fastexport.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2))).graph
    h = loads(dumps(g))
    assert h == g and h.node("_0").meta["nn_module_stack"] == g.node("_0").meta["nn_module_stack"]
    assert h.node("_0").meta["nn_module_stack"]["0"][1] is torch.nn.Linear
    text = dumps(g).decode()
    for other in ("torch.nn.modules.linear.os", "torch.nn.modules.linear.F", "torch.nn.modules.linear.Own"):
        with pytest.raises(FormatError, match="is no class that a document may name"):
            loads(text.replace("torch.nn.modules.linear.Linear", other).encode())

    class Own(torch.nn.Linear):
        pass

    Own.__module__, Own.__qualname__ = "torch.nn.modules.linear", "Linear"
    with pytest.raises(FormatError, match=r"meta\['k'\] has <class"):
        dumps(graph_of("x", meta={"k": Own}))


# ---- what torch notes in meta


class Inner(torch.nn.Module):
    def forward(self, x):
        return helper(x) + 1


def helper(x):
    return x * 2


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.body = torch.nn.Sequential(torch.nn.Linear(2, 2), Inner())

    def forward(self, x):
        return self.body(self.inner(x))


def test_modules_of_other_classes():
    """Tracers note the classes that they go through: what documents may not name goes by its text, as in files."""
    g, module = fastexport.symbolic_trace(Outer()).graph, Outer()
    h = loads(dumps(g))
    assert h == g and dumps(loads(dumps(h))) == dumps(h)
    stacks = [[kind for _, kind in node.meta["nn_module_stack"].values()] for node in h.nodes if node.op[:4] == "call"]
    assert stacks[1] == ["test_document.Inner"] and stacks[2] == [torch.nn.Sequential, torch.nn.Linear]
    assert torch.equal(fastexport.GraphModule(module, h)(torch.ones(1, 2)), module(torch.ones(1, 2)))

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m, qualified_name):
            return isinstance(m, Inner) or super().is_leaf_module(m, qualified_name)

    g = from_fx(torch.fx.GraphModule(module, Tracer().trace(module)))
    h = loads(dumps(g))
    assert h == g and h.node("inner").op == "call_module"
    assert torch.equal(fastexport.GraphModule(module, h)(torch.ones(1, 2)), module(torch.ones(1, 2)))
    stack = [("a", helper), ("b", torch.relu), ("c", "text"), ("d", Raises()), 3]
    with pytest.raises(FormatError, match=r"meta\['source_fn_stack'\] has an object of type test_document.Raises"):
        dumps(graph_of(meta={"source_fn_stack": stack}))
    del stack[3]
    found = loads(dumps(graph_of(meta={"source_fn_stack": stack}))).node("called").meta["source_fn_stack"]
    assert found == [("a", "test_document.helper"), ("b", torch.relu), ("c", "text"), 3]


class Sizes(torch.nn.Module):
    def forward(self, x, n):
        count = n.item()
        torch._check(count > 0)
        return x.t() * x.shape[0] * 0.5, torch.ones(count), x.shape[0] // 2


def test_symbols_of_torch():
    args = torch.ones(6, 2), torch.tensor(3)
    program = torch.export.export(Sizes(), args, dynamic_shapes=({0: torch.export.Dim("rows", min=2)}, None))
    g = from_fx(program.graph_module)
    assert any("unbacked_bindings" in node.meta for node in g.nodes)
    h = loads(dumps(g))
    file = io.BytesIO()
    torch.export.save(program, file)
    for node in fastexport.load(file.getvalue()).graph.nodes:
        if "val" in node.meta:
            assert h.node(node.name).meta["val"] == node.meta["val"]
    value = h.node("permute" if "permute" in names(h) else "t").meta["val"]
    assert type(value) is fastexport.TensorMeta and type(value.shape[1]) is fastexport.SymInt
    assert value.shape[1].hint == 6 and value.stride == (1, 2)
    assert not fastexport.diff(h, g)
    fakes = [node.meta["val"] for node in g.nodes if isinstance(node.meta.get("val"), torch.SymInt)]
    half = fakes[0] * 0.5
    found = loads(dumps(graph_of(half, half > 1, meta={"example_value": fakes[0]}))).node("called")
    assert type(found.args[0]) is fastexport.SymFloat and type(found.args[1]) is fastexport.SymBool
    assert type(found.meta["example_value"]) is fastexport.SymInt


def test_what_else_torch_notes():
    program, args = exported("resnet")
    g = from_fx(program.run_decompositions().graph_module)
    h = loads(dumps(g))
    assert h == g and any(node.meta.get("original_aten") is torch.ops.aten.mean.dim for node in h.nodes)
    assert not any("desc" in node.meta for node in h.nodes)
    assert loads(dumps(graph_of(meta={"desc": "mine"}))).node("called").meta == {"desc": "mine"}
    module = torch.fx.symbolic_trace(Outer())
    torch.fx.passes.shape_prop.ShapeProp(module).propagate(torch.ones(3, 2))
    h = loads(dumps(from_fx(module)))
    for node in module.graph.nodes:
        assert h.node(node.name).meta["tensor_meta"] == node.meta["tensor_meta"]
        assert h.node(node.name).meta["type"] is node.meta["type"]
    source = torch.fx.traceback.NodeSource(next(iter(module.graph.nodes)), "a_pass")
    (found,) = loads(dumps(graph_of(meta={"from_node": [source]}))).node("called").meta["from_node"]
    assert type(found) is fastexport.NodeSource and found.to_dict() == source.to_dict()


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_fakes_without_facts():
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode:
        sparse = mode.from_tensor(torch.eye(2).to_sparse_csr())
    with pytest.raises(
        FormatError, match=r"(?s)meta\['val'\] has .*FakeTensor: a tensor of the layout .* has no strides"
    ):
        dumps(graph_of(meta={"val": sparse}))
    assert loads(dumps(graph_of(meta={"val": sparse}), meta=False)).node("called").meta == {}


# ---- depth


@pytest.mark.parametrize("depth", [400, 3_000])
def test_graphs_nested_deep(depth):
    top = inner = graph_of(0)
    for at in range(1, depth):
        inner.subgraphs = {"s": graph_of(at)}
        inner = inner.subgraphs["s"]
    data = dumps(top)
    found = loads(data)
    assert dumps(found) == data
    for _ in range(1, depth):
        found = found.subgraphs["s"]
    assert found.node("called").args == (depth - 1,)
    inner.subgraphs = {"s": top}
    with pytest.raises(FormatError, match="can't be written: a graph is among its own subgraphs"):
        dumps(top)
    inner.subgraphs = None


def test_graphs_in_several_places():
    """Each is written once, and not as often as there are ways to it; names keep their order."""
    g = inner = graph_of("leaf")
    for _ in range(60):
        outer = graph_of("x")
        outer.subgraphs = {"b": g, "a": g, "leaf": inner}
        g = outer
    data = dumps(g)
    assert len(data) < 30_000
    found = loads(data)
    assert dumps(found) == data
    leaf = found.subgraphs["leaf"]
    for _ in range(60):
        assert list(found.subgraphs) == ["b", "a", "leaf"]
        assert found.subgraphs["a"] is found.subgraphs["b"] and found.subgraphs["leaf"] is leaf
        found = found.subgraphs["a"]
    assert found is leaf and found == inner
    inner.node("called").args = (Opaque(),)
    with pytest.raises(FormatError, match="node 'leaf.called' can't be written"):
        dumps(g)


def test_nested_arguments():
    """The module of an exported program takes and gives containers; so does what comes back."""

    class Model(torch.nn.Module):
        def forward(self, x, more):
            return {"sum": x + more["k"]}

    args = torch.ones(2), {"k": torch.ones(2)}
    module = torch.export.export(Model(), args).module()
    g = from_fx(module)
    data = dumps(g, meta=False)
    h = loads(data)
    assert h == g and dumps(h, meta=False) == data
    for made in (h.to_fx(module), fastexport.GraphModule(module, h)):
        assert list(made(*args)) == ["sum"] and torch.equal(made(*args)["sum"], module(*args)["sum"])
    assert h.process_outputs([1]) == {"sum": 1} and h.process_inputs(*args)[1] is args[1]["k"]
    (graph,) = json.loads(data)["graphs"]
    for bad in (
        [],
        {},
        {**graph["codegen"], "orig_args": ["x y"]},
        {**graph["codegen"], "in_spec": "[1]"},
        {**graph["codegen"], "out_spec": 1},
        {**graph["codegen"], "more": 1},
    ):
        with pytest.raises(FormatError, match="codegen"):
            loads(graphs({**graph, "codegen": bad}))
