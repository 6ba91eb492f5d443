"""Model Explorer: what its JSON says of every sample, its own server with our adapter, and the page in a browser."""

import io
import json
import operator
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastexport
from browser import browser  # noqa: F401
from fastexport import FastExportError, Graph, _core, model_explorer
from fastexport._errors import Fault
from fastexport._tensor_meta import TensorMeta
from pt2_files import ALL, HOSTILE, label, sample

FIELDS = {"id", "label", "attrs", "namespace", "subgraphIds", "incomingEdges", "outputsMetadata"}


def graphs_of(g, **options):
    return json.loads(model_explorer.to_json(g, **options))["graphs"]


def attributes(node):
    return {item["key"]: item["value"] for item in node["attrs"]}


def by_id(graph):
    return {node["id"]: node for node in graph["nodes"]}


def subgraphs(graph, name):
    yield name, graph
    for key, inner in (graph.subgraphs or {}).items():
        yield from subgraphs(inner, f"{name}/{key}")


def check(graph, shown):
    """What is shown has the nodes and edges of the graph and its subgraphs, and all that it names exists."""
    graphs = dict(subgraphs(graph, "model"))
    assert [one["id"] for one in shown] == list(graphs)
    for one in shown:
        own = graphs[one["id"]]
        nodes = by_id(one)
        assert [node["id"] for node in one["nodes"]] == [node.name for node in own.nodes]
        assert len(nodes) == len(one["nodes"]), "ids are unique"
        for node in own.nodes:
            told = nodes[node.name]
            assert set(told) == FIELDS
            assert [edge["sourceNodeId"] for edge in told["incomingEdges"]] == [n.name for n in node.all_input_nodes]
            assert [edge["targetNodeInputId"] for edge in told["incomingEdges"]] == [
                str(i) for i in range(len(node.all_input_nodes))
            ]
            assert set(told["subgraphIds"]) <= set(graphs)
            assert all(part for part in told["namespace"].split("/")) or not told["namespace"]
            for edge in told["incomingEdges"]:
                outputs = [item["id"] for item in nodes[edge["sourceNodeId"]]["outputsMetadata"]]
                assert edge["sourceNodeOutputId"] == "0" or edge["sourceNodeOutputId"] in outputs or not outputs
            for item in [*told["attrs"], *(part for output in told["outputsMetadata"] for part in output["attrs"])]:
                assert set(item) == {"key", "value"}
                assert isinstance(item["key"], str) and isinstance(item["value"], str)
        assert "" in one["groupNodeAttributes"]


@pytest.mark.parametrize("path", ALL, ids=label)
def test_every_sample(path):
    program = fastexport.load(path, verify=False)
    before = str(program.graph)
    check(program.graph, graphs_of(program))
    assert str(program.graph) == before


def test_damaged_files_that_can_be_read():
    opened = 0
    for path in sorted(HOSTILE.glob("*.pt2")):
        try:
            program = fastexport.load(path, verify=False)
        except fastexport.FormatError:
            continue
        check(program.graph, graphs_of(program))
        opened += 1
    assert opened > 50


@pytest.mark.parametrize("name", ["linear", "multi_out", "dynamic", "cond_", "conv_bn_eval_core"])
def test_a_copy_whose_meta_was_looked_at_says_the_same(name):
    program = fastexport.load(sample(name))
    told = model_explorer.to_json(program)
    for _, graph in subgraphs(program.graph, ""):
        for node in graph.nodes:
            dict(node.meta)
    assert model_explorer.to_json(program) == told


