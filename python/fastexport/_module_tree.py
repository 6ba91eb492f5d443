"""Modules, or what stands for them without torch, as a tree that paths lead through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fastexport import _core
from fastexport._loaded import loaded

ATTRIBUTE_OPS = ("get_attr", "call_module")


class Holder:
    """What a path leads through where there is no module; the base of what is one."""

    __slots__ = ("__dict__", "__weakref__")

    _values: Mapping[str, Any] = MappingProxyType({})  # tensors that are no attributes

    def _member(self, name: str) -> Any:
        """What a part of a path leads to, also where something of the class has that name."""
        return self.__dict__[name] if name in self.__dict__ else getattr(self, name)


class _Weights:
    """The weights of a program below a prefix, as attributes."""

    def __init__(self, values: Mapping[str, Any], prefix: str) -> None:
        self.__dict__.update(_values=values, _prefix=prefix)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return weight(self._values, self._prefix + name)


def weight(values: Mapping[str, Any], path: str) -> Any:
    if path in values:
        return values[path]
    if any(name.startswith(path + ".") for name in values):
        return _Weights(values, path + ".")
    raise AttributeError(path)


# ---- attributes by path

_RAISE: Any = object()


def attribute(module: Any, path: str, default: Any = _RAISE) -> Any:
    """What a dotted path leads to.

    Raises:
        AttributeError: it leads nowhere and no default is given.
    """
    for part in path.split("."):
        try:
            module = module._member(part) if isinstance(module, Holder) else getattr(module, part)
        except AttributeError:
            if default is _RAISE:
                raise
            return default
    return module


def is_module(value: Any) -> bool:
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_submodule(value: Any) -> bool:
    return isinstance(value, Holder) or is_module(value)


def is_tensor(value: Any, *, parameter: bool) -> bool:
    if isinstance(value, _core.Tensor):
        return bool(value.is_param) is parameter
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor) and isinstance(value, torch.nn.Parameter) is parameter


def holder_in(at: Any, name: str) -> Any:
    """A new empty module under a name: one of torch's where torch is, for what asks for its class."""
    torch = loaded("torch")
    holder = torch.nn.Module() if torch is not None else Holder()
    put(at, name, holder)
    return holder


def put(at: Any, name: str, value: Any) -> None:
    if name.startswith("__") and hasattr(Holder, name):
        raise ValueError(f"{name!r} is an attribute that every object has; a target must have another name")
    if isinstance(at, Holder):
        at.__dict__[name] = value
    elif is_module(at) and is_tensor(value, parameter=False) and not isinstance(value, _core.Tensor):
        at.register_buffer(name, value)
    else:
        setattr(at, name, value)


def install(module: Any, values: Mapping[str, Any]) -> None:
    """Put values at their paths below a module, with empty modules on the way where nothing is."""
    for path in sorted(values, key=lambda path: path.count(".")):  # what holds others comes before them
        at = module
        *prefix, name = path.split(".")
        for part in prefix:
            known = attribute(at, part, None)
            at = holder_in(at, part) if known is None else known
        put(at, name, values[path])


def modules_below(module: Any) -> Iterator[tuple[str, Any]]:
    """All modules below one, by path; each once."""
    seen = {id(module)}
    stack = [("", module)]
    while stack:
        prefix, at = stack.pop()
        if at is not module:
            yield prefix, at
        below = []
        for name, child in children_of(at):
            if id(child) not in seen:
                seen.add(id(child))
                below.append((f"{prefix}.{name}" if prefix else name, child))
        stack.extend(reversed(below))


def inner_first(module: Any) -> Iterator[Any]:
    """A module and all below it, each once and behind those below it; but what is below itself before one of these."""
    seen: set[int] = set()
    left = [(module, False)]
    while left:
        at, is_done = left.pop()
        if is_done:
            yield at
        elif id(at) not in seen:
            seen.add(id(at))
            left.append((at, True))
            left += [(child, False) for _, child in reversed(children_of(at))]


def children_of(module: Any) -> list[tuple[str, Any]]:
    """The modules that are attributes of one, by name; those of ours that one of torch's holds, too."""
    if is_module(module):
        ours = ((name, value) for name, value in vars(module).items() if isinstance(value, Holder))
        return [*module.named_children(), *ours]
    return [(name, value) for name, value in vars(module).items() if is_submodule(value)]


def tensors_below(module: Any, what: str, prefix: str) -> Iterator[tuple[str, Any]]:
    """The parameters, or the other tensors, of a module and those below it; each once, and its own first."""
    seen: set[int] = set()
    left = [(prefix, module)]
    while left:
        prefix, at = left.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        for path, value in _own_tensors(at, what, prefix):
            if id(value) not in seen:
                seen.add(id(value))
                yield path, value
        left += [(f"{prefix}{name}.", child) for name, child in reversed(children_of(at))]


def _own_tensors(module: Any, what: str, prefix: str) -> list[tuple[str, Any]]:
    if is_module(module):
        return list(getattr(module, what)(prefix.removesuffix("."), recurse=False))
    wanted = [*vars(module).items(), *module._values.items()]
    parameter = what == "named_parameters"
    return [(prefix + name, value) for name, value in wanted if is_tensor(value, parameter=parameter)]
