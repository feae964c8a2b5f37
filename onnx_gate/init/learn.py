"""From recorded calls to inputs, ranges, and sizes that vary or depend on each other; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnx_gate.errors import UserError
from onnx_gate.init.facts import Attempt, Bound, Guess, Note
from onnx_gate.init.request import Request
from onnx_gate.manifest import DTYPES
from onnx_gate.text import listed

_NORMAL = 8.0


@dataclass(frozen=True)
class Tensor:
    """One tensor of one call; ``low`` and ``high`` are null where it is empty or not finite."""

    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class RecordedCall:
    """One recorded call of ``forward``, by parameter.

    ``constants`` are plain arguments, ``others`` the types of those that are neither. ``file`` has
    the tensors, of the calls that are kept. ``args`` and ``kwargs`` are what the module was made
    with, null where that is not known or not plain, ``config`` the values of an object instead.
    """

    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None
    args: tuple[Any, ...] | None = None
    kwargs: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None


def of_one_kind(calls: Sequence[RecordedCall]) -> tuple[RecordedCall, ...]:
    """Return the calls with the tensors that most have: a decoder's steps without its prompts."""
    kinds = Counter(tuple(call.tensors) for call in calls)
    return tuple(c for c in calls if tuple(c.tensors) == kinds.most_common(1)[0][0])


def learn(request: Request, calls: Sequence[RecordedCall]) -> Request:
    """Return a request to try what the calls of one kind had in common.

    Raises ``UserError`` where they have nothing that a manifest can say.
    """
    if not calls:
        raise UserError(f"{request.reference} was not called by the command that was recorded")
    every, calls = calls, of_one_kind(calls)
    names = list(calls[0].tensors)
    if not names:
        raise UserError(f"no call of {request.reference} had a tensor among its arguments")
    notes = [*_others(calls)]
    if len(calls) < len(every):
        rest = next(call for call in every if call not in calls)
        notes.append(
            Note(
                "unknown",
                f"{len(every) - len(calls)} of {len(every)} calls had other inputs "
                f"({_listed(list(rest.tensors))}): they want an entry of their own",
            )
        )
    shapes: dict[str, tuple[int | str, ...]] = {}
    axes = _Axes()
    for name in names:
        seen = [call.tensors[name] for call in calls]
        if len({(each.dtype, len(each.shape)) for each in seen}) > 1:
            raise UserError(
                f"{name} had {_listed(f'{e.dtype}[{len(e.shape)} dimensions]' for e in seen)}; one "
                "entry of a manifest has one: record them apart"
            )
        shapes[name] = axes.shape(name, seen)
    ranges = {name: _range([c.tensors[name] for c in calls if name in c.tensors]) for name in names}
    guesses = {
        name: Guess(_dtype(name, calls), shapes[name], ranges[name], _seen(name, calls))
        for name in names
    }
    notes += axes.notes()
    made = next((call for call in calls if call.kwargs is not None), None)
    taken = made if made is not None and not request.kwargs else None
    return replace(
        request,
        args=(taken.args or ()) if taken else request.args,
        kwargs=(taken.kwargs or {}) if taken else request.kwargs,
        recorded=Attempt(guesses, axes.sizes()),
        call=_constants(calls),
        config=next((call.config for call in calls if call.config is not None), None),
        varied=axes.varied(),
        notes=tuple(notes),
    )


def stored(calls: Sequence[RecordedCall]) -> list[Path]:
    """Return the files of the calls that are kept: the first, and the last of the others."""
    files = list(dict.fromkeys(call.file for call in calls if call.file is not None))
    return [*files[:1], *files[1:][-1:]]


def _dtype(name: str, calls: Sequence[RecordedCall]) -> str:
    dtype = next(call.tensors[name].dtype for call in calls if name in call.tensors)
    if dtype not in DTYPES:
        raise UserError(f"{name} is of dtype {dtype}, which no input of a manifest has")
    return dtype


def _seen(name: str, calls: Sequence[RecordedCall]) -> str:
    tensors = [call.tensors[name] for call in calls if name in call.tensors]
    lows = [each.low for each in tensors if each.low is not None]
    highs = [each.high for each in tensors if each.high is not None]
    values = f", values from {min(lows):g} to {max(highs):g}" if lows and highs else ""
    return f"shapes {_listed(str(list(each.shape)) for each in tensors)}{values}"


def _listed(texts: Iterator[str] | Sequence[str], most: int = 4) -> str:
    return listed(dict.fromkeys(texts), most)


