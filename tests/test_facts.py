"""What targets do: torch.fx's policy beside the real is_impure, the safe one by right values."""

import builtins
import doctest
import math
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fastexport import _fact_tables, _facts
from fastexport._fact_tables import (
    EFFECT,
    FX_IMPURE,
    FX_RANDOM,
    GETITEM,
    MISSING,
    MUTATES,
    NO_RESULT,
    NODE_FX_IMPURE,
    NODE_IMPURE,
    NODE_RANDOM,
    NOT_CALLABLE,
    NOT_MODULE,
    PER_NODE,
    RANDOM,
    SAFE,
    UNKNOWN,
)
from fastexport._facts import call_facts, registered_effects, target_facts
from helpers import label

aten = torch.ops.aten
hop = torch.ops.higher_order
FX = FX_IMPURE | FX_RANDOM


def safe(op, target, owner=None):
    """The bits of the safe policy."""
    return target_facts(op, target, owner) & (SAFE | PER_NODE | GETITEM)


def operator_of(name):
    """The OpOverload of a qualified name, or None."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload or "default", None)


def all_operators():
    """Every OpOverload there is: the dispatcher's and TorchScript's own."""
    names = {
        schema.name + ("." + schema.overload_name if schema.overload_name else "")
        for schema in torch._C._jit_get_all_schemas()
    }
    names.update(torch._C._dispatch_get_all_op_names())
    found = [operator_of(name) for name in sorted(names)]
    return [op for op in found if isinstance(op, torch._ops.OpOverload)]


OPERATORS = all_operators()
ATEN = [op for op in OPERATORS if op.namespace == "aten"]
PACKETS = list({id(op.overloadpacket): op.overloadpacket for op in OPERATORS}.values())


def python_targets():
    owners = [
        torch,
        F,
        torch.Tensor,
        operator,
        math,
        builtins,
        torch.linalg,
        torch.fft,
        torch.special,
    ]
    owners += [torch._C._VariableFunctions, torch._C._nn, torch.nn.init, torch.random]
    found = [getattr(owner, name) for owner in owners for name in dir(owner)]
    return [target for target in found if callable(target)]


# ---- the flags -----------------------------------------------------------------------------------


def test_flags_are_those_of_the_core():
    core = Path(__file__).parent.parent / "csrc/core"
    header = "".join(path.read_text() for path in core.glob("*.h"))
    flags = dict(re.findall(r"FE_TARGET_(\w+) = 1 << (\d+)", header))
    flags.pop("KNOWN", None)  # the core's own
    assert len(flags) == 12
    for name, shift in flags.items():
        assert getattr(_fact_tables, name) == 1 << int(shift), name
    for name, shift in re.findall(r"FE_NODE_(IMPURE|FX_IMPURE|RANDOM) = 1 << (\d+)", header):
        assert getattr(_fact_tables, f"NODE_{name}") == 1 << int(shift), name


# ---- torch.fx's policy ---------------------------------------------------------------------------


def fx_bits(node):
    if not node.is_impure(impure_random=True):
        return 0
    return FX_IMPURE if node.is_impure(impure_random=False) else FX_RANDOM


def function_node(target, args=(), kwargs=None):
    graph = torch.fx.Graph()
    return graph.create_node("call_function", target, args, kwargs or {}, name="n")


def test_fx_policy_of_every_operator():
    assert len(ATEN) > 3000
    for op in OPERATORS:
        assert target_facts("call_function", op) & FX == fx_bits(function_node(op)), op


def test_fx_policy_of_every_packet():
    for packet in PACKETS:
        expected = fx_bits(function_node(packet))
        assert target_facts("call_function", packet) & FX == expected, packet


def test_fx_policy_of_python_targets():
    for target in python_targets():
        expected = fx_bits(function_node(target))
        assert target_facts("call_function", target) & FX == expected, target
    assert target_facts("call_function", torch.rand) & FX == FX_IMPURE
    assert target_facts("call_function", aten.rand.default) & FX == FX_RANDOM


def test_fx_policy_of_higher_order_operators():
    found = list(torch._ops._higher_order_ops.values())
    assert len(found) > 30
    asked = {hop.auto_functionalized, hop.auto_functionalized_v2}
    for op in found:
        facts = target_facts("call_function", op)
        if op in asked:
            assert facts & (PER_NODE | FX) == PER_NODE, op
        else:
            assert facts & FX == fx_bits(function_node(op)), op


@pytest.mark.parametrize("op", [hop.auto_functionalized, hop.auto_functionalized_v2])
@pytest.mark.parametrize("inner", [aten.add_.Tensor, aten._assert_async.msg])
def test_fx_policy_of_auto_functionalized(op, inner):
    node = function_node(op, (inner,), {"self": 1})
    assert bool(call_facts(node) & NODE_FX_IMPURE) == node.is_impure()
    assert node.is_impure() == (inner is aten._assert_async.msg)
    assert not call_facts(function_node(op)) & NODE_FX_IMPURE


def test_fx_policy_of_methods():
    graph = torch.fx.Graph()
    for name in [*dir(torch.Tensor), *dir(list), "foo"]:
        assert not graph.create_node("call_method", name, ()).is_impure()
        assert target_facts("call_method", name) & FX == 0


def test_fx_policy_of_modules():
    impure = nn.Linear(1, 1)
    impure._is_impure = True
    root = nn.Module()
    root.a, root.b = impure, nn.Dropout()
    graph = torch.fx.GraphModule(root, torch.fx.Graph()).graph
    graph.owning_module = root
    for path in "ab":
        node = graph.call_module(path)
        assert target_facts("call_module", path, root) & FX == fx_bits(node)


def test_fx_policy_follows_registration():
    def mine(x):
        return x

    assert target_facts("call_function", mine) == UNKNOWN
    torch.fx.has_side_effect(mine)
    try:
        assert mine in registered_effects()
        assert target_facts("call_function", mine) == UNKNOWN | EFFECT | FX_IMPURE
    finally:
        registered_effects().discard(mine)


# ---- the safe policy: operators ------------------------------------------------------------------


def test_operators_whose_schema_tells_are_kept():
    for op in OPERATORS:
        facts, schema = safe("call_function", op), op._schema
        if schema.is_mutable:
            assert facts & MUTATES, op
        if not schema.returns:
            assert facts & NO_RESULT, op
        if torch.Tag.nondeterministic_seeded in op.tags:
            assert facts & RANDOM, op
        if fx_bits(function_node(op)):
            assert facts & SAFE, op


def test_the_other_aten_operators_are_removable():
    """All but the few whose schema does not tell."""
    kept = {}
    for op in ATEN:
        if not torch._C._dispatch_has_kernel(op.name()):
            continue
        plain = not op._schema.is_mutable and op._schema.returns
        if plain and torch.Tag.nondeterministic_seeded not in op.tags:
            facts = safe("call_function", op)
            if facts:
                kept[op.name()] = facts
    assert kept == {
        "aten::_batch_norm_impl_index": PER_NODE,
        "aten::_cudnn_rnn_flatten_weight": MUTATES,
        "aten::_functional_assert_async.msg": EFFECT,
        "aten::_functional_assert_scalar": EFFECT,
        "aten::_functional_sym_constrain_range": EFFECT,
        "aten::_functional_sym_constrain_range_for_size": EFFECT,
        "aten::batch_norm": PER_NODE,
        "aten::batch_norm_gather_stats": PER_NODE,
        "aten::batch_norm_gather_stats_with_counts": PER_NODE,
        "aten::batch_norm_update_stats": PER_NODE,
        "aten::cudnn_batch_norm": PER_NODE,
        "aten::from_file": EFFECT,
        "aten::instance_norm": PER_NODE,
        "aten::miopen_batch_norm": PER_NODE,
        "aten::native_batch_norm": PER_NODE,
    }


# Each writes running statistics that its schema does not mark: arguments that do, and that don't.
STATISTICS = [
    (aten.batch_norm.default, lambda m, v, on: (None, None, m, v, on, 0.1, 1e-5, False)),
    (aten.native_batch_norm.default, lambda m, v, on: (None, None, m, v, on, 0.1, 1e-5)),
    (
        aten._batch_norm_impl_index.default,
        lambda m, v, on: (None, None, m, v, on, 0.1, 1e-5, False),
    ),
    (aten.instance_norm.default, lambda m, v, on: (None, None, m, v, on, 0.1, 1e-5, False)),
    (torch.batch_norm, lambda m, v, on: (None, None, m, v, on, 0.1, 1e-5, False)),
    (F.batch_norm, lambda m, v, on: (m, v, None, None, on)),
    (F.instance_norm, lambda m, v, on: (m, v, None, None, on)),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("target, rest", STATISTICS, ids=lambda value: label(value)[:30])
def test_running_statistics(target, rest, training):
    x, mean, var = torch.rand(2, 3, 4), torch.zeros(3), torch.ones(3)
    target(x, *rest(mean, var, training))
    written = bool(mean.any())
    assert written == training
    graph = torch.fx.Graph()
    a, m, v = (graph.placeholder(name) for name in "amv")
    assert target_facts("call_function", target) & (SAFE | PER_NODE) == PER_NODE
    node = graph.create_node("call_function", target, (a, *rest(m, v, training)))
    assert call_facts(node) == (NODE_IMPURE if written else 0)
    without = graph.create_node("call_function", target, (a, *rest(None, None, True)))
    assert call_facts(without) == 0
    by_node = graph.create_node("call_function", target, (a, *rest(m, v, a)))
    assert call_facts(by_node) == NODE_IMPURE  # it may be true


def test_statistics_without_a_flag():
    mean, var = torch.zeros(3), torch.ones(3)
    aten.batch_norm_update_stats(torch.rand(2, 3, 4), mean, var, 0.1)
    assert mean.any()
    graph = torch.fx.Graph()
    a, m, v = (graph.placeholder(name) for name in "amv")
    op = aten.batch_norm_update_stats.default
    assert call_facts(graph.call_function(op, (a, m, v, 0.1))) == NODE_IMPURE
    assert call_facts(graph.call_function(op, (a, None, None, 0.1))) == 0


OPERATOR_VALUES = [
    (aten.add.Tensor, 0),
    (aten.add_.Tensor, MUTATES),
    (aten.add.out, MUTATES),
    (aten.rand.default, RANDOM),
    (aten.bernoulli_.float, MUTATES | RANDOM),
    (aten.bernoulli.p, RANDOM),
    (aten._assert_async.msg, EFFECT | NO_RESULT),
    (aten._assert_async.default, NO_RESULT),
    (aten._print.default, EFFECT | NO_RESULT),
    (aten.sym_constrain_range.default, EFFECT | NO_RESULT),
    (aten.view.default, 0),
    (aten.add, 0),
    (aten.add_, MUTATES),
    (aten.rand, RANDOM),
    (aten.sort, PER_NODE),  # values= and indices=
    (aten.append, MUTATES),
    (torch.ops.profiler._record_function_enter_new.default, EFFECT),
    (torch.ops.quantized.dropout.default, RANDOM),
]


@pytest.mark.parametrize("target, expected", OPERATOR_VALUES, ids=str)
def test_operators(target, expected):
    assert safe("call_function", target) == expected
    if isinstance(target, torch._ops.OpOverload):
        assert safe("call_function", f"torch.ops.{target}") == expected


def test_operators_by_name():
    assert target_facts("call_function", "torch.ops.aten.rand.default") == RANDOM | FX_RANDOM
    assert target_facts("call_function", "torch.ops.nowhere.nothing.default") == UNKNOWN
    assert target_facts("call_function", "torch.ops.load_library") == UNKNOWN
    assert safe("call_function", "torch.ops.higher_order.cond") == PER_NODE


def test_a_packet_that_writes_to_keywords():
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    plain = graph.call_function(aten.sort, (x,))
    writes = graph.call_function(aten.sort, (x,), {"values": x, "indices": y})
    assert (call_facts(plain), call_facts(writes)) == (0, NODE_IMPURE)


def test_collectives_are_effects():
    pytest.importorskip("torch.distributed._functional_collectives")
    for name in ("all_reduce", "wait_tensor", "broadcast"):
        op = getattr(torch.ops._c10d_functional, name).default
        assert safe("call_function", op) & EFFECT, name
    assert safe("call_function", torch.ops.c10d.allreduce_.default) & (MUTATES | EFFECT)


def test_custom_operators_go_by_their_schema():
    with torch.library._scoped_library("fe_facts", "DEF") as library:
        library.define("pure(Tensor x) -> Tensor")
        library.define("writes(Tensor(a!) x) -> Tensor")
        library.define("silent(Tensor x) -> ()")
        library.define("seeded(Tensor x) -> Tensor", tags=[torch.Tag.nondeterministic_seeded])
        ops = torch.ops.fe_facts
        assert target_facts("call_function", ops.pure.default) == 0
        assert target_facts("call_function", ops.writes.default) == MUTATES | FX_IMPURE
        assert target_facts("call_function", ops.silent.default) == NO_RESULT
        assert target_facts("call_function", ops.seeded.default) == RANDOM | FX_RANDOM
        ordered = torch._library.effects.EffectType.ORDERED
        torch.library._register_effectful_op("fe_facts::pure", ordered)
        assert target_facts("call_function", ops.pure.default) == EFFECT | FX_IMPURE
        assert safe("call_function", ops.pure) == EFFECT
        torch.library._register_effectful_op("fe_facts::pure", None)
        assert target_facts("call_function", ops.pure.default) == 0


def test_custom_operator_objects():
    @torch.library.custom_op("fe_facts_object::scale", mutates_args={"x"})
    def scale(x: torch.Tensor) -> None:
        x.mul_(2)

    assert safe("call_function", scale) == MUTATES | NO_RESULT


# ---- the safe policy: functions ------------------------------------------------------------------


def user_function(x):
    return x


@torch.fx.wrap
def wrapped_leaf(x):
    return x


FUNCTION_VALUES = [
    (operator.add, 0),
    (operator.is_, 0),
    (operator.not_, 0),
    (operator.and_, 0),
    (operator.getitem, GETITEM),
    (operator.setitem, MUTATES),
    (operator.delitem, MUTATES),
    (operator.iadd, MUTATES),
    (operator.ior, MUTATES),
    (operator.itemgetter(0), 0),
    (operator.methodcaller("pop"), UNKNOWN),
    (operator.call, UNKNOWN),
    (len, 0),
    (getattr, 0),
    (tuple, 0),
    (slice, 0),
    (print, EFFECT),
    (exec, EFFECT),
    (setattr, MUTATES),
    (next, MUTATES),
    (map, UNKNOWN),
    (math.sqrt, 0),
    (torch.add, 0),
    (torch.relu_, MUTATES),
    (torch.rand, RANDOM),
    (torch.bernoulli, RANDOM),
    (torch.sort, 0),
    (torch.tensor, 0),
    (torch.einsum, 0),
    (torch.unique, 0),
    (torch.linalg.det, 0),
    (torch.fft.fft, 0),
    (torch.special.erf, 0),
    (torch.sym_max, 0),
    (torch.sym_sum, 0),
    (torch.sym_fresh_size, UNKNOWN),
    (torch.Size, 0),
    (torch.svd_lowrank, RANDOM),
    (torch.from_file, EFFECT),
    (torch._assert, EFFECT),
    (torch._assert_async, EFFECT | NO_RESULT),
    (torch._check, EFFECT),
    (torch.manual_seed, EFFECT),
    (torch.set_grad_enabled, EFFECT),
    (torch._C._set_grad_enabled, EFFECT),
    (torch.amp._enter_autocast, EFFECT),
    (torch.save, EFFECT),
    (torch.load, UNKNOWN),
    (torch.compile, UNKNOWN),
    (torch.norm, PER_NODE),  # out may be given by position
    (F.gelu, 0),
    (F.max_pool2d, 0),
    (F.softmax, 0),
    (F.relu, PER_NODE),
    (F.dropout, PER_NODE),
    (F.threshold, PER_NODE),
    (F.scaled_dot_product_attention, PER_NODE),
    (F.gumbel_softmax, RANDOM),
    (F.fractional_max_pool2d, RANDOM),
    (F.relu_, MUTATES),
    (nn.init.normal_, MUTATES | UNKNOWN),
    (torch.Tensor.add, 0),
    (torch.Tensor.add_, MUTATES),
    (torch.Tensor.__getitem__, 0),
    (torch.Tensor.__setitem__, MUTATES),
    (torch.Tensor.backward, EFFECT),
    (torch.Tensor.grad.__get__, 0),
    (torch.Tensor.grad.__set__, MUTATES),
    (torch.zeros(1).add, UNKNOWN),
    (user_function, UNKNOWN),
    (wrapped_leaf, UNKNOWN),
    (lambda x: x, UNKNOWN),
]


@pytest.mark.parametrize("target, expected", FUNCTION_VALUES, ids=lambda value: label(value)[:40])
def test_functions(target, expected):
    assert safe("call_function", target) == expected


x = torch.fx.Graph().placeholder("x")
CALLS = [
    (F.relu, (x,), {}, 0),
    (F.relu, (x, True), {}, NODE_IMPURE),
    (F.relu, (x,), {"inplace": True}, NODE_IMPURE),
    (F.relu, (x,), {"inplace": False}, 0),
    (F.dropout, (x,), {}, NODE_RANDOM),
    (F.dropout, (x, 0.5, False), {}, 0),
    (F.dropout, (x, 0.5), {"training": False}, 0),
    (F.dropout, (x, 0.5, False, True), {}, NODE_IMPURE),
    (F.dropout, (x, 0.5, x), {}, NODE_RANDOM),
    (F.alpha_dropout, (x,), {}, 0),
    (F.rrelu, (x,), {"training": True}, NODE_RANDOM),
    (F.embedding, (x, x), {}, 0),
    (F.embedding, (x, x), {"max_norm": 1.0}, NODE_IMPURE),
    (F.normalize, (x, 2.0, 1, 1e-12, x), {}, NODE_IMPURE),
    (F.scaled_dot_product_attention, (x, x, x), {}, 0),
    (F.scaled_dot_product_attention, (x, x, x, None, 0.1), {}, NODE_RANDOM),
    (F.scaled_dot_product_attention, (x, x, x), {"dropout_p": 0.1}, NODE_RANDOM),
    (F.triplet_margin_with_distance_loss, (x, x, x), {}, 0),
    (F.triplet_margin_with_distance_loss, (x, x, x), {"distance_function": len}, NODE_IMPURE),
]


@pytest.mark.parametrize("target, args, kwargs, expected", CALLS, ids=lambda value: label(value)[:20])
def test_calls(target, args, kwargs, expected):
    assert safe("call_function", target) == PER_NODE
    node = x.graph.call_function(target, args, kwargs)
    assert call_facts(node) == expected


def is_removable(op, target):
    facts = target_facts(op, target)
    return not facts & (SAFE | PER_NODE)


@pytest.mark.filterwarnings("ignore")
def test_functions_and_methods_said_to_be_pure_leave_their_operands_alone():
    """Call each with all kinds of arguments, and look at operands and random state afterwards."""
    tried = 0
    for owner in (torch.Tensor, torch, F, torch.linalg, torch.fft, torch.special):
        for name in dir(owner):
            target = getattr(owner, name)
            if owner is torch.Tensor:
                pure = is_removable("call_method", name) and not name.startswith("_")
            else:
                pure = is_removable("call_function", target) and not name.startswith("_")
            if not pure or not callable(target) or isinstance(target, type):
                continue
            for rest in ((), (0,), (1, 0), "x", "xx"):
                x = torch.tensor([[0.25, 0.5], [0.75, 1.0]])
                args = tuple(x if value == "x" else value for value in rest)
                state = torch.get_rng_state()
                try:
                    target(x, *args)
                except Exception:
                    continue
                tried += 1
                assert x._version == 0, (target, args)
                assert x.tolist() == [[0.25, 0.5], [0.75, 1.0]], (target, args)
                assert torch.equal(torch.get_rng_state(), state), (target, args)
    assert tried > 800


class Hostile:
    """An object that raises, whatever is done with it."""

    def __call__(self):
        pass

    def __getattr__(self, name):
        raise ValueError(name)

    def __eq__(self, other):
        raise ValueError("eq")

    def __hash__(self):
        raise ValueError("hash")

    def __repr__(self):
        raise ValueError("repr")

    @property
    def __class__(self):
        raise ValueError("class")


def test_hostile_targets():
    assert target_facts("call_function", Hostile()) == UNKNOWN | FX_IMPURE
    assert target_facts("call_function", [].append) & UNKNOWN


def test_targets_of_the_wrong_type():
    assert target_facts("call_function", 5) == UNKNOWN | NOT_CALLABLE
    assert target_facts("call_function", "foo") == UNKNOWN | NOT_CALLABLE
    for op in ("call_method", "call_module", "get_attr", "placeholder", "output"):
        assert target_facts(op, 5) & NOT_CALLABLE, op
    for op in ("get_attr", "placeholder", "output"):
        assert target_facts(op, "x", nn.Module()) == 0


# ---- the safe policy: methods --------------------------------------------------------------------

METHOD_VALUES = {
    0: "add view reshape sort split item tolist size to float numpy detach clone unique norm stft"
    " new_zeros upper join format index count keys items get values copy __add__ __getitem__"
    " __len__ __rsub__ is_contiguous index_put masked_fill",
    MUTATES: "add_ mul_ copy_ zero_ set_ resize_ requires_grad_ share_memory_ foo_ __setitem__"
    " __iadd__ __delitem__ __imul__ __setattr__ append extend insert pop update clear remove"
    " setdefault popitem discard",
    RANDOM: "bernoulli multinomial",
    MUTATES | RANDOM: "normal_ uniform_ random_ bernoulli_ exponential_ cauchy_ geometric_",
    EFFECT: "backward register_hook retain_grad",
    UNKNOWN: "foo forward resize __call__ __enter__ __torch_function__ foo__",
}


@pytest.mark.parametrize("expected", METHOD_VALUES)
def test_methods(expected):
    for name in METHOD_VALUES[expected].split():
        assert safe("call_method", name) == expected, name


def test_every_method_that_writes_by_its_operator_is_kept():
    for name in dir(torch.Tensor):
        packet = getattr(aten, name, None)
        ops = packet.op_overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else []
        for op in ops:
            arguments = op._schema.arguments
            if not torch._C._dispatch_has_kernel(op.name()) or not arguments:
                continue
            alias = arguments[0].alias_info
            if alias is not None and alias.is_write:
                assert safe("call_method", name) & (MUTATES | EFFECT), name
            if torch.Tag.nondeterministic_seeded in op.tags:
                assert safe("call_method", name) & (RANDOM | MUTATES), name


def test_without_torch(tmp_path):
    """Standard functions and usual methods are known, torch's are not; torch is not imported."""
    code = """
import operator, sys
from fastexport import _fact_tables as t, _facts as f
facts = f.target_facts
assert facts("call_function", operator.add) == 0
assert facts("call_function", operator.getitem) == t.GETITEM
assert facts("call_function", operator.setitem) == t.MUTATES | t.FX_IMPURE
assert facts("call_function", print) == t.EFFECT
assert facts("call_function", lambda: 0) == t.UNKNOWN
assert facts("call_function", "torch.ops.aten.add.Tensor") == t.UNKNOWN
assert facts("call_method", "view") == facts("call_method", "float") == 0
assert facts("call_method", "mul_") == t.MUTATES
assert facts("call_method", "bernoulli") == t.RANDOM
assert facts("call_method", "backward") == t.EFFECT
assert facts("call_method", "foo") == t.UNKNOWN
assert facts("call_module", "a", None) == t.UNKNOWN
assert f.registered_effects() is None
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_usual_methods_are_the_same_with_torch():
    for name in _fact_tables._TENSOR_USUAL:
        assert safe("call_method", name) == 0, name


# ---- the safe policy: modules --------------------------------------------------------------------


def graph_module(build, root=None):
    """A GraphModule whose graph has an input x, what build(graph, x) adds, and gives x back."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    build(graph, x)
    graph.output(x)
    return torch.fx.GraphModule(root or nn.Module(), graph)


