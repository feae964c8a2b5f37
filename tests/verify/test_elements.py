"""Each element has its own noise: none is judged on the scale, or by the noise, of another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnx_gate.manifest import Tolerance
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Judgement, Rules
from onnx_gate.verify.judge.systematic import Lean
from tests.support.exact import Exact

RULES = Rules(Tolerance(auto=10.0))
NONE = np.zeros(0)


class Noisy(Exact):
    """A model of which each element is as noisy as ``noise`` says; float64 may be of another."""

    def __init__(self, exact: np.ndarray, noise: np.ndarray, wide: np.ndarray = NONE) -> None:
        super().__init__(exact if wide is NONE else wide)
        self._mean, self._noise = exact, noise

    def rounding(self, count: int) -> list[np.ndarray]:
        shape = self._mean.shape
        return [
            (self._mean + self._noise * logits(90 + n, *shape)).astype(np.float32)
            for n in range(count)
        ]


def logits(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def verdict(candidate: np.ndarray, exact: np.ndarray, known: Exact | None = None) -> Judgement:
    expected = exact.astype(np.float32)
    return judge(candidate.astype(np.float32), expected, RULES, known or Exact(exact))


def pressure_and_humidity() -> np.ndarray:
    return np.stack([101325 + 500 * logits(0, 5), 0.5 + 0.1 * logits(1, 5)], 1)


def boxes() -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.concatenate([rng.uniform(0, 640, (30, 4)), rng.uniform(0, 1, (30, 3))], -1)


def filled() -> np.ndarray:
    values = logits(0, 4, 60)
    values[logits(1, 4, 60) > 0] = -1e9
    return values


MIXED: dict[str, Callable[[], np.ndarray]] = {
    "two quantities": pressure_and_humidity,
    "pixels and probabilities": boxes,
    "a fill": filled,
    "a heavy tail": lambda: np.exp(6 * logits(0, 200)),
    "a few numbers": lambda: np.array([3e5, 2.0, 7e-3]),
    "rows of unlike size": lambda: logits(0, 12, 7) * 10.0 ** -np.arange(12)[:, None],
}


@pytest.mark.parametrize("name", MIXED)
def test_what_is_large_hides_nothing_about_what_is_small(name: str) -> None:
    exact = MIXED[name]()
    assert verdict(exact * (1 + 1e-7 * logits(5, *exact.shape)), exact).holds
    small = np.unravel_index(np.argmin(np.abs(exact)), exact.shape)
    for off in (1.0, 0.01, 3e-5):
        wrong = exact.copy()
        wrong[small] *= 1 + off
        found = verdict(wrong, exact)
        assert not found.holds
        assert found.worst is not None
        assert found.worst.index == tuple(map(int, small))


def test_a_noisy_column_lends_nothing_to_a_precise_one() -> None:
    exact = 1 + np.abs(logits(0, 50, 2))
    noise = exact * [1e-3, 0.0]
    known = Noisy(exact, noise)
    assert verdict(exact + noise * logits(1, 50, 2), exact, known).holds
    assert not verdict(exact * [1, 1.001], exact, known).holds


def test_float64_is_a_witness_where_rounding_explains_it_and_nowhere_else() -> None:
    """One column is guarded by ``finfo``: float64 computes another function there."""
    exact = 1 + np.abs(logits(0, 50, 2))
    noise = exact * [1e-5, 0.0]
    # PyTorch is off by what rounding explains, and the candidate is nearer to float64.
    shown = exact + noise * 8
    known = Noisy(shown, noise, exact * [1.0, 1.5])
    nearer = exact - noise * logits(3, 50, 2)
    assert not verdict(
        shown - noise * 8 - noise * logits(3, 50, 2), shown, Noisy(shown, noise)
    ).holds
    assert verdict(nearer, shown, known).holds
    assert not verdict(exact * [1.0, 1.5], shown, known).holds


@pytest.mark.parametrize("wrong", [1 + 8e-6, 1 - 8e-6])
def test_a_constant_factor_is_no_rounding(wrong: float) -> None:
    """Within what rounding does to each element, and of one kind throughout."""
    exact = logits(0, 40, 100)
    known = Noisy(exact, 2e-6 * np.abs(exact))
    assert verdict(exact * (1 + 2e-6 * logits(8, 40, 100)), exact, known).holds
    refused = verdict(exact * wrong, exact, known)
    assert not refused.holds
    # What the report shows is what decided: never an error that is less than what is allowed.
    assert refused.deviation is not None
    assert refused.deviation.measure in ("constant factor", "one sign")
    assert refused.deviation.allowed < refused.deviation.value
    assert refused.budget == refused.deviation.value / refused.deviation.allowed


def test_what_has_saturated_is_one_value_in_all_cases() -> None:
    """An approximation is off by the same wherever it is given the same: that leans to nothing."""
    varied, off = logits(0, 30), 1 + 4.8e-7 * np.ones(200)
    saturated = np.concatenate([np.sign(logits(1, 170)), varied])
    off[170:] = 1 + 1e-7 * logits(2, 30)
    lean = Lean()
    for _ in range(20):
        judged = verdict(saturated * off, saturated)
        assert judged.holds
        assert judged.lean is not None
        lean += judged.lean
    assert lean.systematic is None
    assert lean.factor.value > 4e-7 * lean.factor.weight  # and as much of what varies is refused
    assert not verdict(logits(4, 200) * (1 + 4.8e-7), logits(4, 200)).holds


def test_a_difference_of_one_sign_is_no_rounding() -> None:
    exact = logits(0, 4000)
    known = Noisy(exact, np.full(4000, 1e-5))
    assert verdict(exact + 1e-5 * logits(8, 4000), exact, known).holds
    assert not verdict(exact + 3e-5, exact, known).holds


def test_runs_end_as_soon_as_every_element_is_within_its_limit() -> None:
    exact = 1 + np.abs(logits(0, 300))
    asked: list[int] = []

    class Counted(Noisy):
        def rounding(self, count: int) -> list[np.ndarray]:
            asked.append(count)
            return super().rounding(count)

    verdict(exact * (1 + 1e-7), exact, Counted(exact, exact * 1e-5))
    assert asked == []
    verdict(exact * (1 + 1e-5 * logits(1, 300)), exact, Counted(exact, exact * 1e-5))
    assert asked == [1, 2, 3]
    asked.clear()
    assert not verdict(exact * 1.1, exact, Counted(exact, exact * 1e-5)).holds
    assert asked == [1, 2, 3, 4, 5, 6, 8, 16]


def test_what_rounding_decides_is_open_and_counted_so() -> None:
    exact = 1 + np.abs(logits(0, 100))

    class Flips(Exact):
        def rounding(self, count: int) -> list[np.ndarray]:
            runs = [exact.astype(np.float32) for _ in range(count)]
            for run in runs[1:2]:
                run[7] += 1
            return runs

    candidate = exact.copy()
    candidate[7] += 1
    found = verdict(candidate, exact, Flips(exact))
    assert found.holds
    assert (found.open, found.compared, found.causes) == (1, 99, ("rounding",))
    candidate[8] += 1
    assert not verdict(candidate, exact, Flips(exact)).holds


def test_subnormal_numbers_are_as_good_as_zero() -> None:
    exact = logits(0, 50, 2) * [1.0, 1e-43]
    assert verdict(exact * [1.0, 0.0], exact).holds
    assert not verdict(exact * [1.0, 0.0] + [0.0, 1e-36], exact).holds


def test_a_float64_output_is_held_to_float64() -> None:
    exact = 1.7e9 + logits(0, 60)
    answers = Exact(exact)
    answers.rounding = lambda count: [exact] * count  # type: ignore[method-assign]
    assert judge(exact * (1 + 2e-16), exact, RULES, answers).holds
    assert not judge(exact + 1.0, exact, RULES, answers).holds
