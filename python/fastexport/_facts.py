"""Facts about what nodes call: does it write, draw random numbers, have any other effect?

Passes run in C and can't ask Python objects; they read flags, which come from here before a pass.
Two policies read different flags:

- torch.fx's own (FX_IMPURE, FX_RANDOM) says exactly what ``torch.fx.Node.is_impure`` says, by
  asking it: the unbound method runs on a stand-in for the node.
- the safe one (MUTATES ... UNKNOWN) says what is so. An operator goes by its schema, corrected
  where the schema doesn't tell; a function, method or module of torch or Python by the tables
  below; a GraphModule by what its nodes do. Whatever is in no table is UNKNOWN: a pass keeps it.
  Raising an error on bad input is no effect, unless the call is there only to do that.

Where arguments decide (``inplace=True``, a subgraph), the target is PER_NODE, and ``call_facts``
judges each call. Nothing imports torch: what is called can be torch's only when torch is loaded.
"""

import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from fastexport import _fact_tables as tables
from fastexport._fact_tables import (
    EFFECT,
    FX_IMPURE,
    FX_RANDOM,
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
from fastexport._loaded import loaded

__all__ = ["call_facts", "registered_effects", "remembering", "target_facts"]

# ---- torch ---------------------------------------------------------------------------------------


def _find(module: str, *path: str) -> Any:
    """An attribute of a module that is loaded, or None."""
    found: Any = sys.modules.get(module)
    for name in path:
        found = getattr(found, name, None)
    return found


class _Torch:
    """What is used of torch, looked up once and checked by ``complete``.

    Its private names are here and nowhere else. One that is gone is None, and then whatever it
    would have vouched for is UNKNOWN.
    """

    def __init__(self, torch: types.ModuleType) -> None:
        self.module = torch
        self.fx_node = _find("torch.fx.node", "Node")
        self.graph_module = _find("torch.fx.graph_module", "GraphModule") or ()
        self.tensor = _find("torch", "Tensor")
        self.nn_module = _find("torch.nn.modules.module", "Module") or ()
        self.functional = _find("torch.nn.functional")
        self.seeded = _find("torch", "Tag", "nondeterministic_seeded")
        self.overload = _find("torch._ops", "OpOverload") or ()
        self.packet = _find("torch._ops", "OpOverloadPacket") or ()
        self.higher_order = _find("torch._ops", "HigherOrderOperator") or ()
        self.aten = _find("torch", "ops", "aten")
        self.get_effect = _find("torch._higher_order_ops.effects", "_get_effect")
        self.qualified_name = _find("torch._higher_order_ops.effects", "_get_op_qualname")
        self.find_entry = _find("torch._library.simple_registry", "singleton", "find")
        self.has_kernel = _find("torch._C", "_dispatch_has_kernel")
        self.global_hooks = [
            _find("torch.nn.modules.module", name) for name in ("_global_forward_hooks", "_global_forward_pre_hooks")
        ]
        # Where functions live that are bound to operators by code that torch generates.
        self.native = [
            found
            for name in ("_VariableFunctions", "_nn", "_linalg", "_fft", "_special", "_sparse")
            if (found := _find("torch._C", name)) is not None
        ]
        self.packets: dict[int, _Overloads] = {}
        # By id: the operator, its flags, its rule, and what tells whether an effect was registered for it since.
        self.overloads: dict[int, tuple[object, int, _Rule | None, Any]] = {}

    def complete(self) -> bool:
        """Whether everything was found: not yet so while torch is being imported."""
        values = [*vars(self).values(), *self.global_hooks]
        return all(value is not None and value != () for value in values) and len(self.native) == 6


_known_torch: _Torch | None = None


def _torch() -> _Torch | None:
    """torch, when it is loaded."""
    global _known_torch
    module = loaded("torch")
    if module is None:
        return None
    if _known_torch is None or _known_torch.module is not module:
        found = _Torch(module)
        if not found.complete():
            return found if found.fx_node else None
        _known_torch = found
    return _known_torch


def registered_effects() -> set[Any] | None:
    """The functions that torch.fx was told to keep, by torch and through ``has_side_effect``.

    Returns:
        torch's own set, which grows as functions are registered; None while torch.fx is not loaded,
        or when it has no such set.

    Example:
        >>> import torch
        >>> torch._assert in registered_effects()
        True

    Source: torch/fx/node.py, ``_side_effectful_functions``.
    """
    effects = _find("torch.fx.node", "_side_effectful_functions")
    return effects if isinstance(effects, set) else None


def _named(target: object) -> Any:
    """The target when it is an Operator, a function of torch by its name; else None."""
    operators = loaded("fastexport._operators")
    return target if operators and type(target) is operators.Operator else None


def _is_registered(target: object) -> bool:
    effects = registered_effects()
    return effects is not None and target in effects


# ---- judging one target --------------------------------------------------------------------------


class _Call(NamedTuple):
    """One call: its arguments, and where its get_attr arguments lead."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    node: Any  # any node of the graph
    owner: object | None  # the graph's owning module


# What arguments decide: adds to the survey what the call does.
_Rule = Callable[["_Survey", _Call], None]
_Verdict = tuple[int, _Rule | None]
_PURE: _Verdict = (0, None)
_NOBODY: _Verdict = (UNKNOWN, None)


def target_facts(
    op: str,
    target: object,
    owning_module: object | None = None,
    subgraphs: Mapping[str, Any] | None = None,
) -> int:
    """The flags of one target.

    Args:
        op: a node's ``op``.
        target: its ``target``.
        owning_module: the module that call_module targets are looked up in.
        subgraphs: graphs that stand for those of the owning module's GraphModules, by path.

    Returns:
        Flags of this module: what the safe policy keeps (MUTATES, RANDOM, EFFECT, NO_RESULT,
        UNKNOWN), what torch.fx keeps (FX_IMPURE, FX_RANDOM), GETITEM, what lint objects to
        (NOT_CALLABLE, MISSING, NOT_MODULE), and PER_NODE when ``call_facts`` judges each call.

    Raises:
        Exception: what looking up an attribute of the owning module raises. A target that raises
            when it is looked at is UNKNOWN.

    Example:
        >>> target_facts("call_method", "mul_") == MUTATES, target_facts("call_function", len)
        (True, 0)

    Source: torch/_library/utils.py, ``is_impure``; pytorch issues 68301, 167443, 151524, 190716.
    """
    if op == "call_function":
        return _function_facts(target)
    if not isinstance(target, str):
        return NOT_CALLABLE | UNKNOWN
    if op == "call_method":
        bits, rule = _judge_method(_torch(), target)
        return bits | PER_NODE if rule else bits
    if op == "call_module":
        return _module_facts(target, owning_module, subgraphs)
    return 0


def call_facts(node: Any) -> int:
    """What one call of a PER_NODE target does.

    Args:
        node: a node of torch.fx or of fastexport.

    Returns:
        NODE_IMPURE when this call has an effect that the flags of its target do not tell,
        NODE_RANDOM when it draws random numbers; NODE_FX_IMPURE when torch.fx keeps it.

    Raises:
        Exception: what looking up an attribute of the graph's owning module raises.

    Example:
        >>> import torch
        >>> graph = torch.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> call_facts(graph.call_function(torch.nn.functional.relu, (x,), {"inplace": True}))
        2
    """
    torch, op = _torch(), node.op
    if op not in ("call_function", "call_method"):
        return 0
    target = _resolve(torch, node.target) if op == "call_function" else node.target
    call = _Call(node.args, node.kwargs, node, node.graph.owning_module)
    survey = _Survey(torch)
    known = torch.overloads.get(id(target)) if torch is not None else None
    rule = known[2] if known is not None else _safe_judge(torch, op, target)[1]
    if rule:
        rule(survey, call)
    done = survey.run()
    bits = (NODE_IMPURE if done & ~RANDOM else 0) | (NODE_RANDOM if done & RANDOM else 0)
    if _asks_arguments(torch, target) and _fx_facts(torch, target, call.args, call.kwargs):
        bits |= NODE_FX_IMPURE
    return bits


def _function_facts(target: object) -> int:
    torch = _torch()
    try:
        target = _resolve(torch, target)
        if torch is not None and isinstance(target, torch.overload):
            return _overload_facts(torch, target)
        if _named(target):
            return _named_facts(target)
        bits, rule = _judge(torch, "call_function", target)
        asks_arguments = _asks_arguments(torch, target)
    except Exception:  # its attributes, its hash: nobody vouches for such a target
        bits, rule, asks_arguments = UNKNOWN, None, False
    if not callable(target):
        # An operator by name, in a graph from a file, is not wrong: it is only not known here.
        is_operator = type(target) is str and target.startswith("torch.ops.")
        return UNKNOWN if is_operator else UNKNOWN | NOT_CALLABLE
    if asks_arguments:
        return bits | PER_NODE
    return bits | (PER_NODE if rule else 0) | _fx_facts(torch, target, (), {})


def _overload_facts(torch: _Torch, op: Any) -> int:
    """The flags of an operator: its schema never changes, only what is registered for it may.

    The core itself looks whether it was given to ``has_side_effect`` since.
    """
    known = torch.overloads.get(id(op))
    if known is not None and known[3].effect is None:
        return known[1]
    bits, rule = _judge_schema(torch, op)
    registered = _registered_effect(torch, op)
    bits |= registered | (PER_NODE if rule else 0) | _fx_facts(torch, op, (), {})
    if not registered and torch.qualified_name and torch.find_entry:
        torch.overloads[id(op)] = op, bits, rule, torch.find_entry(torch.qualified_name(op)).effect
    return bits


def _resolve(torch: _Torch | None, target: object) -> object:
    """The operator that a string or Operator like "torch.ops.aten.add.Tensor" names, when torch knows it."""
    if torch is None or not (isinstance(target, str) or _named(target)) or not str(target).startswith("torch.ops."):
        return target
    found: Any = torch.module
    try:
        for name in str(target).split(".")[1:]:
            found = getattr(found, name)
    except Exception:
        return target
    return found if isinstance(found, (torch.overload, torch.packet, torch.higher_order)) else target


class _StandIn(NamedTuple):
    """As much of a torch.fx.Node as is_impure looks at for a function."""

    target: object
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    op: str = "call_function"


def _asks_arguments(torch: _Torch | None, target: Any) -> bool:
    """Whether torch.fx itself looks at the arguments of calls of this target."""
    if _named(target):
        return target.kind == "higher_order" and target.__name__ in ("auto_functionalized", "auto_functionalized_v2")
    if torch is None or not isinstance(target, torch.higher_order):
        return False
    return target.name() in ("auto_functionalized", "auto_functionalized_v2")


def _fx_facts(torch: _Torch | None, target: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    if _named(target):
        # Of auto_functionalized: torch.fx asks whether its operator was registered. A mutable one never is by torch.
        bits = _named_facts(_named(args[0])) if args and _named(args[0]) else 0
        return FX_IMPURE if bits & FX_IMPURE and not bits & MUTATES else 0
    if torch is None:
        return FX_IMPURE if target is operator.setitem else 0
    node = _StandIn(target, (_resolve(torch, args[0]), *args[1:]) if args and _named(args[0]) else args, kwargs)
    try:
        if not torch.fx_node.is_impure(node, impure_random=True):
            return 0
        return FX_IMPURE if torch.fx_node.is_impure(node, impure_random=False) else FX_RANDOM
    except Exception:  # an unhashable target, or another torch: it is not said to be pure
        return FX_IMPURE


def _safe_judge(torch: _Torch | None, op: str, target: object) -> _Verdict:
    try:
        return _judge(torch, op, target)
    except Exception:
        return _NOBODY


def _judge(torch: _Torch | None, op: str, target: Any) -> _Verdict:
    if op == "call_method":
        return _judge_method(torch, target)
    if _named(target):
        target = _resolve(torch, target)
        if _named(target):
            return _judge_named(target)
    standard = tables.STANDARD.get(id(target))
    if standard:
        return standard[1], None
    if isinstance(target, operator.itemgetter | operator.attrgetter):
        return _PURE
    if torch is None:
        return _NOBODY
    if isinstance(target, torch.overload):
        return _judge_overload(torch, target)
    if isinstance(target, torch.packet):
        return _judge_packet(torch, target)
    if isinstance(target, torch.higher_order):
        return _judge_higher_order(torch, target)
    overload = getattr(target, "_opoverload", None)  # of a function made by torch.library.custom_op
    if isinstance(overload, torch.overload):
        return _judge_overload(torch, overload)
    verdict = _judge_torch_function(torch, target)
    return (verdict[0] | EFFECT, verdict[1]) if _is_registered(target) else verdict


# ---- operators -----------------------------------------------------------------------------------


def _judge_overload(torch: _Torch, op: Any) -> _Verdict:
    bits, rule = _judge_schema(torch, op)
    return bits | _registered_effect(torch, op), rule


def _registered_effect(torch: _Torch, op: Any) -> int:
    """EFFECT when one is registered; without a registry only torch's own operators have none."""
    if torch.get_effect is None:
        has_effect = op.namespace not in ("aten", "prims", "higher_order")
    else:
        has_effect = torch.get_effect(op) is not None
    return EFFECT if has_effect or _is_registered(op) else 0


def _judge_schema(torch: _Torch, op: Any) -> _Verdict:
    schema = op._schema
    name = schema.name
    bits = tables.UNTOLD.get(name, 0) | tables.NAMESPACES.get(name.partition("::")[0], 0)
    if schema.is_mutable or _ends_in_one_underscore(name):
        bits |= MUTATES
    if torch.seeded is None or torch.seeded in op.tags:
        bits |= RANDOM
    if not schema.returns:
        bits |= NO_RESULT
    if name not in tables.STATISTICS or schema.is_mutable:
        return bits, None
    positions = {argument.name: i for i, argument in enumerate(schema.arguments)}
    return bits, _statistics_rule(positions, tables.STATISTICS[name])


def _ends_in_one_underscore(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


class _Overloads(NamedTuple):
    """What schemas say of the overloads of one operator, of which the arguments choose one."""

    packet: Any
    ops: list[Any]
    bits: int  # what any of them does
    rule: _Rule | None
    keywords: set[str]  # like out=: these choose overloads that write there, which bits leave out


def _overloads(torch: _Torch, packet: Any) -> _Overloads:
    known = torch.packets.get(id(packet))
    if known:
        return known
    ops = [getattr(packet, name) for name in packet.overloads()]
    if torch.has_kernel is not None:
        # Those of TorchScript, for lists and strings, have no kernel.
        ops = [op for op in ops if torch.has_kernel(op.name())] or ops
    bits, rule = 0, None
    keywords: set[str] = set()
    for op in ops:
        more, its_rule = _judge_schema(torch, op)
        written = [a for a in op._schema.arguments if a.alias_info and a.alias_info.is_write]
        if written and all(argument.kwarg_only for argument in written):
            more &= ~(MUTATES | NO_RESULT)
            keywords.update(argument.name for argument in written)
        bits |= more
        rule = rule or its_rule
    keywords.discard("out")  # passes see to that one themselves
    known = torch.packets[id(packet)] = _Overloads(packet, ops, bits, rule, keywords)
    return known


def _judge_packet(torch: _Torch, packet: Any) -> _Verdict:
    _, ops, bits, rule, keywords = _overloads(torch, packet)
    if _is_registered(packet):
        bits |= EFFECT
    for op in ops:
        bits |= _registered_effect(torch, op)
    return bits, _any_rule(rule, _keywords_rule(keywords) if keywords else None)


def _native(torch: _Torch, name: str) -> _Verdict | None:
    """What torch makes of the operator aten::name, as a function or method; None: nothing."""
    packet = getattr(torch.aten, name, None)
    if not isinstance(packet, torch.packet) or torch.has_kernel is None:
        return None
    known = _overloads(torch, packet)
    return (known.bits, known.rule) if torch.has_kernel(known.ops[0].name()) else None


# ---- operators by their names --------------------------------------------------------------------


def _named_facts(op: Any) -> int:
    """The flags of an Operator, by the table that was made when torch was there."""
    from fastexport import _core

    bits = _core.operator_facts(op.name)
    return _core.guess_facts(op.name) if bits is None else bits


def _judge_named(op: Any) -> _Verdict:
    bits = _named_facts(op)
    if not bits & PER_NODE:
        return bits, None
    name: str = op.__name__
    rule: _Rule
    if op.kind == "higher_order":
        rule = _callables_rule(tables.OPERATOR_OPERATORS.get(name, (0, 0))[0])
    else:
        positions = {argument[0]: i for i, argument in enumerate(op.arguments)}
        rule = _statistics_rule(positions, tables.STATISTICS[f"{op.namespace}::{name.partition('.')[0]}"])
    return bits & ~PER_NODE, rule


# ---- higher-order operators ----------------------------------------------------------------------


def _judge_higher_order(torch: _Torch, op: Any) -> _Verdict:
    name = op.name()
    bits = _registered_effect(torch, op)
    if not type(op).__module__.startswith("torch."):
        return bits | UNKNOWN, None
    if name in tables.SUBGRAPH_OPERATORS:
        return bits, _callables_rule(0)
    if name in tables.OPERATOR_OPERATORS:
        spared, more = tables.OPERATOR_OPERATORS[name]
        return bits | more, _callables_rule(spared)
    return bits | tables.HIGHER_ORDER.get(name, UNKNOWN), None


def _callables_rule(spared: int) -> _Rule:
    """Whatever the subgraphs and operators among the arguments do, but for the spared bits."""

    def rule(survey: "_Survey", call: _Call) -> None:
        inner = _Survey(survey.torch)  # only for functions, which lead nowhere
        found = False
        for leaf in _leaves((call.args, call.kwargs)):
            if _is_node(survey.torch, leaf, call.node):
                if leaf.op == "get_attr":
                    found |= survey.add_path(leaf.target, call.owner, call.node.graph)
            elif isinstance(leaf, survey.torch.nn_module if survey.torch else ()):
                survey.add_module(leaf)
                found = True
            elif callable(leaf):
                inner.add_function(leaf)
                found = True
        survey.bits |= inner.bits & ~spared if found else UNKNOWN

    return rule


def _leaves(value: object) -> Iterator[Any]:
    """The values in nested arguments."""
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, list | tuple):
            todo.extend(value)
        elif isinstance(value, Mapping):
            todo.extend(value.values())
        elif isinstance(value, slice):
            todo.extend((value.start, value.stop, value.step))
        else:
            yield value


def _is_node(torch: _Torch | None, value: object, node: object) -> bool:
    return isinstance(value, type(node)) or (torch is not None and isinstance(value, torch.fx_node))


# ---- what arguments decide -----------------------------------------------------------------------


def _argument(call: _Call, position: int | None, name: str, default: object) -> object:
    if name in call.kwargs:
        return call.kwargs[name]
    return default if position is None or position >= len(call.args) else call.args[position]


def _may_hold(value: object) -> bool:
    """Whether a condition may be true; a node's value is not known."""
    return not (value is None or value is False or (type(value) in (int, float) and not value))


def _statistics_rule(positions: Mapping[str, int | None], flag: str | None, default: object = False) -> _Rule:
    """Running statistics are written when they are given and the flag, if there is one, is true."""

    def rule(survey: "_Survey", call: _Call) -> None:
        given = any(
            _argument(call, positions[name], name, None) is not None for name in ("running_mean", "running_var")
        )
        if given and (flag is None or _may_hold(_argument(call, positions[flag], flag, default))):
            survey.bits |= MUTATES

    return rule


def _parameters_rule(checks: list[tuple[int | None, str, object, int]]) -> _Rule:
    """Each (position, name, default, bits): the bits hold when the argument may be true."""

    def rule(survey: "_Survey", call: _Call) -> None:
        for position, name, default, bits in checks:
            if _may_hold(_argument(call, position, name, default)):
                survey.bits |= bits

    return rule


def _keywords_rule(names: set[str]) -> _Rule:
    """Writes to what is given under these keywords."""

    def rule(survey: "_Survey", call: _Call) -> None:
        if any(call.kwargs.get(name) is not None for name in names):
            survey.bits |= MUTATES

    return rule


def _any_rule(first: _Rule | None, second: _Rule | None) -> _Rule | None:
    if first is None or second is None:
        return first or second

    def rule(survey: "_Survey", call: _Call) -> None:
        first(survey, call)
        second(survey, call)

    return rule


# ---- functions of torch --------------------------------------------------------------------------


def _judge_torch_function(torch: _Torch, target: Any) -> _Verdict:
    name = getattr(target, "__name__", None)
    if not isinstance(name, str):
        return _NOBODY
    if isinstance(target, types.MethodWrapperType):
        # torch.Tensor.grad.__get__, as tracing writes the reading of an attribute
        if not isinstance(target.__self__, types.GetSetDescriptorType):
            return _NOBODY
        return _PURE if name == "__get__" else (MUTATES, None)
    if getattr(torch.tensor, name, None) is target:
        return _judge_method(torch, name)
    if isinstance(target, types.BuiltinFunctionType):
        if any(getattr(owner, name, None) is target for owner in torch.native):
            return _judge_native_function(torch, name)
    elif isinstance(target, types.FunctionType) and _is_of(torch.functional, name, target):
        return _judge_functional(name, target)
    module = getattr(target, "__module__", None)
    if not isinstance(module, str) or module.partition(".")[0] != "torch":
        return _NOBODY
    if name in tables.TORCH_EFFECT:
        return EFFECT, None
    if name in tables.PYTREE and module.endswith("._pytree") and _is_of(_find(module), name, target):
        return _PURE
    if _is_of(torch.module, name, target):
        if name in tables.TORCH_PURE:
            return _judge_parameters(target)
        if name in tables.TORCH_RANDOM:
            return RANDOM, None
    return (MUTATES | UNKNOWN, None) if _ends_in_one_underscore(name) else _NOBODY


def _is_of(module: Any, name: str, target: object) -> bool:
    """Whether a function is torch's and stands in its module under its own name."""
    owner = getattr(target, "__module__", None)
    return vars(module).get(name) is target and (
        owner is None or (isinstance(owner, str) and owner.partition(".")[0] == "torch")
    )


def _judge_native_function(torch: _Torch, name: str) -> _Verdict:
    if name == "scaled_dot_product_attention":
        # Its operator is marked random, but only dropout makes it so.
        return 0, _parameters_rule([(4, "dropout_p", 0.0, RANDOM)])
    verdict = _native(torch, name)
    if verdict is None:
        return _PURE if name in tables.TORCH_PURE else _NOBODY
    return verdict


def _judge_functional(name: str, target: Any) -> _Verdict:
    if name in tables.NOT_FUNCTIONAL or (name.startswith("_") and name != "_threshold"):
        return _NOBODY
    positions = {name: position for position, name, _ in _parameters(target)}
    if name == "batch_norm":
        return 0, _statistics_rule(positions, "training")
    if name == "instance_norm":
        return 0, _statistics_rule(positions, "use_input_stats", True)
    if name == "multi_head_attention_forward":
        return 0, _parameters_rule([(positions["dropout_p"], "dropout_p", 0.0, RANDOM)])
    if name == "gumbel_softmax" or name.startswith("fractional_max_pool"):
        return RANDOM, None
    return _judge_parameters(target)


def _judge_parameters(function: Any) -> _Verdict:
    """A function that is pure but for what some of its parameters ask for."""
    checks = [
        (position, name, default, tables.PARAMETERS[name])
        for position, name, default in _parameters(function)
        if name in tables.PARAMETERS
    ]
    return 0, _parameters_rule(checks) if checks else None


def _parameters(function: Any) -> Iterator[tuple[int | None, str, object]]:
    """The parameters of a Python function: position (None: keyword only), name, default or None."""
    code = getattr(function, "__code__", None)
    if code is None:
        return
    defaults = function.__defaults__ or ()
    first_default = code.co_argcount - len(defaults)
    by_keyword = function.__kwdefaults__ or {}
    for i, name in enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        if i >= code.co_argcount:
            yield None, name, by_keyword.get(name)
        else:
            yield i, name, defaults[i - first_default] if i >= first_default else None


# ---- methods -------------------------------------------------------------------------------------


def _judge_method(torch: _Torch | None, name: str) -> _Verdict:
    if name.startswith("__") and name.endswith("__"):
        return tables.MAGIC.get(name, UNKNOWN), None
    random = RANDOM if name in tables.METHOD_RANDOM else 0
    native = _native(torch, name) if torch and hasattr(torch.tensor, name) else None
    if _ends_in_one_underscore(name):
        return MUTATES | random | (native[0] & RANDOM if native else 0), None
    if name in tables.METHOD_EFFECT:
        return EFFECT, None
    if name in tables.METHOD_MUTATES:
        return MUTATES, None
    if native and name not in tables.METHOD_DOUBTFUL:
        return native
    if random:
        return RANDOM, None
    return _PURE if name in tables.METHODS_PURE else _NOBODY


# ---- modules and graphs --------------------------------------------------------------------------


def _module_facts(path: str, owner: object | None, subgraphs: Mapping[str, Any] | None) -> int:
    if owner is None:
        return UNKNOWN
    torch = _torch()
    module, problem = _look_up(torch, owner, path, True)
    if problem:
        return UNKNOWN | problem
    survey = _Survey(torch)
    survey.add_module(module, subgraphs.get(path) if subgraphs else None)
    bits = survey.run()
    if bits & NO_RESULT:
        bits = bits & ~NO_RESULT | EFFECT
    if getattr(module, "_is_impure", False):
        bits |= EFFECT | FX_IMPURE
    return bits


def _look_up(torch: _Torch | None, owner: object, path: str, modules_only: bool) -> tuple[Any, int]:
    """What a path leads to, and 0; or None, and what torch.fx's lint finds wrong with it."""
    found: Any = owner
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return None, MISSING
        if modules_only and torch and not (isinstance(found, torch.nn_module) or _is_ours(found)):
            return None, NOT_MODULE
    return found, 0


def _is_ours(obj: object) -> bool:
    return type(obj).__module__.partition(".")[0] == "fastexport"


def _graph_of(torch: _Torch | None, module: Any) -> Any:
    """The graph that a module runs when it is called, or None."""
    interpreter = _find("torch.export.unflatten", "InterpreterModule") or ()
    if _is_ours(module) or (torch and isinstance(module, (torch.graph_module, interpreter))):
        return getattr(module, "graph", None)
    return None


# By id, what surveys have found of modules and graphs, in a block of `remembering`.
_remembered: ContextVar[dict[int, tuple[object, int]]] = ContextVar("_remembered", default={})  # noqa: B039 - never filled


@contextmanager
def remembering(graphs: Iterable[Any]) -> Iterator[None]:
    """A ``with`` block in which what each of some graphs leads to is looked at once, and not from each graph above it.

    It holds for the block: what is done there to the graphs may take effects away, but adds none.

    Args:
        graphs: those that are judged in it, each before those below it.
    """
    token = _remembered.set({})
    try:
        for graph in reversed(list(graphs)):  # so that a survey ends at what is known
            for path in graph._graphs_inside():
                with suppress(Exception):  # whoever asks for it is told
                    survey = _Survey(_torch())
                    survey.add_path(path, graph.owning_module, graph)
                    survey.remember()
        yield
    finally:
        _remembered.reset(token)


class _Survey:
    """What a call does, with all that it reaches: subgraphs, modules, functions given to it.

    Each module and graph is looked at once, so cycles end; a list of what is still to be looked at
    takes the place of recursion, so depth does not matter.
    """

    def __init__(self, torch: _Torch | None) -> None:
        self.torch = torch
        self.bits = 0
        self._known = _remembered.get()
        self._seen: dict[int, object] = {}
        self._todo: list[Callable[[], None]] = []

    def run(self) -> int:
        """Look at everything added and all it reaches, and return the SAFE bits."""
        while self._todo:
            self._todo.pop()()
        return self.bits & SAFE

    def remember(self) -> None:
        """The same, and let it hold for what was added, as long as the block of `remembering` lasts."""
        added = list(self._seen.items())
        self.run()
        self._known.update((key, (obj, self.bits)) for key, obj in added)

    def add_function(self, target: Any, call: _Call | None = None) -> None:
        """A function that is called, with arguments that we may know."""
        bits, rule = _safe_judge(self.torch, "call_function", target)
        self.bits |= bits
        if rule and call:
            rule(self, call)
        elif rule:
            self.bits |= UNKNOWN

    def add_path(self, path: str, owner: object | None, graph: Any) -> bool:
        """What a node names in the owning module; returns whether it is something to be called."""
        subgraph = (getattr(graph, "subgraphs", None) or {}).get(path)
        found, problem = _look_up(self.torch, owner, path, False)
        if not problem and (_is_ours(found) or (self.torch and isinstance(found, self.torch.nn_module))):
            self.add_module(found, subgraph)
        elif subgraph is not None:
            self._add(subgraph, lambda: self._visit_graph(subgraph, None))
        elif problem or callable(found):
            self.bits |= UNKNOWN
        else:
            return False
        return True

    def add_module(self, module: Any, graph: Any = None) -> None:
        """A module, and the graph that stands for its own, if there is one."""
        self._add(module, lambda: self._visit_module(module, graph))

    def _add(self, obj: object, visit: Callable[[], None]) -> None:
        if id(obj) in self._known:
            self.bits |= self._known[id(obj)][1]
        elif id(obj) not in self._seen:
            self._seen[id(obj)] = obj
            self._todo.append(visit)

    def _visit_module(self, module: Any, graph: Any) -> None:
        if getattr(module, "_is_impure", False):
            self.bits |= EFFECT
        if graph is None:
            graph = _graph_of(self.torch, module)
        if _is_hooked(self.torch, module):
            self.bits |= UNKNOWN
        elif graph is not None:
            self._visit_graph(graph, module)
        elif type(module).__module__.startswith("torch.nn.modules."):
            self._visit_torch_module(module)
        else:
            self.bits |= UNKNOWN

    def _visit_torch_module(self, module: Any) -> None:
        """A module of torch.nn: what its attributes ask for, and its children."""
        name, attributes = type(module).__name__, vars(module)
        training = module.training
        if name == "Module":
            self.bits |= UNKNOWN
        if attributes.get("inplace"):
            self.bits |= MUTATES
        if attributes.get("max_norm") is not None:  # an embedding scales its rows down in place
            self.bits |= EFFECT
        if "track_running_stats" in attributes and module.running_mean is not None:
            if training or not module.track_running_stats:
                self.bits |= EFFECT
        if name == "SyncBatchNorm" and training:
            self.bits |= EFFECT
        if training and ("Dropout" in name or name == "RReLU"):
            self.bits |= RANDOM
        dropout = attributes.get("dropout")  # of recurrent layers and attention
        if training and isinstance(dropout, int | float) and dropout:
            self.bits |= RANDOM
        if name.startswith("Fractional") and module._random_samples is None:
            self.bits |= RANDOM
        for function in ("activation", "distance_function"):  # a user may have given his own
            if callable(attributes.get(function)):
                self.add_function(attributes[function], _Call((), {}, None, None))
        for child in module.children():
            self.add_module(child)

    def _visit_graph(self, graph: Any, owner: object | None) -> None:
        if owner is None:
            owner = getattr(graph, "owning_module", None)
        verdicts: dict[tuple[str, object], _Verdict] = {}
        for node in graph.nodes:
            op, target = node.op, node.target
            if op == "call_module":
                if not isinstance(target, str) or not self.add_path(target, owner, graph):
                    self.bits |= UNKNOWN
            elif op in ("call_function", "call_method"):
                key = (op, target if isinstance(target, str) else id(target))
                if key not in verdicts:
                    function = _resolve(self.torch, target) if op == "call_function" else target
                    verdicts[key] = _safe_judge(self.torch, op, function)
                bits, rule = verdicts[key]
                self.bits |= bits
                if rule:
                    rule(self, _Call(node.args, node.kwargs, node, owner))
                if node.kwargs.get("out") is not None:
                    self.bits |= MUTATES


def _is_hooked(torch: _Torch | None, module: Any) -> bool:
    """Whether calling a module runs more than its class's forward."""
    attributes = getattr(module, "__dict__", {})
    if any(map(attributes.get, ("_forward_hooks", "_forward_pre_hooks", "forward"))):
        return True
    return torch is not None and any(hooks is None or hooks for hooks in torch.global_hooks)
