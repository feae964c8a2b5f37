"""Sums of equal terms, whose rounding leans to one side: what they lose grows as their length does.

Adding the same number again leaves the same behind, as long as the sum stays within a power of two: at
most half of a unit of its last place. Measured in PyTorch and in ONNX Runtime, for products,
convolutions, pools, attention, sums by place and over an axis of 64 to 4,096 terms: 1/8 of a unit of
the result for each addition that follows another, at most, and 1/19 in the median.

Each function says, of an operator's arguments and result, which elements of the result are such sums,
as a mask that broadcasts to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Given = Mapping[str, Any]
Equal = Callable[[Given, torch.Tensor], torch.Tensor]

# What an addition of a term that is equal to those before it loses of a unit, see above.
EQUAL = 1 / 8
# So many terms, each with those that it is added next to, show whether they are equal.
_LOOKED_AT, _BESIDE = 16, 4
# Shorter sums of equal terms are within what the walk moves.
LONG = 64


def alike(rows: torch.Tensor) -> torch.Tensor:
    """Return, for each row of terms, whether they round in one direction, as a sum of ones does.

    Those are equal terms, most of them or a few numbers again and again, and evenly spaced ones, as in
    a ramp: what each leaves behind stays or drifts slowly, as long as a sum stays within a power of
    two. Adding zero rounds nothing. However many numbers there are, as in channels that are constant
    each: it is enough that those beside each other are equal. Rows are along the last axis.
    """
    if rows.shape[-1] < LONG or not rows.is_floating_point():
        return torch.zeros(rows.shape[:-1], dtype=torch.bool)
    begins = torch.arange(_LOOKED_AT) * (rows.shape[-1] // _LOOKED_AT)
    places = (begins[:, None] + torch.arange(_BESIDE)).reshape(-1)
    some = rows[..., places].sort(dim=-1).values
    gaps = some[..., 1:] - some[..., :-1]
    # The operators before have moved each of them by a few units of what they have added up.
    near = (gaps - gaps.median(dim=-1, keepdim=True).values).abs() <= (
        8 * torch.finfo(rows.dtype).eps * some.abs().amax(dim=-1, keepdim=True)
    )
    nothing = (some[..., 1:] == 0) & (some[..., :-1] == 0)
    return (near & ~nothing).sum(-1) > 0.5 * (~nothing).sum(-1).clamp(min=1)


def reduced(dims: Callable[[Given], list[int]]) -> Equal:
    """Return where what is summed over an operator's ``dims`` is alike."""

    def equal(given: Given, y: torch.Tensor) -> torch.Tensor:
        x, over = given["self"], dims(given)
        kept = [d for d in range(x.ndim) if d not in over]
        mask = alike(x.permute(*kept, *over).reshape(*(x.shape[d] for d in kept), -1))
        for d in sorted(over) if y.ndim == x.ndim else ():
            mask = mask.unsqueeze(d)
        return mask

    return equal


def product(first: str, second: str, *, rows: bool = False) -> Equal:
    """Return where rows of the first matrix and columns (or ``rows``) of the second are alike."""

    def equal(given: Given, y: torch.Tensor) -> torch.Tensor:
        left, right = given[first], given[second]
        mask = alike(left)
        if not mask.any():
            return mask.any()
        other = alike(right if rows or right.ndim < 2 else right.mT)
        if not other.ndim or not mask.ndim:
            return mask & other
        return mask.unsqueeze(-1) & (other.unsqueeze(-2) if other.ndim > 1 else other)

    return equal


def kernels(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return where a convolution's kernel is alike, and the image of its group of channels."""
    weight, groups = given["weight"], given.get("groups", 1)
    x = given["input"] if "input" in given else given["self"]
    if given.get("transposed"):
        mask = alike(weight.transpose(0, 1).flatten(1)).repeat(groups)
    else:
        mask = alike(weight.flatten(1))
    if not mask.any():
        return mask.any()
    x = x if x.ndim == y.ndim else x.unsqueeze(0)
    images = alike(x.reshape(x.shape[0], groups, -1)).repeat_interleave(
        mask.shape[0] // groups, dim=1
    )
    return (mask & images).reshape(-1, mask.shape[0], *([1] * (y.ndim - 2)))


def windows(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return which channels of an image are alike."""
    spatial = len(given.get("output_size") or given["kernel_size"])
    mask = alike(given["self"].flatten(-spatial))
    return mask.reshape(*mask.shape, *([1] * spatial))


def scattered(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return in which columns what is summed by places is alike."""
    source = next(given[n] for n in ("src", "source", "values") if given.get(n) is not None)
    dim = given.get("dim") or 0
    if source.ndim != y.ndim:
        return alike(source.reshape(-1))
    return alike(source.movedim(dim, -1)).unsqueeze(dim)


def bags(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return which columns of a table are alike in the rows that are asked for, in their order."""
    return alike(given["weight"][given["indices"]].mT)


def attended(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return which columns of the values are alike, of queries that see all keys alike."""
    query, key, value = given["query"], given["key"], given["value"]
    columns = alike(value.mT)
    if not columns.any() or query.shape[:-2] != key.shape[:-2] or y.shape[-1:] != value.shape[-1:]:
        return torch.tensor(False)  # the second result is the logarithms of the sums
    return alike((query @ key.mT).softmax(-1)).unsqueeze(-1) & columns.unsqueeze(-2)
