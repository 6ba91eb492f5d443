"""Shapes and fake tensors of all nodes, found by running the graph with torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from fastexport._graph import Graph
from fastexport._passes import _own_graph
from fastexport._results import PassResult
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

__all__ = ["propagate_shapes", "refresh_fake_tensors"]


def propagate_shapes(g: Any, *args: Any, fake_mode: Any = None, explain: bool = False) -> PassResult:
    """Run a graph on example inputs and note what each node gives. Needs torch.

    Each node gets ``meta["type"]`` and, where it gives tensors, ``meta["tensor_meta"]``: what ShapeProp of torch.fx
    notes, which runs the graph here too. Unlike there, the nodes of modules that are called, and of branches and bodies
    of higher-order operators that are run, get theirs.

    Args:
        g: a fastexport Graph, GraphModule or ExportedProgram, or a torch.fx.Graph, GraphModule or ExportedProgram.
        *args: one for each placeholder of a graph, or for each input that a caller gives to a program.
        fake_mode: a FakeTensorMode to run in, where nothing is computed.
        explain: tell what was noted at each node.

    Returns:
        A `PassResult`; true when an entry is another than before.

    Raises:
        TypeError: g is none of these.
        ValueError: a program takes another number of inputs.
        RuntimeError: a node raises; the exception's cause tells why.

    Example:
        >>> import torch
        >>> g = Graph()
        >>> y = g.call_function(torch.cat, ([g.placeholder("x")] * 2,))
        >>> out = g.output(y)
        >>> bool(propagate_shapes(g, torch.ones(2, 3))), y.meta["tensor_meta"].shape
        (True, torch.Size([4, 3]))
    """

    def run(module: Any, values: list[Any], reached: set[Any]) -> None:
        from fastexport._torch_propagation import Shapes

        Shapes(module, fake_mode, reached).propagate(*values)

    return _propagate("propagate_shapes", g, args, run, ("tensor_meta", "type", "unbacked_bindings"), explain, False)


def refresh_fake_tensors(g: Any, mode: Any = None, *args: Any, explain: bool = False) -> PassResult:
    """Compute ``meta["val"]`` of all nodes anew, without computing values. Needs torch.

    Args:
        g: as for `propagate_shapes`.
        mode: the FakeTensorMode; None: that of the fake tensors in the meta of the placeholders, or else a new one; for
            a program of a file with symbols that of the program that `to_torch` gives, so that symbols stay the same.
        *args: tensors, fake or not, one for each placeholder of a graph, or for each input that a caller gives to a
            program; none: what the meta of the placeholders tells.
        explain: tell what was noted at each node.

    Returns:
        A `PassResult`; true when an entry is another than before. A graph that was read from a file gets `TensorMeta`.

    Raises:
        TypeError: g is none of these.
        ValueError: an input is neither given nor told by meta, or a program takes another number of inputs; or the
            graph of a file has symbols that only its program knows.
        VerifyError: a program of a file with symbols has errors.
        Exception: what a node raises.

    Source: FakeTensorProp in torch/fx/passes/fake_tensor_prop.py of torch 2.13, which does it; here it goes into
    subgraphs, as `propagate_shapes` does.

    Example:
        >>> import torch
        >>> g = Graph()
        >>> y = g.call_function(torch.cat, ([g.placeholder("x")] * 2,))
        >>> out = g.output(y)
        >>> bool(refresh_fake_tensors(g, None, torch.ones(2, 3))), y.meta["val"].shape
        (True, torch.Size([4, 3]))
    """

    def run(module: Any, values: list[Any], reached: set[Any]) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        from fastexport._torch_propagation import FakeTensors, mode_of

        chosen = mode or mode_of(values)
        if chosen is None:
            # Sizes are numbers; loops ask for an environment all the same.
            chosen = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
        with chosen:
            values = [_tensor_like(value) if isinstance(value, TensorMeta) else value for value in values]
        FakeTensors(module, chosen, reached).propagate(*values)

    return _propagate("refresh_fake_tensors", g, args or None, run, ("val", "unbacked_bindings"), explain, mode is None)


def _tensor_like(meta: TensorMeta) -> Any:
    import torch

    from fastexport._dtypes import to_torch

    return torch.empty_strided(meta.shape, meta.stride, dtype=to_torch(meta.dtype), device=to_torch(meta.device))


# ---- graphs and programs


def _propagate(
    name: str,
    g: Any,
    args: tuple[Any, ...] | None,
    run: Callable[[Any, list[Any], set[Any]], None],
    keys: tuple[str, ...],
    explain: bool,
    keep_symbols: bool,
) -> PassResult:
    """keep_symbols: those of a file, such as u0, are the same afterwards, as its ranges name them."""
    start = time.perf_counter()
    own = _own_graph(g, name)
    if own is None:
        from fastexport import _adapter

        with _adapter.native_edit(g) as native:
            result = _propagate(name, native, args, run, keys, explain, keep_symbols)
    else:
        of_program = own is not g and hasattr(g, "graph_signature")
        graph, values = own, _program_inputs(g, args) if of_program else args
        keep_symbols = keep_symbols and graph._file_version is not None and not _are_fake(values)
        is_rebuilt = keep_symbols and of_program and (bool(g.range_constraints) or _has_symbols(graph))
        if values is None:
            values = [_told(node, with_symbols=is_rebuilt) for node in graph.nodes if node.op == "placeholder"]
        if is_rebuilt:
            from fastexport._torch_propagation import rebuilt

            module, values = rebuilt(g, values)
        else:
            module = _module_of(graph)
        taking = _Taking(keys, of_program, {} if explain else None)
        run(module, list(values), taking.reached)
        if keep_symbols and not is_rebuilt:
            _refuse_symbols(name, taking.reached)
        result = PassResult(name, taking.over(graph, module, ""), reasons=taking.reasons)
    result.seconds = time.perf_counter() - start
    return result


def _module_of(graph: Graph) -> Any:
    """A module of torch that runs a graph."""
    import torch

    from fastexport._graph_module import GraphModule

    owner = graph.owning_module
    if not isinstance(owner, GraphModule):
        return graph.to_fx(torch.nn.Module() if owner is None else owner)
    return owner.to_fx() if owner.graph is graph else graph.to_fx(owner.to_fx())


def _has_symbols(graph: Graph) -> bool:
    """Whether a value in a graph of a file depends on symbols, here or below."""
    return any(map(_is_symbolic, (value for node in graph.nodes for value in _flat(node.meta.get("val"))))) or any(
        map(_has_symbols, (graph.subgraphs or {}).values())
    )


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, SymInt | SymFloat | SymBool) or (isinstance(value, TensorMeta) and bool(value.symbols))


def _are_fake(values: Any) -> bool:
    """Whether the caller gives fake tensors, and so a mode."""
    from fastexport._torch_propagation import mode_of

    return mode_of(values or ()) is not None


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _refuse_symbols(name: str, reached: set[Any]) -> None:
    """See that a run has not made symbols, which might have the names of others in the file.

    Raises:
        ValueError: it has.
    """
    from fastexport._torch_values import facts_of

    for node in reached:
        if any(_is_symbolic(facts_of(value)) for value in _flat(node.meta.get("val"))):
            raise ValueError(
                f"{name}: what the node {node.name!r} gives depends on data, and only the program knows by which "
                "symbol the file calls it; give the program, not its graph"
            )


def _told(node: Any, *, with_symbols: bool) -> Any:
    """What the meta of an input says of it."""
    value = node.meta.get("val")
    if value is None and "val" not in node.meta:
        raise ValueError(f"the input {node.name!r} has no meta['val']; give the inputs")
    if not with_symbols and any(
        isinstance(size, SymInt | SymFloat | SymBool) for size in getattr(value, "shape", (value,))
    ):
        raise ValueError(
            f"the input {node.name!r} is {value}, of a size that is a symbol of the file; give the inputs, or the "
            "program of the graph and no mode"
        )
    return value


def _program_inputs(program: Any, args: tuple[Any, ...] | None) -> list[Any] | None:
    """What a program's graph takes, when a caller gives these."""
    if args is None:
        return None
    from fastexport._core import Tensor
    from fastexport._signature import InputKind
    from fastexport._tensors import to_torch_all

    given, values, ours = iter(args), [], {}
    inputs = program.graph_signature.input_specs
    users = sum(spec.kind is InputKind.USER_INPUT for spec in inputs)
    if users != len(args):
        raise ValueError(f"the program takes {users} inputs, flat, but {len(args)} are given")
    for spec in inputs:
        if spec.kind is InputKind.USER_INPUT:
            values.append(next(given))
            continue
        held = program.state_dict if spec.target in program.state_dict else program.constants
        value = held[spec.target]
        if isinstance(value, Tensor):
            ours[spec.target] = value
        values.append(value)
    if ours:
        converted = to_torch_all(ours)
        places = {id(value): path for path, value in ours.items()}
        values = [converted[places[id(value)]] if id(value) in places else value for value in values]
    return values


