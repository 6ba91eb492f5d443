"""Exported programs that came from torch: `from_export`, `export`, and the way back.

A `TorchProgram` has its graph in the core, and holds everything else as the torch program has it: the same weights,
constants, range constraints, module call graph, example inputs, guards and verifiers, by identity. What the inputs and
outputs stand for is kept by the core, so that it follows edits of the graph.
"""

from __future__ import annotations

import copy
import dataclasses
import io
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.export
import torch.fx
from torch.export import graph_signature as torch_signature

from fastexport import _core, _tensors, _torch, _torch_export, _torch_verifier
from fastexport import _signature as ours
from fastexport._errors import Fault
from fastexport._graph import Graph
from fastexport._program import ExportedProgram, GraphModule, _from_bytes, _read_only
from fastexport._pytree import match_inputs, tell_torch
from fastexport._ranges import ValueRange
from fastexport._state import InputTargets
from fastexport._symbols import SymBool, SymFloat, SymInt, _Symbolic
from fastexport._tensor_meta import TensorMeta
from fastexport._torch_parts import check_parts
from fastexport._treespec import TreeSpec
from fastexport.acceleration._serialization import _no_collection

if TYPE_CHECKING:
    from fastexport._core import Node

__all__ = ["TorchProgram", "export", "export_for_inference", "from_export"]

# By the names of torch's kinds, the core's numbers. Kinds themselves are hashed by Python code.
_INPUT_NUMBERS = {kind.name: number for number, kind in enumerate(ours._INPUT_KINDS)}
_OUTPUT_NUMBERS = {kind.name: number for number, kind in enumerate(ours._OUTPUT_KINDS)}


class TorchSource(NamedTuple):
    """What a program that came from torch holds beside its graph; everything is the torch program's own.

    Attributes:
        module: its GraphModule.
        inputs: its input specs, by the place that the core remembers for an input.
        outputs: likewise its output specs.
        places: what the verifier has to know of them, as bytes.
    """

    module: torch.fx.GraphModule
    inputs: list[Any]
    outputs: list[Any]
    places: tuple[bytes, bytes]
    state_dict: dict[str, Any]
    constants: dict[str, Any]
    range_constraints: dict[Any, Any]
    module_call_graph: list[Any]
    example_inputs: Any
    verifiers: list[Any]
    guards_code: list[str]


# ---- from torch ------------------------------------------------------------------------------------------------------


@_no_collection()
def from_export(program: torch.export.ExportedProgram) -> TorchProgram:
    """See `fastexport.from_export`."""
    if not isinstance(program, torch.export.ExportedProgram):
        raise TypeError(f"from_export() takes a torch.export.ExportedProgram, not {type(program).__name__}")
    check_parts(program)
    graph = _torch.from_fx(program.graph_module)
    signature = program.graph_signature
    inputs, outputs = list(signature.input_specs), list(signature.output_specs)
    try:
        graph._set_signature(
            [_input_tuple(place, spec) for place, spec in enumerate(inputs)],
            [_output_tuple(place, spec) for place, spec in enumerate(outputs)],
            list(_called(program.module_call_graph)),
        )
    except ValueError as error:
        raise (_torch_verifier.names_nothing(program) or error) from None
    source = TorchSource(
        program.graph_module,
        inputs,
        outputs,
        (_torch_verifier.input_bytes(inputs), _torch_verifier.output_bytes(outputs)),
        _own(program.state_dict),
        _own(program.constants),
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.verifiers,
        program._guards_code,
    )
    return TorchProgram(source, graph)


def _own(values: dict[str, Any]) -> dict[str, Any]:
    """A dict of one's own, with the same values and attributes; of another class, that itself: its methods may tell."""
    return copy.copy(values) if type(values) in (dict, OrderedDict) else values


def _called(entries: list[Any]) -> Iterator[str]:
    """Names in a module call graph."""
    for entry in entries:
        if entry.signature is not None:
            yield from (arg.name for arg in (*entry.signature.inputs, *entry.signature.outputs) if arg.name)


def _input_tuple(place: int, spec: Any) -> tuple[Any, ...]:
    return (_INPUT_NUMBERS[spec.kind._name_], *_argument_parts(spec.arg), spec.target, bool(spec.persistent), place)


def _output_tuple(place: int, spec: Any) -> tuple[Any, ...]:
    return (_OUTPUT_NUMBERS[spec.kind._name_], *_argument_parts(spec.arg), spec.target, False, place)


