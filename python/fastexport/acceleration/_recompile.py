"""GraphModule.recompile that leaves generating and compiling code to the first look at it.

It takes the place of torch's while something is accelerated, and is what passes in place end with (`renew_code`).

Code is generated several times in a row while a module is quantised or exported, and mostly nobody looks at it. Ours
writes down what the code depends on (`_core.fx_record`), so that the code is that of the graph as it was at the call,
whatever happens to the graph later. All else that torch's does is done at once: the specs of inputs and outputs, how
the module is called, the submodules, the order of find_nodes, the number in the code's file name.

Where generating code might raise, or might come out otherwise later on, it is left to torch, at once.

Graph.python_code goes the same way, but at once: the code is made from what `_core.fx_record` writes down, unless that
finds the graph unfit, or options ask for more than plain code.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from keyword import iskeyword
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from torch._guards import CompileContext
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule
from torch.fx import graph as fx_graph
from torch.fx import graph_module as fx_graph_module
from torch.fx.experimental import _config as fx_config
from torch.fx.graph import CodeGen, Graph, PythonCode, _PyTreeCodeGen, _PyTreeInfo
from torch.fx.node import Node, _get_qualified_name

from fastexport import _core, _torch
from fastexport.acceleration import _deferred
from fastexport.acceleration._deferred import CONSTANTS, METHODS, STATE, Deferred, PromisedCode, defer, generate
from fastexport.acceleration._replacement import Replacement, digest, is_theirs, stock_behind
from fastexport.acceleration._verify import verify_method

_CODEGENS = (CodeGen, _PyTreeCodeGen)
_CODEGEN_STATE = frozenset(("_body_transformer", "_func_name", "pytree_info"))
# Methods of a GraphModule that may not be overridden, for they see the code, or decide how attributes are kept.
_OWN_METHODS = (
    "__new__",
    "recompile",
    "_recompile_submodules",
    "code",
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "__delattr__",
    "__dir__",
    "__setstate__",
    "__copy__",
    "__deepcopy__",
    "_deepcopy_init",
    *METHODS,
)
_NAME_OF_CLASS = "GraphModule.__new__.<locals>.GraphModuleImpl"
_OUR_PACKAGE = __name__.partition(".")[0] + "."
# What python_code can be asked for besides the name of the root module; all off in what ours does.
_OPTIONS = frozenset(inspect.signature(Graph.python_code).parameters) - {"self", "root_module"}
_ATTRIBUTES = frozenset(("__dict__", "vars"))
_RECOMPILE = vars(GraphModule)["recompile"]
_RECOMPILE_DIGESTS = ("98adb1519c457ae4",)
# What torch's code generation consists of, and what relies on it; the digest is of all their source texts.
_PARTS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (CodeGen, ("_gen_python_code", "gen_fn_def", "generate_output", "additional_globals")),
    (CodeGen, ("_call_method_with_signature_check",)),
    (_PyTreeCodeGen, ("gen_fn_def", "gen_var_bindings", "generate_output", "_format_annotations")),
    (Graph, ("python_code", "_python_code")),
    (fx_graph._Namespace, ("create_name",)),
    (Node, ("__repr__", "__setattr__")),
    (GraphModule, ("__new__", "__reduce__", "__reduce_package__", "__deepcopy__", "__copy__")),
    (fx_graph_module, ("_forward_from_src", "_method_from_src", "_exec_with_source")),
    (fx_graph_module._EvalCacheLoader, ("cache", "_get_key", "get_source")),
)
_PARTS_DIGEST = "08634beeca6236da"


_PLACES = [(vars(holder), name) for holder, names in _PARTS for name in names]
_KNOWN = [holder.get(name) for holder, name in _PLACES]


def recompile(stock: Callable[..., PythonCode], self: GraphModule) -> PythonCode:
    """Make the code of a GraphModule when somebody looks at it, of the graph as it is now."""
    deferred = _deferral(self)
    if deferred is None:
        return stock(self)
    _put_off(self, deferred, self._recompile_submodules)
    return PromisedCode(deferred)


def renew_code(module: GraphModule) -> None:
    """Let a module's code, and that of the modules below it, be that of its graph, as ``module.recompile()`` does.

    It is what passes of ours end with, and needs no `accelerate`: the code is made at the first look, unless it has to
    be made at once, or somebody has put a recompile of his own, or an accelerated one, in the place of torch's.
    """
    is_stock = vars(GraphModule).get("recompile") is _RECOMPILE and "recompile" not in getattr(module, "__dict__", ())
    deferred = _deferral(module) if is_stock and _is_recompile_known() else None
    if deferred is None:
        module.recompile()
    else:
        _put_off(module, deferred, lambda: _renew_submodules(module))


def _renew_submodules(module: GraphModule) -> None:
    for _, child in module.named_children():
        if isinstance(child, GraphModule):
            renew_code(child)


def _put_off(module: GraphModule, deferred: Deferred, recompile_submodules: Callable[[], Any]) -> None:
    """Do all that recompile does but for making the code."""
    codegen = module._graph._codegen
    if isinstance(codegen, _PyTreeCodeGen):
        module._in_spec = codegen.pytree_info.in_spec
        module._out_spec = codegen.pytree_info.out_spec
    defer(module, deferred)
    cls = type(module)
    own_call = cls.__call__ if "__call__" in vars(cls) else None
    if "_wrapped_call" not in vars(cls):
        cls._wrapped_call = fx_graph_module._WrappedCall(cls, own_call)
    recompile_submodules()
    cls.__call__ = _call_wrapped()


def forward_signature(module: GraphModule) -> inspect.Signature:
    """``inspect.signature(module.forward)``, without making code that is still to be made."""
    pending = _deferred.pending_of(type(module))
    deferred = pending.deferred if pending is not None and pending.stands("forward") else None
    if deferred is None or "forward" in vars(module):
        return inspect.signature(module.forward)
    return inspect.signature(deferred.signature_stub().__get__(module))


def python_code(stock: Callable[..., PythonCode], self: Graph, *args: Any, **kwargs: Any) -> PythonCode:
    """The code of a graph, the lines of its nodes made in C."""
    root = _root_module(*args, **kwargs)
    code = _code_at_once(self, root) if root is not None else None
    return stock(self, *args, **kwargs) if code is None else code


def _root_module(*args: Any, **kwargs: Any) -> str | None:
    """The argument of python_code when there is no other, and it is a name."""
    args += (kwargs.pop("root_module"),) if "root_module" in kwargs else ()
    are_off = _OPTIONS.issuperset(kwargs) and all(value is False or value is None for value in kwargs.values())
    return args[0] if are_off and len(args) == 1 and _are_words(args) else None


def _code_at_once(graph: Graph, root_module: str) -> PythonCode | None:
    if type(graph) is not Graph or not _is_generation_known() or not _is_plain_graph(graph):
        return None
    found = _record(graph)
    return generate(found[0], graph._codegen, root_module) if found is not None else None


def _record(graph: Graph) -> tuple[tuple[Any, ...], list[str]] | None:
    try:
        return _core.fx_record(graph, _least_arguments, CONSTANTS)
    except (ValueError, TypeError, RuntimeError, AttributeError):  # a damaged graph: torch will say what it says
        return None


def _deferral(module: GraphModule) -> Deferred | None:
    """What will make the code; None when it has to be made at once."""
    graph: Any = getattr(module, "__dict__", {}).get("_graph")
    if (
        type(graph) is not Graph
        or not _is_torch_as_known()
        or not _is_plain_class(module)
        or not _is_plain_graph(graph)
        or _caller_sees_attributes()
    ):
        return None
    found = _record(graph)
    if found is None:
        return None
    record, inputs = found
    codegen = _frozen(graph._codegen)
    header = _header(codegen, inputs)
    if header is None:
        return None
    co_fields = dict(graph._co_fields) if hasattr(graph, "_co_fields") else {}
    return Deferred(record, codegen, co_fields, header, fx_graph_module._loader)


# ---- conditions


def _is_torch_as_known() -> bool:
    """Whether torch is as studied: nothing of it is patched, and no mode is on that goes about code its own way."""
    return (
        _is_generation_known()
        and not fx_config.enrich_profiler_metadata
        and type(fx_graph_module._loader) is fx_graph_module._EvalCacheLoader
        and CompileContext.try_get() is None
        and _deferred.hear_of_frames()
    )


def _is_generation_known() -> bool:
    return _is_version_known() and _are_parts_known() and os.environ.get("FX_GRAPH_SHOW_META", "0") != "1"


@functools.cache
def _is_version_known() -> bool:
    texts = " ".join(map(digest, _KNOWN))
    are_theirs = all(is_theirs(part) for part in _KNOWN)
    return _torch._FAST and are_theirs and hashlib.sha256(texts.encode()).hexdigest()[:16] == _PARTS_DIGEST


@functools.cache
def _is_recompile_known() -> bool:
    return is_theirs(_RECOMPILE) and digest(_RECOMPILE) in _RECOMPILE_DIGESTS


def _are_parts_known() -> bool:
    held = [holder.get(name) for holder, name in _PLACES]
    return held == _KNOWN or list(map(stock_behind, held)) == _KNOWN


def _is_plain_class(module: GraphModule) -> bool:
    """Whether the class is the one torch made for this module alone, and lets its attributes be as torch does."""
    cls = type(module)
    metaclass: Any = type(cls)
    if cls.__qualname__ != _NAME_OF_CLASS or metaclass.__setattr__ is not type.__setattr__:
        return False
    held = vars(cls)
    if any(name in held and not isinstance(held[name], _deferred._Hook) for name in (*STATE, *METHODS)):
        return False
    base = cls.__mro__[1]
    return base is GraphModule or (
        all(getattr(base, name) is getattr(GraphModule, name) for name in _OWN_METHODS)
        and not any(hasattr(base, name) for name in STATE)
    )


def _caller_sees_attributes() -> bool:
    """Whether the function that calls recompile takes some ``__dict__``, where the code might be missed."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OUR_PACKAGE):
        frame = frame.f_back
    return frame is not None and not _ATTRIBUTES.isdisjoint(frame.f_code.co_names)


