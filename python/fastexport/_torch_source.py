"""Exported programs that came from torch: `from_export`, `export`, and the way back.

A `TorchProgram` has its graph in the core, and holds everything else as the torch program has it: the same weights,
constants, range constraints, module call graph, example inputs, guards and verifiers, by identity. What the inputs and
outputs stand for is kept by the core, so that it follows edits of the graph (see `_torch_signature`).
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
from fastexport._collecting import no_collection
from fastexport._errors import Fault, Faults
from fastexport._graph import Graph
from fastexport._graph_module import GraphModule
from fastexport._program import ExportedProgram, _from_bytes, _read_only
from fastexport._pytree import match_inputs, tell_torch
from fastexport._ranges import ValueRange
from fastexport._state import InputTargets
from fastexport._tensor_meta import TensorMeta
from fastexport._torch_module import module_of
from fastexport._torch_parts import check_parts
from fastexport._torch_signature import SYMBOLIC, Arguments, core_inputs, core_outputs, for_torch, specs_of
from fastexport._treespec import TreeSpec

if TYPE_CHECKING:
    from fastexport._core import Node

__all__ = ["TorchProgram", "export", "export_for_inference", "from_export"]


class TorchSource(NamedTuple):
    """What a program that came from torch holds beside its graph: torch's own, but for inputs and outputs.

    Attributes:
        module: its GraphModule.
        inputs: what its input specs said when it was read.
        outputs: likewise its output specs.
    """

    module: torch.fx.GraphModule
    inputs: Arguments
    outputs: Arguments
    state_dict: dict[str, Any]
    constants: dict[str, Any]
    range_constraints: dict[Any, Any]
    module_call_graph: list[Any]
    example_inputs: Any
    verifiers: list[Any]
    guards_code: list[str]


# ---- from torch ------------------------------------------------------------------------------------------------------


@no_collection()
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
            core_inputs(inputs),
            core_outputs(outputs),
            list(_called(program.module_call_graph)),
        )
    except ValueError as error:
        raise (_torch_verifier.names_nothing(program) or error) from None
    source = TorchSource(
        program.graph_module,
        Arguments.of_inputs(inputs),
        Arguments.of_outputs(outputs),
        _own(program.state_dict),
        _own(program.constants),
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.verifiers,
        _torch_export.guards_code(program),
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
        set_(self, "faults", Faults())

    @property
    def graph_module(self) -> GraphModule:
        """The graph with its subgraphs and weights as attributes."""
        return GraphModule.of_program(self._graph, self.state_dict, dict(self._source.module.meta))

    @property
    def graph_signature(self) -> ours.ExportGraphSignature:
        """What inputs and outputs stand for, now: made anew at each call."""
        signature: ours.ExportGraphSignature = specs_of(ours, self._graph, self._source.inputs, self._source.outputs)
        return signature

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
            return torch_signature.CustomObjArgument(name, _torch_export.class_of_object(value))
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
        for theirs, own, _ in SYMBOLIC:
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
            graph_signature = for_torch(graph_signature)
        parts = {"state_dict": state_dict, "constants": constants, "verifiers": verifiers}
        return from_export(_torch_export.updated(self.to_torch(), graph_module, graph_signature, parts))

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
        return _torch_export.opset_version()

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
        """What torch's verifiers of the program would say of it, or that of a dialect; strict: files have to say."""
        found = _torch_verifier.check(self, dialect)
        if not strict or any(each.is_error for each in found):
            return found
        from fastexport._torch_files import strict_faults

        return found + strict_faults(self)

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
        with no_collection():
            module = module_of(self._graph, source.module, is_top=True)
            return _torch_export.create_program(
                module,
                specs_of(torch_signature, self._graph, source.inputs, source.outputs),
                _own(self.state_dict),
                source.range_constraints,
                _torch_export.make_repeats_apart(module, self._calls_now()),
                source.example_inputs,
                _own(self.constants),
                source.verifiers,
                source.guards_code,
                checked=True,
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


def _bound(value: Any) -> int | None:
    """An end of a range; None for infinity, which sympy and torch have of several kinds."""
    return int(value) if value.is_Integer else None


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
