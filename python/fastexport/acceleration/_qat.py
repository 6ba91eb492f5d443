"""The patterns of quantization-aware training: exported when they can match, and once.

torchao turns each pattern and each replacement into a graph by torch.export, 24 times in one prepare_qat_pt2e with the
XNNPACK quantizer and 96 times in one convert_pt2e. Most of them can't match: the graph lacks their convolution. While
one of the functions of torchao that only match with them is at work, such a pattern is not made, and a replacement only
when there is something to replace. Those that are made are kept, and copies of them given out.

At most `_ROOM` are kept, of about 150 KB each, until the process ends: scopes are short, and the next model needs them
again. They are patterns of torchao's own that refer to nothing but constants and functions of torch, so that nothing of
a user's is kept alive. What a graph says of its own making (ids of graphs in from_node, autograd's count in seq_nr, the
number in the name of its code) is new in each export, and that of the first in a copy.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
import torch.fx.traceback
import torch.nn.functional as F
from torch.fx import Graph, GraphModule, subgraph_rewriter
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher
from torch.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap
from torch.utils import _pytree as pytree

from fastexport.acceleration import _scope
from fastexport.acceleration._clone import Copies
from fastexport.acceleration._matching import Late, is_plain, is_torchs
from fastexport.acceleration._replacement import Replacement, behind, stock_behind
from fastexport.acceleration._verify import AccelerationError

aten = torch.ops.aten

_QAT = "torchao.quantization.pt2e.qat_utils"
_EXPORT_UTILS = "torchao.quantization.pt2e.export_utils"
_XNNPACK = "torchao.testing.pt2e._xnnpack_quantizer_utils"
_EXPORT = "_get_aten_graph_module_for_pattern"
_ENTRY = "pattern_export"  # its name in the table

# ---- what patterns call

_RELEASE = "2.13."  # of torch: the operators below are what its export gives
_CONVOLUTIONS = {
    F.conv1d: aten.conv1d.default,
    F.conv2d: aten.conv2d.default,
    F.conv_transpose1d: aten.conv_transpose1d.default,
    F.conv_transpose2d: aten.conv_transpose2d.input,
}
_FUNCTIONS = (F.batch_norm, F.relu, F.relu_)
# What makes patterns to match with: by module and name, the digest of its text.
_MAKERS = {
    (_QAT, "_get_conv_bn_pattern"): "3c32ddc2066fc9b4",
    (_QAT, "_get_quantized_qat_conv_bn_pattern"): "90c8c2242a44417a",
    (_XNNPACK, "_do_annotate_conv_bn"): "09c4d1a58f8e108a",
}


def calls_of(pattern: Any) -> list[Any]:
    """Operators that the graph of a pattern calls for certain; none for a pattern that isn't known."""
    function = vars(pattern).get("fn") if _is_wrapper(pattern) else None
    if type(function) is not FunctionType or not torch.__version__.startswith(_RELEASE):
        return []
    if (F.batch_norm, F.relu, F.relu_) != _FUNCTIONS or _in_some_mode():  # what comes of them may be anything
        return []
    name, free = _maker_of(function.__code__), _closure(function)
    convolution = _CONVOLUTIONS.get(free.get("conv_fn"))
    if name is None or convolution is None:
        return []
    calls = [convolution, aten.batch_norm.default]
    if name == "_do_annotate_conv_bn":
        if free["has_relu"]:
            calls.append(aten.relu_.default if free["relu_is_inplace"] else aten.relu.default)
    elif name == "_get_quantized_qat_conv_bn_pattern":
        quantized = torch.ops.quantized_decomposed
        calls += [aten.sqrt.default, aten.div.Tensor, aten.reshape.default, aten.mul.Tensor]
        if free["is_per_channel"]:
            calls += [quantized.quantize_per_channel.default, quantized.dequantize_per_channel.default]
        else:
            calls += [quantized.quantize_per_tensor.default, quantized.dequantize_per_tensor.default]
        if free["has_bias"]:
            calls += [aten.zeros_like.default, aten.add.Tensor]
    return calls


