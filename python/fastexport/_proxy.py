"""Proxies: values that record what is done to them. The C part is in csrc/py/proxy.c.

The classes are torch.fx's too, so that code which asks ``isinstance(x, torch.fx.Proxy)`` gets the answer it would get
under torch's own tracer; all that is done to a proxy goes to C first.
"""

from __future__ import annotations

import functools
import linecache
import opcode
import os
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
import torch.fx
import torch.fx.proxy
import torch.fx.traceback
from torch.utils import _pytree

from fastexport import _core, _torch_tracing
from fastexport._errors import FastExportError, shown_as
from fastexport._graph import Graph
from fastexport._naming import stem

_MACHINERY = (os.path.join(os.path.dirname(__file__), ""), os.path.join(os.path.dirname(torch.fx.__file__), ""))
_UNPACK = opcode.opmap["UNPACK_SEQUENCE"]
_EXTENDED = opcode.EXTENDED_ARG
_ASSERT = opcode.opmap["LOAD_ASSERTION_ERROR"]
_JUMPS = {opcode.opmap[name] for name in ("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE") if name in opcode.opmap}
_SKIPPED = {opcode.opmap[name] for name in ("CACHE", "EXTENDED_ARG", "TO_BOOL", "NOT_TAKEN") if name in opcode.opmap}


class TraceError(FastExportError, torch.fx.proxy.TraceError):
    """The program does something that only a value can tell, which there is none of while it is traced."""

    __module__ = "fastexport"


class Proxy(_core.Proxy, torch.fx.Proxy):
    """Stands for the value of a node while a program is traced: operations on it become nodes.

    A Proxy can also be put around any node of a graph, to add to the graph by writing expressions. It can't be looped
    over, tested for truth, measured with ``len`` or taken for a number, because there is no value yet; unpacking into a
    fixed number of names works.

    Args:
        node: a `Node`.
        tracer: who records; None: a `GraphAppendingTracer` of the node's graph.

    Raises:
        TypeError: node is no Node of fastexport.

    Example:
        >>> import fastexport
        >>> g = fastexport.Graph()
        >>> x = fastexport.Proxy(g.placeholder("x"))
        >>> (x + 1).relu()
        Proxy(relu)
        >>> print(g)
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})
            %relu : [num_users=0] = call_method[target=relu](args = (%add,), kwargs = {})
    """

    def __iter__(self) -> Iterator[Any]:
        count = _unpacked(sys._getframe(1))
        if count is None:
            return self.tracer.iter(self)
        return (self[i] for i in range(count))

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_asserted(sys._getframe(1)):
            self.tracer.create_proxy("call_function", torch.fx.proxy.assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise TraceLengthError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            f"fastexport.wrap('len') at module scope{where()}"
        )

    def __index__(self) -> int:
        raise number_error(self, "cannot be interpreted as an integer")

    def __int__(self) -> int:
        raise number_error(self, "can't be converted to an int")

    def __float__(self) -> float:
        raise number_error(self, "can't be converted to a float")

    def __complex__(self) -> complex:
        raise number_error(self, "can't be converted to a complex number")

    def __round__(self, ndigits: Any = None) -> Any:
        raise number_error(self, "can't be rounded by Python; torch.round can")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            f"'{type(self).__name__}' object does not support item assignment: use a function of torch, such as "
            f"torch.where or Tensor.index_put, or one of your own that fastexport.wrap keeps as one call{where()}"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        return self  # the value is what the node gives, whoever asks

    def __copy__(self) -> Proxy:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a Proxy can't be pickled; pickle the graph of its node")


class Attribute(_core.Attribute, Proxy, torch.fx.proxy.Attribute):
    """An attribute of a proxy's value. Called, it is a method; used, its node is made.

    Args:
        root: the `Proxy`.
        attr: the name.

    Raises:
        TypeError: root is no Proxy.

    Example:
        >>> import fastexport
        >>> x = fastexport.Proxy(fastexport.Graph().placeholder("x"))
        >>> x.shape.node.format_node()
        '%getattr_1 : [num_users=0] = call_function[target=builtins.getattr](args = (%x, shape), kwargs = {})'
    """


