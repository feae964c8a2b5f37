"""What is proposed for one output, and for a waiver, is what catches the survivors; why others survive."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from onnx_gate.report.io import read_report
from onnx_gate.report.model.audit import Audit
from tests.support.gate import ROOT, gate

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

FAULTY = ROOT / "tests" / "support" / "faulty_engines"
MODELS = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.fine, self.coarse = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.half = False

    def forward(self, x):
        x = torch.tanh(self.first(x))
        coarse = self.coarse(x)
        if self.half:
            coarse = coarse.half().float()
        return {"fine": self.fine(x), "coarse": coarse}

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x, mask):
        return torch.where(mask.bool()[..., None], self.layer(x), torch.full((4,), -1e9))

def export(module, example, path):
    module.half = True
    torch.onnx.export(
        module, (), str(path), kwargs=example, dynamo=True, input_names=["x"],
        output_names=["fine", "coarse"], dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}},
    )
    module.half = False
"""
MANIFEST = """\
version: 1
defaults:
  suites: [typical]
models:
  outputs:
    model: models.py:Net
    inputs: {x: "float32[batch, 6]"}
    export: {exporter: "models.py:export"}
    tolerance: {atol: 0.05}  # for the output in half precision
  runtimes:
    model: models.py:Net
    inputs: {x: "float32[batch, 6]"}
    runtimes: [onnxruntime, coarse]  # a server and a phone
    tolerance: {atol: 0.05}
  waived:
    model: models.py:Net
    inputs: {x: "float32[batch, 6]"}
    export: {exporter: "models.py:export"}
    waivers:
      - check: "*"  # until the head is exported in full
        until: 2099-01-01
        reason: half precision
  masked:
    model: models.py:Masked
    inputs:
      x: float32[batch, seq, 4]
      mask: {dtype: int64, shape: [batch, seq], range: [0, 1]}
    outputs: {output: {where: mask}}
"""


def audits(folder: Path, *arguments: str) -> dict[str, Audit]:
    done = gate("audit", "--sample", "12", *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    report = read_report(folder / "onnx-gate-report" / "report.json")
    return {each.name: each.audit for each in report.models if each.audit is not None}


def test_what_is_proposed_catches_what_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FAULTY))
    (tmp_path / "models.py").write_text(MODELS)
    manifest = tmp_path / "onnx-gate.yml"
    manifest.write_text(MANIFEST)
    before = audits(tmp_path, "--write")
    text = manifest.read_text()
    assert [line.partition("#")[2] for line in text.splitlines() if "#" in line] == [
        line.partition("#")[2] for line in MANIFEST.splitlines() if "#" in line
    ]
    entries = yaml.safe_load(text)["models"]

    # The model's own tolerance cannot be that of the fine output: the coarse one would fail.
    assert entries["outputs"]["outputs"] == {"fine": {"auto": 10}}
    assert entries["outputs"]["tolerance"]["atol"] < 0.05
    server = {"name": "onnxruntime", "tolerance": {"auto": 10}}
    assert entries["runtimes"]["runtimes"] == [server, "coarse"]
    # Rounding to float16 is the largest error that the original needs.
    (waiver,) = entries["waived"]["waivers"]
    assert 2**-12 < waiver["ceiling"] < 0.1

    hidden = [m for m in before["masked"].fate("survived") if m.unseen is not None]
    assert {m.unseen.why for m in hidden if m.unseen and m.unseen.subject == "mask"} == {"where"}
    assert {"mask-ignored", "mask-whole"} & {m.fault for m in hidden}

    named = (word for name in entries if name != "masked" for word in ("--model", name))
    after = audits(tmp_path, *named)
    for name, audit in after.items():
        assert audit.resumed == 0
        assert audit.score is not None
        assert before[name].score is not None
        assert audit.score.caught > before[name].score.caught
        fates = {mutant.id: mutant.fate for mutant in audit.mutants}
        promised = [m for m in before[name].fate("survived") if m.change is not None]
        assert promised
        for mutant in promised:
            assert fates[mutant.id] in ("caught", "duplicate"), mutant
        # Nothing survives without a reason.
        for mutant in (*audit.fate("survived"), *before[name].fate("survived")):
            assert mutant.change is not None or mutant.unseen is not None, mutant
