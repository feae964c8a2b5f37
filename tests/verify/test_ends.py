"""Where rounding decides whether there is a number, or a function is next to its pole, either is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.findings import codes
from tests.support.gate import run_few, run_twins

NAMES = ("LogOne", "Held", "Guarded", "Added")
TWINS = """
class LogOne(Twin):
    def forward(self, x):
        left = 1 - torch.sigmoid(6 * x)
        return torch.log(left - 0.01 * left.relu() if self.wrong else left)

class Held(Twin):
    def forward(self, x):
        left = 1 - torch.sigmoid(6 * x)
        return torch.log(left if self.wrong else left.clamp(min=1e-7))

class Guarded(Twin):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 16)
        self.linear.weight.data *= 4

    def forward(self, x):
        left = 1 - torch.sigmoid(self.linear(x))
        return torch.log(left if self.wrong else left.clamp(min=torch.finfo(x.dtype).eps))

class Added(Guarded):
    def forward(self, x):
        left = 1 - torch.sigmoid(self.linear(x))
        return 1 / (left if self.wrong else left + torch.finfo(x.dtype).eps)

def export(module, example, path):
    sizes = {"x": {0: "batch"}}
    torch.onnx.export(
        module, tuple(example.values()), path, input_names=["x"], dynamic_axes=sizes, dynamo=False
    )
"""
HAZARD = """
import torch

class Hazard(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.linear = torch.nn.Linear(8, 30)

    def forward(self, x):
        p = torch.softmax(4 * self.linear(x), 1)
        return p / (1 - p.cumsum(1) + p + 1e-8)
"""


@pytest.mark.slow
def test_rounding_decides_whether_there_is_a_number(tmp_path: Path) -> None:
    inputs = dict.fromkeys(NAMES, '{x: "float32[batch, 8]"}')
    verified = run_twins(tmp_path, TWINS, inputs)
    for name in NAMES:
        assert verified[f"{name.lower()}-right"].verdict == "pass", name
        assert verified[f"{name.lower()}-wrong"].verdict == "diverged", name
    left = [check for check in verified["logone-right"].checks if check.open]
    assert {check.causes for check in left} == {("rounding",)}
    assert codes.OG404.among(verified["logone-right"].findings)


@pytest.mark.slow
def test_next_to_a_pole_ten_times_the_rounding_does_more_than_ten_times_as_much(
    tmp_path: Path,
) -> None:
    entries = {
        f"hazard{seed}": f"model: models.py:Hazard, kwargs: {{seed: {seed}}}, dims: {{batch: [4000]}}, "
        'inputs: {x: "float32[batch, 8]"}, export: {exporter: torchscript}'
        for seed in range(4)
    }
    verified = run_few(tmp_path, HAZARD, entries)
    assert {model.verdict for model in verified.values()} == {"pass"}