def hooked(module):
    module.register_forward_hook(lambda *args: None)
    return module


def patched(module):
    module.forward = lambda x: x
    return module


def marked(module):
    module._is_impure = True
    return module


class UserLinear(nn.Linear):
    pass


def calling(module):
    """A GraphModule that calls a module; None: one that is missing."""
    root = nn.Module()
    root.sub = module or nn.Identity()
    made = graph_module(lambda g, x: g.call_module("sub", (x,)), root)
    if module is None:
        del made.sub
    return made


def encoder(**options):
    return nn.TransformerEncoderLayer(4, 2, **options)


MODULE_VALUES = [
    (nn.Linear(1, 1), 0),
    (nn.ReLU(), 0),
    (nn.ReLU(inplace=True), MUTATES),
    (nn.Identity(), 0),
    (nn.LayerNorm(2), 0),
    (nn.BatchNorm2d(2), EFFECT),
    (nn.BatchNorm2d(2).eval(), 0),
    (nn.BatchNorm2d(2, track_running_stats=False), 0),
    (nn.InstanceNorm1d(2), 0),
    (nn.InstanceNorm1d(2, track_running_stats=True), EFFECT),
    (nn.InstanceNorm1d(2, track_running_stats=True).eval(), 0),
    (nn.SyncBatchNorm(2, track_running_stats=False), EFFECT),
    (nn.Dropout(), RANDOM),
    (nn.Dropout().eval(), 0),
    (nn.Dropout(inplace=True), RANDOM | MUTATES),
    (nn.FeatureAlphaDropout(), RANDOM),
    (nn.RReLU(), RANDOM),
    (nn.RReLU().eval(), 0),
    (nn.FractionalMaxPool2d(2, output_size=1).eval(), RANDOM),
    (nn.FractionalMaxPool2d(2, output_size=1, _random_samples=torch.rand(1, 1, 2)), 0),
    (nn.LSTM(2, 2), 0),
    (nn.LSTM(2, 2, 2, dropout=0.5), RANDOM),
    (nn.LSTM(2, 2, 2, dropout=0.5).eval(), 0),
    (nn.MultiheadAttention(2, 1), 0),
    (nn.MultiheadAttention(2, 1, dropout=0.5), RANDOM),
    (nn.Embedding(2, 2), 0),
    (nn.Embedding(2, 2, max_norm=1.0), EFFECT),
    (nn.Sequential(nn.Linear(1, 1), nn.ReLU()), 0),
    (nn.Sequential(nn.Sequential(nn.Dropout()), nn.BatchNorm1d(1)), RANDOM | EFFECT),
    (nn.Sequential(UserLinear(1, 1)), UNKNOWN),
    (nn.Sequential(hooked(nn.Linear(1, 1))), UNKNOWN),
    (encoder(), RANDOM),
    (encoder().eval(), 0),
    (encoder(activation="gelu").eval(), 0),
    (encoder(activation=user_function).eval(), UNKNOWN),
    (nn.TripletMarginWithDistanceLoss(), 0),
    (nn.TripletMarginWithDistanceLoss(distance_function=user_function), UNKNOWN),
    (nn.LazyLinear(1), UNKNOWN),
    (nn.Module(), UNKNOWN),
    (UserLinear(1, 1), UNKNOWN),
    (hooked(nn.Linear(1, 1)), UNKNOWN),
    (patched(nn.Linear(1, 1)), UNKNOWN),
    (nn.utils.parametrizations.weight_norm(nn.Linear(1, 1)), UNKNOWN),
    (marked(nn.Linear(1, 1)), EFFECT),
    (torch.ao.quantization.MinMaxObserver(), UNKNOWN),
    (torch.ao.quantization.FakeQuantize(), UNKNOWN),
    (torch.jit.script(nn.Linear(1, 1)), UNKNOWN),
    (graph_module(lambda g, x: None), 0),
    (graph_module(lambda g, x: g.call_function(torch.relu, (x,))), 0),
    (graph_module(lambda g, x: g.call_function(aten.add_.Tensor, (x, 1))), MUTATES),
    (graph_module(lambda g, x: g.call_method("add_", (x, 1))), MUTATES),
    (graph_module(lambda g, x: g.call_function(torch.add, (x, 1), {"out": x})), MUTATES),
    (graph_module(lambda g, x: g.call_function(aten._assert_async.msg, (x, ""))), EFFECT),
    (graph_module(lambda g, x: g.call_function(aten._assert_async.default, (x,))), EFFECT),
    (graph_module(lambda g, x: g.call_function(torch.rand, (2,))), RANDOM),
    (graph_module(lambda g, x: g.call_function(F.dropout, (x,))), RANDOM),
    (graph_module(lambda g, x: g.call_function(F.dropout, (x, 0.5, False))), 0),
    (graph_module(lambda g, x: g.call_function(user_function, (x,))), UNKNOWN),
    (calling(nn.BatchNorm1d(1)), EFFECT),
    (calling(nn.Linear(1, 1)), 0),
    (calling(UserLinear(1, 1)), UNKNOWN),
    (calling(None), UNKNOWN),
    (hooked(graph_module(lambda g, x: None)), UNKNOWN),
]


