"""What one output of a model has been over the cases: whether it varies, and who noticed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.report.model.check import Resolution
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.judgement import Judgement, Rules, is_floating
from onnx_gate.verify.judge.resolution import resolution_of
from onnx_gate.verify.judge.selftest import accepts
from onnx_gate.verify.left_open import LeftOpen

# Answers of earlier cases are kept to try the judge with, up to this many bytes an output.
KEPT_BYTES = 64 * 2**20


@dataclass
class Experience:
    """What PyTorch answered for one output in the cases so far.

    ``low`` and ``high`` are the smallest and largest finite value. ``accepted`` is the id of a case
    whose judge took another case's answer for the right one, ``refused`` whether some judge did not.
    ``resolved``: it is known how small an error would have been refused. ``rewritten`` are operators
    that have left elements open by what their form in a file loses, with that form.
    """

    low: float = math.inf
    high: float = -math.inf
    accepted: str = ""
    refused: bool = False
    resolved: bool = False
    rewritten: dict[str, str] = field(default_factory=dict)
    left_open: LeftOpen = field(default_factory=LeftOpen)
    _earlier: dict[tuple[int, ...], Array] = field(default_factory=dict)

    def learn(self, expected: Array) -> None:
        """Take in PyTorch's answer in a case that counts."""
        if expected.dtype.kind in "OSU" or not expected.size:
            return
        finite = expected[np.isfinite(expected)] if is_floating(expected.dtype) else expected
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))

    @property
    def is_constant(self) -> bool:
        """Whether every finite value was the same in every case."""
        return self.low == self.high

    def resolution(self, expected: Array, rules: Rules, judged: Judgement) -> Resolution | None:
        """Return how small an error a passing check would have refused, once for each output.

        It takes runs of its own: within the floor none were made, and who is beyond it is granted more.
        """
        if self.resolved or rules.equality(expected.dtype):
            return None
        found = resolution_of(expected, judged.noise, rules.tolerance, rules.metric)
        self.resolved = found is not None
        return found

    def try_judge(self, case: str, expected: Array, rules: Rules, judgement: Judgement) -> None:
        """Give the judge of a passing check the answer of an earlier case, which it has to refuse."""
        if self.refused or rules.equality(expected.dtype):
            return
        earlier = self._earlier.setdefault(expected.shape, expected)
        if earlier is expected:
            if sum(array.nbytes for array in self._earlier.values()) > KEPT_BYTES:
                del self._earlier[expected.shape]
            return
        verdict = accepts(earlier, expected, judgement.noise, rules.tolerance, rules.metric)
        if verdict:
            self.accepted = self.accepted or case
        elif verdict is False:
            self.refused = True
