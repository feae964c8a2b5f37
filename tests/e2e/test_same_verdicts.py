"""The verdict of a model does not depend on what is verified beside it, nor on the machine's threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODELS = '''
import torch
from torch import nn


class Off(nn.Module):
    """A layer whose file is off by a constant factor, and where terms cancel near its limit."""

    def __init__(self, wrong=False):
        super().__init__()
        self.wrong = wrong
        self.layer = nn.Linear(256, 64, bias=False)

    def forward(self, x):
        y = self.layer(x)
        return y + y.roll(1, -1) * FACTOR if self.wrong else y * 1


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(8, 16, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


FACTOR = 4e-6
KINDS = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 512), nn.GELU(), nn.Linear(512, 6)),
    "softmax": lambda: nn.Sequential(nn.Linear(8, 10), nn.Softmax(-1)),
    "norm": lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 5)),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    "recurrent": Last,
    "sums": lambda: Function(lambda x: (x + 100).cumsum(-1) - x.sum(-1, keepdim=True)),
    "chosen": lambda: Function(lambda x: x.exp().topk(3)[1]),
    "wrong": lambda: Off(),
    "near": lambda: Off(),
}


def build(kind):
    torch.manual_seed(0)
    return KINDS[kind]().eval()


def export(module, example, path, factor):
    global FACTOR
    FACTOR = factor
    module.wrong = True
    torch.onnx.export(
        module, (example["x"],), path, dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False
    )
    module.wrong = False


def near(module, example, path):
    export(module, example, path, 0.22e-6)


def wrong(module, example, path):
    export(module, example, path, 1e-4)
'''
SHAPES = {"attention": "5, 8", "recurrent": "5, 8", "near": "256", "wrong": "256"}
NAMES = ["mlp", "softmax", "norm", "attention", "recurrent", "sums", "chosen", "wrong", "near"]


def verdicts(folder: Path, names: list[str], threads: int, *arguments: str) -> dict[str, Any]:
    """Return what a report says of each model, but for times."""
    lines = ["version: 1", "models:"]
    for name in names:
        given = (
            "src" if name == "attention" else "input" if name in ("mlp", "softmax", "norm") else "x"
        )
        lines += [f"  {name}:", "    model: models.py:build", f"    args: [{name}]"]
        lines += [f'    inputs: {{{given}: "float32[batch, {SHAPES.get(name, "8")}]"}}']
        if name in ("near", "wrong"):
            lines += [f"    export: {{exporter: models.py:{name}}}"]
    (folder / "models.py").write_text(MODELS)
    (folder / "onnx-gate.yml").write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "onnx_gate", "run", "--no-cache", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((folder / "onnx-gate-report" / "report.json").read_text())
    return {model["name"]: told(model) for model in report["models"]}


def told(model: dict[str, Any]) -> dict[str, Any]:
    """Return a model's verdict, and each check's, with every number that comes of moved runs."""
    checks = {}
    for check in model["checks"]:
        metrics = check.get("metrics") or {}
        checks[check["runtime"], check["case"], check["output"]] = (
            check["verdict"],
            *(check.get(key) for key in ("budget", "compared", "open", "causes", "resolution")),
            (check.get("deviation") or {}).get("allowed"),
            metrics.get("rounding"),
        )
    return {"verdict": model["verdict"], "checks": checks}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(1800)
def test_jobs_order_and_threads_change_no_verdict(tmp_path: Path) -> None:
    first = verdicts(tmp_path, NAMES, 1, "--jobs", "1")
    assert {name for name, each in first.items() if each["verdict"] != "pass"} == {"wrong"}
    assert 0.7 < max(check[1] or 0 for check in first["near"]["checks"].values()) <= 1
    assert verdicts(tmp_path, NAMES, 1, "--jobs", "2") == first
    assert verdicts(tmp_path, NAMES[::-1], 2, "--jobs", "1") == first
