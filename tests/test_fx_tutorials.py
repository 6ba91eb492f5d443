"""What tutorials and examples of torch.fx teach, written anew and done with both torch.fx and fastexport.

A transformation is a function of the library and a module; both libraries must come to the same graph, the same code
and the same bits.
"""

import copy
import operator
import statistics
import sys
import time

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import fastexport
from helpers import names

LIBRARIES = (fx, fastexport)


def both(transform, root, *args):
    """What a transformation makes of a module with fastexport; it must be what it makes with torch.fx."""
    made = [transform(library, copy.deepcopy(root)) for library in LIBRARIES]
    theirs, ours = made
    assert isinstance(theirs, fx.GraphModule) and isinstance(ours, fastexport.GraphModule)
    theirs.graph.lint()
    ours.graph.lint()
    assert str(ours.graph) == str(theirs.graph)
    assert ours.code == theirs.code
    assert same_bits(ours(*args), theirs(*args))
    return ours


def same_bits(a, b):
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and same_bits([*a.values()], [*b.values()])
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_bits, a, b))
    return a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and torch.equal(a, b)


def targets(module):
    return [node.target for node in module.graph.nodes if node.op not in ("placeholder", "output")]


class Sums(nn.Module):
    """The module that direct edits are shown on."""

    def forward(self, x, y):
        return torch.add(x, y).relu() + torch.add(x, 1)


X, Y = torch.arange(-6.0, 6.0).view(3, 4), torch.linspace(-1, 2, 12).view(3, 4)


# ---- edits of the graph


def test_a_graph_is_built_by_hand():
    def build(library, root):
        graph = library.Graph()
        x = graph.placeholder("x")
        weight = graph.get_attr("scale")
        scaled = graph.call_function(torch.mul, (x, weight))
        bent = graph.call_module("bend", (scaled,))
        graph.output(graph.call_method("sum", (bent,), {"dim": 1}))
        return library.GraphModule(root, graph)

    root = nn.Module()
    root.scale, root.bend = nn.Parameter(torch.full((4,), 3.0)), nn.Softplus()
    both(build, root, X)


def test_one_operation_is_put_for_another():
    def replace(library, root):
        traced = library.symbolic_trace(root)
        for node in traced.graph.nodes:
            if node.op == "call_function" and node.target is torch.add:
                node.target = torch.mul
        traced.recompile()
        return traced

    assert torch.mul in targets(both(replace, Sums(), X, Y))


def test_all_spellings_of_an_operation_are_replaced():
    """Functions, operators and methods that add are one thing to the user of the pass."""

    class Spellings(nn.Module):
        def forward(self, x, y):
            return (x + y).add(y) + torch.add(x, y) + operator.add(x, y)

    adds = {torch.add, operator.add, "add"}

    def replace(library, root):
        traced = library.symbolic_trace(root)
        for node in traced.graph.nodes:
            if node.target in adds and node.op in ("call_function", "call_method"):
                with traced.graph.inserting_after(node):
                    new = traced.graph.call_function(torch.bitwise_and, node.args, node.kwargs)
                    node.replace_all_uses_with(new)
                traced.graph.erase_node(node)
        return library.GraphModule(traced, traced.graph)

    ours = both(replace, Spellings(), torch.tensor([1, 6, 7]), torch.tensor([3, 5, 7]))
    assert set(targets(ours)) == {torch.bitwise_and}


def test_a_call_is_put_behind_another():
    def insert(library, root):
        traced = library.symbolic_trace(root)
        for node in traced.graph.nodes:
            if node.target is torch.add:
                with traced.graph.inserting_after(node):
                    clamped = traced.graph.call_function(torch.clamp, (node,), {"max": 2.0})
                    node.replace_all_uses_with(clamped)
                    clamped.args = (node,)  # its own argument was replaced too
        traced.recompile()
        return traced

    assert targets(both(insert, Sums(), X, Y)).count(torch.clamp) == 2


