"""The report page: what it holds, and what it does in a browser."""

import base64
import hashlib
import json
import operator
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
import zlib
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given, settings

import fastexport
from browser import Browser
from fastexport import Fault, Graph, report
from fastexport._levels import levels_of
from fastexport._placing import item_lines
from fastexport._report import report_html
from fastexport._report_data import data_of, json_text
from fastexport._report_nodes import REF
from fastexport._tensor_meta import TensorMeta
from helpers import run_python
from pt2_files import ALL, label, sample
from test_levels import block_chain, graphs
from test_picture import HOSTILE, circle, every_fate, hostile, small

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
READY = "return document.body?.dataset.ready"


def unpacked(html):
    """The data in a page."""
    packed = re.search(r'<script id="data" type="text/plain">([A-Za-z0-9+/=]+)</script>', html)
    return summed(json.loads(zlib.decompress(base64.b64decode(packed[1]))))


def summed(data):
    """The data with numbers in the place of steps."""
    for program in data["programs"]:
        program["nodes"] = {name: list(accumulate(steps)) for name, steps in program["nodes"].items()}
        program["weights"] = list(zip(*map(accumulate, program["weights"]), strict=True))
        items = [item for *_, items in program["levels"] for item in items]
        ends = [item if isinstance(item, int) else item[1] if item[0] == 0 else 0 for item in items]
        places = accumulate(ends)
        for level in program["levels"]:
            for i, (item, place) in enumerate(zip(level[-1], places, strict=False)):
                level[-1][i] = place if isinstance(item, int) else [0, place, *item[2:]] if item[0] == 0 else item
    return data


# ---- what a page holds


def check_data(g, data):
    """Each node is in the table once, what it uses is told, and levels lead to each node that is no weight."""
    (program,) = summed(data)["programs"]
    texts = data["texts"]
    nodes = program["nodes"]
    starts = [start for _, start in program["scopes"]]
    own = list((g if isinstance(g, Graph) else g.graph).nodes)
    assert [texts[name] for name in nodes["name"][: len(own)]] == [node.name for node in own]
    for place, node in enumerate(own):
        args = texts[nodes["args"][place]]
        used = {texts[nodes["name"][place - int(back)]] for back in re.findall(f"{REF}(\\d+){REF}", args)}
        assert used == {used.name for used in node.all_input_nodes}
    weights = {row[0] for row in program["weights"]}
    found = []
    for shape, _, _, parent, inputs, outputs, items in program["levels"]:
        ranks, middles, edges = program["shapes"][shape]
        assert len(ranks) == len(middles) == len(items)
        assert parent < len(program["levels"])
        for source, target, turned, ports, passed in edges:
            assert turned or ranks[source] < ranks[target]
            assert turned or not passed or len(passed) == ranks[target] - ranks[source] - 1
            assert ports and len(ports) % 2 == 0
        found += [item[1] for item in items[inputs : len(items) - outputs] if item[0] == 0]
    assert len(found) == len(set(found)) and not weights.intersection(found)
    calls = {i for i, op in enumerate(nodes["op"]) if texts[op].startswith("call_")}
    assert calls == set(found)
    assert starts == sorted(starts) and starts[0] == 0


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_data_of_any_graph(g):
    check_data(g, data_of(g, None, None, True, ()))
    check_data(g, data_of(g, None, (), False, ()))


@pytest.mark.parametrize("path", ALL, ids=label)
def test_data_of_samples(path):
    program, looked_at = (fastexport.load(path, verify=False) for _ in range(2))
    data = data_of(program, None, None, True, ())
    for graph in (looked_at.graph, *(looked_at.graph.subgraphs or {}).values()):
        assert [dict(node.meta) for node in graph.nodes]
    assert data_of(looked_at, None, None, True, ()) == data
    check_data(program, data)


def test_meta_goes_on_waiting_in_the_file():
    program = fastexport.load(sample("linear"))
    report(program)
    assert all(place > 0 for place in program.graph._file_meta()[0])


def test_the_page_is_one_file_that_may_fetch_nothing():
    html = report(small(), names=["<small> & {{script}}"])
    assert "<title>&lt;small&gt; &amp; {{script}}</title>" in html
    asked = html.replace('"http://www.w3.org/2000/svg"', "")  # the name of a kind of markup
    assert not re.search(r"https?://|@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|innerHTML|insertAdjacent", asked)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert unpacked(html)["programs"][0]["name"] == "<small> & {{script}}"
    assert html == report(small(), names=["<small> & {{script}}"])


def test_files_are_shown_without_torch_and_called_by_their_names():
    code = f"""
        import io, sys, pathlib, fastexport
        path, other = {str(sample("linear"))!r}, pathlib.Path({str(sample("cond_"))!r})
        one, two = fastexport.load(path), fastexport.load(other)
        assert fastexport.report(path) == fastexport.report(one, names=["linear.pt2"])
        assert fastexport.report(other, path) == fastexport.report(two, one, names=["cond_.pt2", "linear.pt2"])
        assert fastexport.report(one, path, names=["a"]) == fastexport.report(one, one, names=["a", "linear.pt2"])
        assert fastexport.report(io.BytesIO(other.read_bytes())) == fastexport.report(two)
        assert fastexport.report(other.read_bytes(), one) == fastexport.report(two, one, names=["before", "after"])
        assert "torch" not in sys.modules and "numpy" not in sys.modules
    """
    run_python(code)
    with pytest.raises(FileNotFoundError):
        report("none.pt2")


def test_what_is_told_of_a_node():
    data = unpacked(report(small()))
    (program,), texts = data["programs"], data["texts"]
    at = [texts[name] for name in program["nodes"]["name"]].index("matmul")
    told = {name: column[at] for name, column in program["nodes"].items()}
    assert texts[told["target"]] == "operator.matmul" and texts[told["value"]].startswith("f32[2, 3]")
    assert texts[told["stack"]].split("\x1f")[-1] == "head\x1etorch.nn.Linear"
    file, line, function, code = data["traces"][told["trace"]]
    assert (texts[file], line, texts[function], texts[code]) == ("net.py", 12, "forward", "return self.head(x)")
    assert [[texts[kind], texts[target]] for _, kind, target in program["weights"]] == [["attribute", "head.weight"]]


