"""The bridge to torch.export: how torch reads its own files, and makes its programs.

This is the one module that relies on that. What it relies on is checked when it is imported; on a torch where that
differs `FAST` is false, and the work goes through torch's public API instead (see `_torch_program`), with the same
result.
"""

from __future__ import annotations

import copy
import functools
import inspect
import io
import json
import operator
import pickle
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import IO, Any

import torch
import torch.export
import torch.fx
from torch.fx.graph_module import GraphModule

from fastexport import _core, _torch, _torch_public
from fastexport._graph import Graph

try:
    from torch._export import verifier as torch_verifier
    from torch._export.serde import schema, serialize
    from torch._library.opaque_object import is_opaque_value
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.export import exported_program as torch_program
    from torch.export.pt2_archive import _package as torch_package
    from torch.export.pt2_archive import _package_weights as torch_weights
    from torch.fx import graph as torch_graph
    from torch.fx.experimental import symbolic_shapes
    from torch.fx.traceback import NodeSource

    from fastexport.acceleration import _export as fast_export
    from fastexport.acceleration import _graph_serialization as fast_values
    from fastexport.acceleration import _recompile as fast_code
    from fastexport.acceleration import _schema_plans as fast_objects
    from fastexport.acceleration._known import are_known
    from fastexport.acceleration._replacement import stock_behind
except (ImportError, AttributeError):
    _FOUND = False
else:
    _FOUND = True

__all__ = [
    "FAST",
    "SAVES",
    "FileReader",
    "build_graph",
    "code_of",
    "create_module",
    "create_program",
    "describe",
    "document",
    "example_bytes",
    "hash_of_names",
    "is_custom",
    "is_fake",
    "is_of_a_backend",
    "is_pickled",
    "loaded_verifiers",
    "make_repeats_apart",
    "modules_as_inputs",
    "only_we_write",
    "operator_text",
    "pickled",
    "reader_for",
    "save_by_torch",
    "sources",
    "storages",
    "symbolic_json",
    "take_names",
    "unpickled",
    "validate",
]

# Digests of the source texts of what is done here in other words, or relied on in its details.
_READER = {
    "deserialize": "ff3a77fd79673d83",
    "deserialize_graph": "d640d60b3f4b61c1",
    "deserialize_node": "a75e01ed11bdf43e",
    "deserialize_outputs": "7454e4adb649a6a9",
    "deserialize_multiple_outputs": "a7adb8033bfa6d2a",
    "generate_getitem": "bd5a8898af62bbe2",
    "generate_getitems": "4f1c17aa8e03b021",
    "deserialize_metadata": "6b57d85a4158b568",
    "deserialize_tensor_meta": "eae0ef3450d2ea94",
    "deserialize_input_spec": "7c0341a3b5c9aee8",
    "deserialize_output_spec": "95787f3688735c59",
    "deserialize_argument_spec": "31136bb32487f917",
    "_parse_sym_expr": "396712c6dffcd98e",
    "sync_fx_node": "b700c9e4065316a7",
}
_PROGRAM = {"__init__": "f12b896c54172571", "validate": "a3dd712b81f7fc7d", "_validate": "5b915d65c0d3a70e"}
_PROGRAM_FUNCTIONS = {
    "_create_graph_module_for_export": "48b7876d28b72335",
    "_common_getitem_elimination_pass": "ef3aa4a36ace00ca",
}
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
_VERIFIER = {"check": "57b18cfbdf2acf23", "_check_graph_module": "20acfb8e6fbddde3"}


def _configure() -> bool:
    """Whether this torch reads its files and makes its programs the way that is known here."""
    try:
        return (
            _FOUND
            and _torch._FAST
            and are_known(vars(serialize.GraphModuleDeserializer), _READER)
            and are_known(vars(torch_program.ExportedProgram), _PROGRAM)
            and are_known(vars(torch_program), _PROGRAM_FUNCTIONS)
            and are_known(vars(torch_verifier.Verifier), _VERIFIER)
        )
    except AttributeError:
        return False


def _configure_saving() -> bool:
    """Whether this torch writes its files the way that is known here."""
    try:
        return (
            FAST
            and are_known(vars(serialize.GraphModuleSerializer), _WRITER)
            and are_known(vars(serialize), _WRITER_FUNCTIONS)
            and are_known(vars(torch_package), _PACKAGE)
            and are_known(vars(torch_weights), _WEIGHTS)
        )
    except AttributeError:
        return False


