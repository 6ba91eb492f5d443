"""Exported programs that came from torch: `from_export`, `export`, and the way back.

A `TorchProgram` has its graph in the core, and holds everything else as the torch program has it: the same weights,
constants, range constraints, module call graph, example inputs, guards and verifiers, by identity. What the inputs and
outputs stand for is kept by the core, so that it follows edits of the graph.
"""

from __future__ import annotations

import copy
import dataclasses
import io
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
import torch.export
import torch.fx
from torch.export import graph_signature as torch_signature
from torch.utils import _pytree as pytree

from fastexport import _signature as ours
from fastexport import _torch, _torch_export
from fastexport._errors import Fault, LintError
from fastexport._graph import Graph
from fastexport._program import ExportedProgram, GraphModule, _from_bytes
from fastexport._state import InputTargets
from fastexport._symbols import _Symbolic
from fastexport._tensor_meta import TensorMeta
from fastexport.acceleration._serialization import _no_collection

__all__ = ["TorchProgram", "export", "export_for_inference", "from_export"]

_INPUT_NUMBERS = {kind.name: number for number, kind in enumerate(ours._INPUT_KINDS)}
_OUTPUT_NUMBERS = {kind.name: number for number, kind in enumerate(ours._OUTPUT_KINDS)}


class TorchSource(NamedTuple):
    """What a program that came from torch holds beside its graph; everything is the torch program's own.

    Attributes:
        module: its GraphModule.
        inputs: its input specs, by the place that the core remembers for an input.
        outputs: likewise its output specs.
        calls: node -> name of old, for the nodes that the module call graph names.
    """

    module: torch.fx.GraphModule
    inputs: list[Any]
    outputs: list[Any]
    state_dict: dict[str, Any]
    constants: dict[str, Any]
    range_constraints: dict[Any, Any]
    module_call_graph: list[Any]
    example_inputs: Any
    verifiers: list[Any]
    guards_code: list[str]
    called: dict[str, Any]


# ---- from torch ------------------------------------------------------------------------------------------------------


def from_export(program: torch.export.ExportedProgram) -> TorchProgram:
    """See `fastexport.from_export`."""
    if not isinstance(program, torch.export.ExportedProgram):
        raise TypeError(f"from_export() takes a torch.export.ExportedProgram, not {type(program).__name__}")
    graph = _torch.from_fx(program.graph_module)
    signature = program.graph_signature
    graph._set_signature(
        [_input_tuple(place, spec) for place, spec in enumerate(signature.input_specs)],
        [_output_tuple(place, spec) for place, spec in enumerate(signature.output_specs)],
    )
    source = TorchSource(
        program.graph_module,
        list(signature.input_specs),
        list(signature.output_specs),
        program.state_dict,
        program.constants,
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.verifiers,
        program._guards_code,
        {name: graph.node(name) for name in set(_called(program.module_call_graph))},
    )
    return TorchProgram(source, graph)


def _called(entries: list[Any]) -> Iterator[str]:
    """Names in a module call graph."""
    for entry in entries:
        if entry.signature is not None:
            yield from (arg.name for arg in (*entry.signature.inputs, *entry.signature.outputs) if arg.name)


def _input_tuple(place: int, spec: Any) -> tuple[Any, ...]:
    return (_INPUT_NUMBERS[spec.kind.name], *_argument_parts(spec.arg), spec.target, bool(spec.persistent), place)


