"""Pictures of graphs: SVG and text for Graphviz, whole, escaped, with nothing outside or on top of anything else."""

import operator
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

import fastexport
from fastexport import FastExportError, Graph, draw
from fastexport._levels import levels_of
from fastexport._placing import Placed, place, short_name, text_width
from fastexport._tensor_meta import TensorMeta
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


def test_what_a_picture_tells() -> None:
    svg = draw(small())
    root = ET.fromstring(svg)
    assert root.get("role") == "img" and root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc").text == "11 nodes, 1 in, 1 out"  # type: ignore[union-attr]
    assert "Block × 3" in texts(svg) and "weight bf16[3, 3]" in texts(svg) and "head" in texts(svg)
    assert any("net.py:12 in forward" in tip and "head.weight bf16[3, 3]" in tip for tip in tooltips(svg))
    assert "neg: f32[2, 3]" in tooltips(svg)  # of an edge
    assert "prefers-color-scheme:dark" in svg


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
            assert len(route.points) >= 2


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_laws(g: Graph) -> None:
    for depth in (1, 2, 9):
        check_picture(place(levels_of(g).root, depth))
        svg = draw(g, depth=depth)
        ET.fromstring(svg)
        assert svg == draw(g, depth=depth)


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
        ({"max_items": 1}, "max_items is at least 2, not 1"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(Graph(), **options)  # type: ignore[arg-type]


def test_no_such_module() -> None:
    with pytest.raises(KeyError, match="there is no module 'layers.7' that is more"):
        draw(small(), module="layers.7")
    with pytest.raises(TypeError):
        draw(3)


def test_a_module_of_one_call_has_nothing_to_draw() -> None:
    with pytest.raises(KeyError, match="there is no module 'fc' that is more than one call"):
        draw(fastexport.load(sample("linear")), module="fc")


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
    assert done.returncode == 2 and "there is no module 'nothing' that is more than one call" in done.stderr
    done = command(file, "--depth", "3", "--max-items", "2", "-o", str(out))
    assert (done.returncode, out.read_text()) == (0, program.draw(depth=3, max_items=2))
    assert program.draw(depth=3, max_items=2) != program.draw(depth=3)
    for wrong, why in (("--max-items", "max_items is at least 2"), ("--timeout", "timeout is more than 0")):
        done = command(file, wrong, "0")
        assert done.returncode == 2 and why in done.stderr
    done = command(file, "--depth", "0")
    assert done.returncode == 2 and "depth is at least 1" in done.stderr
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
