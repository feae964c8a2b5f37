"""What every kind of suite looks like: from its entry in the manifest to named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.manifest import InputSpec
from onnx_gate.manifest.dimensions import is_computed, names_of, size_of
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import FLOATS, numpy_dtype
from onnx_gate.verify.inputs.sizes import Sizes

ENTRY_POINT_GROUP = "onnx_gate.suites"


@dataclass(frozen=True)
class Draft:
    """One case before it has an id: ``parts`` stand in it behind the suite's name.

    ``expected`` holds stored outputs by name or position, where the suite has them. ``edge`` is
    the kind of edge, for a suite of edges.
    """

    parts: tuple[str, ...]
    arrays: Mapping[str, Array]
    sizes: Sizes
    expected: Mapping[str, Array] = field(default_factory=dict)
    edge: str = ""


@dataclass(frozen=True)
class SuiteContext:
    """What a suite may know of the model that it feeds.

    ``combinations`` are the sizes of the dynamic dimensions to test, ``once`` those at which one
    case is enough. With a ``focus`` nobody has asked for the cases: then each combination gets one,
    and everything else is tried at the sizes of ``focus`` alone.
    """

    name: str
    inputs: Mapping[str, InputSpec]
    combinations: tuple[Sizes, ...]
    workspace: Path
    once: tuple[Sizes, ...] = ()
    focus: Sizes | None = None


class SuiteKind(Protocol):
    """A kind of suite, registered under the key that the manifest uses for it."""

    def cases(self, suite: Any, context: SuiteContext) -> Iterator[Draft]:
        """Yield the cases; raises ``GateError`` of kind ``unverified`` where it cannot."""
        ...


def check_arrays(
    arrays: Mapping[str, Array], inputs: Mapping[str, InputSpec], where: str
) -> dict[str, int]:
    """Return the sizes of the dynamic dimensions in ``arrays`` given by a user.

    Raises ``GateError`` (OG108) where an input is missing, unknown, of another dtype or shape, or
    where a dynamic dimension has two sizes.
    """
    problems: list[str] = []
    missing = [name for name in inputs if name not in arrays]
    unknown = [name for name in arrays if name not in inputs]
    if missing:
        problems.append(f"lacks {', '.join(missing)}")
    if unknown:
        problems.append(f"has {', '.join(unknown)}, which the manifest does not name")
    sizes: dict[str, int] = {}
    for name, spec in inputs.items():
        if name in arrays:
            problems.extend(_mismatches(name, arrays[name], spec, sizes))
    problems.extend(_miscomputed(arrays, inputs, sizes))
    if problems:
        raise codes.OG108.error(f"{where}: {'; '.join(problems)}")
    return sizes


def _mismatches(name: str, array: Array, spec: InputSpec, sizes: dict[str, int]) -> Iterator[str]:
    if array.dtype != numpy_dtype(spec.dtype):
        yield f"{name} is {array.dtype}, the manifest says {spec.dtype}"
    shown = f"[{', '.join(map(str, spec.shape))}]"
    if array.ndim != len(spec.shape):
        yield f"{name} has shape {list(array.shape)}, the manifest says {shown}"
        return
    for size, declared in zip(array.shape, spec.shape, strict=True):
        if isinstance(declared, int):
            if size != declared:
                yield f"{name} has shape {list(array.shape)}, the manifest says {shown}"
                return
        elif not is_computed(declared) and sizes.setdefault(declared, size) != size:
            yield f"{declared} is {sizes[declared]} in one input and {size} in {name}"


def _miscomputed(
    arrays: Mapping[str, Array], inputs: Mapping[str, InputSpec], sizes: Mapping[str, int]
) -> Iterator[str]:
    """Yield the computed sizes that are others than the dimensions of the same case make them."""
    for name, spec in inputs.items():
        if name not in arrays or arrays[name].ndim != len(spec.shape):
            continue
        for size, declared in zip(arrays[name].shape, spec.shape, strict=True):
            known = is_computed(declared) and sizes.keys() >= set(names_of(declared))
            if known and size_of(declared, sizes) != size:
                yield f"{declared} is {size_of(declared, sizes)}, and {size} in {name}"


def is_float(spec: InputSpec) -> bool:
    """Return whether an input holds floating-point numbers."""
    return spec.dtype in FLOATS


def as_array(value: Any, where: str) -> Array:
    """Return a NumPy array of a user's value: an array, a tensor, a number or nested lists."""
    if hasattr(value, "detach"):
        from onnx_gate.runtimes.torch_eager import to_array

        return to_array(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise codes.OG108.error(f"{where}: not an array: {error}") from error
    if array.dtype == object:
        raise codes.OG108.error(f"{where}: not an array of numbers")
    return array
