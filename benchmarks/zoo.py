"""Real models with many layers and tiny widths: graphs of a real shape, quick to make and to run.

The architectures are those of transformers, made from a config with random weights (nothing is
downloaded), and a MobileNetV2. `build` gives a module in eval mode and example arguments;
torch.export takes them as they are.
"""

import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import nn

Args = tuple[torch.Tensor, ...]

BATCH, TOKENS, WORDS, PIXELS = 2, 8, 128, 32


class Part(nn.Module):
    """A model of transformers, of whose result one tensor is wanted."""

    def __init__(self, model: nn.Module, result: str, *inputs: str, **options: Any):
        super().__init__()
        self.model = model
        self.result, self.inputs, self.options = result, inputs, options

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        given = dict(zip(self.inputs, args, strict=True))
        return getattr(self.model(**given, **self.options), self.result)


def _words() -> torch.Tensor:
    return torch.randint(0, WORDS, (BATCH, TOKENS))


def _image() -> torch.Tensor:
    return torch.randn(BATCH, 3, PIXELS, PIXELS)


def bert(layers: int) -> tuple[nn.Module, Args]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        attn_implementation="eager",
    )
    model = BertModel(config, add_pooling_layer=False)
    mask = torch.ones(BATCH, TOKENS, dtype=torch.long)
    return Part(model, "last_hidden_state", "input_ids", "attention_mask"), (_words(), mask)


def llama(layers: int) -> tuple[nn.Module, Args]:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        max_position_embeddings=32,
        attn_implementation="eager",
        use_cache=False,
    )
    model = LlamaModel(config)
    return Part(model, "last_hidden_state", "input_ids", use_cache=False), (_words(),)


def vit(layers: int) -> tuple[nn.Module, Args]:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=PIXELS,
        patch_size=8,
        attn_implementation="eager",
    )
    model = ViTModel(config, add_pooling_layer=False)
    return Part(model, "last_hidden_state", "pixel_values"), (_image(),)


def _shared_out(blocks: int, shares: tuple[int, ...]) -> list[int]:
    """As many blocks as asked for, in stages whose lengths are to each other as the shares."""
    whole, depths, before = sum(shares), [], 0
    for i in range(len(shares)):
        upto = round(blocks * sum(shares[: i + 1]) / whole)
        depths.append(max(1, upto - before))
        before = upto
    return depths


def resnet(layers: int) -> tuple[nn.Module, Args]:
    from transformers import ResNetConfig, ResNetModel

    depths = _shared_out(layers, (3, 4, 6, 3))  # 16 blocks: ResNet-50
    config = ResNetConfig(embedding_size=8, hidden_sizes=[32] * 4, depths=depths, layer_type="bottleneck")
    return Part(ResNetModel(config), "pooler_output", "pixel_values"), (_image(),)


class InvertedResidual(nn.Module):
    """The block of MobileNetV2: expand, convolve each channel, project; added to its input."""

    def __init__(self, inside: int, outside: int, stride: int, expand: int):
        super().__init__()
        wide = inside * expand
        parts: list[nn.Module] = []
        if expand != 1:
            parts += [nn.Conv2d(inside, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        parts += [
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        ]
        self.body = nn.Sequential(*parts)
        self.skips = stride == 1 and inside == outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.skips else self.body(x)


def mobilenet(layers: int) -> tuple[nn.Module, Args]:
    stages = [(1, 8, 1), (6, 8, 2), (6, 8, 2), (6, 16, 2), (6, 16, 1), (6, 24, 2), (6, 24, 1)]
    depths = _shared_out(layers, (1, 2, 3, 4, 3, 3, 1))  # 17 blocks: MobileNetV2
    parts: list[nn.Module] = [
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
    ]
    channels = 8
    for (expand, outside, stride), depth in zip(stages, depths, strict=True):
        for i in range(depth):
            parts.append(InvertedResidual(channels, outside, 1 if i else stride, expand))
            channels = outside
    parts += [
        nn.Conv2d(channels, 64, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    ]
    return nn.Sequential(*parts), (_image(),)


class Model(NamedTuple):
    make: Callable[[int], tuple[nn.Module, Args]]
    layers: int  # by default: some 3,000 nodes when exported
    title: str


MODELS = {
    "bert": Model(bert, 64, "BERT encoder"),
    "llama": Model(llama, 36, "Llama decoder"),
    "vit": Model(vit, 72, "Vision Transformer"),
    "resnet": Model(resnet, 110, "ResNet, bottleneck blocks"),
    "mobilenet": Model(mobilenet, 110, "MobileNetV2, inverted residual blocks"),
}


def build(name: str, layers: int | None = None) -> tuple[nn.Module, Args]:
    """A model of the zoo in eval mode, with example arguments; the same weights every time.

    Args:
        name: a key of `MODELS`.
        layers: how many blocks of the kind the model repeats; its default when None.
    """
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(0)
    model = MODELS[name]
    module, args = model.make(model.layers if layers is None else layers)
    return module.eval(), args


def export(name: str, layers: int | None = None) -> torch.export.ExportedProgram:
    """The model exported by torch.export."""
    module, args = build(name, layers)
    with torch.no_grad():
        return torch.export.export(module, args)
