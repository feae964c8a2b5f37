"""A tiny decoder-only language model with rotary position embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (i, i + d/2) of [batch, heads, seq, d] by the angle of its position."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Block(nn.Module):
    """Causal attention and a gated feed-forward network, on [batch, seq, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width, eps=1e-6)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, seq, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True
        )
        x = x + self.out(seen.transpose(1, 2).reshape(batch, seq, width))
        hidden = self.norm2(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


class GPT(nn.Module):
    """Scores of the next token at every position: int64[batch, seq] -> [batch, seq, vocabulary].

    ``seq`` is at most ``context``. The output layer shares its weights with the embedding.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self, vocabulary: int, width: int = 48, heads: int = 4, layers: int = 2, context: int = 64
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        half = width // heads // 2
        frequency = 10000.0 ** (-torch.arange(half) / half)
        angle = torch.outer(torch.arange(context), frequency)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        seq = tokens.shape[1]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos[:seq], self.sin[:seq])
        return F.linear(self.norm(x), self.embedding.weight)
