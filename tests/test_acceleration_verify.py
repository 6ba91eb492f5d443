"""Comparing two results, and copies of arguments to compare on: what ``accelerate(verify=True)`` relies on."""

import collections
import copy
import dataclasses
import functools
import io
import math
import operator
import warnings

import hypothesis
import numpy
import pytest
import torch
from torch import fx
from torch.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

import fx_graphs
from fastexport.acceleration import AccelerationError, accelerate, table
from fastexport.acceleration._clone import clone
from fastexport.acceleration._equal import find_difference
from fastexport.acceleration._verify import outcome, verify_maker, verify_method, verify_result

aten = torch.ops.aten
Pair = collections.namedtuple("Pair", "first second")


class Plain:
    def __init__(self, **state):
        self.__dict__.update(state)


class Slotted:
    __slots__ = ("a", "b")


class ByValue:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    __hash__ = None


@dataclasses.dataclass
class Data:
    a: object
    b: object = dataclasses.field(default=None, compare=False)


def slotted(a):
    made = Slotted()
    made.a = a
    return made


def nan_with_payload():
    import struct

    return struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0]


def closure(value):
    return lambda: value


def cyclic(end):
    made = [1]
    made += [made, {"deep": made}, end]
    return made


SAME = [
    (1, 1),
    ("a" * 1000, "a" * 1000),
    (math.nan, nan_with_payload()),
    (complex(0, math.nan), complex(0, math.nan)),
    ([1, (2, {"a": {3}})], [1, (2, {"a": {3}})]),
    (cyclic(2), cyclic(2)),
    (Data(1, [2]), Data(1, [2])),
    (Plain(a=1, b=2), Plain(b=2, a=1)),
    (slotted([1]), slotted([1])),
    (ByValue(1), ByValue(1)),
    (object(), object()),
    (ValueError("a"), ValueError("a")),
    (slice(1, 2), slice(1, 2)),
    (numpy.arange(3), numpy.arange(3)),
    (torch.tensor([math.nan, 1]), torch.tensor([math.nan, 1])),
    (torch.zeros(()), torch.zeros(())),
    (torch.zeros(0, 3), torch.zeros(0, 3)),
    (torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool)),
    (torch.ones(2, dtype=torch.complex64).conj(), torch.ones(2, dtype=torch.complex64).conj()),
    (torch.eye(3).to_sparse(), torch.eye(3).to_sparse()),
    (torch.ones(2, 3, device="meta"), torch.zeros(2, 3, device="meta")),
    (closure(1), closure(1)),
    (functools.partial(max, 1), functools.partial(max, 1)),
    (torch.float32, torch.float32),
    (collections.deque([1]), collections.deque([1])),
]

DIFFERENT = [
    (1, 2, ""),
    (1, True, ""),
    (1, 1.0, ""),
    (0.0, -0.0, ""),
    (None, 0, ""),
    ([1, 2], [1, 3], "[1]"),
    ([1], [1, 2], "length"),
    ([1], (1,), ""),
    ((1, 2), Pair(1, 2), ""),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "key"),
    ({"a": 1}, {"a": 1, "b": 2}, "keys"),
    ({"a": [1]}, {"a": [2]}, "['a'][0]"),
    ({1, 2}, {1, 3}, ""),
    (collections.OrderedDict(a=1), {"a": 1}, ""),
    (cyclic(2), cyclic(3), "[3]"),
    (Data(1, [2]), Data(1, [3]), ".b[0]"),
    (Plain(a=1), Plain(a=2), ".a"),
    (Plain(a=1), Plain(b=1), "attributes"),
    (slotted(1), slotted(2), ".a"),
    (ByValue(1), ByValue(2), ".value"),
    (ValueError("a"), ValueError("b"), "args"),
    (slice(1, 2), slice(1, 3), "[1]"),
    (numpy.arange(3), numpy.arange(3.0), ""),
    (numpy.arange(3), numpy.arange(1, 4), ""),
    (torch.zeros(2), -torch.zeros(2), "values"),
    (torch.zeros(2), torch.zeros(2).double(), "dtype"),
    (torch.zeros(2, 3), torch.zeros(3, 2), "shape"),
    (torch.zeros(2, 3), torch.zeros(3, 2).t(), "stride"),
    (torch.zeros(2), torch.zeros(2, requires_grad=True), "requires_grad"),
    (torch.zeros(2), torch.zeros(2, device="meta"), "device"),
    (torch.zeros(2), torch.nn.Parameter(torch.zeros(2), requires_grad=False), ""),
    (torch.eye(3).to_sparse(), torch.ones(3, 3).to_sparse(), ""),
    (closure(1), closure(2), "closure"),
    (closure(1), lambda: 1, ""),
    (functools.partial(max, 1), functools.partial(max, 2), ""),
    (torch.float32, torch.float64, ""),
    (int, float, ""),
    (torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), "weight"),
    (torch.nn.ReLU(), torch.nn.GELU(), "class"),
]


