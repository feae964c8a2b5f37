"""Layers of attention that are one kernel where nothing is trained, done step by step as the kernel does.

What the modules do without the kernel is another function where there is a mask: the kernel hides what is
not zero in it, whatever else is there.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

# Masks of a kernel: this one is of whole keys, a row for each sequence.
_OF_KEYS = 1


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    *others: Any,
) -> torch.Tensor:
    """Do what ``aten::_transformer_encoder_layer_fwd`` does.

    ``others`` are weight and bias of two norms and of two products, and a mask and its type.
    """
    given = (embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias)
    settings = (use_gelu, norm_first, eps)
    if src.is_nested:  # sequences of unlike length, without what pads them
        lengths = torch.tensor([len(each) for each in src.unbind()])
        padded = src.to_padded_tensor(0.0)
        hidden = torch.arange(padded.shape[1]) >= lengths[:, None]
        made = encoder_layer(padded, *given, *settings, *others[:8], hidden, _OF_KEYS)
        return torch._nested_tensor_from_mask(made, ~hidden)
    weight, bias, *more = others[:8]
    mask, kind = (*others[8:], None, None)[:2]

    def once(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    def twice(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), more[0], more[1], eps)

    x = once(src) if norm_first else src
    made, _ = attention(x, x, x, *given, mask, False, False, kind)
    held = made + src if norm_first else once(made + src)
    x = F.linear(twice(held) if norm_first else held, more[2], more[3])
    x = F.linear(F.gelu(x) if use_gelu else F.relu(x), more[4], more[5]) + held
    return x if norm_first else twice(x)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average: bool = True,
    kind: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Do what ``aten::_native_multi_head_attention`` does."""
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (heads, -1)).transpose(1, 2)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    scores = (q / math.sqrt(embed_dim // heads)) @ k.mT
    if mask is None:
        shares = scores.softmax(-1)
    else:
        shares = torch._masked_softmax(scores, mask.bool(), scores.ndim - 1, kind)
    made = F.linear((shares @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return made, None
    return made, shares.mean(1) if average else shares
