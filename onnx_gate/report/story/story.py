"""What is to be said of a run and of each of its models, decided once: a rendering only shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnx_gate.findings.codes import code_of
from onnx_gate.findings.finding import GUESS, Finding
from onnx_gate.report.model import Change, Check, ModelResult, Problem, Report
from onnx_gate.report.model.diagnosis import Diagnosis, Evidence, LayerCost, NodeError
from onnx_gate.report.story import (
    audited,
    diagnosed,
    extent,
    headroom,
    locations,
    precision,
    remedied,
    sentence,
    shell,
    side_by_side,
    since,
    summary,
    times,
    versus,
)
from onnx_gate.report.story.knowing import KnownFault, known_faults
from onnx_gate.report.story.locations import Location, Place
from onnx_gate.report.story.remedied import TriedRemedy
from onnx_gate.report.story.sentence import Sentence
from onnx_gate.report.story.side_by_side import Cell
from onnx_gate.report.story.times import Times
from onnx_gate.report.story.versus import OutputChange
from onnx_gate.report.story.view import View


@dataclass(frozen=True)
class Row:
    """One check in words.

    ``error`` and ``allowed`` are in one unit and empty where nothing was measured; ``why`` then says
    what happened instead. ``used`` is the share of the tolerance, ``share`` the same in a sentence.
    ``expected``, ``actual`` and ``at`` are of the worst element, empty where there is none.
    """

    check: Check
    used: str
    share: str
    error: str
    allowed: str
    measured: str
    why: str
    change: str
    expected: str
    actual: str
    at: str


@dataclass(frozen=True)
class Remark:
    """A finding and where it is; one that does not ``matter`` is a note, or advice."""

    finding: Finding
    place: Place
    matters: bool


@dataclass(frozen=True)
class Why:
    """A diagnosis in words: whom it blames and what that means, what decided, and where.

    ``around`` are the faulty node and its neighbours, ``levels`` the error along the graph. ``replay``
    is the command that shows it, empty where there is none.
    """

    diagnosis: Diagnosis
    title: str
    meaning: str
    deciding: Evidence | None
    place: Place
    around: tuple[tuple[NodeError, bool], ...]
    levels: tuple[float, ...]
    lines: tuple[str, ...]
    replay: str = ""


@dataclass(frozen=True)
class Story:
    """What is to be said of one model.

    ``source`` is the line of the user's that its failure comes from, ``entry`` that of the manifest;
    ``place`` is the one to look at. ``failing`` are the checks that fail it, the worst first, and
    ``worst`` is the first of them, or else the one that is closest to failing. ``change`` is how it
    stands against the baseline in a word, ``since`` in a sentence, and ``outputs`` what moved.
    ``download`` and ``again`` are commands, empty where there is none. ``line`` is all of
    it in a line, ``outcome`` how it failed in a few words. ``further`` is why other runtimes diverge
    otherwise than ``why`` says. ``on`` are its cells in the columns of
    the run's runtimes. ``remedies`` are what was tried to make it green, ``known`` the public faults that
    it fails of.
    """

    model: ModelResult
    verdict: str
    line: str
    outcome: str
    sentence: Sentence
    source: Location | None
    entry: Location | None
    place: Place
    counted: int
    failing: tuple[Row, ...]
    worst: Row | None
    on: tuple[Cell | None, ...]
    seconds: str
    change: str
    since: str
    outputs: tuple[OutputChange, ...]
    fixed: bool
    download: str
    again: str
    why: Why | None
    further: tuple[Why, ...]
    remarks: tuple[Remark, ...]
    coverage: str
    precision: tuple[str, ...]
    layers: tuple[tuple[LayerCost, Place], ...]
    audit: tuple[str, ...]
    remedies: tuple[TriedRemedy, ...]
    known: tuple[KnownFault, ...]

    @property
    def fails(self) -> bool:
        """Whether it is anything but a pass."""
        return self.model.verdict != "pass"

    @property
    def whys(self) -> tuple[Why, ...]:
        """Why it diverges, and why other runtimes do otherwise."""
        return (*((self.why,) if self.why is not None else ()), *self.further)

    @property
    def replays(self) -> tuple[str, ...]:
        """The commands that replay its reproductions."""
        return tuple(each.replay for each in self.whys if each.replay)


@dataclass(frozen=True)
class RunStory:
    """What is to be said of a run; its ``models`` are in the manifest's order.

    ``ordered`` has the failing ones first, the worst of them at the beginning. ``against`` is how the
    run stands against the baseline, ``compared`` whether there is one. ``runtimes`` are the columns of
    a table, where any model has several. ``seconds`` are lines on where the time went, ``packages`` on
    what other releases of packages made of the answers.
    """

    report: Report
    view: View
    manifest: str
    models: tuple[Story, ...]
    ordered: tuple[Story, ...]
    failing: tuple[Story, ...]
    passing: tuple[Story, ...]
    sentence: Sentence
    headline: str
    against: str
    compared: bool
    runtimes: tuple[str, ...]
    problems: tuple[tuple[Problem, str, Place], ...]
    changes: tuple[tuple[Change, str, Place], ...]
    sandbox: str
    exposed: bool
    context: tuple[str, str, str]
    times: Times
    seconds: tuple[str, ...]
    packages: tuple[str, ...]
    again: str


def tell(report: Report, view: View | None = None) -> RunStory:
    """Return what is to be said of a report where it is shown."""
    view = view or View(output=report.folder)
    manifest = view.manifest_path or report.manifest.path
    runtimes = side_by_side.runtimes(report)
    models = tuple(tell_model(model, report, view, runtimes) for model in report.models)
    ordered = tuple(sorted(models, key=lambda each: summary.rank(each.model)))
    failing = tuple(each for each in ordered if each.fails)
    level = report.sandbox.level if report.sandbox is not None else ""
    return RunStory(
        report=report,
        view=view,
        manifest=manifest,
        models=models,
        ordered=ordered,
        failing=failing,
        passing=tuple(each for each in ordered if not each.fails),
        sentence=sentence.of_report(report, manifest),
        headline=summary.headline(report),
        against=versus.tally(report),
        compared=report.baseline is not None,
        runtimes=runtimes,
        problems=tuple(
            (each, summary.problem_line(each), locations.place_of_problem(each, manifest))
            for each in report.problems
        ),
        changes=tuple(
            (each, summary.change_line(each), Place(locations.of_entry(each, manifest)))
            for each in report.changes
        ),
        sandbox=summary.sandbox(report),
        exposed=level in ("partial", "none"),
        context=(summary.opsets(report), summary.versions(report), summary.shard(report)),
        times=times.times(report),
        seconds=tuple(times.lines(report)),
        packages=since.lines(report.since),
        again=_again(failing, report, manifest),
    )


def tell_model(
    model: ModelResult, report: Report, view: View, runtimes: Sequence[str] = ()
) -> Story:
    """Return what is to be said of one model of a report."""
    manifest = view.manifest_path or report.manifest.path
    failing = tuple(map(row, summary.failing(model)))
    closest = summary.closest(model.checks)
    worst = failing[0] if failing else row(closest) if closest is not None else None
    about = sentence.of_model(model, manifest)
    source, entry = locations.of_model(model, manifest), locations.of_entry(model, manifest)
    check = worst.check if worst is not None else None
    whys = tuple(_why(each, manifest, view) for each in model.diagnoses)
    layers = model.precision.layers if model.precision is not None else ()
    return Story(
        model=model,
        verdict=model.verdict if model.required else f"{model.verdict} (not required)",
        line=summary.model_line(model),
        outcome=summary.outcome(model),
        sentence=about,
        source=source,
        entry=entry,
        place=Place(source or entry, about.file),
        counted=summary.counting(model),
        failing=failing,
        worst=worst,
        on=tuple(side_by_side.cell(model, name) for name in runtimes),
        seconds=summary.seconds(model),
        change=versus.change_cell(model, check),
        since=versus.change_sentence(model),
        outputs=tuple(versus.output_changes(model)),
        fixed=versus.newly_passes(model),
        download=shell.download_command(view.run_id) if any(w.replay for w in whys) else "",
        again=shell.run_command(manifest, model, [each.check for each in failing], view),
        why=whys[0] if whys else None,
        further=whys[1:],
        remarks=tuple(_remark(finding, manifest) for finding in _each_once(_worth_saying(model))),
        coverage=extent.describe(model),
        precision=(
            *(precision.lines(model.precision) if model.precision is not None else ()),
            *([line] if (line := headroom.sentence(model)) else []),
        ),
        layers=tuple((each, locations.place_of(each.source, manifest)) for each in layers),
        audit=tuple(audited.lines(model.audit, model.against)) if model.audit is not None else (),
        remedies=tuple(remedied.tried(model)),
        known=tuple(known_faults(model)),
    )


def row(check: Check) -> Row:
    """Return one check in words."""
    error, allowed = summary.error_and_limit(check)
    expected = actual = at = ""
    if check.worst is not None:
        expected, actual = summary.distinct_digits(check.worst.expected, check.worst.actual)
        at = summary.indices(check.worst.index)
    return Row(
        check=check,
        used=summary.used(check),
        share=summary.used_sentence(check),
        error=error,
        allowed=allowed,
        measured=sentence.measured(check),
        why=summary.first_line(check.reason) if check.deviation is None else "",
        change=versus.check_change(check),
        expected=expected,
        actual=actual,
        at=at,
    )


def _worth_saying(model: ModelResult) -> Sequence[Finding]:
    """Return a model's findings; no guesses at a cause beside one that an experiment has shown."""
    shown = model.diagnosis is not None and model.diagnosis.cause
    return [each for each in model.findings if not (shown and each.data.get(GUESS))]


