"""What can't be traced is said clearly, wrapped functions stay whole, and proxies stand what is done to them."""

import collections
import copy
import functools
import gc
import inspect
import operator
import pickle
import re
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch import fx, nn

import fastexport
import traced_programs
from fastexport import Graph, Proxy, TraceError, Tracer, symbolic_trace
from helpers import run_python
from traced_programs import inputs
from tracing import check_same, equal, traced_twice

# ---- errors


def branches(x, y):
    if x.sum() > 0:
        return y
    return x


def iterates(x, y):
    return [row + 1 for row in x]


def stars(x, y):
    return torch.cat([*x])


def contains(x, y):
    return 1 in x


def asserts(x, y):
    assert x.sum() > 0
    return x


def chains(x, y):
    return 0 < x < 1


@pytest.mark.parametrize("function", [branches, asserts, chains], ids=lambda f: f.__name__)
def test_control_flow(function):
    with pytest.raises(
        TraceError, match="symbolically traced variables cannot be used as inputs to control flow"
    ) as info:
        symbolic_trace(function)
    assert isinstance(info.value, fx.proxy.TraceError) and isinstance(info.value, fastexport.FastExportError)
    with pytest.raises(ValueError, match="symbolically traced variables"):
        fx.symbolic_trace(function)


def test_control_flow_says_where_what_and_what_to_do():
    with pytest.raises(TraceError) as info:
        symbolic_trace(branches)
    line = inspect.getsourcelines(branches)[1] + 1
    text = str(info.value)
    assert f'File "{__file__}", line {line}, in branches\n    if x.sum() > 0:' in text
    assert "'gt' (%gt : [num_users=0] = call_function[target=operator.gt](args = (%sum_1, 0), kwargs = {}))" in text
    assert "concrete_args" in text and "torch.where" in text and "fastexport.wrap" in text


@pytest.mark.parametrize("function", [iterates, stars, contains], ids=lambda f: f.__name__)
def test_iteration(function):
    with pytest.raises(TraceError, match="Proxy object cannot be iterated\n  File .*, in .*\n    .*\n.*'x'.*wrap"):
        symbolic_trace(function)
    with pytest.raises(ValueError, match="Proxy object cannot be iterated"):
        fx.symbolic_trace(function)


def test_unpacking_takes_the_number_of_names():
    names = ", ".join(f"v{i}" for i in range(300))
    namespace = {}
    exec(f"def program(x):\n    {names} = x\n    return v299\n", namespace)
    graph, *_ = traced_twice(namespace["program"])
    assert len(graph.find_nodes(op="call_function", target=operator.getitem)) == 300

    def with_star(x):
        first, *rest = x
        return rest

    with pytest.raises(TraceError, match="iterated"):
        symbolic_trace(with_star)


def test_lengths_and_items():
    g = Graph()
    x = Proxy(g.placeholder("x"))
    with pytest.raises(RuntimeError, match="'len' is not supported in symbolic tracing"):
        len(x)
    with pytest.raises(TypeError, match="'Proxy' object does not support item assignment"):
        x[0] = 1
    for take, text in (
        (int, "converted to an int"),
        (float, "converted to a float"),
        (complex, "converted to a complex number"),
        (round, "can't be rounded"),
        (range, "'Proxy' object cannot be interpreted as an integer"),
        ([1, 2].__getitem__, "'Proxy' object cannot be interpreted as an integer"),
    ):
        with pytest.raises(TypeError, match=text) as raised:  # as in torch
            take(x)
        assert type(raised.value) is not TypeError and isinstance(raised.value, TraceError)
        assert "take(x)" in str(raised.value) and "concrete_args" in str(raised.value)
    assert len(g.nodes) == 1


