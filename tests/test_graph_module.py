"""GraphModule: results, code and attributes as those of torch's; running, copies, errors."""

import copy
import gc
import linecache
import math
import operator
import pickle
import weakref

import pytest
import torch
from torch import fx

import fastexport
from fastexport import Graph, GraphModule, from_fx
from fastexport._module_tree import Holder
from fx_graphs import exported, exported_cond

aten = torch.ops.aten


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.body = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Dropout(0.5))
        self.scale = torch.nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        return self.body(self.first(x)) * self.scale + self.shift + self.body[0].weight.sum()


def both():
    torch.manual_seed(0)
    theirs = fx.symbolic_trace(Net().eval())
    return theirs, GraphModule(theirs, from_fx(theirs), "GraphModule")


X = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))


def named(pairs):
    return {name: id(value) for name, value in pairs}


# ---- the same as torch


def test_results_code_and_attributes():
    theirs, ours = both()
    assert torch.equal(ours(X), theirs(X)) and torch.equal(ours.forward(X), theirs(X))
    assert ours.code == theirs.code
    assert named(ours.named_parameters()) == named(theirs.named_parameters())
    assert named(ours.named_buffers()) == named(theirs.named_buffers())
    assert list(ours.parameters())[0] is list(theirs.parameters())[0]
    assert len(list(ours.buffers())) == 1
    assert [name for name, _ in ours.named_modules()] == [name for name, _ in theirs.named_modules()]
    assert [name for name, _ in ours.named_children()] == [name for name, _ in theirs.named_children()]
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert ours.get_submodule("body.0") is theirs.get_submodule("body.0") and ours.get_submodule("") is ours
    assert ours.get_parameter("scale") is theirs.scale and ours.get_buffer("shift") is theirs.shift
    for ask, name in ((ours.get_submodule, "scale"), (ours.get_parameter, "shift"), (ours.get_buffer, "scale")):
        with pytest.raises(AttributeError, match=name):
            ask(name)
    with pytest.raises(AttributeError, match="no 'absent'; its attributes: first"):
        ours.absent  # noqa: B018
    assert "first" in dir(ours)


@pytest.mark.parametrize(
    "options",
    [{}, {"include_stride": True, "include_device": True}, {"colored": True}, {"expanded_def": True}],
    ids=str,
)
def test_print_readable(options, capsys):
    program, *_ = exported_cond()
    model, _ = exported("resnet")
    for theirs in (program.graph_module, program.module(), model.module(), both()[0]):
        ours = GraphModule(theirs, from_fx(theirs), type(theirs).__name__)
        text = theirs.print_readable(print_output=False, **options)
        assert ours.print_readable(**options) == text
        assert capsys.readouterr().out == text + "\n"
        outer = fx.GraphModule({"inner": theirs}, inner_graph())
        holder = GraphModule(outer, from_fx(outer))
        assert holder.print_readable(False, **options) == outer.print_readable(False, **options)


def inner_graph():
    graph = fx.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    return graph


@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_models_give_equal_bits(name):
    program, args = exported(name)
    theirs = program.module()
    ours = GraphModule(theirs, from_fx(theirs))
    with torch.no_grad():
        expected, found = theirs(*args), ours(*args)
    assert torch.equal(torch.utils._pytree.tree_leaves(found)[0], torch.utils._pytree.tree_leaves(expected)[0])


def test_submodules_are_added_and_deleted():
    for module in both():
        relu = torch.nn.ReLU()
        assert module.add_submodule("extra.deep.relu", relu)
        assert module.extra.deep.relu is relu
        assert module.add_submodule("body.more", relu) and not module.add_submodule("scale.more", relu)
        assert module.delete_submodule("extra.deep") and not module.delete_submodule("extra.deep")
        assert not module.delete_submodule("scale") and not module.delete_submodule("absent.more")
        assert module.add_submodule("extra.deep", relu)
        module.delete_all_unused_submodules()
        assert not hasattr(module, "extra") and not hasattr(module.body, "more")
        assert [name for name, _ in module.named_modules()] == ["", "first", "body", "body.0", "body.1", "body.2"]


def test_train_and_eval():
    theirs, ours = both()
    assert ours.training is theirs.training is False
    ours.train()
    assert ours.training and ours.get_submodule("body.2").training
    assert ours.eval() is ours and not theirs.get_submodule("body.2").training


