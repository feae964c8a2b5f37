"""The fast path of attention: what it computes otherwise excuses nothing else."""

from __future__ import annotations

import torch
from pair import Net, Pair, tokens
from torch import Tensor, nn


def layer(width: int = 32, **more: object) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, **more)  # type: ignore[arg-type]


class Encoder(Net):
    """Two layers with a padding mask, True where there is nothing."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.encoder = nn.TransformerEncoder(layer(), 2)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=None if self.wrong else padding)


class OneLayer(Net):
    """One layer; the file takes the mask the wrong way round."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.layer = layer(24, activation="gelu")

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.layer(x, src_key_padding_mask=~padding if self.wrong else padding)


class FeedForward(Net):
    """The mask is right, a matrix of the second layer 2 % too large."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.encoder = nn.Embedding(40, 32), nn.TransformerEncoder(layer(), 2)
        if wrong:
            self.encoder.layers[1].linear2.weight.data *= 1.02

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(self.embed(ids), src_key_padding_mask=padding)


class FromLengths(Net):
    """Padding made from lengths, and a mean over what is there."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.encoder, self.head = nn.TransformerEncoder(layer(), 1), nn.Linear(32, 7)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        padding = torch.arange(x.shape[1]) >= lengths.unsqueeze(1)
        h = self.encoder(x, src_key_padding_mask=None if self.wrong else padding)
        kept = (~padding).to(h.dtype).unsqueeze(-1)
        return self.head((h * kept).sum(1) / kept.sum(1))


class Multihead(Net):
    """nn.MultiheadAttention with padded keys, without the bias of its last product."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.attention = nn.MultiheadAttention(24, 3, batch_first=True)
        nn.init.normal_(self.attention.out_proj.bias, std=0.1)
        if wrong:
            nn.init.zeros_(self.attention.out_proj.bias)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]


class Causal(Net):
    """Encoder layers under a causal mask; the file's is off by one."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.encoder = nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        n = x.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool).triu(2 if self.wrong else 1)
        return self.encoder(x, causal, padding, is_causal=False)


PAIRS = [
    Pair(
        "encoder-padding-ignored",
        "nn.TransformerEncoder, the file ignores its padding mask",
        Encoder,
        {"x": "float32[batch, seq, 32]", "padding": "bool[batch, seq]"},
    ),
    Pair(
        "layer-mask-inverted",
        "nn.TransformerEncoderLayer, the mask the wrong way round",
        OneLayer,
        {"x": "float32[batch, seq, 24]", "padding": "bool[batch, seq]"},
    ),
    Pair(
        "feed-forward-two-percent",
        "a matrix 2 % too large behind attention with padding",
        FeedForward,
        {"ids": tokens(["batch", "seq"], 39), "padding": "bool[batch, seq]"},
    ),
    Pair(
        "lengths-ignored",
        "padding made from lengths is ignored in attention, not in pooling",
        FromLengths,
        {
            "x": "float32[batch, seq, 32]",
            "lengths": {"dtype": "int64", "shape": ["batch"], "range": [1, 9]},
        },
        entry={"dims": {"seq": [9]}},
    ),
    Pair(
        "attention-bias-dropped",
        "nn.MultiheadAttention with padded keys, its last bias dropped",
        Multihead,
        {"x": "float32[batch, seq, 24]", "padding": "bool[batch, seq]"},
    ),
    Pair(
        "encoder-causal-off-by-one",
        "a causal mask off by one beside a padding mask",
        Causal,
        {"x": "float32[batch, seq, 32]", "padding": "bool[batch, seq]"},
    ),
]
