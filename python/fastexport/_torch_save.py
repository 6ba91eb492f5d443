"""Saving programs of torch: straight from the torch objects to a .pt2 file, as torch.export.save writes it.

The graph goes into the core, which C writes (csrc/pt2/write.c); here are the words that C needs for it: a text for the
value and the metadata of each node, and a name and schema for what is called. Sizes, stacks and operators come again
and again, so their texts are made once. Weights are written from their own memory.
"""

from __future__ import annotations

import io
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import starmap
from json.encoder import encode_basestring_ascii as _quote
from typing import Any

import torch
import torch.export

from fastexport import _core, _torch_export, _torch_serializer
from fastexport._collecting import no_collection
from fastexport._dialect import fault, shown
from fastexport._errors import FormatError
from fastexport._meta_json import FORMS, function_item, function_names, module_item
from fastexport._save import DEFAULT_PROTOCOL, MARKERS, Source, check_names, encoded_extras, write_parts
from fastexport._tensors import check_storage

__all__ = ["records", "write"]

# What torch says of a name that it would not expect goes to its own logger.
_logger = logging.getLogger("torch.export.pt2_archive._package")


def write(
    program: torch.export.ExportedProgram,
    path_or_file: Any,
    *,
    extra_files: Mapping[str, str | bytes] | None = None,
    opset_version: Mapping[str, int] | None = None,
    pickle_protocol: int = 2,
    verify: bool = True,
) -> None:
    """Write a program of torch; see `fastexport.save`."""
    check_names(program)
    _warn_of_name(path_or_file)
    extras = encoded_extras(extra_files or {})
    if not _torch_serializer.SAVES or _torch_serializer.is_of_a_backend(program):
        _write_by_torch(program, path_or_file, extras, opset_version, pickle_protocol, verify)
        return
    parts = records(program, opset_version=opset_version, pickle_protocol=pickle_protocol, verify=verify)
    parts += [(f"extra/{name}", text) for name, text in extras.items()]
    parts += MARKERS
    parts.append((".data/serialization_id", _serialization_id(parts)))
    write_parts(path_or_file, parts)
    if isinstance(path_or_file, io.IOBase) and path_or_file.seekable():
        path_or_file.seek(0)  # as torch does


def records(
    program: torch.export.ExportedProgram,
    *,
    opset_version: Mapping[str, int] | None = None,
    pickle_protocol: int = 2,
    exact: bool = False,
    verify: bool = False,
) -> list[tuple[str, Any]]:
    """The entries of a program itself in torch's order: weights, constants, document, example inputs.

    Args:
        verify: raise a RejectedProgram also for what `load` would refuse, though torch's verifier passes it.
        exact: raise a FormatError also for what torch's serializer refuses, though torch could load the file.
    """
    if exact and (reason := _torch_serializer.only_we_write(program)):
        raise FormatError(reason, kind="argument")
    with no_collection(), _torch_serializer.modules_as_inputs(program):
        _torch_export.validate(program)
        if verify:
            _check_for_files(program)
        model = _model(program, opset_version, verify)
    values = _Values()
    as_stored = dict if exact else _resolved
    return [
        *_weights(as_stored(program.state_dict), values, pickle_protocol),
        *_constants(as_stored(program.constants), values, pickle_protocol),
        ("models/model.json", model),
        ("data/sample_inputs/model.pt", _torch_serializer.example_bytes(program, pickle_protocol)),
    ]


def _resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """With the values of tensors that torch is yet to conjugate or negate; torch's own files have them without that."""
    return {name: _resolved_value(value) for name, value in values.items()}


