"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from onnx_gate import __version__
from onnx_gate.report.layout import slug
from onnx_gate.report.model import Check, ModelResult, Report, Verdict
from onnx_gate.report.render import plots
from onnx_gate.report.render.drawing import Picture
from onnx_gate.report.story import (
    audited,
    decided,
    diagnosed,
    locations,
    precision,
    sentence,
    side_by_side,
    summary,
    times,
)
from onnx_gate.report.story.command import replay_command, run_command
from onnx_gate.report.story.coverage import describe
from onnx_gate.report.story.versus import (
    change_cell,
    change_sentence,
    check_change,
    output_changes,
    tally,
)
from onnx_gate.report.story.view import View
from onnx_gate.text import format_int, number, plain, visible

_ROWS = 4_000
"""Checks that the page has room for, shared out evenly."""
_MOST_ROWS, _LEAST_ROWS = 1_000, 20
_PICTURES = 50  # models, the failing first
_OPEN = 10
_BLOCK = 8_000
_LISTED = 50
_COLUMNS = 8
_MODELS = 1_000
_SECTIONS = 3_000_000
"""Bytes of all sections; where one does not fit, it and what follows is the sentence and the facts."""
_TITLES: dict[Verdict, str] = {"pass": "agrees", "diverged": "diverged", "error": "not verified"}


@dataclass(frozen=True)
class Section:
    """What the page says of one model beside its fields.

    ``facts`` are what is asked first of a failure, each with its name; ``commands`` show it again.
    ``rows`` are the checks that there is room for, the failing ones first.
    """

    number: int
    model: ModelResult
    check: Check | None
    where: str
    sentence: sentence.Sentence
    facts: tuple[tuple[str, Markup], ...]
    pictures: Sequence[Picture]
    commands: tuple[str, ...]
    rows: Sequence[Check]


def render(report: Report) -> str:
    """Return the page: every model and finding, the failing first. All text is escaped.

    It is below 5 MB whatever the report holds: it shows 4,000 checks, shared out among the models
    with the failing ones first, shortens names, and says how much it leaves to ``report.json``.
    """
    models = summary.ordered(report.models)
    shown = models[:_MODELS]
    sections = [_section(report, model, n, len(models)) for n, model in enumerate(shown)]
    compared = report.baseline is not None
    runtimes = side_by_side.runtimes(report)[:_COLUMNS]
    return _ENVIRONMENT.get_template("report.html.j2").render(
        report=report,
        models=models,
        sections=sections,
        details=list(_details(sections, compared)),
        runtimes=runtimes,
        compared=compared,
        sentence=sentence.of_report(report),
        headline=summary.headline(report),
        context=[summary.opsets(report), summary.versions(report), summary.shard(report)],
        sandbox=summary.sandbox(report),
        filters=list(_filters(models, compared)),
        tally=tally(report),
        times=times.times(report),
        times_lines=times.lines(report),
        version=__version__,
    )


