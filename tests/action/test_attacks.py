"""What was tried against the action, and how a bad day ends: each as it would happen on a runner."""

from __future__ import annotations

import json
import secrets
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.manifest.load import load
from onnx_gate.report.model import Counts, ManifestInfo, ModelResult, Report, Shard
from tests.support.runner import RUNNER_UID, Job, parse_outputs

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(900)]

PROJECT = Path(__file__).parent / "project"
ENTRY = '  {name}:\n    model: models/{file}\n    inputs: {{x: "float32[2, 3]"}}\n'
PLAIN = """\
import torch


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


"""
DIGGER = (
    PLAIN
    + '''
def build():
    """Leave folders within folders wherever something has to be cleaned up."""
    import os
    import tempfile

    here = os.getcwd()
    for top in (tempfile.gettempdir(), os.path.expanduser("~")):
        os.chdir(top)
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
    os.chdir(here)
    return Plain()
'''
)
SLEEPER = (
    PLAIN
    + """
def build():
    import time

    print("ASLEEP", flush=True)
    time.sleep(300)
    return Plain()
"""
)
SPY = (
    PLAIN
    + """
def build():
    import pathlib

    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"onnx-gate-daemon" in path.read_bytes():
                print("ALIVE", path.read_bytes())
        except OSError:
            continue
    print("LOOKED")
    return Plain()
"""
)
DAEMON = """\
import os
import subprocess
import sys

from setuptools import setup

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        code = "import time; time.sleep(600)"
        os.execv(sys.executable, [sys.executable, "-c", code, "onnx-gate-daemon"])
    os._exit(0)
setup(name="package", version="1.0", py_modules=[])
"""


@pytest.fixture
def job(make_job: Callable[..., Job]) -> Job:
    return make_job(PROJECT)


def add(job: Job, name: str, text: str, attribute: str = "build") -> None:
    (job.workspace / "models" / f"{name}.py").write_text(text)
    manifest = job.workspace / "onnx-gate.yml"
    entry = ENTRY.format(name=name, file=f"{name}.py:{attribute}")
    manifest.write_text(manifest.read_text() + entry)


def commit(job: Job) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "safe.directory=*"]
    for command in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], cwd=job.workspace, check=True, timeout=60)


def part(job: Job, index: int, *names: str) -> str:
    """The report of a part in which all is well, as any version of the gate writes it."""
    manifest = load(job.workspace / "onnx-gate.yml")
    report = Report(
        verdict="pass",
        counts=Counts.model_validate({"pass": len(names)}),
        manifest=ManifestInfo(path="onnx-gate.yml", sha256=manifest.sha256),
        models=tuple(ModelResult(name=name, verdict="pass") for name in names),
        shard=Shard(index=index, count=2),
    )
    values = report.model_dump(by_alias=True, mode="json", exclude_defaults=True)
    return json.dumps({"schema": 1, **values})


def put(job: Job, path: str, text: str) -> None:
    file = job.workspace / "onnx-gate-report" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def owners(job: Job) -> set[int]:
    return {path.lstat().st_uid for path in (job.workspace, *job.workspace.rglob("*"))}


def test_no_model_takes_the_verdict_of_another_by_what_it_leaves(image: str, job: Job) -> None:
    add(job, "digger", DIGGER)
    step = job.run(image, {"mode": "verify", "models": "digger,good"})
    assert (step.status, step.outputs["verdict"]) == (0, "pass"), step.log
    assert step.outputs["passed"] == "2"
    assert owners(job) == {RUNNER_UID}


def test_a_lost_part_is_not_covered_by_a_committed_file(image: str, job: Job) -> None:
    put(job, ".old/report.json", part(job, 2, "bad", "unexportable"))
    commit(job)
    put(job, "shard-1/report.json", part(job, 1, "good"))
    step = job.run(image, {"mode": "report"})
    assert (step.status, step.outputs["verdict"]) == (1, "error"), step.log
    assert "git tracks files in onnx-gate-report" in step.log
    verified = job.run(image, {"mode": "verify", "models": "good"})
    assert verified.status == 2
    assert "git tracks files in onnx-gate-report" in verified.log


