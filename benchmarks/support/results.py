"""Results of a benchmark as JSON beside the script that made them, with what they were made on.

A file holds tables by name; each has its rows, the command that made them, and the machine, the
versions and the day. The tables of the documentation are written from these files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy", "transformers", "timm")


def add_option(parser: argparse.ArgumentParser) -> None:
    """Give a script ``--save``."""
    parser.add_argument(
        "--save", action="store_true", help="keep the results as JSON beside this script"
    )


def save(script: str, name: str, rows: Iterable[Mapping[str, object]], **facts: object) -> None:
    """Put a table of a script into the JSON beside it; its other tables stay.

    ``facts`` are what it knows better of where its rows were made.
    """
    write(Path(script).with_suffix(".json"), name, rows, **facts)


def merged(
    script: str, name: str, rows: Sequence[Mapping[str, Any]], order: Iterable[str] | None = None
) -> list[Mapping[str, Any]]:
    """Rows and those of a stored table that were not made anew, in the order of their names.

    Without an order as they are stored, the new ones last.

    A row of another revision than the table's says which.
    """
    path = Path(script).with_suffix(".json")
    stored = json.loads(path.read_text()) if path.exists() else {}
    table = stored.get(name, {"rows": [], "environment": {"revision": ""}})
    earlier = {"revision": table["environment"]["revision"]}
    every = {row["name"]: {**earlier, **row} for row in table["rows"]}
    every |= {row["name"]: dict(row) for row in rows}
    return [every[key] for key in (every if order is None else order) if key in every]


def write(path: Path, name: str, rows: Iterable[Mapping[str, object]], **facts: object) -> None:
    """Put a table into a file of results."""
    tables = json.loads(path.read_text()) if path.exists() else {}
    words = [relative(sys.argv[0]), *(word for word in sys.argv[1:] if word != "--save")]
    tables[name] = {
        "command": shlex.join(["python", *words]),
        "environment": {**environment(), **facts},
        "rows": [dict(row) for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tables, indent=1) + "\n")
    print(f"wrote {relative(path)}")


def relative(path: str | Path) -> str:
    """A path from the repository's root, where it is in it."""
    with contextlib.suppress(ValueError):
        return str(Path(path).resolve().relative_to(ROOT))
    return str(path)


def environment() -> dict[str, Any]:
    """The machine, the versions and the day."""
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "revision": revision.stdout.strip(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": versions,
    }


def cpu_name() -> str:
    """What the processor is called; its instruction set decides about rounding."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
