"""What the candidate ``half`` costs: runs of models in half precision with it and without, in turn.

    python benchmarks/cost/half.py [--rounds 3] [--only bert] [--save]

Processor time is that of all processes of a run, memory the largest resident set of one of them. The
target is 1.3 times the run without.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support import results
from benchmarks.support.gate import NETWORKS_FILE, read_report

TARGET = 1.3
MODELS = {
    "resnet18": ("resnet", "image: 'float16[batch, 3, 224, 224]'", "batch: [1, 2]"),
    "bert": ("bert", "tokens: {dtype: int64, shape: [1, seq], range: [0, 30521]}", "seq: [16, 64]"),
}
BUILD = """
def resnet():
    return ResNet18().half()

def bert():
    return Bert().half()
"""
MANIFEST = """\
version: 1
dims: {{{dims}}}
models:
  {name}:
    model: half.py:{build}
    inputs: {{{inputs}}}
    runtimes: {runtimes}
"""
RUNTIMES = {
    "with": "[onnxruntime, half]",
    "without": "[onnxruntime, {name: half, options: {off: true}}]",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    results.add_option(parser)
    options = parser.parse_args()
    rows = []
    for name in options.only or MODELS:
        rounds = [{way: measure(name, way) for way in RUNTIMES} for _ in range(options.rounds)]
        row: dict[str, object] = {"model": name, "rounds": options.rounds}
        for kind in ("wall", "cpu", "mib"):
            row[kind] = statistics.median(r["without"][kind] for r in rounds)
            row[f"{kind}, ratio"] = statistics.median(
                r["with"][kind] / r["without"][kind] for r in rounds
            )
        rows.append(row)
        print(row, flush=True)
    print(f"target: {TARGET} times the processor time")
    if options.save:
        results.save(__file__, "half", rows)


def measure(name: str, way: str) -> dict[str, float]:
    """Run the gate on a model; seconds on the clock and of processors, and the largest process."""
    build, inputs, dims = MODELS[name]
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top)
        (folder / "half.py").write_text(NETWORKS_FILE.read_text() + BUILD)
        (folder / "onnx-gate.yml").write_text(
            MANIFEST.format(
                name=name, build=build, inputs=inputs, dims=dims, runtimes=RUNTIMES[way]
            )
        )
        words = [sys.executable, "-m", "onnx_gate", "run", "--no-cache", "--quiet"]
        begin = time.perf_counter()
        process = subprocess.Popen([*words, "--output", "report"], cwd=folder)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        report = read_report(folder / "report" / "report.json")
    if status:
        raise SystemExit(f"{name}, {way}: {report['verdict']}")
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "mib": used.ru_maxrss / 1024}


if __name__ == "__main__":
    main()
