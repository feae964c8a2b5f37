"""Reports of several runs beside each other: how each output came to where it is, and since when. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.story import summary
from onnx_gate.report.story.versus import GREW, NEAR, share_of_limit
from onnx_gate.text import plain, quote

State = Literal["pass", "diverged", "error"]

_NAME = 60
_NAMED = 5
_VERBS: Mapping[State, str] = {
    "diverged": "diverges",
    "error": "cannot be verified",
    "pass": "passes, nearer to its limit",
}


@dataclass(frozen=True)
class Point:
    """One output in one run: ``share`` is what it used of its limit, null where nothing was measured."""

    state: State
    share: float | None = None


@dataclass(frozen=True)
class Series:
    """One output of one model over all runs, ``None`` for each run that does not have it.

    ``output`` is empty for a model that has been compared in none of them. ``since`` is the run, as
    an index, from which on it fails or has grown, and ``before`` the last one that was better; both
    are null where nothing got worse.
    """

    model: str
    output: str
    points: tuple[Point | None, ...]
    since: int | None = None
    before: int | None = None


@dataclass(frozen=True)
class Run:
    """One report: its name as it was given, the commit, and when that or the run was made."""

    name: str
    sha: str
    time: datetime | None
    verdict: str

    @property
    def label(self) -> str:
        """The commit in short, or else the file."""
        return plain(self.sha[:7] or self.name, _NAME)


@dataclass(frozen=True)
class Runs:
    """Several runs, the oldest first, and what is odd about them; ``latest`` is the last report."""

    runs: tuple[Run, ...]
    series: tuple[Series, ...]
    notes: tuple[str, ...]
    latest: Report


def join_runs(named: Sequence[tuple[str, Report]]) -> Runs:
    """Return the history that reports tell, each with the name of its file; at least one.

    They are in the order of their commits where each has a commit's time, else in that of the runs
    where each has one, and else as they are given. A report that is there twice counts once.
    """
    notes: list[str] = []
    kept: dict[str, tuple[str, Report]] = {}
    for name, report in named:
        first, _ = kept.setdefault(report.model_dump_json(), (name, report))
        if first != name:
            notes.append(f"{name} is the same report as {first} and is left out")
    ordered, order_note = _ordered(list(kept.values()))
    reports = [report for _, report in ordered]
    return Runs(
        runs=tuple(_run(name, report) for name, report in ordered),
        series=tuple(_series(reports)),
        notes=(*notes, *order_note, *_oddities(reports)),
        latest=reports[-1],
    )


def sentences(history: Runs) -> list[str]:
    """Return what fails or got worse, and since which run.

    Failing outputs first, of these the ones that once passed, then as far off as they are.
    """
    worse = [each for each in history.series if each.since is not None]
    worse.sort(key=_gravity)
    return [_sentence(each, history) for each in worse]


def _gravity(series: Series) -> tuple[bool, bool, float]:
    last = _last(series)
    return last.state == "pass", series.before is None, -(last.share or math.inf)


def headline(history: Runs) -> str:
    """Return one sentence: the worst of what fails or got worse, or that nothing does."""
    found = sentences(history)
    if not found:
        return f"nothing got worse over {len(history.runs)} {_plural('run', len(history.runs))}"
    more = f"; {len(found) - 1} more below" if len(found) > 1 else ""
    return f"{found[0]}{more}"


def sparkline(series: Series, most: int = 40) -> str:
    """Return a character for each of the last runs: the share of the limit on a scale of powers.

    From a thousandth of the limit up; the limit is at ``▅``. ``·`` is a run without it, ``×`` one
    in which it could not be verified or measured.
    """
    return "".join(_bar(point) for point in series.points[-most:])


def power_of_limit(share: float) -> float:
    """Return log10 of a share; of none at all and of an infinite one what is off every scale."""
    return math.log10(share) if 0 < share < math.inf else math.copysign(9, share - 1)


def _bar(point: Point | None) -> str:
    if point is None:
        return "·"
    if point.share is None or math.isnan(point.share):
        return "×"
    power = math.floor(power_of_limit(point.share))
    level = min(3, 4 + power) if point.state == "pass" else 4 + max(0, power)
    return "▁▂▃▄▅▆▇█"[min(7, max(0, level))]


def _ordered(
    named: list[tuple[str, Report]],
) -> tuple[list[tuple[str, Report]], tuple[str, ...]]:
    for time in (_committed, _created):
        times = [time(report) for _, report in named]
        known = [each for each in times if each is not None]
        if len(known) == len(named):
            return [
                pair for _, pair in sorted(zip(known, named, strict=True), key=lambda p: p[0])
            ], ()
    if len(named) < 2:
        return named, ()
    return named, ("not every report says when it was made: they are in the order that was given",)


def _committed(report: Report) -> datetime | None:
    # A run on GitHub is about a commit that need not be the one that is checked out.
    return report.commit.time if report.commit is not None and report.run is None else None


def _created(report: Report) -> datetime | None:
    return report.created


def _run(name: str, report: Report) -> Run:
    return Run(name, report.sha, _committed(report) or report.created, report.verdict)


def _oddities(reports: Sequence[Report]) -> Iterator[str]:
    paths = list(dict.fromkeys(report.manifest.path for report in reports))
    if len(paths) > 1:
        shown = ", ".join(quote(path) for path in paths[:_NAMED])
        yield f"the reports are of different manifests: {shown}; models are matched by their names"
    for report in reports:
        part = summary.shard(report)
        if part:
            yield f"{_run('', report).label or 'a report'} is {part} alone"
    names = [{model.name for model in report.models} for report in reports]
    if len(reports) > 1 and not set.intersection(*names):
        yield "no model is in all of the reports"


def _series(reports: Sequence[Report]) -> Iterator[Series]:
    """One series for each output, in the order of the last report, then those that are gone."""
    models = [{model.name: model for model in report.models} for report in reports]
    for name in dict.fromkeys(name for by_name in reversed(models) for name in by_name):
        results = [by_name.get(name) for by_name in models]
        outputs = list(
            dict.fromkeys(
                check.output
                for model in reversed(results)
                if model is not None
                for check in model.checks
                if not check.advice
            )
        )
        for output in outputs or [""]:
            points = tuple(_point(model, output) for model in results)
            since, before = _worse(points)
            yield Series(name, output, points, since, before)


def _point(model: ModelResult | None, output: str) -> Point | None:
    if model is None:
        return None
    if model.error is not None:
        return Point("error")
    checks = [c for c in model.checks if c.output == output and not c.advice]
    if not checks:
        return Point(model.verdict) if not output else None
    bad = any(check.verdict == "diverged" for check in checks)
    return Point("diverged" if bad else "pass", largest_share(checks))


def largest_share(checks: Sequence[Check]) -> float | None:
    """Return the largest share of its limit that one of the checks used; a NaN is the largest."""
    shares = [check.budget for check in checks if check.budget is not None]
    return max(shares, key=lambda share: math.inf if math.isnan(share) else share, default=None)


def _worse(points: Sequence[Point | None]) -> tuple[int | None, int | None]:
    """Return since when an output fails, or has grown most, and the last run before that."""
    known = [(i, point) for i, point in enumerate(points) if point is not None]
    last = known[-1][1]
    if last.state != "pass":
        good = [place for place, (_, point) in enumerate(known) if point.state == "pass"]
        return (known[good[-1] + 1][0], known[good[-1]][0]) if good else (known[0][0], None)
    grown = [
        (after.share / before.share, since, earlier)
        for (earlier, before), (since, after) in itertools.pairwise(known)
        if before.state == after.state == "pass"
        and before.share
        and after.share
        # What has come down again is not worse.
        and (last.share or 0.0) >= max(NEAR, GREW * before.share)
    ]
    factor, since, earlier = max(grown, default=(0.0, 0, 0))
    return (since, earlier) if factor >= GREW else (None, None)


def _last(series: Series) -> Point:
    return next(point for point in reversed(series.points) if point is not None)


def _sentence(series: Series, history: Runs) -> str:
    assert series.since is not None
    now, name = _last(series), plain(series.model, _NAME)
    name += f", {plain(series.output, _NAME)}" if series.output else ""
    since = history.runs[series.since]
    date = f" ({since.time:%Y-%m-%d})" if since.time is not None else ""
    text = f"{name} {_VERBS[now.state]}"
    if series.before is None:
        whenever = (
            "in every run" if series.since == 0 else f"since it is there, {since.label}{date}"
        )
        return f"{text} {whenever}"
    text += f" since {since.label}{date}"
    then = series.points[series.before]
    if then is not None and now.share is not None:
        text += f": was {share_of_limit(then.share)} of the limit in "
        text += f"{history.runs[series.before].label}, is {share_of_limit(now.share)}"
    return text


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