class ParameterProxy(Proxy, torch.fx.proxy.ParameterProxy):
    """A proxy of a parameter that answers for shape, size, dim and number of elements itself.

    Args:
        tracer: who records.
        node: the get_attr `Node` of the parameter.
        name: the parameter's path.
        param: the ``torch.nn.Parameter``.

    Raises:
        TypeError: param is no parameter.
    """

    def __init__(self, tracer: Any, node: Any, name: str, param: torch.nn.Parameter) -> None:
        if not isinstance(param, torch.nn.Parameter):
            raise TypeError(f"a ParameterProxy is made of a torch.nn.Parameter, not {type(param).__name__}")
        Proxy.__init__(self, node, tracer)
        self.param = param
        self.name = name


@shown_as("TraceError")
class TraceLengthError(TraceError, RuntimeError):
    """The length of a value is asked for; torch.fx raises RuntimeError for it."""


@shown_as("TraceError")
class TraceNumberError(TraceError, TypeError):
    """A value is taken for a number; torch.fx raises TypeError for it."""


# ---- what the caller does


def _unpacked(frame: types.FrameType) -> int | None:
    """Into how many names the instruction a frame is at unpacks; None: it is another instruction."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if at < 0 or code[at] != _UNPACK:
        return None
    count, shift, back = code[at + 1], 8, at - 2
    while back >= 0 and code[back] == _EXTENDED:
        count |= code[back + 1] << shift
        shift += 8
        back -= 2
    return count


def _is_asserted(frame: types.FrameType) -> bool:
    """Whether a frame is at the test of an assert statement."""
    code = frame.f_code.co_code
    at = _next(code, frame.f_lasti - 2)
    return at < len(code) and code[at] in _JUMPS and (end := _next(code, at)) < len(code) and code[end] == _ASSERT


def _next(code: bytes, at: int) -> int:
    at += 2
    while at < len(code) and code[at] in _SKIPPED:
        at += 2
    return at


def where() -> str:
    """Where in the traced program we are: a sentence to end a message with, or nothing."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_MACHINERY):
        frame = frame.f_back
    if frame is None:
        return ""
    code, line = frame.f_code, frame.f_lineno
    source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return f'\n  File "{code.co_filename}", line {line}, in {code.co_name}' + (f"\n    {source}" if source else "")


def control_flow_error(proxy: Any) -> TraceError:
    """For a proxy whose truth is asked for."""
    return TraceError(
        f"symbolically traced variables cannot be used as inputs to control flow{where()}\n"
        f"The truth of {_described(proxy)} is known only when the graph runs. If it follows from an argument, give "
        "that in concrete_args; choose between values with torch.where, between functions with torch.cond; or put the "
        "code into a function that fastexport.wrap keeps as one call."
    )


def number_error(proxy: Any, what: str) -> TraceError:
    """For a proxy that is to be a number of Python."""
    return TraceNumberError(
        f"'{type(proxy).__name__}' object {what}{where()}\n"
        f"The number in {_described(proxy)} is known only when the graph runs; range, an index of a list, int, float "
        "and functions of C ask for it. If it follows from an argument, give that in concrete_args; use functions of "
        "torch, which take the proxy as it is; or put the code into a function that fastexport.wrap keeps as one call."
    )


def iteration_error(proxy: Any) -> TraceError:
    """For a proxy that is looped over."""
    return TraceError(
        f"Proxy object cannot be iterated{where()}\n"
        f"How many items {_described(proxy)} has is known only when the graph runs; a loop, `in`, *args and **kwargs "
        "ask for that. Loop over a number that is known and index with it, unpack into a fixed number of names, give "
        "containers in concrete_args (with PH for what varies), or put the code into a function that fastexport.wrap "
        "keeps as one call."
    )


