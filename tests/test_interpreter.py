"""Interpreter gives what torch.fx.Interpreter gives, bit for bit; Transformer rebuilds graphs as torch's does."""

import collections
import copy
import gc
import operator
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

import fastexport
import traced_programs
from fastexport import Graph, GraphModule, Interpreter, Transformer, symbolic_trace
from test_tracing import LlamaLike, equal, small_mlp
from traced_programs import FUNCTIONS, MODULES, inputs

NOT_RUN = {"nothing", "ignores", "starred", "only_starred", "keywords_only", "annotated", "defaults"}
RUN = [function for function in FUNCTIONS if function.__name__ not in NOT_RUN]


def traced_pair(root):
    theirs = fx.symbolic_trace(copy.deepcopy(root) if isinstance(root, nn.Module) else root)
    return symbolic_trace(root), theirs


# ---- the same results


@pytest.mark.parametrize("function", RUN, ids=lambda f: f.__name__)
def test_functions(function):
    ours, theirs = traced_pair(function)
    wanted = fx.Interpreter(theirs).run(*inputs())
    assert equal(Interpreter(ours).run(*inputs()), wanted)
    assert equal(Interpreter(ours).boxed_run(list(inputs())), wanted)
    assert equal(Interpreter(ours, garbage_collect_values=False).run(*inputs()), wanted)


@pytest.mark.parametrize("kind", MODULES, ids=lambda m: m.__name__)
def test_modules(kind):
    module = kind()
    ours, theirs = traced_pair(module)
    wanted = fx.Interpreter(theirs).run(*inputs())
    assert equal(Interpreter(ours).run(*inputs()), wanted)
    assert equal(Interpreter(module, graph=ours.graph).run(*inputs()), wanted)
    assert equal(Interpreter(theirs).run(*inputs()), wanted), "a module of torch's is read first"
    assert equal(Interpreter(theirs, graph=ours.graph).run(*inputs()), wanted)
    assert equal(Interpreter(ours.graph).run(*inputs()), wanted), "a graph stands for its owning module"


def test_defaults_and_stars():
    ours, theirs = traced_pair(traced_programs.annotated)
    x, _ = inputs()
    assert equal(Interpreter(ours).run(x), fx.Interpreter(theirs).run(x))
    g = Graph()
    x, rest = g.placeholder("x"), g.placeholder("*rest")
    g.output((x, rest))
    assert Interpreter(GraphModule({}, g)).run(1, 2, 3) == (1, [2, 3])
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
        Interpreter(GraphModule({}, g)).run()


def test_flattened_inputs():
    from test_tracing import PH, nested_inputs

    concrete = {"x": {"a": (PH, PH), "b": (PH, PH)}, "flag": True}
    ours, theirs = (trace(nested_inputs, concrete_args=concrete) for trace in (symbolic_trace, fx.symbolic_trace))
    x = {"a": inputs(), "b": inputs()}
    wanted = fx.Interpreter(theirs).run(x, True)
    assert equal(Interpreter(ours).run(x, True), wanted)
    flat = [*inputs(), *inputs(), True]
    wanted = fx.Interpreter(theirs).run(*flat, enable_io_processing=False)
    assert equal(Interpreter(ours).run(*flat, enable_io_processing=False), wanted)


def test_an_initial_environment():
    module = symbolic_trace(lambda x: (x + 1) * 2)
    x, add, mul, out = module.graph.nodes
    interpreter = Interpreter(module, garbage_collect_values=False)
    assert interpreter.run(1, initial_env={add: 10}) == 20
    assert interpreter.env == {add: 10, x: 1, mul: 20, out: 20}


def test_wrong_number_of_boxed_arguments():
    with pytest.raises(RuntimeError, match="expected 1 arguments for placeholders but received 2 .extra arguments"):
        Interpreter(symbolic_trace(lambda x: x)).boxed_run([1, 2])


def test_boxed_arguments_are_let_go():
    class Value:
        def __neg__(self):
            return 1

    g = Graph()
    x = g.placeholder("x")
    neg = g.call_function(operator.neg, (x,))
    seen = []
    g.output(g.call_function(lambda value: seen.append(ref()) or value, (neg,), name="look"))
    value = Value()
    ref, args = weakref.ref(value), [value]
    del value
    assert Interpreter(GraphModule({}, g)).boxed_run(args) == 1
    assert args == [] and seen == [None]