def test_decorated_functions():
    def passes(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @passes
    def plain_parameters(x, y=2):
        return x + y

    @passes
    def keywords(x, *rest, y, z=3, **more) -> torch.Tensor:
        return x + y + z + len(rest) + len(more)

    traced_twice(plain_parameters)
    graph = symbolic_trace(keywords).graph
    assert [(node.op, node.target) for node in graph.nodes][:3] == [("placeholder", name) for name in "xyz"]
    assert graph.output_node().type is torch.Tensor
    assert symbolic_trace(keywords)(1, 2, 4) == 7


def test_traces_of_our_modules():
    module = traced_programs.Parts()
    again = symbolic_trace(symbolic_trace(module))
    assert again.code == symbolic_trace(module).code
    assert equal(again(*inputs()), module(*inputs()))


def test_what_can_not_be_traced():
    for root in (len, traced_programs.Parts().forward, functools.partial(branches), 3):
        with pytest.raises(TypeError, match="can't trace"):
            symbolic_trace(root)
    tracer = Tracer()
    tracer.traced_func_name = "missing"
    with pytest.raises(TypeError, match="has no method 'missing'"):
        tracer.trace(nn.ReLU())


def test_foreign_modules_and_parameters():
    other = nn.Linear(2, 2)

    class M(nn.Module):
        def forward(self, x):
            return globals_of_test["other"](x)

    class P(nn.Module):
        def forward(self, x):
            return x + globals_of_test["other"]._parameters["weight"]

    globals_of_test = {"other": other}
    with pytest.raises(NameError, match="module is not installed as a submodule: a Linear is used .* M; .*\n  File .*"):
        symbolic_trace(M())
    with pytest.raises(NameError, match="parameter is not a member of this module: a Parameter is used .*\n  File .*"):
        symbolic_trace(P())


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", Exception("e")], ids=lambda v: type(v).__name__)
def test_arguments_that_no_node_can_hold(value):
    for trace in (fx.symbolic_trace, symbolic_trace):
        with pytest.raises(NotImplementedError, match="argument of type"):
            trace(lambda x: x + value)


def test_nodes_in_keys_are_refused():
    g = Graph()
    x = Proxy(g.placeholder("x"))
    for table in ({x: 1}, {(1, x): 1}, {"a": {x: 1}}):
        with pytest.raises(RuntimeError, match="cannot contain a Node"):
            x.tracer.create_proxy("call_function", len, (table,), {})
    assert len(g.nodes) == 1


def test_a_failed_trace_leaves_torch_as_it_was():
    call, read = nn.Module.__call__, nn.Module.__getattr__
    for function in (branches, iterates):
        with pytest.raises(TraceError):
            symbolic_trace(function)
    assert nn.Module.__call__ is call and nn.Module.__getattr__ is read
    assert not fx._symbolic_trace.is_fx_tracing()

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Fails()

        def forward(self, x):
            return self.inner(x)

    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    tracer = Tracer()
    with pytest.raises(KeyError, match="mine"):
        tracer.trace(M())
    assert not tracer.module_stack and tracer.scope.module_path == ""
    assert nn.Module.__call__ is call and nn.Module.__getattr__ is read


def test_other_threads_are_left_alone():
    other, results = nn.Linear(2, 2), []

    def run():
        results.append((other(torch.ones(2)), other.weight))

    def program(x):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return x + 1

    symbolic_trace(program)
    assert isinstance(results[0][0], torch.Tensor) and results[0][1] is other._parameters["weight"]


def test_traces_within_traces():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = traced_programs.Parts()
            self.graphs = []

        def forward(self, x, y):
            a = self.inner(x, y)[0]
            self.graphs.append(Tracer().trace(self.inner))
            return a + self.inner(y, x)[0] + traced_programs.wrapped_by_us(x)

    module, wanted = M(), fx.Tracer().trace(traced_programs.Parts())
    graph = Tracer().trace(module)
    check_same(module.graphs[0], wanted)
    assert [n.target for n in graph.nodes if n.op == "call_module"] == []
    assert graph.find_nodes(op="call_function", target=traced_programs.wrapped_by_us)


# ---- wrap


def test_wrap_is_for_the_top_of_modules():
    with pytest.raises(NotImplementedError, match="top level"):
        fastexport.wrap("len")
    with pytest.raises(RuntimeError, match="function or its name"):
        fastexport.wrap(3)


def test_wrap_of_a_name_that_is_not_there():
    from fastexport import _wrapping

    namespace = {"__name__": "m", "wrap": fastexport.wrap}
    exec("wrap('no_such_function')", namespace)
    try:
        with pytest.raises(NameError, match="no_such_function"):
            symbolic_trace(branches)
    finally:
        del _wrapping._wrapped[id(namespace), "no_such_function"]
    assert not hasattr(nn.Module.__call__, "__wrapped__")


def test_wrapped_methods(monkeypatch):
    from torch.fx import _symbolic_trace

    table = torch.arange(4)
    monkeypatch.setattr(_symbolic_trace, "_wrapped_methods_to_patch", [(torch.Tensor, "__getitem__")])
    getitem = torch.Tensor.__getitem__
    graph, *_ = traced_twice(lambda x: table[x.long()] + table[0])
    assert [node.target for node in graph.nodes if node.op == "call_method"] == ["long", "__getitem__"]
    assert torch.Tensor.__getitem__ is getitem


# ---- proxies


def test_proxies_append_to_a_graph():
    def build(graph, proxy_class):
        x, y = proxy_class(graph.placeholder("x")), proxy_class(graph.placeholder("y"))
        out = torch.cat([(x + y).relu(), torch.sigmoid(x), x.shape[0] * y])
        with graph.inserting_before(out.node):
            x - 1
        graph.output(out.node)
        return graph

    check_same(build(Graph(), Proxy), build(fx.Graph(), fx.Proxy))


KEPT = []


def keeps(x):
    KEPT[:] = [x.relu()]
    return KEPT[0]


class Keeps(torch.nn.Module):
    def forward(self, x):
        return keeps(x)


USES = {
    "operator": lambda x: x * KEPT[0],
    "reflected": lambda x: KEPT[0] * x,
    "function": lambda x: torch.add(x, KEPT[0]),
    "in a list": lambda x: torch.cat([x, KEPT[0]]),
    "method": lambda x: x.add(KEPT[0]),
    "keyword": lambda x: torch.add(x, other=KEPT[0]),
    "attribute": lambda x: x + KEPT[0].shape,
    "result": lambda x: KEPT[0],
    "nested result": lambda x: {"a": [x, (KEPT[0],)]},
}


@pytest.mark.parametrize("use", USES)
def test_proxies_of_an_earlier_trace(use):
    """torch takes most of them, and the code fails when it runs."""
    fastexport.symbolic_trace(keeps)
    with pytest.raises(fastexport.TraceError) as found:
        fastexport.symbolic_trace(USES[use])
    lines = str(found.value).split("\n")
    kept, user = keeps.__code__, USES[use].__code__
    assert f'  File "{__file__}", line {kept.co_firstlineno}, in keeps' in lines
    place = f'  File "{__file__}", line {user.co_firstlineno}, in <lambda>'
    assert lines.count(place) == (1 if "result" in use else 2)
    assert "is a node of another graph" in lines[0] and "Don't keep one" in lines[-1]


def test_the_line_of_a_proxy_of_an_earlier_trace():
    tracer = fastexport.Tracer()
    tracer.record_stack_traces = True
    tracer.trace(Keeps())
    with pytest.raises(
        fastexport.TraceError, match=rf"at\n  File .*, line {keeps.__code__.co_firstlineno + 1}, in keeps"
    ):
        fastexport.symbolic_trace(USES["operator"])


def test_proxies_are_torchs_too():
    x = Proxy(Graph().placeholder("x"))
    assert isinstance(x, fx.Proxy) and isinstance(x.shape, fx.proxy.Attribute)
    assert repr(x) == "Proxy(x)" and isinstance(x.tracer, fx.proxy.TracerBase)
    assert hash(x) == hash(x) and {x: 1}[x] == 1 and len(x.node.graph.nodes) == 1


def test_proxies_of_different_graphs():
    a, b = (Proxy(Graph().placeholder("x")) for _ in range(2))
    for function in (operator.add, torch.add, lambda a, b: torch.cat([a, b]), lambda a, b: a.add(b)):
        with pytest.raises(ValueError, match="another graph"):
            function(a, b)
    assert len(a.node.graph.nodes) == len(b.node.graph.nodes) == 1
    g = a.node.graph
    torch.add(a, Proxy(g.call_function(operator.neg, (a.node,))))  # two tracers, but one graph


def test_proxies_of_torch_among_ours():
    ours, theirs = Proxy(Graph().placeholder("x")), fx.Proxy(fx.Graph().placeholder("x"))
    for function in (lambda: ours + theirs, lambda: torch.add(ours, theirs), lambda: torch.add(theirs, ours)):
        with pytest.raises(ValueError, match="proxy of torch.fx"):
            function()
    assert len(ours.node.graph.nodes) == 1


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    scalar = numpy.float64(2)
    graph, *_ = traced_twice(lambda x: x + scalar)
    assert graph.node("add").args[1] is scalar, "a float of its own kind is kept"
    for trace in (symbolic_trace, fx.symbolic_trace):
        with pytest.raises(NotImplementedError, match="argument of type"):
            trace(lambda x: x + numpy.int64(2))


def test_errors_make_no_nodes():
    x = Proxy(Graph().placeholder("x"))
    with pytest.raises(TraceError, match="attribute 'shape' of 'x'"):
        bool(x.shape)
    assert len(x.node.graph.nodes) == 1


def test_what_a_proxy_is_made_of():
    with pytest.raises(TypeError, match="Node of fastexport"):
        Proxy(fx.Graph().placeholder("x"))
    with pytest.raises(TypeError, match="Node of fastexport"):
        Proxy(None)
    with pytest.raises(TypeError):
        Proxy()
    with pytest.raises(TypeError, match="made of a Proxy"):
        fastexport.Attribute(3, "x")
    empty = Proxy.__new__(Proxy)
    for use in (lambda: empty + 1, lambda: empty(1), lambda: empty.relu, lambda: empty.node, lambda: -empty):
        with pytest.raises(AttributeError):
            use()
    lonely = fastexport.Attribute.__new__(fastexport.Attribute)
    for use in (lambda: lonely + 1, lambda: lonely(1), lambda: lonely.node, lambda: lonely.root):
        with pytest.raises(AttributeError):
            use()


def test_copies_of_proxies():
    x = Proxy(Graph().placeholder("x"))
    x.note = 1
    assert copy.deepcopy({"x": x})["x"] is x and copy.copy(x) is x
    with pytest.raises(TypeError, match="pickle the graph"):
        pickle.dumps(x)


def test_subclasses_of_proxies():
    class Loud(Proxy):
        seen = []

        def __add__(self, other):
            self.seen.append("add")
            return super().__add__(other)

        def relu(self):
            return "mine"

        @classmethod
        def __torch_function__(cls, orig_method, types, args=None, kwargs=None):
            cls.seen.append(orig_method)
            return super().__torch_function__(orig_method, types, args, kwargs)

    class Louder(Tracer):
        def proxy(self, node):
            return Loud(node, self)

    def program(x):
        return torch.sigmoid(x + 1), x.relu(), x * 2, x.shape

    graph = Louder().trace(program)
    check_same(graph, fx.Tracer().trace(lambda x: (torch.sigmoid(x + 1), "mine", x * 2, x.shape)))
    assert Loud.seen == ["add", torch.sigmoid]


def test_overridden_nodes_of_proxies():
    class Elsewhere(Proxy):
        @property
        def node(self):
            return self.tracer.other

    g = Graph()
    x, y = g.placeholder("x"), g.placeholder("y")
    tracer = fastexport.GraphAppendingTracer(g)
    tracer.other = y
    made = Elsewhere(x, tracer)
    assert (made + 1).node.args == (y, 1) and made.relu().node.args == (y,)
    assert torch.add(made, 2).node.args == (y, 2)


def test_trace_asserts():
    class Asserting(Tracer):
        trace_asserts = True

    graph = Asserting().trace(traced_programs.asserts)
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert called == [operator.gt, fx.proxy.assert_fn, operator.add]
    with pytest.raises(TraceError):
        Asserting().trace(branches)


def test_unusual_containers_of_torch_functions():
    Pair = collections.namedtuple("Pair", "a b")

    def function(pair, table=None):
        if torch.overrides.has_torch_function((pair.a, pair.b)):
            return torch.overrides.handle_torch_function(function, (pair.a, pair.b), pair, table=table)
        return pair.a

    def program(x, y):
        return function(Pair(1, x), table=collections.OrderedDict(k=y))

    traced_twice(program)


def test_higher_order_operators_take_no_functions():
    class Mine(torch._ops.HigherOrderOperator):
        def __init__(self):
            super().__init__("mine_of_tests")

        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs)

    mine = Mine()
    for trace in (symbolic_trace, fx.symbolic_trace):
        with pytest.raises(
            RuntimeError, match="HigherOrderOperator mine_of_tests because it received an arbitrary call"
        ):
            trace(lambda x: mine(x, [len]))
    traced_twice(lambda x: mine(x, [1, x]))


