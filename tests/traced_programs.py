"""Programs for the tests of tracing and running: functions and modules, with inputs to run them on."""

import collections
import dataclasses
import enum
import functools
import math
import operator
from math import sqrt

import torch
import torch.nn.functional as F
from torch import fx, nn

import fastexport

Point = collections.namedtuple("Point", "x y")


class Mode(enum.Enum):
    FAST = 1


@dataclasses.dataclass
class Box:
    value: object
    scale: float = 2.0


@fastexport.wrap
def wrapped_by_us(x, scale=1):
    return x * scale if x.sum() > 0 else -x


@fx.wrap
def wrapped_by_torch(x):
    return x if bool(x.sum() > 0) else x + 1


fastexport.wrap("len")
fx.wrap("sum")


def takes_point(pair):
    return pair.x + pair.y


fx.wrap("takes_point")


def unbox(box):
    return box.value * box.scale


fx.wrap("unbox")


def lookup(table, key):
    return table[key]


fx.wrap("lookup")


class Pair(metaclass=fx.ProxyableClassMeta):
    def __init__(self, left, right):
        self.left, self.right = left, right

    def add(self, other):
        return Pair(self.left + other.left, self.right + other.right)


# ---- functions


def operators(x, y):
    a = (x + y) - (x - y) * (x / 2) // 3
    b = a % 7 + (2 - x) + (2 * y) + (2 / (x + 10)) + (9 // (x + 10)) + (7 % (y + 10)) + x**2 + 2.0 ** (x / 10)
    c = (-b, +a, abs(a), x @ y, x.T @ torch.ones(2, 2))
    d = (x < y, x <= y, x == y, x != y, x > y, x >= y, x > 1)
    return c, d


def bits(x, y):
    m, n = x > 0, y > 0
    i = x.int()
    return (m & n, m | n, m ^ n, ~m, True & m, False | n, True ^ m, i << 1, i >> 1, 1 << i.abs(), 64 >> i.abs())


def in_place(x, y):
    x = x.clone()
    x += y
    x -= 1
    x *= 2
    x.add_(y)
    return x


def indexing(x, y):
    return x[0], x[0, 1], x[:, 1:], x[..., None], x[None], x[1:2, ::1], x[[0, 1]], x[x > 0], x[y.long() * 0]


def unpacking(x, y):
    a, b = x
    (c, d), e = torch.unbind(y), x.shape[0]
    return a + d, b + c, e


def methods(x, y):
    return x.relu().add(y, alpha=2).view(-1).sum(dim=0, keepdim=True), x.to(torch.float64), x.to("cpu"), x.type_as(y)


def attributes(x, y):
    return x.shape, x.dtype, x.size(0), x.shape[1], x.T, x.ndim, x.device, x.is_cuda, y.requires_grad


def torch_functions(x, y):
    a = torch.add(x, y, alpha=3)
    b = F.relu(a, inplace=False)
    c = torch.cat([x, y, a], dim=-1)
    d, i = torch.max(c, 1)
    e = torch.where(x > 0, x, y)
    f = torch.stack((x, y)), torch.split(c, [2, 4], dim=1), torch.clamp(x, min=0.0)
    return b, c, d, i, e, f, torch.sum(x, dim=(0, 1)), torch.ones_like(x, dtype=torch.int64), F.pad(x, (1, 1))


def containers(x, y):
    return {"a": x + 1, "b": [y, (x, {"c": y * 2})], "n": None, "s": slice(0, 2)}, 3, "text", 1.5, 2j, ...


def constants(x, y):
    return x + torch.tensor([1.0, 2.0]) + torch.tensor([3.0, 4.0]), torch.eye(2) @ x, y.new_zeros(2)


def maths(x, y):
    return math.sqrt(x.sum().abs()), sqrt(y.abs().max()), math.floor(x.mean() + 9)


def wrapped(x, y):
    return wrapped_by_us(x, scale=y), wrapped_by_torch(y), len(x), sum([x, y]), len([1, 2])


def named_tuples(x, y):
    return takes_point(Point(x, y)), takes_point(Point(x, 1)), takes_point(pair=Point(2, y))


def dataclasses_and_enums(x, y):
    return unbox(Box(x)), unbox(Box(y, scale=3.0)), lookup({Mode.FAST: 1, 2: 3}, 2) + x


def loops(x, y):
    for i in range(3):
        x = x + i if i % 2 else x * y
    return [x + i for i in range(2)], *(y - i for i in range(2))


def same_names(x, y):
    add, relu, x_1 = x + y, x.relu(), x * 2
    return add + add, relu.relu(), x_1, torch.relu(x), torch.add(x, y), x.add(y)


def annotated(x: torch.Tensor, y: "torch.Tensor" = 1) -> torch.Tensor:
    return x + y


def defaults(x, y=2, *, scale=3.0, flag=None):
    return (x + y) * scale


def starred(x, *args, **kwargs):
    return x + args[0], kwargs["y"]


def only_starred(*args):
    return args[0] + args[1]


def keywords_only(x, *, y):
    return x - y


def positional_only(x, /, y):
    return x - y


def nothing(x, y):
    pass


def ignores(x, y):
    return 1


def same_value(x, y):
    return x, x, (y,)


def writes_out(x, y):
    z = torch.zeros(2, 2)
    torch.add(x, y, out=z)
    return z


def makes_pairs(x, y):
    return Pair(x, y).add(Pair(y, x)).left


def factories(x, y):
    return torch.zeros(2) + x, torch.full_like(y, 2), torch.arange(2, dtype=x.dtype) + torch.full((2,), 3.0)


def integer_keys(x, y):
    return {1: x, 2: [y]}, {True: x, None: y}


def returns_dataclass(x, y):
    return Box(x, scale=y)


def returns_named_tuple(x, y):
    return Point(x, [y])


def named_results(x, y):
    values, indices = torch.max(x, dim=1)
    return values + y.max(dim=0).values, indices, torch.topk(x, 1)[0]


def torch_objects(x, y):
    return torch.zeros_like(x, layout=torch.strided, device=torch.device("cpu"), memory_format=torch.preserve_format)


def operators_of_torch(x, y):
    return torch.ops.aten.add.Tensor(x, y), torch.ops.aten.relu.default(x), torch.ops.aten.mul(x, 2)


def functions_as_values(x, y):
    return list(map(torch.neg, (x, y))), functools.reduce(operator.add, [x, y, 1]), max([1, 2]), sorted([2, 1])


def getattr_and_operator(x, y):
    return getattr(x, "shape"), operator.getitem(x, 0), operator.add(1, x), operator.neg(y)  # noqa: B009


def closures(x, y):
    scale = 3

    def inner(z, *, by=scale):
        return z * by + y

    return inner(x), (lambda z: z - scale)(y)


FUNCTIONS = [
    integer_keys,
    returns_dataclass,
    returns_named_tuple,
    named_results,
    torch_objects,
    operators_of_torch,
    functions_as_values,
    getattr_and_operator,
    closures,
    operators,
    bits,
    in_place,
    indexing,
    unpacking,
    methods,
    attributes,
    torch_functions,
    containers,
    constants,
    maths,
    named_tuples,
    dataclasses_and_enums,
    loops,
    same_names,
    annotated,
    defaults,
    starred,
    only_starred,
    keywords_only,
    positional_only,
    nothing,
    ignores,
    same_value,
    writes_out,
    factories,
    makes_pairs,
]


def asserts(x):
    assert x.sum() > 0, "positive"  # not in a file that pytest rewrites
    assert x is not None
    return x + 1


# ---- modules


class Parts(nn.Module):
    """Parameters, buffers, constants and shared values, read in every way."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        self.tied = self.weight
        self.register_buffer("mean", torch.tensor([0.5, -0.5]))
        self.plain = torch.tensor(2.0)
        self.linear = nn.Linear(2, 2)
        self.number = 3

    def forward(self, x, y):
        a = F.linear(x, self.weight, self.linear.bias) + self.mean
        b = a * self.tied * self.number + self.plain
        c = torch.add(self.mean, y) + self.linear.weight.t()
        return b, c, self.weight + self.weight, self.weight.shape


class Block(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.act = nn.ReLU()
        self.inner = Block(depth - 1) if depth else None
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        x = self.act(self.linear(x)) * self.scale
        return x if self.inner is None else self.inner(x) + self.inner(x)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(2), Block(0)])
        self.seq = nn.Sequential(nn.Linear(2, 2), Block(1), nn.Sequential(nn.Tanh()))
        self.shared = self.blocks[1]
        self.table = nn.ModuleDict({"a": nn.Identity()})

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        return self.seq(x) + self.shared(y), self.table["a"](y), self.seq[0](x)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1)
        self.norm = nn.BatchNorm2d(2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(2, 2)
        self.eval()

    def forward(self, x, y):
        x = self.pool(F.relu(self.norm(self.conv(x[None, None]))))
        return self.drop(self.fc(torch.flatten(x, 1))) + y.mean(0)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(2, 2)

    def forward(self, x, y):
        out, (h, c) = self.cell(x[None])
        return out + y, h, c


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(2, 4, bias=False) for _ in range(3))
        self.out = nn.Linear(4, 2)

    def forward(self, x, y=None):
        n = x.size(0)
        q, k, v = (f(x).view(n, 2, -1).transpose(0, 1) for f in (self.q, self.k, self.v))
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(2), dim=-1)
        return self.out((weights @ v).transpose(0, 1).reshape(n, -1)) + y


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(nn.Sequential(nn.ReLU()))
        self.layer = torch.jit.script(nn.Linear(2, 2))

    def forward(self, x, y):
        return self.layer.forward(x) + y


class Methods(nn.Module):
    """Methods that are no forward, and modules that call each other's."""

    def __init__(self):
        super().__init__()
        self.part = Attention()
        self.register_buffer("table", torch.arange(12.0).view(6, 2))

    def encode(self, x):
        return self.part.q(x) + self.part.k(x) + self.table[:2].sum()

    def forward(self, x, y):
        return self.encode(x) @ self.part.out.weight.t() + F.relu(self.encode(y)).mean()


MODULES = [Scripted, Methods, Parts, Nested, Convolutions, Recurrent, Attention]


def inputs():
    return torch.tensor([[1.0, -2.0], [3.0, 0.5]]), torch.tensor([[2.0, 2.0], [-1.0, 4.0]])
