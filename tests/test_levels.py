"""The tree of levels of a graph: which node is where, what edges say, what is folded, and what is cut."""

import copy
import io
import json
import operator
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastexport
from fastexport import Graph, _tree, model_explorer
from fastexport._level_groups import repeats
from fastexport._levels import Item, Level, Levels, levels_of, value_at
from fastexport._node_facts import value_text
from fastexport._tensor_meta import TensorMeta
from pt2_files import ALL, label, sample, with_document


def stack(path: str, kind: str = "net.Block") -> dict[str, tuple[str, str]]:
    """The modules round a node: each part of the path is a module that was called."""
    parts = path.split(".") if path else []
    paths = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return {f"L__{p}": (p, kind) for p in ["", *paths]}


def block_chain(count: int, *, odd: int = -1) -> Graph:
    """Blocks layers.0 ... that each take the result of the one before; of one block a literal is another."""
    g = Graph()
    value = g.placeholder("x")
    shared = g.call_function(operator.neg, (value,))
    value.meta["val"] = shared.meta["val"] = TensorMeta("float32", (2, 3))
    for i in range(count):
        a = g.call_function(operator.mul, (value, 3 if i == odd else 2))
        b = g.call_function(operator.add, (a, shared))
        c = g.call_function(operator.add, (b, value))
        for node in (a, b, c):
            node.meta["nn_module_stack"] = stack(f"layers.{i}")
            node.meta["nn_module_stack"].pop("L__layers")  # a ModuleList is never called
            node.meta["val"] = TensorMeta("float32", (2, 3))
        value = c
    g.output(value)
    return g


def named(level: Level) -> list[str]:
    return [f"{item.kind} {item.name}" for item in level.items]


def edges(level: Level) -> list[tuple[str, str]]:
    return [(level.items[e.source].name, level.items[e.target].name) for e in level.edges]


# ---- what holds for every graph


def check_levels(g: Graph, levels: Levels, max_items: int = 150) -> None:
    """Each node is in one level, what edges say agrees with the graph, and no level is too large."""
    found: dict[str, Level] = {}
    for level in levels.all:
        assert [item.index for item in level.items] == list(range(len(level.items)))
        assert level.items == [*level.inputs, *level.body, *level.outputs]
        assert len(level.body) <= max_items
        assert level.size == sum(item.size for item in level.body)
        for item in level.body:
            assert item.size == (1 if item.level is None else sum(m.size for m in item.members or [item.level]))
        if level.scope:
            continue
        for item in level.items:
            if item.place >= 0:
                assert item.name not in found
                found[item.name] = level
                assert levels.find(item.name) == (level, item)
    weights = {w.name for level in levels.all for item in level.items for w in item.weights}
    attributes = {node.name for node in g.nodes if node.op == "get_attr"}
    signature = g._signature()
    kinds = {row[1] for row in signature[0] if row[0] in (1, 2, 3, 4)} if signature else set()
    assert {node.name for node in g.nodes} - set(found) == attributes | kinds
    assert weights <= attributes | kinds


def source_of(level: Level, item: Item, port: int) -> str:
    """The node whose value is at an output of an item, found by following the edges."""
    if item.level is not None:
        inner = item.members[-1] if item.members else item.level
        output = inner.outputs[port]
        (edge,) = (e for e in inner.edges if e.target == output.index)
        return source_of(inner, inner.items[edge.source], edge.ports[0][0])
    if item.kind == "input" and level.parent is not None and level.item is not None:
        place = level.inputs.index(item)
        for edge in level.parent.edges:
            for i, j in edge.ports if edge.target == level.item.index else ():
                if j == place:
                    return source_of(level.parent, level.parent.items[edge.source], i)
        raise AssertionError(f"nothing comes in at {item.name}")
    return item.name


