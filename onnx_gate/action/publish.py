"""Publishing a report: the comment, the summary, annotations and outputs.

What goes wrong here is said once in the log and in the summary, and never changes the verdict.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_gate.action import log
from onnx_gate.action.action_inputs import Inputs
from onnx_gate.action.failed import with_problem
from onnx_gate.action.modes import Annotated
from onnx_gate.action.output_folder import hand_over
from onnx_gate.errors import UserError
from onnx_gate.findings.codes import OG506
from onnx_gate.github.annotations import annotations as annotation_lines
from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.artifacts import find_baseline
from onnx_gate.github.client import Client
from onnx_gate.github.comment import sync_comment
from onnx_gate.github.contents import read_file
from onnx_gate.github.fit import COMMENT_LIMIT, comment_text, summary_text
from onnx_gate.github.header import Header, path_named
from onnx_gate.github.run_context import PullRequest, RunContext
from onnx_gate.github.step_outputs import append_outputs, outputs_of
from onnx_gate.github.suggestions import suggestions_of, sync_suggestions
from onnx_gate.guard import loosened
from onnx_gate.manifest import Manifest, ManifestError
from onnx_gate.manifest.find import NAMES, path_in_repository
from onnx_gate.manifest.load import load, load_bytes
from onnx_gate.pages import page
from onnx_gate.report.io import parse_report, read_report, to_json, write_text
from onnx_gate.report.join.baseline import baseline_of, with_baseline
from onnx_gate.report.layout import REPORT, STATEMENTS, SUMMARY
from onnx_gate.report.model import Baseline, Change, Report
from onnx_gate.report.render.markdown import View, render
from onnx_gate.text import counted, quote

_SHORT_SHA = 7
_BOT = "dependabot[bot]"
_LEAST_ROOM = 2_000
_TRYING = (
    "what would fix red models, and what other packages have changed, is being tried; this comment will "
    "be brought up to date"
)


@dataclass(frozen=True)
class Publication:
    """What is being published, where: ``target`` is null where there is nothing to comment on."""

    inputs: Inputs
    context: RunContext
    environ: Mapping[str, str]
    client: Client | None
    target: PullRequest | None
    annotated: Annotated

    @property
    def workspace(self) -> Path:
        """The folder that the repository was checked out into."""
        return Path(self.environ.get("GITHUB_WORKSPACE") or ".").resolve()

    @property
    def manifest_path(self) -> str:
        """The manifest's path inside the repository."""
        return path_in_repository(self.inputs.manifest_path, self.workspace)

    def in_workspace(self, path: str) -> str:
        """Return a path of the inputs as one from the workspace's top, where later steps start."""
        whole = os.path.normpath(self.inputs.directory / path)
        return Path(os.path.relpath(whole, self.workspace)).as_posix()

    def header(self, report: Report) -> Header:
        """What identifies the comments of this gate."""
        context = self.context
        return Header(
            id=self.inputs.comment_id,
            run=context.run_id,
            attempt=context.run_attempt,
            sha=context.sha,
            verdict=report.verdict,
            workflow=path_named(context.verified_by),
            manifest=path_named(self.manifest_path),
        )

    @property
    def view(self) -> View:
        """Where the links of what is rendered lead."""
        context = self.context
        return View(
            repository_url=context.repository_url if context.repository else None,
            sha=context.sha or None,
            base=_base_text(self.target),
            run_url=context.run_url or None,
            run_id=context.run_id or None,
            run_label=f"Run #{context.run_id}" if context.run_id else None,
            report_url=f"{context.run_url}#artifacts" if context.run_url else None,
            manifest_path=self.manifest_path,
        )


def deliver(
    report: Report, publication: Publication, trouble: list[str], *, store_it: bool
) -> Report:
    """Complete a report, store it where that is asked for, publish it, and return it.

    Whatever fails of that is a line in ``trouble``, and the rest is done: what was verified must
    reach its readers.
    """
    with log.survived("the report could not be completed", trouble):
        report, more = complete(report, publication)
        trouble += more
    if store_it:
        with log.survived(f"{publication.inputs.output} cannot be written", trouble):
            store(report, publication)
    publish(report, publication, trouble)
    return report


def comment_early(report: Report, publication: Publication) -> None:
    """Comment on verdicts that are settled, while remedies are tried; what fails is said later."""
    if publication.client is None or publication.target is None:
        return
    with log.survived("the comment could not be written", []), suppress(GitHubError):
        report, _ = complete(report, publication)
        notes = (*report.notes, _TRYING)
        report = report.model_copy(update={"notes": notes})
        _comment(report, publication, publication.client, publication.target)


