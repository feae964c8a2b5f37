"""Where the time went: every stage by its name, and none of it twice."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.verify.stopwatch import Clock
from tests.support.gate import Run

PARTS = ["inputs", "sessions", "pytorch", "runtime", "compare"]


@given(st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=3), max_leaves=12))
def test_the_parts_of_a_clock_are_the_whole(tree: list[object]) -> None:
    clock, opened = Clock(), 0

    def walk(node: list[object]) -> None:
        nonlocal opened
        with clock.of(f"part {opened % 4}"):
            opened += 1
            for child in node:
                walk(child)  # type: ignore[arg-type]

    begin = time.perf_counter()
    with clock.of("whole"):
        walk(tree)
    whole = time.perf_counter() - begin
    assert all(seconds >= 0 for seconds in clock.seconds.values())
    assert sum(clock.seconds.values()) <= whole
    assert set(clock.seconds) == {"whole"} | {f"part {n % 4}" for n in range(opened)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_names_its_stages(verify_manifest: Callable[..., Run]) -> None:
    good, bad = verify_manifest("good.yml"), verify_manifest("bad.yml")
    model = next(m for m in good.report.models if m.verdict == "pass" and m.export is not None)
    names = [stage.name for stage in model.stages]
    assert names[:4] == ["start", "build", "export", "inspect"]
    assert {f"verify: {part}" for part in PARTS} <= set(names)
    assert len(names) == len(set(names))
    for model in (*good.report.models, *bad.report.models):
        assert model.stages, model.name
        if model.seconds is not None:
            assert sum(stage.seconds for stage in model.stages) <= model.seconds + 0.01
        if model.diagnosis is not None:
            assert "diagnose" in [stage.name for stage in model.stages]
