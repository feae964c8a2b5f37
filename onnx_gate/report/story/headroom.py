"""How near 16-bit values are to the ends of their dtype, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnx_gate.report.model.headroom import Headroom
from onnx_gate.report.model.result import ModelResult
from onnx_gate.report.story.precision import layer_name
from onnx_gate.text import counted, format_int, number, plain

_NAME = 80
_NODES = 12


def sentence(model: ModelResult) -> str:
    """Return ``float16: 12 results, the largest 412 of 65,504 (Mul mul, models.py:8)``, or nothing."""
    headroom = model.headroom
    if headroom is None or not headroom.values:
        return ""
    most = headroom.first or headroom.values[0]
    small = max(headroom.values, key=lambda each: each.small)
    line = (
        f"{plain(headroom.dtype, 20)}: {counted(headroom.of, 'result')}, the largest "
        f"{number(most.largest)} of {_end(headroom)} ({layer_name(most)})"
    )
    if small.small:
        line += f", {100 * small.small:.3g} % of {layer_name(small)} below the least normal number"
    if headroom.summed is not None:
        line += (
            f"; {layer_name(headroom.summed)} divides a sum of {number(headroom.summed.largest)}: "
            f"infinite where a device adds up in {plain(headroom.dtype, 20)}"
        )
    return line


def beyond(headroom: Headroom, *, line: bool = True) -> str:
    """Return which value leaves the range, and where, with the ``line`` or without."""
    first = headroom.first
    if first is None:
        return ""
    first = first if line else first.model_copy(update={"source": None})
    dtype = plain(headroom.dtype, 20)
    if first.largest > headroom.limit:
        text = f"{layer_name(first)} reaches {number(first.largest)}, and {dtype} ends at {_end(headroom)}"
    else:
        text = f"{100 * first.small:.3g} % of {layer_name(first)} is below the least normal {dtype}"
    return (
        f"{text}, on both sides: what computes it in float32 differs" if headroom.shared else text
    )


def remedy(headroom: Headroom) -> str:
    """Return which nodes in float32 make the file right, as converters take them."""
    if headroom.shared:
        first = headroom.first
        way = "up" if first is not None and first.largest <= headroom.limit else "down"
        return f"compute it in float32 in the module, or scale it {way} before"
    if not headroom.in_float32:
        return "no nodes in float32 make it right: scale the values, or keep the model in float32"
    names = headroom.in_float32
    patterns = [f"^{re.escape(name)}$" for name in names]
    io = ", keep_io_types=True" if headroom.outputs else ""
    return (
        f"right, as tried, with node_block_list={_listed(names)}{io}; in AutoCast "
        f"nodes_to_exclude={_listed(patterns)}{io}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{plain(name, _NAME)}'" for name in names[:_NODES])
    more = len(names) - _NODES
    return f"[{shown}{f', and {format_int(more)} more' if more > 0 else ''}]"


def _end(headroom: Headroom) -> str:
    return f"{headroom.limit:,.0f}" if headroom.limit < 1e6 else number(headroom.limit)
