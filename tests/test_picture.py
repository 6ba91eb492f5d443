"""Pictures of graphs: SVG and text for Graphviz, whole, escaped, with nothing outside or on top of anything else."""

import operator
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

import fastexport
from fastexport import FastExportError, Graph, draw
from fastexport._levels import levels_of
from fastexport._placing import Placed, place, short_name, text_width, visible
from fastexport._tensor_meta import TensorMeta
from fastexport._tree import Module, module_tree
from helpers import run_python
from pt2_files import ALL, label, sample
from test_levels import block_chain, graphs, stack

FILES = Path(__file__).parent / "golden" / "picture"
SVG = "{http://www.w3.org/2000/svg}"


def small() -> Graph:
    """An input, a weight, a module with two results, one of which goes past the next call, and blocks."""
    g = block_chain(3)
    with g.inserting_before(g.node("output")):
        weight = g.get_attr("head.weight")
        head = g.call_function(operator.matmul, (g.node("add_5"), weight))
    weight.meta["val"] = TensorMeta("bfloat16", (3, 3))
    head.meta["val"] = TensorMeta("float32", (2, 3))
    head.meta["nn_module_stack"] = stack("head", "torch.nn.Linear")
    head.meta["stack_trace"] = 'File "net.py", line 12, in forward\n    return self.head(x)'
    g.node("output").args = (head,)
    return g


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def tooltips(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}title")]


# ---- whole texts


@pytest.mark.parametrize(
    "name,options",
    [
        ("closed.svg", {}),
        ("open.svg", {"depth": 2}),
        ("closed.dot", {}),
        ("open.dot", {"depth": 2}),
    ],
)
def test_golden(name: str, options: dict[str, int], request: pytest.FixtureRequest, tmp_path: Path) -> None:
    text = draw(small(), tmp_path / name, **options)  # type: ignore[arg-type]
    assert (tmp_path / name).read_text() == text
    if request.config.getoption("--update-golden"):
        FILES.mkdir(exist_ok=True)
        (FILES / name).write_text(text)
    assert text == (FILES / name).read_text()


@pytest.mark.parametrize(("in_turn", "told"), [(True, "in turn"), (False, "side by side")])
def test_how_modules_that_look_the_same_stand(in_turn: bool, told: str) -> None:
    """One box stands for all, with one line in and one out: text tells a chain from what runs beside each other."""
    g = Graph()
    x = value = g.placeholder("x")
    values = []
    for i in range(3):
        for target in (operator.neg, operator.pos):
            value = g.call_function(target, (value,))
            value.meta["nn_module_stack"] = {f"m{i}": (f"m{i}", "net.Block")}
        values.append(value)
        value = value if in_turn else x
    results = tuple(g.call_function(operator.abs, (each,)) for each in ([value] if in_turn else values))
    g.output(results)
    svg = draw(g)
    assert f"6 nodes, {told}" in texts(svg) and f"m0..m2 (3 alike, {told})\nBlock" in "\n".join(tooltips(svg))
    assert f"Block × 3, {told}" in texts(draw(g, depth=2)) and f"6 nodes, {told}" in draw(g, format="dot")


def test_what_a_picture_tells() -> None:
    svg = draw(small())
    root = ET.fromstring(svg)
    assert root.get("role") == "img" and root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc").text == "11 nodes, 1 in, 1 out"  # type: ignore[union-attr]
    assert "Block × 3" in texts(svg) and "weight bf16[3, 3]" in texts(svg) and "head" in texts(svg)
    assert any("net.py:12 in forward" in tip and "head.weight bf16[3, 3]" in tip for tip in tooltips(svg))
    assert "neg: f32[2, 3]" in tooltips(svg)  # of an edge
    assert "prefers-color-scheme:dark" in svg