def leak_error(node: Any, graph: Any) -> TraceError:
    """For a proxy of a node that is used where another graph is recorded."""
    made, used = _traced_in(node.graph), _traced_in(graph)
    return TraceError(
        f"argument {node.name!r} is a node of another graph{where()}\n"
        f"It is {node.format_node()}"
        + (f", made in the trace of{made}" if made else "")
        + _recorded_at(node)
        + (f"\nused in the trace of{used}" if used else "")
        + "\nA proxy is of use only while its own program is traced. Don't keep one in an attribute, a global or a "
        "cache: compute the value here again, or let it come in as an argument."
    )


def _traced_in(graph: Any) -> str:
    """The function whose trace a graph is."""
    traced = (graph.extras or {}).get("_co_fields") if isinstance(graph, Graph) else None
    return "" if traced is None else '\n  File "{co_filename}", line {co_firstlineno}, in {co_name}'.format(**traced)


def _recorded_at(node: Any) -> str:
    """Where in its program a node was made, if that was recorded."""
    frames = str(node.meta.get("stack_trace") or "").rstrip().split('  File "')[1:]
    own = [frame for frame in frames if not frame.startswith(_MACHINERY)]
    return f'\nat\n  File "{own[-1].rstrip()}' if own else ""


def _described(proxy: Any) -> str:
    if isinstance(proxy, Attribute):  # whose node is not to be made just for this
        return f"attribute {proxy.attr!r} of {_described(proxy.root)}"
    return f"'{proxy.node.name}' ({proxy.node.format_node()})"


# ---- functions of torch


def classify(function: Any) -> tuple[bool, Any, str | None, bool] | None:
    """What a call of a function of torch is recorded as; None: that is to be seen at each call.

    Returns:
        Whether as a method; the target; the name of the node, if one is to be given; and whether the target gives that
        name by itself.
    """
    if _torch_tracing.is_higher_order(function) or _torch_tracing.is_script_method(function):
        return None
    if torch.overrides.is_tensor_method_or_property(function):
        return True, function.__name__, None, True
    name = stem(function.__name__)
    return False, function, name, name == stem(function)


def torch_function(
    cls: type[Proxy],
    orig_method: Any,
    kinds: Any,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """What ``__torch_function__`` does where C can't: proxies in other containers, scripted methods, other tracers."""
    args, kwargs = args or (), kwargs or {}
    leaves = _pytree.tree_leaves((args, kwargs))
    tracers = list({id(leaf.tracer): leaf.tracer for leaf in leaves if isinstance(leaf, cls)}.values())
    if len(tracers) != 1:
        raise RuntimeError(
            f"Found multiple different tracers {tracers} while trying to trace operations {orig_method}"
            if tracers
            else f"no {cls.__name__} among the arguments of {orig_method}"
        )
    (tracer,) = tracers
    if _torch_tracing.is_script_method(orig_method):
        return tracer.create_proxy("call_method", orig_method.name, (orig_method.owner, *args), kwargs)
    if torch.overrides.is_tensor_method_or_property(orig_method):
        return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
    if _torch_tracing.is_higher_order(orig_method):
        _refuse_callables(orig_method, leaves)
    return tracer.create_proxy("call_function", orig_method, args, kwargs, name=stem(orig_method.__name__))


_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)


def _refuse_callables(operator: Any, leaves: list[Any]) -> None:
    bad = next((leaf for leaf in leaves if isinstance(leaf, _FUNCTIONS)), None)
    if bad is not None:
        raise RuntimeError(
            f"Unable to symbolically trace the HigherOrderOperator {operator._name} because it received an arbitrary "
            f"callable argument {bad}. Use make_fx or dynamo tracing instead{where()}"
        )


# ---- tracers


