"""The report as SARIF 2.1.0, for code scanning: one result for each finding, error and divergence."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from onnx_gate import __version__
from onnx_gate.findings import CATALOGUE
from onnx_gate.pages import page
from onnx_gate.report.model import Report
from onnx_gate.report.story.issues import Issue, issues, rule_page, rule_title
from onnx_gate.report.story.locations import Location, inside
from onnx_gate.report.story.story import tell
from onnx_gate.text import plain

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"


def render(report: Report) -> str:
    """Return SARIF text, with paths from the repository's root."""
    story = tell(report)
    raised = issues(story)
    rules = sorted({issue.rule for issue in raised})
    driver = {
        "name": "onnx-gate",
        "version": __version__,
        "informationUri": page("index.md"),
        "rules": [_rule(code) for code in rules],
    }
    manifest = inside(report.manifest.path)
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        # What GitHub tells several gates of one commit apart by.
        "automationDetails": {"id": f"onnx-gate/{manifest}/" if manifest else "onnx-gate/"},
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository."}}},
        "results": [_result(issue, rules) for issue in raised],
    }
    remarks = [*report.notes, story.sandbox, story.against]
    if any(remarks):
        run["properties"] = {"notes": [_text(line) for line in remarks if line]}
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _result(issue: Issue, rules: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": issue.rule,
        "ruleIndex": rules.index(issue.rule),
        "level": issue.level,
        "message": {"text": "\n".join(_text(line) for line in issue.lines) or issue.rule},
        "partialFingerprints": {"onnxGateIssue/v1": issue.fingerprint},
    }
    if issue.location is not None:
        result["locations"] = [_location(issue.location)]
    related = [
        _location(location) | {"message": {"text": text}}
        for location, text in (
            (issue.source, "the line of the model"),
            (issue.entry, "the model's entry in the manifest"),
        )
        if location is not None
    ]
    if related:
        result["relatedLocations"] = related
    if issue.waived:
        accepted = {"kind": "external", "status": "accepted", "justification": _text(issue.waived)}
        result["suppressions"] = [accepted]
    return result


def _location(location: Location) -> dict[str, Any]:
    region = {"startLine": location.line or 1}
    if location.column:
        region["startColumn"] = location.column
    artifact = {"uri": quote(location.file), "uriBaseId": _ROOT}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _text(text: str) -> str:
    """Return a message in which nothing is a link, which ``[text](target)`` would be."""
    return plain(text).replace("](", "] (")


def _rule(code: str) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": code,
        "shortDescription": {"text": rule_title(code)},
        "fullDescription": {"text": rule_title(code)},
        "helpUri": rule_page(code),
        "help": {"text": rule_page(code), "markdown": f"[{rule_title(code)}]({rule_page(code)})"},
    }
    entry = CATALOGUE.get(code)
    if entry is not None:
        rule["fullDescription"] = {"text": f"{entry.meaning}\n\n{entry.why}"}
        markdown = (
            f"{entry.meaning}\n\n{entry.why}\n\n{entry.remedy}\n\n[{code}]({rule_page(code)})"
        )
        rule["help"] = {"text": entry.remedy, "markdown": markdown}
    return rule
