"""What tests of tracing share: a program traced by torch and by us, with the outcomes compared, and small models."""

import copy
import math
import warnings

import torch
import torch.nn.functional as F
from torch import fx, nn

import traced_programs
from fastexport import Tracer
from helpers import plain


def facts(node):
    """All that tracing decides of a node but its target, which may be a class made twice."""
    meta = {key: value for key, value in node.meta.items() if key != "nn_module_stack"}
    stack = list(node.meta.get("nn_module_stack", {}).items())
    return node.name, node.op, str(node.target), plain(node.args), plain(node.kwargs), node.type, meta, stack


def check_same(ours, theirs):
    """A Graph of ours is the one torch's tracer gave."""
    assert str(ours) == str(theirs)
    assert [facts(node) for node in ours.nodes] == [facts(node) for node in theirs.nodes]
    assert [node.target for node in ours.nodes] == [node.target for node in theirs.nodes]
    ours.lint()


def traced_twice(root, tracer=Tracer, torch_tracer=fx.Tracer, **options):
    """Our graph and tracer, torch's graph and tracer; checked to be the same."""
    theirs, ours = torch_tracer(), tracer()
    again = copy.deepcopy(root) if isinstance(root, nn.Module) else root  # constants are put into a module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, graph = theirs.trace(root, **options), ours.trace(again, **options)
    check_same(graph, wanted)
    assert ours.node_name_to_scope == theirs.node_name_to_scope
    assert ours.num_calls == theirs.num_calls
    return graph, ours, wanted, theirs


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return equal(vars(a), vars(b)) if isinstance(a, traced_programs.Box) else a == b


# ---- models


def small_mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Sequential(nn.Linear(8, 2), nn.LayerNorm(2)))


class Residual(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width, 2 * width, 3, stride, padding=1, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(2 * width), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(2 * width, 2 * width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.downsample = nn.Sequential(nn.Conv2d(width, 2 * width, 1, stride, bias=False), nn.BatchNorm2d(2 * width))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Sequential(Residual(1, 1), Residual(2, 2)), Residual(4, 2))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


class RotaryAttention(nn.Module):
    """Attention as the llama models of transformers write it, in what can be traced."""

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads, self.size = heads, width // heads
        for name in "qkvo":
            setattr(self, f"{name}_proj", nn.Linear(width, width, bias=False))
        angles = torch.outer(torch.arange(8.0), 1.0 / 10 ** torch.arange(0, self.size, 2))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin(), persistent=False)

    def rotate(self, x):
        a, b = x[..., : self.size // 2], x[..., self.size // 2 :]
        return x * self.cos + torch.cat((-b, a), dim=-1) * self.sin

    def forward(self, hidden_states, attention_mask=None):
        batch, length, _ = hidden_states.shape
        shape = (batch, length, self.heads, self.size)
        q, k, v = (f(hidden_states).view(shape).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotate(q), self.rotate(k)
        weights = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.size) + attention_mask
        weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj(torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, -1).contiguous())


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = RotaryAttention()
        self.input_layernorm = RmsNorm()
        self.post_attention_layernorm = RmsNorm()
        self.gate, self.up, self.down = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, hidden_states, attention_mask):
        hidden_states = hidden_states + self.self_attn(
            self.input_layernorm(hidden_states), attention_mask=attention_mask
        )
        normed = self.post_attention_layernorm(hidden_states)
        return hidden_states + self.down(F.silu(self.gate(normed)) * self.up(normed))


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        hidden_states = hidden_states * torch.rsqrt(hidden_states.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * hidden_states.to(dtype)


class LlamaLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(10, 16)
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(3)])
        self.norm = RmsNorm()

    def forward(self, input_ids, attention_mask):
        hidden_states = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask)
        return {"last_hidden_state": self.norm(hidden_states)}
