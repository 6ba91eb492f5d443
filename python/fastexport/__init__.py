"""fastexport: PyTorch graphs in a fast C core.

`load` opens .pt2 files without torch, as `ExportedProgram`; `save` writes them. `Graph` and `Node` have the API of
torch.fx; `from_fx` and `Graph.to_fx` convert; `eliminate_dead_code`, `eliminate_getitems`, `lint` and `run_passes` work
on these and, in place, on torch.fx graphs. Nothing here needs torch until a torch object is handed in.
"""

from __future__ import annotations

import os as _os
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from fastexport import _build

try:
    from fastexport import _core
except (ImportError, AttributeError) as _error:
    raise _build.explain(_error) from _error
if _core.build:
    _build.check(_core, _os.path.dirname(_os.path.dirname(_os.path.dirname(__file__))))

from fastexport._core import Expr, Node, Tensor
from fastexport._dtypes import Device, DType, Layout, MemoryFormat
from fastexport._errors import FastExportError, Fault, Faults, FileError, FormatError, LintError, LintFault, VerifyError
from fastexport._graph import Graph
from fastexport._operators import Operator
from fastexport._passes import eliminate_dead_code, eliminate_getitems, lint, run_passes
from fastexport._program import LIMITS, ExportedProgram, is_pt2, load
from fastexport._ranges import ValueRange
from fastexport._results import PassResult

if TYPE_CHECKING:
    from fastexport import batch, model_explorer, pt2e
    from fastexport._adapter import apply_fx_pass
    from fastexport._codegen import CodeGen, PythonCode, PyTreeCodeGen, PyTreeInfo
    from fastexport._constant_folding import fold_constants
    from fastexport._cse import eliminate_common_subexpressions
    from fastexport._diff import GraphDiff, NodeChange, NodesDiff, diff
    from fastexport._document import dumps, loads
    from fastexport._draw import draw
    from fastexport._duplicates import deepcopy
    from fastexport._edits import Insertion, erase_nodes, insert_nodes, replace_all_uses
    from fastexport._graph_module import GraphModule
    from fastexport._interpreter import Interpreter, Transformer
    from fastexport._matching import Match, MatchReport, SubgraphMatcher, SubgraphMatcherWithNameNodeMap
    from fastexport._meta_json import NodeSource
    from fastexport._node import map_aggregate, map_arg
    from fastexport._noops import remove_noops
    from fastexport._notebook import View, set_options
    from fastexport._partitions import (
        SourcePartition,
        check_subgraphs_connected,
        find_sequential_partitions,
        get_source_partitions,
    )
    from fastexport._pass_log import PassError, PassLog
    from fastexport._propagation import propagate_shapes, refresh_fake_tensors
    from fastexport._provenance import VALUE_META
    from fastexport._proxy import Attribute, GraphAppendingTracer, ParameterProxy, Proxy, TraceError
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
    from fastexport._report import report
    from fastexport._rewriting import ReplacedPatterns, Replacements, replace_pattern, replace_pattern_with_filters
    from fastexport._safetensors import from_safetensors, to_safetensors
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
    from fastexport._sorting import sort_topologically
    from fastexport._splitting import Split, fuse, inline, outline, split
    from fastexport._statistics import WeightStatistics, weight_statistics
    from fastexport._stats import Stats, StatsTable, Summary, stats, summary
    from fastexport._symbols import SymBool, SymFloat, SymInt, evaluate_shapes
    from fastexport._tables import Table
    from fastexport._tensor_meta import TensorMeta
    from fastexport._torch_api import export, export_for_inference, export_for_training, from_export
    from fastexport._tracer import PH, ProxyableClassMeta, Tracer, symbolic_trace
    from fastexport._treespec import EnumKey, TreeSpec, UnknownType
    from fastexport._trimming import trim_interfaces
    from fastexport._verifier import Verifier
    from fastexport._weights import TensorSlice, WeightsFile, open_weights
    from fastexport._wrapping import wrap
    from fastexport.acceleration import AccelerationError, accelerate, install, uninstall

__version__ = "0.1.0"

