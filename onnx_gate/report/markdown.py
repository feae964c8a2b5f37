"""The report as Markdown: a pure function of the report, through a template.

Whatever a template prints is escaped unless it is ``Markup`` already, so that a name or an error
message cannot become markup by being forgotten.
"""

from __future__ import annotations

import shlex
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from onnx_gate import __version__
from onnx_gate.report import summary
from onnx_gate.report.escape import code, fence, inline, plain
from onnx_gate.report.model import Check, ModelResult, Report

_SHOWN_CHECKS = 10


def render(report: Report) -> str:
    """Return Markdown that GitHub renders: verdict, table, and what is behind each failure."""
    models = summary.ordered(report.models)
    return _ENVIRONMENT.get_template("report.md.j2").render(
        report=report,
        version=__version__,
        failing=[m for m in models if m.verdict != "pass"],
        passing=[m for m in models if m.verdict == "pass"],
        shown=_SHOWN_CHECKS,
    )


def _finalize(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, (Markup, int)) and not isinstance(value, bool):
        return value
    return inline(value)


def _number(value: float | None) -> Markup:
    return Markup(summary.number(value))


def _percent(share: float | None) -> Markup:
    return Markup(summary.percent(share))


def _values(check: Check) -> tuple[Markup, Markup]:
    assert check.worst is not None
    expected, actual = summary.apart(check.worst.expected, check.worst.actual)
    return code(expected), code(actual)


def _shell(text: object) -> Markup:
    """Return one word of a shell command, for use inside a fence."""
    word = shlex.quote(plain(text).replace("`", "?"))
    return Markup(word)


def _worst_error(model: ModelResult) -> Check | None:
    bad = summary.failing(model)
    return bad[0] if bad else summary.closest(model.checks)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("onnx_gate.report", "templates"),
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
        "number": _number,
        "percent": _percent,
        "values": _values,
        "failing": summary.failing,
        "worst": _worst_error,
        "counted": summary.counted,
        "error_of": summary.error_of,
        "used": lambda check: Markup(summary.used(check)),
        "line": summary.model_line,
        "shell": _shell,
    }
    environment.globals |= {
        "headline": summary.headline,
        "versions": summary.versions,
        "marks": {name: Markup(mark) for name, mark in summary.MARKS.items()},
    }
    return environment


_ENVIRONMENT = _environment()
