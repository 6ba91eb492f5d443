"""Exported programs for torch: `ExportedProgram.to_torch`.

A program that was read from a file becomes what torch.export.load makes of that file, after all that torch would
execute has passed our grammar: names, tree specs, expressions, guards. An edited program becomes what torch.export.load
would make of it, were it saved.
"""

from __future__ import annotations

import io
import json
import keyword
from collections.abc import Callable, Collection, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch
import torch.export
import torch.fx
from torch.export import graph_signature as torch_signature

from fastexport import _core, _torch_export
from fastexport._collecting import no_collection
from fastexport._dtypes import to_torch as torch_object
from fastexport._errors import Fault, FormatError, format_error
from fastexport._interface import takes_other_inputs
from fastexport._meta_json import MetadataText, NodeSource, _encode_value
from fastexport._objects import CustomObject
from fastexport._signature import CustomObjArgument, InputKind, SymBoolArgument, with_names
from fastexport._state import OpaqueValue
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta
from fastexport._torch_export import create_module, create_program
from fastexport._torch_reader import METADATA, FileReader
from fastexport._torch_signature import for_torch, same_argument
from fastexport._torch_verifier import raise_faults
from fastexport._treespec import TreeSpec

if TYPE_CHECKING:
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram
    from fastexport._signature import ArgumentSpec

_INPUT, _NODE, _RESULT, _, _OUTPUT = range(1, 6)  # pt2_source of csrc/pt2/program.h


def to_torch(
    ep: ExportedProgram,
    *,
    copy: bool = True,
    example_inputs: bool = False,
    pickles: bool = False,
    allow: Collection[str] = (),
) -> torch.export.ExportedProgram:
    """See `ExportedProgram.to_torch`."""
    check_program(ep, allow)
    if not pickles:
        _refuse_pickles(ep)
    if not _torch_export.FAST:
        _check_graph(ep.graph)
        return _through_a_file(ep, example_inputs)
    with no_collection():
        example = _example_inputs(ep, pickles) if example_inputs else None
        build = _Build(ep, _tensors(ep.state_dict, copy), _tensors(ep.constants, copy), example)
        return build.program(build.root())


def to_torch_with(
    ep: ExportedProgram, state_dict: dict[str, Any], constants: dict[str, Any], example: tuple[Any, ...] | None
) -> torch.export.ExportedProgram | None:
    """The same of a program that is checked, with weights and example inputs that torch has read from the file.

    Returns:
        The program; None where torch would say a word of warning, or use up other names.

    Raises:
        Exception: of any kind: torch, or we, can't make it.
    """
    with no_collection():
        build = _Build(ep, state_dict, constants, example)
        root = build.root()
        return build.program(root) if build.named and build.reader.has_all_symbols() else None


def graph_module(ep: ExportedProgram) -> torch.fx.GraphModule:
    """The program's own graph as torch's, for who computes values anew: nodes may have none yet. See `to_torch`."""
    if not _torch_export.FAST:
        return to_torch(ep).graph_module
    check_program(ep, with_values=False)
    _refuse_pickles(ep)
    with no_collection():
        return _Build(ep, _tensors(ep.state_dict, False), _tensors(ep.constants, False), None).root()


# ---- what torch would execute ----------------------------------------------------------------------------------------


def check_program(ep: ExportedProgram, allow: Collection[str] = (), *, with_values: bool = True) -> list[Fault]:
    """See that torch may have a program.

    Args:
        allow: what tree specs may have imported, as "module:name".
        with_values: whether each node must have a value.

    Returns:
        What was noted without being an error.

    Raises:
        VerifyError: it has errors.
        ValueError: a guard is not of the known form; a tree spec would have something imported; or what torch would
            write into code as a name is none.
    """
    found = ep._check(strict=False, limit=None)
    lacking = set() if with_values else _without_value(ep.graph)
    errors = [fault for fault in found if fault.is_error and not (fault.code == "FX305" and fault.node in lacking)]
    if errors:
        raise_faults(errors)
    for fault in map(Fault._make, ep._program.faults):
        if fault.kind == "guard":
            raise ValueError(f"torch would run this: {fault.message}")
    for entry in _module_calls(ep):
        if entry.get("signature"):
            _check_call(entry["fqn"], entry["signature"], allow)
    return found


def _without_value(graph: Graph) -> set[str]:
    """The names of nodes without a value, here and below."""
    names = {node.name for node in graph.nodes if node.meta.get("val") is None}
    return names.union(*map(_without_value, (graph.subgraphs or {}).values()))


