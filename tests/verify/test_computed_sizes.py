"""Sizes that are computed from dynamic dimensions, from the manifest to the verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.errors import UserError
from onnx_gate.manifest import Manifest
from onnx_gate.manifest.dimensions import is_computed, names_of, normalised, size_of
from onnx_gate.manifest.load import load
from onnx_gate.report.model import ModelResult
from tests.support.gate import run_few

Load = Callable[..., Manifest]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    def load_text(inputs: str, dims: str = "{}") -> Manifest:
        (tmp_path / "models.py").write_text("")
        path = tmp_path / "onnx-gate.yml"
        path.write_text(
            f"version: 1\ndims: {dims}\nmodels:\n  net:\n    model: models.py:Net\n"
            f"    inputs: {inputs}\n"
        )
        return load(path)

    return load_text


@pytest.mark.parametrize(
    ("text", "shown", "names", "size"),
    [
        ("past+1", "past + 1", ("past",), 6),
        ("2*n", "2 * n", ("n",), 6),
        ("n // 2", "n // 2", ("n",), 1),
        ("(past - n) * 4", "(past - n) * 4", ("past", "n"), 8),
        ("n - past", "n - past", ("n", "past"), 0),
    ],
)
def test_a_size_has_a_value(text: str, shown: str, names: tuple[str, ...], size: int) -> None:
    assert normalised(text) == shown
    assert is_computed(shown)
    assert names_of(shown) == names
    assert size_of(shown, {"past": 5, "n": 3}) == size


@pytest.mark.parametrize(
    "text",
    ["3", "1 + 2", "a ** 2", "a.b", "f(a)", "a // 0", "a // b", "-a", "a if b else c", "a +"],
)
def test_anything_else_is_none(text: str) -> None:
    assert normalised(text) is None


@given(st.text("ab1230+-*/() .", max_size=40))
def test_no_text_raises_and_what_is_a_size_stays_one(text: str) -> None:
    shown = normalised(text)
    if shown is not None:
        assert normalised(shown) == shown
        assert size_of(shown, dict.fromkeys(names_of(shown), 2)) >= 0


def test_a_manifest_may_have_them(read: Load) -> None:
    inputs = "{x: 'float32[batch, past+1]', y: {dtype: float32, shape: [n // 2, 2*n]}}"
    (model,) = read(inputs).models
    assert model.inputs["x"].shape == ("batch", "past + 1")
    assert model.inputs["y"].shape == ("n // 2", "2 * n")
    assert set(model.dims) == {"batch", "past", "n"}
    # Of the usual sizes 1 would make nothing of n // 2.
    assert 1 in model.dims["batch"]
    assert min(model.dims["n"]) == 2


@pytest.mark.parametrize(
    ("inputs", "dims", "message"),
    [
        ("{x: 'float32[n - 2]'}", "{n: [2, 5]}", "n - 2 is 0 where n is 2; give n larger sizes"),
        ("{x: 'float32[n ** 2]'}", "{}", "a computed size is made of names and integers with"),
    ],
)
def test_what_cannot_be_is_a_mistake(read: Load, inputs: str, dims: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(inputs, dims)
    assert message in str(caught.value)


MODELS = '''
import torch

class Step(torch.nn.Module):
    """One step of a decoder: the mask covers what was and what comes."""

    def forward(self, token, past, mask):
        keys = torch.cat([past, token], 1)
        scores = (token @ keys.transpose(1, 2)).masked_fill(mask[:, None] == 0, -1e4)
        return scores.softmax(-1) @ keys, keys

class Halves(torch.nn.Module):
    def forward(self, x, y):
        return x[:, : y.shape[1]] * y
'''


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("computed")
    step = (
        "model: models.py:Step, inputs: {mask: {dtype: int64, shape: [batch, past + 1], "
        "range: [0, 1]}, token: 'float32[batch, 1, 8]', past: 'float32[batch, past, 8]'}"
    )
    halves = "model: models.py:Halves, inputs: {x: 'float32[2, n]', y: 'float32[2, n // 2]'}"
    entries = {
        "step": step,
        "step_ts": f"{step}, export: {{exporter: torchscript}}",
        "halves_ts": f"{halves}, export: {{exporter: torchscript}}",
    }
    return run_few(folder, MODELS, entries)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["step", "step_ts", "halves_ts"])
def test_a_model_is_verified_at_them(results: dict[str, ModelResult], name: str) -> None:
    model = results[name]
    assert model.verdict == "pass", model
    assert not [f for f in model.findings if f.severity != "note"]