def test_uses_are_replaced_where_a_function_says_so():
    def insert(library, root):
        traced = library.symbolic_trace(root)
        first = next(node for node in traced.graph.nodes if node.target is torch.add)
        with traced.graph.inserting_after(first):
            clamped = traced.graph.call_function(torch.neg, (first,))
        replaced = first.replace_all_uses_with(clamped, delete_user_cb=lambda user: user is not clamped)
        assert names(replaced) == ["relu"]
        traced.recompile()
        return traced

    both(insert, Sums(), X, Y)


def test_the_output_is_wrapped_on_request():
    """One traced module gives several, each with another function around what it returns."""

    def wrap(library, root, function):
        traced = library.symbolic_trace(root)
        output = next(iter(reversed(traced.graph.nodes)))
        assert output.op == "output"
        with traced.graph.inserting_before(output):
            output.args = (traced.graph.call_function(function, (output.args[0],)),)
        traced.recompile()
        return traced

    for function in (torch.sigmoid, F.gelu):
        both(lambda library, root, function=function: wrap(library, root, function), Sums(), X, Y)


INVERSES = {torch.sin: torch.arcsin, torch.cos: torch.arccos, torch.tanh: torch.arctanh, torch.neg: torch.neg}


def test_a_chain_of_functions_is_inverted():
    class Chain(nn.Module):
        def forward(self, x):
            return torch.neg(torch.tanh(torch.sin(torch.tanh(x))))

    def invert(library, root):
        traced = library.symbolic_trace(root)
        graph, env = library.Graph(), {}
        for node in reversed(traced.graph.nodes):
            if node.op == "output":
                env[node.args[0]] = graph.placeholder("result")
            elif node.op == "placeholder":
                graph.output(env[node])
            else:
                (operand,) = node.args
                env[operand] = graph.call_function(INVERSES[node.target], (env[node],))
        return library.GraphModule(root, graph)

    x = torch.linspace(-1, 1, 9)
    back = both(invert, Chain(), Chain()(x))
    assert torch.allclose(back(Chain()(x)), x, atol=1e-5)


def test_features_are_taken_from_inside():
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))

        def forward(self, x):
            return self.layers(x).sum()

    def extract(library, root):
        traced = library.symbolic_trace(root)
        graph = traced.graph
        (inner,) = graph.find_nodes(op="call_module", target="layers.1")
        (output,) = graph.find_nodes(op="output")
        output.args = ({"features": inner},)
        assert graph.eliminate_dead_code()
        traced.delete_all_unused_submodules()
        traced.recompile()
        return traced

    ours = both(extract, Features(), X)
    assert {name for name, _ in ours.named_modules() if name} == {"layers", "layers.0", "layers.1"}


# ---- fusing and splitting


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.block = nn.Sequential(nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6), nn.ReLU())
        self.conv2, self.bn2 = nn.Conv2d(6, 2, 1), nn.BatchNorm2d(2)

    def forward(self, x):
        x = self.block(self.bn1(self.conv1(x)))
        y = self.conv2(x)
        return self.bn2(y) + y.mean()  # what another one reads stays as it is


def folded(conv, norm):
    """A convolution that does what the two do in eval mode."""
    conv = copy.deepcopy(conv)
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    bias = torch.zeros_like(norm.running_mean) if conv.bias is None else conv.bias
    conv.weight = nn.Parameter(conv.weight * scale.reshape(-1, 1, 1, 1))
    conv.bias = nn.Parameter((bias - norm.running_mean) * scale + norm.bias)
    return conv


def fuse(library, root):
    """Convolutions and the normalisations behind them become one."""
    traced = library.symbolic_trace(root)
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        if node.op != "call_module" or type(modules[node.target]) is not nn.BatchNorm2d:
            continue
        (before,) = node.args
        if before.op != "call_module" or type(modules[before.target]) is not nn.Conv2d or len(before.users) > 1:
            continue
        parent, _, name = before.target.rpartition(".")
        setattr(modules[parent], name, folded(modules[before.target], modules[node.target]))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    return library.GraphModule(traced, traced.graph)


