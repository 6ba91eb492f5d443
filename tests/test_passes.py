"""What passes in place leave behind: a torch module's code, made at the first look, and subgraphs gone into."""

import copy
import functools
import inspect
import io
import operator
import os
import pickle
import subprocess
import sys
import textwrap
from unittest import mock

import pytest
import torch
from torch import fx

import fastexport
from fastexport.acceleration._deferred import is_pending
from fx_graphs import exported_cond

aten = torch.ops.aten


def graph():
    """Something for each pass: sums that are equal, a dead one, one of zero, a constant, and two calls out of order."""
    made = fx.Graph()
    x, w = made.placeholder("x"), made.get_attr("w")
    a = made.call_function(torch.neg, (x,))
    b = made.call_function(torch.neg, (x,))
    made.call_function(torch.cos, (x,))
    double = made.call_function(torch.mul, (w, 2))
    parts = made.call_function(torch.unbind, (made.call_function(torch.stack, ([a, b],)),))
    first, again = (made.call_function(operator.getitem, (parts, 0)) for _ in range(2))
    total = made.call_function(torch.add, (first, again))
    plain = made.call_function(torch.nn.functional.dropout, (total, 0.5, False))
    made.output((made.call_function(torch.add, (plain, double)),))
    for node in (x, total, plain):
        node.meta["val"] = torch.ones(2)
    return made


def module(base=fx.GraphModule):
    torch.manual_seed(0)
    return base({"w": torch.ones(2)}, graph())


def unsorted():
    found = module()
    nodes = {node.name: node for node in found.graph.nodes}
    nodes["neg"].prepend(nodes["stack"])
    return found


def node_of(found, target):
    return found.graph.find_nodes(op="call_function", target=target)[0]


def swap(native):
    for node in native.find_nodes(op="call_function", target=torch.neg):
        node.target = torch.sin


PASSES = {
    "eliminate_dead_code": fastexport.eliminate_dead_code,
    "eliminate_getitems": fastexport.eliminate_getitems,
    "eliminate_common_subexpressions": fastexport.eliminate_common_subexpressions,
    "remove_noops": fastexport.remove_noops,
    "fold_constants": fastexport.fold_constants,
    "sort_topologically": fastexport.sort_topologically,
    "replace_pattern": lambda m: fastexport.replace_pattern(m, lambda x: torch.neg(x), lambda x: torch.sin(x)),
    "outline": lambda m: fastexport.outline(m, [node_of(m, torch.neg)]),
    "run_passes, by names": lambda m: fastexport.run_passes(m, ["eliminate_getitems", "eliminate_dead_code"]).modified,
    "run_passes, a function": lambda m: fastexport.run_passes(m, [swap]).modified,
}
X = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize("name", PASSES)
def test_code_is_made_at_the_first_look(name):
    made = unsorted() if name == "sort_topologically" else module()
    old = made._code
    assert PASSES[name](made)
    assert is_pending(made)
    expected = made.graph.python_code("self").src
    assert made.code == expected != old
    assert not is_pending(made)
    want = copy.deepcopy(made)
    want.recompile()
    assert torch.equal(made(X)[0], want(X)[0])
    assert inspect.getsource(made.forward).strip() == expected.strip()


@pytest.mark.parametrize("name", [name for name in PASSES if name != "outline"])
def test_nothing_is_made_anew_when_nothing_was_done(name):
    made = fx.GraphModule({}, fx.Graph())
    made.graph.output(made.graph.call_function(torch.relu, (made.graph.placeholder("x"),)))
    made.recompile()
    forward, code = made.forward.__func__, made._code
    assert not PASSES[name](made)
    assert vars(made)["_code"] is code and made.forward.__func__ is forward


def test_edits_after_the_pass_wait_for_recompile_as_torchs_do():
    made = module()
    fastexport.eliminate_dead_code(made)
    code = made.graph.python_code("self").src
    node_of(made, torch.neg).target = torch.sin
    assert made.code == code
    made.recompile()
    assert "torch.sin" in made.code
    assert "torch.sin" in inspect.getsource(made.forward)


