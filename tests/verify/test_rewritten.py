"""What a file loses that writes PyTorch's operators otherwise is not said to be PyTorch's own rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.findings import codes
from tests.support.gate import run_few

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
