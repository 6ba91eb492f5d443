"""The bridge to torch's writer of .pt2 files: what a file says of a program of torch, in torch's words and numbers.

Nothing here changes a program. What is relied on is checked when this is imported: where `SAVES` is false, torch itself
writes (see `_torch_save`).
"""

from __future__ import annotations

import inspect
import io
import json
import operator
import pickle
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import IO, Any

import torch
import torch.export
import torch.fx
from torch.fx.graph_module import GraphModule

from fastexport import _torch_export

try:
    from torch._export.serde import schema, serialize
    from torch._library.opaque_object import is_opaque_value
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.export.pt2_archive import _package as torch_package
    from torch.export.pt2_archive import _package_weights as torch_weights
    from torch.fx.traceback import NodeSource

    from fastexport.acceleration._known import are_known
    from fastexport.acceleration._replacement import stock_behind
except (ImportError, AttributeError):
    _FOUND = False
else:
    _FOUND = True

__all__ = [
    "SAVES",
    "code_of",
    "describe",
    "document",
    "example_bytes",
    "hash_of_names",
    "is_custom",
    "is_fake",
    "is_of_a_backend",
    "is_pickled",
    "modules_as_inputs",
    "only_we_write",
    "operator_text",
    "pickled",
    "save_by_torch",
    "sources",
    "storages",
    "symbolic_json",
]

# Digests of the source texts of what is done here, or in C, in other words, or relied on in its details.
_WRITER = {
    "save_graph_state": "2718b739fb9eed41",
    "handle_placeholder": "041c2752c6c5d03f",
    "handle_output": "2903811d49bbd0df",
    "serialize_operator": "f25f47503b7dcdcf",
    "handle_call_function": "4ee2e6231e08b524",
    "handle_get_attr": "2f76c11eab4d4560",
    "_output_node_at_index": "b34da47471bffac6",
    "_output_node_name_at_index": "f6a7beac4964ac8b",
    "serialize_metadata": "e2bc225bd862c9c7",
    "_serialize_from_node": "32a97396ecd433c9",
    "serialize_script_obj_meta": "40c722a20a3252bc",
    "serialize_sym_op_inputs": "ab899dbfb0891708",
    "serialize_inputs": "ba705e290abe7467",
    "serialize_hoo_inputs": "9de1d1491b469a24",
    "is_sym_int_arg": "0d03b7ba0b12401b",
    "is_sym_float_arg": "e63c709a6bf11ed2",
    "is_sym_bool_arg": "19ae825b591dc586",
    "serialize_input": "39f246bb99af66bf",
    "serialize_tensor_output": "c3cb3d232cf687af",
    "serialize_sym_int_output": "3e29c651e0102eea",
    "serialize_sym_float_output": "0119ead7a9536583",
    "serialize_sym_bool_output": "5118cf94c2941d90",
    "serialize_input_spec": "25834cb25f7e01af",
    "serialize_output_spec": "b3bb8dada107993f",
    "serialize_signature": "77611944cadbcc50",
    "serialize_argument_spec": "cc0b3b36f30d0d8d",
    "serialize_treespec": "b09bb38d319a5c5c",
    "serialize_module_call_signature": "c57945e503a2c2a9",
    "serialize_module_call_graph": "f89ec83da95578dd",
    "serialize_outputs": "f9381983da1da546",
    "serialize_hoo_outputs": "4d0b4e9bff721123",
    "serialize_output": "8a75ef43e6401093",
    "serialize_graph": "c072331483a4a67e",
    "serialize_graph_module_metadata": "e71ae0d9ce434fa0",
    "serialize": "d87e9af4c26956bc",
}
_WRITER_FUNCTIONS = {
    "serialize": "036252ae35371622",
    "serialize_sym_int": "9fe0043c21234cac",
    "serialize_sym_float": "6a7bc8472080b0c4",
    "serialize_sym_bool": "c584aaf1df36ee82",
    "serialize_tensor_meta": "789e217ed90e6cc7",
    "serialize_torch_artifact": "7c880356b5b46cae",
    "serialize_range_constraints": "e65a8be5fa2158df",
    "_dataclass_to_dict": "b46aee3cd42da467",
    "_to_json_bytes": "c656fcb42aedb431",
}
_PACKAGE = {
    "package_pt2": "e211c02471709f99",
    "_package_exported_programs": "f499bce8827c4db0",
    "_package_state_dict": "c25a271fa7ee0de1",
    "_package_constants": "13878455c497e96d",
    "_package_payload_config": "5e48583e223509c6",
    "_package_extra_files": "5e908c6b6110f993",
    "_save_pickled_tensors": "f76ccca3106461df",
    "_save_raw_tensors": "6b1af3f1d5e26a6c",
    "_get_raw_tensor_bytes": "0df704e1e32c0f80",
    "_should_use_pickle": "fcdddc89a64eff2a",
}
_WEIGHTS = {
    "get_complete_tensor": "16455fb166419e42",
    "group_weights": "4701c52f043d99c7",
}