def test_a_pass_after_a_pass():
    made = module()
    for name in ("eliminate_getitems", "eliminate_dead_code", "fold_constants"):
        PASSES[name](made)
    assert made.code == made.graph.python_code("self").src
    fastexport.eliminate_common_subexpressions(made)
    assert is_pending(made) and made(X)[0].tolist() == [0.0, -2.0]


def saved(made):
    buffer = io.BytesIO()
    torch.save(made, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("way", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m)), saved])
def test_copies_have_the_new_code(way):
    made = module()
    fastexport.eliminate_dead_code(made)
    twin = way(made)
    assert "cos" in module().code and "cos" not in twin.code
    assert torch.equal(twin(X)[0], made(X)[0])


@pytest.mark.filterwarnings("ignore:The TorchScript type system", "ignore:.torch.jit.*is deprecated")
def test_torch_script():
    made = module()
    fastexport.eliminate_dead_code(made)
    assert "cos" not in torch.jit.script(made).code


def test_modules_below_are_made_anew_too():
    """As by torch: it recompiles what is below a module that is recompiled, whether it is called or not."""
    made = module()
    made.inner = module()
    node_of(made.inner, torch.cos).target = torch.exp
    fastexport.eliminate_dead_code(made, recurse=False)
    assert is_pending(made) and is_pending(made.inner)
    assert "torch.exp" in made.inner.code


# ---- recompile of the user's own


class Counting(fx.GraphModule):
    count = 0

    def recompile(self):
        self.count += 1
        return super().recompile()


class Below(fx.GraphModule):
    below = 0

    def _recompile_submodules(self):
        self.below += 1
        return super()._recompile_submodules()


@pytest.mark.parametrize(("base", "count"), [(Counting, "count"), (Below, "below")])
def test_a_subclass_that_overrides_it(base, count):
    made = module(base)
    before = getattr(made, count)
    fastexport.eliminate_dead_code(made)
    assert getattr(made, count) == before + 1
    assert not is_pending(made) and "cos" not in vars(made)["_code"]


def test_one_that_was_put_into_the_object():
    made = module()
    made.recompile = mock.Mock()
    fastexport.eliminate_dead_code(made)
    made.recompile.assert_called_once_with()
    assert "cos" in made.code


def test_one_that_was_put_into_the_class(monkeypatch):
    made = module()
    found = mock.Mock()
    monkeypatch.setattr(fx.GraphModule, "recompile", found)
    fastexport.eliminate_dead_code(made)
    found.assert_called_once_with()


def test_verified_acceleration_makes_it_at_once():
    made = module()
    with fastexport.accelerate(only=["recompile"], verify=True):
        fastexport.eliminate_dead_code(made)
        assert not is_pending(made)
    assert "cos" not in made.code


def test_a_graph_without_code_raises_at_once():
    made = module()
    node_of(made, torch.stack).target = object()
    with pytest.raises(AssertionError) as expected:
        made.graph.python_code("self")
    with pytest.raises(AssertionError) as caught:
        fastexport.eliminate_getitems(made)
    assert str(caught.value) == str(expected.value)


def test_a_caller_that_takes_the_attributes():
    def key_of(made):
        fastexport.eliminate_dead_code(made)
        return sorted(made.__dict__)

    expected = sorted(vars(module()))
    assert "_code" in expected and key_of(module()) == expected


# ---- torch.compile


COMPILE = """
    import sys
    import torch
    from torch import fx
    import fastexport
    from fastexport.acceleration._deferred import is_pending

    def made():
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(torch.cos, (x,))
        graph.output(graph.call_function(torch.neg, (x,)))
        return fx.GraphModule({}, graph)

    first, second = made(), made()
    assert "torch._dynamo" not in sys.modules
    fastexport.eliminate_dead_code(first)
    fastexport.eliminate_dead_code(second)
    finders = len(sys.meta_path)
    assert is_pending(first) and is_pending(second)
    seen = []

    def backend(graph_module, inputs):
        seen.append([node.name for node in graph_module.graph.nodes if node.op == "call_function"])
        return graph_module.forward

    compiled = torch.compile(lambda x: first(x) + 1, backend=backend, fullgraph=True)
    assert not is_pending(first) and not is_pending(second)
    assert compiled(torch.ones(2)).tolist() == [0.0, 0.0]
    third = made()
    fastexport.eliminate_dead_code(third)
    assert is_pending(third)
    compiled = torch.compile(lambda x: third(x) + 2, backend=backend, fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [1.0, 1.0]
    assert not is_pending(third)
    assert seen == [["neg", "add"], ["neg", "add"]], seen
    assert len(sys.meta_path) == finders
"""


