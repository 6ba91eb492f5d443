"""What tests of CSE, folding and no-op removal share: random programs that write, and all that is seen of a run."""

import copy

import hypothesis.strategies as st
import torch
from torch import fx
from torch.fx.passes.shape_prop import ShapeProp

from fx_graphs import aten

SHAPE = (2, 3)
_UNARY = [aten.cos.default, aten.neg.default, aten.relu.default, aten.clone.default, aten.alias.default]
_BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor]
_WRITES = [aten.add_.Tensor, aten.mul_.Tensor, aten.copy_.default]
_NUMBERS = [0, 1, 0.0, 1.0, -0.0, 2]


@st.composite
def programs(draw, *, writes=True, constants=False):
    """A GraphModule of two inputs, its nodes of few kinds so that many are equal."""
    root = torch.nn.Module()
    root.register_buffer("scale", torch.tensor([[1.5, -2.0, 0.0], [3.0, 1.0, -1.0]]))
    root.weight = torch.nn.Parameter(torch.ones(SHAPE), requires_grad=False)
    graph = fx.Graph()
    pool = [graph.placeholder("x"), graph.placeholder("y")]
    if constants:
        pool += [graph.get_attr("scale"), graph.get_attr("weight"), graph.get_attr("scale")]
    kinds = ["unary", "binary", "number", "view", "random", "cast"] + ["write"] * 2 * writes
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(kinds))
        node = draw(st.sampled_from(pool))
        if kind == "unary":
            new = graph.call_function(draw(st.sampled_from(_UNARY)), (node,))
        elif kind == "binary":
            new = graph.call_function(draw(st.sampled_from(_BINARY)), (node, draw(st.sampled_from(pool))))
        elif kind == "number":
            new = graph.call_function(draw(st.sampled_from(_BINARY)), (node, draw(st.sampled_from(_NUMBERS))))
        elif kind == "view":
            target, args = draw(
                st.sampled_from(
                    [
                        (aten.view.default, ([2, 3],)),
                        (aten.slice.Tensor, (0, 0, 2)),
                        (aten.expand.default, ([2, 3],)),
                        (aten.reshape.default, ([2, 3],)),
                    ]
                )
            )
            new = graph.call_function(target, (node, *args))
        elif kind == "random":
            new = graph.call_function(aten.dropout.default, (node, 0.5, draw(st.booleans())))
        elif kind == "cast":
            new = graph.call_function(aten.to.dtype, (node, torch.float32, False, draw(st.booleans())))
        else:
            new = graph.call_function(draw(st.sampled_from(_WRITES)), (node, draw(st.sampled_from(pool))))
        pool.append(new)
    graph.output(tuple(draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))))
    return fx.GraphModule(root, graph)


def propagate(module):
    """The module with meta["val"] at each node."""
    inputs = [torch.ones(SHAPE), torch.ones(SHAPE)]

    class Values(ShapeProp):
        def run_node(self, n):
            result = super().run_node(n)
            if isinstance(result, torch.Tensor):
                n.meta["val"] = result.detach().clone() if result.is_contiguous() else result.detach()
            return result

    Values(copy.deepcopy(module)).propagate(*inputs)
    twin = copy.deepcopy(module)
    Values(twin).propagate(*inputs)
    for node, source in zip(module.graph.nodes, twin.graph.nodes, strict=True):
        node.meta.update({key: value for key, value in source.meta.items() if key == "val"})
    return module


def bits(value):
    return value.contiguous().view(torch.int32).tolist()


def seen(module):
    """All that is seen of a run: results, what was done to the inputs and the module, and random numbers drawn."""
    module = copy.deepcopy(module)
    torch.manual_seed(0)
    inputs = [torch.tensor([[1.0, -2.0, 0.5], [-0.25, 4.0, 7.0]]), torch.tensor([[3.0, -1.0, 2.0], [5.0, 0.75, -6.0]])]
    results = module(*inputs)
    state = [*module.parameters(), *(b for name, b in module.named_buffers() if not name.startswith("_folded"))]
    return [bits(t) for t in (*results, *inputs, *state)], torch.rand(1).item()
