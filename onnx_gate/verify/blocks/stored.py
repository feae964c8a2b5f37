"""Weights where they lie in ``.safetensors`` files: found by their headers, read one at a time.

The format: eight bytes with the length of a JSON header, the header with each tensor's dtype, shape
and place behind it, then the values (https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from onnx_gate.findings import codes
from onnx_gate.manifest import WeightsSpec
from onnx_gate.verify.checkpoint import Checkpoint, need_fit, read_checkpoint, unreadable

# The format's own limit on its header.
_LONGEST_HEADER = 100_000_000
_BEGIN = 8

# The bytes of rows that are worth being looked at apart: fewer would not be seen in the peak, to which
# what is taken beside blocks adds four times as much.
LEAST_ROWS = 40 << 20

_DTYPES: Mapping[str, tuple[torch.dtype, ir.DataType]] = {
    "F64": (torch.float64, ir.DataType.DOUBLE),
    "F32": (torch.float32, ir.DataType.FLOAT),
    "F16": (torch.float16, ir.DataType.FLOAT16),
    "BF16": (torch.bfloat16, ir.DataType.BFLOAT16),
    "I64": (torch.int64, ir.DataType.INT64),
    "I32": (torch.int32, ir.DataType.INT32),
    "I16": (torch.int16, ir.DataType.INT16),
    "I8": (torch.int8, ir.DataType.INT8),
    "U8": (torch.uint8, ir.DataType.UINT8),
    "BOOL": (torch.bool, ir.DataType.BOOL),
}


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: ``offset`` and ``nbytes`` are in bytes."""

    file: Path
    offset: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    onnx_type: ir.DataType

    def load(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the values in ``dtype``: mapped from the file where they are in it already.

        A run that watches operators sees none of this.
        """
        with _disable_current_modes():
            if not math.prod(self.shape):
                return torch.empty(self.shape, dtype=dtype)
            raw = self.raw()
            aligned = raw if self.offset % self.dtype.itemsize == 0 else np.array(raw)
            return torch.from_numpy(aligned).view(self.dtype).reshape(self.shape).to(dtype)

    def raw(self) -> np.memmap[Any, np.dtype[np.uint8]]:
        """Return the bytes, mapped; what is written to is copied, and the file stays as it is."""
        return np.memmap(self.file, np.uint8, "c", self.offset, (self.nbytes,))

    def external(self, name: str, folder: Path) -> ir.ExternalTensor:
        """Return it as an initializer of a file in ``folder``, which has no values of its own."""
        return ir.ExternalTensor(
            str(self.file.relative_to(folder)),
            self.offset,
            self.nbytes,
            self.onnx_type,
            shape=ir.Shape(self.shape),
            name=name,
            base_dir=folder,
        )


@dataclass(frozen=True)
class StoredWeights:
    """The tensors of a checkpoint by the names of the state dict; ``folder`` has all files."""

    checkpoint: Checkpoint
    folder: Path
    tensors: Mapping[str, Stored]

    def of(self, module: nn.Module) -> StoredWeights:
        """Return them by a module's names; raises ``GateError`` (OG205) where they do not fit."""
        tensors = {id(self.checkpoint.state[name]): each for name, each in self.tensors.items()}
        fitting = need_fit(module, self.checkpoint)
        return replace(self, tensors={name: tensors[id(v)] for name, v in fitting.items()})


def find_stored(weights: WeightsSpec, workspace: Path) -> StoredWeights:
    """Find every tensor of a checkpoint without reading one.

    Raises ``GateError``: OG205 where it cannot be read, OG434 where it is not in ``.safetensors``.
    """
    found: dict[int, Stored] = {}

    def header(path: Path, shown: str) -> dict[str, torch.Tensor]:
        if path.suffix != ".safetensors":
            raise codes.OG434.error(
                f"{shown} is no .safetensors file, in which tensors can be read one at a time; write it "
                "with safetensors.torch.save_file(model.state_dict(), path)"
            )
        tensors = {}
        for name, stored in _entries(path, shown):
            tensors[name] = torch.empty(stored.shape, dtype=stored.dtype, device="meta")
            found[id(tensors[name])] = stored
        return tensors

    checkpoint = read_checkpoint(weights, workspace, header)
    named = {name: found[id(tensor)] for name, tensor in checkpoint.state.items()}
    files = {stored.file for stored in named.values()}
    folders = (file.parent for file in files)
    folder = min(folders, key=lambda each: len(each.parts), default=workspace)
    if not all(file.is_relative_to(folder) for file in files):
        raise codes.OG434.error(f"the shards of {weights.file} are not below one folder: move them")
    return StoredWeights(checkpoint, folder, named)


def _entries(path: Path, shown: str) -> Iterator[tuple[str, Stored]]:
    """Yield the tensors of one file; raises ``GateError`` (OG205) for a damaged header."""
    path = path.resolve()
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_BEGIN), "little")
            if length > _LONGEST_HEADER:
                raise ValueError("its header is too long")
            if size < _BEGIN + max(length, 1):
                raise ValueError("it is empty" if not size else "it ends before its header does")
            header = _parsed(file.read(length))
        entries = [
            (name, _entry(path, name, entry, _BEGIN + length, size))
            for name, entry in header.items()
            if name != "__metadata__"
        ]
        _need_contiguous(entries, _BEGIN + length, size)
        yield from entries
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(path, shown, error) from error


def _parsed(header: bytes) -> Mapping[str, Any]:
    with suppress(ValueError):
        parsed = json.loads(header)
        if isinstance(parsed, dict):
            return parsed
    raise ValueError("its header is damaged: it is no JSON object")


def _entry(path: Path, name: str, entry: Mapping[str, Any], begin: int, size: int) -> Stored:
    span = entry["data_offsets"]
    if not isinstance(span, list) or [type(each) for each in span] != [int, int]:
        raise ValueError(f"the data_offsets of {name} are not two whole numbers")
    first, last = span
    shape = tuple(int(each) for each in entry["shape"])
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"its dtype {entry['dtype']} has no counterpart in both torch and ONNX")
    dtype, onnx_type = _DTYPES[entry["dtype"]]
    if last > size - begin:
        raise ValueError(f"{name} ends at byte {begin + last}, and the file at {size}")
    if not 0 <= first <= last or last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} does not have as many bytes as its shape takes")
    return Stored(path, begin + first, last - first, shape, dtype, onnx_type)


def _need_contiguous(entries: Sequence[tuple[str, Stored]], begin: int, size: int) -> None:
    """Raise ``ValueError`` where tensors do not fill a file, each beginning where the one before ends.

    The format asks for that, and its own reader refuses any other file.
    """
    end = begin
    for name, stored in sorted(entries, key=lambda each: (each[1].offset, each[1].nbytes)):
        if stored.offset != end:
            raise ValueError(
                f"{name} begins at byte {stored.offset}, what is before it ends at {end}"
            )
        end += stored.nbytes
    if end != size:
        raise ValueError(f"its tensors end at byte {end}, and the file at {size}")
