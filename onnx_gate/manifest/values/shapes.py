"""The short form of an input, ``float32[batch, 3, 224, 224]``, and what its parts may be."""

from __future__ import annotations

import re
from typing import Any

from onnx_gate.manifest import dimensions
from onnx_gate.text import did_you_mean, quote

DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"),
    *("uint16", "uint32", "uint64", "bool"),
)
MAX_RANK = 32
MAX_SIZE = 2**31 - 1
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
TEXT = re.compile(r"\s*(?P<dtype>\w+)\s*\[(?P<shape>[^\[\]]*)\]\s*")
EXAMPLE = "float32[batch, 3, 224, 224]"

INTEGER_BOUNDS: dict[str, tuple[int, int]] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
_FLOAT_LARGEST: dict[str, float] = {
    "float16": 65504.0,
    "bfloat16": float.fromhex("0x1.fep127"),
    "float32": float.fromhex("0x1.fffffep127"),
    "float64": float.fromhex("0x1.fffffffffffffp1023"),
}


_TEXT = ("string", "str", "text", "bytes", "object")
_OTHER_NAMES = {
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int": "int64",
    "long": "int64",
    "byte": "uint8",
    "boolean": "bool",
}


def parse(text: str) -> tuple[str, tuple[int | str, ...]]:
    """The dtype and the shape of an input in its short form.

    Raises ``ValueError``, with a sentence for the user, where the text has another form.
    """
    match = TEXT.fullmatch(text)
    if match is None:
        bare = text.strip()
        if bare in DTYPES:
            raise ValueError(
                f"{quote(text)} has no shape; write {bare}[] for a scalar, or {EXAMPLE}"
            )
        raise ValueError(f"{quote(text)} is not an input; write dtype[shape], such as {EXAMPLE}")
    dtype = check_dtype(match["dtype"])
    inner = match["shape"].strip()
    parts = inner.split(",") if inner else []
    return dtype, check_shape(tuple(_dimension(part.strip(), text) for part in parts))


def _dimension(part: str, text: str) -> int | str:
    if not part:
        raise ValueError(f"{quote(text)} has an empty dimension; write a size or a name")
    if re.fullmatch(r"-?[0-9]{1,20}", part):
        return check_dimension(int(part))
    return check_dimension(part)


def check_dtype(name: str) -> str:
    """The dtype itself; ``ValueError`` with its likeness where there is no such dtype."""
    if name in _TEXT:
        raise ValueError(
            f"{quote(name)} is no dtype: PyTorch has no tensors of text. Name what a tokenizer makes of "
            "it, or give text that is always the same under call"
        )
    if name not in DTYPES:
        meant = _OTHER_NAMES.get(name.lower().removeprefix("torch."), name)
        raise ValueError(f"unknown dtype {quote(name)}{did_you_mean(meant, DTYPES)}")
    return name


def check_dimension(dimension: int | str) -> int | str:
    """A static size (at least 1), the name of a dynamic dimension, or a size computed from some.

    ``ValueError`` where it is none of these.
    """
    if isinstance(dimension, str):
        if dimension == "None":  # as other tools write it: all of them would be one size
            raise ValueError("None names no dimension; give a dynamic one a name, such as batch")
        computed = None if re.fullmatch(NAME, dimension) else dimensions.normalised(dimension)
        if computed is not None:
            return computed
        if not re.fullmatch(NAME, dimension) or len(dimension) > 100:
            raise ValueError(
                f"{quote(dimension)} is neither a size nor the name of a dynamic dimension; "
                + (
                    "a computed size is made of names and integers with + - * //"
                    if re.search(r"[-+*/]", dimension)
                    else "a name has letters, digits and '_' and begins with no digit"
                )
            )
    elif not 1 <= dimension <= MAX_SIZE:
        hint = " (a dynamic dimension is written as a name)" if dimension in (-1, 0) else ""
        raise ValueError(
            f"the size {dimension} is impossible; write one from 1 to {MAX_SIZE}{hint}"
        )
    return dimension


def check_shape(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The shape itself; ``ValueError`` where it has more dimensions than any engine takes."""
    if len(shape) > MAX_RANK:
        raise ValueError(f"{len(shape)} dimensions are too many; at most {MAX_RANK} work")
    return shape


def check_bound(text: str) -> str:
    """An end of a range that is computed from dynamic dimensions; ``ValueError`` for other text."""
    if re.fullmatch(NAME, text):
        return text
    computed = dimensions.normalised(text)
    if computed is None:
        raise ValueError(
            f"{quote(text)} is neither a number nor computed from dynamic dimensions; write an "
            "expression of names and integers with + - * //, such as nodes - 1"
        )
    return computed


def check_range(dtype: str, low: float | str, high: float | str) -> tuple[Any, Any]:
    """The range in the dtype's own numbers; ``ValueError`` where the dtype cannot hold it."""
    if dtype == "bool":
        raise ValueError("a bool input takes no range; remove it")
    if isinstance(low, str) or isinstance(high, str):
        ends = [end for end in (low, high) if not isinstance(end, str)]
        if dtype not in INTEGER_BOUNDS or any(not isinstance(end, int) for end in ends):
            raise ValueError(
                f"only the range of an integer input may name a dimension, and this is {dtype}"
                if dtype not in INTEGER_BOUNDS
                else f"the range of an {dtype} input needs integers; write [0, nodes - 1]"
            )
        return low, high
    least: float
    largest: float
    if dtype in INTEGER_BOUNDS:
        least, largest = INTEGER_BOUNDS[dtype]
        if not (isinstance(low, int) and isinstance(high, int)):
            raise ValueError(f"the range of an {dtype} input needs integers; write [0, 10]")
    else:
        largest = _FLOAT_LARGEST[dtype]
        least = -largest
        low, high = float(low), float(high)
    if low > high:
        raise ValueError(f"the range begins at {low} above its end {high}; swap the two")
    if low < least or high > largest:
        raise ValueError(
            f"the range [{low}, {high}] is wider than {dtype}; stay within [{least}, {largest}]"
        )
    return low, high


def suggestion(dtype: str, shape: tuple[int | str, ...]) -> str:
    """How an integer input with a range is written."""
    high = min(29_999, INTEGER_BOUNDS[dtype][1])
    inner = ", ".join(map(str, shape))
    return f"{{dtype: {dtype}, shape: [{inner}], range: [0, {high}]}}"
