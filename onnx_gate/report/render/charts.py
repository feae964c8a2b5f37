"""The error along the graph as a chart of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

_FEWEST = 4  # of which there is something to see
_BARS = "▁▂▃▄▅▆▇█"


def sparkline(levels: Sequence[float]) -> str:
    """Return one character for each part of the graph; empty where there are fewer than four."""
    if len(levels) < _FEWEST:
        return ""
    low = min(levels)
    span = (max(levels) - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in levels)


def mermaid(levels: Sequence[float], nodes: int) -> str:
    """Return a chart for GitHub, of numbers alone; empty where there are fewer than four."""
    if len(levels) < _FEWEST:
        return ""
    shown = ", ".join(f"{value:g}" for value in levels)
    return (
        "xychart-beta\n"
        '    title "error along the graph (log10, relative to each output)"\n'
        f'    x-axis "nodes, in order" 1 --> {nodes}\n'
        f'    y-axis "log10" {math.floor(min(levels)):g} --> {math.ceil(max(levels)) + 1:g}\n'
        f"    line [{shown}]"
    )