def complete(report: Report, publication: Publication) -> tuple[Report, list[str]]:
    """Return the report with what only GitHub knows, and what could not be asked of it."""
    trouble: list[str] = []
    path = publication.manifest_path
    placed = tuple(
        p.model_copy(update={"file": path}) if p.line is not None and p.file is None else p
        for p in report.problems
    )
    manifest = report.manifest
    if not manifest.sha256:
        # Of a run that never came to read it, whose report has it as the inputs do.
        manifest = manifest.model_copy(update={"path": path})
    report = report.model_copy(update={"problems": placed, "manifest": manifest})
    for step, permission in ((_guarded, "contents: read"), (_compared, "actions: read")):
        try:
            report = step(report, publication)
        except (GitHubError, UserError) as error:
            message = str(error)
            if isinstance(error, GitHubError):
                message = _lacking(error, permission, publication)
            trouble.append(message)
            if step is _guarded and publication.inputs.protect_manifest == "fail":
                report = with_problem(
                    report, f"protect-manifest: fail, and the base's manifest is unknown: {message}"
                )
    return report, trouble


def publish(report: Report, publication: Publication, trouble: list[str]) -> None:
    """Print annotations, update the comment, write outputs and summary, warn of all ``trouble``."""
    if publication.annotated != "nothing":
        about = report if publication.annotated == "everything" else _of_the_run(report)
        with log.survived("the annotations could not be written", trouble):
            for line in annotation_lines(about, publication.manifest_path):
                log.command(line)
    url = ""
    if publication.client is not None and publication.target is not None:
        with log.survived("the comment could not be written", trouble):
            try:
                url = _comment(report, publication, publication.client, publication.target)
                if url:
                    _suggest(report, publication, publication.client, publication.target)
            except GitHubError as error:
                lacking = _lacking(error, "pull-requests: write", publication)
                trouble.append(f"the comment could not be written: {lacking}")
    outputs = outputs_of(report) | _paths(publication) | {"comment-url": url}
    _write(publication.environ, "GITHUB_OUTPUT", outputs, trouble)
    shown = report.model_copy(update={"notes": (*report.notes, *trouble)})
    with log.survived("the summary could not be written", trouble):
        summary = summary_text(shown, publication.view)
        _write(publication.environ, "GITHUB_STEP_SUMMARY", summary, trouble)
    for message in dict.fromkeys(trouble):
        log.warn(message)


def _of_the_run(report: Report) -> Report:
    """Return the report without the models that a shard has annotated: the lost ones are left."""
    lost = [m for m in report.models if m.error is not None and m.error.code == OG506.code]
    return report.model_copy(update={"models": tuple(lost)})


def store(report: Report, publication: Publication) -> None:
    """Write the completed report over the one that is there, and what is attested by its digest.

    The folder, and the cache, then belong to the workspace's owner. Raises ``OSError`` and, where
    statements cannot be written, ``UserError``.
    """
    output = publication.inputs.output_path
    write_text(output / REPORT, to_json(report))
    write_text(output / SUMMARY, render(report, publication.view))
    if publication.inputs.attest and report.models:
        from onnx_gate.attest.write import write_statements  # which hashes weights, and reads ONNX

        manifest = load(publication.inputs.manifest_path)
        write_statements(report, manifest, output / REPORT, output / STATEMENTS)
    hand_over(publication.inputs, publication.workspace)


def _guarded(report: Report, publication: Publication) -> Report:
    """Add what the pull request asks less of its models than its base does."""
    target, choice = publication.target, publication.inputs.protect_manifest
    client = publication.client
    if client is None or target is None or choice == "off" or not target.base_sha:
        return report
    path = publication.manifest_path
    repository = publication.context.repository
    base_path, before = _of_base(client, repository, path, target.base_sha)
    if publication.context.workflow_run is not None:
        after = read_file(client, repository, path, target.head_sha)
    else:
        try:
            after = publication.inputs.manifest_path.read_bytes()
        except OSError:
            after = read_file(client, repository, path, target.head_sha)
    base, head = _manifest(before, base_path), _manifest(after, path)
    if after is None and base is not None:
        head = replace(base, models=())
    if base is None or head is None:
        return report
    changes = loosened(base, head)
    if base_path != path:
        renamed = f"{quote(base_path)} → {quote(path)}"
        changes = (Change(kind="manifest", message=f"renamed: {renamed}"), *changes)
    report = report.model_copy(update={"changes": changes})
    if changes and choice == "fail":
        count = counted(len(changes), "change")
        return with_problem(report, f"protect-manifest: fail, and {count} would loosen the gate")
    return report