def check_uses(g: Graph, levels: Levels) -> None:
    """In unfolded levels, the edges into a node lead back to just what it uses, and their texts are right."""
    for node in g.nodes:
        if node.op == "get_attr" or (node.op == "placeholder"):
            continue
        level, item = levels.find(node.name)
        used = []
        for edge in level.edges:
            source = level.items[edge.source]
            if edge.target == item.index:
                used += [source_of(level, source, i) for i, _ in edge.ports]
                assert edge.texts == [value_at(source, i).text for i, _ in edge.ports]
        others = [w.name for w in item.weights] + [name for name, _ in item.subgraphs]
        assert sorted(used + others) == sorted(n.name for n in node.all_input_nodes)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph; its nodes are in any modules, so that groups may need each other in turn."""
    paths = st.sampled_from(["", "a", "a.b", "a.b.c", "a.d", "e", "e.0", "e.1", "f.g"])
    g = Graph()
    nodes = [g.placeholder("x"), g.get_attr("w")]
    for _ in range(draw(st.integers(0, 25))):
        operands = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3))
        node = g.call_function(draw(st.sampled_from([operator.add, operator.mul, max])), tuple(operands))
        if draw(st.booleans()):
            node.meta["nn_module_stack"] = stack(draw(paths))
        nodes.append(node)
    g.output(tuple(draw(st.lists(st.sampled_from(nodes), max_size=3))))
    return g


@settings(max_examples=80, deadline=None)
@given(graphs(), st.sampled_from([2, 4, 150]))
def test_laws(g: Graph, max_items: int) -> None:
    whole = levels_of(g, fold=False, max_items=max_items)
    check_levels(g, whole, max_items)
    check_uses(g, whole)
    folded = levels_of(g, max_items=max_items)
    check_levels(g, folded, max_items)
    again = levels_of(g, max_items=max_items)
    assert [(named(level), edges(level)) for level in folded.all] == [
        (named(level), edges(level)) for level in again.all
    ]


@pytest.mark.parametrize("path", ALL, ids=label)
def test_samples(path: Path) -> None:
    try:
        program = fastexport.load(path, verify=False)
    except fastexport.FormatError:
        pytest.skip("a file that does not open")
    before = str(program.graph)
    check_levels(program.graph, levels_of(program))
    check_uses(program.graph, levels_of(program, fold=False))
    assert str(program.graph) == before
    # What the file tells is what meta tells.
    program = fastexport.load(path, verify=False)
    quick = levels_of(program)
    for node in program.graph.nodes:
        node.meta.get("val")
    slow = levels_of(program)
    assert [[(i.kind, i.name, i.type, i.text, i.module) for i in level.items] for level in quick.all] == [
        [(i.kind, i.name, i.type, i.text, i.module) for i in level.items] for level in slow.all
    ]


# ---- modules


def test_modules_make_levels() -> None:
    levels = levels_of(block_chain(2, odd=1))
    assert named(levels.root) == ["input x", "node neg", "module layers.0", "module layers.1", "output output"]
    inner = levels.at("layers.1")
    assert inner.type == "Block" and inner.parent is levels.root and inner.depth == 1
    assert named(inner) == ["input add_1", "input neg", "node mul_1", "node add_2", "node add_3", "output add_3"]
    assert edges(inner) == [
        ("add_1", "mul_1"),
        ("add_1", "add_3"),
        ("neg", "add_2"),
        ("mul_1", "add_2"),
        ("add_2", "add_3"),
        ("add_3", "add_3"),
    ]
    assert inner.items[2].text == "f32[2, 3]"
    with pytest.raises(
        KeyError, match=r"no module or subgraph 'layers.2' with calls in it; did you mean layers.1, layers.0"
    ):
        levels.at("layers.2")
    with pytest.raises(KeyError):
        levels.find("nothing")


def test_module_of_one_call_is_that_call() -> None:
    g = Graph()
    x = g.placeholder("x")
    weight = g.get_attr("proj.weight")
    node = g.call_function(operator.matmul, (x, weight))
    node.meta["nn_module_stack"] = stack("proj", "torch.nn.Linear")
    g.output(node)
    item = levels_of(g).root.items[1]
    assert (item.kind, item.module, item.type) == ("node", ("proj", "Linear"), "operator.matmul")
    assert [(w.target, w.kind) for w in item.weights] == [("proj.weight", "attribute")]


def test_circle_of_modules() -> None:
    g = Graph()
    x = g.placeholder("x")
    a = g.call_function(operator.neg, (x,))
    b = g.call_function(operator.neg, (a,))
    c = g.call_function(operator.neg, (b,))
    d = g.call_function(operator.neg, (c,))
    for node, path in ((a, "one"), (b, "two"), (c, "one"), (d, "two")):
        node.meta["nn_module_stack"] = stack(path)
    g.output(d)
    levels = levels_of(g)
    check_levels(g, levels)
    assert edges(levels.root) == [("x", "one"), ("one", "two"), ("two", "one"), ("two", "output")]


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        5,
        {"k": None},
        {"k": ("a",)},
        {"k": (7, "net.A")},
        {"k": ("a", None)},
        {"k": ("a." * 5000, "net.A")},
        {"k": ("", "_empty_nn_module_stack_from_metadata_hook")},
    ],
)
def test_odd_module_stacks(meta: object) -> None:
    g = Graph()
    x = g.placeholder("x")
    a = g.call_function(operator.neg, (x,))
    b = g.call_function(operator.neg, (a,))
    a.meta["nn_module_stack"] = b.meta["nn_module_stack"] = meta
    g.output(b)
    levels = levels_of(g)
    check_levels(g, levels)
    check_uses(g, levels)


class Rude:
    """Raises whatever it is asked."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)

    def __call__(self) -> None: ...


