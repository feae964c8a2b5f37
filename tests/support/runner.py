"""A container action as GitHub's runner starts it: its mounts, its environment, its log parser.

The mounts, flags and variables are those of actions/runner's ContainerActionHandler.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASE_IMAGE = "python:3.11-slim-bookworm"
RUNNER_UID = 1001
TOKEN = "ghs_canaryTokenOfTheJob0123456789"
RUNTIME_TOKEN = "canaryRuntimeToken0123456789"
CHECKOUT_TOKEN = "Y2FuYXJ5OmNoZWNrb3V0"

_COMMAND_FILES = (
    "GITHUB_ENV",
    "GITHUB_PATH",
    "GITHUB_OUTPUT",
    "GITHUB_STATE",
    "GITHUB_STEP_SUMMARY",
)
_V2 = re.compile(r"^::(?P<name>[a-zA-Z-]+)(?: (?P<properties>[^:]*(?:%3A[^:]*)*?))?::(?P<data>.*)$")
_V1 = re.compile(r"##\[(?P<name>[a-zA-Z-]+)(?P<properties>[^\]]*)\](?P<data>.*)$")


@dataclass(frozen=True)
class Command:
    """A workflow command that a runner would obey."""

    name: str
    properties: str
    data: str


def commit_models(folder: Path, repository: str) -> None:
    """Make ``folder`` a repository with one commit, which everybody on this machine may read."""
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.getuid() and parent.parts[:2] == ("/", "tmp"):
            parent.chmod(0o755)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (
        ["git", "init", "-q", "-b", "main"],
        ["git", "add", "-A"],
        [*git, "commit", "-q", "-m", "models"],
        ["git", "remote", "add", "origin", f"https://github.com/{repository}.git"],
    ):
        subprocess.run(command, cwd=folder, check=True)


def obeyed(log: str) -> list[Command]:
    """Return the commands that a runner would obey in a log, ``stop-commands`` honoured."""
    commands: list[Command] = []
    stopped: str | None = None
    for line in log.splitlines():
        text = line.strip()
        if stopped is not None:
            if text == f"::{stopped}::":
                stopped = None
            continue
        found = _V2.match(text) or _V1.search(line)
        if found is None:
            continue
        command = Command(found["name"], found["properties"] or "", found["data"])
        if command.name == "stop-commands":
            stopped = command.data
        else:
            commands.append(command)
    return commands


@dataclass
class Job:
    """A job on a runner: folders, files and variables, and what a step in it left."""

    root: Path
    event: str = "pull_request"
    payload: Mapping[str, object] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def temp(self) -> Path:
        return self.root / "temp"

    def __post_init__(self) -> None:
        for folder in (
            self.workspace,
            self.temp / "_github_home",
            self.temp / "_github_workflow",
            self.temp / "_runner_file_commands",
        ):
            folder.mkdir(parents=True, exist_ok=True)
        for parent in (self.root, *self.root.parents):
            if parent.stat().st_uid == os.getuid() and str(parent).startswith("/tmp"):
                parent.chmod(0o755)

    def command_file(self, name: str) -> Path:
        return self.temp / "_runner_file_commands" / name.lower()

    def run(
        self,
        image: str,
        inputs: Mapping[str, str],
        *,
        timeout: float = 600,
        docker: tuple[str, ...] = (),
    ) -> Step:
        """Run one step to its end."""
        process = self.start(image, inputs, docker=docker)
        try:
            log, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return Step(self, process.returncode, log)

    def start(
        self, image: str, inputs: Mapping[str, str], *, docker: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        """Start one step; its standard error goes where its output goes."""
        for name in _COMMAND_FILES:
            self.command_file(name).write_text("")
        (self.temp / "_github_workflow" / "event.json").write_text(json.dumps(self.payload))
        _own(self.root)
        variables = self._variables() | {f"INPUT_{k.upper()}": v for k, v in inputs.items()}
        command = [
            *("docker", "run", "--rm", "--network", "host", "--workdir", "/github/workspace"),
            *(part for name in variables for part in ("-e", name)),
            *("-v", "/var/run/docker.sock:/var/run/docker.sock"),
            *("-v", f"{self.temp}:/github/runner_temp"),
            *("-v", f"{self.temp}/_github_home:/github/home"),
            *("-v", f"{self.temp}/_github_workflow:/github/workflow"),
            *("-v", f"{self.temp}/_runner_file_commands:/github/file_commands"),
            *("-v", f"{self.workspace}:/github/workspace"),
            *docker,
            image,
        ]
        return subprocess.Popen(
            command,
            env={"PATH": os.environ["PATH"], **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def _variables(self) -> dict[str, str]:
        files = {name: f"/github/file_commands/{name.lower()}" for name in _COMMAND_FILES}
        return {
            "HOME": "/github/home",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": "/github/workspace",
            "GITHUB_EVENT_PATH": "/github/workflow/event.json",
            "GITHUB_EVENT_NAME": self.event,
            "GITHUB_REPOSITORY": "octo/models",
            "GITHUB_REPOSITORY_OWNER": "octo",
            "GITHUB_SHA": "f" * 40,
            "GITHUB_REF": "refs/pull/7/merge",
            "GITHUB_RUN_ID": "17301",
            "GITHUB_RUN_NUMBER": "12",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_WORKFLOW": "parity",
            "GITHUB_WORKFLOW_REF": "octo/models/.github/workflows/parity.yml@refs/pull/7/merge",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_API_URL": "http://127.0.0.1:9",
            "RUNNER_TEMP": "/github/runner_temp",
            "RUNNER_OS": "Linux",
            "RUNNER_ARCH": "X64",
            "ACTIONS_RUNTIME_URL": "http://127.0.0.1:9/",
            "ACTIONS_RUNTIME_TOKEN": RUNTIME_TOKEN,
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": RUNTIME_TOKEN,
            "INPUT_GITHUB-TOKEN": TOKEN,
            **files,
            **self.environ,
        }


@dataclass(frozen=True)
class Step:
    """A finished step."""

    job: Job
    status: int
    log: str

    @property
    def outputs(self) -> dict[str, str]:
        return parse_outputs(self.job.command_file("GITHUB_OUTPUT").read_text())

    @property
    def summary(self) -> str:
        return self.job.command_file("GITHUB_STEP_SUMMARY").read_text()

    @property
    def report(self) -> dict[str, Any]:
        path = self.job.workspace / "onnx-gate-report" / "report.json"
        return json.loads(path.read_text())

    def text(self, name: str) -> str:
        return (self.job.workspace / "onnx-gate-report" / name).read_text()

    @property
    def commands(self) -> list[Command]:
        return obeyed(self.log)


def parse_outputs(text: str) -> dict[str, str]:
    """Read a GITHUB_OUTPUT file as a runner does."""
    outputs: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, equals, value = line.partition("=")
        if "<<" in line and (not equals or line.index("<<") < line.index("=")):
            name, _, end = line.partition("<<")
            value = "\n".join(iter(lambda: next(lines), end))
        outputs[name] = value
    return outputs


def docker_works() -> str | None:
    """Return why no container can be run here, null where one can."""
    if shutil.which("docker") is None:
        return "no docker client on PATH"
    try:
        done = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"docker does not answer: {error}"
    return None if done.returncode == 0 else "no docker daemon answers"


def _own(folder: Path) -> None:
    """Give the job's files to a runner's usual uid, which is nobody's in the container."""
    for top, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            os.chown(os.path.join(top, name), RUNNER_UID, RUNNER_UID, follow_symlinks=False)
