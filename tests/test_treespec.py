"""TreeSpec: texts and facts against torch's own tree specs, over the samples and over values of every container."""

import collections
import copy
import dataclasses
import enum
import json
import pickle
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastexport._treespec import EnumKey, TreeSpec

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


def test_samples():
    pairs = list(module_signatures())
    assert len(pairs) > 80
    for text, printed in pairs:
        spec = TreeSpec.from_json(text)
        assert str(spec) == printed
        assert spec.to_json() == text


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
    for name, context in (("builtins.dict", key), ("collections.defaultdict", factory), ("evil_module.X", key)):
        spec = {"type": name, "context": context, "children_spec": [json.loads(LEAF)]}
        assert str(TreeSpec.from_json(json.dumps([1, spec]))).startswith("TreeSpec(")
    assert [p.name for p in tmp_path.iterdir()] == ["evil_module.py"]


def test_equality():
    assert TreeSpec() == TreeSpec() and TreeSpec().is_leaf() and TreeSpec().num_leaves == 1
    pair = TreeSpec("builtins.tuple", None, (TreeSpec(), TreeSpec()))
    assert pair != TreeSpec("builtins.list", None, (TreeSpec(), TreeSpec()))
    assert pair != TreeSpec("builtins.tuple", None, (TreeSpec(),))
    assert pair.child(0).is_leaf() and pair.num_leaves == 2
    with pytest.raises(ValueError, match="leaf"):
        TreeSpec(None, None, (TreeSpec(),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        pair.type = "x"


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
        '[1, {"type": "builtins.tuple", "context": "[1]", "children_spec": []}]',
        f'[1, {{"type": "collections.deque", "context": "0", "children_spec": [{LEAF}]}}]',
        '[1, {"type": "collections.namedtuple", "context": null, "children_spec": []}]',
        '[1, {"type": "collections.defaultdict", "context": {}, "children_spec": []}]',
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
