"""Code whose lines are made in C is torch's: the text, the globals, the line map, and what is left behind."""

import operator
import types
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx
from torch.fx import graph as fx_graph
from torch.fx.graph import CodeGen, PythonCode, _PyTreeCodeGen, _PyTreeInfo
from torch.utils import _pytree as pytree

from fastexport import Graph, _core, acceleration
from fastexport.acceleration import _deferred, _recompile
from fastexport.acceleration._deferred import CONSTANTS, generate, is_pending
from fx_graphs import MODELS, exported, exported_cond, graph_of, modules_of, table
from helpers import label, leaked

aten = torch.ops.aten
F = torch.nn.functional
LIBRARY = torch.library.Library("fastexport_code", "FRAGMENT")
LIBRARY.define("half(Tensor x) -> Tensor")
LIBRARY.define("half.by(Tensor x, int by) -> Tensor")
CUSTOM = torch.ops.fastexport_code.half


def accelerate(*names, **options):
    return acceleration.accelerate(only=names or ["python_code"], **options)


def seen(code):
    """All that is to be seen of a PythonCode."""
    assert type(code) is PythonCode
    return {
        "src": code.src,
        "globals": [(name, id(value)) for name, value in code.globals.items()],
        "lines": list(code._lineno_map.items()),
        "start": code._prologue_start,
    }


def both(make, root="self", **options):
    """python_code of two equal graphs, with and without ours; whether ours did it."""
    ours, theirs = make(), make()
    entry = acceleration.table()["python_code"]
    hits, functions = entry.hits, [node._repr_fn for node in ours.nodes]
    with accelerate():
        found = ours.python_code(root, **options)
    done = entry.hits - hits
    assert seen(found) == seen(theirs.python_code(root, **options))
    assert table(ours) == table(theirs)
    assert [node._repr_fn for node in ours.nodes] == functions
    return done


def same(make, root="self"):
    assert both(make, root) == 1


# ---- arguments


def with_argument(value):
    return lambda: graph_of(
        ("call_function", aten.add.Tensor, ("%x", value), {"alpha": value, "out": [value, {"k": (value,)}]}),
        output=value,
    )


VALUES = [
    *(None, True, False, ..., 0, -1, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 1e-5, 1e16, 1e300, 0.1, 2.5, float("inf"), float("-inf"), float("nan")),
    *("", "text", "a'b", 'a"b', "a'\"b", "back\\slash", "new\nline\t", "\x7f\x00", "\u00e4\u4e2d\U0001f600"),
    *("\ud800", "\u2028", "{}", "%s", "self"),
    *(torch.float32, torch.int8, torch.device("cpu"), torch.device("cuda", 1), torch.strided, torch.sparse_coo),
    *(torch.contiguous_format, torch.channels_last),
    *((), (1,), (1, 2), [], [1], [[], [()]], {}, {"k": 1}, {"a'": {}, "b": [{"c": (None,)}]}),
    *(slice(None), slice(1, None, -1), (slice(None), ..., None), slice((1,), [2], {"k": 3})),
]


@pytest.mark.parametrize("value", VALUES, ids=ascii)
def test_argument(value):
    same(with_argument(value))


def test_nodes_in_arguments():
    def make():
        made = fx.Graph()
        x, y = made.placeholder("x"), made.placeholder("y")
        call = made.call_function(aten.cat.default, ([x, (y,), {"k": x, "l": [y]}], slice(x, None, y)), {"dim": x})
        made.output({"a": call, "b": [call, (call,)]})
        return made

    same(make)


@pytest.mark.parametrize("value", [2j, 1 << 64, "a#b", "# COUNTER: 7", range(3), {3: 1}, [{"k": {None: 1}}]])
def test_arguments_that_are_left_to_torch(value):
    assert both(with_argument(value)) == 0


# ---- calls


FUNCTIONS = [
    *(operator.add, operator.pow, operator.matmul, operator.getitem, operator.neg, operator.invert, operator.eq),
    *(operator.iadd, operator.imatmul, operator.setitem, operator.contains, operator.not_, operator.truth),
    *(torch.add, torch.relu, torch.sym_max, torch._assert, F.relu, F.linear, F.conv2d, torch._C._nn.gelu),
    *(aten.add.Tensor, aten.add.Scalar, aten.add_.Tensor, aten.sum.dim_IntList, CUSTOM.default, CUSTOM.by),
    *(torch.ops.higher_order.cond, torch.segment_reduce),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=label)
