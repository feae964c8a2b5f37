"""Write which files each version of ONNX Runtime loads, out of what its wheels say of themselves.

    python -m tools.loads FOLDER        # FOLDER/VERSION is an installed wheel, FOLDER/numpy1 and /numpy2

Each wheel is asked in a process of its own for its kernels, and for the newest IR and operator sets,
which it names where it refuses a file of a later one. Kernels that versions share are written once,
with the first and the last version that has them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "onnx_gate" / "verify" / "inspect" / "loads.json"

# Runs in the wheel's own process, where there is nothing but NumPy beside it.
ASK = r'''
import json, re, sys
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

def said(data):
    try:
        ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception as error:
        return str(error)
    return ""

def field(number, value):
    """One field of a message of protobuf: a number, or bytes."""
    def varint(n):
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value

graph = field(7, field(2, b"g"))
opset = lambda domain, version: field(8, (field(1, domain.encode()) if domain else b"") + field(2, version))
ir = int(re.search(r"max supported IR version: (\d+)", said(field(1, 900) + graph + opset("", 9))).group(1))
opsets = {}
for domain in ("", "ai.onnx.ml"):
    words = said(field(1, 7) + graph + opset("", 9) * bool(domain) + opset(domain, 900))
    opsets[domain] = int(re.search(r"is till opset (\d+)", words).group(1))
kernels = [
    [k.domain, k.op_name, *k.version_range, {n: sorted(t) for n, t in k.type_constraints.items()}]
    for k in state.get_all_opkernel_def()
    if k.provider == "CPUExecutionProvider" and k.domain in ("", "ai.onnx.ml", "com.microsoft")
]
print(json.dumps({"version": ort.__version__, "ir": ir, "opsets": opsets, "kernels": kernels}))
'''


def ask(folder: Path, version: str) -> dict[str, Any]:
    """Return what one wheel says."""
    numpy = "numpy1" if tuple(map(int, version.split(".")[:2])) < (1, 19) else "numpy2"
    path = os.pathsep.join(map(str, (folder / version, folder / numpy)))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-S", "-c", ASK], env=environment, capture_output=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def table(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all versions, and of each kernel the indices of the first and the last that has it."""
    kernels: dict[str, dict[str, list[Any]]] = {}
    for index, answer in enumerate(answers):
        for domain, name, first, last, types in answer["kernels"]:
            row = [first, last if last < 2**30 else 0, _short(types)]
            known = kernels.setdefault(f"{domain}:{name}" if domain else name, {})
            known.setdefault(json.dumps(row), []).append(index)
    return {
        "versions": [
            {"version": a["version"], "ir": a["ir"], "opsets": a["opsets"]} for a in answers
        ],
        "kernels": {
            name: [
                [*json.loads(row), *run] for row, had in sorted(rows.items()) for run in _runs(had)
            ]
            for name, rows in sorted(kernels.items())
        },
    }


def _short(types: dict[str, list[str]]) -> dict[str, str]:
    return {
        name: " ".join(each.removeprefix("tensor(").removesuffix(")") for each in listed)
        for name, listed in sorted(types.items())
    }


def _runs(had: list[int]) -> list[list[int]]:
    """Return the first and the last of each run of releases: a kernel may go and come again."""
    runs: list[list[int]] = []
    for index in sorted(set(had)):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return runs


def main() -> None:
    """Ask every wheel of a folder and write the table."""
    folder = Path(sys.argv[1])
    versions = [each.name for each in folder.iterdir() if each.name[0].isdigit()]
    versions.sort(key=lambda each: tuple(map(int, each.split("."))))
    made = table([ask(folder, version) for version in versions])
    rows = ",\n".join(
        f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}"
        for k, v in made["kernels"].items()
    )
    TARGET.write_text(f'{{"versions":{json.dumps(made["versions"])},\n"kernels":{{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main()