def shared_on(count: int) -> Graph:
    """A graph that runs one graph in two places, which does the same, and so on."""
    g = Graph()
    for _ in range(count):
        outer = Graph()
        x = outer.placeholder("x")
        outer.output(outer.call_function(operator.add, (x, outer.get_attr("a"), outer.get_attr("b"))))
        outer.subgraphs = {"a": g, "b": g}
        g = outer
    return g


@pytest.mark.parametrize("walk", [levels_of, model_explorer.to_json, model_explorer.node_data])
def test_graphs_without_number(walk: Callable[[Graph], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tree, "MOST_GRAPHS", 100)
    walk(shared_on(5))  # which are 63
    with pytest.raises(ValueError, match="more than 100, each counted wherever it is run"):
        walk(shared_on(60))
    g = shared_on(1)
    g.subgraphs = {"a": g}
    with pytest.raises(RecursionError, match="own subgraphs"):
        walk(g)


def test_rude_objects() -> None:
    g = Graph()
    x = g.placeholder("x")
    a = g.call_function(operator.neg, (x, Rude()))
    a.meta["val"] = Rude()
    g.output(a)
    check_levels(g, levels_of(g))


def test_value_text() -> None:
    assert value_text(TensorMeta("int64", (2,))) == "i64[2]"
    assert value_text(None) == "" and value_text(Rude()) == ""


# ---- blocks


def test_blocks_that_look_the_same_are_folded() -> None:
    levels = levels_of(block_chain(5))
    assert named(levels.root) == ["input x", "node neg", "block layers.0..4", "output output"]
    block = levels.root.items[2]
    assert (block.count, block.chain, block.size, block.type) == (5, True, 15, "Block")
    assert [level.path for level in block.members] == [f"layers.{i}" for i in range(5)]
    assert block.level is block.members[0] and all(level.item is block for level in block.members)
    assert edges(levels.root) == [
        ("x", "neg"),
        ("x", "layers.0..4"),
        ("neg", "layers.0..4"),
        ("layers.0..4", "output"),
    ]
    assert levels.find("add_9")[0].path == "layers.4"


def test_a_block_that_differs_in_a_literal_stays() -> None:
    levels = levels_of(block_chain(5, odd=2))
    assert named(levels.root)[2:-1] == ["block layers.0..1", "module layers.2", "block layers.3..4"]


def test_a_block_that_differs_in_a_shape_stays() -> None:
    g = block_chain(4)
    g.node("add_4").meta["val"] = TensorMeta("float32", (2, 4))
    assert "module layers.2" in named(levels_of(g).root)


def test_fold_can_be_left() -> None:
    levels = levels_of(block_chain(3), fold=False)
    assert named(levels.root)[2:-1] == [f"module layers.{i}" for i in range(3)]


def test_blocks_side_by_side() -> None:
    g = Graph()
    x = g.placeholder("x")
    heads = []
    for i in range(4):
        a = g.call_function(operator.neg, (x,))
        b = g.call_function(operator.mul, (a, a))
        a.meta["nn_module_stack"] = b.meta["nn_module_stack"] = stack(f"head{i}")
        heads.append(b)
    g.output(tuple(heads))
    block = levels_of(g).root.items[1]
    assert (block.kind, block.count, block.chain) == ("block", 4, False)


def blocks_after(*sources: int) -> Graph:
    """Modules that look the same, each of which uses the result of another by its place; -1 is the input."""
    g = Graph()
    results = [g.placeholder("x")]
    for i, source in enumerate(sources):
        a = g.call_function(operator.neg, (results[source + 1],))
        b = g.call_function(operator.mul, (a, a))
        a.meta["nn_module_stack"] = b.meta["nn_module_stack"] = stack(f"e{i}")
        results.append(b)
    g.output(tuple(results[1:]))
    return g


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ((-1, 0, 0, 0), [("e0", False), ("e1..e3", False)]),  # a tree
        ((-1, 0, 1, 1, 1), [("e0..e1", True), ("e2..e4", False)]),
        ((-1, 0, 1, 2), [("e0..e3", True)]),  # whose results are all returned
        ((-1, 0, 1, -1), [("e0..e2", True), ("e3", False)]),
        ((-1, 0, -1, 2), [("e0..e1", True), ("e2..e3", True)]),
    ],
)
def test_what_branches_off_a_chain_is_not_in_it(sources: tuple[int, ...], found: list[tuple[str, bool]]) -> None:
    items = levels_of(blocks_after(*sources)).root.items
    assert [(item.name, item.chain) for item in items if item.kind in ("module", "block")] == found


