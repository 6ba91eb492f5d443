"""Tracing gives the graphs that torch.fx gives, with the same meta, options and concrete arguments."""

import copy
import functools
import math
import pickle
import types

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

import fastexport
import traced_programs
from fastexport import PH, Graph, Proxy, TraceError, Tracer, from_fx, symbolic_trace
from traced_programs import FUNCTIONS, MODULES, inputs, wrapped
from tracing import LlamaLike, ResNet, check_same, equal, small_mlp, traced_twice

# ---- the same graphs


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions(function):
    traced_twice(function)


@pytest.mark.parametrize("kind", MODULES, ids=lambda m: m.__name__)
def test_modules(kind):
    module = kind()
    graph, *_ = traced_twice(module)
    assert equal(graph.to_fx(module)(*inputs()), module(*inputs()))


def test_wrapped_functions():
    graph = symbolic_trace(wrapped).graph
    calls = [(node.target, node.meta) for node in graph.nodes if node.op == "call_function"]
    assert [target for target, _ in calls] == [
        traced_programs.wrapped_by_us,
        traced_programs.wrapped_by_torch,
        len,
        sum,
    ]
    assert all(meta == {"is_wrapped": True} for _, meta in calls)
    assert "len" not in vars(traced_programs), "what a trace patches is put back"


@pytest.mark.parametrize("build", [small_mlp, ResNet, LlamaLike], ids=lambda f: f.__name__)
def test_models(build):
    traced_twice(build())


def bert_parts(transformers):
    from transformers.models.bert import modeling_bert

    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    names = ("BertEmbeddings", "BertSelfOutput", "BertIntermediate", "BertOutput", "BertPooler", "BertLMPredictionHead")
    return [getattr(modeling_bert, name)(config) for name in names]


def llama_parts(transformers):
    from transformers.models.llama import modeling_llama

    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    return [
        modeling_llama.LlamaMLP(config),
        modeling_llama.LlamaRMSNorm(16),
        modeling_llama.LlamaRotaryEmbedding(config),
    ]


def gpt2_parts(transformers):
    from transformers.models.gpt2 import modeling_gpt2

    return [modeling_gpt2.GPT2MLP(32, transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50))]


@pytest.mark.parametrize("parts", [bert_parts, llama_parts, gpt2_parts], ids=lambda f: f.__name__)
def test_parts_of_transformers(parts, quiet):
    for module in parts(pytest.importorskip("transformers")):
        traced_twice(module.eval())


def with_shapes(base, proxy_base):
    """A tracer whose proxies know their shapes, as the one that transformers used to have."""

    class Shaped(proxy_base):
        value = None

        @property
        def shape(self):
            return super().shape if self.value is None else self.value.shape

        def size(self, dim=None):
            return self.shape if dim is None else self.shape[dim]

        def dim(self):
            return len(self.shape)

        def __len__(self):
            return self.shape[0]

        def __bool__(self):
            return True

    class ShapeTracer(base):
        def proxy(self, node):
            return Shaped(node, self)

        def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
            proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr, proxy_factory_fn)
            if kind == "placeholder":
                proxy.value = self.inputs[target]
            elif kind == "get_attr":
                proxy.value = torch.empty_like(self.root._parameters[target], device="meta")
            elif kind == "call_function" and isinstance(proxy, Shaped):
                proxy.value = self.run(target, args, kwargs)
            elif kind == "call_method":
                proxy.value = self.run(getattr(torch.Tensor, target), args, kwargs)
            elif kind == "call_module":
                module = copy.deepcopy(self.root.get_submodule(target)).to("meta")
                proxy.value = self.run(functools.partial(type(module).forward, module), args, kwargs)
            return proxy

        def run(self, function, args, kwargs):
            values = fx.node.map_aggregate((args, kwargs), lambda a: a.value if isinstance(a, Shaped) else a)
            values = fx.node.map_aggregate(values, lambda a: a.to("meta") if isinstance(a, torch.Tensor) else a)
            return function(*values[0], **values[1])

    return ShapeTracer


def test_tracers_that_know_shapes():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.w = nn.Parameter(torch.ones(4))

        def forward(self, x, mask):
            batch, length = x.size()
            h = self.fc(x) * self.w
            for i in range(len(x)):
                h = h + i
            if mask is not None and h.dim() == 2 and h.shape[-1] == 4:
                h = torch.where(mask, h, h.view(batch, length).sum(dim=-1, keepdim=True).expand(batch, length))
            return h.transpose(0, 1).reshape(batch * length)

    def make(base, proxy):
        def build():
            tracer = with_shapes(base, proxy)()
            tracer.inputs = {"x": torch.empty(2, 4, device="meta"), "mask": torch.empty(2, 4, device="meta") > 0}
            return tracer

        return build

    traced_twice(M(), make(Tracer, Proxy), make(fx.Tracer, fx.Proxy))


