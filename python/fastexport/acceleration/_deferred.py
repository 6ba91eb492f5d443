"""Code of a GraphModule that is made when somebody looks at it, and is that of the graph at an earlier moment.

`Deferred` holds what the code depends on. `defer` puts hooks in the class that torch makes for each GraphModule, under
the names by which the code can be seen; the first look at one of them makes the code, and takes them out again. The
hooks need nothing of ours to stand in torch, so a module keeps working when acceleration has ended.

The invariant: while a module's code is pending, its ``__dict__`` holds none of `STATE` but what was assigned since, and
each of `STATE` and ``forward`` is either a hook or has been assigned since. Changes of that are made under one lock,
which is never held while code is generated or compiled; two threads that look at once do so twice, with equal results.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import torch
from torch.fx import graph as fx_graph
from torch.fx import graph_module as fx_graph_module
from torch.fx.graph import CodeGen, PythonCode, _Namespace

from fastexport import _codegen, _core, _naming
from fastexport._graph import Graph
from fastexport.acceleration._replacement import digest, log

# What recompile leaves in a module's __dict__.
STATE = ("_code", "_lineno_map", "_prologue_start")
# Classes of constants whose text in code is their repr, and always the same.
CONSTANTS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
# Methods that take a module's __dict__ as it is.
METHODS = ("__reduce__", "__reduce_ex__", "__reduce_package__", "__getstate__")

# Digest of the source text of a function of torch.export._unlift.
_ASKS_FOR_SIGNATURE = "d9c544b92940534a"
# What no node may be called in code: what is reserved in graphs, too, and None.
_NAMES = frozenset((*_naming.reserved_names(), "None"))
_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class _ReservedKey(fx_graph_module._EvalCacheLoader):
    """torch's cache of generated sources, but the next key is one that was taken earlier."""

    def __init__(self, loader: fx_graph_module._EvalCacheLoader, number: int) -> None:
        self.eval_cache = loader.eval_cache
        self.next_id = number


class Deferred:
    """What the code of a graph was at one moment, not made yet.

    Args:
        record: as `_core.fx_record` makes it.
        codegen: the graph's, in its state of then; nobody else may change it.
        co_fields: the graph's, of then.
        header: the line that defines the function.
        loader: torch's cache of sources; a key is taken from it now, as generating code would.
    """

    __slots__ = ("_code", "_codegen", "_co_fields", "_header", "_loader", "_record")

    def __init__(
        self,
        record: tuple[Any, ...],
        codegen: CodeGen,
        co_fields: dict[str, Any],
        header: str,
        loader: fx_graph_module._EvalCacheLoader,
    ) -> None:
        self._record: tuple[Any, ...] | None = record
        self._codegen = codegen
        self._co_fields = co_fields
        self._header = header
        self._loader = _ReservedKey(loader, loader.next_id)
        self._code: PythonCode | None = None
        loader.next_id += 1

    def code(self) -> PythonCode:
        """The code as torch generates it; the same object each time."""
        code, record = self._code, self._record
        if code is not None:
            return code
        if record is None:  # another thread was quicker
            assert self._code is not None
            return self._code
        code = generate(record, self._codegen, "self") or _generate_by_torch(record, self._codegen)
        self._code = code
        self._record = None
        return code

    def function(self) -> Callable[..., Any]:
        """The function forward, compiled anew."""
        code = self.code()
        namespace = code.globals.copy()
        loader = _ReservedKey(self._loader, self._loader.next_id)
        key = loader.cache(code.src, namespace, self._co_fields)
        exec(compile(code.src, key, "exec", dont_inherit=True), namespace)
        forward: Callable[..., Any] = namespace.pop("forward")
        return forward

    def signature_stub(self) -> Callable[..., Any]:
        """A function of the same signature as forward, that does nothing."""
        namespace: dict[str, Any] = {}
        exec(f"{self._header} pass", namespace)
        stub: Callable[..., Any] = namespace["forward"]
        return stub


# ---- code from a record


def generate(record: tuple[Any, ...], codegen: CodeGen, root_module: str) -> PythonCode | None:
    """The code of a record as torch generates it, the lines of its nodes made in C.

    Args:
        record: as `_core.fx_record` makes it.
        codegen: the graph's, of torch's own class and without a transformer of code.
        root_module: what modules and attributes are looked up in.

    Returns:
        The code; None when torch has to generate it.
    """
    if codegen.additional_globals() or not _are_tables_known():
        return None
    graph = Graph()
    try:
        _core.fx_revive_graph(record, graph)
    except ValueError:  # users that are none: what torch writes hangs on them
        return None
    return PythonCode(*_codegen.torch_code(graph, codegen, root_module))


