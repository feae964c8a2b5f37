"""What a model of 1 GB takes at its peak in the gate, beside the bare sequence.

    python benchmarks/cost/memory.py                    # weights of 1 GB, three rounds
    python benchmarks/cost/memory.py --layers 64        # 4 GB

*Bare* is a fresh interpreter: import, build, export with external data, a session from the file, two
forward passes of each side. Its peak is the sum of the proportional set size (PSS, pages that
several processes share are divided among them) of its process, sampled every 20 ms; the high-water
mark of its resident set (VmHWM) stands beside it. The *gate*'s is the same sum over the worker and
everything that it has forked, again beside the VmHWM of the worker. What the fork server and the
command line hold is in neither, and is printed; a bare script has the same imports in its own.

*Bare, of a few weights* is the same of a model of 4 kB: what is not the weights.
*With audit* is ``onnx-gate audit`` of the same model and suites, at most 1.5 times the gate's own.

At the end: the memory that comparing an output of 10^8 elements adds (``compare.py`` has the rest).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support import results
from benchmarks.support.gate import NETWORKS_FILE, read_report

MEBIBYTE = 2**20
TARGET = 1.35
AUDIT_TARGET = 1.5
FAULTS = 20
EMPTY = "bare, of a few weights"

MANIFEST = """\
version: 1
dims: {{batch: [1, 2]}}
suites:
  sizes: {{random: normal, count: 1}}
models:
  wide:
    model: networks.py:Wide
    args: [{layers}]
    inputs:
      x: float32[batch, 4096]
{suites}"""

BARE = """\
import sys
import numpy as np
import torch
import onnxruntime
from networks import Wide

path, layers, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = Wide(layers, width).eval()
with torch.no_grad():
    torch.onnx.export(
        model, (torch.randn(3, width),), dynamo=True, verbose=False,
        dynamic_shapes=({0: "batch"},),
    ).save(path, external_data=True)
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
for size in (1, 2):
    x = np.random.default_rng(0).standard_normal((size, width), dtype=np.float32)
    with torch.no_grad():
        model(torch.from_numpy(x))
    session.run(None, {"x": x})
