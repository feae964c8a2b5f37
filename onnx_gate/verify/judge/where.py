"""Outputs of which only some positions mean something: judged where an input, a mask, is not 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.dimensions import is_computed, names_of
from onnx_gate.manifest.nesting import above
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Judgement, Rules, is_floating
from onnx_gate.verify.judge.noise import Mask
from onnx_gate.verify.reference.answers import OtherAnswer, Reference


@dataclass(frozen=True)
class Selection:
    """The positions that are judged, of an output's leading dimensions, and the mask's name."""

    name: str
    positions: Mask

    def of(self, array: Array) -> Array:
        """Return the judged elements, those of each position still beside each other."""
        selected: Array = array[self.positions]
        return selected

    def filled(self, candidate: Array, expected: Array) -> Array:
        """Return the candidate with PyTorch's elements where it is not judged."""
        outside = ~self.positions.reshape(
            *self.positions.shape, *[1] * (expected.ndim - self.positions.ndim)
        )
        return np.where(outside, expected.astype(candidate.dtype), candidate)

    def outside(self, array: Array) -> int:
        """Return how many elements are not judged."""
        return int(array.size - self.of(array).size)


def selection(
    spec: ModelSpec,
    output: str,
    shape: Sequence[int],
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    case: str,
) -> Selection | None:
    """Return which positions of an output are judged, ``None`` for all of them.

    A mask that covers what is cached and what is new (its last size is ``past + 1``) counts with
    its last positions. Raises ``GateError`` (OG410) where the mask has not the output's leading
    dimensions.
    """
    name = next((spec.where[key] for key in above(output) if key in spec.where), None)
    if name is None:
        return None
    mask = arrays[name] != 0
    declared = spec.inputs[name].shape[-1]
    if mask.ndim <= len(shape) and is_computed(declared):
        cached = mask.shape[-1] - shape[mask.ndim - 1]
        if cached > 0 and cached in {sizes.get(each) for each in names_of(declared)}:
            mask = mask[..., cached:]
    if mask.shape != tuple(shape[: mask.ndim]):
        raise codes.OG410.error(
            f"{case}: {output} {list(shape)} is to be judged where {name!r} "
            f"{list(arrays[name].shape)} is not 0, and their leading dimensions differ"
        )
    return Selection(name, np.asarray(mask, np.bool_))


def judge_selected(
    candidate: Array, expected: Array, rules: Rules, reference: Reference, selected: Selection
) -> Judgement:
    """Judge the selected elements alone."""
    if candidate.shape != expected.shape or candidate.dtype != expected.dtype:
        return judge(candidate, expected, rules, reference)
    if not is_floating(expected.dtype):
        # What an index points at is known by the shape of the whole output.
        judged = judge(selected.filled(candidate, expected), expected, rules, reference)
        return replace(judged, compared=max(judged.compared - selected.outside(expected), 0))
    judged = judge(
        selected.of(candidate),
        selected.of(expected),
        rules,
        _Selected(reference, selected, expected.shape),
    )
    worst = judged.worst
    if worst is None:
        return judged
    position = np.argwhere(selected.positions)[worst.index[0]]
    index = (*(int(i) for i in position), *worst.index[1:])
    return replace(judged, worst=worst.model_copy(update={"index": index}))


class _Selected(Reference):
    """What PyTorch says of the selected elements."""

    def __init__(self, whole: Reference, selected: Selection, shape: tuple[int, ...]) -> None:
        self._whole, self._selected, self._shape = whole, selected, shape

    def float64(self) -> Array | None:
        array = self._whole.float64()
        return None if array is None else self._of(array)

    def rounding(self, count: int) -> Sequence[Array]:
        arrays = (self._of(array) for array in self._whole.rounding(count))
        return [array for array in arrays if array is not None]

    def replayed(self, count: int) -> Sequence[Array]:
        arrays = (self._of(array) for array in self._whole.replayed(count))
        return [array for array in arrays if array is not None]

    def variants(self) -> Sequence[OtherAnswer]:
        made = []
        for other in self._whole.variants():
            array = self._of(other.array)
            moved = tuple(m for run in other.moved if (m := self._of(run)) is not None)
            if array is not None:
                made.append(replace(other, array=array, moved=moved))
        return made

    def _of(self, array: Array) -> Array | None:
        return self._selected.of(array) if array.shape == self._shape else None