@pytest.mark.parametrize("a, b", SAME)
def test_same(a, b):
    assert find_difference(a, b) is None


@pytest.mark.parametrize("a, b, word", DIFFERENT)
def test_different(a, b, word):
    for expected, found in ((a, b), (b, a)):
        told = find_difference(expected, found)
        assert told is not None and told.startswith("result") and word in told
        assert "torch has" in told and "fastexport" in told


def test_fake_tensors_by_what_they_describe():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        a, b, c = torch.empty(2, 3), torch.empty(2, 3), torch.empty(3, 3)
        assert find_difference(a, b) is None and "shape" in find_difference(a, c)
    with FakeTensorMode():
        assert find_difference(a, torch.empty(2, 3)) is None
    assert find_difference(mode, FakeTensorMode()) is None


def test_symbolic_sizes_get_no_guards():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.reshape(-1) + x.shape[0]

    dynamic = {"x": {0: torch.export.Dim("n")}}
    program, again = (torch.export.export(Model(), (torch.ones(3, 2),), dynamic_shapes=dynamic) for _ in range(2))
    value = next(node.meta["val"] for node in program.graph.nodes)
    guards = len(value.fake_mode.shape_env.guards)
    assert find_difference(program, again) is None
    static = torch.export.export(Model(), (torch.ones(3, 2),))
    assert find_difference(program, static) is not None
    assert len(value.fake_mode.shape_env.guards) == guards


def test_repr_that_raises():
    class Bad:
        def __repr__(self):
            raise RuntimeError

    assert "repr raises RuntimeError" in find_difference(Bad(), 1)


# ---- graphs


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.bn = torch.nn.BatchNorm2d(4)
        self.register_buffer("scale", torch.ones(4, 1, 1))

    def forward(self, x, y):
        a, b = torch.split(self.bn(self.conv(x)).relu() * self.scale, 2, 1)
        return {"sum": a + b, "rest": (torch.cat([a, b]), y + 1)}


@functools.cache
def exported():
    torch.manual_seed(0)
    gm = torch.export.export(Model().eval(), (torch.randn(1, 3, 8, 8), torch.ones(2))).module()
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def made():
    """A module of one's own."""
    return clone((exported(),), {})[0][0]


def node(gm, index=7):
    return list(gm.graph.nodes)[index]


def swap_users(gm):
    some = next(n for n in gm.graph.nodes if len(n.users) > 1)
    users = dict(reversed(some.users.items()))
    some.users.clear()
    some.users.update(users)


def swap_listing(gm):
    table = gm.graph._find_nodes_lookup_table.table
    nodes = next(nodes for nodes in table.values() if len(nodes) > 1)
    first = next(iter(nodes))
    del nodes[first]
    nodes[first] = None


def move(gm):
    nodes = list(gm.graph.nodes)
    nodes[0].append(nodes[2])


def insert(gm):
    with gm.graph.inserting_after(node(gm)):
        gm.graph.call_function(operator.neg, (node(gm),))


def insert_and_erase(gm):
    insert(gm)
    gm.graph.erase_node(node(gm, 8))


def nested_meta(gm):
    gm.meta["deep"] = [{"a": node(gm)}]


def other_args(gm):
    some = next(n for n in gm.graph.nodes if n.target is aten.cat.default)
    some.args = (tuple(some.args[0]),)


def grow_class(gm):
    type(gm).forward = lambda self, x, y: 1