def test_what_is_told_of_nodes():
    program = fastexport.load(sample("conv_bn_eval_core"))
    (graph,) = graphs_of(program)
    nodes = by_id(graph)
    calls = [node for node in graph["nodes"] if attributes(node).get("op") == "call_function"]
    assert calls[0]["label"] == "aten.convolution.default"
    told = attributes(calls[0])
    assert list(told)[:4] == ["op", "input", "weight", "bias"]
    assert told["input"] == program.graph_signature.user_inputs[0]
    assert ":" in told["source"] and told["code"]
    (output,) = calls[0]["outputsMetadata"]
    assert output["id"] == "0" and output["attrs"][0]["key"] == "tensor_shape"
    assert output["attrs"][0]["value"].startswith("f32[")
    weight = nodes[told["weight"]]
    assert weight["namespace"] == calls[0]["namespace"] != ""
    assert attributes(weight)["kind"] == "parameter" and attributes(weight)["target"].endswith(weight["label"])
    assert attributes(graph["nodes"][-1]) == {"kind": "output"}
    assert graph["groupNodeAttributes"][""]["torch"].startswith("2.13")
    assert graph["groupNodeAttributes"][calls[0]["namespace"]]["class"]


def test_subgraphs_are_opened_from_the_call():
    program = fastexport.load(sample("cond_"))
    graphs = graphs_of(program, name="net")
    cond = next(node for node in graphs[0]["nodes"] if node["label"] == "higher_order.cond")
    assert cond["subgraphIds"] == ["net/true_graph_0", "net/false_graph_0"]
    getter = by_id(graphs[0])["true_graph_0"]
    assert getter["subgraphIds"] == ["net/true_graph_0"] and attributes(getter) == {"kind": "subgraph"}


def test_subgraphs_however_deep():
    g = Graph()
    for _ in range(1500):
        outer = Graph()
        outer.subgraphs = {"a": g}
        outer.get_attr("a").meta["val"] = TensorMeta("float32", (2,))
        g = outer
    shown = graphs_of(g)
    assert len(shown) == 1501 and shown[-1]["id"] == "model" + 1500 * "/a"
    assert len(model_explorer.node_data(g)["dtype"]) == 1500
    g.subgraphs = {"a": g}
    for walk in (model_explorer.to_json, model_explorer.node_data):
        with pytest.raises(RecursionError, match="own subgraphs"):
            walk(g)


def test_arguments_have_their_names_whoever_has_the_program():
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.topk(x, 2)[0]

    program = torch.export.export(Model(), (torch.ones(4, 6),))
    file = io.BytesIO()
    torch.export.save(program, file)
    for each in (program, fastexport.from_export(program), fastexport.load(file.getvalue())):
        told = attributes(by_id(graphs_of(each)[0])["topk"])
        assert (told["self"], told["k"]) == ("x", "2")
        if each is not program:
            assert ">k<" in each.graph.node("topk")._repr_mimebundle_()["text/html"]


def test_a_call_with_several_results_tells_all_of_them():
    g = Graph()
    x = g.placeholder("x")
    split = g.call_function(divmod, (x, 2))
    parts = [g.call_function(operator.getitem, (split, i)) for i in (0, 2)]
    for part, size in zip(parts, (3, 5), strict=True):
        part.meta["val"] = TensorMeta("bfloat16", (size,))
    g.output(tuple(parts))
    nodes = by_id(graphs_of(g)[0])
    assert [(item["id"], item["attrs"][0]["value"]) for item in nodes[split.name]["outputsMetadata"]] == [
        ("0", "bf16[3]"),
        ("2", "bf16[5]"),
    ]
    assert nodes[parts[1].name]["incomingEdges"][0]["sourceNodeOutputId"] == "2"


def test_weights_stand_in_the_innermost_module_of_all_their_users():
    g = Graph()
    weights = [g.get_attr(name) for name in ("alone", "near", "far", "unused")]
    for path, used in (("a.b.c", weights[:3]), ("a.b.d", weights[1:3]), ("a.bx", weights[2:3])):
        node = g.call_function(operator.add, tuple(used))
        node.meta["nn_module_stack"] = {path: (path, "net.Part")}
    g.output(None)
    nodes = by_id(graphs_of(g)[0])
    assert [nodes[w.name]["namespace"] for w in weights] == ["a/b/c", "a/b", "a", ""]


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4), st.text(max_size=12))
def test_any_text_comes_through(parts, text):
    """Module paths, literals, source lines: whatever they hold."""
    g = Graph()
    x = g.placeholder("x")
    node = g.call_function(operator.mul, (x, text), {"key": [text]})
    path = ".".join(parts)
    node.meta["nn_module_stack"] = {"m": (path, text)}
    node.meta["stack_trace"] = f'File "{text}", line 3, in forward\n    {text}'
    g.output(node)
    check(g, graphs_of(g))
    told = by_id(graphs_of(g)[0])[node.name]
    assert len(told["namespace"].split("/")) == len(path.split("."))
    shown = attributes(told)["1"]
    assert shown == repr(text) or not text.isprintable()


