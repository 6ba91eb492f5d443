"""TreeSpec: texts and facts against torch's own tree specs, over the samples and over values of every container."""

import collections
import copy
import dataclasses
import enum
import json
import pickle
import sys
import types
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastexport import _treespec
from fastexport._pytree import (
    register_dataclass,
    register_namedtuple,
    register_pytree_node,
    tree_flatten,
    tree_structure,
)
from fastexport._tree_nodes import _deregister_pytree_node
from fastexport._treespec import EnumKey, TreeSpec, UnknownFactory, UnknownType

SAMPLES = Path(__file__).parent / "data" / "pt2" / "samples"
LEAF = '{"type": null, "context": null, "children_spec": []}'


class Point(collections.namedtuple("Point", "x y")):
    pass


@dataclasses.dataclass
class Pair:
    left: int
    right: int | None = None


class Colour(enum.Enum):
    RED = 1


@pytest.fixture(scope="module")
def pytree():
    pytest.importorskip("torch")
    import torch.utils._pytree as pytree

    if Point not in pytree.SUPPORTED_NODES:
        pytree._register_namedtuple(Point, serialized_type_name=f"{__name__}.Point")
        pytree.register_dataclass(Pair, serialized_type_name=f"{__name__}.Pair")
    return pytree


def module_signatures():
    """in_spec and out_spec of each sample, with the texts that torch printed for them."""
    for path in sorted(SAMPLES.glob("current/*.pt2")):
        expected = path.with_suffix(".json")
        if not expected.exists():
            continue
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("models/model.json"))
            signature = json.loads(archive.read(name))["graph_module"]["module_call_graph"][0]["signature"]
        facts = json.loads(expected.read_text())
        for key in ("in_spec", "out_spec"):
            if key in facts:
                yield signature[key], facts[key]


@pytest.fixture
def registered():
    """Registers types for the length of a test."""
    classes = []

    def register(function, cls, *args, **kwargs):
        function(cls, *args, **kwargs)
        classes.append(cls)

    yield register
    for cls in classes:
        _deregister_pytree_node(cls)


def spec_text(name, context, children):
    """The text of a spec of one container with leaves."""
    return json.dumps([1, {"type": name, "context": context, "children_spec": [json.loads(LEAF)] * children}])


def test_samples():
    pairs = list(module_signatures())
    assert len(pairs) > 80
    for text, printed in pairs:
        spec = TreeSpec.from_json(text)
        assert str(spec) == printed
        assert spec.to_json() == text


def test_samples_as_in_torch(pytree):
    known = 0
    for text, _ in module_signatures():
        ours = TreeSpec.from_json(text)
        try:
            theirs = pytree.treespec_loads(text)
        except NotImplementedError:
            with pytest.raises(NotImplementedError, match="is not registered"):
                ours.to_torch()
            continue
        known += 1
        assert ours.to_torch() == theirs and str(ours.to_torch()) == str(theirs)
        assert TreeSpec.from_torch(theirs) == ours and hash(TreeSpec.from_torch(theirs)) == hash(ours)
        leaves = list(range(theirs.num_leaves))
        assert ours.unflatten(leaves) == theirs.unflatten(leaves)
    assert known > 80