def test_torch_compile_that_is_imported_later():
    code = textwrap.dedent(COMPILE)
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- modules below


def inner_graph(make, add=torch.add):
    """-x twice, a dead cosine, and an input that nothing uses."""
    made = make()
    x, _ = made.placeholder("x"), made.placeholder("y")
    a, b = (made.call_function(torch.neg, (x,)) for _ in range(2))
    made.call_function(torch.cos, (x,))
    made.output(made.call_function(add, (a, b)))
    return made


def outer_graph(make, *paths):
    made = make()
    y = made.placeholder("x")
    for path in paths:
        y = made.call_module(path, (y, y))
    made.output(y)
    return made


def nested(kind, path="inner"):
    """A module that calls a GraphModule that is an attribute of it, or of a module in it."""
    if kind == "torch":
        inner, outer = fx.GraphModule({}, inner_graph(fx.Graph)), outer_graph(fx.Graph, path)
        return fx.GraphModule({path: inner}, outer), inner
    make = fastexport.Graph
    inner, outer = fastexport.GraphModule({}, inner_graph(make)), outer_graph(make, path)
    return fastexport.GraphModule({path: inner}, outer), inner


BELOW = {
    "eliminate_dead_code": (fastexport.eliminate_dead_code, ["cos"]),
    "eliminate_common_subexpressions": (fastexport.eliminate_common_subexpressions, ["neg_1"]),
    "trim_interfaces": (fastexport.trim_interfaces, ["y"]),
    "run_passes": (lambda m: fastexport.run_passes(m, ["eliminate_dead_code"])[0], ["cos"]),
    "run_passes, checked": (lambda m: fastexport.run_passes(m, ["eliminate_dead_code"], check=True)[0], ["cos"]),
}


@pytest.mark.parametrize("path", ["inner", "block.inner"])
@pytest.mark.parametrize("kind", ["torch", "ours"])
@pytest.mark.parametrize("name", BELOW)
def test_modules_that_are_called_are_gone_into(name, kind, path):
    made, inner = nested(kind, path)
    run, gone = BELOW[name]
    expected = made(X)
    before = inner.code
    result = run(made)
    assert result.modified
    assert sorted(result.removed) == sorted(f"{path}/{node}" for node in gone)
    assert inner.code != before and inner.code == inner.graph.python_code("self").src
    assert torch.equal(made(X), expected)
    assert not run(made)


@pytest.mark.parametrize("kind", ["torch", "ours"])
def test_modules_that_are_called_are_left_alone_if_so_wished(kind):
    made, inner = nested(kind)
    before = str(inner.graph)
    assert not fastexport.eliminate_dead_code(made, recurse=False)
    assert not fastexport.eliminate_dead_code(made, policy="torch"), "torch goes into what get_attr names"
    assert str(inner.graph) == before
    assert not nested("torch")[0].graph.eliminate_dead_code()


def test_code_of_subgraphs_follows():
    make = fastexport.Graph
    made = fastexport.GraphModule({}, inner_graph(make))
    fastexport.outline(made, [node for node in made.graph.nodes if node.target in (torch.neg, torch.cos)], "part")
    assert "cos" in made.part.code
    assert fastexport.eliminate_dead_code(made).removed == ["part/cos"]
    assert "cos" not in made.part.code


def test_lint_looks_at_the_graph_alone_as_torchs():
    for kind in ("torch", "ours"):
        made, inner = nested(kind)
        nodes = list(inner.graph.nodes)
        nodes[1].append(nodes[-2])
        made.graph.lint()
        assert fastexport.lint(made) == []
        with pytest.raises(fastexport.LintError):
            fastexport.lint(inner)
        with pytest.raises(fastexport.LintError):
            fastexport.run_passes(made, ["eliminate_getitems"], check=True)


