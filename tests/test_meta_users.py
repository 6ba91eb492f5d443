"""node.meta does all that a dict does; node.users reads like the dict that torch.fx keeps."""

import collections
import copy
import gc
import operator
import pickle
import weakref
from collections.abc import Mapping, MutableMapping

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fastexport import Graph
from helpers import Unchanged, assert_sound, small_graph

KEYS = ["val", "tag", "stack_trace", 1, 1.0, True, None, (1, "a"), "1"]
keys = st.sampled_from(KEYS)
values = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.lists(st.integers(), max_size=2))


class MetaIsADict(RuleBasedStateMachine):
    """The meta of two nodes of one graph beside two dicts."""

    @initialize()
    def start(self):
        g = Graph()
        self.nodes = [g.placeholder("x"), g.placeholder("y")]
        self.dicts = [{}, {}]

    def both(self, which, function):
        results = []
        for mapping in (self.nodes[which].meta, self.dicts[which]):
            try:
                results.append(function(mapping))
            except (KeyError, TypeError, ValueError) as error:
                results.append((type(error), error.args if isinstance(error, KeyError) else None))
        ours, theirs = results
        if isinstance(ours, tuple) and ours[:1] == (KeyError,) and "empty" in str(ours):
            theirs = ours = KeyError  # the text differs
        assert ours == theirs and type(ours) is type(theirs)

    @rule(which=st.integers(0, 1), key=keys, value=values)
    def set(self, which, key, value):
        self.both(which, lambda m: m.__setitem__(key, value))

    @rule(which=st.integers(0, 1), key=keys)
    def delete(self, which, key):
        self.both(which, lambda m: m.__delitem__(key))

    @rule(which=st.integers(0, 1), key=keys)
    def get(self, which, key):
        self.both(which, lambda m: m[key])
        self.both(which, lambda m: m.get(key))
        self.both(which, lambda m: m.get(key, 7))
        self.both(which, lambda m: key in m)

    @rule(which=st.integers(0, 1), key=keys)
    def pop(self, which, key):
        self.both(which, lambda m: m.pop(key))
        self.both(which, lambda m: m.pop(key, 7))

    @rule(which=st.integers(0, 1))
    def popitem(self, which):
        self.both(which, lambda m: m.popitem())

    @rule(which=st.integers(0, 1), key=keys, value=values)
    def setdefault(self, which, key, value):
        self.both(which, lambda m: m.setdefault(key, value))
        self.both(which, lambda m: m.setdefault(key))

    @rule(which=st.integers(0, 1), items=st.dictionaries(keys, values, max_size=12), more=st.booleans())
    def update(self, which, items, more):
        self.both(which, lambda m: m.update(list(items.items()) if more else items, **({"kw": 1} if more else {})))

    @rule(which=st.integers(0, 1), items=st.dictionaries(keys, values, max_size=4))
    def unite(self, which, items):
        self.both(which, lambda m: m | items)
        self.both(which, lambda m: items | m)
        self.nodes[which].meta |= items
        self.dicts[which] |= items

    @rule(which=st.integers(0, 1))
    def clear(self, which):
        self.both(which, lambda m: m.clear())

    @rule(which=st.integers(0, 1), items=st.dictionaries(keys, values, max_size=12))
    def assign(self, which, items):
        self.nodes[which].meta = items
        self.dicts[which] = dict(items)

    @rule()
    def assign_the_other(self):
        self.nodes[0].meta = self.nodes[1].meta
        self.dicts[0] = dict(self.dicts[1])

    @invariant()
    def same(self):
        for node, model in zip(getattr(self, "nodes", ()), getattr(self, "dicts", ()), strict=True):
            meta = node.meta
            assert meta == model and model == meta and not meta != model
            assert list(meta.items()) == list(model.items())
            assert list(reversed(meta)) == list(reversed(model))
            assert (len(meta), bool(meta), list(meta), list(meta.values())) == (
                (len(model), bool(model), list(model), list(model.values()))
            )


MetaIsADict.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestMetaIsADict = MetaIsADict.TestCase


def node_and_others():
    g, x, add, mul, out = small_graph()
    return g, x, add


# ---- meta


def test_kind_of_mapping():
    meta = node_and_others()[1].meta
    assert isinstance(meta, MutableMapping) and isinstance(meta, Mapping) and not isinstance(meta, dict)
    assert repr(meta) == "{}" and meta == {} and dict(meta) == {} and {**meta} == {}
    meta["a"] = 1
    assert repr(meta) == str(meta) == "{'a': 1}" and {**meta, "b": 2} == {"a": 1, "b": 2}
    assert type(meta.copy()) is dict is type(meta | {}) is type({} | meta) is type(copy.copy(meta))
    match meta:
        case {"a": value}:
            assert value == 1
        case _:
            pytest.fail("a meta matches as a mapping")


