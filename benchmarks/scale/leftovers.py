"""What runs leave behind that open a browser, every fifth of them interrupted on the way.

    python benchmarks/scale/leftovers.py [--runs 50] [--save]

Needs what docs/how-to/browser.md says. A file of one node is held against a copy of it in ONNX
Runtime and in ONNX Runtime Web. Of the interrupted runs, half get SIGINT and half SIGKILL, each after
another share of what a run takes. What a run started and is there ten seconds after it counts as left
behind: a process, a port that one listens on, a folder among the temporary ones.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import psutil
from onnx import TensorProto, helper

from benchmarks.support import results

EVERY = 5
PATIENCE = 10.0
MANIFEST = """
version: 1
suites: {one: {random: normal, count: 1}}
models:
  product:
    reference: product.onnx
    onnx: again.onnx
    inputs: {x: "float32[2, 2]"}
    suites: [one]
    runtimes: [onnxruntime, {name: web, provider: wasm}]
"""


def main() -> None:
    # Ignored in the background of a shell, and so by every process started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50)
    results.add_option(parser)
    arguments = parser.parse_args()
    # A name that is short enough for a browser's sockets in it.
    with (
        tempfile.TemporaryDirectory() as name,
        tempfile.TemporaryDirectory(dir="/tmp", prefix="og-") as temporary,
    ):
        folder = Path(name)
        write_project(folder)
        counts = repeat(folder, temporary, arguments.runs)
    rows = [{"name": name, "count": counts[name]} for name in sorted(counts)]
    for row in rows:
        print(f"{row['name']}: {row['count']}")
    if arguments.save:
        results.save(__file__, "leftovers", rows)


def write_project(folder: Path) -> None:
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in "xy")
    model = helper.make_model(
        helper.make_graph([node], "product", [x], [y]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    for name in ("product.onnx", "again.onnx"):
        onnx.save(model, folder / name)
    (folder / "onnx-gate.yml").write_text(MANIFEST)


def repeat(folder: Path, temporary: str, runs: int) -> Counter[str]:
    counts: Counter[str] = Counter(
        {f"{what} left": 0 for what in ("processes", "ports", "folders")}
    )
    usual = 5.0
    for number in range(runs):
        interrupted, others = divmod(number, EVERY)
        begin = time.monotonic()
        run = subprocess.Popen(
            [
                *(sys.executable, "-m", "onnx_gate", "run", "--no-cache"),
                *("--manifest", str(folder / "onnx-gate.yml")),
                *("--output", str(folder / "report")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": temporary},
        )
        if others == EVERY - 1:
            time.sleep(usual * (interrupted % 10 + 1) / 11)
            run.send_signal(signal.SIGKILL if interrupted % 2 else signal.SIGINT)
        status = run.wait()
        if others != EVERY - 1:
            usual = time.monotonic() - begin
        counts[f"runs that ended with {status}"] += 1
        for what, names in wait_for(lambda: left(temporary)).items():
            counts[f"{what} left"] += len(names)
    return counts


def left(temporary: str) -> dict[str, set[str]]:
    """What is there of runs whose temporary files go to ``temporary``, by kind."""
    shown = {"processes": set[str](), "ports": set[str]()}
    for process in psutil.process_iter():
        try:
            if not process.environ().get("TMPDIR", "").startswith(temporary):
                continue
            shown["processes"].add(f"{process.pid} {process.name()}")
            shown["ports"] |= {str(each.laddr) for each in process.net_connections()}
        except psutil.Error:
            continue
    return {**shown, "folders": {path.name for path in Path(temporary).glob("onnx-gate-*")}}


def wait_for(look: Callable[[], dict[str, set[str]]]) -> dict[str, set[str]]:
    """Return what ``look`` still shows after a while, or that it shows nothing any more."""
    end = time.monotonic() + PATIENCE
    while any((shown := look()).values()) and time.monotonic() < end:
        time.sleep(0.1)
    return shown


if __name__ == "__main__":
    main()
