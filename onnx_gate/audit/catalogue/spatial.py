"""Faults of operators on images: padding, pooling and resizing by another rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import Fault, FaultSite, exchanged_attribute, in_place
from onnx_gate.audit.graph import FlatGraph
from onnx_gate.graph.edit import with_attribute, without_attributes
from onnx_gate.graph.walk import attribute

_RESIZE = "https://github.com/pytorch/pytorch/issues/79361"


def _unlike(
    name: str, default: object, value: object, mode: str | None = None
) -> Callable[[FlatGraph, int], Iterable[int]]:
    """A node whose attribute is not ``value`` already (a Resize in ``mode``)."""

    def operands(graph: FlatGraph, index: int) -> Iterable[int]:
        node = graph.nodes[index].proto
        fits = mode is None or attribute(node, "mode", "nearest") == mode
        return (0,) if fits and attribute(node, name, default) != value else ()

    return operands


def _padded(graph: FlatGraph, index: int) -> Iterable[int]:
    pads = attribute(graph.nodes[index].proto, "pads") or ()
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


def _any_padded(graph: FlatGraph, index: int) -> Iterable[int]:
    return (0,) if any(attribute(graph.nodes[index].proto, "pads") or ()) else ()


def _mode(graph: FlatGraph, index: int) -> Iterable[int]:
    return (0,) if attribute(graph.nodes[index].proto, "mode", "constant") != "constant" else ()


def _single(graph: FlatGraph, index: int) -> Iterable[int]:
    node = graph.nodes[index].proto
    plain = len([name for name in node.output if name]) == 1
    return (0,) if plain and not attribute(node, "ceil_mode", 0) else ()


def _average(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = without_attributes(graph.nodes[site.index].proto, "storage_order", "dilations")
    node.op_type = "AveragePool"
    return in_place(site, node, "it takes the mean, not the largest")


def _resize(name: str, words: str, new: str, source: str, mode: str | None = None) -> Fault:
    """Return a fault that lets a resize follow another rule."""
    attributes = {"coordinates": "coordinate_transformation_mode", "nearest": "nearest_mode"}
    key = attributes.get(name.split("-")[1], "mode")
    default = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
    usual = default.get(key, "nearest")
    edit = exchanged_attribute(f"{words} {{new}}, not {{old}}", key, {None: new}, usual)
    return Fault(
        name,
        "operators",
        f"{words} {new}",
        source,
        ("Resize",),
        _unlike(key, usual, new, mode),
        edit,
    )


FAULTS = (
    Fault(
        "pads",
        "operators",
        "one row of padding is at the other end",
        "https://github.com/microsoft/onnxruntime/pull/27375",
        ("Conv", "MaxPool", "AveragePool"),
        _padded,
        _shift_pads,
    ),
    Fault(
        "pad-mode",
        "operators",
        "padded with the edge, not with what is reflected, or the other way round",
        "https://github.com/pytorch/pytorch/issues/60179",
        ("Pad",),
        _mode,
        exchanged_attribute(
            "it pads by {new}, not {old}",
            "mode",
            {"edge": "reflect", "reflect": "edge", None: "edge"},
            "constant",
        ),
    ),
    Fault(
        "count-include-pad",
        "operators",
        "the padding counts in a mean, or does not",
        "https://github.com/microsoft/onnxruntime/issues/24681",
        ("AveragePool",),
        _any_padded,
        _include_pad,
    ),
    _resize("resize-coordinates-corners", "coordinates by", "align_corners", _RESIZE),
    _resize(
        "resize-coordinates-asymmetric",
        "coordinates by",
        "asymmetric",
        "https://github.com/NVIDIA/TensorRT/issues/273",
    ),
    _resize(
        "resize-nearest",
        "the nearest by",
        "ceil",
        "https://github.com/onnx/onnx-tensorrt/issues/457",
        "nearest",
    ),
    _resize("resize-mode-nearest", "interpolated by", "nearest", _RESIZE),
    _resize("resize-mode-linear", "interpolated by", "linear", _RESIZE),
    _resize(
        "resize-mode-cubic",
        "interpolated by",
        "cubic",
        "user: the default of another library's resize",
    ),
    Fault(
        "pool-mean",
        "operators",
        "a pooling that takes the mean, not the largest",
        "user: the pooling of another configuration",
        ("MaxPool",),
        _single,
        _average,
    ),
)
