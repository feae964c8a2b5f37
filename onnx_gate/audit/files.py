"""The files of an audit: the weights once, and a small graph for each faulty model that reads them.

A graph refers to its weights by name, offset and length (ONNX's external data), so that a fault in
one tensor of a large model costs that tensor and no more.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import numpy_helper

from onnx_gate.audit.edit import Edit, applied
from onnx_gate.graph.constants import move_out
from onnx_gate.graph.walk import flattened, graphs
from onnx_gate.verify.reference.float64 import DOUBLED_BYTES

WEIGHTS = "weights.data"
CHANGED = "changed.data"
ORIGINAL = "original.onnx"
FAULTY = "faulty.onnx"
# Smaller ones stay in the graph: shapes follow from the values of some (ONNX's own default).
SMALL_BYTES = 1024


def share_weights(path: Path, folder: Path) -> onnx.ModelProto:
    """Copy a model into ``folder``, its weights in a file of their own; return its graph.

    Tensor by tensor, so that no more than one is in memory where they lie beside the graph.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model: onnx.ModelProto = onnx.load(str(path), load_external_data=False)
    with open(folder / WEIGHTS, "wb") as file:
        for graph in graphs(model.graph):
            for tensor in graph.initializer:
                move_out(tensor, path.parent, file, SMALL_BYTES)
    model = flattened(model)
    for graph in graphs(model.graph):
        for node in graph.node:
            del node.metadata_props[:]
            node.ClearField("doc_string")
        # What a fault changes of a shape must not be contradicted.
        del graph.value_info[:]
    onnx.save_model(model, str(folder / ORIGINAL))
    return model


def write_faulty(original: onnx.ModelProto, edit: Edit, folder: Path) -> Path:
    """Write a graph with a fault beside the weights of the original; return its path."""
    model = applied(original, edit)
    with open(folder / CHANGED, "wb") as file:
        for name, array in edit.tensors.items():
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(numpy_helper.from_array(array, name))
            move_out(tensor, folder, file, SMALL_BYTES)
    path = folder / FAULTY
    onnx.save_model(model, str(path))
    return path


def is_large(folder: Path) -> bool:
    """Return whether the weights of an audit are more than is kept, or computed with, twice."""
    return (folder / WEIGHTS).stat().st_size > DOUBLED_BYTES
