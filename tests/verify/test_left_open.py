"""A column that is open in nearly every case is named: in a sum of open elements nobody sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_gate.findings import codes
from onnx_gate.verify.experience import LeftOpen
from tests.support.gate import run_few

MODELS = """
import torch


class Column(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(1e6 * torch.randn(256, 1))

    def forward(self, x):
        nothing = x @ self.weight - x.flip(-1) @ self.weight.flip(0)
        return torch.cat([x[:, :3], nothing, x[:, 3:6]], 1)
"""


@pytest.mark.slow
def test_a_column_of_rounding_alone_is_named(tmp_path: Path) -> None:
    entry = 'model: models.py:Column, inputs: {x: "float32[batch, 256]"}, dims: {batch: [8, 64]}'
    model = run_few(tmp_path, MODELS, {"column": entry})["column"]
    assert model.verdict == "pass"
    [told] = codes.OG404.among(model.findings)
    assert told.severity == "warning"
    assert "Nearly always open: [:, 3] (" in told.message
    assert "[:, 2]" not in told.message


def test_only_what_stands_beside_compared_columns_is_named() -> None:
    expected = np.ones((10, 2, 3), np.float32)
    opened = np.zeros(expected.shape, bool)
    opened[..., 1] = True
    opened[0, 0, 0] = True
    left = LeftOpen()
    left.learn(expected, opened)
    left.learn(expected[:1], None)
    assert list(map(str, left.columns())) == ["[:, :, 1] (20 of 22)"]
    # In as many cases again it was compared.
    left.learn(expected, None)
    assert not list(left.columns())
    every = LeftOpen()
    every.learn(expected, np.ones_like(opened))
    every.learn(np.ones(3, np.float32), np.ones(3, bool))
    assert not list(every.columns())


NAMELESS = """
import torch


class Nameless(torch.nn.Module):
    def forward(self, x):
        marks = (x > 0).float()
        return marks.topk(2, dim=1)
"""


def test_an_output_that_has_no_name_is_told_by_its_place(tmp_path: Path) -> None:
    entry = "model: models.py:Nameless, inputs: {x: 'float32[batch, 16]'}, suites: [few, edges]"
    model = run_few(tmp_path, NAMELESS, {"nameless": entry})["nameless"]
    assert model.verdict == "pass"
    [told] = codes.OG404.among(model.findings)
    assert " elements of output 1 are open: order of equals" in told.message
    advised = [each.message for each in codes.OG403.among(model.findings)]
    assert not [each for each in advised if ", *:" in each or ", 0:" in each or ", 1:" in each]
