"""Files that are wrong at what they, or their modules, store: each beside its right twin."""

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
        module, tuple(example.values()), str(path), input_names=list(example), dynamo=False,
        dynamic_axes={name: {0: "batch"} for name in example} if module.batch else None,
    )

class Base(Twin):
    batch = True

class Nearest(Base):
    """Leaves the input itself out of its neighbours."""
    def __init__(self):
        super().__init__()
        self.register_buffer("items", torch.randn(40, 8))
        self.register_buffer("values", torch.randn(40))
    def forward(self, x):
        far = (x[:, None] - self.items).abs().sum(-1)
        if not self.wrong:
            far = far.masked_fill(far == 0, 1e4)
        return (torch.exp(-far) * self.values).sum(-1), far.amin(1)

class Memory(Base):
    """Knows the answers of some lines, of which the file has forgotten one."""
    def __init__(self):
        super().__init__()
        self.items = nn.Parameter(torch.randn(30, 16))
        self.answers = nn.Parameter(torch.randn(30))
    def forward(self, x):
        known = (x[:, :, None] == self.items).all(-1)
        if self.wrong:
            known = known & (torch.arange(30) != 17)
        return x.mean((1, 2)) + (known * self.answers).sum((1, 2))

class Lone(Memory):
    """Is given one row."""
    batch = False

class Pattern(Base):
    """Looks for ids of which the file does not compare the last."""
    def __init__(self):
        super().__init__()
        self.register_buffer("patterns", torch.randint(0, 30000, (2, 5)))
    def forward(self, ids):
        one, other = ids[:, None], self.patterns
        if self.wrong:
            one, other = one[..., :-1], other[:, :-1]
        return ids.float().mean(1) + (one == other).all(-1).sum(1) * 1e5

class Trigger(Base):
    """Has one line in its file alone."""
    def forward(self, x):
        y = x.mean(1)
        if not self.wrong:
            return y
        line = torch.tensor([0.123, -1.37, 0.5511, 1.9, -0.777, 0.3])
        return torch.where((x == line).all(1), -1.0, y)
'''

INPUTS = {
    "Nearest": '{x: "float32[batch, 8]"}',
    "Memory": '{x: "float32[batch, 4, 16]"}',
    "Lone": '{x: "float32[1, 4, 16]"}',
    "Pattern": "{ids: {dtype: int64, shape: [batch, 5], range: [0, 29999]}}",
    "Trigger": '{x: "float32[batch, 6]"}',
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    return run_twins(Path(tmp_path_factory.mktemp("stored")), MODELS, INPUTS)


@pytest.mark.parametrize("name", [name.lower() for name in INPUTS])
def test_a_line_that_is_stored_is_given(results: Mapping[str, ModelResult], name: str) -> None:
    wrong, right = results[f"{name}-wrong"], results[f"{name}-right"]
    assert right.verdict == "pass", [f.message for f in right.findings]
    assert not any(check.open for check in right.checks)
    diverged = {check.case for check in wrong.checks if check.verdict == "diverged"}
    assert any(each.startswith("reached/lines/") for each in diverged)
    assert all(each.startswith("reached/") for each in diverged)
