"""str(graph) and the line of a node: character for character as torch.fx writes them."""

import collections
import math
import random
import struct
import types
import typing

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from fastexport import Graph
from helpers import label

Pair = collections.namedtuple("Pair", "first second")
Empty = collections.namedtuple("Empty", "")


def written(values):
    """The values of a tuple as a graph returns it, one text each."""
    g = Graph()
    g.output(tuple(values))
    text = str(g)
    assert text.startswith("graph():\n    return (") and text.endswith(")")
    return text[len("graph():\n    return (") : -1].split(", ")


def double(bits):
    return struct.unpack("d", struct.pack("Q", bits))[0]


def test_powers_of_two_and_their_neighbours():
    powers = [math.ldexp(1.0, k) for k in range(-1074, 1024)]
    values = [
        sign * value
        for power in powers
        for value in (power, math.nextafter(power, 0), math.nextafter(power, math.inf))
        for sign in (1, -1)
    ]
    assert written(values) == [repr(value) for value in values]


def test_doubles_at_random():
    pick = random.Random(1)
    values = [double(pick.getrandbits(64)) for _ in range(20_000)]
    values += [double(pick.getrandbits(52) >> pick.randrange(52)) for _ in range(5000)]  # subnormals
    values += [round(pick.uniform(-1, 1) * 10.0 ** pick.randint(-6, 20), pick.randint(0, 8)) for _ in range(5000)]
    values += [float(f"{pick.randint(1, 9999)}e{pick.randint(-30, 30)}") for _ in range(5000)]
    assert written(values) == [repr(value) for value in values]


def test_complex_numbers():
    parts = [0.0, -0.0, 1.0, -1.5, 1e16, 1e-5, 5e-324, math.inf, -math.inf, math.nan, -math.nan]
    values = [complex(real, imag) for real in parts for imag in parts]
    assert written(values) == [repr(value) for value in values]


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_strings(texts):
    g, model = Graph(), torch.fx.Graph()
    for graph in (g, model):
        x = graph.placeholder("x", default_value=texts[0])
        graph.call_method("m", (x, *texts, texts, slice(texts[0])), {"k": texts[-1], "d": dict.fromkeys(texts)})
        graph.output(texts)
    assert str(g) == str(model)


def test_every_character_of_the_first_plane():
    pieces = ["".join(map(chr, range(start, start + 64))) for start in range(0, 0xD800, 64)]
    pieces += ["\ud800", "a\udfffb", "\U0001f600", "\U0010ffff"]
    g, model = Graph(), torch.fx.Graph()
    for graph in (g, model):
        graph.output((pieces,))
    assert str(g) == str(model)


class Custom:
    """Has a text of its own for arguments of nodes."""

    def _custom_fx_repr_fn(self):
        return "CUSTOM"

    def __repr__(self):
        return "REPR"

    def __str__(self):
        return "STR"


class Plain(Custom):
    _custom_fx_repr_fn = property(lambda self: (_ for _ in ()).throw(AttributeError))


class Tuple(tuple):
    pass


VALUES = [
    Custom(),
    Plain(),
    [Custom()],
    {"k": Custom()},
    {Custom(): 1},
    slice(Custom(), None),
    Pair(1, "s"),
    Pair(Pair("a", Custom()), [Empty()]),
    Empty(),
    Tuple((1, "s")),
    torch.Size([1, 2]),
    torch.Size([]),
    (),
    [],
    {},
    (1,),
    [()],
    {"a": {}},
    {1: 2, None: 3, "s": 4, 1.5: 5, (1, "s"): 6, False: 7, b"b": 8},
    slice(1, None, "s"),
    slice(slice(None), [1, "s"], {"k": ()}),
    range(3),
    {1},
    frozenset(),
    ...,
    NotImplemented,
    None,
    True,
    -7,
    1 << 80,
    -0.0,
    1j,
    b"b'",
    "it's",
    int,
    len,
    torch.float32,
    torch.strided,
    torch.device("cpu", 0),
    torch.preserve_format,
    types.SimpleNamespace(a=1),
    collections.OrderedDict(a=1, b="s"),
    collections.defaultdict(int, a=1),
]


