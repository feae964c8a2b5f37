"""The catalogue of faults: what each is, as data, and what it makes of a graph."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

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

_MODULES = (weights, operators, spatial, recurrent, rounding, wiring, boundaries, inputs)
SEEDINGS = {name: how for module in _MODULES for name, how in module.SEEDINGS.items()}


def _fault(
    name: str, operators: list[str] | None = None, sizes: list[float] | None = None, **said: Any
) -> Fault:
    given = tuple(operators or ()), tuple(sizes or (1.0,))
    return Fault(name, seeding=SEEDINGS[name], operators=given[0], sizes=given[1], **said)


def _catalogue() -> tuple[Fault, ...]:
    text = resources.files(__name__).joinpath("faults.yml").read_text(encoding="utf-8")
    return tuple(_fault(**entry) for entry in yaml.safe_load(text))


CATALOGUE = _catalogue()
