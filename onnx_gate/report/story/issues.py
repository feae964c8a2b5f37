"""What code scanners are told of a report: each thing that is wrong, at a line of the repository."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from onnx_gate.findings import CATALOGUE
from onnx_gate.findings.finding import Severity
from onnx_gate.pages import page
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.story import locations, sentence, summary
from onnx_gate.report.story.explained import explain
from onnx_gate.report.story.locations import Location
from onnx_gate.text import plain

DIVERGED, PROBLEM, LOOSENED = "diverged", "problem", "loosened"
_TITLES = {
    DIVERGED: "an output differs from PyTorch's",
    PROBLEM: "the manifest is invalid, or the run incomplete",
    LOOSENED: "the manifest asks less of a model than its base does",
}
_PAGES = {DIVERGED: "diagnosis.md", PROBLEM: "exit-codes.md", LOOSENED: "security.md"}
_TITLE = 500


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong.

    ``rule`` is a finding's code or one of the three above, ``subject`` the model or the key of the
    manifest, ``title`` one line and ``lines`` all there is to say. ``location`` is where it is
    shown; ``entry`` the model's entry in the manifest and ``source`` the line of the model, where
    they are known and are not that. ``waived`` is why it is forgiven, empty where it is not.
    ``fingerprint`` is the same in every run that has the same issue.
    """

    rule: str
    level: Severity
    subject: str
    title: str
    lines: tuple[str, ...]
    location: Location | None
    entry: Location | None = None
    source: Location | None = None
    waived: str = ""
    fingerprint: str = ""


def issues(report: Report) -> list[Issue]:
    """Return every issue of a report: mistakes, what is asked less, then models in their order."""
    path = report.manifest.path
    raised = [
        *(
            Issue(PROBLEM, "error", each.path, plain(text, _TITLE), _lines(text, *each.tail), at)
            for each in report.problems
            for text in (": ".join(part for part in (each.path, each.message) if part),)
            for at in (locations.of_problem(each, path) or locations.of_file(path),)
        ),
        *(
            Issue(LOOSENED, "warning", each.model or "", plain(text, _TITLE), _lines(text), at)
            for each in report.changes
            for text in (summary.change_line(each),)
            for at in (locations.of_entry(each, path),)
        ),
        *(issue for model in report.models for issue in _of_model(model, report)),
    ]
    if report.verdict == "error" and not raised:
        text = str(sentence.of_report(report))
        raised.append(Issue(PROBLEM, "error", "", text, (text,), locations.of_file(path)))
    return list(_fingerprinted(raised))


def rule_title(rule: str) -> str:
    """Return what a rule is about, in one line."""
    entry = CATALOGUE.get(rule)
    return entry.title if entry is not None else _TITLES.get(rule, rule)


def rule_page(rule: str) -> str:
    """Return the address of the page about a rule."""
    return page(f"findings/{rule}.md" if rule in CATALOGUE else _PAGES.get(rule, "findings.md"))


def _of_model(model: ModelResult, report: Report) -> Iterator[Issue]:
    path = report.manifest.path
    entry, name = locations.of_entry(model, path), plain(model.name, _TITLE)
    level: Severity = "error" if model.required else "warning"
    for finding in model.findings:
        severity = finding.severity if finding.severity != "error" else level
        text = f"{name}: {finding.message}"
        location = locations.of_source(finding, path)
        yield Issue(
            *(finding.code, severity, name, plain(text, _TITLE), _lines(text)),
            location or entry,
            entry if location is not None else None,
        )
    bad = summary.failing(model)
    if model.error is not None or bad:
        rule = model.error.code if model.error is not None else DIVERGED
        source = locations.of_model(model, path)
        lines = tuple(explain(model, report))
        yield Issue(
            *(rule, level, name, plain(lines[0], _TITLE), lines),
            source or entry,
            entry if source is not None else None,
            _of_diagnosis(model, path, source),
        )
    waived = [check for check in model.checks if check.verdict == "waived"]
    if waived:
        reason = plain(waived[0].reason, _TITLE)
        text = f"{name}: {len(waived)} diverged and waived; {plain(waived[0].case, 200)}: {reason}"
        title = plain(text, _TITLE)
        yield Issue(DIVERGED, "note", name, title, _lines(text), entry, waived=reason)


def _of_diagnosis(model: ModelResult, path: str, shown: Location | None) -> Location | None:
    """Return the line that the diagnosis names, where the issue is shown at another."""
    source = model.diagnosis.source if model.diagnosis is not None else None
    location = locations.of_source(source, path) if source is not None else None
    return location if location != shown else None


def _lines(*texts: str) -> tuple[str, ...]:
    return tuple(plain(line, _TITLE) for text in texts for line in text.splitlines()[:40])


def _fingerprinted(raised: list[Issue]) -> Iterator[Issue]:
    """Number what is alike but for its words, in which there may be numbers that change."""
    seen: Counter[tuple[str, ...]] = Counter()
    for issue in raised:
        file = issue.location.file if issue.location is not None else ""
        key = (issue.subject, issue.rule, file, "waived" if issue.waived else "")
        seen[key] += 1
        text = "\0".join((*key, str(seen[key])))
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        yield replace(issue, fingerprint=digest)