def _is_wrapper(pattern: Any) -> bool:
    """Whether a pattern is a function in torchao's WrapperModule, and nothing besides."""
    module = sys.modules.get(_EXPORT_UTILS)
    if module is None or type(pattern) is not module.WrapperModule:
        return False
    return all(name in ("fn", "training") or not value for name, value in vars(pattern).items())


def _maker_of(code: CodeType) -> str | None:
    """The name of the function of torchao that a function was made in, when its text is known."""
    for (module, name), source in _MAKERS.items():
        maker = vars(sys.modules[module]).get(name) if module in sys.modules else None
        maker = stock_behind(maker)
        if type(maker) is FunctionType and _holds(maker.__code__, code):
            return name if is_torchs(maker, source) else None
    return None


def _holds(outer: CodeType, code: CodeType) -> bool:
    inner = [value for value in outer.co_consts if isinstance(value, CodeType)]
    return code in inner or any(_holds(value, code) for value in inner)


def _closure(function: FunctionType) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


def _lacking(graph: Graph, calls: list[Any]) -> Any:
    """The first of some operators that a graph doesn't call; None when it calls all of them."""
    table = graph._find_nodes_lookup_table.table
    if sum(map(len, table.values())) != len(graph.nodes):
        return None
    return next((target for target in calls if not table.get(("call_function", target))), None)


# ---- exporting


class _Work(threading.local):
    """What of torchao's is at work in this thread, and knows nothing of it.

    Attributes:
        rewriting: a function that hands patterns to replace_pattern_with_filters and to nothing else.
        annotating: the graph of one that only asks for the matches of patterns in it.
    """

    rewriting: bool = False
    annotating: Graph | None = None


_work = _Work()


@contextmanager
def _at_work(rewriting: bool, annotating: Graph | None) -> Iterator[None]:
    outer = _work.rewriting, _work.annotating
    _work.rewriting, _work.annotating = rewriting, annotating
    try:
        yield
    finally:
        _work.rewriting, _work.annotating = outer


def _export(stock: Any, pattern: Any, example_inputs: tuple[Any, ...], is_cuda: bool = False, **kwargs: Any) -> Any:
    """Exports a pattern when it may match, and once"""

    def make() -> GraphModule:
        with _at_work(False, None):
            return _kept(stock.__wrapped__, pattern, example_inputs, is_cuda, kwargs)

    if _work.rewriting and _is_from(pattern, _QAT):
        calls = calls_of(pattern)
        return Late(make, lambda graph: _lacking(graph, calls) is None)
    lacking = _lacking_at_work(pattern)
    return make() if lacking is None else _unmatchable(lacking)


def _lacking_at_work(pattern: Any) -> Any:
    """An operator for want of which a pattern can't match in the graph that is being annotated, or None."""
    if _work.annotating is None or not _is_from(pattern, _XNNPACK):
        return None
    return _lacking(_work.annotating, calls_of(pattern))


def _is_from(pattern: Any, module: str) -> bool:
    return _is_wrapper(pattern) and getattr(pattern.fn, "__module__", None) == module


def _verify_export(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Two exports differ in what they say about themselves, as ids of graphs and hooks; the rest is compared"""
    expected, found = stock(*args, **kwargs), ours(*args, **kwargs)
    pattern = args[0] if args else kwargs["pattern"]
    called = {node.target for node in expected.graph.nodes}
    missing = [str(target) for target in calls_of(pattern) if target not in called]
    if missing:
        raise AccelerationError(f"{_ENTRY}: a pattern was thought to call {', '.join(missing)}")
    if isinstance(found, Late) or _lacking_at_work(pattern) is not None:
        return found
    for what, one, other in zip(("graph", "code", "meta"), _told(expected), _told(found), strict=True):
        if one != other:
            raise AccelerationError(f"{_ENTRY}: the {what} of a pattern: torch has {one}, fastexport {other}")
    return found


def _told(module: GraphModule) -> tuple[str, str, list[Any]]:
    return str(module.graph), module.code, [list(node.meta) for node in module.graph.nodes]


def _verify_inside(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What is put off is compared where it is made and where it is used."""
    return ours(*args, **kwargs)


def _unmatchable(target: Any) -> GraphModule:
    """A pattern with a map of names, as torchao's annotators use it, of an operator that the graph doesn't call."""
    graph = Graph()
    graph.output([graph.call_function(target, (graph.placeholder("x"),))])
    in_spec, out_spec = pytree.tree_structure(((0,), {})), pytree.tree_structure((0, {}))
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["x"], in_spec, out_spec)))
    return GraphModule(torch.nn.Module(), graph)


