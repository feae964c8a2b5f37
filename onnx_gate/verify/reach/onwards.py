"""More calls in a row than the manifest asks for: to beyond a number that the code names of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.values.steps import MAX_STEPS
from onnx_gate.runtimes.torch_eager import Eager
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
    asked = spec.steps.count
    for number in sorted({n + 2 for n in numbers}, reverse=True):
        if asked < number <= MAX_STEPS:
            yield number, least
    for times in reversed(LARGER):
        yield min(times * asked + 1, MAX_STEPS), 0.0


def onwards(
    spec: ModelSpec, eager: Eager, numbers: Iterable[int], purse: Purse, least: float
) -> int:
    """Return how many steps the purse's base is to begin, 0 where no more than the manifest's.

    ``least`` are the seconds that it may take to where a number is named.
    """
    for number, seconds in further_steps(spec, numbers, least):
        with purse.least(seconds):
            if not purse.takes(number * purse.cost.case() / purse.cost.forward()):
                continue
            found = steps_answered(spec, eager, purse.base, number)
        return found if spec.steps is not None and found > spec.steps.count else 0
    return 0