def test_llama_runs():
    module = LlamaLike()
    ids, mask = torch.arange(8)[None], torch.zeros(1, 1, 8, 8)
    assert equal(symbolic_trace(module)(ids, mask), module(ids, mask))


# ---- the result


def test_symbolic_trace_gives_a_module():
    module = traced_programs.Parts()
    traced = symbolic_trace(module)
    assert type(traced) is fastexport.GraphModule and type(traced.graph) is Graph
    assert traced.weight is module.weight and traced.linear.bias is module.linear.bias
    assert equal(traced(*inputs()), module(*inputs()))
    assert traced.code == fx.symbolic_trace(module).code


def test_constants_stay_with_the_root():
    traced = symbolic_trace(traced_programs.constants)
    assert torch.equal(traced._tensor_constant1, torch.tensor([3.0, 4.0]))
    assert equal(traced(*inputs()), traced_programs.constants(*inputs()))


def test_extras_are_those_of_torch():
    ours, theirs = symbolic_trace(small_mlp()).graph, from_fx(fx.symbolic_trace(small_mlp()))
    assert ours.extras == theirs.extras
    assert pickle.loads(pickle.dumps(ours)) == theirs


def test_a_tracer_of_ones_own_does_not_come_into_torchs_modules():
    class Mine(Tracer):
        pass

    module = Mine().trace(small_mlp()).to_fx(small_mlp())
    assert module._tracer_cls is fx.Tracer
    assert str(pickle.loads(pickle.dumps(module)).graph) == str(module.graph)


def test_traces_of_traced_modules():
    theirs = fx.symbolic_trace(small_mlp())
    traced_twice(theirs)


def test_make_fx_and_dynamo_graphs_come_in():
    made = make_fx(lambda x, y: torch.relu(x) + y)(*inputs())
    assert str(from_fx(made)) == str(made.graph)
    seen = []

    def backend(module, example_inputs):
        seen.append(from_fx(module))
        return module.forward

    torch._dynamo.reset()
    torch.compile(lambda x, y: torch.relu(x) + y, backend=backend)(*inputs())
    torch._dynamo.reset()
    assert [node.op for node in seen[0].nodes] == [
        "placeholder",
        "placeholder",
        "call_function",
        "call_function",
        "output",
    ]


# ---- options of tracers


def make(base):
    """The same tracers on top of torch's and of ours."""

    class NoLeaves(base):
        def is_leaf_module(self, m, module_qualified_name):
            return False

    class LeafBlocks(base):
        def is_leaf_module(self, m, module_qualified_name):
            return isinstance(m, traced_programs.Block) or super().is_leaf_module(m, module_qualified_name)

    class Renaming(base):
        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            node = super().create_node(kind, target, args, kwargs, f"n_{name or kind}", type_expr)
            node.meta["seen"] = kind
            return node

    class OwnArguments(base):
        def create_arg(self, a):
            return super().create_arg(a + 1 if type(a) is int else a)

    class OwnProxies(base):
        def create_proxy(self, *args, **kwargs):
            proxy = super().create_proxy(*args, **kwargs)
            proxy.node.meta["by"] = args[0]
            return proxy

    class KnownTruth(base):
        def to_bool(self, obj):
            return True

        def iter(self, obj):
            return iter([obj[0], obj[1]])

        def keys(self, obj):
            return ["a", "b"]

    class Buffers(base):
        proxy_buffer_attributes = True

    class Unwrapped(base):
        def getattr(self, attr, attr_val, parameter_proxy_cache):
            return attr_val

    class Paths(base):
        def path_of_module(self, mod):
            return f"{super().path_of_module(mod)}"

        def call_module(self, m, forward, args, kwargs):
            return super().call_module(m, forward, args, kwargs)

    found = (NoLeaves, LeafBlocks, Renaming, OwnArguments, OwnProxies, Buffers, Unwrapped, Paths, KnownTruth)
    return {kind.__name__: kind for kind in found}


OURS, THEIRS = make(Tracer), make(fx.Tracer)


@pytest.mark.parametrize("name", [name for name in OURS if name != "KnownTruth"])
@pytest.mark.parametrize("kind", [traced_programs.Parts, traced_programs.Nested], ids=lambda m: m.__name__)
def test_overridden_methods(name, kind):
    traced_twice(kind(), OURS[name], THEIRS[name])


