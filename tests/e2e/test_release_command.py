"""The owner's own script makes the file, and that file is what is verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import onnx_files
from tests.support.gate import Run, finished_run, gate

pytestmark = pytest.mark.process

MODELS = """\
import torch
from torch import nn

class Double(nn.Module):
    def forward(self, x):
        return x * 2
"""

# Copies a file that is right, or one that is wrong: no exporter is needed to tell them apart.
RELEASE = """\
import pathlib, shutil, sys
print("releasing", sys.argv[1])
path = pathlib.Path(sys.argv[2])
assert pathlib.Path("models.py").exists()
shutil.copyfile(sys.argv[1], path)
"""

ENTRY = 'model: "models.py:Double", inputs: {x: "float32[batch, 8]"}'
COMMANDS = {
    "right": '{command: "python release.py right.onnx {output}"}',
    "wrong": '{command: "python release.py wrong.onnx {output}"}',
    "named": "{command: python release.py right.onnx out/made.onnx, file: out/made.onnx}",
    "old": "{command: echo nothing to do, file: right.onnx}",
    "silent": '{command: "true {output}"}',
    "failing": "{command: \"echo begun > half.onnx; python -c 'import nothing_here'\", file: half.onnx}",
    "killed": '{command: "kill -9 $$ # {output}"}',
    "garbage": '{command: "echo garbage > {output}"}',
}


def fill(folder: Path) -> None:
    (folder / "models.py").write_text(MODELS)
    (folder / "release.py").write_text(RELEASE)
    (folder / "out").mkdir()
    onnx_files.scaling(folder / "right.onnx", 2.0)
    onnx_files.scaling(folder / "wrong.onnx", 2.5)
    lines = [f"  {name}: {{{ENTRY}, export: {export}}}" for name, export in COMMANDS.items()]
    text = "version: 1\nsuites: {few: {random: normal, count: 1}}\ndefaults: {suites: [few]}\nmodels:\n"
    (folder / "onnx-gate.yml").write_text(text + "\n".join(lines))
    for name in ("report", "again"):
        done = gate("run", "--output", name, "--cache", "cache", cwd=folder)
        (folder / name / "status").write_text(str(done.returncode))
        (folder / name / "output").write_text(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def folder(once: Callable[..., Path]) -> Path:
    return once("release-command", fill)


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return finished_run(folder / "report")


def message(run: Run, name: str) -> str:
    error = run.model(name).error
    assert error is not None, run.output
    assert error.kind == "export"
    return error.message


@pytest.mark.parametrize("name", ["right", "named"])
def test_the_file_that_the_script_leaves_is_verified(run: Run, name: str) -> None:
    model = run.model(name)
    assert model.verdict == "pass", run.output
    assert model.export is not None
    assert model.export.exporter == "command"


def test_a_wrong_file_diverges(run: Run) -> None:
    assert run.model("wrong").verdict == "diverged", run.output


def test_a_file_of_an_earlier_run_is_none(run: Run) -> None:
    assert "ended well and left right.onnx as it was before" in message(run, "old")
    assert "ended well and wrote nothing to {output}" in message(run, "silent")


def test_a_failure_shows_the_last_lines_and_leaves_nothing(run: Run, folder: Path) -> None:
    text = message(run, "failing")
    assert "ended with exit status 1" in text
    assert "ModuleNotFoundError: No module named 'nothing_here'" in text
    assert not (folder / "half.onnx").exists()
    assert "was ended by SIGKILL" in message(run, "killed")
    assert "cannot be read as an ONNX model" in message(run, "garbage")


def test_what_it_prints_is_in_the_log(run: Run) -> None:
    assert "releasing right.onnx" in (run.folder / "logs" / "right.log").read_text()


def test_its_verdict_is_not_kept(folder: Path) -> None:
    again = finished_run(folder / "again")
    assert not any(model.cached for model in again.report.models), again.output
