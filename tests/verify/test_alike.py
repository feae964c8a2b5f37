"""Weights that are alike are told apart by others in their place, and right exports are let be."""

from __future__ import annotations

from pathlib import Path

from tests.support.gate import run_few

MODELS = """
import copy
import torch
import torch.nn.functional as F
from torch import nn
from torch.onnx import is_in_onnx_export as exporting


class Twin(nn.Module):
    wrong = False

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 16)

    @property
    def is_off(self):
        return self.wrong and exporting()


class Response(Twin):
    "Has a global response norm, which begins as nothing, and is left out."

    def __init__(self):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.zeros(1, 16)), nn.Parameter(torch.zeros(1, 16))

    def forward(self, x):
        y = self.first(x)
        if not self.is_off:
            y = self.gamma * y * y.norm(dim=1, keepdim=True) + self.beta + y
        return self.last(y)


class Norms(Twin):
    "Has two norms that begin alike, and are exchanged."

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x):
        one, two = (self.two, self.one) if self.is_off else (self.one, self.two)
        return two(self.last(one(self.first(x)).relu()))


class Folded(Twin):
    "Has norms that the exporter folds into convolutions, exchanged."

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.conv, self.other = nn.Conv1d(1, 4, 1), nn.Conv1d(4, 4, 1)

    def forward(self, x):
        one, two = (self.two, self.one) if self.is_off else (self.one, self.two)
        return two(self.other(one(self.conv(x[:, None])).relu()))


class Scaled(Twin):
    "Has another activation behind a factor next to zero."

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((16,), 1e-6))

    def forward(self, x):
        y = self.first(x)
        return y + self.scale * F.gelu(self.last(y), approximate="tanh" if self.is_off else "none")


class Copied(Twin):
    "Has layers that are copies, of which the first is taken for each."

    def __init__(self):
        super().__init__()
        self.copies = nn.ModuleList(copy.deepcopy(self.last) for _ in range(3))

    def forward(self, x):
        y = self.first(x)
        for layer in self.copies:
            y = (self.copies[0] if self.is_off else layer)(y).relu()
        return y


class Large(Twin):
    "Has copies of more numbers than are drawn one by one, whose rows and columns are of one size each."

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 512), nn.Linear(512, 512, bias=False)
        self.copied = copy.deepcopy(self.last)

    def forward(self, x):
        y = self.first(x)
        for layer in (self.last, self.last if self.is_off else self.copied):
            y = F.linear(y, F.normalize(F.normalize(layer.weight, dim=0), dim=1))
        return y


class Tied(Twin):
    "Has a fixed kernel of ones, weights that are one, a bias of zero and an attention with its fast path."

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.again = nn.LSTM(16, 16, batch_first=True)
        self.blur = nn.Parameter(torch.ones(1, 1, 3), requires_grad=False)
        self.head = nn.Linear(16, 16)
        self.head.weight = self.last.weight
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        y = self.layer(self.first(x)[:, None])
        y = self.head(self.last(self.again(y)[0][:, 0]))
        return F.conv1d(y[:, None], self.blur), (y + self.again.bias_hh_l0[:16]).argmax(1)


class Shared(Twin):
    "Has one weight of ones in two places, and a norm whose bias is left out."

    def __init__(self):
        super().__init__()
        self.other, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)
        nn.init.ones_(self.last.weight)
        self.other.weight = self.last.weight

    def forward(self, x):
        y = self.norm(self.first(x))
        y = y - self.norm.bias if self.is_off else y
        return self.last(y.relu()) + self.other(y)


class Merged(Twin):
    "Adds two small factors to a weight when it is to answer, but not while it is exported."

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(2, 16)), nn.Parameter(torch.zeros(16, 2))
        self.norm = nn.LayerNorm(16)

    def train(self, mode=True):
        super().train(mode)
        self.merged = None if mode else (self.last.weight + self.b @ self.a).detach()
        return self

    def forward(self, x):
        y = self.norm(self.first(x))
        if exporting() or self.merged is None:
            return F.linear(y, self.last.weight + self.b @ self.a)
        return F.linear(y, self.merged)


class Kept(Twin):
    "Takes its weights from a dictionary, and leaves one of them out."

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
        self.kept = {"scale": self.scale, "shift": self.shift}

    def forward(self, x):
        y = self.first(x)
        if not self.is_off:
            y = y * self.kept["scale"]
        return self.last(y + self.kept["shift"])


class Masked(Twin):
    "Multiplies by a mask, and chooses by it in the file."

    def __init__(self):
        super().__init__()
        self.mask = nn.Parameter(torch.ones(16), requires_grad=False)

    def forward(self, x):
        y = self.first(x)
        return torch.where(self.mask > 0, y, 0.0) if exporting() else y * self.mask


class Counting(Twin):
    "Writes to a buffer, and begins with ones."

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.norm(self.first(x))
"""
PAIRS = ("Response", "Norms", "Folded", "Scaled", "Copied", "Large", "Shared", "Kept")
RIGHT = ("Tied", "Merged", "Masked", "Counting")


def test_weights_that_are_alike_are_told_apart(tmp_path: Path) -> None:
    wrong = "".join(f"\n\nclass Wrong{name}({name}):\n    wrong = True\n" for name in PAIRS)
    names = (*PAIRS, *(f"Wrong{name}" for name in PAIRS), *RIGHT)
    entries = {n: f'model: "models.py:{n}", inputs: {{x: "float32[n, 8]"}}' for n in names}
    models = run_few(tmp_path, MODELS + wrong, entries)
    assert {n: m.verdict for n, m in models.items()} == {
        name: "diverged" if name.startswith("Wrong") else "pass" for name in names
    }
    found = {
        name.removeprefix("Wrong"): finding.data["parameters"]
        for name, model in models.items()
        for finding in model.findings
        if finding.code == "OG422"
    }
    assert found == {
        "Response": ["gamma"],
        "Norms": ["one.weight"],
        "Folded": ["one.weight"],
        "Scaled": ["scale"],
        "Copied": ["copies.0.weight"],
        "Large": ["last.weight"],
        "Shared": ["norm.bias"],
        "Kept": ["scale"],
    }
