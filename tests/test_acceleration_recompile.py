"""Code that is made at the first look: it is the code of the graph at recompile, however late the look comes."""

import copy
import dataclasses
import gc
import inspect
import io
import linecache
import operator
import pickle
import random
import re
import sys
import threading
import types
import warnings
import weakref
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")

from torch import fx  # noqa: E402
from torch.fx import graph_module as fx_graph_module  # noqa: E402
from torch.fx.experimental import _config as fx_config  # noqa: E402
from torch.fx.graph import CodeGen, PythonCode, _PyTreeCodeGen, _PyTreeInfo  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from fastexport import acceleration  # noqa: E402
from fastexport.acceleration import _deferred, _recompile  # noqa: E402
from fastexport.acceleration._deferred import is_pending  # noqa: E402

NAME = "recompile"
aten = torch.ops.aten


def accelerate(**options):
    return acceleration.accelerate(only=[NAME], **options)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x, scale=None):
        y = torch.relu(self.linear(x))
        return y + 1, y.sum()


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    return torch.export.export(Small().eval(), (torch.ones(2, 3),))


def graph():
    """x + y, times two, and a node without users."""
    made = fx.Graph()
    x, y = made.placeholder("x"), made.placeholder("y")
    total = made.call_function(aten.add.Tensor, (x, y))
    made.call_function(aten.sub.Tensor, (x, y))
    made.output((made.call_function(aten.mul.Tensor, (total, 2)),))
    return made


def pending(made=None):
    """A module whose code is to be made; acceleration has ended."""
    with accelerate():
        module = fx.GraphModule(torch.nn.Module(), graph() if made is None else made)
    assert is_pending(module)
    return module


def at_once(made=None):
    return fx.GraphModule(torch.nn.Module(), graph() if made is None else made)


def seen(module):
    """All that is to be seen of a module's code."""
    forward = type(module).forward
    return {
        "code": module.code,
        "lines": module._lineno_map,
        "start": module._prologue_start,
        "bytes": forward.__code__.co_code,
        "names": forward.__code__.co_names,
        "globals": sorted(name for name in forward.__globals__ if name != "__builtins__"),
        "signature": str(inspect.signature(module.forward)),
        "class": sorted(vars(type(module))),
        "attributes": sorted(vars(module)),
    }


def listed(made):
    """find_nodes' table, with its order."""
    return {key: [n.name for n in nodes] for key, nodes in made._find_nodes_lookup_table.table.items()}


# ---- what code it is


def edit(made):
    """Edits that change all that code is made from."""
    x, y, total, unused, product, output = made.nodes
    product.args = (total, 3)
    unused.target = aten.div.Tensor
    total.name = "renamed"
    with made.inserting_before(output):
        made.call_function(aten.neg.default, (product,))
    x.replace_all_uses_with(y, delete_user_cb=lambda user: user is unused)
    made.erase_node(unused)


def test_code_is_of_the_graph_at_recompile():
    ours, theirs = pending(), at_once()
    edit(ours.graph)
    edit(theirs.graph)
    assert seen(ours) == seen(theirs)
    assert listed(ours.graph) == listed(theirs.graph)
    assert ours(torch.ones(2), torch.ones(2))[0].tolist() == [4, 4]
    ours.recompile()
    theirs.recompile()
    assert seen(ours) == seen(theirs)


def test_deletions_go_by_users_at_recompile():
    ours, theirs = pending(), at_once()
    for made in (ours.graph, theirs.graph):
        unused = next(node for node in made.nodes if node.name == "sub_tensor")
        made.output_node().args = ((unused,),)
    assert ours.code == theirs.code
    assert "sub_tensor = None" in ours.code


def test_arguments_changed_after_erasing_everything():
    ours, theirs = pending(), at_once()
    for made in (ours.graph, theirs.graph):
        for node in reversed(list(made.nodes)):
            made.erase_node(node)
    assert seen(ours) == seen(theirs)


def test_recompile_again_before_a_look():
    ours, theirs = pending(), at_once()
    edit(ours.graph)
    edit(theirs.graph)
    with accelerate():
        ours.recompile()
    theirs.recompile()
    ours.graph.output_node().args = ((),)
    assert is_pending(ours)
    assert seen(ours) == seen(theirs)


def test_recompile_of_torch_over_pending_code():
    ours, theirs = pending(), at_once()
    for module in (ours, theirs):
        edit(module.graph)
        module.recompile()
    assert ours._code == theirs._code
    assert ours(torch.ones(2), torch.ones(2))[0].tolist() == theirs(torch.ones(2), torch.ones(2))[0].tolist()
    _deferred.make_all()
    assert seen(ours) == seen(theirs)


def test_find_nodes_is_put_in_order_at_recompile_and_not_at_a_look():
    modules = [at_once(), at_once()]
    for module in modules:
        edit(module.graph)
        module.graph.output_node().append(module.graph.call_function(aten.add.Tensor, (1, 2)))
        next(iter(module.graph.nodes)).meta = {}
    before = listed(modules[0].graph)
    modules[0].recompile()
    with accelerate():
        modules[1].recompile()
    assert listed(modules[1].graph) == listed(modules[0].graph) != before
    for module in modules:
        next(iter(module.graph.nodes)).meta = {}  # moves it to the end
    assert modules[1].code == modules[0].code
    assert listed(modules[1].graph) == listed(modules[0].graph)