def test_long_arguments_are_cut():
    g = Graph()
    g.output(g.call_function(operator.mul, (g.placeholder("x"), ["\N{SNOWMAN}" * 200])))
    shown = attributes(graphs_of(g)[0]["nodes"][1])["1"]
    assert shown.endswith("...") and 90 < len(shown) < 310


def test_a_graph_that_is_changed_meanwhile_is_refused():
    g = Graph()
    x = g.placeholder("x")
    g.output(g.call_function(operator.neg, (x,)))

    class Told:
        def leaf(self, node):
            g.placeholder("more")
            return '"label":"x","attrs":[]', None, False

    with pytest.raises(FastExportError, match="was changed"):
        _core.explorer_nodes(g, Told())


def test_threads_that_edit_are_noticed():
    """Written again and again beside a thread that adds nodes: each time it is whole, or refused."""
    g = Graph()
    x = g.placeholder("x")
    g.output(g.call_function(operator.neg, (x,)))
    for i in range(200):
        with g.inserting_before(next(iter(reversed(g.nodes)))):
            g.call_function(operator.mul, (x, i))
    stop = threading.Event()

    def edit():
        while not stop.is_set():
            with g.inserting_before(next(iter(reversed(g.nodes)))):
                extra = g.call_function(operator.neg, (x,))
            g.erase_node(extra)
            fastexport.eliminate_dead_code(g, is_impure_node=lambda node: True)

    thread = threading.Thread(target=edit)
    thread.start()
    try:
        for _ in range(100):
            try:
                graphs_of(g)
            except FastExportError as error:
                assert "was changed" in str(error)
    finally:
        stop.set()
        thread.join()
    assert len(graphs_of(g)[0]["nodes"]) == len(g.nodes)


@pytest.mark.parametrize("answer", [None, (), ("", None), (3, None, True), ("", 3, True), ("", None, True, 1)])
def test_answers_that_are_none(answer):
    g = Graph()
    g.placeholder("x")

    class Told:
        def leaf(self, node):
            return answer

    with pytest.raises(TypeError):
        _core.explorer_nodes(g, Told())


def test_what_is_no_graph():
    with pytest.raises(TypeError):
        model_explorer.to_json(3)
    with pytest.raises(TypeError):
        _core.explorer_nodes(3, None)


def test_torch_graphs():
    import torch

    gm = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
    (graph,) = graphs_of(gm)
    assert [(node["id"], node["label"]) for node in graph["nodes"]] == [
        ("input_1", "input_1"),
        ("_0", "0"),
        ("_1", "1"),
        ("output", "output"),
    ]


def test_nothing_is_imported():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, fastexport, fastexport.model_explorer as m\n"
            f"p = fastexport.load({str(sample('linear'))!r}); m.to_json(p); m.node_data(p)\n"
            "print([name for name in ('torch', 'numpy', 'model_explorer') if name in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


# ---- data of nodes


