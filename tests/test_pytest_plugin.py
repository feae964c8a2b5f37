"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(300)]

MODELS = """
import torch

class Guarded(torch.nn.Linear):
    def forward(self, input):
        if input.shape[0] > 4:
            return super().forward(input) * 2
        return super().forward(input)

def right():
    return torch.nn.Linear(4, 4).eval()

def wrong():
    return Guarded(4, 4).eval()
"""
MANIFEST = """\
version: 1
defaults: {suites: [few]}
dims: {batch: [1, 7]}
suites: {few: {random: normal, count: 1}}
models:
  right: {model: "models.py:right", inputs: {input: "float32[batch, 4]"}}
  wrong: {model: "models.py:wrong", inputs: {input: "float32[batch, 4]"}}
  known: {model: "models.py:wrong", inputs: {input: "float32[batch, 4]"}, required: false}
"""
TESTS = """
import pytest, torch
from onnx_gate import ParityError

def test_of_my_own(parity):
    from models import right, wrong
    parity(right(), {"input": torch.rand(2, 4)}, suites=[])
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    # Spread over processes, each of them keeps its reports in a folder of its own.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]\ntestpaths = tests\npythonpath = .\n")
    pytester.makefile(".yml", **{"onnx-gate": MANIFEST})
    (pytester.path / "models.py").write_text(MODELS)
    (pytester.path / "tests").mkdir()
    (pytester.path / "tests" / "test_mine.py").write_text(TESTS)
    return pytester


def _run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_nothing_is_collected_unasked(project: pytest.Pytester) -> None:
    lines = _run(project, "--collect-only", "-q").outlines
    assert lines[0] == "tests/test_mine.py::test_of_my_own"
    assert not any("onnx-gate.yml" in line for line in lines)


def test_the_models_are_tests_beside_others(project: pytest.Pytester) -> None:
    done = _run(project, "--onnx-gate", "-rx")
    done.assert_outcomes(passed=2, failed=1, xfailed=1)
    done.stdout.fnmatch_lines(
        [
            "tests/test_mine.py . *",
            "onnx-gate.yml .Fx *",
            "*onnx-gate.yml: wrong*",
            "wrong: * of * checks diverged; *",
            "*models.py:6*",
            "*replay: onnx-gate replay onnx-gate-report/repro/wrong/*",
            "XFAIL onnx-gate.yml::known - diverged, and not required",
        ]
    )
    assert "Traceback" not in done.stdout.str()
    assert (project.path / "onnx-gate-report" / "report.json").is_file()


def test_mistakes_in_the_manifest_are_errors_of_the_collection(project: pytest.Pytester) -> None:
    path = Path(project.path) / "onnx-gate.yml"
    path.write_text(MANIFEST.replace("required:", "requird:"))
    done = _run(project, "onnx-gate.yml")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["onnx-gate.yml:8:*did you mean 'required'?"])