def _are_tables_known() -> bool:
    """Whether operators and names mean to torch what they mean to us."""
    return (
        fx_graph._illegal_names.keys() == _NAMES
        and fx_graph.magic_methods == _codegen.PATTERNS
        and fx_graph.inplace_methods == _codegen.INPLACE_PATTERNS
    )


def _generate_by_torch(record: tuple[Any, ...], codegen: CodeGen) -> PythonCode:
    namespace = _Namespace()
    nodes: Any = _core.fx_revive(record, lambda node: namespace.create_name(node.name, node))
    return codegen._gen_python_code(nodes, "self", namespace)


class PromisedCode(PythonCode):
    """A PythonCode that is generated when it is looked at, and is a plain PythonCode from then on."""

    def __init__(self, deferred: Deferred) -> None:
        object.__getattribute__(self, "__dict__")["_deferred"] = deferred

    def fulfil(self) -> PythonCode:
        """This object, generated."""
        state = object.__getattribute__(self, "__dict__")
        deferred = state.get("_deferred")
        if deferred is not None:
            code = deferred.code()
            state.update(vars(code), globals=dict(code.globals))  # a dict of its own, for it may be changed
            state.pop("_deferred", None)
            object.__setattr__(self, "__class__", PythonCode)
        return self

    def __getattribute__(self, name: str) -> Any:
        if name not in _PROMISE:
            self.fulfil()
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.fulfil(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.fulfil(), name)

    def __eq__(self, other: object) -> bool:
        return self.fulfil() == other

    def __repr__(self) -> str:
        return repr(self.fulfil())

    __hash__ = None  # type: ignore[assignment]


# What of a PromisedCode can be asked for without code.
_PROMISE = frozenset(("__class__", "fulfil"))


# ---- hooks in the class of a module


class _Hook:
    """What stands in a module's class under a name by which its code can be seen."""

    __slots__ = ("name", "pending")

    def __init__(self, pending: _Pending, name: str) -> None:
        self.pending = pending
        self.name = name


class _Forward(_Hook):
    """Stands for forward, until it is compiled."""

    __slots__ = ()

    def __get__(self, module: Any, owner: type | None = None) -> Any:
        pending = self.pending
        if module is not None and _asks_for_signature(sys._getframe().f_back):
            deferred = pending.deferred
            if deferred is not None:
                return MethodType(deferred.signature_stub(), module)
        pending.make()
        forward: Any = vars(pending.cls).get("forward")
        if forward is self:  # somebody kept it and put it back, as mock.patch does
            forward = pending.function()
        if forward is None:  # it was deleted in between
            return getattr(super(pending.cls, owner if module is None else module), self.name)
        return forward.__get__(module, owner) if hasattr(forward, "__get__") else forward

    # Who takes it from the class's __dict__ has what torch's function would be there.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(FunctionType, name):
            raise AttributeError(f"'function' object has no attribute {name!r}")
        return getattr(self._function(), name)

    def _function(self) -> Callable[..., Any]:
        self.pending.make()
        forward = vars(self.pending.cls).get("forward")
        return self.pending.function() if forward is None or forward is self else forward


class _State(_Hook):
    """Stands for an attribute that is in the module's __dict__ once there is code."""

    __slots__ = ()

    def __get__(self, module: Any, owner: type | None = None) -> Any:
        if module is None:
            raise AttributeError(f"type object {getattr(owner, '__name__', '?')!r} has no attribute {self.name!r}")
        self.pending.make()
        return getattr(module, self.name)

    def __set__(self, module: Any, value: Any) -> None:
        with _lock:
            self.pending.take_out(self.name)
            module.__dict__[self.name] = value

    def __delete__(self, module: Any) -> None:
        with _lock:
            self.pending.take_out(self.name)


class _Method(_Hook):
    """Stands before a method that takes the module's __dict__ as it is."""

    __slots__ = ()

    def __get__(self, module: Any, owner: type | None = None) -> Any:
        self.pending.make()
        return getattr(super(self.pending.cls, owner if module is None else module), self.name)


