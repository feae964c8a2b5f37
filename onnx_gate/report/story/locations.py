"""Where in the repository something is: paths from a report, checked before anything is made of them.

Paths in a report are relative to the manifest's folder, as the manifest's own are; the manifest's
path is relative to the repository.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Change, ModelResult, Problem
from onnx_gate.report.model.diagnosis import Source
from onnx_gate.report.story.summary import causes
from onnx_gate.text import plain

_PATH_LIMIT = 500
_MAX_LINE = 10**7
_SHOWN = 120


@dataclass(frozen=True)
class Location:
    """A file of the repository, and a line and a column in it (from 1) where they are known."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


@dataclass(frozen=True)
class Place:
    """Where something is; ``file`` is what the report names, where that is no path of the repository."""

    location: Location | None = None
    file: str = ""

    def __bool__(self) -> bool:
        return self.location is not None or bool(self.file)

    def __str__(self) -> str:
        return str(self.location) if self.location is not None else plain(self.file, _SHOWN)


def inside(path: str | None) -> str | None:
    """Return a relative path that stays where it starts, or ``None`` for any other."""
    if not path or len(path) > _PATH_LIMIT or plain(path) != path or "\\" in path:
        return None
    while path.startswith("./"):
        path = path[2:]
    parts = path.split("/")
    return None if any(part in ("", ".", "..") for part in parts) else path


def of_source(source: Finding | Source, manifest: str) -> Location | None:
    """Return the source line that a finding or a diagnosis names, or ``None``."""
    file, folder = inside(source.file), inside(manifest)
    if file is None or folder is None:
        return None
    return Location(posixpath.join(posixpath.dirname(folder), file), _natural(source.line))


def place_of(source: Finding | Source | None, manifest: str) -> Place:
    """Return where a finding, a diagnosis or a layer is."""
    if source is None:
        return Place()
    return Place(of_source(source, manifest), source.file or "")


def place_of_problem(problem: Problem, manifest: str) -> Place:
    """Return where a problem is."""
    return Place(of_problem(problem, manifest), problem.file or "")


def of_model(model: ModelResult, manifest: str) -> Location | None:
    """Return the line that the model's error names, else a finding of one, else its diagnosis."""
    sources: list[Finding | Source] = [*causes(model)]
    if any(each.data.get("writer") and not each.file for each in causes(model)[:1]):
        # No line of the model's is at fault where the owner's own file declares an axis fixed.
        return of_entry(model, manifest)
    if model.error is not None and model.error.source is not None:
        sources.insert(0, model.error.source)
    if model.diagnosis is not None and model.diagnosis.source is not None:
        sources.append(model.diagnosis.source)
    candidates = (of_source(source, manifest) for source in sources)
    return next((location for location in candidates if location is not None), None)


def of_file(manifest: str) -> Location | None:
    """Return the manifest as a whole."""
    file = inside(manifest)
    return None if file is None else Location(file)


def of_entry(model: ModelResult | Change, manifest: str) -> Location | None:
    """Return the line of the manifest that a model's error, or else a model or a change is about."""
    file = of_file(manifest)
    if file is None:
        return None
    error = model.error if isinstance(model, ModelResult) else None
    line = error.line if error is not None and error.line is not None else model.line
    return Location(file.file, _natural(line))


def of_problem(problem: Problem, manifest: str) -> Location | None:
    """Return where a problem is; the manifest is known by its name, however it was reached."""
    if problem.file is None:
        return None
    file = inside(problem.file)
    if posixpath.basename(problem.file) == posixpath.basename(manifest):
        file = inside(manifest)
    if file is None:
        return None
    line = _natural(problem.line)
    return Location(file, line, _natural(problem.column) if line else None)


def _natural(number: int | None) -> int | None:
    return number if number is not None and 0 < number <= _MAX_LINE else None
