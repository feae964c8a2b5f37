"""Which manifest is meant where none is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onnx_gate.action.action_inputs import read_inputs
from onnx_gate.errors import UserError
from onnx_gate.manifest.find import find_manifest
from onnx_gate.pages import BASE
from tests.support.gate import PACKAGES, ROOT


@pytest.mark.parametrize("name", ["onnx-gate.yml", "onnx-gate.yaml"])
@pytest.mark.parametrize(("start", "found"), [("", "{}"), ("a", "../{}"), ("a/b", "../../{}")])
def test_it_is_looked_for_upwards(tmp_path: Path, name: str, start: str, found: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / name).touch()
    assert find_manifest(tmp_path / start) == Path(found.format(name))


def test_the_nearest_one_is_meant(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "onnx-gate.yml").touch()
    (tmp_path / "a" / "onnx-gate.yaml").touch()
    assert find_manifest(tmp_path / "a") == Path("onnx-gate.yaml")


def test_what_lies_above_the_repository_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "repository" / "models").mkdir()
    (tmp_path / "onnx-gate.yml").touch()
    with pytest.raises(UserError, match=r"no onnx-gate\.yml here or in a folder above"):
        find_manifest(tmp_path / "repository" / "models")


def test_two_in_one_folder_are_none(tmp_path: Path) -> None:
    for name in ("onnx-gate.yml", "onnx-gate.yaml"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"onnx-gate\.yml and onnx-gate\.yaml; remove one"):
        find_manifest(tmp_path)


def test_every_page_that_a_message_points_to_is_there() -> None:
    """And none is pointed to by a path, which whoever has installed a wheel does not have."""
    named: set[str] = set()
    for file in (p for name in PACKAGES for p in (ROOT / name).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        named |= set(re.findall(r"""page\(f?["']([^"'{]+)["']\)""", text))
        paths = re.findall(r"""^[^#\n]*["'(][^"'\n]*\bdocs/\w+\.md""", text, re.M)
        assert not [line for line in paths if BASE not in line], file
    assert {"manifest.md", "workflows.md", "security.md"} <= named
    assert [each for each in named if not (ROOT / "docs" / each.partition("#")[0]).exists()] == []


@pytest.mark.parametrize(
    ("there", "given", "meant"),
    [
        ("onnx-gate.yaml", "onnx-gate.yml", "onnx-gate.yaml"),
        ("onnx-gate.yml", "onnx-gate.yml", "onnx-gate.yml"),
        ("other.yml", "onnx-gate.yml", "onnx-gate.yml"),
        ("onnx-gate.yaml", "other.yml", "other.yml"),
    ],
)
def test_the_action_looks_for_either_name(
    tmp_path: Path, there: str, given: str, meant: str
) -> None:
    (tmp_path / there).touch()
    environ = {"GITHUB_WORKSPACE": str(tmp_path), "INPUT_MANIFEST": given}
    assert read_inputs(environ).manifest == meant