__all__ = [
    "AccelerationError",
    "Attribute",
    "CodeGen",
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
    "Faults",
    "FileError",
    "FormatError",
    "Graph",
    "GraphAppendingTracer",
    "GraphDiff",
    "GraphModule",
    "InputKind",
    "InputSpec",
    "Insertion",
    "Interpreter",
    "LIMITS",
    "Layout",
    "LintError",
    "LintFault",
    "Match",
    "MatchReport",
    "MemoryFormat",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "Node",
    "NodeChange",
    "NodeSource",
    "NodesDiff",
    "Operator",
    "OutputKind",
    "OutputSpec",
    "PH",
    "ParameterProxy",
    "PassError",
    "PassLog",
    "PassResult",
    "PyTreeCodeGen",
    "PyTreeInfo",
    "PythonCode",
    "Proxy",
    "ProxyableClassMeta",
    "ReplacedPatterns",
    "Replacements",
    "SourcePartition",
    "Split",
    "Stats",
    "StatsTable",
    "SubgraphMatcher",
    "SubgraphMatcherWithNameNodeMap",
    "Summary",
    "SymBool",
    "SymBoolArgument",
    "SymFloat",
    "SymFloatArgument",
    "SymInt",
    "SymIntArgument",
    "Table",
    "Tensor",
    "TensorArgument",
    "TensorMeta",
    "TensorSlice",
    "TokenArgument",
    "TraceError",
    "Tracer",
    "Transformer",
    "TreeSpec",
    "UnknownType",
    "VALUE_META",
    "ValueRange",
    "Verifier",
    "VerifyError",
    "View",
    "WeightStatistics",
    "WeightsFile",
    "accelerate",
    "apply_fx_pass",
    "batch",
    "check_subgraphs_connected",
    "deepcopy",
    "diff",
    "draw",
    "dumps",
    "eliminate_common_subexpressions",
    "eliminate_dead_code",
    "eliminate_getitems",
    "erase_nodes",
    "export",
    "export_for_inference",
    "export_for_training",
    "find_sequential_partitions",
    "from_export",
    "evaluate_shapes",
    "fold_constants",
    "from_fx",
    "from_safetensors",
    "fuse",
    "get_source_partitions",
    "inline",
    "insert_nodes",
    "install",
    "is_pt2",
    "keystr",
    "lint",
    "load",
    "loads",
    "map_aggregate",
    "map_arg",
    "match_inputs",
    "model_explorer",
    "open_weights",
    "outline",
    "propagate_shapes",
    "pt2e",
    "refresh_fake_tensors",
    "register_dataclass",
    "register_namedtuple",
    "register_pytree_node",
    "remove_noops",
    "replace_all_uses",
    "replace_pattern",
    "replace_pattern_with_filters",
    "report",
    "run_passes",
    "save",
    "set_options",
    "sort_topologically",
    "split",
    "stats",
    "summary",
    "symbolic_trace",
    "to_safetensors",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_leaves",
    "tree_map",
    "tree_structure",
    "tree_unflatten",
    "trim_interfaces",
    "uninstall",
    "weight_statistics",
    "wrap",
]

# What `load` needs is there at once; the rest is imported when it is first asked for, as opening a file should not
# wait for it.
_LATER = {
    "_codegen": ("CodeGen", "PyTreeCodeGen", "PyTreeInfo", "PythonCode"),
    "acceleration": ("AccelerationError", "accelerate", "install", "uninstall"),
    "_adapter": ("apply_fx_pass",),
    "_constant_folding": ("fold_constants",),
    "_notebook": ("View", "set_options"),
    "_cse": ("eliminate_common_subexpressions",),
    "_document": ("dumps", "loads"),
    "_duplicates": ("deepcopy",),
    "_diff": ("GraphDiff", "NodeChange", "NodesDiff", "diff"),
    "_draw": ("draw",),
    "_report": ("report",),
    "_edits": ("Insertion", "erase_nodes", "insert_nodes", "replace_all_uses"),
    "_partitions": (
        "SourcePartition",
        "check_subgraphs_connected",
        "find_sequential_partitions",
        "get_source_partitions",
    ),
    "_pass_log": ("PassError", "PassLog"),
    "_sorting": ("sort_topologically",),
    "_stats": ("Stats", "StatsTable", "Summary", "stats", "summary"),
    "_tables": ("Table",),
    "_splitting": ("Split", "fuse", "inline", "outline", "split"),
    "_safetensors": ("from_safetensors", "to_safetensors"),
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
    "_matching": ("Match", "MatchReport", "SubgraphMatcher", "SubgraphMatcherWithNameNodeMap"),
    "_rewriting": ("ReplacedPatterns", "Replacements", "replace_pattern", "replace_pattern_with_filters"),
    "_meta_json": ("NodeSource",),
    "_node": ("map_aggregate", "map_arg"),
    "_noops": ("remove_noops",),
    "_propagation": ("propagate_shapes", "refresh_fake_tensors"),
    "_provenance": ("VALUE_META",),
    "_symbols": ("SymBool", "SymFloat", "SymInt", "evaluate_shapes"),
    "_tensor_meta": ("TensorMeta",),
    "_torch_api": ("export", "export_for_inference", "export_for_training", "from_export"),
    "_treespec": ("EnumKey", "TreeSpec", "UnknownType"),
    "_graph_module": ("GraphModule",),
    "_interpreter": ("Interpreter", "Transformer"),
    "_proxy": ("Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError"),
    "_tracer": ("PH", "ProxyableClassMeta", "Tracer", "symbolic_trace"),
    "_trimming": ("trim_interfaces",),
    "_statistics": ("WeightStatistics", "weight_statistics"),
    "_verifier": ("Verifier",),
    "_weights": ("TensorSlice", "WeightsFile", "open_weights"),
    "_wrapping": ("wrap",),
}
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names}
_MODULES = ("acceleration", "pt2e", "batch", "model_explorer")


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
