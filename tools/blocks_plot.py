"""The picture of docs/large-models.md: memory and minutes by parameters, of what is stored."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "images" / "blocks.svg"
_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 200, 50, 30
_BLUE, _GREY = "#2f6fb0", "#8a8f98"

Row = Mapping[str, Any]


def pages() -> dict[Path, str]:
    """Return the picture by its path; none where nothing is measured."""
    tables = json.loads((ROOT / "benchmarks/scale/blocks.json").read_text())
    rows = sorted(tables.get("sizes", {}).get("rows", ()), key=lambda row: row["parameters"])
    return {PAGE: _svg(rows)} if rows else {}


def _svg(rows: Sequence[Row]) -> str:
    panels = [
        _panel(0, "peak memory, GiB (grey: the weights in float32)", rows, _gibibytes, _whole),
        _panel(_WIDTH + 2 * _LEFT, "minutes", rows, lambda row: row["seconds"] / 60, None),
    ]
    size = f"{2 * (_WIDTH + 2 * _LEFT)} {_HEIGHT + 2 * _TOP + 20}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" '
        'font-size="11" role="img" aria-label="Memory and minutes by parameters, block by block">\n'
        + '<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(panels)
        + "\n</svg>\n"
    )


def _gibibytes(row: Row) -> float:
    return float(row["peak"]) / 2**30


def _whole(row: Row) -> float:
    return 4 * float(row["parameters"]) / 2**30


def _panel(
    left: float,
    title: str,
    rows: Sequence[Row],
    value: Callable[[Row], float],
    other: Callable[[Row], float] | None,
) -> str:
    """Return one picture with logarithmic axes."""
    ways = [value, *([other] if other is not None else [])]
    across = [math.log10(row["parameters"]) for row in rows]
    every = [math.log10(way(row)) for way in ways for row in rows]
    bounds = min(across), max(across), min(every), max(every)

    def at(x: float, y: float) -> tuple[float, float]:
        wide, high = (bounds[1] - bounds[0]) or 1, (bounds[3] - bounds[2]) or 1
        return (
            left + _LEFT + _WIDTH * (x - bounds[0]) / wide,
            _TOP + _HEIGHT * (bounds[3] - y) / high,
        )

    parts = [f'<text x="{left + _LEFT}" y="16" font-weight="bold">{title}</text>']
    for way, colour in zip(ways, (_BLUE, _GREY), strict=False):
        points = [at(x, math.log10(way(row))) for x, row in zip(across, rows, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), row in zip(points, rows, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            parts.append(
                f'<text x="{x + 5:.1f}" y="{y - 5:.1f}" fill="{colour}">{way(row):.2g}</text>'
            )
    for x, row in zip(across, rows, strict=True):
        parts.append(
            f'<text x="{at(x, bounds[2])[0]:.1f}" y="{_TOP + _HEIGHT + 24}" text-anchor="middle">'
            f"{row['parameters'] / 1e9:.2g} B</text>"
        )
    return "\n".join(parts)