def _others(calls: Sequence[RecordedCall]) -> Iterator[Note]:
    kinds = {name: kind for call in calls for name, kind in call.others.items()}
    for name, kind in kinds.items():
        yield Note("unknown", f"{name} was a {kind}, which is left out: see inputs in the manifest")


def _constants(calls: Sequence[RecordedCall]) -> dict[str, Any]:
    """Arguments that are no tensors and were the same in every call."""
    first = calls[0].constants
    return {k: v for k, v in first.items() if all(call.constants.get(k) == v for call in calls)}


def _range(tensors: Sequence[Tensor]) -> tuple[Bound, Bound] | None:
    """Return a range that holds what was seen, rounded to what was probably meant."""
    lows = [each.low for each in tensors if each.low is not None]
    highs = [each.high for each in tensors if each.high is not None]
    if tensors[0].dtype == "bool":
        return None
    if not lows or not highs:
        return (0, 1) if "int" in tensors[0].dtype else None
    low, high = min(lows), max(highs)
    if "int" in tensors[0].dtype:
        # An embedding of one index, or a mask that hides nothing, would be a range of one value.
        return int(low), max(int(high), int(low) + 1, 1)
    for bounds in ((0, 1), (-1, 1), (0, 255)):
        if bounds[0] <= low and high <= bounds[1] and (bounds[1] == 1 or high > _NORMAL * 2):
            return bounds
    if -_NORMAL <= low < 0 < high <= _NORMAL:
        return None
    return math.floor(low), math.ceil(high)


class _Axes:
    """Names for the sizes of axes, by how they varied from call to call."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._relations: list[str] = []

    def shape(self, name: str, tensors: Sequence[Tensor]) -> tuple[int | str, ...]:
        rank, dtype = len(tensors[0].shape), tensors[0].dtype
        return tuple(
            self._axis(name, axis, rank, dtype, [t.shape[axis] for t in tensors])
            for axis in range(rank)
        )

    def _axis(self, name: str, axis: int, rank: int, dtype: str, seen: Sequence[int]) -> int | str:
        sizes = tuple(seen)
        varies = len(set(sizes)) > 1
        wanted = _axis_name(name, axis, rank, dtype)
        if not varies:
            # Which of these can vary is tried: a batch and a sequence, in all inputs alike.
            nameable = axis == 0 or (axis == 1 and rank == 2 and "int" in dtype)
            if not nameable or (wanted in self._sizes and self._sizes[wanted] != sizes):
                return sizes[0]
            self._sizes[wanted] = sizes
            return wanted
        relation = self._related(sizes)
        if relation is not None:
            if not relation.isidentifier():
                self._relations.append(f"axis {axis} of {name} is {relation}, in every call")
            return relation
        own = wanted if wanted not in self._sizes else f"{name}_{wanted}"
        while own in self._sizes:
            own += "_"
        self._sizes[own] = sizes
        return own

    def _related(self, sizes: tuple[int, ...]) -> str | None:
        """Return how sizes follow from others: equal, a constant more or less, or a multiple."""
        for name, known in self._sizes.items():
            pairs = [(a, b) for a, b in zip(known, sizes, strict=True)]
            if len({a for a, _ in pairs}) < 2:
                continue
            differences = {b - a for a, b in pairs}
            if len(differences) == 1:
                more = differences.pop()
                sign = "+" if more > 0 else "-"
                return name if more == 0 else f"{name} {sign} {abs(more)}"
            for factor in range(2, 65):
                if all(b == a * factor for a, b in pairs):
                    return f"{factor} * {name}"
                if all(b == a // factor for a, b in pairs):
                    return f"{name} // {factor}"
        return None

    def sizes(self) -> dict[str, int]:
        """The sizes of the first call."""
        return {name: sizes[0] for name, sizes in self._sizes.items()}

    def varied(self) -> dict[str, tuple[int, ...]]:
        """The sizes of those that varied."""
        distinct = {name: tuple(sorted(set(sizes))) for name, sizes in self._sizes.items()}
        return {name: sizes for name, sizes in distinct.items() if len(sizes) > 1}

    def notes(self) -> list[Note]:
        return [Note("learned", text) for text in self._relations]


def _axis_name(name: str, axis: int, rank: int, dtype: str) -> str:
    if axis == 0:
        return "batch"
    if name.endswith((".key", ".value")) and axis == rank - 2:
        return "past"
    if rank == 4 and "int" not in dtype:
        return ("batch", "channels", "height", "width")[axis]
    if axis == 1 and (rank == 3 or "int" in dtype or dtype == "bool"):
        return "seq"
    return "length" if axis == rank - 1 else f"axis{axis}"
