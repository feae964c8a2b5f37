"""Faults of operators on images: padding, pooling and resizing by another rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import FaultSite, Seeding, exchanged_attribute, in_place
from onnx_gate.audit.graph import FlatGraph
from onnx_gate.graph.edit import with_attribute, without_attributes
from onnx_gate.graph.walk import attribute


def _unlike(
    name: str, default: object, value: object, mode: str | None = None
) -> Callable[[FlatGraph, onnx.NodeProto], Iterable[int]]:
    """A node whose attribute is not ``value`` already (a Resize in ``mode``)."""

    def operands(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
        fits = mode is None or attribute(node, "mode", "nearest") == mode
        return (0,) if fits and attribute(node, name, default) != value else ()

    return operands


def _padded(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    pads = attribute(node, "pads") or ()
    return [axis for axis in range(len(pads) // 2) if pads[axis] > 0]


def _shift_pads(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    pads = list(attribute(node, "pads"))
    half = len(pads) // 2
    pads[site.operand] -= 1
    pads[site.operand + half] += 1
    return in_place(site, with_attribute(node, "pads", pads), f"its pads are {pads}")


def _include_pad(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    new = 1 - attribute(node, "count_include_pad", 0)
    words = f"it counts {'its' if new else 'no'} padding"
    return in_place(site, with_attribute(node, "count_include_pad", new), words)


def _any_padded(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    return (0,) if any(attribute(node, "pads") or ()) else ()


def _mode(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    return (0,) if attribute(node, "mode", "constant") != "constant" else ()


def _single(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    plain = len([name for name in node.output if name]) == 1
    return (0,) if plain and not attribute(node, "ceil_mode", 0) else ()


def _average(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = without_attributes(graph.nodes[site.index].proto, "storage_order", "dilations")
    node.op_type = "AveragePool"
    return in_place(site, node, "it takes the mean, not the largest")


def _resize(key: str, words: str, new: str, mode: str | None = None) -> Seeding:
    """Return how a resize comes to follow another rule."""
    default = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
    usual = default.get(key, "nearest")
    edit = exchanged_attribute(f"{words} {{new}}, not {{old}}", key, {None: new}, usual)
    return Seeding(_unlike(key, usual, new, mode), edit)


_COORDINATES = "coordinate_transformation_mode"
SEEDINGS = {
    "pads": Seeding(_padded, _shift_pads),
    "pad-mode": Seeding(
        _mode,
        exchanged_attribute(
            "it pads by {new}, not {old}",
            "mode",
            {"edge": "reflect", "reflect": "edge", None: "edge"},
            "constant",
        ),
    ),
    "count-include-pad": Seeding(_any_padded, _include_pad),
    "resize-coordinates-corners": _resize(_COORDINATES, "coordinates by", "align_corners"),
    "resize-coordinates-asymmetric": _resize(_COORDINATES, "coordinates by", "asymmetric"),
    "resize-nearest": _resize("nearest_mode", "the nearest by", "ceil", "nearest"),
    "resize-mode-nearest": _resize("mode", "interpolated by", "nearest"),
    "resize-mode-linear": _resize("mode", "interpolated by", "linear"),
    "resize-mode-cubic": _resize("mode", "interpolated by", "cubic"),
    "pool-mean": Seeding(_single, _average),
}