# ---- what is kept

_ROOM = 128
_graphs: dict[Hashable, GraphModule] = {}  # the one used last comes last; threads share it, by single steps only
_KEPT_FROM = (_QAT, _EXPORT_UTILS, _XNNPACK)
_CONSTANTS = (bool, int, float, str, type(None))


def clear() -> None:
    """Forget the graphs that are kept."""
    _graphs.clear()


def _kept(
    export: Callable[..., GraphModule], pattern: Any, inputs: Any, is_cuda: bool, kwargs: dict[str, Any]
) -> GraphModule:
    """The graph of a pattern: a copy of one that was made of equal things under equal conditions, or a new one."""
    key = _key_of(pattern, inputs, is_cuda, kwargs)
    if key is None:
        return export(pattern, inputs, is_cuda, **kwargs)
    found = _graphs.pop(key, None)
    if found is not None:
        _graphs[key] = found  # as the one used last
        return _copy(found)
    made = export(pattern, inputs, is_cuda, **kwargs)
    if not isinstance(made, GraphModule):
        return made
    made.code  # noqa: B018  # a copy of code that is still to be made would hold on to this graph
    _graphs[key] = _copy(made)
    for old in list(_graphs)[:-_ROOM]:
        _graphs.pop(old, None)
    return made


def _copy(module: GraphModule) -> GraphModule:
    """A copy that shares only what nobody writes to, such as fake tensors."""
    made: GraphModule = Copies().value(module)
    for name, item in vars(module).items():
        if isinstance(item, MethodType) and item.__self__ is module:
            vars(made)[name] = MethodType(item.__func__, made)
    return made


def _key_of(pattern: Any, inputs: Any, is_cuda: bool, kwargs: dict[str, Any]) -> Hashable | None:
    """All that the graph of a pattern depends on; None where that can't be told."""
    function = vars(pattern).get("fn") if _is_wrapper(pattern) else None
    if type(function) is not FunctionType or function.__module__ not in _KEPT_FROM or _in_some_mode():
        return None
    try:
        key = (
            _function_key(function),
            _inputs_key([*inputs, *kwargs.values()]),
            (len(inputs), *kwargs),
            (pattern.training, bool(is_cuda)),
            _conditions(),
        )
        hash(key)
    except (TypeError, ValueError):  # something that can't be compared later
        return None
    return key


def _in_some_mode() -> bool:
    """Whether something listens to operators or changes them, or writes into the meta of nodes."""
    return bool(
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or not torch._C._is_torch_function_enabled()
        or torch._C._is_any_autocast_enabled()
        or torch._C._functorch.get_interpreter_stack()
        or torch.compiler.is_compiling()
        or torch.fx.traceback.has_preserved_node_meta()
        or torch.fx.traceback.current_meta
    )


def _conditions() -> Hashable:
    import torch._dynamo.config
    import torch._export.config
    import torch._functorch.config
    import torch.fx.experimental._config

    configs = (torch._dynamo.config, torch._export.config, torch._functorch.config, torch.fx.experimental._config)
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.export.export,
        *(config.get_hash() for config in configs),
    )


def _function_key(function: FunctionType) -> Hashable:
    if function.__defaults__ or function.__kwdefaults__ or hasattr(function, "__wrapped__"):
        raise ValueError
    names = function.__code__.co_names
    return (
        function.__code__,
        tuple((name, _value_key(value)) for name, value in _closure(function).items()),
        # What its names may stand for: somebody may have put another function there.
        tuple(_global_key(function.__globals__.get(name)) for name in names),
        tuple(getattr(home, name, None) for home in (torch, F) for name in names),
    )


def _value_key(value: Any) -> Hashable:
    if type(value) in _CONSTANTS:
        return type(value), value
    if type(value) is BuiltinFunctionType or (type(value) is FunctionType and value.__closure__ is None):
        return value
    raise ValueError


def _global_key(value: Any) -> Hashable:
    return value, getattr(value, "__code__", None)