@pytest.mark.parametrize("module, expected", MODULE_VALUES, ids=lambda value: label(value)[:30])
def test_modules(module, expected):
    root = nn.Module()
    root.sub = module
    assert safe("call_module", "sub", root) == expected
    root = nn.Module()
    root.a = nn.Module()
    root.a.sub = module
    assert safe("call_module", "a.sub", root) == expected


def test_modules_that_are_not_there():
    root = nn.Module()
    root.a, root.tensor, root.none = nn.Linear(1, 1), torch.zeros(1), None
    assert target_facts("call_module", "a", None) == UNKNOWN
    assert target_facts("call_module", "b", root) == UNKNOWN | MISSING
    assert target_facts("call_module", "a.b.c", root) == UNKNOWN | MISSING
    assert target_facts("call_module", "none", root) == UNKNOWN | MISSING
    assert target_facts("call_module", "", root) == UNKNOWN | MISSING
    assert target_facts("call_module", "tensor", root) == UNKNOWN | NOT_MODULE
    assert target_facts("call_module", "a.weight", root) == UNKNOWN | NOT_MODULE


def test_global_hooks():
    root = nn.Module()
    root.a = nn.Linear(1, 1)
    handle = nn.modules.module.register_module_forward_hook(lambda *args: None)
    try:
        assert safe("call_module", "a", root) == UNKNOWN
    finally:
        handle.remove()
    assert safe("call_module", "a", root) == 0


