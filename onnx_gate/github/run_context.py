"""What GitHub Actions says about a run: the environment and the event file, as plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from onnx_gate.errors import UserError
from onnx_gate.report.model import Run

_MAX_EVENT_BYTES = 32 * 2**20
_REPOSITORY = re.compile(r"(?!\.{1,2}/)(?!.*/\.{1,2}$)[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_SHA = re.compile(r"[0-9A-Za-z]{4,64}")


@dataclass(frozen=True)
class PullRequest:
    """A pull request; ``fork`` says whether its head is outside of the base repository.

    Commits and the base's branch are empty where the event does not tell them.
    """

    number: int
    head_sha: str
    base_sha: str
    base_ref: str
    fork: bool


@dataclass(frozen=True)
class WorkflowRun:
    """The run that verified, as an event ``workflow_run`` describes it.

    ``head_repository`` is ``owner/name``, ``None`` where the fork is gone. ``workflow`` is the name
    of its file, empty where the event does not tell it.
    """

    id: int
    attempt: int
    head_sha: str
    head_branch: str | None
    head_repository: str | None
    event: str
    conclusion: str | None
    workflow_id: int
    workflow: str = ""


@dataclass(frozen=True)
class RunContext:
    """Where a run stands.

    ``sha`` is the commit that the verdict is about, not the merge commit that was checked out.
    For ``workflow_run`` the run and its attempt are those of the run that verified; both are 0
    outside of GitHub Actions.
    """

    event: str
    repository: str
    sha: str
    run_id: int
    run_attempt: int
    server_url: str
    api_url: str
    workflow: str | None = None
    default_branch: str | None = None
    pull_request: PullRequest | None = None
    workflow_run: WorkflowRun | None = None

    @property
    def verified_by(self) -> str:
        """The name of the file of the workflow that verified, empty where that is not known."""
        return self.workflow_run.workflow if self.workflow_run else self.workflow or ""

    @property
    def repository_url(self) -> str:
        """The repository's page."""
        return f"{self.server_url}/{self.repository}"

    @property
    def run_url(self) -> str:
        """The run's page; empty where there is no run."""
        return f"{self.repository_url}/actions/runs/{self.run_id}" if self.run_id else ""


def read_context(environ: Mapping[str, str]) -> RunContext:
    """Return the context of a run from its environment.

    Raises ``UserError`` where a variable is missing or malformed, or where the event file lacks
    what the event needs.
    """
    event = environ.get("GITHUB_EVENT_NAME", "")
    repository = environ.get("GITHUB_REPOSITORY", "")
    if not is_repository(repository):
        raise UserError(
            f"GITHUB_REPOSITORY is {repository!r}, not owner/name; GitHub Actions sets it"
        )
    server_url, api_url = _urls(environ)
    payload = _payload(environ, event)
    pull_request = workflow_run = None
    sha = None
    run = (_number(environ, "GITHUB_RUN_ID"), _number(environ, "GITHUB_RUN_ATTEMPT"))
    if event in ("pull_request", "pull_request_target"):
        pull_request = _event_pull_request(payload, repository)
        sha = pull_request.head_sha
    elif event == "workflow_run":
        workflow_run = _workflow_run(payload.get("workflow_run"))
        sha, run = workflow_run.head_sha, (workflow_run.id, workflow_run.attempt)
    elif event == "merge_group":
        group = payload.get("merge_group")
        head = group.get("head_sha") if isinstance(group, dict) else None
        sha = head if is_sha(head) else None
    return RunContext(
        event=event,
        repository=repository,
        sha=sha or _sha(environ),
        run_id=run[0],
        run_attempt=run[1],
        server_url=server_url,
        api_url=api_url,
        workflow=_workflow(environ.get("GITHUB_WORKFLOW_REF", ""), repository),
        default_branch=_default_branch(payload),
        pull_request=pull_request,
        workflow_run=workflow_run,
    )


def run_of(environ: Mapping[str, str]) -> Run | None:
    """Return the run that this process is part of; none outside of GitHub Actions.

    Every job of a run has the same answer, in whatever attempt it runs but for that number.
    """
    try:
        context = read_context(environ)
        number, attempt, sha = context.run_id, context.run_attempt, context.sha
    except UserError:
        # What the event lacks, it lacks in every job.
        number, attempt = _number(environ, "GITHUB_RUN_ID"), _number(environ, "GITHUB_RUN_ATTEMPT")
        sha = _sha(environ)
    return Run(id=number, attempt=attempt, sha=sha) if number else None


def read_pull_request(data: object, repository: str) -> PullRequest:
    """Return a pull request of ``repository`` from GitHub's JSON; raises ``UserError``."""
    fields = _Fields("pull_request", data)
    head, base = fields.part("head"), fields.part("base")
    return PullRequest(
        number=fields.number("number"),
        head_sha=head.sha("sha"),
        base_sha=base.sha("sha"),
        base_ref=base.text("ref"),
        fork=(full_name(head.data.get("repo")) or "").lower() != repository.lower(),
    )


