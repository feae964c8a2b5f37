"""What one output of a model has been over the cases: whether it varies, and who noticed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.report.model.check import Resolution
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.judgement import Judgement, Rules, is_floating
from onnx_gate.verify.judge.noise import Mask
from onnx_gate.verify.judge.resolution import resolution_of
from onnx_gate.verify.judge.selftest import accepts

# Answers of earlier cases are kept to try the judge with, up to this many bytes an output.
KEPT_BYTES = 64 * 2**20
# A column with this share of its elements open was hardly ever compared; by chance none is.
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class OpenColumn:
    """A place along the last axis of an output of so many axes, with its ``open`` elements of all."""

    axes: int
    index: int
    open: int
    of: int

    def __str__(self) -> str:
        return (
            f"[{', '.join([':'] * (self.axes - 1) + [str(self.index)])}] ({self.open} of {self.of})"
        )


@dataclass
class LeftOpen:
    """How often each place along the last axis was open, by the axes of an output and their last size."""

    _open: dict[tuple[int, int], Array] = field(default_factory=dict)
    _rows: dict[tuple[int, int], int] = field(default_factory=dict)

    def learn(self, expected: Array, opened: Mask | None) -> None:
        """Take in a check of an output, and which elements of it were ``opened``."""
        if expected.ndim < 2 or not expected.size:
            return
        last = expected.shape[-1]
        key = expected.ndim, last
        self._rows[key] = self._rows.get(key, 0) + expected.size // last
        if opened is not None and opened.shape == expected.shape:
            columns = np.count_nonzero(opened.reshape(-1, last), axis=0)
            self._open[key] = self._open.get(key, 0) + columns

    def columns(self) -> Iterator[OpenColumn]:
        """Yield the columns that were open nearly always, where others beside them were compared."""
        for (axes, last), counts in self._open.items():
            of = self._rows[axes, last]
            places = np.flatnonzero(counts >= _NEARLY_ALL * of)
            if len(places) < last:
                for place in places.tolist():
                    yield OpenColumn(axes, place, int(counts[place]), of)


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