def test_roots():
    g = Graph()
    x = g.placeholder("x")
    scaled = g.call_function(operator.mul, (x, g.get_attr("a.b")))
    g.output(g.call_function(operator.add, (scaled, g.get_attr("a.c.d"))))
    assert GraphModule({"a.b": 2, "a.c.d": 3}, g)(5) == 13
    copied = GraphModule(GraphModule({"a.b": 2, "a.c.d": 3}, g), copy.deepcopy(g))
    assert copied(5) == 13 and copied.a.c.d == 3
    with pytest.raises(RuntimeError, match=r"refers to 'a\.c\.d', which root has not got"):
        GraphModule({"a.b": 2}, g)
    with pytest.raises(AttributeError):
        GraphModule(torch.nn.Module(), g)
    with pytest.raises(TypeError, match="not int"):
        GraphModule(1, g)
    with pytest.raises(TypeError, match="takes a fastexport Graph, not Graph"):
        GraphModule({}, fx.Graph())


def test_to_fx_and_to_folder(tmp_path, monkeypatch):
    theirs, ours = both()
    back = ours.to_fx()
    assert type(back).__mro__[1] is fx.GraphModule and torch.equal(back(X), theirs(X))
    assert back.scale is theirs.scale and not back.training
    with pytest.warns(UserWarning):
        ours.to_folder(tmp_path / "written", "Net")
    monkeypatch.syspath_prepend(tmp_path)
    from written import Net as Written  # type: ignore[import-not-found]

    assert torch.equal(Written().eval()(X), theirs(X))


def test_packages_import_what_they_need(tmp_path, monkeypatch):
    g = Graph()
    x = g.placeholder("x")
    g.output((g.call_function(math.sqrt, (x,)), g.call_function(dict, (), {"from": x})))
    with pytest.raises(ValueError, match="can't be imported"):
        twin = copy.deepcopy(g)
        with twin.inserting_before(twin.output_node()):
            odd = twin.call_function(lambda: 1)
        twin.output_node().args = (odd,)
        GraphModule({}, twin).to_folder(tmp_path / "odd")
    assert not (tmp_path / "odd").exists()
    GraphModule({}, g).to_folder(tmp_path / "roots", "Roots")
    monkeypatch.syspath_prepend(tmp_path)
    from roots import Roots  # type: ignore[import-not-found]

    assert Roots()(4) == (2.0, {"from": 4})


def test_attributes_that_are_called_like_ours():
    names = ["graph", "code", "meta", "train", "forward.weight"]
    g = Graph()
    g.output([g.get_attr(name) for name in names])
    module = GraphModule(dict(zip(names, range(5), strict=True)), g)
    assert module() == [0, 1, 2, 3, 4] and module.graph is g
    assert GraphModule(module, copy.deepcopy(g))() == [0, 1, 2, 3, 4]
    assert copy.deepcopy(module)() == pickle.loads(pickle.dumps(module))() == [0, 1, 2, 3, 4]


# ---- when code is made


def test_code_is_made_once_and_late(monkeypatch):
    made = []
    stock = Graph.python_code

    def counted(self, *args, **kwargs):
        made.append(self)
        return stock(self, *args, **kwargs)

    monkeypatch.setattr(Graph, "python_code", counted)
    _, ours = both()
    ours.graph = ours.graph
    assert made == []
    expected = ours(X)
    assert torch.equal(ours(X), expected) and len(made) == 1
    last = ours.graph.output_node()
    with ours.graph.inserting_before(last):
        last.replace_input_with(last.args[0], ours.graph.call_function(operator.neg, (last.args[0],)))
    assert torch.equal(ours(X), expected)  # as in torch, until it is recompiled
    assert "neg" in ours.recompile().src and len(made) == 2
    assert torch.equal(ours(X), -expected) and len(made) == 2
    ours.graph = from_fx(both()[0])
    assert torch.equal(ours(X), expected)
    assert ours.graph.owning_module is ours
    with pytest.raises(TypeError, match="fastexport Graph"):
        ours.graph = fx.Graph()


def test_sources_go_with_the_module():
    _, ours = both()
    ours(X)
    file = ours.forward.__code__.co_filename
    assert linecache.getline(file, 4).startswith("def forward")
    gone = weakref.ref(ours)
    del ours
    gc.collect()
    assert gone() is None and file not in linecache.cache


