"""Messages between a session and its page: a JSON header and the bytes of tensors; see page.js.

The length of the header (uint32, little endian), the header, zeros up to a multiple of 8, then the
tensors in C order, each padded likewise. Text has no bytes here: it is in the header, as ``values``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnx_gate.runtimes.base import Array, contiguous

DTYPES = frozenset(
    (
        *("float16", "float32", "float64", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
_TEXT = "string"
_ALIGNMENT = 8


class WireError(Exception):
    """What a page has sent is no message."""


def can_carry(array: Array) -> bool:
    """Return whether a message can hold an array: one of ``DTYPES``, or text."""
    return array.dtype.name in DTYPES or _is_text(array)


def encode(feeds: Mapping[str, Array]) -> bytes:
    """Return the message of named arrays, each of which it can carry."""
    tensors = [
        {"name": name, "shape": list(array.shape)}
        | (
            {"dtype": _TEXT, "values": array.ravel().tolist()}
            if _is_text(array)
            else {"dtype": array.dtype.name}
        )
        for name, array in feeds.items()
    ]
    text = json.dumps({"tensors": tensors}).encode()
    parts = [_padded(struct.pack("<I", len(text)) + text)]
    parts += [_padded(contiguous(a).tobytes()) for a in feeds.values() if not _is_text(a)]
    return b"".join(parts)


def decode(message: bytes) -> tuple[Mapping[str, Any], Sequence[Array]]:
    """Return header and arrays of a message; raises ``WireError``."""
    try:
        (length,) = struct.unpack_from("<I", message)
        header = json.loads(message[4 : 4 + length])
        offset = 4 + length
        arrays = []
        for tensor in header.get("tensors", ()):
            shape = tuple(int(size) for size in tensor["shape"])
            if min(shape, default=0) < 0:
                raise WireError("a page has sent a tensor of negative size")
            if tensor["dtype"] == _TEXT:
                arrays.append(np.array([str(v) for v in tensor["values"]], object).reshape(shape))
                continue
            if tensor["dtype"] not in DTYPES:
                raise WireError(f"a page has sent a tensor of {tensor['dtype']!r}")
            offset += -offset % _ALIGNMENT
            dtype = np.dtype(tensor["dtype"])
            array = np.frombuffer(message, dtype, math.prod(shape), offset).reshape(shape)
            arrays.append(array.copy())
            offset += array.nbytes
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a page has sent no message: {error}") from error
    return header, arrays


def _is_text(array: Array) -> bool:
    return array.dtype.kind == "U" or (
        array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat)
    )


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % _ALIGNMENT)