def test_modules_nested_deep_and_in_cycles():
    inner = graph_module(lambda g, x: g.call_function(aten.add_.Tensor, (x, 1)))
    for _ in range(3000):
        inner = nn.Sequential(inner)
    root = nn.Module()
    root.sub = inner
    assert safe("call_module", "sub", root) == MUTATES

    one = graph_module(lambda g, x: g.call_function(torch.rand, (2,)))
    two = graph_module(lambda g, x: g.call_method("relu", (x,)))
    one._modules["other"], two._modules["other"] = two, one
    for module in (one, two):
        with module.graph.inserting_before():
            module.graph.call_module("other")
    root._modules["sub"] = two
    assert safe("call_module", "sub", root) == RANDOM


def test_interpreter_modules():
    class Inner(nn.Module):
        def forward(self, x):
            return x + 1

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x) * 2

    program = torch.export.export(Outer(), (torch.ones(2),), preserve_module_call_signature=("inner",))
    module = torch.export.unflatten(program)
    assert type(module.inner).__name__ == "InterpreterModule"
    assert safe("call_module", "inner", module) == 0


# ---- the safe policy: higher-order operators -----------------------------------------------------


def pure_branch():
    return graph_module(lambda g, x: g.call_function(torch.relu, (x,)))


def writing_branch():
    return graph_module(lambda g, x: g.call_function(aten.add_.Tensor, (x, 1)))


