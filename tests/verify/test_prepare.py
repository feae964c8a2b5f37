"""How often a module is called, and what its calls bring to light."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.load import load
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.build import build
from onnx_gate.verify.context import Context
from onnx_gate.verify.determinism import call_once, repeat
from onnx_gate.verify.export.gradients import WITHOUT
from onnx_gate.verify.exporting import export_prepared
from onnx_gate.verify.prepare import Prepared, prepare, restore_after_export

MODELS = """
import torch

CALLS = []

class Steady(torch.nn.Module):
    def forward(self, x):
        CALLS.append(1)
        return x * 2

class Toggling(torch.nn.Module):
    '''Every second call answers alike, which two calls with an odd number between them miss.'''
    turn = 0

    def forward(self, x):
        CALLS.append(1)
        self.turn = 1 - self.turn
        return x * self.turn

class Buffered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x * self.count

class Global(torch.nn.Module):
    '''Nothing of the module shows that it counts.'''
    def forward(self, x):
        CALLS.append(1)
        return x + len(CALLS)

class Derived(torch.nn.Module):
    def forward(self, x):
        x = x.requires_grad_(True)
        return torch.autograd.grad((x * x).sum(), x)[0]

class DerivedWithin(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh())

    def forward(self, x):
        with torch.enable_grad():
            y = x.detach().clone().requires_grad_(True)
            return torch.autograd.grad(self.net(y).sum(), y)[0]

class Changed(torch.nn.Module):
    '''What exporting does to some models.'''
    factor = 2

    def forward(self, x):
        return x * self.factor
"""


def _prepared(folder: Path, name: str) -> tuple[ModelSpec, Context, Prepared]:
    (folder / "models.py").write_text(MODELS)
    entry = f'{{model: "models.py:{name}", inputs: {{x: "float32[batch, 2]"}}}}'
    (folder / "onnx-gate.yml").write_text(f"version: 1\nmodels:\n  net: {entry}\n")
    spec = load(folder / "onnx-gate.yml").models[0]
    context = Context(workspace=folder, folder=folder / "out")
    return spec, context, prepare(spec, context, build(spec, folder).module)


def _calls(prepared: Prepared) -> int:
    return len(prepared.eager.module.forward.__globals__["CALLS"])


def test_one_call_before_the_export_and_one_after(tmp_path: Path) -> None:
    spec, context, prepared = _prepared(tmp_path, "Steady")
    assert _calls(prepared) == 1
    assert restore_after_export(spec, context, prepared) is prepared
    assert _calls(prepared) == 2
    assert prepared.agrees_still() == ""


@pytest.mark.parametrize("name", ["Toggling", "Buffered"])
def test_a_trace_of_the_first_call_is_followed_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(GateError, match="called twice") as caught:
        _prepared(tmp_path, name)
    assert caught.value.code == "OG106"


def test_gradients_inside_of_forward_are_said_to_be_none_of_a_graph(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="the gate calls it without gradients") as caught:
        _prepared(tmp_path, "Derived")
    assert caught.value.code == "OG105"
    assert "gradients inside forward cannot be exported" in caught.value.remedy
    assert "suite" not in caught.value.remedy


def test_a_model_without_traces_is_caught_by_the_call_after_the_export(tmp_path: Path) -> None:
    spec, context, prepared = _prepared(tmp_path, "Global")
    with pytest.raises(GateError, match="disagrees with itself") as caught:
        restore_after_export(spec, context, prepared)
    assert caught.value.code == "OG106"


def test_a_model_that_the_export_has_changed_is_built_again(tmp_path: Path) -> None:
    spec, context, prepared = _prepared(tmp_path, "Changed")
    prepared.eager.module.factor = 3
    fresh = restore_after_export(spec, context, prepared)
    assert fresh.eager.module is not prepared.eager.module
    assert [finding.code for finding in fresh.findings] == ["OG109"]
    assert fresh.agrees_still() == ""
    answer = torch.from_numpy(fresh.eager.run(prepared.example).arrays[0])
    assert torch.equal(answer, torch.from_numpy(prepared.example["x"]) * 2)


class Coin(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randint(0, 2, (1,))


def tossed(seed: int) -> list[int]:
    torch.manual_seed(seed)
    return [int(torch.randint(0, 2, (1,))) for _ in range(3)]


def test_what_is_drawn_may_come_out_alike_twice_and_is_still_told_of() -> None:
    seed = next(s for s in range(100) if (t := tossed(s))[0] == t[1] != t[2])
    eager, inputs = Eager(Coin(), ("x",), None, {}), {"x": np.ones(1, np.float32)}
    torch.manual_seed(seed)
    call = call_once(eager, inputs)
    with pytest.raises(GateError, match="it draws random numbers from torch, with randint"):
        repeat(eager, inputs, call)


def test_where_an_export_fails_of_gradients_the_line_that_asks_for_them_is_said(
    tmp_path: Path,
) -> None:
    spec, context, prepared = _prepared(tmp_path, "DerivedWithin")
    with pytest.raises(GateError, match=r"forward asks for gradients \(models.py:\d+\)") as caught:
        export_prepared(spec, context, prepared)
    assert caught.value.code == "OG207"
    assert caught.value.remedy == WITHOUT
