"""One model's result cannot take another's out of the report."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.findings import codes
from onnx_gate.report.io import to_json
from onnx_gate.report.join.fitted import fitted
from onnx_gate.report.join.verdict import VERDICTS
from onnx_gate.report.model import ModelResult, Report
from tests.support.profiles import tries
from tests.support.report.scenes import whole

MOST = 20_000


def of(sizes: list[int]) -> Report:
    said = [codes.OG403.finding("x" * size) for size in sizes]
    return whole(
        *(ModelResult(name=f"m{n}", verdict="pass", findings=(f,)) for n, f in enumerate(said))
    )


@settings(max_examples=tries(200))
@given(st.lists(st.integers(0, 3 * MOST), min_size=1, max_size=20))
def test_only_the_largest_results_are_lost_and_never_in_silence(sizes: list[int]) -> None:
    report = of(sizes)
    kept = fitted(report, MOST)
    lost = [n for n, model in enumerate(kept.models) if model.verdict == "error"]
    assert [model.name for model in kept.models] == [model.name for model in report.models]
    assert all(kept.models[n] == report.models[n] for n in range(len(sizes)) if n not in lost)
    assert len(to_json(kept).encode()) <= MOST + 1_100 * len(lost)
    assert min((sizes[n] for n in lost), default=3 * MOST) >= max(
        (size for n, size in enumerate(sizes) if n not in lost), default=0
    )
    assert kept.counts.error == len(lost)
    assert (kept.verdict == "error") == bool(lost)
    assert kept.verdict in VERDICTS