def test_convolution_and_normalisation_are_fused():
    torch.manual_seed(0)
    root = ConvNet()
    for module in root.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean), nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 2), nn.init.normal_(module.bias)
    root.eval()
    x = torch.randn(2, 3, 6, 6)
    ours = both(fuse, root, x)
    assert targets(ours) == ["conv1", "block.0", "block.2", "conv2", "bn2", "mean", operator.add]
    assert torch.allclose(ours(x), root(x), atol=1e-5)


def test_a_product_is_split():
    """A product of matrices as several of blocks of columns, concatenated."""

    def split(library, root, parts=2):
        traced = library.symbolic_trace(root)
        graph = traced.graph
        for node in graph.find_nodes(op="call_function", target=torch.matmul):
            a, b = node.args
            with graph.inserting_before(node):
                chunks = graph.call_function(torch.chunk, (b, parts), {"dim": 1})
                blocks = [graph.call_function(operator.getitem, (chunks, i)) for i in range(parts)]
                products = [graph.call_function(torch.matmul, (a, block)) for block in blocks]
                joined = graph.call_function(torch.cat, (products,), {"dim": 1})
            node.replace_all_uses_with(joined)
            graph.erase_node(node)
        traced.recompile()
        return traced

    class Product(nn.Module):
        def forward(self, x, y):
            return torch.matmul(torch.matmul(x, y), y.t())

    ours = both(split, Product(), X, Y.t())
    assert targets(ours).count(torch.matmul) == 4
    assert torch.allclose(ours(X, Y.t()), Product()(X, Y.t()), atol=1e-4)


def test_products_with_one_operand_are_merged():
    """Products of one matrix with several become one with all of them, which is split again."""

    class Products(nn.Module):
        def forward(self, x, a, b, c):
            return torch.matmul(x, a) + torch.matmul(x, b) * torch.matmul(x, c)

    def merge(library, root):
        traced = library.symbolic_trace(root)
        graph = traced.graph
        products = graph.find_nodes(op="call_function", target=torch.matmul)
        shared = products[0].args[0]
        with graph.inserting_before(products[0]):
            joined = graph.call_function(torch.cat, ([node.args[1] for node in products], 1))
            whole = graph.call_function(torch.matmul, (shared, joined))
            parts = graph.call_function(torch.chunk, (whole, len(products)), {"dim": 1})
        for i, node in enumerate(products):
            with graph.inserting_after(parts):
                part = graph.call_function(operator.getitem, (parts, i))
            node.replace_all_uses_with(part)
            graph.erase_node(node)
        traced.recompile()
        return traced

    torch.manual_seed(1)
    args = torch.randn(2, 3), *(torch.randn(3, 4) for _ in range(3))
    assert targets(both(merge, Products(), *args)).count(torch.matmul) == 1


# ---- proxies


def appending(library, graph):
    """What proxies need to write into a graph."""
    return (fx.proxy if library is fx else fastexport).GraphAppendingTracer(graph)


DECOMPOSITIONS = {
    F.relu: lambda x: (x > 0) * x,
    torch.square: lambda x: x * x,
    F.softmax: lambda x, dim: torch.exp(x) / torch.exp(x).sum(dim, keepdim=True),
}


def decompose(library, root):
    """Functions are traced anew, through proxies of the new graph."""
    traced = library.symbolic_trace(root)
    graph, env = library.Graph(), {}
    tracer = appending(library, graph)
    for node in traced.graph.nodes:
        if node.op == "call_function" and node.target in DECOMPOSITIONS:
            args = [library.Proxy(env[arg], tracer) if arg in env else arg for arg in node.args]
            kwargs = {name: value for name, value in node.kwargs.items() if name in ("dim",)}
            env[node] = DECOMPOSITIONS[node.target](*args, **kwargs).node
        else:
            env[node] = graph.node_copy(node, lambda operand: env[operand])
    return library.GraphModule(root, graph)


