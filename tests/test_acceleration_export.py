"""torch.export under accelerate(): verifying, unlifting and decomposing give torch's programs, errors and texts."""

import copy
import importlib
import io
import linecache
import logging
import operator
import re
import warnings

import pytest
import torch
from torch import fx
from torch._export import verifier
from torch._export.verifier import Verifier
from torch._subclasses import FakeTensorMode
from torch.export import exported_program
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.utils import _traceback

import fastexport
from fastexport.acceleration import table
from fx_graphs import exported, exported_cond, graph_of, modules_of, owned, state
from helpers import Counts, outcome

_unlift = importlib.import_module("torch.export._unlift")
unflatten = importlib.import_module("torch.export.unflatten")
aten = torch.ops.aten
FAMILIES = ("_graphs", "_copies", "_export")
ONLY = [name for name, entry in table().items() if entry.function.__module__.rpartition(".")[2] in FAMILIES]


def accelerated(**options):
    return fastexport.accelerate(only=ONLY, **options)


def both(function, *args):
    """What torch makes, and what comes of it under accelerate()."""
    stock = function(*args)
    with accelerated():
        return stock, function(*args)


def sources(value, kept):
    """NodeSources and what they hold, as plain values; what was met before is told by its number."""
    if isinstance(value, (str, int, type(None), NodeSourceAction)):
        return value
    if id(value) in kept:
        return f"again {list(kept).index(id(value))}"
    kept[id(value)] = value
    if isinstance(value, list):
        return [sources(item, kept) for item in value]
    if isinstance(value, dict):
        return {key: sources(item, kept) for key, item in value.items()}
    return type(value), [(key, sources(item, kept)) for key, item in vars(value).items()]


def seen(module, graph):
    """What is seen of a module and those below it: graphs with meta by value, code, parameters and buffers.

    Of the graphs that its nodes come from, one is known; others were made on the way.
    """

    def known_graph(found):
        return found.group() if int(found[1]) == id(graph) else "('graph_id', made)"

    graphs = {}
    for path, child in modules_of(module).items():
        told = state(child.graph)
        for node, known in zip(child.graph.nodes, told["nodes"], strict=True):
            origin = str(sources(node.meta.get("from_node"), {}))
            known["meta"] = [(key, str(value)) for key, value in node.meta.items() if key != "from_node"]
            known["from"] = re.sub(r"\('graph_id', (\d+)\)", known_graph, origin)
        graphs[path] = told, child.code
    modules = [
        (path, type(child).__name__, list(child._parameters), list(child._buffers), child._non_persistent_buffers_set)
        for path, child in module.named_modules()
    ]
    return graphs, modules, [(name, id(value)) for name, value in module.state_dict(keep_vars=True).items()]


