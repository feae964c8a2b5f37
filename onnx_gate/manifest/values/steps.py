"""Calls in a row, and what of one goes into the next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator

from onnx_gate.manifest.values.base import mistake, note, text_schema, words
from onnx_gate.manifest.values.names import TensorName
from onnx_gate.text import did_you_mean, quote

MAX_STEPS = 512
_CALL = re.compile(r"(\w+)\(\s*([^()]*[^()\s])\s*\)")
_COUNTED = re.compile(r"([^()+*]*[^()+*\s])\s*\+\s*(\d{1,9})")


@dataclass(frozen=True)
class Feed:
    """What an input is given from the second step on.

    ``argmax``: the index of the largest entry of the output ``source``; ``add``: the input's own
    value of the step before, and so much more (``source`` is the input); else the output itself.
    """

    source: str
    argmax: bool = False
    add: int = 0


def _read_feed(value: Any) -> Feed:
    """``argmax(logits)``, the name of an output, or ``position_ids + 1``."""
    text = words(value, "an output, argmax(output), or the input itself + 1")
    if call := _CALL.fullmatch(text):
        if call[1] != "argmax":
            hint = did_you_mean(call[1], ("argmax",))
            raise mistake(f"unknown function {quote(call[1])}{hint}")
        return Feed(call[2], argmax=True)
    if counted := _COUNTED.fullmatch(text):
        return Feed(counted[1], add=int(counted[2]))
    if any(sign in text for sign in "()+*"):
        raise mistake(
            f"{quote(text)} is neither an output, nor argmax(output), nor the input itself + 1"
        )
    return Feed(text)


_FeedFrom = Annotated[
    Feed,
    PlainValidator(_read_feed),
    text_schema("feed", minLength=1, examples=["argmax(logits)", "frame", "position_ids + 1"]),
]


@dataclass(frozen=True)
class StepsSpec:
    """Calls in a row, in which outputs come back as inputs."""

    __pydantic_config__ = ConfigDict(
        title="Steps",
        extra="forbid",
        json_schema_extra={"anyOf": [{"required": ["carry"]}, {"required": ["feed"]}]},
    )

    count: Annotated[
        int,
        Field(
            strict=True,
            ge=2,
            le=MAX_STEPS,
            description=f"How many calls in a row, 2 to {MAX_STEPS}.",
        ),
    ]
    carry: Annotated[
        Mapping[TensorName, TensorName],
        Field(
            description="An input and the output that is its value in the next step: a cache, a "
            "hidden state. A name of several tensors (`past_key_values`) stands for all below it.",
            json_schema_extra={"default": {}},
        ),
    ] = field(default_factory=dict)
    feed: Annotated[
        Mapping[TensorName, _FeedFrom],
        Field(
            description="An input and what it is given in the next step: `argmax(output)` (the token "
            "that is chosen), an output, or `input + 1` (itself, counted on).",
            json_schema_extra={"default": {}},
        ),
    ] = field(default_factory=dict)


def _comes_back(steps: StepsSpec) -> StepsSpec:
    if not steps.carry and not steps.feed:
        raise mistake("nothing comes back; name outputs under 'carry' or 'feed'")
    for name in steps.carry.keys() & steps.feed.keys():
        raise mistake(f"{quote(name)} is under 'carry' and under 'feed'; remove one")
    for name, feed in steps.feed.items():
        if feed.add and feed.source != name:
            raise mistake(
                f"{quote(name)} can be counted on from itself only; write "
                f"{quote(f'{name} + {feed.add}')}"
            )
    return steps


Steps = Annotated[StepsSpec, note(StepsSpec), AfterValidator(_comes_back)]