def test_function(function):
    """Also with more arguments than it is written with: their nodes take names."""
    for more in ((), ("%x", 3)):
        same(
            lambda more=more: graph_of(
                ("call_function", function, ("%x", 1, "%x", *more), {"k": 1}),
                ("call_function", function, ("%x", "%x", "%x")),
                ("call_function", aten.neg.default, ("%x",)),
            )
        )


def test_operator_whose_last_argument_is_named_only_there():
    def make():
        made = fx.Graph()
        x = made.placeholder("x")
        late = made.call_function(aten.neg.default, (x,), name="late")
        made.call_function(operator.add, (x, 1, late))
        made.call_function(operator.iadd, (x, 1, late)).name = "add_1"
        late.name = "add"
        made.output(x).prepend(late)
        return made

    same(make)


@pytest.mark.parametrize("function", [len, getattr, abs, torch.device, torch.Tensor.add, types.SimpleNamespace])
def test_functions_that_are_left_to_torch(function):
    assert both(lambda: graph_of(("call_function", function, ("%x", "shape")))) == 0


@pytest.mark.parametrize("op", ["get_attr", "call_module", "call_method"])
@pytest.mark.parametrize("target", ["a", "a.b", "layers.0", "0", "0.1.a", "a-b.c.2x", "_.__class__", "A9.b_"])
def test_path(op, target):
    for root in ("self", "root", "_m1"):
        same(lambda: graph_of((op, target, ("%x", 1, "%x"), {"k": "%x"}), output="%x"), root)


def test_several_operators_that_need_globals():
    """The global's name is taken when its first call is written, before the call's own."""

    def make():
        made = fx.Graph()
        x = made.placeholder("x")
        for name in ("_operator_contains", "_operator_contains_1", "_operator_truth"):
            made.call_function(operator.contains, (x, 1)).name = name
            made.call_function(operator.truth, (x,))
        made.output(list(made.nodes))
        return made

    same(make)


# ---- names and deletions


NAMES = [
    *("x", "x_1", "x_2", "y", "add", "add_1", "a_007", "a_7", "a", "a_1_2", "_", "_1", "__1", "_x", "x_", "x__1"),
    *("if", "None", "print", "inf", "nan", "nan_1", "NoneType", "torch", "torch_1", "device", "fx_pytree", "pytree"),
    *("__doc__", "__spec__", "self", "_operator_contains", "self_1", "forward", "x_99999999999", "n" * 240 + "_1"),
]


def named(names):
    made = fx.Graph()
    nodes = [made.placeholder("x"), made.placeholder("y_1"), made.placeholder("torch")]
    for name in names:
        nodes.append(made.call_function(operator.contains, (nodes[-1], nodes[0])))
        nodes[-1].name = name
    made.output(nodes[2:])
    return made


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
def test_name(name):
    same(lambda: named([name, name, "x", f"{name}_1", name, f"{name}_2"]))


def test_builtin_that_is_none(monkeypatch):
    monkeypatch.setitem(fx_graph._illegal_names, "nothing", None)
    assert both(lambda: named(["nothing", "nothing"])) == 0


@pytest.mark.parametrize(
    "name", ["n" * 300, "n_99999999999999999999", "n_9223372036854775807", "n_9223372036854775806"]
)
def test_names_that_are_left_to_torch(name):
    assert both(lambda: named([name, name, name])) in (0, 1)


def test_name_of_a_placeholder_that_differs_from_its_parameter():
    def make():
        made = fx.Graph()
        made.placeholder("x").name = "other"
        made.placeholder("print")
        made.placeholder("torch")
        made.output(list(made.nodes))
        return made

    same(make)


def test_deletions():
    def make():
        made = fx.Graph()
        x, y, unused = (made.placeholder(name) for name in ("x", "y", "unused"))
        a = made.call_function(aten.add.Tensor, (y, x), {"alpha": y})
        b = made.call_function(aten.add.Tensor, (a, [x, (a, y)]))
        made.call_function(aten.neg.default, (b,))
        made.call_method("view", (b, unused, a))
        made.get_attr("weight")
        made.output((b,))
        made.call_function(aten.neg.default, (b,))
        return made

    same(make)