def test_a_lost_part_is_rows_of_errors_by_name(image: str, job: Job) -> None:
    # The first of two parts has the first and the third model.
    assert job.run(image, {"mode": "verify", "shard": "1/2"}).status == 1
    folder = job.workspace / "onnx-gate-report"
    put(job, "shard-0/report.json", (folder / "report.json").read_text())
    put(job, "shard-1/report.json", part(job, 2, "bad"))
    step = job.run(image, {"mode": "report"})
    assert (step.status, step.outputs["verdict"]) == (1, "error")
    rows = {model["name"]: model for model in step.report["models"]}
    assert list(rows) == ["good", "bad", "unexportable"]
    # What does not say that this run made it is no part of this run.
    assert rows["bad"]["error"]["code"] == "OG506"
    assert "2 of 3 models could not be verified" in step.summary.splitlines()[0]
    assert "made by another run" in step.log
    assert json.loads(step.outputs["failing"]) == ["bad", "unexportable"]


def test_an_image_that_is_not_root_verifies_and_says_what_it_lacks(image: str, job: Job) -> None:
    step = job.run(image, {"mode": "verify", "models": "good"}, docker=("--user", str(RUNNER_UID)))
    assert (step.status, step.outputs["verdict"]) == (0, "pass"), step.log
    assert step.report["sandbox"]["level"] == "partial"
    assert step.report["sandbox"]["missing"] == ["a uid of its own (the gate does not run as root)"]
    other = job.run(image, {"mode": "verify"}, docker=("--user", str(RUNNER_UID + 1)))
    assert other.status == 2
    assert "runs as user 1002, who cannot write there: run the image as root" in other.log


def test_what_pip_starts_does_not_live_on_under_an_init(image: str, job: Job) -> None:
    add(job, "spy", SPY)
    (job.workspace / "setup.py").write_text(DAEMON)
    with tarfile.open(job.workspace / "package-1.0.tar.gz", "w:gz") as archive:
        archive.add(job.workspace / "setup.py", "package-1.0/setup.py")
    (job.workspace / "requirements.txt").write_text("./package-1.0.tar.gz\n")
    inputs = {"mode": "verify", "models": "spy", "requirements": "requirements.txt"}
    step = job.run(image, inputs, docker=("--init",))
    assert step.status == 0, step.log
    log = step.text("logs/spy.log")
    assert "LOOKED" in log
    assert "ALIVE" not in log
    assert step.report["sandbox"]["level"] == "full"


@pytest.mark.parametrize("signal", ["INT", "TERM"])
def test_a_cancelled_job_leaves_one_line_and_nothing_of_root_s(
    signal: str, image: str, job: Job
) -> None:
    add(job, "sleeper", SLEEPER)
    name = f"onnx-gate-test-cancelled-{secrets.token_hex(8)}"
    process = job.start(image, {"mode": "verify", "models": "sleeper"}, docker=("--name", name))
    log = job.workspace / "onnx-gate-report" / "logs" / "sleeper.log"
    deadline = time.monotonic() + 120
    while not (log.exists() and "ASLEEP" in log.read_text()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    subprocess.run(["docker", "kill", "-s", signal, name], check=True, capture_output=True)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert parse_outputs(job.command_file("GITHUB_OUTPUT").read_text())["verdict"] == "error"
    errors = [line for line in printed.splitlines() if line.startswith("::error")]
    assert errors == ["::error::cancelled: not all models were verified"]
    assert "Traceback" not in printed
    assert owners(job) == {RUNNER_UID}


def test_a_report_of_a_later_version_is_read(image: str, job: Job) -> None:
    later = json.loads(part(job, 1, "good", "bad", "unexportable"))
    del later["shard"]
    later["run"] = {"id": 17301, "attempt": 1, "sha": "f" * 40}
    later |= {"mood": "sunny", "models": [{**m, "mood": "sunny"} for m in later["models"]]}
    put(job, "report.json", json.dumps(later))
    step = job.run(image, {"mode": "publish", "comment": "never"})
    assert (step.status, step.outputs["passed"]) == (0, "3"), step.log


def test_a_part_that_is_too_large_is_not_parsed(image: str, job: Job) -> None:
    large = json.loads(part(job, 1, "good"))
    large["notes"] = ["x" * 1000] * 17_000
    put(job, "shard-0/report.json", json.dumps(large))
    step = job.run(image, {"mode": "report"}, docker=("--memory", "512m"))
    assert (step.status, step.outputs["verdict"]) == (1, "error")
    assert "larger than 16 MiB" in step.log
