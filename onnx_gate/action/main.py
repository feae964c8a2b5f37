"""The action: one mode of it after another, and an exit status that is the verdict's."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from onnx_gate.action import log
from onnx_gate.action.harden import harden
from onnx_gate.action.inputs import Inputs, read_inputs
from onnx_gate.errors import UserError
from onnx_gate.github.context import Context, PullRequest, read_context, read_pull_request
from onnx_gate.github.outputs import append_outputs, outputs_of
from onnx_gate.report.model import Problem, Report

if TYPE_CHECKING:
    from onnx_gate.github.client import Client

PASSED, FAILED, INVALID = 0, 1, 2
_NOWHERE = Context("", "", "", 0, 0, "", "", "")
_STATUS = {"pass": PASSED, "diverged": FAILED, "error": FAILED}


def main(environ: Mapping[str, str] | None = None) -> int:
    """Do what the inputs ask for and return the exit status: 0, 1 or 2."""
    harden()
    signal.signal(signal.SIGTERM, _leave)
    values = dict(os.environ if environ is None else environ)
    try:
        return _act(read_inputs(values), values)
    except UserError as error:
        return _invalid(str(error), values)
    except KeyboardInterrupt:
        log.fail("interrupted")
        return 130
    except Exception as error:
        # A mistake of the gate's own: said as such, and never a pass.
        log.say(traceback.format_exc().splitlines())
        return _invalid(f"onnx-gate itself failed: {type(error).__name__}", values, FAILED)


def _act(inputs: Inputs, environ: Mapping[str, str]) -> int:
    trouble: list[str] = []
    context = _context(environ, trouble)
    client = target = None
    status = PASSED
    if inputs.mode in ("all", "publish", "report"):
        client = _client(inputs, context, trouble)
        context = with_pull_request(context, client)
        target = _target(context, client, trouble)
    # Imported late: a mode pays for what it uses, and publishing has to start quickly.
    if inputs.mode == "plan":
        from onnx_gate.action.plan import plan

        refusal = plan(inputs, environ)
        if refusal is None:
            return PASSED
        report, status = refusal, INVALID
    elif inputs.mode in ("all", "verify"):
        from onnx_gate.action.container import verify

        report, status = verify(inputs, environ, _workspace(environ))
    else:
        report = _finished(inputs, context, client)
    from onnx_gate.action.publish import Publication, complete, publish, store

    publication = Publication(inputs, context, environ, client, target)
    report, more = complete(report, publication)
    trouble += more
    try:
        store(report, publication)
    except OSError as error:
        trouble.append(f"{inputs.output} cannot be written: {error.strerror or error}")
    publish(report, publication, trouble, annotate=inputs.mode != "publish")
    return max(status, _STATUS[report.verdict])


def publish_report(report: Report, inputs: Inputs, environ: Mapping[str, str]) -> int:
    """Publish a finished report from the command line; return the exit status.

    Raises ``UserError`` outside of GitHub Actions.
    """
    from onnx_gate.action.publish import Publication, complete, publish

    context = read_context(environ)
    trouble: list[str] = []
    client = _client(inputs, context, trouble)
    context = with_pull_request(context, client)
    target = _target(context, client, trouble)
    publication = Publication(inputs, context, environ, client, target)
    report, more = complete(report, publication)
    publish(report, publication, trouble + more, annotate=context.workflow_run is None)
    return _STATUS[report.verdict]


def _context(environ: Mapping[str, str], trouble: list[str]) -> Context:
    """Where the run stands; nowhere, where that cannot be told: the verdict does not need it."""
    try:
        return read_context(environ)
    except UserError as error:
        trouble.append(str(error))
        return _NOWHERE


def _client(inputs: Inputs, context: Context, trouble: list[str]) -> Client | None:
    if not context.repository:
        return None
    if not inputs.token:
        if context.pull_request is not None or context.workflow_run is not None:
            trouble.append(
                "no comment: the input 'github-token' is empty (its default is the job's token)"
            )
        return None
    from onnx_gate.github.client import Client

    return Client(inputs.token, context.api_url)


def with_pull_request(context: Context, client: Client | None) -> Context:
    """The context with what the event did not tell of its pull request, where GitHub tells it."""
    known = context.pull_request
    if client is None or known is None or (known.head_sha and known.base_sha):
        return context
    from onnx_gate.github.errors import GitHubError

    try:
        data = client.get(f"/repos/{context.repository}/pulls/{known.number}")
        found = read_pull_request(data, context.repository)
    except (GitHubError, UserError):
        return context
    return replace(context, pull_request=found, sha=found.head_sha, base_sha=found.base_sha)


def _target(context: Context, client: Client | None, trouble: list[str]) -> PullRequest | None:
    """The pull request to comment on."""
    if context.workflow_run is None or client is None:
        return context.pull_request
    from onnx_gate.github.errors import GitHubError
    from onnx_gate.github.pulls import Superseded, find_pull_request

    try:
        found = find_pull_request(client, context)
    except GitHubError as error:
        trouble.append(f"no comment: the pull request could not be looked up: {error}")
        return None
    if isinstance(found, Superseded):
        log.say([found.message])
        return None
    return found


def _finished(inputs: Inputs, context: Context, client: Client | None) -> Report:
    from onnx_gate.action.finished import downloaded, joined, local

    if inputs.mode == "report":
        return joined(inputs)
    if context.workflow_run is not None and client is not None:
        return downloaded(inputs, client, context.repository, context.workflow_run)
    return local(inputs)


def _invalid(message: str, environ: Mapping[str, str], status: int = INVALID) -> int:
    """Say what is wrong wherever a person or a later step will look."""
    for line in message.splitlines():
        log.fail(line)
    from onnx_gate.action.refusal import failed_report
    from onnx_gate.github.limits import summary_text
    from onnx_gate.report.markdown import View

    report = failed_report([Problem(message=line) for line in message.splitlines()], "")
    try:
        if path := environ.get("GITHUB_OUTPUT"):
            append_outputs(Path(path), outputs_of(report))
        if path := environ.get("GITHUB_STEP_SUMMARY"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(summary_text(report, View()))
    except OSError as error:
        log.warn(f"the runner's command files cannot be written: {error.strerror or error}")
    return status


def _workspace(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()


def _leave(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
