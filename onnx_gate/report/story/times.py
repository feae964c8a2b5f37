"""Where the time of a run went: pure functions of the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnx_gate.report.model import ModelResult, Report, Stage
from onnx_gate.text import number, plain

_STAGES = 12
_SLOWEST = 5
_SHOWN = 5  # stages, on one line
_NAME = 40


@dataclass(frozen=True)
class Times:
    """Seconds of a whole run.

    ``wall`` is what the clock said, null where the report does not know; ``work`` what all models
    took together, and ``side_by_side`` how many of them ran at once on average. ``stages`` are
    the totals over all models, the longest first, with the time in which workers were in no
    stage as ``"(other)"``; ``slowest`` are the models that took longest. ``cached`` models are
    counted and in none of the sums: nothing of them was run.
    """

    wall: float | None
    work: float
    side_by_side: float | None
    stages: tuple[tuple[str, float], ...]
    slowest: tuple[tuple[str, float], ...]
    cached: int


def times(report: Report) -> Times:
    """Return where the time of a report's run went."""
    ran = [model for model in report.models if not model.cached]
    totals: dict[str, float] = {}
    for model in ran:
        for stage in model.stages:
            name = plain(stage.name, _NAME)
            totals[name] = totals.get(name, 0.0) + _finite(stage.seconds)
    taken = [(model.name, life(model)) for model in ran]
    work = math.fsum(seconds for _, seconds in taken)
    other = work - sum(_staged(model) for model in ran)
    if other > 0.01 * work:
        totals["(other)"] = other
    wall = _finite(report.seconds) if report.seconds is not None else None
    return Times(
        wall=wall,
        work=work,
        side_by_side=work / wall if wall else None,
        stages=_longest(totals.items(), _STAGES),
        slowest=_longest(taken, _SLOWEST),
        cached=len(report.models) - len(ran),
    )


def life(model: ModelResult) -> float:
    """Return the seconds of a model's worker; by its stages where nothing else is known."""
    return _finite(model.seconds) if model.seconds is not None else _staged(model)


def duration(seconds: float) -> str:
    """Return ``0.42 s``, ``3.2 s``, ``125 s`` as ``2 min 05 s``, or hours and minutes."""
    if not 0 <= seconds < 1e9:
        return f"{number(seconds)} s"
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def stages_line(stages: Sequence[Stage]) -> str:
    """Return ``build 0.10, export 3.2, verify 0.21 s``: the stages in their order.

    Parts of a stage (``verify: inputs``) are one, and what took no time to speak of is left out.
    """
    totals: dict[str, float] = {}
    for stage in stages:
        name = plain(stage.station, _NAME)
        totals[name] = totals.get(name, 0.0) + stage.seconds
    shown = [f"{name} {_short(total)}" for name, total in totals.items() if not 0 <= total < 0.005]
    return ", ".join(shown[:_STAGES] + ["…"] * (len(shown) > _STAGES)) + " s" * bool(shown)


def _short(seconds: float) -> str:
    return f"{seconds:.{2 if seconds < 0.995 else 1}f}" if 0 <= seconds < 1e9 else number(seconds)


def lines(report: Report) -> list[str]:
    """Return where the time went in at most four lines, the clock's first; none where it is unknown."""
    spent = times(report)
    if spent.wall is None or not report.models:
        return []
    first = f"{duration(spent.wall)} on the clock"
    if spent.cached:
        first += f"; {spent.cached} of {len(report.models)} from the cache"
    shown = [first]
    if spent.work > 0:
        average = f"{_plain(spent.side_by_side)} workers side by side on average"
        shown.append(f"{duration(spent.work)} of work, {average}")
    if spent.stages:
        shown.append(f"stages: {_list(spent.stages[:_SHOWN])}")
    if len(spent.slowest) > 1:
        shown.append(f"slowest: {_list(spent.slowest[:3])}")
    return shown


def _list(pairs: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{plain(name, _NAME)} {duration(seconds)}" for name, seconds in pairs)


def _plain(value: float | None) -> str:
    return f"{value:.1f}" if value is not None and value < 1000 else "?"


def _staged(model: ModelResult) -> float:
    return sum(_finite(stage.seconds) for stage in model.stages)


def _finite(seconds: float) -> float:
    return seconds if 0 <= seconds < 1e9 else 0.0


def _longest(pairs: Iterable[tuple[str, float]], most: int) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(pairs, key=lambda pair: -pair[1])[:most])