def random_branch():
    return graph_module(lambda g, x: g.call_function(torch.rand, (2,)))


def higher_order_node(build, **attributes):
    """The node that build(graph, x, get_attr) makes in a graph whose module has the attributes."""
    root = nn.Module()
    for name, value in attributes.items():
        setattr(root, name, value)
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = build(graph, x, graph.get_attr)
    graph.output(x)
    graph.owning_module = root
    return node


SUBGRAPH_CALLS = {
    "cond": lambda g, x, a: g.call_function(hop.cond, (x, a("one"), a("two"), [x])),
    "while_loop": lambda g, x, a: g.call_function(hop.while_loop, (a("one"), a("two"), (x,), ())),
    "scan": lambda g, x, a: g.call_function(hop.scan, (a("two"), [x], [x], ())),
    "map_impl": lambda g, x, a: g.call_function(hop.map_impl, (a("two"), [x], [])),
    "invoke_subgraph": lambda g, x, a: g.call_function(hop.invoke_subgraph, (a("two"), "id", x)),
    "wrap_with_set_grad_enabled": lambda g, x, a: g.call_function(hop.wrap_with_set_grad_enabled, (False, a("two"), x)),
    "nested": lambda g, x, a: g.call_function(
        hop.flex_attention, (x, x, x, a("one"), (1, x, a("two")), 1.0, {"BLOCK": 1})
    ),
}


