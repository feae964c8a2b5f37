"""Dotted inputs, caches, ranges that name a dimension, and masks of outputs, in the manifest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.guard import loosened
from onnx_gate.manifest import InputSpec, Manifest, ModelSpec
from onnx_gate.manifest.load import load
from onnx_gate.manifest.nesting import above, below, leaves, parts, trees
from onnx_gate.verify.inputs.sizes import at_sizes

Read = Callable[..., ModelSpec]
IDS = "ids: {dtype: int64, shape: [batch, seq], range: [0, 9]}"
EDGES = "x: 'float32[nodes, 4]', e: {dtype: int64, shape: [2, edges], range: [0, nodes - 1]}"


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[..., Manifest]:
    def read(inputs: str, more: str = "") -> Manifest:
        (tmp_path / "models.py").write_text("")
        path = tmp_path / "onnx-gate.yml"
        entry = f"{{model: models.py:Net, inputs: {{{inputs}}}{more and ', '}{more}}}"
        path.write_text(f"version: 1\nmodels:\n  net: {entry}\n")
        return load(path)

    return read


@pytest.fixture
def read(manifest: Callable[..., Manifest]) -> Read:
    return lambda *args: manifest(*args).models[0]


def test_names_make_a_tree() -> None:
    made = trees(["x", "past.1.v", "past.0.k", "past.0.v", "past.1.k", "batch.image", "in.1"])
    assert list(made) == ["x", "past", "batch", "in.1"]
    assert list(leaves(made["past"])) == ["past.0.k", "past.0.v", "past.1.v", "past.1.k"]
    assert parts("a..b") == ("a..b",)
    assert parts("onnx::x.1") == ("onnx::x.1",)
    assert below("past.1", ["past.1.k", "past.10.k", "past", "past.1"]) == ("past.1.k", "past.1")
    assert above("past.0.k") == ("past.0.k", "past.0", "past")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("a.0: 'float32[2]', a.2: 'float32[2]'", "there is no a.1"),
        ("b: 'float32[2]', b.x: 'float32[2]'", "b is a tensor here, and holds others as well"),
        ("c.0: 'float32[1]', c.k: 'float32[1]'", "c holds numbers and names"),
        ("p: {cache: dynamc, layers: 1, shape: [1, 2, 3, 4]}", "did you mean 'dynamic'?"),
        ("p: {cache: static, layers: 1, shape: [1, 2, 3, 4]}", "use cache: dynamic"),
        ("p: {cache: dynamic, layers: 0, shape: [1, 2, 3, 4]}", "must be at least 1, found 0"),
        ("p: {cache: dynamic, layers: 1, shape: [1, 2, 3]}", "has 4 dimensions"),
        ("p: {cache: encoder_decoder, layers: 1, shape: [1, 2, 3, 4]}", "needs 'encoder_shape'"),
        (
            "p: {cache: dynamic, layers: 1, shape: [1, 2, 3, 4], value_shape: [3]}",
            "the value shape of",
        ),
        (
            "p: {cache: dynamic, layers: 1, shape: [1, 2, p, 4], value_shape: [1, 2, q, 8]}",
            "differ in their last size alone, the head size; found [1, 2, p, 4] and [1, 2, q, 8]",
        ),
        (
            "p: {cache: encoder_decoder, layers: 1, shape: [1, 2, 3, 4], value_shape: [1, 2, 3, 5], "
            "encoder_shape: [1, 2, 3, 4]}",
            "'value_shape' belongs to cache: dynamic",
        ),
        ("p: {cache: dynamic, layers: 1, shape: [1, 2, 3, 4], range: [0, 1]}", "unknown key"),
        ("p: {cach: dynamic, layers: 1, shape: [1, 2, 3, 4]}", "did you mean 'cache'?"),
        (
            "p: {cache: dynamic, layers: 1, shape: [1, 2, 3, 4]}, p.0.key: 'float32[1]'",
            "p.0.key is one of the cache p already",
        ),
        (EDGES.replace("nodes - 1", "node - 1"), "'node', and no input has such a dimension; did"),
        (EDGES.replace("nodes - 1", "nodes ** 2"), "neither a number nor computed"),
        (EDGES.replace("int64", "float32"), "only the range of an integer input may name"),
        (EDGES.replace("[0,", "[0.5,"), "needs integers; write [0, nodes - 1]"),
        ("text: 'string[1]'", "PyTorch has no tensors of text"),
    ],
)
def test_what_cannot_be_is_a_mistake(read: Read, inputs: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(inputs)
    assert message in str(caught.value)
    assert "onnx-gate.yml:3:" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("dims: {nodes: [1, 5]}", ""),
        ("dims: {nodes: [2, 5]}, call: {x: 1}", "also one of the inputs"),
        ("outputs: {y: {where: m}}", "no input is called 'm'"),
        ("outputs: {y: {where: x, mismatch: 0.1}}", "'mismatch' alone does not say"),
        ("outputs: {y: {wher: x}}", "did you mean 'where'?"),
    ],
)
def test_the_rest_of_the_entry_goes_with_the_inputs(read: Read, more: str, message: str) -> None:
    if not message:
        read(EDGES, more)
        return
    with pytest.raises(UserError) as caught:
        read(EDGES, more)
    assert message in str(caught.value)


def test_a_range_must_hold_something_at_every_size(read: Read) -> None:
    narrow = EDGES.replace("nodes - 1", "nodes - 3")
    with pytest.raises(UserError, match=r"the range is \[0, -1\] where nodes is 2"):
        read(narrow, "dims: {nodes: [2, 5]}")
    # The usual sizes that would leave nothing are not tried.
    assert read(narrow).dims["nodes"] == (7,)
    spec = read(EDGES).inputs["e"]
    assert at_sizes(spec, {"nodes": 4, "edges": 1}).range == (0, 3)
    assert at_sizes(spec, {"nodes": 0, "edges": 1}).range == (0, 0)


def test_a_cache_is_its_tensors(read: Read) -> None:
    model = read("past: {cache: dynamic, layers: 2, shape: [batch, 2, past, 4]}")
    names = ["past.0.key", "past.0.value", "past.1.key", "past.1.value"]
    assert model.inputs == dict.fromkeys(names, InputSpec("float32", ("batch", 2, "past", 4)))
    assert model.caches == {"past": "dynamic"}
    both = read(
        "past: {cache: encoder_decoder, layers: 1, dtype: float16, shape: [b, 2, past, 4], "
        "encoder_shape: [b, 2, source, 4]}"
    )
    shapes = {name: each.shape[2] for name, each in both.inputs.items()}
    assert shapes == {
        "past.0.decoder.key": "past",
        "past.0.decoder.value": "past",
        "past.0.encoder.key": "source",
        "past.0.encoder.value": "source",
    }
    assert {each.dtype for each in both.inputs.values()} == {"float16"}
    latent = read(
        "past: {cache: dynamic, layers: 2, shape: [b, 1, past, 16], value_shape: [b, 1, past, 8]}"
    )
    assert [each.shape[3] for each in latent.inputs.values()] == [16, 8, 16, 8]


def test_a_mask_is_no_tolerance_and_loosens(manifest: Callable[..., Manifest]) -> None:
    base = manifest(IDS, "outputs: {y: {atol: 1}}")
    head = manifest(IDS, "outputs: {y: {atol: 1, where: ids}}")
    assert head.models[0].outputs == base.models[0].outputs
    assert head.models[0].where == {"y": "ids"}
    (change,) = loosened(base, head)
    assert change.message == "output 'y': judged everywhere → only where 'ids' is not 0"
    assert not loosened(head, base)
    alone = manifest(IDS, "outputs: {y: {where: ids}}").models[0]
    assert alone.outputs == {"y": None}
