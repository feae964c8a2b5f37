"""Files appear together or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.gate.place import place
from onnx_gate.init.planned import ignoring, workflow
from onnx_gate.report.io import to_json
from tests.support.report.everything import everything


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_new_and_changed_files(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"1")
    old.chmod(0o640)
    place({tmp_path / "a" / "b": b"2"}, {old: (b"1", b"3")})
    assert tree(tmp_path) == {"old": b"3", "a/b": b"2"}
    assert old.stat().st_mode & 0o777 == 0o640


def test_nothing_is_overwritten_and_nothing_is_left_behind(tmp_path: Path) -> None:
    old, there = tmp_path / "old", tmp_path / "there"
    old.write_bytes(b"1")
    there.write_bytes(b"2")
    before = tree(tmp_path)
    with pytest.raises(UserError, match="is there already"):
        place({tmp_path / "new": b"4", there: b"5"}, {old: (b"1", b"3")})
    assert tree(tmp_path) == before
    with pytest.raises(UserError, match="changed meanwhile"):
        place({tmp_path / "new": b"4"}, {old: (b"other", b"3")})
    assert tree(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(UserError, match=r"closed/b: cannot be written: Permission denied"):
        place({tmp_path / "a": b"1", closed / "b": b"2"}, {})
    assert tree(tmp_path) == {}


BOUND = "-dac_override,-dac_read_search"
"""What lets root write everywhere; without it a folder of mode 0555 is closed to root, too."""


@pytest.mark.process
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("run", "--manifest", "{open}/onnx-gate.yml"),
            "--output onnx-gate-report: cannot be written: Permission denied; name a folder that "
            "can be written, with --output DIR",
        ),
        (
            ("merge", "{open}", "--output", "x"),
            "--output x: cannot be written: Permission denied; name a folder that can be written, "
            "with --output DIR",
        ),
        (
            ("report", "{open}/report.json", "--format", "html", "--output", "a.html"),
            "a.html: cannot be written: Permission denied; name another file with --output",
        ),
    ],
)
def test_a_read_only_folder_is_named_with_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    closed, free = tmp_path / "closed", tmp_path / "open"
    closed.mkdir()
    free.mkdir()
    (free / "m.py").write_text("import torch\n\ndef build():\n    return torch.nn.ReLU()\n")
    (free / "onnx-gate.yml").write_text(
        "version: 1\nmodels: {a: {model: 'm.py:build', inputs: {x: 'float32[2]'}}}\n"
    )
    (free / "report.json").write_text(to_json(everything()))
    closed.chmod(0o555)
    call = [each.replace("{open}", str(free)) for each in arguments]
    bound = ["setpriv", f"--bounding-set={BOUND}"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*bound, sys.executable, "-m", "onnx_gate", *call],
        cwd=closed,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.strip()) == (2, f"onnx-gate: {told}")


def test_the_workflow_names_a_manifest_that_is_elsewhere() -> None:
    assert "manifest:" not in workflow("onnx-gate.yml")
    assert "          manifest: nets/onnx-gate.yml\n" in workflow("nets/onnx-gate.yml")


@pytest.mark.parametrize(
    ("old", "new"),
    [("", "out/\n"), ("a", "a\nout/\n"), ("out\n", None), ("/out/\nb\n", None)],
)
def test_a_line_is_added_to_gitignore_once(old: str, new: str | None) -> None:
    assert ignoring(old, "out/") == new