@pytest.mark.parametrize("build", SUBGRAPH_CALLS.values(), ids=SUBGRAPH_CALLS)
def test_subgraph_operators(build):
    node = higher_order_node(build, one=pure_branch(), two=pure_branch())
    assert safe("call_function", node.target) == PER_NODE
    assert call_facts(node) == 0
    for branch, fact in (
        (writing_branch(), NODE_IMPURE),
        (random_branch(), NODE_RANDOM),
        (hooked(pure_branch()), NODE_IMPURE),
        (UserLinear(1, 1), NODE_IMPURE),
    ):
        node = higher_order_node(build, one=pure_branch(), two=branch)
        assert call_facts(node) == fact
    assert call_facts(higher_order_node(build, one=pure_branch())) == NODE_IMPURE  # missing
    node.graph.owning_module = None
    assert call_facts(node) == NODE_IMPURE


def test_subgraphs_of_subgraphs():
    def build(graph, x):
        graph.call_function(hop.cond, (x, graph.get_attr("one"), graph.get_attr("two"), [x]))

    root = nn.Module()
    root.one, root.two = pure_branch(), writing_branch()
    outer = graph_module(build, root)
    node = higher_order_node(SUBGRAPH_CALLS["cond"], one=pure_branch(), two=outer)
    assert call_facts(node) == NODE_IMPURE
    outer.two = pure_branch()
    assert call_facts(node) == 0
    outer.two = outer  # a cycle ends
    assert call_facts(node) == 0
    root = nn.Module()
    root.sub = outer
    assert safe("call_module", "sub", root) == 0


