"""Meta of nodes to and from the JSON of .pt2 files: everything in the samples survives, and odd input is told."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastexport._dtypes import Device, DType, Layout
from fastexport._meta_json import (
    MetadataText,
    NodeSource,
    decode_metadata,
    decode_value,
    metadata_json,
    value_json,
)
from fastexport._signature import CustomObjArgument
from fastexport._symbols import SymBool, SymFloat, SymInt
from fastexport._tensor_meta import TensorMeta

SAMPLES = Path(__file__).parent / "data" / "pt2" / "samples"
TABLES = {
    "tensor_values": "as_tensor",
    "sym_int_values": "as_sym_int",
    "sym_float_values": "as_sym_float",
    "sym_bool_values": "as_sym_bool",
    "custom_obj_values": "as_custom_obj",
}
S0 = "Symbol('s0', positive=True, integer=True)"


def documents() -> Iterator[dict[str, Any]]:
    for path in sorted(SAMPLES.glob("*/*.pt2")):
        if path.parent.name == "negative":
            continue
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"[^/]+/models/.*\.json|serialized_exported_program\.json", name):
                    yield json.loads(archive.read(name))


def graphs(graph: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield graph
    for node in graph["nodes"]:
        for item in node["inputs"]:
            if "as_graph" in item["arg"]:
                yield from graphs(item["arg"]["as_graph"]["graph"])


@pytest.fixture(scope="module")
def all_graphs() -> list[dict[str, Any]]:
    found = [graph for document in documents() for graph in graphs(document["graph_module"]["graph"])]
    assert len(found) > 50
    return found


def test_all_metadata_survives(all_graphs: list[dict[str, Any]]) -> None:
    keys: set[str] = set()
    for graph in all_graphs:
        for node in graph["nodes"]:
            meta = decode_metadata(node["metadata"])
            keys |= meta.keys()
            assert not any(isinstance(value, MetadataText) for value in meta.values())
            assert json.loads(metadata_json(meta)) == node["metadata"]
            assert list(json.loads(metadata_json(meta))) == list(node["metadata"])  # torch's order
    assert keys >= {"stack_trace", "nn_module_stack", "torch_fn", "from_node", "custom"}


def test_all_values_survive(all_graphs: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for graph in all_graphs:
        for table, tag in TABLES.items():
            for value in graph.get(table, {}).values():
                seen.add(tag)
                decoded = decode_value(tag, value)
                assert json.loads(value_json(decoded)) == {tag: value}
                assert copy.deepcopy(decoded) == decoded
    assert seen == set(TABLES.values())


def test_kinds_by_number() -> None:
    assert decode_value(0, True) is None
    assert decode_value(2, {"as_int": 3}) == 3
    assert decode_value(5, {"name": "o", "class_fqn": "C"}) == CustomObjArgument("o", "C")
    for bad in (6, -9, "as_int", "as_list"):
        with pytest.raises(ValueError, match="kind"):
            decode_value(bad, {"as_int": 3})


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("as_tensor", {}),
        ("as_tensor", None),
        ("as_tensor", {"dtype": 14, "sizes": [], "strides": [], "device": {"type": "cpu"}, "layout": 7}),
        ("as_sym_int", {"as_int": "1"} | {"as_bool": True}),
        ("as_sym_int", {"as_str": 1}),
        ("as_sym_bool", []),
        ("as_custom_obj", {"name": "x"}),
    ],
)
def test_bad_values(tag: str, value: Any) -> None:
    with pytest.raises(ValueError):
        decode_value(tag, value)


def test_reals() -> None:
    for real, text in ((math.inf, "Infinity"), (-math.inf, "-Infinity"), (2.0, 2.0)):
        assert json.loads(value_json(real)) == {"as_sym_float": {"as_float": text}}
        assert decode_value("as_sym_float", {"as_float": text}) == real
    assert json.loads(value_json(math.nan)) == {"as_sym_float": {"as_float": "NaN"}}
    hinted = SymFloat(f"ToFloat({S0})", math.inf)
    assert decode_value("as_sym_float", json.loads(value_json(hinted))["as_sym_float"]) == hinted


def test_values_of_several_results() -> None:
    meta = TensorMeta("float32", (2,))
    one = json.loads(value_json(meta))
    assert json.loads(value_json((meta, None, [meta]))) == {"as_list": [one, {"as_none": True}, {"as_list": [one]}]}
    assert json.loads(value_json({"a": meta})) == {"as_list": [one]}
    with pytest.raises(ValueError, match="meta\\['val'\\] is a set"):
        value_json({1, 2})
    with pytest.raises(ValueError, match="object"):
        value_json((meta, object()))


# ---- metadata ----


def test_module_stack() -> None:
    text = "L__self__,,net.Net;_modules['a'],a[0,1](x,y),torch.nn.Linear"
    meta = decode_metadata({"nn_module_stack": text})
    assert meta["nn_module_stack"] == {
        "L__self__": ("", "net.Net"),
        "_modules['a']": ("a[0,1](x,y)", "torch.nn.Linear"),
    }
    assert json.loads(metadata_json(meta)) == {"nn_module_stack": text}
    assert json.loads(metadata_json({"nn_module_stack": {"k": ("p", dict)}})) == {
        "nn_module_stack": "k,p,builtins.dict"
    }


def test_function_stack() -> None:
    meta = decode_metadata({"source_fn_stack": "linear,torch.nn.Linear;relu_1,torch.relu"})
    assert meta == {"source_fn_stack": [("linear", "torch.nn.Linear"), ("relu_1", "torch.relu")]}
    assert json.loads(metadata_json(meta)) == {"source_fn_stack": "linear,torch.nn.Linear;relu_1,torch.relu"}


def test_sources() -> None:
    inner = {"name": "y", "target": "y", "graph_id": 1, "pass_name": "", "action": "create", "from_node": []}
    item = {"name": "x", "target": "t", "graph_id": 2**60, "pass_name": "p", "action": "replace", "from_node": [inner]}
    (source,) = decode_metadata({"from_node": json.dumps([item])})["from_node"]
    assert source.name == "x" and source.graph_id == 2**60 and source.from_node == [NodeSource.from_dict(inner)]
    assert source == NodeSource.from_dict(item) and hash(source) == hash(NodeSource.from_dict(item))
    assert source != source.from_node[0]
    assert source.to_dict() == item
    assert json.loads(metadata_json({"from_node": None})) == {"from_node": "null"}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("nn_module_stack", "a,b"),
        ("nn_module_stack", "a,b,c,d"),
        ("source_fn_stack", "only"),
        ("source_fn_stack", "a,b,c"),
        ("custom", "{"),
        ("custom", "[" * 100_000),
        ("from_node", "[1]"),
        ("from_node", "{}"),
        ("from_node", '[{"name": "x"}]'),
        ("someone's", "text"),
        ("val", "text"),
    ],
)
def test_odd_texts_are_kept(key: str, text: str) -> None:
    meta = decode_metadata({key: text})
    assert type(meta[key]) is MetadataText and meta[key] == text
    assert json.loads(metadata_json(meta)) == {key: text}


def test_deep_sources_are_kept() -> None:
    depth = 30_000
    text = '[{"name": "", "target": "", "graph_id": 0, "pass_name": "", "action": "", "from_node": ' * depth
    text += "[]" + "}]" * depth
    meta = decode_metadata({"from_node": text})
    assert json.loads(metadata_json(meta)) == {"from_node": text}


NAMES = st.text("ab,;[](). ", max_size=6)


@given(st.dictionaries(NAMES, st.tuples(NAMES, NAMES), min_size=1, max_size=3))
@example({"L__self__a,b": ("a,b", "net.Net")})
@example({"k": ("a;b", "net.Net")})
@example({"k": ("a[b", "net.Net")})
@example({"k": ("x(1,2)", "net.Net")})
def test_module_stacks_are_read_as_what_they_were(stack: dict[str, tuple[str, str]]) -> None:
    returns_or_is_refused("nn_module_stack", stack)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3))
@example([("a,b", "torch.relu")])
def test_function_stacks_are_read_as_what_they_were(stack: list[tuple[str, str]]) -> None:
    returns_or_is_refused("source_fn_stack", stack)


@given(st.tuples(NAMES, NAMES))
@example(("a;b", "c"))
def test_functions_are_read_as_what_they_were(names: tuple[str, str]) -> None:
    returns_or_is_refused("torch_fn", names)


def returns_or_is_refused(key: str, value: Any) -> None:
    """A text says the same when it is read; where the form can't say it, nothing is written."""
    try:
        text = metadata_json({key: value})
    except ValueError as error:
        assert "would be read as something else" in str(error) and re.search("[],;[()]", repr(value)[1:-1])
    else:
        assert decode_metadata(json.loads(text)) == {key: value}