class _Taking:
    """Gives the nodes of a graph the entries that torch has noted at its own.

    Args:
        keys: of the entries.
        of_program: whether the graph is that of a program; its output has no value of its own.
        reasons: gets what was noted at each node; or None.

    Attributes:
        reached: the nodes of torch that were run.
    """

    def __init__(self, keys: tuple[str, ...], of_program: bool, reasons: dict[str, str] | None) -> None:
        self.reached: set[Any] = set()
        self.reasons = reasons
        self._keys, self._of_program = keys, of_program

    def over(self, graph: Graph, module: Any, prefix: str) -> bool:
        """Whether any entry is another than before, here and below."""
        modified = False
        for node, noted in zip(graph.nodes, module.graph.nodes, strict=True):
            reached = noted in self.reached
            changed = [key for key in self._keys if reached and self._take(graph, node, key, noted.meta)]
            modified |= bool(changed)
            if self.reasons is not None:
                self.reasons[prefix + node.name] = _reason(reached, changed)
        for path, subgraph in (graph.subgraphs or {}).items():
            modified |= self.over(subgraph, module.get_submodule(path), f"{prefix}{path}/")
        return modified

    def _take(self, graph: Graph, node: Any, key: str, noted: dict[str, Any]) -> bool:
        if key not in noted or (self._of_program and key == "val" and node.op == "output"):
            return False
        value = noted[key]
        if graph._file_version is not None:
            if key == "unbacked_bindings":  # a file says them by its values
                return False
            if key == "val":
                value = _as_file_meta(value, node.meta.get("val"))
        if _is_same(node.meta.get(key), value):
            return False
        node.meta[key] = value
        return True


