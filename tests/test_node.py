"""Node: identity, arguments and uses, moving, ordering, text, effects."""

import collections
import gc
import operator
import weakref

import pytest
import torch

import fastexport
from fastexport import Graph
from helpers import Unchanged, assert_sound, names, plain, small_graph

Pair = collections.namedtuple("Pair", "first second")


# ---- identity


def test_one_node_is_one_object():
    g, x, add, mul, out = small_graph()
    assert add.args[0] is x and mul.args == (add, x) and mul.args[0] is add
    assert list(g.nodes)[1] is add and g.node("add") is add and next(iter(x.users)) is add
    assert add == add and add != mul and hash(add) == hash(g.node("add"))
    assert {x: 1, add: 2}[g.node("add")] == 2
    assert add.graph is g and add.graph is mul.graph


def test_a_node_that_nobody_holds_comes_back():
    g, *_ = small_graph()
    del _
    gc.collect()
    first = g.node("add")
    seen = weakref.ref(first)
    assert seen() is first
    del first
    assert seen() is None
    assert g.node("add").name == "add" and g.node("add").users == {g.node("mul"): None}


def test_nodes_keep_their_graph():
    mul = small_graph()[3]
    gc.collect()
    assert str(mul.graph).endswith("return mul")
    assert mul.prev.name == "add" and mul.next.name == "output"


def test_the_root_closes_the_list():
    g, x, add, mul, out = small_graph()
    root = x.prev
    assert out.next is root and root.op == "root" and root.name == "" and root.target == "root"
    assert root.next is x and root.prev is out
    assert root not in g.nodes and root.args == () and not root.is_impure()
    empty = Graph()
    assert len(empty.nodes) == 0
    with pytest.raises(ValueError, match="root"):
        root.args = (1,)


def test_nodes_are_made_by_graphs_only():
    with pytest.raises(TypeError):
        fastexport.Node()


# ---- arguments


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**63 - 1,
        -(2**63),
        2**63,
        -(2**63) - 1,
        1 << 2000,
        0.0,
        -0.0,
        1.5,
        float("inf"),
        1j,
        complex(-0.0, -1),
        "",
        "text",
        "\u00e9\U0001f600",
        "\ud800",
        "a\0b",
        b"bytes",
        ...,
        NotImplemented,
        int,
        len,
        range(3),
        frozenset({1}),
        torch.float32,
        torch.strided,
        torch.preserve_format,
        torch.device("cpu"),
        (),
        [],
        {},
        (1, (2, (3,))),
        [[1], [[]]],
        {"a": {"b": []}, 1: 2, None: 3, (1, 2): 4, 1.5: 5},
        slice(None),
        slice(1, None, 2),
        (slice(0, 1), ..., None),
        Pair(1, [2]),
        [Pair("a", Pair(None, ()))],
    ],
)
def test_constants_come_back(value):
    """The same type and value as from torch.fx, wherever it stands."""
    for kind in (Graph, torch.fx.Graph):
        g = kind()
        x = g.placeholder("x", default_value=value)
        node = g.call_function(len, (value, [value, x], (value,), {"k": value}), {"k": value})
        got = x.args, node.args, node.kwargs
        if kind is Graph:
            ours = got
    assert plain(ours) == plain(got)
    assert repr(ours) == repr(got)


def test_objects_keep_their_identity():
    class Anything:
        pass

    values = [Anything(), bytearray(b"x"), 1 << 70, "\ud800", {1, 2}, torch.zeros(1)]
    g = Graph()
    node = g.call_function(len, (values, {"k": values[0]}))
    assert all(got is value for got, value in zip(node.args[0], values, strict=True))
    assert node.args[1]["k"] is values[0]


def test_subclasses_of_numbers_and_strings_are_kept_as_they_are():
    class Int(int):
        pass

    class Str(str):
        pass

    class Float(float):
        pass

    values = [Int(1), Str("a"), Float(1.0), torch.Size([1])]
    g = Graph()
    got = g.call_function(len, tuple(values)).args
    assert [type(value) for value in got] == [Int, Str, Float, tuple]
    assert got[:3] == (1, "a", 1.0) and got[0] is values[0]


