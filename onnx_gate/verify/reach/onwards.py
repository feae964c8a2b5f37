"""More calls in a row than the manifest asks for: to beyond what the code names, or to what they show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.values.steps import MAX_STEPS
from onnx_gate.runtimes.base import Outputs
from onnx_gate.verify.reach.cost import SIDES
from onnx_gate.verify.reach.purse import Purse
from onnx_gate.verify.reach.sizes import LARGER
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.steps.feedback import Arrays
from onnx_gate.verify.steps.trajectory import steps_answered, steps_of


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
    spec: ModelSpec, watcher: Watcher, numbers: Iterable[int], purse: Purse, least: float
) -> int:
    """Return how many steps the purse's base is to begin, 0 where no more than the manifest's.

    ``least`` are the seconds that it may take to where a number is named, or something is shown.
    """
    if spec.steps is None or not spec.by_rounding:
        return 0
    with purse.least(least):
        shown = _showing(spec, watcher, purse)
    for number, seconds in further_steps(spec, {*numbers, shown}, least):
        with purse.least(seconds):
            if purse.takes(number * (SIDES + 1)):
                found = steps_answered(spec, watcher.eager, purse.base, number)
                return found if found > spec.steps.count else 0
    return 0


def _showing(spec: ModelSpec, watcher: Watcher, purse: Purse) -> int:
    """Return the last step at which a decision is on a side that none has shown, 0 where there is none.

    What is carried on may come to a limit after a hundred steps, and none of a few be near it.
    """
    left = {site: {*seen.left(site)} for site, seen in watcher.seen.items() if not site.has_rows}
    last, watch = 0, Watch(watcher)

    def ask(arrays: Arrays) -> Outputs:
        nonlocal watch
        watch = Watch(watcher)
        return watcher.eager.run(arrays, mode=watch)

    for number in islice(steps_of(spec, purse.base, ask), MAX_STEPS):
        for site, seen in watch.seen.items():
            own = left.get(watcher.known_as(site), set())
            if own & seen.sides:
                own -= seen.sides
                last = number
        if not any(left.values()) or not purse.takes(1.0):
            break
    return last
