"""A pull request that changes its packages: who changed what is in the comment, and all of it sandboxed."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from tests.support.github.server import BASE, REPOSITORY, TOKEN, GitHub
from tests.support.github.state import PULL
from tests.support.runner import Job, commit_models
from tests.support.wheels import layers_and_writers

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(1800)]

MANIFEST = """\
version: 1
requirements: requirements.txt
suites: {one: {random: normal, count: 1}}
defaults: {suites: [one]}
models:
  net: {model: "nets.py:Net", inputs: {x: "float32[2, 6]"}, export: {exporter: "nets.py:export"}}
"""
NETS = """\
import os
import socket

import layers, torch, writer

assert os.getuid() == 65534, "the models' user"
try:
    socket.create_connection(("127.0.0.1", 9), 1)
except PermissionError:
    pass
else:
    raise AssertionError("no network")


class Net(torch.nn.Module):
    def forward(self, x):
        return (x * layers.FACTOR).sigmoid()


export = writer.export
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    (tmp_path / "nets.py").write_text(NETS)
    layers_and_writers(tmp_path / "wheels")
    return tmp_path


def requirements(layers: str, writer: str) -> str:
    return f"layers=={layers}\nwriter=={writer}\n"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"remedies": "false"}, True),
        ({"remedies": "false", "since": "false"}, False),
    ],
)
def test_the_comment_says_which_package_changed_what(
    image: str, make_job: Callable[..., Job], project: Path, inputs: dict[str, str], said: bool
) -> None:
    (project / "requirements.txt").write_text(requirements("2.0", "2.0"))
    with GitHub() as github:
        github.add_file("requirements.txt", BASE, requirements("1.0", "1.0").encode())
        github.add_file("onnx-gate.yml", BASE, MANIFEST.encode())
        job = make_job(
            project,
            payload={"pull_request": PULL, "repository": {"full_name": REPOSITORY}},
            environ={
                "GITHUB_API_URL": github.url,
                "INPUT_GITHUB-TOKEN": TOKEN,
                "ONNX_GATE_PASS": "PIP_FIND_LINKS",
                "PIP_FIND_LINKS": "/github/workspace/wheels",
            },
        )
        commit_models(job.workspace, REPOSITORY)
        ran = job.run(image, inputs)
        assert ran.status == 1, ran.log
        body = [
            request.body["body"]
            for request in github.requests
            if request.method in ("POST", "PATCH") and "/issues/" in request.path
        ][-1]
    assert ran.report["verdict"] == "diverged"
    assert (ran.report.get("since") is not None) == said
    words = (
        "layers 1.0 to 2.0 changed PyTorch's answers of net; "
        "writer 1.0 to 2.0 changed the export of net; the engines answer as before",
        "by how much: net: pass to diverged",
        "models: net (1 of 1)",
    )
    assert [each in unescape(body) for each in words] == [said] * 3, ran.log
    if said:
        assert ran.report["since"]["head_file"] == "requirements.txt"
        assert "sandbox: full" in ran.log
    assert TOKEN not in ran.log
