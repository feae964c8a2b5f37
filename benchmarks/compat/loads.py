"""Whether versions of a package load the files that the gate's table says they do.

    python benchmarks/compat/loads.py VERSIONS FILE_OR_FOLDER... [--package NAME] [--nodes] [--save]

VERSIONS/VERSION is an installed wheel each (``pip install --no-deps --target``), beside VERSIONS/numpy1 and
VERSIONS/numpy2; of onnxruntime-web it is what ``npm install --prefix`` makes. Every file is opened in every
version, in a process of that version alone, and held against what the table says. With ``--nodes`` the
tests of single operators that the onnx package has are files too, at the opset that they are written for.
A cell that is wrong is listed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.support import results  # noqa: E402
from onnx_gate.manifest.values.targets import TARGETS  # noqa: E402
from onnx_gate.verify.inspect.loads import lacking, releases  # noqa: E402
from tools.packages import node_files, number, opened, versions  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--package", default="onnxruntime", choices=TARGETS)
    parser.add_argument("--nodes", action="store_true", help="single operators too")
    results.add_option(parser)
    options = parser.parse_args()
    files = [f for p in options.files for f in (sorted(p.rglob("*.onnx")) if p.is_dir() else [p])]
    with tempfile.TemporaryDirectory() as folder:
        files += node_files(Path(folder)) if options.nodes else []
        lacks = {
            str(f): lacking(onnx.load(str(f), load_external_data=False), options.package)
            for f in files
        }
        rows: list[dict[str, Any]] = []
        there = {number(name)[:2]: name for name in versions(options.wheels)}
        for index, release in enumerate(releases(options.package)):
            version = there.get(release)
            if version is None:
                continue
            said = opened(options.package, options.wheels, version, files)
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
        name = "nodes" if options.nodes else "files"
        if options.package != "onnxruntime":
            name = f"{options.package} {name}"
        results.save(__file__, name, rows)


if __name__ == "__main__":
    main()
