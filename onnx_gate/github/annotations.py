"""The report as workflow commands that annotate lines of a pull request.

GitHub keeps ten annotations of each level and step, so these are the ten worst.
"""

# Without the import of "annotations" from __future__, whose name is this module's function.
from collections.abc import Iterable, Iterator
from itertools import islice

from onnx_gate.findings.codes import code_of
from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Change, ModelResult, Problem, Report
from onnx_gate.report.story import locations, summary
from onnx_gate.report.story.explained import explain
from onnx_gate.text import COMMAND_LIMIT as MESSAGE_LIMIT
from onnx_gate.text import plain, workflow_command

EACH_LEVEL = 10

_TITLE_LIMIT = 80
_NAME_LIMIT = 60
_MESSAGE_LINES = 20
_ENDS = {"diverged": "diverged", "error": "could not be verified"}


def render(report: Report) -> str:
    """Return the commands as lines of a log."""
    return "".join(f"{line}\n" for line in annotations(report, report.manifest.path))


def annotations(report: Report, manifest_path: str) -> tuple[str, ...]:
    """Return at most ten commands of level error, then at most ten of level warning.

    ``manifest_path`` is the manifest's path inside the repository: where a model's source line is
    not known, its entry there is annotated.
    """
    return (
        *islice(_errors(report, manifest_path), EACH_LEVEL),
        *islice(_warnings(report, manifest_path), EACH_LEVEL),
    )


def command(
    level: str, message: str, title: str = "", location: locations.Location | None = None
) -> str:
    """Return the workflow command that annotates a location, or the run where there is none."""
    at = (
        {}
        if location is None
        else {"file": location.file, "line": location.line, "col": location.column}
    )
    return workflow_command(level, message, {**at, "title": plain(title, _TITLE_LIMIT)})


def _errors(report: Report, manifest: str) -> Iterator[str]:
    for problem in report.problems:
        location = locations.of_problem(problem, manifest)
        yield command("error", _problem(problem, location), "onnx-gate", location)
    yield from _models(report, manifest, "error", required=True)


def _warnings(report: Report, manifest: str) -> Iterator[str]:
    for change in report.changes:
        location = locations.of_entry(change, manifest)
        yield command("warning", _change(change), "the manifest asks less", location)
    yield from _models(report, manifest, "warning", required=False)
    for model in summary.ordered(report.models):
        warned = [
            f for f in model.findings if f.severity == "warning" and not code_of(f.code).advice
        ]
        yield from _findings("warning", model, warned, manifest)


def _models(report: Report, manifest: str, level: str, required: bool) -> Iterator[str]:
    """One command for each failing model, the worst first, then what else was found in them."""
    models = [
        m for m in summary.ordered(report.models) if m.verdict != "pass" and m.required == required
    ]
    for model in models:
        location = locations.of_model(model, manifest) or locations.of_entry(model, manifest)
        title = f"{plain(model.name, _NAME_LIMIT)} {_ENDS[model.verdict]}"
        message = _failure(model, report, manifest)
        yield command(level, message, title, location)
    for model in models:
        errors = (f for f in model.findings if f.severity == "error")
        located = [f for f in errors if locations.of_source(f, manifest) is not None]
        yield from _findings(level, model, located[1:], manifest)


def _findings(
    level: str, model: ModelResult, findings: Iterable[Finding], manifest: str
) -> Iterator[str]:
    for finding in findings:
        location = locations.of_source(finding, manifest) or locations.of_entry(model, manifest)
        title = f"{plain(model.name, _NAME_LIMIT)}: {finding.code}"
        yield command(level, finding.message, title, location)


def _failure(model: ModelResult, report: Report, manifest: str) -> str:
    lines = explain(model, report, manifest=manifest)
    errors = [f for f in model.findings if f.severity == "error"]
    lines += [f"{f.code}: {summary.first_line(f.message)}" for f in errors[:_MESSAGE_LINES]]
    return "\n".join(lines)


def _problem(problem: Problem, location: locations.Location | None) -> str:
    parts = [problem.path[:MESSAGE_LIMIT], problem.message[:MESSAGE_LIMIT]]
    if location is None and problem.file:
        parts.insert(0, problem.file[:MESSAGE_LIMIT])
    return ": ".join(part for part in parts if part)


def _change(change: Change) -> str:
    message = change.message[:MESSAGE_LIMIT]
    return f"{change.model[:MESSAGE_LIMIT]}: {message}" if change.model else message
