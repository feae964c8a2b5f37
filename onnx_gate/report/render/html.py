"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from onnx_gate import __version__
from onnx_gate.report.layout import slug
from onnx_gate.report.model import Report, Verdict
from onnx_gate.report.render import plots
from onnx_gate.report.render.drawing import Picture
from onnx_gate.report.story import audited, decisions, precision, summary, times
from onnx_gate.report.story.issues import rule_page
from onnx_gate.report.story.sentence import Sentence
from onnx_gate.report.story.story import Row, RunStory, Story, row, tell
from onnx_gate.text import counted, format_int, number, plain, visible

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
    """What the page has of one model beside its story.

    ``facts`` are what is asked first of a failure, each with its name; ``rows`` are the checks that
    there is room for, the failing ones first.
    """

    number: int
    story: Story
    facts: tuple[tuple[str, Markup], ...]
    pictures: Sequence[Picture]
    rows: Sequence[Row]


def render(report: Report) -> str:
    """Return the page: every model and finding, the failing first. All text is escaped.

    It is below 5 MB whatever the report holds: it shows 4,000 checks, shared out among the models
    with the failing ones first, shortens names, and says how much it leaves to ``report.json``.
    """
    run = tell(report)
    shown = run.ordered[:_MODELS]
    sections = [_section(run, story, n, len(run.ordered)) for n, story in enumerate(shown)]
    return _ENVIRONMENT.get_template("report.html.j2").render(
        run=run,
        report=report,
        sections=sections,
        details=list(_details(sections, run.compared)),
        runtimes=run.runtimes[:_COLUMNS],
        filters=list(_filters(run)),
        version=__version__,
    )


def _section(run: RunStory, story: Story, number: int, of: int) -> Section:
    room = max(_LEAST_ROWS, min(_MOST_ROWS, _ROWS // of))
    others = (c for c in story.model.checks if c.verdict != "diverged" or c.advice)
    return Section(
        number=number,
        story=story,
        facts=tuple(_facts(run, story)) if story.fails else (),
        pictures=plots.of_model(story.model) if number < _PICTURES else (),
        rows=[*story.failing[:room], *map(row, islice(others, max(room - len(story.failing), 0)))],
    )


def _facts(run: RunStory, story: Story) -> Iterator[tuple[str, Markup]]:
    """Yield what people ask of a failure: which input, which element, how far off, where, since when."""
    model, why = story.model, story.why
    if model.error is not None:
        yield "Error", Markup("{}, {}").format(model.error.kind, _linked(model.error.code))
    for shown in story.failing[:1]:
        check = shown.check
        sizes = [f"{plain(n, 30)}={format_int(size)}" for n, size in check.sizes.items()]
        at = f", {', '.join(sizes[:8])}" if sizes else ""
        yield "Input", Markup("{}{}, on {}").format(_code(check.case), at, plain(check.runtime, 60))
        if check.worst is not None:
            element = f"{plain(check.output, 60)}{shown.at if check.worst.index else ''}"
            said = Markup("{}: {} says <b>{}</b>, ONNX <b>{}</b>")
            values = _code(element), model.against, shown.expected, shown.actual
            yield "Element", said.format(*values)
        if check.deviation is not None:
            own = check.metrics.rounding if check.metrics is not None else None
            known = (
                f", {shown.share}" if math.isfinite(check.budget or 0) else "",
                f"; {model.against}'s own rounding is {number(own)}" if own else "",
            )
            off = Markup("<b>{}</b> where {} is allowed{}{}")
            yield "Error", off.format(plain(shown.error, 60), shown.allowed, *known)
        else:
            yield "Difference", escape(plain(shown.why, 300))
    if why is not None and why.diagnosis.node is not None:
        node = why.diagnosis.node
        inside = Markup(" in {}").format(_code(node.module)) if node.module else ""
        name = _code(node.name or node.output)
        yield (
            "First wrong node",
            Markup("{} {}{}").format(plain(node.operator or node.op_type, 60), name, inside),
        )
    if why is not None and why.diagnosis.fused_by:
        yield "Fusion", _code(why.diagnosis.fused_by)
    yield "Line", _code(str(story.place) or "not known")
    if run.compared:
        lines = [story.since, *map(str, story.outputs[:_OPEN])]
        yield "Against the base", Markup("<br>").join(lines)


def _details(sections: Sequence[Section], compared: bool) -> Iterator[Markup]:
    """Yield the models one by one, as long as there is room: whole, or else their sentence."""
    template = _ENVIRONMENT.get_template("model.html.j2")
    left, whole = _SECTIONS, True

    def rendered(section: Section) -> Markup:
        values = {"section": section, "story": section.story, "open": _OPEN}
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


def _filters(run: RunStory) -> Iterator[tuple[str, str, int]]:
    """Yield the kinds of models that the page can show alone: class, label and number."""
    models = [each.model for each in run.models]
    counts = {verdict: sum(m.verdict == verdict for m in models) for verdict in _TITLES}
    yield "all", "All", len(models)
    if counts["pass"] and counts["diverged"] and counts["error"]:
        yield "failing", "Failing", len(run.failing)
    for verdict, count in counts.items():
        if 0 < count < len(models):
            yield verdict, _TITLES[verdict].capitalize(), count
    changed = sum(m.base != m.verdict for m in models)
    if run.compared and 0 < changed < len(models):
        yield "changed", "Changed since the base", changed


def _sentence(shown: Sentence) -> Markup:
    reason = [_code(shown.code)] if shown.code else []
    reason += [escape(shown.why)] if shown.why else []
    named = [] if shown.subject is None else [Markup("<b>{}</b>").format(plain(shown.subject, 60))]
    because = [Markup(" ").join(reason)] if reason else []
    text = Markup(": ").join([*named, escape(shown.what), *because])
    if shown.place and f"({shown.place})" not in shown.why:
        text += Markup(", <code>{}</code>").format(str(shown.place))
    return Markup("{}. {}").format(text, shown.told if shown.remedy else _prose(shown.action))


def _prose(text: str) -> Markup:
    """Return a sentence of the gate's in which what stands between backticks is code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
        for n, part in enumerate(parts)
    )


def _code(text: object) -> Markup:
    return Markup("<code>{}</code>").format(plain(text, 120) or "(empty)")


def _linked(code: str) -> Markup:
    """Return a finding's code, linked to the page about it."""
    return Markup('<a href="{}"><b>{}</b></a>').format(rule_page(code), plain(code))


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
        "layer_name": precision.layer_name,
        "decibels": precision.decibels,
        "sentence": _sentence,
        "slug": slug,
        "number": number,
        "plain": plain,
        "code": _code,
        "linked": _linked,
        "mebibytes": summary.mebibytes,
        "format_int": format_int,
        "counted": counted,
        "decided": decisions.counted,
        "never": decisions.what,
        "decided_where": decisions.where,
        "duration": times.duration,
        "stages": times.stages_line,
        "block": _block,
    }
    environment.globals |= {"titles": _TITLES, "listed": _LISTED}
    return environment


_ENVIRONMENT = _environment()
