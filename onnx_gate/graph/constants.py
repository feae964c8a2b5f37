"""The constants of a graph: read where they lie, and written to a file beside it."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.external_data_helper import ExternalDataInfo

from onnx_gate.graph.walk import graphs
from onnx_gate.runtimes.base import Array

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
# What ONNX itself aligns no less than: any element of any type begins at its own size.
_ALIGNMENT = 64


class Constants:
    """Tensors by name; external data is mapped from its file and never read as a whole.

    ``arrays`` are the values of those that are in no file.
    """

    def __init__(
        self,
        tensors: Mapping[str, TensorProto],
        folder: Path,
        arrays: Mapping[str, Array] | None = None,
    ) -> None:
        self._tensors, self._folder = dict(tensors), folder
        self._arrays: dict[str, Array] = dict(arrays or {})

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def tensor(self, name: str) -> TensorProto:
        """Return a tensor as the file has it."""
        return self._tensors[name]

    def dims(self, name: str) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(self._tensors[name].dims)

    def count(self, name: str) -> int:
        """Return the number of elements."""
        return math.prod(self.dims(name))

    def is_float(self, name: str) -> bool:
        """Return whether a value is a stored floating-point one."""
        return name in self._tensors and self._tensors[name].data_type in FLOATS

    def array(self, name: str) -> Array:
        """Return the values; raises ``ValueError`` where the file with them is not to be had."""
        if name not in self._arrays:
            self._arrays[name] = array_of(self._tensors[name], self._folder)
        return self._arrays[name]

    def embedded(self, name: str) -> TensorProto:
        """Return a tensor with its values in itself, wherever they lie."""
        tensor = self._tensors[name]
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor = numpy_helper.from_array(self.array(name), name)
        return tensor

    def of_body(self, tensors: Mapping[str, TensorProto]) -> Constants:
        """Return the constants that a body sees, which has ``tensors`` of its own."""
        arrays = {name: array for name, array in self._arrays.items() if name not in tensors}
        return Constants({**self._tensors, **tensors}, self._folder, arrays)


def array_of(tensor: TensorProto, folder: Path) -> Array:
    """Return the values of a tensor of a file in ``folder``, mapped where they are external.

    Raises ``ValueError`` where the file with them is not to be had.
    """
    if tensor.data_type == TensorProto.STRING:
        return np.asarray(numpy_helper.to_array(tensor))
    array: Array = np.require(_located(tensor, folder).numpy(), requirements="A")
    return array


def _located(tensor: TensorProto, folder: Path) -> Any:
    """Return a tensor with its values where they lie."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return ir.serde.deserialize_tensor(tensor)
    stored = ExternalDataInfo(tensor)
    path = (folder / stored.location).resolve()
    if folder.resolve() not in path.parents or not path.is_file():
        raise ValueError(f"the external data of {tensor.name} is not beside the file")
    kind, shape = ir.DataType(tensor.data_type), ir.Shape(tensor.dims)
    # Without a folder of its own: it would refuse a file that has a second name (a hard link).
    return ir.ExternalTensor(
        path, stored.offset, stored.length, kind, shape=shape, name=tensor.name
    )


def move_out(tensor: TensorProto, folder: Path, file: BinaryIO, least: int) -> None:
    """Put the values of a tensor of a file in ``folder`` into ``file``, unless they are few.

    ``least`` are the bytes from which on they go; what is external goes in any case. No more than
    one block of it is in memory.
    """
    if tensor.data_type == TensorProto.STRING:
        return
    located = _located(tensor, folder)
    if tensor.data_location != TensorProto.EXTERNAL and located.nbytes < least:
        if not tensor.HasField("raw_data"):
            tensor.CopyFrom(numpy_helper.from_array(located.numpy(), tensor.name))
        return
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    offset = file.tell()
    located.tofile(file)
    outside = ir.ExternalTensor(
        Path(file.name).name,
        offset,
        located.nbytes,
        located.dtype,
        shape=located.shape,
        name=tensor.name,
    )
    tensor.CopyFrom(ir.serde.serialize_tensor(outside))


def external_files(model: ModelProto, folder: Path) -> set[Path]:
    """Return the files that a model in ``folder`` names for its weights, there or not."""
    return {
        folder / entry.value
        for graph in graphs(model.graph)
        for tensor in graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }


@dataclass(frozen=True)
class CutShort:
    """A tensor whose external data are not all there.

    They end at the byte ``end`` of ``file``, which has ``size``, ``None`` where there is no such file.
    """

    tensor: str
    file: str
    end: int
    size: int | None


def cut_short(model: ModelProto, folder: Path) -> CutShort | None:
    """Return the first tensor of a model in ``folder`` whose external data are not all there.

    Whoever wrote the file chose where they are: what is not below the folder, or cannot be looked at,
    is not there. Raises ``ValueError`` where a place is none.
    """
    sizes: dict[str, int | None] = {}
    for graph in graphs(model.graph):
        for tensor in graph.initializer:
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            stored = ExternalDataInfo(tensor)
            if min(stored.offset or 0, stored.length or 0) < 0:
                raise ValueError(
                    f"the external data of {tensor.name!r} begin, or end, before their file"
                )
            if stored.location not in sizes:
                sizes[stored.location] = _size_below(folder, Path(stored.location))
            end, size = (stored.offset or 0) + (stored.length or 0), sizes[stored.location]
            if size is None or size < end:
                return CutShort(tensor.name, stored.location, end, size)
    return None


def _size_below(folder: Path, location: Path) -> int | None:
    if location.is_absolute() or ".." in location.parts:
        return None
    try:
        status = (folder / location).stat()
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def stored_bytes(model: ModelProto) -> int:
    """Return the bytes of a model that was read without its external data, and of that."""
    external = sum(
        int(entry.value)
        for graph in graphs(model.graph)
        for tensor in graph.initializer
        for entry in tensor.external_data
        if entry.key == "length"
    )
    return int(model.ByteSize()) + external
