"""Folding batch norms and constants: the bookkeeping around the arithmetic, without walks of the whole graph per fold.

Dead code after a fold of a batch norm can only be what fed it: while one call folds the batch norms of a graph, the
first elimination is torch's own, over everything (it also removes dead batch norms, which would be folded otherwise),
and each later one looks at the few nodes that the fold and the one before it took users from. They are erased from the
last to the first, as torch does.
"""

from __future__ import annotations

import bisect
import itertools
import logging
import operator
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx import graph as fx_graph
from torch.fx import interpreter as fx_interpreter
from torch.fx import traceback as fx_traceback
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.utils import _pytree as pytree

from fastexport.acceleration._known import are_known, is_known
from fastexport.acceleration._replacement import Replacement
from fastexport.acceleration._verify import verify_method

# ---- dead code after the fold of a batch norm

_GRAPH_METHODS = {
    "eliminate_dead_code": "e3cde4c528c19a08",
    "lint": "939af6b31c2c854f",
    "erase_node": "cf092f5c92f3af96",
}
_IS_IMPURE = "c7442b53894235c0"
_HOOKS = ("_create_node_hooks", "_erase_node_hooks", "_replace_hooks")


class _Fold:
    """A fold that has begun: its nodes, and those that may lose their last user by it."""

    def __init__(self, computing: Node, bias: Node | None, norm: Node, fakes: bool) -> None:
        self.computing = computing
        self.adds_bias = bias is None
        self.fakes = fakes
        self.fused: tuple[tuple[Any, ...], Any] | None = None
        self.norm = norm
        self.suspects = [norm, *norm.users, *norm.all_input_nodes]


class _Sweeper:
    """Stands in for a graph's eliminate_dead_code while one call folds its batch norms."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.fold: _Fold | None = None
        self._names: set[str] | None = None
        self._left: list[Node] = []

    def sweep(self, *args: Any, **kwargs: Any) -> bool:
        """What eliminate_dead_code does after the fold that has begun; without one, all of it."""
        fold, self.fold = self.fold, None
        if fold is None or args or kwargs or self._names is None or not self._is_sound(fold, self._names):
            self._names = None
            changed = type(self.graph).eliminate_dead_code(self.graph, *args, **kwargs)
            if fold is not None:
                self._names = {node.name for node in self.graph.nodes}
        else:
            changed = self._erase_dead({node for node in (*self._left, *fold.suspects) if not node._erased})
        # torchao erases a batch norm with side effects itself, afterwards.
        self._left = [] if fold is None else fold.suspects
        return changed

    def _is_sound(self, fold: _Fold, names: set[str]) -> bool:
        """Whether torch's lint would find nothing; all that a fold adds is a node for the bias."""
        if not fold.adds_bias:
            return True
        bias = fold.computing.args[2]
        if not isinstance(bias, Node) or bias.name in names:
            return False
        names.add(bias.name)
        return True

    def _erase_dead(self, suspects: set[Node]) -> bool:
        impure_random = True
        if torch._guards.TracingContext.try_get():
            impure_random = torch._inductor.config.fallback_random
        changed = False
        waiting = sorted(suspects, key=_place)
        while waiting:
            node = waiting.pop()
            if node.users or node.is_impure(impure_random):
                continue
            for used in node.all_input_nodes:
                if used not in suspects:
                    suspects.add(used)
                    bisect.insort(waiting, used, key=_place)
            self.graph.erase_node(node)
            if self._names is not None:
                self._names.discard(node.name)
            changed = True
        return changed


def _place(node: Node) -> Any:
    return node._sort_key


class _Active(threading.local):
    """The sweeper of the graph whose batch norms are being folded in this thread, if any."""

    sweeper: _Sweeper | None = None


_active = _Active()


@contextmanager
def _swept_locally(graph: Graph) -> Iterator[None]:
    outer = _active.sweeper
    _active.sweeper = sweeper = _Sweeper(graph)
    graph.eliminate_dead_code = sweeper.sweep
    try:
        yield
    finally:
        del graph.eliminate_dead_code
        _active.sweeper = outer


def fuse_conv_bn(stock: Any, m: Any) -> Any:
    """_fuse_conv_bn_ of prepare_pt2e, looking for dead code only around each fold"""
    return _fuse(stock, m)


def fuse_linear_bn(stock: Any, m: Any) -> Any:
    """_fuse_linear_bn_ of prepare_pt2e, looking for dead code only around each fold"""
    return _fuse(stock, m)


def _fuse(stock: Any, m: Any) -> Any:
    graph = m.graph
    if not _can_sweep(m, graph):
        return stock(m)
    if not _may_have_norm(graph, stock.__wrapped__.__globals__):
        return None
    with _swept_locally(graph):
        return stock.__wrapped__(m)


