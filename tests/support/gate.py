"""The command line, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult, Report
from tests.support import warm

ROOT = Path(__file__).parents[2]
Finished = subprocess.CompletedProcess[str]
PACKAGES = ("onnx_gate", "engines/onnx_gate_engines")


@dataclass(frozen=True)
class Run:
    """A finished ``onnx-gate run``."""

    status: int
    output: str
    folder: Path
    report: Report

    def model(self, name: str) -> ModelResult:
        return next(model for model in self.report.models if model.name == name)


def finished_run(folder: Path) -> Run:
    """Read what a run left in its folder, and what was noted beside it of how it ended."""
    return Run(
        int((folder / "status").read_text()),
        (folder / "output").read_text(),
        folder,
        read_report(folder / "report.json"),
    )


def gate(
    *arguments: str, cwd: Path, timeout: float = 900, variables: Mapping[str, str] | None = None
) -> Finished:
    """Run the command line in a process of its own, which has imported what a run needs.

    Where variables are set for the interpreter, which reads them as it starts, it is started.
    """
    environment = environment_with(variables)
    if warm.fits(environment):
        return warm.run(arguments, cwd, environment, timeout)
    return started(*arguments, cwd=cwd, timeout=timeout, variables=variables)


def started(
    *arguments: str, cwd: Path, timeout: float = 900, variables: Mapping[str, str] | None = None
) -> Finished:
    """Start the command line as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "onnx_gate", *arguments],
        cwd=cwd,
        env=environment_with(variables),
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
    )


def environment_with(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's variables without those of CI, and with others."""
    # A terminal's width may have been set for this process by what else runs in it.
    left_out = ("CI", "GITHUB_ACTIONS", "COLUMNS", "ONNX_GATE_CACHE")
    environment = {k: v for k, v in os.environ.items() if k not in left_out}
    return {**environment, **(variables or {})}


def run_few(folder: Path, models: str, entries: Mapping[str, str]) -> dict[str, ModelResult]:
    """Verify entries of a manifest, written in flow style, on one random case of each size.

    ``models`` is the text of ``models.py`` in ``folder``.
    """
    (folder / "models.py").write_text(models)
    lines = [f"  {name}: {{{entry}}}" for name, entry in entries.items()]
    text = "version: 1\nsuites: {few: {random: normal, count: 1}}\ndefaults: {suites: [few]}\nmodels:\n"
    (folder / "onnx-gate.yml").write_text(text + "\n".join(lines))
    finished = gate("run", "--remedies", "0", cwd=folder)
    report = folder / "onnx-gate-report" / "report.json"
    assert report.exists(), finished.stdout + finished.stderr
    return {model.name: model for model in read_report(report).models}


# The beginning of ``models.py``, whose classes answer otherwise while they are ``wrong``.
TWINS = """
import torch
from torch import nn

class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wrong = False

def wrong(module, example, path):
    module.wrong = True
    export(module, example, path)
    module.wrong = False

def right(module, example, path):
    export(module, example, path)
"""


def run_twins(folder: Path, models: str, inputs: Mapping[str, str]) -> dict[str, ModelResult]:
    """Verify each class of ``models``, by its ``inputs``, in the two files that ``models`` writes of it.

    Its function ``export`` does, and each class is a ``Twin``, unless it has ``wrong`` and ``right`` of its
    own. ``Bent`` is verified as ``bent-wrong`` and ``bent-right``.
    """
    entries = {
        f"{name.lower()}-{kind}": f"model: models.py:{name}, inputs: {given}, "
        f'export: {{exporter: "models.py:{kind}"}}'
        for name, given in inputs.items()
        for kind in ("wrong", "right")
    }
    return run_few(folder, TWINS + models, entries)
