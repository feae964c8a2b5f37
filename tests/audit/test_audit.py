"""Whole audits: a blunt gate is told from a sharp one, what is proposed works, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onnx_gate.action.job import Job
from onnx_gate.audit.command import weighed
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult, Sandbox
from onnx_gate.report.model.audit import Audit, Share
from onnx_gate.report.render.markdown import render
from onnx_gate.verify.context import AuditRequest
from onnx_gate.workers.launch import Launch
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
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 8)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        x = self.norm(self.first(x))
        x = x + torch.relu(self.second(x))
        return self.last(torch.softmax(x, -1) - 0.1 * x)
"""
BLUNT = """\
version: 1
models:
  # what everybody begins with
  sharp:
    model: models.py:Net
    inputs: {x: "float32[batch, 6]"}
  blunt:
    model: models.py:Net  # the same
    inputs: {x: "float32[batch, 6]"}
    dims: {batch: [1]}
    suites: [{edges: [zeros]}]  # fast
    tolerance: {atol: 0.1}  # generous
"""


def project(folder: Path) -> Path:
    (folder / "models.py").write_text(MODELS)
    (folder / "onnx-gate.yml").write_text(BLUNT)
    return folder


def report_of(folder: Path, output: str = "onnx-gate-report") -> dict[str, ModelResult]:
    return {each.name: each for each in read_report(folder / output / "report.json").models}


def audit_of(folder: Path, model: str, output: str = "onnx-gate-report") -> Audit:
    made = report_of(folder, output)[model].audit
    assert made is not None
    assert made.score is not None
    return made


def share(of: Share | None) -> float:
    assert of is not None
    return of.caught / of.of


def test_what_is_proposed_makes_a_blunt_gate_sharp(tmp_path: Path) -> None:
    folder = project(tmp_path)
    first = gate("audit", "--min-score", "0.5", "--write", "--sample", "30", cwd=folder)
    assert first.returncode == 1, first.stdout + first.stderr
    sharp, blunt = audit_of(folder, "sharp"), audit_of(folder, "blunt")
    assert share(sharp.score) > 0.9
    # What is stored wrong is seen whatever the inputs and the tolerance; of all else, next to nothing.
    checked = [mutant for mutant in blunt.fate("caught") if mutant.case]
    assert len(checked) < 0.15 * len(blunt.mutants)
    assert len(checked) < len(blunt.fate("caught"))
    assert report_of(folder)["sharp"].verdict == "pass"
    error = report_of(folder)["blunt"].error
    assert error is not None
    assert error.code == "OG603"
    assert "survived: " in first.stdout

    text = (folder / "onnx-gate.yml").read_text()
    for comment in ("# what everybody begins with", "# the same", "# fast", "# generous"):
        assert comment in text
    assert text.startswith(BLUNT[: BLUNT.index("    dims:")])
    assert "atol" not in text

    again = gate("audit", "--min-score", "0.5", "--sample", "30", "--model", "blunt", cwd=folder)
    assert again.returncode == 0, again.stdout + again.stderr
    after = audit_of(folder, "blunt")
    assert share(after.score) >= share(sharp.score)
    fates = {mutant.id: mutant.fate for mutant in after.mutants}
    promised = [mutant for mutant in blunt.fate("survived") if mutant.change is not None]
    assert promised
    for mutant in promised:
        assert fates[mutant.id] in ("caught", "duplicate"), mutant
    # What another audit knew is not believed of another gate.
    assert after.resumed == 0