def test_what_torch_leaves_out() -> None:
    assert metadata_json({"val": 3, "mine": "text", "stack_trace": "", "custom": {}, "torch_fn": ()}) == "{}"
    with pytest.raises(ValueError, match="meta\\['custom'\\]"):
        metadata_json({"custom": object()})
    with pytest.raises(ValueError, match="meta\\['nn_module_stack'\\]"):
        metadata_json({"nn_module_stack": 5})


# ---- TensorMeta and symbols ----


def test_tensor_meta_texts() -> None:
    assert repr(TensorMeta("float32", (2, 3))) == "TensorMeta(f32[2, 3], cpu)"
    assert repr(TensorMeta("bool", ())) == "TensorMeta(b8[], cpu)"
    assert repr(TensorMeta("int64", (2, 3), (1, 2), "cuda:1", "sparse_coo", True, 4)) == (
        "TensorMeta(i64[2, 3], cuda:1, stride=(1, 2), layout=torch.sparse_coo, requires_grad=True, storage_offset=4)"
    )
    assert repr(TensorMeta("float32", (SymInt(S0), 2))) == "TensorMeta(f32[s0, 2], cpu)"


def test_tensor_meta_strides() -> None:
    s0 = SymInt(S0, 4)
    assert TensorMeta("float32", (2, 3, 4)).stride == (12, 4, 1)
    assert TensorMeta("float32", (2, 0, 4)).stride == (4, 4, 1)
    assert TensorMeta("float32", (s0, 4)).stride == (4, 1)
    assert TensorMeta("float32", (3, s0)).stride == (s0, 1)
    assert TensorMeta("float32", (1, s0)).stride == (s0, 1)
    assert TensorMeta("float32", (3, s0, 2)).stride == (s0 * 2, 2, 1)
    assert TensorMeta("float32", (s0, s0, 0)).stride == (s0, 1, 1)
    assert TensorMeta("float32", (3, s0, 2), (s0, 2, 1)).stride == (s0, 2, 1)
    assert repr(TensorMeta("float32", (3, s0, s0))) == "TensorMeta(f32[3, s0, s0], cpu)"
    assert TensorMeta("float32", (2**62, 2**62, 1)).stride == (2**62, 1, 1)
    for shape in ((2, 2**62, 2), (3, s0, 2**62, 2), (2, 2**32, 2**32)):
        with pytest.raises(ValueError, match="64 bits"):
            TensorMeta("float32", shape)


