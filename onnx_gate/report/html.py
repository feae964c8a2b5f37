"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from onnx_gate import __version__
from onnx_gate.report import diagnosed, locations, plots, precision, sentence, steps, summary, times
from onnx_gate.report.command import replay_command, run_command
from onnx_gate.report.coverage import describe
from onnx_gate.report.layout import slug
from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.versus import change_sentence, check_change, tally
from onnx_gate.report.view import View
from onnx_gate.text import plain, visible

# What one page holds of all models' checks, and of how many models there are pictures.
_CHECKS = 20_000
_EACH = 1_000
_PICTURES = 50
_NOTHING = Markup()


def render(report: Report, history: Markup = _NOTHING) -> str:
    """Return the page: every model and finding, the failing first. All text is escaped.

    It holds 1,000 checks of a model and 20,000 in all, the failing ones first, and says how many
    it leaves to ``report.json``.
    """
    environment = Environment(
        loader=PackageLoader("onnx_gate.report", "templates"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "precision_lines": precision.lines,
        "layer_name": precision.layer_name,
        "decibels": precision.decibels,
        "outcome": summary.outcome,
        "sentence": _sentence,
        "slug": slug,
        "worst": summary.worst,
        "measured": sentence.measured,
        "deciding": diagnosed.deciding,
        "meaning": diagnosed.sentence,
        "values": _values,
        "number": summary.number,
        "used": summary.used,
        "error_and_limit": summary.error_and_limit,
        "plain": plain,
        "described": describe,
        "steps_chart": steps.chart,
        "mebibytes": summary.mebibytes,
        "format_int": summary.format_int,
        "check_change": check_change,
        "change_sentence": change_sentence,
        "duration": times.duration,
        "stages": times.stages_line,
        "block": _block,
        "problem": summary.problem_line,
        "change": summary.change_line,
    }
    models = summary.ordered(report.models)
    manifest = report.manifest.path
    return environment.get_template("report.html.j2").render(
        report=report,
        models=models,
        sentence=sentence.of_report(report),
        about=[_about(model, manifest, number) for number, model in enumerate(models)],
        rows=_rows(models),
        headline=summary.headline(report),
        context=[summary.opsets(report), summary.versions(report), summary.shard(report)],
        sandbox=summary.sandbox(report),
        tally=tally(report),
        times=times.times(report),
        times_lines=times.lines(report),
        marks=summary.MARKS,
        history=history,
        version=__version__,
    )


def _block(text: str) -> str:
    return "\n".join(visible(line) for line in text.splitlines())


def _about(model: ModelResult, manifest: str, number: int) -> dict[str, object]:
    """Return what the page says of one model beside its fields: sentence, place, commands, plots."""
    failed = model.verdict != "pass"
    diagnosis = model.diagnosis
    pictures = []
    if number < _PICTURES and failed and diagnosis is not None:
        pictures.append(plots.graph(diagnosis))
        if diagnosis.pictures is not None:
            drawn = diagnosis.pictures
            reference = "PyTorch" if model.reference is None else "The reference"
            pictures += [
                plots.pairs(drawn, reference),
                plots.histogram(drawn),
                plots.error_map(drawn),
            ]
    if number < _PICTURES and failed:
        pictures += [plots.by_size(model), plots.by_case(model)]
    return {
        "sentence": sentence.of_model(model, manifest),
        "where": locations.of_model(model, manifest) or locations.of_entry(model, manifest),
        "pictures": [each for each in pictures if each],
        "again": run_command(manifest, model, summary.failing(model), View()) if failed else "",
        "replay": replay_command(diagnosis.repro, View()) if diagnosis is not None else "",
    }


def _rows(models: list[ModelResult]) -> list[list[Check]]:
    """Return the checks of each model that the page has room for, the failing ones first."""
    left, rows = _CHECKS, []
    for model in models:
        bad = summary.failing(model)
        others = [c for c in model.checks if c.verdict != "diverged" or c.advice]
        rows.append((bad + others)[: min(_EACH, left)])
        left -= len(rows[-1])
    return rows


def _values(check: Check) -> tuple[str, str, str]:
    if check.worst is None:
        return "", "", ""
    pair = summary.distinct_digits(check.worst.expected, check.worst.actual)
    return *pair, summary.indices(check.worst.index)


def _sentence(shown: sentence.Sentence) -> Markup:
    reason = [Markup("<code>{}</code>").format(plain(shown.code, 120))] if shown.code else []
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