def test_values_keep_their_identity():
    g, x, add = node_and_others()
    value = [1]
    x.meta["a"] = value
    add.meta["b"] = value
    assert x.meta["a"] is value is add.meta["b"] is x.meta.get("a") is dict(x.meta)["a"]
    x.meta["a"].append(2)
    assert add.meta == {"b": [1, 2]}
    assert x.meta.pop("a") is value


def test_all_metas_of_a_node_are_one():
    g, x, add = node_and_others()
    first = x.meta
    x.meta["a"] = 1
    assert first["a"] == 1 and x.meta == first
    x.meta = {"b": 2}
    assert first == {"b": 2}
    x.meta = first  # itself
    assert first == {"b": 2}


def test_assignment_copies_the_entries():
    g, x, add = node_and_others()
    items = {"a": [1]}
    x.meta = items
    items["b"] = 2
    assert x.meta == {"a": [1]} and x.meta["a"] is items["a"]
    add.meta = x.meta
    add.meta["c"] = 3
    assert x.meta == {"a": [1]} and add.meta == {"a": [1], "c": 3}
    x.meta = collections.OrderedDict(z=1)
    assert x.meta == {"z": 1}


def test_keys_keep_their_order_and_first_object():
    g, x, add = node_and_others()
    x.meta.update(b=1, a=2)
    x.meta["b"] = 3
    assert list(x.meta.items()) == [("b", 3), ("a", 2)]
    del x.meta["b"]
    x.meta["b"] = 4
    assert list(x.meta) == ["a", "b"] and x.meta.popitem() == ("b", 4)


def test_views_are_of_a_moment():
    g, x, add = node_and_others()
    x.meta = {"a": 1, "b": 2}
    assert x.meta.keys() & {"a", "c"} == {"a"}
    assert ("a", 1) in x.meta.items() and 2 in x.meta.values()
    assert list(x.meta.keys()) == ["a", "b"]
    for key, value in x.meta.items():
        x.meta[key + key] = value
    assert list(x.meta) == ["a", "b", "aa", "bb"]


def test_iterating_while_the_size_changes():
    g, x, add = node_and_others()
    x.meta = {"a": 1, "b": 2}
    with pytest.raises(RuntimeError, match="changed"):
        for key in x.meta:
            x.meta[key + "!"] = 1
    for walk in (iter, reversed):
        x.meta = {"a": 1, "b": 2}
        iterator = walk(x.meta)
        next(iterator)
        x.meta["c"] = 3
        with pytest.raises(RuntimeError):
            next(iterator)
    for key in x.meta:
        x.meta[key] = "same size"
    assert set(x.meta.values()) == {"same size"}


def test_all_or_nothing():
    g, x, add = node_and_others()
    x.meta = {"a": 1}
    with Unchanged(g):
        for change in (
            lambda: x.meta.update([("b", 2), ("c",)]),
            lambda: x.meta.update([("b", 2), ([], 3)]),
            lambda: x.meta.update({"b": 2}, 3),
            lambda: x.meta.__ior__([("b", 2), 3]),
            lambda: setattr(x, "meta", [("b", 2)]),
            lambda: x.meta.__setitem__([], 1),
            lambda: x.meta.setdefault([], 1),
            lambda: x.meta.setdefault(),
            lambda: x.meta.get(),
            lambda: x.meta.get("a", 1, 2),
            lambda: x.meta.pop(),
            lambda: x.meta.__getitem__([]),
            lambda: [] in x.meta,
        ):
            with pytest.raises((TypeError, ValueError)):
                change()
        with pytest.raises(KeyError, match="missing"):
            x.meta["missing"]
        with pytest.raises(KeyError) as caught:
            x.meta[("a", "tuple")]
        assert caught.value.args == (("a", "tuple"),)


def test_copies_and_pickles_are_dicts():
    g, x, add = node_and_others()
    x.meta = {"a": [1], 2: (3,)}
    for made in (copy.copy(x.meta), copy.deepcopy(x.meta), pickle.loads(pickle.dumps(x.meta))):
        assert type(made) is dict and made == {"a": [1], 2: (3,)}
    assert copy.copy(x.meta)["a"] is x.meta["a"] is not copy.deepcopy(x.meta)["a"]


def test_a_meta_that_holds_itself():
    g, x, add = node_and_others()
    x.meta["me"] = x.meta
    x.meta["node"] = x
    assert repr(x.meta).startswith("{'me': {")
    assert x.meta["node"] is x
    made = copy.copy(x.meta)
    assert type(made) is dict and made["node"] is x


