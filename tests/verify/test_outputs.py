"""What models return: taken apart as torch.export does, with numbers, caches and odd classes."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree

from onnx_gate.errors import GateError
from onnx_gate.report.model import ModelResult
from onnx_gate.runtimes.outputs import describe, leaves
from onnx_gate.runtimes.torch_eager import Eager
from tests.support.gate import run_few

X, Y = torch.zeros(2), torch.ones(2)


@dataclasses.dataclass
class Plain:
    logits: Any
    loss: Any = None
    steps: int = 3


class Keyless(dict[str, Any]):
    """As the output classes of diffusers and of transformers 4: a mapping, registered without keys."""


pytree.register_pytree_node(
    Keyless,
    lambda value: (list(value.values()), list(value)),
    lambda children, keys: Keyless(zip(keys, children, strict=True)),
    serialized_type_name="tests.Keyless",
)


class Layer:
    def __init__(self, keys: Any, values: Any) -> None:
        self.keys, self.values = keys, values


class Recurrence:
    def __init__(self) -> None:
        self.conv_states, self.recurrent_states = {0: X}, {0: Y}


class Cache:
    def __init__(self, *layers: Layer | Recurrence) -> None:
        self.layers = list(layers)


class OldCache:
    def __init__(self) -> None:
        self.key_cache, self.value_cache = [X, X], [Y, Y]


class Both:
    def __init__(self) -> None:
        self.self_attention_cache, self.cross_attention_cache = Cache(Layer(X, Y)), OldCache()


Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (X, ["output"]),
        ((X, None, [Y]), ["0", "2.0"]),
        ({"a": X, "b": {"c": Y}}, ["a", "b.c"]),
        (Plain(X), ["logits", "steps"]),
        (Plain(Plain(X), Y), ["logits.logits", "logits.steps", "loss", "steps"]),
        (Keyless(logits=X, hidden=(X, Y)), ["logits", "hidden.0", "hidden.1"]),
        (Pair(X, {"y": Y}), ["first", "second.y"]),
        ((X, 2, 2.5, True, "text"), ["0", "1", "2", "3", "4"]),
        ((X, Cache(Layer(X, Y), Layer(None, None))), ["0", "1.0.key", "1.0.value"]),
        (Cache(Recurrence()), ["0.conv.0", "0.recurrent.0"]),
        (OldCache(), ["0.key", "0.value", "1.key", "1.value"]),
        (
            Both(),
            [
                *(
                    f"0.{half}.{part}"
                    for half in ("decoder", "encoder")
                    for part in ("key", "value")
                ),
                *(f"1.encoder.{part}" for part in ("key", "value")),
            ],
        ),
    ],
)
def test_every_leaf_has_a_name(value: object, names: list[str]) -> None:
    assert [name for name, _ in leaves(value)] == names


def test_what_holds_itself_is_an_error() -> None:
    value: list[Any] = [X]
    value.append(value)
    with pytest.raises(GateError, match="holds itself"):
        leaves(value)


class BucketsCache:
    """As Reformer's: of a shape of its own."""


class Buckets(torch.nn.Module):
    def forward(self, x: torch.Tensor, use_cache: bool = True) -> tuple[Any, ...]:
        return (x, BucketsCache()) if use_cache else (x,)


