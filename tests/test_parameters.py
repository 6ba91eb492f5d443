"""Parameters of generated code: those called like a global of the code, and those that Python does not take."""

import math
import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

import fastexport
from fastexport import CodeGen, Graph, PyTreeCodeGen, from_fx


class Written:
    """Is written as a call of a global of its own."""

    def __fx_repr__(self):
        return "Maker(3)", {"Maker": lambda value: value}


HIDDEN = {
    "getattr": (operator.add, (1, 2), 3),
    "slice": (operator.getitem, ([1, 2, 3], slice(1, None, None)), [2, 3]),
    "complex": (repr, (complex(-0.0, 1),), "(-0+1j)"),
    "set": (len, (set(),), 0),
    "frozenset": (len, ([frozenset({1, 2})],), 1),
    "range": (list, (range(2),), [0, 1]),
    "torch": (operator.is_, (torch.float32, torch.float32), True),
    "device": (repr, (torch.device("cpu"),), "device(type='cpu')"),
    "inf": (operator.add, (-math.inf, 1), -math.inf),
    "nan": (math.isnan, ({"k": math.nan}["k"],), True),
    "NoneType": (repr, (type(None),), "<class 'NoneType'>"),
    "Ellipsis": (repr, ((..., {"k": ...}),), "(Ellipsis, {'k': Ellipsis})"),
    "len": (len, ([1, 2],), 2),
    "Maker": (operator.neg, (Written(),), -3),
}


def hiding(parameter, target, args, odd="a b", **options):
    g = Graph()
    x = g.create_node("placeholder", parameter, **options)
    odd = g.create_node("get_attr", odd)  # an odd name is read by getattr
    g.output((g.call_function(target, args), x, odd, g.call_function(math.sqrt, (4.0,))))
    return g


@pytest.mark.parametrize("name", HIDDEN)
def test_parameters_that_hide_what_code_uses(name):
    target, args, expected = HIDDEN[name]
    for stars, options in (("", {}), ("", {"name": "y"}), ("**", {})):
        g = hiding(stars + name, target, args, **options)
        module = fastexport.GraphModule({"a b": 6}, g)
        assert module(**{name: 5}) == (expected, {name: 5} if stars else 5, 6, 2)
        code = g.python_code("self")
        line = next(line for line in code.src.split("\n") if line.startswith("def "))
        assert line == f"def forward(self, {stars}{name}):"
        if name != "Maker":  # no generator of torch's knows it
            assert g.python_code("self", policy="torch").src == g.to_fx().python_code("self").src
        with g.on_generate_code(lambda before: lambda lines: lines):
            assert fastexport.GraphModule({"a b": 6}, g)(**{name: 5})[0] == expected


def test_what_hides_nothing_is_written_as_by_torch():
    graph = fx.Graph()
    names = ("input", "type", "torch", "inf", "slice", "float", "id")
    nodes = [graph.placeholder(name) for name in names]
    x = graph.call_function(max, ("torch.inf", nodes[0]), {"key": nodes[1], "inf": "slice(a \\' b) float"})
    x = graph.call_method("torch", (x, nodes[3]), {"slice": nodes[2]})
    graph.output((x, nodes[-1]))
    for options in ({}, {"verbose": True}):
        assert from_fx(graph).python_code("self", **options).src == graph.python_code("self", **options).src


def test_hidden_globals_of_the_profiler_and_of_late_parameters():
    g = Graph()
    x = g.placeholder("x")
    one = g.call_function(torch.add, (x, math.inf))
    late = [g.placeholder("torch"), g.placeholder("inf")]
    g.output((one, *late))
    for options in ({}, {"record_func": True}):
        code = g.python_code("self", **options)
        found = dict(code.globals)
        exec(code.src, found)
        assert found["forward"](None, torch.ones(1), 2, 3) == (torch.tensor([math.inf]), 2, 3)
    assert fastexport.GraphModule({}, g).code.count("\n") == len(g.python_code("self")._lineno_map) + 3