def _can_sweep(m: Any, graph: Any) -> bool:
    """Whether eliminating dead code is torch's own, and nobody's code runs at a change of the graph."""
    return (
        type(graph) is Graph
        and "eliminate_dead_code" not in vars(graph)
        and are_known(vars(Graph), _GRAPH_METHODS)
        and is_known(Node.is_impure, _IS_IMPURE)
        and isinstance(m, GraphModule)
        and not any(getattr(m, hooks, None) for hooks in _HOOKS)
        and not _has_subgraphs(m, graph)
        and not fx_graph.log.isEnabledFor(logging.INFO)
    )


def _has_subgraphs(m: GraphModule, graph: Graph) -> bool:
    """Whether it has graphs of its own to be swept, and to be compiled again each time."""
    children = {name for name, child in m.named_children() if isinstance(child, GraphModule)}
    return bool(children) and any(node.target in children for node in graph.find_nodes(op="get_attr"))


_IS_NORM = {"_is_bn_node": "a763292d00474499", "_is_supported_batch_norm_for_training": "bfcd88b9f80950cd"}


def _may_have_norm(graph: Graph, utils: dict[str, Any]) -> bool:
    """Whether there is a batch norm in the graph, by the identity of its operators."""
    if not are_known(utils, _IS_NORM):
        return True
    aten = torch.ops.aten
    norms = (
        aten.batch_norm.default,
        aten._native_batch_norm_legit.default,
        aten.cudnn_batch_norm.default,
        aten.miopen_batch_norm.default,
        aten._native_batch_norm_legit_no_training.default,
    )
    known = {id(norm): True for norm in norms}
    for node in graph.nodes:
        target = node.target
        if id(target) in known:
            return True
        if type(target) is not str and type(target) is not torch._ops.OpOverload:
            if utils["_is_bn_node"](node):
                return True
    return False


def fuse_weights(stock: Any, *args: Any, **kwargs: Any) -> Any:
    """fuse_conv_bn_weights, which a fold calls twice with the same arguments, computed once"""
    fold = None if _active.sweeper is None else _active.sweeper.fold
    if fold is None or fold.fakes or _are_ops_watched():
        return stock.__wrapped__(*args, **kwargs)
    before, fold.fused = fold.fused, None
    if before is not None and len(before[0]) == len(args) and all(map(operator.is_, before[0], args)):
        return before[1]
    fold.fused = args, stock.__wrapped__(*args, **kwargs)
    return fold.fused[1]


def _are_ops_watched() -> bool:
    """Whether somebody sees each operator that runs, so that none may be left out."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack())


def fold_into_conv(
    stock: Any, conv_node: Any, conv_weight_node: Any, conv_bias_node: Any, bn_node: Any, m: Any, fake_fuse: Any = False
) -> Any:
    """fold_bn_weights_into_conv_node, telling what is being folded to the one that looks for dead code"""
    _begin(conv_node, conv_bias_node, bn_node, m, fake_fuse)
    return stock.__wrapped__(conv_node, conv_weight_node, conv_bias_node, bn_node, m, fake_fuse)


def fold_into_linear(
    stock: Any,
    linear_node: Any,
    linear_weight_node: Any,
    linear_bias_node: Any,
    bn_node: Any,
    m: Any,
    fake_fuse: Any = False,
) -> Any:
    """fold_bn_weights_into_linear_node, telling what is being folded to the one that looks for dead code"""
    _begin(linear_node, linear_bias_node, bn_node, m, fake_fuse)
    return stock.__wrapped__(linear_node, linear_weight_node, linear_bias_node, bn_node, m, fake_fuse)


def _begin(computing: Node, bias: Node | None, norm: Node, m: Any, fakes: Any) -> None:
    sweeper = _active.sweeper
    if sweeper is not None and sweeper.graph is m.graph:
        sweeper.fold = _Fold(computing, bias, norm, bool(fakes))


def _only_ours(ours: Any, stock: Any, args: Any, kwargs: Any) -> Any:
    """What ours notes is compared by the call that all folds are part of."""
    return ours(*args, **kwargs)


# ---- folding constants

_CONTAINERS = (tuple, list, immutable_list)
_MAPPINGS = (dict, immutable_dict)
_LEAVES = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def node_to_last_non_output_use(stock: Any, self: Any) -> Any:
    """ConstantFolder.node_to_last_non_output_use, looking into arguments without building trees of them"""
    uses: dict[Node, list[Node]] = defaultdict(list)
    seen: set[Node] = set()
    output = next(iter(reversed(self.module.graph.nodes)))
    for node in reversed(self.module.graph.nodes):
        if node.target == "output":
            continue
        for used in _leaf_nodes(node):
            if used not in seen:
                seen.add(used)
                uses[node].append(used)
        if len(node.users) == 1 and output in node.users:
            uses[node].append(node)
    return uses


def _leaf_nodes(node: Node) -> list[Node]:
    """The nodes that pytree finds in the arguments: those in slices are not among them."""
    found: list[Node] = []
    if all(_gather(value, found) for value in itertools.chain(node.args, node.kwargs.values())):
        return found
    return [leaf for leaf in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(leaf, Node)]


def _gather(value: Any, found: list[Node]) -> bool:
    """Append the nodes in a value; False for a type that pytree has to look at."""
    kind = type(value)
    if kind is Node:
        found.append(value)
        return True
    if kind in _LEAVES:
        return True
    if kind in _CONTAINERS:
        return all(_gather(item, found) for item in value)
    if kind in _MAPPINGS:
        return all(_gather(item, found) for item in value.values())
    return False


def run_folder(stock: Any, self: Any) -> Any:
    """ConstantFolder.run, passing quickly over what isn't constant and over the constants themselves"""
    namespace = stock.__wrapped__.__globals__
    if not _can_run(self, namespace["ConstantFolder"]):
        return stock(self)
    run = _Run(self, namespace["ConstantFolder"].run_node)
    self.run_node = run.run_node
    try:
        return stock.__wrapped__(self)
    finally:
        del self.run_node


