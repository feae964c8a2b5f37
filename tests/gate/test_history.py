"""What a run learns from earlier ones, and what it does with that."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.gate.history import history_of
from onnx_gate.gate.outcome import result_of
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.io import parse_report, read_report, to_json
from onnx_gate.report.model import ModelResult, Stage
from onnx_gate.workers.pool import Outcome
from onnx_gate.workers.task import End
from tests.support.gate import gate
from tests.support.report.scenes import whole

NUMBERS = st.none() | st.floats() | st.sampled_from([0.0, -1.0, 2.5, math.inf])
RESULTS = st.builds(
    ModelResult,
    name=st.sampled_from("abc"),
    verdict=st.sampled_from(["pass", "diverged", "error"]),
    cached=st.booleans(),
    seconds=NUMBERS,
    peak_memory=st.none() | st.integers(-1, 10**6) | st.just(10**5000),
)


@given(st.lists(st.lists(RESULTS, max_size=4), max_size=4))
def test_the_last_that_says_something_counts(runs: list[list[ModelResult]]) -> None:
    found = history_of(whole(*models) for models in runs)
    for name in "abc":
        said = [each for models in runs for each in models if each.name == name]
        times = [each.seconds for each in said if each.seconds and 0 < each.seconds < 1e15]
        sizes = [each.peak_memory for each in said if each.peak_memory]
        sizes = [size for size in sizes if 0 < size < 1e15]
        assert found.seconds.get(name) == (times[-1] if times else None)
        assert found.memory.get(name) == (sizes[-1] if sizes else None)


def test_a_report_of_an_older_version_is_read_and_has_its_stages() -> None:
    stages = (Stage(name="build", seconds=0.5), Stage(name="export", seconds=2.0))
    old = json.loads(to_json(whole(ModelResult(name="net", verdict="pass", stages=stages))))
    del old["seconds"]
    for model in old["models"]:
        del model["seconds"], model["peak_memory"]
    read = parse_report(json.dumps(old).encode(), "old")
    assert read.seconds is None
    assert read.models[0].peak_memory is None
    assert history_of([read]).seconds == {"net": 2.5}


@pytest.mark.parametrize("end", ["done", "exit", "signal", "timeout", "memory", "protocol", "lost"])
def test_a_model_that_failed_has_its_seconds_and_memory_too(end: End) -> None:
    spec = ModelSpec(name="net", model="a:b", inputs={})
    result = result_of(spec, Outcome((), end, "", (), 1.5, 1 << 20), "net.log")
    assert (result.verdict, result.seconds, result.peak_memory) == ("error", 1.5, 1 << 20)


MANIFEST = """version: 1
models:
  short: {model: "torch.nn:Identity", inputs: {input: "float32[2]"}}
  new: {model: "torch.nn:ReLU", inputs: {input: "float32[2]"}}
  long: {model: "torch.nn:Tanh", inputs: {input: "float32[2]"}}
"""


@pytest.mark.slow
def test_the_next_run_starts_with_what_took_longest_and_reports_in_the_manifests_order(
    tmp_path: Path,
) -> None:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    times = {"short": 1.0, "long": 50.0}
    models = [ModelResult(name=name, verdict="pass", seconds=times[name]) for name in times]
    (tmp_path / "onnx-gate-report").mkdir()
    last = tmp_path / "onnx-gate-report/report.json"
    last.write_text(to_json(whole(*models)))
    done = gate("run", "--jobs", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("[")]
    assert ended == ["long", "new", "short"]
    report = read_report(last)
    assert [model.name for model in report.models] == ["short", "new", "long"]
    assert all((model.seconds or 0) > 0 for model in report.models)
    assert all((model.peak_memory or 0) > 1 << 20 for model in report.models)
    assert (report.seconds or 0) >= sum(model.seconds or 0 for model in report.models)
    assert "on the clock" in done.stdout
