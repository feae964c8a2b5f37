"""A fault that one engine alone makes is that engine's, and a second engine costs no second model."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from onnx_gate.report.story.side_by_side import cell, runtimes
from tests.support.engines import ENGINES, FAULTY, lacking
from tests.support.gate import gate, run_few

MODELS = """
import torch
from torch import nn

def sloped():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 300), nn.ELU(0.7), nn.Linear(300, 4)).eval()
"""
# Of one size: what converts for fixed sizes does so once.
ENTRY = 'model: "models.py:sloped", inputs: {input: "float32[2, 8]"}, '

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def with_faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(FAULTY), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


@pytest.fixture
def folder(once: Callable[..., Path], with_faulty: None) -> Path:
    """Verify the model alone, beside other engines, and with each of these made faulty."""
    right = ["onnxruntime", *itertools.filterfalse(lacking, ENGINES)]
    entries = {
        "alone": ENTRY + "runtimes: [onnxruntime]",
        "beside": ENTRY + f"runtimes: [{', '.join(right)}]",
    }
    for name in right[1:]:
        entries[f"{name}-fault"] = ENTRY + f"runtimes: [onnxruntime, faulty-{name}]"
    if not lacking("openvino"):
        entries["fusing"] = ENTRY + "runtimes: [onnxruntime, faulty-fusing]"
    return once("engines", lambda path: run_few(path, MODELS, entries))


@pytest.fixture
def results(folder: Path) -> dict[str, ModelResult]:
    report = read_report(folder / "onnx-gate-report" / "report.json")
    return {model.name: model for model in report.models}


def test_a_second_engine_costs_no_second_export_and_no_second_pass(
    results: dict[str, ModelResult],
) -> None:
    alone, beside = results["alone"], results["beside"]
    assert len(beside.runtimes) > len(alone.runtimes)
    assert alone.verdict == beside.verdict == "pass"
    times = [{stage.name: stage.times for stage in each.stages} for each in (alone, beside)]
    for stage in ("build", "export", "inspect", "verify: pytorch"):
        assert times[0][stage] == times[1][stage], stage
    assert times[1]["verify: runtime"] > times[0]["verify: runtime"]


@pytest.mark.skipif(bool(lacking("openvino")), reason=lacking("openvino"))
def test_a_fault_of_the_whole_graph_is_found_where_no_node_has_it_alone(
    results: dict[str, ModelResult],
) -> None:
    diagnosis = results["fusing"].diagnosis
    assert diagnosis is not None
    assert (diagnosis.blame, diagnosis.runtime) == ("kernel", "faulty-fusing")
    assert diagnosis.node is not None
    assert diagnosis.node.op_type == "Elu"
    assert "in the whole graph, and not where the node is alone" in diagnosis.note


@pytest.mark.parametrize("name", ENGINES)
def test_a_fault_of_one_engine_is_blamed_on_it_and_its_node_is_named(
    name: str, request: pytest.FixtureRequest
) -> None:
    if lacking(name):
        pytest.skip(lacking(name))
    folder: Path = request.getfixturevalue("folder")
    report = read_report(folder / "onnx-gate-report" / "report.json")
    model = next(each for each in report.models if each.name == f"{name}-fault")
    assert {c.runtime for c in model.checks if c.verdict == "diverged"} == {f"faulty-{name}"}
    assert f"faulty-{name}" in runtimes(report)
    verdicts = [cell(model, each.runtime) for each in model.runtimes]
    assert [each.verdict for each in verdicts if each is not None] == ["pass", "diverged"]
    diagnosis = model.diagnosis
    assert diagnosis is not None
    assert (diagnosis.blame, diagnosis.runtime) == ("kernel", f"faulty-{name}")
    assert diagnosis.node is not None
    assert diagnosis.node.op_type == "Elu"
    assert diagnosis.repro is not None
    assert diagnosis.replay == ("--runtime", f"faulty-{name}")
    repro = folder / "onnx-gate-report" / diagnosis.repro
    replayed = gate("replay", str(repro), *diagnosis.replay, cwd=folder)
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
