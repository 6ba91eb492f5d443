"""Programs that lie, wrong types, hostile objects, threads: a clear error, nothing changed, never a crash."""

import contextlib
import copy
import io
import pickle
import threading

import pytest
import torch
from torch._export.serde.serialize import SerializeError
from torch._export.verifier import SpecViolationError
from torch.export.graph_signature import InputKind

import export_kinds
import fastexport
import pt2_torch
from export_kinds import KINDS, exported
from pt2_files import sample, subgraph_texts

pytestmark = pytest.mark.usefixtures("quiet")


class Boom(Exception):
    """What hostile objects raise."""


class RaisesAll:
    def __getattribute__(self, name):
        raise Boom(name)


class RaisingClass:
    @property
    def __class__(self):
        raise Boom("class")


class Liar:
    """It says that it is an object of another class, and has nothing of one."""

    def __init__(self, cls):
        self.cls = cls

    @property
    def __class__(self):
        return self.cls


class Incomparable:
    def _raise(self, *args):
        raise Boom("method")

    __eq__ = __hash__ = __repr__ = __bool__ = __len__ = __iter__ = _raise


class RaisingDict(dict):
    def _raise(self, *args):
        raise Boom("method")

    __iter__ = __getitem__ = __contains__ = items = keys = values = get = copy = _raise


class ChangingDict(dict):
    """It changes whenever somebody looks at it."""

    def __iter__(self):
        self[f"more{len(self)}"] = 1
        return super().__iter__()

    def items(self):
        self[f"more{len(self)}"] = 1
        return super().items()

    def get(self, *args):
        self.clear()
        return super().get(*args)


class HostileText(str):
    def __eq__(self, other):
        raise Boom("eq")

    def __hash__(self):
        raise Boom("hash")


def own_member():
    inner = []
    inner.append(inner)
    return inner


def deep():
    inner = []
    for _ in range(20000):
        inner = [inner]
    return inner


HOSTILE = {
    "None": lambda: None,
    "int": lambda: 5,
    "negative": lambda: -1,
    "huge": lambda: 2**100,
    "nan": lambda: float("nan"),
    "text": lambda: "text",
    "surrogate": lambda: "\ud800",
    "zero byte": lambda: "a\0b",
    "hostile text": lambda: HostileText("x"),
    "list": list,
    "list of numbers": lambda: [1, None],
    "list of hostile": lambda: [RaisesAll()],
    "own member": own_member,
    "deep": deep,
    "tuple": tuple,
    "dict": dict,
    "dict of text": lambda: {"a": "b"},
    "dict of surrogates": lambda: {"\ud800": "\ud800"},
    "raising dict": lambda: RaisingDict(a=1),
    "changing dict": lambda: ChangingDict(a=1),
    "set": lambda: {1},
    "object": object,
    "class": lambda: int,
    "raises": RaisesAll,
    "raising class": RaisingClass,
    "incomparable": Incomparable,
    "no tensor": lambda: Liar(torch.Tensor),
    "no fake tensor": lambda: Liar(torch._subclasses.FakeTensor),
    "no node": lambda: Liar(torch.fx.Node),
    "no SymInt": lambda: Liar(torch.SymInt),
    "no program": lambda: Liar(torch.export.ExportedProgram),
}
every_object = pytest.mark.parametrize("what", HOSTILE)

# What may come of bad input. Anything else (AttributeError, KeyError ...) says that nobody thought of it.
CLEAR = (
    TypeError,
    ValueError,
    RuntimeError,  # and RecursionError, NotImplementedError
    OSError,
    Boom,
    fastexport.FastExportError,
    SpecViolationError,
    SerializeError,
)


def attempt(call, *args, what="", **options):
    """The error of a call with some HOSTILE object, or None; an error that is not clear goes on."""
    try:
        call(*args, **options)
    except CLEAR as error:
        assert str(error)
        return error
    except AttributeError as error:
        if not what.startswith("no "):  # what says that it is something else is to blame itself
            raise
        return error
    return None


def state(ep):
    """All that a refused call may not have changed."""
    return (
        str(ep.graph),
        subgraph_texts(ep.graph),
        ep.graph._version,
        str(ep.graph_signature),
        repr(ep.call_spec) if isinstance(ep.call_spec, tuple) else str(ep.call_spec),
        list(ep.state_dict),
        list(ep.constants),
        str(ep.range_constraints),
        {node.name: list(node.meta) for node in ep.graph.nodes},
    )