_STEPS = {
    "run_node": "c364ef1c145a2a3d",
    "get_attr": "acab7c2851ca24b8",
    "call_function": "fb396d3a46b3242c",
    "fetch_args_kwargs_from_env": "efa9d3a6b4778c11",
    "map_nodes_to_values": "960ff62c04ce21fb",
}
_FOLDER_STEPS = {"run_node": "ec1be9e539d2e207", "_deduce_value": "0d56b42a7ce57088"}
_SET_CURRENT_NODE = "16abc6b268fb7be5"


def _can_run(folder: Any, kind: Any) -> bool:
    """Whether each node would be run by torch's and torchao's own methods, without being traced or logged."""
    interpreter = torch.fx.Interpreter
    return (
        type(folder) is kind
        and folder.lifted_constant_names is None
        and vars(folder).keys().isdisjoint(_STEPS.keys() | _FOLDER_STEPS.keys())
        and are_known(vars(kind), _FOLDER_STEPS)
        and are_known(vars(interpreter), _STEPS)
        and is_known(interpreter._set_current_node, _SET_CURRENT_NODE)
        and not fx_traceback.should_preserve_node_meta
        and not fx_interpreter.log.isEnabledFor(logging.DEBUG)
    )


def find_mutable_buffers(stock: Any, self: Any) -> Any:
    """ConstantFolder._find_mutable_buffers, reading the name of each operator once"""
    namespace = stock.__wrapped__.__globals__
    mutable: set[Node] = set()
    mutates: dict[int, bool] = {}  # by the id of an operator, which the graph keeps
    for node in self.module.graph.nodes:
        if node.op != "call_function":
            continue
        target = node.target
        found = mutates.get(id(target))
        if found is None:
            found = hasattr(target, "_schema") and ("copy_" in str(target) or "put_" in str(target))
            if type(target) is torch._ops.OpOverload:
                mutates[id(target)] = found
        if found and node.args and isinstance(node.args[0], Node):
            producers = namespace["collect_producer_nodes"](node.args[0])
            if producers is not None and any(self._is_mutable_buffer(producer) for producer in producers):
                mutable.update(producers)
    return mutable


