"""Sums of equal terms, whose rounding leans to one side: what they lose grows as their length does.

Adding the same number again leaves the same behind, as long as the sum stays within a power of two: at
most half of a unit of its last place. Measured in PyTorch and in ONNX Runtime, for products,
convolutions, pools, attention, sums by place and over an axis of 64 to 4,096 terms: 1/8 of a unit of
the result for each addition that follows another, at most, and 1/19 in the median.

A float is a whole multiple of its last place, so what is lost with a term depends on that term and on
the power of two that the sum has reached, and on no other term: equal ones lose the same, and in one
direction, whatever lies between them. So a sum of which a share is equal leans by that share.

Each function says, of an operator's arguments and result, which share of the terms of each element of
the result lean, from 0 to 1, in a shape that broadcasts to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

Given = Mapping[str, Any]
Equal = Callable[[Given, torch.Tensor], torch.Tensor]

# What an addition of a term that is equal to those before it loses of a unit, see above.
EQUAL = 1 / 8
# At most so many places show which share of the terms is equal, each with those that are added next to it:
# three of them, as where a channel is constant two would be as often unequal, over a border, as equal.
_LOOKED_AT, _BESIDE = 24, 3
# Shorter sums of equal terms are within what the walk moves.
LONG = 64


def alike(rows: torch.Tensor) -> torch.Tensor:
    """Return, for each row of terms, which share of them rounds in one direction, as a sum of ones does.

    Those are equal terms, or a few numbers again and again, and evenly spaced ones, as in a ramp: what
    each leaves behind stays or drifts slowly, as long as a sum stays within a power of two. Adding zero
    rounds nothing. However many numbers there are, as in channels that are constant each: it is enough
    that those beside each other are equal. Rows are along the last axis.
    """
    if rows.shape[-1] < LONG or not rows.is_floating_point():
        return torch.zeros(rows.shape[:-1])
    # NumPy sorts short rows with vector instructions, and PyTorch does not.
    looked_at = rows.detach()[..., _places(rows.shape[-1])]
    wide = looked_at if rows.dtype == torch.float64 else looked_at.float()
    some = np.sort(wide.numpy(), axis=-1)
    with np.errstate(invalid="ignore"):
        gaps = some[..., 1:] - some[..., :-1]
    # The operators before have moved each of them by a few units of what they have added up; in 16 bits
    # these are few numbers, again and again.
    unit = some.dtype.type(min(torch.finfo(rows.dtype).eps, torch.finfo(torch.float32).eps))
    near = 8 * unit * np.maximum(np.abs(some[..., :1]), np.abs(some[..., -1:]))
    counts = (some[..., 1:] != 0) | (some[..., :-1] != 0)
    equal = (counts & (gaps <= near)).sum(-1)
    middle = (gaps.shape[-1] - 1) // 2
    usual = np.partition(gaps, middle, axis=-1)[..., middle, np.newaxis]
    with np.errstate(invalid="ignore"):
        even = (counts & (np.abs(gaps - usual) <= near)).sum(-1)
    # One gap is no evidence: the one in the middle is always as large as itself.
    share = np.maximum(np.maximum(equal, even) - 1, 0) / np.float32(gaps.shape[-1])
    return torch.from_numpy(np.asarray(share, np.float32))


# What was found of rows of parameters, by how they lie and how often the parameter was written to.
_found: MutableMapping[torch.Tensor, dict[tuple[Any, ...], torch.Tensor]] = (
    WeakTensorKeyDictionary()
)


def _of_weights(weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return ``alike`` of a weight's rows, found once where it is a parameter: runs have the same."""
    whole = weight if weight._base is None else weight._base
    if not isinstance(whole, torch.nn.Parameter) or whole.is_inference():
        return alike(rows)
    found = _found.setdefault(whole, {})
    where = (weight.data_ptr(), weight.stride(), rows.shape, rows.dtype, whole._version)
    if where not in found:
        found[where] = alike(rows)
    return found[where]


@cache
def _places(terms: int) -> torch.Tensor:
    """Return the places of the terms that are looked at."""
    count = min(_LOOKED_AT, terms // _BESIDE)
    begins = torch.arange(count) * (terms // count)
    return (begins[:, None] + torch.arange(_BESIDE)).reshape(-1)


def reduced(dims: Callable[[Given], list[int]]) -> Equal:
    """Return how much of what is summed over an operator's ``dims`` is alike."""

    def equal(given: Given, y: torch.Tensor) -> torch.Tensor:
        x, over = given["self"], dims(given)
        kept = [d for d in range(x.ndim) if d not in over]
        share = alike(x.permute(*kept, *over).reshape(*(x.shape[d] for d in kept), -1))
        for d in sorted(over) if y.ndim == x.ndim else ():
            share = share.unsqueeze(d)
        return share

    return equal


def product(first: str, second: str, *, rows: bool = False) -> Equal:
    """Return how much of rows of the first matrix and columns (or ``rows``) of the second is alike."""

    def equal(given: Given, y: torch.Tensor) -> torch.Tensor:
        left, right = given[first], given[second]
        share = alike(left)
        if not share.any():
            return torch.zeros(())
        other = _of_weights(right, right if rows or right.ndim < 2 else right.mT)
        if not other.ndim or not share.ndim:
            return torch.minimum(share, other)
        return torch.minimum(share.unsqueeze(-1), other.unsqueeze(-2) if other.ndim > 1 else other)

    return equal


def kernels(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return how much of a convolution's kernel is alike, and of the image of its group of channels."""
    weight, groups = given["weight"], given.get("groups", 1)
    x = given["input"] if "input" in given else given["self"]
    x = x if x.ndim == y.ndim else x.unsqueeze(0)
    # An image is few rows, a kernel one for each channel: mostly the images say that nothing is alike.
    images = alike(x.reshape(x.shape[0], groups, -1))
    if not images.any():
        return torch.zeros(())
    if given.get("transposed"):
        share = _of_weights(weight, weight.transpose(0, 1).flatten(1)).repeat(groups)
    else:
        share = _of_weights(weight, weight.flatten(1))
    images = images.repeat_interleave(share.shape[0] // groups, dim=1)
    return torch.minimum(share, images).reshape(-1, share.shape[0], *([1] * (y.ndim - 2)))


def windows(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return how much of each channel of an image is alike."""
    spatial = len(given.get("output_size") or given["kernel_size"])
    share = alike(given["self"].flatten(-spatial))
    return share.reshape(*share.shape, *([1] * spatial))


def scattered(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return how much of each column of what is summed by places is alike."""
    source = next(given[n] for n in ("src", "source", "values") if given.get(n) is not None)
    dim = given.get("dim") or 0
    if source.ndim != y.ndim:
        return alike(source.reshape(-1))
    return alike(source.movedim(dim, -1)).unsqueeze(dim)


def bags(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return how much of each column of a table is alike in the rows that are asked for, in their order."""
    return alike(given["weight"][given["indices"]].mT)


def attended(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return how much of the columns of the values is alike, of queries that see keys alike."""
    query, key, value = given["query"], given["key"], given["value"]
    columns = alike(value.mT)
    answers = (*query.shape[:-1], value.shape[-1])
    if not columns.any() or query.shape[:-2] != key.shape[:-2] or y.shape != answers:
        return torch.zeros(())  # the second result is the logarithms of the sums
    keys = alike((query @ key.mT).softmax(-1))
    return torch.minimum(keys.unsqueeze(-1), columns.unsqueeze(-2))