def test_what_has_no_graph():
    for thing in (nn.ReLU(), None, 3):
        with pytest.raises(TypeError, match="module with a Graph"):
            Interpreter(thing)


# ---- values and their last uses


class Point(collections.namedtuple("Point", "x y")):
    pass


def test_arguments_are_given_as_torch_gives_them():
    def see(*args, **kwargs):
        seen.append((args, kwargs))
        return 0

    def build(graph):
        x = graph.placeholder("x")
        args = (
            x,
            [x, (1, x)],
            {"k": [x]},
            slice(x, None, 2),
            Point(x, 2),
            None,
            1.5,
            "s",
            torch.Size([2]),
            ...,
            [],
            (),
        )
        graph.output(graph.call_function(see, args, {"key": x, "more": {"a": (x,)}}, name="see"))
        return graph

    def kinds(value):
        if isinstance(value, (list, tuple)):
            return [type(value).__name__, *map(kinds, value)]
        if isinstance(value, dict):
            return [type(value).__name__, *((key, kinds(item)) for key, item in value.items())]
        return kinds((value.start, value.stop, value.step)) if isinstance(value, slice) else (type(value), value)

    seen = []
    Interpreter(nn.Module(), graph=build(Graph())).run(7)
    fx.Interpreter(nn.Module(), graph=build(fx.Graph())).run(7)
    assert kinds(seen[0][0]) == kinds(seen[1][0]) and kinds(seen[0][1]) == kinds(seen[1][1])


def test_lists_can_not_be_changed_by_what_is_called():
    g = Graph()
    x = g.placeholder("x")
    g.output(g.call_function(lambda items: items.append(1), ([x, 2],), name="append"))
    with pytest.raises(TypeError, match="immutable_list"):
        Interpreter(nn.Module(), graph=g).run(1)
    assert g.node("append").args == ([x, 2],)


