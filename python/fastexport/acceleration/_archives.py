"""torch.export.save and torch.export.load as one job, through the C code that reads and writes .pt2 files.

Ours do what is plain: one program, in the present layout, with weights that are tensors. All else is left to torch: old
layouts, pickles, TorchBind objects, programs of backends, a torch that somebody has patched, files that have any fault.
It is left before anything was done that could be seen, so that torch raises its own exceptions, with its own warnings.
"""

from __future__ import annotations

import io
import logging
import os
import pathlib
from typing import Any

import torch
from torch._export import verifier
from torch._export.serde import schema, serialize
from torch._subclasses import fake_tensor
from torch.export import exported_program
from torch.export.pt2_archive import _package
from torch.fx.experimental import symbolic_shapes

from fastexport import _core
from fastexport._operators import Operator
from fastexport._program import ExportedProgram, open_archive
from fastexport._signature import CustomObjArgument, InputKind, SymBoolArgument
from fastexport._state import TENSOR
from fastexport.acceleration._graph_serialization import _plain_context
from fastexport.acceleration._ordinary import is_ordinary
from fastexport.acceleration._replacement import Replacement
from fastexport.acceleration._snapshot import Snapshot
from fastexport.acceleration._verify import verify_result

_PARTS = Snapshot(
    (
        _package,
        _package.PT2ArchiveReader,
        _package.PT2ArchiveWriter,
        serialize,
        serialize.GraphModuleSerializer,
        serialize.ExportedProgramSerializer,
        serialize.GraphModuleDeserializer,
        serialize.ExportedProgramDeserializer,
        serialize.EnumEncoder,
        verifier,
        verifier.Verifier,
        exported_program,
        torch.export.ExportedProgram,
        fake_tensor.FakeTensor,
        fake_tensor.FakeTensorMode,
        symbolic_shapes,
        symbolic_shapes.ShapeEnv,
        torch.fx.Graph,
        torch.fx.Node,
        torch.fx.GraphModule,
    )
)
_LOGGERS = (serialize.log, _package.logger, symbolic_shapes.log)


class _Unfit(Exception):
    """This is left to torch."""


def _require(condition: Any) -> None:
    if not condition:
        raise _Unfit


def _is_usual() -> bool:
    """Whether nobody would see that it is done in another way."""
    from fastexport import _torch_export

    debugging = any(logger.isEnabledFor(logging.DEBUG) for logger in _LOGGERS)
    return _torch_export.FAST and not debugging and _plain_context() and _PARTS.is_current()


# ---- load


def load_pt2(stock: Any, f: Any, **options: Any) -> Any:
    """torch.export.load: the program is made of what C has read of the file"""
    place = _place(f)
    if place is not None and _is_usual() and not options.get("load_weights_from_disk"):
        try:
            return _load(f, options.get("expected_opset_version"))
        except Exception:  # torch tells what is wrong, if anything
            if place >= 0:
                f.seek(place)
    return stock(f, **options)


def _place(f: Any) -> int | None:
    """Where a file stands that can be read in our way, -1 for a path; None for anything else."""
    if type(f) is str or isinstance(f, pathlib.PurePath):
        return -1 if os.fspath(f).endswith(".pt2") else None
    if type(f) is io.BytesIO or (type(f) is io.BufferedReader and type(f.raw) is io.FileIO):
        return 0 if not f.closed and f.seekable() and f.tell() == 0 else None
    return None


def _load(f: Any, versions: Any) -> Any:
    _require(versions is None or type(versions) is dict)
    archive = open_archive(f.getvalue() if type(f) is io.BytesIO else f)  # first, for a file moves as it is read
    with _package.PT2ArchiveReader(os.fspath(f) if isinstance(f, pathlib.PurePath) else f) as reader:
        version = reader.read_string(_package.ARCHIVE_VERSION_PATH)
        names = reader.get_file_names()
        [model] = [name for name in names if name.startswith(_package.MODELS_DIR)]
        _require(version == _package.ARCHIVE_VERSION_VALUE)
        _require(not any(name.startswith(_package.AOTINDUCTOR_DIR) for name in names))
        prefix, suffix = _package.MODELS_FILENAME_FORMAT.split("{}")
        name = model.removeprefix(prefix).removesuffix(suffix)
        _require(f"{prefix}{name}{suffix}" == model)
        program = _program(archive, reader, name)
        extra_files = _package._load_extra_files(reader, names)
    return _package.PT2ArchiveContents({name: program}, {}, extra_files)


def _program(archive: Any, reader: Any, name: str) -> Any:
    """The program of that name: the graph as C has read it, the weights as torch has."""
    from fastexport import _torch_program

    opened = _open(archive, name)
    _require(reader.read_bytes(_package.MODELS_FILENAME_FORMAT.format(name)) == _document(opened))
    inputs = reader.read_bytes(_package.SAMPLE_INPUTS_FILENAME_FORMAT.format(name))
    program = _torch_program.to_torch_with(
        opened,
        _package._load_state_dict(reader, name),
        _package._load_constants(reader, name),
        _example_inputs(inputs),
    )
    _require(program is not None)
    return program


