"""Sizes that nobody named: what they are chosen by, and the faults that only they show."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from onnx_gate.findings import codes
from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.manifest.roles import default_sizes, roles
from onnx_gate.manifest.values.shapes import parse
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.inputs.cases import cases
from onnx_gate.verify.inputs.example import example_sizes
from onnx_gate.verify.inputs.sizes import CHEAP_ELEMENTS, elements, larger, tried_sizes
from onnx_gate.verify.reach.sizes import DIVISORS, FEW, MOST, distant_sizes, further_sizes, leaving
from tests.support.gate import gate, run_few


def inputs_of(**texts: str) -> dict[str, InputSpec]:
    parsed = {name: parse(text) for name, text in texts.items()}
    return {
        name: InputSpec(dtype, shape, (0, 9) if "int" in dtype else None)
        for name, (dtype, shape) in parsed.items()
    }


def spec_of(dims: dict[str, tuple[int, ...]] | None = None, **texts: str) -> ModelSpec:
    inputs = inputs_of(**texts)
    sizes = {**default_sizes(inputs), **(dims or {})}
    return ModelSpec("m", "m.py:m", inputs, dims=sizes, named_dims=frozenset(dims or ()))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"image": "float32[batch, 3, h, w]"}, {"h": "pixels", "w": "pixels"}),
        ({"image": "uint8[batch, 3, a, b]"}, {"batch": "batch", "a": "pixels", "b": "pixels"}),
        ({"x": "float32[n, height, width, 3]"}, {"n": "batch", "height": "pixels"}),
        ({"x": "float32[3, size, size]"}, {"size": "pixels"}),
        ({"image": "float32[batch, 1, 32, width]"}, {"batch": "batch", "width": "pixels"}),
        ({"x": "float32[batch, 1, 32, a]"}, {"a": "pixels"}),
        ({"x": "float32[batch, 1, h, 48]"}, {"h": "pixels"}),
        ({"x": "float32[batch, 1, 22, samples]"}, {"samples": "samples"}),
        ({"k": "float32[batch, 8, 64, past]"}, {"past": "positions"}),
        ({"x": "float32[n, 1, d, h, w]"}, {"d": "frames", "h": "pixels", "w": "pixels"}),
        ({"ids": "int64[batch, seq]", "mask": "bool[batch, seq]"}, {"seq": "positions"}),
        ({"ids": "int64[batch, a]", "bias": "float32[batch, 8, a, a]"}, {"a": "positions"}),
        ({"q": "float32[batch, 8, q_len, kv_len]"}, {"q_len": "positions", "kv_len": "positions"}),
        ({"cache": "float32[batch, 8, past, 64]"}, {"past": "positions"}),
        ({"x": "float32[batch, a, 256]"}, {"batch": "batch", "a": "positions"}),
        ({"x": "float32[seq, batch, 256]", "h": "float32[1, batch, 8]"}, {"batch": "batch"}),
        ({"mel": "float32[batch, 80, a]"}, {"a": "frames"}),
        ({"mel": "float32[batch, frames, 80]"}, {"frames": "frames"}),
        ({"mel": "float32[n, frames, 80]", "mask": "int64[n, frames]"}, {"frames": "frames"}),
        ({"x": "float32[batch, samples]"}, {"samples": "samples"}),
        ({"waveform": "float32[batch, a]"}, {"a": "samples"}),
        ({"x": "float32[batch, a]"}, {"a": "count"}),
        ({"points": "float32[batch, a, 3]"}, {"a": "positions"}),
        ({"x": "float32[nodes, 16]", "edges": "int64[2, edges]"}, {"nodes": "count"}),
    ],
)
def test_what_a_dimension_is_shows_in_shapes_and_dtypes(
    texts: dict[str, str], expected: dict[str, str]
) -> None:
    known = roles(inputs_of(**texts))
    assert {name: known[name] for name in expected} == expected


def test_sizes_that_the_manifest_names_are_the_only_ones() -> None:
    dims: dict[str, tuple[int, ...]] = {"batch": (1, 4), "h": (24, 48), "w": (24, 40)}
    spec = spec_of(dims, image="float32[batch, 3, h, w]")
    assert {name: {sizes[name] for sizes in tried_sizes(spec)} for name in dims} == {
        name: set(sizes) for name, sizes in dims.items()
    }
    assert any(sizes["h"] == sizes["w"] for sizes in tried_sizes(spec))
    half = spec_of({"batch": (1,)}, image="float32[batch, 3, h, w]")
    assert {sizes["batch"] for sizes in tried_sizes(half)} == {1}
    assert {"batch": 1, "h": 47, "w": 61} in tried_sizes(half)


def test_larger_sizes_are_tried_where_they_are_cheap() -> None:
    small = spec_of(x="float32[batch, 3, 32, 32]")
    assert [sizes["batch"] for sizes in larger(small)] == [17]
    assert larger(spec_of(x="float32[batch, 3, 224, 224]")) == ()
    # A longer sequence costs no more than the largest batch of the usual ones does.
    wide = spec_of(x="float32[batch, seq, 4096]")
    assert {"batch": 1, "seq": 64} in larger(wide)
    assert elements(wide.inputs, {"batch": 1, "seq": 64}) > CHEAP_ELEMENTS


def test_three_dimensions_are_once_all_alike() -> None:
    spec = spec_of(x="float32[a, b, c]")
    assert any(len(set(sizes.values())) == 1 for sizes in tried_sizes(spec))
    assert any(len(set(sizes.values())) == 3 for sizes in tried_sizes(spec))


def test_values_are_tried_at_the_cheapest_sizes_and_large_ones_once() -> None:
    spec = spec_of({"batch": (1, 2, 8)}, image="float32[batch, 3, 224, 224]")
    example = next(example_sizes(spec))
    made = [*cases(spec, example, Path()), *cases(spec, example, Path(), advice=True)]
    number = {size: sum(case.sizes["batch"] == size for case in made) for size in (0, 1, 2, 8)}
    assert number == {0: 1, 1: 2 + 5 + 3, 2: 1, 8: 1}
    # A few elements show nothing.
    few = spec_of(x="float32[batch, 4]")
    edges = [case for case in cases(few, next(example_sizes(few)), Path()) if case.edge]
    assert {case.sizes["batch"] for case in edges} == {7}
    assert not any(math.prod(case.arrays["x"].shape) < 28 for case in edges)


MODELS = """
import torch
import torch.nn.functional as F
from torch import nn