def _is_plain_graph(graph: Graph) -> bool:
    codegen = graph._codegen
    state = vars(codegen)
    return (
        type(codegen) in _CODEGENS
        and _CODEGEN_STATE.issuperset(state)
        and state.get("_body_transformer") is None
        and state.get("_func_name") == "forward"
        and "python_code" not in vars(graph)
        and "_python_code" not in vars(graph)
    )


def _least_arguments(function: Any) -> int | None:
    """How many arguments a call's code needs; negative when the first must be a node; None for unknown functions."""
    if type(function) in (OpOverload, BuiltinFunctionType, FunctionType) or isinstance(function, HigherOrderOperator):
        return _least_arguments_of(function)
    return None


@functools.lru_cache(maxsize=4096)
def _least_arguments_of(function: Any) -> int | None:
    try:
        name, module = function.__name__, function.__module__
        path = _get_qualified_name(function)
    except Exception:  # torch's code generation will raise it again
        return None
    if module == "_operator" and type(function) is BuiltinFunctionType:
        text = fx_graph.magic_methods.get(name) or fx_graph.inplace_methods.get(name) or ""
        least = text.count("{}")
        # "5[0]" and "~True" are worth a warning to the compiler, "5 += 1" is an error.
        return -least if least == 1 or name == "getitem" or name in fx_graph.inplace_methods else least
    known = fx_graph._is_from_torch(function) and _are_words(path.split("."))
    return 0 if known else None