def test_operands_read_from_the_module_are_not_called():
    node = higher_order_node(
        lambda g, x, a: g.call_function(hop.cond, (x, a("one"), a("two"), [a("weight")])),
        one=pure_branch(),
        two=pure_branch(),
        weight=nn.Parameter(torch.zeros(1)),
    )
    assert call_facts(node) == 0


def test_a_subgraph_operator_without_subgraph():
    assert call_facts(function_node(hop.cond, (1, 2))) == NODE_IMPURE


def test_deep_arguments():
    nested = ()
    for _ in range(3000):
        nested = (nested,)

    class Node:
        op, target, kwargs = "call_function", hop.cond, {}
        args = (nested,)

        class graph:
            owning_module = None

    assert call_facts(Node()) == NODE_IMPURE


OPERATOR_CALLS = [
    (hop.auto_functionalized, (aten.add_.Tensor,), 0),
    (hop.auto_functionalized_v2, (aten.add_.Tensor,), 0),
    (hop.auto_functionalized, (aten.normal_.default,), NODE_RANDOM),
    (hop.auto_functionalized, (aten._assert_async.msg,), NODE_IMPURE | NODE_FX_IMPURE),
    (hop.out_dtype, (aten.mm.default, torch.int32), 0),
    (hop.out_dtype, (aten.bernoulli.default, torch.int32), NODE_RANDOM),
    (hop.out_dtype, (user_function, torch.int32), NODE_IMPURE),
    (hop.out_dtype, (1, torch.int32), NODE_IMPURE),
    (hop.run_with_rng_state, (x, aten.rand.default), 0),
    (hop.run_with_rng_state, (x, aten.add_.Tensor), NODE_IMPURE),
]


