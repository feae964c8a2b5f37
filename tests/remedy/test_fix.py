"""``--fix``: what held is put into the files, all of it or nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.gate.fix import fix
from onnx_gate.gate.remedies import line_edits, patch
from onnx_gate.report.model import Report
from onnx_gate.report.model.remedy import Remedies, Remedy
from tests.support.report.scenes import model, whole

BEFORE = "one\r\ntwo\r\n\x0cthree\r\nfour\r\n"
AFTER = "zero\r\none\r\n2\r\n\x0cthree\r\n"


def remedy(name: str, before: str, after: str) -> Remedy:
    return Remedy(
        kind="source",
        edits=tuple(line_edits(name, before, after)),
        patch=patch(name, before, after),
        files={name: hashlib.sha256(before.encode()).hexdigest()},
    )


def report(*remedies: Remedy) -> Report:
    models = (
        model(f"m{n}", verdict="diverged", remedies=Remedies(held=(each,), tried=1))
        for n, each in enumerate(remedies)
    )
    return whole(*models)


def test_edits_make_the_text_that_was_tried(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(BEFORE.encode())
    told = fix(report(remedy("a.py", BEFORE, AFTER)), tmp_path, tmp_path)
    assert (tmp_path / "a.py").read_bytes() == AFTER.encode()
    assert told == (f"{tmp_path / 'a.py'}: written for 'm0'",)


def test_one_line_that_two_models_need_is_written_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x\ny\n")
    same = remedy("a.py", "x\ny\n", "x\nz\n")
    other = remedy("a.py", "x\ny\n", "w\ny\n")
    fix(report(same, same, other), tmp_path, tmp_path)
    assert (tmp_path / "a.py").read_text() == "w\nz\n"


def test_nothing_is_written_where_one_file_has_changed_or_two_remedies_meet(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x\n")
    (tmp_path / "b.py").write_text("y changed\n")
    good, late = remedy("a.py", "x\n", "z\n"), remedy("b.py", "y\n", "z\n")
    with pytest.raises(UserError, match=r"b\.py has changed since"):
        fix(report(good, late), tmp_path, tmp_path)
    with pytest.raises(UserError, match="two remedies change these lines"):
        fix(report(good, remedy("a.py", "x\n", "w\n")), tmp_path, tmp_path)
    (tmp_path / "b.py").unlink()
    with pytest.raises(UserError, match=r"b\.py: No such file"):
        fix(report(good, late), tmp_path, tmp_path)
    assert (tmp_path / "a.py").read_text() == "x\n"