# ---- large levels


def test_repeats() -> None:
    assert repeats([]) == [] and repeats([1, 2, 3]) == [] and repeats([1, 1, 1]) == []
    assert repeats([1, 2, 1, 2]) == [(0, 2, 4)]
    assert repeats([5, 1, 2, 3, 1, 2, 3, 1, 2, 3, 6, 7, 8, 7, 8]) == [(1, 3, 10), (11, 2, 15)]


@given(st.lists(st.integers(0, 3), max_size=40))
def test_repeats_repeat(keys: list[int]) -> None:
    last = 0
    for start, period, end in repeats(keys):
        assert start >= last and end - start >= 2 * period >= 4
        assert all(keys[i] == keys[i + period] for i in range(start, end - period))
        last = end


def test_a_large_level_of_repeats_is_folded() -> None:
    g = block_chain(60)
    for node in g.nodes:
        node.meta.pop("nn_module_stack", None)
    levels = levels_of(g)
    check_levels(g, levels)
    block = next(item for item in levels.root.items if item.kind == "block")
    assert block.count >= 58 and block.members[0].size == 3 and block.type == ""
    assert len(levels.root.items) < 12


def test_a_large_level_is_cut_where_few_values_pass() -> None:
    g = Graph()
    value = g.placeholder("x")
    for i in range(40):  # diamonds of 5 nodes that hang together by one value
        sides = [g.call_function(operator.mul, (value, i + k)) for k in range(3)]
        middle = g.call_function(max, tuple(sides))
        value = g.call_function(operator.add, (middle, i))
    g.output(value)
    levels = levels_of(g, fold=False)
    check_levels(g, levels)
    check_uses(g, levels)
    runs = [item for item in levels.root.items if item.kind == "run"]
    assert len(runs) > 8
    for run in runs:
        assert run.level is not None and len(run.level.inputs) == len(run.level.outputs) == 1


def test_runs_of_runs() -> None:
    g = Graph()
    value = g.placeholder("x")
    for i in range(300):
        value = g.call_function(operator.add, (value, i))
    g.output(value)
    levels = levels_of(g, max_items=4)
    check_levels(g, levels, 4)
    assert max(level.depth for level in levels.all) >= 3


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="max_items is at least 2, not 1"):
        levels_of(Graph(), max_items=1)
    with pytest.raises(TypeError):
        levels_of(5)