# ---- one module in two places


def twice(kind, picks=(0, 1)):
    """A module that calls one GraphModule of two results by two names, and uses one of each."""
    make, cls = (fx.Graph, fx.GraphModule) if kind == "torch" else (fastexport.Graph, fastexport.GraphModule)
    inner, outer = make(), make()
    x = inner.placeholder("x")
    inner.call_function(torch.cos, (x,))
    inner.output((inner.call_function(torch.neg, (x,)), inner.call_function(torch.sin, (x,)), x))
    held = cls({}, inner)
    x = outer.placeholder("x")
    calls = [outer.call_module(path, (x,)) for path in ("a", "b")]
    outer.output(tuple(outer.call_function(operator.getitem, pair) for pair in zip(calls, picks, strict=True)))
    return cls({"a": held, "b": held}, outer), held


@pytest.mark.parametrize("kind", ["torch", "ours"])
@pytest.mark.parametrize("name", [name for name in BELOW if "common" not in name and name != "run_passes, checked"])
def test_a_module_in_two_places_is_changed_once(name, kind, recwarn):
    made, inner = twice(kind)
    expected = made(X)
    result = BELOW[name][0](made)
    assert result.removed == ["a/cos"]
    assert [t.tolist() for t in made(X)] == [t.tolist() for t in expected]
    assert len(inner.graph.output_node().args[0]) == (2 if name == "trim_interfaces" else 3)
    assert not recwarn.list


@pytest.mark.parametrize("kind", ["torch", "ours"])
def test_a_function_of_the_user_finds_a_module_in_two_places_as_one_graph(kind, recwarn):
    made, inner = twice(kind)

    def to_tan(native):
        below = native.subgraphs or {"a": made.a.graph}
        assert len(set(below.values())) == 1
        for node in below["a"].find_nodes(op="call_function", target=torch.sin):
            with below["a"].inserting_before(node):
                node.replace_all_uses_with(below["a"].call_function(torch.tan, node.args))
            below["a"].erase_node(node)

    result = fastexport.run_passes(made, [to_tan])[0]
    assert (result.removed, result.added, result.replaced) == (["a/sin"], ["a/tan"], {"a/sin": "a/tan"})
    assert [node.name for node in inner.graph.nodes if node.op == "call_function"] == ["cos", "neg", "tan"]
    assert made(X)[1].tolist() == torch.tan(X).tolist()
    assert not recwarn.list


def two_equal(kind):
    """A module that calls two GraphModules, which are alike but not the same."""
    cls, make = (fx.GraphModule, fx.Graph) if kind == "torch" else (fastexport.GraphModule, fastexport.Graph)
    held = {}
    for path in ("a", "b"):
        inner = make()
        x = inner.placeholder("x")
        inner.call_function(torch.cos, (x,))
        inner.output((inner.call_function(torch.neg, (x,)), inner.call_function(torch.sin, (x,)), x))
        held[path] = cls({}, inner)
    outer = make()
    x = outer.placeholder("x")
    calls = [outer.call_module(path, (x,)) for path in held]
    outer.output(tuple(outer.call_function(operator.getitem, (call, 0)) for call in calls))
    return cls(held, outer)


def to_tan(native):
    for inner in (native.subgraphs or {path: native.owning_module.get_submodule(path).graph for path in "ab"}).values():
        for node in inner.find_nodes(op="call_function", target=torch.sin):
            node.target = torch.tan


@pytest.mark.parametrize("kind", ["torch", "ours"])
@pytest.mark.parametrize("name", [name for name in BELOW if "common" not in name and name != "run_passes, checked"])
def test_equal_subgraphs_are_two(name, kind):
    made = two_equal(kind)
    expected = made(X)
    assert sorted(set(BELOW[name][0](made).removed) & {"a/cos", "b/cos"}) == ["a/cos", "b/cos"]
    assert all(torch.equal(one, other) for one, other in zip(made(X), expected, strict=True))


