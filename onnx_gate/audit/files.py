"""The files of an audit: the weights once, and a small graph for each faulty model that reads them.

A graph refers to its weights by name, offset and length (ONNX's external data), so that a fault in
one tensor of a large model costs that tensor and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, set_external_data

from onnx_gate.audit.edit import Edit, applied
from onnx_gate.graph.walk import flattened, graphs
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.reference.float64 import DOUBLED_BYTES

WEIGHTS = "weights.data"
CHANGED = "changed.data"
ORIGINAL = "original.onnx"
FAULTY = "faulty.onnx"
# Smaller ones stay in the graph: shapes follow from the values of some (ONNX's own default).
SMALL_BYTES = 1024
_ALIGNMENT = 64
_BLOCK = 1 << 20


def share_weights(path: Path, folder: Path) -> onnx.ModelProto:
    """Copy a model into ``folder``, its weights in a file of their own; return its graph.

    Tensor by tensor, so that no more than one is in memory where they lie beside the graph.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model: onnx.ModelProto = onnx.load(str(path), load_external_data=False)
    with open(folder / WEIGHTS, "wb") as file:
        for graph in graphs(model.graph):
            for tensor in graph.initializer:
                _move_out(tensor, file, path.parent)
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
            model.graph.initializer.append(_stored(name, array, file))
    path = folder / FAULTY
    onnx.save_model(model, str(path))
    return path


def is_large(folder: Path) -> bool:
    """Return whether the weights of an audit are more than is kept, or computed with, twice."""
    return (folder / WEIGHTS).stat().st_size > DOUBLED_BYTES


def _stored(name: str, array: Array, file: BinaryIO) -> TensorProto:
    """Return a tensor whose values lie in ``file`` where they are many."""
    if array.nbytes < SMALL_BYTES:
        return numpy_helper.from_array(array, name)
    tensor = TensorProto()
    tensor.name, tensor.dims[:] = name, array.shape
    tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    _append(tensor, file, array.nbytes, lambda: array.tofile(file))
    return tensor


def _move_out(tensor: TensorProto, file: BinaryIO, folder: Path) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        stored = ExternalDataInfo(tensor)
        with open(folder / stored.location, "rb") as source:
            source.seek(stored.offset or 0)
            length = stored.length
            if length is None:
                length = (folder / stored.location).stat().st_size - (stored.offset or 0)
            left = source, length
            _append(tensor, file, length, lambda: _copy(*left, file))
        return
    if tensor.data_type == TensorProto.STRING:
        return
    if not tensor.HasField("raw_data"):
        whole = numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
        tensor.CopyFrom(whole)
    values = tensor.raw_data
    if len(values) >= SMALL_BYTES:
        _append(tensor, file, len(values), lambda: file.write(values))


def _append(tensor: TensorProto, file: BinaryIO, length: int, write: Callable[[], object]) -> None:
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    offset = file.tell()
    write()
    if not tensor.HasField("raw_data"):
        tensor.raw_data = b""  # what set_external_data wants to see
    set_external_data(tensor, location=Path(file.name).name, offset=offset, length=length)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL


def _copy(source: BinaryIO, length: int, file: BinaryIO) -> None:
    while length > 0:
        block = source.read(min(length, _BLOCK))
        if not block:
            raise OSError("the external data is shorter than the graph says")
        file.write(block)
        length -= len(block)
