"""Small networks of many kinds."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from _common import noise, ready
from torch import Tensor, nn


def build(name: str, *args: object, **kwargs: object) -> nn.Module:
    """The class of this file called ``name``, seeded and in evaluation mode."""
    return ready(lambda: globals()[name](*args, **kwargs))


def image_net(name: str, channels: int = 3, size: int = 32) -> nn.Module:
    """The same for a net over images, its batch norms calibrated."""
    return ready(lambda: globals()[name](), noise(8, channels, size, size))


def half(name: str) -> nn.Module:
    """The same in float16."""
    return ready(lambda: globals()[name]()).half()


def double(name: str) -> nn.Module:
    """The same in float64."""
    return ready(lambda: globals()[name]()).double()


class DeepMLP(nn.Module):
    """Thirty layers of width 64 with a skip around each pair."""

    def __init__(self, depth: int = 30, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + 0.5 * torch.tanh(layer(x))
        return x


class PlainMLP(nn.Module):
    """Five layers without any norm or skip."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [20, 64, 64, 64, 64, 8]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.silu(layer(x))
        return self.layers[-1](x)


class SmallConv(nn.Module):
    """Convolutions without a batch norm, used in float16 and float64 too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.second = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.head(x.mean(dim=(2, 3)))


class UNet(nn.Module):
    """Down, up and a skip across, over an image of any even size."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.up = nn.ConvTranspose2d(24, 12, 2, stride=2)
        self.out = nn.Conv2d(24, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        x = self.up(self.middle(F.max_pool2d(skip, 2)))
        return self.out(torch.cat([x, skip], dim=1))


class FullyConvolutional(nn.Module):
    """Height and width are dynamic; the output is resized to the input's size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(F.relu(self.stem(x)))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class SqueezeExcite(nn.Module):
    """A residual block that reweights its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.squeeze = nn.Conv2d(16, 4, 1)
        self.excite = nn.Conv2d(4, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.norm(self.conv(x)))
        gate = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return y + y * gate


class TemporalConv(nn.Module):
    """Dilated causal convolutions with a gate, over a sequence of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(8, 16, 3, dilation=2**i) for i in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for power, layer in enumerate(self.layers):
            filtered, gate = layer(F.pad(x, (2 * 2**power, 0))).chunk(2, dim=1)
            x = x + torch.tanh(filtered) * torch.sigmoid(gate)
        return x


class MixtureOfExperts(nn.Module):
    """Two of four experts per token, by a softmax over the chosen logits."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.first = nn.Parameter(torch.randn(4, 16, 32) / 4)
        self.second = nn.Parameter(torch.randn(4, 32, 16) / 6)

    def forward(self, x: Tensor) -> Tensor:
        values, chosen = self.router(x).topk(2, dim=-1)
        weights = torch.zeros_like(self.router(x)).scatter(-1, chosen, values.softmax(-1))
        hidden = F.gelu(torch.einsum("btd,edh->beth", x, self.first))
        outputs = torch.einsum("beth,ehd->betd", hidden, self.second)
        return torch.einsum("betd,bte->btd", outputs, weights)


class Rotary(nn.Module):
    """Attention with rotary position embeddings, computed in the graph."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96, bias=False)
        frequencies = 10000.0 ** (-torch.arange(0, 16, 2) / 16)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def rotate(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * self.frequencies
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-right, left], dim=-1) * sin

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = self.rotate(q) @ self.rotate(k).transpose(-1, -2) / math.sqrt(16)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


class LinearAttention(nn.Module):
    """Attention by a feature map: a ratio of two sums."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(24, 72)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = F.elu(q) + 1.0, F.elu(k) + 1.0
        context = k.transpose(1, 2) @ v
        return (q @ context) / (q @ k.sum(1).unsqueeze(-1) + 1e-6)


class Recommender(nn.Module):
    """Wide and deep with crossed features."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 8) for n in (20, 50, 7))
        self.deep = nn.Sequential(nn.Linear(24 + 5, 32), nn.ReLU(), nn.Linear(32, 1))
        self.wide = nn.Linear(29, 1)
        self.cross = nn.Linear(29, 29)

    def forward(self, categories: Tensor, dense: Tensor) -> Tensor:
        columns = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        x = torch.cat([*columns, dense], dim=1)
        crossed = x * self.cross(x) + x
        return torch.sigmoid(self.deep(crossed) + self.wide(x))


class GraphConv(nn.Module):
    """Message passing over a list of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(8, 16)
        self.own = nn.Linear(8, 16)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        messages = self.message(nodes)[edges[0]]
        summed = torch.zeros(nodes.shape[0], 16, dtype=nodes.dtype).index_add(0, edges[1], messages)
        return F.relu(self.own(nodes) + summed)


class NeuralField(nn.Module):
    """Coordinates through sines of growing frequency: ill-conditioned by construction."""

    bands: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 4))
        self.register_buffer("bands", 2.0 ** torch.arange(6) * math.pi, persistent=False)

    def forward(self, point: Tensor) -> Tensor:
        angles = (point.unsqueeze(-1) * self.bands).flatten(-2)
        return self.body(torch.cat([angles.sin(), angles.cos()], dim=-1))


