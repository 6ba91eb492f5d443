"""Members of modules: looked up by path, put in place, and submodules that nothing uses deleted.

A module's getattr, hasattr and setattr try several places, and a miss is an exception made and caught. Where a member
is an ordinary one, and its module's class has no ways of its own, it is read from and written to the dicts of members
themselves, to the same effect.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.fx import graph_module as fx_graph_module
from torch.nn.modules import module as nn_module

from fastexport.acceleration._replacement import Replacement
from fastexport.acceleration._verify import outcome, require_same, verify_method

_Module: Any = torch.nn.Module
_SPACES = ("_parameters", "_buffers", "_modules")
_NOTHING: dict[str, Any] = {}


def _is_plain(holder: Any, name: str) -> bool:
    """Whether a name can only stand for a member: neither for an attribute of the module, nor for one of its class."""
    kind: Any = type(holder)
    return (
        name not in vars(holder)
        and not hasattr(kind, name)
        and issubclass(kind, _Module)
        and kind.__getattr__ is _Module.__getattr__
        and kind.__getattribute__ is _Module.__getattribute__
    )


def _member(holder: Any, name: str, spaces: tuple[str, ...] = _SPACES) -> Any:
    """What getattr gives for a member of a module; None when it is not as simple as that."""
    if _is_plain(holder, name):
        attributes = vars(holder)
        for space in spaces:
            value = attributes.get(space, _NOTHING).get(name)
            if value is not None:
                return value
    return None


def _put(holder: Any, name: str, value: Any) -> bool:
    """Make a parameter, buffer or module a member, as setattr or register_buffer would; False if they have to."""
    if isinstance(value, _Module):
        space, hooks = "_modules", nn_module._global_module_registration_hooks
    elif type(value) is torch.nn.Parameter:
        space, hooks = "_parameters", nn_module._global_parameter_registration_hooks
    elif type(value) is torch.Tensor:
        space, hooks = "_buffers", nn_module._global_buffer_registration_hooks
    else:
        return False
    kind: Any = type(holder)
    if hooks or not name or not _is_plain(holder, name) or kind.__setattr__ is not _Module.__setattr__:
        return False
    if space == "_buffers" and kind.register_buffer is not _Module.register_buffer:
        return False
    if space == "_parameters" and (kind.register_parameter is not _Module.register_parameter or value.grad_fn):
        return False
    attributes = vars(holder)
    if "_non_persistent_buffers_set" not in attributes:  # its __init__ was not called
        return False
    if any(name in attributes[other] for other in _SPACES if other != space):
        return False
    attributes["_non_persistent_buffers_set"].discard(name)
    attributes[space][name] = value
    return True


# ---- by path


def copy_attr(stock: Any, from_module: Any, to_module: Any, target: str) -> None:
    """The member of one module made a member of another one, with the modules on the way to it"""
    *path, name = target.split(".")
    for item in path:
        source, made = _member(from_module, item, ("_modules",)), _member(to_module, item, ("_modules",))
        if source is None or (made is None and not _is_new(to_module, item)):
            return stock.__wrapped__(from_module, to_module, ".".join((*path, name)))
        if source is made:  # put there whole, with all that is in it
            return None
        if made is None:
            made = _Module()
            if not _put(to_module, item, made):
                setattr(to_module, item, made)
        path = path[1:]
        from_module, to_module = source, made
    value = _member(from_module, name)
    if value is None or not _put(to_module, name, value):
        return stock.__wrapped__(from_module, to_module, name)
    return None


def _is_new(holder: Any, name: str) -> bool:
    """Whether a module has nothing of that name."""
    return _is_plain(holder, name) and not any(name in vars(holder).get(space, _NOTHING) for space in _SPACES)


def get_constant(stock: Any, node: Any, m: Any) -> Any:
    """The tensor that a get_attr node stands for, looked up where modules keep their members"""
    if node is None:
        return None
    if node.op != "get_attr":
        return stock(node, m)
    holder = m
    *path, name = node.target.split(".")
    for item in path:
        holder = _member(holder, item, ("_modules",))
        if holder is None:
            return stock(node, m)
    value = _member(holder, name, ("_parameters", "_buffers"))
    return stock(node, m) if value is None else value


# ---- the same both ways


def _verify_path(ours: Any, stock: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Let torch's write into copies of the modules on the way, which share all else, and compare their members."""
    source, holder, target, *rest = args
    path = target.split(".")[:-1]
    twin = _twin(holder, path)
    expected = outcome(stock, (source, twin, target, *rest), kwargs)
    found = outcome(ours, args, kwargs)
    require_same(expected, found, ours.func.__name__, _listing(twin, path), _listing(holder, path))
    return found.value()


def _twin(holder: Any, path: list[str]) -> Any:
    twin = object.__new__(type(holder))
    vars(twin).update(vars(holder))
    for space in (*_SPACES, "_non_persistent_buffers_set"):
        vars(twin)[space] = vars(holder)[space].copy()
    child = twin._modules.get(path[0]) if path else None
    if child is not None:
        twin._modules[path[0]] = _twin(child, path[1:])
    return twin


def _listing(holder: Any, path: list[str]) -> list[Any]:
    """Names and identities of the members of the modules on a path; only the class of those modules themselves."""
    levels: list[Any] = []
    for item in [*path, None]:
        if holder is None:
            break
        members = [
            (name, type(value).__name__ if name == item else id(value))
            for space in _SPACES
            for name, value in vars(holder)[space].items()
        ]
        levels.append((members, sorted(holder._non_persistent_buffers_set)))
        holder = holder._modules.get(item)
    return levels


# ---- submodules that nothing uses


def delete_all_unused_submodules(stock: Any, self: Any) -> None:
    """GraphModule.delete_all_unused_submodules, with the names in use in a set"""
    used: set[str] = set()
    for node in self.graph.nodes:
        target = node.target
        if node.op not in ("call_module", "get_attr") or not isinstance(target, str):
            continue
        used.update(itertools.accumulate(target.split("."), _join))
        if node.op == "call_module":
            try:
                submodule = self.get_submodule(target)
            except AttributeError:
                continue
            used.update(f"{target}.{name}" for name, _ in submodule.named_modules() if name)
    for name in [name for name, _ in self.named_modules() if name not in used]:
        self.delete_submodule(name)


def _join(path: str, atom: str) -> str:
    return f"{path}.{atom}" if atom else path


_UTILS = "torchao.quantization.pt2e.utils"

REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "copy_attr",
        (f"{fx_graph_module.__name__}:_copy_attr",),
        copy_attr,
        ("58d47d0f25e9449b",),
        verify=_verify_path,
    ),
    Replacement(
        "get_tensor_constant",
        (f"{_UTILS}:_get_tensor_constant_from_node",),
        get_constant,
        ("e5d262727728a409",),
        since="torchao 0.18",
    ),
    Replacement(
        "delete_unused_submodules",
        (f"{fx_graph_module.__name__}:GraphModule.delete_all_unused_submodules",),
        delete_all_unused_submodules,
        ("aa9dc7fa3c2c19fa",),
        verify=verify_method,
    ),
)
