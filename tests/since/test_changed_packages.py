"""Which files of a pull request are asked about: those that name packages, and are others in the base."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onnx_gate.action.action_inputs import Inputs
from onnx_gate.action.changed_packages import changed_packages
from onnx_gate.action.requirements import write_as_if_beside
from onnx_gate.github.client import Client
from onnx_gate.github.run_context import PullRequest, RunContext
from tests.support.github.server import BASE, HEAD, REPOSITORY, TOKEN, GitHub

pytestmark = pytest.mark.process

PULL = PullRequest(7, HEAD, BASE, "main", fork=False)
CONTEXT = RunContext("pull_request", REPOSITORY, HEAD, 1, 1, "", "", pull_request=PULL)
MANIFEST = """\
version: 1
requirements: needs/models.txt
models: {a: {model: a.py:A, inputs: {x: "float32[1]"}}}
"""


def test_the_files_that_name_packages_and_differ(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (gate / "needs").mkdir(parents=True)
    (gate / "onnx-gate.yml").write_text(MANIFEST)
    (gate / "a.py").touch()
    for name in ("gate/needs/models.txt", "uv.lock", "poetry.lock", "gate/requirements.txt"):
        (tmp_path / name).write_text("a==2")
    (tmp_path / "secret").write_text("a==2")
    (tmp_path / "constraints.txt").symlink_to("secret")
    with GitHub() as github:
        for name in ("gate/needs/models.txt", "uv.lock", "constraints.txt"):
            github.add_file(name, BASE, b"a==1")
        github.add_file("gate/requirements.txt", BASE, b"a==2")
        client = Client(TOKEN, github.url)

        def found(inputs: Inputs, context: RunContext = CONTEXT) -> list[str]:
            every = changed_packages(inputs, context, client, tmp_path)
            return [each.head.relative_to(tmp_path).as_posix() for each in every]

        inputs = Inputs(gate)
        assert found(inputs) == ["gate/needs/models.txt", "uv.lock"]
        assert found(replace(inputs, requirements="requirements.txt")) == ["uv.lock"]
        asked = len(github.requests)
        assert found(replace(inputs, since=False)) == []
        assert found(inputs, replace(CONTEXT, pull_request=None)) == []
        assert len(github.requests) == asked


def test_the_base_s_requirements_name_the_files_beside_the_head_s(tmp_path: Path) -> None:
    target = tmp_path / "requirements.txt"
    write_as_if_beside(b"onnx-gate==1\n-r more.txt\nx==1\n", Path("/w/requirements.txt"), target)
    assert target.read_text() == "-r /w/more.txt\nx==1\n"
    lock = json.dumps("-r more.txt").encode()
    write_as_if_beside(lock, Path("/w/uv.lock"), target)
    assert target.read_bytes() == lock
