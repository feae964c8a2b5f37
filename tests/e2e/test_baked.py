"""A size is said to be baked into a graph where the same values show it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from onnx_gate.findings import codes
from onnx_gate.manifest import load
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify


class Branch(nn.Module):
    """A branch on a size, which an export decides."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 2 else x


class Branched(nn.Module):
    """What is left of ``Branch`` in a graph."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 1


class Mean(nn.Module):
    """An average over a size."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0) / x.shape[0]


class BakedMean(nn.Module):
    """An average over the example's size."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0) / 2


class Sum(nn.Module):
    """A sum, which is larger where there is more to add."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0)


class Saturated(nn.Module):
    """A sum that saturates: wrong where it is large, whatever the size."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0).clamp(max=12)


class Doubled(nn.Module):
    """A second column that is wrong in rows that the example does not have by their values."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 2.5, x + 1, x * 1)


class Plain(nn.Module):
    """The identity, of a float."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 1


class Window(nn.Module):
    """An average over a window, which is longer than the example."""

    size = 8

    def forward(self, x: Tensor) -> Tensor:
        return x[: self.size].mean(0)


class NarrowWindow(Window):
    """Another window, longer than the example, too."""

    size = 4


PAIRS = {
    "branch": (Branch, Branched, True),
    "mean": (Mean, BakedMean, True),
    "sum": (Sum, Saturated, False),
    "values": (Plain, Doubled, False),
    "window": (Window, NarrowWindow, False),
}


def inputs(inputs: object, seed: int) -> object:
    """Yield values between 1 and 2, and at more rows than the example's one of 3."""
    generator = torch.Generator().manual_seed(seed)
    for rows in (2, 2, 3, 7, 9):
        x = 1 + torch.rand(rows, 3, generator=generator)
        yield {"x": torch.cat([x, torch.full((1, 3), 3.0)])[1:] if rows > 2 else x}


@pytest.mark.parametrize("name", PAIRS)
def test_a_size_is_baked_where_the_same_values_show_it(name: str, tmp_path: Path) -> None:
    module, other, baked = PAIRS[name]
    torch.onnx.export(
        other().eval(),
        (torch.rand(2, 3),),
        tmp_path / "file.onnx",
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("rows")},),
        verbose=False,
    )
    lines = f"from tests.e2e.test_baked import {module.__name__}, inputs\n"
    (tmp_path / "models.py").write_text(lines)
    (tmp_path / "onnx-gate.yml").write_text(
        "version: 1\nsuites: {own: {generator: models.py:inputs}}\nmodels:\n  m:\n"
        f"    model: models.py:{module.__name__}\n    onnx: file.onnx\n    suites: [own]\n"
        '    inputs: {x: "float32[rows, 3]"}\n    dims: {rows: [2, 7]}\n'
    )
    spec = load(tmp_path / "onnx-gate.yml").models[0]
    result = verify(spec, Context(tmp_path, tmp_path / "out"), lambda _: None)
    assert result.verdict == "diverged"
    assert any(codes.OG102.among(result.findings)) == baked, result.findings
