"""Elements are judged on the scale of their own kind, and a continuum is one kind."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.manifest import Tolerance
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Judgement, Rules
from onnx_gate.verify.judge.scale import Kinds
from tests.support.exact import Exact

RULES = Rules(Tolerance(auto=10.0))


def verdict(candidate: np.ndarray, exact: np.ndarray, kinds: Kinds | None = None) -> Judgement:
    expected = exact.astype(np.float32)
    strata = (kinds or Kinds()).strata(expected)
    return judge(candidate.astype(np.float32), expected, RULES, strata, Exact(exact))


def learnt(*answers: np.ndarray) -> Kinds:
    kinds = Kinds()
    for answer in answers:
        kinds.take(answer.astype(np.float32))
    return kinds


def logits(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("fill", [-1e9, -1e4, float(np.finfo(np.float32).min), 1e10])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_a_fill_hides_nothing(fill: float, share: float) -> None:
    exact = logits(0, 4, 60)
    exact[np.random.default_rng(1).uniform(size=exact.shape) < share] = fill
    other = np.where(exact == fill, exact, logits(2, 4, 60))
    slightly = np.where(exact == fill, exact, exact * (1 + 3e-5))
    assert verdict(exact, exact).holds
    assert not verdict(other, exact).holds
    assert not verdict(slightly, exact).holds


def test_pressure_hides_no_humidity() -> None:
    cases = [
        np.stack([101325 + 500 * logits(n, 5), 0.5 + 0.1 * logits(n + 9, 5)], 1) for n in range(3)
    ]
    wrong = cases[2] * [1, 1.05]
    assert not verdict(wrong, cases[2], learnt(*cases)).holds
    assert verdict(cases[2] * [1 + 1e-7, 1 - 1e-7], cases[2], learnt(*cases)).holds


def test_pixels_hide_no_probabilities_though_their_magnitudes_overlap() -> None:
    def boxes(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return np.concatenate([rng.uniform(0, 640, (2, 30, 4)), rng.uniform(0, 1, (2, 30, 3))], -1)

    kinds = learnt(boxes(0), boxes(1))
    assert len(kinds.strata(boxes(1).astype(np.float32))) == 2
    wrong = boxes(1) + np.array([0, 0, 0, 0, 0.005, 0, 0])
    assert not verdict(wrong, boxes(1), kinds).holds


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(0, 99),
    st.sampled_from(["float32", "float16", "bfloat16", "float64"]),
    st.booleans(),
)
def test_every_element_is_in_one_stratum(
    shape: list[int], seed: int, dtype: str, fill: bool
) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = logits(seed, *shape)
    if fill:
        values.reshape(-1)[::2] = 6e4
    values.reshape(-1)[:1] = np.nan
    array = values.astype(kind)
    kinds = learnt(values)
    counts = np.zeros(array.shape, int)
    for stratum in kinds.strata(array):
        counts += 1 if stratum.mask is None else stratum.mask
    assert (counts == 1).all()


@settings(deadline=None, max_examples=60)
@given(st.integers(30, 400), st.integers(0, 10_000), st.floats(0.1, 1))
def test_a_continuum_is_one_kind(count: int, seed: int, width: float) -> None:
    """Normal and lognormal numbers leave no gap of a thousand, and no channel is a thirtieth."""
    rng = np.random.default_rng(seed)
    for values in (rng.normal(size=(8, count)), rng.lognormal(sigma=width, size=(8, count))):
        assert len(learnt(values).strata(values.astype(np.float32))) == 1


@settings(deadline=None, max_examples=60)
@given(st.integers(5, 80), st.integers(0, 10_000))
def test_a_few_values_of_a_decaying_function_are_no_quantity(count: int, seed: int) -> None:
    """ONNX Runtime's softplus is log(1 + exp(x)), which is right to a unit of 1 and no further."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-300, 300, count)
    unit = np.float32(1)
    small = np.log(unit + np.exp(np.minimum(x, 20)).astype(np.float32))
    candidate = np.where(x > 20, x, small)
    usual = learnt(np.logaddexp(0, rng.uniform(-300, 300, 80)))
    assert verdict(candidate, np.logaddexp(0, x), usual).holds


def test_noise_beside_a_quantity_is_judged_on_the_quantitys_scale() -> None:
    """A channel that is zero but for cancellation has no digit to be right about."""
    exact = np.stack([logits(0, 40), np.zeros(40)], 1)
    expected = exact + np.stack([np.zeros(40), 1e-8 * logits(1, 40)], 1)
    candidate = exact + np.stack([np.zeros(40), 1e-8 * logits(2, 40)], 1)
    kinds = learnt(expected)
    strata = kinds.strata(expected.astype(np.float32))
    judged = judge(
        candidate.astype(np.float32), expected.astype(np.float32), RULES, strata, Exact(exact)
    )
    assert judged.holds, judged.reason


@pytest.mark.parametrize("wrong", [1 + 8e-6, 1 - 8e-6])
def test_a_constant_factor_is_no_rounding(wrong: float) -> None:
    """Within ten times PyTorch's own error, and of one kind throughout."""
    exact = logits(0, 4, 100)

    class Noisy(Exact):
        def rounding(self, more: bool = False) -> list[np.ndarray]:
            return [(exact + 2e-6 * logits(n, 4, 100)).astype(np.float32) for n in range(4)]

    expected = (exact + 2e-7 * logits(7, 4, 100)).astype(np.float32)
    strata = Kinds().strata(expected)

    def judged(candidate: np.ndarray) -> Judgement:
        return judge(candidate.astype(np.float32), expected, RULES, strata, Noisy(exact))

    assert judged(exact + 2e-6 * logits(8, 4, 100)).holds
    refused = judged(exact * wrong)
    assert not refused.holds
    # What the report shows is what decided: never an error that is less than what is allowed.
    assert refused.deviation is not None
    assert refused.deviation.measure == "constant factor"
    assert refused.deviation.value == pytest.approx(8e-6, rel=0.1)
    assert refused.deviation.allowed < refused.deviation.value
    assert refused.budget == refused.deviation.value / refused.deviation.allowed


@pytest.mark.parametrize(("own", "wrong"), [(0.1, 1.1), (0.02, 1.1), (3e-3, 1.03), (1e-3, 1.01)])
def test_the_larger_pytorchs_own_error_the_less_a_multiple_of_it_means(
    own: float, wrong: float
) -> None:
    exact = logits(0, 4, 100)

    class Noisy(Exact):
        def rounding(self, more: bool = False) -> list[np.ndarray]:
            return [(exact * (1 + own * logits(n, 4, 100) / 3)).astype(np.float32) for n in (1, 2)]

    expected = (exact * (1 + own * logits(3, 4, 100) / 3)).astype(np.float32)
    strata = Kinds().strata(expected)
    right = (exact * (1 + own * logits(4, 4, 100) / 3)).astype(np.float32)
    assert judge(right, expected, RULES, strata, Noisy(exact)).holds
    off = (exact * wrong).astype(np.float32)
    assert not judge(off, expected, RULES, strata, Noisy(exact)).holds


def test_subnormal_numbers_are_as_good_as_zero() -> None:
    exact = logits(0, 50, 2) * [1.0, 1e-43]
    kinds = learnt(exact)
    assert len(kinds.strata(exact.astype(np.float32))) == 2
    assert verdict(exact * [1.0, 0.0], exact, kinds).holds
    assert not verdict(exact * [1.0, 0.0] + [0.0, 1e-36], exact, kinds).holds
