"""Verifying in the container: prepare a sandbox, start the process that verifies, trust no word.

This runs in the process that holds the token. What it starts has neither the token nor any way to
it: see docs/security.md.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from onnx_gate.action import allowed_environment, log, requirements, survivors
from onnx_gate.action.action_inputs import Inputs
from onnx_gate.action.changed_packages import ChangedPackages, requirements_file
from onnx_gate.action.checkout import untrusted_checkout
from onnx_gate.action.failed import failed_report
from onnx_gate.action.job import AskedSince, Job
from onnx_gate.action.output_folder import make_output, tidy_output
from onnx_gate.action.rights import RunFolders, policy_for, run_folders, services_of, with_network
from onnx_gate.errors import UserError
from onnx_gate.gate.shards import parse_shard
from onnx_gate.github.run_context import read_context, run_of
from onnx_gate.report.io import read_report, write_text
from onnx_gate.report.layout import REMEDIES, REPORT
from onnx_gate.report.model import Problem, Report, Sandbox, Shard
from onnx_gate.sandbox.close import closed, credentials, opened, private_paths
from onnx_gate.sandbox.git_folders import Survey, survey
from onnx_gate.sandbox.policy import INSTALLER, Policy
from onnx_gate.since.environments import Installer
from onnx_gate.text import workflow_command
from onnx_gate.workers.launch import Launch

_STATUS = {"pass": 0, "diverged": 1, "error": 1}
_CANCEL_SECONDS = 4.0  # of the 7.5 that a runner waits after SIGINT


class _Stopped(Exception):
    """Nothing can be verified: the message, what a program printed last, the sandbox by then."""

    def __init__(self, message: str, level: Sandbox, tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.level = level
        self.tail = tail


def verify(
    inputs: Inputs,
    environ: Mapping[str, str],
    workspace: Path,
    settled: Callable[[Report], None],
    packages: Sequence[ChangedPackages] = (),
) -> tuple[Report, int]:
    """Verify the manifest's models; return the report and the exit status.

    Where remedies are tried, or it is asked what changed ``packages`` did, ``settled`` has the report
    before that.
    Raises ``UserError`` where the folder for the report cannot be used.
    """
    output = make_output(inputs)
    survivors.adopt_orphans()
    surveyed = survey(workspace)
    _refuse_untrusted(inputs, environ, surveyed)
    leftover = credentials(surveyed, _path(environ.get("RUNNER_TEMP")))
    if leftover is not None:
        log.warn(
            f"{leftover.name} in {leftover.parent.name}/ holds credentials that a checkout left; "
            "add 'persist-credentials: false' to the actions/checkout step"
        )
    if surveyed.unknown:
        log.warn(
            f"not looked into for .git folders, and therefore closed to the models: "
            f"{len(surveyed.unknown)} folders, {surveyed.unknown[0].relative_to(workspace)} first"
        )
    try:
        with run_folders() as folders:
            return _verify(inputs, environ, workspace, surveyed, output, folders, settled, packages)
    except _Stopped as stop:
        log.fail(str(stop))
        problem = Problem(message=str(stop), tail=stop.tail)
        run, shard = run_of(environ), _shard(inputs.shard)
        return failed_report([problem], inputs.manifest, stop.level, run=run, shard=shard), 1


def _refuse_untrusted(inputs: Inputs, environ: Mapping[str, str], surveyed: Survey) -> None:
    try:
        context = read_context(environ)
    except UserError:
        return  # whoever needs the event complains of it
    git = sorted(surveyed.git, key=lambda path: len(path.parts))
    reason = untrusted_checkout(context, environ.get("GITHUB_SHA", ""), git)
    if reason is not None:
        if not inputs.allow_untrusted_checkout:
            raise UserError(reason)
        log.warn(reason)


def _verify(
    inputs: Inputs,
    environ: Mapping[str, str],
    workspace: Path,
    surveyed: Survey,
    output: Path,
    folders: RunFolders,
    settled: Callable[[Report], None],
    packages: Sequence[ChangedPackages],
) -> tuple[Report, int]:
    policy, level = policy_for(inputs, environ, workspace, surveyed, output, folders)
    log.command(_level_line(level))
    _require(inputs, level)
    private = private_paths(environ, surveyed)
    with (
        opened(workspace, inputs.manifest_path.parent, policy.uid),
        closed(private, (workspace, output, folders.root)) as open_still,
    ):
        if open_still:
            log.warn(f"could not be closed to the models: {', '.join(open_still)}")
        launch = _launch(policy, level, folders)
        _check_readable(inputs, launch.prefix)
        file = requirements_file(inputs)
        if file is not None:
            python = _install(inputs, environ, policy, level, folders, file)
            launch = replace(launch, python=python)
            level = _without_survivors(level, "what pip started", INSTALLER)
            _require(inputs, level)
        job = Job(
            manifest=inputs.manifest_path,
            models=inputs.models,
            shard=inputs.shard,
            output=output,
            cache=_cache(inputs, level),
            audit=inputs.audit,
            min_score=inputs.audit_min_score,
            keep_models=inputs.attest,
            launch=launch,
            sandbox=level,
            image=requirements.versions(),
            run=run_of(environ),
        )
        status, level = _run_gate(job, environ, inputs.directory, folders)
        report, status = _result(output, level, status)
        wanted = inputs.remedies and report.verdict != "pass"
        if report.problems or not (wanted or packages):
            return report, status
        settled(report)
        if packages:
            asked = _asked_since(environ, policy, folders, packages, 60 * inputs.since_minutes)
            job = job.model_copy(update={"sandbox": level, "since": asked})
            _, level = _run_gate(job, environ, inputs.directory, folders)
            level = _without_survivors(level, "what pip started", INSTALLER)
        if wanted:
            job = job.model_copy(update={"sandbox": level, "since": None, "remedies": True})
            _, level = _run_gate(job, environ, inputs.directory, folders)
    return _with_found(report.model_copy(update={"sandbox": level}), output), status


def _require(inputs: Inputs, level: Sandbox) -> None:
    if inputs.sandbox == "require" and level.level != "full":
        lacking = "; ".join(level.missing) or "everything"
        raise _Stopped(f"sandbox: require, and this machine lacks {lacking}", level)


def _without_survivors(level: Sandbox, whose: str, uid: int | None) -> Sandbox:
    """End all that was started below this process; what lives on lowers the level."""
    alive = survivors.end_all(uid if level.uid is not None else None)
    if not alive:
        return level
    lowered = level.model_copy(
        update={
            "level": "partial" if level.level == "full" else level.level,
            "missing": (*level.missing, f"an end to {whose} ({alive} processes live on)"),
        }
    )
    log.command(_level_line(lowered))
    return lowered


def _launch(policy: Policy, level: Sandbox, folders: RunFolders) -> Launch:
    """Return how the models' processes are started."""
    plain = Launch(environment=policy.environment, private=folders.private)
    if level.level == "off":
        return plain
    return replace(
        plain,
        prefix=policy.command(folders.root / "models.json"),
        owner=policy.uid,
        policy=policy,
        services=services_of(policy, folders),
    )