class TracerBase(_core.Recorder, torch.fx.proxy.TracerBase):
    """What all tracers share: recording in a fastexport Graph. The methods, to be overridden, are torch.fx's.

    As long as create_proxy, create_node, create_arg and proxy are not overridden, and neither record_stack_traces nor
    check_mutable_operations is set, nodes are made in C without calling any of them.
    """

    graph: Any
    scope: Any
    module_stack: Any
    node_name_to_scope: Any

    def _records_directly(self) -> bool:
        """Whether C may record by itself; it asks again after an attribute is set."""
        if self.record_stack_traces or self.check_mutable_operations:
            return False
        kind, own = type(self), vars(self)
        return all(name not in own and getattr(kind, name) in known for name, known in _KNOWN.items())

    def proxy(self, node: Any) -> Any:
        """The proxy of a node that was just made."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Make a node of arguments that may hold proxies, and give its proxy. See `Graph.create_node`."""
        if proxy_factory_fn is None:
            made = self._record(kind, target, args, kwargs, name, type_expr)
            if made is not None:
                return made
        return super().create_proxy(kind, target, args, kwargs, name, type_expr, proxy_factory_fn)

    def create_arg(self, a: Any) -> Any:
        """Called for each argument that is no constant or container: gives what a node can hold.

        Raises:
            RuntimeError: a proxy is in the key of a dict.
            TraceError: a proxy of another graph, such as one kept from an earlier trace. A ValueError.
            ValueError: a proxy of torch.fx, which stands for a node of another graph.
            NotImplementedError: a value that no node can hold.
        """
        if isinstance(a, torch.fx.Proxy) and not isinstance(a, Proxy):
            raise ValueError(f"argument {a!r} is a proxy of torch.fx, of another graph{where()}")
        if isinstance(a, Proxy) and isinstance(self.graph, Graph) and a.node.graph is not self.graph:
            raise leak_error(a.node, self.graph)
        if isinstance(a, dict):
            bad = _core.proxy_among(tuple(a))
            if bad is not None:
                raise RuntimeError(
                    "Keys for dictionaries used as an argument cannot contain a Node. "
                    f"Got key: {_described(bad)}{where()}"
                )
        return super().create_arg(a)

    def to_bool(self, obj: Any) -> bool:
        """Called for the truth of a proxy; a tracer that knows more may give it.

        Raises:
            TraceError: always, unless overridden. A ValueError, as torch.fx's.
        """
        raise control_flow_error(obj)

    def iter(self, obj: Any) -> Iterator[Any]:
        """Called for the items of a proxy that is looped over; a tracer that knows more may give them.

        Raises:
            TraceError: always, unless overridden. A ValueError, as torch.fx's.
        """
        raise iteration_error(obj)

    def keys(self, obj: Any) -> Any:
        """Called for ``proxy.keys()``, which ``**proxy`` asks for too."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Records what is done to a `Proxy` of a node at the insert point of its graph.

    Args:
        graph: the `Graph`.
    """

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph
        self.scope = torch.fx.proxy.Scope("", None)
        self.module_stack = OrderedDict()
        self.node_name_to_scope = {}


# What create_proxy goes through, and who may stand there for C to do the same.
_KNOWN: dict[str, tuple[Any, ...]] = {
    "create_proxy": (TracerBase.create_proxy,),
    "create_node": (torch.fx.proxy.TracerBase.create_node,),
    "create_arg": (TracerBase.create_arg,),
    "proxy": (TracerBase.proxy,),
}


def know_create_arg(function: Callable[..., Any]) -> None:
    """Say that a create_arg only differs from torch.fx's in how it looks up what a module owns."""
    _KNOWN["create_arg"] += (function,)


_core.use_proxies(
    Proxy,
    Attribute,
    GraphAppendingTracer,
    _torch_tracing.CONSTANT_TYPES,
    torch.fx.traceback.has_preserved_node_meta,
    classify,
    torch_function,
)
