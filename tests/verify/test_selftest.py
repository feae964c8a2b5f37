"""A check that cannot fail is not believed, and one that passes says how sharp it was."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.manifest import Tolerance, TopK
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


@settings(deadline=None)
@given(st.integers(0, 999), st.sampled_from([1e-4, 1e-3, 3e-2, 0.3]))
def test_what_is_as_far_off_as_the_resolution_says_is_refused(seed: int, atol: float) -> None:
    """For ``auto`` and ``atol``: an error of the varying part beyond the resolution diverges."""
    expected = floats(seed, 5, 8)
    for tolerance in (Tolerance(auto=10.0), Tolerance(atol=atol)):
        judged = Experience().sharpen(passed(expected, tolerance))
        finest = judged.resolution
        assert finest is not None
        if math.isinf(finest):
            continue
        wrong = expected + np.float32(1.05 * finest) * (expected - expected.mean())
        reference = Exact(expected.astype(float))
        assert not judge(wrong, expected, Rules(tolerance), reference).holds


def test_a_constant_output_has_nothing_to_be_wrong_about() -> None:
    experience = tried(Tolerance(atol=1.0), np.zeros((3, 4), np.float32))
    assert experience.is_constant
    assert passed(np.zeros((3, 4), np.float32), Tolerance(atol=1.0)).resolution is None