def _of_base(client: Client, repository: str, path: str, sha: str) -> tuple[str, bytes | None]:
    """Return the base's manifest and its path: ``path``, or that which the base's gate would find.

    A manifest that was renamed, or moved out of a folder or into one, is still the one whose limits
    the pull request may not loosen.
    """
    folder = path.rpartition("/")[0]
    usual = [f"{place}{name}" for place in (folder and f"{folder}/", "") for name in NAMES]
    for candidate in dict.fromkeys((path, *usual)):
        content = read_file(client, repository, candidate, sha)
        if content is not None:
            return candidate, content
    return path, None


def _compared(report: Report, publication: Publication) -> Report:
    """Add how every check compares with the last run on the default branch."""
    choice = publication.inputs.baseline
    if choice == "off" or not report.models:
        return report
    if choice != "auto":
        try:
            base = read_report(publication.inputs.directory / choice)
        except UserError as error:
            return report.model_copy(update={"notes": (*report.notes, f"no baseline: {error}")})
        return with_baseline(report, base, baseline_of(base))
    if publication.client is None:
        return report
    artifact = find_baseline(publication.client, publication.context)
    if artifact is None:
        return report
    try:
        base = parse_report(artifact.report_bytes, "the baseline's report.json")
    except UserError as error:
        return report.model_copy(update={"notes": (*report.notes, f"no baseline: {error}")})
    return with_baseline(
        report, base, Baseline(sha=artifact.sha, run=artifact.run, verdict=base.verdict)
    )


def _comment(report: Report, publication: Publication, client: Client, target: PullRequest) -> str:
    """Bring the sticky comment up to date; return its address, empty where there is none."""
    context, inputs = publication.context, publication.inputs
    header = publication.header(report)
    bumped = report.since is not None and bool(report.since.packages)
    wrong = report.verdict != "pass" or bool(report.changes) or bumped
    room = COMMENT_LIMIT - len(header.line()) - 1
    while True:
        body = comment_text(report, publication.view, room)
        try:
            result = sync_comment(
                client, context.repository, target.number, header, body, inputs.comment, wrong
            )
            break
        except GitHubError as error:
            # Whatever GitHub counts that is not counted here: half of it will do.
            if error.kind != "invalid" or room // 2 < _LEAST_ROOM:
                raise
            room //= 2
    if result.message:
        log.say([result.message])
    return result.url or ""


def _suggest(report: Report, publication: Publication, client: Client, target: PullRequest) -> None:
    """Bring the suggestions at the lines of the diff up to date; raises ``GitHubError``.

    A report of another run is whatever that run's author has made of it: none of its lines is
    suggested in this token's name. Where nothing was to be tried, nothing can have held.
    """
    if publication.context.workflow_run is not None:
        return
    folder = publication.manifest_path.rpartition("/")[0]
    remedies = suggestions_of(report, folder) if publication.inputs.remedies else []
    header, repository = publication.header(report), publication.context.repository
    count = sync_suggestions(client, repository, target, header, remedies)
    if count:
        log.say([f"{counted(count, 'line')} of remedies suggested in the diff"])


def _lacking(error: GitHubError, permission: str, publication: Publication) -> str:
    """The error and, where it is one of rights, the line that the workflow lacks."""
    if error.kind != "permission":
        return str(error)
    pull_request = publication.context.pull_request
    fork = pull_request is not None and pull_request.fork
    if permission.endswith("write") and (fork or publication.environ.get("GITHUB_ACTOR") == _BOT):
        remedy = (
            "the token of a pull request from a fork or by Dependabot is read-only; a second "
            f"workflow can comment with 'permissions: {permission}' ({page('workflows.md')})"
        )
    else:
        remedy = f"add '{permission}' to the 'permissions:' of the job"
    return f"{error}; {remedy}"


def _manifest(content: bytes | None, path: str) -> Manifest | None:
    """The manifest, null where there is none or an invalid one, which says so elsewhere."""
    if content is None:
        return None
    try:
        return load_bytes(content, Path(path))
    except ManifestError:
        return None


def _paths(publication: Publication) -> dict[str, str]:
    output = publication.in_workspace(publication.inputs.output)
    return {"report": f"{output}/report.json", "summary": f"{output}/report.md"}


def _write(
    environ: Mapping[str, str], name: str, content: str | Mapping[str, str], trouble: list[str]
) -> None:
    path = environ.get(name)
    if not path:
        return
    try:
        if isinstance(content, str):
            with open(path, "a", encoding="utf-8") as file:
                file.write(content)
        else:
            append_outputs(Path(path), content)
    except OSError as error:
        trouble.append(f"{name} cannot be written: {error.strerror or error}")


def _base_text(target: PullRequest | None) -> str | None:
    if target is None or not target.base_sha:
        return None
    return f"{target.base_ref}@{target.base_sha[:_SHORT_SHA]}"
