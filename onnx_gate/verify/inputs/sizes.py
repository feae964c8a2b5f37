"""The sizes at which dynamic dimensions are tested."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from onnx_gate.manifest import InputSpec

Sizes = Mapping[str, int]

# Above this many combinations each size of each dimension appears, but not with all the others.
FULL_PRODUCT = 9


def combinations(dims: Mapping[str, Sequence[int]]) -> tuple[dict[str, int], ...]:
    """Return the sizes to test: the cross product where it is small, else each size once.

    Without dynamic dimensions that is one empty combination. In the second case row ``i`` takes
    the ``i``-th size of the first dimension, the ``i + 1``-th of the second and so on, so that
    the smallest sizes do not all meet in one row.
    """
    names = list(dims)
    if math.prod(len(dims[name]) for name in names) <= FULL_PRODUCT:
        return tuple(
            dict(zip(names, sizes, strict=True))
            for sizes in itertools.product(*(dims[name] for name in names))
        )
    longest = max(len(dims[name]) for name in names)
    return tuple(
        {name: dims[name][(row + shift) % len(dims[name])] for shift, name in enumerate(names)}
        for row in range(longest)
    )


def concrete(spec: InputSpec, sizes: Sizes) -> tuple[int, ...]:
    """Return ``spec``'s shape with the names replaced by their sizes."""
    return tuple(sizes[d] if isinstance(d, str) else d for d in spec.shape)


def sizes_label(sizes: Sizes) -> str:
    """Return ``batch=2,seq=16``."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())