class Square(nn.Module):
    def __init__(self, faulty):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3, padding=1)
        self.faulty = faulty
    def forward(self, image):
        y = self.conv(image)
        if self.faulty and image.shape[2] == image.shape[3]:
            y = y * 2
        return y

class Long(nn.Module):
    def __init__(self, faulty):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.faulty = faulty
    def forward(self, ids):
        y = self.embed(ids)
        if self.faulty and ids.shape[1] > 16:
            y = y / ids.shape[1]
        return y

class Strided(nn.Module):
    # A single frame is left of seven, and torch.export takes for granted that one always is.
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 9, stride=8, padding=4)
    def forward(self, features):
        y = self.conv(features.transpose(1, 2)).transpose(1, 2)
        b, t, _ = y.shape
        heads = y.reshape(b, t, 2, 4).transpose(1, 2) * 2
        return y + heads.transpose(1, 2).reshape(b, -1, 8)

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.last = nn.ConvTranspose2d(8, 3, 2, stride=2)
    def forward(self, image):
        a = self.down(image)
        b = self.up(self.deep(a).relu())
        return self.last(torch.cat([a, b], 1))

class Chunked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, wave):
        length = wave.shape[1]
        if length % 8:
            wave = F.pad(wave, (0, 8 - length % 8))
        return self.linear(wave.reshape(wave.shape[0], -1, 8)).flatten(1)

class Even(nn.Module):
    # Asks before there is an operator, whose line the graph could have.
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 2, 2), nn.ConvTranspose2d(8, 1, 2, 2)
    def forward(self, image):
        if image.shape[2] % 2 == 1:
            image = image[:, :, 1:]
        return self.up(self.down(image))