def test_nested_arguments_that_hide_globals():
    def run(torch, math_sqrt, inf):
        return inf["a"] + torch[0] * math_sqrt

    ph = fx.PH
    theirs = fx.symbolic_trace(run, concrete_args={"torch": (ph,), "math_sqrt": ph, "inf": {"a": ph}})
    g = from_fx(theirs.graph)
    assert g.python_code("self").src == theirs.graph.python_code("self").src
    (out,) = g.find_nodes(op="output")
    with g.inserting_before(out):
        more = [g.call_function(math.sqrt, (4.0,)), g.call_function(torch.add, (1, 2)), -math.inf]
    out.args = ((out.args[0], *more),)
    values = theirs.graph._codegen.pytree_info
    root = {"_in_spec": values.in_spec, "_out_spec": values.out_spec}
    g.set_codegen(PyTreeCodeGen(fastexport.PyTreeInfo(values.orig_args, values.in_spec, None)))
    module = fastexport.GraphModule(root, g)
    assert module((2,), 3, {"a": 1}) == ([7], 2, 3, -math.inf)
    assert "torch = torch_" in module.code and "inf = inf_" in module.code
    g.set_codegen(PyTreeCodeGen(fastexport.PyTreeInfo(["fx_pytree"], values.in_spec, None)))
    with pytest.raises(ValueError, match="'fx_pytree', like the module that takes the arguments apart; rename it"):
        g.python_code("self")


def test_hidden_globals_in_a_folder(tmp_path, monkeypatch):
    g = hiding("inf", operator.add, (math.inf, 1), "a")
    with g.inserting_before(g.output_node()):
        g.call_function(torch.add, (g.placeholder("torch"), g.placeholder("getattr")))
    fastexport.GraphModule({"a": torch.ones(1)}, g).to_folder(tmp_path / "hidden_module", "M")
    monkeypatch.syspath_prepend(tmp_path)
    from hidden_module import M

    assert M()(5, 2, 3) == (math.inf, 5, torch.ones(1), 2)


# ---- parameters that Python does not take


def parameters(*targets):
    """A graph of parameters; those that end in "=" have a default."""
    g = Graph()
    for at, target in enumerate(targets):
        args = (at,) if target.endswith("=") else ()
        g.create_node("placeholder", target.removesuffix("="), args, name=f"n{at}")
    g.output(tuple(g.nodes))
    return g


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["*a", "*b"], r"'n1' makes the parameter '\*b', which can't stand behind '\*a': only one"),
        (["x", "*a", "y", "*b"], r"'n3' makes the parameter '\*b', which can't stand behind '\*a'"),
        (["**k", "x"], r"'n1' makes the parameter 'x', which can't stand behind '\*\*k': .* last; move its node"),
        (["**k", "**m"], r"'n1' makes the parameter '\*\*m', which can't stand behind '\*\*k'"),
        (["**k", "*a"], r"'n1' makes the parameter '\*a', which can't stand behind '\*\*k'"),
        (["x=", "y"], r"'n1' makes the parameter 'y', which can't stand behind 'x': .* give this node an argument"),
        (["x=", "y=", "z", "*a"], r"'n2' makes the parameter 'z', which can't stand behind 'y'"),
        (["*a="], r"'n0' makes the parameter '\*a' with a default: "),
        (["**k="], r"'n0' makes the parameter '\*\*k' with a default: "),
    ],
)  # fmt: skip
def test_parameters_that_python_does_not_take(targets, message):
    g = parameters(*targets)
    with pytest.raises(ValueError, match=message):
        g.python_code("self")
    text = g.python_code("self", policy="torch").src
    assert text == g.to_fx().python_code("self").src
    with pytest.raises(SyntaxError):
        compile(text, "code", "exec")
    g.set_codegen(type("Own", (CodeGen,), {"gen_fn_def": lambda *args: "def forward(self):"})())  # its own business
    g.python_code("self")


@given(st.lists(st.sampled_from(["x", "y=", "*a", "*b=", "**k", "z", "w="]), max_size=6, unique=True))
@settings(max_examples=200)
def test_parameters_are_refused_as_by_the_compiler(targets):
    g = parameters(*targets)
    theirs = g.python_code("self", policy="torch").src
    try:
        compile(theirs, "code", "exec")
    except SyntaxError:
        with pytest.raises(ValueError, match="makes the parameter"):
            g.python_code("self")
    else:
        assert g.python_code("self").src == theirs


def test_keywords_of_python_as_parameters():
    assert fastexport.GraphModule({}, parameters("from", "*class", "None", "**lambda"))(1, 2, n2=3) == (1, (2,), 3, {})
