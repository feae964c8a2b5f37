"""Faults of results: rounded to fewer bits between two operators."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import Edits, FaultSite, Seeding
from onnx_gate.audit.graph import FlatGraph


def _floats(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    """A product of float32 values."""
    stored = [name for name in node.input if graph.is_float(name)]
    types = {graph.array(name).dtype.name for name in stored if graph.count(name) < 1 << 20}
    return (0,) if types <= {"float32"} and node.output[0] not in graph.outputs else ()


def _narrowed(name: str, dtype: int) -> Edits:
    def edit(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
        old = graph.nodes[site.index].proto
        wide, narrow = f"{old.output[0]}__wide", f"{old.output[0]}__narrow"
        new = onnx.NodeProto()
        new.CopyFrom(old)
        new.output[0] = wide
        down = helper.make_node("Cast", [wide], [narrow], to=dtype)
        up = helper.make_node("Cast", [narrow], [old.output[0]], to=TensorProto.FLOAT)
        return Edit(f"its result went through {name}", nodes={site.index: (new, down, up)})

    return edit


SEEDINGS = {
    "result-float16": Seeding(_floats, _narrowed("float16", TensorProto.FLOAT16)),
    "result-bfloat16": Seeding(_floats, _narrowed("bfloat16", TensorProto.BFLOAT16)),
}
