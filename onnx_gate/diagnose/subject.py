"""What a diagnosis is about: one diverged check, and everything needed to run it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnx_gate.manifest import ModelSpec, RuntimeSpec
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.export.export import Exported

# Elements taken at a time: some arrays of as many float64 fit the second-level cache.
_BLOCK = 1 << 15


@dataclass(frozen=True)
class Subject:
    """A diverged check.

    ``arrays`` are the case's inputs by the manifest's names, ``graph_inputs`` maps these to the
    graph's. ``output`` is the diverged output's place, in PyTorch's flat outputs as in the
    graph's. ``folder`` is scratch, ``repro`` takes the reproduction. ``memory`` is how many bytes
    of intermediate values may be held at a time.
    """

    spec: ModelSpec
    eager: Eager
    exported: Exported
    graph_inputs: Mapping[str, str]
    arrays: Mapping[str, Array]
    output: int
    runtime: RuntimeSpec
    check: Check
    workspace: Path
    folder: Path
    repro: Path
    threads: int
    memory: int


def scale_error(actual: Array, expected: Array) -> float:
    """Return max |a - e| / (|e| + rms(e)) in float64 over two arrays.

    Infinite where shapes differ, or where NaN or infinities are not at the same places. Whatever
    the arrays' size, a few blocks of float64 are all the memory it takes.
    """
    if actual.shape != expected.shape:
        return float("inf")
    a, e = np.asarray(actual).reshape(-1), np.asarray(expected).reshape(-1)
    rms = _rms(e)
    worst = 0.0
    with np.errstate(all="ignore"):
        for low in range(0, e.size, _BLOCK):
            wide = e[low : low + _BLOCK].astype(np.float64)
            apart = a[low : low + _BLOCK].astype(np.float64)
            share = _share(apart, wide, rms)
            if not share < np.inf:
                return float("inf")
            worst = max(worst, share)
    return worst


def _share(a: Array, e: Array, rms: float) -> float:
    """Return the largest share of a block, infinite where special values differ."""
    scale = np.abs(e)
    scale += rms
    difference = np.subtract(a, e)
    np.abs(difference, out=difference)
    difference /= scale
    top = float(difference.max())
    if np.isfinite(top):
        return top
    finite = np.isfinite(e)
    if not np.array_equal(a[~finite], e[~finite], equal_nan=True):
        return float("inf")
    a, e = a[finite], e[finite]
    if not np.isfinite(a).all():
        return float("inf")
    difference = np.abs(a - e)
    share = np.where(difference == 0, 0.0, difference / (np.abs(e) + rms))
    return float(share.max()) if share.size else 0.0


def _rms(e: Array) -> float:
    squares, count = 0.0, 0
    with np.errstate(all="ignore"):
        for low in range(0, e.size, _BLOCK):
            wide = e[low : low + _BLOCK].astype(np.float64)
            found = float(np.square(wide).sum())
            if not np.isfinite(found):
                wide = wide[np.isfinite(wide)]
                found = float(np.square(wide).sum())
            squares, count = squares + found, count + wide.size
    return float(np.sqrt(squares / count)) if count else 0.0
