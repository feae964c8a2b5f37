"""Whether wheels of ONNX Runtime load the files that the gate's table says they do.

    python benchmarks/compat/loads.py WHEELS FILE_OR_FOLDER... [--nodes] [--save]

WHEELS/VERSION is an installed wheel each (``pip install --no-deps --target``), beside WHEELS/numpy1 and
WHEELS/numpy2. Every file is opened in every version, in a process of that version alone, and held against
what the table says. With ``--nodes`` the tests of single operators that the onnx package has are files too,
at the opset that they are written for. A cell that is wrong is listed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.support import results  # noqa: E402
from onnx_gate.verify.inspect.loads import _releases, lacking  # noqa: E402

OPEN = r"""
import json, sys
import onnxruntime as ort
for path in sys.stdin.read().split("\n"):
    try:
        ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        print(json.dumps([path, ""]), flush=True)
    except Exception as error:
        print(json.dumps([path, str(error)[-300:]]), flush=True)
"""


def opened(wheels: Path, version: str, files: list[Path]) -> dict[str, str]:
    """Return for each file why a version refuses it, empty where it loads."""
    numpy = "numpy1" if tuple(map(int, version.split(".")[:2])) < (1, 19) else "numpy2"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (wheels / version, wheels / numpy))),
        "ORT_LOG_SEVERITY_LEVEL": "4",
    }
    said: dict[str, str] = {}
    left = [str(file) for file in files]
    while left:
        done = subprocess.run(
            [sys.executable, "-S", "-c", OPEN],
            input="\n".join(left),
            env=environment,
            capture_output=True,
            text=True,
        )
        said |= dict(json.loads(line) for line in done.stdout.splitlines() if line[:1] == "[")
        rest = [path for path in left if path not in said]
        if rest:  # it has taken the process down
            said[rest.pop(0)] = f"ended with status {done.returncode}"
        left = rest
    return said


def node_files(folder: Path) -> list[Path]:
    """Write the tests of single operators that the onnx package has."""
    from onnx.backend.test.loader import load_model_tests

    files = []
    for case in load_model_tests(kind="node"):
        source = Path(case.model_dir) / "model.onnx" if case.model_dir else None
        model = onnx.load(str(source)) if source and source.exists() else case.model
        # That operator asks the machine for a locale when it is loaded.
        if model is not None and not case.name.startswith("test_strnorm"):
            path = folder / f"{case.name}.onnx"
            onnx.save(model, str(path))
            files.append(path)
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--nodes", action="store_true", help="single operators too")
    results.add_option(parser)
    options = parser.parse_args()
    files = [f for p in options.files for f in (sorted(p.rglob("*.onnx")) if p.is_dir() else [p])]
    with tempfile.TemporaryDirectory() as folder:
        files += node_files(Path(folder)) if options.nodes else []
        lacks = {str(f): lacking(onnx.load(str(f), load_external_data=False)) for f in files}
        rows: list[dict[str, Any]] = []
        versions = {p.name.rsplit(".", 1)[0]: p.name for p in options.wheels.glob("[0-9]*")}
        for index, (release, _, _) in enumerate(_releases()):
            version = versions.get(".".join(map(str, release)))
            if version is None:
                continue
            said = opened(options.wheels, version, files)
            wrong = [
                {"file": Path(path).stem, "table": lack.what if lack else "loads", "it": why}
                for path, why in said.items()
                if ((lack := lacks[path][index]) is None) != (why == "")
            ]
            row = {
                "name": version,
                "files": len(said),
                "load": sum(why == "" for why in said.values()),
                "wrong": len(wrong),
            }
            print(row)
            for each in wrong:
                print("   ", each)
            rows.append({**row, "cells": wrong})
    if options.save:
        results.save(__file__, "nodes" if options.nodes else "files", rows)


if __name__ == "__main__":
    main()
