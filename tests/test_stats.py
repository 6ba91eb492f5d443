"""Counts and sizes of programs: `stats`, several side by side, and `summary`, the tree of modules."""

import io
import itertools
import operator
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastexport
from fastexport import FormatError, Graph, _core
from fastexport._summary import nodes_line
from fastexport._weight_facts import Totals, facts_of
from pt2_files import sample

SAMPLES = sorted((Path(__file__).parent / "data" / "pt2" / "samples").glob("*/*.pt2"))
READABLE = [path for path in SAMPLES if path.parent.name != "negative"]


@pytest.mark.parametrize("path", READABLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_sample(path):
    program = fastexport.load(path, verify=False)
    found = fastexport.stats(path)
    graphs = [program.graph]
    for graph in graphs:
        graphs.extend((graph.subgraphs or {}).values())
    nodes = [node for graph in graphs for node in graph.nodes]
    assert found.nodes == len(program.graph.nodes) == sum(found.ops.values()) and found.subgraphs == len(graphs) - 1
    assert found.subgraph_nodes == sum(found.subgraph_ops.values()) == len(nodes) - found.nodes
    assert sum(found.calls.values()) == sum(node.op == "call_function" for node in nodes)
    assert found.parameters == len(program.graph_signature.parameters)
    assert found.schema == ".".join(map(str, program.schema_version)) and found.torch == program.torch_version
    assert found.dynamic == {str(key): [r.lower, r.upper] for key, r in program.range_constraints.items()}
    assert pickle.loads(pickle.dumps(found)) == found
    tree = fastexport.summary(program, depth=None)
    assert tree.root.total_operators() == sum(found.calls.values())
    assert tree.root.total_bytes() == found.nbytes


def counted(graph):
    """What `_core.count_nodes` gives, by a walk over the nodes."""
    ops, calls = Counter(), Counter()
    for node in graph.nodes:
        ops[node.op] += 1
        if node.op == "call_function":
            calls[node.target] += 1
    return list(ops.items()), list(calls.items())


@pytest.mark.parametrize("path", READABLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_counting_nodes(path):
    graph = fastexport.load(path, verify=False).graph
    assert _core.count_nodes(graph) == counted(graph)
    for node in [*graph.nodes][::-2]:
        if not node.users and node.op != "output":
            graph.erase_node(node)
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        graph.call_function(operator.neg, (1,))
    assert _core.count_nodes(graph) == counted(graph)
    assert _core.count_nodes(graph)[1][0] == (operator.neg, 1)


def test_counting_nodes_of_any_kind():
    graph = Graph()
    assert _core.count_nodes(graph) == ([], [])
    x = graph.placeholder("x")
    graph.output((graph.call_method("neg", (x,)), graph.call_module("a.b", (x,)), graph.get_attr("w")))
    assert _core.count_nodes(graph) == counted(graph)
    with pytest.raises(TypeError, match="Graph of fastexport"):
        _core.count_nodes(3)


def test_what_can_be_handed_in():
    path = sample("linear")
    program = fastexport.load(path)
    expected = {**fastexport.stats(program).to_dict(), "name": None}
    for form in (str(path), path, path.read_bytes(), io.BytesIO(path.read_bytes()), program):
        assert {**fastexport.stats(form).to_dict(), "name": None} == expected
    assert fastexport.stats(path).name == str(path) and fastexport.stats(program).name == "program"
    for form, parameters in ((program.graph, 0), (program.graph_module, 2)):
        found = fastexport.stats(form)
        assert (found.name, found.nodes, found.parameters, found.schema) == ("graph", 6, parameters, None)


def test_what_can_not():
    with pytest.raises(TypeError, match="one program or more"):
        fastexport.stats()
    with pytest.raises(TypeError):
        fastexport.stats(3)
    with pytest.raises(FileNotFoundError):
        fastexport.stats("there/is/no/such.pt2")
    with pytest.raises(FormatError):
        fastexport.stats(b"no archive")


def list_of_tensors(program):
    return [value.storage for value in (*program.state_dict.values(), *program.constants.values())]


def addresses(tensor):
    """Where each byte of a tensor is."""
    offsets = [tensor.storage_offset]
    for size, step in zip(tensor.shape, tensor.strides, strict=True):
        offsets = [offset + i * step for offset in offsets for i in range(size)]
    width = tensor.dtype.itemsize
    return {(id(tensor.storage), offset * width + byte) for offset in offsets for byte in range(width)}


def test_tied_weights_count_once():
    program = fastexport.load(sample("shared_weights"))
    found = fastexport.stats(program)
    assert found.parameters == 2
    [size] = {program.state_dict[name].numel for name in program.graph_signature.parameters}
    tensors = [*program.state_dict.values(), *program.constants.values()]
    assert found.nbytes == len(set().union(*map(addresses, tensors))) < sum(t.nbytes for t in tensors)
    assert fastexport.summary(program).root.total_parameters() == size
    assert fastexport.summary(program).root.total_bytes() == found.nbytes


def test_what_shares_memory_counts_once_everywhere():
    program = fastexport.load(sample("shared_weights"))
    found = fastexport.stats(program)
    [size] = found.bytes.values()
    assert found.shared == 1 and found.facts()["shared names"] == 1
    [line] = [line for line in repr(program).split("\n") if line.startswith("  weights")]
    assert line.endswith(f"{size} B float32, shared memory counted once")
    assert f">{size} B</span>" in program.state_dict._repr_html_()
    assert "shared" not in repr(fastexport.load(sample("linear"))) and not fastexport.stats(sample("linear")).shared


@pytest.mark.parametrize("look", [lambda program: None, list_of_tensors])
def test_counts_do_not_depend_on_what_was_looked_at(look):
    program = fastexport.load(sample("shared_weights"))
    next(iter(program.state_dict.values()))  # one of two that are tied
    look(program)
    found, first = fastexport.stats(program), fastexport.stats(sample("shared_weights"))
    assert (found.shared, found.elements, found.bytes) == (first.shared, first.elements, first.bytes)
    assert str(fastexport.summary(program)) == str(fastexport.summary(fastexport.load(sample("shared_weights"))))


STORAGES = [_core.Storage(bytes(64)) for _ in range(2)]


@st.composite
def tensors_of(draw, gaps):
    """Tensors in two storages, in any place."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        offset = draw(st.integers(0, 4))
        shape = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
        strides = tuple(draw(st.integers(0, 3)) for _ in shape) if gaps else shape[1:] + (1,) * bool(shape)
        storage = draw(st.sampled_from(STORAGES))
        found.append(_core.Tensor(storage, fastexport.DType("float32"), shape, strides, offset))
    return found


def taken(tensors):
    return Totals(facts_of(str(i), tensor, "buffer") for i, tensor in enumerate(tensors)).nbytes.total()


@given(tensors_of(gaps=False))
def test_no_byte_counts_twice(tensors):
    assert taken(tensors) == len(set().union(*map(addresses, tensors)))


@given(tensors_of(gaps=True), st.randoms())
def test_bytes_of_tensors_with_gaps(tensors, random):
    total = taken(tensors)
    assert len(set().union(*map(addresses, tensors))) <= total <= sum(len(addresses(each)) for each in tensors)
    random.shuffle(tensors)
    assert taken(tensors) == total


def test_tensors_in_gaps_of_each_other_and_parts():
    even, odd = (_core.Tensor(STORAGES[0], fastexport.DType("float32"), (4,), (2,), i) for i in (0, 1))
    whole = _core.Tensor(STORAGES[0], fastexport.DType("float32"), (8,), (1,), 0)
    expanded = _core.Tensor(STORAGES[1], fastexport.DType("float32"), (5, 3), (0, 0), 2)
    assert (taken([even]), taken([even, odd]), taken([odd, whole, even]), taken([expanded])) == (16, 32, 32, 4)


def test_elements_and_bytes_are_of_the_same_tensors():
    found = fastexport.stats(sample("conv_bn_train"))
    assert found.elements_by_kind == {"parameters": 120, "buffers": 9} and found.elements == 129
    assert sum(found.bytes.values()) == sum(found.bytes_by_kind.values()) == found.nbytes


def graph_of(target, count):
    g = Graph()
    last = g.placeholder("x")
    for _ in range(count):
        last = g.call_function(target, (last,))
    g.output(last)
    return g


def test_several_side_by_side():
    a, b = graph_of(operator.neg, 3), graph_of(operator.pos, 1)
    table = fastexport.stats(a, b)
    assert len(table) == 2 and [each.nodes for each in table] == [5, 3] and table[1].calls == {"operator.pos": 1}
    assert table.changes() == {
        "nodes": -2,
        "op call_function": -2,
        "calls operator.neg": -3,
        "calls operator.pos": 1,
    }
    lines = repr(table).split("\n")
    assert lines[0].split() == ["fact", "graph", "graph", "(2)", "change"]
    assert lines[1].split() == ["nodes", "5", "3", "-2"] and lines[-1].split() == [
        "calls",
        "operator.pos",
        "-",
        "1",
        "+1",
    ]
    assert table.to_dict()["programs"][0]["nodes"] == 5 and table.to_dict()["changes"]["nodes"] == -2
    assert table[0].compare(table[1]).changes() == table.changes()
    assert fastexport.stats(a, a).changes() == {} and fastexport.stats(a, b, a).changes() == {}


def test_facts_of_a_kind_stand_together():
    names = ("linear", "cond_", "bf16_complex", "constants_lifted")
    facts = [row["fact"] for row in fastexport.stats(*map(sample, names)).to_records()]
    kinds = [fact.split(" ")[0] + " of" * (" of " in fact) for fact in facts]
    assert {"bytes", "bytes of", "subgraph", "op", "calls"} <= set(kinds)
    assert [kind for kind, _ in itertools.groupby(kinds)] == list(dict.fromkeys(kinds))


def test_names_of_columns_are_unique():
    names = ["a", "a", "a (2)", "change", "fact", "a", "last - first"]
    found = [fastexport.stats(graph_of(operator.neg, 1)) for _ in names]
    for each, name in zip(found, names, strict=True):
        each.name = name
    (first, *_) = found[0].compare(*found[1:]).to_records()
    assert list(first) == [
        "fact",
        "a",
        "a (2)",
        "a (2) (2)",
        "change (2)",
        "fact (2)",
        "a (3)",
        "last - first (2)",
        "last - first",
    ]
    (first, *_) = found[0].compare(found[1]).to_records()
    assert list(first) == ["fact", "a", "a (2)", "change"]
    assert "+" not in repr(found[3]), "a column of that name is no change"


def test_versions_that_differ():
    program = fastexport.load(sample("linear"))
    table = fastexport.stats(program, program.graph)
    assert table.changes()["torch"] is None
    assert [line.split()[-1] for line in repr(table).split("\n") if line.startswith("torch")] == ["differs"]


def test_sizes_are_told_for_people():
    program = fastexport.load(sample("linear"))
    lines = [line for line in repr(fastexport.stats(program, program.graph)).split("\n") if line.startswith("bytes")]
    assert lines[0].split() == ["bytes", "float32", "60", "B", "-", "-60", "B"]
    assert lines[1].split() == ["bytes", "of", "parameters", "60", "B", "-", "-60", "B"]
    assert fastexport.stats(program).nbytes == 60


# ---- the tree of modules


def nested():
    """Three blocks that look the same, and one that does not."""
    g = Graph()
    last = g.placeholder("x")
    for i, target in enumerate([operator.neg] * 3 + [operator.pos]):
        for part in ("a", "b"):
            last = g.call_function(target, (last,))
            last.meta["nn_module_stack"] = {
                "0": ("", "m.Model"),
                "1": ("blocks", "torch.nn.ModuleList"),
                "2": (f"blocks.{i}", "m.Block"),
                "3": (f"blocks.{i}.{part}", "m.Part"),
            }
    g.output(last)
    return g


def test_summary_folds_what_is_the_same():
    lines = repr(fastexport.summary(nested(), depth=None)).split("\n")
    assert [line[:35].rstrip() for line in lines] == [
        "module      type           times  o",
        "(whole)     Model",
        "  blocks    ModuleList",
        "    0..2    Block       x 3, all",
        "      a..b  Part        x 2, all",
        "    3       Block",
        "      a..b  Part        x 2, all",
    ]
    assert [line.split()[-4] for line in lines[1:]] == ["8", "8", "6", "2", "2", "2"]


@pytest.mark.parametrize("depth", [0, 1, 2, 3, None])
def test_totals_never_depend_on_depth(depth):
    for shown in (nested(), fastexport.load(sample("conv_bn_eval_core"))):
        whole = fastexport.summary(shown, depth=None).to_records()
        found = fastexport.summary(shown, depth=depth).to_records()
        assert found == [row for row in whole if depth is None or level(row) <= depth]


def level(row):
    return len(row["module"].replace("..", "").split(".")) if row["module"] else 0


@pytest.mark.parametrize("wrong, error", [("3", TypeError), (True, TypeError), (-1, ValueError)])
def test_wrong_depths(wrong, error):
    with pytest.raises(error, match="depth"):
        fastexport.summary(Graph(), depth=wrong)


def test_subgraphs_count_where_they_are_called():
    program = fastexport.load(sample("cond_"))
    whole = fastexport.summary(program)
    call = next(node for node in program.graph.nodes if "cond" in str(node.target))
    call.meta["nn_module_stack"] = {"a": ("block.chooser", "m.Chooser")}
    inside = sum(node.op == "call_function" for graph in program.graph.subgraphs.values() for node in graph.nodes)
    found = fastexport.summary(program, depth=None)
    assert inside and found.root.at("block.chooser").total_operators() == inside + 1
    assert found.root.total_operators() == whole.root.total_operators()


def test_subgraphs_however_deep():
    g = graph_of(operator.neg, 1)
    for _ in range(2000):
        outer = graph_of(operator.neg, 1)
        outer.subgraphs = {"a": g}
        g = outer
    assert fastexport.stats(g).calls == {"operator.neg": 2001}
    assert nodes_line(g) == "3: 1 placeholder, 1 call_function, 1 output, and 6,000 in 2,000 subgraphs"
    assert fastexport.summary(g).root.total_operators() == 2001


def test_methods_are_the_same():
    program = fastexport.load(sample("conv_bn_eval_core"))
    assert repr(program.summary(depth=1)) == repr(fastexport.summary(program, depth=1))
    assert repr(program.graph.summary()) == repr(fastexport.summary(program.graph))


# ---- beside torch


def test_programs_of_torch():
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)

        def forward(self, x):
            return self.norm(self.a(x)).relu()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.Sequential(Block(), Block(), Block())
            self.head = torch.nn.Linear(4, 4)
            self.head.weight = self.blocks[0].a.weight  # tied

        def forward(self, x):
            return self.head(self.blocks(x))

    model = Model().eval()
    program = torch.export.export(model, (torch.rand(2, 4),))
    found = fastexport.stats(program)
    parameters, buffers = list(model.parameters()), list(model.buffers())
    assert found.elements == sum(t.numel() for t in [*parameters, *buffers])
    assert found.nbytes == sum(t.nbytes for t in [*parameters, *buffers])
    assert found.nodes == len(program.graph.nodes) and found.calls["aten.linear.default"] == 4
    tree = fastexport.summary(program, depth=None)
    assert tree.root.total_parameters() == sum(p.numel() for p in parameters)
    rows = {row["module"]: row for row in tree.to_records()}
    assert rows["blocks.0..2"]["times"] == 3 and rows["head"]["parameters"] == 4  # the bias: the weight is the first's
    assert fastexport.stats(program.graph).nodes == fastexport.stats(program.graph_module).nodes == found.nodes
    file = io.BytesIO()
    torch.export.save(program, file)
    saved = fastexport.stats(file.getvalue())
    assert {**saved.to_dict(), "schema": None, "bytes": dict(sorted(saved.bytes.items()))} == {
        **found.to_dict(),
        "bytes": dict(sorted(found.bytes.items())),
    }
    assert fastexport.summary(file.getvalue(), depth=None).to_records() == tree.to_records()


def test_constants_and_memory_that_is_seen_in_several_ways(tmp_path):
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Parameter(torch.rand(3, 2))
            self.down = torch.nn.Parameter(self.up.detach().t())  # the same memory
            self.register_buffer("most", torch.ones(5), persistent=False)

        def forward(self, x):
            return x @ self.up @ self.down + torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) + self.most.sum()

    program = torch.export.export(Model(), (torch.rand(2, 3),))
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    for form in (program, fastexport.from_export(program), path):
        found = fastexport.stats(form)
        assert (found.parameters, found.buffers, found.constants, found.shared) == (2, 1, 1, 1)
        assert found.elements_by_kind == {"parameters": 6, "buffers": 5, "constants": 3} and found.elements == 14
        assert found.bytes_by_kind == {"parameters": 24, "buffers": 20, "constants": 24}
        assert found.bytes == {"float32": 44, "float64": 24}
    lines = repr(fastexport.load(path)).split("\n")
    sizes = "44 B float32, 24 B float64, shared memory counted once"
    assert f"  weights  2 parameters, 1 buffer, 1 constant; {sizes}" in lines
    assert repr(fastexport.from_export(program)).count(sizes) == 1


def test_operators_that_are_quantized():
    g = Graph()
    x = g.placeholder("x")
    scale = (0.1, 0, -128, 127, fastexport.DType("int8"))
    q = g.call_function("torch.ops.quantized_decomposed.quantize_per_tensor.default", (x, *scale))
    d = g.call_function("torch.ops.quantized_decomposed.dequantize_per_tensor.default", (q, *scale))
    linear = g.call_function("torch.ops.aten.linear.default", (d, d))
    g.output(g.call_function("torch.ops.aten.add.Tensor", (linear, x)))
    found = fastexport.stats(g)
    assert found.quantized == {"quantized": 1}
    assert found.facts()["operators quantized"] == 1
    assert fastexport.stats(nested()).quantized == {}


def test_nothing_of_torch_is_imported():
    code = (
        "import sys, fastexport\n"
        f"fastexport.stats({str(sample('linear'))!r}), fastexport.summary({str(sample('linear'))!r})\n"
        "print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_weights_of_modules_that_are_called():
    torch = pytest.importorskip("torch")
    first = torch.nn.Linear(2, 2)
    second = torch.nn.Linear(2, 2)
    second.weight = first.weight
    model = torch.nn.Sequential(first, torch.nn.ReLU(), second, torch.nn.BatchNorm1d(2))
    module = torch.fx.symbolic_trace(model)
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    for form in (
        module,
        fastexport.from_fx(module),
        fastexport.GraphModule(module, fastexport.from_fx(module.graph)),
    ):
        if isinstance(form, fastexport.Graph):
            assert fastexport.stats(form).elements == 0
            continue
        found, tree = fastexport.stats(form), fastexport.summary(form)
        assert (found.parameters, found.buffers) == (6, 3)
        assert found.elements == sum(t.numel() for t in tensors)
        assert found.nbytes == sum(t.nbytes for t in tensors) == tree.root.total_bytes()
        assert tree.root.total_parameters() == sum(p.numel() for p in model.parameters())
        assert tree.root.at("2").parameters == 2


def test_weights_of_the_module_of_a_program():
    for name in ("linear", "conv_bn_train", "shared_weights", "cond_"):
        program = fastexport.load(sample(name))
        module, whole = fastexport.stats(program.graph_module), fastexport.stats(program)
        assert module.nbytes and (module.nbytes, module.parameters) == (whole.nbytes, whole.parameters)