FAST = _configure()
SAVES = _configure_saving()
_lock = threading.Lock()
_LINT = torch.fx.Graph.lint


# ---- what a file says, as torch has it -----------------------------------------------------------------------------


class FileReader:
    """torch's reader of one program, set up but for the graph; it makes values and metadata of what the file says.

    Values of one kind are made the long way once, by torch, so that it is seen whether there can be such a value.

    Args:
        module: the GraphModule of the file's document; graph, signature and module call graph are not looked at.
        ranges: expression -> (least or None, greatest or None).
        constants: name -> tensor or object.
        example_inputs: (args, kwargs), or None.
    """

    def __init__(
        self,
        module: Mapping[str, Any],
        ranges: Mapping[str, tuple[int | None, int | None]],
        constants: dict[str, Any],
        example_inputs: tuple[Any, ...] | None,
    ) -> None:
        empty = {
            **module,
            "graph": dict(_EMPTY_GRAPH),
            "signature": {"input_specs": [], "output_specs": []},
            "module_call_graph": [],
        }
        self._ranges = {name: _range_of(*bounds) for name, bounds in ranges.items()}
        self._reader = serialize.GraphModuleDeserializer()
        with _lock:  # torch notes its reader in a global
            read = self._reader.deserialize(
                _decode(schema.GraphModule, empty), {}, constants, example_inputs, self._ranges
            )
        self.module_meta: dict[str, Any] = read.graph_module.meta
        self.example_inputs = read.example_inputs
        self._mode = self._reader.fake_tensor_mode
        self._is_plain = type(self._mode) is FakeTensorMode and fast_values._plain_context()
        self._kinds: dict[Any, fast_values.FakeKind] = {}
        self._symbols: dict[Any, Any] = {}
        self._frames: dict[str, tuple[str, Any]] = {}
        self._targets: dict[str, Any] = {}
        self._values: tuple[Callable[[Any], Any], ...] = (
            lambda value: None,
            self.tensor,
            self.sym_int,
            lambda value: self._reader.deserialize_sym_float(_decode(schema.SymFloat, value)),
            lambda value: self._reader.deserialize_sym_bool(_decode(schema.SymBool, value)),
            lambda value: self._reader.deserialize_script_obj_meta(_decode(schema.CustomObjArgument, value)),
        )

    def join(self, mode: FakeTensorMode) -> None:
        """Make values of another program's mode from now on, and with its symbols."""
        self._mode = self._reader.fake_tensor_mode = mode
        if mode.shape_env is not None:
            self._reader.shape_env = mode.shape_env
            self._reader.symbol_name_to_symbol.update((str(symbol), symbol) for symbol in mode.shape_env.var_to_range)

    # ---- values

    def value(self, kind: int, value: Any) -> Any:
        """The value of a node, of a kind of csrc/pt2/program.h's pt2_value_kind, from its JSON."""
        return self._values[kind](value)

    def tensor(self, meta: Mapping[str, Any]) -> FakeTensor:
        """A fake tensor; all but the first of their kind are made without dispatch, and without torch's arithmetic."""
        device = meta["device"]
        key = (
            tuple([_size_key(size) for size in meta["sizes"]]),
            tuple([_size_key(size) for size in meta["strides"]]),
            meta["dtype"],
            device["type"],
            device.get("index"),
            meta["requires_grad"],
        )
        known = self._kinds.get(key)
        if known is not None and self._is_plain:
            return known.make()
        fake = self._reader.deserialize_tensor_meta(_decode(schema.TensorMeta, meta))
        sizes, strides = tuple(map(self.sym_int, meta["sizes"])), tuple(map(self.sym_int, meta["strides"]))
        self._kinds[key] = fast_values.FakeKind(fake, sizes, strides)
        return fake

    def sym_int(self, value: Mapping[str, Any]) -> Any:
        """A whole number or a SymInt."""
        key = _size_key(value)
        if type(key) is int:
            return key
        known = self._symbols.get(key)
        if known is None:
            known = self._symbols[key] = self._reader.deserialize_sym_int(_decode(schema.SymInt, value))
        return known

    # ---- metadata

    def metadata(self, strings: Mapping[str, str]) -> dict[str, Any]:
        """The metadata of a node, in torch's order; what comes again and again is read by torch once."""
        meta: dict[str, Any] = {}
        for key in _METADATA:
            if text := strings.get(key):
                meta[key] = self._of_text(key, text)
        return meta

    def _of_text(self, key: str, text: str) -> Any:
        if key == "stack_trace":
            return text
        if key == "nn_module_stack":
            return self._modules(text)
        if key == "source_fn_stack":
            return self._sources(text)
        if key == "torch_fn":
            return tuple(text.split(";"))
        return self._by_torch(key, text)

    def _by_torch(self, key: str, text: str) -> Any:
        return self._reader.deserialize_metadata({key: text})[key]

    def _modules(self, text: str) -> dict[str, Any]:
        known, items = self._frames, text.split(";")
        for item in items:
            if item not in known:
                parts = item.split(",")
                if len(parts) != 3 or not _BRACKETS.isdisjoint(item):
                    return self._by_torch("nn_module_stack", text)
                known[item] = parts[0], (parts[1], parts[2])
        return dict([known[item] for item in items])

    def _sources(self, text: str) -> list[tuple[str, Any]]:
        made = []
        for item in text.split(";"):
            name, _, target = item.partition(",")
            if target not in self._targets:
                found = self._by_torch("source_fn_stack", text)
                if "," not in target:
                    self._targets[target] = self._by_torch("source_fn_stack", f"x,{target}")[0][1]
                return found
            made.append((name, self._targets[target]))
        return made

    # ---- the graph's symbols

    def enter(self) -> Any:
        """Begin with a subgraph, which binds symbols of its own; gives what `leave` wants."""
        kept, self._reader.unbacked_symbols = self._reader.unbacked_symbols, set()
        return kept

    def leave(self, kept: Any) -> None:
        """End with a subgraph."""
        self._reader.unbacked_symbols = kept

    def note_assertion(self, node: torch.fx.Node) -> None:
        """What a node says of symbols."""
        env = self._reader.shape_env
        if node.target is torch.ops.aten._assert_scalar.default:
            if isinstance(node.args[0], torch.fx.Node):
                value = node.args[0].meta["val"]
                if isinstance(value, torch.SymBool):
                    env.guard_or_defer_runtime_assert(value.node.expr, "", node)
        elif node.target is torch.ops.aten.sym_constrain_range_for_size.default:
            value = node.args[0].meta["val"]
            if isinstance(value, torch.SymInt):
                env._constrain_range_for_size(value.node.expr)

    def bind_symbols(self, graph: torch.fx.Graph) -> None:
        """Note at each node which symbols it binds.

        Raises:
            ValueError: a symbol is bound nowhere.
        """
        pending = self._reader.unbacked_symbols
        for node in graph.nodes if pending else ():
            value = node.meta.get("val")
            if value is not None:
                found = symbolic_shapes._free_unbacked_symbols_with_path(
                    value, (), shape_env=self._reader.shape_env, pending=pending, simplify=True
                )
                if found:
                    node.meta["unbacked_bindings"] = found
        if pending:
            raise ValueError(f"no node of the graph gives the symbols {', '.join(sorted(map(str, pending)))}")

    def has_all_symbols(self) -> bool:
        """Whether each symbol that has a range was met in the graph."""
        return all(map(self._reader.symbol_name_to_symbol.get, self._ranges))

    def range_constraints(self) -> dict[Any, Any]:
        """What each symbol of the graph may be."""
        return serialize.ExportedProgramDeserializer().deserialize_range_constraints(
            self._ranges, self._reader.symbol_name_to_symbol
        )

    # ---- the rest of the document

    def module_calls(self, entries: Iterable[Mapping[str, Any]], nodes: dict[str, torch.fx.Node]) -> list[Any]:
        """The module call graph."""
        self._reader.serialized_name_to_node = nodes
        with serialize._enable_graph_inputs_of_type_nn_module(self.example_inputs):
            return [self._module_call(entry) for entry in entries]

    def _module_call(self, entry: Mapping[str, Any]) -> Any:
        if entry.get("signature") is None:
            return torch_program.ModuleCallEntry(fqn=entry["fqn"], signature=None)
        [made] = self._reader.deserialize_module_call_graph([_decode(schema.ModuleCallEntry, entry)])
        return made

    def argument(self, argument: Mapping[str, Any], nodes: dict[str, torch.fx.Node]) -> Any:
        """An argument of the file as it is in a graph."""
        self._reader.serialized_name_to_node = nodes
        return self._reader.deserialize_input(_decode(schema.Argument, argument))