def _open(archive: Any, name: str) -> Any:
    """The program as fastexport has it, if there is nothing the matter with it."""
    from fastexport._torch_program import check_program

    program = _core.Program(archive, name)
    opened = ExportedProgram(program)
    _require(program.layout == "A" and all(fault.entry == program.sample_inputs for fault in opened.faults))
    _require(opened.schema_version is not None and opened.schema_version[0] == serialize.SCHEMA_VERSION[0])
    for constants in (False, True):
        payloads, pickle = program.payloads(constants)
        _require(pickle is None and all(payload[1] == TENSOR for payload in payloads))
    signature = opened.graph_signature
    specs: list[Any] = [*signature.input_specs, *signature.output_specs]
    for spec in specs:
        lifted = getattr(spec, "kind", None) is InputKind.CUSTOM_OBJ
        _require(lifted or not isinstance(spec.arg, CustomObjArgument | SymBoolArgument))
    faults = check_program(opened)
    _require(all(fault.kind in ("unknown_operator", "unknown_class") for fault in faults))  # torch looks for both
    if faults:
        _check_calls(program.json("model", "graph_module", "graph"))
    return opened


def _is_known(target: str) -> bool:
    """Whether C knows the schema of an operator, by which torch tells how an argument is given."""
    return _core.classify_target(target) != "operator" or _core.operator_schema(target) is not None


def _check_calls(graph: Any) -> None:
    """See that arguments stand where torch puts them, of operators whose schema C does not know."""
    for node in graph["nodes"]:
        if not _is_known(node["target"]):
            _check_call(node)
        for given in node["inputs"]:
            inner = given["arg"].get("as_graph")
            if inner is not None:
                _check_calls(inner["graph"])
            _require("as_string_to_argument" not in given["arg"])


def _check_call(node: Any) -> None:
    arguments = serialize._get_schema_from_target(Operator(node["target"]).to_torch()).arguments
    places = {argument.name: place for place, argument in enumerate(arguments)}
    for kind in schema.ArgumentKind.POSITIONAL, schema.ArgumentKind.KEYWORD:
        order = [places[given["name"]] for given in node["inputs"] if given["kind"] == kind]
        _require(order == sorted(order))
    _require(all(given["kind"] in (1, 2) for given in node["inputs"]))
    needed = {argument.name for argument in arguments if not argument.has_default_value()}
    _require(needed.issubset([given["name"] for given in node["inputs"]]))


def _document(opened: Any) -> bytes:
    found: bytes = opened._program.archive.read(opened._program.model_entry)
    return found


def _example_inputs(data: bytes) -> Any:
    """What torch makes of example inputs, where it runs nothing that is written in them."""
    if not data:
        return None
    inputs = torch.load(io.BytesIO(data), weights_only=True)
    _require(type(inputs) is tuple and inputs)
    return inputs


def _verify_load(ours: Any, stock: Any, args: Any, kwargs: Any) -> Any:
    """Compare the programs; a file is read twice."""
    place = _place(args[0]) if args else None
    if place is None:
        return ours(*args, **kwargs)

    def theirs(*args: Any, **kwargs: Any) -> Any:
        try:
            return stock(*args, **kwargs)
        finally:
            if place >= 0:
                args[0].seek(place)

    return verify_result(ours, theirs, args, kwargs)


# ---- save


def package_programs(
    stock: Any, archive_writer: Any, exported_programs: Any, opset_version: Any = None, pickle_protocol: Any = 2
) -> None:
    """torch.export.save: the records of the program are made by C, straight from the objects of torch"""
    program = _only_program(exported_programs)
    if program is None or type(archive_writer) is not _package.PT2ArchiveWriter or not _is_usual():
        return stock(archive_writer, exported_programs, opset_version, pickle_protocol)
    records = None
    try:
        records = _records(program, opset_version, pickle_protocol)
    except Exception:  # torch tells what is wrong, if anything
        pass
    if records is None:  # not above, where torch's exception would tell of ours
        return stock(archive_writer, exported_programs, opset_version, pickle_protocol)
    for name, data in records:
        _write(archive_writer, name, data)
    return None


def _only_program(programs: Any) -> Any:
    if type(programs) is dict and list(programs) == ["model"]:
        programs = programs["model"]
    return programs if type(programs) is torch.export.ExportedProgram else None


def _records(program: Any, opset_version: Any, pickle_protocol: Any) -> list[tuple[str, Any]]:
    from fastexport import _torch_save, _torch_serializer

    _require(_torch_serializer.SAVES and not _torch_serializer.is_of_a_backend(program) and is_ordinary(program))
    _require(program.graph_signature.output_specs)  # without any, torch raises
    _require(type(pickle_protocol) is int and (opset_version is None or type(opset_version) is dict))
    return _torch_save.records(program, opset_version=opset_version, pickle_protocol=pickle_protocol, exact=True)


def _write(writer: Any, name: str, data: bytes | memoryview) -> None:
    """One record, as torch writes it; the memory of a tensor is not copied."""
    if isinstance(data, bytes):
        writer.write_bytes(name, data)
    else:
        block: Any = data.obj  # of _torch_save
        writer.archive_file.write_record(name, block.storage, data.nbytes)


def _verify_save(ours: Any, stock: Any, args: Any, kwargs: Any) -> Any:
    """Compare what both write, each into a file of its own."""
    program = _only_program(args[1]) if len(args) > 1 else None
    if program is None:
        return ours(*args, **kwargs)

    def written(function: Any) -> Any:
        def package_programs(writer: Any, *args: Any, **kwargs: Any) -> bytes:
            file = io.BytesIO()
            with _package.PT2ArchiveWriter(file) as other:
                function(other, *args, **kwargs)
            return file.getvalue()

        return package_programs

    verify_result(written(ours), written(stock), args, kwargs)
    return stock(*args, **kwargs)


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "load_program",
        (f"{_package.__name__}:load_pt2", "torch._inductor.package.package:load_pt2"),
        load_pt2,
        ("3adc37177f0078c3",),
        verify=_verify_load,
    ),
    Replacement(
        "save_program",
        (f"{_package.__name__}:_package_exported_programs",),
        package_programs,
        ("f499bce8827c4db0",),
        verify=_verify_save,
    ),
)
