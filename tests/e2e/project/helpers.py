"""A generator and metrics of a user's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def cases(inputs: dict, seed: int) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    for batch in (1, 4):
        yield {
            name: rng.normal(size=(batch, 8)).astype(spec.dtype) for name, spec in inputs.items()
        }


def wrong_cases(inputs: dict, seed: int) -> list[dict[str, np.ndarray]]:
    return [{"y": np.zeros((2, 8))}]


def worst(expected: np.ndarray, actual: np.ndarray) -> float:
    return float(np.max(np.abs(expected - actual)))


def broken_metric(expected: np.ndarray, actual: np.ndarray) -> float:
    raise KeyError("oops")
