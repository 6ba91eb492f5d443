"""What tests of the torch bridge share: torch.fx graphs of many kinds, and all that is seen of one as plain values."""

import collections
import functools
import operator
import pathlib
import sys

import hypothesis.strategies as st
import torch
from torch import fx

from helpers import names, plain

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "benchmarks"))
import zoo

aten = torch.ops.aten
Pair = collections.namedtuple("Pair", "first second")

# ---- what can be seen of a graph


def links(node):
    """What a node is made of and tied to, erased or not."""
    return {
        "name": node.name,
        "op": node.op,
        "target": node.target,
        "args": plain(node.args),
        "kwargs": plain(node.kwargs),
        "type": node.type,
        "meta": [(key, id(value)) for key, value in node.meta.items()],
        "users": names(node.users),
        "inputs": names(node._input_nodes),
        "prev": node._prev.name,
        "next": node._next.name,
        "erased": node._erased,
    }


def namespace(graph):
    space = graph._graph_namespace
    return space._used_names, space._base_count, [space._obj_to_name.get(node) for node in graph.nodes]


def table(graph):
    """What find_nodes looks into: names by opcode and target, in the table's own order."""
    return {key: names(nodes) for key, nodes in graph._find_nodes_lookup_table.table.items() if nodes}


def state(graph):
    """Everything of a torch.fx graph that an edit can change."""
    nodes = list(graph.nodes)
    assert all(node.graph is graph for node in nodes)
    assert list(reversed(graph.nodes)) == nodes[::-1]
    assert all(a < b for a, b in zip(nodes, nodes[1:], strict=False))
    return {
        "text": str(graph),
        "nodes": [links(node) for node in nodes],
        "len": graph._len,
        "table": table(graph),
        "namespace": namespace(graph),
        "output": names(graph.find_nodes(op="output")),
    }


def modules_of(module):
    return {path: child for path, child in module.named_modules() if isinstance(child, fx.GraphModule)}


def module_state(module):
    """The state and the code of a GraphModule and of those below it."""
    return {path: (state(child.graph), child.code) for path, child in modules_of(module).items()}


# ---- small graphs


def root_module():
    """A GraphModule with what call_module and get_attr nodes can refer to."""
    root = fx.GraphModule(torch.nn.Module(), fx.Graph())
    root.linear = torch.nn.Linear(2, 2)
    root.weight = torch.nn.Parameter(torch.ones(2))
    root.deep = torch.nn.Module()
    root.deep.relu = torch.nn.ReLU()
    root.deep.impure = torch.nn.ReLU()
    root.deep.impure._is_impure = True
    return root


def owned(graph, module=None):
    """A GraphModule of the graph, which becomes its owning module. No code is made of it: that may be impossible."""
    module = root_module() if module is None else module
    module._graph = graph
    graph.owning_module = module
    return module


def graph_of(*steps, output=None):
    """A graph of placeholder x and of steps (op, target, args[, kwargs]); a string "%name" stands for a node."""
    graph = fx.Graph()
    made = {"%x": graph.placeholder("x")}

    def resolved(value):
        if isinstance(value, (tuple, list)):
            return type(value)(map(resolved, value))
        return made.get(value, value) if isinstance(value, str) else value

    for op, target, args, *kwargs in steps:
        mapped = {key: resolved(value) for key, value in kwargs[0].items()} if kwargs else {}
        node = graph.create_node(op, target, resolved(args), mapped)
        made[f"%{node.name}"] = node
    graph.output(resolved(output if output is not None else "%x"))
    return graph


def exported_cond():
    """A program with a torch.cond, so with subgraphs; its argument x and its keyword argument scale."""

    class Choose(torch.nn.Module):
        def forward(self, x, *, scale):
            def double(y):
                return (y * 2 * scale,)

            def negate(y):
                return (y.neg() + 1,)

            return torch.cond(x.sum() > 0, double, negate, (x,))

    x, scale = torch.ones(3), torch.tensor(1.5)
    return torch.export.export(Choose(), (x,), {"scale": scale}), x, scale


@functools.cache
def exported(name):
    """A real model of one layer as an ExportedProgram; not to be changed. And its arguments."""
    module, args = zoo.build(name, 1)
    with torch.no_grad():
        return torch.export.export(module, args), args


MODELS = ["bert", "llama", "vit", "resnet"]

# ---- random graphs

Ref = collections.namedtuple("Ref", "place")  # a node, by its place in the graph when it is used
Step = collections.namedtuple("Step", "do what args kwargs name type meta")

