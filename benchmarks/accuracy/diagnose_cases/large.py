"""Models as large as real ones, in torch.nn alone, and exporters that put one wrong node into them."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from onnx_ir import AttrString
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mixed = torch.softmax(scores, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.last = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + self.attention(x))
        return self.last(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """An encoder of BERT-base's size where nothing else is said: 109 million parameters."""

    def __init__(
        self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.words(tokens) + self.places(torch.arange(tokens.shape[1])))
        for layer in self.layers:
            x = layer(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Wide(nn.Module):
    """A stack of square layers, 64 MiB of weights each."""

    def __init__(self, layers: int = 16, width: int = 4096) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return x


def one_gelu_tanh(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Export with the approximated GELU in the place of one in the middle."""
    program = torch.onnx.export(module, (), kwargs=example, dynamo=True, verbose=False)
    assert program is not None
    gelus = [node for node in program.model.graph if node.op_type == "Gelu"]
    gelus[len(gelus) // 2].attributes["approximate"] = AttrString("approximate", "tanh")
    program.save(str(path), external_data=True)
