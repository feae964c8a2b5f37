"""The variant of the image with a browser: models and browser each in a sandbox of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.runner import Job

pytestmark = [pytest.mark.container, pytest.mark.timeout(1800)]

MODELS = """
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
"""
MANIFEST = """
version: 1
suites: {few: {random: normal, count: 1}}
models:
  mlp:
    model: models.py:mlp
    inputs: {x: "float32[2, 8]"}
    suites: [few]
    runtimes: [web, {name: web, provider: wasm}]
"""


def test_a_model_is_verified_in_the_browser(
    web_image: str, make_job: Callable[..., Job], tmp_path: Path
) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    step = make_job(tmp_path).run(web_image, {"mode": "verify"})
    assert step.status == 0, step.log
    assert step.report["sandbox"]["level"] == "full"
    assert "without its sandbox" in step.report["environment"]["browser"]
    checks = step.report["models"][0]["checks"]
    assert {(check["runtime"], check["verdict"]) for check in checks} == {
        *(("web", "pass"), ("web:wasm", "pass"))
    }
