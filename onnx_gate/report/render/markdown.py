"""The report as Markdown: a pure function of the report and of where it is shown.

Whatever a template prints is escaped unless it is ``Markup`` already, so that a name or an error
message cannot become markup by being forgotten.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from onnx_gate import __version__
from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Change, Check, ModelResult, Problem, Report
from onnx_gate.report.model.diagnosis import LayerCost, Source
from onnx_gate.report.render import shorten
from onnx_gate.report.render.escape import code, fence, inline
from onnx_gate.report.render.links import Links, link
from onnx_gate.report.story import (
    audited,
    diagnosed,
    locations,
    precision,
    sentence,
    side_by_side,
    summary,
    times,
)
from onnx_gate.report.story.command import (
    check_command,
    download_command,
    replay_command,
    run_command,
)
from onnx_gate.report.story.coverage import describe
from onnx_gate.report.story.versus import (
    change_cell,
    check_change,
    newly_passes,
    output_changes,
    share_of_limit,
)
from onnx_gate.report.story.view import View
from onnx_gate.text import format_int, number

__all__ = ["Page", "View", "render"]

_SHOWN_CHECKS = 3
_COLUMNS = 8
_FOLDED_CHECKS = 10
_SHOWN_FIXED = 10
_SHOWN_FINDINGS = 10
_TAIL_LINES = 40
_TAIL_LIMIT = 3500
_CODES = 20
_VALUE_LIMIT = 800


def render(report: Report, view: View | None = None) -> str:
    """Return Markdown that GitHub renders: verdict, table, and what is behind each failure."""
    view = view or View(output=report.folder)
    return Page(report, view).render(view.level)


class Page:
    """A report as it is seen in a view, at every length; each model is rendered at most once."""

    def __init__(self, report: Report, view: View) -> None:
        models = summary.ordered(report.models)
        passing = [m for m in models if m.verdict == "pass"]
        self._report, self._view, self._links = report, view, Links(view)
        self._manifest = view.manifest_path or report.manifest.path
        self._failing = [m for m in models if m.verdict != "pass"]
        self._runtimes = side_by_side.runtimes(report)[:_COLUMNS]
        self._shown = {
            "report": report,
            "view": self._links,
            "manifest": self._manifest,
            "context": self._context(),
            "sentence": self._sentence(sentence.of_report(report, self._manifest)),
            "failing": self._failing,
            "runtimes": self._runtimes,
            "shares": self._shares,
            "row": functools.cache(self._row),
            "section": functools.cache(self._section),
            "passing": passing,
            "fixed": [m for m in passing if newly_passes(m)],
            "shown_fixed": _SHOWN_FIXED,
            "warnings": [(m, f) for m in passing for f in m.findings if f.severity == "warning"],
            "footer": self._footer(),
            "links": self._addresses(),
            "precisions": [(m, m.precision) for m in passing if m.precision is not None],
            "audits": self._audits(models),
            "times": times.times(report),
            "clock": next(iter(times.lines(report)), "") if view.times else "",
        }

    @property
    def last(self) -> int:
        """The shortest level: ``render`` takes 0 to this."""
        return shorten.last_level(len(self._failing))

    def render(self, level: int) -> str:
        """Return the whole text at one level."""
        return "".join(self.parts(level))

    def parts(self, level: int) -> Iterable[str]:
        """Return the text at one level piece by piece, for a reader who may have had enough."""
        detail = shorten.detail_at(level, len(self._failing))
        template = _ENVIRONMENT.get_template("bare.md.j2" if detail.bare else "report.md.j2")
        return template.generate(detail=detail, **self._shown)

    def _row(self, number: int) -> Markup:
        model = self._failing[number]
        check = summary.worst(model)
        name = code(model.name, 60)
        error, allowed = _error_cells(check) if check is not None else (Markup(""), Markup(""))
        if check is None or check.deviation is None:
            # How it failed is in the column of the tolerance: refused, or of another shape.
            error = Markup("")
        what: Markup | str = code(check.output, 60) if check is not None else ""
        if model.error is not None:
            what, error, allowed = f"{model.error.kind}, {model.error.code}", Markup(""), Markup("")
        cells = [
            Markup(summary.MARKS[model.verdict]),
            name if model.required else name + Markup(" (not required)"),
            self._where(model, check),
            what,
            Markup("**{}**").format(error) if error else error,
            allowed,
            *self._shares(model, check),
            *([Markup(change_cell(model, check))] if self._report.baseline is not None else []),
        ]
        return Markup("| {} |").format(Markup(" | ").join(cells))

    def _shares(self, model: ModelResult, check: Check | None) -> list[Markup | str]:
        """Return the share of the tolerance that was used: on each runtime where there are several."""
        if self._runtimes:
            return [inline(side_by_side.cell(model, name) or "", 40) for name in self._runtimes]
        return [Markup(summary.used(check)) if model.error is None else ""]

    def _where(self, model: ModelResult, check: Check | None) -> Markup | str:
        source = locations.of_model(model, self._manifest)
        if source is None and model.error is not None:
            source = locations.of_entry(model, self._manifest)
            source = source if source is not None and source.line else None
        if source is not None:
            return self._links.location(source, short=True)
        return code(check.case, 80) if check is not None and model.error is None else ""

    def _section(self, number: int) -> Markup:
        model = self._failing[number]
        bad = summary.failing(model)
        text = _ENVIRONMENT.get_template("section.md.j2").render(
            model=model,
            first=number == 0,
            bad=bad,
            findings=sorted(
                (f for f in model.findings if f.severity != "note"),
                key=lambda f: f.severity != "error",
            ),
            compared=self._report.baseline is not None,
            changes=output_changes(model) if self._report.baseline is not None else [],
            shown_checks=_SHOWN_CHECKS,
            folded_checks=_FOLDED_CHECKS,
            # That of the worst model is above, unless that is about the run.
            sentence=self._sentence(sentence.of_model(model, self._manifest))
            if number or self._report.problems
            else "",
            shown_findings=_SHOWN_FINDINGS,
            view=self._links,
            manifest=self._manifest,
            commands=[Markup(line) for line in self._commands(model, bad)],
            runtimes=len(model.runtimes) > 1,
            precision=self._precision(model),
            diagnosis=self._diagnosis(model),
        )
        return Markup(text)

    def _audits(self, models: Sequence[ModelResult]) -> Markup | None:
        audits = [(model, model.audit) for model in models if model.audit is not None]
        if not audits:
            return None
        text = _ENVIRONMENT.get_template("audit.md.j2").render(
            audits=audits, shown=audited.SHOWN_SURVIVORS, view=self._links
        )
        return Markup(text)

    def _commands(self, model: ModelResult, bad: Sequence[Check]) -> list[str]:
        replay = replay_command(model.diagnosis, self._view)
        download = download_command(self._view.run_id) if replay else ""
        verify = run_command(self._manifest, model, bad, self._view)
        return [line for line in (download, replay, verify) if line]

    def _precision(self, model: ModelResult) -> Markup | None:
        if model.precision is None:
            return None
        text = _ENVIRONMENT.get_template("precision.md.j2").render(
            precision=model.precision,
            shown=precision.SHOWN_LAYERS,
            view=self._links,
            manifest=self._manifest,
        )
        return Markup(text)

    def _diagnosis(self, model: ModelResult) -> Markup | None:
        diagnosis = model.diagnosis
        if diagnosis is None:
            return None
        where = None
        if diagnosis.source is not None:
            source = locations.of_source(diagnosis.source, self._manifest)
            where = self._links.location(source) if source else code(diagnosis.source.file, 120)
        chart = diagnosed.mermaid(diagnosis)
        text = _ENVIRONMENT.get_template("diagnosis.md.j2").render(
            diagnosis=diagnosis,
            node=diagnosis.node,
            title=diagnosed.title(diagnosis),
            meaning=diagnosed.meaning(diagnosis),
            deciding=diagnosed.deciding(diagnosis),
            where=where,
            around=diagnosed.around(diagnosis),
            chart=Markup(f"```mermaid\n{chart}\n```") if chart else None,
        )
        return Markup(text)

    def _sentence(self, shown: sentence.Sentence) -> Markup:
        reason = [code(shown.code, 120)] if shown.code else []
        reason += [inline(shown.why)] if shown.why else []
        subject = (
            [Markup("**{}**").format(code(shown.subject, 60))] if shown.subject is not None else []
        )
        text = Markup(": ").join(
            [*subject, inline(shown.what), *([Markup(" ").join(reason)] if reason else [])]
        )
        if shown.where is not None:
            text += Markup(", ") + self._links.location(shown.where)
        elif shown.file:
            text += Markup(", ") + code(shown.file, 120)
        return Markup("{}. {}").format(text, Markup(shown.action)).rstrip()

    def _context(self) -> Markup:
        report = self._report
        parts = (
            self._links.commit(),
            inline(summary.opsets(report)),
            inline(summary.versions(report)),
            self._links.baseline(report.baseline),
            inline(summary.shard(report)),
        )
        return Markup(" · ").join(part for part in parts if part)

    def _footer(self) -> Markup:
        report, view = self._report, self._view
        command = None
        if self._failing:
            worst = self._failing[0]
            command = run_command(self._manifest, worst, summary.failing(worst), view)
        elif report.problems and not report.models:
            command = check_command(self._manifest)
        level = report.sandbox.level if report.sandbox is not None else ""
        parts = (
            self._links.run(),
            self._links.report() if view.report_url else None,
            inline(f"onnx-gate {__version__}"),
            _labelled("manifest", self._manifest),
            inline(f"sandbox: {level}") if level in ("full", "off") else None,
            _labelled("reproduce:", command or ""),
        )
        return Markup(" · ").join(part for part in parts if part)

    def _addresses(self) -> Markup:
        view = self._view
        named = ((Markup("full report"), view.report_url), (Markup("run"), view.run_url))
        return Markup(" · ").join(link(label, address) for label, address in named if address)


def _labelled(label: str, value: str) -> Markup | None:
    return Markup("{} {}").format(label, code(value, _VALUE_LIMIT)) if value else None


@pass_context
def _lead(context: Context, subject: Change | Problem) -> Markup:
    """Return ``file:line: ``, or nothing where a change or a problem has no location."""
    shown = _location(context, subject)
    return shown + Markup(": ") if shown else shown


@pass_context
def _aside(context: Context, finding: Finding) -> Markup:
    """Return `` (file:line)``, or nothing where a finding has no location."""
    shown = _location(context, finding)
    return Markup(" ({})").format(shown) if shown else shown


@pass_context
def _source(context: Context, layer: LayerCost) -> Markup:
    """Return ``file:line`` of a layer, or nothing where it is not known."""
    return _location(context, layer.source) if layer.source is not None else Markup("")


def _location(context: Context, subject: Finding | Source | Change | Problem) -> Markup:
    manifest: str = context["manifest"]
    links: Links = context["view"]
    if isinstance(subject, Change):
        location = locations.of_entry(subject, manifest)
    elif isinstance(subject, Problem):
        location = locations.of_problem(subject, manifest)
    else:
        location = locations.of_source(subject, manifest)
    if location is not None:
        return links.location(location)
    file = None if isinstance(subject, Change) else subject.file
    return code(file, 120) if file else Markup("")


def _finalize(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return format_int(value)
    return inline(value)


def _codes(model: ModelResult) -> str:
    codes = dict.fromkeys(finding.code for finding in model.findings[:_CODES])
    return " ".join([*(["cached"] if model.cached else []), *codes])


def _values(check: Check) -> tuple[Markup, ...]:
    worst = check.worst
    if worst is None:
        return (Markup(""),) * 3
    expected, actual = summary.distinct_digits(worst.expected, worst.actual)
    shown = (expected, actual, summary.indices(worst.index))
    return tuple(Markup(f"<code>{text}</code>") for text in shown)


def _error_cells(check: Check) -> tuple[Markup, Markup]:
    """Return the error of a check and what was allowed, or why there is none."""
    if check.deviation is None:
        return inline(summary.first_line(check.reason), 120), Markup("")
    error, allowed = summary.error_and_limit(check)
    if check.deviation.measure in summary.ERRORS:
        return Markup(error), Markup(allowed)
    return inline(error, 80), Markup(allowed)


def _tail(lines: Sequence[str]) -> str:
    """Return the last lines of a log: what a block would cut off at its end matters most."""
    kept: list[str] = []
    for line in reversed(lines[-_TAIL_LINES:]):
        kept.append(line[:_TAIL_LIMIT])
        if sum(map(len, kept)) > _TAIL_LIMIT:
            kept[-1] = "…"
            break
    return "\n".join(reversed(kept))


def _trusted(function: Callable[..., str]) -> Callable[..., Markup]:
    """Have the text of a function of ours, which is made of numbers and words, left as it is."""
    return lambda *values: Markup(function(*values))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("onnx_gate.report.render", "templates"),
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "code": code,
        "fence": fence,
        "values": _values,
        "worst": summary.worst,
        "error_cells": _error_cells,
        "lead": _lead,
        "aside": _aside,
        "tail": _tail,
        "codes": _codes,
        "duration": _trusted(times.duration),
        "used": _trusted(summary.used),
        "number": _trusted(number),
        "described": describe,
        "outcome": summary.outcome,
        **audited.FILTERS,
        "precision_kind": precision.kind_line,
        "precision_yaml": precision.yaml,
        "precision_reason": precision.reason,
        "layer_name": precision.layer_name,
        "source": _source,
        "decibels": _trusted(precision.decibels),
        "change_cell": _trusted(change_cell),
        "share": _trusted(share_of_limit),
        "check_change": _trusted(check_change),
    }
    environment.globals |= {
        "headline": summary.headline,
        "sandbox": summary.sandbox,
        "tally": summary.tally,
        "marks": {name: Markup(mark) for name, mark in summary.MARKS.items()},
    }
    return environment


_ENVIRONMENT = _environment()
