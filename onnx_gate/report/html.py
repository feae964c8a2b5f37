"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from onnx_gate import __version__
from onnx_gate.report import summary
from onnx_gate.report.escape import plain
from onnx_gate.report.model import Report


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
        "number": summary.number,
        "used": summary.used,
        "error_of": summary.error_of,
        "plain": plain,
        "counted": summary.counted,
    }
    return environment.get_template("report.html.j2").render(
        report=report,
        models=summary.ordered(report.models),
        headline=summary.headline(report),
        versions=summary.versions(report),
        marks=summary.MARKS,
        version=__version__,
    )