def _cache(inputs: Inputs, level: Sandbox) -> Path | None:
    """The folder of the cache, where the models cannot write a verdict of their own into it."""
    if inputs.cache_path is None:
        return None
    if level.uid is None and not level.landlock:
        log.warn(
            f"input 'cache': {inputs.cache} is not used, as nothing keeps the models from writing "
            f"into it (sandbox: {level.level})"
        )
        return None
    return inputs.cache_path


def _install(
    inputs: Inputs,
    environ: Mapping[str, str],
    policy: Policy,
    level: Sandbox,
    folders: RunFolders,
    file: Path,
) -> str:
    """Install the requirements as a user that is not the models'; return the interpreter."""
    if not file.is_file():
        message = f"{file.name}: no such file; the requirements are a file in the repository"
        raise _Stopped(message, level)
    files = (requirements.CONSTRAINTS, requirements.WITHOUT)
    confined = with_network(
        environ, policy, folders, folders.site, *map(folders.root.joinpath, files)
    )
    prefix = confined.command(folders.root / "install.json")
    with log.group(f"requirements: {file.name}"):
        done = requirements.install(
            file, folders.site, prefix, inputs.directory, lambda line: log.say([f"  | {line}"])
        )
    if done.problem is not None:
        raise _Stopped(done.problem, level, done.tail)
    return str(done.python)


