"""A bad day of the gate's own: what was verified stays verified."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onnx_gate.findings.codes import OG303, OG307, OG505
from onnx_gate.report.io import read_report
from tests.support.engines import FAULTY
from tests.support.gate import gate

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

MANIFEST = """version: 1
models:
  one: {model: "torch.nn:Identity", inputs: {input: "float32[2]"}}
  two: {model: "torch.nn:ReLU", inputs: {input: "float32[2]"}}
"""


def test_a_failure_of_the_gate_loses_nothing_that_was_verified(tmp_path: Path) -> None:
    """What it prints cannot be written: the line that says how a model did is the end of the run."""
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "onnx_gate", "run", "--jobs", "1"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=280,
        )
    assert done.returncode != 0
    report = read_report(tmp_path / "onnx-gate-report/report.json")
    assert report.verdict == "error"
    assert "onnx-gate itself failed" in report.problems[0].message
    one, two = report.models
    assert one.verdict == "pass"
    assert two.error is not None
    assert two.error.code == OG505.code
    assert not (tmp_path / "onnx-gate-report/models").exists()


def test_what_stands_in_the_way_of_one_model_is_its_own_trouble(tmp_path: Path) -> None:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    # A file where the folder of a model's log is to be would be in everybody's way.
    (tmp_path / "onnx-gate-report/logs/one.log/full").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "onnx_gate", "run"], cwd=tmp_path, capture_output=True, timeout=280
    )
    assert done.returncode == 1
    verdicts = {
        model.name: model.verdict
        for model in read_report(tmp_path / "onnx-gate-report/report.json").models
    }
    assert verdicts == {"one": "error", "two": "pass"}


def test_a_case_of_no_suite_is_a_mistake_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    run = (sys.executable, "-m", "onnx_gate", "run", "--case")
    done = subprocess.run([*run, "edge/zeros"], cwd=tmp_path, capture_output=True, timeout=280)
    assert done.returncode == 2
    assert "did you mean 'edges'?" in done.stderr.decode()
    assert not (tmp_path / "onnx-gate-report").exists()
    done = subprocess.run([*run, "*/zeros*"], cwd=tmp_path, capture_output=True, timeout=280)
    assert done.returncode == 0


def test_a_page_goes_to_a_file_where_somebody_looks(tmp_path: Path) -> None:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    run = f"{sys.executable} -m onnx_gate run --format html --case edges/zeros"
    shown = subprocess.run(
        ["script", "-qec", run, "/dev/null"],
        cwd=tmp_path,
        capture_output=True,
        timeout=280,
        stdin=subprocess.DEVNULL,
    ).stdout.decode()
    assert "<html" not in shown
    assert "onnx-gate-report/report.html" in shown
    piped = subprocess.run(run.split(), cwd=tmp_path, capture_output=True, timeout=280).stdout
    assert piped.startswith(b"<!doctype html>")


def test_an_engine_that_ends_the_process_as_it_loads_is_named_with_what_it_loads_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnx-gate.yml").write_text(
        """version: 1
models:
  alone: {model: "torch.nn:ReLU", inputs: {input: "float32[2]"}, runtimes: [hasty]}
  beside: {model: "torch.nn:ReLU", inputs: {input: "float32[2]"}, runtimes: [hasty, onnxruntime]}
"""
    )
    monkeypatch.setenv("PYTHONPATH", str(FAULTY))
    gate("run", cwd=tmp_path)
    alone, beside = read_report(tmp_path / "onnx-gate-report/report.json").models
    assert alone.error is not None
    assert alone.error.code == OG303.code
    assert (
        "hasty: its process ends while it loads the file, killed by SIGSEGV" in alone.error.message
    )
    assert "optimization: basic" in alone.error.remedy
    assert beside.checks
    assert all(check.runtime.startswith("onnxruntime") for check in beside.checks)
    (failed,) = OG307.among(beside.findings)
    assert "optimization: basic" in failed.data["remedy"]
