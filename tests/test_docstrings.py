"""The examples in docstrings, those of Python modules and those of C, give what they show."""

import doctest
import importlib
import operator
import pkgutil
from types import ModuleType
from typing import Any

import pytest

import fastexport
from fastexport import _core

MODULES = ["fastexport"] + [
    module.name
    for module in pkgutil.walk_packages(fastexport.__path__, "fastexport.")
    if module.name not in ("fastexport._core", "fastexport.__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_module(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0, "see the captured output"


def test_every_public_name_is_documented() -> None:
    missing = [name for name in fastexport.__all__ if not getattr(fastexport, name).__doc__]
    assert not missing


def names() -> dict[str, Any]:
    """What the examples in C take for granted: a graph and some of its nodes."""
    g = fastexport.Graph()
    x, y = g.placeholder("x"), g.placeholder("y")
    relu = g.create_node("call_function", operator.neg, (x,), name="relu")
    add = g.create_node("call_function", operator.add, (x, y), name="add")
    mul = g.create_node("call_function", operator.mul, (relu, add), name="mul")
    g.output(mul)
    known = {"x": x, "y": y, "relu": relu, "add": add, "mul": mul, "g": g, "graph": g}
    return known | {"node": mul, "new": mul, "old": add, "n": mul, "example": object()}


def c_docstrings(module: ModuleType) -> list[Any]:
    """The name and docstring of each object in a C module that shows an example."""
    found: list[tuple[str, str | None]] = []
    for name, value in vars(module).items():
        found.append((name, value.__doc__))
        if isinstance(value, type):
            found += [(f"{name}.{key}", getattr(value, key).__doc__) for key in vars(value)]
    return [pytest.param(name, doc, id=name) for name, doc in found if doc and ">>>" in doc]


@pytest.mark.parametrize("name, doc", c_docstrings(_core))
def test_c_docstring(name: str, doc: str) -> None:
    example = doctest.DocTestParser().get_doctest(doc, names() | {"operator": operator}, name, None, 0)
    result = doctest.DocTestRunner().run(example)
    assert result.failed == 0, "see the captured output"


def test_every_function_and_method_of_c_is_documented() -> None:
    missing = []
    for name, value in vars(_core).items():
        if name.startswith("__") or name.endswith("Iterator"):
            continue
        public = vars(value).items() if isinstance(value, type) else []
        missing += [f"{name}.{key}" for key, member in public if not key.startswith("__") and not member.__doc__]
        missing += [] if value.__doc__ else [name]
    assert not missing