def test_passes_take_the_module():
    _, ours = both()
    ours(X)
    with ours.graph.inserting_before(ours.graph.output_node()):
        ours.graph.call_function(operator.neg, (ours.graph.find_nodes(op="placeholder")[0],), name="unused")
    assert "unused" not in ours.code
    assert fastexport.lint(ours) == [] and "unused" in ours.code
    assert fastexport.eliminate_dead_code(ours).removed == ["unused"] and "unused" not in ours.code


def test_modules_of_ours_are_modules_for_lint():
    inner = Graph()
    inner.output(inner.placeholder("x"))
    outer = Graph()
    x = outer.placeholder("x")
    outer.output([outer.create_node("call_module", target, (x,)) for target in ("deep.inner", "scale", "deep")])
    module = GraphModule({"deep.inner": GraphModule({}, inner), "scale": 3, "deep": Holder()}, outer)
    module.deep.inner = GraphModule({}, inner)
    assert outer.owning_module is module
    faults = [(fault.code, fault.node) for fault in fastexport.lint(module, all=True)]
    assert faults == [("TARGET_NOT_MODULE", "scale"), ("TARGET_NOT_MODULE", "deep")]


# ---- errors


def test_errors_tell_the_line():
    _, ours = both()
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        ours(torch.ones(2, 4))
    (note,) = caught.value.__notes__
    assert note.startswith("in line 5 of the code generated for GraphModule:")
    assert "->     first = self.first(x);  x = None" in note


def test_errors_of_modules_in_modules_tell_one_line():
    _, inner = both()
    g = Graph()
    g.output(g.call_module("inner", (g.placeholder("x"),)))
    with pytest.raises(RuntimeError) as caught:
        GraphModule({"inner": inner}, g, "Outer")(torch.ones(2, 4))
    (note,) = caught.value.__notes__
    assert "self.first(x)" in note


def test_wrong_arguments_are_told_by_python():
    _, ours = both()
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        ours()


# ---- copies


def test_copies():
    theirs, ours = both()
    ours.meta["k"] = [1]
    deep, shallow, pickled = copy.deepcopy(ours), copy.copy(ours), pickle.loads(pickle.dumps(ours))
    for each in (deep, shallow, pickled):
        assert torch.equal(each(X), theirs(X)) and each.meta == {"k": [1]} and not each.training
    assert deep.first is not ours.first and deep.graph is not ours.graph and deep.meta["k"] is not ours.meta["k"]
    assert shallow.first is ours.first and shallow.graph is ours.graph
    assert deep.graph.owning_module is deep and pickled.graph.owning_module is pickled
    assert ours.graph.owning_module is ours


def test_a_copy_refers_to_itself_once():
    _, ours = both()
    ours.itself = ours
    twin = copy.deepcopy(ours)
    assert twin.itself is twin


# ---- subgraphs, programs


def test_subgraphs_of_a_torch_module():
    program, x, scale = exported_cond()
    theirs = program.module()
    ours = GraphModule(theirs, from_fx(theirs))
    assert torch.equal(ours(x, scale=scale)[0], theirs(x, scale=scale)[0])
    (name, _), *_ = ours.graph.subgraphs.items()
    branch = getattr(ours, name)
    assert isinstance(branch, GraphModule) and branch.graph is ours.graph.subgraphs[name]
    back = ours.to_fx()
    assert torch.equal(back(x, scale=scale)[0], theirs(x, scale=scale)[0])


def test_programs_run_from_files(tmp_path):
    program, args = exported("resnet")
    torch.export.save(program, tmp_path / "resnet.pt2")
    module = fastexport.load(tmp_path / "resnet.pt2").unlift()
    with torch.no_grad():
        expected, found = program.module()(*args), module(*args)
    assert torch.equal(torch.utils._pytree.tree_leaves(found)[0], torch.utils._pytree.tree_leaves(expected)[0])
    weights = {name: value.numel() for name, value in program.named_parameters()}
    assert {name: value.numel for name, value in module.named_parameters()} == weights