class _Run:
    """Runs the nodes of a graph for a ConstantFolder, the usual ones by itself."""

    def __init__(self, folder: Any, run_node: Any) -> None:
        self.folder = folder
        self.unknown = folder.unknown_value
        self._run_node = run_node
        self._may_skip = not _are_ops_watched()
        ops = torch.ops.quantized_decomposed
        self._inverses = {
            id(ops.dequantize_per_channel.default): ops.quantize_per_channel.default,
            id(ops.dequantize_per_tensor.default): ops.quantize_per_tensor.default,
        }

    def run_node(self, node: Node) -> Any:
        if node.op == "call_function":
            if self._has_unknown_argument(node):
                return self.unknown
            if type(node.target) is torch._ops.OpOverload:
                return self._call(node)
        elif node.op == "get_attr":
            value = self.folder.fetch_attr(node.target)
            if type(value) in (torch.Tensor, torch.nn.Parameter):
                return value
        return self._run_node(self.folder, node)

    def _has_unknown_argument(self, node: Node) -> bool:
        """Whether an argument is known to be unknown, and all of them have been computed."""
        env, unknown = self.folder.env, self.unknown
        for value in node.args:
            if isinstance(value, Node):
                found = env.get(value) is unknown
            elif isinstance(value, (list, tuple)):
                found = any(isinstance(item, Node) and env.get(item) is unknown for item in value)
            else:
                continue
            if found:
                return node._input_nodes.keys() <= env.keys()
        return False

    def _call(self, node: Node) -> Any:
        folder, unknown, target = self.folder, self.unknown, node.target
        args, kwargs = folder.fetch_args_kwargs_from_env(node)
        leaves = pytree.arg_tree_leaves(*args, **kwargs)
        if (
            any(leaf is unknown for leaf in leaves)
            or target is torch.ops.aten._efficientzerotensor.default
            or node.name == "triton_kernel_wrapper_functional_proxy"
            or (folder.skip_constructors and not any(isinstance(leaf, torch.Tensor) for leaf in leaves))
            or torch.Tag.nondeterministic_seeded in target.tags
            or (self._may_skip and self._undoes_quantization(node))
        ):
            return unknown
        value = target(*args, **kwargs)
        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type == "meta" or not folder.insertable_tensor_check(value):
            return value
        if folder.is_impure(node):
            return unknown
        folder.add_node_replacement(node, value)
        for used in _leaf_nodes(node):
            folder.replaced_uses[used] += 1
        for used in folder.user_to_last_uses.get(node, ()):
            if folder.replaced_uses[used] == len(used.users):
                folder.node_replacements.pop(used, None)
        return value

    def _undoes_quantization(self, node: Node) -> bool:
        """Whether it dequantizes what its own counterpart quantized, which can't fail, and is left in the graph."""
        inverse = self._inverses.get(id(node.target))
        args = node.args
        if inverse is None or node.kwargs or not args or not isinstance(args[0], Node):
            return False
        quantize = args[0]
        return (
            quantize.target is inverse
            and not quantize.kwargs
            and quantize.args[1:] == args[1:]
            and type(self.folder.env[quantize]) is torch.Tensor
            and self.folder.env[quantize].device.type != "meta"
            and self.folder.is_impure(node)
        )


_PT2E = "torchao.quantization.pt2e"

REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "fuse_conv_bn",
        (f"{_PT2E}.utils:_fuse_conv_bn_", f"{_PT2E}.quantize_pt2e:_fuse_conv_bn_"),
        fuse_conv_bn,
        ("d9868b24d9174baa",),
        since="torchao 0.18",
        verify=verify_method,
    ),
    Replacement(
        "fuse_linear_bn",
        (f"{_PT2E}.utils:_fuse_linear_bn_", f"{_PT2E}.quantize_pt2e:_fuse_linear_bn_"),
        fuse_linear_bn,
        ("c471e6fed6ccb499",),
        since="torchao 0.18",
        verify=verify_method,
    ),
    Replacement(
        "fold_into_conv",
        (f"{_PT2E}.utils:fold_bn_weights_into_conv_node",),
        fold_into_conv,
        ("2a3c1fba1f5a518a",),
        since="torchao 0.18",
        verify=_only_ours,
    ),
    Replacement(
        "fold_into_linear",
        (f"{_PT2E}.utils:fold_bn_weights_into_linear_node",),
        fold_into_linear,
        ("4715e086059a2085",),
        since="torchao 0.18",
        verify=_only_ours,
    ),
    Replacement(
        "fuse_weights",
        (f"{_PT2E}.utils:fuse_conv_bn_weights",),
        fuse_weights,
        ("1b6b6dc82c517c06",),
    ),
    Replacement(
        "constant_folder_uses",
        (
            f"{_PT2E}.constant_fold:ConstantFolder.node_to_last_non_output_use",
            "torch._inductor.constant_folding:ConstantFolder.node_to_last_non_output_use",
        ),
        node_to_last_non_output_use,
        ("b8ff9ed1c994fa0a",),
    ),
    Replacement(
        "constant_folder_buffers",
        (f"{_PT2E}.constant_fold:ConstantFolder._find_mutable_buffers",),
        find_mutable_buffers,
        ("3c36ad9522ca0844",),
        since="torchao 0.18",
    ),
    Replacement(
        "constant_folder_run",
        (f"{_PT2E}.constant_fold:ConstantFolder.run",),
        run_folder,
        ("09f36603f88b8ff5",),
        since="torchao 0.18",
        verify=verify_method,
    ),
)
