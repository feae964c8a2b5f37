"""The hook of .pre-commit-hooks.yaml, run by pre-commit on a repository of somebody's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gate import ROOT

pytestmark = pytest.mark.process

CONFIG = """\
repos:
  - repo: {hooks}
    rev: {rev}
    hooks: [{{id: onnx-gate-check}}]
"""
MANIFEST = 'version: 1\nmodels:\n  m: {model: "m.py:build", inputs: {x: "float32[2]"}}\n'


def _run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "somebody", f"GIT_{who}_EMAIL": "me@example.org"}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PRE_COMMIT_HOME": str(cwd.parent / "cache"),
    }
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


def _repository(folder: Path) -> Path:
    folder.mkdir()
    _run("git", "init", "--quiet", cwd=folder)
    return folder


def test_the_hook_finds_a_mistake_before_the_commit(tmp_path: Path) -> None:
    hooks, mine = _repository(tmp_path / "hooks"), _repository(tmp_path / "mine")
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    for command in (("add", "."), ("commit", "--quiet", "--message", "hooks")):
        _run("git", *command, cwd=hooks)
    rev = _run("git", "rev-parse", "HEAD", cwd=hooks).stdout.strip()
    (mine / ".pre-commit-config.yaml").write_text(CONFIG.format(hooks=hooks, rev=rev))
    (mine / "m.py").touch()
    (mine / "onnx-gate.yml").write_text(MANIFEST)
    workflow = mine / ".github" / "workflows" / "onnx-gate.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("on: push\njobs: {}\n")
    _run("git", "add", ".", cwd=mine)
    pre_commit = (sys.executable, "-m", "pre_commit", "run")
    right = _run(*pre_commit, cwd=mine)
    assert right.returncode == 0, right.stdout + right.stderr
    assert "onnx-gate check...." in right.stdout
    assert "Passed" in right.stdout
    (mine / "onnx-gate.yml").write_text(MANIFEST.replace("inputs:", "inpust:"))
    _run("git", "add", ".", cwd=mine)
    wrong = _run(*pre_commit, cwd=mine)
    assert wrong.returncode == 1
    assert "did you mean 'inputs'?" in wrong.stdout
