"""A small torch program of every kind that torch.export makes: what `exported(name)` gives for each name of KINDS.

Programs are exported when somebody asks for them, and shared: nobody may change one. `run` and `same_outputs` run them.
"""

import collections
import copy
import dataclasses
import functools
import math
import warnings
from pathlib import Path

import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import _pytree as pytree

Dim = torch.export.Dim

KINDS = {}
# What torch itself can't do with a program of a kind.
NOT_SAVED = {"sym_rounding", "sym_sum", "sym_bool_result"}  # its serializer refuses it
NOT_LOADED = {"text_result", "opaque_value"}  # it writes a file, and can't read it


def kind(make):
    """Register what makes a program, under the name of the function."""
    KINDS[make.__name__] = make
    return make


@functools.cache
def exported(name):
    """The program of a kind, of which nobody may change anything."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[name]()


def values(*shape, dtype=torch.float32):
    """A tensor of that shape with different values, the same at each call."""
    count = math.prod(shape)
    return (torch.arange(count) % 17 - 6).to(dtype).reshape(shape) / (1 if not dtype.is_floating_point else 4)


def module_of(forward, **members):
    """A module with that forward method, and these members: a tensor that is no nn.Buffer is a plain attribute."""
    module = type("Model", (nn.Module,), {"forward": forward})()
    for name, member in members.items():
        setattr(module, name, member)
    return module


def export(forward, *args, members=None, kwargs=None, **options):
    """Export a forward method, called with args and kwargs, of a module with some members."""
    return torch.export.export(module_of(forward, **(members or {})), args, kwargs, **options)


# ---- running


def run(program, inputs=None):
    """All results of a program, flat, and all that it may have written to: arguments, weights and constants.

    The program itself is left as it is.
    """
    args, kwargs = copy.deepcopy(program.example_inputs if inputs is None else inputs)
    state = {**program.state_dict, **program.constants}
    state = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    before = {name: value.detach().clone() for name, value in state.items()}
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if program.graph_signature.backward_signature is not None:  # module() is not for it
                results, written = _run_joint(program, args), {}
            else:
                module = program.module()
                results = pytree.tree_leaves(module(*args, **kwargs))
                written = {name: value.clone() for name, value in module.state_dict().items()}
    finally:
        torch.use_deterministic_algorithms(False)
        with torch.no_grad():
            for name, value in state.items():
                if not torch.equal(_bits(value), _bits(before[name])):
                    value.copy_(before[name])
    return [*results, *pytree.tree_leaves((args, kwargs)), *written.values()]


def _run_joint(program, args):
    state = [program.state_dict[spec.target] for spec in program.graph_signature.input_specs if spec.target]
    return list(program.graph_module(*state, *args))


def _bits(tensor):
    """What tells two tensors of one dtype apart, NaNs too."""
    if not tensor.numel() or tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, nn.Parameter):
        return tensor.detach()
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _facts(tensor, strides):
    return tensor.dtype, tensor.shape, tensor.layout, tensor.stride() if strides else None


def same_value(a, b, *, strides=True):
    """Bit for bit."""
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and _facts(a, strides) == _facts(b, strides) and torch.equal(_bits(a), _bits(b))
    return type(a) is type(b) and (a == b or a != a)


def assert_same_results(a, b, *, strides=True):
    """Two lists of `run` are equal."""
    assert len(a) == len(b)
    for ours, theirs in zip(a, b, strict=True):
        assert same_value(ours, theirs, strides=strides), (ours, theirs)


# ---- layers ----------------------------------------------------------------------------------------------------------


@kind
def linear():
    return torch.export.export(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (values(2, 4),))


@kind
def image_training():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    return torch.export.export(net, (values(2, 3, 6, 6),))


@kind
def image_training_decomposed():
    return exported("image_training").run_decompositions()


@kind
def image_inference():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.AdaptiveAvgPool2d(1)).eval()
    return torch.export.export(net, (values(2, 3, 6, 6),)).run_decompositions()


@kind
def channels_last():
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    conv.bias.requires_grad_(False)
    return export(
        lambda self, x: self.conv(x.contiguous(memory_format=torch.channels_last)).half(),
        values(1, 3, 5, 5).to(memory_format=torch.channels_last),
        members={"conv": conv},
    )


@kind
def recurrent():
    def forward(self, x):
        results, (hidden, cell) = self.cells(x)
        return results, hidden + cell

    cells = nn.LSTM(3, 4, num_layers=2, batch_first=True).eval()
    return export(forward, values(2, 3, 3), members={"cells": cells})


@kind
def recurrent_decomposed():
    return export(lambda self, x: self.gru(x)[0], values(3, 2, 4), members={"gru": nn.GRU(4, 3)}).run_decompositions()


@kind
def attention():
    def forward(self, x, mask=None):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        turned = torch.view_as_complex(q.reshape(batch, 2, length, 2, 2)) * self.turns[:length]
        q = torch.view_as_real(turned).flatten(3)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return mixed.transpose(1, 2).reshape(batch, length, 8)

    turns = torch.polar(torch.ones(5, 2), torch.arange(10.0).reshape(5, 2))
    members = {"qkv": nn.Linear(8, 24, bias=False), "turns": nn.Buffer(turns, persistent=False)}
    return export(forward, values(2, 5, 8), members=members, dynamic_shapes={"x": {0: Dim("batch", max=16)}})


@kind
def attention_decomposed():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    return torch.export.export(layer, (values(2, 3, 8),)).run_decompositions()


@kind
def blocks():
    def block():
        return nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.1))

    return torch.export.export(nn.Sequential(block(), nn.Sequential(block(), block())).eval(), (values(2, 4),))


@kind
def strict_mode():
    return torch.export.export(nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)), (values(2, 4),), strict=True)


# ---- sizes -----------------------------------------------------------------------------------------------------------


@kind
def sizes():
    def forward(self, x, y):
        both = torch.cat([x, y])
        return self.fc(both).reshape(both.shape[0] * 2, -1), both.shape[0] + 1

    rows = Dim("rows", min=2, max=64)
    shapes = {"x": {0: rows}, "y": {0: Dim("more", min=2)}}
    return export(forward, values(3, 4), values(5, 4), members={"fc": nn.Linear(4, 4)}, dynamic_shapes=shapes)


@kind
def sizes_derived():
    rows = Dim("rows", min=3, max=100)
    return export(
        lambda self, x, y: (x[1:] + y, x.shape[0] // 2, x.sum() * (x.shape[0] % 3)),
        values(6, 4),
        values(5, 4),
        dynamic_shapes={"x": {0: rows}, "y": {0: rows - 1}},
    )


@kind
def sizes_multiple():
    shapes = {"x": {0: Dim("b", min=2, max=64), 1: 4 * Dim("k", min=2, max=16)}}
    return export(lambda self, x: x.view(x.shape[0], 4, x.shape[1] // 4).sum(1), values(3, 12), dynamic_shapes=shapes)


@kind
def sizes_found():
    def forward(self, x):
        batch, length, width = x.shape
        heads = x.view(batch, length, 2, width // 2).transpose(1, 2).contiguous()
        return heads.view(batch * 2, length, -1)

    return export(forward, values(3, 5, 8), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.DYNAMIC, 2: Dim.AUTO}})


@kind
def sizes_equal():
    auto = {0: Dim.AUTO, 1: Dim.AUTO}
    return export(lambda self, x, y: x + y.t(), values(3, 4), values(4, 3), dynamic_shapes={"x": auto, "y": auto})


@kind
def sizes_of_parts():
    rows = Dim("rows", min=2, max=9)
    return export(
        lambda self, pair, *, named: (pair[0] + named["a"]).sum(0) + pair[1].shape[0],
        (values(3, 2), values(4)),
        kwargs={"named": {"a": values(3, 2)}},
        dynamic_shapes={"pair": ({0: rows}, {0: Dim.DYNAMIC}), "named": {"a": {0: rows}}},
    )


@kind
def sym_arithmetic():
    def forward(self, x):
        n = x.shape[0]
        return (
            x * (n / 3),
            torch.sym_sqrt(n) * x,
            torch.sym_max(n, 4) + torch.sym_min(n, 7) + x,
            torch.sym_float(n) ** 0.5 + x,
            (n % 3) * x - (-n),
            math.trunc(n / 2) + x,
        )

    return export(forward, values(6, 4), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.STATIC}})


@kind
def sym_rounding():
    def forward(self, x):
        n = x.shape[0]
        return x * math.ceil(n / 3), x * math.floor(n / 3), x * round(n / 3)

    return export(forward, values(6, 4), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.STATIC}})


@kind
def sym_sum():
    def forward(self, x, y, z):
        return torch.cat([x, y, z]).view(torch.sym_sum([x.shape[0], y.shape[0], z.shape[0]]), 1)

    rows = tuple({0: Dim(name, min=2, max=90)} for name in "abc")
    return export(forward, values(3), values(4), values(5), dynamic_shapes=rows)


@kind
def sym_bool_result():
    return export(
        lambda self, x: (x + 1, x.shape[0] > 3, x.shape[0] / 2),
        values(6, 2),
        dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.STATIC}},
    )


@kind
def sym_results():
    def forward(self, x):
        n = x.shape[0]
        head, tail = torch.split(x, [2, n - 2])
        steps = torch.arange(0, n, 2, dtype=torch.int32)
        return head, tail, steps, x.numel(), x.stride(0), n / 2, n * x.shape[1]

    return export(forward, values(6, 4), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.AUTO}})


@kind
def sym_input():
    shapes = {"x": None, "n": Dim.DYNAMIC}
    return export(lambda self, x, n: (x.repeat(n, 1), n * 2), values(2, 2), 3, dynamic_shapes=shapes)


@kind
def sym_select():
    def forward(self, x, n):
        place = n.item()
        torch._check(place >= 0)
        torch._check(place < 4)
        return torch.cond(x.shape[0] > 5, lambda x: x + 1, lambda x: x - 1, (x,)), x.select(0, place)

    shapes = {"x": {0: Dim("rows", min=4, max=20)}, "n": None}
    return export(forward, values(6, 2), torch.tensor(1), dynamic_shapes=shapes)


@kind
def unbacked():
    def forward(self, x, n):
        count = n.item()
        torch._check(count >= 2)
        torch._check(count <= x.shape[0])
        return x[:count], torch.zeros(count, 2), torch.nonzero(x > 0), count + 1

    return export(forward, values(6, 4), torch.tensor(3))


@kind
def unbacked_derived():
    def forward(self, x):
        places = x.nonzero().squeeze(1)
        torch._check(places.shape[0] > 1)
        return torch.zeros(places.shape[0] * 2), places + 1, x[places].reshape(-1, 1)

    return export(forward, values(7))


@kind
def assertions():
    def forward(self, x, n):
        torch._assert_async((x > -100).all())
        torch._check(x.shape[0] > 2)
        count = n.item()
        torch._check(count > 1)
        return x.repeat(count, 1)

    shapes = {"x": {0: Dim("rows", min=3, max=10)}, "n": None}
    return export(forward, values(4, 2), torch.tensor(2), dynamic_shapes=shapes)


# ---- graphs within graphs --------------------------------------------------------------------------------------------


@kind
def choice():
    def forward(self, x, flag):
        return torch.cond(flag, lambda x: (self.fc(x).sin(), x + 1), lambda x: (x.cos(), x - 1), (x,))

    return export(forward, values(2, 4), torch.tensor(True), members={"fc": nn.Linear(4, 4)})


@kind
def choice_decomposed():
    return exported("choice").run_decompositions()


@kind
def choice_in_choice():
    def forward(self, x):
        def yes(x):
            return torch.cond(x.mean() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

        def no(x):
            first, second = x.chunk(2)
            return torch.cat([second, first])

        once = torch.cond(x.sum() > 0, yes, no, (x,))
        return torch.cond(once.sum() > 3, lambda x: x * 2, lambda x: x / 2, (once,))

    return export(forward, values(4, 4))


@kind
def loop():
    def forward(self, step, x):
        return while_loop(lambda step, x: step.sum() < 5, lambda step, x: (step + 1, x * 1.5), (step, x))

    return export(forward, torch.zeros(1, dtype=torch.int64), values(2, 3))


@kind
def loop_of_weights():
    def forward(self, step, x):
        return while_loop(lambda step, x: step - self.less > 0, lambda step, x: (step - 1, self.fc(x)), (step, x))

    members = {"fc": nn.Linear(3, 3), "less": nn.Buffer(torch.tensor(1))}
    shapes = {"step": None, "x": {0: Dim("rows")}}
    return export(forward, torch.tensor(4), values(2, 3), members=members, dynamic_shapes=shapes)


@kind
def mapped():
    return export(lambda self, xs, y: map_over(lambda x, y: x + y, xs, y), values(3, 2), values(2))


@kind
def scanned():
    def forward(self, start, xs):
        return scan(lambda carry, x: (carry + x, (carry + x) * 2), start, xs)

    return export(forward, values(2), values(5, 2))


@kind
def scanned_in_parallel():
    return export(lambda self, xs: associative_scan(torch.add, xs, dim=0, combine_mode="generic"), values(4, 2))


@torch.compiler.nested_compile_region
def _region(x, y):
    return torch.mul(x, y).sin()


@kind
def region():
    return export(lambda self, x, y: _region(x, y) + _region(x, x), values(2), values(2), strict=True)


@kind
def checkpointed():
    from torch.utils.checkpoint import checkpoint

    def forward(self, x):
        return checkpoint(self.fc, x, use_reentrant=False)

    return export(forward, values(2, 2), members={"fc": nn.Linear(2, 2)})


@kind
def modes():
    def forward(self, x):
        with torch.no_grad():
            quiet = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = self.fc(quiet)
        with torch.enable_grad():
            again = low.float().sin()
        return again, quiet

    return export(forward, values(2, 4), members={"fc": nn.Linear(4, 4)})


@kind
def modes_decomposed():
    return exported("modes").run_decompositions()


# ---- what is written to ----------------------------------------------------------------------------------------------


def _count(self, x):
    self.seen.add_(x.shape[0])
    self.scratch.mul_(2)
    return x * self.scale + self.seen + self.scratch


def _counting():
    return {
        "scale": nn.Parameter(torch.tensor([1.5, -2.0])),
        "seen": nn.Buffer(torch.zeros(1)),
        "scratch": nn.Buffer(torch.ones(2), persistent=False),
    }


@kind
def buffers_written():
    return export(_count, values(3, 2), members=_counting())


@kind
def buffers_written_decomposed():
    return exported("buffers_written").run_decompositions()


def _write(self, x, y):
    x.add_(y)
    y[0].mul_(2)
    return x + y, x


@kind
def arguments_written():
    return export(_write, values(2, 2), values(2, 2))


@kind
def arguments_written_decomposed():
    return exported("arguments_written").run_decompositions()


@kind
def parameter_written():
    def forward(self, x):
        with torch.no_grad():
            self.weight.mul_(0.5)
        return x * self.weight

    return export(forward, values(3), members={"weight": nn.Parameter(torch.ones(3))})


@kind
def effects():
    def forward(self, x):
        torch.ops.aten._print("said by a test")
        return x + 1

    return export(forward, values(2)).run_decompositions()


# ---- weights and constants -------------------------------------------------------------------------------------------


@kind
def constants():
    members = {"table": torch.arange(6.0).reshape(2, 3), "named": {"k": torch.ones(3)}}
    return export(
        lambda self, x: x @ self.table + torch.tensor([1.0, 2.0, 3.0]) + self.named["k"], values(2, 2), members=members
    )


@kind
def tied():
    def forward(self, ids):
        return self.head(self.embed(ids)) + self.first.sum() + self.second.sum() + self.turned.sum() + self.wide.sum()

    whole = torch.arange(12.0)
    embed, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embed.weight
    members = {
        "embed": embed,
        "head": head,
        "first": nn.Buffer(whole[2:6]),
        "second": nn.Buffer(whole[4:8].reshape(2, 2)),
        "turned": nn.Buffer(torch.arange(6.0).reshape(2, 3).t()),
        "nothing": nn.Buffer(torch.zeros(0, 3)),
        "wide": nn.Buffer(torch.ones(1).expand(4)),
    }
    return export(forward, torch.tensor([1, 2, 3]), members=members)


@kind
def tied_modules():
    inner = nn.Linear(4, 4)
    return export(lambda self, x: self.one(self.other(x).relu()), values(2, 4), members={"one": inner, "other": inner})


_DTYPES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128 bool bfloat16 float8_e4m3fn float8_e5m2 "
    "uint16 uint32 uint64"
).split()


@kind
def dtypes():
    members = {f"b_{name}": nn.Buffer(values(2, 3).abs().to(getattr(torch, name))) for name in _DTYPES}
    return export(
        lambda self, x: (x + self.b_float32, self.b_uint16.to(torch.int32), self.b_float8_e4m3fn.to(torch.float32)),
        values(2, 3),
        members=members,
    )


@kind
def complex_numbers():
    def forward(self, x):
        low = x.to(torch.bfloat16) @ self.weight
        return (
            low,
            torch.fft.fft(x) * self.c,
            self.c * (1 + 2j),
            x.to(torch.float64, memory_format=torch.preserve_format),
        )

    members = {"weight": nn.Parameter(values(3, 3).bfloat16()), "c": nn.Buffer(values(3).to(torch.complex64))}
    return export(forward, values(3, 3), members=members)


@kind
def subclass_weight():
    from torch.testing._internal.two_tensor import TwoTensor

    weight = nn.Parameter(TwoTensor(values(2, 2), values(2, 2) + 1))
    return export(
        lambda self, x: x @ self.weight + self.bias,
        values(2, 2),
        members={"weight": weight, "bias": nn.Parameter(torch.zeros(2))},
    )


@kind
def sparse():
    return export(lambda self, x: (x.to_sparse().neg()).to_dense() + 1, values(3, 3))


@kind
def frozen_weight():
    return export(lambda self: self.weight * 2, members={"weight": nn.Parameter(torch.ones(2), requires_grad=False)})


@functools.cache
def _script_classes():
    """Classes in C++ that come with torch for its own tests."""
    torch.ops.load_library(Path(torch.__file__).parent / "lib" / "libtorchbind_test.so")

    class Foo:
        def __init__(self, x, y):
            self.x, self.y = x, y

        @classmethod
        def __obj_unflatten__(cls, flat):
            return cls(**dict(flat))

        def add_tensor(self, z):
            return (self.x + self.y) * z

    torch._library.register_fake_class("_TorchScriptTesting::_Foo", Foo)
    return torch.classes._TorchScriptTesting


@kind
def script_object():
    members = {"foo": _script_classes()._Foo(10, 20), "fc": nn.Linear(3, 3)}
    return export(lambda self, x: self.fc(x) + self.foo.add_tensor(x), values(2, 3), members=members)


@kind
def script_object_argument():
    foo = _script_classes()._Foo(2, 3)
    return export(lambda self, x, foo: foo.add_tensor(x) + x, values(2, 3), foo)


# ---- arguments and results -------------------------------------------------------------------------------------------


@kind
def scalars():
    def forward(self, x, n, f, b, name, none=None):
        y = x * n + f
        if b:
            y = y - 1
        if name == "abc":
            y = y.clamp(min=-1.5, max=float("inf"))
        return y, n, f, b, none

    return export(forward, values(2, 2), 3, 2.5, True, "abc")


@kind
def text_result():
    return export(lambda self, x, name: (x + 1, name), values(2, 2), "abc")


@kind
def mixed_results():
    return export(lambda self, x: {"a": x + 1, "b": None, "c": [x * 2, None, 7, True, 1.5]}, values(2, 2))


@kind
def keywords():
    def forward(self, x, *, y, z=None):
        return x + y if z is None else (x + y) * z

    return export(forward, values(2, 2), kwargs={"z": values(2, 2), "y": values(2, 2) + 1})


@kind
def variadic():
    def forward(self, x, *args, scale=1.0, **more):
        return (x + sum(args)) * scale + more["bias"]

    return export(forward, *(values(2, 2),) * 3, kwargs={"scale": 2.0, "bias": values(2)})


Pair = collections.namedtuple("Pair", ["first", "second"])
pytree._register_namedtuple(Pair, serialized_type_name="export_kinds.Pair")


@dataclasses.dataclass
class Record:
    feature: torch.Tensor
    bias: int
    more: torch.Tensor | None = None


torch.export.register_dataclass(Record, serialized_type_name="export_kinds.Record")
torch.serialization.add_safe_globals([Pair, Record, collections.defaultdict, list])


@kind
def containers():
    def forward(self, named, listed, pair):
        last = (listed[0] * listed[1], Pair(pair.first, pair.second - 1))
        return collections.OrderedDict([("one", named["a"] + named["b"][0]), ("two", last)])

    return export(forward, {"a": values(2), "b": (values(2), values(2))}, [values(2), values(2)], Pair(*values(2, 2)))


@kind
def records():
    return export(
        lambda self, record: Record(record.feature + record.bias, record.bias, record.feature * 2), Record(values(2), 3)
    )


@kind
def queues():
    def forward(self, queue, counted):
        made = collections.defaultdict(list, {"k": counted["k"] + 1})
        return collections.deque([queue[0] + queue[1]], maxlen=4), made

    queue = collections.deque([values(2), values(2)])
    return export(forward, queue, collections.defaultdict(list, {"k": values(2)}))


@kind
def empty_containers():
    return export(lambda self, nothing, x, *, none: ([], x + 1, {}, ()), [], values(2), kwargs={"none": {}})


@kind
def result_is_argument():
    return export(lambda self, x, y: (x, x, y + 1, y), values(2), values(2))


@kind
def no_arguments():
    return export(lambda self: torch.zeros(2, 2) + torch.ones(2, 2))


@kind
def words_as_names():
    def forward(self, input, list, torch_, x_1, max=2.0, from_=None):
        return (input + list + torch_) * x_1 * max

    return export(forward, values(2), values(2), values(2), values(2), 2.0, True)


# ---- operators -------------------------------------------------------------------------------------------------------


@kind
def many_results():
    def forward(self, x):
        top, places = torch.topk(x, 2)
        a, b, c = torch.split(x, [1, 1, 2], dim=1)
        p, q = x.chunk(2, 0)
        rows = torch.unbind(x, 0)
        return top, places, a + c, p - q, rows[3] * rows[0], rows[1], x.max(dim=1)[0], x.min(dim=1)[1], b

    return export(forward, values(4, 4))


@kind
def views():
    def forward(self, x, i):
        picked = x[:, i]
        put = torch.ops.aten.index_put.default(x, [None, i], picked)
        return x[i], put, x[..., None, 1:3], x[::2], x.t()[1], x.unfold(0, 2, 1), x.diagonal()

    return export(forward, values(4, 4), torch.tensor([0, 2]))


@kind
def options():
    def forward(self, x, y):
        return (
            torch.einsum("ij,jk->ik", x, y),
            nn.functional.interpolate(x[None, None], scale_factor=[2.0, 2.0], mode="bilinear", align_corners=False),
            torch.stack([x, y]).roll(shifts=(1, -1), dims=(0, 1)),
            nn.functional.pad(x, (1, 2), value=float("inf")),
            torch.div(x, y + 7, rounding_mode="floor"),
            x.sum([]),
            x.std(correction=0),
            torch.zeros([2], dtype=torch.int8, device="cpu", layout=torch.strided),
            torch.ops.aten.native_layer_norm(x, [2], None, None, 1e-5)[0],
        )

    return export(forward, values(2, 2), values(2, 2))


@kind
def extreme_numbers():
    def forward(self, x):
        return (
            x.masked_fill(x > 0, float("-inf")),
            torch.full((2,), float("nan")),
            x * 1e-30,
            x * 1e22,
            x * 123456789.123,
            torch.full((1,), 2**63 - 1),
            torch.full((1,), -(2**63)),
        )

    return export(forward, values(2))


@kind
def randomness():
    def forward(self, x):
        noisy = x + torch.rand_like(x) * torch.randint(0, 5, (3,))
        return nn.functional.dropout(noisy, 0.5, True), torch.ops.aten.native_dropout(x, 0.25, True)[1]

    return export(forward, values(2, 3))


@kind
def non_ascii():
    # un commentaire déjà vu, 中文 😀
    return export(lambda self, x: {"ключ": x + 1, "日本": x.sum()}, values(2))


@kind
def notes():
    program = export(lambda self, x: x.sin() + 1, values(2))
    for node in program.graph.nodes:
        if node.op == "call_function":
            node.meta["custom"] = {"partition": 1, "tags": ["a", "é\u2028", None], "share": 0.5}
    program.graph_module.meta["custom"] = {"who": "a test"}
    return program


@kind
def signatures_kept():
    class Inner(nn.Module):
        def forward(self, x, *, scale=None):
            return {"sum": x + 1, "product": (x * 2, scale)}

    def forward(self, x):
        made = self.inner(x, scale=2.0)
        return self.layers[1](self.layers[0](made["sum"])) + made["product"][0]

    members = {"inner": Inner(), "layers": nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])}
    names = ("inner", "layers.0")
    return export(forward, values(2, 2), members=members, preserve_module_call_signature=names)


@kind
def unused():
    def forward(self, x, y):
        _, rest = torch.ops.aten.split_with_sizes.default(x, [1, 3])
        (x * 2).sum()
        return rest

    members = {"spare": nn.Parameter(torch.ones(2)), "left": nn.Buffer(torch.ones(1))}
    return export(forward, values(4), values(2), members=members)


# ---- operators of one's own ------------------------------------------------------------------------------------------


def _operators():
    library = torch.library.Library("exportkinds", "FRAGMENT")

    def define(schema, function, fake=None):
        name = schema.partition("(")[0]
        library.define(schema)
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"exportkinds::{name}", fake or function, lib=library)

    def add_to(x, y, out=None):
        x.add_(y)

    def add_and_scale(x, y, k):
        x.add_(y)
        return y * k

    define('scaled(Tensor x, int k=2, str tag="t") -> Tensor', lambda x, k=2, tag="t": x * k)
    define(
        "both(Tensor[] xs, bool[] flags, Tensor? weight=None) -> (Tensor, Tensor)",
        lambda xs, flags, weight=None: (xs[0].clone(), xs[1].clone()),
    )
    define(
        "mixed(Tensor x, int n) -> (Tensor, Tensor[], Tensor)",
        lambda x, n: (x.clone(), [x + i for i in range(n)], x.sum()),
    )
    define("add_to(Tensor(a!) x, Tensor y, Tensor? out=None) -> ()", add_to)
    define("add_and_scale(Tensor(a!) x, Tensor y, float k) -> Tensor", add_and_scale)
    return library


_library = _operators()
OPS = torch.ops.exportkinds


@kind
def own_operators():
    def forward(self, x):
        tagged = OPS.scaled(x, 3, tag='it\'s "new"\n')
        one, two = OPS.both([x, tagged], [True, False])
        return one + two

    return export(forward, values(2, 2))


@kind
def own_lists():
    def forward(self, x):
        a, listed, _ = OPS.mixed(x, 3)
        c, _, total = OPS.mixed(a, 2)
        _, again, _ = OPS.mixed(c, 2)
        return listed[0] + listed[2] + c, total, again[1]

    return export(forward, values(2, 2))


@kind
def list_not_used():
    program = export(lambda self, x: OPS.mixed(x, 2)[0] * 2, values(2))
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def _write_by_own(self, x, y):
    OPS.add_to(x, y)
    return x + OPS.add_and_scale(x, y, 2.0)


@kind
def own_writes():
    return export(_write_by_own, values(2), values(2))


@kind
def own_writes_functional():
    return exported("own_writes").run_decompositions()


class Setting:
    """A value that operators take, and torch knows nothing of."""

    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        return isinstance(other, Setting) and other.factor == self.factor

    def __hash__(self):
        return hash(self.factor)

    def __fx_repr__(self):
        return f"Setting({self.factor!r})", {"Setting": Setting}


@functools.cache
def _opaque_operator():
    from torch._library import opaque_object

    opaque_object.register_opaque_type(Setting, typ="value")
    name = opaque_object.get_opaque_type_name(Setting)
    library = torch.library.Library("exportkinds", "FRAGMENT")
    library.define(f"set(Tensor x, {name} setting) -> Tensor")
    library.impl("set", lambda x, setting: x * setting.factor, "CompositeExplicitAutograd")
    torch.library.register_fake("exportkinds::set", lambda x, setting: torch.empty_like(x), lib=library)
    return library


@kind
def opaque_value():
    _opaque_operator()
    return export(lambda self, x: OPS.set(x, Setting(2)), values(2))


# ---- other ways to a program -----------------------------------------------------------------------------------------


@kind
def joint():
    from torch.export.experimental import _export_forward_backward

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.fc(x), y)

    members = {"fc": nn.Linear(3, 2)}
    return _export_forward_backward(export(forward, values(2, 3), torch.tensor([0, 1]), members=members))


@kind
def quantized():
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer

    args = (values(2, 4),)
    module = torch.export.export(nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval(), args).module()
    quantizer = X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(module, quantizer)
    prepared(*args)
    return torch.export.export(convert_pt2e(prepared), args)


@kind
def own_decompositions():
    table = {torch.ops.aten.relu.default: lambda x: torch.ops.aten.clamp_min.default(x, 0)}
    return exported("linear").run_decompositions(table)
