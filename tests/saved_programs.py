"""Small programs that torch.export.save writes, and what is done with them, with and without acceleration."""

import collections
import contextlib
import io
import math

import torch
from torch import nn
from torch._export.serde import serialize
from torch._subclasses import fake_tensor

import fastexport
from fastexport.acceleration import table

Pair = collections.namedtuple("Pair", "first second")
torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="fastexport.tests.Pair")


def module(forward):
    return type(forward.__name__, (nn.Module,), {"forward": forward})()


def layers():
    return torch.export.export(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()), (torch.randn(2, 3),))


def dynamic():
    def batches(self, x, y):
        return torch.cat([x, y]).sum(0), x.shape[0] * 2

    n, m = torch.export.Dim("n", min=2, max=64), torch.export.Dim("m")
    return torch.export.export(module(batches), (torch.randn(4, 3), torch.randn(5, 3)), dynamic_shapes=({0: n}, {0: m}))


def unbacked():
    def select(self, x, k):
        n = k.item()
        torch._check(n >= 2)
        torch._check(n <= 4)
        return x.nonzero(), torch.zeros(n), x.sum().item()

    return torch.export.export(module(select), (torch.randn(4, 3), torch.tensor(3)))


def subgraphs():
    def branch(self, x):
        return torch.cond(x.sum() > 0, lambda x: (x.sin(), x.cos()), lambda x: (x.exp(), x.neg()), (x,))

    return torch.export.export(module(branch), (torch.randn(3),))


def many_outputs():
    def split(self, x):
        first, *_, last = torch.split(x, 2)
        values, _ = torch.topk(last, 1)
        return first, values, torch.var_mean(x, 0), torch.unbind(x)[1]

    return torch.export.export(module(split), (torch.randn(6, 4),))


def constants():
    def pick(self, x, scale, name, nothing, on):
        return (x * scale if on and nothing is None and name == "twice" else x), 3, None

    return torch.export.export(module(pick), (torch.randn(2), 2.5, "twice", None, True))


def structures():
    def swap(self, pair, *, options):
        return Pair(pair[1], [options["a"], {"b": pair[0]}])

    return torch.export.export(module(swap), ((torch.randn(2), torch.randn(3)),), {"options": {"a": torch.ones(1)}})


def kinds_of_arguments():
    def make(self, x, index):
        y = torch.full_like(x, math.inf, dtype=torch.float64, memory_format=torch.channels_last)
        z = torch.zeros([2, 0], dtype=torch.float16, device="cpu", layout=torch.strided)
        w = x[:, None, index].clamp(-math.inf).permute([0, 1, 2, 3, 4]).to(torch.complex64) * (1 + 2j)
        return y, z, w, torch.einsum("abcd->dcba", x), x.new_empty((), dtype=torch.bool).fill_(True)

    return torch.export.export(module(make), (torch.randn(2, 3, 4, 5), torch.tensor([1])))


def mutations():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))
            self.register_buffer("seen", torch.zeros(1), persistent=False)
            self.offset = torch.ones(2)

        def forward(self, x):
            self.count.add_(1)
            x.mul_(2)
            return x + self.count + self.offset + self.seen

    return torch.export.export(Counter(), (torch.randn(2),))


def annotated():
    program = layers()
    for node in program.graph.nodes:
        node.meta["custom"] = {"at": node.name, "list": [1, 2.5, None]}
    program.graph_module.meta["custom"] = {"by": "test"}
    return program


def decomposed():
    return layers().run_decompositions()


def shared_weights():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    return torch.export.export(nn.Sequential(first, second), (torch.randn(2, 3),))


def fakes():
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        made, example = nn.Linear(3, 4), torch.randn(2, 3)
    return torch.export.export(made, (example,))


PROGRAMS = (
    layers,
    dynamic,
    unbacked,
    subgraphs,
    many_outputs,
    constants,
    structures,
    kinds_of_arguments,
    mutations,
    annotated,
    decomposed,
    shared_weights,
    fakes,
)
_made: dict = {}


def program(make):
    if make not in _made:
        _made[make] = make()
    return _made[make]


def save(program, **options):
    file = io.BytesIO()
    torch.export.save(program, file, **options)
    return file.getvalue()


def load(data):
    return torch.export.load(io.BytesIO(data))


def serialized(program):
    """The program as an object of the schema, as torch makes it."""
    return serialize.ExportedProgramSerializer().serialize(program).exported_program


def outcome(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)


def accelerated(function, *args, **kwargs):
    with fastexport.accelerate():
        return function(*args, **kwargs)


def hits(name):
    return table()[name].hits


@contextlib.contextmanager
def only_hits(*names):
    """The entries do all that they are asked for themselves."""
    before = {name: (table()[name].hits, table()[name].asides) for name in names}
    yield
    for name, (done, left) in before.items():
        assert table()[name].hits > done and table()[name].asides == left, table()[name]
