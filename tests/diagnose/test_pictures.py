"""What is drawn of a divergence: counts that add up, the worst element, and a bound on all of it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnx_gate.diagnose.pictures import pictures_of
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Deviation
from onnx_gate.report.model.diagnosis import MAP_SIZE, MAX_PAIRS, Pictures
from tests.support.report.reports import check

BAD = check("a/0", "diverged", deviation=Deviation(value=1.0, allowed=1e-3))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 100, 130), (5000, 2, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_pictures_have_the_worst_element_and_a_bound(
    shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> None:
    expected = np.asarray(np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    actual = expected.copy()
    actual.reshape(-1)[-1] += np.asarray(5, dtype)
    pictures = pictures_of(actual, expected, BAD)
    assert pictures is not None
    assert sum(pictures.histogram) == expected.size
    assert sum(pictures.histogram[4:]) == 1
    assert any(abs(a - e) > 4 for e, a in pictures.pairs)
    assert len(pictures.pairs) <= MAX_PAIRS
    assert len(pictures.map) <= MAP_SIZE
    assert all(len(row) <= MAP_SIZE for row in pictures.map)
    assert max(max(row) for row in pictures.map) > 1
    assert Pictures.model_validate(to_message(pictures)) == pictures


def test_what_is_not_finite_on_one_side_is_counted_apart() -> None:
    expected = np.ones(8, np.float32)
    actual = expected.copy()
    actual[3] = np.nan
    pictures = pictures_of(actual, expected, BAD)
    assert pictures is not None
    assert pictures.histogram[-1] == 1


def test_sides_that_are_not_alike_are_not_drawn() -> None:
    ones = np.ones(4, np.float32)
    assert pictures_of(ones, np.ones(5, np.float32), BAD) is None
    assert pictures_of(ones.astype(np.int64), ones.astype(np.int64), BAD) is None
    assert pictures_of(None, ones, BAD) is None