def _each_once(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings, of several at one line that have one remedy the first, with their number."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        # Without a line, what is alike is about different things: outputs, suites, inputs.
        place = (finding.file, finding.line) if finding.file else (finding.message,)
        alike.setdefault((finding.code, finding.severity, *place), []).append(finding)
    for first, *others in alike.values():
        more = f" (and {len(others)} more at this line)" if others else ""
        yield first.model_copy(update={"message": first.message + more}) if more else first


def _remark(finding: Finding, manifest: str) -> Remark:
    matters = finding.severity != "note" and not code_of(finding.code).advice
    return Remark(finding, locations.place_of(finding, manifest), matters)


def _why(diagnosis: Diagnosis, manifest: str, view: View) -> Why:
    place = locations.place_of(diagnosis.source, manifest)
    return Why(
        diagnosis=diagnosis,
        title=diagnosed.title(diagnosis),
        meaning=diagnosed.meaning(diagnosis),
        deciding=diagnosed.deciding(diagnosis),
        place=place,
        around=tuple(diagnosed.around(diagnosis)),
        levels=tuple(diagnosed.levels(diagnosis.nodes)),
        lines=tuple(diagnosed.lines(diagnosis, place)),
        replay=shell.replay_command(diagnosis, view),
    )


def _again(failing: Sequence[Story], report: Report, manifest: str) -> str:
    """Return the command that shows the worst of a run again, empty where nothing is wrong."""
    if failing:
        return failing[0].again
    return shell.check_command(manifest) if report.problems and not report.models else ""
