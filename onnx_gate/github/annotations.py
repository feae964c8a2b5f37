"""The report as workflow commands that annotate lines of a pull request.

GitHub keeps ten annotations of each level and step, so these are the ten worst.
"""

# Without the import of "annotations" from __future__, whose name is this module's function.
from collections.abc import Iterable, Iterator
from itertools import islice

from onnx_gate.report.model import Change, Problem, Report
from onnx_gate.report.story.explained import explain
from onnx_gate.report.story.locations import Location, Place
from onnx_gate.report.story.story import Remark, RunStory, Story, tell
from onnx_gate.report.story.summary import first_line
from onnx_gate.report.story.view import View
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
    run = tell(report, View(manifest_path=manifest_path, output=report.folder))
    return (*islice(_errors(run), EACH_LEVEL), *islice(_warnings(run), EACH_LEVEL))


def command(level: str, message: str, title: str = "", location: Location | None = None) -> str:
    """Return the workflow command that annotates a location, or the run where there is none."""
    at = (
        {}
        if location is None
        else {"file": location.file, "line": location.line, "col": location.column}
    )
    return workflow_command(level, message, {**at, "title": plain(title, _TITLE_LIMIT)})


def _errors(run: RunStory) -> Iterator[str]:
    for problem, _, place in run.problems:
        yield command("error", _problem(problem, place), "onnx-gate", place.location)
    yield from _models(run, "error", required=True)


def _warnings(run: RunStory) -> Iterator[str]:
    for change, _, place in run.changes:
        yield command("warning", _change(change), "the manifest asks less", place.location)
    yield from _models(run, "warning", required=False)
    for story in run.ordered:
        warned = [each for each in story.remarks if each.finding.severity == "warning"]
        yield from _remarks("warning", story, (each for each in warned if each.matters))


def _models(run: RunStory, level: str, required: bool) -> Iterator[str]:
    """One command for each failing model, the worst first, then what else was found in them."""
    stories = [each for each in run.failing if each.model.required == required]
    for story in stories:
        title = f"{plain(story.model.name, _NAME_LIMIT)} {_ENDS[story.model.verdict]}"
        errors = [e.finding for e in story.remarks if e.finding.severity == "error"]
        found = [f"{each.code}: {first_line(each.message)}" for each in errors]
        message = "\n".join([*explain(story, run), *found[:_MESSAGE_LINES]])
        yield command(level, message, title, story.place.location)
    for story in stories:
        wrong = (each for each in story.remarks if each.finding.severity == "error")
        located = [each for each in wrong if each.place.location is not None]
        yield from _remarks(level, story, located[1:])


def _remarks(level: str, story: Story, remarks: Iterable[Remark]) -> Iterator[str]:
    for remark in remarks:
        title = f"{plain(story.model.name, _NAME_LIMIT)}: {remark.finding.code}"
        location = remark.place.location or story.entry
        yield command(level, remark.finding.message, title, location)


def _problem(problem: Problem, place: Place) -> str:
    file = problem.file if place.location is None else ""
    parts = [part[:MESSAGE_LIMIT] for part in (file, problem.path, problem.message) if part]
    return ": ".join(parts)


def _change(change: Change) -> str:
    message = change.message[:MESSAGE_LIMIT]
    return f"{change.model[:MESSAGE_LIMIT]}: {message}" if change.model else message
