"""What a dtype can tell apart."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is floating-point, bfloat16 and its like included."""
    return dtype.kind in "fV"


@lru_cache(maxsize=64)
def eps_of(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number, 0 for a dtype that is not floating."""
    if not is_floating(dtype):
        return 0.0
    # NumPy's finfo does not know bfloat16, and its functions do.
    return float(np.nextafter(dtype.type(1), dtype.type(2))) - 1.0


def masked_at(least: float) -> float:
    """Return the score at or below which a key is masked: half of ``least``, the dtype's minimum.

    Masks made with float32's minimum mean the same in a model that is run in float64.
    """
    return max(least, float(np.finfo(np.float32).min)) / 2
