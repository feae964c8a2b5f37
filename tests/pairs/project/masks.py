"""Masks, flags and binary features: forgiven where only attention over nothing should be."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, mlp, tokens
from torch import Tensor, nn
from torch.nn import functional as F


class FlagGate(Net):
    """Two experts and a flag that chooses between them."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b, self.c = mlp(24, 32, 8), mlp(24, 32, 8), mlp(24, 32, 8)

    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        return torch.where(flag, (self.c if self.wrong else self.a)(x), self.b(x))


class RowGate(Net):
    """A residual branch that each row switches on for itself."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.stem, self.branch, self.head = nn.Linear(16, 32), mlp(32, 64, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor, premium: Tensor) -> Tensor:
        h = self.stem(x)
        extra = self.branch(h)
        h = h + premium.to(h.dtype) * (-extra if self.wrong else extra)
        return self.head(torch.relu(h))


class BinaryFeature(Net):
    """A table with one binary column, embedded."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.smoker, self.body = nn.Embedding(2, 8), mlp(14, 48, 1)
        if wrong:
            self.smoker.weight.data[1] *= -1

    def forward(self, numbers: Tensor, smoker: Tensor) -> Tensor:
        return torch.sigmoid(self.body(torch.cat([numbers, self.smoker(smoker)], 1)))


class FullRoute(Net):
    """Pooling over what is visible; where everything is, a route of its own."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.proj, self.head = nn.Linear(12, 24), nn.Linear(24, 5)

    def pooled(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = mask.to(x.dtype).unsqueeze(-1)
        return (x * weights).sum(1) / (weights.sum(1) + 1.0)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = torch.tanh(self.proj(x))
        if mask.all():
            return self.head(h.mean(1))
        return self.head(self.pooled(h, mask))


class FullRouteFile(FullRoute):
    """What a careful owner exports; ``wrong`` is what a trace with one masked position gives."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = torch.tanh(self.proj(x))
        masked = self.pooled(h, mask)
        return self.head(masked if self.wrong else torch.where(mask.all(), h.mean(1), masked))


class LastVisible(Net):
    """The state at the last visible token, as sequence classifiers take it."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.conv = nn.Embedding(50, 16), nn.Conv1d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        h = torch.relu(self.conv(self.embed(ids).transpose(1, 2))).transpose(1, 2)
        first_hidden = mask.argmin(1)
        length = torch.full_like(first_hidden, 1) * mask.shape[1]
        if self.wrong:
            last = (first_hidden - 1).clamp_min(0)
        else:
            last = torch.where(first_hidden == 0, length, first_hidden) - 1
        index = last.view(-1, 1, 1).expand(-1, 1, h.shape[2])
        return self.head(h.gather(1, index).squeeze(1))


class Presence(Net):
    """Sensors that may be missing: their values, and whether they are there."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(24, 40, 6)
        if wrong:
            self.body[0].weight.data[:, 12:] *= -1

    def forward(self, values: Tensor, present: Tensor) -> Tensor:
        bits = present.to(values.dtype)
        return self.body(torch.cat([values * bits, bits], 1))


