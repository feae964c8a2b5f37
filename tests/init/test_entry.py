"""The text of a manifest, and what is added to one."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.init.facts import Guess, Learned
from onnx_gate.init.manifest_text import added, entry, inputs, manifest, model_name, suite
from onnx_gate.manifest import yaml_source
from onnx_gate.manifest.load import load_bytes

LEARNED = Learned(
    "Model",
    {
        "x": Guess("float32", ("batch", 3, "height", "seq + 1")),
        "ids": Guess("int64", ("batch", "seq"), (0, 9)),
        "edges": Guess("int64", (2, "n"), (0, "batch - 1")),
    },
    dims={"height": (32, 64)},
    kwargs={"name": "no", "deep": {"a": [1, None, True]}},
    call={"scale": 0.5},
    recorded=("onnx-gate/net/*.npz",),
)
TEXT, CALLS = entry("net", "m.py:build", LEARNED), suite("net", LEARNED)


def test_a_new_manifest_means_what_was_learned() -> None:
    text = manifest(TEXT, CALLS, "requirements.txt")
    assert text.startswith("# yaml-language-server: $schema=https://")
    loaded = load_bytes(text.encode(), Path("onnx-gate.yml"))
    model = loaded.models[0]
    assert loaded.requirements == "requirements.txt"
    assert model.kwargs == LEARNED.kwargs
    assert model.call == {"scale": 0.5}
    assert list(model.suites) == ["typical", "edges", "net-calls"]
    assert {name: (g.dtype, g.shape, g.range) for name, g in LEARNED.inputs.items()} == {
        name: (spec.dtype, spec.shape, spec.range or spec.bounds)
        for name, spec in model.inputs.items()
    }


def test_layers_of_a_cache_are_one_entry() -> None:
    held = Guess("float32", ("batch", 2, "past", 8))
    names = [f"past.{layer}.{half}" for layer in range(2) for half in ("key", "value")]
    assert inputs(Learned("M", dict.fromkeys(names, held))) == [
        "past: {cache: dynamic, layers: 2, shape: [batch, 2, past, 8]}"
    ]
    other = Guess("float32", ("batch", 2, "past", 4))
    wide = {name: other if name.endswith("value") else held for name in names}
    assert inputs(Learned("M", wide)) == [
        "past: {cache: dynamic, layers: 2, shape: [batch, 2, past, 8], value_shape: [batch, 2, past, 4]}"
    ]
    # Of layers that are not alike each tensor has its line.
    assert len(inputs(Learned("M", {**wide, names[0]: other}))) == len(names)


@pytest.mark.parametrize(
    "old",
    [
        "version: 1\n# before\nmodels: # those\n  a: {model: m.py:a, inputs: {}} # one\n",
        "version: 1\nmodels:\n    a: &a\n        model: m.py:a\n        inputs: {}\n\n# last\n"
        "tolerances: {t: {auto: 5}}   # kept\n",
        "version: 1\nsuites:\n  s: {random: normal}\n\nmodels:\n  a:\n    model: m.py:a\n    inputs: {}",
    ],
)
def test_an_entry_is_added_and_nothing_else_changes(old: str) -> None:
    new = added(old, "net", TEXT, CALLS)
    kept = iter(new.splitlines())
    assert all(line in kept for line in old.splitlines()), "a line is gone, or elsewhere"
    before, after = yaml_source.read(old).data, yaml_source.read(new).data
    assert after["models"].pop("net")["model"] == "m.py:build"
    assert after.pop("suites") == {
        **before.pop("suites", {}),
        "net-calls": {"files": "onnx-gate/net/*.npz"},
    }
    assert after == before


@pytest.mark.parametrize(
    ("old", "words"),
    [
        ("version: 1\nmodels:\n  net: {model: m.py:a, inputs: {}}\n", "on line 3; choose another"),
        ("version: 1\nmodels: {a: {model: m.py:a, inputs: {}}}\n", "paste"),
    ],
)
def test_where_nothing_can_be_added(old: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        added(old, "net", TEXT, CALLS)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("models/resnet.py:build", "resnet"),
        ("transformers:BertModel", "bert-model"),
        ("pkg.nets.ranker:create_model", "ranker"),
        ("m.py:GPT2LMHead", "gpt2-lm-head"),
        ("m.py:outer.Net2", "net2"),
        ("files/ranker.pt", "ranker"),
    ],
)
def test_a_model_is_called_by_what_it_is(reference: str, name: str) -> None:
    assert model_name(reference) == name
