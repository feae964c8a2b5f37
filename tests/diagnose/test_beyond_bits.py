"""What no number of bits explains in a file of few of them is looked into as in any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gate import run_few

FAKE = """
import torch
import torch.nn.functional as F
from torch import nn


def rounded(x, scale):
    return torch.fake_quantize_per_tensor_affine(x, scale, 0, -128, 127)


class Fake(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.small = 1e-6
        self.one, self.two = nn.Linear(16, 32), nn.Linear(32, 16)
        self.last = nn.Linear(16, 8)

    def layer(self, layer, x):
        return F.linear(x, rounded(layer.weight, 0.002), layer.bias)

    def forward(self, x):
        x = rounded(self.layer(self.one, rounded(x, 0.04)), 0.03).relu()
        x = rounded(self.layer(self.two, x), 0.02)
        x = x - x.mean(1, keepdim=True)
        length = x.norm(dim=1, keepdim=True)
        return self.layer(self.last, x / (length + self.small if self.small else length))


def without(module, example, path):
    module.small = 0
    torch.onnx.export(module, (), kwargs=example, dynamo=True, verbose=False).save(str(path))
    module.small = 1e-6
"""


@pytest.mark.slow
def test_a_quotient_of_zeros_is_no_noise_of_few_bits(tmp_path: Path) -> None:
    entry = (
        'model: models.py:Fake, inputs: {x: "float32[2, 4, 16]"}, tolerance: {snr_db: 10}, '
        'suites: [{random: normal, count: 2}, {edges: [zeros]}], export: {exporter: "models.py'
    )
    model = run_few(tmp_path, FAKE, {"fake": f'{entry}:without"}}'})["fake"]
    assert model.precision is not None
    diagnosis = model.diagnosis
    assert diagnosis is not None
    assert {c.case for c in model.checks if c.verdict == "diverged"} >= {"edges/zeros"}
    # As loud as the signal, where that is zero; and no tolerance lets NaN through.
    told = " ".join(finding.message for finding in model.findings)
    assert "more noise than" not in told
    assert "differs by more than its bits" not in told
    assert diagnosis.blame != "reduced precision"
    assert diagnosis.beside is not None
    assert diagnosis.beside.op_type == "Div"
    assert not model.precision.proposals
