"""What an audit proposes, put into the text of a manifest: comments stay, or nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.change import Change, changed, written
from onnx_gate.manifest.load import load_bytes

TIGHT = Change("tolerance", {"auto": 10.0})
DRAWN = Change("suites", {"random": "normal", "count": 3})
SIZES = Change("dims.batch", [1, 2, 7])
RANGE = Change("inputs.x.range", [-8.0, 8.0])
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
def test_the_text_means_what_was_tried(change: Change) -> None:
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
        Change("model", "os:system"),
        Change("tolerance", 3),
        Change("suites", {"files": "/etc/*"}),
        Change("dims.batch", ["x"]),
        Change("inputs.nobody.range", [0, 1]),
    ],
    ids=str,
)
def test_a_change_of_another_kind_is_refused(change: Change) -> None:
    """What a worker reports comes from a model's process: nothing else gets into the manifest."""
    with pytest.raises(UserError):
        written(MANIFEST % "    suites: [mine]", PATH, "first", [change])


def test_names_that_look_like_yaml_are_quoted() -> None:
    text = (
        MANIFEST.replace("x: float32[batch, 3]", '"on": {dtype: float32, shape: [batch, 3]}') % ""
    )
    new = written(text, PATH, "first", [Change("inputs.on.range", [0, 1])])
    assert meaning(new)["first"].inputs["on"].range == (0.0, 1.0)
