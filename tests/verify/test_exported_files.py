"""Exported files are gone when the gate is, however their models ended, unless they are kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODELS = """
import os, pathlib, signal, time
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1

def _write(path):
    path.write_bytes(bytes(1 << 20))

def exits(module, example, path):
    _write(path)
    os._exit(3)

def killed(module, example, path):
    _write(path)
    os.kill(os.getpid(), signal.SIGKILL)

def hangs(module, example, path):
    _write(path)
    path.with_name("begun").touch()
    time.sleep(600)

def raises(module, example, path):
    _write(path)
    raise RuntimeError("no")
"""

ENTRY = """
  {name}:
    model: models.py:Net
    inputs: {{x: "float32[2]"}}
    export: {{exporter: "models.py:{name}"}}
    timeout: {timeout}s
"""


def _project(folder: Path, timeout: int, *names: str) -> list[str]:
    (folder / "models.py").write_text(MODELS)
    entries = "".join(ENTRY.format(name=name, timeout=timeout) for name in names)
    (folder / "onnx-gate.yml").write_text("version: 1\nmodels:" + entries)
    command = [sys.executable, "-m", "onnx_gate", "run", "--manifest", "onnx-gate.yml"]
    return [*command, "--output", "out"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_after_every_end_of_a_worker(tmp_path: Path) -> None:
    ends = {"exits": "crashed", "killed": "crashed", "hangs": "timeout", "raises": "export"}
    command = _project(tmp_path, 20, *ends)
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=280, check=False)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {m["name"]: m["error"]["kind"] for m in report["models"]} == ends
    assert not (tmp_path / "out" / "models").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("keep", "how"), [(False, signal.SIGINT), (True, signal.SIGINT), (False, signal.SIGTERM)]
)
def test_after_an_interrupt(tmp_path: Path, keep: bool, how: signal.Signals) -> None:
    # What a shell runs in the background ignores SIGINT, and so may whoever runs this test.
    handling = signal.SIG_IGN if how == signal.SIGTERM else signal.SIG_DFL
    command = _project(tmp_path, 250, "hangs") + ["--keep-models"] * keep
    folder = tmp_path / "out" / "models" / "hangs"
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handling),
    ) as gate:
        deadline = time.monotonic() + 200
        while not (folder / "begun").exists() and time.monotonic() < deadline:
            assert gate.poll() is None
            time.sleep(0.05)
        assert (folder / "model.onnx").stat().st_size == 1 << 20
        os.kill(gate.pid, how)
        gate.wait(60)
    assert gate.returncode == 130
    assert folder.exists() == keep
