"""Decoders with caches and streaming networks, step by step: right ones, and twins with a fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.report.io import read_report
from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.render.plots import by_step
from onnx_gate.report.story.steps import sentence
from tests.support.gate import gate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MODELS = """
import torch
from torch import nn

PAST = ["past_k0", "past_v0", "past_k1", "past_v1"]
PRESENT = ["k0", "v0", "k1", "v1"]

class Block(nn.Module):
    def __init__(self, d=16, heads=2):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.norm, self.heads = nn.LayerNorm(d), heads
    def forward(self, x, key, value, mask):
        b, s, d = x.shape
        def split(t):
            return t.view(b, s, self.heads, d // self.heads).transpose(1, 2)
        h = self.norm(x)
        key = torch.cat([key, split(self.k(h))], 2)
        value = torch.cat([value, split(self.v(h))], 2)
        score = split(self.q(h)) @ key.transpose(2, 3) / 8 ** 0.5
        score = score.masked_fill(mask[:, None, None, :] == 0, -1e4)
        return x + self.o((score.softmax(-1) @ value).transpose(1, 2).reshape(b, s, d)), key, value

class Decoder(nn.Module):
    '''One token at a time. With a lag, the position falls behind by one every so many tokens; with a
    period, the last cache is written one position off every so many.'''
    def __init__(self, lag=0, period=0):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.at, self.head = nn.Embedding(50, 16), nn.Embedding(128, 16), nn.Linear(16, 50)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.lag, self.period = lag, period
    def forward(self, input_ids, attention_mask, past_k0, past_v0, past_k1, past_v1):
        past = past_k0.shape[2]
        x = self.embed(input_ids)
        x = x + self.at.weight[past - past // self.lag if self.lag else past]
        x, k0, v0 = self.blocks[0](x, past_k0, past_v0, attention_mask)
        x, k1, v1 = self.blocks[1](x, past_k1, past_v1, attention_mask)
        if self.period:
            off = past // self.period
            k1 = torch.cat([k1[:, :, off:], k1[:, :, :off]], 2)
        return {"logits": self.head(x), "k0": k0, "v0": v0, "k1": k1, "v1": v1}

class Streaming(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gru, self.head = nn.GRU(8, 16, num_layers=2, batch_first=True), nn.Linear(16, 4)
    def forward(self, frame, hidden):
        out, hidden = self.gru(frame, hidden)
        return {"out": self.head(out), "state": hidden}

def _export(module, example, path):
    names = ["input_ids", "attention_mask", *PAST]
    axes = {name: {0: "batch", 2: "past"} for name in PAST}
    torch.onnx.export(
        module.eval(), tuple(example[name] for name in names), str(path), dynamo=False,
        input_names=names, output_names=["logits", *PRESENT],
        dynamic_axes=axes | {"input_ids": {0: "batch"}, "attention_mask": {0: "batch", 1: "all"}},
    )

def right(module, example, path):
    _export(module, example, path)
def lagging(module, example, path):
    _export(Decoder(lag=4), example, path)
def misplaced(module, example, path):
    _export(Decoder(period=6), example, path)
"""
DECODER = """
  {name}:
    model: models.py:Decoder
    inputs:
      attention_mask: {{dtype: int64, shape: [batch, past + 1], range: [0, 1]}}
      input_ids: {{dtype: int64, shape: [batch, 1], range: [0, 49]}}
      past_k0: float32[batch, 2, past, 8]
      past_v0: float32[batch, 2, past, 8]
      past_k1: float32[batch, 2, past, 8]
      past_v1: float32[batch, 2, past, 8]
    dims: {{past: [0, 2], batch: [2]}}
    export: {{exporter: models.py:{name}, example: {{past: 3}}}}
    suites: [some]
    steps:
      count: {count}
      carry: {{past_k0: k0, past_v0: v0, past_k1: k1, past_v1: v1}}
      feed: {{input_ids: argmax(logits)}}
"""
MANIFEST = """
version: 1
suites: {some: {random: normal, count: 1}}
models:
  streaming:
    model: models.py:Streaming
    inputs: {frame: "float32[batch, 3, 8]", hidden: "float32[2, batch, 16]"}
    dims: {batch: [1, 3]}
    export: {exporter: torchscript}
    steps: {count: 16, carry: {hidden: state}}
"""


@pytest.fixture(scope="module")
def report(once: Callable[..., Path]) -> Report:
    def fill(folder: Path) -> None:
        (folder / "models.py").write_text(MODELS)
        decoders = [DECODER.format(name=n, count=c) for n, c in COUNTS.items()]
        (folder / "onnx-gate.yml").write_text(MANIFEST + "".join(decoders))
        run = gate("run", "--no-cache", "--remedies", "0", cwd=folder)
        assert run.returncode == 1, run.stdout + run.stderr

    return read_report(once("steps", fill) / "onnx-gate-report" / "report.json")


COUNTS = {"right": 32, "lagging": 8, "misplaced": 8}


def _of(report: Report, name: str) -> ModelResult:
    return next(model for model in report.models if model.name == name)


def _check(model: ModelResult, past: int, output: str) -> Check:
    return next(c for c in model.checks if c.sizes["past"] == past and c.output == output)


def test_a_decoder_chooses_the_same_tokens(report: Report) -> None:
    model = _of(report, "right")
    assert model.verdict == "pass", model
    for past in (0, 2):
        steps = _check(model, past, "logits").steps
        assert steps is not None
        assert steps.tokens is not None
        assert (steps.tokens.same, steps.tokens.of) == (64, 64)
        assert len(steps.errors) == 32
        assert max(steps.errors) < 2e-6
    measured = _check(model, 0, "k1").steps
    assert measured is not None
    assert all(each is not None for each in measured.rounding)
    assert "32 steps: logits " in sentence(model)
    assert "PyTorch's own rounding" in sentence(model)
    assert by_step(model) is not None


def test_a_hidden_state_comes_back(report: Report) -> None:
    model = _of(report, "streaming")
    assert model.verdict == "pass", model
    states = [c for c in model.checks if c.output == "state" and c.steps is not None]
    assert states
    assert all(c.steps and len(c.steps.errors) == 16 for c in states)
    assert not any(c.steps for c in model.checks if c.suite == "edges")


@pytest.mark.parametrize(
    ("name", "past", "step", "output"),
    [
        # The position is wrong once four tokens are in the cache.
        ("lagging", 0, 5, "logits"),
        ("lagging", 2, 3, "logits"),
        # The cache is off by one once six are, and what is chosen only one step later.
        ("misplaced", 0, 7, "k1"),
        ("misplaced", 2, 5, "k1"),
    ],
)
def test_a_fault_is_placed_at_its_step(
    report: Report, name: str, past: int, step: int, output: str
) -> None:
    model = _of(report, name)
    assert model.verdict == "diverged"
    check = _check(model, past, output)
    assert check.verdict == "diverged"
    assert check.steps is not None
    assert check.steps.at == step
    assert check.reason.startswith(f"at step {step} of 8: ")
    assert max(check.steps.errors[: step - 1]) < 2e-6 < 1e-3 < check.steps.errors[step - 1]
    own = [c for c in model.checks if c.sizes["past"] == past and c.runtime == check.runtime]
    assert min(c.steps.at for c in own if c.steps and c.verdict == "diverged") == step


def test_the_diagnosis_looks_into_the_first_bad_step(report: Report) -> None:
    diagnosis = _of(report, "misplaced").diagnosis
    assert diagnosis is not None
    # On PyTorch's inputs of that step nothing but the misplaced cache is wrong.
    assert (diagnosis.output, diagnosis.blame) == ("k1", "exporter")
    assert _check(_of(report, "misplaced"), 2, "k0").verdict == "pass"
