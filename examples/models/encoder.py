"""A transformer encoder for text classification, with a padding mask."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Self-attention over the positions where ``mask`` is true."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, seq, width = x.shape
        parts = self.qkv(x).view(batch, seq, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        # The smallest finite number, not -inf: a row of nothing but padding must not become NaN.
        scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, width))


class Layer(nn.Module):
    """Attention and a feed-forward network, each normalised first and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Class scores of a sentence.

    ``tokens`` is int64[batch, seq] and ``mask`` is bool[batch, seq], true where a token is real;
    returns float32[batch, classes]. ``seq`` is at most ``positions``.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        positions: int = 128,
        classes: int = 5,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(positions, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x, mask)
        weight = mask.unsqueeze(-1).to(x.dtype)
        pooled = (self.norm(x) * weight).sum(1) / weight.sum(1).clamp(min=1)
        return self.head(pooled)