def every_fate() -> Graph:
    """A graph whose signature has an output of each kind, and two constants."""
    g = Graph()
    w, b, x = (g.placeholder(name) for name in ("p_w", "b_b", "x"))
    values = [g.call_function(operator.add, (each, i)) for i, each in enumerate((w, b, x, w, b, x, w, x))]
    g.output((*values, None, 3))
    inputs = [(1, "p_w", "w"), (2, "b_b", "m.b"), (0, "x", None)]
    targets = (None, None, "m.b", "w", "x", "x", "w", None)
    outputs = [
        *((kind, values[kind].name, target) for kind, target in enumerate(targets)),
        (0, None, None),
        (0, 3, None),
    ]
    rows = [
        [(kind, name, None, None, target, False, -1) for kind, name, target in inputs],
        [
            (
                kind,
                name if isinstance(name, str) else None,
                None if isinstance(name, str) else name,
                None,
                target,
                False,
                -1,
            )
            for kind, name, target in outputs
        ],
    ]
    g._set_signature(*rows)
    return g


FATES = [
    "returned: add", "returned as the loss: add_1", "becomes buffer m.b: add_2",
    "is the gradient of parameter w: add_3", "is the gradient of input x: add_4", "becomes input x: add_5",
    "becomes parameter w: add_6",
    "returned as a token: add_7", "returned: None", "returned: 3",
]  # fmt: skip


def test_what_becomes_of_results() -> None:
    svg = draw(every_fate())
    assert "8 nodes, 1 in, 4 out, 3 mutations, 2 gradients, 1 token" in texts(svg)
    assert texts(svg)[-1] == "4 out, 3 mutations, 2 gradients, 1 token"
    for tip in tooltips(svg):
        if tip.startswith("output\n"):
            assert tip.split("\n")[1:] == FATES
        if tip.startswith("x\n"):
            assert "becomes add_5" in tip
        if tip.startswith("add_2\n"):
            assert "becomes buffer m.b" in tip
        if tip.startswith("add_1\n"):
            assert "buffer m.b, becomes add_2" in tip and "parameter" not in tip
    shown = texts(svg)
    for line in ("becomes buffer m.b", "is the gradient of parameter w", "becomes input x", "becomes add_5"):
        assert shown.count(line) == 1
    assert "becomes buffer m.b" in draw(every_fate(), format="dot")
    assert "becomes" not in draw(small())


def test_hostile_targets_of_results() -> None:
    for name in ("</title><b>&", '"]]>\\', "a\0\x1b[31m\u202e"):
        g = every_fate()
        inputs, outputs = g._signature() or ([], [])
        g._set_signature(*([(*row[:4], row[4] and name, *row[5:]) for row in rows] for rows in (inputs, outputs)))
        shown = texts(draw(g))
        assert f"becomes parameter {visible(name)}" in shown and "\u202e" not in "".join(shown)
        assert "\u202e" not in draw(g, format="dot")


def test_a_value_that_becomes_very_many_things() -> None:
    g = every_fate()
    inputs, outputs = g._signature() or ([], [])
    g.node("output").args = ((g.node("add"),) * 30,)
    g._set_signature(inputs, [outputs[2][:1] + ("add",) + outputs[2][2:]] * 30)
    assert texts(draw(g)).count("becomes buffer m.b") == 3 and "+27 more" in texts(draw(g))
    assert "30 mutations" in texts(draw(g))[1]


def test_results_without_a_signature_are_all_that_is_returned() -> None:
    g = Graph()
    x = g.placeholder("x")
    g.output({"a": (x, [x, None]), "b": {"c": 3}, "d": ()})
    assert "0 nodes, 1 in, 4 out" in texts(draw(g))
    assert any(tip == "output\nreturned: x\nreturned: x\nreturned: None\nreturned: 3" for tip in tooltips(draw(g)))
    program = fastexport.load(sample("user_input_mutation"))
    assert "10 nodes, 2 in, 1 out, 2 mutations" in texts(program.draw())


