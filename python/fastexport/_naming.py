"""Names and texts by torch.fx's rules: what a node is called, how a target and a type are printed.

The C core does this itself for plain ASCII; it asks here for the rest. Nothing imports torch: only
an object of torch could be told apart by it, and then torch is loaded. The rules are those of torch
2.13 (torch/fx/graph.py, torch/fx/node.py), written anew; tests/test_naming.py compares the two.
"""

import builtins
import keyword
import re
import types

from fastexport._loaded import loaded

__all__ = ["pretty", "qualified_name", "reserved_names", "split_name", "stem", "type_repr"]

_MAX_NUMBER = 2**63 - 1

_case_change = re.compile(r"(?<=[a-z])([A-Z])")
_illegal = re.compile("[^0-9a-zA-Z_]+")
_name = re.compile(r"^([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?\Z")


def stem(target: object) -> str:
    """The name that nodes calling a target start from, before it is made unique.

    Args:
        target: a callable or a string.

    Returns:
        Its ``__name__``, or the string without the underscores of ``__magic__``, in snake case.

    Raises:
        AttributeError: a callable without ``__name__``.
        AssertionError: neither callable nor a string (torch's own exception).

    Example:
        >>> stem(len), stem("__add__"), stem("layerNorm")
        ('len', 'add', 'layer_norm')

    Source: torch/fx/graph.py, ``Graph._target_to_str`` and ``_snake_case``.
    """
    if callable(target):
        text: str = target.__name__  # type: ignore[attr-defined]
    elif isinstance(target, str):
        magic = target.startswith("__") and target.endswith("__")
        text = target[2:-2] if magic else target
    else:
        raise AssertionError(f"Expected target to be str, got {type(target)}")
    return _case_change.sub(r"_\1", text).lower()


def split_name(candidate: str) -> tuple[str, int, str]:
    """Make a candidate a legal name and split off its number.

    Args:
        candidate: any string.

    Returns:
        ``(base, number, name)``: the legal name, what stands before its last ``_digits``, and that
        number: -1 when there is none, 2**63 - 1 when it is greater (torch counts on without bound).

    Example:
        >>> split_name("conv_12"), split_name("größe"), split_name("1x")
        (('conv', 12, 'conv_12'), ('gr_e', -1, 'gr_e'), ('_1x', -1, '_1x'))

    Source: torch/fx/graph.py, ``_Namespace.create_name``; that lets a newline at the end pass, which no code can hold.
    """
    match = _name.match(candidate)
    if match is None:
        candidate = _illegal.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = _name.match(candidate)
        assert match is not None
    base, digits = match.groups()
    if digits is None:
        return base, -1, candidate
    # Python refuses to read very long numbers; leading zeros don't make one great.
    value = [int(digit) for digit in digits]
    significant = next((i for i, digit in enumerate(value) if digit), len(value) - 1)
    if len(value) - significant > 19:
        return base, _MAX_NUMBER, candidate
    return base, min(int(digits[significant:]), _MAX_NUMBER), candidate


def pretty(target: object) -> str:
    """The text that stands for a target in a printed node.

    Args:
        target: a callable or a string.

    Returns:
        The string itself; ``builtins.len``, ``operator.add``, ``torch.add``, ``package.function``.

    Raises:
        AttributeError: a callable without ``__name__`` or ``__module__``.
        RuntimeError: a lambda whose source can't be read, or a function that no module owns up to.

    Example:
        >>> import operator
        >>> pretty(operator.add), pretty("relu")
        ('operator.add', 'relu')

    Source: torch/fx/node.py, ``Node._pretty_print_target`` and ``_get_qualified_name``.
    """
    if isinstance(target, str):
        return target
    operators = loaded("fastexport._operators")
    if operators and type(target) is operators.Operator:
        return str(target)
    if hasattr(target, "__module__"):
        name = getattr(target, "__name__", None)
        if name is not None and target.__module__ == "builtins":
            return f"builtins.{name}"
        if name is not None and target.__module__ == "_operator":
            return f"operator.{name}"
    return qualified_name(target)


def qualified_name(function: object) -> str:
    """The path that a function or class is reached by.

    Args:
        function: what has a name and a module.

    Raises:
        AttributeError: it has no name.
        RuntimeError: a lambda whose source can't be read, or a function that no module owns up to.

    Example:
        >>> import math
        >>> qualified_name(math.sqrt), qualified_name(len)
        ('math.sqrt', 'len')

    Source: torch/fx/node.py, ``_get_qualified_name``.
    """
    name: str = function.__name__  # type: ignore[attr-defined]
    if getattr(builtins, name, None) is function:
        return name
    torch = loaded("torch")
    if isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType):
        if function is getattr(getattr(torch, "Tensor", None), name, None):
            return f"torch.Tensor.{name}"
    module: str | None = function.__module__
    # A method written in Python: only a class named Tensor in torch/_tensor.py can have these two.
    qualname = getattr(function, "__qualname__", None)
    if module == "torch._tensor" and qualname == f"Tensor.{name}":
        return f"torch.Tensor.{name}"
    if name == "<lambda>":
        try:
            import inspect

            name = inspect.getsource(function).split("=")[0].strip()  # type: ignore[arg-type]
        except Exception as error:
            raise RuntimeError("Unable to represent lambda") from error
    module = _module_of(function, module).replace("torch._ops", "torch.ops")
    if module == "torch" and name == "segment_reduce":
        name = "_segment_reduce"
    if module == "torch.nn.functional" and name in ("_ScalingType", "_SwizzleType"):
        name = name.removeprefix("_")
    return f"{module}.{name}"


def _module_of(function: object, module: str | None) -> str:
    if module is not None:
        return module
    for guess in ("torch", "torch.nn.functional"):
        owner = loaded(guess)
        if owner and getattr(owner, function.__name__, None) is function:  # type: ignore[attr-defined]
            return guess
    raise RuntimeError(f"cannot find module for {function}")


def type_repr(obj: object) -> str:
    """The text of a type annotation in a printed graph.

    Args:
        obj: a type, or anything that stands in the place of one.

    Returns:
        The qualified name of a class (without ``builtins.``), ``...``, the name of a function, the
        repr of everything else.

    Raises:
        Exception: what the object's own ``__repr__`` raises.

    Example:
        >>> type_repr(int), type_repr(list[int]), type_repr(types.ModuleType)
        ('int', 'list[int]', 'module')

    Source: torch/fx/node.py, ``_type_repr``.
    """
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        return f"{obj.__module__}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj)


def reserved_names() -> list[str]:
    """The names that no node may bear, because they mean something in generated code.

    Returns:
        Keywords, builtins and what generated code imports, sorted. ``None`` is not among them:
        torch looks for a name whose value is None. When torch.fx is loaded its own table is read,
        which extensions can add to.

    Example:
        >>> "class" in reserved_names(), "None" in reserved_names()
        (True, False)

    Source: torch/fx/graph.py, ``_illegal_names``.
    """
    table = getattr(loaded("torch.fx.graph"), "_illegal_names", None)
    if isinstance(table, dict):
        return sorted(name for name, value in table.items() if value is not None)
    known = dict.fromkeys(keyword.kwlist, True) | vars(builtins)
    known.pop("_", None)  # the last result of an interactive session
    names = {name for name, value in known.items() if value is not None}
    return sorted(names | {"inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"})
