"""What pictures of a divergence are drawn from: bounded samples of both sides. Pure."""

from __future__ import annotations

import numpy as np

from onnx_gate.diagnose.values import allowance, kind_of
from onnx_gate.numerics.scaled import rms
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import MAP_SIZE, MAX_PAIRS, Pictures
from onnx_gate.runtimes.base import Array

# Elements that are looked at; of a larger output, evenly spread ones.
_LOOKED_AT = 1 << 22
# Upper ends of the histogram's columns but the last two, in units of what is allowed.
EDGES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)


def pictures_of(actual: Array | None, expected: Array | None, check: Check) -> Pictures | None:
    """Return samples of a diverged output, ``None`` where the sides are not two alike arrays."""
    if actual is None or expected is None or actual.shape != expected.shape or not expected.size:
        return None
    if kind_of(actual) != "f" or kind_of(expected) != "f":
        return None
    scale = rms(expected) or 1.0
    limit = 0.0
    if check.deviation is not None and check.deviation.measure == "error" and check.worst:
        limit = check.deviation.allowed / (scale + abs(check.worst.expected))
    limit = limit if 0 < limit < np.inf else allowance(expected)
    step = -(-expected.size // _LOOKED_AT)
    shares = _shares(actual.reshape(-1)[::step], expected.reshape(-1)[::step], scale * limit, limit)
    finite = shares[np.isfinite(shares)]
    columns = np.searchsorted(EDGES, finite, side="left")
    counts = [int(n) for n in np.bincount(columns, minlength=len(EDGES) + 1)]
    return Pictures(
        scale=scale,
        allowed=limit,
        histogram=(*counts, shares.size - finite.size),
        pairs=_pairs(actual.reshape(-1)[::step], expected.reshape(-1)[::step], shares),
        map=_map(actual, expected, int(np.argmax(shares)) * step, scale, limit),
        map_of=tuple(int(n) for n in expected.shape[-2:]),
    )


def _shares(a: Array, e: Array, absolute: float, relative: float) -> Array:
    """Return |a - e| in units of what is allowed, infinite where one side is not finite."""
    wide_a, wide_e = a.astype(np.float64), e.astype(np.float64)
    with np.errstate(all="ignore"):
        shares = np.abs(wide_a - wide_e) / (absolute + relative * np.abs(wide_e))
        shares[(wide_a == wide_e) | (np.isnan(wide_a) & np.isnan(wide_e))] = 0.0
    return np.nan_to_num(shares, nan=np.inf, posinf=np.inf)


def _pairs(a: Array, e: Array, shares: Array) -> tuple[tuple[float, float], ...]:
    """Return (PyTorch, ONNX) of evenly spread elements and of the worst ones."""
    spread = np.linspace(0, e.size - 1, min(e.size, MAX_PAIRS * 3 // 4)).astype(np.int64)
    worst = np.argsort(-shares, kind="stable")[: MAX_PAIRS // 4]
    chosen = np.unique(np.concatenate([spread, worst]))[:MAX_PAIRS]
    pairs = [(float(e[i]), float(a[i])) for i in chosen]
    return tuple(pair for pair in pairs if all(np.isfinite(pair)))


def _map(
    actual: Array, expected: Array, worst: int, scale: float, limit: float
) -> tuple[tuple[float, ...], ...]:
    """Return the largest shares over tiles of the last two axes around the element ``worst``."""
    shape = (1, 1, *expected.shape)
    planes = expected.reshape(-1, *shape[-2:]), actual.reshape(-1, *shape[-2:])
    plane = worst // (shape[-2] * shape[-1])
    shares = _shares(planes[1][plane], planes[0][plane], scale * limit, limit)
    for axis in (0, 1):
        starts = np.arange(0, shares.shape[axis], -(-shares.shape[axis] // MAP_SIZE))
        shares = np.maximum.reduceat(shares, starts, axis=axis)
    return tuple(tuple(float(f"{share:.3g}") for share in row) for row in shares)
