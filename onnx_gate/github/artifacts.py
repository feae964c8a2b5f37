"""Reports that other runs have uploaded: of the run that verified, and of the default branch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from onnx_gate.errors import UserError
from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.archive import read_member
from onnx_gate.github.client import Client
from onnx_gate.github.run_context import RunContext, full_name, is_sha
from onnx_gate.report.io import UNTRUSTED_BYTES

ARTIFACT = "onnx-gate-report"
REPORT = "report.json"

_NEEDS = "actions=read"
_BASELINE_RUNS = 5


@dataclass(frozen=True)
class Artifact:
    """The report to compare with, and the commit and run of the default branch it comes from."""

    report_bytes: bytes
    sha: str
    run: int


def download_report(
    client: Client,
    repository: str,
    run_id: int,
    name: str = ARTIFACT,
    max_bytes: int = UNTRUSTED_BYTES,
) -> bytes | None:
    """Return ``report.json`` of the newest artifact ``name`` of a run, ``None`` without one.

    Raises ``UserError`` where the artifact is not what it should be, and ``GitHubError``.
    """
    artifact = _newest(client, repository, run_id, name)
    if artifact is None:
        return None
    if artifact["size_in_bytes"] > max_bytes:
        raise UserError(f"the artifact {name} is larger than {max_bytes / 2**20:g} MiB")
    path = f"/repos/{repository}/actions/artifacts/{artifact['id']}/zip"
    try:
        archive = client.download(path, max_bytes, _NEEDS)
    except GitHubError as error:
        if error.kind == "missing":
            return None
        raise
    return read_member(archive, REPORT, max_bytes)


def find_baseline(client: Client, context: RunContext) -> Artifact | None:
    """Return the report of the last completed push to the default branch, if there is one.

    One that failed has verdicts and errors to compare with, too: where the branch is broken, what
    a pull request breaks beside that is news. Only runs of the same workflow in the same repository
    count: whoever opens a pull request can make any other run upload what they like. Raises
    ``GitHubError``, never for mere absence.
    """
    workflow: object = context.workflow
    if context.workflow_run is not None:
        workflow = context.workflow_run.workflow_id or None
    if workflow is None or context.default_branch is None:
        return None
    for run in _pushes(client, context, str(workflow)):
        try:
            report = download_report(client, context.repository, run["id"])
        except UserError:
            continue
        if report is not None:
            return Artifact(report, run["head_sha"], run["id"])
    return None


def _pushes(client: Client, context: RunContext, workflow: str) -> Iterator[dict[str, Any]]:
    path = f"/repos/{context.repository}/actions/workflows/{quote(workflow, safe='')}/runs"
    query = {
        "branch": context.default_branch,
        "event": "push",
        "status": "completed",
        "per_page": 2 * _BASELINE_RUNS,
    }
    try:
        answer = client.get(path, query, _NEEDS)
    except GitHubError as error:
        if error.kind == "missing":
            return
        raise
    good = (run for run in _entries(answer, "workflow_runs") if _is_baseline(run, context))
    for _, run in zip(range(_BASELINE_RUNS), good, strict=False):
        yield run


def _is_baseline(run: dict[str, Any], context: RunContext) -> bool:
    # The query asks for all this; it is checked again because a report is believed on it.
    repository = context.repository.lower()
    current = {context.run_id, context.workflow_run.id if context.workflow_run else 0}
    return (
        type(run.get("id")) is int
        and run["id"] not in current
        and run.get("event") == "push"
        and run.get("conclusion") in ("success", "failure")
        and run.get("head_branch") == context.default_branch
        and (full_name(run.get("head_repository")) or "").lower() == repository
        and (full_name(run.get("repository")) or "").lower() == repository
        and is_sha(run.get("head_sha"))
    )


def _newest(client: Client, repository: str, run_id: int, name: str) -> dict[str, Any] | None:
    path = f"/repos/{repository}/actions/runs/{run_id}/artifacts"
    artifacts = []
    try:
        for page in client.pages(path, {"name": name}, _NEEDS):
            artifacts += [a for a in _entries(page, "artifacts") if _is_usable(a, name)]
    except GitHubError as error:
        if error.kind != "missing":
            raise
    return max(artifacts, key=lambda artifact: int(artifact["id"]), default=None)


def _is_usable(artifact: dict[str, Any], name: str) -> bool:
    return (
        artifact.get("name") == name
        and artifact.get("expired") is False
        and type(artifact.get("id")) is int
        and type(artifact.get("size_in_bytes")) is int
    )


def _entries(answer: object, key: str) -> list[dict[str, Any]]:
    entries = answer.get(key) if isinstance(answer, dict) else None
    return [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
