"""Verifying in the container: prepare a sandbox, start the process that verifies, trust no word.

This runs in the process that holds the token. What it starts has neither the token nor any way to
it: see docs/security.md.
"""

from __future__ import annotations

import glob
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_gate.action import allowed_environment, log, requirements
from onnx_gate.action.finished import refuse_tracked
from onnx_gate.action.inputs import Inputs
from onnx_gate.action.job import Job
from onnx_gate.action.problems import failed_report
from onnx_gate.errors import UserError
from onnx_gate.files import plain_files_only, remove_tree
from onnx_gate.github.run_context import run_of
from onnx_gate.manifest import ManifestError
from onnx_gate.manifest.load import load
from onnx_gate.report.io import read_report, to_json, write_text
from onnx_gate.report.layout import LOGS, MODELS, REPORT, REPRO, SUMMARY
from onnx_gate.report.model import Problem, Report, Sandbox
from onnx_gate.sandbox.close import closed, credentials, opened, private_paths
from onnx_gate.sandbox.level import reachable
from onnx_gate.sandbox.policy import DEVICES, Policy, runtime_paths, without_git
from onnx_gate.text import workflow_command
from onnx_gate.workers.process import process_table

_HELD_BY_RUN = (REPORT, SUMMARY, LOGS, MODELS, REPRO)
_END_SECONDS = 10.0
_STATUS = {"pass": 0, "diverged": 1, "error": 1}


@dataclass(frozen=True)
class RunFolders:
    """Folders of this run: ``root`` is the gate's, the others the models' to write to."""

    root: Path
    home: Path
    temporary: Path
    site: Path
    private: Path


def verify(inputs: Inputs, environ: Mapping[str, str], workspace: Path) -> tuple[Report, int]:
    """Verify the manifest's models; return the report and the exit status.

    The report is on disk in ``inputs.output_path``. Raises ``UserError`` where the folder for it
    cannot be used.
    """
    output = _make_output(inputs)
    leftover = credentials(workspace, _path(environ.get("RUNNER_TEMP")))
    if leftover is not None:
        log.warn(
            f"{leftover.name} in {leftover.parent.name}/ holds credentials that a checkout left; "
            "add 'persist-credentials: false' to the actions/checkout step"
        )
    with _run_folders() as folders:
        return _verify(inputs, environ, workspace, output, folders)


def _verify(
    inputs: Inputs, environ: Mapping[str, str], workspace: Path, output: Path, folders: RunFolders
) -> tuple[Report, int]:
    policy, level = _policy(inputs, environ, workspace, output, folders)
    log.command(_level_line(level))
    if inputs.sandbox == "require" and level.level != "full":
        lacking = "; ".join(level.missing) or "everything"
        return _end(output, inputs, level, f"sandbox: require, and this machine lacks {lacking}")
    with (
        opened(workspace, inputs.manifest_path.parent, policy.uid),
        closed(private_paths(environ, workspace), (workspace, output, folders.root)) as open_still,
    ):
        if open_still:
            log.warn(f"could not be closed to the models: {', '.join(open_still)}")
        launch_prefix = policy.command(folders.root / "models.json") if level.level != "off" else ()
        _check_readable(inputs, launch_prefix)
        python = None
        wanted = _requirements(inputs)
        if wanted is not None:
            python, failure = _install(inputs, environ, policy, level, folders, wanted)
            if failure is not None:
                return _end(output, inputs, level, *failure)
        job = Job(
            manifest=str(inputs.manifest_path),
            models=inputs.models,
            shard=inputs.shard,
            output=str(output),
            cache=_cache(inputs, level),
            prefix=launch_prefix,
            python=python,
            environment=policy.environment,
            owner=policy.uid if level.level != "off" else None,
            policy=policy.to_json() if level.level != "off" else None,
            private=str(folders.private),
            sandbox=level,
            image=requirements.versions(),
            run=run_of(environ),
        )
        status = _run_gate(job, environ, inputs.directory, folders)
        _end_all(policy.uid)
    return _result(output, inputs, level, status)


def _policy(
    inputs: Inputs, environ: Mapping[str, str], workspace: Path, output: Path, folders: RunFolders
) -> tuple[Policy, Sandbox]:
    models = output / MODELS
    models.mkdir(exist_ok=True)
    devices = (*DEVICES, *sorted(glob.glob("/dev/nvidia*")))
    policy = Policy(
        environment=allowed_environment.for_models(environ, folders.home, folders.temporary),
        listable=(str(workspace),),
        readable=(*runtime_paths(), *without_git(workspace), str(folders.site)),
        writable=(str(folders.home), str(folders.temporary), str(folders.private), str(models)),
        devices=devices,
    )
    if inputs.sandbox == "off":
        return replace(policy, uid=None, landlock=False, seccomp=False), Sandbox(level="off")
    policy, level = reachable(policy, folders.root)
    if policy.uid is not None:
        for folder in (folders.home, folders.temporary, folders.site):
            os.chown(folder, policy.uid, policy.uid)
    return policy, level


