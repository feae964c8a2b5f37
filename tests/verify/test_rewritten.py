"""What a file loses that writes PyTorch's operators otherwise is not said to be PyTorch's own rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.findings import codes
from tests.support.gate import run_few, run_twins

MODELS = """
import torch
import torch.nn.functional as F


class Small(torch.nn.Module):
    def forward(self, x):
        return torch.expm1(x * 1e-6)


class Tail(torch.nn.Module):
    def forward(self, x):
        return torch.erfc(x.abs() + 5)


class Offset(torch.nn.Module):
    def forward(self, x):
        return F.layer_norm(x + 1e7, [16])
"""


@pytest.mark.slow
def test_a_form_that_loses_digits_is_named(tmp_path: Path) -> None:
    entry = 'model: models.py:{}, inputs: {{x: "float32[2, 16]"}}'
    found = run_few(tmp_path, MODELS, {n: entry.format(n) for n in ("Small", "Tail", "Offset")})
    told = {n: next(codes.OG401.among(model.findings)).message for n, model in found.items()}
    own = {name for name, message in told.items() if "PyTorch's own answer" in message}
    assert own == {"Offset"}
    assert "what a file loses that writes expm1 as exp(x) - 1," in told["Small"]
    assert "what a file loses that writes erfc as 1 - erf(x)," in told["Tail"]


NORMS = """
import torch.nn.functional as F


def export(module, example, path):
    torch.onnx.export(
        module, tuple(example.values()), str(path), input_names=["x"], dynamo=False,
        dynamic_axes={"x": {0: "batch"}},
    )


class Layer(Twin):
    def __init__(self):
        super().__init__()
        self.bias, self.weight = torch.randn(2, 16).double()

    def eps(self):
        return 1.01e-5 if self.wrong else 1e-5

    def forward(self, x):
        return F.layer_norm(x, [16], self.weight, self.bias, self.eps())


class Batch(Layer):
    def __init__(self):
        super().__init__()
        self.mean, self.var = torch.randn(16).double(), torch.rand(16).double() + 1e-3

    def forward(self, x):
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, eps=self.eps())
"""


@pytest.mark.slow
def test_an_epsilon_of_32_bits_is_all_that_onnx_has(tmp_path: Path) -> None:
    """Also where all else has 64; a hundredth of it is a thousand times as much."""
    inputs = dict.fromkeys(("Layer", "Batch"), '{x: "float64[batch, 16]"}')
    found = run_twins(tmp_path, NORMS, inputs)
    assert {name: model.verdict for name, model in found.items()} == {
        f"{name}-{kind}": verdict
        for name in ("layer", "batch")
        for kind, verdict in (("wrong", "diverged"), ("right", "pass"))
    }
