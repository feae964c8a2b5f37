"""How many additions follow each other where operators add: what they lose grows as its root does."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from onnx_gate.verify.reference.equal import Given

# Products are added one after the other up to this length, and in at least four parts when long.
_WHOLE, _PARTS = 256, 4
# Vector lanes that add side by side.
_LANES = 8


def walk(chain: float) -> float:
    """Return what so many additions one after the other lose, in units of what one does."""
    return math.sqrt(max(chain, 1.0))


def in_lanes(terms: float) -> float:
    """Return the longest chain of additions in a sum over what lies side by side."""
    return min(terms, max(2 * _LANES, terms / _LANES))


def in_blocks(terms: float) -> float:
    """Return the longest chain of additions in a sum of products."""
    return min(terms, max(_WHOLE, terms / _PARTS))


def last(name: str) -> Callable[[Given], float]:
    """Return the chain of a product of matrices, the rows of the first of which are ``name``'s."""
    return lambda given: in_blocks(given[name].shape[-1] if given[name].ndim else 1)


def whole(name: str) -> Callable[[Given], float]:
    """Return the chain of a sum over all that ``name`` has, side by side."""
    return lambda given: in_lanes(given[name].numel())


def axes(given: Given) -> list[int]:
    """Return over which axes an operator reduces."""
    x, dims = given["self"], given.get("dim")
    dims = [dims] if isinstance(dims, int) else dims or range(x.ndim)
    return [d % x.ndim for d in dims] if x.ndim else []


def terms(given: Given) -> float:
    """Return how many terms an operator reduces to one."""
    x: torch.Tensor = given["self"]
    return float(math.prod(x.shape[d] for d in axes(given)))


def over_axes(given: Given) -> float:
    """Return how many additions follow each other where an operator reduces.

    The last axis of what was transposed is another one of what lies in memory, and of a runtime's sum.
    """
    x, count = given["self"], terms(given)
    side_by_side = x.ndim - 1 in axes(given) and x.stride(-1) == 1
    return in_lanes(count) if side_by_side else count


def rooted(given: Given) -> float:
    """Return that of a sum whose root is taken, which halves what it has lost.

    ONNX Runtime adds squares one after the other.
    """
    return terms(given) / 2


def kernel(given: Given) -> float:
    """Return how many products make one element of a convolution."""
    weight: torch.Tensor = given["weight"]
    if not given.get("transposed"):
        return in_blocks(weight.numel() / max(weight.shape[0], 1))
    apart = math.prod(given.get("stride") or (1,))
    return float(weight.numel() / max(weight.shape[1], 1) / given.get("groups", 1) / apart)


def window(given: Given) -> float:
    """Return how many elements of an image a window has."""
    return float(math.prod(given["kernel_size"]))


def bagged(given: Given) -> float:
    """Return how many rows of a table a bag has in the mean."""
    indices, offsets = given["indices"], given["offsets"]
    return float(indices.numel() / max(offsets.numel() - bool(given["include_last_offset"]), 1))


def adaptive(given: Given) -> float:
    """Return how many elements of an image make one of a smaller image."""
    x, size = given["self"], given["output_size"]
    return float(math.prod(x.shape[-len(size) :])) / max(math.prod(size), 1)


def by_places(given: Given) -> float:
    """Return how many others a term shares its place with, in the mean over terms."""
    index, dim = given.get("index"), given.get("dim") or 0
    if index is None:
        by_axis = [each for each in given["indices"] if each is not None]
        if len(by_axis) != 1 or by_axis[0].dtype == torch.bool:
            return float(given["values"].numel() / max(given["self"].numel(), 1))
        index = by_axis[0].reshape(-1)
    counts = torch.bincount(index.reshape(-1).clamp(min=0)).double()
    rows = index.numel() / max(index.shape[dim], 1) if index.ndim > 1 else 1
    return float(counts.square().sum() / max(float(counts.sum()), 1.0)) / max(rows, 1)


def keys(given: Given) -> float:
    """Return the longer one of attention's two sums, over a key's features and over the keys."""
    return in_blocks(max(given["query"].shape[-1], given["key"].shape[-2]))