def _resolved_value(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not (value.is_conj() or value.is_neg()):
        return value
    plain = value.detach().resolve_conj().resolve_neg()
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(plain, value.requires_grad)
    return plain.requires_grad_(value.requires_grad)


def records_without_data(program: torch.export.ExportedProgram) -> list[tuple[str, Any]]:
    """The entries of a file with the same document, whose weights have sizes and no data: for a look at it."""
    with no_collection(), _torch_serializer.modules_as_inputs(program):
        model = _model(program, None, True)
    values = _Values()
    weights = {name: _without_data(tensor) for name, tensor in program.state_dict.items()}
    constants = {name: _without_data(value) for name, value in program.constants.items()}
    return [
        *_weights(weights, values, DEFAULT_PROTOCOL),
        *_constants(constants, values, DEFAULT_PROTOCOL),
        ("models/model.json", model),
        ("data/sample_inputs/model.pt", b""),
        *MARKERS,
    ]


def _without_data(value: Any) -> Any:
    """A tensor of the same form on the device meta; anything else as it is."""
    if not isinstance(value, torch.Tensor) or _torch_serializer.is_pickled(value):
        return value
    twin = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    is_param = isinstance(value, torch.nn.Parameter)
    return torch.nn.Parameter(twin, requires_grad=value.requires_grad) if is_param else twin


def _check_for_files(program: torch.export.ExportedProgram) -> None:
    """See that no file is written that `load` would refuse, though torch's verifier passes the program.

    Raises:
        RejectedProgram: there is a fault.
    """
    from fastexport._torch_files import file_faults
    from fastexport._torch_verifier import raise_faults

    raise_faults(file_faults(program))


def _warn_of_name(path_or_file: Any) -> None:
    if isinstance(path_or_file, str | bytes | os.PathLike):
        is_usual = os.fsdecode(path_or_file).endswith(".pt2")
    else:
        is_usual = isinstance(path_or_file, io.IOBase) and path_or_file.writable() and path_or_file.seekable()
        is_usual = is_usual or str(getattr(path_or_file, "name", "")).endswith(".pt2")
    if not is_usual:
        _logger.warning(
            "Expect archive file to be a file ending in .pt2, or is a buffer. Instead got {%s}", path_or_file
        )


def _write_by_torch(
    program: Any,
    path_or_file: Any,
    extras: Mapping[str, bytes],
    opset_version: Mapping[str, int] | None,
    pickle_protocol: int,
    verify: bool,
) -> None:
    """The same by torch's own function: on a torch that is not the one known here, or for what a backend has put in."""
    file = io.BytesIO()
    _torch_serializer.save_by_torch(
        program, file, {name: text.decode() for name, text in extras.items()} or None, opset_version, pickle_protocol
    )
    if verify:
        _check_for_files(program)
    archive = _core.Archive(file.getvalue())
    write_parts(path_or_file, [(name, (archive, name)) for name, *_ in archive.entries()])


def _serialization_id(parts: list[tuple[str, Any]]) -> bytes:
    """What torch tells archives apart by: a number made of the names of all records, and one of their checksums."""
    number = 0
    for data in (data for _, data in parts if len(data)):  # torch has no checksum of what is empty
        number ^= (zlib.crc32(data) + 0x9E3779B9 + (number << 6) + (number >> 2)) % 2**64
    return f"{_torch_serializer.hash_of_names([name for name, _ in parts])}{number:020}".encode()


# ---- the document ----------------------------------------------------------------------------------------------------


def _model(program: Any, opset_version: Mapping[str, int] | None, verify: bool) -> bytes:
    from fastexport._torch_source import from_export

    _check_ranges(program.range_constraints)
    document = _torch_serializer.document(program, opset_version)
    _check_constants(program.graph_signature)
    words = _Words(verify)
    text = json.dumps(document, allow_nan=False)
    return _core.Program.write_new(from_export(program).graph, text, words.node, words.object, verify)


def _check_ranges(ranges: Mapping[Any, Any]) -> None:
    for symbol, allowed in ranges.items():
        if not hasattr(allowed, "lower") or not hasattr(allowed, "upper"):
            message = f"range_constraints[{shown(symbol)}] is {shown(allowed)}; it has to be a ValueRanges"
            raise FormatError(message, kind="value")


def _check_constants(signature: Any) -> None:
    """See that constants fit into the core, which knows what a file can say."""
    for spec in (*signature.input_specs, *signature.output_specs):
        value = getattr(spec.arg, "value", None)
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise FormatError(f"{spec.arg.name or 'an output'!r} is {value}, which is beyond 64 bits", kind="argument")


class _Words:
    """The texts of a program's nodes, and of what stands in their arguments."""

    def __init__(self, verify: bool) -> None:
        self._values = _Values()
        self._metadata = _Metadata(verify)

    def node(self, name: str, meta: dict[Any, Any], is_input: bool) -> tuple[str | None, str]:
        """The value and the metadata of a node, as JSON."""
        code = "FX305"
        try:
            if "val" not in meta:
                value = None
            elif is_input:
                value = self._values.of_input(meta["val"])
            else:
                value = self._values.of(meta["val"])
            code = "FX403"
            return value, "{}" if is_input else self._metadata.of(meta)
        except MemoryError:
            raise
        except Exception as error:
            found = [fault(code, name, str(error))]
            raise FormatError(f"node '{name}': {error}", kind=found[0].kind, faults=found) from error

    def object(self, value: Any) -> tuple[int, int, str | None, str | None] | None:
        """What C is told of an object that stands in arguments, or is called."""
        return _torch_serializer.describe(value)


# ---- values ----------------------------------------------------------------------------------------------------------


class _Values:
    """Texts of values; tensors that look the same, and symbols, have theirs made once."""

    def __init__(self) -> None:
        self._tensors: dict[Any, str] = {}
        self._nodes: dict[Any, str] = {}
        self._expressions: dict[Any, str] = {}
        self._texts: dict[type, Callable[[Any], str]] = {type(None): lambda value: '{"as_none": true}'}

    def of(self, value: Any) -> str:
        """What a node gives, with its kind: ``{"as_tensor": ...}``, or ``{"as_list": [...]}`` for several."""
        cls = type(value)
        text = self._texts.get(cls)
        if text is None:
            text = self._texts[cls] = self._text_for(value)
        return text(value)

    def _text_for(self, value: Any) -> Callable[[Any], str]:
        if isinstance(value, torch.Tensor):
            return lambda value: f'{{"as_tensor": {self.tensor(value)}}}'
        if isinstance(value, bool | torch.SymBool):
            return lambda value: f'{{"as_sym_bool": {self._bool(value)}}}'
        if isinstance(value, int | torch.SymInt):
            return lambda value: f'{{"as_sym_int": {self._int(value)}}}'
        if isinstance(value, float | torch.SymFloat):
            return lambda value: f'{{"as_sym_float": {self._float(value)}}}'
        if isinstance(value, tuple | list):
            return lambda value: f'{{"as_list": [{", ".join(map(self.of, value))}]}}'
        raise ValueError(
            f"meta['val'] is a {type(value).__name__}, which a .pt2 file can't hold; "
            "let the node give tensors and numbers"
        )

    def of_input(self, value: Any) -> str:
        """What an input is; a constant stands there as an argument would."""
        if type(value) is bool:
            return f'{{"as_bool": {"true" if value else "false"}}}'
        if type(value) is int:
            return f'{{"as_int": {value}}}'
        if type(value) is float:
            return f'{{"as_float": {_number(value)}}}'
        if type(value) is str:
            return f'{{"as_string": {_quote(value)}}}'
        if isinstance(value, torch.export.graph_signature.CustomObjArgument):
            name, cls = json.dumps(value.name), json.dumps(value.class_fqn)
            return f'{{"as_custom_obj": {{"name": {name}, "class_fqn": {cls}}}}}'
        if value is None or isinstance(value, torch.Tensor | torch.SymInt):
            return self.of(value)
        raise ValueError(
            f"the input is a {type(value).__name__}, which torch.export.load can't take as an input; "
            "give a tensor, an int, or a constant"
        )

    def tensor(self, tensor: torch.Tensor) -> str:
        """A TensorMeta."""
        key = (
            tensor.dtype,
            tensor.shape,
            tensor.requires_grad,
            tensor.device,
            tensor.stride(),
            tensor.storage_offset(),
            tensor.layout,
        )
        try:
            known = self._tensors.get(key)
        except TypeError:  # a symbolic size has no hash
            return self._new_tensor(*key)
        if known is None:
            known = self._tensors[key] = self._new_tensor(*key)
        return known

    def _new_tensor(
        self, dtype: Any, sizes: Any, requires_grad: bool, device: Any, strides: Any, offset: Any, layout: Any
    ) -> str:
        where = _quote(device.type), "null" if device.index is None else device.index
        return (
            f'{{"dtype": {_torch_serializer.code_of(dtype)}, "sizes": [{self._ints(sizes)}], '
            f'"requires_grad": {"true" if requires_grad else "false"}, '
            f'"device": {{"type": {where[0]}, "index": {where[1]}}}, "strides": [{self._ints(strides)}], '
            f'"storage_offset": {self._int(offset)}, "layout": {_torch_serializer.code_of(layout)}}}'
        )

    def _ints(self, values: Any) -> str:
        return ", ".join([self._int(value) for value in values])

    def _int(self, value: Any) -> str:
        if value.__class__ is int:
            return f'{{"as_int": {value}}}'
        return self._symbolic(value, "as_int")

    def _float(self, value: Any) -> str:
        return f'{{"as_float": {_number(value)}}}' if isinstance(value, float) else self._symbolic(value, "as_float")

    def _bool(self, value: Any) -> str:
        if isinstance(value, bool):
            return f'{{"as_bool": {"true" if value else "false"}}}'
        return self._symbolic(value, "as_bool")

    def _symbolic(self, value: Any, tag: str) -> str:
        """A symbolic number; numbers that look the same may have nodes of their own, but share expression and hint."""
        node = getattr(value, "node", None)
        if node is None:  # a number of a class of its own
            return _torch_serializer.symbolic_json(value)
        known = self._nodes.get(node)
        if known is None:
            key = tag, node.expr, type(node.hint), node.hint
            known = self._expressions.get(key)
            if known is None:
                known = self._expressions[key] = _torch_serializer.symbolic_json(value)
            self._nodes[node] = known
        return known


def _number(value: float) -> str:
    """A float in JSON, as torch writes it."""
    if value != value:
        return '"NaN"'
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return float.__repr__(value)


# ---- metadata --------------------------------------------------------------------------------------------------------


class _Metadata:
    """The metadata of nodes as JSON: an object of strings. What nodes share has its text made once.

    Args:
        verify: refuse what would be read as something else, though torch writes it.
    """

    def __init__(self, verify: bool) -> None:
        self._verify = verify
        self._quoted: dict[str, str] = {}
        self._stacks: dict[Any, str] = {}

    def of(self, meta: Mapping[Any, Any]) -> str:
        """The metadata in torch's order; what is empty is left out.

        Raises:
            ValueError: an entry is of another form than torch's; it names the key.
        """
        try:
            return self._texts(meta)
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self._reason(meta, error) from error

    def _reason(self, meta: Mapping[Any, Any], error: Exception) -> ValueError:
        """Which entry can't be written, by writing each alone."""
        for key, form in FORMS.items():
            try:
                self._texts({key: meta[key]} if key in meta else {})
            except Exception as reason:
                said = f"{reason}; " if type(reason) is ValueError else ""
                return ValueError(
                    f"meta[{key!r}] is {shown(meta[key])}, which can't be written: {said}it has to be {form}"
                )
        return ValueError(str(error))

    def _texts(self, meta: Mapping[Any, Any]) -> str:
        get, parts = meta.get, []
        if text := get("stack_trace"):
            parts.append(f'"stack_trace": {self._quote(text)}')
        if stack := get("nn_module_stack"):
            parts.append(f'"nn_module_stack": {self._modules(stack)}')
        if functions := get("source_fn_stack"):
            pairs = [(name, _torch_serializer.operator_text(function)) for name, function in functions]
            texts = starmap(function_item, pairs) if self._verify else [f"{name},{text}" for name, text in pairs]
            parts.append(f'"source_fn_stack": {_quote(";".join(texts))}')
        if names := get("torch_fn"):
            text = function_names(names) if self._verify else ";".join(list(names))
            parts.append(f'"torch_fn": {_quote(text)}')
        if custom := get("custom"):
            parts.append(f'"custom": {_quote(self._custom(custom))}')
        if "from_node" in meta:
            parts.append(f'"from_node": {_quote(json.dumps(_torch_serializer.sources(meta["from_node"])))}')
        return f"{{{', '.join(parts)}}}"

    def _quote(self, text: str) -> str:
        known = self._quoted.get(text)
        if known is None:
            known = self._quoted[text] = _quote(text)
        return known

    def _modules(self, stack: Mapping[str, tuple[str, str]]) -> str:
        try:
            key = tuple(stack.items())
            known = self._stacks.get(key)
        except TypeError:  # it holds something that has no hash
            return self._new_modules(stack)
        if known is None:
            known = self._stacks[key] = self._new_modules(stack)
        return known

    def _new_modules(self, stack: Mapping[str, tuple[str, str]]) -> str:
        items = []
        for key, value in stack.items():
            if not isinstance(value, tuple) or len(value) != 2 or not all(isinstance(part, str) for part in value):
                raise ValueError(f"it has {shown(value)}")
            items.append(module_item(key, *value) if self._verify else f"{key},{value[0]},{value[1]}")
        return _quote(";".join(items))

    def _custom(self, custom: Any) -> str:
        try:
            return json.dumps(custom)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(str(error)) from error


# ---- weights and constants -------------------------------------------------------------------------------------------


def _weights(state_dict: Mapping[str, Any], values: _Values, pickle_protocol: int) -> Iterator[tuple[str, Source]]:
    for tensor in state_dict.values():
        if not isinstance(tensor, torch.Tensor):
            raise AssertionError("only torch.Tensor is allowed in state_dict")
    records = _Records("data/weights/", "weight_", values, pickle_protocol)
    records.add_tensors(state_dict)
    yield from records.parts
    yield "data/weights/model_weights_config.json", records.config()


def _constants(constants: Mapping[str, Any], values: _Values, pickle_protocol: int) -> Iterator[tuple[str, Source]]:
    tensors: dict[str, torch.Tensor] = {}
    objects: dict[str, Any] = {}
    for name, value in constants.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif _torch_serializer.is_custom(value):
            objects[name] = value
        else:
            raise RuntimeError(f"Unsupported constant type: {type(value)}")
    records = _Records("data/constants/", "tensor_", values, pickle_protocol)
    records.add_tensors(tensors)
    records.add_objects(objects)
    yield from records.parts
    yield "data/constants/model_constants_config.json", records.config()


class _Records:
    """The entries that hold tensors and objects, and the configuration that tells which is where."""

    def __init__(self, folder: str, prefix: str, values: _Values, pickle_protocol: int) -> None:
        self.parts: list[tuple[str, Source]] = []
        self._folder = folder
        self._prefix = prefix
        self._values = values
        self._protocol = pickle_protocol
        self._entries: list[str] = []

    def add_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Those of a class of their own are pickled; of the others, each storage is written once."""
        number = 0
        plain: dict[str, torch.Tensor] = {}
        for name, tensor in tensors.items():
            if not _torch_serializer.is_pickled(tensor):
                if tensor.layout is not torch.strided:
                    message = f"{name!r} is a tensor of layout {tensor.layout}, which a file of torch.export can't hold"
                    raise FormatError(message, kind="payload")
                check_storage(tensor, repr(name))
                plain[name] = tensor
                continue
            file = io.BytesIO()
            torch.save(tensor, file, pickle_protocol=self._protocol)
            self._add(f"{self._prefix}{number}", file.getvalue(), [(name, tensor)], is_pickled=True)
            number += 1
        for names, whole in _torch_serializer.storages(plain):
            source = _bytes_of(whole)
            self._add(f"{self._prefix}{number}", source, [(name, plain[name]) for name in names], is_pickled=False)
            number += 1

    def add_objects(self, objects: Mapping[str, Any]) -> None:
        """Custom objects, and values that are opaque to torch."""
        numbers = {"custom_obj_": 0, "opaque_obj_": 0}
        for name, value in objects.items():
            kind, data = _torch_serializer.pickled(value, self._protocol)
            record = f"{kind}{numbers[kind]}"
            numbers[kind] += 1
            self.parts.append((self._folder + record, data))
            facts = f'"path_name": "{record}", "is_param": false, "use_pickle": true, "tensor_meta": null'
            self._entries.append(f"{_quote(name)}: {{{facts}}}")

    def _add(self, record: str, source: Source, tensors: list[tuple[str, torch.Tensor]], *, is_pickled: bool) -> None:
        self.parts.append((self._folder + record, source))
        for name, tensor in tensors:
            is_param = "true" if isinstance(tensor, torch.nn.Parameter) else "false"
            use_pickle = "true" if is_pickled else "false"
            self._entries.append(
                f'{_quote(name)}: {{"path_name": "{record}", "is_param": {is_param}, "use_pickle": {use_pickle}, '
                f'"tensor_meta": {self._values.tensor(tensor)}}}'
            )

    def config(self) -> bytes:
        """The configuration, a PayloadConfig of torch's schema."""
        return f'{{"config": {{{", ".join(self._entries)}}}}}'.encode()


def _bytes_of(tensor: torch.Tensor) -> Source:
    """The memory of a tensor's storage, which is not copied unless it is on another device."""
    import ctypes

    if _torch_serializer.is_fake(tensor) or not tensor.data_ptr():
        return b""
    storage = tensor.cpu().untyped_storage()
    block = (ctypes.c_ubyte * storage.size()).from_address(storage.data_ptr())
    block.storage = storage  # which lives as long
    return memoryview(block)