def test_live_nodes_are_not_touched_by_a_look():
    module = pending()
    nodes = list(module.graph.nodes)
    nodes[0]._repr_fn = lambda node: "mine"
    assert "mine" not in module.code
    assert repr(nodes[0]) == "mine"


def test_names_that_hide_something():
    def make():
        made = fx.Graph()
        x = made.placeholder("x")
        nodes = [made.create_node("call_function", aten.neg.default, (x,), name="torch")]
        for name in ("if", "print", "inf", "device", "x_1", "torch_1"):
            nodes.append(made.create_node("call_function", aten.add.Tensor, (nodes[-1], x)))
            nodes[-1].name = name
        made.output(tuple(nodes))
        return made

    assert seen(pending(make())) == seen(at_once(make()))


def test_kinds_of_arguments():
    def make():
        made = fx.Graph()
        x = made.placeholder("x")
        values = [None, True, -1, 2.5, float("inf"), float("nan"), "a\"'\n", 1 << 40, torch.float32]
        values += [torch.device("cpu"), torch.strided, torch.contiguous_format, slice(x, None, 2), ..., [x, (x,), ()]]
        values += [{"k": x, "l": [1, {"m": x}]}]
        call = made.call_function(aten.add.Tensor, tuple(values), {"alpha": values[:8], "out": x})
        item = made.call_function(operator.getitem, (call, slice(None, x)))
        made.call_function(operator.mul, (2, item))
        made.call_function(torch.add, (x, x))
        made.call_function(torch.nn.functional.relu, (x,), {"inplace": False})
        made.call_method("view", (x, -1))
        made.get_attr("a.0.b")
        made.call_module("layers.0", (x,), {"k": x})
        made.output([call, item])
        return made

    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.ReLU()])
            self.a = torch.nn.ModuleList([torch.nn.Module()])
            self.a[0].b = torch.ones(1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with accelerate():
            ours = fx.GraphModule(Root(), make())
        theirs = fx.GraphModule(Root(), make())
    assert is_pending(ours)
    assert seen(ours) == seen(theirs)


def test_globals_of_the_result():
    with accelerate():
        module = fx.GraphModule(torch.nn.Module(), graph())
        code = module.recompile()
    code.globals["torch"] = None  # stock's forward has a copy of its own
    assert module(torch.ones(1), torch.ones(1))[0].item() == 4


# ---- the state that the code depends on besides nodes


def with_tree(names=("a", "b")):
    made = graph()
    spec = pytree.tree_structure(((0, 0), {}))
    made.set_codegen(_PyTreeCodeGen(_PyTreeInfo(list(names), spec, pytree.tree_structure((0,)))))
    return made


def test_code_generator_in_its_state_of_then():
    ours, theirs = pending(with_tree()), at_once(with_tree())
    assert (ours._in_spec, ours._out_spec) == (theirs._in_spec, theirs._out_spec)
    for module in (ours, theirs):
        codegen = module.graph._codegen
        codegen.pytree_info.orig_args[0] = "changed"
        codegen.pytree_info = codegen.pytree_info._replace(out_spec=None)
        module.graph.on_generate_code(lambda previous: lambda body: ["changed\n", *body])
    assert seen(ours) == seen(theirs)
    assert ours(torch.ones(1), torch.ones(1))[0].item() == 4


def test_code_generator_without_specs():
    def make(*names):
        made = fx.Graph()
        made.set_codegen(_PyTreeCodeGen(_PyTreeInfo(list(names), None, None)))
        made.output(made.call_function(torch.add, (1, 2)))
        return made

    with accelerate():
        module = at_once(make())
    assert seen(module) == seen(at_once(make()))


def test_code_generator_replaced():
    ours, theirs = pending(with_tree()), at_once(with_tree())
    for module in (ours, theirs):
        module.graph.set_codegen(CodeGen())
    assert seen(ours) == seen(theirs)


def test_number_in_the_file_name_is_that_of_recompile():
    loader = fx_graph_module._loader
    first = loader.next_id
    ours = pending()
    assert loader.next_id == first + 1
    other = at_once()
    assert type(other).forward.__code__.co_filename == f"<eval_with_key>.{first + 1}"
    assert type(ours).forward.__code__.co_filename == f"<eval_with_key>.{first}"
    assert loader.next_id == first + 2
    assert linecache.getline(f"<eval_with_key>.{first}", 4).startswith("def forward(self, x, y)")
    assert loader.get_source(f"<eval_with_key>.{first}") == ours.code
    assert inspect.getsource(ours.forward).startswith("def forward(self, x, y)")


@pytest.mark.parametrize(
    "fields", [{"co_filename": "mine"}, {"co_filename": "mine", "co_firstlineno": 3, "co_name": "f"}]
)
def test_co_fields_of_then(fields):
    made = graph()
    made._co_fields = dict(fields)
    number = fx_graph_module._loader.next_id
    ours = pending(made)
    made._co_fields["co_filename"] = "changed"
    expected = "mine" if len(fields) == 1 else f"<eval_with_key>.{number} from mine:3 in f"
    assert type(ours).forward.__code__.co_filename == expected


def test_the_function_that_calls_the_module():
    ours, theirs = type(pending()), type(at_once())
    for part in ("__code__", "__name__", "__qualname__", "__module__", "__annotations__", "__globals__", "__doc__"):
        assert getattr(ours.__call__, part) == getattr(theirs.__call__, part), part
    for part in ("__closure__", "__defaults__", "__kwdefaults__", "__dict__"):
        assert not getattr(ours.__call__, part) and not getattr(theirs.__call__, part), part
    assert type(ours._wrapped_call) is type(theirs._wrapped_call)
    assert (ours._wrapped_call.cls, ours._wrapped_call.cls_call) == (ours, None)


def test_a_call_method_of_the_class_itself_is_wrapped_as_torch_does():
    ours, theirs = pending(), at_once()
    for module in (ours, theirs):
        del type(module)._wrapped_call
        type(module).__call__ = lambda self, *args: ("own", *args)
    with accelerate():
        ours.recompile()
    theirs.recompile()
    assert is_pending(ours)
    assert ours(1) == theirs(1) == ("own", 1)


def test_submodules_are_recompiled_too():
    inner = at_once()
    outer = fx.Graph()
    x = outer.placeholder("x")
    outer.output(outer.call_module("inner", (x, x)))
    with accelerate():
        module = fx.GraphModule({"inner": inner}, outer)
        assert is_pending(module) and is_pending(inner)
        edit(inner.graph)
    assert "renamed" not in inner.code
    assert not is_pending(inner) and is_pending(module)
    assert module(torch.ones(1))[0].item() == 4


def test_message_of_an_error_in_the_code(capsys):
    messages = []
    for make in (pending, at_once):
        made = fx.Graph()
        made.output(made.call_function(operator.add, (made.placeholder("x"), "text")))
        module = make(made)
        with pytest.raises(TypeError, match="unsupported operand"):
            module(1)
        messages.append(capsys.readouterr().err.partition("Call using an FX-traced Module")[2])
    assert messages[0] == messages[1] and "add = x + 'text'" in messages[0]


# ---- looks


def package(module):
    buffer = io.BytesIO()
    with torch.package.PackageExporter(buffer) as exporter:
        exporter.extern("**")
        exporter.save_pickle("p", "m.pkl", module)
    buffer.seek(0)
    return torch.package.PackageImporter(buffer).load_pickle("p", "m.pkl").code


def to_folder(module, path):
    module.to_folder(path)
    return (path / "module.py").read_text()


LOOKS = {
    "call": lambda module, path: module(torch.ones(1), torch.ones(1)),
    "forward": lambda module, path: module.forward(torch.ones(1), torch.ones(1)),
    "forward of the class": lambda module, path: type(module).forward(module, torch.ones(1), torch.ones(1)),
    "forward of super": lambda module, path: super(type(module), module).forward.__name__,
    "code": lambda module, path: module.code,
    "_code": lambda module, path: module._code,
    "hasattr": lambda module, path: hasattr(module, "_code"),
    "lines": lambda module, path: module._lineno_map,
    "start": lambda module, path: module._prologue_start,
    "print": lambda module, path: str(module),
    "pickle": lambda module, path: pickle.loads(pickle.dumps(module)).code,
    "reduce": lambda module, path: sorted(module.__reduce__()[1][0]),
    "reduce_ex": lambda module, path: sorted(module.__reduce_ex__(4)[1][0]),
    "reduce of the class": lambda module, path: sorted(type(module).__reduce__(module)[1][0]),
    "getstate": lambda module, path: sorted(module.__getstate__()),
    "save": lambda module, path: torch.save(module, path / "m.pt"),
    "package": lambda module, path: package(module),
    "to_folder": to_folder,
    "signature": lambda module, path: inspect.signature(module.forward),
    "source": lambda module, path: inspect.getsource(module.forward),
    "trace": lambda module, path: fx.symbolic_trace(module).code,
    "jit.trace": lambda module, path: torch.jit.trace(module, (torch.ones(1), torch.ones(1))).code,
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("inside", [False, True])
def test_looks(look, inside, tmp_path):
    """Each gives the same as without acceleration, inside of the block and after it."""
    modules = [pending(), at_once()]
    results = []
    for module, folder in zip(modules, ("ours", "theirs"), strict=True):
        edit(module.graph)
        (tmp_path / folder).mkdir()
        with accelerate() if inside and folder == "ours" else mock.MagicMock():
            results.append(LOOKS[look](module, tmp_path / folder))
    assert str(results[0]).replace("ours", "theirs") == str(results[1])
    if look != "forward of super":
        assert seen(modules[0]) == seen(modules[1])


@pytest.mark.filterwarnings("ignore:The TorchScript type system")
def test_torch_script():
    def make():
        made = fx.Graph()
        made.output(made.call_function(torch.add, (made.placeholder("x"), 2)))
        return made

    assert torch.jit.script(pending(make())).code == torch.jit.script(at_once(make())).code


def test_print_readable_goes_by_the_graph():
    ours, theirs = pending(), at_once()
    edit(ours.graph)
    edit(theirs.graph)
    assert ours.print_readable(print_output=False) == theirs.print_readable(print_output=False)
    assert is_pending(ours)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies(copied):
    ours, theirs = pending(), at_once()
    edit(ours.graph)
    edit(theirs.graph)
    with accelerate():
        copy_of_ours = copied(ours)
    copy_of_theirs = copied(theirs)
    assert is_pending(ours) and is_pending(copy_of_ours)
    assert seen(copied(ours)) == seen(copy_of_ours) == seen(copy_of_theirs)
    assert seen(ours) == seen(theirs)


def test_pickle_inside_the_block_has_the_code_before_and_not_after():
    """__reduce__ takes the attributes first and recompiles then: the code in a pickle is the older one."""
    bodies = []
    for module, scope in ((pending(), accelerate()), (at_once(), mock.MagicMock())):
        edit(module.graph)
        with scope:
            bodies.append(module.__reduce__()[1])
        assert "renamed" in module.code
    assert "renamed" not in bodies[0][0]["_code"]
    assert bodies[0][0]["_code"] == bodies[1][0]["_code"]
    assert bodies[0][1] == bodies[1][1]


def test_classes_look_alike_after_a_look():
    ours, theirs = pending(), at_once()
    ours.code  # noqa: B018
    assert list(vars(type(ours))) == list(vars(type(theirs)))
    assert type(type(ours).forward) is types.FunctionType


def test_forward_is_one_function():
    module = pending()
    first = module.forward
    assert module.forward == first and type(module).forward is first.__func__


def test_looks_at_the_class_alone():
    cls = type(pending())  # the module is gone
    gc.collect()
    assert not hasattr(cls, "_code")
    assert inspect.isfunction(cls.forward)


def test_profile_and_hooks():
    module = pending()
    calls = []
    module.register_forward_hook(lambda *args: calls.append("hook"))
    with torch.profiler.profile() as profile:
        module(torch.ones(1), torch.ones(1))
    assert calls == ["hook"]
    assert "aten::add" in [event.key for event in profile.key_averages()]


# ---- assignments in between


def test_a_forward_that_the_user_assigned_stays():
    ours, theirs = pending(), at_once()
    for module in (ours, theirs):
        type(module).forward = lambda self, *args: "own"
        assert module.code
        assert module(1) == "own"
    assert seen(ours)["class"] == seen(theirs)["class"]
    with accelerate():
        ours.recompile()
    theirs.recompile()
    assert seen(ours) == seen(theirs)


def test_a_forward_of_the_instance_stays():
    module = pending()
    module.forward = lambda *args: "own"
    assert module(1) == "own"
    assert is_pending(module)
    del module.forward
    assert module(torch.ones(1), torch.ones(1))[0].item() == 4


def test_mock_patch_puts_the_hook_back():
    module = pending()
    with mock.patch.object(type(module), "forward", lambda self, *args: "mocked"):
        assert module(1) == "mocked"
        assert module.code
    assert module(torch.ones(1), torch.ones(1))[0].item() == 4
    assert type(type(module).forward) is types.FunctionType


def test_deleted_forward():
    ours, theirs = pending(), at_once()
    for module in (ours, theirs):
        del type(module).forward
        with pytest.raises(NotImplementedError):
            module(1)
    assert ours.code == theirs.code


@pytest.mark.parametrize("name", ["__reduce__", "__getstate__", "_code"])
def test_what_the_user_put_into_the_class_stays(name):
    module = at_once()
    setattr(type(module), name, "own")
    with accelerate():
        module.recompile()
    assert not is_pending(module)
    assert vars(type(module))[name] == "own"


@pytest.mark.parametrize("name", ["_code", "_lineno_map", "_prologue_start"])
def test_assigned_and_deleted_state(name):
    ours, theirs = pending(), at_once()
    for module in (ours, theirs):
        setattr(module, name, "own")
        assert getattr(module, name) == "own"
        module.forward  # noqa: B018
        assert getattr(module, name) == "own"
    assert seen(ours) == seen(theirs)
    ours, theirs = pending(), at_once()
    for module in (ours, theirs):
        delattr(module, name)
        assert module(torch.ones(1), torch.ones(1))[0].item() == 4
        assert not hasattr(module, name)
    assert sorted(vars(ours)) == sorted(vars(theirs))


def test_a_class_made_of_the_modules_class():
    """As fully_shard does."""
    ours, theirs = pending(), at_once()
    for module in (ours, theirs):
        module.__class__ = type("Sharded", (type(module),), {})
        edit(module.graph)
    assert ours(torch.ones(1), torch.ones(1))[0].item() == 4
    assert ours.code == theirs.code
    with accelerate():
        ours.recompile()
    theirs.recompile()
    assert not is_pending(ours)
    assert seen(ours) == seen(theirs)


def test_an_object_that_shares_the_attributes():
    """As the proxies of modules in make_fx."""
    module = pending()
    proxy = object.__new__(type("Proxy", (type(module),), {}))
    proxy.__dict__ = module.__dict__
    assert proxy._code == module._code == module.code
    assert proxy(torch.ones(1), torch.ones(1))[0].item() == 4


# ---- the result of recompile


def promised():
    with accelerate():
        return at_once().recompile()


PROMISE_LOOKS = {
    "src": lambda code: code.src,
    "globals": lambda code: sorted(code.globals),
    "lines": lambda code: code._lineno_map,
    "start": lambda code: code._prologue_start,
    "repr": repr,
    "equal": lambda code: code == at_once().recompile(),
    "equal to": lambda code: at_once().recompile() == code,
    "asdict": lambda code: dataclasses.asdict(dataclasses.replace(code, globals={})),
    "replace": lambda code: dataclasses.replace(code, src="new", globals={}),
    "fields": lambda code: [field.name for field in dataclasses.fields(code)],
    "copy": lambda code: copy.copy(code).src,
    "vars": lambda code: sorted(vars(code)),
    "pickle": lambda code: pickle.loads(pickle.dumps(dataclasses.replace(code, globals={}))).src,
    "deepcopy": lambda code: copy.deepcopy(code._lineno_map),
    "hash": lambda code: getattr(type(code), "__hash__", 0) is None,
}


@pytest.mark.parametrize("look", PROMISE_LOOKS)
def test_looks_at_the_result(look):
    code = promised()
    assert isinstance(code, PythonCode)
    assert PROMISE_LOOKS[look](code) == PROMISE_LOOKS[look](at_once().recompile())
    code.src  # noqa: B018
    assert type(code) is PythonCode


def test_the_result_can_be_changed():
    code = promised()
    code.src = "new"
    assert type(code) is PythonCode and code.src == "new" and "torch" in code.globals


def test_the_result_is_of_the_graph_at_recompile():
    with accelerate():
        module = fx.GraphModule(torch.nn.Module(), graph())
        code = module.recompile()
        edit(module.graph)
        module.recompile()
    assert "renamed" not in code.src
    assert "renamed" in module.code


# ---- at once


class Overrides:
    class Recompile(fx.GraphModule):
        def recompile(self):
            code = super().recompile()
            self.noted = "_code" in self.__dict__
            return code

    class Deepcopy(fx.GraphModule):
        def __deepcopy__(self, memo):
            return super().__deepcopy__(memo)

    class Reduce(fx.GraphModule):
        def __reduce__(self):
            return super().__reduce__()

    class Setattr(fx.GraphModule):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

    class Getattr(fx.GraphModule):
        def __getattr__(self, name):
            return super().__getattr__(name)

    class Code(fx.GraphModule):
        code = property(lambda self: self.__dict__["_code"])

    class State(fx.GraphModule):
        _code = "own"

    class New(fx.GraphModule):
        def __new__(cls, *args, **kwargs):
            return super().__new__(cls, *args, **kwargs)


@pytest.mark.parametrize("name", [name for name in vars(Overrides) if not name.startswith("_")])
def test_overrides_get_their_code_at_once(name):
    with accelerate():
        module = getattr(Overrides, name)(torch.nn.Module(), graph())
    assert "_code" in vars(module)
    if name == "Recompile":
        assert module.noted


def test_a_subclass_without_overrides_waits():
    class Plain(fx.GraphModule):
        def forward(self, x):
            raise AssertionError("the generated one hides it")

        def more(self):
            return self.code

    with accelerate():
        module = Plain(torch.nn.Module(), graph())
    assert is_pending(module)
    assert module.more() == at_once().code


def test_lazy_graph_modules_of_torch():
    lazy = fx._lazy_graph_module._LazyGraphModule
    with accelerate():
        module = lazy(torch.nn.Module(), graph())
        module.real_recompile()
        assert "_code" in vars(module)
    assert module.code == at_once().code


def test_profiler_metadata():
    with fx_config.patch(enrich_profiler_metadata=True), accelerate():
        module = at_once()
    assert not is_pending(module)
    assert "_RecordFunctionFast" in module.code


def test_environment(monkeypatch):
    monkeypatch.setenv("FX_GRAPH_SHOW_META", "1")
    with accelerate():
        assert not is_pending(at_once())


def test_body_transformer():
    made = graph()
    made.on_generate_code(lambda previous: lambda body: ["pass\n", *body])
    with accelerate():
        module = at_once(made)
    assert not is_pending(module) and "    pass\n" in module.code


def test_code_generator_of_the_user():
    class Own(CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation, **kwargs):
            return "def forward(self, *args):"

    made = graph()
    made.set_codegen(Own())
    with accelerate():
        module = at_once(made)
    assert not is_pending(module) and "*args" in module.code


def test_graph_of_the_user():
    class Own(fx.Graph):
        def python_code(self, *args, **kwargs):
            code = super().python_code(*args, **kwargs)
            code.src += "    # own"
            return code

    made = Own()
    made.output(made.placeholder("x"))
    with accelerate():
        module = at_once(made)
    assert not is_pending(module) and module.code.endswith("# own")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (CodeGen, "_gen_python_code"),
        (fx.Graph, "python_code"),
        (fx_graph_module, "_forward_from_src"),
        (fx.Node, "__setattr__"),
    ],
)
def test_patched_parts_of_torch_are_called(monkeypatch, place, name):
    calls = []
    stock = vars(place)[name]
    monkeypatch.setattr(place, name, lambda *args, **kwargs: calls.append(1) or stock(*args, **kwargs))
    with accelerate():
        module = at_once()
    assert not is_pending(module) and calls


