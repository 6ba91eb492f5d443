"""Whether a program is one as torch.export makes them: calls as the schemas of operators say, and nothing odd anywhere.

torch's serializer raises for much of what is not so, each time in a way of its own, and writes the rest as it comes. So
only ordinary programs are written in another way. What calls of one operator look like comes again and again, and is
compared with the schema once.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx
from torch._export.serde import serialize
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import exported_program
from torch.export import graph_signature as signatures

_NONE = type(None)
# Letters for what arguments and values are.
_NODE_VALUES: dict[type, str] = {
    FakeTensor: "T",
    torch.Tensor: "T",
    torch.nn.Parameter: "T",
    torch.SymInt: "i",
    int: "i",
    torch.SymFloat: "f",
    float: "f",
    torch.SymBool: "b",
    bool: "b",
    torch.ScriptObject: "o",
    signatures.CustomObjArgument: "o",
    _NONE: "N",
    str: "S",
}
_CONSTANTS: dict[type, str] = {
    _NONE: "N",
    bool: "B",
    int: "I",
    float: "F",
    str: "S",
    complex: "C",
    torch.dtype: "d",
    torch.layout: "l",
    torch.device: "D",
    torch.memory_format: "m",
    torch._ops.OpOverload: "O",  # of higher-order operators
    torch.ScriptObject: "o",
}
_LISTS = (list, tuple)
# What each type of a schema takes.
_TAKES = {
    "Tensor": "TIFBCifb",
    "int": "Ii",
    "SymInt": "Ii",
    "float": "FIf",
    "number": "IFBCifb",
    "bool": "Bb",
    "str": "S",
    "ScalarType": "d",
    "Layout": "l",
    "Device": "D",
    "MemoryFormat": "m",
}
_GIVES = {"Tensor": "T", "int": "i", "SymInt": "i", "float": "f", "number": "if", "bool": "b"}
_CONSTANT_ARGUMENTS = (int, float, bool, str, _NONE)


def is_ordinary(program: torch.export.ExportedProgram) -> bool:
    """Whether there is nothing odd about a program, as far as its serializer looks."""
    specs = (*program.graph_signature.input_specs, *program.graph_signature.output_specs)
    if not all(map(_is_ordinary_spec, specs)) or not all(map(_is_ordinary_call, program.module_call_graph)):
        return False
    if not _inputs_match(program):
        return False
    calls = _Calls()
    modules = [module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    return all(calls.are_ordinary(node) for module in modules for node in module.graph.nodes)


def _is_ordinary_spec(spec: Any) -> bool:
    argument = spec.arg
    if type(argument) is signatures.ConstantArgument and type(argument.value) not in _CONSTANT_ARGUMENTS:
        return False
    persistent = getattr(spec, "persistent", None)
    return type(argument.name) is str and type(spec.target) in (str, _NONE) and type(persistent) in (bool, _NONE)


# What inputs are by the kind of argument in the signature.
_ARGUMENTS = {
    signatures.TensorArgument: "T",
    signatures.SymIntArgument: "i",
    signatures.SymFloatArgument: "f",
    signatures.SymBoolArgument: "b",
    signatures.CustomObjArgument: "o",
    signatures.ConstantArgument: "NbifS",
    signatures.TokenArgument: "TN",
}


def _inputs_match(program: torch.export.ExportedProgram) -> bool:
    """Whether the inputs of the graph are what the signature says."""
    inputs = program.graph.find_nodes(op="placeholder")
    specs = program.graph_signature.input_specs
    kinds = [_value_kind(node.meta.get("val")) for node in inputs]
    return len(kinds) == len(specs) and all(
        isinstance(kind, str) and kind in _ARGUMENTS.get(type(spec.arg), "")
        for kind, spec in zip(kinds, specs, strict=True)
    )


def _is_ordinary_call(entry: Any) -> bool:
    usual = type(entry) is exported_program.ModuleCallEntry and type(entry.fqn) is str
    return usual and type(entry.signature) in (exported_program.ModuleCallSignature, _NONE)


class _Calls:
    """The calls of one program."""

    def __init__(self) -> None:
        self._values: dict[torch.fx.Node, Any] = {}
        self._known: dict[Any, bool] = {}
        self._ops: dict[str, Callable[[torch.fx.Node], bool]] = {
            "placeholder": _has_no_arguments,
            "get_attr": _has_no_arguments,
            "output": _has_one_result,
            "call_function": self._is_ordinary_call,
        }

    def are_ordinary(self, node: torch.fx.Node) -> bool:
        """Whether a node is; those that it takes come before it."""
        custom, trace = node.meta.get("custom"), node.meta.get("stack_trace")
        if type(node.name) is not str or type(custom) not in (dict, _NONE) or type(trace) not in (str, _NONE):
            return False
        check = self._ops.get(node.op)
        self._values[node] = _value_kind(node.meta.get("val"))
        return check is not None and check(node)

    def _is_ordinary_call(self, node: torch.fx.Node) -> bool:
        target = node.target
        args = tuple([self._kind(value) for value in node.args])
        if target is operator.getitem:
            return len(args) == 2 and type(node.args[0]) is torch.fx.Node and args[1] == "I" and not node.kwargs
        kwargs = tuple([(name, self._kind(value)) for name, value in node.kwargs.items()])
        if not isinstance(target, torch._ops.OpOverload) and target not in serialize._SYM_OPS:
            return all(map(_is_flat, (*args, *(kind for _, kind in kwargs))))
        key = target, args, kwargs, self._values[node]
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _fits_target(*key)
        return known

    def _kind(self, value: Any) -> Any:
        """What an argument is, as a letter; a tuple of these for a list; "?" for anything else."""
        if type(value) is torch.fx.Node:
            return self._values.get(value, "?")
        if isinstance(value, _LISTS):
            return tuple([self._kind(item) for item in value])
        return _CONSTANTS.get(type(value), "?")


def _is_flat(kind: Any) -> bool:
    """Of an argument of what has no schema: a value, or a list of values."""
    return "?" not in kind and not any(isinstance(item, tuple) for item in kind)


def _has_no_arguments(node: torch.fx.Node) -> bool:
    return node.args == () and node.kwargs == {}


def _has_one_result(node: torch.fx.Node) -> bool:
    return len(node.args) == 1 and node.kwargs == {}


def _value_kind(value: Any) -> Any:
    if isinstance(value, _LISTS):
        return tuple([_value_kind(item) for item in value])
    return _NODE_VALUES.get(type(value), "?")


# ---- schemas


def _fits_target(target: Any, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...], value: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        schema = target._schema
        return _fits_schema(schema.arguments, args, dict(kwargs)) and _gives(schema.returns, value)
    if target in serialize._SYM_OPS:
        numbers = all(isinstance(kind, str) and kind in "IFBifb" for kind in args)
        is_complete = not kwargs and len(args) == len(inspect.signature(target).parameters)
        return numbers and is_complete and value in ("i", "f", "b")
    return False


def _fits_schema(arguments: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    by_position = [argument for argument in arguments if not argument.kwarg_only]
    if len(args) > len(by_position):
        return False
    given = {argument.name: kind for argument, kind in zip(by_position, args, strict=False)}
    if not given.keys().isdisjoint(kwargs):
        return False
    given.update(kwargs)
    for argument in arguments:
        if argument.name in given:
            if not _takes(argument.real_type, given.pop(argument.name)):
                return False
        elif not argument.has_default_value():
            return False
    return not given


def _takes(kind: Any, given: Any) -> bool:
    if isinstance(kind, torch.OptionalType):
        return given == "N" or _takes(kind.getElementType(), given)
    if isinstance(kind, torch.ListType):
        return isinstance(given, tuple) and all(_takes(kind.getElementType(), item) for item in given)
    if isinstance(kind, torch._C.ClassType):
        return given == "o"
    return isinstance(given, str) and given in _TAKES.get(str(kind), "")


def _gives(returns: Iterable[Any], value: Any) -> bool:
    kinds = [result.real_type for result in returns]
    if not kinds:
        return value == "N"
    if len(kinds) == 1:
        return _is_given(kinds[0], value)
    return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_is_given, kinds, value))


def _is_given(kind: Any, value: Any) -> bool:
    if isinstance(kind, torch.ListType):
        return isinstance(value, tuple) and all(_is_given(kind.getElementType(), item) for item in value)
    if isinstance(kind, torch.OptionalType):
        return value == "N" or _is_given(kind.getElementType(), value)
    return isinstance(value, str) and value in _GIVES.get(str(kind), "")