def _argument_parts(arg: Any) -> tuple[str | None, Any, str | None]:
    """(node, constant, name of the constant)"""
    if isinstance(arg, torch_signature.ConstantArgument):
        return None, arg.value, arg.name
    return arg.name, None, None


class _NoFile:
    """What stands for the file of a program that came from none."""

    def json(self, *path: Any) -> None:
        """There is no document."""


_NO_FILE = _NoFile()


# ---- the program -----------------------------------------------------------------------------------------------------


class TorchProgram(ExportedProgram):
    """An `ExportedProgram` made of one of torch; see `fastexport.from_export`.

    Weights, constants, range constraints, the module call graph and example inputs are those of the torch program,
    the same objects.
    """

    _source: TorchSource

    def __init__(self, source: TorchSource, graph: Graph) -> None:
        set_ = object.__setattr__
        set_(self, "_source", source)
        set_(self, "_graph", graph)
        set_(self, "_program", _NO_FILE)
        set_(self, "_inputs", InputTargets(graph))
        set_(self, "faults", [])

    @property
    def graph_module(self) -> GraphModule:
        """The graph with its subgraphs and weights as attributes."""
        return GraphModule(self._graph, self.state_dict, dict(self._source.module.meta))

    @property
    def graph_signature(self) -> ours.ExportGraphSignature:
        """What inputs and outputs stand for, now: made anew at each call."""
        inputs, outputs = self._specs()
        return ours.ExportGraphSignature(
            [
                ours.InputSpec(
                    ours._INPUT_KINDS[spec[0]],
                    _argument(ours, spec, self._source.inputs, self._graph),
                    spec[4],
                    spec[5] if ours._INPUT_KINDS[spec[0]] is ours.InputKind.BUFFER else None,
                )
                for spec in inputs
            ],
            [
                ours.OutputSpec(
                    ours._OUTPUT_KINDS[spec[0]], _argument(ours, spec, self._source.outputs, self._graph), spec[4]
                )
                for spec in outputs
            ],
        )

    def _specs(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        signature = self._graph._signature()
        return ([], []) if signature is None else signature

    @property
    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        """Parameters and persistent buffers by name: torch's own tensors, in a dict of this program's."""
        return self._without_dropped(self._source.state_dict)

    @property
    def constants(self) -> dict[str, Any]:  # type: ignore[override]
        """Constant tensors, non-persistent buffers and custom objects by name, as `state_dict`."""
        return self._without_dropped(self._source.constants)

    def _without_dropped(self, values: dict[str, Any]) -> dict[str, Any]:
        for name in self._inputs.dropped().intersection(values):
            del values[name]
        return values

    def _attribute(self, node: Node) -> Any:
        found: Any = self._source.module
        for part in node.target.split("."):
            found = getattr(found, part, None)
        if found is None:
            return super()._attribute(node)
        if isinstance(found, torch.Tensor):
            return self._as_value(found, is_parameter=False)
        return found if isinstance(found, torch.ScriptObject) else None

    def _as_value(self, value: Any, is_parameter: bool) -> torch.Tensor:
        tensor = value
        if not isinstance(value, torch.Tensor):
            tensor = _tensors.to_torch(value if isinstance(value, _core.Tensor) else _tensors.from_array(value))
        if is_parameter and not isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(tensor, tensor.is_floating_point() or tensor.is_complex())
        return tensor.data if isinstance(tensor, torch.nn.Parameter) and not is_parameter else tensor

    def _is_parameter(self, value: Any) -> bool:
        return isinstance(value, torch.nn.Parameter)

    def _meta_of(self, name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return torch_signature.CustomObjArgument(name, value._type().qualified_name())
        return TensorMeta.of(value)

    def _add_values(self, values: Mapping[str, Any], *, is_constant: bool) -> None:
        if not values:
            return
        source = self._source
        if is_constant:
            source = source._replace(constants={**source.constants, **values})
        else:
            source = source._replace(state_dict={**source.state_dict, **values})
        object.__setattr__(self, "_source", source)
        object.__setattr__(self, "_inputs", self._inputs.with_names(values))

    def _forget_values(self, names: Collection[str]) -> None:
        """They are gone already."""

    @property
    def range_constraints(self) -> dict[Any, Any]:
        """What each dynamic size may be, as torch has it."""
        return self._source.range_constraints

    def _ranges(self) -> dict[_core.Expr, ValueRange]:
        return {
            _core.Expr.parse(str(key), form="str"): ValueRange(*map(_bound, (allowed.lower, allowed.upper)))
            for key, allowed in self.range_constraints.items()
        }

    def _without_torch(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(map(self._without_torch, value))
        if isinstance(value, torch.Tensor):
            return TensorMeta.of(value)
        for theirs, own, _ in _BY_VALUE:
            if isinstance(value, theirs):
                return own(_core.Expr.parse(str(value.node.expr), form="str"))
        return value

    @property
    def module_call_graph(self) -> list[Any]:
        """The modules of the program, itself first, as torch has them, with the names that nodes have now."""
        return self._calls_now()

    def _stored_calls(self) -> list[dict[str, Any]]:
        """The module call graph like that of a file, as far as edits of the program's interface need it."""
        calls = self._source.module_call_graph
        entries: list[dict[str, Any]] = [{"fqn": entry.fqn, "signature": None} for entry in calls]
        signature = calls[0].signature if entries else None
        if signature is not None:
            parts = ("in_spec", "out_spec", "forward_arg_names")
            entries[0]["signature"] = {part: getattr(signature, part) for part in parts}
        return entries

    def _set_module_calls(self, calls: list[dict[str, Any]]) -> None:
        first, *others = self._source.module_call_graph
        changed, was = calls[0]["signature"], first.signature
        entry = dataclasses.replace(first, signature=dataclasses.replace(was, **changed))
        source = self._source._replace(module_call_graph=[entry, *others])
        if changed["in_spec"] != was.in_spec:  # the examples don't fit any more
            source = source._replace(example_inputs=None)
        object.__setattr__(self, "_source", source)

    def _read_spec(self, spec: Any) -> TreeSpec:
        return TreeSpec.from_torch(spec)

    def _write_spec(self, spec: TreeSpec) -> Any:
        return spec.to_torch()

    @property
    def example_inputs(self) -> Any:
        """The arguments the program was exported with: (args, kwargs), or None.

        The one attribute that can be set, as in torch.

        Raises:
            ValueError: on setting what is no arguments, or such as the program does not take.
        """
        return self._source.example_inputs

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "example_inputs":
            raise _read_only(name)
        if value is not None:
            match value:
                case (tuple() as args, dict() as kwargs):
                    match_inputs(TreeSpec.from_torch(self.call_spec.in_spec), args, kwargs)
                case _:
                    raise ValueError("example inputs are a tuple of a tuple, the arguments, and a dict, the keywords")
        object.__setattr__(self, "_source", self._source._replace(example_inputs=value))

    def _update(
        self,
        graph_module: torch.fx.GraphModule,
        graph_signature: Any,
        *,
        state_dict: dict[str, Any] | None = None,
        constants: dict[str, Any] | None = None,
        verifiers: list[Any] | None = None,
    ) -> TorchProgram:
        """A program of another graph, with all else this one's; the counterpart of torch's method of that name.

        Args:
            graph_signature: torch's, or fastexport's.
        """
        if isinstance(graph_signature, ours.ExportGraphSignature):
            graph_signature = _signature_for_torch(graph_signature)
        parts = {"state_dict": state_dict, "constants": constants, "verifiers": verifiers}
        return from_export(self.to_torch()._update(graph_module, graph_signature, **parts))

    @property
    def dialect(self) -> str:
        """The dialect of the operators."""
        return str(self._source.verifiers[0].dialect)

    @property
    def verifiers(self) -> list[Any]:
        """torch's verifiers that the program passes."""
        return self._source.verifiers

    @property
    def guards(self) -> list[str]:
        """Conditions on the inputs, as Python texts."""
        return self._source.guards_code

    def _set_guards(self, guards: list[str]) -> None:
        if guards != self.guards:
            object.__setattr__(self, "_source", self._source._replace(guards_code=guards))

    @property
    def opset_version(self) -> dict[str, int]:
        """Versions of operator sets: this torch's."""
        return {"aten": torch._C._get_max_operator_version()}

    @property
    def torch_version(self) -> str:
        """The torch that is loaded."""
        return str(torch.__version__)

    @property
    def extra_files(self) -> dict[str, bytes]:
        """There are none."""
        return {}

    # ---- checks and files

    def _check(self, *, strict: bool, limit: int | None, dialect: Any = None) -> list[Fault]:
        """What torch's verifiers of the program would say of it, or that of a dialect."""
        return _torch_verifier.check(self, dialect)

    def _raise_faults(self, faults: list[Fault]) -> None:
        _torch_verifier.raise_faults(faults)

    def __reduce__(self) -> tuple[Any, ...]:
        file = io.BytesIO()
        self.save(file)
        return _from_bytes, (file.getvalue(), None)

    # ---- to torch

    def to_torch(self, **options: Any) -> torch.export.ExportedProgram:
        """The program as torch's, with the same weights and all else; see `ExportedProgram.to_torch`."""
        self._raise_faults(_torch_verifier.check(self, additional=False))
        program = self._convert()
        _torch_verifier.check_additional(program)
        return program

    def _convert(self) -> torch.export.ExportedProgram:
        """The program as torch's, which its verifiers have not seen."""
        source = self._source
        with _no_collection():
            module = _module(self._graph, source.module, is_top=True)
            return _torch_export.create_program(
                module,
                self._torch_signature(),
                _own(self.state_dict),
                source.range_constraints,
                _torch_export.make_repeats_apart(module, self._calls_now()),
                source.example_inputs,
                _own(self.constants),
                source.verifiers,
                source.guards_code,
                checked=True,
            )

    def _torch_signature(self) -> Any:
        inputs, outputs = self._specs()
        return torch_signature.ExportGraphSignature(
            [
                torch_signature.InputSpec(
                    torch_signature.InputKind[ours._INPUT_KINDS[spec[0]].name],
                    _argument(torch_signature, spec, self._source.inputs, self._graph),
                    spec[4],
                    spec[5] if ours._INPUT_KINDS[spec[0]] is ours.InputKind.BUFFER else None,
                )
                for spec in inputs
            ],
            [
                torch_signature.OutputSpec(
                    torch_signature.OutputKind[ours._OUTPUT_KINDS[spec[0]].name],
                    _argument(torch_signature, spec, self._source.outputs, self._graph),
                    spec[4],
                )
                for spec in outputs
            ],
        )

    def _calls_now(self) -> list[Any]:
        """The module call graph with the names that nodes have now; torch's own while no name is another."""
        renamed = {name: now for name, now in self._graph._called().items() if now is not None and now != name}
        if not renamed:
            return self._source.module_call_graph
        entries = copy.deepcopy(self._source.module_call_graph)
        for entry in entries:
            if entry.signature is not None:
                for arg in (*entry.signature.inputs, *entry.signature.outputs):
                    arg.name = renamed.get(arg.name, arg.name)
        return entries

    # ---- copies and text

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchProgram:
        """Graph, weights and constants are copied, ties kept; the rest, which nothing writes to, is shared."""
        return self._twin(memo, lambda values: copy.deepcopy(values, memo))

    def __copy__(self) -> TorchProgram:
        """The graph is copied; weights and constants are shared, in dicts of the copy's own."""
        return self._twin({}, _own)

    def _twin(self, memo: dict[int, Any], copied: Callable[[dict[str, Any]], dict[str, Any]]) -> TorchProgram:
        source = self._source._replace(state_dict=copied(self.state_dict), constants=copied(self.constants))
        graph = copy.deepcopy(self._graph, memo)
        twin = TorchProgram(source, graph)
        object.__setattr__(twin, "_inputs", self._inputs.copy_for(graph))
        memo[id(self)] = twin
        return twin

    def __repr__(self) -> str:
        from fastexport import _summary

        signature = self.graph_signature
        lines = [
            f"ExportedProgram: {self.dialect} dialect, from torch {self.torch_version}",
            f"  nodes    {_summary.nodes_line(self)}",
            f"  inputs   {_summary._cut(map(str, signature.user_inputs)) or 'none'}",
            f"  outputs  {_summary._cut(map(str, signature.user_outputs)) or 'none'}",
        ]
        if self.range_constraints:
            lines.append(f"  ranges   {_summary._cut(f'{k}: {v}' for k, v in self.range_constraints.items())}")
        return "\n".join(lines)


def _argument(classes: Any, spec: tuple[Any, ...], sources: list[Any], graph: Graph) -> Any:
    """The argument of an input or output as it is now, of the class that it had; classes: a module that has them."""
    _, node, value, name, _, _, place = spec
    was = sources[place].arg if place >= 0 else None
    if node is None:
        if isinstance(was, torch_signature.ConstantArgument):  # its value may be an object, which is not in the core
            value = was.value
        return classes.ConstantArgument(name or "", value)
    if was is None:  # an edit has made it
        return _argument_of_value(classes, node, _value_of(graph, node))
    if isinstance(was, torch_signature.ConstantArgument):
        return classes.TensorArgument(node)
    if isinstance(was, torch_signature.CustomObjArgument):
        return classes.CustomObjArgument(node, was.class_fqn, was.fake_val)
    return getattr(classes, type(was).__name__)(node)


def _value_of(graph: Graph, name: str) -> Any:
    """The value of a node; None when it is erased, of which the verifier tells."""
    try:
        return graph.node(name).meta.get("val")
    except KeyError:
        return None


def _bound(value: Any) -> int | None:
    """An end of a range; None for infinity, which sympy and torch have of several kinds."""
    return int(value) if value.is_Integer else None


def _signature_for_torch(signature: ours.ExportGraphSignature) -> torch_signature.ExportGraphSignature:
    def argument(arg: Any) -> Any:
        return getattr(torch_signature, type(arg).__name__)(**vars(arg))

    def kind(kinds: Any, spec: Any) -> Any:
        return kinds[spec.kind.name]

    return torch_signature.ExportGraphSignature(
        [
            torch_signature.InputSpec(
                kind(torch_signature.InputKind, spec), argument(spec.arg), spec.target, spec.persistent
            )
            for spec in signature.input_specs
        ],
        [
            torch_signature.OutputSpec(kind(torch_signature.OutputKind, spec), argument(spec.arg), spec.target)
            for spec in signature.output_specs
        ],
    )


_BY_VALUE = (
    (torch.SymInt, SymInt, "SymIntArgument"),
    (torch.SymFloat, SymFloat, "SymFloatArgument"),
    (torch.SymBool, SymBool, "SymBoolArgument"),
)


def _argument_of_value(classes: Any, name: str, value: Any) -> Any:
    """The argument that a node of that name is, whose value may be torch's or ours; without one, a tensor."""
    for theirs, own, cls in _BY_VALUE:
        if isinstance(value, theirs | own):
            return getattr(classes, cls)(name)
    if isinstance(value, torch_signature.CustomObjArgument | ours.CustomObjArgument):
        return classes.CustomObjArgument(name, value.class_fqn, value.fake_val)
    return classes.TensorArgument(name)


def _module(graph: Graph, source: torch.fx.GraphModule, *, is_top: bool = False) -> torch.fx.GraphModule:
    """A graph as torch's, in a module like another one; what is no subgraph is shared with that."""
    built = _torch.to_fx(graph)
    members: dict[str, Any] = {}
    for node in [*built.find_nodes(op="get_attr"), *built.find_nodes(op="call_module")]:
        if node.target not in members:
            members[node.target] = _member(graph, source, node.target)
    module = _torch_export.create_module(
        built, members, source.meta, name="GraphModule" if is_top else type(source).__name__
    )
    _convert_values(built)
    module.training = source.training
    if not is_top:
        _torch._carry_over(source, module)
    return module


def _convert_values(graph: torch.fx.Graph) -> None:
    """Values that an edit has set as they are without torch become torch's."""
    from fastexport._torch_program import OUR_VALUES, torch_value

    reader = None
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, OUR_VALUES) or (
            type(value) in (tuple, list) and any(isinstance(item, OUR_VALUES) for item in value)
        ):
            reader = reader or _torch_export.reader_for(graph)
            for item in value if isinstance(value, tuple | list) else (value,):
                _check_symbols(item)
            node.meta["val"] = torch_value(reader, value)


def _check_symbols(value: Any) -> None:
    """See that expressions are some, as torch would run their texts; a ValueError otherwise."""
    if isinstance(value, TensorMeta):
        for size in (*value.shape, *value.stride, value.storage_offset):
            _check_symbols(size)
    elif isinstance(value, _Symbolic):
        value.expr  # noqa: B018


def _member(graph: Graph, source: Any, path: str) -> Any:
    found = source
    for part in path.split("."):
        found = getattr(found, part)
    subgraph = (graph.subgraphs or {}).get(path)
    return found if subgraph is None else _module(subgraph, found)


# ---- export ----------------------------------------------------------------------------------------------------------


def export(
    mod: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, **options: Any
) -> TorchProgram:
    """See `fastexport.export`."""
    tell_torch()
    return from_export(torch.export.export(mod, args, kwargs, **options))


def export_for_inference(
    mod: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    decomp_table: Mapping[Any, Any] | None = None,
    **options: Any,
) -> TorchProgram:
    """See `fastexport.export_for_inference`."""
    table = None if decomp_table is None else dict(decomp_table)
    tell_torch()
    return from_export(torch.export.export(mod, args, kwargs, **options).run_decompositions(table))
