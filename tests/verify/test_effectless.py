"""Weights that move no output are named, and only such."""

from __future__ import annotations

from pathlib import Path

from onnx_gate.findings import codes
from tests.support.gate import run_few

MODELS = """
import torch
from torch import nn


class Branch(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.branch = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))
        self.scale = nn.Parameter(torch.full((16,), scale))

    def forward(self, x):
        y = self.first(x)
        return y + self.scale * self.branch(y)


class Rounded(Branch):
    "Has no gradient, and hangs on every weight."

    def forward(self, x):
        return torch.round(4 * super().forward(x)) + 0 * self.first(x)


class Unused(Branch):
    "Has a head that nobody asks."

    def forward(self, x):
        return self.first(x)


class Frozen(Branch):
    "Keeps gradients from some of its layers."

    def forward(self, x):
        with torch.no_grad():
            y = self.first(x)
        return y + self.branch(y)


class Late(Branch):
    "Has weights among its last operators, which move it by a little more than rounding."

    def forward(self, x):
        y = self.first(x)
        for _ in range(24):
            y = -y
        return y + 4e-6 * self.branch[2](y)


class OverPlaces(nn.Module):
    "Has nothing of its inputs where they have one place."

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(1, 4, 1)
        self.norm = nn.GroupNorm(4, 4)

    def forward(self, x):
        return self.norm(self.layer(x[:, None])).sum(1)


class Keyed(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        x = x.unsqueeze(-1).expand(-1, -1, 16)
        return self.attention(x, x, x)[0]


class Single(Branch):
    def forward(self, x):
        y = self.first(x)
        return self.branch[2](y) + self.scale * self.branch[0](y)


def single():
    return Single(0.0)


def begun():
    return Branch(0.0)


def next_to():
    return Branch(1e-9)


def late():
    return Late(0.5)


def trained():
    return Branch(0.5).requires_grad_(False)


def rounded():
    return Rounded(0.5)


def unused():
    return Unused(0.0)


def frozen():
    return Frozen(0.5)
"""


def test_weights_behind_nothing_are_named_and_only_these(tmp_path: Path) -> None:
    names = (
        "begun",
        "single",
        "next_to",
        "late",
        "trained",
        "rounded",
        "unused",
        "frozen",
        "Keyed",
        "OverPlaces",
    )
    entries = {n: f'model: "models.py:{n}", inputs: {{x: "float32[n, 8]"}}' for n in names}
    entries["OverPlaces"] = (
        'model: "models.py:OverPlaces", inputs: {x: "float32[n, t]"}, dims: {t: [1, 4]}'
    )
    models = run_few(tmp_path, MODELS, entries)
    assert {m.verdict for m in models.values()} == {"pass"}
    found = {
        name: finding.data["weights"]
        for name, model in models.items()
        for finding in model.findings
        if finding.code == "OG421"
    }
    behind = ["branch.0.weight", "branch.2.weight"]
    assert found == {"begun": behind, "next_to": behind, "single": behind[:1]}
    [told] = codes.OG421.among(models["single"].findings)
    assert told.message.startswith("1 of 3 matrices of weights moves no output (branch.0.weight): ")