def test_tensor_meta_is_a_value() -> None:
    meta = TensorMeta(DType("float32"), [2, 3], device=Device("cpu"), layout=Layout("strided"))
    assert meta == TensorMeta("float32", (2, 3)) and hash(meta) == hash(TensorMeta("float32", (2, 3)))
    assert meta != TensorMeta("float32", (2, 3), requires_grad=True) and meta != (2, 3)
    assert pickle.loads(pickle.dumps(meta)) == meta and copy.deepcopy(meta) is meta
    assert meta.replace(dtype="int8", shape=(4, 5)) == TensorMeta("int8", (4, 5))
    assert meta.replace(stride=(1, 2)).stride == (1, 2)
    with pytest.raises(AttributeError, match="replace"):
        meta.shape = (1,)
    with pytest.raises(AttributeError):
        del meta.shape


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, ("float33", ())),
        (TypeError, ("float32", 5)),
        (TypeError, ("float32", (2.0,))),
        (TypeError, ("float32", (True,))),
        (ValueError, ("float32", (2,), (1, 1))),
        (ValueError, ("float32", (2**63,), (1,))),
        (ValueError, ("float32", (2,), None, "no device")),
        (TypeError, ("float32", (2,), None, "cpu", "strided", 1)),
        (TypeError, ("float32", (2,), None, "cpu", "strided", False, None)),
    ],
)
def test_bad_tensor_meta(error: type[Exception], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(error):
        TensorMeta(*arguments)


def test_symbols() -> None:
    size = SymInt(f"Add({S0}, Integer(1))", 5)
    assert str(size) == repr(size) == "s0 + 1"
    assert size.hint == 5 and size.expr.srepr == size.srepr
    assert size == SymInt(size.expr, 5) and hash(size) == hash(SymInt(size.expr, 5))
    assert size != SymInt(size.expr) and size != SymFloat(size.srepr, 5.0)
    assert pickle.loads(pickle.dumps(size)) == size and copy.copy(size) is size
    assert str(SymBool(f"StrictLessThan({S0}, Integer(10))")) == "s0 < 10"
    assert str(SymInt("__import__('os')")) == "__import__('os')"  # shown, never run
    with pytest.raises(ValueError):
        _ = SymInt("__import__('os')").expr
    for arguments in ((5,), (S0, "4"), (None,)):
        with pytest.raises(TypeError):
            SymInt(*arguments)
    with pytest.raises(AttributeError):
        size.hint = 6