def _check_call(module: str, signature: Mapping[str, Any], allow: Collection[str]) -> None:
    """The calling convention of a module: torch writes the names of arguments into code, and reads the tree specs."""
    specs = [TreeSpec.from_json(signature[which]) for which in ("in_spec", "out_spec")]
    for spec in specs:
        for name in spec.imports():
            if name not in allow:
                raise ValueError(
                    f"a tree spec of module {module!r} would have torch import {name!r}; "
                    f"if you trust it, give allow=[{name!r}]"
                )
    names = list(signature.get("forward_arg_names") or ())
    if specs[0].num_children == 2 and specs[0].child(1).type is dict:
        names += specs[0].child(1).context
    for name in names:
        if not _is_word(name):
            raise ValueError(f"module {module!r} has an argument {name!r}, which can't be the name of one")


def _check_graph(graph: Graph) -> None:
    """What torch writes into the code of a graph beside the names of nodes, which are checked already."""
    for node in graph.nodes:
        _check_node(node)
    for subgraph in (graph.subgraphs or {}).values():
        _check_graph(subgraph)


def _check_node(node: Any) -> None:
    words = [node.target] if node.op == "placeholder" else node.kwargs
    if not all(map(_is_word, words)):
        raise ValueError(f"node {node.name!r} has {list(words)}, which can't be names in code")


