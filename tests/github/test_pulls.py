"""The pull request behind a finished run."""

from __future__ import annotations

from typing import Any

import pytest

from onnx_gate.github.client import Client
from onnx_gate.github.pulls import Superseded, find_pull_request
from onnx_gate.github.run_context import PullRequest
from tests.support.github.contexts import context
from tests.support.github.server import GitHub
from tests.support.github.state import BASE, HEAD, Reply

OTHER = "0123abcd" * 5
FORK: dict[str, Any] = {"head_ref": "main", "head_repository": "grace/models"}


def fork_run() -> Any:
    run = context("workflow_run").workflow_run
    assert run is not None
    values = {**vars(run), "head_repository": "grace/models", "head_branch": "main"}
    return context("workflow_run", workflow_run=type(run)(**values))


@pytest.mark.parametrize("by_commit", [True, False])
def test_a_pull_request_from_a_fork(
    github: GitHub, client: Client, monkeypatch: pytest.MonkeyPatch, by_commit: bool
) -> None:
    github.add_pull(8, **FORK)
    if not by_commit:
        # The base repository need not know a fork's commit.
        monkeypatch.setattr(github.state, "commit_pulls", lambda sha: Reply(200, items=[]))
    assert find_pull_request(client, fork_run()) == PullRequest(8, HEAD, BASE, "main", fork=True)
    assert len(github.requests) == (1 if by_commit else 2)


def test_one_from_the_own_repository(github: GitHub, client: Client) -> None:
    github.add_pull(8, **FORK)
    found = find_pull_request(client, context("workflow_run"))
    assert found == PullRequest(7, HEAD, BASE, "main", fork=False)


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize(
    ("pull", "sentence"),
    [
        ({**FORK, "head_sha": OTHER}, "superseded: pull request #8 has moved on from 9b7d0c1"),
        ({**FORK, "state": "closed"}, "no open pull request"),
        ({**FORK, "base_repository": "grace/models"}, "no open pull request"),
        ({**FORK, "head_repository": "mallory/models"}, "no open pull request"),
        ({**FORK, "head_repository": None}, "no open pull request"),
        ({**FORK, "head_ref": "another"}, "no open pull request"),
    ],
)
def test_no_other_one_is_taken(
    github: GitHub, client: Client, pull: dict[str, Any], sentence: str, filters: bool
) -> None:
    github.state.filters = filters
    github.add_pull(8, **pull)
    found = find_pull_request(client, fork_run())
    assert isinstance(found, Superseded)
    assert found.message.startswith(sentence)


def test_other_events_bring_their_own(github: GitHub, client: Client) -> None:
    assert find_pull_request(client, context()) == context().pull_request
    found = find_pull_request(client, context("push"))
    assert isinstance(found, Superseded)
    assert "no open pull request" in found.message
    assert github.requests == []
