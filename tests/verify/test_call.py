"""Arguments of ``forward`` that are no tensors: ``call`` of the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from onnx_gate.errors import GateError, UserError
from onnx_gate.manifest.load import load
from onnx_gate.report.model import ModelResult
from onnx_gate.runtimes.binding import bind
from onnx_gate.runtimes.torch_eager import Eager
from tests.support.gate import run_few

MODELS = '''
import torch

class Modes(torch.nn.Module):
    """Without its arguments it computes something else, and refuses to."""

    def forward(self, x, factor=2, y=None, *, mode="none", **others):
        if mode == "none":
            raise ValueError("which mode?")
        scaled = x * factor if mode == "scale" else x + factor
        return scaled + others.get("shift", 0) - (y if y is not None else 0)

def forgetful(module, inputs, path):
    """An export script that calls the model with other arguments than the manifest."""
    class Scaled(torch.nn.Module):
        def forward(self, x):
            return module(x, factor=7, mode="scale", shift=1)
    torch.onnx.export(
        Scaled(), tuple(inputs.values()), str(path), dynamo=False, input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )
'''
CALL = "call: {mode: scale, factor: 5, shift: 1}"
TORCHSCRIPT = "export: {exporter: torchscript}"
TWO = "inputs: {y: 'float32[batch, 4]', x: 'float32[batch, 4]'}"
ONE = "inputs: {x: 'float32[batch, 4]'}"
ENTRIES = {
    "dynamo": f"{ONE}, {CALL}",
    "torchscript": f"{ONE}, {CALL}, {TORCHSCRIPT}",
    "two": f"{TWO}, {CALL}",
    "two_ts": f"{TWO}, {CALL}, {TORCHSCRIPT}",
    "without": ONE,
    "forgetful": f"{ONE}, {CALL}, export: {{exporter: 'models.py:forgetful'}}",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("call")
    entries = {name: f"model: models.py:Modes, {entry}" for name, entry in ENTRIES.items()}
    return run_few(folder, MODELS, entries)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["dynamo", "torchscript", "two", "two_ts"])
def test_every_call_has_them(results: dict[str, ModelResult], name: str) -> None:
    assert results[name].verdict == "pass", results[name]
    assert not results[name].findings


@pytest.mark.slow
def test_without_them_the_model_raises(results: dict[str, ModelResult]) -> None:
    error = results["without"].error
    assert error is not None
    assert "ValueError: which mode? (models.py:9)" in error.message


@pytest.mark.slow
def test_a_file_made_with_others_diverges_and_is_diagnosed(results: dict[str, ModelResult]) -> None:
    model = results["forgetful"]
    assert model.verdict == "diverged"
    assert model.diagnosis is not None
    assert model.diagnosis.blame == "exporter"


class Two(nn.Module):
    def forward(self, x: torch.Tensor, double: bool = False) -> torch.Tensor:
        return x * 2 if double else x


def test_they_are_passed_by_name() -> None:
    eager = Eager(Two(), ("x",), constants={"double": True})
    x = torch.ones(3).numpy()
    assert (eager.run({"x": x}).arrays[0] == 2).all()
    assert eager.binding.order == ("x",)


def test_a_name_that_is_no_parameter_is_an_error() -> None:
    with pytest.raises(GateError, match=r"no parameter .doubel. .is it .double.") as caught:
        bind(Two(), ("x",), {"doubel": True})
    assert caught.value.code == "OG104"


def test_an_input_cannot_be_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("")
    path = tmp_path / "onnx-gate.yml"
    path.write_text(
        "version: 1\nmodels:\n  net:\n    model: models.py:Two\n    call: {x: 1}\n"
        "    inputs: {x: 'float32[2]'}\n"
    )
    with pytest.raises(UserError, match=r"5:15: models\.net\.call\.x: also one of the inputs"):
        load(path)


class Rated(nn.Module):
    """Its constant stands before its input."""

    def forward(self, rate: int, x: torch.Tensor) -> torch.Tensor:
        if rate == 3:
            raise ValueError("no such rate")
        return x * rate


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_scripted_module_takes_constants_by_name_as_any_does() -> None:
    scripted = torch.jit.script(Rated())
    eager = Eager(scripted, ("x",), constants={"rate": 5})
    assert (eager.run({"x": torch.ones(3).numpy()}).arrays[0] == 5).all()
    # Without constants exporters call it by position.
    assert bind(scripted, ("x", "rate")).positional == ("rate", "x")
