"""``auto``: the candidate may be K times as far from float64 as PyTorch itself is.

With ``r`` the model in float64, ``s`` the scale of the output and
``E(x) = max |x - r| / (|r| + s)``, an output passes where ``E(c) <= max(K * N, F * eps)``, and the
same for the root mean square over the output. ``N`` is PyTorch's own error ``E(t)``; only where
that is not enough for a verdict, it is the largest of ``E(t)`` and of ``E`` of a few runs of
PyTorch whose operators' results were moved by at most one unit in the last place: one run of one
program is a small sample of what rounding can do to an output of few elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import ml_dtypes
import numpy as np

from onnx_gate.numerics.compare import Comparison, ScaledError, scaled_error
from onnx_gate.runtimes.base import Array

# Measured; docs/tolerances.md has the tables and the command that makes them.
FLOOR = {"float64": 10.0, "float32": 10.0, "float16": 4.0, "bfloat16": 4.0}
# Runs under jitter move every result by up to one unit, twice what rounding does.
JITTER_SHARE = 0.5
# Where PyTorch is itself further off than this, a multiple of its error would allow anything.
CEILING = 0.25
# An own error of this many floors is a sign of inputs that the model magnifies rounding on.
UNSTEADY = 100.0
# PyTorch's own defaults (torch.testing.assert_close), for models that cannot run in float64.
TESTING = {
    "float16": (1e-5, 1e-3),
    "bfloat16": (1e-5, 1.6e-2),
    "float32": (1e-5, 1.3e-6),
    "float64": (1e-7, 1e-7),
}
# An output that is this much smaller than usual is judged on the scale of the usual one.
SCALE_SHARE = 1e-3


class Anchor(Protocol):
    """What can be asked of PyTorch about one output of one case, computed when first asked for."""

    def reference(self) -> Array | None:
        """Return the output in float64; ``None`` where the model cannot run in it."""
        ...

    def samples(self) -> Sequence[Array]:
        """Return the output of runs whose operators' rounding was moved."""
        ...


@dataclass(frozen=True)
class AutoResult:
    """``error`` and ``torch_error`` are E of the candidate and of PyTorch; null where not needed.

    ``budget`` is the share of the allowed error that was used, ``allowed`` the limit on E.
    ``basis`` says what the verdict rests on: ``floor``, ``float64``, ``rounding`` (jittered runs
    were needed) or ``testing`` (no float64: PyTorch's own table). ``unsteady``: PyTorch's own
    error is so large on these inputs that one run of it says little about the next.
    """

    budget: float
    allowed: float
    basis: str
    index: int
    error: float | None = None
    torch_error: float | None = None
    reference: Array | None = None
    unsteady: bool = False


def auto(
    candidate: Array,
    torch_output: Array,
    found: Comparison,
    factor: float,
    usual_scale: float,
    eps: float,
    floor: float,
    anchor: Anchor,
    threads: int = 1,
) -> AutoResult:
    """Judge one floating-point output; ``found`` compares ``candidate`` with ``torch_output``.

    ``usual_scale`` is the largest root mean square of this output seen so far in the model, ``eps``
    the unit of the precision that the model computes in, ``floor`` is F.
    """
    limit = floor * eps
    scale = _scale(found.expected_rms, usual_scale)
    share = found.max_abs / scale
    if share > limit and found.rms / scale <= limit:
        # The bound above is coarse where large elements differ; this is the exact E(c, t).
        near = scaled_error(candidate, torch_output, scale, threads)
        share = near.max
    if max(share, found.rms / scale) <= limit:
        return AutoResult(
            max(share, found.rms / scale) / limit, limit, "floor", found.max_abs_index
        )
    wide = torch_output.dtype == np.float64 and eps == np.finfo(np.float64).eps
    reference = torch_output if wide else anchor.reference()
    if reference is None:
        return _testing(candidate, torch_output, found, threads)
    return _against(
        candidate, torch_output, reference, factor, usual_scale, limit, anchor, threads, wide
    )


def _against(
    candidate: Array,
    torch_output: Array,
    reference: Array,
    factor: float,
    usual_scale: float,
    limit: float,
    anchor: Anchor,
    threads: int,
    wide: bool,
) -> AutoResult:
    zero = np.broadcast_to(np.zeros((), reference.dtype), reference.shape)
    scale = _scale(scaled_error(zero, reference, 1.0, threads).rms, usual_scale)
    ours = scaled_error(candidate, reference, scale, threads)
    own = scaled_error(torch_output, reference, scale, threads)
    largest, average = factor * own.max, factor * own.rms / scale

    def result(basis: str) -> AutoResult:
        allowed = min(max(largest, limit), max(CEILING, limit))
        allowed_rms = min(max(average, limit), max(CEILING, limit))
        budget = max(ours.max / allowed, ours.rms / scale / allowed_rms)
        return AutoResult(
            budget,
            allowed,
            basis,
            ours.index,
            ours.max,
            None if wide else own.max,
            reference,
            unsteady=max(largest, average) > max(CEILING, limit) or own.max > UNSTEADY * limit,
        )

    first = result("float64")
    if first.budget <= 1 and not wide:
        return first
    errors: list[ScaledError] = [
        scaled_error(sample, reference, scale, threads)
        for sample in anchor.samples()
        if sample.shape == reference.shape
    ]
    for error in errors:
        largest = max(largest, factor * JITTER_SHARE * error.max)
        average = max(average, factor * JITTER_SHARE * error.rms / scale)
    return result("rounding")


def _testing(candidate: Array, torch_output: Array, found: Comparison, threads: int) -> AutoResult:
    atol, rtol = TESTING[str(torch_output.dtype)]
    error = scaled_error(candidate, torch_output, atol / rtol, threads)
    return AutoResult(error.max / rtol, rtol, "testing", error.index)


def _scale(own: float, usual: float) -> float:
    """Return the scale of an output: its own root mean square, or a part of the usual one.

    An output that is zero everywhere, always, is judged by its absolute error.
    """
    return max(own, SCALE_SHARE * usual) or 1.0


def eps_of(dtype: np.dtype[np.generic]) -> float:
    """Return the distance from 1 to the next number of a floating-point dtype."""
    return float(ml_dtypes.finfo(dtype).eps)