def _are_words(words: Iterable[Any]) -> bool:
    return all(type(word) is str and word.isascii() and word.isidentifier() and not iskeyword(word) for word in words)


# ---- what the code depends on besides nodes


def _frozen(codegen: CodeGen) -> CodeGen:
    """A code generator in the state that another has now. It calls its methods without asking for their signatures."""
    twin = object.__new__(type(codegen))
    twin.__dict__.update(vars(codegen), _call_method_with_signature_check=_call)
    info: Any = getattr(twin, "pytree_info", None)
    if type(info) is _PyTreeInfo and isinstance(info.orig_args, list):
        twin.__dict__["pytree_info"] = info._replace(orig_args=list(info.orig_args))
    return twin


def _call(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return method(*args, **kwargs)


def _header(codegen: CodeGen, inputs: list[str]) -> str | None:
    """The line that defines the function; None when what comes before the nodes' lines may be no Python."""
    try:
        parameters = _parameters(codegen, inputs)
        lines = codegen.gen_fn_def(list(inputs), "")
    except Exception:  # torch's code generation will raise it again
        return None
    if parameters is None or any(len(set(x)) != len(x) or "self" in x[1:] for x in (parameters, inputs)):
        return None
    return lines.partition("\n")[0]


def _parameters(codegen: CodeGen, inputs: list[str]) -> list[str] | None:
    """The names in the function's header; None when they, or names in what unpacks them, may be no Python."""
    if not isinstance(codegen, _PyTreeCodeGen) or codegen.pytree_info is None:
        return inputs
    info = codegen.pytree_info
    if type(info) is not _PyTreeInfo or type(info.orig_args) is not list:
        return None
    spec = info.in_spec
    has_keys = spec.type is tuple and spec.num_children == 2 and spec.child(1).type is dict
    are_fit = _are_words(info.orig_args) and (not has_keys or _are_words(spec.child(1).context))
    return info.orig_args if are_fit else None


@functools.cache
def _call_code() -> CodeType:
    """The code of the function that torch sets as a module's __call__; its file name tells torch.compile what it is."""
    return next(c for c in _RECOMPILE.__code__.co_consts if isinstance(c, CodeType) and c.co_name == "call_wrapped")


def _call_wrapped() -> FunctionType:
    function = FunctionType(_call_code(), vars(fx_graph_module), "call_wrapped")
    function.__annotations__ = dict.fromkeys(("self", "args", "kwargs", "return"), "Any")
    return function


def _verify(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make ours at once, so that there is something to compare."""

    def recompile(*args: Any, **kwargs: Any) -> PythonCode:
        code: PythonCode = ours(*args, **kwargs)
        return code.fulfil() if isinstance(code, PromisedCode) else code

    return verify_method(recompile, stock, args, kwargs)


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "recompile",
        ("torch.fx.graph_module:GraphModule.recompile",),
        recompile,
        _RECOMPILE_DIGESTS,
        verify=_verify,
    ),
    Replacement(
        "python_code",
        ("torch.fx.graph:Graph.python_code",),
        python_code,
        ("a18c22f227f05adf",),
        verify=verify_method,
    ),
)