def test_findings():
    g = small()
    data = unpacked(report(g, findings=[Fault("FX999", "odd", False, "models/m.json", "$.x", "mul_1", "is <odd>")]))
    ((code, is_error, node, message, where),) = data["programs"][0]["findings"]
    texts = data["texts"]
    assert (texts[code], is_error, texts[message], texts[where]) == ("FX999", 0, "is <odd>", "models/m.json $.x")
    assert texts[data["programs"][0]["nodes"]["name"][node]] == "mul_1"
    assert unpacked(report(g))["programs"][0]["findings"] == []
    g.node("add").args = (g.node("output"), 1)  # used before it is made
    assert unpacked(report(g))["programs"][0]["findings"] != []


def test_meta_that_no_file_can_hold_is_shown():
    program = fastexport.load(sample("linear"))
    program.graph.node("linear").meta["custom"] = object()
    data = unpacked(report(program))
    ((code, *_, message, _),) = data["programs"][0]["findings"]
    assert data["texts"][code] == "FX403" and "meta['custom'] can't be written" in data["texts"][message]


def test_arguments_that_are_nested_deep():
    g = Graph()
    inner = x = g.placeholder("x")
    for _ in range(2000):
        inner = [inner]
    g.output(g.call_function(operator.neg, (inner, [[x]])))
    data = unpacked(report(g))
    args = data["texts"][data["programs"][0]["nodes"]["args"][1]].split("\x1f")
    assert args[0].endswith(f"{'[' * 50}<immutable_list>{']' * 50}")
    assert args[1].endswith(f"[[{REF}1{REF}]]")


def before():
    """`small` with one more call at the end."""
    g = small()
    head = g.node("matmul")
    with g.inserting_after(head):
        last = g.call_function(operator.truediv, (head, 2))
    g.node("output").args = (last,)
    return g


def edited():
    """`before`, where a call was put in, one taken out, one changed and one renamed."""
    g = before()
    with g.inserting_after(g.node("mul")):
        new = g.call_function(operator.pos, (g.node("mul"),))
    new.meta["nn_module_stack"] = g.node("mul").meta["nn_module_stack"]
    new.meta["val"] = TensorMeta("float32", (2, 3))
    g.node("add").replace_input_with(g.node("mul"), new)
    g.node("mul_1").args = (g.node("mul_1").args[0], 5)
    g.node("output").args = (g.node("matmul"),)
    g.erase_node(g.node("truediv"))
    g.node("neg").name = "negative"
    return g


def test_differences():
    data = unpacked(report(before(), edited()))
    diff, texts = data["diff"], data["texts"]
    a, b = ([texts[name] for name in program["nodes"]["name"]] for program in data["programs"])
    pairs = {b[i]: a[place] for i, place in enumerate(diff["pairs"]) if place >= 0}
    assert pairs["negative"] == "neg" and pairs["matmul"] == "matmul" and "pos" not in pairs
    told = {(mark, a[i] if i >= 0 else None, b[k] if k >= 0 else None) for mark, i, k, *_ in diff["changes"]}
    assert {("-", "truediv", None), ("+", None, "pos"), ("~", "mul_1", "mul_1"), ("~", "neg", "negative")} <= told
    assert data_of(small(), small(), None, True, ())["diff"]["changes"] == []
    named = data_of(small(), small(), (), True, ["old"])["programs"]
    assert [program["name"] for program in named] == ["old", "after"]


def test_subgraphs_are_compared_with_their_like():
    data = data_of(*(fastexport.load(sample("cond_"), verify=False) for _ in range(2)), None, True, ())
    assert data["diff"]["changes"] == [] and data["diff"]["pairs"] == list(range(len(data["diff"]["pairs"])))


def test_other_kinds_of_graphs():
    with pytest.raises(TypeError):
        report(3)
    import torch

    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
    exported = torch.export.export(torch.nn.Linear(2, 3), (torch.randn(1, 2),))
    for g in (traced, traced.graph, exported, fastexport.from_export(exported)):
        assert unpacked(report(g))["programs"][0]["levels"]


def test_objects_that_raise_when_asked():
    class Odd:
        def __repr__(self):
            raise RuntimeError("no")

    g = Graph()
    x = g.placeholder("x")
    node = g.call_function(operator.neg, (x,), {"odd": Odd()})
    node.meta["val"] = node.meta[Odd()] = node.meta["more"] = Odd()
    g.output(node)
    assert "<Odd>" in " ".join(unpacked(report(g))["texts"])


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A program of 10,000 nodes."""
    import synthetic_file

    path = tmp_path_factory.mktemp("large") / "large.pt2"
    assert synthetic_file.write(path, 10_000) > 9_900
    return fastexport.load(path)


def test_a_page_of_a_large_program_is_small(large):
    assert len(report_html(large, findings=()).encode()) < 1_000_000


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "r.html"
    assert report(small(), path=path) == path.read_text("utf-8")
    with pytest.raises(TypeError):
        report(3, path=path)
    with pytest.raises(OSError):
        report(small(), path=tmp_path / "no" / "r.html")
    assert path.read_text("utf-8") == report(small()) and list(tmp_path.iterdir()) == [path]


def test_command(tmp_path):
    out, a, b = str(tmp_path / "r.html"), str(sample("linear")), str(sample("cond_"))

    def command(*args):
        return subprocess.run(
            [sys.executable, "-m", "fastexport", "report", *args], capture_output=True, text=True, check=False
        )

    done = command(a, b, "-o", out)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    data = unpacked(Path(out).read_text("utf-8"))
    assert [program["name"] for program in data["programs"]] == [Path(a).name, Path(b).name]
    assert data["diff"]["changes"]
    whole = Path(out).read_bytes()
    done = command(a, str(tmp_path / "none.pt2"), "-o", out)
    assert done.returncode == 2 and "none.pt2" in done.stderr and Path(out).read_bytes() == whole
    assert command(a, "-o", str(tmp_path / "no" / "r.html")).returncode == 2
    assert command(a).returncode == 2  # -o is missing


def test_no_torch_is_needed():
    script = f"""
        import sys, fastexport
        program = fastexport.load({str(sample("cond_"))!r})
        fastexport.report(program, program)
        print(sorted({{"torch", "numpy", "IPython"}} & sys.modules.keys()))
    """
    assert run_python(script).strip() == "[]"


# ---- in a browser


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of graphs; at the end nothing may have been fetched, and no error told."""
    paths = []

    def opener(*programs, hash_="", **options):
        path = tmp_path / "r.html"
        report(*programs, path=path, **options)
        paths.append(path)
        browser.open(path, hash_, READY)
        return Shown(browser)

    yield opener
    assert browser.messages() == []
    assert {url for url in browser.requests() if not url.startswith("data:")} <= {
        path.resolve().as_uri() for path in paths
    }


