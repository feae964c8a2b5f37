"""The models' own packages: installed by nobody, into nobody's folder, named in the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.runner import TOKEN, Job, Step, commit_models

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(900)]

MANIFEST = """\
version: 1
requirements: requirements.txt
models:
  packaged:
    model: model.py:build
    inputs: {x: "float32[2, 3]"}
"""
MODEL = """\
import os
import sys

import onnxruntime
import tabulate
import torch

print("ORT", onnxruntime.__version__, onnxruntime.__file__)
print("PYDANTIC", sys.modules["pydantic"].__file__)


class Plain(torch.nn.Module):
    def forward(self, x):
        return x * 2


def build():
    return Plain()
"""
SPY = """\
import os
import socket
from pathlib import Path

from setuptools import setup

found = [f"uid {os.getuid()}"]
for path in ("/proc/1/environ", "/github/runner_temp/secret", ".git/config", "/var/run/docker.sock"):
    try:
        found.append(f"READ {path} {len(Path(path).read_bytes())}")
    except OSError as error:
        found.append(f"denied {path}")
print("::error::setup.py " + "; ".join(found) + repr(dict(os.environ)))
raise SystemExit("\\n".join(found))
"""


@pytest.fixture
def job(tmp_path: Path, make_job: Callable[..., Job]) -> Job:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    (tmp_path / "model.py").write_text(MODEL)
    return make_job(tmp_path)


def run(image: str, job: Job, requirements: str, **inputs: str) -> Step:
    (job.workspace / "requirements.txt").write_text(requirements)
    # The container's pip is configured by the image that it was built from.
    return job.run(image, {"mode": "verify"} | inputs)


def test_packages_are_installed_for_the_models_and_other_versions_named(
    image: str, job: Job
) -> None:
    commit_models(job.workspace, "octo/models")
    step = run(image, job, "tabulate\nonnxruntime==1.30.0\n", cache=".cache")
    assert step.status == 0, step.log
    log = step.text("logs/packaged.log")
    assert "ORT 1.30.0" in log
    assert "/site/lib/" in log.partition("ORT")[2].splitlines()[0]
    assert "/site/lib/" not in log.partition("PYDANTIC")[2].splitlines()[0]
    replaced = step.report["environment"]["replaced"]
    assert list(replaced) == ["onnxruntime"]
    assert replaced["onnxruntime"][1] == "1.30.0"
    assert "1&#46;30&#46;0" in step.summary or "1.30.0" in step.summary
    # What is installed is part of what a verdict rests on; where it is installed is not.
    again = run(image, job, "onnxruntime==1.30.0\ntabulate\n", cache=".cache")
    assert again.report["models"][0]["cached"], again.log
    other = run(image, job, "tabulate==0.9.0\n", cache=".cache")
    assert not other.report["models"][0]["cached"]
    assert "onnxruntime 1.30.0 is now" in other.log


@pytest.mark.parametrize(
    ("requirements", "said"),
    [
        ("no-such-package-of-anybody==1.2.3\n", "no-such-package-of-anybody"),
        ("pydantic<2\n", "pydantic"),
    ],
)
def test_what_cannot_be_installed_is_an_error(
    requirements: str, said: str, image: str, job: Job
) -> None:
    step = run(image, job, requirements)
    assert step.status == 1
    assert step.outputs["verdict"] == "error"
    [problem] = step.report["problems"]
    assert (
        "requirements.txt could not be installed: pip ended with status 1: " in problem["message"]
    )
    assert "\n" not in problem["message"]
    assert any(said in line for line in problem["tail"])
    assert "```text\n" in step.summary, "the last lines are a block of their own"


def test_a_setup_script_gets_no_secret_and_issues_no_command(image: str, job: Job) -> None:
    package = job.workspace / "package"
    package.mkdir()
    (package / "setup.py").write_text(SPY)
    (job.temp / "secret").write_text(TOKEN)
    (job.workspace / ".git").mkdir()
    (job.workspace / ".git" / "config").write_text(f"x-access-token:{TOKEN}")
    step = run(image, job, "./package\n")
    assert step.status == 1
    assert "uid 65533" in step.log
    assert "READ" not in step.log
    assert TOKEN not in step.log
    assert not any(c.data.startswith("setup.py") for c in step.commands)
