"""The pull request that a finished run was about, as GitHub knows it and nobody else says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx_gate.errors import UserError
from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.client import Client
from onnx_gate.github.run_context import (
    PullRequest,
    RunContext,
    WorkflowRun,
    full_name,
    read_pull_request,
)

_NEEDS = "pull_requests=read"


@dataclass(frozen=True)
class Superseded:
    """Why there is no pull request to comment on."""

    message: str


def find_pull_request(client: Client, context: RunContext) -> PullRequest | Superseded:
    """Return the open pull request whose head the run verified.

    An event ``workflow_run`` names none for a fork, and what the run uploaded is not to be
    believed. Raises ``GitHubError``.
    """
    run = context.workflow_run
    if run is None:
        return context.pull_request or Superseded(f"no open pull request: event {context.event!r}")
    moved: PullRequest | None = None
    for path, query in _searches(context.repository, run):
        for pull in _open_pulls(client, path, query, context.repository, run):
            if pull.head_sha == run.head_sha:
                return pull
            moved = moved or pull
    if moved is not None:
        return Superseded(
            f"superseded: pull request #{moved.number} has moved on from {run.head_sha[:7]} "
            f"to {moved.head_sha[:7]}"
        )
    return Superseded(f"no open pull request has {run.head_sha[:7]} as its head")


def _searches(repository: str, run: WorkflowRun) -> list[tuple[str, dict[str, str]]]:
    searches: list[tuple[str, dict[str, str]]] = [
        (f"/repos/{repository}/commits/{run.head_sha}/pulls", {})
    ]
    if run.head_repository is not None and run.head_branch is not None:
        owner = run.head_repository.partition("/")[0]
        query = {"head": f"{owner}:{run.head_branch}", "state": "open"}
        searches.append((f"/repos/{repository}/pulls", query))
    return searches


def _open_pulls(
    client: Client, path: str, query: dict[str, str], repository: str, run: WorkflowRun
) -> list[PullRequest]:
    pulls = []
    try:
        for page in client.pages(path, query, _NEEDS):
            for item in page if isinstance(page, list) else ():
                if _is_candidate(item, repository, run):
                    pulls.append(read_pull_request(item, repository))
    except UserError as error:
        raise GitHubError("server", f"GET {path}: {error}") from None
    except GitHubError as error:
        # The base repository need not know a fork's commit.
        if error.status not in (404, 409, 422):
            raise
    return sorted(pulls, key=lambda pull: pull.number)


def _is_candidate(item: Any, repository: str, run: WorkflowRun) -> bool:
    if not isinstance(item, dict) or item.get("state") != "open":
        return False
    head, base = item.get("head"), item.get("base")
    if not isinstance(head, dict) or not isinstance(base, dict):
        return False
    # Two pull requests can have the same commit as their head, from different repositories.
    return (
        _same(full_name(base.get("repo")), repository)
        and _same(full_name(head.get("repo")), run.head_repository)
        and (run.head_branch is None or head.get("ref") == run.head_branch)
    )


def _same(one: str | None, other: str | None) -> bool:
    return (one or "").lower() == (other or "").lower()
