"""The report as SARIF 2.1.0, for code scanning: one result for each finding, error and divergence."""

from __future__ import annotations

import json
from typing import Any

from onnx_gate import __version__
from onnx_gate.findings import CATALOGUE
from onnx_gate.report import summary
from onnx_gate.report.escape import plain
from onnx_gate.report.model import Finding, ModelResult, Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_DIVERGED = "diverged"


def render(report: Report) -> str:
    """Return SARIF text; results without a line of their own point at the manifest."""
    results = [result for model in report.models for result in _results(report, model)]
    used = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "onnx-gate",
        "version": __version__,
        "rules": [_rule(code) for code in used],
    }
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _results(report: Report, model: ModelResult) -> list[dict[str, Any]]:
    results = [_finding(report, model, finding) for finding in model.findings]
    level = "error" if model.required else "warning"
    if model.error is not None:
        text = f"{model.error.kind}: {model.error.message}"
        results.append(_result(report, model, model.error.code, level, text))
    bad = summary.failing(model)
    if bad:
        text = f"{len(bad)} checks diverged; {bad[0].case}, {bad[0].output}: {bad[0].reason}"
        results.append(_result(report, model, _DIVERGED, level, text))
    return results


def _finding(report: Report, model: ModelResult, finding: Finding) -> dict[str, Any]:
    level = finding.severity if model.required or finding.severity != "error" else "warning"
    return _result(report, model, finding.code, level, finding.message, finding.file, finding.line)


def _result(
    report: Report,
    model: ModelResult,
    rule: str,
    level: str,
    text: str,
    file: str | None = None,
    line: int | None = None,
) -> dict[str, Any]:
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": plain(f"{model.name}: {text}")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": plain(file or report.manifest.path)},
                    "region": {"startLine": line or 1},
                }
            }
        ],
        "partialFingerprints": {"model/rule": plain(f"{model.name}/{rule}")},
    }


def _rule(code: str) -> dict[str, Any]:
    entry = CATALOGUE.get(code)
    if entry is None:
        return {"id": code, "shortDescription": {"text": "an output differs from PyTorch's"}}
    return {
        "id": code,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.why},
        "help": {"text": entry.remedy},
    }
