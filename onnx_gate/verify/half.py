"""The candidate that every file with 16-bit results gets, and what their values were in it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import onnx

from onnx_gate.graph.module_path import module_of_props
from onnx_gate.manifest import ModelSpec, RuntimeSpec
from onnx_gate.report.model.headroom import Headroom, ValueRange
from onnx_gate.runtimes.base import Session
from onnx_gate.runtimes.half import HALF, HalfSession, Range
from onnx_gate.runtimes.half_graph import half_dtype

# Values that the report lists, those with the least headroom first.
_LISTED = 20
OFF = "off"
"""The option of an entry of the manifest's that leaves the candidate out."""


def with_half(spec: ModelSpec, model: onnx.ModelProto) -> ModelSpec:
    """Return the model's entry with the candidate ``half`` where its file has 16-bit results."""
    listed = [each for each in spec.runtimes if each.name == HALF]
    if listed:
        kept = tuple(r for r in spec.runtimes if r.name != HALF or not r.options.get(OFF))
        return replace(spec, runtimes=kept)
    if half_dtype(model) is None:
        return spec
    return replace(spec, runtimes=(*spec.runtimes, RuntimeSpec(HALF)))


def ranges_of(sessions: Iterable[Session]) -> tuple[Range, ...]:
    """Return what the 16-bit results were in the session that has watched them."""
    return next((tuple(each.ranges) for each in sessions if isinstance(each, HalfSession)), ())


def first_beyond(ranges: Iterable[Range]) -> Range | None:
    """Return the first value, in the order of the graph, that overflows."""
    return next((each for each in ranges if each.overflows), None)


def headroom(ranges: tuple[Range, ...]) -> Headroom | None:
    """Return what is reported of the values; ``None`` where none was watched."""
    if not ranges:
        return None
    first = first_beyond(ranges)
    summed = next((r for r in ranges if r.limit <= r.total < math.inf), None)
    # What is made of an infinity has no size of its own.
    by_room = sorted(ranges, key=lambda r: (r.largest == math.inf, -r.largest / r.limit, -r.small))
    return Headroom(
        dtype=ranges[0].dtype,
        limit=ranges[0].most,
        of=len(ranges),
        values=tuple(value_range(each) for each in by_room[:_LISTED]),
        first=None if first is None else value_range(first),
        summed=None if summed is None else value_range(replace(summed, largest=summed.total)),
    )


def value_range(each: Range) -> ValueRange:
    """Return a value as the report has it."""
    node = each.watched.node
    return ValueRange(
        name=node.name,
        op_type=node.op_type,
        output=each.watched.name,
        module=module_of_props(node) or None,
        largest=each.largest,
        small=each.small,
    )