def _event_pull_request(payload: Mapping[str, Any], repository: str) -> PullRequest:
    """Return the event's pull request, of which only the number has to be there."""
    data = payload.get("pull_request")
    try:
        return read_pull_request(data, repository)
    except UserError:
        fields = _Fields("pull_request", data if isinstance(data, dict) else dict(payload))
        head, base = (
            part if isinstance(part := fields.data.get(key), dict) else {}
            for key in ("head", "base")
        )
        return PullRequest(
            number=fields.number("number"),
            head_sha=head["sha"] if is_sha(head.get("sha")) else "",
            base_sha=base["sha"] if is_sha(base.get("sha")) else "",
            base_ref=base["ref"] if isinstance(base.get("ref"), str) else "",
            fork="repo" in head and (full_name(head["repo"]) or "").lower() != repository.lower(),
        )


def graphql_of(api_url: str) -> str:
    """Return the GraphQL address that belongs to a REST address, on any edition of GitHub."""
    return f"{api_url.rstrip('/').removesuffix('/v3')}/graphql"


def full_name(repository: object) -> str | None:
    """Return ``owner/name`` of a repository in GitHub's JSON, ``None`` where it is none."""
    name = repository.get("full_name") if isinstance(repository, dict) else None
    return name if is_repository(name) else None


def is_repository(name: object) -> bool:
    """Return whether ``name`` is an ``owner/name`` that can stand in a path."""
    return isinstance(name, str) and _REPOSITORY.fullmatch(name) is not None


def is_sha(value: object) -> bool:
    """Return whether ``value`` can stand for a commit, in a path as in a link."""
    return isinstance(value, str) and _SHA.fullmatch(value) is not None


class _Fields:
    """An object of the event, whose fields are checked as they are read."""

    def __init__(self, name: str, data: object) -> None:
        if not isinstance(data, dict):
            raise UserError(f"the event has no {name}; is GITHUB_EVENT_PATH that of this run?")
        self.name = name
        self.data: dict[str, Any] = data

    def part(self, key: str) -> _Fields:
        return _Fields(f"{self.name}.{key}", self.data.get(key))

    def number(self, key: str) -> int:
        value = self.data.get(key)
        if type(value) is not int or value < 1:
            raise self._wrong(key, "a number")
        return value

    def sha(self, key: str) -> str:
        value = self.data.get(key)
        if not isinstance(value, str) or not is_sha(value):
            raise self._wrong(key, "a commit id")
        return value

    def text(self, key: str) -> str:
        value = self.data.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "text")
        return value

    def optional(self, key: str) -> str | None:
        return None if self.data.get(key) is None else self.text(key)

    def _wrong(self, key: str, kind: str) -> UserError:
        return UserError(f"the event's {self.name}.{key} is not {kind}")


def _workflow_run(data: object) -> WorkflowRun:
    fields = _Fields("workflow_run", data)
    return WorkflowRun(
        id=fields.number("id"),
        attempt=fields.number("run_attempt") if "run_attempt" in fields.data else 1,
        head_sha=fields.sha("head_sha"),
        head_branch=fields.optional("head_branch"),
        head_repository=full_name(fields.data.get("head_repository")),
        event=fields.optional("event") or "",
        conclusion=fields.optional("conclusion"),
        workflow_id=fields.number("workflow_id") if "workflow_id" in fields.data else 0,
        workflow=(fields.optional("path") or "").partition("@")[0].rpartition("/")[2],
    )


def _payload(environ: Mapping[str, str], event: str) -> dict[str, Any]:
    path = environ.get("GITHUB_EVENT_PATH", "")
    try:
        return _read_event(path)
    except UserError:
        # The other events are fully told by the environment.
        if event in ("pull_request", "pull_request_target", "workflow_run", "merge_group"):
            raise
        return {}


def _read_event(path: str) -> dict[str, Any]:
    if not path:
        raise UserError("GITHUB_EVENT_PATH is not set; GitHub Actions sets it")
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_EVENT_BYTES + 1)
        if len(data) > _MAX_EVENT_BYTES:
            raise UserError(f"{path}: larger than any event of GitHub's")
        payload = json.loads(data)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not the JSON of an event") from error
    if not isinstance(payload, dict):
        raise UserError(f"{path}: not the JSON of an event")
    return payload


def _urls(environ: Mapping[str, str]) -> tuple[str, str]:
    server, api = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_API_URL")
    if server and not api and server.rstrip("/") != "https://github.com":
        # Without this the token of an Enterprise Server would be sent to github.com.
        raise UserError("GITHUB_SERVER_URL is set without GITHUB_API_URL; set both")
    server, api = server or "https://github.com", api or "https://api.github.com"
    return _url("GITHUB_SERVER_URL", server), _url("GITHUB_API_URL", api)


def _url(name: str, value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or "@" in parts.netloc:
        raise UserError(f"{name} is not the URL of a server")
    return value.rstrip("/")


def _number(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "")
    return int(value) if re.fullmatch(r"[0-9]{1,18}", value) else 0


def _sha(environ: Mapping[str, str]) -> str:
    sha = environ.get("GITHUB_SHA", "")
    return sha if is_sha(sha) else ""


def _workflow(ref: str, repository: str) -> str | None:
    # A workflow that an organisation requires lives in another repository and has no runs here.
    match = re.fullmatch(r"([^/]+/[^/]+)/\.github/workflows/([^/@]+)@.+", ref)
    return match[2] if match and match[1].lower() == repository.lower() else None


def _default_branch(payload: Mapping[str, Any]) -> str | None:
    repository = payload.get("repository")
    branch = repository.get("default_branch") if isinstance(repository, dict) else None
    return branch if isinstance(branch, str) and branch else None
