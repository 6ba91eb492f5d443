"""torch's shape and fake-tensor propagation, that goes into the graphs below, too.

torch's run what nodes call as a whole, and note nothing in it. Here a GraphModule that is called, or that one of
`RUNNING` is given, runs in the same way as the graph around it. Of the branches of a cond only those are run that torch
runs: with fake tensors all, else one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import ShapeProp

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram

# The higher-order operators that take any function for a graph.
RUNNING = frozenset({"cond", "map_impl", "while_loop", "wrap_with_autocast", "wrap_with_set_grad_enabled"})


class _Below(torch.nn.Module):
    """A module that is run by an interpreter."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self._run = run

    def forward(self, *args: Any) -> Any:
        return self._run(*args)


class _Deep(Interpreter):
    """What goes below; ``reached`` are the nodes that were run, in all graphs."""

    reached: set[Node]

    def _below(self, target: str) -> _Below:
        """What runs the GraphModule at a path."""
        raise NotImplementedError

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        self.reached.add(n)
        is_run = isinstance(result, GraphModule) and all(_is_running(user.target) for user in n.users)
        return self._below(str(n.target)) if n.op == "get_attr" and is_run else result

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or not isinstance(self.fetch_attr(target), GraphModule):
            return super().call_module(target, args, kwargs)
        return self._below(target)(*args)


def _is_running(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.__name__ in RUNNING


class Shapes(_Deep, ShapeProp):
    """ShapeProp."""

    def __init__(self, module: GraphModule, mode: Any, reached: set[Node]) -> None:
        super().__init__(module, mode)
        self.reached = reached

    def _below(self, target: str) -> _Below:
        # Not the module of fake tensors that it may run in the place of the real one.
        return _Below(Shapes(self.real_module.get_submodule(target), self.fake_mode, self.reached).run)


class FakeTensors(_Deep, FakeTensorProp):
    """FakeTensorProp."""

    def __init__(self, module: GraphModule, mode: Any, reached: set[Node]) -> None:
        super().__init__(module, mode)
        self.mode, self.reached = mode, reached

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if isinstance(n.target, torch._ops.HigherOrderOperator):
            self._run_what_it_does_not(n, n.target.__name__)
        return result

    def _run_what_it_does_not(self, n: Node, name: str) -> None:
        """With fake tensors the condition of a loop, and what a scan combines by, are not run."""
        if name == "while_loop":
            condition, _, carried, more = n.args
            inputs = self.map_nodes_to_values((carried, more), n)
            given = (*inputs[0], *inputs[1])
        elif name == "scan":
            condition, first, scanned, more = n.args
            inputs = self.map_nodes_to_values((first, scanned, more), n)
            given = (*inputs[0], *(value[0] for value in inputs[1]), *inputs[2])
        else:
            return
        if isinstance(condition, Node) and isinstance(self.fetch_attr(str(condition.target)), GraphModule):
            self._below(str(condition.target))(*given)

    def _below(self, target: str) -> _Below:
        module: Any = self.fetch_attr(target)
        return _Below(FakeTensors(module, self.mode, self.reached).propagate_dont_convert_inputs)


def mode_of(values: Iterable[Any]) -> Any:
    """The mode of the first fake tensor, or None."""
    modes = (getattr(value, "fake_mode", None) for value in values if isinstance(value, torch.Tensor))
    return next((mode for mode in modes if mode is not None), None)


def rebuilt(program: ExportedProgram, inputs: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    """The module of a program of a file with symbols, whose values know them, and what it takes.

    Args:
        program: it is not changed. Its nodes may lack values, but not its inputs.
        inputs: tensors, of the sizes that they have, and what the program tells.
    """
    from fastexport._torch_program import OUR_VALUES, graph_module

    module = graph_module(program)
    told = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    mode = mode_of(told)

    def known(value: Any, told: Any) -> Any:
        if isinstance(value, OUR_VALUES):
            return told
        return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) and mode else value

    return module, list(map(known, inputs, told))