def test_depth_and_module() -> None:
    g = small()
    assert "mul" not in texts(draw(g)) and "mul" in texts(draw(g, depth=2))
    assert draw(g, depth=2) == draw(g, depth=9)
    assert texts(draw(g, module="layers.1"))[0] == "layers.1: Block"
    assert texts(draw(g, fold=False)).count("layers.1") == 1
    assert g.draw(depth=2) == draw(g, depth=2)


def test_a_module_that_is_all_is_opened() -> None:
    g = Graph()
    x = g.placeholder("x")
    a = g.call_function(operator.neg, (x,))
    b = g.call_function(operator.neg, (a,))
    a.meta["nn_module_stack"] = b.meta["nn_module_stack"] = stack("model.inner")
    g.output(b)
    assert texts(draw(g)).count("neg") == 2


# ---- what holds for every picture


def all_placed(placed: Placed) -> Iterator[Placed]:
    yield placed
    for box in placed.boxes:
        for part in box.parts:
            yield from all_placed(part.placed)


def check_picture(placed: Placed) -> None:
    for inner in all_placed(placed):
        for at, box in enumerate(inner.boxes):
            assert 0 <= box.x and box.x + box.width <= inner.width + 0.01
            assert -0.01 <= box.y and box.y + box.height <= inner.height + 0.01
            for other in inner.boxes[:at]:
                assert (
                    box.x >= other.x + other.width
                    or other.x >= box.x + box.width
                    or box.y >= other.y + other.height
                    or other.y >= box.y + box.height
                )
            for part in box.parts:
                assert 0 <= part.x and part.x + part.placed.width <= box.width + 0.01
                assert 0 <= part.y and part.y + part.placed.height <= box.height + 0.01
            for line in box.lines:
                assert text_width(line.text, 12 if line.style == "name" else 10.5) <= box.width
        for route in inner.routes:
            assert route.turned or route.source.rank < route.target.rank
            assert len(route.points) == 6 if route.turned else len(route.points) >= 2
            assert all(-0.01 <= x <= inner.width + 0.01 for x, _ in route.points)
            for (x, y), (other_x, other_y) in pairwise(route.points):
                low, high = sorted((y, other_y))
                assert x != other_x or not any(
                    box.x + 0.01 < x < box.x + box.width - 0.01 and low < box.y + box.height and box.y < high
                    for box in inner.boxes
                    if box is not route.source and box is not route.target
                )


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_laws(g: Graph) -> None:
    for depth in (1, 2, 9):
        check_picture(place(levels_of(g).root, depth))
        svg = draw(g, depth=depth)
        ET.fromstring(svg)
        assert svg == draw(g, depth=depth)


def circle() -> Graph:
    """A module whose second call needs what comes of its first outside of it, beside which taller boxes stand."""
    g = Graph()
    weights = [g.get_attr(name) for name in "abc"]
    value = g.placeholder("x")
    for i in range(3):
        value = g.call_function(operator.neg, (value,))
        value.meta["nn_module_stack"] = stack("m", "x.M")
        others = [g.call_function(operator.pos, (weights,)) for _ in range(3)] if i == 0 else []
        value = g.call_function(operator.abs, (value,))
        if others:
            value = g.call_function(operator.concat, (value, *others))
            value.meta["nn_module_stack"] = stack("m", "x.M")
            value = g.call_function(operator.inv, (value,))
    g.output(value)
    return g


def test_edges_that_go_upwards_run_beside_the_boxes() -> None:
    for depth in (1, 2):
        placed = place(levels_of(circle()).root, depth)
        check_picture(placed)
        turned = [route for route in placed.routes if route.turned]
        assert len({route.points[2][0] for route in turned}) == len(turned) >= 2
        assert draw(circle(), depth=depth).count("stroke-dasharray") == len(turned)


@pytest.mark.parametrize("path", ALL, ids=label)
def test_samples(path: Path) -> None:
    program = fastexport.load(path, verify=False)
    check_picture(place(levels_of(program).root, 9))
    svg = program.draw(depth=9)
    shown = " ".join(tooltips(svg))
    assert all(node.name in shown for node in program.graph.nodes if node.op == "call_function")
    assert draw(program, format="dot", depth=9).startswith("digraph {")


