"""The habits of a command line: what is found, listed, completed, interrupted and pasted."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.report.io import read_report
from tests.support.gate import Run, gate

pytestmark = pytest.mark.process

MODELS = """\
import pathlib, time, torch

def right():
    return torch.nn.Linear(4, 4)

def endless():
    pathlib.Path(__file__).with_name("begun").touch()
    time.sleep(600)
"""
MANIFEST = """\
version: 1
models:
  right: {model: "m.py:right", inputs: {x: "float32[batch, 4]"}}
  endless: {model: "m.py:endless", inputs: {x: "float32[batch, 4]"}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text(MODELS)
    (tmp_path / "onnx-gate.yaml").write_text(MANIFEST)
    (tmp_path / "deep" / "inside").mkdir(parents=True)
    return tmp_path


def _without_torch(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.modules.update(torch=None, onnx=None, onnxruntime=None);"
        f"sys.argv = {['onnx-gate', *arguments]!r}; from onnx_gate.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_the_manifest_is_found_upwards(folder: Path) -> None:
    done = gate("check", cwd=folder / "deep" / "inside")
    assert done.returncode == 0
    assert done.stdout == "../../onnx-gate.yaml: 2 models, no mistakes\n"


def test_several_manifests_are_checked(folder: Path) -> None:
    (folder / "other.yml").write_text(MANIFEST.replace("model:", "modle:"))
    done = gate("check", "onnx-gate.yaml", "other.yml", cwd=folder)
    assert done.returncode == 2
    assert "onnx-gate.yaml: 2 models, no mistakes" in done.stdout
    assert "did you mean 'model'?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--verbose", "--quiet"], "contradict each other"),
        (["run", "--runtime", "onnxruntme"], "did you mean 'onnxruntime'?"),
        (["run", "--format", "pdf"], "no format is called 'pdf'"),
        (["list", "--model", "rihgt"], "did you mean 'right'?"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_runs(
    folder: Path, arguments: list[str], words: str
) -> None:
    done = gate(*arguments, cwd=folder)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (folder / "onnx-gate-report").exists()


def test_help_is_not_cut(folder: Path) -> None:
    commands = gate("--help", cwd=folder).stdout.partition("Commands:")[2]
    assert "..." not in commands
    assert re.search(r"^  list +Print the models, cases and sizes", commands, re.M)
    wide = subprocess.run(
        [sys.executable, "-m", "onnx_gate", "run", "--help"],
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert 100 < max(map(len, wide.splitlines())) <= 120


def test_names_are_completed(folder: Path) -> None:
    def complete(words: str) -> list[str]:
        done = subprocess.run(
            [Path(sys.executable).with_name("onnx-gate")],
            cwd=folder / "deep",
            env={
                **os.environ,
                "_ONNX_GATE_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split()) - 1),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout.split()

    assert complete("onnx-gate run --model e") == ["endless"]
    assert complete("onnx-gate li") == ["list"]


def test_list_needs_no_torch_and_names_what_a_run_tried(
    verify_manifest: Callable[..., Run], project: Path
) -> None:
    done = _without_torch("list", "--manifest", "good.yml", "--cases", cwd=project)
    assert done.returncode == 0, done.stderr
    listed: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        name, _, case = line.partition(" ")
        listed.setdefault(name, set()).add(case)
    same = 0
    for model in verify_manifest("good.yml").report.models:
        counted = [check for check in model.checks if not check.advice]
        # What reaches a decision is found by running the module, which a list does without.
        tried = {check.case for check in counted if check.suite != "reached"}
        same += tried == {c for c in listed.get(model.name, ()) if not c.startswith("advice/")}
    # A generator's cases are not known, and a model may refuse the sizes that are tried first.
    assert same >= 0.8 * len(listed)
    short = _without_torch("list", "--manifest", "good.yml", cwd=project).stdout
    assert len(short) < len(done.stdout)


def test_what_is_printed_can_be_pasted(verify_manifest: Callable[..., Run], project: Path) -> None:
    """The commands of a run that named its manifest and its output, where it was called."""
    run = verify_manifest("bad.yml")
    printed = re.findall(r"^    (?:again|replay): onnx-gate (.*)$", run.output, re.M)
    again = [shlex.split(line) for line in printed if line.startswith("run ")]
    assert len(again) == sum(model.verdict != "pass" for model in run.report.models)
    words = next(each for each in again if "--case" in each)
    assert words[1:5] == ["--manifest", "bad.yml", "--output", str(run.folder)]
    chosen = _without_torch("list", "--cases", *words[1:3], *words[5:], cwd=project)
    assert len(chosen.stdout.splitlines()) == 1
    replay = next(shlex.split(line) for line in printed if line.startswith("replay "))
    assert gate(*replay, cwd=project).returncode == 1
    log = re.search(r"^    log: (.*)$", run.output, re.M)
    assert log is not None
    assert Path(log[1]).is_file()


def test_a_command_that_is_printed_names_the_runtimes_of_the_call(
    project: Path, tmp_path: Path
) -> None:
    call = ["--manifest", "bad.yml", "--output", str(tmp_path), "--runtime", "reference"]
    done = gate("run", *call, "--model", "counter", cwd=project)
    again = re.search(r"^    again: onnx-gate run (.*)$", done.stdout, re.M)
    assert again is not None, done.stdout
    assert shlex.split(again[1]) == [*call, "--model", "counter"]


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "remedy"), [("1", ""), ("", "run it again")])
def test_what_was_finished_when_it_was_interrupted_is_kept(
    folder: Path, ci: str, remedy: str
) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "onnx_gate",
            "run",
            "--jobs",
            "1",
            "--format",
            "terminal",
            "-f",
            "junit",
        ],
        cwd=folder,
        env={**os.environ, "CI": ci},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("[1/2] pass"), first
    while not (folder / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:  # impatience loses nothing, up to the interpreter's own end
        process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.count("onnx-gate: interrupted") == 1
    assert "interrupted when 1 of 2 models had a verdict" in out
    assert "Traceback" not in out + err
    report = read_report(folder / "onnx-gate-report" / "report.json")
    assert [(m.name, m.verdict) for m in report.models] == [("right", "pass"), ("endless", "error")]
    assert report.verdict == "error"
    assert [m.error.remedy for m in report.models if m.error is not None] == [remedy]
    assert (folder / "onnx-gate-report" / "report.xml").exists()
    assert not (folder / "onnx-gate-report" / "models").exists()
    assert (folder / "onnx-gate-report" / ".gitignore").read_text().endswith("\n*\n")
