"""A sentence of nothing but padding.

Mistake: the export script writes the mask as a number, -100 for what is padding, because the runtime
has no booleans. Beside a key that counts, -100 is as good as minus infinity; in a row of padding alone
all keys have it, so that it cancels, and the padding is attended to as if it were text.
In production: an empty request in a batch gets an answer made of whatever fills the padding.
Remedy: multiply the result by ``mask.any(-1)`` in the module, so that every export of it does.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MaskedAttention(nn.Module):
    """Attention of float32[batch, seq, 16] where bool[batch, seq] is true -> [batch, seq, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        """Attend with a mask of any kind that scaled_dot_product_attention takes."""
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        return self.out(seen.squeeze(1))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attend(x, mask)


class WithoutBooleans(nn.Module):
    """What the script exports."""

    def __init__(self, model: MaskedAttention) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.model.attend(x, torch.where(mask, 0.0, -100.0))


def export(module: MaskedAttention, example: dict[str, Tensor], path: Path) -> None:
    """Write the ONNX file."""
    shapes = {name: {0: "batch", 1: "seq"} for name in example}
    torch.onnx.export(
        WithoutBooleans(module),
        (),
        path,
        kwargs=example,
        dynamo=True,
        dynamic_shapes=shapes,
        verbose=False,
    )
