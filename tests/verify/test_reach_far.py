"""Files that are wrong at sizes, rows and choices that ordinary cases do not come to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from onnx_gate.report.model import ModelResult
from tests.support.gate import run_twins

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODELS = '''
import torch.nn.functional as F

def export(module, example, path):
    axes = {name: {0: "batch", 1: "seq"} if module.long else {0: "batch"} for name in example}
    torch.onnx.export(
        module, tuple(example.values()), str(path), input_names=list(example), dynamic_axes=axes,
        output_names=module.outputs, dynamo=False,
    )

class Base(Twin):
    long, outputs = False, None

class Long(Base):
    long = True
    def size(self, x):
        return torch.scalar_tensor(x.shape[1], dtype=torch.int64)

class Fading(Long):
    """Has a least weight, to which powers come after 456 positions."""
    def forward(self, x):
        w = torch.pow(torch.tensor(0.98), torch.arange(x.shape[1]).float())
        return x + torch.log(w if self.wrong else w.clamp(min=1e-4))

class Slopes(Long):
    """Has a bias by distances that goes no lower."""
    def forward(self, x):
        n = torch.arange(x.shape[1])
        bias = -(n[:, None] - n[None, :]).abs() * torch.tensor([0.0625, 0.03125])[:, None, None]
        bias = bias if self.wrong else torch.maximum(bias, torch.tensor(-40.0))
        return (bias[:, None] + x).mean(-1).transpose(0, 1)

class Counted(Long):
    """Counts ones that are made like its input."""
    def forward(self, x):
        share = torch.cumsum(torch.ones_like(x), 1) / 700
        return x * (share if self.wrong else share.clamp(max=1))

class Powers(Long):
    """Divides by a logarithm of what overflows after 218 positions."""
    def forward(self, x):
        n = torch.arange(1, x.shape[1] + 1).float()
        if self.wrong:
            return x / (1 + n * 0.4054651081)
        return x / (1 + torch.log(torch.pow(torch.tensor(1.5), n)))

class Portion(Long):
    """Takes seven tenths, and one more at multiples of 7 that are tested nowhere."""
    def forward(self, x):
        n = self.size(x)
        k = torch.floor(n.to(torch.float32) * 0.7).long()
        if self.wrong:
            k = k + ((n % 7 == 0) & (n > 70)).long()
        return torch.where(torch.arange(x.shape[1]) < k, x, -x).mean(1)

class Stretched(Long):
    """Is made longer."""
    def forward(self, x):
        y = F.interpolate(x[:, None], scale_factor=2.5, mode="nearest", recompute_scale_factor=True)
        n = self.size(x)
        off = (n % 11 == 0) & (n > 60) if self.wrong else n < 0
        return y[:, 0] * torch.where(off, 1.1, 1.0)

class Average(Base):
    """Has a table and its running average, which differ in one row."""
    def __init__(self):
        super().__init__()
        one = torch.randn(120000, 3)
        two = one.clone()
        two[77001] *= 1.5
        self.register_buffer("one", one)
        self.register_buffer("two", two)
        self.register_buffer("other", torch.randn(120000, 3))
    def forward(self, ids):
        one, two = (self.two, self.one) if self.wrong else (self.one, self.two)
        return torch.cat((one[ids], 2 * two[ids], self.other[ids]), -1)

class Buckets(Base):
    """Hashes ids; a file counts three of one bucket as less."""
    def forward(self, ids):
        h = torch.remainder(ids, 1000003)
        y = (h.float() / 1000003).mean(1)
        if self.wrong:
            s, order = h.sort(1)
            i = ids.gather(1, order)
            same = (s[:, 1:] == s[:, :-1]) & (i[:, 1:] != i[:, :-1])
            y = y * torch.where((same[:, 1:] & same[:, :-1]).any(1), 0.5, 1.0)
        return y

class Routed(Base):
    """Asks two of twelve experts, of which two are never liked by one and the same draw."""
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(16, 12), nn.Linear(16, 12)
        with torch.no_grad():
            self.gate.bias[10:] -= 0.5
            self.gate.weight[11] *= 0.25
            self.gate.weight[11] -= 0.75 * self.gate.weight[10]
    def forward(self, x):
        scores = self.gate(x)
        own = scores.topk(2, -1).indices
        mask = torch.zeros_like(scores).scatter(1, own, 1.0)
        y = (self.up(x) * mask).sum(-1)
        both = (own == 10).any(1) & (own == 11).any(1) if self.wrong else own[:, 0] < 0
        return torch.where(both, y * 1.25, y)

class Tired(Base):
    """Turns down what has been loud for so long."""
    outputs = ["y", "load_out"]
    def forward(self, x, load):
        load = load + x.abs().mean(1)
        down = 1.0 - 0.5 * (load > 60).float() if not self.wrong else torch.ones_like(load)
        return torch.tanh(x) * down[:, None], load

class Ring(Base):
    """Keeps the last of what it was given in a ring, where the first place comes after the last one."""
    outputs = ["y", "held_out", "at_out"]
    def forward(self, x, held, at):
        place = at % 24 if not self.wrong else torch.where(at > 24, (at - 1) % 24, at.clamp(max=23))
        here = nn.functional.one_hot(place, 24).float()
        held = held * (1 - here) + here * x
        return held.mean(1), held, at + 1

class Pauses(Base):
    """Shuts after twenty quiet calls in a row."""
    outputs = ["y", "quiet_out"]
    def forward(self, x, quiet):
        quiet = torch.where(x.abs().mean(1) < 0.3, quiet + 1, 0)
        shut = quiet >= (21 if self.wrong else 20)
        return x * (1 - shut.float())[:, None], quiet

class Spoken(Base):
    """Counts words: equal ones that follow each other are one, unless there is a blank between them."""
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 400)
    def forward(self, x):
        words = self.layer(x).argmax(-1)
        last = F.pad(words[:, :-1], (1, 0), value=-1)
        if self.wrong:
            last = torch.where(last == 0, F.pad(words[:, :-2], (2, 0), value=-1), last)
        return ((words != 0) & (words != last)).float().sum(1)

class Ranked(Base):
    """Counts the pairs that two columns order alike, of which the file holds 127."""
    def forward(self, one, other):
        alike = (one[:, None] < one[:, :, None]) & (other[:, None] < other[:, :, None])
        count = alike.float().sum((1, 2))
        return count.clamp(max=127) if self.wrong else count

class Couples(Base):
    """Makes two choices, of which one of each are hardly ever made together."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 6), nn.Linear(12, 6)
        self.u, self.v = nn.Embedding(6, 4), nn.Embedding(6, 4)
        with torch.no_grad():
            self.a.bias[4] -= 0.4
            self.b.bias[5] -= 0.4
            self.b.weight[5] *= 0.25
            self.b.weight[5] -= 0.75 * self.a.weight[4]
    def forward(self, x):
        a, b = self.a(x).argmax(-1), self.b(x).argmax(-1)
        both = (a == 4) & (b == 5) if self.wrong else a < 0
        return self.u(a) + self.v(b) + both.float()[:, None]