def test_a_caller_that_takes_the_attributes():
    def key_of(module):
        module.recompile()
        return sorted(module.__dict__)

    module = at_once()
    expected = key_of(module)
    with accelerate():
        assert sorted(key_of(module)) == expected


def test_without_dynamo(monkeypatch):
    monkeypatch.delitem(_deferred.sys.modules, "torch._dynamo.callback")
    with accelerate():
        assert not is_pending(at_once())


def faulty(op, target, args, kwargs=None, name=None, kind=None, codegen=None):
    """A graph with one more node."""
    made = fx.Graph()
    nodes = [made.placeholder("x"), made.placeholder("y")]
    resolved = fx.map_arg(args, lambda node: node) if not callable(args) else args(*nodes)
    node = made.create_node(op, target, resolved, kwargs or {}, name)
    node.type = kind
    if codegen is not None:
        made.set_codegen(codegen)
    made.output(node)
    return made


def own_function(*args):
    return args


class Own:
    def __repr__(self):
        return "1 +"


FAULTY = {
    "placeholder twice": lambda: faulty("placeholder", "x", ()),
    "self as a second placeholder": lambda: faulty("placeholder", "self", ()),
    "keyword as placeholder": lambda: faulty("placeholder", "class", ()),
    "no identifier": lambda: faulty("placeholder", "a b", ()),
    "star": lambda: faulty("placeholder", "*rest", ()),
    "default": lambda: faulty("placeholder", "z", (1,)),
    "keyword in path": lambda: faulty("call_module", "a.if.b", ()),
    "quote in path": lambda: faulty("get_attr", 'a."', ()),
    "empty path": lambda: faulty("get_attr", "", ()),
    "deep path": lambda: faulty("get_attr", ".".join("0" * 300), ()),
    "method of a number": lambda: faulty("call_method", "add", (1, 2)),
    "method of nothing": lambda: faulty("call_method", "add", ()),
    "getitem of a number": lambda: faulty("call_function", operator.getitem, (5, 0)),
    "getitem of one": lambda: faulty("call_function", operator.getitem, lambda x, y: (x,)),
    "iadd of a number": lambda: faulty("call_function", operator.iadd, (1, 2)),
    "iadd": lambda: faulty("call_function", operator.iadd, lambda x, y: (x, y)),
    "add of one": lambda: faulty("call_function", operator.add, lambda x, y: (x,)),
    "neg of a number": lambda: faulty("call_function", operator.neg, (True,)),
    "and_": lambda: faulty("call_function", operator.and_, lambda x, y: (x, y)),
    "getattr": lambda: faulty("call_function", getattr, lambda x, y: (x, "shape")),
    "getattr of one": lambda: faulty("call_function", getattr, lambda x, y: (x,)),
    "lambda": lambda: faulty("call_function", eval("lambda x: x"), lambda x, y: (x,)),
    "own function": lambda: faulty("call_function", own_function, lambda x, y: (x,)),
    "keyword in operator": lambda: faulty("call_function", aten.random.__getattr__("from"), lambda x, y: (x, 0, 1)),
    "keyword argument": lambda: faulty("call_function", aten.add.Tensor, (), {"class": 1}),
    "no name of an argument": lambda: faulty("call_function", aten.add.Tensor, (), {"a b": 1}),
    "repr that is no code": lambda: faulty("call_function", aten.add.Tensor, (Own(),)),
    "hash mark": lambda: faulty("call_function", aten.add.Tensor, ("# COUNTER: 1",)),
    "long number": lambda: faulty("call_function", aten.add.Tensor, (10**5000,)),
    "deep arguments": lambda: faulty("call_function", aten.add.Tensor, (eval("[" * 50 + "]" * 50),)),
    "bytes": lambda: faulty("call_function", aten.add.Tensor, (b"abc",)),
    "set": lambda: faulty("call_function", aten.add.Tensor, ({1},)),
    "range": lambda: faulty("call_function", aten.add.Tensor, (range(3),)),
    "tensor": lambda: faulty("call_function", aten.add.Tensor, (torch.ones(1),)),
    "named tuple": lambda: faulty("call_function", aten.add.Tensor, (torch.ones(2, 2).max(0),)),
    "enumeration": lambda: faulty("call_function", aten.add.Tensor, (inspect._ParameterKind.VAR_KEYWORD,)),
    "type": lambda: faulty("call_function", aten.add.Tensor, (), kind=int),
    "type that is no code": lambda: faulty("call_function", aten.add.Tensor, (), kind=Own()),
    "name": lambda: faulty("call_function", aten.add.Tensor, (), name="a b"),
    "orig_args": lambda: faulty(
        "placeholder", "z", (), codegen=_PyTreeCodeGen(_PyTreeInfo(["a", "a"], pytree.tree_structure([0]), None))
    ),
    "keys": lambda: faulty(
        "placeholder",
        "z",
        (),
        codegen=_PyTreeCodeGen(_PyTreeInfo(["a"], pytree.tree_structure(((), {"'": 1})), None)),
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_what_might_raise_is_made_at_once(name):
    outcomes = []
    for scope in (mock.MagicMock(), accelerate()):
        made = FAULTY[name]()
        with warnings.catch_warnings(record=True) as given, scope:
            warnings.simplefilter("always")
            try:
                module = fx.GraphModule(torch.nn.Module(), fx.Graph())
                module._graph = made
                module.recompile()
                outcome = module.__dict__["_code"]
            except Exception as error:
                outcome = type(error), re.sub(r"<eval_with_key>\.\d+", "", str(error))
        outcomes.append((outcome, [(item.category, str(item.message)) for item in given]))
    assert outcomes[0] == outcomes[1]


def test_odd_graphs():
    def output_missing(made):
        made.erase_node(made.output_node())

    def output_empty(made):
        made.output_node().args = ()

    def odd_name(made):
        next(iter(made.nodes)).name = "naïve"

    def no_name(made):
        next(iter(made.nodes)).name = None

    def foreign(made):
        made.output_node()._args = ((next(iter(graph().nodes)),),)

    def erased(made):
        first = next(iter(made.nodes))
        first._erased = True

    def list_of_args(made):
        made.output_node()._args = [next(iter(made.nodes))]

    def no_users(made):
        del next(iter(made.nodes)).users

    def broken_link(made):
        next(iter(made.nodes))._next = 5

    def wrapped(made):
        list(made.nodes)[2].meta["is_wrapped"] = True

    for change in (output_missing, output_empty, odd_name, no_name, foreign, erased, list_of_args):
        outcomes = []
        for scope in (mock.MagicMock(), accelerate()):
            module = at_once()
            change(module.graph)
            with scope:
                try:
                    module.recompile()
                    outcomes.append(module._code)
                except Exception as error:
                    outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1], change.__name__
    for change in (no_users, broken_link, wrapped):
        module = at_once()
        change(module.graph)
        with accelerate():
            assert _recompile._deferral(module) is None, change.__name__


# ---- random graphs


def random_value(dice, nodes, depth=0):
    kind = dice.randrange(14 if depth < 2 else 9)
    if kind < 4:
        return dice.choice(nodes or [None])
    if kind < 9:
        odd = [Own(), 10**5000, "#", b"", torch.Size([1])] if dice.random() < 0.01 else []
        return dice.choice([None, 1, -2.5, "text", True, torch.float16, torch.device("cpu"), float("nan"), ..., *odd])
    values = [random_value(dice, nodes, depth + 1) for _ in range(dice.randrange(3))]
    if kind == 9:
        return slice(*(values + [None, None, None])[:3])
    if kind == 10:
        return {f"k{i}": value for i, value in enumerate(values)}
    return tuple(values) if kind < 13 else values


FUNCTIONS = [aten.add.Tensor, aten.neg.default, torch.add, torch.nn.functional.gelu, operator.add, operator.getitem]


def random_step(dice, made):
    """Put a node anywhere, or change one."""
    nodes = list(made.nodes) or [made.placeholder("new")]
    at = dice.randrange(len(nodes))
    near = nodes[: at + 1] if dice.random() < 0.9 else nodes
    args = tuple(random_value(dice, near) for _ in range(dice.randrange(4)))
    if dice.random() < 0.95:
        args = (dice.choice(near), dice.choice(near), *args)
    choice = dice.random()
    odd = dice.random() < 0.02
    if choice < 0.6:
        op = dice.choice(["call_function"] * 6 + ["call_method", "get_attr", "call_module", "placeholder"])
        target = dice.choice([*FUNCTIONS, own_function, getattr] if odd else FUNCTIONS)
        if op != "call_function":
            target = dice.choice(["if", "a b", "*x", "x"] if odd else ["a", "b1", "c_2"])
            if op in ("get_attr", "call_module"):
                target = dice.choice(["m", "0", "m.0"]) + "." + target
        if op == "placeholder":
            target, args = f"{target}{len(nodes)}", args[:1] if odd else ()
        kwargs = {key: 1 for key in ("k", "class" if odd else "l") if dice.random() < 0.2}
        with made.inserting_after(nodes[at]):
            made.create_node(op, target, args, kwargs, name=dice.choice([None, None, "torch", "x", "del"]))
    elif choice < 0.75:
        nodes[at].args = args
    elif choice < 0.85:
        nodes[at].name = f"n{dice.randrange(9)}"
    elif choice < 0.9:
        nodes[at].replace_all_uses_with(dice.choice(nodes))
    elif not nodes[at].users:
        made.erase_node(nodes[at])


def random_run(seed, scope):
    """Edits, a recompile and edits again; what came of the recompile, and what is to be seen in the end."""
    dice = random.Random(seed)
    module = at_once(fx.Graph())
    made = module.graph
    made.placeholder("x0")
    for _ in range(dice.randrange(1, 25)):
        random_step(dice, made)
    if dice.random() < 0.9:
        made.output(random_value(dice, list(made.nodes)))
    with scope:
        try:
            module.recompile()
            outcome = None
        except Exception as error:
            outcome = type(error), str(error).partition("<eval")[0]
    waits = is_pending(module)
    order = listed(made)
    for _ in range(dice.randrange(8)):
        random_step(dice, made)
    return (outcome, order, listed(made), seen(module), listed(made)), waits


def test_random_graphs():
    waited = failed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(250):
            expected, _ = random_run(seed, mock.MagicMock())
            found, waits = random_run(seed, accelerate())
            assert found == expected, seed
            waited += waits
            failed += expected[0] is not None
    assert waited > 60 and failed > 20


# ---- torch.compile


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_compile_after_the_block(wrapped, reset):
    module = pending()
    other = pending()
    if reset:
        torch._dynamo.reset()

    def call(x, y):
        return module(x, y)[0] + 1

    edit(module.graph)
    compiled = torch.compile(call if wrapped else module, backend="eager", fullgraph=True)
    result = compiled(torch.ones(1), torch.ones(1))
    assert (result if wrapped else result[0] + 1).item() == 5
    assert not is_pending(module)
    assert reset or not is_pending(other)
    torch._dynamo.reset()
    module = pending()
    assert torch.compile(call, backend="eager", fullgraph=True)(torch.ones(1), torch.ones(1)).item() == 5


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_inside_the_block(backend):
    """Also when the module is recompiled: torch's guards don't ask about that."""
    results = []
    for scope in (mock.MagicMock(), accelerate()):
        torch._dynamo.reset()
        with scope:
            module = at_once()
            compiled = torch.compile(lambda x, module=module: module(x, x)[0], backend=backend, fullgraph=True)
            results.append(compiled(torch.ones(1)).item())
            module.graph.output_node().args = ((list(module.graph.nodes)[2],),)
            module.recompile()
            results.append(compiled(torch.ones(1)).item())
            results.append(compiled(torch.ones(2)).tolist())
    assert results[:3] == results[3:]


def test_callback_of_torch_compile_is_registered_once():
    callbacks = torch._dynamo.callback.callback_handler.start_callbacks
    for _ in range(3):
        pending()
    assert sum(isinstance(callback, _deferred._AtCompileStart) for callback in callbacks) == 1
    torch._dynamo.reset()
    assert sum(isinstance(callback, _deferred._AtCompileStart) for callback in callbacks) == 1


# ---- torch.export


def test_module_of_a_program_makes_no_code(program):
    with accelerate():
        ours = program.module()
    assert is_pending(ours) and hasattr(ours, "_guards_fn")
    theirs = program.module()
    assert seen(ours) == seen(theirs)
    assert torch.equal(ours(torch.ones(2, 3))[0], theirs(torch.ones(2, 3))[0])


def test_signature_without_code(program):
    with accelerate():
        module = program.module()
    signature = _recompile.forward_signature(module)
    assert is_pending(module)
    assert signature == inspect.signature(module.forward) == _recompile.forward_signature(module)
    module.forward = lambda own: own
    assert list(_recompile.forward_signature(module).parameters) == ["own"]


def test_signature_is_of_then():
    module = pending()
    z = module.graph.placeholder("z")
    next(iter(module.graph.nodes)).prepend(z)
    assert list(_recompile.forward_signature(module).parameters) == ["x", "y"]
    assert is_pending(module)


def test_programs(program):
    """A program's life inside the block, and its parts after it."""
    with accelerate():
        again = torch.export.export(program.module(), (torch.ones(2, 3),))
        lowered = again.run_decompositions()
        buffer = io.BytesIO()
        torch.export.save(lowered, buffer)
        buffer.seek(0)
        loaded = torch.export.load(buffer)
        flat = torch.export.unflatten(loaded)
    expected = program.run_decompositions().graph_module.code
    assert lowered.graph_module.code == loaded.graph_module.code == expected
    for module in (again.module(), lowered.module(), loaded.module(), flat):
        assert torch.equal(module(torch.ones(2, 3))[0], program.module()(torch.ones(2, 3))[0])


def test_verify(program):
    hits = acceleration.table()[NAME].hits
    with accelerate(verify=True):
        module = program.module()
        assert not is_pending(module)
        copy.deepcopy(module).recompile()
        code = module.recompile()
    assert type(code) is PythonCode
    assert acceleration.table()[NAME].hits > hits


def test_export_looks_at_pending_modules_below():
    class Outer(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x, x)[0] + 1

    ours, theirs = Outer(pending()), Outer(at_once())
    programs = [
        torch.export.export(module, (torch.ones(2),), strict=strict) for module in (ours, theirs) for strict in (0, 1)
    ]
    assert len({program.graph_module.code for program in programs}) == 1
    assert not is_pending(ours.inner)


def test_cond_with_pending_branches():
    class Choose(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda y: (y * 2,), lambda y: (y - 1,), (x,))

    program = torch.export.export(Choose(), (torch.ones(3),))
    with accelerate():
        module = program.module()
    assert is_pending(module) and is_pending(module.true_graph_0)
    assert module(torch.ones(3))[0].tolist() == [2, 2, 2]
    assert module(-torch.ones(3))[0].tolist() == [-2, -2, -2]
    assert torch.compile(module, backend="eager")(torch.ones(3))[0].tolist() == [2, 2, 2]


# ---- life and threads


def test_dead_modules_go():
    module = pending()
    gone = weakref.ref(module), weakref.ref(type(module))
    waiting = len(_deferred._all_pending)
    del module
    gc.collect()
    assert gone[0]() is None and gone[1]() is None
    assert len(_deferred._all_pending) < waiting


def test_a_look_lets_go_of_what_was_written_down():
    module = pending()
    args = module.graph.output_node().args
    module.graph.output_node().args = ()
    held = sys.getrefcount(args)
    module.code  # noqa: B018
    assert sys.getrefcount(args) == held - 1


def test_threads_that_look_at_once():
    for _ in range(5):
        module, expected = pending(), at_once().code
        barrier = threading.Barrier(8)
        found = []

        def look(module=module, barrier=barrier, found=found):
            barrier.wait()
            found.append((module.code, module(torch.ones(1), torch.ones(1))[0].item(), type(module).forward))

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {each[:2] for each in found} == {(expected, 4)}
        assert len({each[2] for each in found}) == 1


def test_threads_that_recompile_while_others_look():
    module = pending()
    expected = {at_once().code}
    other = at_once()
    edit(other.graph)
    other.recompile()
    expected.add(other.code)
    stop = threading.Event()
    errors = []

    def look():
        try:
            while not stop.is_set():
                assert module.code in expected
                assert module(torch.ones(1), torch.ones(1))[0].item() in (4, 6)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    edited = False
    for _ in range(200):
        if not edited:
            edit(module.graph)
            edited = True
        with accelerate():
            module.recompile()
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert module.code == other.code
