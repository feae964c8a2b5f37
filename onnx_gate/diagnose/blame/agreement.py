"""Do two links of the chain agree? Judged by what rounding does to PyTorch's own answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_gate.diagnose.bench import FORWARD, Answer, Bench
from onnx_gate.diagnose.values import output_error
from onnx_gate.manifest import Tolerance
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.numerics.compare import scaled_error
from onnx_gate.numerics.precision import eps_of
from onnx_gate.numerics.scaled import rms
from onnx_gate.runtimes.base import Array, first_line
from onnx_gate.text import number
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Rules, is_floating
from onnx_gate.verify.judge.noise import FLOOR, MOVED_SHARE
from onnx_gate.verify.judge.scale import Kinds, Stratum
from onnx_gate.verify.pairing import widest_eps
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.index_source import Searched
from onnx_gate.verify.reference.oracle import CaseReference, OtherAnswer

# Two wrong answers are the same one where they differ by this share of how wrong they are.
SAME_SHARE = 0.1
# An error of at least this share of the divergence is as bad as it.
SIMILAR_SHARE = 0.5


@dataclass(frozen=True)
class Measured:
    """Two links compared. ``agrees`` is ``None`` where the experiment could not be made.

    ``error`` is relative to the output's scale, ``None`` where there are no two arrays.
    ``systematic``: the difference is of a kind that rounding never makes.
    """

    agrees: bool | None
    error: float | None
    outcome: str
    systematic: bool = False


@dataclass(frozen=True)
class Share:
    """Errors against float64: the answer's, PyTorch's, and the most that moved rounding makes."""

    answer: float
    torch: float
    moved: float

    @property
    def explains(self) -> bool:
        """Return whether rounding explains the answer's error, however large it is."""
        return self.answer <= DEFAULT_AUTO * max(self.torch, MOVED_SHARE * self.moved)