# ---- hostile objects


def test_hostile_arguments_leave_the_graph_as_it_was():
    g = Graph()
    x = Proxy(g.placeholder("x"))
    y = x + 1

    class Raises:
        def __getattr__(self, name):
            raise ZeroDivisionError(name)

    class Erases:
        def __fx_create_arg__(self, tracer):
            g.erase_node(y.node)
            return 1

    class Nested:
        def __fx_create_arg__(self, tracer):
            return [{"k": (x + 5).node}, slice(x.node, None)]

    with pytest.raises(ZeroDivisionError):
        x + Raises()
    with pytest.raises(Exception, match="erased"):
        x.tracer.create_proxy("call_function", len, (y, Erases()), {})
    made = x.tracer.create_proxy("call_function", len, (Nested(),), {})
    assert made.node.args[0][1] == slice(x.node, None)
    with pytest.raises(ValueError, match="erased"):
        y + 1
    g.lint()


def test_tracers_that_change_under_way():
    def proxy_of(**changes):
        g = Graph()
        tracer = fastexport.GraphAppendingTracer(g)
        x = Proxy(g.placeholder("x"), tracer)
        for name, value in changes.items():
            setattr(tracer, name, value)
        return x

    class Changes:
        """Puts other things in the places of what is being recorded."""

        def __init__(self, change):
            self.change = change

        def __fx_create_arg__(self, tracer):
            self.change()
            return 1

    x = proxy_of()
    other = Graph()
    made = x.add(Changes(lambda: setattr(x.tracer, "graph", other)), x)
    assert made.node.graph is x.node.graph and len(other.nodes) == 0
    with pytest.raises(ValueError, match="another graph"):
        x + 1

    x = proxy_of()
    shape = x.shape
    again = Proxy(x.node)
    made = shape(Changes(lambda: shape.__init__(again, "dtype")))
    assert made.node.target == "shape" and shape.attr == "dtype"

    x = proxy_of()
    made = x + Changes(lambda: [delattr(x.tracer, name) for name in ("graph", "scope", "node_name_to_scope")])
    assert made.node.args == (x.node, 1)
    with pytest.raises(AttributeError, match="graph"):
        x + 1

    class Graphless(fastexport.GraphAppendingTracer):
        def _records_directly(self):
            self.graph = None
            return True

    x = proxy_of()
    x.tracer = Graphless(x.node.graph)
    with pytest.raises(AttributeError):
        x + 1

    class Scope:
        module_type = None

        @property
        def module_path(self):
            raise ZeroDivisionError

    for changes in ({"scope": Scope()}, {"module_stack": {"a": 1}, "scope": Scope()}):
        x = proxy_of(**changes)
        with pytest.raises(ZeroDivisionError):
            x + 1
        assert len(x.node.graph.nodes) == 1

    x = proxy_of(scope=None, module_stack=None, node_name_to_scope=None)
    assert (x + 1).node.meta == {}
    x.tracer.module_stack, x.tracer.node_name_to_scope = {"a": 1}, "no dict"
    x.tracer.scope = Scope()
    assert (x + 1).node.meta["nn_module_stack"] == {"a": 1}
    x.tracer._records_directly = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        x + 1