@pytest.mark.parametrize("name", [name for name in OURS if name != "KnownTruth"])
def test_tracers_written_for_torch(name):
    class Mine(THEIRS[name], Tracer):
        pass

    traced_twice(traced_programs.Parts(), Mine, THEIRS[name])


def test_copies_of_tracers():
    module = traced_programs.Parts()
    tracer = Tracer(autowrap_functions=(abs,))
    graph = tracer.trace(module)
    twin = copy.deepcopy(tracer)
    assert twin.graph is not graph and str(twin.graph) == str(graph) and twin.root is not module
    assert twin.node_name_to_scope == tracer.node_name_to_scope
    assert str(twin.trace(twin.root)) == str(graph) and twin._autowrap_search == tracer._autowrap_search


def test_overridden_truth_and_iteration():
    def program(x, y):
        if x.sum() > 0:
            x = x + 1
        for row in y:
            x = x * row
        return x, torch.cat([row + 0 for row in y]), *dict(**y).values()

    traced_twice(program, OURS["KnownTruth"], THEIRS["KnownTruth"])


@pytest.mark.parametrize("option", ["record_stack_traces", "check_mutable_operations"])
def test_recording_options(option):
    def program(x, y):
        return torch.add(x, y).relu()

    def trace(base):
        tracer = base()
        setattr(tracer, option, True)
        return tracer.trace(program)

    check_same(trace(Tracer), trace(fx.Tracer))


def test_stack_traces_point_into_forward():
    tracer = Tracer()
    tracer.record_stack_traces = True
    graph = tracer.trace(traced_programs.Parts())
    (node,) = graph.find_nodes(op="call_function", target=F.linear)
    assert "F.linear(x, self.weight, self.linear.bias)" in node.stack_trace


def test_methods_set_on_one_tracer_are_called():
    tracer, seen = Tracer(), []
    create = tracer.create_node

    def create_node(kind, *args, **kwargs):
        seen.append(kind)
        return create(kind, *args, **kwargs)

    def program(x):
        tracer.create_node = create_node
        y = x + 1
        del tracer.create_node
        return y * 2

    graph = tracer.trace(program)
    assert seen == ["call_function"] and len(graph.nodes) == 4


def test_preserved_meta_reaches_nodes():
    from torch.fx import traceback

    def program(x):
        with traceback.annotate({"stage": 1}):
            y = x + 1
        return y * 2

    def trace(base):
        with traceback.preserve_node_meta():
            return base().trace(program)

    ours, theirs = trace(Tracer), trace(fx.Tracer)
    assert [node.meta.get("custom") for node in ours.nodes] == [None, {"stage": 1}, None, None]
    assert [node.meta.get("custom") for node in theirs.nodes] == [None, {"stage": 1}, None, None]


def test_param_shapes_constant():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2, 3))

        def forward(self, x):
            w = self.w
            if w.shape[0] == 2 and w.dim() == 2 and w.ndim == 2 and w.numel() == 6 and w.nelement() == 6:
                x = x + w.size()[1]
            return x * w

    def shapes(base):
        return base(param_shapes_constant=True)

    traced_twice(M(), functools.partial(shapes, Tracer), functools.partial(shapes, fx.Tracer))
    proxy = Tracer(param_shapes_constant=True)
    proxy.trace(M())
    with pytest.raises(TraceError, match="control flow"):
        Tracer().trace(M())
    with pytest.raises(TypeError, match="torch.nn.Parameter"):
        fastexport.ParameterProxy(proxy, next(iter(proxy.graph.nodes)), "w", torch.ones(1))


def test_autowrap():
    def helper(x):
        return x + 1 if x.sum() > 0 else x

    namespace = types.ModuleType("helpers_of_a_test")
    namespace.helper = helper
    exec("def program(x):\n    return helper(x)\n", namespace.__dict__)

    def by_function(base):
        return base(autowrap_functions=(helper,))

    def by_module(base):
        return base(autowrap_modules=(math, namespace))

    for with_options in (by_function, by_module):
        graph, *_ = traced_twice(
            namespace.program, functools.partial(with_options, Tracer), functools.partial(with_options, fx.Tracer)
        )
        assert graph.find_nodes(op="call_function", target=helper)
        assert namespace.helper is helper


def test_a_parameter_that_moves_while_it_is_traced():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))
            self.inner = nn.Module()

        def forward(self, x):
            value = self._parameters["w"]
            x = x + value
            self.inner.moved = self._parameters.pop("w")
            x = x * self.inner.moved * value
            self.w = value
            del self.inner._parameters["moved"]
            return x

    traced_twice(M())


