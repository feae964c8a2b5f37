"""The report as Markdown: a pure function of the report and of where it is shown.

Whatever a template prints is escaped unless it is ``Markup`` already, so that a name or an error
message cannot become markup by being forgotten.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from onnx_gate import __version__
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.render import shorten
from onnx_gate.report.render.charts import mermaid
from onnx_gate.report.render.escape import code, fence, inline, prose
from onnx_gate.report.render.links import Links, finding_link, link
from onnx_gate.report.story import audited, precision, summary, times
from onnx_gate.report.story.sentence import Sentence
from onnx_gate.report.story.story import Story, tell
from onnx_gate.report.story.view import View
from onnx_gate.text import counted, format_int, number

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
        self._run, self._links = tell(report, view), Links(view)
        run = self._run
        warned = [(story, each) for story in run.passing for each in story.remarks]
        self._runtimes = run.runtimes[:_COLUMNS]
        self._shown = {
            "run": run,
            "report": report,
            "links": self._links,
            "context": self._context(),
            "sentence": self._sentence(run.sentence),
            "runtimes": self._runtimes,
            "row": functools.cache(self._row),
            "shares": self._shares,
            "section": functools.cache(self._section),
            "fixed": [story for story in run.passing if story.fixed],
            "shown_fixed": _SHOWN_FIXED,
            "warnings": [(s, each) for s, each in warned if each.finding.severity == "warning"],
            "footer": self._footer(),
            "addresses": self._addresses(),
            "precisions": [s.model for s in run.passing if s.model.precision is not None],
            "audits": [s.model for s in run.ordered if s.model.audit is not None],
            "survivors_shown": audited.SHOWN_SURVIVORS,
            "clock": next(iter(run.seconds), "") if view.times else "",
        }

    @property
    def last(self) -> int:
        """The shortest level: ``render`` takes 0 to this."""
        return shorten.last_level(len(self._run.failing))

    def render(self, level: int) -> str:
        """Return the whole text at one level."""
        return "".join(self.parts(level))

    def parts(self, level: int) -> Iterable[str]:
        """Return the text at one level piece by piece, for a reader who may have had enough."""
        detail = shorten.detail_at(level, len(self._run.failing))
        template = _ENVIRONMENT.get_template("bare.md.j2" if detail.bare else "report.md.j2")
        return template.generate(detail=detail, **self._shown)

    def _row(self, number: int) -> Markup:
        story = self._run.failing[number]
        model, worst = story.model, story.worst
        name = code(model.name, 60)
        what: Markup | str = code(worst.check.output, 60) if worst is not None else ""
        error = allowed = Markup("")
        if model.error is not None:
            what = f"{model.error.kind}, {model.error.code}"
        elif worst is not None and worst.error:
            error, allowed = Markup("**{}**").format(inline(worst.error, 80)), Markup(worst.allowed)
        cells = [
            Markup(summary.MARKS[model.verdict]),
            name if model.required else name + Markup(" (not required)"),
            self._where(story),
            what,
            error,
            allowed,
            *self._shares(story),
            *([Markup(story.change)] if self._run.compared else []),
        ]
        return Markup("| {} |").format(Markup(" | ").join(cells))

    def _shares(self, story: Story) -> list[Markup]:
        """Return the share of the tolerance that was used: on each runtime where there are several."""
        if self._runtimes:
            return [inline(cell or "", 40) for cell in story.on[:_COLUMNS]]
        used = story.worst.used if story.worst is not None and story.model.error is None else ""
        return [Markup(used)]

    def _where(self, story: Story) -> Markup | str:
        if story.sentence.where is not None:
            return self._links.location(story.sentence.where, short=True)
        return code(story.worst.check.case, 80) if story.worst and not story.model.error else ""

    def _section(self, number: int) -> Markup:
        story = self._run.failing[number]
        text = _ENVIRONMENT.get_template("section.md.j2").render(
            story=story,
            model=story.model,
            first=number == 0,
            remarks=sorted(
                (each for each in story.remarks if each.finding.severity != "note"),
                key=lambda each: each.finding.severity != "error",
            ),
            compared=self._run.compared,
            shown_checks=_SHOWN_CHECKS,
            folded_checks=_FOLDED_CHECKS,
            # That of the worst model is above, unless that is about the run.
            sentence=self._sentence(story.sentence) if number or self._run.report.problems else "",
            shown_findings=_SHOWN_FINDINGS,
            shown_layers=precision.SHOWN_LAYERS,
            links=self._links,
            commands=[
                Markup(line) for line in (story.download, *story.replays, story.again) if line
            ],
            runtimes=len({each.check.runtime for each in story.failing}) > 1,
        )
        return Markup(text)

    def _sentence(self, shown: Sentence) -> Markup:
        reason = [code(shown.code, 120)] if shown.code else []
        reason += [inline(shown.why)] if shown.why else []
        subject = (
            [Markup("**{}**").format(code(shown.subject, 60))] if shown.subject is not None else []
        )
        text = Markup(": ").join(
            [*subject, inline(shown.what), *([Markup(" ").join(reason)] if reason else [])]
        )
        if shown.place:
            text += Markup(", ") + self._links.place(shown.place)
        return (
            Markup("{}. {}")
            .format(text, inline(shown.told) if shown.remedy else prose(shown.action))
            .rstrip()
        )

    def _context(self) -> Markup:
        opsets, versions, shard = map(inline, self._run.context)
        baseline = self._links.baseline(self._run.report.baseline)
        parts = (self._links.commit(), opsets, versions, baseline, shard)
        return Markup(" · ").join(part for part in parts if part)

    def _footer(self) -> Markup:
        run = self._run
        parts = (
            self._links.run(),
            self._links.report() if run.view.report_url else None,
            inline(f"onnx-gate {__version__}"),
            _labelled("manifest", run.manifest),
            inline(run.sandbox) if not run.exposed else None,
            _labelled("reproduce:", run.again),
        )
        return Markup(" · ").join(part for part in parts if part)

    def _addresses(self) -> Markup:
        view = self._run.view
        named = ((Markup("full report"), view.report_url), (Markup("run"), view.run_url))
        return Markup(" · ").join(link(label, address) for label, address in named if address)


def _labelled(label: str, value: str) -> Markup | None:
    return Markup("{} {}").format(label, code(value, _VALUE_LIMIT)) if value else None


def _finalize(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return format_int(value)
    return inline(value)


def _codes(model: ModelResult) -> Markup:
    codes = dict.fromkeys(finding.code for finding in model.findings[:_CODES])
    told = [*([Markup("cached")] if model.cached else []), *map(finding_link, codes)]
    return Markup(" ").join(told)


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
        "chart": lambda why: Markup(mermaid(why.levels, len(why.diagnosis.nodes))),
        "code": code,
        "fence": fence,
        "inline": inline,
        "tail": _tail,
        "codes": _codes,
        "linked": finding_link,
        "anchored": lambda name: finding_link(name, html=True),
        "counted": _trusted(counted),
        "duration": _trusted(times.duration),
        "number": _trusted(number),
        "trusted": Markup,
        "value": lambda text: Markup("<code>{}</code>").format(Markup(text)) if text else "",
        **audited.FILTERS,
        "precision_kind": precision.kind_line,
        "precision_offers": precision.offered,
        "precision_yaml": precision.yaml,
        "precision_reason": precision.reason,
        "layer_name": precision.layer_name,
        "decibels": _trusted(precision.decibels),
        "share": _trusted(summary.percent),
    }
    environment.globals |= {
        "tally": summary.tally,
        "marks": {name: Markup(mark) for name, mark in summary.MARKS.items()},
    }
    return environment


_ENVIRONMENT = _environment()
