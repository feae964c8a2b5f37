"""A machine without PyTorch holds its runtime against answers that another one has written down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnx_gate.files import sha256_of
from onnx_gate.gate.answers_folder import keep_answers
from onnx_gate.gate.folder_lock import alone_in
from onnx_gate.report.io import read_report
from onnx_gate.report.model import Check, ModelResult, Report
from tests.support.gate import gate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MANIFEST = """
version: 1
suites: {drawn: {random: normal, count: 2}}
defaults: {suites: [drawn, edges]}
models:
  plain: {model: "nets.py:Plain", inputs: {x: "float32[batch, 6]"}, dims: {batch: [1, 3]}}
  picks: {model: "nets.py:Picks", inputs: {x: "float32[batch, 6]"}, dims: {batch: [3]}}
  short: {model: "nets.py:Short", inputs: {x: "float16[batch, 6]"}, dims: {batch: [3]}}
  masked:
    model: nets.py:Masked
    inputs: {x: "float32[batch, seq]", mask: {dtype: int64, shape: [batch, seq], range: [0, 1]}}
    outputs: {y: {where: mask, auto: 10}}
    dims: {batch: [2], seq: [5]}
  steps:
    model: nets.py:Steps
    inputs: {token: {dtype: int64, shape: [batch], range: [0, 9]}, state: "float32[batch, 8]"}
    dims: {batch: [3]}
    steps: {count: 5, carry: {state: next}, feed: {token: argmax(logits)}}
  broken: {model: "nets.py:Broken", inputs: {x: "float32[batch, 6]"}}
"""

NETS = """
import torch
from torch import nn

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1))
    def forward(self, x):
        return self.layers(x)

class Picks(Plain):
    def forward(self, x):
        y = self.layers(x)
        return y, y.argmax(-1), y > 0.2

class Short(Plain):
    def __init__(self):
        super().__init__()
        self.half()

class Masked(nn.Module):
    def forward(self, x, mask):
        return {"y": torch.softmax(x.masked_fill(mask == 0, -1e9), -1)}

class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.cell, self.head = nn.Embedding(10, 8), nn.GRUCell(8, 8), nn.Linear(8, 10)
    def forward(self, token, state):
        state = self.cell(self.table(token), state)
        return {"logits": self.head(state), "next": state}

class Broken(nn.Module):
    def __init__(self):
        raise RuntimeError("no weights here")
"""

# What the other machine lacks: whatever imports one of these there fails.
LACKING = ("torch", "onnxscript", "onnx_ir", "sympy", "safetensors")


@pytest.fixture
def answers(once: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of the answers, elsewhere: the first machine's files are gone."""

    def write(folder: Path) -> None:
        (folder / "onnx-gate.yml").write_text(MANIFEST)
        (folder / "nets.py").write_text(NETS)
        done = gate("run", "--answers", "answers", "--output", "report", cwd=folder)
        assert done.returncode == 1, done.stdout + done.stderr  # broken cannot be built
        (folder / "nets.py").unlink()

    copy = tmp_path / "answers"
    shutil.copytree(once("answers", write) / "answers", copy)
    return copy


