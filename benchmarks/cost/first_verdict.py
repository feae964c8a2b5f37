"""From nothing to a red verdict and its line: what somebody does who follows the README's first screen.

    python -m benchmarks.cost.first_verdict [--save]

Needs Python and git alone, so that it also runs in a bare container with the repository mounted:

    docker run --rm --network host -v "$PWD:/gate:ro" -w /gate python:3.11-slim-bookworm \\
        python -m benchmarks.cost.first_verdict

It has a home of its own, and installs the working tree from there as pip would install a release.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.support import results

# In PyTorch a long list is scored twice as boldly; the export decides the question once.
MODEL = """\
import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32))
        self.head = nn.Linear(32, 1)

    def forward(self, features):
        scores = self.head(self.body(features))
        return scores * 2 if features.shape[0] > 4 else scores


def build():
    return Ranker().eval()
"""
LINE = "models/ranker.py:13"
INDEX = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    results.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-verdict-") as home:
        rows = list(steps(Path(home)))
    minutes = sum(float(row["seconds"]) for row in rows) / 60
    lines = sum(int(row["lines"]) for row in rows)
    print(f"{minutes:.1f} minutes and {lines} printed lines to {LINE}")
    if options.save:
        results.save(__file__, "steps", rows)


def steps(home: Path) -> Iterator[dict[str, float | str]]:
    """Take each step and yield what it took; raises where one does not do what the README says."""
    repository, bin_ = home / "work", home / "venv" / "bin"
    (repository / "models").mkdir(parents=True)
    (repository / "models" / "ranker.py").write_text(MODEL)
    environment = {"HOME": str(home), "PATH": f"{bin_}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
    environment |= {name: os.environ[name] for name in os.environ if name.startswith("PIP_")}
    install = ["pip", "install", "--quiet", *INDEX, str(results.ROOT)]
    for name, command, status in (
        ("an environment", [sys.executable, "-m", "venv", str(home / "venv")], 0),
        ("a repository", ["git", "init", "--quiet", "."], 0),
        ("pip install onnx-gate", install, 0),
        ("onnx-gate init", ["onnx-gate", "init", "models/ranker.py:build"], 1),
        ("onnx-gate run", ["onnx-gate", "run"], 1),
    ):
        begin, worked = time.monotonic(), _worked()
        printed = _done(command, repository, environment, status)
        seconds, worked = round(time.monotonic() - begin, 1), round(_worked() - worked, 1)
        if status == 1 and LINE not in printed:
            raise SystemExit(f"{name} does not name {LINE}:\n{printed}")
        lines = len(printed.splitlines())
        print(
            f"{seconds:7.1f} s, {worked:5.1f} s of a processor, {lines:3} lines  {name}", flush=True
        )
        yield {"name": name, "seconds": seconds, "processor": worked, "lines": lines}
    print(next(line for line in re.split(r"\n{2,}", printed) if line.startswith("ranker: ")))


def _worked() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _done(command: Sequence[str], folder: Path, environment: Mapping[str, str], status: int) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != status:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