def test_functions_are_decomposed():
    class Functions(nn.Module):
        def forward(self, x, y):
            return F.softmax(F.relu(x), dim=1) + torch.square(y)

    ours = both(decompose, Functions(), X, Y)
    assert not set(targets(ours)) & set(DECOMPOSITIONS)
    assert torch.allclose(ours(X, Y), Functions()(X, Y), atol=1e-6)


def test_a_graph_is_made_from_proxies():
    """Whatever is called with proxies is written into their graph."""

    def build(library, root):
        graph = library.Graph()
        tracer = appending(library, graph)
        x, y = (library.Proxy(graph.placeholder(name), tracer) for name in ("x", "y"))
        z = torch.cat([x, y], dim=1).tanh()
        graph.output((2 ** z[0] - z.mean()).node)
        return library.GraphModule(root, graph)

    both(build, nn.Module(), X, Y)


def test_a_function_is_written_into_another_graph():
    """A call of a module is replaced by what the module does."""

    class Inner(nn.Module):
        def forward(self, x, scale):
            return torch.relu(x * scale) - 1

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x, y):
            return self.inner(x, y) + self.inner(y, x)

    def keep_inner(library):
        class KeepsInner(library.Tracer):
            def is_leaf_module(self, m, module_qualified_name):
                return isinstance(m, Inner) or super().is_leaf_module(m, module_qualified_name)

        return KeepsInner()

    def inline(library, root):
        tracer = keep_inner(library)
        graph = tracer.trace(root)
        assert len(graph.find_nodes(op="call_module", target="inner")) == 2
        inner = library.symbolic_trace(root.inner).graph
        for node in graph.find_nodes(op="call_module", target="inner"):
            with graph.inserting_before(node):
                places = dict(zip(inner.find_nodes(op="placeholder"), node.args, strict=True))
                node.replace_all_uses_with(graph.graph_copy(inner, places))
            graph.erase_node(node)
        return library.GraphModule(root, graph)

    ours = both(inline, Outer(), X, Y)
    assert "inner" not in targets(ours)
    assert same_bits(ours(X, Y), Outer()(X, Y))


# ---- tracers


def test_modules_are_known_by_their_paths():
    """A tracer that notes at each node in which module it was made."""

    def trace(library, root):
        class Paths(library.Tracer):
            def __init__(self):
                super().__init__()
                self.at, self.origin = "", {}

            def call_module(self, m, forward, args, kwargs):
                before, self.at = self.at, self.path_of_module(m)
                try:
                    return super().call_module(m, forward, args, kwargs)
                finally:
                    self.at = before

            def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, *more):
                proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr, *more)
                self.origin[proxy.node] = self.at
                return proxy

        tracer = Paths()
        graph = tracer.trace(root)
        made = library.GraphModule(root, graph)
        for node in graph.nodes:
            node.meta["path"] = tracer.origin.get(node)
        return made

    root = ConvNet().eval()
    torchs = [node.meta["path"] for node in trace(fx, root).graph.nodes]
    ours = both(trace, root, torch.ones(1, 3, 5, 5))
    found = [node.meta["path"] for node in ours.graph.nodes]
    assert found == torchs and "block.0" in found


