"""Five architectures that the examples do not have, each as small as it can be."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SEED = 0


class DecoderStep(nn.Module):
    """One token behind a cache of keys and values."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(50, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, 50)

    def forward(self, token: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embed(token)
        batch, steps, width = x.shape
        q, k, v = (
            part.reshape(batch, steps, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        scores = (q @ keys.transpose(-1, -2)) / math.sqrt(width // self.heads)
        mixed = (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, steps, width)
        return self.out(mixed + x), keys, values


class Gru(nn.Module):
    """A bidirectional GRU and a classifier on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, signal: Tensor) -> Tensor:
        return self.head(self.gru(signal)[0].mean(1))


class SpeechFrontEnd(nn.Module):
    """Log-mel energies of a wave: frames, a window, a Fourier transform as a product, a filter bank."""

    def __init__(self, size: int = 64, hop: int = 32, mels: int = 12) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        time = torch.arange(size)[:, None] * torch.arange(size // 2 + 1)[None]
        angle = 2 * math.pi * time / size
        window = torch.hann_window(size)[:, None]
        self.register_buffer("cosine", angle.cos() * window)
        self.register_buffer("sine", angle.sin() * window)
        self.register_buffer("filters", torch.rand(size // 2 + 1, mels))

    def forward(self, wave: Tensor) -> Tensor:
        frames = wave.unfold(1, self.size, self.hop)
        power = (frames @ self.cosine) ** 2 + (frames @ self.sine) ** 2
        return torch.log(power @ self.filters + 1e-6)


class GraphNetwork(nn.Module):
    """Two rounds of messages, each summed at the node that it goes to."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        for _ in range(2):
            sent = F.relu(self.message(nodes))[edges[0]]
            nodes = self.update(nodes) + torch.zeros_like(nodes).index_add(0, edges[1], sent)
        return nodes


class Bag(nn.Module):
    """The mean of the embeddings of a fixed number of words."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(100, 16, mode="mean")
        self.head = nn.Linear(16, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.bag(words))


def build(name: str) -> nn.Module:
    """Return one of them with fixed weights."""
    torch.manual_seed(SEED)
    module: nn.Module = globals()[name]().eval()
    return module