def test_arguments_without_end():
    x = Proxy(Graph().placeholder("x"))
    endless = []
    endless.append(endless)
    for function in (lambda: torch.cat(endless), lambda: x + endless, lambda: torch.stack([x, endless])):
        with pytest.raises((RecursionError, TypeError)):
            function()
    assert len(x.node.graph.nodes) == 1


def test_tracers_and_proxies_are_collected():
    class Thing(Tracer):
        pass

    tracer = Thing()
    graph = tracer.trace(traced_programs.Nested())
    last = Proxy(graph.output_node().prev, tracer)
    last.itself = last
    attribute = last.shape
    tracer.loop = attribute
    seen = [weakref.ref(tracer), weakref.ref(graph), weakref.ref(last)]
    del tracer, graph, last, attribute
    gc.collect()
    assert [ref() for ref in seen] == [None, None, None]


def test_an_observer_is_told_of_traced_nodes():
    g = Graph()
    x = Proxy(g.placeholder("x"))
    with g.recording("trace"):
        y = x + 1
    assert [source.pass_name for source in y.node.meta["from_node"]] == ["trace"]


def test_out_of_memory_at_every_point():
    pytest.importorskip("_testcapi")
    out = run_python(Path(__file__).with_name("tracing_out_of_memory.py").read_text())
    failures = dict(re.findall(r"(.+): (\d+)", out))
    assert len(failures) == 15 and all(int(count) >= 1 for count in failures.values()), failures