def test_meta_of_an_erased_node():
    g, x, add = node_and_others()
    node = g.call_function(operator.neg, (x,))
    node.meta = {"a": 1}
    g.erase_node(node)
    node.meta["b"] = 2
    assert node.meta == {"a": 1, "b": 2} and node.meta.pop("a") == 1
    node.meta = {}
    assert not node.meta


def test_values_are_let_go():
    class Value:
        pass

    g, x, add = node_and_others()
    for drop in (
        lambda: x.meta.clear(),
        lambda: x.meta.pop("a"),
        lambda: x.meta.popitem(),
        lambda: x.meta.__delitem__("a"),
        lambda: x.meta.__setitem__("a", 1),
        lambda: x.meta.update(a=1),
        lambda: setattr(x, "meta", {}),
    ):
        value = Value()
        seen = weakref.ref(value)
        x.meta = {"a": value}
        del value
        assert seen() is not None
        drop()
        assert seen() is None


def test_many_keys():
    g, x, add = node_and_others()
    for i in range(500):
        x.meta[i] = str(i)
    assert len(x.meta) == 500 and x.meta[499] == "499"
    for i in range(0, 500, 2):
        del x.meta[i]
    assert list(x.meta) == list(range(1, 500, 2))


# ---- users


def test_users_read_like_a_dict():
    g, x, add = node_and_others()
    mul, out = g.node("mul"), g.node("output")
    users = x.users
    assert users == {add: None, mul: None} and {add: None, mul: None} == users
    assert list(users) == list(users.keys()) == [add, mul] and list(users.values()) == [None, None]
    assert list(users.items()) == [(add, None), (mul, None)] and len(users) == 2 and users
    assert add in users and out not in users and "add" not in users and small_graph()[2] not in users
    assert users[add] is None and users.get(add, 1) is None and users.get(out, 1) == 1
    assert list(reversed(users)) == [mul, add] and users.keys() & {add, out} == {add}
    assert repr(users) == "{add: None, mul: None}" and type(users.copy()) is dict
    assert isinstance(users, Mapping) and not isinstance(users, MutableMapping)
    assert not out.users and out.users == {}
    assert users == x.users and users != add.users
    with pytest.raises(KeyError):
        users[out]
    with pytest.raises(TypeError, match="unhashable"):
        [] in users  # noqa: B015


def test_users_are_live():
    g, x, add = node_and_others()
    mul, users = g.node("mul"), x.users
    mul.args = (add, 1)
    assert list(users) == [add]
    mul.args = (add, x)
    assert list(users) == [add, mul]
    add.args = (x, 2)  # goes to the end
    assert list(users) == [mul, add]


def test_users_can_not_be_changed_by_themselves():
    g, x, add = node_and_others()
    with Unchanged(g):
        with pytest.raises(TypeError, match="follows from arguments"):
            x.users[add] = None
        with pytest.raises(TypeError, match="follows from arguments"):
            del x.users[add]
        for name in ("pop", "clear", "update", "setdefault", "popitem"):
            assert not hasattr(x.users, name)


def test_changing_users_while_iterating():
    g, x, add = node_and_others()
    with g.inserting_after(x):
        y = g.placeholder("y")
    for user in list(x.users):
        user.replace_input_with(x, y)
    assert list(x.users) == [] and list(y.users) == [add, g.node("mul")]
    with pytest.raises(RuntimeError, match="changed during iteration"):
        for user in y.users:
            user.replace_input_with(y, x)
    for user in x.users:  # the same number: goes on
        user.replace_input_with(x, x)
    assert list(x.users) == [add] and list(y.users) == [g.node("mul")]
    assert_sound(g)


def test_copies_of_users_are_dicts():
    g, x, add = node_and_others()
    made = copy.copy(x.users)
    assert type(made) is dict and list(made) == list(x.users)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x.users)


def test_users_of_a_shared_weight():
    """Many users: finding one takes no search through all of them."""
    g = Graph()
    weight = g.placeholder("weight")
    users = [g.call_function(operator.neg, (weight,)) for _ in range(20_000)]
    assert list(weight.users) == users and all(user in weight.users for user in users)
    assert g.output(tuple(users)) in users[0].users and g.output_node() not in weight.users


def test_views_keep_their_node():
    meta, users = (lambda x: (x.meta, x.users))(small_graph()[1])
    gc.collect()
    meta["a"] = 1
    assert meta == {"a": 1} and [user.name for user in users] == ["add", "mul"]
