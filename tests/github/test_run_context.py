"""What a run's environment and event file come to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.errors import UserError
from onnx_gate.github.run_context import (
    PullRequest,
    RunContext,
    WorkflowRun,
    graphql_of,
    read_context,
    run_of,
)
from onnx_gate.report.model import Run
from tests.support.github.contexts import EVENTS
from tests.support.github.state import BASE, HEAD
from tests.support.github.strategies import JSON

MERGE = "77aa10fe" * 5
OWN = PullRequest(7, HEAD, BASE, "main", fork=False)
FORK = PullRequest(7, HEAD, BASE, "main", fork=True)


def environment(event: str, path: Path | None = None) -> dict[str, str]:
    return {
        "GITHUB_EVENT_NAME": event,
        "GITHUB_EVENT_PATH": str(path or EVENTS / f"{event}.json"),
        "GITHUB_REPOSITORY": "octo/models",
        "GITHUB_SHA": MERGE,
        "GITHUB_RUN_ID": "17400",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_WORKFLOW_REF": "octo/models/.github/workflows/parity.yml@refs/pull/7/merge",
    }


def read(name: str, event: str | None = None) -> RunContext:
    return read_context(environment(event or name, EVENTS / f"{name}.json"))


def test_every_event() -> None:
    """The commit, the pull request, and the default branch."""
    seen = {
        name: (context.sha, context.pull_request, context.default_branch)
        for name, context in {
            "pull_request": read("pull_request"),
            "pull_request_fork": read("pull_request_fork", "pull_request"),
            "pull_request_dependabot": read("pull_request_dependabot", "pull_request"),
            "pull_request_target": read("pull_request_target"),
            "push": read("push"),
            "merge_group": read("merge_group"),
            "workflow_run": read("workflow_run"),
            "schedule": read("schedule"),
            "workflow_dispatch": read("workflow_dispatch"),
            "unknown": read("schedule", "page_build"),
        }.items()
    }
    assert seen == {
        "pull_request": (HEAD, OWN, "main"),
        "pull_request_fork": (HEAD, FORK, "main"),
        "pull_request_dependabot": (HEAD, OWN, "main"),
        "pull_request_target": (HEAD, FORK, "main"),
        "push": (MERGE, None, "main"),
        "merge_group": (HEAD, None, "main"),
        "workflow_run": (HEAD, None, "main"),
        "schedule": (MERGE, None, "main"),
        "workflow_dispatch": (MERGE, None, "main"),
        "unknown": (MERGE, None, "main"),
    }


def test_the_run_that_verified_counts() -> None:
    context = read("workflow_run_fork", "workflow_run")
    run = WorkflowRun(
        17301, 2, HEAD, "main", "grace/models", "pull_request", "failure", 55, "parity.yml"
    )
    assert context.workflow_run == run
    assert (context.run_id, context.run_attempt) == (17301, 2)
    assert context.run_url == "https://github.com/octo/models/actions/runs/17301"
    assert read("pull_request").run_url == "https://github.com/octo/models/actions/runs/17400"


def test_an_enterprise_server_is_never_mixed_with_github_com() -> None:
    environ = {
        **environment("push"),
        "GITHUB_SERVER_URL": "https://git.corp.example/",
        "GITHUB_API_URL": "https://git.corp.example/api/v3",
    }
    context = read_context(environ)
    assert context.run_url == "https://git.corp.example/octo/models/actions/runs/17400"
    assert context.api_url == "https://git.corp.example/api/v3"
    assert graphql_of(context.api_url) == "https://git.corp.example/api/graphql"
    del environ["GITHUB_API_URL"]
    with pytest.raises(UserError, match="without GITHUB_API_URL"):
        read_context(environ)
    assert graphql_of(read("push").api_url) == "https://api.github.com/graphql"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GITHUB_REPOSITORY", "", "GITHUB_REPOSITORY is ''"),
        ("GITHUB_REPOSITORY", "octo/..", "not owner/name"),
        ("GITHUB_REPOSITORY", "octo/models/../../user", "not owner/name"),
        ("GITHUB_API_URL", "ftp://x", "GITHUB_API_URL is not the URL"),
        ("GITHUB_API_URL", "https://key:secret@x", "GITHUB_API_URL is not the URL"),
        ("GITHUB_API_URL", "https://[", "GITHUB_API_URL is not the URL"),
        ("GITHUB_EVENT_PATH", "", "GITHUB_EVENT_PATH is not set"),
        ("GITHUB_EVENT_PATH", "/nowhere", "No such file"),
        ("GITHUB_EVENT_PATH", __file__, "not the JSON of an event"),
    ],
)
def test_a_wrong_variable_is_a_sentence(variable: str, value: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("[", r"\[")) as caught:
        read_context({**environment("pull_request"), variable: value})
    assert "secret" not in str(caught.value)


def test_what_no_comment_needs_may_be_missing() -> None:
    environ = environment("push")
    for variable in ("GITHUB_EVENT_PATH", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"):
        del environ[variable]
    environ["GITHUB_WORKFLOW_REF"] = "octo/policies/.github/workflows/parity.yml@refs/heads/main"
    context = read_context(environ)
    assert (context.run_id, context.run_attempt, context.run_url) == (0, 0, "")
    assert (context.default_branch, context.workflow) == (None, None)
    assert read("push").workflow == "parity.yml"


NAMES = ("pull_request", "pull_request_fork", "workflow_run", "workflow_run_fork", "merge_group")


@given(st.sampled_from(NAMES), st.data())
def test_a_garbled_event_is_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    event = json.loads((EVENTS / f"{name}.json").read_text())
    inner: Any = event
    while True:
        key = data.draw(st.sampled_from(sorted(inner)))
        if isinstance(inner[key], dict) and inner[key] and data.draw(st.booleans()):
            inner = inner[key]
            continue
        inner[key] = data.draw(JSON)
        break
    path = tmp_path_factory.getbasetemp() / "event.json"
    path.write_text(json.dumps(event))
    try:
        context = read_context(environment(name.removesuffix("_fork"), path))
    except UserError:
        return
    assert len(context.sha) == 40
    assert context.run_id > 0


CODE = """
import sys
import onnx_gate.github.run_context
import onnx_gate.github.comment
heavy = {"torch", "onnx", "onnxruntime", "numpy", "requests", "urllib3", "github"}
print(*sorted(heavy & set(sys.modules)))
"""


@pytest.mark.process
def test_importing_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == []


def test_every_job_of_a_run_knows_which_it_is(tmp_path: Path) -> None:
    environ = {"GITHUB_RUN_ID": "17", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_SHA": HEAD}
    assert run_of(environ) == Run(id=17, attempt=2, sha=HEAD), "an event that says nothing"
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7, "head": {"sha": BASE}}}))
    environ |= {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(event)}
    assert run_of(environ | {"GITHUB_REPOSITORY": "octo/models"}) is not None
    assert run_of({}) is None
