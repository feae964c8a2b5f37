"""What an audit proposes, put into the text of a manifest: comments stay, or nothing is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.change import KeyChange, changed, tolerance_data, written
from onnx_gate.manifest.load import load_bytes

TIGHT = KeyChange("tolerance", {"auto": 10.0})
DRAWN = KeyChange("suites", {"random": "normal", "count": 3})
SIZES = KeyChange("dims.batch", [1, 2, 7])
RANGE = KeyChange("inputs.x.range", [-8.0, 8.0])
EVERY = (TIGHT, DRAWN, SIZES, RANGE)
PATH = Path("onnx-gate.yml")

MANIFEST = """\
version: 1   # the only one
suites:
  mine: {edges: [zeros]}
models:
  # the model of the shop
  first:
    model: package.models:first   # built in 2026
    inputs:
      x: float32[batch, 3]  # prices
%s
  second:
    model: package.models:second
    inputs: {y: "float32[batch, 3]"}
    dims: {batch: [1]}  # all that there is
"""


def meaning(text: str) -> dict[str, ModelSpec]:
    return {spec.name: spec for spec in load_bytes(text.encode(), PATH, on_disk=True).models}


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "    tolerance: {atol: 0.1}  # generous\n    suites: [mine]  # fast\n    dims: {batch: [1]}",
        "    suites:\n      # one is enough\n      - mine  # fast\n\n    dims:\n      batch: [1]  # one",
        "    tolerance:\n      atol: 0.1\n      rtol: 0.1\n    seed: 3",
        "    suites:\n    - mine",
    ],
)
def test_changes_keep_every_comment(entry: str) -> None:
    text = MANIFEST % entry
    new = written(text, PATH, "first", EVERY)
    for line in text.splitlines():
        _, mark, comment = line.partition("#")
        assert mark + comment in new
    specs = meaning(new)
    spec = specs["first"]
    assert spec.tolerance.auto == 10.0
    assert spec.tolerance.atol is None
    assert spec.dims["batch"] == (1, 2, 7)
    assert spec.inputs["x"].range == (-8.0, 8.0)
    assert "random" in spec.suites
    assert specs["second"].dims["batch"] == (1,)
    # What is not about the changes is as it was, byte for byte.
    assert new.startswith(text[: text.index("    inputs:")])
    assert new.endswith(text[text.index("  second:") :])


@pytest.mark.parametrize("change", EVERY, ids=lambda change: change.key)
def test_the_text_means_what_was_tried(change: KeyChange) -> None:
    text = MANIFEST % "    suites: [mine]"
    before = meaning(text)["first"]
    after = meaning(written(text, PATH, "first", [change]))["first"]
    assert after.suites == changed(before, change).suites
    assert after.tolerance == changed(before, change).tolerance
    assert (after.dims, after.inputs) == (
        changed(before, change).dims,
        changed(before, change).inputs,
    )


@pytest.mark.parametrize(
    ("entry", "change", "line"),
    [
        ("", KeyChange("export", {"exporter": "dynamo"}), "    export: {exporter: dynamo}"),
        (
            "    export:\n      exporter: torchscript\n      opset: 17",
            KeyChange("export", {"exporter": "torchscript"}),
            "    export: {exporter: torchscript}",
        ),
        (
            "    runtimes: [onnxruntime, reference]",
            KeyChange("engines.onnxruntime", {"optimization": "basic"}),
            "    runtimes: [{name: onnxruntime, optimization: basic}, reference]",
        ),
        (
            "    runtimes:\n      - name: onnxruntime  # ours\n        provider: cpu",
            KeyChange("engines.onnxruntime:cpu", {"session_options": {"a.b": "1"}}),
            '        session_options: {"a.b": "1"}',
        ),
        ("", KeyChange("inputs.x.dtype", "float64"), '      x: "float64[batch, 3]"  # prices'),
    ],
)
def test_a_remedy_is_one_line_that_means_what_was_tried(
    entry: str, change: KeyChange, line: str
) -> None:
    text = MANIFEST % entry
    new = written(text, PATH, "first", [change])
    assert line in new.splitlines()
    before, after = meaning(text)["first"], meaning(new)["first"]
    assert replace(after, line=0) == replace(changed(before, change), line=0)


@pytest.mark.parametrize(
    "entry",
    [
        "    dims: &sizes {batch: [1]}",
        "    tolerance: {atol: 0.1,\n      # why\n      rtol: 0.1}",
    ],
)
def test_what_cannot_be_written_is_refused_with_what_to_write(entry: str) -> None:
    text = MANIFEST % entry
    if "&sizes" in entry:
        text = text.replace("dims: {batch: [1]}", "dims: *sizes")
    with pytest.raises(UserError, match=r"write by hand: tolerance: \{auto: 10\}; suites"):
        written(text, PATH, "first", EVERY)


@pytest.mark.parametrize(
    "change",
    [
        KeyChange("model", "os:system"),
        KeyChange("tolerance", 3),
        KeyChange("tolerance", {"atoll": 3}),
        KeyChange("tolerance", {}),
        KeyChange("outputs.a", {"auto": -1}),
        KeyChange("runtimes.nobody", {"auto": 4}),
        KeyChange("waivers.7.ceiling", 1),
        KeyChange("suites", {"files": "/etc/*"}),
        KeyChange("dims.batch", ["x"]),
        KeyChange("inputs.nobody.range", [0, 1]),
    ],
    ids=str,
)
def test_a_change_of_another_kind_is_refused(change: KeyChange) -> None:
    """What a worker reports comes from a model's process: nothing else gets into the manifest."""
    with pytest.raises(UserError):
        written(MANIFEST % "    suites: [mine]", PATH, "first", [change])


