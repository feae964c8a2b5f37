"""What a model's checks have compared, and how sharply: pure, from the report's types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx_gate.report.model import Check, ModelResult, OpenCause, Resolution
from onnx_gate.report.story import decisions, steps
from onnx_gate.text import format_int, number, plain

COMPARED = ("pass", "diverged", "waived")
_NAME = 40
_SIZES = 6
_DIMENSIONS = 8
# Slices whose sizes are within this factor are as large as each other.
_ALIKE = 10


@dataclass(frozen=True)
class Coverage:
    """Numbers of one model, over all runtimes.

    ``compared`` are checks that count and have compared something, ``refused`` those in which a
    side raised, ``advice`` those that cannot fail the model. ``open`` and ``open_of`` are
    elements: those that PyTorch leaves open, of all that were looked at; ``causes`` says
    why. ``outside`` and ``outside_of`` are those outside of the masks that outputs are judged by.
    ``sizes`` are the sizes that were compared, of each dynamic dimension. ``resolution`` is
    of the output that resolves least, and ``output`` its name; null where it is not known.
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
    resolution: Resolution | None
    output: str = ""


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
    output, resolution = _least([c for c in compared if c.verdict == "pass"])
    return Coverage(
        compared=len(compared),
        refused=sum(check.verdict == "refused" for check in counting),
        advice=len(model.checks) - len(counting),
        open=sum(check.open for check in opened),
        open_of=sum(check.open + check.compared for check in compared),
        causes=tuple(dict.fromkeys(cause for check in opened for cause in check.causes)),
        outside=sum(check.outside for check in masked),
        outside_of=sum(check.outside + check.open + check.compared for check in masked),
        sizes={name: tuple(sorted(values)) for name, values in sizes.items()},
        resolution=resolution,
        output=output,
    )


def describe(model: ModelResult) -> str:
    """Return what was compared in one line; empty where there are no checks.

    ``13 compared, 1 refused, 4 advice; 12 of 640 elements open (order of equals); batch=1,2,7; would
    have caught 0.01 % of an element, 0.004 % of a row, 0.002 % of a channel; 96 of 98 decisions seen
    both ways, 2 never; all weights accounted for``
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
        parts.append(f"would have caught {resolved(numbers.resolution, numbers.output)}")
    more = (decisions.sentence(model), _weights(model), steps.sentence(model))
    return "; ".join([*parts, *(each for each in more if each)])


def _weights(model: ModelResult) -> str:
    """Return whether a file that passed has the module's weights, and nothing where it has none."""
    weights = model.weights
    if weights is None or not weights.total or model.verdict != "pass":
        return ""
    if weights.all_known:
        return "all weights accounted for"
    noun = "weight" if weights.total == 1 else "weights"
    return f"{format_int(len(weights.unknown))} of {format_int(weights.total)} {noun} not accounted for"


def _few(sizes: Sequence[int]) -> str:
    return ",".join([*map(format_int, sizes[:_SIZES]), *["…"] * (len(sizes) > _SIZES)])


def relative(error: float) -> str:
    """Return an error relative to an output's scale: in per cent where that is readable."""
    if error == math.inf:
        return "no error"
    if not 1e-5 <= error < 10:
        return number(error)
    return f"{error:.0%}".replace("%", " %") if error >= 1 else f"{error * 100:.2g} %"


def resolved(found: Resolution, output: str) -> str:
    """Return how small an error is refused: of an element, a row and a channel, and where of less."""
    far = found.others is not None
    parts = [
        f"{relative(found.others if found.others is not None else found.element)} of an element"
    ]
    for size, what in ((found.row, "row"), (found.channel, "channel")):
        if size is not None:
            parts.append(f"{relative(size)} of a {what}")
    text = ", ".join(parts)
    if far:
        place = ", ".join([*[":"] * found.axis, str(found.index)])
        more = f" and {found.more} more" if found.more else ""
        text += f"; but {relative(found.element)} of an element in {plain(output, _NAME)}[{place}]{more}"
        if not 1 / _ALIKE < found.size < _ALIKE:
            text += f" ({number(found.size)} times as large as is usual)"
    return text


def _least(passed: Sequence[Check]) -> tuple[str, Resolution | None]:
    """Return the output that resolves least, and what it does."""
    known = [(c.resolution.worst, c.output, c.resolution) for c in passed if c.resolution]
    _, output, least = max(known, key=lambda each: each[0], default=(0.0, "", None))
    return output, least
