"""Inputs that hold several tensors: how they are put together, exported, fed and diagnosed."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.errors import GateError
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from onnx_gate.runtimes.binding import bind
from tests.support.gate import gate


@dataclasses.dataclass
class Batch:
    image: Tensor
    masks: list[Tensor]
    extra: Tensor | None = None


class Pair(NamedTuple):
    key: Tensor
    value: Tensor | None = None


class Encoding(collections.UserDict[str, Any]):
    pass


class Settled:
    def __init__(self, image: Tensor, *, scale: Tensor) -> None:
        self.image, self.scale = image, scale


def _call(forward: Any, *names: str) -> Any:
    """Return what ``forward`` gets where each input is its own name."""
    module = type("Net", (nn.Module,), {"forward": forward})()
    args, kwargs = bind(module, names).split({name: name for name in names})
    return module.forward(*args, **kwargs)


def _of_class(self: Any, batch: Batch | None = None, x: Any = None) -> Any:
    return batch, x


def _of_pairs(self: Any, past: tuple[Pair, ...]) -> Any:
    return past


def _of_text(self: Any, batch: Batch, other: NoSuchThing) -> Any:  # type: ignore[name-defined]  # noqa: F821
    return batch, other


def test_a_class_is_made_of_its_fields() -> None:
    batch, x = _call(_of_class, "x", "batch.masks.0", "batch.image", "batch.masks.1")
    assert batch == Batch("batch.image", ["batch.masks.0", "batch.masks.1"])  # type: ignore[arg-type,list-item]
    assert x == "x"
    assert _call(_of_pairs, "past.0.key", "past.1.value", "past.1.key") == (
        Pair("past.0.key"),  # type: ignore[arg-type]
        Pair("past.1.key", "past.1.value"),  # type: ignore[arg-type]
    )
    batch, other = _call(_of_text, "batch.image", "batch.masks.0", "other.a")
    assert isinstance(batch, Batch)
    assert other == {"a": "other.a"}


@pytest.mark.parametrize(
    ("annotation", "names", "expected"),
    [
        (None, ("a.x", "a.y"), {"x": "a.x", "y": "a.y"}),
        (None, ("a.0", "a.1"), ["a.0", "a.1"]),
        (tuple[Tensor, Tensor], ("a.0", "a.1"), ("a.0", "a.1")),
        (Sequence[Tensor], ("a.0",), ["a.0"]),
        (Mapping[str, Pair], ("a.x.key",), {"x": Pair("a.x.key")}),  # type: ignore[arg-type]
        (list[dict[str, tuple[Tensor, ...]]], ("a.0.k.0",), [{"k": ("a.0.k.0",)}]),
        (Encoding, ("a.ids",), Encoding(ids="a.ids")),
        (Tensor | Encoding, ("a.ids",), Encoding(ids="a.ids")),
        (int | None, ("a.x",), {"x": "a.x"}),
        (Pair, ("a.0", "a.1"), Pair("a.0", "a.1")),  # type: ignore[arg-type]
    ],
)
def test_the_annotation_says_which_container(
    annotation: Any, names: tuple[str, ...], expected: Any
) -> None:
    def forward(self: Any, a: Any) -> Any:
        return a

    if annotation is not None:
        forward.__annotations__["a"] = annotation
    got = _call(forward, *names)
    assert got == expected
    assert type(got) is type(expected)


def test_a_default_says_it_too_and_any_class_that_takes_the_names() -> None:
    def forward(self: Any, hidden: Any = (), settled: Settled | None = None) -> Any:
        return hidden, settled

    hidden, settled = _call(forward, "hidden.0", "settled.scale", "settled.image")
    assert hidden == ("hidden.0",)
    assert isinstance(settled, Settled)
    assert settled.scale == "settled.scale"


def test_every_call_gets_its_own_containers() -> None:
    class Growing(nn.Module):
        def forward(self, past: list[Tensor], x: Tensor) -> list[Tensor]:
            past.append(x)
            return past

    binding = bind(Growing(), ["past.0", "x"])
    values = {"past.0": torch.zeros(1), "x": torch.ones(1)}
    for _ in range(2):
        args, kwargs = binding.split(values)
        assert len(Growing()(*args, **kwargs)) == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("batch.imge", "batch.masks.0"),
            "Batch has the fields image, masks, extra (is it batch.image?)",
        ),
        (("batch.image",), "Batch needs batch.masks among the inputs as well"),
        (("btch.image", "x"), "forward has no parameter 'btch' (is it 'batch'?)"),
        (("image", "x"), "forward has no parameter 'image'"),
    ],
)
def test_names_that_do_not_fit_are_errors(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(GateError) as caught:
        _call(_of_class, *names)
    assert message in caught.value.message


def test_what_belongs_into_a_container_is_said_to() -> None:
    def forward(self: Any, batch: Any) -> Any:
        return batch

    with pytest.raises(GateError) as caught:
        _call(forward, "image", "mask")
    assert "batch.image" in caught.value.message
    assert "too many positional" not in caught.value.message


# --- whole models ---------------------------------------------------------------------------------

MODELS = """
from typing import Tuple
import torch
from torch import nn
import numpy as np

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)

    def forward(self, batch, items: tuple[torch.Tensor, ...], *, scale=1.0):
        assert isinstance(items, tuple) and isinstance(batch, dict)
        image = self.layer(batch["image"]) * scale
        return {"y": image + items[0], "rest": [item * 2 for item in items]}

class Filling(nn.Module):
    def forward(self, cache: dict, x):
        cache["k"][:, -1:] = x
        return cache["k"].softmax(1) @ torch.ones(4), cache

class Streaming(nn.Module):
    def forward(self, x, hidden):
        hidden = torch.tanh(x + hidden)
        return {"y": hidden * 2, "hidden": hidden}

