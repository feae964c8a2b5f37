"""The types of ``report.json`` that say how near values are to the ends of a short dtype."""

from __future__ import annotations

from onnx_gate.findings.finding import Frozen
from onnx_gate.report.model.diagnosis import GraphNode, Source
from onnx_gate.report.model.number import Number


class ValueRange(GraphNode):
    """A node's 16-bit result before it was rounded, over all cases.

    ``largest`` is its largest magnitude, ``small`` the share of it, not counting zeros, that was below
    the least normal number in the case where most of it was.
    """

    largest: Number
    small: Number
    source: Source | None = None


class Headroom(Frozen):
    """How much room the ``of`` 16-bit results of a file have below the dtype's largest number.

    ``values`` are those with the least room first. ``first`` is the first in the graph that overflows,
    whatever becomes of the infinity, or whose flush to zero is why a check diverged; ``in_float32`` are
    the nodes that, kept in float32, make the file right then, tried, with ``outputs`` the graph's
    outputs too. ``shared``: PyTorch itself leaves the range there. ``summed`` is the first mean that
    divides a sum beyond the range, with that as its ``largest``: infinite where a device adds up in the
    dtype.
    """

    dtype: str
    limit: Number
    of: int
    values: tuple[ValueRange, ...] = ()
    first: ValueRange | None = None
    summed: ValueRange | None = None
    in_float32: tuple[str, ...] = ()
    outputs: bool = False
    shared: bool = False
