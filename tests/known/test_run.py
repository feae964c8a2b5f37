"""A run names the fault that its red models fail of, and nothing where somebody else is at fault."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.gate import gate, run_few

pytestmark = pytest.mark.process

MODELS = """\
import torch
from torch import nn

class Masked(nn.Module):
    def forward(self, x, mask):
        return (1.0 - mask) * x

class Reduced(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
    def forward(self, x):
        index = torch.zeros_like(x, dtype=torch.int64)
        return torch.scatter_reduce(x, 0, index, x, self.how) + 1.0

class Floored(nn.Module):
    def forward(self, x):
        return (x - 50) // 7

def mean():
    return Reduced("mean")

def total():
    return Reduced("sum")

def wrong(model, inputs, path):
    model.how = "amax"
    torch.onnx.export(model, inputs, path, dynamo=False, opset_version=18)
    model.how = "sum"
"""
X = 'inputs: {x: "float32[3, 4]"}'
MASK = "{dtype: int64, shape: [3, 4], range: [0, 1]}"
WHOLE = "inputs: {x: {dtype: int64, shape: [8], range: [0, 99]}}"
ENTRIES = {
    "masked": f'model: "models.py:Masked", inputs: {{x: "float32[3, 4]", mask: {MASK}}}',
    "mean": f'model: "models.py:mean", {X}',
    "wrong": f'model: "models.py:total", {X}, export: {{exporter: "models.py:wrong"}}',
    "floored": f'model: "models.py:Floored", {WHOLE}, export: {{exporter: torchscript}}',
}

FIXED = """\
import torch
from torch import nn

class Spread(nn.Module):
    def forward(self, x):
        return x / x.norm(dim=1, keepdim=True).expand(x.shape)

class Turned(nn.Module):
    def forward(self, x):
        return x.reshape(x.shape[0], 5, 6).transpose(1, 2).softmax(1)

def fixed(model, inputs, path):
    torch.onnx.export(model, (), path, kwargs=inputs, dynamo=True, verbose=False)

class Other(Turned):
    def forward(self, x):
        return x.reshape(x.shape[0], 5, 6).transpose(1, 2).softmax(2)

def other(model, inputs, path):
    shapes = {"x": {0: "batch"}}
    torch.onnx.export(Other(), (), path, kwargs=inputs, dynamo=True, verbose=False, dynamic_shapes=shapes)
"""


def test_an_issue_is_short_and_runs_whatever_the_engine_does(tmp_path: Path) -> None:
    entries = {
        name: f'model: "models.py:{kind}", inputs: {{x: "float32[batch, {width}]"}}, '
        f'export: {{exporter: "models.py:{name}"}}'
        for name, kind, width in (("fixed", "Spread", 4), ("other", "Turned", 30))
    }
    found = run_few(tmp_path, FIXED, entries)
    assert {model.verdict for model in found.values()} == {"diverged"}
    for name in found:
        issue = gate("report", "onnx-gate-report", "--issue", "--model", name, cwd=tmp_path)
        assert issue.returncode == 0, issue.stderr
        script = re.findall(r"```python\n(.*?)\n```", issue.stdout, re.S)[0]
        assert len(script.splitlines()) <= 15
        # Arrays of any size are told in a few lines: those of the worst places.
        assert len(issue.stdout.splitlines()) <= 70
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        actual = issue.stdout.partition("## Actual")[2]
        assert ("does not load" in actual) == (done.returncode != 0), done.stderr


STACK = """\
import torch
from torch import nn

class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)
    def forward(self, x):
        y = self.mix(x)
        index = torch.zeros_like(y, dtype=torch.int64)
        return torch.scatter_reduce(y, 0, index, y, self.how()) + 1.0
    def how(self):
        return "mean"

# Another choice in its file, which is none of the book's.
class Mute(Step):
    def how(self):
        return "amin" if torch.compiler.is_exporting() else "amax"

class Stack(nn.Module):
    def __init__(self, kind=Step):
        super().__init__()
        self.layers = nn.ModuleList([kind(), kind()])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def mute():
    return Stack(Mute)
"""


def test_a_fault_inside_of_a_block_is_linked(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = {
        f"layers.{n}.mix.{name}": torch.rand(shape, generator=generator)
        for n in (0, 1)
        for name, shape in (("weight", (4, 4)), ("bias", (4,)))
    }
    save_file(weights, tmp_path / "stack.safetensors")
    blocks = f"{X}, weights: stack.safetensors, verify: blocks"
    entries = {
        "stack": f'model: "models.py:Stack", {blocks}',
        "mute": f'model: "models.py:mute", {blocks}',
    }
    found = run_few(tmp_path, STACK, entries)
    assert {model.verdict for model in found.values()} == {"diverged"}
    known = {n: m.diagnosis.known for n, m in found.items() if m.diagnosis is not None}
    assert known["stack"] is not None
    assert known["stack"].link.endswith("onnxscript/pull/582")
    assert known["mute"] is None


def test_a_red_model_is_linked_and_is_filed(tmp_path: Path) -> None:
    found = run_few(tmp_path, MODELS, ENTRIES)
    links = {
        name: "/".join(known.link.split("/")[4:])
        for name, model in found.items()
        for known in (
            model.error.known if model.error else None,
            model.diagnosis.known if model.diagnosis else None,
        )
        if known is not None
    }
    assert {name: model.verdict for name, model in found.items()} == {
        "masked": "error",
        "mean": "diverged",
        "wrong": "diverged",
        "floored": "diverged",
    }
    assert links == {
        "masked": "pytorch/issues/194381",
        "mean": "onnxscript/pull/582",
        "floored": "pytorch/issues/44692",
    }
    shown = gate("report", "onnx-gate-report/report.json", cwd=tmp_path).stdout
    assert "known: a Python number less a tensor of integers is not promoted" in shown
    issue = gate("report", "onnx-gate-report", "--issue", "--model", "mean", cwd=tmp_path)
    assert issue.returncode == 0, issue.stderr
    assert "https://github.com/microsoft/onnxscript/issues." in issue.stdout
    onnx_script, torch_script = re.findall(r"```python\n(.*?)\n```", issue.stdout, re.S)[:2]
    assert all(len(each.splitlines()) <= 15 for each in (onnx_script, torch_script))
    assert "torch.ops.aten.scatter_reduce.two(*(x, 0, zeros_like, x, 'mean'))" in torch_script
    done = subprocess.run([sys.executable, "-c", torch_script], capture_output=True, text=True)
    expected, actual = re.findall(r"tensor\((\[\[.*?\]\])", done.stdout, re.S)
    assert expected != actual, done.stdout
    refused = gate("report", "onnx-gate-report", "--model", "mean", cwd=tmp_path)
    assert refused.returncode == 2
