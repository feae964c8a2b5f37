"""The tolerance between an original and a fault: the judge passes the one and refuses the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from onnx_gate.audit.explain import unseen
from onnx_gate.audit.separate import MARGIN, SURE, Scope, scopes, separating
from onnx_gate.manifest import ModelSpec, RuntimeSpec, Tolerance, TopK
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Rules
from onnx_gate.verify.reference.answers import Reference

EXPECTED = 8 + np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
NOISE = np.random.default_rng(1).standard_normal(EXPECTED.shape).astype(np.float32)

TOLERANCES = [
    Tolerance(atol=1.0),
    Tolerance(rtol=1e5),
    Tolerance(atol=0.5, rtol=0.5),
    Tolerance(atol=0.004, mismatch=0.9),
    Tolerance(cosine=0.5),
    Tolerance(snr_db=6.0),
    Tolerance(top1=0.2),
    Tolerance(topk=TopK(5, 0.02)),
    Tolerance(max_ulp=2**31),
    Tolerance(metric="package.metrics:largest", max=1.0),
]
AUTO = Tolerance(auto=10.0)


class Known(Reference):
    """What PyTorch says of an output of which rounding moves each element by ``noise``."""

    def __init__(self, noise: Array | None) -> None:
        self._noise = noise

    def rounding(self, count: int) -> Sequence[Array]:
        return () if self._noise is None else [EXPECTED + self._noise.astype(np.float32)] * count


def largest(expected: Array, actual: Array) -> float:
    return float(np.max(np.abs(expected - actual)))


def check(candidate: Array, tolerance: Tolerance, noise: Array | None = None) -> Check:
    rules = Rules(tolerance, metric=largest if tolerance.metric else None)
    judged = judge(candidate, EXPECTED, rules, Known(noise))
    return Check(
        runtime="onnxruntime",
        suite="typical",
        case="typical/0",
        output="logits",
        verdict="pass" if judged.holds else "diverged",
        budget=judged.budget,
        tolerance=judged.tolerance,
        deviation=judged.deviation,
    )


def scope(tolerance: Tolerance) -> Scope:
    return Scope("tolerance", tolerance, frozenset(["onnxruntime"]), frozenset(["logits"]))


@pytest.mark.parametrize("tolerance", TOLERANCES, ids=str)
def test_the_tolerance_is_one_that_tells_the_fault(tolerance: Tolerance) -> None:
    # Twenty times as far off: more than the margin, whatever the criterion makes of it.
    original, fault = EXPECTED + np.float32(0.001) * NOISE, EXPECTED + np.float32(0.02) * NOISE
    before = check(original, tolerance), check(fault, tolerance)
    assert all(each.verdict == "pass" for each in before)
    sharper = next(separating(scope(tolerance), before[:1], [before[1:]]))
    assert check(original, sharper).verdict == "pass"
    assert check(fault, sharper).verdict == "diverged"
    if tolerance.top1 is None and tolerance.topk is None and not tolerance.mismatch:
        assert (check(original, sharper).budget or 0) * MARGIN <= 1.1


def test_auto_never_goes_below_what_correct_files_need() -> None:
    noise = 1e-4 * NOISE
    close, far = (EXPECTED + np.float32(share) * noise.astype(np.float32) for share in (2.0, 7.0))
    before = [check(each, AUTO, noise) for each in (EXPECTED, close, far)]
    assert all(each.verdict == "pass" for each in before)
    sharper = next(separating(scope(AUTO), before[:1], [before[1:2], before[2:]]))
    assert sharper.auto is not None
    assert SURE <= sharper.auto <= 7
    assert check(far, sharper, noise).verdict == "diverged"
    # Twice as far as PyTorch is what a correct file may be: nothing is proposed for it, and said so.
    assert not list(separating(scope(AUTO), before[:1], [before[1:2]]))
    why = unseen([scope(AUTO)], before[:1], before[1:2])
    assert why is not None
    assert why.why == "margin"
    assert why.tolerance["auto"] < 3


def test_the_floor_has_no_factor() -> None:
    fault = np.nextafter(EXPECTED, np.float32(np.inf))
    before = check(fault, AUTO)
    assert before.tolerance["basis"] == "floor"
    original = check(EXPECTED + np.float32(2e-4) * NOISE, AUTO, 1e-4 * NOISE)
    assert original.tolerance["basis"] == "rounding"
    assert not list(separating(scope(AUTO), [original], [[before]]))
    why = unseen([scope(AUTO)], [original], [before])
    assert why is not None
    assert why.why == "floor"


def test_what_the_original_needs_is_never_taken_from_it() -> None:
    tolerance = Tolerance(atol=0.1)
    original, fault = (check(EXPECTED + np.float32(s) * NOISE, tolerance) for s in (0.01, 0.008))
    assert not list(separating(scope(tolerance), [original], [[fault]]))
    why = unseen([scope(tolerance)], [original], [fault])
    assert why is not None
    assert why.why == "original"
    assert why.original == original.budget
    assert why.budget == fault.budget


MODEL = ModelSpec("net", "models.py:net", {})
ORT, OPENVINO = RuntimeSpec("onnxruntime"), RuntimeSpec("openvino", tolerance=Tolerance(auto=50))


@pytest.mark.parametrize(
    ("spec", "outputs", "keys"),
    [
        (MODEL, ("a",), ["tolerance"]),
        (MODEL, ("a", "b"), ["tolerance", "outputs.a", "outputs.b"]),
        (
            replace(MODEL, outputs={"a": None, "b": Tolerance(atol=1.0)}),
            ("a", "b"),
            ["tolerance", "outputs.a", "outputs.b"],
        ),
        (replace(MODEL, outputs={"a": Tolerance(atol=1.0)}), ("a",), ["outputs.a"]),
        (
            replace(MODEL, runtimes=(ORT, OPENVINO)),
            ("a", "b"),
            ["tolerance", "runtimes.onnxruntime", "runtimes.openvino"],
        ),
    ],
    ids=["one", "two", "own", "own alone", "runtimes"],
)
def test_every_tolerance_of_a_manifest_is_a_scope(
    spec: ModelSpec, outputs: tuple[str, ...], keys: list[str]
) -> None:
    assert [each.key for each in scopes(spec, outputs)] == keys
    for each in scopes(spec, outputs):
        if each.key == "tolerance":
            # The one case that is tried without optimisations is the same runtime's.
            assert each.runtimes == {"onnxruntime", "onnxruntime:cpu:off"}
        if each.key == "runtimes.openvino":
            assert each.tolerance.auto == 50
