"""The verdict on one output, by the rules of docs/tolerances.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.manifest import Tolerance, TopK
from onnx_gate.report.model import Deviation
from onnx_gate.report.story.summary import ERRORS, deviation_sentence, value_and_limit
from onnx_gate.verify.judge.criteria import top_agreement
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Judgement, Rules
from onnx_gate.verify.judge.noise import Noise, Terms
from onnx_gate.verify.judge.systematic import Lean, lean_of
from onnx_gate.verify.reference.answers import (
    Derived,
    IndexSource,
    OtherAnswer,
    Reference,
    Searched,
)
from tests.support.profiles import tries

AUTO = Tolerance(auto=10.0)


@dataclass
class Known(Reference):
    """What PyTorch would say, given outright; ``asked`` is what was asked of it."""

    in_float64: np.ndarray | None = None
    runs: Sequence[np.ndarray] = ()
    others: Sequence[OtherAnswer] = ()
    traced: Searched | None = None
    asked: list[str] = field(default_factory=list)

    def float64(self) -> np.ndarray | None:
        self.asked.append("float64")
        return self.in_float64

    def rounding(self, count: int) -> Sequence[np.ndarray]:
        self.asked.append("rounding")
        return self.runs

    def variants(self) -> Sequence[OtherAnswer]:
        self.asked.append("variants")
        return self.others

    def searched(self) -> Searched | None:
        return self.traced


class InTurn(Known):
    """Makes as many runs as are asked for."""

    def rounding(self, count: int) -> Sequence[np.ndarray]:
        return self.runs[:count]


def verdict(
    actual: np.ndarray,
    expected: np.ndarray,
    tolerance: Tolerance = AUTO,
    *,
    own: bool = False,
    **known: object,
) -> Judgement:
    reference = Known(**known)  # type: ignore[arg-type]
    return judge(actual, expected, Rules(tolerance, own), reference)


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (f32(1, 2), f32(1, 2, 3)),
        (f32(1), np.float32(1).reshape(())),
        (f32(1, 2).astype(np.float64), f32(1, 2)),
        (np.array([1, 2], np.int32), np.array([1, 2], np.int64)),
        (f32(math.nan, 1), f32(1, 1)),
        (f32(1, 1), f32(math.nan, 1)),
        (f32(math.inf), f32(-math.inf)),
        (f32(math.inf), f32(1e30)),
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([True]), np.array([False])),
    ],
)
@pytest.mark.parametrize("tolerance", [AUTO, Tolerance(atol=1e9, rtol=1e9), Tolerance(cosine=-1)])
def test_no_tolerance_forgives(
    actual: np.ndarray, expected: np.ndarray, tolerance: Tolerance
) -> None:
    found = verdict(actual, expected, tolerance)
    assert not found.holds
    assert found.reason


@pytest.mark.parametrize(
    "same", [f32(math.nan, math.inf, -math.inf, 0.0, 1.5), f32(), np.array([2**63 - 1]), f32(-0.0)]
)
def test_equal_outputs_hold(same: np.ndarray) -> None:
    found = verdict(same.copy(), same)
    assert found.holds
    assert found.budget == 0


def test_rounding_is_accepted_without_asking_float64() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(size=100).astype(np.float32)
    known = Known()
    up = rng.uniform(size=100) < 0.5
    actual = np.where(up, np.nextafter(expected, np.float32(9)), expected)
    found = judge(actual, expected, Rules(AUTO), known)
    assert found.holds
    assert known.asked == []


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
def test_without_float64_moved_rounding_decides_on_the_outputs_own_scale(size: float) -> None:
    rng = np.random.default_rng(0)
    exact = np.linspace(1, 2, 50) * size
    expected = exact.astype(np.float32)
    runs = [(exact * (1 + 2e-6 * rng.uniform(-1, 1, 50))).astype(np.float32) for _ in range(16)]
    rounded = (exact * (1 + 2e-6 * rng.uniform(-1, 1, 50))).astype(np.float32)
    assert verdict(rounded, expected, runs=runs).holds
    assert not verdict((exact * (1 + 3e-5)).astype(np.float32), expected, runs=runs).holds


@pytest.mark.parametrize(
    ("off", "refused", "runs"),
    [(0.1, False, 16), (0.1, True, 4), (1e-4, True, 16)],
)
def test_what_is_hopeless_has_all_runs_until_the_output_is_refused(
    off: float, refused: bool, runs: int
) -> None:
    rng = np.random.default_rng(0)
    exact = np.linspace(1, 2, 50)
    moved = [(exact * (1 + 2e-6 * rng.uniform(-1, 1, 50))).astype(np.float32) for _ in range(16)]
    actual, expected = (exact * (1 + off)).astype(np.float32), exact.astype(np.float32)
    judged = judge(actual, expected, Rules(AUTO, refused=refused), InTurn(runs=moved))
    assert judged.noise is not None
    assert len(judged.noise.runs) == runs


@pytest.mark.parametrize("settled", [False, True])
def test_no_other_answer_is_asked_for_where_no_verdict_hangs_on_it(settled: bool) -> None:
    expected, actual = np.ones(9, np.float32), np.full(9, 1.01, np.float32)
    reference = Known(runs=[expected], others=[OtherAnswer("order of equals", actual)])
    for candidate, other in ((actual, expected), (actual.astype(int) + 1, expected.astype(int))):
        rules = Rules(replace(AUTO, indices="values"), refused=True, settled=settled)
        judge(candidate, other, rules, reference)
    assert ("variants" in reference.asked) is not settled


def test_overflow_by_rounding_is_judged_against_float64() -> None:
    expected = np.array([np.inf, 1], np.float16)
    actual = np.array([65504, 1], np.float16)
    assert verdict(actual, expected, in_float64=np.array([65519.0, 1.0])).holds
    assert not verdict(actual, expected, in_float64=np.array([100.0, 1.0])).holds
    assert not verdict(
        np.array([100, 1], np.float16), expected, in_float64=np.array([65519.0, 1])
    ).holds


@pytest.mark.parametrize(
    ("tolerance", "holds"),
    [
        (Tolerance(atol=0.11), True),
        (Tolerance(atol=0.09), False),
        (Tolerance(rtol=0.06), True),
        (Tolerance(rtol=0.04), False),
        (Tolerance(atol=0.05, rtol=0.03), True),
        (Tolerance(atol=0.0, rtol=0.0, mismatch=0.3), True),
        (Tolerance(atol=0.0, rtol=0.0, mismatch=0.2), False),
        (Tolerance(cosine=0.999), True),
        (Tolerance(cosine=0.99999), False),
        (Tolerance(snr_db=30), True),
        (Tolerance(snr_db=40), False),
        (Tolerance(top1=1.0), True),
        (Tolerance(topk=TopK(3, 1.0)), True),
        (Tolerance(max_ulp=10), False),
        (Tolerance(atol=0.11, cosine=0.99999), False),
    ],
)
def test_every_named_criterion_must_hold(tolerance: Tolerance, holds: bool) -> None:
    found = verdict(f32(1, 2.1, 3, 4), f32(1, 2, 3, 4), tolerance)
    assert found.holds == holds
    assert (found.budget <= 1) == holds


def test_top1_counts_rows_and_forgives_ties() -> None:
    expected = f32(1, 5, 2, 7, 7, 0, 1, 2, 3).reshape(3, 3)
    actual = f32(1, 5, 2, 6, 7, 0, 3, 2, 1).reshape(3, 3)
    found = verdict(actual, expected, Tolerance(top1=0.6))
    assert found.holds
    assert found.metrics is not None
    assert found.metrics.criteria["top1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("wrong", "holds"), [(0, True), (3, False)])
def test_what_is_open_uses_nothing_of_a_criterion(wrong: int, holds: bool) -> None:
    """Half precision is off everywhere, and where everything is masked its answer is a third one."""
    own = f32(0.5, 0.4, 1.0, 2.0, 3.0, 4.0)
    nothing = OtherAnswer("attention over nothing", f32(-0.3, 0.1, 1.0, 2.0, 3.0, 4.0))
    found = own * f32(1, 1, 1.001, 0.999, 1.001, 0.999) + f32(-0.3, 0.1, 0, 0, 0, 0)
    found[wrong] += 0.5
    judged = judge(found, own, Rules(Tolerance(snr_db=40)), Known(others=[nothing]))
    assert judged.holds == holds
    assert (judged.open, judged.compared) == (2, 4)
    assert not judge(found, own, Rules(Tolerance(snr_db=40)), Known()).holds


def test_integers_are_equal_unless_their_own_tolerance_says_otherwise() -> None:
    actual, expected = np.array([1, 101]), np.array([1, 100])
    loose = Tolerance(atol=1, rtol=0.1)
    assert not verdict(actual, expected, AUTO).holds
    assert verdict(actual, expected, loose, own=True).holds


def traced(
    values: np.ndarray, shape: tuple[int, ...], *, distinct: bool = False, first: bool = False
) -> IndexSource:
    slots = np.arange(int(np.prod(shape))).reshape(shape)
    return IndexSource(values, values.ndim - 1, slots, shape, distinct, first)


def test_indices_of_ties_are_judged_by_the_values_they_point_at() -> None:
    values = f32(3, 1, 3, 1, 2, 2).reshape(2, 3)
    origin = traced(values, (2,))
    known: dict[str, Any] = {"traced": Searched(origin)}
    assert verdict(np.array([2, 2]), np.array([0, 1]), **known).holds
    assert not verdict(np.array([1, 2]), np.array([0, 1]), **known).holds
    assert not verdict(np.array([3, 2]), np.array([0, 1]), **known).holds
    exact = Tolerance(auto=10.0, indices="exact")
    assert not verdict(np.array([2, 2]), np.array([0, 1]), exact, **known).holds


def test_indices_of_whole_numbers_next_to_each_other_are_no_ties() -> None:
    values = 1_800_000_000_000_000_000 + np.array([[3, 4, 4]])
    known: dict[str, Any] = {"traced": Searched(traced(values, (1,)))}
    assert verdict(np.array([2]), np.array([1]), **known).holds
    assert not verdict(np.array([0]), np.array([1]), **known).holds
    places = Derived(np.arange(3), np.array([1]))
    known = {"traced": Searched(replace(traced(values, (1,)), derived=places))}
    assert verdict(np.array([2]), np.array([1]), **known).holds
    assert not verdict(np.array([0]), np.array([1]), **known).holds


def test_an_index_may_not_appear_twice_among_the_largest() -> None:
    values = f32(3, 3, 1).reshape(1, 3)
    known: dict[str, Any] = {"traced": Searched(traced(values, (1, 2), distinct=True))}
    assert verdict(np.array([[1, 0]]), np.array([[0, 1]]), **known).holds
    assert not verdict(np.array([[1, 1]]), np.array([[0, 1]]), **known).holds


def test_rows_and_columns_of_ties_are_judged_by_the_places_they_may_come_from() -> None:
    values = f32(1, 3, 3, 2, 0, 3 + 1e-2).reshape(1, 6)  # two rows of three columns
    columns = Derived(np.arange(6) % 3, np.array([[5, 1]]))
    known: dict[str, Any] = {"traced": Searched(replace(traced(values, (1, 2)), derived=columns))}
    assert verdict(np.array([[2, 2]]), np.array([[2, 1]]), **known).holds
    assert not verdict(np.array([[1, 1]]), np.array([[2, 1]]), **known).holds
    assert not verdict(np.array([[2, 0]]), np.array([[2, 1]]), **known).holds


def test_choices_that_are_all_below_are_no_rounding() -> None:
    """Each is within ten times its noise; of a hundred moved ones few are another, and none by much."""
    rng = np.random.default_rng(0)
    peaks = np.linspace(-1, 1, 200) - rng.uniform(-0.9, 0.9, (500, 1))
    values = (3 * np.cos(peaks / 2) + 100).astype(np.float32)
    runs = [values + rng.uniform(-4e-6, 4e-6, values.shape).astype(np.float32) for _ in range(16)]
    best = values.argmax(-1)
    origin = traced(values, (500,), first=True)
    searched = Searched(
        origin, tuple(replace(origin, values=run, chosen=run.argmax(-1)) for run in runs)
    )
    for found, right in ((runs[0].argmax(-1), True), (best - 1, False)):
        judged = verdict(found, best, traced=searched)
        assert judged.holds
        assert judged.lean is not None
        assert (judged.lean.systematic is None) == right
    alone = verdict(best - 1, best, traced=Searched(origin, tuple(map(unchosen, searched.moved))))
    assert alone.lean is not None
    assert alone.lean.systematic is None


def test_the_element_that_is_shown_is_one_that_was_picked_instead() -> None:
    expected, actual = f32(1, 2, 3, 9, 8, 7), f32(1, 2, 3, 9, 8, 8.5)
    rows = actual.reshape(2, 3), expected.reshape(2, 3)
    assert top_agreement(*rows, 1) == (1.0, -1)
    assert top_agreement(*rows, 2) == (0.5, 5)
    nothing = np.full((1, 2), np.nan, np.float32)
    assert top_agreement(nothing, nothing, 2) == (0.0, 0)


def unchosen(source: IndexSource) -> IndexSource:
    """What came from another machine, without what its runs have chosen."""
    return replace(source, chosen=None)


def test_integers_that_rounding_decides_may_go_either_way() -> None:
    expected, actual = np.array([4, 7]), np.array([5, 7])
    assert verdict(actual, expected, runs=[np.array([5, 7])]).holds
    assert not verdict(actual, expected, runs=[np.array([4, 8])]).holds


@given(
    st.integers(1, 40),
    st.sampled_from(["float32", "float16", "bfloat16"]),
    st.floats(1e-3, 1e3),
    st.integers(0, 99),
)
def test_auto_is_free_of_scale(count: int, dtype: str, scale: float, seed: int) -> None:
    """An error of many times the floor fails and one within it passes, at every scale."""
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    eps = float(ml_dtypes.finfo(kind).eps)
    exact = np.random.default_rng(seed).uniform(0.5, 1, count) * scale
    expected = exact.astype(kind)
    assert verdict((exact * (1 + eps)).astype(kind), expected, in_float64=exact).holds
    assert not verdict((exact * (1 + 60 * eps)).astype(kind), expected, in_float64=exact).holds


@settings(max_examples=tries(200))
@given(
    st.sampled_from(
        [AUTO, Tolerance(atol=1e-3), Tolerance(rtol=1e-3), Tolerance(atol=1e-4, rtol=1e-4)]
    ),
    st.lists(st.floats(0.25, 2.0, width=32), min_size=1, max_size=8),
    st.floats(-3, 3),
)
def test_an_error_and_its_limit_are_of_one_unit_and_never_look_alike(
    tolerance: Tolerance, values: list[float], steps: float
) -> None:
    expected = f32(*values)
    actual = expected.copy()
    actual[0] += np.float32(10.0**-steps if steps > 0 else 10 ** (steps - 4))
    judged = verdict(actual, expected, tolerance, in_float64=expected.astype(np.float64))
    deviation = judged.deviation
    assert deviation is not None
    assert deviation.measure in ERRORS
    assert (deviation.value <= deviation.allowed) == judged.holds
    assert deviation.value == pytest.approx(judged.budget * deviation.allowed, rel=1e-6)
    shown = value_and_limit(deviation)
    assert judged.holds or shown[0] != shown[1]


def test_what_is_proportional_or_of_one_sign_says_of_what_it_is_so_much() -> None:
    factor = Deviation(measure="constant factor", value=3e-6, allowed=1e-7)
    sign = Deviation(measure="one sign", value=29, allowed=17)
    assert deviation_sentence(factor) == (
        "constant factor 3.0e-06 × output where 1.0e-07 × output is allowed"
    )
    assert deviation_sentence(sign) == "one sign 29 × rounding where 17 × rounding is allowed"
    assert deviation_sentence(Deviation(value=29, allowed=17)) == "error 29 where 17 is allowed"


@pytest.mark.parametrize(("off", "opened"), [(3e-5, True), (3e-4, False)])
def test_what_a_decision_opens_has_the_noise_of_its_own_side(off: float, opened: bool) -> None:
    """A zero that was masked has no noise; where it is not, the runs that do not mask it have."""
    own = f32(0, 0.5, 0.25)
    kept = f32(0.3, 0.5, 0.25)
    wide = [kept * f32(1 + share, 1, 1) for share in (-4e-5, -1e-5, 2e-5, 4e-5)]
    others = [OtherAnswer("rounding", run) for run in wide]
    known = Known(own.astype(np.float64), [own], others)
    found = judge(kept * f32(1 + off, 1, 1), own, Rules(AUTO), known)
    assert found.holds == opened
    alone = Known(own.astype(np.float64), [own], others[3:])
    assert not judge(kept * f32(1 + 1e-5, 1, 1), own, Rules(AUTO), alone).holds


@pytest.mark.parametrize(
    ("off", "opened"), [(-3e-5, True), (3e-5, True), (1e-4, False), (-1e-4, False)]
)
def test_what_one_run_alone_opens_is_held_about_its_answer_with_nothing_moved(
    off: float, opened: bool
) -> None:
    """The run is as far from that as a candidate may be, and so a candidate further from the run."""
    own, kept = f32(0, 0.5, 0.25), f32(0.3, 0.5, 0.25)
    others = [OtherAnswer("rounding", kept * f32(1 + 4e-5, 1, 1), (kept,))]
    known = Known(own.astype(np.float64), [own], others)
    found = judge(kept * f32(1 + off, 1, 1), own, Rules(AUTO), known)
    assert found.holds == opened
    elsewhere = [OtherAnswer("rounding", kept * f32(1 + 4e-5, 1, 1), (own,))]
    known = Known(own.astype(np.float64), [own], elsewhere)
    assert not judge(kept * f32(1 + off, 1, 1), own, Rules(AUTO), known).holds


@pytest.mark.parametrize(("found", "holds"), [(2e-5, True), (3e-5, False), (2.0, False)])
def test_behind_a_kink_rounding_is_what_runs_beyond_it_show(found: float, holds: bool) -> None:
    """A zero next to a kink is moved by no run, and beyond the kink by as much as everything else."""
    own, usual = f32(0, 0.5, 0.25), (0.5, 0.25)
    wide = [f32(value, *usual) for value in (0, 3e-6, 8e-6, 1.2e-5)]
    others = [OtherAnswer("rounding", run) for run in wide]
    known = Known(own.astype(np.float64), [own], others)
    assert judge(f32(found, *usual), own, Rules(AUTO), known).holds == holds
    jumps = [OtherAnswer("rounding", f32(value, *usual)) for value in (0, 1.0, 3.0)]
    known = Known(own.astype(np.float64), [own], jumps)
    assert not judge(f32(found, *usual), own, Rules(AUTO), known).holds


@pytest.mark.parametrize(("wrong", "holds"), [(0, True), (60, False)])
def test_what_several_decisions_make_may_be_now_and_then_what_no_run_has_made(
    wrong: int, holds: bool
) -> None:
    """Codes of three digits, each of which rounding decides; 55 is no such code."""
    codes = np.random.default_rng(0).integers(0, 2, (37, 1000, 3)) @ np.array([1, 10, 100])
    own, found, runs = codes[0], codes[1], list(codes[2:])
    assert (np.stack([own, *runs]) != found).all(axis=0).sum() in range(1, 20)
    found[:wrong] = 55
    assert judge(found, own, Rules(AUTO), Known(runs=runs)).holds == holds
    found[500] = 5000
    assert not judge(found, own, Rules(AUTO), Known(runs=runs)).holds


def test_what_is_left_open_has_used_nothing_of_the_tolerance() -> None:
    own = f32(100, 0.5)
    known = Known(own.astype(np.float64), [f32(40, 0.5)])
    found = judge(f32(400, 0.5 * (1 + 6e-7)), own, Rules(AUTO), known)
    assert (found.holds, found.open) == (True, 1), found
    assert found.worst is not None
    assert found.worst.index == (1,)
    assert 0.3 < found.budget < 0.7


@pytest.mark.parametrize(("moved", "off", "leans"), [(0.1, 0.05, False), (1e-6, 1e-5, True)])
def test_what_rounding_decides_leans_to_nothing_over_all_cases(
    moved: float, off: float, leans: bool
) -> None:
    expected = 1 + np.random.default_rng(0).random(1000, np.float32)
    runs = [expected * np.float32(1 + side * moved) for side in (1, -1, 1, -1)]
    noise = Noise(expected, Terms.of(10.0, expected.dtype), Known(runs=runs))
    noise.more()
    lean = lean_of(expected * np.float32(1 - off), noise)
    everywhere = sum((lean for _ in range(400)), Lean())
    assert (everywhere.systematic is not None) == leans
