"""Outputs that are judged where a mask is not 0, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnx_gate.errors import GateError
from onnx_gate.manifest import InputSpec, ModelSpec, Tolerance
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.judgement import Judgement, Rules
from onnx_gate.verify.judge.where import judge_selected, selection
from onnx_gate.verify.reference.answers import Reference

MASK = np.array([[1, 1, 0], [1, 0, 0]])
SPEC = ModelSpec(
    "net",
    "models.py:Net",
    {
        "mask": InputSpec("int64", ("batch", "seq")),
        "step": InputSpec("int64", ("batch", "past + new")),
    },
    where={"logits": "mask", "present": "step"},
)


class Alone(Reference):
    """A reference of which nothing more is known than a float64 answer."""

    def __init__(self, float64: Array) -> None:
        self._float64 = float64

    def float64(self) -> Array:
        return self._float64

    def rounding(self, count: int) -> list[Array]:
        return []


def _judged(candidate: Array, expected: Array, tolerance: Tolerance, mask: Array) -> Judgement:
    selected = selection(SPEC, "logits", expected.shape, {"mask": mask}, {}, "case")
    assert selected is not None
    reference = Alone(expected.astype(np.float64))
    rules = Rules(tolerance)
    return judge_selected(candidate, expected, rules, reference, selected)


@pytest.mark.parametrize("tolerance", [Tolerance(auto=10.0), Tolerance(atol=1e-3)])
@pytest.mark.parametrize("trailing", [(), (5,), (5, 2)])
def test_what_is_outside_says_nothing(tolerance: Tolerance, trailing: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(2, 3, *trailing)).astype(np.float32)
    outside = np.argwhere(MASK == 0)
    candidate = expected.copy()
    candidate[tuple(outside[0])] = np.nan
    candidate[tuple(outside[1])] += 100
    judged = _judged(candidate, expected, tolerance, MASK)
    assert judged.holds, judged.reason
    assert judged.compared == 3 * int(np.prod(trailing))
    candidate[(1, 0)] += 0.5
    judged = _judged(candidate, expected, tolerance, MASK)
    assert not judged.holds
    assert judged.worst is not None
    assert judged.worst.index[:2] == (1, 0)
    assert judged.worst.actual == pytest.approx(judged.worst.expected + 0.5)


def test_integers_too() -> None:
    expected = np.arange(6).reshape(2, 3)
    candidate = np.where(MASK, expected, -1)
    assert _judged(candidate, expected, Tolerance(auto=10.0), MASK).compared == 3
    assert not _judged(candidate + 1, expected, Tolerance(auto=10.0), MASK).holds


def test_a_mask_of_nothing_compares_nothing() -> None:
    expected = np.ones((2, 3, 4), np.float32)
    assert _judged(expected + 1, expected, Tolerance(auto=10.0), 0 * MASK).compared == 0


def test_another_shape_is_a_divergence_as_ever() -> None:
    expected = np.ones((2, 3, 4), np.float32)
    judged = _judged(expected[:, :2], expected, Tolerance(auto=10.0), MASK)
    assert not judged.holds
    assert judged.form == "shape"


def test_a_mask_of_what_is_cached_and_new_counts_with_its_end() -> None:
    step = np.array([[1, 1, 1, 0, 1], [1, 1, 1, 1, 0]])
    sizes = {"batch": 2, "past": 3, "new": 2}
    selected = selection(SPEC, "present.0.key", (2, 2, 7), {"step": step}, sizes, "case")
    assert selected is not None
    assert selected.positions.tolist() == [[False, True], [True, False]]
    # One that is longer for no such reason does not fit.
    with pytest.raises(GateError):
        selection(SPEC, "present", (2, 1, 7), {"step": step}, sizes, "case")


@pytest.mark.parametrize("shape", [(2, 7), (2,), (3, 3, 5)])
def test_other_leading_dimensions_are_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(GateError) as caught:
        selection(SPEC, "logits", shape, {"mask": MASK}, {}, "typical/0")
    assert caught.value.code == "OG410"
    assert "typical/0: logits" in caught.value.message


def test_other_outputs_have_none() -> None:
    assert selection(SPEC, "hidden", (2, 3), {"mask": MASK}, {}, "case") is None
    spec = replace(SPEC, where={})
    assert selection(spec, "logits", (2, 3), {"mask": MASK}, {}, "case") is None
