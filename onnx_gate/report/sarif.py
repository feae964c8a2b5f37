"""The report as SARIF 2.1.0, for code scanning: one result for each finding, error and divergence."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from onnx_gate import __version__
from onnx_gate.findings import CATALOGUE
from onnx_gate.report import locations, summary
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.versus import change_sentence, tally
from onnx_gate.text import plain

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_DIVERGED, _PROBLEM, _LOOSENED = "diverged", "problem", "loosened"
_RULES = {
    _DIVERGED: "an output differs from PyTorch's",
    _PROBLEM: "the manifest is invalid, or the run incomplete",
    _LOOSENED: "the manifest asks less of a model than its base does",
}


def render(report: Report) -> str:
    """Return SARIF text; results without a line of their own point at the manifest."""
    results = [*_about(report), *(r for model in report.models for r in _results(report, model))]
    used = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "onnx-gate",
        "version": __version__,
        "rules": [_rule(code) for code in used],
    }
    run: dict[str, Any] = {"tool": {"driver": driver}, "results": results}
    remarks = [*report.notes, summary.sandbox(report), tally(report)]
    if any(remarks):
        run["properties"] = {"notes": [_text(line) for line in remarks if line]}
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _about(report: Report) -> list[dict[str, Any]]:
    """What is about no model: mistakes in the manifest, and what it asks less."""
    path = report.manifest.path
    problems = [
        _result(_PROBLEM, "error", each.path, each.message, locations.of_problem(each, path))
        for each in report.problems
    ]
    changes = [
        _result(
            _LOOSENED, "warning", each.model or "", each.message, locations.of_entry(each, path)
        )
        for each in report.changes
    ]
    return problems + changes


def _results(report: Report, model: ModelResult) -> list[dict[str, Any]]:
    path = report.manifest.path
    entry = locations.of_entry(model, path)
    level = "error" if model.required else "warning"
    results = []
    for finding in model.findings:
        severity = finding.severity if finding.severity != "error" else level
        location = locations.of_source(finding, path) or entry
        results.append(_result(finding.code, severity, model.name, finding.message, location))
    if model.error is not None:
        text = f"{model.error.kind}: {model.error.message}"
        text += _against(report, model)
        results.append(_result(model.error.code, level, model.name, text, entry))
    bad = summary.failing(model)
    if bad:
        text = f"{len(bad)} checks diverged; {bad[0].case}, {bad[0].output}: {bad[0].reason}"
        location = locations.of_model(model, path) or entry
        text += _against(report, model)
        results.append(_result(_DIVERGED, level, model.name, text, location))
    return results


def _against(report: Report, model: ModelResult) -> str:
    return f" ({change_sentence(model)})" if report.baseline is not None else ""


def _result(
    rule: str, level: str, subject: str, text: str, location: locations.Location | None
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": rule,
        "level": level,
        "message": {"text": _text(f"{subject}: {text}" if subject else text)},
        "partialFingerprints": {"model/rule": plain(f"{subject}/{rule}")},
    }
    if location is not None:
        region = {"startLine": location.line or 1}
        if location.column:
            region["startColumn"] = location.column
        physical = {"artifactLocation": {"uri": quote(location.file)}, "region": region}
        result["locations"] = [{"physicalLocation": physical}]
    return result


def _text(text: str) -> str:
    """Return a message in which nothing is a link, which ``[text](target)`` would be."""
    return plain(text).replace("](", "] (")


def _rule(code: str) -> dict[str, Any]:
    entry = CATALOGUE.get(code)
    if entry is None:
        return {"id": code, "shortDescription": {"text": _RULES.get(code, code)}}
    return {
        "id": code,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.why},
        "help": {"text": entry.remedy},
    }
