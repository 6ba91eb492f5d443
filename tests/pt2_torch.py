"""What torch needs to know before it can load the samples: their custom operators and classes."""

import collections
import copy
import dataclasses
import sys
import types
import warnings

import torch

# The samples name their classes as members of a module gen_samples.
_Pair = collections.namedtuple("NT", ["p", "q"])


@dataclasses.dataclass
class _Record:
    feature: torch.Tensor
    bias: int
    opt: torch.Tensor | None = None


def _register_classes():
    module = types.ModuleType("gen_samples")
    for name, cls in (("NT", _Pair), ("DC", _Record)):
        cls.__module__, cls.__name__, cls.__qualname__ = "gen_samples", name, name
        setattr(module, name, cls)
    sys.modules["gen_samples"] = module
    torch.utils._pytree._register_namedtuple(_Pair, serialized_type_name="gen_samples.NT")
    torch.export.register_dataclass(_Record, serialized_type_name="gen_samples.DC")
    torch.serialization.add_safe_globals([_Pair, _Record])


def _register_operators():
    library = torch.library.Library("fxsample", "DEF")

    def define(schema, function):
        name = schema.split("(")[0]
        library.define(schema)
        torch.library.impl(library, name, "CompositeExplicitAutograd")(function)
        torch.library.register_fake(f"fxsample::{name}", function, lib=library)

    define('twice(Tensor x, SymInt k=2, str tag="t") -> Tensor', lambda x, k=2, tag="t": x * k)
    define(
        "pair(Tensor[] xs, bool[] flags, Tensor? w=None) -> (Tensor, Tensor)",
        lambda xs, flags, w=None: (xs[0].clone(), xs[1].clone()),
    )
    define(
        "mix(Tensor x, SymInt n) -> (Tensor, Tensor[], Tensor)",
        lambda x, n: (x.clone(), [x + i for i in range(n)], x.sum()),
    )

    def addto(x, y, out2=None):
        x.add_(y)

    def addto_ret(x, y, k):
        x.add_(y)
        return y * k

    define("addto(Tensor(a0!) x, Tensor y, Tensor? out2=None) -> ()", addto)
    define("addto_ret(Tensor(a0!) x, Tensor y, float k) -> Tensor", addto_ret)
    return library


_register_classes()
_library = _register_operators()


def load(path_or_file):
    """torch.export.load without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.load(path_or_file)


def flat_outputs(program, inputs):
    """All results of a program for some inputs, flat. Memory that nobody has written to is filled, to be the same."""
    args, kwargs = copy.deepcopy(inputs)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.no_grad():
            return torch.utils._pytree.tree_leaves(program.module()(*args, **kwargs))
    finally:
        torch.use_deterministic_algorithms(False)


def same(a, b):
    """Bit for bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    return type(a) is type(b) and a == b
