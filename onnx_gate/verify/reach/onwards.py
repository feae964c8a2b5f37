"""More calls in a row than the manifest asks for: to beyond a number that the code names of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.values.steps import MAX_STEPS
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reach.cost import SIDES
from onnx_gate.verify.reach.purse import Purse
from onnx_gate.verify.reach.sizes import LARGER
from onnx_gate.verify.steps.trajectory import steps_answered


def further_steps(
    spec: ModelSpec, numbers: Iterable[int], least: float
) -> Iterator[tuple[int, float]]:
    """Yield how many steps may show more, the most first, and which seconds each may take in any case.

    Two beyond a number that is named, as a buffer of so many places begins anew there; and some times as
    many as the manifest's. None where a tolerance was chosen for those: what is off adds up.
    """
    if spec.steps is None or not spec.by_rounding:
        return
    counts = [(n + 2, least) for n in sorted(set(numbers), reverse=True)]
    counts += [(times * spec.steps.count + 1, 0.0) for times in reversed(LARGER)]
    yield from (each for each in counts if spec.steps.count < each[0] <= MAX_STEPS)


def onwards(
    spec: ModelSpec, eager: Eager, numbers: Iterable[int], purse: Purse, least: float
) -> int:
    """Return how many steps the purse's base is to begin, 0 where no more than the manifest's.

    ``least`` are the seconds that it may take to where a number is named.
    """
    for number, seconds in further_steps(spec, numbers, least):
        with purse.least(seconds):
            if purse.takes(number * (SIDES + 1)):
                found = steps_answered(spec, eager, purse.base, number)
                return found if spec.steps is not None and found > spec.steps.count else 0
    return 0