@pytest.mark.parametrize("kind", ["torch", "ours"])
def test_a_function_of_the_user_may_change_equal_subgraphs(kind):
    made = two_equal(kind)
    assert fastexport.run_passes(made, [to_tan])[0].modified
    for path in "ab":
        assert [node.target for node in getattr(made, path).graph.nodes].count(torch.tan) == 1


def test_a_pass_for_torch_changes_equal_subgraphs():
    def sin_to_tan(gm):
        for path in "ab":
            for node in getattr(gm, path).graph.find_nodes(op="call_function", target=torch.sin):
                node.target = torch.tan

    native = fastexport.from_fx(two_equal("torch"))
    fastexport.apply_fx_pass(native, sin_to_tan)
    for path in "ab":
        assert [node.target for node in native.subgraphs[path].nodes].count(torch.tan) == 1


def test_equal_subgraphs_are_both_inlined_below():
    outer = {}
    for path in ("a", "b"):
        middle = fx.Graph()
        middle.output(middle.call_module("deep", (middle.placeholder("x"),)))
        outer[path] = fx.GraphModule({"deep": fx.symbolic_trace(lambda x: torch.sin(x))}, middle)
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(tuple(graph.call_module(path, (x,)) for path in outer))
    native = fastexport.from_fx(fx.GraphModule(outer, graph))
    native.inline(which=lambda path: path == "deep")
    for path in "ab":
        assert [node.op for node in native.subgraphs[path].nodes] == ["placeholder", "call_function", "output"]


def test_a_module_that_is_called_from_two_graphs_keeps_its_inputs():
    inner, middle = fx.GraphModule({}, inner_graph(fx.Graph)), outer_graph(fx.Graph, "deep")
    middle.placeholder("y", default_value=None)
    list(middle.nodes)[0].append(list(middle.nodes)[-1])
    made = fx.GraphModule({"deep": inner, "middle": fx.GraphModule({"deep": inner}, middle)}, fx.Graph())
    made.deep, made.middle = inner, fx.GraphModule({"deep": inner}, middle)
    x = made.graph.placeholder("x")
    made.graph.output(made.graph.call_module("deep", (made.graph.call_module("middle", (x,)), x)))
    made.recompile()
    expected = made(X)
    assert fastexport.trim_interfaces(made).removed == ["middle/y"]
    assert torch.equal(made(X), expected)


@pytest.mark.parametrize("options", [{}, {"check": True}, {"bisect": True}])
def test_chains_on_a_module_of_ours(options):
    made = fastexport.GraphModule({}, inner_graph(fastexport.Graph))

    def to_part(native):
        fastexport.outline(native, [node for node in native.nodes if node.target is torch.neg], "part")

    log = fastexport.run_passes(made, ["eliminate_dead_code", to_part], **options)
    assert log[0].removed == ["cos"] and log[1].added[0] == "part"
    assert made(X, X).tolist() == [-2.0, -4.0]
    assert isinstance(made.part, fastexport.GraphModule)


# ---- passes by name that are given something


def neg(x):
    return torch.neg(x)


def sin(x):
    return torch.sin(x)


REPLACED = ("replace_pattern", {"pattern": neg, "replacement": sin})


@pytest.mark.parametrize("kind", ["torch", "ours"])
def test_replacements_in_a_chain(kind):
    made = nested(kind)[1]
    log = fastexport.run_passes(made, ["eliminate_dead_code", REPLACED, "lint"])
    assert [result.name for result in log] == ["eliminate_dead_code", "replace_pattern", "lint"]
    assert log[1].replaced == {"neg": "sin", "neg_1": "sin_1"} and log[1].modified
    assert log[1].removed == ["neg", "neg_1"] and log[1].added == ["sin", "sin_1"]
    assert made(X, X).tolist() == (2 * torch.sin(X)).tolist()
    assert not fastexport.run_passes(made, [REPLACED]).modified


