"""What the container attests of a run, held against the files that it leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.runner import Job, commit_models

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(1800)]

PROJECT = Path(__file__).parent / "project"


def test_a_deployment_can_ask_which_file_was_verified(
    image: str, make_job: Callable[..., Job]
) -> None:
    job = make_job(PROJECT)
    commit_models(job.workspace, "octo/models")
    planted = job.workspace / "onnx-gate-report" / "statements" / "good.parity.json"
    planted.parent.mkdir(parents=True)
    planted.write_text("{}")
    ran = job.run(image, {"mode": "verify", "models": "good, bad", "attest": "true"})
    assert ran.status == 1
    statement = job.workspace / "onnx-gate-report" / "statements" / "good.parity.json"
    said = json.loads(statement.read_text())["predicate"]
    assert said["verdict"] == "pass"
    assert any("gitCommit" in each["digest"] for each in said["configuration"])
    [exported] = (job.workspace / "onnx-gate-report" / "models" / "good").glob("*.onnx")

    def verify(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "onnx_gate", "attest", "verify", str(exported)]
        manifest = f"manifest={job.workspace / 'onnx-gate.yml'}"
        command += ["--statement", str(statement), "--require", manifest, *more]
        return subprocess.run(command, capture_output=True, text=True)

    assert verify("--require", "sandbox=full").returncode == 0
    assert "it is about the model" in verify("--require", "model=bad").stderr
    exported.write_bytes(exported.read_bytes() + b"\0")
    assert verify().returncode == 1
    other = json.loads((statement.parent / "bad.parity.json").read_text())["predicate"]
    assert other["verdict"] == "diverged"