def _is_word(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def _refuse_pickles(ep: ExportedProgram) -> None:
    for values in (ep.state_dict, ep.constants):
        for name in values:
            if isinstance(values[name], OpaqueValue):
                raise ValueError(
                    f"{values[name]!r} is a pickle, and reading it may run any code; if you trust the file, "
                    "give pickles=True"
                )


def _module_calls(ep: ExportedProgram) -> list[dict[str, Any]]:
    return ep._module_calls()


# ---- through torch's public API --------------------------------------------------------------------------------------


def _through_a_file(ep: ExportedProgram, example_inputs: bool) -> torch.export.ExportedProgram:
    from fastexport._save import save

    file = io.BytesIO()
    save(ep, file)
    file.seek(0)
    program = torch.export.load(file)
    if not example_inputs:
        program.example_inputs = None
    return program


# ---- graphs ----------------------------------------------------------------------------------------------------------


class _Build:
    """One conversion."""

    def __init__(
        self,
        ep: ExportedProgram,
        state_dict: dict[str, Any],
        constants: dict[str, Any],
        example: tuple[Any, ...] | None,
    ) -> None:
        self.ep = ep
        self.state_dict = state_dict
        self.constants = constants
        self.named = True  # whether the file has a name for each node
        ranges = {key: (lower, upper) for key, lower, upper, _ in ep._program.ranges()}
        parts = ("metadata", "treespec_namedtuple_fields")
        document = {part: ep._program.json("model", "graph_module", part) or {} for part in parts}
        self.reader = FileReader(document, ranges, self.constants, example)

    def root(self) -> torch.fx.GraphModule:
        """The program's own graph as torch's."""
        return self.module(self.ep.graph, self.reader.module_meta)

    def program(self, module: torch.fx.GraphModule) -> torch.export.ExportedProgram:
        """The program as torch's, of its graph."""
        ep = self.ep
        nodes = {node.name: node for node in module.graph.nodes}
        calls = self.reader.module_calls(self._module_calls(), nodes)
        return create_program(
            module,
            _signature(ep, nodes, self.constants),
            self.state_dict,
            self.reader.range_constraints(),
            calls,
            self.reader.example_inputs,
            self.constants,
            _torch_export.loaded_verifiers(ep.verifiers),
            list(ep.guards),
        )

    def module(self, graph: Graph, meta: dict[str, Any]) -> torch.fx.GraphModule:
        """A graph and its subgraphs as torch's."""
        built = torch.fx.Graph()
        _torch_export.build_graph(graph, built, self._object)
        _torch_export.take_names(built)
        members = _Filling(self, graph, built).run()
        return create_module(built, members, meta)

    def _object(self, value: Any) -> Any:
        """What stands in arguments for an object that is one."""
        if type(value) is CustomObject:
            return self.constants[value.name]
        return torch_object(value)

    def _module_calls(self) -> list[dict[str, Any]]:
        """The module call graph of the file, with the names that nodes have now."""
        entries = _module_calls(self.ep)
        names = {old: new for old, new in self.ep.graph._renamed().items() if new is not None and new != old}
        return with_names(entries, names) if names else entries


class _Filling:
    """Giving the nodes of one graph their meta, in torch's order, and making the subgraphs on the way."""

    def __init__(self, build: _Build, graph: Graph, built: torch.fx.Graph) -> None:
        self.build = build
        self.reader = build.reader
        self.graph = graph
        self.built = built
        self.entries: list[Any] = []
        self.values: dict[int, Any] = {}
        self.lists: dict[int, list[Any]] = {}  # of results that are lists
        self.members: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Fill; gives what get_attr nodes name."""
        found = self.graph._file_meta()
        places, self.entries, named = found if found is not None else (repeat(0), [], False)
        self.build.named = self.build.named and named
        for node, place in zip(self.built.nodes, places, strict=False):
            if node.op == "get_attr" and node.target not in self.members:
                self.members[node.target] = self._member(node.target)
            _check_node(node)
            if place > 0:
                self._fill(node, place)
            else:
                node.meta = self._own_meta(node, -place)
            if node.op == "output":
                node.meta["val"] = torch.fx.node.map_arg(node.args[0], lambda n: n.meta.get("val"))
            elif node.op == "call_function":
                self.reader.note_assertion(node)
        self.reader.bind_symbols(self.built)
        return self.members

    def _member(self, path: str) -> Any:
        subgraph = (self.graph.subgraphs or {}).get(path)
        if subgraph is not None:
            kept = self.reader.enter()
            try:
                return self.build.module(subgraph, {})
            finally:
                self.reader.leave(kept)
        for values in (self.build.state_dict, self.build.constants):
            if path in values:
                return values[path]
        raise ValueError(f"the graph refers to {path!r}, which is neither a subgraph nor a weight nor a constant")

    def _fill(self, node: torch.fx.Node, place: int) -> None:
        source, strings, value, results = self.entries[place]
        meta = node.meta
        if source == _OUTPUT:
            return
        if source == _INPUT:
            meta["val"] = self._value(place) if value is not None else self.reader.argument(strings, {})
            return
        is_list = place in self.lists
        if source == _RESULT and not is_list:
            meta["val"] = self._value(place)
        elif value is not None:
            meta["val"] = self._value(place)
        elif results is not False and source == _NODE:
            meta["val"] = None if results is None else tuple(self._results(results))
        if strings is not None:
            meta.update(self.reader.metadata(strings))
        if is_list:  # it comes after the rest
            meta["val"] = self.lists[place]
        if source == _NODE and "nn_module_stack" not in meta:
            meta["nn_module_stack"] = {}

    def _value(self, place: int) -> Any:
        """The value of a node of the file; the same object each time."""
        if place not in self.values:
            value = self.entries[place][2]
            self.values[place] = None if value is None else self.reader.value(*value)
        return self.values[place]

    def _results(self, results: list[Any]) -> list[Any]:
        made: list[Any] = []
        for item in results:
            if isinstance(item, tuple):
                self.lists[item[0]] = self._results(item[1])
                made.append(self.lists[item[0]])
            else:
                made.append(None if item is None else self._value(item))
        return made

    # ---- meta that somebody looked at or set

    def _own_meta(self, node: torch.fx.Node, place: int) -> dict[Any, Any]:
        """What ours has as the meta of a node, with what goes without saying there: None as the value."""
        ours = self.graph.node(node.name).meta
        meta = {key: self._entry(key, value) for key, value in ours.items() if not _is_foreign(key, value)}
        entry = self.entries[place] if place else None
        if node.op in ("call_function", "placeholder") and "val" not in meta and not (entry and entry[3] is False):
            meta = {"val": None, **meta}
        if entry and entry[0] == _NODE:
            meta.setdefault("nn_module_stack", {})
        return meta

    def _entry(self, key: Any, value: Any) -> Any:
        if isinstance(value, MetadataText):
            return self.reader.metadata({key: str(value)})[key]
        if key == "val":
            return torch_value(self.reader, value)
        if key == "source_fn_stack" and isinstance(value, list):
            text = ";".join(f"{name},{target}" for name, target in value if isinstance(target, str))
            known = iter(self.reader.metadata({key: text}).get(key, ()))
            return [
                (name, next(known)[1] if isinstance(target, str) else torch_object(target)) for name, target in value
            ]
        if key == "from_node" and isinstance(value, list) and all(isinstance(item, NodeSource) for item in value):
            return self.reader.metadata({key: json.dumps([item.to_dict() for item in value])})[key]
        return dict(value) if key == "nn_module_stack" and isinstance(value, dict) else value


def torch_value(reader: FileReader, value: Any) -> Any:
    """The value of a node as torch has it; what is torch's already stays."""
    if type(value) in (tuple, list):
        return type(value)(torch_value(reader, item) for item in value)
    if isinstance(value, OUR_VALUES):
        ((tag, item),) = _encode_value(value).items()
        return reader.value(_KINDS[tag], item)
    return torch_object(value)


OUR_VALUES = (TensorMeta, SymInt, SymFloat, SymBool, CustomObjArgument)
_KINDS = {"as_tensor": 1, "as_sym_int": 2, "as_sym_float": 3, "as_sym_bool": 4, "as_custom_obj": 5}
_KNOWN_TEXTS = frozenset(METADATA)


def _is_foreign(key: Any, value: Any) -> bool:
    """A text that torch takes no notice of when it reads a file."""
    return isinstance(value, MetadataText) and key not in _KNOWN_TEXTS


# ---- signatures ------------------------------------------------------------------------------------------------------


def _signature(ep: ExportedProgram, nodes: dict[str, torch.fx.Node], constants: Mapping[str, Any]) -> Any:
    """As torch makes it of a file: custom objects that are no lifted ones, and truth values, become constants."""

    def argument(arg: ArgumentSpec, spec: Any) -> Any:
        if isinstance(arg, SymBoolArgument):
            return torch_signature.ConstantArgument("", nodes[arg.name])
        if isinstance(arg, CustomObjArgument) and spec.kind is not InputKind.CUSTOM_OBJ:
            value = constants[arg.name] if arg.name in constants else nodes[arg.name]
            return torch_signature.ConstantArgument(arg.name, value)
        return same_argument(arg, spec)

    return for_torch(ep.graph_signature, argument)


# ---- weights ---------------------------------------------------------------------------------------------------------


def _tensors(values: Mapping[str, Any], copy: bool) -> dict[str, Any]:
    from fastexport import _tensors

    items = dict(values.items())
    tensors = {name: item for name, item in items.items() if isinstance(item, _core.Tensor)}
    if copy:
        made = _tensors.to_torch_all(tensors)
    else:
        made = {name: _tensors.to_torch(tensor, copy=False) for name, tensor in tensors.items()}
    return {name: made[name] if name in made else _unpickled(item) for name, item in items.items()}


def _unpickled(item: Any) -> Any:
    """A custom object or the like, read the way torch reads it: the caller has asked for it."""
    if not isinstance(item, OpaqueValue):
        return item
    data = item.tobytes()
    if item.kind == "custom_obj":
        return _trusted(item.entry, lambda: _torch_export.unpickled(data))
    return _trusted(item.entry, lambda: torch.load(io.BytesIO(data), weights_only=False))


def _example_inputs(ep: ExportedProgram, pickles: bool) -> tuple[Any, ...] | None:
    """What torch's own reader makes of the example inputs; anything beyond tensors only when the caller trusts it."""
    entry = ep._program.sample_inputs
    if entry is None or takes_other_inputs(ep) or not ep._storages[entry].nbytes:
        return None
    data = bytes(memoryview(ep._storages[entry]))
    try:
        loaded = torch.load(io.BytesIO(data), weights_only=True)
    except MemoryError:
        raise
    except Exception:
        if not pickles:
            raise _refusal(ep, entry) from None
        loaded = _trusted(entry, lambda: torch.load(io.BytesIO(data), weights_only=False))
    if loaded is not None and loaded != {} and not (isinstance(loaded, tuple | list) and len(loaded) == 2):
        raise _pickle_error(entry, "the example inputs are no pair of positional and keyword ones")
    pair: tuple[Any, ...] | None = loaded
    return pair


def _refusal(ep: ExportedProgram, entry: str) -> FormatError:
    """What is wrong with example inputs that torch refuses, in the plain words of our own reader where it does too."""
    try:
        ep.example_inputs  # noqa: B018
    except FormatError as error:
        return error
    return _pickle_error(entry, "torch takes only tensors and plain containers unless you trust the file: pickles=True")


def _trusted(entry: str, read: Callable[[], Any]) -> Any:
    """What a pickle that the caller trusts holds; it may run any code, and fail in any way."""
    try:
        return read()
    except MemoryError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise _pickle_error(entry, f"the pickle can't be read: {said}") from error


def _pickle_error(entry: str, message: str) -> FormatError:
    return format_error([("FX502", "pickle", True, entry, None, None, message)])
