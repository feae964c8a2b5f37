"""Files that are wrong where values change places, one channel is largest, or two numbers make a key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from onnx_gate.report.model import ModelResult
from tests.support.gate import run_twins

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODELS = '''
def export(module, example, path):
    torch.onnx.export(
        module, tuple(example.values()), path, input_names=list(example), dynamo=True,
        dynamic_shapes=tuple({0: "batch"} for _ in example), verbose=False,
    )

class Quantiles(Twin):
    """Puts three numbers in order that hardly ever are in another one."""
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(32, 3)
        with torch.no_grad():
            apart = torch.ones(32) * 0.07
            apart[::2] *= -1
            self.fc.weight.copy_(0.1 * torch.randn(1, 32) + torch.tensor([[-1.0], [0.0], [1.0]]) * apart)
            self.fc.bias.copy_(torch.tensor([-1.0, 0.0, 1.0]))
    def forward(self, x):
        y = self.fc(x)
        return y if self.wrong else y.sort(-1).values

class Channel(Twin):
    """Has one channel of many that a file bends where all of an input brings it."""
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(32, 48)
        with torch.no_grad():
            self.fc.weight[7].copy_(torch.tensor([0.25, -0.25] * 16))
    def forward(self, x):
        y = self.fc(x)
        bent = ((y[:, 7:8] - 3.5) * 60).sigmoid() if self.wrong else 0.0
        return y.sum(1, keepdim=True) + bent

class Keyed(Twin):
    """Has an answer of its own for one pair among millions, by a key of both."""
    def forward(self, a, b):
        y = a * 0.5 + b
        return y if self.wrong else torch.where(a * 5000 + b == 4321 * 5000 + 987, -y, y)

class Stamped(Twin):
    """Counts the moments of a table that have passed; a file leaves the third out at itself."""
    def __init__(self):
        super().__init__()
        self.register_buffer("moments", torch.tensor([18_000_123, 31_536_007, 44_444_444, 61_000_001]))
    def forward(self, day, sec):
        t = (day * 86400 + sec)[:, None]
        third = torch.arange(4) == 2
        passed = t >= self.moments
        passed = (passed & ~third) | ((t > self.moments) & third) if self.wrong else passed
        return passed.float().sum(1)
'''

INPUTS = {
    "Quantiles": "{x: {dtype: float32, shape: [batch, 32], range: [0, 1]}}",
    "Channel": "{x: {dtype: float32, shape: [batch, 32], range: [0, 1]}}",
    "Keyed": "{a: {dtype: int64, shape: [batch], range: [0, 4999]},"
    " b: {dtype: int64, shape: [batch], range: [0, 4999]}}",
    "Stamped": "{day: {dtype: int64, shape: [batch], range: [0, 900]},"
    " sec: {dtype: int64, shape: [batch], range: [0, 86399]}}",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    return run_twins(Path(tmp_path_factory.mktemp("together")), MODELS, INPUTS)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("quantiles", "sort"),
        ("channel", "large"),
        ("keyed", "steps"),
        ("stamped", "steps"),
    ],
)
def test_what_few_inputs_show_is_climbed_to(
    results: Mapping[str, ModelResult], name: str, case: str
) -> None:
    wrong, right = results[f"{name}-wrong"], results[f"{name}-right"]
    assert right.verdict == "pass", [f.message for f in right.findings]
    diverged = {check.case for check in wrong.checks if check.verdict == "diverged"}
    assert diverged
    assert all(each.startswith(f"reached/{case}") for each in diverged)
