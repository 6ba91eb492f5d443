"""Whether a serialized program has a canonical form, without making one.

torch.export.save makes the canonical form of a copy of the whole program only to see that this raises nothing. What
can raise is looked for here: names that are missing, there twice or used before they are defined, kinds of arguments
that have no place, and values that can't be sorted. Doubtful is also an object that stands in two places, as renaming
it in one renames it in the other, and a graph that is not in order, though it may be possible to sort it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch._export.serde import schema, serialize

from fastexport.acceleration._known import are_known

_get = object.__getattribute__

# Kinds of arguments that name values, with the class of what holds the name.
_NAMING: dict[str, type] = {
    "as_tensor": schema.TensorArgument,
    "as_tensors": schema.TensorArgument,
    "as_nested_tensors": schema.TensorArgument,
    "as_optional_tensors": schema.OptionalTensorArgument,
    "as_sym_int": schema.SymIntArgument,
    "as_sym_ints": schema.SymIntArgument,
    "as_sym_float": schema.SymFloatArgument,
    "as_sym_floats": schema.SymFloatArgument,
    "as_sym_bool": schema.SymBoolArgument,
    "as_sym_bools": schema.SymBoolArgument,
    "as_custom_obj": schema.CustomObjArgument,
}
_NAMELESS = frozenset(
    (
        "as_none",
        "as_int",
        "as_ints",
        "as_float",
        "as_floats",
        "as_string",
        "as_strings",
        "as_complex",
        "as_scalar_type",
        "as_memory_format",
        "as_layout",
        "as_device",
        "as_bool",
        "as_bools",
        "as_graph",
        "as_operator",
        "as_int_lists",
        "as_float_lists",
        "as_string_to_argument",
    )
)
_SYMBOLIC = (schema.SymIntArgument, schema.SymFloatArgument, schema.SymBoolArgument)
_CONSTANTS = frozenset(("as_none", "as_bool", "as_int", "as_float", "as_string"))
# The name by which specs of a kind are sorted.
_INPUT_NAMES = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
    "custom_obj": "custom_obj_name",
    "token": None,
}
_OUTPUT_NAMES = {
    "loss_output": None,
    "buffer_mutation": "buffer_name",
    "parameter_mutation": "parameter_name",
    "gradient_to_parameter": "parameter_name",
    "gradient_to_user_input": "user_input_name",
    "user_input_mutation": "user_input_name",
    "token": None,
}
_RENAMED = frozenset(("gradient_to_user_input", "user_input_mutation"))

# What makes the canonical form, if it is what is known here.
_SOURCES = {"canonicalize": "424c27cc7d8f5daa", "_canonicalize_graph": "fa08a2cb22377f61"}
canonicalize: Callable[..., Any] | None = serialize.canonicalize if are_known(vars(serialize), _SOURCES) else None


class _Doubt(Exception):
    pass


def is_certain(program: Any, constants: Iterable[str]) -> bool:
    """Whether torch is certain to find a canonical form; False where it has to try."""
    try:
        _Check(frozenset(constants)).program(program)
    except Exception:
        return False
    return True


def _read(union: Any, cls: type) -> tuple[str, Any]:
    """The kind and the value of a union."""
    _require(union.__class__ is cls)
    kind = str(_get(union, "_type"))
    return kind, _get(union, kind)


def _require(condition: bool) -> None:
    if not condition:
        raise _Doubt


def _require_strings(values: Iterable[Any]) -> None:
    _require({str}.issuperset(map(type, values)))


class _Check:
    """A walk through one program. Methods raise where there is doubt."""

    def __init__(self, constants: frozenset[str]) -> None:
        self._constants = constants
        self._seen: set[int] = set()

    def program(self, program: Any) -> None:
        module = program.graph_module
        graph, signature = module.graph, module.signature
        _require(len(graph.inputs) == len(signature.input_specs))
        _require(len(graph.outputs) == len(signature.output_specs) > 0)
        for values in (program.opset_version, program.range_constraints, program.guards_code, program.verifiers):
            _require_strings(values)
        _require_strings([entry.fqn for entry in module.module_call_graph])
        defined = self._graph(graph)
        for spec in signature.input_specs:
            self._input_spec(spec, defined)
        for spec in signature.output_specs:
            self._output_spec(spec, defined)

    def _graph(self, graph: Any) -> set[str]:
        """The names defined in a graph."""
        values = {
            schema.TensorArgument: graph.tensor_values,
            schema.SymIntArgument: graph.sym_int_values,
            schema.SymFloatArgument: graph.sym_float_values,
            schema.SymBoolArgument: graph.sym_bool_values,
            schema.CustomObjArgument: graph.custom_obj_values,
        }
        for held in values.values():
            _require_strings(held)
            self._see(held)
        defined: set[str] = set()
        for argument in graph.inputs:
            self._define(argument, defined, values)
        for node in graph.nodes:
            _require(node.target.__class__ is str and node.metadata.__class__ is dict)
            _require_strings(node.metadata.values())
            for given in node.inputs:
                _require(given.name.__class__ is str)
                self._use(given.arg, defined)
            for argument in node.outputs:
                self._define(argument, defined, values)
        for argument in graph.outputs:
            self._names(argument)
        return defined

    def _define(self, argument: Any, defined: set[str], values: dict[type, dict[str, Any]]) -> None:
        _require(_get(argument, "_type") != "as_optional_tensors")
        for name, cls in self._names(argument):
            _require(name not in defined and name in values[cls])
            defined.add(name)

    def _use(self, argument: Any, defined: set[str]) -> None:
        for name, _ in self._names(argument):
            _require(name in defined or not name or name in self._constants)
        if _get(argument, "as_graph") is not None:
            self._graph(argument.as_graph.graph)

    def _names(self, argument: Any) -> list[tuple[str, type]]:
        """The names in an argument, each with the class of what holds it."""
        kind, value = _read(argument, schema.Argument)
        cls = _NAMING.get(kind)
        if cls is None:
            _require(kind in _NAMELESS)
            return []
        if value.__class__ is cls:
            return self._name(value, cls)
        _require(value.__class__ is list)
        if kind == "as_nested_tensors":
            _require({list}.issuperset(map(type, value)))
            value = [item for items in value for item in items]
        return [found for item in value for found in self._name(item, cls)]

    def _name(self, item: Any, cls: type) -> list[tuple[str, type]]:
        _require(item.__class__ is cls)
        if cls is schema.OptionalTensorArgument:
            kind, item = _read(item, cls)
            if kind == "as_none":
                return []
            _require(kind == "as_tensor" and item.__class__ is schema.TensorArgument)
        elif cls in _SYMBOLIC:
            kind, name = _read(item, cls)
            if kind != "as_name":
                return []
            self._see(item)
            _require(name.__class__ is str)
            return [(name, cls)]
        self._see(item)
        _require(item.name.__class__ is str)
        return [(item.name, cls)]

    def _see(self, item: Any) -> None:
        _require(id(item) not in self._seen)
        self._seen.add(id(item))

    def _input_spec(self, spec: Any, defined: set[str]) -> None:
        kind, value = _read(spec, schema.InputSpec)
        if kind == "constant_input":
            _require(value.name.__class__ is str)
        elif kind == "user_input":
            self._user_spec(value.arg, defined, _CONSTANTS | {"as_custom_obj"})
        else:
            self._spec(value, _INPUT_NAMES[kind], defined)

    def _output_spec(self, spec: Any, defined: set[str]) -> None:
        kind, value = _read(spec, schema.OutputSpec)
        if kind == "user_output":
            self._user_spec(value.arg, defined, _CONSTANTS)
        else:
            self._spec(value, _OUTPUT_NAMES[kind], defined)
            _require(kind not in _RENAMED or value.user_input_name in defined)

    def _user_spec(self, argument: Any, defined: set[str], constants: frozenset[str]) -> None:
        kind, _ = _read(argument, schema.Argument)
        if kind not in constants:
            _require(kind in ("as_tensor", "as_sym_int", "as_sym_float"))
            _require(defined.issuperset(name for name, _ in self._names(argument)))

    def _spec(self, spec: Any, sorted_by: str | None, defined: set[str]) -> None:
        self._see(spec.arg)
        _require(spec.arg.name in defined)
        _require(sorted_by is None or getattr(spec, sorted_by).__class__ is str)