@given(st.lists(st.lists(st.integers(0, 8), max_size=4), max_size=9))
def test_last_uses(uses):
    def build(graph):
        nodes = [graph.placeholder("x")]
        for operands in uses:
            nodes.append(graph.call_function(max, tuple(nodes[i % len(nodes)] for i in operands), name="n"))
        graph.output((nodes[-1], [nodes[len(nodes) // 2]]))
        return graph

    def named(found):
        return [(user.name, [node.name for node in nodes]) for user, nodes in found.items()]

    ours = Interpreter(nn.Module(), graph=build(Graph())).user_to_last_uses
    theirs = fx.Interpreter(nn.Module(), graph=build(fx.Graph())).user_to_last_uses
    assert named(ours) == named(theirs)


def test_last_uses_follow_edits():
    module = symbolic_trace(lambda x, y: (x + y).neg())
    interpreter = Interpreter(module)
    neg = module.graph.node("neg")
    with module.graph.inserting_after(neg):
        late = module.graph.call_function(operator.mul, (neg, module.graph.node("x")))
    module.graph.output_node().args = (late,)
    assert torch.equal(interpreter.run(torch.tensor(2.0), torch.tensor(1.0)), torch.tensor(-6.0))
    assert list(interpreter.env) == [module.graph.output_node()]


def test_missing_values():
    g = Graph()
    x = g.placeholder("x")
    g.output(g.call_function(operator.neg, (x,)))
    interpreter = Interpreter(nn.Module(), graph=g)
    with pytest.raises(RuntimeError, match="Node neg referenced nonexistent value x"):
        interpreter.map_nodes_to_values(([x],), g.node("neg"))
    interpreter.env = collections.UserDict({x: 5})
    assert interpreter.map_nodes_to_values({"a": (x, 1)}, x) == {"a": (5, 1)}


def test_values_in_hostile_containers():
    from fastexport import _core

    g = Graph()
    x = g.placeholder("x")

    class Grows(dict):
        def __missing__(self, node):
            items.append(x)
            if len(items) > 6:
                raise ZeroDivisionError
            return 1

    items = [x, x, x]
    assert _core.map_nodes(items, Grows(), None) == [1, 1, 1]
    with pytest.raises(ZeroDivisionError):
        _core.map_nodes(items, Grows(), None)
    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        _core.map_nodes(endless, {}, None)
    with pytest.raises(TypeError):
        _core.map_nodes([x], {}, 3)
    with pytest.raises(TypeError):
        _core.map_nodes([x], {})
    with pytest.raises(TypeError, match="Graph of fastexport"):
        _core.last_uses(fx.Graph())

    class Fields(tuple):
        _fields = ("a",)

        def __new__(cls, *args):
            raise KeyError("no instance")

    with pytest.raises(KeyError, match="no instance"):
        _core.map_nodes(tuple.__new__(Fields, (x,)), {x: 1}, None)


# ---- overridden methods


def test_overridden_methods_are_called():
    def make(base):
        class Swaps(base):
            def call_function(self, target, args, kwargs):
                return (
                    torch.sigmoid(*args, **kwargs)
                    if target is torch.neg
                    else super().call_function(target, args, kwargs)
                )

            def call_method(self, target, args, kwargs):
                return super().call_method("sigmoid" if target == "neg" else target, args, kwargs)

            def get_attr(self, target, args, kwargs):
                return super().get_attr(target, args, kwargs) * 2

            def call_module(self, target, args, kwargs):
                return super().call_module(target, args, kwargs) + 1

            def placeholder(self, target, args, kwargs):
                return super().placeholder(target, args, kwargs) + 0.5

            def output(self, target, args, kwargs):
                return [super().output(target, args, kwargs)]

            def run_node(self, n):
                order.append(n.name)
                return super().run_node(n)

        return Swaps

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.act = nn.Parameter(torch.tensor(3.0)), nn.ReLU()

        def forward(self, x, y):
            return torch.neg(x).neg() * self.weight + self.act(y)

    ours, theirs = traced_pair(M())
    order = []
    wanted = make(fx.Interpreter)(theirs).run(*inputs())
    expected, order = order, []
    assert equal(make(Interpreter)(ours).run(*inputs()), wanted)
    assert order == expected


def test_interpreters_written_for_torch():
    class Shapes(ShapeProp, Interpreter):
        pass

    ours, theirs = traced_pair(traced_programs.Convolutions())
    assert equal(Shapes(ours).propagate(*inputs()), ShapeProp(theirs).propagate(*inputs()))
    metas = [
        [(node.name, node.meta.get("tensor_meta"), node.meta["type"]) for node in m.graph.nodes] for m in (ours, theirs)
    ]
    assert metas[0] == metas[1] and metas[0][-1][1].shape == (1, 2)


# ---- errors


def fails(x):
    return x.neg() @ torch.ones(3, 3)


def test_errors_tell_the_node():
    module = symbolic_trace(fails)
    node = module.graph.node("matmul")
    node.stack_trace = '  File "model.py", line 3, in forward'
    with pytest.raises(RuntimeError) as info:
        Interpreter(module).run(inputs()[0])
    with pytest.raises(RuntimeError) as torchs:
        theirs = fx.symbolic_trace(fails)
        [n for n in theirs.graph.nodes if n.name == "matmul"][0].stack_trace = node.stack_trace
        fx.Interpreter(theirs).run(inputs()[0])
    assert str(info.value) == str(torchs.value).split("\nUse tlparse")[0]
    assert f"While executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}" in str(info.value)


@pytest.mark.parametrize("error", [KeyError("k"), ValueError(), OSError(2, "gone"), ValueError(3, 4)], ids=repr)
def test_errors_keep_their_kind(error):
    def raises(x):
        raise copy.copy(error)

    def outcome(interpreter, **options):
        with pytest.raises(Exception) as info:
            interpreter.run(1)
        return type(info.value), [str(arg).split("\nUse tlparse")[0] for arg in info.value.args]

    def build(graph):
        graph.output(graph.call_function(raises, (graph.placeholder("x"),), name="raises"))
        return graph

    assert outcome(Interpreter(nn.Module(), graph=build(Graph()))) == outcome(
        fx.Interpreter(nn.Module(), graph=build(fx.Graph()))
    )
    quiet = Interpreter(nn.Module(), graph=build(Graph()))
    quiet.extra_traceback = False
    assert outcome(quiet) == (type(error), [str(arg) for arg in error.args])


def test_missing_attributes():
    g = Graph()
    g.output(g.get_attr("a.b"))
    with pytest.raises(RuntimeError, match="nonexistent target a"):
        Interpreter(nn.Module(), graph=g).run()


# ---- graphs of programs


def test_loaded_programs(tmp_path):
    module = small_mlp()
    x = torch.ones(3, 4)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    program = fastexport.load(tmp_path / "m.pt2")
    weights = [program.state_dict[spec.target] for spec in program.graph_signature.input_specs if spec.target]
    values = [torch.from_dlpack(weight) if hasattr(weight, "__dlpack__") else weight for weight in weights]
    (result,) = Interpreter(program.graph_module).run(*values, x)
    assert torch.equal(result, module(x))


def test_programs_with_subgraphs(tmp_path):
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    class M(nn.Module):
        def forward(self, x):
            return program(x)

    with torch.no_grad():
        exported = torch.export.export(M(), (torch.ones(2),))
    torch.export.save(exported, tmp_path / "m.pt2")
    modules = [fastexport.load(tmp_path / "m.pt2").graph_module, exported.graph_module]
    for module in modules:
        for x in (torch.ones(2), -torch.ones(2)):
            assert equal(Interpreter(module).run(x), (program(x),))


def test_weights_of_a_file_are_given_as_torchs():
    ep = fastexport.from_export(torch.export.export(small_mlp(), (torch.ones(3, 4),)))
    name, weight = next(iter(ep.state_dict.items()))
    g = Graph()
    g.output(g.call_function(operator.mul, (g.get_attr("w"), 2)))
    module = GraphModule({"w": weight}, g)
    assert isinstance(Interpreter(module).run(), torch.Tensor)


# ---- Transformer


@pytest.mark.parametrize("root", [*RUN, *MODULES], ids=lambda r: r.__name__)
def test_transformer_rebuilds(root):
    ours, theirs = traced_pair(root() if isinstance(root, type) else root)
    transformed, wanted = Transformer(ours).transform(), fx.Transformer(theirs).transform()
    assert str(transformed.graph) == str(wanted.graph)
    transformed.graph.lint()
    if isinstance(root, type):
        assert equal(transformed(*inputs()), ours(*inputs()))


def test_transformer_changes_and_keeps_meta():
    def make(base):
        class Swap(base):
            def call_function(self, target, args, kwargs):
                return super().call_function(torch.sigmoid if target is torch.neg else target, args, kwargs)

            def call_method(self, target, args, kwargs):
                return args[0].sigmoid() if target == "neg" else super().call_method(target, args, kwargs)

            def placeholder(self, target, args, kwargs):
                return super().placeholder(target, args, kwargs) + 1

        return Swap

    def program(x, y=3):
        return torch.neg(x).neg() * y

    ours, theirs = traced_pair(program)
    for graph in (ours.graph, theirs.graph):
        for node in graph.nodes:
            node.meta.update(custom={"of": node.name}, stack_trace=f"line of {node.name}", val=1)
    made, wanted = make(Transformer)(ours).transform(), make(fx.Transformer)(theirs).transform()
    assert str(made.graph) == str(wanted.graph)
    seen = [
        [
            (node.name, node.meta.get("custom"), node.stack_trace, [s.name for s in node.meta.get("from_node", ())])
            for node in module.graph.nodes
        ]
        for module in (made, wanted)
    ]
    assert seen[0] == seen[1]
    assert torch.equal(made(torch.ones(2)), wanted(torch.ones(2)))


def test_transformer_of_a_module_of_torch():
    theirs = fx.symbolic_trace(LlamaLike())
    made = Transformer(theirs).transform()
    check_text = str(fx.Transformer(theirs).transform().graph)
    assert type(made) is GraphModule and str(made.graph) == check_text


def test_interpreters_are_collected():
    module = symbolic_trace(small_mlp())
    interpreter = Interpreter(module, garbage_collect_values=False)
    interpreter.run(torch.ones(1, 4))
    interpreter.itself = interpreter
    seen = weakref.ref(interpreter), weakref.ref(module.graph)
    del interpreter, module
    gc.collect()
    assert [ref() for ref in seen] == [None, None]