def test_containers_in_arguments_refuse_changes():
    g, x, *_ = small_graph()
    node = g.call_function(len, ([x], {"k": [x]}), {"m": {"n": x}})
    for change in (
        lambda: node.args[0].append(1),
        lambda: node.args[0].__setitem__(0, 1),
        lambda: node.args[1].update(a=1),
        lambda: node.kwargs.__setitem__("m", 1),
        lambda: node.kwargs["m"].pop("n"),
    ):
        with pytest.raises(TypeError):
            change()
    assert isinstance(node.args[0], list) and isinstance(node.kwargs, dict)
    assert node.args == ([x], {"k": [x]}) and node.kwargs == {"m": {"n": x}}


def test_arguments_are_read_when_they_are_given():
    g, x, *_ = small_graph()
    items, options = [x], {"k": x}
    node = g.call_function(len, (items,), options)
    items.append(1)
    options["j"] = 2
    assert node.args == ([x],) and node.kwargs == {"k": x}


def test_nodes_as_keys_are_no_operands():
    g, x, add, *_ = small_graph()
    frozen = g.call_function(len, ([x],)).args[0]
    users = list(x.users)
    node = g.call_function(len, ({x: 1, (x, 2): 3, frozen: 4},))
    assert node.all_input_nodes == [] and list(x.users) == users
    assert list(node.args[0]) == [x, (x, 2), [x]]
    assert_sound(g)


def test_assigning_arguments():
    g, x, add, mul, out = small_graph()
    mul.args = [add, {"k": (x, add)}]  # any list will do
    assert mul.args == (add, {"k": (x, add)}) and isinstance(mul.args, tuple)
    assert mul.all_input_nodes == [add, x]
    mul.kwargs = {"other": x}
    assert mul.kwargs == {"other": x} and mul.args[0] is add
    mul.args = ()
    assert mul.all_input_nodes == [x] and list(add.users) == []
    mul.kwargs = {}
    assert list(x.users) == [add]
    assert_sound(g)


def test_update_and_insert():
    g, x, add, mul, out = small_graph()
    mul.update_arg(0, x)
    assert mul.args == (x, x) and list(add.users) == []
    mul.update_arg(-1, [add])
    assert mul.args == (x, [add])
    mul.insert_arg(1, 7)
    mul.insert_arg(3, (add, x))
    mul.insert_arg(0, None)
    assert mul.args == (None, x, 7, [add], (add, x))
    mul.update_kwarg("k", add)
    mul.update_kwarg("j", 1)
    mul.update_kwarg("k", 2)
    assert mul.kwargs == {"k": 2, "j": 1}
    with Unchanged(g):
        for index in (5, -6, 100):
            with pytest.raises(IndexError):
                mul.update_arg(index, 1)
        for index in (6, -1, 1 << 40):
            with pytest.raises(IndexError, match="between 0 and 5 for node 'mul'"):
                mul.insert_arg(index, 1)
        for index in (1 << 80, "0", 1.0, None):
            with pytest.raises((IndexError, TypeError)):
                mul.insert_arg(index, 1)
        with pytest.raises(TypeError):
            mul.update_arg("0", 1)
    assert_sound(g)


# ---- uses


def test_uses_count_once_for_each_user():
    g = Graph()
    x = g.placeholder("x")
    node = g.call_function(operator.add, (x, [x, x]), {"k": x})
    assert list(x.users) == [node] and len(x.users) == 1 and node.all_input_nodes == [x]
    node.update_arg(0, 1)
    assert list(x.users) == [node]
    node.args = ()
    node.kwargs = {}
    assert list(x.users) == []


def test_replace_input_with():
    g, x, add, mul, out = small_graph()
    mul.args = (x, [x, add], slice(x, None))
    mul.replace_input_with(x, add)
    assert mul.args == (add, [add, add], slice(add, None))
    assert list(x.users) == [add]
    mul.replace_input_with(old_input=x, new_input=x)
    assert_sound(g)


