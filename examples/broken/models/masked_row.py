"""A sentence of nothing but padding.

Mistake: the mask goes to ``scaled_dot_product_attention`` as booleans. Where a whole row is masked,
PyTorch's kernel returns zeros; the exported graph masks with the smallest finite number instead of
minus infinity, so that all positions weigh the same, and returns the mean of the padding.
In production: an empty request in a batch gets an answer made of whatever fills the padding.
Remedy: multiply the result by ``mask.any(-1)``, or mask with a finite number in PyTorch too.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class MaskedAttention(nn.Module):
    """Attention of float32[batch, seq, 16] where bool[batch, seq] is true -> [batch, seq, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        return self.out(seen.squeeze(1))