class Shown:
    """A page as people see it, and where things are on it."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.run = browser.run
        self.keys = browser.keys

    def panel(self):
        return self.run("return document.getElementById('panel').innerText")

    def legend(self):
        return self.run("return [...document.querySelectorAll('#legend > span')].map((row) => row.innerText.trim())")

    def lines(self, name):
        """The lines in the box of a node."""
        return self.run("return page.data.programs[0].find(arguments[0]).item.lines.map((line) => line.text)", name)

    def text(self, css):
        return self.run("return document.querySelector(arguments[0]).innerText", css)

    def titles(self, view=0):
        """The titles of the boxes that are drawn, also inside opened ones."""
        return self.run(
            """const walk = (layout) => layout.boxes.flatMap((box) => box.isPort ? []
                 : [titleOf(box.item), ...box.parts.flatMap((part) => walk(part.layout))]);
               return walk(page.views[arguments[0]].layout)""",
            view,
        )

    def spot(self, title, view=0):
        """Where a box is in the window: the middle of its upper part, and its right upper corner."""
        return self.run(
            """const [title, at] = arguments, view = page.views[at];
               const item = view.program.levels.flatMap((level) => level.items)
                 .find((one) => titleOf(one) === title && view.boxOf(one));
               view.reach(item, true);
               const box = view.boxOf(item), { x, y, scale } = view.at, here = view.canvas.getBoundingClientRect();
               return [here.left + x + (box.x + box.w / 2) * scale, here.top + y + (box.y + 10) * scale,
                 here.left + x + (box.x + box.w - 14) * scale, here.top + y + (box.y + 14) * scale]""",
            title,
            view,
        )

    def click(self, title, view=0, times=1):
        x, y, *_ = self.spot(title, view)
        self.browser.click(x, y, times)

    def press(self, css):
        self.run("document.querySelector(arguments[0]).click()", css)

    def pixels(self, title, view=0):
        """The colour of a box, at its left side."""
        x, y, right, _ = self.spot(title, view)
        self.browser.wait("return !page.views[0].waiting && !page.views.at(-1).waiting")
        return self.run(
            """const [x, y, at] = arguments, view = page.views[at], here = view.canvas.getBoundingClientRect();
               const ratio = view.canvas.width / here.width, copy = document.createElement("canvas");
               copy.width = copy.height = 1;
               const pen = copy.getContext("2d");
               pen.drawImage(view.canvas, -Math.round((x - here.left) * ratio), -Math.round((y - here.top) * ratio));
               return [...pen.getImageData(0, 0, 1, 1).data]""",
            2 * x - right - 8,
            y + 4,
            view,
        )


def test_getitems_tell_their_places(opened):
    g = Graph()
    split = g.call_function(divmod, (g.placeholder("x"), 2))
    places = [0, 1, "key", slice(0, 2), -1]
    g.output(tuple(g.call_function(operator.getitem, (split, place)) for place in places))
    titles = opened(g).titles()
    assert [title for title in titles if title.startswith("getitem")] == [
        "getitem [0]",
        "getitem [1]",
        "getitem",
        "getitem",
        "getitem [-1]",
    ]


def test_titles_of_opened_runs(opened):
    g = Graph()
    value = g.placeholder("x")
    for i in range(1000):
        value = g.call_function(operator.pos if i % 7 else operator.neg, (value,))
    g.output(value)
    shown = opened(g)
    run = next(item for item in levels_of(g).root.items if item.kind == "block")
    shown.click(f"7 nodes × {run.count}", times=2)
    found = shown.run(
        "return page.views[0].layout.boxes.map(({ item }) => item).filter((i) => i.members.length > 1).map(openTitleOf)"
    )
    assert found == [run.level.path] == ["neg..pos_5"]


def test_open_and_close(opened):
    shown = opened(small())
    assert shown.titles() == ["x", "neg", "Block × 3", "head", "output"]
    shown.click("Block × 3", times=2)
    assert shown.titles() == ["x", "neg", "Block × 3", "mul", "add", "add", "head", "output"]
    _, _, x, y = shown.spot("Block × 3")
    shown.browser.click(x, y)  # its button
    assert "mul" not in shown.titles()
    shown.press("#expand")
    assert "mul" in shown.titles()
    shown.press("#collapse")
    assert "mul" not in shown.titles()
    assert int(shown.run(READY)) > 0


def test_select_a_node(opened):
    shown = opened(small())
    shown.click("head")
    panel = shown.panel()
    for text in ("matmul", "call_function", "operator.matmul", "f32[2, 3]", "add_5", "head.weight bf16[3, 3]",
                 "output", "net.py:12", "return self.head(x)", "Linear"):  # fmt: skip
        assert text in panel
    assert shown.run("return location.hash") == "#node=matmul"
    shown.run("[...document.querySelectorAll('#panel a')].find((a) => a.textContent === 'add_5').click()")
    assert shown.text("#panel h2") == "add_5" and shown.run("return location.hash") == "#node=add_5"
    assert shown.text("#path").split("›")[-1].strip() == "layers.2"  # which was opened for it
    assert shown.run("return page.active.selected.node.name") == "add_5"


def test_a_link_to_a_node_or_a_module(opened):
    shown = opened(small(), hash_="#node=mul_1")
    assert shown.text("#panel h2") == "mul_1" and "mul" in shown.titles()
    shown.run("location.hash = '#module=layers.2'")
    shown.browser.wait("return document.querySelector('#panel .stepper')?.innerText.includes('3 of 3')")


def test_leaf_through_repeated_modules(opened):
    shown = opened(small())
    shown.click("Block × 3")
    assert "repeated module" in shown.panel() and "1 of 3" in shown.text(".stepper")
    shown.keys("]")
    assert "2 of 3" in shown.text(".stepper")
    shown.press(".stepper button:last-child")
    shown.press(".stepper button:last-child")
    assert "1 of 3" in shown.text(".stepper")
    shown.keys("[")
    assert "layers.2" in shown.text(".stepper")


def test_search(opened):
    shown = opened(small())
    shown.keys("/", *"layers mul")
    hits = shown.text("#hits").split("\n")
    assert shown.text("#hit-count") == "3 found" and hits[::2] == ["mul", "mul_1", "mul_2"]
    shown.keys("\ue015", "\ue007")  # down, Enter
    assert shown.text("#panel h2") == "mul_1"
    assert shown.run("return document.activeElement === page.active.canvas")
    shown.keys("/", *"bf16[3")
    assert shown.text("#hits").split("\n") == ["head.weight", "weight bf16[3, 3]"]
    shown.keys("\ue00c", "/", *"layers.1")
    assert shown.text("#hits").split("\n")[:2] == ["layers.1", "Block"]
    shown.keys("\ue007")
    assert "2 of 3" in shown.text(".stepper")
    shown.keys("/", *"nothing like it")
    assert shown.text("#hit-count") == "Nothing found"


def test_keys(opened):
    shown = opened(small())
    shown.run("page.active.canvas.focus()")
    at = []
    for key in ("\ue015",) * 4:  # down
        shown.keys(key)
        at.append(shown.run("return titleOf(page.active.selected)"))
    assert at == ["x", "neg", "Block × 3", "head"] or at == ["x", "Block × 3", "head", "output"]
    shown.run("page.selectItem(page.views[0].level.items.find((item) => item.kind === 'block'))")
    shown.keys("\ue007")
    assert "mul" in shown.titles()
    shown.keys("-")
    assert "mul" not in shown.titles()
    shown.keys("+")
    shown.keys("\ue015")  # into it
    assert shown.run("return page.active.selected.level.path") == "layers.0"
    for _ in range(6):  # and out of it again
        if shown.run("return page.active.selected.level.path"):
            shown.keys("\ue015")
    assert shown.run("return titleOf(page.active.selected)") == "head"
    shown.keys("\ue013")  # up
    assert shown.run("return titleOf(page.active.selected)") == "Block × 3"
    shown.keys("\ue015", "\ue00c")  # Escape
    assert shown.run("return titleOf(page.active.selected)") == "Block × 3"
    scale = shown.run("return page.active.at.scale")
    shown.keys("i")
    assert shown.run("return page.active.at.scale") > scale
    shown.keys("?")
    assert "leaf through" in shown.text("#keys")
    shown.keys("\ue00c")
    assert shown.run("return document.getElementById('keys').hidden")


SCREEN = """
const { canvas, at, selected } = page.active;
const box = page.active.boxOf(selected);
const [left, top] = [box.x * at.scale + at.x, box.y * at.scale + at.y];
return { left, top, isSeen: left + box.w * at.scale > 0 && left < canvas.clientWidth
                            && top + box.h * at.scale > 0 && top < canvas.clientHeight };
