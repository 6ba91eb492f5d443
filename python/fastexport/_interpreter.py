"""Running a graph node by node, and rebuilding it that way: Interpreter and Transformer.

They are torch.fx's classes, for graphs of fastexport: the methods to override, and what they are given, are the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
import torch.fx
import torch.fx.traceback
from torch.fx.node import map_aggregate

from fastexport import _core
from fastexport._graph import Graph
from fastexport._graph_module import GraphModule
from fastexport._operators import Operator
from fastexport._proxy import Proxy
from fastexport._tensors import to_torch_all
from fastexport._tracer import Tracer


class Interpreter(torch.fx.Interpreter):
    """Runs a graph node by node.

    Override ``placeholder``, ``get_attr``, ``call_function``, ``call_method``, ``call_module`` or ``output`` to do
    something else with the nodes of that kind, or ``run_node`` with all. An interpreter that was written for torch.fx
    comes along as a base class: ``class Mine(ShapeProp, fastexport.Interpreter)``.

    Args:
        module: a `GraphModule`, or any module that has what the nodes of ``graph`` refer to. A `Graph` stands for its
            owning module; a torch.fx.GraphModule is read first.
        garbage_collect_values: forget a value after its last use; False keeps all of them in ``env``.
        graph: the `Graph` to be run in place of the module's own.

    Raises:
        TypeError: there is no graph.

    Example:
        >>> import torch, fastexport
        >>> class Negated(fastexport.Interpreter):
        ...     def call_function(self, target, args, kwargs):
        ...         return -super().call_function(target, args, kwargs)
        >>> module = fastexport.symbolic_trace(lambda x: torch.relu(x))
        >>> Negated(module).run(torch.ones(2))
        tensor([-1., -1.])
    """

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Any = None) -> None:
        # Not torch's own, which reads the graph to find last uses.
        if isinstance(module, Graph):
            module, graph = module.owning_module, module if graph is None else graph
        self.module = module
        self.graph: Any = _graph_of(module, graph)
        self.submodules = dict(module.named_modules()) if hasattr(module, "named_modules") else {}
        self.env: dict[Any, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self._attributes: dict[str, tuple[Any, Any]] = {}
        if garbage_collect_values:
            self.user_to_last_uses = _core.last_uses(self.graph)

    def run(self, *args: Any, initial_env: dict[Any, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Run the graph.

        Args:
            *args: the arguments, in the order of the placeholders.
            initial_env: values that are known already, by Node; these nodes are not run.
            enable_io_processing: take arguments apart and put results together as the graph's code generator says.

        Returns:
            What the output node gives.

        Raises:
            Exception: whatever a node raises, with the node and where it comes from added to the message; in place of
                a KeyError a RuntimeError.
        """
        self.env = {} if initial_env is None else initial_env
        self.args_iter: Iterator[Any] = iter(self.graph.process_inputs(*args) if enable_io_processing else args)
        if self.garbage_collect_values:
            self.user_to_last_uses = _core.last_uses(self.graph)  # the graph may have changed since
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    _explain(error, node)
                raise
            if self.garbage_collect_values:
                for used in self.user_to_last_uses.get(node, ()):
                    self.env.pop(used, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def run_node(self, n: Any) -> Any:
        """Run one node: the method that is called like its op, on the values of its arguments."""
        if torch.fx.traceback.has_preserved_node_meta():
            with torch.fx.traceback.set_current_meta(n, f"Interpreter_{type(self).__name__}"):
                args, kwargs = self.fetch_args_kwargs_from_env(n)
                return getattr(self, n.op)(n.target, args, kwargs)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a call_function node."""
        return (target.to_torch() if isinstance(target, Operator) else target)(*args, **kwargs)

    def fetch_attr(self, target: str) -> Any:
        """The attribute of the module at a dotted path; a tensor of a file as one of torch.

        Raises:
            RuntimeError: there is none.
        """
        value = super().fetch_attr(target)
        if not isinstance(value, _core.Tensor):
            return value
        known = self._attributes.get(target)
        if known is None or known[0] is not value:
            known = self._attributes[target] = (value, to_torch_all({target: value})[target])
        return known[1]

    def fetch_args_kwargs_from_env(self, n: Any) -> tuple[Any, Any]:
        """The values of a node's args and kwargs."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Any) -> Any:
        """Arguments with the values of nodes in their places.

        Args:
            args: an argument, or any nesting.
            n: the node they are of.

        Raises:
            RuntimeError: a node has no value.
        """

        def missing(node: Any) -> NoReturn:
            raise RuntimeError(
                f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
            )

        return _core.map_nodes(args, self.env, missing)


def _graph_of(module: Any, graph: Any) -> Graph:
    if graph is None:
        graph = getattr(module, "graph", None)
    if isinstance(graph, torch.fx.Graph):
        graph = Graph.from_fx(graph)
    if not isinstance(graph, Graph):
        raise TypeError(
            f"an Interpreter takes a module with a Graph, or a module and a Graph; got {type(module).__name__}"
        )
    return graph


def _explain(error: Exception, node: Any) -> None:
    """Add to an exception which node it comes from."""
    text = f"While executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}"
    error.args = (f"{error.args[0]}\n\n{text}" if error.args else text, *error.args[1:])
    if isinstance(error, KeyError):
        raise RuntimeError(*error.args) from error


class _TransformerTracer(Tracer):
    """Adds to the new graph of a Transformer; what the old one calls stays a call."""

    def __init__(self, graph: Graph, root: Any, submodules: dict[str, Any]) -> None:
        super().__init__()
        self.graph, self.root, self.tensor_attrs = graph, root, {}
        self.submodule_paths = {module: path for path, module in reversed(submodules.items())}

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Rebuilds a graph by running it on proxies; override the methods of `Interpreter` to change what it becomes.

    Args:
        module: the `GraphModule`; a torch.fx.GraphModule is read first.

    Example:
        >>> import torch, fastexport
        >>> class Sigmoid(fastexport.Transformer):
        ...     def call_function(self, target, args, kwargs):
        ...         return super().call_function(torch.sigmoid if target is torch.relu else target, args, kwargs)
        >>> module = Sigmoid(fastexport.symbolic_trace(lambda x: torch.relu(x))).transform()
        >>> module(torch.zeros(2))
        tensor([0.5000, 0.5000])
    """

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        codegen = (self.graph.extras or {}).get("_codegen")
        if codegen is not None:
            self.new_graph.set_codegen(codegen)
        self.tracer = _TransformerTracer(self.new_graph, self.module, self.submodules)

    def placeholder(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Make the input anew."""
        default = args[0] if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Make a get_attr node."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a submodule by the tracer, which makes a node of it."""
        module = self.fetch_attr(target)
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Make a call_function node."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """Give the new graph, with the same module for its root.

        Nodes take over the meta of those they are made for.
        """
        with torch.fx.traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            output = self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
            output.meta.update(self.graph.output_node().meta)
        return GraphModule(self.module, self.new_graph)