def test_nodes_used_before_they_come_and_by_themselves():
    def make():
        made = graph_of(
            ("call_function", aten.neg.default, ("%x",)),
            ("call_function", aten.add.Tensor, ("%x", "%neg_default")),
            output="%add_tensor",
        )
        _, neg, add, _ = made.nodes
        add.append(neg)
        neg.args = (neg, add)
        return made

    same(make)


# ---- graphs


values = st.recursive(
    st.one_of(
        *[st.integers(0, 99).map(lambda place: ("node", place))] * 3,
        st.integers(-3, 3),
        st.floats(),
        st.text(max_size=3).filter(lambda text: "#" not in text),
        st.sampled_from([None, True, torch.float16, torch.device("cpu"), torch.strided, torch.preserve_format, ...]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.tuples(inner, inner).map(lambda pair: (*pair, None)),
        st.dictionaries(st.sampled_from(["k", "l'", "\u00e4"]), inner, max_size=2),
        st.builds(slice, inner, inner, inner),
    ),
    max_leaves=5,
)
steps = st.tuples(
    st.one_of(
        st.sampled_from(FUNCTIONS),
        st.sampled_from(["call_method", "call_module", "get_attr"]).flatmap(
            lambda op: st.tuples(st.just(op), st.sampled_from(["view", "deep.0.w", "a-b"]))
        ),
    ),
    st.lists(values, min_size=2, max_size=4),
    st.dictionaries(st.sampled_from(["alpha", "dim", "k_1"]), values, max_size=2),
    st.one_of(st.none(), st.sampled_from(NAMES)),
)


def resolved(value, nodes):
    if type(value) is tuple and len(value) == 2 and value[0] == "node":
        return nodes[value[1] % len(nodes)]
    if isinstance(value, (tuple, list)):
        return type(value)(resolved(item, nodes) for item in value)
    if isinstance(value, dict):
        return {key: resolved(item, nodes) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(resolved(item, nodes) for item in (value.start, value.stop, value.step)))
    return value


def build(inputs, recipe, result, place):
    made = fx.Graph()
    nodes = [made.placeholder(f"x_{number}") for number in range(inputs)]
    nodes[-1].name = "y"
    for what, args, kwargs, name in recipe:
        op, target = what if isinstance(what, tuple) else ("call_function", what)
        node = made.create_node(op, target, (nodes[-1], *resolved(tuple(args), nodes)), resolved(kwargs, nodes))
        if name is not None:
            node.name = name
        nodes.append(node)
    output = made.output(resolved(result, nodes))
    nodes[place % len(nodes)].append(output)
    return made


@settings(max_examples=200)
@given(st.integers(1, 3), st.lists(steps, max_size=12), values, st.integers(-2, -1))
def test_any_graph(inputs, recipe, result, place):
    same(lambda: build(inputs, recipe, result, place))


def with_tree(spec, names, out_spec=None):
    made = graph_of(("call_function", aten.neg.default, ("%x",)), output=["%neg_default"])
    made.set_codegen(_PyTreeCodeGen(_PyTreeInfo(list(names), spec, out_spec)))
    return made


@pytest.mark.parametrize("tree", [[0], ((0,), {}), ((), {"a": 0}), (0, {"a": 0})], ids=str)
@pytest.mark.parametrize("out", [None, (0,), [0]], ids=str)
def test_code_generator_of_trees(tree, out):
    out_spec = None if out is None else pytree.tree_structure(out)
    for names in (["a"], ["self", "a"], []):
        same(lambda names=names: with_tree(pytree.tree_structure(tree), names, out_spec))


def test_code_generator_of_trees_without_inputs():
    def make():
        made = fx.Graph()
        made.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["a"], pytree.tree_structure(((0,), {})), None)))
        made.output(made.call_function(aten.rand.default, ([2],)))
        return made

    same(make)


