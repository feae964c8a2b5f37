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


LAYOUTS = {
    "no configuration": ("", ()),
    "testpaths": ("[pytest]\ntestpaths = tests\n", ()),
    "a folder that holds it": ("", (".",)),
    "another folder": ("[pytest]\n", ("tests",)),
    "a file": ("[pytest]\n", ("tests/test_other.py",)),
    "itself": ("[pytest]\n", ("onnx-gate.yml",)),
    "options of the repository": ("[pytest]\naddopts = --import-mode=importlib tests\n", ()),
    "twice": ("", ("--keep-duplicates", ".")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_models_are_found_in_every_layout(project: pytest.Pytester, layout: str) -> None:
    (project.path / "tox.ini").unlink()
    (project.path / "tests" / "test_mine.py").rename(project.path / "tests" / "test_other.py")
    (project.path / "tests" / "test_other.py").write_text("def test_own(): pass\n")
    configuration, arguments = LAYOUTS[layout]
    if configuration:
        project.makeini(configuration)
    done = _run(project, "--onnx-gate", "--collect-only", "-q", *arguments)
    models = [f"onnx-gate.yml::{name}" for name in ("right", "wrong", "known")]
    assert [line for line in done.outlines if line.startswith("onnx-gate.yml::")] == models
    assert ("tests/test_other.py::test_own" in done.outlines) == (layout != "itself")


def test_a_model_is_verified_in_a_process_of_xdist(project: pytest.Pytester) -> None:
    (project.path / "tox.ini").unlink()
    done = _run(project, "--onnx-gate", "-n", "2", "-k", "right")
    done.assert_outcomes(passed=1)


def test_a_manifest_that_is_left_out_is_no_success(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\npythonpath = .\n")
    done = _run(project, "--onnx-gate", "--ignore", "onnx-gate.yml", "--deselect", "tests")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--onnx-gate: pytest did not collect onnx-gate.yml: *"])
