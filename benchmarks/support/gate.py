"""Run onnx-gate as a user does and read its report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from onnx_gate.report.io import parse_report

ROOT = Path(__file__).resolve().parents[2]
NETWORKS_FILE = Path(__file__).resolve().parent / "networks.py"


def run_gate(manifest: Path, output: Path, *arguments: str, command: str = "run") -> dict[str, Any]:
    """The report of ``onnx-gate run`` (or ``audit``) on ``manifest``; its words go to the terminal.

    Raises ``SystemExit`` where the gate wrote no report.
    """
    words = [sys.executable, "-m", "onnx_gate", command]
    words += ["--manifest", str(manifest.resolve()), "--output", str(output.resolve())]
    subprocess.run([*words, *arguments], cwd=ROOT, check=False)
    path = output / "report.json"
    if not path.exists():
        raise SystemExit(f"the gate wrote no {path}")
    return read_report(path)


def read_report(path: Path) -> dict[str, Any]:
    """A report as plain data, whole; ``number`` reads its floats."""
    # The file leaves out what has its default.
    return parse_report(path.read_bytes(), str(path)).model_dump(mode="json")


def number(value: object) -> float | None:
    """A float of a report, where infinities and NaN are written as strings."""
    return None if value is None else float(value)  # type: ignore[arg-type]