def _configure() -> bool:
    """Whether this torch writes its files the way that is known here."""
    try:
        return (
            _FOUND
            and _torch_export.FAST
            and are_known(vars(serialize.GraphModuleSerializer), _WRITER)
            and are_known(vars(serialize), _WRITER_FUNCTIONS)
            and are_known(vars(torch_package), _PACKAGE)
            and are_known(vars(torch_weights), _WEIGHTS)
        )
    except AttributeError:
        return False


SAVES = _configure()
_lock = threading.Lock()


def is_of_a_backend(program: torch.export.ExportedProgram) -> bool:
    """Whether a backend has put something in that only it, or torch for it, can write."""
    operators = torch._higher_order_ops
    targets = (operators.aoti_call_delegate, operators.triton_kernel_wrap.triton_kernel_wrapper_functional)
    for module in program.graph_module.modules():
        if type(module).__name__ == "LoweredBackendModule":
            return True
        if isinstance(module, GraphModule) and any(
            module.graph.find_nodes(op="call_function", target=target) for target in targets
        ):
            return True
    return False


def only_we_write(program: torch.export.ExportedProgram) -> str | None:
    """Why torch's serializer refuses a program, though there is a file that torch loads; None: it is not known to."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            if node.op == "call_function" and node.target is not operator.getitem and _is_only_ours(node):
                return f"torch has no words for node '{node.name}'"
    signature = program.graph_signature
    names = {spec.arg.name for spec in signature.input_specs}
    for spec in signature.output_specs:
        if spec.kind.name in ("GRADIENT_TO_USER_INPUT", "USER_INPUT_MUTATION") and spec.target not in names:
            return f"there is no input '{spec.target}'"
    return None


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _is_only_ours(node: torch.fx.Node) -> bool:
    value, is_operator = node.meta.get("val"), isinstance(node.target, torch._ops.OpOverload)
    if isinstance(value, _SYMBOLIC):
        return not is_operator and node.target not in serialize._SYM_OPS
    if not isinstance(value, tuple | list):
        return False
    if is_operator:
        return any(isinstance(item, (*_SYMBOLIC, tuple)) for item in value)
    return isinstance(value, list)


def save_by_torch(
    program: torch.export.ExportedProgram,
    file: IO[bytes],
    extra_files: dict[str, str] | None,
    opset_version: Mapping[str, int] | None,
    pickle_protocol: int,
) -> None:
    """torch.export.save, also while ours stands in its place."""
    stock_behind(torch_package.package_pt2)(
        file,
        exported_programs={"model": program},
        extra_files=extra_files,
        opset_version=None if opset_version is None else dict(opset_version),
        pickle_protocol=pickle_protocol,
    )


def modules_as_inputs(program: torch.export.ExportedProgram) -> AbstractContextManager[None]:
    """While this is entered, modules among the example inputs count as nodes of trees."""
    return serialize._enable_graph_inputs_of_type_nn_module(program.example_inputs)


def document(program: torch.export.ExportedProgram, opset_version: Mapping[str, int] | None) -> dict[str, Any]:
    """The document of a program as JSON values, without its graph and signature."""
    writer = serialize.GraphModuleSerializer(program.graph_signature, program.module_call_graph)
    calls = [
        {"fqn": entry.fqn, "signature": None}
        if entry.signature is None
        else serialize._dataclass_to_dict(writer.serialize_module_call_graph([entry])[0])
        for entry in program.module_call_graph
    ]
    versions = {**_torch_export.opset_version(), **(opset_version or {})}
    major, minor = schema.SCHEMA_VERSION
    return {
        "graph_module": {
            "graph": {},
            "signature": {"input_specs": [], "output_specs": []},
            "module_call_graph": calls,
            "metadata": writer.serialize_graph_module_metadata(program.graph_module.meta),
            "treespec_namedtuple_fields": serialize._dataclass_to_dict(writer.treespec_namedtuple_fields),
        },
        "opset_version": versions,
        "range_constraints": serialize._dataclass_to_dict(
            serialize.serialize_range_constraints(program.range_constraints)
        ),
        "schema_version": {"major": major, "minor": minor},
        "verifiers": [verifier.dialect for verifier in program.verifiers],
        "torch_version": torch.__version__,
        "guards_code": _torch_export.guards_code(program),
    }


def example_bytes(program: torch.export.ExportedProgram, pickle_protocol: int) -> bytes:
    """The example inputs of a program, as torch.save writes them."""
    with _lock:  # torch notes in a global how fake tensors are pickled
        return serialize.serialize_torch_artifact(program.example_inputs, pickle_protocol)


def sources(from_node: Any) -> list[dict[str, Any]] | None:
    """The `from_node` of a node as JSON values."""
    if from_node is None:
        return None
    return [source.to_dict() for source in from_node if isinstance(source, NodeSource)]


def hash_of_names(names: Iterable[str]) -> str:
    """What torch's writer of archives makes of the names of records, those that it adds itself among them."""
    writer = torch._C.PyTorchFileWriter(io.BytesIO())
    writer.set_min_version(6)  # as torch's writer of .pt2 files does; it decides on a name
    for name in names:
        if name not in (".data/version", "byteorder"):
            writer.write_record(name, b"", 0)
    writer.write_end_of_file()
    return writer.serialization_id()[:20]