def scripted():
    class Pair(nn.Module):
        def forward(self, x, state: Tuple[torch.Tensor, torch.Tensor]):
            return x + state[0] * state[1]
    return torch.jit.script(Pair().eval())

class Scaled(Reader):
    def forward(self, batch, items, *, scale=1.0):
        hidden = super().forward(batch, tuple(items), scale=scale)
        return torch.relu(hidden["y"]) + hidden["rest"][0].exp()

class Lookup(nn.Module):
    def forward(self, x, edges):
        return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])

class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.bag = nn.EmbeddingBag(30, 6, mode="sum", include_last_offset=True)

    def forward(self, bags):
        return self.bag(bags["ids"], bags["offsets"])

def cases(inputs, seed):
    assert list(inputs) == ["bags.ids", "bags.offsets"]
    for step in (2, 4):
        yield {"bags.ids": np.arange(8), "bags.offsets": np.array([0, step, 8])}

def by_position(module, example, path):
    torch.onnx.export(module, tuple(example.values()), str(path), dynamo=False,
        input_names=list(example), dynamic_axes={"batch.image": {0: "n"}, "items.0": {0: "n"}})

def with_its_own_arguments(module, example, path):
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module
        def forward(self, image, item):
            return self.inner({"image": image}, (item,), scale=7.0)
    torch.onnx.export(Wrapper(), tuple(example.values()), str(path), dynamo=False,
        input_names=list(example), dynamic_axes={"batch.image": {0: "n"}, "items.0": {0: "n"}})
"""
READER = (
    "model: models.py:Reader, call: {scale: 2.5}, "
    "inputs: {items.0: 'float32[n, 3]', items.1: 'float32[k]', batch.image: 'float32[n, 4]'}"
)
SCALED = (
    "model: models.py:Scaled, call: {scale: 2.5}, "
    "inputs: {items.0: 'float32[n, 3]', batch.image: 'float32[n, 4]'}"
)
STREAMING = "model: models.py:Streaming, inputs: {x: 'float32[b, 4]', hidden: 'float32[b, 4]'}"
ENTRIES = {
    "reader": READER,
    "reader_ts": f"{READER}, export: {{exporter: torchscript}}",
    "stored": f"{SCALED}, suites: [stored]",
    "own": f"{SCALED}, export: {{exporter: 'models.py:by_position'}}",
    "wrong": f"{SCALED}, export: {{exporter: 'models.py:with_its_own_arguments'}}",
    "streaming": f"{STREAMING}, outputs: {{y: {{atol: 1.0e-5}}}}",
    "streaming_ts": f"{STREAMING}, export: {{exporter: torchscript}}",
    "scripted": (
        "model: models.py:scripted, export: {exporter: torchscript}, "
        "inputs: {x: 'float32[n, 4]', state.0: 'float32[n, 4]', state.1: 'float32[4]'}"
    ),
    "filling": "model: models.py:Filling, inputs: {cache.k: 'float32[b, 5, 4]', x: 'float32[b, 1, 4]'}",
    "lookup": (
        "model: models.py:Lookup, inputs: {x: 'float32[nodes, 4]', "
        "edges: {dtype: int64, shape: [2, edges], range: [0, nodes - 1]}}"
    ),
    "bags": (
        "model: models.py:Bags, suites: [bags], inputs: {"
        "bags.ids: {dtype: int64, shape: [n], range: [0, 29]}, "
        "bags.offsets: {dtype: int64, shape: [m], range: [0, n]}}"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nested")
    (folder / "models.py").write_text(MODELS)
    rng = np.random.default_rng(0)
    np.savez(
        folder / "case.npz",
        **{  # type: ignore[arg-type]
            "batch.image": rng.normal(size=(3, 4)).astype(np.float32),
            "items.0": rng.normal(size=(3, 3)).astype(np.float32),
        },
    )
    lines = [f"  {name}: {{{entry}}}" for name, entry in ENTRIES.items()]
    (folder / "onnx-gate.yml").write_text(
        "version: 1\nsuites: {stored: {files: case.npz}, bags: {generator: 'models.py:cases'}}\n"
        "dims: {n: [1, 3]}\nmodels:\n" + "\n".join(lines)
    )
    finished = gate("run", "--no-cache", "--remedies", "0", cwd=folder)
    assert (folder / "onnx-gate-report" / "report.json").exists(), finished.stderr
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, ModelResult]:
    report = read_report(folder / "onnx-gate-report" / "report.json")
    return {model.name: model for model in report.models}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in ENTRIES if name != "wrong"])
def test_a_model_with_containers_passes(results: dict[str, ModelResult], name: str) -> None:
    model = results[name]
    assert model.verdict == "pass", model
    assert not [finding for finding in model.findings if finding.severity == "error"]
    assert "OG110" not in {finding.code for finding in model.findings}
    outputs = {check.output for check in model.checks if check.output != "*"}
    if name.startswith("reader"):
        assert outputs == {"y", "rest.0", "rest.1"}
    if name.startswith("streaming"):
        assert outputs == {"y", "hidden"}
    if name == "lookup":
        assert {check.sizes["nodes"] for check in model.checks} >= {1, 2, 7}


@pytest.mark.slow
def test_a_file_with_dotted_names_is_diagnosed_and_replayed(
    folder: Path, results: dict[str, ModelResult]
) -> None:
    model = results["wrong"]
    assert model.verdict == "diverged"
    assert model.diagnosis is not None
    assert model.diagnosis.blame == "exporter"
    assert model.diagnosis.node is not None
    assert model.diagnosis.repro is not None
    repro = folder / "onnx-gate-report" / model.diagnosis.repro
    assert gate("replay", str(repro), cwd=folder).returncode == 1