def test_data_of_nodes(tmp_path):
    program = fastexport.load(sample("linear"))
    findings = [
        Fault("FX302", "name", True, None, "$.graph_module.graph.nodes[0]", "linear", "odd"),
        Fault("FX303", "name", False, None, "$.graph_module.graph.nodes[0]", "linear", "odd"),
        Fault("FX304", "name", False, None, "$.graph_module.graph.inputs[0]", "x", "odd"),
        Fault("FX305", "name", False, None, None, None, "of the whole"),
        Fault("FX306", "name", False, None, "$.graph_module.graph.nodes[9]", "gone", "odd"),
    ]
    data = model_explorer.node_data(program, name="net", findings=findings)
    assert list(data) == ["findings", "dtype", "output bytes", "weight bytes"]
    found = data["findings"]["net"]["results"]
    assert {name: result["value"] for name, result in found.items()} == {"linear": "FX302, FX303", "x": "FX304"}
    assert found["linear"]["bgColor"] != found["x"]["bgColor"]
    assert data["weight bytes"]["net"]["results"] == {"p_fc_weight": {"value": 48}, "p_fc_bias": {"value": 12}}
    assert data["output bytes"]["net"]["results"]["linear"]["value"] == 24
    assert data["dtype"]["net"]["results"]["x"]["value"] == "float32"
    paths = model_explorer.save_node_data(program, tmp_path / "data", name="net", findings=findings)
    assert [Path(path).name for path in paths] == [
        "findings.json",
        "dtype.json",
        "output_bytes.json",
        "weight_bytes.json",
    ]
    assert [json.loads(Path(path).read_text()) for path in paths] == list(data.values())


@pytest.mark.parametrize("path", ALL, ids=label)
def test_data_of_every_sample(path):
    program = fastexport.load(path, verify=False)
    graphs = dict(subgraphs(program.graph, "model"))
    data = model_explorer.node_data(program)
    for one in data.values():
        for name, told in one.items():
            assert set(told["results"]) <= {node.name for node in graphs[name].nodes}
    for name, graph in graphs.items():
        for node in graph.nodes:
            value = node.meta.get("val")
            if not isinstance(value, TensorMeta):
                continue
            assert data["dtype"][name]["results"][node.name]["value"] == value.dtype.name
            if all(isinstance(size, int) for size in value.shape):
                sets = [data.get(key, {}).get(name, {}).get("results", {}) for key in ("output bytes", "weight bytes")]
                told = [results[node.name]["value"] for results in sets if node.name in results]
                elements = 1
                for size in value.shape:
                    elements *= size
                assert told in ([], [elements * value.dtype.itemsize])


# ---- the real thing

SERVER = """
import sys
sys.modules["torch"] = None  # as if it was not installed
from model_explorer.cmdline import main
main()
"""