def test_graphs_that_are_left_to_torch():
    def only_inputs():
        made = fx.Graph()
        made.placeholder("x")
        return made

    def typed():
        made = graph_of()
        next(iter(made.nodes)).type = torch.Tensor
        return made

    def default():
        made = fx.Graph()
        made.output(made.placeholder("x", default_value=1))
        return made

    def wrapped():
        made = graph_of(("call_function", aten.neg.default, ("%x",)))
        list(made.nodes)[1].meta["is_wrapped"] = True
        return made

    def transformed():
        made = graph_of()
        made.on_generate_code(lambda old: lambda body: ["pass\n", *body])
        return made

    class Own(CodeGen):
        def additional_globals(self):
            return [("extra", 1)]

    def own():
        made = graph_of()
        made.set_codegen(Own())
        return made

    same(fx.Graph)
    for make in (only_inputs, typed, default, wrapped, transformed, own):
        assert both(make) == 0, make


def test_options_are_left_to_torch():
    options = _recompile._OPTIONS - {"additional_meta"}
    assert {"verbose", "colored", "expanded_def", "record_func", "include_stride"} <= options
    for option in options:
        assert both(graph_of, **{option: True}) == 0
        assert both(graph_of, **{option: False}) == 1
    assert both(graph_of, additional_meta=["val"], verbose=True) == 0
    assert both(graph_of, "self.child") == 0
    with accelerate():
        assert "self" in graph_of().python_code(root_module="self").src
        for args, kwargs in (
            ((), {}),
            (("self", 1), {}),
            (("self",), {"root_module": "self"}),
            (("self",), {"odd": 1}),
        ):
            with pytest.raises(TypeError, match=r"python_code\(\)"):
                graph_of().python_code(*args, **kwargs)


def test_meta_in_code_is_left_to_torch(monkeypatch):
    monkeypatch.setenv("FX_GRAPH_SHOW_META", "1")
    assert both(graph_of) == 0


def test_graph_of_a_class_of_its_own():
    class Own(fx.Graph):
        def _python_code(self, *args, **kwargs):
            return PythonCode("mine", {}, {})

    def make():
        made = Own()
        made.output(made.placeholder("x"))
        return made

    assert both(make) == 0


def test_error_is_torchs():
    made = graph_of(("call_function", operator.add, ("%x",)))
    with pytest.raises(IndexError) as theirs:
        made.python_code("self")
    with accelerate(), pytest.raises(IndexError) as ours:
        made.python_code("self")
    assert str(ours.value) == str(theirs.value)


def test_operators_that_are_changed(monkeypatch):
    made = lambda: graph_of(("call_function", operator.add, ("%x", 1)))  # noqa: E731
    monkeypatch.setitem(fx_graph.magic_methods, "add", "plus({}, {})")
    assert both(made) == 0
    monkeypatch.setitem(fx_graph.magic_methods, "add", "{1} + {0}{{}}")
    assert both(made) == 0


def test_builtins_that_are_registered(monkeypatch):
    monkeypatch.setattr(fx_graph, "_custom_builtins", {**fx_graph._custom_builtins})
    monkeypatch.setitem(fx_graph._illegal_names, "added", operator)
    fx_graph._custom_builtins["added"] = fx_graph._CustomBuiltin("import operator as added", operator)
    assert both(lambda: named(["added", "added_1"])) == 0


# ---- real graphs


def equal_codes(module):
    """Whether all plain graphs below give equal code both ways, deferred and at once; how many there were."""
    done = 0
    for child in modules_of(module).values():
        theirs = seen(child.graph.python_code("self"))
        with accelerate():
            assert seen(child.graph.python_code("self")) == theirs
        record = _core.fx_record(child.graph, _recompile._least_arguments, CONSTANTS)
        code = generate(record[0], child.graph._codegen, "self") if record is not None else None
        if code is not None:
            done += 1
            assert seen(code) == theirs
            assert seen(_deferred._generate_by_torch(record[0], child.graph._codegen)) == theirs
    return done


@pytest.mark.parametrize("name", [*MODELS, "mobilenet"])
def test_models(name):
    program, args = exported(name)
    assert equal_codes(program.graph_module) == 1
    module = program.module()
    assert equal_codes(module) >= 1
    expected, text, lines = module(*args), module.code, module._lineno_map
    codes = module.forward.__code__
    with accelerate("recompile"), mock.patch.object(_deferred, "_generate_by_torch", None):
        module.recompile()
        assert is_pending(module)
        assert (module.code, module._lineno_map) == (text, lines)
        assert module.forward.__code__.co_code == codes.co_code
        assert module.forward.__code__.co_linetable == codes.co_linetable
        found = module(*args)
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_cond():
    program, x, scale = exported_cond()
    assert equal_codes(program.graph_module) == 3
    with accelerate("recompile"), mock.patch.object(_deferred, "_generate_by_torch", None):
        module = program.module()
        assert torch.equal(module(x, scale=scale)[0], program.module()(x, scale=scale)[0])