class Segments(Net):
    """A BERT in small: words, positions and two segments, self-attention, a pooled answer."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.words, self.segments = nn.Embedding(80, 32), nn.Embedding(2, 32)
        self.positions = nn.Embedding(64, 32)
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)
        if wrong:
            self.segments.weight.data[1] = 0

    def forward(self, ids: Tensor, segment_ids: Tensor) -> Tensor:
        b, n = ids.shape
        where = torch.arange(n, device=ids.device)
        h = self.norm(self.words(ids) + self.segments(segment_ids) + self.positions(where))
        q, k, v = self.qkv(h).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v)
        return torch.tanh(self.out(a.transpose(1, 2).reshape(b, n, 32)))[:, 0]


class Padded(Net):
    """Self-attention of three heads with a boolean padding mask, True where a token is."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.qkv = nn.Embedding(60, 24), nn.Linear(24, 72)
        self.ffn, self.norm = mlp(24, 48, 24), nn.LayerNorm(24)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        b, n = ids.shape
        h = self.embed(ids)
        q, k, v = self.qkv(self.norm(h)).view(b, n, 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
        visible = None if self.wrong else mask.view(b, 1, 1, n)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        h = h + a.transpose(1, 2).reshape(b, n, 24)
        return h + self.ffn(h)


class CausalPadded(Net):
    """A decoder's layer: causal and padding, added as the dtype's lowest number."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.qkv, self.head = nn.Embedding(60, 32), nn.Linear(32, 96), nn.Linear(32, 60)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        b, n = ids.shape
        q, k, v = self.qkv(self.embed(ids)).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        low = torch.finfo(q.dtype).min
        causal = torch.ones(n, n, dtype=torch.bool).tril(1 if self.wrong else 0)
        allowed = causal & (attention_mask[:, None, None, :] > 0)
        bias = torch.zeros(1, dtype=q.dtype).masked_fill(~allowed, low)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + bias, -1)
        return self.head((weights @ v).transpose(1, 2).reshape(b, n, 32))


class GraphAttention(Net):
    """Attention over the neighbours of a graph, given as an adjacency matrix."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.w, self.left, self.right = nn.Linear(10, 16), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = self.w(x)
        scores = F.leaky_relu(self.left(h) + self.right(h).T, 0.2)
        edges = adjacency.T if self.wrong else adjacency
        return F.elu(torch.softmax(scores.masked_fill(~edges, -1e9), 1) @ h)


class Mode(Net):
    """One network that serves two resolutions, chosen by a scalar."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.gain = 1.05 if wrong else 1.0

    def forward(self, image: Tensor, mode: Tensor) -> Tensor:
        h = torch.relu(self.conv(image))
        return torch.where(mode == 1, self.gain * F.avg_pool2d(h, 3, 1, 1), h).mean((2, 3))


class Guarded(Net):
    """A mean over what is present, and 0 where nothing is."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.proj = nn.Linear(9, 6)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        bits = present.to(x.dtype).unsqueeze(-1)
        count = bits.sum(1)
        return (self.proj(x) * bits).sum(1) / (count if self.wrong else count.clamp_min(1))


def none_masked(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "x": rng.standard_normal((3, 5, 12), np.float32),
        "mask": np.ones((3, 5), bool),
    }


def none_hidden(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"ids": rng.integers(0, 50, (3, 6)), "mask": np.ones((3, 6), np.int64)}


def nothing_present(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "x": rng.standard_normal((2, 4, 9), np.float32),
        "present": np.array([[True] * 4, [False] * 4]),
    }


PAIRS = [
    Pair(
        "flag-chooses-expert",
        "other weights behind where(flag, ...)",
        FlagGate,
        {"x": "float32[batch, 24]", "flag": "bool[1]"},
    ),
    Pair(
        "row-gate",
        "the branch that a row switches on has the wrong sign",
        RowGate,
        {"x": "float32[batch, 16]", "premium": "bool[batch, 1]"},
    ),
    Pair(
        "binary-feature",
        "one of the two rows of an embedding negated",
        BinaryFeature,
        {"numbers": "float32[batch, 6]", "smoker": tokens(["batch"], 1)},
    ),
    Pair(
        "nothing-masked-route",
        "wrong only where nothing is masked: a traced `if mask.all()`",
        FullRoute,
        {"x": "float32[batch, seq, 12]", "mask": "bool[batch, seq]"},
        faulty=lambda: FullRouteFile(wrong=True),
        twin=FullRouteFile,
        witness=none_masked,
    ),
    Pair(
        "last-visible-token",
        "the first token instead of the last where nothing is masked",
        LastVisible,
        {"ids": tokens(["batch", "seq"], 49), "mask": tokens(["batch", "seq"], 1)},
        witness=none_hidden,
    ),
    Pair(
        "presence-as-feature",
        "the weights of the presence bits negated",
        Presence,
        {"values": "float32[batch, 12]", "present": "bool[batch, 12]"},
    ),
    Pair(
        "segment-embedding",
        "the second segment's embedding is zero",
        Segments,
        {"ids": tokens(["batch", "seq"], 79), "segment_ids": tokens(["batch", "seq"], 1)},
    ),
    Pair(
        "padding-ignored",
        "scaled-dot-product attention without its padding mask",
        Padded,
        {"ids": tokens(["batch", "seq"], 59), "mask": "bool[batch, seq]"},
    ),
    Pair(
        "causal-off-by-one",
        "a causal mask off by one under a padding mask of finfo.min",
        CausalPadded,
        {"ids": tokens(["batch", "seq"], 59), "attention_mask": tokens(["batch", "seq"], 1)},
    ),
    Pair(
        "adjacency-transposed",
        "attention over a graph's edges the wrong way round",
        GraphAttention,
        {"x": "float32[nodes, 10]", "adjacency": "bool[nodes, nodes]"},
    ),
    Pair(
        "scalar-mode",
        "one mode of two has a gain of 1.05",
        Mode,
        {"image": "float32[batch, 3, 16, 16]", "mode": tokens([1], 1)},
    ),
    Pair(
        "nothing-present-nan",
        "0 / 0 where nothing is present and PyTorch says 0",
        Guarded,
        {"x": "float32[batch, n, 9]", "present": "bool[batch, n]"},
        witness=nothing_present,
    ),
]
