"""Where things lie in a run's output folder: one name for each of them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

REPORT = "report.json"
SUMMARY = "report.md"
LOGS = "logs"
MODELS = "models"
REPRO = "repro"
REMEDIES = "remedies"
STATEMENTS = "statements"
INTERRUPTED = "interrupted"
"""The folder of what an interrupted run has verified of models that are verified block by block."""
OF_EACH = "runs"
"""In a folder of many runs, the one that each of them writes its models' files and logs to."""

_ENDINGS = {
    "html": "html",
    "json": "json",
    "junit": "xml",
    "markdown": "md",
    "sarif": "sarif",
    "terminal": "txt",
    "gitlab": "gitlab.json",
    "github": "github.txt",
}


@dataclass(frozen=True)
class Layout:
    """The paths of one run, in the folder ``output``."""

    output: Path

    @property
    def report(self) -> Path:
        """The report."""
        return self.output / REPORT

    @property
    def summary(self) -> Path:
        """The report as Markdown."""
        return self.output / SUMMARY

    def rendering(self, name: str) -> Path:
        """Return the file of the report in another format; ``name`` is a registered one."""
        return self.output / f"report.{_ENDINGS.get(name, slug(name))}"

    @property
    def models(self) -> Path:
        """The folder of the models' own folders; it goes when the run ends."""
        return self.output / MODELS

    def model(self, name: str) -> Path:
        """Return the folder that a model's process writes to: exported files, a reproduction."""
        return self.models / slug(name)

    def log(self, name: str) -> Path:
        """Return the file with everything that a model's process printed."""
        return self.output / LOGS / f"{slug(name)}.log"

    def repro(self, name: str) -> Path:
        """Return the folder of the reproductions of a model's divergence."""
        return self.output / REPRO / slug(name)

    @property
    def remedies(self) -> Path:
        """The folder of what was tried against red verdicts."""
        return self.output / REMEDIES

    def remedy(self, name: str) -> Path:
        """Return the folder that a model's remedies are tried in, and where a new file is left."""
        return self.remedies / slug(name)


def slug(name: str) -> str:
    """Return a file name for a model's name; two names never share one."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:60]
    if safe == name and not name.startswith("."):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe.lstrip('.')}-{digest[:8]}"