def _reason(reached: bool, changed: list[str]) -> str:
    if not reached:
        return "kept: the run did not come to it"
    return f"noted: {', '.join(changed)}" if changed else "kept: what it gives is as it was noted before"


def _as_file_meta(value: Any, old: Any) -> Any:
    """What a graph from a file holds of a value. Gradients are not looked into: what was said of them stays."""
    if isinstance(value, (list, tuple)):
        known = old if isinstance(old, (list, tuple)) and len(old) == len(value) else [None] * len(value)
        return tuple(map(_as_file_meta, value, known))
    if not hasattr(value, "dtype") or not hasattr(value, "stride"):
        from fastexport._torch_values import facts_of

        number = facts_of(value)
        return value if number is None else number
    meta = TensorMeta.of(value)
    return meta.replace(requires_grad=old.requires_grad) if isinstance(old, TensorMeta) else meta


def _is_same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if isinstance(new, (list, tuple)) and not hasattr(new, "_fields"):
        return (
            isinstance(old, (list, tuple))
            and len(old) == len(new)
            and all(_is_same(a, b) for a, b in zip(old, new, strict=True))
        )
    if type(old) is not type(new):
        return False
    if not hasattr(new, "dtype") or not callable(getattr(new, "stride", None)):
        return bool(old == new)
    same = old.shape == new.shape and old.stride() == new.stride() and old.dtype == new.dtype
    return same and old.device == new.device and getattr(old, "fake_mode", None) is getattr(new, "fake_mode", None)
