"""Verifying: torch and fastexport agree on programs that lie in each way there is; dialects of one's own."""

import copy
import functools
import json
import operator
import pickle
import random
import subprocess
import sys
import textwrap
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._export.verifier import SpecViolationError, TrainingIRVerifier, _VerifierMeta
from torch._export.verifier import Verifier as TorchVerifier
from torch.export import Dim
from torch.export import graph_signature as signature_of

import export_kinds
import fastexport
from fastexport import VerifyError, _core, _torch_verifier, _verifier

aten = torch.ops.aten
SAMPLE = Path(__file__).parent / "data/pt2/samples/current/linear.pt2"

# ---- programs


class Mixed(nn.Module):
    """Parameters, buffers of both sorts that are written, a constant, a subgraph, several results of one node."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("scratch", torch.ones(4), persistent=False)
        self.offset = torch.arange(4.0)

    def forward(self, x, y, scale=2):
        self.seen.add_(1)
        y.add_(1)
        x = self.fc(x) * self.scratch + self.offset
        x = torch.cond(x.sum() > 0, lambda t: t.relu() + 1, lambda t: t.neg(), (x,))
        first, second = x.split(2, dim=1)
        return first + scale, second, None, y * 2


@functools.cache
def original(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Mixed(), (torch.ones(2, 4), torch.ones(3)))
        return program if kind == "training" else program.run_decompositions()


def mixed(kind="functional"):
    """A program that may be changed."""
    return copy.deepcopy(original(kind))


def violations(check):
    """The exception of a check, or None."""
    try:
        check()
    except Exception as error:
        return error
    return None


def torchs(program, dialects=None):
    return violations(lambda: [each().check(program) for each in dialects or program.verifiers])


def ours(program, dialects=(None,)):
    def check():
        taken = fastexport.from_export(program)
        for dialect in dialects:
            taken.verify(dialect=dialect)

    return violations(check)


def assert_agree(program, *, refused=None):
    """Torch and fastexport refuse the same programs, and ours with both exceptions."""
    theirs, mine = torchs(program), ours(program)
    assert (theirs is None) == (mine is None), f"torch: {theirs!r}; ours: {mine!r}"
    if refused is not None:
        assert (theirs is not None) == refused
    if mine is not None:
        assert isinstance(mine, VerifyError)
        assert isinstance(mine, SpecViolationError)
        assert isinstance(mine, RuntimeError) == (mine.faults[0].code == "FX301")
    return mine


# ---- programs that lie

LIES = {}


def lie(code, *, kind="functional", node=None):
    """Register what makes a program lie, with the code of the fault, or None if it is no lie; node: that is named."""

    def register(change):
        LIES[change.__name__] = code, kind, node, change
        return change

    return register


def node_of(program, name):
    return next(node for node in program.graph.nodes if node.name == name)


def calls(program, target=None):
    return [n for n in program.graph.nodes if n.op == "call_function" and target in (None, n.target)]


def spec_of(program, target):
    return next(spec for spec in program.graph_signature.input_specs if spec.target == target)


def subgraph(program):
    return program.graph_module.true_graph_0


@lie(None)
def nothing(program):
    pass


@lie(None, kind="training")
def nothing_in_training(program):
    pass


@lie("FX305", node="p_fc_weight")
def no_value_of_an_input(program):
    del node_of(program, "p_fc_weight").meta["val"]


@lie("FX305", node="add")
def no_value(program):
    del node_of(program, "add").meta["val"]


@lie("FX305")
def no_value_in_a_subgraph(program):
    del next(iter(subgraph(program).graph.nodes)).meta["val"]


@lie("FX305", node="add")
def a_value_of_a_wrong_class(program):
    node_of(program, "add").meta["val"] = object()


@lie("FX305", node="add")
def a_class_as_a_value(program):
    node_of(program, "add").meta["val"] = torch.Tensor


@lie("FX305", node="add")
def a_wrong_value_deep_inside(program):
    node_of(program, "add").meta["val"] = [(1, [torch.ones(1), {"x": None}, [object()]])]


@lie(None)
def odd_values(program):
    values = [None, 1, True, 1.5, "text", torch.float32, torch.device("cpu"), torch.strided, torch.ones(2), [], ()]
    values += [torch.contiguous_format, {"x": 1}, {1}, range(3), [(1, [None, {"x": 2}])], nn.Parameter(torch.ones(1))]
    values.append(signature_of.CustomObjArgument("name", "class"))
    for node, value in zip(calls(program), values, strict=False):
        node.meta["val"] = value


@lie(None)
def no_value_of_what_returns_nothing(program):
    x = node_of(program, "x")
    with program.graph.inserting_before(calls(program)[0]):
        program.graph.call_function(aten._assert_async.default, (x,))


@lie("FX305")
def a_wrong_value_of_what_returns_nothing(program):
    with program.graph.inserting_before(calls(program)[0]):
        made = program.graph.call_function(aten._assert_async.default, (node_of(program, "x"),))
    made.meta["val"] = object()


def put_call(program, target, args=None, kwargs=None, value=0):
    graph = program.graph
    with graph.inserting_before(calls(program)[0]):
        node = graph.call_function(target, (node_of(program, "x"),) if args is None else args, kwargs)
    node.meta["val"] = value
    return node


@lie("FX303")
def a_plain_function(program):
    put_call(program, torch.relu)


@lie("FX303")
def a_function_of_python(program):
    put_call(program, len)


@lie("FX303")
def a_lambda(program):
    put_call(program, lambda x: x)


@lie("FX303")
def an_overload_packet(program):
    put_call(program, aten.relu)


@lie("FX303")
def a_class(program):
    put_call(program, torch.Size, ((1, 2),))


@lie("FX303")
def plus(program):
    put_call(program, operator.pos)


@lie("FX303")
def a_function_in_a_subgraph(program):
    for node in subgraph(program).graph.nodes:
        if node.op == "call_function":
            node.target = torch.relu


@lie(None)
def functions_on_numbers(program):
    x = node_of(program, "x")
    for target in (operator.add, operator.mod, torch.sym_max):
        put_call(program, target, (x, x))
    for target in (operator.not_, round, torch.sym_not):
        put_call(program, target)
    put_call(program, torch.sym_ite, (x, x, x))
    put_call(program, torch._C._set_grad_enabled, (True,))
    put_call(program, operator.getitem, (node_of(program, "x"), 0))


@lie("FX309")
def an_operator_that_writes(program):
    put_call(program, aten.add_.Tensor, (node_of(program, "x"), 1))


@lie("FX309")
def an_operator_with_out(program):
    x = node_of(program, "x")
    put_call(program, aten.add.out, (x, x), {"out": x})


@lie(None, kind="training")
def an_operator_that_writes_in_training(program):
    put_call(program, aten.add_.Tensor, (node_of(program, "x"), 1))


@lie("FX301")
def a_method(program):
    with program.graph.inserting_before(calls(program)[0]):
        program.graph.call_method("relu", (node_of(program, "x"),)).meta["val"] = 1


@lie("FX301")
def a_module(program):
    program.graph_module.add_module("inner", nn.ReLU())
    with program.graph.inserting_before(calls(program)[0]):
        program.graph.call_module("inner", (node_of(program, "x"),)).meta["val"] = 1


def put_attribute(program, value, name="found", graph_module=None):
    holder = graph_module or program.graph_module
    if isinstance(value, nn.Module):
        holder.add_module(name, value)
    else:
        setattr(holder, name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with holder.graph.inserting_before(next(n for n in holder.graph.nodes if n.op == "call_function")):
            holder.graph.get_attr(name)


@lie("FX301")
def a_tensor_as_attribute(program):
    put_attribute(program, torch.ones(1))


@lie("FX301")
def a_parameter_as_attribute(program):
    put_attribute(program, nn.Parameter(torch.ones(1)))


@lie("FX301")
def a_number_as_attribute(program):
    put_attribute(program, 3)


@lie("FX301")
def a_module_as_attribute(program):
    put_attribute(program, nn.ReLU())


@lie(None)
def a_tree_as_attribute(program):
    put_attribute(program, torch.utils._pytree.tree_structure([1]))


@lie(None)
def weights_in_a_subgraph(program):
    put_attribute(program, nn.Parameter(torch.ones(1)), "weight", subgraph(program))
    put_attribute(program, torch.ones(1), "buffer", subgraph(program))


@lie("FX301")
def a_module_in_a_subgraph(program):
    put_attribute(program, nn.ReLU(), "inner", subgraph(program))


@lie("FX301")
def an_attribute_that_is_gone(program):
    put_attribute(program, torch.utils._pytree.tree_structure([1]))
    del program.graph_module.found


@lie("FX301")
def an_attribute_that_is_none(program):
    put_attribute(program, None)


class LoweredBackendModule(nn.Module):
    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@lie(None)
def a_module_of_a_backend(program):
    put_attribute(
        program, LoweredBackendModule(backend_id="x", processed_bytes=b"", compile_specs=[], original_module=1)
    )


@lie(None)
def a_module_of_aoti(program):
    put_attribute(program, LoweredBackendModule(backend_id="aoti", original_module=1, module_name=1))


@lie("FX301")
def a_module_of_a_backend_without_its_parts(program):
    put_attribute(program, LoweredBackendModule(backend_id="x", processed_bytes="text"))


@lie(None)
def a_module_known_by_name(program):
    put_attribute(program, type("AOTInductorEPModule", (nn.Module,), {})())


@lie("FX301")
def a_user_before_its_operand(program):
    node_of(program, "x").prepend(calls(program)[3])
    node_of(program, "add").prepend(calls(program)[2])
    calls(program)[-1].append(calls(program)[0])


@lie("FX301")
def two_nodes_of_one_name(program):
    (*_, first, second) = [node for node in subgraph(program).graph.nodes if node.op != "output"]
    second.name = first.name


@lie("FX401")
def no_output(program):
    program.graph.erase_node(list(program.graph.nodes)[-1])


@lie("FX401")
def one_input_too_few(program):
    program.graph_signature.input_specs.pop()


@lie("FX401")
def one_input_too_many(program):
    program.graph_signature.input_specs.append(copy.deepcopy(program.graph_signature.input_specs[-1]))


@lie("FX401", node="p_fc_bias")
def inputs_out_of_order(program):
    specs = program.graph_signature.input_specs
    specs[0], specs[1] = specs[1], specs[0]


@lie("FX401")
def an_input_that_is_nowhere(program):
    spec_of(program, "fc.weight").arg = signature_of.TensorArgument("nobody")


@lie("FX401")
def a_parameter_that_is_a_number(program):
    spec = spec_of(program, "fc.weight")
    spec.arg = signature_of.SymIntArgument(spec.arg.name)


@lie("FX401")
def a_parameter_without_a_target(program):
    spec_of(program, "fc.weight").target = None


@lie("FX401")
def a_parameter_that_is_missing(program):
    del program.state_dict["fc.weight"]


@lie("FX401")
def a_parameter_that_is_none(program):
    program.state_dict["fc.weight"] = program.state_dict["fc.weight"].detach()


@lie("FX401")
def a_buffer_that_is_a_constant(program):
    spec_of(program, "seen").arg = signature_of.ConstantArgument("b_seen", 1)


@lie("FX401")
def a_buffer_without_a_target(program):
    spec_of(program, "seen").target = None


@lie("FX401")
def a_buffer_that_is_missing(program):
    del program.state_dict["seen"]


@lie(None)
def a_buffer_that_is_a_constant_of_the_program(program):
    program.constants["seen"] = program.state_dict.pop("seen")


@lie(None)
def a_buffer_of_the_module(program):
    program.graph_module.register_buffer("seen", program.state_dict.pop("seen"))


@lie("FX401")
def a_buffer_that_does_not_tell(program):
    spec_of(program, "seen").persistent = None


@lie("FX401")
def a_buffer_in_the_state_dict_that_may_not_be_there(program):
    program.state_dict["scratch"] = torch.ones(4)


@lie(None)
def a_buffer_that_is_nowhere_but_need_not_be(program):
    del program.constants["scratch"]


@lie("FX401")
def a_constant_that_is_missing(program):
    del program.constants[
        next(s.target for s in program.graph_signature.input_specs if s.kind.name == "CONSTANT_TENSOR")
    ]


@lie("FX401")
def a_constant_without_a_target(program):
    next(s for s in program.graph_signature.input_specs if s.kind.name == "CONSTANT_TENSOR").target = None


@lie("FX401")
def an_object_that_is_a_tensor(program):
    spec_of(program, "seen").kind = signature_of.InputKind.CUSTOM_OBJ


@lie("FX401")
def an_object_that_is_missing(program):
    spec = spec_of(program, "seen")
    spec.kind, spec.arg = signature_of.InputKind.CUSTOM_OBJ, signature_of.CustomObjArgument("b_seen", "class")


@lie("FX401")
def a_token_that_is_a_tensor(program):
    program.graph_signature.input_specs[-1].kind = signature_of.InputKind.TOKEN


@lie("FX401")
def one_output_too_few(program):
    program.graph_signature.output_specs.pop()


@lie("FX401")
def one_result_too_few(program):
    output = program.graph.output_node()
    output.args = (output.args[0][:-1],)


@lie("FX401")
def a_result_that_is_no_tuple(program):
    program.graph.output_node().args = (node_of(program, "add"),)


@lie("FX401")
def another_result(program):
    output = program.graph.output_node()
    output.args = ((*output.args[0][:-1], node_of(program, "x")),)


@lie("FX401")
def results_out_of_order(program):
    output = program.graph.output_node()
    *others, a, b = output.args[0]
    output.args = ((*others, b, a),)


@lie("FX401")
def another_constant_as_result(program):
    output = program.graph.output_node()
    output.args = (tuple(3 if item is None else item for item in output.args[0]),)


@lie("FX401")
def an_output_that_is_nowhere(program):
    program.graph_signature.output_specs[-1].arg = signature_of.TensorArgument("nobody")


@lie("FX401")
def an_output_token_that_is_a_tensor(program):
    program.graph_signature.output_specs[0].kind = signature_of.OutputKind.TOKEN


@lie("FX401")
def a_result_that_is_a_token(program):
    spec = program.graph_signature.output_specs[-1]
    spec.arg = signature_of.TokenArgument(spec.arg.name)


@lie("FX401")
def an_update_of_nothing(program):
    program.graph_signature.output_specs[0].target = "nothing"


@lie("FX401")
def an_update_of_a_buffer_that_is_a_parameter(program):
    spec = next(s for s in program.graph_signature.output_specs if s.kind.name == "BUFFER_MUTATION")
    spec.target = "fc.weight"


@lie("FX401")
def an_update_of_an_input_that_is_none(program):
    spec = next(s for s in program.graph_signature.output_specs if s.kind.name == "USER_INPUT_MUTATION")
    spec.target = "p_fc_weight"


@lie("FX401")
def an_update_behind_the_results(program):
    specs = program.graph_signature.output_specs
    specs.append(specs.pop(0))
    output = program.graph.output_node()
    output.args = ((*output.args[0][1:], output.args[0][0]),)


@lie("FX401")
def an_update_without_a_target(program):
    program.graph_signature.output_specs[0].target = None


def keep_call(program):
    was = program.module_call_graph[0].signature
    signature = torch.export.ModuleCallSignature(
        [signature_of.TensorArgument("x"), signature_of.ConstantArgument("", 2)],
        [signature_of.TensorArgument("add")],
        was.in_spec,
        was.out_spec,
    )
    entry = torch.export.ModuleCallEntry("kept", signature)
    program.module_call_graph.append(entry)
    return entry


@lie(None)
def a_kept_call(program):
    keep_call(program)


@lie("FX401")
def a_kept_call_with_an_input_that_is_nowhere(program):
    keep_call(program).signature.inputs[0].name = "nobody"


@lie("FX401")
def a_kept_call_with_an_output_that_is_nowhere(program):
    keep_call(program).signature.outputs[0].name = "nobody"


@lie(None)
def a_kept_call_with_nameless_arguments(program):
    keep_call(program).signature.inputs[0].name = ""


@pytest.mark.parametrize("name", LIES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_lies(name):
    code, kind, node, change = LIES[name]
    program = mixed(kind)
    change(program)
    before = str(program.graph), str(program.graph_signature), sorted(program.state_dict), sorted(program.constants)
    error = assert_agree(program, refused=code is not None)
    if error is not None:
        assert code in {fault.code for fault in error.faults}
        assert all(fault.is_error and fault.message for fault in error.faults)
        assert node is None or any(fault.node == node for fault in error.faults), error.faults
        assert code in str(error) or len(error.faults) > 1
    after = str(program.graph), str(program.graph_signature), sorted(program.state_dict), sorted(program.constants)
    assert after == before


@pytest.mark.parametrize("name", LIES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_lies_leave_a_program_as_it_was(name):
    code, kind, _, change = LIES[name]
    program = mixed(kind)
    change(program)
    try:
        taken = fastexport.from_export(program)
    except VerifyError:
        return
    before = str(taken.graph), str(taken.graph_signature), taken.graph._version
    found = taken.verify(all=True)
    assert found == taken.verify(all=True)
    assert bool(found) == (code is not None)
    if found:
        with pytest.raises(SpecViolationError) as refused:
            taken.to_torch()
        assert isinstance(refused.value, VerifyError)
    else:
        with_torch = taken.to_torch()
        assert torchs(with_torch) is None or name == "a_buffer_of_the_module"
    assert (str(taken.graph), str(taken.graph_signature), taken.graph._version) == before


def test_all_faults_are_told_at_once():
    program = mixed()
    for change in (no_value, an_operator_that_writes, a_plain_function, a_tensor_as_attribute, inputs_out_of_order):
        change(program)
    no_value_in_a_subgraph(program)
    taken = fastexport.from_export(program)
    found = taken.verify(all=True)
    assert [fault.code for fault in found] == ["FX301", "FX303", "FX309", "FX305", "FX305", "FX401", "FX401"]
    assert "in the subgraph 'true_graph_0'" in found[4].message
    with pytest.raises(VerifyError) as refused:
        taken.verify()
    assert refused.value.faults == found
    assert "(and 6 more: see .faults)" in str(refused.value)
    with pytest.raises(SpecViolationError):
        taken.validate()


def test_the_exception():
    program = mixed()
    no_value(program)
    with pytest.raises(VerifyError) as refused:
        fastexport.from_export(program).verify()
    error = refused.value
    assert type(error) is _torch_verifier.RejectedProgram
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.faults, str(again)) == (error.faults, str(error))
    assert "'add' has no meta['val']" in str(error)
    alone = VerifyError("a text")
    assert (str(alone), [fault.message for fault in alone.faults]) == ("a text", ["a text"])
    assert str(pickle.loads(pickle.dumps(alone))).endswith("a text")


def test_every_code_can_be_explained():
    from fastexport._codes import EXPLANATIONS

    assert set(EXPLANATIONS) == set(_core.fault_kinds())


# ---- programs without fault


@pytest.mark.parametrize("name", export_kinds.KINDS)
def test_programs_of_every_kind(name):
    try:
        program = export_kinds.exported(name)
    except ImportError as error:
        pytest.skip(str(error))
    assert fastexport.from_export(program).verify() == []
    assert torchs(program) is None
    # The rules of the dialects that it is not of.
    theirs, mine = torchs(program, [TorchVerifier]), ours(program, [TorchVerifier])
    assert (theirs is None) == (mine is None)
    assert violations(lambda: fastexport.Verifier().check(program)) is None or mine is not None


# ---- edits of our own


def taken(kind="functional"):
    return fastexport.from_export(original(kind))


def test_edits():
    ep = taken()
    first = next(node for node in ep.graph.nodes if node.op == "call_function")
    new = ep.graph.call_function("torch.ops.aten.relu.default", (ep.graph.node("x"),))
    first.prepend(new)
    assert [(fault.code, fault.node) for fault in ep.verify(all=True)] == [("FX305", new.name)]
    new.meta["val"] = fastexport.TensorMeta("float32", (2, 4))
    assert ep.verify() == []
    new.meta["val"] = (new.meta["val"], None, first.meta["val"])
    assert ep.verify() == []
    new.meta["val"] = [new.meta["val"], object()]
    assert [fault.code for fault in ep.verify(all=True)] == ["FX305"]
    new.meta["val"] = fastexport.SymInt("not an expression(")
    found = ep.verify(all=True)
    assert [fault.code for fault in found] == ["FX306"]
    with pytest.raises(ValueError, match="not an expression"):
        ep.verify()
    new.meta["val"] = None
    new.target = "torch.ops.aten.relu_.default"
    assert [fault.code for fault in ep.verify(all=True)] == ["FX309"]
    assert ep.verify(dialect="TRAINING") == []
    new.target = "torch.ops.nobody.has_this.default"
    assert [fault.code for fault in ep.verify(all=True)] == ["FX304"]
    assert "has_this" in ep.verify(all=True)[0].message
    with pytest.raises(ValueError, match="nobody.has_this"):
        ep.to_torch()
    new.target = torch.relu
    assert [fault.code for fault in ep.verify(all=True)] == ["FX303"]
    ep.graph.erase_node(new)
    assert ep.verify() == []


def test_outputs():
    ep = taken()
    output = ep.graph.output_node()
    (results,) = output.args
    for wrong, message in (
        ((results[:-1],), "results"),
        (((*results, results[0]),), "results"),
        ((results[0],), "tuple"),
        ((results[:0],), "results"),
    ):
        output.args = wrong
        assert [fault.code for fault in ep.verify(all=True)] == ["FX401"]
        assert message in ep.verify(all=True)[0].message
        output.args = (results,)
        assert ep.verify() == []
    ep.graph.erase_node(output)
    (found,) = ep.verify(all=True)
    assert "does not end with an output" in found.message
    ep.graph.output((results,))
    second = ep.graph.output(results[:1])
    assert {fault.code for fault in ep.verify(all=True)} == {"FX301", "FX401"}
    ep.graph.erase_node(second)


def test_kept_calls_follow_edits():
    inner = torch.nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    program = torch.export.export(
        nn.Sequential(inner, nn.ReLU()), (torch.ones(1, 2),), preserve_module_call_signature=("0",)
    )
    ep = fastexport.from_export(program)
    assert ep.verify() == []
    linear = next(node for node in ep.graph.nodes if node.op == "call_function")
    relu = next(iter(linear.users))
    (last,) = relu.users
    last.args = (ep.graph.node(str(ep.graph_signature.user_inputs[0])),)
    ep.graph.erase_node(relu)
    (found,) = ep.verify(all=True)
    assert (found.code, "module '0'" in found.message) == ("FX401", True)
    assert f"'{relu.name}'" in found.message


# ---- dialects


@pytest.fixture
def registries():
    """What dialects a test defines is forgotten after it."""
    kept = dict(_VerifierMeta._registry), dict(_verifier._registry)
    yield
    for registry, was in zip((_VerifierMeta._registry, _verifier._registry), kept, strict=True):
        registry.clear()
        registry.update(was)


def of_torch(**methods):
    return type("Theirs", (TorchVerifier,), {"dialect": "THEIRS", **methods})


def of_ours(**methods):
    return type("Mine", (fastexport.Verifier,), {"dialect": "MINE", **methods})


def no_relu(self, op):
    if "relu" in str(op):
        raise SpecViolationError("no relu") if isinstance(self, TorchVerifier) else VerifyError("no relu")


RULES = {
    "nothing": ({}, set()),
    "valid_op": ({"check_valid_op": no_relu}, {"FX311"}),
    "no_types": ({"allowed_op_types": lambda self: (str,)}, {"FX303"}),
    "no_builtins": ({"allowed_builtin_ops": lambda self: [len]}, {"FX303"}),
    "no_attributes": ({"allowed_getattr_types": lambda self: (str,)}, {"FX301"}),
    "no_attributes_below": ({"allowed_getattr_types_for_subgm": lambda self: ()}, set()),
}


@pytest.mark.parametrize("name", RULES)
def test_dialects(name, registries):
    methods, codes = RULES[name]
    theirs, mine = of_torch(**methods), of_ours(**methods)
    ep = taken()
    for dialect in (theirs, mine, "THEIRS", "MINE", mine()):
        found = ep.verify(dialect=dialect, all=True)
        assert {fault.code for fault in found} == codes
        assert name != "valid_op" or all("no relu" in fault.message for fault in found)
        assert name != "no_attributes" or all("; it may be str:" in fault.message for fault in found)
    relu = next(node for node in ep.graph.subgraphs["true_graph_0"].nodes if node.target is aten.relu.default)
    relu.target = "torch.ops.aten.relu.default"  # an Operator, which torch's verifier gets as torch's own
    assert {fault.code for fault in ep.verify(dialect=theirs, all=True)} == codes
    relu.target = aten.relu.default
    refused = torchs(original("functional"), [theirs]) is not None
    assert refused == bool(codes)
    assert ep.verify() == []
    if codes:
        with pytest.raises(SpecViolationError):
            ep.verify(dialect=mine)
        with pytest.raises(VerifyError):
            mine().check(original("functional"))
    else:
        mine().check(original("functional"))
        mine().check(ep)


@pytest.mark.parametrize("name", RULES)
def test_dialects_of_files(name, registries, tmp_path):
    methods, codes = RULES[name]
    mine = of_ours(**methods)
    torch.export.save(original("functional"), tmp_path / "x.pt2")
    ep = fastexport.load(tmp_path / "x.pt2")
    assert {fault.code for fault in ep.verify(dialect=mine, all=True)} == codes
    assert {fault.code for fault in ep.verify(dialect="MINE", all=True)} == codes
    assert ep.verify() == []
    # The same when the file itself says that it is of the dialect.
    with_dialect(tmp_path / "x.pt2", tmp_path / "y.pt2", ["ATEN", "MINE"])
    if codes:
        with pytest.raises(fastexport.FormatError):
            fastexport.load(tmp_path / "y.pt2")
    ep = fastexport.load(tmp_path / "y.pt2", verify=not codes)
    assert {fault.code for fault in ep.verify(all=True)} == codes
    _verifier._registry.clear()
    (warning,) = ep.verify(all=True)
    assert (warning.code, warning.is_error) == ("FX103", False)


def with_dialect(source, target, names):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith("models/model.json"):
                data = json.dumps({**json.loads(data), "verifiers": names}).encode()
            new.writestr(item.filename, data)


def test_functional_dialects_of_files(registries, tmp_path):
    program = mixed("training")
    an_operator_that_writes_in_training(program)
    torch.export.save(program, tmp_path / "x.pt2")
    ep = fastexport.load(tmp_path / "x.pt2")
    assert ep.dialect == "TRAINING"
    assert {fault.code for fault in ep.verify(dialect="ATEN", all=True)} == {"FX309"}
    assert {fault.code for fault in ep.verify(dialect=of_ours(), all=True)} == {"FX309"}
    assert ep.verify(dialect="TRAINING") == []
    for names in (["ATEN"], ["TRAINING", "ATEN"], ["NOT KNOWN"], []):
        with_dialect(tmp_path / "x.pt2", tmp_path / "y.pt2", names)
        found = fastexport.load(tmp_path / "y.pt2", verify=False).verify(all=True)
        assert "FX309" in {fault.code for fault in found}
    with_dialect(tmp_path / "x.pt2", tmp_path / "y.pt2", ["TRAINING"])
    assert fastexport.load(tmp_path / "y.pt2").verify() == []


def test_a_dialect_of_a_program_of_torch(registries):
    """Programs may be of several dialects, of classes that only torch knows."""
    asked = []
    theirs = of_torch(
        check_valid_op=lambda self, op: asked.append(op),
        check_additional=lambda self, module: asked.append(type(module)),
    )
    program = mixed()
    program._verifiers = [TorchVerifier, theirs]
    ep = fastexport.from_export(program)
    assert ep.verify() == []
    assert len(asked) < sum(len(module.graph.nodes) for module in (program.graph_module, subgraph(program)))
    assert issubclass(asked[-1], torch.fx.GraphModule)
    assert aten.relu.default in asked
    assert ep.to_torch().verifiers == [TorchVerifier, theirs]

    def no(self, module):
        raise SpecViolationError(f"{len(module.graph.nodes)} nodes are too many")

    program._verifiers = [of_torch(check_additional=no)]
    ep = fastexport.from_export(program)
    (found,) = ep.verify(all=True)
    assert (found.code, "nodes are too many" in found.message) == ("FX311", True)
    with pytest.raises(SpecViolationError, match="too many"):
        ep.to_torch()
    program._verifiers = []
    assert isinstance(ours(program), VerifyError | TypeError)  # from_export does not take it
    assert isinstance(violations(program.validate), AssertionError)


def test_a_verifier_that_replaces_the_check(registries):
    theirs = of_torch()
    theirs.check = lambda self, program: (_ for _ in ()).throw(SpecViolationError("never"))
    program = mixed()
    program._verifiers = [theirs]
    ep = fastexport.from_export(program)
    (found,) = ep.verify(all=True)
    assert (found.code, found.message) == ("FX400", "never")
    with pytest.raises(SpecViolationError, match="never"):
        ep.to_torch()


def test_another_torch(monkeypatch):
    """Where torch's verifier is not the one that is known, it is asked itself."""
    monkeypatch.setattr(_torch_verifier, "_is_torchs", lambda: False)
    assert taken().verify() == []
    program = mixed()
    no_value(program)
    (found,) = fastexport.from_export(program).verify(all=True)
    assert (found.code, "add" in found.message) == ("FX400", True)
    with pytest.raises(SpecViolationError):
        fastexport.from_export(program).verify()


