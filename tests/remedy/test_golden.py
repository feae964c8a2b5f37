"""The patches that held, as the benchmark has stored them: they apply, and are made again."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onnx_gate.gate.remedies import patch
from onnx_gate.manifest.load import load
from onnx_gate.remedy.patterns import PATTERNS
from onnx_gate.remedy.source_remedies import rewrites
from tests.support.gate import ROOT

pytestmark = pytest.mark.process

STORED = ROOT / "benchmarks" / "accuracy" / "remedies.json"
PROJECTS = (ROOT / "examples" / "broken", ROOT / "benchmarks" / "accuracy" / "remedy_cases")
ROWS: list[dict[str, Any]] = json.loads(STORED.read_text())["remedies"]["rows"]
PATCHED = [row for row in ROWS if any(row["patches"])]


# Rewrites that no model of the benchmark needs; test_rewrite.py has them.
UNSEEN = {"masked", "rows", "finfo", "softplus"}


def project_of(text: str) -> Path:
    """Return the project that a patch is for: of the two, the one whose file has its lines."""
    for project in PROJECTS:
        done = subprocess.run(["git", "apply", "--check", "-"], cwd=project, input=text, text=True)
        if done.returncode == 0:
            return project
    raise AssertionError(f"it applies to neither project:\n{text}")


def changed_lines(text: str) -> set[int]:
    """Return the lines of the old file that a unified diff takes away."""
    found: set[int] = set()
    number = 0
    for line in text.splitlines()[2:]:
        if match := re.match(r"@@ -(\d+)", line):
            number = int(match[1])
        elif not line.startswith("+"):
            found |= {number} if line.startswith("-") else set()
            number += 1
    return found


@pytest.mark.parametrize("row", PATCHED, ids=[row["name"] for row in PATCHED])
def test_a_stored_patch_applies_and_is_what_a_rewrite_makes(
    row: dict[str, Any], tmp_path: Path
) -> None:
    for number, whole in enumerate(filter(None, row["patches"])):
        project, folder = project_of(whole), tmp_path / str(number)
        shutil.copytree(project, folder)
        subprocess.run(["git", "apply", "-"], cwd=folder, input=whole, text=True, check=True)
        for text in re.split(r"^(?=--- a/)", whole, flags=re.M)[1:]:
            name = text.splitlines()[0].removeprefix("--- a/")
            if not name.endswith(".py"):
                load(folder / name)
                continue
            ast.parse((folder / name).read_text())
            before = (project / name).read_text()
            specs = {spec.name: spec for spec in load(project / "onnx-gate.yml").models}
            target = (specs[row["name"]].model or "").partition(":")[2]
            found = rewrites(before, changed_lines(text), target)
            assert text in [patch(name, before, each.text) for each in found]


def test_each_kind_of_remedy_has_a_stored_patch() -> None:
    kinds = {kind for row in ROWS for kind in row["kinds"]}
    assert {"export", "inputs", "runtime", "fresh export", *PATTERNS} - kinds <= UNSEEN
