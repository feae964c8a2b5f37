"""Write which files packages load that do not say it themselves: measured, in every version.

    python -m tools.loads_elsewhere FOLDER

``FOLDER/onnxruntime-web/VERSION`` is installed with ``npm install --prefix``, ``FOLDER/openvino/VERSION``
and ``FOLDER/opencv/VERSION`` with ``pip install --no-deps --target``, beside ``numpy1`` and ``numpy2``.
Every version opens the tests of single operators that the onnx package has.

ONNX Runtime Web has ONNX Runtime's own kernels, of the version of its name, and lacks types that have
no array in JavaScript for the ends of a graph: these are measured. Of the others the operators are
written down of which every test is refused because there is no such operator.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

from tools.packages import node_files, opened, versions

TARGET = Path(__file__).parents[1] / "onnx_gate" / "verify" / "inspect" / "loads_elsewhere.json"
# How each says that it does not have an operator at all, and not that it has no such form of it.
_NO_OPERATOR = {
    "openvino": re.compile(
        r"No conversion rule found|does not support the following ONNX operations"
    ),
    "opencv": re.compile(r"Can't create layer"),
}
_NO_ARRAY = re.compile(r"unsupported data type: (\d+)")


def ends(said: dict[str, str]) -> list[int]:
    """Return the element types that a graph's inputs and outputs may not have."""
    return sorted({int(found[1]) for text in said.values() if (found := _NO_ARRAY.search(text))})


def lacks(package: str, said: dict[str, str]) -> list[str]:
    """Return the operators that a test has alone and of which every test is refused for the operator."""
    known: dict[str, bool] = {}
    for path, text in said.items():
        nodes = onnx.load(path).graph.node
        if len(nodes) == 1:
            name = f"{nodes[0].domain}:{nodes[0].op_type}" if nodes[0].domain else nodes[0].op_type
            known[name] = known.get(name, True) and bool(_NO_OPERATOR[package].search(text))
    return sorted(name for name in known if known[name])


def main() -> None:
    """Open every file in every version and write the table."""
    folder = Path(sys.argv[1])
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        files = node_files(Path(temporary))
        for package in ("onnxruntime-web", "openvino", "opencv"):
            rows = []
            for version in versions(folder / package):
                said = opened(package, folder / package, version, files)
                print(package, version, sum(not text for text in said.values()), "of", len(said))
                row: dict[str, Any] = {"version": version}
                if package == "onnxruntime-web":
                    row["ends"] = ends(said)
                else:
                    row["lacks"] = " ".join(lacks(package, said))
                rows.append(row)
            made[package] = rows
    lines = (
        f"{json.dumps(package)}:[\n" + ",\n".join(map(json.dumps, rows)) + "\n]"
        for package, rows in made.items()
    )
    TARGET.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
