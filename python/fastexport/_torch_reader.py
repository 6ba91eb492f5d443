"""The bridge to torch's reader of .pt2 files: values, metadata and calling conventions, as torch makes them of a file.

torch's own reader makes each thing once; what comes again is made from what it made. What that relies on is checked
when this is imported: where `IS_KNOWN` is false, torch reads whole files by its public API (see `_torch_program`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.export
import torch.fx

try:
    from torch._export.serde import schema, serialize
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.export import exported_program as torch_program
    from torch.fx.experimental import symbolic_shapes

    from fastexport.acceleration import _graph_serialization as fast_values
    from fastexport.acceleration import _schema_plans as fast_objects
    from fastexport.acceleration._known import are_known
except (ImportError, AttributeError):
    _FOUND = False
else:
    _FOUND = True

__all__ = ["IS_KNOWN", "METADATA", "FileReader", "extension_of", "reader_for"]

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


def _is_known() -> bool:
    """Whether this torch reads its files the way that is known here."""
    try:
        return _FOUND and are_known(vars(serialize.GraphModuleDeserializer), _READER)
    except AttributeError:
        return False


IS_KNOWN = _is_known()
_lock = threading.Lock()


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
        for key in METADATA:
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
METADATA = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node")


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


def extension_of(name: str) -> Any:
    """What a registered extension makes of a name in a file, or None. Source: torch/_export/serde/serialize.py."""
    namespace, _, op_name = name[1:].partition(":")
    handler = serialize._deserialization_registry.get(namespace) if _FOUND else None
    return None if handler is None else handler.from_op_name(op_name)
