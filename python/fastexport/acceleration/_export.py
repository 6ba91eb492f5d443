"""What torch.export does with whole graphs: verifying them, unlifting their inputs, noting where nodes come from.

Checks run on what can be seen at a glance to be in order, each kind of call and each attribute once; where something
is not, torch's own check runs and raises. Classes that override what a check asks are asked.
"""

from __future__ import annotations

import copy
import inspect
import linecache
import logging
import sys
import traceback
import warnings
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._export import verifier
from torch._export.verifier import Verifier
from torch._guards import TracingContext
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import graph as fx_graph
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from fastexport import _core, _torch
from fastexport.acceleration._graphs import NODE, Methods
from fastexport.acceleration._replacement import Replacement
from fastexport.acceleration._verify import outcome, require_same, verify_method

# ---- the verifier

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN_VALUES = frozenset(
    (type(None), int, bool, str, float, torch.memory_format, torch.dtype, torch.device, torch.layout)
    + (FakeTensor, torch.Tensor, torch.nn.Parameter, *_SYMBOLS)
)
_CHECK_VAL, _GETATTR = verifier._check_val, verifier.getattr_recursive
# Modules that the verifier knows by the name of their class.
_BY_NAME = frozenset(("LoweredBackendModule", "AOTInductorEPModule", "AOTInductorRunnerWrapper"))


class _Unfit(Exception):
    """Something isn't seen at a glance to be in order."""


