"""The action: what its mode asks for, step by step, and an exit status that is the verdict's."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from onnx_gate.action import log
from onnx_gate.action.action_inputs import Inputs, read_inputs
from onnx_gate.action.harden import harden
from onnx_gate.action.modes import Annotated, Source, work_of
from onnx_gate.errors import UserError
from onnx_gate.github.run_context import (
    PullRequest,
    RunContext,
    read_context,
    read_pull_request,
    run_of,
)
from onnx_gate.github.step_outputs import append_outputs, outputs_of
from onnx_gate.report.model import Problem, Report

if TYPE_CHECKING:
    from onnx_gate.action.changed_packages import ChangedPackages
    from onnx_gate.action.publish import Publication
    from onnx_gate.github.client import Client

PASSED, FAILED, INVALID, CANCELLED = 0, 1, 2, 130
_NOWHERE = RunContext("", "", "", 0, 0, "", "")
_STATUS = {"pass": PASSED, "diverged": FAILED, "error": FAILED}


def main(environ: Mapping[str, str] | None = None) -> int:
    """Do what the inputs ask for and return the exit status: 0, 1 or 2, and 130 if cancelled."""
    harden()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _cancel)
    values = dict(os.environ if environ is None else environ)
    inputs: Inputs | None = None
    try:
        inputs = read_inputs(values)
        return _act(inputs, values)
    except UserError as error:
        return _nothing_verified(str(error), values, INVALID)
    except KeyboardInterrupt:
        return _cancelled(inputs, values)
    except Exception as error:
        # A mistake of the gate's own: reported as such, and never a pass.
        log.say(traceback.format_exc().splitlines())
        message = f"onnx-gate itself failed: {type(error).__name__}"
        return _nothing_verified(message, values, FAILED)


def publish_report(report: Report, inputs: Inputs, environ: Mapping[str, str]) -> int:
    """Publish a finished report from the command line; return the exit status.

    Raises ``UserError`` outside of GitHub Actions.
    """
    context = read_context(environ)
    trouble: list[str] = []
    client = _client(inputs, context, trouble)
    context = with_pull_request(context, client)
    target = _target(context, client, trouble)
    from onnx_gate.action.publish import Publication, deliver

    annotated: Annotated = "everything" if context.workflow_run is None else "nothing"
    publication = Publication(inputs, context, environ, client, target, annotated)
    return _STATUS[deliver(report, publication, trouble, store_it=False).verdict]


def _act(inputs: Inputs, environ: Mapping[str, str]) -> int:
    trouble: list[str] = []
    context = _context(environ, trouble)
    of_another_run = context.workflow_run is not None and bool(inputs.token and context.repository)
    work = work_of(inputs.mode, of_another_run=of_another_run)
    client = _client(inputs, context, trouble) if work.asks_github else None
    context = with_pull_request(context, client)
    target = _target(context, client, trouble) if work.asks_github else None

    def publication() -> Publication:
        from onnx_gate.action.publish import Publication

        return Publication(inputs, context, environ, client, target, work.annotated)

    def settled(report: Report) -> None:
        from onnx_gate.action.publish import comment_early

        _begin_to_talk(client)
        comment_early(report, publication())

    # What verifies for another step talks to nobody, but for reading what the base has of the packages.
    asks_of_base = inputs.mode == "verify" and inputs.since and context.pull_request is not None
    reader = _client(inputs, context, []) if asks_of_base else client
    report, status = _report(work.source, inputs, environ, context, reader, settled)
    if report is None:
        return status
    from onnx_gate.action.publish import deliver

    _begin_to_talk(client)
    report = deliver(report, publication(), trouble, store_it=True)
    return max(status, _STATUS[report.verdict])


def _begin_to_talk(client: Client | None) -> None:
    if client is not None:  # models have run since the last call, for as long as they like
        client.budget.renew()


def _report(
    source: Source,
    inputs: Inputs,
    environ: Mapping[str, str],
    context: RunContext,
    client: Client | None,
    settled: Callable[[Report], None],
) -> tuple[Report | None, int]:
    """Return the report, none where a plan was made, and the status that it has to end with.

    ``settled`` is told of verdicts on which more than they is being found out.
    """
    # Imported late: a mode pays for what it uses, and publishing has to start quickly.
    if source == "none":
        from onnx_gate.action.plan import plan

        refusal = plan(inputs, environ)
        return refusal, PASSED if refusal is None else INVALID
    if source == "models":
        if find_spec("torch") is None:
            raise UserError(
                f"mode: {inputs.mode} verifies, for which this image has no torch; use the action "
                "onnx-gate/onnx-gate, not its publish"
            )
        from onnx_gate.action.container import verify

        found = _packages(inputs, context, client, _workspace(environ)) if client else ()
        return verify(inputs, environ, _workspace(environ), settled, found)
    from onnx_gate.action.finished import downloaded, joined, local

    if source == "shards":
        return joined(inputs, run_of(environ)), PASSED
    if source == "artifact" and client is not None and context.workflow_run is not None:
        return downloaded(inputs, client, context.repository, context.workflow_run), PASSED
    return local(inputs, run_of(environ)), PASSED


def _packages(
    inputs: Inputs, context: RunContext, client: Client, workspace: Path
) -> tuple[ChangedPackages, ...]:
    """Return what the pull request changes of its packages; what fails of that is a warning."""
    from onnx_gate.action.changed_packages import changed_packages
    from onnx_gate.github.api_errors import GitHubError

    try:
        return tuple(changed_packages(inputs, context, client, workspace))
    except (GitHubError, OSError) as error:
        log.warn(f"which packages are others in the base is not known: {error}")
        return ()


def _context(environ: Mapping[str, str], trouble: list[str]) -> RunContext:
    """Where the run stands; nowhere, where that is not known: the verdict does not need it."""
    try:
        return read_context(environ)
    except UserError as error:
        trouble.append(str(error))
        return _NOWHERE


def _client(inputs: Inputs, context: RunContext, trouble: list[str]) -> Client | None:
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


def with_pull_request(context: RunContext, client: Client | None) -> RunContext:
    """The context with what the event lacks about its pull request, where GitHub knows it."""
    known = context.pull_request
    if client is None or known is None or (known.head_sha and known.base_sha):
        return context
    from onnx_gate.github.api_errors import GitHubError

    try:
        data = client.get(f"/repos/{context.repository}/pulls/{known.number}")
        pull = read_pull_request(data, context.repository)
    except (GitHubError, UserError):
        return context
    return replace(context, pull_request=pull, sha=pull.head_sha)


def _target(context: RunContext, client: Client | None, trouble: list[str]) -> PullRequest | None:
    """The pull request to comment on."""
    if context.workflow_run is None or client is None:
        return context.pull_request
    from onnx_gate.github.api_errors import GitHubError
    from onnx_gate.github.pulls import Superseded, find_pull_request

    try:
        pull = find_pull_request(client, context)
    except GitHubError as error:
        trouble.append(f"no comment: the pull request could not be looked up: {error}")
        return None
    if isinstance(pull, Superseded):
        log.say([pull.message])
        return None
    return pull


def _nothing_verified(message: str, environ: Mapping[str, str], status: int) -> int:
    """Report what is wrong wherever a person or a later step will look."""
    for line in message.splitlines():
        log.fail(line)
    from onnx_gate.action.failed import failed_report
    from onnx_gate.github.fit import summary_text
    from onnx_gate.report.render.markdown import View

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


def _cancelled(inputs: Inputs | None, environ: Mapping[str, str]) -> int:
    """End as a job that somebody has cancelled: at once, and with no file that the runner cannot delete."""
    _nothing_verified("cancelled: not all models were verified", environ, CANCELLED)
    if inputs is not None:
        from onnx_gate.action.output_folder import hand_over

        hand_over(inputs, _workspace(environ))
    return CANCELLED


def _workspace(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()


def _cancel(number: int, frame: object) -> NoReturn:
    # A runner sends SIGINT, SIGTERM after 7.5 s and SIGKILL after 10: the first one is enough.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
