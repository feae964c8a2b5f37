"""What code scanners are told of a report: each thing that is wrong, at a line of the repository."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from onnx_gate.findings import CATALOGUE
from onnx_gate.findings.finding import Severity
from onnx_gate.pages import page
from onnx_gate.report.story import locations
from onnx_gate.report.story.explained import explain
from onnx_gate.report.story.locations import Location
from onnx_gate.report.story.story import RunStory, Story
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
    ``known`` are the public faults that it is, a line each. ``fingerprint`` is the same in every run
    that has the same issue.
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
    known: tuple[str, ...] = ()
    fingerprint: str = ""


def issues(run: RunStory) -> list[Issue]:
    """Return every issue of a run: mistakes, what is asked less, then models in their order."""
    manifest = locations.of_file(run.manifest)
    raised = []
    for problem, _, place in run.problems:
        text = ": ".join(part for part in (problem.path, problem.message) if part)
        lines = _lines(text, *problem.tail)
        at = place.location or manifest
        raised.append(Issue(PROBLEM, "error", problem.path, plain(text, _TITLE), lines, at))
    for change, text, place in run.changes:
        said = plain(text, _TITLE), _lines(text)
        raised.append(Issue(LOOSENED, "warning", change.model or "", *said, place.location))
    raised += [issue for story in run.models for issue in _of_model(story, run)]
    if run.report.verdict == "error" and not raised:
        text = str(run.sentence)
        raised.append(Issue(PROBLEM, "error", "", text, (text,), manifest))
    return list(_fingerprinted(raised))


def rule_title(rule: str) -> str:
    """Return what a rule is about, in one line."""
    entry = CATALOGUE.get(rule)
    return entry.title if entry is not None else _TITLES.get(rule, rule)


def rule_page(rule: str) -> str:
    """Return the address of the page about a rule."""
    return page(f"findings/{rule}.md" if rule in CATALOGUE else _PAGES.get(rule, "findings.md"))


def _of_model(story: Story, run: RunStory) -> Iterator[Issue]:
    model, entry, source = story.model, story.entry, story.source
    name = plain(model.name, _TITLE)
    level: Severity = "error" if model.required else "warning"
    for remark in story.remarks:
        finding, location = remark.finding, remark.place.location
        severity = finding.severity if finding.severity != "error" else level
        text = f"{name}: {finding.message}"
        yield Issue(
            *(finding.code, severity, name, plain(text, _TITLE), _lines(text)),
            location or entry,
            entry if location is not None else None,
        )
    if model.error is not None or story.failing:
        rule = model.error.code if model.error is not None else DIVERGED
        lines = tuple(explain(story, run))
        blamed = story.why.place.location if story.why is not None else None
        yield Issue(
            *(rule, level, name, plain(lines[0], _TITLE), lines),
            source or entry,
            entry if source is not None else None,
            # Where the issue is shown at another line than the diagnosis names.
            blamed if blamed != source else None,
            known=tuple(map(str, story.known)),
        )
    waived = [check for check in model.checks if check.verdict == "waived"]
    if waived:
        reason = plain(waived[0].reason, _TITLE)
        text = f"{name}: {len(waived)} diverged and waived; {plain(waived[0].case, 200)}: {reason}"
        title = plain(text, _TITLE)
        yield Issue(DIVERGED, "note", name, title, _lines(text), entry, waived=reason)


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