"""
IDS = "{dtype: int64, shape: [batch, seq], range: [0, 9]}"
IMAGE = '"float32[batch, 3, height, width]"'
EVEN = 'model: "models.py:Even", inputs: {image: "float32[batch, 3, height, 16]"}'
CHUNKED = 'model: "models.py:Chunked", inputs: {wave: "float32[batch, samples]"}'
MANIFEST = f"""
version: 1
models:
  square: {{model: "models.py:Square", args: [true], inputs: {{image: {IMAGE}}}}}
  square-twin: {{model: "models.py:Square", args: [false], inputs: {{image: {IMAGE}}}}}
  long: {{model: "models.py:Long", args: [true], inputs: {{ids: {IDS}}}}}
  long-twin: {{model: "models.py:Long", args: [false], inputs: {{ids: {IDS}}}}}
  strided: {{model: "models.py:Strided", inputs: {{features: "float32[batch, length, 4]"}}}}
  unet: {{model: "models.py:UNet", inputs: {{image: {IMAGE}}}}}
  chunked: {{{CHUNKED}, dims: {{samples: [800, 1600]}}}}
  even: {{{EVEN}, dims: {{height: [8, 16, 32]}}}}
  chunked-both: {{{CHUNKED}, dims: {{samples: [800, 1600, 1601]}}}}
  chunked-chosen: {{{CHUNKED}, dims: {{samples: [800]}}, export: {{example: {{samples: 801}}}}}}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "models.py").write_text(MODELS)
    (folder / "onnx-gate.yml").write_text(MANIFEST)
    run = gate("run", "--output", "out", "--no-cache", "--remedies", "0", cwd=folder)
    assert run.returncode == 1, run.stderr
    return {m.name: m for m in read_report(folder / "out" / "report.json").models}


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestRealModels:
    @pytest.mark.parametrize(
        ("name", "sizes"),
        [("square", {"height=32,width=32"}), ("long", {"seq=2", "seq=7"})],
    )
    def test_a_branch_on_a_size_is_seen(
        self, models: dict[str, ModelResult], name: str, sizes: set[str]
    ) -> None:
        wrong = [c for c in models[name].checks if c.verdict == "diverged" and not c.advice]
        own = {c.case for c in wrong if c.suite == "typical"}
        assert {case.split("/")[1].partition(",")[2] for case in own} == sizes
        # What is reached beside them is wrong at the sizes of the fault, too, and at no other.
        if name == "long":
            reached = {c.sizes["seq"] for c in wrong if c.suite == "reached"}
            assert max(reached) == 16
        assert models[f"{name}-twin"].verdict == "pass"

    def test_an_export_is_for_lengths_that_are_used(self, models: dict[str, ModelResult]) -> None:
        assert models["strided"].verdict == "pass"
        (bound,) = [f for f in codes.OG116.among(models["long"].findings) if "sizes" in f.data]
        assert (bound.data["dimension"], bound.data["sizes"]) == ("seq", [17, 48])
        assert "dims: {seq: [17, 48]}" in bound.message

    def test_a_network_that_halves_its_input_is_compared(
        self, models: dict[str, ModelResult]
    ) -> None:
        passed = {c.case.split("/")[1] for c in models["unet"].checks if c.verdict == "pass"}
        assert models["unet"].verdict == "pass"
        assert {f.severity for f in codes.OG116.among(models["unet"].findings)} <= {"note"}
        assert {"batch=2,height=32,width=64", "batch=7,height=64,width=32"} < passed

    def test_an_example_that_breaks_every_tested_size_is_replaced(
        self, models: dict[str, ModelResult]
    ) -> None:
        assert models["chunked"].verdict == "pass"
        (note,) = codes.OG116.among(models["chunked"].findings)
        assert note.severity == "note"
        assert "samples is no multiple of 8" in note.message
        assert "export: {example: {batch: 2, samples: 1600}}" in note.message

    def test_what_is_asked_before_there_is_an_operator_is_a_condition(
        self, models: dict[str, ModelResult]
    ) -> None:
        assert models["even"].verdict == "pass"
        (note,) = codes.OG116.among(models["even"].findings)
        assert "height" in note.message

    def test_sizes_on_both_sides_of_a_condition_are_the_model_s_own_fault(
        self, models: dict[str, ModelResult]
    ) -> None:
        both = models["chunked-both"]
        wrong = {c.case for c in both.checks if c.verdict == "diverged"}
        assert both.verdict == "diverged"
        assert all("samples=1601" in case for case in wrong)
        assert "error" in {f.severity for f in codes.OG116.among(both.findings)}

    def test_an_example_that_the_manifest_chooses_is_kept(
        self, models: dict[str, ModelResult]
    ) -> None:
        assert models["chunked-chosen"].verdict == "diverged"