def test_what_only_other_inputs_show_survives(tmp_path: Path) -> None:
    """Inputs of zeros show next to nothing, which makes no gate of them."""
    (tmp_path / "models.py").write_text(
        "import numpy as np\nimport torch\nfrom torch import nn\nclass Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        torch.manual_seed(0)\n"
        "        self.layer = nn.Linear(6, 8, bias=False)\n"
        "    def forward(self, x):\n"
        "        return torch.tanh(self.layer(x).clamp(-2.0, 1.5)) * 0.5\n"
        "def zeros(inputs, seed):\n    yield {'x': np.zeros((1, 6), np.float32)}\n"
    )
    (tmp_path / "onnx-gate.yml").write_text(
        "version: 1\nmodels:\n  net: {model: 'models.py:Net', inputs: {x: 'float32[1, 6]'},"
        " suites: [{generator: 'models.py:zeros'}]}\n"
    )
    done = gate("audit", "--sample", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    made = audit_of(tmp_path, "net")
    assert share(made.score) < 0.7
    shown = {m.fault: m for m in made.fate("survived") if m.unseen and m.unseen.why == "inputs"}
    assert {"scale", "result-float16", "activation-missing"} <= shown.keys()
    assert not any(mutant.reached for mutant in shown.values())
    assert "no case of the manifest's reaches it" in done.stdout
    # All that there are were tried: nothing was drawn.
    assert "confidence" not in done.stdout


def test_an_interrupted_audit_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = project(tmp_path)
    arguments = ("audit", "--model", "sharp", "--sample", "0")
    process = subprocess.Popen(
        [sys.executable, "-m", "onnx_gate", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    journal = folder / "onnx-gate-report" / "audit" / "sharp.jsonl"
    until = time.monotonic() + 300
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 5):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    kept = {
        entry["value"]["id"]: entry["value"]["fate"]
        for line in journal.read_text().splitlines()
        for entry in [json.loads(line.partition(" ")[2])]
    }
    with journal.open("a") as file:
        file.write('{"key": 3, "value": [')  # a line that was cut off

    count = len(kept)
    done = gate("audit", "--model", "sharp", "--sample", str(count + 3), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    after = audit_of(folder, "sharp")
    assert after.resumed == count
    for mutant in after.mutants:
        if mutant.id in kept and mutant.fate != "duplicate":
            assert mutant.fate == kept[mutant.id]

    fresh = gate("audit", "--model", "sharp", "--sample", str(count), "--no-cache", cwd=folder)
    assert fresh.returncode == 0
    anew = audit_of(folder, "sharp")
    assert anew.resumed == 0
    same = [m.model_copy(update={"change": None}) for m in after.mutants[: len(anew.mutants)]]
    assert [m.model_copy(update={"change": None}) for m in anew.mutants] == same


def test_weights_that_are_not_packed_are_of_the_runtime_that_the_manifest_names(
    tmp_path: Path,
) -> None:
    """How sessions of large models are opened is no other runtime: its own tolerance holds."""
    (tmp_path / "models.py").write_text(
        "import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
        "    return nn.Linear(4200, 4200).eval()\n"
    )
    (tmp_path / "onnx-gate.yml").write_text(
        "version: 1\nmodels:\n  net:\n    model: models.py:build\n    dims: {batch: [1]}\n"
        "    inputs: {input: 'float32[batch, 4200]'}\n    suites: [{random: normal, count: 1}]\n"
        "    runtimes: [onnxruntime, {name: onnxruntime, optimization: basic, tolerance: {atol: 9}}]\n"
    )
    done = gate("audit", "--sample", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    made = audit_of(tmp_path, "net")
    assert {mutant.runtime for mutant in made.fate("caught")} == {"onnxruntime"}


def test_the_action_audits_in_the_step_that_verifies(tmp_path: Path) -> None:
    folder = project(tmp_path)
    job = Job(
        manifest=folder / "onnx-gate.yml",
        output=folder / "report",
        launch=Launch(environment=dict(os.environ)),
        sandbox=Sandbox(level="off"),
        audit=True,
        min_score=0.8,
    )
    (folder / "job.json").write_text(job.model_dump_json())
    command = (sys.executable, "-m", "onnx_gate.action.unprivileged", str(folder / "job.json"))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1, done.stdout + done.stderr
    sharp, blunt = (report_of(folder, "report")[name] for name in ("sharp", "blunt"))
    assert (sharp.verdict, blunt.verdict) == ("pass", "error")
    assert blunt.error is not None
    assert blunt.error.code == "OG603"
    # A step that verifies leaves nothing out: the advisory cases are tried as in any other.
    assert any(check.advice for check in sharp.checks)
    comment = render(read_report(folder / "report" / "report.json"))
    assert "the gate catches" in comment
    assert "--min-score asks for 80%" in comment


def test_a_fault_that_ends_its_process_is_refused_and_the_audit_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.py").write_text(
        "import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1)).eval()\n"
    )
    (tmp_path / "onnx-gate.yml").write_text(
        "version: 1\nmodels:\n  net: {model: 'models.py:build', runtimes: [fragile],"
        " inputs: {input: 'float32[batch, 3]'}}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(FAULTY))
    done = gate("audit", "--sample", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    made = audit_of(tmp_path, "net")
    fatal = [mutant for mutant in made.fate("refused") if "SIGSEGV" in mutant.reason]
    assert {mutant.fault for mutant in fatal} == {"axis"}
    assert len(made.mutants) == made.sites
    # What was tried before is not tried again in the second process, and more after it.
    tried = [mutant.id for mutant in made.mutants]
    assert made.resumed == tried.index(fatal[-1].id) + 1 < made.sites


def test_a_model_that_does_not_pass_is_not_audited(tmp_path: Path) -> None:
    folder = project(tmp_path)
    text = BLUNT.replace("    dims: {batch: [1]}\n", "").replace("[{edges: [zeros]}]", "[typical]")
    text = text.replace("{atol: 0.1}", "{metric: models.py:never, max: 1}")
    (folder / "onnx-gate.yml").write_text(text)
    (folder / "models.py").write_text(MODELS + "\ndef never(a, b):\n    return 2.0\n")
    done = gate("audit", "--model", "blunt", cwd=folder)
    assert done.returncode == 1
    made = report_of(folder)["blunt"].audit
    assert made is not None
    assert made.score is None
    assert "not audited: the model does not pass" in done.stdout


@pytest.mark.parametrize(
    ("caught", "of", "verdict"), [(9, 10, "pass"), (8, 10, "error"), (0, 0, "error")]
)
def test_the_least_score_is_a_check(caught: int, of: int, verdict: str) -> None:
    made = Audit(score=Share(name="all", caught=caught, of=of))
    result = ModelResult(name="net", verdict="pass", audit=made)
    assert weighed(result, AuditRequest(min_score=0.9)).verdict == verdict
    assert weighed(result, AuditRequest()).verdict == "pass"
    without = result.model_copy(update={"audit": Audit(note="why")})
    assert weighed(without, AuditRequest(min_score=0.1)).verdict == "error"


def test_calls_that_are_no_audits(tmp_path: Path) -> None:
    folder = project(tmp_path)
    for arguments in (("--min-score", "2"), ("--sample", "-1"), ("--model", "nobody")):
        done = gate("audit", *arguments, cwd=folder)
        assert done.returncode == 2, done.stdout + done.stderr