def _asked_since(
    environ: Mapping[str, str],
    policy: Policy,
    folders: RunFolders,
    packages: Sequence[ChangedPackages],
    seconds: float,
) -> AskedSince:
    """Write down what the base has of the files, and return what is asked about them."""
    files = []
    for number, each in enumerate(packages):
        base = folders.since / f"base-{number}" / each.head.name
        base.parent.mkdir()
        requirements.write_as_if_beside(each.base, each.head, base)
        files.append((base, each.head))
    indexes = dict.fromkeys(url for each in packages for url in requirements.cpu_index(each.head))
    confined = with_network(environ, policy, folders, folders.since)
    installer = Installer(
        None,
        folders.since,
        indexes=tuple(indexes),
        prefix=confined.command(folders.root / "since.json"),
        owner=confined.uid,
    )
    return AskedSince(files=tuple(files), packages=installer, seconds=seconds)


def _run_gate(
    job: Job, environ: Mapping[str, str], directory: Path, folders: RunFolders
) -> tuple[int, Sandbox]:
    """Run the gate to its end; return its status and the sandbox, less what lives on.

    However it ends, nothing of the models' lives on or can be followed in the output afterwards: the
    gate tidies up as well, but models that make it end before that are no reason to leave it.
    """
    file = folders.root / "job.json"
    write_text(file, job.model_dump_json())
    gate = subprocess.Popen(
        [sys.executable, "-I", "-m", "onnx_gate.action.unprivileged", str(file)],
        cwd=directory,
        env=allowed_environment.for_the_gate(environ),
        stdin=subprocess.DEVNULL,
    )
    try:
        status = gate.wait()
        # Before what is closed to the models is given back.
        return status, _without_survivors(job.sandbox, "what the models started", job.launch.owner)
    except BaseException:
        gate.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            gate.wait(_CANCEL_SECONDS)
        gate.kill()
        survivors.end_all(None, 1.0)
        raise
    finally:
        tidy_output(job.output, keep_models=job.keep_models)


def _result(output: Path, level: Sandbox, status: int) -> tuple[Report, int]:
    """Believe the report only where the process that wrote it ended as its verdict says."""
    try:
        report = read_report(output / REPORT)
    except UserError as error:
        raise _Stopped(f"the gate ended with status {status}: {error}", level) from error
    expected = 2 if report.problems and not report.models else _STATUS[report.verdict]
    if status != expected:
        raise _Stopped(f"the gate ended with status {status} instead of {expected}", level)
    return report.model_copy(update={"sandbox": level}), status


def _with_found(report: Report, output: Path) -> Report:
    """Return a report with what was found out since it was settled, which is in the output by now."""
    with suppress(OSError):
        (output / REMEDIES).rmdir()  # of which nothing was left
    try:
        found = read_report(output / REPORT)
    except UserError as error:
        log.warn(f"what was found out since the verdicts is not known: {error}")
        return report
    tried = {model.name: model.remedies for model in found.models}
    models = (m.model_copy(update={"remedies": tried.get(m.name)}) for m in report.models)
    return report.model_copy(update={"models": tuple(models), "since": found.since})


def _shard(text: str) -> Shard | None:
    with suppress(UserError):
        return parse_shard(text)
    return None


def _check_readable(inputs: Inputs, prefix: tuple[str, ...]) -> None:
    """Say in a sentence what would otherwise be a permission error in every model."""
    manifest = inputs.manifest_path
    if not prefix or not manifest.is_file():
        return
    code = "import os, sys; sys.exit(not os.access(sys.argv[1], os.R_OK))"
    done = subprocess.run([*prefix, sys.executable, "-I", "-c", code, str(manifest)], env={})
    if done.returncode == 1:
        raise UserError(
            f"the models' user cannot read {inputs.manifest}: let others read the workspace in a "
            "step before this one (chmod -R o+rX .)"
        )


def _level_line(level: Sandbox) -> str:
    if level.level == "full":
        return f"sandbox: full (uid {level.uid}, Landlock {level.landlock}, seccomp, no network)"
    if level.level == "off":
        lacking = "the models' code can read and change what this job can"
    else:
        lacking = f"without {'; '.join(level.missing)}"
    return workflow_command("warning", f"sandbox: {level.level}: {lacking}")


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