def test_each_long_dimension_has_its_turn_at_a_number_before_the_next_number() -> None:
    spec = spec_of(x="float32[batch, time]", y="float32[batch, words]")
    base = {"batch": 2, "time": 8, "words": 8}
    tried = [sizes for _, sizes, _ in further_sizes(spec, (200, 300), base)]
    first = [max(("time", "words"), key=lambda dim: sizes[dim]) for sizes in tried[:4]]
    assert first == ["time", "words", "time", "words"]
    assert [max(sizes.values()) for sizes in tried[:4]] == [302, 302, 202, 202]


def test_what_no_case_was_beyond_is_gone_far_beyond() -> None:
    spec = spec_of(x="float32[batch, time]")
    tried = [
        s["time"]
        for _, s, named in further_sizes(spec, (30, 512), {"batch": 2, "time": 8})
        if named
    ]
    assert 1025 in tried
    assert 61 not in tried


def test_a_number_that_two_sides_come_to_together_is_gone_beyond() -> None:
    spec = spec_of(image="float32[batch, 3, height, width]")
    base = {"batch": 1, "height": 8, "width": 8}
    tried = [sizes for _, sizes, named in further_sizes(spec, (100, 90_000), base) if named]
    assert [sizes for sizes in tried if sizes["height"] == sizes["width"]] == [
        {"batch": 1, "height": 301, "width": 301}
    ]
    assert not any(max(sizes.values()) > 2**16 for sizes in tried)


@pytest.mark.parametrize(
    ("tested", "least"), [({1, 2, 7, 64}, 1), ({32, 47, 64}, 32), ({16, 64, 101}, 16)]
)
def test_few_sizes_leave_every_remainder_of_small_divisors(tested: set[int], least: int) -> None:
    more = [*leaving(tested, least, DIVISORS)]
    every = {*tested, *more}
    assert len(more) <= MOST
    assert {*more} <= {*range(least, least + 2 * 32)}
    assert all({size % d for size in every} == {*range(d)} for d in FEW)
    assert {size % 16 for size in every} >= {0, 1, 7, 8, 9, 15}
    assert {size % 32 for size in every} >= {0, 1, 15, 16, 17, 31}


def test_strides_are_divisors_as_far_as_sizes_have_two_of_them() -> None:
    tested = {1600, 2401, 4000}
    assert {s % 160 for s in leaving(tested, 1600, (160,))} >= {79, 80, 81, 159}
    assert [*leaving(tested, 1600, (2001,))] == []
    spec = spec_of(image="float32[batch, 3, height, width]")
    base = {"batch": 1, "height": 8, "width": 8}
    rest = [sizes for _, sizes, named in further_sizes(spec, (), base) if not named]
    assert {sizes["height"] % 4 for sizes in rest} == {*range(4)}
    assert sum(sizes["height"] == sizes["width"] for sizes in rest) < len(rest) / 2
    assert all(sizes["batch"] <= 8 for sizes in rest)
    # A size that the manifest names is kept.
    named = spec_of({"height": (32,)}, image="float32[batch, 3, height, width]")
    assert {sizes["height"] for _, sizes, _ in further_sizes(named, (), base)} == {8}


def test_a_distant_length_is_that_of_each_side_and_of_all_together() -> None:
    spec = spec_of(image="float32[batch, 3, height, width]")
    base = {"batch": 2, "height": 8, "width": 8}
    assert [sizes for _, sizes in distant_sizes(spec, (1027,), base)] == [
        {"batch": 2, "height": 1027, "width": 8},
        {"batch": 2, "height": 8, "width": 1027},
        {"batch": 2, "height": 33, "width": 33},
    ]
    assert not [*distant_sizes(spec_of({"seq": (8,)}, x="float32[batch, seq]"), (9,), {"seq": 8})]


LIMITED = """
import torch

class Limited(torch.nn.Module):
    def forward(self, x):
        assert x.shape[1] <= 12, "too long"
        return x * 2 + x.mean(1, keepdim=True)
"""


@pytest.mark.slow
def test_what_asserts_has_no_other_branch(tmp_path: Path) -> None:
    entry = 'model: models.py:Limited, inputs: {x: "float32[batch, seq, 4]"}, dims: {seq: [3, 14]}'
    (bound,) = codes.OG116.among(run_few(tmp_path, LIMITED, {"limited": entry})["limited"].findings)
    assert "(models.py:6) refuses others in PyTorch, and the graph does not ask" in bound.message
    assert "branch" not in bound.message
