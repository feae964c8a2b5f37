"""A check that cannot fail is not believed, and one that passes says how sharp it was."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.manifest import Tolerance, TopK
from onnx_gate.report.model import Resolution
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Judgement, Rules
from tests.support.exact import Exact


def passed(expected: np.ndarray, tolerance: Tolerance) -> Judgement:
    return judge(expected.copy(), expected, Rules(tolerance), Exact(expected.astype(float)))


def tried(tolerance: Tolerance, *answers: np.ndarray) -> Experience:
    experience = Experience()
    for number, answer in enumerate(answers):
        experience.learn(answer)
        judged = passed(answer, tolerance)
        assert judged.holds
        experience.try_judge(f"case/{number}", answer, Rules(tolerance), judged)
    return experience


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("tolerance", "shape", "blunt"),
    [
        (Tolerance(top1=0.98), (6, 1), True),
        (Tolerance(top1=0.98), (6, 9), False),
        (Tolerance(topk=TopK(5, 0.9)), (6, 4), True),
        (Tolerance(topk=TopK(2, 0.9)), (6, 9), False),
        (Tolerance(atol=100.0), (6, 9), True),
        (Tolerance(atol=0.1), (6, 9), False),
        (Tolerance(cosine=-1.0), (6, 9), True),
        (Tolerance(auto=10.0), (6, 9), False),
        (Tolerance(atol=100.0, auto=10.0), (6, 9), False),
    ],
)
def test_the_answer_of_another_case_has_to_be_refused(
    tolerance: Tolerance, shape: tuple[int, ...], blunt: bool
) -> None:
    experience = tried(tolerance, floats(0, *shape), floats(1, *shape))
    assert bool(experience.accepted) == blunt
    assert experience.refused != blunt


def test_answers_that_hardly_differ_try_no_judge() -> None:
    one = floats(0, 6, 9)
    experience = tried(Tolerance(atol=100.0), one, one * np.float32(1.001))
    assert not experience.accepted
    assert not experience.refused


def resolved(expected: np.ndarray, tolerance: Tolerance) -> Resolution | None:
    judged = passed(expected, tolerance)
    return Experience().resolution(expected, Rules(tolerance), judged)


def refused(wrong: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> bool:
    return not judge(wrong, expected, Rules(tolerance), Exact(expected.astype(float))).holds


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 999),
    st.sampled_from([1e-4, 1e-3, 3e-2, 0.3]),
    st.sampled_from([(5, 8), (3, 4, 6)]),
)
def test_what_is_as_far_off_as_the_resolution_says_is_refused(
    seed: int, atol: float, shape: tuple[int, ...]
) -> None:
    """Wherever it is: every element, row and channel of an output whose quantities are of all sizes."""
    expected = floats(seed, *shape)
    expected *= 10.0 ** np.linspace(-4, 2, shape[1]).reshape(-1, *[1] * (len(shape) - 2))
    for tolerance in (Tolerance(auto=10.0), Tolerance(atol=atol), Tolerance(rtol=atol)):
        found = resolved(expected, tolerance)
        assert found is not None
        squares = np.square(expected.astype(float))
        usual = np.full(shape, np.inf)
        for axis in range(len(shape)):
            others = tuple(each for each in range(len(shape)) if each != axis)
            usual = np.minimum(usual, np.sqrt(squares.mean(axis=others, keepdims=True)))
        scale = np.maximum(np.abs(expected), usual)
        for index in itertools.product(*map(range, shape)):
            wrong = expected.copy()
            wrong[index] += 1.05 * found.element * scale[index]
            assert math.isinf(found.element) or refused(wrong, expected, tolerance)
        slices = [(*(slice(None),) * axis, 0) for axis in range(1, len(shape))]
        for size, places in ((found.row, [(0,) * (len(shape) - 1)]), (found.channel, slices)):
            assert size is not None
            for place in places:
                wrong = expected.copy()
                wrong[place] *= 1 + 1.05 * size
                assert math.isinf(size) or refused(wrong, expected, tolerance)


def test_the_least_protected_channel_is_named() -> None:
    expected = floats(0, 6, 9)
    expected[:, 7] *= np.float32(1e-4)
    found = resolved(expected, Tolerance(atol=1e-3))
    assert found is not None
    assert found.others is not None
    assert (found.axis, found.index, found.more) == (1, 7, 0)
    assert found.others < 1e-2 < 1 < found.element
    assert found.size == pytest.approx(1e-4, rel=0.9)


@pytest.mark.parametrize(
    ("tolerance", "unseen"),
    [
        (Tolerance(cosine=0.9), {"one channel negated"}),
        (Tolerance(snr_db=10), {"one channel negated"}),
        (Tolerance(cosine=0.999, snr_db=60), set()),
        (Tolerance(topk=TopK(9, 1.0)), {"one channel negated", "the order reversed"}),
        (Tolerance(topk=TopK(5, 1.0)), {"the order reversed"}),
        (Tolerance(topk=TopK(5, 1.0), cosine=0.999), set()),
        (Tolerance(top1=1.0, cosine=0.5), {"one channel negated"}),
        (Tolerance(atol=1e-3, mismatch=0.2), {"one channel negated"}),
        (Tolerance(atol=1e-3, mismatch=0.02), set()),
        (Tolerance(auto=10.0, cosine=0.5), set()),
    ],
)
def test_what_a_tolerance_of_a_whole_output_cannot_see_is_said(
    tolerance: Tolerance, unseen: set[str]
) -> None:
    expected = floats(0, 60, 9)
    expected[:, 7] *= np.float32(0.1)
    expected[:, 0] += 5
    found = resolved(expected, tolerance)
    assert found is not None
    assert set(found.unseen) == unseen


def test_a_constant_output_has_nothing_to_be_wrong_about() -> None:
    experience = tried(Tolerance(atol=1.0), np.zeros((3, 4), np.float32))
    assert experience.is_constant
    assert resolved(np.zeros((3, 4), np.float32), Tolerance(atol=1.0)) is None
