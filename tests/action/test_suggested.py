"""A red model of a pull request in the container: the verdict first, then a remedy at its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.github.server import HEAD, REPOSITORY, TOKEN, GitHub
from tests.support.github.state import PULL
from tests.support.runner import Job, commit_models

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(1800)]

MODEL = """\
import torch


class Halved(torch.nn.Module):
    def forward(self, x):
        half = int(x.shape[1]) // 2
        return x[:, :half].sum(1)
"""
MANIFEST = """\
version: 1
models:
  halved:
    model: models/halved.py:Halved
    inputs: {x: "float32[batch, width]"}
    export: {exporter: torchscript}
"""


def test_the_verdict_comes_first_and_the_remedy_stands_in_the_diff(
    image: str, make_job: Callable[..., Job], tmp_path: Path
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "halved.py").write_text(MODEL)
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    with GitHub() as github:
        for path, text in (("models/halved.py", MODEL), ("onnx-gate.yml", MANIFEST)):
            github.add_file(path, HEAD, text.encode())
        count = MODEL.count("\n")
        lines = "\n".join(f"+{line}" for line in MODEL.splitlines())
        github.state.patches["models/halved.py"] = f"@@ -0,0 +1,{count} @@\n{lines}"
        job = make_job(
            tmp_path,
            payload={"pull_request": PULL, "repository": {"full_name": REPOSITORY}},
            environ={"GITHUB_API_URL": github.url, "INPUT_GITHUB-TOKEN": TOKEN},
        )
        commit_models(job.workspace, REPOSITORY)
        ran = job.run(image, {})
        assert ran.status == 1, ran.log
        first, last = (
            request.body["body"]
            for request in github.requests
            if request.method in ("POST", "PATCH") and "/issues/" in request.path
        )
        assert "is being tried" in first
        assert "a size that stays in the graph" not in first
        assert "is being tried" not in last
        assert "a size that stays in the graph" in last
        (suggestion,) = github.state.reviews
        assert (suggestion.path, suggestion.line) == ("models/halved.py", 6)
        assert "```suggestion\n        half = x.shape[1] // 2\n```" in suggestion.body
    assert not (job.workspace / "onnx-gate-report" / "remedies").exists()
