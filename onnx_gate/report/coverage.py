"""What a model's checks have compared, and how sharply: pure, from the report's types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_gate.report.model import Check, ModelResult, OpenCause

COMPARED = ("pass", "diverged", "waived")


@dataclass(frozen=True)
class Coverage:
    """Numbers of one model, over all runtimes.

    ``compared`` are checks that count and have compared something, ``refused`` those in which a
    side raised, ``advice`` those that cannot fail the model. ``open`` and ``open_of`` are
    elements: those that PyTorch leaves open, of all in the checks that have some; ``causes`` says
    why. ``sizes`` are the sizes that were compared, of each dynamic dimension. ``resolution`` is
    the smallest relative error that some case would have caught in every output, null where it is
    not known.
    """

    compared: int
    refused: int
    advice: int
    open: int
    open_of: int
    causes: tuple[OpenCause, ...]
    sizes: Mapping[str, tuple[int, ...]]
    resolution: float | None


def coverage(model: ModelResult) -> Coverage:
    """Count what the checks of ``model`` have compared."""
    counting = [c for c in model.checks if not c.advice]
    compared = [c for c in counting if c.verdict in COMPARED]
    opened = [c for c in compared if c.open]
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
        sizes={name: tuple(sorted(values)) for name, values in sizes.items()},
        resolution=_resolution([c for c in compared if c.verdict == "pass"]),
    )


def _resolution(passed: list[Check]) -> float | None:
    """Return the best resolution of each output, and of these the worst."""
    best: dict[tuple[str, str], float] = {}
    for check in passed:
        if check.resolution is not None:
            key = check.runtime, check.output
            best[key] = min(best.get(key, check.resolution), check.resolution)
    return max(best.values(), default=None)