"""


def place(shown):
    """Where the selected box is on the screen, which is still."""
    shown.browser.wait("return !page.active.waiting")
    return shown.run(SCREEN)


@pytest.mark.parametrize("shift", [False, True], ids=["", "shift"])
def test_plus_and_minus_keep_what_is_selected_in_sight(opened, shift):
    """Whether the keyboard has + with Shift or without."""
    shown = opened(block_chain(40), fold=False)
    press = """
    const [key, shiftKey] = arguments;
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, bubbles: true }));
    """
    shown.run("page.openAll(true); page.selectModule(page.active.program, 'layers.20')")
    before = place(shown)
    assert before["isSeen"] and shown.run("return page.active.selected.open")
    shown.run(press, "+", shift)
    assert place(shown) == before  # it is open already
    shown.run(press, "*", True)
    assert place(shown) == before
    shown.run(press, "-", False)
    after = place(shown)
    assert after["isSeen"] and not shown.run("return page.active.selected.open")
    shown.run("page.active.at.y -= 10; page.active.draw()")
    shown.run(press, "_", True)
    assert place(shown)["isSeen"]
    shown.run(press, "*", True)
    assert place(shown)["isSeen"] and shown.run("return page.active.selected.open")


def test_closing_shows_what_is_closed(opened):
    """A module of which only the end was seen does not close somewhere above the window."""
    shown = opened(block_chain(40))
    shown.run("page.openAll(true); page.selectItem(page.active.level.items.find((item) => item.kind === 'block'))")
    shown.run(
        "const { at } = page.active; const box = page.active.boxOf(page.active.selected);"
        "at.y = 60 - (box.y + box.h) * at.scale; page.active.canvas.focus()"
    )
    assert place(shown)["top"] < 0
    shown.keys("-")
    assert place(shown)["isSeen"]
    shown.run("page.openAll(true); page.selectNode(page.data.programs[0].nodes.find((one) => one.item?.level.owner))")
    shown.keys("_")  # what is selected is hidden: what it is in stays
    assert shown.run("return page.active.boxOf(page.active.selected)") is None
    owner = "let item = page.active.selected; while (page.active.boxOf(item) === null) item = item.level.owner;"
    y = shown.run(owner + "return page.active.boxOf(item).y * page.active.at.scale + page.active.at.y")
    assert 0 < y < shown.run("return page.active.canvas.clientHeight")


@pytest.mark.parametrize("side_by_side", [False, True], ids=["one", "two"])
def test_narrow_windows_have_all_in_them(opened, browser, side_by_side):
    shown = opened(small(), *[block_chain(2)][: int(side_by_side)])
    try:
        for size in ((360, 740), (420, 800), (740, 360), (800, 900), (1151, 800)):
            browser.resize(*size)
            check_window(shown, size)
    finally:
        browser.resize(0, 0)


def check_window(shown, size):
    shown.browser.wait("return innerWidth === arguments[0]", size[0])
    outside = """
    const names = "h1, header button, input, select, canvas, .name, #legend, #tabs *, #panel";
    return [...document.querySelectorAll(names)].filter((one) => {
      const { left, top, right, bottom } = one.getBoundingClientRect();
      const isThere = right - left > 8 && bottom - top > 8;
      return !isThere || left < 0 || top < 0 || right > innerWidth || bottom > innerHeight;
    }).filter((one) => !one.closest(".map")).map((one) => one.id || one.className || one.tagName);
    """
    assert shown.run(outside) == []
    assert shown.run("return document.documentElement.scrollWidth") == size[0]
    inside = """
    const { left, top, right, bottom } = document.getElementById(arguments[0]).getBoundingClientRect();
    return right > left && left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
    """
    shown.keys("?")
    assert shown.run(inside, "keys")
    shown.keys("\ue00c", "/", *"a")
    assert shown.run(inside, "found")
    shown.keys("\ue00c", "\ue00c")


def test_colours(opened):
    shown = opened(small(), findings=[Fault("FX999", "odd", True, None, None, "matmul", "is odd")])
    ways = shown.run("return [...document.getElementById('colour').options].map((option) => option.value)")
    assert ways == ["operator", "dtype", "findings", "none"]
    seen = {}
    for way in ways:
        shown.run("page.colourBy(arguments[0])", way)
        seen[way] = tuple(shown.pixels("head"))
        assert seen[way][3] == 255
    assert seen["findings"][0] > seen["findings"][2] + 10  # red
    assert seen["none"] == (255, 255, 255, 255) and len(set(seen.values())) >= 3
    shown.run("page.colourBy('dtype')")
    assert "f32" in shown.text("#legend")
    shown.press("#tab-findings")
    assert "FX999 error matmul" in shown.panel() and shown.text("#tab-findings") == "Findings 1"
    shown.press("#theme")
    assert shown.pixels("head")[0] < 100 and shown.run("return getComputedStyle(document.body).colorScheme") == "dark"


def test_dark_by_the_system(opened, browser):
    browser.scheme("dark")
    try:
        shown = opened(small())
        shown.run("page.colourBy('none')")
        assert shown.pixels("head")[0] < 100
    finally:
        browser.scheme("light")


def quantized():
    g = Graph()
    x = g.placeholder("x")
    path = "torch.ops.quantized_decomposed.{}_per_tensor.default"
    args = (0.1, 0, -128, 127)
    q = g.call_function(path.format("quantize"), (x, *args))
    dq = g.call_function(path.format("dequantize"), (q, *args))
    relu = g.call_function("torch.ops.aten.relu.default", (dq,))
    q2 = g.call_function(path.format("quantize"), (relu, *args))
    dq2 = g.call_function(path.format("dequantize"), (q2, *args))
    last = g.call_function("torch.ops.aten.neg.default", (g.call_function("torch.ops.aten.cos.default", (x,)),))
    for node in g.nodes:
        node.meta["val"] = TensorMeta("int8" if node in (q, q2) else "float32", (2,))
    g.output((dq2, last))
    return g


def test_quantized(opened):
    shown = opened(quantized())
    shown.run("page.colourBy('quantized')")
    legend = shown.text("#legend")
    assert "dequantize 2" in legend and "quantize 2" in legend and "float" in legend
    assert shown.pixels("relu") != shown.pixels("cos")


def test_two_programs(opened):
    shown = opened(before(), edited(), names=["old", "new"])
    assert shown.text("#title") == "old → new" and shown.text(".view:first-child .name") == "old"
    assert shown.run("return page.way.name") == "changes"
    for word in ("added 1", "removed 1", "changed"):
        assert word in shown.text("#legend")
    assert "nodes\t15\t15" in shown.panel() and not shown.run("return document.querySelectorAll('tr.differs').length")
    assert "operator.truediv\n1 → 0" in shown.panel()
    shown.press("#tab-changes")
    panel = shown.panel()
    assert "1 removed, 1 added" in panel and "pos" in panel and "truediv" in panel
    shown.run("[...document.querySelectorAll('#panel a')].find((a) => a.textContent === 'mul_1').click()")
    assert [shown.run("return page.views[arguments[0]].selected?.node.name", i) for i in (0, 1)] == ["mul_1", "mul_1"]
    panel = shown.panel()
    assert "- %mul_1" in panel and "+ %mul_1" in panel and "IN OLD" in panel.upper()
    shown.run("page.selectNode(page.data.programs[0].find('neg'))")
    assert shown.run("return page.views[1].selected.node.name") == "negative"
    shown.run("page.selectNode(page.data.programs[1].find('pos'))")
    assert shown.run("return page.views[0].selected") is None and "there is none like it" in shown.panel()
    assert shown.run("return location.hash") == "#node=pos&in=2"
    shown.run("page.views[0].canvas.focus()")
    shown.keys("n")
    assert shown.run("return page.node.difference !== undefined")
    green, plain = shown.pixels("pos", 1), shown.pixels("head", 1)
    assert green[1] > green[0] and plain != green
    shown.press("#collapse")
    assert shown.pixels("layers.0", 1)[2] < shown.pixels("neg", 1)[2]  # something in it has changed: yellow
    assert shown.run("return page.data.programs[0].find('truediv').change") == "removed"


def test_changes_are_counted_alike_everywhere(opened):
    """A pair of nodes is one, and together they are all nodes of each program."""
    for a, b in (
        (before(), edited()),
        (fastexport.load(sample("linear")), fastexport.load(sample("conv_bn_eval_core"))),
    ):
        shown = opened(a, b)
        counts = {word: int(count) for word, count in (line.rsplit(" ", 1) for line in shown.legend())}
        both = counts["same"] + counts["changed"]
        sizes = shown.run("return page.data.programs.map((program) => program.nodes.length)")
        assert sizes == [both + counts["removed"], both + counts["added"]]
        shown.press("#tab-changes")
        told = shown.text("#panel .note")
        assert told.startswith(", ".join(f"{counts[word]} {word}" for word in ("removed", "added", "changed")))
    shown = opened(before(), edited())
    shown.press("#tab-changes")
    rows = shown.run(
        "return page.data.diff.changes.filter((change) => change.mark === '~' && !change.isChanged).length"
    )
    assert rows and shown.text("#panel .note").endswith(f", {rows} renamed or moved")


def test_other_colours_of_two_programs_are_counted_in_each(opened):
    shown = opened(small(), before())
    shown.run("page.colourBy('operator')")
    assert shown.legend() == ["elementwise 10 → 11", "matrices 1"]


def test_what_becomes_of_results_is_told_everywhere(opened):
    shown = opened(every_fate())
    assert "OUTPUTS: 4 OUT, 3 MUTATIONS, 2 GRADIENTS, 1 TOKEN" in shown.panel().upper()
    find = "page.selectNode(page.data.programs[0].find(arguments[0]))"
    rows = [
        ("add", "returned 1 of 4"), ("add_1", "returned as the loss 2 of 4"), ("add_2", "becomes buffer m.b"),
        ("add_3", "is the gradient of parameter w"), ("add_4", "is the gradient of input x"),
        ("add_5", "becomes input x"), ("add_6", "becomes parameter w"), ("add_7", "returned as a token"),
    ]  # fmt: skip
    for name, told in rows:
        shown.run(find, name)
        assert told in shown.panel()
    for name, told in (
        ("b_b", "becomes add_2"),
        ("p_w", "gradient: add_3"),
        ("p_w", "becomes add_6"),
        ("x", "becomes add_5"),
    ):
        shown.run(find, name)
        assert told in shown.panel().replace("\n", " ")
    shown.run(find, "output")
    panel = shown.panel()
    assert "nothing uses it" not in panel
    wanted = [
        "returned 1\tadd",
        "returned as the loss 2\tadd_1",
        "becomes buffer m.b\tadd_2",
        "returned 3\tNone",
        "returned 4\t3",
    ]
    places = [panel.replace("\n", "").index(row) for row in wanted]
    assert places == sorted(places)
    shown.run("[...document.querySelectorAll('#panel a')].find((a) => a.textContent === 'm.b').click()")
    assert shown.text("#panel h2") == "b_b"


def test_what_becomes_of_results_stands_in_the_picture(opened):
    shown = opened(every_fate())
    assert {"becomes buffer m.b", "becomes input x"} <= set(shown.lines("add_2") + shown.lines("add_5"))
    assert "becomes add_5" in shown.lines("x")
    assert "4 out, 3 mutations, 2 gradients, 1 token" in shown.lines("output")
    assert shown.lines("add") == ["add"] + ["w"]


def test_results_of_a_subgraph(opened):
    shown = opened(fastexport.load(sample("cond_")))
    shown.run("page.selectNode(page.data.programs[0].find('cond/true_graph_0/output'))")
    panel = shown.panel()
    assert "1 OUT" in panel.upper() and "\nreturned\t" in panel and "nothing uses it" not in panel


def test_weights_of_the_same_name_are_told_by_their_paths(opened):
    g = Graph()
    x = g.placeholder("x")
    weights = [g.get_attr(path) for path in ("a.weight", "b.weight", "a.bias", "a.scale", "a.point")]
    value = x
    for count in (3, 4, 5):
        value = g.call_function(operator.add, (value, tuple(weights[:count])))
    g.output(value)
    shown = opened(g)
    lines = ["add", "a.weight", "b.weight", "bias"]
    drawn = {item.name: [line for line, _ in item_lines(item)] for item in levels_of(g).root.body}
    for name, more in (("add", []), ("add_1", ["scale"]), ("add_2", ["+2 more"])):
        assert shown.lines(name) == drawn[name] == [*lines, *more]


def test_subgraphs(opened):
    shown = opened(fastexport.load(sample("cond_")))
    assert "sin" not in shown.titles()
    shown.click("cond", times=2)
    assert {"sin", "cos"} <= set(shown.titles())
    shown.click("sin")
    assert shown.run("return location.hash") == "#node=" + "cond%2Ftrue_graph_0%2Fsin"


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names(opened, name):
    g = hostile(name)
    shown = opened(g, names=[name])
    shown.press("#expand")
    shown.run("page.data.programs[0].nodes.forEach((node) => page.selectNode(node))")
    shown.run("page.selectNode(page.data.programs[0].nodes.find((node) => node.op === 'call_method'))")
    panel = shown.panel()
    assert shown.run("return document.scripts.length") == 2
    tags = shown.run("return [...new Set([...document.querySelectorAll('#panel *')].map((one) => one.localName))]")
    assert set(tags) <= {
        "a", "b", "button", "code", "details", "div", "h2", "h3", "i", "li", "ol", "p", "pre", "section", "span",
        "summary", "table", "tbody", "td", "th", "tr", "ul",
    }  # fmt: skip
    assert "\u202e" not in panel and "\x1b" not in panel
    shown.run("page.search.input.value = arguments[0]; page.search.run()", "neg")
    assert shown.text("#hit-count").endswith("found")
    for tab in ("overview", "findings"):
        shown.press(f"#tab-{tab}")


def test_a_word_in_a_very_long_name(opened):
    g = Graph()
    x = g.placeholder("x")
    for name in ("a" * 30_000 + "needle", "b"):
        x = g.call_function(operator.neg, (x,))
        x.name = name
    g.output(x)
    shown = opened(g)
    shown.run("page.search.input.value = 'needle'; page.search.run()")
    assert shown.text("#hit-count") == "1 found"


def test_titles_of_opened_modules_are_whole(opened):
    g = Graph()
    x = g.placeholder("x")
    for i in range(2):
        x = g.call_function(operator.neg, (x,))
        x.meta["nn_module_stack"] = {"m": ("m", "x.AClassWithQuiteALongName"), f"m{i}": (f"m.l{i}", "x.Linear")}
    y = g.call_function(operator.pos, (x,))
    g.output(g.call_function(operator.pos, (y,)))
    shown = opened(g)
    shown.press("#expand")
    title = "m: AClassWithQuiteALongName"
    assert shown.run("return widthOf(arguments[0], 'name')", title) > 100
    room = shown.run(
        """const item = page.views[0].program.levels.flatMap((level) => level.items)
             .find((one) => openTitleOf(one) === arguments[0]);
           const box = layoutOf(item.level).boxes[item.index];
           return [buttonsOf(box).at(-1).at - 16, widthOf(arguments[0], "name")]""",
        title,
    )
    assert room[0] >= room[1]


def test_short_facts_of_two_programs_stay_in_one_line(opened):
    a, b = sample("linear"), sample("conv_bn_eval_core")
    shown = opened(a, b)
    heights = shown.run(
        """return [...document.querySelectorAll(".pair td.short")].filter((one) => one.textContent)
             .map((one) => [one.textContent, one.getClientRects()[0].height])"""
    )
    assert any("+cpu" in text for text, _ in heights) and all(height < 30 for _, height in heights), heights
    assert shown.run("const p = document.getElementById('panel'); return p.scrollWidth <= p.clientWidth")


def test_the_map_covers_no_small_picture(opened, large):
    shown = opened(large)
    shown.run("page.views[0].zoom(4)")
    hidden = "return document.querySelector('.map').hidden"
    shown.browser.wait(f"{hidden} === false")
    shown.run("document.getElementById('views').style.cssText = 'flex: none; width: 400px; height: 300px'")
    shown.browser.wait(hidden)


WRONG = """
page.openAll(true);
const wrong = [];
const walk = (layout) => layout.boxes.forEach((a, i) => {
  const isOut = a.x < 0 || a.y < 0 || a.x + a.w > layout.w + 1 || a.y + a.h > layout.h + 1;
  if (isOut) wrong.push(["out", a.item.name]);
  for (const b of layout.boxes.slice(0, i)) {
    const isBeside = a.x >= b.x + b.w || b.x >= a.x + a.w || a.y >= b.y + b.h || b.y >= a.y + a.h;
    if (!isBeside) wrong.push([a.item.name, b.item.name]);
  }
  for (const { points, source, target } of layout.lines) {
    for (let k = 2; k < points.length; k += 2) {
      const [x0, y0, x1, y1] = points.slice(k - 2, k + 2), isThrough = x0 === x1 && a.x + 1 < x0
        && x0 < a.x + a.w - 1 && Math.min(y0, y1) < a.y + a.h - 1 && a.y + 1 < Math.max(y0, y1);
      if (isThrough && a !== source && a !== target) wrong.push(["line", source.item.name, a.item.name]);
    }
    const isOut = points.some((number, k) => k % 2 === 0 && (number < 0 || number > layout.w));
    if (isOut) wrong.push(["line out", source.item.name]);
  }
  a.parts.forEach((part) => walk(part.layout));
});
walk(page.views[0].layout);
return wrong
"""


@settings(max_examples=10, deadline=None)
@given(g=graphs())
@example(g=circle())
def test_nothing_overlaps_however_it_is_opened(browser, tmp_path_factory, g):
    path = tmp_path_factory.mktemp("page") / "r.html"
    report(g, path=path)
    browser.open(path, "", READY)
    assert browser.run(WRONG) == [] and browser.messages() == []


def test_a_large_program_opens_whole(opened, large):
    shown = opened(large, fold=False, findings=())
    shown.press("#expand")
    assert len(shown.titles()) > 8_000
    shown.run("page.views[0].fit(true)")
    shown.keys("/", *"mul_500")
    shown.keys("\ue007")
    assert shown.text("#panel h2") == "mul_500"


def test_in_a_frame_of_a_notebook(browser, saved, tmp_path):
    """As `view()` shows it: in a frame that may run scripts, give files to save, and nothing else."""
    bundle = block_chain(3).view()._repr_mimebundle_()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{bundle['text/html']}", "utf-8")
    browser.open(path)
    frame = browser.driver.find_element("tag name", "iframe")
    browser.driver.switch_to.frame(frame)
    try:
        browser.wait(READY)
        browser.run("page.selectNode(page.data.programs[0].find('neg'))")
        assert browser.run("return document.querySelector('#panel h2').textContent") == "neg"
        browser.driver.find_element("css selector", "#svg").click()
        assert b"Block" in saved("*.svg")
        browser.driver.find_element("css selector", "#png").click()
        assert saved("*.png").startswith(b"\x89PNG")
    finally:
        browser.driver.switch_to.default_content()
    assert browser.messages() == []


# ---- the picture as a file


@pytest.fixture
def saved(browser, tmp_path):
    """Gives what the page saves under a name."""
    browser.save_to(tmp_path / "saved")

    def file(pattern):
        path = browser.wait_for_file(tmp_path / "saved", pattern)
        data = path.read_bytes()
        path.unlink()
        return data

    return file


SVG = "{http://www.w3.org/2000/svg}"


def svg_texts(svg):
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_picture_is_saved_as_it_is_opened_and_coloured(opened, saved):
    shown = opened(small(), names=["a net/1.pt2"])
    shown.press("#svg")
    closed = saved("a_net_1.svg")
    assert {"x", "neg", "Block × 3", "head", "output"} <= set(svg_texts(closed)) and "mul" not in svg_texts(closed)
    shown.click("Block × 3", times=2)
    shown.run("page.colourBy('dtype'); page.setTheme('dark')")
    shown.keys("s")
    root = ET.fromstring(saved("a_net_1.svg"))
    assert root.find(f"{SVG}title").text == "a net/1.pt2"
    texts = [element.text for element in root.iter(f"{SVG}text")]
    titles = [(element.text or "").split("\n") for element in root.iter(f"{SVG}title")]
    assert {"mul", "add", "layers.0", "1 of 3"} <= set(texts) and "+" not in texts and "−" not in texts
    assert ["matmul", "operator.matmul", "f32[2, 3]"] in titles and ["Block × 3", "Block", "9 nodes, in turn"] in titles
    width, height = (float(root.get(name)) for name in ("width", "height"))
    assert [width, height] == [float(number) for number in root.get("viewBox").split()[2:]]
    colours = shown.run("return [getComputedStyle(document.body).getPropertyValue('--back').trim(), PALETTE.blue[2]]")
    assert set(colours) <= {element.get("fill") for element in root.iter(f"{SVG}path")}


def test_the_picture_as_png(opened, saved):
    shown = opened(small(), names=["net"])
    shown.press("#png")
    data = saved("net.png")
    size = struct.unpack(">II", data[16:24])
    layout = shown.run("const { w, h } = page.views[0].layout; return [w, h]")
    assert data.startswith(b"\x89PNG") and all(abs(a - 2 * (b + 48)) <= 2 for a, b in zip(size, layout, strict=True))
    assert len(data) > 5_000  # it is not empty


def test_a_picture_of_two_programs(opened, saved):
    shown = opened(before(), edited(), names=["old", "new"])
    shown.press("#expand")
    shown.keys("s")
    texts = svg_texts(saved("old-new.svg"))
    assert [texts.count(name) for name in ("old", "new", "truediv", "pos")] == [1, 1, 1, 1]


def test_hostile_names_in_a_saved_picture(opened, saved):
    g = Graph()
    x = g.placeholder("x")
    w = g.get_attr("w")
    nodes = [g.call_method(name, (x, w)) for name in HOSTILE for _ in range(2)]
    for i, node in enumerate(nodes):
        node.meta["nn_module_stack"] = {"k": (f"{i // 2}{HOSTILE[i // 2]}", HOSTILE[i // 2])}
    g.output(tuple(nodes))
    shown = opened(g, names=["".join(HOSTILE)])
    shown.press("#expand")
    shown.press("#svg")
    data = saved("*.svg")
    tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(data).iter()}
    assert tags <= {"svg", "title", "g", "path", "text"}
    assert "line break tab\\r" in svg_texts(data) and not any(
        c in data.decode() for c in "\x00\x1b\u202e\u2066\ufffe\uffff"
    )


def test_a_large_picture_is_saved(opened, saved, large):
    shown = opened(large, fold=False, findings=(), names=["large"])
    shown.press("#expand")
    shown.press("#svg")
    assert svg_texts(saved("large.svg")).count("mul") > 500
    shown.press("#png")
    width, height = struct.unpack(">II", saved("large.png")[16:24])
    assert max(width, height) <= 8192 and width * height <= 3.3e7


def test_a_call_of_very_many_nodes(opened):
    g = Graph()
    x = g.placeholder("x")
    nodes = [g.call_function(operator.neg, (x,)) for _ in range(500)]
    g.output(tuple(nodes))
    shown = opened(g)
    shown.run("page.selectNode(page.data.programs[0].find('neg_450'))")
    assert "1 USER" in shown.panel() and "output" in shown.panel()
    shown.run("page.selectNode(page.data.programs[0].find('output'))")
    assert "+200 more" in shown.panel() and "500 OUT" in shown.panel().upper()
    assert shown.run("return document.querySelectorAll('#panel section td a').length") == 300
    shown.press("#panel summary")
    assert ", +200 more" in shown.panel()
    assert shown.run("return document.querySelectorAll('#panel details td a').length") == 300


def test_an_empty_graph(opened):
    shown = opened(Graph())
    shown.press("#expand")
    shown.keys("\ue015", "f", "n", "]", "-")
    assert shown.titles() == []


def test_a_browser_that_is_too_old(browser, tmp_path):
    report(small(), path=tmp_path / "r.html")
    script = {"source": "delete window.DecompressionStream"}
    added = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)
    try:
        browser.open(tmp_path / "r.html")
        browser.wait("return document.querySelector('.notice[role=alert]')?.innerText.includes('2023')")
    finally:
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_print(opened, browser):
    opened(small(), hash_="#node=matmul")
    printed = base64.b64decode(browser.driver.print_page())
    assert printed.startswith(b"%PDF") and b"/Image" in printed


def test_json_text_is_ascii():
    assert json_text({"texts": ["\u2028</script>\ud800"]}) == b'{"texts":["\\u2028</script>\\ud800"]}'
