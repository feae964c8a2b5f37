"""What the terminal decides: width and colour; and what is shown of a report, by how much is asked for."""

from __future__ import annotations

import shlex

import pytest

from onnx_gate.report.model import Report
from onnx_gate.report.render import terminal
from onnx_gate.report.render.screen import show
from onnx_gate.report.story.view import View
from tests.support.report.reports import report
from tests.support.report.scenes import diverged

VIEW = View(
    manifest_path="ml/onnx-gate.yml", output="out put", options="--manifest ml/onnx-gate.yml"
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


def _shown(capsys: pytest.CaptureFixture[str], shown: Report, detail: int = 0) -> list[str]:
    show(shown, VIEW, detail)
    return capsys.readouterr().out.splitlines()


def _commands(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(("    replay: ", "    again: "))]


@pytest.mark.parametrize(("columns", "width"), [(None, terminal.WIDTH), ("70", 70), ("100", 100)])
def test_it_is_as_wide_as_asked_for(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: str | None,
    width: int,
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    lines = _shown(capsys, diverged())
    widest = max(len(line) for line in lines if line not in _commands(lines))
    assert width - 30 < widest <= width


def test_a_command_is_on_one_line_however_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    commands = [shlex.split(line)[1:] for line in _commands(_shown(capsys, diverged()))]
    assert any(words[:2] == ["onnx-gate", "replay"] for words in commands)
    for words in commands:
        if words[1] == "run":
            assert words[2:4] == ["--manifest", "ml/onnx-gate.yml"]
            assert words[4] == "--model"
        else:
            assert words[2].startswith("out put/repro")


@pytest.mark.parametrize(
    ("settings", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colours_are_the_terminals(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    coloured: bool,
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[3" in "\n".join(_shown(capsys, report()))) is coloured


def test_quiet_shows_what_is_wrong_and_verbose_every_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = report()
    quiet, normal, verbose = (_shown(capsys, shown, detail) for detail in (-1, 0, 1))
    wrong = [model.name for model in shown.models if model.verdict != "pass"]
    right = [model.name for model in shown.models if model.verdict == "pass"]
    assert all(any(name in line for line in quiet) for name in wrong)
    assert not any(name in line for line in quiet for name in right)
    assert any(name in line for line in normal for name in right)
    checks = [check.case for model in shown.models for check in model.checks]
    assert all(any(case in line for line in verbose) for case in checks)
    assert not all(any(case in line for line in normal) for case in checks)
    assert quiet[-1] == normal[-1] == verbose[-1]
