"""Mistakes of the first hour with the gate: each is told for what it is, with what to do about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from onnx_gate.report.io import read_report
from onnx_gate.report.story.sentence import of_model
from tests.support.gate import gate

PROJECT = Path(__file__).parent / "first_hour"

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(900)]

# model -> what its sentence says, from why over where to what to do
TOLD = {
    "float64": "inputs.x: the manifest says float64, and forward takes float32, onnx-gate.yml:7. "
    "Write float32 in inputs.x.",
    "vocabulary": "inputs.kinds reaches 5, and the table kinds has rows 0 to 2, onnx-gate.yml:12. "
    "Write range: [0, 2] in inputs.kinds.",
    "cuda": "(models.py:26). Move tensors to the device of an input, x.to(other.device),",
    "width": "a.weight is (8, 16), the model has (8, 8), onnx-gate.yml:16. Build the model with the "
    "checkpoint's sizes",
    "training": "'norm' is in training mode, though the gate called eval(), and the file's is not, "
    "models.py:45. Let train(mode) pass its mode on",
    "dropping": "with bernoulli_, in training mode ('1'), though the gate called eval()",
    "drawing": "draws random numbers from torch, with randn_like (models.py:58). A graph",
    "refusing": "forward raises there, which a graph cannot, models.py:64. Name the sizes that are "
    "meant under dims",
    "compiled": "ONNX computes what PyTorch computes",
    "exchanged-inputs": "the file takes 'h0' for 'c0', and 'c0' for 'h0', models.py:80. Exchange them "
    "in models.py:exchanged_inputs.",
    "exchanged-outputs": "the file has 'c' where 'h' belongs, and 'h' where 'c' belongs, "
    "models.py:81. Exchange them",
    "half-weights": "the weight a.weight is rounded to float16 in the file",
    "orthogonal": "fix the weight before it is exported, torch.nn.utils.parametrize."
    "remove_parametrizations(model.body.0, 'weight')",
}


@pytest.fixture(scope="session")
def told(once: Callable[..., Path]) -> Mapping[str, str]:
    def fill(folder: Path) -> None:
        shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
        torch.save(
            torch.nn.ModuleDict({"a": torch.nn.Linear(16, 8)}).state_dict(), folder / "wide.pt"
        )
        # What torch.compile calls is not there, as on most machines that serve.
        finished = gate("run", cwd=folder, variables={"CC": "/nowhere", "CXX": "/nowhere"})
        (folder / "output").write_text(finished.stdout)

    report = read_report(once("first-hour", fill) / "onnx-gate-report" / "report.json")
    return {model.name: str(of_model(model, "onnx-gate.yml")) for model in report.models}


@pytest.mark.parametrize("name", TOLD)
def test_a_mistake_is_told_with_its_place_and_remedy(name: str, told: Mapping[str, str]) -> None:
    assert TOLD[name].lower() in told[name].lower()