def test_defining_dialects(registries):
    for wrong in ({}, {"dialect": "ATEN"}, {"dialect": "TRAINING"}, {"dialect": ""}, {"dialect": 3}):
        with pytest.raises(TypeError, match="dialect"):
            type("Wrong", (fastexport.Verifier,), wrong)
    with pytest.raises(TypeError, match="check"):
        type("Wrong", (fastexport.Verifier,), {"dialect": "X", "check": lambda self, program: None})
    assert "X" not in _verifier._registry
    ep = taken()
    for wrong in ("NOBODYS", "mine"):
        with pytest.raises(ValueError, match=wrong):
            ep.verify(dialect=wrong)
    for wrong in (3, int, object()):
        with pytest.raises(TypeError):
            ep.verify(dialect=wrong)
    with pytest.raises(TypeError):
        fastexport.load(SAMPLE).verify(dialect=TorchVerifier)
    with pytest.raises(ValueError, match="level"):
        ep.verify(level="odd")
    for method in ("allowed_op_types", "allowed_getattr_types"):
        with pytest.raises(AssertionError, match=method):
            ep.verify(dialect=of_ours(**{method: lambda self: (object,)}))
    with pytest.raises(AssertionError, match="builtins"):
        ep.verify(dialect=of_ours(allowed_builtin_ops=lambda self: [of_ours], allowed_op_types=lambda self: ()))
    with pytest.raises(ZeroDivisionError):
        ep.verify(dialect=of_ours(check_valid_op=lambda self, op: 1 // 0))


def test_dialects_without_torch(tmp_path):
    torch.export.save(original("functional"), tmp_path / "x.pt2")
    code = """
        import sys
        import fastexport

        class Mine(fastexport.Verifier):
            dialect = "MINE"

            def check_valid_op(self, op):
                assert isinstance(op, fastexport.Operator) or op.__module__ == "_operator"
                if "mul" in op.__name__:
                    raise fastexport.VerifyError("no mul")

            def check_additional(self, graph_module):
                raise fastexport.VerifyError(f"{len(graph_module.graph.nodes)} nodes")

        ep = fastexport.load(sys.argv[1])
        assert {fault.code for fault in ep.verify(dialect="MINE", all=True)} == {"FX311"}
        try:
            Mine().check(ep)
        except fastexport.VerifyError as error:
            assert "no mul" in str(error) and type(error) is fastexport.VerifyError
        else:
            raise AssertionError
        for node in list(ep.graph.nodes):
            if node.op == "call_function" and "mul" in node.target.__name__:
                node.target = "torch.ops.aten.add.Tensor"
        (found,) = ep.verify(dialect="MINE", all=True)
        assert " nodes" in found.message
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), tmp_path / "x.pt2"], check=True)


# ---- hostile objects


class Meta(type):
    def __hash__(cls):
        raise RuntimeError("hash")

    def __eq__(cls, other):
        raise RuntimeError("eq")

    def __instancecheck__(cls, other):
        raise RuntimeError("instancecheck")


class OfMeta(metaclass=Meta):
    pass


class Lying:
    @property
    def __class__(self):
        return torch.Tensor


class Raising:
    @property
    def __class__(self):
        raise RuntimeError("class")


class Iterating:
    def __iter__(self):
        raise RuntimeError("iter")


class NoRepr:
    def __repr__(self):
        raise RuntimeError("repr")


class OddList(list):
    def __iter__(self):
        return iter([object()])


class OddInt(int):
    pass


def endless():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize("make", [OfMeta, Lying, Raising, Iterating, NoRepr, OddList, OddInt, endless])
def test_hostile_values(make):
    program = mixed()
    node_of(program, "add").meta["val"] = make()
    theirs, mine = torchs(program), ours(program)
    assert (theirs is None) == (mine is None)
    if mine is not None:
        assert [(fault.code, fault.node) for fault in mine.faults] == [("FX305", "add")]
    node_of(program, "add").meta["val"] = [torch.ones(1), make()]
    assert (torchs(program) is None) == (ours(program) is None)


def test_values_that_edit_the_graph():
    ep = taken()
    tried = []

    class Editing:
        def __iter__(self):
            for edit in (
                lambda: ep.graph.erase_node(ep.graph.output_node()),
                lambda: ep.graph.node("add").meta.clear(),
                lambda: setattr(ep.graph.node("add"), "target", torch.neg),
            ):
                tried.append(violations(edit))
            return iter([1])

    ep.graph.node("add").meta["val"] = Editing()
    assert ep.verify() == []
    assert len(tried) == 3
    assert all(isinstance(error, fastexport.FastExportError) for error in tried)


def test_targets_that_edit_the_graph(registries):
    ep = taken()
    tried = []

    def edit(self, op):
        if op is aten.mul.Tensor:  # of the program's own graph
            tried.append(violations(lambda: ep.graph.erase_node(ep.graph.output_node())))
        assert ep.verify() == []  # goes in again

    assert ep.verify(dialect=of_ours(check_valid_op=edit)) == []
    assert tried
    assert all(isinstance(error, fastexport.FastExportError) for error in tried)


def test_hostile_weights():
    class Odd(dict):
        def __contains__(self, key):
            raise RuntimeError("contains")

    class Empty(dict):
        def __contains__(self, key):
            return False

    for kind, raised in ((Odd, RuntimeError), (Empty, SpecViolationError)):
        program = mixed()
        program._state_dict = kind(program.state_dict)
        assert type(torchs(program)) is raised
        with pytest.raises(raised):
            fastexport.from_export(program).verify()


OTHERS = (None, 0, 1, 1.0, False, True, 2.5, "text", "add", float(2**53), -(2**63), -1e30, float("nan"), 1j)


def test_weights_of_odd_classes():
    for make, raised in ((Raising, RuntimeError), (Lying, SpecViolationError), (OfMeta, SpecViolationError)):
        program = mixed()
        program._state_dict = {**program.state_dict, "fc.weight": make()}
        assert type(torchs(program)) is raised
        with pytest.raises(raised):
            fastexport.from_export(program).verify()


def test_constants_as_results():
    class Result(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value

        def forward(self, x):
            return x + 1, self.value

    for value in (None, 0, 1, True, 2.5, float("inf"), "text", -(2**63), 2**53 + 1):
        program = torch.export.export(Result(value), (torch.ones(1),))
        for other in OTHERS:
            changed = copy.deepcopy(program)
            output = changed.graph.output_node()
            output.args = ((output.args[0][0], other),)
            assert_agree(changed)
            changed.graph_signature.output_specs[1].arg.value = other
            assert_agree(changed)
            changed.graph_signature.output_specs[1].arg.value = (other,)
            assert_agree(changed)


# ---- random changes


def change_at_random(program, choose):
    graph = program.graph if choose.random() < 0.8 else subgraph(program).graph
    nodes = list(graph.nodes)
    node = choose.choice(nodes)
    specs = choose.choice([program.graph_signature.input_specs, program.graph_signature.output_specs])
    spec, other = choose.choice(specs), choose.choice(specs)
    names = [each.name for each in program.graph.nodes] + ["nobody"]
    arguments = [
        signature_of.TensorArgument,
        signature_of.SymIntArgument,
        signature_of.TokenArgument,
        lambda name: signature_of.ConstantArgument(name, choose.choice([None, 1, "x"])),
        lambda name: signature_of.CustomObjArgument(name, "class"),
    ]
    what = choose.randrange(12)
    if what == 0:
        node.meta.pop("val", None)
    elif what == 1:
        node.meta["val"] = choose.choice([None, 1, object(), [object()], (torch.ones(1), None), "x", b"x", {1: 2}])
    elif what == 2 and node.op == "call_function":
        targets = [aten.relu.default, aten.relu_.default, aten.add.out, torch.relu, torch.sym_sum, len]
        node.target = choose.choice([*targets, operator.add, operator.pos])
    elif what == 3:
        spec.arg, other.arg = other.arg, spec.arg
    elif what == 4:
        spec.kind, other.kind = other.kind, spec.kind
    elif what == 5:
        spec.target, other.target = other.target, spec.target
    elif what == 6:
        spec.arg = choose.choice(arguments)(choose.choice([spec.arg.name] * 3 + names))
    elif what == 7:
        spec.target = choose.choice([None, "nothing", *program.state_dict, *program.constants, "x", "y"])
    elif what == 8:
        weights = choose.choice([program.state_dict, program.constants])
        moved = weights.pop(choose.choice(list(weights)), None) if weights else torch.ones(1)
        choose.choice([program.state_dict, program.constants])[choose.choice(["seen", "scratch", "new"])] = moved
    elif what == 9 and node.op != "output":
        (output,) = program.graph.find_nodes(op="output")
        results = list(output.args[0])
        results[choose.randrange(len(results))] = choose.choice([None, 1, "x", *program.graph.nodes])
        output.args = (tuple(item for item in results if item is not output),)
    elif what == 10:
        choose.choice([specs.pop, lambda: specs.append(copy.copy(spec)), lambda: choose.shuffle(specs)])()
    else:
        choose.choice(nodes).append(node)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_random_changes(seed):
    choose = random.Random(seed)
    verdicts = set()
    for _ in range(25):
        program = mixed(choose.choice(["functional", "training"]))
        for _ in range(choose.choice([1, 1, 1, 2, 3])):
            change_at_random(program, choose)
        theirs, mine = torchs(program), ours(program)
        assert (theirs is None) == (mine is None), f"torch: {theirs!r}; ours: {mine!r}"
        verdicts.add(theirs is None)
    assert verdicts == {True, False}


def edit_at_random(ep, choose):
    graph = choose.choice([ep.graph, ep.graph, ep.graph.subgraphs["true_graph_0"]])
    nodes = [node for node in graph.nodes if node.op != "output"]
    node, other = choose.choice(nodes), choose.choice(nodes)
    output = graph.output_node()
    results = list(output.args[0])
    place = choose.randrange(len(results)) if results else 0
    size = fastexport.TensorMeta("float32", (2,))
    what = choose.randrange(9)
    if what == 0:
        node.meta.pop("val", None)
    elif what == 1 and node.op != "get_attr":
        node.meta["val"] = choose.choice([None, 1, object(), [object()], size, (size, None), b"x"])
    elif what == 2 and node.op == "call_function":
        targets = [aten.relu.default, aten.relu_.default, torch.relu, operator.pos, len]
        node.target = choose.choice([*targets, "torch.ops.aten.neg.default", "torch.ops.no.such.default"])
    elif what == 3 and node.op == "call_function":
        node.replace_all_uses_with(other)
    elif what == 4 and not node.users:
        graph.erase_node(node)
    elif what == 5:
        node.name = choose.choice(["renamed", "w", "add"])
    elif what == 6 and results:
        results[place] = choose.choice([None, 1, "x", *nodes])
        output.args = (tuple(results),)
    elif what == 7 and results:
        choose.choice([results.pop, lambda: results.append(results[0]), lambda: choose.shuffle(results)])()
        output.args = (tuple(results),)
    elif what == 8:
        made = graph.call_function(choose.choice([aten.relu.default, aten.neg.default]), (other,))
        made.meta["val"] = choose.choice([None, size])
        output.prepend(made)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_random_edits(seed):
    """What passes here passes in torch once it is there, which `to_torch` relies on."""
    choose = random.Random(seed)
    verdicts = set()
    for _ in range(30):
        ep = taken(choose.choice(["functional", "training"]))
        for _ in range(choose.choice([1, 1, 2, 4])):
            violations(lambda ep=ep: edit_at_random(ep, choose))  # some edits are refused
        mine = violations(ep.verify)
        theirs = violations(lambda ep=ep: [each().check(ep._convert()) for each in ep.verifiers])
        assert (theirs is None) == (mine is None), f"torch: {theirs!r}; ours: {mine!r}"
        verdicts.add(mine is None)
    assert verdicts == {True, False}


# ---- the C functions

OUT_OF_MEMORY = """
import operator, sys
import _testcapi
import fastexport
from fastexport import _core

class Value:
    def __repr__(self):
        return "Value"

def call_dialect(answer, found):
    result = _core.check_dialect(
        ep.graph, lambda target: answer, lambda path: answer, lambda value: found, (int,), True, True
    )
    return len(result)

def call_signature(facts, found):
    outputs = bytes([0] * 9)
    return len(_core.check_signature(ep.graph, bytes([facts] * 9), outputs, {}, {}, int, True))

ep = fastexport.load(sys.argv[1])
for node in ep.graph.nodes:
    node.meta["val"] = Value()
for call, arguments, faults in (
    (call_dialect, (1, True), 0),
    (call_dialect, (0, False), 7),
    (call_signature, (4, True), 2),
):
    assert call(*arguments) == faults, call(*arguments)
    at = 0
    while True:
        _testcapi.set_nomemory(at, 0)
        try:
            found = call(*arguments)
        except MemoryError:
            at += 1
            continue
        finally:
            _testcapi.remove_mem_hooks()
        assert found == faults
        break
    print(at)
"""


def test_out_of_memory_at_every_point():
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY, SAMPLE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(int(count) > 5 for count in done.stdout.split()), done.stdout


def test_bad_arguments():
    ep = taken()
    for wrong in (
        lambda: _core.check_dialect(None, int, int, None, (), True, False),
        lambda: _core.check_dialect(ep.graph, int, int, None, [], True, False),
        lambda: _core.check_dialect(ep.graph),
        lambda: _core.check_signature(None, b"", b"", {}, {}, int, False),
        lambda: _core.check_signature(ep.graph, "", b"", {}, {}, int, False),
        lambda: _core.check_signature(ep.graph, b"", b"", {}, {}, 3, False),
        lambda: _core.check_signature(ep.graph, b"", b"", 3, {}, int, False),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ZeroDivisionError):
        _core.check_dialect(ep.graph, lambda target: 1 // 0, int, None, (), True, False)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        _core.check_dialect(ep.graph, lambda target: "text", lambda path: 1, None, (), True, False)
    assert _core.check_signature(fastexport.Graph(), b"", b"", {}, {}, int, False) is None
    assert ep.verify() == []


def test_dynamic_shapes():
    class Sized(nn.Module):
        def forward(self, x):
            return x.repeat(2, 1) + x.shape[0], x.shape[0]

    program = torch.export.export(Sized(), (torch.ones(3, 2),), dynamic_shapes={"x": {0: Dim.AUTO}})
    assert_agree(program, refused=False)
    assert ours(program, [TrainingIRVerifier]) is None