# ---- objects and values


def code_of(value: Any) -> int:
    """The number of a dtype, layout or memory format in the schema.

    Raises:
        ValueError: it has none.
    """
    for numbers in (
        serialize._TORCH_TO_SERIALIZE_DTYPE,
        serialize._TORCH_TO_SERIALIZE_LAYOUT,
        serialize._TORCH_TO_SERIALIZE_MEMORY_FORMAT,
    ):
        number = numbers.get(value)
        if number is not None:
            return int(number)
    raise ValueError(f"{value} has no number in the schema of .pt2 files")


# pt2_object_kind of csrc/pt2/program.h
_NUMBERED = {torch.dtype: 1, torch.layout: 2, torch.memory_format: 3}
_DEVICE, _TARGET = 4, 5


def describe(value: Any) -> tuple[int, int, str | None, str | None] | None:
    """What stands in a graph as (kind, code, text, schema); None for what torch.export.load could not read again."""
    kind = _NUMBERED.get(type(value))
    if kind is not None:
        try:
            return kind, code_of(value), None, None
        except ValueError:
            return None
    if type(value) is torch.device:
        return _DEVICE, 0, str(value), None
    handler = serialize._serialization_registry.get(type(value))
    if handler is not None:
        text = f"#{handler.namespace()}:{handler.to_op_name(value)}"
        return _TARGET, 0, text, _schema_text(handler.op_schema(value))
    if not callable(value) or isinstance(value, type):
        return None
    text = operator_text(value)
    if serialize.GraphModuleDeserializer().deserialize_operator(text) is not value:
        return None
    return _TARGET, 0, text, _schema_of(value)


def operator_text(target: Any) -> str:
    """The name of what is called."""
    if isinstance(target, str):
        return target
    module = target.__module__
    if module.startswith("torch._ops"):
        module = module.replace("torch._ops", "torch.ops")
    return f"{module}.{target.__name__}"


def _schema_of(target: Any) -> str | None:
    if isinstance(target, torch._ops.OpOverload):
        return _schema_text(target._schema)
    if target in serialize._SYM_OPS:
        return " ".join(f"O{name}" for name in inspect.signature(target).parameters)
    return None


# The letters that core/operator.h has for the types of schemas.
_LETTERS = {
    "TensorType": "T",
    "IntType": "i",
    "SymIntType": "y",
    "FloatType": "f",
    "BoolType": "b",
    "SymBoolType": "Y",
    "NumberType": "S",
    "StringType": "s",
}


def _type_text(kind: Any) -> str:
    name = kind.kind()
    if name in ("ListType", "OptionalType"):
        return _type_text(kind.getElementType()) + ("[" if name == "ListType" else "?")
    return _LETTERS.get(name, "O")


def _schema_text(op_schema: Any) -> str:
    """A schema in the form of the table behind core/operator.h: as much as is needed for writing."""
    arguments = [
        f"{_type_text(argument.type)}{'*' if argument.kwarg_only else ''}{argument.name}"
        for argument in op_schema.arguments
    ]
    return f"{' '.join(arguments)}>{' '.join(_type_text(result.real_type) for result in op_schema.returns)}"


def symbolic_json(value: Any) -> str:
    """A symbolic number as JSON.

    Raises:
        Exception: of torch's: it is no such number.
    """
    if isinstance(value, torch.SymBool):
        made = serialize.serialize_sym_bool(value)
    elif isinstance(value, torch.SymFloat):
        made = serialize.serialize_sym_float(value)
    else:
        made = serialize.serialize_sym_int(value)
    return json.dumps(serialize._dataclass_to_dict(made), allow_nan=False)


# ---- weights and constants


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data."""
    return isinstance(tensor, FakeTensor)


def is_pickled(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a class of its own, so that its bytes don't say it all."""
    return torch_package._should_use_pickle(tensor)


def is_custom(value: Any) -> bool:
    """Whether a constant is a custom object, or a value that is opaque to torch."""
    return isinstance(value, torch._C.ScriptObject) or is_opaque_value(value)


def pickled(value: Any, pickle_protocol: int) -> tuple[str, bytes]:
    """What the entry of such a constant begins with, and what it holds."""
    if isinstance(value, torch._C.ScriptObject):
        return "custom_obj_", torch._C._pickle_save(value)
    return "opaque_obj_", pickle.dumps(value, protocol=pickle_protocol)


def storages(tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[list[str], torch.Tensor]]:
    """The names of tensors with one storage and dtype, and a tensor that covers all of them."""
    if not tensors:
        return
    named = {name: (tensor, torch_weights.TensorProperties(tensor)) for name, tensor in tensors.items()}
    weights = {"model": torch_weights.Weights(named)}
    for group in torch_weights.group_weights(weights):
        yield [name for _, name in group], torch_weights.get_complete_tensor(group, weights)
