"""The bridge to torch.export: how torch makes and checks its programs.

What this relies on is checked when it is imported; on a torch where that differs `FAST` is false, and programs are made
by torch's public API, with the same result. Files have bridges of their own: `_torch_reader`, `_torch_serializer`.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.export
import torch.fx
from torch.fx.graph_module import GraphModule

from fastexport import _core, _torch, _torch_public, _torch_reader
from fastexport._graph import Graph

try:
    from torch._export import verifier as torch_verifier
    from torch.export import exported_program as torch_program
    from torch.fx import graph as torch_graph

    from fastexport.acceleration import _export as fast_export
    from fastexport.acceleration import _recompile as fast_code
    from fastexport.acceleration._known import are_known
    from fastexport.acceleration._replacement import stock_behind
except (ImportError, AttributeError):
    _FOUND = False
else:
    _FOUND = True

__all__ = [
    "FAST",
    "build_graph",
    "class_of_object",
    "create_module",
    "create_program",
    "guards_code",
    "loaded_verifiers",
    "make_repeats_apart",
    "opset_version",
    "take_names",
    "unpickled",
    "updated",
    "validate",
]

# Digests of the source texts of what is done here in other words, or relied on in its details.
_PROGRAM = {"__init__": "f12b896c54172571", "validate": "a3dd712b81f7fc7d", "_validate": "5b915d65c0d3a70e"}
_PROGRAM_FUNCTIONS = {
    "_create_graph_module_for_export": "48b7876d28b72335",
    "_common_getitem_elimination_pass": "ef3aa4a36ace00ca",
}
_VERIFIER = {"check": "57b18cfbdf2acf23", "_check_graph_module": "20acfb8e6fbddde3"}


def _configure() -> bool:
    """Whether this torch reads its files and makes its programs the way that is known here."""
    try:
        return (
            _FOUND
            and _torch._FAST
            and _torch_reader.IS_KNOWN
            and are_known(vars(torch_program.ExportedProgram), _PROGRAM)
            and are_known(vars(torch_program), _PROGRAM_FUNCTIONS)
            and are_known(vars(torch_verifier.Verifier), _VERIFIER)
        )
    except AttributeError:
        return False


FAST = _configure()
_LINT = torch.fx.Graph.lint


# ---- graphs ---------------------------------------------------------------------------------------------------------


def build_graph(graph: Graph, built: torch.fx.Graph, convert: Callable[[Any], Any]) -> None:
    """Fill an empty torch graph from a native one, without meta.

    Args:
        convert: gives what stands in arguments for a DType and the like.
    """
    (_core.fx_build if _torch._FAST else _torch_public.build)(graph, built, convert, False)


def take_names(graph: torch.fx.Graph) -> None:
    """Let the names that a graph has taken be those that it takes when torch reads it from a file.

    torch makes a node called `input` as `input_1`, and calls it `input` then.
    """
    if torch_graph._illegal_names.keys().isdisjoint([node.name for node in graph.nodes]):
        return
    taken = type(graph._graph_namespace)()
    for node in graph.nodes:
        taken.associate_name_with_obj(taken.create_name(node.name, None), node)
    graph._graph_namespace = taken


# ---- programs --------------------------------------------------------------------------------------------------------


def create_module(
    graph: torch.fx.Graph, members: Mapping[str, Any], meta: Mapping[str, Any], *, name: str = "GraphModule"
) -> GraphModule:
    """A GraphModule whose code is generated when somebody looks at it, where that is possible.

    Args:
        graph: its graph.
        members: what get_attr nodes name: path -> module or tensor, in the order of those nodes.
        meta: what the module's meta holds.
        name: of its class.
    """
    root = torch.nn.Module()
    for path, member in members.items():
        _assign(root, path, member)
    module = GraphModule(root, torch.fx.Graph() if FAST else graph, name)
    if FAST:
        for path, member in members.items():
            _assign(module, path, member)
        module._graph = graph
        graph.owning_module = module
        _make_code(module)
    module.meta.update(meta)
    return module


def _make_code(module: GraphModule) -> None:
    try:
        fast_code.recompile(lambda self: self.recompile(), module)
    except SyntaxError:  # as torch does
        warnings.warn(
            "The code of the graph can't be compiled. The graph module can't be called, but the program can be run, "
            "and the graph module by torch.fx.Interpreter.",
            stacklevel=3,
        )


def _assign(module: Any, path: str, member: Any) -> None:
    *prefix, name = path.split(".")
    for part in prefix:
        if not hasattr(module, part):
            setattr(module, part, torch.nn.Module())
        module = getattr(module, part)
    if isinstance(member, torch.Tensor) and not isinstance(member, torch.nn.Parameter):
        module.register_buffer(name, member)
    else:
        setattr(module, name, member)


def loaded_verifiers(dialects: Iterable[str]) -> list[Any]:
    """The verifiers of dialects.

    Raises:
        ValueError: nobody has registered one of them.
    """
    try:
        return [torch_verifier.load_verifier(dialect) for dialect in dialects]
    except KeyError as error:
        raise ValueError(f"no verifier is registered for the dialect {error}; import the package that has it") from None


def make_repeats_apart(module: GraphModule, module_call_graph: list[Any]) -> list[Any]:
    """A module call graph that may be changed when repeated getitems of a module go: a copy if there are any."""
    if FAST and not any(map(fast_export._has_repeated_getitems, module.modules())):
        return module_call_graph
    return copy.deepcopy(module_call_graph)


@functools.cache
def _stock_check() -> Callable[..., Any]:
    torchs: Any = stock_behind(vars(torch_verifier.Verifier)["_check_graph_module"])

    def check(self: Any, gm: Any) -> Any:
        return torchs(self, gm)

    check.__wrapped__ = torchs  # type: ignore[attr-defined]
    return check


def _validate(program: Any) -> None:
    from fastexport._torch_verifier import as_ours

    with as_ours():
        for cls in program._verifiers:
            verifier = cls()
            verifier._check_graph_module = functools.partial(_check_modules, verifier)
            verifier.check(program)


def _check_modules(verifier: Any, module: GraphModule) -> None:
    """As `fast_export.check_graph_module`, with lint in C; where that finds a fault, torch says what it is."""
    parts = (torch_verifier._check_val, torch_verifier.getattr_recursive, type(module.graph).lint)
    if parts != (fast_export._CHECK_VAL, fast_export._GETATTR, _LINT):
        return fast_export.check_graph_module(_stock_check(), verifier, module)
    check = fast_export._Check(_stock_check(), verifier)
    try:
        for child in module.modules():
            if isinstance(child, GraphModule):
                if _core.fx_lint(child.graph, False, True):
                    child.graph.lint()
                check.module(child, child is module)
    except fast_export._Unfit:
        _stock_check()(verifier, module)
        return
    verifier.check_additional(module)


def create_program(
    module: GraphModule,
    signature: Any,
    state_dict: dict[str, Any],
    range_constraints: dict[Any, Any],
    module_call_graph: list[Any],
    example_inputs: Any,
    constants: dict[str, Any] | None,
    verifiers: list[Any],
    guards_code: list[str],
    *,
    checked: bool = False,
) -> torch.export.ExportedProgram:
    """What the constructor of torch's class makes, in the same order, of a module that is nobody else's.

    Args:
        checked: verifiers need not look at it; where torch's constructor is called, they do.

    Raises:
        SpecViolationError: torch's verifier has found a fault.
    """
    if not FAST:
        made = torch.export.ExportedProgram(
            module,
            module.graph,
            signature,
            state_dict,
            range_constraints,
            module_call_graph,
            example_inputs,
            constants,
            verifiers=verifiers,
        )
        made._guards_code = guards_code
        return made
    program: Any = object.__new__(torch.export.ExportedProgram)
    module.graph._codegen = torch.fx.graph.CodeGen()
    program._graph_module = module
    fast_export.eliminate_getitems(torch_program._common_getitem_elimination_pass, module, signature, module_call_graph)
    program._graph_signature = signature
    program._state_dict = state_dict
    program._range_constraints = range_constraints
    program._module_call_graph = module_call_graph
    program._example_inputs = example_inputs
    program._constants = {} if constants is None else constants
    program._verifiers = verifiers or [torch_verifier.Verifier]
    if not all(issubclass(verifier, torch_verifier.Verifier) for verifier in program._verifiers):
        raise AssertionError(f"all verifiers must be subclasses of Verifier, got {verifiers}")
    if not checked:
        _validate(program)
    program._guards_code = guards_code
    return program


def validate(program: torch.export.ExportedProgram) -> None:
    """What torch's serializer does first.

    Raises:
        SpecViolationError: torch's verifier has found a fault.
    """
    if FAST and type(program) is torch.export.ExportedProgram and program.verifiers:
        _validate(program)
    else:
        program.validate()


# ---- what a program has beside its public attributes -----------------------------------------------------------------


def guards_code(program: torch.export.ExportedProgram) -> list[str]:
    """Conditions on the inputs, as Python texts; none on a torch that keeps them elsewhere."""
    return getattr(program, "_guards_code", [])


def opset_version() -> dict[str, int]:
    """Versions of operator sets: this torch's."""
    newest = getattr(torch._C, "_get_max_operator_version", None)
    return {} if newest is None else {"aten": newest()}


def updated(
    program: torch.export.ExportedProgram, module: GraphModule, signature: Any, parts: Mapping[str, Any]
) -> torch.export.ExportedProgram:
    """A program of another graph, by torch's method for that."""
    return program._update(module, signature, **parts)


def class_of_object(value: Any) -> str:
    """The full name of the class of a scripted object."""
    return str(value._type().qualified_name())


def unpickled(data: bytes) -> Any:
    """A custom object, of what `pickled` gives for one."""
    return torch._C._pickle_load_obj(data)