@pytest.mark.parametrize("target, args, expected", OPERATOR_CALLS, ids=lambda value: label(value)[:30])
def test_operators_that_call_operators(target, args, expected):
    assert target_facts("call_function", target) == PER_NODE
    assert call_facts(function_node(target, args)) == expected


def test_higher_order_operators_in_the_table_and_not():
    from torch._higher_order_ops import triton_kernel_wrap as triton

    assert safe("call_function", triton.triton_kernel_wrapper_functional) == 0
    assert safe("call_function", triton.triton_kernel_wrapper_mutation) == MUTATES
    assert safe("call_function", hop.run_and_save_rng_state) == RANDOM | PER_NODE
    assert safe("call_function", hop.print) == EFFECT
    assert safe("call_function", hop.with_effects) == EFFECT
    for name in ("executorch_call_delegate", "flat_apply", "aoti_call_delegate"):
        assert safe("call_function", getattr(hop, name)) == UNKNOWN, name


def test_exported_control_flow():
    class Model(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    program = torch.export.export(Model(), (torch.ones(2),))
    (node,) = (node for node in program.graph.nodes if node.target is hop.cond)
    assert call_facts(node) == 0


class OwnSubgraphs:
    """Stands for a fastexport graph, whose subgraphs may have been edited."""

    def __init__(self, graph, **subgraphs):
        self.nodes, self.owning_module = graph.nodes, graph.owning_module
        self.subgraphs = subgraphs


def test_subgraphs_that_stand_for_those_of_the_module():
    node = higher_order_node(SUBGRAPH_CALLS["cond"], one=pure_branch(), two=pure_branch())

    class Node:
        op, target, args, kwargs = node.op, node.target, node.args, node.kwargs
        graph = OwnSubgraphs(node.graph, two=writing_branch().graph)

    assert call_facts(Node()) == NODE_IMPURE
    root = nn.Module()
    root.sub = writing_branch()
    assert target_facts("call_module", "sub", root) == MUTATES
    assert target_facts("call_module", "sub", root, {"sub": pure_branch().graph}) == 0


# ---- when torch has changed ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["get_effect", "seeded", "has_kernel", "global_hooks"])
def test_a_private_name_that_is_gone_makes_facts_careful(monkeypatch, name):
    found = _facts._Torch(torch)
    setattr(found, name, [None] if name == "global_hooks" else None)
    monkeypatch.setattr(_facts, "_known_torch", found)
    root = nn.Module()
    root.a = nn.Linear(1, 1)
    for op, target, bits in [
        ("call_function", aten.add_.Tensor, MUTATES),
        ("call_function", aten.rand.default, RANDOM),
        ("call_method", "mul_", MUTATES),
        ("call_function", operator.setitem, MUTATES),
    ]:
        assert target_facts(op, target) & bits, target
    assert found.complete() is False
    if name == "global_hooks":
        assert safe("call_module", "a", root) == UNKNOWN
    if name == "seeded":
        assert safe("call_function", aten.add.Tensor) == RANDOM
    if name == "get_effect":
        with torch.library._scoped_library("fe_facts_gone", "DEF") as library:
            library.define("pure(Tensor x) -> Tensor")
            assert safe("call_function", torch.ops.fe_facts_gone.pure.default) == EFFECT


def test_everything_is_found_in_this_torch():
    assert _facts._Torch(torch).complete()


def test_examples():
    assert doctest.testmod(_facts).failed == 0