# ---- hostile names

HOSTILE = [
    "</title><script>alert(1)</script>",
    "\"quoted\" 'twice' & <b>",
    "]]>",
    "a\x00b\x1b[31m\x07",
    "\ud800\udfff\ufffe\uffff",
    "\u202eback\u2066",
    "line\nbreak\ttab\r",
    "back\\slash\\N\\n",
    "{a|<b>}",
    "&lt;&#0;",
    "x" * 3000,
    "日本語" * 40,
    "]]-->",
]


def hostile(name: str) -> Graph:
    g = Graph()
    x = g.placeholder("x")
    w = g.get_attr("w")
    nodes = [g.call_method(name, (x, w)), g.call_function(operator.neg, (x,))]
    for node in nodes:
        node.meta["nn_module_stack"] = {"k": (name, name)}
        node.meta["stack_trace"] = f'File "{name}", line 1, in {name}\n    {name}'
    g.output(tuple(nodes))
    return g


OUTER, INNER = '  File "a.py", line 1, in outer\n    f()\n', '  File "b.py", line 2, in inner\n    g()\n'


@pytest.mark.parametrize(
    ("trace", "place"),
    [
        (OUTER + INNER, "b.py:2 in inner"),
        (INNER + OUTER, "a.py:1 in outer"),
        (OUTER + '  File "b.py" somewhere\n    g()\n', "a.py:1 in outer"),
        (OUTER + INNER.replace("  File", "\tFile"), "b.py:2 in inner"),
        (OUTER.strip(), "a.py:1 in outer"),
        ("nowhere", None),
        (3, None),
    ],
)
def test_the_place_is_the_innermost_that_can_be_read(trace: object, place: str | None) -> None:
    g = Graph()
    node = g.call_function(operator.neg, (g.placeholder("x"),))
    node.meta["stack_trace"] = trace
    g.output(node)
    places = [
        line for element in ET.fromstring(g.draw()).iter(f"{SVG}title") for line in (element.text or "").split("\n")
    ]
    assert [line for line in places if ".py:" in line] == ([] if place is None else [place])


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names(name: str) -> None:
    g = hostile(name)
    for depth in (1, 3):
        svg = draw(g, depth=depth)
        tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(svg.encode()).iter()}
        assert tags <= {"svg", "title", "desc", "style", "defs", "marker", "path", "rect", "text", "g", "circle"}
        assert not any(ord(c) < 32 and c not in "\n\t" for c in svg) and "\u202e" not in svg
        check_picture(place(levels_of(g).root, depth))


@pytest.mark.parametrize("name", [name for name in HOSTILE if len(name) < 500], ids=range(len(HOSTILE) - 1))
def test_hostile_names_for_graphviz(name: str) -> None:
    """Graphviz reads the text, and shows the name as it is, with what is hidden written as escapes."""
    pygraphviz = pytest.importorskip("pygraphviz")
    text = draw(hostile(name), format="dot", depth=3)
    graph = pygraphviz.AGraph(string=text)
    svg = graph.draw(format="svg", prog="dot").decode()
    from fastexport._placing import visible

    shown = " ".join(element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text"))
    first = visible(name).split("\n")[0].replace("\t", " ")
    assert first.replace("\xa0", " ") in shown.replace("\xa0", " ")


# ---- Graphviz


def test_graphviz() -> None:
    pytest.importorskip("pygraphviz")
    svg = draw(small(), engine="graphviz", depth=2, timeout=60)
    assert any("Block × 3" in text for text in texts(svg))


def test_graphviz_gets_no_large_graph() -> None:
    pytest.importorskip("pygraphviz")
    g = Graph()
    value = g.placeholder("x")
    for i in range(451):
        value = g.call_function(operator.add, (value, i))
    g.output(value)
    with pytest.raises(FastExportError, match="453 boxes are too many for Graphviz, which gets at most 400"):
        draw(g, engine="graphviz", fold=False, max_items=1000)


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 1e7])
def test_graphviz_is_given_all_the_time_it_needs(timeout: float) -> None:
    pytest.importorskip("pygraphviz")
    assert "neg" in texts(draw(small(), engine="graphviz", timeout=timeout))


