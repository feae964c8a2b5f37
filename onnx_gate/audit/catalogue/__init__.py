"""The catalogue of faults, as data: what happened to somebody, or to us."""

from __future__ import annotations

from onnx_gate.audit.catalogue import (
    boundaries,
    inputs,
    operators,
    recurrent,
    rounding,
    spatial,
    weights,
    wiring,
)
from onnx_gate.audit.fault import Fault

CATALOGUE: tuple[Fault, ...] = (
    *weights.FAULTS,
    *operators.FAULTS,
    *spatial.FAULTS,
    *recurrent.FAULTS,
    *rounding.FAULTS,
    *wiring.FAULTS,
    *boundaries.FAULTS,
    *inputs.FAULTS,
)
