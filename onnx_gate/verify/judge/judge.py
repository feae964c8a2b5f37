"""One output of one case on one runtime: the comparison, the tolerance, and the verdict.

The candidate is held against PyTorch's answer first. Only where that would be a divergence are
PyTorch's *other* answers asked for (``reference.variants``): runs in which what PyTorch leaves
open was decided the other way. Element by element, the answer that is nearest to the candidate
then stands for PyTorch's. Where all of PyTorch's answers agree that changes nothing; where they do
not, the element is *open*, is counted, and says nothing about the elements beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnx_gate.report.model import OpenCause
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.floats import judge_floats
from onnx_gate.verify.judge.integers import judge_integers
from onnx_gate.verify.judge.judgement import Judgement, Rules, broken, is_floating
from onnx_gate.verify.reference.answers import Reference


def judge(candidate: Array, expected: Array, rules: Rules, reference: Reference) -> Judgement:
    """Compare ``candidate`` with PyTorch's ``expected`` and say whether the difference is allowed.

    Shape and dtype must be equal, without broadcasting. NaN must meet NaN and an infinity the
    same infinity, whatever the tolerance.
    """
    if candidate.dtype != expected.dtype:
        return broken(
            "dtype", f"dtype {candidate.dtype} where {rules.against} has {expected.dtype}"
        )
    if candidate.shape != expected.shape:
        return _other_shape(candidate, expected, rules, reference)
    if expected.dtype.kind in "OSU":
        same = bool(np.array_equal(candidate, expected))
        return Judgement(
            same,
            0.0 if same else math.inf,
            "" if same else "strings differ",
            compared=expected.size,
        )
    if is_floating(expected.dtype):
        return judge_floats(candidate, expected, rules, reference)
    return judge_integers(candidate, expected, rules, reference)


class _Settled(Reference):
    """An answer with nothing more to ask about, but for the runs with moved rounding like it."""

    def __init__(self, samples: Sequence[Array]) -> None:
        self._samples = samples

    def rounding(self, count: int) -> Sequence[Array]:
        return self._samples


def _other_shape(
    candidate: Array, expected: Array, rules: Rules, reference: Reference
) -> Judgement:
    """Judge an output of another shape: right where rounding, or equals, decide the shape."""
    if len(candidate.shape) == len(expected.shape) and not rules.settled:
        runs: list[tuple[OpenCause, Array]] = [("rounding", r) for r in reference.reshaped()]
        if runs:
            runs += [(o.cause, o.array) for o in reference.variants()]
        like = [(cause, run) for cause, run in runs if run.shape == candidate.shape]
        for cause, run in like:
            settled = _Settled([other for _, other in like])
            judged = judge(candidate, run, rules, settled)
            if judged.holds:
                opened = max(candidate.size, 1)
                return replace(judged, compared=0, open=opened, causes=(cause,))
    return broken(
        "shape", f"shape {list(candidate.shape)} where {rules.against} has {list(expected.shape)}"
    )
