"""A decoder as large as asked for, and faults that its export alone has."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width: int, fault: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.fault = fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        eps = 1e-3 if self.fault and torch.compiler.is_exporting() else 1e-6
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.weight


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    one, two = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, fault: str = "") -> None:
        super().__init__()
        self.heads, self.fault = heads, fault
        self.before = RMSNorm(width, fault == "eps")
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.between = RMSNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        size = width // heads // 2
        self.register_buffer("frequencies", 1e4 ** (-torch.arange(size) / size), persistent=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        wrong = self.fault if torch.compiler.is_exporting() else ""
        batch, seq, width = x.shape
        places = torch.arange(seq, device=x.device) + (wrong == "rotary")
        angles = places[:, None] * self.frequencies
        q, k, v = (
            self.qkv(self.before(x)).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        q, k = rotated(q, angles), rotated(k, angles[:1] if wrong == "rotary" else angles)
        if wrong == "mask":
            mask = torch.where(mask < 0, -4.0, 0.0)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(found.transpose(1, 2).reshape(batch, seq, width))
        y = self.between(x)
        up = self.up(y)
        if wrong == "weight":  # as if one number of the matrix were another
            up = up + 0.25 * y[..., 3:4] * F.one_hot(torch.tensor(5), up.shape[-1])
        return x + self.down(F.silu(self.gate(y)) * up)


class WrongHead(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wrong = torch.compiler.is_exporting()
        return F.linear(x, self.weight.roll(1, 0) if wrong else self.weight)


class Decoder(nn.Module):
    def __init__(
        self,
        width: int = 64,
        layers: int = 4,
        heads: int = 4,
        hidden: int = 128,
        vocabulary: int = 199,
        fault: str = "",
        at: int = 0,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            Layer(width, heads, hidden, fault if n == at else "") for n in range(layers)
        )
        self.norm = RMSNorm(width, fault == "last eps")
        head = WrongHead if fault == "head" else nn.Linear
        self.head = head(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        seq = ids.shape[1]
        x = self.embed(ids)
        mask = torch.full((seq, seq), -1e4, device=ids.device).triu(1)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)
        return self.head(x)