class _Check:
    """One run of a verifier: what was found in order already."""

    def __init__(self, stock: Any, asked: Any) -> None:
        self._stock = stock
        self._asked = asked
        self._functions: set[Any] = set()
        override = type(asked).check_valid_op is not Verifier.check_valid_op or "check_valid_op" in vars(asked)
        self._check_valid_op = asked.check_valid_op if override else None

    def module(self, module: torch.fx.GraphModule, is_top: bool) -> None:
        """Check the nodes of a graph.

        Raises:
            _Unfit: torch's check has to look.
            Exception: what the verifier's own checks raise.
        """
        attributes: set[str] = set()
        for node in module.graph.nodes:
            op = node.op
            if op == "call_function":
                self._value(node)
                self._function(node.target)
            elif op == "placeholder":
                self._value(node)
            elif op == "get_attr":
                if node.target not in attributes:
                    self._attribute(module, node.target, is_top)
                    attributes.add(node.target)
            elif op != "output":
                raise _Unfit

    def _value(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val", self)
        if type(value) in _PLAIN_VALUES:
            return
        if type(value) in (list, tuple) and _PLAIN_VALUES.issuperset(map(type, value)):
            return
        verifier._check_val(node)

    def _function(self, target: Any) -> None:
        if not _is_among(target, self._functions):
            types = self._asked.allowed_op_types()
            if any(kind is object for kind in types):
                raise _Unfit
            if not isinstance(target, types) and not self._is_listed(target):
                raise _Unfit
            if isinstance(target, OpOverload) and self._asked.dialect != "TRAINING" and target._schema.is_mutable:
                raise _Unfit
            self._functions.add(target)
        if self._check_valid_op is not None:
            self._check_valid_op(target)

    def _is_listed(self, target: Any) -> bool:
        builtins = self._asked.allowed_builtin_ops()
        if not all(inspect.isbuiltin(op) for op in builtins):
            raise _Unfit
        return target in builtins or _is_listed_function(self._stock.__wrapped__, target)

    def _attribute(self, module: torch.fx.GraphModule, target: Any, is_top: bool) -> None:
        types = self._asked.allowed_getattr_types() if is_top else self._asked.allowed_getattr_types_for_subgm()
        if not isinstance(target, str) or any(kind is object for kind in types):
            raise _Unfit
        found = verifier.getattr_recursive(module, target)
        if not isinstance(found, types) or (isinstance(found, torch.nn.Module) and type(found).__name__ in _BY_NAME):
            raise _Unfit


def _is_among(target: Any, known: set[Any]) -> bool:
    try:
        return target in known
    except TypeError:  # unhashable
        raise _Unfit from None


_listed: dict[Any, bool] = {}


def _is_listed_function(stock: Any, target: Any) -> bool:
    """Whether torch's list of functions that are allowed everywhere has one: asked of torch's check, once."""
    known = _listed.get(target)
    if known is None:
        graph = torch.fx.Graph()
        graph.create_node("call_function", target).meta["val"] = None
        module = torch.fx.GraphModule.__new__(torch.fx.GraphModule)
        torch.nn.Module.__init__(module)
        module._graph = graph  # no code is needed, and none is made
        asked: Any = Verifier()
        asked.allowed_op_types, asked.allowed_builtin_ops = tuple, list  # nothing but what is on that list
        try:
            stock(asked, module)
            known = True
        except Exception:
            known = False
        _listed[target] = known
    return known


def check_graph_module(stock: Any, self: Any, gm: Any) -> None:
    """Verifier.check: what is called and read is checked once each; torch's check runs where anything is odd"""
    if (
        not isinstance(gm, torch.fx.GraphModule)
        or verifier._check_val is not _CHECK_VAL
        or verifier.getattr_recursive is not _GETATTR
    ):
        return stock(self, gm)
    check = _Check(stock, self)
    try:
        for module in gm.modules():
            if isinstance(module, torch.fx.GraphModule):
                module.graph.lint()
                check.module(module, module is gm)
    except _Unfit:
        return stock(self, gm)
    self.check_additional(gm)
    return None


# ---- repeated getitems

_GRAPHS = Methods(fx_graph, torch.fx.Graph, "nodes", "owning_module")


def eliminate_getitems(stock: Any, gm: Any, graph_signature: Any, module_call_graph: Any) -> None:
    """The getitem elimination of ExportedProgram: torch's runs only when some getitem repeats another"""
    if _torch._FAST and isinstance(gm, torch.fx.GraphModule) and callable(graph_signature.get_replace_hook()):
        try:
            if not any(_has_repeated_getitems(module) for module in gm.modules()):
                return None
        except Exception:  # torch's pass says what it is
            pass
    return stock(gm, graph_signature, module_call_graph)


def _has_repeated_getitems(module: Any) -> bool:
    if not isinstance(module, torch.fx.GraphModule):
        return False
    graph = module.graph
    return not _GRAPHS.are_those_of(type(graph), graph) or _core.fx_eliminate_getitems(graph, True, False) != []


# ---- the fake mode of a graph's values


def get_shape_env(stock: Any, gm: Any) -> Any:
    """The ShapeEnv of a graph's values, without flattening them by pytree"""
    if TracingContext.try_get() or _get_current_dispatch_mode_stack():
        return stock(gm)
    values = []
    for node in gm.graph.nodes:
        value = node.meta.get("val", None)
        if value is not None:
            values.append(value)
    mode = None
    for value in values:
        for item in value if type(value) in (list, tuple) else (value,):
            kind = type(item)
            if kind is FakeTensor:
                if mode is None:
                    mode = item.fake_mode
                elif item.fake_mode is not mode:
                    return stock(gm)
            elif kind not in _PLAIN_VALUES:
                return stock(gm)
    if mode is not None:
        return mode.shape_env
    for value in values:
        if isinstance(value, torch.SymInt):
            return value.node.shape_env
    return None


# ---- where nodes come from

_SOURCE_PARTS = ("pass_name", "action", "node_info", "from_node", "_action_string", "_dict")
_INFO_PARTS = ("name", "target", "graph_id")
_PLAIN = frozenset((str, int, type(None), NodeSourceAction))


class _SourceCopies:
    """copy.deepcopy of lists of NodeSource: what is shared in the list is shared in the copy."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def list(self, items: Any) -> Any:
        if type(items) is not list:
            raise _Unfit
        known = self._made.get(id(items))
        if known is None:
            known = self._made[id(items)] = []
            known += [item if type(item) in _PLAIN else self._source(item) for item in items]
        return known

    def _source(self, source: Any) -> Any:
        if type(source) is not NodeSource or tuple(vars(source)) != _SOURCE_PARTS or source._dict is not None:
            raise _Unfit
        known = self._made.get(id(source))
        if known is None:
            known = self._made[id(source)] = object.__new__(NodeSource)
            parts = vars(source)
            if type(parts["pass_name"]) not in _PLAIN or type(parts["_action_string"]) not in _PLAIN:
                raise _Unfit
            vars(known).update(
                pass_name=parts["pass_name"],
                action=self.list(parts["action"]),
                node_info=self._info(parts["node_info"]),
                from_node=self.list(parts["from_node"]),
                _action_string=parts["_action_string"],
                _dict=None,
            )
        return known

    def _info(self, info: Any) -> Any:
        if info is None:
            return None
        parts = vars(info) if type(info) is NodeSource.NodeInfo else {}
        if tuple(parts) != _INFO_PARTS or not _PLAIN.issuperset(map(type, parts.values())):
            raise _Unfit
        known = self._made.get(id(info))
        if known is None:
            known = self._made[id(info)] = object.__new__(NodeSource.NodeInfo)
            vars(known).update(parts)
        return known


def _copy_sources(sources: Any) -> Any:
    try:
        return _SourceCopies().list(sources)
    except _Unfit:
        return copy.deepcopy(sources)


def note_source(stock: Any, self: Any, node: Any, pass_name: str = "", action: Any = None) -> None:
    """NodeSource: the sources of its node are copied without copy.deepcopy"""
    actions = [] if action is None else action if isinstance(action, list) else [action]
    for item in actions:
        if not isinstance(item, NodeSourceAction):
            raise AssertionError(f"Expected NodeSourceAction, got {type(item)}")
    info, sources = None, []
    if node:
        info = self.NodeInfo(name=node.name, target=str(node.target), graph_id=id(node.graph))
        if "from_node" in node.meta:
            sources = _copy_sources(node.meta["from_node"])
    self.pass_name = pass_name
    self.action = actions
    self.node_info = info
    self.from_node = sources
    self._action_string = None
    self._dict = None


def _verify_source(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A new object is all that is made, so that torch's can make another from the same node."""
    twin = object.__new__(type(args[0]))
    expected = outcome(stock, (twin, *args[1:]), kwargs)
    found = outcome(ours, args, kwargs)
    lazy = ("_action_string", "_dict", "_hash")  # filled in when somebody asks
    states = [{name: value for name, value in vars(each).items() if name not in lazy} for each in (twin, args[0])]
    require_same(expected, found, "note_source", *states)
    return found.value()


# ---- attributes of unlifted modules


def assign_attr(
    stock: Any, from_obj: Any, to_module: Any, target: str, attr_kind: Any, persistent: bool = True
) -> None:
    """The assignment of parameters and buffers by path, without matching the names of all modules on the way"""
    *prefix, field = target.split(".")
    holder = to_module
    for item in prefix:
        if not hasattr(holder, item):
            setattr(holder, item, torch.nn.Module())
        names = "".join(holder._modules)
        if "@" in names or "\n" in names:  # a module called several times
            return stock(from_obj, to_module, target, attr_kind, persistent)
        if item not in holder._modules:
            return None
        holder = holder._modules[item]
        if holder is None:
            return stock(from_obj, to_module, target, attr_kind, persistent)
    return stock.__wrapped__(from_obj, holder, field, attr_kind, persistent)


# ---- inputs of unlifted modules

_EDITED = Methods(fx_graph, torch.fx.Graph, "get_attr", "create_node", "erase_node", "inserting_after", "nodes")
_HOOKS = ("_create_node_hooks", "_replace_hooks", "_erase_node_hooks")


def unlift_inputs(stock: Any, gm: Any, lifted_inputs: Any) -> Any:
    """The inputs that stand for parameters become get_attr nodes, in bulk"""
    graph = gm.graph
    placeholders = graph.find_nodes(op="placeholder")
    lifted = [(node, path) for node, path in zip(placeholders, lifted_inputs, strict=False) if path is not None]
    if (
        not _torch._FAST
        or len(placeholders) != len(lifted_inputs)
        or not all(type(path) is str for _, path in lifted)
        or not _EDITED.are_those_of(type(graph), graph)
        or not NODE.are_those_of(torch.fx.Node)
        or any(getattr(graph.owning_module, name, None) for name in _HOOKS)
    ):
        return stock(gm, lifted_inputs)
    with warnings.catch_warnings():  # which makes Python forget what it has warned of, as torch's does
        warnings.simplefilter("ignore")
        made = _core.fx_insert(graph, [(node, False, "get_attr", path, (), None, None, None) for node, path in lifted])
    _core.fx_replace_all_uses(graph, [(node, new) for (node, _), new in zip(lifted, made, strict=True)])
    _core.fx_erase(graph, [node for node, _ in lifted])
    for (node, _), new in zip(lifted, made, strict=True):
        new.meta = node.meta
        new.meta["from_node"] = [
            NodeSource(node, "ExportedProgram.module().unlift()", [NodeSourceAction.CREATE, NodeSourceAction.REPLACE])
        ]
    inputs = {node.name: node for node, path in zip(placeholders, lifted_inputs, strict=True) if path is None}
    return {path: new for (_, path), new in zip(lifted, made, strict=True)}, inputs


# ---- metadata of parameters


class _Hoisted(NamedTuple):
    """As much of a signature as the filling in of metadata looks at."""

    inputs_to_parameters: Any
    inputs_to_buffers: Any


def populate_metadata(stock: Any, params_buffers_to_node_meta: Any, gm: Any, new_sig: Any) -> None:
    """The metadata of parameters in a new graph, with the tables of its signature made once"""
    tables = _Hoisted(new_sig.inputs_to_parameters, new_sig.inputs_to_buffers)
    return stock.__wrapped__(params_buffers_to_node_meta, gm, tables)


# ---- frames of stack traces

_FRAMES_KEPT = 20_000
_frames: dict[tuple[str, int, str], tuple[traceback.FrameSummary, Any]] = {}


def _make_frame(filename: str, line: int, name: str) -> traceback.FrameSummary:
    """A frame with the text of its line. It is good for as long as linecache holds the same text of the file."""
    made = traceback.FrameSummary(filename, line, name)
    text = linecache.cache.get(filename)
    if text is not None and len(text) == 4 and not filename.startswith("<"):
        if len(_frames) >= _FRAMES_KEPT:
            _frames.clear()
        _frames[filename, line, name] = made, text
    return made


def stack_summary(stock: Any, tb: Any, skip: Any) -> Any:
    """The frames of a stack trace, those that were met before not looked up again"""
    texts, known = linecache.cache, _frames
    summary = traceback.StackSummary()
    for frame in reversed(tb[skip:]):
        key = frame["filename"], frame["line"], frame["name"]
        found = known.get(key)
        summary.append(found[0] if found is not None and found[1] is texts.get(key[0]) else _make_frame(*key))
    return summary


# ---- a text for a log that nobody keeps


_TRACE = (str, type(None))


def _is_printable(module: Any) -> bool:
    """Whether torch's text of a graph raises nothing, as it does for what is odd."""
    if not isinstance(module, torch.fx.GraphModule):
        return True
    for node in module.graph.nodes:
        meta, target = node.meta, node.target
        if type(node.name) is not str or not isinstance(meta.get("stack_trace"), _TRACE):
            return False
        if type(meta.get("custom")) not in (dict, type(None)):
            return False
        if node.op == "output" and not node.args:
            return False
        if getattr(target, "__module__", None) == "_operator":  # written with its sign
            if len(node.args) < fx_graph.magic_methods.get(target.__name__, "").count("{}"):
                return False
    return True


def print_readable(stock: Any, self: Any, *args: Any, **kwargs: Any) -> str:
    """The text of a graph: none is made for the serializer's log when that is off"""
    if not args and kwargs == {"print_output": False}:
        serialize: Any = sys.modules.get("torch._export.serde.serialize")
        caller = sys._getframe(2)
        if (
            serialize is not None
            and caller.f_code.co_name == "serialize_graph"
            and caller.f_globals is vars(serialize)
            and not serialize.log.isEnabledFor(logging.DEBUG)
            and all(_is_printable(module) for module in self.modules())
        ):
            return ""
    return stock(self, *args, **kwargs)


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "verifier",
        ("torch._export.verifier:Verifier._check_graph_module",),
        check_graph_module,
        ("20acfb8e6fbddde3",),
    ),
    Replacement(
        "export_getitems",
        ("torch.export.exported_program:_common_getitem_elimination_pass",),
        eliminate_getitems,
        ("ef3aa4a36ace00ca",),
        verify=verify_method,
    ),
    Replacement(
        "export_shape_env",
        ("torch.export.exported_program:_get_shape_env",),
        get_shape_env,
        ("739f50a2cf70f5aa",),
    ),
    Replacement(
        "node_source",
        ("torch.fx.traceback:NodeSource.__init__",),
        note_source,
        ("99395e7f40a4a049",),
        verify=_verify_source,
    ),
    Replacement(
        "assign_attr",
        (
            "torch.export.unflatten:_assign_attr",
            "torch.export._unlift:_assign_attr",
            "torchao.quantization.pt2e.utils:_assign_attr",
        ),
        assign_attr,
        ("f557069b43ec1eda",),
        verify=verify_method,
    ),
    Replacement(
        "unlift_inputs",
        ("torch.export._unlift:_unlift_inputs_as_getattr",),
        unlift_inputs,
        ("a530345be14ba307",),
        verify=verify_method,
    ),
    Replacement(
        "populate_metadata",
        (
            "torch._export.utils:_populate_param_buffer_metadata_to_new_gm",
            "torch.export._trace:_populate_param_buffer_metadata_to_new_gm",
            "torch.export.exported_program:_populate_param_buffer_metadata_to_new_gm",
        ),
        populate_metadata,
        ("89e75119b33fa818",),
        verify=verify_method,
    ),
    Replacement(
        "stack_summary",
        ("torch.utils._traceback:_extract_symbolized_tb",),
        stack_summary,
        ("7b565cf94c562812",),
    ),
    Replacement(
        "print_readable",
        ("torch.fx.graph_module:GraphModule.print_readable",),
        print_readable,
        ("814715b6d0c8b647",),
    ),
)