def test_replace_all_uses_with():
    g, x, add, mul, out = small_graph()
    y = g.placeholder("y")
    x.append(y)
    assert x.replace_all_uses_with(y) == [add, mul]
    assert list(x.users) == [] and list(y.users) == [add, mul]
    assert y.replace_all_uses_with(x, lambda user: user is mul) == [mul]
    assert (list(y.users), list(x.users)) == ([add], [mul])
    assert y.replace_all_uses_with(x, delete_user_cb=None) == [add]
    assert x.replace_all_uses_with(x) == [mul, add]
    assert y.replace_all_uses_with(x) == []
    assert_sound(g)


def test_replacing_a_node_by_one_that_uses_it():
    """The way passes put a node behind another."""
    g, x, add, mul, out = small_graph()
    with g.inserting_after(add):
        wrapped = g.call_function(operator.neg, (add,))
    add.replace_all_uses_with(wrapped, lambda user: user is not wrapped)
    assert mul.args == (wrapped, x) and wrapped.args == (add,)
    assert_sound(g)
    assert [node.name for node in add.replace_all_uses_with(wrapped)] == ["neg"]  # itself: lint will tell
    with pytest.raises(fastexport.LintError, match="'neg' uses 'neg' before it is defined"):
        g.lint()


def test_propagate_meta():
    g, x, add, mul, out = small_graph()
    add.meta = {"val": 1, "tag": [2]}
    with g.inserting_after(add):
        neg = g.call_function(operator.neg, (x,))
    assert add.replace_all_uses_with(neg, propagate_meta=True) == [mul]
    assert neg.meta == {"val": 1, "tag": [2]} and neg.meta["tag"] is add.meta["tag"]
    with Unchanged(g):
        with pytest.raises(ValueError, match="'neg' has meta of its own"):
            x.replace_all_uses_with(neg, propagate_meta=True)


# ---- order


def test_moving():
    g, x, add, mul, out = small_graph()
    x.append(mul)
    assert names(g) == ["x", "mul", "add", "output"]
    mul.prepend(add)
    assert names(g) == ["x", "add", "mul", "output"]
    x.prepend(out)
    assert names(g) == ["output", "x", "add", "mul"]
    mul.append(out)
    add.append(add)
    add.prepend(add)
    x.append(add)
    assert names(g) == ["x", "add", "mul", "output"]
    x.prev.append(out)  # the root: before the first
    assert names(g) == ["output", "x", "add", "mul"]
    out.prev.prepend(out)  # and after the last
    assert names(g) == ["x", "add", "mul", "output"]
    assert_sound(g)


def test_nodes_are_ordered_as_they_stand():
    g, x, add, mul, out = small_graph()
    assert x < add < mul < out and out > mul and x <= x and not x < x and add >= x
    assert sorted([out, mul, x, add]) == list(g.nodes) and max(g.nodes) is out
    x.prepend(out)
    assert out < x
    for other in (1, None, "x"):
        with pytest.raises(TypeError):
            x < other  # noqa: B015
    with pytest.raises(TypeError, match="of different graphs"):
        x < small_graph()[1]  # noqa: B015


def test_order_after_many_insertions_at_one_place():
    g, x, add, *_ = small_graph()
    with g.inserting_before(add):
        for _ in range(2000):
            g.call_function(operator.neg, (x,))
    with g.inserting_after(x):
        for _ in range(2000):
            g.call_function(operator.neg, (x,))
    assert sorted(g.nodes) == list(g.nodes)
    assert_sound(g)


# ---- names, targets, types


def test_renaming():
    g, x, add, mul, out = small_graph()
    add.name = "sum"
    assert str(add) == "sum" and "%sum" in str(g) and g.node("sum") is add
    mul.name = "add"  # free now
    assert g.call_function(operator.add, (x, x)).name == "add_1"
    with Unchanged(g):
        with pytest.raises(ValueError, match="'sum' is taken by another node"):
            mul.name = "sum"
    add.name = "sum"
    for odd in ("", "not an identifier", "\u00e9", "class", "x\n"):
        add.name = odd
        assert add.name == odd and f"%{odd} " in str(g)
    assert_sound(g)


def test_the_name_of_an_erased_node_can_be_given_but_is_not_made():
    g, x, add, mul, out = small_graph()
    g.erase_node(out)
    assert g.output(mul).name == "output_1"
    mul.name = "output"
    assert g.node("output") is mul and out.name == "output"
    assert_sound(g)