_EMPTY_GRAPH: Mapping[str, Any] = {
    "inputs": [],
    "outputs": [],
    "nodes": [],
    "tensor_values": {},
    "sym_int_values": {},
    "sym_bool_values": {},
    "is_single_tensor_return": False,
    "custom_obj_values": {},
    "sym_float_values": {},
}
_BRACKETS = frozenset("[(])")  # commas between them don't count
# In torch's order.
_METADATA = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node")


def _decode(cls: Any, value: Any) -> Any:
    try:
        return fast_objects.plan(cls).decode(value)
    except Exception:  # torch tells what is wrong, if anything
        return serialize._dict_to_dataclass(cls, value)


def _range_of(lower: int | None, upper: int | None) -> Any:
    bound = serialize._int_to_sympy_int
    return symbolic_shapes.ValueRanges(bound(lower, -serialize.int_oo), bound(upper, serialize.int_oo))


def _size_key(size: Mapping[str, Any]) -> Any:
    """A number, or what tells a symbolic one from others."""
    number = size.get("as_int")
    if number is not None:
        return number
    expr = size["as_expr"]
    hint = expr.get("hint")
    return expr["expr_str"], None if hint is None else tuple(hint.items())


def reader_for(graph: torch.fx.Graph) -> FileReader:
    """A reader that makes values like those of a graph's nodes, whose meta holds some."""
    reader = FileReader({"metadata": {}, "treespec_namedtuple_fields": {}}, {}, {}, None)
    for node in graph.nodes:
        value = node.meta.get("val")
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, FakeTensor):
                reader.join(item.fake_mode)
                return reader
    return reader


