"""Inputs that a random suite would never draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def sentences(inputs: Mapping[str, Any], seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield batches of sentences of different lengths, padded at the end with token 0.

    ``inputs`` describes the model's inputs as the manifest does; a suite of this kind may ignore
    it. Each case is a dict of ``tokens`` int64[batch, seq] and ``mask`` bool[batch, seq].
    """
    random = np.random.default_rng(seed)
    for lengths in ([5], [9, 3, 1], [17, 16, 2, 8]):
        mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
        yield {"tokens": random.integers(1, 1000, mask.shape) * mask, "mask": mask}
