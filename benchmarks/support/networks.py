"""Networks at their usual sizes, with random weights, for the benchmarks of speed and memory.

They need nothing beyond torch. What is trained would compute the same thing for as long.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and the input added to their result."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet18(nn.Module):
    """The usual one: 224 by 224 pixels, 1000 classes, 11.7 million weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = (64, 64, 128, 256, 512)
        blocks = [
            Block(widths[stage] if first else widths[stage + 1], widths[stage + 1], 1 + stride)
            for stage in range(4)
            for first, stride in ((True, int(stage > 0)), (False, 0))
        ]
        self.layers = nn.Sequential(*blocks)
        self.fc = nn.Linear(512, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(image))))
        return self.fc(self.layers(x).mean(dim=(2, 3)))


class BertLayer(nn.Module):
    """Self-attention and a feed-forward net, a layer norm behind each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        x = self.norm1(x + self.output(mixed))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """An encoder of BERT-base's size: 12 layers of width 768, 109 million weights."""

    def __init__(self, layers: int = 12, width: int = 768, words: int = 30522) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, width // 64) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.words(tokens) + self.positions.weight[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Wide(nn.Module):
    """A stack of square matrices: ``layers`` of them, ``width`` squared weights each."""

    def __init__(self, layers: int = 16, width: int = 4096) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


class Mlp(nn.Module):
    """Three matrices."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, width), nn.GELU(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 8)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class SmallConv(nn.Module):
    """Two residual blocks over an image of 16 by 16."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(4, width, 2), Block(width, width, 1))
        self.head = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x.unflatten(-1, (4, 16, 16))).mean(dim=(2, 3)))


class SmallEncoder(nn.Module):
    """One transformer layer over a sequence of 12."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.enter = nn.Linear(8, width)
        self.layer = BertLayer(width, 4)
        self.leave = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.layer(self.enter(x.unflatten(-1, (12, 8)))).mean(1))


class Gated(nn.Module):
    """A gated unit behind a convolution in time."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 2 * width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.glu(self.conv(x.unflatten(-1, (6, 20))), dim=1)
        return F.log_softmax(self.head(self.norm(y).amax(-1)), dim=-1)