def _cache(inputs: Inputs, level: Sandbox) -> str | None:
    """The folder of the cache, where the models cannot write a verdict of their own into it."""
    if inputs.cache_path is None:
        return None
    if level.uid is None and not level.landlock:
        log.warn(
            f"input 'cache': {inputs.cache} is not used, as nothing keeps the models from writing "
            f"into it (sandbox: {level.level})"
        )
        return None
    return str(inputs.cache_path)


def _requirements(inputs: Inputs) -> Path | None:
    """The requirements file: the input's, else the manifest's; none where neither names one."""
    if inputs.requirements:
        return inputs.directory / inputs.requirements
    with suppress(ManifestError):
        manifest = load(inputs.manifest_path)
        if manifest.requirements is not None:
            return inputs.manifest_path.parent / manifest.requirements
    return None


def _install(
    inputs: Inputs,
    environ: Mapping[str, str],
    policy: Policy,
    level: Sandbox,
    folders: RunFolders,
    file: Path,
) -> tuple[str | None, tuple[str, ...] | None]:
    if not file.is_file():
        return None, (f"{file.name}: no such file; the requirements are a file in the repository",)
    with_network = replace(
        policy,
        network=True,
        environment=allowed_environment.for_models(
            environ, folders.home, folders.temporary, network=True
        ),
        readable=(*policy.readable, str(folders.root / requirements.CONSTRAINTS)),
        writable=(*policy.writable, str(folders.site)),
    )
    prefix = with_network.command(folders.root / "install.json")
    with log.group(f"requirements: {file.name}"):
        done = requirements.install(
            file, folders.site, prefix, inputs.directory, lambda line: log.say([f"  | {line}"])
        )
    _end_all(policy.uid if level.level != "off" else None)
    if done.problem is not None:
        return None, (done.problem, *done.tail)
    return str(done.python), None


def _run_gate(job: Job, environ: Mapping[str, str], directory: Path, folders: RunFolders) -> int:
    file = folders.root / "job.json"
    write_text(file, job.model_dump_json())
    gate = subprocess.Popen(
        [sys.executable, "-I", "-m", "onnx_gate.action.unprivileged", str(file)],
        cwd=directory,
        env=allowed_environment.for_the_gate(environ),
        stdin=subprocess.DEVNULL,
    )
    try:
        return gate.wait()
    except BaseException:
        gate.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            gate.wait(20)
        gate.kill()
        raise


def _result(output: Path, inputs: Inputs, level: Sandbox, status: int) -> tuple[Report, int]:
    """Believe the report only where the process that wrote it ended as its verdict says."""
    try:
        report = read_report(output / REPORT)
    except UserError as error:
        return _end(output, inputs, level, f"the gate ended with status {status}: {error}")
    expected = 2 if report.problems and not report.models else _STATUS[report.verdict]
    if status != expected:
        return _end(
            output, inputs, level, f"the gate ended with status {status} instead of {expected}"
        )
    return report, status


def _end(
    output: Path, inputs: Inputs, level: Sandbox, message: str, *tail: str
) -> tuple[Report, int]:
    """Report that nothing could be verified, and why."""
    log.fail(message)
    report = failed_report([Problem(message="\n".join((message, *tail)))], inputs.manifest, level)
    write_text(output / REPORT, to_json(report))
    return report, 1


def _make_output(inputs: Inputs) -> Path:
    """Return the folder for the report, in which no link of the repository's leads elsewhere."""
    output = inputs.output_path
    refuse_tracked(inputs)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name in _HELD_BY_RUN:
            path = output / name
            if path.is_symlink() or (path.is_dir() and name.startswith("report.")):
                raise UserError(
                    f"input 'output': {inputs.output}/{name} is in the way; remove it from the "
                    "repository, or name another folder"
                )
        for name in (LOGS, MODELS, REPRO):
            remove_tree(output / name)
        # An upload of the folder would follow a link that the repository has in it.
        plain_files_only(output)
        # What this run has not written must not be taken for its report.
        for name in (REPORT, SUMMARY):
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"input 'output': {inputs.output}: {error.strerror or error}") from error
    return output.resolve()


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


@contextmanager
def _run_folders() -> Iterator[RunFolders]:
    # Not in RUNNER_TEMP or HOME, which are closed; and not guessable.
    root = Path(tempfile.gettempdir(), f"onnx-gate-{secrets.token_hex(8)}")
    root.mkdir(mode=0o711)
    folders = RunFolders(root, root / "home", root / "tmp", root / "site", root / "models")
    try:
        for folder in (folders.home, folders.temporary, folders.site, folders.private):
            folder.mkdir(mode=0o755)
        yield folders
    finally:
        remove_tree(root)


def _end_all(uid: int | None) -> None:
    """Kill whatever the models' user still runs; as the first process there is only this job."""
    if uid is None or os.getpid() != 1:
        return
    deadline = time.monotonic() + _END_SECONDS
    while (pids := _alive(uid)) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _alive(uid: int) -> list[int]:
    table = process_table()
    alive = []
    for row in table.values():
        with suppress(OSError):
            if row.state != "Z" and os.stat(f"/proc/{row.pid}").st_uid == uid:
                alive.append(row.pid)
    return alive


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
