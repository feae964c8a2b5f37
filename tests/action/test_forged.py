"""Models and packages that lie to the gate, in the words of its own protocol."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.runner import CHECKOUT_TOKEN, Job, commit_models

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(900)]

PROJECT = Path(__file__).parent / "project"
# Sends a result of its own, with a diagnosis and a remedy, from within the process that measures it.
LIAR = """\
import os
import sys


def build():
    from onnx_gate.report.io import to_message
    from onnx_gate.report.model import ModelResult

    seen = {}
    frame = sys._getframe()
    while frame:
        seen = {**frame.f_locals, **seen}
        frame = frame.f_back
    os.symlink("/github/workspace/.git/modules", f"{seen['context'].folder}/repro")
    edit = {"file": "innocent.py", "line": 1, "old": ["a"], "new": ["b"]}
    model = to_message(ModelResult(name="liar", verdict="pass", cached=True))
    model["remedies"] = {"held": [{"kind": "source", "edits": [edit]}], "tried": 1}
    model["diagnosis"] = {
        **{"runtime": "onnxruntime", "case": "a", "output": "y", "blame": "exporter"},
        "repro": "repro/sub/objects",
    }
    told = {"torch": "9.9.9-forged", "invented": "x"}
    seen["sender"].send({"kind": "result", "environment": told, "model": model})
    seen["sender"].end()
    os._exit(0)
"""
ENTRY = '  liar:\n    model: models/liar.py:build\n    inputs: {x: "float32[2, 3]"}\n'
# Runs in the process that starts the workers, and says that the first process is one.
SERVER = """\
import glob
import os
import sys
import threading
import time


def lie():
    name = "onnx_gate.workers.forkserver"
    while not hasattr(sys.modules.get(name), "_Server"):
        time.sleep(0.001)
    module = sys.modules[name]
    told = module._Server._report

    def report(self, what, number, value, peak=0):
        born = what == module.BORN
        if born:
            for folder in glob.glob("/github/workspace/onnx-gate-report/models/*"):
                os.symlink("../../../../temp/secret.txt", f"{folder}/leak.txt")
        told(self, what, number, 1 if born else value, peak)
        if born:
            time.sleep(0.5)
            os._exit(1)

    module._Server._report = report


with open("/proc/self/cmdline") as file:
    if "forkserver import serve" in file.read():
        threading.Thread(target=lie, daemon=True).start()
"""


def links(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if p.is_symlink()]


def test_a_result_says_what_a_model_may_say_and_moves_nothing(
    image: str, make_job: Callable[..., Job]
) -> None:
    job = make_job(PROJECT)
    (job.workspace / "models" / "liar.py").write_text(LIAR)
    manifest = job.workspace / "onnx-gate.yml"
    manifest.write_text(manifest.read_text() + ENTRY)
    commit_models(job.workspace, "octo/models")
    objects = job.workspace / ".git" / "modules" / "sub" / "objects"
    objects.mkdir(parents=True)
    (objects.parent / "config").write_text(CHECKOUT_TOKEN)
    step = job.run(image, {"remedies": "false", "attest": "true"})
    (liar,) = (model for model in step.report["models"] if model["name"] == "liar")
    assert liar["verdict"] == "pass", step.log
    assert (liar["remedies"], liar["cached"], liar["diagnosis"]["repro"]) == (None, False, None)
    assert (objects.parent / "config").exists()
    output = job.workspace / "onnx-gate-report"
    assert not (output / "repro" / "liar").exists()
    assert links(output) == []
    statements = {p.name: p.read_text() for p in (output / "statements").glob("*.json")}
    assert statements
    assert not any("9.9.9-forged" in text or "invented" in text for text in statements.values())


def test_whoever_speaks_for_the_workers_cannot_have_the_gate_end_itself(
    image: str, make_job: Callable[..., Job]
) -> None:
    job = make_job(PROJECT, environ={"PYTHONPATH": "/github/workspace"})
    (job.workspace / "sitecustomize.py").write_text(SERVER)
    (job.temp / "secret.txt").write_text("secret")
    step = job.run(image, {"remedies": "false"})
    assert step.status == 1
    assert {model["error"]["code"] for model in step.report["models"]} == {"OG501"}, step.log
    output = job.workspace / "onnx-gate-report"
    assert links(output) == []
    assert not os.path.lexists(output / "models")