def test_converted_model():
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(48, 2))
    x = torch.randn(1, 2, 6, 6)
    quantizer = xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config())
    prepared = quantize_pt2e.prepare_pt2e(torch.export.export(model.eval(), (x,)).module(), quantizer)
    assert equal_codes(prepared) >= 1
    prepared(x)
    converted = quantize_pt2e.convert_pt2e(prepared)
    assert equal_codes(converted) >= 1
    text, expected = converted.code, converted(x)
    with accelerate("recompile"), mock.patch.object(_deferred, "_generate_by_torch", None):
        converted.recompile()
        assert "quantize_per_tensor" in converted.code == text
    assert torch.equal(converted(x), expected)


def test_verify():
    with accelerate("recompile", "python_code", verify=True):
        module = exported("llama")[0].module()
        module.graph.python_code("self")


# ---- giving up, memory


def test_torch_takes_over_what_is_given_up():
    make = lambda: named(["x", "torch"])  # noqa: E731
    expected = fx.GraphModule(torch.nn.Module(), make()).code

    def refuse(*args):
        raise ValueError("no record")

    with mock.patch.object(_core, "fx_revive_graph", refuse):
        with accelerate("recompile"):
            module = fx.GraphModule(torch.nn.Module(), make())
        assert is_pending(module)
        assert both(make) == 0
        assert module.code == expected
    with accelerate("recompile"):
        module = fx.GraphModule(torch.nn.Module(), named(["n" * 300]))
    assert is_pending(module)
    assert module.code == fx.GraphModule(torch.nn.Module(), named(["n" * 300])).code


def small_record():
    made = named(["x", "if", "y_1"])
    with made.inserting_before(made.output_node()):
        x = next(iter(made.nodes))
        made.call_function(operator.add, (x, [1.5, "\u00e4", torch.float16, {"k": slice(x, None)}]))
        made.call_module("a.0", (x,), {"k": 2**60})
    return _core.fx_record(made, _recompile._least_arguments, CONSTANTS)[0]


def test_records_that_are_none():
    record = small_record()
    size = 7
    assert len(record) % size == 0
    for odd in (record[1:], list(record), None):
        with pytest.raises(TypeError):
            _core.fx_revive_graph(odd, Graph())
    with pytest.raises(TypeError):
        _core.fx_revive_graph(record, fx.Graph())
    with pytest.raises(ValueError, match="empty graph"):
        graph = Graph()
        graph.placeholder("x")
        _core.fx_revive_graph(record, graph)
    assert generate((), CodeGen(), "self") is not None
    assert generate(record[size:], CodeGen(), "self") is None  # a node that others name is missing
    for place in (1, 2, 3, 4, 5, 6):
        for row in range(0, len(record), size):
            for value in (None, 1, "\ud800", (2j,), "root", {1: 2}):
                odd = (*record[: row + place], value, *record[row + place + 1 :])
                try:
                    generate(odd, CodeGen(), "self")
                except (TypeError, ValueError, AssertionError, AttributeError):
                    pass


def test_nothing_leaks():
    record = small_record()
    assert leaked(lambda: generate(record, CodeGen(), "self")) == 0
    assert leaked(lambda: generate(record[7:], CodeGen(), "self")) == 0


@pytest.mark.parametrize("lasting", [False, True])
def test_out_of_memory_at_every_point(lasting):
    testcapi = pytest.importorskip("_testcapi")
    record = small_record()
    expected = generate(record, CodeGen(), "self")
    failures = good = at = 0
    while good < 8:
        graph = Graph()
        testcapi.set_nomemory(at, 0 if lasting else at + 1)
        try:
            _core.fx_revive_graph(record, graph)
        except MemoryError:
            failures += 1
            good = -1
        finally:
            testcapi.remove_mem_hooks()
        good += 1
        at += 1
    assert failures > 10
    assert generate(record, CodeGen(), "self") == expected