def test_only_calls_of_modules_are_traced():
    """A tracer for which the root's children are all there is, and what happens between them is Python."""

    class Children(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(nn.Linear(4, 2))

        def forward(self, x):
            return self.second(self.first(x))

    def trace(library, root):
        class Shallow(library.Tracer):
            def is_leaf_module(self, m, module_qualified_name):
                return "." not in module_qualified_name

        return library.GraphModule(root, Shallow().trace(root))

    assert targets(both(trace, Children(), X)) == ["first", "second"]


def flattened_length(values):
    return len(values) if values.dim() else 0


fx.wrap("flattened_length")
fastexport.wrap("flattened_length")


def test_what_a_tracer_must_not_look_into():
    class Calls(nn.Module):
        def forward(self, x):
            return x * flattened_length(x)

    def trace(library, root):
        return library.symbolic_trace(root)

    assert targets(both(trace, Calls(), X)) == [flattened_length, operator.mul]


def test_branches_on_arguments_are_decided_before():
    class Branches(nn.Module):
        def forward(self, x, double: bool, table):
            return table["a"] * 2 if double else x

    def trace(library, root):
        return library.symbolic_trace(root, concrete_args={"double": True, "table": {"a": library.PH, "b": 3}})

    args = X, True, {"a": Y, "b": 3}
    made = [trace(library, Branches()) for library in LIBRARIES]
    assert str(made[0].graph) == str(made[1].graph) and made[0].code == made[1].code
    assert same_bits(made[0](*args), made[1](*args)) and same_bits(made[1](*args), Y * 2)


@pytest.mark.parametrize("library", LIBRARIES)
def test_branches_on_values_are_refused(library):
    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(fx.proxy.TraceError, match="control flow") as raised:
        library.symbolic_trace(Branches())
    if library is fastexport:
        assert "x.sum() > 0" in str(raised.value)  # the line that asks


def test_dropout_is_what_it_was_when_traced():
    """The functional form keeps the flag; a module follows train and eval."""

    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(F.dropout(x, training=self.training))

    def trace(library, root):
        return library.symbolic_trace(root)

    torch.manual_seed(0)
    ours = fastexport.symbolic_trace(Drops())
    assert ours.graph.find_nodes(op="call_function", target=F.dropout)[0].kwargs["training"] is True
    both(trace, Drops().eval(), X)
    assert not same_bits(ours.eval()(X), X)


# ---- patterns


def test_a_pattern_is_replaced_everywhere():
    class Patterned(nn.Module):
        def forward(self, x, w1, w2):
            first = torch.cat([w1, w2]).sum()
            second = torch.cat([w1, w2]).sum()
            return x + torch.max(first) + torch.max(second)

    def pattern(w1, w2):
        return torch.cat([w1, w2]).sum()

    def replacement(w1, w2):
        return torch.stack([w1, w2])

    def rewrite(library, root):
        traced = library.symbolic_trace(root)
        replace = fx.replace_pattern if library is fx else fastexport.replace_pattern
        assert len(replace(traced, pattern, replacement)) == 2
        return traced

    both(rewrite, Patterned(), X, torch.randn(3), torch.randn(3))


def test_matches_are_chosen():
    """Only sums with a number are shifts; filters see the match."""

    class Shifts(nn.Module):
        def forward(self, x, y):
            return ((x + 2) * (y + x)) + 1

    def pattern(x, shift):
        return x + shift

    def replacement(x, shift):
        return torch.sub(x, -shift)

    def is_number(match, graph, pattern):
        return isinstance(match.placeholder_nodes[1], int)

    def rewrite(library, root):
        traced = library.symbolic_trace(root)
        rewriter = fx.subgraph_rewriter if library is fx else fastexport
        made = library.symbolic_trace(replacement).graph
        found = rewriter.replace_pattern_with_filters(traced, pattern, made, [is_number])
        assert len(found) == 2
        return traced

    both(rewrite, Shifts(), X, Y)


# ---- running


def shapes(library, module, *args):
    class Shapes(library.Interpreter):
        def __init__(self, module):
            super().__init__(module)
            self.seen = {}

        def run_node(self, n):
            result = super().run_node(n)
            self.seen[n.name] = tuple(result.shape), result.dtype
            return result

    interpreter = Shapes(module)
    return interpreter.run(*args), interpreter.seen


def test_shapes_are_propagated():
    root, x = ConvNet().eval(), torch.randn(2, 3, 6, 6)
    (theirs, expected), (ours, seen) = (shapes(library, library.symbolic_trace(root), x) for library in LIBRARIES)
    assert same_bits(ours, theirs) and seen == expected
    assert seen["conv1"] == ((2, 4, 4, 4), torch.float32)


def test_nodes_are_timed():
    """A profile: seconds of runs and of nodes, by what they call, with the slowest first."""

    class Profiler(fastexport.Interpreter):
        def __init__(self, module):
            super().__init__(module)
            self.runs, self.nodes = [], {}

        def run(self, *args):
            start = time.perf_counter()
            result = super().run(*args)
            self.runs.append(time.perf_counter() - start)
            return result

        def run_node(self, n):
            start = time.perf_counter()
            result = super().run_node(n)
            self.nodes.setdefault(n, []).append(time.perf_counter() - start)
            return result

        def table(self):
            whole = statistics.mean(self.runs)
            rows = [(node.op, node.name, statistics.mean(seconds)) for node, seconds in self.nodes.items()]
            rows.sort(key=lambda row: row[2], reverse=True)
            return [(op, name, seconds, 100 * seconds / whole) for op, name, seconds in rows]

    root = ConvNet().eval()
    traced, x = fastexport.symbolic_trace(root), torch.randn(2, 3, 6, 6)
    profiler = Profiler(traced)
    for _ in range(3):
        assert same_bits(profiler.run(x), root(x))
    table = profiler.table()
    assert len(table) == len(traced.graph.nodes) and all(len(times) == 3 for times in profiler.nodes.values())
    assert sum(seconds for _, _, seconds, _ in table) < statistics.mean(profiler.runs)
    assert table == sorted(table, key=lambda row: row[2], reverse=True)


def test_functions_are_exchanged_while_the_graph_is_run():
    def transform(library, root):
        class Swaps(library.Transformer):
            def call_function(self, target, args, kwargs):
                return super().call_function({torch.add: torch.sub}.get(target, target), args, kwargs)

            def call_method(self, target, args, kwargs):
                return super().call_method({"relu": "sigmoid"}.get(target, target), args, kwargs)

        return Swaps(library.symbolic_trace(root)).transform()

    assert targets(both(transform, Sums(), X, Y)) == [torch.sub, "sigmoid", torch.sub, operator.add]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantizer_that_observes():
    """Ranges are seen in a run of the graph, then a quantized copy is written."""

    def quantize(library, root):
        traced = library.symbolic_trace(root)
        ranges = {}

        class Observes(library.Interpreter):
            def run_node(self, n):
                result = super().run_node(n)
                if n.op in ("call_function", "call_module"):
                    ranges[n] = float(result.detach().abs().max()) or 1.0
                return result

        Observes(traced).run(X)
        graph, env = library.Graph(), {}
        for node in traced.graph.nodes:
            env[node] = graph.node_copy(node, lambda operand: env[operand])
            if node in ranges:
                scale = ranges[node] / 127
                coded = graph.call_function(torch.quantize_per_tensor, (env[node], scale, 0, torch.qint8))
                env[node] = graph.call_method("dequantize", (coded,))
        return library.GraphModule(traced, graph)

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.b(torch.relu(self.a(x)))

    torch.manual_seed(0)
    root = Layers().eval()
    ours = both(quantize, root, X)
    assert 0 < (ours(X) - root(X)).abs().max() < 0.1


# ---- looking


def test_text_and_table(capsys):
    ours = fastexport.symbolic_trace(Sums())
    ours.graph.print_tabular()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert [line.split()[1] for line in lines[2:]] == names(ours.graph)


def test_a_module_is_written_into_a_folder(tmp_path, monkeypatch):
    torch.manual_seed(0)
    root = ConvNet().eval()
    fastexport.symbolic_trace(root).to_folder(tmp_path / "written_net", "Net")
    monkeypatch.syspath_prepend(str(tmp_path))
    from written_net import Net

    x = torch.randn(1, 3, 5, 5)
    assert same_bits(Net().eval()(x), root(x))
    sys.modules.pop("written_net")
