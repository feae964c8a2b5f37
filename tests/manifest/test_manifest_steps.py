"""``steps`` in a manifest: what it means, each way to get it wrong, and what loosens it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.cache.key import key_of
from onnx_gate.errors import UserError
from onnx_gate.guard import loosened
from onnx_gate.manifest import Feed, Manifest, StepsSpec
from onnx_gate.manifest.load import load_bytes

MODEL = """\
version: 1
models:
  decoder:
    model: m.py:build
    inputs:
      ids: {{dtype: int64, shape: [batch, 1], range: [0, 9]}}
      past: {{cache: dynamic, layers: 1, shape: [batch, 2, past, 4]}}
    steps: {steps}
"""
GOOD = "{count: 16, carry: {past: present}, feed: {ids: argmax(logits)}}"
PATH = Path("onnx-gate.yml")
Read = Callable[[str], Manifest]


@pytest.fixture
def read() -> Read:
    return lambda steps: load_bytes(MODEL.format(steps=steps).encode(), PATH)


def test_what_is_fed_from_where(read: Read) -> None:
    assert read(GOOD).models[0].steps == StepsSpec(
        16, {"past": "present"}, {"ids": Feed("logits", argmax=True)}
    )
    feeds = read("{count: 2, feed: {ids: ids + 2, past.0.key: a.b}}").models[0].steps
    assert feeds == StepsSpec(2, {}, {"ids": Feed("ids", add=2), "past.0.key": Feed("a.b")})


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("{count: 1, carry: {past: y}}", "8:20: models.decoder.steps.count: must be at least 2"),
        ("{count: 999, carry: {past: y}}", "steps.count: must be at most 512, found 999"),
        ("{count: 2}", "steps: nothing comes back; name outputs under 'carry' or 'feed'"),
        ("{carry: {past: y}}", "steps: the key 'count' is missing; add it"),
        ("{count: 2, cary: {past: y}}", "steps: unknown key 'cary'; did you mean 'carry'?"),
        (
            "{count: 2, carry: {pats: y}}",
            "8:31: models.decoder.steps.carry: unknown input 'pats'; did you mean 'past'?",
        ),
        ("{count: 2, feed: {id: y}}", "steps.feed: unknown input 'id'; did you mean 'ids'?"),
        ("{count: 2, carry: {ids: y}, feed: {ids: y}}", "'ids' is under 'carry' and under 'feed'"),
        (
            "{count: 2, carry: {past: y, past.0.key: z}}",
            "steps.carry: 'past.0.key' holds what 'past' holds too; name it once",
        ),
        (
            "{count: 2, feed: {past.0.key: argmax(y)}}",
            "steps.feed: an argmax is an integer, and 'past.0.key' is float32",
        ),
        ("{count: 2, feed: {ids: softmax(y)}}", "unknown function 'softmax'; known: 'argmax'"),
        ("{count: 2, feed: {ids: past + 1}}", "counted on from itself only; write 'ids + 1'"),
        ("{count: 2, feed: {ids: argmax(y}}", "neither an output, nor argmax(output), nor the"),
        ("{count: 2, feed: {ids: 3}}", "steps.feed.ids: expected an output"),
    ],
)
def test_each_mistake_is_a_line(read: Read, steps: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(steps)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("{count: 8, carry: {past: present}, feed: {ids: argmax(logits)}}", ["steps: 16 → 8"]),
        (
            "{count: 16, carry: {past: present}}",
            ["steps: 'ids' is given nothing instead of the argmax of 'logits'"],
        ),
        (
            "{count: 32, carry: {past: other}, feed: {ids: ids + 1}}",
            [
                "steps: 'past' is given 'other' instead of 'present'",
                "steps: 'ids' is given 'ids' + 1 instead of the argmax of 'logits'",
            ],
        ),
        ("{count: 32, carry: {past: present}, feed: {ids: argmax(logits)}}", []),
    ],
)
def test_fewer_steps_ask_less(read: Read, steps: str, words: list[str]) -> None:
    assert [each.message for each in loosened(read(GOOD), read(steps))] == words


def test_a_model_that_is_stepped_no_more_asks_less(read: Read) -> None:
    none = load_bytes(MODEL.rpartition("    steps")[0].format().encode(), PATH)
    (change,) = loosened(read(GOOD), none)
    assert change.message == "steps: 16 → none; every case is one call"
    assert not loosened(none, read(GOOD))


def test_steps_are_in_the_key_of_a_verdict_and_not_of_the_file(read: Read) -> None:
    day = datetime.date(2030, 1, 1)
    keys = [key_of(read(s).models[0], {}, (), day) for s in (GOOD, GOOD.replace("16", "17"))]
    assert keys[0].verdict != keys[1].verdict
    assert keys[0].export == keys[1].export
