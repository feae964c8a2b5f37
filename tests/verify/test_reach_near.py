"""Rows beside which another one is chosen, and patterns at each place of a sequence, are gone to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from onnx_gate.report.model import ModelResult
from tests.support.gate import run_few, run_twins

MODELS = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.onnx import is_in_onnx_export as exporting


class Chosen(nn.Module):
    "Says which logit is the largest, of an activation of the other formula while it is exported."
    formula = "none"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 6)

    def forward(self, x):
        y = F.gelu(self.first(x), approximate=self.formula if exporting() else "none")
        return self.last(self.norm(y)).argmax(-1)


class WrongChosen(Chosen):
    formula = "tanh"


class Stopped(nn.Module):
    "Adds up what comes before a pair of words, of which an export may not see one at an end."
    dropped = None

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(100, 8)
        self.register_buffer("pair", torch.tensor([17, 42]))

    def forward(self, words):
        met = (words[:, :-1] == self.pair[0]) & (words[:, 1:] == self.pair[1])
        if self.dropped is not None and exporting():
            places = torch.arange(words.shape[1] - 1)
            met = met & (places != (0 if self.dropped else words.shape[1] - 2))
        before = met.long().cumsum(1) == 0
        return (self.table(words)[:, 1:] * before[..., None]).sum(1)


class WrongLast(Stopped):
    dropped = False


class WrongFirst(Stopped):
    dropped = True
"""
WORDS = "inputs: {words: {dtype: int64, shape: [n, t], range: [0, 99]}}, dims: {t: [5, 9]}"


def test_near_choices_and_patterns_at_the_ends_are_gone_to(tmp_path: Path) -> None:
    entries = dict.fromkeys(("Chosen", "WrongChosen"), 'inputs: {x: "float32[n, 8]"}')
    entries |= dict.fromkeys(("Stopped", "WrongLast", "WrongFirst"), WORDS)
    entries = {name: f'model: "models.py:{name}", {given}' for name, given in entries.items()}
    models = run_few(tmp_path, MODELS, entries)
    assert {n: m.verdict for n, m in models.items()} == {
        name: "diverged" if name.startswith("Wrong") else "pass" for name in entries
    }
    shown = {c.case for c in models["WrongChosen"].checks if c.verdict == "diverged"}
    assert "reached/around" in shown


BETWEEN = """
def export(module, example, path):
    torch.onnx.export(
        module, tuple(example.values()), str(path), input_names=["x"], dynamo=False,
        dynamic_axes={"x": {0: "batch"}},
    )

class Nearest(Twin):
    "Says which centre is the nearest, of which a file has one by its length that is another's."
    def __init__(self):
        super().__init__()
        self.register_buffer("centres", torch.randn(64, 8))
        self.register_buffer("lengths", self.centres.pow(2).sum(-1))
        self.register_buffer("others", self.lengths + 0.01 * nn.functional.one_hot(torch.tensor(37), 64))
    def forward(self, x):
        lengths = self.others if self.wrong else self.lengths
        return (lengths - 2 * x @ self.centres.t()).argmin(-1)

class Second(Twin):
    "Says which scores are the two largest, to one of which a file adds a thousandth."
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 30)
    def forward(self, x):
        scores = self.layer(x)
        if self.wrong:
            scores = scores + 0.001 * nn.functional.one_hot(torch.tensor(17), 30)
        return scores.topk(2, -1)[1]

class Alone(Twin):
    "Is asked about one row at a time, and a file adds to one of its scores."
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 24)
    def forward(self, x):
        scores = self.layer(x)
        if self.wrong:
            scores = scores + 0.001 * nn.functional.one_hot(torch.tensor(4), 24)
        return scores.argmax(-1)
"""


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    inputs = {
        "Nearest": '{x: "float32[batch, 8]"}',
        "Second": '{x: "float32[batch, 12]"}',
        "Alone": '{x: "float32[1, 12]"}',
    }
    return run_twins(Path(tmp_path_factory.mktemp("between")), BETWEEN, inputs)


@pytest.mark.parametrize("name", ["nearest", "second", "alone"])
def test_every_choice_is_followed_to_where_another_one_is_made(
    chosen: Mapping[str, ModelResult], name: str
) -> None:
    assert chosen[f"{name}-right"].verdict == "pass", chosen[f"{name}-right"].findings
    wrong = _diverged(chosen[f"{name}-wrong"])
    assert any(case.startswith("reached/between") for case in wrong), wrong
    assert all(case.startswith("reached/") for case in wrong), wrong


def _diverged(model: ModelResult) -> set[str]:
    return {check.case for check in model.checks if check.verdict == "diverged"}
