"""What can be asked of PyTorch about one case, whoever answers it: data, and no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from onnx_gate.report.model import OpenCause
from onnx_gate.runtimes.base import Array, Outputs

# By how many times as much as in others everything is moved in the runs that open decisions: K of the
# judge's default.
WIDE = 10.0
# As many runs as a statement about all elements takes.
FEW = 4


def holds(seed: int) -> bool:
    """Return whether a run with moved rounding has what is beyond an end at it, as who flushes has it."""
    return seed % 2 == 0


@dataclass(frozen=True)
class Derived:
    """What an output of whole numbers was computed to be of an index, as rows and columns are.

    ``of`` is that of every place along the axis that was searched, ``places`` PyTorch's own indices in
    the output's shape.
    """

    of: Array
    places: Array


@dataclass(frozen=True)
class IndexSource:
    """An integer output, traced to the reduction that made it.

    ``values`` is what was searched, along ``axis`` (``None``: all of it, flattened). ``slots`` has
    the output's shape and says which element of the reduction's own index tensor, of shape
    ``index_shape``, each element of the output is. ``distinct``: no index may appear twice.
    ``promises_first``: of equals it is the first. ``derived``: the output is no index, but computed
    of one. ``chosen`` is the output itself.
    """

    values: Array
    axis: int | None
    slots: Array
    index_shape: tuple[int, ...]
    distinct: bool
    promises_first: bool
    derived: Derived | None = None
    chosen: Array | None = None

    def lanes(self, values: Array) -> Array:
        """Return values of the searched ones' shape as [lanes, places]: one lane for each search."""
        if self.axis is None:
            return values.reshape(1, -1)
        moved: Array = np.moveaxis(values, self.axis, -1)
        return moved.reshape(-1, moved.shape[-1])

    def lane_of(self) -> Array:
        """Return the lane of each of the output's elements, flat."""
        slots = self.slots.reshape(-1)
        if self.axis is None or self.values.ndim < 2:
            return np.zeros(slots.shape, np.int64)
        at = list(np.unravel_index(slots, self.index_shape))
        if len(self.index_shape) == self.values.ndim:
            del at[self.axis]
        sizes = tuple(np.delete(self.values.shape, self.axis))
        return np.asarray(np.ravel_multi_index(tuple(at), sizes), np.int64)

    def gather(self, indices: Array, values: Array | None = None) -> Array | None:
        """Return the values that ``indices`` (of the output's shape) point at.

        ``None`` where an index is out of range, or appears twice where it may not.
        """
        source = self.values if values is None else values
        flat_indices = indices.astype(np.int64).reshape(-1)
        axis, shape = self.axis, self.index_shape
        if axis is None:
            source, axis = source.reshape(-1), 0
            coordinates: list[Array] = [np.zeros_like(flat_indices)]
        else:
            coordinates = (
                [
                    np.asarray(c, dtype=np.int64)
                    for c in np.unravel_index(self.slots.reshape(-1), shape)
                ]
                if shape
                else []
            )
            if len(shape) == source.ndim - 1:
                coordinates.insert(axis, np.zeros_like(flat_indices))
        if source.ndim == 0:
            source, coordinates, axis = source.reshape(1), [np.zeros_like(flat_indices)], 0
        if flat_indices.size and (
            flat_indices.min() < 0 or flat_indices.max() >= source.shape[axis]
        ):
            return None
        coordinates[axis] = flat_indices
        if self.distinct and len(set(zip(*(c.tolist() for c in coordinates), strict=True))) != len(
            flat_indices
        ):
            return None
        picked: Array = source[tuple(coordinates)].reshape(indices.shape)
        return picked


class OutputAnswers(Protocol):
    """What PyTorch says of one output beyond its answer, computed when first asked for.

    By default there is nothing to say but what moved rounding does.
    """

    def float64(self) -> Array | None:
        """Return the output in float64; ``None`` where the model cannot run in it."""
        return None

    def rounding(self, count: int) -> Sequence[Array]:
        """Return the output of ``count`` runs with moved rounding, of those that worked, in its shape."""
        ...

    def replayed(self, count: int) -> Sequence[Array]:
        """Return the output of up to ``count`` runs in which the last operators alone are moved."""
        return ()


@dataclass(frozen=True)
class Searched(OutputAnswers):
    """What an integer output points into: as PyTorch computes it, and with rounding moved.

    ``moved`` is what each run with moved rounding has searched: equals that are equal there too are
    so by what they are, and not by how they were rounded. Float64 says nothing of values that are
    chosen from: they are judged by their own noise.
    """

    own: IndexSource
    moved: tuple[IndexSource, ...] = ()

    def rounding(self, count: int) -> Sequence[Array]:
        """Return the values that the runs have searched."""
        return [source.values for source in self.moved]


@dataclass(frozen=True)
class OtherAnswer:
    """One output of a variant: what PyTorch says where ``cause`` is decided the other way.

    ``moved`` is the same with rounding moved; of one that moved rounding has decided, the same with
    nothing moved, and whether it was ``held`` at ends.
    """

    cause: OpenCause
    array: Array
    moved: tuple[Array, ...] = ()
    held: bool = False


class Reference(OutputAnswers, Protocol):
    """What can be asked of PyTorch about one output of one case, computed when first asked for."""

    def reshaped(self) -> Sequence[Array]:
        """Return the runs with moved rounding in which the output has another shape."""
        return ()

    def variants(self) -> Sequence[OtherAnswer]:
        """Return the other answers that PyTorch leaves open here, without those of rounding."""
        return ()

    def searched(self) -> Searched | None:
        """Return what an integer output points into."""
        return None


class CaseAnswers(Protocol):
    """What PyTorch says of one case; ``stepped`` where it is no case but a step of one.

    ``rewritten`` are operators of which exporters write others that lose more, and these.
    """

    stepped: ClassVar[bool]

    @property
    def rewritten(self) -> Mapping[str, str]:
        """What of the rounding that was tried is none of PyTorch's own."""
        ...

    @property
    def outputs(self) -> Outputs:
        """PyTorch's answers."""
        ...

    def output(self, index: int) -> Reference:
        """Return what can be asked about one output."""
        ...
