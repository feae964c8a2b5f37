"""How values of a manifest are shown in a sentence about a change."""

from __future__ import annotations

from collections.abc import Iterable

from onnx_gate.text import shortened

_LIMIT = 200


def number(value: float | None) -> str:
    """Return a number with every digit that tells it from its neighbours: ``10``, ``1e-05``."""
    if value is None:
        return "none"
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def listed(values: Iterable[object]) -> str:
    """Return ``a, b, c``, cut where that is too long for a sentence."""
    return shortened(", ".join(map(str, values)), _LIMIT)
