"""The functions that documents of graphs may name: those that compute values, of Python and of torch.

None of them reads a file, or runs code that it is given.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import sys
import types
from typing import Any

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
    return _torch_names().get(value) if name is None and "torch" in sys.modules else name


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