def test_many_parameters_take_linear_time():
    class Walks(nn.Module):
        walks = 0

        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(50)])
            self.register_buffer("b", torch.ones(1))

        def named_parameters(self, *args, **kwargs):
            Walks.walks += 1
            return super().named_parameters(*args, **kwargs)

        def forward(self, x):
            for w in self.weights:
                x = x * w + self.b
            return x

    Tracer().trace(Walks())
    assert Walks.walks == 1


# ---- concrete arguments


def specialised(a, b):
    return a if b == True else a * 2  # noqa: E712


def nested_inputs(x, flag):
    out = 0
    for value in x.values():
        out = out + value[0] * value[1]
    return {"out": out, "first": x["a"][0]} if flag else out


@pytest.mark.parametrize(
    "function, concrete",
    [
        (specialised, {"b": False}),
        (specialised, {"b": True}),
        (specialised, {"b": None}),
        (specialised, {"b": 3}),
        (specialised, {"b": "text"}),
        (specialised, {"b": Ellipsis}),
        (specialised, {"a": PH, "b": False}),
        (specialised, (PH, False)),
        (nested_inputs, {"x": {"a": (PH, PH), "b": (PH, PH)}, "flag": True}),
        (nested_inputs, {"x": {"a": (PH, 2), "b": [PH, None or 1]}, "flag": False}),
        (traced_programs.starred, {"x": PH}),
        (traced_programs.defaults, {"y": 3, "flag": None}),
    ],
)
def test_concrete_args(function, concrete):
    graph, _, wanted, _ = traced_twice(function, concrete_args=concrete)
    assert graph.to_fx().python_code("self").src == wanted.python_code("self").src


def test_flattened_inputs_run():
    concrete = {"x": {"a": (PH, PH), "b": (PH, PH)}, "flag": True}
    traced = symbolic_trace(nested_inputs, concrete_args=concrete)
    x = {"a": inputs(), "b": inputs()}
    assert equal(traced(x, True), nested_inputs(x, True))
    assert equal(traced.graph.to_fx(nn.Module())(x, True), nested_inputs(x, True))
    with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
        traced(x, False)


def test_flat_concrete_args_of_a_starred_function():
    class M(nn.Module):
        def forward(self, *args):
            return args[0] + args[1]

    traced_twice(M(), concrete_args=(PH, PH))


def test_marks_on_placeholders_go_into_meta():
    from torch.fx._symbolic_trace import PHWithMeta

    graph = Tracer().trace(specialised, concrete_args={"a": PHWithMeta(ph_key="key"), "b": False})
    assert next(iter(graph.nodes)).meta == {"ph_key": "key"}


def test_wrong_concrete_args():
    with pytest.raises(RuntimeError, match="expected 2 arguments but got 1"):
        symbolic_trace(specialised, concrete_args=(PH,))
    with pytest.raises(RuntimeError, match="self"):

        class M(nn.Module):
            def forward(*args):
                return args[0]

        symbolic_trace(M())


# ---- programs made at random

STEPS = [
    lambda a, b: a + b,
    lambda a, b: 2 - a * b,
    lambda a, b: -torch.relu(a) / 3,
    lambda a, b: a.sub(b, alpha=2).clamp(min=-9.0, max=9.0),
    lambda a, b: torch.cat([a, b])[:2],
    lambda a, b: torch.where(a > b, a, b.T),
    lambda a, b: torch.stack((a, b), dim=0).sum(0),
    lambda a, b: a.shape[0] * b,
    lambda a, b: torch.split(a, 1)[0] + b,
    lambda a, b: a.t() @ b,
    lambda a, b: F.softmax(a, dim=-1, dtype=torch.float32),
    lambda a, b: traced_programs.wrapped_by_torch(a),
    lambda a, b: torch.add(*[a, b], **{"alpha": 0.5}),
    lambda a, b: (lambda first, second: torch.stack([second, first]))(*unpacked(a)),
    lambda a, b: a + torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
]


def unpacked(value):
    first, second = value
    return first, second


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), max_size=9))
def test_random_programs(steps):
    def program(x, y):
        values = [x, y]
        for step, a, b in steps:
            values.append(step(values[a % len(values)], values[b % len(values)]))
        return values[-1], {"all": values[1:], "first": (values[0], 1)}

    graph, tracer, _, _ = traced_twice(program)
    wanted, module = program(*inputs()), fastexport.GraphModule(tracer.root, graph)
    assert equal(module(*inputs()), wanted)
    assert equal(fastexport.Interpreter(module).run(*inputs()), wanted)


def test_accelerated_torch():
    with fastexport.accelerate():
        tracer = Tracer()
        graph = tracer.trace(traced_programs.Parts())
        assert tracer._records_directly()
    check_same(graph, fx.Tracer().trace(traced_programs.Parts()))