def test_options_of_a_pass_go_before_those_of_the_chain():
    def cosines():
        made = inner_graph(fastexport.Graph)
        made.node("neg_1").target = torch.rand_like
        made.node("add").args = (made.node("neg"), 1)
        return made

    made = cosines()
    log = fastexport.run_passes(made, [("eliminate_dead_code", {"keep_random": False, "explain": True})])
    assert log[0].removed == ["cos", "neg_1"] and log[0].reasons["cos"].startswith("removed")
    made = cosines()
    assert fastexport.run_passes(made, ["eliminate_dead_code"])[0].removed == ["cos"]
    made = cosines()
    outline = ("outline", {"nodes": [made.node("neg")], "name": "part"})
    assert fastexport.run_passes(made, [outline, "inline"])[0].added == ["part"]
    assert made.subgraphs is None


@pytest.mark.parametrize(
    ("item", "error", "text"),
    [
        ("replace_pattern", TypeError, "pass 'replace_pattern': missing a required argument: 'pattern'"),
        (("lint", {"al": True}), TypeError, "pass 'lint': got an unexpected keyword argument 'al'"),
        (("remove_noops", {"policy": "safe"}), TypeError, "unexpected keyword argument 'policy'"),
        (("nothing", {}), ValueError, "there is no pass 'nothing'"),
        (("lint", 1), ValueError, "there is no pass"),
        (("lint", {}, 1), ValueError, "there is no pass"),
        (3, ValueError, "there is no pass 3"),
    ],
)
def test_options_that_no_pass_takes(item, error, text):
    made = nested("torch")[1]
    before = str(made.graph)
    with pytest.raises(error, match=text):
        fastexport.run_passes(made, ["eliminate_dead_code", item])
    assert str(made.graph) == before


def test_partial_functions_are_called_by_their_names():
    made = inner_graph(fastexport.Graph)
    found = functools.partial(fastexport.replace_pattern, pattern=neg, replacement=sin)
    assert fastexport.run_passes(made, [found])[0].name == "replace_pattern"
    assert not made.find_nodes(op="call_function", target=torch.neg)


# ---- replacements below


@pytest.mark.parametrize("policy", ["safe", "torch"])
@pytest.mark.parametrize("path", ["inner", "block.inner"])
@pytest.mark.parametrize("kind", ["torch", "ours"])
def test_replacements_in_modules_that_are_called(kind, path, policy):
    made, inner = nested(kind, path)
    assert not fastexport.replace_pattern(made, neg, sin, policy=policy)
    done = fastexport.replace_pattern(made, neg, sin, recurse=True, policy=policy)
    assert [item.replacements[0].name for item in done] == ["sin", "sin_1"]
    assert all(item.replacements[0].graph is inner.graph for item in done)
    assert inner.code == inner.graph.python_code("self").src
    assert made(X).tolist() == (2 * torch.sin(X)).tolist()


def test_replacements_in_the_branches_of_a_program():
    program, x, scale = exported_cond()
    native = fastexport.from_export(program)
    pattern, new = (fx.Graph() for _ in range(2))
    for made, target in ((pattern, aten.neg.default), (new, aten.abs.default)):
        made.output(made.call_function(target, (made.placeholder("x"),)))
    for each, graph in (
        (program, program.graph_module.false_graph_0.graph),
        (native, native.graph.subgraphs["false_graph_0"]),
    ):
        assert not fastexport.replace_pattern(each, pattern, new)
        assert len(fastexport.replace_pattern(each, pattern, new, recurse=True)) == 1
        assert [node.name for node in graph.nodes if node.op == "call_function"] == ["abs_default", "add"]
    assert program.module()(-x, scale=scale)[0].tolist() == [2.0, 2.0, 2.0]


def test_a_fault_below_is_found_before_anything_is_replaced():
    for kind in ("torch", "ours"):
        made, inner = nested(kind)
        made.graph.output_node().prepend(made.graph.call_function(torch.neg, (list(made.graph.nodes)[0],)))
        nodes = list(inner.graph.nodes)
        nodes[1].append(nodes[-2])
        before = str(made.graph)
        with pytest.raises(fastexport.LintError):
            fastexport.replace_pattern(made, neg, sin, recurse=True)
        assert str(made.graph) == before
        assert fastexport.replace_pattern(made, neg, sin)


