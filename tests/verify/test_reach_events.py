"""What happens as far apart as the code names, or lasts as long, is given where windows may be others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from onnx_gate.report.model import ModelResult
from tests.support.gate import run_twins

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODELS = """
def export(module, example, path):
    torch.onnx.export(
        module, tuple(example.values()), str(path), input_names=list(example), dynamo=False,
        dynamic_axes={name: {0: "batch", 1: "seq"} for name in example},
    )

class Apart(Twin):
    def near(self, x, most):
        n = torch.arange(x.shape[1])
        apart = n[:, None] - n[None, :]
        return (apart > 0) & (apart <= most)

class Alarms(Apart):
    "Tells of two alarms that are at most 20 steps apart, or 21."
    def forward(self, x):
        hot = x > 3.2
        both = hot[:, :, None] & hot[:, None, :] & self.near(x, 21 if self.wrong else 20)
        return both.flatten(1).any(1).float()

class Fixed(Alarms):
    "Is only asked about 24 steps."

class Spans(Apart):
    "Gives the best score of an answer that is at most 30 words long, or 31."
    def forward(self, one, last):
        scores = one[:, None, :] + last[:, :, None]
        return torch.where(self.near(one, 30 if self.wrong else 29), scores, -1e9).flatten(1).amax(1)

class Matches(Apart):
    "Tells which words come in the other text at most 12 places before, or 13."
    def forward(self, one, other):
        equal = one[:, :, None] == other[:, None, :]
        return (equal & self.near(one, 13 if self.wrong else 12)).any(-1).float()

class Streak(Apart):
    "Says how long the longest streak was, up to 12 steps or 11."
    def forward(self, x):
        up, most = (x > 0).float()[:, None], x.new_zeros(x.shape[0])
        for k in range(1, 12 if self.wrong else 13):
            mean = nn.functional.avg_pool1d(nn.functional.pad(up, (k - 1, 0)), k, 1)[:, 0]
            most = torch.maximum(most, k * (mean > 0.999).float().amax(1))
        return most
"""
LONG, WORD = '"float32[batch, seq]"', "{dtype: int64, shape: [batch, seq], range: [0, 4999]}"


@pytest.fixture(scope="module")
def happened(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    inputs = {
        "Alarms": f"{{x: {LONG}}}",
        "Fixed": '{x: "float32[batch, 24]"}',
        "Spans": f"{{one: {LONG}, last: {LONG}}}",
        "Matches": f"{{one: {WORD}, other: {WORD}}}",
        "Streak": f"{{x: {LONG}}}",
    }
    return run_twins(Path(tmp_path_factory.mktemp("events")), MODELS, inputs)


@pytest.mark.parametrize("name", ["alarms", "fixed", "spans", "matches", "streak"])
def test_events_are_as_far_apart_as_a_window_that_the_code_names(
    happened: Mapping[str, ModelResult], name: str
) -> None:
    assert happened[f"{name}-right"].verdict == "pass", happened[f"{name}-right"].findings
    wrong = happened[f"{name}-wrong"]
    shown = {check.case for check in wrong.checks if check.verdict == "diverged"}
    assert any(case.startswith("reached/events/") for case in shown), shown