def nested(function, depth=1):
    """A GraphModule that calls one that calls one ... that calls a function of (x, 1)."""
    inner = Graph()
    inner.output(inner.call_function(function, (inner.placeholder("x"), 1)))
    module = GraphModule({}, inner)
    for _ in range(depth):
        outer = Graph()
        outer.output(outer.call_module("s", (outer.placeholder("x"),)))
        module = GraphModule({"s": module}, outer)
    return module


class TestNested:
    @pytest.mark.parametrize("depth", [1, 3])
    def test_to_fx_gives_modules_of_torch_all_the_way(self, depth):
        module = nested(operator.add, depth).to_fx()
        module.graph.lint()
        assert all(isinstance(child, fx.GraphModule) for child in module.modules())
        assert module(3) == 4

    def test_a_module_that_is_called_twice_is_one_in_torch_too(self):
        inner, outer = nested(operator.add), Graph()
        outer.output(outer.call_module("b", (outer.call_module("a", (outer.placeholder("x"),)),)))
        module = GraphModule({"a": inner, "b": inner}, outer).to_fx()
        assert module.a is module.b and module(1) == 3

    def test_lint_of_what_split_gives(self):
        graph = Graph()
        graph.output(graph.call_function(operator.add, (graph.placeholder("x"), 1)))
        result = fastexport.split(GraphModule({}, graph), lambda node: 0).result
        assert fastexport.lint(result) == [] and not fastexport.eliminate_dead_code(result)

    def test_diff_looks_into_the_modules(self):
        found = fastexport.diff(nested(operator.add), nested(operator.sub))
        assert list(found.graphs) == ["s"] and "operator.sub" in found.text()
        assert not fastexport.diff(nested(operator.add, 3), nested(operator.add, 3))
        assert fastexport.diff(nested(operator.add, 50), nested(operator.add, 3))

    def test_diff_looks_into_modules_of_torch(self):
        def around(function):
            graph = Graph()
            graph.output(graph.call_module("s", (graph.placeholder("x"),)))
            return GraphModule({"s": fx.symbolic_trace(function)}, graph)

        assert fastexport.diff(around(lambda x: x + 1), around(lambda x: x - 1))
        assert not fastexport.diff(around(lambda x: x + 1), around(lambda x: x + 1))

    def test_diff_of_modules_that_call_themselves(self):
        first, second = nested(operator.add), nested(operator.add)
        first.__dict__["s"], second.__dict__["s"] = first, second
        assert not fastexport.diff(first, second)

    @pytest.mark.parametrize("depth", [1, 3])
    def test_inline(self, depth):
        module = nested(operator.add, depth)
        assert fastexport.inline(module).removed == ["s"]
        assert [node.op for node in module.graph.nodes] == ["placeholder", "call_function", "output"]
        assert module.graph.subgraphs is None and module(3) == 4

    def test_inline_keeps_attributes_where_they_are(self):
        inner, outer = Graph(), Graph()
        inner.output(inner.call_function(operator.add, (inner.placeholder("x"), inner.get_attr("w"))))
        outer.output(outer.call_module("s", (outer.placeholder("x"),)))
        module = GraphModule({"s": GraphModule({"w": 5}, inner)}, outer)
        assert fastexport.inline(module) and module(1) == 6

    def test_inline_leaves_what_is_not_wanted(self):
        module = nested(operator.add)
        assert not fastexport.inline(module, lambda path: False)
        assert module.graph.subgraphs is None and module(3) == 4


class TestNames:
    @pytest.mark.parametrize("value", [3, None, torch.ones(1), "s"])
    def test_only_modules_are_added(self, value):
        module = nested(operator.add)
        with pytest.raises(TypeError, match="add_submodule takes a GraphModule or a torch.nn.Module"):
            module.add_submodule("a.b", value)
        assert not hasattr(module, "a")

    @pytest.mark.parametrize("name", ["", "a.", ".a", "graph", "forward", "train.x", "__dict__"])
    def test_bad_names_of_modules(self, name):
        with pytest.raises(KeyError):
            nested(operator.add).add_submodule(name, torch.nn.ReLU())

    @pytest.mark.parametrize("name", ["__dict__", "__class__", "a.__dict__"])
    def test_attributes_that_every_object_has(self, name):
        graph = Graph()
        graph.output(graph.get_attr(name))
        with pytest.raises(ValueError, match=name.removeprefix("a.")):
            GraphModule({name: 5}, graph)
