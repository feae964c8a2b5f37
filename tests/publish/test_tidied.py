"""Whatever ends the gate, its output has nothing that an upload would follow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

# In a process of its own, as whatever it has started is ended with the gate.
RUN = """
import sys
from dataclasses import dataclass
from pathlib import Path

from onnx_gate.action import container, survivors
from onnx_gate.action.job import Job
from onnx_gate.report.model import Sandbox
from onnx_gate.workers.launch import Launch


@dataclass
class Folders:
    root: Path


folder, keep = Path(sys.argv[1]), sys.argv[2] == "keep"
job = Job(
    manifest=folder / "missing.yml",
    output=folder / "out",
    keep_models=keep,
    launch=Launch(),
    sandbox=Sandbox(level="off"),
)
survivors.adopt_orphans()
print(container._run_gate(job, {}, folder, Folders(folder))[0])
"""


@pytest.mark.parametrize(
    ("keep", "left"), [("keep", ["models", "models/net", "models/net/model.onnx"]), ("no", [])]
)
def test_the_output_is_tidied_when_the_gate_has_not_done_it(
    tmp_path: Path, keep: str, left: list[str]
) -> None:
    folder = tmp_path / "out" / "models" / "net"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_text("x")
    (tmp_path / "secret").write_text("secret")
    for link in (folder / "leak", tmp_path / "out" / "leak"):
        link.symlink_to(tmp_path / "secret")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), keep],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1:] == ["2"], done.stderr
    found = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*")}
    assert sorted(found - {"report.json"}) == left
    assert (tmp_path / "secret").read_text() == "secret"
