"""The bridge to torch.export: how torch reads its own files, and makes its programs.

This is the one module that relies on that. What it relies on is checked when it is imported; on a torch where that
differs `FAST` is false, and the work goes through torch's public API instead (see `_torch_program`), with the same
result.
"""

from __future__ import annotations

import copy
import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.export
import torch.fx
from torch.fx.graph_module import GraphModule

from fastexport import _core, _torch, _torch_public
from fastexport._graph import Graph

try:
    from torch._export import verifier as torch_verifier
    from torch._export.serde import schema, serialize
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.export import exported_program as torch_program
    from torch.fx.experimental import symbolic_shapes

    from fastexport.acceleration import _export as fast_export
    from fastexport.acceleration import _graph_serialization as fast_values
    from fastexport.acceleration import _recompile as fast_code
    from fastexport.acceleration._known import are_known
    from fastexport.acceleration._replacement import stock_behind
except (ImportError, AttributeError):
    _FOUND = False
else:
    _FOUND = True

__all__ = [
    "FAST",
    "FileReader",
    "build_graph",
    "create_module",
    "create_program",
    "loaded_verifiers",
    "make_repeats_apart",
    "reader_for",
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


FAST = _configure()
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
        self._kinds: dict[Any, tuple[Any, Any, torch.dtype, torch.device]] = {}
        self._symbols: dict[Any, Any] = {}
        self._parsed: dict[tuple[str, str], Any] = {}
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
        """A fake tensor; all but the first of their kind are made from a meta tensor, without dispatch."""
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
        if known is None or not self._is_plain:
            fake = self._reader.deserialize_tensor_meta(_decode(schema.TensorMeta, meta))
            sizes, strides = tuple(map(self.sym_int, meta["sizes"])), tuple(map(self.sym_int, meta["strides"]))
            self._kinds[key] = sizes, strides, fake.dtype, fake.fake_device
            return fake
        sizes, strides, dtype, fake_device = known
        fake = FakeTensor(self._mode, torch.empty_strided(sizes, strides, dtype=dtype, device="meta"), fake_device)
        return fake.requires_grad_(True) if key[5] else fake

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
        """The metadata of a node, in torch's order; each text of a stack is parsed once."""
        meta: dict[str, Any] = {}
        for key in _METADATA:
            if text := strings.get(key):
                meta[key] = text if key == "stack_trace" else self._metadata(key, text)
        return meta

    def _metadata(self, key: str, text: str) -> Any:
        copy = _COPIES.get(key)
        if copy is None:
            return self._reader.deserialize_metadata({key: text})[key]
        parsed = self._parsed.get((key, text))
        if parsed is None:
            parsed = self._parsed[key, text] = self._reader.deserialize_metadata({key: text})[key]
        return copy(parsed)

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
            return self._reader.deserialize_module_call_graph(
                [_decode(schema.ModuleCallEntry, entry) for entry in entries]
            )

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
# In torch's order.
_METADATA = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node")
# How what is parsed once is given out again.
_COPIES: Mapping[str, Callable[[Any], Any]] = {
    "nn_module_stack": dict,
    "source_fn_stack": list,
    "torch_fn": lambda names: names,
}


def _decode(cls: Any, value: Any) -> Any:
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
) -> torch.export.ExportedProgram:
    """What the constructor of torch's class makes, in the same order, of a module that is nobody else's.

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
    _validate(program)
    program._guards_code = guards_code
    return program