def test_replacements_in_a_chain_are_noted_as_without_one():
    alone, chained = (inner_graph(fastexport.Graph) for _ in range(2))
    fastexport.replace_pattern(alone, neg, sin)
    fastexport.run_passes(chained, [REPLACED])
    assert [str(n.meta) for n in chained.nodes] == [str(n.meta) for n in alone.nodes]
    assert "'neg', pass_name='replace_pattern', action='replace+create'" in str(chained.node("sin").meta["from_node"])
    silent = inner_graph(fastexport.Graph)
    fastexport.run_passes(silent, [REPLACED], provenance=False)
    assert not any("from_node" in node.meta for node in silent.nodes)


def test_a_callback_that_erases_nodes_itself():
    g = fastexport.Graph()
    y = g.call_function(operator.add, (g.placeholder("x"), 1))
    for _ in range(3):
        g.call_function(operator.neg, (y,))
    g.output(y)

    def erases(node):
        for other in reversed(list(g.nodes)):
            if other.op == "call_function" and not other.users:
                g.erase_node(other)
        return True

    result = fastexport.eliminate_dead_code(g, erases, explain=True)
    assert result.modified and sorted(result.removed) == ["neg", "neg_1", "neg_2"]
    assert result.reasons["neg"] == "removed: by is_impure_node"
    assert not fastexport.eliminate_dead_code(g, erases)


FIRST_USES = """
import operator, sys, threading
import torch, fastexport as fe
sys.setswitchinterval(1e-6)
def made():
    g = fe.Graph(); g.output(g.call_function(operator.add, (g.placeholder("x"), 1))); return g
uses = [lambda: fe.eliminate_common_subexpressions(made()), lambda: fe.eliminate_dead_code(made(), explain=True),
        lambda: fe.split(made(), lambda n: 0), lambda: made().python_code("self").src, lambda: fe.diff(made(), made()),
        lambda: fe.GraphModule({}, made())(1), lambda: fe.sort_topologically(made()), lambda: fe.dumps(made()),
        lambda: fe.replace_pattern(made(), made(), made()), lambda: fe.symbolic_trace(torch.nn.ReLU())]
start = threading.Barrier(len(uses))
def run(use):
    start.wait()
    try: use()
    except Exception as error: print(type(error).__name__, error)
threads = [threading.Thread(target=run, args=(use,)) for use in uses]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_first_uses_in_several_threads():
    """What is imported when it is first asked for is there for all, and whole."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FIRST_USES], capture_output=True, text=True, check=True)
        assert done.stdout == ""


def test_a_module_that_is_still_being_imported():
    """Nothing can be of a class that is not defined yet."""
    from importlib.machinery import ModuleSpec

    from fastexport._loaded import loaded

    module = type(sys)("fastexport._half")
    module.__spec__ = ModuleSpec("fastexport._half", None)
    with mock.patch.dict(sys.modules, {"fastexport._half": module}):
        assert loaded("fastexport._half") is module
        module.__spec__._initializing = True
        assert loaded("fastexport._half") is None
    assert loaded("fastexport._half") is None and loaded("sys") is sys


@pytest.mark.parametrize(
    "held", [lambda gm: vars(type(gm))["forward"], lambda gm: inspect.getattr_static(type(gm), "forward")]
)
def test_forward_of_the_class_can_be_called(held):
    """Code that is still to be made: what stands in the class's __dict__ is as good as torch's function there."""
    gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    _renew(gm)
    assert is_pending(gm)
    forward = held(gm)
    assert is_pending(gm) and callable(forward)
    assert torch.equal(forward(gm, torch.zeros(1)), torch.tensor([1.5]))
    assert not is_pending(gm) and type(vars(type(gm))["forward"]) is type(held)
    assert forward.__name__ == "forward" and list(inspect.signature(forward).parameters) == ["self", "x"]
    with pytest.raises(AttributeError, match="has no attribute 'no_such'"):
        _ = forward.no_such


def _renew(gm):
    """In a function that takes no __dict__, or the code would be made at once."""
    fastexport.replace_pattern(gm, lambda x: torch.relu(x), lambda x: torch.sigmoid(x))