class _Pending:
    """The hooks of one module, and what they stand for."""

    __slots__ = ("__weakref__", "_last", "cls", "deferred", "hooks", "module")

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.cls = type(module)
        self.module = weakref.ref(module)
        self.deferred: Deferred | None = None
        self._last: Deferred | Callable[..., Any] | None = None  # what made the code, or forward itself
        self.hooks: dict[str, _Hook] = {name: _State(self, name) for name in STATE}
        self.hooks["forward"] = _Forward(self, "forward")
        self.hooks.update((name, _Method(self, name)) for name in METHODS)

    def put_in(self, deferred: Deferred) -> None:
        """Let the hooks stand for this code from now on."""
        self.deferred = deferred  # before the hooks, for threads that look already
        held = vars(self.cls)
        for name, hook in self.hooks.items():
            if held.get(name) is not hook:
                type.__setattr__(self.cls, name, hook)

    def stands(self, name: str) -> bool:
        """Whether the hook of that name is in its place."""
        return vars(self.cls).get(name) is self.hooks[name]

    def take_out(self, name: str) -> None:
        """Take a hook out of its place, if it is there."""
        if self.stands(name):
            type.__delattr__(self.cls, name)

    def make(self) -> None:
        """Make the code, and let it take the place of the hooks."""
        while (deferred := self.deferred) is not None:
            wanted = self.stands("forward") or any(map(self.stands, STATE))
            forward = deferred.function() if wanted else None
            with _lock:
                if self.deferred is not deferred:
                    continue  # recompiled in between
                if forward is not None:
                    self._put_code(deferred.code(), forward)
                for name in self.hooks:
                    self.take_out(name)
                self._last = forward or deferred
                self.deferred = None
                _all_pending.discard(self)

    def function(self) -> Any:
        """The function forward of the code that was made last."""
        if isinstance(self._last, Deferred):
            self._last = self._last.function()
        return self._last

    def _put_code(self, code: PythonCode, forward: Callable[..., Any]) -> None:
        module = self.module()
        if module is not None:
            values = (code.src, code._lineno_map, code._prologue_start)
            module.__dict__.update((n, v) for n, v in zip(STATE, values, strict=True) if self.stands(n))
        if self.stands("forward"):
            type.__setattr__(self.cls, "forward", forward)


_all_pending: weakref.WeakSet[_Pending] = weakref.WeakSet()


def pending_of(cls: type) -> _Pending | None:
    """The hooks in a module's class, or None."""
    held = vars(cls)
    for name in (*METHODS, *STATE):
        hook = held.get(name)
        if isinstance(hook, _Hook) and hook.pending.cls is cls:
            return hook.pending
    return None


def defer(module: torch.fx.GraphModule, deferred: Deferred) -> None:
    """Let a module's code be what `deferred` will make; what it was before is gone."""
    with _lock:
        pending = pending_of(type(module))
        if pending is None:
            pending = _Pending(module)
        pending.put_in(deferred)
        _all_pending.add(pending)
        for name in STATE:
            module.__dict__.pop(name, None)


def is_pending(module: torch.fx.GraphModule) -> bool:
    """Whether a module's code is still to be made."""
    pending = pending_of(type(module))
    return pending is not None and pending.deferred is not None


def make_all() -> None:
    """Make all code that is pending."""
    for pending in list(_all_pending):
        try:
            pending.make()
        except Exception:  # it will come up again at the look that it belongs to
            log.exception("code of a module could not be made ahead")


def _asks_for_signature(frame: FrameType | None) -> bool:
    """Whether a frame is that of the function of torch.export that takes forward only for its signature."""
    return (
        frame is not None
        and frame.f_code.co_name == "_unlift_exported_program_lifted_states"
        and _is_known_to_ask(frame.f_code)
    )


@functools.lru_cache(maxsize=8)
def _is_known_to_ask(code: CodeType) -> bool:
    return digest(code) == _ASKS_FOR_SIGNATURE


# ---- torch.compile


class _AtCompileStart:
    """torch.compile's callback: it looks into classes without asking the hooks."""

    def __call__(self, args: Any) -> None:
        make_all()


class _AtImport:
    """A finder that finds nothing: when torch._dynamo is imported, it has all code made."""

    def __init__(self) -> None:
        self.has_come = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == _DYNAMO:
            self.has_come = True
            make_all()


_DYNAMO = "torch._dynamo"
_callback: weakref.ref[_AtCompileStart] | None = None
_at_import = _AtImport()


def hear_of_frames() -> bool:
    """Have all code made before torch.compile takes up a frame; False while that can't be.

    Where torch._dynamo is not loaded, code is made when it is. Else the list of callbacks alone holds ours:
    torch._dynamo.reset() empties it, and then ours comes back.
    """
    if _DYNAMO not in sys.modules:
        if not _at_import.has_come and _at_import not in sys.meta_path:
            sys.meta_path.insert(0, _at_import)  # it stays, for a list must not shrink while it is gone through
        return not _at_import.has_come
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    if handler is None:
        return False
    if _callback is None or _callback() is None:
        _register(handler)
    return True


def _register(handler: Any) -> None:
    global _callback
    callback = _AtCompileStart()
    _callback = weakref.ref(callback, lambda _: None if sys.is_finalizing() else _register(handler))
    handler.register_start_callback(callback)
