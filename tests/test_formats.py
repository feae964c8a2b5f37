"""``--format``, as a CI system calls it: what is on stdout, and where its paths point."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from onnx_gate.manifest.find import path_in_repository
from onnx_gate.report.io import read_report, to_json, write_text
from onnx_gate.report.render.screen import put
from onnx_gate.report.story.view import View
from tests.support.gate import ROOT, gate
from tests.support.report.reports import report
from tests.support.report.scenes import model, whole
from tests.support.runner import Command, obeyed

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODELS = """\
import torch


class Baked(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] > 4:
            return x * 2
        return x + 1
"""
MANIFEST = """\
version: 1
models:
  baked:
    model: m.py:Baked
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: [2, 7]}
    suites: [{random: normal, count: 1}]
"""
CALL = ("run", "--manifest", "sub/folder/onnx-gate.yml", "--cache", "cache")


@pytest.fixture
def repository(once: Callable[..., Path]) -> Path:
    """A repository whose manifest is in a subfolder, with a run that diverged."""

    def fill(folder: Path) -> None:
        (folder / "sub" / "folder").mkdir(parents=True)
        (folder / "sub" / "folder" / "m.py").write_text(MODELS)
        (folder / "sub" / "folder" / "onnx-gate.yml").write_text(MANIFEST)
        who = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
        for words in (("init", "-q"), (*who, "add", "sub"), (*who, "commit", "-qm", "Begin")):
            subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
        done = gate(*CALL, "--format", "json", cwd=folder)
        assert done.returncode == 1, done.stderr
        (folder / "stdout").write_text(done.stdout)
        (folder / "stderr").write_text(done.stderr)

    return once("formats", fill)


def _copy(repository: Path, folder: Path) -> Path:
    return Path(shutil.copytree(repository, folder, symlinks=True))


def _of_github(text: str) -> list[tuple[str, None]]:
    commands = obeyed(text)
    assert len(commands) == len(text.splitlines())
    return [(_file(each), None) for each in commands]


def _file(command: Command) -> str:
    return dict(part.split("=") for part in command.properties.split(","))["file"]


def _of_gitlab(text: str) -> list[tuple[str, int]]:
    return [(e["location"]["path"], e["location"]["lines"]["begin"]) for e in json.loads(text)]


def _of_junit(text: str) -> list[tuple[str, None]]:
    suite = ET.fromstring(text).find("testsuite[@name='baked']")
    assert suite is not None
    assert any("sub/folder/m.py:" in (each.text or "") for each in suite.iter("failure"))
    return [(suite.get("file", ""), None)]


def _of_sarif(text: str) -> list[tuple[str, int]]:
    places: list[Any] = [
        result["locations"][0] for result in json.loads(text)["runs"][0]["results"]
    ]
    files = [place["physicalLocation"] for place in places]
    return [(file["artifactLocation"]["uri"], file["region"]["startLine"]) for file in files]


READERS: dict[str, Callable[[str], Sequence[tuple[str, object]]]] = {
    "github": _of_github,
    "gitlab": _of_gitlab,
    "junit": _of_junit,
    "sarif": _of_sarif,
}


def test_json_is_the_report_and_progress_is_elsewhere(repository: Path) -> None:
    written = repository / "onnx-gate-report" / "report.json"
    assert (repository / "stdout").read_text() == written.read_text()
    assert "[1/1] diverged" in (repository / "stderr").read_text()
    shown = read_report(written)
    assert shown.manifest.path == "sub/folder/onnx-gate.yml"
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=repository, text=True)
    assert shown.sha == head.strip()
    assert shown.created is not None


@pytest.mark.parametrize("format", READERS)
def test_a_run_prints_the_format_and_nothing_else(
    repository: Path, tmp_path: Path, format: str
) -> None:
    folder = _copy(repository, tmp_path / "repository")
    done = gate(*CALL, "--format", format, cwd=folder)
    assert done.returncode == 1
    assert "diverged" in done.stderr
    places = READERS[format](done.stdout)
    assert places
    assert {file for file, _ in places} == {"sub/folder/m.py"}
    again = gate("report", "onnx-gate-report/report.json", "--format", format, cwd=folder)
    assert again.returncode == 0
    assert READERS[format](again.stdout) == places


def test_of_several_the_first_is_printed_and_all_are_written(
    repository: Path, tmp_path: Path
) -> None:
    folder = _copy(repository, tmp_path / "repository")
    done = gate(*CALL, *shlex.split("--format terminal --format junit --format gitlab"), cwd=folder)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "report: onnx-gate-report/report.json"
    assert _of_junit((folder / "onnx-gate-report" / "report.xml").read_text())
    assert _of_gitlab((folder / "onnx-gate-report" / "report.gitlab.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["report", "big.json", "--format", "json"], 0),
        ([*CALL], 1),
    ],
)
def test_who_reads_no_further_changes_no_verdict(
    repository: Path, tmp_path: Path, arguments: list[str], status: int
) -> None:
    folder = _copy(repository, tmp_path / "repository")
    big = whole(*(model(f"m{i}") for i in range(1000)), verdict="pass")
    write_text(folder / "big.json", to_json(big))
    command = shlex.join([sys.executable, "-m", "onnx_gate", *arguments])
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


@pytest.mark.parametrize("format", ["json", "junit", "sarif", "gitlab", "html", "markdown"])
def test_no_line_of_a_format_is_a_command_for_a_runner(
    format: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    put(report("::error::forged", "x\n::error::##[error]"), format, View(), None)
    out = capfd.readouterr().out
    assert "forged" in out
    assert obeyed(out) == []


def test_the_action_points_into_the_repository_that_is_checked_out(
    repository: Path, tmp_path: Path
) -> None:
    """With ``path:`` of the checkout and ``working-directory:``, neither of them the repository's root."""
    folder = _copy(repository, tmp_path / "checkout") / "sub" / "folder"
    shutil.move(folder.parents[1] / "onnx-gate-report", folder / "onnx-gate-report")
    (tmp_path / "outputs").touch()
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "entrypoint.py")],
        env={
            "PATH": os.environ["PATH"],
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(tmp_path),
            "INPUT_MODE": "publish",
            "INPUT_WORKING-DIRECTORY": "checkout/sub/folder",
            "GITHUB_OUTPUT": str(tmp_path / "outputs"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
            "GITHUB_REPOSITORY": "acme/vision",
            "GITHUB_SHA": "9b7d0c1e" * 5,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    links = re.findall(r"/blob/[0-9a-f]+/([^)#]*)", (tmp_path / "summary").read_text())
    assert set(links) == {"sub/folder/m.py"}
    # What a later step uploads starts at the workspace.
    assert "checkout/sub/folder/onnx-gate-report/report.json" in (tmp_path / "outputs").read_text()


@pytest.mark.parametrize(
    ("roots", "workspace", "path"),
    [
        (["."], None, "a/b/onnx-gate.yml"),
        (["a"], None, "b/onnx-gate.yml"),
        ([".", "a"], None, "b/onnx-gate.yml"),
        ([], None, "onnx-gate.yml"),
        ([], ".", "a/b/onnx-gate.yml"),
        (["a"], ".", "b/onnx-gate.yml"),
        ([".", "a"], ".", "a/b/onnx-gate.yml"),
        (["."], "elsewhere", "a/b/onnx-gate.yml"),
        (["."], "a", "b/onnx-gate.yml"),
    ],
)
def test_where_the_repository_begins(
    tmp_path: Path, roots: list[str], workspace: str | None, path: str
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for root in roots:
        (tmp_path / root / ".git").touch()
    checkout = tmp_path / workspace if workspace is not None else None
    assert path_in_repository(tmp_path / "a" / "b" / "onnx-gate.yml", checkout) == path