VALUES = [
    1,
    (),
    [],
    {},
    [1, {"a": 2, "b": [3, (4,)]}],
    {1: 2, "x": (3, {})},
    collections.OrderedDict(b=1, a=[2]),
    collections.deque([1, 2]),
    collections.deque([1, (2,)], maxlen=3),
    collections.defaultdict(list, {"x": 1, "y": {}}),
    collections.defaultdict(collections.OrderedDict, {"x": 1}),
    Point(1, [2]),
    [Pair(1), Pair(1, 2)],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_container(pytree, value):
    theirs = pytree.tree_structure(value)
    text = pytree.treespec_dumps(theirs)
    ours = TreeSpec.from_json(text)
    assert ours.to_json() == text
    assert str(ours) == str(theirs)
    assert (ours.num_leaves, ours.num_nodes, ours.num_children) == (
        theirs.num_leaves,
        theirs.num_nodes,
        theirs.num_children,
    )
    assert ours.is_leaf() == theirs.is_leaf()
    assert ours == TreeSpec.from_json(text) and hash(ours) == hash(TreeSpec.from_json(text))
    assert pickle.loads(pickle.dumps(ours)) == ours and copy.deepcopy(ours) == ours
    assert ours.type is theirs.type and ours.context == theirs.context
    assert ours.to_torch() == theirs and TreeSpec.from_torch(theirs) == ours == tree_structure(value)
    assert tree_structure(value).to_json() == text
    assert ours.unflatten(list(range(ours.num_leaves))) == theirs.unflatten(list(range(theirs.num_leaves)))


def test_enum_keys_are_named_only(pytree):
    text = pytree.treespec_dumps(pytree.tree_structure({Colour.RED: 1}))
    spec = TreeSpec.from_json(text)
    assert spec.context == [EnumKey(f"{__name__}:Colour", "RED")]
    assert spec.to_json() == text
    assert str(spec) == "TreeSpec(dict, [<Colour.RED>], [*])"


def test_nothing_is_imported(tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("open('RAN_CODE', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    key = json.dumps([{"__enum__": True, "fqn": "evil_module:X", "name": "Y"}])
    factory = {"default_factory_module": "evil_module", "default_factory_name": "x", "dict_context": ["k"]}
    named = ("collections.namedtuple", "evil_module.X")
    imports = iter((["evil_module:X"], ["evil_module:x"], ["evil_module:X"], []))
    rows = (("builtins.dict", key), ("collections.defaultdict", factory), ("evil_module.X", key), named)
    for name, context in rows:
        spec = TreeSpec.from_json(spec_text(name, context, 1))
        assert str(spec).startswith("TreeSpec(")
        assert spec.to_json() == spec_text(name, context, 1)
        assert spec.imports() == TreeSpec(tuple, None, [spec, spec]).imports() == next(imports)
        for use in (spec.resolve, spec.to_torch, lambda spec=spec: spec.unflatten([1])):
            with pytest.raises(NotImplementedError, match="evil_module"):
                use()
    assert [p.name for p in tmp_path.iterdir()] == ["evil_module.py"]


def test_a_lazy_module_is_not_asked_for_its_enum(monkeypatch):
    module = types.ModuleType("lazy_colours")
    module.__getattr__ = lambda name: pytest.fail("the module was asked")
    monkeypatch.setitem(sys.modules, "lazy_colours", module)
    key = json.dumps([{"__enum__": True, "fqn": "lazy_colours:Colour", "name": "RED"}])
    spec = TreeSpec.from_json(spec_text("builtins.dict", key, 1))
    with pytest.raises(NotImplementedError, match="lazy_colours:Colour, which is not loaded"):
        spec.unflatten([1])
    vars(module)["Colour"] = Colour
    assert spec.unflatten([1]) == {Colour.RED: 1}
    vars(module)["Colour"] = str  # no enum
    with pytest.raises(NotImplementedError):
        spec.unflatten([1])


def test_an_enum_key_of_a_loaded_module(pytree):
    text = pytree.treespec_dumps(pytree.tree_structure({Colour.RED: 1, "x": 2}))
    spec = TreeSpec.from_json(text)
    assert spec.unflatten([1, 2]) == {Colour.RED: 1, "x": 2}
    assert spec.to_torch() == pytree.treespec_loads(text) == tree_structure({Colour.RED: 1, "x": 2}).to_torch()


def test_a_type_registered_later(registered):
    @dataclasses.dataclass
    class Late:
        left: int
        right: int | None = None

    text = spec_text("shop.Late", '[["left"], ["right"]]', 1)
    spec = TreeSpec.from_json(text)
    assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == spec
    assert spec.type == UnknownType("shop.Late") and spec.type.name == "shop.Late"
    assert spec.context == '[["left"], ["right"]]'
    assert str(spec) == "TreeSpec(Late, [['left'], ['right']], [*])"
    assert spec.to_json() == text
    with pytest.raises(NotImplementedError, match=r"shop.Late is not registered.*serialized_type_name='shop.Late'"):
        spec.unflatten([1])
    registered(register_dataclass, Late, serialized_type_name="shop.Late")
    assert spec.unflatten([1]) == Late(1)
    assert spec.flatten_up_to(Late([1, 2])) == [[1, 2]]
    assert spec.resolve() == tree_structure(Late(1)) == TreeSpec.from_json(text)
    assert spec.resolve().to_json() == text


@pytest.mark.parametrize("context", ["not JSON", "[1,2]", '{"b": 1,  "a": 2}', None, 7, {"x": [1]}, ["[" * 5000]])
def test_the_context_of_an_unknown_type_is_kept(context):
    text = spec_text("shop.Thing", context, 2)
    spec = TreeSpec.from_json(text)
    assert spec.to_json() == text and spec.context == context
    assert str(spec).startswith("TreeSpec(Thing, ")


def test_a_context_of_ones_own(pytree, registered):
    class Box:
        def __init__(self, items, lid):
            self.items, self.lid = items, lid

        def __eq__(self, other):
            return (self.items, self.lid) == (other.items, other.lid)

    def from_dumpable(text):
        if not text.startswith("lid="):
            raise KeyError(text)
        return text[4:]

    arguments = (lambda box: (box.items, box.lid), lambda items, lid: Box(items, lid))
    options = {
        "serialized_type_name": "shop.Box",
        "to_dumpable_context": lambda lid: "lid=" + lid,
        "from_dumpable_context": from_dumpable,
    }
    registered(register_pytree_node, Box, *arguments, **options)
    spec = tree_structure(Box([1, [2]], "red"))
    theirs = spec.to_torch()  # registers it there
    try:
        assert theirs == pytree.tree_structure(Box([1, [2]], "red"))
        assert spec.to_json() == pytree.treespec_dumps(theirs)
        assert TreeSpec.from_json(spec.to_json()) == spec
        assert spec.unflatten([3, 4]) == Box([3, [4]], "red")
    finally:
        pytree._deregister_pytree_node(Box)
    with pytest.raises(ValueError, match="the context of shop.Box can't be read"):
        TreeSpec.from_json(spec_text("shop.Box", "open", 0))


def test_named_tuples_of_a_file(registered):
    Wide = collections.namedtuple("Wide", "x y")
    text = spec_text("collections.namedtuple", "shop.Wide", 2)
    spec = TreeSpec.from_json(text, {"shop.Wide": ["x", "y"]})
    assert spec.context == UnknownType("shop.Wide") and spec.context.field_names == ("x", "y")
    in_file = {"shop.Wide": {"field_names": ["x", "y"]}}
    assert TreeSpec.from_json(text, in_file).context.field_names == ("x", "y")
    assert spec.type is collections.namedtuple
    assert str(spec).startswith("TreeSpec(namedtuple, <class 'shop.Wide'>, [")
    with pytest.raises(NotImplementedError, match="shop.Wide is not registered.*its fields are x, y"):
        spec.unflatten([1, 2])
    with pytest.raises(ValueError, match="as many fields"):
        TreeSpec.from_json(text, {"shop.Wide": ["x"]})
    swapped = TreeSpec.from_json(text, {"shop.Wide": ["y", "x"]})
    registered(register_namedtuple, Wide, serialized_type_name="shop.Wide")
    assert spec.unflatten([1, 2]) == Wide(1, 2)
    assert TreeSpec.from_json(text) == tree_structure(Wide(1, 2)) == spec.resolve()
    with pytest.raises(NotImplementedError, match="the fields y, x in the file, but the class .* has x, y"):
        swapped.unflatten([1, 2])
    assert swapped.to_json() == text


def test_factories_of_a_file():
    def text(module, name):
        context = {"default_factory_module": module, "default_factory_name": name, "dict_context": ["k"]}
        return spec_text("collections.defaultdict", context, 1)

    plain = TreeSpec.from_json(text("collections", "OrderedDict"))
    assert plain.context == [collections.OrderedDict, ["k"]]
    assert plain.unflatten([1]).default_factory is collections.OrderedDict
    odd = TreeSpec.from_json(text("builtins", "exec"))
    assert odd.context == [UnknownFactory("builtins", "exec"), ["k"]]
    assert odd.to_json() == text("builtins", "exec")
    with pytest.raises(NotImplementedError, match="builtins.exec, the factory of a defaultdict, is no plain type"):
        odd.unflatten([1])


def test_what_can_not_be_written(pytree):
    Plain = collections.namedtuple("Plain", "x")
    nameless = tree_structure(Plain(1))
    for dump in (nameless.to_json, lambda: pytree.treespec_dumps(nameless.to_torch())):
        with pytest.raises(NotImplementedError):
            dump()
    bytes_key = tree_structure({b"k": 1})
    for dump in (bytes_key.to_json, lambda: pytree.treespec_dumps(bytes_key.to_torch())):
        with pytest.raises(TypeError, match="Unable to serialize context"):
            dump()
    for factory in (None, lambda: 0):
        spec = tree_structure(collections.defaultdict(factory, x=1))
        assert spec.to_torch() == pytree.tree_structure(collections.defaultdict(factory, x=1))
    with pytest.raises(TypeError, match="factory"):
        tree_structure(collections.defaultdict(None, x=1)).to_json()


def nested(levels, kind="builtins.list"):
    text = LEAF
    for _ in range(levels):
        text = f'{{"type": "{kind}", "context": "null", "children_spec": [{text}]}}'
    return f"[1, {text}]"


def test_depth(pytree):
    deep = TreeSpec.from_json(nested(_treespec.MAX_DEPTH))
    assert deep == TreeSpec.from_json(deep.to_json()) and hash(deep) == hash(copy.deepcopy(deep))
    assert pickle.loads(pickle.dumps(deep)) == deep and copy.deepcopy(deep) == deep
    assert str(deep) == str(deep.to_torch()) and TreeSpec.from_torch(deep.to_torch()) == deep
    assert tree_flatten(deep.unflatten([5])) == ([5], deep)
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        TreeSpec.from_json(nested(_treespec.MAX_DEPTH + 1))
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        TreeSpec(list, None, [deep])
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        TreeSpec.from_torch(pytree.TreeSpec(list, None, [deep.to_torch()]))


def test_from_torch_refuses_what_is_no_spec(pytree):
    with pytest.raises(TypeError, match="PyTreeSpec"):
        TreeSpec.from_torch([1])
    with pytest.raises(TypeError, match="tree specs"):
        TreeSpec(list, None, [1])


def test_equality():
    assert TreeSpec() == TreeSpec() and TreeSpec().is_leaf() and TreeSpec().num_leaves == 1
    pair = TreeSpec(tuple, None, (TreeSpec(), TreeSpec()))
    assert pair != TreeSpec(list, None, (TreeSpec(), TreeSpec()))
    assert pair != TreeSpec(tuple, None, (TreeSpec(),))
    assert pair != TreeSpec(tuple, 1, (TreeSpec(), TreeSpec())) and pair != "x"
    assert pair.child(0).is_leaf() and pair.num_leaves == 2
    with pytest.raises(ValueError, match="leaf"):
        TreeSpec(None, None, (TreeSpec(),))
    for name in ("type", "context", "num_leaves", "num_nodes", "num_children"):
        with pytest.raises(AttributeError):
            setattr(pair, name, 1)
    pair.children().clear()
    assert pair.num_children == 2
    assert hash(TreeSpec(Point, {"un": "hashable"}, [])) == hash(TreeSpec(Point, {}, []))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "zzz",
        "1",
        "[]",
        LEAF,
        f"[2, {LEAF}]",
        f"[true, {LEAF}]",
        f"[1, {LEAF}, 3]",
        "[1, 7]",
        '[1, {"type": null, "context": null}]',
        f'[1, {{"type": null, "context": null, "children_spec": [{LEAF}]}}]',
        '[1, {"type": 3, "context": null, "children_spec": []}]',
        '[1, {"type": null, "context": "1", "children_spec": []}]',
        f'[1, {{"type": "builtins.dict", "context": "[1, 2]", "children_spec": [{LEAF}]}}]',
        f'[1, {{"type": "builtins.dict", "context": "[[1]]", "children_spec": [{LEAF}]}}]',
        f'[1, {{"type": "builtins.dict", "context": "[1, 1]", "children_spec": [{LEAF}, {LEAF}]}}]',
        '[1, {"type": "builtins.tuple", "context": "[1]", "children_spec": []}]',
        f'[1, {{"type": "collections.deque", "context": "0", "children_spec": [{LEAF}]}}]',
        '[1, {"type": "collections.namedtuple", "context": null, "children_spec": []}]',
        '[1, {"type": "collections.defaultdict", "context": {}, "children_spec": []}]',
        '[1, {"type": "shop.X", "context": "null", "children_spec": [7]}]',
        f'[1, {{"type": "builtins.dict", "context": "[" , "children_spec": [{LEAF}]}}]',
        f'[1, {{"type": "builtins.dict", "context": "{"[" * 100000}", "children_spec": [{LEAF}]}}]',
        '[1, {"type": "builtins.dict", "context": "[{\\"__enum__\\": true}]", "children_spec": [' + LEAF + "]}]",
        '[1, {"type": "builtins.tuple", "context": "null", "children_spec": [' * 100000,
        "[" * 100000 + "]" * 100000,
    ],
    ids=lambda text: text[:60],
)
def test_refused(text):
    with pytest.raises(ValueError, match="not a tree spec"):
        TreeSpec.from_json(text)


TREES = st.recursive(
    st.integers(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.lists(inner, max_size=3).map(lambda items: collections.deque(items, maxlen=5)),
        st.dictionaries(st.integers(), inner, max_size=3).map(lambda d: collections.defaultdict(dict, d)),
    ),
    max_leaves=12,
)


@given(TREES)
def test_any_tree(pytree, value):
    theirs = pytree.tree_structure(value)
    ours = TreeSpec.from_json(pytree.treespec_dumps(theirs))
    assert str(ours) == str(theirs)
    assert ours.num_leaves == theirs.num_leaves
    assert pytree.treespec_loads(ours.to_json()) == theirs