# ---- graphs of torch, and subgraphs


def test_graphs_of_torch() -> None:
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, stride: int) -> None:
            super().__init__()
            self.conv = torch.nn.Conv1d(4, 4, 3, stride, padding=1)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.relu(self.conv(x)) + 1

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(*[Block(s) for s in (1, 1, 1, 2, 2)])

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.body(x) * 2

    net = Net().eval()
    traced = torch.fx.symbolic_trace(net)
    levels = levels_of(traced)
    assert levels.root.type == "Net"
    body = levels.at("body")
    # The same calls and classes; that strides differ is told by what the modules say of themselves.
    assert named(body) == ["input x", "block 0..2", "block 3..4", "output add_4"]
    assert [item.type for item in levels.at("body.0").body] == ["Conv1d", "torch.relu", "operator.add"]
    exported = torch.export.export(net, (torch.randn(1, 4, 32),))
    levels = levels_of(exported)
    conv = levels.at("body.0").body[0]
    assert conv.module == ("conv", "Conv1d") and conv.text == "f32[1, 4, 32]"
    assert [(w.target, w.text, w.kind) for w in conv.weights] == [
        ("body.0.conv.weight", "f32[4, 4, 3]", "parameter"),
        ("body.0.conv.bias", "f32[4]", "parameter"),
    ]


def test_subgraphs() -> None:
    program = fastexport.load(sample("cond_"))
    levels = levels_of(program)
    item = next(item for item in levels.root.items if item.subgraphs)
    assert [name for name, _ in item.subgraphs] == list(program.graph.subgraphs or {})
    level = item.subgraphs[0][1]
    assert level.parent is levels.root and level.scope == level.path == f"{item.name}/{item.subgraphs[0][0]}"
    node = next(n for n in (program.graph.subgraphs or {})[item.subgraphs[0][0]].nodes if n.op == "call_function")
    assert levels.find(f"{level.scope}/{node.name}")[1].name == node.name


def nested_conds(count: int) -> bytes:
    """A program in whose cond is a cond, and so on; made of texts, since json itself does not go so deep."""
    hole = '"the graph inside"'

    def dig(document):
        call = next(n for n in document["graph_module"]["graph"]["nodes"] if n["target"].endswith("cond"))
        branch = call["inputs"][1]["arg"]["as_graph"]
        call["inputs"][1]["arg"]["as_graph"] = hole[1:-1]
        outer = copy.deepcopy(branch)
        inner = copy.deepcopy(call)
        operands = [{"name": given["as_tensor"]["name"]} for given in outer["graph"]["inputs"]]
        inner["inputs"][0]["arg"] = {"as_bool": True}
        inner["inputs"][3]["arg"] = {"as_tensors": operands}
        inner["outputs"] = [{"as_tensor": {"name": "sin"}}]
        outer["graph"]["nodes"] = [inner]
        texts.extend(json.dumps(outer).split(hole))
        texts.append(json.dumps(branch))

    texts: list[str] = []
    data = with_document(sample("cond_"), dig)
    before, after, innermost = texts
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            whole = before * (count - 1) + innermost + after * (count - 1)
            new.writestr(name, old.read(name).replace(hole.encode(), whole.encode()))
    return out.getvalue()


def test_subgraphs_nest_as_deep_as_they_like():
    """Deeper than Python's calls may be nested, though what is in a hundred levels is drawn closed."""
    limits = {"graph_depth": 4000, "json_depth": 4000}
    program = fastexport.load(nested_conds(400), verify=False, limits=limits)
    levels = levels_of(program)
    assert max(level.depth for level in levels.all) == 400
    svg = program.draw(depth=5000)
    assert 190 < svg.count("true_graph_0") < 210  # twice for each that is open
    assert program.draw(depth=5000, format="dot")
    for value in (program, program.graph, program.graph_signature, fastexport.stats(program)):
        assert value._repr_mimebundle_() and repr(value)
    assert fastexport.report(program) and program.summary(depth=5000)
    assert not fastexport.diff(program, program)
