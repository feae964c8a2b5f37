"""Tests that need npm's packages never stand in the way of those that do not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


@pytest.mark.parametrize("image", ["verify", "publish"])
def test_an_image_installs_what_was_tested_and_nothing_else(image: str) -> None:
    """Written anew by ``python -m tools.lock`` where versions change."""
    pytest.importorskip("tomllib", reason="Python 3.10 has none")
    from tools import lock

    text = (lock.LOCKS / f"{image}.txt").read_text(encoding="utf-8")
    paragraphs = re.findall(
        r"^([\w.-]+)==(\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}.*\n?)+)", text, re.M
    )
    locked = {canonicalize_name(name): version for name, version, _ in paragraphs}
    assert len(locked) == text.count("==")
    tested = {
        canonicalize_name(need.name): str(need.specifier).removeprefix("==")
        for need in map(Requirement, (ROOT / "constraints.txt").read_text().splitlines()[1:])
    }
    apart = {n: v for n, v in locked.items() if n in tested and tested[n] != v}
    assert not apart
    asked = {Requirement(need).name for need in lock.needs(image)} - {"torch"}
    assert {canonicalize_name(name) for name in asked} <= set(locked)
    assert "torch" not in locked
    if image == "publish":
        assert not set(locked) & {canonicalize_name(name) for name in lock.ONLY_VERIFYING}