# ---- graphs ---------------------------------------------------------------------------------------------------------


def build_graph(graph: Graph, built: torch.fx.Graph, convert: Callable[[Any], Any]) -> None:
    """Fill an empty torch graph from a native one, without meta.

    Args:
        convert: gives what stands in arguments for a DType and the like.
    """
    (_core.fx_build if _torch._FAST else _torch_public.build)(graph, built, convert, False)


def take_names(graph: torch.fx.Graph) -> None:
    """Let the names that a graph has taken be those that it takes when torch reads it from a file.

    torch makes a node called `input` as `input_1`, and calls it `input` then.
    """
    if torch_graph._illegal_names.keys().isdisjoint([node.name for node in graph.nodes]):
        return
    taken = type(graph._graph_namespace)()
    for node in graph.nodes:
        taken.associate_name_with_obj(taken.create_name(node.name, None), node)
    graph._graph_namespace = taken


# ---- programs --------------------------------------------------------------------------------------------------------


def create_module(
    graph: torch.fx.Graph, members: Mapping[str, Any], meta: Mapping[str, Any], *, name: str = "GraphModule"
) -> GraphModule:
    """A GraphModule whose code is generated when somebody looks at it, where that is possible.

    Args:
        graph: its graph.
        members: what get_attr nodes name: path -> module or tensor, in the order of those nodes.
        meta: what the module's meta holds.
        name: of its class.
    """
    root = torch.nn.Module()
    for path, member in members.items():
        _assign(root, path, member)
    module = GraphModule(root, torch.fx.Graph() if FAST else graph, name)
    if FAST:
        for path, member in members.items():
            _assign(module, path, member)
        module._graph = graph
        graph.owning_module = module
        _make_code(module)
    module.meta.update(meta)
    return module


def _make_code(module: GraphModule) -> None:
    try:
        fast_code.recompile(lambda self: self.recompile(), module)
    except SyntaxError:  # as torch does
        warnings.warn(
            "The code of the graph can't be compiled. The graph module can't be called, but the program can be run, "
            "and the graph module by torch.fx.Interpreter.",
            stacklevel=3,
        )


def _assign(module: Any, path: str, member: Any) -> None:
    *prefix, name = path.split(".")
    for part in prefix:
        if not hasattr(module, part):
            setattr(module, part, torch.nn.Module())
        module = getattr(module, part)
    if isinstance(member, torch.Tensor) and not isinstance(member, torch.nn.Parameter):
        module.register_buffer(name, member)
    else:
        setattr(module, name, member)


def loaded_verifiers(dialects: Iterable[str]) -> list[Any]:
    """The verifiers of dialects.

    Raises:
        ValueError: nobody has registered one of them.
    """
    try:
        return [torch_verifier.load_verifier(dialect) for dialect in dialects]
    except KeyError as error:
        raise ValueError(f"no verifier is registered for the dialect {error}; import the package that has it") from None