class Agreement:
    """PyTorch's answer on one set of inputs; float64 and moved rounding are run when needed."""

    def __init__(self, bench: Bench, arrays: Mapping[str, Array], expected: Answer) -> None:
        self.expected = expected
        self._bench, self._arrays = bench, arrays
        self._against = bench.subject.spec.against
        self._wide: tuple[Array | None] | None = None
        self._samples: list[Array] | None = None
        self._searched: tuple[Searched | None] | None = None
        self._variants: Sequence[OtherAnswer] | None = None

    def float64(self) -> Array | None:
        """Return the output in float64, or ``None``."""
        if self._wide is None:
            index = self._bench.subject.output

            def work() -> Array | None:
                outputs = Float64Reference(self._bench.eager).run(self._arrays)
                return outputs[index] if outputs is not None else None

            output, _ = self._bench.apart(work, FORWARD)
            if output is not None and output.shape != self._array().shape:
                output = None
            self._wide = (output,)
        return self._wide[0]

    def rounding(self, more: bool = False) -> Sequence[Array]:
        """Return the output of runs of PyTorch whose operators' rounding was moved."""
        if self._samples is None:
            runs, _ = self._bench.apart(
                lambda: list(self._oracle().output(self._bench.subject.output).rounding()),
                2 * FORWARD,
            )
            self._samples = runs or []
        return self._samples

    def variants(self) -> Sequence[OtherAnswer]:
        """Return the other answers that PyTorch leaves open here."""
        if self._variants is None:
            answers, _ = self._bench.apart(
                lambda: list(self._oracle().output(self._bench.subject.output).variants()),
                2 * FORWARD,
            )
            self._variants = answers or []
        return self._variants

    def searched(self) -> Searched | None:
        """Return what an integer output points into."""
        if self._searched is None:
            searched, _ = self._bench.apart(
                lambda: self._oracle().output(self._bench.subject.output).searched(), 2 * FORWARD
            )
            self._searched = (searched,)
        return self._searched[0]

    def compare(self, actual: Answer) -> Measured:
        """Compare an answer with PyTorch's."""
        expected = self.expected
        if actual.failed or expected.failed:
            return Measured(None, None, f"could not be run: {actual.failed or expected.failed}")
        if actual.refused and expected.refused:
            return Measured(True, None, f"both refuse: {actual.refused}")
        if actual.refused:
            return Measured(False, None, f"it refuses: {actual.refused}")
        if expected.refused:
            return Measured(
                False, None, f"it answers where {self._against} refuses: {expected.refused}"
            )
        if actual.count != expected.count or actual.array is None or expected.array is None:
            return Measured(
                False, None, f"{actual.count} outputs where {self._against} has {expected.count}"
            )
        return self._judge(self._judged(actual.array), expected.array)

    def compare_roughly(self, actual: Answer, total: float | None) -> Measured:
        """Compare an answer with PyTorch's; float64 is asked only where the case's error does not tell.

        ``total`` is the error of the case: as large a one is a difference, a small part of it none.
        """
        a, e = actual.array, self.expected.array
        a = None if a is None else self._judged(a)
        if a is None or e is None or a.shape != e.shape or a.dtype != e.dtype or not total:
            return self.compare(actual)
        error = self._error(a, e)
        if is_floating(e.dtype) and (error <= SAME_SHARE * total or error >= SIMILAR_SHARE * total):
            same = error < SIMILAR_SHARE * total
            return Measured(same, error, f"{_verb(same)} {_size(error)}" if error else "equal")
        return self.compare(actual)

    def near(self, one: Answer, other: Answer) -> Measured:
        """Return whether two answers are the same, measured by how far they are from PyTorch's."""
        if one.failed or other.failed:
            return Measured(None, None, f"could not be run: {one.failed or other.failed}")
        if one.refused or other.refused:
            both = bool(one.refused and other.refused)
            return Measured(both, None, "both refuse" if both else "one of them refuses")
        if one.array is None or other.array is None:
            return Measured(False, None, "they have not the same outputs")
        first, second = self._judged(one.array), self._judged(other.array)
        error = self._error(first, second)
        off = 1.0
        if self.expected.array is not None:
            off = min(self._error(second, self.expected.array), 1.0)
        same = error <= max(SAME_SHARE * off, _floor(second))
        return Measured(same, error, f"{_verb(same)} {_size(error)}" if error else "equal")

    def shares(self, actual: Answer) -> Share | None:
        """Return the errors of an answer, of PyTorch and of moved rounding against float64."""
        array, expected = actual.array, self.expected.array
        if array is None or expected is None or array.shape != expected.shape:
            return None
        # No rounding makes another dtype, however near the numbers are.
        if array.dtype != expected.dtype or not is_floating(expected.dtype):
            return None
        array = self._judged(array)
        reference = self.float64()
        base = expected if reference is None else reference
        if not np.array_equal(np.isfinite(array), np.isfinite(expected)):
            return None
        samples = [s for s in self.rounding() if s.shape == expected.shape]
        if reference is None and not samples:
            return None
        base = self._judged(base)
        scale = Stratum(None, self._usual()).scale(rms(base))
        judged = (array, expected, *map(self._judged, samples))
        errors = [scaled_error(x, base, scale).max for x in judged]
        return Share(errors[0], errors[1], max(errors[2:], default=0.0))

    def trivial(self, error: float | None) -> bool:
        """Return whether an error is within the floor of every comparison: a few units of rounding."""
        return error is not None and error <= _floor(self._array())

    def _judge(self, actual: Array, expected: Array) -> Measured:
        rules = Rules(
            Tolerance(auto=DEFAULT_AUTO),
            eps=widest_eps(self._bench.eager.module),
            against=self._against,
        )
        try:
            judged = judge(actual, expected, rules, self._strata(expected), self)
        except (ValueError, TypeError) as problem:
            return Measured(None, None, f"could not be compared: {first_line(problem)}")
        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            return Measured(False, math.inf, judged.reason)
        error = self._error(actual, expected)
        if error == 0.0:
            return Measured(True, 0.0, "equal")
        text = f"{_verb(judged.holds)} {_size(error)}"
        if judged.holds and judged.reason:
            text = judged.reason
        elif judged.holds and not self.trivial(error):
            text = f"differs by {_size(error)}, which rounding explains"
        elif math.isinf(error) or not is_floating(expected.dtype):
            text = f"differs: {judged.reason}" if judged.reason else text
        elif not judged.holds and "allowed" in judged.tolerance:
            text += f"; rounding explains {number(judged.tolerance['allowed'])}"
        return Measured(judged.holds, error, text, judged.systematic)

    def _judged(self, array: Array) -> Array:
        """Return an array with PyTorch's elements where the manifest does not judge the output."""
        expected = self.expected.array
        if expected is None:
            return array
        return self._bench.subject.judged(array, self._arrays, expected)

    def _strata(self, expected: Array) -> tuple[Stratum, ...]:
        if not is_floating(expected.dtype):
            return (Stratum(None),)
        kinds = self._bench.subject.kinds
        return (kinds if kinds.usual else Kinds(self._usual())).strata(expected)

    def _usual(self) -> float:
        """Return the scale of the output on the export's example, 0 where there is none."""
        example = self._bench.example()
        array = example[1].array if example is not None else None
        if array is None or array.size == 0 or not is_floating(array.dtype):
            return 0.0
        return rms(array)

    def _error(self, actual: Array, expected: Array) -> float:
        """Return the error of one answer against another, on the scale that the check has."""
        return output_error(actual, expected, self._strata(expected))

    def _oracle(self) -> CaseReference:
        eager = self._bench.eager
        return CaseReference(eager, Float64Reference(eager), self._arrays, eager.run(self._arrays))

    def _array(self) -> Array:
        array = self.expected.array
        return np.zeros(0) if array is None else array


def _verb(agrees: bool) -> str:
    return "agrees to" if agrees else "differs by"


def _size(error: float) -> str:
    return f"{number(error)} of the output's scale"


def _floor(array: Array) -> float:
    return FLOOR[str(array.dtype)] * eps_of(array.dtype) if is_floating(array.dtype) else 0.0
