"""Symbolic tracing: a module or function is run on proxies, and what it does to them is recorded in a Graph."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree

from fastexport import _torch_tracing, _trace_turns
from fastexport._graph import Graph
from fastexport._graph_module import GraphModule
from fastexport._proxy import (
    ParameterProxy,
    TracerBase,
    know_create_arg,
    where,
)
from fastexport._wrapping import Patches, before, taker, wrapped_names

PH, PHBase = _torch_tracing.PH, _torch_tracing.PHBase
ProxyableClassMeta = torch.fx.ProxyableClassMeta

_STARS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | tuple[Any, ...] | None = None) -> GraphModule:
    """Run a module or function on proxies, and give what it did as a graph with its root.

    Modules of torch.nn, and functions that `wrap` was told, become one node each; everything else is looked into.

    Args:
        root: a ``torch.nn.Module``, a `GraphModule`, or a function.
        concrete_args: values for some parameters, by name. Where they hold `PH`, also inside of containers, inputs are
            made; what else they hold is taken as known, and asserted when the graph runs.

    Returns:
        A `GraphModule`, as torch.fx gives one and means by it: ``.graph`` is the `Graph`, and what that refers to (of a
        function the tensors it closes over) are attributes, under the names they have in ``root``. It can be called.
        `Tracer.trace` gives the graph alone.

    Raises:
        TraceError: the program needs a value that is not there: it branches on one, or loops over one.
        TypeError: root is neither a module nor a function.

    Example:
        >>> import torch
        >>> class Double(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x + x
        >>> print(symbolic_trace(Double()).graph)
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %add : [num_users=1] = call_function[target=operator.add](args = (%x, %x), kwargs = {})
            return add
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    return GraphModule(
        tracer.root, graph, root.__name__ if isinstance(root, types.FunctionType) else type(root).__name__
    )


class Tracer(TracerBase, torch.fx.Tracer):
    """Traces modules and functions; override its methods to change how. They are those of torch.fx.Tracer.

    A tracer that was written for torch.fx comes along as a base class: ``class Mine(Theirs, fastexport.Tracer)``.

    Args:
        autowrap_modules: modules whose public functions are recorded as one node each, wherever they are called.
        autowrap_functions: functions of which the same holds.
        param_shapes_constant: let the shape of a parameter be known, so that the program may branch on it.

    Example:
        >>> import torch
        >>> class Flat(Tracer):
        ...     def is_leaf_module(self, m, module_qualified_name):
        ...         return False
        >>> graph = Flat().trace(torch.nn.Sequential(torch.nn.ReLU()))
        >>> [node.name for node in graph.nodes]
        ['input_1', 'relu', 'output']
    """

    submodule_paths: dict[Any, str] | None
    tensor_attrs: dict[Any, str]

    def __init__(
        self,
        autowrap_modules: tuple[types.ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__(autowrap_modules, autowrap_functions, param_shapes_constant)
        self._autowrapped = autowrap_functions  # known by their ids, so they have to stay
        self._places: dict[int, tuple[str, Any]] = {}
        self._parameters: dict[str, Any] = {}

    # ---- tracing

    def trace(self, root: Any, concrete_args: dict[str, Any] | tuple[Any, ...] | None = None) -> Any:
        """Run a module or function on proxies.

        Args:
            root: the module or function; a `GraphModule` is converted to torch's first. Afterwards ``self.root`` is the
                module that the graph refers to: the same one, or a new one with the tensors of a function.
            concrete_args: see `symbolic_trace`.

        Returns:
            The `Graph`.

        Raises:
            TraceError: see `symbolic_trace`.
            TypeError: root is neither a module nor a function.
        """
        if isinstance(root, GraphModule):
            root = root.to_fx()
        with _trace_turns.turn(), Patches(self) as patches:
            function = self._begin(root)
            namespace = function.__globals__
            function, args = self.create_args_for_root(function, isinstance(root, torch.nn.Module), concrete_args)
            self._patch(patches, namespace)
            returned = inspect.get_annotations(inspect.unwrap(function)).get("return")
            self.create_node("output", "output", (self.create_arg(function(*args)),), {}, type_expr=returned)
        self.submodule_paths, self._places, self._parameters = None, {}, {}
        return self.graph

    def _begin(self, root: Any) -> Any:
        """Set what a trace starts with; gives the function to be run."""
        if isinstance(root, torch.nn.Module):
            _torch_tracing.compiled(root)
            function = getattr(type(root), self.traced_func_name, None)
            if function is None:
                raise TypeError(f"{type(root).__name__} has no method {self.traced_func_name!r} to be traced")
            self.root = root
            self.root_module_name = root._get_name()
            self.submodule_paths = {module: path for path, module in root.named_modules()}
        else:
            self.root, function = torch.nn.Module(), root
        if not isinstance(function, types.FunctionType):
            raise TypeError(
                f"can't trace {function!r} of {type(function)}: give a torch.nn.Module or a function of Python; of a "
                "bound method or a callable object, a lambda that calls it"
            )
        self.graph = Graph(tracer_cls=_torch_class(type(self)))
        code = function.__code__
        self.graph.extras["_co_fields"] = {
            name: getattr(code, name) for name in ("co_name", "co_filename", "co_firstlineno")
        }
        self.tensor_attrs = {}
        self._collect_attributes(self.root, "")
        self._places = {}
        return function

    def _collect_attributes(self, module: torch.nn.Module, prefix: str) -> None:
        """Note the tensors and the like that are plain attributes of modules: they are referred to by their paths."""
        for name, value in vars(module).items():
            if isinstance(value, _torch_tracing.ATTRIBUTE_TYPES):
                self.tensor_attrs[value] = prefix + name
        for name, child in module.named_children():
            self._collect_attributes(child, f"{prefix}{name}.")

    def _patch(self, patches: Patches, namespace: dict[str, Any]) -> None:
        """Let calls of modules, reads of parameters, and wrapped functions come to this tracer."""
        ids = self._ids_to_wrap = self._autowrap_function_ids
        self._parameters = {}
        patches.attribute(_torch_tracing.FLAG[0], _torch_tracing.FLAG[1], True)
        patches.attribute(torch.nn.Module, "__getattr__", _getattr_of_module)
        patches.attribute(torch.nn.Module, "__call__", _call_of_module)
        patches.functions([*wrapped_names(), *_torch_tracing.wrapped_names()])
        patches.methods(_torch_tracing.wrapped_methods())
        patches.known(namespace, ids)
        for module in self._autowrap_search:
            patches.known(vars(module), ids)

    # ---- modules and what they own

    def path_of_module(self, mod: torch.nn.Module) -> str:
        """The path of a module in the root.

        Raises:
            NameError: it is none of the root's.
        """
        try:
            return super().path_of_module(mod)
        except NameError:
            raise NameError(f"module is not installed as a submodule: {_foreign(mod, self.root)}") from None

    def call_module(self, m: torch.nn.Module, forward: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Called for each call of a module: a leaf becomes a node, any other is run.

        Args:
            m: the module.
            forward: what runs it.
            args: what it is called with.
            kwargs: likewise.

        Raises:
            NameError: the module is none of the root's.
        """
        path, kind, scope = self.path_of_module(m), type(m), self.scope
        outer, calls = (scope.module_path, scope.module_type), self.num_calls.get(path, 0)
        key = f"{path}@{calls}" if calls else path
        scope.module_path, scope.module_type = path, kind
        self.module_stack[key] = (path, kind)
        self.num_calls[path] = calls + 1
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.module_stack.pop(key, None)
            scope.module_path, scope.module_type = outer

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Called for each attribute that a module is asked for and that is no plain one: a parameter gets a proxy.

        Args:
            attr: its name.
            attr_val: its value.
            parameter_proxy_cache: the proxies that there are, by path.
        """
        if not isinstance(attr_val, torch.nn.Parameter):
            if not (self.proxy_buffer_attributes and isinstance(attr_val, torch.Tensor)):
                return attr_val
        path = self._path_of_tensor(attr_val)
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            make = functools.partial(self._parameter_proxy, path, attr_val) if self.param_shapes_constant else None
            # Older tracers' create_proxy takes no factory.
            extra: dict[str, Any] = {"proxy_factory_fn": make} if make and self._takes_factory() else {}
            parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {}, **extra)
        return parameter_proxy_cache[path]

    def _parameter_proxy(self, path: str, parameter: Any, node: Any) -> ParameterProxy:
        return ParameterProxy(self, node, path, parameter)

    def _takes_factory(self) -> bool:
        return "proxy_factory_fn" in inspect.signature(self.create_proxy).parameters

    def create_arg(self, a: Any) -> Any:
        """Called for each argument that is no constant or container: gives what a node can hold.

        A parameter, buffer or submodule of the root, and any other tensor, becomes a get_attr node; a proxy its node.

        Raises:
            NameError: a parameter that is none of the root's.
            NotImplementedError: a value that no node can hold.
        """
        if isinstance(a, torch.Tensor):
            path = self._path_of_tensor(a)
            if path is not None:
                return self.create_node("get_attr", path, (), {})
            if isinstance(a, torch.nn.Parameter):
                raise NameError(f"parameter is not a member of this module: {_foreign(a, self.root)}")
        return super().create_arg(a)

    def _path_of_tensor(self, tensor: torch.Tensor) -> str | None:
        """The path of a parameter or buffer of the root, the first if it has several."""
        found = self._places.get(id(tensor))
        if found is None or _tensor_at(self.root, found[0]) is not tensor:
            self._places = {
                id(value): (path, value)
                for values in (self.root.named_parameters(), self.root.named_buffers())
                for path, value in values
            }
            found = self._places.get(id(tensor))
        return found[0] if found is not None else None

    # ---- inputs

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: dict[str, Any] | tuple[Any, ...] | None = None
    ) -> tuple[Any, list[Any]]:
        """Make a placeholder for each parameter of the function to be traced.

        A * or ** parameter gets one too; but where the function is decorated it is taken to be empty.

        Args:
            root_fn: the function.
            is_module: whether its first parameter is the root.
            concrete_args: see `symbolic_trace`; as a tuple, in the order of the parameters.

        Returns:
            A function and the arguments to run it on.

        Raises:
            RuntimeError: there is no first parameter, or concrete_args don't fit.
        """
        function = inspect.unwrap(root_fn)
        code = function.__code__
        count, names, first = code.co_argcount + code.co_kwonlyargcount, code.co_varnames, int(is_module)
        if count < first:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        args: list[Any] = [self.root] if is_module else []
        if isinstance(concrete_args, tuple):
            if concrete_args and code.co_flags & _STARS and count == 1:
                args += [self._input(f"input_{i}", (), value) for i, value in enumerate(concrete_args)]
                return root_fn, args
            if count - first != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {count - first} arguments but got {len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(names[first:count], concrete_args, strict=True))
        parameters, concrete = inspect.signature(function).parameters, concrete_args or {}
        for name in names[first:count]:
            default = parameters[name].default
            args.append(
                self._argument(name, () if default is inspect.Parameter.empty else (default,), concrete, function)
            )
        if function is not root_fn:  # no code of its own to change: what its decorators let pass is given by keyword
            return self._flattened(_by_keyword(root_fn, code), args, list(names[:count]))
        starred = count
        for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
            if code.co_flags & flag:
                args.append(self._argument(stars + names[starred], (), concrete, function))
                starred += 1
        if code.co_kwonlyargcount or code.co_flags & _STARS:
            root_fn = _with_plain_parameters(root_fn, len(args))
        return self._flattened(root_fn, args, list(names[:count]))

    def _argument(self, name: str, default: tuple[Any, ...], concrete: dict[str, Any], function: Any) -> Any:
        """What one parameter is given: a proxy, or a concrete value with proxies in it."""
        if name not in concrete:
            annotation = function.__annotations__.get(name)
            return self.create_proxy("placeholder", name, default, {}, type_expr=annotation)
        count = 0

        def leaf(value: Any) -> Any:
            nonlocal count
            count += 1
            proxy = self._input(f"{name}_{count}", default, value)
            if isinstance(value, PHBase):
                return proxy
            self._assert_is(proxy, name, value)
            return value

        return _pytree.tree_map(leaf, concrete[name])

    def _input(self, name: str, default: tuple[Any, ...], value: Any) -> Any:
        """A placeholder; what the user has set on a PH of their own goes into the meta of its node."""
        proxy = self.create_proxy("placeholder", name, default, {})
        if isinstance(value, PHBase) and value is not PH:
            proxy.node.meta.update(vars(value))
        return proxy

    def _assert_is(self, proxy: Any, name: str, value: Any) -> None:
        """Record a check that an input has the value it was traced with, if that can be told."""
        but = "but got another value"
        if type(value) is bool or type(value) in _torch_tracing.CONSTANT_TYPES:
            torch._assert(proxy == value, f"{name} has been specialized to have value {value} {but}")
        elif value is None:
            message = f"{name} has been specialized to have value None {but}"
            self.create_proxy("call_function", _torch_tracing.assert_is_none, (proxy, message), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to "
                "the user to make sure that your inputs match the inputs you specialized the function with.",
                stacklevel=2,
            )

    def _flattened(self, root_fn: Any, args: list[Any], names: list[str]) -> tuple[Any, list[Any]]:
        """The function for flat inputs, when an argument is a container."""
        flat, in_spec = _pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in in_spec.children()):
            return root_fn, args
        codegen = _torch_tracing.pytree_codegen(names, in_spec)
        self.graph.set_codegen(codegen)

        def flat_function(*args: Any):  # type: ignore[no-untyped-def] # an annotation would become the output's
            outputs, out_spec = _pytree.tree_flatten(root_fn(*_pytree.tree_unflatten(list(args), in_spec)))
            _torch_tracing.set_out_spec(codegen, out_spec)
            return outputs

        return flat_function, flat

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        for name in ("graph", "scope", "module_stack", "node_name_to_scope"):
            if hasattr(self, name):
                setattr(new, name, copy.deepcopy(getattr(self, name), memo))
        for name, value in vars(self).items():
            # Modules of Python can't be copied.
            setattr(new, name, copy.copy(value) if name == "_autowrap_search" else copy.deepcopy(value, memo))
        return new


know_create_arg(Tracer.create_arg)

_READ, _CALL = (id(torch.nn.Module), "__getattr__"), (id(torch.nn.Module), "__call__")


@functools.wraps(_torch_tracing.module_getattr)
def _getattr_of_module(mod: torch.nn.Module, attr: str) -> Any:
    patches = taker(_READ)
    if patches is None:
        return before(torch.nn.Module, "__getattr__")(mod, attr)
    value = _torch_tracing.module_getattr(mod, attr)
    return patches.tracer.getattr(attr, value, patches.tracer._parameters)


@functools.wraps(_torch_tracing.module_call)
def _call_of_module(mod: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    patches = taker(_CALL)
    if patches is None:
        return before(torch.nn.Module, "__call__")(mod, *args, **kwargs)
    patches.known(getattr(getattr(mod, "forward", mod), "__globals__", {}), patches.tracer._ids_to_wrap)
    return patches.tracer.call_module(mod, functools.partial(_torch_tracing.module_call, mod), args, kwargs)


def _foreign(value: Any, root: Any) -> str:
    return (
        f"a {type(value).__name__} is used that is no part of {type(root).__name__}; make it an attribute of a module "
        f"there, or build it outside of what is traced{where()}"
    )


def _torch_class(kind: type) -> type:
    """The tracer that torch.fx is to trace a module with again, when it unpickles one made of a graph."""
    return next(base for base in kind.__mro__ if not issubclass(base, TracerBase) and issubclass(base, torch.fx.Tracer))


def _tensor_at(root: torch.nn.Module, path: str) -> Any:
    """The parameter or buffer at a path, or None; not through getattr, which a trace has its hand on."""
    *parents, name = path.split(".")
    module: Any = root
    for parent in parents:
        module = module._modules.get(parent)
        if module is None:
            return None
    value = module._parameters.get(name)
    return module._buffers.get(name) if value is None else value


def _by_keyword(function: Any, code: types.CodeType) -> Any:
    """A decorated function that gives its keyword-only parameters, which come last, by keyword."""
    if not code.co_kwonlyargcount:
        return function
    count, names = code.co_argcount, code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def stand_in(*args: Any) -> Any:
        return function(*args[:count], **dict(zip(names, args[count:], strict=True)))

    return stand_in


def _with_plain_parameters(function: Any, count: int) -> Any:
    """A function whose keyword-only, * and ** parameters are ordinary ones, so that each can be given one proxy."""
    code = function.__code__
    code = code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~_STARS)
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