CHANGES = {
    "name": lambda gm: setattr(node(gm), "_name", "other") or setattr(node(gm), "name", "other"),
    "target": lambda gm: setattr(node(gm), "target", aten.sigmoid.default),
    "op": lambda gm: setattr(node(gm), "op", "call_method"),
    "type": lambda gm: setattr(node(gm), "type", int),
    "args": lambda gm: setattr(node(gm), "args", (*node(gm).args, 1)),
    "container of args": other_args,
    "kwargs": lambda gm: setattr(node(gm), "kwargs", {"a": 1}),
    "meta": lambda gm: node(gm).meta.update(a=1),
    "order of meta": lambda gm: node(gm).meta.update(val=node(gm).meta.pop("val")),
    "attribute of a node": lambda gm: setattr(node(gm), "mine", 1),
    "order of users": swap_users,
    "order of find_nodes": swap_listing,
    "order of nodes": move,
    "one more node": insert,
    "name that stays taken": insert_and_erase,
    "count of names": lambda gm: gm.graph._graph_namespace._base_count.update(other=3),
    "name of a node in the namespace": lambda gm: gm.graph._graph_namespace._obj_to_name.update({node(gm): "a"}),
    "length": lambda gm: setattr(gm.graph, "_len", 3),
    "insert point": lambda gm: gm.graph.inserting_before(node(gm)),
    "codegen": lambda gm: setattr(gm.graph, "_codegen", fx.CodeGen()),
    "attribute of the graph": lambda gm: setattr(gm.graph, "mine", 1),
    "owning module": lambda gm: setattr(gm.graph, "_owning_module", None),
    "meta of the module": nested_meta,
    "code": lambda gm: setattr(gm, "_code", gm.code + "\n"),
    "line map": lambda gm: gm._lineno_map.update({1: 1000}),
    "signature": grow_class,
    "weights": lambda gm: setattr(gm.conv, "weight", torch.nn.Parameter(gm.conv.weight.detach() + 1)),
    "buffer": lambda gm: gm.register_buffer("more", torch.ones(1)),
    "order of buffers": lambda gm: gm._modules.update(conv=gm._modules.pop("conv")),
    "training": lambda gm: setattr(gm.bn, "training", not gm.bn.training),
    "attribute of the module": lambda gm: setattr(gm, "mine", 1),
    "class name": lambda gm: setattr(type(gm), "__name__", "Other"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_module_is_seen(change):
    gm = made()
    (twin,), _, _ = clone((gm,), {})
    assert find_difference(gm, twin) is None
    CHANGES[change](twin)
    told = find_difference(gm, twin)
    assert told is not None, change


def test_exported_programs():
    program, again = (torch.export.export(Model().eval(), (torch.ones(1, 3, 8, 8), torch.ones(2))) for _ in range(2))
    again._state_dict = program._state_dict
    assert find_difference(program, again) is None
    again.graph_signature.input_specs.reverse()
    assert "input_specs" in find_difference(program, again)


def test_matches():
    gm = made()
    (twin,), _, _ = clone((gm,), {})
    pattern = fx.Graph()
    x = pattern.placeholder("x")
    pattern.output(pattern.call_function(aten.relu.default, (x,)))
    ours, theirs = (SubgraphMatcher(pattern).match(each.graph) for each in (gm, twin))
    assert isinstance(ours[0], InternalMatch) and find_difference(ours, theirs) is None
    theirs[0].anchors.append(node(twin))
    assert "anchors" in find_difference(ours, theirs)


# ---- copies


@pytest.mark.parametrize("name", ["inserted", "foreign", "erased", "hooks", "subclass", "nested"])
def test_copies_are_exact(name):
    gm = made()
    graph = gm.graph
    if name == "inserted":
        swap_users(gm), swap_listing(gm), insert_and_erase(gm)
        graph.inserting_before(node(gm)).__enter__()
    elif name == "erased":
        insert(gm)
        gone = node(gm, 8)
        graph.erase_node(gone)
        graph.remembered = [gone, node(gm)]
    elif name == "foreign":
        graph.other = fx.symbolic_trace(lambda x: x + 1).graph
    elif name == "hooks":
        fired = []
        gm._register_create_node_hook(fired.append)
        gm._register_replace_node_hook(lambda old, new, user: fired.append(old))
        gm._register_erase_node_hook(fired.append)
    elif name == "subclass":
        graph.__class__ = type("MyGraph", (fx.Graph,), {})
    elif name == "nested":
        gm.inner = fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    (twin, same, nodes), kwargs, copies = clone((gm, gm.graph, list(graph.nodes)), {"a": {"b": node(gm)}})
    if name == "hooks":
        assert fired == []
        insert(twin)
        assert fired == [node(twin, 8)]
        twin.graph.erase_node(fired[0])
        twin._create_node_hooks.clear()
        (twin,), _, _ = clone((gm,), {})
        same, nodes, kwargs = twin.graph, list(twin.graph.nodes), {"a": {"b": node(twin)}}
    assert find_difference(gm, twin) is None and find_difference(twin, gm) is None
    assert same is twin.graph is not graph and nodes == list(twin.graph.nodes) and kwargs["a"]["b"] is node(twin)
    assert not set(nodes) & set(graph.nodes)
    twin.graph.lint()
    arguments = torch.randn(1, 3, 8, 8), torch.ones(2)
    before, code = gm(*arguments), gm.code
    twin.graph.output_node().args = ([node(twin)],)
    twin.recompile()
    assert gm.code == code and find_difference(before, gm(*arguments)) is None
    assert copies.written_tensors() == []


@hypothesis.given(fx_graphs.recipes)
@hypothesis.settings(max_examples=40)
def test_copies_of_random_graphs_are_exact(recipe):
    graph = fx_graphs.build(recipe)
    (twin,), _, _ = clone((graph,), {})
    assert find_difference(graph, twin) is None
    assert fx_graphs.table(graph) == fx_graphs.table(twin) and str(graph) == str(twin)


def test_containers_in_arguments_refer_to_copies():
    gm = made()
    first = node(gm)
    frozen = fx.immutable_collections.immutable_list([first]), fx.immutable_collections.immutable_dict(a=first)
    given = ([first], (first, (1,)), Pair(first, 2), slice(first, None), {first}, frozenset([first]), frozen, (1, [2]))
    (twin, *copied), _, _ = clone((gm, *given), {})
    mine = node(twin)
    frozen = fx.immutable_collections.immutable_list([mine]), fx.immutable_collections.immutable_dict(a=mine)
    expected = ([mine], (mine, (1,)), Pair(mine, 2), slice(mine, None), {mine}, frozenset([mine]), frozen, (1, [2]))
    assert tuple(copied) == expected and list(map(type, copied)) == list(map(type, expected))
    assert list(map(type, copied[6])) == list(map(type, frozen))


def test_comparing_inside_of_a_trace_leaves_nothing_in_it():
    from torch.fx.experimental.proxy_tensor import make_fx

    def traced(x):
        find_difference(torch.ones(2), torch.ones(2))
        y = x + 1
        assert find_difference(y, y.double()) is not None
        verify_result(len, len, ([1],), {})
        return y

    for pre_dispatch in (False, True):
        gm = make_fx(traced, tracing_mode="fake", pre_dispatch=pre_dispatch)(torch.ones(3))
        assert [str(n.target) for n in gm.graph.nodes if n.op == "call_function" and n.users][:1] == ["aten.add.Tensor"]
        assert not [n for n in gm.graph.nodes if "grad" in str(n.target) or "equal" in str(n.target)]


def test_annotations_refer_to_copies():
    @dataclasses.dataclass
    class Annotation:
        inputs: dict
        shared: tuple

    gm = made()
    a, b = node(gm, 6), node(gm, 7)
    b.meta["note"] = Annotation({a: 1}, (a, b))
    (twin,), _, _ = clone((gm,), {})
    note = node(twin).meta["note"]
    assert note is not b.meta["note"] and list(note.inputs) == [node(twin, 6)] and note.shared[1] is node(twin)
    assert find_difference(gm, twin) is None


def test_exported_programs_are_copied_wherever_they_are():
    program = torch.export.export(Model().eval(), (torch.ones(1, 3, 8, 8), torch.ones(2)))
    (_, twin), kwargs, _ = clone((1, program), {"again": [program]})
    assert kwargs["again"] == [twin] and twin is not program and find_difference(program, twin) is None
    insert(twin.graph_module)
    assert find_difference(program, twin) is not None and len(program.graph.nodes) + 1 == len(twin.graph.nodes)


def test_difference_below_is_told_as_it_is():
    def ours(x):
        raise AccelerationError("inner: result: torch has 1, fastexport 2")

    with pytest.raises(AccelerationError, match="^inner: result"):
        verify_result(ours, len, ([],), {})


def test_verify_method():
    gm = made()
    insert(gm)
    graph = gm.graph
    removed = verify_method(fx.Graph.eliminate_dead_code, fx.Graph.eliminate_dead_code, (graph,), {})
    assert removed is True and len(graph.nodes) == len(made().graph.nodes)
    assert find_difference(made().code, gm.code) is None


@pytest.mark.parametrize("change", ["meta", "order of users", "one more node", "weights", "training"])
def test_verify_method_finds_what_ours_does_otherwise(change):
    def ours(gm):
        CHANGES[change](gm)

    with pytest.raises(AccelerationError, match="ours: arguments"):
        verify_method(ours, lambda gm: None, (made(),), {})


def test_verify_method_of_another_object():
    class Worker:
        def __init__(self, gm):
            self.gm, self.count = gm, 0

    def work(self):
        self.count += 1
        insert(self.gm)
        return self.gm

    def other(self):
        self.count += 2
        insert(self.gm)
        return self.gm

    worker = Worker(made())
    assert verify_method(work, work, (worker,), {}) is worker.gm and worker.count == 1
    with pytest.raises(AccelerationError, match="count"):
        verify_method(other, work, (worker,), {})


def test_verify_method_with_exceptions_compares_what_is_left_behind():
    def half(gm, change="meta"):
        CHANGES[change](gm)
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        verify_method(half, half, (made(),), {})
    with pytest.raises(AccelerationError, match="arguments"):
        verify_method(functools.partial(half, change="type"), half, (made(),), {})


def test_verify_method_refuses_what_writes_to_tensors():
    def writes(gm):
        with torch.no_grad():
            gm.conv.weight.add_(1)

    with pytest.raises(AccelerationError, match="writes into a tensor of shape"):
        verify_method(writes, writes, (made(),), {})


def test_verify_maker():
    def make(step):
        return lambda x: x + step

    def make_other(step):
        def add(x):
            return step + x if x < 3 else x

        return add

    made = verify_maker(make_other, make, (1,), {})
    assert made(1) == 2 and made.__name__ == "add"
    with pytest.raises(AccelerationError, match="add: result: torch has 4, fastexport 3"):
        made(3)


def test_random_numbers_are_the_same_for_both():
    def draws():
        return torch.rand(2), numpy.random.rand(2)

    torch.manual_seed(0)
    verify_result(draws, draws, (), {})
    state = torch.get_rng_state()
    torch.manual_seed(0)
    torch.rand(2)
    assert torch.equal(state, torch.get_rng_state())

    def draws_more():
        torch.rand(1)
        return None

    with pytest.raises(AccelerationError, match="random states"):
        verify_result(draws_more, lambda: None, (), {})


def test_quantized_by_torchao_twice():
    """Both ways through prepare and convert, on a module and on its copy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    results = []
    (first,), _, _ = clone((made(),), {})
    (second,), _, _ = clone((first,), {})
    for gm in (first, second):
        prepared = quantize.prepare_pt2e(gm, copy.deepcopy(quantizer))
        (twin,), _, _ = clone((prepared,), {})
        assert find_difference(prepared, twin) is None
        prepared(torch.ones(1, 3, 8, 8), torch.ones(2))
        results.append((prepared, quantize.convert_pt2e(prepared)))
    assert find_difference(results[0], results[1]) is None


def test_entries_compared_on_the_same_arguments_leave_these_alone(monkeypatch):
    """What changes its arguments needs another verify: after torch's has run, ours would find its work done."""
    quantize = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    entries = {name: entry for name, entry in table().items() if entry.verify is verify_result}
    calls, changed = collections.Counter(), {}

    def look_at(name):
        def verify(ours, stock, args, kwargs):
            calls[name] += 1
            if calls[name] <= 3:
                twins, twin_kwargs, _ = clone(args, kwargs)
                outcome(stock, twins, twin_kwargs)
                told = find_difference((args, kwargs), (twins, twin_kwargs))
                if told is not None:
                    changed[name] = told
            return stock(*args, **kwargs)

        return verify

    for name, entry in entries.items():
        monkeypatch.setattr(entry, "verify", look_at(name))
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    inputs = torch.ones(1, 3, 8, 8), torch.ones(2)
    with accelerate(only=entries, verify=True):
        program = torch.export.export(Model().eval(), inputs)
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        torch.export.load(file)
        prepared = quantize.prepare_pt2e(program.module(), quantizer)
        prepared(*inputs)
        quantize.convert_pt2e(prepared)
    assert changed == {} and (calls or not entries)
