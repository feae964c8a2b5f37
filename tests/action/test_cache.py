"""The cache in the container: written by the gate, out of reach of the models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.runner import RUNNER_UID, Job, Step, commit_models

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(1800)]

PROJECT = Path(__file__).parent / "project"
INPUTS = {"mode": "verify", "cache": ".onnx-gate-cache"}
WRITER = """
import os
import torch

PLACES = [".onnx-gate-cache", ".onnx-gate-cache/entries", ".onnx-gate-cache/CACHEDIR.TAG"]


class Writer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for place in PLACES:
            path = os.path.join(os.environ["GITHUB_WORKSPACE"], place)
            try:
                open(os.path.join(path, "forged") if os.path.isdir(path) else path, "a").close()
                print("WROTE", place)
            except OSError as error:
                print("DENIED", place, error)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1
"""


def cached(step: Step) -> dict[str, bool]:
    return {model["name"]: model["cached"] for model in step.report["models"]}


def test_the_second_run_verifies_what_changed(image: str, make_job: Callable[..., Job]) -> None:
    job = make_job(PROJECT)
    commit_models(job.workspace, "octo/models")
    (job.workspace / "models" / "writer.py").write_text(WRITER)
    manifest = job.workspace / "onnx-gate.yml"
    entry = '  writer:\n    model: models/writer.py:Writer\n    inputs: {x: "float32[batch, 3]"}\n'
    manifest.write_text(manifest.read_text() + entry)
    first = job.run(image, INPUTS)
    assert "sandbox: full" in first.log
    assert "cache: 0 of 4 verdicts still hold" in first.log
    assert not any(cached(first).values())
    written = first.text("logs/writer.log")
    (job.workspace / "models" / "unrelated.py").write_text("")
    again = job.run(image, INPUTS)
    assert "cache: 3 of 4 verdicts still hold" in again.log
    assert "unchanged: good, bad, writer" in again.log
    assert cached(again) == {"good": True, "bad": True, "unexportable": False, "writer": True}
    assert again.status == first.status == 1
    repro = next(m["diagnosis"]["repro"] for m in again.report["models"] if m["name"] == "bad")
    assert (job.workspace / "onnx-gate-report" / repro / "model.onnx").is_file()
    text = job.workspace / "models" / "small.py"
    text.write_text(text.read_text().replace("x * 2 + 1", "x * 2 + 3"))
    third = job.run(image, INPUTS)
    assert "good: models/small.py changed" in third.log
    assert cached(third) == {"good": False, "bad": False, "unexportable": False, "writer": True}
    assert written.count("DENIED") == 3
    assert "WROTE" not in written
    cache = job.workspace / ".onnx-gate-cache"
    assert {path.lstat().st_uid for path in (cache, *cache.rglob("*"))} == {RUNNER_UID}


def test_nothing_is_believed_that_the_models_could_have_written(
    image: str, make_job: Callable[..., Job]
) -> None:
    job = make_job(PROJECT)
    commit_models(job.workspace, "octo/models")
    only = {"models": "good"}
    job.run(image, INPUTS | only)
    open_to_all = job.run(image, INPUTS | only | {"sandbox": "off"})
    assert "input 'cache': .onnx-gate-cache is not used" in open_to_all.log
    assert cached(open_to_all) == {"good": False}
    (job.workspace / ".onnx-gate-cache").chmod(0o777)
    writable = job.run(image, INPUTS | only)
    assert cached(writable) == {"good": False}
    assert any("everyone may write into it" in note for note in writable.report["notes"])