def _inputs_key(inputs: list[Any]) -> Hashable:
    places: dict[int, int] = {}  # one tensor given twice makes another graph than two
    return tuple((places.setdefault(id(value), place), _input_key(value)) for place, value in enumerate(inputs))


def _input_key(value: Any) -> Hashable:
    if type(value) in _CONSTANTS:
        return type(value), value
    if type(value) is not torch.Tensor or value.layout is not torch.strided or vars(value):
        raise ValueError
    return (
        tuple(value.shape),
        value.stride(),
        value.storage_offset(),
        value.dtype,
        value.device,
        value.requires_grad,
        value.is_leaf,
        value.is_inference(),
        value.is_conj(),
        value.is_neg(),
    )


# ---- functions that only match with patterns


def _put_off(stock: Any, *args: Any, **kwargs: Any) -> Any:
    """Leaves patterns unmade that can't match, and replacements of nothing"""
    if not _is_all_known(vars(sys.modules[_QAT])):
        return stock(*args, **kwargs)
    with _at_work(True, None):
        return stock.__wrapped__(*args, **kwargs)


def _annotate(stock: Any, gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
    """Leaves patterns unmade that can't match"""
    if not _is_all_known(vars(sys.modules[_XNNPACK])):
        return stock(gm, *args, **kwargs)
    with _at_work(False, gm.graph):
        return stock.__wrapped__(gm, *args, **kwargs)


# What they hand patterns to.
_TAKERS = {
    (subgraph_rewriter, "replace_pattern_with_filters"): "e200e9378f1e7936",
    (SubgraphMatcher, "__init__"): "36b0463cd5c49131",
    (SubgraphMatcher, "match"): "8134e695f588f7c8",
    (SubgraphMatcherWithNameNodeMap, "__init__"): "e3722f6807b5d1bf",
    (SubgraphMatcherWithNameNodeMap, "match"): "dcbea467433a58e3",
}


def _is_all_known(namespace: dict[str, Any]) -> bool:
    """Whether torchao hands patterns to ours and to what is torch's only, so that nobody misses one."""
    scope = _scope.current()
    replace, export = behind(subgraph_rewriter._replace_pattern), behind(namespace[_EXPORT])
    return (
        scope is not None
        and replace is not None
        and export is not None
        and (replace[0].name, export[0].name) == ("replace_pattern", _ENTRY)
        and replace[0].enabled
        and scope.covers("replace_pattern")
        and is_plain(SubgraphMatcher, {})
        and is_plain(SubgraphMatcherWithNameNodeMap, {})
        and all(is_torchs(getattr(holder, name), source) for (holder, name), source in _TAKERS.items())
        and all(namespace.get(taker.__name__, taker) is taker for taker in _OFFERED)
    )


_OFFERED = (subgraph_rewriter.replace_pattern_with_filters, SubgraphMatcherWithNameNodeMap)

REPLACEMENTS = (
    Replacement(
        _ENTRY,
        (
            f"torchao.quantization.pt2e.utils:{_EXPORT}",
            f"{_QAT}:{_EXPORT}",
            f"torchao.quantization.pt2e.reference_representation_rewrite:{_EXPORT}",
            f"{_XNNPACK}:{_EXPORT}",
        ),
        _export,
        ("2760e12e1e6e5325",),
        since="torchao 0.18",
        verify=_verify_export,
    ),
    Replacement(
        "qat_fuse_conv_bn",
        (f"{_QAT}:_fuse_conv_bn_qat_helper",),
        _put_off,
        ("bbed991592d56c25",),
        since="torchao 0.18",
        verify=_verify_inside,
    ),
    Replacement(
        "qat_fold_conv_bn",
        (f"{_QAT}:_fold_conv_bn_qat_helper",),
        _put_off,
        ("a7f715d1f9f169b0",),
        since="torchao 0.18",
        verify=_verify_inside,
    ),
    Replacement(
        "xnnpack_annotate_conv_bn",
        (f"{_XNNPACK}:_do_annotate_conv_bn",),
        _annotate,
        ("09c4d1a58f8e108a",),
        since="torchao 0.18",
        verify=_verify_inside,
    ),
)
