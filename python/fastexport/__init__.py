"""fastexport: PyTorch graphs in a fast C core.

`load` opens .pt2 files without torch, as `ExportedProgram`; `save` writes them. `Graph` and `Node` have the API of
torch.fx; `from_fx` and `Graph.to_fx` convert; `eliminate_dead_code`, `eliminate_getitems`, `lint` and `run_passes` work
on these and, in place, on torch.fx graphs. Nothing here needs torch until a torch object is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from fastexport import _core
from fastexport._core import Expr, Node, Tensor
from fastexport._dtypes import Device, DType, Layout, MemoryFormat
from fastexport._errors import FastExportError, Fault, FileError, FormatError, LintError, LintFault, VerifyError
from fastexport._graph import Graph
from fastexport._operators import Operator
from fastexport._passes import eliminate_dead_code, eliminate_getitems, lint, run_passes
from fastexport._program import LIMITS, ExportedProgram, GraphModule, is_pt2, load
from fastexport._ranges import ValueRange
from fastexport._results import PassResult

if TYPE_CHECKING:
    from fastexport import pt2e
    from fastexport._edits import Insertion, erase_nodes, insert_nodes, replace_all_uses
    from fastexport._meta_json import NodeSource
    from fastexport._provenance import VALUE_META
    from fastexport._pytree import (
        keystr,
        match_inputs,
        register_dataclass,
        register_namedtuple,
        register_pytree_node,
        tree_flatten,
        tree_flatten_with_path,
        tree_is_leaf,
        tree_leaves,
        tree_map,
        tree_structure,
        tree_unflatten,
    )
    from fastexport._save import save
    from fastexport._signature import (
        ConstantArgument,
        CustomObjArgument,
        ExportGraphSignature,
        InputKind,
        InputSpec,
        ModuleCallEntry,
        ModuleCallSignature,
        OutputKind,
        OutputSpec,
        SymBoolArgument,
        SymFloatArgument,
        SymIntArgument,
        TensorArgument,
        TokenArgument,
    )
    from fastexport._symbols import SymBool, SymFloat, SymInt, evaluate_shapes
    from fastexport._tensor_meta import TensorMeta
    from fastexport._torch_api import export, export_for_inference, export_for_training, from_export
    from fastexport._treespec import EnumKey, TreeSpec, UnknownType
    from fastexport._verifier import Verifier
    from fastexport.acceleration import AccelerationError, accelerate, install, uninstall

__version__ = "0.1.0"

__all__ = [
    "AccelerationError",
    "ConstantArgument",
    "CustomObjArgument",
    "DType",
    "Device",
    "EnumKey",
    "ExportGraphSignature",
    "ExportedProgram",
    "Expr",
    "FastExportError",
    "Fault",
    "FileError",
    "FormatError",
    "Graph",
    "GraphModule",
    "InputKind",
    "InputSpec",
    "Insertion",
    "LIMITS",
    "Layout",
    "LintError",
    "LintFault",
    "MemoryFormat",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "Node",
    "NodeSource",
    "Operator",
    "OutputKind",
    "OutputSpec",
    "PassResult",
    "SymBool",
    "SymBoolArgument",
    "SymFloat",
    "SymFloatArgument",
    "SymInt",
    "SymIntArgument",
    "Tensor",
    "TensorArgument",
    "TensorMeta",
    "TokenArgument",
    "TreeSpec",
    "UnknownType",
    "VALUE_META",
    "ValueRange",
    "Verifier",
    "VerifyError",
    "accelerate",
    "eliminate_dead_code",
    "eliminate_getitems",
    "erase_nodes",
    "export",
    "export_for_inference",
    "export_for_training",
    "from_export",
    "evaluate_shapes",
    "from_fx",
    "insert_nodes",
    "install",
    "is_pt2",
    "keystr",
    "lint",
    "load",
    "match_inputs",
    "pt2e",
    "register_dataclass",
    "register_namedtuple",
    "register_pytree_node",
    "replace_all_uses",
    "run_passes",
    "save",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_leaves",
    "tree_map",
    "tree_structure",
    "tree_unflatten",
    "uninstall",
]

# What `load` needs is there at once; the rest is imported when it is first asked for, as opening a file should not
# wait for it.
_LATER = {
    "acceleration": ("AccelerationError", "accelerate", "install", "uninstall"),
    "_edits": ("Insertion", "erase_nodes", "insert_nodes", "replace_all_uses"),
    "_save": ("save",),
    "_signature": (
        "ConstantArgument",
        "CustomObjArgument",
        "ExportGraphSignature",
        "InputKind",
        "InputSpec",
        "ModuleCallEntry",
        "ModuleCallSignature",
        "OutputKind",
        "OutputSpec",
        "SymBoolArgument",
        "SymFloatArgument",
        "SymIntArgument",
        "TensorArgument",
        "TokenArgument",
    ),
    "_pytree": (
        "keystr",
        "match_inputs",
        "register_dataclass",
        "register_namedtuple",
        "register_pytree_node",
        "tree_flatten",
        "tree_flatten_with_path",
        "tree_is_leaf",
        "tree_leaves",
        "tree_map",
        "tree_structure",
        "tree_unflatten",
    ),
    "_meta_json": ("NodeSource",),
    "_provenance": ("VALUE_META",),
    "_symbols": ("SymBool", "SymFloat", "SymInt", "evaluate_shapes"),
    "_tensor_meta": ("TensorMeta",),
    "_torch_api": ("export", "export_for_inference", "export_for_training", "from_export"),
    "_treespec": ("EnumKey", "TreeSpec", "UnknownType"),
    "_verifier": ("Verifier",),
}
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names}
_MODULES = ("acceleration", "pt2e")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"fastexport.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fastexport' has no attribute {name!r}")
    value = getattr(import_module(f"fastexport.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})


Mapping.register(_core.Users)
MutableMapping.register(_core.Meta)


def from_fx(graph_or_module: Any) -> Graph:
    """Read a torch.fx.Graph or GraphModule into a fastexport Graph, exactly.

    Args:
        graph_or_module: the graph; of a GraphModule also the subgraphs it refers to, and the module becomes
            ``owning_module``.

    Returns:
        A Graph with the same nodes, order, names, arguments with their containers, types, meta and order of users.
        ``to_fx`` gives an equal torch graph back.

    Raises:
        ValueError: the graph is malformed (a node uses an erased or foreign node, or users and arguments disagree).
        TypeError: it is no torch.fx graph.
    """
    from fastexport import _torch

    return _torch.from_fx(graph_or_module)
