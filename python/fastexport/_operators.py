"""Operators of torch by their names: what call_function nodes of a program that was opened without torch call.

An `Operator` stands for a function of torch. It prints, names nodes and is judged by passes as torch's own object is,
by a table that is generated from torch's operators and compiled in; it can't be called. Only `Operator.to_torch`
imports torch, and looks a name up.
"""

from __future__ import annotations

import importlib
import math
import operator
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from fastexport import _core

__all__ = ["Operator", "operator_for"]

_PREFIX = "torch.ops."
_lock = threading.Lock()
_interned: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()

# The functions of the standard library that targets name; the classification has the same closed list.
_PYTHON: dict[str, Callable[..., Any]] = {
    **{
        f"_operator.{name}": getattr(operator, name)
        for name in """
            abs add and_ eq floordiv ge getitem gt le lshift lt mod mul ne neg not_ or_ pos pow rshift sub truediv
        """.split()
    },
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc")},
}


class Operator:
    """A function of torch by its name: the target of a call_function node of a program opened without torch.

    There is one Operator of a name, made by `operator_for`; it can't be changed. It equals itself and the string of its
    name, and has the string's hash.

    Attributes:
        name: the whole name, as in the file and in printed graphs: ``torch.ops.aten.add.Tensor``.
        kind: ``operator``, ``higher_order``, ``sym`` or ``function`` (a plain function of torch), ``extension``.
        namespace: ``aten``; for a plain function its module.
        overload: ``Tensor``; empty when the name has none.
        is_known: whether it is one of torch's own, so that its schema and its facts are known.

    Example:
        >>> add = operator_for("torch.ops.aten.add.Tensor")
        >>> add, add.namespace, add.overload, add.__name__
        (torch.ops.aten.add.Tensor, 'aten', 'Tensor', 'add.Tensor')
        >>> add.arguments[2], add.returns
        (('alpha', 'Scalar', True, True, False), ['Tensor'])
    """

    name: str
    kind: str
    namespace: str
    overload: str
    is_known: bool
    __name__: str

    def __new__(cls, name: str) -> Operator:
        """As `operator_for`, for names of functions of torch only.

        Raises:
            TypeError: name is no str.
            ValueError: it is not spelled as the target of a call is.
        """
        known = _interned.get(name)
        if known is not None:
            return known
        kind = _core.classify_target(name)
        if name in _PYTHON:
            raise ValueError(f"{name!r} names a function of Python, which operator_for() gives")
        if kind == "bad":
            raise ValueError(_complaint(name))
        _lock.acquire()
        try:  # no `with`: CPython 3.11 does not let go of the lock when memory runs out in it
            known = _interned.get(name)
            if known is None:
                known = object.__new__(cls)
                known.__dict__.update(_attributes(sys.intern(str(name)), kind))
                _interned[name] = known
        finally:
            _lock.release()
        return known

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: there is only a name here.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"{self.name} is known by its name only and can't be called: the program was read without torch. "
            "Convert the program or graph to torch's with to_torch() or to_fx(), and call what that holds"
        )

    @property
    def arguments(self) -> list[tuple[str, str, bool, bool, bool]]:
        """Of the schema: (name, type, has a default, keyword only, written by the operator) of each argument.

        Raises:
            LookupError: the operator has no schema that is known.
        """
        return self._schema()[0]

    @property
    def returns(self) -> list[str]:
        """Of the schema: the types of the results.

        Raises:
            LookupError: the operator has no schema that is known.
        """
        return self._schema()[1]

    def _schema(self) -> tuple[list[tuple[str, str, bool, bool, bool]], list[str]]:
        schema = _core.operator_schema(self.name)
        if schema is None:
            raise LookupError(f"{self.name} has no schema in the table made from torch {_core.operator_names()[0]}")
        return schema

    def to_torch(self) -> Any:
        """What torch calls by this name; imports torch.

        Returns:
            An OpOverload, a HigherOrderOperator, or a function of torch.

        Raises:
            ValueError: torch has no such operator: the package that registers it is not imported.
            ImportError: there is no torch.

        Example:
            >>> operator_for("torch.ops.aten.add.Tensor").to_torch()
            <OpOverload(op='aten.add', overload='Tensor')>
        """
        import torch

        found: Any = None
        if self.kind in ("operator", "higher_order"):
            found = _operator_of(torch, self.name)
        elif self.kind == "extension":
            from fastexport._torch_reader import extension_of

            found = extension_of(self.name)
        else:  # from the closed list, so this imports nothing but torch's own modules
            found = getattr(importlib.import_module(self.namespace), self.__name__, None)
        if found is None:
            raise ValueError(
                f"torch {torch.__version__} has no {self.name}; import the package that registers it, then try again"
            )
        return found

    def __repr__(self) -> str:
        return self.name

    def _custom_fx_repr_fn(self) -> str:
        """The text of an operator that is an argument of a node, as torch prints its own."""
        return self.__name__ if self.kind == "higher_order" else self.name.removeprefix(_PREFIX)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.name == other
        return self is other

    def __hash__(self) -> int:
        return hash(self.name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Operator can't be changed: {self.name}.{name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an Operator can't be changed: {self.name}.{name}")

    def __copy__(self) -> Operator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator:
        return self

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return Operator, (self.name,)


def _attributes(name: str, kind: str) -> dict[str, Any]:
    """What an Operator holds; the attributes with underscores are those that torch's own objects have."""
    stem = _core.operator_stem(name)
    namespace = name.removeprefix(_PREFIX).removeprefix("#").removesuffix(stem)[:-1]
    if kind == "operator":
        module = f"torch._ops.{namespace}"
    elif kind == "extension":
        module = "torch"
    else:
        module = name.removesuffix(stem)[:-1]
    return {
        "name": name,
        "kind": kind,
        "namespace": namespace,
        "overload": stem.partition(".")[2] if kind == "operator" else "",
        "is_known": _core.operator_facts(name) is not None,
        "__name__": stem,
        "__qualname__": stem,
        "__module__": module,
        "__doc__": None,
    }


def _operator_of(torch: Any, name: str) -> Any:
    """The operator of that name, or None; an attribute of torch.ops that is none is not meant."""
    found = torch.ops
    for part in name.removeprefix(_PREFIX).split("."):
        found = getattr(found, part, None)
    kinds = torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator
    return found if isinstance(found, kinds) else None


def _complaint(text: str) -> str:
    """What is wrong with the spelling of a target, with what was meant when that can be told."""
    dotted = text.replace("::", ".")
    for guess in (f"{_PREFIX}{dotted}", f"{_PREFIX}{dotted}.default", f"_{text}"):
        if _core.operator_facts(guess) is not None:
            return f"{text!r} is not the name of an operator; write {guess!r}"
    return (
        f"{text!r} is not the name of an operator; write 'torch.ops.NAMESPACE.NAME.OVERLOAD' "
        "(the overload is 'default' when it has no name), such as 'torch.ops.aten.relu.default'"
    )


def operator_for(text: str) -> Any:
    """What the target of a call in an exported program stands for.

    Args:
        text: the target as it is spelled in the file.

    Returns:
        The function itself when it is one of Python's own (``_operator.add``, ``math.trunc``, from a closed list), else
        the `Operator` of that name. Nothing is looked up or imported.

    Raises:
        TypeError: text is no str.
        ValueError: it is not spelled as the target of a call is.

    Example:
        >>> operator_for("_operator.add"), operator_for("torch.ops.aten.relu.default")
        (<built-in function add>, torch.ops.aten.relu.default)
        >>> operator_for("aten.relu.default")
        Traceback (most recent call last):
        ...
        ValueError: 'aten.relu.default' is not the name of an operator; write 'torch.ops.aten.relu.default'
    """
    return _PYTHON.get(text) or Operator(text)
