"""Tests that need npm's packages never stand in the way of those that do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.gate import ROOT

pytestmark = pytest.mark.process
NO_REGISTRY = {
    "npm_config_registry": "http://127.0.0.1:1/",
    "npm_config_fetch_retry_mintimeout": "1",
}


@pytest.mark.parametrize(
    ("npm", "reason"),
    [(False, "npm is not on PATH"), (True, "ECONNREFUSED")],
    ids=["npm", "registry"],
)
def test_what_npm_cannot_install_is_said_and_no_failure(
    npm: bool, reason: str, tmp_path: Path
) -> None:
    if npm and shutil.which("npm") is None:
        pytest.skip("npm is not on PATH")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "install.py", tmp_path / "tools")
    shutil.copytree(
        ROOT / "tools" / "web", tmp_path / "tools" / "web", ignore=lambda *_: ["node_modules"]
    )
    cache = {"npm_config_cache": str(tmp_path / "cache")}
    finished = subprocess.run(
        [sys.executable, str(tmp_path / "tools" / "install.py"), "npm"],
        env={**os.environ, **NO_REGISTRY, **cache, "PATH": os.environ["PATH"] if npm else ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert "so tests that need them are skipped" in finished.stdout
    assert reason in finished.stdout


def test_the_image_that_publishes_installs_nothing_that_only_verifying_needs() -> None:
    pytest.importorskip("tomllib", reason="Python 3.10 has none")
    from tools import image

    todo = [need for need in image.requirements() if image.name(need) not in image.ONLY_VERIFYING]
    needed: set[str] = set()
    while todo:
        need = Requirement(todo.pop())
        if need.name.lower() in needed or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        needed.add(need.name.lower())
        todo += metadata.requires(need.name) or []
    assert "pydantic-core" in needed
    assert not needed & set(image.ONLY_VERIFYING)


def test_the_two_distributions_are_released_together() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    own, engines = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in (".", "engines")
    )
    assert engines["version"] == own["version"]
    assert f"onnx-gate=={own['version']}" in engines["dependencies"]
    offered = own["optional-dependencies"]
    for name in engines["entry-points"]["onnx_gate.runtimes"]:
        extra = f"[{name}]" if name in engines["optional-dependencies"] else ""
        assert offered[name] == [f"onnx-gate-engines{extra}=={own['version']}"]
