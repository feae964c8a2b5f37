"""The networks into whose exported graphs ``faults.py`` seeds its faults.

They need nothing beyond torch. Their weights are seeded, so that the gate builds the very module
whose graph was changed, and their norms are calibrated, so that an epsilon or a running statistic
is neither invisible nor the only thing to be seen.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def resnet18() -> nn.Module:
    """ResNet-18 for 64 by 64 pixels in [0, 1], with its preprocessing inside."""
    return _ready(ResNet18(), torch.rand(8, 3, 64, 64, generator=_generator()))


def encoder() -> nn.Module:
    """Two transformer layers of width 64 over embedded tokens, read out at the first token."""
    return _ready(Encoder())


def upscaler() -> nn.Module:
    """A small net that pads, pools, resizes and clips."""
    return _ready(Upscaler(), torch.randn(8, 3, 16, 16, generator=_generator()))


class Block(nn.Module):
    """Two convolutions and the input added to their result."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """The usual one, but for ten classes and with the normalisation of its pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pixel_mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("pixel_std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        widths = [64, 64, 128, 256, 512]
        blocks: list[nn.Module] = []
        for stage in range(4):
            blocks.append(Block(widths[stage], widths[stage + 1], 1 if stage == 0 else 2))
            blocks.append(Block(widths[stage + 1], widths[stage + 1], 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = (image - self.pixel_mean) / self.pixel_std
        x = self.pool(F.relu(self.norm(self.stem(x))))
        return self.head(self.blocks(x).mean(dim=(2, 3)))


class Layer(nn.Module):
    """Attention and a feed-forward net, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = self.split(self.query(y)), self.split(self.key(y)), self.split(self.value(y))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(-2)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Tokens and learned positions through two layers to twelve logits."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, width)
        self.positions = nn.Embedding(64, width)
        self.layers = nn.ModuleList(Layer(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class Upscaler(nn.Module):
    """An image to one of twice its size and a score."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = F.pad(image, (1, 1, 1, 1), mode="reflect")
        x = F.leaky_relu(self.norm(self.first(x)), 0.1)
        x = F.avg_pool2d(x, 3, stride=1, padding=1)
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = F.relu6(self.second(x) * 12.0)
        return self.last(x), x.mean(dim=(2, 3))


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _ready(module: nn.Module, *sample: Tensor) -> nn.Module:
    """Refill ``module`` from a fixed seed, calibrate its batch norms, put it in ``eval()``."""
    generator = _generator()
    norms = [m for m in module.modules() if isinstance(m, (nn.BatchNorm2d, nn.LayerNorm))]
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear", generator=generator)
                if layer.bias is not None:
                    layer.bias.normal_(0.0, 0.1, generator=generator)
            elif isinstance(layer, nn.Embedding):
                layer.weight.normal_(generator=generator)
        for norm in norms:
            norm.weight.uniform_(0.6, 1.4, generator=generator)
            norm.bias.normal_(0.0, 0.2, generator=generator)
    module.eval()
    _calibrate([norm for norm in norms if isinstance(norm, nn.BatchNorm2d)], module, sample)
    return module.eval()


@torch.no_grad()
def _calibrate(norms: list[nn.BatchNorm2d], module: nn.Module, sample: tuple[Tensor, ...]) -> None:
    for norm in norms:
        norm.train()
        norm.momentum = 0.9
    if norms:
        module(*sample)
    for norm in norms:
        norm.momentum = 0.1