class Unasked(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
        return x, BucketsCache()


@pytest.mark.parametrize(
    ("module", "constants", "named"),
    [(Buckets(), {}, True), (Buckets(), {"use_cache": True}, True), (Unasked(), {}, False)],
)
def test_a_cache_that_cannot_be_taken_apart_may_be_left_out_where_forward_can_be_asked(
    module: torch.nn.Module, constants: dict[str, Any], named: bool
) -> None:
    x = {"x": np.zeros(2, np.float32)}
    with pytest.raises(GateError, match=r"BucketsCache at 1, which neither") as caught:
        Eager(module, ["x"], constants=constants).run(x)
    assert caught.value.code == "OG107"
    assert ("leave it out, call: {use_cache: false}" in caught.value.message) is named
    if isinstance(module, Buckets):
        without = Eager(module, ["x"], constants={"use_cache": False}).run(x)
        assert without.names == ("0",)


@pytest.mark.parametrize(
    ("declared", "names", "numbers"),
    [
        (None, ["y", "h", "w"], {"h", "w"}),
        (["y"], ["y", "h", "w"], {"h", "w"}),
        (["logits"], ["logits", "h", "w"], {"h", "w"}),
        (["logits", "height", "width"], ["logits", "height", "width"], {"height", "width"}),
        (["w", "h", "y"], ["y", "h", "w"], {"h", "w"}),
    ],
)
def test_numbers_may_be_named_or_not(
    declared: list[str] | None, names: list[str], numbers: set[str]
) -> None:
    returned = describe({"y": X, "h": 3, "w": 4, "note": "text"}, declared)
    assert list(returned.names.values()) == names
    assert returned.numbers == numbers
    assert returned.strings == {"note": "text"}


def test_another_number_of_names_is_an_error() -> None:
    with pytest.raises(GateError, match=r"names 2 outputs .* returns 3: y, h, w"):
        describe({"y": X, "h": 3, "w": 4}, ["a", "b"])


MODELS = '''
import math
import torch

class Sized(torch.nn.Module):
    def forward(self, x):
        height, width = x.shape[1:]
        return x * 2, height, width, 8

class Baked(torch.nn.Module):
    """The root is taken in Python, so it is a constant of the graph, and left out of it."""
    def forward(self, x):
        return x * 2, math.sqrt(float(x.detach().numpy().shape[1]))

class Swapped(torch.nn.Module):
    def forward(self, x):
        height, width = x.shape[1:]
        return x * 2, width, height

def swapped(module, inputs, path):
    torch.onnx.export(
        Swapped(), tuple(inputs.values()), str(path), dynamo=False, input_names=["x"],
        dynamic_axes={"x": {0: "batch", 1: "height", 2: "width"}},
    )

class Pair(torch.nn.Module):
    def forward(self, x):
        height, width = x.shape[1:]
        return x * 2, height, width
'''
ENTRIES = {
    "dynamo": "Sized",
    "torchscript": "Sized, export: {exporter: torchscript}",
    "named": "Sized, outputs: [image, height, width, scale]",
    "named_ts": "Sized, outputs: [image, height, width, scale], export: {exporter: torchscript}",
    "tensors_named": "Sized, outputs: [image]",
    "baked": "Baked, export: {exporter: torchscript}",
    "swapped": 'Pair, export: {exporter: "models.py:swapped"}',
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("outputs")
    entries = {
        name: f"model: models.py:{entry}, inputs: {{x: 'float32[batch, height, width]'}}"
        for name, entry in ENTRIES.items()
    }
    return run_few(folder, MODELS, entries)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "outputs", "constant"),
    [
        ("dynamo", {"0", "1", "2"}, "3"),
        ("torchscript", {"0", "1", "2"}, "3"),
        ("named", {"image", "height", "width"}, "scale"),
        ("named_ts", {"image", "height", "width"}, "scale"),
        ("tensors_named", {"image", "1", "2"}, "3"),
    ],
)
def test_numbers_that_depend_on_sizes_are_outputs(
    results: dict[str, ModelResult], name: str, outputs: set[str], constant: str
) -> None:
    model = results[name]
    assert model.verdict == "pass", model
    assert {check.output for check in model.checks} == outputs
    notes = [f.message for f in model.findings if f.code == "OG115"]
    assert len(notes) == 1
    assert f"output {constant} is a Python number that is always the same (8)" in notes[0]


@pytest.mark.slow
def test_a_number_that_the_graph_lacks_and_that_varies_fails(
    results: dict[str, ModelResult],
) -> None:
    model = results["baked"]
    assert model.verdict == "diverged"
    finding = next(f for f in model.findings if f.code == "OG115")
    assert finding.severity == "error"
    assert "output 1 is a Python number that depends on the inputs" in finding.message


@pytest.mark.slow
def test_numbers_are_compared(results: dict[str, ModelResult]) -> None:
    model = results["swapped"]
    assert model.verdict == "diverged"
    assert {c.output for c in model.checks if c.verdict == "diverged"} == {"1", "2"}
