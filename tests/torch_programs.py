"""Comparing torch.export programs in depth."""

import re

import torch
from torch._subclasses.fake_tensor import FakeTensor

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ENVIRONMENT = (
    "backed_var_to_val",
    "var_to_range",
    "replacements",
    "deferred_runtime_asserts",
    "guards",
    "unbacked_symint_counter",
    "unbacked_symfloat_counter",
)


def value_facts(value):
    """All that can be told of a node's value."""
    if isinstance(value, torch.Tensor):
        facts = (value.dtype, value.shape, value.stride(), value.device, value.requires_grad, value.layout)
        return type(value), tuple(map(str, (*facts, value.storage_offset())))
    if isinstance(value, (tuple, list)):
        return type(value), [value_facts(item) for item in value]
    if isinstance(value, _SYMBOLS):
        return type(value), str(value.node.expr), str(value.node._hint)
    return type(value), repr(value)


def meta_facts(meta):
    """All that can be told of a node's meta, in its order."""
    facts = []
    for key, value in meta.items():
        if key == "val":
            facts.append((key, value_facts(value)))
        elif key == "from_node" and value is not None:
            facts.append((key, [source.to_dict() for source in value]))
        else:
            facts.append((key, repr(value)))
    return facts


def _tensors_of(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors_of(item)


def shared_values(graph):
    """Which values of nodes are one object, and which share memory."""
    objects, storages = {}, {}
    return [
        (
            objects.setdefault(id(tensor), len(objects)),
            storages.setdefault(tensor.untyped_storage()._cdata, len(storages)),
        )
        for node in graph.nodes
        for tensor in _tensors_of(node.meta.get("val"))
        if tensor.layout is torch.strided and not torch._C._functorch.is_batchedtensor(tensor)
    ]


def environment(program):
    """The ShapeEnv of a program's values."""
    for node in program.graph.nodes:
        for value in _tensors_of(node.meta.get("val")):
            if isinstance(value, FakeTensor):
                return value.fake_mode.shape_env
    return None


def graph_modules(program):
    return {
        path: module
        for path, module in program.graph_module.named_modules()
        if isinstance(module, torch.fx.GraphModule)
    }


def assert_same_graphs(a, b, *, sharing=True):
    ours, theirs = graph_modules(a), graph_modules(b)
    assert list(ours) == list(theirs)
    for path, module in ours.items():
        other = theirs[path]
        assert str(module.graph) == str(other.graph)
        for node, twin in zip(module.graph.nodes, other.graph.nodes, strict=True):
            assert node.target is twin.target or node.target == twin.target
            assert list(node.kwargs) == list(twin.kwargs)
            assert meta_facts(node.meta) == meta_facts(twin.meta), f"{path} {node}"
        assert not sharing or shared_values(module.graph) == shared_values(other.graph)
        assert repr(module.meta) == repr(other.meta)
        assert type(module).__name__ == type(other).__name__
        assert module.training == other.training
        assert module.code == other.code


def _ties(values):
    objects, storages = {}, {}
    return [
        (
            objects.setdefault(id(value), len(objects)),
            storages.setdefault(value.untyped_storage()._cdata, len(storages)),
        )
        for value in values.values()
        if isinstance(value, torch.Tensor)
    ]


def assert_same_tensors(a, b):
    assert list(a) == list(b)
    assert _ties(a) == _ties(b)
    for name, tensor in a.items():
        twin = b[name]
        assert type(tensor) is type(twin)
        if isinstance(tensor, torch.Tensor):
            assert value_facts(tensor) == value_facts(twin)
            if type(tensor) in (torch.Tensor, torch.nn.Parameter):
                assert bytes(tensor.untyped_storage()) == bytes(twin.untyped_storage())
            else:  # it has no memory of its own
                assert repr(tensor) == repr(twin)


def _without_addresses(text):
    return re.sub(" at 0x[0-9a-f]+>", ">", text)


def assert_same_programs(a, b, *, sharing=True):
    """Two torch programs are equal, in all but the identity of their parts."""
    assert_same_graphs(a, b, sharing=sharing)
    assert _without_addresses(repr(a.graph_signature)) == _without_addresses(repr(b.graph_signature))
    assert [type(spec.arg) for spec in a.graph_signature.input_specs] == [
        type(spec.arg) for spec in b.graph_signature.input_specs
    ]
    assert str(a.graph_signature) == str(b.graph_signature)
    assert repr(a.range_constraints) == repr(b.range_constraints)
    assert repr(a.module_call_graph) == repr(b.module_call_graph)
    assert a.call_spec == b.call_spec
    assert_same_tensors(a.state_dict, b.state_dict)
    assert_same_tensors(a.constants, b.constants)
    assert a._guards_code == b._guards_code
    assert a.verifiers == b.verifiers
    assert a.dialect == b.dialect
    assert str(a) == str(b)
    env, twin = environment(a), environment(b)
    assert (env is None) == (twin is None)
    for name in _ENVIRONMENT if env is not None else ():
        assert str(getattr(env, name)) == str(getattr(twin, name)), name