class Siren(nn.Module):
    """Sines as activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 48), nn.Linear(48, 48), nn.Linear(48, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.sin(8.0 * layer(x))
        return self.layers[-1](x)


class StateSpace(nn.Module):
    """A selective scan over a fixed length, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(8, 8 * 3)
        self.decay = nn.Parameter(-torch.rand(8) - 0.5)

    def forward(self, x: Tensor) -> Tensor:
        delta, gate, value = self.inputs(x).chunk(3, dim=-1)
        delta = F.softplus(delta)
        state = torch.zeros_like(value[:, 0])
        outputs = []
        for step in range(12):
            state = state * torch.exp(delta[:, step] * self.decay) + delta[:, step] * value[:, step]
            outputs.append(state * F.silu(gate[:, step]))
        return torch.stack(outputs, dim=1)


class Capsule(nn.Module):
    """Two rounds of routing by agreement."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, 5, 8, 6) / 3)

    def forward(self, x: Tensor) -> Tensor:
        votes = torch.einsum("bni,nkij->bnkj", x, self.weight)
        logits = torch.zeros(x.shape[0], 10, 5, dtype=x.dtype)
        output = votes.mean(1)
        for _ in range(2):
            summed = (logits.softmax(-1).unsqueeze(-1) * votes).sum(1)
            square = summed.pow(2).sum(-1, keepdim=True)
            output = summed * square / (1.0 + square) / (square + 1e-6).sqrt()
            logits = logits + (votes * output.unsqueeze(1)).sum(-1)
        return output


class MixtureDensity(nn.Module):
    """The parameters of a mixture of Gaussians, of three different scales."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(10, 32)
        self.heads = nn.ModuleList(nn.Linear(32, 5) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.tanh(self.body(x))
        weight, mean, scale = (head(hidden) for head in self.heads)
        return weight.softmax(-1), mean, F.softplus(scale) + 1e-4


class Generator(nn.Module):
    """Noise to an image."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 32 * 4 * 4)
        self.up = nn.Sequential(
            nn.BatchNorm2d(32),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(32, 16, 3, padding=1),
            nn.BatchNorm2d(16, 0.8),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(16, 3, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, z: Tensor) -> Tensor:
        return self.up(self.project(z).view(-1, 32, 4, 4))


def generator() -> nn.Module:
    """The generator with calibrated batch norms."""
    return ready(Generator, noise(64, 16))


class AutoEncoder(nn.Module):
    """The deterministic path of a variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(48, 24), nn.ELU(), nn.Linear(24, 12))
        self.decode = nn.Sequential(nn.Linear(6, 24), nn.ELU(), nn.Linear(24, 48))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x).chunk(2, dim=-1)
        return self.decode(mean), mean, log_variance.clamp(-8, 8).exp()


class Siamese(nn.Module):
    """One tower, two inputs, a distance."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(18, 32), nn.GELU(), nn.LayerNorm(32))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return F.pairwise_distance(self.tower(left), self.tower(right))


class TextConv(nn.Module):
    """Tokens through convolutions of three widths and a maximum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(200, 24)
        self.convs = nn.ModuleList(nn.Conv1d(24, 16, k, padding=k - 1) for k in (2, 3, 4))
        self.head = nn.Linear(48, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens).transpose(1, 2)
        return self.head(torch.cat([F.relu(c(x)).amax(-1) for c in self.convs], dim=1))


class RungeKutta(nn.Module):
    """An explicit Runge-Kutta solver around a small field: a loop of fixed length."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 6))

    def forward(self, x: Tensor) -> Tensor:
        step = 0.1
        for _ in range(5):
            first = self.field(x)
            second = self.field(x + 0.5 * step * first)
            third = self.field(x + 0.5 * step * second)
            x = x + step / 6 * (first + 2 * second + 2 * third + self.field(x + step * third))
        return x
