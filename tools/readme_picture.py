"""Draw docs/images/model.svg, the picture in the README: a small vision transformer, exported and drawn to two levels.

python tools/readme_picture.py
"""

from __future__ import annotations

from pathlib import Path

import torch

import fastexport

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "model.svg"


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out(torch.nn.functional.scaled_dot_product_attention(query, key, value))


class Classifier(torch.nn.Module):
    def __init__(self, width: int = 64, blocks: int = 12, classes: int = 10) -> None:
        super().__init__()
        self.embed = torch.nn.Conv2d(3, width, 8, stride=8)
        self.blocks = torch.nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = torch.nn.Linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.embed(image).flatten(2).transpose(1, 2)
        return self.head(self.blocks(patches).mean(1))


def main() -> None:
    program = torch.export.export(Classifier().eval(), (torch.randn(1, 3, 64, 64),))
    drawn = fastexport.from_export(program)
    for node in drawn.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of whoever drew it
    fastexport.draw(drawn, PICTURE, depth=3)


if __name__ == "__main__":
    main()
