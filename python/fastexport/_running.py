"""The code of a GraphModule, compiled and run."""

from __future__ import annotations

import itertools
import linecache
import traceback
import weakref
from collections.abc import Callable
from types import MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from fastexport import _core
from fastexport._module_tree import ATTRIBUTE_OPS, attribute

if TYPE_CHECKING:
    from fastexport._graph_module import GraphModule

_numbers = itertools.count()
_NOTE = "in line {} of the code generated for "
_AROUND = 2  # lines shown before and after


def compiled(module: GraphModule) -> Callable[..., Any]:
    code = module._python_code()
    name = f"<fastexport.GraphModule {next(_numbers)}>"
    namespace = dict(code.globals)
    exec(compile(code.src, name, "exec", dont_inherit=True), namespace)
    function = namespace[_function_name(module)]
    # Tracebacks show lines of the code for as long as there is the function.
    linecache.cache[name] = (len(code.src), None, code.src.splitlines(keepends=True), name)
    weakref.finalize(function, linecache.cache.pop, name, None)
    return MethodType(function, _runner(module))


def _function_name(module: GraphModule) -> str:
    codegen = (module._graph.extras or {}).get("_codegen")
    return "forward" if codegen is None else codegen._func_name


def _runner(module: GraphModule) -> Any:
    """What attributes are looked up in when the code runs.

    It is the module, or an object with the same attributes where they are no tensors of torch yet, or are called like
    something of the class.
    """
    targets = {node.target: node.op for node in module._graph.nodes if node.op in ATTRIBUTE_OPS}
    found = {path: attribute(module, path, None) for path, op in targets.items() if op == "get_attr"}
    ours = {target: value for target, value in found.items() if isinstance(value, _core.Tensor)}
    if not ours and not any(hasattr(type(module), target.split(".")[0]) for target in targets):
        return module
    from fastexport._tensors import to_torch_all

    runner = SimpleNamespace(**module.__dict__)
    for path, value in {**found, **to_torch_all(ours)}.items():
        at: Any = runner
        *prefix, name = path.split(".")
        for part in prefix:
            if not isinstance(vars(at).get(part), SimpleNamespace):
                setattr(at, part, SimpleNamespace())
            at = getattr(at, part)
        setattr(at, name, value)
    return runner


def explain(error: Exception, file: str, module: GraphModule) -> None:
    """Note at an exception which line of generated code raised it."""
    lines = [summary.lineno for summary in traceback.extract_tb(error.__traceback__) if summary.filename == file]
    if not lines or any(note.startswith(_NOTE[:8]) for note in getattr(error, "__notes__", ())):
        return
    at = lines[-1] or 0
    near = [(number, line) for number, line in enumerate(linecache.getlines(file), 1) if abs(number - at) <= _AROUND]
    shown = [f"{'->' if number == at else '  '} {line.rstrip()}" for number, line in near if line.strip()]
    error.add_note(_NOTE.format(at) + f"{module._class_name}:\n" + "\n".join(shown))
