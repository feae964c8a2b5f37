"""Do two links of the chain agree? Judged by what rounding does to PyTorch's own answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from onnx_gate.diagnose.bench import FORWARD, Answer, Bench
from onnx_gate.diagnose.values import output_error
from onnx_gate.manifest import Tolerance
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.numerics.compare import compare
from onnx_gate.numerics.precision import eps_of
from onnx_gate.report.model.diagnosis import Evidence, Experiment
from onnx_gate.runtimes.base import Array, Outputs, first_line
from onnx_gate.text import number
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Rules, is_floating
from onnx_gate.verify.judge.noise import FLOOR
from onnx_gate.verify.reference.answers import Searched
from onnx_gate.verify.reference.decided import Decided
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.reference.variants import Variant

T = TypeVar("T")

# Two wrong answers are the same one where they differ by this share of how wrong they are.
SAME_SHARE = 0.1


@dataclass(frozen=True)
class LinkComparison:
    """Two links compared. ``agrees`` is ``None`` where the experiment could not be made.

    ``error`` is relative to the output's scale, ``None`` where there are no two arrays.
    ``systematic``: the difference is of a kind that rounding never makes.
    """

    agrees: bool | None
    error: float | None
    outcome: str
    systematic: bool = False

    def evidence(self, kind: Experiment, experiment: str, exporter: str = "") -> Evidence:
        """Return it as what came out of an experiment."""
        return Evidence(
            kind=kind,
            experiment=experiment,
            outcome=self.outcome,
            agrees=self.agrees,
            error=self.error,
            exporter=exporter,
        )


class _Apart(CaseReference):
    """What PyTorch says of inputs, each of its runs in a fork with a time limit.

    ``known`` is what it was asked about them before. ``cut_short``: some run could not be made.
    """

    def __init__(
        self,
        bench: Bench,
        arrays: Mapping[str, Array],
        expected: Answer,
        known: CaseReference | None,
    ) -> None:
        # Of the outputs one alone is asked about.
        own = np.zeros(0) if expected.array is None else expected.array
        outputs = Outputs(("",) * expected.count, (own,) * expected.count)
        eager = bench.eager
        super().__init__(eager, Float64Reference(eager), arrays, outputs)
        self._bench = bench
        self.cut_short = False
        if known is not None:
            self.recall(known)

    def _apart(self, work: Callable[[], T], seconds: float) -> T | None:
        made, trouble = self._bench.apart(work, seconds)
        self.cut_short |= bool(trouble)
        return made

    def _run_in_float64(self) -> tuple[Array, ...] | None:
        return self._apart(super()._run_in_float64, FORWARD)

    def _run_moved(self, seed: int) -> tuple[Array, ...] | None:
        run = super()._run_moved
        return self._apart(lambda: run(seed), FORWARD)

    def _keep(self) -> Decided | None:
        return self._apart(super()._keep, FORWARD)

    def _follow(self, kept: Decided, seed: int) -> tuple[Array, ...] | None:
        follow = super()._follow
        return self._apart(lambda: follow(kept, seed), FORWARD)

    def _run_variants(self) -> tuple[Variant, ...]:
        return self._apart(super()._run_variants, 2 * FORWARD) or ()

    def _trace(self) -> list[Searched | None]:
        made = self._apart(super()._trace, 2 * FORWARD)
        return made or [None] * len(self.outputs.arrays)


class Agreement:
    """PyTorch's answer on one set of inputs; float64 and moved rounding are run when needed."""

    def __init__(self, bench: Bench, arrays: Mapping[str, Array], expected: Answer) -> None:
        self.expected = expected
        self._bench, self._arrays = bench, arrays
        self._against = bench.subject.spec.against
        own = arrays is bench.subject.arrays
        self._noise = bench.subject.noise if own else None
        self._case = _Apart(bench, arrays, expected, bench.subject.known if own else None)

    def compare(self, actual: Answer) -> LinkComparison:
        """Compare an answer with PyTorch's."""
        expected = self.expected
        if actual.failed or expected.failed:
            return LinkComparison(
                None, None, f"could not be run: {actual.failed or expected.failed}"
            )
        if actual.refused and expected.refused:
            return LinkComparison(True, None, f"both refuse: {actual.refused}")
        if actual.refused:
            return LinkComparison(False, None, f"it refuses: {actual.refused}")
        if expected.refused:
            return LinkComparison(
                False, None, f"it answers where {self._against} refuses: {expected.refused}"
            )
        if actual.count != expected.count or actual.array is None or expected.array is None:
            return LinkComparison(
                False, None, f"{actual.count} outputs where {self._against} has {expected.count}"
            )
        return self._judge(self._judged(actual.array), expected.array)

    def compare_roughly(self, actual: Answer, total: float | None) -> LinkComparison:
        """Compare an answer with PyTorch's; nothing more is asked where it is as good as the case is bad.

        ``total`` is the error of the case: a small part of it is no difference. That a large one is
        a difference only the judge says, who knows what PyTorch leaves open on these inputs.
        """
        a, e = actual.array, self.expected.array
        a = None if a is None else self._judged(a)
        if total == math.inf:  # of which any error is a small part
            total = None
        if a is None or e is None or a.shape != e.shape or a.dtype != e.dtype or not total:
            return self.compare(actual)
        error = self._error(a, e)
        if is_floating(e.dtype) and error <= SAME_SHARE * total:
            return LinkComparison(True, error, f"agrees to {_size(a, e)}" if error else "equal")
        found = self.compare(actual)
        if found.agrees is False and self._case.cut_short:
            why = "there was no time to see what rounding, and what is left open, make of it"
            return replace(found, agrees=None, outcome=f"{found.outcome}; {why}")
        return found

    def near(self, one: Answer, other: Answer) -> LinkComparison:
        """Return whether two answers are the same, measured by how far they are from PyTorch's."""
        if one.failed or other.failed:
            return LinkComparison(None, None, f"could not be run: {one.failed or other.failed}")
        if one.refused or other.refused:
            both = bool(one.refused and other.refused)
            return LinkComparison(both, None, "both refuse" if both else "one of them refuses")
        if one.array is None or other.array is None:
            return LinkComparison(False, None, "they have not the same outputs")
        first, second = self._judged(one.array), self._judged(other.array)
        error = self._error(first, second)
        off = 1.0
        if self.expected.array is not None:
            off = min(self._error(second, self.expected.array), 1.0)
        same = error <= max(SAME_SHARE * off, _floor(second))
        text = f"{_verb(same)} {_size(first, second)}" if error else "equal"
        return LinkComparison(same, error, text)

    def trivial(self, error: float | None) -> bool:
        """Return whether an error is within the floor of every comparison: a few units of rounding."""
        return error is not None and error <= _floor(self._array())

    def _judge(self, actual: Array, expected: Array) -> LinkComparison:
        rules = Rules(Tolerance(auto=DEFAULT_AUTO), against=self._against)
        answers = self._case.output(self._bench.subject.output)
        try:
            judged = judge(actual, expected, rules, answers)
        except (ValueError, TypeError) as problem:
            return LinkComparison(None, None, f"could not be compared: {first_line(problem)}")
        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            return LinkComparison(False, math.inf, judged.reason)
        error = self._error(actual, expected)
        if error == 0.0:
            return LinkComparison(True, 0.0, "equal")
        size = _size(actual, expected)
        text = f"{_verb(judged.holds)} {size}"
        if judged.holds and judged.reason:
            text = judged.reason
        elif judged.holds and not self.trivial(error):
            text = f"differs by {size}, which rounding explains"
        elif judged.reason:
            text = f"differs: {judged.reason}"
        return LinkComparison(judged.holds, error, text, judged.systematic)

    def _judged(self, array: Array) -> Array:
        """Return an array with PyTorch's elements where the manifest does not judge the output."""
        expected = self.expected.array
        if expected is None:
            return array
        return self._bench.subject.judged(array, self._arrays, expected)

    def _error(self, actual: Array, expected: Array) -> float:
        """Return the error of one answer against another, on the scale that the check has."""
        return output_error(actual, expected, self._noise)

    def _array(self) -> Array:
        array = self.expected.array
        return np.zeros(0) if array is None else array


def _verb(agrees: bool) -> str:
    return "agrees to" if agrees else "differs by"


def _size(one: Array, other: Array) -> str:
    """Return the largest difference, in the output's own unit."""
    if one.shape != other.shape:
        return number(math.inf)
    found = compare(one, other)
    return number(math.inf if found.nonfinite else found.max_abs)


def _floor(array: Array) -> float:
    return FLOOR[str(array.dtype)] * eps_of(array.dtype) if is_floating(array.dtype) else 0.0
