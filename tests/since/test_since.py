"""A lock with two other packages: the one that changed the export is named, in the report too."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.report.io import read_report
from onnx_gate.report.model.since import Package
from tests.support.gate import gate
from tests.support.wheels import layers_and_writers

pytestmark = [pytest.mark.slow, pytest.mark.process]

MANIFEST = """
version: 1
suites: {one: {random: normal, count: 1}}
defaults: {suites: [one]}
models: {net: {model: "nets.py:Net", inputs: {x: "float32[2, 6]"}, export: {exporter: "writer:export"}}}
"""
NETS = """
import torch
import layers

class Net(torch.nn.Module):
    def forward(self, x):
        return (x * layers.FACTOR).sigmoid()
"""
LOCK = """version = 4

[[package]]
name = "layers"
version = "{layers}"

[[package]]
name = "writer"
version = "{writer}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    (tmp_path / "nets.py").write_text(NETS)
    layers_and_writers(tmp_path / "wheels", ["layers>=1.0"])
    return tmp_path


def since(project: Path, base: str, head: str, *more: str) -> tuple[int, str]:
    done = gate(
        *("since", "--base", base, "--head", head, "--find-links", "wheels", "--no-index", *more),
        cwd=project,
        variables={"XDG_CACHE_HOME": str(project / "cache")},
    )
    return done.returncode, done.stdout + done.stderr


def test_each_package_is_named_with_what_it_changed(project: Path) -> None:
    (project / "uv.lock").write_text(LOCK.format(layers="1.0", writer="1.0"))
    (project / "head.txt").write_text("layers==2.0  # as asked\nwriter==2.0\n")
    status, said = since(project, "uv.lock", "head.txt")
    assert status == 1, said
    *_, what, much, where = said.splitlines()
    # The file follows the module, so that only who wrote it wrongly has changed the export.
    assert what == (
        "layers 1.0 to 2.0 changed PyTorch's answers of net; "
        "writer 1.0 to 2.0 changed the export of net; the engines answer as before"
    )
    assert much.startswith("by how much: net: pass to diverged, ×")
    assert where == "models: net (1 of 1)"
    report = read_report(project / "onnx-gate-report" / "report.json")
    assert report.verdict == "diverged"
    assert report.since is not None
    assert report.since.packages[0] == Package(name="layers", old="1.0", new="2.0")
    verdicts = {each.link: (each.before, each.verdict) for each in report.since.answers}
    assert verdicts == {
        "pytorch": ("pass", "diverged"),
        "export": ("pass", "diverged"),
        "engine": ("pass", "pass"),
    }


def test_what_there_was_no_time_for_is_not_asked_and_the_verdict_is_said(project: Path) -> None:
    (project / "base.txt").write_text("layers==1.0\nwriter==1.0\n")
    (project / "head.txt").write_text("layers==2.0\nwriter==2.0\n")
    status, said = since(project, "base.txt", "head.txt", "--minutes", "0")
    assert status == 1, said
    assert said.splitlines()[-1].endswith("; there was no time to ask more than in 1 run")
    report = read_report(project / "onnx-gate-report" / "report.json")
    assert report.verdict == "diverged"
    assert report.since is not None
    assert report.since.out_of_time
    assert not report.since.answers
    status, said = since(project, "base.txt", "head.txt", "--minutes", "soon")
    assert (status, said.count("Traceback")) == (2, 0), said


@pytest.mark.parametrize(
    ("base", "head", "says"),
    [
        (
            "gone.txt",
            "head.txt",
            "gone.txt: No such file or directory; name a file of requirements",
        ),
        ("empty.txt", "head.txt", "empty.txt names no release of any package"),
        ("base.txt", "head.txt", "layers==3.0"),
    ],
)
def test_files_that_come_to_nothing_are_refused(
    project: Path, base: str, head: str, says: str
) -> None:
    (project / "empty.txt").write_text("# nothing\n")
    (project / "base.txt").write_text("layers==1.0\nwriter==1.0\n")
    (project / "head.txt").write_text("layers==3.0\nwriter==1.0\n")
    status, said = since(project, base, head)
    assert (status, said.count("Traceback")) == (2, 0), said
    assert says in " ".join(said.split())
