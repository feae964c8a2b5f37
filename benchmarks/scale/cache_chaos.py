"""A hundred processes share one cache, and are killed at random: is any verdict ever wrong?

Real runs of ``onnx-gate run --cache`` on a repository whose one weight decides about the verdict: each
process first writes a weight of its own choosing into its own copy of the repository. With an even
number the model agrees with its committed ONNX file, with an odd one it does not. All of them use the
same cache, some are killed (SIGKILL to all of their processes), and every report of one that was not is
compared with what its own files demand. Between them, readers and writers of the store itself run,
and are killed, too; each checks every entry that it reads.

    python benchmarks/scale/cache_chaos.py --processes 100
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import results
from benchmarks.support.gate import ROOT, read_report

MODEL = """
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent


class Scaled(nn.Module):
    def forward(self, x):
        return x * float((HERE / "weight.txt").read_text())
"""
MANIFEST = """
version: 1
suites: {one: {random: normal, count: 1}}
models:
  scaled: {model: "model.py:Scaled", onnx: model.onnx, inputs: {x: "float32[2, 3]"}, suites: [one]}
  other: {model: "model.py:Scaled", inputs: {x: "float32[2, 3]"}, suites: [one]}
"""
STORE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.support.store_writer import writer
writer(sys.argv[2], int(sys.argv[3]))
"""
WEIGHTS = (2.0, 3.0)


@dataclass
class Process:
    """One run; ``weight`` is what its copy of the repository holds."""

    number: int
    handle: subprocess.Popen[bytes]
    folder: Path
    weight: float
    ends: float

    def kill(self) -> None:
        """Kill it and all that it started."""
        os.killpg(self.handle.pid, signal.SIGKILL)
        self.handle.wait()


def prepare(folder: Path) -> None:
    """Write the repository with the committed file, which doubles."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "onnx-gate.yml").write_text(MANIFEST)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy")
    two = numpy_helper.from_array(np.asarray(2, np.float32), "two")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "g", [x], [y], [two])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    save(model, str(folder / "model.onnx"))


def start(number: int, top: Path, dice: random.Random) -> Process:
    """Start a run with a weight of its own choosing; some of them are to be killed."""
    weight = dice.choice(WEIGHTS)
    folder = top / f"copy{number}"
    shutil.copytree(top / "repository", folder)
    (folder / "weight.txt").write_text(str(weight))
    command = [
        sys.executable,
        "-m",
        "onnx_gate",
        "run",
        "--jobs",
        "1",
        "--cache",
        str(top / "cache"),
    ]
    handle = subprocess.Popen(
        command,
        cwd=folder,
        stdout=open(folder / "log", "wb"),  # noqa: SIM115
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    killed = dice.random() < 0.4
    return Process(
        number, handle, folder, weight, time.monotonic() + dice.uniform(0.1, 12) if killed else 1e18
    )


def check(process: Process) -> str | None:
    """Return what is wrong with a finished run; ``None`` where its verdicts are right."""
    log = (process.folder / "log").read_text(errors="replace")
    if process.handle.returncode not in (0, 1) or "Traceback" in log:
        return f"ended with {process.handle.returncode}: {log[-2000:]}"
    report = read_report(process.folder / "onnx-gate-report" / "report.json")
    verdicts = {model["name"]: model["verdict"] for model in report["models"]}
    expected = {"scaled": "pass" if process.weight == 2.0 else "diverged", "other": "pass"}
    return None if verdicts == expected else f"weight {process.weight}: {verdicts}"


def main() -> None:
    """Run, kill and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    results.add_option(parser)
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    counts = {"finished": 0, "from the cache": 0, "killed": 0, "store writers killed": 0}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        prepare(top / "repository")
        running: list[Process] = []
        writers: list[subprocess.Popen[bytes]] = []
        for number in range(arguments.processes):
            running.append(start(number, top, dice))
            if number % 4 == 0:
                writers.append(
                    subprocess.Popen(
                        [sys.executable, "-c", STORE, str(ROOT), str(top / "cache"), str(number)]
                    )
                )
            while len(running) >= arguments.at_once or (
                running and number + 1 == arguments.processes
            ):
                time.sleep(0.05)
                for process in list(running):
                    if process.handle.poll() is not None:
                        running.remove(process)
                        problem = check(process)
                        counts["finished"] += 1
                        if problem is None:
                            report = read_report(process.folder / "onnx-gate-report/report.json")
                            counts["from the cache"] += any(m["cached"] for m in report["models"])
                        else:
                            wrong.append(f"{process.number}: {problem}")
                    elif time.monotonic() > process.ends:
                        process.kill()
                        running.remove(process)
                        counts["killed"] += 1
                while len(writers) > 3:
                    victim = writers.pop(dice.randrange(len(writers)))
                    if victim.poll() is not None:
                        wrong.append(f"a writer of the store ended with {victim.returncode}")
                    victim.kill()
                    victim.wait()
                    counts["store writers killed"] += 1
        for victim in writers:
            if victim.poll() is not None:
                wrong.append(f"a writer of the store ended with {victim.returncode}")
            victim.kill()
            victim.wait()
            counts["store writers killed"] += 1
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    print(f"{len(wrong)} wrong verdicts or crashes")
    for problem in wrong:
        print(problem)
    if arguments.save:
        results.save(__file__, "chaos", [{**counts, "wrong": len(wrong)}])
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
