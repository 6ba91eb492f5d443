"""Observers of prepare_pt2e: their names without a scan from 0, their arguments without copies.

A free attribute name is looked for from where the last search ended, which is right as long as nothing was deleted from
the module in between. Python's dicts tell: after additions alone, the key that was last then still has as many keys
before it.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any

import torch

from fastexport.acceleration._known import are_known
from fastexport.acceleration._replacement import Replacement
from fastexport.acceleration._verify import verify_maker

# ---- names of attributes


class _Names:
    """Where to go on looking for free names of one module: for each prefix, all smaller numbers were taken."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = weakref.ref(module)
        self._free: dict[str, int] = {}
        self._marks: list[tuple[int, Any]] = [(0, None)] * 4

    def next(self, module: torch.nn.Module, prefix: str) -> str:
        spaces = _spaces(module)
        if not all(map(_only_grew, spaces, self._marks)):
            self._free.clear()
        self._marks = [(len(space), next(reversed(space), None)) for space in spaces]
        instance, parameters, buffers, modules = spaces
        number = self._free.get(prefix, 0)
        surely_taken = True
        while True:
            name = prefix + str(number)
            if name in modules or name in buffers or name in parameters or name in instance:
                number += 1
                if surely_taken:
                    self._free[prefix] = number
            elif hasattr(module, name):  # a property, or an attribute of the class: it may come and go
                number += 1
                surely_taken = False
            else:
                return name


def _spaces(module: torch.nn.Module) -> tuple[dict[str, Any], ...]:
    """The dicts that an attribute of a module can be in."""
    return vars(module), module._parameters, module._buffers, module._modules


def _only_grew(space: dict[str, Any], mark: tuple[int, Any]) -> bool:
    size, last = mark
    if size == 0:
        return True
    place = len(space)
    for key in reversed(space):
        if place < size:
            return False
        if key == last:
            return True
        place -= 1
    return False


class _Latest(threading.local):
    """The names of the module that was last asked for one in this thread."""

    names: _Names | None = None


_latest = _Latest()


def get_new_attr_name_with_prefix(stock: Any, prefix: Any) -> Any:
    """get_new_attr_name_with_prefix, counting on from the last name while nothing is deleted"""
    if type(prefix) is not str:
        return stock(prefix)
    prefix = prefix.replace(".", "_")

    def get_new_attr_name(module: Any) -> str:
        if not _has_usual_attributes(type(module)):
            return stock(prefix)(module)
        names = _latest.names
        if names is None or names.module() is not module:
            names = _latest.names = _Names(module)
        return names.next(module, prefix)

    return get_new_attr_name


def _has_usual_attributes(kind: Any) -> bool:
    module: Any = torch.nn.Module
    return (
        issubclass(kind, module)
        and kind.__getattr__ is module.__getattr__
        and kind.__getattribute__ is module.__getattribute__
    )


# ---- making an observer

_KWARGS = {"_get_observer_kwargs": "6c39e236944cf3be"}
_ATOMS = (type(None), bool, int, float, str, torch.dtype, torch.qscheme)


def create_observer(stock: Any, quantization_spec: Any, obs_or_fq_map: Any, is_qat: Any) -> Any:
    """_create_obs_or_fq_from_qspec, without two deep copies of a specification of plain values"""
    namespace = stock.__wrapped__.__globals__
    if type(quantization_spec) is not namespace["QuantizationSpec"] or not are_known(namespace, _KWARGS):
        return stock.__wrapped__(quantization_spec, obs_or_fq_map, is_qat)
    wrapper = namespace["PartialWrapper"]
    kwargs = {name: getattr(quantization_spec, name) for name in quantization_spec.__dataclass_fields__}
    constructor = kwargs.pop("observer_or_fake_quant_ctr")
    if not all(type(value) in _ATOMS for value in kwargs.values()) or not _copies_plainly(constructor, wrapper):
        return stock(quantization_spec, obs_or_fq_map, is_qat)
    made: Any = constructor.p.func if isinstance(constructor, wrapper) else constructor
    if "PerChannel" not in made.__name__:
        kwargs.pop("ch_axis")
    return constructor.with_args(**kwargs)()


def _copies_plainly(constructor: Any, wrapper: Any) -> bool:
    """Whether a deep copy of it runs no code but the copy module's, can't fail, and so is not missed."""
    if isinstance(constructor, type):
        return True
    if type(constructor) is not wrapper or vars(constructor).keys() != {"p", "callable_args"}:
        return False
    partial = constructor.p
    return (
        type(partial) is functools.partial
        and not vars(partial)
        and constructor.callable_args == {}
        and all(
            type(value) in _ATOMS or _copies_plainly(value, wrapper)
            for value in (partial.func, *partial.args, *partial.keywords.values())
        )
    )


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "new_attr_name",
        (
            "torch.ao.quantization.fx.utils:get_new_attr_name_with_prefix",
            "torch.ao.quantization.fx.prepare:get_new_attr_name_with_prefix",
            "torch.ao.quantization.fx._equalize:get_new_attr_name_with_prefix",
            "torch.ao.quantization.fx._lower_to_native_backend:get_new_attr_name_with_prefix",
            "torch.ao.ns.fx.graph_passes:get_new_attr_name_with_prefix",
            "torch.quantization.fx.utils:get_new_attr_name_with_prefix",
            "torchao.quantization.pt2e.utils:get_new_attr_name_with_prefix",
            "torchao.testing.pt2e._xnnpack_quantizer_utils:get_new_attr_name_with_prefix",
        ),
        get_new_attr_name_with_prefix,
        ("1b607f727ed24eca",),
        verify=verify_maker,
    ),
    Replacement(
        "create_observer",
        ("torchao.quantization.pt2e.prepare:_create_obs_or_fq_from_qspec",),
        create_observer,
        ("d46821e0c79f8ab8",),
        since="torchao 0.18",
    ),
)