def test_graphviz_is_stopped() -> None:
    pytest.importorskip("pygraphviz")
    with pytest.raises(FastExportError, match=r"not done after 0\.001 seconds"):
        draw(small(), engine="graphviz", timeout=0.001)


def test_without_pygraphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"fastexport\[draw\]"):
        draw(small(), engine="graphviz")


# ---- arguments, files and the command


@pytest.mark.parametrize(
    "options,message",
    [
        ({"format": "png"}, 'format is "svg" or "dot", not \'png\''),
        ({"engine": "neato"}, 'engine is "own" or "graphviz", not \'neato\''),
        ({"depth": 0}, "depth is at least 1, not 0"),
        ({"timeout": 0}, "timeout is more than 0, not 0"),
        ({"timeout": float("nan")}, "timeout is more than 0, not nan"),
        ({"max_items": 1}, "max_items is at least 2, not 1"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(Graph(), **options)  # type: ignore[arg-type]


def test_no_such_module() -> None:
    with pytest.raises(KeyError, match="no module or subgraph 'layers.7' with calls in it; did you mean layers"):
        draw(small(), module="layers.7")
    with pytest.raises(KeyError, match="'q' with calls in it; there are layers, head, layers.0, layers.1, layers.2"):
        draw(small(), module="q")
    with pytest.raises(KeyError, match="with calls in it; there are cond/true_graph_0, cond/false_graph_0"):
        draw(fastexport.load(sample("cond_")), module="q")
    with pytest.raises(KeyError, match="no module or subgraph 'q' with calls in it\"?$"):
        draw(Graph(), module="q")
    with pytest.raises(TypeError):
        draw(3)


def paths_with_calls(module: Module, path: str = "") -> Iterator[str]:
    for name, child in module.children.items():
        below = f"{path}.{name}" if path else name
        if child.total_operators():
            yield below
        yield from paths_with_calls(child, below)


@pytest.mark.parametrize("path", ALL, ids=label)
def test_every_module_of_the_tree_can_be_drawn(path: Path) -> None:
    program = fastexport.load(path, verify=False)
    tree = module_tree(program)
    for module in paths_with_calls(tree):
        for folded in (True, False):
            level = levels_of(program, fold=folded, max_items=5, module=module).at(module)
            assert level.module == module and level.size >= 1
        assert module in texts(draw(program, module=module))[0]
    root = levels_of(program).root
    assert root.type == tree.type


def test_modules_that_are_never_called_and_those_of_one_call() -> None:
    g = small()
    assert texts(draw(g, module="layers"))[0] == "layers" and "Block × 3, in turn" in texts(draw(g, module="layers"))
    assert texts(draw(g, module="head"))[:2] == ["head: Linear", "1 node, 1 in, 1 out"]
    assert "matmul" in texts(draw(g, module="head"))
    for node in g.nodes:
        if node.name == "mul":
            node.meta["nn_module_stack"] = stack("twice@1")
    assert texts(draw(g, module="twice"))[0] == "twice@1: Block"


def test_a_subgraph_by_its_name() -> None:
    program = fastexport.load(sample("cond_"))
    name = next(iter(program.graph.subgraphs or {}))
    assert draw(program, module=name) == draw(program, module=f"cond/{name}")


def test_the_class_of_a_program_is_none_of_torch_s_wrappers() -> None:
    wrapper = "torch.export._trace._non_strict_export.<locals>.Wrapper"
    for kinds in (
        (wrapper, "net.Net", wrapper),
        ("net.Net", wrapper),
        ("torch.fx.graph_module.GraphModule", "net.Net"),
    ):
        g = Graph()
        last = g.placeholder("x")
        for kind in kinds:
            last = g.call_function(operator.neg, (last,))
            last.meta["nn_module_stack"] = {"top": ("", kind)}
        g.output(last)
        assert levels_of(g).root.type == "Net"
    g.node("neg").meta["nn_module_stack"] = g.node("neg_1").meta["nn_module_stack"] = {"top": ("", wrapper)}
    assert levels_of(g).root.type == "Wrapper"  # better than none


def test_files_are_drawn_without_torch() -> None:
    """As stats and summary take them: paths, open files and bytes."""
    code = f"""
        import io, sys, pathlib, fastexport
        path = {str(sample("linear"))!r}
        wanted = fastexport.draw(fastexport.load(path))
        data = pathlib.Path(path).read_bytes()
        for given in (path, pathlib.Path(path), data, io.BytesIO(data), open(path, "rb")):
            assert fastexport.draw(given) == wanted
        for given, error in (("none.pt2", OSError), (b"PK", fastexport.FormatError)):
            try:
                fastexport.draw(given)
            except error:
                continue
            assert False, "no error"
        assert "torch" not in sys.modules and "numpy" not in sys.modules
    """
    run_python(code)


def test_a_graph_with_a_module_called_read_is_no_file() -> None:
    torch = pytest.importorskip("torch")

    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = torch.nn.ReLU()

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.read(x)

    assert "read" in draw(torch.fx.symbolic_trace(Reader()))


def test_a_failed_write_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text("old")
    with pytest.raises(KeyError):
        draw(small(), path, module="nothing")
    assert path.read_text() == "old"
    with pytest.raises(OSError):
        draw(small(), tmp_path / "no" / "a.svg")
    assert os.listdir(tmp_path) == ["a.svg"]


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastexport", "draw", *args], capture_output=True, text=True, check=False
    )


def test_command(tmp_path: Path) -> None:
    file = str(sample("conv_bn_eval_core"))
    out = tmp_path / "a.svg"
    done = command(file, "-o", str(out))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    program = fastexport.load(file)
    assert out.read_text() == program.draw()
    done = command(file, "--depth", "3", "--no-fold")
    assert (done.returncode, done.stdout.strip()) == (0, program.draw(depth=3, fold=False).strip())
    done = command(file, "--module", "nothing", "-o", str(out))
    assert done.returncode == 2 and "there is no module or subgraph 'nothing' with calls in it" in done.stderr
    done = command(file, "--depth", "3", "--max-items", "2", "-o", str(out))
    assert (done.returncode, out.read_text()) == (0, program.draw(depth=3, max_items=2))
    assert program.draw(depth=3, max_items=2) != program.draw(depth=3)
    for wrong, why in (("--max-items", "max_items is at least 2"), ("--timeout", "timeout is more than 0")):
        done = command(file, wrong, "0")
        assert done.returncode == 2 and why in done.stderr
    done = command(file, "--depth", "0")
    assert done.returncode == 2 and "a number from 1 to 100 is wanted" in done.stderr
    done = command(file, "-o", str(tmp_path / "b.dot"))
    assert done.returncode == 0 and (tmp_path / "b.dot").read_text().startswith("digraph {")


def test_no_torch_is_needed() -> None:
    script = f"""
        import sys, fastexport
        fastexport.load({str(sample("cond_"))!r}).draw(depth=3)
        print(sorted({{"torch", "numpy", "pygraphviz"}} & sys.modules.keys()))
    """
    assert run_python(script).strip() == "[]"


def test_names_of_operators() -> None:
    names = [
        "aten.add.Tensor",
        "operator.mul",
        "torch.nn.functional.relu",
        "higher_order.cond",
        "relu",
        "my.op.default",
    ]
    assert [short_name(name) for name in names] == ["add", "mul", "relu", "cond", "relu", "op"]
