"""Several engines, one truth: what is wrong in the file comes first, then each engine's own fault."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from onnx_gate.report.io import read_report
from onnx_gate.report.model import Report
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.report.render import html, junit, markdown, sarif, terminal
from onnx_gate.report.story.diagnosed import sentence
from onnx_gate.report.story.story import tell
from tests.support.engines import FAULTY, lacking
from tests.support.gate import gate, run_few

MODELS = """
import torch
from torch import nn

def sloped():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 300), nn.ELU(0.7), nn.Linear(300, 4)).eval()

def short():
    return sloped().half()

class Double(nn.Module):
    def forward(self, input):
        return input * input.exp()

class Constant(nn.Module):
    def forward(self, input):
        return input * 1.1 + input.exp()  # the exporter rounds the constant to float32
"""
INPUTS = 'inputs: {input: "float32[2, 8]"}'
ENTRIES = {
    "wrong": f'model: "models.py:sloped", onnx: wrong.onnx, {INPUTS}, '
    "runtimes: [onnxruntime, openvino, faulty-openvino]",
    "two": f'model: "models.py:sloped", {INPUTS}, runtimes: [onnxruntime, faulty-openvino, coarse]',
    "same": f'model: "models.py:sloped", {INPUTS}, '
    "runtimes: [onnxruntime, faulty-openvino, {name: faulty-openvino, device: CPU}]",
    "double": 'model: "models.py:Double", inputs: {input: "float64[2, 8]"}, '
    "runtimes: [onnxruntime, openvino]",
    "constant": 'model: "models.py:Constant", inputs: {input: "float64[2, 8]"}, '
    "runtimes: [onnxruntime, openvino]",
    "short": 'model: "models.py:short", inputs: {input: "float16[2, 8]"}, '
    "runtimes: [onnxruntime, short]",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(lacking("openvino")), reason=lacking("openvino")),
]


@pytest.fixture
def folder(once: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    paths = [str(FAULTY), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))

    return once("further", _run)


def _run(path: Path) -> None:
    torch.manual_seed(0)
    wrong = nn.Sequential(nn.Linear(8, 300), nn.ELU(0.3), nn.Linear(300, 4)).eval()
    example = (torch.zeros(2, 8),)
    torch.onnx.export(wrong, example, path / "wrong.onnx", input_names=["input"], verbose=False)
    run_few(path, MODELS, ENTRIES)


@pytest.fixture
def report(folder: Path) -> Report:
    return read_report(folder / "onnx-gate-report" / "report.json")


def diagnoses(report: Report, name: str) -> list[Diagnosis]:
    return list(next(model for model in report.models if model.name == name).diagnoses)


def test_a_fault_of_the_file_leads_and_an_engine_is_named_that_adds_its_own(
    report: Report, folder: Path
) -> None:
    first, other = diagnoses(report, "wrong")
    assert (first.blame, first.runtime) == ("stale artifact", "onnxruntime")
    assert (other.blame, other.runtime) == ("kernel", "faulty-openvino")
    assert "nor what ONNX Runtime makes of the same file" in other.note
    assert "the graph is right" not in sentence(other)


def test_each_engine_with_a_fault_of_its_own_has_a_diagnosis_and_a_reproduction(
    report: Report, folder: Path
) -> None:
    both = diagnoses(report, "two")
    assert {each.runtime for each in both} == {"faulty-openvino", "coarse"}
    assert {each.blame for each in both} == {"kernel"}
    repros = [folder / "onnx-gate-report" / str(each.repro) for each in both]
    assert len(set(repros)) == 2
    for each, repro in zip(both, repros, strict=True):
        replayed = gate("replay", str(repro), *each.replay, cwd=folder)
        assert replayed.returncode == 1, replayed.stdout + replayed.stderr


def test_the_same_wrong_answer_is_explained_once(report: Report) -> None:
    assert [each.runtime for each in diagnoses(report, "same")] == ["faulty-openvino"]


@pytest.mark.parametrize("name", ["double", "constant"])
def test_an_engine_of_float32_is_no_wrong_kernel_where_the_file_has_float64(
    name: str, report: Report
) -> None:
    *of_file, diagnosis = diagnoses(report, name)
    assert [each.blame for each in of_file] == (["exporter"] if name == "constant" else [])
    assert diagnosis.blame == "reduced precision"
    assert diagnosis.cause == "openvino computes float64 in float32"
    model = next(each for each in report.models if each.name == name)
    told = [each.message for each in model.findings if each.code == "OG309"]
    assert told == ["openvino computes float64 in float32"]


def test_the_dtype_leads_where_an_engine_differs_about_16_bits_alone(report: Report) -> None:
    (diagnosis,) = diagnoses(report, "short")
    assert diagnosis.blame == "reduced precision"
    assert diagnosis.cause == "short computes float16 otherwise than PyTorch does"
    assert "kernel" not in str(tell(report).models[-1].sentence)


@pytest.mark.parametrize("render", [html, junit, markdown, sarif, terminal])
def test_every_format_names_the_second_engine(report: Report, render: ModuleType) -> None:
    wrong = next(model for model in report.models if model.name == "wrong")
    assert "faulty-openvino" in render.render(report.model_copy(update={"models": (wrong,)}))