"""


@dataclass
class Peak:
    """Mebibytes: the sum of PSS, the largest VmHWM, and what stands beside (not counted)."""

    pss: float = 0.0
    hwm: float = 0.0
    beside: float = 0.0
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=16, help="of 64 MiB each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--elements", type=float, default=1e8)
    results.add_option(parser)
    arguments = parser.parse_args()
    names = (EMPTY, "bare", "gate", "gate, with advice", "gate, with audit")
    rows: dict[str, list[Peak]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "networks.py").write_text(NETWORKS_FILE.read_text())
        (folder / "bare.py").write_text(BARE)
        for file, suites in (("sizes.yml", "    suites: [sizes]\n"), ("default.yml", "")):
            (folder / file).write_text(MANIFEST.format(layers=arguments.layers, suites=suites))
        gate = [sys.executable, "-m", "onnx_gate", "run", "--output", "out", "--manifest"]
        audit = [*gate[:3], "audit", "--no-cache", "--sample", str(FAULTS), *gate[4:]]
        for _ in range(arguments.rounds):
            bare = [sys.executable, "bare.py", "bare.onnx", str(arguments.layers)]
            rows[EMPTY].append(watch([*bare, "8"], folder, depth=0))
            rows["bare"].append(watch([*bare, "4096"], folder, depth=0))
            rows["gate"].append(watch([*gate, "sizes.yml"], folder, depth=2))
            rows["gate, with advice"].append(watch([*gate, "default.yml"], folder, depth=2))
            advised = sum(check["advice"] for check in passed(folder)["checks"])
            rows["gate, with audit"].append(watch([*audit, "default.yml"], folder, depth=2))
            tried = passed(folder)["audit"]["mutants"]
            if len(tried) < FAULTS:
                raise SystemExit(f"{len(tried)} faults were tried, not {FAULTS}")
        left = [path.name for path in (folder / "out").iterdir()]
    weights = arguments.layers * 64
    print(f"weights of {weights} MiB, medians of {arguments.rounds} rounds, MiB")
    print(
        f"{'':18s} {'PSS':>6s} {'/ bare':>7s} {'VmHWM':>6s} {'/ bare':>7s} {'beside':>7s} {'s':>6s}"
    )
    base = Peak(*(median(getattr(p, f) for p in rows["bare"]) for f in ("pss", "hwm")))
    kept = []
    for row, peaks in rows.items():
        pss, hwm = median(p.pss for p in peaks), median(p.hwm for p in peaks)
        print(
            f"{row:18s} {pss:6.0f} {pss / base.pss:7.2f} {hwm:6.0f} {hwm / base.hwm:7.2f}"
            f" {median(p.beside for p in peaks):7.0f} {median(p.seconds for p in peaks):6.1f}"
        )
        kept.append(
            {
                "what": row,
                "weights": weights,
                "PSS": pss,
                "PSS / bare": pss / base.pss,
                "VmHWM": hwm,
            }
        )
        kept[-1] |= {"VmHWM / bare": hwm / base.hwm, "beside": median(p.beside for p in peaks)}
    if arguments.save:
        results.save(__file__, "memory", kept)
    print(f"target: PSS at most {TARGET} times bare, with audit {AUDIT_TARGET} times with advice")
    print(f"advisory checks of the last run: {advised}; left in its folder: {', '.join(left)}")
    compared(int(arguments.elements))


def passed(folder: Path) -> dict[str, Any]:
    """Return the model of the last report, which has to have passed."""
    report = read_report(folder / "out" / "report.json")
    model: dict[str, Any] = report["models"][0]
    if model["verdict"] != "pass":
        raise SystemExit(json.dumps(model["error"] or model["checks"], indent=1)[:2000])
    return model


def watch(command: list[str], folder: Path, depth: int) -> Peak:
    """Run ``command``; the peak of its descendants ``depth`` generations down and below."""
    peak, ended = Peak(), threading.Event()
    begin = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        watcher = threading.Thread(target=_sample, args=(process.pid, depth, peak, ended))
        watcher.start()
        assert process.stdout is not None
        output = process.stdout.read()
        process.wait()
    ended.set()
    watcher.join()
    peak.seconds = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(output.decode(errors="replace"))
    return peak


def _sample(pid: int, depth: int, peak: Peak, ended: threading.Event) -> None:
    while not ended.wait(0.02):
        try:
            above, family = [], [psutil.Process(pid)]
            for _ in range(depth):
                above += family
                family = [child for parent in family for child in parent.children()]
            family += [child for parent in family for child in parent.children(recursive=True)]
        except psutil.Error:
            continue
        peak.pss = max(
            peak.pss, sum(_kibibytes(p.pid, "smaps_rollup", "Pss") for p in family) / 1024
        )
        peak.hwm = max([peak.hwm, *(_kibibytes(p.pid, "status", "VmHWM") / 1024 for p in family)])
        beside = sum(_kibibytes(p.pid, "smaps_rollup", "Pss") for p in above) / 1024
        peak.beside = max(peak.beside, beside)


def _kibibytes(pid: int, file: str, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{field}:\s+(\d+) kB", text, re.M)
    return int(found[1]) if found else 0


def compared(elements: int) -> None:
    """Print what comparing one large output adds to the resident set."""
    import numpy as np

    from onnx_gate.numerics.compare import compare, scaled_error

    rng = np.random.default_rng(0)
    expected = rng.standard_normal(elements, dtype=np.float32)
    actual = expected + np.float32(1e-7)
    process, most, ended = psutil.Process(), [0], threading.Event()
    compare(actual[:1000], expected[:1000], threads=2)
    before = process.memory_info().rss

    def sample() -> None:
        while not ended.wait(0.001):
            most[0] = max(most[0], process.memory_info().rss)

    watcher = threading.Thread(target=sample)
    watcher.start()
    compare(actual, expected, threads=2)
    scaled_error(actual, expected, 1.0, 2)
    ended.set()
    watcher.join()
    print(
        f"comparing {elements:.0e} elements of float32 (2 x {4 * elements / MEBIBYTE:.0f} MiB): "
        f"{(most[0] - before) / MEBIBYTE:.1f} MiB more (target: under 64)"
    )


def median(values: object) -> float:
    return statistics.median(values)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