class Odd(torch.nn.Module):
    """Buffers that are written to, one not persistent, a constant, shared modules and an argument of a container."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2)
        self.shared = torch.nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(1))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.constant = torch.ones(2)

    def forward(self, x, pair):
        self.steps.add_(1)
        parts = torch.split(self.shared(self.shared(self.norm(x))), [1, 1], dim=1)
        return parts[0] + parts[1] + self.scratch + self.constant + pair["a"][0], self.steps * 2


def odd_program():
    return torch.export.export(Odd().train(), (torch.ones(3, 2), {"a": [torch.ones(2)]}))


PROGRAMS = {
    "bert": lambda: exported("bert")[0],
    "llama": lambda: exported("llama")[0],
    "resnet": lambda: exported("resnet")[0],
    "cond": lambda: exported_cond()[0],
    "odd": odd_program,
}


@pytest.fixture(scope="module")
def programs():
    return {name: make() for name, make in PROGRAMS.items()}


# ---- whole programs


@pytest.mark.parametrize("name", PROGRAMS)
def test_module(programs, name):
    stock, ours = both(lambda: seen(programs[name].module(), programs[name].graph))
    assert ours == stock


def test_unlifting_is_done_in_bulk(programs):
    counts = [Counts(name) for name in ("unlift_inputs", "node_source", "assign_attr", "graph_copy")]
    with accelerated():
        programs["llama"].module()
    assert all(count()[0] > 0 and count()[1] == 0 for count in counts)


def constructed(program):
    made = exported_program.ExportedProgram(
        root=program.graph_module,
        graph=copy.deepcopy(program.graph),
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=copy.deepcopy(program.module_call_graph),
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )
    return str(made), state(made.graph), str(made.graph_signature), str(made.module_call_graph), made._guards_code


@pytest.mark.parametrize("name", PROGRAMS)
def test_constructor(programs, name):
    counts = [Counts(entry) for entry in ("verifier", "export_getitems", "export_shape_env")]
    stock, ours = both(constructed, programs[name])
    assert ours == stock
    assert all(count()[0] > 0 and count()[1] == 0 for count in counts)


@pytest.mark.parametrize("name", ["bert", "odd", "cond"])
def test_run_decompositions(programs, name):
    def decomposed():
        made = programs[name].run_decompositions()
        meta = [(node.name, sorted(node.meta), str(node.meta.get("val"))) for node in made.graph.nodes]
        return str(made), str(made.graph_signature), made.graph_module.code, meta

    stock, ours = both(decomposed)
    assert ours == stock


def test_export_tells_the_same_frames():
    def traced():
        made = odd_program()
        return str(made), [node.meta.get("stack_trace") for node in made.graph.nodes]

    with accelerated():
        traced()  # so that frames are known already
    stock, ours = both(traced)
    assert ours == stock and any("self.steps.add_(1)" in (text or "") for text in ours[1])


def test_dynamic_shapes():
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return x * torch.sym_max(x.shape[0], 3), y + x.shape[0]

    def made():
        shapes = {"x": {0: torch.export.Dim("n", min=2, max=50)}, "y": None}
        program = torch.export.export(Model(), (torch.ones(4, 2), torch.ones(4, 2)), dynamic_shapes=shapes)
        return str(program), program.module().code, program.range_constraints

    stock, ours = both(made)
    assert str(ours) == str(stock)


# ---- the verifier


def wrong(kind):
    """A program with a fault."""
    program = copy.deepcopy(exported("bert")[0])
    graph, module = program.graph, program.graph_module
    calls = [node for node in graph.nodes if node.op == "call_function"]
    if kind == "no val":
        del calls[3].meta["val"]
    elif kind == "odd val":
        calls[3].meta["val"] = object()
    elif kind == "odd val inside":
        calls[3].meta["val"] = [calls[3].meta["val"], {"a": {1}}, object()]
    elif kind == "iterable val":
        calls[3].meta["val"] = {"a": 1}
    elif kind == "no val of an input":
        next(iter(graph.nodes)).meta.clear()
    elif kind == "method":
        with graph.inserting_before(calls[3]):
            graph.call_method("relu", (calls[2],))
    elif kind in ("function", "writes", "sym_max", "getitem", "assert"):
        targets = {"function": len, "writes": aten.add_.Tensor, "sym_max": torch.sym_max, "getitem": operator.getitem,
                   "assert": aten._assert_async.msg}  # fmt: skip
        with graph.inserting_before(calls[3]):
            new = graph.call_function(targets[kind], (calls[2], 1))
        if kind != "assert":
            new.meta["val"] = calls[2].meta["val"]
    elif kind in ("tensor attribute", "missing attribute", "module attribute", "tree attribute"):
        module.found = {"tensor attribute": torch.ones(1), "module attribute": torch.nn.ReLU()}.get(kind)
        if kind == "tree attribute":
            module.found = torch.utils._pytree.tree_structure([1])
        if kind == "missing attribute":
            del module.found
        with graph.inserting_before(calls[3]):
            graph.get_attr("found")
    elif kind == "order":
        calls[5].append(calls[3])
    elif kind == "signature":
        program.graph_signature.input_specs.pop()
    return program


FAULTS = [
    "none", "no val", "odd val", "odd val inside", "iterable val", "no val of an input", "method", "function", "writes",
    "sym_max", "getitem", "assert", "tensor attribute", "missing attribute", "module attribute", "tree attribute",
    "order", "signature",
]  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("dialect", [Verifier, verifier.TrainingIRVerifier])
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")
def test_faults(kind, dialect):
    program = wrong(kind)
    stock, ours = both(outcome, lambda: dialect().check(program))
    assert ours == stock
    fine = {"none", "iterable val", "sym_max", "getitem", "assert", "tree attribute"}
    assert (stock == ("result", None)) == (kind in fine or (kind == "writes" and dialect is not Verifier))


@pytest.fixture
def dialect():
    """Makes verifiers of other dialects, which torch keeps in a registry."""
    registry = verifier._VerifierMeta._registry
    before = dict(registry)
    yield lambda **methods: type("Mine", (Verifier,), {"dialect": "MINE", **methods})
    registry.clear()
    registry.update(before)


def test_functions_are_allowed_by_torchs_list(dialect):
    kind = dialect(allowed_builtin_ops=lambda self: [len], allowed_op_types=lambda self: (str,))

    def checked(target):
        graph = fx.Graph()
        graph.call_function(target).meta["val"] = 1
        return outcome(lambda: kind()._check_graph_module(owned(graph)))

    for target in (
        torch.sym_max,
        len,
        operator.add,
        operator.getitem,
        aten.add.Tensor,
        torch._C._set_grad_enabled,
        max,
    ):
        stock, ours = both(checked, target)
        assert ours == stock


OVERRIDES = {
    "check_valid_op": lambda self, op: calls.append(str(op)),
    "check_additional": lambda self, gm: calls.append(len(gm.graph.nodes)),
    "allowed_op_types": lambda self: (type(None),),
    "allowed_builtin_ops": lambda self: [len, lambda: 1],
    "allowed_getattr_types": lambda self: (object,),
    "allowed_getattr_types_for_subgm": lambda self: (torch.fx.GraphModule,),
}
calls = []


@pytest.mark.parametrize("method", OVERRIDES)
@pytest.mark.parametrize("name", ["bert", "cond"])
def test_overridden_checks_are_asked(programs, dialect, method, name):
    kind = dialect(**{method: OVERRIDES[method]})

    def checked():
        calls.clear()
        return outcome(lambda: kind().check(programs[name])), list(calls)

    stock, ours = both(checked)
    assert ours == stock and (stock[1] or not method.startswith("check"))


def test_a_check_that_raises(programs, dialect):
    def check_valid_op(self, op):
        if op is aten.linear.default:
            raise ValueError(f"no {op}")

    kind = dialect(check_valid_op=check_valid_op)
    stock, ours = both(outcome, lambda: kind().check(programs["bert"]))
    assert ours == stock and ours[0] is ValueError


# ---- repeated getitems


def test_repeated_getitems():
    def made():
        program = odd_program()
        graph = program.graph
        first = next(node for node in graph.nodes if node.target is operator.getitem)
        with graph.inserting_before(first.next):
            twin = graph.call_function(operator.getitem, first.args)
            twin.meta = dict(first.meta)
        list(first.users)[-1].replace_input_with(first, twin)
        return constructed(program)

    counts = Counts("export_getitems")
    stock, ours = both(made)
    # Twice, for the copy is of a constructed one; meta values are made anew each time.
    assert ours[0] == stock[0] and ours[2:] == stock[2:] and counts() == (1, 1)


# ---- fake modes


def test_shape_env_of_odd_values():
    one, other = FakeTensorMode(shape_env=ShapeEnv()), FakeTensorMode(shape_env=ShapeEnv())
    fake, foreign = one.from_tensor(torch.ones(2)), other.from_tensor(torch.ones(2))
    symbol = ShapeEnv().create_unbacked_symint()

    def found(*values):
        graph = fx.Graph()
        for value in values:
            graph.placeholder("x").meta["val"] = value
        return outcome(lambda: id(exported_program._get_shape_env(owned(graph))))

    for values in [
        (),
        (fake,),
        (1, [fake, None]),
        (symbol,),
        (symbol, fake),
        (None, torch.ones(1), symbol),
        (fake, foreign),
        ([fake, (foreign,)],),
        ({"a": foreign}, symbol),
    ]:
        stock, ours = both(found, *values)
        assert ours == stock
    with one:
        stock, ours = both(found, foreign)
        assert ours == stock and ours[0] is AssertionError


# ---- where nodes come from


def made_source(node, *args, kind=NodeSource):
    return outcome(lambda: sources(kind(node, *args), {}))


def test_sources_of_nodes():
    graph = graph_of(("call_function", aten.add.Tensor, ("%x", 1)))
    x, add = list(graph.nodes)[:2]
    create = NodeSourceAction.CREATE
    first = NodeSource(x, "first", [create])
    shared = [first]
    second = NodeSource(add, "second", create)
    second.from_node = shared
    looked_at = NodeSource(add, "third", create)
    hash(looked_at)  # which keeps a dict
    other = NodeSource(add, "fourth")
    other.note = 1

    class Mine(NodeSource):
        pass

    for value in [
        None,
        [],
        [first, first, second],
        [second, second],
        shared,
        [looked_at],
        [other],
        (first,),
        [Mine(x)],
        3,
    ]:
        if value is not None:
            add.meta["from_node"] = value
        for args in [
            ("pass",),
            ("pass", create),
            ("pass", [create, NodeSourceAction.REPLACE]),
            ("pass", "x"),
            ("p", [1]),
        ]:
            stock, ours = both(made_source, add, *args)
            assert ours == stock
    assert both(made_source, None)[1] == made_source(None)
    stock, ours = both(lambda: made_source(add, "p", kind=Mine))
    assert ours == stock


# ---- attributes


def assigned(target, kind, value, names=(), persistent=True):
    module = torch.nn.Module()
    for name in names:
        holder = module
        for part in name.split("."):
            holder = holder._modules.setdefault(part, torch.nn.Module())
    module.plain = 5
    module._modules["nothing"] = None

    def assign():
        unflatten._assign_attr(value, module, target, kind, persistent)
        return [
            (
                path,
                list(child._parameters),
                list(child._buffers),
                list(child._non_persistent_buffers_set),
                len(vars(child)),
            )
            for path, child in module.named_modules()
        ]

    return outcome(assign)


@pytest.mark.parametrize("target", ["w", "a.w", "a.b.c.w", "a.0.w", "plain.w", "nothing.w", "a..w"])
@pytest.mark.parametrize("kind", unflatten._AttrKind)
@pytest.mark.parametrize("names", [(), ("a", "a@1", "a.b"), ("a.b", "ab", "a\n"), ("a.0", "a.0@1", "a.00")])
def test_assigned_attributes(target, kind, names):
    for value in (torch.nn.Parameter(torch.ones(1)), torch.ones(1), torch.nn.ReLU(), "text"):
        stock, ours = both(assigned, target, kind, value, names, False)
        assert ours == stock


# ---- inputs


def test_inputs_are_unlifted_as_by_torch():
    def unlifted(lifted, change=None):
        graph = fx.Graph()
        nodes = [graph.placeholder(name) for name in ("p_weight", "x", "b_mean")]
        for node in nodes:
            node.meta = {"val": 1}
        total = graph.call_function(torch.add, (nodes[2], nodes[0]), {"alpha": nodes[0]})
        graph.output((total, nodes[1], nodes[2]))
        module = owned(graph)
        fired = []
        if change == "hooks":
            module._register_create_node_hook(lambda node: fired.append(node.name))
            module._register_replace_node_hook(lambda old, new, user: fired.append((old.name, new, user.name)))
            module._register_erase_node_hook(lambda node: fired.append(node.name))
        if change == "method":
            graph.get_attr = lambda name: fired.append(name) or fx.Graph.get_attr(graph, name)

        def run():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = _unlift._unlift_inputs_as_getattr(module, lifted)
            return [[(name, node.name, node.op) for name, node in part.items()] for part in found]

        result = outcome(run)
        told = state(graph)
        for node, known in zip(graph.nodes, told["nodes"], strict=True):
            known["meta"] = [(key, type(value)) for key, value in node.meta.items()]
        return result, told, fired

    for args in [
        (["weight", None, "deep.mean"],),
        ([None, None, None],),
        (["weight", None],),
        (["weight", None, "weight"],),
        (["weight", None, "mean"], "hooks"),
        (["weight", None, "mean"], "method"),
    ]:
        stock, ours = both(unlifted, *args)
        assert ours == stock


# ---- frames and texts


def test_frames_follow_the_text_of_files(tmp_path):
    path = tmp_path / "model.py"

    def lines():
        return [frame.line for frame in _traceback._extract_symbolized_tb(frames, 1)]

    frames = [
        {"filename": str(path), "line": 1, "name": "skipped"},
        {"filename": str(path), "line": 2, "name": "forward"},
    ]
    with accelerated():
        assert lines() == [""]  # there is no file yet
        path.write_text("a\nfirst\n")
        linecache.checkcache()
        assert lines() == ["first"] and lines() == ["first"]
        path.write_text("a\nanother\n")
        assert lines() == ["first"]  # as linecache has it
        linecache.checkcache()
        assert lines() == ["another"]
        linecache.clearcache()
        assert lines() == ["another"]


def test_pseudo_files_are_looked_up_each_time():
    name = "<eval_with_key>.of_a_test"
    frames = [{"filename": name, "line": 1, "name": "forward"}]
    with accelerated():
        for text in ("one", "two"):
            linecache.cache[name] = (len(text), None, [text], name)
            assert _traceback._extract_symbolized_tb(frames, 0)[0].line == text
    del linecache.cache[name]


def test_frames_equal_those_of_torch():
    summary = _traceback.CapturedTraceback.extract().summary
    stock, ours = both(lambda: [(frame.filename, frame.lineno, frame.name, frame.line) for frame in summary()])
    assert ours == stock


def test_texts_for_the_serializer(programs, caplog):
    def saved():
        file = io.BytesIO()
        torch.export.save(programs["odd"], file)
        return len(file.getvalue())

    name = "torch._export.serde.serialize"
    with accelerated():
        caplog.set_level(logging.DEBUG, logger=name)
        saved()
        assert any(
            "[serialize_graph]" in record.message and "aten.split" in record.message for record in caplog.records
        )
        caplog.set_level(logging.WARNING, logger=name)
        counts = Counts("print_readable")
        saved()
        assert counts()[1] == 0 < counts()[0]
        module = programs["odd"].graph_module
        assert "aten.split" in module.print_readable(print_output=False)
        assert module.print_readable(False, colored=False) == module.print_readable(print_output=False)


def test_with_torch_as_the_judge():
    with accelerated(verify=True):
        program = odd_program()
        copy.deepcopy(program.module())
        program.run_decompositions()
