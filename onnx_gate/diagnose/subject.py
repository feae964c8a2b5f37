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
from onnx_gate.verify.export import Exported


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

    Infinite where shapes differ, or where NaN or infinities are not at the same places.
    """
    if actual.shape != expected.shape:
        return float("inf")
    if actual.size == 0:
        return 0.0
    a, e = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(e)
    if (
        not np.array_equal(a[~finite], e[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return float("inf")
    if not finite.any():
        return 0.0
    a, e = a[finite], np.abs(e[finite])
    difference = np.abs(a - np.asarray(expected, np.float64)[finite])
    scale = e + float(np.sqrt(np.mean(np.square(e))))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(difference == 0, 0.0, difference / scale)
    return float(share.max())