OUTPUT = KeyChange("outputs.b", {"auto": 4.0})
RUNTIME = KeyChange("runtimes.openvino", {"atol": 0.01})
CEILING = KeyChange("waivers.1.ceiling", 0.25)
WAIVERS = """\
    waivers:
      - {check: "edges/*", until: 2099-01-01, reason: first}
      - check: typical/*  # until the next release
        until: 2099-01-01
        reason: second"""


@pytest.mark.parametrize(
    ("change", "entry", "line"),
    [
        (OUTPUT, "", "outputs: {b: {auto: 4}}"),
        (OUTPUT, "    outputs: [a, b]  # two", "outputs: {a: null, b: {auto: 4}}  # two"),
        (OUTPUT, "    outputs: {a: {atol: 1}, b: }", "outputs: {a: {atol: 1}, b: {auto: 4} }"),
        (OUTPUT, "    outputs:\n      b: {where: x, auto: 9}", "b: {auto: 4, where: x}"),
        (OUTPUT, "    outputs:\n      a:\n      # the other\n      b:\n", "b: {auto: 4}"),
        (
            RUNTIME,
            "    runtimes:\n      - onnxruntime  # here\n      - openvino  # there",
            "- {name: openvino, tolerance: {atol: 0.01}}  # there",
        ),
        (
            RUNTIME,
            "    runtimes: [onnxruntime, {name: openvino, tolerance: {auto: 50}}]",
            "{name: openvino, tolerance: {atol: 0.01}}]",
        ),
        (CEILING, WAIVERS, "reason: second\n        ceiling: 0.25"),
    ],
)
def test_a_tolerance_of_one_output_or_runtime(change: KeyChange, entry: str, line: str) -> None:
    text = MANIFEST % entry
    before = meaning(text)
    after = written(text, PATH, "first", [change])
    assert line in after
    for mark in (line for line in text.splitlines() if "#" in line):
        assert mark[mark.index("#") :] in after
    first = changed(before["first"], change)
    assert (first.outputs, first.runtimes, first.waivers, first.where) == tuple(
        getattr(meaning(after)["first"], key) for key in ("outputs", "runtimes", "waivers", "where")
    )
    assert replace(meaning(after)["second"], line=0) == replace(before["second"], line=0)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_ends_of_lines_stay(mark: str) -> None:
    text = mark + (MANIFEST % "    suites: [mine]").replace("\n", "\r\n")
    new = written(text, PATH, "first", EVERY)
    assert new.count("\n") == new.count("\r\n") > text.count("\n")
    assert new.startswith(mark + "version")
    assert meaning(new) == meaning(new.replace("\r\n", "\n"))


def test_what_the_defaults_say_of_runtimes_is_written_into_the_entry() -> None:
    defaults = "defaults:\n  runtimes: [onnxruntime, {name: openvino, device: CPU}]\nmodels:"
    text = (MANIFEST % "").replace("models:", defaults, 1)
    change = KeyChange("runtimes.openvino:CPU", {"auto": 4.0})
    after = written(text, PATH, "first", [change])
    assert (
        "runtimes: [{name: onnxruntime}, {name: openvino, device: CPU, tolerance: {auto: 4}}]"
        in after
    )
    assert meaning(after)["second"].runtimes[1].tolerance is None


def test_a_tolerance_keeps_what_it_does_not_change() -> None:
    """A sharper tolerance is no looser one: what is asked of indices stays."""
    text = MANIFEST % "    tolerance: {cosine: 0.9, indices: exact, topk: {k: 5, agreement: 0.9}}"
    spec = meaning(text)["first"]
    change = KeyChange("tolerance", {**tolerance_data(spec.tolerance), "cosine": 0.99})
    assert meaning(written(text, PATH, "first", [change]))["first"].tolerance == replace(
        spec.tolerance, cosine=0.99
    )


def test_names_that_look_like_yaml_are_quoted() -> None:
    text = (
        MANIFEST.replace("x: float32[batch, 3]", '"on": {dtype: float32, shape: [batch, 3]}') % ""
    )
    new = written(text, PATH, "first", [KeyChange("inputs.on.range", [0, 1])])
    assert meaning(new)["first"].inputs["on"].range == (0.0, 1.0)
