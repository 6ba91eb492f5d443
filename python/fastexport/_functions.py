"""The functions and classes that documents of graphs may name: functions that compute values, modules of torch.nn.

None of the functions reads a file, or runs code that it is given; classes are named only, and not called.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import sys
import types
from typing import Any

from fastexport._loaded import loaded

_BUILTINS = (
    "abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "float", "frozenset", "getattr", "hasattr",
    "int", "isinstance", "len", "list", "max", "min", "pow", "range", "repr", "reversed", "round", "set", "slice",
    "sorted", "str", "sum", "tuple", "type", "zip",
)  # fmt: skip
_TORCH_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special")
_READ_FILES = ("from_file",)


def _of_python() -> dict[str, Any]:
    found = {f"builtins.{name}": getattr(builtins, name) for name in _BUILTINS}
    for module in (operator, math):
        found.update(
            (f"{module.__name__}.{name}", value)
            for name, value in vars(module).items()
            if isinstance(value, types.BuiltinFunctionType) and not name.startswith("_") and name != "call"
        )
    return found


@functools.cache
def _of_torch() -> dict[str, Any]:
    """Those that can be overridden for kinds of tensors, and those in C, which make tensors."""
    import torch

    known = torch.overrides.get_overridable_functions()
    found: dict[str, Any] = {}
    for path in _TORCH_MODULES:
        module = sys.modules[path]
        overridable = {id(function) for function in known.get(module, ())}
        found.update(
            (f"{path}.{name}", value)
            for name, value in vars(module).items()
            if not name.startswith("_")
            and name not in _READ_FILES
            and (id(value) in overridable or isinstance(value, types.BuiltinFunctionType))
        )
    return found


_PYTHON = _of_python()
_NAMES = {value: name for name, value in reversed(_PYTHON.items())}


@functools.cache
def _torch_names() -> dict[Any, str]:
    return {value: name for name, value in reversed(_of_torch().items())}


def name_of_function(value: Any) -> str | None:
    """The name of a function in documents; None when it has none."""
    if not issubclass(type(value), (type, types.BuiltinFunctionType, types.FunctionType)):  # whatever it says it is
        return None
    name = _NAMES.get(value)
    return _torch_names().get(value) if name is None and loaded("torch") is not None else name


def function_named(name: str) -> Any:
    """The function of a name. Imports torch for one of torch's, and nothing else.

    Raises:
        ValueError: there is none of that name.
    """
    found = _PYTHON.get(name)
    if found is None and name.startswith("torch."):
        found = _of_torch().get(name)
    if found is None:
        raise ValueError(f"{name!r} is no function that a document may name")
    return found


@functools.cache
def _module_classes() -> dict[str, Any]:
    """The classes of modules in torch.nn, by the path that they say they are at."""
    import torch

    return {
        f"{kind.__module__}.{kind.__qualname__}": kind
        for path, module in list(sys.modules.items())
        if path.startswith("torch.nn.modules.") and module is not None
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, torch.nn.Module) and kind.__module__ == path
    }


def name_of_module_class(kind: Any) -> str | None:
    """The name of a class of torch.nn in documents; None when it is none."""
    if not issubclass(type(kind), type) or loaded("torch") is None:
        return None
    name = f"{kind.__module__}.{kind.__qualname__}"
    return name if _module_classes().get(name) is kind else None


def module_class_named(name: str) -> Any:
    """The class of a name. Imports torch, and nothing else.

    Raises:
        ValueError: there is none of that name.
    """
    found = _module_classes().get(name)
    if found is None:
        raise ValueError(f"{name!r} is no class that a document may name")
    return found