def _output_tuple(place: int, spec: Any) -> tuple[Any, ...]:
    return (_OUTPUT_NUMBERS[spec.kind.name], *_argument_parts(spec.arg), spec.target, False, place)


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
                    _argument(ours, spec, self._source.inputs),
                    spec[4],
                    spec[5] if ours._INPUT_KINDS[spec[0]] is ours.InputKind.BUFFER else None,
                )
                for spec in inputs
            ],
            [
                ours.OutputSpec(ours._OUTPUT_KINDS[spec[0]], _argument(ours, spec, self._source.outputs), spec[4])
                for spec in outputs
            ],
        )

    def _specs(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        signature = self._graph._signature()
        return ([], []) if signature is None else signature

    @property
    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        """Parameters and persistent buffers by name: torch's own dict, unless inputs were removed."""
        return self._without_dropped(self._source.state_dict)

    @property
    def constants(self) -> dict[str, Any]:  # type: ignore[override]
        """Constant tensors, non-persistent buffers and custom objects by name, as `state_dict`."""
        return self._without_dropped(self._source.constants)

    def _without_dropped(self, values: dict[str, Any]) -> dict[str, Any]:
        dropped = self._inputs.dropped()
        if dropped.isdisjoint(values):
            return values
        return {name: value for name, value in values.items() if name not in dropped}

    @property
    def range_constraints(self) -> dict[Any, Any]:
        """What each dynamic size may be, as torch has it."""
        return self._source.range_constraints

    @property
    def module_call_graph(self) -> list[Any]:
        """The modules of the program, the program itself first, as torch has them."""
        return self._source.module_call_graph

    def _module_calls(self) -> list[dict[str, Any]]:
        """The module call graph in the form of a file, as far as edits of the program's interface need it."""
        entries: list[dict[str, Any]] = [{"fqn": entry.fqn, "signature": None} for entry in self.module_call_graph]
        signature = self.module_call_graph[0].signature if entries else None
        if signature is not None:
            entries[0]["signature"] = {
                "in_spec": pytree.treespec_dumps(signature.in_spec),
                "out_spec": pytree.treespec_dumps(signature.out_spec),
                "forward_arg_names": signature.forward_arg_names,
            }
        return entries

    def _set_module_calls(self, calls: list[dict[str, Any]]) -> None:
        first, *others = self._source.module_call_graph
        changed, was = calls[0]["signature"], first.signature
        in_spec, out_spec = (pytree.treespec_loads(changed[which]) for which in ("in_spec", "out_spec"))
        entry = dataclasses.replace(
            first,
            signature=dataclasses.replace(
                was, in_spec=in_spec, out_spec=out_spec, forward_arg_names=changed["forward_arg_names"]
            ),
        )
        source = self._source._replace(module_call_graph=[entry, *others])
        if in_spec != was.in_spec:  # the examples don't fit any more
            source = source._replace(example_inputs=None)
        object.__setattr__(self, "_source", source)

    @property
    def example_inputs(self) -> Any:
        """The arguments the program was exported with: (args, kwargs), or None."""
        return self._source.example_inputs

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

    def _check(self, *, strict: bool, limit: int | None) -> list[Fault]:
        """What torch's verifier has to say of the program as it would be there."""
        try:
            self._graph.lint()
            self.to_torch()
        except (LintError, ValueError, RuntimeError) as error:
            return [Fault("FX400", "torch", True, None, None, None, str(error))]
        except Exception as error:
            if type(error).__name__ != "SpecViolationError":
                raise
            return [Fault("FX400", "torch", True, None, None, None, str(error))]
        return []

    def save(
        self, path_or_file: Any, *, extra_files: Mapping[str, str | bytes] | None = None, verify: bool = True
    ) -> None:
        """Write the program as torch.export.save does; torch's verifier passes it first in any case."""
        torch.export.save(self.to_torch(), path_or_file, extra_files=dict(extra_files) if extra_files else None)

    def __reduce__(self) -> tuple[Any, ...]:
        file = io.BytesIO()
        self.save(file)
        return _from_bytes, (file.getvalue(), None)

    # ---- to torch

    def to_torch(self, **options: Any) -> torch.export.ExportedProgram:
        """The program as torch's, with the same weights and all else; see `ExportedProgram.to_torch`."""
        source = self._source
        with _no_collection():
            module = _module(self._graph, source.module, is_top=True)
            return _torch_export.create_program(
                module,
                self._torch_signature(),
                self.state_dict,
                source.range_constraints,
                _torch_export.make_repeats_apart(module, self._calls_now()),
                source.example_inputs,
                self.constants,
                source.verifiers,
                source.guards_code,
            )

    def _torch_signature(self) -> Any:
        inputs, outputs = self._specs()
        return torch_signature.ExportGraphSignature(
            [
                torch_signature.InputSpec(
                    torch_signature.InputKind[ours._INPUT_KINDS[spec[0]].name],
                    _argument(torch_signature, spec, self._source.inputs),
                    spec[4],
                    spec[5] if ours._INPUT_KINDS[spec[0]] is ours.InputKind.BUFFER else None,
                )
                for spec in inputs
            ],
            [
                torch_signature.OutputSpec(
                    torch_signature.OutputKind[ours._OUTPUT_KINDS[spec[0]].name],
                    _argument(torch_signature, spec, self._source.outputs),
                    spec[4],
                )
                for spec in outputs
            ],
        )

    def _calls_now(self) -> list[Any]:
        """The module call graph with the names that nodes have now; torch's own while no name is another."""
        renamed = {
            name: node.name for name, node in self._source.called.items() if not node._erased and node.name != name
        }
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
        """The graph is copied, the rest is shared: a program does not write to its weights."""
        graph = copy.deepcopy(self._graph, memo)
        called = {name: graph.node(node.name) for name, node in self._source.called.items() if not node._erased}
        twin = TorchProgram(self._source._replace(called=called), graph)
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


def _argument(classes: Any, spec: tuple[Any, ...], sources: list[Any]) -> Any:
    """The argument of an input or output as it is now, of the class that it had; classes: a module that has them."""
    _, node, value, name, _, _, place = spec
    was = sources[place].arg if place >= 0 else None
    if node is None:
        if isinstance(was, torch_signature.ConstantArgument):  # its value may be an object, which is not in the core
            name, value = was.name, was.value
        return classes.ConstantArgument(name or "", value)
    if was is None or isinstance(was, torch_signature.ConstantArgument):
        return classes.TensorArgument(node)
    if isinstance(was, torch_signature.CustomObjArgument):
        return classes.CustomObjArgument(node, was.class_fqn, was.fake_val)
    return getattr(classes, type(was).__name__)(node)


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
    return from_export(torch.export.export(mod, args, kwargs, **options).run_decompositions(table))