CALLS = [
    ("call_function", operator.add),
    ("call_function", operator.getitem),
    ("call_function", operator.setitem),
    ("call_function", torch.relu),
    ("call_function", torch._assert),
    ("call_function", aten.add.Tensor),
    ("call_function", aten.add_.Tensor),
    ("call_function", aten.rand.default),
    ("call_function", aten._assert_async.msg),
    ("call_function", len),
    ("call_method", "relu"),
    ("call_method", "mul_"),
    ("call_module", "linear"),
    ("call_module", "deep.impure"),
    ("call_module", "deep.relu"),
    ("get_attr", "weight"),
    ("get_attr", "linear.weight"),
]
# Meta values whose identity is compared.
META = {"val": object(), "tag": {"nested": [1]}, "stack_trace": "File 'a'"}

refs = st.integers(0, 99).map(Ref)
leaves = st.one_of(
    refs,
    refs,
    st.integers(-2, 2),
    st.sampled_from([None, True, 1.5, float("inf"), 2j, 1 << 70, "a'b\n", torch.float16, range(3), ...]),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["k", "out", 3]), inner, max_size=2),
        st.builds(slice, inner, inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=5,
)
kwargs = st.dictionaries(st.sampled_from(["out", "alpha", "other"]), trees, max_size=2)
plain_names = st.sampled_from([None, None, None, "a", "add", "add_1", "x_07", "relu_2"])
types = st.sampled_from([None, None, int, torch.Tensor, "annotation"])
metas = st.lists(st.sampled_from(sorted(META)), unique=True, max_size=2).map(lambda keys: {k: META[k] for k in keys})

calls = st.builds(
    Step, st.just("call"), st.sampled_from(CALLS), st.lists(trees, max_size=3), kwargs, plain_names, types, metas
)
getitems = st.builds(
    Step,
    st.just("call"),
    st.just(("call_function", operator.getitem)),
    st.tuples(refs, st.sampled_from([0, 1, "0", True, slice(None, 1), (0, 1)])).map(list),
    st.just({}),
    st.none(),
    st.none(),
    metas,
)
edits = st.builds(
    Step,
    st.sampled_from(["erase", "replace", "args", "input", "retarget"]),
    st.tuples(st.integers(0, 99), st.integers(0, 99)),
    st.lists(trees, max_size=3),
    kwargs,
    st.none(),
    st.none(),
    st.none(),
)
recipes = st.lists(st.one_of(calls, calls, getitems, edits), max_size=14).flatmap(
    lambda steps: st.tuples(st.just(steps), trees)
)


def made(value, nodes):
    """A tree of a recipe with its Refs replaced by nodes, counted round."""
    if isinstance(value, Ref):
        return nodes[value.place % len(nodes)]
    if isinstance(value, Pair):
        return Pair(*(made(item, nodes) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(made(item, nodes) for item in value)
    if isinstance(value, dict):
        return {key: made(item, nodes) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(made(item, nodes) for item in (value.start, value.stop, value.step)))
    return value


def made_kwargs(kwargs, target, nodes):
    """No keyword out for an operator of torch.ops: those that take it say so in their schema, and none is used here."""
    if isinstance(target, torch._ops.OpOverload):
        kwargs = {key: value for key, value in kwargs.items() if key != "out"}
    return made(kwargs, nodes)


def edit(graph, step):
    """One random edit that leaves the graph well formed; none when it would not."""
    nodes = list(graph.nodes)
    first, second = sorted(place % len(nodes) for place in step.what)
    earlier, later = nodes[first], nodes[second]
    if step.do == "erase":
        if not later.users and later.op not in ("placeholder", "output"):
            graph.erase_node(later)
    elif step.do == "replace":
        if earlier is not later and later.op != "output":
            later.replace_all_uses_with(earlier)
    elif step.do == "args":
        if later.op.startswith("call_") and second:
            later.args = made(tuple(step.args), nodes[:second])
            later.kwargs = made_kwargs(step.kwargs, later.target, nodes[:second])
    elif step.do == "input":
        if later.op.startswith("call_") and later._input_nodes:
            later.replace_input_with(next(iter(later._input_nodes)), nodes[0])
    elif later.target is aten.add.Tensor:
        later.target = aten.sub.Tensor


def build(recipe):
    """The graph of a recipe; equal each time, with an owning module of its own."""
    steps, result = recipe
    graph = fx.Graph()
    for name in ("x", "y"):
        graph.placeholder(name).meta = {"val": META["val"]}
    for step in steps:
        if step.do != "call":
            edit(graph, step)
            continue
        nodes = list(graph.nodes)
        (op, target) = step.what
        args = tuple(made(item, nodes) for item in step.args) if op != "get_attr" else ()
        node = graph.create_node(op, target, args, made_kwargs(step.kwargs, target, nodes), step.name, step.type)
        node.meta = dict(step.meta)
    graph.output(made(result, list(graph.nodes)))
    owned(graph)
    return graph