class Server:
    """Model Explorer's server, with our adapter."""

    def __init__(self, *arguments):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        options = ["--host=127.0.0.1", f"--port={self.port}", "--no_open_in_browser", "--skip_health_check"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *map(str, arguments), "--extensions=fastexport.model_explorer", *options],
            env=os.environ | {"HTTPS_PROXY": "http://127.0.0.1:9"},  # it asks for newer versions of itself
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(200):
            try:
                self.get("/check_health")
                return
            except (urllib.error.URLError, ConnectionError):
                assert self.process.poll() is None, self.process.stdout.read()
                time.sleep(0.1)
        raise AssertionError("the server does not answer")

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=20) as answer:
            return answer.read()

    def send(self, **command):
        return json.loads(self.get("/api/v1/send_command", json=json.dumps(command)))

    def convert(self, path):
        return self.send(
            cmdId="convert",
            extensionId="fastexport",
            modelPath=str(path),
            settings={},
            deleteAfterConversion=False,
        )

    def close(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def server():
    running = Server(sample("cond_"))
    yield running
    running.close()


def test_server_has_the_adapter_and_the_data(server):
    known = json.loads(server.get("/api/v1/get_extensions"))
    assert [one["id"] for one in known if one["fileExts" if "fileExts" in one else "id"] == ["pt2"]] == ["fastexport"]
    assert [one["id"] for one in known if one["type"] == "node_data_provider"] == [
        "fastexport_findings",
        "fastexport_dtype",
        "fastexport_output_bytes",
        "fastexport_weight_bytes",
    ]


@pytest.mark.parametrize("name", ["cond_", "multi_out", "sdpa_rope", "illegal_names", "non_ascii"])
def test_server_gives_the_graphs(server, name):
    answer = server.convert(sample(name))
    told = graphs_of(fastexport.load(sample(name)))
    assert [one["id"] for one in answer["graphs"]] == [one["id"] for one in told]
    assert [one["nodes"] for one in answer["graphs"]] == [one["nodes"] for one in told]
    assert [one["groupNodeAttributes"] for one in answer["graphs"]] == [one["groupNodeAttributes"] for one in told]


def test_server_tells_what_is_wrong_with_a_file(server):
    answer = server.convert(HOSTILE / "Z02_one_byte.pt2")
    assert answer["error"].startswith("FormatError: ")


def test_server_tells_that_there_is_no_such_graph(server):
    answer = server.send(
        cmdId="run",
        extensionId="fastexport_dtype",
        modelPath=str(sample("cond_")),
        graphId="modell",
        configValues={},
    )
    assert "the file has no graph 'modell'" in json.dumps(answer)


@pytest.mark.parametrize("provider", ["findings", "dtype", "output_bytes", "weight_bytes"])
def test_server_gives_data(server, provider):
    answer = server.send(
        cmdId="run",
        extensionId=f"fastexport_{provider}",
        modelPath=str(sample("cond_")),
        graphId="model",
        configValues={},
    )
    assert answer["error"] == ""
    data = model_explorer.node_data(fastexport.load(sample("cond_")))
    told = data.get(provider.replace("_", " "), {}).get("model", {"results": {}})
    found = {key: result["value"] for key, result in answer["result"]["results"].items()}
    assert found == {key: result["value"] for key, result in told["results"].items()}


def test_page_shows_the_graph(server, browser, tmp_path):  # noqa: F811
    program = fastexport.load(sample("cond_"))
    paths = model_explorer.save_node_data(program, tmp_path)
    shown = {"models": [{"url": str(sample("cond_"))}], "nodeData": paths, "nodeDataTargets": [""] * len(paths)}
    browser.driver.get(f"http://127.0.0.1:{server.port}/?data={urllib.parse.quote(json.dumps(shown))}")
    count = str(len(program.graph.nodes))
    browser.wait(f"return document.body.innerText.includes('{count} nodes')")
    browser.wait("return document.querySelectorAll('canvas').length > 0")
    text = browser.wait("return document.body.innerText.includes('weight bytes') && document.body.innerText")
    lines = [line.strip() for line in text.split("\n")]
    assert count in lines[lines.index("op node count") + 1 :][:3]
    assert program.torch_version in lines
    assert set(model_explorer.node_data(program)) <= set(lines)


def test_visualize_hands_over_graphs_and_data(monkeypatch):
    given_ = {}
    import model_explorer as explorer

    monkeypatch.setattr(explorer, "visualize_from_config", lambda **options: given_.update(options))
    program = fastexport.load(sample("cond_"))
    model_explorer.visualize(program, "net", port=1)
    config = given_.pop("config")
    assert given_ == {"port": 1}
    assert config.model_sources == [{"url": "graphs://net/0"}]
    assert config.get_model_explorer_graphs(0) == model_explorer.to_json(program, name="net")
    data = model_explorer.node_data(program, name="net")
    assert [json.loads(config.get_node_data(i)) for i in range(len(data))] == list(data.values())


def test_programs_of_torch(monkeypatch):
    torch = pytest.importorskip("torch")
    explorer = pytest.importorskip("model_explorer")
    shown_by = {}
    monkeypatch.setattr(explorer, "visualize_from_config", lambda **options: shown_by.update(options))
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    for each in (program, fastexport.from_export(program), program.graph_module):
        [graph] = json.loads(model_explorer.to_json(each))["graphs"]
        assert "aten.linear.default" in [node["label"] for node in graph["nodes"]]
        model_explorer.visualize(each)
        [shown] = shown_by["config"].graphs_list
        assert shown == model_explorer.to_json(each)
    assert fastexport.from_export(program).schema_version is None
    facts = json.loads(model_explorer.to_json(fastexport.from_export(program)))["graphs"][0]["groupNodeAttributes"][""]
    assert facts["torch"] == torch.__version__ and "schema" not in facts


def test_visualize_without_model_explorer(monkeypatch):
    monkeypatch.setitem(sys.modules, "model_explorer", None)
    with pytest.raises(ImportError, match="pip install"):
        model_explorer.visualize(Graph())