def test_op_and_target_change_one_by_one():
    g, x, add, *_ = small_graph()
    add.op = "call_method"
    assert [fault.code for fault in g.lint(all=True)] == ["TARGET_TYPE"]
    add.target = "add"
    assert (add.op, add.target) == ("call_method", "add") and g.lint() == []
    assert g.find_nodes(op="call_method", target="add") == [add]
    assert g.find_nodes(op="call_function", target=operator.add) == []


def test_types():
    g, x, *_ = small_graph()
    for value in (int, torch.Tensor, "text", list[int], None):
        x.type = value
        assert x.type is value
    x.type = 1  # anything goes
    assert x.type == 1
    del x.type
    assert x.type is None


# ---- text


def test_format_node():
    g, x, add, mul, out = small_graph()
    assert add.format_node() == (
        "%add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})"
    )
    assert out.format_node() == "return mul"
    assert str(add) == repr(add) == f"{add}" == "add"
    inputs, returned = ["first"], [""]
    assert x.format_node(inputs) is None and inputs == ["first", "x"]
    out.type = int
    assert out.format_node(None, returned) == "return mul" and returned == [" -> int"]


def test_format_node_is_that_of_torch():
    def lines(kind):
        g = kind()
        x = g.placeholder("x", int, 3)
        w = g.get_attr("a.b", torch.Tensor)
        y = g.call_module("a.c", (x, [w, "s"]), {"k": 1.5}, list[int])
        y.meta["val"] = torch.zeros(2, 3)
        out = g.output((y, "s"), int)
        return [
            [node.format_node() for node in g.nodes],
            y.format_node(include_tensor_metadata=True),
            x.format_node(["first"]),
            out.format_node(maybe_return_typename=[""]),
        ]

    assert lines(Graph) == lines(torch.fx.Graph)


# ---- effects


def test_is_impure():
    g = Graph()
    x = g.placeholder("x")
    out = g.output(x)
    aten = torch.ops.aten
    for target, always, random in [
        (torch.relu, False, False),
        (aten.add_.Tensor, True, False),
        (aten.rand.default, False, True),
        (torch._assert, True, False),
        (operator.setitem, True, False),
        (len, False, False),
        (print, True, False),
    ]:
        node = g.call_function(target, (x,))
        assert node.is_impure() == (always or random), target
        assert node.is_impure(impure_random=False) == always, target
        assert node.is_impure(False) == always
    assert x.is_impure() and out.is_impure()
    assert g.call_method("mul_", (x, 1)).is_impure() and not g.call_method("mul", (x, 1)).is_impure()
    assert g.call_function(torch.add, (x, x), {"out": x}).is_impure()
    assert g.call_function(torch.relu, (x,)).is_impure() is False


def test_effects_registered_later_count():
    def noted(x):
        return x

    g = Graph()
    node = g.call_function(noted, (g.placeholder("x"),))
    g.output(None)
    effects = torch.fx.node._side_effectful_functions
    effects.add(noted)
    try:
        assert node.is_impure()
        assert not g.eliminate_dead_code(policy="torch")
    finally:
        effects.discard(noted)


def test_stack_trace():
    g, x, *_ = small_graph()
    assert x.stack_trace is None and "stack_trace" not in x.meta
    x.stack_trace = "line"
    assert x.stack_trace == "line" == x.meta["stack_trace"]
    x.stack_trace = None
    assert x.stack_trace is None and x.meta == {"stack_trace": None}


def test_normalized_arguments():
    root = torch.nn.Module()
    root.linear = torch.nn.Linear(1, 1)
    g = Graph(root)
    x = g.placeholder("x")
    relu = g.call_function(torch.nn.functional.relu, (x,))
    pair = relu.normalized_arguments(root, normalize_to_only_use_kwargs=True)
    assert pair.args == () and pair.kwargs == {"input": x, "inplace": False}
    pair = g.call_module("linear", (x,)).normalized_arguments(root)
    assert pair.args == (x,)
    assert x.normalized_arguments(root) is None
