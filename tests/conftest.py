from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult, Report

HERE = Path(__file__).parent
ROOT = HERE.parent


@dataclass(frozen=True)
class Run:
    """A finished ``onnx-gate run``."""

    status: int
    output: str
    folder: Path
    report: Report

    def model(self, name: str) -> ModelResult:
        return next(model for model in self.report.models if model.name == name)


def gate(*arguments: str, cwd: Path, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, as a user does."""
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "GITHUB_ACTIONS")}
    return subprocess.run(
        [sys.executable, "-m", "onnx_gate", *arguments],
        cwd=cwd,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
    )


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's repository: models, exporters, manifests, and the files that they name."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(HERE / "e2e" / "project", folder, dirs_exist_ok=True)
    subprocess.run(
        [sys.executable, "make_data.py"], cwd=folder, check=True, capture_output=True, timeout=300
    )
    return folder


@pytest.fixture(scope="session")
def verify_manifest(project: Path) -> Callable[..., Run]:
    """Run a manifest of the project once, however many tests look at the result."""
    done: dict[tuple[str, ...], Run] = {}

    def run(manifest: str, *arguments: str) -> Run:
        key = (manifest, *arguments)
        if key not in done:
            output = project / f"report-{len(done)}"
            finished = gate(
                *("run", "--manifest", manifest, "--output", str(output), *arguments), cwd=project
            )
            assert (output / "report.json").exists(), finished.stdout + finished.stderr
            json.loads((output / "report.json").read_text())
            done[key] = Run(
                finished.returncode,
                finished.stdout + finished.stderr,
                output,
                read_report(output / "report.json"),
            )
        return done[key]

    return run
