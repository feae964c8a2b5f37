"""A model that float64 computes exactly as float32 does, but for rounding."""

from __future__ import annotations

import numpy as np

from onnx_gate.verify.reference.answers import Reference


class Exact(Reference):
    """A model that float64 computes exactly as float32 does, but for rounding."""

    def __init__(self, exact: np.ndarray) -> None:
        self._exact = exact

    def float64(self) -> np.ndarray:
        return self._exact

    def rounding(self, count: int) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        eps = np.finfo(np.float32).eps
        moved = [1 + eps * rng.integers(-1, 2, self._exact.shape) for _ in range(16)]
        with np.errstate(over="ignore"):
            return [(self._exact * share).astype(np.float32) for share in moved]
