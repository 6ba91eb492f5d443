"""What notebooks show: the HTML of every kind of object, its bounds, the options, tables, and completion of keys."""

import copy
import io
import json
import operator
import pickle
import subprocess
import sys
import threading
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastexport
from fastexport import ExportGraphSignature, Graph, PassResult, _core
from fastexport._errors import Fault, Faults, LintFault
from fastexport._html import MOST_BYTES, Page, escape, shortened
from fastexport._notebook import View, mimebundle, options
from fastexport._pass_log import PassLog
from fastexport._signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from fastexport._tables import Column, Table
from fastexport._tree import module_tree, tree_lines
from pt2_files import sample

VOID = {"br", "img"}
TAGS = {"div", "span", "b", "code", "pre", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"}


class Checker(HTMLParser):
    """Raises for HTML that is not balanced, or has in it what notebooks and GitHub take out, or what could run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: dict[str, int] = {}

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            assert name in ("style", "open"), name
            assert name != "style" or ("url" not in value and "expression" not in value)
            # of the page it stands in nothing is assumed: colours are see-through
            assert name != "style" or ("#" not in value and "white" not in value.replace("white-space", ""))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    handle_decl = handle_pi = unknown_decl = handle_comment


def checked(html):
    """The text of a page that is in order."""
    assert len(html.encode()) <= MOST_BYTES
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.open
    assert not set(html) & set("\x00\x07\x1b\u200b\u202e")
    return "".join(checker.text)


def page_of(obj):
    """The text of the HTML of an object, which is in order; beside it goes its repr."""
    bundle = obj._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert len(bundle["text/plain"]) < 21_000 and "0x" not in bundle["text/plain"]
    return checked(bundle["text/html"])


def load(name):
    return fastexport.load(sample(name))


def large_graph(nodes, name="node", arg=1):
    g = Graph()
    last = g.placeholder("x")
    for _ in range(nodes):
        last = g.create_node("call_function", operator.add, (last, arg), name=name)
        last.meta["nn_module_stack"] = {"a": (f"blocks.{len(g.nodes)}", "Block")}
    g.output(last)
    return g


# ---- every kind of object


def test_program():
    text = page_of(load("conv_bn_eval_core"))
    assert "ExportedProgram" in text and "ATEN dialect" in text and "x: f32[2, 3, 8, 8]" in text
    assert "aten.convolution.default" in text and "BatchNorm2d" in text and "conv.weight" in text and "BUFFER" in text


@pytest.mark.parametrize(
    "name", ["cond_", "while_loop_", "non_ascii", "illegal_names", "no_inputs_no_params", "dynamic"]
)
def test_programs_of_all_sorts(name):
    program = load(name)
    text = page_of(program)
    assert all(f"Subgraph {path}" in text for path in program.graph.subgraphs or ())
    for obj in (program.graph, program.graph_module, program.graph_signature, program.state_dict, program.constants):
        page_of(obj)
    for node in program.graph.nodes:
        page_of(node)


@pytest.mark.parametrize("layout", ["middle_layout", "old_layout"])
def test_programs_of_older_layouts(layout):
    for path in sorted((sample("linear").parent.parent / layout).glob("*.pt2")):
        page_of(fastexport.load(path))


def test_findings_of_a_program_are_shown():
    program = load("linear")
    program.faults.append(Fault("FX900", "kind", False, "entry", "$.x", None, "watch <out>"))
    assert "watch <out>" in page_of(program)


def test_graph():
    text = page_of(load("linear").graph)
    assert "6 nodes" in text and "aten.linear.default" in text and "x, p_fc_weight, p_fc_bias" in text
    assert "f32[2, 3]" in text


def test_empty_graph():
    assert "0 nodes" in page_of(Graph())


def test_module_shows_its_code():
    g = Graph()
    g.output(g.call_function(operator.neg, (g.placeholder("x"),)))
    text = page_of(fastexport.GraphModule({}, g))
    assert "def forward(self, x):" in text and "GraphModule" in text


def test_node():
    node = load("conv_bn_eval_core").graph.nodes["convolution"]
    text = page_of(node)
    assert "call_function" in text and "Conv2d" in text and "f32[2, 4, 6, 6]" in text
    assert "stride" in text and "p_conv_weight" in text and "f32[4, 3, 3, 3]" in text  # arguments by name, with values
    assert "return torch.relu(s.bn(s.conv(x)))" in text


def test_erased_node():
    g = Graph()
    x = g.placeholder("x")
    g.erase_node(x)
    assert "erased" in page_of(x)


def test_pass_results():
    g = load("conv_bn_eval_core").graph
    result = g.eliminate_dead_code(explain=True)
    text = page_of(result)
    assert "eliminate_dead_code" in text and result.removed[0] in text and "reason" in text
    log = fastexport.run_passes(g, ["eliminate_dead_code", "lint"])
    assert "2 passes" in page_of(log) and "not modified" in page_of(log)
    assert "eliminate_dead_code" in page_of(log)


def test_diff_is_marked_and_cut():
    a, b = large_graph(3), large_graph(3)
    b.nodes["node_2"].args = (b.nodes["x"], 2)
    found = fastexport.diff(a, b)
    text = page_of(found)
    assert "- %node_2" in text and "+ %node_2" in text
    html = found._repr_html_()
    assert html.count("rgba(229,83,75") == 1 and html.count("rgba(46,160,67") == 1
    assert "more" in page_of(fastexport.diff(Graph(), large_graph(3000)))


def test_weights_and_tensors():
    state = load("linear").state_dict
    text = page_of(state)
    assert "fc.weight" in text and "parameter" in text and "48 B" in text
    text = page_of(state["fc.bias"])
    assert "float32[3]" in text and "values" in text
    tensor = state["fc.weight"]
    view = _core.Tensor(tensor.storage, tensor.dtype, (2, 2), (1, 2))
    assert "strides" in page_of(view) and "values" not in page_of(view)


def test_a_great_tensor_is_not_read():
    storage = _core.Storage(bytes(2 << 20))
    tensor = _core.Tensor(storage, fastexport.DType("uint8"), (2 << 20,))
    assert "values" not in page_of(tensor) and "2.0 MiB" in page_of(tensor)


def test_findings():
    assert "none" in page_of(Faults()) and repr(Faults()) == "[]"
    faults = load("linear").verify(all=True)
    assert isinstance(faults, Faults) and faults == []
    g = Graph()
    x = g.placeholder("x")
    y = g.call_function(operator.neg, (x,))
    y.append(x)
    found = g.lint(all=True)
    assert "1 error" in page_of(found) and "UNDEFINED_OPERAND" in page_of(found)
    assert repr(found).startswith("UNDEFINED_OPERAND node neg: ") and "\n" not in repr(found)
    many = Faults([LintFault("CODE", f"n{i}", None, "wrong") for i in range(1000)])
    assert "+940 more" in page_of(many) and repr(many).endswith("+950 more")


# ---- bounds and hostile content


@pytest.mark.parametrize("name", ["node", "n" * 200, "ü" * 200, "\U0001f600" * 200, "<&\"'>" * 40])
def test_no_graph_is_too_large(name):
    g = large_graph(400, name=name, arg=name)
    for node in g.nodes:
        node.meta["nn_module_stack"] = {name: (f"{name}.{node.name}", name)}
        node.meta["val"] = name
    g.subgraphs = {f"{name}{i}": copy.copy(g) for i in range(50)}
    with fastexport.set_options(display_max_nodes=10_000, display_depth=9):
        for obj in (g, fastexport.GraphModule.of_program(g, {}, {}), g.table()):
            assert "more" in page_of(obj)
        page_of(fastexport.summary(g, depth=None))
        page_of(g.nodes["x"])
        page_of(fastexport.diff(g, Graph()))
        page_of(fastexport.stats(g))


def test_ten_thousand_nodes_say_how_many_are_left_out():
    assert "+9,942 more" in page_of(large_graph(10_000))


@settings(max_examples=40)
@given(st.text(max_size=300), st.text(max_size=300), st.integers(0, 120))
def test_hostile_texts(name, text, count):
    spec = InputSpec(InputKind.PARAMETER, TensorArgument(name), text)
    signature = ExportGraphSignature([spec] * count, [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(text), None)])
    faults = Faults([Fault(name, text, True, name, text, name, text)] * count)
    result = PassResult(name, True, removed=[name, text], replaced={text: name}, reasons={name: text})
    for obj in (
        signature,
        faults,
        result,
        PassLog([result] * count),
        Table([Column(name), Column(text)], [(name, text)]),
    ):
        page_of(obj)


@settings(max_examples=40)
@given(st.text(max_size=200), st.text(max_size=200))
def test_hostile_meta_and_arguments(name, text):
    g = Graph()
    x = g.placeholder("x", type_expr=text)
    node = g.call_function(operator.add, (x, text), {"k": name})
    node.meta.update({name: text, "stack_trace": f"  File {name}\n{text}", "nn_module_stack": {text: (name, text)}})
    g.output(node)
    for obj in (g, x, node):
        page_of(obj)
    assert len(fastexport.summary(g, depth=None)._table()) >= 1


def test_a_deep_tree_of_modules():
    g = large_graph(2)
    g.nodes["node"].meta["nn_module_stack"] = {"a": (".".join("m" * 5000), "Block")}
    page_of(g)
    page_of(fastexport.summary(g, depth=None))


class Rude:
    """Raises whatever it is asked."""

    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("key", ["val", "stack_trace", "nn_module_stack", "custom"])
def test_meta_of_any_kind(key):
    for value in (Rude(), [Rude()], {"a": 1}, {"a": (1, 2)}, {"a": ("p", int)}, b"x", None, object):
        g = large_graph(2)
        g.nodes["node"].meta[key] = value
        page_of(g)
        page_of(g.nodes["node"])


def test_arguments_that_have_no_text():
    g = Graph()
    node = g.call_function(operator.add, (g.placeholder("x"), Rude()))
    g.output(node)
    for obj in (g, node, g.table(), fastexport.GraphModule({}, g)):
        assert "Rude" in page_of(obj)


def test_pieces():
    assert escape("<b>&\x1b") == "&lt;b&gt;&amp;\\x1b"
    assert shortened("x" * 10, 10) == "x" * 10 and len(shortened("x" * 11, 10)) == 10
    page = Page()
    assert page.section("open") and page.begin("<div>", "</div>")
    checked(page.html())  # what was left open is closed
    page = Page()
    while page.add("x" * 100):
        pass
    assert not page.section("too much")
    page.more(3)
    assert "+3 more" in checked(page.html())


# ---- in notebooks and out


def test_types_that_are_not_wanted():
    g = load("linear").graph
    assert set(g._repr_mimebundle_(include={"text/plain"})) == {"text/plain"}
    assert set(g._repr_mimebundle_(exclude={"text/plain"})) == {"text/html"}
    assert g.nodes["x"]._repr_mimebundle_(("image/png",), None) == {}
    assert set(g.nodes["x"]._repr_mimebundle_(exclude=["text/html"])) == {"text/plain"}
    assert mimebundle(g, exclude=["text/html"])["text/plain"] == "<fastexport.Graph with 6 nodes>"


def test_ipython_takes_it():
    formatters = pytest.importorskip("IPython.core.formatters")
    program = load("linear")
    for obj in (program, program.graph, program.graph.nodes["x"], program.state_dict["fc.bias"]):
        data, _ = formatters.DisplayFormatter().format(obj)
        assert data == obj._repr_mimebundle_()


def test_terminals_see_what_they_saw():
    program = load("linear")
    assert repr(program.graph.nodes["x"]) == "x" and repr(program.graph).startswith(
        "<fastexport.Graph with 6 nodes at 0x"
    )
    assert repr(program).startswith("ExportedProgram: TRAINING dialect, schema 8.20")


def test_nodes_of_a_graph_and_numbers_of_a_weight():
    program = load("linear")
    shown = program.graph.nodes._repr_mimebundle_()
    assert shown["text/plain"] == repr(program.graph.nodes) and shown["text/html"].count("<tr>") == 1 + 6
    assert ">p_fc_weight<" in shown["text/html"] and "aten.linear.default" in shown["text/html"]
    assert list(program.graph.nodes._repr_mimebundle_(include=["text/plain"])) == ["text/plain"]
    found = program.state_dict["fc.weight"].statistics(sha256=True)
    html = found._repr_mimebundle_()["text/html"]
    assert f">{found.mean:.6g}<" in html and ">12<" in html and found.sha256 in html and ">48 B</span>" in html
    assert ">min<" not in found._replace(min=None)._repr_mimebundle_()["text/html"]


def test_repeats_tell_that_their_numbers_are_those_of_one():
    g = Graph()
    last = g.placeholder("x")
    for i in range(3):
        last = g.call_function(operator.neg, (last,))
        last.meta["nn_module_stack"] = {"a": (f"blocks.{i}", "m.Block")}
    g.output(last)
    assert "1 op each" in fastexport.summary(g)._repr_mimebundle_()["text/html"]
    assert " 0..2: Block x 3  (1 ops, 0 parameters each)" in "\n".join(tree_lines(module_tree(g)))


def test_columns_of_wide_letters():
    table = Table([Column("層"), Column("n", right=True)], [("名前", 5), ("e\u0301", "層")])
    assert repr(table).split("\n") == ["層     n", "名前   5", "e\u0301     層"]


def test_nothing_is_imported_for_it():
    code = (
        "import sys, fastexport\n"
        "late = {'fastexport._views', 'fastexport._notebook', 'fastexport._html', 'fastexport._stats'}\n"
        "assert not late & set(sys.modules)\n"
        f"p = fastexport.load({str(sample('linear'))!r})\n"
        "for o in (p, p.graph, fastexport.stats(p), fastexport.summary(p)): o._repr_mimebundle_()\n"
        "print(sorted({'torch', 'numpy', 'pandas', 'IPython', 'dataclasses'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_keys_are_completed():
    program = load("linear")
    assert program.state_dict._ipython_key_completions_() == ["fc.weight", "fc.bias"]
    nodes = program.graph.nodes
    assert nodes._ipython_key_completions_() == [node.name for node in nodes]
    assert list(nodes["relu"].meta._ipython_key_completions_()) == list(nodes["relu"].meta)


def test_quantization_report():
    report = fastexport.pt2e.quantization_report(load("conv_bn_eval_core").graph)
    text = page_of(report)
    assert "3 float" in text and "nothing is annotated yet" in text
    assert report._ipython_key_completions_() == [row.node for row in report]
    assert report.to_records()[0]["inputs"] == ["x: float32", "p_conv_weight: float32", "p_conv_bias: float32"]


def test_classes_that_only_bear_a_name_of_ours():
    class Mine(Graph):
        __module__ = 3

    class Tensor(Graph):
        __module__ = "fastexport_of_mine"

    for cls in (Mine, Tensor):
        assert "Graph0 nodes" in page_of(cls()).replace(" ", "", 1)


def test_ipython_completes_them():
    completer = pytest.importorskip("IPython.core.completer")
    from IPython.core.interactiveshell import InteractiveShell

    program = load("linear")
    nodes = program.graph.nodes
    shell = InteractiveShell(user_ns={"weights": program.state_dict, "nodes": nodes, "meta": nodes["x"].meta})
    with completer.provisionalcompleter():
        for text, wanted in (('weights["', "fc.weight"), ('nodes["', "relu"), ('meta["', "val")):
            found = {each.text.strip('"]') for each in shell.Completer.completions(text, len(text))}
            assert wanted in found


def test_nodes_by_name():
    g = load("linear").graph
    assert g.nodes["relu"] is g.node("relu")
    with pytest.raises(KeyError, match="no node is named 'nope'"):
        g.nodes["nope"]
    with pytest.raises(TypeError, match="takes the name of a node, not int"):
        g.nodes[0]
    with pytest.raises(KeyError):
        g.nodes["\ud800"]


# ---- options


def test_options_of_a_block():
    g = large_graph(30)
    before = options()
    with fastexport.set_options(display_max_nodes=5) as chosen:
        assert repr(chosen) == "set_options(display_max_nodes=5)"
        assert "+27 more" in page_of(g)
        with fastexport.set_options(display_html=False):
            assert options().display_max_nodes == 5
            assert set(g._repr_mimebundle_()) == {"text/plain"} and g._repr_html_() is None
        assert "+27 more" in page_of(g)
    assert options() == before and "+27 more" not in page_of(g)


def test_depth_of_the_tree():
    program = load("conv_bn_eval_core")
    closed, opened = [], []
    for depth, found in ((0, closed), (1, opened)):
        with fastexport.set_options(display_depth=depth):
            found.append(program._repr_html_().count("<details open"))
    assert opened[0] == closed[0] + 1


def test_options_from_now_on_count_in_all_threads():
    seen = []
    chosen = fastexport.set_options(display_max_nodes=7)
    try:
        threading.Thread(target=lambda: seen.append(options().display_max_nodes)).start()
        with fastexport.set_options(display_max_nodes=3):
            thread = threading.Thread(target=lambda: seen.append(options().display_max_nodes))
            thread.start()
            thread.join()
            assert options().display_max_nodes == 3
        assert seen == [7, 7]  # a block is of its own thread
        with chosen:
            assert options().display_max_nodes == 7
        assert options().display_max_nodes == 60
    finally:
        fastexport.set_options(display_max_nodes=60)


def test_blocks_of_several_threads_do_not_meet():
    barrier = threading.Barrier(4)
    seen = {}

    def run(most):
        with fastexport.set_options(display_max_nodes=most):
            barrier.wait()
            seen[most] = options().display_max_nodes
            barrier.wait()
        seen[-most] = options().display_max_nodes

    threads = [threading.Thread(target=run, args=(most,)) for most in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {**{n: n for n in (1, 2, 3, 4)}, **{-n: 60 for n in (1, 2, 3, 4)}}


@pytest.mark.parametrize(
    "wrong, error",
    [
        ({"display_html": 1}, TypeError),
        ({"display_depth": "1"}, TypeError),
        ({"display_max_nodes": True}, TypeError),
        ({"display_depth": -1}, ValueError),
    ],
)
def test_wrong_options(wrong, error):
    before = options()
    with pytest.raises(error, match=next(iter(wrong))):
        fastexport.set_options(**wrong)
    assert options() == before


# ---- the report in a frame


@pytest.fixture
def report(monkeypatch):
    """A stand-in for the page of the report."""
    module = type(sys)("fastexport._report")
    module.report_html = lambda shown: f'<!doctype html><script>let a = "{type(shown).__name__}&</script>'
    monkeypatch.setitem(sys.modules, "fastexport._report", module)
    monkeypatch.setattr(fastexport, "_report", module, raising=False)


def test_view(report):
    program = load("linear")
    for shown, name in ((program, "ExportedProgram"), (program.graph, "Graph")):
        view = shown.view(height=300, width="50%")
        bundle = view._repr_mimebundle_()
        assert bundle["text/plain"].startswith("<view of ")
        frames = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attrs, frames=frames: frames.append((tag, dict(attrs)))
        parser.feed(bundle["text/html"])
        [(tag, attrs)] = frames
        assert tag == "iframe" and attrs["srcdoc"] == view.html() and f'"{name}&' in view.html()
        assert "height:300px" in attrs["style"] and "width:50%" in attrs["style"]
        assert attrs["sandbox"] == "allow-scripts allow-downloads"  # it reaches nothing of the notebook
        with fastexport.set_options(display_html=False):
            assert set(view._repr_mimebundle_()) == {"text/plain"}


@pytest.mark.parametrize("wrong", [0, -1, True, "1;color:red", "100", "", None, 1.5, "1px\n"])
def test_lengths_that_are_none(wrong):
    with pytest.raises(ValueError, match="such as '80vh'"):
        View(Graph(), wrong)


# ---- tables


def tabular():
    program = load("conv_bn_eval_core")
    changed = copy.copy(program.graph)
    removed = changed.eliminate_dead_code(explain=True)
    yield program.graph.table()
    yield program.graph_signature
    yield program.state_dict
    yield removed
    yield fastexport.run_passes(program.graph, ["lint"])
    yield fastexport.diff(program.graph, changed)
    yield Faults([Fault("FX900", "kind", False, None, None, "x", "a\nb")])
    yield fastexport.stats(program)
    yield fastexport.stats(program, load("linear"))
    yield fastexport.summary(program)


@pytest.mark.parametrize("index", range(10))
def test_forms_of_tables(index):
    table = list(tabular())[index]
    records = table.to_records()
    assert records and all(list(record) == list(records[0]) for record in records)
    json.dumps(records)
    json.dumps(table.to_dict())
    stream = io.StringIO()
    table.print(file=stream)
    assert stream.getvalue().strip() and stream.getvalue().endswith("\n") and "\x1b" not in stream.getvalue()
    pandas = pytest.importorskip("pandas")
    frame = table.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(records[0]) and len(frame) == len(records)
    for column in frame.columns:
        for seen, record in zip(frame[column], records, strict=True):
            assert seen == record[column] or record[column] is None


def test_many_columns_are_cut():
    one = fastexport.stats(large_graph(3))
    page = page_of(one.compare(*[one] * 2000))
    assert "nodes" in page and "+1,973 more columns" in page
    assert "more columns" not in page_of(one.compare(one))


def test_without_pandas_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        load("linear").graph.table().to_dataframe()


def test_rows_of_nodes():
    program = load("conv_bn_eval_core")
    records = program.graph.table().to_records()
    assert [record["name"] for record in records] == [node.name for node in program.graph.nodes]
    [row] = [record for record in records if record["name"] == "relu"]
    assert row == {
        "name": "relu",
        "op": "call_function",
        "target": "aten.relu.default",
        "arguments": "getitem",
        "value": "f32[2, 4, 6, 6]",
        "module": "",
        "users": ["output"],
    }


def test_rows_of_weights_and_signature():
    program = load("conv_bn_eval_core")
    rows = program.state_dict.to_records()
    assert rows[0] == {
        "name": "conv.weight",
        "kind": "parameter",
        "dtype": "float32",
        "shape": [4, 3, 3, 3],
        "bytes": 432,
    }
    assert {row["name"]: row["kind"] for row in rows}["bn.running_mean"] == "buffer"
    signature = program.graph_signature.to_dict()
    assert [row["name"] for row in signature["inputs"]] == [
        spec.arg.name for spec in program.graph_signature.input_specs
    ]
    assert signature["outputs"] == [{"name": "relu", "kind": "USER_OUTPUT", "target": None, "persistent": None}]


def test_rows_of_a_pass():
    g = Graph()
    x = g.placeholder("x")
    a, b = (g.call_function(operator.getitem, (x, 0)) for _ in range(2))
    unused = g.call_function(operator.neg, (x,))
    g.output((a, b))
    result = g.eliminate_getitems()
    assert result.to_records() == [{"node": "getitem_1", "change": "replaced", "by": "getitem", "reason": None}]
    assert result.to_dict()["replaced"] == {"getitem_1": "getitem"} and result.to_dict()["name"] == "eliminate_getitems"
    result = g.eliminate_dead_code(explain=True)
    changes = {row["node"]: row["change"] for row in result.to_records()}
    assert changes == {"x": "kept", "getitem": "kept", "output": "kept", str(unused): "removed"}


def test_rows_of_a_diff():
    a, b = large_graph(3), large_graph(3)
    b.nodes["node_1"].args = (b.nodes["x"], 2)
    extra = b.call_function(operator.neg, (b.nodes["x"],))
    b.nodes["x"].append(extra)
    rows = fastexport.diff(a, b).to_records()
    assert [(row["change"], row["before"], row["after"]) for row in rows] == [
        ("added", None, "neg"),
        ("args", "node_1", "node_1"),
    ]
    assert rows[1]["old"] != rows[1]["new"]


def test_what_a_file_says_does_not_steer_the_terminal():
    table = Table([Column("a"), Column("n", right=True)], [("x\x1b[31m\ny", 1), (None, None)])
    assert repr(table) == "a            n\nx\\x1b[31m y  1\n\n".rstrip("\n") + "\n"


def test_long_tables_are_cut_in_the_repr_and_whole_in_print(capsys):
    table = Table([Column("n", right=True), Column("t")], [(i, "x" * 500) for i in range(100)])
    assert repr(table).endswith("+40 more") and max(map(len, repr(table).split("\n"))) < 120
    table.print()
    printed = capsys.readouterr().out
    assert printed.count("\n") == 101 and "x" * 500 in printed
    assert len(table) == 100 and table[3][0] == 3 and [n for n, _ in table][:2] == [0, 1]


# ---- pickles


def test_they_pickle():
    program = load("linear")
    for obj in (fastexport.stats(program), program.faults, program.graph_signature, fastexport.summary(program)):
        again = pickle.loads(pickle.dumps(obj))
        assert type(again) is type(obj) and repr(again) == repr(obj)


def test_reprs_are_never_huge():
    a, b = large_graph(500), large_graph(900, arg=2)
    found = fastexport.diff(a, b)
    specs = [InputSpec(InputKind.USER_INPUT, TensorArgument(f"x{i}"), None) for i in range(1000)]
    objects = [a, a.nodes, a.nodes["node"], found, *found.graphs.values(), a.table(), fastexport.stats(a, b)]
    objects += [fastexport.GraphModule({}, a), ExportGraphSignature(specs, []), a.summary(depth=None)]
    assert all(len(repr(obj)) < 12_000 for obj in objects)
    assert repr(ExportGraphSignature(specs, [])).endswith("+990 more], output_specs=[])")