def _section(report: Report, model: ModelResult, number: int, of: int) -> Section:
    manifest = report.manifest.path
    failed = model.verdict != "pass"
    bad = summary.failing(model)
    others = [c for c in model.checks if c.verdict != "diverged" or c.advice]
    room = max(_LEAST_ROWS, min(_MOST_ROWS, _ROWS // of))
    located = locations.of_model(model, manifest) or locations.of_entry(model, manifest)
    about = sentence.of_model(model, manifest)
    where = str(located) if located is not None else plain(about.file, 120)
    view = View(output=report.folder)
    commands = replay_command(model.diagnosis, view), run_command(manifest, model, bad, view)
    return Section(
        number=number,
        model=model,
        check=summary.worst(model),
        where=where,
        sentence=about,
        facts=tuple(_facts(report, model, where)) if failed else (),
        pictures=plots.of_model(model) if number < _PICTURES else (),
        commands=tuple(filter(None, commands)) if failed else (),
        rows=(bad + others)[:room],
    )


def _facts(report: Report, model: ModelResult, where: str) -> Iterator[tuple[str, Markup]]:
    """Yield what people ask of a failure: which input, which element, how far off, where, since when."""
    check = next(iter(summary.failing(model)), None)
    diagnosis = model.diagnosis
    if model.error is not None:
        yield "Error", Markup("{}, {}").format(model.error.kind, model.error.code)
    if check is not None:
        sizes = [f"{plain(n, 30)}={format_int(size)}" for n, size in check.sizes.items()]
        at = f", {', '.join(sizes[:8])}" if sizes else ""
        yield "Input", Markup("{}{}, on {}").format(_code(check.case), at, plain(check.runtime, 60))
    if check is not None and check.worst is not None:
        expected, actual, index = _values(check)
        element = f"{plain(check.output, 60)}{index if check.worst.index else ''}"
        yield (
            "Element",
            Markup("{}: {} says <b>{}</b>, ONNX <b>{}</b>").format(
                _code(element), model.against, expected, actual
            ),
        )
    if check is not None and check.deviation is not None:
        value, allowed = summary.error_and_limit(check)
        own = check.metrics.scaled_torch if check.metrics is not None else None
        known = (
            f", {summary.used(check)} of the tolerance" if math.isfinite(check.budget or 0) else "",
            f"; {model.against}'s own rounding is {number(own)}" if own else "",
        )
        yield (
            "Error",
            Markup("<b>{}</b> where {} is allowed{}{}").format(plain(value, 60), allowed, *known),
        )
    elif check is not None:
        yield "Difference", escape(plain(summary.first_line(check.reason), 300))
    if diagnosis is not None and diagnosis.node is not None:
        node = diagnosis.node
        inside = Markup(" in {}").format(_code(node.module)) if node.module else ""
        name = _code(node.name or node.output)
        yield "First wrong node", Markup("{} {}{}").format(plain(node.op_type, 60), name, inside)
    if diagnosis is not None and diagnosis.fused_by:
        yield "Fusion", _code(diagnosis.fused_by)
    yield "Line", _code(where or "not known")
    if report.baseline is not None:
        lines = [change_sentence(model), *map(str, output_changes(model)[:_OPEN])]
        yield "Against the base", Markup("<br>").join(lines)
    else:
        yield "Against the base", Markup("no base was given to compare with")


def _details(sections: Sequence[Section], compared: bool) -> Iterator[Markup]:
    """Yield the models one by one, as long as there is room: whole, or else their sentence."""
    template = _ENVIRONMENT.get_template("model.html.j2")
    left, whole = _SECTIONS, True

    def rendered(section: Section) -> Markup:
        values = {"section": section, "model": section.model, "open": _OPEN}
        return Markup(template.render(compared=compared, whole=whole, **values))

    for section in sections:
        text = rendered(section)
        if whole and len(text.encode()) > left:
            whole = False
            text = rendered(section)
        left -= len(text.encode())
        if left < 0:
            return
        yield text


def _filters(models: Sequence[ModelResult], compared: bool) -> Iterator[tuple[str, str, int]]:
    """Yield the kinds of models that the page can show alone: class, label and number."""
    counts = {verdict: sum(m.verdict == verdict for m in models) for verdict in _TITLES}
    yield "all", "All", len(models)
    if counts["pass"] and counts["diverged"] and counts["error"]:
        yield "failing", "Failing", counts["diverged"] + counts["error"]
    for verdict, count in counts.items():
        if 0 < count < len(models):
            yield verdict, _TITLES[verdict].capitalize(), count
    changed = sum(m.base != m.verdict for m in models)
    if compared and 0 < changed < len(models):
        yield "changed", "Changed since the base", changed


def _values(check: Check) -> tuple[str, str, str]:
    if check.worst is None:
        return "", "", ""
    pair = summary.distinct_digits(check.worst.expected, check.worst.actual)
    return *pair, summary.indices(check.worst.index)


def _sentence(shown: sentence.Sentence) -> Markup:
    reason = [_code(shown.code)] if shown.code else []
    reason += [escape(shown.why)] if shown.why else []
    named = [] if shown.subject is None else [Markup("<b>{}</b>").format(plain(shown.subject, 60))]
    because = [Markup(" ").join(reason)] if reason else []
    text = Markup(": ").join([*named, escape(shown.what), *because])
    where = str(shown.where) if shown.where is not None else plain(shown.file, 120)
    if shown.where is not None or shown.file:
        text += Markup(", <code>{}</code>").format(where)
    return Markup("{}. {}").format(text, _prose(shown.action))


def _prose(text: str) -> Markup:
    """Return a sentence of the gate's in which what stands between backticks is code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
        for n, part in enumerate(parts)
    )


def _code(text: object) -> Markup:
    return Markup("<code>{}</code>").format(plain(text, 120) or "(empty)")


def _block(lines: str | Sequence[str]) -> str:
    """Return the last 60 lines of a text, each cut, with what cannot be seen replaced."""
    split = lines[-_BLOCK:].splitlines() if isinstance(lines, str) else lines
    return "\n".join(visible(line[:300]) for line in split[-60:])[-_BLOCK:]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("onnx_gate.report.render", "templates"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        **audited.FILTERS,
        "precision_lines": precision.lines,
        "layer_name": precision.layer_name,
        "decibels": precision.decibels,
        "outcome": summary.outcome,
        "sentence": _sentence,
        "slug": slug,
        "deciding": diagnosed.deciding,
        "title": diagnosed.title,
        "meaning": diagnosed.meaning,
        "values": _values,
        "number": number,
        "used": summary.used,
        "error_and_limit": summary.error_and_limit,
        "plain": plain,
        "code": _code,
        "described": describe,
        "counted": decided.counted,
        "never": decided.what,
        "decided_where": decided.where,
        "mebibytes": summary.mebibytes,
        "format_int": format_int,
        "check_change": check_change,
        "change_cell": change_cell,
        "duration": times.duration,
        "stages": times.stages_line,
        "block": _block,
        "problem": summary.problem_line,
        "change": summary.change_line,
        "of_runtime": side_by_side.cell,
    }
    environment.globals |= {"titles": _TITLES, "listed": _LISTED}
    return environment


_ENVIRONMENT = _environment()