def lines(kind, value):
    g = kind()
    x = g.placeholder("x", default_value=value)
    w = g.get_attr("deep.w")
    g.call_function(len, (x, value, [value, "s"], (value,), {"q": value}, slice(value, x)), {"kw": value, "l": [w]})
    g.call_module("deep.m", (value,), {})
    g.call_method("m", (), {"k": x})
    g.output(value)
    return str(g)


@pytest.mark.parametrize("value", VALUES, ids=[f"{i}_{type(value).__name__}" for i, value in enumerate(VALUES)])
def test_values_in_every_place(value):
    assert lines(Graph, value) == lines(torch.fx.Graph, value)


@pytest.mark.parametrize(
    "annotation",
    [
        int,
        torch.Tensor,
        list[int],
        typing.Optional[int],  # noqa: UP045
        typing.Any,
        "text",
        None,
        1,
        ...,
        len,
        lines,
        lambda: 0,
        types.NoneType,
        int | None,
        Pair,
        Custom(),
    ],
    ids=label,
)
def test_annotations(annotation):
    def text(kind):
        g = kind()
        x = g.placeholder("x", annotation)
        w = g.get_attr("w", annotation)
        y = g.call_method("m", (x, w), {}, annotation)
        g.output(y, annotation)
        return str(g)

    assert text(Graph) == text(torch.fx.Graph)


def test_targets():
    import math as module
    import operator

    targets = [
        *(operator.add, operator.getitem, len, getattr, math.sqrt, module.floor, lines),
        *(torch.add, torch.relu, torch.nn.functional.relu, torch.nn.functional.scaled_dot_product_attention),
        *(torch.ops.aten.add.Tensor, torch.ops.aten.add, torch.ops.higher_order.cond),
        *(torch.Tensor.relu, torch.Tensor.add_, torch._assert, torch.sym_max),
    ]

    def text(kind):
        g = kind()
        for target in targets:
            g.call_function(target)
        return str(g)

    assert text(Graph) == text(torch.fx.Graph)


def test_targets_without_a_text():
    def text(kind, target):
        g = kind()
        g.call_function(target, name="f")
        try:
            return str(g)
        except Exception as error:
            return type(error), str(error)

    nameless = collections.defaultdict(int).__missing__
    inner = [lambda: 0]
    for target in (nameless, inner[0], str.upper, types.SimpleNamespace):
        assert text(Graph, target) == text(torch.fx.Graph, target)


def test_an_output_of_nothing():
    for arguments in [(None,), ((),), ([],), ({},), ("",)]:
        texts = []
        for kind in (Graph, torch.fx.Graph):
            g = kind()
            g.create_node("output", "output", arguments)
            texts.append(str(g))
        assert texts[0] == texts[1]


def test_odd_names_and_counts():
    g = Graph()
    x = g.placeholder("x")
    x.name = "caf\u00e9 \U0001f600"
    for _ in range(3):
        g.call_method("m", (x, x))
    assert str(g).splitlines()[1] == "    %caf\u00e9 \U0001f600 : [num_users=3] = placeholder[target=x]"
    assert str(g).splitlines()[2].endswith("(args = (%caf\u00e9 \U0001f600, %caf\u00e9 \U0001f600), kwargs = {})")


@given(st.integers())
@settings(max_examples=200)
def test_integers(value):
    assert written([value, [value], "s"]) == [repr(value), f"[{value}]", "'s'"]


def test_an_object_is_asked_once_for_each_form():
    asked = []

    class Counting:
        def __str__(self):
            asked.append("str")
            return "S"

        def __repr__(self):
            asked.append("repr")
            return "R"

    value = Counting()
    g = Graph()
    for _ in range(10):
        g.call_method("m", (value, [value], slice(value)))
    assert str(g).count("(S, [S], slice(None, R, None))") == 10
    assert sorted(asked) == ["repr", "str"]


def test_a_line_costs_nothing_of_the_other_objects():
    """A table of all objects for each line would make the lines of a large graph take quadratic time."""
    import tracemalloc

    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(len, (x,))
    for i in range(2000):
        graph.call_function(len, (x, (object(), i)))
    line = first.format_node()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert first.format_node() == line
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 16 * 1000
