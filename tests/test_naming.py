"""Names and texts: fastexport._naming beside torch.fx's own rules."""

import builtins
import doctest
import inspect
import keyword
import operator
import subprocess
import sys
import typing

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch.fx import graph as fx_graph
from torch.fx import node as fx_node

from fastexport import _naming

FX = fx_graph.Graph()


def outcome(function, *args):
    """What a call returns, or the type and text of what it raises."""
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


class Named:
    def __init__(self, name):
        self.__name__ = name

    def __call__(self):
        pass


# Letters and digits that the rules treat apart, more often than chance would bring them.
names = st.text(
    st.one_of(st.sampled_from("abzABZ019_ .-\n\t٣߉²éßİÀ"), st.characters(codec="utf-8"), st.characters()),
    max_size=12,
)
candidates = st.one_of(names, st.builds("{}_{}".format, names, st.integers(0, 2**70)), st.from_regex(r"\w+_\d+\n?"))


def torch_callables():
    found = [getattr(torch, name) for name in dir(torch)]
    found += [getattr(F, name) for name in dir(F)]
    found += [getattr(torch.Tensor, name) for name in dir(torch.Tensor)]
    found += [*vars(operator).values(), *vars(builtins).values()]
    found += [*vars(torch._C._nn).values(), torch.ops.aten.add, torch.ops.aten.add.Tensor]
    found += [torch.ops.higher_order.cond, torch.Tensor.grad.__get__, torch.segment_reduce]
    return [target for target in found if callable(target)]


def local_function():
    pass


local_lambda = lambda x: x  # noqa: E731


ODD_CALLABLES = [
    local_function,
    local_lambda,
    eval("lambda: 0"),
    Named("someName"),
    Named(None),
    Named(3),
    object,
    str.upper,
    "abc".upper,
    inspect.signature,
    typing.Optional,
    type("Local", (), {"__module__": None}),
]


@given(names)
@example("__add__")
@example("____")
@example("__")
@example("ALL_CAPS")
def test_stem_of_a_string(text):
    assert _naming.stem(text) == FX._target_to_str(text)


@given(names)
def test_stem_of_a_callable(text):
    assert _naming.stem(Named(text)) == FX._target_to_str(Named(text))


def test_stem_of_torch_and_odd_targets():
    for target in [*torch_callables(), *ODD_CALLABLES, None, 5, b"x"]:
        assert outcome(_naming.stem, target) == outcome(FX._target_to_str, target), target


@given(candidates)
@example("")
@example("x_\u0663")
@example("x_\u0663\n")
@example("_1")
@example("_1_1")
@example("x_007")
@example("x_" + "0" * 30 + "7")
def test_split_name_is_what_create_name_does(candidate):
    base, number, name = _naming.split_name(candidate)
    candidate = candidate.replace("\n", " ")  # torch takes one at the end into the name
    namespace = fx_graph._Namespace()
    created = namespace.create_name(candidate, None)
    count = namespace._base_count[base]
    if number >= 0:
        assert (created, min(count, 2**63 - 1)) == (name, number)
    elif created != name:  # a reserved name is counted on
        assert (created, count) == (f"{base}_1", 1)
    # The next one of the same name shows the base.
    assert namespace.create_name(candidate, None) == f"{base}_{count + 1}"


def test_split_name_of_great_numbers():
    limit = 2**63 - 1
    assert _naming.split_name(f"x_{limit}") == ("x", limit, f"x_{limit}")
    assert _naming.split_name(f"x_{limit + 1}") == ("x", limit, f"x_{limit + 1}")
    long = "x_" + "9" * 5000  # more digits than int() reads
    assert _naming.split_name(long) == ("x", limit, long)
    zeros = "x_" + "0" * 5000 + "5"
    assert _naming.split_name(zeros) == ("x", 5, zeros)


def test_reserved_names_are_those_that_create_name_refuses():
    reserved = set(_naming.reserved_names())
    tried = {*keyword.kwlist, *dir(builtins), *fx_graph._illegal_names, "None", "x", "pytree"}
    for name in tried - {"_"}:
        refused = fx_graph._Namespace().create_name(name, None) != name
        assert (name in reserved) == refused, name
    assert "None" not in reserved and "class" in reserved


def test_reserved_names_are_the_same_without_torch():
    code = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('naming', sys.argv[1])\n"
        "naming = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(naming)\n"
        "print(*naming.reserved_names())\n"
        "assert naming.pretty(len) == 'builtins.len'\n"
        "assert naming.stem(len) == 'len'\n"
        "assert 'torch' not in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", code, _naming.__file__], capture_output=True, text=True, check=True)
    assert run.stdout.split() == _naming.reserved_names()


def test_reserved_names_include_registered_ones(monkeypatch):
    monkeypatch.setitem(fx_graph._illegal_names, "npu_thing", object())
    assert "npu_thing" in _naming.reserved_names()


def test_pretty_of_torch_and_odd_targets():
    pretty = fx_node.Node._pretty_print_target
    for target in [*torch_callables(), *ODD_CALLABLES, "relu", "", 5]:
        assert outcome(_naming.pretty, target) == outcome(pretty, target), target


@given(names)
def test_pretty_of_a_string(text):
    assert _naming.pretty(text) == text


@pytest.mark.parametrize(
    "obj",
    [
        int,
        list[int],
        dict[str, list[int]],
        typing.Optional[int],  # noqa: UP045
        int | None,
        torch.Tensor,
        torch.nn.Linear,
        ...,
        None,
        "Tensor",
        local_function,
        typing.Any,
        Named,
        typing.NamedTuple("Point", [("x", int)]),
        torch.float32,
    ],
)
def test_type_repr(obj):
    assert _naming.type_repr(obj) == fx_node._type_repr(obj)


def test_examples():
    assert doctest.testmod(_naming).failed == 0