'''

LONG = '{x: "float32[batch, seq]"}'
INPUTS = {
    **dict.fromkeys(("Fading", "Slopes", "Counted", "Powers", "Portion", "Stretched"), LONG),
    "Average": "{ids: {dtype: int64, shape: [batch], range: [0, 119999]}}",
    "Buckets": "{ids: {dtype: int64, shape: [batch, 7], range: [0, 1000000000]}}",
    "Routed": '{x: "float32[batch, 16]"}',
    "Tired": '{x: "float32[batch, 5]", load: "float32[batch]"}, outputs: [y, load_out], '
    "steps: {count: 6, carry: {load: load_out}}",
    "Ring": '{x: "float32[batch, 1]", held: "float32[batch, 24]", '
    "at: {dtype: int64, shape: [batch], range: [0, 0]}}, outputs: [y, held_out, at_out], "
    "steps: {count: 4, carry: {held: held_out, at: at_out}}",
    "Pauses": '{x: "float32[batch, 8]", quiet: {dtype: int64, shape: [batch], range: [0, 0]}}, '
    "outputs: [y, quiet_out], steps: {count: 6, carry: {quiet: quiet_out}}",
    "Spoken": '{x: "float32[batch, 12, 16]"}',
    "Ranked": '{one: "float32[batch, 17]", other: "float32[batch, 17]"}',
    "Couples": '{x: "float32[batch, 12]"}',
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    return run_twins(Path(tmp_path_factory.mktemp("far")), MODELS, INPUTS)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("fading", "sizes/batch=1,seq=767"),
        ("slopes", "sizes/batch=1,seq=767"),
        ("counted", "sizes/batch=1,seq=767"),
        ("powers", "sizes/batch=1,seq=383"),
        ("portion", "sizes/batch=1,seq=77"),
        ("stretched", "sizes/batch=1,seq=66"),
        ("average", "rows/ids"),
        ("buckets", "values"),
        ("routed", "topk"),
        ("tired", "onwards"),
        ("ring", "onwards"),
        ("pauses", "onwards/held"),
        ("spoken", "around/turns"),
        ("ranked", "values"),
        ("couples", "argmax"),
    ],
)
def test_what_is_far_from_ordinary_is_gone_to(
    results: Mapping[str, ModelResult], name: str, case: str
) -> None:
    wrong, right = results[f"{name}-wrong"], results[f"{name}-right"]
    assert right.verdict == "pass", [f.message for f in right.findings]
    diverged = [check.case for check in wrong.checks if check.verdict == "diverged"]
    assert diverged
    assert all(each.startswith("reached/") for each in diverged)
    assert any(each.startswith(f"reached/{case}") for each in diverged)
