"""What a model's checks have compared, and how sharply: pure, from the report's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx_gate.report.model import Check, ModelResult, OpenCause
from onnx_gate.report.story import decided, steps
from onnx_gate.text import format_int, number, plain

COMPARED = ("pass", "diverged", "waived")
_NAME = 40
_SIZES = 6
_DIMENSIONS = 8


@dataclass(frozen=True)
class Coverage:
    """Numbers of one model, over all runtimes.

    ``compared`` are checks that count and have compared something, ``refused`` those in which a
    side raised, ``advice`` those that cannot fail the model. ``open`` and ``open_of`` are
    elements: those that PyTorch leaves open, of all in the checks that have some; ``causes`` says
    why. ``outside`` and ``outside_of`` are those outside of the masks that outputs are judged by.
    ``sizes`` are the sizes that were compared, of each dynamic dimension. ``resolution`` is
    the smallest relative error that some case would have caught in every output, null where it is
    not known.
    """

    compared: int
    refused: int
    advice: int
    open: int
    open_of: int
    causes: tuple[OpenCause, ...]
    outside: int
    outside_of: int
    sizes: Mapping[str, tuple[int, ...]]
    resolution: float | None


def coverage(model: ModelResult) -> Coverage:
    """Count what the checks of ``model`` have compared."""
    counting = [c for c in model.checks if not c.advice]
    compared = [c for c in counting if c.verdict in COMPARED]
    opened = [c for c in compared if c.open]
    masked = [c for c in compared if c.outside]
    sizes: dict[str, set[int]] = {}
    for check in compared:
        for name, size in check.sizes.items():
            sizes.setdefault(name, set()).add(size)
    return Coverage(
        compared=len(compared),
        refused=sum(check.verdict == "refused" for check in counting),
        advice=len(model.checks) - len(counting),
        open=sum(check.open for check in opened),
        open_of=sum(check.open + check.compared for check in opened),
        causes=tuple(dict.fromkeys(cause for check in opened for cause in check.causes)),
        outside=sum(check.outside for check in masked),
        outside_of=sum(check.outside + check.open + check.compared for check in masked),
        sizes={name: tuple(sorted(values)) for name, values in sizes.items()},
        resolution=_resolution([c for c in compared if c.verdict == "pass"]),
    )


def describe(model: ModelResult) -> str:
    """Return what was compared in one line; empty where there are no checks.

    ``13 compared, 1 refused, 4 advice; 12 of 640 elements open (order of equals); batch=1,2,7; would
    have caught a relative error of 0.01 %; 96 of 98 decisions seen both ways, 2 never``
    """
    if not model.checks:
        return ""
    numbers = coverage(model)
    counts = [
        f"{format_int(numbers.compared)} compared",
        *([f"{format_int(numbers.refused)} refused"] if numbers.refused else []),
        *([f"{format_int(numbers.advice)} advice"] if numbers.advice else []),
    ]
    parts = [", ".join(counts)]
    if numbers.open:
        of = f"{format_int(numbers.open)} of {format_int(numbers.open_of)} elements open"
        parts.append(f"{of} ({', '.join(numbers.causes)})" if numbers.causes else of)
    if numbers.outside:
        outside, of = format_int(numbers.outside), format_int(numbers.outside_of)
        parts.append(f"{outside} of {of} elements not compared, outside their mask")
    if numbers.sizes:
        shown = [f"{plain(name, _NAME)}={_few(each)}" for name, each in numbers.sizes.items()]
        parts.append(" ".join([*shown[:_DIMENSIONS], *["…"] * (len(shown) > _DIMENSIONS)]))
    if model.verdict == "pass" and numbers.resolution is not None:
        parts.append(f"would have caught a relative error of {relative(numbers.resolution)}")
    more = (decided.sentence(model), steps.sentence(model))
    return "; ".join([*parts, *(each for each in more if each)])


def _few(sizes: Sequence[int]) -> str:
    return ",".join([*map(format_int, sizes[:_SIZES]), *["…"] * (len(sizes) > _SIZES)])


def relative(error: float) -> str:
    """Return an error relative to an output's scale: in per cent where that is readable."""
    return f"{error * 100:.2g} %" if 1e-5 <= error < 10 else number(error)


def _resolution(passed: list[Check]) -> float | None:
    """Return the best resolution of each output, and of these the worst."""
    best: dict[tuple[str, str], float] = {}
    for check in passed:
        if check.resolution is not None:
            key = check.runtime, check.output
            best[key] = min(best.get(key, check.resolution), check.resolution)
    return max(best.values(), default=None)
