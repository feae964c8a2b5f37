from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run

HERE = Path(__file__).parent
RUNS = ("good", "bad", "hostile", "findings", "hints")


@pytest.fixture(scope="session")
def run_of(project: Path, verify_manifest: Callable[..., Run]) -> Callable[[str], Run]:
    """Return a run by its name: those of tests/e2e, which are made once, and the two of this folder."""
    folder = project / "findings"

    def run(name: str) -> Run:
        if name in ("good", "bad", "hostile"):
            return verify_manifest(f"{name}.yml")
        if not folder.exists():
            shutil.copytree(HERE / "project", folder)
            subprocess.run(
                [sys.executable, "make_data.py"],
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=300,
            )
        return verify_manifest(str(folder / f"{name}.yml"))

    return run
