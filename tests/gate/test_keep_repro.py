"""What is taken of a model's folder lies in it, and is plain files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnx_gate.gate.kept_files import keep_repro
from onnx_gate.report.model import ModelResult
from onnx_gate.report.model.diagnosis import Diagnosis


def diverged(repro: str) -> ModelResult:
    told = Diagnosis(runtime="onnxruntime", case="a", output="y", blame="undecided", repro=repro)
    return ModelResult(name="net", verdict="diverged", diagnosis=told)


def kept(result: ModelResult) -> str | None:
    assert result.diagnosis is not None
    return result.diagnosis.repro


def test_a_reproduction_is_kept_with_plain_files_alone(tmp_path: Path) -> None:
    folder, target = tmp_path / "models/net", tmp_path / "repro/net"
    case = folder / "repro" / "its-name" / "case"
    (case / "deep").mkdir(parents=True)
    (case / "deep" / "report.json").write_text("{}")
    (case / "run.py").write_text("x")
    (case / "link").symlink_to("/etc/hostname")
    assert kept(keep_repro(diverged("repro/its-name/case"), folder, target)) == "repro/net/case"
    found = sorted(p.relative_to(target).as_posix() for p in target.rglob("*"))
    assert found == ["case", "case/deep", "case/run.py"]


@pytest.mark.parametrize("part", ["repro", "repro/its-name"])
def test_a_reproduction_is_not_taken_by_way_of_a_link(tmp_path: Path, part: str) -> None:
    folder, target = tmp_path / "models/net", tmp_path / "repro/net"
    there = tmp_path / "workspace"
    (there / "its-name" / "case").mkdir(parents=True)
    (there / "case").mkdir()
    for path in (there / "case", there / "its-name" / "case"):
        (path / "report.json").write_text("somebody's")
    link = folder / part
    link.parent.mkdir(parents=True)
    link.symlink_to(there, target_is_directory=True)
    before = sorted(there.rglob("*"))
    assert kept(keep_repro(diverged("repro/its-name/case"), folder, target)) is None
    assert sorted(there.rglob("*")) == before
    assert not os.path.lexists(target)