def hold(answers: Path, *arguments: str) -> tuple[int, str, Path]:
    """Run the command line where nothing of LACKING can be imported."""
    lacking = answers.parent / "lacking"
    for name in LACKING:
        (lacking / name).mkdir(parents=True, exist_ok=True)
        (lacking / name / "__init__.py").write_text(f"raise ImportError('{name} is not here')\n")
    output = answers.parent / "held"
    path = os.pathsep.join([str(lacking), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "onnx_gate", "run", "--against", str(answers)]
    done = subprocess.run(
        [*command, "--output", str(output), *arguments],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        cwd=answers.parent,
        text=True,
        capture_output=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr, output


def checks_of(report: Report, name: str) -> dict[tuple[str, str, str], Check]:
    """The checks of a model that count, without times; none of the optimiser's level."""
    model = next(each for each in report.models if each.name == name)
    return {
        (c.runtime, c.case, c.output): c.model_copy(update={"seconds": None})
        for c in model.checks
        if not c.advice and c.runtime == "onnxruntime"
    }


def test_every_check_is_what_it_was_with_pytorch(answers: Path) -> None:
    status, said, output = hold(answers, "--format", "junit", "--format", "html")
    first, second = read_report(answers / "report.json"), read_report(output / "report.json")
    for name in ("plain", "picks", "short", "masked", "steps"):
        known, found = checks_of(first, name), checks_of(second, name)
        assert found == known, name
        assert any(check.compared for check in found.values())
        depth = {len(check.steps.errors) for check in found.values() if check.steps}
        # As many as the manifest asks for, and in one case four times as many.
        assert depth == ({5, 21} if name == "steps" else set())
    verdicts = {model.name: model.verdict for model in second.models}
    assert verdicts == {model.name: model.verdict for model in first.models}
    assert verdicts["broken"] == "error"
    assert "no weights here" in said
    assert status == 1
    assert second.held is not None
    assert second.held.environment["torch"]
    assert "torch" not in second.environment
    assert second.environment["cpu_capability"]
    assert (output / "report.xml").exists()
    assert (output / "report.html").exists()
    assert any("PyTorch" in note for note in second.notes)


def test_a_file_that_computes_something_else_is_red(answers: Path) -> None:
    folder = answers / "plain"
    path = folder / "model" / "model.onnx"
    model = onnx.load(str(path))
    weight = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    array = np.array(numpy_helper.to_array(weight))
    array.reshape(-1)[0] += 1e-3
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    onnx.save(model, str(path))
    status, said, _ = hold(answers, "--model", "plain")
    assert status == 1
    assert "digest" in said
    assert str(path) in said
    sign(answers, "plain")
    status, said, output = hold(answers, "--model", "plain")
    assert status == 1
    assert [m.verdict for m in read_report(output / "report.json").models] == ["diverged"]


def sign(answers: Path, name: str, **changed: Any) -> None:
    """Write the digests of a model's files anew, as if they had been written like this."""
    index = answers / name / "answers.json"
    data = {**json.loads(index.read_text()), **changed}
    data["files"] = {each: sha256_of(answers / name / each) for each in data["files"]}
    index.write_text(json.dumps(data))
    report = json.loads((answers / "report.json").read_text())
    for model in report["models"]:
        if model["name"] == name:
            model["answers"]["sha256"] = sha256_of(index)
    (answers / "report.json").write_text(json.dumps(report))


def test_what_is_broken_is_named_with_its_remedy(answers: Path) -> None:
    (answers / "plain" / "0.npz").unlink()
    (answers / "picks" / "0.npz").write_bytes(b"no arrays")
    sign(answers, "picks")
    sign(answers, "short", schema=99)
    index = json.loads((answers / "masked" / "answers.json").read_text())
    (answers.parent / "elsewhere").write_bytes((answers / "masked" / "0.npz").read_bytes())
    sign(answers, "masked", files={**index["files"], "../../elsewhere": ""})
    status, _, output = hold(answers)
    errors = {m.name: m.error for m in read_report(output / "report.json").models}
    for name, words in {
        "plain": "plain/0.npz: No such file",
        "picks": "picks/0.npz: the answers of",
        "short": "schema 99 where this version of onnx-gate reads 3",
        "masked": "../../elsewhere is not a file beside it",
    }.items():
        error = errors[name]
        assert error is not None, name
        assert error.code == "OG431"
        assert words in error.message
        assert "run --answers DIR" in error.message
    assert status == 1


def test_a_folder_that_is_none_is_refused(answers: Path) -> None:
    for name, words in (("onnx-gate.yml", "carry it beside"), ("report.json", "No such file")):
        (answers / name).rename(answers / "away")
        status, said, _ = hold(answers)
        assert status == 2
        assert words in said
        assert name in said
        (answers / "away").rename(answers / name)
    manifest = answers / "onnx-gate.yml"
    manifest.write_text(manifest.read_text() + "# another one\n")
    status, said, _ = hold(answers)
    assert status == 2
    assert "is not the manifest of" in said
    status, said, _ = hold(answers, "--manifest", str(manifest))
    assert status == 2
    assert "leave --manifest" in said


def test_a_runtime_is_asked_for_by_its_label(answers: Path) -> None:
    sign(answers, "plain", left_out=["drawn/batch=99/0"], whole=False)
    status, said, output = hold(
        answers, "--model", "plain", "--runtime", "onnxruntime:cpu:off", "--case", "drawn/*"
    )
    report = read_report(output / "report.json")
    assert status == 0, said
    assert {check.runtime for check in report.models[0].checks} == {"onnxruntime:cpu:off"}
    said_of_rest = [f.message for f in report.models[0].findings if f.code == "OG430"]
    assert "drawn/batch=99/0" in said_of_rest[0]
    status, said, _ = hold(answers, "--model", "plain", "--runtime", "onnxruntime:cuda[use_tf32=1]")
    assert status == 1
    assert "OG301" in said
    assert "onnxruntime-gpu" in said
    for label, words in (("onnxruntim:cuda", "did you mean"), ("onnxruntime:gpu", "'cuda'")):
        status, said, _ = hold(answers, "--runtime", label)
        assert status == 2
        assert words in said


def test_what_another_run_is_writing_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "onnx-gate.yml").write_text(
        'version: 1\nmodels:\n  plain: {model: "nets.py:Plain", inputs: {x: "float32[2, 6]"}}\n'
    )
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "answers").mkdir()
    (tmp_path / "report").mkdir()
    named = ["--answers", "answers", "--output", "report"]
    for option in ("--answers", "--output"):
        with alone_in(tmp_path / option.removeprefix("--").replace("output", "report"), option):
            done = gate("run", *named, cwd=tmp_path)
            assert done.returncode == 2, done.stdout + done.stderr
            assert f"{option} " in done.stderr
            assert "another run is writing there" in done.stderr
    done = gate("run", *named, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_answers_that_could_not_be_kept_are_a_warning(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    result = ModelResult(name="plain", verdict="pass")
    kept = keep_answers(result, source, tmp_path / "answers")  # the folder has no index
    assert kept.answers is None
    (finding,) = kept.findings
    assert (finding.code, finding.severity) == ("OG430", "warning")
    assert "No such file" in finding.message
    assert not (tmp_path / "answers" / "plain").exists()