def make_repeats_apart(module: GraphModule, module_call_graph: list[Any]) -> list[Any]:
    """A module call graph that may be changed when repeated getitems of a module go: a copy if there are any."""
    if FAST and not any(map(fast_export._has_repeated_getitems, module.modules())):
        return module_call_graph
    return copy.deepcopy(module_call_graph)


@functools.cache
def _stock_check() -> Callable[..., Any]:
    torchs: Any = stock_behind(vars(torch_verifier.Verifier)["_check_graph_module"])

    def check(self: Any, gm: Any) -> Any:
        return torchs(self, gm)

    check.__wrapped__ = torchs  # type: ignore[attr-defined]
    return check


def _validate(program: Any) -> None:
    from fastexport._torch_verifier import as_ours

    with as_ours():
        for cls in program._verifiers:
            verifier = cls()
            verifier._check_graph_module = functools.partial(_check_modules, verifier)
            verifier.check(program)


def _check_modules(verifier: Any, module: GraphModule) -> None:
    """As `fast_export.check_graph_module`, with lint in C; where that finds a fault, torch says what it is."""
    parts = (torch_verifier._check_val, torch_verifier.getattr_recursive, type(module.graph).lint)
    if parts != (fast_export._CHECK_VAL, fast_export._GETATTR, _LINT):
        return fast_export.check_graph_module(_stock_check(), verifier, module)
    check = fast_export._Check(_stock_check(), verifier)
    try:
        for child in module.modules():
            if isinstance(child, GraphModule):
                if _core.fx_lint(child.graph, False, True):
                    child.graph.lint()
                check.module(child, child is module)
    except fast_export._Unfit:
        _stock_check()(verifier, module)
        return
    verifier.check_additional(module)


def create_program(
    module: GraphModule,
    signature: Any,
    state_dict: dict[str, Any],
    range_constraints: dict[Any, Any],
    module_call_graph: list[Any],
    example_inputs: Any,
    constants: dict[str, Any] | None,
    verifiers: list[Any],
    guards_code: list[str],
    *,
    checked: bool = False,
) -> torch.export.ExportedProgram:
    """What the constructor of torch's class makes, in the same order, of a module that is nobody else's.

    Args:
        checked: verifiers need not look at it; where torch's constructor is called, they do.

    Raises:
        SpecViolationError: torch's verifier has found a fault.
    """
    if not FAST:
        made = torch.export.ExportedProgram(
            module,
            module.graph,
            signature,
            state_dict,
            range_constraints,
            module_call_graph,
            example_inputs,
            constants,
            verifiers=verifiers,
        )
        made._guards_code = guards_code
        return made
    program: Any = object.__new__(torch.export.ExportedProgram)
    module.graph._codegen = torch.fx.graph.CodeGen()
    program._graph_module = module
    fast_export.eliminate_getitems(torch_program._common_getitem_elimination_pass, module, signature, module_call_graph)
    program._graph_signature = signature
    program._state_dict = state_dict
    program._range_constraints = range_constraints
    program._module_call_graph = module_call_graph
    program._example_inputs = example_inputs
    program._constants = {} if constants is None else constants
    program._verifiers = verifiers or [torch_verifier.Verifier]
    if not all(issubclass(verifier, torch_verifier.Verifier) for verifier in program._verifiers):
        raise AssertionError(f"all verifiers must be subclasses of Verifier, got {verifiers}")
    if not checked:
        _validate(program)
    program._guards_code = guards_code
    return program


# ---- what a file is to say of a program ------------------------------------------------------------------------------


def validate(program: torch.export.ExportedProgram) -> None:
    """What torch's serializer does first.

    Raises:
        SpecViolationError: torch's verifier has found a fault.
    """
    if FAST and type(program) is torch.export.ExportedProgram and program.verifiers:
        _validate(program)
    else:
        program.validate()


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
    versions = dict(opset_version or {})
    versions.setdefault("aten", torch._C._get_max_operator_version())
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
        "guards_code": program._guards_code,
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


def unpickled(data: bytes) -> Any:
    """A custom object, of what `pickled` gives for one."""
    return torch._C._pickle_load_obj(data)


def storages(tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[list[str], torch.Tensor]]:
    """The names of tensors with one storage and dtype, and a tensor that covers all of them."""
    if not tensors:
        return
    named = {name: (tensor, torch_weights.TensorProperties(tensor)) for name, tensor in tensors.items()}
    weights = {"model": torch_weights.Weights(named)}
    for group in torch_weights.group_weights(weights):
        yield [name for _, name in group], torch_weights.get_complete_tensor(group, weights)
