"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from onnx_gate import __version__
from onnx_gate.report import precision, steps, summary, times
from onnx_gate.report.coverage import describe
from onnx_gate.report.model import Report
from onnx_gate.report.versus import change_sentence, check_change, tally
from onnx_gate.text import plain, visible


def render(report: Report) -> str:
    """Return the page: every model, finding and check. All text is escaped by the template."""
    environment = Environment(
        loader=PackageLoader("onnx_gate.report", "templates"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "line": summary.model_line,
        "precision_lines": precision.lines,
        "layer_name": precision.layer_name,
        "decibels": precision.decibels,
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
    return environment.get_template("report.html.j2").render(
        report=report,
        models=summary.ordered(report.models),
        headline=summary.headline(report),
        context=[summary.opsets(report), summary.versions(report), summary.shard(report)],
        sandbox=summary.sandbox(report),
        tally=tally(report),
        times=times.times(report),
        times_lines=times.lines(report),
        marks=summary.MARKS,
        version=__version__,
    )


def _block(text: str) -> str:
    return "\n".join(visible(line) for line in text.splitlines())
