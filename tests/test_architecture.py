"""The floors hold, and the contracts that say so can fail."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp
import pytest

from tests.support.gate import PACKAGES, ROOT

LINT = """
import sys
sys.path.insert(0, "engines")
from importlinter.cli import lint_imports
sys.exit(lint_imports(limit_to_contracts=tuple(sys.argv[1:]), no_cache=True))
"""


def lint(folder: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LINT, *contracts]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_class_has_a_name_of_its_own(package: str) -> None:
    trees = [ast.parse(path.read_text()) for path in (ROOT / package).rglob("*.py")]
    names = [n.name for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    assert [name for name, times in Counter(names).items() if times > 1] == []


@pytest.mark.process
def test_the_floors_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "forbidden", "contract"),
    [
        ("report/render/html.py", "import torch", "light"),
        ("github/comment.py", "import onnxruntime", "light"),
        ("report/model/check.py", "from onnx_gate.report.render import html", "report"),
        ("manifest/load.py", "from onnx_gate.runtimes import torch_eager", "light"),
        ("manifest/load.py", "from onnx_gate import report", "floors"),
        ("verify/verify.py", "from onnx_gate.diagnose import diagnose", "floors"),
        ("workers/pool.py", "from onnx_gate.manifest import ModelSpec", "workers"),
        ("init/init.py", "from onnx_gate.verify import build", "light"),
        ("gate/run.py", "from onnx_gate.gate import worker", "in-workers"),
        ("numerics/compare.py", "from onnx_gate import errors", "numerics"),
        ("numerics/compare.py", "from onnx_gate.verify import judge", "floors"),
        ("runtimes/base.py", "import onnx_gate_engines.web.service", "beside"),
        ("../engines/onnx_gate_engines/ncnn.py", "import onnx_gate_engines.litert", "engines"),
        (
            "../engines/onnx_gate_engines/web/wire.py",
            "import onnx_gate_engines.web.link",
            "browser",
        ),
    ],
)
def test_one_forbidden_import_is_enough(
    module: str, forbidden: str, contract: str, tmp_path: Path
) -> None:
    said = broken_by(module, forbidden, contract, tmp_path)
    name = module.removeprefix("../engines/").removesuffix(".py").replace("/", ".")
    prefix = "" if module.startswith("../") else "onnx_gate."
    assert f"{prefix}{name} -> " in said


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "forbidden", "circle"),
    [
        ("manifest/problems.py", "from onnx_gate.manifest import load", "onnx_gate.manifest"),
        ("runtimes/base.py", "from onnx_gate.runtimes import isolated", "onnx_gate.runtimes"),
        ("report/io.py", "from onnx_gate.report.join import merge", "onnx_gate.report"),
        ("graph/walk.py", "from onnx_gate.graph import constants", "onnx_gate.graph"),
        ("verify/judge/where.py", "from onnx_gate.verify import checks", "onnx_gate.verify"),
        ("diagnose/bench.py", "from onnx_gate.diagnose.blame import blame", "onnx_gate.diagnose"),
        (
            "report/story/extent.py",
            "from onnx_gate.report.story import sentence",
            "onnx_gate.report.story",
        ),
    ],
)
def test_one_import_makes_a_circle(
    module: str, forbidden: str, circle: str, tmp_path: Path
) -> None:
    said = broken_by(module, forbidden, "siblings", tmp_path)
    assert f"No cycles are allowed in {circle}." in said


def broken_by(module: str, forbidden: str, contract: str, tmp_path: Path) -> str:
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "onnx_gate" / module).open("a") as file:
        file.write(f"\n\ndef later() -> None:\n    {forbidden}\n")
    done = lint(tmp_path, contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Contracts: 0 kept, 1 broken." in done.stdout
    return done.stdout


def test_test_files_are_imported_by_nobody() -> None:
    graph = grimp.build_graph("tests", cache_dir=None)
    for name in sorted(graph.modules):
        imported = graph.find_modules_directly_imported_by(name)
        strangers = {each for each in imported if not f"{each}.".startswith("tests.support.")}
        assert strangers == set(), f"{name} imports {strangers}: helpers live in tests/support/"
