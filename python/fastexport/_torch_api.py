"""`from_export`, `export` and its like: what makes programs of torch objects. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastexport._arguments import check_mapping

if TYPE_CHECKING:
    from fastexport._torch_source import TorchProgram

__all__ = ["export", "export_for_inference", "export_for_training", "from_export"]


def from_export(program: Any) -> TorchProgram:
    """Read a torch.export.ExportedProgram, exactly.

    The graph and its subgraphs come into the core, with the same objects as meta; all else is shared with the torch
    program: weights, constants, range constraints, module call graph, example inputs, guards and verifiers. What
    inputs and outputs stand for follows edits of the graph. ``to_torch()`` gives an equal torch program back, or the
    edited one.

    Args:
        program: the torch program. It is left as it is.

    Raises:
        TypeError: it is no torch.export.ExportedProgram, or a part of it is not of the class that it has to be.
        ValueError: its graph is malformed, or its signature names a node that there is none of.

    Example:
        >>> import torch, fastexport
        >>> exported = torch.export.export(torch.nn.Linear(2, 3), (torch.zeros(1, 2),))
        >>> ep = fastexport.from_export(exported)
        >>> ep.graph_signature.user_inputs
        ('input',)
        >>> ep.state_dict["weight"] is exported.state_dict["weight"]
        True
        >>> str(ep.to_torch()) == str(exported)
        True
    """
    from fastexport import _torch_source

    return _torch_source.from_export(program)


def export(mod: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, **options: Any) -> TorchProgram:
    """Export a module with torch.export.export, and read the result with `from_export`.

    Args:
        mod: a torch.nn.Module.
        args: example arguments.
        kwargs: example keyword arguments.
        options: what torch.export.export takes beside these: dynamic_shapes, strict,
            preserve_module_call_signature and so on.

    Raises:
        Exception: what torch.export.export raises.

    Example:
        >>> import torch, fastexport
        >>> ep = fastexport.export(torch.nn.ReLU(), (torch.zeros(2),))
        >>> [node.op for node in ep.graph.nodes]
        ['placeholder', 'call_function', 'output']
    """
    from fastexport import _torch_source

    return _torch_source.export(mod, args, kwargs, **options)


def export_for_training(
    mod: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, **options: Any
) -> TorchProgram:
    """The same as `export`: since torch 2.9 that gives the training dialect.

    Example:
        >>> import torch, fastexport
        >>> fastexport.export_for_training(torch.nn.ReLU(), (torch.zeros(2),)).dialect
        'TRAINING'
    """
    return export(mod, args, kwargs, **options)


def export_for_inference(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    decomp_table: Mapping[Any, Any] | None = None,
    **options: Any,
) -> TorchProgram:
    """Export a module, and decompose its operators.

    Args:
        mod, args, kwargs, options: as of `export`.
        decomp_table: operator -> its decomposition; None: torch's own table, for the core operators of ATen.

    Example:
        >>> import torch, fastexport
        >>> fastexport.export_for_inference(torch.nn.ReLU(), (torch.zeros(2),)).dialect
        'ATEN'
    """
    from fastexport import _torch_source

    check_mapping("decomp_table", decomp_table)
    return _torch_source.export_for_inference(mod, args, kwargs, decomp_table=decomp_table, **options)
