"""Run onnx-gate as a user does and read its report."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def run_gate(manifest: Path, output: Path, *arguments: str) -> dict[str, Any]:
    """The report of ``onnx-gate run`` on ``manifest``; its words go to the terminal.

    Raises ``SystemExit`` where the gate wrote no report.
    """
    command = [sys.executable, "-m", "onnx_gate", "run"]
    command += ["--manifest", str(manifest.resolve()), "--output", str(output.resolve())]
    subprocess.run([*command, *arguments], cwd=ROOT, check=False)
    path = output / "report.json"
    if not path.exists():
        raise SystemExit(f"the gate wrote no {path}")
    return read_report(path)


def read_report(path: Path) -> dict[str, Any]:
    """A report as plain data; ``number`` reads its floats."""
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def number(value: object) -> float | None:
    """A float of a report, where infinities and NaN are written as strings."""
    return None if value is None else float(value)  # type: ignore[arg-type]


def environment(report: dict[str, Any] | None = None) -> dict[str, Any]:
    """The machine, the versions and the day of a measurement; a report's own where there is one."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in ("torch", "onnx", "onnxruntime", "onnxscript", "transformers", "timm", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "revision": revision.stdout.strip(),
        "cores": os.cpu_count(),
        "cpu": cpu_name(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": versions,
        "instruction_set": (report or {}).get("environment", {}).get("cpu", ""),
    }


def cpu_name() -> str:
    """What the processor is called."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def write_results(path: Path, rows: Sequence[Any], measured_on: dict[str, Any]) -> None:
    """Results as JSON, with what they were measured on."""
    text = json.dumps({"environment": measured_on, "rows": list(rows)}, indent=1, allow_nan=True)
    path.write_text(text + "\n")
    print(f"wrote {path}")
