"""The command line: what it prints and how it ends when the call or the manifest is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.report.io import to_json, write_text
from tests.support.gate import gate
from tests.support.report.reports import report

pytestmark = pytest.mark.process


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text("import torch\nmodel = torch.nn.Identity()\n")
    path = tmp_path / "onnx-gate.yml"
    path.write_text(
        'version: 1\nmodels:\n  same: {model: "m.py:model", inputs: {input: "float32[2]"}}\n'
    )
    return path


def test_check_says_that_all_is_well(manifest: Path) -> None:
    finished = gate("check", cwd=manifest.parent)
    assert finished.returncode == 0
    assert finished.stdout == "onnx-gate.yml: 1 model, no mistakes\n"


def test_check_knows_which_suites_of_files_match_none(manifest: Path) -> None:
    suites = "suites: {here: {files: '*.yml'}, gone: {files: ['*.py', 'data/*.npz']}}\n"
    manifest.write_text(manifest.read_text() + suites)
    finished = gate("check", cwd=manifest.parent)
    assert finished.returncode == 2
    assert "suites.gone.files: no file matches 'data/*.npz'" in finished.stderr
    assert "suites.here" not in finished.stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_every_mistake_is_named_at_once_and_nothing_is_built(manifest: Path, command: str) -> None:
    manifest.write_text(manifest.read_text().replace("model:", "modle:") + "  other: {}\n")
    finished = gate(command, cwd=manifest.parent)
    assert finished.returncode == 2
    assert "onnx-gate.yml:3:" in finished.stderr
    assert "did you mean 'model'?" in finished.stderr
    assert "onnx-gate.yml:4:" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not (manifest.parent / "onnx-gate-report").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--manifest", "nowhere.yml"], "nowhere.yml"),
        (["run", "--model", "sane"], "did you mean 'same'?"),
        (["run", "--output", "m.py/inside"], "--output"),
        (["report", "nowhere.json"], "No such file"),
        (["report", "onnx-gate.yml"], "not a report"),
        (["report", "parts"], "parts: 2 reports below it; name one"),
        (["frobnicate"], "No such command"),
        (["run", "--jobs", "-1"], "--jobs"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_status_2(
    manifest: Path, arguments: list[str], words: str
) -> None:
    for part in ("1", "2"):
        write_text(manifest.parent / "parts" / part / "report.json", "{}")
    finished = gate(*arguments, cwd=manifest.parent)
    assert finished.returncode == 2
    assert words in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("command", ["check", "list", "plan", "run"])
@pytest.mark.parametrize("name", ["good.yml", "bad.yml", "gone.yml"])
def test_nobody_obeys_the_name_of_a_manifest(manifest: Path, command: str, name: str) -> None:
    """A pull request chooses it, and a hook hands it over."""
    folder = manifest.parent / "\x1b]0;title\x07\x1b[31m\n::error::x"
    folder.mkdir()
    (folder / "good.yml").write_text(manifest.read_text())
    (folder / "m.py").write_text("" if command == "run" else (manifest.parent / "m.py").read_text())
    (folder / "bad.yml").write_text("version: 1\nmodels: 3\n")
    named = [] if command == "check" else ["--manifest"]
    finished = gate(command, *named, str(folder / name), cwd=manifest.parent)
    assert finished.returncode == (2 if name != "good.yml" else command == "run")
    for line in (finished.stdout + finished.stderr).splitlines():
        assert "\x1b" not in line
        assert "\x07" not in line
        assert not line.lstrip().startswith("::error")


@pytest.mark.parametrize("format", ["terminal", "markdown", "html", "json"])
def test_a_report_is_rendered_in_every_format(tmp_path: Path, format: str) -> None:
    write_text(tmp_path / "report.json", to_json(report()))
    finished = gate("report", "report.json", "--format", format, cwd=tmp_path)
    assert finished.returncode == 0
    assert "tiny_bert" in finished.stdout.replace("&#95;", "_")
    written = gate("report", "report.json", "-f", format, "-o", "out", cwd=tmp_path)
    assert written.returncode == 0
    assert (tmp_path / "out").read_text() == finished.stdout


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    write_text(tmp_path / "report.json", to_json(report()))
    finished = gate("report", "report.json", "--format", "pdf", cwd=tmp_path)
    assert finished.returncode == 2
    assert "markdown" in finished.stderr


def test_version_and_schemas(tmp_path: Path) -> None:
    assert gate("--version", cwd=tmp_path).stdout.startswith("onnx-gate ")
    for kind in ("manifest", "report"):
        assert '"$schema"' in gate("schema", kind, cwd=tmp_path).stdout
