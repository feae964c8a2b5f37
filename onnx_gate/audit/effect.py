"""Whether a fault that survives has an effect at all, and how large it is.

Answers that are the original's bit for bit, in every case that PyTorch accepts, show none, and
those that are far from them show one. What is between is decided in float64: the graph with the
fault against the graph without it. Where the evaluator cannot run a graph, where its weights in
float64 would be more memory than all else, or where the fault is one of rounding, which float64
takes away, an effect is what PyTorch's own rounding does not explain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.files import is_large
from onnx_gate.audit.trial import Trial, TrialBench
from onnx_gate.numerics.precision import eps_of
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.compared import Asked
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.reference.evaluate import Evaluator
from onnx_gate.verify.reference.oracle import CaseReference

By = Literal["float64", "runtime"]

# Sums in another order differ by some eps of float64 (2.2e-16) times the square root of their
# length; the smallest size of a fault in the catalogue is 1e-3.
NO_EFFECT = 1e-12
# Correct exports were measured at up to 2.9 times PyTorch's own error (docs/evidence.md).
SURELY_MOVED = 10.0
# The evaluator computes a case in this time, or the runtime's answers stand for it.
_SECONDS = 10.0


class Effects:
    """Says of survivors whether they do anything; what the original computes is kept."""

    def __init__(self, bench: TrialBench, original: Path) -> None:
        self.bench, self._path = bench, original
        self._large = is_large(original.parent)
        self._evaluator: Evaluator | None = None
        self._wide: dict[str, tuple[Array, ...]] = {}
        self._own: dict[str, float] = {}

    def moved(self, trial: Trial) -> float:
        """Return the largest difference from the original's answers in units of PyTorch's rounding."""
        own = {case.id: self._rounding(case, asked) for case, asked in self.bench.answered}
        shares = (apart / own[case] for case, apart in trial.moved.items() if case in own)
        return max(shares, default=0.0)

    def is_none(self, trial: Trial, edit: Edit, faulty: Path, *, exact: bool) -> tuple[bool, By]:
        """Return whether a fault has no effect, and how that is known.

        Not ``exact``: the fault is one of rounding, of which float64 knows nothing.
        """
        moved = self.moved(trial)
        if moved == 0 or moved > SURELY_MOVED:
            return moved == 0, "runtime"
        if exact and not self._large:
            try:
                return self._same_in_float64(edit, faulty), "float64"
            except Exception as error:  # operators of other packages, time, memory
                print(f"not evaluated in float64: {type(error).__name__}: {error}")
        return moved <= 1.0, "runtime"

    def _same_in_float64(self, edit: Edit, faulty: Path) -> bool:
        if self._evaluator is None:
            self._evaluator = Evaluator(self._path, wide=True)
        other = Evaluator(faulty, wide=True) if edit.in_graph else self._evaluator
        names = self.bench.checker.setting.graph_inputs
        for case, asked in self.bench.answered:
            if asked.reference is None:
                continue
            feeds = {graph: case.arrays[name] for name, graph in names.items()}
            if case.id not in self._wide:
                self._wide[case.id] = self._evaluator.run(feeds, _SECONDS)
            fed = feeds if edit.feed is None else edit.feed(feeds)
            if _apart(other.run(fed, _SECONDS), self._wide[case.id]):
                return False
        return True

    def _rounding(self, case: Case, asked: Asked[CaseReference]) -> float:
        """Return PyTorch's own error in a case, at least its dtype's eps."""
        if case.id not in self._own:
            self._own[case.id] = _own_rounding(asked)
        return self._own[case.id]


def _own_rounding(asked: Asked[CaseReference]) -> float:
    if asked.reference is None:
        return float("inf")
    outputs = asked.reference.outputs.arrays
    floats = [a for a in outputs if is_floating(a.dtype)]
    least = max((eps_of(a.dtype) for a in floats), default=float(np.finfo(np.float32).eps))
    wide = asked.reference.float64()
    if wide is None:
        return least
    errors = [
        scale_error(a, w)
        for a, w in zip(outputs, wide, strict=True)
        if is_floating(a.dtype) and a.shape == w.shape
    ]
    finite = [error for error in errors if np.isfinite(error)]
    return max([least, *finite])


def _apart(faulty: tuple[Array, ...], original: tuple[Array, ...]) -> bool:
    if len(faulty) != len(original):
        return True
    for mine, theirs in zip(faulty, original, strict=True):
        if theirs.dtype.kind in "OSU":
            if not np.array_equal(mine, theirs):
                return True
        elif not scale_error(mine, theirs) <= NO_EFFECT:
            return True
    return False