def all_uses(program):
    """Everything that reads a torch program."""
    ep = fastexport.from_export(program)
    str(ep)
    repr(ep)
    str(ep.graph_signature)
    with contextlib.suppress(KeyError):  # of a weight that is not there, as torch has it
        list(ep.named_parameters())
    with contextlib.suppress(KeyError):
        list(ep.named_buffers())
    ep.verify(all=True)
    return ep.to_torch()


# ---- arguments of the public functions


@every_object
def test_what_is_no_program(what):
    wrong = HOSTILE[what]()
    file = io.BytesIO()
    assert attempt(fastexport.from_export, wrong, what=what) is not None
    assert attempt(fastexport.load, wrong, what=what) is not None
    assert attempt(fastexport.save, wrong, file, what=what) is not None
    assert attempt(fastexport.export, wrong, (torch.ones(2),), what=what) is not None
    assert file.getvalue() == b""


@every_object
@pytest.mark.parametrize("native", ["torch", "file"])
def test_where_nothing_can_be_saved(what, native, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ep = fastexport.from_export(exported("linear")) if native == "torch" else fastexport.load(sample("linear"))
    before = state(ep)
    wrong = HOSTILE[what]()
    path_like = type(wrong) in (str, HostileText)
    error = attempt(fastexport.save, ep, wrong)
    assert path_like or error is not None
    file = io.BytesIO()
    for extra in (wrong, {"a": wrong}, {wrong: "a"} if what in ("None", "int", "class") else 5):
        if attempt(fastexport.save, ep, file, extra_files=extra, what=what) is not None:
            assert file.getvalue() == b""
        file = io.BytesIO()
    assert state(ep) == before
    assert all(entry.stat().st_size for entry in tmp_path.iterdir())


@every_object
def test_options_of_the_wrong_types(what):
    if what in ("None", "changing dict"):
        return
    ep = fastexport.load(sample("linear"))
    before = state(ep)
    wrong = HOSTILE[what]()
    assert attempt(ep.verify, level=wrong) is not None
    for name in ("example_inputs", "pickles", "copy", "allow"):
        attempt(ep.to_torch, **{name: wrong})
    with pytest.raises(TypeError):
        ep.to_torch(nonsense=wrong)
    assert state(ep) == before
    for torch_ep in (fastexport.from_export(exported("linear")),):
        before = state(torch_ep)
        attempt(torch_ep.run_decompositions, wrong)
        assert state(torch_ep) == before


# ---- programs that lie


PARTS = (
    "_graph_signature",
    "_state_dict",
    "_constants",
    "_range_constraints",
    "_module_call_graph",
    "_example_inputs",
    "_verifiers",
    "_guards_code",
    "_graph_module",
)


@every_object
@pytest.mark.parametrize("part", PARTS)
def test_parts_of_wrong_types(part, what):
    program = copy.copy(exported("linear"))
    before = str(exported("linear"))
    setattr(program, part, HOSTILE[what]())
    attempt(all_uses, program, what=what)
    assert str(exported("linear")) == before


@every_object
@pytest.mark.parametrize("which", ["input_specs", "output_specs"])
@pytest.mark.parametrize("field", ["kind", "arg", "target", "persistent", "name"])
def test_signatures_that_lie(which, field, what):
    program = copy.copy(exported("buffers_written"))
    program._graph_signature = signature = copy.deepcopy(program.graph_signature)
    spec = getattr(signature, which)[0]
    setattr(spec.arg if field == "name" else spec, field, HOSTILE[what]())
    attempt(all_uses, program, what=what)


@every_object
def test_constants_that_lie(what):
    program = copy.copy(exported("scalars"))
    program._graph_signature = signature = copy.deepcopy(program.graph_signature)
    wrong = HOSTILE[what]()
    place, arg = next((i, s.arg) for i, s in enumerate(signature.input_specs) if hasattr(s.arg, "value"))
    signature.input_specs[place].arg = torch.export.graph_signature.ConstantArgument(arg.name, wrong)
    try:
        back = fastexport.from_export(program).to_torch()
    except CLEAR:
        return
    assert back.graph_signature.input_specs[place].arg.value is wrong


@every_object
def test_weights_that_lie(what):
    program = copy.copy(exported("linear"))
    wrong = HOSTILE[what]()
    program._state_dict = {**program.state_dict, "0.weight": wrong}
    error = attempt(all_uses, program, what=what)
    if error is None:
        assert fastexport.from_export(program).to_torch().state_dict["0.weight"] is wrong
    file = io.BytesIO()
    if attempt(lambda: fastexport.save(fastexport.from_export(program), file), what=what) is None:
        assert attempt(fastexport.load, file.getvalue()) is None


META = ("val", "stack_trace", "nn_module_stack", "custom", "from_node", "unbacked_bindings", "other")


@contextlib.contextmanager
def lying_meta(key, value):
    """A program and its node whose meta has that value now."""
    program = exported("linear")
    node = next(node for node in program.graph.nodes if node.op == "call_function")
    kept = node.meta
    node.meta = {**kept, key: value}
    try:
        yield program, node
        assert node.meta[key] is value
    finally:
        node.meta = kept


@every_object
@pytest.mark.parametrize("key", META)
def test_meta_that_lies(key, what):
    wrong = HOSTILE[what]()
    with lying_meta(key, wrong) as (program, node):
        before = str(program.graph)
        try:
            back = fastexport.from_export(program).to_torch()
        except CLEAR:
            assert key == "val"
        else:
            twin = next(other for other in back.graph.nodes if other.name == node.name)
            assert twin.meta[key] is wrong
        assert str(program.graph) == before


@every_object
@pytest.mark.parametrize("key", META[:5])
def test_meta_that_lies_is_saved_or_refused(key, what):
    with lying_meta(key, HOSTILE[what]()) as (program, _):
        ep = fastexport.from_export(program)
        before = ep.graph._version
        file = io.BytesIO()
        if attempt(ep.save, file, what=what) is None:
            pt2_torch.load(io.BytesIO(file.getvalue()))
        else:
            assert file.getvalue() == b""
        assert ep.graph._version == before


@pytest.mark.parametrize("cls", [RaisingDict, ChangingDict])
def test_meta_of_a_hostile_class(cls):
    program = KINDS["linear"]()
    node = next(node for node in program.graph.nodes if node.op == "call_function")
    node.meta = cls(node.meta)
    attempt(all_uses, program)
    attempt(fastexport.from_export(exported("linear")).graph.node(node.name).meta.update, node.meta)


@every_object
def test_arguments_that_lie(what):
    ep = fastexport.from_export(exported("linear"))
    node = next(node for node in ep.graph.nodes if node.op == "call_function")
    before, version = str(ep.graph), ep.graph._version
    if attempt(setattr, node, "kwargs", {"more": HOSTILE[what]()}) is not None:
        assert (str(ep.graph), ep.graph._version) == (before, version)
        return
    attempt(lambda: str(ep.graph))
    attempt(ep.to_torch, what=what)
    file = io.BytesIO()
    if attempt(ep.save, file, what=what) is not None:
        assert file.getvalue() == b""


# ---- calls that are refused change nothing


REFUSED = {
    "rename to a name that is taken": lambda ep: ep.rename_input(
        first_input(ep), ep.graph.output_node().args[0][0].name
    ),
    "rename nothing": lambda ep: ep.rename_input("nobody", "x"),
    "rename to no text": lambda ep: ep.rename_input(first_input(ep), 5),
    "rename to nothing": lambda ep: ep.rename_input(first_input(ep), ""),
    "rename to code": lambda ep: ep.rename_input(first_input(ep), "x): pass\nimport os #"),
    "rename to a surrogate": lambda ep: ep.rename_input(first_input(ep), "\ud800"),
    "add a name that is taken": lambda ep: ep.add_input(first_input(ep), fastexport.TensorMeta("float32", ())),
    "add code": lambda ep: ep.add_input("x=1, y", fastexport.TensorMeta("float32", ())),
    "add no text": lambda ep: ep.add_input(5, fastexport.TensorMeta("float32", ())),
    "remove what is used": lambda ep: ep.remove_input(first_input(ep)),
    "remove nothing": lambda ep: ep.remove_input("nobody"),
    "remove a number": lambda ep: ep.remove_input(0),
    "return nothing": lambda ep: ep.add_output(None),
    "return a text": lambda ep: ep.add_output(first_input(ep)),
    "return another graph's": lambda ep: ep.add_output(next(iter(fastexport.load(sample("linear")).graph.nodes))),
    "return the output": lambda ep: ep.add_output(ep.graph.output_node()),
    "drop a result that is not there": lambda ep: ep.remove_output(99),
    "drop a result by another name": lambda ep: ep.remove_output("nobody"),
    "drop a result by a float": lambda ep: ep.remove_output(0.5),
    "set the graph": lambda ep: setattr(ep, "graph", None),
    "set the weights": lambda ep: setattr(ep, "state_dict", {}),
    "delete the signature": lambda ep: delattr(ep, "graph_signature"),
    "erase what is used": lambda ep: ep.graph.erase_node(ep.graph.node(first_input(ep))),
    "a signature of nothing": lambda ep: ep.graph._set_signature(None, 5),
    "another program's node": lambda ep: setattr(
        ep.graph.output_node(), "args", ((next(iter(fastexport.load(sample("linear")).graph.nodes)),),)
    ),
}


def first_input(ep):
    return next(name for name in ep.graph_signature.user_inputs if ep.graph.node(name).users)


@pytest.mark.parametrize("native", ["torch", "file"])
@pytest.mark.parametrize("name", ["sizes", "arguments_written"])
@pytest.mark.parametrize("call", REFUSED)
def test_a_refused_call_changes_nothing(call, name, native):
    program = exported(name)
    if native == "torch":
        ep = fastexport.from_export(program)
    else:
        ep = fastexport.load(torch_file(name))
    before, text = state(ep), str(program)
    error = attempt(REFUSED[call], ep)
    assert error is not None
    assert state(ep) == before
    assert str(program) == text
    assert ep.verify() == []
    ep.to_torch()


_files = {}


def torch_file(name):
    if name not in _files:
        file = io.BytesIO()
        torch.export.save(exported(name), file)
        _files[name] = file.getvalue()
    return _files[name]


# ---- threads


def in_threads(*works):
    """Run all at once; what they give, or the error."""
    results, start = [None] * len(works), threading.Barrier(len(works))

    def run(place, work):
        start.wait()
        try:
            results[place] = work()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return results


def test_one_program_in_many_threads():
    program = exported("attention_decomposed")
    want = str(program)

    def work():
        ep = fastexport.from_export(program)
        ep.verify()
        return str(ep.to_torch())

    assert in_threads(*[work] * 6) == [want] * 6
    ep = fastexport.from_export(program)
    assert in_threads(*[lambda: str(ep.to_torch())] * 6) == [want] * 6
    loaded = fastexport.load(torch_file("attention_decomposed"))
    texts = in_threads(*[lambda: str(loaded.to_torch())] * 6)
    assert texts == [texts[0]] * 6
    assert texts[0].startswith("ExportedProgram")


def test_saves_in_many_threads():
    program = fastexport.from_export(exported("sizes"))

    def work():
        file = io.BytesIO()
        fastexport.save(program, file)
        return str(fastexport.load(file.getvalue()).graph)

    assert len(set(in_threads(*[work] * 4))) == 1


def insist(call, *args):
    """Call until nobody reads the graph just then."""
    while True:
        try:
            return call(*args)
        except fastexport.FastExportError as error:
            assert "while the graph is being read" in str(error)


def test_edits_while_other_threads_read():
    program = exported("sizes")
    ep = fastexport.from_export(program)
    done = threading.Event()

    def edit():
        try:
            for _ in range(5):
                for node in ep.graph.nodes:
                    if node.op == "call_function":
                        insist(setattr, node, "name", f"{node.name[:40]}_x")
                insist(ep.add_output, next(node for node in ep.graph.nodes if node.op == "call_function"))
                insist(ep.remove_output, -1)
        finally:
            done.set()

    def read():
        while not done.is_set():
            str(ep.graph)
            str(ep.graph_signature)
            attempt(ep.to_torch)  # it may see a result without its place in the signature

    assert in_threads(edit, read, read) == [None] * 3
    assert len(ep.graph.nodes) == len(program.graph.nodes)
    export_kinds.assert_same_results(export_kinds.run(ep.to_torch()), export_kinds.run(program))


# ---- programs that no file may hold


def state_of_another_shape(program):
    program.state_dict["0.weight"] = torch.nn.Parameter(torch.ones(2))


def state_of_another_dtype(program):
    weight = program.state_dict["0.weight"]
    program.state_dict["0.weight"] = torch.nn.Parameter(weight.detach().double())


def parameter_as_an_input_of_callers(program):
    program.graph_signature.input_specs[0].kind = InputKind.USER_INPUT


def no_module_calls(program):
    program._module_call_graph.clear()


def output_in_many_lists(program):
    call = program._module_call_graph[0]
    spec = call.signature.out_spec
    for _ in range(250):
        spec = torch.utils._pytree.TreeSpec(list, None, [spec])
    call.signature.out_spec = spec


def call_of(program):
    return next(node for node in program.graph.nodes if node.op == "call_function")


def renamed(name):
    def rename(program):
        node = call_of(program)
        for spec in program.graph_signature.output_specs:
            if spec.arg.name == node.name:
                spec.arg.name = name
        node.name = name

    return rename


def with_meta(key, value):
    return lambda program: call_of(program).meta.update({key: value})


def with_args(*args):
    return lambda program: setattr(call_of(program), "args", args)


def with_kwargs(kwargs):
    return lambda program: setattr(call_of(program), "kwargs", kwargs)


def range_of_nothing(program):
    program.range_constraints["s0"] = None


# What is done to a program; the code of the fault, the node, and what the message has to say.
UNFIT = {
    "shape": (state_of_another_shape, "FX501", "p_0_weight", r"'0.weight' has the shape \[2\]"),
    "dtype": (state_of_another_dtype, "FX501", "p_0_weight", "'0.weight' is of torch.float64"),
    "kind": (parameter_as_an_input_of_callers, "FX402", None, "user inputs, but its calling convention"),
    "no calls": (no_module_calls, "FX401", None, "module call graph"),
    "deep": (output_in_many_lists, "FX402", None, "nests more than 200 deep"),
    "spaces": (renamed("a b"), "FX302", "a b", "not an identifier"),
    "empty": (renamed(""), "FX302", "", "its name '' .* empty"),
    "keyword": (renamed("class"), "FX302", "class", "keyword"),
    "number": (renamed("1"), "FX302", "1", "not an identifier"),
    "too many arguments": (with_args(1, 2, 3, 4, 5), "FX310", "linear", "at most 3"),
    "no arguments": (with_args(), "FX310", "linear", "is missing"),
    "None as a tensor": (with_args(None, None), "FX310", "linear", "takes Tensor, but gets None"),
    "keys": (with_kwargs({1: 2}), "FX310", "linear", "kwargs"),
    "stack_trace": (with_meta("stack_trace", 5), "FX403", "linear", r"meta\['stack_trace'\] is 5"),
    "nn_module_stack": (with_meta("nn_module_stack", 5), "FX403", "linear", r"meta\['nn_module_stack'\] is 5"),
    "module_name": (
        with_meta("nn_module_stack", {"a,b": ("a,b", "C")}),
        "FX403",
        "linear",
        "'a,b,a,b,C' would be read",
    ),
    "function_name": (with_meta("source_fn_stack", [("a;b", "c")]), "FX403", "linear", "'a;b,c' would be read"),
    "torch_fn_name": (with_meta("torch_fn", ("a;b", "c")), "FX403", "linear", "'a;b' would be read"),
    "module": (with_meta("nn_module_stack", {"a": 5}), "FX403", "linear", "tuples"),
    "source_fn_stack": (with_meta("source_fn_stack", 5), "FX403", "linear", r"meta\['source_fn_stack'\] is 5"),
    "torch_fn": (with_meta("torch_fn", (1, 2)), "FX403", "linear", r"meta\['torch_fn'\] is \(1, 2\)"),
    "custom": (with_meta("custom", {"a": print}), "FX403", "linear", r"meta\['custom'\]"),
    "from_node": (with_meta("from_node", 5), "FX403", "linear", r"meta\['from_node'\] is 5"),
    "range": (range_of_nothing, "FX305", None, r"range_constraints\['s0'\] is None"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_programs_that_no_file_may_hold(what):
    """torch's verifier passes them, and so does verify(); strict, it says what save says, and nothing is written."""
    change, code, node, said = UNFIT[what]
    program = KINDS["linear"]()
    change(program)
    program.validate()
    ep = fastexport.from_export(program)
    assert ep.verify() == []
    found = ep.verify(all=True, level="strict")
    assert (code, node) in [(fault.code, fault.node) for fault in found]
    assert all(fault.is_error for fault in found)
    with pytest.raises(fastexport.VerifyError, match=said):
        ep.verify(level="strict")
    for given in (program, ep):
        file = io.BytesIO()
        with pytest.raises((fastexport.VerifyError, fastexport.FormatError), match=said):
            fastexport.save(given, file)
        assert file.getvalue() == b""


@pytest.mark.parametrize("what", ["shape", "dtype", "kind", "no calls", "deep"])
def test_they_are_saved_as_torch_does_on_demand(what):
    program = KINDS["linear"]()
    UNFIT[what][0](program)
    file = io.BytesIO()
    fastexport.save(program, file, verify=False)
    pt2_torch.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_loaded(kind):
    """Strict, verify finds nothing in what torch exports, unless save refuses it as well."""
    ep = fastexport.from_export(exported(kind))
    found = ep.verify(all=True, level="strict")
    file = io.BytesIO()
    try:
        ep.save(file)
    except fastexport.FormatError:
        assert found
    else:
        assert found == []
        fastexport.load(file.getvalue())


def test_texts_as_results():
    class Echo(torch.nn.Module):
        def forward(self, x, text):
            return x + 1, text

    ep = fastexport.from_export(torch.export.export(Echo(), (torch.ones(2), "hey")))
    (found,) = ep.verify(all=True, level="strict")
    assert (found.code, found.node) == ("FX310", "output")


def test_weights_that_are_no_tensors():
    program = KINDS["buffers_written"]()
    name = program.graph_signature.buffers[0]
    program.state_dict[name] = "text"
    ep = fastexport.from_export(program)
    assert [fault.message for fault in ep.verify(all=True, level="strict")] == [
        f"{name!r} of the state dict is 'text'; it has to be a torch.Tensor"
    ]


@every_object
@pytest.mark.parametrize("native", ["torch", "file"])
def test_inputs_that_nothing_is_told_of(what, native):
    ep = fastexport.from_export(exported("linear")) if native == "torch" else fastexport.load(sample("linear"))
    before = state(ep)
    for wrong in (HOSTILE[what](), torch.ones(2)):
        with pytest.raises(TypeError, match="the input 'more' is told by a TensorMeta"):
            ep.add_input("more", wrong)
    assert state(ep) == before


def test_inputs_told_by_torch():
    ep = fastexport.from_export(exported("linear"))
    value = next(node.meta["val"] for node in exported("linear").graph.nodes if node.op == "placeholder")
    ep.add_input("more", value)
    ep.verify()


# ---- weights without data


class OnMeta(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = torch.nn.Linear(4, 2, device="meta"), torch.nn.Linear(4, 2, device="meta")
        self.other.weight = self.one.weight
        self.register_buffer("part", torch.empty(20, device="meta")[3:11].view(2, 4).t())
        self.register_buffer("none", torch.empty(0, 3, device="meta"))
        self.register_buffer("flags", torch.empty(4, dtype=torch.bool, device="meta"), persistent=False)
        self.constant = torch.empty(2, dtype=torch.bfloat16, device="meta")

    def forward(self, x):
        return self.one(x) + self.other(x) + self.part.sum() + self.none.sum() + self.flags.sum() + self.constant


def facts(tensor):
    return (
        type(tensor),
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        tensor.device,
        tensor.requires_grad,
    )


def assert_same_weights(ours, theirs):
    for which in ("state_dict", "constants"):
        mine, other = getattr(ours, which), getattr(theirs, which)
        assert list(mine) == list(other)
        assert [facts(mine[name]) for name in mine] == [facts(other[name]) for name in mine]


def test_weights_on_the_device_meta():
    program = torch.export.export(OnMeta(), (torch.empty(3, 4, device="meta"),))
    file = io.BytesIO()
    fastexport.save(program, file)
    pt2_torch.load(io.BytesIO(file.getvalue()))
    ep = fastexport.load(file.getvalue())
    assert ep.verify(all=True) == []
    assert_same_weights(ep.to_torch(), program)
    assert_same_weights(ep.to_torch(copy=False), program)
    assert_same_weights(pickle.loads(pickle.dumps(fastexport.from_export(program))).to_torch(), program)
    assert_same_weights(pickle.loads(pickle.dumps(ep)).to_torch(), program)
    again = io.BytesIO()
    ep.save(again)
    assert again.getvalue() == file.getvalue()
    with pytest.raises(BufferError, match="meta"):
        ep.state_dict["part"].tolist()


def test_new_weights_on_the_device_meta():
    program = torch.export.export(OnMeta(), (torch.empty(3, 4, device="meta"),))
    file = io.BytesIO()
    fastexport.save(program, file)
    ep = fastexport.load(file.getvalue())
    ep.state_dict["part"] = program.state_dict["part"] = torch.empty(2, 4, device="meta").t()
    again = io.BytesIO()
    ep.save(again)
    pt2_torch.load(io.BytesIO(again.getvalue()))
    assert_same_weights(fastexport.load(again.getvalue()).to_torch(), program)
